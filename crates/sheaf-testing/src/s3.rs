//! A server of S3 for a test: versitygw, with a directory of its own.
use crate::program::{Guard, have};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SERVER: &str = "versitygw";
/// How long it may take to answer.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Another process may take the port that was free.
const STARTS_MAX: usize = 5;

/// A server on the loopback interface, which ends with this.
#[derive(Debug)]
pub struct S3Server {
    /// Where it listens.
    pub address: SocketAddr,
    // It ends before its directory goes.
    _server: Guard,
    directory: tempfile::TempDir,
}

impl S3Server {
    /// The bucket that every server has.
    pub const BUCKET: &str = "bucket";
    /// The access key of its user.
    pub const ACCESS_KEY_ID: &str = "sheaf-test-user";
    /// The secret of that.
    pub const SECRET_ACCESS_KEY: &str = "a-secret-that-nobody-prints";

    /// Starts one; nothing, with a word, where there is no such program.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    pub fn start() -> Option<Self> {
        if !have(SERVER) {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(directory.path().join("root").join(Self::BUCKET)).unwrap();
        for _ in 0..STARTS_MAX {
            let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let mut command = Command::new(SERVER);
            command
                .args(["--quiet", "--port", &address.to_string(), "posix"])
                .arg(directory.path().join("root"))
                .env("ROOT_ACCESS_KEY_ID", Self::ACCESS_KEY_ID)
                .env("ROOT_SECRET_ACCESS_KEY", Self::SECRET_ACCESS_KEY)
                .current_dir(directory.path())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            let mut server = Guard(command.spawn().unwrap());
            if answers(address, &mut server) {
                return Some(Self { address, _server: server, directory });
            }
        }
        panic!("{SERVER} does not start");
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where its bucket is on this machine.
    #[must_use]
    pub fn bucket(&self) -> PathBuf {
        self.directory.path().join("root").join(Self::BUCKET)
    }
}

/// Waits until a server answers; whether it does.
fn answers(address: SocketAddr, server: &mut Guard) -> bool {
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        if server.0.try_wait().unwrap().is_some() {
            return false;
        }
        if TcpStream::connect_timeout(&address, Duration::from_millis(500)).is_ok() {
            return true;
        }
        assert!(Instant::now() < deadline, "{SERVER} does not answer");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}
