//! What tools work on, and what can go wrong with a tool as a whole.
use crate::grep::GrepError;
use sheaf_core::{Errno, MemberSet, RangeSet};
use sheaf_file::Pattern;
pub use sheaf_group::Target;
use sheaf_group::aggregate::ErrorClass;
use sheaf_group::entry::MergedEntry;
use sheaf_group::message::READ_BYTES_MAX;
use sheaf_group::{GroupError, Outcome};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A tool could not do its work at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// The pattern is malformed.
    #[error(transparent)]
    Grep(#[from] GrepError),
    /// The group operation failed.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// The results could not be handed on.
    #[error(transparent)]
    Sink(std::io::Error),
    /// A file of this machine could not be used.
    #[error("{path}: {errno}")]
    Local {
        /// Which.
        path: String,
        /// Why.
        errno: Errno,
    },
    /// A file is longer than what is read of one at once.
    #[error(
        "{path}: longer than {} MiB, the most that is read of a file at once: say --count, combine it with \
         checksum, count or zero, or see cat, sha, grep and cp, which take files of any length",
        READ_BYTES_MAX >> 20
    )]
    TooLong {
        /// The file, as far as is known.
        path: String,
    },
    /// Something that cannot be meant.
    #[error("{0}")]
    Usage(String),
    /// An answer, or a request, does not decode.
    #[error("a host answered with something that is not an answer")]
    Protocol,
}

impl ToolError {
    /// The errno of it.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::Grep(error) => error.errno(),
            Self::Group(error) => error.errno(),
            Self::Sink(error) => Errno::from_io(error),
            Self::Local { errno, .. } => *errno,
            Self::TooLong { .. } => Errno::FBIG,
            Self::Usage(_) => Errno::INVAL,
            Self::Protocol => Errno::PROTO,
        }
    }
}

/// Targets with the same hosts together, in order of first mention: one call each.
pub(crate) fn by_members(targets: &[Target]) -> Vec<(RangeSet, Vec<String>)> {
    let mut calls: Vec<(RangeSet, Vec<String>)> = Vec::new();
    for target in targets {
        match calls.iter_mut().find(|(members, _)| *members == target.members) {
            Some((_, paths)) => paths.push(target.path.clone()),
            None => calls.push((target.members.clone(), vec![target.path.clone()])),
        }
    }
    calls
}

/// Hosts that are asked for the same, each with all it is asked for, in the order in which that was
/// asked for: one call each, so that a host sees everything at once.
pub(crate) fn by_hosts(targets: &[Target]) -> Vec<(RangeSet, Vec<String>)> {
    let mut calls: Vec<(RangeSet, Vec<String>)> = Vec::new();
    for Target { members, path } in targets {
        let mut others = members.clone();
        for (hosts, paths) in std::mem::take(&mut calls) {
            let asked = hosts.intersection(members);
            others = others.difference(&hosts);
            let rest = hosts.difference(&asked);
            if !asked.is_empty() {
                calls.push((asked, paths.iter().chain([path]).cloned().collect()));
            }
            if !rest.is_empty() {
                calls.push((rest, paths));
            }
        }
        if !others.is_empty() {
            calls.push((others, vec![path.clone()]));
        }
    }
    calls.sort_by_key(|(hosts, _)| hosts.first());
    calls
}

/// A pattern that matches on some of its hosts is no error of the others; one that matches on none
/// is an error of the pattern, once for all. What could not be looked for stays an error in any
/// case.
pub(crate) fn drop_unmatched(outcome: &mut Outcome, targets: &[Target]) {
    let missing = outcome.missing_hosts();
    for error in std::mem::take(&mut outcome.errors) {
        if error.errno != Errno::NOMATCH {
            outcome.push_error(error);
            continue;
        }
        let without = error.members.leaves();
        for target in targets.iter().filter(|target| target.path == error.path) {
            let answered = target.members.difference(&missing);
            if !answered.is_empty() && answered.is_subset(&without) {
                let members = MemberSet::of_leaves(0, answered);
                outcome.push_error(ErrorClass::new(Errno::NOENT, &error.path, members));
            }
        }
    }
    outcome.fold_errors();
}

/// The order in which paths were asked for.
#[derive(Debug)]
pub struct ArgumentOrder {
    /// None where there is nothing to order.
    patterns: Vec<Option<Pattern>>,
}

impl ArgumentOrder {
    /// That of `targets`.
    #[must_use]
    pub fn new(targets: &[Target]) -> Self {
        let mut paths: Vec<&str> = Vec::new();
        for target in targets {
            if !paths.contains(&target.path.as_str()) {
                paths.push(&target.path);
            }
        }
        // One that is malformed stands for nothing.
        Self { patterns: paths.into_iter().map(|path| Pattern::new(path).ok()).collect() }
    }

    /// The place of the first argument that stands for `path` or for a directory above it; of a
    /// directory that was made on the way to an argument, that of this one.
    fn place(&self, path: &[u8]) -> usize {
        let path = Path::new(OsStr::from_bytes(path));
        let stands_for = |pattern: &Option<Pattern>| {
            pattern.as_ref().is_some_and(|p| path.ancestors().any(|at| p.matches(at)))
        };
        let leads_to = |pattern: &Option<Pattern>| {
            pattern
                .as_ref()
                .and_then(Pattern::literal)
                .is_some_and(|argument| argument.starts_with(path))
        };
        let place = self.patterns.iter().position(stands_for);
        place.or_else(|| self.patterns.iter().position(leads_to)).unwrap_or(self.patterns.len())
    }

    /// Puts entries that are sorted by path into the order of their arguments.
    pub fn sort(&self, entries: &mut Vec<MergedEntry<'_>>) {
        if self.patterns.len() > 1 {
            let mut sections: Vec<_> = entries.chunk_by(|a, b| a.path == b.path).collect();
            sections.sort_by_cached_key(|section| self.place(section[0].path));
            *entries = sections.concat();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(hosts: std::ops::Range<u32>, path: &str) -> Target {
        Target { members: hosts.collect(), path: path.to_owned() }
    }

    #[test]
    fn every_host_is_called_once_with_all_it_is_asked_for() {
        let calls = by_hosts(&[
            target(0..1, "/b"),
            target(0..3, "/a"),
            target(2..4, "/c"),
            target(0..1, "/b"),
        ]);
        let calls: Vec<_> =
            calls.iter().map(|(hosts, paths)| format!("{hosts} {}", paths.join(" "))).collect();
        assert_eq!(calls, ["0 /b /a /b", "1 /a", "2 /a /c", "3 /c"]);
        assert!(by_hosts(&[target(0..0, "/a")]).is_empty());
    }

    #[test]
    fn pattern_is_missed_by_the_argument_that_matches_nowhere() {
        let targets = [target(0..2, "/x*"), target(2..4, "/x*"), target(0..4, "/y*")];
        let mut outcome = Outcome::default();
        outcome.add_path_error(Errno::NOMATCH, "/x*", (1..4).collect());
        outcome.add_path_error(Errno::NOMATCH, "/y*", (0..3).collect());
        drop_unmatched(&mut outcome, &targets);
        assert_eq!(outcome.errors.len(), 1);
        assert_eq!(
            (outcome.errors[0].errno, outcome.errors[0].path.as_str()),
            (Errno::NOENT, "/x*")
        );
        assert_eq!(outcome.errors[0].members.leaves().to_string(), "2-3");
    }

    #[test]
    fn paths_have_the_place_of_their_argument() {
        let order =
            ArgumentOrder::new(&[target(0..1, "/d/b*"), target(0..2, "/d"), target(0..1, "/a")]);
        let places =
            ["/d/b1", "/d/b1/x", "/d/c", "/a", "/e"].map(|path| order.place(path.as_bytes()));
        assert_eq!(places, [0, 0, 1, 2, 3]);
        let order = ArgumentOrder::new(&[target(0..1, "/z/b"), target(0..1, "/a/b/c")]);
        let places =
            ["/a", "/a/b", "/a/b/c", "/z", "/z/b", "/zz"].map(|path| order.place(path.as_bytes()));
        assert_eq!(places, [1, 1, 1, 0, 0, 2]);
    }
}
