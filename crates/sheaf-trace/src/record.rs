//! A trace taken on this host: what processes record into a directory goes into a store while they
//! run.
//!
//! Two threads: one takes what has come from the rings, which are small, and appends it to a
//! [`spool`], and does nothing else; the other makes Parquet files of spools that are
//! full, which takes its time. Whoever is killed leaves spools and rings, from which [`recover`]
//! makes the rest: nothing that a ring has committed is lost by that, and nothing is there twice.
use crate::convert::convert_spool;
use crate::info::TraceInfo;
use crate::kernel::{KernelCollector, KernelTrace};
use crate::parts::{KeepLimits, PartKeeper, PartLimits, RemovedParts};
use crate::report::{ReportData, ReportOptions, TraceReport};
use rustix::fs::{FlockOperation, flock};
use sheaf_log::collect::{DROPPED_FILE, DroppedSums, SourceState};
use sheaf_log::files::{check_own, check_private, open, remove};
use sheaf_log::served::{ReadyFilter, RowFilter};
use sheaf_log::spool::{self, SpoolFacts, SpoolWriter};
use sheaf_log::{Collected, Collector, TraceError, TraceNames, TraceRow};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Looks that found nothing are followed by longer and longer pauses, up to this.
const PAUSE_MAX: Duration = Duration::from_millis(20);
/// A ring of the default size takes longer than this to fill at full speed.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// The same after looks that found fewer rows than `FEW_ROWS`, a sixteenth of a ring: it does not fill
/// meanwhile unless the program becomes sixteen times as fast.
const PAUSE_FEW_MAX: Duration = Duration::from_millis(8);
const FEW_ROWS: usize = 1 << 10;
/// Programs that are named as ones that do what is not seen.
const UNSEEN_MAX: usize = 64;
/// Held for as long as somebody writes the trace.
const LOCK_FILE: &str = "recording.lock";

/// How the names of directories begin that are made for segments.
pub const BUFFERS_PREFIX: &str = "sheaf-trace-";
/// In such a directory: the path of the trace that its operations are for.
pub(crate) const TRACE_PATH_FILE: &str = "trace";

/// What is preloaded, where it is linked to from beside the segments.
pub const PRELOAD_FILE: &str = "libsheaf_trace.so";
/// In a directory for segments: why snapshots could not be made, a line each.
pub(crate) const TROUBLE_FILE: &str = "snapshots.failed";

/// What a recording came to.
#[derive(Debug, Default)]
pub struct RecordTotals {
    /// Operations in the store.
    pub rows: u64,
    /// Operations that rings had no room for; the store says when.
    pub lost: u64,
    /// Of those, operations for which there was no ring.
    pub unplaced: u64,
    /// How often threads have waited for room, and how long together in ns.
    pub waited: (u64, u64),
    /// Operations that the filter did not let through.
    pub filtered: u64,
    /// What the operations add up to, if that was to be kept alone.
    pub summary: Option<Box<ReportData>>,
    /// Operations that later ones took the place of, in a flight recorder.
    pub overwritten: u64,
    /// Operations that were taken from rings and could not be written down.
    pub unwritten: u64,
    /// Files whose names had no room: their operations are there without.
    pub names_lost: u64,
    /// Operations on files whose names are not known, of what the kernel has told.
    pub unnamed: u64,
    /// What was done where nothing was told of it, in words.
    pub unseen: Vec<String>,
    /// Bytes that system calls have read and written, as far as the kernel counts them too: those
    /// of the C library's streams are counted as they were asked for.
    pub bytes_read: u64,
    /// See [`RecordTotals::bytes_read`].
    pub bytes_written: u64,
    /// Segments that were read.
    pub segments: u64,
    /// Processes that go on, of which nothing more is recorded.
    pub still_run: usize,
    /// Files that could not be read, or not to their end, and why.
    pub damaged: Vec<(PathBuf, String)>,
    /// Why not all was written down.
    pub error: Option<TraceError>,
    /// Whether a spool was not read to its end, and is kept.
    pub is_damaged: bool,
    /// Whether some of [`RecordTotals::rows`] is in no file yet, so that [`recover`] has to make one.
    pub is_unfinished: bool,
}

/// How something is recorded.
#[derive(Debug, Clone, Default)]
pub struct RecordingOptions {
    /// When a file of the store is ended and another begun.
    pub parts: PartLimits,
    /// Which operations are kept.
    pub filter: RowFilter,
    /// What they add up to is kept, in [`RecordTotals::summary`], and none of them.
    pub is_summary: bool,
}

/// A recording under way. Dropped, it goes on in the background until the process ends.
#[derive(Debug)]
pub struct Recording {
    end: RecordingEnd,
    taker: JoinHandle<RecordTotals>,
}

/// When a recording ends that is to be finished.
#[derive(Debug, Clone, Default)]
pub struct RecordingEnd {
    until: Arc<OnceLock<Instant>>,
    is_now: Arc<AtomicBool>,
}

impl RecordingEnd {
    /// Has [`Recording::finish_within`] wait no longer.
    pub fn end_now(&self) {
        self.is_now.store(true, Ordering::Relaxed);
    }

    fn is_asked_for(&self) -> bool {
        self.until.get().is_some()
    }

    fn has_come(&self) -> bool {
        let is_late = self.until.get().is_some_and(|until| Instant::now() >= *until);
        is_late || self.is_now.load(Ordering::Relaxed)
    }
}

impl Recording {
    /// What ends it early.
    #[must_use]
    pub fn end(&self) -> RecordingEnd {
        self.end.clone()
    }

    /// Begins to take what processes of this host record into `segments`, and to write it into
    /// `store`, which is there.
    ///
    /// # Errors
    /// When one of the directories cannot be read or written, somebody records there, or there is
    /// no thread.
    pub fn begin(
        segments: &Path,
        store: &Path,
        host: &str,
        options: &RecordingOptions,
    ) -> Result<Self, TraceError> {
        let lock = lock(store)?;
        let source = RowSource::Segments(Box::new(Collector::new(segments, host)?));
        Self::go_on(source, TraceNames::default(), store, lock, (0, options), WhenFull::Count)
    }

    /// Begins to write what the kernel tells into `store`, which is there.
    ///
    /// # Errors
    /// When the directory cannot be written, somebody records there, or there is no thread.
    pub fn begin_kernel(
        kernel: KernelTrace,
        store: &Path,
        host: &str,
        options: &RecordingOptions,
    ) -> Result<Self, TraceError> {
        let lock = lock(store)?;
        let mut names = TraceNames::default();
        let source = RowSource::Kernel(Box::new(KernelCollector::new(kernel, host, &mut names)));
        Self::go_on(source, names, store, lock, (0, options), WhenFull::Count)
    }

    /// Goes on with spools from this number, and with the names that the collector's segments have.
    fn go_on(
        source: RowSource,
        names: TraceNames,
        store: &Path,
        lock: StoreLock,
        (number, options): (u32, &RecordingOptions),
        when_full: WhenFull,
    ) -> Result<Self, TraceError> {
        let filter = options.filter.ready().map_err(|why| TraceError::damaged(store, why))?;
        let summary = options.is_summary.then(|| TraceReport::new(ReportOptions::default()));
        let mut taker = SpoolTaker {
            spool: SpoolWriter::begin(
                store,
                number,
                &names,
                SpoolFacts::of_sources(source.states()),
            )?,
            store: store.to_owned(),
            source,
            names,
            begun: Instant::now(),
            parts: options.parts,
            filter,
            summary,
            when_full,
            totals: RecordTotals::default(),
        };
        let end = RecordingEnd::default();
        let (to_store, spools) = channel();
        let (stored, seen_end) = (store.to_owned(), end.clone());
        let directory = store.to_owned();
        let spawn = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let storer = spawn("sheaf-trace-store")
            .spawn(move || keep(&stored, &spools))
            .map_err(TraceError::io(store))?;
        let taker = spawn("sheaf-trace-take")
            .spawn(move || {
                taker.take_all(&seen_end, &to_store);
                taker.end(to_store);
                let (kept, damaged, error) =
                    storer.join().expect("the thread that stores has told its panic");
                let mut totals = taker.totals;
                totals.rows += kept;
                totals.summary = taker.summary.map(|report| Box::new(report.finish(&taker.names)));
                totals.damaged.extend(damaged);
                totals.error = totals.error.take().or(error);
                // What is still in spools is not lost: `recover` makes files of it.
                if totals.error.is_some()
                    && let Ok(rows) = spool::rows_of(&directory)
                {
                    totals.rows += rows;
                }
                // Last, because until here spools are converted, which only one process may do.
                lock.end(&mut totals);
                totals
            })
            .map_err(TraceError::io(store))?;
        Ok(Self { end, taker })
    }

    /// Takes what is left, and ends the store: once nobody is recorded any more, or after
    /// `patience`.
    ///
    /// # Panics
    /// When a thread of the recording has panicked.
    #[must_use]
    pub fn finish_within(self, patience: Duration) -> RecordTotals {
        self.end.until.get_or_init(|| Instant::now() + patience);
        self.taker.join().expect("the thread that takes has told its panic")
    }
}

/// Makes a whole trace of what a recording has left that was killed: what it had in its spools, and
/// what is in the rings still.
///
/// What cannot be stored stays where it is, and [`RecordTotals::error`] says why.
///
/// # Errors
/// When it is being recorded, or cannot be read.
pub fn recover(store: &Path) -> Result<RecordTotals, TraceError> {
    check_own(store)?;
    let lock = lock(store)?;
    let info = TraceInfo::read(store)?.unwrap_or_default();
    let buffers = info.buffers.as_deref().filter(|buffers| buffers.exists());
    let taken = |buffers| check_buffers(buffers).and_then(|()| lock_buffers(buffers));
    let _taken = buffers.map(taken).transpose()?;
    let (mut before, mut states, mut next) = (RecordTotals::default(), None, 0);
    let mut names = TraceNames::default();
    for (number, path) in spool::spools_of(store)? {
        let content = match convert_spool(store, number, &mut names) {
            Ok((_, content)) => content,
            Err(error) => {
                before.error = Some(error);
                lock.end(&mut before);
                return Ok(before);
            }
        };
        before.damaged.extend(content.cut.map(|why| (path, why)));
        before.is_damaged |= content.is_damaged;
        // Each begins with all that is known, unless it was cut off just there.
        if content.has_begun {
            states = Some(content.sources);
        }
        next = number + 1;
    }
    // Files of spools that are gone already.
    while crate::TraceStore::has_file(store, next)? {
        next += 1;
    }
    let Some(buffers) = buffers else {
        lock.end(&mut before);
        count(store, &mut before)?;
        return Ok(before);
    };
    let dropped = DroppedSums::take(buffers)?;
    let mut collector = Collector::new(buffers, &info.host)?;
    collector.resume(states.into_iter().flatten().map(|(_, state)| state));
    let source = RowSource::Segments(Box::new(collector));
    let options = RecordingOptions { parts: PartLimits::default(), ..RecordingOptions::default() };
    let (number, keep) = ((next, &options), WhenFull::Keep);
    let recording = Recording::go_on(source, names, store, lock, number, keep)?;
    let mut totals = recording.finish_within(Duration::ZERO);
    totals.damaged.splice(..0, before.damaged);
    totals.is_damaged = before.is_damaged;
    // Otherwise the segments are what the next attempt needs.
    if totals.error.is_none() {
        remove_buffers(buffers)?;
        count(store, &mut totals)?;
        // `count` has replaced the sum, so these are added after it.
        totals.lost += dropped.lost;
        totals.unwritten += dropped.unwritten;
    }
    Ok(totals)
}

/// What is stored in all, and what is told there to be lost.
fn count(store: &Path, totals: &mut RecordTotals) -> Result<(), TraceError> {
    let (none, limits) = (RemovedParts::default(), KeepLimits::default());
    let parts = PartKeeper::open(store, none, limits, &mut totals.damaged)?;
    (totals.rows, totals.lost) = parts.stored();
    Ok(())
}

/// Held by whoever takes what is recorded into a directory; given up with its process.
#[derive(Debug)]
pub struct BuffersLock {
    _directory: File,
}

/// Takes what is recorded into a directory for oneself: another trace may name the same (a copy of
/// one that is being made).
///
/// # Errors
/// When somebody has it, or it cannot be opened.
pub fn lock_buffers(directory: &Path) -> Result<BuffersLock, TraceError> {
    let opened = File::open(directory).map_err(TraceError::io(directory))?;
    match flock(&opened, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(BuffersLock { _directory: opened }),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            Err(TraceError::damaged(directory, "somebody is recording there"))
        }
        Err(error) => Err(TraceError::io(directory)(error.into())),
    }
}

/// That a directory was made for a recording: its segments are taken away once they are stored.
pub(crate) fn check_buffers(directory: &Path) -> Result<(), TraceError> {
    check_private(directory)?;
    let name = directory.file_name().and_then(|name| name.to_str());
    if !name.is_some_and(|name| name.starts_with(BUFFERS_PREFIX)) {
        let why = format!("it was not made for a recording (it is not called {BUFFERS_PREFIX}…)");
        return Err(TraceError::damaged(directory, why));
    }
    Ok(())
}

/// Takes away what was made for a recording, and nothing else.
fn remove_buffers(directory: &Path) -> Result<(), TraceError> {
    const OURS: [&str; 4] = [PRELOAD_FILE, TROUBLE_FILE, DROPPED_FILE, TRACE_PATH_FILE];
    for entry in std::fs::read_dir(directory).map_err(TraceError::io(directory))? {
        let path = entry.map_err(TraceError::io(directory))?.path();
        let is_ours = path.extension().is_some_and(|extension| extension == "segment")
            || path.file_name().is_some_and(|name| OURS.iter().any(|ours| name == *ours));
        if is_ours {
            std::fs::remove_file(&path).map_err(TraceError::io(&path))?;
        }
    }
    std::fs::remove_dir(directory).map_err(TraceError::io(directory))
}

/// That somebody writes a trace; others are refused meanwhile, until its process is gone.
pub(crate) struct StoreLock {
    store: PathBuf,
    path: PathBuf,
    file: File,
}

pub(crate) fn lock(store: &Path) -> Result<StoreLock, TraceError> {
    let path = store.join(LOCK_FILE);
    // Not truncated: another process may hold the lock, and has signed the file.
    let file = File::options().create(true).append(true).open(&path);
    let file = file.map_err(TraceError::io(&path))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(StoreLock { store: store.to_owned(), path, file }),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            Err(TraceError::damaged(store, "somebody is recording it"))
        }
        Err(error) => Err(TraceError::io(&path)(error.into())),
    }
}

/// The number of a process is shorter.
const SIGNED_BYTES_MAX: u64 = 64;

impl StoreLock {
    /// Says in it who holds it.
    pub(crate) fn sign(&self) -> Result<(), TraceError> {
        self.file.set_len(0).map_err(TraceError::io(&self.path))?;
        (&self.file)
            .write_all(std::process::id().to_string().as_bytes())
            .map_err(TraceError::io(&self.path))
    }

    /// Who holds it, as it has said; nobody where it is not held.
    pub(crate) fn signed(store: &Path) -> Result<Option<String>, TraceError> {
        let path = store.join(LOCK_FILE);
        let file = match open(&path) {
            Err(TraceError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                return Ok(None);
            }
            opened => opened?,
        };
        // The file alone says nothing: a process that was killed leaves it, but no lock.
        if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
            return Ok(None);
        }
        let mut text = String::new();
        file.take(SIGNED_BYTES_MAX).read_to_string(&mut text).map_err(TraceError::io(&path))?;
        Ok(Some(text))
    }

    /// Nobody writes the trace any more.
    pub(crate) fn end(self, totals: &mut RecordTotals) {
        let is_unfinished = crate::TraceStore::has_spools(&self.store);
        totals.is_unfinished = is_unfinished.as_ref().is_ok_and(|is_unfinished| *is_unfinished);
        let removed = std::fs::remove_file(&self.path).map_err(TraceError::io(&self.path));
        // Of somebody who was killed before.
        let unbegun = remove(&self.store.join(spool::PART_FILE));
        let failed = [is_unfinished.map(drop), removed, unbegun].into_iter().find_map(Result::err);
        totals.error = totals.error.take().or(failed);
    }
}

/// Where rows come from.
enum RowSource {
    /// Segments of programs that the preload is in.
    Segments(Box<Collector>),
    /// The kernel's rings.
    Kernel(Box<KernelCollector>),
}

impl RowSource {
    /// What has come; `is_to_end`: whoever ends it needs to know who runs.
    fn collect(
        &mut self,
        names: &mut TraceNames,
        is_to_end: bool,
    ) -> Result<Collected, TraceError> {
        match self {
            Self::Segments(collector) if is_to_end => collector.collect(names),
            Self::Segments(collector) => collector.collect_lately(names),
            Self::Kernel(collector) => collector.collect(names),
        }
    }

    /// What is held back, when nothing more is wanted.
    fn finish(&mut self, names: &mut TraceNames) -> Result<Collected, TraceError> {
        match self {
            Self::Segments(collector) => {
                collector.abandon();
                Ok(Collected::default())
            }
            Self::Kernel(collector) => collector.finish(names),
        }
    }

    fn release(&mut self) -> Result<(), TraceError> {
        match self {
            Self::Segments(collector) => collector.release(),
            Self::Kernel(_) => Ok(()),
        }
    }

    /// What whoever goes on after a crash needs; the kernel's rings are gone then.
    fn states(&self) -> Vec<SourceState> {
        match self {
            Self::Segments(collector) => collector.states(),
            Self::Kernel(_) => Vec::new(),
        }
    }

    /// How many processes go on.
    fn open(&self) -> usize {
        match self {
            Self::Segments(collector) => collector.open(),
            Self::Kernel(collector) => collector.open(),
        }
    }

    /// How many programs were seen.
    fn seen(&self) -> u64 {
        match self {
            Self::Segments(collector) => collector.seen(),
            Self::Kernel(collector) => collector.seen(),
        }
    }

    /// What could not be read and is not told yet.
    fn take_damaged(&mut self) -> Vec<(PathBuf, String)> {
        match self {
            Self::Segments(collector) => collector.take_damaged(),
            Self::Kernel(_) => Vec::new(),
        }
    }

    /// The longest pause between two looks. The sooner the kernel's are looked at, the more files
    /// are open still, and have their names.
    fn pause_max(&self, else_max: Duration) -> Duration {
        match self {
            Self::Segments(_) => else_max,
            Self::Kernel(_) => PAUSE_MIN,
        }
    }
}

/// From rings to spools.
struct SpoolTaker {
    store: PathBuf,
    source: RowSource,
    names: TraceNames,
    spool: SpoolWriter,
    /// When the spool was begun, and when it is to be ended.
    begun: Instant,
    parts: PartLimits,
    /// Which rows are kept.
    filter: ReadyFilter,
    /// What becomes of them, if they are not stored one by one.
    summary: Option<TraceReport>,
    when_full: WhenFull,
    totals: RecordTotals,
}

/// What becomes of what cannot be written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WhenFull {
    /// It is counted: the program goes on, and needs the room in its rings.
    Count,
    /// It stays in the rings, for the next attempt.
    Keep,
}

impl SpoolTaker {
    fn take_all(&mut self, end: &RecordingEnd, to_store: &Sender<u32>) {
        let mut pause = PAUSE_MIN;
        loop {
            let is_to_end = end.is_asked_for();
            let mut collected = match self.source.collect(&mut self.names, is_to_end) {
                Ok(collected) => collected,
                Err(error) => return self.fail(error),
            };
            let (more, rows) = (collected.more, collected.rows.len());
            self.note(&collected);
            self.write(&mut collected);
            // Without `release` the rows stay in the rings.
            if self.when_full == WhenFull::Keep && self.totals.error.is_some() {
                self.totals.segments = self.source.seen();
                return;
            }
            // Rings reuse the room only after the rows are in the spool, or counted as lost.
            if let Err(error) = self.source.release() {
                self.fail(error);
            }
            if self.parts.are_reached(self.spool.rows(), self.begun) {
                self.rotate(to_store);
            }
            let is_over = is_to_end && (self.source.open() == 0 || end.has_come());
            // What is in the rings by now is taken even after the deadline.
            if is_over && !more {
                match self.source.finish(&mut self.names) {
                    Ok(mut collected) => {
                        self.note(&collected);
                        self.write(&mut collected);
                    }
                    Err(error) => self.fail(error),
                }
                self.totals.still_run = self.source.open();
                self.totals.segments = self.source.seen();
                self.totals.damaged.extend(self.source.take_damaged());
                return;
            }
            pause = match rows {
                0 => (pause * 2).min(self.source.pause_max(PAUSE_MAX)),
                1..FEW_ROWS => (pause * 2).min(self.source.pause_max(PAUSE_FEW_MAX)),
                _ => PAUSE_MIN,
            };
            if !more {
                std::thread::sleep(pause);
            }
        }
    }

    fn fail(&mut self, error: TraceError) {
        self.totals.error.get_or_insert(error);
    }

    /// Appends to the spool, or counts what could not be: it is not kept anywhere else.
    fn write(&mut self, collected: &mut Collected) {
        let rows = collected.rows.len();
        self.filter.apply(&mut collected.rows, &self.names);
        self.totals.filtered += (rows - collected.rows.len()) as u64;
        if let Some(summary) = &mut self.summary {
            self.totals.rows += collected.rows.len() as u64;
            collected.rows.drain(..).for_each(|row| summary.add(&row, &self.names));
        }
        if collected.rows.is_empty() && collected.sources.is_empty() {
            return;
        }
        let failed = match &self.totals.error {
            Some(_) => true,
            None => {
                let facts = SpoolFacts::of_sources(collected.sources.clone());
                let written = self.spool.append(&collected.rows, &self.names, &facts);
                written.map_err(|error| self.fail(error)).is_err()
            }
        };
        if failed {
            if let RowSource::Segments(collector) = &mut self.source {
                collector.drop_from_here();
            }
            let lost = self.names.find(sheaf_log::LOST);
            let operations = collected.rows.iter().filter(|row| Some(row.op) != lost).count();
            self.totals.unwritten += operations as u64;
        }
    }

    /// Has the spool stored, and begins another, which stands for itself before that one is gone.
    fn rotate(&mut self, to_store: &Sender<u32>) {
        let number = self.spool.number();
        let facts = SpoolFacts::of_sources(self.source.states());
        let next = SpoolWriter::begin(&self.store, number + 1, &self.names, facts);
        match next {
            Ok(next) => {
                (self.spool, self.begun) = (next, Instant::now());
                send(to_store, number);
            }
            Err(error) => self.fail(error),
        }
    }

    /// Nothing more comes.
    fn end(&mut self, to_store: Sender<u32>) {
        send(&to_store, self.spool.number());
    }

    fn note(&mut self, collected: &Collected) {
        let totals = &mut self.totals;
        // Segments belong to their programs, and each may say what it likes.
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut totals.lost, collected.lost);
        add(&mut totals.unplaced, collected.unplaced);
        add(&mut totals.overwritten, collected.overwritten);
        add(&mut totals.waited.0, collected.waited.0);
        add(&mut totals.waited.1, collected.waited.1);
        add(&mut totals.names_lost, collected.names_lost);
        add(&mut totals.unnamed, collected.unnamed);
        totals.unseen.extend(collected.unseen.iter().cloned());
        totals.damaged.extend(collected.damaged.iter().cloned());
        let by_calls =
            [b"posix".as_slice(), b"stdio", b"kernel"].map(|layer| self.names.find(layer));
        let of = |words: &[&[u8]]| -> Vec<u32> {
            words.iter().filter_map(|word| self.names.find(word)).collect()
        };
        let both: [&[u8]; 2] = [b"copy_file_range", b"sendfile"];
        // What the kernel does asynchronously it does not count for the program.
        let (reads, writes) = (
            of(&[b"read", b"aio_read", both[0], both[1]]),
            of(&[b"write", b"aio_write", both[0], both[1]]),
        );
        let moved = |ops: &[u32]| -> u64 {
            let is_one =
                |row: &&TraceRow| ops.contains(&row.op) && by_calls.contains(&Some(row.layer));
            let bytes = collected.rows.iter().filter(is_one).map(|row| row.bytes.max(0) as u64);
            bytes.fold(0, u64::saturating_add)
        };
        add(&mut totals.bytes_read, moved(&reads));
        add(&mut totals.bytes_written, moved(&writes));
        let Some(uring) = self.names.find(b"io_uring") else { return };
        for row in collected.rows.iter().filter(|row| row.op == uring && row.errno == 0) {
            let command = sheaf_log::command_line(self.names.text(row.command));
            let command = String::from_utf8_lossy(&command);
            let text = format!("{command}: uses io_uring: what it does by that is not recorded");
            if totals.unseen.len() < UNSEEN_MAX && !totals.unseen.contains(&text) {
                totals.unseen.push(text);
            }
        }
    }
}

/// Nobody listens any more only when that thread has panicked, which shows when it is joined.
pub(crate) fn send<T>(to_store: &Sender<T>, task: T) {
    let _ = to_store.send(task);
}

/// Operations that are stored, what could not be read, and why not all is stored.
type SpoolsKept = (u64, Vec<(PathBuf, String)>, Option<TraceError>);

/// Stores spools until no more come. After a failure they stay where they are, for [`recover`].
fn keep(directory: &Path, spools: &Receiver<u32>) -> SpoolsKept {
    let (mut kept, mut damaged, mut failed) = (0, Vec::new(), None);
    for number in spools {
        if failed.is_some() {
            continue;
        }
        match convert_spool(directory, number, &mut TraceNames::default()) {
            Ok((more, content)) => {
                kept += more;
                damaged.extend(content.cut.map(|why| (spool::path_of(directory, number), why)));
            }
            Err(error) => failed = Some(error),
        }
    }
    (kept, damaged, failed)
}
