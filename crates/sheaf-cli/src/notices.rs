//! What a tree has noticed of itself: who was lost, came back, or left.
use crate::output::Records;
use sheaf_core::RangeSet;
use sheaf_records::{Joined, Left, Lost, Malformed, Stranded};
use sheaf_session::Session;
use sheaf_tree::Notice;
use sheaf_tree::launch::ssh::NoStart;
use std::io::{self, Write};

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
        Notice::Garbled { leaves, .. } => {
            Some(format!("malformed: an answer of {} does not decode", fold(leaves)))
        }
        _ => None,
    }
}

/// Writes the record of a notice. If `status` shows it: the name of the session, and the time in seconds
/// since 1970.
pub fn write(
    notice: &Notice,
    session: &Session,
    of: Option<(&str, u64)>,
    records: Records,
    out: &mut dyn Write,
) -> io::Result<()> {
    let (name, at) = (of.map(|(name, _)| name.to_owned()), of.map(|(_, at)| at));
    let fold = |leaves| session.client().fold(leaves);
    match notice {
        Notice::Lost { by, rank, leaves, errno, cause } => {
            let record = Lost {
                session: name,
                hosts: fold(leaves),
                rank: u64::from(*rank),
                noticed_by: u64::from(*by),
                errno: errno.name().map(str::to_owned),
                cause: cause.clone(),
                at,
            };
            records.write(out, &record)
        }
        Notice::Joined { by, rank, leaves } => {
            let (rank, noticed_by) = (u64::from(*rank), u64::from(*by));
            records.write(out, &Joined { session: name, hosts: fold(leaves), rank, noticed_by, at })
        }
        Notice::Left { rank, leaves } => {
            let rank = u64::from(*rank);
            records.write(out, &Left { session: name, hosts: fold(leaves), rank, at })
        }
        Notice::Garbled { by, leaves } => {
            let noticed_by = u64::from(*by);
            records.write(out, &Malformed { session: name, hosts: fold(leaves), noticed_by, at })
        }
        Notice::Stranded { by, rank, leaves, cause, .. } => {
            let record = Stranded {
                session: name,
                hosts: fold(leaves),
                rank: u64::from(*rank),
                noticed_by: u64::from(*by),
                cause: cause.clone(),
                at,
            };
            records.write(out, &record)
        }
        _ => Ok(()),
    }
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
