//! One stream at one node: its members, what it carries towards them, and what comes of them.
//!
//! MRNet, sections 2.1 and 2.3: streams, and the stream manager of an internal process. Sheaf
//! differs in three points. Each direction has a credit window, so a slow reader holds the sender
//! back. Byte counts name positions, so a stream goes on with another parent. A member is a leaf,
//! not a child, so members can move between children.
use super::coverage::Coverage;
use super::frame::{Header, Kind};
use super::links::{LinkId, Links};
use super::wave::{Contribution, Slots};
use bytes::Bytes;

mod check;
mod down;
mod flush;
mod kept;
mod members;
mod moves;
mod replies;
mod runs;
mod up;

pub(crate) use down::{DownLane, Downward};
pub(crate) use flush::Flushed;
pub(crate) use kept::{Kept, WaveSet};
pub(crate) use members::{ChildId, ChildState, Member, Members};
pub(crate) use runs::LeafRun;
pub(crate) use up::{Inlet, Upward};

/// Who opened the stream here, and so where its waves go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamOwner {
    /// The application of this process.
    App,
    /// The peer on this link.
    Link(LinkId),
}

/// Flow of one direction of a stream on one link, in bytes since it was opened.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Flow {
    /// Sent, by the sender; consumed, by the receiver.
    pub done: u64,
    /// Acknowledged by the receiver; told to the sender.
    pub acked: u64,
}

impl Flow {
    fn open(self, window: u64) -> bool {
        self.done - self.acked < window
    }
}

/// A finished (or partial) wave for the application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaveResult {
    /// Its number: what [`super::Node::send`] returned, or the leaves' count of unasked packets.
    pub wave: u64,
    /// Tag of the packets.
    pub tag: i32,
    /// Whether this was the last of the wave; partial results of the time-out and do-not-wait
    /// modes each cover other leaves.
    pub complete: bool,
    /// Whose data it is.
    pub coverage: Coverage,
    /// The combined data; `None` when nobody had any.
    pub payload: Option<Bytes>,
}

/// A stream. Whoever changes its members, or looks at its open waves one by one, gets them through
/// it ([`NodeStream::members_mut`], [`NodeStream::slots`]): waves that had no slots have them then.
pub(crate) struct NodeStream {
    pub id: u32,
    pub owner: StreamOwner,
    /// Bytes that may be under way on one link, each way.
    pub window: u64,
    members: Members,
    pub down: Downward,
    pub up: Upward,
    /// The owner has been told that nobody is left here.
    pub left: bool,
}

impl NodeStream {
    pub fn new(
        id: u32,
        owner: StreamOwner,
        window: u64,
        members: Members,
        down: Downward,
        up: Upward,
    ) -> Self {
        let mut stream = Self { id, owner, window, members, down, up, left: false };
        stream.up.inlets.resize_with(stream.members.len(), Inlet::default);
        stream
    }

    /// Of a stream that has just been opened: children that were told to open it `anew` say when
    /// they have.
    pub fn begin(&mut self, irregular: bool, anew: bool) {
        self.slots().irregular = irregular;
        self.up.inlets.iter_mut().for_each(|inlet| inlet.stale = anew);
    }

    #[inline]
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// The members, to be changed.
    pub fn members_mut(&mut self) -> &mut Members {
        self.slots();
        &mut self.members
    }

    #[inline]
    pub fn child(&self, link: LinkId) -> Option<ChildId> {
        self.members.child(link)
    }

    /// The open waves, each with a slot.
    pub fn slots(&mut self) -> &mut Slots {
        self.parts().1
    }

    fn parts(&mut self) -> (&Members, &mut Slots) {
        let cost = self.wave_cost();
        (&self.members, self.up.waves.slots(&self.members, &*self.up.filter, cost))
    }

    /// Gives a list of contributions back, to be used by a later wave.
    pub fn recycle(&mut self, from: Vec<Contribution>) {
        self.up.waves.recycle(from);
    }

    /// Number of the first wave that is not over.
    pub fn wave_base(&self) -> u64 {
        self.up.waves.base()
    }

    /// How many waves are open.
    pub fn waves_open(&self) -> usize {
        self.up.waves.count()
    }

    /// Whether the application may start one more wave.
    pub fn has_room_for_waves(&self) -> bool {
        self.up.waves.as_slots().is_none_or(Slots::has_room)
    }

    /// The first wave that nobody has begun and nobody who takes part contributes to.
    pub fn gap(&self) -> Option<u64> {
        let since =
            self.members.iter().filter(|member| member.takes_part()).map(|member| member.since);
        self.up.waves.as_slots()?.unbegun_before(since.min()?)
    }

    /// Bytes that wait or are kept with this stream.
    pub fn queued_bytes(&self) -> usize {
        self.up.queued_bytes() + self.down.log_bytes()
    }
}

fn credit(id: u32, flags: u8, total: u64, at: LinkId, links: &mut Links) {
    if links[at].is_alive() {
        let header = Header { flags, stream: id, wave: total, ..Header::new(Kind::Credit) };
        links.send(at, &header.to_bytes());
    }
}
