//! What the tree tells its front end, as the application hears it.
use crate::error::{Error, ErrorCode};
use crate::event::{self, EventDescriptor, Events};
use crate::hub;
use crate::plan::BackEndPlan;
use sheaf_core::{RangeSet, lock};
use sheaf_tree::filter::{HeldUpListener, tell_when_held_up};
use sheaf_tree::{Network, Notice};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Why a session did not start.
pub(super) fn not_started(
    plan: &BackEndPlan,
    network: &Network,
    late: bool,
    patience: Duration,
) -> Error {
    let causes = network.notices().into_iter().filter_map(|notice| match notice {
        Notice::Lost { leaves, cause, .. } => {
            let hosts: Vec<String> = leaves
                .ranges()
                .iter()
                .map(|&(first, last)| plan.topology().fold_leaves(first..last + 1))
                .collect();
            Some(format!("{}: {cause}", hosts.join(",")))
        }
        _ => None,
    });
    let causes: Vec<String> = causes.take(8).collect();
    let message = match (causes.is_empty(), late) {
        (false, _) => format!("back ends did not start: {}", causes.join("; ")),
        (true, true) => format!("back ends did not start within {} s", patience.as_secs()),
        (true, false) => "back ends did not start".to_owned(),
    };
    Error::new(ErrorCode::Launch, message)
}

/// Tells the application of a node that can let no back ends in.
pub(super) fn complain(note: &[u8], events: &Events) {
    let Some((rank, why)) = hub::trouble(note) else { return };
    let (class, kind, stream) = (event::CLASS_ERROR, event::error::SYSTEM, u32::MAX);
    let text = format!("no back end can attach itself at node {rank}: {why}");
    events.push(EventDescriptor { class, kind, rank, parent: crate::NO_RANK, stream, text });
}

/// Tells the application of its filters that hold up the front end itself, as long as what is
/// returned is there.
pub(super) fn when_held_up(events: &Arc<Events>) -> Arc<HeldUpListener> {
    let events = Arc::clone(events);
    let listener: Arc<HeldUpListener> = Arc::new(move |text: &str| {
        let (class, kind, stream) = (event::CLASS_ERROR, event::error::USAGE, u32::MAX);
        let (rank, parent, text) = (0, crate::NO_RANK, text.to_owned());
        events.push(EventDescriptor { class, kind, rank, parent, stream, text });
    });
    tell_when_held_up(&listener);
    listener
}

/// Counts what a notice says in the plan, and tells the application. `carried` is the application's
/// stream that one of the tree carries.
pub(super) fn tell(
    notice: &Notice,
    plan: &Mutex<BackEndPlan>,
    events: &Events,
    carried: &dyn Fn(u32) -> Option<u32>,
) {
    let say = |kind: u32, rank: u32, parent: u32, text: &str| {
        let (class, stream, text) = (event::CLASS_TOPOLOGY, u32::MAX, text.to_owned());
        events.push(EventDescriptor { class, kind, rank, parent, stream, text });
    };
    let with_leaves = |rank: u32, leaves: &RangeSet| -> BTreeSet<u32> {
        let plan = lock(plan);
        leaves.iter().filter_map(|leaf| plan.rank_of_leaf(leaf)).chain([rank]).collect()
    };
    let gone = |by: u32, rank: u32, leaves: &RangeSet, cause: &str| {
        for one in with_leaves(rank, leaves) {
            if lock(plan).remove(one) {
                say(event::topology::REMOVED, one, by, cause);
            }
        }
    };
    match notice {
        Notice::Lost { by, rank, leaves, cause, .. } => gone(*by, *rank, leaves, cause),
        Notice::Left { rank, leaves } => gone(crate::NO_RANK, *rank, leaves, "it has left"),
        Notice::Joined { by, rank, leaves } => {
            for one in with_leaves(*rank, leaves) {
                let role = lock(plan).restore(one, (one == *rank).then_some(*by));
                match role {
                    Some(2) => say(event::topology::BACK_END_ADDED, one, *by, "it is back"),
                    Some(_) => say(event::topology::INNER_ADDED, one, *by, "it is back"),
                    None => {}
                }
            }
        }
        // Those who do not come are told of as lost.
        Notice::Wants { .. }
        | Notice::Stranded { .. }
        | Notice::StateLost { .. }
        | Notice::Garbled { .. }
        | Notice::Machine { .. } => {}
        Notice::FilterFailed { by, stream, message, .. } => {
            let (class, kind) = (event::CLASS_ERROR, event::error::USAGE);
            let text = format!("a filter failed: {message}");
            let stream = carried(*stream).unwrap_or(u32::MAX);
            events.push(EventDescriptor {
                class,
                kind,
                rank: *by,
                parent: crate::NO_RANK,
                stream,
                text,
            });
        }
    }
}
