//! A socket between a client and a server of PostgreSQL: it counts answers, and fails where it is told.
use sheaf_testing::postgres::PostgresServer;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The last word of the server each time that it was asked.
const READY: u8 = b'Z';

#[derive(Default)]
struct State {
    answers: AtomicU64,
    /// After so many answers there is none any longer.
    answers_max: AtomicU64,
    /// Then connections stay, and nothing comes; otherwise they are cut.
    is_silent: AtomicBool,
}

pub struct Relay {
    directory: tempfile::TempDir,
    state: Arc<State>,
}

impl Relay {
    pub fn new(server: &PostgresServer) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let state = Arc::new(State::default());
        state.answers_max.store(u64::MAX, Ordering::SeqCst);
        let listener = UnixListener::bind(directory.path().join(".s.PGSQL.5432")).unwrap();
        let (to, shared) = (server.socket(), state.clone());
        std::thread::spawn(move || {
            // It ends with the process of the test: nobody connects to it any longer.
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), UnixStream::connect(&to).unwrap());
                let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || {
                    // Either may end at any time.
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Both);
                });
                let state = shared.clone();
                std::thread::spawn(move || {
                    let _ = answer(&state, server, &client);
                    let _ = client.shutdown(Shutdown::Both);
                });
            }
        });
        Self { directory, state }
    }

    /// The URL of a database, through this.
    pub fn url(&self, database_url: &str) -> String {
        let database = database_url.strip_prefix("postgresql:///").unwrap().split('?').next();
        let directory = self.directory.path().display();
        format!("postgresql:///{}?host={directory}&user=postgres", database.unwrap())
    }

    pub fn answers(&self) -> u64 {
        self.state.answers.load(Ordering::SeqCst)
    }

    /// Has so many answers come, and none after them.
    pub fn stop_after(&self, answers: u64, is_silent: bool) {
        self.state.is_silent.store(is_silent, Ordering::SeqCst);
        self.state.answers.store(0, Ordering::SeqCst);
        self.state.answers_max.store(answers, Ordering::SeqCst);
    }

    pub fn go_on(&self) {
        self.state.answers_max.store(u64::MAX, Ordering::SeqCst);
    }
}

fn answer(state: &State, mut server: UnixStream, mut client: &UnixStream) -> std::io::Result<()> {
    loop {
        let mut header = [0; 5];
        server.read_exact(&mut header)?;
        let bytes = u32::from_be_bytes(*header.last_chunk().unwrap()) as usize - 4;
        let mut message = vec![0; bytes];
        server.read_exact(&mut message)?;
        if header[0] == READY {
            let answers = state.answers.fetch_add(1, Ordering::SeqCst);
            if answers >= state.answers_max.load(Ordering::SeqCst) {
                if !state.is_silent.load(Ordering::SeqCst) {
                    return Ok(());
                }
                // The client gives up.
                let _ = client.read(&mut [0]);
                std::thread::park_timeout(std::time::Duration::from_secs(30));
                return Ok(());
            }
        }
        client.write_all(&[&header[..], &message[..]].concat())?;
    }
}
