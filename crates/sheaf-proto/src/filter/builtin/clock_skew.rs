//! `clock-skew`: how far each leaf's clock is from the root's, link by link.
//!
//! Every node measures the clocks of its children; a partial carries, for each leaf, the sum of the
//! offsets along its path so far, and of the error bounds. The measurements belong to a node and
//! not to a stream: they are the node's [`LinkClocks`], which it keeps up to date.
use super::{NOTHING, bad, invalid};
use crate::filter::{
    Accumulator, Emit, Filter, FilterError, Input, LinkClock, LinkClocks, Registry,
};
use crate::packet::{Fields, pack_into, scalar};
use sheaf_core::Errno;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A leaf's clock in a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeafClock {
    /// The leaf's index.
    pub leaf: u32,
    /// Its clock less the root's, and the sum of the links' bounds.
    pub clock: LinkClock,
}

pub(super) fn register(registry: &mut Registry) {
    registry.register_at("clock-skew", |params, info| {
        if !params.is_empty() {
            return Err(invalid("clock-skew takes no parameters"));
        }
        Ok(Box::new(ClockSkew { clocks: Arc::clone(&info.clocks) }))
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
        let link = self.clocks.get(input.rank).ok_or_else(|| {
            let message = format!("the clock of node {} has not been measured yet", input.rank);
            FilterError::new(Errno::AGAIN, message)
        })?;
        let too_far = || FilterError::new(Errno::OVERFLOW, "an offset is beyond 292 years");
        let add = |LeafClock { leaf, clock }| {
            let offset_ns = clock.offset_ns.checked_add(link.offset_ns).ok_or_else(too_far)?;
            Ok((
                leaf,
                LinkClock { offset_ns, error_ns: clock.error_ns.saturating_add(link.error_ns) },
            ))
        };
        // All offsets first, because an error must leave the accumulator as it was.
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
