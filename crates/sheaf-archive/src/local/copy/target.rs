//! Where a copy goes, and what must not go there.
use crate::walk::names;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use sheaf_core::Errno;
use sheaf_core::files::{FileKind, Metadata};
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What was named as the target.
pub(super) struct CopyTarget {
    path: PathBuf,
    is_directory: bool,
}

/// The place of a copy.
pub(super) struct CopyPlace {
    /// A directory.
    pub directory: OwnedFd,
    /// Its name there; none if it is the directory itself.
    pub name: Option<Vec<u8>>,
    /// Its path, as it is told.
    pub path: PathBuf,
}

impl CopyTarget {
    pub fn new(path: &Path, no_target_directory: bool) -> Self {
        let found = names::start(path, true);
        let is_directory = !no_target_directory && found.is_ok_and(|found| found.is_dir());
        Self { path: path.to_owned(), is_directory }
    }

    /// Whether sources go into it.
    pub fn is_directory(&self) -> bool {
        self.is_directory
    }

    /// The path of a source's copy, as it is told.
    pub fn shown(&self, source: &Path) -> PathBuf {
        let name = self.is_directory.then(|| last_name(source.as_os_str().as_bytes())).flatten();
        match name {
            Some(name) => self.path.join(OsStr::from_bytes(&name)),
            None => self.path.clone(),
        }
    }

    /// The place of a source of this kind.
    pub fn place(&self, source: &Path, kind: FileKind) -> Result<CopyPlace, Errno> {
        if self.is_directory {
            let name = last_name(source.as_os_str().as_bytes());
            let path = self.shown(source);
            return Ok(CopyPlace { directory: open_directory(&self.path)?, name, path });
        }
        let bytes = self.path.as_os_str().as_bytes();
        if kind != FileKind::Directory && bytes.ends_with(b"/") {
            return Err(Errno::NOTDIR);
        }
        // A link to a file that is named is written through, and one that leads nowhere is nothing to write
        // to; what has no content takes the place of the link itself.
        let path = match names::lstat(&self.path) {
            Ok(found) if found.kind == FileKind::Symlink && kind == FileKind::File => {
                std::fs::canonicalize(&self.path).map_err(|error| Errno::from_io(&error))?
            }
            _ => self.path.clone(),
        };
        let name = last_name(path.as_os_str().as_bytes());
        let above = match &name {
            None => path.clone(),
            Some(_) => above(&path),
        };
        Ok(CopyPlace { directory: open_directory(&above)?, name, path })
    }
}

/// The directory of a path that ends with a name.
pub(super) fn above(path: &Path) -> PathBuf {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    let slash = bytes[..end].iter().rposition(|byte| *byte == b'/');
    match slash {
        None => PathBuf::from("."),
        Some(slash) => PathBuf::from(OsStr::from_bytes(&bytes[..=slash])),
    }
}

/// The last name of a path; none of `.`, `..` and `/`.
pub(super) fn last_name(path: &[u8]) -> Option<Vec<u8>> {
    let end = path.iter().rposition(|byte| *byte != b'/')? + 1;
    let name = path[..end].rsplit(|byte| *byte == b'/').next()?;
    (!matches!(name, b"." | b"..")).then(|| name.to_vec())
}

pub(super) fn open_directory(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
}

/// Whether a directory is another one, or is somewhere below it.
pub(super) fn is_within(directory: BorrowedFd<'_>, other: (u64, u64)) -> Result<bool, Errno> {
    let mut at = directory.try_clone_to_owned().map_err(|error| Errno::from_io(&error))?;
    loop {
        let here = status(at.as_fd())?.id();
        if here == other {
            return Ok(true);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let above = rustix::fs::openat(&at, "..", flags, Mode::empty())?;
        // Only the root is above itself.
        if status(above.as_fd())?.id() == here {
            return Ok(false);
        }
        at = above;
    }
}

/// What is open.
pub(super) fn status(file: BorrowedFd<'_>) -> Result<Metadata, Errno> {
    Ok(rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?.into())
}
