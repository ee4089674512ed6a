//! What came of a replay.
use sheaf_core::Errno;
use sheaf_log::{TraceError, TraceRow};
use sheaf_recorder::IoOp;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Differences that are told as examples.
pub const REPLAY_EXAMPLES_MAX: usize = 16;

/// Why an operation was not done again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ReplaySkip {
    /// It is on no file with a path: a pipe, a socket, memory.
    NoPath,
    /// It is on a device, or in a file system of the kernel's own (`/dev`, `/proc`, `/sys`).
    Device,
    /// Its file is not below the prefix.
    OutsidePrefix,
    /// Its path leads above the root.
    LeadsOutside,
    /// It happened within an operation that is done.
    Nested,
    /// It is one of a layer of which the calls are recorded as well.
    LayerAbove,
    /// It has a second path, which is not recorded.
    TargetNotRecorded,
    /// It makes or reads a symbolic link: there are none below the target.
    Link,
    /// What it was to do is not recorded.
    ArgumentsNotRecorded,
    /// Accesses of mapped memory are not recorded.
    MappedMemory,
    /// It asks for what has been done when it was ordered.
    Asynchronous,
    /// It failed because of the call, not of the file.
    CallFailed,
    /// Nothing has opened its file.
    NotOpen,
    /// There were too many open files already.
    TooManyOpen,
    /// It is no operation on a file.
    NotOfFile,
}

impl fmt::Display for ReplaySkip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoPath => "on no file that has a path",
            Self::Device => "on a device or a file system of the kernel's own",
            Self::OutsidePrefix => "not below the prefix",
            Self::LeadsOutside => "its path leads outside",
            Self::Nested => "within an operation that is done",
            Self::LayerAbove => "of a layer above, whose calls are recorded as well",
            Self::TargetNotRecorded => "its second path is not recorded",
            Self::Link => "of symbolic links, which a replay has none of",
            Self::ArgumentsNotRecorded => "its arguments are not recorded",
            Self::MappedMemory => "accesses of mapped memory are not recorded",
            Self::Asynchronous => "done when it was ordered",
            Self::CallFailed => "failed because of the call",
            Self::NotOpen => "its file was not opened",
            Self::TooManyOpen => "too many open files",
            Self::NotOfFile => "no operation on a file",
        })
    }
}

/// Whether an operation can be done, as far as it does not depend on its path.
pub(super) fn doable(op: IoOp, row: &TraceRow) -> Result<(), ReplaySkip> {
    const OF_THE_CALL: [Errno; 5] =
        [Errno::INTR, Errno::AGAIN, Errno::BADF, Errno::FAULT, Errno::INVAL];
    match op {
        IoOp::Copy | IoOp::Splice => Err(ReplaySkip::TargetNotRecorded),
        IoOp::Rename | IoOp::Link if row.new_path.is_none() => Err(ReplaySkip::TargetNotRecorded),
        IoOp::SymLink | IoOp::ReadLink => Err(ReplaySkip::Link),
        IoOp::Fcntl
        | IoOp::Lock
        | IoOp::Advise
        | IoOp::SetAttributes
        | IoOp::Xattr
        | IoOp::MakeNode => Err(ReplaySkip::ArgumentsNotRecorded),
        IoOp::Map | IoOp::SyncMap | IoOp::Unmap => Err(ReplaySkip::MappedMemory),
        IoOp::AsyncWait | IoOp::AsyncSubmit | IoOp::KernelRead | IoOp::KernelWrite => {
            Err(ReplaySkip::Asynchronous)
        }
        IoOp::Open
        | IoOp::Close
        | IoOp::Dup
        | IoOp::Read
        | IoOp::Write
        | IoOp::Seek
        | IoOp::Sendfile
        | IoOp::Truncate
        | IoOp::Allocate
        | IoOp::Sync
        | IoOp::Stat
        | IoOp::Access
        | IoOp::OpenDirectory
        | IoOp::ReadDirectory
        | IoOp::CloseDirectory
        | IoOp::MakeDirectory
        | IoOp::RemoveDirectory
        | IoOp::Unlink
        | IoOp::Rename
        | IoOp::Link
        | IoOp::AsyncRead
        | IoOp::AsyncWrite
        | IoOp::AsyncSync
        | IoOp::Flush => {
            if OF_THE_CALL.contains(&Errno(row.errno)) {
                return Err(ReplaySkip::CallFailed);
            }
            Ok(())
        }
        _ => Err(ReplaySkip::NotOfFile),
    }
}

/// One kind of operation, as it was and as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplayedOp {
    /// How many were done.
    pub count: u64,
    /// How many of them had another outcome.
    pub differed: u64,
    /// Bytes that were moved when it was recorded.
    pub bytes_recorded: u128,
    /// Bytes that were moved now.
    pub bytes_replayed: u128,
    /// Time they took when they were recorded, by all threads together, in ns.
    pub recorded_ns: u128,
    /// Time that their calls took now, in ns, without what has to be done for them before.
    pub replayed_ns: u128,
}

/// An operation that had another outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayDifference {
    /// When it was recorded, in ns since 1970.
    pub time_ns: i64,
    /// The operation.
    pub op: &'static str,
    /// Its path below the target.
    pub path: Vec<u8>,
    /// How it failed, and what it moved, when it was recorded; 0: it did not fail.
    pub recorded: (i32, i64),
    /// The same now.
    pub replayed: (i32, i64),
}

/// What came of a replay.
#[derive(Debug, Default)]
pub struct ReplayOutcome {
    /// What was done, by operation.
    pub ops: BTreeMap<&'static str, ReplayedOp>,
    /// What was not done, by reason and operation.
    pub skipped: BTreeMap<(ReplaySkip, String), u64>,
    /// The first operations with another outcome, up to [`REPLAY_EXAMPLES_MAX`].
    pub differences: Vec<ReplayDifference>,
    /// Buffered data that could not be written at the end.
    pub flushes_failed: u64,
    /// Operations that the trace has not kept.
    pub lost: u128,
    /// Files that were made before, as they were read before they were written.
    pub files_made: u64,
    /// Directories that were made before.
    pub directories_made: u64,
    /// How long these files are together, in bytes.
    pub bytes_made: u128,
    /// Files and directories that were there, but in a directory that the trace makes: they came by
    /// what is not recorded, and were not made.
    pub unmade: u64,
    /// Operations on paths beyond [`REPLAY_PATHS_MAX`](super::REPLAY_PATHS_MAX), for which nothing
    /// was made before.
    pub paths_unplanned: u64,
    /// Threads that were recorded, of which operations were done.
    pub threads: u64,
    /// Of these, those that shared a thread with others.
    pub threads_sharing: u64,
    /// How late an operation began at most, where the speed says when it shall.
    pub late_most: Duration,
    /// When the first operation began and the last one ended, in ns since 1970.
    pub span_ns: Option<(i64, i64)>,
    /// How long the whole took, without what was made before.
    pub took: Duration,
    /// What could not be read of the trace.
    pub damaged: Vec<TraceError>,
}

impl ReplayOutcome {
    /// Operations that were done.
    #[must_use]
    pub fn issued(&self) -> u64 {
        self.ops.values().map(|op| op.count).sum()
    }

    /// Those of them that had another outcome.
    #[must_use]
    pub fn differed(&self) -> u64 {
        self.ops.values().map(|op| op.differed).sum()
    }
}

/// What one thread has done.
#[derive(Debug, Default)]
pub(super) struct ReplayTally {
    ops: BTreeMap<IoOp, ReplayedOp>,
    skipped: BTreeMap<(ReplaySkip, String), u64>,
    differences: Vec<ReplayDifference>,
    pub flushes_failed: u64,
    pub late_most: Duration,
}

impl ReplayTally {
    pub fn skip(&mut self, why: ReplaySkip, op: String) {
        *self.skipped.entry((why, op)).or_default() += 1;
    }

    /// An operation has come to this: its errno, and its bytes where these can be compared.
    pub fn did(
        &mut self,
        (op, row, path): (IoOp, &TraceRow, &[u8]),
        (errno, bytes): (i32, i64),
        compares_bytes: bool,
        took: Duration,
    ) {
        let sums = self.ops.entry(op).or_default();
        sums.count += 1;
        sums.bytes_recorded += u128::from(row.bytes.max(0).unsigned_abs());
        sums.bytes_replayed += u128::from(bytes.max(0).unsigned_abs());
        sums.recorded_ns += u128::from(row.duration_ns.max(0).unsigned_abs());
        sums.replayed_ns += took.as_nanos();
        if errno == row.errno && (!compares_bytes || bytes == row.bytes) {
            return;
        }
        sums.differed += 1;
        if self.differences.len() < REPLAY_EXAMPLES_MAX {
            self.differences.push(ReplayDifference {
                time_ns: row.time_ns,
                op: op.word(),
                path: path.to_owned(),
                recorded: (row.errno, row.bytes),
                replayed: (errno, bytes),
            });
        }
    }

    pub fn add(&mut self, other: Self) {
        for (op, more) in other.ops {
            let sums = self.ops.entry(op).or_default();
            sums.count += more.count;
            sums.differed += more.differed;
            sums.bytes_recorded += more.bytes_recorded;
            sums.bytes_replayed += more.bytes_replayed;
            sums.recorded_ns += more.recorded_ns;
            sums.replayed_ns += more.replayed_ns;
        }
        for (key, count) in other.skipped {
            *self.skipped.entry(key).or_default() += count;
        }
        self.differences.extend(other.differences);
        self.flushes_failed += other.flushes_failed;
        self.late_most = self.late_most.max(other.late_most);
    }

    pub fn into_outcome(mut self, outcome: &mut ReplayOutcome) {
        // Each thread has kept its first ones: these are the first ones of all.
        self.differences.sort_by_key(|difference| difference.time_ns);
        self.differences.truncate(REPLAY_EXAMPLES_MAX);
        outcome.ops = self.ops.into_iter().map(|(op, sums)| (op.word(), sums)).collect();
        (outcome.skipped, outcome.differences) = (self.skipped, self.differences);
        (outcome.flushes_failed, outcome.late_most) = (self.flushes_failed, self.late_most);
    }
}
