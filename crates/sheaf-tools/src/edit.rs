//! Changes of files on many hosts: `chmod`, `chown`, `truncate`, `rm`, `mkdir`, `ln`; and `write`.
//!
//! Each path fails or succeeds by itself on each host; equal failures fold over hosts.
use crate::paths::{self, Effect};
use crate::target::{Target, ToolError};
use serde::{Deserialize, Serialize};
use sheaf_core::RangeSet;
use sheaf_file::ModeChange;
use sheaf_group::entry::{Entry, EntryKind, Merged, MergedEntry};
use sheaf_group::tool::Tools;
use sheaf_group::{Client, Outcome, Unfinished};
use std::path::{Component, Path};

mod leaf;
mod link;
mod size;
mod write;

pub use crate::paths::Cut;
pub use size::SizeChange;
pub use write::{WriteOptions, WriteWay, Written, write};

/// Makes the leaves' part known to servers.
pub fn register(tools: &mut Tools) {
    tools.register(leaf::NAME, leaf::EditTool);
    write::register(tools);
}

/// A change of each path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Edit {
    /// `chmod`; symbolic links are followed where they are named, and passed over below.
    Chmod {
        /// What it is to be.
        mode: NewMode,
        /// Of what lies beneath directories, too.
        recursive: bool,
        /// With `recursive`, all that a host serves is refused (`EBUSY`).
        preserve_root: bool,
    },
    /// `chown`.
    Chown {
        /// Whom they are to belong to.
        owner: NewOwner,
        /// Files of other owners and groups stay as they are: `USER`, `USER:GROUP` or `:GROUP`.
        from: Option<String>,
        /// Of what lies beneath directories, too. Symbolic links are not followed then.
        recursive: bool,
        /// Of what a symbolic link leads to, not of the link.
        follow: bool,
        /// With `recursive`, all that a host serves is refused (`EBUSY`).
        preserve_root: bool,
    },
    /// `truncate`.
    Truncate {
        /// The new size, or what is to be done to the size it starts from.
        size: Option<SizeChange>,
        /// Start from the size of this file of the host, not from the file's own.
        reference: Option<String>,
        /// Make files that are missing; they are passed over otherwise.
        create: bool,
    },
    /// `rm`.
    Remove {
        /// Directories with all beneath them.
        recursive: bool,
        /// What does not exist counts as removed.
        force: bool,
        /// Empty directories, too.
        empty_dirs: bool,
        /// All that a host serves, and mount points, are not removed (`EBUSY`), by whatever name
        /// or pattern they are meant.
        preserve_root: bool,
    },
    /// `mkdir`.
    Mkdir {
        /// Directories above that are missing, too; one that exists is no error.
        parents: bool,
        /// Its mode; `None`: what the host's umask leaves.
        mode: Option<ModeChange>,
    },
    /// `ln`; the path is that of the link, or of a directory for it.
    Link {
        /// What it leads to.
        target: Vec<u8>,
        /// A symbolic link.
        symbolic: bool,
        /// In place of a file that is there.
        force: bool,
        /// A symbolic link to a directory is replaced itself, not filled.
        no_dereference: bool,
    },
}

impl Edit {
    /// What would be done to all that a host serves, where that is refused.
    fn spared_root(&self) -> Option<&'static str> {
        match self {
            Self::Remove { preserve_root: true, .. } => Some("removed"),
            Self::Chmod { recursive: true, preserve_root: true, .. }
            | Self::Chown { recursive: true, preserve_root: true, .. } => Some("changed"),
            _ => None,
        }
    }

    /// The command, as it stands in an audit.
    pub(crate) fn command(&self) -> String {
        let (command, recursive) = match self {
            Self::Chmod { recursive, .. } => ("chmod", *recursive),
            Self::Chown { recursive, .. } => ("chown", *recursive),
            Self::Truncate { .. } => ("truncate", false),
            Self::Remove { recursive, .. } => ("rm", *recursive),
            Self::Mkdir { .. } => ("mkdir", false),
            Self::Link { .. } => ("ln", false),
        };
        let option = match (command, recursive) {
            (_, false) => "",
            ("rm", true) => " -r",
            (_, true) => " -R",
        };
        format!("{command}{option}")
    }
}

/// A mode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NewMode {
    /// What this makes of the old one.
    Change(ModeChange),
    /// That of this file of the host.
    Reference(String),
}

/// An owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NewOwner {
    /// `user`, `user:group`, `user:` or `:group`, by name or number, as the host knows them.
    Named(String),
    /// That of this file of the host.
    Reference(String),
}

/// What is said of a change, and whether it is made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EditOptions {
    /// Say what was done to each file.
    pub verbose: bool,
    /// Say what would be done to each file, and change nothing.
    pub dry_run: bool,
}

/// What a change came to.
#[derive(Debug, Default)]
pub struct Edited {
    /// Which paths failed; the status counts the paths that went well.
    pub outcome: Outcome,
    /// How many files were changed (would be, in a dry run) on each host, by equal numbers. Where
    /// a host is not known to have come to its end it may be more.
    pub changed: Vec<(u64, RangeSet)>,
    /// Hosts that did not come to the end.
    pub unfinished: Unfinished,
}

impl Edited {
    /// The hosts where something was changed.
    #[must_use]
    pub fn hosts(&self) -> RangeSet {
        let mut all = RangeSet::new();
        self.changed.iter().for_each(|(_, hosts)| all.union_with(hosts));
        all
    }

    /// How many files were changed on all hosts.
    #[must_use]
    pub fn files(&self) -> u64 {
        let of_hosts = self.changed.iter().map(|(files, hosts)| files.saturating_mul(hosts.len()));
        of_hosts.fold(0, u64::saturating_add)
    }
}

/// Changes `targets` on their hosts. What was done, or would be, comes to `sink` in lines, if the
/// options ask for it.
///
/// # Errors
/// [`ToolError::Usage`] for the removal, or another recursive change, of a host's whole export, what `sink` returns, and answers
/// that do not decode. What fails on hosts is in the outcome.
pub async fn edit(
    client: &Client,
    targets: &[Target],
    edit: &Edit,
    options: EditOptions,
    sink: &mut dyn FnMut(&Merged) -> std::io::Result<()>,
) -> Result<Edited, ToolError> {
    // Hosts refuse it, too, each for itself: here the user sees it once, and no host is asked.
    if let Some(done) = edit.spared_root()
        && let Some(target) = targets.iter().find(|target| is_root(&target.path))
    {
        let text = format!(
            "{}: this is everything a host serves, and is {done} with --no-preserve-root only",
            target.path
        );
        return Err(ToolError::Usage(text));
    }
    let params = |paths| leaf::EditParams { edit: edit.clone(), paths, options };
    let mut changed = Vec::new();
    let mut sink = counting(&mut changed, sink);
    let tool = (leaf::NAME, Effect::of_change(options.dry_run));
    let paths::SaidPath { outcome, unfinished, .. } =
        paths::run_checked(client, targets, tool, &may_say, params, &mut sink).await?;
    drop(sink);
    Ok(Edited { outcome, changed: greatest(changed), unfinished })
}

/// A host that is long at work says several times how many files it has changed: the last number
/// counts.
fn greatest(mut said: Vec<(u64, RangeSet)>) -> Vec<(u64, RangeSet)> {
    said.sort_by_key(|(files, leaves)| (std::cmp::Reverse(*files), leaves.first()));
    let (mut seen, mut last) = (RangeSet::new(), Vec::new());
    for (files, leaves) in said {
        let leaves = leaves.difference(&seen);
        seen.union_with(&leaves);
        if !leaves.is_empty() {
            last.push((files, leaves));
        }
    }
    last
}

/// Takes the numbers of changed files out of what goes to `sink`.
fn counting<'a>(
    changed: &'a mut Vec<(u64, RangeSet)>,
    sink: &'a mut dyn FnMut(&Merged) -> std::io::Result<()>,
) -> impl FnMut(&Merged) -> std::io::Result<()> + 'a {
    |merged| {
        for (path, files, leaves) in numbers(merged)? {
            if path.is_empty() {
                changed.push((files, leaves));
            }
        }
        sink(merged)
    }
}

/// The numbers that hosts said, with the path they are about: none of them is about the whole.
fn numbers(merged: &Merged) -> std::io::Result<Vec<(String, u64, RangeSet)>> {
    let entries = merged.sorted().into_iter().filter(|entry| entry.entry.kind == EntryKind::Count);
    let number = |entry: MergedEntry<'_>| {
        let number = std::str::from_utf8(entry.entry.text).ok().and_then(|text| text.parse().ok());
        let number = number.ok_or_else(|| std::io::Error::from(std::io::ErrorKind::InvalidData))?;
        Ok((String::from_utf8_lossy(entry.path).into_owned(), number, entry.leaves.clone()))
    };
    entries.map(number).collect()
}

/// Whether a path can only be the root of an export, whatever a host has.
fn is_root(path: &str) -> bool {
    !path.is_empty()
        && Path::new(path).components().all(|part| !matches!(part, Component::Normal(_)))
}

/// Decodes `data` as each thing that crosses the tree here, for fuzzing.
#[cfg(feature = "fuzzing")]
pub(crate) fn decode_any(data: &[u8]) {
    drop(postcard::from_bytes::<leaf::EditParams>(data));
    write::decode_any(data);
}

/// Whether this can be in the answer of a host: what was done is told in plain words.
fn may_say(entry: &Entry<'_>) -> bool {
    entry.kind != EntryKind::Line || !entry.text.iter().any(u8::is_ascii_control)
}

#[cfg(test)]
mod tests {
    use super::{greatest, is_root};
    use sheaf_core::RangeSet;

    #[test]
    fn last_number_of_each_host_counts() {
        let said =
            vec![(256, RangeSet::full(4)), (512, RangeSet::full(2)), (600, RangeSet::single(1))];
        let last = greatest(said);
        let texts: Vec<_> =
            last.iter().map(|(files, leaves)| format!("{files}: {leaves}")).collect();
        assert_eq!(texts, ["600: 1", "512: 0", "256: 2-3"]);
    }

    #[test]
    fn roots_are_known_by_every_name() {
        for path in ["/", "//", ".", "..", "/..", "./", "/./.."] {
            assert!(is_root(path), "{path}");
        }
        for path in ["", "/a", "a", "/*", "a/..", ".a"] {
            assert!(!is_root(path), "{path}");
        }
    }
}
