//! Frames: the only thing on a link. A fixed header of 24 bytes, little-endian, and a body.
//!
//! ```text
//!  0       4    5     6      8       12    16      24
//!  | body  |kind|flags|magic |stream |tag  |wave   | body …
//!  | len   |    |     |      |       |     |       |
//! ```
//! A frame is forwarded down the tree as it came: nothing in it depends on the hop.

mod down;
mod room;

pub(crate) use down::DownFrame;
pub(crate) use room::FrameRooms;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 24;
/// The largest body a peer may announce; more ends the link.
pub const BODY_BYTES_MAX: usize = 16 << 20;
/// A packet's payload travels in frames of at most this many bytes, so that streams interleave.
pub const CHUNK_BYTES: usize = 64 << 10;

// The bytes `Sf` on the wire.
const MAGIC: u16 = 0x6653;
/// Where a header has its kind and its flags.
const KIND_AT: usize = 4;
const FLAGS_AT: usize = 5;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// First frame to a node: who it is, its sub-tree, its tuning ([`super::control::Assign`]).
    Assign = 1,
    /// A sub-tree has started ([`super::control::Ready`]).
    Ready = 2,
    /// A sign of life; `wave` is the sender's epoch. Its body says when it was sent and what was
    /// heard last, which measures the link.
    Heartbeat = 3,
    /// A new stream ([`super::control::Open`]).
    Open = 4,
    /// Down: the stream is over; its state is dropped. Up: nobody is left below the sender on this
    /// stream, because of the error `tag`; nothing more comes of it.
    Close = 5,
    /// Part of a packet on its way to the leaves.
    Down = 6,
    /// Part of a packet on its way to the root.
    Up = 7,
    /// The receiver has consumed `wave` bytes of the stream on this link in all.
    Credit = 8,
    /// Finish wave `wave` (or all, `u64::MAX`) with what there is.
    Cancel = 9,
    /// Something the root should know ([`super::control::Notice`]).
    Notice = 10,
    /// The session ends; whoever reads this stops.
    Shutdown = 11,
    /// First frame of a child on a listening socket (a greeting).
    Hello = 12,
    /// A node without a parent asks an ancestor to take it ([`super::control::Adopt`]).
    Adopt = 13,
    /// The ancestor has taken it ([`super::control::Adopted`]).
    Adopted = 14,
    /// Down: another node says that it has these leaves; who has them here lets go
    /// ([`super::control::Release`]).
    Release = 15,
    /// Up: nothing more will come of them from here ([`super::control::Released`]).
    Released = 16,
    /// Down: the root has these waves; what was kept of them can go ([`super::control::Ack`]).
    Ack = 17,
    /// Down: part of the bytes of a filter module; its place and the module are in the header.
    Module = 20,
    /// Down: a packet from a filter of an inner node, outside of the stream's own order.
    Reply = 21,
    /// Up: what a tap of the sender keeps, which goes.
    State = 22,
    /// Whole packets of one size on their way to the root, one for each wave from `wave` on, all
    /// members' and complete, behind one another.
    Run = 24,
    /// Up: where the sender listens for nodes below it ([`super::control::DoorAddress`]).
    Door = 25,
    /// Down: the receiver's place is below another node ([`super::control::Ancestor`]).
    Go = 26,
    /// Down: leaves that are below the receiver from now on ([`super::control::Take`]).
    Take = 27,
    /// Down: the sender has found no parent, and ends. The receiver looks for one itself; from now
    /// on that, and what is below it, may take `wave` nanoseconds. To one that asks for a parent:
    /// another process has its place, and it ends itself.
    Farewell = 28,
    /// Down: what became of a child that the root was asked to start ([`super::control::Verdict`]).
    Verdict = 29,
    /// Down: answers of these leaves do not decode ([`super::control::Garbled`]).
    Garbled = 30,
    /// Down: whether a leaf is to serve on its machine ([`super::control::Admission`]).
    Admission = 31,
}

impl Kind {
    #[inline]
    fn from_wire(byte: u8) -> Option<Self> {
        KINDS.get(usize::from(byte)).copied().flatten()
    }
}

/// The kinds by their number.
const KINDS: [Option<Kind>; 32] = {
    use Kind::*;
    const ALL: [Kind; 28] = [
        Assign, Ready, Heartbeat, Open, Close, Down, Up, Credit, Cancel, Notice, Shutdown, Hello,
        Adopt, Adopted, Release, Released, Ack, Module, Reply, State, Run, Door, Go, Take,
        Farewell, Verdict, Garbled, Admission,
    ];
    let mut kinds = [None; 32];
    let mut at = 0;
    while at < ALL.len() {
        kinds[ALL[at] as usize] = Some(ALL[at]);
        at += 1;
    }
    kinds
};

/// Flag bits, by the kinds of frames that have them.
pub mod flag {
    /// Of parts of packets: [`Kind::Down`](super::Kind::Down), [`Kind::Up`](super::Kind::Up),
    /// [`Kind::Run`](super::Kind::Run) and [`Kind::Reply`](super::Kind::Reply).
    pub mod part {
        /// First part of a packet.
        pub const FIRST: u8 = 1;
        /// Last part of a packet.
        pub const LAST: u8 = 2;
        /// A packet in one part.
        pub const WHOLE: u8 = FIRST | LAST;
    }

    /// Of [`Kind::Down`](super::Kind::Down), beside those of [`part`].
    pub mod down {
        /// An answer is expected; the body of the first part begins with the deadline.
        pub const EXPECT: u8 = 4;
        /// With `EXPECT`: a member that misses this wave takes no more part in the stream.
        pub const ONCE: u8 = 8;
    }

    /// Of [`Kind::Up`](super::Kind::Up) and [`Kind::Run`](super::Kind::Run), beside those of
    /// [`part`].
    pub mod up {
        /// The sender keeps much that the root has not acknowledged.
        pub const ACK_WANTED: u8 = 4;
        /// Every member below contributed; no coverage block precedes the payload.
        pub const FULL: u8 = 8;
        /// Nothing more of this wave will come from this child.
        pub const FINAL: u8 = 16;
        /// A leaf's own data, not yet folded.
        pub const RAW: u8 = 32;
        /// No payload at all (nobody below had one).
        pub const EMPTY: u8 = 64;
        /// Sent once before, to a parent that is gone.
        pub const REPLAY: u8 = 128;
    }

    /// Of [`Kind::Open`](super::Kind::Open).
    pub mod open {
        /// The receiver may have had the stream before, and answers with a credit that says so too
        /// ([`super::credit::ANEW`]): what it has sent until then belongs to the stream as it was.
        pub const ANEW: u8 = 4;
    }

    /// Of [`Kind::Credit`](super::Kind::Credit).
    pub mod credit {
        /// For bytes that went up (otherwise down).
        pub const UPWARD: u8 = 1;
        /// For filters' replies that went down; `wave` is how many bytes more.
        pub const REPLY: u8 = 2;
        /// For no bytes: the stream is open anew from here on.
        pub const ANEW: u8 = 4;
    }

    /// Of [`Kind::Ready`](super::Kind::Ready) and [`Kind::Adopt`](super::Kind::Adopt).
    pub mod ready {
        /// There is no use in sending the engine for WebAssembly to the sender.
        pub const ENGINE: u8 = 1;
    }

    /// Of [`Kind::Module`](super::Kind::Module).
    pub mod module {
        /// It is the engine for WebAssembly.
        pub const ENGINE: u8 = 1;
    }

    /// Of [`Kind::Heartbeat`](super::Kind::Heartbeat).
    pub mod heartbeat {
        /// The receiver is to answer at once.
        pub const PING: u8 = 1;
    }
}

/// A decoded header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Bytes that follow the header.
    pub body_len: u32,
    /// What the frame is.
    pub kind: Kind,
    /// Bits of the kind's module in [`flag`].
    pub flags: u8,
    /// The stream, or 0.
    pub stream: u32,
    /// The packet's tag.
    pub tag: i32,
    /// The wave, or what the kind says.
    pub wave: u64,
}

/// The peer broke the protocol; its link is closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Not a Sheaf frame at all.
    #[error("not a Sheaf frame (bad magic or kind)")]
    NotAFrame,
    /// A length beyond [`BODY_BYTES_MAX`].
    #[error("a frame announces {0} bytes, more than {BODY_BYTES_MAX}")]
    Oversized(u32),
    /// The body does not decode.
    #[error("the body of a {0:?} frame does not decode")]
    Body(Kind),
    /// A frame that the sender's position in the tree does not allow.
    #[error("a {0:?} frame is not allowed from this peer or now")]
    OutOfPlace(Kind),
    /// A packet or a wave number beyond the bounds.
    #[error("{0}")]
    Bound(&'static str),
}

impl Header {
    /// A header without flags, stream, tag and wave.
    #[must_use]
    pub fn new(kind: Kind) -> Self {
        Self { body_len: 0, kind, flags: 0, stream: 0, tag: 0, wave: 0 }
    }

    /// The 24 bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..4].copy_from_slice(&self.body_len.to_le_bytes());
        bytes[KIND_AT] = self.kind as u8;
        bytes[FLAGS_AT] = self.flags;
        bytes[6..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.stream.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.tag.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.wave.to_le_bytes());
        bytes
    }

    /// Reads a header from the front of `bytes`; `None` when there are fewer than 24.
    ///
    /// # Errors
    /// [`Violation::NotAFrame`] and [`Violation::Oversized`].
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, Violation> {
        let Some(bytes) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let kind =
            Kind::from_wire(bytes[KIND_AT]).filter(|_| [bytes[6], bytes[7]] == MAGIC.to_le_bytes());
        let Some(kind) = kind else { return Err(Violation::NotAFrame) };
        let body_len = word(0);
        // Checked here, before anything is allocated for a body.
        if body_len as usize > BODY_BYTES_MAX {
            return Err(Violation::Oversized(body_len));
        }
        let wave = u64::from(word(16)) | u64::from(word(20)) << 32;
        Ok(Some(Self {
            body_len,
            kind,
            flags: bytes[FLAGS_AT],
            stream: word(8),
            tag: word(12) as i32,
            wave,
        }))
    }

    /// The header of a whole frame that this node has made, or has looked at before.
    ///
    /// # Panics
    /// When it is no frame.
    pub(crate) fn of(frame: &[u8]) -> Self {
        let header = Self::parse(frame).ok().flatten();
        header.expect("what is kept here was made here, and begins with a header")
    }

    /// Header and body together.
    #[inline]
    #[must_use]
    pub fn frame_len(&self) -> usize {
        HEADER_BYTES + self.body_len as usize
    }

    /// What the frame counts for in the window of an upward stream, unless it is a run; see
    /// [`cost`].
    #[inline]
    #[must_use]
    pub fn cost(&self) -> usize {
        cost(self.frame_len())
    }

    /// Whether all `bits` are set.
    #[inline]
    #[must_use]
    pub fn has(&self, bits: u8) -> bool {
        self.flags & bits == bits
    }
}

/// Flags of a part of a packet.
#[inline]
#[must_use]
pub fn edges(first: bool, last: bool) -> u8 {
    let first = if first { flag::part::FIRST } else { 0 };
    first | if last { flag::part::LAST } else { 0 }
}

/// The body of a whole frame that is known to be one.
#[inline]
#[must_use]
pub fn body(frame: &[u8]) -> &[u8] {
    &frame[HEADER_BYTES..]
}

/// Whether a whole frame that is known to be one is of this kind.
#[inline]
#[must_use]
pub fn is_a(frame: &[u8], kind: Kind) -> bool {
    frame[KIND_AT] == kind as u8
}

/// The flags of a whole frame that is known to be one.
#[inline]
#[must_use]
pub fn flags(frame: &[u8]) -> u8 {
    frame[FLAGS_AT]
}

/// The least an upward frame counts for. A small contribution opens a wave at its receiver, which
/// costs far more than its bytes; counting it so keeps the open waves of a fast sender few enough
/// to stay in a processor's cache.
pub const COST_MIN: usize = 2048;

/// What an upward frame of `len` bytes counts for in its stream's window.
#[inline]
#[must_use]
pub fn cost(len: usize) -> usize {
    len.max(COST_MIN)
}

/// A whole frame as bytes.
#[must_use]
pub fn encode(header: Header, body: &[u8]) -> bytes::Bytes {
    encode_parts(header, &[body])
}

/// A whole frame as bytes, its body in pieces.
#[must_use]
pub fn encode_parts(mut header: Header, body: &[&[u8]]) -> bytes::Bytes {
    let len: usize = body.iter().map(|piece| piece.len()).sum();
    header.body_len = len as u32;
    let mut frame = Vec::with_capacity(HEADER_BYTES + len);
    frame.extend_from_slice(&header.to_bytes());
    body.iter().for_each(|piece| frame.extend_from_slice(piece));
    frame.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn header_round_trips() {
        let header = Header {
            body_len: 77,
            kind: Kind::Up,
            flags: 0x5a,
            stream: 9,
            tag: -3,
            wave: u64::MAX - 5,
        };
        assert_eq!(Header::parse(&header.to_bytes()), Ok(Some(header)));
        assert_eq!(Header::parse(&header.to_bytes()[..23]), Ok(None));
    }

    #[test]
    fn every_kind_has_its_number() {
        let kinds: Vec<Kind> = (0..=u8::MAX).filter_map(Kind::from_wire).collect();
        assert_eq!(kinds.len(), 28);
        assert!(kinds.iter().all(|&kind| Kind::from_wire(kind as u8) == Some(kind)));
    }

    #[test]
    fn huge_length_is_refused_before_anything_is_allocated() {
        let mut bytes = Header::new(Kind::Down).to_bytes();
        bytes[0..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(Header::parse(&bytes), Err(Violation::Oversized(u32::MAX)));
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Header::parse(&bytes);
        }
    }
}
