//! Several hosts on this machine: namespaces with an address, a home, and an sshd each.
//!
//! Every host is the first process of a PID namespace, so that ending it ends all that runs on it;
//! it is told to end with the process that started it, so that nothing survives a test that fails
//! or is killed. Network, mounts and host name are namespaces too: nothing of the machine changes.
use sha2::Digest;
use sheaf_testing::home::Run;
use sheaf_testing::sessions::{Process, wait_until};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// What a host does when it starts. Arguments: its directory, name and address.
const HOST_SCRIPT: &str = r#"
set -e
dir=$1 name=$2 address=$3
# A view of the machine's that were known here, too, would stay until this host ends.
umount --all --lazy --types fuse.sheaf 2>&- || :
mount -t tmpfs none /run
mount -t tmpfs none /var/tmp
mkdir -p /run/sshd /run/user
mount --bind "$dir/root" /root
mount --bind "$dir/../etc-hosts" /etc/hosts
hostname "$name"
cd /root
echo namespaces
read -r _
ip link set lo up
ip address add "$address/16" dev eth0
ip link set eth0 up
/usr/sbin/sshd -f "$dir/sshd_config" -E "$dir/sshd.log"
until test -s /run/sshd.pid; do sleep 0.01; done
echo ready
# Whatever loses its parent on this host becomes a child of this shell, which has to wait for it.
sleep infinity <&- >&- 2>&- &
exec >&- 2>&-
wait
"#;

/// The ssh client's configuration on every host, as a user would have it.
const SSH_CONFIG: &str = "\
Host *
  IdentityFile ~/.ssh/key
  IdentitiesOnly yes
  StrictHostKeyChecking yes
  LogLevel ERROR
";

/// The host that commands are run on, beside those of the cluster.
pub const LOGIN: usize = 0;

/// Hosts that can reach each other by name: [`LOGIN`] is `login`, the others `h1`, `h2`, ….
pub struct Machines {
    dir: tempfile::TempDir,
    /// Where their cables meet.
    switch: Child,
    hosts: Vec<Host>,
}

struct Host {
    name: String,
    dir: PathBuf,
    /// `unshare`, whose child is the first process of the host.
    holder: Child,
    /// That process, as it is known outside.
    first: u32,
}

impl Machines {
    /// `login` and `count` hosts, whose users have this program in their caches from before; `None`, with a
    /// line that says so, where this cannot be had.
    pub fn new(count: usize) -> Option<Self> {
        Self::with(count, true)
    }

    /// The same, on hosts that have never had the program.
    pub fn bare(count: usize) -> Option<Self> {
        Self::with(count, false)
    }

    fn with(count: usize, cached: bool) -> Option<Self> {
        match Self::start(count, cached) {
            Ok(machines) => Some(machines),
            Err(why) => {
                // Past the capture of the test runner, so that the line shows when it passes.
                sheaf_testing::skipped(&why);
                None
            }
        }
    }

    fn start(count: usize, cached: bool) -> Result<Self, String> {
        for program in ["/usr/sbin/sshd", "/usr/bin/ssh", "/usr/bin/ssh-keygen", "/usr/bin/nsenter"]
        {
            if !Path::new(program).exists() {
                return Err(format!("hosts for ssh need {program}"));
            }
        }
        if !succeeds(Command::new("ip").arg("-V")) {
            return Err("hosts for ssh need ip (Debian package iproute2)".to_owned());
        }
        let flags =
            ["--net", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"];
        if !succeeds(
            Command::new("unshare").args(flags).args(["mount", "-t", "tmpfs", "none", "/run"]),
        ) {
            return Err("namespaces cannot be made here (that needs root)".to_owned());
        }
        let dir = tempfile::tempdir().unwrap();
        write_common(dir.path(), count);
        let switch = Command::new("unshare")
            .args(["--net", "--pid", "--fork", "--kill-child", "sleep", "infinity"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut machines = Self { dir, switch, hosts: Vec::new() };
        let mut pipes = Vec::new();
        for number in 0..=count {
            let (host, said) = Host::start(machines.dir.path(), number, cached);
            machines.hosts.push(host);
            pipes.push(said);
        }
        for (host, said) in machines.hosts.iter_mut().zip(&mut pipes) {
            expect(said, "namespaces");
            host.first = child_of(host.holder.id());
        }
        machines.connect_cables();
        for host in &mut machines.hosts {
            host.holder.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        }
        for said in &mut pipes {
            expect(said, "ready");
        }
        Ok(machines)
    }

    /// Joins every host to the switch, with one process for all.
    fn connect_cables(&self) {
        let mut commands = "link add switch type bridge\nlink set switch up\n".to_owned();
        for (number, host) in self.hosts.iter().enumerate() {
            commands += &format!(
                "link add port{number} type veth peer name eth0 netns {}\n\
                 link set port{number} master switch up\n",
                host.first
            );
        }
        self.at_switch(&commands);
    }

    fn at_switch(&self, commands: &str) {
        let switch = child_of(self.switch.id()).to_string();
        let mut ip = Command::new("nsenter")
            .args(["--target", &switch, "--net", "ip", "-batch", "-"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        ip.stdin.take().unwrap().write_all(commands.as_bytes()).unwrap();
        assert!(ip.wait().unwrap().success(), "{commands}");
    }

    /// Pulls the cable of a host.
    pub fn cut(&self, host: usize) {
        self.at_switch(&format!("link set port{host} down\n"));
    }

    /// Puts it in again.
    pub fn mend(&self, host: usize) {
        self.at_switch(&format!("link set port{host} up\n"));
    }

    /// Lets the kernel of a host follow these rules of nftables; whether it can.
    pub fn firewall(&self, host: usize, rules: &str) -> bool {
        self.write(host, "rules.nft", rules);
        succeeds(&mut self.command(host, "nft", &["-f", "/root/rules.nft"]))
    }

    /// The directory of the machines, which all hosts see.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A file in the home of a host (`/root` there), or what is to be one.
    pub fn home(&self, host: usize, name: &str) -> PathBuf {
        self.hosts[host].dir.join("root").join(name)
    }

    /// Writes a file into the home of a host.
    pub fn write(&self, host: usize, name: &str, text: &str) {
        let path = self.home(host, name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// The files of a host, as it sees them.
    pub fn root(&self, host: usize) -> PathBuf {
        self.hosts[host].first_proc("root")
    }

    /// A command that runs on a host, in its home.
    pub fn command(&self, host: usize, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.hosts[host].first.to_string()]);
        command.args(["--net", "--mount", "--uts", "--pid", "--"]);
        command.args(["sh", "-c", "cd /root && exec \"$@\"", "sh", program]).args(args);
        command.env_clear().env("HOME", "/root").env("XDG_RUNTIME_DIR", "/run/user");
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").stdin(Stdio::null());
        command
    }

    /// `sheaf` with these arguments on `login`.
    pub fn sheaf(&self, args: &[&str]) -> Command {
        self.command(LOGIN, self.dir().join("sheaf").to_str().unwrap(), args)
    }

    pub fn run(&self, args: &[&str]) -> Run {
        Run::of(self.sheaf(args).output().unwrap())
    }

    /// Sends a signal to the sshd of a host, which leaves connections that it has alone.
    pub fn signal_sshd(&self, host: usize, signal: &str) {
        let script = format!("read -r pid < /run/sshd.pid && kill -{signal} \"$pid\"");
        assert!(succeeds(&mut self.command(host, "sh", &["-c", &script])));
    }

    /// Ends the sshd of a host; connections that it has go on.
    pub fn stop_sshd(&self, host: usize) {
        self.signal_sshd(host, "TERM");
        let listens =
            || std::fs::read_to_string(self.hosts[host].first_proc("net/tcp")).unwrap_or_default();
        wait_until("sshd has ended", || !listens().contains(":0016 00000000:0000 0A"));
    }

    /// Starts it again, with these lines before its configuration.
    pub fn start_sshd(&self, host: usize, lines: &str) {
        let dir = &self.hosts[host].dir;
        let config = std::fs::read_to_string(dir.join("sshd_config")).unwrap();
        std::fs::write(dir.join("sshd_config.other"), format!("{lines}\n{config}")).unwrap();
        let (config, log) = (dir.join("sshd_config.other"), dir.join("sshd.log"));
        let args = ["-f", config.to_str().unwrap(), "-E", log.to_str().unwrap()];
        assert!(succeeds(&mut self.command(host, "/usr/sbin/sshd", &args)));
        wait_until("sshd has begun", || {
            succeeds(&mut self.command(host, "test", &["-s", "/run/sshd.pid"]))
        });
    }

    /// The processes of Sheaf on a host.
    pub fn processes(&self, host: usize) -> Vec<Process> {
        self.processes_called(host, "sheaf")
    }

    /// The processes of this name on a host.
    pub fn processes_called(&self, host: usize, name: &str) -> Vec<Process> {
        let here = std::fs::read_link(self.hosts[host].first_proc("ns/pid")).ok();
        let of_it = |pid: &u32| {
            let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            comm.trim_end() == name
                && std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok() == here
        };
        let entries = std::fs::read_dir("/proc").unwrap();
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        pids.filter(of_it).filter_map(Process::of).collect()
    }

    /// How often somebody has logged in to a host.
    pub fn logins(&self, host: usize) -> usize {
        let log = std::fs::read_to_string(self.hosts[host].dir.join("sshd.log")).unwrap();
        log.lines().filter(|line| line.starts_with("Accepted publickey")).count()
    }

    /// Each node that is up, by rank: its host, and the rank of its parent.
    pub fn nodes(&self) -> BTreeMap<u64, (String, u64)> {
        let shown = self.run(&["--timeout", "5", "tree", "show", "--json"]);
        let lines = shown
            .stdout
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let up = lines.filter(|line| line["type"] == "node" && line["state"] == "up");
        let of = |node: serde_json::Value| {
            let host = node["host"].as_str()?.to_owned();
            Some((node["rank"].as_u64()?, (host, node["link"]["parent"].as_u64()?)))
        };
        up.filter_map(of).collect()
    }

    /// Every host, `login` first.
    pub fn hosts(&self) -> std::ops::Range<usize> {
        0..self.hosts.len()
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for child in self.hosts.iter_mut().map(|host| &mut host.holder).chain([&mut self.switch]) {
            let _ = child.kill();
        }
        // A namespace is gone when the last process in it is; only then may its directory go.
        for child in self.hosts.iter_mut().map(|host| &mut host.holder).chain([&mut self.switch]) {
            let _ = child.wait();
        }
    }
}

impl Host {
    fn start(
        dir: &Path,
        number: usize,
        cached: bool,
    ) -> (Self, BufReader<std::process::ChildStdout>) {
        let name = name(number);
        let own = dir.join(&name);
        write_own(dir, &own);
        if cached {
            let cache = own.join("root/.cache/sheaf/bin").join(&program().hash);
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&cache).unwrap();
            std::fs::hard_link(dir.join("sheaf"), cache.join("sheaf")).unwrap();
        }
        let mut holder = Command::new("unshare")
            .args(["--net", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"])
            .args(["sh", "-c", HOST_SCRIPT, "sh"])
            .args([own.to_str().unwrap(), &name, &address(number)])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(holder.stdout.take().unwrap());
        (Self { name, dir: own, holder, first: 0 }, said)
    }

    fn first_proc(&self, file: &str) -> PathBuf {
        assert_ne!(self.first, 0, "{} has not started", self.name);
        PathBuf::from(format!("/proc/{}/{file}", self.first))
    }
}

fn name(number: usize) -> String {
    if number == LOGIN { "login".to_owned() } else { format!("h{number}") }
}

/// The address of a host, which nobody else can reach.
pub fn address(number: usize) -> String {
    format!("10.77.{}.{}", number / 200, number % 200 + 1)
}

/// What all hosts share: their names, one user's key, and the program to be run.
fn write_common(dir: &Path, count: usize) {
    let lines = (0..=count).map(|number| format!("{} {}\n", address(number), name(number)));
    std::fs::write(
        dir.join("etc-hosts"),
        "127.0.0.1 localhost\n".to_owned() + &lines.collect::<String>(),
    )
    .unwrap();
    keygen(&dir.join("key"));
    // One host key for all is enough for the tests that do not ask for another one.
    keygen(&dir.join("host_key"));
    let public = std::fs::read_to_string(dir.join("host_key.pub")).unwrap();
    std::fs::write(dir.join("known_hosts"), format!("h*,login,10.* {public}")).unwrap();
    std::fs::copy(&program().path, dir.join("sheaf")).unwrap();
}

/// The program without its symbols, which are most of a test build.
struct Stripped {
    path: PathBuf,
    /// SHA-256, as caches of hosts name it.
    hash: String,
}

/// It is made once for all tests of a process.
fn program() -> &'static Stripped {
    static PROGRAM: OnceLock<Stripped> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let built = env!("CARGO_BIN_EXE_sheaf");
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sheaf");
        let new = path.with_extension(std::process::id().to_string());
        if !succeeds(Command::new("strip").arg("-o").arg(&new).arg(built)) {
            std::fs::copy(built, &new).unwrap();
        }
        std::fs::rename(&new, &path).unwrap();
        let hash = sha2::Sha256::digest(std::fs::read(&path).unwrap());
        let hash = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        Stripped { path, hash }
    })
}

/// The directory of one host.
fn write_own(dir: &Path, own: &Path) {
    let ssh = own.join("root/.ssh");
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&ssh).unwrap();
    std::fs::write(ssh.join("config"), SSH_CONFIG).unwrap();
    for (from, to) in
        [("key", "key"), ("key.pub", "authorized_keys"), ("known_hosts", "known_hosts")]
    {
        std::fs::copy(dir.join(from), ssh.join(to)).unwrap();
    }
    std::fs::set_permissions(ssh.join("key"), std::fs::Permissions::from_mode(0o600)).unwrap();
    // The sheaf.toml of its home counts.
    let trusted = own.join("root/.config/sheaf/trusted");
    std::fs::create_dir_all(trusted.parent().unwrap()).unwrap();
    std::fs::write(&trusted, "/root\n").unwrap();
    std::fs::set_permissions(trusted, std::fs::Permissions::from_mode(0o600)).unwrap();
    let config = format!(
        "HostKey {}\nPidFile /run/sshd.pid\nUsePAM no\nUseDNS no\nPrintMotd no\nMaxStartups 200\n\
         PasswordAuthentication no\nPermitRootLogin prohibit-password\nLogLevel VERBOSE\n\
         SetEnv XDG_RUNTIME_DIR=/run/user\n",
        dir.join("host_key").display()
    );
    std::fs::write(own.join("sshd_config"), config).unwrap();
}

/// Makes a key pair without a passphrase.
pub fn keygen(path: &Path) {
    let args = ["-q", "-t", "ed25519", "-N", "", "-C", "test", "-f"];
    assert!(succeeds(Command::new("ssh-keygen").args(args).arg(path)));
}

fn succeeds(command: &mut Command) -> bool {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn expect(said: &mut impl BufRead, word: &str) {
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert_eq!(line.trim_end(), word);
}

/// The one child of a process, once it has one.
fn child_of(pid: u32) -> u32 {
    let mut child = None;
    wait_until("the namespace has its first process", || {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        child =
            children.unwrap_or_default().split_whitespace().next().and_then(|pid| pid.parse().ok());
        child.is_some()
    });
    child.unwrap()
}
