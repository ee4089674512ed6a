//! Records of what servers change for clients: one for each change on a host.
//!
//! A change is recorded when it ends, however it ends, also when it is refused. That it has begun is
//! told before, for the case that the host does not live to say how it ended. Group operations are
//! recorded when a group is opened for writing, and not for each write.
use crate::message::{Operation, Request};
use sheaf_core::Errno;
use sheaf_file::OFlags;
use sheaf_tree::service::{Caller, LeafHandle};
use std::path::Path;
use std::sync::Arc;

/// What is to be changed on a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// The command, as `chmod -R`.
    pub command: String,
    /// The paths and patterns that were named, beneath the export.
    pub paths: Vec<String>,
    /// How many more there are.
    pub more: usize,
}

/// The most paths of a record.
pub const PATHS_MAX: usize = 256;

impl Change {
    /// A command with its paths.
    pub fn new(command: impl Into<String>, paths: impl IntoIterator<Item = String>) -> Self {
        let mut paths = paths.into_iter();
        let named = paths.by_ref().take(PATHS_MAX).collect();
        Self { command: command.into(), paths: named, more: paths.count() }
    }
}

/// How a change has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeEnd {
    /// It was made.
    Done,
    /// It was made, except at so many places.
    Failed(u64),
    /// It was not begun.
    Refused(Errno),
    /// It ended before it was complete: the client left, or its time was over.
    Unfinished,
}

/// A change on a host.
#[derive(Debug, Clone, Copy)]
pub struct ChangeRecord<'a> {
    /// What [`ChangeLog::begin`] has returned for it.
    pub number: u64,
    /// The host.
    pub host: &'a str,
    /// On whose behalf.
    pub caller: &'a Caller,
    /// What.
    pub change: &'a Change,
    /// How it has ended; `None` if it has only begun.
    pub end: Option<ChangeEnd>,
}

/// Keeps records of changes. It is called with the rights of the caller.
pub trait ChangeLog: Send + Sync {
    /// Whether records are kept at all.
    fn is_kept(&self) -> bool;

    /// A change begins on the host whose leaf this is, the record of which says no more yet. Returns
    /// its number on this host.
    fn begin(&self, handle: &LeafHandle, record: &ChangeRecord<'_>) -> u64;

    /// Keeps the record of a change that has ended.
    fn keep(&self, handle: &LeafHandle, record: &ChangeRecord<'_>);
}

/// Where changes of one stream are recorded.
#[derive(Clone)]
pub(crate) struct Recorder {
    pub log: Arc<dyn ChangeLog>,
    pub handle: LeafHandle,
    pub host: Arc<str>,
    pub caller: Arc<Caller>,
}

impl Recorder {
    fn record<'a>(
        &'a self,
        number: u64,
        change: &'a Change,
        end: Option<ChangeEnd>,
    ) -> ChangeRecord<'a> {
        ChangeRecord { number, host: &self.host, caller: &self.caller, change, end }
    }
}

/// A change under way. Dropped before it has ended, it is recorded as unfinished.
pub(crate) struct ChangeUnderWay {
    recorder: Recorder,
    number: u64,
    change: Change,
    end: ChangeEnd,
}

impl ChangeUnderWay {
    /// Begins a record, if there is something to record and records are kept.
    pub fn begin(recorder: Option<&Recorder>, change: Option<Change>) -> Option<Self> {
        let recorder = recorder.filter(|recorder| recorder.log.is_kept())?.clone();
        let change = change?;
        let number = recorder.log.begin(&recorder.handle, &recorder.record(0, &change, None));
        Some(Self { recorder, number, change, end: ChangeEnd::Unfinished })
    }

    /// It is known by now what is changed.
    pub fn names(&mut self, paths: Vec<String>) {
        if !paths.is_empty() {
            self.change = Change::new(std::mem::take(&mut self.change.command), paths);
        }
    }

    /// It has ended with so many failures.
    pub fn ended(mut self, failures: u64) {
        self.end = if failures == 0 { ChangeEnd::Done } else { ChangeEnd::Failed(failures) };
    }

    /// It was not begun.
    pub fn refused(mut self, errno: Errno) {
        self.end = ChangeEnd::Refused(errno);
    }
}

impl Drop for ChangeUnderWay {
    fn drop(&mut self) {
        let Self { recorder, number, change, end } = self;
        let record = recorder.record(*number, change, Some(*end));
        recorder.log.keep(&recorder.handle, &record);
    }
}

/// What a request about a group changes on this leaf, as far as that is recorded. `opened` are the
/// paths of the group's members there.
pub(crate) fn change_of<'a>(
    request: &Request,
    leaf: u32,
    opened: impl Iterator<Item = &'a Path>,
) -> Option<Change> {
    let opened = opened.map(|path| path.to_string_lossy().into_owned());
    match request {
        Request::Open { open, then, .. } if request.changes_files() => {
            let flags = OFlags::from_bits_retain(open.flags);
            let how = [(OFlags::CREATE, " create"), (OFlags::TRUNC, " truncate")];
            let how = how.into_iter().filter(|(flag, _)| flags.contains(*flag));
            let writes = OFlags::WRONLY | OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC;
            let opens = if flags.intersects(writes) { "open for writing" } else { "open" };
            let command: String = std::iter::once(opens).chain(how.map(|(_, word)| word)).collect();
            let command = match then.as_ref().and_then(operation_of) {
                Some(operation) => format!("{command}, {operation}"),
                None => command,
            };
            let own = open.of_hosts.iter().filter(|(hosts, _)| hosts.contains(leaf));
            let paths = open.paths.iter().chain(own.map(|(_, path)| path));
            Some(Change::new(command, paths.cloned()))
        }
        Request::Operate(operation) => {
            let operation = operation_of(operation)?;
            Some(Change::new(format!("{operation} of a group"), opened))
        }
        _ => None,
    }
}

/// What an operation on open files changes beside their contents.
fn operation_of(operation: &Operation) -> Option<String> {
    match operation {
        Operation::Fchmod { mode } => Some(format!("fchmod {mode:o}")),
        Operation::Fchown { uid, gid } => Some(format!("fchown {uid}:{gid}")),
        Operation::Ftruncate { length } => Some(format!("ftruncate {length}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::OpenMessage;
    use sheaf_core::RangeSet;

    /// Neither way of naming files leaves them out of the audit.
    #[test]
    fn change_of_a_group_names_the_paths_of_this_leaf() {
        let of_hosts = [(0, "/of/0"), (1, "/of/1")]
            .map(|(leaf, path)| (RangeSet::single(leaf), path.to_owned()));
        let open = OpenMessage::of_hosts(of_hosts.to_vec(), OFlags::WRONLY.bits(), 0);
        let request = Request::Open { open, then: None, close: false };
        let change = change_of(&request, 1, std::iter::empty()).unwrap();
        assert_eq!(change, Change::new("open for writing", ["/of/1".to_owned()]));
        let then = Some(Operation::Fchmod { mode: 0o777 });
        let open = OpenMessage::of_hosts(of_hosts.to_vec(), 0, 0);
        let change = change_of(&Request::Open { open, then, close: true }, 1, std::iter::empty());
        let expected = Change::new("open, fchmod 777", ["/of/1".to_owned()]);
        assert_eq!(change, Some(expected));
        for operation in [
            Operation::Fchmod { mode: 0o777 },
            Operation::Fchown { uid: 1, gid: 1 },
            Operation::Ftruncate { length: 0 },
        ] {
            let opened = ["/a", "/b"].map(Path::new);
            let change = change_of(&Request::Operate(operation), 1, opened.into_iter()).unwrap();
            assert_eq!((change.paths, change.more), (vec!["/a".to_owned(), "/b".to_owned()], 0));
        }
        let many = Change::new("x", (0..PATHS_MAX + 7).map(|at| at.to_string()));
        assert_eq!((many.paths.len(), many.more), (PATHS_MAX, 7));
    }
}
