//! The whole tree in this process.
use crate::driver::Shared;
use crate::launch::{Options, add_own_leaf, config};
use crate::network::Network;
use crate::proto::{LinkId, NodeRole};
use crate::service::{Dispatch, LeafHandle, ServicePlace, Services};
use crate::topology::Topology;
use std::sync::Arc;

/// Starts every node of `topology` in this process, on the runtime of the caller.
///
/// A leaf whose service cannot start counts as lost, with the cause.
///
/// # Panics
/// Outside a tokio runtime.
#[must_use]
pub fn embedded(topology: &Topology, services: &Services, options: &Options) -> Network {
    let shared = Shared::new();
    shared.run(|core, now| {
        let first = topology.root().rank();
        for node in topology.nodes() {
            let at = core.add_node(
                config(node, options.tuning, options.depth + node.depth()),
                services.filters().clone(),
            );
            core.nodes[at].set_identity(&node.host(), std::process::id());
        }
        for node in topology.nodes() {
            let parent = (node.rank() - first) as usize;
            for (link, child) in node.children().enumerate() {
                core.join(parent, LinkId::new(link), (child.rank() - first) as usize);
            }
        }
        for node in topology.nodes() {
            let at = (node.rank() - first) as usize;
            let place = ServicePlace::of(node, &options.configs);
            if node.leaf_index().is_none() {
                add_own_leaf(&shared, core, at, place, services);
                continue;
            }
            let handle = LeafHandle { shared: Arc::downgrade(&shared), node: at };
            match Dispatch::at_leaf(services, place, handle) {
                Ok(dispatch) => {
                    core.set_works(at, dispatch);
                    core.nodes[at].tell_ready();
                }
                Err(error) => {
                    let Some(parent) = node.parent() else { continue };
                    let link = parent.children().position(|child| child.rank() == node.rank());
                    let parent = (parent.rank() - first) as usize;
                    if let Some(link) = link {
                        core.nodes[parent].child_dead(
                            now,
                            LinkId::new(link),
                            error.errno,
                            &error.cause,
                        );
                        core.touch(parent);
                    }
                }
            }
        }
        for at in 0..core.nodes.len() {
            if core.nodes[at].config().role != NodeRole::Leaf {
                core.nodes[at].tell_ready();
            }
            core.touch(at);
        }
    });
    Network::new(shared, topology.leaves_len(), None)
}
