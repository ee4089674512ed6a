//! Files that Sheaf left outside of the paths that its user named, and their removal.
//!
//! Four kinds are known ([`LeftoverKind`]). All of them can be had again, or belong to a process that
//! has ended. The catalogs of archives in `$XDG_CACHE_HOME/sheaf` are not among them: if the log of a
//! store is damaged, its catalog is the only place that still has the names of its files.
//!
//! Every removal is relative to an open directory of this user, and follows no symbolic link.
mod cache;
pub mod demo;
mod directory;
pub mod hosts;
mod recordings;
mod sessions;
mod used;

use serde::{Deserialize, Serialize};
pub use sheaf_records::LeftoverKind;
use sheaf_session::gates::SHARED;
use sheaf_session::{Environment, Sessions};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A file that was changed within this time may be one that a process is about to use.
pub const AGE_MIN: Duration = Duration::from_secs(600);

/// Where recordings are by default.
pub const BUFFERS: &str = "/dev/shm";

/// Why a file stays that was changed within [`AGE_MIN`].
const YOUNG: &str = "it is younger than 10 minutes, so a process may be about to use it";

/// What happened to a file or directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeftoverState {
    /// It was removed; in a dry run, it would be.
    Removed,
    /// It stays, for this reason.
    Kept(String),
    /// It could not be removed, for this reason, which names its path.
    Failed(String),
}

/// A file or directory that Sheaf left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    pub kind: LeftoverKind,
    pub path: PathBuf,
    /// The number of bytes that it takes from its file system.
    pub bytes: u64,
    pub state: LeftoverState,
}

/// The places where leftovers are looked for.
#[derive(Clone, Debug)]
pub struct LeftoverPlaces {
    /// The directory of Sheaf in the user's cache, and those for programs where that is unfit.
    pub caches: Vec<PathBuf>,
    /// The directories of sessions.
    pub sessions: Vec<Sessions>,
    /// The directory with root's gates for other users, for root.
    pub shared_gates: Option<PathBuf>,
    /// The directory in which recordings have theirs.
    pub buffers: PathBuf,
    /// The directory for temporary files.
    pub temporary: PathBuf,
}

impl LeftoverPlaces {
    /// The places of this process's user.
    #[must_use]
    pub fn of_this_process(buffers: &Path) -> Self {
        let user = rustix::process::getuid().as_raw();
        let cache = crate::companion::fetch::caches().map(|caches| caches.join("sheaf"));
        // Another user may have made a directory of that name, which then is no leftover.
        let is_own =
            |path: &PathBuf| std::fs::symlink_metadata(path).is_ok_and(|about| about.uid() == user);
        let others = [format!("/run/user/{user}/sheaf-cache"), format!("/var/tmp/sheaf-{user}")];
        let others = others.map(PathBuf::from).into_iter().filter(is_own);
        Self {
            caches: cache.into_iter().chain(others).collect(),
            sessions: Sessions::places(&Environment::of_this_process()),
            shared_gates: rustix::process::geteuid().is_root().then(|| SHARED.into()),
            buffers: buffers.to_owned(),
            temporary: std::env::temp_dir(),
        }
    }
}

/// How leftovers are removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removal {
    /// Nothing is removed.
    pub dry_run: bool,
    /// Recordings are removed even if no trace has their operations.
    pub recordings: bool,
    /// The program of this process is removed although it runs.
    pub own_program: bool,
}

/// Removes leftovers, and returns every one that was found.
#[must_use]
pub fn remove(places: &LeftoverPlaces, removal: Removal) -> Vec<Leftover> {
    let mut sweep = Sweep { removal, now: SystemTime::now(), found: Vec::new() };
    for cache in &places.caches {
        cache::sweep(&mut sweep, cache);
    }
    for sessions in &places.sessions {
        sessions::sweep(&mut sweep, sessions);
    }
    if let Some(gates) = &places.shared_gates {
        sessions::sweep_shared(&mut sweep, gates);
    }
    recordings::sweep(&mut sweep, &places.buffers);
    demo::sweep(&mut sweep, &places.temporary);
    sweep.found
}

/// A removal that goes on.
struct Sweep {
    removal: Removal,
    now: SystemTime,
    found: Vec<Leftover>,
}

impl Sweep {
    fn put(&mut self, kind: LeftoverKind, path: PathBuf, bytes: u64, state: LeftoverState) {
        self.found.push(Leftover { kind, path, bytes, state });
    }

    fn keep(&mut self, kind: LeftoverKind, path: PathBuf, why: impl Into<String>) {
        self.put(kind, path, 0, LeftoverState::Kept(why.into()));
    }

    fn fail(&mut self, kind: LeftoverKind, path: PathBuf, error: &std::io::Error) {
        let why = crate::exit::io_text(&path, error);
        self.put(kind, path, 0, LeftoverState::Failed(why));
    }

    /// Removes by `remove`, except in a dry run.
    fn remove(
        &mut self,
        kind: LeftoverKind,
        (path, bytes): (PathBuf, u64),
        remove: impl FnOnce() -> std::io::Result<()>,
    ) {
        match if self.removal.dry_run { Ok(()) } else { remove() } {
            Ok(()) => self.put(kind, path, bytes, LeftoverState::Removed),
            // Another process was faster.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => self.fail(kind, path, &error),
        }
    }

    /// Whether a file that was changed then may be one that a process is about to use.
    fn is_young(&self, stat: &rustix::fs::Stat) -> bool {
        let seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
        let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        // The clock of a file server may be ahead of this host's.
        let age = self.now.duration_since(changed).unwrap_or_else(|ahead| ahead.duration());
        age < AGE_MIN
    }
}
