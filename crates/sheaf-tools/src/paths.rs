//! Tools that do one thing with one path after the other: their part at the leaves and at the root.
use crate::target::{Target, ToolError, by_hosts, drop_unmatched};
use rustc_hash::FxHashMap;
use serde::Serialize;
use sheaf_core::{Errno, RangeSet};
use sheaf_file::{Export, Globbed};
use sheaf_group::aggregate::StatusSum;
use sheaf_group::entry::{Answer, AnswerForm, Entry, EntryStats, Merged, Sink};
use sheaf_group::tool::{Host, Reply, Running, Step};
use sheaf_group::{Call, Client, GroupError, Outcome, Unfinished};
use std::collections::VecDeque;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Distinct entries are held back and folded up to this size; beyond, what is there is passed on.
pub(crate) const HELD_BYTES: usize = 64 << 20;

/// How an answer is written: members of which nothing failed are counted.
pub(crate) const FORM: AnswerForm = AnswerForm { ordered: false, stats: true };

/// The members of a host: what was named there, after expansion. Each is counted once, however
/// often it is named and whatever fails beneath it.
#[derive(Default)]
pub(crate) struct PathMembers {
    /// The one at hand.
    present: Vec<u8>,
    all: FxHashMap<Vec<u8>, MemberState>,
}

/// What is known of a member.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MemberState {
    /// Nothing of it has failed.
    Well,
    /// Nothing of it had failed when it was counted.
    Counted,
    Failed,
}

impl PathMembers {
    /// Whether a path was one before.
    fn has(&self, path: &Path) -> bool {
        self.all.contains_key(path.as_os_str().as_bytes())
    }

    /// What follows is about the member at hand.
    pub fn resume(&self, answer: &mut Answer) {
        answer.of_member(&self.present);
    }

    /// The next one.
    pub fn begin(&mut self, path: &Path, answer: &mut Answer) {
        self.present = path.as_os_str().as_bytes().to_vec();
        self.all.entry(self.present.clone()).or_insert(MemberState::Well);
        answer.of_member(&self.present);
    }

    /// What follows is about no member, or about several.
    pub fn leave(&mut self, answer: &mut Answer) {
        self.present.clear();
        answer.of_member(b"");
    }

    /// Takes in what has failed meanwhile.
    pub fn note(&mut self, answer: &mut Answer) {
        for failed in answer.take_failed() {
            self.all.insert(failed, MemberState::Failed);
        }
    }

    /// Says of how many nothing has failed that were not counted before, except the one at hand
    /// where there may be more of it (`is_begun`).
    pub fn say(&mut self, is_begun: bool, answer: &mut Answer) {
        let mut members = 0;
        for (member, state) in &mut self.all {
            if *state == MemberState::Well && !(is_begun && *member == self.present) {
                *state = MemberState::Counted;
                members += 1;
            }
        }
        answer.stats(EntryStats { members, ..EntryStats::default() });
    }
}

/// Fails those of `asked` that came to their end without a word of any path, and returns them: a
/// host says at least that a path is not there, that a pattern matches nothing, or how many members
/// it has.
pub(crate) fn fail_unsaid(outcome: &mut Outcome, asked: &RangeSet) -> RangeSet {
    let unsaid = asked.difference(&outcome.missing_hosts()).difference(&outcome.heard);
    outcome.add_failed(Errno::PROTO, &unsaid);
    unsaid
}

/// What is done with one path after the other.
pub(crate) trait PerPath: Send {
    /// The paths a pattern stands for, and what could not be looked at for them.
    fn expand(&self, pattern: &str, host: &Host) -> Globbed {
        host.expand(pattern)
    }

    /// How the answer is written.
    fn form(&self) -> AnswerForm {
        FORM
    }

    /// Whether a path that several addresses stand for is taken once.
    fn takes_once(&self) -> bool {
        false
    }

    /// Whether the paths are the members; otherwise the tool counts those itself.
    fn counts_paths(&self) -> bool {
        true
    }

    /// Begins with a path; small ones are done with that.
    ///
    /// # Errors
    /// The path's.
    fn begin(&mut self, path: &Path, answer: &mut Answer, host: &Host) -> Result<(), Errno>;

    /// Whether there may be more of a path that was begun.
    fn is_under_way(&self) -> bool {
        true
    }

    /// Goes on with it; `false` when there is no more.
    fn go_on(&mut self, answer: &mut Answer, host: &Host) -> bool {
        let _ = (answer, host);
        false
    }

    /// Whether nothing more is wanted of this host, whatever paths are left.
    fn is_over(&self) -> bool {
        false
    }

    /// Says what was changed so far; see [`Running::so_far`].
    fn so_far(&mut self, answer: &mut Answer, is_over: bool) {
        let _ = (answer, is_over);
    }

    /// Says what comes after all paths.
    fn conclude(&mut self, answer: &mut Answer, host: &Host) {
        let _ = (answer, host);
    }
}

/// Such a tool at work on a host.
pub(crate) struct AtWork {
    work: Box<dyn PerPath>,
    patterns: VecDeque<String>,
    files: VecDeque<PathBuf>,
    members: PathMembers,
    /// A path was begun and may go on.
    is_begun: bool,
}

impl AtWork {
    pub fn new(work: Box<dyn PerPath>, patterns: Vec<String>) -> Self {
        Self {
            work,
            patterns: patterns.into(),
            files: VecDeque::new(),
            members: PathMembers::default(),
            is_begun: false,
        }
    }
}

impl Running for AtWork {
    fn step(&mut self, answer: &mut Reply, host: &Host) -> Step {
        let answer = answer.entries_with(self.work.form());
        self.members.resume(answer);
        let step = self.next(answer, host);
        self.members.note(answer);
        if step == Step::Done && self.work.counts_paths() {
            self.members.say(false, answer);
        }
        step
    }

    fn so_far(&mut self, answer: &mut Reply, is_over: bool) {
        let answer = answer.entries_with(self.work.form());
        // Hosts that come to no end have done these.
        if self.work.counts_paths() {
            self.members.say(self.is_begun, answer);
        }
        self.work.so_far(answer, is_over);
    }
}

impl AtWork {
    fn next(&mut self, answer: &mut Answer, host: &Host) -> Step {
        if self.is_begun {
            self.is_begun = self.work.go_on(answer, host);
            return self.more();
        }
        if let Some(path) = self.files.pop_front() {
            if self.work.takes_once() && self.members.has(&path) {
                return self.more();
            }
            self.members.begin(&path, answer);
            match self.work.begin(&path, answer, host) {
                Ok(()) => self.is_begun = self.work.is_under_way(),
                Err(errno) => answer.error(path.as_os_str().as_bytes(), errno),
            }
            return self.more();
        }
        self.members.leave(answer);
        let Some(pattern) = self.patterns.pop_front() else {
            self.work.conclude(answer, host);
            return Step::Done;
        };
        let Globbed { paths, errors } = self.work.expand(&pattern, host);
        errors
            .iter()
            .for_each(|error| answer.error(error.path.as_os_str().as_bytes(), error.errno));
        self.files = paths.into();
        Step::More
    }

    fn more(&self) -> Step {
        if self.work.is_over() { Step::Done } else { Step::More }
    }
}

/// A file that got a part of the bytes, and is not as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// Its path.
    pub path: String,
    /// The hosts where it got as many.
    pub leaves: RangeSet,
    /// How many it got.
    pub bytes: u64,
}

/// What hosts said, beside their entries.
#[derive(Debug, Default)]
pub(crate) struct SaidPath {
    /// Who failed. The status counts the paths that went well.
    pub outcome: Outcome,
    /// Entries were passed on before all had come, so equal ones may have been passed on twice.
    pub in_parts: bool,
    /// Who did not come to the end of a change.
    pub unfinished: Unfinished,
}

/// Whether a tool changes files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Reads,
    Changes,
}

impl Effect {
    /// Of a change that is made, or only said.
    pub fn of_change(is_dry: bool) -> Self {
        if is_dry { Self::Reads } else { Self::Changes }
    }

    pub async fn call(self, call: Call) -> Call {
        if self == Self::Changes { call.that_changes().await } else { call }
    }
}

/// Runs a tool that counts paths; `params` makes its parameters for some paths. Equal entries of
/// different hosts reach `sink` as one.
pub(crate) async fn run<P: Serialize>(
    client: &Client,
    targets: &[Target],
    (tool, effect): (&str, Effect),
    params: impl Fn(Vec<String>) -> P,
    sink: &mut dyn FnMut(&Merged) -> std::io::Result<()>,
) -> Result<SaidPath, ToolError> {
    run_checked(client, targets, (tool, effect), &|_| true, params, sink).await
}

/// [`run`] for answers of which each entry `is_answer`: a host with another one has failed with `EPROTO`.
pub(crate) async fn run_checked<P: Serialize>(
    client: &Client,
    targets: &[Target],
    (tool, effect): (&str, Effect),
    is_answer: &dyn Fn(&Entry<'_>) -> bool,
    params: impl Fn(Vec<String>) -> P,
    sink: &mut dyn FnMut(&Merged) -> std::io::Result<()>,
) -> Result<SaidPath, ToolError> {
    let how = Hearing::new(sink).of(is_answer);
    run_with(client, targets, (tool, effect), how, params).await
}

/// [`run`] with what hears it.
pub(crate) async fn run_with<P: Serialize>(
    client: &Client,
    targets: &[Target],
    (tool, effect): (&str, Effect),
    mut hearing: Hearing<'_>,
    params: impl Fn(Vec<String>) -> P,
) -> Result<SaidPath, ToolError> {
    for (members, paths) in by_hosts(targets) {
        let params = postcard::to_stdvec(&params(paths)).map_err(|_| ToolError::Protocol)?;
        hearing.hear(effect.call(client.call(&members, tool, &params)?).await).await?;
    }
    hearing.end(targets)
}

/// Takes in what hosts say in calls of a tool that counts paths.
pub(crate) struct Hearing<'a> {
    said: SaidPath,
    /// What was heard and not passed on yet.
    whole: Option<Merged>,
    ordered: bool,
    is_answer: &'a dyn Fn(&Entry<'_>) -> bool,
    sink: &'a mut dyn FnMut(&Merged) -> std::io::Result<()>,
}

impl<'a> Hearing<'a> {
    pub fn new(sink: &'a mut dyn FnMut(&Merged) -> std::io::Result<()>) -> Self {
        Self { said: SaidPath::default(), whole: None, ordered: false, is_answer: &|_| true, sink }
    }

    /// Answers in which the position of an entry is part of its identity, if `ordered`.
    pub fn ordered(self, ordered: bool) -> Self {
        Self { ordered, ..self }
    }

    /// Answers of which each entry `is_answer`.
    pub fn of(self, is_answer: &'a dyn Fn(&Entry<'_>) -> bool) -> Self {
        Self { is_answer, ..self }
    }

    /// Hears a call to its end.
    pub async fn hear(&mut self, mut call: Call) -> Result<(), ToolError> {
        let mut merged = Merged::new().with_order(self.ordered);
        while call.next_entries(&mut merged).await? {
            if merged.bytes() >= HELD_BYTES {
                self.said.in_parts = true;
                self.pass_on(&mut merged)?;
            }
        }
        let asked = call.members().clone();
        let (mut outcome, mut unfinished) = call.conclude(&mut merged).await?;
        let unsaid = fail_unsaid(&mut outcome, &asked);
        unfinished.unknown.union_with(&unsaid);
        self.take_in(merged, outcome, &unfinished)
    }

    /// Hears from hosts that are to go no further, because of this, what they have done.
    pub async fn hear_last(&mut self, call: Call, errno: Errno) -> Result<(), ToolError> {
        let mut merged = Merged::new().with_order(self.ordered);
        let mut outcome = Outcome::default();
        outcome.add_silent(errno, call.members());
        let (_, unfinished) = call.conclude(&mut merged).await?;
        self.take_in(merged, outcome, &unfinished)
    }

    fn take_in(
        &mut self,
        merged: Merged,
        mut outcome: Outcome,
        unfinished: &Unfinished,
    ) -> Result<(), ToolError> {
        self.said.unfinished.merge(unfinished);
        // `pass_on` counts paths; this would count hosts.
        outcome.status = StatusSum::default();
        self.said.outcome.merge(outcome);
        let Some(mut whole) = self.whole.take() else {
            self.whole = Some(merged);
            return Ok(());
        };
        // Calls differ in what they ask for; where they ask for the same, equal entries are one.
        let mut partial = Vec::new();
        merged.encode_partial(&mut partial);
        whole.fold_partial(&partial).map_err(GroupError::from)?;
        if whole.bytes() >= HELD_BYTES {
            self.said.in_parts = true;
            self.pass_on(&mut whole)?;
        }
        self.whole = Some(whole);
        Ok(())
    }

    /// Passes on what is left, and says who failed of those who were asked for `targets`.
    pub fn end(mut self, targets: &[Target]) -> Result<SaidPath, ToolError> {
        let mut whole = self.whole.take().unwrap_or_default();
        self.pass_on(&mut whole)?;
        drop_unmatched(&mut self.said.outcome, targets);
        self.said.outcome.count_once();
        Ok(self.said)
    }

    fn pass_on(&mut self, merged: &mut Merged) -> Result<(), ToolError> {
        let outcome = &mut self.said.outcome;
        outcome.add_failed(Errno::PROTO, &merged.refuse(self.is_answer));
        outcome.status.count += merged.stats().map_or(0, |stats| stats.members);
        outcome.add_errors(merged);
        (self.sink)(merged).map_err(ToolError::Sink)?;
        merged.clear();
        Ok(())
    }
}

/// Whether the file at `path`, which a link is to replace, is the last or the same name of what the
/// link would lead to, as GNU ln decides it: replaced, the file would be lost.
pub(crate) fn leads_to_itself(export: &Export, target: &Path, path: &Path, symbolic: bool) -> bool {
    let from = if symbolic { &directory_of(path).join(target) } else { target };
    let there = export.lstat(path);
    let leads_to = if symbolic { export.stat(from) } else { export.lstat(from) };
    let (Ok(there), Ok(leads_to)) = (there, leads_to) else { return false };
    there.id() == leads_to.id() && (there.nlink <= 1 || is_same_name(export, from, path))
}

/// Whether two paths are one name in one directory.
fn is_same_name(export: &Export, one: &Path, other: &Path) -> bool {
    let dir = |path: &Path| export.stat(directory_of(path)).map(|dir| dir.id());
    one.file_name() == other.file_name() && dir(one).is_ok_and(|id| dir(other) == Ok(id))
}

/// The directory that the last name of a path is in.
pub(crate) fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ if path.is_absolute() => Path::new("/"),
        _ => Path::new("."),
    }
}

/// The name a source gets in a directory: its last component. What ends in a dot or two, and the
/// root, goes into the directory itself.
pub(crate) fn name_of(path: &Path) -> &[u8] {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    let start = bytes[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    match &bytes[start..end] {
        b"." | b".." => b"",
        name => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn names_of_sources() {
        let names = [
            ("a", "a"),
            ("/x/b/", "b"),
            ("x/.", ""),
            ("..", ""),
            ("/", ""),
            ("./c", "c"),
            ("...", "..."),
        ];
        for (path, name) in names {
            assert_eq!(OsStr::from_bytes(name_of(Path::new(path))), name, "{path}");
        }
    }
}
