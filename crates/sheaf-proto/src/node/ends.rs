//! What the driver of a node does with its links: it gives them transports, tells what becomes of
//! these, and writes what waits.
use super::Node;
use crate::config::{NodeRole, Time};
use crate::filter::{LinkClock, LinkClocks};
use crate::links::{Counters, Link, LinkCarrier, LinkId, LinkWay, OutQueue};
use crate::own;
use crate::report::Via;
use bytes::Bytes;
use sheaf_core::{Errno, RangeSet};
use std::sync::Arc;

impl Node {
    /// What this node has measured of its children's clocks; whoever measures tells it here.
    #[must_use]
    pub fn link_clocks(&self) -> &Arc<LinkClocks> {
        &self.clocks
    }

    /// Adds the link to a parent: the tree's, or a client's. Children have the first links, in the
    /// order of [`crate::NodeConfig::children`]; the parent's comes next.
    pub fn add_parent(&mut self, now: Time) -> LinkId {
        let link = self.add_up(now);
        if self.config.role != NodeRole::Root {
            self.recovery.parent = Some(link);
        }
        link
    }

    /// The link to the own leaf of this node ([`crate::own`]), which is one of
    /// [`crate::NodeConfig::leaves`] and runs in the same process. Called once, before anything
    /// else happens but [`Node::add_parent`] and [`Node::begin_empty`]; the driver joins the
    /// two and calls [`Node::attach_quiet`] on both.
    pub fn add_own_leaf(&mut self, now: Time) -> LinkId {
        let leaf = own::leaf_of(self.config.rank);
        let link = Link::new(LinkWay::Down, leaf, RangeSet::single(leaf), now)
            .carried_by(LinkCarrier::Inside);
        let at = self.links.add(link);
        self.links[at].ready = true;
        self.below.ready.insert(leaf);
        // `begin_empty` has counted it as lost, with all other leaves.
        self.below.lost = self.below.lost.difference(&RangeSet::single(leaf));
        at
    }

    pub(super) fn add_up(&mut self, now: Time) -> LinkId {
        let link = Link::new(LinkWay::Up, 0, self.config.leaves.clone(), now)
            .carried_by(LinkCarrier::Connection);
        // The place of a client that has left is taken by the next one.
        let free = self.links.ids().find(|&at| {
            let old = &self.links[at];
            // Streams of an orphan still belong to its last parent.
            let last = self.recovery.parent == Some(at);
            old.way == LinkWay::Up && !old.is_alive() && !last && !self.links.is_written(at)
        });
        match free {
            Some(at) => {
                self.links.replace(at, link);
                at
            }
            None => self.links.add(link),
        }
    }

    /// The child on `link` is known to have ended: nobody waits for the leaves below it to come
    /// back another way. (For an upward link, the same as [`Node::link_lost`].)
    pub fn child_dead(&mut self, now: Time, link: LinkId, errno: Errno, cause: &str) {
        self.link_lost(now, link, errno, cause);
        if self.links[link].way == LinkWay::Down {
            self.give_up_waiting(link);
        }
    }

    /// A transport now carries `link`; from here on the peer must show signs of life.
    pub fn attach(&mut self, now: Time, link: LinkId) {
        self.links.attach(now, link, LinkCarrier::Connection);
    }

    /// A transport now carries `link`, and its peer is a process of this machine whose end the
    /// kernel tells.
    pub fn attach_near(&mut self, now: Time, link: LinkId) {
        self.links.attach(now, link, LinkCarrier::Near);
    }

    /// `link` is inside this process and needs no heartbeats.
    pub fn attach_quiet(&mut self, link: LinkId) {
        self.links[link].carrier = LinkCarrier::Inside;
        if self.links[link].way == LinkWay::Down {
            // Both ends read the same clock.
            self.clocks.set(self.links[link].rank, Some(LinkClock::default()));
        }
    }

    /// Says what the transport is that carries `link` now, for reports.
    pub fn carried_via(&mut self, link: LinkId, via: Via) {
        self.links[link].via = via;
    }

    /// Links whose peers are given up by the next [`Node::tick`], unless somebody vouches for them.
    pub fn overdue(&self, now: Time) -> Vec<LinkId> {
        self.links.overdue(now)
    }

    /// The driver sees that the peer of `link` lives, and has only had no chance to say so: it has
    /// just been started, or waits for the processor. It is believed for a while.
    pub fn vouch(&mut self, now: Time, link: LinkId) {
        self.links[link].vouched = now;
    }

    /// The peer of `link`, a parent, is the root, and a process of this machine: the kernel tells
    /// when it ends, and without it nothing goes on anywhere. So it is not given up for saying
    /// nothing, for as long as the transport that carries the link now is there: one that was
    /// stopped goes on with its whole tree.
    pub fn hold_to(&mut self, link: LinkId) {
        let link = &mut self.links[link];
        link.is_sole = link.way == LinkWay::Up && link.is_alive();
    }

    /// Says what the wall clock is: `wall_ns` nanoseconds since 1970 at `now`. Without it the
    /// clocks of peers are not compared.
    pub fn set_wall_clock(&mut self, now: Time, wall_ns: u64) {
        self.links.heart.set_wall_clock(now, wall_ns);
    }

    /// The next link with something to write; each is named once until more is queued on it.
    pub fn next_dirty(&mut self) -> Option<LinkId> {
        self.send_hand_overs();
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
        // Before `note_lost`, which changes `since`: this compares it with when the peer was heard.
        self.search_anew(now, link);
        self.note_lost(now, link, errno, cause);
        if self.links[link].way == LinkWay::Up {
            self.parent_link_lost(now, link);
            return;
        }
        self.await_leaves(now, link, errno, cause);
        // Who breaks the protocol is not waited for.
        let left = self.links[link].leaves().is_subset(&self.below.lost);
        let hopeless = self.links[link].is_inside() || errno == Errno::PROTO || left;
        if hopeless || self.config.tuning.adoption_grace.is_zero() {
            self.give_up_waiting(link);
        }
    }
}
