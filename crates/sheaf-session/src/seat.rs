//! Where a session listens. It stays there whatever becomes of the directory: the runtime directory of
//! a user goes with the last login, and what cleans directories for temporary files may take its sockets.
use crate::elsewhere::Words;
use crate::environment::Environment;
use crate::error::{SessionError, io_text};
use crate::gates::keeper;
use crate::log::LogPlace;
use crate::session::Session;
use crate::sessions::{ENDED, Sessions};
use crate::tokens;
use rustix::fs::{Mode, OFlags, flock};
use sheaf_tree::launch::Desk;
use sheaf_tree::link::watch::{NameWatch, NamedFile, file_at};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

/// The longest path that the system takes for a socket.
pub(crate) const SOCKET_PATH_BYTES_MAX: usize = 107;

/// How often a socket is put in the place of another one that is made again meanwhile.
const BIND_TRIES: u32 = 8;

/// How long it takes at most to see that a socket is gone, where the system does not tell.
const LOOK: Duration = Duration::from_millis(250);

/// The most sockets that a session has kept from places which may come back: a directory that is moved, or
/// under another mount, may come back with the socket in it.
const SEATS_MAX: usize = 8;

/// How long a session waits after it found no place for its socket.
const PLACE_PAUSE: Duration = Duration::from_secs(1);

/// A name that is taken, with sockets at which nobody is answered yet.
pub(crate) struct Place {
    lock: Arc<Lock>,
    listener: UnixListener,
    requests: UnixListener,
    words: Option<Arc<Words>>,
}

/// The sockets of a session that runs.
pub(crate) struct Seat {
    listener: tokio::net::UnixListener,
    desk: JoinHandle<()>,
    watch: NameWatch,
    words: Option<Arc<Words>>,
    keeping: Option<JoinHandle<()>>,
    lock: Arc<Lock>,
    /// The file of the socket, by which it is known whether it has a name anywhere.
    file: Option<NamedFile>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.desk.abort();
        self.keeping.iter().for_each(JoinHandle::abort);
        // The lock, which decides whose they are otherwise, may have been removed.
        if self.watch.is_there() {
            let _ = std::fs::remove_file(&self.lock.socket);
            let _ = std::fs::remove_file(self.lock.socket.with_extension("token"));
        }
    }
}

impl Place {
    /// Takes a name in this directory.
    ///
    /// # Errors
    /// When a session of that name runs there, or there is no place for its socket.
    pub fn take(
        sessions: &Sessions,
        environment: &Environment,
        name: &str,
    ) -> Result<Self, SessionError> {
        let socket = sessions.socket(name)?;
        prepare(sessions)?;
        check_length(&socket)?;
        // It decides between two that start at once.
        let lock = Lock::take(&socket)?;
        if let Err(error) = std::fs::remove_file(socket.with_extension(ENDED))
            && error.kind() != ErrorKind::NotFound
        {
            tracing::warn!(%error, "why the session before this one has ended stays written down");
        }
        let place = Self::listen(Arc::new(lock))?;
        let words = Words::leave(sessions, environment, name, &socket);
        Ok(Self { words: Some(Arc::new(words)), ..place })
    }

    fn listen(lock: Arc<Lock>) -> Result<Self, SessionError> {
        let listener = bind(&lock.socket)?;
        let requests = bind(&lock.socket.with_extension("token"))?;
        Ok(Self { words: None, lock, listener, requests })
    }

    /// Answers those who have a token made.
    ///
    /// # Errors
    /// When a socket cannot be used.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn open(self, desk: Option<Arc<Desk>>) -> Result<Seat, SessionError> {
        let socket = |socket| {
            tokio::net::UnixListener::from_std(socket).map_err(SessionError::io("session"))
        };
        let watch = NameWatch::of(&self.lock.socket).map_err(SessionError::io("session"))?;
        let (listener, requests) = (socket(self.listener)?, socket(self.requests)?);
        let file = NamedFile::at(&self.lock.socket);
        let desk = sheaf_tree::task::spawn(tokens::serve(requests, desk));
        let keep = |words| sheaf_tree::task::spawn(Words::keep(Arc::downgrade(words)));
        let keeping = self.words.as_ref().map(keep);
        Ok(Seat { listener, desk, watch, words: self.words, keeping, lock: self.lock, file })
    }
}

/// The sockets of a session: the first one, and those that took its place when that was away. Each is
/// served whose directory comes back.
pub(crate) struct Seats<'a> {
    first: &'a Seat,
    later: Vec<Seat>,
    log: Option<&'a LogPlace>,
}

impl<'a> Seats<'a> {
    pub fn new(first: &'a Seat, log: Option<&'a LogPlace>) -> Self {
        Self { first, later: Vec::new(), log }
    }

    fn all(&self) -> impl Iterator<Item = &Seat> {
        self.later.iter().rev().chain([self.first])
    }

    /// The next client, at whichever socket.
    pub async fn accept(&self) -> std::io::Result<UnixStream> {
        std::future::poll_fn(|cx| {
            let accepted = self.all().map(|seat| seat.listener.poll_accept(cx));
            accepted.into_iter().find(Poll::is_ready).unwrap_or(Poll::Pending)
        })
        .await
        .map(|(stream, _)| stream)
    }

    /// Waits until no socket has its name: nobody comes there any more.
    pub async fn removed(&self) {
        while let Some(seat) = self.all().find(|seat| seat.watch.is_there()) {
            seat.removed().await;
        }
    }

    /// Adds another socket for the same session, in the same place or where callers look as well, unless one
    /// comes back meanwhile.
    pub async fn add(&mut self, session: &Session) {
        let old = self.later.last().unwrap_or(self.first).lock.socket.display().to_string();
        let (config, name) = (&session.config, session.name());
        let mut tries = 0u32;
        while !self.all().any(|seat| seat.watch.is_there()) {
            tries = tries.saturating_add(1);
            for sessions in config.sessions().and_those_that_last(config.environment()) {
                let place = self.place_in(&sessions, session);
                match place.and_then(|place| place.open(session.desk.clone())) {
                    Ok(seat) => {
                        self.log.iter().for_each(|log| log.go_to(sessions.log(name)));
                        let new = seat.lock.socket.display();
                        tracing::warn!("{old} was removed: session {name} listens at {new}");
                        self.push(seat);
                        return;
                    }
                    Err(error) if tries.is_power_of_two() => {
                        tracing::warn!(%error, "{old} was removed, try {tries}");
                    }
                    Err(_) => {}
                }
            }
            tokio::time::sleep(PLACE_PAUSE).await;
        }
    }

    fn place_in(&self, sessions: &Sessions, session: &Session) -> Result<Place, SessionError> {
        let (name, environment) = (session.name(), session.config.environment());
        let socket = sessions.socket(name)?;
        // Where the lock is left, nobody else has taken the name.
        let is_ours = |seat: &&Seat| socket == seat.lock.socket && seat.lock.is_there();
        match self.all().find(is_ours) {
            Some(seat) => {
                let place = Place::listen(Arc::clone(&seat.lock))?;
                Ok(Place { words: seat.words.clone(), ..place })
            }
            None => Place::take(sessions, environment, name),
        }
    }

    fn push(&mut self, new: Seat) {
        self.later.retain(Seat::may_return);
        if self.later.len() >= SEATS_MAX {
            self.later.remove(0);
        }
        self.later.push(new);
    }
}

impl Seat {
    /// Whether the socket has a name, though perhaps in a directory that cannot be reached now.
    fn may_return(&self) -> bool {
        self.file.as_ref().is_some_and(NamedFile::has_a_name)
    }

    /// Waits until the socket has lost its name: nobody comes there any more.
    pub async fn removed(&self) {
        self.watch.gone(LOOK).await;
    }
}

/// Whether a process has the name that this socket is for, whatever it does with it.
pub(crate) fn is_held(socket: &Path) -> bool {
    is_locked(&socket.with_extension("lock"))
}

/// Whether a process has locked this file.
pub(crate) fn is_locked(path: &Path) -> bool {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let lock = rustix::fs::open(path, flags, Mode::empty());
    lock.is_ok_and(|lock| flock(&lock, rustix::fs::FlockOperation::NonBlockingLockShared).is_err())
}

/// Locks this file, which is made if it is not there; nothing if another process has.
pub(crate) fn locked(path: &Path) -> Result<Option<OwnedFd>, SessionError> {
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    loop {
        let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|errno| none_at(path, &errno.into()))?;
        if flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(None);
        }
        // Whoever had it in between has removed the file that is locked now.
        if is_at(&file, path) {
            return Ok(Some(file));
        }
    }
}

pub(crate) fn is_at(file: &OwnedFd, path: &Path) -> bool {
    let locked = rustix::fs::fstat(file).map(|locked| (locked.st_dev, locked.st_ino));
    locked.is_ok_and(|locked| file_at(path) == Some(locked))
}

/// Removes a socket that nobody listens at any more, with what belongs to it, if it is to go: whoever
/// runs, or begins to, has its lock, and is not asked about.
pub(crate) fn clear_if(socket: &Path, is_to_go: impl FnOnce() -> bool) {
    let Ok(Some(lock)) = locked(&socket.with_extension("lock")) else { return };
    if is_to_go() {
        drop(lock);
        drop(Lock::take(socket));
    }
}

/// Makes the directory for sockets, if there is none.
pub(crate) fn prepare(sessions: &Sessions) -> Result<(), SessionError> {
    use std::os::unix::fs::DirBuilderExt;
    let directory = sessions.directory();
    match std::fs::DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(none_at(directory, &error)),
        _ => sessions.check_directory(),
    }
}

/// No session can be had because of this file.
fn none_at(path: &Path, error: &std::io::Error) -> SessionError {
    let text = io_text(path, error);
    SessionError::NoPlace(format!(
        "{text}; sessions have their sockets there ($XDG_RUNTIME_DIR, or $TMPDIR)"
    ))
}

/// The system takes no long path for a socket.
fn check_length(path: &Path) -> Result<(), SessionError> {
    let bytes = path.with_extension("token").as_os_str().len();
    if bytes <= SOCKET_PATH_BYTES_MAX {
        return Ok(());
    }
    Err(SessionError::NoPlace(format!(
        "its sockets in {} would have paths of {bytes} bytes, and {SOCKET_PATH_BYTES_MAX} are the \
         most: set XDG_RUNTIME_DIR to a directory with a shorter path, or give a shorter \
         --session NAME",
        path.parent().unwrap_or(path).display()
    )))
}

/// Listens at a path that is ours; what an earlier session has left there goes.
pub(crate) fn bind(path: &Path) -> Result<UnixListener, SessionError> {
    let mut tries = 0;
    let listener = loop {
        tries += 1;
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(none_at(path, &error)),
            _ => {}
        }
        match UnixListener::bind(path) {
            // The one whose socket that was listens again, until it sees this one.
            Err(error) if error.kind() == ErrorKind::AddrInUse && tries < BIND_TRIES => {}
            bound => break bound.map_err(|error| none_at(path, &error))?,
        }
    };
    listener.set_nonblocking(true).map_err(SessionError::io("session"))?;
    Ok(listener)
}

/// The file whose lock decides who is the session of a name; it and the socket go with the session.
struct Lock {
    path: PathBuf,
    socket: PathBuf,
    file: OwnedFd,
}

impl Lock {
    fn take(socket: &Path) -> Result<Self, SessionError> {
        let path = socket.with_extension("lock");
        let Some(file) = locked(&path)? else {
            let name = socket.file_stem().unwrap_or_default().to_string_lossy();
            let why = format!("another process starts or runs session {name}");
            return Err(Sessions::taken(&name, &why));
        };
        // What servers are told stays, though the machine be called otherwise by then.
        if let Err(error) = rustix::io::pwrite(&file, keeper().as_bytes(), 0) {
            tracing::warn!(%error, "{}", path.display());
        }
        Ok(Self { path, socket: socket.to_owned(), file })
    }

    /// Whether the file that is locked has its name still.
    fn is_there(&self) -> bool {
        is_at(&self.file, &self.path)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Others may have taken the name in a directory that was removed.
        if !self.is_there() {
            return;
        }
        let _ = std::fs::remove_file(&self.socket);
        let _ = std::fs::remove_file(self.socket.with_extension("token"));
        // Still locked: whoever opens it now finds another file, or none, under its name.
        let _ = std::fs::remove_file(&self.path);
    }
}
