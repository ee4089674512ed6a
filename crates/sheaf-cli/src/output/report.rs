//! Who failed and who stayed silent, folded into a few lines.
use super::{Changes, Palette, fold_paths, printable};
use crate::exit::Exit;
use sheaf_core::{Errno, RangeSet};
use sheaf_group::aggregate::ErrorClass;
use sheaf_records::{FailedMembers, SilentHosts, Summary};
use sheaf_session::config::Hosts;
use sheaf_session::{NOT_STARTED, is_starting, is_unreached, is_untried};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::time::Duration;

/// Lines of failures and of silent hosts that are printed; the rest is one line more.
const LINES_MAX: usize = 20;

/// Prints sets of leaves as sets of hosts.
pub trait HostNames {
    /// The folded host set of these leaves.
    fn fold(&self, leaves: &RangeSet) -> String;
}

impl HostNames for Hosts {
    fn fold(&self, leaves: &RangeSet) -> String {
        Self::fold(self, leaves)
    }
}

/// The hosts of no session.
pub struct Nobody;

impl HostNames for Nobody {
    fn fold(&self, _: &RangeSet) -> String {
        String::new()
    }
}

/// One file that failed on one or more hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub leaves: RangeSet,
    pub path: String,
    /// The member that has failed with it, where the path is not what was named, but lies beneath
    /// it; empty otherwise.
    pub beneath: String,
    /// So many more members of these hosts, of which the path is not known.
    pub more: u64,
    pub errno: Errno,
    /// What more there is to say, such as the limit that was reached.
    pub detail: Option<String>,
}

impl Failure {
    /// A path that was named.
    pub fn new(
        leaves: RangeSet,
        path: impl Into<String>,
        errno: Errno,
        detail: Option<String>,
    ) -> Self {
        Self { leaves, path: path.into(), beneath: String::new(), more: 0, errno, detail }
    }

    /// What an operation says of members that failed alike.
    pub fn of(error: &ErrorClass, detail: Option<String>) -> Self {
        let leaves = error.members.leaves();
        let more = error.count() - leaves.len();
        let failure = Self::new(leaves, &error.path, error.errno, detail);
        Self { beneath: error.beneath.clone(), more, ..failure }
    }

    /// The path that was named.
    fn named(&self) -> &str {
        if self.beneath.is_empty() { &self.path } else { &self.beneath }
    }
}

/// Of a host whose failure says nothing of what it has changed.
const NOT_KNOWN: &str = "what it had done until then is not known";
const STARTED_ANEW: &str =
    "its server was started anew meanwhile; what the one before had done is not known";

/// Hosts that gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silent {
    pub leaves: RangeSet,
    pub why: Silence,
}

/// Why hosts gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Silence {
    /// Nothing came within this time.
    NoAnswer(Duration),
    /// The way to the host is gone, and perhaps it is known why.
    Down(Option<String>),
    /// The host is there, and does not serve because of this.
    Unserved(Errno, String),
    /// The user ended the command first.
    Cancelled,
    /// It ended before it was done because of this, and has said what it has changed or found until
    /// then.
    Undone(Box<Silence>),
    /// What it has changed, or still will, is not known because of this.
    Unknown(Box<Silence>),
}

impl Silence {
    fn errno(&self) -> Errno {
        match self {
            Self::NoAnswer(_) => Errno::TIMEDOUT,
            Self::Down(_) => Errno::HOSTDOWN,
            Self::Unserved(errno, _) => *errno,
            Self::Cancelled => Errno::CANCELED,
            Self::Undone(why) | Self::Unknown(why) => why.errno(),
        }
    }

    /// What happened, without the error's name.
    fn text(&self) -> String {
        match self {
            Self::NoAnswer(after) => format!("no answer within {} s", after.as_secs_f64()),
            Self::Down(Some(cause)) if is_unreached(cause) => "not reached".to_owned(),
            Self::Down(_) => "host is down".to_owned(),
            Self::Unserved(_, cause) if is_untried(cause) => "not tried".to_owned(),
            Self::Unserved(_, cause) if is_starting(cause) => "being started".to_owned(),
            Self::Unserved(..) => "it does not serve".to_owned(),
            Self::Cancelled => "interrupted before it answered".to_owned(),
            Self::Undone(why) => match &**why {
                Self::NoAnswer(after) => format!("not done within {} s", after.as_secs_f64()),
                Self::Cancelled => "interrupted before it was done".to_owned(),
                other => other.text(),
            },
            Self::Unknown(why) => match &**why {
                Self::NoAnswer(_) => {
                    format!("{}; it may have done it, or may do it yet", why.text())
                }
                Self::Cancelled => {
                    format!("interrupted; {NOT_KNOWN}")
                }
                Self::Unserved(Errno::PROTO, _) => {
                    format!("it does not serve any more; {NOT_KNOWN}")
                }
                other => format!("{}; {NOT_KNOWN}", other.text()),
            },
        }
    }

    /// The cause, with the name of the host for `%h`, or `HOST` where there are several.
    fn cause_on(&self, hosts: &str, count: u64) -> Option<String> {
        let name = if count == 1 { hosts } else { "HOST" };
        self.cause().map(|cause| cause.replace("%h", name))
    }

    /// Whether the host may have begun: it was started, and can serve.
    fn was_started(&self) -> bool {
        match self {
            // Its link broke, or is none any more.
            Self::Unserved(Errno::PROTO, cause) | Self::Down(Some(cause)) => {
                !cause.contains(NOT_STARTED)
            }
            // It may have come just now.
            Self::Unserved(_, cause) => is_starting(cause),
            _ => true,
        }
    }

    fn cause(&self) -> Option<&str> {
        match self {
            Self::NoAnswer(_) | Self::Cancelled => None,
            Self::Down(cause) => cause.as_deref(),
            Self::Unserved(_, cause) => Some(cause),
            Self::Undone(why) | Self::Unknown(why) => why.cause(),
        }
    }
}

/// Everybody who was asked: how many succeeded, who failed, who stayed silent. The one place that
/// knows how a command ends, in words, as JSON and as an exit code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The hosts that were asked.
    pub asked: RangeSet,
    /// Members that succeeded.
    pub succeeded: u64,
    pub failures: Vec<Failure>,
    pub silent: Vec<Silent>,
    /// Hosts of which at least a part of the answer came.
    pub heard: RangeSet,
    /// Files of this machine that failed; they are named as they fail. They are no members.
    pub failed_here: u64,
    /// Members that failed because of this machine alone, as copies that could not be written.
    pub lost_here: u64,
    /// Members that answered lack something that others have, and were named for it.
    pub incomplete: bool,
    /// Nothing matched.
    pub unmatched: bool,
    /// What was changed, by commands that change files.
    pub changes: Option<Changes>,
    /// The user ended the command.
    pub interrupted: bool,
    /// Failures are counted and not named (`grep -s`).
    pub hushed: bool,
}

/// Failures of the same kind on the same hosts.
struct FoldedFailures<'a> {
    leaves: RangeSet,
    paths: Vec<&'a str>,
    /// The members that failed with these paths.
    named: BTreeSet<&'a str>,
    more: u64,
    errno: Errno,
    detail: Option<&'a str>,
}

impl FoldedFailures<'_> {
    fn members(&self) -> u64 {
        (self.leaves.len() * self.named.len() as u64).saturating_add(self.more)
    }
}

impl Report {
    /// How many members failed: each once, whatever failed of it and for how many reasons.
    pub fn failed(&self) -> u64 {
        let mut members: BTreeMap<&str, RangeSet> = BTreeMap::new();
        for failure in &self.failures {
            members.entry(failure.named()).or_default().union_with(&failure.leaves);
        }
        let more = self.failures.iter().map(|failure| failure.more).fold(0, u64::saturating_add);
        let named = members.values().map(RangeSet::len).sum::<u64>();
        more.saturating_add(self.lost_here + named)
    }

    /// How many hosts stayed silent.
    pub fn silent_hosts(&self) -> u64 {
        self.silent_leaves().len()
    }

    /// How many members there are; a silent host counts as one.
    pub fn members(&self) -> u64 {
        self.succeeded.saturating_add(self.failed()).saturating_add(self.silent_hosts())
    }

    /// How the command ends: well only when everybody contributed.
    pub fn exit(&self) -> Exit {
        if self.interrupted {
            return Exit::Interrupted;
        }
        match (self.is_whole(), self.unmatched) {
            (true, false) => Exit::Success,
            (true, true) => Exit::Unmatched,
            (false, _) if self.is_nobody_there() && !self.may_have_changed() => Exit::Unreachable,
            (false, _) => Exit::Partial,
        }
    }

    /// Whether everybody contributed.
    fn is_whole(&self) -> bool {
        self.failures.is_empty()
            && self.silent.is_empty()
            && self.failed_here == 0
            && !self.incomplete
    }

    /// Whether a command that changes files has changed any, or is not known not to have.
    fn may_have_changed(&self) -> bool {
        self.changes.as_ref().is_some_and(Changes::may_be_any)
    }

    /// Says of hosts that were silent in the middle of a change what is known of what they did.
    pub fn tell_unfinished(&mut self) {
        let Some(changes) = &mut self.changes else { return };
        // Who was not even started has done nothing.
        let mut may_be_at_it = RangeSet::new();
        for silent in self.silent.iter().filter(|silent| silent.why.was_started()) {
            may_be_at_it.union_with(&silent.leaves);
        }
        let mut silent = RangeSet::new();
        self.silent.iter().for_each(|of| silent.union_with(&of.leaves));
        let unfinished = &mut changes.unfinished;
        // Of a host whose answer does not decode it is not known either, and it was not silent.
        let garbled = unfinished.unknown.difference(&silent);
        unfinished.unknown = unfinished.unknown.intersection(&may_be_at_it);
        unfinished.unknown.union_with(&garbled);
        for failure in &mut self.failures {
            let is_told = failure.detail.is_some() || !failure.leaves.is_subset(&garbled);
            failure.detail = match failure.errno {
                Errno::STALE if !is_told => Some(STARTED_ANEW.to_owned()),
                Errno::PROTO if !is_told => Some(NOT_KNOWN.to_owned()),
                _ => continue,
            };
        }
        let mut changed = changes.leaves.clone();
        changed.union_with(&changes.in_part.1);
        let undone = unfinished.heard.intersection(&changed);
        let mut told = Vec::new();
        for Silent { leaves, why } in std::mem::take(&mut self.silent) {
            let (ended, at_it) =
                (leaves.intersection(&undone), leaves.intersection(&unfinished.unknown));
            let rest = leaves.difference(&ended).difference(&at_it);
            told.push(Silent { leaves: ended, why: Silence::Undone(Box::new(why.clone())) });
            told.push(Silent { leaves: at_it, why: Silence::Unknown(Box::new(why.clone())) });
            told.push(Silent { leaves: rest, why });
        }
        told.retain(|silent| !silent.leaves.is_empty());
        self.silent = told;
    }

    /// Says of hosts that were silent in the middle of their answer that a part of it came.
    pub fn tell_heard(&mut self) {
        for Silent { leaves, why } in std::mem::take(&mut self.silent) {
            let part = match why {
                Silence::NoAnswer(_) | Silence::Cancelled => leaves.intersection(&self.heard),
                _ => RangeSet::new(),
            };
            let rest = leaves.difference(&part);
            let undone = Silence::Undone(Box::new(why.clone()));
            self.silent.push(Silent { leaves: part, why: undone });
            self.silent.push(Silent { leaves: rest, why });
        }
        self.silent.retain(|silent| !silent.leaves.is_empty());
    }

    /// Whether of those who were asked not one said anything.
    fn is_nobody_there(&self) -> bool {
        let unheard = self.silent_leaves().difference(&self.heard);
        self.succeeded == 0 && !self.asked.is_empty() && self.asked.is_subset(&unheard)
    }

    /// One line for each kind of failure and of silence, and one in the end; nothing when all is
    /// well.
    pub fn write_text(
        &self,
        hosts: &dyn HostNames,
        palette: &Palette,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        if let Some(changes) = &self.changes {
            writeln!(out, "{}", changes.text(hosts))?;
        }
        let is_well = self.silent.is_empty() && (self.hushed || self.failures.is_empty());
        if is_well && self.lost_here == 0 {
            return Ok(());
        }
        self.write_reasons(hosts, palette, out)?;
        writeln!(out, "sheaf: {}", self.summary())
    }

    /// A line for each kind of failure, and for each reason to be silent.
    pub fn write_reasons(
        &self,
        hosts: &dyn HostNames,
        palette: &Palette,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let (mut failures, silent) = (self.folded(), self.folded_silent());
        if self.hushed {
            failures.clear();
        }
        let members = self.members();
        let shown = failures.len().min(LINES_MAX);
        for failure in &failures[..shown] {
            write_failure(failure, members, hosts, palette, out)?;
        }
        // Silent hosts are named in any case: at least one line is theirs.
        let room = (LINES_MAX - shown).max(1);
        for (why, leaves) in silent.iter().take(room) {
            write_silent(why, &hosts.fold(leaves), leaves.len(), palette, out)?;
        }
        let mut rest = RangeSet::new();
        failures[shown..].iter().for_each(|failure| rest.union_with(&failure.leaves));
        silent.iter().skip(room).for_each(|(_, leaves)| rest.union_with(leaves));
        let more = failures.len() - shown + silent.len().saturating_sub(room);
        if more > 0 {
            let kinds = if more == 1 { "failure" } else { "kinds of failure" };
            writeln!(out, "… and {more} more {kinds} on {}", hosts.fold(&rest))?;
        }
        Ok(())
    }

    /// `58 of 64 members succeeded, 4 failed; 2 hosts silent`.
    pub fn summary(&self) -> String {
        let mut text = format!("{} of {} members succeeded", self.succeeded, self.members());
        match self.failed() {
            0 => {}
            failed => text += &format!(", {failed} failed"),
        }
        let undone = self.silent.iter().filter(|silent| matches!(silent.why, Silence::Undone(_)));
        let undone: u64 = undone.map(|silent| silent.leaves.len()).sum();
        for (hosts, what) in
            [(undone, "not done"), (self.silent_hosts().saturating_sub(undone), "silent")]
        {
            match hosts {
                0 => {}
                1 => text += &format!("; 1 host {what}"),
                hosts => text += &format!("; {hosts} hosts {what}"),
            }
        }
        text
    }

    /// The record that ends the output as JSON, also when all is well.
    pub fn record(&self, hosts: &dyn HostNames) -> Summary {
        let silent = self.folded_silent();
        let silent = silent.iter().map(|(why, leaves)| SilentHosts {
            hosts: hosts.fold(leaves),
            count: leaves.len(),
            errno: errno_name(why.errno()),
            error: why.text(),
            cause: why.cause_on(&hosts.fold(leaves), leaves.len()),
        });
        Summary {
            session: None,
            members: self.members(),
            succeeded: self.succeeded,
            failed: self.folded().iter().map(|failure| failed_members(failure, hosts)).collect(),
            silent: silent.collect(),
            failed_here: self.failed_here,
            exit: self.exit(),
            changed: self.changes.as_ref().map(|changes| changes.record(hosts)),
        }
    }

    /// Failures folded twice: hosts with the same path and error, then paths with the same hosts
    /// and error. Most members first, then by host.
    fn folded(&self) -> Vec<FoldedFailures<'_>> {
        type OfPath<'a> = (RangeSet, BTreeSet<&'a str>, u64);
        let mut by_path: BTreeMap<(Errno, Option<&str>, &str), OfPath<'_>> = BTreeMap::new();
        for failure in &self.failures {
            let key = (failure.errno, failure.detail.as_deref(), failure.path.as_str());
            let (leaves, named, more) = by_path.entry(key).or_default();
            leaves.union_with(&failure.leaves);
            named.insert(failure.named());
            *more = more.saturating_add(failure.more);
        }
        let mut by_leaves: BTreeMap<(Errno, Option<&str>, RangeSet), FoldedFailures<'_>> =
            BTreeMap::new();
        for ((errno, detail, path), (leaves, named, more)) in by_path {
            let new = || FoldedFailures {
                leaves: leaves.clone(),
                paths: Vec::new(),
                named: BTreeSet::new(),
                more: 0,
                errno,
                detail,
            };
            let folded = by_leaves.entry((errno, detail, leaves.clone())).or_insert_with(new);
            folded.paths.push(path);
            folded.named.extend(named);
            folded.more = folded.more.saturating_add(more);
        }
        let mut folded: Vec<FoldedFailures<'_>> = by_leaves.into_values().collect();
        folded
            .sort_by_key(|failure| (std::cmp::Reverse(failure.members()), failure.leaves.first()));
        folded
    }

    fn folded_silent(&self) -> Vec<(&Silence, RangeSet)> {
        let mut by_cause: BTreeMap<&Silence, RangeSet> = BTreeMap::new();
        for silent in &self.silent {
            by_cause.entry(&silent.why).or_default().union_with(&silent.leaves);
        }
        by_cause.into_iter().collect()
    }

    fn silent_leaves(&self) -> RangeSet {
        let mut all = RangeSet::new();
        self.silent.iter().for_each(|silent| all.union_with(&silent.leaves));
        all
    }
}

/// Errors that only stand for what their detail says.
const WORDLESS: [Errno; 2] = [Errno::NOMSG, Errno::NODATA];

fn write_failure(
    failure: &FoldedFailures<'_>,
    members: u64,
    hosts: &dyn HostNames,
    palette: &Palette,
    out: &mut dyn Write,
) -> io::Result<()> {
    let Palette { hosts: host, path, error, .. } = palette;
    let (text, detail) = match failure.detail.map(printable) {
        // The words of the system say nothing to a person here.
        Some(detail) if WORDLESS.contains(&failure.errno) => (detail, String::new()),
        Some(detail) => (failure.errno.to_string(), format!(": {detail}")),
        None => (failure.errno.to_string(), String::new()),
    };
    writeln!(
        out,
        "{host}{}{host:#}:{path}{}{path:#}: {error}{text}{error:#}{detail}, {} of {members} \
         members",
        hosts.fold(&failure.leaves),
        fold_paths(&failure.paths),
        failure.members(),
    )
}

fn write_silent(
    why: &Silence,
    hosts: &str,
    count: u64,
    palette: &Palette,
    out: &mut dyn Write,
) -> io::Result<()> {
    let Palette { hosts: host, error, .. } = palette;
    let cause = why.cause_on(hosts, count);
    let cause = cause.map(|cause| format!(": {}", printable(&cause))).unwrap_or_default();
    let (text, name) = (why.text(), errno_name(why.errno()));
    writeln!(out, "{host}{hosts}{host:#}: {error}{text} ({name}){error:#}{cause}")
}

fn failed_members(failure: &FoldedFailures<'_>, hosts: &dyn HostNames) -> FailedMembers {
    let text = failure.errno.to_string();
    FailedMembers {
        hosts: hosts.fold(&failure.leaves),
        paths: failure.paths.iter().map(|path| (*path).to_owned()).collect(),
        members: failure.members(),
        errno: errno_name(failure.errno),
        error: text.rsplit_once(" (").map_or(text.as_str(), |(text, _)| text).to_owned(),
        detail: failure.detail.map(str::to_owned),
    }
}

fn errno_name(errno: Errno) -> String {
    errno.name().map_or_else(|| errno.0.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_group::Unfinished;

    /// Leaf 0 is host n1.
    struct Numbered;

    impl HostNames for Numbered {
        fn fold(&self, leaves: &RangeSet) -> String {
            let shifted: RangeSet = leaves.iter().map(|leaf| leaf + 1).collect();
            if leaves.len() == 1 { format!("n{shifted}") } else { format!("n[{shifted}]") }
        }
    }

    fn failure(leaves: &[u32], path: &str, errno: Errno) -> Failure {
        let leaves = leaves.iter().map(|host| host - 1).collect();
        Failure::new(leaves, path, errno, None)
    }

    fn silent(host: u32, why: Silence) -> Silent {
        Silent { leaves: RangeSet::single(host - 1), why }
    }

    fn text(report: &Report) -> String {
        let mut out = Vec::new();
        report.write_text(&Numbered, &Palette::default(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn json_text(report: &Report) -> String {
        serde_json::to_value(report.record(&Numbered)).unwrap().to_string()
    }

    #[test]
    fn name_in_a_cause_is_the_hosts_or_stands_for_each() {
        let why = || Silence::Down(Some("not started: ssh: cannot resolve %h".to_owned()));
        let report = |hosts: &[u32]| Report {
            asked: (0..4).collect(),
            silent: hosts.iter().map(|host| silent(*host, why())).collect(),
            ..Report::default()
        };
        for (hosts, name) in [(&[3][..], "n3"), (&[3, 4], "HOST")] {
            let report = report(hosts);
            let told = format!("not started: ssh: cannot resolve {name}");
            assert!(text(&report).contains(&format!("(EHOSTDOWN): {told}\n")), "{}", text(&report));
            assert_eq!(report.record(&Numbered).silent[0].cause, Some(told));
        }
    }

    fn sample() -> Report {
        Report {
            asked: (0..12).collect(),
            succeeded: 56,
            failures: vec![
                failure(&[3, 7], "/etc/shadow", Errno::ACCES),
                failure(&[8, 9], "/etc/shadow", Errno::ACCES),
                failure(&[4], "/var/log/a.log", Errno::NOENT),
                failure(&[4], "/var/log/b.log", Errno::NOENT),
            ],
            silent: vec![
                silent(11, Silence::NoAnswer(Duration::from_secs(2))),
                silent(12, Silence::Down(Some("its process ended with signal 9".to_owned()))),
            ],
            ..Report::default()
        }
    }

    #[test]
    fn failures_fold_by_host_and_by_path() {
        insta::assert_snapshot!(text(&sample()), @"
        n[3,7-9]:/etc/shadow: Permission denied (EACCES), 4 of 64 members
        n4:/var/log/{a,b}.log: No such file or directory (ENOENT), 2 of 64 members
        n11: no answer within 2 s (ETIMEDOUT)
        n12: host is down (EHOSTDOWN): its process ended with signal 9
        sheaf: 56 of 64 members succeeded, 6 failed; 2 hosts silent
        ");
    }

    #[test]
    fn change_of_a_host_with_a_garbled_answer_is_not_known() {
        let unfinished = Unfinished { unknown: RangeSet::single(2), ..Unfinished::default() };
        let changes = |files: u64, leaves: RangeSet| Changes {
            done: "removed",
            way: "on",
            nouns: ("file", "files"),
            files,
            leaves,
            in_part: (0, RangeSet::new()),
            unfinished: unfinished.clone(),
            is_dry: false,
        };
        let lines_of = |changes, errno| {
            let failures = vec![failure(&[3], "/f", errno)];
            let changes = Some(changes);
            let mut report =
                Report { asked: (0..3).collect(), failures, changes, ..Report::default() };
            report.tell_unfinished();
            assert_eq!(report.exit(), Exit::Partial);
            text(&report)
        };
        let report = |changes| lines_of(changes, Errno::PROTO).lines().next().unwrap().to_owned();
        for (errno, told) in [(Errno::PROTO, NOT_KNOWN), (Errno::STALE, STARTED_ANEW)] {
            let lines = lines_of(changes(2, RangeSet::full(2)), errno);
            assert!(
                lines.contains(&format!("{told} (E")) || lines.contains(&format!("): {told}")),
                "{lines}"
            );
        }
        assert_eq!(report(changes(0, RangeSet::new())), "removed: not known");
        assert_eq!(report(changes(2, RangeSet::full(2))), "removed on n[1-2]: 2 files");
        assert_eq!(report(changes(3, RangeSet::full(3))), "removed on n[1-3]: at least 3 files");
        // So it is with one whose link broke, and not with one that was not started.
        for (cause, is_known) in [("its process ended", false), ("not started: no", true)] {
            let silent = vec![silent(3, Silence::Unserved(Errno::PROTO, cause.to_owned()))];
            let changes = Some(changes(0, RangeSet::new()));
            let mut report = Report { silent, changes, ..Report::default() };
            report.tell_unfinished();
            assert_ne!(text(&report).contains(NOT_KNOWN), is_known, "{}", text(&report));
        }
    }

    #[test]
    fn what_is_written_in_part_are_files_whatever_else_was_made() {
        let changes = |files, cut| Changes {
            done: "copied",
            way: "to",
            nouns: ("directory", "directories"),
            files,
            leaves: RangeSet::single(1),
            in_part: (cut, RangeSet::full(2)),
            unfinished: Unfinished::default(),
            is_dry: false,
        };
        assert_eq!(changes(0, 2).text(&Numbered), "copied in part to n[1-2]: 2 files");
        let both = "copied to n2: 1 directory, in part to n[1-2]: 1 file";
        assert_eq!(changes(1, 1).text(&Numbered), both);
    }

    #[test]
    fn counts_of_failures_that_are_too_many_do_not_overflow() {
        let more = |path| Failure { more: u64::MAX, ..failure(&[1], path, Errno::NOENT) };
        let report =
            Report { succeeded: 3, failures: vec![more("/a"), more("/b")], ..Report::default() };
        assert_eq!((report.failed(), report.members()), (u64::MAX, u64::MAX));
        assert!(text(&report).contains("No such file"));
    }

    #[test]
    fn member_fails_once_whatever_fails_beneath_it() {
        let beneath =
            |path: &str, errno| Failure { beneath: "/d".to_owned(), ..failure(&[1], path, errno) };
        let report = Report {
            succeeded: 3,
            failures: vec![
                beneath("/d/a", Errno::ACCES),
                beneath("/d/b", Errno::ACCES),
                beneath("/d/b", Errno::PERM),
                failure(&[2], "/d", Errno::ACCES),
            ],
            silent: vec![silent(4, Silence::Cancelled)],
            ..Report::default()
        };
        insta::assert_snapshot!(text(&report), @"
        n1:/d/b: Operation not permitted (EPERM), 1 of 6 members
        n1:/d/{a,b}: Permission denied (EACCES), 1 of 6 members
        n2:/d: Permission denied (EACCES), 1 of 6 members
        n4: interrupted before it answered (ECANCELED)
        sheaf: 3 of 6 members succeeded, 2 failed; 1 host silent
        ");
        let report = Report { succeeded: 1, lost_here: 2, failed_here: 5, ..Report::default() };
        assert_eq!(text(&report), "sheaf: 1 of 3 members succeeded, 2 failed\n");
    }

    #[test]
    fn members_beyond_those_that_are_named_are_counted() {
        let class =
            ErrorClass::new(Errno::IO, "", sheaf_core::MemberSet::of_leaves(3, RangeSet::full(2)));
        let failure = Failure { more: 10, ..Failure::of(&class, None) };
        assert_eq!(Report { failures: vec![failure], ..Report::default() }.failed(), 12);
    }

    #[test]
    fn colours_surround_hosts_paths_and_errors() {
        let report = Report {
            succeeded: 1,
            failures: vec![failure(&[2], "/x", Errno::IO)],
            ..Report::default()
        };
        let mut out = Vec::new();
        report.write_text(&Numbered, &Palette::COLOURED, &mut out).unwrap();
        insta::assert_debug_snapshot!(String::from_utf8(out).unwrap(), @r#""\u{1b}[36mn2\u{1b}[0m:\u{1b}[35m/x\u{1b}[0m: \u{1b}[31mInput/output error (EIO)\u{1b}[0m, 1 of 2 members\nsheaf: 1 of 2 members succeeded, 1 failed\n""#);
    }

    #[test]
    fn json_says_the_same() {
        insta::assert_snapshot!(json_text(&sample()), @r#"{"exit":4,"failed":[{"errno":"EACCES","error":"Permission denied","hosts":"n[3,7-9]","members":4,"paths":["/etc/shadow"]},{"errno":"ENOENT","error":"No such file or directory","hosts":"n4","members":2,"paths":["/var/log/a.log","/var/log/b.log"]}],"failed_here":0,"members":64,"silent":[{"count":1,"errno":"ETIMEDOUT","error":"no answer within 2 s","hosts":"n11"},{"cause":"its process ended with signal 9","count":1,"errno":"EHOSTDOWN","error":"host is down","hosts":"n12"}],"succeeded":56,"type":"summary"}"#);
        let well = Report { succeeded: 64, ..Report::default() };
        insta::assert_snapshot!(json_text(&well), @r#"{"exit":0,"failed":[],"failed_here":0,"members":64,"silent":[],"succeeded":64,"type":"summary"}"#);
    }

    #[test]
    fn all_well_is_not_worth_a_line() {
        let report = Report { succeeded: 64, ..Report::default() };
        assert_eq!((text(&report).as_str(), report.exit()), ("", Exit::Success));
    }

    #[test]
    fn lines_are_bounded_and_the_rest_is_counted() {
        let failures = (1..=64).map(|n| failure(&[n], &format!("/f{n}"), Errno::NOENT)).collect();
        let silent = vec![
            silent(70, Silence::Down(None)),
            silent(71, Silence::NoAnswer(Duration::from_millis(500))),
        ];
        let text = text(&Report { failures, silent, ..Report::default() });
        assert_eq!(text.lines().count(), LINES_MAX + 3);
        let end: Vec<&str> = text.lines().skip(LINES_MAX).collect();
        insta::assert_snapshot!(end.join("\n"), @"
        n71: no answer within 0.5 s (ETIMEDOUT)
        … and 45 more kinds of failure on n[21-64,70]
        sheaf: 0 of 66 members succeeded, 64 failed; 2 hosts silent
        ");
    }

    #[test]
    fn every_way_to_end_has_its_exit_code() {
        let asked = RangeSet::full(2);
        let well = Report { asked: asked.clone(), succeeded: 2, ..Report::default() };
        assert_eq!(well.exit(), Exit::Success);
        assert_eq!(Report { unmatched: true, ..well.clone() }.exit(), Exit::Unmatched);
        assert_eq!(Report { failed_here: 1, ..well.clone() }.exit(), Exit::Partial);
        let failures = vec![failure(&[1], "/x", Errno::IO)];
        let failed = Report { failures, unmatched: true, ..well.clone() };
        assert_eq!(failed.exit(), Exit::Partial, "no match counts only when all answered");
        assert_eq!(Report { hushed: true, ..failed.clone() }.exit(), Exit::Partial);
        let one =
            Report { silent: vec![silent(1, Silence::Down(None))], succeeded: 0, ..well.clone() };
        assert_eq!(one.exit(), Exit::Partial, "the other has answered, though it has no member");
        let both = vec![silent(1, Silence::Down(None)), silent(2, Silence::Cancelled)];
        let nobody = Report { silent: both, succeeded: 0, ..well };
        assert_eq!(nobody.exit(), Exit::Unreachable);
        // What one has said before it fell silent was printed.
        let heard = Report { heard: RangeSet::single(1), ..nobody.clone() };
        assert_eq!(heard.exit(), Exit::Partial);
        assert_eq!(Report { succeeded: 1, ..nobody.clone() }.exit(), Exit::Partial);
        assert_eq!(Report { interrupted: true, ..nobody }.exit(), Exit::Interrupted);
    }

    #[test]
    fn hushed_report_omits_failures_but_names_silent_hosts() {
        let hushed = Report { hushed: true, ..sample() };
        insta::assert_snapshot!(text(&hushed), @"
        n11: no answer within 2 s (ETIMEDOUT)
        n12: host is down (EHOSTDOWN): its process ended with signal 9
        sheaf: 56 of 64 members succeeded, 6 failed; 2 hosts silent
        ");
        assert_eq!(text(&Report { silent: vec![], ..hushed }), "");
    }

    #[test]
    fn names_cannot_command_the_terminal() {
        let report = Report {
            failures: vec![failure(&[1], "/a\u{1b}]0;x\u{7}\nb", Errno::IO)],
            ..Report::default()
        };
        assert_eq!(text(&report).lines().count(), 2);
        assert!(!text(&report).contains('\u{1b}'));
    }
}
