//! Removal by one alone, each name of which is asked about.
use super::{LocalRemoveError, LocalRemoveOptions, LocalRemoveStep, LocalRemoved, Removable};
use crate::walk::names::lstat_at;
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags};
use sheaf_core::Errno;
use sheaf_core::files::{FileKind, Metadata};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalRemoveQuestion<'a> {
    /// Its path, as the walk's begins.
    pub path: &'a [u8],
    /// What it is.
    pub kind: FileKind,
    /// Nothing is in it.
    pub is_empty: bool,
    /// Whether to look at what is in a directory; else whether it goes.
    pub descends: bool,
}

/// As [`super::remove_local`], by one after the other: `ask` says of each whether it goes. A directory
/// stays, without a question, where something in it does.
///
/// # Errors
/// When `ask` or `each` says so. What stays for another reason is told to `each`.
pub fn remove_local_asked<E>(
    start: &Path,
    options: LocalRemoveOptions,
    ask: &mut dyn FnMut(LocalRemoveQuestion<'_>) -> Result<bool, E>,
    each: &mut dyn FnMut(LocalRemoveStep<'_>) -> Result<(), E>,
) -> Result<LocalRemoved, E> {
    let mut run = AskedRemoval { options, ask, each, removed: LocalRemoved::default() };
    let bytes = start.as_os_str().as_bytes();
    match super::removable(bytes, options) {
        Ok(Some(Removable { path, .. })) => {
            run.name(CWD, path.as_os_str(), &mut path.as_os_str().as_bytes().to_vec())?;
        }
        Ok(None) => {}
        Err(why) => run.failed(bytes, why)?,
    }
    Ok(run.removed)
}

struct AskedRemoval<'a, E> {
    options: LocalRemoveOptions,
    ask: &'a mut dyn FnMut(LocalRemoveQuestion<'_>) -> Result<bool, E>,
    each: &'a mut dyn FnMut(LocalRemoveStep<'_>) -> Result<(), E>,
    removed: LocalRemoved,
}

impl<E> AskedRemoval<'_, E> {
    fn failed(&mut self, path: &[u8], why: LocalRemoveError) -> Result<(), E> {
        self.removed.failed += 1;
        (self.each)(LocalRemoveStep::Failed { path, why })
    }

    /// Says whether a name is gone.
    fn name(&mut self, above: BorrowedFd<'_>, name: &OsStr, path: &mut Vec<u8>) -> Result<bool, E> {
        let found = match lstat_at(above, name) {
            Ok(found) => found,
            Err(Errno::NOENT) if self.options.force => return Ok(true),
            Err(errno) => {
                self.failed(path, LocalRemoveError::System(errno))?;
                return Ok(false);
            }
        };
        if !found.is_dir() {
            return self.last(above, name, path, (&found, found.size == 0));
        }
        match names_in(above, name) {
            Ok((_, names)) if names.is_empty() => self.last(above, name, path, (&found, true)),
            Ok(_) if !self.options.recursive => {
                self.failed(path, LocalRemoveError::System(Errno::NOTEMPTY))?;
                Ok(false)
            }
            Ok((directory, names)) => {
                let kind = FileKind::Directory;
                let question = LocalRemoveQuestion { path, kind, is_empty: false, descends: true };
                if !(self.ask)(question)? {
                    return Ok(false);
                }
                let mut all_go = true;
                for below in names {
                    let end = path.len();
                    if !path.ends_with(b"/") {
                        path.push(b'/');
                    }
                    path.extend_from_slice(below.as_bytes());
                    all_go &= self.name(directory.as_fd(), &below, path)?;
                    path.truncate(end);
                }
                if all_go { self.last(above, name, path, (&found, true)) } else { Ok(false) }
            }
            Err(errno) => {
                self.failed(path, LocalRemoveError::System(errno))?;
                Ok(false)
            }
        }
    }

    /// Asks about a file, or a directory that is empty, and removes it.
    fn last(
        &mut self,
        above: BorrowedFd<'_>,
        name: &OsStr,
        path: &[u8],
        (found, is_empty): (&Metadata, bool),
    ) -> Result<bool, E> {
        let (kind, is_directory) = (found.kind, found.is_dir());
        if !(self.ask)(LocalRemoveQuestion { path, kind, is_empty, descends: false })? {
            return Ok(false);
        }
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        if let Err(errno) = rustix::fs::unlinkat(above, name, flags) {
            let errno = Errno(errno.raw_os_error());
            self.failed(path, LocalRemoveError::System(errno))?;
            return Ok(false);
        }
        match is_directory {
            true => self.removed.directories += 1,
            false => self.removed.files += 1,
        }
        if self.options.tells_names {
            (self.each)(LocalRemoveStep::Removed { path, is_directory })?;
        }
        Ok(true)
    }
}

/// A directory, and the names in it in their order.
fn names_in(above: BorrowedFd<'_>, name: &OsStr) -> Result<(OwnedFd, Vec<OsString>), Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(above, name, flags, Mode::empty())?;
    let mut names = Vec::new();
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push(OsString::from_vec(name.to_vec()));
        }
    }
    names.sort_unstable();
    Ok((directory, names))
}
