#!/usr/bin/env python3
"""Random command lines, answered by Sheaf and by the programs it is like.

Every case runs one `sheaf` command on a few hosts (`--embedded`, each with a random tree of odd
files) and GNU grep, ls, stat, du, cp, cat, sha256sum or nodeset on the same files, and compares what
was printed, what was made and how it ended. A difference is shown with the seed that repeats it:

    python3 bench-compare/differential.py --cases 5000 --seed 1
    python3 bench-compare/differential.py --cases 5000 --seed 2 --user nobody     # as root
    python3 bench-compare/differential.py --seed 2 --user nobody --case 417       # one of them

How Sheaf's lines look and which of its exit codes mean what is in the class `Sheaf` and nowhere else.
"""

import argparse
import collections
import os
import pathlib
import pwd
import random
import re
import shutil
import stat
import subprocess
import sys
import tempfile

# Cases that share one world of files.
CASES_OF_A_WORLD = 40
HOSTS = ("n1", "n2", "n3")
NAMES = ["a", "b", "log", "x.txt", "y.txt", "two words", "-dash", "ünï", ".hidden", "s*r", "q?", "[ab]", "{c,d}",
         "back\\slash", "tab\there", "quo'te", 'dou"ble', "~", "x=1", "#", "long" * 20]
WORDS = ["alpha", "beta", "gamma", "al", "be", "Alpha", "x", "", "alpha beta", "a.b", "ünï", "0", "42"]
PATTERNS = ["alpha", "^al", "a$", "[ab]e", "(al|be)", "x*", "zzz", "a.b", "ALPHA", "^$", "b{1,2}e", "\\.", "ü", "."]
SECONDS_MAX = 30
# Whoever follows links sees the same names again and again; of more than these it is too many.
NAMES_FOLLOWED_MAX = 2000


class Sheaf:
    """What is particular to Sheaf: how it is called, how it folds, what its exit codes are."""

    OK, NOTHING, USAGE, UNREACHABLE, PARTIAL = 0, 1, 2, 3, 4

    def __init__(self, binary, world, user):
        self.binary, self.world, self.user = binary, world, user

    def run(self, *words, cwd=None):
        line = [self.binary, "--embedded", str(len(HOSTS)), "--export", f"{self.world.dir}/%h", *words]
        return run(line, self.user, cwd or self.world.dir, self.world.env)

    @staticmethod
    def fold(hosts):
        """The name of a set of hosts."""
        numbers = sorted(int(host[1:]) for host in hosts)
        if len(numbers) == 1:
            return f"n{numbers[0]}"
        ranges, start = [], 0
        for at in range(1, len(numbers) + 1):
            if at == len(numbers) or numbers[at] != numbers[at - 1] + 1:
                first, last = numbers[start], numbers[at - 1]
                ranges.append(str(first) if first == last else f"{first}-{last}")
                start = at
        return f"n[{','.join(ranges)}]"

    @staticmethod
    def address(hosts, path):
        """What is typed for a literal path on hosts."""
        escaped = re.sub(r"([\\*?\[\]{},])", r"\\\1", path)
        return f"{'' if len(hosts) == len(HOSTS) else Sheaf.fold(hosts)}:{escaped}"


class Ran(collections.namedtuple("Ran", "out err code line")):
    """How a command ended and what it printed."""


def run(line, user, cwd, env):
    who = {}
    if user:
        who = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    try:
        done = subprocess.run(line, capture_output=True, stdin=subprocess.DEVNULL, cwd=cwd, env=env,
                              timeout=SECONDS_MAX, check=False, **who)
    except subprocess.TimeoutExpired as late:
        raise Difference(f"{line} does not end") from late
    return Ran(done.stdout, done.stderr, done.returncode, line)


class Difference(Exception):
    """Sheaf and the other program do not agree."""


def expect(what, sheaf, ours, theirs):
    if ours != theirs:
        shown = " ".join(map(repr, sheaf.line[5:]))
        raise Difference(f"{what}\n  sheaf {shown}\n  ours:   {ours!r}\n  theirs: {theirs!r}\n"
                         f"  stderr: {sheaf.err[:2000]!r}")


def folded(by_host):
    """Texts by host as [(hosts, text)], equal ones once."""
    have = collections.OrderedDict()
    for host, texts in by_host.items():
        for text in texts:
            if host not in have.setdefault(text, []):
                have[text].append(host)
    return [(hosts, text) for text, hosts in have.items()]


def lines(text):
    """Sorted pieces of lines: names may have line breaks, so this is all that can be compared."""
    return sorted(text.split(b"\n"))


class World:
    """A random tree for every host, and one to copy from."""

    def __init__(self, seed, number, user):
        self.rng = random.Random(f"{seed}/world/{number}")
        self.user = user
        self.dir = tempfile.mkdtemp(prefix="sheaf-differential-")
        os.chmod(self.dir, 0o755)
        self.env = {"PATH": "/usr/bin:/bin", "HOME": self.dir, "TZ": "UTC", "LC_ALL": "C.UTF-8",
                    "XDG_RUNTIME_DIR": f"{self.dir}/run", "CLUSTERSHELL_CFGDIR": f"{self.dir}/clustershell"}
        os.makedirs(f"{self.dir}/clustershell")
        pathlib.Path(f"{self.dir}/clustershell/groups.conf").write_text("[Main]\ndefault:\n[local]\nmap: true\nlist: true\n")
        self.names = list(NAMES)
        # Listings of several directories can only be taken apart where no name has a line break.
        self.has_newlines = self.rng.random() < 0.5
        if self.has_newlines:
            self.names += ["line\nbreak", "\nfirst"]
        shape = self.plan()
        for host in HOSTS:
            self.make(f"{self.dir}/{host}", shape, host)
        self.make(f"{self.dir}/src", self.plan(), "n1")
        for writable in [*HOSTS, "run", "out"]:
            os.makedirs(f"{self.dir}/{writable}", exist_ok=True)
            if user:
                os.chown(f"{self.dir}/{writable}", user.pw_uid, user.pw_gid)
        os.chmod(f"{self.dir}/run", 0o700)

    def plan(self):
        """What there is: path → kind and content, one file's chance to differ between hosts."""
        rng, shape, dirs = self.rng, collections.OrderedDict(), [""]
        for _ in range(rng.randint(3, 14)):
            path = f"{rng.choice(dirs)}/{rng.choice(self.names)}"
            if path in shape:
                continue
            kind = rng.choices(["dir", "text", "empty", "binary", "sparse", "numbers", "link", "hard", "fifo"],
                               [8, 12, 2, 2, 1, 3, 4, 3, 1])[0]
            content = [rng.choice(WORDS) for _ in range(rng.randint(1, 9))]
            if kind == "dir":
                dirs.append(path)
            mode = rng.choice([0o755] * 6 + [0o700, 0o000, 0o311, 0o444]) if kind == "dir" \
                else rng.choice([0o644] * 6 + [0o600, 0o000, 0o4755, 0o2751, 0o222])
            target = rng.choice(["a", "..", "nowhere", "/", rng.choice(self.names), *shape.keys()])
            shape[path] = {"kind": kind, "content": content, "mode": mode, "ours": rng.random() < 0.5,
                           "target": target, "differs": rng.random() < 0.4, "missing": rng.random() < 0.1,
                           "end": rng.choice(["\n", "\n", ""])}
        return shape

    def make(self, root, shape, host):
        os.makedirs(root, exist_ok=True)
        rng = random.Random(f"{self.rng.random()}{host}")
        for path, what in shape.items():
            if what["missing"] and rng.random() < 0.5:
                continue
            try:
                self.one(root, path, what, host)
            except OSError:
                continue  # Its directory is missing here, or a link's name is taken.
        for path, what in reversed(shape.items()):
            at = root + path
            if not os.path.lexists(at) or os.path.islink(at):
                continue
            os.utime(at, ns=(10**18, 10**18 + 123456789))
            if self.user and what["ours"]:
                os.chown(at, self.user.pw_uid, self.user.pw_gid)
            os.chmod(at, what["mode"])

    def one(self, root, path, what, host):
        at, kind, content = root + path, what["kind"], list(what["content"])
        if what["differs"]:
            content.append(f"of {host}")
        data = ("\n".join(content) + what["end"]).encode()
        if kind == "dir":
            os.mkdir(at)
        elif kind == "link":
            os.symlink(what["target"], at)
        elif kind == "fifo":
            os.mkfifo(at)
        elif kind == "hard":
            os.link(root + what["target"], at, follow_symlinks=False)
        else:
            if kind == "numbers":
                data = f"{int(host[1:]) * 10**17 + len(content)} -{len(content)}\n".encode()
            elif kind == "empty":
                data = b""
            elif kind == "binary":
                data = data + b"\0\1" + data
            with open(at, "xb") as file:
                file.write(data)
                if kind == "sparse":
                    file.truncate(200_000)

    def paths(self, root="n1"):
        """All paths beneath a host's root, links not followed."""
        found = ["/"]
        for top, dirs, files in os.walk(f"{self.dir}/{root}"):
            found += [os.path.join(top, name)[len(f"{self.dir}/{root}"):] for name in dirs + files]
        return sorted(found)

    def remove(self):
        # Directories that nobody may enter hold up only those who are not root.
        shutil.rmtree(self.dir, ignore_errors=True)


class Case:
    """One case: which command, on what. Its kind is the name of a method."""

    KINDS = ("grep", "ls", "stat", "du", "cat", "sha", "put", "get", "hosts", "read")

    def __init__(self, world, seed, number, options):
        self.rng = random.Random(f"{seed}/case/{number}")
        self.world, self.user = world, world.user
        self.sheaf = Sheaf(options.sheaf, world, world.user)
        kinds = [kind for kind in self.KINDS if not options.only or kind in options.only]
        self.kind = self.rng.choice(kinds)

    def check(self):
        getattr(self, self.kind)()

    def hosts_asked(self):
        return list(HOSTS) if self.rng.random() < 0.7 else [self.rng.choice(HOSTS)]

    def path(self):
        """A path that leads out of no host: for Sheaf `/` is where a host's files begin."""
        for path in self.rng.sample(self.world.paths(), k=len(self.world.paths())):
            if not any(self.is_outside(host, path) for host in HOSTS):
                return path if self.rng.random() < 0.95 else "/no/such"
        return "/no/such"

    def is_outside(self, host, path):
        """Whether links lead from a path of a host to something else on this machine."""
        root = f"{self.world.dir}/{host}"
        return not (os.path.realpath(root + path) + "/").startswith(root + "/")

    @staticmethod
    def strays(root, path):
        """Whether who follows all links beneath a path leaves the root, or comes by a directory again."""
        names = 0

        def walk(at, above):
            nonlocal names
            names += 1
            real = os.path.realpath(at)
            if not (real + "/").startswith(root + "/") or real in above or names > NAMES_FOLLOWED_MAX:
                return True
            if not os.path.isdir(real):
                return False
            return any(walk(os.path.join(real, name), above | {real}) for name in os.listdir(real))

        return walk(root + path.rstrip("/"), frozenset())

    def is_pipe(self, hosts, path):
        """Whether it is a named pipe, which Sheaf takes for an empty file and others wait for."""
        return any(stat.S_ISFIFO(self.mode(host, path)) for host in hosts)

    def flags(self, *choices, chance=0.3):
        return [flag for flag in choices if self.rng.random() < chance]

    def on_each(self, hosts, line):
        """The other program on each host, in the host's root."""
        return {host: run(line, self.user, f"{self.world.dir}/{host}", self.world.env) for host in hosts}

    def ends(self, ours, theirs, nothing=False):
        """Compares how commands ended: partial where any failed on any host."""
        failed = any(ran.code != 0 for ran in theirs.values())
        expect("exit", ours, ours.code, Sheaf.PARTIAL if failed else Sheaf.NOTHING if nothing else Sheaf.OK)

    def here(self, path):
        return "." + path if path != "/" else "."

    def grep(self):
        hosts, path = self.hosts_asked(), self.path()
        if self.is_pipe(hosts, path):
            return
        flags = self.flags("-i", "-v", "-w", "-x", "-F") + self.flags("-r", chance=0.5)
        flags += self.rng.choice([[], [], [], ["-c"], ["-l"], ["-L"], ["-o"], ["-m", str(self.rng.randint(1, 3))]])
        context = not set(flags) & {"-c", "-l", "-L", "-o"} and self.rng.random() < 0.3
        if context:
            flags += [self.rng.choice("-A -B -C".split()), str(self.rng.randint(1, 2)), "-n"]
        elif self.rng.random() < 0.3:
            flags += ["-n"]
        # Paths with the same hosts and nothing else to say fold, too, which nobody can take apart.
        each = context or bool(set(flags) & {"-l", "-L", "-r"}) or self.rng.random() < 0.4
        pattern = self.rng.choice(PATTERNS)
        ours = self.sheaf.run("grep", "-H", *(["--each"] if each else []), *flags, "-e", pattern, "--",
                              Sheaf.address(hosts, path))
        theirs = self.on_each(hosts, ["grep", "-E" if "-F" not in flags else "-F", "-H", "-Z", "-D", "skip",
                                      *flags, "-e", pattern, "--", self.here(path)])
        found = {host: [*self.records(ran.out, flags), *self.binaries(ran.err)] for host, ran in theirs.items()}
        if {"-o", "-v"} <= set(flags):
            # What -o with -v says is the exit status alone, in Sheaf also of a binary file.
            found = {host: [] for host in hosts}
        if "-r" not in flags:
            # GNU grep counts a directory that it did not read, and lists it as one without a match.
            found = {host: [] if stat.S_ISDIR(self.mode(host, path)) else texts for host, texts in found.items()}
        if each:
            wanted = [host.encode() + b":" + text for host in hosts for text in found[host]]
        else:
            wanted = [Sheaf.fold(on).encode() + b":" + text for on, text in folded(found)]
        out = ours.out if not context else b"\n".join(line for line in ours.out.split(b"\n") if line != b"--")
        expect("lines", ours, lines(out), lines(b"".join(text + b"\n" for text in wanted)))
        codes = [ran.code for ran in theirs.values()]
        wanted = Sheaf.PARTIAL if 2 in codes else Sheaf.OK if 0 in codes else Sheaf.NOTHING
        expect("exit", ours, ours.code, wanted)

    @staticmethod
    def binaries(err):
        """The binary files that match; GNU grep names them among its errors, Sheaf in its answer."""
        says = b": binary file matches\n"
        # Names have line breaks, so a message ends where the next one begins.
        return [text[1:-1] for text in re.split(rb"^grep: ", err, flags=re.M) if text.endswith(says)]

    @staticmethod
    def records(out, flags):
        """What GNU grep -Z prints, as Sheaf writes it behind the host."""
        at, names = 0, set(flags) & {"-l", "-L"}
        while at < len(out):
            if out.startswith(b"--\n", at):
                at += 3
                continue
            if "-o" in flags and out.startswith(b"\n", at):
                at += 1  # With -o, -w and -x together GNU grep prints an empty line behind each match.
                continue
            end = out.index(b"\0", at)
            path, at = out[at:end][1:] or b"/", end + 1
            if names:
                yield path
                continue
            end = out.index(b"\n", at)
            rest, at = out[at:end], end + 1
            is_context = set(flags) & {"-A", "-B", "-C"} and re.match(rb"\d+-", rest)
            yield path + (b"-" if is_context else b":") + rest

    def ls(self):
        hosts, path = self.hosts_asked(), self.path()
        flags = self.flags("-A", "-d", "-r", "-t")
        # What lies above a host's root is another thing for those who see more.
        flags += self.flags("-a") if path != "/" else []
        long = self.rng.random() < 0.4
        if not long and not self.world.has_newlines and "-a" not in flags and "-d" not in flags:
            flags += self.flags("-R")
        style = ["-l", "--time-style=full-iso"] if long else ["-1"]
        ours = self.sheaf.run("ls", *flags, *style, "--", Sheaf.address(hosts, path))
        theirs = self.on_each(hosts, ["ls", *flags, *style, "--", self.here(path)])
        if any(b"cannot access" in ran.err for ran in theirs.values()):
            # Of what cannot be looked at GNU ls still prints the name, where Sheaf has an error alone.
            return self.ends(ours, theirs)
        # Each host levels its columns by itself, so blanks tell no rows apart.
        squeeze = (lambda text: re.sub(rb" +", b" ", text)) if long else lambda text: text
        found = {host: [squeeze(text) for text in self.rows(ran.out, host, path, flags, long)]
                 for host, ran in theirs.items()}
        wanted = [Sheaf.fold(on).encode() + b":" + text for on, text in folded(found)]
        if len(hosts) == 1 and "-R" not in flags:
            expect("rows", ours, squeeze(ours.out).split(b"\n")[:-1],
                   b"\n".join(wanted).split(b"\n") if wanted else [])
        else:
            expect("rows", ours, lines(squeeze(ours.out)), lines(b"".join(text + b"\n" for text in wanted)))
        self.ends(ours, theirs)

    def rows(self, out, host, path, flags, long):
        at = f"{self.world.dir}/{host}{path}"
        is_dir = "-d" not in flags and os.path.isdir(at) and not (long and os.path.islink(at))
        if "-R" in flags and is_dir:
            rows = []
            for block in out.decode(errors="surrogateescape").rstrip("\n").split("\n\n"):
                head, *names = block.split("\n")
                rows += [os.path.join("/", head[2:-1], name).encode(errors="surrogateescape") for name in names]
            return rows
        texts = out.split(b"\n")[:-1]
        if long:
            texts = [text for text in texts if not text.startswith(b"total ")]
            if is_dir:
                return self.joined(texts, path.encode() + b":", rb"[-bcdlps][-rwxsStT]{9}")
            whole = re.sub(rb"^((?:\S+ +){8})\.", rb"\1", b"\n".join(texts))
            return [whole + b"/" if path == "/" else whole] if texts else []
        if not texts:
            return []
        if not is_dir:
            return [path.encode()]
        return [os.path.join(path.encode(), text) for text in self.split_names(at, out)]

    @staticmethod
    def joined(texts, head, start):
        """Rows again from lines, where a name may have a line break."""
        rows = []
        for text in texts:
            if re.match(start + rb"[ .+]", text) or not rows:
                rows.append(head + text)
            else:
                rows[-1] += b"\n" + text
        return rows

    @staticmethod
    def split_names(at, out):
        """The names that ls printed below each other, in their order."""
        names = sorted([os.fsencode(name) for name in os.listdir(at)] + [b".", b".."], key=len, reverse=True)
        found = []
        while out:
            name = next(name for name in names if out.startswith(name + b"\n"))
            found.append(name)
            out = out[len(name) + 1:]
        return found

    def stat(self):
        hosts, path = self.hosts_asked(), self.path()
        form = "|".join(self.rng.sample("%s %a %A %u %U %g %G %h %F %f %b %B %Y %y %d %i %t %T %%".split(), 4))
        flags = self.flags("-L")
        ours = self.sheaf.run("stat", *flags, "-c", form, "--", Sheaf.address(hosts, path))
        theirs = self.on_each(hosts, ["stat", *flags, "-c", form, "--", self.here(path)])
        found = {host: [ran.out[:-1]] if ran.out else [] for host, ran in theirs.items()}
        wanted = [f"{Sheaf.fold(on)}:{path}:".encode() + text for on, text in folded(found)]
        expect("text", ours, lines(ours.out), lines(b"".join(text + b"\n" for text in wanted)))
        self.ends(ours, theirs)

    def du(self):
        hosts, path = self.hosts_asked(), self.path()
        if any(self.has_links(f"{self.world.dir}/{host}") for host in hosts):
            return  # Which of several names counts is a matter of the order of directories.
        flags = self.rng.choice([[], ["-s"], ["-a"], ["-d", "1"]]) + self.flags("-c", "--apparent-size", "-b")
        ours = self.sheaf.run("du", *flags, "--", Sheaf.address(hosts, path))
        theirs = self.on_each(hosts, ["du", "-0", *flags, "--", self.here(path)])
        found = {host: ran.out.split(b"\0")[:-1] for host, ran in theirs.items()}
        wanted = []
        for on, text in folded(found):
            size, name = text.split(b"\t", 1)
            name = name if name == b"total" else name[1:] or b"/"
            wanted.append(size + b"\t" + Sheaf.fold(on).encode() + b":" + name + b"\n")
        expect("sizes", ours, lines(ours.out), lines(b"".join(wanted)))
        self.ends(ours, theirs)

    @staticmethod
    def has_links(root):
        """Whether a file beneath has several names."""
        return any(not stat.S_ISDIR(info.st_mode) and info.st_nlink > 1
                   for top, dirs, files in os.walk(root) for info in
                   (os.lstat(os.path.join(top, name)) for name in dirs + files))

    def cat(self):
        hosts, path = [self.rng.choice(HOSTS)], self.path()
        if self.is_pipe(hosts, path):
            return
        ours = self.sheaf.run("cat", "--no-heading", "--", Sheaf.address(hosts, path))
        theirs = self.on_each(hosts, ["cat", "--", self.here(path)])
        expect("content", ours, ours.out, theirs[hosts[0]].out)
        self.ends(ours, theirs)

    def mode(self, host, path):
        try:
            return os.stat(f"{self.world.dir}/{host}{path}").st_mode
        except OSError:
            return 0

    def sha(self):
        hosts, path = self.hosts_asked(), self.path()
        is_pattern = self.rng.random() < 0.5
        if is_pattern:
            pattern = os.path.dirname(path).rstrip("/") + "/" + self.rng.choice(["*", "?*", "[!b]*", "{a,b}", "*.txt"])
            above = re.sub(r"([\\*?\[\]{},])", r"\\\1", os.path.dirname(pattern))
            address = Sheaf.address(hosts, "") + f"{above.rstrip('/')}/{os.path.basename(pattern)}"
            paths = {host: self.matches(host, *os.path.split(pattern)) for host in hosts}
        else:
            address, paths = Sheaf.address(hosts, path), {host: [os.fsencode(path)] for host in hosts}
        for host in hosts:
            names = [os.fsdecode(one) for one in paths[host] or []]
            if any(self.is_pipe([host], name) or self.is_outside(host, name) for name in names):
                return
        ours = self.sheaf.run("sha", "--", address)
        found, failed = {}, not any(paths.values())
        for host in hosts:
            found[host], failed = [], failed or paths[host] is None
            for one in paths[host] or []:
                ran = self.on_each([host], ["sha256sum", "-z", "--", b"." + one])[host]
                failed = failed or ran.code != 0
                found[host] += [(ran.out.split(b"  ")[0], one)] if ran.out else []
        wanted = [digest + b"  " + Sheaf.fold(on).encode() + b":" + one + b"\n" for on, (digest, one) in folded(found)]
        expect("digests", ours, lines(ours.out), lines(b"".join(wanted)))
        expect("exit", ours, ours.code, Sheaf.PARTIAL if failed else Sheaf.OK)

    def matches(self, host, above, pattern):
        """What bash finds for a pattern in a directory; nothing at all where it may not look."""
        script = 'shopt -s nullglob; cd -- "$1" 2>/dev/null || { [ -d "$1" ] && exit 3; exit 0; }\n' \
                 f'[ -r . ] || exit 3\nprintf "%s\\0" {pattern}'
        if pattern.startswith("{"):
            return [os.fsencode(os.path.join(above, name)) for name in pattern[1:-1].split(",")]
        ran = self.on_each([host], ["bash", "-c", script, "bash", self.here(above)])[host]
        if ran.code == 3:
            return None
        return [os.path.join(os.fsencode(above), name) for name in ran.out.split(b"\0") if name]

    def copying(self):
        return self.flags("-r", chance=0.6) + self.flags("-p", "-a", chance=0.25) \
            + self.rng.choice([[], [], [], ["-L"], ["-P"]])

    def twin(self, path):
        """A copy of a tree, with everything that a tree has."""
        to = tempfile.mkdtemp(prefix="twin-", dir=self.world.dir)
        subprocess.run(["cp", "-aT", path, to], check=True)
        return to

    def put(self):
        flags, world = self.copying(), self.world
        sources = [world.dir + "/src" + path for path in self.rng.sample(world.paths("src"), 1)]
        if "-L" in flags and any(self.strays(world.dir + "/src", at[len(world.dir + "/src"):]) for at in sources):
            return  # The whole machine would be copied, or one directory without end.
        if any(stat.S_ISFIFO(self.mode("src", at[len(world.dir + "/src"):])) for at in sources):
            return
        to = self.rng.choice(["/", "/new", self.path()])
        if to == "/no/such":
            to = "/new"
        if self.is_pipe(HOSTS, to) or any(self.is_pipe(HOSTS, f"{to}/{os.path.basename(at)}") for at in sources):
            return  # Nobody reads it, so cp waits for ever.
        # A file that is replaced leaves its other names what they were; cp writes into all of them.
        has_links = any(self.has_links(f"{world.dir}/{host}") for host in HOSTS)
        if has_links and "-a" in flags:
            return  # Then cp does unlink the file first.
        # To replace a file, who copies has to be allowed to write into its directory.
        way = ["--no-atomic"] if has_links or self.user else self.flags("--no-atomic")
        pairs = {host: (self.twin(f"{world.dir}/{host}"), self.twin(f"{world.dir}/{host}")) for host in HOSTS}
        scene = tempfile.mkdtemp(prefix="scene-", dir=world.dir)
        os.chmod(scene, 0o755)
        for host, (ours, _) in pairs.items():
            os.rename(ours, f"{scene}/{host}")
        here = run([self.sheaf.binary, "--embedded", str(len(HOSTS)), "--export", f"{scene}/%h", "cp", "--async",
                    *way, *flags, "--", *sources, Sheaf.address(list(HOSTS), to)], self.user, world.dir, world.env)
        # Like Sheaf, and unlike a plain cp, links at the destination stay within the host.
        theirs = {host: run(["cp", *flags, "--", *sources, twin + to], self.user, world.dir, world.env)
                  for host, (_, twin) in pairs.items()}
        if all(ran.code == 0 for ran in theirs.values()) and not self.leaves(pairs, to):
            expect("exit", here, here.code, Sheaf.OK)
            for host, (_, twin) in pairs.items():
                # GNU cp -p leaves the set-id bits of a file that it writes into where the source has none.
                expect(f"tree of {host}", here, *(look(at, flags, 0o777) for at in (f"{scene}/{host}", twin)))
        elif not self.leaves(pairs, to) and all(ran.code != 0 for ran in theirs.values()):
            expect("failure", here, here.code != Sheaf.OK, True)

    def leaves(self, pairs, to):
        """Whether a link on the way leads out of a host: `/` is another one for cp."""
        return any(os.path.realpath(twin + to) != twin + to.rstrip("/") for _, twin in pairs.values())

    def get(self):
        flags, world, hosts = self.copying(), self.world, self.hosts_asked()
        path = self.path()
        if path == "/" or self.is_pipe(hosts, path):
            return
        if "-L" in flags and any(self.strays(f"{world.dir}/{host}", path) for host in hosts):
            return  # As for `put`.
        ours, theirs = (tempfile.mkdtemp(prefix=name, dir=f"{world.dir}/out") for name in ("ours-", "theirs-"))
        for made in (ours, theirs):
            os.chmod(made, 0o777)
        here = self.sheaf.run("cp", *flags, "--", Sheaf.address(hosts, path), ours)
        codes = []
        for host in hosts:
            source, to = f"{world.dir}/{host}", f"{theirs}/{host}"
            run(["mkdir", to], self.user, theirs, world.env)
            codes.append(run(["cp", *flags, "--", source + path, to], self.user, theirs, world.env).code)
        leads_out = any(self.leads_out(f"{world.dir}/{host}", path) for host in hosts)
        if any(codes):
            if not leads_out:
                expect("failure", here, here.code, Sheaf.PARTIAL)
        elif not leads_out:
            expect("exit", here, here.code, Sheaf.OK)
            expect("trees", here, look(ours, flags), look(theirs, flags))

    @staticmethod
    def leads_out(root, path):
        """Whether a link at or beneath a path is absolute or leads above the root."""
        def out(at):
            target = os.path.realpath(at)
            return os.path.islink(at) and (os.readlink(at).startswith("/") or not target.startswith(root + "/"))
        if os.path.realpath(os.path.dirname(root + path)) != os.path.dirname(root + path).rstrip("/"):
            return True
        return out(root + path) or any(out(os.path.join(top, name)) for top, dirs, files in os.walk(root + path)
                                       for name in dirs + files)

    def hosts(self):
        def one():
            kind = self.rng.randrange(5)
            first = self.rng.randint(1, 9)
            last = first + self.rng.randint(0, 6)
            return [f"n{first}", f"n[{first}-{last}]", f"n[{first}-{last},{last + 2}]", f"n[0{first}-1{last}]",
                    f"r[{first}-{last}]n[1-{self.rng.randint(1, 3)}]"][kind]
        words = [self.rng.choice(["-f", "-f", "-e", "-c"]), one()]
        for _ in range(self.rng.randint(0, 3)):
            operation = self.rng.choice([[], ["-x"], ["-i"], ["-X"]])
            words += [*operation, one()]
        if self.rng.random() < 0.2:
            words.append(one() + self.rng.choice("!&^,") + one())
        ours = self.sheaf.run("hosts", *words)
        theirs = run(["nodeset", *words], self.user, self.world.dir, self.world.env)
        expect("set", ours, (ours.out, ours.code != 0), (theirs.out, theirs.code != 0))

    def read(self):
        hosts, path = self.hosts_asked(), self.path()
        texts = {}
        for host in hosts:
            if stat.S_ISFIFO(self.mode(host, path)):
                return
            ran = run(["cat", "--", self.here(path)], self.user, f"{self.world.dir}/{host}", self.world.env)
            if ran.code:
                return
            texts[host] = ran.out
        numbers = [[int(word) for word in text.split()] if re.fullmatch(rb"[-0-9 \n]+", text) else [] for text in texts.values()]
        if all(numbers) and len(set(map(len, numbers))) == 1:
            name = self.rng.choice(["sum", "min", "max"])
            ours = self.sheaf.run("read", "-a", name, "--", Sheaf.address(hosts, path))
            combined = [{"sum": sum, "min": min, "max": max}[name](column) for column in zip(*numbers)]
            expect("numbers", ours, ours.out.split(), [str(number).encode() for number in combined])
            return
        ours = self.sheaf.run("read", "--", Sheaf.address(hosts, path))
        expect("contents", ours, (ours.out, ours.code), (b"".join(texts.values()), 0))


def look(root, flags, mode=0o7777):
    """What a tree is, as far as a copy with these flags has to be the same."""
    keeps, found, inodes = set(flags) & {"-p", "-a"}, {}, {}
    for top, dirs, files in os.walk(root):
        for name in dirs + files:
            at = os.path.join(top, name)
            info = os.lstat(at)
            facts = [stat.S_IFMT(info.st_mode)]
            if not stat.S_ISLNK(info.st_mode):
                facts += [oct(info.st_mode & mode)]
            if keeps:
                facts += [info.st_uid, info.st_gid]
            if stat.S_ISREG(info.st_mode):
                if keeps:
                    facts.append(info.st_mtime_ns)
                facts += [info.st_size, pathlib.Path(at).read_bytes()]
                if "-a" in flags:
                    facts.append(inodes.setdefault((info.st_dev, info.st_ino), at[len(root):]))
            elif stat.S_ISLNK(info.st_mode):
                facts.append(os.readlink(at))
            found[at[len(root):]] = facts
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sheaf", default="target/debug/sheaf", help="the binary under test (%(default)s)")
    parser.add_argument("--cases", type=int, default=5000, help="how many (%(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the number of the first (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="(%(default)s)")
    parser.add_argument("--user", help="whose permissions commands have; root only may say")
    parser.add_argument("--case", type=int, help="this case alone, and keep its files")
    parser.add_argument("--only", action="append", choices=Case.KINDS, help="cases of this kind")
    options = parser.parse_args()
    options.sheaf = str(pathlib.Path(options.sheaf).resolve())
    user = pwd.getpwnam(options.user) if options.user else None
    os.umask(0o022)
    numbers = [options.case] if options.case is not None else range(options.first, options.first + options.cases)
    world, of_world, differing, kinds = None, None, 0, collections.Counter()
    for number in numbers:
        if of_world != number // CASES_OF_A_WORLD:
            if world:
                world.remove()
            of_world = number // CASES_OF_A_WORLD
            world = World(options.seed, of_world, user)
        case = Case(world, options.seed, number, options)
        kinds[case.kind] += 1
        try:
            case.check()
        except Difference as difference:
            differing += 1
            who = f" --user {options.user}" if options.user else ""
            only = "".join(f" --only {kind}" for kind in options.only or [])
            print(f"case {number}: {case.kind}: {difference}\n  again: differential.py --seed {options.seed}"
                  f" --case {number}{who}{only}\n", flush=True)
    if options.case is not None:
        print(f"its files: {world.dir}")
    elif world:
        world.remove()
    told = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    print(f"{sum(kinds.values())} cases, seed {options.seed}, as {options.user or 'oneself'} ({told}): "
          f"{differing} differences")
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    main()
