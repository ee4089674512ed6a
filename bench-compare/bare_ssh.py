#!/usr/bin/env python3
"""A program of one's own at both ends of an ssh connection: what ssh itself takes.

Arguments: rtt ROUNDS or bulk BYTES, then the command that logs in. The connection is made before
the clock runs. One line of JSON says what came out.
"""

import json
import statistics
import subprocess
import sys
import time

MESSAGE = b"x" * 64
PIECE = bytes(256 << 10)


def connect(command, remote):
    return subprocess.Popen([*command, remote], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)


def read_exactly(pipe, count):
    while count:
        piece = pipe.read(count)
        if not piece:
            sys.exit("the other end is gone")
        count -= len(piece)


def round_trips(command, rounds):
    ssh = connect(command, "exec cat")
    took = []
    for number in range(rounds + 20):
        begun = time.perf_counter()
        ssh.stdin.write(MESSAGE)
        read_exactly(ssh.stdout, len(MESSAGE))
        if number >= 20:
            took.append(time.perf_counter() - begun)
    ssh.stdin.close()
    ssh.wait()
    return {"measure": "rtt", "n": rounds, "median_us": statistics.median(took) * 1e6}


def bulk(command, count):
    ssh = connect(command, f"echo r; head -c {count} >/dev/null; echo d")
    read_exactly(ssh.stdout, 2)
    begun = time.perf_counter()
    left = count
    while left:
        left -= ssh.stdin.write(PIECE[:min(left, len(PIECE))])
    read_exactly(ssh.stdout, 2)
    took = time.perf_counter() - begun
    ssh.stdin.close()
    ssh.wait()
    return {"measure": "bcast", "n": 1, "median_s": took}


if __name__ == "__main__":
    what, count, *command = sys.argv[1:]
    print(json.dumps({"rtt": round_trips, "bulk": bulk}[what](command, int(count))))
