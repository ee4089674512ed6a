#!/usr/bin/env python3
"""Starts a session that servers join, starts them all at once, and says how long that took."""

import argparse
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

CONFIG = """\
[cluster.joins]
hosts = "n[1-{count}]"
launch = "attach"
tree = "{tree}"
listen = "127.0.0.1:{port}"
"""
END_SECONDS_MAX = 30


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sheaf")
    parser.add_argument("count", type=int)
    parser.add_argument("--tree", default="flat")
    parser.add_argument("--idle", action="store_true", help="start processes that join nothing")
    return parser.parse_args()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def told(count, seconds):
    print(json.dumps({"joined_s": seconds, "joins_per_s": count / seconds}))


def idle(options):
    begun = time.perf_counter()
    started = [subprocess.Popen([options.sheaf, "--version"], stdout=subprocess.DEVNULL)
               for _ in range(options.count)]
    codes = [process.wait() for process in started]
    told(options.count, time.perf_counter() - begun)
    return max(codes)


def joins(options, home):
    port = free_port()
    (home / "sheaf.toml").write_text(CONFIG.format(count=options.count, tree=options.tree, port=port))
    runtime = home / "run"
    runtime.mkdir(mode=0o700)
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(runtime)}
    sheaf = [options.sheaf, "--config", str(home / "sheaf.toml")]
    up = subprocess.run([*sheaf, "up", "--tokens", home / "token", "--token-uses", str(options.count)],
                        env=environment, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    if up.returncode not in (0, 1):  # 1: nobody has joined yet
        return up.returncode
    servers = []
    try:
        begun = time.perf_counter()
        for number in range(1, options.count + 1):
            servers.append(subprocess.Popen(
                [options.sheaf, "serve", "--join", f"127.0.0.1:{port}", "--token-file", home / "token",
                 "--host", f"n{number}"], stdin=subprocess.DEVNULL))
        # Answers once every server has joined, or none is waited for any longer.
        shown = subprocess.run([*sheaf, "tree", "show", "--json"], env=environment,
                               capture_output=True, text=True, stdin=subprocess.DEVNULL)
        seconds = time.perf_counter() - begun
        last = json.loads((shown.stdout.splitlines() or ["{}"])[-1])
        running = last.get("running", 0)
        if running != options.count:
            print(f"{running} of {options.count} have joined: {shown.stderr}", file=sys.stderr)
            return 1
        told(options.count, seconds)
        return 0
    finally:
        subprocess.run([*sheaf, "down"], env=environment, stdin=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + END_SECONDS_MAX
        for server in servers:
            try:
                server.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                server.kill()


def main():
    options = arguments()
    if options.idle:
        sys.exit(idle(options))
    with tempfile.TemporaryDirectory() as home:
        sys.exit(joins(options, pathlib.Path(home)))


if __name__ == "__main__":
    main()
