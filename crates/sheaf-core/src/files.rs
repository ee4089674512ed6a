//! Types that describe files: [`Metadata`] and [`DirEntry`].
mod metadata;

pub use metadata::{FileKind, Metadata, Timestamp};

use std::ffi::OsString;

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
