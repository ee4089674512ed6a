//! Children whose hosts cannot be reached or logged in to from here: the root, from where it mostly
//! works, starts what is below them. Those leaves come to the door here if they reach it; else they
//! are the root's own, over ssh.
use super::{Nursery, leaves_of};
use crate::driver::Errand;
use crate::launch::door::reception::Reception;
use crate::launch::start::hosts::{self, Planned};
use crate::launch::start::logins::Logins;
use crate::launch::start::spawn::leaf_program;
use crate::launch::start::ssh::{Ssh, SshFailure};
use crate::link::Ancestor;
use crate::proto::control::{Notice, Verdict};
use crate::topology::NodeRef;
use sheaf_core::{Errno, RangeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// The root, while it lives, says what has become of a child long before this.
const VERDICT_TIMEOUT: Duration = Duration::from_secs(300);
/// How often it is looked whether a leaf that has come to the root has become its own, and for how
/// long.
pub(super) const SETTLED_LOOK: Duration = Duration::from_millis(20);
pub(super) const SETTLED_MAX: Duration = Duration::from_secs(10);

impl Nursery {
    /// A child could not be started: the root is asked, if that may help; whether it was.
    pub(super) fn relay(self: &Arc<Self>, rank: u32, failure: &SshFailure) -> bool {
        if !failure.no_login || !self.strand(rank, failure) {
            return false;
        }
        self.set_aside(rank);
        let (nursery, failure) = (Arc::downgrade(self), failure.clone());
        crate::task::spawn(async move {
            tokio::time::sleep(VERDICT_TIMEOUT).await;
            if let Some(nursery) = nursery.upgrade() {
                nursery.judge(rank, failure.errno, &failure.cause);
            }
        });
        true
    }

    /// An inner node among the children does not come: those below it do, directly.
    pub(super) fn set_aside(&self, rank: u32) {
        let is_leaf = self.topology.node(rank).is_some_and(|node| node.leaf_index().is_some());
        if !is_leaf {
            self.children().strand(rank);
        }
    }

    /// Asks the root to start what is at the place of a child, if there is another root than this
    /// node.
    pub fn strand(&self, rank: u32, failure: &SshFailure) -> bool {
        let above =
            self.reception.as_ref().filter(|reception| !reception.station.ancestors.is_empty());
        let (Some(reception), Some(shared)) = (above, self.shared.upgrade()) else { return false };
        let may_ask = self.children().may_ask(rank, Instant::now());
        if may_ask {
            let above = reception.ancestors.clone();
            shared.with_node(0, |node| node.strand(rank, &failure.cause, above));
        }
        true
    }

    /// Whoever starts what was to be below that child has done what it could.
    pub(super) fn judge(&self, rank: u32, errno: Errno, cause: &str) {
        let child = self.children().take_awaited(rank);
        self.lose(child, errno, cause);
    }

    /// Whether the leaf `rank` came here over ssh and has become this node's, or came another way.
    fn is_settled(&self, rank: u32) -> bool {
        let (Some(shared), Some(node)) = (self.shared.upgrade(), self.topology.node(rank)) else {
            return true;
        };
        let leaves = leaves_of(node);
        let is_own =
            |link| shared.peek(|core| core.nodes[0].speaks_for(link, &leaves) == Some(true));
        let link = shared.peek(|core| self.link_of(core, rank));
        !self.lines.has(rank) || link.is_none_or(is_own)
    }
}

/// What a node asks the root for.
struct Stranded {
    rank: u32,
    leaves: RangeSet,
    cause: String,
    above: Vec<Ancestor>,
}

/// Does what the node of this process has to be done, for as long as the session lasts.
pub(in crate::launch) async fn run_errands(
    nursery: Weak<Nursery>,
    how: Ssh,
    mut errands: mpsc::Receiver<Errand>,
) {
    let how = Arc::new(how);
    let logins = Logins::new(&how);
    while let Some(errand) = errands.recv().await {
        match errand {
            Errand::Verdict(Verdict { rank, errno, cause, .. }) => {
                let Some(nursery) = nursery.upgrade() else { return };
                nursery.judge(rank, errno, &cause);
            }
            // Those of a child of this node are started by whoever has found that out.
            Errand::Notice(Notice::Stranded { by, .. }) if is_own(&nursery, by) => {}
            Errand::Notice(Notice::Stranded { rank, leaves, cause, above, .. }) => {
                tracing::info!(
                    rank,
                    cause,
                    "another node cannot start its child; started from here"
                );
                let stranded = Stranded { rank, leaves, cause, above };
                crate::task::spawn(help(
                    Weak::clone(&nursery),
                    Arc::clone(&how),
                    Arc::clone(&logins),
                    stranded,
                ));
            }
            Errand::Notice(_) => {}
        }
    }
}

fn is_own(nursery: &Weak<Nursery>, rank: u32) -> bool {
    nursery.upgrade().is_none_or(|nursery| nursery.topology.root().rank() == rank)
}

/// At the root: starts the leaves of a node that another one could not start.
async fn help(nursery: Weak<Nursery>, how: Arc<Ssh>, logins: Arc<Logins>, stranded: Stranded) {
    let Some(there) = nursery.upgrade() else { return };
    let over = there.over_for_another();
    let mut starts = JoinSet::new();
    for child in plan(&there, &stranded) {
        let (nursery, how, logins) = (Weak::clone(&nursery), Arc::clone(&how), Arc::clone(&logins));
        starts.spawn(async move {
            let mut place = logins.place().await;
            let started = hosts::start(&nursery, (&how, &mut place), &child, over).await;
            if started.is_ok() {
                settle(&nursery, child.rank).await;
            }
            started
        });
    }
    drop(there);
    let (mut errno, mut cause) = (Errno::HOSTDOWN, stranded.cause);
    while let Some(done) = starts.join_next().await {
        let Some(Err(failure)) = hosts::unless_broken(done) else { continue };
        errno = failure.errno;
        if failure.cause != cause && !cause.contains("; from the root: ") {
            cause = format!("{cause}; from the root: {}", failure.cause);
        }
    }
    let Some(shared) = nursery.upgrade().and_then(|nursery| nursery.shared()) else { return };
    let verdict = Verdict { rank: stranded.rank, leaves: stranded.leaves, errno, cause };
    shared.with_node(0, |node| node.give_verdict(verdict));
}

fn plan(nursery: &Nursery, stranded: &Stranded) -> Vec<Planned> {
    let Some(reception) = nursery.reception() else { return Vec::new() };
    let topology = nursery.topology();
    let is_known =
        topology.node(stranded.rank).is_some_and(|node| leaves_of(node) == stranded.leaves);
    let Some(parent) = stranded.above.first().filter(|_| is_known) else { return Vec::new() };
    let leaves = stranded.leaves.iter().filter_map(|leaf| topology.leaf(leaf));
    let leaves = leaves.filter(|leaf| !nursery.has(leaf.rank()));
    leaves.filter_map(|leaf| plan_leaf(reception, leaf, &stranded.above, parent)).collect()
}

/// A leaf that is to come to `parent`, the first of those `above`, where its own does not start it.
pub(super) fn plan_leaf(
    reception: &Reception,
    leaf: NodeRef<'_>,
    above: &[Ancestor],
    parent: &Ancestor,
) -> Option<Planned> {
    let program = &reception.station.program;
    let mut invitation = reception.invite_or_tell(leaf)?;
    invitation.ancestors = above.to_vec();
    invitation.leaf = leaf_program(program, leaf, parent);
    Some(Planned { rank: leaf.rank(), host: leaf.host(), invitation, sudo: program.sudo })
}

/// Waits until a leaf has its place, so that whoever asked for it does not report it as lost
/// before.
async fn settle(nursery: &Weak<Nursery>, rank: u32) {
    let deadline = Instant::now() + SETTLED_MAX;
    while nursery.upgrade().is_some_and(|nursery| !nursery.is_settled(rank))
        && Instant::now() < deadline
    {
        tokio::time::sleep(SETTLED_LOOK).await;
    }
}
