//! A directory and all beneath it.

mod cursor;

pub use cursor::DEPTH_MAX;
pub(crate) use cursor::{Cursor, WalkStep};

use crate::error::PathError;
use crate::export::{Export, is_empty_pipe};
use crate::held::FoundFile;
use crate::pattern::NameFilter;
use rustix::fs::{Mode, OFlags};
use sheaf_core::Errno;
use sheaf_core::files::{FileKind, Metadata};
use std::fs::File;
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
    /// A directory comes after what is in it, and not at all if it could not be read. It is not
    /// for use with [`WalkOptions::one_file_system`].
    pub dirs_last: bool,
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
    dirs_last: bool,
}

impl Export {
    /// Walks `start` and, if it is a directory, everything beneath it. A failure of the start is
    /// the first and only item.
    #[must_use]
    pub fn walk(&self, start: &Path, options: WalkOptions) -> Walk {
        let dirs_last = options.dirs_last;
        Walk { cursor: Cursor::new(self, start, options), dirs_last }
    }
}

impl Walk {
    /// Does not go into the directory that was yielded last.
    pub fn skip_dir(&mut self) {
        self.cursor.skip_dir();
    }

    /// The export with the directory held in which the entry was found that was yielded last: a
    /// link that takes the place of that directory, or of one above, leads nowhere.
    ///
    /// # Errors
    /// `ESTALE` if the directory had to be opened again and was another one.
    pub fn here(&self) -> crate::Result<Export> {
        self.cursor.here()
    }

    /// The file that was yielded last. If it was not a link that the walk follows, a link that has
    /// taken its place is found itself.
    ///
    /// # Errors
    /// Those of [`Export::find`] and [`Walk::here`].
    pub fn found(&self, entry: &WalkEntry) -> crate::Result<FoundFile> {
        self.here()?.find(&entry.path, self.cursor.followed())
    }

    /// Opens the file that was yielded last, as [`Export::open_ready`] does. A link that has taken
    /// the place of a regular file is not followed.
    ///
    /// # Errors
    /// Those of [`Export::open_ready`] and [`Walk::here`]; `ELOOP` for such a link.
    pub fn open_ready(&self, entry: &WalkEntry) -> crate::Result<File> {
        let here = self.here()?;
        if self.cursor.followed() || entry.kind != FileKind::File {
            return here.open_ready(&entry.path);
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW;
        let file = here.open_file(&entry.path, flags, Mode::empty())?;
        if is_empty_pipe(&file)? { Err(Errno::AGAIN) } else { Ok(file) }
    }
}

impl Iterator for Walk {
    type Item = Result<WalkEntry, PathError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.cursor.next()? {
                Ok(WalkStep::Enter(_)) if self.dirs_last => {}
                Ok(WalkStep::Leave(_)) if !self.dirs_last => {}
                Ok(WalkStep::Enter(entry) | WalkStep::Leaf(entry) | WalkStep::Leave(entry)) => {
                    return Some(Ok(entry));
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl FusedIterator for Walk {}
