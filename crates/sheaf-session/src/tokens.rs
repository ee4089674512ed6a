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
use crate::sessions::{Sessions, WHO};
use crate::wire::{self, Issued, TokenAnswer};
use rustix::net::sockopt::socket_peercred;
use sheaf_tree::launch::Desk;
use std::io::{BufRead, BufReader, Read, Write};
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
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let own = rustix::process::getuid().as_raw();
                if stream.peer_cred().is_ok_and(|peer| peer.uid() == own) {
                    tokio::spawn(tokio::time::timeout(TALK_TIMEOUT, answer(stream, desk.clone())));
                }
            }
            Err(error) => {
                tracing::warn!(%error, "a request for a token could not be taken");
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
        let Ok(stream) = UnixStream::connect(&path) else {
            return Err(self.absent(name, Some("sheaf token")));
        };
        let peer = socket_peercred(&stream).map_err(|errno| SessionError::io(WHO)(errno.into()))?;
        if peer.uid != rustix::process::getuid() {
            let text = format!("session {name} belongs to user {}", peer.uid.as_raw());
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
