//! The same bytes into a file of every host.
//!
//! By default each host writes them beside the file, checks their digest, and renames: whoever
//! reads sees the old contents or the new ones. The other ways write into the file itself.
use super::{EditOptions, counting, greatest, numbers};
use crate::paths::{Cut, Effect, Hearing, SaidPath};
use crate::target::{Target, ToolError, by_hosts, by_members};
use leaf::{WriteParams, WritePart};
use serde::{Deserialize, Serialize};
use sheaf_core::{Errno, RangeSet};
use sheaf_file::{Algorithm, Digester, FileIdentity, OFlags};
use sheaf_group::entry::{EntryKind, Merged};
use sheaf_group::flags::{O_BESTEFFORT, O_PARTIAL};
use sheaf_group::message::{OpenMessage, Operation};
use sheaf_group::tool::Tools;
use sheaf_group::{Call, Client, Group, GroupError, Outcome, Unfinished};
use std::io::Read;
use std::time::Duration;
use tokio::sync::mpsc;

mod leaf;

/// How much one packet carries.
const PIECE_BYTES: usize = 256 << 10;

/// Pieces that are read ahead.
const PIECES_AHEAD: usize = 4;

/// How long a write waits at least for hosts that take nothing, before it is given up. Hosts that
/// are down are noticed by the tree, and earlier.
const STALL_MIN: Duration = Duration::from_secs(30);

/// Makes the leaves' part known to servers.
pub(super) fn register(tools: &mut Tools) {
    tools.register(leaf::NAME, leaf::WriteTool);
}

/// Where the bytes go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteWay {
    /// Into a new file, which then takes the place of the old one, with its mode and owner.
    /// Devices, pipes and files of the kernel are written directly.
    #[default]
    Replace,
    /// Into the file itself, which is emptied first.
    InPlace,
    /// To the end of the file.
    Append,
    /// Over what the file has from this offset on.
    At(u64),
}

/// How to write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Where the bytes go.
    pub way: WriteWay,
    /// Make files that do not exist.
    pub create: bool,
    /// Make the files; if one exists anywhere, none is made. Those that were given up because of
    /// others fail with `ECANCELED`.
    pub exclusive: bool,
    /// Mode of files that are made, before the umask of the host.
    pub mode: u32,
    /// The file that the bytes come from, if they come from one. A host where it is the file that
    /// would be written in place, appended to or written at an offset refuses (`ESAMEFILE`).
    pub source: Option<FileIdentity>,
}

impl WriteOptions {
    /// How a new file is made that must not exist anywhere. Where some do not open, those that do
    /// are members all the same, so that they can be named before they are given up.
    fn open(&self, paths: Vec<String>) -> OpenMessage {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        OpenMessage::new(paths, flags.bits() | O_BESTEFFORT | O_PARTIAL, self.mode)
    }

    fn operation(&self, at: u64) -> Operation {
        match self.way {
            WriteWay::At(offset) => Operation::PwriteAll { offset: offset.saturating_add(at) },
            WriteWay::Replace | WriteWay::InPlace | WriteWay::Append => Operation::WriteAll,
        }
    }
}

/// What a write came to.
#[derive(Debug, Default)]
pub struct Written {
    /// Bytes that each file was to get; none in a dry run, which reads nothing.
    pub bytes: u64,
    /// Files that got all of them, and those that did not.
    pub outcome: Outcome,
    /// How many files were written (would be, in a dry run) on each host, by equal numbers.
    pub changed: Vec<(u64, RangeSet)>,
    /// Files that did not get all and are not as they were.
    pub cut: Vec<Cut>,
    /// The source was not read to its end: `bytes` are not all that there were.
    pub is_cut: bool,
    /// Hosts that did not come to the end.
    pub unfinished: Unfinished,
}

/// Writes all that `source` gives into every file of `targets`. A file in which a piece could not
/// be written counts as failed, and so does every file if `source` fails: one that was to be
/// replaced is then as it was.
///
/// # Errors
/// [`ToolError::Local`] when `source` fails, [`GroupError`] for answers that do not decode, and
/// what `sink` returns, to which lines go that say what was done, if the options ask for them.
pub async fn write(
    client: &Client,
    targets: &[Target],
    options: &WriteOptions,
    edit: EditOptions,
    source: Box<dyn Read + Send>,
    sink: &mut dyn FnMut(&Merged) -> std::io::Result<()>,
) -> Result<Written, ToolError> {
    if !options.exclusive {
        return write_each(client, targets, options, edit, source, sink).await;
    }
    if !edit.dry_run {
        return write_new(client, targets, options, source).await;
    }
    // Nothing is said of a file before it is known that all can be made.
    let mut planned: Vec<(String, RangeSet)> = Vec::new();
    let mut gather = |merged: &Merged| {
        let lines = merged.sorted().into_iter().filter(|entry| entry.entry.kind == EntryKind::Line);
        planned
            .extend(lines.map(|line| {
                (String::from_utf8_lossy(line.path).into_owned(), line.leaves.clone())
            }));
        Ok(())
    };
    let empty = || Box::new(std::io::empty());
    let mut written = write_each(client, targets, options, edit, empty(), &mut gather).await?;
    if written.outcome.is_ok() {
        return write_each(client, targets, options, edit, empty(), sink).await;
    }
    for (path, leaves) in planned {
        written.outcome.add_path_error(Errno::CANCELED, &path, leaves);
    }
    (written.outcome.status, written.changed) = Default::default();
    Ok(written)
}

/// Writes, or plans to, each file whatever becomes of the others.
async fn write_each(
    client: &Client,
    targets: &[Target],
    options: &WriteOptions,
    edit: EditOptions,
    source: Box<dyn Read + Send>,
    sink: &mut dyn FnMut(&Merged) -> std::io::Result<()>,
) -> Result<Written, ToolError> {
    let mut calls = Vec::new();
    for (members, paths) in by_hosts(targets) {
        let WriteOptions { way, create, exclusive, mode, source } = options.clone();
        let params = WriteParams { paths, way, create, exclusive, mode, options: edit, source };
        let params = postcard::to_stdvec(&params).map_err(|_| ToolError::Protocol)?;
        let call = client.call(&members, leaf::NAME, &params)?;
        calls.push(Effect::of_change(edit.dry_run).call(call).await);
    }
    let mut written = Written::default();
    let fed = if edit.dry_run {
        Ok(())
    } else {
        feed(client, &mut calls, source, &mut written.bytes).await
    };
    let stopped = match fed {
        Ok(()) => None,
        Err(Unfed::Local(error)) => return Err(error),
        Err(Unfed::Stopped(errno)) => Some(errno),
    };
    written.is_cut = stopped.is_some();
    let cut = &mut written.cut;
    let mut sink = |merged: &Merged| {
        let of_files = numbers(merged)?.into_iter().filter(|(path, ..)| !path.is_empty());
        cut.extend(of_files.map(|(path, bytes, leaves)| Cut { path, leaves, bytes }));
        sink(merged)
    };
    let mut sink = counting(&mut written.changed, &mut sink);
    let mut hearing = Hearing::new(&mut sink);
    for call in calls {
        match stopped {
            None => hearing.hear(call).await?,
            Some(errno) => hearing.hear_last(call, errno).await?,
        }
    }
    let SaidPath { outcome, unfinished, .. } = hearing.end(targets)?;
    drop(sink);
    written.changed = greatest(written.changed);
    Ok(Written { outcome, unfinished, ..written })
}

/// Why not everything was sent.
enum Unfed {
    Local(ToolError),
    Stopped(Errno),
}

/// Sends all that `source` gives to every host, and in the end what it was; `size` is how much that
/// is.
async fn feed(
    client: &Client,
    calls: &mut [Call],
    source: Box<dyn Read + Send>,
    size: &mut u64,
) -> Result<(), Unfed> {
    let mut pieces = read_ahead(source);
    let mut digester = Digester::new(Algorithm::Blake3);
    loop {
        let piece = tokio::select! {
            errno = client.over() => return Err(Unfed::Stopped(errno)),
            piece = pieces.recv() => piece,
        };
        let Some(piece) = piece.transpose().map_err(|error| Unfed::Local(local(error)))? else {
            break;
        };
        digester.update(&piece);
        *size += piece.len() as u64;
        send(client, calls, &WritePart::Data(&piece)).await.map_err(Unfed::Stopped)?;
    }
    let digest = digester.finish().0;
    send(client, calls, &WritePart::End { size: *size, digest: &digest })
        .await
        .map_err(Unfed::Stopped)
}

/// Sends a piece to every host. Stops with `ECANCELED` at an interrupt, and with `ETIMEDOUT` at the
/// deadline or when there is no room for too long.
async fn send(client: &Client, calls: &mut [Call], piece: &WritePart<'_>) -> Result<(), Errno> {
    let stall = client.limits().timeout.max(STALL_MIN);
    let bytes = postcard::to_stdvec(piece).map_err(|_| Errno::PROTO)?;
    for call in calls {
        tokio::select! {
            errno = client.over() => return Err(errno),
            fed = tokio::time::timeout(stall, call.feed(&bytes)) => fed.map_err(|_| Errno::TIMEDOUT)?,
        }
    }
    Ok(())
}

/// Decodes `data` as each thing that crosses the tree here, for fuzzing.
#[cfg(feature = "fuzzing")]
pub(super) fn decode_any(data: &[u8]) {
    drop(postcard::from_bytes::<WriteParams>(data));
    let _ = postcard::from_bytes::<WritePart<'_>>(data);
}

/// Writes files that must not exist, on all hosts or on none.
async fn write_new(
    client: &Client,
    targets: &[Target],
    options: &WriteOptions,
    source: Box<dyn Read + Send>,
) -> Result<Written, ToolError> {
    let mut pieces = read_ahead(source);
    // Nothing is made for a source that cannot be read.
    let mut piece = pieces.recv().await.transpose().map_err(local)?;
    let mut written = Written::default();
    let mut files = WrittenFiles::open(client, targets, options).await?;
    let are_made = !files.groups.is_empty();
    if are_made {
        let first = piece.take().unwrap_or_default();
        files.fill(client, options, first, &mut pieces, &mut written).await?;
    }
    if written.is_cut {
        files.leave_cut(client, targets, &mut written);
    }
    written.outcome = files.close().await?;
    let failed = written.outcome.missing_hosts();
    let is_unknown = are_made && !written.is_cut;
    for Target { members, .. } in targets.iter().filter(|_| is_unknown) {
        // The file is there, with as much as the host had when it was lost. Of a write that is cut
        // that is known already.
        written.unfinished.unknown.union_with(&members.intersection(&failed));
    }
    for (members, paths) in by_members(targets) {
        if written.is_cut {
            written.outcome.status.count = 0;
            break;
        }
        let mut members = members.difference(&failed);
        written
            .outcome
            .errors
            .iter()
            .for_each(|error| members = members.difference(&error.members.leaves()));
        if !members.is_empty() && written.outcome.status.count > 0 {
            written.changed.push((paths.len() as u64, members));
        }
    }
    Ok(written)
}

fn local(error: std::io::Error) -> ToolError {
    ToolError::Local { path: "standard input".to_owned(), errno: Errno::from_io(&error) }
}

/// Reads in a thread of its own: a terminal or pipe may keep its reader waiting, which must not
/// keep the tree waiting.
fn read_ahead(mut source: Box<dyn Read + Send>) -> mpsc::Receiver<std::io::Result<Vec<u8>>> {
    let (sender, receiver) = mpsc::channel(PIECES_AHEAD);
    let failed = sender.clone();
    let read = move || {
        loop {
            let mut piece = Vec::new();
            let piece =
                (&mut source).take(PIECE_BYTES as u64).read_to_end(&mut piece).map(|_| piece);
            // A piece is short because of the end. It must not be looked for again: at a terminal
            // each end is told once, and whoever has typed it would have to type another.
            let is_end = piece.as_ref().map_or(true, |piece| piece.len() < PIECE_BYTES);
            let is_data = piece.as_ref().map_or(true, |piece| !piece.is_empty());
            if (is_data && sender.blocking_send(piece).is_err()) || is_end {
                return;
            }
        }
    };
    if let Err(error) = std::thread::Builder::new().name("sheaf-write".to_owned()).spawn(read) {
        // It is the first that is sent, so there is room for it.
        let _ = failed.try_send(Err(error));
    }
    receiver
}

/// The open groups of a write, one for each set of hosts.
struct WrittenFiles {
    groups: Vec<(Group, u64)>,
    outcome: Outcome,
}

impl WrittenFiles {
    async fn open(
        client: &Client,
        targets: &[Target],
        options: &WriteOptions,
    ) -> Result<Self, ToolError> {
        let mut files = Self { groups: Vec::new(), outcome: Outcome::default() };
        for (members, paths) in by_members(targets) {
            match client.gopen_with(&members, options.open(paths)).await {
                Ok(group) => {
                    files.add(group.opened().clone());
                    let members = group.size();
                    files.groups.push((group, members));
                }
                Err(GroupError::Members(outcome)) => files.add(*outcome),
                Err(error) => return Err(error.into()),
            }
        }
        if !files.outcome.is_ok() {
            files.give_up().await?;
        }
        Ok(files)
    }

    /// Removes all that was made; who had made something is told by its name.
    async fn give_up(&mut self) -> Result<(), ToolError> {
        for (group, _) in std::mem::take(&mut self.groups) {
            // Names are asked for while the files are there.
            let named = group.paths().await;
            let abandoned = group.abandon().await;
            match named {
                Ok(named) => {
                    for (leaf, path) in named {
                        let path = String::from_utf8_lossy(&path);
                        // Who has failed is told why.
                        let has_failed = self.outcome.errors.iter().any(|error| {
                            error.path == path && error.members.leaves().contains(leaf)
                        });
                        if !has_failed {
                            let leaf = RangeSet::single(leaf);
                            self.outcome.add_path_error(Errno::CANCELED, &path, leaf);
                        }
                    }
                }
                Err(GroupError::Members(outcome)) => self.add(*outcome),
                Err(error) => return Err(error.into()),
            }
            match abandoned {
                Ok(()) => {}
                Err(GroupError::Members(outcome)) => self.add(*outcome),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Takes in who failed; who succeeded is known in the end.
    fn add(&mut self, outcome: Outcome) {
        self.outcome.merge(Outcome { status: Default::default(), ..outcome });
    }

    /// Writes what comes, to its end or until the session is over.
    async fn fill(
        &mut self,
        client: &Client,
        options: &WriteOptions,
        mut bytes: Vec<u8>,
        pieces: &mut mpsc::Receiver<std::io::Result<Vec<u8>>>,
        written: &mut Written,
    ) -> Result<(), ToolError> {
        loop {
            self.write(&options.operation(written.bytes), &bytes).await?;
            written.bytes += bytes.len() as u64;
            if !self.outcome.errors.is_empty() {
                // Where one cannot take all of it, as on a full disk, none is to have a part.
                return self.give_up().await;
            }
            let next = tokio::select! {
                // The end of the session first: a source that always has more would hide it.
                biased;
                _ = client.over() => {
                    written.is_cut = true;
                    return Ok(());
                }
                next = pieces.recv() => next,
            };
            match next.transpose().map_err(local)? {
                Some(next) => bytes = next,
                // What the disks do not take is told while all can still be removed.
                None => break,
            }
        }
        self.write(&Operation::Fsync, b"").await?;
        match self.outcome.errors.is_empty() {
            true => Ok(()),
            false => self.give_up().await,
        }
    }

    /// The files have been made, and stay with what they have got: of hosts that did not answer to
    /// the last piece that is not known.
    fn leave_cut(&mut self, client: &Client, targets: &[Target], written: &mut Written) {
        let (missing, mut failed) = (self.outcome.missing_hosts(), RangeSet::new());
        self.outcome.errors.iter().for_each(|error| failed.union_with(&error.members.leaves()));
        let errno = client.is_over().unwrap_or(Errno::CANCELED);
        for Target { members, path } in targets {
            let leaves = members.difference(&missing).difference(&failed);
            written.unfinished.heard.union_with(&leaves);
            written.unfinished.unknown.union_with(&members.intersection(&missing));
            self.outcome.add_silent(errno, &leaves);
            if !leaves.is_empty() {
                written.cut.push(Cut { path: path.clone(), leaves, bytes: written.bytes });
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    /// Standard input at a terminal, where Ctrl-D was typed once.
    struct Terminal(Cursor<Vec<u8>>, bool);

    impl Read for Terminal {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            assert!(!self.1, "it is read beyond its end");
            let read = self.0.read(into)?;
            self.1 = read == 0;
            Ok(read)
        }
    }

    #[test]
    fn one_end_is_enough() {
        for len in [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES] {
            let mut pieces = read_ahead(Box::new(Terminal(Cursor::new(vec![b'x'; len]), false)));
            let mut read = 0;
            while let Some(piece) = pieces.blocking_recv() {
                read += piece.unwrap().len();
            }
            assert_eq!(read, len);
        }
    }
}
