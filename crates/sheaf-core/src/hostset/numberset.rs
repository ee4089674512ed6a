//! Sets of numbers as they stand in names, `1-5,08-12`, kept as ranges.
mod fold;
mod parse;

use super::number;
use super::sweep::{SetOp, SweepSpan, sweep};

pub use fold::AUTOSTEP_OFF;

/// A set of numbers with their leading zeros: one axis of a host set, and what `nodeset -R` works
/// on.
///
/// Ordered by number of digits, then by value, as the hosts that carry them.
///
/// ```
/// use sheaf_core::hostset::NumberSet;
/// let set = NumberSet::parse("8-12,08,1-5/2").unwrap();
/// assert_eq!(set.to_string(), "1,3,5,8-9,08,10-12");
/// assert_eq!(set.len(), 9);
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct NumberSet {
    /// Sorted, disjoint, with a gap between neighbours.
    runs: Vec<NumberRun>,
}

/// Packed numbers `first..=last`, with `before` numbers of the set in front of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NumberRun {
    first: i64,
    last: i64,
    before: u64,
}

impl NumberRun {
    fn len(&self) -> u64 {
        self.last.abs_diff(self.first) + 1
    }
}

impl SweepSpan for NumberRun {
    fn first(&self) -> i64 {
        self.first
    }
    fn last(&self) -> i64 {
        self.last
    }
}

impl NumberSet {
    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { runs: Vec::new() }
    }

    /// How many numbers it holds.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.runs.last().map_or(0, |run| run.before + run.len())
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Every number as it is written, in order.
    pub fn iter(&self) -> impl Iterator<Item = String> + '_ {
        self.numbers().map(number::text)
    }

    /// The values as inclusive ranges, in order; how they are written does not matter.
    pub fn value_ranges(&self) -> impl Iterator<Item = (i64, i64)> + '_ {
        self.runs.iter().map(|run| (number::value(run.first), number::value(run.last)))
    }

    /// What is in either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.combine(SetOp::Union, other)
    }

    /// What is in `self` and not in `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.combine(SetOp::Difference, other)
    }

    /// What is in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.combine(SetOp::Intersection, other)
    }

    /// What is in exactly one.
    #[must_use]
    pub fn symmetric_difference(&self, other: &Self) -> Self {
        self.combine(SetOp::Xor, other)
    }

    /// The numbers at positions `from..to`.
    #[must_use]
    pub fn slice(&self, from: u64, to: u64) -> Self {
        Self::of_ranges(self.ranges_at(from, to).collect())
    }

    /// The packed ranges of the numbers at positions `from..to`.
    pub(super) fn ranges_at(&self, from: u64, to: u64) -> impl Iterator<Item = (i64, i64)> + '_ {
        let at = self.runs.partition_point(|run| run.before + run.len() <= from);
        let reached = self.runs[at..].iter().take_while(move |run| run.before < to && from < to);
        reached.map(move |run| {
            let skip = from.saturating_sub(run.before);
            let take = (to - run.before).min(run.len());
            (run.first + skip as i64, run.first + take as i64 - 1)
        })
    }

    /// The sets of numbers that follow each other without a gap.
    #[must_use]
    pub fn contiguous(&self) -> Vec<Self> {
        let mut out: Vec<Self> = Vec::new();
        let mut joiner = fold::Joiner::default();
        for run in &self.runs {
            match out.last_mut().filter(|_| joiner.joins(run)) {
                Some(set) => set.push(run.first, run.last),
                None => out.push(Self::of_range(run.first, run.last)),
            }
            joiner.pass(run);
        }
        out
    }

    pub(super) fn single(number: i64) -> Self {
        Self::of_range(number, number)
    }

    pub(super) fn of_range(first: i64, last: i64) -> Self {
        Self { runs: vec![NumberRun { first, last, before: 0 }] }
    }

    /// From ranges in any order, which may overlap.
    pub(super) fn of_ranges(mut ranges: Vec<(i64, i64)>) -> Self {
        if !ranges.is_sorted() {
            ranges.sort_unstable();
        }
        let mut out = Self::new();
        for (first, last) in ranges {
            out.push(first, last);
        }
        out
    }

    /// The union of many sets at the price of one sort.
    pub(super) fn of_sets<'s>(sets: impl IntoIterator<Item = &'s Self>) -> Self {
        Self::of_ranges(sets.into_iter().flat_map(Self::ranges).collect())
    }

    /// Appends a range that starts at or after the start of the last one.
    fn push(&mut self, first: i64, last: i64) {
        let before = self.len();
        match self.runs.last_mut() {
            Some(end) if first <= end.last.saturating_add(1) => end.last = end.last.max(last),
            _ => self.runs.push(NumberRun { first, last, before }),
        }
    }

    pub(super) fn combine(&self, op: SetOp, other: &Self) -> Self {
        let mut out = Self::new();
        sweep(&self.runs, &other.runs, |first, last, left, right| {
            if op.keeps(left.is_some(), right.is_some()) {
                out.push(first, last);
            }
        });
        out
    }

    /// The packed ranges, ascending.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (i64, i64)> + '_ {
        self.runs.iter().map(|run| (run.first, run.last))
    }

    /// The packed numbers, ascending.
    pub(super) fn numbers(&self) -> impl Iterator<Item = i64> + '_ {
        self.runs.iter().flat_map(|run| run.first..=run.last)
    }

    pub(super) fn first(&self) -> Option<i64> {
        self.runs.first().map(|run| run.first)
    }

    pub(super) fn last(&self) -> Option<i64> {
        self.runs.last().map(|run| run.last)
    }

    pub(super) fn nth(&self, index: u64) -> Option<i64> {
        let at = self.runs.partition_point(|run| run.before + run.len() <= index);
        self.runs.get(at).map(|run| run.first + (index - run.before) as i64)
    }

    pub(super) fn rank(&self, number: i64) -> Option<u64> {
        let at = self.runs.partition_point(|run| run.last < number);
        let run = self.runs.get(at).filter(|run| run.first <= number)?;
        Some(run.before + number.abs_diff(run.first))
    }

    /// How many ranges apart it has.
    pub(super) fn ranges_len(&self) -> u64 {
        self.runs.len() as u64
    }

    /// The negative numbers made positive, and the others.
    pub(super) fn split_signs(self) -> (Self, Self) {
        if self.first().is_none_or(|first| first >= 0) {
            return (Self::new(), self);
        }
        let (mut below, mut above) = (Vec::new(), Vec::new());
        for (first, last) in self.ranges() {
            if last < 0 {
                parse::plain_ranges(-last, -first, &mut below);
            } else {
                above.push((first, last));
            }
        }
        (Self::of_ranges(below), Self::of_ranges(above))
    }
}

impl FromIterator<i64> for NumberSet {
    /// From values, written without leading zeros.
    fn from_iter<I: IntoIterator<Item = i64>>(values: I) -> Self {
        Self::of_ranges(
            values.into_iter().map(number::pack_plain).map(|number| (number, number)).collect(),
        )
    }
}
