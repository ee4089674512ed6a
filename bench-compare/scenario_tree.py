"""Sheaf's tree against the bare tree: round trips, waves, a broadcast, and starting."""

import functools
import pathlib
import subprocess

import measure
import sheaf as sheaf_numbers
from contest import Contest, Contestant

HERE = pathlib.Path(__file__).resolve().parent
BARETREE = HERE / "baretree" / "baretree"
LEAVES = {"1x8x8": 64, "1x16x16": 256}
RTT_ROUNDS = {"1x8x8": 1000, "1x16x16": 300}
# Enough waves for about a second of the bare tree that batches, and of the one that does not.
WAVES_BATCHED = {"1x8x8": 400_000, "1x16x16": 100_000}
WAVES_SINGLE = {"1x8x8": 20_000, "1x16x16": 5_000}


def build():
    subprocess.run(["make", "-s", "-C", str(BARETREE.parent), "baretree"], check=True)


def bare_numbers(sample):
    return measure.json_lines(sample.stdout.decode())[-1]


def bare(name, mode, shape, link, *options):
    # The bare tree has no TLS; what encryption costs is part of the ratio.
    link = "tcp" if link == "tls" else link
    command = [str(BARETREE), mode, "--shape", shape, "--link", link, *map(str, options)]
    return Contestant(name, command, keep=True, read=bare_numbers)


def ours(sheaf, mode, shape, link, metric, *options):
    """Sheaf's own bench, when there is a Sheaf."""
    if not sheaf.exists:
        return []
    read = functools.partial(sheaf_numbers.numbers, wanted=(metric, "start_s"))
    command = sheaf.bench(mode, shape, link, LEAVES[shape], options)
    return [Contestant("sheaf", command, keep=True, read=read)]


def contests(sheaf, options):
    build()
    for link in options.links:
        for shape in LEAVES:
            rounds = RTT_ROUNDS[shape]
            yield Contest(
                f"rtt {shape} {link}",
                [bare("bare", "rtt", shape, link, "--rounds", rounds),
                 *ours(sheaf, "rtt", shape, link, "median_us", "--rounds", rounds)],
                baseline="bare", metric="median_us", goal="≤ 1.25",
                columns=("p10_us", "p90_us", "cpu_s", "rss_max_kb"))
            many, few = WAVES_BATCHED[shape], WAVES_SINGLE[shape]
            yield Contest(
                f"waves {shape} {link}",
                [bare("bare, 64 a write", "waves", shape, link, "--batch", 64, "--waves", many),
                 *ours(sheaf, "waves", shape, link, "median_waves_per_s"),
                 bare("bare, all ready", "waves", shape, link, "--batch", 0, "--waves", many),
                 bare("bare, 1 a write", "waves", shape, link, "--batch", 1, "--waves", few)],
                baseline="bare, 64 a write", metric="median_waves_per_s", goal="≥ 0.8",
                columns=("cpu_s", "rss_max_kb"))
        yield Contest(
            f"bcast 64 MiB 1x8x8 {link}",
            [bare("bare", "bcast", "1x8x8", link, "--rounds", 3),
             *ours(sheaf, "bcast", "1x8x8", link, "median_s")],
            baseline="bare", metric="median_s", goal="≤ 1.25", columns=("cpu_s", "rss_max_kb"))
        yield Contest(
            f"start of 256, 1x16x16 {link}",
            [bare("bare", "start", "1x16x16", link, "--rounds", 3),
             *ours(sheaf, "start", "1x16x16", link, "median_s")],
            baseline="bare", metric="median_s", goal="≤ 1.5",
            columns=("median_start_and_end_s", "wall_s", "cpu_s"))
