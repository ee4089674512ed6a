//! Products of axes: what is printed as one `rack[1-4]n[1-16]`.
use crate::hostset::numberset::NumberSet;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// With more blocks than this, a point's block is found by the point's numbers.
const SCANNED_BLOCKS_MAX: usize = 32;

/// The blocks of a family in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blocks {
    list: Vec<Block>,
    /// For each axis, the blocks that have a number on it; made when there are many to choose
    /// from.
    having: OnceLock<Vec<HashMap<i64, Vec<u32>>>>,
}

impl Blocks {
    pub(crate) fn new(list: Vec<Block>) -> Self {
        Self { list, having: OnceLock::new() }
    }

    pub(crate) fn list(&self) -> &[Block] {
        &self.list
    }

    /// The position of a point among the points of all blocks.
    pub(crate) fn rank(&self, point: &[i64]) -> Option<u64> {
        let rank_in = |block: &Block| Some(block.before + block.rank(point)?);
        if self.list.len() <= SCANNED_BLOCKS_MAX {
            return self.list.iter().find_map(rank_in);
        }
        let having = self.having.get_or_init(|| self.by_number(point.len()));
        let candidates = having.iter().zip(point).map(|(blocks, number)| blocks.get(number));
        let fewest = candidates.min_by_key(|blocks| blocks.map_or(0, Vec::len))??;
        fewest.iter().filter_map(|&at| self.list.get(at as usize)).find_map(rank_in)
    }

    fn by_number(&self, dims: usize) -> Vec<HashMap<i64, Vec<u32>>> {
        let mut having = vec![HashMap::<i64, Vec<u32>>::new(); dims];
        for (at, block) in self.list.iter().enumerate() {
            for (blocks, axis) in having.iter_mut().zip(&block.axes) {
                for number in axis.numbers() {
                    blocks.entry(number).or_default().push(at as u32);
                }
            }
        }
        having
    }
}

/// All points with their coordinates in `axes`; the last coordinate counts fastest.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) axes: Vec<Arc<NumberSet>>,
    /// How many points the blocks before it hold.
    pub(crate) before: u64,
}

impl Block {
    pub(crate) fn len(&self) -> u64 {
        self.axes.iter().map(|axis| axis.len()).product()
    }

    /// The `index`-th point, which must exist.
    pub(crate) fn point(&self, mut index: u64) -> Vec<i64> {
        let mut point = vec![0; self.axes.len()];
        for (coordinate, axis) in point.iter_mut().zip(&self.axes).rev() {
            *coordinate =
                axis.nth(index % axis.len()).expect("a rank below the axis's length has a number");
            index /= axis.len();
        }
        point
    }

    fn rank(&self, point: &[i64]) -> Option<u64> {
        let mut rank = 0;
        for (&coordinate, axis) in point.iter().zip(&self.axes) {
            rank = rank * axis.len() + axis.rank(coordinate)?;
        }
        Some(rank)
    }

    /// Splits the points at positions `from..to` into whole products, in order.
    pub(crate) fn slice(&self, from: u64, to: u64, take: &mut dyn FnMut(&[NumberSet])) {
        let mut fixed = Vec::with_capacity(self.axes.len());
        slice(&self.axes, from, to, &mut fixed, take);
    }
}

fn slice(
    axes: &[Arc<NumberSet>],
    from: u64,
    to: u64,
    fixed: &mut Vec<NumberSet>,
    take: &mut dyn FnMut(&[NumberSet]),
) {
    if from >= to {
        return;
    }
    let Some((axis, rest)) = axes.split_first() else { return take(fixed) };
    let row: u64 = rest.iter().map(|axis| axis.len()).product();
    let (first_whole, end_whole) = (from.div_ceil(row), to / row);
    let mut part = |at: u64, from: u64, to: u64| {
        fixed.push(axis.slice(at, at + 1));
        slice(rest, from, to, fixed, take);
        fixed.pop();
    };
    if first_whole > end_whole {
        // Begins and ends within one row.
        return part(end_whole, from % row, to % row);
    }
    if !from.is_multiple_of(row) {
        part(first_whole - 1, from % row, row);
    }
    if first_whole < end_whole {
        let depth = fixed.len();
        fixed.push(axis.slice(first_whole, end_whole));
        fixed.extend(rest.iter().map(|axis| NumberSet::clone(axis)));
        take(fixed);
        fixed.truncate(depth);
    }
    if !to.is_multiple_of(row) {
        fixed.push(axis.slice(end_whole, end_whole + 1));
        slice(rest, 0, to % row, fixed, take);
        fixed.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_the_points_between() {
        let axis = |text| Arc::new(NumberSet::parse(text).unwrap());
        let block = Block { axes: vec![axis("1-3"), axis("1,5"), axis("7-9")], before: 0 };
        assert_eq!(block.len(), 18);
        for from in 0..=18 {
            for to in from..=18 {
                let mut points = Vec::new();
                block.slice(from, to, &mut |axes| {
                    let part =
                        Block { axes: axes.iter().cloned().map(Arc::new).collect(), before: 0 };
                    points.extend((0..part.len()).map(|index| part.point(index)));
                });
                let expected: Vec<Vec<i64>> = (from..to).map(|index| block.point(index)).collect();
                assert_eq!(points, expected, "{from}..{to}");
            }
        }
    }
}
