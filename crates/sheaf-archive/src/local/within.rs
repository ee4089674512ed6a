//! The directories that a walk is in.
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use sheaf_core::Errno;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The directories that a walk is in, each opened in the one above it, so that what is done in them
/// follows no link, whoever exchanges names meanwhile.
#[derive(Debug, Default)]
pub struct OpenDirectories(Vec<Result<OwnedFd, Errno>>);

impl OpenDirectories {
    /// The walk enters the directory of this name, or of this path where it begins. One that cannot be
    /// opened is one in which nothing can be done.
    pub fn enter(&mut self, name: &OsStr) {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::PATH | OFlags::CLOEXEC;
        let file = self
            .last()
            .and_then(|above| rustix::fs::openat(above, name, flags, Mode::empty()).map_err(of));
        self.0.push(file);
    }

    /// The walk leaves the last one.
    pub fn leave(&mut self) {
        self.0.pop();
    }

    /// The last one; where the walk begins, the one that paths are of.
    ///
    /// # Errors
    /// Those of `openat(2)`.
    pub fn last(&self) -> Result<BorrowedFd<'_>, Errno> {
        match self.0.last() {
            None => Ok(CWD),
            Some(file) => file.as_ref().map(AsFd::as_fd).map_err(|errno| *errno),
        }
    }
}

/// Removes a name in a directory: a directory, which is to be empty, or what is none.
///
/// # Errors
/// Those of `unlinkat(2)`.
pub fn remove_in(directory: BorrowedFd<'_>, name: &OsStr, is_directory: bool) -> Result<(), Errno> {
    let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    rustix::fs::unlinkat(directory, name, flags).map_err(of)
}

fn of(errno: rustix::io::Errno) -> Errno {
    Errno(errno.raw_os_error())
}
