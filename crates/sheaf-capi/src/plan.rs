//! The tree as both ends know it.
use crate::error::{Code, Error};
use serde::{Deserialize, Serialize};
use sheaf_core::RangeSet;
use sheaf_tree::topology::{Role, Topology};
use std::fmt::Write as _;

/// What a back end is told of the session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// The tree, encoded.
    pub topology: Vec<u8>,
}

/// One node, in numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Its number.
    pub rank: u32,
    /// Its parent's; [`crate::NO_RANK`] at the root.
    pub parent: u32,
    /// What it does: 0 front end, 1 inner node, 2 back end.
    pub role: u32,
    /// Its host.
    pub host: String,
    /// No longer part of the tree.
    pub gone: bool,
}

/// The nodes of a session, and which of them are gone.
#[derive(Debug, Clone)]
pub struct Plan {
    topology: Topology,
    places: Vec<Place>,
    /// Counts changes.
    pub version: u64,
}

impl Plan {
    /// From a topology.
    #[must_use]
    pub fn new(topology: Topology) -> Self {
        let place = |node: sheaf_tree::topology::NodeRef<'_>| Place {
            rank: node.rank(),
            parent: node.parent().map_or(crate::NO_RANK, |parent| parent.rank()),
            role: match node.role() {
                Role::Root => 0,
                Role::Inner => 1,
                Role::Leaf => 2,
            },
            host: node.host(),
            gone: false,
        };
        let places = topology.nodes().map(place).collect();
        Self { topology, places, version: 1 }
    }

    /// From the text of a topology file.
    ///
    /// # Errors
    /// [`Code::Topology`], with line and column.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Ok(Self::new(
            Topology::from_file(text).map_err(|error| Error::new(Code::Topology, error.to_string()))?,
        ))
    }

    /// From what a back end was told.
    ///
    /// # Errors
    /// [`Code::Packet`] when that is no session.
    pub fn from_session(bytes: &[u8]) -> Result<Self, Error> {
        let malformed = || Error::new(Code::Packet, "the session is that of another program");
        let session: Session = postcard::from_bytes(bytes).map_err(|_| malformed())?;
        Ok(Self::new(Topology::decode(&mut &session.topology[..]).map_err(|_| malformed())?))
    }

    /// What back ends are told.
    #[must_use]
    pub fn to_session(&self) -> Vec<u8> {
        let mut topology = Vec::new();
        self.topology.encode(&mut topology);
        postcard::to_stdvec(&Session { topology }).expect("a session can be serialised")
    }

    /// The tree.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The node of that rank.
    #[must_use]
    pub fn place(&self, rank: u32) -> Option<&Place> {
        self.places.get(rank as usize)
    }

    /// Ranks of the back ends that are there, ascending.
    pub fn back_ends(&self) -> impl Iterator<Item = u32> + '_ {
        self.places.iter().filter(|place| place.role == 2 && !place.gone).map(|place| place.rank)
    }

    /// The leaves that are back ends of these ranks.
    ///
    /// # Errors
    /// [`Code::Usage`] for a rank that is no back end.
    pub fn leaves(&self, ranks: &[u32]) -> Result<RangeSet, Error> {
        let leaf = |&rank: &u32| {
            let leaf = self.topology.node(rank).and_then(|node| node.leaf_index());
            leaf.ok_or_else(|| Error::usage(format!("the node of rank {rank} is no back end")))
        };
        let mut leaves = ranks.iter().map(leaf).collect::<Result<Vec<_>, _>>()?;
        leaves.sort_unstable();
        Ok(leaves.into_iter().collect())
    }

    /// The rank of a leaf.
    #[must_use]
    pub fn rank_of_leaf(&self, leaf: u32) -> Option<u32> {
        self.topology.leaf(leaf).map(|node| node.rank())
    }

    /// Counts the node of that rank as gone. Returns whether it was there.
    pub fn remove(&mut self, rank: u32) -> bool {
        let Some(place) = self.places.get_mut(rank as usize).filter(|place| !place.gone) else {
            return false;
        };
        place.gone = true;
        self.version += 1;
        true
    }

    /// A line for every node that is there: rank, parent's rank (-1 at the root), role, port, host.
    #[must_use]
    pub fn table(&self) -> String {
        let mut out = String::new();
        for place in self.places.iter().filter(|place| !place.gone) {
            let parent = if place.parent == crate::NO_RANK { -1 } else { i64::from(place.parent) };
            let _ = writeln!(out, "{} {parent} {} 0 {}", place.rank, place.role, place.host);
        }
        out
    }
}
