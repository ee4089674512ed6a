#!/usr/bin/env python3
"""Memory of `sheaf archive` on trees of very many names: is all of it there, in order, and in bounds?

Two trees of empty files are made below DIRECTORY (and kept, and made once): `many`, of --directories with
--names each, and `wide`, one directory of --wide names. Each command is run under `/usr/bin/time -v`, and
its output is counted, compared with what was made, and on a part with `find | sort`. Exits with 1 if one
of them is wrong or has taken more than --limit-mb.

    cargo build --release -p sheaf --bin sheaf
    python3 bench-compare/scale.py /var/tmp/scale --directories 10000 --names 1000 --wide 1000000
"""

import argparse
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

IN_A_ROW = 100


def directory_of(number):
    return f"d{number // IN_A_ROW:04}/e{number % IN_A_ROW:02}"


def name_of(number):
    # Not in the order of their making, some of them long.
    mixed = number * 7919 % 1_000_003
    return f"{mixed:07}" + ("-of-a-longer-name" if mixed % 5 == 0 else "")


def make(top, directories, names):
    """A tree of empty files; made once."""
    done = top.with_suffix(".made")
    if done.exists():
        return
    shutil.rmtree(top, ignore_errors=True)
    for number in range(directories):
        here = top / directory_of(number) if directories > 1 else top
        here.mkdir(parents=True, exist_ok=True)
        at = os.open(here, os.O_PATH)
        for name in range(names):
            os.mknod(name_of(name), 0o644, dir_fd=at)
        os.close(at)
    done.touch()


def expected(top, directories, names, root):
    """All paths of a tree in serial order, with a directory before what is in it; lazily."""
    files = sorted(name_of(name) for name in range(names))
    yield root
    if directories == 1:
        for name in files:
            yield f"{root}/{name}"
        return
    above = None
    for number in range(directories):
        here = directory_of(number)
        row = here.split("/")[0]
        if row != above:
            yield f"{root}/{row}"
            above = row
        yield f"{root}/{here}"
        for name in files:
            yield f"{root}/{here}/{name}"


def measured(command, output):
    """Runs a command; its seconds, CPU seconds and peak in MB."""
    began = time.monotonic()
    with open(output, "wb") as file:
        run = subprocess.run(["/usr/bin/time", "-v", *command], stdout=file, stderr=subprocess.PIPE)
    wall = time.monotonic() - began
    text = run.stderr.decode(errors="replace")
    found = {key: float(value) for key, value in
             re.findall(r"(User time|System time|Maximum resident set size) \([a-z]+\): ([\d.]+)", text)}
    told = [line for line in text.splitlines() if line and not line.startswith("\t")]
    cpu = found["User time"] + found["System time"]
    return run.returncode, wall, cpu, found["Maximum resident set size"] / 1024, told


def same_lines(output, lines):
    """Whether a file has these lines; how many it has."""
    count, is_same = 0, True
    with open(output, "rb") as file:
        for line in lines:
            read = file.readline()
            is_same = is_same and read == line.encode() + b"\n"
            count += 1 if read else 0
        rest = sum(1 for _ in file)
    return count + rest, is_same and rest == 0


def names_listed(output):
    """Names that `ls -R` has told: no heading, no empty line."""
    with open(output, "rb") as file:
        return sum(1 for line in file if line != b"\n" and not line.endswith(b":\n"))


def digest(output, root):
    """Of all lines, without the directory that headings begin with."""
    whole, root = hashlib.blake2b(), root.encode()
    with open(output, "rb") as file:
        for line in file:
            whole.update(line.removeprefix(root) if line.endswith(b":\n") else line)
    return whole.hexdigest()


def has_inodes(top, count):
    """Whether so many files more may be made, and as many again by others."""
    return os.statvfs(top.parent).f_favail > 2 * count


class Run:
    def __init__(self, arguments):
        self.arguments = arguments
        self.wrong = []
        self.output = pathlib.Path(arguments.directory) / "output"

    def measure(self, what, command, check):
        code, wall, cpu, peak, told = measured([self.arguments.sheaf, "archive", *command], self.output)
        count, is_right = check(self.output)
        is_right = is_right and code == 0 and peak < self.arguments.limit_mb
        if not is_right:
            self.wrong.append((what, code, told[:5]))
        mark = "" if is_right else " **WRONG**"
        print(f"| {what} | {count} | {wall:.1f} | {cpu:.1f} | {peak:.0f}{mark} |", flush=True)

    def tree(self, name, directories, names):
        top = pathlib.Path(self.arguments.directory) / name
        make(top, directories, names)
        store = top.with_name(f"{name}-store")
        if not self.arguments.keep_store:
            shutil.rmtree(store, ignore_errors=True)
        files = directories * names
        all_names = files + (0 if directories == 1 else directories + -(-directories // IN_A_ROW))

        def found(root):
            def check(output):
                count, is_same = same_lines(output, expected(top, directories, names, root))
                return count, is_same and count == all_names + 1
            return check

        def listed(output):
            count = names_listed(output)
            return count, count == all_names

        def anything(output):
            return sum(1 for _ in open(output, "rb")), True

        archived, inside = f"{store}::/x", f"{store}::/x/{name}"
        self.measure(f"{name}: find TREE", ["find", str(top)], found(str(top)))
        self.measure(f"{name}: ls -R TREE", ["ls", "-R", str(top)], listed)
        local = digest(self.output, str(top))
        if not self.arguments.keep_store:
            self.measure(f"{name}: store", ["store", "--create", str(top), archived], anything)
        self.measure(f"{name}: store again", ["store", str(top), archived], anything)
        self.measure(f"{name}: ls -R STORE", ["ls", "-R", inside], listed)
        if digest(self.output, f"/x/{name}") != local:
            self.wrong.append((f"{name}: ls -R STORE", 0, ["it is not that of the tree"]))
        self.measure(f"{name}: find STORE", ["find", inside], found(f"/x/{name}"))
        self.measure(f"{name}: du STORE", ["du", inside], anything)
        self.measure(f"{name}: verify", ["verify", f"{store}::"], anything)
        back = top.with_name(f"{name}-back")
        if not has_inodes(top, all_names):
            print(f"  ({name} is not got: there are not enough inodes)")
            return
        self.measure(f"{name}: get", ["get", inside, str(back)], anything)
        shutil.rmtree(back, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory")
    parser.add_argument("--sheaf", default="target/release/sheaf")
    parser.add_argument("--directories", type=int, default=10_000)
    parser.add_argument("--names", type=int, default=1000)
    parser.add_argument("--wide", type=int, default=1_000_000)
    parser.add_argument("--limit-mb", type=float, default=256)
    parser.add_argument("--keep-store", action="store_true", help="what is stored there is as before")
    parser.add_argument("--only-make", action="store_true", help="only make the trees")
    arguments = parser.parse_args()
    pathlib.Path(arguments.directory).mkdir(parents=True, exist_ok=True)
    if arguments.only_make:
        make(pathlib.Path(arguments.directory) / "many", arguments.directories, arguments.names)
        make(pathlib.Path(arguments.directory) / "wide", 1, arguments.wide)
        return 0
    run = Run(arguments)
    print("| command | lines | s | CPU s | peak MB |\n|---|---|---|---|---|")
    run.tree("wide", 1, arguments.wide)
    run.tree("many", arguments.directories, arguments.names)
    for what, code, told in run.wrong:
        print(f"{what}: exit {code}: {told}")
    return 1 if run.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
