//! What a tree has noticed of itself: who was lost, came back, or left.
use serde_json::json;
use sheaf_core::RangeSet;
use sheaf_session::Session;
use sheaf_tree::Notice;

/// What the tree has noticed, in one line.
pub fn text(notice: &Notice, session: &Session) -> Option<String> {
    let fold = |leaves| session.client().fold(leaves);
    match notice {
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

/// The hosts that the root has started, because their parents cannot log in to them, in one line.
pub fn started_from_here(notices: &[Notice], session: &Session) -> Option<String> {
    let (mut stranded, mut lost) = (RangeSet::new(), RangeSet::new());
    for notice in notices {
        match notice {
            Notice::Stranded { leaves, .. } => stranded.union_with(leaves),
            Notice::Lost { leaves, .. } | Notice::Left { leaves, .. } => lost.union_with(leaves),
            Notice::Joined { leaves, .. } => lost = lost.difference(leaves),
            _ => {}
        }
    }
    let everyone = session.client().network().everyone();
    let started = stranded.difference(&lost).intersection(&everyone);
    let hosts = (!started.is_empty()).then(|| session.client().fold(&started))?;
    Some(format!("{hosts}: started from here, as their parents cannot log in to them"))
}
