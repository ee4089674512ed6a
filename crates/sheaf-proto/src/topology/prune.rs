//! A tree without some of its leaves.
use super::{Names, NodeRef, Role, Topology, TopologyError};

impl Topology {
    /// The tree without the hosts for which `is_out` holds: their leaves go, and with them inner
    /// nodes that have none left. Leaves and ranks are numbered anew, in the same order.
    ///
    /// # Errors
    /// [`TopologyError::NotSpared`] when an inner node on such a host has leaves that stay, and
    /// [`TopologyError::NoHosts`] when no leaf is left.
    pub fn without(&self, is_out: &dyn Fn(&str) -> bool) -> Result<Self, TopologyError> {
        let mut left = vec![0u32; self.nodes.len()];
        for position in (0..self.nodes_len()).rev() {
            let node = NodeRef { tree: self, position };
            let leaf = node.role() == Role::Leaf && !is_out(&node.host());
            let children: u32 = node.children().map(|child| left[child.position as usize]).sum();
            left[node.position as usize] = u32::from(leaf) + children;
        }
        if left[0] == 0 {
            return Err(TopologyError::NoHosts);
        }
        let stays = |node: &NodeRef<'_>| left[node.position as usize] > 0;
        let mut counts = Vec::new();
        let mut hosts = Vec::new();
        for node in self.nodes().filter(stays) {
            let host = node.host();
            if node.role() == Role::Inner && is_out(&host) {
                let below = self.names_below(node, &left);
                return Err(TopologyError::NotSpared { host, below });
            }
            counts.push(node.children().filter(stays).count() as u32);
            hosts.push(host);
        }
        Self::of(&counts, &hosts)
    }

    /// The folded hosts of the leaves below a node that stay.
    fn names_below(&self, node: NodeRef<'_>, left: &[u32]) -> String {
        let leaves = node.leaves().filter_map(|leaf| self.leaf(leaf));
        let hosts: Names = leaves
            .filter(|leaf| left[leaf.position as usize] > 0)
            .map(|leaf| leaf.host())
            .collect();
        hosts.fold(0..hosts.len())
    }

    /// The tree whose nodes, breadth first, have so many children and run on these hosts.
    pub(super) fn of<S: AsRef<str>>(counts: &[u32], hosts: &[S]) -> Result<Self, TopologyError> {
        let mut tree = Self::from_counts(counts, 0, Role::Root)?;
        let mut leaf_hosts = vec![""; tree.leaves_len() as usize];
        let (mut others, mut places) = (Names::new(), Vec::new());
        for (place, host) in hosts.iter().enumerate() {
            if counts[place] > 0 || place == 0 {
                others.push(host.as_ref());
                places.push(place);
            } else {
                leaf_hosts[tree.nodes[place].leaves_start as usize] = host.as_ref();
            }
        }
        tree.names = leaf_hosts.into_iter().collect::<Names>().join(others);
        tree.name_in_order(places.into_iter());
        Ok(tree)
    }
}
