//! What a tree has noticed of itself: who was lost, came back, or left.
use serde_json::json;
use sheaf_core::RangeSet;
use sheaf_session::Session;
use sheaf_tree::Notice;
use sheaf_tree::launch::ssh::NoStart;

const ROOT_RANK: u32 = 0;

/// What the tree has noticed, in one line; of how many nodes.
pub fn text(notice: &Notice, session: &Session, nodes: usize) -> Option<String> {
    let fold = |leaves| session.client().fold(leaves);
    match notice {
        Notice::Lost { leaves, cause, .. } if nodes > 1 => {
            Some(format!("lost: {}: {cause} ({nodes} nodes)", fold(leaves)))
        }
        Notice::Joined { leaves, .. } if nodes > 1 => {
            Some(format!("joined: {} ({nodes} nodes)", fold(leaves)))
        }
        Notice::Left { leaves, .. } if nodes > 1 => {
            Some(format!("left: {} ({nodes} nodes)", fold(leaves)))
        }
        Notice::Lost { by, rank, leaves, cause, .. } => {
            Some(format!("lost: {}: {cause} (node {rank}, noticed by node {by})", fold(leaves)))
        }
        Notice::Joined { by, rank, leaves } => {
            Some(format!("joined: {} (node {rank}, below node {by})", fold(leaves)))
        }
        Notice::Left { rank, leaves } => Some(format!("left: {} (node {rank})", fold(leaves))),
        _ => None,
    }
}

/// A notice for `--json`.
pub fn json(notice: &Notice, session: &Session) -> Option<serde_json::Value> {
    let fold = |leaves| session.client().fold(leaves);
    Some(match notice {
        Notice::Lost { by, rank, leaves, errno, cause } => json!({
            "type": "lost", "hosts": fold(leaves), "rank": rank, "noticed_by": by, "errno": errno.name(), "cause": cause,
        }),
        Notice::Joined { by, rank, leaves } => {
            json!({ "type": "joined", "hosts": fold(leaves), "rank": rank, "noticed_by": by })
        }
        Notice::Left { rank, leaves } => {
            json!({ "type": "left", "hosts": fold(leaves), "rank": rank })
        }
        Notice::Stranded { by, rank, leaves, cause, .. } => json!({
            "type": "stranded", "hosts": fold(leaves), "rank": rank, "noticed_by": by, "cause": cause,
        }),
        _ => return None,
    })
}

/// The hosts that the root has started, because their parents cannot or are not there, in one line.
pub fn started_from_here(notices: &[Notice], session: &Session) -> Option<String> {
    // By a node that asks the root; the root itself says it of those whose parents it cannot start.
    const WHYS: [(Option<NoStart>, &str); 4] = [
        (Some(NoStart::NotLetIn), "cannot log in to them"),
        (Some(NoStart::NotReached), "cannot reach them"),
        (Some(NoStart::Other), "cannot start them"),
        (None, "could not be started"),
    ];
    let (mut stranded, mut lost) = (WHYS.map(|_| RangeSet::new()), RangeSet::new());
    for notice in notices {
        match notice {
            Notice::Stranded { by, leaves, cause, .. } => {
                let said = (*by != ROOT_RANK).then(|| NoStart::of(cause));
                for (hosts, (why, _)) in stranded.iter_mut().zip(&WHYS) {
                    match *why == said {
                        true => hosts.union_with(leaves),
                        // What was said last holds.
                        false => *hosts = hosts.difference(leaves),
                    }
                }
            }
            Notice::Lost { leaves, .. } | Notice::Left { leaves, .. } => lost.union_with(leaves),
            Notice::Joined { leaves, .. } => lost = lost.difference(leaves),
            _ => {}
        }
    }
    let everyone = session.client().network().everyone();
    let lines = stranded.iter().zip(&WHYS).filter_map(|(hosts, (_, why))| {
        let started = hosts.difference(&lost).intersection(&everyone);
        let hosts = (!started.is_empty()).then(|| session.client().fold(&started))?;
        Some(format!("{hosts}: started from here, as their parents {why}"))
    });
    let lines: Vec<String> = lines.collect();
    (!lines.is_empty()).then(|| lines.join("; "))
}
