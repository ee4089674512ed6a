//! The log server: stores what the servers of hosts have taken, each row once.
use super::{BatchPart, HostClock, HostPlace, RowFilter, TraceBatch};
use crate::convert::convert_spool;
use crate::info::TraceInfo;
use crate::parts::{KeepLimits, PartKeeper, PartLimits, RemovedParts};
use crate::record::{RecordTotals, StoreLock, lock, send};
use sheaf_log::collect::UNPLACED_ERRNO;
use sheaf_log::files::{check_own, remove};
use sheaf_log::served::now_ns;
use sheaf_log::spool::{self, SpoolFacts, SpoolWriter};
use sheaf_log::{ServedHost, TraceError, TraceNames};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Parts that have become too old are looked for so often.
const TRIM_TIME: Duration = Duration::from_secs(10);

/// A directory into which the traces of hosts go. Whatever ends the process that has it, another
/// goes on with it; what it had said to be stored is.
pub struct ServedStore {
    directory: PathBuf,
    spool: SpoolWriter,
    names: TraceNames,
    /// When the spool was begun, and when it is to be ended.
    begun: Instant,
    parts: PartLimits,
    hosts: BTreeMap<String, StoredHost>,
    to_store: Sender<StoreTask>,
    storer: JoinHandle<PartStorer>,
    troubles: Receiver<String>,
    trimmed: Instant,
    lock: StoreLock,
    /// What of the rows that come is kept: hosts may have taken them for somebody else.
    kept: KeptRows,
    /// What was found damaged before.
    before: RecordTotals,
}

/// Which rows a trace keeps.
#[derive(Debug, Clone, Default)]
pub struct KeptRows {
    /// Those that were done at or after this time, in ns since 1970 by the clock here.
    pub begun_ns: i64,
    /// And these of them.
    pub filter: RowFilter,
}

/// How far a host is, and its clock.
#[derive(Debug, Default)]
struct StoredHost {
    place: ServedHost,
    clock: HostClock,
    heard: Option<Instant>,
}

/// What has come of a store.
#[derive(Debug, Default)]
pub struct ServedTotals {
    /// Rows, losses and troubles of the store.
    pub totals: RecordTotals,
    /// What was removed, from the beginning.
    pub removed: RemovedParts,
    /// The hosts, by name.
    pub hosts: Vec<ServedHost>,
}

/// What the thread does that stores.
enum StoreTask {
    /// Makes a part of the spool of this number.
    Convert(u32),
    /// Removes parts that have become too old, and makes those for which there was no room.
    Trim,
    /// Makes a part of the last spool; hosts are where these say.
    End(u32, Vec<ServedHost>),
}

/// Makes parts of spools, and removes the oldest parts.
struct PartStorer {
    directory: PathBuf,
    parts: PartKeeper,
    damaged: Vec<(PathBuf, String)>,
    /// Spools that are not parts yet, in order, and why.
    waiting: VecDeque<u32>,
    failed: Option<TraceError>,
    /// Why it is not noted how far hosts are.
    unnoted: Option<TraceError>,
    /// For whoever serves, while it does.
    troubles: Sender<String>,
}

impl PartStorer {
    fn work(mut self, tasks: &Receiver<StoreTask>) -> Self {
        for task in tasks {
            match task {
                StoreTask::Convert(number) => self.waiting.push_back(number),
                StoreTask::Trim => {}
                StoreTask::End(number, hosts) => {
                    self.unnoted = self.note(hosts).err();
                    self.waiting.push_back(number);
                }
            }
            self.convert();
            self.trim();
        }
        self
    }

    /// Once the last spool is a part, `trace.json` alone says how far hosts are.
    fn note(&self, hosts: Vec<ServedHost>) -> Result<(), TraceError> {
        let info = TraceInfo::read(&self.directory)?;
        TraceInfo { served: hosts, ..info.unwrap_or_default() }.write(&self.directory)
    }

    /// Makes parts of all spools that wait; those for which there is no room wait on.
    fn convert(&mut self) {
        while let Some(&number) = self.waiting.front() {
            match convert_spool(&self.directory, number, &mut TraceNames::default()) {
                Ok((_, content)) => {
                    let path = spool::path_of(&self.directory, number);
                    self.damaged.extend(content.cut.map(|why| (path, why)));
                    let path = self.parts.path_of(number);
                    self.damaged.extend(self.parts.add(number).map(|why| (path, why)));
                    self.waiting.pop_front();
                    self.failed = None;
                }
                Err(error) => {
                    self.tell(format!("{error}: what came is kept, and is tried again"));
                    self.failed = Some(error);
                    return;
                }
            }
        }
    }

    /// Nobody hears it once that has ended, which is told all of it then.
    fn tell(&self, trouble: String) {
        let _ = self.troubles.send(trouble);
    }

    fn trim(&mut self) {
        if let Err(error) = self.parts.trim(now_ns()) {
            let told = (self.directory.clone(), format!("old parts cannot be removed: {error}"));
            if !self.damaged.contains(&told) {
                self.tell(told.1.clone());
                self.damaged.push(told);
            }
        }
    }
}

impl ServedStore {
    /// Begins in a directory that is there and empty, or goes on in one where another was before.
    /// While this is open, `trace.json` there is this one's to write.
    ///
    /// # Errors
    /// When it cannot be read or written, or somebody writes it.
    pub fn open(directory: &Path, parts: PartLimits, keep: KeepLimits) -> Result<Self, TraceError> {
        check_own(directory)?;
        let lock = lock(directory)?;
        let info = TraceInfo::read(directory)?.unwrap_or_default();
        let mut hosts: BTreeMap<String, ServedHost> =
            info.served.into_iter().map(|host| (host.host.clone(), host)).collect();
        let (mut before, mut next) = (RecordTotals::default(), 0);
        for (number, path) in spool::spools_of(directory)? {
            let (_, content) = convert_spool(directory, number, &mut TraceNames::default())?;
            // What was cut off was not said to be stored: hosts have it still.
            let cut = content.cut.filter(|_| content.is_damaged);
            before.damaged.extend(cut.map(|why| (path, why)));
            hosts.extend(content.hosts);
            next = number + 1;
        }
        let kept = PartKeeper::open(directory, info.removed, keep, &mut before.damaged)?;
        // A number is never used again: a spool whose part exists counts as stored.
        let next = next.max(kept.next());
        let names = TraceNames::default();
        let facts = SpoolFacts::of_hosts(hosts.values().cloned().collect());
        let spool = SpoolWriter::begin(directory, next, &names, facts)?;
        let (to_store, tasks) = channel();
        let (to_tell, troubles) = channel();
        let directory = directory.to_owned();
        let storer = PartStorer {
            directory: directory.clone(),
            parts: kept,
            damaged: Vec::new(),
            waiting: VecDeque::new(),
            failed: None,
            unnoted: None,
            troubles: to_tell,
        };
        let storer = std::thread::Builder::new()
            .name("sheaf-trace-store".to_owned())
            .spawn(move || storer.work(&tasks))
            .map_err(TraceError::io(&directory))?;
        let stored = |(name, place)| (name, StoredHost { place, ..StoredHost::default() });
        Ok(Self {
            directory,
            spool,
            names,
            begun: Instant::now(),
            parts,
            hosts: hosts.into_iter().map(stored).collect(),
            to_store,
            storer,
            troubles,
            trimmed: Instant::now(),
            lock,
            kept: KeptRows::default(),
            before,
        })
    }

    /// This one, which keeps these rows of what comes, and no others.
    #[must_use]
    pub fn keeping(self, kept: KeptRows) -> Self {
        Self { kept, ..self }
    }

    /// Ends it, and takes away what was begun: nothing has come.
    ///
    /// # Errors
    /// When it cannot be taken away.
    ///
    /// # Panics
    /// When the thread that stores has panicked.
    pub fn discard(self) -> Result<(), TraceError> {
        // Without a sender the thread that stores ends.
        drop(self.to_store);
        self.storer.join().expect("the thread that stores has told its panic");
        remove(&spool::path_of(&self.directory, self.spool.number()))?;
        remove(&self.directory.join(crate::INFO_FILE))?;
        let mut totals = RecordTotals::default();
        self.lock.end(&mut totals);
        totals.error.map_or(Ok(()), Err)
    }

    /// What went wrong with what was stored, since this was asked last.
    pub fn troubles(&mut self) -> Vec<String> {
        self.troubles.try_iter().collect()
    }

    /// How far a host is, for whoever asks it.
    #[must_use]
    pub fn place(&self, host: &str, leaf: u32) -> HostPlace {
        let place = self.hosts.get(host).map(|host| &host.place);
        place.map_or(HostPlace { leaf, ..HostPlace::default() }, |place| HostPlace {
            leaf,
            life: place.life,
            spool: place.spool,
            rows: place.rows,
        })
    }

    /// Stores a batch, asked and heard at these times by the clock here: rows with the times of
    /// this clock, and none that is there already. How many there were.
    ///
    /// # Errors
    /// When it cannot be written: then none of it is stored.
    pub fn add(
        &mut self,
        mut batch: TraceBatch,
        sent_ns: i64,
        came_ns: i64,
    ) -> Result<u64, TraceError> {
        let mut offsets = vec![Some(0); batch.names.len()];
        let mut places: Vec<ServedHost> = Vec::new();
        for part in &batch.parts {
            let (offset, error) = self.heard(part, sent_ns, came_ns);
            let stored = &self.hosts[&part.host].place;
            // A host sends rows again until it receives their acknowledgement. A part that begins
            // before the stored place is a repetition.
            let is_new =
                stored.life != part.life || (part.spool, part.rows) >= (stored.spool, stored.rows);
            if let Some(number) = batch.names.find(part.host.as_bytes()) {
                offsets[number as usize] = is_new.then_some(offset);
            }
            if is_new {
                let mut place = stored.clone();
                part.note(&mut place);
                if part.count > 0 {
                    place.clock_offset_ns = offset;
                    place.clock_error_ns = place.clock_error_ns.max(error);
                }
                places.push(place);
            }
        }
        batch.rows.retain_mut(|row| {
            // Rows of a repeated part have no offset, and are dropped.
            let offset = offsets[row.host as usize];
            row.time_ns += offset.unwrap_or(0);
            offset.is_some()
        });
        self.leave_out(&mut batch, &mut places)?;
        let lost = batch.names.find(sheaf_log::LOST);
        for row in batch.rows.iter().filter(|row| Some(row.op) == lost) {
            let host = batch.names.text(row.host);
            let place = places.iter_mut().find(|place| place.host.as_bytes() == host);
            if let Some(place) = place {
                let count = row.bytes.max(0) as u64;
                // A buffer of another user may say anything.
                place.lost = place.lost.saturating_add(count);
                if row.errno == UNPLACED_ERRNO {
                    place.unplaced = place.unplaced.saturating_add(count);
                }
            }
        }
        let mut numbered =
            TraceBatch { names: std::mem::take(&mut self.names), ..TraceBatch::default() };
        numbered.add(&batch.rows, &batch.names);
        self.names = numbered.names;
        // The offsets of their clocks have moved the rows of each host.
        numbered.rows.sort_by_key(|row| row.time_ns);
        let facts = SpoolFacts::of_hosts(places);
        // The spool first: a host removes its rows as soon as its place has advanced.
        self.spool.append(&numbered.rows, &self.names, &facts)?;
        for place in facts.hosts {
            if let Some(host) = self.hosts.get_mut(&place.host) {
                host.place = place;
            }
        }
        self.rotate_in_time()?;
        Ok(numbered.rows.len() as u64)
    }

    /// Leaves out what was done before the trace began, which is counted in `places`, and what it
    /// does not keep.
    fn leave_out(
        &self,
        batch: &mut TraceBatch,
        places: &mut [ServedHost],
    ) -> Result<(), TraceError> {
        let (begun_ns, lost) = (self.kept.begun_ns, batch.names.find(sheaf_log::LOST));
        let mut before: HashMap<u32, u64> = HashMap::new();
        batch.rows.retain(|row| {
            // An operation that was under way when the trace began is part of it.
            let is_kept = row.time_ns.saturating_add(row.duration_ns) >= begun_ns;
            if !is_kept {
                let is_lost = Some(row.op) == lost;
                let operations = if is_lost { row.bytes.max(0) as u64 } else { 1 };
                let before = before.entry(row.host).or_default();
                *before = before.saturating_add(operations);
            }
            is_kept
        });
        for (host, operations) in before {
            let host = batch.names.text(host);
            let place = places.iter_mut().find(|place| place.host.as_bytes() == host);
            if let Some(place) = place {
                place.before = place.before.saturating_add(operations);
            }
        }
        let ready = self.kept.filter.ready();
        let mut ready = ready.map_err(|why| TraceError::damaged(&self.directory, why))?;
        ready.apply(&mut batch.rows, &batch.names);
        Ok(())
    }

    /// Takes in what a host says of its clock; what is to be added to its times, and how far off
    /// that is at most.
    fn heard(&mut self, part: &BatchPart, sent_ns: i64, came_ns: i64) -> (i64, i64) {
        let host = self.hosts.entry(part.host.clone()).or_default();
        let since = host.heard.map(|heard| heard.elapsed()).unwrap_or_default();
        host.clock.add(part.clock(sent_ns, came_ns), since);
        host.heard = Some(Instant::now());
        host.place.host.clone_from(&part.host);
        // Of a clock that was set while it was asked nothing is known but what was before.
        let before = (host.place.clock_offset_ns, host.place.clock_error_ns);
        host.clock.offset().unwrap_or(before)
    }

    fn rotate_in_time(&mut self) -> Result<(), TraceError> {
        if self.trimmed.elapsed() >= TRIM_TIME {
            self.trimmed = Instant::now();
            send(&self.to_store, StoreTask::Trim);
        }
        if !self.parts.are_reached(self.spool.rows(), self.begun) {
            return Ok(());
        }
        let number = self.spool.number();
        // The next spool begins with the places of all hosts, because this one is removed once it
        // is converted.
        let hosts = self.hosts.values().map(|host| host.place.clone()).collect();
        // Each spool has its own names, so that names which are no longer used do not accumulate.
        self.names = TraceNames::default();
        self.spool = SpoolWriter::begin(
            &self.directory,
            number + 1,
            &self.names,
            SpoolFacts::of_hosts(hosts),
        )?;
        self.begun = Instant::now();
        send(&self.to_store, StoreTask::Convert(number));
        Ok(())
    }

    /// Nothing more comes: what is there becomes files.
    ///
    /// # Panics
    /// When the thread that stores has panicked.
    #[must_use]
    pub fn finish(self) -> ServedTotals {
        let hosts: Vec<ServedHost> = self.hosts.into_values().map(|host| host.place).collect();
        send(&self.to_store, StoreTask::End(self.spool.number(), hosts.clone()));
        drop(self.to_store);
        let stored = self.storer.join().expect("the thread that stores has told its panic");
        let mut totals = self.before;
        (totals.rows, _) = stored.parts.stored();
        totals.lost = hosts.iter().map(|host| host.lost).sum();
        totals.unplaced = hosts.iter().map(|host| host.unplaced).sum();
        totals.names_lost = hosts.iter().map(|host| host.names_lost).sum();
        totals.damaged.extend(stored.damaged);
        totals.error = stored.failed.or(stored.unnoted);
        self.lock.end(&mut totals);
        ServedTotals { totals, removed: stored.parts.removed(), hosts }
    }
}
