//! Removal of files and trees.

use crate::export::name_metadata;
use crate::walk::{Cursor, Step};
use crate::{Entry, Export, PathError, Result, WalkOptions};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::AtFlags;
use sheaf_core::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// How many errors of one removal are kept; further ones are counted.
pub const REMOVE_ERRORS_MAX: usize = 1000;

/// How to remove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RemoveOptions {
    /// Directories with all beneath them.
    pub recursive: bool,
    /// Empty directories.
    pub empty_dirs: bool,
    /// What does not exist counts as removed.
    pub missing_ok: bool,
    /// Directories on other file systems stay.
    pub one_file_system: bool,
}

/// What a removal did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Names that are gone.
    pub names: u64,
    /// What could not be removed, at most [`REMOVE_ERRORS_MAX`].
    pub errors: Vec<PathError>,
    /// Errors beyond those.
    pub further_errors: u64,
}

impl Export {
    /// Removes a name, and with [`RemoveOptions::recursive`] a directory with all beneath it.
    /// Symbolic links are removed themselves and never followed, whoever exchanges directories
    /// meanwhile: each name is removed from the very directory it was read from.
    ///
    /// # Errors
    /// Those of `unlink(2)` for `path` itself; `EISDIR` for a directory without the option. What
    /// fails beneath a directory is in [`Removed::errors`].
    pub fn remove(&self, path: &Path, options: RemoveOptions) -> Result<Removed> {
        match self.remove_found(path, options) {
            Err(Errno::NOENT | Errno::NOTDIR) if options.missing_ok => Ok(Removed::default()),
            done => done,
        }
    }

    fn remove_found(&self, path: &Path, options: RemoveOptions) -> Result<Removed> {
        let place = self.place(path)?;
        place.check_kind()?;
        let mut removed = Removed { names: 1, ..Removed::default() };
        if !name_metadata(place.dir.as_fd(), &place.name)?.is_dir() {
            rustix::fs::unlinkat(&place.dir, &place.name, AtFlags::empty())?;
        } else if options.recursive {
            removed.names = 0;
            self.remove_tree(trimmed(path), options, &mut removed);
        } else if options.empty_dirs {
            rustix::fs::unlinkat(&place.dir, &place.name, AtFlags::REMOVEDIR)?;
        } else {
            return Err(Errno::ISDIR);
        }
        Ok(removed)
    }

    fn remove_tree(&self, path: &Path, options: RemoveOptions, removed: &mut Removed) {
        let walk = WalkOptions { one_file_system: options.one_file_system, ..WalkOptions::default() };
        let mut cursor = Cursor::new(self, path, walk);
        while let Some(step) = cursor.next() {
            match step {
                Ok(Step::Enter(_)) => {}
                Ok(Step::Leaf(entry)) => removed.take(cursor.parent(), entry, AtFlags::empty()),
                Ok(Step::Leave(entry)) => removed.take(cursor.parent(), entry, AtFlags::REMOVEDIR),
                Err(error) => removed.fail(error),
            }
        }
    }
}

impl Removed {
    /// Removes one name of a directory.
    fn take(&mut self, dir: Option<BorrowedFd<'_>>, entry: Entry, flags: AtFlags) {
        let name = entry.path.file_name().unwrap_or(OsStr::new("."));
        // Without a directory, the walk reports by itself that it was lost.
        let Some(dir) = dir else { return };
        match rustix::fs::unlinkat(dir, name, flags).map_err(Errno::from) {
            // What is gone already was to be removed.
            Ok(()) | Err(Errno::NOENT) => self.names += 1,
            // Why the directory is not empty was told before.
            Err(Errno::NOTEMPTY | Errno::EXIST) if !self.errors.is_empty() => {}
            Err(errno) => self.fail(PathError { path: entry.path, errno }),
        }
    }

    fn fail(&mut self, error: PathError) {
        if self.errors.len() < REMOVE_ERRORS_MAX {
            self.errors.push(error);
        } else {
            self.further_errors += 1;
        }
    }
}

/// A path without slashes at its end.
fn trimmed(path: &Path) -> &Path {
    let bytes = path.as_os_str().as_bytes();
    let length = bytes.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    Path::new(OsStr::from_bytes(&bytes[..length]))
}
