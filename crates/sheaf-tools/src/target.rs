//! What tools work on, and what can go wrong with a tool as a whole.
use crate::grep::GrepError;
use sheaf_core::{Errno, RangeSet};
use sheaf_file::{Pattern, is_pattern};
use sheaf_group::tool::Host;
use sheaf_group::{GroupError, Outcome};
use std::collections::VecDeque;
use std::path::PathBuf;

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
/// error of the pattern, once for all.
pub(crate) fn drop_unmatched(outcome: &mut Outcome, members: &RangeSet) {
    let answered = members.difference(&outcome.missing_hosts());
    outcome.errors.retain(|error| {
        let unmatched = error.errno == Errno::NOENT && is_pattern(&error.path);
        !unmatched || answered.is_subset(&error.members.leaves())
    });
}

/// The files a pattern stands for on a host. One that matches nothing is an error of its own,
/// which counts only if it matches on no host at all.
pub(crate) fn expand(pattern: &str, host: &Host) -> Result<VecDeque<PathBuf>, Errno> {
    let parsed = Pattern::new(pattern).map_err(|_| Errno::INVAL)?;
    if let Some(literal) = parsed.literal() {
        return Ok([literal].into());
    }
    let files = host.export.glob(&parsed)?;
    if files.is_empty() { Err(Errno::NOENT) } else { Ok(files.into()) }
}
