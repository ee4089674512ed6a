//! Where a session keeps its log. It goes where the session's socket goes, and is never in a directory that
//! another user owns or may write to.
use crate::error::io_text;
use crate::trust;
use rustix::fs::{AtFlags, Mode, OFlags};
use sheaf_core::lock;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// How the last line of a log begins whose session has gone to another place; the path follows.
pub const GOES_ON: &str = "the log goes on in ";

/// The place of a session's log, for the session and for the writer of the log.
#[derive(Clone, Debug)]
pub struct LogPlace(Arc<Mutex<Place>>);

#[derive(Debug)]
struct Place {
    path: PathBuf,
    /// Why the last line was not written.
    why: Option<String>,
}

impl LogPlace {
    /// A log that begins at this path.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self(Arc::new(Mutex::new(Place { path, why: None })))
    }

    /// Where the log is now.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        lock(&self.0).path.clone()
    }

    /// Takes in that the session's socket has gone to another directory.
    pub(crate) fn go_to(&self, path: PathBuf) {
        lock(&self.0).path = path;
    }

    /// Takes in what has become of the last line: `why` it was not written.
    pub fn note(&self, why: Option<String>) {
        lock(&self.0).why = why;
    }

    /// Why the log cannot be written, with its path.
    pub(crate) fn trouble(&self) -> Option<String> {
        let path = self.path();
        let known = lock(&self.0).why.clone();
        // No line may have been written since another file has taken its place.
        known.or_else(|| check(&path).err().map(|error| io_text(&path, &error)))
    }
}

/// That a log can be at this path, though there may be none yet.
fn check(path: &Path) -> io::Result<()> {
    let (directory, name) = own_directory(path)?;
    let kind = match rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        about => rustix::fs::FileType::from_raw_mode(about?.st_mode),
    };
    if kind.is_file() { Ok(()) } else { Err(io::Error::other("this is not a regular file")) }
}

/// Opens the directory of a file, which has to be this user's alone.
fn own_directory(path: &Path) -> io::Result<(File, &OsStr)> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = File::from(rustix::fs::open(directory, flags, Mode::empty())?);
    // What was opened is examined, whatever has its name by now.
    trust::check_private_open(directory, &opened)
        .map_err(|error| io::Error::new(io::ErrorKind::PermissionDenied, error.text(directory)))?;
    Ok((opened, name))
}

/// Opens a file of this user's sessions to append lines to it, in a directory that is this user's alone. A link
/// in its place is not followed, nor is a pipe waited for.
///
/// # Errors
/// When the directory is another user's, or the file cannot be opened.
pub fn open_own(path: &Path) -> io::Result<File> {
    let (directory, name) = own_directory(path)?;
    let flags = OFlags::APPEND | OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW;
    let flags = flags | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(directory, name, flags, Mode::RUSR | Mode::WUSR)?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("this is not a regular file"));
    }
    Ok(file)
}

/// Gives a file of this user's sessions another name in its directory.
///
/// # Errors
/// As [`open_own`].
pub fn rename_own(path: &Path, new: &Path) -> io::Result<()> {
    let (directory, name) = own_directory(path)?;
    let new = new.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    Ok(rustix::fs::renameat(&directory, name, &directory, new)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn log_is_not_kept_where_others_may_write() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lab.log");
        let mode = |mode| {
            std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(mode)).unwrap();
        };
        let place = LogPlace::new(path.clone());
        for bits in [0o777, 0o1777, 0o770] {
            mode(bits);
            let why = open_own(&path).unwrap_err().to_string();
            assert!(why.contains("others can write to this directory"), "{why}");
            assert!(why.starts_with(&dir.path().display().to_string()), "{why}");
            assert!(place.trouble().is_some() && !path.exists());
        }
        mode(0o700);
        assert_eq!(place.trouble(), None);
        open_own(&path).unwrap();
        place.note(Some("no space".to_owned()));
        assert_eq!(place.trouble().as_deref(), Some("no space"));
        place.note(None);
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), &path).unwrap();
        assert!(open_own(&path).is_err() && place.trouble().is_some());
        assert!(!dir.path().join("elsewhere").exists());
    }
}
