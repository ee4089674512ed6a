//! Filters on the way down.
//!
//! A stream of the tree carries the same bytes to every member, which is what lets it recover from
//! lost nodes. So the front end's filter runs there, and those of the inner nodes run where a
//! packet ends: each leaf runs the filters of the nodes above it, one after the other. All leaves
//! below a node see the same packets in the same order, so that each of these copies of a filter
//! does and keeps what the one at the node would.
use crate::filter::{AssignFilter, Choice, FilterWork};
use crate::plan::BackEndPlan;
use crate::wire::Parcel;
use bytes::Bytes;
use sheaf_tree::filter::{FilterError, NodeInfo, Registry};

struct DownStep {
    rank: u32,
    work: FilterWork,
}

/// The filters of the nodes between the front end and one leaf.
pub struct Chain {
    steps: Vec<DownStep>,
}

impl Chain {
    /// Of the stream `id` at the leaf that is the node `node`.
    ///
    /// # Errors
    /// When a filter cannot be made.
    pub fn new(
        assign: &AssignFilter,
        plan: &BackEndPlan,
        node: u32,
        modules: &Registry,
        id: u32,
    ) -> Result<Self, FilterError> {
        let leaf = plan.topology().node(node);
        let above = std::iter::successors(leaf, |node| node.parent()).skip(1);
        let mut steps = Vec::new();
        // The front end runs its own.
        for node in above.filter(|node| node.parent().is_some()) {
            let choice =
                assign.at(node.rank()).filter(|choice| matches!(choice, Choice::Module(_)));
            if choice.is_some() {
                let work =
                    FilterWork::new(choice, &assign.params, modules, &NodeInfo::planned(node, id))?;
                steps.push(DownStep { rank: node.rank(), work });
            }
        }
        steps.reverse();
        Ok(Self { steps })
    }

    /// What becomes of a packet on its way here.
    ///
    /// # Errors
    /// What a filter says; the packet is lost then.
    pub fn run(&mut self, packet: Parcel) -> Result<Vec<Parcel>, FilterError> {
        pass(self.steps.iter_mut(), packet)
    }

    /// Sees a packet that others (by their nodes) are sent, where it passes nodes above this leaf.
    pub fn overhear(&mut self, packet: Parcel, to: &[u32], plan: &BackEndPlan) {
        let leads = |rank: u32| {
            to.iter().any(|&to| {
                let mut path =
                    std::iter::successors(plan.topology().node(to), |node| node.parent());
                path.any(|node| node.rank() == rank)
            })
        };
        // What a filter here makes of it is for others; where it fails, they say so.
        let _ = pass(self.steps.iter_mut().filter(|step| leads(step.rank)), packet);
    }

    /// Other parameters, from the next packet on.
    pub fn set_params(&mut self, params: &[u8]) {
        self.steps.iter_mut().for_each(|step| step.work.set_params(params));
    }
}

fn pass<'a>(
    steps: impl Iterator<Item = &'a mut DownStep>,
    packet: Parcel,
) -> Result<Vec<Parcel>, FilterError> {
    let mut packets = vec![packet];
    for step in steps {
        let mut passed = Vec::new();
        for packet in packets {
            // What a filter sends back counts at the front end only.
            step.work.run(vec![packet], step.rank, &mut passed, &mut Vec::new())?;
        }
        packets = passed;
    }
    Ok(packets)
}

/// A packet on its way down from the front end.
#[must_use]
pub fn parcel(tag: i32, packet: Bytes) -> Parcel {
    Parcel { tag, source: 0, packet }
}
