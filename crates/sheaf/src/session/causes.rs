//! Why hosts were silent, in words: what the tree noticed of each.
use crate::output::{NOT_STARTED, Report, Silence, Silent};
use sheaf_core::{Errno, RangeSet};
use sheaf_session::Connected;
use sheaf_tree::Notice;
use std::time::Duration;

/// The longest cause that is told.
const CAUSE_CHARS_MAX: usize = 300;

/// What was noticed of leaves that are gone.
struct Gone {
    leaves: RangeSet,
    errno: Errno,
    cause: String,
}

/// Names why hosts were silent: what the tree noticed first of each since it was last there, else what the
/// wave says.
pub fn add(
    report: &mut Report,
    errno: Errno,
    leaves: &RangeSet,
    notices: &[Notice],
    connected: &Connected,
    timeout: Duration,
) {
    let mut rest = leaves.clone();
    for Gone { leaves: gone, errno, cause } in all_gone(notices, connected) {
        let told = rest.intersection(&gone);
        if !told.is_empty() {
            rest = rest.difference(&told);
            let why =
                if is_down(errno) { Silence::Down(Some(cause)) } else { Silence::Unserved(errno, cause) };
            report.silent.push(Silent { leaves: told, why });
        }
    }
    if !rest.is_empty() {
        let why = match errno {
            Errno::TIMEDOUT => Silence::NoAnswer(timeout),
            Errno::CANCELED => Silence::Cancelled,
            _ => Silence::Down(None),
        };
        report.silent.push(Silent { leaves: rest, why });
    }
}

fn all_gone(notices: &[Notice], connected: &Connected) -> Vec<Gone> {
    let mut all: Vec<Gone> = Vec::new();
    for notice in notices {
        all.push(match notice {
            Notice::Lost { by, leaves, errno, cause, .. } => {
                Gone { leaves: leaves.clone(), errno: *errno, cause: told(connected, *by, leaves, cause) }
            }
            Notice::Left { leaves, .. } => {
                Gone { leaves: leaves.clone(), errno: Errno::HOSTDOWN, cause: "it has left".to_owned() }
            }
            Notice::Joined { leaves, .. } => {
                all.iter_mut().for_each(|gone| gone.leaves = gone.leaves.difference(leaves));
                continue;
            }
            _ => continue,
        });
    }
    all
}

/// Whether this says of a host no more than that nothing comes from it; anything else is a reason of
/// another kind, such as an export that is not there.
fn is_down(errno: Errno) -> bool {
    const DOWN: [Errno; 6] = [
        Errno::HOSTDOWN,
        Errno::TIMEDOUT,
        Errno::CONNRESET,
        Errno::CONNREFUSED,
        Errno::PIPE,
        Errno::CANCELED,
    ];
    DOWN.contains(&errno)
}

/// The cause, with the host that failed to start others, and with `%h` for the host's own name, so that
/// equal causes of many hosts are one.
fn told(connected: &Connected, by: u32, leaves: &RangeSet, cause: &str) -> String {
    let mut text = shortened(cause);
    if leaves.len() == 1
        && let Some(name) = leaves.first().and_then(|leaf| connected.session.host(leaf))
    {
        text = without_name(&text, &name);
    }
    let root = connected.topology.root();
    let starter = connected.topology.nodes().find(|node| node.rank() == by && by != root.rank());
    match starter.filter(|_| cause.starts_with(NOT_STARTED)) {
        Some(node) if node.host() != root.host() => format!("from {}: {text}", node.host()),
        _ => text,
    }
}

fn shortened(cause: &str) -> String {
    match cause.char_indices().nth(CAUSE_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &cause[..at]),
        None => cause.to_owned(),
    }
}

/// `%h` in place of a name, where that stands as a word.
fn without_name(text: &str, name: &str) -> String {
    let is_part = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    let (mut done, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(name).filter(|_| !name.is_empty()) {
        let end = at + name.len();
        let before = rest[..at].chars().next_back().or(done.chars().next_back());
        let is_word = !before.is_some_and(is_part) && !rest[end..].starts_with(is_part);
        done += &rest[..at];
        done += if is_word { "%h" } else { name };
        rest = &rest[end..];
    }
    done + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words() {
        let text = "not started: ssh: connect to host n1 port 22: n11 n1-a n1: n1";
        assert_eq!(without_name(text, "n1"), "not started: ssh: connect to host %h port 22: n11 n1-a %h: %h");
        assert_eq!(without_name(text, ""), text);
    }

    #[test]
    fn long_causes_are_cut() {
        assert_eq!(shortened("short"), "short");
        assert_eq!(shortened(&"ä".repeat(1000)).chars().count(), CAUSE_CHARS_MAX + 1);
    }
}
