//! Sessions that stay: a name, a socket of that name, and those who come to it.
use crate::config::{Config, Launch};
use crate::error::{SessionError, io_text};
use crate::session::Session;
use crate::sessions::{ENDED, Sessions};
use crate::tokens;
use crate::wire::SessionInfo;
use rustix::fs::{Mode, OFlags, flock};
use sheaf_core::{RangeSet, lock};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// How long those may take to say so that have started in time, where others have not.
const COUNT_TIME: Duration = Duration::from_millis(400);

/// How long a session waits after it could not let a client in.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The longest path that the system takes for a socket.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// The name of a session, taken: nobody else's session has it until this is dropped.
pub struct Reserved {
    lock: Lock,
    listener: UnixListener,
    requests: UnixListener,
}

impl Reserved {
    /// Takes the name that the configuration means, before the tree is started.
    ///
    /// # Errors
    /// When a session of that name runs, or there is no place for its socket.
    pub fn take(config: &Config) -> Result<Self, SessionError> {
        let sessions = config.sessions();
        let path = sessions.socket(config.session_name())?;
        let (lock, listener) = listen(&sessions, &path)?;
        Ok(Self { lock, listener, requests: bind(&path.with_extension("token"))? })
    }

    /// Opens for those who have a token made, now that the tree is there.
    ///
    /// # Errors
    /// When a socket cannot be used.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn open(self, session: &Session) -> Result<Reachable, SessionError> {
        let socket = |socket| {
            tokio::net::UnixListener::from_std(socket).map_err(SessionError::io("session"))
        };
        let (listener, requests) = (socket(self.listener)?, socket(self.requests)?);
        let desk = tokio::spawn(tokens::serve(requests, session.desk.clone()));
        Ok(Reachable { desk, listener, _lock: self.lock })
    }
}

/// A session that those who make tokens reach. Once this is dropped nobody connects any more.
pub struct Reachable {
    desk: JoinHandle<()>,
    listener: tokio::net::UnixListener,
    _lock: Lock,
}

impl Drop for Reachable {
    fn drop(&mut self) {
        self.desk.abort();
    }
}

impl Reachable {
    /// Lets clients in, for as long as this is polled.
    ///
    /// # Errors
    /// When the hosts cannot be told.
    pub async fn serve(&self, session: &Session) -> Result<(), SessionError> {
        let about = about(&session.config)?;
        let network = session.client.network();
        let shut = Shut { session, hosts: Mutex::default() };
        let said = || serde_json::to_vec(&about_now(session, &about, &shut, 0));
        let said = || said().expect("text and numbers are JSON");
        let gates = network.keep_gates(&session.topology, said, |leaf, why| shut.tell(leaf, why));
        tokio::select! {
            done = self.serve_here(session, &about, &shut) => done,
            () = gates => Ok(()),
            () = network.keep_introductions(&session.topology) => Ok(()),
        }
    }

    /// Lets clients of this machine in.
    async fn serve_here(
        &self,
        session: &Session,
        about: &SessionInfo,
        shut: &Shut<'_>,
    ) -> Result<(), SessionError> {
        let mut others = 0;
        let trouble = |error| SessionError::io("session")(error);
        loop {
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                // Out of descriptors, say: those who are in go on, and may leave.
                Err(error) => {
                    tracing::warn!(%error, "a client could not be let in");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let peer = stream.peer_cred().map_err(trouble)?;
            if peer.uid() != rustix::process::getuid().as_raw() {
                tracing::warn!(uid = peer.uid(), "a client of another user was refused");
                others += 1;
                continue;
            }
            let about = serde_json::to_vec(&about_now(session, about, shut, others))
                .map_err(|source| SessionError::Protocol { what: "session".to_owned(), source })?;
            let link = OwnedFd::from(stream.into_std().map_err(trouble)?);
            if let Err(error) = session.client.network().admit(link, &session.topology, &about) {
                tracing::warn!(%error, "a client could not be let in");
            }
        }
    }
}

/// Hosts that have no gate.
struct Shut<'a> {
    session: &'a Session,
    /// By why.
    hosts: Mutex<BTreeMap<String, RangeSet>>,
}

impl Shut<'_> {
    /// This one has none, for this reason; or it has one.
    fn tell(&self, leaf: u32, why: Option<&str>) {
        let (one, mut hosts) = (RangeSet::single(leaf), lock(&self.hosts));
        let why = why.map(printable);
        if why.as_ref().is_some_and(|why| hosts.get(why).is_some_and(|all| all.contains(leaf))) {
            return;
        }
        hosts.values_mut().for_each(|all| *all = all.difference(&one));
        hosts.retain(|_, all| !all.is_empty());
        if let Some(why) = why {
            let host = self.session.client.fold(&one);
            tracing::warn!("programs on {host} cannot use this session: {why}");
            hosts.entry(why).or_default().union_with(&one);
        }
    }

    /// For clients.
    fn said(&self) -> Vec<(String, String)> {
        let fold = |all| self.session.client.fold(all);
        lock(&self.hosts).iter().map(|(why, all)| (fold(all), why.clone())).collect()
    }
}

/// What a host says, for a terminal.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

/// How often it is looked how many hosts have come.
const COME_LOOK: Duration = Duration::from_millis(50);

/// The hosts of a session that was waited for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Come {
    /// How many run.
    pub count: u64,
    /// Those that do not; of hosts that come by themselves, or of those that nobody waits for, only
    /// who is known to be lost.
    pub missing: RangeSet,
}

/// Which hosts run once all have started or failed to, or `wait` of them have started, or the
/// time to do so is over. Hosts that come by themselves come when they come: unless `wait` says how
/// many, none is waited for.
pub async fn started(session: &Session, wait: Option<u64>) -> Come {
    let config = &session.config;
    if config.launch() == Launch::Attach && wait.is_none() {
        return Come::default();
    }
    let network = session.client.network();
    let start_timeout = Duration::from_millis(config.tuning.start_timeout_ms.value);
    let left = config.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    // Who waits for hosts that others start says for how long.
    let patience = match left {
        Some(left) if wait.is_some() => left,
        left => left.map_or(start_timeout, |left| left.min(start_timeout)),
    };
    if let Some(wait) = wait {
        let end = Instant::now() + patience;
        while network.present() < wait && Instant::now() < end {
            tokio::time::sleep(COME_LOOK).await;
        }
        let count = network.present();
        if count >= wait {
            return Come { count, missing: lost(session) };
        }
    } else if let Some(leaves) = network.ready(patience).await {
        return Come { count: leaves.len(), missing: network.everyone().difference(&leaves) };
    }
    let survey = network.survey(COUNT_TIME).await;
    let nodes = survey.reports.iter().filter_map(|report| session.topology.node(report.rank));
    let leaves: RangeSet = nodes.filter_map(|node| node.leaf_index()).collect();
    Come { count: leaves.len(), missing: network.everyone().difference(&leaves) }
}

/// Who is known to be lost of hosts that are started from here; others may come yet.
fn lost(session: &Session) -> RangeSet {
    let mut lost = RangeSet::new();
    if session.config.launch() != Launch::Attach {
        session.gone().iter().for_each(|gone| lost.union_with(&gone.leaves));
    }
    lost
}

fn about(config: &Config) -> Result<SessionInfo, SessionError> {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let cluster = &config.cluster;
    Ok(SessionInfo {
        cluster: cluster.name.value.clone(),
        hosts: config.hosts()?.everyone(),
        launch: cluster.launch.value.to_string(),
        tree: cluster.tree.value.clone(),
        export: cluster.export.value.clone(),
        pid: std::process::id(),
        since,
        refused: Vec::new(),
        shut: Vec::new(),
        event_times: Vec::new(),
    })
}

/// What a session tells of itself, as it is now.
fn about_now(
    session: &Session,
    about: &SessionInfo,
    shut: &Shut<'_>,
    other_users: u64,
) -> SessionInfo {
    SessionInfo {
        refused: refused(session, other_users),
        shut: shut.said(),
        event_times: session.client.network().notice_times(),
        ..about.clone()
    }
}

/// Who was not let in so far: why, and how often.
fn refused(session: &Session, other_users: u64) -> Vec<(String, u64)> {
    let audit = session.client.network().audit();
    let at_door = audit.refused.iter().map(|(why, count)| (why.phrase().to_owned(), *count));
    let clients = (other_users > 0).then(|| ("a client of another user".to_owned(), other_users));
    at_door.chain(clients).collect()
}

/// Makes the socket; a lock beside it decides between two that start at once.
fn listen(sessions: &Sessions, path: &Path) -> Result<(Lock, UnixListener), SessionError> {
    prepare(sessions)?;
    check_length(path)?;
    let lock = Lock::take(path)?;
    let _ = std::fs::remove_file(path.with_extension(ENDED));
    Ok((lock, bind(path)?))
}

/// Whether a process has the name that this socket is for, whatever it does with it.
pub(crate) fn is_held(socket: &Path) -> bool {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let lock = rustix::fs::open(socket.with_extension("lock"), flags, Mode::empty());
    lock.is_ok_and(|lock| flock(&lock, rustix::fs::FlockOperation::NonBlockingLockShared).is_err())
}

/// Removes a socket that nobody listens at any more, with what belongs to it; whether that was done.
pub(crate) fn clear(socket: &Path) -> bool {
    Lock::take(socket).map(drop).is_ok()
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
        "its sockets in {} would have paths of {bytes} bytes, and {SOCKET_PATH_BYTES_MAX} are the most: set \
         XDG_RUNTIME_DIR to a directory with a shorter path, or give a shorter --session NAME",
        path.parent().unwrap_or(path).display()
    )))
}

/// Listens at a path that is ours; what an earlier session has left there goes.
pub(crate) fn bind(path: &Path) -> Result<UnixListener, SessionError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(none_at(path, &error)),
        _ => {}
    }
    let listener = UnixListener::bind(path).map_err(|error| none_at(path, &error))?;
    listener.set_nonblocking(true).map_err(SessionError::io("session"))?;
    Ok(listener)
}

/// The file whose lock decides who is the session of a name; it and the socket go with the session.
struct Lock {
    path: PathBuf,
    socket: PathBuf,
    _file: OwnedFd,
}

impl Lock {
    fn take(socket: &Path) -> Result<Self, SessionError> {
        let path = socket.with_extension("lock");
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        loop {
            let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)
                .map_err(|errno| none_at(&path, &errno.into()))?;
            if flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err() {
                let name = socket.file_stem().unwrap_or_default().to_string_lossy();
                let why = format!("another process starts or runs session {name}");
                return Err(Sessions::taken(&name, &why));
            }
            // A session that ended in between has removed the file that is locked now.
            let locked =
                rustix::fs::fstat(&file).map_err(|errno| none_at(&path, &errno.into()))?.st_ino;
            if rustix::fs::lstat(&path).is_ok_and(|there| there.st_ino == locked) {
                return Ok(Self { path, socket: socket.to_owned(), _file: file });
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.socket);
        let _ = std::fs::remove_file(self.socket.with_extension("token"));
        // Still locked: whoever opens it now finds another file, or none, under its name.
        let _ = std::fs::remove_file(&self.path);
    }
}
