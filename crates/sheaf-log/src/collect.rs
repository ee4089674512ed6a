//! From the segments of processes to rows with the time of day.
mod limits;
mod source;

pub use limits::{CollectLimits, OpenShare};

use crate::error::TraceError;
use crate::files::{open_own, read_small, remove};
use crate::row::{TraceNames, TraceRow};
use serde::{Deserialize, Serialize};
use sheaf_recorder::{ClockKind, Damage, Reader, TraceClock, sys};
use source::{LookRoom, TraceSource};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// What is taken from a ring at once: others have their turn before it goes on.
const RECORDS_MAX: usize = 16 << 10;
/// The clock's rate is measured over this at least: an error of 100 ns at either end is then five
/// in a million.
const RATE_TIME_MIN: Duration = Duration::from_millis(40);

/// Whether a process runs that has nothing to tell, and what there is in a directory that has not
/// changed, is looked at so often where nothing hangs on it.
const LOOK_TIME: Duration = Duration::from_secs(1);
/// The time of a directory's last change counts clock ticks: what follows within one shows in no
/// other time.
const CHANGE_TICK_MAX: Duration = Duration::from_millis(50);

/// Making a segment takes no longer than this, also where others have the processor.
const MAKING_MAX: Duration = Duration::from_secs(2);

/// A row of lost operations has this (`ENOBUFS`) where there was no ring for them, and 0 where a ring
/// had no room.
pub const UNPLACED_ERRNO: i32 = 105;

/// What has come, and what has not.
#[derive(Debug, Clone, Default)]
pub struct Collected {
    /// In the order of their times.
    pub rows: Vec<TraceRow>,
    /// Operations that were not kept since the last time, for want of room or of a ring.
    pub lost: u64,
    /// Of those, operations for which there was no ring.
    pub unplaced: u64,
    /// How often threads have waited for room since the last time, and how long together in ns.
    pub waited: (u64, u64),
    /// Operations that later ones took the place of since the last time, in a flight recorder.
    pub overwritten: u64,
    /// TraceNames for which there was no room since the last time: their files have none.
    pub names_lost: u64,
    /// Operations on files whose names are not known, of what the kernel tells.
    pub unnamed: u64,
    /// What is done where nothing is told of it, in words.
    pub unseen: Vec<String>,
    /// Files that are no segments, or damaged ones, each told once.
    pub damaged: Vec<(PathBuf, String)>,
    /// More is there.
    pub more: bool,
    /// Where each segment is by now that something has come from, with the names that are new.
    pub sources: Vec<SourceState>,
}

/// How far a segment was taken, for the collector that continues there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceState {
    /// Its file in the directory.
    file: String,
    /// Records, bytes of names, and losses told, by ring.
    places: Vec<(u64, u64, u64)>,
    /// Numbers of names in its records, and in rows.
    names: Vec<(u64, u32)>,
    lost: u64,
    names_lost: u64,
    unplaced: u64,
}

impl SourceState {
    /// Takes in a later state of the same segment.
    pub fn follow(&mut self, later: Self) {
        let mut names = std::mem::take(&mut self.names);
        names.extend_from_slice(&later.names);
        *self = Self { names, ..later };
    }

    /// The name of its file in the directory.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Replaces the number of each name by `number` of it. A name without a new number is removed.
    pub fn renumber(&mut self, number: impl Fn(u32) -> Option<u32>) {
        self.names.retain_mut(|(_, name)| {
            number(*name).is_some_and(|other| {
                *name = other;
                true
            })
        });
    }
}

/// Takes what processes record into a directory.
#[derive(Debug)]
pub struct Collector {
    directory: PathBuf,
    host: Vec<u8>,
    clock: TraceClock,
    /// Of the clock, and of the kernel's at its own rate, in ns.
    begun: (u64, u64),
    segments: BTreeMap<PathBuf, TraceSource>,
    /// Segments that were read so far.
    seen: u64,
    /// Those that are read to their end, once what was taken is released.
    over: Vec<PathBuf>,
    /// Where another collector was that has gone.
    states: HashMap<String, SourceState>,
    /// Since when they are there, and why they cannot be read, until that is told.
    damaged: BTreeMap<PathBuf, (Instant, Option<String>)>,
    /// When rings were last seen not to be held, on the clock.
    unheld: u64,
    /// Of a flight recorder: segments of processes that have ended, in that order, and how many
    /// records they have.
    buried: VecDeque<(PathBuf, u64)>,
    /// What the directory was when it was listed last.
    listed: Option<DirectoryLook>,
    /// What is taken can be stored nowhere.
    is_dropping: bool,
    limits: CollectLimits,
    /// The segment that had a turn last.
    last: PathBuf,
    /// More segments are there than may be read, or more rings: that is told.
    told_of_segments: bool,
    told_of_rings: bool,
}

/// A directory as it was looked at.
#[derive(Debug, Clone, Copy)]
struct DirectoryLook {
    at: Instant,
    changed: SystemTime,
    /// What changes it from here on gives it another time.
    is_settled: bool,
    owner: u32,
}

impl DirectoryLook {
    fn of(directory: &Path) -> std::io::Result<Self> {
        let (at, now) = (Instant::now(), SystemTime::now());
        let about = std::fs::metadata(directory)?;
        let (changed, owner) = (about.modified()?, about.uid());
        let is_settled = now.duration_since(changed).is_ok_and(|age| age > CHANGE_TICK_MAX);
        Ok(Self { at, changed, is_settled, owner })
    }

    /// Whether what was listed then is all that is there now.
    fn holds(&self, now: &Self) -> bool {
        self.is_settled && self.changed == now.changed && now.at.duration_since(self.at) < LOOK_TIME
    }
}

/// What a flight recorder keeps beside the rings of processes that run.
#[derive(Debug, Clone, Copy)]
pub struct WatchLimits {
    /// Bytes of names, of all processes together.
    pub names_bytes: usize,
    /// Records of processes that have ended, of all these processes together.
    pub buried_records: u64,
    /// Processes that have ended and whose records are kept.
    pub buried: usize,
}

/// In a directory for segments: what was dropped of those that are gone, a line each.
pub const DROPPED_FILE: &str = "dropped";
/// A line for each of more processes than a machine has.
const DROPPED_BYTES_MAX: u64 = 1 << 30;

/// Operations of a segment that were taken and not stored, and those that it had lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DroppedSums {
    /// Operations that were taken and not stored.
    pub unwritten: u64,
    /// Operations that the segment had lost.
    pub lost: u64,
}

impl DroppedSums {
    /// Writes it down, before the segment is taken away.
    fn note(self, directory: &Path, segment: &Path) -> Result<(), TraceError> {
        let path = directory.join(DROPPED_FILE);
        let line = format!("{} {} {}\n", file_of(segment), self.unwritten, self.lost);
        let mut file = open_own(&path, File::options().create(true).append(true))?;
        file.write_all(line.as_bytes()).map_err(TraceError::io(&path))
    }

    /// Reads [`DROPPED_FILE`] of a directory and removes the segments it names.
    ///
    /// # Errors
    /// When the file cannot be read or is damaged, or a segment cannot be removed.
    pub fn take(directory: &Path) -> Result<Self, TraceError> {
        let path = directory.join(DROPPED_FILE);
        let Some(text) = read_small(&path, DROPPED_BYTES_MAX)? else { return Ok(Self::default()) };
        let mut sums = Self::default();
        for line in text.lines() {
            let mut words = line.split(' ');
            let (segment, mut number) =
                (words.next().unwrap_or_default(), || words.next()?.parse::<u64>().ok());
            let (Some(unwritten), Some(lost)) = (number(), number()) else {
                return Err(TraceError::damaged(&path, format!("it says {line:?}")));
            };
            remove(&directory.join(segment))?;
            sums.unwritten += unwritten;
            sums.lost += lost;
        }
        Ok(sums)
    }
}

fn file_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

impl Collector {
    /// For the segments in a directory of this host.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn new(directory: &Path, host: &str) -> Result<Self, TraceError> {
        std::fs::read_dir(directory).map_err(TraceError::io(directory))?;
        let clock = TraceClock::best();
        Ok(Self {
            directory: directory.to_owned(),
            host: host.as_bytes().to_owned(),
            clock,
            begun: (clock.now(), sys::clock_ns(sys::CLOCK_MONOTONIC_RAW)),
            segments: BTreeMap::new(),
            seen: 0,
            over: Vec::new(),
            states: HashMap::new(),
            damaged: BTreeMap::new(),
            unheld: clock.now(),
            buried: VecDeque::new(),
            listed: None,
            is_dropping: false,
            limits: CollectLimits::default(),
            last: PathBuf::new(),
            told_of_segments: false,
            told_of_rings: false,
        })
    }

    /// With these limits.
    #[must_use]
    pub fn within(self, limits: CollectLimits) -> Self {
        Self { limits, ..self }
    }

    /// Continues where another collector was: segments that are found later begin at their state.
    pub fn resume(&mut self, states: impl IntoIterator<Item = SourceState>) {
        self.states.extend(states.into_iter().map(|state| (state.file.clone(), state)));
    }

    /// What has come since the last time. It keeps its room until it is released.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn collect(&mut self, names: &mut TraceNames) -> Result<Collected, TraceError> {
        self.look(names, true)
    }

    /// [`Collector::collect`], for whoever looks again soon: that a process was killed which has
    /// nothing to tell may be seen a second later. What has come is there all the same.
    ///
    /// # Errors
    /// As [`Collector::collect`].
    pub fn collect_lately(&mut self, names: &mut TraceNames) -> Result<Collected, TraceError> {
        self.look(names, false)
    }

    /// Of rings that are overwritten: takes the names for which there is no room much longer, and
    /// lets go of the processes that have ended first. Whether somebody holds what the rings have.
    ///
    /// # Errors
    /// When the directory cannot be read, or a segment not be taken away.
    pub fn watch(
        &mut self,
        names: &mut TraceNames,
        limits: &WatchLimits,
        into: &mut Collected,
    ) -> Result<bool, TraceError> {
        self.find(names, into, false)?;
        let mut is_held = false;
        for (path, source) in &mut self.segments {
            if !source.is_buried && !source.is_written(false) {
                source.is_buried = true;
                self.buried.push_back((path.clone(), source.reader.waiting()));
            }
            let (whole, parts) = source.reader.take_names();
            let mut room = LookRoom::of_names(limits.names_bytes);
            source.name((&whole, parts), names, &mut room);
            is_held |= source.reader.is_held();
        }
        if !is_held {
            self.unheld = self.clock.now();
        }
        self.let_buried_go(limits, into)?;
        Ok(is_held)
    }

    /// Takes away the oldest segments beyond what is kept of processes that have ended: what is in
    /// them counts as overwritten.
    fn let_buried_go(
        &mut self,
        limits: &WatchLimits,
        into: &mut Collected,
    ) -> Result<(), TraceError> {
        let mut records: u64 = self.buried.iter().map(|(_, records)| records).sum();
        while records > limits.buried_records || self.buried.len() > limits.buried {
            let Some((path, own)) = self.buried.pop_front() else { return Ok(()) };
            records -= own;
            if let Some(mut source) = self.segments.remove(&path) {
                let read = source.reader.read();
                into.overwritten += read.overwritten - source.overwritten;
                into.overwritten += read.records.len() as u64;
                into.lost += read.lost.saturating_sub(source.lost);
                let unplaced = read.unplaced.saturating_sub(source.unplaced);
                into.lost += unplaced;
                into.unplaced += unplaced;
            }
            remove(&path)?;
        }
        Ok(())
    }

    /// Holds the rings: their records are not overwritten until [`Collector::let_go`].
    pub fn hold(&self) {
        self.segments.values().for_each(|source| source.reader.hold());
    }

    /// Lets the rings be overwritten again.
    pub fn let_go(&mut self) {
        self.segments.values().for_each(|source| source.reader.let_go());
        self.unheld = self.clock.now();
    }

    fn look(&mut self, names: &mut TraceNames, is_last: bool) -> Result<Collected, TraceError> {
        let mut collected = Collected::default();
        self.find(names, &mut collected, is_last)?;
        let ns_per_tick = self.ns_per_tick();
        let host = names.number(&self.host);
        let held = (self.unheld, self.clock.now());
        let until = Instant::now().checked_add(self.limits.look);
        let mut room = LookRoom::of(&self.limits, until, self.segments.values());
        let mut damaged = Vec::new();
        // Beginning behind the one that had a turn last: what has none now is the first next time.
        let last = self.last.clone();
        let (before, behind): (Vec<_>, Vec<_>) =
            self.segments.iter_mut().partition(|(path, _)| **path <= last);
        for (path, source) in behind.into_iter().chain(before) {
            if room.is_over(&collected) {
                collected.more = true;
                break;
            }
            self.last.clone_from(path);
            source.open();
            // Whoever ends after this look has written all before the next.
            let was_written = source.is_written(is_last);
            let take = (was_written, ns_per_tick, held);
            let more = source.take(path, host, take, (names, &mut room), &mut collected);
            source.close();
            collected.more |= more;
            if source.reader.damage().is_some() {
                damaged.push(path.clone());
            } else if !was_written && !more && !self.over.contains(path) {
                self.over.push(path.clone());
            }
        }
        for path in damaged {
            self.drop_damaged(path, &mut collected);
        }
        self.tell_of_rings(room.unread_rings, &mut collected);
        collected.rows.sort_by_key(|row| row.time_ns);
        Ok(collected)
    }

    /// A segment that cannot be read any more: somebody has cut it off, say. What was taken stays.
    fn drop_damaged(&mut self, path: PathBuf, into: &mut Collected) {
        const MFILE: i32 = sheaf_core::Errno::MFILE.0;
        const NFILE: i32 = sheaf_core::Errno::NFILE.0;
        let Some(source) = self.segments.remove(&path) else { return };
        let Some(damage) = source.reader.damage() else { return };
        if matches!(damage, Damage::Kernel(MFILE | NFILE)) {
            // It is found again, and goes on where it was.
            let names = source.names.iter().map(|(number, name)| (*number, *name)).collect();
            let state = source.state(&path, names);
            self.states.insert(state.file.clone(), state);
        } else {
            into.damaged.push((path.clone(), damage.to_string()));
            self.damaged.insert(path, (Instant::now(), None));
        }
    }

    /// Threads beyond the limit, once.
    fn tell_of_rings(&mut self, unread: u64, into: &mut Collected) {
        if unread > 0 && !std::mem::replace(&mut self.told_of_rings, true) {
            let max = self.limits.rings;
            let why = format!("{unread} threads are not read: more than {max} are recorded there");
            into.damaged.push((self.directory.clone(), why));
        }
    }

    /// Says to all processes that nobody takes anything any more: their threads no longer wait for room.
    pub fn abandon(&self) {
        self.segments.values().for_each(|source| source.reader.abandon());
    }

    /// Gives back the room of what was collected. Segments that nobody writes any more, and that
    /// are read to their end, are taken away.
    ///
    /// # Errors
    /// When a segment cannot be taken away.
    pub fn release(&mut self) -> Result<(), TraceError> {
        if !self.is_dropping {
            for source in self.segments.values_mut() {
                if source.is_taken {
                    source.open();
                    source.reader.release();
                    source.close();
                    source.is_taken = false;
                }
                source.unreleased = DroppedSums::default();
            }
        }
        for path in std::mem::take(&mut self.over) {
            if let Some(source) = self.segments.get(&path).filter(|_| self.is_dropping) {
                source.unreleased.note(&self.directory, &path)?;
            }
            self.segments.remove(&path);
            remove(&path)?;
        }
        self.buried.retain(|(path, _)| self.segments.contains_key(path));
        Ok(())
    }

    /// What is taken, and was since the last release, can be stored nowhere: rings keep what they have
    /// room for, and count what they have not, for whoever goes on here. Of processes that end it is
    /// written down how much that was.
    pub fn drop_from_here(&mut self) {
        self.is_dropping = true;
    }

    /// How far all open segments were taken, with all their names.
    #[must_use]
    pub fn states(&self) -> Vec<SourceState> {
        let state = |(path, source): (&PathBuf, &TraceSource)| {
            let names = source.names.iter().map(|(number, name)| (*number, *name)).collect();
            source.state(path, names)
        };
        self.segments.iter().map(state).chain(self.states.values().cloned()).collect()
    }

    /// Files that are no segments, or damaged ones, and were not told, as they may just be being
    /// made: for whoever looks no more.
    pub fn take_damaged(&mut self) -> Vec<(PathBuf, String)> {
        let untold = |(path, (_, why)): (&PathBuf, &mut (Instant, Option<String>))| {
            why.take().map(|why| (path.clone(), why))
        };
        self.damaged.iter_mut().filter_map(untold).collect()
    }

    /// How many processes have a segment that is not read to its end; one that became another
    /// program has more.
    #[must_use]
    pub fn open(&self) -> usize {
        self.segments.values().map(TraceSource::process).collect::<HashSet<_>>().len()
    }

    /// The number of open processes ([`Collector::open`]) that run.
    pub fn running(&mut self) -> usize {
        let running = self.segments.values_mut().filter_map(|source| {
            source.open();
            let runs = source.is_written(true);
            source.close();
            runs.then(|| source.process())
        });
        running.collect::<HashSet<_>>().len()
    }

    /// How many segments were read so far.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Finds segments that are new, `is_last` also where nothing seems to have changed.
    fn find(
        &mut self,
        names: &mut TraceNames,
        into: &mut Collected,
        is_last: bool,
    ) -> Result<(), TraceError> {
        let error = || TraceError::io(&self.directory);
        let now = DirectoryLook::of(&self.directory).map_err(error())?;
        // One that is being made is not seen in it.
        let is_awaited = self.damaged.values().any(|(_, untold)| untold.is_some());
        if !is_last && !is_awaited && self.listed.is_some_and(|listed| listed.holds(&now)) {
            return Ok(());
        }
        self.listed = Some(now);
        if self.damaged.len() >= self.limits.files {
            // Of files that are gone by now.
            self.damaged.clear();
        }
        let mut passed = 0_u64;
        let files = std::fs::read_dir(&self.directory).map_err(error())?;
        for entry in files.take(self.limits.files) {
            let path = entry.map_err(error())?.path();
            let is_segment = path.extension().is_some_and(|extension| extension == "segment");
            if !is_segment || self.segments.contains_key(&path) {
                continue;
            }
            if self.segments.len() >= self.limits.segments {
                passed += 1;
                continue;
            }
            match Reader::open(&path) {
                Ok(reader) if reader.owner() != now.owner => {
                    let why = (now.at, None);
                    if self.damaged.insert(path.clone(), why).is_none() {
                        into.damaged.push((path, "it is another user's".to_owned()));
                    }
                }
                Ok(reader) => {
                    self.damaged.remove(&path);
                    let command = &reader.process().command;
                    let command = match names.find(command) {
                        Some(command) => command,
                        None if names.bytes() < self.limits.names_bytes => names.number(command),
                        None => names.number(b""),
                    };
                    let state = self.states.remove(&file_of(&path)).unwrap_or_default();
                    let permit = self.limits.open.take();
                    let source = TraceSource::new(reader, permit, command, state);
                    self.segments.insert(path, source);
                    self.seen += 1;
                }
                // One that is just being made is whole soon.
                Err(damage) => {
                    let why = || (Instant::now(), Some(damage.to_string()));
                    let (since, untold) = self.damaged.entry(path.clone()).or_insert_with(why);
                    if since.elapsed() >= MAKING_MAX {
                        into.damaged.extend(untold.take().map(|why| (path, why)));
                    }
                }
            }
        }
        if passed > 0 {
            // They have their turn when others have ended.
            self.listed = None;
            if !std::mem::replace(&mut self.told_of_segments, true) {
                let max = self.limits.segments;
                let why = format!("{passed} segments wait: no more than {max} are read at once");
                into.damaged.push((self.directory.clone(), why));
            }
        }
        Ok(())
    }

    /// How long a tick of the processor's counter is, measured since this began.
    fn ns_per_tick(&self) -> f64 {
        if self.clock.kind() == ClockKind::Monotonic {
            return 1.0;
        }
        let (ticks, raw_ns) = self.begun;
        let passed = Duration::from_nanos(sys::clock_ns(sys::CLOCK_MONOTONIC_RAW) - raw_ns);
        if let Some(rest) = RATE_TIME_MIN.checked_sub(passed) {
            std::thread::sleep(rest);
        }
        let (now, now_ns) = (self.clock.now(), sys::clock_ns(sys::CLOCK_MONOTONIC_RAW));
        (now_ns - raw_ns) as f64 / now.wrapping_sub(ticks) as f64
    }
}
