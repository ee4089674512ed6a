//! Nodes that are started again, and children that go back to them: what launchers do.
use super::world::{own_leaf, set_machine};
use super::{Leaves, Sim, SimWhat};
use crate::config::Time;
use crate::control::{Ancestor, DoorAddress};
use crate::links::LinkId;
use crate::node::{HandOver, Node};
use crate::own;
use std::collections::VecDeque;
use std::time::Duration;

/// How often a node looks whether children that it has adopted can go to their places.
const HAND_OVER_PAUSE: Duration = Duration::from_millis(500);
/// How long one that has come back from there stays at least; doubled each time, up to the second.
const STAY_MIN: Duration = Duration::from_millis(500);
const STAY_MAX: Duration = Duration::from_secs(60);

/// From when on an adopted child may be sent away, and how long it was kept for.
pub(super) struct SimStay {
    until: Time,
    took: Duration,
}

impl<L: Leaves> Sim<L> {
    /// Starts a node anew, whose launcher is the nearest of its ancestors that runs. An inner node
    /// has none of the leaves below it then. One that does not serve gives up at once.
    pub(super) fn restart(&mut self, rank: u32, serves: bool) {
        let Some(registry) = self.node(0).map(|root| root.registry().apart()) else { return };
        if self.node(rank).is_some() {
            return;
        }
        let mut upper = self.shape.parent(rank);
        while upper > 0 && !(self.is_running(upper) && self.is_in_reach(rank, upper)) {
            upper = self.shape.parent(upper);
        }
        if !self.is_running(upper) || !self.is_in_reach(rank, upper) {
            return;
        }
        // The machine knows nothing of connections that it had before.
        for out in self.outward(rank) {
            self.close_wire(out);
        }
        let now = self.now;
        let before = self.node(upper).map_or(0, |upper| upper.last_epoch(rank));
        let mut node = Node::new(self.shape.config(rank, self.config.tuning), registry, now);
        node.count_on(before);
        let leaf = self.shape.leaf(rank);
        match leaf {
            None => node.begin_empty(),
            Some(leaf) => {
                node.begin_late();
                set_machine(&mut node, leaf, self.leaves.machine(leaf));
            }
        }
        let (own, joint) = own_leaf(&mut node, now);
        self.leaves.began_anew(leaf.unwrap_or(own::leaf_of(rank)));
        if leaf.is_none() {
            self.leaves.node_begins(rank, &mut node);
        }
        let host = &mut self.hosts[rank as usize];
        (host.node, host.own, host.joint) = (Some(node), own, joint);
        (host.stopped, host.off, host.tick) = (false, false, Time(u64::MAX));
        (host.inbox, host.search, host.place) = (VecDeque::new(), None, None);
        host.made.clear();
        self.routes.retain(|&(of, _), _| of != rank);
        self.connect(rank, upper, serves);
        if leaf.is_some() {
            self.with(rank, |node, _| node.tell_ready());
        }
    }

    /// A node has come to this one: it may have a place elsewhere, and others may have one below
    /// it.
    pub(super) fn entered(&mut self, rank: u32, lower: u32) {
        let is_new = self.node(lower).is_some_and(|node| node.orphaned_since().is_none());
        let now = self.now;
        let host = &mut self.hosts[rank as usize];
        if is_new {
            host.stays.clear();
        } else {
            let took =
                host.stays.get(&lower).map_or(STAY_MIN, |stay| (stay.took * 2).min(STAY_MAX));
            host.stays.insert(lower, SimStay { until: now + took, took });
        }
        if !std::mem::replace(&mut host.handing_over, true) {
            self.push(now + HAND_OVER_PAUSE, SimWhat::HandOver(rank));
        }
    }

    /// Sends children that a node has adopted to where their places are.
    pub(super) fn hand_over(&mut self, rank: u32) {
        let adopted = match self.is_running(rank) {
            true => self.send_children(rank),
            // One that is stopped does so when it goes on.
            false => self.node(rank).is_some(),
        };
        self.hosts[rank as usize].handing_over = adopted;
        if adopted {
            self.push(self.now + HAND_OVER_PAUSE, SimWhat::HandOver(rank));
        }
    }

    /// Whether it has any.
    fn send_children(&mut self, rank: u32) -> bool {
        let children = self.children_now(rank);
        let (mut adopted, mut going) = (false, Vec::new());
        for &(child, from) in &children {
            let below = self.child_above(rank, child);
            if below == child {
                continue;
            }
            adopted = true;
            let stay = self.hosts[rank as usize].stays.get(&child);
            let to = children.iter().find(|(other, _)| *other == below);
            let may_go = stay.is_none_or(|stay| stay.until <= self.now);
            let Some(&(_, to)) = to.filter(|_| may_go) else { continue };
            // Here a node is found by its rank.
            let place = Ancestor { rank: below, address: DoorAddress::Abstract(String::new()) };
            going.push(HandOver { from, rank: child, to, place });
        }
        self.with(rank, |node, _| node.hand_over(going));
        adopted
    }

    /// The children that a node has, with their links.
    fn children_now(&self, rank: u32) -> Vec<(u32, LinkId)> {
        let made = self.hosts[rank as usize].made.iter().copied();
        let connections = self.shape.children(rank).chain(made);
        let ends = connections.map(|at| self.ends(at)).filter(|ends| ends.upper == rank);
        let links = ends.filter_map(|ends| Some((ends.lower, ends.upper_link?)));
        let node = self.node(rank);
        let is_there = |&(child, link): &(u32, LinkId)| {
            node.is_some_and(|node| node.is_alive(link) && node.peer_rank(link) == child)
        };
        links.filter(is_there).collect()
    }

    /// The child of a node below which another node's place is.
    fn child_above(&self, rank: u32, mut of: u32) -> u32 {
        while self.shape.parent(of) != rank {
            of = self.shape.parent(of);
        }
        of
    }
}
