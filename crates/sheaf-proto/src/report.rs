//! What a node says of itself when the tree is surveyed: the bodies of [`Survey`](Kind::Survey) and
//! [`Report`](Kind::Report) frames.
use super::frame::Kind;
use serde::{Deserialize, Serialize};
use sheaf_core::{Errno, RangeSet};

/// The most links that one report tells of; [`NodeReport::links_more`] counts the others.
pub const LINKS_REPORTED_MAX: usize = 1024;
/// The most streams that one report tells of; [`NodeReport::streams_more`] counts the others.
pub const STREAMS_REPORTED_MAX: usize = 64;
/// The longest text in a report (a host name, the last error), in bytes.
pub const TEXT_BYTES_MAX: usize = 256;
/// The most reports kept of one survey; it counts the others.
pub const REPORTS_MAX: usize = 1 << 17;

/// What a node is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ask {
    /// The asker waits this long.
    pub timeout_ms: u32,
}

/// Part of the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// One node's report, which travels up as it is.
    Node(Box<NodeReport>),
    /// Nothing more comes from the sender.
    End {
        /// Reports that were dropped on the way for want of room.
        dropped: u32,
    },
}

/// One node's state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    /// Its rank; `u32::MAX` is a client of the session.
    pub rank: u32,
    /// Its place in the tree.
    pub place: Place,
    /// Links between it and the root.
    pub depth: u32,
    /// Its host; empty where nobody told the node.
    pub host: String,
    /// Its process; 0 where nobody told the node.
    pub pid: u32,
    /// For how long its process has run.
    pub uptime_ms: u64,
    /// Its links, to children first.
    pub links: Vec<LinkReport>,
    /// Links beyond [`LINKS_REPORTED_MAX`].
    pub links_more: u32,
    /// Its open streams, by number.
    pub streams: Vec<StreamReport>,
    /// Streams beyond [`STREAMS_REPORTED_MAX`].
    pub streams_more: u32,
    /// Bytes that wait in the node.
    pub queued_bytes: u64,
    /// What went wrong here last.
    pub last_error: Option<LastError>,
    /// Counts of the node's doors by name: strangers who were turned away, and why.
    pub doors: Vec<(String, u64)>,
}

/// A node's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// The session's root, or a client.
    Root,
    /// An inner node.
    Inner,
    /// A server.
    Leaf,
}

/// What went wrong last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastError {
    /// So long ago.
    pub ago_ms: u64,
    /// `EHOSTDOWN` and the like.
    pub errno: Errno,
    /// In one sentence.
    pub text: String,
}

/// One link of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkReport {
    /// The child at its other end; `None`: a parent or a client.
    pub child: Option<u32>,
    /// The leaves below that child.
    pub leaves: RangeSet,
    /// How it is.
    pub state: LinkState,
    /// It has been so, or has run, for so long.
    pub since_ms: u64,
    /// The peer was heard so long ago.
    pub heard_ms: u64,
    /// Both ends are in one process.
    pub local: bool,
    /// Round trip, once it has been measured.
    pub round_trip: Option<RoundTrip>,
    /// The peer's clock, once it has been measured.
    pub clock: Option<PeerClock>,
    /// Bytes read.
    pub bytes_in: u64,
    /// Bytes handed to the transport.
    pub bytes_out: u64,
    /// Frames read.
    pub frames_in: u64,
    /// Bytes that wait to be written.
    pub queued_bytes: u64,
    /// Streams with data that waits for this link.
    pub streams_waiting: u32,
    /// How often a transport was attached after the first.
    pub reconnects: u32,
}

/// How a link is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinkState {
    /// Nothing carries it yet.
    Waiting,
    /// The peer is there.
    Up,
    /// The peer has missed heartbeats, and is not given up yet.
    Late,
    /// What waits for the peer has not moved for as long as heartbeats take to be missed.
    Stuck,
    /// The peer is gone.
    Lost,
}

impl LinkState {
    /// Whether the peer is slow to the point of being suspicious.
    #[must_use]
    pub fn is_torpid(self) -> bool {
        matches!(self, Self::Late | Self::Stuck)
    }

    /// In one word, as it is printed.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Up => "up",
            Self::Late => "late",
            Self::Stuck => "stuck",
            Self::Lost => "lost",
        }
    }
}

/// What heartbeats take to the peer and back, less the time it held them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundTrip {
    /// Smoothed over the last eight or so.
    pub smoothed_ns: u64,
    /// The least there was.
    pub least_ns: u64,
}

/// A peer's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerClock {
    /// The peer's less the node's own.
    pub offset_ns: i64,
    /// The offset is off by at most so much.
    pub error_ns: u64,
}

/// One stream at a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamReport {
    /// Its number.
    pub id: u32,
    /// Members below the node.
    pub members: u64,
    /// Bytes that may be under way on one link, each way.
    pub window_bytes: u64,
    /// Of these, what may still be sent towards the root.
    pub credit_up_bytes: u64,
    /// Of these, what may still be sent to the child that has least.
    pub credit_down_bytes: u64,
    /// Waves that are not over.
    pub waves_open: u32,
    /// Bytes that wait or are kept here.
    pub kept_bytes: u64,
}

/// Cuts a text to [`TEXT_BYTES_MAX`].
pub(crate) fn bounded(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_BYTES_MAX)].to_owned()
}

/// Decodes an answer and holds it to the bounds.
pub(crate) fn decode(body: &[u8]) -> Result<Answer, super::Violation> {
    let answer: Answer = super::control::decode(Kind::Report, body)?;
    if let Answer::Node(report) = &answer
        && (report.links.len() > LINKS_REPORTED_MAX || report.streams.len() > STREAMS_REPORTED_MAX)
    {
        return Err(super::Violation::Bound("a report tells of more than it may"));
    }
    Ok(answer)
}
