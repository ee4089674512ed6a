//! What the kernel keeps of files: pages of `sendfile`, `splice` and `MAP_PRIVATE`, and the size that it knows.
//!
//! The size decides where reads end that do not wait, and which position an append leaves behind: the kernel adds the
//! bytes to the size that it knew before it sent the request.
//!
//! They are not read by a request, so the kernel is told what changes, in a thread that nothing else waits for: a page
//! that is being read is not dropped before it has come.
use super::device::WatchedDevice;
use super::{Remote, View};
use crate::message::{
    FileAnswer, FileCall, FileCaller, FileNews, NewsOf, NodeOp, decoded, encoded, relies_on_size,
};
use rustc_hash::FxHashMap;
use sheaf_core::{Errno, lock};
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
            let recalled = recalled.iter().map(|handle| (*handle, None));
            let news = news.iter().filter_map(|one| match one.of {
                NewsOf::Pages(handle) => Some((handle, None)),
                NewsOf::Size(handle, size) => Some((handle, Some(size))),
                NewsOf::Names(_) => None,
            });
            for (handle, size) in recalled.chain(news) {
                if let Some(node) =
                    known.get(&handle).filter(|node| !told.contains(&(**node, size)))
                {
                    told.push((*node, size));
                }
            }
        }
        tell(device, told).await;
    }

    /// Has the kernel drop pages of a node.
    pub async fn drop_node(&self, device: &Arc<WatchedDevice>, node: u64) {
        tell(device, vec![(node, None)]).await;
    }

    /// Has the kernel drop all pages.
    pub async fn drop_all(&self, device: &Arc<WatchedDevice>) {
        let all = lock(&self.0).values().map(|node| (*node, None)).collect();
        tell(device, all).await;
    }
}

impl<R: Remote> View<R> {
    /// An operation, of which the kernel keeps what it reads as pages if the owner reports what changes of them.
    pub(super) fn of_pages(
        self: &Arc<Self>,
        device: &Arc<WatchedDevice>,
        node: u64,
        op: NodeOp,
    ) -> NodeOp {
        match op {
            NodeOp::ReadPages { handle, offset, size } if !self.remote.guards_pages() => {
                NodeOp::Read { handle, offset, size }
            }
            NodeOp::ReadPages { handle, .. } => {
                self.keeps(device, handle, node);
                op
            }
            NodeOp::Write { handle, flags, .. }
                if flags & libc::O_APPEND as u32 != 0 && self.remote.guards_pages() =>
            {
                self.keeps(device, handle, node);
                op
            }
            NodeOp::Release { handle, .. } => {
                self.pages.closed(handle);
                op
            }
            op => op,
        }
    }

    fn keeps(self: &Arc<Self>, device: &Arc<WatchedDevice>, handle: u64, node: u64) {
        self.pages.keeps(handle, node);
        if self.borrowed.must_heed() {
            self.begin_heeding(device);
        }
    }

    /// Whether a file is opened whose size the kernel relies on.
    pub(super) fn is_open_by_size(&self, op: &NodeOp) -> bool {
        match op {
            NodeOp::Open { flags, .. }
            | NodeOp::Create { flags, .. }
            | NodeOp::Temporary { flags, .. } => {
                relies_on_size(*flags) && self.remote.guards_pages()
            }
            _ => false,
        }
    }

    /// Reports the size of a file that was opened in this way to the kernel, and each growth from now on.
    pub(super) async fn knows_size(
        self: &Arc<Self>,
        device: &Arc<WatchedDevice>,
        node: u64,
        opened: &[u8],
    ) {
        let handle = match decoded::<Result<FileAnswer, Errno>>(opened) {
            Ok((Ok(FileAnswer::OpenedSized(handle, size)), _)) => {
                self.keeps(device, handle, node);
                let news = [FileNews { number: 0, of: NewsOf::Size(handle, size) }];
                return self.pages.heed(device, &[], &news).await;
            }
            Ok((Ok(FileAnswer::Opened(handle) | FileAnswer::OpenedRunnable(handle)), _)) => handle,
            // The kernel takes the size from the answer itself.
            Ok((Ok(FileAnswer::Created(made, handle)), _)) => {
                return self.keeps(device, handle, made.node);
            }
            _ => return,
        };
        self.keeps(device, handle, node);
        let (who, op) = (FileCaller::default(), NodeOp::Attributes { node, handle: Some(handle) });
        let Ok(call) = encoded(&FileCall { who, pid: 0, keeps_names: false, op }, &[]) else {
            return;
        };
        let Ok(answer) = self.remote.call(call).await else { return };
        if let Ok((Ok(FileAnswer::Node(found)), _)) = decoded::<Result<FileAnswer, Errno>>(&answer)
        {
            let news = [FileNews { number: 0, of: NewsOf::Size(handle, found.size) }];
            self.pages.heed(device, &[], &news).await;
        }
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
