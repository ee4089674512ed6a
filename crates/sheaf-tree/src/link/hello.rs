//! The first frames on a connection to a node that listens: who connects, and who answers.
use super::Secret;
use super::audit::Refusal;
use crate::proto::control;
use crate::proto::frame::{HEADER_BYTES, Header, Kind, Violation};
use crate::topology::NAME_BYTES_MAX;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The largest body of a greeting, either way: the longest name of a host, and what is beside it.
pub const HELLO_BYTES_MAX: usize = 128 + NAME_BYTES_MAX;

/// What a knock begins with.
const KNOCK_MARK: [u8; 4] = *b"shf?";
/// Bytes of a knock: the mark, the version of the protocol (little-endian), and the proof.
pub const KNOCK_BYTES: usize = KNOCK_MARK.len() + 4 + 32;

/// What whoever connects over TLS says before anything else. It can be checked in no time, so that
/// strangers do not make a node reckon, nor wait where members wait. Whoever listens on the way can
/// repeat it, and has gained a place among members at the door, no more.
#[must_use]
pub fn knock(secret: &Secret) -> [u8; KNOCK_BYTES] {
    let mut knock = [0; KNOCK_BYTES];
    knock[..4].copy_from_slice(&KNOCK_MARK);
    knock[4..8].copy_from_slice(&control::PROTOCOL_VERSION.to_le_bytes());
    // The token itself cannot be found from this.
    knock[8..].copy_from_slice(blake3::keyed_hash(&secret.token, &secret.session).as_bytes());
    knock
}

/// Whether `knock` is that of a member of the session of `secret`, and why not.
///
/// # Errors
/// The reason to refuse whoever has said it.
pub fn check_knock(knock: &[u8; KNOCK_BYTES], secret: &Secret) -> Result<(), Refusal> {
    let expected = self::knock(secret);
    if knock[..4] != expected[..4] {
        return Err(Refusal::Greeting);
    }
    if knock[4..8] != expected[4..8] {
        return Err(Refusal::Version);
    }
    // Comparing these does not depend on the bytes.
    let proof =
        |knock: &[u8; KNOCK_BYTES]| knock.last_chunk::<32>().copied().map(blake3::Hash::from_bytes);
    if proof(knock) == proof(&expected) { Ok(()) } else { Err(Refusal::Token) }
}

/// What whoever connects says first, or behind its knock.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`control::PROTOCOL_VERSION`] of the sender.
    pub version: u32,
    /// The session it belongs to.
    pub session: [u8; 16],
    /// The session's token.
    pub token: [u8; 32],
    /// Who it is.
    pub rank: u32,
    /// The host that it was started for.
    pub host: String,
    /// It has served before and lost its parent; otherwise it is new and waits for its assignment.
    pub orphan: bool,
    /// It has ended, with this status (as `wait` gives it), and says so by way of whoever has seen
    /// that: nobody is to be let in.
    pub end: Option<i32>,
}

impl Hello {
    /// The greeting of `rank`, which is on `host`, in the session of `secret`.
    #[must_use]
    pub fn new(secret: &Secret, rank: u32, host: &str, orphan: bool) -> Self {
        let version = control::PROTOCOL_VERSION;
        Self {
            version,
            session: secret.session,
            token: secret.token,
            rank,
            host: host.to_owned(),
            orphan,
            end: None,
        }
    }

    /// Its frame.
    #[must_use]
    pub fn frame(&self) -> Bytes {
        control::control(Header::new(Kind::Hello), self)
    }
}

impl fmt::Debug for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { version, rank, host, orphan, end, .. } = self;
        write!(
            f,
            "Hello {{ version: {version}, rank: {rank}, host: {host:?}, orphan: {orphan}, end: \
             {end:?}, .. }}"
        )
    }
}

/// The answer to a [`Hello`] that was accepted; frames of the tree follow it. Who is refused
/// learns nothing: the connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// Who answers.
    pub rank: u32,
}

impl Welcome {
    /// Its frame.
    #[must_use]
    pub fn frame(&self) -> Bytes {
        control::control(Header::new(Kind::Hello), self)
    }
}

/// How long the greeting is of which `head` is the beginning.
///
/// # Errors
/// When it is no greeting, or longer than one can be.
pub fn frame_len(head: &[u8; HEADER_BYTES]) -> Result<usize, Violation> {
    let header = Header::parse(head)?.ok_or(Violation::NotAFrame)?;
    if header.kind != Kind::Hello {
        return Err(Violation::OutOfPlace(header.kind));
    }
    if header.body_len as usize > HELLO_BYTES_MAX {
        return Err(Violation::Oversized(header.body_len));
    }
    Ok(header.frame_len())
}

/// Reads a greeting or its answer from a whole frame.
///
/// # Errors
/// When the body does not decode.
pub fn decode<T: serde::de::DeserializeOwned>(frame: &[u8]) -> Result<T, Violation> {
    control::decode(Kind::Hello, frame.get(HEADER_BYTES..).unwrap_or_default())
}

/// For fuzzing: greetings, and the answers to them.
#[cfg(feature = "fuzzing")]
pub(crate) fn decode_any(data: &[u8]) {
    let _ = data.first_chunk().map(frame_len);
    let _ = decode::<Welcome>(data);
    if let Ok(hello) = decode::<Hello>(data) {
        let frame = control::control(Header::new(Kind::Hello), &hello);
        let back = decode::<Hello>(&frame);
        assert!(back.is_ok_and(|back| back == hello), "a greeting comes back from its own bytes");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knock_proves_the_session_and_says_the_version() {
        let (ours, theirs) = (Secret::random().unwrap(), Secret::random().unwrap());
        assert_eq!(check_knock(&knock(&ours), &ours), Ok(()));
        assert_eq!(check_knock(&knock(&theirs), &ours), Err(Refusal::Token));
        let mut old = knock(&ours);
        old[4] ^= 1;
        assert_eq!(check_knock(&old, &ours), Err(Refusal::Version));
        assert_eq!(check_knock(&[0x16; KNOCK_BYTES], &ours), Err(Refusal::Greeting));
        let mut wrong = knock(&ours);
        wrong[KNOCK_BYTES - 1] ^= 1;
        assert_eq!(check_knock(&wrong, &ours), Err(Refusal::Token));
    }
}
