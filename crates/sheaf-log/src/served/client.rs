//! The log client: takes what programs of a host record, and keeps it until it is stored elsewhere.
//!
//! A spool of this host is removed when the log server has the rows in a spool of its own.
use super::batch::{BatchPart, CollectRequest, ReadyFilter, RowFilter, TraceBatch};
use super::live::{LIVE_SECONDS_MAX, LiveAnswer, LiveFilter, LiveRequest, LiveWindow};
use super::user::as_user;
use super::{BatchFilter, TRACE_LIVE, TRACE_MERGE, now_ns, shared_segments};
use crate::collect::Collector;
use crate::error::TraceError;
use crate::files::check_private;
use crate::row::{TraceNames, TraceRow};
use crate::spool::{self, SpoolFacts, SpoolWriter};
use rustix::fs::{FlockOperation, flock};
use rustix::process::Uid;
use sheaf_core::{Errno, lock};
use sheaf_tree::filter::Registry;
use sheaf_tree::service::{Blocking, Caller, ServiceRequest, Services, Site, Worker};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What log clients are asked, by the tags of requests: a [`CollectRequest`].
pub const COLLECT: i32 = 0;
/// A [`LiveRequest`].
pub const LIVE: i32 = 1;
/// The service of log clients.
pub const TRACE_SERVICE: &str = "trace";

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
/// A spool of so many bytes is followed by another, however few rows it has.
const SPOOL_BYTES_MAX: u64 = 8 << 20;
/// Nobody has asked for so long: rings are left to fill until somebody does.
const ASKED_MAX: Duration = Duration::from_secs(60);
/// Whoever has not asked for so long has gone, and another may.
const COLLECTOR_GONE: Duration = Duration::from_secs(5);
/// A spool of so many rows is followed by another.
const SPOOL_ROWS_MAX: u64 = 64 << 10;
/// Looks that found nothing are followed by longer and longer pauses.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(20);
/// Troubles that are kept to be told.
const TOLD_MAX: usize = 16;

/// What is added to a host's clock, for tests of what clocks do: in ns, by the host's name.
type HostSkew = fn(&str) -> i64;

/// By user and directory.
type ClientMap = HashMap<(Uid, PathBuf), Arc<LogClient>>;

/// The log clients of a process: one for each directory in which programs record.
#[derive(Clone)]
pub struct LogClients {
    clients: Arc<Mutex<ClientMap>>,
    skew: HostSkew,
}

impl Default for LogClients {
    fn default() -> Self {
        Self { clients: Arc::default(), skew: |_| 0 }
    }
}

impl LogClients {
    /// With clocks that are wrong by what `skew` says of a host, in ns.
    #[must_use]
    pub fn with_clocks(self, skew: fn(&str) -> i64) -> Self {
        Self { skew, ..self }
    }

    /// The filters that combine what these answer: whoever asks in a session that is there has to
    /// have them, too.
    #[must_use]
    pub fn filters(mut registry: Registry) -> Registry {
        registry.register(TRACE_MERGE, |_| Ok(Box::new(BatchFilter)));
        registry.register(TRACE_LIVE, |_| Ok(Box::new(LiveFilter)));
        registry
    }

    /// `services` with these, which have their [`LogClients::filters`].
    #[must_use]
    pub fn register(&self, services: Services) -> Services {
        let clients = self.clone();
        let open = move |site: &Site<'_>, caller: &Caller| -> Result<Box<dyn Worker>, Errno> {
            // Rows that are collected are gone here.
            if !caller.rights().may_write {
                return Err(Errno::PERM);
            }
            let leaf = site.leaf.ok_or(Errno::NOSYS)?;
            let (clients, host) = (clients.clone(), site.host.to_owned());
            Ok(Box::new(ClientWorker { clients, host, leaf }))
        };
        services.with(TRACE_SERVICE, Blocking::new(open).as_callers())
    }

    /// The client of a directory, begun if there is none.
    fn of(&self, directory: PathBuf, host: &str) -> Result<Arc<LogClient>, Errno> {
        let key = (rustix::process::geteuid(), directory);
        let mut clients = lock(&self.clients);
        if let Some(client) = clients.get(&key).filter(|client| lock(&client.state).is_at_work) {
            return Ok(Arc::clone(client));
        }
        let skew = (self.skew)(host);
        let state = ClientState::open(&key.1, host, skew).map_err(|error| {
            tracing::warn!(host, %error, "what programs record here cannot be taken");
            errno_of(&error)
        })?;
        let client = Arc::new(LogClient { state: Mutex::new(state) });
        let at_work = Arc::clone(&client);
        std::thread::Builder::new()
            .name("sheaf-trace-take".to_owned())
            .spawn(move || at_work.work())
            .map_err(|error| Errno::from_io(&error))?;
        clients.insert(key, Arc::clone(&client));
        Ok(client)
    }
}

/// One stream at one host.
struct ClientWorker {
    clients: LogClients,
    host: String,
    leaf: u32,
}

impl Worker for ClientWorker {
    fn request(&mut self, request: &ServiceRequest) -> Result<Vec<u8>, Errno> {
        match request.tag {
            COLLECT => self.collect(&request.payload),
            LIVE => self.live(&request.payload),
            _ => Err(Errno::OPNOTSUPP),
        }
    }
}

impl ClientWorker {
    fn client(&self, buffers: &str) -> Result<Arc<LogClient>, Errno> {
        self.clients.of(self.segments(buffers), &self.host)
    }

    /// Where programs of this user record for this host.
    fn segments(&self, buffers: &str) -> PathBuf {
        shared_segments(Path::new(&buffers.replace("%h", &self.host)))
    }

    /// What follows on what is stored.
    fn collect(&self, payload: &[u8]) -> Result<Vec<u8>, Errno> {
        let heard_ns = now_ns() + (self.clients.skew)(&self.host);
        let asked: CollectRequest = postcard::from_bytes(payload).map_err(|_| Errno::BADMSG)?;
        as_user(asked.user.as_deref(), || self.collect_as_user(&asked, heard_ns))
    }

    fn collect_as_user(&self, asked: &CollectRequest, heard_ns: i64) -> Result<Vec<u8>, Errno> {
        let client = self.client(&asked.buffers)?;
        let mut state = lock(&client.state);
        // Another host of the same machine's, or another trace: each row is stored once.
        if state.host != self.host || !state.is_for(asked.collector) {
            return Err(Errno::BUSY);
        }
        let mut batch = state.answer(asked, self.leaf).map_err(|error| {
            tracing::warn!(host = self.host, %error, "what programs have recorded cannot be given");
            errno_of(&error)
        })?;
        for part in &mut batch.parts {
            (part.heard_ns, part.answered_ns) = (heard_ns, now_ns() + state.skew);
        }
        drop(state);
        batch.encode()
    }

    /// What is done just now.
    fn live(&self, payload: &[u8]) -> Result<Vec<u8>, Errno> {
        let asked: LiveRequest = postcard::from_bytes(payload).map_err(|_| Errno::BADMSG)?;
        as_user(asked.user.as_deref(), || {
            // Nothing is made for a look: where no program records, nothing is left behind.
            let segments = self.segments(&asked.buffers);
            if segments.parent().is_some_and(Path::exists) && !segments.exists() {
                return Ok(LiveAnswer::default().encode());
            }
            let client = self.client(&asked.buffers)?;
            let mut state = lock(&client.state);
            if state.host != self.host {
                return Err(Errno::BUSY);
            }
            Ok(state.live_answer(&asked).encode())
        })
    }
}

/// Takes what is recorded into one directory.
struct LogClient {
    state: Mutex<ClientState>,
}

impl LogClient {
    /// Takes for as long as anybody asks.
    fn work(&self) {
        let mut pause = PAUSE_MIN;
        loop {
            let mut state = lock(&self.state);
            if state.asked.elapsed() >= ASKED_MAX {
                state.is_at_work = false;
                return;
            }
            let came = state.turn(false);
            drop(state);
            pause = if came { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
            std::thread::sleep(pause);
        }
    }
}

struct ClientState {
    directory: PathBuf,
    host: String,
    skew: i64,
    life: u64,
    collector: Collector,
    names: TraceNames,
    /// What is written, and how many bytes those hold that were ended and are not stored elsewhere.
    spool: SpoolWriter,
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
    is_at_work: bool,
    _lock: File,
}

impl ClientState {
    /// Goes on where the last client of the directory was, whatever ended it.
    fn open(directory: &Path, host: &str, skew: i64) -> Result<Self, TraceError> {
        match std::fs::DirBuilder::new().mode(0o700).create(directory) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(TraceError::io(directory)(error));
            }
            _ => {}
        }
        check_private(directory)?;
        let held = hold(directory)?;
        let life = life_of(directory)?;
        let (mut names, mut sources, mut ended) = (TraceNames::default(), None, BTreeMap::new());
        let (mut damaged, mut next) = (Vec::new(), 0);
        for (number, path) in spool::spools_of(directory)? {
            next = number + 1;
            let content = match spool::read(&path, &mut names, |_, _| Ok(())) {
                Err(TraceError::Damaged { why, .. }) => {
                    // Of another version, for one: what comes now is taken all the same.
                    let kept = spool::keep_damaged(directory, number)?;
                    damaged.push(format!("{why}: it is kept as {}", kept.display()));
                    continue;
                }
                read => read?,
            };
            if content.has_begun {
                sources = Some(content.sources);
            }
            // Where it was cut off the rest is in the rings still.
            let cut = content.cut.filter(|_| content.is_damaged);
            damaged.extend(cut.map(|why| format!("{}: {why}", path.display())));
            let about = std::fs::metadata(&path).map_err(TraceError::io(&path))?;
            ended.insert(number, about.len());
        }
        let mut collector = Collector::new(directory, host)?;
        collector.resume(sources.into_iter().flatten().map(|(_, source)| source));
        let facts = SpoolFacts::of_sources(collector.states());
        let spool = SpoolWriter::begin(directory, next, &names, facts)?;
        Ok(Self {
            directory: directory.to_owned(),
            host: host.to_owned(),
            skew,
            life,
            collector,
            names,
            spool,
            ended,
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
            damaged,
            collected_for: None,
            asked: Instant::now(),
            is_asked: false,
            is_at_work: true,
            _lock: held,
        })
    }

    /// Whether whoever asks is the one for whom this is kept, or that one has gone.
    fn is_for(&mut self, collector: u64) -> bool {
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
    fn turn(&mut self, is_wanted: bool) -> bool {
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
                    self.names_lost += collected.names_lost;
                    for (path, why) in &collected.damaged {
                        self.tell(format!("{}: {why}", path.display()));
                    }
                    self.live.add(&collected.rows, &self.names, Instant::now());
                    if self.is_only_looked_at {
                        collected.rows.clear();
                    }
                    self.ready.apply(&mut collected.rows, &self.names);
                    collected.rows.iter_mut().for_each(|row| row.time_ns += self.skew);
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
        let is_long = self.spool.rows() >= SPOOL_ROWS_MAX || self.spool.bytes() >= SPOOL_BYTES_MAX;
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
    fn answer(&mut self, asked: &CollectRequest, leaf: u32) -> Result<TraceBatch, TraceError> {
        (self.asked, self.is_asked) = (Instant::now(), true);
        (self.collected, self.is_only_looked_at) = (Some(self.asked), false);
        let marker = self.directory.join(COLLECTED_FILE);
        File::create(&marker).map_err(TraceError::io(&marker))?;
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
    fn live_answer(&mut self, asked: &LiveRequest) -> LiveAnswer {
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
        let content = spool::read(&path, &mut names, |more, _| {
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

/// Nobody else takes from this directory while this is open.
fn hold(directory: &Path) -> Result<File, TraceError> {
    let path = directory.join(CLIENT_LOCK);
    let file = File::options().create(true).append(true).mode(0o600).open(&path);
    let file = file.map_err(TraceError::io(&path))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)
        .map_err(|error| TraceError::io(&path)(error.into()))?;
    Ok(file)
}

/// When somebody stored what is recorded there; nothing where nobody has, as far as can be seen.
fn collected_at(directory: &Path) -> Option<Instant> {
    let about = std::fs::metadata(directory.join(COLLECTED_FILE)).ok()?;
    let age = about.modified().ok()?.elapsed().unwrap_or_default();
    Instant::now().checked_sub(age)
}

/// What somebody has stored who has left.
pub(super) fn stored_of(directory: &Path) -> Result<(u32, u64), TraceError> {
    let path = directory.join(STORED_FILE);
    let text = match std::fs::read_to_string(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((0, 0)),
        read => read.map_err(TraceError::io(&path))?,
    };
    let words = text.trim_end().split_once(' ');
    let stored = words.and_then(|(spool, rows)| Some((spool.parse().ok()?, rows.parse().ok()?)));
    stored.ok_or_else(|| TraceError::damaged(&path, "it is no spool's number and its rows"))
}

fn write_stored(directory: &Path, (spool, rows): (u32, u64)) -> Result<(), TraceError> {
    let path = directory.join(STORED_FILE);
    // Written under another name first, so that the file is complete or not there.
    let part = path.with_extension("part");
    std::fs::write(&part, format!("{spool} {rows}\n")).map_err(TraceError::io(&part))?;
    std::fs::rename(&part, &path).map_err(TraceError::io(&path))
}

/// The directory's number, made once.
fn life_of(directory: &Path) -> Result<u64, TraceError> {
    let path = directory.join(LIFE_FILE);
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            let life = u64::from_str_radix(text.trim_end(), 16);
            return life.map_err(|error| TraceError::damaged(&path, error));
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(TraceError::io(&path)(error)),
    }
    let life = random(&path)?;
    let part = path.with_extension("part");
    let mut file = File::create(&part).map_err(TraceError::io(&part))?;
    writeln!(file, "{life:016x}").map_err(TraceError::io(&part))?;
    std::fs::rename(&part, &path).map_err(TraceError::io(&path))?;
    Ok(life)
}

/// A number that no other directory and no other client has; it is nobody's who is 0.
fn random(path: &Path) -> Result<u64, TraceError> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| TraceError::io(path)(error.into()))?;
    Ok(u64::from_le_bytes(bytes).max(1))
}

fn errno_of(error: &TraceError) -> Errno {
    match error {
        TraceError::Io { source, .. } => Errno::from_io(source),
        TraceError::Damaged { .. } | TraceError::Removed { .. } => Errno::PERM,
    }
}
