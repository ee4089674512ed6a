//! Inner nodes that do not start, as their hosts are down or cannot serve: whoever was to be their
//! parent starts what was to be below them, as part of the same start. So a host that is down is
//! missing alone, and with its own reason.
//!
//! When the inner node comes after all, those below it are handed over to it like any others that
//! are not at their places.
use super::relay::{SETTLED_LOOK, SETTLED_MAX, plan_leaf};
use super::{Nursery, leaves_of};
use crate::launch::door::reception::start_here;
use crate::launch::start::hosts::{self, Planned};
use crate::launch::start::logins::Logins;
use crate::launch::start::ssh::{Ssh, SshFailure};
use sheaf_core::RangeSet;
use std::sync::{Arc, Weak};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// A child could not be started. The root is asked, if that may help; else what was to be below the
/// child is started from here, each when there is a place for it. Returns when that is done, and
/// what did not come is lost.
pub(in crate::launch) async fn not_started(
    nursery: &Weak<Nursery>,
    (how, logins): (&Arc<Ssh>, &Arc<Logins>),
    rank: u32,
    failure: &SshFailure,
) {
    let Some(there) = nursery.upgrade() else { return };
    if there.relay(rank, failure) {
        return;
    }
    let mut starts = JoinSet::new();
    for child in there.instead_of(rank, failure) {
        let (nursery, how, logins) = (Weak::clone(nursery), Arc::clone(how), Arc::clone(logins));
        starts.spawn(async move { (child.rank, start(&nursery, (&how, &logins), &child).await) });
    }
    drop(there);
    while let Some(done) = starts.join_next().await {
        let Some((leaf, Err(failure))) = hosts::unless_broken(done) else { continue };
        let Some(there) = nursery.upgrade() else { return };
        there.not_instead(rank, leaf, &failure);
    }
    if let Some(there) = nursery.upgrade() {
        there.judge(rank, failure.errno, &failure.cause);
    }
}

/// Starts a leaf and waits until it has its place, so that it is not lost with the child whose it
/// was to be.
async fn start(
    nursery: &Weak<Nursery>,
    (how, logins): (&Ssh, &Arc<Logins>),
    child: &Planned,
) -> Result<(), SshFailure> {
    let mut place = logins.place().await;
    let Some(there) = nursery.upgrade() else { return Ok(()) };
    if child.host == there.topology.root().host() {
        start_here(&there, child).map_err(|error| SshFailure::not_run(&error))?;
    } else {
        let over = there.over();
        drop(there);
        hosts::start(nursery, (how, &mut place), child, over).await?;
    }
    drop(place);
    let deadline = Instant::now() + SETTLED_MAX;
    while nursery.upgrade().is_some_and(|nursery| !nursery.is_known(child.rank))
        && Instant::now() < deadline
    {
        tokio::time::sleep(SETTLED_LOOK).await;
    }
    Ok(())
}

impl Nursery {
    /// The leaves that are to be started from here, as the child `rank` does not come; none for a
    /// leaf. Who is on its host shares its fate.
    fn instead_of(&self, rank: u32, failure: &SshFailure) -> Vec<Planned> {
        let (Some(reception), Some(node)) = (&self.reception, self.topology.node(rank)) else {
            return Vec::new();
        };
        let (Some(parent), None) = (reception.ancestors.first(), node.leaf_index()) else {
            return Vec::new();
        };
        let (host, program) = (node.host(), &reception.station.program);
        let all = leaves_of(node);
        let below = all.iter().filter_map(|leaf| self.topology.leaf(leaf));
        let below = below.filter(|leaf| leaf.host() != host && !program.is_guest(*leaf));
        let (mut leaves, mut planned) = (RangeSet::new(), Vec::new());
        for leaf in below {
            if let Some(child) = plan_leaf(reception, leaf, &reception.ancestors, parent) {
                leaves.union_with(&leaves_of(leaf));
                planned.push(child);
            }
        }
        if let Some(shared) = self.shared.upgrade().filter(|_| !planned.is_empty()) {
            let (count, cause) = (planned.len(), &failure.cause);
            tracing::info!(host, cause, "not started; {count} hosts below it are, from here");
            self.set_aside(rank);
            shared.with_node(0, |node| node.stand_in(rank, leaves, cause));
        }
        planned
    }

    /// A leaf that was to be below the child `rank` could not be started from here either.
    fn not_instead(&self, rank: u32, leaf: u32, failure: &SshFailure) {
        let link = self.children().stranded_link(rank);
        let (Some(shared), Some(node)) = (self.shared.upgrade(), self.topology.node(leaf)) else {
            return;
        };
        if let Some(link) = link {
            let (leaves, cause) = (leaves_of(node), &failure.cause);
            shared.with_node(0, |node| node.leaf_dead(link, leaf, &leaves, failure.errno, cause));
        }
    }

    /// Whether it is known of a leaf that it runs, or that it is lost.
    fn is_known(&self, rank: u32) -> bool {
        let (Some(shared), Some(node)) = (self.shared.upgrade(), self.topology.node(rank)) else {
            return true;
        };
        let leaves = leaves_of(node);
        shared.peek(|core| core.nodes[0].runs(&leaves) || core.nodes[0].lost_of(&leaves) == leaves)
    }
}
