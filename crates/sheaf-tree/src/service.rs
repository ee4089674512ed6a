//! Services: what the nodes of a tree can do, by name.
//!
//! A program says what it can do ([`Services`]) before its nodes start; a stream is opened for one
//! service, by name, and all that goes over it is that service's. A node that lacks it answers
//! `ENOSYS`. Services run at the leaves, at the nodes in between ([`Audience`]), or at both; none
//! knows of another.
//!
//! A service costs every server that starts, used or not. It opens files and takes signals, timers
//! and threads only when its first stream is opened ([`Service::opened`]). When the mounted view
//! read two files of `/proc`, watched a signal and set a timer at each start, a start of 256
//! servers took 13 to 15 % longer.
use crate::driver::{PeerLinks, Shared};
use crate::filter::{Filter, FilterError, Registry, link_modules};
use crate::link::Audit;
pub use crate::proto::control::NOTE_BYTES_MAX;
use crate::proto::control::SERVICE_BYTES_MAX;
pub use crate::proto::control::{Caller, ClientRights};
use crate::proto::{Node, Packet, Time};
pub use crate::proto::{Passing, STATE_BYTES_MAX, Tap};
use identity::{Identity, as_process};
use sheaf_core::Errno;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

mod dispatch;
#[doc(hidden)]
pub mod handing;
pub mod identity;
mod lanes;
pub mod pool;
pub mod share;
mod taps;

pub(crate) use dispatch::{Dispatch, ServicePlace};
pub use lanes::{Blocking, Charges, ServiceRequest, Worker};

/// A service at one node: gets packets, answers waves.
///
/// Calls come from whichever thread drives the node, and must not block: work that can is
/// handed to another thread, which answers through a [`LeafHandle`]. That thread may have no
/// async runtime; where the service is started there is one ([`tokio::runtime::Handle::try_current`]). One that panics is dropped,
/// and its streams fail with `ENOTRECOVERABLE`; the next stream has it started again.
pub trait Service: Send {
    /// A stream for this service begins. Whoever would not serve this caller answers its packets
    /// with an error.
    fn opened(&mut self, stream: u32, caller: &Caller) {
        let _ = (stream, caller);
    }

    /// Part of a packet has arrived. Its bytes count as under way until [`Leaf::consumed`] is
    /// told of them, which is what holds a fast sender back.
    fn packet(&mut self, packet: Packet, leaf: &mut Leaf<'_>);

    /// No answer to `wave` of `stream` is wanted any more (`u64::MAX`: to none of its waves).
    fn cancelled(&mut self, stream: u32, wave: u64, leaf: &mut Leaf<'_>) {
        let _ = (stream, wave, leaf);
    }

    /// The stream is over: drop what belongs to it.
    fn closed(&mut self, stream: u32) {
        let _ = stream;
    }

    /// Packets can be posted again after [`Leaf::is_held`] was true.
    fn resume(&mut self, leaf: &mut Leaf<'_>) {
        let _ = leaf;
    }

    /// This leaf has lost the session, which may go on without it; [`Service::ended`] follows.
    fn cut_off(&mut self) {}

    /// The session is over: undo what is half done.
    fn ended(&mut self) {}
}

/// Makes a service at each node where it is to run.
pub trait Provider: Send + Sync {
    /// Which nodes have it.
    fn audience(&self) -> Audience {
        Audience::Leaves
    }

    /// Whether it sees to it that nobody gets more than [`Caller`] may have. Where it does not,
    /// whoever is neither the user of the session nor the user that the process runs as is refused
    /// with `EPERM`.
    fn heeds_callers(&self) -> bool {
        false
    }

    /// Whether a stream that is open on behalf of this caller is served.
    ///
    /// # Errors
    /// `EPERM` where it is not. Unless the service heeds its callers, that is every caller which may
    /// not do all that the process may.
    fn check(&self, caller: &Caller) -> Result<(), Errno> {
        let is_full = caller.rights().may_write && matches!(Identity::of(caller), Ok(None));
        if self.heeds_callers() || is_full { Ok(()) } else { Err(Errno::PERM) }
    }

    /// What sees the waves of this service's streams at a node between root and leaves, and at the
    /// root, as they pass: see [`Tap`]. One that panics sees nothing more, and its state is lost.
    fn tap(&self, site: &Site<'_>) -> Option<Box<dyn Tap>> {
        let _ = site;
        None
    }

    /// The service at `site`. At leaves it is made when they start; elsewhere when a stream asks
    /// for it first.
    ///
    /// # Errors
    /// Why this node cannot serve. A leaf counts as lost with this cause; elsewhere the streams of
    /// the service fail.
    fn start(&self, site: &Site<'_>, handle: LeafHandle) -> Result<Box<dyn Service>, ServiceError>;
}

impl<F> Provider for F
where
    F: Fn(&Site<'_>, LeafHandle) -> Result<Box<dyn Service>, ServiceError> + Send + Sync,
{
    fn start(&self, site: &Site<'_>, handle: LeafHandle) -> Result<Box<dyn Service>, ServiceError> {
        self(site, handle)
    }
}

/// The nodes that have a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// The servers of hosts.
    Leaves,
    /// The root and the nodes between it and the leaves.
    Inner,
    /// All of them.
    Everyone,
}

/// Where a service is made.
#[derive(Debug, Clone, Copy)]
pub struct Site<'a> {
    /// The leaf; `None` at a node in between.
    pub leaf: Option<u32>,
    /// Its rank in the tree.
    pub rank: u32,
    /// The host it runs on.
    pub host: &'a str,
    /// What the session was started with for this service ([`crate::launch::Options::configs`]).
    pub config: &'a [u8],
}

/// What services are told when they start, by their names.
pub type Configs = BTreeMap<String, Vec<u8>>;

/// What the nodes of a process can do: the filters that they know, and services by name. Cheap to
/// clone.
#[derive(Clone)]
pub struct Services {
    filters: Registry,
    providers: Arc<Vec<(String, Arc<dyn Provider>)>>,
}

impl Services {
    /// These filters, and no service.
    pub(crate) fn bare(filters: Registry) -> Self {
        link_modules(&filters);
        Self { filters, providers: Arc::default() }
    }

    /// The filters.
    #[must_use]
    pub fn filters(&self) -> &Registry {
        &self.filters
    }

    /// One more filter, in place of an earlier one of that name: see [`Registry::register`].
    #[must_use]
    pub fn with_filter(
        mut self,
        name: &str,
        factory: impl Fn(&[u8]) -> Result<Box<dyn Filter>, FilterError> + Send + Sync + 'static,
    ) -> Self {
        self.filters.register(name, factory);
        self
    }

    /// One more, in place of an earlier one of that name.
    ///
    /// # Panics
    /// When the name is longer than 64 bytes, which no stream could say.
    #[must_use]
    pub fn with(mut self, name: &str, provider: impl Provider + 'static) -> Self {
        assert!(
            name.len() <= SERVICE_BYTES_MAX,
            "the name of a service is longer than {SERVICE_BYTES_MAX} bytes"
        );
        let providers = Arc::make_mut(&mut self.providers);
        providers.retain(|(have, _)| have != name);
        providers.push((name.to_owned(), Arc::new(provider)));
        self
    }

    /// The names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.providers.iter().map(|(name, _)| &**name)
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.providers.iter().position(|(have, _)| have == name)
    }
}

/// A service could not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{cause}")]
pub struct ServiceError {
    /// What it is to the leaf.
    pub errno: Errno,
    /// One phrase.
    pub cause: String,
}

/// A node, within a call of its service.
pub struct Leaf<'a> {
    pub(crate) node: &'a mut Node,
}

impl Leaf<'_> {
    /// Answers a wave; see [`Node::reply`].
    pub fn reply(&mut self, stream: u32, wave: u64, tag: i32, payload: &[u8]) {
        self.node.reply(stream, wave, tag, payload);
    }

    /// Answers a wave with an error.
    pub fn fail(&mut self, stream: u32, wave: u64, errno: Errno) {
        self.node.fail(stream, wave, errno);
    }

    /// Sends a packet nobody asked for; the n-th of all members form a wave.
    pub fn post(&mut self, stream: u32, tag: i32, payload: &[u8]) -> u64 {
        self.node.post(stream, tag, payload)
    }

    /// [`Leaf::post`] of packets of `width` bytes that lie behind one another, as far as they can
    /// travel together; gives how many were posted.
    pub fn post_run(&mut self, stream: u32, tag: i32, packets: &[u8], width: usize) -> usize {
        self.node.post_run(stream, tag, packets, width)
    }

    /// Gives up every wave before `wave` for which nothing was posted, so that others' are not kept
    /// open for it.
    pub fn skip_to(&mut self, stream: u32, wave: u64) {
        self.node.skip_to(stream, wave);
    }

    /// Takes no more part in a stream: nobody waits for this leaf there any more.
    pub fn leave_stream(&mut self, stream: u32) {
        self.node.leave_stream(stream);
    }

    /// Bytes that wait here for the parent to take them.
    #[must_use]
    pub fn unsent_bytes(&self) -> u64 {
        self.node.unsent_bytes()
    }

    /// Asks the process of the root for a stream for this service ([`crate::Network::wanted`]),
    /// with a note of at most [`NOTE_BYTES_MAX`] bytes. That may be lost: whoever still waits after
    /// a while asks again.
    pub fn want_stream(&mut self, service: &str, note: &[u8]) {
        self.node.want_stream(service, note);
    }

    /// Leaves the session: nothing is sent or comes any more.
    pub fn leave(&mut self) {
        self.node.leave_session();
    }

    /// Whether packets are held back here because the parent has not taken earlier ones. Nothing is
    /// held of a stream that is over ([`Service::closed`]).
    #[must_use]
    pub fn is_held(&self, stream: u32) -> bool {
        self.node.is_held(stream)
    }

    /// `packet.frame_bytes` of a part have been dealt with.
    pub fn consumed(&mut self, stream: u32, frame_bytes: usize) {
        self.node.consumed(stream, frame_bytes);
    }
}

/// A node at which a service runs, from any thread, at any time. Must not be used inside a call of
/// the service itself.
#[derive(Clone)]
pub struct LeafHandle {
    pub(crate) shared: Weak<Shared>,
    pub(crate) node: usize,
}

impl LeafHandle {
    /// Calls `act` with the leaf and sends what it queued. Does nothing once the session is over.
    pub fn with(&self, act: impl FnOnce(&mut Leaf<'_>)) {
        if let Some(shared) = self.shared.upgrade() {
            // The tree's work is nobody's request.
            as_process(|| shared.with_node(self.node, |node| act(&mut Leaf { node })));
        }
    }

    /// The node that this is a leaf of: itself, or the node between root and leaves whose own leaf
    /// it is.
    pub(crate) fn with_node<R>(&self, act: impl FnOnce(&mut Node, Time) -> R) -> Option<R> {
        let shared = self.shared.upgrade()?;
        let owner = shared.peek(|core| core.owner_of(self.node));
        Some(as_process(|| {
            shared.run(|core, now| {
                core.touch(owner);
                act(&mut core.nodes[owner], now)
            })
        }))
    }

    /// Whether this process was started in the place of another one that had served the leaf.
    #[must_use]
    pub fn is_successor(&self) -> bool {
        self.with_node(|node, _| node.is_successor()).unwrap_or(false)
    }

    /// At a node whose leaves come by themselves ([`crate::launch::Program::guests`]): the
    /// invitation to be the leaf `leaf` below it, for [`crate::launch::leaf_over`], as the
    /// bytes of a pipe. Each place is for one; who is lost may come back to it, and nobody
    /// else.
    ///
    /// # Errors
    /// When there is no such place, or no key can be made for it.
    pub fn invite(&self, leaf: u32) -> std::io::Result<Vec<u8>> {
        let gone = || std::io::Error::from(std::io::ErrorKind::NotConnected);
        let shared = self.shared.upgrade().ok_or_else(gone)?;
        // Not under the driver's lock: it may sign a certificate.
        let make = shared.peek(|core| core.admission.invite.clone()).ok_or_else(gone)?;
        make(leaf)
    }

    /// Who was let in at this process's doors.
    pub(crate) fn audit(&self) -> Option<Arc<Audit>> {
        Some(self.shared.upgrade()?.peek(|core| Arc::clone(&core.admission.audit)))
    }

    pub(crate) fn set_peer_links(&self, links: Weak<dyn PeerLinks>) {
        if let Some(shared) = self.shared.upgrade() {
            shared.peek(|core| core.membership.peers = Some(links));
        }
    }

    pub(crate) fn peer_links(&self) -> Option<Arc<dyn PeerLinks>> {
        self.shared.upgrade()?.peek(|core| core.membership.peers.as_ref()?.upgrade())
    }

    /// Whether something waits here until a link takes it: whoever drives the links is needed for
    /// that.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.shared.upgrade().is_some_and(|shared| shared.peek(|core| core.is_behind()))
    }

    /// [`LeafHandle::with`] for one of many calls behind one another: what they queue is sent
    /// together, soon, by another thread.
    pub fn queue(&self, act: impl FnOnce(&mut Leaf<'_>)) {
        if let Some(shared) = self.shared.upgrade() {
            as_process(|| shared.queue_on_node(self.node, |node| act(&mut Leaf { node })));
        }
    }
}
