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
use crate::network::{Network, Stream};
use crate::proto::control::CALLER_GROUPS_MAX;
use crate::proto::{self, Packet};
use crate::seldom::Seldom;
use crate::service::{Caller, Leaf, LeafHandle, Provider, Service, ServiceError, Site};
use crate::topology::Topology;
use rustc_hash::FxHashMap;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde::{Deserialize, Serialize};
use sheaf_core::{Errno, RangeSet, lock};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

mod door;
mod rules;

use door::{Lacks, Opened};

pub use door::{Admits, LOST, Listener};
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
const SHUT: &str = "no gate: ";
/// The same of one that lacks a gate for users who are not the session's.
const SHUT_TO_OTHERS: &str = "no gate for others: ";
/// The same of one whose changes are in no file of it.
const UNAUDITED: &str = "no audit: ";
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

/// The gates of a host.
#[derive(Debug, Default)]
pub struct HostGates {
    /// All that it is to have, open or not.
    pub listeners: Vec<Listener>,
    /// Why there can be none for the session's user.
    pub shut: Option<String>,
    /// Why there can be none for users who are not the session's, though there are to be.
    pub shut_to_others: Option<String>,
    /// Why changes on this host are not recorded in a file of it, though they are to be.
    pub unaudited: Option<String>,
}

/// What a host says of its gates. A reason is empty once there is no lack any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateNews<'a> {
    /// It lacks one for the session's user, for this reason.
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
        let lacks = Arc::new(Lacks::default());
        for (lack, what) in [
            (gates.shut, SHUT),
            (gates.shut_to_others, SHUT_TO_OTHERS),
            (gates.unaudited, UNAUDITED),
        ] {
            if let Some(why) = lack {
                tracing::warn!(host = site.host, "{what}{why}");
                lacks.begin(what, 0, why);
            }
        }
        let begin = |numbered| Opened::begin(&keeper, numbered, &lacks);
        let open = (1..).zip(gates.listeners).map(begin).collect();
        let told = crate::task::spawn(lacks.tell(keeper.handle.clone()));
        Ok(Box::new(GateDoor { keeper, open, told }))
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
    /// What this host lacks is told.
    told: JoinHandle<()>,
}

impl Drop for GateDoor {
    fn drop(&mut self) {
        self.told.abort();
    }
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
        let warned = Arc::<Mutex<Seldom>>::default();
        loop {
            let want = self.wanted(GATE).await;
            while clients.try_join_next().is_some() {}
            if let Some(why) = want.note.strip_prefix(SHUT.as_bytes()) {
                news(want.leaf, GateNews::Shut(&String::from_utf8_lossy(why)));
                continue;
            }
            if let Some(why) = want.note.strip_prefix(SHUT_TO_OTHERS.as_bytes()) {
                news(want.leaf, GateNews::ShutToOthers(&String::from_utf8_lossy(why)));
                continue;
            }
            if let Some(why) = want.note.strip_prefix(UNAUDITED.as_bytes()) {
                news(want.leaf, GateNews::Unaudited(&String::from_utf8_lossy(why)));
                continue;
            }
            let Ok(number) = <[u8; 8]>::try_from(&want.note[..]) else {
                lock(&warned).warn(want.leaf, "a gate asks for nothing that is known here");
                continue;
            };
            news(want.leaf, GateNews::Entered);
            let (network, topology, about) =
                (self.clone(), Arc::clone(&topology), about(want.leaf));
            let (rules, warned) = (Arc::clone(rules), Arc::clone(&warned));
            clients.spawn(async move {
                let relayed = network.relay(want.leaf, number, &topology, (&*rules, &about));
                if let Err(error) = relayed.await {
                    let text = format!("a client was not let in: {error}");
                    lock(&warned).warn(want.leaf, &text);
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
        let deadline = Instant::now() + REFUSAL_WAIT;
        while stream.has_members() && Instant::now() < deadline {
            let look = deadline.min(Instant::now() + HOST_LOOK);
            // It says nothing but that it has left.
            if stream.recv_until(look).await.is_ok_and(|result| result.tag == LEFT) {
                break;
            }
        }
        Ok(())
    }

    /// Who the client is; `None` when it has left.
    async fn who(&self, stream: &Stream) -> io::Result<Option<Who>> {
        let deadline = Instant::now() + WHO_TIMEOUT;
        loop {
            let look = deadline.min(Instant::now() + HOST_LOOK);
            match stream.recv_until(look).await {
                Ok(result) if result.tag == WHO => {
                    let bytes = result.payload.unwrap_or_default();
                    let who =
                        postcard::from_bytes(&bytes).map_err(|_| io::ErrorKind::InvalidData)?;
                    return Ok(Some(who));
                }
                Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
                Err(_) if !stream.has_members() => return Ok(None),
                Err(_) if Instant::now() >= deadline => {
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
