//! The tree as both ends know it.
use crate::attach::is_here;
use crate::error::{Error, ErrorCode};
use serde::{Deserialize, Serialize};
use sheaf_core::RangeSet;
use sheaf_tree::topology::{NodeRef, Role, Topology};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The back ends that can attach themselves to one node in the life of a session, one after the
/// other or at once: each has a leaf of the tree for itself, which nobody else has after it.
pub const GUESTS_MAX: u32 = 128;

/// What a node is told of the session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Briefing {
    /// The tree, encoded.
    pub topology: Vec<u8>,
    /// Its leaves are inner nodes to which back ends attach themselves.
    pub attach: bool,
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
    /// The leaf of the tree that a back end is.
    pub leaf: Option<u32>,
    /// Where back ends can attach themselves; 0 where they cannot.
    pub port: u16,
    /// No longer part of the tree.
    pub gone: bool,
}

/// The nodes of a session, and which of them are gone.
#[derive(Debug, Clone)]
pub struct BackEndPlan {
    /// As it was given.
    given: Topology,
    /// With places for back ends that attach themselves.
    topology: Topology,
    attach: bool,
    places: BTreeMap<u32, BackEndPlace>,
    /// Counts changes.
    pub version: u64,
}

impl BackEndPlan {
    /// From a topology.
    ///
    /// # Errors
    /// [`ErrorCode::Topology`] when it is too large with the places for back ends.
    pub fn new(given: Topology, attach: bool) -> Result<Self, Error> {
        let topology = if attach { with_places(&given)? } else { given.clone() };
        let place = |node: NodeRef<'_>| BackEndPlace {
            rank: node.rank(),
            parent: node.parent().map_or(crate::NO_RANK, |parent| parent.rank()),
            role: match node.role() {
                Role::Root => 0,
                Role::Inner => 1,
                Role::Leaf => 2,
            },
            leaf: node.leaf_index(),
            port: 0,
            host: node.host(),
            gone: false,
        };
        let there = topology.nodes().filter(|node| !attach || node.leaf_index().is_none());
        let places = there.map(|node| (node.rank(), place(node))).collect();
        Ok(Self { given, topology, attach, places, version: 1 })
    }

    /// From the text of a topology file.
    ///
    /// # Errors
    /// [`ErrorCode::Topology`], with line and column.
    pub fn parse(text: &str, attach: bool) -> Result<Self, Error> {
        Self::new(parse(text)?, attach)
    }

    /// From what a node was told.
    ///
    /// # Errors
    /// [`ErrorCode::Packet`] when that is no session.
    pub fn from_session(bytes: &[u8]) -> Result<Self, Error> {
        let malformed = || Error::new(ErrorCode::Packet, "the session is that of another program");
        let session: Briefing = postcard::from_bytes(bytes).map_err(|_| malformed())?;
        let given = Topology::decode(&mut &session.topology[..]).map_err(|_| malformed())?;
        Self::new(given, session.attach)
    }

    /// What nodes are told.
    #[must_use]
    pub fn to_session(&self) -> Vec<u8> {
        let mut topology = Vec::new();
        self.given.encode(&mut topology);
        let session = Briefing { topology, attach: self.attach };
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
            let none = || Error::usage(format!("the node of rank {rank} is no back end"));
            self.places.get(&rank).and_then(|place| place.leaf).ok_or_else(none)
        };
        let mut leaves = ranks.iter().map(leaf).collect::<Result<Vec<_>, _>>()?;
        leaves.sort_unstable();
        leaves.dedup();
        Ok(leaves.into_iter().collect())
    }

    /// The ranks in the tree of back ends of these ranks: who attaches itself chooses its own.
    #[must_use]
    pub fn nodes_of(&self, ranks: &[u32]) -> Vec<u32> {
        let node = |rank: &u32| {
            let leaf = self.places.get(rank).and_then(|place| place.leaf);
            leaf.and_then(|leaf| self.topology.leaf(leaf)).map_or(*rank, |node| node.rank())
        };
        ranks.iter().map(node).collect()
    }

    /// The rank of the back end that a leaf is.
    #[must_use]
    pub fn rank_of_leaf(&self, leaf: u32) -> Option<u32> {
        if self.attach {
            let mut all = self.places.values();
            return all.find(|place| place.leaf == Some(leaf)).map(|place| place.rank);
        }
        self.topology.leaf(leaf).map(|node| node.rank())
    }

    /// The node above a leaf.
    #[must_use]
    pub fn above(&self, leaf: u32) -> Option<u32> {
        Some(self.topology.leaf(leaf)?.parent()?.rank())
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

    /// Adds a back end that has attached itself as `leaf`. Returns whether it is new there.
    pub fn add(&mut self, rank: u32, leaf: u32, host: &str) -> bool {
        if self.places.get(&rank).is_some_and(|place| !place.gone) {
            return false;
        }
        let Some(parent) = self.above(leaf) else { return false };
        let (host, leaf) = (host.split_whitespace().collect(), Some(leaf));
        let place = BackEndPlace { rank, parent, role: 2, leaf, host, port: 0, gone: false };
        self.places.insert(rank, place);
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

    /// Ranks of the nodes to which back ends attach themselves.
    pub fn hubs(&self) -> Vec<u32> {
        let leaves = (0..self.topology.leaves_len()).step_by(GUESTS_MAX as usize);
        if self.attach { leaves.filter_map(|leaf| self.above(leaf)).collect() } else { Vec::new() }
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

fn parse(text: &str) -> Result<Topology, Error> {
    Topology::from_file(text).map_err(|error| Error::new(ErrorCode::Topology, error.to_string()))
}

/// The same tree with a level more: [`GUESTS_MAX`] leaves below each that there was.
fn with_places(given: &Topology) -> Result<Topology, Error> {
    let mut text = String::new();
    let mut next = given.nodes_len();
    for node in given.nodes() {
        let host = node.host();
        let has_below = node.leaf_index().is_some() || node.children().len() > 0;
        let _ = write!(text, "{host}:{}{}", node.rank(), if has_below { " =>" } else { "" });
        if node.leaf_index().is_some() {
            for at in next..next + GUESTS_MAX {
                let _ = write!(text, " {host}:{at}");
            }
            next += GUESTS_MAX;
        }
        for child in node.children() {
            let _ = write!(text, " {}:{}", child.host(), child.rank());
        }
        text.push_str(" ;\n");
    }
    parse(&text)
}
