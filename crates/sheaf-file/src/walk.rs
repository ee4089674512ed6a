//! A directory and all beneath it.

mod cursor;

pub use cursor::DEPTH_MAX;
pub(crate) use cursor::{Cursor, WalkStep};

use crate::{Export, FileKind, Metadata, NameFilter, PathError};
use std::iter::FusedIterator;
use std::path::{Path, PathBuf};

/// Which symbolic links a walk follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Follow {
    /// None; links are entries themselves.
    #[default]
    Never,
    /// Only the start of the walk, as `grep -r` does with its arguments.
    Start,
    /// All of them. A link to a directory it lies in is an `ELOOP` error, one whose target cannot
    /// be looked at is that error, and a link that leads nowhere is an entry itself.
    Always,
}

/// How to walk.
#[derive(Clone, Debug, Default)]
pub struct WalkOptions {
    /// Which symbolic links are followed.
    pub follow: Follow,
    /// Stay on the file system of the start; directories of others are yielded but not read.
    pub one_file_system: bool,
    /// Directories at which something is mounted are `EBUSY` errors.
    pub one_mount: bool,
    /// Fill [`WalkEntry::metadata`].
    pub metadata: bool,
    /// If not empty, only the files (not directories) that match are yielded. The start always is.
    pub include: NameFilter,
    /// Files (not directories) that match are passed over.
    pub exclude: NameFilter,
    /// Directories that match are passed over with all beneath them.
    pub exclude_dir: NameFilter,
}

/// One file or directory of a walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalkEntry {
    /// Its path: the start of the walk joined with [`WalkEntry::relative`].
    pub path: PathBuf,
    /// Its path relative to the start; empty for the start itself.
    pub relative: PathBuf,
    /// Its kind; of the target, where a link was followed. Never [`FileKind::Unknown`].
    pub kind: FileKind,
    /// How many names are in [`WalkEntry::relative`].
    pub depth: usize,
    /// What `lstat` tells (`stat`, where a link was followed), if it was asked for.
    pub metadata: Option<Metadata>,
}

/// A walk in progress; made by [`Export::walk`].
///
/// A directory comes before what is in it. Names are sorted bytewise with a `/` after those of
/// directories, so the *files* come in bytewise order of their whole paths. An error concerns one
/// path and the walk goes on.
#[derive(Debug)]
pub struct Walk {
    cursor: Cursor,
}

impl Export {
    /// Walks `start` and, if it is a directory, everything beneath it. A failure of the start is
    /// the first and only item.
    #[must_use]
    pub fn walk(&self, start: &Path, options: WalkOptions) -> Walk {
        Walk { cursor: Cursor::new(self, start, options) }
    }
}

impl Walk {
    /// Does not go into the directory that was yielded last.
    pub fn skip_dir(&mut self) {
        self.cursor.skip_dir();
    }
}

impl Iterator for Walk {
    type Item = Result<WalkEntry, PathError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.cursor.next()? {
                Ok(WalkStep::Enter(entry) | WalkStep::Leaf(entry)) => return Some(Ok(entry)),
                Ok(WalkStep::Leave(_)) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl FusedIterator for Walk {}
