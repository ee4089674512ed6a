//! Runs a filter over a random tree.
use crate::filter::{Emit, Filter, FilterError, Input, NodeInfo, Registry};

/// Reduces one contribution per leaf in a tree whose shape, with nodes of one child among others,
/// follows from `seed`. Where the filter allows it, children are folded in a random order.
pub(super) fn reduce(
    name: &str,
    params: &[u8],
    contributions: &[Vec<u8>],
    seed: u64,
) -> Result<Vec<u8>, FilterError> {
    let filter = Registry::with_builtins().instantiate(name, params, &NodeInfo::default())?;
    FilterRun { filter, random: Random(seed) }.node(contributions, 0, Emit::Result)
}

/// A result of one leaf's contribution alone.
pub(super) fn alone(
    name: &str,
    params: &[u8],
    contribution: &[u8],
) -> Result<Vec<u8>, FilterError> {
    let mut wave =
        Registry::with_builtins().instantiate(name, params, &NodeInfo::default())?.accumulator();
    wave.fold(Input { child: 0, raw: true, payload: contribution, ..Input::default() })?;
    let mut out = Vec::new();
    wave.finish(Emit::Result, &mut out)?;
    Ok(out)
}

/// What [`Accumulator::fold`](crate::filter::Accumulator::fold) promises about bytes of any kind:
/// no panic, and a wave as it was before when they are refused.
pub(super) fn garbage_leaves_no_trace(name: &str, params: &[u8], good: &[u8], garbage: &[u8]) {
    let filter = Registry::with_builtins().instantiate(name, params, &NodeInfo::default()).unwrap();
    for raw in [true, false] {
        let mut wave = filter.accumulator();
        // Garbage may be the first that a wave sees, and come between good contributions.
        if wave.fold(Input { child: 0, raw, payload: garbage, ..Input::default() }).is_ok() {
            let _ = wave.finish(Emit::Result, &mut Vec::new());
            continue;
        }
        wave.fold(Input { child: 1, raw: true, payload: good, ..Input::default() }).unwrap();
        if wave.fold(Input { child: 2, raw, payload: garbage, ..Input::default() }).is_err() {
            let mut out = Vec::new();
            wave.finish(Emit::Result, &mut out).unwrap();
            assert_eq!(out, alone(name, params, good).unwrap());
        }
    }
}

struct FilterRun {
    filter: Box<dyn Filter>,
    random: Random,
}

impl FilterRun {
    fn node(&mut self, leaves: &[Vec<u8>], depth: u32, emit: Emit) -> Result<Vec<u8>, FilterError> {
        let mut children = Vec::new();
        let mut rest = leaves;
        while !rest.is_empty() {
            let (head, tail) = rest.split_at(1 + self.random.below(rest.len()));
            rest = tail;
            if head.len() == 1 && (depth > 5 || self.random.below(2) == 0) {
                children.push((true, head[0].clone()));
            } else if depth > 5 {
                children.extend(head.iter().map(|leaf| (true, leaf.clone())));
            } else {
                children.push((false, self.node(head, depth + 1, Emit::Partial)?));
            }
        }
        let mut order: Vec<usize> = (0..children.len()).collect();
        if !self.filter.in_child_order() {
            for at in (1..order.len()).rev() {
                order.swap(at, self.random.below(at + 1));
            }
        }
        let mut wave = self.filter.accumulator();
        let mut outs = [const { Vec::new() }; 2];
        for out in &mut outs {
            for &child in &order {
                let (raw, payload) = &children[child];
                wave.fold(Input { child: child as u32, raw: *raw, payload, ..Input::default() })?;
            }
            wave.finish(emit, out)?;
        }
        let [first, second] = outs;
        assert_eq!(first, second, "an accumulator must be as new for its second wave");
        Ok(first)
    }
}

/// A small generator of even enough numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end as u64) as usize
    }
}
