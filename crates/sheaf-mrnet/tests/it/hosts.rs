//! Several hosts: loopback addresses of this machine, with an sshd of the test's own behind them.
use crate::tools::{front, workshop};
use sheaf_testing::program::{Guard, run, succeeds};
use sheaf_testing::{Workshop, skipped};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The hosts; 127.0.1.9 has no sshd.
const HOSTS: [&str; 3] = ["127.0.1.1", "127.0.1.2", "127.0.1.3"];

/// An sshd with its own keys and configuration.
struct Sshd {
    _process: Guard,
    port: u16,
}

/// A port that is free now at each of the hosts' addresses.
fn free_port() -> u16 {
    const TRIES_MAX: u32 = 100;
    let [first, others @ ..] = HOSTS;
    let held = (0..TRIES_MAX).map(|_| TcpListener::bind((first, 0)).unwrap());
    let mut ports = held.map(|held| held.local_addr().unwrap().port());
    ports.find(|&port| others.iter().all(|host| TcpListener::bind((*host, port)).is_ok())).unwrap()
}

impl Sshd {
    /// Starts one; `None`, with a line that says so, where this cannot be had.
    fn start(shop: &Workshop) -> Option<Self> {
        for needed in ["/usr/sbin/sshd", "/usr/bin/ssh", "/usr/bin/ssh-keygen", "/usr/bin/unshare"]
        {
            if !Path::new(needed).exists() {
                skipped(&format!("hosts for ssh need {needed}"));
                return None;
            }
        }
        let mounts = Command::new("unshare")
            .args(["--mount", "mount", "-t", "tmpfs", "none", "/run"])
            .status();
        if !mounts.is_ok_and(|status| status.success()) {
            skipped("no namespace of mounts can be made here");
            return None;
        }
        for key in ["host_key", "key"] {
            let mut made = Command::new("ssh-keygen");
            succeeds(made.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(shop.path(key)));
        }
        std::fs::copy(shop.path("key.pub"), shop.path("authorized")).unwrap();
        let port = free_port();
        let at = |name: &str| shop.path(name).display().to_string();
        let mut config = format!(
            "Port {port}\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nPidFile none\n\
             PasswordAuthentication no\nPermitRootLogin yes\nMaxStartups 100\nSetEnv XDG_CACHE_HOME={}\n",
            at("host_key"),
            at("authorized"),
            at("cache"),
        );
        HOSTS.iter().for_each(|host| config += &format!("ListenAddress {host}\n"));
        let config = shop.write("sshd_config", &config);
        // It wants a directory of its own below /run, which is this test's alone.
        let script = "mount -t tmpfs none /run && mkdir /run/sshd && exec /usr/sbin/sshd -D -f \"$1\" -E \"$2\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, "sh"]).arg(config).arg(shop.path("sshd.log"));
        command.stdin(Stdio::null());
        let sshd = Self { _process: Guard(command.spawn().unwrap()), port };
        let deadline = Instant::now() + Duration::from_secs(20);
        while HOSTS.iter().any(|host| std::net::TcpStream::connect((*host, port)).is_err()) {
            let log = || std::fs::read_to_string(shop.path("sshd.log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "sshd does not listen: {}", log());
            std::thread::park_timeout(Duration::from_millis(5));
        }
        Some(sshd)
    }

    /// A front end whose nodes are started by it.
    fn front(&self, shop: &Workshop, program: &Path) -> Command {
        let options = format!(
            "-F none -p {} -i {} -o IdentitiesOnly=yes -o IdentityAgent=none -o StrictHostKeyChecking=no \
             -o UserKnownHostsFile=/dev/null",
            self.port,
            shop.path("key").display()
        );
        let mut command = front(program);
        command.env("XPLAT_RSH", "ssh").env("XPLAT_RSH_ARGS", options);
        command
    }
}

/// Two inner nodes and a back end on hosts of their own, and one of each on the front end's.
const TOPOLOGY: &str = "localhost:0 => 127.0.1.1:0 127.0.1.2:0 127.0.1.3:0 localhost:1 ;\n\
                        127.0.1.1:0 => 127.0.1.1:1 127.0.1.3:1 ;\n127.0.1.2:0 => 127.0.1.2:1 ;\n\
                        localhost:1 => localhost:2 ;\n";

#[test]
fn tree_spans_hosts() {
    let Some(shop) = workshop() else { return };
    let Some(sshd) = Sshd::start(&shop) else { return };
    let topology = shop.write("topology", TOPOLOGY);
    let fe = shop.compile("sum_fe.cpp", "c++11", &[]);
    let be = shop.compile("sum_be.cpp", "c++11", &[]);
    assert_eq!(succeeds(sshd.front(&shop, &fe).arg(&topology).arg(&be)), "sums of 5 back ends\n");

    // A filter's bytes travel down the tree.
    let so = shop.compile("filters_so.cpp", "c++11", &["-shared", "-fPIC"]);
    let fe = shop.compile("filters_fe.cpp", "c++17", &[]);
    let be = shop.compile("filters_be.cpp", "c++11", &[]);
    let even = "localhost:0 => 127.0.1.1:0 127.0.1.2:0 ;\n127.0.1.1:0 => 127.0.1.1:1 127.0.1.3:0 ;\n\
                127.0.1.2:0 => 127.0.1.2:1 127.0.1.3:1 ;\n";
    let even = shop.write("even", even);
    let printed = succeeds(sshd.front(&shop, &fe).arg(&even).args([&be, &so]));
    assert_eq!(printed, "(0/2 x (2/2 x x))\n");

    // What goes wrong on a host is told with its name, in time.
    let missing = run(sshd.front(&shop, &fe).arg(&even).arg(shop.path("no-such-program")).arg(&so));
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(!missing.status.success() && said.contains("no-such-program"), "{said}");
    let far = shop.write("far", "localhost:0 => 127.0.1.9:0 127.0.1.1:0 ;\n");
    let refused = run(sshd.front(&shop, &fe).arg(&far).args([&be, &so]));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("127.0.1.9"), "{said}");
}
