//! Launch engines: how the nodes of a planned tree come to life.
//!
//! A node is told who it is by an `Assign` frame, the first on the link from its parent; it starts
//! its own children, all at once, so that a tree starts in the time of its depth. On one machine it
//! forks them (`start/brood`), and they know. A node whose parent is gone looks for another one
//! among its ancestors; when there is none, it lets its children look and ends. When the session is
//! over, it ends after its own children.
//!
//! MRNet, section 2.5, has two modes. In the first, each process creates its children and sends
//! each its part of the configuration; in the second, a job manager starts the back ends, which
//! then connect. Sheaf has both (fork and ssh; Slurm and `attach`). It differs in that a node
//! starts its children all at once and not one after the other, and that each node proves its rank.
//!
//! # Other hosts
//! The launchers `start/ssh.rs`, `start/push.rs`, `start/slurm.rs` and `join/attach.rs` differ only
//! in how a node receives its `Invitation`: over the ssh connection, or from the session's
//! enrolment in exchange for a token (`join/desk.rs`). After that all nodes do the same.
//!
//! - The node connects to a listener (`link/door.rs`) over TLS with a certificate for its rank. It
//!   is assigned its part there, or sent down to the node below which its place is
//!   (`door/nursery.rs`).
//! - A host that joins by itself runs its inner nodes next to its server (`join/beside.rs`). Leaves
//!   that attach themselves receive an invitation from the node above them (`Program::guests`,
//!   `LeafHandle::invite`).
//! - The certificate authority (`link/credentials.rs`) exists in the root's memory. Keys travel
//!   down the tree with assignments. User filters, and the engine for WebAssembly, travel down by
//!   hash.
//! - A node that cannot connect reports this over the ssh connection, which then is its link
//!   (`start/line.rs`, `door/nursery/lines.rs`). At the far end its two pipes are one `Channel`
//!   (`link/wire.rs`). If that link is lost, the node calls no ancestor. It ends, and is started
//!   again.
//! - How an inner node that ssh started has ended is seen by the process that waits for it on its
//!   host (`join/keeper.rs`, or a shell).
//! - A node asks the root to start the nodes that it cannot start itself (`door/nursery/relay.rs`).
//!   Leaves that then do not reach the node become the root's own. If an inner node does not start
//!   at all, its parent starts the leaves (`door/nursery/instead.rs`).
use crate::driver::{Core, Shared};
use crate::filter::Place;
use crate::link::{Listen, Ports};
use crate::proto::{Child, NodeConfig, NodeRole, Tuning};
use crate::service::{self, Configs, Dispatch, LeafHandle, Services};
use crate::topology::{self, NodeRef};
use serde::{Deserialize, Serialize};
use sheaf_core::RangeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

mod door;
mod join;
mod start;

pub use join::attached::{attached, slurm};
pub use join::beside::{end_with_parent, serve_host};
pub(crate) use join::client::refusal;
pub use join::client::{GREETING_TIMEOUT, Joined, join, join_within};
pub use join::desk::Desk;
pub use join::invitation::{Invitation, is_launch_channel};
pub use join::invited::{
    Invited, LinkedNode, Login, ignore_hangup, ignore_size_limit, invited, leave_keyring,
    leave_session,
};
pub use join::peer::{PEER_IDLE, PEERS_MAX, Peer, PeerError};
pub use join::serve::{ServeError, leaf_over, serve, serve_here, serve_invited, take_stdin};
pub use join::{attach, invitation};
pub use start::embedded::embedded;
pub use start::inherited::{close_inherited, hand_nothing_on};
pub use start::processes::{over_ssh, processes};
pub use start::push::{PROGRAM_COMPRESSION, ProgramContent, is_path_of_hosts};
pub use start::shell::{
    HostResults, ScriptEnd, ScriptFailure, ScriptOutput, new_mark, run_on_hosts, run_script_here,
};
pub use start::slurm::Srun;
pub use start::spawn::{DETACH_VARIABLE, LINK_VARIABLE};
pub use start::ssh;
pub use start::ssh::Ssh;

/// What carries the links between processes of one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Carrier {
    /// Unix sockets: a connected pair to begin with, an abstract name for those who lose their
    /// parent. Only processes of the same user and machine can connect.
    #[default]
    Unix,
    /// TCP with TLS 1.3; each end proves with a certificate of the session which node it is.
    Tls,
    /// TCP with TLS where a node reaches its parent so; else, host by host, as [`Carrier::Ssh`].
    Auto,
    /// The ssh connections that start nodes on other hosts; unix sockets between nodes of one host.
    /// Nobody listens for other hosts.
    Ssh,
    /// TCP over loopback that anybody who may look at the machine's traffic can read; for
    /// measuring.
    Tcp,
}

impl Carrier {
    /// Whether nodes have keys and certificates.
    fn has_keys(self) -> bool {
        matches!(self, Self::Tls | Self::Auto)
    }
}

/// What every node of a session is given.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Bounds and intervals.
    pub tuning: Tuning,
    /// What services are told, by their names.
    pub configs: Configs,
    /// Levels above the root of the topology: 1 when clients will join the session.
    pub depth: u32,
}

/// How nodes of the processes engine start their children.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Program {
    /// The executable.
    pub path: PathBuf,
    /// Its arguments; it is to call [`serve`] with its standard input.
    pub args: Vec<String>,
    /// What runs at the leaves, when it is another program.
    pub leaf: Option<LeafProgram>,
    /// What carries the links.
    pub carrier: Carrier,
    /// What starts the processes.
    pub starter: Starter,
    /// Where nodes on TCP listen.
    pub listen: Listen,
    /// At which ports.
    pub ports: Option<Ports>,
    /// Servers are started through `sudo -n`; nodes between them and the root are not.
    pub sudo: bool,
    /// Nobody starts the leaves: they come by themselves, each invited by the node above it, which
    /// is not the root ([`crate::service::LeafHandle::invite`]). The leaves of the topology are
    /// places for them, each for one.
    pub guests: bool,
}

impl Program {
    /// A program that serves at every node, on this machine.
    #[must_use]
    pub fn new(path: PathBuf, args: Vec<String>) -> Self {
        let (carrier, starter, listen) =
            (Carrier::default(), Starter::default(), Listen::default());
        let (leaf, ports) = (None, None);
        Self { path, args, leaf, carrier, starter, listen, ports, sudo: false, guests: false }
    }

    /// Whether this node comes by itself.
    fn is_guest(&self, node: NodeRef<'_>) -> bool {
        self.guests && node.leaf_index().is_some()
    }

    /// The leaves right below `node` that come by themselves.
    fn guests_of(&self, node: NodeRef<'_>) -> RangeSet {
        let guests = node.children().filter(|child| self.is_guest(*child));
        guests.filter_map(|child| child.leaf_index()).collect()
    }
}

/// A program of somebody else that serves as a leaf, by way of [`leaf_over`].
///
/// Its standard input is `/dev/null`. The number of the descriptor that [`leaf_over`] wants is in
/// the environment, as [`LINK_VARIABLE`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeafProgram {
    /// The executable.
    pub path: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Five more arguments say where it is: host, port (0 where links have none) and rank of its
    /// parent, its own host, and its own rank.
    pub placed: bool,
}

/// What starts the processes of a session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Starter {
    /// Every node runs on the machine of its parent: the root's children are this program, started
    /// again, and nodes fork their own.
    #[default]
    Fork,
    /// Nodes run on the hosts that the topology names; each starts its children there by ssh.
    Ssh(Ssh),
    /// Nobody here: nodes come by themselves.
    Come {
        /// Who has not come after this long counts as lost, and may still come later.
        patience: Duration,
        /// A node that has not come when the first command comes counts as lost, too: nothing
        /// starts these nodes, so they may never come.
        until_asked: bool,
    },
}

/// A session could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// A socket, a process or a descriptor could not be made.
    #[error("cannot start the tree")]
    Io(#[from] io::Error),
    /// The launcher of Slurm could not be run.
    #[error("{0} cannot be run")]
    Srun(String, #[source] io::Error),
}

/// Gives a node of this process that is no leaf its own one, with these services.
fn add_own_leaf(
    shared: &Arc<Shared>,
    core: &mut Core,
    node: usize,
    place: service::ServicePlace,
    services: &Services,
) {
    for (service, tap) in services.taps(&place) {
        core.nodes[node].add_tap(&service, tap);
    }
    let own = core.add_own_leaf(node);
    let handle = LeafHandle { shared: Arc::downgrade(shared), node: own };
    core.set_works(own, Dispatch::new(services, place, handle));
}

/// A node of the topology, as its state machine wants to be told.
fn config(node: NodeRef<'_>, tuning: Tuning, depth: u32) -> NodeConfig {
    let leaves = |node: NodeRef<'_>| node.all_leaves();
    NodeConfig {
        rank: node.rank(),
        role: match node.role() {
            topology::Role::Root => NodeRole::Root,
            topology::Role::Inner => NodeRole::Inner,
            topology::Role::Leaf => NodeRole::Leaf,
        },
        depth,
        leaves: leaves(node),
        children: node
            .children()
            .map(|child| Child { rank: child.rank(), leaves: leaves(child) })
            .collect(),
        stream_base: 0,
        place: Place::of(node),
        tuning,
    }
}

/// For fuzzing: what hosts, programs that start nodes, and the nodes above say to one that is
/// starting.
#[cfg(feature = "fuzzing")]
pub(crate) fn decode_any(data: &[u8]) {
    let Some((which, rest)) = data.split_first() else { return };
    match which % 8 {
        0 => ssh::decode_any(rest),
        1 => start::slurm::decode_any(rest),
        2 => attach::decode_any(rest),
        3 => start::plan::decode_any(rest),
        4 => drop(Invitation::from_bytes(rest)),
        5 => drop(postcard::from_bytes::<Program>(rest)),
        _ => crate::link::hello::decode_any(rest),
    }
}
