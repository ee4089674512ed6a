//! A link over a socket: one task reads it and runs the node with what has come; whoever runs
//! the node writes its output straight away, and only what the kernel refuses waits for the task.
use super::{Core, Route, Shared};
use crate::proto::Time;
use bytes::{Bytes, BytesMut};
use rustix::io::Errno as Os;
use sheaf_core::Errno;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Room for one read; small frames of many waves arrive in one.
const READ_BYTES: usize = 128 << 10;
/// Reads from one link before others get their turn.
const READS_PER_TURN: usize = 8;
/// Pieces per vectored write.
const SLICES_MAX: usize = 64;

/// A connected stream socket (TCP or unix), non-blocking.
pub(crate) struct Socket {
    fd: AsyncFd<OwnedFd>,
}

/// What ended a link: phrase and errno for the notice, found out after the socket closed.
pub(crate) type Autopsy = Box<dyn FnOnce() -> std::pin::Pin<Box<dyn Future<Output = String> + Send>> + Send>;

/// A socket's place in the core, for its task.
pub(super) struct Port {
    pub socket: Arc<Socket>,
    pub node: usize,
    pub link: usize,
    /// The kernel took less than was to be written.
    pub blocked: bool,
    /// Says when it takes more; there only while it is waited for. (Watching for that all the
    /// time would wake this process once more for every message that its peer reads.)
    writable: Option<AsyncFd<OwnedFd>>,
    waker: Option<Waker>,
}

impl Shared {
    /// Lets `link` of `node` run over `fd` until either end closes it. When the peer is a process
    /// of ours, `autopsy` finds out how it ended.
    pub fn attach(
        self: &Arc<Self>,
        node: usize,
        link: usize,
        fd: OwnedFd,
        autopsy: Option<Autopsy>,
    ) -> io::Result<()> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        let socket = Arc::new(Socket { fd: register(fd, Interest::READABLE)? });
        let port =
            Port { socket: Arc::clone(&socket), node, link, blocked: false, writable: None, waker: None };
        let at = self.run(|core, now| {
            let free = core.sockets.iter().position(Option::is_none);
            let at = free.unwrap_or(core.sockets.len());
            if free.is_none() {
                core.sockets.push(None);
            }
            core.sockets[at] = Some(port);
            core.set_route(node, link, Route::Socket(at));
            core.nodes[node].attach(now, link);
            core.flush(now, node, link);
            core.work.push_back(node);
            at
        });
        tokio::spawn(serve_link(Arc::downgrade(self), socket, at, autopsy));
        Ok(())
    }
}

/// Reads a link until it ends; then tells the node.
async fn serve_link(shared: Weak<Shared>, socket: Arc<Socket>, at: usize, autopsy: Option<Autopsy>) {
    let end = std::future::poll_fn(|cx| match shared.upgrade() {
        Some(shared) => shared.run(|core, now| core.poll_socket(cx, now, at, &socket)),
        None => Poll::Ready(None),
    })
    .await;
    let Some((errno, mut cause)) = end else { return };
    let place = shared
        .upgrade()
        .and_then(|shared| shared.peek(|core| core.sockets[at].take().map(|port| (port.node, port.link))));
    drop(socket);
    let Some((node, link)) = place else { return };
    if let Some(autopsy) = autopsy {
        // The process may end a little after its socket.
        if let Ok(found) = tokio::time::timeout(Duration::from_millis(500), autopsy()).await {
            cause = found;
        }
    }
    if let Some(shared) = shared.upgrade() {
        shared.run(|core, now| {
            core.nodes[node].link_lost(now, link, errno, &cause);
            core.work.push_back(node);
        });
    }
}

/// Why a link ended.
type End = Option<(Errno, String)>;

impl Port {
    /// Ready once the kernel takes more.
    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.writable.is_none() {
            let fd = self.socket.fd.get_ref().try_clone()?;
            self.writable = Some(register(fd, Interest::WRITABLE)?);
        }
        let Some(writable) = &self.writable else { return Poll::Pending };
        match writable.poll_write_ready(cx) {
            Poll::Ready(ready) => {
                let _watched = ready?;
                self.writable = None;
                self.blocked = false;
                Poll::Ready(Ok(()))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Core {
    /// Reads what has come and writes what waits. Ready once the link is over.
    fn poll_socket(&mut self, cx: &mut Context<'_>, now: Time, at: usize, socket: &Arc<Socket>) -> Poll<End> {
        // The place may be another socket's by now.
        let port = self.sockets[at].as_mut().filter(|port| Arc::ptr_eq(&port.socket, socket));
        let Some(port) = port else { return Poll::Ready(None) };
        let (node, link) = (port.node, port.link);
        if port.blocked {
            match port.poll_writable(cx) {
                Poll::Ready(Ok(())) => {
                    self.flush_socket(now, node, link, at);
                    // A service that was held back may go on.
                    self.work.push_back(node);
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Some(gone(&error))),
                Poll::Pending => {}
            }
        }
        for _ in 0..READS_PER_TURN {
            let Poll::Ready(ready) = socket.fd.poll_read_ready(cx) else { break };
            let mut guard = match ready {
                Ok(guard) => guard,
                Err(error) => return Poll::Ready(Some(gone(&error))),
            };
            match self.buffers.read(&socket.fd) {
                Ok(chunk) if chunk.is_empty() => {
                    return Poll::Ready(Some((Errno::HOSTDOWN, "it closed the connection".to_owned())));
                }
                Ok(chunk) => {
                    if chunk.len() < READ_BYTES {
                        guard.clear_ready();
                    }
                    let received = self.nodes[node].receive(now, link, &chunk);
                    self.work.push_back(node);
                    if let Err(violation) = received {
                        return Poll::Ready(Some((Errno::PROTO, violation.to_string())));
                    }
                    if !self.nodes[node].is_alive(link) {
                        return Poll::Ready(Some((Errno::HOSTDOWN, "the session has ended".to_owned())));
                    }
                }
                Err(Os::WOULDBLOCK) => guard.clear_ready(),
                Err(Os::INTR) => {}
                Err(error) => return Poll::Ready(Some(gone(&error.into()))),
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

    /// Writes what waits for a socket until all is written or the kernel takes no more.
    pub(super) fn flush_socket(&mut self, now: Time, node: usize, link: usize, at: usize) {
        loop {
            let Some(port) = &mut self.sockets[at] else { return };
            if port.blocked {
                return;
            }
            let out = self.nodes[node].output(link);
            if out.is_empty() && !self.nodes[node].refill(link) {
                return;
            }
            let out = self.nodes[node].output(link);
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let filled = out.gather(&mut slices);
            let total: usize = slices[..filled].iter().map(|slice| slice.len()).sum();
            match rustix::io::writev(port.socket.fd.get_ref(), &slices[..filled]) {
                Ok(count) => {
                    out.advance(count);
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
            if let Some(waker) = &port.waker {
                waker.wake_by_ref();
            }
        }
    }
}

/// Puts a descriptor under the runtime's watch.
#[allow(unsafe_code)]
pub(crate) fn register(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: `register` asks that the descriptor stays open and the same while the `AsyncFd`
    // has it. An `OwnedFd` is one descriptor for its whole life, it is moved in here, and nothing
    // in this file takes it out again.
    Ok(unsafe { AsyncFd::register_with_interest(fd, interest) }?)
}

/// Buffers for reading. What arrived is handed on by reference; a buffer is used again once all
/// that refers to it is gone.
#[derive(Default)]
pub(super) struct Buffers {
    pool: VecDeque<Bytes>,
}

/// Buffers kept for use; more exist only while forwarded data waits for slow links.
const BUFFERS_KEPT: usize = 4;

impl Buffers {
    fn read(&mut self, fd: &AsyncFd<OwnedFd>) -> Result<Bytes, Os> {
        let mut buffer = self.take();
        let read = rustix::io::read(fd.get_ref(), &mut buffer[..]);
        let whole = buffer.freeze();
        let chunk = read.map(|count| whole.slice(..count));
        if self.pool.len() < BUFFERS_KEPT {
            self.pool.push_back(whole);
        }
        chunk
    }

    fn take(&mut self) -> BytesMut {
        for _ in 0..self.pool.len() {
            let Some(buffer) = self.pool.pop_front() else { break };
            match buffer.try_into_mut() {
                Ok(buffer) => return buffer,
                Err(shared) => self.pool.push_back(shared),
            }
        }
        BytesMut::zeroed(READ_BYTES)
    }
}

fn gone(error: &io::Error) -> (Errno, String) {
    (Errno::HOSTDOWN, format!("connection lost: {error}"))
}
