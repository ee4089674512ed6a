//! Where nodes listen, and which of them are missing: what a launcher needs to send newcomers on
//! and to start again what was lost.
use super::{Event, Node};
use crate::control::{self, DoorAddress};
use crate::frame::{Header, Kind, Violation};
use crate::links::{Link, LinkId, LinkState, LinkWay};
use sheaf_core::RangeSet;

/// In the number that orders the connections of the nodes of one rank, what stands above counts the
/// processes, what stands below how often one has looked for a parent.
const LIFE_SHIFT: u32 = 32;

/// Which of the processes that had one place, one after the other.
pub(super) fn life_of(epoch: u64) -> u64 {
    epoch >> LIFE_SHIFT
}

impl Node {
    /// Says where this node listens for nodes below it: to its parent, and to every later one.
    pub fn listens_at(&mut self, address: &DoorAddress) {
        self.recovery.door = Some(control::control(Header::new(Kind::Door), address));
        self.tell_door();
    }

    pub(super) fn tell_door(&mut self) {
        let Some((door, parent)) = self.recovery.door.clone().zip(self.recovery.parent) else {
            return;
        };
        // An ancestor that has not taken this node in would refuse the frame. `on_adopted` repeats
        // it.
        if self.links[parent].is_alive() && self.links[parent].is_member() {
            self.links.send(parent, door);
        }
    }

    /// Where a child listens: of use to the driver alone, which sends newcomers there, and looks
    /// whether the address makes sense. The latest counts.
    pub(super) fn on_door(&mut self, link: LinkId, body: &[u8]) -> Result<(), Violation> {
        let address: DoorAddress = control::decode(Kind::Door, body)?;
        self.events.push_back(Event::Door { rank: self.links[link].rank, address });
        Ok(())
    }

    /// Whether the child on `link` speaks for `leaves`; `None` while it has not been taken in.
    #[must_use]
    pub fn speaks_for(&self, link: LinkId, leaves: &RangeSet) -> Option<bool> {
        let link = &self.links[link];
        match link.state {
            LinkState::Knocking | LinkState::Pending(_) if link.is_alive() => None,
            LinkState::Member => Some(link.is_alive() && leaves.is_subset(link.leaves())),
            _ => Some(false),
        }
    }

    /// Whether these leaves were reported to run, and not to have gone.
    #[must_use]
    pub fn runs(&self, leaves: &RangeSet) -> bool {
        leaves.is_subset(&self.below.ready.difference(&self.below.lost))
    }

    /// At a node that is started anew while the tree runs: none of its planned children is there,
    /// and none of its leaves, until they come.
    pub fn begin_empty(&mut self) {
        for link in self.links.down_mut() {
            link.state = LinkState::Lost;
        }
        self.below.lost = self.config.leaves.clone();
        // A late node reports its leaves in `Adopt`, so that `Ready` must not be sent as well.
        self.below.told = true;
        self.begin_late();
    }

    /// At a node that is started while the tree runs: another may have been in its place before,
    /// and have been asked what was asked so far. It has no part in that.
    pub fn begin_late(&mut self) {
        self.recovery.born = Some(u64::MAX);
    }

    /// Whether this node was started in the place of another, as far as it has been told.
    #[must_use]
    pub fn is_successor(&self) -> bool {
        self.recovery.born.is_some_and(|born| born > 0 && born < u64::MAX)
    }

    /// At a node that begins: these children, which are leaves, come later, by themselves. Nobody
    /// waits for them.
    pub fn begin_without(&mut self, leaves: &RangeSet) {
        for link in self.links.down_mut().filter(|link| link.leaves().is_subset(leaves)) {
            link.state = LinkState::Lost;
        }
        self.below.lost.union_with(leaves);
    }

    /// Whether a parent has this node.
    #[must_use]
    pub fn is_taken_in(&self) -> bool {
        let parent = self.recovery.parent.map(|parent| &self.links[parent]);
        parent.is_some_and(|parent| parent.is_alive() && parent.is_member())
    }

    /// How often the nodes of this rank that were here have looked for a parent. One that is
    /// started anew counts on from there ([`Node::count_on`]), so that it is not taken for an old
    /// connection of theirs.
    #[must_use]
    pub fn last_epoch(&self, rank: u32) -> u64 {
        let links = self.links.iter().filter(|link| link.way == LinkWay::Down && link.rank == rank);
        links.map(|link| link.epoch).max().unwrap_or(0)
    }

    /// At a node that is started anew: it comes after another, which had counted to `epoch`.
    ///
    /// However often that one looks for a parent still, should it live after all, it is not as new
    /// as this one: the two do not take turns in one place.
    pub fn count_on(&mut self, epoch: u64) {
        let next_life = life_of(epoch).saturating_add(1) << LIFE_SHIFT;
        self.recovery.epoch = self.recovery.epoch.max(next_life);
    }

    /// Planned children that are lost, did not leave, and are nobody else's now.
    #[must_use]
    pub fn missing_children(&self) -> Vec<u32> {
        let planned = self.config.children.iter();
        let missing = planned.filter(|child| {
            let left = child.leaves.is_subset(&self.below.left);
            let own = !child.leaves.is_disjoint(&self.config.leaves);
            own && !left && !self.links.iter().any(|link| link.rank == child.rank && is_there(link))
        });
        missing.map(|child| child.rank).collect()
    }

    /// Those of `leaves` that are lost, and have not left as planned.
    #[must_use]
    pub fn lost_of(&self, leaves: &RangeSet) -> RangeSet {
        leaves.intersection(&self.below.lost).difference(&self.below.left)
    }
}

/// Whether a child is connected, may still connect, or may come back.
fn is_there(link: &Link) -> bool {
    link.way == LinkWay::Down && (link.is_alive() || matches!(link.state, LinkState::Awaited(_)))
}
