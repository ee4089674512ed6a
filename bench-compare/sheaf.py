"""Sheaf's command lines and how its own numbers are read: the one place to change with them."""

import contextlib
import os
import pathlib
import subprocess

import measure

# What a metric may be called in Sheaf's JSON, best name first.
NAMES = {
    "median_us": ("median_us", "rtt_median_us", "p50_us"),
    "p10_us": ("p10_us",),
    "p90_us": ("p90_us",),
    "median_waves_per_s": ("median_waves_per_s", "waves_per_s", "waves_per_second"),
    "median_s": ("median_s", "seconds", "elapsed_s", "s", "start_s"),
    "start_s": ("start_s", "up_s"),
    "bulk_s": ("bulk_s",),
    "tree_median_us": ("tree_median_us",),
    "tree_bulk_s": ("tree_bulk_s",),
    "init_s": ("init_s", "open_s", "start_s"),
    "read_s": ("read_s", "search_s"),
    "root_bytes": ("root_bytes", "root_bytes_received", "bytes_received_at_root", "bytes_received"),
    "leaf_cpu_s": ("leaf_cpu_s", "leaf_cpu_mean_s", "cpu_per_leaf_s"),
}
# The same in another unit: what it is called there, and what to multiply by.
SCALED = {
    "init_s": (("init_us", 1e-6), ("init_ms", 1e-3), ("open_ms", 1e-3)),
    "read_s": (("read_us", 1e-6), ("read_ms", 1e-3)),
    "leaf_cpu_s": (("leaf_cpu_us", 1e-6), ("leaf_cpu_ms", 1e-3), ("cpu_per_leaf_us", 1e-6)),
    "median_s": (("median_ms", 1e-3), ("median_us", 1e-6)),
}


class Sheaf:
    """The binary under test."""

    def __init__(self, binary):
        self.binary = str(pathlib.Path(binary).resolve())
        self.exists = os.access(self.binary, os.X_OK)

    def command(self, *words, servers=None, engine="processes", export=None, session=None,
                tree=None, link=None):
        line = [self.binary]
        if session:
            line += ["--session", session]
        elif servers:
            line += [f"--{engine}", str(servers)]
            line += ["--export", f"{export}/%h"] if export else []
            line += ["--tree", tree] if tree else []
            line += ["--link", link] if link else []
        return line + [str(w) for w in words]

    def bench(self, mode, shape, link, servers, options=()):
        return self.command("tree", "bench", mode, "--json", *options, servers=servers,
                            tree=shape, link=link)

    @contextlib.contextmanager
    def session(self, name, **where):
        """A running session; gives its name and the processes that work for it."""
        if not self.exists:
            yield None, ()
            return
        up = self.command("--session", name, "up", **where)
        down = [self.binary, "--session", name, "down"]
        before = set(measure.children())
        # Whoever started the session is gone by then: its processes are adopted by this one.
        started = _start_session(up)
        try:
            mine = measure.children() - before
            yield name if started else None, tuple(mine) + tuple(p for m in mine for p in measure.descendants(m))
        finally:
            measure.run(down, timeout_s=30)
            measure.end_all(measure.children() - before)


def _start_session(up):
    try:
        done = subprocess.run(up, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, timeout=60, start_new_session=True)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def flatten(value, prefix=""):
    """Every number of a JSON value by its dotted path."""
    if isinstance(value, bool):
        return {}
    if isinstance(value, (int, float)):
        return {prefix: value}
    items = value.items() if isinstance(value, dict) else ()
    found = {}
    for key, inner in items:
        found.update(flatten(inner, f"{prefix}.{key}" if prefix else key))
    return found


def numbers(sample, wanted):
    """Sheaf's own numbers under the harness's names, and all of them under `sheaf`."""
    flat = {}
    for record in measure.json_lines(sample.stderr) + measure.json_lines(
            sample.stdout.decode(errors="replace")):
        flat.update(flatten(record))
    last = {}
    for path, number in flat.items():
        last.setdefault(path.rsplit(".", 1)[-1], number)
    metrics = {"sheaf": flat} if flat else {}
    for name in wanted:
        for alias in NAMES[name]:
            if alias in last:
                metrics[name] = last[alias]
                break
        else:
            for alias, factor in SCALED.get(name, ()):
                if alias in last:
                    metrics[name] = last[alias] * factor
                    break
    return metrics
