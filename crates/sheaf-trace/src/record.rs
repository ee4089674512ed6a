//! A trace taken on this host: what processes record into a directory goes into a store while they
//! run.
//!
//! Two threads: one takes what has come from the rings, which are small, and does nothing else; the
//! other writes it down, which takes its time (a part is compressed at once). What lies between is
//! bounded: when the second does not keep up, rings fill, and they count what they lose.
use crate::{Collected, Collector, TraceError, TraceNames, TraceRow, TraceStore};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Looks at the rings that found much are followed by the next at once; those that found nothing by
/// longer and longer pauses, up to this.
const PAUSE_MAX: Duration = Duration::from_millis(20);
/// A ring of the default size takes longer than this to fill at full speed.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// Batches that wait to be written: with what one look takes from a ring that is some 4 M rows.
const BATCHES_MAX: usize = 64;
/// Rows of one file at most; what is not ended when the disk is full, or the machine stops, is lost
/// with its file.
const FILE_ROWS_MAX: u64 = 1 << 20;
/// A file is ended after so long, if there is anything in it.
const FILE_TIME_MAX: Duration = Duration::from_secs(30);

/// What a recording came to.
#[derive(Debug, Default)]
pub struct RecordTotals {
    /// Operations in the store.
    pub rows: u64,
    /// Operations that rings had no room for; the store says when.
    pub lost: u64,
    /// Operations that were taken from rings and could not be written down.
    pub unwritten: u64,
    /// Files whose names had no room: their operations are there without.
    pub names_lost: u64,
    /// Bytes that system calls have read and written, as far as the kernel counts them too: those
    /// of the C library's streams are counted as they were asked for.
    pub bytes_read: u64,
    /// See [`RecordTotals::bytes_read`].
    pub bytes_written: u64,
    /// Segments that were read.
    pub segments: u64,
    /// Processes that go on, of which nothing more is recorded.
    pub still_run: usize,
    /// Segments that could not be read, and why.
    pub damaged: Vec<(PathBuf, String)>,
    /// Why not all was written down.
    pub error: Option<TraceError>,
}

/// A recording under way. Dropped, it goes on in the background until the process ends.
#[derive(Debug)]
pub struct Recording {
    until: Arc<OnceLock<Instant>>,
    taker: JoinHandle<RecordTotals>,
}

impl Recording {
    /// Begins to take what processes of this host record into `segments`, and to write it into
    /// `store`.
    ///
    /// # Errors
    /// When one of the directories cannot be read or made, or there is no thread.
    pub fn begin(segments: &Path, store: &Path, host: &str) -> Result<Self, TraceError> {
        let collector = Collector::new(segments, host)?;
        let store_path = store.to_owned();
        let store = TraceStore::open(store, FILE_ROWS_MAX)?;
        let until = Arc::new(OnceLock::new());
        let (to_writer, batches) = sync_channel(BATCHES_MAX);
        let spawn = std::thread::Builder::new().name("sheaf-trace-write".to_owned());
        let writer =
            spawn.spawn(move || write(store, &batches)).map_err(TraceError::io(&store_path))?;
        let is_to_end = Arc::clone(&until);
        let taker = std::thread::Builder::new()
            .name("sheaf-trace-take".to_owned())
            .spawn(move || {
                let mut totals = RecordTotals::default();
                take(collector, &is_to_end, to_writer, &mut totals);
                conclude(writer, &mut totals);
                totals
            })
            .map_err(TraceError::io(&store_path))?;
        Ok(Self { until, taker })
    }

    /// Takes what is left, and ends the store: once nobody is recorded any more, or after
    /// `patience`.
    ///
    /// # Panics
    /// When a thread of the recording has panicked.
    #[must_use]
    pub fn finish_within(self, patience: Duration) -> RecordTotals {
        self.until.get_or_init(|| Instant::now() + patience);
        self.taker.join().expect("the thread that takes has told its panic")
    }
}

/// What is to be written, and the names that are new in it.
struct RowBatch {
    rows: Vec<TraceRow>,
    names: Vec<Vec<u8>>,
}

fn take(
    mut collector: Collector,
    until: &OnceLock<Instant>,
    to_writer: SyncSender<RowBatch>,
    totals: &mut RecordTotals,
) {
    let (mut names, mut sent, mut pause) = (TraceNames::default(), 0, PAUSE_MIN);
    let mut waiting: Option<RowBatch> = None;
    loop {
        let (is_to_end, now) = (until.get().copied(), Instant::now());
        // The rings are left as they are while the writer is behind.
        if let Some(batch) = waiting.take() {
            match to_writer.try_send(batch) {
                Ok(()) => {}
                Err(TrySendError::Full(batch)) => {
                    waiting = Some(batch);
                    std::thread::sleep(PAUSE_MIN);
                    continue;
                }
                Err(TrySendError::Disconnected(batch)) => {
                    totals.unwritten += batch.operations(&names);
                }
            }
        }
        let collected = match collector.collect(&mut names) {
            Ok(collected) => collected,
            Err(error) => {
                totals.error = Some(error);
                return;
            }
        };
        let more = collected.more;
        let rows = note(collected, &names, totals);
        pause = if rows.is_empty() { (pause * 2).min(PAUSE_MAX) } else { PAUSE_MIN };
        if !rows.is_empty() {
            let fresh = (sent..names.len()).map(|number| names.text(number as u32).to_owned());
            waiting = Some(RowBatch { rows, names: fresh.collect() });
            sent = names.len();
        }
        let is_over = is_to_end.is_some_and(|until| collector.open() == 0 || now >= until);
        if is_over && !more && waiting.is_none() {
            totals.still_run = collector.open();
            totals.segments = collector.seen();
            return;
        }
        if !more && waiting.is_none() {
            std::thread::sleep(pause);
        }
    }
}

fn note(collected: Collected, names: &TraceNames, totals: &mut RecordTotals) -> Vec<TraceRow> {
    for row in &collected.rows {
        if !matches!(names.text(row.layer), b"posix" | b"stdio") {
            continue;
        }
        let bytes = row.bytes.max(0) as u64;
        match names.text(row.op) {
            b"read" => totals.bytes_read += bytes,
            b"write" => totals.bytes_written += bytes,
            b"copy_file_range" | b"sendfile" => {
                totals.bytes_read += bytes;
                totals.bytes_written += bytes;
            }
            _ => {}
        }
    }
    totals.lost += collected.lost;
    totals.names_lost += collected.names_lost;
    totals.damaged.extend(collected.damaged);
    collected.rows
}

impl RowBatch {
    /// How many operations are in it.
    fn operations(&self, names: &TraceNames) -> u64 {
        self.rows.iter().filter(|row| names.text(row.op) != b"lost").count() as u64
    }
}

/// What was written, what was not, and why.
type Written = (u64, u64, Option<TraceError>);

fn conclude(writer: JoinHandle<Written>, totals: &mut RecordTotals) {
    let (rows, unwritten, error) =
        writer.join().expect("the thread that writes has told its panic");
    totals.rows = rows;
    totals.unwritten += unwritten;
    totals.error = totals.error.take().or(error);
}

/// Writes until nobody sends any more. After a failure the rest is counted alone.
fn write(mut store: TraceStore, batches: &Receiver<RowBatch>) -> Written {
    let (mut names, mut taken, mut unwritten) = (TraceNames::default(), 0, 0);
    let mut begun = Instant::now();
    let mut error = None;
    while let Ok(batch) = batches.recv() {
        for name in &batch.names {
            names.number(name);
        }
        let operations = batch.operations(&names);
        if error.is_some() {
            unwritten += operations;
            continue;
        }
        taken += operations;
        let is_late = begun.elapsed() >= FILE_TIME_MAX;
        let mut written = store.push(&batch.rows, &names);
        if is_late {
            begun = Instant::now();
            written = written.and_then(|()| store.finish(&names));
        }
        error = written.err();
    }
    if error.is_none() {
        error = store.finish(&names).err();
    }
    let kept = store.kept();
    (kept.min(taken), unwritten + taken.saturating_sub(kept), error)
}
