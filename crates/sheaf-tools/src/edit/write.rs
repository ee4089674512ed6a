//! The same bytes into a file of every host, in pieces.
use crate::target::{Target, ToolError, by_members};
use sheaf_core::Errno;
use sheaf_file::OFlags;
use sheaf_group::flags::{O_BESTEFFORT, O_PARTIAL};
use sheaf_group::message::{Open, Operation};
use sheaf_group::{Group, GroupError, Outcome, Session};
use std::io::Read;
use tokio::sync::mpsc;

/// How much one trip carries.
const PIECE_BYTES: usize = 1 << 20;

/// Pieces that are read ahead.
const PIECES_AHEAD: usize = 2;

/// How to write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// At the end of each file.
    pub append: bool,
    /// Where to begin; `None`: at the start, as a stream.
    pub offset: Option<u64>,
    /// Make files that do not exist.
    pub create: bool,
    /// Make the files; if one exists anywhere, none is made.
    pub exclusive: bool,
    /// Empty files first.
    pub truncate: bool,
    /// Mode of files that are made.
    pub mode: u32,
}

impl WriteOptions {
    fn open(&self, paths: Vec<String>) -> Open {
        let flag = |wanted, flag: OFlags| if wanted { flag.bits() } else { 0 };
        let mut flags = OFlags::WRONLY.bits() | O_PARTIAL;
        flags |= flag(self.append, OFlags::APPEND);
        flags |= flag(self.create || self.exclusive, OFlags::CREATE);
        flags |= flag(self.truncate, OFlags::TRUNC);
        flags |= if self.exclusive { OFlags::EXCL.bits() } else { O_BESTEFFORT };
        Open { paths, entries: false, flags, mode: self.mode }
    }

    fn operation(&self, at: u64) -> Operation {
        match self.offset {
            Some(offset) => Operation::PwriteAll { offset: offset.saturating_add(at) },
            None => Operation::WriteAll,
        }
    }
}

/// What a write came to.
#[derive(Debug, Default)]
pub struct Written {
    /// Bytes that each file was to get.
    pub bytes: u64,
    /// Files that got all of them, and those that did not.
    pub outcome: Outcome,
}

/// Writes all that `source` gives into every file of `targets`. A file in which a piece could not
/// be written has lost its place, and counts as failed.
///
/// # Errors
/// [`ToolError::Local`] when `source` fails, [`GroupError`] for answers that do not decode.
pub async fn write(
    session: &Session,
    targets: &[Target],
    options: &WriteOptions,
    source: Box<dyn Read + Send>,
) -> Result<Written, ToolError> {
    let mut pieces = read_ahead(source);
    let first = pieces.recv().await.transpose().map_err(local)?.unwrap_or_default();
    let mut next = pieces.recv().await.transpose().map_err(local)?;
    let mut written = Written::default();
    if next.is_none() && !options.exclusive {
        written.bytes = first.len() as u64;
        for (members, paths) in by_members(targets) {
            let once = session.once(&members, options.open(paths), options.operation(0), &first).await;
            written.outcome.merge(match once {
                Ok(reading) => reading.outcome,
                Err(GroupError::Members(outcome)) => *outcome,
                Err(error) => return Err(error.into()),
            });
        }
        return Ok(written);
    }
    let mut files = Files::open(session, targets, options).await?;
    let mut piece = Some(first);
    while let Some(bytes) = piece.filter(|_| !files.groups.is_empty() && !session.is_interrupted()) {
        files.write(&options.operation(written.bytes), &bytes).await?;
        written.bytes += bytes.len() as u64;
        piece = next.take();
        next = pieces.recv().await.transpose().map_err(local)?;
    }
    written.outcome = files.close().await?;
    Ok(written)
}

fn local(error: std::io::Error) -> ToolError {
    ToolError::Local { path: "standard input".to_owned(), errno: Errno::from_io(&error) }
}

/// Reads in a thread of its own: a terminal or pipe may keep its reader waiting, which must not
/// keep the tree waiting.
fn read_ahead(mut source: Box<dyn Read + Send>) -> mpsc::Receiver<std::io::Result<Vec<u8>>> {
    let (sender, receiver) = mpsc::channel(PIECES_AHEAD);
    std::thread::spawn(move || {
        loop {
            let mut piece = Vec::new();
            let piece = (&mut source).take(PIECE_BYTES as u64).read_to_end(&mut piece).map(|_| piece);
            let is_end = piece.as_ref().map_or(true, Vec::is_empty);
            let is_data = piece.as_ref().map_or(true, |piece| !piece.is_empty());
            if (is_data && sender.blocking_send(piece).is_err()) || is_end {
                return;
            }
        }
    });
    receiver
}

/// The open groups of a write, one for each set of hosts.
struct Files {
    groups: Vec<(Group, u64)>,
    outcome: Outcome,
}

impl Files {
    async fn open(session: &Session, targets: &[Target], options: &WriteOptions) -> Result<Self, ToolError> {
        let mut files = Self { groups: Vec::new(), outcome: Outcome::default() };
        for (members, paths) in by_members(targets) {
            match session.gopen_with(&members, options.open(paths)).await {
                Ok(group) => {
                    files.add(group.opened().clone());
                    let members = group.size();
                    files.groups.push((group, members));
                }
                Err(GroupError::Members(outcome)) => files.add(*outcome),
                Err(error) => return Err(error.into()),
            }
        }
        if options.exclusive && !files.outcome.is_ok() {
            for (group, _) in std::mem::take(&mut files.groups) {
                if let Err(GroupError::Members(outcome)) = group.abandon().await {
                    files.add(*outcome);
                }
            }
        }
        Ok(files)
    }

    /// Takes in who failed; who succeeded is known in the end.
    fn add(&mut self, outcome: Outcome) {
        self.outcome.merge(Outcome { status: Default::default(), ..outcome });
    }

    async fn write(&mut self, operation: &Operation, bytes: &[u8]) -> Result<(), ToolError> {
        let mut groups = std::mem::take(&mut self.groups);
        for (group, good) in &mut groups {
            let reading = group.operate(operation.clone(), bytes).await?;
            *good = (*good).min(reading.outcome.status.count);
            self.add(reading.outcome);
        }
        self.groups = groups;
        Ok(())
    }

    async fn close(mut self) -> Result<Outcome, ToolError> {
        let mut good = 0;
        for (group, members) in std::mem::take(&mut self.groups) {
            let closed = group.close().await?;
            good += members.min(closed.outcome.status.count);
            self.add(closed.outcome);
        }
        self.outcome.status.count = good;
        Ok(self.outcome)
    }
}
