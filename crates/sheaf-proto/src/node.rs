//! The node: what it is made of, and how each frame finds the code that deals with it.
//!
//! # How it is called
//! A node does nothing by itself: each of its methods returns when all that follows has been done
//! or queued. Whoever drives it keeps to this order.
//!
//! 1. [`Node::new`], then [`Node::add_parent`] unless it is the root; each link that gets a
//!    transport is attached ([`Node::attach`], [`Node::attach_near`], [`Node::attach_quiet`]),
//!    after what its peer is to hear before all else ([`Node::send_first`]). A leaf, and a node
//!    none of whose children could be started, calls [`Node::tell_ready`]. A node that comes late
//!    (its place in the running tree was lost) says what it stands for as an orphan does:
//!    [`Node::begin_empty`] if it has children, and [`Node::resume_parent`] in place of
//!    [`Node::add_parent`]. The root gets one more parent for each client: [`Node::add_parent`],
//!    [`Node::client_base`], [`Node::send_first`], [`Node::greet`].
//! 2. What arrives goes to [`Node::receive`], in pieces of any size, in order. On a [`Violation`]
//!    the transport is closed and [`Node::link_lost`] told `EPROTO`: who breaks the protocol is not
//!    waited for. The end of a transport is told to [`Node::link_lost`] too; that a child has ended
//!    for certain, to [`Node::child_dead`]. Either may be told of a link that is gone already. Who
//!    has connected and asks to be taken gets a link by [`Node::child_link`].
//! 3. After any call: [`Node::poll_event`] until it has none, [`Node::next_dirty`] until there is
//!    none, and for each link that it names (this is where what was gathered is framed): write
//!    [`Node::output`], tell [`Node::wrote`], and go on as long as [`Node::refill`] says that there
//!    is more (or until the transport takes no more; then the link is the driver's to remember).
//!    Then [`Node::next_dead`]: these transports are closed. Events come in the order in which
//!    things happened; a link may be written before or after them.
//! 4. [`Node::tick`] at [`Node::next_timeout`] or later; right before it, for each link of
//!    [`Node::overdue`] whose peer is known to live, [`Node::vouch`]. (A parent that cannot be
//!    replaced: [`Node::hold_to`].) Time never runs backwards between two calls; a call with the
//!    time of the last one is fine. [`Node::set_wall_clock`], now and then, lets it tell clocks
//!    apart.
//! 5. After [`Event::Orphaned`] the driver looks for an ancestor and calls [`Node::resume_parent`]
//!    when one has taken the connection, again after each `Orphaned`; [`Node::disband`] when none
//!    can be reached, and [`Node::abandon`] when the session is over for certain. After
//!    [`Event::ParentLost`] nothing more is asked of it but to write what is queued, and it is
//!    dropped.
//!
//! A [`LinkId`] stays with its link until that is gone and all that was queued on it is taken; then
//! it may name another, which the node has told its driver by [`Node::child_link`],
//! [`Node::add_parent`] or [`Node::resume_parent`]. The simulator keeps to the same order, and
//! checks [`Node::check`] after each step.
use super::control;
use super::frame::{FrameRooms, Header, Kind, Violation, flag};
use super::links::{Link, LinkId, LinkState, LinkWay, Links};
use super::stream::{NodeStream, StreamOwner};
use super::{NodeConfig, NodeRole, Time};
use crate::filter::{FilterError, LinkClocks, ModuleId, Registry};
use bytes::Bytes;
use rustc_hash::FxHashMap;
use sheaf_core::Errno;
use std::collections::VecDeque;
use std::sync::Arc;

mod ack;
mod adopt;
mod app;
mod check;
mod clients;
mod diagnosis;
mod down;
mod ends;
mod event;
mod garbled;
mod guests;
mod guide;
mod handover;
mod lost;
mod machines;
mod module;
mod orphan;
mod outgoing;
mod recovery;
mod relay;
mod release;
mod start;
mod tap;
mod up;

pub use event::{Event, Packet};
pub use handover::HandOver;
pub use outgoing::{Outgoing, PacketContent};
use recovery::{Below, Recovery, Timers};
pub(crate) use tap::SharedLine;
pub use tap::{Passing, STATE_BYTES_MAX, SharedTap, Tap};

/// One node of the tree.
pub struct Node {
    config: NodeConfig,
    registry: Registry,
    links: Links,
    /// Boxed: most nodes have few, and an empty place in the table should be small.
    streams: FxHashMap<u32, Box<NodeStream>>,
    events: VecDeque<Event>,
    /// Streams with results for the application since it last asked, each once.
    fresh: Vec<u32>,
    timers: Timers,
    /// Streams that gather a run.
    runs: Vec<u32>,
    next_stream: u32,
    /// At a root: how many streams there were.
    streams_opened: u64,
    /// Clients that have joined, by the identifiers they were given.
    clients: u32,
    guests: guests::GuestStreams,
    below: Below,
    /// Payloads are combined here before they are framed.
    scratch: Vec<u8>,
    /// Where parts of long packets are framed that begin here.
    rooms: FrameRooms,
    /// How the children's clocks differ from this node's.
    clocks: Arc<LinkClocks>,
    diagnosis: Option<Box<diagnosis::Diagnosis>>,
    recovery: Recovery,
    machines: machines::Machines,
    /// The modules of filters that have come this way.
    modules: module::Passed,
    /// What services keep of what passes.
    taps: tap::Taps,
}

/// What a client may say that acts for another user than the session's: it uses streams. What
/// changes the tree, or brings code, is the owner's.
fn is_for_guests(kind: Kind) -> bool {
    use Kind::{Ack, Cancel, Close, Credit, Down, Heartbeat, Open, Reply, Shutdown};
    // A shutdown is the client's own end.
    matches!(kind, Ack | Cancel | Close | Credit | Down | Heartbeat | Open | Reply | Shutdown)
}

impl Node {
    /// A node with its children's links, none of them attached to a transport yet.
    #[must_use]
    pub fn new(config: NodeConfig, registry: Registry, now: Time) -> Self {
        Self {
            links: Links::to(&config.children, &config.tuning, now),
            streams: FxHashMap::default(),
            guests: guests::GuestStreams::default(),
            below: Below::default(),
            recovery: Recovery::new(config.tuning.orphan_timeout),
            timers: Timers::default(),
            registry,
            events: VecDeque::new(),
            fresh: Vec::new(),
            runs: Vec::new(),
            // Number 0 is never assigned: in a notice it means that no stream is concerned
            // (`NO_STREAM`).
            next_stream: config.stream_base + 1,
            streams_opened: 0,
            clients: 0,
            scratch: Vec::new(),
            rooms: FrameRooms::default(),
            clocks: Arc::default(),
            diagnosis: None,
            machines: Default::default(),
            modules: Default::default(),
            taps: Default::default(),
            config,
        }
    }

    /// Who this node is.
    #[must_use]
    pub fn config(&self) -> &NodeConfig {
        &self.config
    }

    /// The filters it knows.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Sends a module down the tree from here. Streams that are opened after this may name its
    /// functions.
    ///
    /// # Errors
    /// `ENOSPC` when this node keeps as much as it may.
    pub fn add_module(&mut self, bytes: &Bytes) -> Result<ModuleId, FilterError> {
        let (modules, here) = self.modules_here();
        modules.add(here, bytes)
    }

    /// The hashes of the modules that are here as a whole.
    #[must_use]
    pub fn modules(&self) -> Vec<[u8; 32]> {
        self.modules.hashes()
    }

    /// Sends to `link`, which is new or has found its way back, the modules that are here and that
    /// it does not have: those that are `known` there it has. To be called before any stream is
    /// opened on the link.
    pub fn send_modules(&mut self, link: LinkId, known: &[[u8; 32]]) {
        let (modules, here) = self.modules_here();
        modules.send_to(here, link, known);
    }

    fn modules_here(&mut self) -> (&mut module::Passed, module::Here<'_>) {
        let Self { config, registry, links, modules, .. } = self;
        (modules, module::Here { config, registry, links })
    }

    /// A header that says whether this node wants no engine for WebAssembly.
    fn with_engine(&self, kind: Kind) -> Header {
        module::with_engine(&self.config, &self.registry, kind)
    }

    /// Takes in bytes that arrived on `link`.
    ///
    /// # Errors
    /// A [`Violation`] of the peer; the driver closes the link and calls [`Node::link_lost`].
    pub fn receive(&mut self, now: Time, link: LinkId, chunk: &Bytes) -> Result<(), Violation> {
        // The driver may have read these bytes before this node gave the link up.
        if !self.links[link].is_alive() {
            return Ok(());
        }
        // Part of a frame is a sign of life too: a long frame on a slow link is not silence.
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
        // Only the incomplete tail is copied. Whole frames are read where they lie.
        if at < chunk.len() && self.links[link].is_alive() {
            self.links[link].carry.extend_from_slice(&chunk[at..]);
        }
        Ok(())
    }

    /// Completes the frame whose beginning came earlier; returns how much of `chunk` that took.
    fn complete_carry(
        &mut self,
        now: Time,
        link: LinkId,
        chunk: &Bytes,
    ) -> Result<usize, Violation> {
        let mut at = 0;
        let mut take = |carry: &mut Vec<u8>, want: usize| {
            let count = want.saturating_sub(carry.len()).min(chunk.len() - at);
            carry.extend_from_slice(&chunk[at..at + count]);
            at += count;
        };
        // Copies no more than this one frame lacks, and its header first, which holds the length.
        // The frames after it are dispatched from `chunk`.
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
        // Contributions are most of the traffic, and come in series: the stream is looked up once
        // per series, not once per frame.
        if header.kind == Kind::Up && self.links[link].way == LinkWay::Down {
            return self.on_up_run(now, link, header, whole, at);
        }
        if header.kind == Kind::Run && self.links[link].way == LinkWay::Down {
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
        let from_child = self.links[link].way == LinkWay::Down;
        if !self.links[link].is_member() {
            return self.frame_of_stranger(now, link, header, body);
        }
        if !from_child && self.links[link].caller().is_from_host() {
            // Code that it brings is not taken; streams that name it say so. Nor does its word that an answer
            // of a host is malformed count: it could have any host cut off.
            if matches!(header.kind, Kind::Module | Kind::Garbled) {
                return Ok(());
            }
            if self.links[link].caller().is_limited() && !is_for_guests(header.kind) {
                return Err(Violation::OutOfPlace(header.kind));
            }
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
            (Kind::Release, false) => self.on_release(now, link, body),
            (Kind::Go, false) => self.on_go(now, link, body),
            (Kind::Take, false) => self.on_take(now, link, body),
            (Kind::Verdict, false) => self.on_verdict(link, body),
            (Kind::Farewell, false) => self.on_farewell(now, link, header),
            (Kind::Released, true) => self.on_released(now, link, body),
            (Kind::Ack, false) => {
                self.on_ack(link, header, body, &whole.slice(at..at + header.frame_len()))
            }
            (Kind::Module, false) => {
                let frame = whole.slice(at..at + header.frame_len());
                let (modules, here) = self.modules_here();
                modules.on_module(here, header, &frame)
            }
            (Kind::Garbled, false) => self.on_garbled(now, body),
            (Kind::Admission, false) => self.on_admission(link, body),
            (Kind::Ready, true) => self.on_ready(link, header, body),
            (Kind::Notice, true) => self.on_notice(link, header, body),
            (Kind::Door, true) => self.on_door(link, body),
            (Kind::State, true) => self.on_state(link, body),
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
                // Set first: `on_adopt` may take the node in at once, and then sends it modules.
                self.links[link].has_engine = header.has(flag::ready::ENGINE);
                self.on_adopt(now, link, body)
            }
            (Kind::Ready, LinkState::Knocking) => {
                self.links[link].has_engine = header.has(flag::ready::ENGINE);
                let ready: control::Ready = control::decode(Kind::Ready, body)?;
                self.on_newcomer(now, link, ready)
            }
            (Kind::Notice, LinkState::Knocking | LinkState::Pending(_)) => {
                self.on_give_up(link, body)
            }
            // A node that waits to be taken in may hold leaves already, which another newcomer
            // wants.
            (Kind::Released, LinkState::Pending(_)) => self.on_released(now, link, body),
            (Kind::Admission, LinkState::Asking) => self.on_admission(link, body),
            (Kind::Release, LinkState::Asking) => self.on_release(now, link, body),
            (Kind::Adopted, LinkState::Asking) => self.on_adopted(now, link, body),
            (Kind::Farewell, LinkState::Asking) => {
                self.on_replaced(link);
                Ok(())
            }
            (Kind::Shutdown, LinkState::Asking) => {
                self.session_over(link);
                Ok(())
            }
            // What an ancestor tells all its children concerns who is one of them.
            (_, LinkState::Asking) => Ok(()),
            (kind, _) => Err(Violation::OutOfPlace(kind)),
        }
    }

    /// A peer has consumed more of a stream, of its replies, or of what came up; what waited for
    /// that goes on.
    ///
    /// Assumes nothing of the order in which credit comes: each says how much in all, so that one
    /// which is lost is made good by the next (replies alone are counted by steps). A child that
    /// came from a lost parent, or was opened anew, may still speak of the stream as it was: until
    /// it says ANEW, what it says is passed over. Afterwards nobody was given credit for more than
    /// it was sent, or it has broken the protocol. Costs a look at the streams that wait for this
    /// link.
    fn on_credit(&mut self, link: LinkId, header: &Header) -> Result<(), Violation> {
        let Some(stream) = self.streams.get_mut(&header.stream) else { return Ok(()) };
        if header.has(flag::credit::REPLY) {
            let child = stream.child(link).ok_or(Violation::OutOfPlace(Kind::Credit))?;
            stream.replies_dealt_with(child, header.wave);
            return Ok(());
        }
        const NEVER_SENT: Violation = Violation::Bound("credit for bytes that were never sent");
        if header.has(flag::credit::UPWARD) {
            if stream.owner != StreamOwner::Link(link) {
                return Err(Violation::OutOfPlace(Kind::Credit));
            }
            let sent = &mut stream.up.out.sent;
            // Credit counts all bytes since the opening, so it never decreases on one link.
            if header.wave > sent.done || header.wave < sent.acked {
                return Err(NEVER_SENT);
            }
            sent.acked = header.wave;
        } else {
            let Some(child) = stream.child(link) else {
                return Err(Violation::OutOfPlace(Kind::Credit));
            };
            let inlet = &mut stream.up[child];
            if inlet.stale {
                inlet.stale = !header.has(flag::credit::ANEW);
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

    /// Heartbeats that are due; peers that have gone quiet are lost.
    fn beat(&mut self, now: Time) {
        // The root acknowledges as well while there are streams.
        let often = self.config.role == NodeRole::Root && !self.streams.is_empty();
        for link in self.links.beat(now, often) {
            let cause =
                format!("no sign of life for {} s", (now - self.links[link].heard).as_secs());
            self.link_lost(now, link, Errno::HOSTDOWN, &cause);
        }
    }

    /// When [`Node::tick`] wants to be called next.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        // Without a watched peer nothing is due, so that an idle session in one process does not
        // wake up.
        let beat = self.links.iter().any(Link::is_watched).then_some(self.links.heart.beat_at);
        [beat, self.timers.streams, self.timers.recovery].into_iter().flatten().min()
    }

    /// Does what is due: deadlines of waves, heartbeats, peers that have gone quiet.
    pub fn tick(&mut self, now: Time) {
        if self.timers.streams.is_some_and(|timer| timer <= now) {
            self.expire_waves(now);
        }
        if self.timers.recovery.is_some_and(|at| at <= now) {
            self.recover(now);
        }
        if self.links.heart.beat_at <= now {
            self.acknowledge_all();
            self.tell_of_spent_taps();
            self.beat(now);
        }
    }
}
