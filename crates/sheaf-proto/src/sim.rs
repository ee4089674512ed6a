//! The deterministic simulator: a whole tree of [`Node`]s in virtual time.
//!
//! The nodes are those that run over sockets; only the network, the clock and the faults are
//! made up, and all chance comes from one seed. A run is repeated exactly by its seed.
//!
//! ```
//! use sheaf_proto::filter::Registry;
//! use sheaf_proto::packet::{PacketValue, pack, unpack};
//! use sheaf_proto::{Node, Packet, Sync};
//! use sheaf_proto::sim::{Shape, Sim, SimConfig};
//! use std::time::Duration;
//! let answer = |leaf: u32, packet: &Packet, node: &mut Node| {
//!     let value = pack(&[PacketValue::U64(u64::from(leaf))]).unwrap();
//!     node.reply(packet.stream, packet.wave, packet.tag, &value);
//! };
//! let shape = Shape::balanced(&[8, 8]);
//! let mut sim = Sim::new(shape.clone(), Registry::with_builtins(), answer, SimConfig::seeded(7));
//! let stream = sim.open(shape.everyone(), "sum", b"%uld", Sync::WaitForAll);
//! sim.send(stream, 0, b"", Some(Duration::from_secs(1)));
//! let result = sim.wait(stream).unwrap();
//! assert!(result.coverage.is_full());
//! assert_eq!(unpack(&result.payload.unwrap()).unwrap(), [PacketValue::U64(63 * 64 / 2)]);
//! ```
use crate::config::{Time, Tuning};
use crate::control::{MachineId, Notice, Sync};
use crate::filter::Registry;
use crate::links::LinkId;
use crate::node::{Event, Node, Packet, PacketContent};
use crate::stream::WaveResult;
use bytes::Bytes;
use rustc_hash::{FxHashMap, FxHashSet};
use sheaf_core::RangeSet;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

mod connect;
pub mod fault;
mod place;
mod report;
mod shape;
mod wire;
mod world;

pub use connect::IN_VAIN;
pub use fault::Fault;
pub use report::{OTHER_CLASSES, SimError, SimOperation, SimReport, simulate};
pub use shape::Shape;
pub use wire::Physics;
use wire::{SimWire, Trouble};

/// What the simulated leaves do.
pub trait Leaves {
    /// Part of a packet has reached `leaf`; it may answer by way of `node`. Its bytes count as
    /// consumed afterwards.
    fn packet(&mut self, leaf: u32, packet: &Packet, node: &mut Node);

    /// How long the leaf works before [`Leaves::packet`] is called; packets take turns.
    fn think(&mut self, _leaf: u32, _rng: &mut fastrand::Rng) -> Duration {
        Duration::ZERO
    }

    /// A node that is no leaf begins, for the first time or again.
    fn node_begins(&mut self, _rank: u32, _node: &mut Node) {}

    /// The machine that `leaf` is on, if it is to be in the session once.
    fn machine(&self, _leaf: u32) -> Option<MachineId> {
        None
    }

    /// The process of `leaf` was started again, and remembers nothing.
    fn began_anew(&mut self, _leaf: u32) {}

    /// Answers to a wave are no longer wanted, or a stream is over.
    fn other(&mut self, _leaf: u32, _event: &Event, _node: &mut Node) {}
}

impl<F: FnMut(u32, &Packet, &mut Node)> Leaves for F {
    fn packet(&mut self, leaf: u32, packet: &Packet, node: &mut Node) {
        self(leaf, packet, node);
    }
}

/// How a simulation runs.
#[derive(Debug, Clone, Copy)]
pub struct SimConfig {
    /// Where all chance comes from.
    pub seed: u64,
    /// What time everything takes.
    pub physics: Physics,
    /// Bounds and intervals of the nodes.
    pub tuning: Tuning,
    /// Links carry heartbeats, and fail when they do not.
    pub heartbeats: bool,
    /// The links of the planned tree are between processes of one machine.
    pub near: bool,
    /// Bytes arrive in other pieces than they were sent in.
    pub shred: bool,
    /// Looks after every step at how many bytes a node holds ([`Sim::queued_bytes_peak`]); slow.
    pub watch_queues: bool,
}

impl SimConfig {
    /// Everything as it is on a good day.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self {
            seed,
            physics: Physics::default(),
            tuning: Tuning::default(),
            heartbeats: true,
            near: false,
            shred: false,
            watch_queues: false,
        }
    }
}

/// A tree in virtual time.
pub struct Sim<L> {
    shape: Shape,
    config: SimConfig,
    leaves: L,
    rng: fastrand::Rng,
    now: Time,
    agenda: BinaryHeap<Reverse<Scheduled>>,
    sequence: u64,
    hosts: Vec<SimHost>,
    /// Two for each connection: downwards, upwards. The first connections are those of the planned
    /// tree, numbered like the nodes below them.
    wires: Vec<SimWire>,
    /// Connections made since.
    made: Vec<Connection>,
    /// The connection of a node's link, where it is not the planned one.
    routes: FxHashMap<(u32, LinkId), u32>,
    troubles: FxHashMap<u32, Trouble>,
    /// Pairs of nodes (the lower one first) between which a cable is cut, and by which connection
    /// that was found.
    cuts: FxHashMap<u32, (u32, u32)>,
    isolated: FxHashSet<u32>,
    ready: Option<RangeSet>,
    notices: Vec<Notice>,
    traffic: Traffic,
    queued_bytes_peak: u64,
}

/// What has gone over all links together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Pieces that were sent at once.
    pub messages: u64,
    /// Frames taken in.
    pub frames: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Peers that broke the protocol.
    pub violations: u64,
}

/// The place of a node.
struct SimHost {
    /// `None` once it has ended or was killed.
    node: Option<Node>,
    /// The own leaf of a node that is none, and where they are joined: the link at the node, and
    /// that at the leaf.
    own: Option<Node>,
    joint: (LinkId, LinkId),
    stopped: bool,
    /// A [`SimWhat::Wake`] is on the agenda.
    waking: bool,
    /// When its tick is due; `u64::MAX`: never.
    tick: Time,
    /// Its processor, wires and service are taken until then.
    busy: Time,
    sending: Time,
    serving: Time,
    /// What has come while it was busy or stopped.
    inbox: VecDeque<SimInput>,
    /// The machine has no power: who connects is not even refused.
    off: bool,
    /// The connection to its parent.
    up: u32,
    /// Connections it has had since the start.
    made: Vec<u32>,
    /// Which search for a parent it is in, how many ancestors it has tried, and who is tried
    /// first.
    search: Option<Time>,
    tried: u32,
    place: Option<u32>,
    /// A [`SimWhat::HandOver`] is on the agenda, and how long adopted children stay until then.
    handing_over: bool,
    stays: FxHashMap<u32, place::SimStay>,
}

/// A connection between an orphan and an ancestor.
#[derive(Debug, Clone, Copy)]
struct Connection {
    upper: u32,
    /// `None` until the ancestor has taken it.
    upper_link: Option<LinkId>,
    lower: u32,
    lower_link: LinkId,
}

enum SimInput {
    /// Over which wire.
    Bytes(u32, Bytes),
    Lost(u32),
    /// Somebody has connected.
    Knock(u32),
    Serve(Box<Event>),
    Tick,
}

enum SimWhat {
    /// A chunk has come over a wire.
    Chunk(u32, Bytes),
    /// A wire has been closed at its other end.
    End(u32),
    Serve(u32, Box<Event>),
    Tick(u32),
    Wake(u32),
    /// An orphan tries the next ancestor.
    Search(u32),
    Knock(u32),
    /// A node looks whether children that it has adopted can go to their places.
    HandOver(u32),
    Fault(Box<Fault>),
}

struct Scheduled {
    at: Time,
    /// Decides between entries of the same time: first come, first served.
    sequence: u64,
    what: SimWhat,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        // No two entries have the same sequence number.
        self.sequence == other.sequence
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

impl<L: Leaves> Sim<L> {
    /// A tree whose nodes have just been started and connected.
    #[must_use]
    pub fn new(shape: Shape, registry: Registry, leaves: L, config: SimConfig) -> Self {
        let mut hosts = Vec::with_capacity(shape.nodes() as usize);
        for rank in 0..shape.nodes() {
            // Those that combine are processes of their own, with modules of their own.
            let combines = rank > 0 && shape.leaf(rank).is_none();
            let registry = if combines { registry.apart() } else { registry.clone() };
            hosts.push(SimHost::new(&shape, rank, registry, &config));
        }
        let mut sim = Self {
            wires: vec![SimWire::default(); 2 * hosts.len()],
            rng: fastrand::Rng::with_seed(config.seed),
            shape,
            config,
            leaves,
            now: Time(0),
            agenda: BinaryHeap::new(),
            sequence: 0,
            hosts,
            made: Vec::new(),
            routes: FxHashMap::default(),
            troubles: FxHashMap::default(),
            cuts: FxHashMap::default(),
            isolated: FxHashSet::default(),
            ready: None,
            notices: Vec::new(),
            traffic: Traffic::default(),
            queued_bytes_peak: 0,
        };
        for (rank, host) in (0..).zip(&mut sim.hosts) {
            if let Some(node) = host.node.as_mut().filter(|_| sim.shape.leaf(rank).is_none()) {
                sim.leaves.node_begins(rank, node);
            }
        }
        for rank in (0..sim.shape.nodes()).rev() {
            if let Some(leaf) = sim.shape.leaf(rank) {
                let machine = sim.leaves.machine(leaf);
                sim.with(rank, |node, _| {
                    world::set_machine(node, leaf, machine);
                    node.tell_ready();
                });
            } else if sim.config.heartbeats {
                // Puts its first tick on the agenda.
                sim.with(rank, |_, _| ());
            }
        }
        sim
    }

    /// The shape of the tree.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// What time it is.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// What has gone over all links together.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// The most bytes that any node held at once, when [`SimConfig::watch_queues`] is set.
    #[must_use]
    pub fn queued_bytes_peak(&self) -> u64 {
        self.queued_bytes_peak
    }

    /// The leaves that have started, once the tree has started as far as it will.
    #[must_use]
    pub fn ready(&self) -> Option<&RangeSet> {
        self.ready.as_ref()
    }

    /// What the root has been told so far.
    #[must_use]
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// The leaves' model.
    #[must_use]
    pub fn leaves(&self) -> &L {
        &self.leaves
    }

    /// Frames and bytes that the root has taken in.
    #[must_use]
    pub fn root_traffic(&self) -> (u64, u64) {
        let counters = self.hosts[0].node.as_ref().map(Node::child_counters).unwrap_or_default();
        (counters.frames_in, counters.bytes_in)
    }

    /// A node, unless it has ended.
    #[must_use]
    pub fn node(&self, rank: u32) -> Option<&Node> {
        self.hosts[rank as usize].node.as_ref()
    }

    /// Whether a node works: it has not ended, and is not stopped.
    #[must_use]
    pub fn is_running(&self, rank: u32) -> bool {
        let host = &self.hosts[rank as usize];
        host.node.is_some() && !host.stopped
    }

    /// Lets something happen `after` this moment.
    pub fn schedule(&mut self, after: Duration, fault: Fault) {
        let at = self.now + after;
        self.push(at, SimWhat::Fault(Box::new(fault)));
    }

    /// Does something with a node at once, as its process would; `None` when it has ended.
    pub fn with<R>(&mut self, rank: u32, act: impl FnOnce(&mut Node, Time) -> R) -> Option<R> {
        let now = self.now;
        let result = self.hosts[rank as usize].node.as_mut().map(|node| act(node, now));
        if !self.hosts[rank as usize].stopped {
            self.settle(rank);
        }
        result
    }

    /// Puts bytes on the wire towards a node's parent (`up`) or from it, as a peer gone mad would.
    pub fn inject(&mut self, rank: u32, up: bool, bytes: Bytes) {
        self.transmit(2 * rank + u32::from(up), bytes);
    }

    /// Opens a stream at the root.
    pub fn open(&mut self, members: RangeSet, filter: &str, params: &[u8], sync: Sync) -> u32 {
        let opened = self.with(0, |root, _| root.open("", members, filter, params, sync));
        opened.expect("the root has no parent to lose")
    }

    /// Sends a packet from the root; the number of its wave.
    pub fn send<'a>(
        &mut self,
        stream: u32,
        tag: i32,
        payload: impl Into<PacketContent<'a>>,
        expect: Option<Duration>,
    ) -> u64 {
        let sent = self.with(0, |root, now| root.send(now, stream, tag, payload, expect));
        sent.expect("the root has no parent to lose")
    }

    /// Takes the oldest result of a stream, if there is one by now.
    pub fn take(&mut self, stream: u32) -> Option<WaveResult> {
        let taken = self.hosts[0].node.as_mut()?.take(stream)?;
        // Where there is nothing, nothing changes: tests ask after every step.
        if !self.hosts[0].stopped {
            self.settle(0);
        }
        Some(taken)
    }

    /// Runs until the stream has a result; `None` when nothing is left to happen.
    pub fn wait(&mut self, stream: u32) -> Option<WaveResult> {
        loop {
            if let Some(result) = self.take(stream) {
                return Some(result);
            }
            if !self.step() {
                return None;
            }
        }
    }

    /// Runs until `span` has passed or nothing is left to happen.
    pub fn run_for(&mut self, span: Duration) {
        let end = self.now + span;
        while self.agenda.peek().is_some_and(|Reverse(entry)| entry.at <= end) {
            self.step();
        }
        self.now = self.now.max(end);
    }

    /// Lets the next thing happen; `false` when there is none.
    pub fn step(&mut self) -> bool {
        let Some(Reverse(entry)) = self.agenda.pop() else { return false };
        self.now = self.now.max(entry.at);
        match entry.what {
            SimWhat::Chunk(wire, chunk) => self.arrive(wire, Some(chunk)),
            SimWhat::End(wire) => self.arrive(wire, None),
            SimWhat::Serve(rank, event) => self.deliver(rank, SimInput::Serve(event)),
            // A tick that was moved leaves its old entry on the agenda, where it must do nothing.
            SimWhat::Tick(rank) if self.hosts[rank as usize].tick == entry.at => {
                self.hosts[rank as usize].tick = Time(u64::MAX);
                self.deliver(rank, SimInput::Tick);
            }
            SimWhat::Tick(_) => {}
            SimWhat::Wake(rank) => self.wake(rank),
            SimWhat::Search(rank) => self.search(rank),
            SimWhat::Knock(connection) => {
                let upper = self.ends(connection).upper;
                self.deliver(upper, SimInput::Knock(connection));
            }
            SimWhat::HandOver(rank) => self.hand_over(rank),
            SimWhat::Fault(fault) => self.suffer(*fault),
        }
        true
    }

    fn push(&mut self, at: Time, what: SimWhat) {
        self.sequence += 1;
        self.agenda.push(Reverse(Scheduled { at, sequence: self.sequence, what }));
    }
}
