//! The hosts of a cluster: found out from what `hosts = …` says, numbered, folded for printing.
use super::{Origin, Sourced, names};
use crate::awaited::LocalWait;
use crate::environment::Environment;
use crate::groups::{union, upcall};
use crate::trust;
use sheaf_core::hostset::{Groups, HostSet};
use sheaf_core::{RangeSet, lock};
use sheaf_tree::topology::NAME_BYTES_MAX;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The most hosts of a cluster.
pub const HOSTS_MAX: usize = 1 << 20;
/// Folded sets that are remembered; answers repeat the same few.
const FOLDED_MAX: usize = 4_096;

/// The hosts of a cluster in an order: that of the leaves, when they come from a tree.
#[derive(Debug)]
pub struct Hosts {
    names: Vec<String>,
    leaves: HashMap<String, u32>,
    /// Set when the names are one pattern with consecutive numbers, as most are.
    row: Option<HostsRow>,
    folded: Mutex<HashMap<RangeSet, String>>,
}

/// `prefix`, then `first`, `first + 1`, … of `width` digits at least, then `suffix`.
#[derive(Debug)]
struct HostsRow {
    prefix: String,
    suffix: String,
    first: u64,
    width: usize,
}

impl Hosts {
    /// These hosts, in this order.
    pub fn new(names: Vec<String>) -> Self {
        let leaves = names.iter().zip(0..).map(|(name, leaf)| (name.clone(), leaf)).collect();
        let row = HostsRow::of(&names);
        Self { names, leaves, row, folded: Mutex::default() }
    }

    /// The name of each leaf.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// How many there are.
    pub fn len(&self) -> u32 {
        // Their number is bounded by HOSTS_MAX.
        self.names.len() as u32
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The leaf that is this host.
    pub fn leaf(&self, name: &str) -> Option<u32> {
        self.leaves.get(name).copied()
    }

    /// The host set of every host.
    pub fn everyone(&self) -> String {
        self.fold(&RangeSet::full(self.len()))
    }

    /// The host set of these leaves, as it is printed.
    pub fn fold(&self, leaves: &RangeSet) -> String {
        if let Some(row) = &self.row {
            return row.fold(leaves);
        }
        let mut memory = lock(&self.folded);
        if let Some(folded) = memory.get(leaves) {
            return folded.clone();
        }
        let names: Vec<&String> =
            leaves.iter().filter_map(|leaf| self.names.get(leaf as usize)).collect();
        let folded = fold(&names);
        if memory.len() >= FOLDED_MAX {
            memory.clear();
        }
        memory.insert(leaves.clone(), folded.clone());
        folded
    }
}

/// These hosts as a host set, where it can say what they are.
pub fn fold<S: std::borrow::Borrow<String>>(names: &[S]) -> String {
    let names: Vec<&str> = names.iter().map(|name| name.borrow().as_str()).collect();
    let names = names.join(",");
    HostSet::parse(&names).map_or(names, |set| set.to_string())
}

impl HostsRow {
    fn of(names: &[String]) -> Option<Self> {
        let name = names.first()?;
        let end = name.rfind(|c: char| c.is_ascii_digit())? + 1;
        let start = name[..end].trim_end_matches(|c: char| c.is_ascii_digit()).len();
        // A number in front of this one, or a name that is all number, folds in ways of its own.
        if start == 0 || name[..start].contains(|c: char| c.is_ascii_digit()) {
            return None;
        }
        let digits = &name[start..end];
        let width = if digits.starts_with('0') && digits.len() > 1 { digits.len() } else { 0 };
        let row = Self {
            prefix: name[..start].to_owned(),
            suffix: name[end..].to_owned(),
            first: digits.parse().ok()?,
            width,
        };
        let last = row.first.checked_add(names.len() as u64 - 1)?;
        // Padded numbers that outgrow their padding are another pattern.
        let fits = width == 0 || last.to_string().len() <= width;
        (fits && names.iter().zip(row.first..).all(|(name, number)| *name == row.name(number)))
            .then_some(row)
    }

    fn name(&self, number: u64) -> String {
        format!("{}{number:0width$}{}", self.prefix, self.suffix, width = self.width)
    }

    fn fold(&self, leaves: &RangeSet) -> String {
        let number =
            |leaf: u32| format!("{:0width$}", self.first + u64::from(leaf), width = self.width);
        let ranges: Vec<String> = leaves
            .ranges()
            .iter()
            .map(|&(first, last)| {
                if first == last {
                    number(first)
                } else {
                    format!("{}-{}", number(first), number(last))
                }
            })
            .collect();
        match (leaves.len(), ranges.first()) {
            (0, _) | (_, None) => String::new(),
            (1, Some(one)) => format!("{}{one}{}", self.prefix, self.suffix),
            _ => format!("{}[{}]{}", self.prefix, ranges.join(","), self.suffix),
        }
    }
}

/// Finds out what `hosts` stands for.
pub(crate) fn find(
    hosts: &Sourced<String>,
    groups: &dyn Groups,
    environment: &Environment,
) -> Result<Hosts, String> {
    let expression = hosts.value.trim();
    let listed = if let Some(path) = expression.strip_prefix("@file:") {
        let path = beside(&hosts.origin, path);
        let _awaited = LocalWait::file(&path);
        let text = trust::open_named(&path).and_then(|file| Ok(std::io::read_to_string(file)?));
        let text = text.map_err(|why| why.text(&path))?;
        lines(&text)
    } else if let Some(command) = expression.strip_prefix("@command:") {
        // The trailing "." stands for the working directory when the file has no directory part.
        let directory = beside(&hosts.origin, ".");
        if !environment.runs_commands {
            return Err(upcall::not_run(command.trim()).to_string());
        }
        lines(&upcall::run(command.trim(), &directory).map_err(|error| error.to_string())?)
    } else if expression == "@slurm" {
        slurm_nodes(environment)?
    } else {
        expression.to_owned()
    };
    let set = HostSet::parse_with(&listed, groups)
        .map_err(|error| format!("{}: {error}", short(&listed)))?;
    match set.len() {
        0 if expression.is_empty() => Err("no host is named".to_owned()),
        0 => Err(format!("{expression} is empty")),
        count if count > HOSTS_MAX => Err(format!("{count} hosts are more than {HOSTS_MAX}")),
        _ => match set.iter().find_map(|name| problem(&name)) {
            Some(problem) => Err(problem),
            None => Ok(Hosts::new(set.iter().collect())),
        },
    }
}

fn problem(name: &str) -> Option<String> {
    if name.len() > NAME_BYTES_MAX {
        return Some(format!("{}: a host's name has at most {NAME_BYTES_MAX} bytes", short(name)));
    }
    names::host_problem(name)
}

/// The nodes of the Slurm job that this runs in.
fn slurm_nodes(environment: &Environment) -> Result<String, String> {
    const VARIABLE: &str = "SLURM_JOB_NODELIST";
    // Slurm writes sets as ClusterShell does, with a comma for union.
    let nodes = environment.variable(VARIABLE).and_then(|nodes| nodes.to_str());
    let nodes = nodes.filter(|nodes| !nodes.trim().is_empty()).map(ToOwned::to_owned);
    nodes.ok_or_else(|| {
        format!("@slurm needs a job of Slurm (salloc, sbatch): {VARIABLE} is not set")
    })
}

/// The host sets of a text of lines, with `#` for comments, as one expression.
pub(super) fn lines(text: &str) -> String {
    let lines = without_mark(text).lines().map(|line| line.split('#').next().unwrap_or_default());
    union(&lines.collect::<Vec<_>>().join(" "))
}

/// A text without the mark that some editors put in front of what is UTF-8.
pub(crate) fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// A path taken from the directory of the file that names it.
fn beside(origin: &Origin, path: &str) -> PathBuf {
    let directory = match origin {
        Origin::File(file, _) => {
            file.parent().filter(|directory| !directory.as_os_str().is_empty())
        }
        _ => None,
    };
    directory.unwrap_or(Path::new("")).join(path.trim())
}

/// The start of a text that may be long, for a message.
fn short(text: &str) -> String {
    const SHOWN_MAX: usize = 60;
    match text.char_indices().nth(SHOWN_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// This machine's name, as `hostname` gives it.
pub fn own_name() -> String {
    let name = rustix::system::uname();
    let name = name.nodename().to_string_lossy();
    // A name that is no host name would be read as a pattern.
    let plain =
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
    if plain { name.into_owned() } else { "localhost".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::GroupSources;
    use proptest::prelude::*;

    fn hosts(expression: &str) -> Hosts {
        find(
            &Sourced::default(expression.to_owned()),
            &GroupSources::default(),
            &Environment::default(),
        )
        .unwrap()
    }

    #[test]
    fn comments_and_lines_are_a_union() {
        assert_eq!(lines("\u{feff}n1\nn2\n"), "n1,n2");
        assert_eq!(lines("n1 n2 # two\n\n# none\nn[3-4],\n"), "n1,n2,n[3-4]");
    }

    #[test]
    fn name_that_no_tree_can_hold_is_refused() {
        let find = |name: &str| {
            find(
                &Sourced::default(name.to_owned()),
                &GroupSources::default(),
                &Environment::default(),
            )
        };
        assert_eq!(find(&format!("a{}", "n".repeat(254))).unwrap().len(), 1);
        let told = find(&format!("a{}", "n".repeat(255))).unwrap_err();
        assert!(told.ends_with("…: a host's name has at most 255 bytes"), "{told}");
    }

    #[test]
    fn command_lists_hosts() {
        assert_eq!(hosts("@command: echo n1; echo n3").names(), ["n1", "n3"]);
    }

    #[test]
    fn rows_of_numbers_are_found() {
        for expression in ["n[1-12]", "n[001-012]-ib", "n[7-8]", "n5"] {
            assert!(hosts(expression).row.is_some(), "{expression}");
        }
        for expression in ["n[1,3]", "a,b", "r1n[1-3]", "n[08-10],n[011-012]", "7"] {
            assert!(hosts(expression).row.is_none(), "{expression}");
        }
    }

    proptest! {
        /// Names of any letters are folded as they are, and none panics.
        #[test]
        fn names_of_any_letters_fold(
            stem in "[nré日\u{301}İ0-9-]{0,4}",
            end in "[é日x.-]{0,2}",
            first in 0u32..20,
            count in 1u32..5,
        ) {
            let names: Vec<String> =
                (first..first + count).map(|number| format!("{stem}{number}{end}")).collect();
            let hosts = Hosts::new(names.clone());
            let all = RangeSet::full(hosts.len());
            let quick = hosts.fold(&all);
            let plain = Hosts { row: None, ..hosts };
            prop_assert_eq!(&quick, &plain.fold(&all));
        }

        /// The quick way prints what the host set itself prints.
        #[test]
        fn rows_fold_as_host_sets_do(
            pattern in prop::sample::select(vec!["n[1-40]", "n[001-040]", "c[90-129]-x", "n[9-48]"]),
            chosen in prop::collection::btree_set(0u32..40, 1..40),
        ) {
            let hosts = hosts(pattern);
            let leaves: RangeSet = chosen.into_iter().collect();
            let quick = hosts.fold(&leaves);
            let plain = Hosts { row: None, ..hosts };
            prop_assert_eq!(quick, plain.fold(&leaves));
        }
    }
}
