//! `clock-skew`: how far each leaf's clock is from the root's, link by link.
//!
//! Every node measures the clocks of its children; a partial carries, for each leaf, the sum of
//! the offsets along its path so far, and of the error bounds. The measurements belong to a node,
//! not to a stream, so this filter is registered by whoever runs the node:
//! [`register`] with the node's [`LinkClocks`].
use super::{NOTHING, bad, invalid};
use crate::filter::{Accumulator, Emit, Filter, FilterError, Input, Registry};
use crate::packet::{Fields, pack_into, scalar};
use sheaf_core::Errno;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// What a node knows of the clock at the other end of one link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkClock {
    /// The child's clock less the node's own, in nanoseconds.
    pub offset_ns: i64,
    /// The offset is off by at most so much: half of the shortest round trip.
    pub error_ns: u64,
}

/// A leaf's clock in a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeafClock {
    /// The leaf's index.
    pub leaf: u32,
    /// Its clock less the root's, and the sum of the links' bounds.
    pub clock: LinkClock,
}

/// A node's measurements, by child as [`Input::child`] counts them: in the order of the children
/// of the stream, which for a stream to every leaf is the order of the node's children.
#[derive(Debug, Default)]
pub struct LinkClocks {
    links: Mutex<Vec<Option<LinkClock>>>,
}

impl LinkClocks {
    /// Nothing measured yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets what is known of a child's clock; `None` when it must be measured anew.
    pub fn set(&self, child: u32, clock: Option<LinkClock>) {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let child = child as usize;
        if links.len() <= child {
            links.resize(child + 1, None);
        }
        links[child] = clock;
    }

    /// Takes in one measurement: the node's clock when it asked and when it got the answer, and the
    /// child's when it answered. The best so far, with the smallest error, is kept.
    pub fn measured(&self, child: u32, asked_ns: i64, child_ns: i64, answered_ns: i64) {
        let Some(round_trip) = answered_ns.checked_sub(asked_ns).and_then(|ns| u64::try_from(ns).ok()) else {
            return;
        };
        let error_ns = round_trip.div_ceil(2);
        let middle = asked_ns.saturating_add((round_trip / 2) as i64);
        let clock = LinkClock { offset_ns: child_ns.saturating_sub(middle), error_ns };
        if self.get(child).is_none_or(|best| error_ns < best.error_ns) {
            self.set(child, Some(clock));
        }
    }

    /// What is known of a child's clock.
    #[must_use]
    pub fn get(&self, child: u32) -> Option<LinkClock> {
        let links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.get(child as usize).copied().flatten()
    }
}

/// Adds the filter `clock-skew` of the node with these measurements.
pub fn register(registry: &mut Registry, clocks: Arc<LinkClocks>) {
    registry.register("clock-skew", move |params| {
        if !params.is_empty() {
            return Err(invalid("clock-skew takes no parameters"));
        }
        Ok(Box::new(ClockSkew { clocks: Arc::clone(&clocks) }))
    });
}

/// The leaves' clocks in a result, by leaf.
///
/// # Errors
/// `EBADMSG` when it is none.
pub fn leaf_clocks(result: &[u8]) -> Result<Vec<LeafClock>, FilterError> {
    if result == NOTHING {
        return Ok(Vec::new());
    }
    let fields = Fields::new(result)?.collect::<Result<Vec<_>, _>>()?;
    let columns = match &fields[..] {
        [leaves, offsets, errors] => {
            leaves.elements::<u32>().zip(offsets.elements::<i64>()).zip(errors.elements::<u64>())
        }
        _ => None,
    };
    let ((leaves, offsets), errors) = columns.ok_or_else(|| bad("clocks are %aud %ald %auld"))?;
    if leaves.len() != offsets.len() || leaves.len() != errors.len() {
        return Err(bad("clocks are %aud %ald %auld of one length"));
    }
    let clocks = offsets.zip(errors).map(|(offset_ns, error_ns)| LinkClock { offset_ns, error_ns });
    Ok(leaves.zip(clocks).map(|(leaf, clock)| LeafClock { leaf, clock }).collect())
}

struct ClockSkew {
    clocks: Arc<LinkClocks>,
}

impl Filter for ClockSkew {
    fn accumulator(&self) -> Box<dyn Accumulator> {
        Box::new(Paths { clocks: Arc::clone(&self.clocks), leaves: BTreeMap::new() })
    }
}

struct Paths {
    clocks: Arc<LinkClocks>,
    leaves: BTreeMap<u32, LinkClock>,
}

impl Accumulator for Paths {
    fn fold(&mut self, input: Input<'_>) -> Result<(), FilterError> {
        if input.payload == NOTHING {
            return Ok(());
        }
        let below = if input.raw {
            let leaf = scalar(input.payload)
                .ok_or_else(|| bad("a leaf contributes its index to clock-skew, %ud"))?;
            vec![LeafClock { leaf, clock: LinkClock::default() }]
        } else {
            leaf_clocks(input.payload)?
        };
        let link = self.clocks.get(input.child).ok_or_else(|| {
            let message = format!("the clock of child {} has not been measured yet", input.child);
            FilterError::new(Errno::AGAIN, message)
        })?;
        let too_far = || FilterError::new(Errno::OVERFLOW, "an offset is beyond 292 years");
        let add = |LeafClock { leaf, clock }| {
            let offset_ns = clock.offset_ns.checked_add(link.offset_ns).ok_or_else(too_far)?;
            Ok((leaf, LinkClock { offset_ns, error_ns: clock.error_ns.saturating_add(link.error_ns) }))
        };
        let below: Vec<_> = below.into_iter().map(add).collect::<Result<_, FilterError>>()?;
        self.leaves.extend(below);
        Ok(())
    }

    fn finish(&mut self, _emit: Emit, out: &mut Vec<u8>) -> Result<(), FilterError> {
        let leaves = std::mem::take(&mut self.leaves);
        if leaves.is_empty() {
            out.extend_from_slice(NOTHING);
            return Ok(());
        }
        let indices: Vec<u32> = leaves.keys().copied().collect();
        let offsets: Vec<i64> = leaves.values().map(|clock| clock.offset_ns).collect();
        let errors: Vec<u64> = leaves.values().map(|clock| clock.error_ns).collect();
        pack_into(&[indices.into(), offsets.into(), errors.into()], out)?;
        Ok(())
    }
}
