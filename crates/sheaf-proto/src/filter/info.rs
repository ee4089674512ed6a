//! What a filter is told of the node it runs at.
use crate::config::Tuning;
use crate::topology::NodeRef;
use sheaf_core::lock;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The node that a filter is made for. Links count as one each.
#[derive(Debug, Clone, Default)]
pub struct NodeInfo {
    /// Its rank.
    pub rank: u32,
    /// The stream that the filter is for.
    pub stream: u32,
    /// Links between it and the root.
    pub depth: u32,
    /// Its children.
    pub children: u32,
    /// The leaves below it.
    pub leaves: u32,
    /// What is known of the rest of the tree.
    pub place: Place,
    /// How the clocks of its children differ from its own, as far as that is known by now.
    pub clocks: Arc<LinkClocks>,
    /// What one call may take.
    pub bounds: Bounds,
}

/// What one call of a WebAssembly filter may take ([`crate::Tuning::filter_steps_max`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Steps of about an instruction.
    pub steps_max: u64,
    /// Time.
    pub time_max: Duration,
}

impl Bounds {
    /// Those that these settings say.
    #[must_use]
    pub fn of(tuning: &Tuning) -> Self {
        Self { steps_max: tuning.filter_steps_max, time_max: tuning.filter_time_max }
    }
}

impl Default for Bounds {
    fn default() -> Self {
        Self::of(&Tuning::default())
    }
}

impl NodeInfo {
    /// Of a node as it is planned, for those who run a filter in its place.
    #[must_use]
    pub fn planned(node: NodeRef<'_>, stream: u32) -> Self {
        Self {
            rank: node.rank(),
            stream,
            depth: std::iter::successors(node.parent(), |above| above.parent()).count() as u32,
            children: node.children().len() as u32,
            leaves: node.leaves().len() as u32,
            place: Place::of(node),
            clocks: Arc::default(),
            bounds: Bounds::default(),
        }
    }
}

/// Where a node stands in the planned tree, beyond what its links say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// The other children of its parent.
    pub siblings: u32,
    /// Nodes below it, leaves and others.
    pub descendants: u32,
    /// Links between it and the leaf furthest below it.
    pub height: u32,
    /// Links between it and the leaf nearest below it.
    pub nearest_leaf: u32,
}

impl Place {
    /// Where a node stands. (Of a sub-tree's root the siblings are not known.)
    #[must_use]
    pub fn of(node: NodeRef<'_>) -> Self {
        let siblings = node.parent().map_or(0, |parent| parent.children().len() as u32 - 1);
        let mut place = Self { siblings, ..Self::default() };
        let (mut level, mut nearest) = (vec![node], None);
        loop {
            if nearest.is_none() && level.iter().any(|node| node.children().len() == 0) {
                nearest = Some(place.height);
            }
            level = level.into_iter().flat_map(NodeRef::children).collect();
            if level.is_empty() {
                return Self { nearest_leaf: nearest.unwrap_or(place.height), ..place };
            }
            place.descendants += level.len() as u32;
            place.height += 1;
        }
    }

    /// The place of a node whose only child is a node in this place.
    #[must_use]
    pub fn above(self) -> Self {
        Self {
            siblings: 0,
            descendants: self.descendants + 1,
            height: self.height + 1,
            nearest_leaf: self.nearest_leaf + 1,
        }
    }
}

/// What a node knows of the clock at the other end of one link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkClock {
    /// The child's clock less the node's own, in nanoseconds.
    pub offset_ns: i64,
    /// The offset is off by at most so much: half of the shortest round trip.
    pub error_ns: u64,
}

/// A node's measurements of its children's clocks, by the child's rank.
#[derive(Debug, Default)]
pub struct LinkClocks {
    links: Mutex<BTreeMap<u32, LinkClock>>,
}

impl LinkClocks {
    /// Nothing measured yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets what is known of a child's clock; `None` when it must be measured anew.
    pub fn set(&self, rank: u32, clock: Option<LinkClock>) {
        let mut links = lock(&self.links);
        match clock {
            Some(clock) => links.insert(rank, clock),
            None => links.remove(&rank),
        };
    }

    /// Takes in one measurement: the node's clock when it asked and when it got the answer, and the
    /// child's when it answered. The best so far, with the smallest error, is kept.
    pub fn measured(&self, rank: u32, asked_ns: i64, child_ns: i64, answered_ns: i64) {
        // A clock that was set back between question and answer measures nothing.
        let Some(round_trip) =
            answered_ns.checked_sub(asked_ns).and_then(|ns| u64::try_from(ns).ok())
        else {
            return;
        };
        let error_ns = round_trip.div_ceil(2);
        let middle = asked_ns.saturating_add((round_trip / 2) as i64);
        let clock = LinkClock { offset_ns: child_ns.saturating_sub(middle), error_ns };
        if self.get(rank).is_none_or(|best| error_ns < best.error_ns) {
            self.set(rank, Some(clock));
        }
    }

    /// What is known of a child's clock.
    #[must_use]
    pub fn get(&self, rank: u32) -> Option<LinkClock> {
        let links = lock(&self.links);
        links.get(&rank).copied()
    }
}
