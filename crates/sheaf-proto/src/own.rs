//! Inner nodes as members of streams: each node that is no leaf has a leaf of its own beside it, in
//! its process.
//!
//! So whatever is true of leaves (who takes part, who counts, who is lost, who comes back) is true
//! of inner nodes without a word of its own in the protocol. The driver makes the own leaf of a
//! node and joins the two ([`crate::Node::add_own_leaf`]); it lives and ends with the node.
use sheaf_core::RangeSet;

/// The first number of own leaves. Those of hosts are below it, and so are all ranks.
const FIRST: u32 = 1 << 31;

/// The number of the own leaf of the node `rank`, among leaves and among ranks.
#[must_use]
pub const fn leaf_of(rank: u32) -> u32 {
    FIRST | rank
}

/// The rank of the node whose own leaf this is; `None` for the leaf of a host.
#[must_use]
pub const fn rank_of(leaf: u32) -> Option<u32> {
    if leaf < FIRST { None } else { Some(leaf - FIRST) }
}

/// The leaves of hosts among these.
#[must_use]
pub fn hosts(leaves: &RangeSet) -> RangeSet {
    match leaves.last() {
        Some(last) if last >= FIRST => leaves.intersection(&RangeSet::from_range(0, FIRST)),
        _ => leaves.clone(),
    }
}

/// The ranks of the nodes whose own leaves are among these.
#[must_use]
pub fn ranks(leaves: &RangeSet) -> RangeSet {
    let mut ranks = RangeSet::new();
    for &(first, last) in leaves.ranges().iter().filter(|(_, last)| *last >= FIRST) {
        ranks.insert_range(first.max(FIRST) - FIRST, last - FIRST);
    }
    ranks
}

/// Adds the own leaves of the nodes with these ranks.
pub(crate) fn insert(leaves: &mut RangeSet, first: u32, last: u32) {
    leaves.insert_range(leaf_of(first), leaf_of(last));
}
