//! Where a node listens for its children and for orphans, and who gets in.
//!
//! A stranger costs a node one socket and one small task, for at most [`GREETING_TIMEOUT`]; there
//! are never more than [`GUESTS_MAX`] of them, and none of them reaches the node itself.
use super::audit::{Audit, Refusal};
use super::hello::{self, Hello, Welcome};
use super::tls::Keys;
use super::wire::{Channel, GreetingError, Wire, peer_user, set_tcp_options};
use super::{Address, Secret, fill_random};
use crate::driver::register;
use crate::proto::control::PROTOCOL_VERSION;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;

/// How long a connection may take to say who it is.
pub const GREETING_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections that have not said who they are, at one time.
pub const GUESTS_MAX: usize = 256;
/// With so many there, who has been silent this long goes when another one comes. A child needs
/// a few milliseconds.
const SILENT_MAX: Duration = Duration::from_secs(1);
/// Connections the kernel keeps for the node to take.
const BACKLOG: i32 = 1024;
/// After an error that concerns no single connection (no more descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Whose door it is.
pub(crate) trait Host: Send + Sync + 'static {
    /// Whether whoever says this may come in, and why not.
    fn expects(&self, hello: &Hello) -> Result<(), Refusal>;
    /// It has been let in, and knows.
    fn admit(&self, hello: &Hello, channel: Channel) -> io::Result<()>;
}

/// A listening socket that nobody watches yet.
pub(crate) struct Door {
    socket: OwnedFd,
    /// How others reach it.
    pub address: Address,
}

/// The task at a door; the door closes when this is dropped.
pub(crate) struct Doorkeeper(JoinHandle<()>);

impl Drop for Doorkeeper {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Door {
    /// Listens for processes of this machine and user.
    pub fn open_abstract() -> io::Result<Self> {
        let mut random = [0; 16];
        fill_random(&mut random)?;
        let hex: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = format!("sheaf-{hex}");
        let socket = listener(AddressFamily::UNIX)?;
        rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(Self { socket, address: Address::Abstract(name) })
    }

    /// Listens at a port of its own of `at`.
    pub fn open_tcp(at: IpAddr) -> io::Result<Self> {
        let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = listener(family)?;
        rustix::net::bind(&socket, &SocketAddr::new(at, 0))?;
        rustix::net::listen(&socket, BACKLOG)?;
        let bound = SocketAddr::try_from(rustix::net::getsockname(&socket)?)?;
        Ok(Self { socket, address: Address::Tcp(vec![bound]) })
    }

    /// Lets in whom `host` expects, until the doorkeeper is dropped.
    pub fn keep(
        self,
        rank: u32,
        secret: Secret,
        keys: Option<Keys>,
        audit: Arc<Audit>,
        host: Arc<dyn Host>,
    ) -> io::Result<Doorkeeper> {
        let is_tcp = matches!(self.address, Address::Tcp(_));
        let keys = keys.filter(|_| is_tcp);
        let socket = register(self.socket, Interest::READABLE)?;
        let porch = Porch { rank, secret, keys, audit, host, is_tcp };
        Ok(Doorkeeper(tokio::spawn(watch(socket, Arc::new(porch)))))
    }
}

fn listener(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(family, SocketType::STREAM, flags, None)?)
}

/// What is known where connections are looked at.
struct Porch {
    rank: u32,
    secret: Secret,
    keys: Option<Keys>,
    audit: Arc<Audit>,
    host: Arc<dyn Host>,
    is_tcp: bool,
}

/// Connections that have not said who they are, oldest first.
#[derive(Default)]
struct Guests(VecDeque<(Instant, String, AbortHandle)>);

impl Guests {
    /// Makes room for another one; when there is none yet, says when there will be.
    fn make_room(&mut self, audit: &Audit) -> Result<(), Instant> {
        self.0.retain(|(_, _, task)| !task.is_finished());
        if self.0.len() < GUESTS_MAX {
            return Ok(());
        }
        let Some((since, ..)) = self.0.front() else { return Ok(()) };
        if since.elapsed() < SILENT_MAX {
            return Err(*since + SILENT_MAX);
        }
        if let Some((_, peer, task)) = self.0.pop_front() {
            task.abort();
            audit.refuse(&peer, Refusal::Crowded);
        }
        Ok(())
    }
}

impl Drop for Guests {
    fn drop(&mut self) {
        self.0.iter().for_each(|(_, _, task)| task.abort());
    }
}

async fn watch(socket: AsyncFd<OwnedFd>, porch: Arc<Porch>) {
    let mut guests = Guests::default();
    loop {
        if let Err(until) = guests.make_room(&porch.audit) {
            // Nearly always somebody has been let in by then.
            tokio::time::sleep_until(until.min(Instant::now() + ACCEPT_PAUSE)).await;
            continue;
        }
        let Ok(mut ready) = socket.readable().await else { return };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let accepted = ready.try_io(|fd| Ok(rustix::net::accept_with(fd.get_ref(), flags)?));
        match accepted {
            Ok(Ok(fd)) => {
                let peer = peer_name(&fd);
                let (porch, name) = (Arc::clone(&porch), peer.clone());
                let task = tokio::spawn(async move { porch.receive(fd, &name).await });
                guests.0.push_back((Instant::now(), peer, task.abort_handle()));
            }
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "connections cannot be taken");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            Err(_would_block) => {}
        }
    }
}

/// Whom to name in the log: a host, or a process of this one.
fn peer_name(fd: &OwnedFd) -> String {
    if let Ok(Some(peer)) = rustix::net::getpeername(fd)
        && let Ok(peer) = SocketAddr::try_from(peer)
    {
        return peer.ip().to_string();
    }
    match sockopt::socket_peercred(fd) {
        Ok(peer) => format!("uid {}", peer.uid.as_raw()),
        Err(_) => "unknown".to_owned(),
    }
}

impl Porch {
    /// Finds out who has connected, and lets it in or not.
    async fn receive(&self, fd: OwnedFd, peer: &str) {
        let greeted = tokio::time::timeout(GREETING_TIMEOUT, self.greet(fd)).await;
        let admitted = match greeted.unwrap_or(Err(Refusal::Late)) {
            Ok((hello, channel)) => {
                self.host.admit(&hello, channel).map_err(|error| (Refusal::Unexpected, Some(error)))
            }
            Err(why) => Err((why, None)),
        };
        match admitted {
            Ok(()) => self.audit.accept(),
            Err((why, error)) => {
                if let Some(error) = error {
                    tracing::debug!(peer, %error, "a connection could not be used");
                }
                self.audit.refuse(peer, why);
            }
        }
    }

    async fn greet(&self, fd: OwnedFd) -> Result<(Hello, Channel), Refusal> {
        if self.is_tcp {
            set_tcp_options(&fd).map_err(|_| Refusal::Left)?;
        } else {
            // Servers that are started through sudo are root's, who can do whatever this user can.
            let own = rustix::process::geteuid();
            peer_user(&fd).ok().filter(|peer| *peer == own || peer.is_root()).ok_or(Refusal::User)?;
        }
        let tls = match &self.keys {
            Some(keys) => Some(keys.accept().map_err(|_| Refusal::Handshake)?),
            None => None,
        };
        let mut wire = Wire::new(fd, tls).map_err(|_| Refusal::Left)?;
        wire.handshake().await.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => Refusal::Left,
            _ => Refusal::Handshake,
        })?;
        let frame = wire.read_greeting().await.map_err(|error| match error {
            GreetingError::Io(error) if error.kind() == io::ErrorKind::Other => Refusal::Handshake,
            GreetingError::Io(_) => Refusal::Left,
            GreetingError::Violation(_) => Refusal::Greeting,
        })?;
        let hello: Hello = hello::decode(&frame).map_err(|_| Refusal::Greeting)?;
        self.check(&hello, &wire)?;
        wire.write_all(&Welcome { rank: self.rank }.frame()).await.map_err(|_| Refusal::Left)?;
        Ok((hello, wire.into_channel()))
    }

    fn check(&self, hello: &Hello, wire: &Wire) -> Result<(), Refusal> {
        if hello.version != PROTOCOL_VERSION {
            return Err(Refusal::Version);
        }
        if !self.secret.is_token(&hello.token) || hello.session != self.secret.session {
            return Err(Refusal::Token);
        }
        if wire.tls().is_some_and(|tls| !tls.peer_is(hello.rank)) {
            return Err(Refusal::Rank);
        }
        self.host.expects(hello)
    }
}
