//! What a node knows of its session beyond its own place: it is needed to start children, and to
//! find another parent.
use crate::launch::{Carrier, Options, Program, Starter};
use crate::link::door::Door;
use crate::link::tls::Keys;
use crate::link::wire::WireCaller;
use crate::link::{Ancestor, Authority, Credentials, Listen, Secret, anywhere, loopback};
use crate::proto::control::{self, Assign, PROTOCOL_VERSION};
use crate::topology::{NodeRef, Topology};
use rustc_hash::FxHashMap;
use rustix::process::Uid;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::IpAddr;

/// The part of an assignment that only launchers understand.
#[derive(Serialize, Deserialize)]
struct StartPlan {
    program: Program,
    secret: Secret,
    /// Credentials of the nodes below; empty unless links are TLS.
    keyring: Vec<(u32, Credentials)>,
    /// The child comes later than the others, or again.
    late: bool,
    /// What the last one in its place had counted to ([`crate::proto::Node::last_epoch`]).
    epoch: u64,
}

/// Where the credentials of nodes below come from.
enum Issuer {
    /// Links are not TLS.
    Nobody,
    /// At the root.
    Authority(Box<Authority>),
    /// At an inner node: they came with its assignment.
    Keyring(FxHashMap<u32, Credentials>),
}

/// A node, as a member of its session.
pub(in crate::launch) struct Station {
    pub rank: u32,
    /// Its host's name.
    pub host: String,
    /// The user of this machine whose session it is; another one than its own, if it was started
    /// through sudo.
    pub user: Uid,
    pub program: Program,
    pub secret: Secret,
    /// Its own; there when links are TLS.
    pub keys: Option<Keys>,
    /// Its parent first, the root last; empty at the root.
    pub ancestors: Vec<Ancestor>,
    /// The address from which it reaches its parent.
    pub uplink: Option<IpAddr>,
    /// The ssh connection that has started it is its link to its parent.
    pub is_over_ssh: bool,
    /// It comes later than the others, or again.
    pub late: bool,
    /// What the last one in its place had counted to.
    pub epoch: u64,
    issuer: Issuer,
}

/// For fuzzing: how a node is to start those below it.
#[cfg(feature = "fuzzing")]
pub(crate) fn decode_any(data: &[u8]) {
    drop(postcard::from_bytes::<StartPlan>(data));
}

impl Station {
    /// The root's, of a new session.
    pub fn root(node: NodeRef<'_>, program: &Program) -> io::Result<Self> {
        let (rank, host) = (node.rank(), node.host());
        let (issuer, keys) = match program.carrier {
            Carrier::Unix | Carrier::Tcp | Carrier::Ssh => (Issuer::Nobody, None),
            Carrier::Tls | Carrier::Auto => {
                let authority = Authority::new()?;
                let keys = Keys::new(&authority.issue(rank)?)?;
                (Issuer::Authority(Box::new(authority)), Some(keys))
            }
        };
        let (program, secret) = (program.clone(), Secret::random()?);
        let user = rustix::process::geteuid();
        let (ancestors, uplink, is_over_ssh, late, epoch) = (Vec::new(), None, false, false, 0);
        let placed = Self {
            rank,
            host,
            user,
            program,
            secret,
            keys,
            ancestors,
            uplink,
            is_over_ssh,
            late,
            epoch,
            issuer,
        };
        Ok(placed)
    }

    /// A node's that has been assigned its place. `keys` are from its invitation.
    pub fn assigned(
        node: NodeRef<'_>,
        assign: &Assign,
        keys: Option<Keys>,
        ancestors: Vec<Ancestor>,
    ) -> Option<Self> {
        let (rank, host) = (node.rank(), node.host());
        let plan: StartPlan = postcard::from_bytes(&assign.launch).ok()?;
        let issuer = match plan.program.carrier.has_keys() {
            true => Issuer::Keyring(plan.keyring.into_iter().collect()),
            false => Issuer::Nobody,
        };
        let StartPlan { program, secret, late, epoch, .. } = plan;
        let user = rustix::process::geteuid();
        let (uplink, is_over_ssh) = (None, false);
        Some(Self {
            rank,
            host,
            user,
            program,
            secret,
            keys,
            ancestors,
            uplink,
            is_over_ssh,
            late,
            epoch,
            issuer,
        })
    }

    /// That of a forked child of this node, the root of `below`: what is not its own is let go.
    pub fn of_child(self, below: &Topology, ancestors: Vec<Ancestor>) -> io::Result<Self> {
        let (rank, host) = (below.root().rank(), below.root().host());
        let keys = self.credentials(rank)?.map(|own| Keys::new(&own)).transpose()?;
        let issuer = match self.issuer {
            Issuer::Keyring(mut keyring) => {
                keyring.retain(|rank, _| below.node(*rank).is_some());
                Issuer::Keyring(keyring)
            }
            other => other,
        };
        Ok(Self { rank, host, keys, ancestors, issuer, ..self })
    }

    /// Itself, as it calls others.
    pub fn caller(&self) -> WireCaller<'_> {
        let Self { secret, keys, rank, host, user, .. } = self;
        WireCaller { secret, keys: keys.as_ref(), rank: *rank, host, user: *user }
    }

    /// A door for the nodes below.
    pub fn open_door(&self) -> io::Result<Door> {
        let ports = self.program.ports;
        match (self.program.carrier, self.program.listen) {
            (Carrier::Unix | Carrier::Ssh, _) => Door::open_abstract(),
            (Carrier::Tcp, _) | (_, Listen::Loopback) => Door::open_tcp(loopback(None)?, ports),
            (_, Listen::Address(_)) if self.is_over_ssh && self.uplink.is_none() => {
                // Nobody has said how others call this host.
                Door::open_tcp(anywhere(), ports)
            }
            (_, Listen::Address(root)) => Door::open_tcp(self.uplink.unwrap_or(root), ports),
        }
    }

    /// Where the nodes above its children listen, which is at `door` first.
    pub fn ancestors_below(&self, door: &Door) -> Vec<Ancestor> {
        let mut ancestors = vec![Ancestor { rank: self.rank, address: door.address.clone() }];
        ancestors.extend_from_slice(&self.ancestors);
        ancestors
    }

    /// At the root of a session whose links are TLS: who signs its certificates.
    pub fn authority(&self) -> Option<&Authority> {
        match &self.issuer {
            Issuer::Authority(authority) => Some(authority),
            Issuer::Nobody | Issuer::Keyring(_) => None,
        }
    }

    /// Key and certificate of a node below; `None` unless links are TLS.
    pub fn credentials(&self, rank: u32) -> io::Result<Option<Credentials>> {
        match &self.issuer {
            Issuer::Nobody => Ok(None),
            Issuer::Authority(authority) => authority.issue(rank).map(Some),
            Issuer::Keyring(keyring) => {
                let missing = || io::Error::other("the credentials of a child are missing");
                keyring.get(&rank).cloned().map(Some).ok_or_else(missing)
            }
        }
    }

    /// The frame that tells `child` who it is. `ancestors` are the child's; `late` says that it
    /// comes later than the others, or again, after one that had counted to that.
    pub fn assignment(
        &self,
        topology: &Topology,
        child: NodeRef<'_>,
        depth: u32,
        options: &Options,
        ancestors: &[Ancestor],
        late: Option<u64>,
    ) -> io::Result<bytes::Bytes> {
        let mut subtree = Vec::new();
        let mut keyring = Vec::new();
        if let Some(below) = topology.subtree(child.rank()) {
            below.encode(&mut subtree);
            let starts = !matches!(self.program.starter, Starter::Come { .. });
            if starts && !matches!(self.issuer, Issuer::Nobody) {
                for node in below.nodes().filter(|node| node.rank() != child.rank()) {
                    keyring.extend(self.credentials(node.rank())?.map(|own| (node.rank(), own)));
                }
            }
        }
        let plan = StartPlan {
            program: self.program.clone(),
            secret: self.secret.clone(),
            keyring,
            late: late.is_some(),
            epoch: late.unwrap_or(0),
        };
        let assign = Assign {
            version: PROTOCOL_VERSION,
            depth,
            subtree,
            tuning: options.tuning,
            service: postcard::to_stdvec(&options.configs).map_err(io::Error::other)?,
            launch: postcard::to_stdvec(&plan).map_err(io::Error::other)?,
            siblings: topology.root().children().len().saturating_sub(1) as u32,
            stream_base: 0,
            ancestors: ancestors.to_vec(),
        };
        Ok(control::assign(&assign))
    }
}
