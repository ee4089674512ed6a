//! Packets on their way from the application into frames.
use bytes::Bytes;
use std::time::Duration;

/// What a packet carries. What is lent is copied into frames; of what is shared, long parts go to
/// the links from where they lie, and it is kept until every member has had them.
#[derive(Debug)]
pub enum PacketContent<'a> {
    /// The caller keeps it.
    Lent(&'a [u8]),
    /// It belongs to whoever refers to it.
    Shared(Bytes),
}

impl<'a> From<&'a [u8]> for PacketContent<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Lent(bytes)
    }
}

impl<'a, const LEN: usize> From<&'a [u8; LEN]> for PacketContent<'a> {
    fn from(bytes: &'a [u8; LEN]) -> Self {
        Self::Lent(bytes)
    }
}

impl<'a> From<&'a Vec<u8>> for PacketContent<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        Self::Lent(bytes)
    }
}

impl From<Vec<u8>> for PacketContent<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Shared(bytes.into())
    }
}

impl From<Bytes> for PacketContent<'_> {
    fn from(bytes: Bytes) -> Self {
        Self::Shared(bytes)
    }
}

impl From<&Bytes> for PacketContent<'_> {
    fn from(bytes: &Bytes) -> Self {
        Self::Shared(bytes.clone())
    }
}

impl PacketContent<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Lent(bytes) => bytes.len(),
            Self::Shared(bytes) => bytes.len(),
        }
    }

    /// Takes what comes next of it, `bytes_max` at most.
    fn take(&mut self, bytes_max: usize) -> Self {
        let len = self.len().min(bytes_max);
        match self {
            Self::Lent(bytes) => {
                let (part, rest) = bytes.split_at(len);
                *bytes = rest;
                Self::Lent(part)
            }
            Self::Shared(bytes) => Self::Shared(bytes.split_to(len)),
        }
    }
}

impl AsRef<[u8]> for PacketContent<'_> {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Lent(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

/// A packet on its way out, part by part.
#[derive(Debug)]
pub struct Outgoing<'a> {
    pub(super) tag: i32,
    rest: PacketContent<'a>,
    pub(super) expect: Option<Duration>,
    pub(super) once: bool,
    pub(super) wave: Option<u64>,
}

impl<'a> Outgoing<'a> {
    /// A packet of which nothing has been sent.
    #[must_use]
    pub fn new(tag: i32, payload: impl Into<PacketContent<'a>>, expect: Option<Duration>) -> Self {
        Self { tag, rest: payload.into(), expect, once: false, wave: None }
    }

    /// Members that miss the wave take no more part in the stream, so that no later wave waits
    /// for them again.
    #[must_use]
    pub fn once(self) -> Self {
        Self { once: true, ..self }
    }

    /// The number of its wave, once a part was sent.
    #[must_use]
    pub fn wave(&self) -> Option<u64> {
        self.wave
    }

    /// Whether an answer is expected.
    #[must_use]
    pub fn is_request(&self) -> bool {
        self.expect.is_some()
    }

    /// The next part, and whether it is the last one.
    pub(super) fn next_part(&mut self, bytes_max: usize) -> (PacketContent<'a>, bool) {
        let part = self.rest.take(bytes_max);
        (part, self.rest.len() == 0)
    }
}
