"""The simulator at scale: the real node code under a virtual clock."""

from contest import Contest, Contestant
import sheaf as sheaf_numbers

LEAVES = (32_768, 1_048_576)


def contests(sheaf, options):
    if not sheaf.exists:
        return
    for leaves in options.servers or LEAVES:
        command = sheaf.command("tree", "simulate", "--leaves", leaves, "--fan-out", 32, "--json")
        yield Contest(f"simulate {leaves} leaves",
                      [Contestant("sheaf", command, keep=True, read=lambda s: sheaf_numbers.numbers(s, ()))],
                      baseline="sheaf", columns=("cpu_s", "rss_max_kb"))
