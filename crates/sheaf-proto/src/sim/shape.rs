//! The shape of a simulated tree: how many children each node has.
use crate::config::{Child, NodeConfig, NodeRole, Tuning};
use crate::own;
use crate::topology::Topology;
use sheaf_core::RangeSet;

/// A rooted tree without names. Nodes are numbered breadth first, the root being 0, so the
/// children of a node follow each other; leaves are numbered depth first, so below every node
/// lies one range of leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    places: Vec<SimPlace>,
    leaves: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct SimPlace {
    parent: u32,
    first_child: u32,
    children: u32,
    depth: u32,
    leaves_start: u32,
    leaves_end: u32,
}

impl Shape {
    /// From the number of children of each node, breadth first; `None` when the counts do not
    /// make one tree with at least one leaf below its root.
    #[must_use]
    pub fn from_counts(counts: &[u32]) -> Option<Self> {
        let mut places = vec![SimPlace::default(); counts.len()];
        let mut next = 1usize;
        for (rank, &children) in counts.iter().enumerate() {
            let end = next.checked_add(children as usize).filter(|&end| end <= counts.len())?;
            if rank >= next || (rank == 0 && children == 0) {
                return None;
            }
            places[rank].first_child = next as u32;
            places[rank].children = children;
            let depth = places[rank].depth + 1;
            for child in &mut places[next..end] {
                child.parent = rank as u32;
                child.depth = depth;
            }
            next = end;
        }
        if next != counts.len() || counts.is_empty() {
            return None;
        }
        let mut shape = Self { places, leaves: 0 };
        shape.number_leaves();
        Some(shape)
    }

    /// Every node of a level has the same number of children: `[8, 8]` is 1x8x8.
    ///
    /// # Panics
    /// When `fanouts` is empty or holds a 0.
    #[must_use]
    pub fn balanced(fanouts: &[u32]) -> Self {
        let (mut counts, mut level) = (Vec::new(), 1usize);
        for &fanout in fanouts {
            counts.resize(counts.len() + level, fanout);
            level *= fanout as usize;
        }
        counts.resize(counts.len() + level, 0);
        Self::from_counts(&counts).expect("fan-outs of at least one make a tree")
    }

    /// The least deep tree of nodes with at most `fanout` children, as even as it can be.
    ///
    /// # Panics
    /// When `leaves` is 0 or `fanout` is less than 2.
    #[must_use]
    pub fn with_fanout(leaves: u32, fanout: u32) -> Self {
        assert!(leaves > 0 && fanout > 1, "a tree has leaves, and nodes with several children");
        let mut levels = vec![leaves];
        while let Some(&first) = levels.first()
            && first > fanout
        {
            levels.insert(0, first.div_ceil(fanout));
        }
        let mut counts = vec![levels[0]];
        for pair in levels.windows(2) {
            let (nodes, below) = (u64::from(pair[0]), u64::from(pair[1]));
            counts.extend(
                (0..nodes).map(|at| ((at + 1) * below / nodes - at * below / nodes) as u32),
            );
        }
        counts.resize(counts.len() + leaves as usize, 0);
        Self::from_counts(&counts).expect("levels that divide evenly make a tree")
    }

    fn number_leaves(&mut self) {
        // Leaves below each node first, then the place where its range begins.
        for rank in (0..self.places.len()).rev() {
            let own = u32::from(self.places[rank].children == 0);
            self.places[rank].leaves_end += own;
            if rank > 0 {
                let (parent, below) =
                    (self.places[rank].parent as usize, self.places[rank].leaves_end);
                self.places[parent].leaves_end += below;
            }
        }
        self.leaves = self.places[0].leaves_end;
        for rank in 0..self.places.len() {
            let mut at = self.places[rank].leaves_start;
            for child in self.children(rank as u32) {
                let place = &mut self.places[child as usize];
                place.leaves_start = at;
                place.leaves_end += at;
                at = place.leaves_end;
            }
        }
    }

    /// Nodes in all.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        self.places.len() as u32
    }

    /// Leaves in all.
    #[must_use]
    pub fn leaves(&self) -> u32 {
        self.leaves
    }

    /// The set of all leaves.
    #[must_use]
    pub fn everyone(&self) -> RangeSet {
        RangeSet::full(self.leaves)
    }

    /// Links between the root and the furthest leaf.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.places.last().map_or(0, |place| place.depth)
    }

    /// Links between a node and the root.
    #[must_use]
    pub fn depth_of(&self, rank: u32) -> u32 {
        self.places[rank as usize].depth
    }

    /// The parent of a node; of the root, itself.
    #[must_use]
    pub fn parent(&self, rank: u32) -> u32 {
        self.places[rank as usize].parent
    }

    /// Ranks of the children.
    pub fn children(&self, rank: u32) -> std::ops::Range<u32> {
        let place = &self.places[rank as usize];
        place.first_child..place.first_child + place.children
    }

    /// Leaves below a node (itself, if it is one).
    #[must_use]
    pub fn leaves_below(&self, rank: u32) -> std::ops::Range<u32> {
        let place = &self.places[rank as usize];
        place.leaves_start..place.leaves_end
    }

    /// Leaves below a node, with the own leaves of nodes ([`crate::own`]).
    #[must_use]
    pub fn all_leaves_below(&self, rank: u32) -> RangeSet {
        let below = self.leaves_below(rank);
        let mut all = RangeSet::from_range(below.start, below.end);
        let mut level = rank..rank + 1;
        while !level.is_empty() {
            let inner = level.clone().filter(|&rank| self.leaf(rank).is_none());
            inner.for_each(|rank| own::insert(&mut all, rank, rank));
            level = self.children(level.start).start..self.children(level.end - 1).end;
        }
        all
    }

    /// The own leaves of all nodes that are none.
    #[must_use]
    pub fn own_leaves(&self) -> RangeSet {
        self.all_leaves_below(0).difference(&self.everyone())
    }

    /// Which leaf a node is.
    #[must_use]
    pub fn leaf(&self, rank: u32) -> Option<u32> {
        let place = &self.places[rank as usize];
        (place.children == 0).then_some(place.leaves_start)
    }

    /// Rank of a leaf.
    #[must_use]
    pub fn rank_of_leaf(&self, leaf: u32) -> u32 {
        let mut rank = 0;
        while self.leaf(rank).is_none() {
            let children = self.children(rank);
            let (mut low, mut high) = (children.start, children.end);
            while high - low > 1 {
                let middle = low + (high - low) / 2;
                let left = self.places[middle as usize].leaves_start > leaf;
                if left { high = middle } else { low = middle }
            }
            rank = low;
        }
        rank
    }

    /// What the node of this rank is told when it starts.
    #[must_use]
    pub fn config(&self, rank: u32, tuning: Tuning) -> NodeConfig {
        let leaves = |rank: u32| self.all_leaves_below(rank);
        let role = match (rank, self.leaf(rank)) {
            (0, _) => NodeRole::Root,
            (_, None) => NodeRole::Inner,
            (_, Some(_)) => NodeRole::Leaf,
        };
        let children =
            self.children(rank).map(|child| Child { rank: child, leaves: leaves(child) });
        NodeConfig {
            rank,
            role,
            depth: self.places[rank as usize].depth,
            leaves: leaves(rank),
            children: children.collect(),
            stream_base: 0,
            place: Default::default(),
            tuning,
        }
    }
}

impl From<&Topology> for Shape {
    fn from(tree: &Topology) -> Self {
        let counts: Vec<u32> = tree.nodes().map(|node| node.children().len() as u32).collect();
        Self::from_counts(&counts)
            .expect("a topology is one tree with leaves, numbered breadth first")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{Names, Placement, Spec};

    #[test]
    fn leaves_are_numbered_depth_first() {
        let shape = Shape::balanced(&[2, 3, 4]);
        assert_eq!((shape.nodes(), shape.leaves(), shape.depth()), (33, 24, 3));
        assert_eq!(shape.children(2), 6..9);
        assert_eq!(shape.leaves_below(2), 12..24);
        for leaf in 0..24 {
            assert_eq!(shape.leaf(shape.rank_of_leaf(leaf)), Some(leaf));
        }
    }

    #[test]
    fn topology_has_the_same_ranks_and_leaves() {
        let spec = Spec::parse("auto").unwrap();
        let hosts: Names = (0..100).map(|at| format!("n{at}")).collect();
        let tree = Topology::build(&spec, "root", hosts, Placement::LeafHosts).unwrap();
        let shape = Shape::from(&tree);
        assert_eq!(
            (shape.nodes(), shape.leaves(), shape.depth()),
            (tree.nodes_len(), 100, tree.depth())
        );
        assert!(tree.nodes().all(|node| node.leaves() == shape.leaves_below(node.rank())));
    }

    #[test]
    fn counts_that_are_no_tree_are_refused() {
        for counts in [&[][..], &[0], &[2, 0], &[1, 0, 0], &[1, 0, 1, 0]] {
            assert_eq!(Shape::from_counts(counts), None, "{counts:?}");
        }
    }

    #[test]
    fn fan_out_is_kept_to() {
        for (leaves, fanout, nodes) in [(1, 2, 2), (33, 32, 36), (1024, 32, 1057), (1025, 32, 1061)]
        {
            let shape = Shape::with_fanout(leaves, fanout);
            assert_eq!((shape.leaves(), shape.nodes()), (leaves, nodes));
            assert!((0..nodes).all(|rank| shape.children(rank).len() <= fanout as usize));
        }
    }
}
