//! Drives the nodes of one process: sockets, links between nodes of the process, and time.
//!
//! A process holds one node (a server, an inner node, a root of real processes) or a whole tree
//! (the embedded engine). Everything it has is behind one lock, taken once per batch that arrives
//! and not per message; whoever holds it runs the node and writes its output at once, so no message
//! crosses a channel or wakes a second task. Handing a message to another task would cost more than
//! handling it does in most cases.
use crate::proto::control::Caller;
use crate::proto::filter::Registry;
use crate::proto::report::PeerLinkReport;
use crate::proto::{Event, LinkId, Node, NodeConfig, Notice, Packet, Time, own};
use clock::DriverClock;
use rustc_hash::FxHashMap;
use sheaf_core::{Errno, lock};
use std::any::Any;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;

mod alibi;
mod claims;
mod clock;
mod look;
mod mailbox;
mod membership;
mod socket;
mod transport;

pub(crate) use alibi::is_stopped;
pub(crate) use mailbox::Errand;
use mailbox::Mailbox;
pub use mailbox::Want;
pub use membership::NOTICES_MAX;
use membership::{Admission, Membership, of_hosts};
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
    /// The session is over for this leaf, which has not been told so: it was cut off.
    fn cut_off(&mut self) {}
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
    /// The process's own node in the tree.
    pub membership: Membership,
    /// How others are admitted at this process's listener.
    pub admission: Admission,
    /// What waits for something of the process's own node.
    pub mailbox: Mailbox,
}

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
            membership: Membership::default(),
            admission: Admission::default(),
            mailbox: Mailbox::default(),
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
                if core.membership.ended {
                    return std::task::Poll::Ready(());
                }
                core.mailbox.wait_for_event(cx.waker());
                std::task::Poll::Pending
            })
        })
        .await;
    }

    /// Waits until the process's own node wants another parent (`true`), or is to end.
    pub async fn orphaned(&self) -> bool {
        std::future::poll_fn(|cx| {
            self.peek(|core| {
                if core.membership.ended {
                    return std::task::Poll::Ready(false);
                }
                if std::mem::take(&mut core.membership.orphaned) {
                    return std::task::Poll::Ready(true);
                }
                core.mailbox.wait_for_event(cx.waker());
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
            let Some(root) = self.nodes.first_mut() else { return };
            // Taking results gives credit to those who sent them.
            if !self.mailbox.give_out(root) {
                return self.mailbox.wake_for_room(root);
            }
            self.touch(0);
        }
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
        match event {
            Event::Go(to) => self.membership.set_place(Some(to).filter(|_| node == 0)),
            Event::Verdict(verdict) if node == 0 => {
                self.mailbox.send_errand(Errand::Verdict(verdict));
            }
            Event::Orphaned => self.orphan(node),
            event if self.works[node].is_some() => self.leaf_event(node, event),
            Event::Packet(packet) => self.answer_without_service(node, &packet),
            // Node 0 is the process's own; events of the others inside it concern nobody.
            event if node == 0 => self.own_event(event),
            _ => {}
        }
    }

    /// An event of a leaf, for what works there.
    fn leaf_event(&mut self, node: usize, event: Event) {
        let Some(works) = &mut self.works[node] else { return };
        let leaf = &mut self.nodes[node];
        match event {
            Event::Packet(packet) => works.packet(packet, leaf),
            Event::Opened { stream, service, caller } => works.opened(stream, &service, &caller),
            Event::Cancelled { stream, wave } => works.cancelled(stream, wave, leaf),
            Event::Closed { stream } => works.closed(stream),
            Event::ParentLost => {
                if !leaf.is_dismissed() {
                    works.cut_off();
                }
                works.ended();
                if node == 0 {
                    self.membership.ended = true;
                    self.mailbox.wake_for_event();
                }
            }
            _ => {}
        }
    }

    /// An event of the process's own node, which is not a leaf with services.
    fn own_event(&mut self, event: Event) {
        match event {
            Event::Ready(leaves) => self.membership.ready = Some(own::hosts(&leaves)),
            Event::Notice(notice) => {
                let Some(notice) = of_hosts(notice) else { return };
                self.notice(notice);
            }
            Event::ParentLost => self.membership.ended = true,
            Event::Door { rank, address } => {
                if !self.membership.set_door(rank, address) {
                    return;
                }
            }
            _ => return,
        }
        self.mailbox.wake_for_event();
    }

    fn notice(&mut self, notice: Notice) {
        if let Notice::Wants { leaf, service, note } = notice {
            return self.mailbox.add_want(service, Want { leaf, note });
        }
        if let Notice::Stranded { .. } = &notice {
            self.mailbox.send_errand(Errand::Notice(notice.clone()));
        }
        self.membership.notices.push(notice);
    }

    /// Answers a packet that came to a node without services.
    fn answer_without_service(&mut self, node: usize, packet: &Packet) {
        // A leaf without a service answers for it. One whose service could not start has said so,
        // and is about to end: another answer would hide the reason.
        let gave_up = node == 0 && self.membership.ended;
        let node = &mut self.nodes[node];
        node.consumed(packet.stream, packet.frame_bytes);
        if packet.expect.is_some() && !gave_up {
            node.fail(packet.stream, packet.wave, Errno::NOSYS);
        }
    }

    /// The node has lost its parent: whoever searches for another one is told.
    fn orphan(&mut self, node: usize) {
        if node != 0 || !self.membership.may_search {
            self.nodes[node].abandon();
            self.work.push_back(node);
            return;
        }
        self.membership.orphaned = true;
        self.mailbox.wake_for_event();
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

    fn tick(&mut self, now: Time) {
        if let Some(own) = self.nodes.first_mut() {
            let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            own.set_wall_clock(now, wall.map_or(0, |wall| wall.as_nanos() as u64));
            let counts = self.admission.audit.counts();
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
