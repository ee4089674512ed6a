//! A trace done again, against another directory.
//!
//! Each recorded thread has a thread here, which does its operations in their order, on files below
//! the target. What is not recorded cannot be done again, and is told by kind ([`ReplaySkip`]).
//!
//! ```
//! use sheaf_trace::replay::{Replay, ReplayOptions};
//! use sheaf_trace::{TraceNames, TraceRow};
//!
//! let directory = tempfile::tempdir().unwrap();
//! let mut names = TraceNames::default();
//! let (n1, posix) = (names.number(b"n1"), names.number(b"posix"));
//! let (op, path) = (names.number(b"write"), names.number(b"/data/out"));
//! let row = TraceRow { op, path, layer: posix, host: n1, command: n1, offset: Some(4096), asked: 10,
//!     bytes: 10, ..TraceRow::default() };
//! let mut replay = Replay::new(ReplayOptions::new(directory.path())).unwrap();
//! replay.plan(&row, &names);
//! let mut replaying = replay.begin().unwrap();
//! replaying.row(&row, &names).unwrap();
//! assert_eq!(replaying.finish().unwrap().issued(), 1);
//! assert_eq!(std::fs::metadata(directory.path().join("data/out")).unwrap().len(), 4106);
//! ```
mod call_time;
mod crew;
mod issue;
mod outcome;
mod paths;
mod plan;
mod target;

pub use crew::{REPLAY_QUEUE_MAX, REPLAY_THREADS_MAX};
pub use issue::REPLAY_OPEN_MAX;
pub use outcome::{REPLAY_EXAMPLES_MAX, ReplayDifference, ReplayOutcome, ReplaySkip, ReplayedOp};
pub use plan::REPLAY_PATHS_MAX;

use crate::reader::StoreReader;
use crew::{Crew, ReplayJob};
use issue::ReplayProcess;
use outcome::ReplayTally;
use paths::PathMap;
use plan::ReplayPlan;
use sheaf_log::{TraceError, TraceNames, TraceRow};
use sheaf_recorder::IoOp;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use target::ReplayTarget;

/// How fast a trace is done again.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum ReplaySpeed {
    /// Each operation begins as long after the first one as it did.
    #[default]
    AsRecorded,
    /// So many times as fast: above 0.
    Factor(f64),
    /// Each operation begins when the one before it in its thread is done.
    Unpaced,
}

/// How a trace is done again.
#[derive(Debug, Clone)]
pub struct ReplayOptions {
    /// The directory below which all files are: empty, or one that an earlier replay has used.
    pub into: PathBuf,
    /// Only files below this are used, and their paths are taken from there on.
    pub from_prefix: Option<PathBuf>,
    /// How fast.
    pub speed: ReplaySpeed,
    /// Makes `into` if it is not there.
    pub create: bool,
}

impl ReplayOptions {
    /// Of all files, as recorded, into a directory that is there.
    #[must_use]
    pub fn new(into: impl Into<PathBuf>) -> Self {
        let (into, speed) = (into.into(), ReplaySpeed::default());
        Self { into, from_prefix: None, speed, create: false }
    }
}

/// A replay that is being planned: it is given all rows once, so that what they find is made first.
///
/// A file that was read before it was written is made as long as it was read, without data; one that
/// was looked at, or its directory, is made empty. Files that a trace makes itself, and that an
/// earlier replay has left, are taken away.
///
/// The target is never left: paths are resolved beneath it by the kernel, without symbolic links and
/// without other file systems; `..` is taken away before, and what would lead above the root is not
/// done. Files that have another hard link are refused, too.
pub struct Replay {
    options: ReplayOptions,
    target: Arc<ReplayTarget>,
    paths: PathMap,
    plan: ReplayPlan,
    ops: OpTable,
}

impl Replay {
    /// Opens the target.
    ///
    /// # Errors
    /// When it is not there or cannot be used; when there is something in it, but no mark of an
    /// earlier replay (`.sheaf-replay`); when the speed is not above 0.
    pub fn new(options: ReplayOptions) -> Result<Self, TraceError> {
        if let ReplaySpeed::Factor(factor) = options.speed
            && !(factor.is_finite() && factor > 0.0)
        {
            return Err(TraceError::damaged(&options.into, "the speed is not above 0"));
        }
        let target = ReplayTarget::open(&options.into, options.create)?;
        let paths = PathMap::new(options.from_prefix.as_deref())?;
        let (plan, ops) = (ReplayPlan::default(), OpTable::default());
        Ok(Self { options, target: Arc::new(target), paths, plan, ops })
    }

    /// Looks at an operation that will be done.
    pub fn plan(&mut self, row: &TraceRow, names: &TraceNames) {
        let is_stdio = match names.text(row.layer) {
            b"posix" | b"kernel" => false,
            b"stdio" => true,
            _ => return,
        };
        if let Some(op) = self.ops.of(row.op, names)
            && let Ok(path) = self.paths.of(row.path, names)
        {
            let new_path = match (op, row.new_path) {
                (IoOp::Rename | IoOp::Link, Some(number)) => self.paths.of(number, names).ok(),
                _ => None,
            };
            self.plan.add(op, (&path, new_path.as_deref()), row, is_stdio);
        }
    }

    /// Makes the files that are needed, and starts.
    ///
    /// # Errors
    /// When a file cannot be made, or one that is in the way not be taken away.
    pub fn begin(self) -> Result<Replaying, TraceError> {
        let prepared = self.plan.prepare(&self.target)?;
        let outcome = ReplayOutcome {
            files_made: prepared.files,
            directories_made: prepared.directories,
            bytes_made: prepared.bytes,
            unmade: prepared.unmade,
            paths_unplanned: self.plan.unplanned(),
            ..ReplayOutcome::default()
        };
        Ok(Replaying {
            crew: Crew::new(self.options.speed),
            target: self.target,
            paths: self.paths.again(),
            ops: OpTable::default(),
            processes: HashMap::new(),
            threads: HashMap::new(),
            used: HashSet::new(),
            outcome,
            tally: ReplayTally::default(),
        })
    }

    /// Plans and does all rows of a store; what cannot be read of it is in the outcome.
    ///
    /// # Errors
    /// As [`Replay::begin`] and [`Replaying::row`].
    pub fn run(mut self, store: &StoreReader) -> Result<ReplayOutcome, TraceError> {
        let mut names = TraceNames::default();
        store.read(&mut names, |row, names| {
            self.plan(row, names);
            Ok(())
        })?;
        let mut replaying = self.begin()?;
        let damaged = store.read(&mut names, |row, names| replaying.row(row, names))?;
        Ok(ReplayOutcome { damaged, ..replaying.finish()? })
    }
}

/// Operations by the numbers of their names.
#[derive(Debug, Default)]
struct OpTable(HashMap<u32, Option<IoOp>>);

impl OpTable {
    fn of(&mut self, number: u32, names: &TraceNames) -> Option<IoOp> {
        let find = || {
            let text = names.text(number);
            IoOp::ALL.iter().copied().find(|op| op.word().as_bytes() == text)
        };
        *self.0.entry(number).or_insert_with(find)
    }
}

/// A recorded thread.
struct ReplayThread {
    worker: usize,
    /// When the operation ends that was given to it last, as recorded.
    until_ns: i64,
}

/// A replay that is under way: it is given all rows again, with the same names, in the order of
/// their times.
///
/// An operation on names (an open, `mkdir`, `stat`, …) begins when all are done that had ended
/// before it when they were recorded, and so does the first one of a process on a file; other reads
/// and writes wait for their own thread alone.
///
/// Calls of the kernel and of the C library's streams are done: what streams do within is not seen
/// by the recorder, and so they are imitated with a buffer of 4 KiB. A row that is marked as nested,
/// and lies within one of its thread that is done, is not done again. A hard link becomes a file of
/// its own, as long as the other. Layers above (MPI-IO, Sheaf's
/// own) are not done: what they called is recorded as well.
///
/// Data written is made up: the byte at offset `o` is `o` modulo 251. Descriptors are not
/// recorded, so a process uses the one of a path that it has opened last; a write without a known offset is
/// appended, such a read goes on behind the one before. A file that was opened is opened for
/// reading and writing, made if it is not there, and cut off where it was (`O_TRUNC`). A stream
/// begins at the beginning of its file, or writes at its end where it was opened to append, or by
/// somebody else, and is moved to where it was moved.
pub struct Replaying {
    target: Arc<ReplayTarget>,
    crew: Crew,
    paths: PathMap,
    ops: OpTable,
    processes: HashMap<(u32, i32), Arc<ReplayProcess>>,
    threads: HashMap<(u32, i32, i32), ReplayThread>,
    /// Paths that processes have had operations on.
    used: HashSet<(u32, i32, u32)>,
    outcome: ReplayOutcome,
    tally: ReplayTally,
}

impl Replaying {
    /// Does an operation, or lets it wait for its turn; returns when there is room for more.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn row(&mut self, row: &TraceRow, names: &TraceNames) -> Result<(), TraceError> {
        let Some(op) = self.ops.of(row.op, names) else {
            let name = String::from_utf8_lossy(names.text(row.op)).into_owned();
            self.tally.skip(ReplaySkip::NotOfFile, name);
            return Ok(());
        };
        match op {
            IoOp::Lost => {
                self.outcome.lost += u128::from(row.bytes.max(0).unsigned_abs());
                return Ok(());
            }
            IoOp::Mark => return Ok(()),
            _ => {}
        }
        let end = row.time_ns.saturating_add(row.duration_ns.max(0));
        let (first, last) = self.outcome.span_ns.unwrap_or((i64::MAX, i64::MIN));
        self.outcome.span_ns = Some((first.min(row.time_ns), last.max(end)));
        match self.job(op, row, end, names) {
            Ok(job) => {
                let worker = self.worker(row, end)?;
                self.crew.push(worker, job);
                Ok(())
            }
            Err(why) => {
                self.tally.skip(why, op.word().to_owned());
                Ok(())
            }
        }
    }

    /// On which file of which process, if it can be done.
    fn job(
        &mut self,
        op: IoOp,
        row: &TraceRow,
        end: i64,
        names: &TraceNames,
    ) -> Result<ReplayJob, ReplaySkip> {
        let is_stdio = match names.text(row.layer) {
            b"posix" | b"kernel" => false,
            b"stdio" => true,
            _ => return Err(ReplaySkip::LayerAbove),
        };
        let thread = self.threads.get(&(row.host, row.pid, row.thread));
        if row.is_nested && thread.is_some_and(|thread| row.time_ns < thread.until_ns) {
            return Err(ReplaySkip::Nested);
        }
        outcome::doable(op, row)?;
        let path = self.paths.of(row.path, names)?;
        let new_path = row.new_path.filter(|_| matches!(op, IoOp::Rename | IoOp::Link));
        let new_path = new_path.map(|number| self.paths.of(number, names)).transpose()?;
        let target = &self.target;
        let process = self.processes.entry((row.host, row.pid));
        let process = process.or_insert_with(|| Arc::new(ReplayProcess::new(target.clone())));
        let process = process.clone();
        let is_first = self.used.insert((row.host, row.pid, row.path));
        Ok(ReplayJob { op, row: *row, path, new_path, process, is_stdio, is_first, end })
    }

    /// Which thread here does a recorded thread's operations.
    fn worker(&mut self, row: &TraceRow, end: i64) -> Result<usize, TraceError> {
        let count = self.threads.len();
        let crew = &mut self.crew;
        let key = (row.host, row.pid, row.thread);
        if !self.threads.contains_key(&key) {
            let worker = crew.worker(count, self.target.path())?;
            self.outcome.threads += 1;
            self.outcome.threads_sharing += u64::from(count >= REPLAY_THREADS_MAX);
            self.threads.insert(key, ReplayThread { worker, until_ns: end });
        }
        let thread = self.threads.get_mut(&key).expect("it was just put there");
        thread.until_ns = thread.until_ns.max(end);
        Ok(thread.worker)
    }

    /// Waits until all is done, and says what came of it.
    ///
    /// # Errors
    /// When a thread has panicked.
    pub fn finish(self) -> Result<ReplayOutcome, TraceError> {
        let Self { target, crew, processes, mut outcome, mut tally, .. } = self;
        outcome.took = crew.finish(&mut tally, target.path())?;
        for process in processes.values() {
            process.end(&mut tally);
        }
        tally.into_outcome(&mut outcome);
        Ok(outcome)
    }
}
