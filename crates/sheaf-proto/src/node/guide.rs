//! Where nodes listen, and which of them are missing: what a launcher needs to send newcomers on and
//! to start again what was lost.
use super::super::control::{self, Address};
use super::super::frame::{Header, Kind, Violation};
use super::super::link::{Link, Stage, Way};
use super::super::stream::mark;
use super::{Event, Node};
use sheaf_core::RangeSet;

impl Node {
    /// Says where this node listens for nodes below it: to its parent, and to every later one.
    pub fn listens_at(&mut self, address: &Address) {
        self.door = Some(control::control(Header::new(Kind::Door), address));
        self.tell_door();
    }

    pub(super) fn tell_door(&mut self) {
        let Some((door, parent)) = self.door.clone().zip(self.parent) else { return };
        if self.links[parent].alive && matches!(self.links[parent].stage, Stage::Member) {
            self.links[parent].out.push(door);
            mark(&mut self.links, &mut self.dirty, parent);
        }
    }

    pub(super) fn on_door(&mut self, link: usize, body: &[u8]) -> Result<(), Violation> {
        let address: Address = control::decode(Kind::Door, body)?;
        self.events.push_back(Event::Door { rank: self.links[link].rank, address });
        Ok(())
    }

    /// Whether the child on `link` speaks for `leaves`; `None` while it has not been taken in.
    #[must_use]
    pub fn speaks_for(&self, link: usize, leaves: &RangeSet) -> Option<bool> {
        let link = &self.links[link];
        match link.stage {
            Stage::Knocking | Stage::Pending(_) if link.alive => None,
            Stage::Member => Some(link.alive && leaves.is_subset(&link.leaves)),
            _ => Some(false),
        }
    }

    /// Whether these leaves were reported to run, and not to have gone.
    #[must_use]
    pub fn runs(&self, leaves: &RangeSet) -> bool {
        leaves.is_subset(&self.ready_leaves.difference(&self.lost))
    }

    /// At a node that is started anew while the tree runs: none of its planned children is there,
    /// and none of its leaves, until they come.
    pub fn begin_empty(&mut self) {
        for link in self.links.iter_mut().filter(|link| link.way == Way::Down) {
            link.alive = false;
            link.stage = Stage::Lost;
        }
        self.lost = self.config.leaves.clone();
        self.ready_told = true;
    }

    /// Whether a parent has this node.
    #[must_use]
    pub fn is_taken_in(&self) -> bool {
        let parent = self.parent.map(|parent| &self.links[parent]);
        parent.is_some_and(|parent| parent.alive && matches!(parent.stage, Stage::Member))
    }

    /// Planned children that are lost, did not leave, and are nobody else's now.
    #[must_use]
    pub fn missing_children(&self) -> Vec<u32> {
        let planned = self.config.children.iter();
        let missing = planned.filter(|child| {
            let left = child.leaves.is_subset(&self.left);
            let own = !child.leaves.is_disjoint(&self.config.leaves);
            own && !left && !self.links.iter().any(|link| link.rank == child.rank && is_there(link))
        });
        missing.map(|child| child.rank).collect()
    }

    /// Those of `leaves` that are lost, and have not left as planned.
    #[must_use]
    pub fn lost_of(&self, leaves: &RangeSet) -> RangeSet {
        leaves.intersection(&self.lost).difference(&self.left)
    }
}

/// Whether a child is connected, may still connect, or may come back.
fn is_there(link: &Link) -> bool {
    link.way == Way::Down && (link.alive || matches!(link.stage, Stage::Awaited(_)))
}
