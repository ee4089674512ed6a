//! Reading one directory.

use crate::Result;
use rustix::fd::AsFd;
use rustix::fs::{Dir, RawDir};
use sheaf_core::Errno;
use sheaf_core::files::DirEntry;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// The most entries of one directory that are read; sorting needs all of them in memory.
pub const DIR_ENTRIES_MAX: usize = 1 << 22;

/// Bytes of directory entries fetched from the kernel at once.
const READ_BUFFER_BYTES: usize = 32 << 10;

/// The entries of a directory except `.` and `..`, in the order of the file system, as they are read.
/// An entry that is created or removed meanwhile may be included or not. After an error, there are no more.
pub struct DirEntries(pub(crate) Dir);

impl Iterator for DirEntries {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let entry = match self.0.next()? {
                Ok(entry) => entry,
                Err(errno) => return Some(Err(errno.into())),
            };
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                let name = OsStr::from_bytes(name).to_os_string();
                return Some(Ok(DirEntry {
                    name,
                    kind: entry.file_type().into(),
                    ino: entry.ino(),
                }));
            }
        }
    }
}

/// All entries but `.` and `..`, sorted bytewise by name.
pub(crate) fn read_sorted(dir: impl AsFd) -> Result<Vec<DirEntry>> {
    let mut entries = read(dir)?;
    entries.sort_unstable_by(|a, b| a.name.as_bytes().cmp(b.name.as_bytes()));
    Ok(entries)
}

/// All entries but `.` and `..`, in the order of the file system. `dir` must be fresh: reading goes
/// on where the descriptor stands.
pub(crate) fn read(dir: impl AsFd) -> Result<Vec<DirEntry>> {
    let mut buffer = Vec::with_capacity(READ_BUFFER_BYTES);
    let mut reader = RawDir::new(dir.as_fd(), buffer.spare_capacity_mut());
    let mut entries = Vec::new();
    while let Some(entry) = reader.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        if entries.len() == DIR_ENTRIES_MAX {
            return Err(Errno::OVERFLOW);
        }
        let name = OsStr::from_bytes(name).to_os_string();
        entries.push(DirEntry { name, kind: entry.file_type().into(), ino: entry.ino() });
    }
    Ok(entries)
}
