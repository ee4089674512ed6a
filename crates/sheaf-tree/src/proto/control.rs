//! Bodies of control frames.
use super::frame::{self, Header, Kind, Violation};
use bytes::Bytes;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sheaf_core::{Errno, RangeSet};
use std::time::Duration;

/// Version of everything on a link; both ends must have the same.
pub const PROTOCOL_VERSION: u32 = 1;

/// How a node collects the contributions to a wave before it sends on what it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sync {
    /// One packet from every child (MRNet's Wait For All).
    WaitForAll,
    /// What has come when this long has passed since the first contribution; late ones follow as
    /// further partials of the same wave (MRNet's Time Out).
    TimeOut(Duration),
    /// Each contribution at once (MRNet's Do Not Wait).
    DontWait,
}

/// Opens a stream at the nodes that lead to its members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// The communicator: which leaves take part.
    pub members: RangeSet,
    /// Name of the filter on the way up.
    pub filter: String,
    /// Parameters of the filter.
    pub params: Vec<u8>,
    /// When waves are passed on.
    pub sync: Sync,
    /// Bytes that may be under way on one link, each way.
    pub window_bytes: u32,
}

/// First frame on a link from parent to child.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assign {
    /// [`PROTOCOL_VERSION`] of the parent.
    pub version: u32,
    /// The child's depth; the root has 0.
    pub depth: u32,
    /// The child's sub-tree ([`crate::topology`], wire form).
    pub subtree: Vec<u8>,
    /// Tuning of every node of the session.
    pub tuning: super::Tuning,
    /// What a service at the leaves needs to start (for a file server: its export).
    pub service: Vec<u8>,
    /// How a node reaches the children it starts.
    pub launch: Vec<u8>,
    /// The other children of the child's parent.
    pub siblings: u32,
    /// Where the child's stream identifiers begin (clients of a session only).
    pub stream_base: u32,
}

/// What a child on a listening socket says first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL_VERSION`] of the child.
    pub version: u32,
    /// The one-time token it was given over its launch channel.
    pub token: [u8; 16],
}

/// A sub-tree has started, with these leaves; the others are told of by [`Notice::Lost`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// Leaves that run.
    pub leaves: RangeSet,
}

/// Something that travels to the root unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notice {
    /// A child of `by` is gone and these leaves with it.
    Lost {
        /// Rank of the node that noticed.
        by: u32,
        /// Rank of the node that is gone.
        rank: u32,
        /// The leaves below it.
        leaves: RangeSet,
        /// `EHOSTDOWN` and the like.
        errno: Errno,
        /// Why, in one phrase: "its process ended with signal 9".
        cause: String,
    },
    /// A filter could not combine; the leaves are `failed` in that wave.
    FilterFailed {
        /// Rank of the node where it happened.
        by: u32,
        /// The stream.
        stream: u32,
        /// The wave.
        wave: u64,
        /// What the filter said.
        message: String,
    },
}

/// The frame of an assignment.
pub(crate) fn assign(assign: &Assign) -> Bytes {
    control(Header::new(Kind::Assign), assign)
}

/// The frame of a greeting.
pub(crate) fn hello(hello: &Hello) -> Bytes {
    control(Header::new(Kind::Hello), hello)
}

/// Encodes a control frame.
pub(crate) fn control<T: Serialize>(header: Header, body: &T) -> Bytes {
    let body = postcard::to_stdvec(body).expect("control bodies hold nothing that cannot be serialised");
    frame::encode(header, &body)
}

/// Decodes the body of a control frame.
pub(crate) fn decode<T: DeserializeOwned>(kind: Kind, body: &[u8]) -> Result<T, Violation> {
    postcard::from_bytes(body).map_err(|_| Violation::Body(kind))
}
