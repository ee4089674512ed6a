//! Hosts by position, and sets by parts.
use super::build::Builder;
use super::grid::Grid;
use super::grid::blocks::{Block, Blocks};
use super::numberset::NumberSet;
use super::{HostSet, NameFamily, Nodes, grid, pattern};
use crate::rangeset::RangeSet;

impl HostSet {
    /// Every name, in order.
    pub fn iter(&self) -> impl Iterator<Item = String> + '_ {
        self.families.iter().flat_map(|family| {
            let pieces = family.pattern.pieces();
            family.points().map(move |point| pattern::name(&pieces, &point))
        })
    }

    /// The name at a position.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<String> {
        let index = index as u64;
        let at = self.families.partition_point(|family| family.before + family.len <= index);
        let family = self.families.get(at)?;
        Some(pattern::name(&family.pattern.pieces(), &family.point(index - family.before)?))
    }

    /// The position of a name.
    #[must_use]
    pub fn index_of(&self, name: &str) -> Option<usize> {
        let (pattern, point) = pattern::of_name(name);
        let family = self.family(&pattern)?;
        Some((family.before + family.rank(&point)?) as usize)
    }

    /// The hosts at these positions; positions beyond the end are ignored.
    #[must_use]
    pub fn select(&self, indices: &RangeSet) -> Self {
        let mut wanted = indices
            .ranges()
            .iter()
            .map(|&(first, last)| (u64::from(first), u64::from(last) + 1))
            .peekable();
        let mut out = Builder::default();
        for family in &self.families {
            let end = family.before + family.len;
            let mut parts = Vec::new();
            while let Some(&(from, to)) = wanted.peek().filter(|(from, _)| *from < end) {
                let from = from.max(family.before);
                if from < to {
                    parts.push((from - family.before, to.min(end) - family.before));
                }
                if to > end {
                    break;
                }
                wanted.next();
            }
            if !parts.is_empty() {
                family.select(&parts, &mut out);
            }
        }
        out.finish()
    }

    /// `count` sets of equally many hosts, the first ones with one more when it does not divide;
    /// fewer when there are fewer hosts.
    #[must_use]
    pub fn split(&self, count: usize) -> Vec<Self> {
        let len = self.len();
        if count == 0 {
            return Vec::new();
        }
        let (each, more) = (len / count, len % count);
        let mut from = 0;
        let part = |at: usize| {
            let to = from + each + usize::from(at < more);
            let indices = RangeSet::from_range(from as u32, to as u32);
            from = to;
            self.select(&indices)
        };
        (0..count.min(len)).map(part).collect()
    }

    /// The sets of hosts whose numbers follow each other without a gap.
    #[must_use]
    pub fn contiguous(&self) -> Vec<Self> {
        let mut out = Vec::new();
        for family in &self.families {
            match &family.nodes {
                Nodes::One => out.push(family.alone(&[])),
                Nodes::Many(Grid::Line(set)) => {
                    out.extend(set.contiguous().into_iter().map(|part| family.alone(&[part])));
                }
                Nodes::Many(_) => {
                    for block in family.blocks() {
                        let mut parts: Vec<Vec<NumberSet>> = vec![Vec::new()];
                        for axis in &block.axes {
                            let pieces = axis.contiguous();
                            parts = parts.iter().flat_map(|part| extended(part, &pieces)).collect();
                        }
                        out.extend(parts.iter().map(|axes| family.alone(axes)));
                    }
                }
            }
        }
        out
    }
}

fn extended<'p>(
    part: &'p [NumberSet],
    pieces: &'p [NumberSet],
) -> impl Iterator<Item = Vec<NumberSet>> + 'p {
    pieces.iter().map(|piece| part.iter().chain([piece]).cloned().collect())
}

impl NameFamily {
    /// How the hosts of a family with several numbers fold.
    pub(super) fn blocks(&self) -> &[Block] {
        self.folded().list()
    }

    fn folded(&self) -> &Blocks {
        self.blocks.get_or_init(|| match &self.nodes {
            Nodes::One => Blocks::default(),
            Nodes::Many(grid) => Blocks::new(grid::fold(grid, self.pattern.dims())),
        })
    }

    /// The set of the hosts of one product of this family.
    fn alone(&self, axes: &[NumberSet]) -> HostSet {
        let mut builder = Builder::default();
        builder.family(self.pattern.clone()).product(axes);
        builder.finish()
    }

    fn points(&self) -> Box<dyn Iterator<Item = Vec<i64>> + '_> {
        match &self.nodes {
            Nodes::One => Box::new(std::iter::once(Vec::new())),
            Nodes::Many(Grid::Line(set)) => Box::new(set.numbers().map(|number| vec![number])),
            Nodes::Many(_) => Box::new(
                self.blocks()
                    .iter()
                    .flat_map(|block| (0..block.len()).map(|index| block.point(index))),
            ),
        }
    }

    fn point(&self, index: u64) -> Option<Vec<i64>> {
        match &self.nodes {
            Nodes::One => Some(Vec::new()),
            Nodes::Many(Grid::Line(set)) => set.nth(index).map(|number| vec![number]),
            Nodes::Many(_) => {
                let blocks = self.blocks();
                let at = blocks.partition_point(|block| block.before <= index).checked_sub(1)?;
                Some(blocks[at].point(index - blocks[at].before))
            }
        }
    }

    fn rank(&self, point: &[i64]) -> Option<u64> {
        match (&self.nodes, point) {
            (Nodes::One, _) => Some(0),
            (Nodes::Many(Grid::Line(set)), &[number]) => set.rank(number),
            (Nodes::Many(grid), point) => {
                if !grid.contains(point) {
                    return None;
                }
                self.folded().rank(point)
            }
        }
    }

    /// Hands the hosts at positions `from..to` of each part to `out`; parts ascend.
    fn select(&self, parts: &[(u64, u64)], out: &mut Builder) {
        let out = out.family(self.pattern.clone());
        match &self.nodes {
            Nodes::One => {}
            Nodes::Many(Grid::Line(set)) => {
                for &(from, to) in parts {
                    out.ranges(set.ranges_at(from, to));
                }
            }
            Nodes::Many(_) => {
                let blocks = self.blocks();
                for &(from, to) in parts {
                    let start = blocks.partition_point(|block| block.before + block.len() <= from);
                    for block in blocks[start..].iter().take_while(|block| block.before < to) {
                        let from = from.saturating_sub(block.before);
                        let to = (to - block.before).min(block.len());
                        block.slice(from, to, &mut |axes| out.product(axes));
                    }
                }
            }
        }
    }
}
