//! What a node is told when it starts.
use crate::filter::Place;
use crate::own;
use serde::{Deserialize, Serialize};
use sheaf_core::RangeSet;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A point in time, as nanoseconds since some moment the driver chose. The protocol reads no
/// clock: whoever drives a node says what time it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Time(pub u64);

impl Add<Duration> for Time {
    type Output = Self;
    fn add(self, rhs: Duration) -> Self {
        // Saturates: a configured timeout of centuries must not wrap to a deadline in the past.
        Self(self.0.saturating_add(u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Time {
    type Output = Duration;
    fn sub(self, rhs: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(rhs.0))
    }
}

/// A node's place in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeRole {
    /// The session's root: the local application opens streams.
    Root,
    /// Forwards and folds.
    Inner,
    /// A server: the local service answers.
    Leaf,
}

/// One child of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Child {
    /// Its rank.
    pub rank: u32,
    /// The leaves below it (itself, if it is one), own leaves of nodes among them.
    pub leaves: RangeSet,
}

/// A node before it starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeConfig {
    /// Its rank.
    pub rank: u32,
    /// Its place.
    pub role: NodeRole,
    /// Links between it and the root.
    pub depth: u32,
    /// The leaves below it (itself, if it is one), with the own leaves of nodes ([`crate::own`]),
    /// its own among them.
    pub leaves: RangeSet,
    /// Its children, in leaf order, without its own leaf.
    pub children: Vec<Child>,
    /// First identifier of the streams it opens.
    pub stream_base: u32,
    /// What its filters are told of the tree beyond its links.
    pub place: Place,
    /// Bounds and intervals.
    pub tuning: Tuning,
}

impl NodeConfig {
    /// The own leaf of this node ([`crate::own`]), which is none itself.
    #[must_use]
    pub fn own_leaf(&self) -> Self {
        let leaf = own::leaf_of(self.rank);
        Self {
            rank: leaf,
            role: NodeRole::Leaf,
            depth: self.depth + 1,
            leaves: RangeSet::single(leaf),
            children: Vec::new(),
            // Never used: a leaf opens no stream, it asks the root for one (`Node::want_stream`).
            stream_base: 0,
            place: Place::default(),
            tuning: self.tuning,
        }
    }
}

/// Bounds and intervals, the same at every node of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tuning {
    /// A link that has been silent this long carries a heartbeat.
    pub heartbeat_interval: Duration,
    /// A peer that has not been heard for this long is lost.
    pub heartbeat_timeout: Duration,
    /// The leaves below a child whose link was lost are waited for this long; then they are lost.
    pub adoption_grace: Duration,
    /// A node that has lost its parent looks for another for this long. Then it ends, and each of
    /// its children looks for one; all of them are done when this has passed once more. Zero: it
    /// never looks, and so keeps nothing of what it has sent for another parent.
    pub orphan_timeout: Duration,
    /// Bytes of one stream that may be under way on one link, each way.
    pub window_bytes: u32,
    /// The largest packet a node puts together.
    pub packet_bytes_max: u64,
    /// How much one call of a WebAssembly filter may do, in steps of about an instruction, and how
    /// long it may take: less than neighbours wait for a sign of life.
    pub filter_steps_max: u64,
    /// See [`Self::filter_steps_max`].
    pub filter_time_max: Duration,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            heartbeat_interval: Duration::from_secs(1),
            heartbeat_timeout: Duration::from_secs(6),
            adoption_grace: Duration::from_secs(3),
            orphan_timeout: Duration::from_secs(4),
            window_bytes: 1 << 20,
            packet_bytes_max: 256 << 20,
            filter_steps_max: 1 << 31,
            filter_time_max: Duration::from_secs(3),
        }
    }
}
