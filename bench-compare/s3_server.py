"""An S3 server of its own for a contest: versitygw, with a bucket in a directory, ended with the run."""

import atexit
import itertools
import os
import pathlib
import shutil
import subprocess

SERVERS = itertools.count()


def started(command, env=None):
    process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    atexit.register(process.kill)
    return process


def server(scratch):
    """An S3 server with a bucket, and its keys; nothing where there is none."""
    program = shutil.which("versitygw", path=f"{os.environ['PATH']}:{pathlib.Path.home()}/go/bin")
    if not program:
        return None
    (scratch / "s3" / "bucket").mkdir(parents=True)
    keys = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench-secret", "AWS_REGION": "us-east-1"}
    port = 20000 + (os.getpid() + 7919 * next(SERVERS)) % 20000
    started([program, "--quiet", "--port", f"127.0.0.1:{port}", "posix", str(scratch / "s3")],
            {**os.environ, "ROOT_ACCESS_KEY_ID": "bench", "ROOT_SECRET_ACCESS_KEY": "bench-secret"})
    return f"127.0.0.1:{port}", keys


def of_files(count):
    return lambda sample: {"us_per_file": sample.wall_s / count * 1e6}
