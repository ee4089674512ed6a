//! Where each host's members are in the group: counts summed up in host order.
//!
//! On the wire a member is a leaf and a place on that leaf. Only the client turns this into an
//! index, by the counts that came when the group was opened. So no base index is distributed, and
//! a change of the tree touches no index.
//!
//! TBON-FS, section 3.2, keeps the same split: servers know their own members, and the client only
//! sizes.
use sheaf_core::{MemberSet, RangeSet};

/// Hosts next to each other with equally many members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MemberRun {
    first: u32,
    last: u32,
    count: u32,
    /// Index of the first member of the first leaf.
    base: u64,
}

/// How many members each host has, run-length coded: the same layout on every host takes one run.
///
/// A member's index is the number of members on earlier hosts plus its place on its own. The
/// servers name members by leaf and place, which no change of the tree touches; only here are
/// they turned into indices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct MemberLayout {
    runs: Vec<MemberRun>,
    size: u64,
}

impl MemberLayout {
    pub fn new(counts: &[(u32, RangeSet)]) -> Self {
        let ranges = counts
            .iter()
            .flat_map(|(count, leaves)| leaves.ranges().iter().map(move |range| (*range, *count)));
        let mut ranges: Vec<((u32, u32), u32)> = ranges.filter(|(_, count)| *count > 0).collect();
        ranges.sort_unstable();
        let mut layout = Self::default();
        for ((first, last), count) in ranges {
            layout.runs.push(MemberRun { first, last, count, base: layout.size });
            layout.size += (u64::from(last - first) + 1) * u64::from(count);
        }
        layout
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    /// The leaves that have members.
    pub fn leaves(&self) -> RangeSet {
        let mut leaves = RangeSet::new();
        self.runs.iter().for_each(|run| leaves.insert_range(run.first, run.last));
        leaves
    }

    pub fn index(&self, leaf: u32, local: u32) -> Option<u64> {
        let at = self.runs.partition_point(|run| run.last < leaf);
        let run = self.runs.get(at).filter(|run| run.first <= leaf && local < run.count)?;
        Some(run.base + u64::from(leaf - run.first) * u64::from(run.count) + u64::from(local))
    }

    /// The leaf of a member and its place there.
    pub fn member(&self, index: u64) -> Option<(u32, u32)> {
        let at = self.runs.partition_point(|run| run.base <= index).checked_sub(1)?;
        let run = self.runs.get(at).filter(|_| index < self.size)?;
        let (leaves, local) =
            ((index - run.base) / u64::from(run.count), (index - run.base) % u64::from(run.count));
        Some((run.first + u32::try_from(leaves).ok()?, u32::try_from(local).ok()?))
    }

    /// The members as strided ranges `(start, stride, count)` of indices, in order.
    pub fn strided(&self, members: &MemberSet) -> Vec<(u64, u64, u64)> {
        let mut indices = Vec::new();
        for (local, leaves) in members.by_local() {
            indices.extend(leaves.iter().filter_map(|leaf| self.index(leaf, *local)));
        }
        indices.sort_unstable();
        let mut ranges: Vec<(u64, u64, u64)> = Vec::new();
        for index in indices {
            match ranges.last_mut() {
                Some((start, stride, count)) if *count == 1 => {
                    *stride = index - *start;
                    *count = 2;
                }
                Some((start, stride, count)) if index == *start + *stride * *count => *count += 1,
                _ => ranges.push((index, 1, 1)),
            }
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_follow_host_order_and_place() {
        let counts = [
            (1, RangeSet::from_range(0, 4)),
            (3, RangeSet::from_range(5, 7)),
            (0, RangeSet::single(4)),
        ];
        let layout = MemberLayout::new(&counts);
        assert_eq!(layout.size(), 10);
        let all: Vec<_> = [(0, 0), (3, 0), (5, 0), (5, 2), (6, 0), (6, 2)]
            .map(|(l, p)| layout.index(l, p))
            .into();
        assert_eq!(all, [Some(0), Some(3), Some(4), Some(6), Some(7), Some(9)]);
        for index in 0..10 {
            let (leaf, local) = layout.member(index).unwrap();
            assert_eq!(layout.index(leaf, local), Some(index));
        }
        assert_eq!(layout.member(10), None);
        assert_eq!([layout.index(4, 0), layout.index(0, 1), layout.index(7, 0)], [None; 3]);
    }

    #[test]
    fn strides_are_found() {
        let layout = MemberLayout::new(&[(2, RangeSet::full(8))]);
        let odd = MemberSet::of_leaves(1, RangeSet::full(8));
        assert_eq!(layout.strided(&odd), [(1, 2, 8)]);
    }
}
