//! Descriptors under the runtime's watch, and names of files.
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Puts a descriptor under the runtime's watch.
///
/// # Errors
/// When the system has no room for it.
#[allow(unsafe_code)]
pub fn register(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: `register` asks that the descriptor stays open and the same while the `AsyncFd`
    // has it. An `OwnedFd` is one descriptor for its whole life, it is moved in here, and nothing
    // takes it out again.
    Ok(unsafe { AsyncFd::register_with_interest(fd, interest) }?)
}

/// Sees that a file loses its name, as a socket does whose directory is removed.
pub struct NameWatch {
    path: PathBuf,
    file: (u64, u64),
    /// The system may have none to give.
    events: Option<AsyncFd<OwnedFd>>,
}

impl NameWatch {
    /// Watches the file that has this name now.
    ///
    /// # Errors
    /// When there is none.
    pub fn of(path: &Path) -> io::Result<Self> {
        let file = file_at(path).ok_or(io::ErrorKind::NotFound)?;
        let events = || -> io::Result<AsyncFd<OwnedFd>> {
            let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
            // A socket that somebody listens at is not deleted; its number of names changes.
            let flags = WatchFlags::ATTRIB | WatchFlags::MOVE_SELF | WatchFlags::DELETE_SELF;
            inotify::add_watch(&events, path, flags)?;
            register(events, Interest::READABLE)
        };
        Ok(Self { path: path.to_owned(), file, events: events().ok() })
    }

    /// Whether the name is that of this file.
    #[must_use]
    pub fn is_there(&self) -> bool {
        file_at(&self.path) == Some(self.file)
    }

    /// Waits until it is not. It is looked at every so often (`look`): of a directory that is moved, or under another
    /// mount, the system tells nothing.
    pub async fn gone(&self, look: Duration) {
        while self.is_there() {
            let Some(events) = &self.events else {
                tokio::time::sleep(look).await;
                continue;
            };
            if let Ok(Ok(mut ready)) = tokio::time::timeout(look, events.readable()).await {
                let mut told = [0; 1024];
                let _ = rustix::io::read(events, &mut told);
                ready.clear_ready();
            }
        }
    }
}

/// A file that was found by its name, and is held: it may lose the name and get it again.
pub struct NamedFile {
    path: PathBuf,
    id: (u64, u64),
    file: OwnedFd,
}

impl NamedFile {
    /// The file that has this name now, if there is one.
    #[must_use]
    pub fn at(path: &Path) -> Option<Self> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty()).ok()?;
        let about = rustix::fs::fstat(&file).ok()?;
        Some(Self { path: path.to_owned(), id: (about.st_dev, about.st_ino), file })
    }

    /// The name.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the name is that of this file.
    #[must_use]
    pub fn is_there(&self) -> bool {
        file_at(&self.path) == Some(self.id)
    }

    /// Whether the file has any name, though perhaps in a directory that cannot be reached now.
    #[must_use]
    pub fn has_a_name(&self) -> bool {
        rustix::fs::fstat(&self.file).is_ok_and(|about| about.st_nlink > 0)
    }
}

/// Which file has this name, by its device and number.
#[must_use]
pub fn file_at(path: &Path) -> Option<(u64, u64)> {
    let there = rustix::fs::lstat(path).ok()?;
    Some((there.st_dev, there.st_ino))
}
