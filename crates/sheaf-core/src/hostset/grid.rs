//! Sets of points with several coordinates: the numbers of `rack[1-4]n[1-16]`.
//!
//! A set is a tree of ranges, one level per coordinate; neighbouring ranges with equal sub-trees
//! are merged, so equal sets have equal trees, a product of ranges is one path, and the algebra
//! costs what the trees weigh, not what the sets hold.
pub(super) mod blocks;
mod fold;

use super::numberset::NumberSet;
use super::sweep::{SetOp, SweepSpan, sweep};
use std::sync::Arc;

pub(super) use fold::fold;

/// A set of points; one coordinate is a [`Grid::Line`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Grid {
    Line(NumberSet),
    Plane(Vec<Edge>),
}

/// The coordinates `first..=last`, each with the points of `below` behind it.
#[derive(Clone, Debug)]
pub(super) struct Edge {
    pub(super) first: i64,
    pub(super) last: i64,
    pub(super) below: Arc<Grid>,
}

impl PartialEq for Edge {
    fn eq(&self, other: &Self) -> bool {
        (self.first, self.last) == (other.first, other.last) && same(&self.below, &other.below)
    }
}

impl Eq for Edge {}

impl SweepSpan for Edge {
    fn first(&self) -> i64 {
        self.first
    }
    fn last(&self) -> i64 {
        self.last
    }
}

impl Grid {
    /// The product of the axes, of which there is at least one.
    pub(super) fn product(axes: &[NumberSet]) -> Self {
        let Some((axis, rest)) = axes.split_first() else { return Self::Line(NumberSet::new()) };
        if rest.is_empty() {
            return Self::Line(axis.clone());
        }
        let below = Arc::new(Self::product(rest));
        let edge = |(first, last)| Edge { first, last, below: below.clone() };
        Self::Plane(axis.ranges().map(edge).collect())
    }

    /// The set of `points`, each of `dims` coordinates, given one after another.
    pub(super) fn of_points(points: &[i64], dims: usize) -> Self {
        let mut rows: Vec<&[i64]> = points.chunks_exact(dims).collect();
        if !rows.is_sorted() {
            rows.sort_unstable();
        }
        Self::of_rows(&rows, 0, dims)
    }

    fn of_rows(rows: &[&[i64]], axis: usize, dims: usize) -> Self {
        if axis + 1 == dims {
            return Self::Line(NumberSet::of_ranges(
                rows.iter().map(|row| (row[axis], row[axis])).collect(),
            ));
        }
        let mut edges = Vec::new();
        for group in rows.chunk_by(|a, b| a[axis] == b[axis]) {
            let at = group[0][axis];
            push(&mut edges, at, at, Arc::new(Self::of_rows(group, axis + 1, dims)));
        }
        Self::Plane(edges)
    }

    /// The union of many sets of the same number of coordinates.
    pub(super) fn of_grids(mut grids: Vec<Self>) -> Option<Self> {
        // Merging neighbours keeps both sides about equally heavy.
        while grids.len() > 1 {
            let mut pairs = grids.into_iter();
            let mut next = Vec::with_capacity(pairs.len().div_ceil(2));
            while let Some(left) = pairs.next() {
                next.push(match pairs.next() {
                    Some(right) => left.combine(SetOp::Union, &right),
                    None => left,
                });
            }
            grids = next;
        }
        grids.pop()
    }

    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Line(set) => set.len(),
            Self::Plane(edges) => edges
                .iter()
                .map(|edge| (edge.last.abs_diff(edge.first) + 1) * edge.below.len())
                .sum(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Line(set) => set.is_empty(),
            Self::Plane(edges) => edges.is_empty(),
        }
    }

    pub(super) fn contains(&self, point: &[i64]) -> bool {
        match (self, point) {
            (Self::Line(set), &[number]) => set.rank(number).is_some(),
            (Self::Plane(edges), &[number, ref rest @ ..]) => {
                let at = edges.partition_point(|edge| edge.last < number);
                edges.get(at).is_some_and(|edge| edge.first <= number && edge.below.contains(rest))
            }
            _ => false,
        }
    }

    /// Both sets must have the same number of coordinates.
    pub(super) fn combine(&self, op: SetOp, other: &Self) -> Self {
        match (self, other) {
            (Self::Line(a), Self::Line(b)) => Self::Line(a.combine(op, b)),
            (Self::Plane(a), Self::Plane(b)) => {
                let mut edges = Vec::new();
                sweep(a, b, |first, last, left, right| {
                    if let Some(below) = combine_below(op, left, right) {
                        push(&mut edges, first, last, below);
                    }
                });
                Self::Plane(edges)
            }
            _ => unreachable!("sets of one family have the same number of coordinates"),
        }
    }

    /// The axes when the set is a product of them.
    pub(super) fn as_product(&self) -> Option<Vec<NumberSet>> {
        match self {
            Self::Line(set) => Some(vec![set.clone()]),
            Self::Plane(edges) => {
                let below = &edges.first()?.below;
                if !edges.iter().all(|edge| same(&edge.below, below)) {
                    return None;
                }
                let axis = NumberSet::of_ranges(
                    edges.iter().map(|edge| (edge.first, edge.last)).collect(),
                );
                let mut axes = vec![axis];
                axes.extend(below.as_product()?);
                Some(axes)
            }
        }
    }
}

fn combine_below(op: SetOp, left: Option<&Edge>, right: Option<&Edge>) -> Option<Arc<Grid>> {
    match (left, right) {
        (Some(a), Some(b)) if Arc::ptr_eq(&a.below, &b.below) => {
            op.keeps(true, true).then(|| a.below.clone())
        }
        (Some(a), Some(b)) => {
            let below = a.below.combine(op, &b.below);
            (!below.is_empty()).then(|| Arc::new(below))
        }
        (Some(a), None) => op.keeps(true, false).then(|| a.below.clone()),
        (None, Some(b)) => op.keeps(false, true).then(|| b.below.clone()),
        (None, None) => None,
    }
}

/// Appends an edge, merging it with the last when they touch and agree.
fn push(edges: &mut Vec<Edge>, first: i64, last: i64, below: Arc<Grid>) {
    match edges.last_mut() {
        Some(end) if end.last + 1 == first && same(&end.below, &below) => end.last = last,
        _ => edges.push(Edge { first, last, below }),
    }
}

fn same(a: &Arc<Grid>, b: &Arc<Grid>) -> bool {
    Arc::ptr_eq(a, b) || a == b
}
