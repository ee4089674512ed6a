//! Children that a node cannot start, because nobody can log in to their hosts from there. The root
//! is asked, which mostly can.
//!
//! ```text
//! root   <─ Stranded(rank, above) ── node      which goes on waiting for the child
//!        starts the leaves below that rank: they come to the node, or to the root
//!        ── Verdict(rank) ─────────> node      which waits no more
//! ```
//! Nothing here depends on any of this arriving: the node gives up by itself in the end, and a leaf
//! that comes to the root is taken from whoever holds it as any other that turns up elsewhere
//! (`release.rs`).
use super::{Event, Node};
use crate::config::NodeRole;
use crate::control::{self, Ancestor, Notice, Verdict};
use crate::frame::{Header, Kind, Violation};
use crate::links::LinkId;
use sheaf_core::{Errno, RangeSet};

impl Node {
    /// Asks the root to start what is at the place of the child `rank`. `above` is this node and
    /// those above it.
    pub fn strand(&mut self, rank: u32, cause: &str, above: Vec<Ancestor>) {
        let Some(child) = self.config.children.iter().find(|child| child.rank == rank) else {
            return;
        };
        let (by, leaves, cause) = (self.config.rank, child.leaves.clone(), cause.to_owned());
        self.notice(Header::new(Kind::Notice), Notice::Stranded { by, rank, leaves, cause, above });
    }

    /// What is at the place of the child `rank` does not start; of what was to be below it, these
    /// leaves are started from here. At the root that is told; further down it is nobody's concern.
    pub fn stand_in(&mut self, rank: u32, leaves: RangeSet, cause: &str) {
        if self.config.role != NodeRole::Root {
            return;
        }
        let (by, cause, above) = (self.config.rank, cause.to_owned(), Vec::new());
        let stranded = Notice::Stranded { by, rank, leaves, cause, above };
        self.notice(Header::new(Kind::Notice), stranded);
    }

    /// The leaf `rank` was to be below the child on `link`, and does not start from here either: it
    /// is lost for a reason of its own. The child is given up after that.
    pub fn leaf_dead(
        &mut self,
        link: LinkId,
        rank: u32,
        leaves: &RangeSet,
        errno: Errno,
        cause: &str,
    ) {
        // Leaves that another link holds by now have come back, and are not lost.
        let held = leaves.intersection(self.links[link].leaves());
        let leaves = held.difference(&self.below.lost);
        if !leaves.is_empty() {
            self.below.lost.union_with(&leaves);
            let (by, cause) = (self.config.rank, cause.to_owned());
            let lost = Notice::Lost { by, rank, leaves, errno, cause };
            self.notice(Header::new(Kind::Notice), lost);
        }
    }

    /// At the root: tells the node above that child what became of it.
    pub fn give_verdict(&mut self, verdict: Verdict) {
        let is_here = self.config.children.iter().any(|child| child.rank == verdict.rank);
        if is_here {
            return self.events.push_back(Event::Verdict(verdict));
        }
        let frame = control::control(Header::new(Kind::Verdict), &verdict);
        let leads = |link: &crate::links::Link| {
            link.is_live_child() && link.is_member() && verdict.leaves.is_subset(&link.claim)
        };
        let to: Vec<LinkId> = self.links.ids().filter(|&at| leads(&self.links[at])).collect();
        to.into_iter().for_each(|at| self.links.send(at, &frame));
    }

    /// From the parent, for this node or one below. Late ones, of children that have come or were
    /// given up, do nothing.
    pub(super) fn on_verdict(&mut self, link: LinkId, body: &[u8]) -> Result<(), Violation> {
        let verdict: Verdict = control::decode(Kind::Verdict, body)?;
        if self.recovery.parent != Some(link) {
            return Err(Violation::OutOfPlace(Kind::Verdict));
        }
        self.give_verdict(verdict);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Child, NodeConfig, Time, Tuning};
    use crate::filter::Registry;
    use bytes::Bytes;

    const NOW: Time = Time(0);

    fn node(rank: u32, role: NodeRole, children: &[(u32, RangeSet)]) -> Node {
        let leaves = RangeSet::from_range(0, 4);
        let children = children
            .iter()
            .map(|(rank, leaves)| Child { rank: *rank, leaves: leaves.clone() })
            .collect();
        let config = NodeConfig {
            rank,
            role,
            depth: 0,
            leaves,
            children,
            stream_base: 0,
            place: Default::default(),
            tuning: Tuning::default(),
        };
        Node::new(config, Registry::with_builtins(), NOW)
    }

    /// All that waits for the other end of a link.
    fn said(node: &mut Node, link: LinkId) -> Bytes {
        let pieces = node.output(link).take();
        Bytes::from(pieces.iter().flat_map(|piece| piece.to_vec()).collect::<Vec<u8>>())
    }

    #[test]
    fn root_hears_who_is_stranded_and_its_node_what_came_of_it() {
        let mut root = node(0, NodeRole::Root, &[(1, RangeSet::from_range(0, 4))]);
        let mut inner =
            node(1, NodeRole::Inner, &[(2, RangeSet::single(0)), (3, RangeSet::from_range(1, 4))]);
        let (down, up) = (LinkId::new(0), inner.add_parent(NOW));
        root.attach(NOW, down);
        inner.attach(NOW, up);
        inner.strand(3, "no login", Vec::new());
        inner.strand(9, "no child of its own", Vec::new());
        root.receive(NOW, down, &said(&mut inner, up)).unwrap();
        let leaves = RangeSet::from_range(1, 4);
        let (cause, above) = ("no login".to_owned(), Vec::new());
        let stranded = Notice::Stranded { by: 1, rank: 3, leaves: leaves.clone(), cause, above };
        assert_eq!(root.poll_event(), Some(Event::Notice(stranded)));
        assert_eq!(root.poll_event(), None);
        let verdict =
            Verdict { rank: 3, leaves, errno: Errno::ACCES, cause: "nor from here".to_owned() };
        root.give_verdict(verdict.clone());
        inner.receive(NOW, up, &said(&mut root, down)).unwrap();
        assert_eq!(inner.poll_event(), Some(Event::Verdict(verdict)));
        assert_eq!((root.check(), inner.check()), (Ok(()), Ok(())));
    }
}
