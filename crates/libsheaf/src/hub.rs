//! A node to which back ends attach themselves: it gives each a place below it, as a leaf of the
//! tree.
use crate::attach::{self, AttachAnswer, AttachHello, HEAD_BYTES, HOST_BYTES_MAX, Seat};
use crate::plan::{BackEndPlan, GUESTS_MAX};
use sheaf_core::{Errno, lock};
use sheaf_tree::Packet;
use sheaf_tree::service::{
    Audience, Leaf, LeafHandle, NOTE_BYTES_MAX, Provider, Service, ServiceError, Site,
};
use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

/// How long a process may take to say who it is, and to take its answer.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// Lets back ends attach themselves at nodes that are asked for a port.
pub struct Hubs;

impl Provider for Hubs {
    fn audience(&self) -> Audience {
        Audience::Inner
    }

    fn start(&self, site: &Site<'_>, handle: LeafHandle) -> Result<Box<dyn Service>, ServiceError> {
        let refuse = |cause: String| ServiceError { errno: Errno::NOSYS, cause };
        let plan = BackEndPlan::from_session(site.config).map_err(|error| refuse(error.message))?;
        let node = plan.topology().node(site.rank).filter(|_| plan.attach());
        let places =
            node.map(|node| node.leaves()).filter(|places| places.len() == GUESTS_MAX as usize);
        let places =
            places.ok_or_else(|| refuse("no back ends attach themselves here".to_owned()))?;
        let listen = || {
            let (port, listener) = attach::listen()?;
            listener.set_nonblocking(true)?;
            Ok::<_, io::Error>((port, UnixListener::from_std(listener)?))
        };
        let (port, listener) = listen().map_err(|error| ServiceError {
            errno: Errno::from_io(&error),
            cause: error.to_string(),
        })?;
        let seats =
            Mutex::new(Seats { next: places.start, end: places.end, ranks: BTreeSet::new() });
        let hub = Arc::new(Hub { rank: site.rank, plan, handle, seats });
        Ok(Box::new(AtHub { rank: site.rank, port, task: tokio::spawn(hub.admit(listener)) }))
    }
}

/// What a node asks the root for that can let nobody in: its rank and the reason are the note.
/// (There is no such service, and no stream.)
pub const HUB_TROUBLE: &str = "sheaf-hub-trouble";

/// Which node says that nobody is let in, and why.
#[must_use]
pub fn trouble(note: &[u8]) -> Option<(u32, String)> {
    let (rank, text) = note.split_first_chunk()?;
    Some((u32::from_le_bytes(*rank), String::from_utf8_lossy(text).into_owned()))
}

/// How long nobody is let in after that has failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

struct Hub {
    rank: u32,
    plan: BackEndPlan,
    handle: LeafHandle,
    seats: Mutex<Seats>,
}

/// Who is here, and which places nobody has had.
struct Seats {
    next: u32,
    end: u32,
    ranks: BTreeSet<u32>,
}

impl Hub {
    async fn admit(self: Arc<Self>, listener: UnixListener) {
        let mut failures = 0u32;
        loop {
            match listener.accept().await {
                Ok((socket, _)) => {
                    failures = 0;
                    if attach::is_ours(&socket) {
                        tokio::spawn(Arc::clone(&self).serve(socket));
                    }
                }
                // Descriptors may be there again soon; who waits is still in the queue.
                Err(error) => {
                    failures += 1;
                    // The front end is told more seldom the longer it lasts, and what is on its way
                    // to it may be lost.
                    if failures.is_power_of_two() {
                        self.complain(&error);
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Lets the front end know that nobody is let in, and why.
    fn complain(&self, error: &io::Error) {
        let mut note = self.rank.to_le_bytes().to_vec();
        let text = error.to_string();
        let room = NOTE_BYTES_MAX - note.len();
        note.extend_from_slice(&text.as_bytes()[..text.floor_char_boundary(room)]);
        self.handle.with(|leaf| leaf.want_stream(HUB_TROUBLE, &note));
    }

    /// One back end, from its greeting to its end.
    async fn serve(self: Arc<Self>, mut socket: UnixStream) {
        let greeting = tokio::time::timeout(HELLO_TIMEOUT, greeting(&mut socket)).await;
        // Who says nothing, or nothing that can be understood, is no back end.
        let Ok(Ok(hello)) = greeting else { return };
        let seat = self.seat(&hello);
        let is_here = seat.is_ok();
        let answer = seat.and_then(|leaf| {
            let invited = self.handle.invite(leaf);
            let invited = invited.map_err(|error| format!("it cannot invite anybody: {error}"));
            Ok(AttachAnswer::Seat(Seat { leaf, invitation: invited? }))
        });
        let stays = answer.is_ok();
        let answer = attach::encode(&answer.unwrap_or_else(AttachAnswer::Refused));
        let written = tokio::time::timeout(HELLO_TIMEOUT, socket.write_all(&answer)).await;
        if stays && matches!(written, Ok(Ok(()))) {
            // It says nothing more, and is there as long as the socket.
            let _ = socket.read(&mut [0]).await;
        }
        if is_here {
            lock(&self.seats).ranks.remove(&hello.rank);
        }
    }

    /// A place that nobody has had, for a rank that is not here; or why there is none.
    ///
    /// The place of one that has left is not given to another: streams that are open still have it
    /// as a member, and whoever comes back to it is let into them.
    fn seat(&self, AttachHello { rank, host }: &AttachHello) -> Result<u32, String> {
        if host.len() > HOST_BYTES_MAX {
            return Err(format!(
                "a host's name of {} bytes is longer than {HOST_BYTES_MAX}",
                host.len()
            ));
        }
        if let Some(place) = self.plan.place(*rank) {
            return Err(format!("the tree has a node of that rank, on {}", place.host));
        }
        let mut seats = lock(&self.seats);
        if seats.ranks.contains(rank) {
            return Err("a back end of that rank is here".to_owned());
        }
        if seats.next == seats.end {
            return Err(format!(
                "it has had {GUESTS_MAX} back ends, as many as a node takes in the life of a \
                 session, those that have left among them (here now: {})",
                seats.ranks.len()
            ));
        }
        seats.ranks.insert(*rank);
        seats.next += 1;
        Ok(seats.next - 1)
    }
}

async fn greeting(socket: &mut UnixStream) -> io::Result<AttachHello> {
    let mut head = [0; HEAD_BYTES];
    socket.read_exact(&mut head).await?;
    let mut body = vec![0; attach::body_len(head)?];
    socket.read_exact(&mut body).await?;
    attach::decode(&body)
}

/// The service of a node to which they attach themselves: says where.
struct AtHub {
    rank: u32,
    port: u16,
    task: JoinHandle<()>,
}

impl Service for AtHub {
    fn packet(&mut self, packet: Packet, leaf: &mut Leaf<'_>) {
        leaf.consumed(packet.stream, packet.frame_bytes);
        let mut where_to = self.rank.to_le_bytes().to_vec();
        where_to.extend_from_slice(&self.port.to_le_bytes());
        leaf.reply(packet.stream, packet.wave, packet.tag, &where_to);
    }
}

impl Drop for AtHub {
    fn drop(&mut self) {
        self.task.abort();
    }
}
