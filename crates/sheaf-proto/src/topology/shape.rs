//! From a specification to the bare shape: how many children each node has, breadth first.
use super::{AUTO_FANOUT, DEPTH_MAX, NODES_MAX, Spec, TopologyError};
use std::collections::VecDeque;
use std::ops::Range;

/// The children of every node, breadth first, for a tree of `leaves` leaves.
pub(super) fn children(spec: &Spec, leaves: u32) -> Result<Vec<u32>, TopologyError> {
    if leaves == 0 {
        return Err(TopologyError::NoHosts);
    }
    if leaves > NODES_MAX {
        return Err(TopologyError::TooManyNodes);
    }
    let counts = match spec {
        Spec::Auto => by_widths(&auto_widths(leaves))?,
        Spec::Flat => by_widths(&[1, leaves])?,
        Spec::Levels(levels) => by_widths(&level_widths(spec, levels, leaves)?)?,
        Spec::KAry(k) => by_widths(&k_ary_widths(*k, leaves))?,
        Spec::KNomial(k) => k_nomial(*k, leaves),
        Spec::KNomialNodes { k, nodes } => exactly(spec, k_nomial_nodes(*k, *nodes)?, leaves)?,
        Spec::Generic(levels) => exactly(spec, generic(spec, levels)?, leaves)?,
        Spec::File(_) => return Err(error(spec, "its file has not been read")),
    };
    if counts.len() > NODES_MAX as usize { Err(TopologyError::TooManyNodes) } else { Ok(counts) }
}

fn error(spec: &Spec, why: &str) -> TopologyError {
    TopologyError::Spec { text: spec.to_string(), why: why.to_owned() }
}

fn exactly(spec: &Spec, counts: Vec<u32>, hosts: u32) -> Result<Vec<u32>, TopologyError> {
    let leaves = counts.iter().skip(1).filter(|&&count| count == 0).count() as u64;
    if leaves == u64::from(hosts) {
        return Ok(counts);
    }
    Err(TopologyError::Leaves { spec: spec.to_string(), leaves, hosts })
}

/// The least depth that a fan-out of at most [`AUTO_FANOUT`] reaches, with the least fan-out that
/// still reaches it.
fn auto_widths(leaves: u32) -> Vec<u32> {
    let reach = |fanout: u32, depth: u32| u64::from(fanout).saturating_pow(depth);
    let mut depth = 1;
    while reach(AUTO_FANOUT, depth) < u64::from(leaves) {
        depth += 1;
    }
    let mut fanout = 1;
    while reach(fanout, depth) < u64::from(leaves) {
        fanout += 1;
    }
    widths_up(fanout, depth, leaves)
}

fn k_ary_widths(k: u32, leaves: u32) -> Vec<u32> {
    let mut depth = 1;
    while u64::from(k).saturating_pow(depth) < u64::from(leaves) {
        depth += 1;
    }
    widths_up(k, depth, leaves)
}

/// Widths from the leaves up, each level as narrow as `fanout` allows.
fn widths_up(fanout: u32, depth: u32, leaves: u32) -> Vec<u32> {
    let mut widths = vec![leaves];
    for _ in 0..depth {
        widths.push(widths[widths.len() - 1].div_ceil(fanout));
    }
    widths.reverse();
    widths
}

fn level_widths(spec: &Spec, levels: &[u32], leaves: u32) -> Result<Vec<u32>, TopologyError> {
    if levels.len() > DEPTH_MAX as usize {
        return Err(TopologyError::TooDeep);
    }
    let mut widths = vec![1];
    let mut full = 1u64;
    for &children in levels {
        full = full.saturating_mul(children.into());
        widths.push(full.min(leaves.into()) as u32);
    }
    if full < u64::from(leaves) {
        return Err(TopologyError::Leaves { spec: spec.to_string(), leaves: full, hosts: leaves });
    }
    Ok(widths)
}

/// Every level dealt out evenly to the one above it; no level is narrower than the one above.
fn by_widths(widths: &[u32]) -> Result<Vec<u32>, TopologyError> {
    let total: usize = widths.iter().map(|&width| width as usize).sum();
    if total > NODES_MAX as usize {
        return Err(TopologyError::TooManyNodes);
    }
    let mut counts = Vec::with_capacity(total);
    for pair in widths.windows(2) {
        let (parents, children) = (u64::from(pair[0]), u64::from(pair[1]));
        // Rounded down at each border, so that any two parents differ by at most one child.
        let before = |parent: u64| parent * children / parents;
        counts.extend((0..parents).map(|parent| (before(parent + 1) - before(parent)) as u32));
    }
    counts.resize(total, 0);
    Ok(counts)
}

/// A k-nomial tree over `leaves` participants. Participant 0 is the root, and every participant
/// that has others below it is an inner node with its own leaf as the first child.
fn k_nomial(k: u32, leaves: u32) -> Vec<u32> {
    let mut counts = Vec::new();
    let mut queue = VecDeque::from([(0..leaves, true)]);
    while let Some((range, inner)) = queue.pop_front() {
        if !inner {
            counts.push(0);
            continue;
        }
        let before = queue.len();
        queue.push_back((range.start..range.start + 1, false));
        for part in k_nomial_parts(k, range) {
            let inner = part.len() > 1;
            queue.push_back((part, inner));
        }
        counts.push((queue.len() - before) as u32);
    }
    counts
}

/// What the first of `range` has below it: k − 1 ranges of 1, k − 1 of k, k − 1 of k², …
fn k_nomial_parts(k: u32, range: Range<u32>) -> impl Iterator<Item = Range<u32>> {
    let (mut start, mut step, mut of_step) = (range.start + 1, 1u32, 0);
    std::iter::from_fn(move || {
        if start >= range.end {
            return None;
        }
        if of_step == k - 1 {
            (step, of_step) = (step.saturating_mul(k), 0);
        }
        let part = start..start.saturating_add(step).min(range.end);
        (start, of_step) = (part.end, of_step + 1);
        Some(part)
    })
}

/// MRNet's k-nomial tree: in every round each node so far gets k − 1 more children, until there
/// are `nodes`; those without children are the leaves.
fn k_nomial_nodes(k: u32, nodes: u32) -> Result<Vec<u32>, TopologyError> {
    if nodes > NODES_MAX {
        return Err(TopologyError::TooManyNodes);
    }
    let mut below: Vec<Vec<u32>> = vec![Vec::new(); nodes as usize];
    let mut next = 1;
    while next < nodes {
        let round = 0..next;
        for node in round {
            let end = next.saturating_add(k - 1).min(nodes);
            below[node as usize].extend(next..end);
            next = end;
        }
    }
    let mut counts = Vec::with_capacity(below.len());
    let mut queue = VecDeque::from([0u32]);
    while let Some(node) = queue.pop_front() {
        counts.push(below[node as usize].len() as u32);
        queue.extend(&below[node as usize]);
    }
    Ok(counts)
}

fn generic(spec: &Spec, levels: &[Vec<(u32, u32)>]) -> Result<Vec<u32>, TopologyError> {
    if levels.len() > DEPTH_MAX as usize {
        return Err(TopologyError::TooDeep);
    }
    let (mut counts, mut width) = (Vec::new(), 1u64);
    for (at, level) in levels.iter().enumerate() {
        let named: u64 = level.iter().map(|&(times, _)| u64::from(times)).sum();
        if named > width {
            let why = format!("its level {} names {named} nodes, but there are {width}", at + 1);
            return Err(error(spec, &why));
        }
        let below: u64 =
            level.iter().map(|&(times, children)| u64::from(times) * u64::from(children)).sum();
        if counts.len() as u64 + width + below > u64::from(NODES_MAX) {
            return Err(TopologyError::TooManyNodes);
        }
        for &(times, children) in level {
            counts.extend(std::iter::repeat_n(children, times as usize));
        }
        // Nodes that a level does not name have no children.
        counts.extend(std::iter::repeat_n(0, (width - named) as usize));
        width = below;
    }
    counts.extend(std::iter::repeat_n(0, width as usize));
    Ok(counts)
}
