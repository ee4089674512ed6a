//! The log server: stores what the servers of hosts have taken, each row once.
use super::batch::{BatchPart, HostPlace, TraceBatch};
use super::clock::HostClock;
use crate::record::{
    FILE_ROWS_MAX, FILE_TIME_MAX, SpoolsKept, StoreLock, check_own, count, keep, lock, send,
};
use crate::spool::{self, SpoolFacts, SpoolWriter};
use crate::{RecordTotals, ServedHost, TraceError, TraceInfo, TraceNames, TraceStore};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

/// A directory into which the traces of hosts go. Whatever ends the process that has it, another
/// goes on with it; what it had said to be stored is.
pub struct ServedStore {
    directory: PathBuf,
    spool: SpoolWriter,
    names: TraceNames,
    begun: Instant,
    hosts: BTreeMap<String, StoredHost>,
    to_store: Sender<u32>,
    storer: JoinHandle<SpoolsKept>,
    lock: StoreLock,
    /// What was stored before.
    before: RecordTotals,
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
    /// The hosts, by name.
    pub hosts: Vec<ServedHost>,
}

impl ServedStore {
    /// Begins in a directory that is there and empty, or goes on in one where another was before.
    ///
    /// # Errors
    /// When it cannot be read or written, or somebody writes it.
    pub fn open(directory: &Path) -> Result<Self, TraceError> {
        check_own(directory)?;
        let lock = lock(directory)?;
        let info = TraceInfo::read(directory)?.unwrap_or_default();
        let mut hosts: BTreeMap<String, ServedHost> =
            info.served.into_iter().map(|host| (host.host.clone(), host)).collect();
        let (mut before, mut next) = (RecordTotals::default(), 0);
        for (number, path) in spool::spools_of(directory)? {
            let (_, content) = spool::convert(directory, number, &mut TraceNames::default())?;
            before.damaged.extend(content.cut.map(|why| (path, why)));
            hosts.extend(content.hosts);
            next = number + 1;
        }
        while TraceStore::has_file(directory, next)? {
            next += 1;
        }
        count(directory, &mut before)?;
        let names = TraceNames::default();
        let facts = SpoolFacts::of_hosts(hosts.values().cloned().collect());
        let spool = SpoolWriter::begin(directory, next, &names, facts)?;
        let (to_store, spools) = channel();
        let kept_in = directory.to_owned();
        let storer = std::thread::Builder::new()
            .name("sheaf-trace-store".to_owned())
            .spawn(move || keep(&kept_in, &spools))
            .map_err(TraceError::io(directory))?;
        let stored = |(name, place)| (name, StoredHost { place, ..StoredHost::default() });
        Ok(Self {
            directory: directory.to_owned(),
            spool,
            names,
            begun: Instant::now(),
            hosts: hosts.into_iter().map(stored).collect(),
            to_store,
            storer,
            lock,
            before,
        })
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
            let offset = offsets[row.host as usize];
            row.time_ns += offset.unwrap_or(0);
            offset.is_some()
        });
        let lost = batch.names.find(crate::store::LOST);
        for row in batch.rows.iter().filter(|row| Some(row.op) == lost) {
            let host = batch.names.text(row.host);
            let place = places.iter_mut().find(|place| place.host.as_bytes() == host);
            if let Some(place) = place {
                place.lost += row.bytes.max(0) as u64;
            }
        }
        let mut numbered =
            TraceBatch { names: std::mem::take(&mut self.names), ..TraceBatch::default() };
        numbered.add(&batch.rows, &batch.names);
        self.names = numbered.names;
        numbered.rows.sort_by_key(|row| row.time_ns);
        let facts = SpoolFacts::of_hosts(places);
        self.spool.append(&numbered.rows, &self.names, &facts)?;
        for place in facts.hosts {
            if let Some(host) = self.hosts.get_mut(&place.host) {
                host.place = place;
            }
        }
        self.rotate_in_time()?;
        Ok(numbered.rows.len() as u64)
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
        let is_old = self.begun.elapsed() >= FILE_TIME_MAX && self.spool.rows() > 0;
        if self.spool.rows() < FILE_ROWS_MAX && !is_old {
            return Ok(());
        }
        let number = self.spool.number();
        let hosts = self.hosts.values().map(|host| host.place.clone()).collect();
        self.names = TraceNames::default();
        self.spool = SpoolWriter::begin(
            &self.directory,
            number + 1,
            &self.names,
            SpoolFacts::of_hosts(hosts),
        )?;
        self.begun = Instant::now();
        send(&self.to_store, number);
        Ok(())
    }

    /// Nothing more comes: what is there becomes files.
    ///
    /// # Panics
    /// When the thread that stores has panicked.
    #[must_use]
    pub fn finish(self) -> ServedTotals {
        send(&self.to_store, self.spool.number());
        drop(self.to_store);
        let (kept, damaged, error) =
            self.storer.join().expect("the thread that stores has told its panic");
        let hosts: Vec<ServedHost> = self.hosts.into_values().map(|host| host.place).collect();
        let mut totals = self.before;
        totals.rows += kept;
        totals.lost = hosts.iter().map(|host| host.lost).sum();
        totals.names_lost = hosts.iter().map(|host| host.names_lost).sum();
        totals.segments = hosts.iter().map(|host| host.segments).sum();
        totals.damaged.extend(damaged);
        totals.error = error;
        self.lock.end(&mut totals);
        ServedTotals { totals, hosts }
    }
}
