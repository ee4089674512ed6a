//! Back ends that attach themselves to a leaf of a running tree, on the same machine.
//!
//! The leaf listens on an abstract unix socket whose name has the number that users know as the
//! port. Both ends ask the kernel who the other is: only processes of the same user are let in,
//! and a socket of that name that somebody else has made is not believed.
use crate::error::{Error, ErrorCode};
use bytes::Bytes;
use rustix::net::SendFlags;
use rustix::net::sockopt::socket_peercred;
use serde::{Deserialize, Serialize};
use std::io::{self, Read};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

/// The longest frame.
pub const FRAME_BYTES_MAX: usize = 256 << 20;
/// Bytes before the payload of a frame.
pub const HEAD_BYTES: usize = 16;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum AttachKind {
    /// Up, first: a [`AttachHello`].
    Hello = 1,
    /// Down, first: the session.
    Welcome = 2,
    /// Either way: a packet of a stream.
    Packet = 3,
    /// Either way: a stream is closed.
    Close = 4,
}

/// Who attaches itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachHello {
    /// Its rank.
    pub rank: u32,
    /// Its host.
    pub host: String,
}

/// What travels between a leaf and a back end attached to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachFrame {
    /// What it is.
    pub kind: AttachKind,
    /// The stream, as the application knows it.
    pub stream: u32,
    /// The packet's tag.
    pub tag: i32,
    /// The bytes.
    pub payload: Bytes,
}

impl AttachFrame {
    /// Its bytes before the payload.
    #[must_use]
    pub fn head(&self) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[0] = self.kind as u8;
        head[4..8].copy_from_slice(&self.stream.to_le_bytes());
        head[8..12].copy_from_slice(&self.tag.to_le_bytes());
        head[12..].copy_from_slice(&(self.payload.len() as u32).to_le_bytes());
        head
    }

    /// The frame (without its payload) and the payload's length.
    ///
    /// # Errors
    /// `InvalidData` when these bytes are none.
    pub fn parse(head: &[u8; HEAD_BYTES]) -> io::Result<(Self, usize)> {
        let kinds = [AttachKind::Hello, AttachKind::Welcome, AttachKind::Packet, AttachKind::Close];
        let kind = kinds.into_iter().find(|kind| *kind as u8 == head[0]);
        let word =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let len = word(12) as usize;
        match kind.filter(|_| len <= FRAME_BYTES_MAX) {
            Some(kind) => Ok((
                Self { kind, stream: word(4), tag: word(8) as i32, payload: Bytes::new() },
                len,
            )),
            None => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "not a frame of an attached back end",
            )),
        }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + self.payload.len());
        bytes.extend_from_slice(&self.head());
        bytes.extend_from_slice(&self.payload);
        bytes
    }

    /// Writes it; a peer that is gone is an error, and no signal.
    ///
    /// # Errors
    /// What the socket says.
    pub fn send(&self, to: &UnixStream) -> io::Result<()> {
        let bytes = self.to_bytes();
        let mut left = &bytes[..];
        while !left.is_empty() {
            match rustix::net::send(to, left, SendFlags::NOSIGNAL) {
                Ok(count) => left = &left[count..],
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Reads one.
    ///
    /// # Errors
    /// What the socket says; `InvalidData`.
    pub fn read(from: &mut impl Read) -> io::Result<Self> {
        let mut head = [0; HEAD_BYTES];
        from.read_exact(&mut head)?;
        let (mut frame, len) = Self::parse(&head)?;
        let mut payload = Vec::new();
        // What is not there yet is not allocated for.
        from.take(len as u64).read_to_end(&mut payload)?;
        if payload.len() < len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        frame.payload = payload.into();
        Ok(frame)
    }
}

fn address(port: u16) -> io::Result<SocketAddr> {
    let uid = rustix::process::geteuid().as_raw();
    SocketAddr::from_abstract_name(format!("sheaf-attach-{uid}-{port}"))
}

/// Whether the process at the other end is one of this user's.
#[must_use]
pub fn is_ours(socket: impl std::os::fd::AsFd) -> bool {
    socket_peercred(socket).is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

/// Listens under a number that is free.
///
/// # Errors
/// When none is found.
pub fn listen() -> io::Result<(u16, UnixListener)> {
    const TRIES_MAX: u32 = 1000;
    for _ in 0..TRIES_MAX {
        let mut random = [0; 2];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        let port = u16::from_ne_bytes(random).max(1024);
        match UnixListener::bind_addr(&address(port)?) {
            Ok(listener) => return Ok((port, listener)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("no number is free to listen under"))
}

/// Whether a name is one of this machine's.
#[must_use]
pub fn is_here(host: &str) -> bool {
    let name = rustix::system::uname();
    let name = name.nodename().to_string_lossy();
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    matches!(host, "localhost" | "127.0.0.1" | "::1") || host == name || short(host) == short(&name)
}

/// Connects to the leaf of that port and says who we are; gives the socket and the session.
///
/// # Errors
/// [`ErrorCode::Launch`], with what to look at.
pub fn connect(host: &str, port: u16, hello: &AttachHello) -> Result<(UnixStream, Bytes), Error> {
    let fail = |text: String| Error::new(ErrorCode::Launch, text);
    if !is_here(host) {
        return Err(fail(format!(
            "back ends attach themselves on one machine only, and {host} is another"
        )));
    }
    let connected = address(port).and_then(|address| UnixStream::connect_addr(&address));
    let mut socket = connected
        .map_err(|error| fail(format!("nothing of this user's listens at port {port}: {error}")))?;
    if !is_ours(&socket) {
        return Err(fail(format!("what listens at port {port} belongs to another user")));
    }
    let payload = postcard::to_stdvec(hello).expect("a greeting can be serialised").into();
    let frame = AttachFrame { kind: AttachKind::Hello, stream: 0, tag: 0, payload };
    let answer = frame.send(&socket).and_then(|()| AttachFrame::read(&mut socket));
    match answer {
        Ok(frame) if frame.kind == AttachKind::Welcome => Ok((socket, frame.payload)),
        Ok(_) => Err(fail(format!("what listens at port {port} is no tree"))),
        Err(_) => Err(fail(format!("the node at port {port} does not take rank {}", hello.rank))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_as_they_went_in() {
        let frame = AttachFrame {
            kind: AttachKind::Packet,
            stream: 7,
            tag: -3,
            payload: Bytes::from_static(b"abc"),
        };
        let mut bytes = frame.to_bytes();
        assert_eq!(AttachFrame::read(&mut &bytes[..]).unwrap(), frame);
        assert!(AttachFrame::read(&mut &bytes[..bytes.len() - 1]).is_err());
        bytes[15] = 0xff;
        assert!(AttachFrame::read(&mut &bytes[..]).is_err());
    }

    #[test]
    fn names_of_other_machines_are_refused() {
        let hello = AttachHello { rank: 9, host: "x".to_owned() };
        assert!(
            connect("no-such-host.example", 4000, &hello).unwrap_err().message.contains("another")
        );
    }
}
