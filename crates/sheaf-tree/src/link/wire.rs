//! A connection while its ends greet each other: reads and writes with the runtime, before the
//! driver takes it over as a link.
use super::hello::{self, Hello, Welcome};
use super::peer::socket_owner;
use super::tls::{Keys, Tls};
use super::watch::register;
use super::{Ancestor, DoorAddress, Secret};
use crate::proto::frame::{HEADER_BYTES, Violation};
use bytes::{Buf, BytesMut};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use rustix::process::Uid;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Sent bytes that nobody acknowledges for this long end a TCP link, so that a cut cable is
/// noticed while there is something to send. (Silence is noticed by heartbeats.)
const TCP_USER_TIMEOUT_MS: u32 = 10_000;
/// An idle TCP link is probed after this long, then as often, and given up after so many.
const KEEPALIVE: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;
/// What is read at once while greeting.
const GREETING_READ_BYTES: usize = 4096;

/// A connected socket, past its greeting, as the driver takes it over.
pub(crate) struct Channel {
    pub fd: OwnedFd,
    /// Where to write, when it is not `fd`: at the far end of an ssh connection there are two
    /// pipes.
    pub out: Option<OwnedFd>,
    /// It leads to a process of this machine that carries it to another one.
    pub over_ssh: bool,
    /// What has come behind the greeting already.
    pub early: BytesMut,
    pub tls: Option<Box<Tls>>,
}

impl From<OwnedFd> for Channel {
    fn from(fd: OwnedFd) -> Self {
        Self { fd, out: None, over_ssh: false, early: BytesMut::new(), tls: None }
    }
}

/// A connected socket in the hands of the runtime.
pub(crate) struct Wire {
    fd: AsyncFd<OwnedFd>,
    tls: Option<Box<Tls>>,
    /// What has come and was not asked for yet.
    early: BytesMut,
    over_ssh: bool,
}

/// A socket, for the library that wants a writer.
pub(crate) struct Out<'a>(pub &'a OwnedFd);

/// Writes to a socket. A peer that is gone is an error and no signal, which would end a program
/// that only uses this library.
pub(crate) fn send_pieces(fd: &OwnedFd, pieces: &[io::IoSlice<'_>]) -> rustix::io::Result<usize> {
    // One piece has a quicker way into the kernel.
    if let [piece] = pieces {
        return rustix::net::send(fd, piece, rustix::net::SendFlags::NOSIGNAL);
    }
    let mut nothing = rustix::net::SendAncillaryBuffer::default();
    rustix::net::sendmsg(fd, pieces, &mut nothing, rustix::net::SendFlags::NOSIGNAL)
}

impl Write for Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send_pieces(self.0, &[io::IoSlice::new(bytes)])?)
    }

    fn write_vectored(&mut self, pieces: &[io::IoSlice<'_>]) -> io::Result<usize> {
        Ok(send_pieces(self.0, pieces)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Wire {
    /// Takes over a connected socket.
    pub fn new(fd: OwnedFd, tls: Option<Tls>) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        let fd = register(fd, Interest::READABLE | Interest::WRITABLE)?;
        Ok(Self { fd, tls: tls.map(Box::new), early: BytesMut::new(), over_ssh: false })
    }

    /// Takes a connection back that was handed over, if it is one descriptor.
    pub fn from_channel(channel: Channel) -> io::Result<Self> {
        let Channel { fd, out, over_ssh, early, tls } = channel;
        if out.is_some() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Self { early, over_ssh, ..Self::new(fd, tls.map(|tls| *tls))? })
    }

    /// The TLS end, when there is one.
    pub fn tls(&self) -> Option<&Tls> {
        self.tls.as_deref()
    }

    /// From here on the bytes are sealed; what has come behind the last plain ones is already.
    pub fn secure(&mut self, mut tls: Tls) -> io::Result<()> {
        let sealed = self.early.split();
        tls.open(&sealed, &mut self.early)?;
        self.tls = Some(Box::new(tls));
        Ok(())
    }

    /// Lets the ends get to know each other.
    pub async fn handshake(&mut self) -> io::Result<()> {
        while self.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
            self.flush().await?;
            if self.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
                self.read_some().await?;
            }
        }
        self.flush().await
    }

    /// Sends all that is sealed.
    async fn flush(&mut self) -> io::Result<()> {
        while self.tls.as_ref().is_some_and(|tls| tls.has_sealed()) {
            let mut ready = self.fd.writable().await?;
            let Some(tls) = &mut self.tls else { break };
            let sent = ready.try_io(|fd| tls.send(&mut Out(fd.get_ref())));
            if let Ok(sent) = sent {
                sent?;
            }
        }
        Ok(())
    }

    /// Sends all of `bytes`.
    pub async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let count = if let Some(tls) = &mut self.tls {
                let count = tls.seal(&[io::IoSlice::new(bytes)])?;
                self.flush().await?;
                count
            } else {
                let mut ready = self.fd.writable().await?;
                match ready.try_io(|fd| Ok(rustix::io::write(fd.get_ref(), bytes)?)) {
                    Ok(count) => count?,
                    Err(_) => 0,
                }
            };
            bytes.advance(count);
        }
        Ok(())
    }

    /// Waits for more to come.
    async fn read_some(&mut self) -> io::Result<()> {
        let mut buffer = [0; GREETING_READ_BYTES];
        let count = loop {
            let mut ready = self.fd.readable().await?;
            if let Ok(read) = ready.try_io(|fd| Ok(rustix::io::read(fd.get_ref(), &mut buffer)?)) {
                break read?;
            }
        };
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match &mut self.tls {
            Some(tls) => {
                let opened = tls.open(&buffer[..count], &mut self.early);
                if opened.is_err() {
                    // The peer is told why, if it still listens.
                    let _ = tls.send(&mut Out(self.fd.get_ref()));
                }
                opened
            }
            None => {
                self.early.extend_from_slice(&buffer[..count]);
                Ok(())
            }
        }
    }

    /// Reads exactly `len` bytes; the caller has bounded `len`.
    pub async fn read_exact(&mut self, len: usize) -> io::Result<BytesMut> {
        while self.early.len() < len {
            self.read_some().await?;
        }
        Ok(self.early.split_to(len))
    }

    /// Reads one greeting frame, either end's.
    pub async fn read_greeting(&mut self) -> Result<BytesMut, GreetingError> {
        while self.early.len() < HEADER_BYTES {
            self.read_some().await?;
        }
        let head = self.early.first_chunk().ok_or(Violation::NotAFrame)?;
        let len = hello::frame_len(head)?;
        Ok(self.read_exact(len).await?)
    }

    /// Hands the connection over.
    pub fn into_channel(self) -> Channel {
        let Self { fd, tls, early, over_ssh } = self;
        Channel { fd: fd.into_inner(), out: None, over_ssh, early, tls }
    }
}

/// A greeting failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GreetingError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Violation(#[from] Violation),
}

impl From<GreetingError> for io::Error {
    fn from(error: GreetingError) -> Self {
        match error {
            GreetingError::Io(error) => error,
            GreetingError::Violation(violation) => {
                Self::new(io::ErrorKind::InvalidData, violation.to_string())
            }
        }
    }
}

/// Who connects to another node, and what shows that it may.
pub(crate) struct WireCaller<'a> {
    pub secret: &'a Secret,
    pub keys: Option<&'a Keys>,
    pub rank: u32,
    pub host: &'a str,
    /// The user of this machine whose session it is.
    pub user: Uid,
}

/// Connects to the node `to`, says who `caller` is, and waits to be let in.
pub(crate) async fn call(
    to: &Ancestor,
    caller: &WireCaller<'_>,
    orphan: bool,
) -> io::Result<Channel> {
    let fd = connect(&to.address, caller.user).await?;
    greet(fd, to, caller, orphan).await
}

/// Says who `caller` is over a connection to the node `to`, and waits to be let in.
pub(crate) async fn greet(
    fd: OwnedFd,
    to: &Ancestor,
    caller: &WireCaller<'_>,
    orphan: bool,
) -> io::Result<Channel> {
    greet_with(fd, to, caller, Hello::new(caller.secret, caller.rank, caller.host, orphan)).await
}

/// Tells the node `to` that `caller` has ended with this status.
pub(crate) async fn report_end(
    to: &Ancestor,
    caller: &WireCaller<'_>,
    status: i32,
) -> io::Result<()> {
    let fd = connect(&to.address, caller.user).await?;
    let hello = Hello::new(caller.secret, caller.rank, caller.host, false);
    greet_with(fd, to, caller, Hello { end: Some(status), ..hello }).await.map(drop)
}

async fn greet_with(
    fd: OwnedFd,
    to: &Ancestor,
    caller: &WireCaller<'_>,
    hello: Hello,
) -> io::Result<Channel> {
    let mut wire = Wire::new(fd, None)?;
    // Over a unix socket of this machine nobody can listen in; TCP is plain only to be measured.
    if let (Some(keys), DoorAddress::Tcp(_)) = (caller.keys, &to.address) {
        wire.write_all(&hello::knock(caller.secret)).await?;
        wire.secure(keys.connect(to.rank)?)?;
        wire.handshake().await?;
    }
    wire.write_all(&hello.frame()).await?;
    let answer = wire.read_greeting().await?;
    let welcome: Welcome = hello::decode(&answer).map_err(GreetingError::from)?;
    if welcome.rank != to.rank {
        return Err(io::Error::other("another node answers at this address"));
    }
    Ok(wire.into_channel())
}

/// Connects to an address.
pub(crate) async fn connect(address: &DoorAddress, user: Uid) -> io::Result<OwnedFd> {
    match address {
        DoorAddress::Abstract(name) => connect_abstract(name, user),
        DoorAddress::Tcp(all) => {
            let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
            for address in all {
                match connect_tcp(*address).await {
                    Ok(fd) => return Ok(fd),
                    Err(error) => last = error,
                }
            }
            Err(last)
        }
    }
}

/// Does not wait: a unix socket is there or is not. (`WouldBlock`: too many wait there already.)
fn connect_abstract(name: &str, user: Uid) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&fd, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    // The name is free again once its owner has ended: whoever has it now must be one of ours.
    if peer_user(&fd)? != user {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(fd)
}

async fn connect_tcp(address: SocketAddr) -> io::Result<OwnedFd> {
    let stream = tokio::net::TcpStream::connect(address).await?;
    let fd = OwnedFd::from(stream.into_std()?);
    set_tcp_options(&fd)?;
    Ok(fd)
}

/// Small frames go at once, and a peer that is gone is noticed.
pub(super) fn set_tcp_options(fd: &OwnedFd) -> io::Result<()> {
    sockopt::set_tcp_nodelay(fd, true)?;
    // On this machine what is not taken says that the peer is stopped or busy, and its end is seen
    // at once.
    if !is_of_this_machine(fd)? {
        sockopt::set_tcp_user_timeout(fd, TCP_USER_TIMEOUT_MS)?;
    }
    sockopt::set_socket_keepalive(fd, true)?;
    sockopt::set_tcp_keepidle(fd, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(fd, KEEPALIVE)?;
    Ok(sockopt::set_tcp_keepcnt(fd, KEEPALIVE_PROBES)?)
}

/// Whether both ends of a connection are on this machine.
pub(crate) fn is_of_this_machine(fd: &OwnedFd) -> io::Result<bool> {
    if sockopt::socket_domain(fd)? == AddressFamily::UNIX {
        return Ok(true);
    }
    let own = SocketAddr::try_from(rustix::net::getsockname(fd)?)?;
    let Some(peer) = rustix::net::getpeername(fd)? else { return Ok(false) };
    Ok(own.ip() == SocketAddr::try_from(peer)?.ip())
}

/// The user of the process at the other end of a unix socket.
pub(crate) fn peer_user(fd: impl AsFd) -> io::Result<Uid> {
    Ok(socket_owner(fd)?.uid)
}
