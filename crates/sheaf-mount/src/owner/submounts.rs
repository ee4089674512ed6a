//! The file systems below an export that a client mounts in its view, each at its place.
//!
//! The client that answers the kernel finds that a directory is one, and says so here. The process that has mounted the
//! view takes it from here and mounts it, for it may be another process, in another mount namespace.
use super::links::path;
use super::nodes::KnownNodes;
use crate::message::SubMountEnd;
use crate::view::unescaped;
use rustc_hash::FxHashMap;
use sheaf_core::{Errno, lock};
use sheaf_tree::service::identity::as_process;
use std::os::unix::ffi::OsStrExt;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// File systems of one client at most. More are shown as directories of the file system above them.
pub(crate) const SUB_MOUNTS_MAX: usize = 1024;

/// File systems below one at most that are told at once.
const BELOW_MAX: usize = 64;

/// The answer to [`NodeOp::MountsBelow`](crate::message::NodeOp::MountsBelow).
pub(super) fn mounts_below(nodes: &KnownNodes, node: u64) -> Result<Vec<u8>, Errno> {
    let directory = path(&*nodes.fd(node)?)?;
    let places = places_below(&directory).map_err(|error| Errno::from_io(&error))?;
    Ok(places.into_iter().flat_map(|place| [vec![0], place].concat()).collect())
}

/// The places of file systems that are mounted below this directory and not below another one there. Those that are
/// mounted when they are looked at, and those of other machines, which may hang, are left out.
fn places_below(directory: &[u8]) -> std::io::Result<Vec<Vec<u8>>> {
    let text = as_process(|| std::fs::read("/proc/self/mountinfo"))?;
    let mut found: Vec<Vec<u8>> = text
        .split(|byte| *byte == b'\n')
        .filter_map(|line| {
            let at = unescaped(line.split(|byte| *byte == b' ').nth(4)?);
            let below = at.as_bytes().strip_prefix(directory)?;
            let below = if directory == b"/" { below } else { below.strip_prefix(b"/")? };
            let mut words = line.split(|byte| *byte == b' ').skip_while(|word| *word != b"-");
            let kind = words.nth(1)?;
            let is_left_out = [&b"autofs"[..], b"fuse", b"nfs", b"cifs"];
            let is_left_out = is_left_out.iter().any(|left_out| kind.starts_with(left_out));
            (!below.is_empty() && !is_left_out).then(|| below.to_vec())
        })
        .collect();
    found.sort();
    found.dedup_by(|next, above| {
        next == above || next.strip_prefix(&above[..]).is_some_and(|rest| rest.starts_with(b"/"))
    });
    found.truncate(BELOW_MAX);
    Ok(found)
}

/// See the module.
#[derive(Default)]
pub(super) struct SubMounts {
    nodes: Mutex<FxHashMap<u64, SubMountState>>,
    wanted: Notify,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SubMountState {
    Wanted,
    /// Whoever mounts knows of it.
    Taken,
    Ended(SubMountEnd),
}

impl SubMounts {
    /// A node is to be mounted; the state as [`crate::message::NodeOp::MountWanted`] has it.
    pub fn want(&self, node: u64) -> u64 {
        let mut nodes = lock(&self.nodes);
        if !nodes.contains_key(&node) && nodes.len() >= SUB_MOUNTS_MAX {
            return 2;
        }
        let state = *nodes.entry(node).or_insert(SubMountState::Wanted);
        drop(nodes);
        match state {
            SubMountState::Wanted => {
                self.wanted.notify_waiters();
                0
            }
            SubMountState::Taken => 0,
            SubMountState::Ended(SubMountEnd::Mounted) => 1,
            SubMountState::Ended(_) => 2,
        }
    }

    /// Notes what has become of some, and takes those that are wanted, which are waited for so long at most. Without
    /// such a time none is taken.
    pub async fn take(&self, done: &[(u64, SubMountEnd)], wait: Duration) -> Vec<u64> {
        let until = Instant::now() + wait;
        {
            let mut nodes = lock(&self.nodes);
            for (node, end) in done {
                match end {
                    SubMountEnd::Gone => drop(nodes.remove(node)),
                    // One that is gone by then stays gone.
                    end => {
                        if let Some(state) = nodes.get_mut(node) {
                            *state = SubMountState::Ended(*end);
                        }
                    }
                }
            }
        }
        if wait.is_zero() {
            return Vec::new();
        }
        loop {
            let told = self.wanted.notified();
            tokio::pin!(told);
            told.as_mut().enable();
            let mut taken = Vec::new();
            for (node, state) in &mut *lock(&self.nodes) {
                if *state == SubMountState::Wanted {
                    *state = SubMountState::Taken;
                    taken.push(*node);
                }
            }
            let is_over = !taken.is_empty();
            if is_over || tokio::time::timeout_at(until.into(), told).await.is_err() {
                return taken;
            }
        }
    }
}
