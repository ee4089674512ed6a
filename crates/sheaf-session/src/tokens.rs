//! Tokens for hosts that join a running session by themselves: the session makes them, and gives
//! them to its own user alone, over a socket beside its own.
//!
//! ```text
//! client: USES \n
//!                 session: { "token": …, "join": "HOST:PORT" } or { "error": … } \n
//! ```
use crate::config::own_name;
use crate::error::SessionError;
use crate::keep::ACCEPT_PAUSE;
use crate::sessions::{Sessions, listening_user};
use crate::wire::{self, Issued, TokenAnswer};
use sheaf_tree::launch::Desk;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};

/// How long either end may take.
const TALK_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest request and the longest answer.
const REQUEST_BYTES_MAX: u64 = 32;
const ANSWER_BYTES_MAX: u64 = 4 << 10;

/// Answers at `listener` for as long as the session lasts.
pub(crate) async fn serve(listener: tokio::net::UnixListener, desk: Option<Arc<Desk>>) {
    let mut failures = 0u32;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                failures = 0;
                let own = rustix::process::getuid().as_raw();
                match stream.peer_cred() {
                    Ok(peer) if peer.uid() == own => {
                        let talk = answer(stream, desk.clone());
                        sheaf_tree::task::spawn(async {
                            let done = tokio::time::timeout(TALK_TIMEOUT, talk).await;
                            if let Err(error) = done.unwrap_or_else(|late| Err(late.into())) {
                                tracing::debug!(%error, "whoever asked for a token has not got it");
                            }
                        });
                    }
                    Ok(peer) => {
                        let uid = peer.uid();
                        tracing::warn!(uid, "a request for a token of another user was refused");
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a request for a token could not be taken");
                    }
                }
            }
            Err(error) => {
                failures += 1;
                if failures.is_power_of_two() {
                    let ms = ACCEPT_PAUSE.as_millis();
                    tracing::warn!(%error, "no request for a token can be taken, try {failures}; again in {ms} ms");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn answer(
    mut stream: tokio::net::UnixStream,
    desk: Option<Arc<Desk>>,
) -> std::io::Result<()> {
    let (read, mut write) = stream.split();
    let mut line = String::new();
    tokio::io::BufReader::new(read.take(REQUEST_BYTES_MAX)).read_line(&mut line).await?;
    let answer = match issue(desk.as_deref(), &line) {
        Ok(issued) => TokenAnswer::Issued(issued),
        Err(error) => TokenAnswer::Refused { error },
    };
    write.write_all(&serde_json::to_vec(&answer)?).await?;
    write.write_all(b"\n").await
}

fn issue(desk: Option<&Desk>, uses: &str) -> Result<Issued, String> {
    let desk = desk.ok_or("its hosts are all on this machine; nobody can join it")?;
    let uses = wire::uses(uses).ok_or("this is no number of uses")?;
    let failed = |error: std::io::Error| error.to_string();
    let address = desk.address().map_err(failed)?;
    let host = if address.ip().is_unspecified() { own_name() } else { ip(address.ip()) };
    Ok(Issued {
        token: desk.issue(uses).map_err(failed)?.to_string(),
        join: format!("{host}:{}", address.port()),
    })
}

fn ip(ip: std::net::IpAddr) -> String {
    if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() }
}

impl Sessions {
    /// Asks the session `name` for a token that can be used `uses` times.
    ///
    /// # Errors
    /// When it does not run, is not this user's, does not answer, or takes in nobody.
    pub fn token(&self, name: &str, uses: u32) -> Result<Issued, SessionError> {
        let path = self.socket(name)?.with_extension("token");
        self.check_directory()?;
        let stream = UnixStream::connect(&path).map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                self.absent(name, Some("sheaf token"))
            }
            _ => SessionError::file(&path, error),
        })?;
        let user = listening_user(&stream, &path)?;
        if user != rustix::process::getuid() {
            let text = format!("session {name} belongs to user {}", user.as_raw());
            return Err(SessionError::Foreign(text));
        }
        let line = talk(stream, uses).map_err(SessionError::io(format!("session {name}")))?;
        let told = TokenAnswer::parse(&line).map_err(|source| SessionError::Protocol {
            what: format!("session {name} does not answer"),
            source,
        })?;
        match told {
            TokenAnswer::Issued(issued) => Ok(issued),
            TokenAnswer::Refused { error } => {
                Err(SessionError::Refused(format!("session {name}: {error}")))
            }
        }
    }
}

/// Asks, and reads the line that comes back.
fn talk(mut stream: UnixStream, uses: u32) -> std::io::Result<String> {
    stream.set_read_timeout(Some(TALK_TIMEOUT))?;
    stream.set_write_timeout(Some(TALK_TIMEOUT))?;
    stream.write_all(format!("{uses}\n").as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream.take(ANSWER_BYTES_MAX)).read_line(&mut line)?;
    Ok(line)
}
