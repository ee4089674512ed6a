//! What a node tells its process.
use crate::control::{self, Notice};
use bytes::Bytes;
use sheaf_core::RangeSet;
use std::time::Duration;

/// A packet (or one part of a long one) that has reached a leaf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Its stream.
    pub stream: u32,
    /// The wave an answer belongs to.
    pub wave: u64,
    /// The sender's tag.
    pub tag: i32,
    /// First part of the packet.
    pub first: bool,
    /// Last part of the packet.
    pub last: bool,
    /// The root waits for an answer, this long; `None`: it does not wait.
    pub expect: Option<Duration>,
    /// The bytes of this part.
    pub payload: Bytes,
    /// What [`crate::Node::consumed`] is to be told once they are dealt with.
    pub frame_bytes: usize,
}

/// What a node tells the application or the service of its process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// At a leaf: part of a packet.
    Packet(Packet),
    /// At a leaf: a stream begins, for a service of its process.
    Opened {
        /// The stream.
        stream: u32,
        /// The name of the service.
        service: String,
        /// On whose behalf.
        caller: control::Caller,
    },
    /// At a leaf: an answer to this wave is no longer wanted (`u64::MAX`: to any wave).
    Cancelled {
        /// The stream.
        stream: u32,
        /// The wave.
        wave: u64,
    },
    /// At a leaf: the stream is over.
    Closed {
        /// The stream.
        stream: u32,
    },
    /// At the root: the tree has started as far as it will; these leaves run.
    Ready(RangeSet),
    /// At the root: what other nodes have to say.
    Notice(Notice),
    /// The parent is lost: try the ancestors, nearest first, round and round, with a short pause
    /// after each round. When one takes the connection (and the greeting has been written),
    /// [`crate::Node::resume_parent`] gives the link for it. Told again when that link is lost too.
    /// [`Event::ParentLost`] ends the search. Who cannot search calls [`crate::Node::abandon`].
    Orphaned,
    /// The session is over, or no ancestor was found in time: stop.
    ParentLost,
    /// The child `rank` listens at this address for nodes below it.
    Door {
        /// Its rank.
        rank: u32,
        /// Where.
        address: control::DoorAddress,
    },
    /// The parent says that this node's place is below another one: [`Event::Orphaned`] follows,
    /// and that one is to be tried first.
    Go(control::Ancestor),
    /// What became of a child that the root was asked to start.
    Verdict(control::Verdict),
}
