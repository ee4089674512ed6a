//! At the root: places for leaves that come later than the tree was started, or come again.
use super::hosts::{self, Planned};
use super::nursery::Nursery;
use super::plan::Station;
use super::ssh::Ssh;
use super::{Invitation, Options};
use crate::driver::Shared;
use crate::link::Ancestor;
use crate::proto::Notice;
use crate::topology::Topology;
use sheaf_core::RangeSet;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// While nothing helps, the pause between attempts to bring hosts back grows up to this many times
/// the first one.
const PAUSES_MAX: u32 = 8;

/// What is needed to give a leaf its place directly below the root.
pub(super) struct Reception {
    pub station: Arc<Station>,
    pub topology: Topology,
    pub options: Options,
    pub nursery: Arc<Nursery>,
    pub ancestors: Vec<Ancestor>,
}

impl Reception {
    /// The rank of the leaf on this host.
    pub fn rank_of(&self, host: &str) -> Option<u32> {
        let mut leaves = self.topology.nodes().filter(|node| node.leaf_index().is_some());
        leaves.find(|leaf| leaf.host() == host).map(|leaf| leaf.rank())
    }

    /// The invitation of the leaf `rank`, which is expected at the door from now on.
    ///
    /// # Errors
    /// When no key can be made, or the rank is no leaf's.
    pub fn invite(&self, rank: u32) -> io::Result<Invitation> {
        let leaf = self.topology.node(rank).filter(|node| node.leaf_index().is_some());
        let leaf = leaf.ok_or_else(|| io::Error::other("no such leaf"))?;
        if !self.nursery.waits_for(rank) {
            let depth = self.options.depth + 1;
            let frame =
                self.station.assignment(&self.topology, leaf, depth, &self.options, &self.ancestors, true)?;
            self.nursery.expect_late(rank, frame);
        }
        Ok(Invitation {
            secret: self.station.secret.clone(),
            rank,
            ancestors: self.ancestors.clone(),
            credentials: self.station.credentials(rank)?,
        })
    }

    /// The leaves of these indices, planned to be started on their hosts.
    fn plan(&self, leaves: &RangeSet, most: usize) -> Vec<(u32, Planned)> {
        let nodes = self.topology.nodes();
        let lost =
            nodes.filter_map(|node| Some((node.leaf_index().filter(|at| leaves.contains(*at))?, node)));
        let planned = lost.take(most).filter_map(|(leaf, node)| {
            let invitation = self.invite(node.rank()).ok()?;
            Some((leaf, Planned { rank: node.rank(), host: node.host(), invitation }))
        });
        planned.collect()
    }
}

/// Brings lost leaves back by ssh, as children of the root, for as long as the session lasts.
pub(super) async fn bring_back(
    reception: Arc<Reception>,
    shared: Weak<Shared>,
    how: Ssh,
    first_pause: Duration,
) {
    let how = Arc::new(Ssh { retries: 0, ..how });
    let most = how.starts_max.max(1) as usize;
    let (mut lost, mut seen, mut pause) = (RangeSet::new(), 0, first_pause);
    loop {
        tokio::time::sleep(pause).await;
        let Some(shared) = shared.upgrade() else { return };
        let before = lost.len();
        for notice in shared.peek(|core| core.notices_after(&mut seen)) {
            match notice {
                Notice::Lost { leaves, .. } => lost.union_with(&leaves),
                // Who has left as planned is not called back.
                Notice::Joined { leaves, .. } | Notice::Left { leaves, .. } => {
                    lost = lost.difference(&leaves)
                }
                Notice::FilterFailed { .. } => {}
            }
        }
        drop(shared);
        let back = start(&how, reception.plan(&lost, most)).await;
        let helped = lost.len() > before || !back.is_empty();
        lost = lost.difference(&back);
        pause = if helped { first_pause } else { (pause * 2).min(first_pause * PAUSES_MAX) };
    }
}

/// Starts leaves, and says which have joined.
async fn start(how: &Arc<Ssh>, planned: Vec<(u32, Planned)>) -> RangeSet {
    let places = Arc::new(Semaphore::new(how.starts_max.max(1) as usize));
    let mut starts = JoinSet::new();
    for (leaf, child) in planned {
        let (how, places) = (Arc::clone(how), Arc::clone(&places));
        starts.spawn(async move {
            let _place = places.acquire().await;
            let started = hosts::start(&how, &child).await;
            if let Err(failure) = &started {
                tracing::debug!(
                    host = child.host,
                    cause = failure.cause,
                    "a lost host was not started again"
                );
            }
            started.is_ok().then_some(leaf)
        });
    }
    let mut back = RangeSet::new();
    while let Some(done) = starts.join_next().await {
        if let Ok(Some(leaf)) = done {
            back.union_with(&RangeSet::from_range(leaf, leaf + 1));
        }
    }
    back
}
