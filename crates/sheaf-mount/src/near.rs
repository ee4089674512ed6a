//! From host to host: who mounts a view asks the server of its own host, which asks those of others by links of its
//! own. The root of the session hears nothing of it.
//!
//! ```text
//! mount ── unix socket ── server of this host ══ peer link ══ server of that host
//! ```
//! Root's mounts do not even ask: the server is given the device of each by the same socket, and answers the kernel.
//! It is another device of the same mount, so that the process that has mounted it goes on with it when the server
//! is not there any more, and what the server had in hand has failed.
//!
//! ```text
//! kernel ── device ── server of this host ══ peer link ══ server of that host
//! ```
//! The socket has no file: its name is a number that only who asks by the session is told, and whoever comes to it
//! has to be the user of the server's process.
//!
//! A device per file system (`FUSE_DEV_IOC_CLONE`) saves two processes on the way of each request.
//! When the mounting process is gone, the server closes its device, so that no mount remains that
//! cannot be unmounted. Devices are handed over only if process and user IDs mean the same in both
//! processes. All requests of a mount belong to one task, and end with it.
use crate::fuse::{Remote, answer_by, receive};
use crate::ids::ShownIds;
use crate::lanes::{HostLanes, Way};
use crate::message::FileClient;
use crate::owner::FILES;
use bytes::{Bytes, BytesMut};
use rustc_hash::FxHashMap;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use sheaf_core::{Errno, lock};
use sheaf_tree::Stream;
use sheaf_tree::launch::Peer;
use sheaf_tree::proto::Packet;
use sheaf_tree::service::{Caller, Leaf, LeafHandle, Provider, Service, ServiceError, Site};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream as StdUnixStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;

/// The service's name.
pub const FILES_NEAR: &str = "files-near";
/// The longest request or answer.
const FRAME_BYTES_MAX: usize = (1 << 20) + (64 << 10);
/// Requests of one mount that are under way at a time.
const CALLS_MAX: usize = 1024;
/// What stands before a request (length, number, leaf) and an answer (length, number, errno).
const HEAD_BYTES: usize = 4 + 8 + 4;
/// What a client says first: how many milliseconds a host may take, a leaf, what is wanted, the node at the top of a
/// mount, and the bytes that follow, which say who it is and how its users are shown.
const HELLO_BYTES: usize = 8 + 4 + 4 + 8 + 4;
/// The most of those bytes.
const VIEW_BYTES_MAX: usize = 256 << 10;
/// How long they may take to say it.
const HELLO_WAIT: Duration = Duration::from_secs(10);

/// The service, at leaves.
pub fn near_service() -> impl Provider {
    NearProvider
}

struct NearProvider;

impl Provider for NearProvider {
    /// The name of the socket gives no rights: the socket admits processes of this host that have
    /// the user of the server, and other servers keep to the rights of this host.
    fn check(&self, caller: &Caller) -> Result<(), Errno> {
        if caller.is_guest() { Err(Errno::PERM) } else { Ok(()) }
    }

    fn start(&self, _: &Site<'_>, handle: LeafHandle) -> Result<Box<dyn Service>, ServiceError> {
        Ok(Box::new(NearDoor { handle, open: None }))
    }
}

/// Where mounts of this host come.
struct NearDoor {
    handle: LeafHandle,
    open: Option<(Vec<u8>, JoinHandle<()>)>,
}

impl NearDoor {
    /// The name of the socket.
    fn name(&mut self) -> Result<Vec<u8>, Errno> {
        if let Some((name, _)) = &self.open {
            return Ok(name.clone());
        }
        let mut number = [0; 16];
        rustix::rand::getrandom(&mut number, rustix::rand::GetRandomFlags::empty())?;
        let name = format!("sheaf-files-{:032x}", u128::from_ne_bytes(number)).into_bytes();
        let address = SocketAddr::from_abstract_name(&name)?;
        let listener = std::os::unix::net::UnixListener::bind_addr(&address)?;
        listener.set_nonblocking(true)?;
        let listener = UnixListener::from_std(listener)?;
        let accepts = sheaf_tree::task::spawn(accept(listener, self.handle.clone()));
        self.open = Some((name.clone(), accepts));
        Ok(name)
    }
}

impl Service for NearDoor {
    fn packet(&mut self, packet: Packet, leaf: &mut Leaf<'_>) {
        leaf.consumed(packet.stream, packet.frame_bytes);
        if packet.expect.is_none() {
            return;
        }
        match self.name() {
            Ok(name) => leaf.reply(packet.stream, packet.wave, packet.tag, &name),
            Err(errno) => leaf.fail(packet.stream, packet.wave, errno),
        }
    }

    fn ended(&mut self) {
        if let Some((_, accepts)) = self.open.take() {
            accepts.abort();
        }
    }
}

async fn accept(listener: UnixListener, handle: LeafHandle) {
    let own = rustix::process::geteuid().as_raw();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => match stream.peer_cred() {
                Ok(who) if who.uid() == own => {
                    sheaf_tree::task::spawn(serve(stream, handle.clone()));
                }
                Ok(who) => tracing::warn!(uid = who.uid(), "somebody else asks for files"),
                Err(error) => tracing::warn!(%error, "who asks for files is not known"),
            },
            Err(error) => {
                tracing::warn!(%error, "a mount of this host was not let in");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// A link to another host.
struct PeerWay {
    handle: LeafHandle,
    leaf: u32,
}

impl Way for PeerWay {
    type Link = Peer;

    async fn open(&self) -> Result<(Stream, Peer), Errno> {
        let peer = self.handle.dial(self.leaf).await.map_err(|error| error.errno())?;
        Ok((peer.open(FILES), peer))
    }

    fn is_gone(&self, peer: &Peer) -> bool {
        peer.is_gone()
    }

    fn only(&self, payload: Bytes) -> Result<Bytes, Errno> {
        Ok(payload)
    }
}

/// Serves one mount until it leaves.
async fn serve(stream: UnixStream, handle: LeafHandle) {
    let served = async {
        let hello = tokio::time::timeout(HELLO_WAIT, NearHello::receive(&stream));
        let (hello, device) =
            hello.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        match (hello.wants, device) {
            (NearWants::Answers, None) => carry(stream, handle, hello).await,
            (NearWants::Device { leaf, root, lends }, Some(device)) => {
                answer(&stream, device, handle, hello, (leaf, root, lends)).await
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    };
    if let Err(error) = served.await {
        tracing::debug!(%error, "a mount of this host has broken off");
    }
}

/// What somebody says who comes.
#[derive(Clone)]
struct NearHello {
    client: FileClient,
    ids: ShownIds,
    maps: bool,
    patience: Duration,
    wants: NearWants,
}

#[derive(Clone, Copy)]
enum NearWants {
    /// Answers to requests.
    Answers,
    /// That the kernel's requests are answered, by a device that comes with this.
    Device { leaf: u32, root: u64, lends: bool },
}

impl NearHello {
    fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let (leaf, root, wants) = match self.wants {
            NearWants::Answers => (0, 0, 0),
            NearWants::Device { leaf, root, lends } => (leaf, root, 1 + u32::from(lends)),
        };
        let milliseconds = u64::try_from(self.patience.as_millis()).unwrap_or(u64::MAX);
        let view =
            postcard::to_stdvec(&(&self.client, &self.ids, self.maps)).map_err(io::Error::other)?;
        let mut bytes = vec![0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&milliseconds.to_le_bytes());
        bytes[8..12].copy_from_slice(&leaf.to_le_bytes());
        bytes[12..16].copy_from_slice(&wants.to_le_bytes());
        bytes[16..24].copy_from_slice(&root.to_le_bytes());
        bytes[24..].copy_from_slice(&(view.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&view);
        Ok(bytes)
    }

    /// The bytes behind the head.
    fn view_bytes(head: &[u8]) -> io::Result<usize> {
        let length = head.get(24..HELLO_BYTES).and_then(|bytes| bytes.try_into().ok());
        let length = length.map_or(usize::MAX, |bytes| u32::from_le_bytes(bytes) as usize);
        if length <= VIEW_BYTES_MAX { Ok(length) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    /// Of a head and what follows it.
    fn of_bytes(bytes: &[u8]) -> io::Result<Self> {
        fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
            let mut part = [0; N];
            part.copy_from_slice(&bytes[at..at + N]);
            part
        }
        let wrong = || io::Error::from(io::ErrorKind::InvalidData);
        let leaf = u32::from_le_bytes(part(bytes, 8));
        let root = u64::from_le_bytes(part(bytes, 16));
        let view = postcard::from_bytes(&bytes[HELLO_BYTES..]);
        let (client, ids, maps) = view.map_err(|_| wrong())?;
        Ok(Self {
            client,
            ids,
            maps,
            patience: Duration::from_millis(u64::from_le_bytes(part(bytes, 0))),
            wants: match u32::from_le_bytes(part(bytes, 12)) {
                0 => NearWants::Answers,
                wants @ (1 | 2) => NearWants::Device { leaf, root, lends: wants == 2 },
                _ => return Err(wrong()),
            },
        })
    }

    /// Says it, and hands a device over with it.
    fn send(&self, to: &UnixStream, device: Option<&OwnedFd>) -> io::Result<()> {
        let fds = device.map(AsFd::as_fd);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut with = SendAncillaryBuffer::new(&mut space);
        with.push(SendAncillaryMessage::ScmRights(fds.as_slice()));
        let bytes = self.to_bytes()?;
        let sent =
            rustix::net::sendmsg(to, &[IoSlice::new(&bytes)], &mut with, SendFlags::NOSIGNAL)?;
        if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    async fn receive(from: &UnixStream) -> io::Result<(Self, Option<OwnedFd>)> {
        let (mut bytes, mut at, mut device) = (vec![0; HELLO_BYTES], 0, None);
        while at < bytes.len() {
            let take = || receive(from, &mut bytes[at..]);
            let (got, with) = from.async_io(Interest::READABLE, take).await?;
            if got == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            at += got;
            device = device.or(with);
            if at == HELLO_BYTES && bytes.len() == HELLO_BYTES {
                bytes.resize(HELLO_BYTES + Self::view_bytes(&bytes)?, 0);
            }
        }
        Ok((Self::of_bytes(&bytes)?, device))
    }
}

/// The owner of files on another host, by a link to it.
struct PeerRemote {
    lanes: HostLanes<PeerWay>,
    lends: bool,
    maps: bool,
    names_kept: Duration,
    writes_behind: bool,
    /// The number of the client at this owner.
    client: u128,
    ids: ShownIds,
}

impl Remote for PeerRemote {
    async fn call(&self, call: Vec<u8>) -> Result<Bytes, Errno> {
        // There were links: the session is over.
        let over = |errno| if errno == Errno::OPNOTSUPP { Errno::HOSTDOWN } else { errno };
        self.lanes.call(call.into()).await.map_err(over)
    }

    fn flush_is_of_locks(&self) -> bool {
        true
    }

    fn has_sub_mounts(&self) -> bool {
        true
    }

    fn guards_pages(&self) -> bool {
        true
    }

    fn lends(&self) -> bool {
        self.lends
    }

    fn maps(&self) -> bool {
        self.maps
    }

    fn writes_behind(&self) -> bool {
        self.writes_behind
    }

    fn keeps_names(&self) -> Duration {
        self.names_kept
    }

    fn client(&self) -> u128 {
        self.client
    }

    fn ids(&self) -> &ShownIds {
        &self.ids
    }
}

/// Answers the kernel as long as whoever has mounted it is there.
async fn answer(
    stream: &UnixStream,
    device: OwnedFd,
    handle: LeafHandle,
    hello: NearHello,
    (leaf, root, lends): (u32, u64, bool),
) -> io::Result<()> {
    let pid = stream.peer_cred()?.pid().ok_or(io::ErrorKind::InvalidInput)?;
    // What the kernel says of processes and users is said to whoever has mounted it.
    if !has_same_names(pid)? {
        return Err(io::Error::other("it is mounted in another container"));
    }
    if !handle.has_peer_links() {
        return Err(io::Error::other("this session has no links from host to host"));
    }
    let NearHello { client, ids, maps, patience, .. } = hello;
    let names_kept = Duration::from_millis(client.keeps_names_ms.into());
    let writes_behind = client.writes_behind;
    let client = client.at(leaf);
    let number = client.number;
    let lanes = HostLanes::new(PeerWay { handle, leaf }, client, patience);
    let remote = PeerRemote { lanes, lends, maps, names_kept, writes_behind, client: number, ids };
    tokio::select! {
        ended = answer_by(device, Arc::new(remote), root) => ended,
        left = left(stream) => left,
    }
}

/// Waits until the other side is not there any more: it says nothing.
async fn left(stream: &UnixStream) -> io::Result<()> {
    loop {
        stream.readable().await?;
        match stream.try_read(&mut [0]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            read => return read.map(drop),
        }
    }
}

/// Whether numbers of processes and users mean the same to a process and to this one.
fn has_same_names(pid: i32) -> io::Result<bool> {
    for kind in ["pid", "user"] {
        let of = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/{kind}"));
        if of(&pid.to_string())? != of("self")? {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn carry(stream: UnixStream, handle: LeafHandle, hello: NearHello) -> io::Result<()> {
    let (read, write) = stream.into_split();
    let NearHello { client, patience, .. } = hello;
    let (answers, to_write) = mpsc::unbounded_channel();
    let writes = sheaf_tree::task::spawn(write_frames(write, to_write));
    let room = Arc::new(Semaphore::new(CALLS_MAX));
    let mut hosts: FxHashMap<u32, Arc<HostLanes<PeerWay>>> = FxHashMap::default();
    let mut frames = NearFrames::new(read);
    let ended = loop {
        // Who does not read its answers has no more requests taken.
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { break Ok(()) };
        let (id, leaf, call) = match frames.next().await {
            Ok(Some(frame)) => frame,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        };
        let lanes = hosts.entry(leaf).or_insert_with(|| {
            let way = PeerWay { handle: handle.clone(), leaf };
            Arc::new(HostLanes::new(way, client.at(leaf), patience))
        });
        let (lanes, answers) = (Arc::clone(lanes), answers.clone());
        sheaf_tree::task::spawn(async move {
            let (errno, answer) = match lanes.call(call).await {
                Ok(answer) => (0, answer),
                Err(errno) => (errno.0.cast_unsigned(), Bytes::new()),
            };
            // Nobody reads any more.
            drop(answers.send((id, errno, answer, Some(place))));
        });
    };
    drop(answers);
    writes.abort();
    ended
}

/// What is to be written: number, errno or leaf, bytes, and what is held until then.
type NearFrame<P> = (u64, u32, Bytes, P);

async fn write_frames<P: Send>(
    mut to: OwnedWriteHalf,
    mut frames: mpsc::UnboundedReceiver<NearFrame<P>>,
) -> io::Result<()> {
    let (mut together, mut room) = (Vec::new(), BytesMut::new());
    while frames.recv_many(&mut together, 64).await > 0 {
        for (id, word, bytes, _) in &together {
            room.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            room.extend_from_slice(&id.to_le_bytes());
            room.extend_from_slice(&word.to_le_bytes());
            room.extend_from_slice(bytes);
        }
        to.write_all(&room).await?;
        room.clear();
        together.clear();
    }
    Ok(())
}

/// What comes in.
struct NearFrames {
    from: OwnedReadHalf,
    room: BytesMut,
}

impl NearFrames {
    fn new(from: OwnedReadHalf) -> Self {
        Self { from, room: BytesMut::with_capacity(64 << 10) }
    }

    /// Number, leaf or errno, and bytes; nothing at the end.
    async fn next(&mut self) -> io::Result<Option<(u64, u32, Bytes)>> {
        loop {
            if let Some(head) = self.room.get(..HEAD_BYTES) {
                let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
                let word = u32::from_le_bytes([head[12], head[13], head[14], head[15]]);
                let mut id = [0; 8];
                id.copy_from_slice(&head[4..12]);
                if length > FRAME_BYTES_MAX {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                if self.room.len() >= HEAD_BYTES + length {
                    let mut frame = self.room.split_to(HEAD_BYTES + length);
                    let bytes = frame.split_off(HEAD_BYTES).freeze();
                    return Ok(Some((u64::from_le_bytes(id), word, bytes)));
                }
                self.room.reserve(HEAD_BYTES + length - self.room.len());
            } else {
                self.room.reserve(HEAD_BYTES);
            }
            if self.from.read_buf(&mut self.room).await? == 0 {
                return match self.room.is_empty() {
                    true => Ok(None),
                    false => Err(io::ErrorKind::UnexpectedEof.into()),
                };
            }
        }
    }
}

/// The side of who mounts: asks the server of this host.
pub(crate) struct Near {
    /// The name of the socket, and what is said there.
    name: Vec<u8>,
    hello: NearHello,
    to: mpsc::UnboundedSender<NearFrame<()>>,
    waiting: Arc<Mutex<NearWaiting>>,
    tasks: [JoinHandle<()>; 2],
}

#[derive(Default)]
struct NearWaiting {
    last: u64,
    /// Nobody answers any more.
    is_over: bool,
    asked: FxHashMap<u64, oneshot::Sender<Result<Bytes, Errno>>>,
}

impl Near {
    /// Connects to the socket of this name.
    pub async fn connect(name: &[u8], client: FileClient, patience: Duration) -> io::Result<Self> {
        let (ids, wants) = (ShownIds::default(), NearWants::Answers);
        let hello = NearHello { client, ids, maps: false, patience, wants };
        let (read, write) = said(name, &hello, None)?.into_split();
        let (to, frames) = mpsc::unbounded_channel();
        let waiting = Arc::new(Mutex::new(NearWaiting::default()));
        let answers = take_answers(NearFrames::new(read), Arc::clone(&waiting));
        let writes = async move {
            if let Err(error) = write_frames(write, frames).await {
                tracing::debug!(%error, "the server of this host takes no more requests");
            }
        };
        let tasks = [sheaf_tree::task::spawn(answers), tokio::spawn(writes)];
        Ok(Self { name: name.to_vec(), hello, to, waiting, tasks })
    }

    /// Has the server answer the kernel by a device of a mount of the files of `leaf`, until one of the two is not
    /// there any more.
    pub async fn answers(
        &self,
        (leaf, root): (u32, u64),
        (lends, maps, ids): (bool, bool, &ShownIds),
        device: OwnedFd,
    ) -> io::Result<()> {
        let wants = NearWants::Device { leaf, root, lends };
        let hello = NearHello { wants, maps, ids: ids.clone(), ..self.hello.clone() };
        let stream = said(&self.name, &hello, Some(&device))?;
        // From here on it is the server's alone.
        drop(device);
        left(&stream).await
    }

    /// Has a call to the files of `leaf` answered; nothing when there is nobody here.
    pub async fn call(&self, leaf: u32, call: Bytes) -> Option<Result<Bytes, Errno>> {
        let (tell, told) = oneshot::channel();
        let id = {
            let mut waiting = lock(&self.waiting);
            if waiting.is_over {
                return None;
            }
            waiting.last += 1;
            let id = waiting.last;
            waiting.asked.insert(id, tell);
            id
        };
        if self.to.send((id, leaf, call, ())).is_err() {
            lock(&self.waiting).asked.remove(&id);
            return None;
        }
        // It may have been done or not.
        Some(told.await.unwrap_or(Err(Errno::HOSTDOWN)))
    }
}

/// Comes to the socket of a name, and says what is wanted.
fn said(name: &[u8], hello: &NearHello, device: Option<&OwnedFd>) -> io::Result<UnixStream> {
    let stream = StdUnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    stream.set_nonblocking(true)?;
    let stream = UnixStream::from_std(stream)?;
    // Whoever has taken the name is not asked.
    if stream.peer_cred()?.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    hello.send(&stream, device)?;
    Ok(stream)
}

impl Drop for Near {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn take_answers(mut frames: NearFrames, waiting: Arc<Mutex<NearWaiting>>) {
    while let Ok(Some((id, errno, bytes))) = frames.next().await {
        let asked = lock(&waiting).asked.remove(&id);
        let answer = match errno {
            0 => Ok(bytes),
            errno => Err(Errno(errno.cast_signed())),
        };
        // Whoever has asked may have gone.
        asked.map(|asked| asked.send(answer));
    }
    let mut waiting = lock(&waiting);
    waiting.is_over = true;
    waiting.asked.clear();
}
