//! A flight recorder: processes overwrite what they have recorded, and what led to something out of
//! the ordinary is kept, as a trace of its own.
//!
//! Nothing is taken from the rings of processes that run but names, which are not overwritten: so
//! it costs next to nothing while nothing happens. On a trigger rings are held as they are until
//! they have been read; a process whose operation was slow holds its own at once, without waiting
//! for anybody to look. What finds no room meanwhile is lost and counted.
use crate::info::{INFO_FILE, TraceInfo, unplaced_words};
use crate::record::{self, StoreLock};
use crate::report::units::{self, shown};
use crate::store::TraceStore;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use sheaf_log::collect::WatchLimits;
use sheaf_log::files::{check_own, remove};
use sheaf_log::served::now_ns;
use sheaf_log::spool::{self, SpoolFacts, SpoolWriter};
use sheaf_log::{Collected, Collector, TraceError, TraceNames, TraceRow};
use sheaf_recorder::{ClockKind, TraceClock, sys};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Has the preload overwrite its rings: a number of ticks, which an operation takes that is slow; 0
/// for none.
pub const FLIGHT_VARIABLE: &str = "SHEAF_TRACE_FLIGHT";
/// How often it is looked whether rings are held, and who has ended.
const LOOK: Duration = Duration::from_millis(10);
/// What is kept beside the rings of processes that run.
const LIMITS: WatchLimits =
    WatchLimits { names_bytes: 256 << 20, buried_records: 1 << 18, buried: 1 << 10 };
/// The clock's rate is measured for so long.
const RATE_TIME: Duration = Duration::from_millis(40);
/// How long somebody who has asked waits for a snapshot to be whole.
const SNAPSHOT_TIME_MAX: Duration = Duration::from_secs(60);

/// What is kept, and where.
#[derive(Debug, Clone)]
pub struct FlightOptions {
    /// Where processes have their segments.
    pub segments: PathBuf,
    /// The directory that snapshots go into, which is there: `1`, `2` and so on.
    pub store: PathBuf,
    /// An operation that takes so long is a reason for one.
    pub slow: Option<Duration>,
    /// So many are made for slow operations.
    pub slow_snapshots_max: u32,
    /// What is known of the command.
    pub info: TraceInfo,
}

impl FlightOptions {
    /// What [`FLIGHT_VARIABLE`] is to be.
    #[must_use]
    pub fn variable(&self) -> String {
        self.slow.map_or(0, ticks_in).to_string()
    }
}

/// A snapshot that was made.
#[derive(Debug, Clone)]
pub struct FlightSnapshot {
    /// Its directory, a trace.
    pub path: PathBuf,
    /// Its `trace.json`.
    pub info: TraceInfo,
}

/// What a recorder came to.
#[derive(Debug, Default)]
pub struct FlightTotals {
    /// Snapshots that were made.
    pub snapshots: u32,
    /// Slow operations for which none was made any more.
    pub passed_over: u64,
    /// Processes that go on.
    pub still_run: usize,
    /// Programs that were seen.
    pub segments: u64,
    /// Operations that were taken and are in no snapshot, as none could be made of them.
    pub unwritten: u64,
    /// Why the last look failed, or a snapshot could not be made.
    pub error: Option<TraceError>,
}

/// What is kept for.
enum FlightTrigger {
    /// An operation was slow.
    Slow,
    /// Somebody has asked.
    Asked,
    /// Nothing more comes; with a reason for a last one.
    End(Option<String>),
}

/// A flight recorder at work.
#[derive(Debug)]
pub struct FlightRecording {
    triggers: Sender<FlightTrigger>,
    recorder: JoinHandle<FlightTotals>,
}

/// Asks for a snapshot.
#[derive(Debug, Clone)]
pub struct FlightAsk(Sender<FlightTrigger>);

impl FlightAsk {
    /// Has one made, unless the recording has ended.
    pub fn ask(&self) {
        // Who has ended makes none, and says so itself.
        let _ = self.0.send(FlightTrigger::Asked);
    }
}

impl FlightRecording {
    /// Begins. Each snapshot is `told`, as soon as it is whole or has failed.
    ///
    /// # Errors
    /// When a directory cannot be read or written, somebody records there, or there is no thread.
    pub fn begin(
        options: FlightOptions,
        told: impl Fn(Result<&FlightSnapshot, &TraceError>) + Send + 'static,
    ) -> Result<Self, TraceError> {
        let lock = record::lock(&options.store)?;
        lock.sign()?;
        options.info.write(&options.store)?;
        let collector = Collector::new(&options.segments, &options.info.host)?;
        let (triggers, asked) = channel();
        let directory = options.store.clone();
        let mut flight = Flight {
            options,
            collector,
            names: TraceNames::default(),
            since: Since::default(),
            totals: FlightTotals::default(),
            slow_snapshots: 0,
            told: Box::new(told),
        };
        let spawned = std::thread::Builder::new().name("sheaf-trace-flight".to_owned());
        let recorder = spawned
            .spawn(move || {
                flight.run(&asked);
                flight.end(lock)
            })
            .map_err(TraceError::io(&directory))?;
        Ok(Self { triggers, recorder })
    }

    /// For who may want a snapshot.
    #[must_use]
    pub fn asker(&self) -> FlightAsk {
        FlightAsk(self.triggers.clone())
    }

    /// Ends, with a last snapshot if there is a reason.
    ///
    /// # Panics
    /// When its thread has panicked.
    #[must_use]
    pub fn finish(self, reason: Option<String>) -> FlightTotals {
        // One whose thread is gone has panicked, which is told by the next line.
        let _ = self.triggers.send(FlightTrigger::End(reason));
        self.recorder.join().expect("the recorder's thread has told its panic")
    }
}

/// What no snapshot has told yet.
#[derive(Debug, Default)]
struct Since {
    overwritten: u64,
    lost: u64,
    unplaced: u64,
    unwritten: u64,
    names_lost: u64,
    damaged: Vec<(PathBuf, String)>,
}

impl Since {
    fn note(&mut self, collected: &mut Collected) {
        self.overwritten += collected.overwritten;
        self.lost += collected.lost;
        self.unplaced += collected.unplaced;
        self.names_lost += collected.names_lost;
        self.damaged.append(&mut collected.damaged);
    }
}

type TellSnapshot = Box<dyn Fn(Result<&FlightSnapshot, &TraceError>) + Send>;

struct Flight {
    options: FlightOptions,
    collector: Collector,
    names: TraceNames,
    since: Since,
    totals: FlightTotals,
    slow_snapshots: u32,
    told: TellSnapshot,
}

impl Flight {
    fn run(&mut self, asked: &Receiver<FlightTrigger>) {
        loop {
            let trigger = match asked.recv_timeout(LOOK) {
                Ok(trigger) => Some(trigger),
                Err(RecvTimeoutError::Timeout) => None,
                // Dropped without `finish`: it ends without a last snapshot.
                Err(RecvTimeoutError::Disconnected) => Some(FlightTrigger::End(None)),
            };
            let is_slow = self.look().unwrap_or_else(|error| {
                self.fail(error);
                false
            });
            // A requested snapshot contains the slow operation, too.
            if is_slow && !matches!(trigger, Some(FlightTrigger::Asked)) {
                self.pull(FlightTrigger::Slow);
            }
            let is_end = matches!(trigger, Some(FlightTrigger::End(_)));
            if let Some(trigger) = trigger {
                self.pull(trigger);
            }
            if is_end {
                return;
            }
        }
    }

    /// Looks who has come and who has ended. Whether an operation was slow.
    fn look(&mut self) -> Result<bool, TraceError> {
        let mut collected = Collected::default();
        let watched = self.collector.watch(&mut self.names, &LIMITS, &mut collected);
        self.since.note(&mut collected);
        watched
    }

    fn pull(&mut self, trigger: FlightTrigger) {
        let reason = match trigger {
            FlightTrigger::Slow if self.slow_snapshots == self.options.slow_snapshots_max => {
                self.totals.passed_over += 1;
                // The slow thread holds its rings, and no snapshot is to come.
                return self.collector.let_go();
            }
            FlightTrigger::Slow => {
                self.slow_snapshots += 1;
                None
            }
            FlightTrigger::Asked => Some("it was asked for".to_owned()),
            FlightTrigger::End(None) => return,
            FlightTrigger::End(Some(reason)) => Some(reason),
        };
        let made = self.snapshot(reason);
        (self.told)(made.as_ref());
        if let Err(error) = made {
            self.tell_trouble(&error);
            self.fail(error);
        }
    }

    /// For whoever has asked: the disk of the trace may be full.
    fn tell_trouble(&self, error: &TraceError) {
        let path = self.options.segments.join(record::TROUBLE_FILE);
        let file = File::options().create(true).append(true).open(&path);
        let line = format!("{error}\n");
        if let Err(error) = file.and_then(|mut file| file.write_all(line.as_bytes())) {
            tracing::warn!(%error, "{}", path.display());
        }
    }

    fn fail(&mut self, error: TraceError) {
        self.totals.error = Some(error);
    }

    /// Makes a trace of all that is there.
    fn snapshot(&mut self, reason: Option<String>) -> Result<FlightSnapshot, TraceError> {
        let number = self.totals.snapshots + 1;
        let path = self.options.store.join(number.to_string());
        let part = self.options.store.join(format!("{number}.part"));
        self.collector.hold();
        let mut taken = 0;
        let filled = self.fill(&part, &mut taken);
        self.collector.let_go();
        // Rings are released first, because held rings lose operations. A snapshot receives its
        // name when it is complete.
        let kept = filled.and_then(|(operations, slowest)| {
            let reason = reason.or(slowest).unwrap_or_else(|| "an operation was slow".to_owned());
            let info = self.tell(operations, reason);
            info.write(&part)?;
            std::fs::rename(&part, &path).map_err(TraceError::io(&path))?;
            Ok(FlightSnapshot { path: path.clone(), info })
        });
        if kept.is_err() {
            self.since.unwritten += taken;
        }
        if kept.is_ok() {
            self.totals.snapshots = number;
            if let Err(error) = self.write_state(number) {
                self.fail(error);
            }
        } else if let Err(error) = std::fs::remove_dir_all(&part)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            // The first error is told; this one says why a part of it stays.
            tracing::warn!(%error, "{} stays", part.display());
        }
        kept
    }

    /// Writes down how far everything was taken, and what it is called, for whoever goes on when
    /// this was killed: what is in a snapshot is in no other.
    fn write_state(&self, number: u32) -> Result<(), TraceError> {
        let facts = SpoolFacts::of_sources(self.collector.states());
        SpoolWriter::begin(&self.options.store, number, &self.names, facts)?;
        self.remove_state(number - 1)
    }

    fn remove_state(&self, number: u32) -> Result<(), TraceError> {
        remove(&spool::path_of(&self.options.store, number))
    }

    /// Stores what is there; gives how many operations, and the last slow one in words. So many are
    /// `taken`, also where it fails.
    fn fill(&mut self, part: &Path, taken: &mut u64) -> Result<(u64, Option<String>), TraceError> {
        let mut store = TraceStore::open(part, u64::MAX)?;
        let mut slow = None;
        loop {
            let mut collected = self.collector.collect(&mut self.names)?;
            self.note_slow(&collected.rows, &mut slow);
            let lost = self.names.find(sheaf_log::LOST);
            *taken += collected.rows.iter().filter(|row| Some(row.op) != lost).count() as u64;
            store.push(&collected.rows, &self.names)?;
            self.since.note(&mut collected);
            self.collector.release()?;
            if !collected.more {
                break;
            }
        }
        store.finish(&self.names)?;
        Ok((store.kept(), slow.map(|row| self.in_words(&row))))
    }

    /// Of operations that were slow, the one that ended last.
    fn note_slow(&self, rows: &[TraceRow], slow: &mut Option<TraceRow>) {
        let Some(least) = self.options.slow else { return };
        let least = i64::try_from(least.as_nanos()).unwrap_or(i64::MAX);
        let lost = self.names.find(sheaf_log::LOST);
        let end = |row: &TraceRow| row.time_ns + row.duration_ns;
        let is_slow = |row: &&TraceRow| row.duration_ns >= least && Some(row.op) != lost;
        let last = rows.iter().filter(is_slow).copied().chain(*slow).max_by_key(end);
        *slow = last;
    }

    fn in_words(&self, row: &TraceRow) -> String {
        let text = |number: u32| shown(&String::from_utf8_lossy(self.names.text(number)));
        let (op, path) = (text(row.op), text(row.path));
        let of = if path.is_empty() { String::new() } else { format!(" of {path}") };
        let time = units::time(row.duration_ns.max(0) as u128);
        format!("{op}{of} took {time}, process {}", row.pid)
    }

    /// What is said of a snapshot.
    fn tell(&mut self, operations: u64, reason: String) -> TraceInfo {
        let Since { overwritten, lost, unplaced, unwritten, names_lost, damaged } =
            std::mem::take(&mut self.since);
        let mut info = TraceInfo {
            operations,
            overwritten,
            lost,
            unplaced,
            unwritten,
            names_lost,
            buffers: None,
            ended_ns: now_ns(),
            segments: self.collector.seen(),
            ..self.options.info.clone()
        };
        let earlier = units::count(overwritten);
        info.missing.push(format!(
            "snapshot of a flight recorder: {reason}; {earlier} operations before were overwritten"
        ));
        if unplaced > 0 {
            info.missing.push(unplaced_words(unplaced));
        }
        if lost > unplaced {
            let lost = units::count(lost - unplaced);
            info.missing.push(format!("{lost} operations found no room while this was made"));
        }
        if unwritten > 0 {
            let unwritten = units::count(unwritten);
            info.missing.push(format!(
                "{unwritten} operations before could not be stored, in a snapshot that failed"
            ));
        }
        if names_lost > 0 {
            info.missing.push(format!("{names_lost} files are there without their names"));
        }
        let damaged = damaged.iter().map(|(path, why)| format!("{}: {why}", path.display()));
        info.missing.extend(damaged);
        info.trigger = Some(reason);
        info
    }

    /// Whoever still runs overwrites its rings for itself from here on.
    fn end(mut self, lock: StoreLock) -> FlightTotals {
        self.totals.still_run = self.collector.running();
        self.totals.segments = self.collector.seen();
        self.totals.unwritten = self.since.unwritten;
        let mut ended = record::RecordTotals {
            error: self.remove_state(self.totals.snapshots).err(),
            ..Default::default()
        };
        lock.end(&mut ended);
        self.totals.error = self.totals.error.or(ended.error);
        self.totals
    }
}

/// Asks the flight recorder of a directory for a snapshot, and waits until that is whole.
///
/// # Errors
/// When nobody records there, it cannot be asked, or none was made in a minute.
pub fn ask_snapshot(store: &Path) -> Result<PathBuf, TraceError> {
    // The lock file names the process that gets the signal, so no other user may have written it.
    check_own(store)?;
    let nobody = || TraceError::damaged(store, "no flight recorder runs there");
    let signed = StoreLock::signed(store)?.ok_or_else(nobody)?;
    let pid = signed.trim().parse().ok().and_then(Pid::from_raw).ok_or_else(nobody)?;
    let process = pidfd_open(pid, PidfdFlags::empty()).map_err(|_| nobody())?;
    // That is the one which holds it, for as long as it is held.
    StoreLock::signed(store)?.filter(|again| *again == signed).ok_or_else(nobody)?;
    // Noted before the signal: that is how the new snapshot or failure is known among older ones.
    let next = last_snapshot(store)? + 1;
    let path = store.join(next.to_string());
    let told = TraceInfo::read(store)?.unwrap_or_default().buffers;
    let troubles = told.map(|buffers| buffers.join(record::TROUBLE_FILE));
    let before = failures(troubles.as_deref())?.len();
    let sent = pidfd_send_signal(&process, Signal::USR1);
    sent.map_err(|error| TraceError::io(store)(error.into()))?;
    let end = Instant::now() + SNAPSHOT_TIME_MAX;
    while Instant::now() < end {
        if path.try_exists().map_err(TraceError::io(&path))? {
            return Ok(path);
        }
        if let Some(trouble) = failures(troubles.as_deref())?.into_iter().nth(before) {
            return Err(TraceError::damaged(
                store,
                format!("no snapshot could be made: {trouble}"),
            ));
        }
        // Looked for once more: it may have made the snapshot just before it ended.
        if StoreLock::signed(store)?.is_none() && !path.exists() {
            return Err(TraceError::damaged(store, "its recorder has ended"));
        }
        std::thread::sleep(LOOK);
    }
    let seconds = SNAPSHOT_TIME_MAX.as_secs();
    Err(TraceError::damaged(store, format!("no snapshot was made in {seconds} s")))
}

/// Why snapshots have failed so far, each.
fn failures(path: Option<&Path>) -> Result<Vec<String>, TraceError> {
    let Some(path) = path else { return Ok(Vec::new()) };
    match std::fs::read_to_string(path) {
        // What is being written has no end yet.
        Ok(text) => Ok(text
            .split_inclusive('\n')
            .filter_map(|line| line.strip_suffix('\n'))
            .map(str::to_owned)
            .collect()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(TraceError::io(path)(error)),
    }
}

/// The number of the last snapshot of a directory; 0: there is none.
fn last_snapshot(store: &Path) -> Result<u32, TraceError> {
    Ok(numbered(store)?.last().copied().unwrap_or(0))
}

/// The numbers of the snapshots that a flight recorder has made in a directory.
///
/// # Errors
/// When it cannot be read.
pub fn snapshots_of(store: &Path) -> Result<Vec<u32>, TraceError> {
    let is_trace = |number: &u32| store.join(number.to_string()).join(INFO_FILE).is_file();
    Ok(numbered(store)?.into_iter().filter(is_trace).collect())
}

/// What is in a directory under a number above 0.
fn numbered(store: &Path) -> Result<BTreeSet<u32>, TraceError> {
    let mut numbers = BTreeSet::new();
    for entry in std::fs::read_dir(store).map_err(TraceError::io(store))? {
        let name = entry.map_err(TraceError::io(store))?.file_name();
        let number = name.to_str().and_then(|name| name.parse::<u32>().ok());
        numbers.extend(number.filter(|number| *number > 0));
    }
    Ok(numbers)
}

/// How many ticks of the clock of segments so long is.
fn ticks_in(time: Duration) -> u64 {
    let clock = TraceClock::best();
    let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
    if clock.kind() == ClockKind::Monotonic {
        return ns;
    }
    let raw = || sys::clock_ns(sys::CLOCK_MONOTONIC_RAW);
    let (ticks, since) = (clock.now(), raw());
    std::thread::sleep(RATE_TIME);
    let rate = clock.now().wrapping_sub(ticks) as f64 / (raw() - since).max(1) as f64;
    ((ns as f64 * rate) as u64).max(1)
}
