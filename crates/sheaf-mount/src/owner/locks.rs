//! Locks, of ranges and of files as a whole.
//!
//! Each is one of the kernel's, held by an open file of whoever has it: so programs of this host heed it, too,
//! and it is free when its client is gone. Nobody waits here: a client that wants to wait asks again.
//!
//! The kernel's lock owner is either a process or, for locks of open file descriptions, the description itself. A
//! request does not distinguish the two, and closing a description does not unlock its ranges by a request. A lock that
//! is still there when its description is released is the description's own, because each process that closes a
//! descriptor of the file has flushed its locks before.
use super::lock_table::{LockOwner, LockTable, RangeLock};
use super::nodes::{path_of, status};
use crate::message::{FileLock, FileLockKind};
use nix::fcntl::{FcntlArg, fcntl};
use rustc_hash::FxHashMap;
use rustix::fs::{CWD, FlockOperation, Mode, OFlags};
use sheaf_core::{Errno, lock};
use sheaf_tree::service::identity::as_process;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};

/// Permission bits that allow somebody to run a file.
const EXECUTE_BITS: u32 = 0o111;

/// The locks of one client.
pub(super) struct Locks {
    /// The client's number in the table.
    client: u64,
    table: Arc<LockTable>,
    held: Mutex<FxHashMap<LockKey, HeldLock>>,
}

/// What is locked, by whom, and whether as a whole.
type LockKey = (u64, u64, bool);

/// The open files that hold one owner's locks of a file.
struct HeldLock {
    /// Device and inode.
    file: (u64, u64),
    /// The open file of the client that set a lock last.
    handle: u64,
    /// One that may not write, so that the file can be run meanwhile.
    reads: Option<OwnedFd>,
    writes: Option<OwnedFd>,
}

impl Locks {
    pub fn new(table: Arc<LockTable>) -> Self {
        Self { client: table.client(), table, held: Mutex::default() }
    }

    /// Sets a lock or changes it.
    ///
    /// # Errors
    /// `EAGAIN` when another one is in the way, and `EDEADLK` if its owner waits for this one and this one would
    /// wait for it.
    pub fn set(
        &self,
        (node, handle): (u64, u64),
        open: &OwnedFd,
        wanted: &FileLock,
        waits: bool,
    ) -> Result<(), Errno> {
        let key = (node, wanted.owner, wanted.is_whole);
        // One at a time: a file that is let go takes its locks along.
        let mut all = lock(&self.held);
        let mut held = match all.remove(&key) {
            Some(held) => held,
            None => {
                let file = status(open.as_fd())?.id();
                HeldLock { file, handle, reads: None, writes: None }
            }
        };
        held.handle = handle;
        let set = match wanted.is_whole {
            true => held.set_whole(open, wanted),
            false => self.set_range(&mut held, open, wanted, waits),
        };
        if held.reads.is_some() || held.writes.is_some() {
            all.insert(key, held);
        }
        set
    }

    /// Frees locks of an owner, whether or not the file is still open.
    ///
    /// # Errors
    /// Those of `fcntl(2)`.
    pub fn unlock(&self, node: u64, freed: &FileLock) -> Result<(), Errno> {
        if freed.is_whole {
            self.free(node, freed.owner, true);
            return Ok(());
        }
        let mut all = lock(&self.held);
        let Some(held) = all.get_mut(&(node, freed.owner, false)) else { return Ok(()) };
        let range = kernel_range(freed)?;
        let files = [&held.writes, &held.reads];
        files.into_iter().flatten().try_for_each(|file| set_kernel(file, &range))?;
        self.table.set(held.file, self.range(freed));
        Ok(())
    }

    fn set_range(
        &self,
        held: &mut HeldLock,
        open: &OwnedFd,
        wanted: &FileLock,
        waits: bool,
    ) -> Result<(), Errno> {
        let set = held.set_range(open, wanted);
        let own = self.range(wanted);
        match set {
            Ok(()) => self.table.set(held.file, own),
            Err(Errno::AGAIN | Errno::ACCES) if waits && self.table.waits(held.file, own) => {
                return Err(Errno::DEADLK);
            }
            Err(_) => {}
        }
        set
    }

    fn owner(&self, owner: u64) -> LockOwner {
        LockOwner { client: self.client, owner }
    }

    fn range(&self, wanted: &FileLock) -> RangeLock {
        let FileLock { owner, range, kind, pid, .. } = *wanted;
        RangeLock { owner: self.owner(owner), range, kind, pid }
    }

    /// Whether the client has locked this byte of a file.
    pub fn holds(&self, node: u64, at: u64) -> bool {
        let all = lock(&self.held);
        let mut files = all.iter().filter(|((one, _, is_whole), _)| *one == node && !is_whole);
        files.any(|(_, held)| self.table.holds(held.file, self.client, at))
    }

    /// Whoever has waited for a lock does not any more.
    pub fn end_wait(&self, owner: u64) {
        self.table.end_wait(self.owner(owner));
    }

    /// A lock that is in the way of this one, or one of kind none. Its process is known if it is the client's own:
    /// the number of another host's would be that of another process there.
    pub fn test(&self, node: u64, open: &OwnedFd, wanted: &FileLock) -> Result<FileLock, Errno> {
        let all = lock(&self.held);
        let held = all.get(&(node, wanted.owner, false));
        let again;
        let file = match held.and_then(|held| held.writes.as_ref().or(held.reads.as_ref())) {
            Some(file) => file,
            None => {
                again = open_again(open, false)?.1;
                &again
            }
        };
        let mut range = kernel_range(wanted)?;
        fcntl(file, FcntlArg::F_OFD_GETLK(&mut range)).map_err(|errno| Errno(errno as i32))?;
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
        let found = FileLock { kind, range: (from, last), pid: 0, ..*wanted };
        let pid = self.table.process(status(open.as_fd())?.id(), self.range(&found));
        Ok(FileLock { pid, ..found })
    }

    /// Frees all of an owner's locks of a file that are of this kind.
    pub fn free(&self, node: u64, owner: u64, is_whole: bool) {
        let freed = lock(&self.held).remove(&(node, owner, is_whole));
        if let Some(held) = freed.filter(|_| !is_whole) {
            self.table.free(held.file, self.owner(owner));
        }
    }

    /// An open file of the client is not there any more, nor are locks of ranges that are its own.
    pub fn released(&self, handle: u64) {
        let is_its =
            |(_, _, is_whole): &LockKey, held: &mut HeldLock| !is_whole && held.handle == handle;
        for ((_, owner, _), held) in lock(&self.held).extract_if(is_its) {
            self.table.free(held.file, self.owner(owner));
        }
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        self.table.client_left(self.client);
    }
}

impl HeldLock {
    fn set_whole(&mut self, open: &OwnedFd, wanted: &FileLock) -> Result<(), Errno> {
        let operation = match wanted.kind {
            FileLockKind::Shared => FlockOperation::NonBlockingLockShared,
            FileLockKind::Exclusive => FlockOperation::NonBlockingLockExclusive,
            FileLockKind::None => return Err(Errno::INVAL),
        };
        let file = match self.reads.take() {
            Some(file) => file,
            None => open_as(open, access(open)?)?,
        };
        let set = rustix::fs::flock(&file, operation);
        self.reads = Some(file);
        Ok(set?)
    }

    fn set_range(&mut self, open: &OwnedFd, wanted: &FileLock) -> Result<(), Errno> {
        let range = kernel_range(wanted)?;
        let set = set_kernel;
        let free = libc::flock { l_type: libc::F_UNLCK as libc::c_short, ..range };
        let is_exclusive = wanted.kind == FileLockKind::Exclusive;
        if self.writes.is_none() && (is_exclusive || self.reads.is_none()) {
            match open_again(open, is_exclusive)? {
                (true, file) => self.writes = Some(file),
                (false, file) => self.reads = Some(file),
            }
        }
        let Some(file) = &self.writes else {
            return self.reads.as_ref().map_or(Err(Errno::BADF), |file| set(file, &range));
        };
        match (set(file, &range), &self.reads) {
            (set, None) => set,
            (Ok(()), Some(reads)) => set(reads, &free),
            // The owner's own shared lock may be in the way.
            (Err(_), Some(reads)) => {
                set(reads, &free)?;
                let again = set(file, &range);
                if again.is_err() {
                    let shared = libc::flock { l_type: libc::F_RDLCK as libc::c_short, ..range };
                    set(reads, &shared)?;
                }
                again
            }
        }
    }
}

fn set_kernel(file: &OwnedFd, range: &libc::flock) -> Result<(), Errno> {
    let set = fcntl(file, FcntlArg::F_OFD_SETLK(range));
    set.map(drop).map_err(|errno| Errno(errno as i32))
}

/// The access mode of an open file.
pub(super) fn access(open: &OwnedFd) -> Result<OFlags, Errno> {
    Ok(rustix::fs::fcntl_getfl(open)? & OFlags::ACCMODE)
}

/// An open file of its own of the same inode, for locks of ranges, and whether it can have both kinds.
///
/// That is so if this process may open it so, except for files that can be run: an open file that may be written to
/// keeps a program from being run.
fn open_again(open: &OwnedFd, is_exclusive: bool) -> Result<(bool, OwnedFd), Errno> {
    let access = access(open)?;
    let runs = status(open.as_fd())?.raw_mode() & EXECUTE_BITS != 0;
    if is_exclusive || access != OFlags::RDONLY || !runs {
        let both = as_process(|| open_as(open, OFlags::RDWR));
        if let Ok(file) = both {
            return Ok((true, file));
        }
    }
    Ok((access != OFlags::RDONLY, open_as(open, access)?))
}

fn open_as(open: &OwnedFd, access: OFlags) -> Result<OwnedFd, Errno> {
    let flags = access | OFlags::CLOEXEC | OFlags::NOCTTY;
    // The user was allowed this access when the file was opened.
    let again = || rustix::fs::openat(CWD, path_of(open), flags, Mode::empty());
    Ok(again().or_else(|_| as_process(again))?)
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
