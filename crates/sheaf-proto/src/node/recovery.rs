//! State for recovery: what a node remembers about lost links, its own and those of other nodes.
//!
//! # When a node is lost Packets in flight are neither lost nor counted twice. Each handler states
//! its preconditions and its postconditions.
//!
//! - **Downwards**, a stream is the same bytes in the same order at every member, so a byte count
//!   names a position. A node keeps the bytes that some leaf below has not consumed, within a
//!   window (`stream/down.rs`). A child that returns reports its position.
//! - **Upwards**, each node keeps the contributions that it has sent until the root reports that
//!   the wave has ended (`stream/kept.rs`, `ack.rs`). It sends them again to a new parent, marked
//!   as repeated.
//! - **An orphan** calls its ancestors (`orphan.rs`). The state of its filters goes to the adopter
//!   with the call.
//! - **The adopter** holds open waves for a grace period (`adopt.rs`), and leaves move from the
//!   lost child to the new one (`release.rs`). After the grace period missing leaves are *silent*.
//!   A leaf that returns later takes part from the next wave on.
//! - **A stream that a child has to begin again** is opened again there. Until the child confirms
//!   that, its contributions belong to the stream as it was.
//! - **A child whose leaves turn out to be below another node** is cut off, and then looks for its
//!   place.
//! - **A restarted host or node** receives no request from before its restart (`Adopt::born`). It
//!   keeps its place even if its predecessor is still alive (`Node::count_on`).
//! - **Places**: once the lost inner node is back, adopted children return to it (`handover.rs`).
//!
//! MRNet's paper has no recovery. TBON-FS (Brim and Miller, section 3.2) only refers to it as a
//! property of such trees. The design here is Sheaf's own.
use super::HandOver;
use super::release::Job;
use crate::config::Time;
use crate::links::LinkId;
use bytes::Bytes;
use rustc_hash::FxHashSet;
use sheaf_core::RangeSet;
use std::collections::VecDeque;
use std::time::Duration;

/// How a node stands to those above it, and who goes from one node to another.
pub(super) struct Recovery {
    /// The link to the parent, which may be lost; and to an ancestor that was asked to be it.
    pub parent: Option<LinkId>,
    pub asking: Option<LinkId>,
    /// Since when there is no parent, how long one is looked for, and how often one was.
    pub orphan: Option<Time>,
    pub patience: Duration,
    pub epoch: u64,
    /// What the root has to be told once there is a parent.
    pub unsent: VecDeque<Bytes>,
    /// What each parent is told of where this node listens.
    pub door: Option<Bytes>,
    /// Streams that could not go on with a new parent, oldest first, at most
    /// [`crate::STREAMS_MAX`].
    pub dropped: VecDeque<u32>,
    /// At a leaf: streams that it has left, of which each parent is told.
    pub departed: FxHashSet<u32>,
    /// Leaves that children were asked to let go of.
    pub jobs: Vec<Job>,
    /// Children that are to go below others when nothing is under way.
    pub leaving: Vec<HandOver>,
    /// This process was started anew, perhaps where another was before: streams up to this number
    /// are from that time. `u64::MAX` until a parent has told.
    pub born: Option<u64>,
    /// The last stream that was opened here, as the root counts them.
    pub seen: u64,
    /// The session is over: whoever comes is told so.
    pub over: bool,
    /// A parent has said that the session is over, or this leaf has left it.
    pub dismissed: bool,
    /// The children look for parents of their own.
    pub disbanded: bool,
}

impl Recovery {
    /// Of a node that looks for a parent for so long.
    pub fn new(patience: Duration) -> Self {
        Self {
            parent: None,
            asking: None,
            orphan: None,
            patience,
            epoch: 0,
            unsent: VecDeque::new(),
            door: None,
            dropped: VecDeque::new(),
            departed: FxHashSet::default(),
            jobs: Vec::new(),
            leaving: Vec::new(),
            born: None,
            seen: 0,
            over: false,
            dismissed: false,
            disbanded: false,
        }
    }
}

/// What is known of the leaves below a node, and was passed on.
#[derive(Default)]
pub(super) struct Below {
    /// Those that were reported to run.
    pub ready: RangeSet,
    /// Its parents know which run: the tree has started as far as it will.
    pub told: bool,
    /// Those that have been given up.
    pub lost: RangeSet,
    /// Those that have left as planned.
    pub left: RangeSet,
}

/// When a node has something to do by itself, beside heartbeats.
#[derive(Default)]
pub(super) struct Timers {
    /// No stream has a deadline before this.
    pub streams: Option<Time>,
    /// When [`super::Node::recover`] has something to do.
    pub recovery: Option<Time>,
}

impl Timers {
    /// A stream has a deadline at `at`.
    pub fn wake_streams(&mut self, at: Time) {
        self.streams = Some(self.streams.map_or(at, |have| have.min(at)));
    }

    /// Recovery has something to do at `at`.
    pub fn wake_recovery(&mut self, at: Time) {
        self.recovery = Some(self.recovery.map_or(at, |have| have.min(at)));
    }
}
