//! A server of PostgreSQL for tests, in a directory of its own.
use crate::program::succeeds;
use crate::skipped;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How long a server may take to begin or to end.
const SERVER_TIMEOUT: Duration = Duration::from_secs(60);
/// How often it is looked whether it has.
const LOOK: Duration = Duration::from_millis(20);

/// A running server, which listens at a socket in its directory, believes everybody to be `postgres`,
/// and ends with this.
#[derive(Debug)]
pub struct PostgresServer {
    directory: tempfile::TempDir,
    bin: PathBuf,
    user: Option<u32>,
    port: u16,
    server: Child,
}

impl PostgresServer {
    /// The one that the tests of a process share, which forgets all when it ends; nothing, with a word,
    /// where there is no PostgreSQL.
    #[must_use]
    pub fn shared() -> Option<Arc<Self>> {
        static SHARED: Mutex<Weak<PostgresServer>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = shared.upgrade() {
            return Some(server);
        }
        let server = Arc::new(Self::start(&["fsync=off", "full_page_writes=off"])?);
        *shared = Arc::downgrade(&server);
        Some(server)
    }

    /// Starts one with these settings; nothing, with a word, where there is no PostgreSQL. With
    /// `listen_addresses` it is at a port that was free.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start(settings: &[&str]) -> Option<Self> {
        let Some(bin) = programs() else {
            skipped("postgresql is not installed");
            return None;
        };
        let directory = tempfile::tempdir().unwrap();
        let user = other_user();
        if let Some(user) = user {
            chown(directory.path(), Some(user), Some(user)).unwrap();
        }
        let mut make = as_user(&bin.join("initdb"), user, directory.path());
        make.args(["--auth=trust", "--no-sync", "--no-locale", "--encoding=UTF8"]);
        succeeds(make.args(["--username=postgres", "--pgdata=data"]));
        let listens = settings.iter().any(|setting| setting.starts_with("listen_addresses"));
        let port = if listens { free_port() } else { 5432 };
        let server = run(&bin, user, directory.path(), port, settings);
        let started = Self { directory, bin, user, port, server };
        started.wait_until_it_answers();
        Some(started)
    }

    /// Where its socket is, and nothing else that is of use to others.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The socket that it listens at.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join(format!(".s.PGSQL.{}", self.port))
    }

    /// The port that it listens at, with `listen_addresses`.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Writes a file that only the server may read, beside its tables.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write_own_file(&self, name: &str, content: &[u8]) {
        let path = self.directory().join("data").join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        if let Some(user) = self.user {
            chown(&path, Some(user), Some(user)).unwrap();
        }
    }

    /// The URL of a database.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!(
            "postgresql:///{database}?host={}&port={}&user=postgres",
            self.directory().display(),
            self.port
        )
    }

    /// Makes a database, and gives its URL. It is another one each time.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn new_database(&self) -> String {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("test_{number}");
        self.sql("postgres", &format!("CREATE DATABASE {name} STRATEGY file_copy"));
        self.url(&name)
    }

    /// What SQL finds in a database, a line each, with `|` between columns.
    ///
    /// # Panics
    /// When it fails.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let mut psql = Command::new(self.bin.join("psql"));
        psql.env_clear().current_dir(self.directory());
        psql.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-h"]);
        psql.arg(self.directory()).args(["-p", &self.port.to_string(), "-d", database, "-c", sql]);
        succeeds(&mut psql)
    }

    /// Ends it as a power cut does, and starts it again with these settings.
    ///
    /// # Panics
    /// When it does not start.
    pub fn crash(&mut self, settings: &[&str]) {
        let first = std::fs::read_to_string(self.directory().join("data/postmaster.pid")).unwrap();
        let id = first.lines().next().and_then(|line| line.parse().ok()).unwrap();
        let id = rustix::process::Pid::from_raw(id).unwrap();
        // All of its processes end with the first.
        rustix::process::kill_process(id, rustix::process::Signal::QUIT).unwrap();
        drop(self.server.stdin.take());
        self.wait();
        self.server = run(&self.bin, self.user, self.directory.path(), self.port, settings);
        self.wait_until_it_answers();
    }

    fn wait_until_it_answers(&self) {
        let deadline = Instant::now() + SERVER_TIMEOUT;
        let mut ready = Command::new(self.bin.join("pg_isready"));
        ready.args(["-q", "-p", &self.port.to_string(), "-h"]).arg(self.directory());
        while !(UnixStream::connect(self.socket()).is_ok() && ready.status().unwrap().success()) {
            let log = || std::fs::read_to_string(self.directory().join("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "postgres does not start: {}", log());
            std::thread::park_timeout(LOOK);
        }
    }

    /// Waits until the shell has ended, and with it the server.
    fn wait(&mut self) {
        let deadline = Instant::now() + SERVER_TIMEOUT;
        while matches!(self.server.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                // Whoever drops this may be a test that fails.
                let _ = self.server.kill();
            }
            std::thread::park_timeout(LOOK);
        }
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // The shell ends the server when there is nobody who could write to it any longer.
        drop(self.server.stdin.take());
        self.wait();
    }
}

/// Runs a server that ends with whoever has started it, in whatever way that ends.
fn run(bin: &Path, user: Option<u32>, directory: &Path, port: u16, settings: &[&str]) -> Child {
    const SCRIPT: &str = r#""$@" </dev/null >log 2>&1 & read -r _; kill -INT $! 2>/dev/null; wait"#;
    let mut shell = as_user(Path::new("/bin/sh"), user, directory);
    shell.args(["-c", SCRIPT, "sh"]).arg(bin.join("postgres")).args(["-D", "data", "-k"]);
    shell.arg(directory).args(["-p", &port.to_string()]);
    let common = ["listen_addresses=", "shared_buffers=16MB", "max_connections=60"];
    for setting in common.iter().chain(settings) {
        shell.args(["-c", setting]);
    }
    shell.stdin(Stdio::piped()).spawn().unwrap()
}

/// A program that runs in the directory, as somebody who is not root.
fn as_user(program: &Path, user: Option<u32>, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(directory).env_clear().env("PATH", "/usr/bin:/bin").env("LC_ALL", "C");
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    command
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Nobody, where one is root: the server refuses to be that.
fn other_user() -> Option<u32> {
    rustix::process::geteuid().is_root().then_some(65534)
}

/// The directory of the latest version that is installed.
fn programs() -> Option<PathBuf> {
    let installed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = installed
        .filter_map(|version| {
            let number = version.file_name().to_str()?.parse().ok()?;
            Some((number, version.path().join("bin")))
        })
        .filter(|(_, bin)| bin.join("postgres").exists() && bin.join("initdb").exists())
        .collect();
    versions.sort();
    versions.pop().map(|(_, bin)| bin)
}
