//! Children that were adopted go to where their place is, once the node that was lost in between is
//! there again: so a node that adopts does not keep more children than were planned,
//! except children that it reaches only over ssh.
//!
//! ```text
//! adopter ── Take(leaves) ─> the node in between   which waits for them as for children it has lost
//!         ── Go(address) ──> the adopted child     which looks for a parent, that one first
//! ```
//! Only when no stream is open here: then nothing is under way that could be lost, and streams that
//! are opened meanwhile wait for the child as they do for any that comes back. One that does not
//! find the way comes back to the adopter.
use super::{Event, Node};
use crate::config::{NodeRole, Time};
use crate::control::{self, Ancestor, Take};
use crate::frame::{Header, Kind, Violation};
use crate::links::{Awaited, Link, LinkId, LinkState, LinkWay};
use sheaf_core::Errno;

/// A child that was adopted, and below whom its place is.
pub struct HandOver {
    /// Its link.
    pub from: LinkId,
    /// Its rank.
    pub rank: u32,
    /// The link of the child below which its place is.
    pub to: LinkId,
    /// That child.
    pub place: Ancestor,
}

impl Node {
    /// Sends children below others as soon as nothing is under way here. What was to be done of
    /// earlier calls is not.
    pub fn hand_over(&mut self, children: Vec<HandOver>) {
        self.recovery.leaving = children;
    }

    /// Those that can be sent below others now are.
    pub(super) fn send_hand_overs(&mut self) {
        if self.recovery.leaving.is_empty()
            || !self.streams.is_empty()
            || !self.recovery.jobs.is_empty()
            || self.recovery.over
        {
            return;
        }
        for child in std::mem::take(&mut self.recovery.leaving) {
            self.send_below(&child);
        }
    }

    fn send_below(&mut self, HandOver { from, rank, to, place }: &HandOver) {
        let (from, to) = (*from, *to);
        // The driver made its plan earlier. By now either child may be lost, or its link number may
        // belong to another node, so the rank is compared too.
        let is_child = |at: LinkId, rank: u32| {
            let Some(link) = self.links.get(at) else { return false };
            let here = link.is_live_child() && link.is_attached() && link.rank == rank;
            here && link.is_member()
        };
        if from == to || !is_child(from, *rank) || !is_child(to, place.rank) {
            return;
        }
        let leaves = self.links[from].leaves().clone();
        if !leaves.is_empty() {
            self.links.take_leaves(from, &leaves);
            self.links.give_leaves(to, &leaves);
            let take = Take { rank: *rank, leaves };
            self.links.send(to, control::control(Header::new(Kind::Take), &take));
        }
        self.links.send(from, control::control(Header::new(Kind::Go), place));
        // The one that is to wait hears of it first.
        self.links.mark(from);
        self.links.mark(to);
    }

    /// A child of the parent's will come here, where its place is: it is waited for as one that was
    /// lost.
    ///
    /// Assumes what the sender sees to: no stream is open with these leaves (it sends only when
    /// none is), and from here on they are this node's for everybody above. If the child does not
    /// come in the time of grace they are lost here, and found again wherever it turns up.
    pub(super) fn on_take(
        &mut self,
        now: Time,
        link: LinkId,
        body: &[u8],
    ) -> Result<(), Violation> {
        let take: Take = control::decode(Kind::Take, body)?;
        if self.recovery.parent != Some(link) || self.config.role != NodeRole::Inner {
            return Err(Violation::OutOfPlace(Kind::Take));
        }
        // A leaf is on one link only: those that have come here already stay on theirs.
        let leaves = take.leaves.difference(&self.config.leaves);
        let until = now + self.config.tuning.adoption_grace;
        let awaited = Awaited {
            until,
            errno: Errno::HOSTDOWN,
            cause: "it did not come to its place".to_owned(),
        };
        let state = LinkState::Awaited(Box::new(awaited));
        self.add_down(Link::new(LinkWay::Down, take.rank, leaves.clone(), now).in_state(state))?;
        self.config.leaves.union_with(&leaves);
        self.below.ready.union_with(&leaves);
        self.timers.wake_recovery(until);
        Ok(())
    }

    /// This node's place is below another one, which has been told to wait for it.
    ///
    /// Only the parent may say so, and does when no stream is open, so that losing it loses nothing
    /// (what is kept of streams would be sent again otherwise, as after any loss). Afterwards this
    /// node is an orphan whose driver knows where to ask first; any other ancestor takes it too.
    pub(super) fn on_go(&mut self, now: Time, link: LinkId, body: &[u8]) -> Result<(), Violation> {
        let to: Ancestor = control::decode(Kind::Go, body)?;
        if self.recovery.parent != Some(link) {
            return Err(Violation::OutOfPlace(Kind::Go));
        }
        self.events.push_back(Event::Go(to));
        self.link_lost(now, link, Errno::CONNRESET, "its place is elsewhere");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{NodeConfig, Tuning};
    use crate::control::Release;
    use crate::filter::Registry;
    use bytes::Bytes;
    use sheaf_core::RangeSet;

    /// A child that is to come and does not, again and again, leaves no link behind.
    #[test]
    fn place_of_who_did_not_come_is_used_again() {
        let now = Time(0);
        let config = NodeConfig {
            rank: 1,
            role: NodeRole::Inner,
            depth: 1,
            leaves: RangeSet::new(),
            children: Vec::new(),
            stream_base: 0,
            place: Default::default(),
            tuning: Tuning::default(),
        };
        let mut node = Node::new(config, Registry::with_builtins(), now);
        let parent = node.add_parent(now);
        node.attach(now, parent);
        let hear = |node: &mut Node, kind, body: Bytes| {
            assert_eq!(Header::parse(&body).unwrap().unwrap().kind, kind);
            node.receive(now, parent, &body).unwrap();
            assert_eq!(node.check(), Ok(()));
        };
        for rank in 10..30 {
            let leaves = RangeSet::single(rank);
            let take = Take { rank, leaves: leaves.clone() };
            hear(&mut node, Kind::Take, control::control(Header::new(Kind::Take), &take));
            assert_eq!(node.config.leaves, leaves);
            let release = Release { leaves, rank };
            hear(&mut node, Kind::Release, control::control(Header::new(Kind::Release), &release));
            assert!(node.config.leaves.is_empty());
        }
        assert_eq!(node.links.len(), 2);
    }
}
