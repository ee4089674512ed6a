//! What a launcher hands a new process over its launch channel: how to become a node.
//!
//! ```text
//!  0        8          12     12 + length
//!  | magic  | length   | postcard …
//! ```
//! It comes over standard input or an inherited descriptor, never over arguments or the
//! environment, which other users of the host can see.
use crate::launch::LeafProgram;
use crate::link::{Ancestor, Credentials, Secret, is_sound};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, MemfdFlags, fstat, memfd_create};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// How an invitation begins.
pub const MAGIC: [u8; 8] = *b"sheaf\0i2";
/// The longest invitation.
pub const INVITATION_BYTES_MAX: usize = 64 << 10;
const HEAD_BYTES: usize = MAGIC.len() + 4;
/// The most ancestors anybody has; deeper trees make no sense.
pub const ANCESTORS_MAX: usize = 64;

/// How a process becomes a node of a session: it connects to the first of `ancestors` (its
/// parent), says who it is, and is told the rest there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invitation {
    /// The session, and the proof of belonging to it.
    pub secret: Secret,
    /// Who it is to be.
    pub rank: u32,
    /// The host it is for, by the name that the tree has for it. Whoever takes the process in
    /// expects this name at that place.
    pub host: String,
    /// Its parent first, the root last.
    pub ancestors: Vec<Ancestor>,
    /// Its key and certificate, when links are TLS.
    pub credentials: Option<Credentials>,
    /// What is to run there, when that is a program of somebody else's.
    pub leaf: Option<LeafProgram>,
    /// How it gets the link to its parent.
    pub over: Over,
}

/// How a node that was invited gets the link to its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Over {
    /// It connects to its parent's door.
    Door,
    /// It does, if it gets that far within this time; else as [`Over::Channel`].
    DoorWithin(Duration),
    /// The channel that the invitation has come over is the link.
    Channel,
}

impl Invitation {
    /// The framed bytes.
    ///
    /// # Panics
    /// Never: an invitation holds nothing that cannot be serialised.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let body = postcard::to_stdvec(self).expect("an invitation can be serialised");
        let mut bytes = Vec::with_capacity(HEAD_BYTES + body.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&body);
        bytes
    }

    /// Reads one from its framed bytes; what follows is not looked at.
    ///
    /// # Errors
    /// `InvalidData` when it is none, `UnexpectedEof` when it is not whole.
    pub fn from_bytes(bytes: &[u8]) -> io::Result<Self> {
        let len = body_len(bytes)?;
        let body = bytes.get(HEAD_BYTES..HEAD_BYTES + len).ok_or(io::ErrorKind::UnexpectedEof)?;
        let invitation: Self = postcard::from_bytes(body).map_err(|_| wrong())?;
        let ancestors = &invitation.ancestors;
        // Who needs to call nobody may not know where anybody is.
        let least = usize::from(invitation.over != Over::Channel);
        let sound = (least..=ANCESTORS_MAX).contains(&ancestors.len())
            && ancestors.iter().all(|ancestor| is_sound(&ancestor.address));
        if sound { Ok(invitation) } else { Err(wrong()) }
    }

    /// Writes it to a launch channel.
    ///
    /// # Errors
    /// When the channel fails.
    pub fn write(&self, mut to: impl Write) -> io::Result<()> {
        to.write_all(&self.to_bytes())?;
        to.flush()
    }

    /// A launch channel that holds it and, right behind it, what the node is to be (a frame), so
    /// that its process knows that before it has called anybody.
    ///
    /// # Errors
    /// When there is no room.
    pub(in crate::launch) fn with_assignment(&self, frame: &[u8]) -> io::Result<OwnedFd> {
        let memory = memfd_create("sheaf", MemfdFlags::CLOEXEC)?;
        let mut file = File::from(memory);
        self.write(&mut file)?;
        file.write_all(frame)?;
        file.rewind()?;
        Ok(file.into())
    }

    /// Reads one from a launch channel, within `limit`, and nothing behind it.
    ///
    /// # Errors
    /// `TimedOut`, `UnexpectedEof`, `InvalidData`, or the channel's.
    pub fn read(from: impl AsFd, limit: Duration) -> io::Result<Self> {
        let deadline = Instant::now() + limit;
        let mut from = Patient { fd: from.as_fd(), deadline };
        let mut bytes = vec![0; HEAD_BYTES];
        from.read_exact(&mut bytes)?;
        let len = body_len(&bytes)?;
        bytes.resize(HEAD_BYTES + len, 0);
        from.read_exact(&mut bytes[HEAD_BYTES..])?;
        Self::from_bytes(&bytes)
    }
}

/// What leads a process to its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::launch) enum ChannelKind {
    /// The link to its parent, on which the assignment comes first.
    Link,
    /// An invitation: the assignment is to be had from the parent.
    Invitation,
    /// An invitation and the assignment.
    Both,
}

impl ChannelKind {
    pub(in crate::launch) fn of(channel: impl AsFd) -> io::Result<Option<Self>> {
        let stat = fstat(channel)?;
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::Socket => Some(Self::Link),
            FileType::Fifo => Some(Self::Invitation),
            // No name leads to memory that a launcher has written to.
            FileType::RegularFile if stat.st_nlink == 0 => Some(Self::Both),
            _ => None,
        })
    }
}

/// Whether this can be what a node's parent has started it with.
///
/// # Errors
/// When the descriptor is not open.
pub fn is_launch_channel(channel: impl AsFd) -> io::Result<bool> {
    Ok(ChannelKind::of(channel)?.is_some())
}

fn wrong() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "this is no invitation to a Sheaf session")
}

/// The announced length of the body, checked before anything is allocated for it.
fn body_len(head: &[u8]) -> io::Result<usize> {
    if head.len() < HEAD_BYTES {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let (magic, rest) = head.split_at(MAGIC.len());
    let len = u32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
    if magic == MAGIC && len <= INVITATION_BYTES_MAX { Ok(len) } else { Err(wrong()) }
}

/// Reads a descriptor that may block, until a deadline.
pub(in crate::launch) struct Patient<'a> {
    pub fd: BorrowedFd<'a>,
    pub deadline: Instant,
}

impl Read for Patient<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            let timeout = left.try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
            match poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&timeout)) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            match rustix::io::read(self.fd, &mut *bytes) {
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                read => return Ok(read?),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{Authority, DoorAddress};
    use proptest::prelude::*;

    fn invitation() -> Invitation {
        let address =
            |port| DoorAddress::Tcp(vec![std::net::SocketAddr::from(([127, 0, 0, 1], port))]);
        Invitation {
            secret: Secret::random().unwrap(),
            rank: 9,
            host: "n9".to_owned(),
            ancestors: vec![
                Ancestor { rank: 3, address: address(4000) },
                Ancestor { rank: 0, address: DoorAddress::Abstract("sheaf".to_owned()) },
            ],
            credentials: Some(Authority::new().unwrap().issue(9).unwrap()),
            leaf: Some(LeafProgram {
                path: "/bin/be".into(),
                args: vec!["1".to_owned()],
                placed: true,
            }),
            over: Over::DoorWithin(Duration::from_secs(3)),
        }
    }

    #[test]
    fn invitation_round_trips_and_takes_nothing_behind_it() {
        let (reader, mut writer) = io::pipe().unwrap();
        let one = invitation();
        one.write(&mut writer).unwrap();
        writer.write_all(b"more").unwrap();
        drop(writer);
        assert_eq!(Invitation::read(&reader, Duration::from_secs(10)).unwrap(), one);
        assert_eq!(io::read_to_string(reader).unwrap(), "more");
    }

    #[test]
    fn silent_channel_a_short_one_and_a_huge_one_are_errors() {
        let (reader, mut writer) = io::pipe().unwrap();
        let read =
            |limit| Invitation::read(&reader, Duration::from_millis(limit)).unwrap_err().kind();
        assert_eq!(read(1), io::ErrorKind::TimedOut);
        let mut huge = MAGIC.to_vec();
        huge.extend_from_slice(&u32::MAX.to_le_bytes());
        writer.write_all(&huge).unwrap();
        assert_eq!(read(10_000), io::ErrorKind::InvalidData);
        let bytes = invitation().to_bytes();
        writer.write_all(&bytes[..bytes.len() - 1]).unwrap();
        drop(writer);
        assert_eq!(read(10_000), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn invitation_shows_no_secret() {
        let one = invitation();
        let shown = format!("{one:?}");
        assert!(!shown.contains("token") && !shown.contains("key_der"), "{shown}");
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200), magic: bool) {
            let mut all = if magic { MAGIC.to_vec() } else { Vec::new() };
            all.extend_from_slice(&bytes);
            let _ = Invitation::from_bytes(&all);
        }
    }
}
