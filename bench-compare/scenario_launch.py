"""From nothing to an answer of every host over ssh: Sheaf against clush and pdsh, over the same sshd.

The sshd is this scenario's own. It listens at one loopback address for each host, with keys and a
home directory made for it, and ends with the scenario. All contestants use the same client, the
same options of ssh and the same number of logins at a time.
"""

import contextlib
import getpass
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time

import measure
from contest import Contest, Contestant

HOSTS = (16, 64)
SHAPES = {16: "1x4x4", 64: "1x8x8"}
LOGINS_MAX = 64
FILE = "/etc/hostname"
START_SECONDS_MAX = 20
LISTEN_MAX = 16  # addresses that one sshd listens at
QUIET_SECONDS = 2
RUN_SSHD = pathlib.Path("/run/sshd")  # sshd insists on it when it runs as root

SSHD_CONFIG = """\
{listen}
Port {port}
HostKey {home}/host_key
PidFile none
AuthorizedKeysFile {home}/key.pub
StrictModes no
UsePAM no
UseDNS no
PrintMotd no
PasswordAuthentication no
PermitRootLogin prohibit-password
MaxStartups 1000
SetEnv HOME={home}
"""

SSH_CONFIG = """\
Host n*
  Port {port}
  User {user}
  IdentityFile {home}/key
  IdentitiesOnly yes
  BatchMode yes
  LogLevel ERROR
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
{hosts}
"""

SHEAF_CONFIG = """\
[cluster.flat]
hosts = "n[1-{count}]"
tree = "flat"
ssh = "ssh -F {ssh_config}"
listen = "127.0.0.1"

[cluster.tree]
hosts = "n[1-{count}]"
tree = "{shape}"
ssh = "ssh -F {ssh_config}"
listen = "127.0.0.1"

[tuning]
ssh_starts_max = {logins}
"""


def address(number):
    return f"127.0.{1 + number // 250}.{1 + number % 250}"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def shape(count):
    """As even as it can be, with one level between."""
    if count in SHAPES:
        return SHAPES[count]
    inner = max(n for n in range(1, int(count ** 0.5) + 1) if count % n == 0)
    return f"1x{inner}x{count // inner}"


class Hosts:
    """A few sshds that are `count` hosts, and files that tell each contestant of them."""

    def __init__(self, directory, count):
        self.home = pathlib.Path(directory) / f"ssh-{count}"
        self.home.mkdir(parents=True, exist_ok=True)
        self.port, self.count, self.sshds, self.made = free_port(), count, [], False
        self.ssh_config = self.home / "ssh_config"
        self.sheaf_config = self.home / "sheaf.toml"
        self.runtime = self.home / "run"
        self.runtime.mkdir(mode=0o700, exist_ok=True)

    def start(self):
        for name in ("key", "host_key"):
            if not (self.home / name).exists():
                subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.home / name],
                               check=True, stdin=subprocess.DEVNULL)
        numbers = range(1, self.count + 1)
        hosts = "\n".join(f"Host n{n}\n  HostName {address(n)}" for n in numbers)
        self.ssh_config.write_text(SSH_CONFIG.format(
            port=self.port, user=getpass.getuser(), home=self.home, hosts=hosts))
        self.sheaf_config.write_text(SHEAF_CONFIG.format(
            count=self.count, shape=shape(self.count), ssh_config=self.ssh_config, logins=LOGINS_MAX))
        if os.geteuid() == 0 and not RUN_SSHD.exists():
            RUN_SSHD.mkdir(mode=0o755)
            self.made = True
        sshd = shutil.which("sshd") or "/usr/sbin/sshd"
        for first in range(0, self.count, LISTEN_MAX):
            listen = "\n".join(f"ListenAddress {address(n)}" for n in numbers[first:first + LISTEN_MAX])
            config = self.home / f"sshd_config-{first}"
            config.write_text(SSHD_CONFIG.format(listen=listen, port=self.port, home=self.home))
            self.sshds.append(subprocess.Popen(
                [sshd, "-D", "-e", "-f", config], stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=open(self.home / f"sshd-{first}.log", "wb")))
        deadline = time.monotonic() + START_SECONDS_MAX
        last = subprocess.CompletedProcess([], 1, stderr="")
        while time.monotonic() < deadline and last.returncode:
            last = subprocess.run(["ssh", "-F", self.ssh_config, f"n{self.count}", "true"],
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if last.returncode:
            raise OSError(f"no login at the sshd of this scenario: {last.stderr.strip()}")

    def stop(self):
        for sshd in self.sshds:
            sshd.terminate()
            sshd.wait()
        if self.made:
            with contextlib.suppress(OSError):
                RUN_SSHD.rmdir()

    def environment(self):
        return {"XDG_RUNTIME_DIR": str(self.runtime), "PDSH_SSH_ARGS": f"-2 -a -x -F {self.ssh_config} %h"}


def _folded(count):
    return f"n[1-{count}]"


def _all_answered(count, folds):
    """A line from every host; Sheaf says by its exit code that all have answered."""
    def check(sample):
        lines = sample.stdout.decode(errors="replace").splitlines()
        if folds:
            return None if lines else "no output"
        hosts = {line.split(":", 1)[0] for line in lines}
        return None if len(hosts) == count else f"{len(hosts)} of {count} hosts answered"
    return check


def _rivals(hosts):
    every, fan = _folded(hosts.count), str(LOGINS_MAX)
    lines = {
        "pdsh": ["pdsh", "-S", "-R", "ssh", "-f", fan, "-w", every, "cat", FILE],
        "clush": ["clush", "-S", "-f", fan, "-o", f"-F {hosts.ssh_config}", "-w", every, "cat", FILE],
    }
    for name, line in lines.items():
        if not shutil.which(name):
            print(f"launch: {name} is not installed, so it is left out", file=sys.stderr)
            continue
        yield Contestant(name, line, keep=True, env=hosts.environment(),
                         check=_all_answered(hosts.count, folds=False))


def _sheaf(sheaf, hosts, cluster, words):
    return [sheaf.binary, "--config", str(hosts.sheaf_config), "-C", cluster, *words]


def _contestants(sheaf, hosts, session):
    yield from _rivals(hosts)
    if not sheaf.exists:
        return
    check, env = _all_answered(hosts.count, folds=True), hosts.environment()

    def without_program():
        shutil.rmtree(hosts.home / ".cache", ignore_errors=True)

    for cluster in ("flat", "tree"):
        # No session of that name runs, so the command starts its own.
        line = _sheaf(sheaf, hosts, cluster, ["cat", FILE])
        yield Contestant(f"sheaf {cluster}", line, keep=True, env=env, check=check)
    yield Contestant("sheaf tree, program sent", _sheaf(sheaf, hosts, "tree", ["cat", FILE]),
                     keep=True, env=env, check=check, before=without_program)
    if session:
        line = _sheaf(sheaf, hosts, "tree", ["--session", "launched", "cat", FILE])
        yield Contestant("sheaf in session", line, keep=True, env=env, check=check)


def _settle():
    """Waits until the servers' logins have ended: then all of them are children of this process."""
    deadline, quiet_since, seen = time.monotonic() + START_SECONDS_MAX, time.monotonic(), set()
    while time.monotonic() < deadline and time.monotonic() - quiet_since < QUIET_SECONDS:
        now = measure.children()
        if now != seen:
            quiet_since, seen = time.monotonic(), now
        time.sleep(measure.POLL_SECONDS)


@contextlib.contextmanager
def _session(sheaf, hosts):
    if not sheaf.exists:
        yield False
        return
    line = _sheaf(sheaf, hosts, "tree", ["--session", "launched"])
    environment = {**os.environ, **hosts.environment()}
    before = measure.children()
    up = subprocess.run([*line, "up"], env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                        text=True, start_new_session=True)
    if up.returncode:
        print(f"launch: no session: {up.stderr.strip()}", file=sys.stderr)
    _settle()
    try:
        yield up.returncode == 0
    finally:
        subprocess.run([*line, "down"], env=environment, stdin=subprocess.DEVNULL, capture_output=True)
        measure.end_all(measure.children() - before)


def contests(sheaf, options):
    missing = [p for p in ("ssh", "ssh-keygen") if not shutil.which(p)]
    if not (shutil.which("sshd") or pathlib.Path("/usr/sbin/sshd").exists()):
        missing.append("sshd")
    if missing:
        print(f"launch: not measured without {', '.join(missing)}", file=sys.stderr)
        return
    for count in options.servers or HOSTS:
        hosts = Hosts(options.directory, count)
        try:
            hosts.start()
            with _session(sheaf, hosts) as session:
                yield Contest(f"launch {count} hosts", list(_contestants(sheaf, hosts, session)),
                              baseline="clush" if shutil.which("clush") else "pdsh")
        except OSError as error:
            print(f"launch {count} hosts: {error}", file=sys.stderr)
        finally:
            hosts.stop()
