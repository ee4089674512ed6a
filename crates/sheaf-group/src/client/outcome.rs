//! What the members of an operation came to, beside the data.
use crate::aggregate::{ErrorClass, StatusSum};
use crate::entry::{Merged, MergedError};
use hashbrown::{DefaultHashBuilder, HashMap};
use sheaf_core::{Errno, MemberSet, RangeSet};
use sheaf_tree::Coverage;
use std::hash::BuildHasher;

/// Who did what in an operation: never a lost error, and a partial answer always says so.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// The statuses of members that succeeded.
    pub status: StatusSum,
    /// Members that failed, by errno and path.
    pub errors: Vec<ErrorClass>,
    /// Hosts that failed as a whole, by errno.
    pub failed: Vec<(Errno, RangeSet)>,
    /// Hosts that did not answer, by errno: lost, too late, cancelled.
    pub silent: Vec<(Errno, RangeSet)>,
    /// Hosts of which a part of a tool's answer came, whether or not the rest did.
    pub heard: RangeSet,
}

impl Outcome {
    /// Whether every member of every host succeeded.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.errors.is_empty() && self.failed.is_empty() && self.silent.is_empty()
    }

    /// How many members and whole hosts failed or were silent: each once, whatever went wrong with
    /// it.
    #[must_use]
    pub fn failed_count(&self) -> u64 {
        let hosts: u64 =
            self.failed.iter().chain(&self.silent).map(|(_, leaves)| leaves.len()).sum();
        let mut members: HashMap<&str, MemberSet> = HashMap::new();
        for error in &self.errors {
            members.entry(error.named()).or_default().union_with(&error.members);
        }
        let more = self.errors.iter().map(|error| error.more).fold(0, u64::saturating_add);
        let named = members.values().map(MemberSet::len).sum::<u64>();
        more.saturating_add(hosts + named)
    }

    /// How many members and whole hosts there were.
    #[must_use]
    pub fn member_count(&self) -> u64 {
        self.status.count.saturating_add(self.failed_count())
    }

    /// The first reason: of a member that failed, else of a host.
    fn first(&self) -> Option<(&Errno, &str)> {
        let hosts = self.failed.iter().chain(&self.silent).map(|(errno, _)| (errno, ""));
        self.errors.iter().map(|error| (&error.errno, error.path.as_str())).chain(hosts).next()
    }

    /// Every errno in it.
    pub fn errnos(&self) -> impl Iterator<Item = Errno> + '_ {
        let hosts = self.failed.iter().chain(&self.silent).map(|(errno, _)| *errno);
        hosts.chain(self.errors.iter().map(|error| error.errno))
    }

    /// Takes in what a wave covered.
    pub fn add_coverage(&mut self, coverage: &Coverage) {
        for (errno, leaves) in &coverage.failed {
            self.add_failed(*errno, leaves);
        }
        for (errno, leaves) in &coverage.silent {
            add(&mut self.silent, *errno, leaves);
        }
    }

    /// Takes in what a wave covered, as far as it concerns `asked`. A host that did not begin
    /// because it was too late, or nobody waited any more, is silent.
    pub fn add_coverage_of(&mut self, coverage: &Coverage, asked: &RangeSet) {
        for (errno, leaves) in &coverage.failed {
            self.add_failed(*errno, &leaves.intersection(asked));
        }
        for (errno, leaves) in &coverage.silent {
            add(&mut self.silent, *errno, &leaves.intersection(asked));
        }
    }

    /// Counts hosts as failed; those that only say that they have stopped have said nothing.
    pub fn add_failed(&mut self, errno: Errno, leaves: &RangeSet) {
        let has_stopped = matches!(errno, Errno::CANCELED | Errno::TIMEDOUT);
        add(if has_stopped { &mut self.silent } else { &mut self.failed }, errno, leaves);
    }

    /// Counts hosts whose answer could not be had: as failed if it does not decode, otherwise as
    /// silent.
    pub(super) fn add_lost(&mut self, errno: Errno, leaves: &RangeSet) {
        match errno {
            Errno::PROTO => self.add_failed(errno, leaves),
            _ => self.add_silent(errno, leaves),
        }
    }

    /// Counts hosts as silent.
    pub fn add_silent(&mut self, errno: Errno, leaves: &RangeSet) {
        add(&mut self.silent, errno, leaves);
    }

    /// Counts members as failed.
    pub fn add_error(&mut self, error: ErrorClass) {
        match self.errors.iter_mut().find(|have| is_same(have, &error)) {
            Some(have) => absorb(have, &error),
            None => self.errors.push(error),
        }
    }

    /// Counts members as failed, without looking whether others failed in the same way:
    /// [`Self::fold_errors`] does, for all of them at once.
    pub fn push_error(&mut self, error: ErrorClass) {
        self.errors.push(error);
    }

    /// Makes one of all errors that are equal but for their members.
    pub fn fold_errors(&mut self) {
        let hasher = DefaultHashBuilder::default();
        let mut places: HashMap<u64, usize> = HashMap::new();
        let mut folded: Vec<ErrorClass> = Vec::new();
        for error in std::mem::take(&mut self.errors) {
            let key = hasher.hash_one((error.errno, &error.path, &error.beneath));
            let place = *places.entry(key).or_insert(folded.len());
            match folded.get_mut(place).filter(|have| is_same(have, &error)) {
                Some(have) => absorb(have, &error),
                None => folded.push(error),
            }
        }
        self.errors = folded;
    }

    /// Counts `path` as failed on these hosts.
    pub fn add_path_error(&mut self, errno: Errno, path: &str, leaves: RangeSet) {
        self.add_error(ErrorClass::new(errno, path, MemberSet::of_leaves(0, leaves)));
    }

    /// Takes in the errors of tools' answers.
    pub fn add_errors(&mut self, merged: &Merged) {
        for MergedError { path, errno, beneath, leaves } in merged.errors() {
            let [path, beneath] = [path, beneath].map(String::from_utf8_lossy);
            let class = ErrorClass::new(errno, path, MemberSet::of_leaves(0, leaves.clone()));
            self.push_error(class.beneath(beneath));
        }
        self.fold_errors();
    }

    /// Hosts that failed as a whole or were silent.
    #[must_use]
    pub fn missing_hosts(&self) -> RangeSet {
        let mut all = RangeSet::new();
        for (_, leaves) in self.failed.iter().chain(&self.silent) {
            all.union_with(leaves);
        }
        all
    }

    /// Counts nobody twice: a host is missing for one reason, and what a host that is missing was
    /// at when the time was over, or nobody waited any more, is no failure of its own.
    pub fn count_once(&mut self) {
        let mut missing = RangeSet::new();
        for list in [&mut self.failed, &mut self.silent] {
            for (_, leaves) in list.iter_mut() {
                *leaves = leaves.difference(&missing);
                missing.union_with(leaves);
            }
            list.retain(|(_, leaves)| !leaves.is_empty());
        }
        for error in &mut self.errors {
            if matches!(error.errno, Errno::TIMEDOUT | Errno::CANCELED) {
                let mut members = MemberSet::default();
                for (local, leaves) in error.members.by_local() {
                    members.union_with(&MemberSet::of_leaves(*local, leaves.difference(&missing)));
                }
                error.members = members;
            }
        }
        self.errors.retain(|error| error.more > 0 || !error.members.is_empty());
    }

    /// Takes in the outcome of another operation of the same command.
    pub fn merge(&mut self, other: Self) {
        self.status.merge(&other.status);
        self.merge_failures(other);
    }

    /// Takes in who did not succeed elsewhere, for example in opening the group.
    pub fn merge_failures(&mut self, other: Self) {
        self.heard.union_with(&other.heard);
        self.errors.extend(other.errors);
        self.fold_errors();
        self.add_coverage(&Coverage {
            failed: other.failed,
            silent: other.silent,
            ..Coverage::default()
        });
    }
}

fn is_same(one: &ErrorClass, other: &ErrorClass) -> bool {
    (one.errno, &one.path, &one.beneath) == (other.errno, &other.path, &other.beneath)
}

fn absorb(have: &mut ErrorClass, error: &ErrorClass) {
    have.members.union_with(&error.members);
    have.more = have.more.saturating_add(error.more);
}

/// The first reason why something failed, and how many others there are.
impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Some((errno, path)) = self.first() else { return f.write_str("no member failed") };
        if !path.is_empty() {
            write!(f, "{path}: ")?;
        }
        match self.errnos().count() - 1 {
            0 => write!(f, "{errno}"),
            1 => write!(f, "{errno}, and 1 more reason"),
            more => write!(f, "{errno}, and {more} more reasons"),
        }
    }
}

impl std::error::Error for Outcome {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.first().map(|(errno, _)| errno as _)
    }
}

fn add(list: &mut Vec<(Errno, RangeSet)>, errno: Errno, leaves: &RangeSet) {
    if leaves.is_empty() {
        return;
    }
    match list.iter_mut().find(|(have, _)| *have == errno) {
        Some((_, have)) => have.union_with(leaves),
        None => list.push((errno, leaves.clone())),
    }
}
