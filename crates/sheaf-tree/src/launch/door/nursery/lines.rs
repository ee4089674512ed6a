//! Nodes whose link is the ssh connection that has started them.
//!
//! Such a node can go nowhere else: what it has lost is not found again by calling, and it is not
//! sent below another. Whoever has started it starts it again.
use super::{Nursery, gone, lock};
use crate::launch::Carrier;
use crate::launch::invitation::Over;
use crate::launch::start::line::{SshLine, Taken};
use rustc_hash::FxHashSet;
use sheaf_core::RangeSet;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, timeout_at};

/// How long a node may take to connect before the connection that started it becomes its link:
/// where a firewall drops what comes, nobody says so.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// The same below a node that could not connect itself.
const CONNECT_AGAIN_MAX: Duration = Duration::from_secs(1);

/// What a node knows of the ssh connections that it has opened.
#[derive(Default)]
pub(super) struct Lines {
    /// How many nodes have come to the door, and how many could not.
    reached: AtomicU32,
    blocked: AtomicU32,
    /// Nodes that are linked so, or were when they were lost.
    wired: Mutex<FxHashSet<u32>>,
    /// Nodes that are being started from here.
    starting: Mutex<FxHashSet<u32>>,
    /// Done when their ssh has ended.
    keepers: Mutex<Vec<JoinHandle<()>>>,
}

impl Lines {
    /// The node has another link now.
    pub fn unwire(&self, rank: u32) {
        lock(&self.wired).remove(&rank);
    }

    pub fn has(&self, rank: u32) -> bool {
        lock(&self.wired).contains(&rank)
    }
}

/// A node that is being started from here, until this is dropped.
pub(in crate::launch) struct Turn {
    nursery: Weak<Nursery>,
    rank: u32,
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(nursery) = self.nursery.upgrade() {
            lock(&nursery.lines.starting).remove(&self.rank);
        }
    }
}

impl Nursery {
    /// Begins to start a node; `None` while that is under way for another reason: two processes of
    /// one place would only be in each other's way.
    pub fn begin_to_start(self: &Arc<Self>, rank: u32) -> Option<Turn> {
        let is_first = lock(&self.lines.starting).insert(rank);
        is_first.then(|| Turn { nursery: Arc::downgrade(self), rank })
    }

    /// The child waits for its first login.
    pub fn awaits_login(&self, rank: u32) {
        self.mark_untried(rank, RangeSet::union_with);
    }

    /// The first login of the child begins.
    pub fn begins_login(&self, rank: u32) {
        self.mark_untried(rank, |untried, leaves| *untried = untried.difference(leaves));
    }

    fn mark_untried(&self, rank: u32, mark: impl FnOnce(&mut RangeSet, &RangeSet)) {
        let (Some(shared), Some(node)) = (self.shared.upgrade(), self.topology.node(rank)) else {
            return;
        };
        shared.peek(|core| mark(&mut core.membership.untried, &super::leaves_of(node)));
    }

    /// How the next child that is started is to get its link. That none of them reaches this node
    /// is found out by the first ones.
    pub fn over(&self) -> Over {
        let Some(reception) = &self.reception else { return Over::Door };
        let count = |counter: &AtomicU32| counter.load(Ordering::Relaxed);
        match reception.station.program.carrier {
            Carrier::Ssh => Over::Channel,
            Carrier::Auto if count(&self.lines.blocked) > 0 && count(&self.lines.reached) == 0 => {
                Over::Channel
            }
            Carrier::Auto if reception.station.is_over_ssh => Over::DoorWithin(CONNECT_AGAIN_MAX),
            Carrier::Auto => Over::DoorWithin(CONNECT_MAX),
            Carrier::Unix | Carrier::Tls | Carrier::Tcp => Over::Door,
        }
    }

    /// The same for a leaf that is started for another node, which it is to reach.
    pub fn over_for_another(&self) -> Over {
        match self.over() {
            Over::Door => Over::Door,
            Over::Channel if !self.has_doors() => Over::Channel,
            Over::Channel | Over::DoorWithin(_) => Over::DoorWithin(CONNECT_AGAIN_MAX),
        }
    }

    /// Whether nodes listen for others of other hosts at all.
    fn has_doors(&self) -> bool {
        self.reception
            .as_ref()
            .is_some_and(|reception| reception.station.program.carrier != Carrier::Ssh)
    }

    /// A child that was started has found its way as `over` says, or has not.
    pub fn has_come(&self, over: Over, reached: bool) {
        if matches!(over, Over::DoorWithin(_)) {
            let counter = if reached { &self.lines.reached } else { &self.lines.blocked };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The node `rank` is at the other end of a line: a child that was expected, or one that has
    /// its place here from now on.
    pub fn admit_line(self: &Arc<Self>, rank: u32, line: SshLine) -> io::Result<()> {
        let shared = self.shared.upgrade().ok_or_else(gone)?;
        let node = self.topology.node(rank).ok_or_else(gone)?;
        let is_leaf = node.leaf_index().is_some();
        let Taken { channel, peer, keeper } = line.take(is_leaf || !self.has_doors(), !is_leaf);
        {
            let mut keepers = lock(&self.lines.keepers);
            keepers.retain(|keeper| !keeper.is_finished());
            keepers.push(keeper);
        }
        let (child, _) = self.children().arrive(rank);
        lock(&self.lines.wired).insert(rank);
        let Some(child) = child else {
            return self.admit_newcomer(&shared, node, channel, Some(peer));
        };
        self.children().enter_by_line(rank, child.link);
        child.watch.inspect(AbortHandle::abort);
        shared.attach(0, child.link, channel, Some(peer))
    }

    /// Nodes that have their places below another one, were linked here, and are lost.
    pub fn lost_lines(&self) -> Vec<u32> {
        let Some(shared) = self.shared.upgrade() else { return Vec::new() };
        let wired: Vec<u32> = lock(&self.lines.wired).iter().copied().collect();
        let is_lost = |&rank: &u32| {
            let Some(node) = self.topology.node(rank) else { return false };
            let leaves = super::leaves_of(node);
            let lost = || shared.peek(|core| core.nodes[0].lost_of(&leaves) == leaves);
            self.child_above(node).is_some() && !self.has(rank) && lost()
        };
        wired.into_iter().filter(is_lost).collect()
    }

    /// Waits until every ssh has ended, and ends those that have not by then.
    pub async fn end_lines(&self, deadline: Instant) {
        let keepers = std::mem::take(&mut *lock(&self.lines.keepers));
        for mut keeper in keepers {
            if timeout_at(deadline, &mut keeper).await.is_err() {
                // What it keeps is killed with it.
                keeper.abort();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Shared;
    use crate::topology::{Names, Placement, Spec, Topology};

    #[test]
    fn node_is_started_once_at_a_time() {
        let names: Names = ["n1", "n2"].into_iter().collect();
        let tree = Topology::build(&Spec::Flat, "root", names, Placement::LeafHosts).unwrap();
        let nursery = Nursery::new(&Shared::new(), &tree, None);
        let first = nursery.begin_to_start(1);
        assert!(first.is_some() && nursery.begin_to_start(1).is_none());
        assert!(nursery.begin_to_start(2).is_some());
        drop(first);
        assert!(nursery.begin_to_start(1).is_some());
    }
}
