//! Numbers about a tree.
use super::Topology;
use std::fmt;

/// What `sheaf tree plan` says about a tree, and MRNet's tree statistics.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TopologyStats {
    /// All nodes, the root included.
    pub nodes: u32,
    /// Nodes between the root and leaves.
    pub inner: u32,
    /// Leaves.
    pub leaves: u32,
    /// Levels below the root.
    pub depth: u32,
    /// Children of the node with the fewest, of those that have any.
    pub fanout_min: u32,
    /// Mean number of children of the nodes that have any.
    pub fanout_avg: f64,
    /// Standard deviation of that.
    pub fanout_stddev: f64,
    /// Children of the node with the most.
    pub fanout_max: u32,
}

impl TopologyStats {
    /// Inner nodes as a share of all nodes but the root: what the tree costs beside its leaves.
    #[must_use]
    pub fn inner_share(&self) -> f64 {
        f64::from(self.inner) / f64::from((self.nodes - 1).max(1))
    }
}

impl Topology {
    /// Counts the tree.
    #[must_use]
    pub fn stats(&self) -> TopologyStats {
        let parents =
            || self.nodes.iter().map(|node| node.children).filter(|&children| children > 0);
        let count = parents().count();
        let avg = parents().map(f64::from).sum::<f64>() / (count.max(1) as f64);
        let variance = parents().map(|children| (f64::from(children) - avg).powi(2)).sum::<f64>()
            / (count.max(1) as f64);
        TopologyStats {
            nodes: self.nodes_len(),
            inner: self.nodes_len() - 1 - self.leaves_len().min(self.nodes_len() - 1),
            leaves: self.leaves_len(),
            depth: self.depth(),
            fanout_min: parents().min().unwrap_or(0),
            fanout_avg: avg,
            fanout_stddev: variance.sqrt(),
            fanout_max: parents().max().unwrap_or(0),
        }
    }
}

impl fmt::Display for TopologyStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count: u32, one: &str, many: &str| {
            format!("{count} {}", if count == 1 { one } else { many })
        };
        let leaves = plural(self.leaves, "leaf", "leaves");
        let inner = plural(self.inner, "inner node", "inner nodes");
        let share = 100.0 * self.inner_share();
        write!(f, "{leaves}, {inner} ({share:.1} %), depth {}, fan-out ", self.depth)?;
        if self.fanout_min == self.fanout_max {
            return write!(f, "{}", self.fanout_max);
        }
        write!(f, "{}-{} (average {:.1})", self.fanout_min, self.fanout_max, self.fanout_avg)
    }
}
