//! The shape of a tree: who is whose child, which leaves lie below whom, and on which host each
//! node runs.
//!
//! A [`Spec`] and a list of hosts make a [`Topology`]; MRNet's topology files make one too. Nodes
//! are numbered breadth first by *rank*, the root being 0. Leaves are numbered depth first by
//! *leaf index*, in the order of their hosts, so that below every node lies one contiguous range
//! of leaves. A parent sends each child its own [subtree](Topology::subtree) at launch.
//!
//! MRNet, section 2.6. As in the paper's experiments, trees are balanced unless the user specifies
//! otherwise. The paper advises hosts of their own for inner nodes, so that they do not slow the
//! application. By default Sheaf has no such hosts and uses those of the leaves
//! ([`Placement::LeafHosts`]); [`Placement::InnerHosts`] follows the advice.
//!
//! ```
//! use sheaf_proto::topology::{Names, Placement, Spec, Topology};
//! let hosts: Names = (1..=64).map(|n| format!("n{n}")).collect();
//! let tree = Topology::build(&Spec::parse("1x8x8")?, "login", hosts, Placement::LeafHosts)?;
//! let inner = tree.root().children().nth(1).unwrap();
//! assert_eq!((inner.rank(), inner.host().as_str(), inner.leaves()), (2, "n9", 8..16));
//! # Ok::<(), sheaf_proto::topology::TopologyError>(())
//! ```
use crate::own;
use sheaf_core::RangeSet;
use std::ops::Range;

mod draw;
mod error;
mod file;
mod graph;
mod names;
mod prune;
mod shape;
mod spec;
mod stats;
mod wire;

pub use draw::Page;
pub use error::TopologyError;
pub use names::{NAME_BYTES_MAX, Names};
pub use spec::Spec;
pub use stats::TopologyStats;

/// The largest fan-out of the tree `auto`.
pub const AUTO_FANOUT: u32 = 32;
/// The largest fan-out there is.
pub const FANOUT_MAX: u32 = 1 << 21;
/// The most nodes of a tree.
pub const NODES_MAX: u32 = 1 << 22;
/// The most levels below the root.
pub const DEPTH_MAX: u32 = 255;

/// Where inner nodes run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placement<'a> {
    /// On hosts of their own leaves, each on the first where no lower inner node is.
    #[default]
    LeafHosts,
    /// On these hosts in turn.
    InnerHosts(&'a Names),
}

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The node the user talks to.
    Root,
    /// A node between the root and leaves.
    Inner,
    /// A node that does the work, on one host.
    Leaf,
}

/// A rooted tree, or what of it lies below one node. 24 bytes a node, beside the names.
#[derive(Debug, Clone)]
pub struct Topology {
    /// Breadth first.
    nodes: Vec<TopologyNode>,
    /// By level: position of its first node, and that node's rank in the whole tree. A level of a
    /// subtree is a contiguous piece of a level of the whole.
    levels: Vec<Level>,
    /// The leaves' hosts by leaf index, then those of other nodes.
    names: Names,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Level {
    position: u32,
    rank: u32,
}

#[derive(Debug, Clone, Copy)]
struct TopologyNode {
    parent: u32,
    /// Position of the first child (of the next node's, when there are no children).
    first_child: u32,
    children: u32,
    leaves_start: u32,
    leaves_end: u32,
    /// Index into the names.
    host: u32,
}

/// One node of a [`Topology`].
#[derive(Clone, Copy)]
pub struct NodeRef<'a> {
    tree: &'a Topology,
    position: u32,
}

impl Topology {
    /// The tree that `spec` makes of these hosts: one leaf on each of `leaf_hosts`, in that order.
    ///
    /// # Errors
    /// When the specification does not fit the number of hosts ([`Spec`] says when), or a limit
    /// is passed.
    pub fn build(
        spec: &Spec,
        root_host: &str,
        leaf_hosts: Names,
        placement: Placement<'_>,
    ) -> Result<Self, TopologyError> {
        let counts = shape::children(spec, leaf_hosts.len())?;
        let mut tree = Self::from_counts(&counts, 0, Role::Root)?;
        let leaves = leaf_hosts.len();
        let inner_hosts = match placement {
            Placement::LeafHosts => 0,
            Placement::InnerHosts(names) if names.is_empty() => return Err(TopologyError::NoHosts),
            Placement::InnerHosts(names) => names.len(),
        };
        tree.names = leaf_hosts;
        if let Placement::InnerHosts(names) = placement {
            names.iter().for_each(|name| tree.names.push(&name));
        }
        tree.names.push(root_host);
        tree.place(leaves, inner_hosts);
        Ok(tree)
    }

    /// Gives every node its index into the names, which are the leaves' hosts, then `inner_hosts`
    /// for inner nodes, then the root's.
    fn place(&mut self, leaf_hosts: u32, inner_hosts: u32) {
        let mut taken = vec![false; if inner_hosts == 0 { leaf_hosts as usize } else { 0 }];
        let mut inner = self.nodes_len() - 1 - self.leaves_len();
        // From the bottom up: the lower a node, the fewer hosts it has to choose from.
        for (position, node) in self.nodes.iter_mut().enumerate().rev() {
            node.host = if position == 0 {
                leaf_hosts + inner_hosts
            } else if node.children == 0 {
                node.leaves_start
            } else if inner_hosts > 0 {
                // Counts down with the positions, so that the hosts are used in the order of ranks.
                inner -= 1;
                leaf_hosts + inner % inner_hosts
            } else {
                let free = (node.leaves_start..node.leaves_end).find(|&leaf| !taken[leaf as usize]);
                let leaf = free.unwrap_or(node.leaves_start);
                taken[leaf as usize] = true;
                leaf
            };
        }
    }

    /// The arena of a shape, without names. Ranks are positions, as in a whole tree; `first_leaf`
    /// is the index of its first leaf, and `lone` what a node without parent and children is.
    fn from_counts(counts: &[u32], first_leaf: u32, lone: Role) -> Result<Self, TopologyError> {
        if counts.is_empty() || counts.len() > NODES_MAX as usize {
            return Err(TopologyError::TooManyNodes);
        }
        let mut nodes: Vec<TopologyNode> = Vec::with_capacity(counts.len());
        let (mut next, mut levels, mut level_end) = (1u32, Vec::new(), 0);
        for (position, &children) in (0u32..).zip(counts) {
            if position == next {
                // Nobody's child: the counts do not make one tree.
                return Err(TopologyError::Malformed);
            }
            if position == level_end {
                levels.push(Level { position, rank: position });
                level_end = next;
            }
            let (parent, host) = (0, 0);
            nodes.push(TopologyNode {
                parent,
                first_child: next,
                children,
                leaves_start: 0,
                leaves_end: 0,
                host,
            });
            // Checked at each node: counts can come from a peer, and ranges of children become
            // indices.
            next = next
                .checked_add(children)
                .filter(|&next| next as usize <= counts.len())
                .ok_or(TopologyError::Malformed)?;
        }
        if next as usize != counts.len() {
            return Err(TopologyError::Malformed);
        }
        if levels.len() > DEPTH_MAX as usize + 1 {
            return Err(TopologyError::TooDeep);
        }
        let mut tree = Self { nodes, levels, names: Names::new() };
        tree.number_leaves(first_leaf, lone)?;
        Ok(tree)
    }

    /// Fills in parents and leaf ranges.
    fn number_leaves(&mut self, first: u32, lone: Role) -> Result<(), TopologyError> {
        let mut below = vec![0u32; self.nodes.len()];
        // Children have higher positions, so each is counted before its parent.
        for position in (0..self.nodes.len()).rev() {
            let node = self.nodes[position];
            if node.children == 0 && (position > 0 || lone == Role::Leaf) {
                below[position] = 1;
            }
            for child in node.child_positions() {
                below[position] += below[child as usize];
                self.nodes[child as usize].parent = position as u32;
            }
        }
        // The last leaf index of the tree is the largest, so no sum below overflows.
        first.checked_add(below[0]).ok_or(TopologyError::Malformed)?;
        self.nodes[0].leaves_start = first;
        for position in 0..self.nodes.len() {
            let node = &mut self.nodes[position];
            node.leaves_end = node.leaves_start + below[position];
            let (mut at, children) = (node.leaves_start, node.child_positions());
            for child in children {
                self.nodes[child as usize].leaves_start = at;
                at += below[child as usize];
            }
        }
        Ok(())
    }

    /// The node at the top: the root, or the node whose subtree this is.
    #[must_use]
    pub fn root(&self) -> NodeRef<'_> {
        NodeRef { tree: self, position: 0 }
    }

    /// The node of that rank.
    #[must_use]
    pub fn node(&self, rank: u32) -> Option<NodeRef<'_>> {
        let at = self.levels.partition_point(|level| level.rank <= rank).checked_sub(1)?;
        let position = self.levels[at].position.checked_add(rank - self.levels[at].rank)?;
        (position < self.level_end(at)).then_some(NodeRef { tree: self, position })
    }

    /// The leaf of that index, found from the top down.
    #[must_use]
    pub fn leaf(&self, index: u32) -> Option<NodeRef<'_>> {
        let mut at = self.root();
        if !at.leaves().contains(&index) {
            return None;
        }
        while at.data().children > 0 {
            at = at.child_towards(index)?;
        }
        Some(at)
    }

    /// All nodes, breadth first, which is by rank.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = NodeRef<'_>> {
        (0..self.nodes.len() as u32).map(|position| NodeRef { tree: self, position })
    }

    /// How many nodes.
    #[must_use]
    pub fn nodes_len(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// How many leaves.
    #[must_use]
    pub fn leaves_len(&self) -> u32 {
        self.nodes[0].leaves_end - self.nodes[0].leaves_start
    }

    /// Levels below the top.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.levels.len() as u32 - 1
    }

    /// The hosts of the leaves, by leaf index (of a subtree: less the index of its first leaf).
    #[must_use]
    pub fn leaf_hosts(&self) -> Names {
        self.names.slice(0..self.leaves_len())
    }

    /// The hosts of these leaves, folded: `n[1-32]`.
    #[must_use]
    pub fn fold_leaves(&self, leaves: Range<u32>) -> String {
        let first = self.nodes[0].leaves_start;
        let part = leaves.start.max(first) - first
            ..leaves.end.clamp(first, self.nodes[0].leaves_end) - first;
        self.names.fold(part)
    }

    fn level_end(&self, level: usize) -> u32 {
        self.levels.get(level + 1).map_or(self.nodes.len() as u32, |next| next.position)
    }

    fn level_of(&self, position: u32) -> usize {
        self.levels.partition_point(|level| level.position <= position) - 1
    }
}

impl TopologyNode {
    fn child_positions(&self) -> Range<u32> {
        self.first_child..self.first_child + self.children
    }
}

impl<'a> NodeRef<'a> {
    /// Its number in the whole tree.
    #[must_use]
    pub fn rank(self) -> u32 {
        let level = self.tree.levels[self.tree.level_of(self.position)];
        level.rank + (self.position - level.position)
    }

    /// What it is.
    #[must_use]
    pub fn role(self) -> Role {
        if self.position == 0 && self.tree.levels[0].rank == 0 {
            Role::Root
        } else if self.data().children == 0 {
            Role::Leaf
        } else {
            Role::Inner
        }
    }

    /// The host it runs on.
    #[must_use]
    pub fn host(self) -> String {
        self.tree.names.get(self.data().host).unwrap_or_default()
    }

    /// The leaves below it; a leaf's own index.
    #[must_use]
    pub fn leaves(self) -> Range<u32> {
        self.data().leaves_start..self.data().leaves_end
    }

    /// Every leaf below it: those of hosts, and the own leaves of the nodes that are none
    /// ([`crate::own`]).
    #[must_use]
    pub fn all_leaves(self) -> RangeSet {
        let mut all = RangeSet::from_range(self.leaves().start, self.leaves().end);
        let mut level = self.position..self.position + 1;
        while let Some(last) = level.clone().next_back() {
            for node in level.clone().map(|position| NodeRef { tree: self.tree, position }) {
                if node.role() != Role::Leaf {
                    own::insert(&mut all, node.rank(), node.rank());
                }
            }
            // The children of a level's piece are a piece of the next level.
            let (first, last) =
                (&self.tree.nodes[level.start as usize], &self.tree.nodes[last as usize]);
            level = first.first_child..last.first_child + last.children;
        }
        all
    }

    /// Its leaf index, when it is a leaf.
    #[must_use]
    pub fn leaf_index(self) -> Option<u32> {
        (self.role() == Role::Leaf).then_some(self.data().leaves_start)
    }

    /// Its children, in order of their leaves.
    #[must_use]
    pub fn children(
        self,
    ) -> impl ExactSizeIterator<Item = NodeRef<'a>> + DoubleEndedIterator + use<'a> {
        let tree = self.tree;
        self.data().child_positions().map(move |position| NodeRef { tree, position })
    }

    /// Its parent, as far as this tree or subtree knows it.
    #[must_use]
    pub fn parent(self) -> Option<NodeRef<'a>> {
        (self.position > 0).then(|| NodeRef { tree: self.tree, position: self.data().parent })
    }

    /// Levels between it and the top.
    #[must_use]
    pub fn depth(self) -> u32 {
        self.tree.level_of(self.position) as u32
    }

    /// The child that has leaf `index` below it, or is it.
    #[must_use]
    pub fn child_towards(self, index: u32) -> Option<NodeRef<'a>> {
        let node = self.data();
        let children = &self.tree.nodes[node.first_child as usize..][..node.children as usize];
        let at = children.partition_point(|child| child.leaves_end <= index);
        let child = children.get(at).filter(|child| child.leaves_start <= index)?;
        debug_assert_eq!(child.parent, self.position);
        Some(NodeRef { tree: self.tree, position: node.first_child + at as u32 })
    }

    fn data(self) -> &'a TopologyNode {
        &self.tree.nodes[self.position as usize]
    }
}

impl std::fmt::Debug for NodeRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:?} {} on {} with leaves {:?}",
            self.role(),
            self.rank(),
            self.host(),
            self.leaves()
        )
    }
}

#[cfg(test)]
mod tests;
