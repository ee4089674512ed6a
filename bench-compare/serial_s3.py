#!/usr/bin/env python3
"""An archive as it was before aggregates and threads: one object for a file, one request at a time.

    serial_s3.py OPERATION BUCKET/PREFIX FILE...

Endpoint and keys are those of the environment (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY). Each request is signed and waits for its answer, on one connection that is kept.
  store  writes each file as an object, its attributes beside it
  find   asks for the attributes of each
  chmod  writes the attributes of each anew (S3 copies an object onto itself for that)
  cp     copies each to another name
  grep   reads each and looks for WORD in it (of the environment)
  large  writes one file in parts of 8 MiB, one after the other
"""

import datetime
import hashlib
import hmac
import http.client
import os
import sys
import urllib.parse
import xml.etree.ElementTree

PART_BYTES = 8 << 20
REGION = "us-east-1"


class Serial:
    def __init__(self):
        url = urllib.parse.urlsplit(os.environ["AWS_ENDPOINT_URL"])
        self.host = url.netloc
        self.user, self.secret = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
        self.connection = http.client.HTTPConnection(url.hostname, url.port, timeout=60)
        self.day, self.key = None, None

    def signing_key(self, day):
        if self.day != day:
            key = ("AWS4" + self.secret).encode()
            for part in (day, REGION, "s3", "aws4_request"):
                key = hmac.new(key, part.encode(), hashlib.sha256).digest()
            self.day, self.key = day, key
        return self.key

    def ask(self, method, path, query="", body=b"", **headers):
        """One request, and what is answered."""
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        path = urllib.parse.quote("/" + path)
        headers = {name.replace("_", "-"): text for name, text in headers.items()}
        headers |= {"host": self.host, "x-amz-date": now, "x-amz-content-sha256": "UNSIGNED-PAYLOAD"}
        names = sorted(headers)
        signed = ";".join(names)
        canonical = "\n".join([method, path, query, *(f"{n}:{headers[n]}" for n in names), "", signed,
                               "UNSIGNED-PAYLOAD"])
        scope = f"{now[:8]}/{REGION}/s3/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        signature = hmac.new(self.signing_key(now[:8]), text.encode(), hashlib.sha256).hexdigest()
        headers["authorization"] = (f"AWS4-HMAC-SHA256 Credential={self.user}/{scope},"
                                    f"SignedHeaders={signed},Signature={signature}")
        self.connection.request(method, path + ("?" + query if query else ""), body, headers)
        answer = self.connection.getresponse()
        read = answer.read()
        if answer.status // 100 != 2:
            sys.exit(f"{method} {path}: {answer.status}: {read[:200]!r}")
        return answer, read


def attributes(path, mode_change=0):
    found = os.stat(path)
    return {"x-amz-meta-mode": f"{found.st_mode ^ mode_change:o}", "x-amz-meta-uid": str(found.st_uid),
            "x-amz-meta-gid": str(found.st_gid), "x-amz-meta-mtime": str(found.st_mtime_ns)}


def large(serial, key, path):
    _, read = serial.ask("POST", key, "uploads=")
    upload = next(e.text for e in xml.etree.ElementTree.fromstring(read).iter() if e.tag.endswith("UploadId"))
    tags = []
    with open(path, "rb") as file:
        while part := file.read(PART_BYTES):
            query = f"partNumber={len(tags) + 1}&uploadId={urllib.parse.quote(upload, safe='')}"
            tags.append(serial.ask("PUT", key, query, part)[0].getheader("ETag"))
    parts = "".join(f"<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>"
                    for number, tag in enumerate(tags, 1))
    body = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
    serial.ask("POST", key, f"uploadId={urllib.parse.quote(upload, safe='')}", body)


def main():
    operation, prefix, *paths = sys.argv[1:]
    serial = Serial()
    word = os.environ.get("WORD", "").encode()
    for path in paths:
        key = f"{prefix}/{path.lstrip('/')}"
        if operation == "store":
            with open(path, "rb") as file:
                serial.ask("PUT", key, "", file.read(), **attributes(path))
        elif operation == "find":
            print(serial.ask("HEAD", key)[0].getheader("x-amz-meta-mode"), path)
        elif operation == "chmod":
            serial.ask("PUT", key, **{"x-amz-copy-source": urllib.parse.quote("/" + key),
                                      "x-amz-metadata-directive": "REPLACE", **attributes(path, 0o4)})
        elif operation == "cp":
            serial.ask("PUT", key + ".copy", **{"x-amz-copy-source": urllib.parse.quote("/" + key)})
        elif operation == "grep":
            if word in serial.ask("GET", key)[1]:
                print(path)
        elif operation == "large":
            large(serial, key, path)
        else:
            sys.exit(f"{operation}: no operation")


main()
