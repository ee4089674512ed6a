//! Requests of locks, and claims of locks that a client held at the owner's server before this one.
use super::client::OwnerClient;
use super::links::place;
use super::locks::access;
use super::nodes::{open_name, path_of, status};
use crate::message::{FileAnswer, FileLock, FileLockKind, LockedFile, NodeOp};
use rustix::fs::{CWD, Mode, OFlags};
use sheaf_core::{Errno, lock};
use sheaf_tree::service::identity::as_process;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

impl OwnerClient {
    /// Does what is asked of locks.
    pub(super) fn answer_of_locks(&self, op: NodeOp) -> Result<FileAnswer, Errno> {
        match op {
            NodeOp::SetLock { node, lock: freed, .. } if freed.kind == FileLockKind::None => {
                self.locks.unlock(node, &freed)?;
                Ok(FileAnswer::Done)
            }
            NodeOp::SetLock { node, handle, lock: wanted, waits, wants_file } => {
                let file = self.handle(handle)?.file();
                if self.is_in_grace() {
                    return Ok(FileAnswer::InGrace);
                }
                self.locks.set((node, handle), &file, &wanted, waits)?;
                let known = wants_file.then(|| self.locked_file(node, &file)).transpose()?;
                Ok(FileAnswer::Locked(self.loans.lender, known))
            }
            NodeOp::TestLock { handle, lock: wanted } => {
                let handle = self.handle(handle)?;
                if self.is_in_grace() {
                    return Ok(FileAnswer::InGrace);
                }
                self.locks.test(handle.node, &handle.file(), &wanted).map(FileAnswer::Lock)
            }
            NodeOp::KeepLocks => Ok(FileAnswer::Instance(self.loans.lender)),
            NodeOp::ReclaimLock { node, handle, file, lock: claimed } => {
                self.reclaim(node, handle, &file, &claimed)
            }
            NodeOp::LoseFiles => {
                let lost = std::mem::take(&mut *lock(&self.handles));
                for handle in lost.into_keys() {
                    self.loans.closed(handle);
                    self.nodes.served.watchers.closed(&self.loans.told, handle);
                }
                Ok(FileAnswer::Done)
            }
            _ => Err(Errno::NOSYS),
        }
    }

    fn is_in_grace(&self) -> bool {
        lock(&self.grace).is_on(Instant::now())
    }

    /// By what the file is found again. A file without a name is not: its path is empty.
    fn locked_file(&self, node: u64, file: &OwnedFd) -> Result<LockedFile, Errno> {
        let found = status(file.as_fd())?;
        let path = place(&self.nodes, node).unwrap_or_default();
        Ok(LockedFile { path, id: (found.id(), found.btime), access: access(file)?.bits() })
    }

    /// Sets a lock that the client held before, as the user of the request.
    ///
    /// # Errors
    /// `ESTALE` after the grace period, and if the file is no longer found under its name. Then, and with every other
    /// error, the client has lost the lock.
    fn reclaim(
        &self,
        node: u64,
        handle: u64,
        file: &LockedFile,
        claimed: &FileLock,
    ) -> Result<FileAnswer, Errno> {
        if !self.is_in_grace() || claimed.kind == FileLockKind::None {
            return Err(Errno::STALE);
        }
        let named = self.named(&file.path)?;
        let found = status(named.as_fd())?;
        if (found.id(), found.btime) != file.id {
            return Err(Errno::STALE);
        }
        let access = OFlags::from_bits_retain(file.access) & OFlags::ACCMODE;
        let flags = access | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let open = rustix::fs::openat(CWD, path_of(&*named), flags, Mode::empty())?;
        self.locks.set((node, handle), &open, claimed, false)?;
        Ok(FileAnswer::Done)
    }

    /// What is at a path below the export. No link and no view is followed.
    fn named(&self, path: &[u8]) -> Result<Arc<OwnedFd>, Errno> {
        let mut at = self.nodes.served.root.clone();
        let mut device = status(at.as_fd())?.dev;
        let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).peekable();
        if names.peek().is_none() {
            return Err(Errno::STALE);
        }
        for name in names {
            let next = open_name(at.as_fd(), name)?;
            let found = status(next.as_fd())?;
            if found.dev != device && as_process(|| sheaf_file::is_view(found.dev))? {
                return Err(Errno::LOOP);
            }
            (at, device) = (Arc::new(next), found.dev);
        }
        Ok(at)
    }
}
