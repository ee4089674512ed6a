//! Sets of small integers as sorted, disjoint, non-adjacent ranges.
use crate::varint::{self, Malformed};
use std::fmt;

/// The most ranges one encoded set may claim; a decoder refuses more.
pub const RANGES_MAX: u64 = 1 << 22;

/// A set of `u32` kept as sorted inclusive ranges: the leaves that answered, were silent, failed.
///
/// The wire form run-length codes ranges of equal length and spacing, so that every second leaf
/// of a million costs as little as all of them.
///
/// ```
/// use sheaf_core::RangeSet;
/// let odd: RangeSet = (0..1_000_000).filter(|leaf| leaf % 2 == 1).collect();
/// let mut wire = Vec::new();
/// odd.encode(&mut wire);
/// assert!(wire.len() < 16);
/// assert_eq!(RangeSet::decode(&mut &wire[..]).unwrap(), odd);
/// ```
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RangeSet {
    /// Sorted `(first, last)`, with a gap of at least one between neighbours.
    ranges: Vec<(u32, u32)>,
}

impl RangeSet {
    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { ranges: Vec::new() }
    }

    /// `0..count`.
    #[must_use]
    pub fn full(count: u32) -> Self {
        Self::from_range(0, count)
    }

    /// `start..end` (empty when `end <= start`).
    #[must_use]
    pub fn from_range(start: u32, end: u32) -> Self {
        let ranges = if start < end { vec![(start, end - 1)] } else { Vec::new() };
        Self { ranges }
    }

    /// The set of one.
    #[must_use]
    pub fn single(value: u32) -> Self {
        Self { ranges: vec![(value, value)] }
    }

    /// How many values it holds.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.ranges.iter().map(|&(first, last)| u64::from(last - first) + 1).sum()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether it holds `value`.
    #[must_use]
    pub fn contains(&self, value: u32) -> bool {
        let at = self.ranges.partition_point(|&(_, last)| last < value);
        self.ranges.get(at).is_some_and(|&(first, _)| first <= value)
    }

    /// The smallest value.
    #[must_use]
    pub fn first(&self) -> Option<u32> {
        self.ranges.first().map(|&(first, _)| first)
    }

    /// The largest value.
    #[must_use]
    pub fn last(&self) -> Option<u32> {
        self.ranges.last().map(|&(_, last)| last)
    }

    /// The inclusive ranges, ascending.
    #[must_use]
    pub fn ranges(&self) -> &[(u32, u32)] {
        &self.ranges
    }

    /// Every value, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.ranges.iter().flat_map(|&(first, last)| first..=last)
    }

    /// Position of `value` among the values of the set.
    #[must_use]
    pub fn position(&self, value: u32) -> Option<u64> {
        let mut before = 0;
        for &(first, last) in &self.ranges {
            if value < first {
                return None;
            }
            if value <= last {
                return Some(before + u64::from(value - first));
            }
            before += u64::from(last - first) + 1;
        }
        None
    }

    /// Adds one value.
    pub fn insert(&mut self, value: u32) {
        self.insert_range(value, value);
    }

    /// Adds `first..=last`.
    pub fn insert_range(&mut self, first: u32, last: u32) {
        debug_assert!(first <= last);
        // Appending in order is what merging sub-trees does; keep it free of searches.
        if self.ranges.last().is_none_or(|&(_, end)| end < first && first - end > 1) {
            self.ranges.push((first, last));
            return;
        }
        let from = self.ranges.partition_point(|&(_, end)| end < first && first - end > 1);
        let to = self.ranges.partition_point(|&(start, _)| start <= last.saturating_add(1));
        if from >= to {
            self.ranges.insert(from, (first, last));
            return;
        }
        let merged = (first.min(self.ranges[from].0), last.max(self.ranges[to - 1].1));
        self.ranges.splice(from..to, [merged]);
    }

    /// Adds all of `other`.
    pub fn union_with(&mut self, other: &Self) {
        let (Some(first), Some(end)) = (other.first(), self.last()) else {
            if self.is_empty() {
                self.ranges.clone_from(&other.ranges);
            }
            return;
        };
        if end < first || other.ranges.len() <= 4 {
            for &(first, last) in &other.ranges {
                self.insert_range(first, last);
            }
            return;
        }
        let mut all = std::mem::take(&mut self.ranges);
        all.extend_from_slice(&other.ranges);
        all.sort_unstable();
        for (first, last) in all {
            self.insert_range(first, last);
        }
    }

    /// What is in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let (mut a, mut b) = (self.ranges.iter().peekable(), other.ranges.iter().peekable());
        let mut out = Self::new();
        while let (Some(&&(a0, a1)), Some(&&(b0, b1))) = (a.peek(), b.peek()) {
            let (first, last) = (a0.max(b0), a1.min(b1));
            if first <= last {
                out.insert_range(first, last);
            }
            if a1 < b1 {
                a.next();
            } else {
                b.next();
            }
        }
        out
    }

    /// What is in `self` and not in `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut out = Self::new();
        let mut holes = other.ranges.iter().copied().peekable();
        for &(first, last) in &self.ranges {
            let mut from = u64::from(first);
            while holes.next_if(|&(_, end)| u64::from(end) < from).is_some() {}
            let mut rest = holes.clone();
            while let Some((hole_first, hole_last)) = rest.next_if(|&(start, _)| start <= last) {
                if from < u64::from(hole_first) {
                    out.insert_range(from as u32, hole_first - 1);
                }
                from = from.max(u64::from(hole_last) + 1);
            }
            if from <= u64::from(last) {
                out.insert_range(from as u32, last);
            }
        }
        out
    }

    /// Whether every value of `self` is in `other`.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.ranges.iter().all(|&(first, last)| {
            let at = other.ranges.partition_point(|&(_, end)| end < first);
            other.ranges.get(at).is_some_and(|&(start, end)| start <= first && last <= end)
        })
    }

    /// Whether no value is in both.
    #[must_use]
    pub fn is_disjoint(&self, other: &Self) -> bool {
        let (few, many) =
            if self.ranges.len() <= other.ranges.len() { (self, other) } else { (other, self) };
        few.ranges.iter().all(|&(first, last)| {
            let at = many.ranges.partition_point(|&(_, end)| end < first);
            many.ranges.get(at).is_none_or(|&(start, _)| start > last)
        })
    }

    /// Appends the wire form: runs of `(gap, length − 1, repeats, spacing)` as variable-length
    /// integers; `spacing` only when a run repeats.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let runs = self.runs();
        varint::put(out, runs.len() as u64);
        let mut at = 0u64;
        for run in runs {
            varint::put(out, u64::from(run.first) - at);
            varint::put(out, u64::from(run.span));
            varint::put(out, u64::from(run.repeats));
            if run.repeats > 0 {
                varint::put(out, u64::from(run.spacing));
            }
            at = u64::from(run.first)
                + u64::from(run.repeats) * u64::from(run.spacing)
                + u64::from(run.span)
                + 1;
        }
    }

    /// Takes a set off the front of `input`.
    ///
    /// # Errors
    /// [`Malformed`] when it is truncated, overlapping, beyond 32 bits, or claims more than
    /// 4,194,304 ranges.
    pub fn decode(input: &mut &[u8]) -> Result<Self, Malformed> {
        Self::decode_within(input, &mut { RANGES_MAX })
    }

    /// [`RangeSet::decode`] of one of several sets that may have `ranges_left` ranges together: a
    /// few forged bytes stand for as many as are allowed.
    ///
    /// # Errors
    /// [`Malformed`], also when it has more ranges than are left.
    pub fn decode_within(input: &mut &[u8], ranges_left: &mut u64) -> Result<Self, Malformed> {
        let runs = varint::get(input)?;
        let (mut set, mut at) = (Self::new(), 0u64);
        for _ in 0..runs {
            let first = at.checked_add(varint::get(input)?).ok_or(Malformed)?;
            let span = varint::get(input)?;
            let repeats = varint::get(input)?;
            let spacing = if repeats > 0 { varint::get(input)? } else { 0 };
            let ranges = repeats.checked_add(1).ok_or(Malformed)?;
            *ranges_left = ranges_left.checked_sub(ranges).ok_or(Malformed)?;
            if repeats > 0 && spacing <= span {
                return Err(Malformed);
            }
            let end = repeats
                .checked_mul(spacing)
                .and_then(|reach| reach.checked_add(first)?.checked_add(span))
                .filter(|&end| end <= u64::from(u32::MAX))
                .ok_or(Malformed)?;
            for repeat in 0..=repeats {
                let start = first + repeat * spacing;
                set.insert_range(start as u32, (start + span) as u32);
            }
            at = end + 1;
        }
        Ok(set)
    }

    fn runs(&self) -> Vec<RangeRun> {
        let mut runs: Vec<RangeRun> = Vec::new();
        for &(first, last) in &self.ranges {
            let span = last - first;
            if let Some(run) = runs.last_mut().filter(|run| run.span == span) {
                let previous = run.first + run.repeats * run.spacing;
                if run.repeats == 0 || first - previous == run.spacing {
                    run.spacing = first - previous;
                    run.repeats += 1;
                    continue;
                }
            }
            runs.push(RangeRun { first, span, repeats: 0, spacing: 0 });
        }
        runs
    }
}

/// `repeats + 1` ranges of `span + 1` values, `spacing` apart.
struct RangeRun {
    first: u32,
    span: u32,
    repeats: u32,
    spacing: u32,
}

impl FromIterator<u32> for RangeSet {
    fn from_iter<I: IntoIterator<Item = u32>>(values: I) -> Self {
        let mut set = Self::new();
        for value in values {
            set.insert(value);
        }
        set
    }
}

impl serde::Serialize for RangeSet {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut wire = Vec::new();
        self.encode(&mut wire);
        serializer.serialize_bytes(&wire)
    }
}

impl<'de> serde::Deserialize<'de> for RangeSet {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wire = <&[u8]>::deserialize(deserializer)?;
        Self::decode(&mut &wire[..]).map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for RangeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, &(first, last)) in self.ranges.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            if first == last {
                write!(f, "{comma}{first}")?;
            } else {
                write!(f, "{comma}{first}-{last}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for RangeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn values() -> impl Strategy<Value = BTreeSet<u32>> {
        proptest::collection::btree_set(0u32..120, 0..60)
    }

    proptest! {
        #[test]
        fn agrees_with_a_btree_set(a in values(), b in values(), extra in 0u32..120) {
            let (x, y): (RangeSet, RangeSet) = (a.iter().copied().collect(), b.iter().copied().collect());
            let mut union = x.clone();
            union.union_with(&y);
            prop_assert!(union.iter().eq(a.union(&b).copied()));
            prop_assert!(x.intersection(&y).iter().eq(a.intersection(&b).copied()));
            prop_assert!(x.difference(&y).iter().eq(a.difference(&b).copied()));
            prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
            prop_assert_eq!(x.contains(extra), a.contains(&extra));
            prop_assert_eq!(x.position(extra), a.iter().position(|&v| v == extra).map(|p| p as u64));
            prop_assert_eq!(x.len(), a.len() as u64);
        }

        #[test]
        fn wire_form_round_trips(a in values()) {
            let set: RangeSet = a.iter().copied().collect();
            let mut wire = Vec::new();
            set.encode(&mut wire);
            let mut input = &wire[..];
            prop_assert_eq!(RangeSet::decode(&mut input), Ok(set));
            prop_assert!(input.is_empty());
        }

        #[test]
        fn decoding_garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = RangeSet::decode(&mut &bytes[..]);
        }
    }

    #[test]
    fn last_value_is_reachable() {
        let mut set = RangeSet::single(u32::MAX);
        set.insert(u32::MAX - 1);
        assert_eq!(set.ranges(), &[(u32::MAX - 1, u32::MAX)]);
        assert!(set.difference(&set).is_empty());
    }
}
