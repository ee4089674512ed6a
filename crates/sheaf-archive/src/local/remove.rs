//! Trees of this machine removed by many at once.
//!
//! Workers remove the files of a directory that they have read, by its descriptor, and directories go
//! behind all that was in them, in the order of the tree. No link is followed, whoever exchanges names
//! meanwhile.
pub(crate) mod asked;

use crate::walk::{
    FileFacts, TreeStep, TreeVisitor, TreeWalkOptions, VisitWalk, VisitedFile, WalkedDirectory,
};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use sheaf_core::Errno;
use sheaf_core::files::FileKind;
use std::ffi::OsStr;
use std::ops::AddAssign;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// How to remove.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalRemoveOptions {
    /// Directories with all that is in them, too.
    pub recursive: bool,
    /// Directories that are empty, too.
    pub empty_directories: bool,
    /// What is not there counts as removed.
    pub force: bool,
    /// Each name is told.
    pub tells_names: bool,
    /// `/` may be removed.
    pub root_too: bool,
    /// Nothing is removed, and all is told as if it were.
    pub dry_run: bool,
}

/// What is told of a removal.
#[derive(Debug)]
pub enum LocalRemoveStep<'a> {
    /// A name is gone.
    Removed {
        /// Its path, as the walk's begins.
        path: &'a [u8],
        /// Of a directory.
        is_directory: bool,
    },
    /// A name stays.
    Failed {
        /// Its path.
        path: &'a [u8],
        /// Why.
        why: LocalRemoveError,
    },
}

/// Why a name stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocalRemoveError {
    /// It is `.` or `..`.
    #[error("is where you are, or above: it stays")]
    Dots,
    /// It is the root of all.
    #[error("is all of this machine: --no-preserve-root removes it")]
    Root,
    /// It is a directory.
    #[error("is a directory: -r removes it")]
    Directory,
    /// The system says so.
    #[error("{0}")]
    System(Errno),
}

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalRemoved {
    /// What is no directory.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Names that stay.
    pub failed: u64,
}

impl AddAssign for LocalRemoved {
    fn add_assign(&mut self, other: Self) {
        self.files += other.files;
        self.directories += other.directories;
        self.failed += other.failed;
    }
}

/// Removes a file, or a directory with all that is in it.
///
/// # Errors
/// When `each` says so. What stays is told to it.
pub fn remove_local<E>(
    start: &Path,
    options: LocalRemoveOptions,
    each: &mut dyn FnMut(LocalRemoveStep<'_>) -> Result<(), E>,
) -> Result<LocalRemoved, E> {
    let mut removed = LocalRemoved::default();
    let bytes = start.as_os_str().as_bytes();
    let start = match removable(bytes, options) {
        Ok(Some(Removable { path, is_directory: true })) if !options.recursive => {
            remove_empty(path, options, &mut removed, each)?;
            return Ok(removed);
        }
        Ok(Some(start)) => start.path,
        Ok(None) => return Ok(removed),
        Err(why) => {
            removed.failed += 1;
            each(LocalRemoveStep::Failed { path: bytes, why })?;
            return Ok(removed);
        }
    };
    let visitor = RemoveVisitor { options };
    let mut within: Vec<RemovedDirectory> = Vec::new();
    for step in VisitWalk::new("rm", start, visitor, TreeWalkOptions::default()) {
        match step {
            TreeStep::Piece(piece) => {
                piece.tell(&mut removed, each)?;
                if let Some(last) = within.last_mut() {
                    last.stays |= !piece.errors.is_empty();
                    last.unread = last.unread.or(piece.unread);
                }
            }
            TreeStep::Enter(directory) => within.push(RemovedDirectory::enter(&within, &directory)),
            TreeStep::Leave(directory) => {
                let Some(left) = within.pop() else { continue };
                let path = directory.path();
                match left.remove(within.last(), path, options.dry_run) {
                    Ok(true) => {
                        removed.directories += 1;
                        if options.tells_names {
                            each(LocalRemoveStep::Removed { path, is_directory: true })?;
                        }
                        continue;
                    }
                    Ok(false) => {}
                    Err(errno) => {
                        removed.failed += 1;
                        let why = LocalRemoveError::System(errno);
                        each(LocalRemoveStep::Failed { path, why })?;
                    }
                }
                if let Some(above) = within.last_mut() {
                    above.stays = true;
                }
            }
        }
    }
    Ok(removed)
}

/// Removes a directory if it is empty.
fn remove_empty<E>(
    path: &Path,
    options: LocalRemoveOptions,
    removed: &mut LocalRemoved,
    each: &mut dyn FnMut(LocalRemoveStep<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let bytes = path.as_os_str().as_bytes();
    let gone = if options.dry_run {
        match crate::walk::is_empty_in(CWD, path.as_os_str()) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Errno::NOTEMPTY),
            Err(errno) => Err(errno),
        }
    } else {
        let gone = rustix::fs::unlinkat(CWD, path, AtFlags::REMOVEDIR);
        gone.map_err(|errno| Errno(errno.raw_os_error()))
    };
    match gone {
        Ok(()) => {
            removed.directories += 1;
            let step = LocalRemoveStep::Removed { path: bytes, is_directory: true };
            if options.tells_names { each(step) } else { Ok(()) }
        }
        Err(errno) => {
            removed.failed += 1;
            let why = LocalRemoveError::System(errno);
            each(LocalRemoveStep::Failed { path: bytes, why })
        }
    }
}

/// What may be removed.
struct Removable<'a> {
    path: &'a Path,
    is_directory: bool,
}

/// What a path names, if it may be removed; nothing if it is not there and that is fine.
fn removable(
    path: &[u8],
    options: LocalRemoveOptions,
) -> Result<Option<Removable<'_>>, LocalRemoveError> {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(path.len().min(1), |at| at + 1);
    let bare = &path[..end];
    let name = bare.rsplit(|byte| *byte == b'/').next().unwrap_or(bare);
    if matches!(name, b"." | b"..") {
        return Err(LocalRemoveError::Dots);
    }
    let has_slash = bare.len() < path.len();
    let path = Path::new(OsStr::from_bytes(bare));
    let system = LocalRemoveError::System;
    let found = match crate::walk::names::lstat(path) {
        Err(Errno::NOENT | Errno::NOTDIR) if options.force => return Ok(None),
        found => found.map_err(system)?,
    };
    if !found.is_dir() {
        let file = Removable { path, is_directory: false };
        return if has_slash { Err(system(Errno::NOTDIR)) } else { Ok(Some(file)) };
    }
    // By what it is and not by its path: the root has many paths.
    let root = crate::walk::names::lstat(Path::new("/")).map_err(system)?;
    if root.id() == found.id() && !options.root_too {
        return Err(LocalRemoveError::Root);
    }
    if !options.recursive && !options.empty_directories {
        return Err(LocalRemoveError::Directory);
    }
    Ok(Some(Removable { path, is_directory: true }))
}

/// A directory whose files are being removed.
struct RemovedDirectory {
    /// Itself, for those in it.
    file: Result<OwnedFd, Errno>,
    /// Something in it stays, which was told.
    stays: bool,
    /// Why it could not be read.
    unread: Option<Errno>,
}

impl RemovedDirectory {
    fn enter(within: &[Self], directory: &WalkedDirectory) -> Self {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::PATH | OFlags::CLOEXEC;
        let file = in_directory(within.last(), directory.path(), |above, name| {
            rustix::fs::openat(above, name, flags, Mode::empty())
        });
        Self { file, stays: false, unread: None }
    }

    /// Removes it. It stays if something in it does.
    fn remove(self, above: Option<&Self>, path: &[u8], dry_run: bool) -> Result<bool, Errno> {
        if self.stays {
            return Ok(false);
        }
        if dry_run {
            return self.unread.map_or(Ok(true), Err);
        }
        let gone = in_directory(above, path, |above, name| {
            rustix::fs::unlinkat(above, name, AtFlags::REMOVEDIR)
        });
        match gone {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            // That it is not empty follows from why it could not be read, and this is reported.
            Err(errno) => Err(self.unread.unwrap_or(errno)),
        }
    }
}

/// Does something with the last name of a path in its directory, or with all of it at the beginning.
fn in_directory<T>(
    above: Option<&RemovedDirectory>,
    path: &[u8],
    act: impl FnOnce(BorrowedFd<'_>, &OsStr) -> rustix::io::Result<T>,
) -> Result<T, Errno> {
    let of = |errno: rustix::io::Errno| Errno(errno.raw_os_error());
    let Some(above) = above else {
        return act(CWD, OsStr::from_bytes(path)).map_err(of);
    };
    let above = above.file.as_ref().map_err(|errno| *errno)?;
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    act(above.as_fd(), OsStr::from_bytes(name)).map_err(of)
}

/// What was done with some files of a directory.
#[derive(Default)]
struct RemovePiece {
    files: u64,
    /// Paths that are gone, each with a NUL at its end.
    paths: Vec<u8>,
    errors: Vec<(Vec<u8>, Errno)>,
    unread: Option<Errno>,
}

impl RemovePiece {
    fn tell<E>(
        &self,
        removed: &mut LocalRemoved,
        each: &mut dyn FnMut(LocalRemoveStep<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        removed.files += self.files;
        removed.failed += self.errors.len() as u64;
        for path in self.paths.split(|byte| *byte == 0).filter(|path| !path.is_empty()) {
            each(LocalRemoveStep::Removed { path, is_directory: false })?;
        }
        for (path, errno) in &self.errors {
            each(LocalRemoveStep::Failed { path, why: LocalRemoveError::System(*errno) })?;
        }
        Ok(())
    }
}

struct RemoveVisitor {
    options: LocalRemoveOptions,
}

impl TreeVisitor for RemoveVisitor {
    type Piece = RemovePiece;

    fn facts(&self) -> FileFacts {
        FileFacts::Kind
    }

    fn visit(&self, piece: &mut RemovePiece, file: &VisitedFile<'_>) -> bool {
        if file.kind == FileKind::Directory {
            return true;
        }
        let gone = if self.options.dry_run {
            Ok(())
        } else {
            rustix::fs::unlinkat(file.directory, file.name, AtFlags::empty())
        };
        match gone {
            Ok(()) => {
                piece.files += 1;
                if self.options.tells_names {
                    file.put_path(&mut piece.paths);
                    piece.paths.push(0);
                }
            }
            Err(rustix::io::Errno::NOENT) if self.options.force => {}
            Err(errno) => {
                let mut path = Vec::new();
                file.put_path(&mut path);
                piece.errors.push((path, Errno(errno.raw_os_error())));
            }
        }
        false
    }

    fn failed(&self, piece: &mut RemovePiece, _: &WalkedDirectory, errno: Errno) {
        piece.unread = Some(errno);
    }

    fn bytes(&self, piece: &RemovePiece) -> usize {
        let errors = piece.errors.iter().map(|(path, _)| path.len() + 32).sum::<usize>();
        piece.paths.capacity() + errors
    }
}
