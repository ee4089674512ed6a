//! Why hosts are gone, in words: what the tree noticed of each.
use crate::session::Session;
use sheaf_core::{Errno, RangeSet};
use sheaf_tree::Notice;
use std::net::IpAddr;

/// The longest cause that is told.
const CAUSE_CHARS_MAX: usize = 300;

/// How the cause begins where a host could not be started; the host that tried may stand before it.
pub const NOT_STARTED: &str = "not started: ";

/// Whether a cause is ssh's words that it has not come to the host, which may be up: nobody knows
/// the name, or nobody listens there.
#[must_use]
pub fn is_unreached(cause: &str) -> bool {
    let is_refused = cause.contains("connect to host ") && cause.contains("Connection refused");
    cause.contains(NOT_STARTED) && (is_refused || cause.contains(NAME_NOT_KNOWN))
}

/// The cause of a host which waits for its first login.
const UNTRIED: &str = "not started: it waits for logins to other hosts (ssh_starts_max)";

/// Whether a cause says that nothing has tried to reach the host.
#[must_use]
pub fn is_untried(cause: &str) -> bool {
    cause == UNTRIED
}

/// The cause of a host that is being started.
const STARTING: &str = "not started: nothing has come from it so far";

/// Whether a cause says that a host is being started.
#[must_use]
pub fn is_starting(cause: &str) -> bool {
    cause == STARTING
}

/// What ssh says of a host whose name it cannot look up.
pub(crate) const NAME_NOT_KNOWN: &str = "Could not resolve hostname";

/// What was noticed of leaves that are gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone {
    /// Which.
    pub leaves: RangeSet,
    /// The error that this is.
    pub errno: Errno,
    /// What happened, with `%h` for the host's own name.
    pub cause: String,
}

impl Gone {
    /// Whether no more is known than that nothing comes from them; anything else is a reason of
    /// another kind, such as an export that is not there.
    #[must_use]
    pub fn is_down(&self) -> bool {
        const DOWN: [Errno; 6] = [
            Errno::HOSTDOWN,
            Errno::TIMEDOUT,
            Errno::CONNRESET,
            Errno::CONNREFUSED,
            Errno::PIPE,
            Errno::CANCELED,
        ];
        DOWN.contains(&self.errno)
    }
}

impl Session {
    /// The leaves that are gone, by what the tree noticed first of each since it was last there.
    #[must_use]
    pub fn gone(&self) -> Vec<Gone> {
        let mut all: Vec<Gone> = Vec::new();
        for notice in self.client.network().notices() {
            all.push(match &notice {
                Notice::Lost { by, leaves, errno, cause, .. } => Gone {
                    leaves: leaves.clone(),
                    errno: *errno,
                    cause: self.told(*by, leaves, cause),
                },
                Notice::Left { leaves, .. } => Gone {
                    leaves: leaves.clone(),
                    errno: Errno::HOSTDOWN,
                    cause: "it has left".to_owned(),
                },
                Notice::Joined { leaves, .. } => {
                    all.iter_mut().for_each(|gone| gone.leaves = gone.leaves.difference(leaves));
                    continue;
                }
                _ => continue,
            });
        }
        all
    }

    /// The leaves which nothing has tried to start so far. They may come yet.
    #[must_use]
    pub fn untried(&self) -> Option<Gone> {
        let leaves = self.client.network().untried();
        let (errno, cause) = (Errno::AGAIN, UNTRIED.to_owned());
        (!leaves.is_empty()).then_some(Gone { leaves, errno, cause })
    }

    /// The leaves that are being started. They may come yet.
    #[must_use]
    pub fn starting(&self) -> Option<Gone> {
        let is_others = !self.is_own();
        let leaves = if is_others { RangeSet::new() } else { self.client.network().starting() };
        let (errno, cause) = (Errno::AGAIN, STARTING.to_owned());
        (!leaves.is_empty()).then_some(Gone { leaves, errno, cause })
    }

    /// The cause, with the host that failed to start others, and with `%h` for the host's own name,
    /// so that equal causes of many hosts are one.
    fn told(&self, by: u32, leaves: &RangeSet, cause: &str) -> String {
        let mut text = shortened(cause);
        if leaves.len() == 1
            && let Some(name) = leaves.first().and_then(|leaf| self.client.host(leaf))
        {
            text = without_host(&text, &name);
        }
        let root = self.topology.root();
        let starter = self.topology.nodes().find(|node| node.rank() == by && by != root.rank());
        match starter.filter(|_| cause.starts_with(NOT_STARTED)) {
            Some(node) if node.host() != root.host() => format!("from {}: {text}", node.host()),
            _ => text,
        }
    }
}

/// A cause with `%h` in place of the host's name or address.
#[must_use]
pub fn without_host(cause: &str, name: &str) -> String {
    without_address(&without_name(cause, name))
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

/// `%h` in place of the address that ssh has for the host, in its own words: after a name in its
/// configuration, or where hosts are called by addresses.
fn without_address(text: &str) -> String {
    // What it says of a host that is reached by way of another may be of that one.
    if text.contains("UNKNOWN port") {
        return text.to_owned();
    }
    let words: Vec<&str> = text.split(' ').collect();
    let of_host = |at: usize| -> Option<String> {
        let word = words[at];
        if words.get(at + 1) == Some(&"port") {
            return word.parse::<IpAddr>().ok().map(|_| "%h".to_owned());
        }
        let (user, rest) = word.split_once('@')?;
        let address = rest.strip_suffix(':')?;
        address.parse::<IpAddr>().ok().map(|_| format!("{user}@%h:"))
    };
    let words: Vec<String> =
        (0..words.len()).map(|at| of_host(at).unwrap_or_else(|| words[at].to_owned())).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words() {
        let text = "not started: ssh: connect to host n1 port 22: n11 n1-a n1: n1";
        assert_eq!(
            without_name(text, "n1"),
            "not started: ssh: connect to host %h port 22: n11 n1-a %h: %h"
        );
        assert_eq!(without_name(text, ""), text);
    }

    #[test]
    fn addresses_are_names_where_ssh_speaks_of_the_host() {
        for (said, told) in [
            (
                "not started: ssh: connect to host 127.0.1.1 port 22872: Connection refused",
                "not started: ssh: connect to host %h port 22872: Connection refused",
            ),
            ("Connection closed by fe80::1 port 22", "Connection closed by %h port 22"),
            (
                "me@10.0.0.7: Permission denied (publickey).",
                "me@%h: Permission denied (publickey).",
            ),
            ("no way to 10.0.0.1: 10.0.0.1:7440", "no way to 10.0.0.1: 10.0.0.1:7440"),
            (
                "ssh: connect to host 10.0.0.1 port 22: x; closed by UNKNOWN port 65535",
                "ssh: connect to host 10.0.0.1 port 22: x; closed by UNKNOWN port 65535",
            ),
        ] {
            assert_eq!(without_address(said), told);
        }
    }

    #[test]
    fn long_causes_are_cut() {
        assert_eq!(shortened("short"), "short");
        assert_eq!(shortened(&"ä".repeat(1000)).chars().count(), CAUSE_CHARS_MAX + 1);
    }
}
