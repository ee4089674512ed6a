//! What changes the content of files.
use super::client::OwnerClient;
use super::files::changes_to_wal;
use crate::message::FileAnswer;
use rustix::io::ReadWriteFlags;
use sheaf_core::Errno;
use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};

/// Where SQLite locks a database while it writes to it.
const SQLITE_PENDING_BYTE: u64 = 0x4000_0000;

impl OwnerClient {
    /// Writes to an open file, at an offset and with flags of this one write. How many bytes were written.
    pub(super) fn write(
        &self,
        (handle, offset, flags): (u64, u64, u32),
        data: &[u8],
    ) -> Result<u64, Errno> {
        let open = self.handle(handle)?;
        if self.locks.holds(open.node, SQLITE_PENDING_BYTE)
            && changes_to_wal(&open.file(), data, offset)
        {
            return Err(Errno::OPNOTSUPP);
        }
        let file = self.to_write(&open)?;
        if flags & libc::O_APPEND as u32 != 0 && !open.is_watched() {
            self.watch(handle, &file, false)?;
        }
        // Where the client's kernel believes that the data end.
        let end = offset.saturating_add(data.len() as u64);
        let written = self.changing(&*file, Some(end), || write(&file, data, offset, flags))?;
        Ok(written as u64)
    }

    /// The same, and lends the file for writing if nobody else has it open.
    pub(super) fn write_lent(
        &self,
        (handle, offset, flags): (u64, u64, u32),
        data: &[u8],
    ) -> Result<FileAnswer, Errno> {
        let written = self.write((handle, offset, flags), data)?;
        self.lent_again(handle, written)
    }

    /// The same of a write that the client believes to be done.
    pub(super) fn write_behind(
        &self,
        (handle, offset, flags): (u64, u64, u32),
        data: &[u8],
    ) -> Result<FileAnswer, Errno> {
        let lent = self.loans.write_behind(handle)?;
        let written = self.write((handle, offset, flags), data)?;
        drop(lent);
        self.lent_again(handle, written)
    }

    fn lent_again(&self, handle: u64, written: u64) -> Result<FileAnswer, Errno> {
        let file = self.handle(handle)?.file();
        Ok(match self.loans.lend_to_write(handle, &file) {
            true => FileAnswer::WrittenLent(written, self.loans.lender),
            false => FileAnswer::Count(written),
        })
    }

    /// Changes the content of a file, of which no client's kernel keeps anything older after that. If the file then ends at
    /// `end`, this client's kernel knows its size.
    pub(super) fn changing<T>(
        &self,
        file: impl AsFd,
        end: Option<u64>,
        change: impl FnOnce() -> rustix::io::Result<T>,
    ) -> rustix::io::Result<T> {
        let watchers = &self.nodes.served.watchers;
        if watchers.is_empty() {
            return change();
        }
        let before = rustix::fs::fstat(&file)?;
        let id = (before.st_dev, before.st_ino);
        watchers.tell(id, None, None);
        let changed = change();
        // What was read meanwhile may be of before.
        let size = rustix::fs::fstat(&file)?.st_size;
        let grown = (size > before.st_size).then_some(size.cast_unsigned());
        watchers.tell(id, grown, (grown == end).then_some(&self.loans.told));
        changed
    }
}

/// Writes, with the flags of this one write: those of the open file change while it is open.
fn write(file: &OwnedFd, data: &[u8], offset: u64, flags: u32) -> rustix::io::Result<usize> {
    // `OFlags::DSYNC` has all bits of `O_SYNC`.
    let has = |flag: i32| flags & flag as u32 == flag as u32;
    let mut how = ReadWriteFlags::empty();
    how.set(ReadWriteFlags::APPEND, has(libc::O_APPEND));
    how.set(ReadWriteFlags::DSYNC, has(libc::O_DSYNC));
    how.set(ReadWriteFlags::SYNC, has(libc::O_SYNC));
    match how.is_empty() {
        true => rustix::io::pwrite(file, data, offset),
        false => rustix::io::pwritev2(file, &[IoSlice::new(data)], offset, how),
    }
}
