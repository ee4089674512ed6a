//! Sets of members of a group, named by leaf and local index.
use crate::rangeset::{RANGES_MAX, RangeSet};
use crate::varint::{self, Malformed};

/// A set of group members. A member is `(local, leaf)`: the `local`-th file that host `leaf` put
/// into the group. The name never changes while the group lives, whatever the tree does, and
/// groups with the same layout on every host stay a few bytes however many hosts there are.
///
/// ```
/// use sheaf_core::{MemberSet, RangeSet};
/// let mut set = MemberSet::new();
/// set.insert(0, 7);
/// set.union_with(&MemberSet::of_leaves(0, RangeSet::full(4)));
/// assert_eq!(set.len(), 5);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberSet {
    /// Sorted by local index; no empty set of leaves.
    by_local: Vec<(u32, RangeSet)>,
}

impl MemberSet {
    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { by_local: Vec::new() }
    }

    /// Member `local` of each of `leaves`.
    #[must_use]
    pub fn of_leaves(local: u32, leaves: RangeSet) -> Self {
        Self { by_local: if leaves.is_empty() { Vec::new() } else { vec![(local, leaves)] } }
    }

    /// How many members.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.by_local.iter().map(|(_, leaves)| leaves.len()).sum()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_local.is_empty()
    }

    /// Adds one member.
    pub fn insert(&mut self, local: u32, leaf: u32) {
        self.leaves_mut(local).insert(leaf);
    }

    /// Adds all of `other`.
    pub fn union_with(&mut self, other: &Self) {
        self.union_counted(other);
    }

    /// Adds all of `other`. Returns how many of them were not in the set. Only members of the same
    /// local indices are counted for that.
    pub fn union_counted(&mut self, other: &Self) -> u64 {
        let mut added = 0;
        for (local, leaves) in &other.by_local {
            let have = self.leaves_mut(*local);
            let before = have.len();
            have.union_with(leaves);
            added += have.len() - before;
        }
        added
    }

    /// `(local, leaves)` pairs, by local index.
    #[must_use]
    pub fn by_local(&self) -> &[(u32, RangeSet)] {
        &self.by_local
    }

    /// Every leaf with at least one member in the set.
    #[must_use]
    pub fn leaves(&self) -> RangeSet {
        let mut all = RangeSet::new();
        for (_, leaves) in &self.by_local {
            all.union_with(leaves);
        }
        all
    }

    /// Whether all members are of these leaves.
    #[must_use]
    pub fn is_of(&self, leaves: &RangeSet) -> bool {
        self.by_local.iter().all(|(_, have)| have.is_subset(leaves))
    }

    /// Removes all members of these leaves.
    pub fn remove_leaves(&mut self, leaves: &RangeSet) {
        for (_, have) in &mut self.by_local {
            *have = have.difference(leaves);
        }
        self.by_local.retain(|(_, have)| !have.is_empty());
    }

    /// Smallest member in group order: by leaf, then by local index.
    #[must_use]
    pub fn first(&self) -> Option<(u32, u32)> {
        self.by_local.iter().filter_map(|(local, leaves)| Some((leaves.first()?, *local))).min()
    }

    fn leaves_mut(&mut self, local: u32) -> &mut RangeSet {
        let at = self.by_local.partition_point(|(have, _)| *have < local);
        if self.by_local.get(at).is_none_or(|(have, _)| *have != local) {
            self.by_local.insert(at, (local, RangeSet::new()));
        }
        &mut self.by_local[at].1
    }

    /// Appends the wire form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        varint::put(out, self.by_local.len() as u64);
        for (local, leaves) in &self.by_local {
            varint::put(out, u64::from(*local));
            leaves.encode(out);
        }
    }

    /// Takes a set off the front of `input`.
    ///
    /// # Errors
    /// [`Malformed`] when it is truncated or not sorted by local index, or has more than
    /// [`RANGES_MAX`] ranges of leaves.
    pub fn decode(input: &mut &[u8]) -> Result<Self, Malformed> {
        Self::decode_within(input, &mut { RANGES_MAX })
    }

    /// [`MemberSet::decode`] of one of several sets that may have `ranges_left` ranges together.
    ///
    /// # Errors
    /// [`Malformed`], also when it has more ranges than are left.
    pub fn decode_within(input: &mut &[u8], ranges_left: &mut u64) -> Result<Self, Malformed> {
        let count = varint::get_len(input)?;
        let mut set = Self::new();
        for _ in 0..count {
            let local = varint::get_u32(input)?;
            let leaves = RangeSet::decode_within(input, ranges_left)?;
            if leaves.is_empty() || set.by_local.last().is_some_and(|(last, _)| *last >= local) {
                return Err(Malformed);
            }
            set.by_local.push((local, leaves));
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn few_bytes_cannot_stand_for_more_ranges_than_are_allowed() {
        let odd: RangeSet = (0..RANGES_MAX as u32 / 2).map(|n| 2 * n).collect();
        let mut wire = Vec::new();
        varint::put(&mut wire, 3);
        for local in 0..3 {
            varint::put(&mut wire, local);
            odd.encode(&mut wire);
        }
        assert!(wire.len() < 64);
        assert_eq!(MemberSet::decode(&mut &wire[..]), Err(Malformed));
        wire[0] = 2;
        assert!(MemberSet::decode(&mut &wire[..]).is_ok());
    }

    #[test]
    fn union_counts_the_members_that_are_new() {
        let mut set = MemberSet::of_leaves(1, RangeSet::full(4));
        let mut other = MemberSet::of_leaves(1, RangeSet::from_range(2, 6));
        other.insert(5, 9);
        assert_eq!(set.union_counted(&other), 3);
        assert_eq!((set.union_counted(&other), set.len()), (0, 7));
    }

    proptest! {
        #[test]
        fn wire_form_round_trips(members in proptest::collection::btree_set((0u32..4, 0u32..64), 0..80)) {
            let mut set = MemberSet::new();
            for &(local, leaf) in &members {
                set.insert(local, leaf);
            }
            prop_assert_eq!(set.len(), members.len() as u64);
            prop_assert_eq!(set.first(), members.iter().map(|&(local, leaf)| (leaf, local)).min());
            let mut wire = Vec::new();
            set.encode(&mut wire);
            prop_assert_eq!(MemberSet::decode(&mut &wire[..]), Ok(set));
        }
    }
}
