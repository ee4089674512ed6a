//! The tree as both ends know it.
use crate::attach::is_here;
use crate::error::{Error, ErrorCode};
use serde::{Deserialize, Serialize};
use sheaf_core::RangeSet;
use sheaf_tree::topology::{Role, Topology};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What a back end is told of the session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Briefing {
    /// The tree, encoded.
    pub topology: Vec<u8>,
    /// Its leaves are inner nodes to which back ends attach themselves.
    pub attach: bool,
    /// Who the back end is that is told, if it has attached itself: rank, node above, host.
    pub own: Option<(u32, u32, String)>,
}

/// One node, in numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackEndPlace {
    /// Its number.
    pub rank: u32,
    /// Its parent's; [`crate::NO_RANK`] at the root.
    pub parent: u32,
    /// What it does: 0 front end, 1 inner node, 2 back end.
    pub role: u32,
    /// Its host.
    pub host: String,
    /// Where back ends can attach themselves; 0 where they cannot.
    pub port: u16,
    /// No longer part of the tree.
    pub gone: bool,
}

/// The nodes of a session, and which of them are gone.
#[derive(Debug, Clone)]
pub struct BackEndPlan {
    topology: Topology,
    attach: bool,
    places: BTreeMap<u32, BackEndPlace>,
    /// Counts changes.
    pub version: u64,
}

impl BackEndPlan {
    /// From a topology.
    #[must_use]
    pub fn new(topology: Topology, attach: bool) -> Self {
        let place = |node: sheaf_tree::topology::NodeRef<'_>| BackEndPlace {
            rank: node.rank(),
            parent: node.parent().map_or(crate::NO_RANK, |parent| parent.rank()),
            role: match node.role() {
                Role::Root => 0,
                Role::Inner => 1,
                Role::Leaf => {
                    if attach {
                        1
                    } else {
                        2
                    }
                }
            },
            port: 0,
            host: node.host(),
            gone: false,
        };
        let places = topology.nodes().map(|node| (node.rank(), place(node))).collect();
        Self { topology, attach, places, version: 1 }
    }

    /// From the text of a topology file.
    ///
    /// # Errors
    /// [`ErrorCode::Topology`], with line and column.
    pub fn parse(text: &str, attach: bool) -> Result<Self, Error> {
        let tree = Topology::from_file(text)
            .map_err(|error| Error::new(ErrorCode::Topology, error.to_string()))?;
        Ok(Self::new(tree, attach))
    }

    /// From what a back end was told.
    ///
    /// # Errors
    /// [`ErrorCode::Packet`] when that is no session.
    pub fn from_session(bytes: &[u8]) -> Result<Self, Error> {
        let malformed = || Error::new(ErrorCode::Packet, "the session is that of another program");
        let session: Briefing = postcard::from_bytes(bytes).map_err(|_| malformed())?;
        let tree = Topology::decode(&mut &session.topology[..]).map_err(|_| malformed())?;
        let mut plan = Self::new(tree, session.attach);
        if let Some((rank, parent, host)) = session.own {
            plan.add(rank, parent, &host);
        }
        Ok(plan)
    }

    /// What back ends are told.
    #[must_use]
    pub fn to_session(&self, own: Option<(u32, u32, String)>) -> Vec<u8> {
        let mut topology = Vec::new();
        self.topology.encode(&mut topology);
        let session = Briefing { topology, attach: self.attach, own };
        postcard::to_stdvec(&session).expect("a session can be serialised")
    }

    /// The tree.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The node of that rank.
    #[must_use]
    pub fn place(&self, rank: u32) -> Option<&BackEndPlace> {
        self.places.get(&rank)
    }

    /// Ranks of the back ends that are there, ascending.
    pub fn back_ends(&self) -> impl Iterator<Item = u32> + '_ {
        self.places.values().filter(|place| place.role == 2 && !place.gone).map(|place| place.rank)
    }

    /// The leaves that are back ends of these ranks.
    ///
    /// # Errors
    /// [`ErrorCode::Usage`] for a rank that is no back end.
    pub fn leaves(&self, ranks: &[u32]) -> Result<RangeSet, Error> {
        let leaf = |&rank: &u32| {
            let at = self.places.get(&rank).filter(|place| place.role == 2 || self.attach);
            // Back ends that attach themselves are reached by way of the leaf above them.
            let at =
                at.map(|place| if self.attach && place.role == 2 { place.parent } else { rank });
            let leaf =
                at.and_then(|rank| self.topology.node(rank)).and_then(|node| node.leaf_index());
            leaf.ok_or_else(|| Error::usage(format!("the node of rank {rank} is no back end")))
        };
        let mut leaves = ranks.iter().map(leaf).collect::<Result<Vec<_>, _>>()?;
        leaves.sort_unstable();
        leaves.dedup();
        Ok(leaves.into_iter().collect())
    }

    /// The rank of a leaf.
    #[must_use]
    pub fn rank_of_leaf(&self, leaf: u32) -> Option<u32> {
        self.topology.leaf(leaf).map(|node| node.rank())
    }

    /// Whether every node runs on this machine, as far as its name says.
    #[must_use]
    pub fn is_here(&self) -> bool {
        let root = self.topology.root().host();
        self.topology.nodes().all(|node| node.host() == root || is_here(&node.host()))
    }

    /// Whether back ends attach themselves to the leaves.
    #[must_use]
    pub fn attach(&self) -> bool {
        self.attach
    }

    /// Adds a back end below `parent`. Returns whether it is new there.
    pub fn add(&mut self, rank: u32, parent: u32, host: &str) -> bool {
        if self.places.get(&rank).is_some_and(|place| !place.gone) {
            return false;
        }
        let host = host.split_whitespace().collect();
        self.places
            .insert(rank, BackEndPlace { rank, parent, role: 2, host, port: 0, gone: false });
        self.version += 1;
        true
    }

    /// Notes where back ends can attach themselves to a leaf.
    pub fn set_port(&mut self, rank: u32, port: u16) {
        if let Some(place) = self.places.get_mut(&rank) {
            place.port = port;
            self.version += 1;
        }
    }

    /// Ranks of the leaves to which back ends attach themselves.
    pub fn hubs(&self) -> Vec<u32> {
        let leaves =
            self.topology.nodes().filter_map(|node| node.leaf_index().map(|_| node.rank()));
        if self.attach { leaves.collect() } else { Vec::new() }
    }

    /// Whether all of those have said where.
    pub fn is_open(&self) -> bool {
        self.hubs().iter().all(|rank| self.places.get(rank).is_some_and(|place| place.port != 0))
    }

    /// Counts the node of that rank as gone. Returns whether it was there.
    pub fn remove(&mut self, rank: u32) -> bool {
        let Some(place) = self.places.get_mut(&rank).filter(|place| !place.gone) else {
            return false;
        };
        place.gone = true;
        self.version += 1;
        true
    }

    /// Counts a node as there again, below `parent` if that is named; gives its role if it was
    /// gone.
    pub fn restore(&mut self, rank: u32, parent: Option<u32>) -> Option<u32> {
        let place = self.places.get_mut(&rank).filter(|place| place.gone)?;
        place.gone = false;
        place.parent = parent.unwrap_or(place.parent);
        self.version += 1;
        Some(place.role)
    }

    /// A line for every node that is there: rank, parent's rank (-1 at the root), role, port, host.
    #[must_use]
    pub fn table(&self) -> String {
        let mut out = String::new();
        for place in self.places.values().filter(|place| !place.gone) {
            let parent = if place.parent == crate::NO_RANK { -1 } else { i64::from(place.parent) };
            let _ = writeln!(
                out,
                "{} {parent} {} {} {}",
                place.rank, place.role, place.port, place.host
            );
        }
        out
    }
}
