//! What a command changed, in one line.
use super::HostNames;
use sheaf_core::RangeSet;
use sheaf_group::Unfinished;
use sheaf_records::{Changed, FilesInPart, UnknownHosts};

/// What was changed where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// What was done, as `removed` or `mode set`.
    pub done: &'static str,
    /// Where the hosts are in it: `on`, `to` or `from`.
    pub way: &'static str,
    /// To what, as one and as many.
    pub nouns: (&'static str, &'static str),
    /// On how many files of all hosts.
    pub files: u64,
    pub leaves: RangeSet,
    /// On how many more files it was begun and failed, and where.
    pub in_part: (u64, RangeSet),
    /// Hosts that did not come to the end.
    pub unfinished: Unfinished,
    /// It was only said and not done.
    pub is_dry: bool,
}

impl Changes {
    /// Whether something was changed, or may have been.
    pub fn may_be_any(&self) -> bool {
        !self.is_dry
            && (self.files > 0 || self.in_part.0 > 0 || !self.unfinished.unknown.is_empty())
    }

    /// `removed on n[1-16]: 16 files`, `written on n[1-2]: 2 files, in part on n3: 1 file`; where
    /// hosts have not said all, `removed on n[1-2]: at least 512 files`.
    pub fn text(&self, hosts: &dyn HostNames) -> String {
        let Self { done, way, files, nouns, leaves, in_part, unfinished, is_dry } = self;
        let done = match (is_dry, done.split_once(' ')) {
            (false, _) => (*done).to_owned(),
            (true, None) => format!("would be {done}"),
            (true, Some((what, done))) => format!("the {what} would be {done}"),
        };
        let on = |files: u64, leaves: &RangeSet, (one, many): (&str, &str)| {
            let noun = if files == 1 { one } else { many };
            let least = if leaves.is_disjoint(&unfinished.unknown) { "" } else { "at least " };
            format!("{way} {}: {least}{files} {noun}", hosts.fold(leaves))
        };
        // Only files are written in place.
        let in_part = (in_part.0, on(in_part.0, &in_part.1, ("file", "files")));
        match (*files, in_part) {
            (0, (0, _)) if unfinished.unknown.is_empty() => format!("{done}: nothing"),
            (0, (0, _)) => format!("{done}: not known"),
            (0, (_, cut)) => format!("{done} in part {cut}"),
            (files, (0, _)) => format!("{done} {}", on(files, leaves, *nouns)),
            (files, (_, cut)) => format!("{done} {}, in part {cut}", on(files, leaves, *nouns)),
        }
    }

    /// The same for programs.
    pub fn record(&self, hosts: &dyn HostNames) -> Changed {
        let (unknown, (files, cut)) = (&self.unfinished.unknown, &self.in_part);
        Changed {
            done: self.done.to_owned(),
            hosts: hosts.fold(&self.leaves),
            count: self.leaves.len(),
            files: self.files,
            dry_run: self.is_dry,
            complete: self.unfinished.is_none(),
            unknown: (!unknown.is_empty())
                .then(|| UnknownHosts { hosts: hosts.fold(unknown), count: unknown.len() }),
            in_part: (*files > 0).then(|| FilesInPart {
                hosts: hosts.fold(cut),
                count: cut.len(),
                files: *files,
            }),
        }
    }
}
