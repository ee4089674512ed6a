//! A server or inner node: a process that was started by its parent.
use super::invitation::Invitation;
use super::plan::Station;
use super::processes::start_children;
use super::search::{Search, arrive, find_parent};
use super::{Options, config, invited};
use crate::driver::Shared;
use crate::filter::Registry;
use crate::link::tls::Keys;
use crate::link::wire::{Channel, Wire};
use crate::network::End;
use crate::proto::control::{self, Assign, PROTOCOL_VERSION};
use crate::proto::frame::{HEADER_BYTES, Header, Kind};
use crate::proto::{Node, Role};
use crate::service::{LeafHandle, Services};
use crate::topology::Topology;
use rustix::fs::{FileType, fstat};
use sheaf_core::Errno;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// How long the launcher may take to hand over an invitation.
const INVITATION_TIMEOUT: Duration = Duration::from_secs(20);
/// How long the parent may take to say who this node is.
const ASSIGN_TIMEOUT: Duration = Duration::from_secs(30);

/// A node could not begin to serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// No parent, or a link that fails.
    #[error("no link to a parent")]
    Link(#[from] io::Error),
    /// The parent is another version of the program.
    #[error("the parent speaks protocol {theirs}, this program {PROTOCOL_VERSION}")]
    Version {
        /// The parent's.
        theirs: u32,
    },
    /// The assignment makes no sense.
    #[error("the parent sent a malformed assignment")]
    Assignment,
    /// This program can only be a leaf, and is to have children.
    #[error("this program was started as an inner node, and can only be a leaf")]
    NotALeaf,
}

/// Runs a node until its parent is gone. `stdin` is what its parent started it with.
///
/// # Errors
/// See [`ServeError`]; once the node runs it ends without one.
pub fn serve(stdin: OwnedFd, registry: &Registry, services: &dyn Services) -> Result<(), ServeError> {
    serve_as(stdin, How::Started, registry, services)
}

/// [`serve`], for a node whose parent is on another host and has started it by [`super::invited`].
///
/// # Errors
/// As [`serve`]; until the node has joined, errors are seen by whoever started it.
pub fn serve_invited(stdin: OwnedFd, registry: &Registry, services: &dyn Services) -> Result<(), ServeError> {
    serve_as(stdin, How::Invited, registry, services)
}

/// How a process has come to serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// Its parent has started it.
    Started,
    /// Its parent has started it over a channel that it has to let go of.
    Invited,
    /// It is somebody else's program, which can start no other.
    OnlyALeaf,
}

/// Runs a leaf inside a program that has other things to do as well, until its parent is gone;
/// call it on a thread of its own. `link` is the descriptor that [`super::LINK_VARIABLE`] names.
///
/// # Errors
/// See [`ServeError`]; [`ServeError::NotALeaf`] when this place in the tree is for a program that
/// can start others.
pub fn leaf_from(link: OwnedFd, registry: &Registry, services: &dyn Services) -> Result<(), ServeError> {
    // It was left open for this program only, not for those that it starts.
    rustix::io::fcntl_setfd(&link, rustix::io::FdFlags::CLOEXEC).map_err(io::Error::from)?;
    serve_as(link, How::OnlyALeaf, registry, services)
}

fn serve_as(
    channel: OwnedFd,
    how: How,
    registry: &Registry,
    services: &dyn Services,
) -> Result<(), ServeError> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).max(2);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(threads)
        .thread_keep_alive(Duration::from_secs(2))
        .build()?;
    let done = runtime.block_on(async {
        let placed = Placed::arrive(channel).await?;
        if how == How::Invited {
            invited::say_joined();
        }
        if how == How::OnlyALeaf && placed.topology.root().leaf_index().is_none() {
            return Err(ServeError::NotALeaf);
        }
        Ok(run(placed, how, registry, services).await?)
    });
    // A file operation that hangs must not keep the process.
    runtime.shutdown_timeout(Duration::from_millis(200));
    done
}

/// A node that has been told who it is and does nothing yet.
struct Placed {
    link: Channel,
    topology: Topology,
    station: Station,
    options: Options,
    siblings: u32,
}

impl Placed {
    /// Follows `channel`, which is the link to the parent or has an invitation to it.
    async fn arrive(channel: OwnedFd) -> Result<Self, ServeError> {
        let kind = FileType::from_raw_mode(fstat(&channel).map_err(io::Error::from)?.st_mode);
        let (link, keys, ancestors) = if kind == FileType::Socket {
            (Channel::from(channel), None, None)
        } else {
            let invitation = Invitation::read(&channel, INVITATION_TIMEOUT)?;
            let keys = invitation.credentials.as_ref().map(Keys::new).transpose()?;
            (arrive(&invitation, keys.as_ref()).await?, keys, Some(invitation.ancestors))
        };
        let mut wire = Wire::from_channel(link)?;
        let assign = tokio::time::timeout(ASSIGN_TIMEOUT, read_assignment(&mut wire)).await;
        let assign = assign.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        let link = wire.into_channel();
        let topology = Topology::decode(&mut &assign.subtree[..]).map_err(|_| ServeError::Assignment)?;
        let station = Station::assigned(topology.root().rank(), &assign, keys);
        let mut station = station.ok_or(ServeError::Assignment)?;
        station.uplink = local_ip(&link.fd);
        // These are as this host can reach them.
        station.ancestors = ancestors.unwrap_or(station.ancestors);
        let siblings = assign.siblings;
        let options = Options { tuning: assign.tuning, service: assign.service, depth: assign.depth };
        Ok(Self { link, topology, station, options, siblings })
    }
}

async fn read_assignment(wire: &mut Wire) -> Result<Assign, ServeError> {
    let head = wire.read_exact(HEADER_BYTES).await?;
    let header = Header::parse(&head).ok().flatten().ok_or(ServeError::Assignment)?;
    if header.kind != Kind::Assign {
        return Err(ServeError::Assignment);
    }
    let body = wire.read_exact(header.body_len as usize).await?;
    let assign: Assign = control::decode(Kind::Assign, &body).map_err(|_| ServeError::Assignment)?;
    if assign.version != PROTOCOL_VERSION {
        return Err(ServeError::Version { theirs: assign.version });
    }
    Ok(assign)
}

/// The address of our end of a TCP connection.
fn local_ip(fd: &OwnedFd) -> Option<IpAddr> {
    SocketAddr::try_from(rustix::net::getsockname(fd).ok()?).ok().map(|at| at.ip())
}

async fn run(placed: Placed, how: How, registry: &Registry, services: &dyn Services) -> io::Result<()> {
    let Placed { link, topology, station, options, siblings } = placed;
    let shared = Shared::new();
    let root = topology.root();
    let mut config = config(root, options.tuning, options.depth);
    config.place.siblings = siblings;
    let role = config.role;
    let parent = shared.run(|core, now| {
        core.may_search = !station.ancestors.is_empty();
        core.add_node(config, registry.clone());
        core.nodes[0].set_identity(&root.host(), std::process::id());
        // Who comes late has to say what it stands for, as an orphan does.
        if station.late { core.nodes[0].resume_parent(now) } else { core.nodes[0].add_parent(now) }
    });
    let mut family = None;
    if role == Role::Leaf {
        let handle = LeafHandle { shared: Arc::downgrade(&shared), node: 0 };
        match services.start(root.leaf_index().unwrap_or(0), &root.host(), &options.service, handle) {
            Ok(service) => shared.run(|core, _| {
                core.set_service(0, service);
                core.nodes[0].tell_ready();
            }),
            Err(error) => shared.with_node(0, |node| node.give_up(error.errno, &error.cause)),
        }
        shared.attach(0, parent, link, None)?;
    } else {
        // Streams may have come right behind the assignment; the children's assignments go first.
        family = Some(start_children(&shared, &topology, options.depth, &options, &station)?);
        shared.attach(0, parent, link, None)?;
        shared.with_node(0, Node::tell_ready);
    }
    if how == How::Invited {
        tokio::spawn(invited::let_go_after(family.as_mut().and_then(|family| family.starting.take())));
    }
    let time = tokio::spawn(Arc::clone(&shared).keep_time());
    let live = async {
        let mut search = Search::default();
        while shared.orphaned().await {
            find_parent(&shared, &station, options.tuning.orphan_timeout, &mut search).await;
        }
    };
    if role == Role::Leaf {
        let mut asked = signal(SignalKind::terminate())?;
        tokio::select! {
            () = live => {}
            _ = asked.recv() => shared.with_node(0, |node| node.give_up(Errno::HOSTDOWN, "it has left")),
        }
    } else {
        live.await;
    }
    time.abort();
    if let Some(family) = family {
        Box::new(family).end().await;
    }
    Ok(())
}
