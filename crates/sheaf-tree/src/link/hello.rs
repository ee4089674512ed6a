//! The first frames on a connection to a node that listens: who connects, and who answers.
use super::Secret;
use crate::proto::control;
use crate::proto::frame::{HEADER_BYTES, Header, Kind, Violation};
use crate::topology::NAME_BYTES_MAX;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The largest body of a greeting, either way: the longest name of a host, and what is beside it.
pub const HELLO_BYTES_MAX: usize = 128 + NAME_BYTES_MAX;

/// What whoever connects says first.
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
}

impl Hello {
    /// The greeting of `rank`, which is on `host`, in the session of `secret`.
    #[must_use]
    pub fn new(secret: &Secret, rank: u32, host: &str, orphan: bool) -> Self {
        let version = control::PROTOCOL_VERSION;
        Self { version, session: secret.session, token: secret.token, rank, host: host.to_owned(), orphan }
    }

    /// Its frame.
    #[must_use]
    pub fn frame(&self) -> Bytes {
        control::control(Header::new(Kind::Hello), self)
    }
}

impl fmt::Debug for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { version, rank, host, orphan, .. } = self;
        write!(f, "Hello {{ version: {version}, rank: {rank}, host: {host:?}, orphan: {orphan}, .. }}")
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
