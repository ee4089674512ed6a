//! The links of a node: who is at their other ends, and what waits to be written to them.
use crate::LINK_OUT_BYTES;
use crate::config::{Child, Time, Tuning};
use crate::frame::{DownFrame, HEADER_BYTES};
use bytes::Bytes;
use std::fmt;
use std::ops::{Index, IndexMut};

mod heartbeat;
mod index;
mod link;
mod queue;

pub(crate) use heartbeat::{Heart, late_after};
pub use link::Counters;
pub(crate) use link::{Awaited, Link, LinkCarrier, LinkState, LinkWay};
pub use queue::OutQueue;

/// One link of a node. Links to the children it was made with come first, in their order, then that
/// to its parent. The place of a link that nobody has to do with any more is given to a later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(u32);

impl LinkId {
    /// The link in this place.
    #[must_use]
    pub const fn new(place: usize) -> Self {
        Self(place as u32)
    }

    /// Its place.
    #[inline]
    #[must_use]
    pub const fn place(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A frame, or a piece of one whose other pieces follow at once, on its way into a queue.
pub(crate) enum WritePiece<'a> {
    /// Shared by all links that forward it.
    Shared(Bytes),
    Copied(&'a [u8]),
}

impl From<Bytes> for WritePiece<'_> {
    #[inline]
    fn from(frame: Bytes) -> Self {
        Self::Shared(frame)
    }
}

impl From<&Bytes> for WritePiece<'_> {
    #[inline]
    fn from(frame: &Bytes) -> Self {
        Self::Shared(frame.clone())
    }
}

impl<'a> From<&'a [u8]> for WritePiece<'a> {
    #[inline]
    fn from(bytes: &'a [u8]) -> Self {
        Self::Copied(bytes)
    }
}

impl<'a> From<&'a [u8; HEADER_BYTES]> for WritePiece<'a> {
    #[inline]
    fn from(bytes: &'a [u8; HEADER_BYTES]) -> Self {
        Self::Copied(bytes)
    }
}

/// How many places are looked at for one that can be used again.
const PLACES_LOOKED_AT: usize = 64;

/// All links of a node, by [`LinkId`].
pub(crate) struct Links {
    all: Vec<Link>,
    /// Those with something to write, each once.
    dirty: Vec<LinkId>,
    /// Those that are no longer alive and that the driver has not been told of.
    dead: Vec<LinkId>,
    index: Option<Box<index::Index>>,
    /// Where a place to be used again was last looked for.
    looked_at: usize,
    /// When heartbeats are due.
    pub heart: Heart,
}

impl Index<LinkId> for Links {
    type Output = Link;

    #[inline]
    fn index(&self, at: LinkId) -> &Link {
        &self.all[at.place()]
    }
}

impl IndexMut<LinkId> for Links {
    #[inline]
    fn index_mut(&mut self, at: LinkId) -> &mut Link {
        &mut self.all[at.place()]
    }
}

impl Links {
    /// Links to these children, none of them attached to a transport yet.
    pub fn to(children: &[Child], tuning: &Tuning, now: Time) -> Self {
        let mut all = Vec::with_capacity(children.len() + 1);
        all.extend(
            children
                .iter()
                .map(|child| Link::new(LinkWay::Down, child.rank, child.leaves.clone(), now)),
        );
        Self {
            all,
            dirty: Vec::new(),
            dead: Vec::new(),
            index: None,
            looked_at: 0,
            heart: Heart::new(tuning, now),
        }
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn get(&self, at: LinkId) -> Option<&Link> {
        self.all.get(at.place())
    }

    /// The names of all links, whatever happens to the links meanwhile.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = LinkId> + use<> {
        (0..self.all.len()).map(LinkId::new)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Link> {
        self.all.iter()
    }

    /// Links to children, there or not.
    pub fn down(&self) -> impl Iterator<Item = (LinkId, &Link)> {
        self.ids().zip(&self.all).filter(|(_, link)| link.way == LinkWay::Down)
    }

    pub fn down_mut(&mut self) -> impl Iterator<Item = &mut Link> {
        self.all.iter_mut().filter(|link| link.way == LinkWay::Down)
    }

    /// Some of the places behind the first ones, others each time: so many that one that can be
    /// used again is soon found, and so few that many newcomers cost no more than a few.
    pub fn places_behind(&mut self, first: usize, full: bool) -> Vec<LinkId> {
        let behind = self.all.len().saturating_sub(first);
        // A full node refuses newcomers, so before that it looks at every place.
        let count = if full { behind } else { behind.min(PLACES_LOOKED_AT) };
        let places =
            (0..count).map(|step| LinkId::new(first + (self.looked_at + step) % behind)).collect();
        self.looked_at = (self.looked_at + count).checked_rem(behind).unwrap_or(0);
        places
    }

    /// Queues a frame. Nothing but this and [`Self::send_down`] puts anything on a link.
    #[inline]
    pub fn send<'a>(&mut self, at: LinkId, frame: impl Into<WritePiece<'a>>) {
        let link = &mut self.all[at.place()];
        match frame.into() {
            WritePiece::Shared(frame) => link.out.push(frame),
            WritePiece::Copied(bytes) => link.out.append(bytes),
        }
        self.mark(at);
    }

    /// Queues a frame of a stream towards the leaves.
    #[inline]
    pub fn send_down(&mut self, at: LinkId, frame: &DownFrame) {
        let out = &mut self.all[at.place()].out;
        match frame.pieces() {
            (whole, body) if body.is_empty() => out.push(whole.clone()),
            (head, body) => out.push_parted(head.clone(), body.clone()),
        }
        self.mark(at);
    }

    /// Queues the launcher's first frame, before everything that waits already.
    pub fn send_first(&mut self, at: LinkId, frame: Bytes) {
        self.all[at.place()].out.push_first(frame);
        self.mark(at);
    }

    /// Puts a link on the list of those with something to write.
    #[inline]
    pub fn mark(&mut self, at: LinkId) {
        let link = &mut self.all[at.place()];
        if !link.dirty {
            link.dirty = true;
            self.dirty.push(at);
        }
    }

    pub fn next_dirty(&mut self) -> Option<LinkId> {
        let at = self.dirty.pop()?;
        self.all[at.place()].dirty = false;
        Some(at)
    }

    pub fn next_dead(&mut self) -> Option<LinkId> {
        self.dead.pop()
    }

    /// Whether something of the link is still to be written.
    pub fn is_written(&self, at: LinkId) -> bool {
        self[at].dirty || !self[at].out.is_empty()
    }

    /// The driver has not heard yet that the link is gone, or has something of it in hand.
    pub fn is_in_use(&self, at: LinkId) -> bool {
        self.is_written(at) || self.dead.contains(&at)
    }

    /// What waits for `at`, for the driver to write.
    #[inline]
    pub fn output(&mut self, at: LinkId) -> &mut OutQueue {
        &mut self.all[at.place()].out
    }

    /// Whether more data may be put on a link now.
    #[inline]
    pub fn has_room(&self, at: LinkId) -> bool {
        self.all[at.place()].out.len() < LINK_OUT_BYTES
    }

    /// Takes back what waits on a link of which nothing was written yet.
    pub fn unsay(&mut self, at: LinkId) {
        self.all[at.place()].out = OutQueue::default();
    }

    /// Ends a link for good; what waited for it is lost. Gives the state in which it was.
    pub fn hang_up(&mut self, at: LinkId) -> LinkState {
        let gone = &mut self.all[at.place()];
        gone.carry = Vec::new();
        gone.out = OutQueue::default();
        gone.waiting.clear();
        // `dirty` is not cleared: the link is on that list until `next_dirty` takes it off.
        self.dead.push(at);
        std::mem::replace(&mut gone.state, LinkState::Lost)
    }

    /// Of the lists: each link once, and as the link itself says.
    pub fn check(&self) -> Result<(), String> {
        let mut dirty = vec![false; self.all.len()];
        for at in &self.dirty {
            let twice = std::mem::replace(&mut dirty[at.place()], true);
            crate::rule!(!twice, "link {at} is on the list to be written twice");
        }
        for (at, link) in self.ids().zip(&self.all) {
            crate::rule!(
                link.dirty == dirty[at.place()],
                "link {at} is to be written, or not: two lists differ"
            );
        }
        self.check_index()?;
        for at in &self.dead {
            crate::rule!(!self[*at].is_alive(), "link {at} is to be closed and alive");
        }
        Ok(())
    }
}
