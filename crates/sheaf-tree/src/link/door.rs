//! Where a node listens for its children and for orphans, and who gets in.
//!
//! Everybody is let onto the porch at once, so that nobody of the session waits behind strangers.
//! Who has shown nothing yet costs a node one socket and one small task, for at most
//! [`GREETING_TIMEOUT`]; there are never more than [`SILENT_MAX`] of them, and whoever comes beyond
//! that takes the place of the one that has been silent longest, of those from where most are. A
//! member shows the session's token with its first bytes ([`hello::knock`]), which are checked
//! before anything is reckoned; from then on no stranger takes its place.
use super::audit::{Audit, Refusal};
use super::hello::{self, Hello, Welcome};
use super::tls::Keys;
use super::watch::register;
use super::wire::{Channel, GreetingError, Wire, peer_user, set_tcp_options};
use super::{DoorAddress, Ports, Secret, fill_random, unheard};
use crate::proto::control::PROTOCOL_VERSION;
use rustc_hash::FxHashMap;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use rustix::process::{Resource, getrlimit};
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;

/// How long a connection may take to say who it is.
pub const GREETING_TIMEOUT: Duration = Duration::from_secs(5);
/// How much longer on the machine itself, once it has shown the token: where thousands start there
/// and shake hands, each waits for the processor most of the time.
const KNOWN_TIMEOUT: Duration = Duration::from_secs(20);
/// Connections that have shown nothing, at one time; fewer where the process may have few
/// descriptors.
pub const SILENT_MAX: usize = 2048;
/// They take at most one in so many of the descriptors that the process may have.
const DESCRIPTORS_SHARE: u64 = 4;
/// With so many there, who has been silent this long goes when another one comes. A member needs a
/// few milliseconds; so short that the queue of the kernel is empty again before members call once
/// more.
const SILENT_FOR: Duration = Duration::from_millis(100);
/// When there is no room, one in so many goes at once.
const THINNED: usize = 16;
/// Connections that have shown the token and shake hands, at one time.
pub const KNOWN_MAX: usize = 4096;
/// Connections the kernel keeps for the node to take.
const BACKLOG: i32 = 4096;
/// Connections taken before those that were get their turn.
const ACCEPTED_PER_TURN: usize = 32;
/// After an error that concerns no single connection (no more descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Whose door it is.
pub(crate) trait DoorHost: Send + Sync + 'static {
    /// Whether whoever says this may come in, and why not.
    fn expects(&self, hello: &Hello) -> Result<(), Refusal>;
    /// It has been let in, and knows.
    fn admit(&self, hello: &Hello, channel: Channel) -> io::Result<()>;
}

/// A listening socket that nobody watches yet.
pub(crate) struct Door {
    socket: OwnedFd,
    /// How others reach it.
    pub address: DoorAddress,
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
        Ok(Self { socket, address: DoorAddress::Abstract(name) })
    }

    /// Listens at a port of its own of `at`, one of `ports` if these are said.
    pub fn open_tcp(at: IpAddr, ports: Option<Ports>) -> io::Result<Self> {
        let heard = |port| {
            let at = SocketAddr::new(at, port);
            listen_at(at).map_err(|errno| (errno, unheard(at, errno.into())))
        };
        let socket = match ports {
            None => heard(0).map_err(|(_, error)| error)?,
            Some(ports) => {
                first_free(ports.iter().map(heard)).unwrap_or(Err(ports.none_free(at)))?
            }
        };
        let bound = SocketAddr::try_from(rustix::net::getsockname(&socket)?)?;
        Ok(Self { socket, address: DoorAddress::Tcp(vec![bound]) })
    }

    /// Lets in whom `host` expects, until the doorkeeper is dropped.
    pub fn keep(
        self,
        rank: u32,
        secret: Secret,
        keys: Option<Keys>,
        audit: Arc<Audit>,
        host: Arc<dyn DoorHost>,
    ) -> io::Result<Doorkeeper> {
        let (is_tcp, is_near) = match &self.address {
            DoorAddress::Tcp(all) => (true, all.iter().all(|at| at.ip().is_loopback())),
            DoorAddress::Abstract(_) => (false, true),
        };
        let keys = keys.filter(|_| is_tcp);
        let socket = register(self.socket, Interest::READABLE)?;
        let known = Semaphore::new(KNOWN_MAX);
        let porch = Porch { rank, secret, keys, audit, host, is_tcp, is_near, known };
        Ok(Doorkeeper(crate::task::spawn(watch(socket, Arc::new(porch)))))
    }
}

/// A socket that listens at this address.
fn listen_at(at: SocketAddr) -> Result<OwnedFd, rustix::io::Errno> {
    let socket = listener(if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 })?;
    if at.port() != 0 {
        // Connections of an earlier session that have ended keep nobody from its port.
        sockopt::set_socket_reuseaddr(&socket, true)?;
    }
    rustix::net::bind(&socket, &at)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// The first attempt that does not fail because another has that port; `None` when all do.
fn first_free(
    attempts: impl Iterator<Item = Result<OwnedFd, (rustix::io::Errno, io::Error)>>,
) -> Option<io::Result<OwnedFd>> {
    let taken = |attempt: &Result<OwnedFd, (rustix::io::Errno, io::Error)>| {
        matches!(attempt, Err((rustix::io::Errno::ADDRINUSE, _)))
    };
    let mut attempts = attempts.filter(|attempt| !taken(attempt));
    attempts.next().map(|attempt| attempt.map_err(|(_, error)| error))
}

fn listener(family: AddressFamily) -> Result<OwnedFd, rustix::io::Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(family, SocketType::STREAM, flags, None)
}

/// What is known where connections are looked at.
struct Porch {
    rank: u32,
    secret: Secret,
    keys: Option<Keys>,
    audit: Arc<Audit>,
    host: Arc<dyn DoorHost>,
    is_tcp: bool,
    /// Only processes of this machine reach it.
    is_near: bool,
    /// Places for those that have shown the token.
    known: Semaphore,
}

/// A connection on the porch.
struct DoorGuest {
    since: Instant,
    /// Whom to name in the log; also what counts as one origin.
    peer: String,
    /// It has shown the token.
    known: Arc<AtomicBool>,
    task: AbortHandle,
}

/// Connections that have not been let in, oldest first.
struct Guests {
    silent: VecDeque<DoorGuest>,
    silent_max: usize,
    known: Vec<AbortHandle>,
}

impl Guests {
    fn new() -> Self {
        let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / DESCRIPTORS_SHARE;
        let silent_max = usize::try_from(allowed).unwrap_or(usize::MAX).clamp(THINNED, SILENT_MAX);
        Self { silent: VecDeque::new(), silent_max, known: Vec::new() }
    }

    fn add(&mut self, guest: DoorGuest) {
        self.silent.push_back(guest);
    }

    /// Forgets who is gone, and those that have shown the token: nobody takes their places.
    fn look(&mut self) {
        self.known.retain(|task| !task.is_finished());
        let known = &mut self.known;
        self.silent.retain(|guest| {
            let is_known = guest.known.load(Ordering::Relaxed);
            let is_here = !guest.task.is_finished();
            if is_known && is_here {
                known.push(guest.task.clone());
            }
            is_here && !is_known
        });
    }

    /// Makes room for another one; when there is none yet, says when there will be.
    fn make_room(&mut self, audit: &Audit) -> Result<(), Instant> {
        if self.silent.len() < self.silent_max {
            return Ok(());
        }
        self.look();
        if self.silent.len() < self.silent_max {
            return Ok(());
        }
        self.thin_out(SILENT_FOR, audit)
    }

    /// Sends away the oldest of those from where most have come, if they have been silent for
    /// `least`; otherwise says when they will have been.
    fn thin_out(&mut self, least: Duration, audit: &Audit) -> Result<(), Instant> {
        let mut origins: FxHashMap<&str, usize> = FxHashMap::default();
        self.silent.iter().for_each(|guest| *origins.entry(&guest.peer).or_default() += 1);
        let Some((origin, _)) = origins.into_iter().max_by_key(|(_, count)| *count) else {
            return Ok(());
        };
        let origin = origin.to_owned();
        let oldest = self.silent.iter().find(|guest| guest.peer == origin).map(|guest| guest.since);
        if let Some(since) = oldest.filter(|since| since.elapsed() < least) {
            return Err(since + least);
        }
        let mut places = (self.silent_max / THINNED).max(1);
        self.silent.retain(|guest| {
            let goes = places > 0 && guest.peer == origin && guest.since.elapsed() >= least;
            if goes {
                places -= 1;
                guest.task.abort();
                audit.refuse(&guest.peer, Refusal::Crowded);
            }
            !goes
        });
        Ok(())
    }
}

impl Drop for Guests {
    fn drop(&mut self) {
        self.silent.iter().map(|guest| &guest.task).chain(&self.known).for_each(AbortHandle::abort);
    }
}

async fn watch(socket: AsyncFd<OwnedFd>, porch: Arc<Porch>) {
    let mut guests = Guests::new();
    let (mut accepted_in_turn, mut failures) = (0, 0u32);
    loop {
        if let Err(until) = guests.make_room(&porch.audit) {
            // Nearly always somebody has been let in by then.
            tokio::time::sleep_until(until.min(Instant::now() + ACCEPT_PAUSE)).await;
            continue;
        }
        let mut ready = match socket.readable().await {
            Ok(ready) => ready,
            Err(error) => return tracing::error!(%error, "connections are not taken any more"),
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let accepted = ready.try_io(|fd| Ok(rustix::net::accept_with(fd.get_ref(), flags)?));
        match accepted {
            Ok(Ok(fd)) => {
                failures = 0;
                guests.add(Porch::take(&porch, fd));
            }
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Ok(Err(error)) => {
                failures += 1;
                if failures.is_power_of_two() {
                    let ms = ACCEPT_PAUSE.as_millis();
                    tracing::warn!(%error, "no connection can be taken, try {failures}; again in {ms} ms");
                }
                // Whatever there is too little of, strangers have no right to it.
                guests.look();
                let _too_young = guests.thin_out(SILENT_FOR, &porch.audit);
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            Err(_would_block) => accepted_in_turn = 0,
        }
        accepted_in_turn += 1;
        if accepted_in_turn >= ACCEPTED_PER_TURN {
            accepted_in_turn = 0;
            tokio::task::yield_now().await;
        }
    }
}

/// What failed on this side is said in the log, as the refusal does not tell.
fn told_as<E: std::fmt::Display>(why: Refusal) -> impl FnOnce(E) -> Refusal {
    move |error| {
        tracing::debug!(%error, "a connection could not be begun");
        why
    }
}

/// Whom to name in the log: a host, or a process of this one.
fn peer_name(fd: &OwnedFd) -> String {
    if let Ok(Some(peer)) = rustix::net::getpeername(fd)
        && let Ok(peer) = SocketAddr::try_from(peer)
    {
        return peer.ip().to_canonical().to_string();
    }
    match peer_user(fd) {
        Ok(user) => format!("uid {}", user.as_raw()),
        Err(_) => "unknown".to_owned(),
    }
}

impl Porch {
    /// Lets a connection onto the porch.
    fn take(porch: &Arc<Self>, fd: OwnedFd) -> DoorGuest {
        let (peer, known) = (peer_name(&fd), Arc::new(AtomicBool::new(false)));
        let (porch, name, shown) = (Arc::clone(porch), peer.clone(), Arc::clone(&known));
        let task = crate::task::spawn(async move { porch.receive(fd, &name, &shown).await });
        DoorGuest { since: Instant::now(), peer, known, task: task.abort_handle() }
    }

    /// Finds out who has connected, and lets it in or not.
    async fn receive(&self, fd: OwnedFd, peer: &str, known: &AtomicBool) {
        let mut greeting = std::pin::pin!(self.greet(fd, known));
        let mut greeted = tokio::time::timeout(GREETING_TIMEOUT, &mut greeting).await;
        if greeted.is_err() && self.is_near && known.load(Ordering::Relaxed) {
            greeted = tokio::time::timeout(KNOWN_TIMEOUT, greeting).await;
        }
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

    async fn greet(&self, fd: OwnedFd, known: &AtomicBool) -> Result<(Hello, Channel), Refusal> {
        if self.is_tcp {
            set_tcp_options(&fd).map_err(told_as(Refusal::Left))?;
        } else {
            // Servers that are started through sudo are root's, who can do whatever this user can.
            let own = rustix::process::geteuid();
            peer_user(&fd)
                .ok()
                .filter(|peer| *peer == own || peer.is_root())
                .ok_or(Refusal::User)?;
        }
        let mut wire = Wire::new(fd, None).map_err(told_as(Refusal::Left))?;
        let mut _place = None;
        if let Some(keys) = &self.keys {
            self.expect_knock(&mut wire).await?;
            known.store(true, Ordering::Relaxed);
            _place = Some(self.known.try_acquire().map_err(|_| Refusal::Crowded)?);
            let tls = keys.accept().map_err(told_as(Refusal::Handshake))?;
            wire.secure(tls).map_err(told_as(Refusal::Handshake))?;
            wire.handshake().await.map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => Refusal::Left,
                _ => Refusal::Handshake,
            })?;
        }
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

    /// Waits for the first bytes of a member.
    async fn expect_knock(&self, wire: &mut Wire) -> Result<(), Refusal> {
        let knock = wire.read_exact(hello::KNOCK_BYTES).await.map_err(|_| Refusal::Left)?;
        let knock = knock.first_chunk().ok_or(Refusal::Greeting)?;
        hello::check_knock(knock, &self.secret)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn silent(peer: &str) -> DoorGuest {
        let task = crate::task::spawn(std::future::pending::<()>()).abort_handle();
        DoorGuest { since: Instant::now(), peer: peer.to_owned(), known: Arc::default(), task }
    }

    fn count(guests: &Guests, peer: &str) -> usize {
        guests.silent.iter().filter(|guest| guest.peer == peer).count()
    }

    #[tokio::test]
    async fn pending_crowd_is_thinned_and_authenticated_peers_stay() {
        let (audit, mut guests) = (Audit::default(), Guests::new());
        guests.silent_max = 64;
        let (members, few, many) = (8, 10, 46);
        for _ in 0..members {
            let member = silent("10.0.0.1");
            member.known.store(true, Ordering::Relaxed);
            guests.add(member);
        }
        (0..few).for_each(|_| guests.add(silent("10.0.0.2")));
        (0..members + many).for_each(|_| {
            assert_eq!(guests.make_room(&audit), Ok(()));
            guests.add(silent("10.0.0.1"));
        });
        assert_eq!(guests.known.len(), members, "they are counted no more");
        assert!(guests.make_room(&audit).is_err(), "who has just come may be a member");
        guests.silent.iter_mut().for_each(|guest| guest.since -= SILENT_FOR);
        assert_eq!(guests.make_room(&audit), Ok(()));
        assert_eq!(count(&guests, "10.0.0.2"), few, "they come from where few are");
        assert_eq!(count(&guests, "10.0.0.1"), members + many - 64 / THINNED);
        assert!(guests.known.iter().all(|task| !task.is_finished()));
        assert_eq!(audit.counts().refused, [(Refusal::Crowded, 64 / THINNED as u64)]);
    }
}
