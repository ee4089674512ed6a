//! Nodes that are started again, and children that go back to them: what launchers do.
use super::{Leaves, Sim, What};
use crate::proto::control::{Address, Ancestor};
use crate::proto::{Node, Time};
use std::collections::VecDeque;
use std::time::Duration;

/// How often a node looks whether children that it has adopted can go to their places, and how often
/// that is tried with one of them.
const HAND_OVER_PAUSE: Duration = Duration::from_millis(500);
const HAND_OVERS_MAX: u32 = 3;

impl<L: Leaves> Sim<L> {
    /// Starts an inner node anew, whose launcher is the nearest of its ancestors that runs.
    pub(super) fn restart(&mut self, rank: u32) {
        let Some(registry) = self.node(0).map(|root| root.registry().clone()) else { return };
        if self.node(rank).is_some() || self.shape.leaf(rank).is_some() {
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
        let mut node = Node::new(self.shape.config(rank, self.config.tuning), registry, now);
        node.begin_empty();
        let host = &mut self.hosts[rank as usize];
        host.node = Some(node);
        (host.stopped, host.off, host.tick) = (false, false, Time(u64::MAX));
        (host.inbox, host.search, host.place) = (VecDeque::new(), None, None);
        host.made.clear();
        self.routes.retain(|&(of, _), _| of != rank);
        self.connect(rank, upper);
    }

    /// A node has come: those that were adopted may have a place below it, or it has one elsewhere.
    pub(super) fn entered(&mut self, rank: u32, lower: u32) {
        let mut handed_over = std::mem::take(&mut self.hosts[rank as usize].handed_over);
        handed_over.retain(|&child, _| self.child_above(rank, child) != lower);
        let host = &mut self.hosts[rank as usize];
        host.handed_over = handed_over;
        if !std::mem::replace(&mut host.handing_over, true) {
            self.push(self.now + HAND_OVER_PAUSE, What::HandOver(rank));
        }
    }

    /// Sends children that a node has adopted to where their places are.
    pub(super) fn hand_over(&mut self, rank: u32) {
        self.hosts[rank as usize].handing_over = self.node(rank).is_some();
        if !self.is_running(rank) {
            // One that is stopped does so when it goes on.
            if self.node(rank).is_some() {
                self.push(self.now + HAND_OVER_PAUSE, What::HandOver(rank));
            }
            return;
        }
        let children = self.children_now(rank);
        let mut adopted = false;
        for &(child, from) in &children {
            let below = self.child_above(rank, child);
            if below == child {
                continue;
            }
            adopted = true;
            let count = self.hosts[rank as usize].handed_over.get(&child).copied().unwrap_or(0);
            let to = children.iter().find(|(other, _)| *other == below);
            let Some(&(_, to)) = to.filter(|_| count < HAND_OVERS_MAX) else { continue };
            // Here a node is found by its rank.
            let place = Ancestor { rank: below, address: Address::Abstract(String::new()) };
            if self.with(rank, |node, _| node.hand_over(from, to, &place)) == Some(true) {
                self.hosts[rank as usize].handed_over.insert(child, count + 1);
            }
        }
        self.hosts[rank as usize].handing_over = adopted;
        if adopted {
            self.push(self.now + HAND_OVER_PAUSE, What::HandOver(rank));
        }
    }

    /// The children that a node has, with their links.
    fn children_now(&self, rank: u32) -> Vec<(u32, usize)> {
        let made = self.hosts[rank as usize].made.iter().copied();
        let connections = self.shape.children(rank).chain(made);
        let ends = connections.map(|at| self.ends(at)).filter(|ends| ends.upper == rank);
        let links = ends.filter_map(|ends| Some((ends.lower, ends.upper_link? as usize)));
        let node = self.node(rank);
        let is_there = |&(child, link): &(u32, usize)| {
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
