//! The files of a group, wherever it is from: what is read from them, and written to them, and what became of that.
mod contents;
mod statuses;
mod writing;

use crate::own::Snapshot;
use contents::{GroupContents, contents};
use sheaf_core::Errno;
use sheaf_group::{Client, Outcome, Target};

pub(crate) use contents::{errno_of, told};
pub(crate) use statuses::{StatusTexts, asking_session};
pub(crate) use writing::GroupWriting;

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
}

/// What a file shows at this moment; what became of it is put into `statuses`.
pub(crate) async fn take(
    client: &Client,
    statuses: &StatusTexts,
    asked: GroupAsked<'_>,
) -> Result<Snapshot, Errno> {
    let what = format!("read {}", asked.file.name());
    let (own, file) = (client.clone(), asked.file);
    let (targets, binding) = (asked.targets.to_vec(), asked.binding.clone());
    // What is read may be handed on bit by bit, which is for one thread.
    let runtime = tokio::runtime::Handle::current();
    let reads = move || runtime.block_on(contents(&own, file, &targets, &binding));
    match tokio::task::spawn_blocking(reads).await.map_err(|_| Errno::IO)? {
        Ok(mut found) => {
            if let Some(missing) = asked.missing {
                found.outcome.merge_failures(missing);
            }
            let GroupContents { outcome, notes, .. } = &found;
            statuses.put(asked.session, told(client, &what, outcome, notes));
            found.into_snapshot()
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
