//! What newcomers are told, and how children that were lost are started again.
//!
//! With ssh, each node starts its lost children again, inner nodes too, if their leaves are lost.
//! Without ssh, hosts join again by themselves and start inner nodes next to their servers again
//! (`join/beside.rs`).
use super::nursery::{Nursery, leaves_of};
use crate::driver::Core;
use crate::launch::invitation::Over;
use crate::launch::start::family::Kin;
use crate::launch::start::hosts::{self, Planned};
use crate::launch::start::logins::Logins;
use crate::launch::start::plan::Station;
use crate::launch::start::push::this_program;
use crate::launch::start::spawn::run_program;
use crate::launch::start::ssh::Ssh;
use crate::launch::{Invitation, Options, Program};
use crate::link::Ancestor;
use crate::topology::{NodeRef, Topology};
use sheaf_core::RangeSet;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::task::JoinSet;

/// While nothing helps, the pause between attempts to bring hosts back grows up to this many times
/// the first one.
const PAUSES_MAX: u32 = 8;
/// How often a node that was started again looks whether it has been taken in.
const TAKEN_IN_LOOK: Duration = Duration::from_millis(20);

/// What is needed to give a node its place below this one.
pub(in crate::launch) struct Reception {
    pub station: Arc<Station>,
    pub options: Options,
    /// This node, and those above it.
    pub ancestors: Vec<Ancestor>,
}

impl Reception {
    /// What a newcomer is told first; `epoch` is what the last one in its place had counted to.
    pub fn assignment(
        &self,
        topology: &Topology,
        node: NodeRef<'_>,
        epoch: u64,
    ) -> io::Result<bytes::Bytes> {
        let depth = self.options.depth + 1;
        self.station.assignment(topology, node, depth, &self.options, &self.ancestors, Some(epoch))
    }

    /// The invitation of a node below, to this node's door.
    ///
    /// # Errors
    /// When no key can be made for it.
    pub fn invite(&self, node: NodeRef<'_>) -> io::Result<Invitation> {
        let rank = node.rank();
        Ok(Invitation {
            secret: self.station.secret.clone(),
            rank,
            host: node.host(),
            ancestors: self.ancestors.clone(),
            credentials: self.station.credentials(rank)?,
            leaf: None,
            over: Over::Door,
        })
    }

    /// [`Reception::invite`] for one that is to be started again: without an invitation it is not,
    /// until the next time.
    pub fn invite_or_tell(&self, node: NodeRef<'_>) -> Option<Invitation> {
        let told = self.invite(node).inspect_err(|error| {
            let (host, rank) = (node.host(), node.rank());
            tracing::warn!(host, rank, %error, "no key can be made for a host that is to be started again");
        });
        told.ok()
    }
}

/// Starts this node's children again when they are lost, for as long as the session lasts: each at
/// its place, an inner node as well as a leaf. What is lost below a child that cannot be started
/// comes directly below this node.
pub(in crate::launch) async fn bring_back(
    nursery: Weak<Nursery>,
    how: Ssh,
    first_pause: Duration,
    at_once: bool,
) {
    let how = Arc::new(Ssh { retries: 0, ..how });
    let (mut pause, mut missing_before) = (first_pause, 0);
    if at_once {
        while nursery.upgrade().is_some_and(|nursery| !is_taken_in(&nursery)) {
            tokio::time::sleep(TAKEN_IN_LOOK).await;
        }
    } else {
        tokio::time::sleep(pause).await;
    }
    let mut rounds = 0u32;
    loop {
        let Some(there) = nursery.upgrade() else { return };
        let missing = [missing(&there), there.lost_lines()].concat();
        let (planned, count) = (plan(&there, &missing), missing.len());
        rounds = if missing.is_empty() { 0 } else { rounds + 1 };
        tell_round(&planned, rounds);
        let failed = start(&there, &how, planned).await;
        let below = plan(&there, &lost_leaves_below(&there, &failed));
        drop(there);
        let helped = helped(count, missing_before, failed.len());
        missing_before = failed.len();
        if let Some(there) = nursery.upgrade() {
            start(&there, &how, below).await;
        }
        pause = if helped { first_pause } else { (pause * 2).min(first_pause * PAUSES_MAX) };
        if !failed.is_empty() {
            let (count, seconds) = (failed.len(), pause.as_secs_f32());
            tracing::debug!("{count} nodes were not started again; the next try is in {seconds} s");
        }
        tokio::time::sleep(pause).await;
    }
}

/// Rounds of starting again that are told to everybody; a host may be away for days.
const ROUNDS_TOLD: u32 = 3;
/// The most hosts that are named.
const HOSTS_TOLD: usize = 16;

fn tell_round(planned: &[Planned], rounds: u32) {
    if planned.is_empty() {
        return;
    }
    let mut hosts: Vec<&str> = planned.iter().map(|child| child.host.as_str()).collect();
    hosts.dedup();
    let more = hosts.len().saturating_sub(HOSTS_TOLD);
    hosts.truncate(HOSTS_TOLD);
    let mut names = hosts.join(",");
    if more > 0 {
        names += &format!(" and {more} more");
    }
    if rounds <= ROUNDS_TOLD {
        tracing::info!("started again, try {rounds}: {names}");
    } else {
        tracing::debug!("started again, try {rounds}: {names}");
    }
}

/// Whether a round that found so many missing, after one that left some, and could not start so
/// many was worth another one soon. With nobody missing there is nothing to be patient with: who is
/// lost next has not been tried.
fn helped(missing: usize, missing_before: usize, failed: usize) -> bool {
    missing == 0 || missing > missing_before || failed < missing
}

fn is_taken_in(nursery: &Nursery) -> bool {
    nursery.shared().is_some_and(|shared| shared.peek(|core| core.nodes[0].is_taken_in()))
}

/// Children that are to be started again.
fn missing(nursery: &Nursery) -> Vec<u32> {
    let missing = |core: &mut Core| core.nodes[0].missing_children();
    let mut missing = nursery.shared().map_or(Vec::new(), |shared| shared.peek(missing));
    if let Some(reception) = nursery.reception() {
        let is_guest = |node| reception.station.program.is_guest(node);
        missing.retain(|&rank| !nursery.topology().node(rank).is_some_and(is_guest));
    }
    missing
}

/// Leaves that are lost below inner nodes that could not be started.
fn lost_leaves_below(nursery: &Nursery, failed: &[u32]) -> Vec<u32> {
    let Some(shared) = nursery.shared() else { return Vec::new() };
    let nodes = failed.iter().filter_map(|&rank| nursery.topology().node(rank));
    let mut below = RangeSet::new();
    nodes
        .filter(|node| node.leaf_index().is_none())
        .for_each(|node| below.union_with(&leaves_of(node)));
    let lost = shared.peek(|core| core.nodes[0].lost_of(&below));
    lost.iter().filter_map(|leaf| nursery.topology().leaf(leaf)).map(|leaf| leaf.rank()).collect()
}

fn plan(nursery: &Nursery, ranks: &[u32]) -> Vec<Planned> {
    let Some(reception) = nursery.reception() else { return Vec::new() };
    let planned = ranks.iter().filter_map(|&rank| {
        let node = nursery.topology().node(rank)?;
        let sudo = reception.station.program.sudo && node.leaf_index().is_some();
        Some(Planned { rank, host: node.host(), invitation: reception.invite_or_tell(node)?, sudo })
    });
    planned.collect()
}

/// Starts nodes; gives those that did not join.
async fn start(nursery: &Arc<Nursery>, how: &Arc<Ssh>, planned: Vec<Planned>) -> Vec<u32> {
    let logins = Logins::to(how, planned.iter().map(|child| child.host.as_str())).await;
    let own_host = nursery.topology().root().host();
    let mut starts = JoinSet::new();
    let mut failed = Vec::new();
    for child in planned {
        if child.host == own_host {
            if let Err(error) = start_here(nursery, &child) {
                tracing::debug!(%error, "a lost node was not started again on this host");
                failed.push(child.rank);
            }
            continue;
        }
        let (nursery, how, logins) =
            (Arc::downgrade(nursery), Arc::clone(how), Arc::clone(&logins));
        starts.spawn(async move {
            let mut place = logins.place().await;
            let over = nursery.upgrade().map_or(Over::Door, |nursery| nursery.over());
            let started = hosts::start(&nursery, (&how, &mut place), &child, over).await;
            if let Err(failure) = &started {
                let cause = &failure.cause;
                tracing::debug!(host = child.host, cause, "a lost host was not started again");
                if failure.no_login
                    && let Some(nursery) = nursery.upgrade()
                {
                    nursery.strand(child.rank, failure);
                }
            }
            started.err().map(|_| child.rank)
        });
    }
    while let Some(done) = starts.join_next().await {
        failed.extend(hosts::unless_broken(done).flatten());
    }
    failed
}

/// Starts one on this node's own host.
pub(super) fn start_here(nursery: &Nursery, child: &Planned) -> io::Result<()> {
    let Some(reception) = nursery.reception() else { return Ok(()) };
    let program = Program { path: this_program(), ..reception.station.program.clone() };
    let (theirs, ours) = io::pipe()?;
    let is_leaf =
        nursery.topology().node(child.rank).is_some_and(|node| node.leaf_index().is_some());
    let leaf = program.leaf.as_ref().filter(|_| is_leaf);
    let kin = Kin::of(&run_program(&program, is_leaf, leaf, theirs.into())?);
    nursery.started(child.rank, &kin);
    // A pipe takes this much at once, whether anybody reads or not.
    child.invitation.write(ours)
}

#[cfg(test)]
mod tests {
    use super::helped;

    #[test]
    fn patience_is_for_hosts_that_stay_away() {
        assert!(helped(0, 0, 0), "a quiet session looks as often as at first");
        assert!(helped(1, 0, 1), "a host that is lost is tried again soon");
        assert!(helped(2, 2, 1), "one came back, and others may");
        assert!(!helped(2, 2, 2), "the same ones fail again");
    }
}
