"""How fast servers come by themselves: N times `sheaf serve --join` at once, on loopback.

The clock of a turn runs from the start of the first server until the session says that all are its
members. The floor beside it is the start of as many processes that do nothing.
"""

import os
import pathlib
import sys

from contest import Contest, Contestant
import sheaf as sheaf_numbers
import measure

SERVERS = (256,)
JOINS = pathlib.Path(__file__).resolve().parent / "joins.py"


def _read(sample):
    found = {}
    for record in measure.json_lines(sample.stdout.decode(errors="replace")):
        found.update(sheaf_numbers.flatten(record))
    return found


def _shapes(count):
    side = int(count ** 0.5)
    yield "flat"
    if side * side == count:
        yield f"1x{side}x{side}"


def contests(sheaf, options):
    if not sheaf.exists:
        return
    for count in options.servers or SERVERS:
        runs = [("processes alone", ["--idle"])]
        runs += [(f"sheaf {shape}", ["--tree", shape]) for shape in _shapes(count)]
        contestants = []
        for name, words in runs:
            line = [sys.executable, str(JOINS), sheaf.binary, str(count), *words]
            contestants.append(Contestant(name, line, keep=True, read=_read,
                                          env={"TMPDIR": os.fspath(options.directory)}))
        yield Contest(f"join {count} servers", contestants, baseline="processes alone",
                      metric="joined_s", columns=("joins_per_s", "cpu_s"))
