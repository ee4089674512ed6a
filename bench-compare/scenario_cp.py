"""`cp` of one file to many servers against pdcp, parallel shells, a loop, and the bare tree."""

import functools
import hashlib
import os
import pathlib
import stat

import data
import scenario_tree
import sheaf as sheaf_numbers
from contest import Contest, Contestant

SIZES = {"512 KB": 512 << 10, "64 MB": 64 << 20}
SHAPES = {16: "1x16", 64: "1x8x8"}
OWN = ("init_s", "root_bytes", "leaf_cpu_s")

# pdcp has no exec module of its own, so it is given an ssh that runs the
# command here, in the directory of the host: pdcp itself is the real one.
LOCAL_SSH = """#!/bin/sh
while :; do
    case "$1" in
        -l) shift 2 ;;
        -*) shift ;;
        *) break ;;
    esac
done
cd "$BENCH_EXPORTS/$1" || exit 255
shift
exec sh -c "$*"
"""


def _local_ssh(directory):
    """Writes the stand-in for ssh; gives the environment that finds it first."""
    shim = pathlib.Path(directory) / "local-ssh"
    shim.mkdir(exist_ok=True)
    script = shim / "ssh"
    script.write_text(LOCAL_SSH)
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return {"PATH": f"{shim}:{os.environ['PATH']}", "BENCH_EXPORTS": str(directory)}


def _digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha1").digest()


def _clean(directory, count):
    for number in range(1, count + 1):
        for path in (pathlib.Path(directory) / f"n{number}").iterdir():
            if path.name != "services":
                path.unlink()


def _verify(directory, count, source):
    """Nothing but the copies is there, and those of a contestant's first turn have the right content."""
    want, digested = _digest(source), []

    def check(_sample):
        for number in range(1, count + 1):
            home = pathlib.Path(directory) / f"n{number}"
            names = {p.name for p in home.iterdir()} - {"services"}
            if names != {"dest"}:
                return f"n{number} has {sorted(names)}"
            if not digested and _digest(home / "dest") != want:
                return f"n{number} has other content"
        digested.append(True)
        return None
    return check


def _rivals(directory, count, source):
    hosts, dest = f"n[1-{count}]", f"{directory}/%h/dest"
    loop = f"for i in $(seq {count}); do cp {source} {directory}/n$i/dest || exit 1; done"
    yield scenario_tree.bare("bare tree", "cp", SHAPES[count], "tcp", "--file", source, "--dest", dest)
    yield Contestant("loop of cp", loop)
    yield Contestant("pdsh exec cp", ["pdsh", "-S", "-R", "exec", "-f", "64", "-w", hosts,
                                      "cp", str(source), dest])
    yield Contestant("pdcp", ["pdcp", "-R", "ssh", "-f", "64", "-w", hosts, str(source), "dest"],
                     env=_local_ssh(directory))
    yield Contestant("clush --copy", ["clush", "-S", "-R", "exec", "-f", "64", "-w", hosts,
                                      "--copy", str(source), "--dest", dest])


def _ours(sheaf, session, background, directory, count, source):
    if not sheaf.exists:
        return
    read = functools.partial(sheaf_numbers.numbers, wanted=OWN)
    words = ("cp", source, ":/dest", "--json")
    command = sheaf.command(*words, servers=count, export=directory)
    yield Contestant("sheaf --processes", command, keep=True, read=read)
    if session:
        yield Contestant("sheaf, session", sheaf.command(*words, session=session), keep=True,
                         read=read, background=background)


def contests(sheaf, options):
    scenario_tree.build()
    directory = data.exports(options.directory, max(SHAPES))
    for label, size in SIZES.items():
        source = directory / f"source-{size}"
        source.write_bytes(data.noise(size))
        for count in options.servers or SHAPES:
            with sheaf.session(f"bench-cp-{count}", servers=count,
                               export=directory) as (session, background):
                contestants = [*_rivals(directory, count, source),
                               *_ours(sheaf, session, background, directory, count, source)]
                for contestant in contestants:
                    contestant.before = functools.partial(_clean, directory, count)
                    contestant.check = _verify(directory, count, source)
                yield Contest(f"cp {label} to {count}", contestants, baseline="bare tree",
                              columns=("cpu_s", "median_s", *OWN, "rss_max_kb"))
            _clean(directory, count)
        source.unlink()
