//! Children on other hosts: all of one node started at once, within bounds, each by its own ssh.
use super::logins::{LoginPlace, Logins};
use super::ssh::{self, Ssh, SshFailure, StartedOver};
use crate::launch::Invitation;
use crate::launch::door::nursery::{Nursery, not_started};
use crate::launch::invitation::Over;
use crate::link::{Ancestor, DoorAddress, is_sound};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use tokio::task::{JoinError, JoinSet};

/// One child that is to be started, and is expected at the door.
pub(in crate::launch) struct Planned {
    pub rank: u32,
    pub host: String,
    /// Where ancestors listen as this node knows it.
    pub invitation: Invitation,
    /// It is started through `sudo`.
    pub sudo: bool,
}

/// Starts `children` and returns when each has joined or failed. Those that failed are lost, with
/// the cause; the others do not wait for them. What was to be below one that failed is started
/// instead of it.
pub(in crate::launch) async fn start_all(
    nursery: Weak<Nursery>,
    children: Vec<Planned>,
    how: Arc<Ssh>,
) {
    if let Some(nursery) = nursery.upgrade() {
        children.iter().for_each(|child| nursery.awaits_login(child.rank));
    }
    let logins = Logins::to(&how, children.iter().map(|child| child.host.as_str())).await;
    let mut starts = JoinSet::new();
    for child in children {
        let (nursery, logins, how) = (Weak::clone(&nursery), Arc::clone(&logins), Arc::clone(&how));
        starts.spawn(async move {
            let mut place = logins.place().await;
            let over = nursery.upgrade().map_or(Over::Door, |nursery| {
                nursery.begins_login(child.rank);
                nursery.over()
            });
            let started = start(&nursery, (&how, &mut place), &child, over).await;
            drop(place);
            if let Err(failure) = started {
                not_started(&nursery, (&how, &logins), child.rank, &failure).await;
            }
        });
    }
    while let Some(done) = starts.join_next().await {
        unless_broken(done);
    }
}

/// What has come of a start. One that panicked has none: its host is said not to have joined when
/// the time to do so is over.
pub(in crate::launch) fn unless_broken<T>(done: Result<T, JoinError>) -> Option<T> {
    done.inspect_err(|error| tracing::error!(%error, "the start of a host broke off")).ok()
}

/// Starts one, which gets its link as `over` says.
pub(in crate::launch) async fn start(
    nursery: &Weak<Nursery>,
    (how, place): (&Ssh, &mut LoginPlace),
    child: &Planned,
    over: Over,
) -> Result<(), SshFailure> {
    let Planned { rank, host, invitation, sudo } = child;
    let turn = nursery.upgrade().and_then(|nursery| nursery.begin_to_start(*rank));
    let Some(_turn) = turn else { return Err(SshFailure::under_way()) };
    let invitation = Invitation { over, ..invitation.clone() };
    let begun = std::time::Instant::now();
    let started =
        ssh::start(how, (host, *sudo), place, |here| Ok(invite(&invitation, here)?.to_bytes()))
            .await?;
    let seconds = begun.elapsed().as_secs_f32();
    tracing::debug!(host, rank, "started over ssh within {seconds:.1} s");
    let Some(nursery) = nursery.upgrade() else { return Ok(()) };
    match started {
        StartedOver::Joined => nursery.has_come(over, true),
        StartedOver::Linked(_) if nursery.is_back(*rank) => {
            tracing::info!(host, rank, "is back by itself; what was started in its place ends");
        }
        StartedOver::Linked(line) => {
            tracing::info!(host, rank, "linked through ssh");
            nursery.has_come(over, false);
            nursery.admit_line(*rank, *line).map_err(|error| SshFailure::not_taken(&error))?;
        }
    }
    Ok(())
}

/// The invitation as the host can use it: where it cannot be told who to connect to, it does not.
fn invite(invitation: &Invitation, here: Option<IpAddr>) -> io::Result<Invitation> {
    if invitation.over == Over::Door || here.is_some() {
        return seen_from(invitation, here);
    }
    let mut ancestors = invitation.ancestors.clone();
    ancestors.retain(|ancestor| is_sound(&ancestor.address));
    let knows_parent = ancestors.first() == invitation.ancestors.first();
    let over = if knows_parent { invitation.over } else { Over::Channel };
    Ok(Invitation { over, ancestors, ..invitation.clone() })
}

/// The invitation with addresses that the host can use. Where this node listens at every address,
/// the one counts by which the host knows it.
pub(in crate::launch) fn seen_from(
    invitation: &Invitation,
    here: Option<IpAddr>,
) -> io::Result<Invitation> {
    let mut invitation = invitation.clone();
    for Ancestor { address, .. } in &mut invitation.ancestors {
        let DoorAddress::Tcp(all) = address else { continue };
        for at in all.iter_mut().filter(|at| at.ip().is_unspecified()) {
            let unknown =
                "the host does not say by which address it knows this one; say it with listen";
            *at = SocketAddr::new(here.ok_or_else(|| io::Error::other(unknown))?, at.port());
        }
    }
    Ok(invitation)
}
