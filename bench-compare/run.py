#!/usr/bin/env python3
"""Measures Sheaf against its rivals: all contestants of a contest take turns in one run.

Samples and results go to a file of JSON lines, tables in Markdown to standard
output. See README.md for what each contestant is.
"""

import argparse
import contextlib
import datetime
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import sys

import measure
import mount_world
import scenario_archive
import scenario_cp
import scenario_grep
import scenario_iotrace
import scenario_joins
import scenario_launch
import scenario_links
import scenario_mount
import scenario_mrnet
import scenario_paper
import scenario_peers
import scenario_simulate
import scenario_tree
from contest import Harness
from sheaf import Sheaf

HERE = pathlib.Path(__file__).resolve().parent
SCENARIOS = {"tree": scenario_tree, "grep": scenario_grep, "cp": scenario_cp,
             "simulate": scenario_simulate, "launch": scenario_launch, "links": scenario_links, "joins": scenario_joins, "mrnet": scenario_mrnet,
             "peers": scenario_peers, "iotrace": scenario_iotrace, "archive": scenario_archive, "paper": scenario_paper,
             "mount": scenario_mount}
VERSIONS = {"grep": "--version", "rg": "--version", "find": "--version", "bfs": "--version", "tar": "--version",
            "rsync": "--version", "restic": "version", "rclone": "version", "pdsh": "-V", "clush": "--version",
            "cc": "--version", "sshfs": "--version"}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scenario", nargs="+", choices=[*SCENARIOS, "all"])
    parser.add_argument("--sheaf", default=HERE.parent / "target/release/sheaf",
                        help="the binary under test; left out of the contests when it is missing")
    parser.add_argument("-n", "--rounds", type=int, default=5, help="turns of each contestant")
    parser.add_argument("--contestant-seconds", type=float, default=60,
                        help="no further turn for a contestant that has used this long in a contest")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one command")
    parser.add_argument("--directory", type=pathlib.Path,
                        help="where the servers' files are (a temporary one in /dev/shm)")
    parser.add_argument("--servers", type=int, nargs="+",
                        help="numbers of servers for grep, cp, launch and joins, of leaves for simulate")
    parser.add_argument("--files", type=int, default=1_000_000, help="files of the archive's tree")
    parser.add_argument("--links", nargs="+", choices=["tcp", "unix", "tls"], default=["tcp", "unix"],
                        help="tls is compared with the bare tree over tcp, which encrypts nothing (peers: with rustls)")
    parser.add_argument("--nets", nargs="+", choices=mount_world.NETS, default=["loopback"],
                        help="what joins the hosts of mount; the shaped ones are in namespaces, which wants root")
    parser.add_argument("--cpus", help="CPUs to run on, such as 0,1 (default: all, not pinned)")
    parser.add_argument("--only", default="", help="contests whose name contains this")
    parser.add_argument("--out", type=pathlib.Path, help="file of JSON lines (results/TIME.jsonl)")
    options = parser.parse_args()
    if options.cpus:
        os.sched_setaffinity(0, {int(c) for c in options.cpus.split(",")})
    return options


def version(tool):
    if not shutil.which(tool):
        return None
    done = subprocess.run([tool, VERSIONS[tool]], capture_output=True, text=True)
    return (done.stdout or done.stderr).splitlines()[0]


def machine(options, sheaf):
    """Where this was measured; the first line of the results."""
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo")
                  if line.startswith("model name")), platform.machine())
    memory_kb = int(open("/proc/meminfo").readline().split()[1])
    return {
        "kind": "machine", "time": datetime.datetime.now(datetime.timezone.utc).isoformat(),
        "cpu": model, "cpus": os.cpu_count(), "memory_gb": round(memory_kb / 1e6, 1),
        "kernel": platform.release(), "load": os.getloadavg(),
        "placement": f"CPUs {sorted(os.sched_getaffinity(0))}, "
                     f"{'pinned' if options.cpus else 'not pinned'}, all contestants alike",
        "files_on": str(options.directory), "rounds": options.rounds,
        "sheaf": sheaf.binary if sheaf.exists else None,
        "versions": {tool: version(tool) for tool in VERSIONS},
    }


def main():
    options = arguments()
    own_directory = options.directory is None
    if own_directory:
        options.directory = pathlib.Path(f"/dev/shm/sheaf-bench-{os.getpid()}")
    options.directory.mkdir(parents=True, exist_ok=True)
    out = options.out or HERE / "results" / f"{datetime.datetime.now():%Y%m%d-%H%M%S}.jsonl"
    out.parent.mkdir(parents=True, exist_ok=True)
    sheaf = Sheaf(options.sheaf)
    if not sheaf.exists:
        print(f"{sheaf.binary} is not there: rivals only", file=sys.stderr)
    measure.become_subreaper()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        with open(out, "a") as lines:
            harness = Harness(options.rounds, options.contestant_seconds, options.timeout, lines)
            about = machine(options, sheaf)
            harness.emit(about)
            print(f"{about['cpu']}, {about['cpus']} CPUs, {about['memory_gb']} GB, Linux "
                  f"{about['kernel']}; {about['placement']}; load {about['load'][0]:.1f}; "
                  f"files on {about['files_on']}")
            chosen = SCENARIOS if "all" in options.scenario else options.scenario
            for name in chosen:
                # Closed, so that what a scenario has started ends at once when this is interrupted.
                with contextlib.closing(SCENARIOS[name].contests(sheaf, options)) as contests:
                    for contest in contests:
                        if options.only in contest.name:
                            harness.run(contest)
    finally:
        if own_directory:
            shutil.rmtree(options.directory, ignore_errors=True)
    print(f"\nload at the end {os.getloadavg()[0]:.1f}; every sample is in {out}")


if __name__ == "__main__":
    main()
