"""`sheaf mount` against sshfs and NFS, against the plain directory where files are the host's own, and in its parts.

Host h1 works on files of host h2 (`mount_world.py`), over loopback or a shaped link (`--nets`). Where programs
run on the same processors as both hosts, and which these are, is in the name of each contest: a processor that sleeps
takes longer to wake up than all of a call. Files are in memory, at their owner.
"""

import functools
import pathlib
import random
import shlex
import shutil
import subprocess
import sys

import measure
import sheaf as sheaf_numbers
from contest import Contest, Contestant
from mount_world import AT_HOST, BEHIND, BOTH, KEPT, STRICT, STRICTEST, UNIX, UNLENT, Unable, World, placement

BLOCKS = tuple(512 << n for n in range(8))
STRIDE_BLOCKS = (512, 4096, 65536)
IO_SECONDS = 0.3
# Bytes of the file that is read and written, of Bonnie++'s, and of what TCP by itself carries.
FILE_BYTES = {"loopback": 64 << 20, "1gbit": 32 << 20, "100mbit": 8 << 20}
BONNIE_MB = {"loopback": 128, "1gbit": 128, "100mbit": 24}
WRITTEN_BYTES = {"loopback": 32 << 20, "1gbit": 16 << 20, "100mbit": 4 << 20}
ROUND_TRIPS = 3000
META_FILES = 1000
META_SECONDS = 0.3
PAIR_ROUNDS = 200
POSTMARK_BLOCKS = (1024, 4096, 16384, 65536)
# A tenth of the paper's sizes.
POSTMARK = {"size": "512 102400", "number": 100, "transactions": 300, "buffering": "false", "report": "terse"}
POSTMARK_LOCAL = {**POSTMARK, "transactions": 20000}
TREE_FILES, TREE_DIRECTORIES = 600, 40
LINES_MEDIAN = 250
ABSENT = "kangaroo"
# Columns of Bonnie++'s line.
BONNIE = {"write_kb_per_s": 11, "rewrite_kb_per_s": 13, "read_kb_per_s": 17, "seeks_per_s": 19}
THREE_TIMES = f"≥ 3 × {STRICT}"


def label(count):
    return f"{count >> 10}K" if count >= 1024 else str(count)


def last(sample):
    return measure.json_lines(sample.stdout.decode(errors="replace"))[-1]


class Contests:
    """The contests of one world."""

    def __init__(self, world):
        self.world, self.net, self.number = world, world.net, 0
        self.place = f"{world.net}, {placement()}"
        self.remote = [name for name in ("sheaf", AT_HOST, "sshfs", STRICT) if name in world.ways]
        # Where bytes are read that may be lent.
        self.readers = [name for name in ("sheaf", AT_HOST, UNLENT, "sshfs", STRICT)
                        if name in world.ways]
        # Where names and attributes count, or writes.
        self.remote_strict = [*self.remote, *(name for name in (STRICTEST, KEPT, BEHIND, BOTH) if name in world.ways)]

    def name(self, what):
        return f"mount {what}, {self.place}"

    def load(self, name, *words, before=None):
        """The load generator, by one way."""
        line = [self.world.program("mountload"), *map(str, words)]
        return Contestant(name, line, keep=True, read=last, before=before, background=self.world.pids.get(name, ()))

    def timed(self, name, command, **more):
        return Contestant(name, command, background=self.world.pids.get(name, ()), **more)

    def remounted(self, name):
        """What a turn begins with: nothing known of files here."""
        self.world.mount_sshfs.get(name, lambda: None)()

    def own_path(self):
        """The host's own files, through the view and beside it."""
        if not self.world.own:
            return
        plain, view = self.world.exports / "h1" / "deeper", self.world.own
        # As many names are to be looked up in each path.
        for directory in (plain / "a", plain / "b", plain.parent / "a", plain.parent / "b"):
            directory.mkdir(parents=True)

        def pair(name, other):
            return self.load(name, "pair", plain / "a", other, PAIR_ROUNDS)
        metrics = [f"{step}_x" for step in ("read_64k", "write_64k", "read_4k", "write_4k", "create", "stat", "unlink")]
        yield Contest(self.name("own files, by turns in one process"), [
            pair("plain, twice", plain / "b"), pair("view", view / "a"),
        ], baseline="plain, twice", metric=metrics[0], goal="≤ 1.01", also=dict.fromkeys(metrics[1:], "≤ 1.01"),
            columns=tuple(metric.replace("_x", "_ns") for metric in metrics))
        yield Contest(self.name("own files, PostMark 4K"), [
            self.postmark("plain", plain / "a", 4096, POSTMARK_LOCAL),
            self.postmark("view", view / "b", 4096, POSTMARK_LOCAL),
        ], baseline="plain", goal="≤ 1.166", columns=("cpu_s",))

    def parts(self):
        """One read of 4 KiB, in its parts."""
        world, count = self.world, FILE_BYTES[self.net]

        def read(name, path):
            return self.load(name, "io", "random-read", path, 4096, count, IO_SECONDS)
        contestants = [read("the owner's pread", world.files / "data")]
        if world.bare_fuse:
            contestants.append(read("bare FUSE", world.bare_fuse / "data"))
        if world.bare_port:
            ask = [world.program("barenet"), "ask", world.addresses[1], str(world.bare_port), "4096", str(ROUND_TRIPS)]
            contestants.append(Contestant("bare TCP", [*world.client, *ask], keep=True, read=last))
        baseline = "the owner's pread"
        if "sheaf" in world.ways:
            session = functools.partial(Contestant, keep=True, env=world.session_env, background=world.pids["sheaf"])
            line = world.round_trips(ROUND_TRIPS)
            contestants.append(session("session", line, read=lambda sample: sheaf_numbers.numbers(
                sample, ("median_us", "p10_us", "p90_us"))))
            if world.bare_fuse:
                baseline = "bare FUSE + session"
                both = f"{shlex.join(contestants[1].command)} && {shlex.join(line)}"
                contestants.append(session(baseline, both, read=added))
        if self.net != "loopback" and world.bare_port:
            baseline = "bare TCP"  # the session's round trip carries no 4 KiB, which takes the longest then
        contestants += [read(name, world.ways[name] / "data") for name in ("sheaf", AT_HOST, UNIX, "sshfs", STRICT)
                        if name in world.ways]
        yield Contest(self.name("read of 4 KiB in its parts"), contestants, baseline=baseline, metric="median_us",
                      goal="≤ 1.3" if self.net == "loopback" else "", columns=("p10_us", "p90_us", "cpu_s"))

    def io(self):
        """Reading and writing by blocks."""
        world = self.world
        for pattern, blocks in (("seq-read", BLOCKS), ("seq-write", BLOCKS), ("stride-read", STRIDE_BLOCKS),
                                ("stride-write", STRIDE_BLOCKS), ("random-read", (4096,)), ("random-write", (4096,))):
            for block in blocks:
                contestants, writes = [], pattern.endswith("write")
                for number, name in enumerate(self.remote_strict if writes else self.readers):
                    # Each way has its own file, so that nobody knows what another has written.
                    file = f"written-{number}" if writes else "data"
                    count = (WRITTEN_BYTES if writes else FILE_BYTES)[self.net]
                    contestants.append(self.load(name, "io", pattern, world.ways[name] / file, block, count, IO_SECONDS))
                if block == BLOCKS[-1] and pattern == "seq-read" and world.bare_port:
                    ask = [world.program("barenet"), "ask", world.addresses[1], str(world.bare_port),
                           str(FILE_BYTES[self.net]), "1"]
                    contestants.append(Contestant("bare TCP", [*world.client, *ask], keep=True, read=last))
                goal = THREE_TIMES + ", ≥ 0.9 × bare TCP" if block == BLOCKS[-1] and pattern == "seq-read" else THREE_TIMES
                yield Contest(self.name(f"{pattern} {label(block)}"), contestants, baseline=STRICT, metric="mb_per_s",
                              goal=goal if block == BLOCKS[-1] else "", columns=("median_us", "p90_us", "calls", "cpu_s"))

    def whole(self):
        """A file from its beginning to its end by one command, where NFS has a client, too."""
        world, count = self.world, FILE_BYTES[self.net]

        def read(sample):
            return {"mb_per_s": count / sample.wall_s / 1e6}

        def check(sample):
            return None if sample.out_bytes == count else f"{sample.out_bytes} bytes, not {count}"
        contestants = [self.timed(name, ["cat", str(world.ways[name] / "data")], read=read, check=check,
                                  before=functools.partial(self.remounted, name)) for name in self.readers]
        if world.nfs:
            contestants.append(self.timed("nfs-ganesha, nfs-cat", [*world.client, "nfs-cat", world.nfs % "data"],
                                          read=read, check=check))
        yield Contest(self.name("whole file"), contestants, baseline=STRICT, metric="mb_per_s", columns=("wall_s", "cpu_s"))

    def meta(self):
        """Small files: made, looked at for the first time, removed."""
        world, contestants = self.world, []
        for name in self.remote_strict:
            one = self.load(name, "meta", "NEW", "OLD", META_FILES, META_SECONDS)
            one.before = functools.partial(self._directories, one.command, world.ways[name])
            contestants.append(one)
        also = {"small_per_s": THREE_TIMES, "stat_per_s": THREE_TIMES, "unlink_per_s": ""}
        yield Contest(self.name("small files"), contestants, baseline=STRICT, metric="create_per_s", goal=THREE_TIMES,
                      also=also, columns=("create_us", "small_us", "stat_us", "unlink_us", "cpu_s"))

    def _directories(self, command, way):
        """Directories that nobody has asked for yet."""
        self.number += 1
        new, old = f"new-{self.number}", f"old-{self.number}"
        for gone in (f"new-{self.number - 1}", f"old-{self.number - 1}"):
            shutil.rmtree(self.world.files / gone, ignore_errors=True)
        (self.world.files / new).mkdir()
        (self.world.files / old).mkdir()
        for number in range(META_FILES):
            (self.world.files / old / f"f{number}").touch()
        command[2:4] = [str(way / new), str(way / old)]

    def postmark(self, name, at, block, settings):
        """PostMark in a directory, with blocks of this size."""
        at.mkdir(exist_ok=True)
        self.number += 1
        script = self.world.home / f"postmark-{self.number}"
        lines = {**settings, "location": at, "read": block, "write": block}
        script.write_text("".join(f"set {key} {value}\n" for key, value in lines.items()) + "run\nquit\n")
        return self.timed(name, ["postmark", str(script)])

    def postmarks(self):
        if not shutil.which("postmark"):
            print("mount: without PostMark: postmark is not installed", file=sys.stderr)
            return
        for block in POSTMARK_BLOCKS:
            contestants = [self.postmark("plain", self.world.files / "postmark", block, POSTMARK)]
            contestants += [self.postmark(name, self.world.ways[name] / f"postmark-{number}", block, POSTMARK)
                            for number, name in enumerate(self.remote_strict)]
            yield Contest(self.name(f"PostMark {label(block)}"), contestants, baseline=STRICT, columns=("cpu_s",),
                          goal="≤ 0.33, with leases")

    def bonnie(self):
        if not shutil.which("bonnie++"):
            print("mount: without Bonnie++: bonnie++ is not installed", file=sys.stderr)
            return
        contestants = []
        for name in self.remote:
            at = self.world.ways[name] / f"bonnie-{self.remote.index(name)}"
            at.mkdir()
            # Without the tests by characters, which are a call for each.
            line = ["bonnie++", "-q", "-f", "-d", str(at), "-s", f"{BONNIE_MB[self.net]}M:16k", "-n", "0", "-r",
                    str(BONNIE_MB[self.net] // 2), "-u", "root", "-m", "x"]
            contestants.append(self.timed(name, line, keep=True, read=bonnie_numbers))
        yield Contest(self.name("Bonnie++ 16K"), contestants, baseline=STRICT, metric="rewrite_kb_per_s",
                      also={name: "" for name in BONNIE if name != "rewrite_kb_per_s"}, columns=("wall_s", "cpu_s"))

    def commands(self):
        """The seven commands of the paper on a tree of sources."""
        source_tree(self.world.files)
        for what, command in COMMANDS.items():
            contestants = []
            for number, (name, way) in enumerate([("plain", self.world.files),
                                                  *((name, self.world.ways[name]) for name in self.remote_strict)]):
                line = command.replace("OUT", f"out-{number}")
                contestants.append(self.timed(name, f"cd {shlex.quote(str(way))} && {line}", exits=(0, 123) if ABSENT in line else (0,),
                                              before=functools.partial(self._emptied, name, f"out-{number}")))
            yield Contest(self.name(f"command {what}"), contestants, baseline=STRICT, columns=("cpu_s", "out_bytes"))

    def _emptied(self, name, out):
        """Done at the owner, before the mount that does not know of it."""
        shutil.rmtree(self.world.files / out, ignore_errors=True)
        (self.world.files / out).mkdir()
        shutil.copyfile(self.world.files / "src.tar.gz", self.world.files / out / "src.tar.gz")
        self.remounted(name)

    def all(self):
        self.world.done([self.world.program("mountload"), "fill", self.world.files / "data", FILE_BYTES[self.net]],
                        "a file")
        if self.net == "loopback":
            yield from self.own_path()
        yield from self.parts()
        if not self.remote:
            return
        yield from self.io()
        yield from self.whole()
        yield from self.meta()
        yield from self.postmarks()
        yield from self.bonnie()
        yield from self.commands()


COMMANDS = {
    "gunzip": "gunzip OUT/src.tar.gz",
    "du -s": "du -s src",
    "ls -lR": "ls -lR src",
    "tar x": "tar -xf src.tar -C OUT",
    "cp -r": "cp -r src OUT/src",
    "find, wc": "find src -type f | xargs wc",
    "find, grep": f"find src -type f | xargs grep {ABSENT}",
}


def added(sample):
    """The medians of two programs that ran one behind the other."""
    return {key: sum(record[key] for record in measure.json_lines(sample.stdout.decode()))
            for key in ("median_us", "p10_us", "p90_us")}


def bonnie_numbers(sample):
    """What its line says; what was too fast for it is left out."""
    cells = sample.stdout.decode().strip().splitlines()[-1].split(",")
    return {name: float(cells[at]) for name, at in BONNIE.items() if cells[at].strip("+")}


def source_tree(at):
    """Sources like a kernel's, a twentieth of the paper's, with a tar of them and that compressed."""
    chance = random.Random(2003)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz_", k=chance.randint(2, 12))) for _ in range(2000)]
    lines = ["\t" * chance.randint(0, 3) + " ".join(chance.choices(words, k=chance.randint(1, 10))) + ";\n"
             for _ in range(4000)]
    for number in range(TREE_FILES):
        here = pathlib.Path(at) / "src" / f"d{number % TREE_DIRECTORIES}"
        here.mkdir(parents=True, exist_ok=True)
        count = max(1, int(chance.lognormvariate(0, 0.9) * LINES_MEDIAN))
        (here / f"f{number}.c").write_text("".join(chance.choices(lines, k=count)))
    for options, name in (("-cf", "src.tar"), ("-czf", "src.tar.gz")):
        subprocess.run(["tar", "-C", str(at), options, str(pathlib.Path(at) / name), "src"], check=True)


def contests(sheaf, options):
    for net in options.nets:
        try:
            with World(sheaf, options.directory, net) as world:
                yield from Contests(world).all()
        except (Unable, OSError, subprocess.SubprocessError) as error:
            print(f"mount, {net}: {error}", file=sys.stderr)
