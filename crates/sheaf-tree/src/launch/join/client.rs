//! Clients of a running session: another process's root on top of ours.
//!
//! To the session's root a client is one more parent: streams it opens end at its link, and are
//! closed when it goes away. To the client the session is its only child, with all leaves below.
use super::serve::ServeError;
use crate::driver::Shared;
use crate::filter::{Place, Registry, link_modules};
use crate::launch::start::processes::read_first;
use crate::network::Network;
use crate::proto::control::{self, Assign, PROTOCOL_VERSION};
use crate::proto::frame::{self, Header, Kind};
use crate::proto::{self, Child, LinkId, NodeConfig, NodeRole, Tuning};
use crate::service::Caller;
use crate::topology::Topology;
use bytes::Bytes;
use sheaf_core::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// How long a session may take to greet a client.
pub const GREETING_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest reason for which a client is refused.
const REFUSAL_BYTES_MAX: usize = 1024;

/// The frame that a client which is refused receives in place of a greeting: an end, and why.
pub(crate) fn refusal(why: &str) -> Bytes {
    let why = &why[..why.floor_char_boundary(REFUSAL_BYTES_MAX)];
    let header = Header { tag: Errno::PERM.0, ..Header::new(Kind::Shutdown) };
    frame::encode(header, why.as_bytes())
}

/// The reason in such a frame, as one line without control characters.
fn read_refusal(body: &[u8]) -> ServeError {
    let why = String::from_utf8_lossy(&body[..body.len().min(REFUSAL_BYTES_MAX)]);
    ServeError::Refused(why.chars().filter(|c| !c.is_control()).collect())
}

/// A session as a client finds it.
pub struct Joined {
    /// The tree, ready for streams.
    pub network: Network,
    /// Its shape.
    pub topology: Topology,
    /// What the session tells its clients.
    pub about: Vec<u8>,
    /// Bounds and intervals.
    pub tuning: Tuning,
}

impl Network {
    /// Lets a client in on `link`, a connected socket whose peer has been checked. `about` is
    /// what it is told of the session.
    ///
    /// # Errors
    /// When the socket cannot be used.
    pub fn admit(&self, link: OwnedFd, topology: &Topology, about: &[u8]) -> io::Result<()> {
        self.admit_for(Caller::Owner, link, topology, about)
    }

    /// [`Network::admit`] of a client that acts for this caller.
    ///
    /// # Errors
    /// As [`Network::admit`].
    pub fn admit_for(
        &self,
        caller: Caller,
        link: OwnedFd,
        topology: &Topology,
        about: &[u8],
    ) -> io::Result<()> {
        let shared = self.shared();
        let mut subtree = Vec::new();
        topology.encode(&mut subtree);
        let at = shared.run(|core, now| {
            let notices = core.membership.notices.to_vec();
            let node = &mut core.nodes[0];
            let at = node.add_parent(now);
            node.set_caller(at, caller);
            let assign = Assign {
                version: PROTOCOL_VERSION,
                depth: 0,
                subtree,
                tuning: node.config().tuning,
                service: about.to_vec(),
                launch: Vec::new(),
                siblings: 0,
                stream_base: node.client_base(at),
                ancestors: Vec::new(),
            };
            node.send_first(at, control::assign(&assign));
            node.greet(at, &notices);
            at
        });
        shared.attach(0, at, link, None)
    }
}

/// Joins a running session as a client over `link`.
///
/// # Errors
/// When what is at the other end is no session of this version.
///
/// # Panics
/// Outside a tokio runtime.
pub fn join(link: OwnedFd, registry: &Registry) -> Result<Joined, ServeError> {
    join_within(GREETING_TIMEOUT, link, registry)
}

/// [`join`] of a session that is to greet within this time.
///
/// # Errors
/// As [`join`].
///
/// # Panics
/// As [`join`].
pub fn join_within(
    limit: Duration,
    link: OwnedFd,
    registry: &Registry,
) -> Result<Joined, ServeError> {
    let (header, body) = read_first(&link, limit)?;
    if header.kind == Kind::Shutdown {
        return Err(read_refusal(&body));
    }
    if header.kind != Kind::Assign {
        return Err(ServeError::Assignment);
    }
    let assign: Assign =
        control::decode(Kind::Assign, &body).map_err(|_| ServeError::Assignment)?;
    if assign.version != PROTOCOL_VERSION {
        return Err(ServeError::Version { theirs: assign.version });
    }
    let topology =
        Topology::decode(&mut &assign.subtree[..]).map_err(|_| ServeError::Assignment)?;
    let leaves = topology.root().all_leaves();
    let config = NodeConfig {
        rank: u32::MAX,
        role: NodeRole::Root,
        depth: 0,
        leaves: leaves.clone(),
        children: vec![Child { rank: 0, leaves }],
        stream_base: assign.stream_base,
        place: Place::of(topology.root()).above(),
        tuning: assign.tuning,
    };
    let shared = Shared::new();
    link_modules(registry);
    shared.run(|core, _| core.add_node(config, registry.clone()));
    shared.attach(0, LinkId::new(0), link, None)?;
    shared.with_node(0, proto::Node::tell_ready);
    let network = Network::new(shared, topology.leaves_len(), None);
    Ok(Joined { network, topology, about: assign.service, tuning: assign.tuning })
}
