#!/usr/bin/env python3
"""The short contest: is the tree as fast as an older build, and how large is the program?

Both builds and the bare tree take turns in one run (about three minutes with -n 5). The last lines are
a row for the table in docs/benchmarks.md. The build is timed by itself, because it takes longer:

    packaging/build.sh
    python3 bench-compare/short.py --sheaf target/dist/sheaf --older /path/of/an/older/dist/sheaf
    python3 bench-compare/short.py --build
"""

import argparse
import dataclasses
import datetime
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import zlib

import measure
import scenario_tree
from contest import Contest, Harness
from sheaf import Sheaf

HERE = pathlib.Path(__file__).resolve().parent
# Name, mode, shape, link, metric, whether more is better, options.
ROWS = (
    ("rtt 1x8x8 unix", "rtt", "1x8x8", "unix", "median_us", False, ("--rounds", 600)),
    ("rtt 1x8x8 tcp", "rtt", "1x8x8", "tcp", "median_us", False, ("--rounds", 600)),
    ("rtt 1x16x16 unix", "rtt", "1x16x16", "unix", "median_us", False, ("--rounds", 150)),
    ("rtt 1x16x16 tcp", "rtt", "1x16x16", "tcp", "median_us", False, ("--rounds", 150)),
    ("waves/s 1x8x8 unix", "waves", "1x8x8", "unix", "median_waves_per_s", True, ()),
    ("waves/s 1x8x8 tcp", "waves", "1x8x8", "tcp", "median_waves_per_s", True, ()),
    ("start of 256 unix", "start", "1x16x16", "unix", "median_s", False, ()),
    ("start of 256 tcp", "start", "1x16x16", "tcp", "median_s", False, ()),
)
BARE_OPTIONS = {"waves": ("--batch", 64, "--waves", 200_000), "start": ("--rounds", 3)}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sheaf", default=HERE.parent / "target/dist/sheaf", help="the program under test")
    parser.add_argument("--older", help="an older one, measured in the same turns")
    parser.add_argument("-n", "--rounds", type=int, default=5, help="turns of each contestant")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--build", action="store_true",
                        help="time cargo build --release -p sheaf from an empty target, and nothing else")
    parser.add_argument("--out", type=pathlib.Path, help="file of JSON lines (results/TIME.jsonl)")
    return parser.parse_args()


def build():
    """CPU and wall seconds of the first build, and the program's size."""
    with tempfile.TemporaryDirectory(prefix="sheaf-build-") as target:
        subprocess.run(["cargo", "fetch", "--locked"], cwd=HERE.parent, check=True)
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        subprocess.run(["cargo", "build", "--release", "-p", "sheaf", "--locked"], cwd=HERE.parent,
                       env={**os.environ, "CARGO_TARGET_DIR": target}, check=True)
        after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - begun
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        size = (pathlib.Path(target) / "release/sheaf").stat().st_size
    print(f"first build: {cpu:.0f} s of CPU, {wall:.0f} s, {size / 1e6:.1f} MB; "
          f"load at the end {os.getloadavg()[0]:.1f}")


def contest(row, programs):
    name, mode, shape, link, metric, _, options = row
    contestants = [scenario_tree.bare("bare", mode, shape, link, *options, *BARE_OPTIONS.get(mode, ()))]
    for label, program in programs.items():
        contestants += [
            dataclasses.replace(each, name=label)
            for each in scenario_tree.ours(program, mode, shape, link, metric, *options)]
    return Contest(name, contestants, baseline="bare", metric=metric, columns=("cpu_s",))


def ratios(samples, metric, to):
    """The median ratio of each contestant to one of them, turn by turn."""
    base = [sample.metrics[metric] for sample in samples.get(to, [])]
    return {name: statistics.median(s.metrics[metric] / b for s, b in zip(of_it, base))
            for name, of_it in samples.items() if name != to and of_it and base}


def cell(found, direct):
    if direct and "older" in found and "now" in found:
        return f"{found['older']:.2f} → {found['now']:.2f} ({direct:.2f})"
    return f"{found['now']:.2f}" if "now" in found else "failed"


def packed_bytes(path):
    """What ssh sends of it, near enough."""
    return len(zlib.compress(pathlib.Path(path).read_bytes(), 4))


def main():
    options = arguments()
    if options.build:
        build()
        return
    programs = {"now": Sheaf(options.sheaf)}
    if options.older:
        programs["older"] = Sheaf(options.older)
    missing = [program.binary for program in programs.values() if not program.exists]
    if missing:
        sys.exit(f"not built: {missing[0]}")
    scenario_tree.build()
    measure.become_subreaper()
    out = options.out or HERE / "results" / f"{datetime.datetime.now():%Y%m%d-%H%M%S}.jsonl"
    out.parent.mkdir(parents=True, exist_ok=True)
    begun, cells = time.monotonic(), []
    with open(out, "a") as lines:
        harness = Harness(options.rounds, 60, 120, lines)
        for row in ROWS:
            if options.only in row[0]:
                samples = harness.run(contest(row, programs))
                direct = ratios(samples, row[4], "older").get("now")
                cells.append((row[0], cell(ratios(samples, row[4], "bare"), direct)))
    size = pathlib.Path(options.sheaf).stat().st_size
    cells += [("MB", f"{size / 1e6:.1f}"), ("MB sent", f"{packed_bytes(options.sheaf) / 1e6:.1f}")]
    print(f"\n{time.monotonic() - begun:.0f} s, load at the end {os.getloadavg()[0]:.1f}; samples are in {out}\n")
    print("| date | " + " | ".join(name for name, _ in cells) + " |")
    print("|---" * (len(cells) + 1) + "|")
    print(f"| {datetime.date.today()} | " + " | ".join(text for _, text in cells) + " |")


if __name__ == "__main__":
    main()
