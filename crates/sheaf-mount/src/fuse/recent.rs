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
//!
//! A call that makes or removes a name has the kernel ask twice for the attributes of the directory: to walk through it, and
//! to change it. The second time they only say whether the caller may, which the owner judges again when it is asked for
//! the change. So the first answer is the second one as well, for a thread that is in such a call (`calls.rs`) and has asked for
//! nothing but names and its access control list since, within [`RIGHTS_MAX`].
use super::calls::changes_names;
use super::device::WatchedDevice;
use super::reply::{ReplyAs, reply};
use super::{Remote, View};
use crate::message::{FileAnswer, NodeAttributes, NodeName, NodeOp};
use rustc_hash::FxHashMap;
use sheaf_core::{Errno, lock};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a thread may take from an answer to the next request of the same system call.
const SAME_CALL_MAX: Duration = Duration::from_micros(500);
/// How long the rights to a directory are known to a call that changes its names.
const RIGHTS_MAX: Duration = Duration::from_millis(1);
/// Threads that are remembered.
const THREADS_MAX: usize = 1024;
/// The extended attribute with the access control list.
const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
/// What the names of those begin with for which `ls` and the kernel ask.
const SECURITY: &[u8] = b"security.";

/// See the module.
#[derive(Default)]
pub(super) struct RecentAnswers {
    answers: Mutex<FxHashMap<u32, RecentAnswer>>,
    /// The last directory whose attributes a thread received, and when.
    directories: Mutex<FxHashMap<u32, (NodeAttributes, Instant)>>,
}

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
        let mut all = lock(&self.answers);
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
        let mut all = lock(&self.answers);
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

    /// A thread has received the attributes of a directory.
    pub fn note_directory(&self, thread: u32, found: NodeAttributes, now: Instant) {
        if thread == 0 || found.mode & libc::S_IFMT != libc::S_IFDIR {
            return;
        }
        let mut all = lock(&self.directories);
        if all.len() >= THREADS_MAX {
            all.clear();
        }
        all.insert(thread, (found, now));
    }

    /// What a thread has just been told of this directory, if it asks for no more than the right to change its names.
    /// `is_change` says whether it is in a call that does.
    pub fn take_directory(
        &self,
        thread: u32,
        op: &NodeOp,
        now: Instant,
        is_change: impl FnOnce(u32) -> bool,
    ) -> Option<NodeAttributes> {
        let mut all = lock(&self.directories);
        let is_of_walk = match op {
            NodeOp::Lookup(_) => true,
            NodeOp::GetXattr { node, name, .. } => {
                name == ACCESS_LIST
                    && all.get(&thread).is_some_and(|(found, _)| found.node == *node)
            }
            _ => false,
        };
        if is_of_walk {
            return None;
        }
        let (found, at) = all.remove(&thread)?;
        drop(all);
        let NodeOp::Attributes { node, handle: None } = op else { return None };
        let is_known = *node == found.node && now.duration_since(at) < RIGHTS_MAX;
        (is_known && is_change(thread)).then_some(found)
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

impl<R: Remote> View<R> {
    /// Answers what the owner has just said. Whether it has.
    pub(super) fn answers_by_recent(
        self: &Arc<Self>,
        (device, unique): (&WatchedDevice, u64),
        how: &ReplyAs,
        thread: u32,
        (op, is_covered): (&NodeOp, bool),
    ) -> Result<bool, Errno> {
        let now = Instant::now();
        let (known, unused) = self.recent.take(thread, op, now);
        self.forget_at_owner(unused);
        let rights = self.recent.take_directory(thread, op, now, changes_names);
        let found = match (known, op) {
            (Known::Attributes(found), NodeOp::Lookup(_)) if is_covered => {
                self.forget_at_owner(vec![(found.node, 1)]);
                return Ok(false);
            }
            _ if is_covered => return Ok(false),
            (Known::NoXattr, _) => return Err(Errno::NODATA),
            (Known::Attributes(found), NodeOp::Lookup(at)) => {
                self.note_step(at, &found);
                found
            }
            (Known::Attributes(found), _) => {
                if self.walks.is_some() {
                    self.recent.note_directory(thread, found, now);
                }
                found
            }
            (Known::Nothing, _) => match rights {
                Some(found) => {
                    let unused = self.recent.note(thread, found, false, VecDeque::new(), now);
                    self.forget_at_owner(unused);
                    found
                }
                None => return Ok(false),
            },
        };
        reply(device, unique, how, FileAnswer::Node(found), &[])?;
        Ok(true)
    }

    /// Notes what the owner has said to a thread, and what names lead to in it.
    pub(super) fn note_recent(
        self: &Arc<Self>,
        thread: u32,
        how: &ReplyAs,
        finds: bool,
        (answer, ahead): (&FileAnswer, VecDeque<(NodeName, NodeAttributes)>),
    ) {
        if !self.remote.has_sub_mounts() {
            return;
        }
        let now = Instant::now();
        let unused = match (how, answer) {
            (ReplyAs::Entry | ReplyAs::Attributes, FileAnswer::Node(found)) => {
                if matches!(how, ReplyAs::Attributes) && self.walks.is_some() {
                    self.recent.note_directory(thread, *found, now);
                }
                if finds && found.is_mounted {
                    self.covered.found(found.node);
                }
                self.recent.note(thread, *found, finds, ahead, now)
            }
            // Where the kernel checks rights, it asks for those to what it has created before it is open.
            (ReplyAs::Created, FileAnswer::Created(found, _)) if self.walks.is_some() => {
                self.recent.note(thread, *found, true, ahead, now)
            }
            _ => return,
        };
        self.forget_at_owner(unused);
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
    fn rights_to_a_directory_are_known_to_the_call_that_changes_it() {
        let (recent, now) = (RecentAnswers::default(), Instant::now());
        let found = crate::own::attributes(7, 0o040_755, 1, crate::own::now());
        let attributes = |node| NodeOp::Attributes { node, handle: None };
        let look_up = NodeOp::Lookup(NodeName { parent: 7, name: b"f".to_vec() });
        let take = |op: &NodeOp, now, is_change| recent.take_directory(1, op, now, |_| is_change);
        let note = || recent.note_directory(1, found, now);
        note();
        assert_eq!(take(&look_up, now, true), None);
        let list = |node| NodeOp::GetXattr { node, name: ACCESS_LIST.to_vec(), size: 100 };
        assert_eq!(take(&list(7), now, true), None);
        assert_eq!(take(&attributes(7), now, true), Some(found));
        // Once.
        assert_eq!(take(&attributes(7), now, true), None);
        // Whoever shows attributes is told those of now.
        note();
        assert_eq!(take(&attributes(7), now, false), None);
        assert_eq!(take(&attributes(7), now, true), None);
        // Another directory, what was long ago, and what has changed something meanwhile.
        note();
        assert_eq!(take(&attributes(8), now, true), None);
        note();
        assert_eq!(take(&attributes(7), now + RIGHTS_MAX, true), None);
        note();
        let set = NodeOp::Sync { handle: 1, data_only: true };
        assert_eq!(take(&set, now, true), None);
        assert_eq!(take(&attributes(7), now, true), None);
        note();
        assert_eq!(take(&list(8), now, true), None);
        assert_eq!(take(&attributes(7), now, true), None);
        // Another thread, one without a number, and what is no directory.
        note();
        assert_eq!(recent.take_directory(2, &attributes(7), now, |_| true), None);
        recent.note_directory(0, found, now);
        assert_eq!(recent.take_directory(0, &attributes(7), now, |_| true), None);
        recent.note_directory(3, NodeAttributes { mode: 0o100_755, ..found }, now);
        assert_eq!(recent.take_directory(3, &attributes(7), now, |_| true), None);
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
