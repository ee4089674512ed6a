"""What the contests of the mounted view need: two hosts on one machine, and what mounts the files of one at the other.

The hosts are h1, where programs run, and h2, which has the files. They are joined by the loopback interface, or
live in two network namespaces with a shaped pair of interfaces between them. All that is started here ends with the
`World`, and the namespaces are gone with the last process in them.
"""

import contextlib
import functools
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import measure
from scenario_launch import free_port

HERE = pathlib.Path(__file__).resolve().parent
SOURCES = HERE / "mount"
PROGRAMS = ("mountload", "barefuse", "barenet")
START_SECONDS_MAX = 20
SSHFS_END_SECONDS_MAX = 2
STRICT = "sshfs cache=no,direct_io"
# The kernel still keeps names and attributes for a second then, and a write is done before it is at the server: neither is so
# with Sheaf.
STRICTEST = "sshfs, as strict"
SSHFS = {"sshfs": [], STRICT: ["-o", "cache=no,direct_io"],
         STRICTEST: ["-o", "cache=no,direct_io,entry_timeout=0,attr_timeout=0,negative_timeout=0,sshfs_sync"]}
# What tbf needs beside a rate: a burst not smaller than what the interface is handed at a time.
SHAPES = {"1gbit": "burst 256kb latency 20ms", "100mbit": "burst 32kb latency 50ms"}
# A view mounted by the server of host h1, and one with a session of its own.
AT_HOST, UNIX = "sheaf, at a host", "sheaf, unix sockets"
# One to which the owner lends nothing.
UNLENT = "sheaf, nothing lent"
# One that keeps names and attributes for as long as sshfs does.
KEPT = "sheaf, names kept"
# One that does not wait for writes to files that nobody else has open, as sshfs does not, and one that does both.
BEHIND, BOTH = "sheaf, writes behind", "sheaf, kept and behind"
NETS = ("loopback", *SHAPES)
CLIENT, SERVER = "10.211.7.1", "10.211.7.2"
RUN_SSHD = pathlib.Path("/run/sshd")
SFTP = pathlib.Path("/usr/lib/openssh/sftp-server")

SHEAF_CONFIG = """\
[cluster.bench]
hosts = "h[1-2]"
launch = "attach"
tree = "flat"
listen = "{address}:{port}"
export = "{exports}/%h"
clients = "hosts"
clients_may = "write"
clients_root = true
audit = "off"
"""

SSHD_CONFIG = """\
ListenAddress {address}
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
Subsystem sftp {sftp}
"""

SSH_CONFIG = """\
Host h2
  HostName {address}
  Port {port}
  User root
  IdentityFile {home}/key
  IdentitiesOnly yes
  BatchMode yes
  LogLevel ERROR
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
"""

GANESHA_CONFIG = """\
NFS_CORE_PARAM {{
    Protocols = 4;
    NFS_Port = {port};
    Bind_addr = {address};
    Enable_NLM = false;
    Enable_RQUOTA = false;
    Enable_UDP = None;
}}
NFSV4 {{
    RecoveryRoot = {home}/ganesha;
    Graceless = true;
}}
EXPORT {{
    Export_Id = 1;
    Path = {exports}/h2;
    Pseudo = /h2;
    Access_Type = RW;
    Squash = No_Root_Squash;
    SecType = sys;
    FSAL {{ Name = VFS; }}
}}
"""


class Unable(Exception):
    """Why something cannot be had here."""


def build(to):
    """The programs of `mount/`, compiled into a directory."""
    to.mkdir(parents=True, exist_ok=True)
    for name in PROGRAMS:
        subprocess.run(["cc", "-O2", "-o", to / name, SOURCES / f"{name}.c"], check=True)


def wait_until(what, done):
    deadline = time.monotonic() + START_SECONDS_MAX
    while not done():
        if time.monotonic() > deadline:
            raise Unable(f"{what}: not within {START_SECONDS_MAX} s")
        time.sleep(0.02)


def placement():
    """On which processors all of it runs."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) == os.cpu_count():
        return f"{len(allowed)} CPUs, not pinned"
    return f"all on CPU {allowed[0]}" if len(allowed) == 1 else f"on CPUs {allowed}"


class World:
    """Two hosts, and the ways from h1 to the files of h2. Leaving the context ends all of it."""

    def __init__(self, sheaf, directory, net):
        self.sheaf, self.net = sheaf, net
        self.home = pathlib.Path(directory).resolve() / f"mount-{net}"
        self.exports, self.programs = self.home / "exports", self.home / "programs"
        self.files = self.exports / "h2"
        self.client, self.server = [], []  # what stands before a command that is to run on h1, and on h2
        self.addresses = ("127.0.0.1", "127.0.0.1")
        self.ways, self.pids = {}, {}  # the files of h2 by each way, and the processes that work for it
        self.session_line, self.session_env = [], {}
        self.own = None  # the files of h1 at h1, through the view
        self.nfs, self.bare_fuse, self.bare_port = None, None, None
        self.mount_sshfs, self.sshfs = {}, {}  # by the way's name: what mounts it again, and the process
        self._ending = contextlib.ExitStack()

    def __enter__(self):
        for host in ("h1", "h2"):
            (self.exports / host).mkdir(parents=True)
        # What servers that are no other hosts call it.
        (self.exports / "n1").symlink_to("h2")
        (self.exports / "n2").mkdir()
        build(self.programs)
        self._ending.callback(shutil.rmtree, self.home, ignore_errors=True)
        before = measure.children()
        self._ending.callback(lambda: measure.end_all(measure.children() - before))
        try:
            if self.net != "loopback":
                self._cable()
            self._start("the bare connection", self._bare_net)
            if self.sheaf.exists:
                self._start("sheaf mount", self._sheaf)
            self._start("bare FUSE", self._bare_fuse)
            self._start("sshfs", self._sshfs)
            self._start("nfs-ganesha", self._ganesha)
        except BaseException:
            self._ending.close()
            raise
        return self

    def __exit__(self, *_):
        self._ending.close()

    def _start(self, what, how):
        """Starts something; without it others are measured."""
        try:
            how()
        except (Unable, OSError, subprocess.SubprocessError) as error:
            print(f"mount, {self.net}: without {what}: {error}", file=sys.stderr)

    def program(self, name):
        return str(self.programs / name)

    def spawn(self, line, name, env=None, stdin=subprocess.DEVNULL, stop=signal.SIGTERM):
        """A process that ends with this world."""
        log = open(self.home / f"{name}.log", "wb")
        process = subprocess.Popen([str(word) for word in line], stdin=stdin, stdout=log, stderr=log,
                                   start_new_session=True, env={**os.environ, **(env or {})})

        def end():
            if process.poll() is None:
                process.send_signal(stop)
            try:
                process.wait(START_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdin:
                process.stdin.close()
            log.close()
        self._ending.callback(end)
        return process

    def said(self, name):
        text = (self.home / f"{name}.log").read_text(errors="replace").strip()
        return text[-300:]

    def done(self, line, what, env=None):
        """Runs a command to its end, which has to be a good one."""
        done = subprocess.run([str(word) for word in line], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              env={**os.environ, **(env or {})}, timeout=60, start_new_session=True)
        if done.returncode:
            raise Unable(f"{what}: exit {done.returncode}: {done.stderr.strip()[-300:]}")
        return done.stdout

    def _unmount(self, point):
        subprocess.run(["umount", "-l", point], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def _cable(self):
        """Two network namespaces, of no name, and a shaped pair of interfaces between them."""
        missing = [tool for tool in ("ip", "tc", "unshare", "nsenter") if not shutil.which(tool)]
        if missing:
            raise Unable(f"namespaces need {', '.join(missing)}")
        holders = []
        for host in ("h1", "h2"):
            # It ends when its input does, so that nothing outlives this program, however that ends.
            holder = self.spawn(["unshare", "--net", "cat"], f"namespace-{host}", stdin=subprocess.PIPE)
            holders.append(holder)
            own = os.readlink("/proc/self/ns/net")
            wait_until("a namespace", lambda: holder.poll() is not None or
                       os.readlink(f"/proc/{holder.pid}/ns/net") != own)
            if holder.poll() is not None:
                raise Unable(f"namespaces cannot be made here: {self.said(f'namespace-{host}')}")
        inside = [["nsenter", f"--net=/proc/{holder.pid}/ns/net", "--"] for holder in holders]
        self.client, self.server = inside
        self.done([*inside[0], "ip", "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns",
                   str(holders[1].pid)], "a pair of interfaces")
        for place, address in zip(inside, (CLIENT, SERVER)):
            for words in (f"ip addr add {address}/24 dev cable", "ip link set cable up", "ip link set lo up",
                          f"tc qdisc add dev cable root tbf rate {self.net} {SHAPES[self.net]}"):
                self.done([*place, *words.split()], words)
        self.addresses = (CLIENT, SERVER)

    def _bare_net(self):
        self.bare_port = free_port()
        serving = self.spawn([*self.server, self.program("barenet"), "serve", self.addresses[1], self.bare_port],
                             "barenet")
        time.sleep(0.2)
        if serving.poll() is not None:
            raise Unable(self.said("barenet"))

    def _bare_fuse(self):
        point = self.home / "bare-fuse"
        point.mkdir()
        self._ending.callback(self._unmount, point)
        serving = self.spawn([self.program("barefuse"), point], "barefuse")
        wait_until("bare FUSE", lambda: serving.poll() is not None or os.path.ismount(point))
        if serving.poll() is not None:
            raise Unable(self.said("barefuse"))
        self.bare_fuse = point

    def _runtime(self, name):
        runtime = self.home / f"run-{name}"
        runtime.mkdir(mode=0o700, exist_ok=True)
        return {"XDG_RUNTIME_DIR": str(runtime), "XDG_CONFIG_HOME": str(self.home / "no-config")}

    def _sheaf(self):
        """A session whose root is at h1, a view mounted beside the root, and one by the server of host h1."""
        if os.geteuid() or not os.path.exists("/dev/fuse"):
            raise Unable("mounting needs root and /dev/fuse")
        config, token, port = self.home / "sheaf.toml", self.home / "token", free_port()
        config.write_text(SHEAF_CONFIG.format(address=self.addresses[0], port=port, exports=self.exports))
        root = self._runtime("root")
        line = [self.sheaf.binary, "--config", str(config)]
        self.session_line, self.session_env = [*self.client, *line, "--session", "bench"], root
        before = measure.children()
        up = subprocess.run([*self.session_line, "up", "bench", "--tokens", str(token), "--token-uses", "2"],
                            env={**os.environ, **root}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                            start_new_session=True, timeout=60)
        adopted = measure.children() - before
        if up.returncode not in (0, 1):  # 1: nobody has joined yet
            raise Unable(f"sheaf up: {up.stderr.strip()[-300:]}")
        self._ending.callback(lambda: subprocess.run(
            [*self.session_line, "down"], env={**os.environ, **root}, stdin=subprocess.DEVNULL, capture_output=True))
        pids = set(adopted)
        for host, place in (("h1", self.client), ("h2", self.server)):
            serve = [*place, self.sheaf.binary, "serve", "--join", f"{self.addresses[0]}:{port}", "--token-file", token,
                     "--host", host]
            pids.add(self.spawn(serve, f"serve-{host}", env=self._runtime(host)).pid)
        wait_until("both hosts in the session", self._is_whole)
        self._view("sheaf", self.session_line, root, pids)
        self._view(UNLENT, self.session_line, root, pids, "--no-lease")
        self._view(AT_HOST, [*self.client, self.sheaf.binary], self._runtime("h1"), pids)
        self._view(KEPT, [*self.client, self.sheaf.binary], self._runtime("h1"), pids, "--attribute-cache", "20")
        self._view(BEHIND, [*self.client, self.sheaf.binary], self._runtime("h1"), pids, "--write-behind")
        self._view(BOTH, [*self.client, self.sheaf.binary], self._runtime("h1"), pids, "--write-behind", "--attribute-cache", "20")
        self.own = self.ways[AT_HOST].parent / "h1"
        if self.net == "loopback":
            words = ["--processes", "2", "--export", f"{self.exports}/%h", "--link", "unix"]
            self._view(UNIX, [self.sheaf.binary, *words], self._runtime("unix"), ())
            # Its hosts have names of their own.
            self.ways[UNIX] = self.ways[UNIX].parent / "n1"

    def _view(self, name, line, env, pids, *options):
        """A view, and who works for it."""
        point = self.home / f"view-{len(self.ways)}"
        point.mkdir()
        before = measure.children()
        self._ending.callback(subprocess.run, [self.sheaf.binary, "umount", point], stdin=subprocess.DEVNULL,
                              capture_output=True)
        self.done([*line, "mount", *options, point], "sheaf mount", env)
        mine = measure.children() - before
        self.ways[name] = point / "hosts" / "h2"
        self.pids[name] = [*pids, *mine, *(below for one in mine for below in measure.descendants(one))]

    def _is_whole(self):
        shown = subprocess.run([*self.session_line, "tree", "show", "--json"], env={**os.environ, **self.session_env},
                               stdin=subprocess.DEVNULL, capture_output=True, text=True)
        found = measure.json_lines(shown.stdout)
        return bool(found) and found[-1].get("running") == 2

    def round_trips(self, rounds):
        """The command that measures round trips of the session to h2, as JSON."""
        return [*self.session_line, "-w", "h2", "tree", "bench", "rtt", "--rounds", str(rounds), "--json"]

    def _sshfs(self):
        missing = [tool for tool in ("sshfs", "ssh", "ssh-keygen", "/usr/sbin/sshd") if not shutil.which(tool)]
        if missing:
            raise Unable(f"{', '.join(missing)} not installed")
        for name in ("key", "host_key"):
            self.done(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.home / name], "ssh-keygen")
        about = {"address": self.addresses[1], "port": free_port(), "home": self.home,
                 "sftp": SFTP if SFTP.exists() else "internal-sftp"}
        (self.home / "sshd_config").write_text(SSHD_CONFIG.format(**about))
        (self.home / "ssh_config").write_text(SSH_CONFIG.format(**about))
        if not RUN_SSHD.exists():
            RUN_SSHD.mkdir(mode=0o755)
            self._ending.callback(lambda: RUN_SSHD.rmdir())
        sshd = self.spawn([*self.server, "/usr/sbin/sshd", "-D", "-e", "-f", self.home / "sshd_config"], "sshd")
        login = [*self.client, "ssh", "-F", self.home / "ssh_config", "h2", "true"]
        wait_until("a login at the sshd of this scenario", lambda: sshd.poll() is not None or subprocess.run(
            [str(w) for w in login], stdin=subprocess.DEVNULL, capture_output=True).returncode == 0)
        for name, options in SSHFS.items():
            point = self.home / f"sshfs-{len(self.mount_sshfs)}"
            point.mkdir()
            self.ways[name], self.pids[name] = point, []
            self.mount_sshfs[name] = functools.partial(self._mount_sshfs, name, options, sshd)
            self._ending.callback(self._unmount, point)
            try:
                self.mount_sshfs[name]()
            except BaseException:
                del self.ways[name], self.mount_sshfs[name]
                raise

    def _mount_sshfs(self, name, options, sshd):
        """Mounts it, anew where it was mounted: what was known of files is then forgotten."""
        point, pids = self.ways[name], self.pids[name]
        log = f"log-{point.name}"
        if name in self.sshfs:
            self._unmount(point)
            try:
                self.sshfs[name].wait(SSHFS_END_SECONDS_MAX)
            except subprocess.TimeoutExpired:  # now and then it stays
                self.sshfs[name].kill()
                self.sshfs[name].wait()
        before = set(measure.descendants(sshd.pid))
        mounting = self.spawn([*self.client, "sshfs", "-f", "-F", self.home / "ssh_config", *options,
                               f"h2:{self.files}", point], log)
        wait_until("sshfs", lambda: mounting.poll() is not None or os.path.ismount(point))
        if mounting.poll() is not None:
            raise Unable(self.said(log))
        self.sshfs[name] = mounting
        pids[:] = [mounting.pid, *measure.descendants(mounting.pid), *(set(measure.descendants(sshd.pid)) - before)]

    def _ganesha(self):
        missing = [tool for tool in ("ganesha.nfsd", "nfs-cat") if not shutil.which(tool)]
        if missing:
            raise Unable(f"{', '.join(missing)} not installed")
        port = free_port()
        (self.home / "ganesha").mkdir()
        (self.home / "ganesha.conf").write_text(GANESHA_CONFIG.format(
            address=self.addresses[1], port=port, home=self.home, exports=self.exports))
        serving = self.spawn([*self.server, "ganesha.nfsd", "-F", "-f", self.home / "ganesha.conf", "-L",
                              self.home / "ganesha-nfsd.log", "-p", self.home / "ganesha.pid"], "ganesha")
        (self.files / "hello").write_text("hello\n")
        self.nfs = f"nfs://{self.addresses[1]}/h2/%s?version=4&nfsport={port}"

        def answers():
            ask = [*self.client, "nfs-cat", self.nfs % "hello"]
            return serving.poll() is not None or subprocess.run(
                ask, stdin=subprocess.DEVNULL, capture_output=True).stdout == b"hello\n"
        try:
            wait_until("an answer of nfs-ganesha", answers)
            if serving.poll() is not None:
                raise Unable(f"nfs-ganesha has ended: {self.said('ganesha')}")
        except Unable:
            self.nfs = None
            raise
        self.pids["nfs"] = (serving.pid,)

