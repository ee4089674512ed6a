//! Locks, of ranges and of files as a whole.
//!
//! Each is one of the kernel's, held by an open file of whoever has it: so programs of this host heed it, too,
//! and it is free when its client is gone. Nobody waits here: who wants to wait asks again.
use super::nodes::path_of;
use crate::message::{FileLock, FileLockKind};
use nix::fcntl::{FcntlArg, fcntl};
use rustc_hash::FxHashMap;
use rustix::fs::{CWD, FlockOperation, Mode, OFlags};
use sheaf_core::{Errno, lock};
use sheaf_tree::service::identity::as_process;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

/// The locks of one client.
#[derive(Default)]
pub(super) struct Locks(Mutex<FxHashMap<LockKey, Arc<OwnedFd>>>);

/// What is locked, by whom, and whether as a whole.
type LockKey = (u64, u64, bool);

impl Locks {
    /// Sets a lock, changes it or frees it.
    ///
    /// # Errors
    /// `EAGAIN` when another one is in the way.
    pub fn set(&self, node: u64, open: &OwnedFd, wanted: &FileLock) -> Result<(), Errno> {
        let key = (node, wanted.owner, wanted.is_whole);
        // One at a time: a file that is let go takes its locks along.
        let mut all = lock(&self.0);
        let file = match all.get(&key) {
            Some(file) => file.clone(),
            None if wanted.kind == FileLockKind::None => return Ok(()),
            None => Arc::new(open_again(open)?),
        };
        if wanted.is_whole {
            let operation = match wanted.kind {
                FileLockKind::Shared => FlockOperation::NonBlockingLockShared,
                FileLockKind::Exclusive => FlockOperation::NonBlockingLockExclusive,
                FileLockKind::None => FlockOperation::Unlock,
            };
            rustix::fs::flock(&*file, operation)?;
        } else {
            let range = kernel_range(wanted)?;
            fcntl(&*file, FcntlArg::F_OFD_SETLK(&range)).map_err(|errno| Errno(errno as i32))?;
        }
        if wanted.is_whole && wanted.kind == FileLockKind::None {
            all.remove(&key);
        } else {
            all.entry(key).or_insert(file);
        }
        Ok(())
    }

    /// A lock that is in the way of this one; its process is not known. One of kind none if there is no such.
    pub fn test(&self, node: u64, open: &OwnedFd, wanted: &FileLock) -> Result<FileLock, Errno> {
        let held = lock(&self.0).get(&(node, wanted.owner, false)).cloned();
        let file = match held {
            Some(file) => file,
            None => Arc::new(open_again(open)?),
        };
        let mut range = kernel_range(wanted)?;
        fcntl(&*file, FcntlArg::F_OFD_GETLK(&mut range)).map_err(|errno| Errno(errno as i32))?;
        let kind = match i32::from(range.l_type) {
            libc::F_RDLCK => FileLockKind::Shared,
            libc::F_WRLCK => FileLockKind::Exclusive,
            _ => return Ok(FileLock { kind: FileLockKind::None, ..*wanted }),
        };
        let from = u64::try_from(range.l_start).map_err(|_| Errno::OVERFLOW)?;
        let last = match u64::try_from(range.l_len) {
            Ok(0) | Err(_) => i64::MAX as u64,
            Ok(length) => from + length - 1,
        };
        Ok(FileLock { kind, range: (from, last), pid: 0, ..*wanted })
    }

    /// Frees all of an owner's locks of a file that are of this kind.
    pub fn free(&self, node: u64, owner: u64, is_whole: bool) {
        lock(&self.0).remove(&(node, owner, is_whole));
    }
}

/// A file of its own of the same inode, that may be locked in both ways if this process may open it so.
fn open_again(open: &OwnedFd) -> Result<OwnedFd, Errno> {
    let path = path_of(open);
    let flags = |access| access | OFlags::CLOEXEC | OFlags::NOCTTY;
    let again = |access| rustix::fs::openat(CWD, &*path, flags(access), Mode::empty());
    let mode = rustix::fs::fcntl_getfl(open)? & OFlags::ACCMODE;
    Ok(as_process(|| again(OFlags::RDWR)).or_else(|_| again(mode))?)
}

fn kernel_range(wanted: &FileLock) -> Result<libc::flock, Errno> {
    let (from, last) = wanted.range;
    if last < from {
        return Err(Errno::INVAL);
    }
    let start = libc::off_t::try_from(from).map_err(|_| Errno::OVERFLOW)?;
    // To the end, wherever that is.
    let length = if last >= i64::MAX as u64 { 0 } else { (last - from + 1) as libc::off_t };
    let kind = match wanted.kind {
        FileLockKind::Shared => libc::F_RDLCK,
        FileLockKind::Exclusive => libc::F_WRLCK,
        FileLockKind::None => libc::F_UNLCK,
    };
    Ok(libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: length,
        l_pid: 0,
    })
}
