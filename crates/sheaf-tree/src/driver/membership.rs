//! The process's own node in the tree: its hosts, its place, and how others are admitted below it.
use super::PeerLinks;
use crate::link::{Ancestor, Audit, DoorAddress, is_sound};
use crate::proto::{Notice, own};
use rustc_hash::FxHashMap;
use sheaf_core::RangeSet;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

/// The most notices kept for a root that does not read them; the oldest go first.
pub const NOTICES_MAX: usize = 4096;

/// The hosts and the place of the process's own node, as far as the node has reported them.
#[derive(Default)]
pub(crate) struct Membership {
    /// Leaves that run, once the tree has started as far as it will.
    pub ready: Option<RangeSet>,
    /// Notices that came to the root.
    pub notices: NoticeLog,
    /// Addresses at which the node's children listen, as each reported last.
    pub doors: FxHashMap<u32, DoorAddress>,
    /// The node below which this one has its place, once the parent has sent it.
    pub place: Option<Ancestor>,
    /// The links of this process's server to others.
    pub peers: Option<Weak<dyn PeerLinks>>,
    /// The parent of the node is gone.
    pub ended: bool,
    /// Whether a task searches for another parent when that one is lost.
    pub may_search: bool,
    /// The node needs another parent.
    pub orphaned: bool,
    /// Leaves below children which wait for their first login.
    pub untried: RangeSet,
}

impl Membership {
    /// Records the node below which this one has its place; one with an invalid address is none.
    pub(super) fn set_place(&mut self, place: Option<Ancestor>) {
        self.place = place.filter(|place| is_sound(&place.address));
    }

    /// Records the address at which a child listens. Returns whether the address is valid.
    pub(super) fn set_door(&mut self, rank: u32, address: DoorAddress) -> bool {
        let is_valid = is_sound(&address);
        if is_valid {
            self.doors.insert(rank, address);
        }
        is_valid
    }
}

/// Notices in the order of their arrival, bounded by [`NOTICES_MAX`].
#[derive(Default)]
pub(crate) struct NoticeLog {
    /// Each with the time of its arrival, in seconds since 1970.
    kept: VecDeque<(Notice, u64)>,
    /// How many arrived in all.
    total: u64,
}

impl NoticeLog {
    pub(super) fn push(&mut self, notice: Notice) {
        if self.kept.len() == NOTICES_MAX {
            self.kept.pop_front();
        }
        self.kept.push_back((notice, seconds_now()));
        self.total += 1;
    }

    pub fn to_vec(&self) -> Vec<Notice> {
        self.kept.iter().map(|(notice, _)| notice.clone()).collect()
    }

    pub fn times(&self) -> Vec<u64> {
        self.kept.iter().map(|&(_, time)| time).collect()
    }

    /// The notices after the first `seen` of the session; `seen` is moved on.
    pub fn after(&self, seen: &mut u64) -> Vec<Notice> {
        let first = self.total - self.kept.len() as u64;
        let skip = usize::try_from(seen.saturating_sub(first)).unwrap_or(usize::MAX);
        *seen = self.total;
        self.kept.iter().skip(skip).map(|(notice, _)| notice.clone()).collect()
    }
}

/// How other nodes and clients are admitted at the listener of this process.
#[derive(Default)]
pub(crate) struct Admission {
    /// Counts of accepted and refused connections.
    pub audit: Arc<Audit>,
    /// Makes the invitation of a leaf that comes by itself, at a node that has such leaves.
    pub invite: Option<Arc<Invite>>,
    /// The address of the listener.
    pub door: Option<DoorAddress>,
}

/// Makes the invitation of a leaf.
pub(crate) type Invite = dyn Fn(u32) -> std::io::Result<Vec<u8>> + Send + Sync;

/// The part of a notice that is about hosts; `None` for a notice about other nodes only.
pub(super) fn of_hosts(mut notice: Notice) -> Option<Notice> {
    if let Notice::Lost { leaves, .. }
    | Notice::Joined { leaves, .. }
    | Notice::Left { leaves, .. } = &mut notice
    {
        *leaves = own::hosts(leaves);
        if leaves.is_empty() {
            return None;
        }
    }
    Some(notice)
}

fn seconds_now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
