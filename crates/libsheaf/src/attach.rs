//! Back ends that attach themselves to a node of a running tree, on the same machine.
//!
//! The node listens on an abstract unix socket whose name has the number that users know as the
//! port. Both ends ask the kernel who the other is: only processes of the same user are let in,
//! and a socket of that name that somebody else has made is not believed. Who says its rank there
//! is given an invitation to be a leaf of the tree; the socket stays open as long as it is one.
use crate::error::{Error, ErrorCode};
use rustix::net::SendFlags;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sheaf_tree::link::peer::socket_owner;
use std::io::{self, ErrorKind, Read};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

/// The longest word; an invitation has at most 64 KiB.
pub const WORD_BYTES_MAX: usize = 80 << 10;
/// The longest name of a host.
pub const HOST_BYTES_MAX: usize = 200;
/// Bytes that say how long a word is.
pub const HEAD_BYTES: usize = 4;
/// How long the node may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Who attaches itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachHello {
    /// Its rank.
    pub rank: u32,
    /// Its host.
    pub host: String,
}

/// What it is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seat {
    /// The leaf that it is to be.
    pub leaf: u32,
    /// Its invitation, as [`sheaf_tree::launch::leaf_over`] reads it.
    pub invitation: Vec<u8>,
}

/// What it hears.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttachAnswer {
    /// It is let in.
    Seat(Seat),
    /// It is not, for this reason; the connection ends.
    Refused(String),
}

/// A word with its length in front.
#[must_use]
pub fn encode(word: &impl Serialize) -> Vec<u8> {
    let body = postcard::to_stdvec(word).expect("a word can be serialised");
    let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(&body);
    bytes
}

/// How long the word is that these bytes stand in front of.
///
/// # Errors
/// `InvalidData` when it is longer than any is.
pub fn body_len(head: [u8; HEAD_BYTES]) -> io::Result<usize> {
    let len = u32::from_le_bytes(head) as usize;
    if len <= WORD_BYTES_MAX { Ok(len) } else { Err(malformed()) }
}

/// The word that these bytes are.
///
/// # Errors
/// `InvalidData` when they are none.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> io::Result<T> {
    postcard::from_bytes(body).map_err(|_| malformed())
}

fn malformed() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "not a word of an attached back end")
}

/// Reads one.
///
/// # Errors
/// What the socket says; `InvalidData`.
pub fn read<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<T> {
    let mut head = [0; HEAD_BYTES];
    from.read_exact(&mut head)?;
    let mut body = vec![0; body_len(head)?];
    from.read_exact(&mut body)?;
    decode(&body)
}

/// Writes one; a peer that is gone is an error, and no signal.
fn send(to: &UnixStream, word: &impl Serialize) -> io::Result<()> {
    let bytes = encode(word);
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

fn address(port: u16) -> io::Result<SocketAddr> {
    let uid = rustix::process::geteuid().as_raw();
    SocketAddr::from_abstract_name(format!("sheaf-attach-{uid}-{port}"))
}

/// Whether the process at the other end is one of this user's.
#[must_use]
pub fn is_ours(socket: impl std::os::fd::AsFd) -> bool {
    socket_owner(socket).is_ok_and(|peer| peer.uid == rustix::process::geteuid())
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
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
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

/// Connects to the node of that port and says who we are; gives the socket, which stays open as
/// long as we are there, and the place.
///
/// # Errors
/// [`ErrorCode::Launch`], with what to look at.
pub fn connect(host: &str, port: u16, hello: &AttachHello) -> Result<(UnixStream, Seat), Error> {
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
    socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    match send(&socket, hello).and_then(|()| read(&mut socket)) {
        Ok(AttachAnswer::Seat(seat)) => Ok((socket, seat)),
        Ok(AttachAnswer::Refused(why)) => {
            Err(fail(format!("the node at port {port} does not take rank {}: {why}", hello.rank)))
        }
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            Err(fail(format!("what listens at port {port} is no tree")))
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            let seconds = ANSWER_TIMEOUT.as_secs();
            Err(fail(format!("the node at port {port} has not answered within {seconds} s")))
        }
        Err(error) => Err(fail(format!(
            "the node at port {port} has hung up: it ends, or has no descriptor left ({error})"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_out_as_they_went_in() {
        let welcome = AttachAnswer::Seat(Seat { leaf: 7, invitation: vec![1, 2, 3] });
        let mut bytes = encode(&welcome);
        assert_eq!(read::<AttachAnswer>(&mut &bytes[..]).unwrap(), welcome);
        assert!(read::<AttachAnswer>(&mut &bytes[..bytes.len() - 1]).is_err());
        bytes[3] = 0xff;
        assert!(read::<Seat>(&mut &bytes[..]).is_err());
    }

    #[test]
    fn names_of_other_machines_are_refused() {
        let hello = AttachHello { rank: 9, host: "x".to_owned() };
        assert!(
            connect("no-such-host.example", 4000, &hello).unwrap_err().message.contains("another")
        );
    }
}
