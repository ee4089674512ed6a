//! From a set of points to the fewest-looking list of blocks, in `nodeset`'s order.
//!
//! The points are sorted as strings; then, pass after pass, blocks that differ along one axis only
//! are joined: first neighbours, later any pair. Which blocks come out depends on that order, and
//! so does the order of the hosts; it is kept because people compare the two programs' answers.
use super::blocks::Block;
use super::{Edge, Grid};
use crate::hostset::number;
use crate::hostset::numberset::NumberSet;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

/// Passes after which joining stops; the list is then right but not the shortest.
const PASSES_MAX: u32 = 256;

/// The blocks of a set; of a product, the product itself.
pub(crate) fn fold(grid: &Grid, dims: usize) -> Vec<Block> {
    let axes: Vec<Vec<Arc<NumberSet>>> = match grid.as_product() {
        Some(axes) => vec![axes.into_iter().map(Arc::new).collect()],
        None => {
            let items = join(Rows::items_of(grid, dims));
            items
                .into_iter()
                .map(|item| item.axes.iter().map(|axis| axis.set.clone()).collect())
                .collect()
        }
    };
    let mut before = 0;
    let block = |axes| {
        let block = Block { axes, before };
        before += block.len();
        block
    };
    axes.into_iter().map(block).collect()
}

/// Joins until nothing more can be joined.
fn join(mut items: Vec<FoldItem>) -> Vec<FoldItem> {
    let mut full = false;
    // Making the first items was the first pass over neighbours; doing it again changes nothing.
    for _ in 0..PASSES_MAX {
        items.sort_by_cached_key(FoldItem::order);
        let count = items.len();
        items = if full { join_any(items) } else { join_neighbours(items) };
        if items.len() == count {
            if full {
                break;
            }
            full = true;
        }
    }
    items
}

fn join_neighbours(items: Vec<FoldItem>) -> Vec<FoldItem> {
    let mut out: Vec<FoldItem> = Vec::with_capacity(items.len());
    for item in items {
        match out.last_mut().and_then(|current| Some((current.joint(&item)?, current))) {
            Some((axis, current)) => current.absorb(axis, item),
            None => {
                if let Some(done) = out.last_mut() {
                    done.settle();
                }
                out.push(item);
            }
        }
    }
    if let Some(done) = out.last_mut() {
        done.settle();
    }
    out
}

/// Lets every item in turn absorb whatever follows it and fits, nearest first.
fn join_any(items: Vec<FoldItem>) -> Vec<FoldItem> {
    let dims = items.first().map_or(0, |item| item.axes.len());
    // Items that agree on all axes but one share a key for that axis.
    let mut alike: Vec<HashMap<u64, Vec<usize>>> = vec![HashMap::new(); dims];
    for (at, item) in items.iter().enumerate() {
        for (axis, keys) in alike.iter_mut().enumerate() {
            keys.entry(item.key_without(axis)).or_default().push(at);
        }
    }
    let mut slots: Vec<Option<FoldItem>> = items.into_iter().map(Some).collect();
    for at in 0..slots.len() {
        let Some(mut current) = slots[at].take() else { continue };
        let mut from = at + 1;
        while let Some((found, axis)) = nearest(&mut current, &slots, &alike, from) {
            if let Some(item) = slots[found].take() {
                current.absorb(axis, item);
            }
            from = found + 1;
        }
        current.settle();
        slots[at] = Some(current);
    }
    slots.into_iter().flatten().collect()
}

fn nearest(
    current: &mut FoldItem,
    slots: &[Option<FoldItem>],
    alike: &[HashMap<u64, Vec<usize>>],
    from: usize,
) -> Option<(usize, usize)> {
    let mut best: Option<(usize, usize)> = None;
    for (axis, keys) in alike.iter().enumerate() {
        let Some(places) = keys.get(&current.key_without(axis)) else { continue };
        let start = places.partition_point(|&place| place < from);
        for &place in &places[start..] {
            if best.is_some_and(|(nearest, _)| nearest <= place) {
                break;
            }
            if slots[place].as_ref().is_some_and(|item| current.joint(item) == Some(axis)) {
                best = Some((place, axis));
                break;
            }
        }
    }
    best
}

/// Longer first, then by the first and the last number as strings.
type AxisOrder = (Reverse<u64>, Option<i64>, Option<i64>);

/// One axis of an item, with what comparing and sorting it needs.
#[derive(Clone)]
struct Axis {
    set: Arc<NumberSet>,
    len: u64,
    /// A sum over the numbers, so that the hash of a disjoint union is the sum of the hashes.
    hash: u64,
}

impl Axis {
    fn new(set: NumberSet) -> Self {
        let hash = set.numbers().fold(0u64, |sum, number| sum.wrapping_add(mix(number as u64)));
        Self { len: set.len(), set: Arc::new(set), hash }
    }

    fn order(&self) -> AxisOrder {
        let key = |number: Option<i64>| number.map(number::string_key);
        (Reverse(self.len), key(self.set.first()), key(self.set.last()))
    }

    fn looks_like(&self, other: &Self) -> bool {
        (self.hash, self.len) == (other.hash, other.len)
    }
}

/// A block on its way. Items are disjoint, so two that agree on all axes but one can be joined.
struct FoldItem {
    axes: Vec<Axis>,
    /// The axis along which it grows, with the sets to be united when the growing ends; until
    /// then that axis has the right `len` and `hash` but an old `set`.
    growing: Option<(usize, Vec<Arc<NumberSet>>)>,
}

impl FoldItem {
    fn order(&self) -> (Reverse<u64>, Vec<AxisOrder>) {
        let size = self.axes.iter().map(|axis| axis.len).product();
        (Reverse(size), self.axes.iter().map(Axis::order).collect())
    }

    fn key_without(&self, without: usize) -> u64 {
        let others = self.axes.iter().enumerate().filter(|(at, _)| *at != without);
        others.fold(0, |sum, (at, axis)| {
            sum.wrapping_add(mix(axis.hash ^ axis.len.rotate_left(32) ^ (at as u64 + 1)))
        })
    }

    /// The one axis along which the two differ, if there is just one.
    fn joint(&mut self, other: &Self) -> Option<usize> {
        let pairs = || self.axes.iter().zip(&other.axes).enumerate();
        let mut differing = pairs().filter(|(_, (a, b))| !a.looks_like(b)).map(|(at, _)| at);
        let (joint, None) = (differing.next()?, differing.next()) else { return None };
        drop(differing);
        if self.growing.as_ref().is_some_and(|(axis, _)| *axis != joint) {
            self.settle();
        }
        // Equal hashes are only a hint.
        let mut others =
            self.axes.iter().zip(&other.axes).enumerate().filter(|(at, _)| *at != joint);
        others.all(|(_, (a, b))| Arc::ptr_eq(&a.set, &b.set) || a.set == b.set).then_some(joint)
    }

    fn absorb(&mut self, joint: usize, mut other: Self) {
        other.settle();
        if self.growing.as_ref().is_some_and(|(axis, _)| *axis != joint) {
            self.settle();
        }
        let axis = &mut self.axes[joint];
        let part = other.axes.swap_remove(joint);
        axis.len += part.len;
        axis.hash = axis.hash.wrapping_add(part.hash);
        let (_, parts) = self.growing.get_or_insert_with(|| (joint, vec![axis.set.clone()]));
        parts.push(part.set);
    }

    fn settle(&mut self) {
        if let Some((axis, parts)) = self.growing.take() {
            self.axes[axis].set = Arc::new(NumberSet::of_sets(parts.iter().map(Arc::as_ref)));
        }
    }
}

/// Makes the first items: the points in string order, neighbours joined. Whole rows are taken at
/// once; only the first point of a row can belong to the item before it.
#[derive(Default)]
struct Rows {
    items: Vec<FoldItem>,
    singles: HashMap<i64, Axis>,
    lines: HashMap<*const Grid, Axis>,
}

impl Rows {
    fn items_of(grid: &Grid, dims: usize) -> Vec<FoldItem> {
        let mut rows = Self::default();
        rows.visit(grid, &mut Vec::with_capacity(dims));
        if let Some(done) = rows.items.last_mut() {
            done.settle();
        }
        rows.items
    }

    fn visit(&mut self, grid: &Grid, prefix: &mut Vec<i64>) {
        match grid {
            Grid::Line(_) => self.row(prefix, grid),
            Grid::Plane(edges) => {
                for (number, below) in in_string_order(edges) {
                    prefix.push(number);
                    self.visit(below, prefix);
                    prefix.pop();
                }
            }
        }
    }

    fn row(&mut self, prefix: &[i64], grid: &Grid) {
        let Grid::Line(set) = grid else { return };
        let Some(first) =
            set.ranges().map(|(first, _)| first).min_by_key(|&first| number::string_key(first))
        else {
            return;
        };
        let line = self.lines.entry(grid).or_insert_with(|| Axis::new(set.clone())).clone();
        let start = self.item(prefix, Axis::new(NumberSet::single(first)));
        let joint = self.items.last_mut().and_then(|current| current.joint(&start));
        let (Some(joint), Some(current)) = (joint, self.items.last_mut()) else {
            let item = self.item(prefix, line);
            return self.open(item);
        };
        current.absorb(joint, start);
        if line.len > 1 {
            let rest = Axis::new(set.difference(&NumberSet::single(first)));
            let item = self.item(prefix, rest);
            self.open(item);
        }
    }

    fn open(&mut self, item: FoldItem) {
        if let Some(done) = self.items.last_mut() {
            done.settle();
        }
        self.items.push(item);
    }

    fn item(&mut self, prefix: &[i64], line: Axis) -> FoldItem {
        let single = |number: &i64| {
            self.singles
                .entry(*number)
                .or_insert_with(|| Axis::new(NumberSet::single(*number)))
                .clone()
        };
        let mut axes: Vec<Axis> = prefix.iter().map(single).collect();
        axes.push(line);
        FoldItem { axes, growing: None }
    }
}

/// Every coordinate with what is below it, ordered as strings.
fn in_string_order(edges: &[Edge]) -> impl Iterator<Item = (i64, &Grid)> {
    let mut all: Vec<(i64, &Grid)> = edges
        .iter()
        .flat_map(|edge| (edge.first..=edge.last).map(|number| (number, &*edge.below)))
        .collect();
    all.sort_by_cached_key(|(number, _)| number::string_key(*number));
    all.into_iter()
}

/// Spreads a number over 64 bits.
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
