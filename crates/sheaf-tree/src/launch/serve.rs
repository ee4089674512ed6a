//! A server or inner node: a process that was started by its parent.
use super::processes::{connect, read_first, start_children};
use super::{Options, Program, config};
use crate::driver::Shared;
use crate::filter::Registry;
use crate::network::End;
use crate::proto::control::{self, Assign, PROTOCOL_VERSION};
use crate::proto::frame::Kind;
use crate::proto::{Node, Role};
use crate::service::{LeafHandle, Services};
use crate::topology::Topology;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

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
    let (link, assign) = assigned(stdin)?;
    serve_as(link, assign, registry, services)
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
    let (link, assign) = assigned(link)?;
    let topology = Topology::decode(&mut &assign.subtree[..]).map_err(|_| ServeError::Assignment)?;
    if topology.root().leaf_index().is_none() {
        return Err(ServeError::NotALeaf);
    }
    serve_as(link, assign, registry, services)
}

/// The link to the parent, and what came over it first.
fn assigned(channel: OwnedFd) -> Result<(OwnedFd, Assign), ServeError> {
    let link = connect(channel)?;
    let (header, body) = read_first(&link, ASSIGN_TIMEOUT)?;
    if header.kind != Kind::Assign {
        return Err(ServeError::Assignment);
    }
    let assign: Assign = control::decode(Kind::Assign, &body).map_err(|_| ServeError::Assignment)?;
    if assign.version != PROTOCOL_VERSION {
        return Err(ServeError::Version { theirs: assign.version });
    }
    Ok((link, assign))
}

fn serve_as(
    link: OwnedFd,
    assign: Assign,
    registry: &Registry,
    services: &dyn Services,
) -> Result<(), ServeError> {
    let topology = Topology::decode(&mut &assign.subtree[..]).map_err(|_| ServeError::Assignment)?;
    let program: Program = postcard::from_bytes(&assign.launch).map_err(|_| ServeError::Assignment)?;
    let options = Options { tuning: assign.tuning, service: assign.service, depth: assign.depth };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).max(2);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(threads)
        .thread_keep_alive(Duration::from_secs(2))
        .build()?;
    let done = runtime.block_on(run(
        link,
        &topology,
        (assign.depth, assign.siblings),
        &options,
        &program,
        registry,
        services,
    ));
    // A file operation that hangs must not keep the process.
    runtime.shutdown_timeout(Duration::from_millis(200));
    Ok(done?)
}

async fn run(
    link: OwnedFd,
    topology: &Topology,
    (depth, siblings): (u32, u32),
    options: &Options,
    program: &Program,
    registry: &Registry,
    services: &dyn Services,
) -> io::Result<()> {
    let shared = Shared::new();
    let root = topology.root();
    let mut config = config(root, options.tuning, depth);
    config.place.siblings = siblings;
    let role = config.role;
    let parent = shared.run(|core, now| {
        core.add_node(config, registry.clone());
        core.nodes[0].set_identity(&root.host(), std::process::id());
        core.nodes[0].add_parent(now)
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
        shared.attach(0, parent, link, None)?;
        family = Some(start_children(&shared, topology, depth, options, program)?);
        shared.with_node(0, Node::tell_ready);
    }
    let time = tokio::spawn(Arc::clone(&shared).keep_time());
    shared.ended().await;
    time.abort();
    if let Some(family) = family {
        Box::new(family).end().await;
    }
    Ok(())
}
