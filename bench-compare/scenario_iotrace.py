"""I/O tracing: what a record costs, what a traced call costs more, and what traces take.

`iotrace/` has the programs. Where a tracer can be measured in one process by turns with none (logcall, ioloop ab)
that is done, and each run gives medians of short batches; runs of the contestants take turns as everywhere.
"""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys

import measure
from contest import Contest, Contestant

HERE = pathlib.Path(__file__).resolve().parent
SOURCES = HERE / "iotrace"
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent / "target"))
BATCHES = 1501
PAIRS = 1000
CALLS = 1_000_000
FIO_IOS = 200_000
RATE, SECONDS = 5000, 20
SERVERS, PROGRAMS, EACH = 16, 4, 100_000
SESSION = f"sheaf-compare-{os.getpid()}"
# Library or program, its source, and how it is compiled beside the ordinary.
PARTS = {
    "logcall": ("logcall.c", []), "ioloop": ("ioloop.c", []),
    "log_nothing.so": ("log_nothing.c", []), "log_clock.so": ("log_nothing.c", ["-DCLOCK"]),
    "log_text.so": ("log_text.c", []), "log_flush.so": ("log_text.c", ["-DFLUSH"]),
    "preload_null.so": ("preload_null.c", []), "preload_clock.so": ("preload_clock.c", []),
    "preload_text.so": ("preload_text.c", ["-DFLUSH"]),
}
LTTNG_PARTS = {
    "log_lttng.so": ("log_lttng.c", ["-llttng-ust"]),
    "preload_lttng.so": ("preload_lttng.c", ["-llttng-ust"]),
}


def build(to):
    """The programs, without those for which something is not installed; what is there."""
    parts = dict(PARTS)
    if shutil.which("lttng") and any(pathlib.Path("/usr/include").glob("**/lttng/tracepoint-event.h")):
        parts |= LTTNG_PARTS
    else:
        print("iotrace: without LTTng: lttng-tools and liblttng-ust-dev are not installed", file=sys.stderr)
    found = set()
    for name, (source, flags) in parts.items():
        shared = ["-shared", "-fPIC"] if name.endswith(".so") else []
        line = ["cc", "-O2", f"-I{SOURCES}", *shared, "-o", to / name, SOURCES / source, *flags, "-ldl"]
        if subprocess.run(line).returncode == 0:
            found.add(name)
    manifest = SOURCES / "ring" / "Cargo.toml"
    ring = TARGET / "iotrace"
    made = subprocess.run(["cargo", "build", "-q", "--release", "--manifest-path", manifest, "--target-dir", ring])
    if made.returncode == 0:
        shutil.copy(ring / "release/liblog_ring.so", to / "log_ring.so")
        found.add("log_ring.so")
    return found


@contextlib.contextmanager
def lttng(directory, context=False):
    """A session of LTTng in its default mode, with room so that nothing is discarded; what it discarded is told."""
    def say(*words, **more):
        return subprocess.run(["lttng", *map(str, words)], check=True, capture_output=True, text=True, **more).stdout

    if not subprocess.run(["pgrep", "-x", "lttng-sessiond"], capture_output=True).stdout:
        subprocess.run(["lttng-sessiond", "--daemonize", "--no-kernel"], check=True)
    say("create", SESSION, f"--output={directory}")
    try:
        say("enable-channel", "-u", "-s", SESSION, "io", "--subbuf-size=2M", "--num-subbuf=4")
        say("enable-event", "-u", "-s", SESSION, "-c", "io", "sheaf_compare:*")
        if context:
            say("add-context", "-u", "-s", SESSION, "-c", "io", "-t", "vpid", "-t", "vtid")
        say("start", SESSION)
        yield
        say("stop", SESSION)
        lost = [line.strip() for line in say("list", SESSION).splitlines() if "Discarded" in line]
        print(f"iotrace: LTTng: {'; '.join(lost)}", file=sys.stderr)
    finally:
        say("destroy", SESSION)
        shutil.rmtree(directory, ignore_errors=True)


def last(sample):
    return measure.json_lines(sample.stdout.decode())[-1]


def log_calls(at, found, of):
    """A record, beside the same thing done in other ways."""
    def contestant(name, library, calls):
        command = [str(at / "logcall"), str(at), str(BATCHES), str(at / "log_ring.so"), "1000", str(at / library), str(calls)]
        return Contestant(name, command, keep=True, read=last, before=lambda: clean(at))

    known = {"sheaf": ("log_ring.so", 1000), "a call": ("log_nothing.so", 1000),
             "the clock twice": ("log_clock.so", 1000), "text, buffered": ("log_text.so", 300),
             "text, fflush": ("log_flush.so", 100), "LTTng": ("log_lttng.so", 1000),
             "LTTng, pid and tid": ("log_lttng.so", 1000)}
    return [contestant(name, *known[name]) for name in of if known[name][0] in found]


def clean(at):
    for path in [*at.glob("text-*.log"), *at.glob("*.trace")]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def traced(at, sheaf, found, command, read, of, keep=True):
    """A command with each tracer."""
    def preloaded(library):
        return [*command], {"LD_PRELOAD": str(at / library), "TEXT_LOG_DIR": str(at)}

    ways = {"nothing": ([*command], {}), "passed on": preloaded("preload_null.so"),
            "the clock twice": preloaded("preload_clock.so"), "text, fflush": preloaded("preload_text.so"),
            "LTTng": preloaded("preload_lttng.so"),
            "sheaf": ([sheaf.binary, "--quiet", "trace", "record", "-o", str(at / "ours.trace"), "--", *command], {})}
    contestants = []
    for name in of:
        line, env = ways[name]
        library = pathlib.Path(env.get("LD_PRELOAD", "")).name
        if (library and library not in found) or (name == "sheaf" and not sheaf.exists):
            continue
        contestants.append(Contestant(name, line, keep=keep, env=env, read=read, before=lambda: clean(at)))
    return contestants


def fio_numbers(sample):
    """CPU of fio's job for each operation, in ns."""
    text = sample.stdout.decode()
    job = json.loads(text[text.index("{"):])["jobs"][0]
    run_ns, share = job["job_runtime"] * 1e6, (job["usr_cpu"] + job["sys_cpu"]) / 100
    ios = job["read"]["total_ios"]
    return {"job_cpu_ns": run_ns * share / ios, "all_cpu_ns": sample.cpu_s * 1e9 / ios, "ios": ios}


def sizes(at, calls):
    """Bytes of the trace for each operation."""
    def read(_sample):
        files = list((at / "ours.trace").glob("*.parquet"))
        info = json.loads((at / "ours.trace/trace.json").read_text())
        count = info["operations"]
        return {"bytes_per_event": sum(file.stat().st_size for file in files) / max(count, 1),
                "operations": count, "lost": info["lost"]}
    return read


def served(at, sheaf):
    """Programs of many servers, whose operations go through the tree into one trace; nothing may be lost."""
    programs = "; ".join(
        f"{sheaf.binary} --quiet trace record --served --records {1 << 17} --buffers {at}/served/n{host} -- "
        f"{at}/ioloop seq {at}/file.{host}.{program} {EACH} &"
        for host in range(1, SERVERS + 1) for program in range(PROGRAMS)).replace("&;", "&")
    command = [sheaf.binary, "--quiet", "--processes", str(SERVERS), "trace", "serve", "-o", str(at / "served.trace"),
               "--buffers", f"{at}/served/%h", "--", "sh", "-c", f"{programs} wait"]

    def before():
        clean(at)
        shutil.rmtree(at / "served", ignore_errors=True)
        for host in range(1, SERVERS + 1):
            (at / f"served/n{host}").mkdir(parents=True)

    def read(sample):
        info = json.loads((at / "served.trace/trace.json").read_text())
        files = list((at / "served.trace").glob("*.parquet"))
        return {"events_per_s": info["operations"] / sample.wall_s, "operations": info["operations"],
                "cpu_ns": sample.cpu_s * 1e9 / info["operations"], "bytes_per_event":
                sum(file.stat().st_size for file in files) / info["operations"], "lost": info["lost"]}

    return Contestant("sheaf", command, keep=True, read=read, before=before)


def log_client(sample):
    """What the collector ran while the program did, and in all with its start and its last file."""
    numbers = last(sample)
    numbers["all_percent"] = 100 * (sample.cpu_s - numbers["own_cpu_s"]) / sample.wall_s
    return numbers


def contests(sheaf, options):
    at = options.directory
    found = build(at)
    if "log_ring.so" in found:
        yield Contest("iotrace record", log_calls(at, found, ["sheaf", "a call", "the clock twice", "text, buffered", "text, fflush"]),
                      baseline="sheaf", metric="cycles", goal="≤ 60; text, fflush ≥ 100", columns=("ns", "p10_cycles", "p90_cycles", "base_cycles", "to_base"))
        for name in ["LTTng", "LTTng, pid and tid"] if "log_lttng.so" in found else []:
            with lttng(at / "lttng", context=name != "LTTng"):
                yield Contest(f"iotrace record, {name}", log_calls(at, found, ["sheaf", name]), baseline="sheaf", metric="cycles",
                              goal="≥ 5", columns=("ns", "p10_cycles", "p90_cycles", "base_cycles", "to_base"))
    loop = [str(at / "ioloop"), "ab", str(at / "file"), str(PAIRS)]
    columns = ("pwrite_more_ns", "pread_ns", "pwrite_ns", "pread_percent", "pread_more_cycles", "cpu_s")
    around = lttng(at / "lttng") if "preload_lttng.so" in found else contextlib.nullcontext()
    with around:
        yield Contest("iotrace 4 KiB pread", traced(at, sheaf, found, loop, last, ["nothing", "passed on", "the clock twice", "sheaf", "LTTng", "text, fflush"]),
                      baseline="sheaf", metric="pread_more_ns", goal="≤ 30 ns", columns=columns)
    if sheaf.exists:
        for pattern, goal in (("seq", "≤ 4"), ("random", "≤ 8")):
            command = [str(at / "ioloop"), pattern, str(at / "file"), str(CALLS)]
            yield Contest(f"iotrace bytes, {pattern}", traced(at, sheaf, found, command, sizes(at, CALLS), ["sheaf"]),
                          baseline="sheaf", metric="bytes_per_event", goal=goal, columns=("operations", "lost", "cpu_s"))
        command = [str(at / "ioloop"), "paced", str(at / "file"), str(RATE), str(SECONDS)]
        yield Contest(f"iotrace log client, {RATE} a second", traced(at, sheaf, found, command, log_client, ["sheaf"]),
                      baseline="sheaf", metric="parent_percent", goal="≤ 1.27", columns=("calls", "all_percent"))
        yield Contest(f"iotrace {SERVERS} servers × {PROGRAMS} programs", [served(at, sheaf)], baseline="sheaf", metric="events_per_s",
                      columns=("operations", "lost", "cpu_ns", "bytes_per_event", "cpu_s"))
    if not shutil.which("fio"):
        print("iotrace: without fio: it is not installed", file=sys.stderr)
        return
    fio = ["fio", "--name=x", "--ioengine=psync", "--rw=randread", "--bs=4k", "--size=32m", f"--filename={at}/fio",
           f"--io_size={FIO_IOS * 4096}", "--thread", "--output-format=json"]
    yield Contest("iotrace fio randread", traced(at, sheaf, found, fio, fio_numbers, ["nothing", "passed on", "sheaf", "text, fflush"]),
                  baseline="nothing", metric="job_cpu_ns", goal="≤ 1.02", columns=("all_cpu_ns", "ios", "cpu_s"))
