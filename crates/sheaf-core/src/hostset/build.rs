//! Collecting hosts family by family, to be sorted once.
use super::grid::Grid;
use super::numberset::NumberSet;
use super::pattern::{self, HostPattern};
use super::{HostSet, NameFamily, Nodes};
use std::collections::HashMap;

/// Hosts in no order, possibly repeated.
#[derive(Default)]
pub(super) struct Builder {
    families: HashMap<HostPattern, PendingNames>,
}

/// What one family has been given so far.
#[derive(Default)]
pub(super) struct PendingNames {
    /// Ranges of names with one number.
    ranges: Vec<(i64, i64)>,
    /// Single names with several numbers, one coordinate after another.
    points: Vec<i64>,
    /// Products and whole sets with several numbers.
    grids: Vec<Grid>,
}

impl Builder {
    pub(super) fn is_empty(&self) -> bool {
        self.families.is_empty()
    }

    pub(super) fn name(&mut self, name: &str) {
        let (pattern, point) = pattern::of_name(name);
        self.point(pattern, &point);
    }

    fn point(&mut self, pattern: HostPattern, point: &[i64]) {
        let family = self.family(pattern);
        match *point {
            [] => {}
            [number] => family.ranges.push((number, number)),
            _ => family.points.extend_from_slice(point),
        }
    }

    /// Where the hosts of a family are collected; the caller adds at least one.
    pub(super) fn family(&mut self, pattern: HostPattern) -> &mut PendingNames {
        self.families.entry(pattern).or_default()
    }

    pub(super) fn set(&mut self, set: &HostSet) {
        for family in &set.families {
            let pending = self.families.entry(family.pattern.clone()).or_default();
            match &family.nodes {
                Nodes::One => {}
                Nodes::Many(Grid::Line(numbers)) => pending.ranges.extend(numbers.ranges()),
                Nodes::Many(grid) => pending.grids.push(grid.clone()),
            }
        }
    }

    pub(super) fn finish(self) -> HostSet {
        let families = self.families.into_iter().map(|(pattern, pending)| {
            let dims = pattern.dims();
            NameFamily::new(pattern, pending.finish(dims))
        });
        HostSet::of_families(families.collect())
    }
}

impl PendingNames {
    /// All names with their numbers in `axes`, none of which is empty.
    pub(super) fn product(&mut self, axes: &[NumberSet]) {
        match axes {
            [] => {}
            [axis] => self.ranges.extend(axis.ranges()),
            axes if axes.iter().all(|axis| axis.len() == 1) => {
                self.points.extend(axes.iter().filter_map(NumberSet::first));
            }
            axes => self.grids.push(Grid::product(axes)),
        }
    }

    /// Names with one number.
    pub(super) fn ranges(&mut self, ranges: impl Iterator<Item = (i64, i64)>) {
        self.ranges.extend(ranges);
    }

    fn finish(mut self, dims: usize) -> Nodes {
        match dims {
            0 => Nodes::One,
            1 => Nodes::Many(Grid::Line(NumberSet::of_ranges(self.ranges))),
            _ => {
                if !self.points.is_empty() {
                    self.grids.push(Grid::of_points(&self.points, dims));
                }
                let grid = Grid::of_grids(self.grids);
                Nodes::Many(grid.expect("a family is made when its first hosts come"))
            }
        }
    }
}
