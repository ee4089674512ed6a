//! The node: dispatch, links, and time.
use super::control::{self, Notice};
use super::frame::{Header, Kind, Violation, flag};
use super::links::{Carrier, Counters, Link, LinkId, LinkState, Links, OutQueue, Way};
use super::stream::{Owner, Stream};
use super::{Config, Role, Time};
use crate::filter::{LinkClock, LinkClocks, Registry};
use bytes::Bytes;
use rustc_hash::{FxHashMap, FxHashSet};
use sheaf_core::{Errno, RangeSet};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

mod ack;
mod adopt;
mod app;
mod check;
mod down;
mod guide;
mod handover;
mod module;
mod orphan;
mod reply;
mod survey;
mod up;

pub use app::Outgoing;
pub use handover::HandOver;
pub use survey::SURVEYS_MAX;

/// A packet (or one part of a long one) that has reached a leaf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Its stream.
    pub stream: u32,
    /// The wave an answer belongs to.
    pub wave: u64,
    /// The sender's tag.
    pub tag: i32,
    /// First part of the packet.
    pub first: bool,
    /// Last part of the packet.
    pub last: bool,
    /// The root waits for an answer, this long; `None`: it does not wait.
    pub expect: Option<Duration>,
    /// The bytes of this part.
    pub payload: Bytes,
    /// What [`Node::consumed`] is to be told once they are dealt with.
    pub frame_bytes: usize,
}

/// What a node tells the application or the service of its process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// At a leaf: part of a packet.
    Packet(Packet),
    /// At a leaf: an answer to this wave is no longer wanted (`u64::MAX`: to any wave).
    Cancelled {
        /// The stream.
        stream: u32,
        /// The wave.
        wave: u64,
    },
    /// At a leaf: the stream is over.
    Closed {
        /// The stream.
        stream: u32,
    },
    /// At the root: the tree has started as far as it will; these leaves run.
    Ready(RangeSet),
    /// At the root: what other nodes have to say.
    Notice(Notice),
    /// The parent is lost: try the ancestors, nearest first, round and round, with a short pause
    /// after each round. When one takes the connection (and the greeting has been written),
    /// [`Node::resume_parent`] gives the link for it. Told again when that link is lost too.
    /// [`Event::ParentLost`] ends the search. Who cannot search calls [`Node::abandon`].
    Orphaned,
    /// The session is over, or no ancestor was found in time: stop.
    ParentLost,
    /// The child `rank` listens at this address for nodes below it.
    Door {
        /// Its rank.
        rank: u32,
        /// Where.
        address: control::Address,
    },
    /// The parent says that this node's place is below another one: [`Event::Orphaned`] follows, and
    /// that one is to be tried first.
    Go(control::Ancestor),
    /// A survey that this process asked for is over.
    Surveyed {
        /// What [`Node::survey`] returned.
        survey: u64,
    },
}

/// One node of the tree.
pub struct Node {
    config: Config,
    registry: Registry,
    links: Links,
    /// Boxed: most nodes have few, and an empty place in the table should be small.
    streams: FxHashMap<u32, Box<Stream>>,
    events: VecDeque<Event>,
    /// Streams with results for the application since it last asked, each once.
    fresh: Vec<u32>,
    /// No stream has a deadline before this.
    stream_timer: Option<Time>,
    /// Streams that gather a run.
    runs: Vec<u32>,
    next_stream: u32,
    /// Clients that have joined, by the identifiers they were given.
    clients: u32,
    ready_leaves: RangeSet,
    ready_told: bool,
    /// Payloads are combined here before they are framed.
    scratch: Vec<u8>,
    /// How the children's clocks differ from this node's.
    clocks: Arc<LinkClocks>,
    diagnosis: Option<Box<survey::Diagnosis>>,
    /// The link to the parent, which may be lost; and to an ancestor that was asked to be it.
    parent: Option<LinkId>,
    asking: Option<LinkId>,
    /// Since when there is no parent, how long one is looked for, and how often one was.
    orphan: Option<Time>,
    patience: Duration,
    epoch: u64,
    /// What the root has to be told once there is a parent.
    unsent: VecDeque<Bytes>,
    /// Streams that could not go on with a new parent, oldest first, at most [`super::STREAMS_MAX`].
    dropped: VecDeque<u32>,
    /// At a leaf: streams that it has left.
    departed: FxHashSet<u32>,
    /// Leaves below here that have been given up.
    lost: RangeSet,
    /// Leaves below here that have left as planned.
    left: RangeSet,
    /// What parents are told of where this node listens.
    door: Option<Bytes>,
    /// Leaves that children were asked to let go of.
    jobs: Vec<adopt::Job>,
    /// Children that are to go below others when nothing is under way.
    leaving: Vec<HandOver>,
    /// The session is over: whoever comes is told so.
    over: bool,
    /// The children look for parents of their own.
    disbanded: bool,
    /// When [`Node::recover`] has something to do.
    recover_at: Option<Time>,
    /// The modules of filters that have come this way.
    modules: module::Passed,
}

impl Node {
    /// A node with its children's links, none of them attached to a transport yet.
    #[must_use]
    pub fn new(config: Config, registry: Registry, now: Time) -> Self {
        Self {
            next_stream: config.stream_base + 1,
            clients: 0,
            links: Links::to(&config.children, &config.tuning, now),
            registry,
            streams: FxHashMap::default(),
            events: VecDeque::new(),
            fresh: Vec::new(),
            stream_timer: None,
            runs: Vec::new(),
            ready_leaves: RangeSet::new(),
            ready_told: false,
            scratch: Vec::new(),
            clocks: Arc::default(),
            diagnosis: None,
            parent: None,
            asking: None,
            orphan: None,
            patience: config.tuning.orphan_timeout,
            epoch: 0,
            unsent: VecDeque::new(),
            dropped: VecDeque::new(),
            departed: FxHashSet::default(),
            lost: RangeSet::new(),
            left: RangeSet::new(),
            door: None,
            jobs: Vec::new(),
            leaving: Vec::new(),
            over: false,
            disbanded: false,
            recover_at: None,
            modules: Default::default(),
            config,
        }
    }

    /// Who this node is.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The filters it knows.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// What this node has measured of its children's clocks; whoever measures tells it here.
    #[must_use]
    pub fn link_clocks(&self) -> &Arc<LinkClocks> {
        &self.clocks
    }

    /// Adds the link to a parent: the tree's, or a client's. Children have the first links, in the order of
    /// [`Config::children`]; the parent's comes next.
    pub fn add_parent(&mut self, now: Time) -> LinkId {
        let link = self.add_up(now);
        if self.config.role != Role::Root {
            self.parent = Some(link);
        }
        link
    }

    fn add_up(&mut self, now: Time) -> LinkId {
        let link = Link::new(Way::Up, 0, self.config.leaves.clone(), now).carried_by(Carrier::Connection);
        // The place of a client that has left is taken by the next one.
        let free = self.links.ids().find(|&at| {
            let old = &self.links[at];
            // Streams of an orphan still belong to its last parent.
            let last = self.parent == Some(at);
            old.way == Way::Up && !old.is_alive() && !last && !self.links.is_written(at)
        });
        match free {
            Some(at) => {
                self.links[at] = link;
                at
            }
            None => self.links.add(link),
        }
    }

    /// The child on `link` is known to have ended: nobody waits for the leaves below it to come
    /// back another way. (For an upward link, the same as [`Node::link_lost`].)
    pub fn child_dead(&mut self, now: Time, link: LinkId, errno: Errno, cause: &str) {
        if self.links[link].way == Way::Down {
            if self.links[link].is_alive() {
                self.await_leaves(now, link, errno, cause);
            }
            self.give_up_waiting(link);
        } else {
            self.link_lost(now, link, errno, cause);
        }
    }

    /// A transport now carries `link`; from here on the peer must show signs of life.
    pub fn attach(&mut self, now: Time, link: LinkId) {
        self.links.attach(now, link, Carrier::Connection);
    }

    /// A transport now carries `link`, and its peer is a process of this machine whose end the kernel
    /// tells.
    pub fn attach_near(&mut self, now: Time, link: LinkId) {
        self.links.attach(now, link, Carrier::Near);
    }

    /// `link` is inside this process and needs no heartbeats.
    pub fn attach_quiet(&mut self, link: LinkId) {
        self.links[link].carrier = Carrier::Inside;
        if self.links[link].way == Way::Down {
            // Both ends read the same clock.
            self.clocks.set(self.links[link].rank, Some(LinkClock::default()));
        }
    }

    /// Links whose peers are given up by the next [`Node::tick`], unless somebody vouches for them.
    pub fn overdue(&self, now: Time) -> Vec<LinkId> {
        self.links.overdue(now)
    }

    /// The driver sees that the peer of `link` lives, and has only had no chance to say so: it has just
    /// been started, or waits for the processor. It is believed for a while.
    pub fn vouch(&mut self, now: Time, link: LinkId) {
        self.links[link].vouched = now;
    }

    /// Says what the wall clock is: `wall_ns` nanoseconds since 1970 at `now`. Without it the clocks of
    /// peers are not compared.
    pub fn set_wall_clock(&mut self, now: Time, wall_ns: u64) {
        self.links.heart.set_wall_clock(now, wall_ns);
    }

    /// The next link with something to write; each is named once until more is queued on it.
    pub fn next_dirty(&mut self) -> Option<LinkId> {
        self.settle_hand_overs();
        while let Some(id) = self.runs.pop() {
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.seal_run(&mut self.links);
            }
        }
        self.links.next_dirty()
    }

    /// The next link whose peer is no longer counted as there: the driver closes its transport
    /// (once what waits on an upward link has been written, if it cares to).
    pub fn next_dead(&mut self) -> Option<LinkId> {
        self.links.next_dead()
    }

    /// Bytes that wait in this node: on links, with streams, and in packets put together.
    #[must_use]
    pub fn queued_bytes(&self) -> u64 {
        let links = self.links.iter().map(|link| link.out().len() + link.carry.len());
        let streams = self.streams.values().map(|stream| stream.queued_bytes());
        links.chain(streams).map(|bytes| bytes as u64).sum()
    }

    /// What waits to be written on `link`. After writing, call [`Node::refill`].
    pub fn output(&mut self, link: LinkId) -> &mut OutQueue {
        self.links.output(link)
    }

    /// Moves data that waited for room onto `link`, streams taking turns; returns whether there
    /// is something to write.
    pub fn refill(&mut self, link: LinkId) -> bool {
        while self.links.has_room(link) {
            let Some(id) = self.links[link].waiting.pop_front() else { break };
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            if stream.pump(link, &mut self.links) {
                self.links[link].waiting.push_back(id);
            }
        }
        !self.links[link].out().is_empty()
    }

    /// Whether the peer of `link` is still counted as there.
    #[must_use]
    pub fn is_alive(&self, link: LinkId) -> bool {
        self.links[link].is_alive()
    }

    /// Rank of the child on `link`.
    #[must_use]
    pub fn peer_rank(&self, link: LinkId) -> u32 {
        self.links[link].rank
    }

    /// Traffic of `link`.
    #[must_use]
    pub fn counters(&self, link: LinkId) -> Counters {
        self.links[link].counters
    }

    /// Traffic of all links to children together.
    #[must_use]
    pub fn child_counters(&self) -> Counters {
        let down = self.links.down().map(|(_, link)| link);
        down.fold(Counters::default(), |sum, link| Counters {
            frames_in: sum.frames_in + link.counters.frames_in,
            bytes_in: sum.bytes_in + link.counters.bytes_in,
            bytes_out: sum.bytes_out + link.counters.bytes_out,
        })
    }

    /// Counts bytes handed to the transport (and that the link was used).
    pub fn wrote(&mut self, now: Time, link: LinkId, bytes: usize) {
        self.links[link].spoke = now;
        self.links[link].counters.bytes_out += bytes as u64;
    }

    /// Takes in bytes that arrived on `link`.
    ///
    /// # Errors
    /// A [`Violation`] of the peer; the driver closes the link and calls [`Node::link_lost`].
    pub fn receive(&mut self, now: Time, link: LinkId, chunk: &Bytes) -> Result<(), Violation> {
        if !self.links[link].is_alive() {
            return Ok(());
        }
        self.links[link].heard = now;
        self.links[link].counters.bytes_in += chunk.len() as u64;
        let mut at = 0;
        if !self.links[link].carry.is_empty() {
            at = self.complete_carry(now, link, chunk)?;
        }
        // A frame may end the link (the session is over); what follows it is nobody's.
        while self.links[link].is_alive()
            && let Some(header) = Header::parse(&chunk[at..])?
        {
            if chunk.len() - at < header.frame_len() {
                break;
            }
            at = self.dispatch(now, link, header, chunk, at)?;
        }
        if at < chunk.len() && self.links[link].is_alive() {
            self.links[link].carry.extend_from_slice(&chunk[at..]);
        }
        Ok(())
    }

    /// Completes the frame whose beginning came earlier; returns how much of `chunk` that took.
    fn complete_carry(&mut self, now: Time, link: LinkId, chunk: &Bytes) -> Result<usize, Violation> {
        let mut at = 0;
        let mut take = |carry: &mut Vec<u8>, want: usize| {
            let count = want.saturating_sub(carry.len()).min(chunk.len() - at);
            carry.extend_from_slice(&chunk[at..at + count]);
            at += count;
        };
        let carry = &mut self.links[link].carry;
        take(carry, super::frame::HEADER_BYTES);
        let Some(header) = Header::parse(carry)? else { return Ok(at) };
        take(carry, header.frame_len());
        if carry.len() == header.frame_len() {
            let frame = Bytes::from(std::mem::take(carry));
            self.dispatch(now, link, header, &frame, 0)?;
        }
        Ok(at)
    }

    /// Deals with the frame at `whole[at..]`, and with the contributions to the same stream that
    /// follow one. Returns where that ends.
    #[inline]
    fn dispatch(
        &mut self,
        now: Time,
        link: LinkId,
        header: Header,
        whole: &Bytes,
        at: usize,
    ) -> Result<usize, Violation> {
        if header.kind == Kind::Up && self.links[link].way == Way::Down {
            return self.on_up_run(now, link, header, whole, at);
        }
        if header.kind == Kind::Run && self.links[link].way == Way::Down {
            self.links[link].counters.frames_in += 1;
            let end = at + header.frame_len();
            self.on_run(now, link, &header, &whole[at + super::frame::HEADER_BYTES..end])?;
            return Ok(end);
        }
        self.frame(now, link, &header, whole, at)?;
        Ok(at + header.frame_len())
    }

    /// One frame, which is `whole[at..at + header.frame_len()]`.
    #[inline]
    fn frame(
        &mut self,
        now: Time,
        link: LinkId,
        header: &Header,
        whole: &Bytes,
        at: usize,
    ) -> Result<(), Violation> {
        let body = &whole[at + super::frame::HEADER_BYTES..at + header.frame_len()];
        self.links[link].counters.frames_in += 1;
        let from_child = self.links[link].way == Way::Down;
        if !self.links[link].is_member() {
            return self.frame_of_stranger(now, link, header, body);
        }
        match (header.kind, from_child) {
            (Kind::Down, false) => {
                let frame = whole.slice(at..at + header.frame_len());
                self.on_down(now, link, header, frame)
            }
            (Kind::Credit, _) => self.on_credit(link, header),
            (Kind::Open, false) => {
                self.on_open(link, header, body, &whole.slice(at..at + header.frame_len()))
            }
            (Kind::Close, _) => self.on_close(link, header),
            (Kind::Cancel, false) => self.on_cancel(now, link, header),
            (Kind::Reply, false) => {
                let frame = whole.slice(at..at + header.frame_len());
                self.on_reply(link, header, &frame)
            }
            (Kind::Heartbeat, _) => self.links.on_heartbeat(now, link, header, body, &self.clocks),
            (Kind::Survey, false) => self.on_survey(now, link, header, body),
            (Kind::Report, true) => self.on_report(now, link, header, body),
            (Kind::Release, false) => self.on_release(now, link, body),
            (Kind::Go, false) => self.on_go(now, link, body),
            (Kind::Take, false) => self.on_take(now, link, body),
            (Kind::Farewell, false) => self.on_farewell(now, link, header),
            (Kind::Released, true) => self.on_released(now, link, body),
            (Kind::Ack, false) => self.on_ack(link, header, body, &whole.slice(at..at + header.frame_len())),
            (Kind::Module, false) => {
                let frame = whole.slice(at..at + header.frame_len());
                self.on_module(header, &frame)
            }
            (Kind::Ready, true) => self.on_ready(link, header, body),
            (Kind::Notice, true) => self.on_notice(link, header, body),
            (Kind::Door, true) => self.on_door(link, body),
            (Kind::Shutdown, false) => {
                self.session_over(link);
                Ok(())
            }
            (kind, _) => Err(Violation::OutOfPlace(kind)),
        }
    }

    /// One frame from a node that has connected, or an ancestor that was asked, before the two
    /// are parent and child.
    #[cold]
    fn frame_of_stranger(
        &mut self,
        now: Time,
        link: LinkId,
        header: &Header,
        body: &[u8],
    ) -> Result<(), Violation> {
        match (header.kind, &self.links[link].state) {
            (Kind::Heartbeat, _) => self.links.on_heartbeat(now, link, header, body, &self.clocks),
            (Kind::Adopt, LinkState::Knocking) => {
                self.links[link].has_engine = header.has(flag::ready::ENGINE);
                self.on_adopt(now, link, body)
            }
            (Kind::Ready, LinkState::Knocking) => {
                self.links[link].has_engine = header.has(flag::ready::ENGINE);
                let ready: control::Ready = control::decode(Kind::Ready, body)?;
                self.on_newcomer(now, link, ready.leaves)
            }
            (Kind::Released, LinkState::Pending(_)) => self.on_released(now, link, body),
            (Kind::Release, LinkState::Asking) => self.on_release(now, link, body),
            (Kind::Adopted, LinkState::Asking) => self.on_adopted(now, link, body),
            (Kind::Shutdown, LinkState::Asking) => {
                self.session_over(link);
                Ok(())
            }
            // What an ancestor tells all its children concerns who is one of them.
            (_, LinkState::Asking) => Ok(()),
            (kind, _) => Err(Violation::OutOfPlace(kind)),
        }
    }

    fn on_credit(&mut self, link: LinkId, header: &Header) -> Result<(), Violation> {
        if header.has(flag::credit::REPLY) {
            return self.on_reply_credit(link, header);
        }
        let Some(stream) = self.streams.get_mut(&header.stream) else { return Ok(()) };
        const NEVER_SENT: Violation = Violation::Bound("credit for bytes that were never sent");
        if header.has(flag::credit::UPWARD) {
            if stream.owner != Owner::Link(link) {
                return Err(Violation::OutOfPlace(Kind::Credit));
            }
            if header.wave > stream.up.done || header.wave < stream.up.acked {
                return Err(NEVER_SENT);
            }
            stream.up.acked = header.wave;
        } else {
            let Some(child) = stream.child(link) else { return Err(Violation::OutOfPlace(Kind::Credit)) };
            let lane = &mut stream.lanes[child];
            if lane.stale {
                lane.stale = !header.has(flag::credit::ANEW);
                return Ok(());
            }
            if !stream.consumed_by_child(child, header.wave, &mut self.links) {
                return Err(NEVER_SENT);
            }
        }
        self.links[link].wait(header.stream);
        self.refill(link);
        Ok(())
    }

    fn on_ready(&mut self, link: LinkId, header: &Header, body: &[u8]) -> Result<(), Violation> {
        let ready: control::Ready = control::decode(Kind::Ready, body)?;
        self.links[link].has_engine |= header.has(flag::ready::ENGINE);
        self.child_ready(link, &ready.leaves);
        Ok(())
    }

    /// The sub-tree on `link` has started with these leaves (none: it could not).
    fn child_ready(&mut self, link: LinkId, leaves: &RangeSet) {
        if !std::mem::replace(&mut self.links[link].ready, true) {
            self.ready_leaves.union_with(&leaves.intersection(&self.links[link].leaves));
        }
        self.tell_ready();
    }

    /// Reports to the parent, once, that every child has started or failed. A leaf and a node
    /// whose children all failed call it when they begin.
    pub fn tell_ready(&mut self) {
        let waiting = self.links.iter().any(|link| {
            let member = matches!(link.state, LinkState::Member if link.is_alive());
            let expected = member || matches!(link.state, LinkState::Awaited(_) | LinkState::Pending(_));
            link.way == Way::Down && expected && !link.ready && !link.leaves.is_empty()
        });
        if waiting || std::mem::replace(&mut self.ready_told, true) {
            return;
        }
        if self.config.role == Role::Leaf {
            self.ready_leaves = self.config.leaves.clone();
        }
        self.events.push_back(Event::Ready(self.ready_leaves.clone()));
        let ready = control::Ready { leaves: self.ready_leaves.clone() };
        self.tell_parents(&control::control(self.with_engine(Kind::Ready), &ready));
    }

    fn on_notice(&mut self, link: LinkId, header: &Header, body: &[u8]) -> Result<(), Violation> {
        let mut notice: Notice = control::decode(Kind::Notice, body)?;
        if let Notice::Lost { leaves, .. } | Notice::Joined { leaves, .. } | Notice::Left { leaves, .. } =
            &mut notice
        {
            if !leaves.is_subset(&self.links[link].claim) {
                return Err(Violation::Bound("a notice names leaves that are not below its sender"));
            }
            // The sender may not know yet which of them are below another node.
            *leaves = leaves.intersection(&self.links[link].leaves);
            let leaves = leaves.clone();
            if leaves.is_empty() {
                return Ok(());
            }
            let known = leaves.is_subset(&self.lost);
            match &notice {
                Notice::Lost { .. } if known => return Ok(()),
                Notice::Joined { .. } => {
                    self.lost = self.lost.difference(&leaves);
                    self.left = self.left.difference(&leaves);
                    self.ready_leaves.union_with(&leaves);
                    self.reopen(link, &leaves);
                }
                _ => self.lost.union_with(&leaves),
            }
            if let Notice::Left { rank, .. } = &notice {
                self.left.union_with(&leaves);
                if *rank == self.links[link].rank {
                    self.child_lost(link, Errno::HOSTDOWN);
                }
            }
        }
        self.notice(*header, notice);
        Ok(())
    }

    /// Passes a notice on to every parent and to the local application.
    fn notice(&mut self, header: Header, notice: Notice) {
        self.tell_parents(&control::control(header, &notice));
        if self.config.role == Role::Root {
            self.events.push_back(Event::Notice(notice));
        }
    }

    /// Queues a frame of the launcher's (the child's assignment) ahead of everything else.
    pub fn send_first(&mut self, link: LinkId, frame: Bytes) {
        // A newcomer to a session that is over is told so, behind what it has to hear first.
        self.links.send_first(link, frame);
    }

    /// The transport of `link` has failed or ended, or its child could not be started. What is
    /// below a child may come back another way, and is waited for.
    pub fn link_lost(&mut self, now: Time, link: LinkId, errno: Errno, cause: &str) {
        if !self.links[link].is_alive() {
            return;
        }
        self.note_lost(now, link, errno, cause);
        if self.links[link].way == Way::Up {
            self.parent_link_lost(now, link);
            return;
        }
        self.await_leaves(now, link, errno, cause);
        // Who breaks the protocol is not waited for.
        let left = self.links[link].leaves.is_subset(&self.lost);
        let hopeless = self.links[link].is_inside() || errno == Errno::PROTO || left;
        if hopeless || self.config.tuning.adoption_grace.is_zero() {
            self.give_up_waiting(link);
        }
    }

    /// Tells a client that has just joined what the others know already.
    pub fn greet(&mut self, link: LinkId, notices: &[Notice]) {
        let notices = notices.iter().map(|notice| control::control(Header::new(Kind::Notice), notice));
        let mut frames: Vec<Bytes> = notices.collect();
        if self.ready_told {
            let ready = control::Ready { leaves: self.ready_leaves.clone() };
            frames.push(control::control(self.with_engine(Kind::Ready), &ready));
        }
        for frame in frames {
            self.links.send(link, frame);
        }
        self.links.mark(link);
    }

    /// At a leaf: its service could not start. Tells the root why, then ends.
    pub fn give_up(&mut self, errno: Errno, cause: &str) {
        let (rank, leaves) = (self.config.rank, self.config.leaves.clone());
        let lost = Notice::Lost { by: rank, rank, leaves, errno, cause: cause.to_owned() };
        self.notice(Header::new(Kind::Notice), lost);
        self.events.push_back(Event::ParentLost);
    }

    fn session_over(&mut self, link: LinkId) {
        self.links.hang_up(link);
        self.close_streams_of(link);
        if self.config.role != Role::Root {
            self.abandon();
        }
    }

    /// Tells every child that the session is over.
    pub fn shut_down_children(&mut self) {
        self.over = true;
        let frame = super::frame::encode(Header::new(Kind::Shutdown), &[]);
        for at in self.links.ids() {
            if self.links[at].is_live_child() {
                self.links.send(at, frame.clone());
            }
        }
    }

    /// Heartbeats that are due; peers that have gone quiet are lost.
    fn beat(&mut self, now: Time) {
        // The root acknowledges as well while there are streams.
        let often = self.config.role == Role::Root && !self.streams.is_empty();
        for link in self.links.beat(now, often) {
            let cause = format!("no sign of life for {} s", (now - self.links[link].heard).as_secs());
            self.link_lost(now, link, Errno::HOSTDOWN, &cause);
        }
    }

    /// When [`Node::tick`] wants to be called next.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        let beat = self.links.iter().any(Link::is_watched).then_some(self.links.heart.beat_at);
        [beat, self.stream_timer, self.recover_at, self.survey_timeout()].into_iter().flatten().min()
    }

    /// Does what is due: deadlines of waves, heartbeats, peers that have gone quiet.
    pub fn tick(&mut self, now: Time) {
        if self.stream_timer.is_some_and(|timer| timer <= now) {
            self.expire_waves(now);
        }
        if self.recover_at.is_some_and(|at| at <= now) {
            self.recover(now);
        }
        self.expire_surveys(now);
        if self.links.heart.beat_at <= now {
            self.acknowledge_all(now);
            self.beat(now);
        }
    }
}
