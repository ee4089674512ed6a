//! The front end: the root of a tree whose leaves are the user's programs.
use crate::attach::AttachHello;
use crate::down;
use crate::error::{Error, ErrorCode};
use crate::event::{self, EventDescriptor, Events};
use crate::filter::{self, AssignFilter, FilterWork};
use crate::hub::HUB_TROUBLE;
use crate::inbox::{Inbox, Message};
use crate::meter::{self, Meter, MeterContext, MeterRecord, Meters};
use crate::plan::BackEndPlan;
use crate::reactor;
use crate::wire::{Control, Described, Down, Parcel, UpwardMessage, Waits};
use crate::{BACK_ENDS, HUBS};
use bytes::Bytes;
use rustc_hash::FxHashMap;
use sheaf_core::{RangeSet, lock};
use sheaf_tree::filter::{HeldUpListener, NodeInfo, Registry};
use sheaf_tree::launch::{
    self, Carrier, LeafProgram, Options, Program, ProgramContent, Ssh, Starter,
};
use sheaf_tree::link::Listen;
use sheaf_tree::proto::own;
use sheaf_tree::service::Services;
use sheaf_tree::{Network, Notice, Stream, Sync, Want};
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak, mpsc};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

mod hubs;
mod notice;
mod pump;

use hubs::take_ports;
use notice::{complain, not_started, tell, when_held_up};
use pump::{Leaving, Predecessor, Pump};

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
    /// The client that starts nodes on other hosts, and the user's options for it.
    pub remote_shell: Vec<String>,
    /// How long everything may take to start.
    pub startup_timeout: Duration,
}

/// What a stream is to be.
#[derive(Debug, Clone)]
pub struct OpenRequest {
    /// Ranks of its members.
    pub members: Vec<u32>,
    /// Which filter each node has: see [`AssignFilter::parse`].
    pub filter: String,
    /// What the user's filters are told.
    pub params: Vec<u8>,
    /// Which filter each node has on the way down: only those of the user's change anything.
    pub down: String,
    /// What they are told.
    pub down_params: Vec<u8>,
    /// The nodes measure what passes.
    pub measured: bool,
    /// How waves are made.
    pub sync: Sync,
    /// What the headers want to know of it at the back end.
    pub about: Vec<u8>,
}

/// The streams that are open, by the application's number.
type FrontStreams = FxHashMap<u32, Arc<FrontStream>>;

struct FrontStream {
    stream: Arc<Stream>,
    pump: JoinHandle<()>,
    leaving: Arc<Leaving>,
    /// Ends with the pump's work.
    done: Mutex<Option<oneshot::Receiver<()>>>,
    members: Vec<u32>,
    turn: Mutex<FrontTurn>,
    meter: Option<Arc<Meter>>,
    /// Some node has a filter of the user's on the way up.
    has_modules: bool,
}

/// Held by who sends.
struct FrontTurn {
    /// Another stream of the tree carries the application's stream now.
    moved: bool,
    /// The front end's filter on the way down.
    down: Option<FilterWork>,
}

impl Drop for FrontStream {
    fn drop(&mut self) {
        self.pump.abort();
    }
}

/// How much later than its members' time a wave may end.
const WAVE_END: Duration = Duration::from_secs(2);

/// A running session at its root.
pub struct Front {
    network: Mutex<Option<Network>>,
    plan: Arc<Mutex<BackEndPlan>>,
    streams: Arc<Mutex<FrontStreams>>,
    /// Knows the filters that were loaded.
    registry: Registry,
    meters: Arc<Meters>,
    /// Counts the parameters that were set.
    params_version: AtomicU32,
    next_stream: Mutex<u32>,
    watch: Mutex<Option<JoinHandle<()>>>,
    /// Hears who attaches itself, where back ends do.
    joins: Mutex<Option<JoinHandle<()>>>,
    /// Told of filters that hold up this process.
    _held_up: Arc<HeldUpListener>,
    /// What has arrived.
    pub inbox: Arc<Inbox>,
    /// What has happened.
    pub events: Arc<Events>,
}

impl Front {
    /// Starts a session and waits until its back ends are there.
    ///
    /// # Errors
    /// [`ErrorCode::Topology`] and [`ErrorCode::Launch`]; the message says what failed where.
    pub fn create(create: &Create) -> Result<Arc<Self>, Error> {
        let plan = BackEndPlan::parse(&create.topology, create.back_end.is_none())?;
        if plan.topology().leaves_len() == 0 {
            return Err(Error::new(
                ErrorCode::Topology,
                "the topology has no node but the front end",
            ));
        }
        let options = Options {
            configs: [BACK_ENDS, HUBS].map(|name| (name.to_owned(), plan.to_session())).into(),
            ..Options::default()
        };
        let mut program = Program::new(create.inner.clone(), Vec::new());
        program.guests = plan.attach();
        if let Some(path) = create.back_end.clone() {
            program.leaf = Some(LeafProgram { path, args: create.args.clone(), placed: true });
        }
        if !plan.is_here() {
            let content = ProgramContent::of_program(&create.inner)?;
            program.carrier = Carrier::Tls;
            program.listen = Listen::Address(Ipv4Addr::UNSPECIFIED.into());
            program.starter =
                Starter::Ssh(Ssh { command: create.remote_shell.clone(), ..Ssh::new(content) });
        }
        let topology = plan.topology().clone();
        let patience = create.startup_timeout;
        let meters = Arc::new(Meters::default());
        let registry = filter::registry(&meters);
        let known = Services::new(registry.clone());
        reactor::starts_processes()?;
        let started = reactor::wait(reactor::spawn(async move {
            let network = launch::processes(&topology, &known, &options, &program).await?;
            let ready = network.ready(patience).await;
            Ok::<_, launch::LaunchError>((network, ready))
        })?);
        let (network, ready) = started
            .map_err(io::Error::other)?
            .map_err(|error| Error::new(ErrorCode::Launch, error.to_string()))?;
        let all = network.everyone();
        let here = ready.clone().unwrap_or_default();
        let late = plan.attach() && ready.is_some() && !anybody_lost(&network);
        if here != all && !late {
            let error = not_started(&plan, &network, ready.is_none(), patience);
            let _ = reactor::spawn(network.shutdown()).map(reactor::wait);
            return Err(error);
        }
        let events = Arc::default();
        let front = Arc::new(Self {
            _held_up: when_held_up(&events),
            network: Mutex::new(Some(network)),
            plan: Arc::new(Mutex::new(plan)),
            streams: Arc::default(),
            registry,
            meters,
            params_version: AtomicU32::new(0),
            next_stream: Mutex::new(STREAM_BASE),
            watch: Mutex::default(),
            joins: Mutex::default(),
            inbox: Arc::default(),
            events,
        });
        front.begin()?;
        if front.plan().attach() {
            front.open_hubs(patience)?;
        }
        Ok(front)
    }

    /// Lets back ends attach themselves, and waits until they can everywhere.
    fn open_hubs(self: &Arc<Self>, patience: Duration) -> Result<(), Error> {
        let network = self.network()?;
        let (tell, hear) = mpsc::channel();
        let wanted = network.clone();
        let events = Arc::clone(&self.events);
        *lock(&self.joins) = Some(reactor::spawn(async move {
            let troubles = async {
                loop {
                    complain(&wanted.wanted(HUB_TROUBLE).await.note, &events);
                }
            };
            // Without a listener the session is over.
            let joins = async { while tell.send(wanted.wanted(BACK_ENDS).await).is_ok() {} };
            tokio::select! {
                () = joins => {}
                () = troubles => {}
            }
        })?);
        let weak = Arc::downgrade(self);
        // Opening a stream waits, which a task must not.
        let listen = move || {
            while let Ok(Want { leaf, note }) = hear.recv() {
                let Some(front) = Weak::upgrade(&weak) else { return };
                front.attached(leaf, &note);
            }
        };
        std::thread::Builder::new().name("sheaf-joins".to_owned()).spawn(listen)?;
        let hubs = self.plan().hubs();
        let members: RangeSet = hubs.iter().map(|&rank| own::leaf_of(rank)).collect();
        let stream = network.open(HUBS, members, "null", &[], Sync::WaitForAll);
        let answers = reactor::wait(reactor::spawn(async move {
            stream.ask(0, &[], patience).await;
            // Who is late is said by the wave, which ends first.
            stream.recv_until(Instant::now() + patience + WAVE_END).await
        })?);
        let answers = answers.map_err(io::Error::other)?;
        take_ports(&mut self.plan(), answers, patience)
    }

    /// A back end has attached itself as a leaf. It may say so more than once.
    fn attached(&self, leaf: u32, note: &[u8]) {
        let Ok(AttachHello { rank, host }) = postcard::from_bytes(note) else { return };
        let parent = self.plan().above(leaf).unwrap_or(crate::NO_RANK);
        // A second back end of the same rank is a mistake of its own; the first stays.
        if !self.plan().add(rank, leaf, &host) || self.open_own(rank).is_err() {
            return;
        }
        let (class, kind, stream) =
            (event::CLASS_TOPOLOGY, event::topology::BACK_END_ADDED, u32::MAX);
        self.events.push(EventDescriptor { class, kind, rank, parent, stream, text: host });
    }

    /// Opens the stream of every back end, and begins to listen for what happens.
    fn begin(&self) -> Result<(), Error> {
        let back_ends: Vec<u32> = self.plan().back_ends().take(OWN_STREAMS_MAX as usize).collect();
        for rank in back_ends {
            self.open_own(rank)?;
        }
        let (network, plan, events) =
            (self.network()?, Arc::clone(&self.plan), Arc::clone(&self.events));
        let streams = Arc::downgrade(&self.streams);
        let watch = async move {
            let mut seen = 0;
            loop {
                let notices = network.notices_from(&mut seen).await;
                let streams = streams.upgrade();
                let carried = |by: u32| {
                    let streams = lock(streams.as_ref()?);
                    streams.iter().find(|(_, entry)| entry.stream.id() == by).map(|(&id, _)| id)
                };
                notices.iter().for_each(|notice| tell(notice, &plan, &events, &carried));
                if let Some(streams) = streams {
                    lock(&streams).values().for_each(|entry| entry.leaving.some.notify_one());
                }
            }
        };
        *lock(&self.watch) = Some(reactor::spawn(watch)?);
        Ok(())
    }

    /// The tree as it is now.
    pub fn plan(&self) -> MutexGuard<'_, BackEndPlan> {
        lock(&self.plan)
    }

    fn network(&self) -> Result<Network, Error> {
        lock(&self.network)
            .clone()
            .ok_or_else(|| Error::new(ErrorCode::Ended, "the session is over"))
    }

    fn open_own(&self, rank: u32) -> Result<(), Error> {
        let open = OpenRequest {
            members: vec![rank],
            filter: "null".to_owned(),
            params: Vec::new(),
            down: String::new(),
            down_params: Vec::new(),
            measured: false,
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

    /// Opens a stream of the tree for the application's stream `id`. Where an earlier one carries
    /// that, it is replaced: packets sent before arrive before those sent after, in both
    /// directions.
    ///
    /// # Errors
    /// [`ErrorCode::Usage`] for members that are no back ends; [`ErrorCode::Ended`].
    pub fn open_as(&self, id: u32, open: &OpenRequest) -> Result<(), Error> {
        let leaves = self.plan().leaves(&open.members)?;
        let network = self.network()?;
        let mut filter = String::new();
        let mut assign =
            AssignFilter::parse(&open.filter, open.sync == Sync::WaitForAll, &open.params)?;
        let down = AssignFilter::parse(&open.down, true, &open.down_params)?;
        let down = Some(down).filter(AssignFilter::has_modules);
        assign.measured = open.measured.then_some(id);
        let (stream, upward) = match assign.simple() {
            Some("null") => {
                (network.open(BACK_ENDS, leaves, "null", &[], open.sync), UpwardMessage::Parcels)
            }
            Some(name) => {
                filter = name.to_owned();
                (network.open(BACK_ENDS, leaves, name, &[], open.sync), UpwardMessage::Packets)
            }
            None => (
                network.open(BACK_ENDS, leaves, filter::NAME, &assign.encode(), open.sync),
                UpwardMessage::Lists,
            ),
        };
        let stream = Arc::new(stream);
        let turn = FrontTurn { moved: false, down: self.own_down_filter(down.as_ref(), id)? };
        let has_modules = assign.has_modules();
        let up = (upward == UpwardMessage::Lists).then_some(assign);
        let (members, about) = (open.members.clone(), open.about.clone());
        let waits = match open.sync {
            Sync::WaitForAll => Waits::ForAll,
            Sync::TimeOut(after) => {
                Waits::Until(u32::try_from(after.as_millis()).unwrap_or(u32::MAX))
            }
            Sync::DontWait => Waits::Not,
        };
        let described = Described { id, members, upward, up, down, waits, filter, about };
        reactor::wait(stream.send(0, &Control::Describe(Box::new(described)).encode(), None));
        self.inbox.open(id);
        let (tell, done) = oneshot::channel();
        let leaving = Arc::new(Leaving::default());
        let pump = Pump {
            id,
            upward,
            stream: Arc::clone(&stream),
            inbox: Arc::clone(&self.inbox),
            events: Arc::clone(&self.events),
            source: if open.members.len() == 1 { open.members[0] } else { crate::NO_RANK },
            loose: open.sync != Sync::WaitForAll,
            streams: Arc::downgrade(&self.streams),
            before: self.retire(id),
            leaving: Arc::clone(&leaving),
            done: tell,
        };
        let entry = FrontStream {
            stream,
            pump: reactor::spawn(pump.run())?,
            leaving,
            done: Mutex::new(Some(done)),
            members: open.members.clone(),
            turn: Mutex::new(turn),
            meter: open.measured.then(|| self.meters.open(id)),
            has_modules,
        };
        lock(&self.streams).insert(id, Arc::new(entry));
        Ok(())
    }

    /// The filter of the user's that this node has on the way down.
    fn own_down_filter(
        &self,
        down: Option<&AssignFilter>,
        id: u32,
    ) -> Result<Option<FilterWork>, Error> {
        let Some(down) = down.filter(|down| down.at(0).is_some()) else { return Ok(None) };
        let info = NodeInfo::planned(self.plan().topology().root(), id);
        let made = FilterWork::new(down.at(0), &down.params, &self.registry, &info);
        made.map(Some).map_err(|error| Error::new(ErrorCode::Filter, error.message))
    }

    /// Sends nothing more on the stream of the tree that carries `id`, and says so to its members.
    fn retire(&self, id: u32) -> Option<Predecessor> {
        let entry = lock(&self.streams).get(&id).cloned()?;
        let mut turn = lock(&entry.turn);
        turn.moved = true;
        reactor::wait(entry.stream.send(0, &Control::Moved.encode(), None));
        drop(turn);
        entry.leaving.moved.store(true, Ordering::Relaxed);
        entry.leaving.some.notify_one();
        let done = lock(&entry.done).take()?;
        Some(Predecessor { entry, done })
    }

    /// Gives the user's filters of a stream other parameters: downwards for packets that are sent
    /// from now on, upwards for the answers to them at the latest. They keep their state.
    ///
    /// # Errors
    /// [`ErrorCode::Unknown`] without such a stream, [`ErrorCode::Ended`].
    pub fn set_params(&self, id: u32, down: bool, params: &[u8]) -> Result<(), Error> {
        let (entry, turn) = (self.entry(id)?, |entry: &FrontStream| lock(&entry.turn).moved);
        if turn(&entry) {
            return Err(Error::no_stream(id));
        }
        if !down && !entry.has_modules {
            return Ok(());
        }
        let version = self.params_version.fetch_add(1, Ordering::Relaxed) + 1;
        let word = Control::Params { down, version, bytes: params.to_vec() }.encode();
        let mut turn = lock(&entry.turn);
        if let Some(own) = turn.down.as_mut().filter(|_| down) {
            own.set_params(params);
        }
        reactor::wait(entry.stream.send(0, &word, None));
        Ok(())
    }

    /// Sends a shared object to every node; gives the name by which streams call its `function`.
    ///
    /// # Errors
    /// [`ErrorCode::System`] when it cannot be read, [`ErrorCode::Filter`] when it cannot run or
    /// has no such function.
    pub fn load_filter(&self, path: &Path, function: &str) -> Result<String, Error> {
        let failed =
            |why: String| Error::new(ErrorCode::Filter, format!("{}: {why}", path.display()));
        let bytes = std::fs::read(path).map_err(|error| {
            Error::new(ErrorCode::System, format!("{}: {error}", path.display()))
        })?;
        let module = self.network()?.load_filter(bytes).map_err(|error| failed(error.message))?;
        let name = module.filter(function);
        // Nobody uses this one: it says whether there is such a function.
        self.registry
            .instantiate(&name, &[], &NodeInfo::default())
            .map_err(|error| failed(error.message))?;
        Ok(name)
    }

    /// What every node has measured of stream `id`, or of all ([`meter::ALL_STREAMS`]), by rank.
    ///
    /// # Errors
    /// [`ErrorCode::Unknown`] without such a stream, [`ErrorCode::TimedOut`] when nobody answers in
    /// time.
    pub fn measure(&self, id: u32, timeout: Duration) -> Result<Vec<MeterRecord>, Error> {
        let members = match id {
            meter::ALL_STREAMS => self.plan().back_ends().collect(),
            id => self.entry(id)?.members.clone(),
        };
        let leaves = self.plan().leaves(&members)?;
        let stream = self.network()?.open(
            BACK_ENDS,
            leaves,
            filter::PERF_NAME,
            &id.to_le_bytes(),
            Sync::WaitForAll,
        );
        let word = Control::Measure { id }.encode();
        let gathered = reactor::wait(reactor::spawn(async move {
            stream.ask(0, &word, timeout).await;
            stream.recv_until(Instant::now() + 2 * timeout).await
        })?);
        let gathered = gathered.map_err(io::Error::other)?;
        let late = || Error::new(ErrorCode::TimedOut, "no node said in time what it has measured");
        let payload = gathered.ok().and_then(|result| result.payload).ok_or_else(late)?;
        let mut records = MeterRecord::decode(&payload)
            .map_err(|error| Error::new(ErrorCode::Packet, error.message))?;
        records.sort_by_key(|record| record.rank);
        Ok(records)
    }

    fn entry(&self, id: u32) -> Result<Arc<FrontStream>, Error> {
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
    /// [`ErrorCode::Unknown`] without such a stream, [`ErrorCode::Ended`].
    pub fn send(
        &self,
        id: u32,
        tag: i32,
        packet: &[u8],
        destinations: &[u32],
    ) -> Result<(), Error> {
        if !self.is_open(id) && id < STREAM_BASE && self.plan().leaves(&[id]).is_ok() {
            self.open_own(id)?;
        }
        self.send_on(id, tag, packet, destinations)?;
        if self.network()?.is_behind() {
            reactor::keep();
        }
        Ok(())
    }

    fn send_on(&self, id: u32, tag: i32, packet: &[u8], destinations: &[u32]) -> Result<(), Error> {
        let nodes =
            if destinations.is_empty() { Vec::new() } else { self.plan().nodes_of(destinations) };
        loop {
            if self.inbox.is_ended() {
                return Err(Error::new(ErrorCode::Ended, "the session is over"));
            }
            let entry = self.entry(id)?;
            let mut turn = lock(&entry.turn);
            if turn.moved {
                drop(turn);
                // The other one is there in a moment.
                std::thread::yield_now();
                continue;
            }
            let send = |tag: i32, packet: &[u8]| {
                if let Some(meter) = &entry.meter {
                    meter.count(MeterContext::Sent, packet.len());
                }
                reactor::wait(entry.stream.send(tag, &Down::encode(packet, &nodes), None));
            };
            let Some(filter) = &mut turn.down else {
                send(tag, packet);
                return Ok(());
            };
            let (mut out, mut back) = (Vec::new(), Vec::new());
            let packet = down::parcel(tag, Bytes::copy_from_slice(packet));
            filter
                .run(vec![packet], 0, &mut out, &mut back)
                .map_err(|error| Error::new(ErrorCode::Filter, error.message))?;
            out.iter().for_each(|Parcel { tag, packet, .. }| send(*tag, packet));
            for Parcel { tag, source, packet } in back {
                self.inbox.push(Message { stream: id, tag, source, packet, owed: None });
            }
            return Ok(());
        }
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
        if let Some(joins) = lock(&self.joins).take() {
            joins.abort();
        }
        if let Some(watch) = lock(&self.watch).take() {
            watch.abort();
        }
        lock(&self.streams).clear();
        if let Some(network) = lock(&self.network).take() {
            // Without a thread there is nothing to wait for.
            let _ = reactor::spawn(network.shutdown()).map(reactor::wait);
        }
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// When a wait of `timeout_ms` ends; a negative one never does.
#[must_use]
pub fn deadline(timeout_ms: i64) -> Option<Instant> {
    u64::try_from(timeout_ms).ok().map(|ms| Instant::now() + Duration::from_millis(ms))
}

fn anybody_lost(network: &Network) -> bool {
    network.notices().iter().any(|notice| matches!(notice, Notice::Lost { .. }))
}
