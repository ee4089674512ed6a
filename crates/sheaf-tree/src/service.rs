//! What a leaf does with the packets that reach it.
use crate::driver::Shared;
use crate::proto::{Node, Packet};
use sheaf_core::Errno;
use std::sync::Weak;

/// The program at a leaf: gets packets, answers waves.
///
/// Calls come from the thread that drives the leaf's links and must not block: work that can is
/// handed to another thread, which answers through a [`LeafHandle`].
pub trait Service: Send {
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

    /// The session is over: undo what is half done.
    fn ended(&mut self) {}
}

/// Makes the services of the leaves of this process.
pub trait Services: Send + Sync {
    /// The service of `leaf`, which is called `host`; `config` is what the session was started
    /// with.
    ///
    /// # Errors
    /// Why this host cannot serve; the leaf counts as lost with this cause.
    fn start(
        &self,
        leaf: u32,
        host: &str,
        config: &[u8],
        handle: LeafHandle,
    ) -> Result<Box<dyn Service>, ServiceError>;
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

/// A leaf, within a call of its service.
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

    /// [`Leaf::post`] of packets of `width` bytes that lie behind one another, as far as they can travel
    /// together; gives how many were posted.
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

    /// Leaves the session: nothing is sent or comes any more.
    pub fn leave(&mut self) {
        self.node.leave_session();
    }

    /// Whether packets are held back here because the parent has not taken earlier ones.
    #[must_use]
    pub fn is_held(&self, stream: u32) -> bool {
        self.node.is_held(stream)
    }

    /// `packet.frame_bytes` of a part have been dealt with.
    pub fn consumed(&mut self, stream: u32, frame_bytes: usize) {
        self.node.consumed(stream, frame_bytes);
    }
}

/// A leaf, from any thread, at any time. Must not be used inside a call of the service itself.
#[derive(Clone)]
pub struct LeafHandle {
    pub(crate) shared: Weak<Shared>,
    pub(crate) node: usize,
}

impl LeafHandle {
    /// Calls `act` with the leaf and sends what it queued. Does nothing once the session is over.
    pub fn with(&self, act: impl FnOnce(&mut Leaf<'_>)) {
        if let Some(shared) = self.shared.upgrade() {
            shared.with_node(self.node, |node| act(&mut Leaf { node }));
        }
    }

    /// Whether something waits here until a link takes it: whoever drives the links is needed for that.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.shared.upgrade().is_some_and(|shared| shared.peek(|core| core.is_behind()))
    }

    /// [`LeafHandle::with`] for one of many calls behind one another: what they queue is sent together,
    /// soon, by another thread.
    pub fn queue(&self, act: impl FnOnce(&mut Leaf<'_>)) {
        if let Some(shared) = self.shared.upgrade() {
            shared.queue_on_node(self.node, |node| act(&mut Leaf { node }));
        }
    }
}
