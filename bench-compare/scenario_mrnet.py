"""MRNet's C++ interface against the Rust one: round trips and waves of an integer sum.

The Rust interface has two ways to send many waves. By packet, as MRNet's tools do: a thread of the program's
own posts each with a call, and the root takes each with a call. In bulk: the leaf's service posts as many as
there is room for within one call, and the root takes all that are there.
"""

import functools
import os
import pathlib
import subprocess
import sys

import measure
import sheaf as sheaf_numbers
from contest import Contest, Contestant

HERE = pathlib.Path(__file__).resolve().parent
SHAPES = {"1x8": (8,), "1x8x8": (8, 8)}
LEAVES = {"1x8": 8, "1x8x8": 64}
ROUNDS = 1000
# What the C++ program does too.
RUNS = 5
WAVES = {"1x8": 100_000, "1x8x8": 20_000}


def build(built, to):
    """The program, and the shared library under its name; None where a part is missing."""
    library = next((at for at in (built / "liblibsheaf.so", built / "deps/liblibsheaf.so")
                    if at.exists()), None)
    if library is None or not (built / "mrnet_commnode").exists():
        print(f"libsheaf is not built in {built}: cargo build --release -p libsheaf -p sheaf-mrnet",
              file=sys.stderr)
        return None
    for name in ("libsheaf.so", "libsheaf.so.0"):
        (to / name).unlink(missing_ok=True)
        (to / name).symlink_to(library)
    program = to / "mrnet"
    subprocess.run(["g++", "-std=c++11", "-O2", "-pthread", "-I", HERE.parent / "include",
                    "-I", HERE.parent / "crates/sheaf-mrnet/include", "-o", program,
                    HERE / "mrnet/mrnet.cpp", f"-L{to}", f"-Wl,-rpath,{to}", "-lsheaf"],
                   check=True)
    return program


def topology(levels):
    """The text of a topology file on this machine."""
    lines, first, width = [], 0, 1
    for fan_out in levels:
        for parent in range(width):
            below = range(first + width + parent * fan_out, first + width + (parent + 1) * fan_out)
            lines.append(f"localhost:{first + parent} => "
                         + " ".join(f"localhost:{child}" for child in below) + " ;")
        first, width = first + width, width * fan_out
    return "\n".join(lines) + "\n"


def rust(sheaf, mode, shape, metric, *options, name="Rust"):
    """The same tree through the Rust interface, when there is a Sheaf."""
    if not sheaf.exists:
        return []
    read = functools.partial(sheaf_numbers.numbers, wanted=(metric,))
    command = sheaf.bench(mode, shape, "unix", LEAVES[shape], options)
    return [Contestant(name, command, keep=True, read=read)]


def contests(sheaf, options):
    built = pathlib.Path(sheaf.binary).parent
    program = build(built, options.directory)
    if program is None:
        return
    env = {**os.environ, "MRNET_COMM_PATH": str(built / "mrnet_commnode")}
    last = lambda sample: measure.json_lines(sample.stdout.decode())[-1]
    for shape, levels in SHAPES.items():
        file = options.directory / f"topology-{shape}"
        file.write_text(topology(levels))

        def through_mrnet(mode, count):
            return Contestant("C++", [str(program), mode, str(file), str(count)], keep=True,
                              env=env, read=last)

        yield Contest(
            f"mrnet rtt {shape}",
            [through_mrnet("rtt", ROUNDS),
             *rust(sheaf, "rtt", shape, "median_us", "--rounds", ROUNDS)],
            baseline="Rust", metric="median_us", goal="≤ 1.2",
            columns=("p10_us", "p90_us", "cpu_s", "rss_max_kb"))
        yield Contest(
            f"mrnet waves {shape}",
            [through_mrnet("waves", WAVES[shape]),
             *rust(sheaf, "waves", shape, "median_waves_per_s", "--each", "--waves", WAVES[shape],
                   "--runs", RUNS, name="Rust, by packet"),
             *rust(sheaf, "waves", shape, "median_waves_per_s", "--waves", WAVES[shape], "--runs",
                   RUNS)],
            baseline="Rust, by packet", metric="median_waves_per_s", goal="≥ 0.83",
            columns=("cpu_s", "rss_max_kb"))
