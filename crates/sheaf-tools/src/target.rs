//! What tools work on, and what can go wrong with a tool as a whole.
use crate::grep::GrepError;
use sheaf_core::{Errno, RangeSet};
use sheaf_group::aggregate::ErrorClass;
use sheaf_group::{GroupError, Outcome};

/// A path or pattern on each of these hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The hosts' leaves.
    pub members: RangeSet,
    /// Path or pattern beneath their exports.
    pub path: String,
}

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

/// A pattern that matches on some hosts is no error of the others; one that matches nowhere is an
/// error of the pattern, once for all. What could not be looked for stays an error in any case.
pub(crate) fn drop_unmatched(outcome: &mut Outcome, members: &RangeSet) {
    let answered = members.difference(&outcome.missing_hosts());
    for error in std::mem::take(&mut outcome.errors) {
        match error.errno {
            Errno::NOMATCH if !answered.is_subset(&error.members.leaves()) => {}
            Errno::NOMATCH => outcome.add_error(ErrorClass { errno: Errno::NOENT, ..error }),
            _ => outcome.add_error(error),
        }
    }
}
