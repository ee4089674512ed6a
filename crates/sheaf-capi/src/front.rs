//! The front end: the root of a tree whose leaves are the user's programs.
use crate::error::{Code, Error};
use crate::event::{self, Event, Events};
use crate::filter::{self, Assign};
use crate::inbox::{Inbox, Message};
use crate::plan::Plan;
use crate::runtime;
use crate::wire::{Control, Described, Down, HUB_TAG, HubWord, Parcel, Upward, WAVES_STEP, Waits};
use bytes::Bytes;
use rustc_hash::FxHashMap;
use sheaf_core::RangeSet;
use sheaf_tree::filter::builtin::null;
use sheaf_tree::launch::{self, LeafProgram, Options, Program};
use sheaf_tree::{Network, Notice, Stream, Sync, WaveResult};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// The first number of a stream that the application opens; those below are ranks, of the streams
/// that lead to one back end.
pub const STREAM_BASE: u32 = 1 << 20;
/// Back ends beyond this many get their own stream only when something is sent to them.
const OWN_STREAMS_MAX: u32 = 1 << 14;
/// How to start a session.
#[derive(Debug, Clone)]
pub struct Create {
    /// The text of a topology file.
    pub topology: String,
    /// What runs at the leaves; without it, back ends attach themselves there later.
    pub back_end: Option<PathBuf>,
    /// Its arguments.
    pub args: Vec<String>,
    /// What runs at the inner nodes.
    pub inner: PathBuf,
    /// How long everything may take to start.
    pub startup_timeout: Duration,
}

/// What a stream is to be.
#[derive(Debug, Clone)]
pub struct Open {
    /// Ranks of its members.
    pub members: Vec<u32>,
    /// Which filter each node has: see [`Assign::parse`].
    pub filter: String,
    /// What the user's filters are told.
    pub params: Vec<u8>,
    /// How waves are made.
    pub sync: Sync,
    /// What the headers want to know of it at the back end.
    pub about: Vec<u8>,
}

struct Entry {
    stream: Arc<Stream>,
    pump: JoinHandle<()>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.pump.abort();
    }
}

/// A running session at its root.
pub struct Front {
    network: Mutex<Option<Network>>,
    plan: Arc<Mutex<Plan>>,
    streams: Mutex<FxHashMap<u32, Arc<Entry>>>,
    next_stream: Mutex<u32>,
    watch: Mutex<Option<JoinHandle<()>>>,
    /// Where what leaves say of attached back ends goes, while there can be some.
    words: Mutex<Option<mpsc::Sender<(u32, HubWord)>>>,
    /// Told when a leaf begins to listen.
    opened: Condvar,
    /// What has arrived.
    pub inbox: Arc<Inbox>,
    /// What has happened.
    pub events: Arc<Events>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Front {
    /// Starts a session and waits until its back ends are there.
    ///
    /// # Errors
    /// [`Code::Topology`] and [`Code::Launch`]; the message says what failed where.
    pub fn create(create: &Create) -> Result<Arc<Self>, Error> {
        let plan = Plan::parse(&create.topology, create.back_end.is_none())?;
        if plan.topology().leaves_len() == 0 {
            return Err(Error::new(Code::Topology, "the topology has no node but the front end"));
        }
        let options = Options { service: plan.to_session(None), ..Options::default() };
        let mut program = Program::new(create.inner.clone(), Vec::new());
        if let Some(path) = create.back_end.clone() {
            program.leaf = Some(LeafProgram { path, args: create.args.clone() });
        }
        let topology = plan.topology().clone();
        let patience = create.startup_timeout;
        let started = runtime::run(async move {
            let registry = filter::registry();
            let network = launch::processes(&topology, &registry, &options, &program).await?;
            let ready = network.ready(patience).await;
            Ok::<_, launch::LaunchError>((network, ready))
        })?;
        let (network, ready) = started.map_err(|error| Error::new(Code::Launch, error.to_string()))?;
        let all = network.everyone();
        let here = ready.clone().unwrap_or_default();
        if here != all {
            let error = not_started(&plan, &network, ready.is_none(), patience);
            let _ = runtime::run(network.shutdown());
            return Err(error);
        }
        let (tell, hear) = mpsc::channel();
        let front = Arc::new(Self {
            words: Mutex::new(plan.attach().then_some(tell)),
            opened: Condvar::new(),
            network: Mutex::new(Some(network)),
            plan: Arc::new(Mutex::new(plan)),
            streams: Mutex::default(),
            next_stream: Mutex::new(STREAM_BASE),
            watch: Mutex::default(),
            inbox: Arc::default(),
            events: Arc::default(),
        });
        if front.plan().attach() {
            let weak = Arc::downgrade(&front);
            let listen = move || {
                while let Ok((hub, word)) = hear.recv() {
                    let Some(front) = Weak::upgrade(&weak) else { return };
                    front.hear(hub, word);
                }
            };
            std::thread::Builder::new().name("sheaf-joins".to_owned()).spawn(listen)?;
        }
        front.begin()?;
        front.wait_open(patience)?;
        Ok(front)
    }

    /// Waits until back ends can attach themselves everywhere, if they are to.
    fn wait_open(&self, patience: Duration) -> Result<(), Error> {
        let closed = |plan: &mut Plan| !plan.is_open();
        let waited = self.opened.wait_timeout_while(self.plan(), patience, closed);
        if waited.unwrap_or_else(PoisonError::into_inner).1.timed_out() {
            return Err(Error::new(Code::Launch, "not every leaf listens for back ends in time"));
        }
        Ok(())
    }

    /// A leaf to which back ends attach themselves has something to say.
    fn hear(&self, hub: u32, word: HubWord) {
        let (kind, rank, text) = match word {
            HubWord::Open(port) => {
                self.plan().set_port(hub, port);
                self.opened.notify_all();
                return;
            }
            HubWord::Joined { rank, host } => {
                // A second back end of the same rank is a mistake of its own; the first stays.
                if !self.plan().add(rank, hub, &host) || self.open_own(rank).is_err() {
                    return;
                }
                (event::topology::BACK_END_ADDED, rank, host)
            }
            HubWord::Left { rank } => {
                if !self.plan().remove(rank) {
                    return;
                }
                lock(&self.streams).remove(&rank);
                self.inbox.close(rank);
                (event::topology::REMOVED, rank, "it has left".to_owned())
            }
        };
        let (class, stream) = (event::CLASS_TOPOLOGY, u32::MAX);
        self.events.push(Event { class, kind, rank, parent: hub, stream, text });
    }

    /// Opens the stream of every back end, and begins to listen for what happens.
    fn begin(&self) -> Result<(), Error> {
        let back_ends: Vec<u32> = self.plan().back_ends().take(OWN_STREAMS_MAX as usize).collect();
        let hubs = self.plan().hubs();
        for rank in back_ends.into_iter().chain(hubs) {
            self.open_own(rank)?;
        }
        let (network, plan, events) = (self.network()?, Arc::clone(&self.plan), Arc::clone(&self.events));
        let watch = async move {
            let mut seen = 0;
            loop {
                let notices = network.notices_from(&mut seen).await;
                notices.iter().for_each(|notice| tell(notice, &plan, &events));
            }
        };
        *lock(&self.watch) = Some(runtime::handle()?.spawn(watch));
        Ok(())
    }

    /// The tree as it is now.
    pub fn plan(&self) -> MutexGuard<'_, Plan> {
        lock(&self.plan)
    }

    fn network(&self) -> Result<Network, Error> {
        lock(&self.network).clone().ok_or_else(|| Error::new(Code::Ended, "the session is over"))
    }

    fn open_own(&self, rank: u32) -> Result<(), Error> {
        let open = Open {
            members: vec![rank],
            filter: "null".to_owned(),
            params: Vec::new(),
            sync: Sync::DontWait,
            about: Vec::new(),
        };
        self.open_as(rank, &open)
    }

    /// A number for a stream that is opened later, by [`Front::open_as`].
    pub fn new_id(&self) -> u32 {
        let mut next = lock(&self.next_stream);
        let id = *next;
        *next += 1;
        self.inbox.open(id);
        id
    }

    /// Opens a stream of the tree for the application's stream `id`, in place of an earlier one.
    ///
    /// # Errors
    /// [`Code::Usage`] for members that are no back ends; [`Code::Ended`].
    pub fn open_as(&self, id: u32, open: &Open) -> Result<(), Error> {
        let leaves = self.plan().leaves(&open.members)?;
        let network = self.network()?;
        let mut filter = String::new();
        let assign = Assign::parse(&open.filter, open.sync == Sync::WaitForAll, &open.params)?;
        let (stream, upward) = match assign.simple() {
            Some("null") => (network.open(leaves, "null", &[], open.sync), Upward::Parcels),
            Some(name) => {
                filter = name.to_owned();
                (network.open(leaves, name, &[], open.sync), Upward::Packets)
            }
            None => (network.open(leaves, filter::NAME, &assign.encode(), open.sync), Upward::Lists),
        };
        let stream = Arc::new(stream);
        let up = (upward == Upward::Lists).then_some(assign);
        let (members, about) = (open.members.clone(), open.about.clone());
        let waits = match open.sync {
            Sync::WaitForAll => Waits::ForAll,
            Sync::TimeOut(after) => Waits::Until(u32::try_from(after.as_millis()).unwrap_or(u32::MAX)),
            Sync::DontWait => Waits::Not,
        };
        let described = Described { id, members, upward, up, waits, filter, about };
        let word = Control::Describe(described).encode();
        runtime::block_on(stream.send(0, &word, None));
        self.inbox.open(id);
        let pump = Pump {
            id,
            upward,
            stream: Arc::clone(&stream),
            inbox: Arc::clone(&self.inbox),
            events: Arc::clone(&self.events),
            source: if open.members.len() == 1 { open.members[0] } else { crate::NO_RANK },
            loose: open.sync != Sync::WaitForAll,
            words: self.plan().hubs().contains(&id).then(|| lock(&self.words).clone()).flatten(),
        };
        let pump = runtime::handle()?.spawn(pump.run());
        lock(&self.streams).insert(id, Arc::new(Entry { stream, pump }));
        Ok(())
    }

    fn entry(&self, id: u32) -> Result<Arc<Entry>, Error> {
        let entry = lock(&self.streams).get(&id).cloned();
        entry.ok_or_else(|| Error::no_stream(id))
    }

    /// Whether a stream of the tree is open for `id`.
    pub fn is_open(&self, id: u32) -> bool {
        lock(&self.streams).contains_key(&id)
    }

    /// Sends a packet to the members of a stream, or to those named; waits for room.
    ///
    /// # Errors
    /// [`Code::Unknown`] without such a stream, [`Code::Ended`].
    pub fn send(&self, id: u32, tag: i32, packet: &[u8], destinations: &[u32]) -> Result<(), Error> {
        if !self.is_open(id) && id < STREAM_BASE && self.plan().leaves(&[id]).is_ok() {
            self.open_own(id)?;
        }
        self.send_payload(id, tag, &Down::encode(packet, destinations))
    }

    fn send_payload(&self, id: u32, tag: i32, payload: &[u8]) -> Result<(), Error> {
        if self.inbox.is_ended() {
            return Err(Error::new(Code::Ended, "the session is over"));
        }
        let entry = self.entry(id)?;
        runtime::block_on(entry.stream.send(tag, payload, None));
        Ok(())
    }

    /// Closes a stream.
    pub fn close(&self, id: u32) {
        lock(&self.streams).remove(&id);
        self.inbox.forget(id);
    }

    /// Ends the session and waits for its processes.
    pub fn shut_down(&self) {
        self.inbox.end();
        self.events.end();
        lock(&self.words).take();
        if let Some(watch) = lock(&self.watch).take() {
            watch.abort();
        }
        lock(&self.streams).clear();
        if let Some(network) = lock(&self.network).take() {
            // Without a thread there is nothing to wait for.
            let _ = runtime::run(network.shutdown());
        }
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.shut_down();
    }
}

fn not_started(plan: &Plan, network: &Network, late: bool, patience: Duration) -> Error {
    let causes = network.notices().into_iter().filter_map(|notice| match notice {
        Notice::Lost { leaves, cause, .. } => {
            let hosts: Vec<String> = leaves
                .ranges()
                .iter()
                .map(|&(first, last)| plan.topology().fold_leaves(first..last + 1))
                .collect();
            Some(format!("{}: {cause}", hosts.join(",")))
        }
        _ => None,
    });
    let causes: Vec<String> = causes.take(8).collect();
    let message = match (causes.is_empty(), late) {
        (false, _) => format!("back ends did not start: {}", causes.join("; ")),
        (true, true) => format!("back ends did not start within {} s", patience.as_secs()),
        (true, false) => "back ends did not start".to_owned(),
    };
    Error::new(Code::Launch, message)
}

fn tell(notice: &Notice, plan: &Mutex<Plan>, events: &Events) {
    let say = |kind: u32, rank: u32, parent: u32, text: &str| {
        let (class, stream, text) = (event::CLASS_TOPOLOGY, u32::MAX, text.to_owned());
        events.push(Event { class, kind, rank, parent, stream, text });
    };
    let with_leaves = |rank: u32, leaves: &RangeSet| -> BTreeSet<u32> {
        let plan = lock(plan);
        leaves.iter().filter_map(|leaf| plan.rank_of_leaf(leaf)).chain([rank]).collect()
    };
    let gone = |by: u32, rank: u32, leaves: &RangeSet, cause: &str| {
        for one in with_leaves(rank, leaves) {
            if lock(plan).remove(one) {
                say(event::topology::REMOVED, one, by, cause);
            }
        }
    };
    match notice {
        Notice::Lost { by, rank, leaves, cause, .. } => gone(*by, *rank, leaves, cause),
        Notice::Left { rank, leaves } => gone(crate::NO_RANK, *rank, leaves, "it has left"),
        Notice::Joined { by, rank, leaves } => {
            for one in with_leaves(*rank, leaves) {
                let role = lock(plan).restore(one, (one == *rank).then_some(*by));
                match role {
                    Some(2) => say(event::topology::BACK_END_ADDED, one, *by, "it is back"),
                    Some(_) => say(event::topology::INNER_ADDED, one, *by, "it is back"),
                    None => {}
                }
            }
        }
        Notice::FilterFailed { by, stream, message, .. } => {
            let (class, kind) = (event::CLASS_ERROR, event::error::USAGE);
            let text = format!("a filter failed: {message}");
            events.push(Event { class, kind, rank: *by, parent: crate::NO_RANK, stream: *stream, text });
        }
    }
}

/// Carries the results of a stream of the tree into the inbox.
struct Pump {
    id: u32,
    upward: Upward,
    stream: Arc<Stream>,
    inbox: Arc<Inbox>,
    events: Arc<Events>,
    source: u32,
    /// Waves may stay unfinished for ever.
    loose: bool,
    /// The stream leads to a leaf to which back ends attach themselves.
    words: Option<mpsc::Sender<(u32, HubWord)>>,
}

impl Pump {
    async fn run(self) {
        let mut results = Vec::new();
        let mut ahead = Ahead::default();
        loop {
            self.stream.recv_batch(&mut results).await;
            for result in results.drain(..) {
                if self.loose
                    && let Some(wave) = ahead.note(&result)
                {
                    self.stream.send(0, &Control::CatchUp { wave }.encode(), None).await;
                }
                if let Some(payload) = result.payload {
                    self.deliver(result.tag, payload);
                }
            }
            self.inbox.room(self.id).await;
        }
    }

    fn deliver(&self, tag: i32, payload: Bytes) {
        let parcels = match self.upward {
            Upward::Packets => Ok(vec![Parcel { tag, source: self.source, packet: payload }]),
            Upward::Lists => Parcel::list(payload),
            Upward::Parcels => items(&payload),
        };
        match parcels {
            Ok(parcels) => {
                for Parcel { tag, source, packet } in parcels {
                    if let Some(words) = self.words.as_ref().filter(|_| tag == HUB_TAG) {
                        if let Ok(word) = postcard::from_bytes(&packet) {
                            // Without a listener the session is over.
                            let _ = words.send((source, word));
                        }
                        continue;
                    }
                    self.inbox.push(Message { stream: self.id, tag, source, packet, owed: None });
                }
            }
            Err(error) => {
                let (class, kind, text) = (event::CLASS_ERROR, event::error::INTERNAL, error.message);
                let (rank, parent) = (self.source, crate::NO_RANK);
                self.events.push(Event { class, kind, rank, parent, stream: self.id, text });
                return;
            }
        }
        if self.events.wants_data() {
            let (class, kind, text) = (event::CLASS_DATA, 0, String::new());
            let (rank, parent) = (crate::NO_RANK, crate::NO_RANK);
            self.events.push(Event { class, kind, rank, parent, stream: self.id, text });
        }
    }
}

/// The parcels in the list that the filter `null` makes.
fn items(payload: &Bytes) -> Result<Vec<Parcel>, Error> {
    let items = null::items(payload).map_err(|error| Error::new(Code::Packet, error.message))?;
    let mut parcels = Vec::with_capacity(items.len());
    for item in items {
        parcels.extend(Parcel::list(payload.slice_ref(item))?);
    }
    Ok(parcels)
}

/// How far the waves of a stream have come that does not wait for all.
#[derive(Default)]
struct Ahead {
    /// Waves before this are over.
    done: u64,
    /// Waves after it that are over.
    over: BTreeSet<u64>,
    newest: u64,
    asked: u64,
}

impl Ahead {
    /// Notes a result; gives the wave up to which idle members must catch up, if it is time.
    fn note(&mut self, result: &WaveResult) -> Option<u64> {
        self.newest = self.newest.max(result.wave);
        if result.complete {
            self.over.insert(result.wave);
            while self.over.remove(&self.done) {
                self.done += 1;
            }
        }
        // Everyone has followed the last word: the next one may be said.
        (self.done >= self.asked && self.newest >= self.asked + WAVES_STEP).then(|| {
            self.asked = self.newest;
            self.newest
        })
    }
}

/// When a wait of `timeout_ms` ends; a negative one never does.
#[must_use]
pub fn deadline(timeout_ms: i64) -> Option<Instant> {
    u64::try_from(timeout_ms).ok().map(|ms| Instant::now() + Duration::from_millis(ms))
}
