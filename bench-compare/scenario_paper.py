"""The archive paper's eight factors: an object for each file, one request at a time, beside Sheaf.

Both use one S3 server (versitygw) through a relay that adds latency to each request. Sheaf has the whole
tree; the serial one has the first `SERIAL_FILES` of it, and what is compared is the time of a file.
"""

import os
import pathlib
import random
import shutil
import subprocess
import sys
import time

import s3_server
import scenario_archive
from contest import Contest, Contestant

SERIAL_FILES = 1000
LARGE_BYTES = 512 << 20
LATENCIES_MS = (2, 10)
ABSENT = scenario_archive.ABSENT
COLUMNS = ("wall_s", "cpu_s", "rss_max_kb")
HERE = pathlib.Path(__file__).resolve().parent


def relay(scratch, address, milliseconds):
    port_file = scratch / f"relay-{milliseconds}"
    s3_server.started([sys.executable, str(HERE / "latency.py"), str(port_file), address, str(milliseconds)])
    deadline = time.monotonic() + 20
    while not (port_file.exists() and port_file.read_text()):
        if time.monotonic() > deadline:
            sys.exit("the relay does not start")
        time.sleep(0.05)
    return f"http://127.0.0.1:{port_file.read_text()}"


def contests_at(sheaf, top, files, scratch, env, milliseconds):
    large = scratch / "large"
    prefix = f"archive-{milliseconds}"
    some = sorted(str(path) for path in top.glob("*/d000/f*"))[:SERIAL_FILES]
    env = {**env, "WORD": ABSENT, "XDG_CACHE_HOME": str(scratch / f"state-{milliseconds}")}
    name = f"s3://bucket/{prefix}::"

    def serial(operation, paths=some):
        return Contestant("one at a time", [sys.executable, str(HERE / "serial_s3.py"), operation,
                                           f"bucket/serial-{milliseconds}", *paths],
                          env=env, read=s3_server.of_files(len(paths)))

    def ours(title, *words, before=None, count=files, exits=(0,)):
        return Contestant(title, sheaf.command("archive", *words), env=env, before=before,
                          read=s3_server.of_files(count), exits=exits)

    def quietly(*words):
        subprocess.run([str(w) for w in sheaf.command("archive", *words)], env={**os.environ, **env},
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def gone():
        subprocess.run(["rm", "-rf", str(scratch / "s3" / "bucket" / prefix), env["XDG_CACHE_HOME"]], check=True)
    tree = f"{name}/{top.name}"
    turn = {"mode": 0}
    chmod = sheaf.command("archive", "chmod", "-R", "o-r", tree)

    def turned():
        turn["mode"] ^= 1
        chmod[-2] = "o-r" if turn["mode"] else "o+r"
    end = f", {milliseconds} ms"
    yield Contest(f"paper store{end}", [
        serial("store"),
        ours("sheaf store", "store", "--quiet", "--create", top, f"{name}/", before=gone),
        ours("sheaf store, nothing has changed", "store", "--quiet", top, f"{name}/"),
    ], baseline="sheaf store", metric="us_per_file", columns=COLUMNS, goal="267, conditional 1066")
    yield Contest(f"paper find{end}", [serial("find"), ours("sheaf find", "find", tree)],
                  baseline="sheaf find", metric="us_per_file", columns=COLUMNS, goal="99")
    yield Contest(f"paper chmod{end}", [
        serial("chmod"),
        Contestant("sheaf chmod", chmod, env=env, before=turned, read=s3_server.of_files(files)),
        ours("sheaf chmod, nothing to change", "chmod", "-R", "u+r", tree),
    ], baseline="sheaf chmod", metric="us_per_file", columns=COLUMNS, goal="839, conditional 4074")
    yield Contest(f"paper cp{end}", [
        serial("cp"),
        ours("sheaf cp", "cp", "-r", tree, f"{name}/copy", before=lambda: quietly("rm", "-rf", f"{name}/copy")),
    ], baseline="sheaf cp", metric="us_per_file", columns=COLUMNS, goal="2564")
    yield Contest(f"paper grep{end}", [serial("grep"), ours("sheaf grep", "grep", "-F", ABSENT, tree, exits=(1,))],
                  baseline="sheaf grep", metric="us_per_file", columns=COLUMNS, goal="616")
    yield Contest(f"paper large{end}", [
        serial("large", [str(large)]),
        ours("sheaf store", "store", "--quiet", large, f"{name}/", count=1,
             before=lambda: quietly("rm", "-f", f"{name}/large")),
    ], baseline="sheaf store", metric="us_per_file", columns=COLUMNS, goal="5")


def contests(sheaf, options):
    top = scenario_archive.tree(options.directory, options.files)
    scratch = pathlib.Path(options.directory) / "paper-scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    found = s3_server.server(scratch)
    if not found:
        print("no versitygw: the paper's factors are left out", file=sys.stderr)
        return
    address, keys = found
    with open(scratch / "large", "wb") as file:
        block = random.Random(2).randbytes(1 << 20)
        for number in range(LARGE_BYTES >> 20):
            file.write(number.to_bytes(8) + block[8:])
    for milliseconds in LATENCIES_MS:
        env = {**keys, "AWS_ENDPOINT_URL": relay(scratch, address, milliseconds)}
        yield from contests_at(sheaf, top, options.files, scratch, env, milliseconds)
    shutil.rmtree(scratch)
