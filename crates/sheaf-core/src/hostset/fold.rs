//! Printing host sets.
use super::grid::Grid;
use super::grid::blocks::Block;
use super::numberset::{AUTOSTEP_OFF, NumberSet};
use super::{HostSet, NameFamily, Nodes};

/// How a set is printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoldOptions {
    /// Equally spaced numbers become `a-b/step` when they are at least this many;
    /// [`AUTOSTEP_OFF`] never writes steps.
    pub autostep: u64,
    /// The numbers of a name to fold, counted from 0, or from -1 backwards; `None` for all.
    /// The other numbers are written out one by one.
    pub axes: Option<Vec<i64>>,
}

impl Default for FoldOptions {
    fn default() -> Self {
        Self { autostep: AUTOSTEP_OFF, axes: None }
    }
}

impl FoldOptions {
    fn folds(&self, axis: usize, dims: usize) -> bool {
        let (axis, dims) = (axis as i64, dims as i64);
        self.axes.as_ref().is_none_or(|axes| {
            axes.iter()
                .any(|&wanted| (-dims..dims).contains(&wanted) && wanted.rem_euclid(dims) == axis)
        })
    }

    /// The ways an axis is written: once in brackets, or number by number.
    fn write(&self, set: &NumberSet, folds: bool) -> Vec<String> {
        match (set.len(), folds) {
            (0 | 1, _) => vec![set.to_string()],
            (_, true) => vec![format!("[{}]", set.fold(self.autostep))],
            (_, false) => set.iter().collect(),
        }
    }
}

impl HostSet {
    /// The set as an expression.
    #[must_use]
    pub fn fold(&self, options: &FoldOptions) -> String {
        let mut names = Vec::new();
        for family in &self.families {
            family.fold(options, &mut names);
        }
        names.join(",")
    }
}

impl NameFamily {
    fn fold(&self, options: &FoldOptions, out: &mut Vec<String>) {
        let pieces = self.pattern.pieces();
        match &self.nodes {
            Nodes::One => out.push(pieces.concat()),
            Nodes::Many(Grid::Line(set)) => {
                let texts = options.write(set, options.folds(0, 1));
                out.extend(texts.iter().map(|text| filled(&pieces, &[text])));
            }
            Nodes::Many(_) => {
                for block in self.blocks() {
                    fold_block(block, options, &pieces, out);
                }
            }
        }
    }
}

fn fold_block(block: &Block, options: &FoldOptions, pieces: &[String], out: &mut Vec<String>) {
    let dims = block.axes.len();
    let axes: Vec<Vec<String>> = block
        .axes
        .iter()
        .enumerate()
        .map(|(at, axis)| options.write(axis, options.folds(at, dims)))
        .collect();
    // Where axes are written out, the first one counts fastest.
    let mut rows: Vec<Vec<&str>> = vec![Vec::new()];
    for axis in &axes {
        let mut longer = Vec::with_capacity(axis.len() * rows.len());
        for text in axis {
            longer.extend(rows.iter().map(|row| [row, &[text.as_str()][..]].concat()));
        }
        rows = longer;
    }
    out.extend(rows.iter().map(|row| filled(pieces, row)));
}

/// The pieces of a pattern with texts between them.
fn filled(pieces: &[String], texts: &[impl AsRef<str>]) -> String {
    let mut name = String::new();
    for (at, piece) in pieces.iter().enumerate() {
        name.push_str(piece);
        name.push_str(texts.get(at).map_or("", AsRef::as_ref));
    }
    name
}
