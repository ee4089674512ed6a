//! Removal of files and trees.

use crate::Result;
use crate::error::PathError;
use crate::export::{Export, fd_metadata, mount_id, name_metadata, name_mount_id};
use crate::owner::acts_as_owner;
use crate::pattern::Pattern;
use crate::walk::{Cursor, WalkEntry, WalkOptions, WalkStep};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{Access, AtFlags, Mode, OFlags};
use sheaf_core::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

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
    /// Mount points, too, and all that is in the export's root, though never the root itself.
    /// Without this they are `EBUSY`, wherever they are met.
    pub mounts_too: bool,
    /// Only count what would be removed.
    pub dry_run: bool,
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
    /// Nothing is really removed.
    dry_run: bool,
}

impl Export {
    /// Removes a name, and with [`RemoveOptions::recursive`] a directory with all beneath it.
    /// Symbolic links are removed themselves and never followed, whoever exchanges directories
    /// meanwhile: each name is removed from the very directory it was read from.
    ///
    /// # Errors
    /// Those of `unlink(2)` for `path` itself; `EISDIR` for a directory without the option, `EBUSY`
    /// for the root of the export and for mount points without theirs. What fails beneath a
    /// directory is in [`Removed::errors`].
    pub fn remove(&self, path: &Path, options: RemoveOptions) -> Result<Removed> {
        let mut removal = self.removal(path, options)?;
        while removal.step() {}
        Ok(removal.removed)
    }

    /// Begins [`Export::remove`], for whoever may want to end it midway.
    ///
    /// # Errors
    /// As [`Export::remove`].
    pub fn removal(&self, path: &Path, options: RemoveOptions) -> Result<Removal> {
        match self.begin_removal(path, options) {
            Err(Errno::NOENT) if options.missing_ok => Ok(Removal::default()),
            // A link to a directory, written with a slash, is there, and stays.
            Err(Errno::NOTDIR) if options.missing_ok && !self.leads_to_directory(path) => {
                Ok(Removal::default())
            }
            begun => begun,
        }
    }

    fn leads_to_directory(&self, path: &Path) -> bool {
        let there = self.resolve(path, OFlags::empty());
        there.is_ok_and(|fd| fd_metadata(fd.as_fd()).is_ok_and(|about| about.is_dir()))
    }

    /// Whether `pattern` stands for all that is in the export's root, or in the directories there: it
    /// ends in names that are all wildcards, as `/*` and `/*/*` do, however the root before them is
    /// written.
    ///
    /// # Errors
    /// As [`Export::glob`].
    pub fn sweeps_root(&self, pattern: &Pattern) -> Result<bool> {
        for dirs in pattern.swept() {
            let found = self.glob(&dirs)?;
            let is_root = |dir: &PathBuf| dir.as_os_str().is_empty() || self.is_root(dir);
            if found.paths.iter().any(is_root) {
                return Ok(true);
            }
            // Whoever does not know does not say no.
            if let Some(error) = found.errors.first() {
                return Err(error.errno);
            }
        }
        Ok(false)
    }

    /// Whether a path, links at its end not followed, is that of the export's root.
    fn is_root(&self, path: &Path) -> bool {
        self.leads_to_root(path, false)
    }

    /// Whether a path is that of the export's root, by whatever name; with `follow`, links at its end are followed.
    #[must_use]
    pub fn leads_to_root(&self, path: &Path, follow: bool) -> bool {
        let flags = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        let id = |path: &Path, flags| {
            fd_metadata(self.resolve(path, flags)?.as_fd()).map(|stat| stat.id())
        };
        id(path, flags).is_ok_and(|own| id(Path::new("/"), OFlags::NOFOLLOW) == Ok(own))
    }

    /// Whether something is mounted at a path.
    fn is_mounted(&self, path: &Path) -> Result<bool> {
        let place = self.place(path)?;
        let file = self.resolve(path, OFlags::NOFOLLOW)?;
        Ok(mount_id(file.as_fd())? != mount_id(place.dir.as_fd())?)
    }

    fn begin_removal(&self, path: &Path, options: RemoveOptions) -> Result<Removal> {
        let mut removed = Removed { dry_run: options.dry_run, ..Removed::default() };
        if self.is_root(path) {
            return match options {
                RemoveOptions { mounts_too: false, .. } => Err(Errno::BUSY),
                RemoveOptions { recursive: false, .. } => Err(Errno::ISDIR),
                _ => Ok(Removal {
                    tree: Some(self.tree(Path::new("/"), options)),
                    removed,
                    is_root: true,
                }),
            };
        }
        if !options.mounts_too && self.is_mounted(path)? {
            return Err(Errno::BUSY);
        }
        let place = self.place(path)?;
        place.check_kind()?;
        let mut flags = AtFlags::empty();
        if name_metadata(place.dir.as_fd(), &place.name)?.is_dir() {
            if options.recursive {
                let tree = Some(self.tree(trimmed(path), options));
                return Ok(Removal { tree, removed, is_root: false });
            }
            if !options.empty_dirs {
                return Err(Errno::ISDIR);
            }
            if options.dry_run && !self.read_dir(path)?.is_empty() {
                return Err(Errno::NOTEMPTY);
            }
            flags = AtFlags::REMOVEDIR;
        }
        removed.unlink(place.dir.as_fd(), &place.name, flags)?;
        removed.names = 1;
        Ok(Removal { tree: None, removed, is_root: false })
    }

    fn tree(&self, path: &Path, options: RemoveOptions) -> Cursor {
        let walk = WalkOptions {
            one_file_system: options.one_file_system,
            one_mount: !options.mounts_too,
            ..WalkOptions::default()
        };
        Cursor::new(self, path, walk)
    }
}

/// A removal under way; made by [`Export::removal`].
#[derive(Debug, Default)]
pub struct Removal {
    /// What is still there.
    tree: Option<Cursor>,
    removed: Removed,
    /// The tree is the whole export, whose root stays.
    is_root: bool,
}

impl Removal {
    /// Removes one name more; `false` when there is none left.
    pub fn step(&mut self) -> bool {
        let Some(tree) = &mut self.tree else { return false };
        let removed = &mut self.removed;
        match tree.next() {
            None => {
                self.tree = None;
                return false;
            }
            Some(Ok(WalkStep::Enter(_))) => {}
            Some(Ok(WalkStep::Leaf(entry))) => removed.take(tree.parent(), entry, AtFlags::empty()),
            Some(Ok(WalkStep::Leave(entry))) if self.is_root && entry.depth == 0 => {}
            Some(Ok(WalkStep::Leave(entry))) => {
                removed.take(tree.parent(), entry, AtFlags::REMOVEDIR)
            }
            // A directory that is gone before it was entered.
            Some(Err(PathError { errno: Errno::NOENT, .. })) => {}
            Some(Err(error)) => removed.fail(error),
        }
        true
    }

    /// What was done so far.
    #[must_use]
    pub fn removed(&self) -> &Removed {
        &self.removed
    }
}

impl Removed {
    /// Removes one name of a directory.
    fn take(&mut self, dir: Option<BorrowedFd<'_>>, entry: WalkEntry, flags: AtFlags) {
        let name = entry.path.file_name().unwrap_or(OsStr::new("."));
        // Without a directory, the walk reports by itself that it was lost.
        let Some(dir) = dir else { return };
        // What stays in a directory keeps it, and was told before.
        let is_kept = |error: &PathError| error.path.starts_with(&entry.path);
        if self.dry_run && self.errors.iter().any(is_kept) {
            return;
        }
        match self.unlink(dir, name, flags) {
            Ok(()) => self.names += 1,
            // What is gone already was to be removed, and somebody else has done that.
            Err(Errno::NOENT) => {}
            // Why the directory is not empty was told before.
            Err(Errno::NOTEMPTY | Errno::EXIST) if !self.errors.is_empty() => {}
            Err(errno) => self.fail(PathError { path: entry.path, errno }),
        }
    }

    fn unlink(&self, dir: BorrowedFd<'_>, name: &OsStr, flags: AtFlags) -> Result<()> {
        if self.dry_run {
            may_unlink(dir, name)
        } else {
            Ok(rustix::fs::unlinkat(dir, name, flags)?)
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

/// Whether a name may be removed, as far as that can be known without doing it: the right to its
/// directory, whose it is where the directory is sticky, and whether something is mounted there.
fn may_unlink(dir: BorrowedFd<'_>, name: &OsStr) -> Result<()> {
    rustix::fs::accessat(dir, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)?;
    let (above, file) = (fd_metadata(dir)?, name_metadata(dir, name)?);
    let is_sticky = Mode::from_raw_mode(above.mode).contains(Mode::SVTX);
    if is_sticky && !acts_as_owner(above.uid)? && !acts_as_owner(file.uid)? {
        return Err(Errno::PERM);
    }
    // A file may be one, too, which no walk notices.
    if name_mount_id(dir, name)? != mount_id(dir)? { Err(Errno::BUSY) } else { Ok(()) }
}

/// A path without slashes at its end.
fn trimmed(path: &Path) -> &Path {
    let bytes = path.as_os_str().as_bytes();
    let length = bytes.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    Path::new(OsStr::from_bytes(&bytes[..length]))
}
