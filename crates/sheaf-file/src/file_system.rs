//! What `statfs(2)` says of a file system.
use crate::Result;
use crate::export::Export;
use rustix::fs::{OFlags, fstatfs, fstatvfs};
use std::path::Path;

/// A file system, as the kernel describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// Its number in `linux/magic.h`.
    pub magic: u64,
    /// Its identifier, which need not be unique.
    pub id: u64,
    /// The longest name in bytes.
    pub name_bytes_max: u64,
    /// The size of a block for transfers in bytes.
    pub block_size: u64,
    /// The unit of the numbers of blocks in bytes.
    pub fragment_size: u64,
    /// All blocks.
    pub blocks: u64,
    /// Those that are free.
    pub blocks_free: u64,
    /// Those that an unprivileged user can have.
    pub blocks_available: u64,
    /// All inodes.
    pub inodes: u64,
    /// Those that are free.
    pub inodes_free: u64,
}

impl Export {
    /// Describes the file system of a file. A symbolic link is followed.
    ///
    /// # Errors
    /// Those of `openat2(2)` and `fstatfs(2)`.
    pub fn file_system(&self, path: &Path) -> Result<FileSystem> {
        let file = self.resolve(path, OFlags::empty())?;
        let (found, portable) = (fstatfs(&file)?, fstatvfs(&file)?);
        Ok(FileSystem {
            magic: u64::from(found.f_type as u32),
            // As GNU stat shows it: the first word is the high one.
            id: portable.f_fsid.rotate_left(32),
            name_bytes_max: portable.f_namemax,
            block_size: portable.f_bsize,
            fragment_size: portable.f_frsize,
            blocks: portable.f_blocks,
            blocks_free: portable.f_bfree,
            blocks_available: portable.f_bavail,
            inodes: portable.f_files,
            inodes_free: portable.f_ffree,
        })
    }
}
