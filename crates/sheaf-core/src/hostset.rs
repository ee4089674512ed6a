//! Host sets: the grammar of ClusterShell's `nodeset`, folded back when printed.
//!
//! ```
//! use sheaf_core::hostset::HostSet;
//! let set = HostSet::parse("rack[1-4]n[01-16] ! rack2n[05-16] , login").unwrap();
//! assert_eq!(set.to_string(), "login,rack[1,3-4]n[01-16],rack2n[01-04]");
//! assert_eq!(set.len(), 53);
//! ```
//!
//! Names with equal text around their numbers are a *family* and kept as ranges; so a hundred
//! thousand hosts are a few bytes as long as they fold.
mod build;
mod error;
mod evaluate;
mod fold;
mod grid;
mod groups;
mod number;
mod numberset;
mod pattern;
mod regroup;
mod scan;
mod select;
mod sweep;

use build::Builder;
use evaluate::Evaluator;
use grid::Grid;
use grid::blocks::Blocks;
use pattern::HostPattern;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;
use sweep::SetOp;

pub use error::ParseError;
pub use fold::FoldOptions;
pub use groups::{GroupTable, Groups, NoGroups};
pub use number::DIGITS_MAX;
pub use numberset::{AUTOSTEP_OFF, NumberSet};
pub use pattern::AXES_MAX;
pub use regroup::{Membership, memberships};

/// The most hosts a parsed set may hold.
pub const HOSTS_MAX: u64 = 1 << 24;

/// An ordered set of host names.
///
/// The order is `nodeset`'s: families by their text, within a family by the number's digits, then
/// its value; families with several numbers in the order in which they fold.
#[derive(Clone, Default)]
pub struct HostSet {
    /// Sorted by pattern; none is empty.
    families: Vec<NameFamily>,
}

/// The hosts whose names differ in their numbers only.
#[derive(Clone)]
struct NameFamily {
    pattern: HostPattern,
    nodes: Nodes,
    len: u64,
    /// How many hosts the families before it hold.
    before: u64,
    /// How the hosts of a family with several numbers fold, made when it is asked for.
    blocks: OnceLock<Blocks>,
}

/// The numbers of a family.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Nodes {
    /// A name without numbers.
    One,
    Many(Grid),
}

impl HostSet {
    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { families: Vec::new() }
    }

    /// Reads an expression in which no group is known.
    ///
    /// # Errors
    /// As [`HostSet::parse_with`]; a group or a wildcard is one.
    pub fn parse(expr: &str) -> Result<Self, ParseError> {
        Self::parse_with(expr, &NoGroups)
    }

    /// Reads an expression: names with ranges, `@group`, wildcards, and the operators `,` union,
    /// `!` difference, `&` intersection and `^` symmetric difference, from left to right, with or
    /// without blanks around them. A blank within a name is part of it, as `nodeset` has it. An
    /// empty expression is the empty set.
    ///
    /// # Errors
    /// [`ParseError`] with the byte position when it is malformed, names an unknown group, or
    /// stands for more than [`HOSTS_MAX`] hosts or [`RANGES_MAX`](crate::RANGES_MAX) ranges.
    pub fn parse_with(expr: &str, groups: &dyn Groups) -> Result<Self, ParseError> {
        Evaluator::new(groups).expression(expr, None)
    }

    /// All hosts of a group source (`None`: the default one).
    ///
    /// # Errors
    /// When the source cannot tell, or tells something malformed.
    pub fn all(source: Option<&str>, groups: &dyn Groups) -> Result<Self, ParseError> {
        Evaluator::new(groups).all(source).map_err(|problem| ParseError::new(0, problem))
    }

    /// How many hosts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.families.last().map_or(0, |family| (family.before + family.len) as usize)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.families.is_empty()
    }

    /// Whether a host of this name is in the set.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        let (pattern, point) = pattern::of_name(name);
        self.family(&pattern).is_some_and(|family| match &family.nodes {
            Nodes::One => true,
            Nodes::Many(grid) => grid.contains(&point),
        })
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

    /// Whether every host of `self` is in `other`.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.difference(other).is_empty()
    }

    fn of_families(mut families: Vec<NameFamily>) -> Self {
        families.sort_unstable_by(|a, b| a.pattern.cmp(&b.pattern));
        let mut before = 0;
        for family in &mut families {
            family.before = before;
            before += family.len;
        }
        Self { families }
    }

    fn family(&self, pattern: &HostPattern) -> Option<&NameFamily> {
        let at = self.families.binary_search_by(|family| family.pattern.cmp(pattern)).ok()?;
        self.families.get(at)
    }

    fn combine(&self, op: SetOp, other: &Self) -> Self {
        let mut pairs: BTreeMap<&HostPattern, (Option<&NameFamily>, Option<&NameFamily>)> =
            BTreeMap::new();
        for family in &self.families {
            pairs.entry(&family.pattern).or_default().0 = Some(family);
        }
        for family in &other.families {
            pairs.entry(&family.pattern).or_default().1 = Some(family);
        }
        let families =
            pairs.into_values().filter_map(|(left, right)| NameFamily::combine(op, left, right));
        Self::of_families(families.collect())
    }
}

impl NameFamily {
    fn new(pattern: HostPattern, nodes: Nodes) -> Self {
        let len = match &nodes {
            Nodes::One => 1,
            Nodes::Many(grid) => grid.len(),
        };
        Self { pattern, nodes, len, before: 0, blocks: OnceLock::new() }
    }

    fn combine(op: SetOp, left: Option<&Self>, right: Option<&Self>) -> Option<Self> {
        match (left, right) {
            (Some(a), Some(b)) => match (&a.nodes, &b.nodes) {
                (Nodes::Many(x), Nodes::Many(y)) => {
                    let grid = x.combine(op, y);
                    (!grid.is_empty()).then(|| Self::new(a.pattern.clone(), Nodes::Many(grid)))
                }
                // Equal patterns have equally many numbers, here none.
                _ => op.keeps(true, true).then(|| a.clone()),
            },
            (Some(a), None) => op.keeps(true, false).then(|| a.clone()),
            (None, Some(b)) => op.keeps(false, true).then(|| b.clone()),
            (None, None) => None,
        }
    }
}

impl FromStr for HostSet {
    type Err = ParseError;

    fn from_str(expr: &str) -> Result<Self, ParseError> {
        Self::parse(expr)
    }
}

/// From names; each is one host, whatever characters it has. Empty names are left out.
impl FromIterator<String> for HostSet {
    fn from_iter<I: IntoIterator<Item = String>>(names: I) -> Self {
        let mut builder = Builder::default();
        for name in names {
            if !name.is_empty() {
                builder.name(&name);
            }
        }
        builder.finish()
    }
}

impl PartialEq for HostSet {
    fn eq(&self, other: &Self) -> bool {
        let parts = |set: &Self| set.families.len();
        parts(self) == parts(other)
            && self
                .families
                .iter()
                .zip(&other.families)
                .all(|(a, b)| (a.len, &a.pattern, &a.nodes) == (b.len, &b.pattern, &b.nodes))
    }
}

impl Eq for HostSet {}

impl fmt::Display for HostSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.fold(&FoldOptions::default()))
    }
}

impl fmt::Debug for HostSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

/// As much of a text as fits an error line.
fn shown(text: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 40;
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", text[..end].escape_debug()),
        None => text.escape_debug().to_string(),
    }
}
