//! Files as whoever reads them sees them, wherever they are: [`Files`] and [`OpenFile`].
//!
//! A namespace is a directory of this machine, what one host serves beneath its export, or the
//! files of many hosts under one path. Who walks or serves one need not know which.
//!
//! ```
//! use sheaf_core::Errno;
//! use sheaf_core::files::{FileKind, Files};
//! use std::path::Path;
//!
//! /// How many bytes the files in one directory have.
//! fn bytes_in(files: &dyn Files, dir: &Path) -> Result<u64, Errno> {
//!     let mut bytes = 0;
//!     for entry in files.list(dir)? {
//!         let found = files.lstat(&dir.join(entry?.name))?;
//!         bytes += if found.kind == FileKind::File { found.size } else { 0 };
//!     }
//!     Ok(bytes)
//! }
//! ```
mod metadata;

pub use metadata::{FileKind, Metadata, Timestamp};

use crate::Errno;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The files of one namespace, to be read.
///
/// A path counts from the root of the namespace, with or without a slash in front; it may have any
/// bytes but NUL, and an empty one is no file (`ENOENT`). Links on the way to a file are followed,
/// and lead where the namespace says they do.
///
/// Calls take as long as the files need: where they are on other hosts, no call has to be made on a
/// thread that must not block. Any number of threads may call at once.
///
/// # Errors
/// Those of the system call that each operation is named for: what it would say on the host that
/// has the file. A host that cannot be asked is `EHOSTDOWN`, one that did not answer in time
/// `ETIMEDOUT`.
pub trait Files: Send + Sync {
    /// Opens a file for reading. Neither this nor reading waits for somebody at the other end of a
    /// pipe.
    ///
    /// # Errors
    /// Those of `open(2)`; `EISDIR` for a directory.
    fn open(&self, path: &Path) -> Result<Box<dyn OpenFile>, Errno>;

    /// The entries of a directory, without `.` and `..`, in no order, as they are read: what
    /// changes meanwhile may be among them or not. After an error there are no more.
    ///
    /// # Errors
    /// Those of `open(2)`, `ENOTDIR` for what is no directory; of an entry those of `getdents(2)`.
    fn list(&self, path: &Path) -> Result<Listing, Errno>;

    /// What a path leads to.
    ///
    /// # Errors
    /// Those of `stat(2)`.
    fn stat(&self, path: &Path) -> Result<Metadata, Errno>;

    /// As [`Files::stat`], but a link that a path ends with is described itself.
    ///
    /// # Errors
    /// Those of `lstat(2)`.
    fn lstat(&self, path: &Path) -> Result<Metadata, Errno>;

    /// Where a link points: its text, not resolved.
    ///
    /// # Errors
    /// Those of `readlink(2)`; `EINVAL` when it is no link.
    fn read_link(&self, path: &Path) -> Result<PathBuf, Errno>;
}

/// A file that is open for reading. It stays what it was when its name goes to another one.
/// Dropped, it is closed.
pub trait OpenFile: Send + Sync {
    /// Reads what is at `offset`, at most as much as `buffer` holds; how much is said, and the rest
    /// of `buffer` is as it was. 0 is the end of the file, and what is read before it may be less
    /// than `buffer` holds.
    ///
    /// # Errors
    /// Those of `pread(2)`: `ESPIPE` for a pipe, which has no offsets.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Errno>;

    /// What the file is now.
    ///
    /// # Errors
    /// Those of `fstat(2)`.
    fn metadata(&self) -> Result<Metadata, Errno>;
}

/// The entries of a directory, as they are read.
pub type Listing = Box<dyn Iterator<Item = Result<DirEntry, Errno>> + Send>;

/// One name of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name.
    pub name: OsString,
    /// What it names, without following symbolic links; some file systems do not say.
    pub kind: FileKind,
    /// Inode number.
    pub ino: u64,
}
