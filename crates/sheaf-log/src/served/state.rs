//! What a log client keeps of one directory, in memory and in the files there.
//!
//! A spool of this host is removed when the log server has the rows in a spool of its own. The
//! directory is a user's, who may put there what it likes: each file is opened without waiting, only
//! if it is a regular file of that user's, and is read no further than it can be long.
use super::batch::{BatchPart, CollectRequest, ReadyFilter, RowFilter, TraceBatch};
use super::live::{LIVE_SECONDS_MAX, LiveAnswer, LiveRequest, LiveWindow};
use crate::collect::{CollectLimits, Collector, SourceState};
use crate::error::TraceError;
use crate::files::{check_private, open_own, read_small, replace};
use crate::row::{TraceNames, TraceRow};
use crate::spool::{self, SpoolFacts, SpoolWriter};
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// Whoever takes from rings holds this.
pub(super) const CLIENT_LOCK: &str = "client.lock";
/// The number by which the directory is known.
const LIFE_FILE: &str = "life";
/// When somebody stored what is recorded there last, by the time of this file.
const COLLECTED_FILE: &str = "collected";
/// What of the spools is stored elsewhere, by whoever asked last and left.
const STORED_FILE: &str = "stored";
/// What nobody has stored for so long is not kept for anybody, while somebody looks at it.
const COLLECTED_MAX: Duration = Duration::from_secs(60);
/// What follows the beginning of a spool in so many bytes is followed by another spool, however few
/// rows it has.
const SPOOL_BYTES_MAX: u64 = 8 << 20;
/// The longest spool: all names and segments at its beginning, rows, and one more block.
const SPOOL_FILE_BYTES_MAX: u64 = 256 << 20;
/// Whoever has not asked for so long has gone, and another may.
pub(super) const COLLECTOR_GONE: Duration = Duration::from_secs(5);
/// A spool of so many rows is followed by another.
const SPOOL_ROWS_MAX: u64 = 64 << 10;
/// Troubles that are kept to be told.
const TOLD_MAX: usize = 16;
/// The files of one line.
const LINE_BYTES_MAX: u64 = 256;

pub(super) struct ClientState {
    directory: PathBuf,
    pub(super) host: String,
    pub(super) skew: i64,
    life: u64,
    collector: Collector,
    names: TraceNames,
    /// What is written, and how many bytes those hold that were ended and are not stored elsewhere.
    spool: SpoolWriter,
    /// How long the spool was at its beginning.
    spool_begun: u64,
    ended: BTreeMap<u32, u64>,
    /// What of them somebody has stored who has left: a spool, and how many of its rows.
    stored: (u32, u64),
    /// Rows that were taken and could not be written yet.
    waiting: Option<(Vec<TraceRow>, SpoolFacts)>,
    /// The first of those that were ended, in memory.
    going: Option<(u32, Vec<TraceRow>, TraceNames)>,
    filter: RowFilter,
    ready: ReadyFilter,
    spool_bytes_max: u64,
    /// When somebody stored what is kept here, as far as is known.
    collected: Option<Instant>,
    /// Somebody looks, and nobody stores.
    is_only_looked_at: bool,
    live: LiveWindow,
    /// Rings have more than was taken at once.
    more: bool,
    names_lost: u64,
    damaged: Vec<String>,
    /// Who has asked last, and when.
    collected_for: Option<u64>,
    asked: Instant,
    /// It is known what is to be kept: before, nothing is taken.
    is_asked: bool,
    _lock: File,
}

impl ClientState {
    /// Goes on where the last client of the directory was, whatever ended it.
    pub(super) fn open(
        directory: &Path,
        host: &str,
        skew: i64,
        limits: CollectLimits,
    ) -> Result<Self, TraceError> {
        match std::fs::DirBuilder::new().mode(0o700).create(directory) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(TraceError::io(directory)(error));
            }
            _ => {}
        }
        check_private(directory)?;
        let held = hold(directory)?;
        let life = life_of(directory)?;
        let mut kept = KeptSpools::read(directory)?;
        let mut collector = Collector::new(directory, host)?.within(limits);
        collector.resume(std::mem::take(&mut kept.sources));
        let facts = SpoolFacts::of_sources(collector.states());
        let spool = SpoolWriter::begin(directory, kept.next, &kept.names, facts)?;
        Ok(Self {
            directory: directory.to_owned(),
            host: host.to_owned(),
            skew,
            life,
            collector,
            names: kept.names,
            spool_begun: spool.bytes(),
            spool,
            ended: kept.ended,
            stored: stored_of(directory)?,
            waiting: None,
            going: None,
            filter: RowFilter::default(),
            ready: ReadyFilter::default(),
            spool_bytes_max: u64::MAX,
            collected: collected_at(directory),
            is_only_looked_at: false,
            live: LiveWindow::default(),
            more: false,
            names_lost: 0,
            damaged: kept.damaged,
            collected_for: None,
            asked: Instant::now(),
            is_asked: false,
            _lock: held,
        })
    }

    /// Whether whoever asks is the one for whom this is kept, or that one has gone.
    pub(super) fn is_for(&mut self, collector: u64) -> bool {
        if self.collected_for.is_some_and(|other| other != collector)
            && self.asked.elapsed() < COLLECTOR_GONE
        {
            return false;
        }
        self.collected_for = Some(collector);
        true
    }

    /// Whether as much is kept as may be: the rest stays in the rings, which count what they lose.
    fn is_full(&self) -> bool {
        self.ended.values().sum::<u64>() + self.spool.bytes() >= self.spool_bytes_max
    }

    /// Takes what has come; whether any was there. `is_wanted`: somebody wants to know just now.
    pub(super) fn turn(&mut self, is_wanted: bool) -> bool {
        // What is not looked at may have more.
        self.more = true;
        // While rows wait to be written no more are taken. They stay in the rings, which count
        // their losses.
        if self.is_asked && self.waiting.is_none() && !self.is_full() {
            let collected = if is_wanted {
                self.collector.collect(&mut self.names)
            } else {
                self.collector.collect_lately(&mut self.names)
            };
            match collected {
                Ok(mut collected) => {
                    self.more = collected.more;
                    self.names_lost = self.names_lost.saturating_add(collected.names_lost);
                    for (path, why) in &collected.damaged {
                        self.tell(format!("{}: {why}", path.display()));
                    }
                    self.live.add(&collected.rows, &self.names, Instant::now());
                    if self.is_only_looked_at {
                        collected.rows.clear();
                    }
                    self.ready.apply(&mut collected.rows, &self.names);
                    let skew = self.skew;
                    let skewed =
                        |row: &mut TraceRow| row.time_ns = row.time_ns.saturating_add(skew);
                    collected.rows.iter_mut().for_each(skewed);
                    let facts = SpoolFacts::of_sources(collected.sources);
                    if !collected.rows.is_empty() || !facts.sources.is_empty() {
                        self.waiting = Some((collected.rows, facts));
                    }
                }
                Err(error) => self.tell(error.to_string()),
            }
        }
        self.write()
    }

    /// Writes what waits, and gives its room in the rings back. What cannot be written waits on.
    fn write(&mut self) -> bool {
        let Some((rows, facts)) = self.waiting.take() else { return false };
        let (came, count) = (!rows.is_empty(), facts.sources.len());
        if let Err(error) = self.spool.append(&rows, &self.names, &facts) {
            self.tell(error.to_string());
            self.waiting = Some((rows, facts));
            return false;
        }
        if let Err(error) = self.collector.release() {
            self.tell(error.to_string());
        }
        let is_long = self.spool.rows() >= SPOOL_ROWS_MAX
            || self.spool.bytes() - self.spool_begun >= SPOOL_BYTES_MAX;
        if is_long && let Err(error) = self.end_spool() {
            self.tell(error.to_string());
        }
        came || count > 0
    }

    fn tell(&mut self, trouble: String) {
        if self.damaged.len() < TOLD_MAX && !self.damaged.contains(&trouble) {
            self.damaged.push(trouble);
        }
    }

    /// Begins another spool, which stands for itself before this one is given away.
    fn end_spool(&mut self) -> Result<(), TraceError> {
        let states = self.collector.states();
        if states.is_empty() {
            // Nobody has a name any more that was known.
            self.names = TraceNames::default();
            self.ready.forget();
        }
        let facts = SpoolFacts::of_sources(states);
        let (number, bytes) = (self.spool.number(), self.spool.bytes());
        let next = SpoolWriter::begin(&self.directory, number + 1, &self.names, facts)?;
        self.spool_begun = next.bytes();
        let is_empty = std::mem::replace(&mut self.spool, next).rows() == 0;
        self.ended.insert(number, bytes);
        if is_empty { self.remove(number) } else { Ok(()) }
    }

    /// Everything of the spools before this one, and so many rows of it, is stored elsewhere.
    fn forget(&mut self, (spool, _): (u32, u64)) -> Result<(), TraceError> {
        let before = self.ended.range(..spool).map(|(number, _)| *number);
        for number in before.collect::<Vec<_>>() {
            self.remove(number)?;
        }
        Ok(())
    }

    fn remove(&mut self, number: u32) -> Result<(), TraceError> {
        let path = spool::path_of(&self.directory, number);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(TraceError::io(&path)(error));
            }
            _ => {}
        }
        self.ended.remove(&number);
        if self.going.as_ref().is_some_and(|(going, _, _)| *going == number) {
            self.going = None;
        }
        Ok(())
    }

    /// What follows on what is stored.
    pub(super) fn answer(
        &mut self,
        asked: &CollectRequest,
        leaf: u32,
    ) -> Result<TraceBatch, TraceError> {
        (self.asked, self.is_asked) = (Instant::now(), true);
        (self.collected, self.is_only_looked_at) = (Some(self.asked), false);
        mark_collected(&self.directory)?;
        self.spool_bytes_max = asked.spool_bytes_max;
        if self.filter != asked.filter {
            let ready = asked.filter.ready();
            self.ready = ready.map_err(|why| TraceError::damaged(&self.directory, why))?;
            self.filter = asked.filter.clone();
        }
        let place = asked.places.iter().find(|place| place.leaf == leaf).cloned();
        let place = place.filter(|place| place.life == self.life).unwrap_or_default();
        let stored = self.stored.max((place.spool, place.rows));
        if asked.rows_max == 0 && stored != self.stored {
            // Whoever asks for nothing may be about to leave, and the next one knows nothing of it.
            write_stored(&self.directory, stored)?;
            self.stored = stored;
        }
        self.forget(stored)?;
        self.turn(true);
        // What waits is not in it, and what is known where the next begins has it.
        if self.ended.is_empty() && self.spool.rows() > 0 && self.waiting.is_none() {
            self.end_spool()?;
        }
        let mut begin = stored;
        let mut batch = TraceBatch::default();
        while let Some(number) = self.ended.first_key_value().map(|(number, _)| *number)
            && asked.rows_max > 0
        {
            let taken = if number == stored.0 { stored.1 } else { 0 };
            self.load(number)?;
            let Some((_, rows, names)) = &self.going else { break };
            let from = rows.len().min(usize::try_from(taken).unwrap_or(usize::MAX));
            let to = rows.len().min(from.saturating_add(asked.rows_max as usize));
            begin = (number, from as u64);
            if from < to {
                batch.add(&rows[from..to], names);
                break;
            }
            // All of it is stored, or there was nothing in it.
            self.remove(number)?;
            begin = (number + 1, 0);
        }
        let count = batch.rows.len() as u64;
        let rest = self.going.as_ref().map_or(0, |(_, rows, _)| rows.len() as u64);
        let going = usize::from(self.going.is_some());
        let more = begin.1 + count < rest || self.ended.len() > going || self.spool.rows() > 0;
        batch.parts.push(BatchPart {
            host: self.host.clone(),
            leaf,
            life: self.life,
            spool: begin.0,
            rows: begin.1,
            count,
            more: more || self.more || self.waiting.is_some(),
            open: self.collector.open() as u64,
            names_lost: self.names_lost,
            is_full: self.is_full(),
            damaged: self.damaged.clone(),
            ..BatchPart::default()
        });
        Ok(batch)
    }

    /// What is done just now. Where nobody stores it, it is not kept either.
    pub(super) fn live_answer(&mut self, asked: &LiveRequest) -> LiveAnswer {
        (self.asked, self.is_asked) = (Instant::now(), true);
        self.is_only_looked_at = self.collected.is_none_or(|at| at.elapsed() > COLLECTED_MAX);
        self.turn(true);
        let last = Duration::from_millis(asked.last_ms.min(LIVE_SECONDS_MAX * 1000).into());
        let answer = self.live.answer(asked.by, &self.host, last, Instant::now());
        LiveAnswer { programs: self.collector.open() as u64, ..answer }
    }

    /// Reads a spool that was ended.
    fn load(&mut self, number: u32) -> Result<(), TraceError> {
        if self.going.as_ref().is_some_and(|(going, _, _)| *going == number) {
            return Ok(());
        }
        let (mut rows, mut names) = (Vec::new(), TraceNames::default());
        let path = spool::path_of(&self.directory, number);
        let content = spool::read_own(&path, SPOOL_FILE_BYTES_MAX, &mut names, |more, _| {
            rows.extend_from_slice(more);
            Ok(())
        })?;
        if let Some(why) = content.cut.filter(|_| content.is_damaged) {
            self.tell(format!("{}: {why}", path.display()));
        }
        rows.sort_by_key(|row| row.time_ns);
        self.going = Some((number, rows, names));
        Ok(())
    }
}

/// What the spools of a directory hold that were there before.
#[derive(Default)]
struct KeptSpools {
    /// The names and segments at the end of the last one.
    names: TraceNames,
    sources: Vec<SourceState>,
    /// Their bytes, by their numbers.
    ended: BTreeMap<u32, u64>,
    next: u32,
    damaged: Vec<String>,
}

impl KeptSpools {
    fn read(directory: &Path) -> Result<Self, TraceError> {
        let mut kept = Self::default();
        for (number, path) in spool::spools_of(directory)? {
            let next = number.checked_add(1);
            let next = next.ok_or_else(|| TraceError::damaged(&path, "no number follows it"))?;
            kept.next = next;
            // Each begins with all that is known.
            let mut names = TraceNames::default();
            let read = spool::read_own(&path, SPOOL_FILE_BYTES_MAX, &mut names, |_, _| Ok(()));
            let content = match read {
                Err(TraceError::Damaged { why, .. }) => {
                    // Of another version, for one: what comes now is taken all the same.
                    let as_file = spool::keep_damaged(directory, number)?;
                    kept.damaged.push(format!("{why}: it is kept as {}", as_file.display()));
                    continue;
                }
                read => read?,
            };
            if content.has_begun {
                kept.sources = content.sources.into_values().collect();
                kept.names = names;
            }
            // Where it was cut off the rest is in the rings still.
            let cut = content.cut.filter(|_| content.is_damaged);
            kept.damaged.extend(cut.map(|why| format!("{}: {why}", path.display())));
            let about = std::fs::symlink_metadata(&path).map_err(TraceError::io(&path))?;
            kept.ended.insert(number, about.len());
        }
        kept.damaged.truncate(TOLD_MAX);
        Ok(kept)
    }
}

/// Nobody else takes from this directory while this is open.
fn hold(directory: &Path) -> Result<File, TraceError> {
    let path = directory.join(CLIENT_LOCK);
    let file = open_own(&path, File::options().create(true).append(true).mode(0o600))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)
        .map_err(|error| TraceError::io(&path)(error.into()))?;
    Ok(file)
}

/// Somebody stores what is recorded there.
fn mark_collected(directory: &Path) -> Result<(), TraceError> {
    let path = directory.join(COLLECTED_FILE);
    let file = open_own(&path, File::options().create(true).append(true).mode(0o600))?;
    file.set_modified(SystemTime::now()).map_err(TraceError::io(&path))
}

/// When somebody stored what is recorded there; nothing where nobody has, as far as can be seen.
fn collected_at(directory: &Path) -> Option<Instant> {
    let about = std::fs::symlink_metadata(directory.join(COLLECTED_FILE)).ok()?;
    let age = about.modified().ok()?.elapsed().unwrap_or_default();
    Instant::now().checked_sub(age)
}

/// What somebody has stored who has left.
pub(super) fn stored_of(directory: &Path) -> Result<(u32, u64), TraceError> {
    let path = directory.join(STORED_FILE);
    let Some(text) = read_small(&path, LINE_BYTES_MAX)? else { return Ok((0, 0)) };
    let words = text.trim_end().split_once(' ');
    let stored = words.and_then(|(spool, rows)| Some((spool.parse().ok()?, rows.parse().ok()?)));
    stored.ok_or_else(|| TraceError::damaged(&path, "it is no spool's number and its rows"))
}

fn write_stored(directory: &Path, (spool, rows): (u32, u64)) -> Result<(), TraceError> {
    replace(&directory.join(STORED_FILE), &format!("{spool} {rows}\n"))
}

/// The directory's number, made once.
fn life_of(directory: &Path) -> Result<u64, TraceError> {
    let path = directory.join(LIFE_FILE);
    if let Some(text) = read_small(&path, LINE_BYTES_MAX)? {
        let life = u64::from_str_radix(text.trim_end(), 16);
        return life.map_err(|error| TraceError::damaged(&path, error));
    }
    let life = random(&path)?;
    replace(&path, &format!("{life:016x}\n"))?;
    Ok(life)
}

/// A number that no other directory and no other client has; it is nobody's who is 0.
fn random(path: &Path) -> Result<u64, TraceError> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| TraceError::io(path)(error.into()))?;
    Ok(u64::from_le_bytes(bytes).max(1))
}
