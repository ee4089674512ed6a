//! Files that are open here for writing, as far as somebody may run them.
//!
//! Such a file is closed for writing by the request that closes a descriptor, which the program waits for. Of other files
//! only locks are freed by that request, so most need none. The kernel releases an open file later, without anybody
//! who waits: whatever allows a file to be run waits for that instead.
use rustc_hash::FxHashMap;
use sheaf_core::lock;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// Permission bits that allow somebody to run a file.
pub(super) const EXECUTE_BITS: u32 = 0o111;

/// See the module.
#[derive(Default)]
pub(super) struct Writers {
    state: Mutex<WriterState>,
    released: Notify,
}

#[derive(Default)]
struct WriterState {
    /// The node of each open file, and whether somebody may run it.
    open: FxHashMap<u64, (u64, bool)>,
    /// How many open files of a node are being released.
    releasing: FxHashMap<u64, usize>,
}

/// An open file that is being released until this is dropped.
pub(super) struct Releasing(Arc<Writers>, u64);

impl Writers {
    pub fn opened(&self, handle: u64, node: u64, runs: bool) {
        lock(&self.state).open.insert(handle, (node, runs));
    }

    /// From now on somebody may run this file.
    pub fn runs(&self, node: u64) {
        let mut state = lock(&self.state);
        state.open.values_mut().filter(|open| open.0 == node).for_each(|open| open.1 = true);
    }

    /// Whether a file has to be closed for writing when one of its descriptors is.
    pub fn is_to_flush(&self, handle: u64) -> bool {
        lock(&self.state).open.get(&handle).is_some_and(|open| open.1)
    }

    /// The kernel releases an open file.
    pub fn releasing(self: &Arc<Self>, handle: u64) -> Option<Releasing> {
        let mut state = lock(&self.state);
        let (node, _) = state.open.remove(&handle)?;
        *state.releasing.entry(node).or_default() += 1;
        Some(Releasing(self.clone(), node))
    }

    /// Waits until no open file of this node is being released.
    pub async fn released(&self, node: u64) {
        loop {
            let told = self.released.notified();
            tokio::pin!(told);
            told.as_mut().enable();
            if !lock(&self.state).releasing.contains_key(&node) {
                return;
            }
            told.await;
        }
    }
}

impl Drop for Releasing {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        if let Some(count) = state.releasing.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                state.releasing.remove(&self.1);
            }
        }
        drop(state);
        self.0.released.notify_waiters();
    }
}
