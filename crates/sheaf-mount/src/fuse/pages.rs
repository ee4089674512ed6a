//! What the kernel keeps of files: pages of `sendfile`, `splice` and `MAP_PRIVATE`, and the size that it knows.
//!
//! They are not read by a request, so the kernel is told what changes, in a thread that nothing else waits for: a page
//! that is being read is not dropped before it has come.
use super::device::WatchedDevice;
use crate::message::FileNews;
use rustc_hash::FxHashMap;
use sheaf_core::lock;
use std::sync::{Arc, Mutex};

/// Open files of which the kernel may keep something, and their nodes.
#[derive(Default)]
pub(super) struct KernelPages(Mutex<FxHashMap<u64, u64>>);

impl KernelPages {
    /// The kernel is about to keep something of an open file.
    pub fn keeps(&self, handle: u64, node: u64) {
        lock(&self.0).insert(handle, node);
    }

    pub fn closed(&self, handle: u64) {
        lock(&self.0).remove(&handle);
    }

    pub fn has(&self, handle: u64) -> bool {
        lock(&self.0).contains_key(&handle)
    }

    pub fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }

    /// Has the kernel drop pages of these open files, and know what is new.
    pub async fn heed(&self, device: &Arc<WatchedDevice>, recalled: &[u64], news: &[FileNews]) {
        let mut told: Vec<(u64, Option<u64>)> = Vec::new();
        {
            let known = lock(&self.0);
            let recalled = recalled.iter().map(|handle| (handle, None));
            for (handle, size) in recalled.chain(news.iter().map(|one| (&one.handle, one.size))) {
                if let Some(node) = known.get(handle).filter(|node| !told.contains(&(**node, size)))
                {
                    told.push((*node, size));
                }
            }
        }
        tell(device, told).await;
    }

    /// Has the kernel drop all pages.
    pub async fn drop_all(&self, device: &Arc<WatchedDevice>) {
        let all = lock(&self.0).values().map(|node| (*node, None)).collect();
        tell(device, all).await;
    }
}

async fn tell(device: &Arc<WatchedDevice>, told: Vec<(u64, Option<u64>)>) {
    if told.is_empty() {
        return;
    }
    let device = device.clone();
    let tells = move || {
        for (node, size) in told {
            let done = match size {
                None => device.drop_pages(node),
                Some(size) => device.has_grown(node, size),
            };
            if let Err(error) = done {
                tracing::debug!(%error, node, "the kernel does not know the node any more");
            }
        }
    };
    if let Err(error) = tokio::task::spawn_blocking(tells).await {
        tracing::warn!(%error, "the kernel was not told of changes");
    }
}
