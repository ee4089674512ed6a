//! File systems that this process has itself: what the kernel asks is answered here, without nodes of an owner.
//!
//! What is opened is made at once, as a whole, and stays as it is until it is closed; what then lacks a part ends
//! with an error where a whole one has its end.
use crate::fuse::Remote;
use crate::message::{
    FileAnswer, FileCall, FileSystemUsage, NodeAttributes, NodeEntry, NodeOp, ROOT, decoded,
    encoded,
};
use bytes::Bytes;
use rustc_hash::FxHashMap;
use sheaf_core::files::{FileKind, Timestamp};
use sheaf_core::{Errno, lock};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes of the longest name.
pub(crate) const NAME_MAX: usize = 255;
const BLOCK_BYTES: u32 = 4096;

/// Whoever answers.
pub(crate) trait OwnFiles: Send + Sync + 'static {
    /// Does what is asked; `data` is to be written, and what is read is put into `out`.
    fn answer(
        &self,
        call: FileCall,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> impl Future<Output = Result<FileAnswer, Errno>> + Send;
}

/// What answers by itself, in the place of an owner elsewhere.
pub(crate) struct OwnMount<F>(pub F);

impl<F: OwnFiles> Remote for OwnMount<F> {
    async fn call(&self, call: Vec<u8>) -> Result<Bytes, Errno> {
        let (call, data) = decoded::<FileCall>(&call)?;
        let mut out = Vec::new();
        let answer = match is_for_others(&call) {
            true => self.0.answer(call, data, &mut out).await,
            false => Err(Errno::ACCES),
        };
        if answer.is_err() {
            out.clear();
        }
        encoded(&answer, &out).map(Bytes::from)
    }
}

/// Whether the user who has mounted it asks, or what is asked may be answered to all: what the topmost directory is,
/// and what an open file is asked for.
fn is_for_others(call: &FileCall) -> bool {
    let own = rustix::process::geteuid().as_raw();
    match &call.op {
        _ if call.who.uid == own || call.who.uid == 0 || call.pid == 0 => true,
        NodeOp::Attributes { node, handle } => *node == ROOT || handle.is_some(),
        NodeOp::SetAttributes { handle, .. } => handle.is_some(),
        NodeOp::Lookup(_)
        | NodeOp::ReadLink { .. }
        | NodeOp::Open { .. }
        | NodeOp::Create { .. }
        | NodeOp::Temporary { .. }
        | NodeOp::Make { .. }
        | NodeOp::Symlink { .. }
        | NodeOp::Link { .. }
        | NodeOp::Rename { .. }
        | NodeOp::Remove { .. }
        | NodeOp::Access { .. } => false,
        _ => true,
    }
}

/// Bytes as they were when they were opened.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pub bytes: Vec<u8>,
    /// What stands where they would end, if they are not all.
    pub end: Option<Errno>,
}

impl Snapshot {
    pub fn read(&self, offset: u64, size: u32, out: &mut Vec<u8>) -> Result<FileAnswer, Errno> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(self.bytes.len());
        let to = from.saturating_add(size as usize).min(self.bytes.len());
        match self.end {
            Some(errno) if from == to && size > 0 => Err(errno),
            _ => {
                out.extend_from_slice(&self.bytes[from..to]);
                Ok(FileAnswer::Bytes)
            }
        }
    }
}

/// The names of a directory as they were when it was opened.
#[derive(Debug, Default)]
pub(crate) struct NamesSnapshot {
    /// Name, number and kind, `.` and `..` not among them.
    pub entries: Vec<(Vec<u8>, u64, FileKind)>,
    /// The directory and the one above it.
    pub own: (u64, u64),
    /// As of a [`Snapshot`].
    pub end: Option<Errno>,
}

impl NamesSnapshot {
    /// Those behind an offset, of about so many bytes.
    pub fn read(&self, offset: u64, size: u32) -> Result<FileAnswer, Errno> {
        let (mut found, mut left) = (Vec::new(), size as usize);
        for at in usize::try_from(offset).unwrap_or(usize::MAX).. {
            let (name, ino, kind) = match at {
                0 => (&b"."[..], self.own.0, FileKind::Directory),
                1 => (&b".."[..], self.own.1, FileKind::Directory),
                _ => match self.entries.get(at - 2) {
                    Some((name, ino, kind)) => (&name[..], *ino, *kind),
                    None => break,
                },
            };
            let Some(rest) = left.checked_sub((24 + name.len()).next_multiple_of(8)) else { break };
            left = rest;
            let (name, next) = (name.to_vec(), at as u64 + 1);
            found.push(NodeEntry { name, ino, kind, next, attributes: None });
        }
        match self.end {
            Some(errno) if found.is_empty() => Err(errno),
            _ => Ok(FileAnswer::Entries(found)),
        }
    }
}

/// What is open, by number.
pub(crate) struct OpenTable<T> {
    last: AtomicU64,
    open: Mutex<FxHashMap<u64, Arc<T>>>,
}

impl<T> Default for OpenTable<T> {
    fn default() -> Self {
        Self { last: AtomicU64::new(0), open: Mutex::default() }
    }
}

impl<T> OpenTable<T> {
    pub fn keep(&self, what: T) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        lock(&self.open).insert(number, Arc::new(what));
        number
    }

    pub fn get(&self, number: u64) -> Result<Arc<T>, Errno> {
        lock(&self.open).get(&number).cloned().ok_or(Errno::BADF)
    }

    pub fn remove(&self, number: u64) -> Result<Arc<T>, Errno> {
        lock(&self.open).remove(&number).ok_or(Errno::BADF)
    }
}

/// Attributes of something that is on no disk.
pub(crate) fn attributes(node: u64, mode: u32, size: u64, changed: Timestamp) -> NodeAttributes {
    NodeAttributes {
        node,
        ino: node,
        mode,
        nlink: 1,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        rdev: 0,
        size,
        blocks: size.div_ceil(512),
        block_size: BLOCK_BYTES,
        atime: changed,
        mtime: changed,
        ctime: changed,
        is_mounted: false,
        has_list: false,
        has_xattrs: true,
        is_lent: false,
    }
}

/// How full what is on no disk is.
pub(crate) fn usage() -> FileSystemUsage {
    FileSystemUsage {
        block_size: (BLOCK_BYTES, BLOCK_BYTES),
        name_max: NAME_MAX as u32,
        ..FileSystemUsage::default()
    }
}

/// This machine's time.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: since.as_secs().cast_signed(), nanoseconds: since.subsec_nanos() }
}
