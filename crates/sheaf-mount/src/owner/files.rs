//! Open files of a client.
//!
//! A file that can be run is closed for writing when a descriptor of it is closed, and opened again if it is written
//! to after that. The kernel of the client releases an open file some time after its last descriptor was closed, and
//! until then nobody could run the file (`ETXTBSY`).
use super::nodes::{KnownNodes, path_of, status};
use rustix::fs::{CWD, Mode, OFlags};
use sheaf_core::files::FileKind;
use sheaf_core::{Errno, lock};
use sheaf_tree::service::identity::as_process;
use sheaf_tree::service::share::Holding;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Permission bits that allow somebody to run a file.
const EXECUTE_BITS: u32 = 0o111;

/// An open file.
pub(super) struct OwnerFile {
    pub node: u64,
    state: Mutex<OpenState>,
    /// Whoever lists a directory.
    pub listing: Mutex<()>,
    /// The client is told of its size.
    is_watched: AtomicBool,
    /// Its descriptor, of the share of who has opened it.
    _held: Holding,
}

struct OpenState {
    file: Arc<OwnedFd>,
    /// How it is opened again to be written to, if it was closed for writing.
    closed: Option<OFlags>,
}

impl OwnerFile {
    pub fn new(node: u64, file: OwnedFd, held: Holding) -> Self {
        let state = OpenState { file: Arc::new(file), closed: None };
        let (state, listing, is_watched) =
            (Mutex::new(state), Mutex::default(), AtomicBool::new(false));
        Self { node, state, listing, is_watched, _held: held }
    }

    /// The client is told of its size from now on.
    pub fn watched(&self) {
        self.is_watched.store(true, Ordering::Relaxed);
    }

    /// Whether the client is told of its size.
    pub fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::Relaxed)
    }

    /// The file, for what does not change its content.
    pub fn file(&self) -> Arc<OwnedFd> {
        lock(&self.state).file.clone()
    }

    /// The file, to be written to if the client has opened it for that.
    pub fn to_write(&self, nodes: &KnownNodes) -> Result<Arc<OwnedFd>, Errno> {
        let mut state = lock(&self.state);
        if let Some(flags) = state.closed {
            state.file = reopened(&state.file, flags)?;
            state.closed = None;
            nodes.is_open(self.node, &state.file);
        }
        Ok(state.file.clone())
    }

    /// Whether it is closed for writing when it is flushed.
    pub fn closes_when_flushed(&self) -> bool {
        flags_to_write(&self.file()).is_some()
    }

    /// A descriptor of it was closed.
    ///
    /// # Errors
    /// What `close(2)` of the last one says.
    pub fn flushed(&self, nodes: &KnownNodes) -> Result<(), Errno> {
        let mut state = lock(&self.state);
        let Some(flags) = flags_to_write(&state.file) else { return Ok(()) };
        // It stays open as it is if it cannot be opened otherwise.
        let Ok(reads) = reopened(&state.file, OFlags::RDONLY) else { return Ok(()) };
        nodes.is_open(self.node, &reads);
        state.closed = Some(flags);
        match Arc::into_inner(std::mem::replace(&mut state.file, reads)) {
            Some(file) => sheaf_file::close(file.into()),
            // Somebody else is writing at this moment.
            None => Ok(()),
        }
    }

    /// The file, if nobody else uses it.
    pub fn into_inner(self) -> Option<OwnedFd> {
        Arc::into_inner(self.state.into_inner().unwrap_or_else(|state| state.into_inner()).file)
    }
}

/// The descriptor that this user's file is about to take.
///
/// # Errors
/// `EMFILE` for a user who has too many open.
pub(super) fn one_more() -> Result<Holding, Errno> {
    let mut held = Holding::new();
    held.add(1, 0)?;
    Ok(held)
}

/// The flags of a regular file that is open for writing and that somebody may run.
fn flags_to_write(file: &OwnedFd) -> Option<OFlags> {
    let flags = rustix::fs::fcntl_getfl(file).ok()?;
    if flags & OFlags::ACCMODE == OFlags::RDONLY {
        return None;
    }
    let found = status(file.as_fd()).ok()?;
    let runs = found.kind == FileKind::File && found.raw_mode() & EXECUTE_BITS != 0;
    let kept = OFlags::ACCMODE | OFlags::APPEND | OFlags::SYNC | OFlags::NOATIME;
    runs.then_some(flags & kept)
}

/// The same file with other flags, for a client that had it open before.
fn reopened(file: &OwnedFd, flags: OFlags) -> Result<Arc<OwnedFd>, Errno> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
    let again = || rustix::fs::openat(CWD, path_of(file), flags, Mode::empty());
    Ok(Arc::new(as_process(again)?))
}

/// Whether a write of SQLite's gives a database the journal mode WAL, which no host but the owner could use any more:
/// that mode needs shared memory.
pub(super) fn changes_to_wal(file: &OwnedFd, page: &[u8], offset: u64) -> bool {
    const MAGIC: &[u8] = b"SQLite format 3\0";
    const VERSIONS: std::ops::Range<usize> = 18..20;
    const WAL: u8 = 2;
    if offset != 0 || !page.starts_with(MAGIC) {
        return false;
    }
    let Some(versions) = page.get(VERSIONS) else { return false };
    let mut before = [0; 2];
    let read = rustix::io::pread(file, &mut before, VERSIONS.start as u64);
    versions.contains(&WAL) && !(read == Ok(2) && before.contains(&WAL))
}
