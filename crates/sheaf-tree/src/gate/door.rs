//! The sockets of a host's gates. Each is there for as long as the session lasts: it is made again once it is
//! removed, and one that could not be made is tried again. The root is told of those that are missing.
use super::{
    GATE, GateKeeper, SHUT, SHUT_PAUSE_MAX, SHUT_PAUSE_MIN, SHUT_TO_OTHERS, ask_for_stream, who,
};
use crate::link::watch::{NameWatch, file_at};
use crate::service::{LeafHandle, NOTE_BYTES_MAX};
use sheaf_core::lock;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// How often it is looked whether a gate has its file still, where the system does not tell.
const GATE_LOOK: Duration = Duration::from_millis(250);
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
    file: Arc<Mutex<GateFile>>,
    accepts: JoinHandle<()>,
}

/// The file of a gate.
struct GateFile {
    path: PathBuf,
    /// What is there: a server that comes after this one puts another file in its place.
    file: Option<(u64, u64)>,
    /// It is made no more.
    is_over: bool,
}

impl GateFile {
    /// That of a socket that was just made. The host is in the session again.
    fn new(path: PathBuf) -> Self {
        let _ = std::fs::remove_file(path.with_extension(LOST));
        Self { file: file_at(&path), path, is_over: false }
    }

    fn is_there(&self) -> bool {
        self.file.is_some() && file_at(&self.path) == self.file
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
        let file = match &socket {
            Ok(_) => GateFile::new(path),
            Err(_) => GateFile { path, file: None, is_over: false },
        };
        let file = Arc::new(Mutex::new(file));
        let what = if admits == Admits::Own { SHUT } else { SHUT_TO_OTHERS };
        let lacking = |why: String| {
            tracing::warn!("{what}{why}");
            lacks.begin(what, number, why);
        };
        let socket = socket.map_err(lacking).ok();
        let place =
            Place { file: Arc::clone(&file), again, lacks: Arc::clone(lacks), what, number };
        let accepts = crate::task::spawn(accept(Arc::clone(keeper), socket, place, admits));
        Self { file, accepts }
    }

    /// Leaves a word behind that this host was in a session. A command here would otherwise mean
    /// this machine alone. Where it cannot be written the socket stays, at which nobody listens.
    pub fn leave_word(&mut self) {
        let mut gate = lock(&self.file);
        if !gate.is_there() {
            return;
        }
        let word = gate.path.with_extension(LOST);
        if let Err(error) = std::fs::write(&word, "") {
            tracing::warn!(%error, "{} is left, for want of {}", gate.path.display(), word.display());
            gate.file = None;
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.accepts.abort();
        let mut gate = lock(&self.file);
        gate.is_over = true;
        if gate.is_there() {
            let _ = std::fs::remove_file(&gate.path);
        }
    }
}

/// Takes clients in, as long as the session lasts.
async fn accept(
    keeper: Arc<GateKeeper>,
    mut listener: Option<UnixListener>,
    place: Place,
    admits: Admits,
) {
    let own = rustix::process::geteuid().as_raw();
    let mut failures = 0u32;
    let mut removed = Box::pin(place.made_again());
    loop {
        let accepted = tokio::select! {
            accepted = next(listener.as_ref()) => accepted,
            new = &mut removed => {
                (listener, removed) = (Some(new), Box::pin(place.made_again()));
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

async fn next(listener: Option<&UnixListener>) -> io::Result<UnixStream> {
    match listener {
        Some(listener) => listener.accept().await.map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}

/// Where a gate is, and what is told when it is not.
struct Place {
    file: Arc<Mutex<GateFile>>,
    again: Box<ListenAgain>,
    lacks: Arc<Lacks>,
    what: &'static str,
    number: usize,
}

impl Place {
    /// Another socket, once that of the gate has lost its name to nobody: one of a later server stays.
    async fn made_again(&self) -> UnixListener {
        let (path, is_made) = {
            let gate = lock(&self.file);
            (gate.path.clone(), gate.file.is_some())
        };
        if is_made && let Ok(watch) = NameWatch::of(&path) {
            watch.gone(GATE_LOOK).await;
        }
        let mut tries = 0u32;
        loop {
            // A server that comes after this one has none there for a moment.
            tokio::time::sleep(GATE_PAUSE).await;
            if is_of_others(&path) {
                self.lacks.end(self.what, self.number);
                std::future::pending::<()>().await;
            }
            tries = tries.saturating_add(1);
            match self.make() {
                Ok(Some(listener)) => {
                    self.lacks.end(self.what, self.number);
                    return listener;
                }
                Ok(None) => {}
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

    /// Makes the socket, unless the gate is over.
    fn make(&self) -> io::Result<Option<UnixListener>> {
        let mut gate = lock(&self.file);
        if gate.is_over {
            return Ok(None);
        }
        let (socket, new) = (self.again)()?;
        let listener = UnixListener::from_std(socket)?;
        tracing::warn!("{} was missing: clients come by {}", gate.path.display(), new.display());
        *gate = GateFile::new(new);
        Ok(Some(listener))
    }
}

/// Whether there is a socket of another server. Anything else is in the way of it alone.
fn is_of_others(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket())
}
