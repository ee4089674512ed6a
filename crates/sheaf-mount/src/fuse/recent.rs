//! What the owner has just said of a file to a thread that is still in the same system call.
//!
//! The kernel looks a name up, and then asks for the attributes of what it has found, and for its access control list, to
//! check permissions or to show them. The answer to the first request answers the others: each was asked after the
//! system call had begun. No request says to which system call it belongs, so only the thread's next request
//! counts, within [`SAME_CALL_MAX`]. A thread that opens a file with `O_PATH` and calls `fstat` within this time may be shown
//! attributes of the moment of opening.
use crate::message::{NodeAttributes, NodeOp};
use rustc_hash::FxHashMap;
use sheaf_core::lock;
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

#[derive(Clone, Copy)]
struct RecentAnswer {
    found: NodeAttributes,
    /// The thread has only looked the name up.
    is_lookup: bool,
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
    /// The owner has said this to a thread.
    pub fn note(&self, thread: u32, found: NodeAttributes, is_lookup: bool, now: Instant) {
        // Threads of other PID namespaces have no number here.
        if thread == 0 {
            return;
        }
        let mut all = lock(&self.0);
        if all.len() >= THREADS_MAX {
            all.clear();
        }
        all.insert(thread, RecentAnswer { found, is_lookup, at: now });
    }

    /// What a thread's next request is answered with.
    pub fn take(&self, thread: u32, op: &NodeOp, now: Instant) -> Known {
        let mut all = lock(&self.0);
        let recent = all.remove(&thread);
        let Some(recent) = recent.filter(|one| now.duration_since(one.at) < SAME_CALL_MAX) else {
            return Known::Nothing;
        };
        match op {
            NodeOp::Attributes { node, handle: None }
                if *node == recent.found.node && recent.is_lookup =>
            {
                all.insert(thread, RecentAnswer { is_lookup: false, ..recent });
                Known::Attributes(recent.found)
            }
            NodeOp::GetXattr { node, name, .. } if *node == recent.found.node => {
                let is_there = match name.starts_with(SECURITY) {
                    true => recent.found.has_xattrs,
                    false => recent.found.has_list || name != ACCESS_LIST,
                };
                if is_there { Known::Nothing } else { Known::NoXattr }
            }
            _ => Known::Nothing,
        }
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
        recent.note(1, found, true, now);
        assert_eq!(recent.take(2, &attributes, now), Known::Nothing);
        assert_eq!(recent.take(1, &attributes, now), Known::Attributes(found));
        assert_eq!(recent.take(1, &list(7), now), Known::NoXattr);
        assert_eq!(recent.take(1, &list(7), now), Known::Nothing);
        let label = NodeOp::GetXattr { node: 7, name: b"security.selinux".to_vec(), size: 100 };
        recent.note(1, found, true, now);
        assert_eq!(recent.take(1, &label, now), Known::Nothing);
        recent.note(1, NodeAttributes { has_xattrs: false, ..found }, true, now);
        assert_eq!(recent.take(1, &label, now), Known::NoXattr);
        let other = NodeOp::GetXattr { node: 7, name: b"user.name".to_vec(), size: 100 };
        recent.note(1, NodeAttributes { has_xattrs: false, ..found }, true, now);
        assert_eq!(recent.take(1, &other, now), Known::Nothing);
        // Attributes that were asked for are asked for again, and so is another file.
        recent.note(1, found, false, now);
        assert_eq!(recent.take(1, &attributes, now), Known::Nothing);
        recent.note(1, found, true, now);
        assert_eq!(recent.take(1, &list(8), now), Known::Nothing);
        assert_eq!(recent.take(1, &attributes, now), Known::Nothing);
        // A list that is there, and what was long ago.
        recent.note(1, NodeAttributes { has_list: true, ..found }, false, now);
        assert_eq!(recent.take(1, &list(7), now), Known::Nothing);
        recent.note(1, found, true, now);
        assert_eq!(recent.take(1, &attributes, now + SAME_CALL_MAX), Known::Nothing);
        recent.note(0, found, true, now);
        assert_eq!(recent.take(0, &attributes, now), Known::Nothing);
    }
}
