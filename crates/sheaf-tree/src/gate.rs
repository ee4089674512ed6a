//! Clients on any host: whoever may use a session connects to the server of the host that it is on,
//! and is a client of the session's root by way of the tree.
//!
//! ```text
//! client ── unix socket ── server (leaf) ══ a stream of its own ══ root ── socket pair ── Network::admit
//! ```
//! The server knows who has connected, from the kernel, and the root takes it from there: what a
//! client says of itself counts for nothing. What goes over the stream are the bytes of the
//! client's link, so that a client here and one at the root differ in nothing else. Each is bounded
//! by the windows of its stream, and ends with it: when the host is lost, the session is over, or
//! the client leaves.
use crate::launch::refusal;
use crate::link::watch::{NameWatch, file_at};
use crate::network::{Network, Stream};
use crate::proto::control::CALLER_GROUPS_MAX;
use crate::proto::{self, Packet};
use crate::service::{
    Caller, Leaf, LeafHandle, NOTE_BYTES_MAX, Provider, Service, ServiceError, Site,
};
use crate::topology::Topology;
use rustc_hash::FxHashMap;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde::{Deserialize, Serialize};
use sheaf_core::{Errno, RangeSet, lock};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

mod rules;

pub use rules::{ClientRules, EveryHost, HostClient};

/// The name of the service.
pub const GATE: &str = "gate";

/// What a packet is, by its tag. Down: the number of the client that the stream is for; its bytes.
const BEGIN: i32 = 1;
pub(crate) const BYTES: i32 = 2;
/// Up, beside bytes: who the client is; that it has left.
const WHO: i32 = 3;
pub(crate) const LEFT: i32 = 4;

/// How often a stream is asked for again, and how long a client waits for one.
const ASK_PAUSE: Duration = Duration::from_secs(1);
const ASK_TIMES: u32 = 15;
/// How the note of a host begins that has no gate; the rest says why.
const SHUT: &[u8] = b"no gate: ";
/// The same of one that lacks a gate for users who are not the session's.
const SHUT_TO_OTHERS: &[u8] = b"no gate for others: ";
/// The same of one whose changes are in no file of it.
const UNAUDITED: &[u8] = b"no audit: ";
/// How long it is until that is said, and said again: what is asked for may be lost.
const SHUT_PAUSE_MIN: Duration = Duration::from_millis(100);
/// The longest until then. It is said for as long as it is so.
const SHUT_PAUSE_MAX: Duration = Duration::from_secs(256);
/// What was not said again for so long holds no more: the server of that host is another one.
pub const SHUT_FRESH: Duration = Duration::from_secs(3 * SHUT_PAUSE_MAX.as_secs());
/// How long a server may take to say who its client is.
const WHO_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client that is refused has to read why.
const REFUSAL_WAIT: Duration = Duration::from_secs(5);
/// How often the root looks whether the host of a client is still there.
const HOST_LOOK: Duration = Duration::from_millis(500);
/// How much is read at once.
const READ_BYTES: usize = 64 << 10;
/// The most clients at one host at a time.
pub const CLIENTS_MAX: usize = 256;
/// Of these, the most of one user that is not the session's.
pub const GUESTS_MAX: usize = CLIENTS_MAX / 8;
/// Of these, the most of all such users.
const ALL_GUESTS_MAX: usize = CLIENTS_MAX / 4 * 3;
/// How often it is looked whether a gate has its file still, where the system does not tell.
const GATE_LOOK: Duration = Duration::from_millis(250);
/// How long a gate has none before it is made again.
const GATE_PAUSE: Duration = Duration::from_millis(2);
/// How long a gate pauses after it could not take a client in.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How the file is called, in place of the extension of a gate, that a gate leaves behind when its
/// host has lost the session: its time is when that was.
pub const LOST: &str = "lost";

/// Makes a listener's socket again, where its own has lost its name; perhaps in another place.
pub type ListenAgain =
    dyn Fn() -> io::Result<(std::os::unix::net::UnixListener, PathBuf)> + Send + Sync;

/// Where clients of one host connect; its file goes with it.
pub struct Listener {
    /// Bound and not blocking; only those whom the session is for can open it.
    pub socket: std::os::unix::net::UnixListener,
    /// Its path.
    pub path: PathBuf,
    /// Who is let in there.
    pub admits: Admits,
    /// Makes the socket again, where its own has lost its name; perhaps in another place.
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
    fn judge(self, uid: u32, own: u32) -> Option<bool> {
        let is_own = uid == own;
        let is_meant = match self {
            Self::Own => is_own,
            Self::User(user) => is_own || uid == user,
            Self::Anybody => true,
        };
        (is_meant && (is_own || own == 0)).then_some(is_own)
    }
}

/// The gates of a host.
#[derive(Debug, Default)]
pub struct HostGates {
    /// Those that are open; none where a host is to have none.
    pub listeners: Vec<Listener>,
    /// Why the session's user has none.
    pub shut: Option<String>,
    /// Why some could not be made that users who are not the session's were to have.
    pub shut_to_others: Option<String>,
    /// Why changes on this host are not recorded in a file of it, though they are to be.
    pub unaudited: Option<String>,
}

/// What a host says of its gates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateNews<'a> {
    /// It has none, for this reason.
    Shut(&'a str),
    /// It lacks some for users who are not the session's.
    ShutToOthers(&'a str),
    /// It has no file for its audit, for this reason.
    Unaudited(&'a str),
    /// Somebody has come to one.
    Entered,
}

/// Opens the gates of a host.
type OpenGate = dyn Fn(&Site<'_>) -> io::Result<HostGates> + Send + Sync;

/// The service at the servers: lets clients of their hosts in.
pub struct Gate(Box<OpenGate>);

impl Gate {
    /// `open` makes the sockets of a host. Where that fails the host serves without a gate, and the
    /// root is told ([`Network::keep_gates`]).
    pub fn new(open: impl Fn(&Site<'_>) -> io::Result<HostGates> + Send + Sync + 'static) -> Self {
        Self(Box::new(open))
    }
}

impl Provider for Gate {
    /// The root alone: a client that opened streams here could take the place of another.
    fn check(&self, caller: &Caller) -> Result<(), Errno> {
        if caller.is_from_host() { Err(Errno::PERM) } else { Ok(()) }
    }

    fn start(&self, site: &Site<'_>, handle: LeafHandle) -> Result<Box<dyn Service>, ServiceError> {
        let keeper = Arc::new(GateKeeper { handle, state: Mutex::default() });
        let gates = (self.0)(site).unwrap_or_else(|error| HostGates {
            shut: Some(error.to_string()),
            ..HostGates::default()
        });
        for (lack, note, text) in [
            (gates.shut, SHUT, "no clients can come to this host"),
            (gates.shut_to_others, SHUT_TO_OTHERS, "other users cannot come to this host"),
            (gates.unaudited, UNAUDITED, "the audit of this host is not written to a file"),
        ] {
            if let Some(why) = lack {
                tracing::warn!(host = site.host, why, "{text}");
                crate::task::spawn(tell_shut(keeper.handle.clone(), note, why));
            }
        }
        let begin = |Listener { socket, path, admits, again }| {
            // The host is in the session again.
            let _ = std::fs::remove_file(path.with_extension(LOST));
            let file =
                Arc::new(Mutex::new(GateFile { file: file_at(&path), path, is_over: false }));
            let opened = (socket, Arc::clone(&file), again);
            let accepts = crate::task::spawn(accept(Arc::clone(&keeper), opened, admits));
            Opened { file, accepts }
        };
        let open = gates.listeners.into_iter().map(begin).collect();
        Ok(Box::new(GateDoor { keeper, open }))
    }
}

/// Tells the root what this host lacks, and why, again and again for as long as the session lasts.
async fn tell_shut(handle: LeafHandle, what: &'static [u8], why: String) {
    let room = NOTE_BYTES_MAX - what.len();
    let note = [what, &why.as_bytes()[..why.floor_char_boundary(room)]].concat();
    let (mut pause, mut is_over) = (SHUT_PAUSE_MIN, false);
    while !is_over {
        tokio::time::sleep(pause).await;
        pause = (pause * 4).min(SHUT_PAUSE_MAX);
        is_over = true;
        handle.with(|leaf| {
            leaf.want_stream(GATE, &note);
            is_over = false;
        });
    }
}

/// An open gate. Dropped, nobody connects any more.
struct Opened {
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
    fn is_there(&self) -> bool {
        self.file.is_some() && file_at(&self.path) == self.file
    }
}

impl Opened {
    /// Leaves a word behind that this host was in a session. A command here would otherwise mean
    /// this machine alone. Where it cannot be written the socket stays, at which nobody listens.
    fn leave_word(&mut self) {
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

struct GateKeeper {
    handle: LeafHandle,
    state: Mutex<GateState>,
}

#[derive(Default)]
struct GateState {
    last: u64,
    /// Clients that wait for a stream.
    waiting: FxHashMap<u64, (Who, UnixStream)>,
    /// Those that have one, by its number, with their users.
    lines: FxHashMap<u32, (u32, GateLine)>,
}

impl GateState {
    /// How many clients of this user there are.
    fn of(&self, uid: u32) -> usize {
        let waiting = self.waiting.values().filter(|(who, _)| who.uid == uid);
        waiting.count() + self.lines.values().filter(|(user, _)| *user == uid).count()
    }

    /// Why no more clients of a user are let in, where the session's user is `own`: there are this
    /// many of its, or of all users but that one.
    fn bound(&self, uid: u32, own: u32) -> Option<usize> {
        let all = self.waiting.len() + self.lines.len();
        bound(self.of(uid), all - self.of(own))
    }
}

fn bound(of_user: usize, of_users: usize) -> Option<usize> {
    let bounds = [(of_user, GUESTS_MAX), (of_users, ALL_GUESTS_MAX)];
    bounds.into_iter().find(|(count, most)| count >= most).map(|(_, most)| most)
}

/// A stream over which the bytes of a socket go.
pub(crate) struct GateLine {
    /// Its bytes, with what they count for. The window of the stream bounds them.
    to: mpsc::UnboundedSender<(bytes::Bytes, usize)>,
    /// Told when more may be posted.
    room: Arc<Notify>,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for GateLine {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Who a client is.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Who {
    uid: u32,
    gid: u32,
    gids: Vec<u32>,
    /// The server runs as this user.
    is_owner: bool,
}

impl Who {
    fn on<'a>(&'a self, leaf: u32, host: &'a str) -> HostClient<'a> {
        let Self { uid, gid, ref gids, is_owner } = *self;
        HostClient { leaf, host, uid, gid, gids, is_owner }
    }
}

impl GateKeeper {
    fn state(&self) -> MutexGuard<'_, GateState> {
        lock(&self.state)
    }
}

/// Takes clients in, as long as the session lasts.
async fn accept(
    keeper: Arc<GateKeeper>,
    (socket, file, again): (
        std::os::unix::net::UnixListener,
        Arc<Mutex<GateFile>>,
        Box<ListenAgain>,
    ),
    admits: Admits,
) {
    let mut listener = match UnixListener::from_std(socket) {
        Ok(listener) => listener,
        Err(error) => return tracing::warn!(%error, "no clients can come to this host"),
    };
    let own = rustix::process::geteuid().as_raw();
    let mut failures = 0u32;
    let mut removed = Box::pin(made_again(&file, &*again));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            new = &mut removed => {
                (listener, removed) = (new, Box::pin(made_again(&file, &*again)));
                continue;
            }
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
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

/// Another socket, once that of a gate has lost its name to nobody: one of a later server stays.
async fn made_again(file: &Mutex<GateFile>, again: &ListenAgain) -> UnixListener {
    let path = lock(file).path.clone();
    if let Ok(watch) = NameWatch::of(&path) {
        watch.gone(GATE_LOOK).await;
    }
    let mut tries = 0u32;
    loop {
        // A server that comes after this one has none there for a moment.
        tokio::time::sleep(GATE_PAUSE).await;
        // Anything but a socket is in the way of it alone.
        let is_others =
            std::fs::symlink_metadata(&path).is_ok_and(|file| file.file_type().is_socket());
        if is_others {
            std::future::pending::<()>().await;
        }
        tries = tries.saturating_add(1);
        match make_again(file, again) {
            Ok(Some(listener)) => return listener,
            Ok(None) => {}
            Err(error) if tries.is_power_of_two() => {
                tracing::warn!(%error, "{} was removed, try {tries}", path.display());
            }
            Err(_) => {}
        }
        tokio::time::sleep(GATE_LOOK).await;
    }
}

/// Makes the socket, unless the gate is over.
fn make_again(file: &Mutex<GateFile>, again: &ListenAgain) -> io::Result<Option<UnixListener>> {
    let mut gate = lock(file);
    if gate.is_over {
        return Ok(None);
    }
    let (socket, new) = again()?;
    tracing::warn!("{} was removed: clients come by {}", gate.path.display(), new.display());
    *gate = GateFile { file: file_at(&new), path: new, is_over: false };
    UnixListener::from_std(socket).map(Some)
}

/// Who has connected, if it is to be let in.
fn who(stream: &UnixStream, admits: Admits, own: u32) -> io::Result<Who> {
    let peer = stream.peer_cred()?;
    let (uid, gid) = (peer.uid(), peer.gid());
    let Some(is_owner) = admits.judge(uid, own) else {
        return Err(io::Error::other(format!("it is of another user ({uid})")));
    };
    let gids = if is_owner { Vec::new() } else { peer_groups(stream)? };
    Ok(Who { uid, gid, gids, is_owner })
}

/// The groups that whoever has connected had then, beside its first.
#[allow(unsafe_code)]
fn peer_groups(stream: &UnixStream) -> io::Result<Vec<u32>> {
    let mut gids: Vec<libc::gid_t> = vec![0; CALLER_GROUPS_MAX];
    let bytes = size_of_val(&gids[..]);
    let mut len = libc::socklen_t::try_from(bytes).map_err(io::Error::other)?;
    let at = gids.as_mut_ptr().cast();
    // SAFETY: the kernel writes at most `len` bytes to `at`, which `gids` has, and says in `len`
    // how many it has written.
    let got = unsafe {
        libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERGROUPS, at, &mut len)
    };
    if got != 0 {
        return Err(io::Error::last_os_error());
    }
    gids.truncate(len as usize / size_of::<libc::gid_t>());
    Ok(gids)
}

/// Asks the root for a stream until there is one.
async fn ask_for_stream(keeper: Arc<GateKeeper>, who: Who, stream: UnixStream) {
    let number = {
        let mut state = keeper.state();
        if state.waiting.len() + state.lines.len() >= CLIENTS_MAX {
            return tracing::warn!("a client was refused: there are {CLIENTS_MAX} here");
        }
        let (uid, own) = (who.uid, rustix::process::geteuid().as_raw());
        if let Some(most) = state.bound(uid, own).filter(|_| !who.is_owner) {
            return tracing::warn!(uid, "a client of a user was refused: there are {most} here");
        }
        state.last += 1;
        let number = state.last;
        state.waiting.insert(number, (who, stream));
        number
    };
    for times in 1..=ASK_TIMES {
        keeper.handle.with(|leaf| leaf.want_stream(GATE, &number.to_le_bytes()));
        tokio::time::sleep(ASK_PAUSE).await;
        if !keeper.state().waiting.contains_key(&number) {
            return;
        }
        tracing::debug!(
            client = number,
            "the root has given a client no stream within {} s; asked {times} of {ASK_TIMES} times",
            ASK_PAUSE.as_secs()
        );
    }
    keeper.state().waiting.remove(&number);
    tracing::warn!("a client was refused: the root of the session gives it no stream");
}

/// The service at one host.
struct GateDoor {
    keeper: Arc<GateKeeper>,
    open: Vec<Opened>,
}

impl Service for GateDoor {
    fn packet(&mut self, packet: Packet, leaf: &mut Leaf<'_>) {
        let stream = packet.stream;
        let mut state = self.keeper.state();
        match (packet.tag, packet.payload.first_chunk()) {
            (BEGIN, Some(number)) => {
                leaf.consumed(stream, packet.frame_bytes);
                let Some((who, client)) = state.waiting.remove(&u64::from_le_bytes(*number)) else {
                    // It has left, or has another stream.
                    return leaf.leave_stream(stream);
                };
                leaf.post(stream, WHO, &postcard::to_stdvec(&who).expect("numbers can be encoded"));
                let line = GateLine::begin(&self.keeper.handle, stream, client);
                state.lines.insert(stream, (who.uid, line));
            }
            (BYTES, _) => match state.lines.get(&stream) {
                Some((_, line)) => line.take(packet, leaf),
                None => leaf.consumed(stream, packet.frame_bytes),
            },
            _ => leaf.consumed(stream, packet.frame_bytes),
        }
    }

    fn closed(&mut self, stream: u32) {
        self.keeper.state().lines.remove(&stream);
    }

    fn resume(&mut self, leaf: &mut Leaf<'_>) {
        let state = self.keeper.state();
        state.lines.iter().for_each(|(&stream, (_, line))| line.resume(stream, leaf));
    }

    fn cut_off(&mut self) {
        self.open.iter_mut().for_each(Opened::leave_word);
    }

    fn ended(&mut self) {
        let mut state = self.keeper.state();
        state.lines.clear();
        state.waiting.clear();
    }
}

impl GateLine {
    pub fn begin(handle: &LeafHandle, stream: u32, client: UnixStream) -> Self {
        let (read, write) = client.into_split();
        let (to, bytes) = mpsc::unbounded_channel();
        let room = Arc::new(Notify::new());
        let up = carry_up(handle.clone(), stream, read, Arc::clone(&room));
        let down = carry_down(handle.clone(), stream, write, bytes);
        Self { to, room, tasks: [crate::task::spawn(up), tokio::spawn(down)] }
    }

    /// Takes bytes for the socket.
    pub fn take(&self, packet: Packet, leaf: &mut Leaf<'_>) {
        if self.to.send((packet.payload, packet.frame_bytes)).is_err() {
            leaf.consumed(packet.stream, packet.frame_bytes);
        }
    }

    /// There may be room again.
    pub fn resume(&self, stream: u32, leaf: &Leaf<'_>) {
        if !leaf.is_held(stream) {
            self.room.notify_one();
        }
    }
}

/// What the client says goes up.
async fn carry_up(handle: LeafHandle, stream: u32, mut client: OwnedReadHalf, room: Arc<Notify>) {
    let mut buffer = vec![0; READ_BYTES];
    // A client that breaks off has left, however it did.
    while let Ok(count @ 1..) = client.read(&mut buffer).await {
        loop {
            let mut held = false;
            handle.with(|leaf| {
                held = leaf.is_held(stream);
                if !held {
                    leaf.post(stream, BYTES, &buffer[..count]);
                }
            });
            if !held {
                break;
            }
            // Looked at again also if nobody says so.
            drop(tokio::time::timeout(ASK_PAUSE, room.notified()).await);
        }
    }
    handle.with(|leaf| {
        leaf.post(stream, LEFT, b"");
    });
}

/// What comes for the client.
async fn carry_down(
    handle: LeafHandle,
    stream: u32,
    mut client: OwnedWriteHalf,
    mut from: mpsc::UnboundedReceiver<(bytes::Bytes, usize)>,
) {
    while let Some((bytes, frame_bytes)) = from.recv().await {
        let written = client.write_all(&bytes).await;
        handle.with(|leaf| leaf.consumed(stream, frame_bytes));
        if written.is_err() {
            handle.with(|leaf| {
                leaf.post(stream, LEFT, b"");
            });
            return;
        }
    }
}

impl Network {
    /// At the root of a session: lets in clients that come to the gates of its hosts, for as long
    /// as this is polled and `rules` admit them. `about` is what a client on a leaf is told. `news`
    /// is given what leaves say of their gates; what is lacking they say again within
    /// [`SHUT_FRESH`].
    pub async fn keep_gates(
        &self,
        topology: &Topology,
        rules: &Arc<dyn ClientRules>,
        about: impl Fn(u32) -> Vec<u8>,
        news: impl Fn(u32, GateNews<'_>),
    ) {
        let topology = Arc::new(topology.clone());
        let mut clients = tokio::task::JoinSet::new();
        loop {
            let want = self.wanted(GATE).await;
            while clients.try_join_next().is_some() {}
            if let Some(why) = want.note.strip_prefix(SHUT) {
                news(want.leaf, GateNews::Shut(&String::from_utf8_lossy(why)));
                continue;
            }
            if let Some(why) = want.note.strip_prefix(SHUT_TO_OTHERS) {
                news(want.leaf, GateNews::ShutToOthers(&String::from_utf8_lossy(why)));
                continue;
            }
            if let Some(why) = want.note.strip_prefix(UNAUDITED) {
                news(want.leaf, GateNews::Unaudited(&String::from_utf8_lossy(why)));
                continue;
            }
            let Ok(number) = <[u8; 8]>::try_from(&want.note[..]) else {
                tracing::warn!(leaf = want.leaf, "a gate asks for nothing that is known here");
                continue;
            };
            news(want.leaf, GateNews::Entered);
            let (network, topology, about) =
                (self.clone(), Arc::clone(&topology), about(want.leaf));
            let rules = Arc::clone(rules);
            clients.spawn(async move {
                let relayed = network.relay(want.leaf, number, &topology, (&*rules, &about));
                if let Err(error) = relayed.await {
                    tracing::warn!(leaf = want.leaf, %error, "a client was not let in");
                }
            });
        }
    }

    /// One client, from its stream to its end.
    async fn relay(
        &self,
        leaf: u32,
        number: [u8; 8],
        topology: &Topology,
        (rules, about): (&dyn ClientRules, &[u8]),
    ) -> io::Result<()> {
        let stream = self.open(GATE, RangeSet::single(leaf), "pass", &[], proto::Sync::WaitForAll);
        stream.send(BEGIN, &number, None).await;
        let Some(who) = self.who(&stream).await? else { return Ok(()) };
        let host = topology.leaf_hosts().get(leaf).unwrap_or_default();
        let rights = match rules.admit(&who.on(leaf, &host)) {
            Ok(rights) => rights,
            Err(why) => return self.refuse(&stream, &why).await,
        };
        let Who { uid, gid, gids, is_owner } = who;
        let caller = Caller::User { uid, gid, gids, host, is_owner, rights };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        self.admit_for(caller, theirs, topology, about)?;
        self.carry(&stream, ours).await
    }

    /// Sends a client away, and waits until it has read why.
    async fn refuse(&self, stream: &Stream, why: &str) -> io::Result<()> {
        stream.send(BYTES, &refusal(why), None).await;
        let deadline = std::time::Instant::now() + REFUSAL_WAIT;
        while stream.has_members() && std::time::Instant::now() < deadline {
            let look = deadline.min(std::time::Instant::now() + HOST_LOOK);
            // It says nothing but that it has left.
            if stream.recv_until(look).await.is_ok_and(|result| result.tag == LEFT) {
                break;
            }
        }
        Ok(())
    }

    /// Who the client is; `None` when it has left.
    async fn who(&self, stream: &Stream) -> io::Result<Option<Who>> {
        let deadline = std::time::Instant::now() + WHO_TIMEOUT;
        loop {
            let look = deadline.min(std::time::Instant::now() + HOST_LOOK);
            match stream.recv_until(look).await {
                Ok(result) if result.tag == WHO => {
                    let bytes = result.payload.unwrap_or_default();
                    let who =
                        postcard::from_bytes(&bytes).map_err(|_| io::ErrorKind::InvalidData)?;
                    return Ok(Some(who));
                }
                Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
                Err(_) if !stream.has_members() => return Ok(None),
                Err(_) if std::time::Instant::now() >= deadline => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Err(_) => {}
            }
        }
    }

    /// Carries the bytes of a client both ways until one end is gone.
    async fn carry(&self, stream: &Stream, ours: OwnedFd) -> io::Result<()> {
        let ours = UnixStream::from_std(ours.into())?;
        let (mut read, mut write) = ours.into_split();
        let down = async {
            let mut buffer = vec![0; READ_BYTES];
            loop {
                match read.read(&mut buffer).await? {
                    0 => return Ok::<_, io::Error>(()),
                    count => stream.send(BYTES, &buffer[..count], None).await,
                };
            }
        };
        let up = async {
            loop {
                match tokio::time::timeout(HOST_LOOK, stream.recv()).await {
                    Ok(result) if result.tag == BYTES && result.payload.is_some() => {
                        write.write_all(&result.payload.unwrap_or_default()).await?;
                    }
                    // It has left, or its host is lost.
                    Ok(_) => return Ok(()),
                    Err(_) if !stream.has_members() => return Ok(()),
                    Err(_) => {}
                }
            }
        };
        tokio::select! {
            done = down => done,
            done = up => done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_leave_clients_to_each_other_and_to_the_owner() {
        for (of_user, of_users, expected) in
            [(31, 191, None), (32, 32, Some(GUESTS_MAX)), (0, 192, Some(ALL_GUESTS_MAX))]
        {
            assert_eq!(bound(of_user, of_users), expected, "{of_user} of {of_users}");
        }
        const { assert!(ALL_GUESTS_MAX < CLIENTS_MAX) };
    }

    #[test]
    fn client_socket_admits_other_users_only_if_owned_by_root() {
        for (admits, uid, own, expected) in [
            (Admits::Own, 7, 7, Some(true)),
            (Admits::Own, 8, 7, None),
            (Admits::Own, 8, 0, None),
            (Admits::Own, 0, 7, None),
            (Admits::User(8), 8, 0, Some(false)),
            (Admits::User(8), 9, 0, None),
            (Admits::User(8), 8, 7, None),
            (Admits::User(8), 0, 0, Some(true)),
            (Admits::Anybody, 9, 0, Some(false)),
            (Admits::Anybody, 9, 7, None),
            (Admits::Anybody, 7, 7, Some(true)),
        ] {
            assert_eq!(admits.judge(uid, own), expected, "{admits:?} {uid} {own}");
        }
    }
}
