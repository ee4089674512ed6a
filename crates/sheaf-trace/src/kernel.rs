//! What programs do, told by the kernel's own tracepoints: also of those that no preload sees into.
//!
//! [`KernelTrace::open`] has the kernel watch what this thread starts (`rings`); [`Recording`]
//! takes what has come as it does from preloaded programs. `watch` makes rows of the beginnings and
//! ends of calls, `calls` says what their arguments mean, `files` which file a descriptor is.
//!
//! [`Recording`]: crate::Recording
mod calls;
mod files;
mod rings;
mod watch;

pub use rings::KernelRefusal;

use files::DescriptorOf;
use rings::{KernelRings, KernelSums};
use sheaf_log::collect::Collected;
use sheaf_log::{TraceError, TraceNames, TraceRow};
use sheaf_recorder::{ClockKind, IoLayer, ProcessStat, TraceClock};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use watch::{KernelNames, KernelWatch, WatchedRows};

/// The longest command that is kept, as of preloaded programs.
const COMMAND_BYTES_MAX: usize = 1024;

/// What the kernel tells of the programs that a thread starts.
pub struct KernelTrace {
    rings: KernelRings,
    clock: TraceClock,
    /// The clock, and the time of day in ns at the same moment.
    begun: (u64, u64),
}

impl std::fmt::Debug for KernelTrace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KernelTrace").field("begun", &self.begun).finish_non_exhaustive()
    }
}

impl KernelTrace {
    /// Watches what this thread starts from here on, and all that is started by that, each from
    /// when it becomes another program. `bytes` is the room for each processor until what is there
    /// is taken; it is rounded up to a power of 2, and down to what this user may lock in memory.
    ///
    /// # Errors
    /// When the kernel does not allow it, or cannot.
    pub fn open(bytes: usize) -> Result<Self, KernelRefusal> {
        let clock = TraceClock::of(ClockKind::Monotonic);
        Ok(Self { begun: clock.pair(), rings: KernelRings::open(bytes)?, clock })
    }
}

/// Takes what the kernel tells.
pub(crate) struct KernelCollector {
    trace: KernelTrace,
    watch: KernelWatch,
    /// What came of the kernel's rings, and waits for what other rings have of its time.
    early: Vec<rings::KernelEvent>,
    sums: KernelSums,
    /// When it was last looked, on the clock.
    looked: u64,
    /// Losses that are told.
    lost: u64,
}

impl KernelCollector {
    pub fn new(trace: KernelTrace, host: &str, names: &mut TraceNames) -> Self {
        let looked = trace.begun.0;
        let watch = KernelWatch::new(host, names);
        Self { trace, watch, early: Vec::new(), sums: KernelSums::default(), looked, lost: 0 }
    }

    /// What has come since the last time.
    pub fn collect(&mut self, names: &mut TraceNames) -> Result<Collected, TraceError> {
        self.take(false, names)
    }

    /// What is left, when nothing more is wanted. Names that are not known yet are not asked for:
    /// what becomes of them would not be seen any more.
    pub fn finish(&mut self, names: &mut TraceNames) -> Result<Collected, TraceError> {
        let mut collected = self.take(true, names)?;
        while collected.more {
            let next = self.take(true, names)?;
            collected.rows.extend(next.rows);
            collected.lost += next.lost;
            collected.unnamed += next.unnamed;
            collected.more = next.more;
        }
        for ((program, how), pid) in std::mem::take(&mut self.watch.unseen) {
            let command = self.watch.command(program).map_or(&b""[..], |name| names.text(name));
            let program = command.split(|byte| *byte == 0).next().unwrap_or_default();
            collected.unseen.push(format!(
                "{} (process {pid}) uses {how}: what the kernel does for it that way is not recorded",
                String::from_utf8_lossy(program)
            ));
        }
        Ok(collected)
    }

    fn take(&mut self, is_last: bool, names: &mut TraceNames) -> Result<Collected, TraceError> {
        let error = |source| TraceError::io(&PathBuf::from("perf_event_open"))(source);
        let now = self.trace.clock.now();
        let drained = self.trace.rings.drain(now);
        let sums = self.trace.rings.sums().map_err(error)?;
        let more = drained.until < now;
        let until = if is_last && !more { u64::MAX } else { drained.until };
        let is_lossy = sums.lost > self.sums.lost
            || drained.events.iter().any(|event| event.what == rings::KernelWhat::Lost);
        self.early.extend(drained.events);
        self.early.sort_by_key(|event| event.time);
        let ready = self.early.partition_point(|event| event.time <= until);
        // Where among these events something is missing is unknown, so that neither what was known
        // before them nor what they say of descriptors is certain.
        if is_lossy {
            self.watch.forget();
        }
        for event in self.early.drain(..ready) {
            self.watch.event(&event, names);
        }
        if is_lossy {
            self.watch.forget();
        }
        self.sums = sums;
        let mut watched = WatchedRows::default();
        if !is_last {
            self.watch.ask(self.trace.clock.now(), &mut ProcNames, names);
        }
        self.watch.take(until, &mut watched);
        let mut rows = watched.rows;
        rows.iter_mut().for_each(|row| row.time_ns = self.day(row.time_ns as u64));
        let lost = self.lost_by_now(is_last && !more);
        rows.extend(self.lost_row(lost, now, names));
        rows.sort_by_key(|row| row.time_ns);
        self.looked = now;
        Ok(Collected { rows, lost, unnamed: watched.unnamed, more, ..Collected::default() })
    }

    /// The time of day of one of the clock.
    fn day(&self, time: u64) -> i64 {
        let (clock, day) = self.trace.begun;
        (day as i64).saturating_add(time.wrapping_sub(clock) as i64)
    }

    /// Operations that were done and are in no row, since this was last asked: those whose ends
    /// were lost, and those whose beginnings were. In the end it is what is missing to what the
    /// kernel has counted, whatever became of it.
    fn lost_by_now(&mut self, is_last: bool) -> u64 {
        let mut lost = self.sums.ends_lost + self.watch.unbegun;
        if is_last {
            lost = lost.max(self.sums.done.saturating_sub(self.watch.ended) + self.watch.unbegun);
        }
        let more = lost.saturating_sub(self.lost);
        self.lost += more;
        more
    }

    fn lost_row(&self, lost: u64, now: u64, names: &mut TraceNames) -> Option<TraceRow> {
        (lost > 0).then(|| TraceRow {
            time_ns: self.day(self.looked),
            duration_ns: now.saturating_sub(self.looked) as i64,
            op: names.number(sheaf_log::LOST),
            layer: names.number(IoLayer::Kernel.word().as_bytes()),
            host: self.watch.host(),
            command: names.number(b""),
            path: names.number(b""),
            bytes: i64::try_from(lost).unwrap_or(i64::MAX),
            ..TraceRow::default()
        })
    }

    /// How many processes go on.
    pub fn open(&self) -> usize {
        self.watch.processes().filter(|pid| runs(*pid)).count()
    }

    /// How many programs have done something.
    pub fn seen(&self) -> u64 {
        self.watch.seen
    }
}

/// Whether a process is there, and has not ended.
fn runs(pid: i32) -> bool {
    let stat = std::fs::read(format!("/proc/{pid}/stat"));
    let state = stat.ok().and_then(|stat| ProcessStat::parse(&stat)?.state());
    state.is_some_and(|state| !matches!(state, b'Z' | b'X'))
}

/// What `/proc` says.
struct ProcNames;

impl KernelNames for ProcNames {
    fn file(&mut self, (pid, fd): DescriptorOf) -> Option<Vec<u8>> {
        const DELETED: &[u8] = b" (deleted)";
        let path = format!("/proc/{pid}/fd/{fd}");
        let mut name = std::fs::read_link(&path).ok()?.into_os_string().into_vec();
        // A file that nobody has a name for any more.
        if name.ends_with(DELETED) && std::fs::metadata(&path).is_ok_and(|about| about.nlink() == 0)
        {
            name.truncate(name.len() - DELETED.len());
        }
        Some(name)
    }

    fn command(&mut self, pid: i32) -> Option<Vec<u8>> {
        let mut command = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        command.truncate(COMMAND_BYTES_MAX);
        Some(command)
    }
}
