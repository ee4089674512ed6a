"""The simulator at scale: the real node code under a virtual clock."""

from contest import Contest, Contestant
import measure
import sheaf as sheaf_numbers

LEAVES = (32_768, 1_048_576)
# Nodes and links that fail while waves run; more leaves only take longer.
FAULTS = 100
FAULTS_LEAVES_MAX = 32_768


def recovery(sample):
    """The summary, which is the last line."""
    metrics = sheaf_numbers.numbers(sample, ())
    lines = measure.json_lines(sample.stdout.decode(errors="replace"))
    summary = lines[-1] if lines else {}
    for name in ("recovery", "longest_wave"):
        if f"{name}_ns" in summary:
            metrics[f"{name}_ms"] = summary[f"{name}_ns"] / 1e6
    return metrics


def contests(sheaf, options):
    if not sheaf.exists:
        return
    for leaves in options.servers or LEAVES:
        command = sheaf.command("tree", "simulate", "--leaves", leaves, "--fan-out", 32, "--json")
        yield Contest(f"simulate {leaves} leaves",
                      [Contestant("sheaf", command, keep=True, read=lambda s: sheaf_numbers.numbers(s, ()))],
                      baseline="sheaf", columns=("cpu_s", "rss_max_kb"))
        if leaves <= FAULTS_LEAVES_MAX:
            command = sheaf.command("tree", "simulate", "--leaves", leaves, "--fan-out", 32,
                                    "--faults", FAULTS, "--json")
            yield Contest(f"simulate {leaves} leaves, {FAULTS} faults",
                          [Contestant("sheaf", command, keep=True, read=recovery)],
                          baseline="sheaf", columns=("recovery_ms", "longest_wave_ms", "cpu_s", "rss_max_kb"))
