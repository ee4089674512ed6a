//! Who is connected to whom in a simulated tree, and how orphans find another parent.
use super::wire::{SimWire, Trouble};
use super::{Connection, Leaves, Sim, SimWhat};
use crate::links::LinkId;
use crate::own;
use sheaf_core::{Errno, RangeSet};
use std::time::Duration;

/// Between two ancestors that are tried, and after all of them.
const PAUSE: Duration = Duration::from_micros(200);
const ROUND_PAUSE: Duration = Duration::from_millis(50);
/// How long a connection to a machine takes to fail that does not even refuse it.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Why nothing runs on a node that was started again in vain.
pub const IN_VAIN: &str = "what is to run there is not there";

impl<L: Leaves> Sim<L> {
    pub(super) fn ends(&self, connection: u32) -> Connection {
        if let Some(at) = connection.checked_sub(self.shape.nodes()) {
            return self.made[at as usize];
        }
        let upper = self.shape.parent(connection);
        let place = connection.checked_sub(self.shape.children(upper).start);
        let upper_link = place.map(|place| LinkId::new(place as usize));
        Connection { upper, upper_link, lower: connection, lower_link: self.planned_up(connection) }
    }

    /// Whether a link of a node leads to its own leaf.
    pub(super) fn is_own(&self, rank: u32, link: LinkId) -> bool {
        self.shape.leaf(rank).is_none() && self.hosts[rank as usize].joint.0 == link
    }

    fn planned_up(&self, rank: u32) -> LinkId {
        LinkId::new(self.shape.children(rank).len())
    }

    /// Who receives from a wire, and on which link.
    pub(super) fn receiver(&self, wire: u32) -> (u32, Option<LinkId>) {
        let ends = self.ends(wire / 2);
        if wire % 2 == 1 {
            (ends.upper, ends.upper_link)
        } else {
            (ends.lower, Some(ends.lower_link))
        }
    }

    /// The wire that a node sends on.
    pub(super) fn wire(&self, rank: u32, link: LinkId) -> Option<u32> {
        let planned = || {
            let children = self.shape.children(rank);
            if link.place() == children.len() { rank } else { children.start + link.place() as u32 }
        };
        let connection = match self.routes.get(&(rank, link)) {
            Some(&connection) => connection,
            None if link <= self.planned_up(rank) => planned(),
            None => return None,
        };
        Some(2 * connection + u32::from(self.ends(connection).lower == rank))
    }

    /// The wires on which a node sends or has sent.
    pub(super) fn outward(&self, rank: u32) -> Vec<u32> {
        let children = self.shape.children(rank).map(|child| 2 * child);
        let own = (rank > 0).then_some(2 * rank + 1);
        let made = self.hosts[rank as usize].made.iter();
        let made = made.map(|&at| 2 * at + u32::from(self.ends(at).lower == rank));
        children.chain(own).chain(made).collect()
    }

    /// A node has lost its parent.
    pub(super) fn orphaned(&mut self, rank: u32) {
        let host = &mut self.hosts[rank as usize];
        let search = host.node.as_ref().and_then(|node| node.orphaned_since());
        // A new loss begins with the nearest ancestor. The same one goes on with the next.
        if host.search != search {
            host.search = search;
            host.tried = 0;
        }
        self.search_after(rank, PAUSE);
    }

    fn search_after(&mut self, rank: u32, pause: Duration) {
        let round = self.shape.depth_of(rank).max(1);
        let tried = self.hosts[rank as usize].tried;
        let pause =
            if tried > 0 && tried.is_multiple_of(round) { pause.max(ROUND_PAUSE) } else { pause };
        let jitter = Duration::from_micros(self.rng.u64(0..100));
        let at = self.now + pause + jitter;
        self.push(at, SimWhat::Search(rank));
    }

    /// An orphan tries the ancestor whose turn it is.
    pub(super) fn search(&mut self, rank: u32) {
        let host = &self.hosts[rank as usize];
        let Some(node) = &host.node else { return };
        if node.orphaned_since().is_none() || node.is_asking() {
            return;
        }
        if host.stopped {
            return self.search_after(rank, ROUND_PAUSE);
        }
        let upper = self.next_ancestor(rank);
        if !self.is_in_reach(rank, upper) {
            return self.search_after(rank, CONNECT_TIMEOUT);
        }
        if self.node(upper).is_none() {
            return self.search_after(rank, PAUSE);
        }
        self.connect(rank, upper, true);
    }

    /// The ancestor whose turn it is.
    fn next_ancestor(&mut self, rank: u32) -> u32 {
        let host = &mut self.hosts[rank as usize];
        if let Some(place) = host.place.take() {
            return place;
        }
        let mut upper = self.shape.parent(rank);
        for _ in 0..host.tried % self.shape.depth_of(rank).max(1) {
            upper = self.shape.parent(upper);
        }
        host.tried += 1;
        upper
    }

    /// Whether what a node sends gets to an ancestor's machine.
    pub(super) fn is_in_reach(&self, rank: u32, upper: u32) -> bool {
        let cut = self.cuts.get(&rank).is_some_and(|&(other, _)| other == upper);
        let off = self.hosts[upper as usize].off;
        !cut && !off && !self.isolated.contains(&rank) && !self.isolated.contains(&upper)
    }

    /// A node connects to an ancestor; one that does not serve says so, and nothing else.
    pub(super) fn connect(&mut self, lower: u32, upper: u32, serves: bool) {
        let now = self.now;
        let connection = self.shape.nodes() + self.made.len() as u32;
        let latency = self.config.physics.latency;
        let Some(node) = self.hosts[lower as usize].node.as_mut() else { return };
        let link = node.resume_parent(now);
        if !serves {
            node.give_up(Errno::NOENT, IN_VAIN);
        }
        node.attach(now, link);
        let lower_link = link;
        self.made.push(Connection { upper, upper_link: None, lower, lower_link });
        self.routes.insert((lower, lower_link), connection);
        let arrives = now + latency * 2;
        self.wires.push(SimWire::default());
        self.wires.push(SimWire { arrives, ..SimWire::default() });
        for rank in [lower, upper] {
            self.hosts[rank as usize].made.push(connection);
        }
        self.hosts[lower as usize].up = connection;
        self.push(arrives, SimWhat::Knock(connection));
        self.settle(lower);
    }

    /// A node takes a connection.
    pub(super) fn accept(&mut self, rank: u32, connection: u32) {
        let now = self.now;
        let lower = self.ends(connection).lower;
        let below = self.shape.all_leaves_below(lower);
        let Some(node) = self.hosts[rank as usize].node.as_mut() else { return };
        match node.child_link(now, lower, &below) {
            Ok(link) => {
                node.attach(now, link);
                let at = (connection - self.shape.nodes()) as usize;
                self.made[at].upper_link = Some(link);
                self.routes.insert((rank, link), connection);
                self.entered(rank, lower);
            }
            Err(_) => {
                self.wires[2 * connection as usize + 1].deaf = true;
                self.close_wire(2 * connection);
            }
        }
    }

    /// Whether a cable that a connection needs is cut.
    pub(super) fn is_severed(&self, connection: u32) -> bool {
        let ends = self.ends(connection);
        let cut = self.cuts.get(&ends.lower).is_some_and(|&(upper, _)| upper == ends.upper);
        cut || self.isolated.contains(&ends.lower) || self.isolated.contains(&ends.upper)
    }

    /// What is sent over a connection waits from now on.
    pub(super) fn park(&mut self, connection: u32) {
        let trouble: &mut Trouble = self.troubles.entry(connection).or_default();
        trouble.parked.get_or_insert_default();
    }

    pub(super) fn unpark(&mut self, connection: u32) {
        let parked = self.troubles.get_mut(&connection).and_then(|trouble| trouble.parked.take());
        for (wire, parked) in (2 * connection..).zip(parked.into_iter().flatten()) {
            parked.into_iter().for_each(|chunk| self.arrive(wire, chunk));
        }
    }

    /// The parent of a node now; `None` when it has none, or nothing gets through to it.
    #[must_use]
    pub fn parent_of(&self, rank: u32) -> Option<u32> {
        let up = self.hosts[rank as usize].up;
        let parked = self.troubles.get(&up).is_some_and(|trouble| trouble.parked.is_some());
        (rank > 0 && self.has_parent(rank) && !parked).then(|| self.ends(up).upper)
    }

    /// Leaves that run and have a way to the root, own leaves of nodes among them.
    #[must_use]
    pub fn reachable(&self) -> RangeSet {
        // Parents have lower ranks than their children, and orphans go to ancestors.
        let mut reached = vec![self.is_running(0)];
        for rank in 1..self.shape.nodes() {
            let parent = self.parent_of(rank).filter(|_| self.is_running(rank));
            reached.push(parent.is_some_and(|parent| reached[parent as usize]));
        }
        let ranks = (0..self.shape.nodes()).filter(|&rank| reached[rank as usize]);
        ranks.map(|rank| self.shape.leaf(rank).unwrap_or(own::leaf_of(rank))).collect()
    }

    /// Whether a node has a parent, as far as it knows.
    #[must_use]
    pub fn has_parent(&self, rank: u32) -> bool {
        self.node(rank).is_some_and(|node| node.orphaned_since().is_none())
    }
}
