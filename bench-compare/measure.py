"""Runs one command and says what it cost: wall, CPU of its whole process tree, bytes, memory.

The harness makes itself the reaper of orphans, so even a process whose parent
went away first is waited for here and its CPU time is counted; and a process
that does not end at all is seen, named and ended.
"""

import contextlib
import ctypes
import dataclasses
import fcntl
import json
import os
import pathlib
import resource
import select
import signal
import subprocess
import tempfile
import threading
import time

PR_SET_CHILD_SUBREAPER = 36
PIPE_BYTES = 1 << 20
CAPTURE_BYTES_MAX = 64 << 20
STDERR_BYTES_MAX = 1 << 16
LINGER_SECONDS_MAX = 10.0
POLL_SECONDS = 0.005
MEMORY_SAMPLE_MS = 20


@dataclasses.dataclass
class Sample:
    """One run of one command."""

    wall_s: float
    cpu_s: float
    user_s: float
    sys_s: float
    out_bytes: int
    rss_max_kb: int
    exit_code: int
    linger_s: float
    leftovers: int
    stdout: bytes
    stderr: str
    load_1m: float
    metrics: dict = dataclasses.field(default_factory=dict)

    def as_dict(self):
        fields = dataclasses.asdict(self)
        del fields["stdout"]
        fields["stderr"] = self.stderr[-400:]
        return fields


def become_subreaper():
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children():
    found = set()
    for task in pathlib.Path("/proc/self/task").iterdir():
        try:
            found.update(int(p) for p in (task / "children").read_text().split())
        except OSError:
            continue
    return found


def descendants(pid):
    """The processes below a process, by the parent each one names."""
    parents = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found, open_ends = [], [pid]
    while open_ends:
        below = parents.get(open_ends.pop(), [])
        found += below
        open_ends += below
    return found


def cpu_of(pids):
    """Seconds that living processes have run, from the scheduler's nanoseconds."""
    total_ns = 0
    for pid in pids:
        for task in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"):
            try:
                total_ns += int(task.read_text().split()[0])
            except (OSError, IndexError):
                continue
    return total_ns / 1e9


class _Reader(threading.Thread):
    """Takes the output away: counted only (spliced to nowhere), or kept."""

    def __init__(self, fd, keep):
        super().__init__(daemon=True)
        self.fd, self.keep, self.count, self.kept = fd, keep, 0, []
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def run(self):
        nowhere = os.open("/dev/null", os.O_WRONLY)
        while True:
            if self.keep and self.count < CAPTURE_BYTES_MAX:
                data = os.read(self.fd, PIPE_BYTES)
                self.kept.append(data)
                got = len(data)
            else:
                got = os.splice(self.fd, nowhere, PIPE_BYTES)
            if not got:
                break
            self.count += got
        os.close(nowhere)


def _peak_memory_kb(pid):
    """VmHWM: what this program has used at most. (ru_maxrss would include its parent's at fork.)"""
    with contextlib.suppress(OSError):
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return 0


def _wait(pid, timeout_s):
    """Waits for one process to end, at most so long; whether it did, and its peak memory."""
    deadline, peak_kb = time.monotonic() + timeout_s, 0
    pidfd = os.pidfd_open(pid)
    try:
        poller = select.poll()
        poller.register(pidfd, select.POLLIN)
        while time.monotonic() < deadline:
            peak_kb = max(peak_kb, _peak_memory_kb(pid))
            if poller.poll(MEMORY_SAMPLE_MS):
                return True, peak_kb
        return False, peak_kb
    finally:
        os.close(pidfd)


def _reap_orphans(before):
    """Waits for what the command left running; returns how long and how many had to be ended."""
    start, killed = time.monotonic(), set()
    while True:
        orphans = children() - before
        for pid in orphans:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if not orphans:
            return time.monotonic() - start, len(killed)
        if time.monotonic() - start > LINGER_SECONDS_MAX:
            killed |= orphans
            end_all(orphans)
        time.sleep(POLL_SECONDS)


def end_all(pids):
    """Ends processes that this harness adopted, and those below them."""
    for pid in set(pids) | {below for pid in pids for below in descendants(pid)}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def run(command, *, timeout_s=120, keep=False, env=None, background=()):
    """Runs a command (a list, or a string for the shell) to its end.

    `background` are processes that work for the command but are not started by
    it, such as a session's servers; what they run meanwhile is added to its CPU.
    """
    before = children()
    background_s = cpu_of(background)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryFile() as errors:
        start = time.perf_counter()
        process = subprocess.Popen(command, shell=isinstance(command, str), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=errors, start_new_session=True,
                                   env={**os.environ, **(env or {})})
        reader = _Reader(process.stdout.fileno(), keep)
        reader.start()
        try:
            ended, peak_kb = _wait(process.pid, timeout_s)
        except BaseException:  # this program is interrupted, or asked to end
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        wall = time.perf_counter() - start
        if not ended:
            os.killpg(process.pid, signal.SIGKILL)
        _, status = os.waitpid(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        linger, leftovers = _reap_orphans(before)
        reader.join(LINGER_SECONDS_MAX)
        process.stdout.close()
        errors.seek(0)
        stderr = errors.read(STDERR_BYTES_MAX).decode(errors="replace")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    user, system = after.ru_utime - usage.ru_utime, after.ru_stime - usage.ru_stime
    return Sample(
        wall_s=wall, user_s=user, sys_s=system,
        cpu_s=user + system + cpu_of(background) - background_s,
        out_bytes=reader.count, rss_max_kb=peak_kb,
        exit_code=process.returncode if ended else -1,
        linger_s=linger, leftovers=leftovers, stdout=b"".join(reader.kept),
        stderr=stderr if ended else f"ended at its timeout of {timeout_s} s; {stderr}",
        load_1m=os.getloadavg()[0])


def json_lines(text):
    """The JSON objects among the lines of a text."""
    found = []
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return found
