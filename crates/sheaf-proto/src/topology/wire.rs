//! What a parent sends a child at launch: the part of the tree below that child.
use super::{Level, NODES_MAX, Names, NodeRef, Role, Topology, TopologyError};
use sheaf_core::varint;

/// First byte of an encoded subtree.
const VERSION: u8 = 1;

impl Topology {
    /// What lies below (and is) the node of that rank. Ranks and leaf indices stay those of the
    /// whole tree.
    #[must_use]
    pub fn subtree(&self, rank: u32) -> Option<Self> {
        let top = self.node(rank)?.position;
        let (mut counts, mut levels, mut others, mut places) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut range = top..top + 1;
        while !range.is_empty() {
            let rank = NodeRef { tree: self, position: range.start }.rank();
            levels.push(Level { position: counts.len() as u32, rank });
            for position in range.clone() {
                let node = self.nodes[position as usize];
                counts.push(node.children);
                if node.children > 0 || position == 0 {
                    places.push(counts.len() - 1);
                    others.push(node.host);
                }
            }
            let (first, last) =
                (self.nodes[range.start as usize], self.nodes[range.end as usize - 1]);
            range = first.first_child..last.child_positions().end;
        }
        let node = self.nodes[top as usize];
        let lone = if rank == 0 { Role::Root } else { Role::Leaf };
        let mut tree = Self::from_counts(&counts, node.leaves_start, lone).ok()?;
        let first = node.leaves_start - self.nodes[0].leaves_start;
        let leaves: Vec<u32> = (first..first + (node.leaves_end - node.leaves_start)).collect();
        tree.levels = levels;
        tree.names = self.names.select(&[leaves, others].concat());
        tree.name_in_order(places.into_iter());
        Some(tree)
    }

    /// Points leaves at the first names, by leaf index, and the nodes at `places` at the rest.
    pub(super) fn name_in_order(&mut self, places: impl Iterator<Item = usize>) {
        let first = self.nodes[0].leaves_start;
        for node in &mut self.nodes {
            node.host = node.leaves_start - first;
        }
        for (host, place) in (self.leaves_len()..).zip(places) {
            self.nodes[place].host = host;
        }
    }

    /// Appends the wire form: ranks of the levels, the index of the first leaf, children of every
    /// node as runs, hosts of the leaves, hosts of the other nodes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        varint::put(out, self.levels.len() as u64);
        for level in &self.levels {
            varint::put(out, level.rank.into());
        }
        varint::put(out, self.nodes[0].leaves_start.into());
        let runs: Vec<_> = self.nodes.chunk_by(|a, b| a.children == b.children).collect();
        varint::put(out, runs.len() as u64);
        for run in runs {
            varint::put(out, run[0].children.into());
            varint::put(out, run.len() as u64);
        }
        self.leaf_hosts().encode(out);
        let others: Vec<u32> = self
            .nodes()
            .filter(|node| node.role() != Role::Leaf)
            .map(|node| node.data().host)
            .collect();
        self.names.select(&others).encode(out);
    }

    /// Takes a tree off the front of `input`.
    ///
    /// # Errors
    /// When it is truncated, no tree, or past a limit.
    pub fn decode(input: &mut &[u8]) -> Result<Self, TopologyError> {
        if input.split_off_first() != Some(&VERSION) {
            return Err(TopologyError::Malformed);
        }
        let levels = varint::get_len(input)?;
        let ranks = (0..levels).map(|_| varint::get_u32(input)).collect::<Result<Vec<_>, _>>()?;
        let first_leaf = varint::get_u32(input)?;
        let mut counts: Vec<u32> = Vec::new();
        for _ in 0..varint::get_len(input)? {
            let (children, times) = (varint::get_u32(input)?, varint::get(input)?);
            // Before anything is allocated: a run of a few bytes can announce billions of nodes.
            if times > u64::from(NODES_MAX) - counts.len() as u64 {
                return Err(TopologyError::TooManyNodes);
            }
            counts.resize(counts.len() + times as usize, children);
        }
        let whole = ranks.first() == Some(&0);
        let lone = if whole { Role::Root } else { Role::Leaf };
        let mut tree = Self::from_counts(&counts, first_leaf, lone)?;
        if whole && first_leaf != 0 {
            return Err(TopologyError::Malformed);
        }
        tree.set_ranks(&ranks, whole)?;
        let (leaf_hosts, other_hosts) = (Names::decode(input)?, Names::decode(input)?);
        let places: Vec<usize> =
            (0..counts.len()).filter(|&at| counts[at] > 0 || whole && at == 0).collect();
        if leaf_hosts.len() != tree.leaves_len() || other_hosts.len() as usize != places.len() {
            return Err(TopologyError::Malformed);
        }
        tree.names = leaf_hosts.join(other_hosts);
        tree.name_in_order(places.into_iter());
        Ok(tree)
    }

    /// Levels of a subtree are pieces of levels of the whole, hence ascending and apart.
    fn set_ranks(&mut self, ranks: &[u32], whole: bool) -> Result<(), TopologyError> {
        if ranks.len() != self.levels.len() {
            return Err(TopologyError::Malformed);
        }
        let mut free = 0u64;
        for (at, &rank) in ranks.iter().enumerate() {
            let width = self.level_end(at) - self.levels[at].position;
            if u64::from(rank) < free || whole && rank != self.levels[at].position {
                return Err(TopologyError::Malformed);
            }
            free = u64::from(rank) + u64::from(width);
            self.levels[at].rank = rank;
        }
        if free > u64::from(u32::MAX) { Err(TopologyError::Malformed) } else { Ok(()) }
    }
}
