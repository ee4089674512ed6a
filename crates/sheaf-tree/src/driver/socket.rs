//! A link over a socket: one task reads it and runs the node with what has come; whoever runs
//! the node writes its output straight away, and only what the kernel refuses waits for the task.
use super::alibi::QuietPeer;
use super::look::Lookout;
use super::transport::{Socket, is_unix, process_behind, via};
use super::{Core, Route, Shared};
use crate::link::tls::Tls;
use crate::link::watch::register;
use crate::link::wire::{Channel, Out};
use crate::proto::frame::Header;
use crate::proto::report::Via;
use crate::proto::{LinkId, Time, Violation};
use bytes::{Bytes, BytesMut};
use rustix::io::Errno as Os;
use rustix::net::sockopt;
use rustix::process::Pid;
use sheaf_core::Errno;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Room for reading; small frames of many waves arrive in one read.
const READ_BYTES: usize = 512 << 10;
/// With less room than this, more is made first.
const READ_BYTES_MIN: usize = 128 << 10;
/// Reads from one link before others get their turn.
const READS_PER_TURN: usize = 8;
/// Room of a unix socket for what its reader has not read; the kernel doubles it, for its own use.
/// It is all that Linux grants by default (`net.core.wmem_max`); TCP finds out itself what it
/// needs.
const NEAR_BUFFER_BYTES: usize = 208 << 10;
/// A socket is no longer watched for room to write when it had some this often and nobody wanted
/// it.
const UNWANTED_MAX: u32 = 16;
/// Pieces per vectored write.
const SLICES_MAX: usize = 64;

/// Finds out how the process at the other end ended.
pub(crate) type Autopsy =
    Box<dyn FnOnce() -> std::pin::Pin<Box<dyn Future<Output = Death> + Send>> + Send>;

/// How a process has ended.
pub(crate) struct Death {
    /// A phrase for the notice.
    pub how: String,
    pub fault: OwnFault,
}

/// Whether a process has ended by a fault of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnFault {
    No,
    /// It has, or somebody else has ended it.
    Perhaps,
    Yes,
}

/// What is known of the process at the other end of a link.
pub(crate) struct SocketPeer {
    /// How it ended, once its socket has closed.
    pub autopsy: Autopsy,
    /// Nothing lives on below it when it has ended.
    pub is_leaf: bool,
    /// It runs filters.
    pub combines: bool,
    pub pid: Option<Pid>,
}

/// A socket's place in the core, for its task.
pub(super) struct Port {
    pub socket: Arc<Socket>,
    pub node: usize,
    pub link: LinkId,
    /// The kernel took less than was to be written.
    pub blocked: bool,
    /// Says when it takes more; there while it has to be waited for now and then. (Watching for
    /// that all the time would wake this process once more for every message that its peer reads.)
    writable: Option<AsyncFd<OwnedFd>>,
    /// How often in a row it has said so to nobody.
    unwanted: u32,
    waker: Option<Waker>,
    /// The process at the other end, where it is one of this machine.
    pub(super) pid: Option<Pid>,
    /// Since when it says nothing, if somebody has vouched for it.
    pub(super) silence: Option<QuietPeer>,
    /// The beginning of a frame whose rest has not come.
    partial: BytesMut,
    /// What protects the bytes on the way.
    pub(super) tls: Option<Box<Tls>>,
    /// Of a link on which it may pay to look for what comes before the process sleeps.
    look: Option<Lookout>,
}

impl Shared {
    /// Lets `link` of `node` run over `channel` until either end closes it. `peer` is there when
    /// the process at the other end can be watched.
    pub fn attach(
        self: &Arc<Self>,
        node: usize,
        link: LinkId,
        channel: impl Into<Channel>,
        peer: Option<SocketPeer>,
    ) -> io::Result<()> {
        let channel = channel.into();
        let via = via(&channel)?;
        tracing::trace!(node, ?link, via = via.word(), "a link begins");
        let Channel { fd, out, early, tls, .. } = channel;
        rustix::io::ioctl_fionbio(&fd, true)?;
        out.as_ref().map_or(Ok(()), |out| rustix::io::ioctl_fionbio(out, true))?;
        if is_unix(&fd) {
            sockopt::set_socket_send_buffer_size(&fd, NEAR_BUFFER_BYTES)?;
        }
        let is_near = via == Via::Unix;
        let near_pid = || if is_near { process_behind(&fd) } else { None };
        let pid = peer.as_ref().and_then(|peer| peer.pid).or_else(near_pid);
        let socket = Arc::new(Socket { fd: register(fd, Interest::READABLE)?, out });
        let mut port = Port {
            socket: Arc::clone(&socket),
            node,
            link,
            blocked: false,
            writable: None,
            unwanted: 0,
            waker: None,
            pid,
            silence: None,
            partial: early,
            tls,
            look: None,
        };
        let (at, sound) = self.run(|core, now| {
            let free = core.sockets.iter().position(Option::is_none);
            let at = free.unwrap_or(core.sockets.len());
            if free.is_none() {
                core.sockets.push(None);
            }
            port.look = core.looks_out.then(Lookout::default);
            core.sockets[at] = Some(port);
            core.set_route(node, link, Route::Socket(at));
            match is_near {
                true => core.nodes[node].attach_near(now, link),
                false => core.nodes[node].attach(now, link),
            }
            core.nodes[node].carried_via(link, via);
            // Frames may have come right behind the greeting.
            let sound = core.received(now, node, link, at);
            core.flush(now, node, link);
            core.work.push_back(node);
            (at, sound)
        });
        let early_end = sound.err().map(|violation| (Errno::PROTO, violation.to_string()));
        crate::task::spawn(serve_link(Arc::downgrade(self), socket, at, peer, early_end));
        Ok(())
    }
}

/// How long the process of a link may take to end after its socket.
const AUTOPSY_TIMEOUT: Duration = Duration::from_millis(500);

/// What looking for an answer came to.
enum Looked {
    /// It does not pay, or no more.
    No,
    Nothing,
    /// It is there; whether to look for the next one too.
    Found(bool),
    End(SocketEnd),
}

impl Shared {
    /// Lets others run, and looks whether the answer has come. Where it has not, or is not looked
    /// for, the link is polled.
    fn look(&self, at: usize, socket: &Arc<Socket>) -> Looked {
        loop {
            std::thread::yield_now();
            match self.run(|core, now| core.look(now, at, socket)) {
                Looked::Nothing => {}
                looked => return looked,
            }
        }
    }

    /// Reads a link: ready once it is over. `looks`: it has woken itself to look for an answer.
    fn poll_link(
        &self,
        cx: &mut Context<'_>,
        at: usize,
        socket: &Arc<Socket>,
        looks: &mut bool,
    ) -> Poll<SocketEnd> {
        let looked = if *looks { self.look(at, socket) } else { Looked::No };
        let polled = match looked {
            Looked::End(end) => return Poll::Ready(end),
            Looked::Found(true) => Poll::Pending,
            _ => self.run(|core, now| {
                let polled = core.poll_socket(cx, now, at, socket);
                *looks = core.is_called(at, socket);
                polled
            }),
        };
        if *looks {
            // Whoever has waited for what has come has its turn first.
            cx.waker().wake_by_ref();
        }
        polled
    }
}

/// Reads a link until it ends; then tells the node.
async fn serve_link(
    shared: Weak<Shared>,
    socket: Arc<Socket>,
    at: usize,
    peer: Option<SocketPeer>,
    mut end: Option<(Errno, String)>,
) {
    if end.is_none() {
        let mut looks = false;
        end = std::future::poll_fn(|cx| match shared.upgrade() {
            Some(shared) => shared.poll_link(cx, at, &socket, &mut looks),
            None => Poll::Ready(None),
        })
        .await;
    }
    let Some((errno, mut cause)) = end else { return };
    let place = shared.upgrade().and_then(|shared| shared.peek(|core| core.detach(at, &socket)));
    drop(socket);
    let Some((node, link)) = place else { return };
    tracing::trace!(node, ?link, cause, "a link has ended");
    let (mut is_over, mut crashed) = (false, OwnFault::No);
    if let Some(SocketPeer { autopsy, is_leaf, combines, .. }) = peer
        && let Ok(found) = tokio::time::timeout(AUTOPSY_TIMEOUT, autopsy()).await
    {
        cause = found.how;
        is_over = is_leaf;
        crashed = if combines { found.fault } else { OwnFault::No };
    }
    let Some(shared) = shared.upgrade() else { return };
    shared.run(|core, now| {
        // Meanwhile the peer may have come back on another connection.
        if core.routes[node].get(link.place()) != Some(&Route::Unattached) {
            return;
        }
        if crashed != OwnFault::No {
            let rank = core.nodes[node].peer_rank(link);
            let is_sure = crashed == OwnFault::Yes;
            core.nodes[node].crashed(rank, Some(link), &cause, is_sure);
        }
        if is_over {
            core.nodes[node].child_dead(now, link, errno, &cause);
        } else {
            core.nodes[node].link_lost(now, link, errno, &cause);
        }
        core.work.push_back(node);
    });
}

/// Why a link ended.
type SocketEnd = Option<(Errno, String)>;

/// What one read came to.
enum Came {
    /// Something, and more may be there.
    More,
    /// All that was there.
    All,
    Nothing,
    End(SocketEnd),
}

impl Came {
    fn end(errno: Errno, cause: String) -> Self {
        Self::End(Some((errno, cause)))
    }
}

impl Port {
    /// Whether the kernel takes more again; if not, `cx` is woken when it does.
    fn poll_writable(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        loop {
            let Some(writable) = &self.writable else {
                if !self.blocked {
                    return Ok(false);
                }
                let fd = self.socket.out().try_clone()?;
                self.writable = Some(register(fd, Interest::WRITABLE)?);
                continue;
            };
            let Poll::Ready(ready) = writable.poll_write_ready(cx) else { return Ok(false) };
            // Cleared before it is written to: what the kernel says after refusing is not missed.
            ready?.clear_ready();
            if std::mem::take(&mut self.blocked) {
                self.unwanted = 0;
                return Ok(true);
            }
            self.unwanted += 1;
            if self.unwanted == UNWANTED_MAX {
                self.unwanted = 0;
                self.writable = None;
            }
        }
    }
}

impl Core {
    /// Where it is said whether to look for answers on this link. What the kernel has not taken is
    /// for who polls.
    fn lookout(&mut self, at: usize, socket: &Arc<Socket>) -> Option<&mut Lookout> {
        let port = self.sockets[at].as_mut()?;
        let free = Arc::ptr_eq(&port.socket, socket) && !port.blocked;
        port.look.as_mut().filter(|_| free)
    }

    fn is_called(&mut self, at: usize, socket: &Arc<Socket>) -> bool {
        self.lookout(at, socket).is_some_and(Lookout::is_called)
    }

    /// Looks for an answer, once.
    fn look(&mut self, now: Time, at: usize, socket: &Arc<Socket>) -> Looked {
        if !self.lookout(at, socket).is_some_and(|look| look.goes_on(now)) {
            return Looked::No;
        }
        match self.take_in(now, at, socket) {
            Came::Nothing => Looked::Nothing,
            Came::More => Looked::Found(false),
            Came::All => Looked::Found(self.is_called(at, socket)),
            Came::End(end) => Looked::End(end),
        }
    }

    /// Lets go of a socket that has ended; says whose it was, if it was still somebody's.
    fn detach(&mut self, at: usize, socket: &Arc<Socket>) -> Option<(usize, LinkId)> {
        self.sockets[at].as_ref().filter(|port| Arc::ptr_eq(&port.socket, socket))?;
        let port = self.sockets[at].take()?;
        if self.route(port.node, port.link) == Route::Socket(at) {
            self.set_route(port.node, port.link, Route::Unattached);
        }
        Some((port.node, port.link))
    }

    /// Reads what has come and writes what waits. Ready once the link is over.
    fn poll_socket(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        at: usize,
        socket: &Arc<Socket>,
    ) -> Poll<SocketEnd> {
        // The place may be another socket's by now.
        let port = self.sockets[at].as_mut().filter(|port| Arc::ptr_eq(&port.socket, socket));
        let Some(port) = port else { return Poll::Ready(None) };
        let (node, link) = (port.node, port.link);
        loop {
            let Some(port) = &mut self.sockets[at] else { return Poll::Ready(None) };
            match port.poll_writable(cx) {
                Ok(true) => {
                    self.flush_socket(now, node, link, at);
                    // A service that was held back may go on.
                    self.work.push_back(node);
                }
                Ok(false) => break,
                Err(error) => return Poll::Ready(Some(gone(&error))),
            }
        }
        for _ in 0..READS_PER_TURN {
            let Poll::Ready(ready) = socket.fd.poll_read_ready(cx) else { break };
            let mut guard = match ready {
                Ok(guard) => guard,
                Err(error) => return Poll::Ready(Some(gone(&error))),
            };
            match self.take_in(now, at, socket) {
                Came::More => {}
                Came::All | Came::Nothing => guard.clear_ready(),
                Came::End(end) => return Poll::Ready(end),
            }
        }
        // More may have come than one turn takes; the next turn begins where others had theirs.
        if socket.fd.poll_read_ready(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
        if let Some(port) = &mut self.sockets[at] {
            if !self.nodes[node].is_alive(link) {
                return Poll::Ready(None);
            }
            if port.waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
                port.waker = Some(cx.waker().clone());
            }
        }
        Poll::Pending
    }

    /// Reads once, and hands the node what has come.
    fn take_in(&mut self, now: Time, at: usize, socket: &Arc<Socket>) -> Came {
        let port = self.sockets[at].as_mut().filter(|port| Arc::ptr_eq(&port.socket, socket));
        let Some(port) = port else { return Came::End(None) };
        let (node, link) = (port.node, port.link);
        let drained = match self.read(at, socket) {
            Ok((0, _)) => {
                return Came::end(Errno::HOSTDOWN, "it closed the connection".to_owned());
            }
            Ok((count, drained)) => {
                if let Some(look) = self.sockets[at].as_mut().and_then(|port| port.look.as_mut()) {
                    look.came(now, count);
                }
                drained
            }
            Err(ReadError::Os(Os::WOULDBLOCK)) => return Came::Nothing,
            Err(ReadError::Os(Os::INTR)) => return Came::More,
            Err(ReadError::Os(error)) => return Came::End(Some(gone(&error.into()))),
            Err(ReadError::Seal(error)) => {
                let cause = format!("what came was not sealed by the peer: {error}");
                return Came::end(Errno::PROTO, cause);
            }
        };
        if let Err(violation) = self.received(now, node, link, at) {
            return Came::end(Errno::PROTO, violation.to_string());
        }
        if !self.nodes[node].is_alive(link) {
            return Came::end(Errno::HOSTDOWN, "the session has ended".to_owned());
        }
        if drained { Came::All } else { Came::More }
    }

    /// Reads behind the part of a frame that came before, into the socket's own buffer or the
    /// one that all sockets without such a part share. Returns how much was read, and whether
    /// that was all there is.
    fn read(&mut self, at: usize, socket: &Socket) -> Result<(usize, bool), ReadError> {
        let Some(port) = &mut self.sockets[at] else { return Ok((0, true)) };
        let room = &mut self.room;
        if port.partial.is_empty() {
            port.partial = room.shared.take().unwrap_or_default();
        }
        let is_short = port.partial.capacity() - port.partial.len() < READ_BYTES_MIN;
        // A buffer that nothing else refers to begins again: the cache has its beginning. Moving
        // part of a frame there has to be worth it.
        let is_again = match port.partial.is_empty() {
            true => port.partial.try_reclaim(READ_BYTES),
            false => is_short && port.partial.try_reclaim(READ_BYTES / 2),
        };
        if is_short && !is_again {
            room.renew(&mut port.partial);
        }
        if let Some(tls) = &mut port.tls {
            return read_sealed(&socket.fd, &mut room.came, tls, &mut port.partial);
        }
        let offered = port.partial.capacity() - port.partial.len();
        let count = read_more(&socket.fd, &mut port.partial)?;
        Ok((count, count < offered))
    }

    /// Hands the node the whole frames that have come; what is left begins the next one.
    fn received(
        &mut self,
        now: Time,
        node: usize,
        link: LinkId,
        at: usize,
    ) -> Result<(), Violation> {
        let Some(port) = &mut self.sockets[at] else { return Ok(()) };
        let whole = whole_frames(&port.partial)?;
        let chunk = port.partial.split_to(whole).freeze();
        if port.partial.is_empty() {
            self.room.shared = Some(std::mem::take(&mut port.partial));
        }
        self.work.push_back(node);
        self.nodes[node].receive(now, link, &chunk)
    }

    /// Writes what waits for a socket until all is written or the kernel takes no more.
    pub(super) fn flush_socket(&mut self, now: Time, node: usize, link: LinkId, at: usize) {
        loop {
            let Some(port) = &mut self.sockets[at] else { return };
            if port.blocked {
                return;
            }
            if let Some(tls) = &mut port.tls {
                match send_sealed(tls, port.socket.fd.get_ref()) {
                    Ok(true) => tls.give_room(&mut self.room.sealed),
                    Ok(false) => {
                        self.block(at);
                        return;
                    }
                    // The reading task learns of it too, and tells the node once.
                    Err(_) => return,
                }
            }
            // Also behind what the kernel left: else every second write is a small one.
            if !self.nodes[node].refill(link) {
                return;
            }
            let out = self.nodes[node].output(link);
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let filled = out.gather(&mut slices);
            if let Some(tls) = &mut port.tls {
                tls.take_room(&mut self.room.sealed);
                let Ok(count) = tls.seal(&slices[..filled]) else { return };
                out.advance(count);
                if let Some(look) = &mut port.look {
                    look.wrote(now, count);
                }
                self.nodes[node].wrote(now, link, count);
                continue;
            }
            let total: usize = slices[..filled].iter().map(|slice| slice.len()).sum();
            match port.socket.send(&slices[..filled]) {
                Ok(count) => {
                    out.advance(count);
                    if let Some(look) = &mut port.look {
                        look.wrote(now, count);
                    }
                    self.nodes[node].wrote(now, link, count);
                    if count < total {
                        self.block(at);
                        return;
                    }
                }
                Err(Os::INTR) => {}
                Err(Os::WOULDBLOCK) => {
                    self.block(at);
                    return;
                }
                // The reading task learns of it too, and tells the node once.
                Err(_) => return,
            }
        }
    }

    /// Ends a socket: its task lets go of it when it is woken.
    pub(super) fn close_socket(&mut self, at: usize) {
        if let Some(waker) = self.sockets[at].take().and_then(|port| port.waker) {
            waker.wake();
        }
    }

    /// The task of the socket is to write the rest when the kernel takes it.
    fn block(&mut self, at: usize) {
        if let Some(port) = &mut self.sockets[at] {
            port.blocked = true;
            // Where the socket is watched already, the kernel wakes the task.
            if let Some(waker) = port.waker.as_ref().filter(|_| port.writable.is_none()) {
                waker.wake_by_ref();
            }
        }
    }
}

/// Reading failed.
enum ReadError {
    Os(Os),
    /// TLS says that it is not from the peer.
    Seal(io::Error),
}

impl From<Os> for ReadError {
    fn from(error: Os) -> Self {
        Self::Os(error)
    }
}

/// Reads sealed bytes and appends what they hold to `into`, which has room for it. Returns how much
/// was read, and whether that was all there is.
fn read_sealed(
    fd: &AsyncFd<OwnedFd>,
    room: &mut Vec<u8>,
    tls: &mut Tls,
    into: &mut BytesMut,
) -> Result<(usize, bool), ReadError> {
    if room.is_empty() {
        // As the system gives it: zeros that take no memory until something is read into them.
        *room = vec![0; READ_BYTES_MIN];
    }
    let mut offered = 0;
    let read = |free: &mut [u8]| {
        offered = free.len();
        Ok(rustix::io::read(fd.get_ref(), free)?)
    };
    match tls.open_from(read, room, into) {
        Ok(count) => Ok((count, count < offered)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok((0, true)),
        Err(error) => Err(Os::from_io_error(&error).map_or(ReadError::Seal(error), ReadError::Os)),
    }
}

/// Writes what is sealed; whether that was all.
fn send_sealed(tls: &mut Tls, fd: &OwnedFd) -> io::Result<bool> {
    while tls.has_sealed() {
        match tls.send(&mut Out(fd)) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Room for reading. What was read is handed on by reference; a buffer is used again once
/// nothing refers to it any more, so that a long transfer does not ask for memory all the time.
#[derive(Default)]
pub(super) struct Room {
    /// What no socket holds a part of a frame in.
    shared: Option<BytesMut>,
    /// Handles of buffers that were full.
    full: VecDeque<Bytes>,
    /// Where sealed bytes are read to. What they hold takes less room.
    came: Vec<u8>,
    /// Where bytes are sealed that are written at once; a link keeps it while they wait.
    sealed: Vec<u8>,
}

/// Full buffers kept to be used again.
const FULL_KEPT: usize = 2;

impl Room {
    /// Gives `partial` room behind it, in another buffer.
    fn renew(&mut self, partial: &mut BytesMut) {
        let beginning = partial.split().freeze();
        let old = self.full.pop_front().and_then(|full| full.try_into_mut().ok());
        let mut fresh = old.unwrap_or_default();
        fresh.clear();
        fresh.reserve(READ_BYTES);
        fresh.extend_from_slice(&beginning);
        *partial = fresh;
        if self.full.len() < FULL_KEPT {
            self.full.push_back(beginning);
        }
    }
}

/// Reads what there is, up to the room behind what `buffer` holds already.
#[allow(unsafe_code)]
fn read_more(fd: &AsyncFd<OwnedFd>, buffer: &mut BytesMut) -> Result<usize, Os> {
    let (read, _) = rustix::io::read(fd.get_ref(), buffer.spare_capacity_mut())?;
    let count = read.len();
    // SAFETY: the call has initialised the first `count` bytes of the spare capacity: it returned
    // them as initialised bytes.
    unsafe { buffer.set_len(buffer.len() + count) };
    Ok(count)
}

/// How many bytes at the front are whole frames.
fn whole_frames(bytes: &[u8]) -> Result<usize, Violation> {
    let mut at = 0;
    while let Some(header) = Header::parse(&bytes[at..])?
        && bytes.len() - at >= header.frame_len()
    {
        at += header.frame_len();
    }
    Ok(at)
}

fn gone(error: &io::Error) -> (Errno, String) {
    (Errno::HOSTDOWN, format!("connection lost: {error}"))
}
