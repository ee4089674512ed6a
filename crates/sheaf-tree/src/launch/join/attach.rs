//! Joining a session from outside: a host that nobody starts asks to be taken in.
//!
//! It knows where the root's enrolment listens, and a [`Token`]: the fingerprint of the session's
//! certificate authority, and a secret. Over TLS, whose other end has to prove that it is of that
//! authority, it shows the secret and says its name; it is given an [`Invitation`] for each node
//! that it is to run, with which it goes on as any other. Whoever has no token learns nothing, and
//! no token can be used more often than was said when it was made.
use crate::launch::Invitation;
use crate::link::{Audit, Authority, Refusal};
use crate::proto::control::PROTOCOL_VERSION;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sheaf_core::lock;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

mod tls;

/// How long a connection for enrolment may last, either end.
const ENROL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long reaching one address may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a host tries to be heard among many, and about how long it waits before each time.
const CROWD_TIMEOUT: Duration = Duration::from_secs(20);
const CROWD_PAUSE: Duration = Duration::from_millis(200);
/// Connections for enrolment at one time; more are closed.
const CONNECTIONS_MAX: usize = 256;
/// How long enrolment may go on after its session has ended.
const END_POLL: Duration = Duration::from_millis(250);
/// The longest request and the longest answer.
const REQUEST_BYTES_MAX: usize = 1 << 10;
const ANSWER_BYTES_MAX: usize = 256 << 10;
/// The longest host name of a request.
const HOST_BYTES_MAX: usize = 255;

const SECRET_BYTES: usize = 32;
type TokenSecret = [u8; SECRET_BYTES];

/// What a host needs to join: whom to trust, and what shows that it may.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// [`crate::link::credentials::fingerprint`] of the session's authority.
    authority: String,
    secret: TokenSecret,
}

/// How the text of a token begins.
const TOKEN_PREFIX: &str = "sheaf1.";

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{TOKEN_PREFIX}{}.{}",
            self.authority,
            blake3::Hash::from_bytes(self.secret).to_hex()
        )
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("authority", &self.authority).finish_non_exhaustive()
    }
}

impl FromStr for Token {
    type Err = EnrolError;

    fn from_str(text: &str) -> Result<Self, EnrolError> {
        let (authority, secret) = text
            .trim()
            .strip_prefix(TOKEN_PREFIX)
            .and_then(|rest| rest.split_once('.'))
            .ok_or(EnrolError::Token)?;
        // Both are 32 bytes in hexadecimal, as a hash is written.
        let bytes = |text: &str| blake3::Hash::from_hex(text).map_err(|_| EnrolError::Token);
        Ok(Self {
            authority: bytes(authority)?.to_hex().to_string(),
            secret: *bytes(secret)?.as_bytes(),
        })
    }
}

/// A host could not join.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnrolError {
    /// The text is no token.
    #[error("this is no token of a Sheaf session")]
    Token,
    /// The session was not reached, or the connection failed.
    #[error("no enrolment at {0}")]
    Io(String, #[source] io::Error),
    /// The host is there, and nothing listens.
    #[error("no session listens at {0}: Connection refused")]
    Nobody(String),
    /// What listens there is not of the session that made the token.
    #[error("{0} is not the session of this token")]
    Stranger(String),
    /// The session says no.
    #[error("the session refuses this host: {0}")]
    Refused(String),
    /// The session says no, and may say yes later.
    #[error("the session refuses this host: {why}")]
    NotYet {
        /// Why.
        why: String,
        /// For how long it is worth asking again.
        patience: Duration,
    },
    /// The session is ending.
    #[error("the session at {0} is over")]
    Over(String),
}

impl EnrolError {
    /// Whether asking again, unchanged, can help.
    #[must_use]
    pub fn retry_can_help(&self) -> bool {
        match self {
            Self::Nobody(_) | Self::NotYet { .. } => true,
            Self::Io(_, cause) => cause.kind() != io::ErrorKind::InvalidInput,
            Self::Token | Self::Stranger(_) | Self::Refused(_) | Self::Over(_) => false,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct EnrolRequest {
    version: u32,
    secret: TokenSecret,
    host: String,
}

#[derive(Serialize, Deserialize)]
enum EnrolAnswer {
    /// The bytes of an [`Invitation`] for each node of the host.
    Invited(Vec<Vec<u8>>),
    /// Why not, for people.
    Refused(String),
    /// Why not now, and for how long it is worth asking again.
    NotYet(String, Duration),
    /// The session is ending.
    Over,
}

/// Why a host is not let in.
#[derive(Debug, PartialEq, Eq)]
pub enum No {
    /// It never will be: as what it is counted, and why, for people.
    Never(Refusal, String),
    /// It is there already, as far as is known; it may be let in within this time.
    NotYet(String, Duration),
    /// The session is ending.
    Over,
}

impl No {
    fn never(refusal: Refusal, why: impl Into<String>) -> Self {
        Self::Never(refusal, why.into())
    }

    /// As what it is counted; the end of a session is nobody's fault.
    fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Never(refusal, _) => Some(*refusal),
            Self::NotYet(..) => Some(Refusal::There),
            Self::Over => None,
        }
    }

    fn answer(self) -> EnrolAnswer {
        match self {
            Self::Never(_, why) => EnrolAnswer::Refused(why),
            Self::NotYet(why, patience) => EnrolAnswer::NotYet(why, patience),
            Self::Over => EnrolAnswer::Over,
        }
    }
}

/// The tokens of a session, and how often each may still be used.
pub struct Tokens {
    authority: String,
    left: Mutex<FxHashMap<blake3::Hash, u32>>,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("authority", &self.authority).finish_non_exhaustive()
    }
}

impl Tokens {
    /// None yet, for a session with this authority.
    #[must_use]
    pub fn new(authority: &Authority) -> Self {
        Self { authority: authority.fingerprint(), left: Mutex::default() }
    }

    /// Makes one that can be used `uses` times.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub fn issue(&self, uses: u32) -> io::Result<Token> {
        let mut secret = [0; SECRET_BYTES];
        crate::link::fill_random(&mut secret)?;
        lock(&self.left).insert(blake3::hash(&secret), uses);
        Ok(Token { authority: self.authority.clone(), secret })
    }

    /// Uses one, if it can be used. Only hashes are compared, so that the time this takes says
    /// nothing of the secrets.
    fn take(&self, secret: &TokenSecret) -> TakenToken {
        match lock(&self.left).get_mut(&blake3::hash(secret)) {
            None => TakenToken::Unknown,
            Some(0) => TakenToken::UsedUp,
            Some(left) => {
                *left -= 1;
                TakenToken::Yes
            }
        }
    }

    /// The use came to nothing.
    fn give_back(&self, secret: &TokenSecret) {
        if let Some(left) = lock(&self.left).get_mut(&blake3::hash(secret)) {
            *left += 1;
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum TakenToken {
    Yes,
    UsedUp,
    Unknown,
}

/// Decides which nodes a host runs. It is given the host's name and the address by which the
/// host has reached this one.
pub type Admit = dyn Fn(&str, IpAddr) -> Result<Vec<Invitation>, No> + Send + Sync;

/// Takes hosts in that have a token. Ends when it is dropped.
pub struct Enrolment {
    tokens: Arc<Tokens>,
    server: Arc<rustls::ServerConfig>,
    admit: Box<Admit>,
    connections: AtomicUsize,
    audit: Arc<Audit>,
}

impl fmt::Debug for Enrolment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Enrolment").finish_non_exhaustive()
    }
}

impl Enrolment {
    /// Takes in whom `admit` accepts, at `listener`; whom it refuses is counted in `audit`.
    ///
    /// # Errors
    /// When no key can be made for it, or no thread started.
    pub fn start(
        listener: TcpListener,
        authority: &Authority,
        tokens: Arc<Tokens>,
        audit: Arc<Audit>,
        admit: Box<Admit>,
    ) -> io::Result<Arc<Self>> {
        let server = tls::server(&authority.issue(0)?)?;
        let connections = AtomicUsize::new(0);
        let enrolment = Arc::new(Self { tokens, server, admit, connections, audit });
        let weak = Arc::downgrade(&enrolment);
        listener.set_nonblocking(true)?;
        std::thread::Builder::new()
            .name("enrolment".to_owned())
            .spawn(move || accept(&listener, &weak))?;
        Ok(enrolment)
    }

    /// Serves one connection, of `peer`. Gives why it was dropped.
    fn serve(&self, stream: TcpStream, peer: IpAddr) -> io::Result<()> {
        // As IPv4, if it came so to a socket of both families.
        let here = stream.local_addr()?.ip().to_canonical();
        let mut stream = tls::accept(&self.server, Timed::new(stream, ENROL_TIMEOUT)?)?;
        let request: EnrolRequest = read(&mut stream, REQUEST_BYTES_MAX)?;
        let answer = match self.decide(&request, here) {
            Ok(invitations) => {
                EnrolAnswer::Invited(invitations.iter().map(Invitation::to_bytes).collect())
            }
            Err(why) => {
                if let Some(refusal) = why.refusal() {
                    self.audit.refuse(&format!("{} ({peer})", request.host), refusal);
                }
                why.answer()
            }
        };
        write(&mut stream, &answer)?;
        stream.conn.send_close_notify();
        stream.flush()?;
        let _ = stream.sock.stream.shutdown(Shutdown::Write);
        Ok(())
    }

    fn decide(&self, request: &EnrolRequest, here: IpAddr) -> Result<Vec<Invitation>, No> {
        if request.version != PROTOCOL_VERSION {
            let theirs = request.version;
            let why = format!("it speaks protocol {theirs}, the session {PROTOCOL_VERSION}");
            return Err(No::Never(Refusal::Version, why));
        }
        if request.host.is_empty() || request.host.len() > HOST_BYTES_MAX {
            return Err(No::never(Refusal::Greeting, "it does not say its name"));
        }
        match self.tokens.take(&request.secret) {
            TakenToken::Unknown => {
                return Err(No::never(Refusal::ForeignToken, "its token is not of this session"));
            }
            TakenToken::UsedUp => {
                return Err(No::never(Refusal::UsedToken, "its token has been used already"));
            }
            TakenToken::Yes => {}
        }
        let admitted = (self.admit)(&request.host, here);
        if admitted.is_err() {
            self.tokens.give_back(&request.secret);
        }
        admitted
    }
}

fn accept(listener: &TcpListener, enrolment: &Weak<Enrolment>) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let pause = Timespec::try_from(END_POLL).unwrap_or_default();
    loop {
        let ready = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&pause));
        let Some(enrolment) = enrolment.upgrade() else { return };
        match ready {
            Ok(1..) => {}
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Err(errno) => {
                tracing::warn!(error = %io::Error::from(errno), "enrolment cannot wait for hosts");
                std::thread::sleep(END_POLL);
                continue;
            }
        }
        let (stream, peer) = match listener.accept() {
            Ok((stream, peer)) => (stream, peer.ip().to_canonical()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => {
                tracing::warn!(%error, "enrolment cannot accept");
                std::thread::sleep(END_POLL);
                continue;
            }
        };
        if enrolment.connections.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
            enrolment.connections.fetch_sub(1, Ordering::Relaxed);
            enrolment.audit.refuse(&peer.to_string(), Refusal::Crowded);
            continue;
        }
        let its = Arc::clone(&enrolment);
        let serve = move || {
            let served = stream.set_nonblocking(false);
            if let Err(error) = served.and_then(|()| its.serve(stream, peer)) {
                its.audit.refuse(&peer.to_string(), dropped(&error));
            }
            its.connections.fetch_sub(1, Ordering::Relaxed);
        };
        if let Err(error) = std::thread::Builder::new().name("enrol".to_owned()).spawn(serve) {
            tracing::warn!(%error, "enrolment cannot start a thread");
            enrolment.connections.fetch_sub(1, Ordering::Relaxed);
            enrolment.audit.refuse(&peer.to_string(), Refusal::NoPlace);
        }
    }
}

/// As what a connection is counted that came to nothing.
fn dropped(error: &io::Error) -> Refusal {
    let is_tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match (is_tls, error.kind()) {
        // Whoever has another session's token goes away like this, once it knows where it is.
        (Some(rustls::Error::AlertReceived(_)), _) => Refusal::NoToken,
        (Some(_), _) => Refusal::Handshake,
        (None, io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) => Refusal::Late,
        (None, io::ErrorKind::InvalidData) => Refusal::Greeting,
        (None, _) => Refusal::NoToken,
    }
}

/// Asks the session at `address` (`HOST:PORT`) to be taken in as `host`: an invitation for each
/// node that the host is to run, at least one. A connection that ends without an answer, because
/// too many come at once, is made again for a while.
///
/// # Errors
/// See [`EnrolError`].
pub fn enrol(address: &str, token: &Token, host: &str) -> Result<Vec<Invitation>, EnrolError> {
    let deadline = Instant::now() + CROWD_TIMEOUT;
    loop {
        match enrol_once(address, token, host) {
            Err(EnrolError::Io(_, error)) if is_crowd(&error) && Instant::now() < deadline => {
                tracing::debug!(%error, "too many ask to join at once; asked again");
                std::thread::sleep(CROWD_PAUSE.mul_f64(0.5 + fastrand::f64()));
            }
            done => return done,
        }
    }
}

/// Whether the other end listens, and has closed the connection.
fn is_crowd(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), ConnectionReset | BrokenPipe | UnexpectedEof)
}

fn enrol_once(address: &str, token: &Token, host: &str) -> Result<Vec<Invitation>, EnrolError> {
    let failed = |error| EnrolError::Io(address.to_owned(), error);
    let stream = connect(address).map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => EnrolError::Nobody(address.to_owned()),
        _ => failed(error),
    })?;
    let stream = Timed::new(stream, ENROL_TIMEOUT).map_err(failed)?;
    let mut stream =
        tls::connect(&token.authority, stream).map_err(|error| match error.get_ref() {
            Some(inner) if inner.is::<rustls::Error>() => EnrolError::Stranger(address.to_owned()),
            _ => failed(error),
        })?;
    let request =
        EnrolRequest { version: PROTOCOL_VERSION, secret: token.secret, host: host.to_owned() };
    write(&mut stream, &request).map_err(failed)?;
    match read(&mut stream, ANSWER_BYTES_MAX).map_err(failed)? {
        EnrolAnswer::Invited(all) if all.is_empty() => {
            Err(failed(io::ErrorKind::InvalidData.into()))
        }
        EnrolAnswer::Invited(all) => {
            all.iter().map(|bytes| Invitation::from_bytes(bytes).map_err(failed)).collect()
        }
        EnrolAnswer::Refused(why) => Err(EnrolError::Refused(why)),
        EnrolAnswer::NotYet(why, patience) => Err(EnrolError::NotYet { why, patience }),
        EnrolAnswer::Over => Err(EnrolError::Over(address.to_owned())),
    }
}

fn connect(address: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A message: its length in four bytes, little-endian, and its body.
fn write<T: Serialize>(to: &mut impl Write, message: &T) -> io::Result<()> {
    let body = postcard::to_stdvec(message).map_err(io::Error::other)?;
    let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(&body);
    to.write_all(&bytes)?;
    to.flush()
}

fn read<T: DeserializeOwned>(from: &mut impl Read, bytes_max: usize) -> io::Result<T> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "this is no enrolment");
    let mut head = [0; 4];
    from.read_exact(&mut head)?;
    let len = u32::from_le_bytes(head) as usize;
    if len > bytes_max {
        return Err(wrong());
    }
    let mut body = vec![0; len];
    from.read_exact(&mut body)?;
    postcard::from_bytes(&body).map_err(|_| wrong())
}

/// For fuzzing: a token, and what the two ends of an enrolment say.
#[cfg(feature = "fuzzing")]
pub(crate) fn decode_any(data: &[u8]) {
    if let Some(token) = std::str::from_utf8(data).ok().and_then(|text| text.parse::<Token>().ok())
    {
        assert_eq!(token.to_string().parse().ok(), Some(token));
    }
    if let Ok(request) = read::<EnrolRequest>(&mut &data[..], REQUEST_BYTES_MAX) {
        assert!(request.host.len() <= REQUEST_BYTES_MAX);
    }
    if let Ok(EnrolAnswer::Invited(all)) = read::<EnrolAnswer>(&mut &data[..], ANSWER_BYTES_MAX) {
        all.iter().for_each(|bytes| drop(Invitation::from_bytes(bytes)));
    }
}

/// A socket that is given up at a deadline, however little of it is waited for each time.
struct Timed {
    stream: TcpStream,
    deadline: Instant,
}

impl Timed {
    fn new(stream: TcpStream, limit: Duration) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream, deadline: Instant::now() + limit })
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Timed {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(to)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests;
