//! From host to host: who mounts a view asks the server of its own host, which asks those of others by links of its
//! own. The root of the session hears nothing of it.
//!
//! ```text
//! mount ── unix socket ── server of this host ══ peer link ══ server of that host
//! ```
//! The socket has no file: its name is a number that only who asks by the session is told, and whoever comes to it
//! has to be the user of the server's process.
use crate::lanes::{HostLanes, Way};
use crate::owner::FILES;
use bytes::{Bytes, BytesMut};
use rustc_hash::FxHashMap;
use sheaf_core::{Errno, lock};
use sheaf_tree::Stream;
use sheaf_tree::launch::Peer;
use sheaf_tree::proto::Packet;
use sheaf_tree::service::{Leaf, LeafHandle, Provider, Service, ServiceError, Site};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
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

/// The service, at leaves.
pub fn near_service() -> impl Provider {
    |_: &Site<'_>, handle: LeafHandle| {
        Ok::<_, ServiceError>(Box::new(NearDoor { handle, open: None }) as Box<dyn Service>)
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
        let accepts = tokio::spawn(accept(listener, self.handle.clone()));
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
                    tokio::spawn(serve(stream, handle.clone()));
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

    fn only(&self, payload: Bytes) -> Result<Bytes, Errno> {
        Ok(payload)
    }
}

/// Serves one mount until it leaves.
async fn serve(stream: UnixStream, handle: LeafHandle) {
    if let Err(error) = carry(stream, handle).await {
        tracing::debug!(%error, "a mount of this host has broken off");
    }
}

async fn carry(stream: UnixStream, handle: LeafHandle) -> io::Result<()> {
    let (mut read, write) = stream.into_split();
    let mut hello = [0; 24];
    read.read_exact(&mut hello).await?;
    let (number, patience) = hello.split_at(16);
    let number = u128::from_le_bytes(number.try_into().map_err(io::Error::other)?);
    let patience = u64::from_le_bytes(patience.try_into().map_err(io::Error::other)?);
    let patience = Duration::from_millis(patience);
    let (answers, to_write) = mpsc::unbounded_channel();
    let writes = tokio::spawn(write_frames(write, to_write));
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
            Arc::new(HostLanes::new(way, number, patience))
        });
        let (lanes, answers) = (Arc::clone(lanes), answers.clone());
        tokio::spawn(async move {
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
    pub async fn connect(name: &[u8], number: u128, patience: Duration) -> io::Result<Self> {
        let address = SocketAddr::from_abstract_name(name)?;
        let stream = std::os::unix::net::UnixStream::connect_addr(&address)?;
        stream.set_nonblocking(true)?;
        let stream = UnixStream::from_std(stream)?;
        // Whoever has taken the name is not asked.
        if stream.peer_cred()?.uid() != rustix::process::geteuid().as_raw() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let (read, mut write) = stream.into_split();
        let mut hello = number.to_le_bytes().to_vec();
        let milliseconds = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        hello.extend_from_slice(&milliseconds.to_le_bytes());
        write.write_all(&hello).await?;
        let (to, frames) = mpsc::unbounded_channel();
        let waiting = Arc::new(Mutex::new(NearWaiting::default()));
        let answers = take_answers(NearFrames::new(read), Arc::clone(&waiting));
        let writes = async move {
            if let Err(error) = write_frames(write, frames).await {
                tracing::debug!(%error, "the server of this host takes no more requests");
            }
        };
        Ok(Self { to, waiting, tasks: [tokio::spawn(answers), tokio::spawn(writes)] })
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
