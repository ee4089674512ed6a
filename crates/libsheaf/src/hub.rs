//! A node to which back ends attach themselves: it gives each a place below it, as a leaf of the tree.
use crate::attach::{self, AttachHello, HEAD_BYTES, HOST_BYTES_MAX, Seat};
use crate::plan::{BackEndPlan, GUESTS_MAX};
use sheaf_core::{Errno, lock};
use sheaf_tree::Packet;
use sheaf_tree::service::{Audience, Leaf, LeafHandle, Provider, Service, ServiceError, Site};
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
        let (port, listener) = listen().map_err(|error| refuse(error.to_string()))?;
        let seats =
            Mutex::new(Seats { next: places.start, end: places.end, ranks: BTreeSet::new() });
        let hub = Arc::new(Hub { plan, handle, seats });
        Ok(Box::new(AtHub { rank: site.rank, port, task: tokio::spawn(hub.admit(listener)) }))
    }
}

/// How long nobody is let in after that has failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

struct Hub {
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
        loop {
            match listener.accept().await {
                Ok((socket, _)) if attach::is_ours(&socket) => {
                    tokio::spawn(Arc::clone(&self).serve(socket));
                }
                Ok(_) => {}
                // Descriptors may be there again soon; who waits is still in the queue.
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
    }

    /// One back end, from its greeting to its end. Who is not taken finds the socket closed.
    async fn serve(self: Arc<Self>, mut socket: UnixStream) {
        let greeting = tokio::time::timeout(HELLO_TIMEOUT, greeting(&mut socket)).await;
        let Ok(Ok(AttachHello { rank, host })) = greeting else { return };
        if host.len() > HOST_BYTES_MAX {
            return;
        }
        let Some(leaf) = self.seat(rank) else { return };
        if let Ok(invitation) = self.handle.invite(leaf) {
            let welcome = attach::encode(&Seat { leaf, invitation });
            let written = tokio::time::timeout(HELLO_TIMEOUT, socket.write_all(&welcome)).await;
            if matches!(written, Ok(Ok(()))) {
                // It says nothing more, and is there as long as the socket.
                let _ = socket.read(&mut [0]).await;
            }
        }
        lock(&self.seats).ranks.remove(&rank);
    }

    /// A place that nobody has had, for a rank that is not here.
    fn seat(&self, rank: u32) -> Option<u32> {
        let mut seats = lock(&self.seats);
        let taken = self.plan.place(rank).is_some() || seats.next == seats.end;
        if taken || !seats.ranks.insert(rank) {
            return None;
        }
        seats.next += 1;
        Some(seats.next - 1)
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
