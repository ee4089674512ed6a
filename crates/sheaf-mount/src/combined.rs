//! The files of a group, wherever it is from: what is read from them, and written to them, and what became of that.
//!
//! All that is read from a group is of one moment. `open` does the group read and `read` returns
//! its bytes (`own.rs`). If a member is missing, reading ends with an error, so that no program
//! mistakes a part for the whole.
mod contents;
mod readers;
mod statuses;
mod streamed;
mod writing;

use crate::message::FileAnswer;
use crate::own::Snapshot;
use contents::{GroupContents, contents};
use sheaf_core::Errno;
use sheaf_group::{Client, GroupError, Outcome, Target};
use sheaf_tools::ToolError;
use streamed::StreamedData;

pub(crate) use contents::{errno_of, told};
pub(crate) use statuses::{StatusTexts, asking_session};
pub(crate) use writing::{GroupWriting, no_length, refuse_saving};

/// How data are combined where nothing else is bound.
const DATA_DEFAULT: &str = "concatenate";

/// The files of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupFile {
    Ctl,
    Files,
    Size,
    Status,
    Data,
    Lines,
    Sum,
    Stat,
}

/// By name.
pub(crate) const GROUP_FILES: [(GroupFile, &str); 8] = [
    (GroupFile::Ctl, "ctl"),
    (GroupFile::Files, "files"),
    (GroupFile::Size, "size"),
    (GroupFile::Status, "status"),
    (GroupFile::Data, "data"),
    (GroupFile::Lines, "lines"),
    (GroupFile::Sum, "sum"),
    (GroupFile::Stat, "stat"),
];

impl GroupFile {
    pub fn named(name: &[u8]) -> Option<Self> {
        GROUP_FILES.iter().find(|file| file.1.as_bytes() == name).map(|file| file.0)
    }

    pub fn name(self) -> &'static str {
        GROUP_FILES[self as usize].1
    }

    pub fn is_written(self) -> bool {
        matches!(self, Self::Ctl | Self::Data)
    }

    pub fn mode(self) -> u32 {
        libc::S_IFREG | if self.is_written() { 0o600 } else { 0o400 }
    }
}

/// How data are combined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupBinding {
    pub aggregate: String,
    pub columns: Vec<u32>,
}

impl Default for GroupBinding {
    fn default() -> Self {
        Self { aggregate: DATA_DEFAULT.to_owned(), columns: Vec::new() }
    }
}

/// What is to be read.
pub(crate) struct GroupAsked<'a> {
    pub file: GroupFile,
    pub targets: &'a [Target],
    pub binding: &'a GroupBinding,
    /// What is known to be missing before that.
    pub missing: Option<Outcome>,
    /// Who asks.
    pub session: Option<u32>,
    /// The thread that asks.
    pub pid: u32,
}

/// What is read of a group, by whoever has it open.
pub(crate) enum GroupReading {
    Whole(Snapshot),
    Streamed(Box<StreamedData>),
}

impl GroupReading {
    pub async fn read(
        &self,
        offset: u64,
        size: u32,
        out: &mut Vec<u8>,
    ) -> Result<FileAnswer, Errno> {
        match self {
            Self::Whole(snapshot) => snapshot.read(offset, size, out),
            Self::Streamed(data) => data.read(offset, size, out).await,
        }
    }
}

/// What a file shows at this moment; what became of it is put into `statuses`.
pub(crate) async fn take(
    client: &Client,
    statuses: &StatusTexts,
    asked: GroupAsked<'_>,
) -> Result<GroupReading, Errno> {
    let what = format!("read {}", asked.file.name());
    let (own, file) = (client.clone(), asked.file);
    let (targets, binding) = (asked.targets.to_vec(), asked.binding.clone());
    // What is read may be handed on bit by bit, which is for one thread.
    let runtime = tokio::runtime::Handle::current();
    let reads = move || runtime.block_on(contents(&own, file, &targets, &binding));
    let read = tokio::task::spawn_blocking(reads).await.map_err(|_| Errno::IO)?;
    let is_joined = file == GroupFile::Data && *asked.binding == GroupBinding::default();
    if file == GroupFile::Data {
        statuses.readers.note(asked.pid);
    }
    let told_of = |outcome: &Outcome, notes: &[String]| told(client, &what, outcome, notes);
    match read {
        Ok(mut found) => {
            if let Some(missing) = asked.missing {
                found.outcome.merge_failures(missing);
            }
            let GroupContents { outcome, notes, .. } = &found;
            statuses.put(asked.session, told_of(outcome, notes));
            found.into_snapshot().map(GroupReading::Whole)
        }
        // Too long to be held.
        Err(ToolError::TooLong { .. } | ToolError::Group(GroupError::TooLarge { .. }))
            if is_joined =>
        {
            let missing = asked.missing.unwrap_or_default();
            let opened = StreamedData::open(client, asked.targets, &missing).await;
            let (data, mut outcome) = opened.map_err(|error| {
                let text = format!("{what}: {error}\n");
                statuses.fail(asked.session, (text, streamed::errno_of_group(&error)))
            })?;
            outcome.merge_failures(missing);
            statuses.put(asked.session, told_of(&outcome, &[]));
            Ok(GroupReading::Streamed(Box::new(data)))
        }
        Err(error) => {
            let text = format!("{what}: {}\n", contents::said(client, &error));
            Err(statuses.fail(asked.session, (text, system(error.errno()))))
        }
    }
}

/// An errno that a system has.
pub(crate) fn system(errno: Errno) -> Errno {
    if errno == Errno::GROUP { Errno::IO } else { errno }
}
