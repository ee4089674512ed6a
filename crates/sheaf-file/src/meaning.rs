//! What a symbolic link means to the programs of its machine, which no export confines.

use crate::Result;
use crate::attributes::proc_path;
use crate::export::Export;
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, CWD, OFlags, StatxFlags};
use sheaf_core::files::Metadata;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

impl Export {
    /// The path by which programs of this machine know a directory.
    ///
    /// # Errors
    /// Those of `open(2)` and `readlink(2)`.
    pub fn machine_path(&self, dir: &Path) -> Result<PathBuf> {
        let dir = self.resolve(dir, OFlags::DIRECTORY)?;
        let path = rustix::fs::readlinkat(CWD, proc_path(dir.as_fd()), Vec::new())?;
        Ok(PathBuf::from(std::ffi::OsString::from_vec(path.into_bytes())))
    }

    /// Device and inode of what a link with this text leads to, if it is in this directory.
    ///
    /// # Errors
    /// Those of `open(2)` and `stat(2)`.
    pub fn meant_in(&self, dir: &Path, target: &Path) -> Result<(u64, u64)> {
        let dir = self.resolve(dir, OFlags::DIRECTORY)?;
        meant_at(&proc_path(dir.as_fd()), target)
    }
}

/// The same in a directory of this machine.
///
/// # Errors
/// Those of `stat(2)`.
pub fn meant_at(dir: &Path, target: &Path) -> Result<(u64, u64)> {
    let wanted = StatxFlags::BASIC_STATS;
    let found = rustix::fs::statx(CWD, dir.join(target), AtFlags::NO_AUTOMOUNT, wanted)?;
    Ok(Metadata::from(found).id())
}
