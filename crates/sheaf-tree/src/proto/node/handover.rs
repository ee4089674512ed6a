//! Children that were adopted go to where their place is, once the node that was lost in between is there
//! again: so a node that adopts does not keep more children than were planned.
//!
//! ```text
//! adopter ── Take(leaves) ─> the node in between   which waits for them as for children it has lost
//!         ── Go(address) ──> the adopted child     which looks for a parent, that one first
//! ```
//! Only while no stream is open here: then nothing is under way that could be lost, and streams that
//! are opened meanwhile wait for the child as they do for any that comes back. One that does not find
//! the way comes back to the adopter.
use super::super::control::{self, Ancestor, Take};
use super::super::frame::{Header, Kind, Violation};
use super::super::link::{Awaited, Link, Stage, Way};
use super::super::stream::mark;
use super::super::{Role, Time};
use super::adopt::LINKS_MAX;
use super::{Event, Node};
use sheaf_core::{Errno, RangeSet};

impl Node {
    /// Sends the child on link `from` below the one on link `to`, which listens at `address`; whether
    /// that can be done now.
    pub fn hand_over(&mut self, from: usize, to: usize, address: &Ancestor) -> bool {
        let is_child = |at: usize| {
            let link = &self.links[at];
            link.way == Way::Down && link.alive && link.attached && matches!(link.stage, Stage::Member)
        };
        let idle = self.streams.is_empty() && self.jobs.is_empty() && !self.over;
        if !idle || from == to || !is_child(from) || !is_child(to) || self.links[from].leaves.is_empty() {
            return false;
        }
        let leaves = std::mem::replace(&mut self.links[from].leaves, RangeSet::new());
        self.links[to].leaves.union_with(&leaves);
        let take = Take { rank: self.links[from].rank, leaves };
        self.links[to].out.push(control::control(Header::new(Kind::Take), &take));
        self.links[from].out.push(control::control(Header::new(Kind::Go), address));
        // The one that is to wait hears of it first.
        mark(&mut self.links, &mut self.dirty, from);
        mark(&mut self.links, &mut self.dirty, to);
        true
    }

    pub(super) fn on_take(&mut self, now: Time, link: usize, body: &[u8]) -> Result<(), Violation> {
        self.unsettle();
        let take: Take = control::decode(Kind::Take, body)?;
        if self.parent != Some(link) || self.config.role != Role::Inner {
            return Err(Violation::OutOfPlace(Kind::Take));
        }
        if self.links.len() >= LINKS_MAX {
            return Err(Violation::Bound("too many nodes have come and gone"));
        }
        let leaves = take.leaves.difference(&self.config.leaves);
        self.config.leaves.union_with(&leaves);
        self.ready_leaves.union_with(&leaves);
        let until = now + self.config.tuning.adoption_grace;
        let awaited =
            Awaited { until, errno: Errno::HOSTDOWN, cause: "it did not come to its place".to_owned() };
        let coming = Link { alive: false, ..Link::new(Way::Down, take.rank, leaves, now) };
        self.links.push(Link { stage: Stage::Awaited(Box::new(awaited)), ..coming });
        self.recover_by(until);
        Ok(())
    }

    pub(super) fn on_go(&mut self, now: Time, link: usize, body: &[u8]) -> Result<(), Violation> {
        let to: Ancestor = control::decode(Kind::Go, body)?;
        if self.parent != Some(link) {
            return Err(Violation::OutOfPlace(Kind::Go));
        }
        self.events.push_back(Event::Go(to));
        self.link_lost(now, link, Errno::CONNRESET, "its place is elsewhere");
        Ok(())
    }
}
