"""Links from host to host: against two processes with a bare socket between them, and against the
same through the tree.

The bare one (`barelink/`) blocks in read and write; over TLS it is rustls with Sheaf's settings. One
run of Sheaf measures its link and the way through the tree.
"""

import os
import pathlib
import subprocess
import sys

from contest import Contest, Contestant
from sheaf import numbers

HERE = pathlib.Path(__file__).resolve().parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent / "target"))
BARELINK = TARGET / "release" / "barelink"
ROUNDS = 3000
RUNS = 5
METRICS = {"exchange of 4 KiB": ("median_us", "tree_median_us", "≤ 1.25"),
           "64 MiB": ("bulk_s", "tree_bulk_s", "≤ 1.11")}


def build():
    manifest = HERE / "barelink" / "Cargo.toml"
    subprocess.run(["cargo", "build", "-q", "--release", "--manifest-path", str(manifest),
                    "--target-dir", str(TARGET)], check=True)


def _contestant(name, line, metric, own):
    def read(sample):
        found = numbers(sample, [own])
        return {metric: found[own], **found} if own in found else found
    return Contestant(name, [*map(str, line), "--rounds", str(ROUNDS), "--runs", str(RUNS)],
                      keep=True, read=read)


def contests(sheaf, options):
    try:
        build()
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"peers: {error}", file=sys.stderr)
        return
    for link in options.links:
        for name, (metric, through, goal) in METRICS.items():
            bench = sheaf.command("tree", "bench", "peer", "--json", servers=2, tree="flat", link=link)
            ours = [_contestant("sheaf", bench, metric, metric),
                    _contestant("sheaf, through the tree", bench, metric, through)]
            yield Contest(f"peer link, {name}, {link}",
                          [_contestant("bare", [BARELINK, link], metric, metric),
                           *(ours if sheaf.exists else [])],
                          baseline="bare", metric=metric, goal=goal, columns=("cpu_s",))
