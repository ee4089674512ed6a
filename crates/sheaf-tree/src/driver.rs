//! Drives the nodes of one process: sockets, links between nodes of the process, and time.
//!
//! A process holds one node (a server, an inner node, a root of real processes) or a whole tree
//! (the embedded engine). Everything it has is behind one lock, taken once per batch that
//! arrives and not per message; whoever holds it runs the node and writes its output at once,
//! so no message crosses a channel or wakes a second task.
use crate::link::{Ancestor, Audit, DoorAddress, is_sound};
use crate::proto::control::{Caller, Verdict};
use crate::proto::filter::Registry;
use crate::proto::report::PeerLinkReport;
use crate::proto::{Event, LinkId, Node, NodeConfig, Notice, Packet, Time, own};
use clock::DriverClock;
use rustc_hash::FxHashMap;
use sheaf_core::{Errno, RangeSet, lock};
use std::any::Any;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::Waker;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};

mod alibi;
mod claims;
mod clock;
mod look;
mod socket;
mod transport;

pub(crate) use alibi::is_stopped;
use claims::Claims;
pub(crate) use socket::{Autopsy, Death, OwnFault, SocketPeer};
use socket::{Port, Room};

/// How often the nodes inside a process are looked at while one of them waits for something.
const LOCAL_TICK_MS: u64 = 20;

/// Where a link of a node leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    /// Nowhere yet: frames wait.
    Unattached,
    /// To another node of this process: its number, and the link there.
    Local(usize, LinkId),
    /// To a socket.
    Socket(usize),
}

/// What works at a leaf: the driver hands it what comes there, and knows no more of it.
pub(crate) trait Works: Send {
    fn opened(&mut self, stream: u32, service: &str, caller: &Caller);
    fn packet(&mut self, packet: Packet, leaf: &mut Node);
    fn cancelled(&mut self, stream: u32, wave: u64, leaf: &mut Node);
    fn closed(&mut self, stream: u32);
    /// The leaf may take what it was held back with.
    fn resume(&mut self, leaf: &mut Node);
    /// The session is over.
    fn ended(&mut self);
}

/// Links of a server to others beside the tree.
pub(crate) trait PeerLinks: Any + Send + Sync {
    /// Those it has begun, and how many others' it has taken.
    fn report(&self) -> (Vec<PeerLinkReport>, u32);
}

/// The nodes of this process and what joins them.
pub(crate) struct Core {
    pub nodes: Vec<Node>,
    routes: Vec<Vec<Route>>,
    works: Vec<Option<Box<dyn Works>>>,
    /// The nodes of own leaves.
    owners: FxHashMap<usize, usize>,
    sockets: Vec<Option<Port>>,
    /// Its links are worth looking out for.
    pub looks_out: bool,
    /// Nodes that may have events or output.
    work: VecDeque<usize>,
    /// The thread that keeps the time has been asked to let the nodes work.
    deferred: bool,
    room: Room,
    clock: DriverClock,
    armed: Option<Time>,
    /// Who waits for a result of a stream, and who for room on it.
    for_result: FxHashMap<u32, Vec<Waker>>,
    for_room: FxHashMap<u32, Vec<Waker>>,
    /// Who waits for the answer to which request.
    pub claims: Claims,
    event_wakers: Vec<Waker>,
    fresh: Vec<u32>,
    /// Leaves that run, once the tree has started as far as it will.
    pub ready: Option<RangeSet>,
    /// What the root was told, oldest first, bounded by [`NOTICES_MAX`].
    pub notices: VecDeque<Notice>,
    /// When each of them came, in seconds since 1970.
    pub notice_times: VecDeque<u64>,
    /// How many there were in all.
    pub notices_total: u64,
    /// The links of this process's server to others.
    pub peers: Option<Weak<dyn PeerLinks>>,
    /// Streams that services at leaves want.
    pub wants: Wants,
    /// The parent of this process's node is gone.
    pub ended: bool,
    /// Whether somebody looks for another parent when that one is lost.
    pub may_search: bool,
    /// This process's node is to be given another parent.
    pub orphaned: bool,
    /// Who was let in at this process's door, and who was not.
    pub audit: Arc<Audit>,
    /// Makes the invitation of a leaf that comes by itself, at a node that has such leaves.
    pub invite: Option<Arc<Invite>>,
    /// Where that door is.
    pub door: Option<DoorAddress>,
    /// Below whom its place is, when its parent has said so.
    pub place: Option<Ancestor>,
    /// To whoever starts nodes.
    pub errands: Option<mpsc::Sender<Errand>>,
    /// Where the children of the process's own node listen, as they said last.
    pub doors: FxHashMap<u32, DoorAddress>,
}

/// Makes the invitation of a leaf.
pub(crate) type Invite = dyn Fn(u32) -> std::io::Result<Vec<u8>> + Send + Sync;

/// By the name of the service.
pub(crate) type Wants = FxHashMap<String, WantList>;

/// A service at a leaf asks for a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want {
    /// The leaf.
    pub leaf: u32,
    /// What the service has to say.
    pub note: Vec<u8>,
}

/// What is wanted for one service, bounded by [`WANTS_MAX`]: whoever is dropped asks again.
#[derive(Debug, Default)]
pub(crate) struct WantList(VecDeque<Want>);

/// The most streams that are wanted of one service and not looked at.
const WANTS_MAX: usize = 4096;

impl WantList {
    fn push(&mut self, want: Want) {
        if self.0.len() < WANTS_MAX && !self.0.contains(&want) {
            self.0.push_back(want);
        }
    }

    pub fn pop(&mut self) -> Option<Want> {
        self.0.pop_front()
    }
}

/// What a node has for whoever starts nodes.
pub(crate) enum Errand {
    /// A node below asks for help.
    Notice(Notice),
    /// The root has answered.
    Verdict(Verdict),
}

fn seconds_now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// The most notices kept for a root that does not read them; the oldest go first.
pub const NOTICES_MAX: usize = 4096;

/// A [`Core`] with its lock.
pub(crate) struct Shared {
    core: Mutex<Core>,
    timer: Notify,
}

impl Shared {
    pub fn new() -> Arc<Self> {
        let core = Core {
            nodes: Vec::new(),
            routes: Vec::new(),
            works: Vec::new(),
            owners: FxHashMap::default(),
            sockets: Vec::new(),
            looks_out: false,
            work: VecDeque::new(),
            deferred: false,
            room: Room::default(),
            clock: DriverClock::start(),
            armed: None,
            for_result: FxHashMap::default(),
            for_room: FxHashMap::default(),
            claims: Claims::default(),
            event_wakers: Vec::new(),
            fresh: Vec::new(),
            ready: None,
            notices: VecDeque::new(),
            notice_times: VecDeque::new(),
            notices_total: 0,
            peers: None,
            wants: Wants::default(),
            ended: false,
            may_search: false,
            orphaned: false,
            audit: Arc::default(),
            invite: None,
            door: None,
            place: None,
            errands: None,
            doors: FxHashMap::default(),
        };
        Arc::new(Self { core: Mutex::new(core), timer: Notify::new() })
    }

    /// Runs `act` under the lock, then lets the nodes work and writes what they have.
    pub fn run<R>(&self, act: impl FnOnce(&mut Core, Time) -> R) -> R {
        let mut core = self.lock();
        let now = core.now();
        let result = act(&mut core, now);
        core.turn(now);
        let rearm = core.rearm();
        drop(core);
        if rearm {
            self.timer.notify_one();
        }
        result
    }

    /// Looks without letting anything happen.
    pub fn peek<R>(&self, act: impl FnOnce(&mut Core) -> R) -> R {
        act(&mut self.lock())
    }

    /// [`Shared::run`] on one node.
    pub fn with_node<R>(&self, node: usize, act: impl FnOnce(&mut Node) -> R) -> R {
        self.run(|core, _| {
            core.work.push_back(node);
            act(&mut core.nodes[node])
        })
    }

    /// [`Shared::with_node`], but what there is to send is sent by the thread that keeps the time,
    /// with all that is queued until then.
    pub fn queue_on_node<R>(&self, node: usize, act: impl FnOnce(&mut Node) -> R) -> R {
        let mut core = self.lock();
        let result = act(&mut core.nodes[node]);
        if core.work.back() != Some(&node) {
            core.work.push_back(node);
        }
        if !std::mem::replace(&mut core.deferred, true) {
            drop(core);
            self.timer.notify_one();
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        // A panic in a service is a bug of that service; the tree's own state is still whole.
        lock(&self.core)
    }

    /// Waits until the parent of this process's own node is gone.
    pub async fn ended(&self) {
        std::future::poll_fn(|cx| {
            self.peek(|core| {
                if core.ended {
                    return std::task::Poll::Ready(());
                }
                core.wait_for_event(cx.waker());
                std::task::Poll::Pending
            })
        })
        .await;
    }

    /// Waits until the process's own node wants another parent (`true`), or is to end.
    pub async fn orphaned(&self) -> bool {
        std::future::poll_fn(|cx| {
            self.peek(|core| {
                if core.ended {
                    return std::task::Poll::Ready(false);
                }
                if std::mem::take(&mut core.orphaned) {
                    return std::task::Poll::Ready(true);
                }
                core.wait_for_event(cx.waker());
                std::task::Poll::Pending
            })
        })
        .await
    }

    /// Keeps time for the nodes until the task is dropped.
    pub async fn keep_time(self: Arc<Self>) {
        loop {
            let deferred = self.peek(|core| core.deferred);
            if deferred {
                self.run(|_, _| ());
            }
            let (now, due) = self.peek(|core| {
                core.armed = core.next_timeout();
                (core.now(), core.armed)
            });
            let changed = self.timer.notified();
            match due {
                None => changed.await,
                Some(due) => tokio::select! {
                    () = tokio::time::sleep(due - now) => self.run(|core, now| core.tick(now)),
                    () = changed => {}
                },
            }
        }
    }
}

impl Core {
    pub fn now(&mut self) -> Time {
        self.clock.read(self.armed)
    }

    /// Adds a node; its links lead nowhere yet.
    pub fn add_node(&mut self, config: NodeConfig, registry: Registry) -> usize {
        let now = self.now();
        let node = Node::new(config, registry, now);
        self.routes.push(vec![Route::Unattached; node.config().children.len()]);
        self.nodes.push(node);
        self.works.push(None);
        self.work.push_back(self.nodes.len() - 1);
        self.nodes.len() - 1
    }

    /// `node` was given something to do from outside.
    pub fn touch(&mut self, node: usize) {
        self.work.push_back(node);
    }

    /// What comes to `node`, a leaf, is for `works`.
    pub fn set_works(&mut self, node: usize, works: impl Works + 'static) {
        self.works[node] = Some(Box::new(works));
    }

    /// Gives `node`, which is no leaf, its own leaf, where its services are reached.
    pub fn add_own_leaf(&mut self, node: usize) -> usize {
        let now = self.now();
        let link = self.nodes[node].add_own_leaf(now);
        let (config, registry) =
            (self.nodes[node].config().own_leaf(), self.nodes[node].registry().clone());
        let own = self.add_node(config, registry);
        self.join(node, link, own);
        self.owners.insert(own, node);
        own
    }

    /// The node whose own leaf this is; itself for others.
    pub fn owner_of(&self, node: usize) -> usize {
        self.owners.get(&node).copied().unwrap_or(node)
    }

    /// Joins child link `link` of `parent` to `child`, inside this process.
    pub fn join(&mut self, parent: usize, link: LinkId, child: usize) {
        let now = self.now();
        let up = self.nodes[child].add_parent(now);
        self.set_route(child, up, Route::Local(parent, link));
        self.set_route(parent, link, Route::Local(child, up));
        self.nodes[parent].attach_quiet(link);
        self.nodes[child].attach_quiet(up);
    }

    fn set_route(&mut self, node: usize, link: LinkId, route: Route) {
        let routes = &mut self.routes[node];
        let place = link.place();
        if routes.len() <= place {
            routes.resize(place + 1, Route::Unattached);
        }
        routes[place] = route;
    }

    /// Whether a socket has not taken all that was to be written.
    pub fn is_behind(&self) -> bool {
        self.sockets.iter().flatten().any(|port| port.blocked)
    }

    /// Whether a socket carries `link` of `node`.
    pub fn has_socket(&self, node: usize, link: LinkId) -> bool {
        matches!(self.route(node, link), Route::Socket(_))
    }

    fn route(&self, node: usize, link: LinkId) -> Route {
        self.routes[node].get(link.place()).copied().unwrap_or(Route::Unattached)
    }

    /// Lets every node with something to do do it, until none has.
    fn turn(&mut self, now: Time) {
        self.deferred = false;
        loop {
            self.work(now);
            // Taking results gives credit to those who sent them.
            if !self.give_out() {
                break;
            }
            self.touch(0);
        }
        self.wake_for_room();
    }

    fn work(&mut self, now: Time) {
        while let Some(node) = self.work.pop_front() {
            loop {
                while let Some(event) = self.nodes[node].poll_event() {
                    self.event(node, event);
                }
                let Some(link) = self.nodes[node].next_dirty() else { break };
                self.flush(now, node, link);
            }
            while let Some(link) = self.nodes[node].next_dead() {
                self.close(now, node, link);
            }
            if let Some(works) = &mut self.works[node] {
                works.resume(&mut self.nodes[node]);
                if let Some(link) = self.nodes[node].next_dirty() {
                    self.flush(now, node, link);
                    self.work.push_back(node);
                }
            }
        }
    }

    fn event(&mut self, node: usize, event: Event) {
        if let Event::Go(to) = event {
            self.place = Some(to).filter(|to| node == 0 && is_sound(&to.address));
            return;
        }
        if let Event::Verdict(verdict) = event {
            return self.errand(node, Errand::Verdict(verdict));
        }
        if let Some(works) = &mut self.works[node] {
            let leaf = &mut self.nodes[node];
            match event {
                Event::Packet(packet) => works.packet(packet, leaf),
                Event::Opened { stream, service, caller } => {
                    works.opened(stream, &service, &caller)
                }
                Event::Cancelled { stream, wave } => works.cancelled(stream, wave, leaf),
                Event::Closed { stream } => works.closed(stream),
                Event::ParentLost => {
                    works.ended();
                    if node == 0 {
                        self.ended = true;
                        self.event_wakers.drain(..).for_each(Waker::wake);
                    }
                }
                Event::Orphaned => self.orphan(node),
                Event::Ready(_)
                | Event::Notice(_)
                | Event::Door { .. }
                | Event::Go(_)
                | Event::Verdict(_) => {}
            }
            return;
        }
        // Node 0 is the process's own; events of the others inside it concern nobody.
        match event {
            Event::Ready(leaves) if node == 0 => self.ready = Some(own::hosts(&leaves)),
            Event::Notice(notice) if node == 0 => {
                let Some(notice) = of_hosts(notice) else { return };
                if let Notice::Wants { leaf, service, note } = notice {
                    self.wants.entry(service).or_default().push(Want { leaf, note });
                    self.event_wakers.drain(..).for_each(Waker::wake);
                    return;
                }
                if self.notices.len() == NOTICES_MAX {
                    self.notices.pop_front();
                    self.notice_times.pop_front();
                }
                if let Notice::Stranded { .. } = &notice {
                    self.errand(node, Errand::Notice(notice.clone()));
                }
                self.notices.push_back(notice);
                self.notice_times.push_back(seconds_now());
                self.notices_total += 1;
            }
            Event::ParentLost if node == 0 => self.ended = true,
            Event::Door { rank, address } if node == 0 && is_sound(&address) => {
                self.doors.insert(rank, address);
            }
            Event::Orphaned => {
                self.orphan(node);
                return;
            }
            Event::Packet(packet) => {
                // A leaf without a service answers for it. One whose service could not start has
                // said so, and is about to end: another answer would hide the reason.
                let gave_up = node == 0 && self.ended;
                let node = &mut self.nodes[node];
                node.consumed(packet.stream, packet.frame_bytes);
                if packet.expect.is_some() && !gave_up {
                    node.fail(packet.stream, packet.wave, Errno::NOSYS);
                }
                return;
            }
            _ => return,
        }
        for waker in self.event_wakers.drain(..) {
            waker.wake();
        }
    }

    /// Something for whoever starts nodes. What is too much for it is asked for again.
    fn errand(&mut self, node: usize, errand: Errand) {
        if let Some(errands) = self.errands.as_ref().filter(|_| node == 0) {
            let _ = errands.try_send(errand);
        }
    }

    /// The node has lost its parent: whoever searches for another one is told.
    fn orphan(&mut self, node: usize) {
        if node != 0 || !self.may_search {
            self.nodes[node].abandon();
            self.work.push_back(node);
            return;
        }
        self.orphaned = true;
        self.event_wakers.drain(..).for_each(Waker::wake);
    }

    /// Ends the transport of a link that its node has given up.
    fn close(&mut self, now: Time, node: usize, link: LinkId) {
        match self.route(node, link) {
            Route::Unattached => return,
            Route::Socket(at) => self.close_socket(at),
            Route::Local(peer, peer_link) => {
                self.nodes[peer].child_dead(
                    now,
                    peer_link,
                    Errno::HOSTDOWN,
                    "the link was given up",
                );
                self.work.push_back(peer);
            }
        }
        self.set_route(node, link, Route::Unattached);
    }

    /// Writes what waits on a link, as far as the peer takes it.
    fn flush(&mut self, now: Time, node: usize, link: LinkId) {
        match self.route(node, link) {
            Route::Unattached => {}
            Route::Socket(socket) => self.flush_socket(now, node, link, socket),
            Route::Local(peer, peer_link) => loop {
                let pieces = self.nodes[node].output(link).take();
                for piece in pieces {
                    self.nodes[node].wrote(now, link, piece.len());
                    if let Err(violation) = self.nodes[peer].receive(now, peer_link, &piece) {
                        self.nodes[peer].link_lost(
                            now,
                            peer_link,
                            Errno::PROTO,
                            &violation.to_string(),
                        );
                    }
                }
                self.work.push_back(peer);
                if !self.nodes[node].refill(link) {
                    break;
                }
            },
        }
    }

    /// Gives results to those who wait for just these, and wakes those who take what comes. Says
    /// whether results were taken.
    fn give_out(&mut self) -> bool {
        let Some(root) = self.nodes.first_mut() else { return false };
        root.take_fresh(&mut self.fresh);
        let mut taken = false;
        for stream in self.fresh.drain(..) {
            if self.claims.has(stream) {
                while let Some(result) = root.take(stream) {
                    self.claims.give(stream, result);
                    taken = true;
                }
            }
            if let Some(wakers) = self.for_result.remove(&stream) {
                wakers.into_iter().for_each(Waker::wake);
            }
        }
        taken
    }

    /// Wakes whoever waits for room.
    fn wake_for_room(&mut self) {
        let Some(root) = self.nodes.first_mut() else { return };
        if !self.for_room.is_empty() {
            self.for_room.retain(|&stream, wakers| {
                let room = root.has_room(stream);
                if room {
                    wakers.drain(..).for_each(Waker::wake);
                }
                !room
            });
        }
    }

    /// Wakes `waker` when the stream has another result.
    pub fn wait_for_result(&mut self, stream: u32, waker: &Waker) {
        add_waker(self.for_result.entry(stream).or_default(), waker);
    }

    /// Wakes `waker` when packets can be sent on the stream again.
    pub fn wait_for_room(&mut self, stream: u32, waker: &Waker) {
        add_waker(self.for_room.entry(stream).or_default(), waker);
    }

    /// Wakes `waker` at the next event of the process's own node.
    pub fn wait_for_event(&mut self, waker: &Waker) {
        add_waker(&mut self.event_wakers, waker);
    }

    fn tick(&mut self, now: Time) {
        if let Some(own) = self.nodes.first_mut() {
            let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            own.set_wall_clock(now, wall.map_or(0, |wall| wall.as_nanos() as u64));
            let counts = self.audit.counts();
            if counts != Default::default() {
                own.set_door_counts(counts.named());
            }
        }
        for node in 0..self.nodes.len() {
            if self.nodes[node].next_timeout().is_some_and(|due| due <= now) {
                self.vouch(now, node);
                self.nodes[node].tick(now);
                self.work.push_back(node);
            }
        }
    }

    /// When something is due. With many nodes here, the root's own waves say whether any other
    /// node can be waiting, and all are looked at in steps, so that no batch pays for a search.
    fn next_timeout(&self) -> Option<Time> {
        let first = self.nodes.first()?.next_timeout();
        if let [_] | [_, _] = &self.nodes[..] {
            // A server, or an inner node with its own leaf.
            return self.first_timeout();
        }
        let step = self.clock.last() + Duration::from_millis(LOCAL_TICK_MS);
        first.map(|due| due.min(step))
    }

    /// When one of the first two nodes has something to do.
    fn first_timeout(&self) -> Option<Time> {
        self.nodes.iter().take(2).filter_map(Node::next_timeout).min()
    }

    fn rearm(&self) -> bool {
        match (self.first_timeout(), self.armed) {
            (Some(due), Some(armed)) => due < armed,
            (Some(_), None) => true,
            (None, _) => false,
        }
    }
}

/// What a notice says of hosts; `None` when it is about other nodes alone.
fn of_hosts(mut notice: Notice) -> Option<Notice> {
    if let Notice::Lost { leaves, .. }
    | Notice::Joined { leaves, .. }
    | Notice::Left { leaves, .. } = &mut notice
    {
        *leaves = own::hosts(leaves);
        if leaves.is_empty() {
            return None;
        }
    }
    Some(notice)
}

fn add_waker(wakers: &mut Vec<Waker>, waker: &Waker) {
    if !wakers.iter().any(|have| have.will_wake(waker)) {
        wakers.push(waker.clone());
    }
}
