#!/usr/bin/env python3
"""Checks the bare tree itself: right sums, right bytes, and nothing left behind.

A rival that is wrong or leaks processes is no floor, so this runs before it is
trusted. The tree verifies every sum of every wave; here all shapes, links and
modes go through it, its copies are compared, and it is killed in mid-run.
"""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
BARETREE = str(HERE / "baretree")
END_SECONDS_MAX = 10
SHAPES = ["1x1", "1x1x1", "flat:7", "1x8x8", "1x3x1x5", "1x2x2x2x2", "1x1x9", "flat:100"]


def session_members(sid):
    """The processes of a session that still run (a zombie has ended)."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[3]) == sid and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def wait_until(condition, what):
    deadline = time.monotonic() + END_SECONDS_MAX
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"FAILED: {what}")
        time.sleep(0.01)


def start(*args, **options):
    return subprocess.Popen([BARETREE, *args], start_new_session=True, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def run(*args):
    process = start(*args)
    out, err = process.communicate(timeout=120)
    if process.returncode or err:
        sys.exit(f"FAILED: baretree {' '.join(args)}: exit {process.returncode}: {err}")
    left = session_members(process.pid)
    if left:
        sys.exit(f"FAILED: baretree {' '.join(args)} left {left}")
    return json.loads(out)


def check_modes():
    for shape in SHAPES:
        for link in ("tcp", "unix"):
            common = ["--shape", shape, "--link", link]
            run("rtt", *common, "--rounds", "50")
            for batch in ("1", "64", "0"):
                run("waves", *common, "--batch", batch, "--waves", "20000", "--rounds", "2")
            for size in ("1", "65535", "65536", "3000001"):
                run("bcast", *common, "--bytes", size, "--verify", "--rounds", "2")
            run("bcast", *common, "--bytes", "1000003", "--chunk", "1000", "--ring", "10240", "--verify")
            run("start", *common, "--rounds", "2")
        print(f"modes on {shape}: ok")


def check_copies():
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory)
        for size in (0, 1, 65536, 512 << 10, 5_000_011):
            source = root / "source"
            source.write_bytes(os.urandom(size))
            for shape, leaves in (("1x8x8", 64), ("flat:16", 16), ("1x2x3", 6)):
                run("cp", "--shape", shape, "--file", str(source), "--rounds", "2",
                    "--dest", f"{root}/copy.%h", "--fsync")
                copies = sorted(root.glob("copy.*"))
                assert len(copies) == leaves, (shape, len(copies))
                for copy in copies:
                    assert copy.read_bytes() == source.read_bytes(), copy
                    copy.unlink()
        process = start("cp", "--shape", "1x2x2", "--file", str(source), "--dest", f"{root}/none/copy.%h")
        process.communicate(timeout=30)
        assert process.returncode == 1, "a copy to nowhere must fail"
        wait_until(lambda: not session_members(process.pid), "processes left after a failed copy")
    print("copies: ok")


def check_kills():
    for link in ("tcp", "unix"):
        for victim in ("root", "child"):
            for delay in (0.005, 0.02, 0.05, 0.2):
                process = start("rtt", "--shape", "1x4x4x4", "--link", link, "--rounds", "1000000")
                time.sleep(delay)
                others = [p for p in session_members(process.pid) if p != process.pid]
                os.kill(process.pid if victim == "root" or not others else others[0], signal.SIGKILL)
                wait_until(lambda: not session_members(process.pid),
                           f"{link}: processes left after the {victim} was killed: "
                           f"{session_members(process.pid)}")
                process.communicate(timeout=30)
                assert process.returncode != 0
    print("kills: ok")


def check_deadline():
    process = start("rtt", "--shape", "1x4x4", "--rounds", "1000000", "--deadline", "2")
    wait_until(lambda: len(session_members(process.pid)) == 21, "21 processes start")
    stopped = max(session_members(process.pid))
    os.kill(stopped, signal.SIGSTOP)
    process.wait(timeout=30)  # the stopped leaf still holds the pipes
    assert process.returncode != 0, "a stopped leaf must end the run at its deadline"
    os.kill(stopped, signal.SIGCONT)
    wait_until(lambda: not session_members(process.pid), "processes left after the deadline")
    print("deadline: ok")


def listening_ports(pid):
    inodes = set()
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        target = os.readlink(fd)
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    ports = []
    for line in pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and fields[9] in inodes:
            ports.append(int(fields[1].split(":")[1], 16))
    return ports


def check_strangers():
    """Connects to a root that is still starting and sends it garbage."""
    met = 0
    for _ in range(40):
        process = start("rtt", "--shape", "flat:60", "--rounds", "100")
        for _ in range(200):
            try:
                ports = listening_ports(process.pid)
            except OSError:
                continue
            if ports:
                for payload in (b"", b"x", b"GET / HTTP/1.0\r\n\r\n garbage garbage"):
                    try:
                        with socket.create_connection(("127.0.0.1", ports[0]), timeout=1) as stranger:
                            stranger.sendall(payload)
                            met += 1
                    except OSError:
                        continue
                break
        process.communicate(timeout=120)
        assert process.returncode == 0, "a stranger must not end the run"
    print(f"strangers: ok ({met} connections)")


if __name__ == "__main__":
    check_modes()
    check_copies()
    check_kills()
    check_deadline()
    check_strangers()
