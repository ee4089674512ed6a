"""`sheaf archive` against find, tar, rsync, restic, ripgrep, … on a tree of many small files.

The tree is `--files` files of 1000 bytes, 1000 to a directory (the paper's client_tree). It lies below
`--directory`, which for a million files wants a disk with 20 GB of room, and is made once.
"""

import functools
import os
import pathlib
import random
import shlex
import shutil
import subprocess
import sys

import s3_server
from contest import Contest, Contestant

FILES_PER_DIRECTORY = 1000
FILE_BYTES = 1000
LARGE_BYTES = 4 << 30
# Files that rclone sends, of all.
RCLONE_FILES = 2000
WORDS = 4096
ABSENT = "absent-from-all-of-them"
COLUMNS = ("cpu_s", "rss_max_kb")


def tree(directory, files):
    """The tree of small files; made once, and the same for the same number."""
    top = pathlib.Path(directory) / f"tree-{files}"
    done = top.with_suffix(".made")
    if done.exists():
        return top
    shutil.rmtree(top, ignore_errors=True)
    chance = random.Random(files)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 12)))
             for _ in range(WORDS)]
    for number in range(0, files, FILES_PER_DIRECTORY):
        place = number // FILES_PER_DIRECTORY
        here = top / f"p{place // 200}" / f"d{place % 200:03}"
        here.mkdir(parents=True)
        for name in range(min(FILES_PER_DIRECTORY, files - number)):
            text = " ".join(chance.choices(words, k=200)).encode()[:FILE_BYTES - 1] + b"\n"
            (here / f"f{name:04}").write_bytes(text)
    done.touch()
    return top


def drop_caches():
    """Has the kernel forget what it knows of all files, as root alone may."""
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3\n")


def removed(*paths):
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            subprocess.run(["rm", "-rf", str(path)], check=True)
        else:
            path.unlink(missing_ok=True)


def warmed(top):
    """Has all of a tree in memory: its names and its contents."""
    subprocess.run(f"tar cf - -C {top} . | cat >/dev/null", shell=True, check=True)


class Archive:
    """Command lines of `sheaf archive` on one store."""

    def __init__(self, sheaf, store):
        self.sheaf, self.store = sheaf, pathlib.Path(store)

    def __call__(self, command, *words):
        return self.sheaf.command("archive", command, *words)

    def name(self, path=""):
        return f"{self.store}::{path}"

    def made(self, *sources):
        """A store with these trees in it, made now."""
        removed(self.store)
        subprocess.run([str(w) for w in self("store", "--create", "--quiet", *sources, self.name())], check=True)


def same_files(count):
    """A check of how many lines were printed."""
    def check(sample):
        lines = sample.stdout.count(b"\n")
        return None if lines == count else f"{lines} lines, not {count}"
    return check


def walks(archive, top, cold):
    """A walk that looks at every file; in the order of the disk, and in that of `ls -lR`."""
    before = drop_caches if cold else None
    label = "cold" if cold else "warm"
    yield Contest(f"archive walk, {label}", [
        Contestant("find -printf", ["find", str(top), "-printf", "%s\\n"], before=before),
        Contestant("bfs -printf", ["bfs", str(top), "-printf", "%s\\n"], before=before),
        Contestant("fd --size", ["fdfind", "-uuu", "--size", "+0b", ".", str(top)], before=before),
        Contestant("du -s", ["du", "-s", str(top)], before=before),
        Contestant("sheaf du -s", archive("du", "-s", top), before=before),
        Contestant("sheaf find -size", archive("find", top, "-size", "+0"), before=before),
    ], baseline="find -printf", columns=COLUMNS, goal="0.4 of find" if cold else "0.6 of the best")
    if cold:
        return
    yield Contest("archive ls -lR of a local tree", [
        Contestant("ls -lR", ["ls", "-lR", str(top)], env={"LC_ALL": "C"}),
        Contestant("sheaf ls -lR", archive("ls", "-lR", top), env={"LC_ALL": "C"}),
    ], baseline="ls -lR", columns=(*COLUMNS, "out_bytes"), goal="0.4")


def stores(archive, top, scratch, cold):
    """Storing a tree for the first time, and again."""
    tar, restic, mirror = scratch / "tree.tar", scratch / "restic", scratch / "mirror"
    secret = {"RESTIC_PASSWORD": "bench", "RESTIC_CACHE_DIR": str(scratch / "restic-cache")}

    def fresh_restic(cold):
        removed(restic, scratch / "restic-cache")
        subprocess.run(["restic", "init", "-q", "-r", str(restic)], check=True, env={**os.environ, **secret})
        after(cold)

    def after(cold):
        os.sync()
        if cold:
            drop_caches()
        else:
            # Whoever comes behind one that has written much does not read from the disk.
            warmed(top)

    def fresh(cold, *paths):
        removed(*paths)
        after(cold)
    rivals = [] if cold else [
        Contestant("restic backup", ["restic", "backup", "-q", "-r", str(restic), str(top)], env=secret,
                   before=functools.partial(fresh_restic, cold)),
        Contestant("rclone copy", ["rclone", "copy", str(top), str(mirror)],
                   before=functools.partial(fresh, cold, mirror)),
    ]
    yield Contest(f"archive store, {'cold' if cold else 'warm'}", [
        Contestant("tar cf", ["tar", "cf", str(tar), str(top)], before=functools.partial(fresh, cold, tar)),
        Contestant("tar --zstd -cf", ["tar", "--zstd", "-cf", str(tar), str(top)],
                   before=functools.partial(fresh, cold, tar)),
        Contestant("sheaf store", archive("store", "--create", "--quiet", top, archive.name()),
                   before=functools.partial(fresh, cold, archive.store)),
        Contestant("sheaf store --plain", archive("store", "--create", "--quiet", "--plain", top, archive.name()),
                   before=functools.partial(fresh, cold, archive.store)),
        *rivals,
    ], baseline="tar cf", columns=COLUMNS, goal="0.25" if cold else "0.6; a tenth of restic and rclone")
    removed(tar)
    if cold:
        return
    subprocess.run(["rsync", "-a", f"{top}/", f"{mirror}/"], check=True)
    archive.made(top)
    yield Contest("archive store, nothing has changed", [
        Contestant("rsync -a", ["rsync", "-a", f"{top}/", f"{mirror}/"]),
        Contestant("restic backup", ["restic", "backup", "-q", "-r", str(restic), str(top)], env=secret),
        Contestant("sheaf store", archive("store", "--quiet", top, archive.name())),
    ], baseline="rsync -a", columns=COLUMNS, goal="0.5")
    removed(restic, mirror, scratch / "restic-cache")


def fetches(archive, top, scratch):
    """Getting a tree back."""
    tar, back = scratch / "tree.tar", scratch / "back"
    subprocess.run(["tar", "cf", str(tar), "-C", str(top.parent), top.name], check=True)

    def fresh():
        removed(back)
        back.mkdir()
        os.sync()
    yield Contest("archive get", [
        Contestant("tar xf", ["tar", "xf", str(tar), "-C", str(back)], before=fresh),
        Contestant("sheaf get", archive("get", "--quiet", archive.name(f"/{top.name}"), back), before=fresh),
    ], baseline="tar xf", columns=COLUMNS, goal="0.77")
    removed(back, tar)


def names(archive, top, files):
    """Listing what is archived, beside a look at every file."""
    path = archive.name(f"/{top.name}")
    yield Contest("archive list", [
        Contestant("find -printf", ["find", str(top), "-printf", "%s %p\\n"]),
        Contestant("sheaf ls -R", archive("ls", "-R", path)),
        Contestant("sheaf find", archive("find", path)),
        Contestant("sheaf du -s", archive("du", "-s", path)),
    ], baseline="find -printf", columns=COLUMNS, goal="0.125")


def changes(archive, top, scratch):
    """chmod, cp and rm of a local tree, and of the same tree archived."""
    path, copy = archive.name(f"/{top.name}"), scratch / "copy"
    turn = {"mode": 0}

    def turned(command):
        def before():
            turn["mode"] ^= 1
            command[-2] = "o-r" if turn["mode"] else "o+r"
        return before
    own, theirs = archive("chmod", "-R", "o-r", path), ["chmod", "-R", "o-r", str(top)]
    yield Contest("archive chmod", [
        Contestant("chmod -R", theirs, before=turned(theirs)),
        Contestant("sheaf chmod -R of archived", own, before=turned(own)),
    ], baseline="chmod -R", columns=COLUMNS, goal="0.01")
    yield Contest("archive chmod, nothing to change", [
        Contestant("chmod -R", ["chmod", "-R", "u+r", str(top)]),
        Contestant("sheaf chmod -R of files", archive("chmod", "-R", "u+r", top)),
        Contestant("sheaf chmod -R of archived", archive("chmod", "-R", "u+r", path)),
    ], baseline="chmod -R", columns=COLUMNS, goal="0.014 archived")

    def gone():
        subprocess.run([str(w) for w in archive("rm", "-rf", archive.name("/copy"))], check=True)

    def copied(where):
        if where is copy:
            removed(copy)
            subprocess.run(["cp", "-a", str(top), str(copy)], check=True)
            os.sync()
        else:
            gone()
            subprocess.run([str(w) for w in archive("cp", "-r", path, archive.name("/copy"))], check=True)

    def clean():
        removed(copy)
        os.sync()
    yield Contest("archive cp", [
        Contestant("cp -a", ["cp", "-a", str(top), str(copy)], before=clean),
        Contestant("sheaf cp -a of files", archive("cp", "-a", top, copy), before=clean),
        Contestant("sheaf cp -r of archived", archive("cp", "-r", path, archive.name("/copy")), before=gone),
    ], baseline="cp -a", columns=COLUMNS, goal="0.067 archived")
    yield Contest("archive rm", [
        Contestant("rm -r", ["rm", "-r", str(copy)], before=functools.partial(copied, copy)),
        Contestant("sheaf rm -r of files", archive("rm", "-r", copy), before=functools.partial(copied, copy)),
        Contestant("sheaf rm -r of archived", archive("rm", "-r", archive.name("/copy")),
                   before=functools.partial(copied, None)),
    ], baseline="rm -r", columns=COLUMNS, goal="0.33 archived")
    removed(copy)


def searches(archive, top, cold):
    """Searching for what is nowhere."""
    path = archive.name(f"/{top.name}")
    before = drop_caches if cold else None
    yield Contest(f"archive grep, {'cold' if cold else 'warm'}", [
        Contestant("grep -rF", ["grep", "-rF", ABSENT, str(top)], exits=(1,), before=before),
        Contestant("rg -uuu", ["rg", "-uuu", "-F", ABSENT, str(top)], exits=(1,), before=before),
        Contestant("sheaf grep of archived", archive("grep", "-F", ABSENT, path), exits=(1,), before=before),
        Contestant("sheaf grep of files", archive("grep", "-rF", ABSENT, top), exits=(1,), before=before),
    ], baseline="grep -rF" if cold else "rg -uuu", columns=COLUMNS,
        goal="0.02 archived" if cold else "0.05 archived, 0.65 files")


def s3(sheaf, top, files, scratch):
    """Storing the tree on an S3 server, beside rclone, which sends a file a request: what a file takes."""
    scratch = scratch / "s3-scratch"
    removed(scratch)
    scratch.mkdir()
    found = s3_server.server(scratch)
    if not found:
        print("no versitygw: the contest on an S3 server is left out", file=sys.stderr)
        return
    address, keys = found
    url = f"http://{address}"
    env = {**keys, "AWS_ENDPOINT_URL": url, "XDG_CACHE_HOME": str(scratch / "state"), "RCLONE_CONFIG": "/dev/null", "AWS_CA_BUNDLE": "",
           "RCLONE_CONFIG_S_TYPE": "s3", "RCLONE_CONFIG_S_PROVIDER": "Other", "RCLONE_CONFIG_S_ENV_AUTH": "true",
           "RCLONE_CONFIG_S_ENDPOINT": url}
    some = sorted(top.glob("*/*"))[:max(1, RCLONE_FILES // FILES_PER_DIRECTORY)]
    bucket = scratch / "s3" / "bucket"
    of_some = s3_server.of_files(len(some) * FILES_PER_DIRECTORY)

    def fresh():
        removed(*bucket.glob("*"), scratch / "state")
        os.sync()

    def rclone(*options):
        copies = [shlex.join(["rclone", "copy", *options, str(one), f"s:bucket/{one.name}"]) for one in some]
        return " && ".join(copies)
    yield Contest("archive store on an S3 server, a file of it", [
        Contestant("rclone copy", rclone(), env=env, before=fresh, read=of_some),
        Contestant("rclone copy --transfers 32", rclone("--transfers", "32"), env=env, before=fresh, read=of_some),
        Contestant("sheaf store", sheaf.command("archive", "store", "--quiet", "--create", top, "s3://bucket/a::"),
                   env=env, before=fresh, read=s3_server.of_files(files)),
    ], baseline="rclone copy", metric="us_per_file", columns=("wall_s", *COLUMNS), goal="0.017")
    removed(scratch)


SENDFILE = """
import os, sys
source, dest = open(sys.argv[1], 'rb'), open(sys.argv[2], 'wb')
left = os.fstat(source.fileno()).st_size
while left:
    left -= os.sendfile(dest.fileno(), source.fileno(), None, left)
os.fdatasync(dest.fileno())
"""


def large(archive, scratch):
    """One large file: into the archive durable and with its digest, beside copies that are synced."""
    source, dest = scratch / "large", scratch / "large-copy"
    with open(source, "wb") as file:
        block = random.Random(1).randbytes(1 << 20)
        for number in range(LARGE_BYTES >> 20):
            file.write(number.to_bytes(8) + block[8:])
    os.sync()

    def fresh():
        removed(dest, archive.store)
        os.sync()
    yield Contest("archive store of a large file", [
        Contestant("sendfile, fdatasync", ["python3", "-c", SENDFILE, str(source), str(dest)], before=fresh),
        Contestant("cp, sync", f"cp {source} {dest} && sync -d {dest}", before=fresh),
        Contestant("sheaf store", archive("store", "--create", "--quiet", source, archive.name()), before=fresh),
    ], baseline="sendfile, fdatasync", columns=COLUMNS, goal="1.05")
    removed(source, dest, archive.store)


def contests(sheaf, options):
    top = tree(options.directory, options.files)
    scratch = pathlib.Path(options.directory) / "archive-scratch"
    scratch.mkdir(exist_ok=True)
    archive = Archive(sheaf, scratch / "store")
    def wanted(*words):
        return any(options.only in f"archive {word}" for word in words)
    warmed(top)
    if wanted("walk, warm", "ls -lR of a local tree"):
        yield from walks(archive, top, False)
    if wanted("store, warm", "store, nothing has changed"):
        yield from stores(archive, top, scratch, False)
    archive.made(top)
    yield from names(archive, top, options.files)
    yield from searches(archive, top, False)
    yield from changes(archive, top, scratch)
    if wanted("get"):
        yield from fetches(archive, top, scratch)
    # What is read from the disk leaves nothing in memory that others would find there.
    if wanted("walk, cold"):
        yield from walks(archive, top, True)
    yield from searches(archive, top, True)
    if wanted("store, cold"):
        yield from stores(archive, top, scratch, True)
    if wanted("store of a large file"):
        yield from large(archive, scratch)
    if wanted("store on an S3 server, a file of it"):
        yield from s3(sheaf, top, options.files, scratch)
    removed(scratch)
