//! Sessions that stay: a name, a socket of that name, and those who come to it.
use crate::audit::{RootAudit, plain};
use crate::clients;
use crate::config::{Config, Launch, own_name};
use crate::elsewhere::Word;
use crate::error::{SessionError, io_text};
use crate::gone::NAME_NOT_KNOWN;
use crate::session::Session;
use crate::sessions::{ENDED, Sessions};
use crate::settings;
use crate::shut::{Lack, Shut};
use crate::tokens;
use crate::wire::SessionInfo;
use rustix::fs::{Mode, OFlags, flock};
use sheaf_core::RangeSet;
use sheaf_tree::GateNews;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
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
    word: Option<Word>,
}

impl Reserved {
    /// Takes the name that the configuration means, before the tree is started.
    ///
    /// # Errors
    /// When a session of that name runs, or there is no place for its socket.
    pub fn take(config: &Config) -> Result<Self, SessionError> {
        let sessions = config.sessions();
        let name = config.session_name();
        let path = sessions.socket(name)?;
        let (lock, listener) = listen(&sessions, &path)?;
        let requests = bind(&path.with_extension("token"))?;
        let word = Word::leave(&sessions, config.environment(), name, &path);
        Ok(Self { lock, listener, requests, word })
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
        let desk = sheaf_tree::task::spawn(tokens::serve(requests, session.desk.clone()));
        Ok(Reachable { desk, listener, _word: self.word, _lock: self.lock })
    }
}

/// A session that those who make tokens reach. Once this is dropped nobody connects any more.
pub struct Reachable {
    desk: JoinHandle<()>,
    listener: tokio::net::UnixListener,
    _word: Option<Word>,
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
        let shut = Shut::new(session.client.clone());
        let mode = session.config.cluster.client_settings.audit();
        let audit = Arc::new(RootAudit::new(session.name(), mode));
        let rules = clients::rules(&session.config, &audit)?;
        let head = own_name();
        let said = |leaf| {
            let rights = rules.introduce(leaf).unwrap_or_default();
            let about = about_now(session, &about, &shut, OtherUsers::default());
            let (read_only, no_root) = (!rights.may_write, !rights.may_be_root);
            serde_json::to_vec(&SessionInfo { read_only, no_root, ..about })
                .expect("text and numbers are JSON")
        };
        let news = |leaf, news: GateNews<'_>| shut.hear(leaf, news);
        let gates = network.keep_gates(&session.topology, &rules, said, news);
        tokio::select! {
            done = self.serve_here(session, &about, &shut, &audit) => done,
            () = gates => Ok(()),
            () = audit.keep(&session.client, &head) => Ok(()),
            () = network.keep_introductions_for(&session.topology, &rules) => Ok(()),
        }
    }

    /// Lets clients of this machine in.
    async fn serve_here(
        &self,
        session: &Session,
        about: &SessionInfo,
        shut: &Shut,
        audit: &RootAudit,
    ) -> Result<(), SessionError> {
        let (mut others, mut failures) = (OtherUsers::default(), 0u32);
        loop {
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                // Out of descriptors, say: those who are in go on, and may leave.
                Err(error) => {
                    failures += 1;
                    // It goes on like this until something is freed: the log has room for more.
                    if failures.is_power_of_two() {
                        let ms = ACCEPT_PAUSE.as_millis();
                        tracing::warn!(%error, "no client can be let in, try {failures}; again in {ms} ms");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            failures = 0;
            // One client that cannot be told is no reason to end the session.
            let told = stream.peer_cred().and_then(|peer| Ok((peer, stream.into_std()?)));
            let (peer, stream) = match told {
                Ok(told) => told,
                Err(error) => {
                    tracing::warn!(%error, "a client could not be let in");
                    continue;
                }
            };
            if peer.uid() != rustix::process::getuid().as_raw() {
                tracing::warn!(uid = peer.uid(), "a client of another user was refused");
                audit.write_refusal(&format!(
                    "client: user {} on {}: refused",
                    peer.uid(),
                    own_name()
                ));
                others = OtherUsers { count: others.count + 1, at: now() };
                continue;
            }
            audit.write(&client_here(peer.uid(), peer.pid()));
            let about = serde_json::to_vec(&about_now(session, about, shut, others))
                .map_err(|source| SessionError::Protocol { what: "session".to_owned(), source })?;
            let link = OwnedFd::from(stream);
            if let Err(error) = session.client.network().admit(link, &session.topology, &about) {
                tracing::warn!(%error, "a client could not be let in");
            }
        }
    }
}

/// The audit's line of a client of this machine.
fn client_here(uid: u32, pid: Option<i32>) -> String {
    let pid = pid.unwrap_or_default();
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = words.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    let (host, words) = (own_name(), plain(words.join(" ").trim_end()));
    format!("client: user {uid} on {host}, process {pid}: {words}: admitted")
}

/// How often it is looked how many hosts have come.
const COME_LOOK: Duration = Duration::from_millis(50);

/// The hosts of a session that was waited for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Come {
    /// How many run.
    pub count: u64,
    /// Those that do not; of hosts that come by themselves, or of those that nobody waits for,
    /// only who is known to be lost.
    pub missing: RangeSet,
}

/// Whether no host of a session runs, and none will: whoever asks it asks nobody.
#[must_use]
pub fn is_hopeless(session: &Session, come: &Come) -> bool {
    let network = session.client.network();
    let mut known = RangeSet::new();
    session.gone().iter().for_each(|gone| known.union_with(&gone.leaves));
    // What is being started still is not known to be lost.
    let is_started = network.everyone().difference(&known).is_empty();
    come.count == 0 && network.present() == 0 && is_started && to_come(session) == 0
}

/// Which hosts run once all have started or failed to, or `wait` of them have started, or the time is
/// over in which another one had to start. Hosts that come by themselves come when they come: unless
/// `wait` says how many, none is waited for.
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
            let is_begun = network.ready(Duration::ZERO).await.is_some();
            if is_begun && network.present().saturating_add(to_come(session)) < wait {
                break;
            }
            tokio::time::sleep(COME_LOOK).await;
        }
        let count = network.present();
        if count >= wait {
            return Come { count, missing: lost(session) };
        }
    } else if let Some(leaves) = ready(session, patience).await {
        return Come { count: leaves.len(), missing: network.everyone().difference(&leaves) };
    }
    let survey = network.survey(COUNT_TIME).await;
    let nodes = survey.reports.iter().filter_map(|report| session.topology.node(report.rank));
    let leaves: RangeSet = nodes.filter_map(|node| node.leaf_index()).collect();
    Come { count: leaves.len(), missing: network.everyone().difference(&leaves) }
}

/// Those that run, once all have started or failed to; none after `patience` without another one.
async fn ready(session: &Session, patience: Duration) -> Option<RangeSet> {
    let (network, deadline) = (session.client.network(), session.config.deadline);
    let mut most = network.present();
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let ready = network.ready(left.map_or(patience, |left| left.min(patience))).await;
        let present = network.present();
        if ready.is_some() || present <= most || left.is_some_and(|left| left.is_zero()) {
            return ready;
        }
        most = present;
    }
}

/// How many of the hosts that have not started may come yet, in a tree that has started as far as
/// it will.
fn to_come(session: &Session) -> u64 {
    let config = &session.config;
    match config.launch() {
        Launch::Embedded | Launch::Processes => 0,
        // They come by themselves, or when the job begins.
        Launch::Attach | Launch::Slurm => u64::MAX,
        Launch::Ssh if config.tuning.relaunch_ms.value == 0 => 0,
        Launch::Ssh => {
            // Who was reached and cannot be started, or whose name nobody knows, is tried again in
            // vain.
            let mut in_vain = RangeSet::new();
            let mut down = RangeSet::new();
            for gone in session.gone() {
                let may_come = gone.is_down() && !gone.cause.contains(NAME_NOT_KNOWN);
                if may_come { &mut down } else { &mut in_vain }.union_with(&gone.leaves);
            }
            down.difference(&in_vain).len()
        }
    }
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
    let since = now();
    let cluster = &config.cluster;
    Ok(SessionInfo {
        cluster: cluster.name.value.clone(),
        hosts: config.hosts()?.everyone(),
        launch: cluster.launch.value.to_string(),
        tree: cluster.tree.value.clone(),
        export: cluster.export.value.clone(),
        settings: settings::of_start(config)?,
        kept_by: own_name(),
        pid: std::process::id(),
        since,
        refused: Vec::new(),
        refused_at: Vec::new(),
        shut: Vec::new(),
        shut_to_others: Vec::new(),
        unaudited: Vec::new(),
        read_only: false,
        no_root: false,
        event_times: Vec::new(),
    })
}

/// What a session tells of itself, as it is now.
fn about_now(
    session: &Session,
    about: &SessionInfo,
    shut: &Shut,
    other_users: OtherUsers,
) -> SessionInfo {
    let (refused, refused_at) = refused(session, other_users);
    SessionInfo {
        refused,
        refused_at,
        shut: shut.said(Lack::Gate),
        shut_to_others: shut.said(Lack::GateOfOthers),
        unaudited: shut.said(Lack::Audit),
        event_times: session.client.network().notice_times(),
        ..about.clone()
    }
}

/// Clients of other users that came to the session's own socket: how many, and when last.
#[derive(Clone, Copy, Default)]
struct OtherUsers {
    count: u64,
    at: u64,
}

/// Seconds since 1970.
fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Who was not let in so far: why and how often, and when last.
fn refused(session: &Session, others: OtherUsers) -> (Vec<(String, u64)>, Vec<u64>) {
    let network = session.client.network();
    let at_door = network.audit().refused.into_iter().map(|(why, count)| {
        let at = network.last_refused(why);
        ((why.phrase().to_owned(), count), at)
    });
    let clients = (others.count > 0)
        .then(|| (("a client of another user".to_owned(), others.count), others.at));
    at_door.chain(clients).unzip()
}

/// Makes the socket; a lock beside it decides between two that start at once.
fn listen(sessions: &Sessions, path: &Path) -> Result<(Lock, UnixListener), SessionError> {
    prepare(sessions)?;
    check_length(path)?;
    let lock = Lock::take(path)?;
    if let Err(error) = std::fs::remove_file(path.with_extension(ENDED))
        && error.kind() != ErrorKind::NotFound
    {
        tracing::warn!(%error, "why the session before this one has ended stays written down");
    }
    Ok((lock, bind(path)?))
}

/// Whether a process has the name that this socket is for, whatever it does with it.
pub(crate) fn is_held(socket: &Path) -> bool {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let lock = rustix::fs::open(socket.with_extension("lock"), flags, Mode::empty());
    lock.is_ok_and(|lock| flock(&lock, rustix::fs::FlockOperation::NonBlockingLockShared).is_err())
}

/// Removes a socket that nobody listens at any more, with what belongs to it; whether that was
/// done.
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
        "its sockets in {} would have paths of {bytes} bytes, and {SOCKET_PATH_BYTES_MAX} are the \
         most: set XDG_RUNTIME_DIR to a directory with a shorter path, or give a shorter \
         --session NAME",
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
