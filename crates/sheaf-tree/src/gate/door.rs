//! The sockets of a host's gates. Each is there for as long as the session lasts: it is made again once it is
//! removed, and one that could not be made is tried again. The root is told of those that are missing.
use super::{
    GATE, GateKeeper, SHUT, SHUT_PAUSE_MAX, SHUT_PAUSE_MIN, SHUT_TO_OTHERS, ask_for_stream, who,
};
use crate::link::watch::{NameWatch, NamedFile, file_at};
use crate::service::{LeafHandle, NOTE_BYTES_MAX};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use sheaf_core::lock;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// How often it is looked whether a gate has its file still, where the system does not tell.
const GATE_LOOK: Duration = Duration::from_millis(250);
/// The most sockets that a gate listens at: those of directories that are moved, or under another mount, may
/// come back.
const SOCKETS_MAX: usize = 4;
/// How long a gate has none before it is made again.
const GATE_PAUSE: Duration = Duration::from_millis(2);
/// How long a gate pauses after it could not take a client in.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How the file is called, in place of the extension of a gate, that a gate leaves behind when its
/// host has lost the session: its time is when that was.
pub const LOST: &str = "lost";

/// Makes the socket of a listener, perhaps in another place.
pub type ListenAgain =
    dyn Fn() -> io::Result<(std::os::unix::net::UnixListener, PathBuf)> + Send + Sync;

/// Where clients of one host connect; its file goes with it.
pub struct Listener {
    /// Bound and not blocking; only those whom the session is for can open it. Or why there is none yet.
    pub socket: Result<std::os::unix::net::UnixListener, String>,
    /// Its path.
    pub path: PathBuf,
    /// Who is let in there.
    pub admits: Admits,
    /// Makes the socket where there is none, or its own has lost its name.
    pub again: Box<ListenAgain>,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("path", &self.path).field("admits", &self.admits).finish()
    }
}

/// Whom a gate lets in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admits {
    /// The user of the server's process.
    Own,
    /// A user of this number, as itself.
    User(u32),
    /// Every user, as itself.
    Anybody,
}

impl Admits {
    /// Whether a process of this user may come in; and whether it is the server's own, `own`.
    /// Others are let in by root alone: nobody else can do anything with their rights.
    pub(super) fn judge(self, uid: u32, own: u32) -> Option<bool> {
        let is_own = uid == own;
        let is_meant = match self {
            Self::Own => is_own,
            Self::User(user) => is_own || uid == user,
            Self::Anybody => true,
        };
        (is_meant && (is_own || own == 0)).then_some(is_own)
    }
}

/// What a host lacks, and why: by what the root is told of it, and by the number of what is missing.
#[derive(Default)]
pub(super) struct Lacks {
    /// What was lacking and is there again has no reason.
    why: Mutex<BTreeMap<&'static str, BTreeMap<usize, String>>>,
    changed: Notify,
}

impl Lacks {
    pub fn begin(&self, what: &'static str, number: usize, why: String) {
        let before = lock(&self.why).entry(what).or_default().insert(number, why.clone());
        if before.is_none_or(|before| before != why) {
            self.changed.notify_one();
        }
    }

    fn end(&self, what: &'static str, number: usize) {
        if lock(&self.why).get_mut(what).is_some_and(|why| why.remove(&number).is_some()) {
            self.changed.notify_one();
        }
    }

    fn notes(&self) -> Vec<Vec<u8>> {
        let why = lock(&self.why);
        let note = |(what, why): (&&str, &BTreeMap<usize, String>)| {
            let mut all: Vec<&str> = why.values().map(String::as_str).collect();
            all.dedup();
            let note = format!("{what}{}", all.join("; "));
            note.as_bytes()[..note.floor_char_boundary(NOTE_BYTES_MAX)].to_vec()
        };
        why.iter().map(note).collect()
    }

    /// Tells the root again and again for as long as the session lasts: what is told may be lost.
    pub async fn tell(self: Arc<Self>, handle: LeafHandle) {
        let (mut pause, mut is_over) = (SHUT_PAUSE_MIN, false);
        self.changed.notified().await;
        while !is_over {
            if tokio::time::timeout(pause, self.changed.notified()).await.is_ok() {
                pause = SHUT_PAUSE_MIN;
                continue;
            }
            pause = (pause * 4).min(SHUT_PAUSE_MAX);
            is_over = true;
            handle.with(|leaf| {
                self.notes().iter().for_each(|note| leaf.want_stream(GATE, note));
                is_over = false;
            });
        }
    }
}

/// A gate. Dropped, nobody connects any more.
pub(super) struct Opened {
    sockets: Arc<Mutex<GateSockets>>,
    accepts: JoinHandle<()>,
}

/// The sockets of a gate.
struct GateSockets {
    /// Where the newest is, or is to be.
    path: PathBuf,
    /// Those that are listened at: the newest is the last. A server that comes after this one puts another file
    /// in the place of one.
    all: Vec<GateSocket>,
    /// None is made any more.
    is_over: bool,
}

struct GateSocket {
    file: NamedFile,
    listener: Arc<UnixListener>,
}

impl GateSockets {
    /// Takes in a socket that was just made. The host is in the session again.
    fn add(&mut self, path: PathBuf, listener: UnixListener) {
        let _ = std::fs::remove_file(path.with_extension(LOST));
        // Those of directories that are moved, or under another mount, may come back.
        self.all.retain(|socket| socket.file.has_a_name());
        let listener = Arc::new(listener);
        // One that has lost its name already is made again.
        self.all.extend(NamedFile::at(&path).map(|file| GateSocket { file, listener }));
        let most = self.all.len().saturating_sub(SOCKETS_MAX);
        self.all.drain(..most);
        self.path = path;
    }

    fn listeners(&self) -> Vec<Arc<UnixListener>> {
        self.all.iter().rev().map(|socket| Arc::clone(&socket.listener)).collect()
    }

    fn is_there(&self) -> bool {
        self.there().next().is_some()
    }

    /// The names of those that have them.
    fn there(&self) -> impl Iterator<Item = &Path> {
        let there = self.all.iter().filter(|socket| socket.file.is_there());
        there.map(|socket| socket.file.path())
    }
}

impl Opened {
    /// `number` is that among the gates of this host.
    pub fn begin(
        keeper: &Arc<GateKeeper>,
        (number, listener): (usize, Listener),
        lacks: &Arc<Lacks>,
    ) -> Self {
        let Listener { socket, path, admits, again } = listener;
        let socket = socket.and_then(|it| UnixListener::from_std(it).map_err(|e| e.to_string()));
        let what = if admits == Admits::Own { SHUT } else { SHUT_TO_OTHERS };
        let mut sockets = GateSockets { path: path.clone(), all: Vec::new(), is_over: false };
        match socket {
            Ok(socket) => sockets.add(path, socket),
            Err(why) => {
                tracing::warn!("{what}{why}");
                lacks.begin(what, number, why);
            }
        }
        let sockets = Arc::new(Mutex::new(sockets));
        let lacks = Arc::clone(lacks);
        let place = Place { sockets: Arc::clone(&sockets), again, lacks, what, number };
        let accepts = crate::task::spawn(accept(Arc::clone(keeper), place, admits));
        Self { sockets, accepts }
    }

    /// Leaves a word behind that this host was in a session. A command here would otherwise mean
    /// this machine alone. Where it cannot be written the socket stays, at which nobody listens.
    pub fn leave_word(&mut self) {
        let mut gate = lock(&self.sockets);
        let mut left = Vec::new();
        for path in gate.there() {
            let word = path.with_extension(LOST);
            if let Err(error) = std::fs::write(&word, "") {
                let (path, word) = (path.display(), word.display());
                tracing::warn!(%error, "{path} is left, for want of {word}");
                left.push(path.to_string());
            }
        }
        gate.all.retain(|socket| !left.contains(&socket.file.path().display().to_string()));
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.accepts.abort();
        let mut gate = lock(&self.sockets);
        gate.is_over = true;
        for path in gate.there() {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Takes clients in, as long as the session lasts.
async fn accept(keeper: Arc<GateKeeper>, place: Place, admits: Admits) {
    let own = rustix::process::geteuid().as_raw();
    let mut failures = 0u32;
    let mut listeners = lock(&place.sockets).listeners();
    let mut made = Box::pin(place.make_again());
    loop {
        let accepted = tokio::select! {
            accepted = next(&listeners) => accepted,
            () = &mut made => {
                listeners = lock(&place.sockets).listeners();
                made = Box::pin(place.make_again());
                continue;
            }
        };
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) => {
                failures += 1;
                if failures.is_power_of_two() {
                    let ms = ACCEPT_PAUSE.as_millis();
                    tracing::warn!(%error, "no client can be let in, try {failures}; again in {ms} ms");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        failures = 0;
        match who(&stream, admits, own) {
            Ok(who) => {
                crate::task::spawn(ask_for_stream(Arc::clone(&keeper), who, stream));
            }
            Err(error) => tracing::warn!(%error, "a client was not let in"),
        }
    }
}

/// The next client, at whichever socket.
async fn next(listeners: &[Arc<UnixListener>]) -> io::Result<UnixStream> {
    std::future::poll_fn(|cx| {
        let mut accepted = listeners.iter().map(|listener| listener.poll_accept(cx));
        accepted.find(Poll::is_ready).unwrap_or(Poll::Pending)
    })
    .await
    .map(|(stream, _)| stream)
}

/// Where a gate is, and what is told when it is not.
struct Place {
    sockets: Arc<Mutex<GateSockets>>,
    again: Box<ListenAgain>,
    lacks: Arc<Lacks>,
    what: &'static str,
    number: usize,
}

impl Place {
    /// Makes another socket, once those of the gate have lost their names to nobody: one of a later server stays.
    async fn make_again(&self) {
        let (mut tries, mut others) = (0u32, None);
        loop {
            self.removed().await;
            // A server that comes after this one has none there for a moment.
            tokio::time::sleep(GATE_PAUSE).await;
            let path = lock(&self.sockets).path.clone();
            if lock(&self.sockets).is_there() {
                continue;
            }
            // A connection is tried once only at each: it takes a client's place there.
            let there = file_at(&path);
            if there.is_some() && (there == others || is_of_others(&path)) {
                others = there;
                self.lacks.end(self.what, self.number);
                tokio::time::sleep(GATE_LOOK).await;
                continue;
            }
            tries = tries.saturating_add(1);
            match self.make() {
                Ok(true) => {
                    self.lacks.end(self.what, self.number);
                    return;
                }
                Ok(false) => {}
                Err(error) => {
                    if tries.is_power_of_two() {
                        tracing::warn!(%error, "{} cannot be made, try {tries}", path.display());
                    }
                    self.lacks.begin(self.what, self.number, error.to_string());
                }
            }
            tokio::time::sleep(GATE_LOOK).await;
        }
    }

    /// Waits until no socket of the gate has its name.
    async fn removed(&self) {
        loop {
            let there = lock(&self.sockets).there().next().map(Path::to_owned);
            let Some(path) = there else { return };
            if let Ok(watch) = NameWatch::of(&path) {
                watch.gone(GATE_LOOK).await;
            }
        }
    }

    /// Makes the socket, unless the gate is over.
    fn make(&self) -> io::Result<bool> {
        let mut gate = lock(&self.sockets);
        if gate.is_over {
            return Ok(false);
        }
        let (socket, new) = (self.again)()?;
        let listener = UnixListener::from_std(socket)?;
        tracing::warn!("{} was missing: clients come by {}", gate.path.display(), new.display());
        gate.add(new, listener);
        Ok(true)
    }
}

/// Whether another server listens at a socket there. Anything else is in the way of it alone, as is a socket
/// that came back with its directory, and at which nobody listens.
fn is_of_others(path: &Path) -> bool {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    // A server that stands still, with no room for more clients, is not waited for.
    let connect = || {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)
    };
    is_socket && connect() != Err(rustix::io::Errno::CONNREFUSED)
}
