//! What the owner has just said of a file to a thread that is still in the same system call.
//!
//! The kernel looks a name up, and then asks for the attributes of what it has found, and for its access control list, to
//! check permissions or to show them. The answer to the first request answers the others: each was asked after the
//! system call had begun. No request says to which system call it belongs, so only the thread's next request
//! counts, within [`SAME_CALL_MAX`]. A thread that opens a file with `O_PATH` and calls `fstat` within this time may be shown
//! attributes of the moment of opening.
//!
//! A request for the attributes of a directory takes along what names lead to that the path is likely to go on with
//! (`walks.rs`). The same rule holds for them: they answer the thread's next requests, in this order, and nothing else.
use crate::message::{NodeAttributes, NodeName, NodeOp};
use rustc_hash::FxHashMap;
use sheaf_core::lock;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long a thread may take from an answer to the next request of the same system call.
const SAME_CALL_MAX: Duration = Duration::from_micros(500);
/// Threads that are remembered.
const THREADS_MAX: usize = 1024;
/// The extended attribute with the access control list.
const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
/// What the names of those begin with for which `ls` and the kernel ask.
const SECURITY: &[u8] = b"security.";

/// See the module.
#[derive(Default)]
pub(super) struct RecentAnswers(Mutex<FxHashMap<u32, RecentAnswer>>);

struct RecentAnswer {
    found: Option<NodeAttributes>,
    /// The thread has only looked the name up.
    is_lookup: bool,
    /// What names lead to that the thread is likely to look up next, in this order.
    ahead: VecDeque<(NodeName, NodeAttributes)>,
    at: Instant,
}

/// What is known without a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Known {
    Attributes(NodeAttributes),
    /// There is no such extended attribute.
    NoXattr,
    Nothing,
}

impl RecentAnswers {
    /// The owner has said this to a thread, and what names lead to in it. Nodes that were given to threads of which
    /// nothing is remembered any more.
    pub fn note(
        &self,
        thread: u32,
        found: NodeAttributes,
        is_lookup: bool,
        ahead: VecDeque<(NodeName, NodeAttributes)>,
        now: Instant,
    ) -> Vec<(u64, u64)> {
        // Threads of other PID namespaces have no number here.
        if thread == 0 {
            return given(&ahead);
        }
        let mut all = lock(&self.0);
        let mut left = Vec::new();
        if all.len() >= THREADS_MAX {
            left = all.drain().flat_map(|(_, recent)| given(&recent.ahead)).collect();
        }
        let recent = RecentAnswer { found: Some(found), is_lookup, ahead, at: now };
        let before = all.insert(thread, recent);
        left.extend(before.iter().flat_map(|recent| given(&recent.ahead)));
        left
    }

    /// What a thread's next request is answered with, and nodes that it was given and does not ask for.
    pub fn take(&self, thread: u32, op: &NodeOp, now: Instant) -> (Known, Vec<(u64, u64)>) {
        let mut all = lock(&self.0);
        let Some(mut recent) = all.remove(&thread) else { return (Known::Nothing, Vec::new()) };
        let known = match now.duration_since(recent.at) < SAME_CALL_MAX {
            true => recent.answers(op),
            false => Known::Nothing,
        };
        if known == Known::Nothing {
            return (known, given(&recent.ahead));
        }
        // The names of a long path are asked for one after the other.
        if !recent.ahead.is_empty() {
            recent.at = now;
        }
        if recent.found.is_some() || !recent.ahead.is_empty() {
            all.insert(thread, recent);
        }
        (known, Vec::new())
    }
}

impl RecentAnswer {
    fn answers(&mut self, op: &NodeOp) -> Known {
        match (op, self.found) {
            (NodeOp::Attributes { node, handle: None }, Some(found))
                if *node == found.node && self.is_lookup =>
            {
                self.is_lookup = false;
                Known::Attributes(found)
            }
            (NodeOp::GetXattr { node, name, .. }, Some(found)) if *node == found.node => {
                self.found = None;
                if may_have(&found, name) { Known::Nothing } else { Known::NoXattr }
            }
            (NodeOp::Lookup(at), _) if self.ahead.front().is_some_and(|(next, _)| next == at) => {
                let Some((_, found)) = self.ahead.pop_front() else { return Known::Nothing };
                (self.found, self.is_lookup) = (Some(found), true);
                Known::Attributes(found)
            }
            _ => Known::Nothing,
        }
    }
}

/// Nodes that the owner has given, and the kernel has not received.
fn given(ahead: &VecDeque<(NodeName, NodeAttributes)>) -> Vec<(u64, u64)> {
    ahead.iter().map(|(_, found)| (found.node, 1)).collect()
}

/// Whether a file may have this extended attribute.
pub(super) fn may_have(found: &NodeAttributes, name: &[u8]) -> bool {
    match name.starts_with(SECURITY) {
        true => found.has_xattrs,
        false => found.has_list || name != ACCESS_LIST,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_next_request_of_a_thread_is_answered() {
        let (recent, now) = (RecentAnswers::default(), Instant::now());
        let found = crate::own::attributes(7, 0o100_644, 1, crate::own::now());
        let attributes = NodeOp::Attributes { node: 7, handle: None };
        let list = |node| NodeOp::GetXattr { node, name: ACCESS_LIST.to_vec(), size: 100 };
        recent.note(1, found, true, VecDeque::new(), now);
        assert_eq!(recent.take(2, &attributes, now).0, Known::Nothing);
        assert_eq!(recent.take(1, &attributes, now).0, Known::Attributes(found));
        assert_eq!(recent.take(1, &list(7), now).0, Known::NoXattr);
        assert_eq!(recent.take(1, &list(7), now).0, Known::Nothing);
        let label = NodeOp::GetXattr { node: 7, name: b"security.selinux".to_vec(), size: 100 };
        recent.note(1, found, true, VecDeque::new(), now);
        assert_eq!(recent.take(1, &label, now).0, Known::Nothing);
        recent.note(1, NodeAttributes { has_xattrs: false, ..found }, true, VecDeque::new(), now);
        assert_eq!(recent.take(1, &label, now).0, Known::NoXattr);
        let other = NodeOp::GetXattr { node: 7, name: b"user.name".to_vec(), size: 100 };
        recent.note(1, NodeAttributes { has_xattrs: false, ..found }, true, VecDeque::new(), now);
        assert_eq!(recent.take(1, &other, now).0, Known::Nothing);
        // Attributes that were asked for are asked for again, and so is another file.
        recent.note(1, found, false, VecDeque::new(), now);
        assert_eq!(recent.take(1, &attributes, now).0, Known::Nothing);
        recent.note(1, found, true, VecDeque::new(), now);
        assert_eq!(recent.take(1, &list(8), now).0, Known::Nothing);
        assert_eq!(recent.take(1, &attributes, now).0, Known::Nothing);
        // A list that is there, and what was long ago.
        recent.note(1, NodeAttributes { has_list: true, ..found }, false, VecDeque::new(), now);
        assert_eq!(recent.take(1, &list(7), now).0, Known::Nothing);
        recent.note(1, found, true, VecDeque::new(), now);
        assert_eq!(recent.take(1, &attributes, now + SAME_CALL_MAX).0, Known::Nothing);
        recent.note(0, found, true, VecDeque::new(), now);
        assert_eq!(recent.take(0, &attributes, now).0, Known::Nothing);
    }

    #[test]
    fn names_ahead_answer_the_next_requests_in_their_order() {
        let (recent, now) = (RecentAnswers::default(), Instant::now());
        let made = crate::own::now();
        let found = |node| crate::own::attributes(node, 0o040_755, 1, made);
        let at = |parent, name: &str| NodeName { parent, name: name.into() };
        let attributes = |node| NodeOp::Attributes { node, handle: None };
        let look_up = |parent, name: &str| NodeOp::Lookup(at(parent, name));
        let note = |thread| {
            let ahead = [(at(1, "a"), found(2)), (at(2, "b"), found(3))];
            recent.note(thread, found(1), false, ahead.into(), now)
        };
        let take = |thread, op: &NodeOp| recent.take(thread, op, now);
        assert!(note(5).is_empty());
        assert_eq!(take(5, &look_up(1, "a")), (Known::Attributes(found(2)), vec![]));
        assert_eq!(take(5, &attributes(2)), (Known::Attributes(found(2)), vec![]));
        assert_eq!(take(5, &look_up(2, "b")), (Known::Attributes(found(3)), vec![]));
        assert_eq!(take(5, &attributes(3)), (Known::Attributes(found(3)), vec![]));
        assert_eq!(take(5, &attributes(3)), (Known::Nothing, vec![]));
        // Whoever asks for something else has begun another walk, and the owner forgets what it has given.
        note(5);
        assert_eq!(take(5, &look_up(2, "b")), (Known::Nothing, vec![(2, 1), (3, 1)]));
        assert_eq!(take(5, &look_up(1, "a")), (Known::Nothing, vec![]));
        // A directory that is asked for twice is asked for in two calls.
        note(5);
        take(5, &look_up(1, "a"));
        take(5, &attributes(2));
        assert_eq!(take(5, &attributes(2)), (Known::Nothing, vec![(3, 1)]));
        assert_eq!(take(5, &look_up(2, "b")), (Known::Nothing, vec![]));
        // Another thread's walk, and one of long ago.
        note(5);
        assert_eq!(take(6, &look_up(1, "a")), (Known::Nothing, vec![]));
        let late = recent.take(5, &look_up(1, "a"), now + SAME_CALL_MAX);
        assert_eq!(late, (Known::Nothing, vec![(2, 1), (3, 1)]));
        note(5);
        assert_eq!(note(5), [(2, 1), (3, 1)]);
        assert_eq!(note(0), [(2, 1), (3, 1)]);
    }
}
