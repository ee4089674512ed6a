//! A service with state at inner nodes: a running sum of what passes, through faults.
use crate::oracle::for_seeds;
use rustc_hash::FxHashMap;
use sheaf_core::RangeSet;
use sheaf_proto::filter::{FilterError, Registry};
use sheaf_proto::packet::{PacketValue, pack, unpack};
use sheaf_proto::sim::{Fault, Leaves, Shape, Sim, SimConfig, fault};
use sheaf_proto::{Node, Notice, Packet, Passing, Sync, Tap, Time};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SERVICE: &str = "sum";
/// After the last fault.
const SETTLED: Duration = Duration::from_secs(40);

/// What one node has seen, and what it was given by others.
#[derive(Default)]
struct Sum {
    /// Who was counted in which wave.
    counted: FxHashMap<u64, RangeSet>,
    total: u64,
    /// By the rank of the node that gave it.
    given: BTreeMap<u32, Vec<u64>>,
}

impl Tap for Sum {
    fn passing(&mut self, passing: &Passing<'_>) {
        let counted = self.counted.entry(passing.wave).or_default();
        assert!(counted.is_disjoint(passing.ok), "wave {}: {} twice", passing.wave, passing.ok);
        counted.union_with(passing.ok);
        let sum = passing.payload.map_or(0, number);
        assert_eq!(sum, passing.ok.iter().map(worth).sum::<u64>(), "it is theirs");
        self.total += sum;
    }

    fn bytes(&self) -> usize {
        size_of::<u64>() * (1 + self.given.len())
    }

    fn state(&mut self) -> Option<Vec<u8>> {
        let given = self.given.values().flatten().sum::<u64>();
        Some((self.total + given).to_le_bytes().to_vec())
    }

    fn absorb(&mut self, from: u32, state: &[u8]) -> Result<(), FilterError> {
        let total = u64::from_le_bytes(state.try_into().expect("a state of this test"));
        self.given.entry(from).or_default().push(total);
        Ok(())
    }
}

fn number(payload: &[u8]) -> u64 {
    match unpack(payload).expect("a sum")[..] {
        [PacketValue::U64(value)] => value,
        ref other => panic!("{other:?}"),
    }
}

/// Everybody's answer is another one, so that a sum says whose it is.
fn worth(leaf: u32) -> u64 {
    1 << leaf
}

/// Leaves that answer with what they are worth, and the sums of all nodes that ever were.
#[derive(Default)]
struct Hosts {
    sums: BTreeMap<u32, Vec<Arc<Mutex<Sum>>>>,
}

impl Leaves for Hosts {
    fn packet(&mut self, leaf: u32, packet: &Packet, node: &mut Node) {
        let answer = pack(&[PacketValue::U64(worth(leaf))]).unwrap();
        node.reply(packet.stream, packet.wave, 0, &answer);
    }

    fn node_begins(&mut self, rank: u32, node: &mut Node) {
        let sum = Arc::new(Mutex::new(Sum::default()));
        node.add_tap(SERVICE, Arc::clone(&sum) as sheaf_proto::SharedTap);
        self.sums.entry(rank).or_default().push(sum);
    }
}

fn start(seed: u64, shape: Shape) -> (Sim<Hosts>, u32) {
    let everyone = shape.everyone();
    let config = SimConfig { shred: seed.is_multiple_of(2), ..SimConfig::seeded(seed) };
    let mut sim = Sim::new(shape, Registry::with_builtins(), Hosts::default(), config);
    let opened =
        sim.with(0, |root, _| root.open(SERVICE, everyone, "sum", b"%uld", Sync::WaitForAll));
    (sim, opened.unwrap())
}

/// Takes what has come; what the root was told in all.
fn take(sim: &mut Sim<Hosts>, stream: u32, total: &mut u64) {
    while let Some(result) = sim.take(stream) {
        *total += result.payload.as_deref().map_or(0, number);
    }
}

/// The nodes of which the root was told that their state is lost.
fn said_lost(sim: &Sim<Hosts>) -> Vec<u32> {
    let lost = sim.notices().iter().filter_map(|notice| match notice {
        Notice::StateLost { rank, service, .. } if service == SERVICE => Some(*rank),
        _ => None,
    });
    lost.collect()
}

/// Whatever happens: each node counts nobody twice, and the root's own sum is that of its results.
fn keeps_count(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x7a9);
    let shapes = [&[4, 4][..], &[2, 2, 2, 2], &[3, 3, 3], &[8, 2], &[1, 1, 4]];
    let shape = Shape::balanced(rng.choice(shapes).unwrap());
    let inner: Vec<u32> = (1..shape.nodes()).filter(|&rank| shape.leaf(rank).is_none()).collect();
    let (mut sim, stream) = start(seed, shape.clone());
    let mut faults = fault::random(&shape, &mut rng, 4, Duration::from_secs(3));
    for _ in 0..rng.u32(0..3) {
        let (rank, at) = (*rng.choice(&inner).unwrap(), Time(rng.u64(0..3_000_000_000)));
        faults.push((at, Fault::Retire { rank }));
        faults.push((at + Duration::from_millis(rng.u64(1..4_000)), Fault::Restart { rank }));
    }
    for (at, fault) in faults {
        sim.schedule(at - Time(0), fault);
    }
    let mut total = 0;
    for _ in 0..12 {
        sim.send(stream, 0, b"", Some(Duration::from_millis(rng.u64(50..10_000))));
        sim.run_for(Duration::from_millis(rng.u64(0..400)));
        take(&mut sim, stream, &mut total);
    }
    sim.run_for(SETTLED);
    take(&mut sim, stream, &mut total);
    assert_eq!(sim.traffic().violations, 0, "a node accuses another, and all are honest");
    let root = sim.leaves().sums[&0][0].lock().unwrap().total;
    assert_eq!(root, total, "the root's tap sees what the root is told");
}

#[test]
fn running_sum_counts_nobody_twice() {
    for_seeds(2000, keeps_count);
}

/// A stream that is closed at a node and opened there again, from its beginning, brings waves that
/// its tap has seen.
#[test]
fn replayed_waves_are_not_shown_to_the_tap_again() {
    for seed in [80000216, 80001219, 80002952, 80003870] {
        keeps_count(seed);
    }
}

/// Nodes go, one after the other, or are killed: what each kept is at the one above, once, or said
/// to be lost.
fn gives_away_or_loses(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x90);
    let shape = Shape::balanced(rng.choice([&[3, 3][..], &[2, 2, 2], &[2, 3, 2]]).unwrap());
    let (mut sim, stream) = start(seed, shape.clone());
    let mut inner: Vec<u32> =
        (1..shape.nodes()).filter(|&rank| shape.leaf(rank).is_none()).collect();
    rng.shuffle(&mut inner);
    let (mut went, mut killed) = (Vec::new(), Vec::new());
    let mut total = 0;
    for rank in inner.into_iter().take(3) {
        for _ in 0..rng.u32(1..4) {
            sim.send(stream, 0, b"", Some(Duration::from_secs(20)));
            sim.run_for(Duration::from_millis(rng.u64(1..100)));
            take(&mut sim, stream, &mut total);
        }
        let retires = rng.bool();
        if retires { &mut went } else { &mut killed }.push(rank);
        let fault = if retires { Fault::Retire { rank } } else { Fault::Kill { rank } };
        sim.schedule(Duration::ZERO, fault);
        sim.run_for(Duration::from_secs(10));
        take(&mut sim, stream, &mut total);
        assert!(!sim.is_running(rank));
    }
    let mut said = said_lost(&sim);
    said.sort_unstable();
    killed.sort_unstable();
    assert_eq!(said, killed, "whose state is lost is said, once; that of {went:?} is not");
    let sums = &sim.leaves().sums;
    let given = |rank: u32| {
        let holders = sums.values().map(|sums| sums[0].lock().unwrap());
        holders
            .flat_map(|sum| sum.given.get(&rank).cloned().unwrap_or_default())
            .collect::<Vec<u64>>()
    };
    for rank in went {
        let own = sums[&rank][0].lock().unwrap();
        let all = own.total + own.given.values().flatten().sum::<u64>();
        drop(own);
        assert_eq!(given(rank), [all], "what node {rank} kept was taken in once");
    }
    assert!(killed.iter().all(|&rank| given(rank).is_empty()));
    assert_eq!(sums[&0][0].lock().unwrap().total, total);
}

#[test]
fn retiring_node_hands_over_its_state_and_killed_node_loses_it() {
    for_seeds(500, gives_away_or_loses);
}

/// The ranks whose states are at nodes that run, with those that these have taken in.
fn held(sim: &Sim<Hosts>, inner: &[u32]) -> Vec<u32> {
    let given = |rank: u32| {
        let sum = sim.leaves().sums[&rank][0].lock().unwrap();
        sum.given.iter().flat_map(|(&rank, all)| vec![rank; all.len()]).collect::<Vec<u32>>()
    };
    let mut held: Vec<u32> = inner.iter().copied().filter(|&rank| sim.is_running(rank)).collect();
    held.push(0);
    let mut at = 0;
    while let Some(&rank) = held.get(at) {
        held.extend(given(rank));
        at += 1;
    }
    held
}

/// Nodes go and are killed at any moment, some at once: what each kept is at one place, or said to
/// be lost, or went with the node that had taken it in.
fn is_at_one_place_or_said_to_be_lost(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x4e1);
    let shape = Shape::balanced(rng.choice([&[3, 3][..], &[2, 2, 2], &[2, 1, 2, 2]]).unwrap());
    let (mut sim, stream) = start(seed, shape.clone());
    let mut inner: Vec<u32> =
        (1..shape.nodes()).filter(|&rank| shape.leaf(rank).is_none()).collect();
    rng.shuffle(&mut inner);
    let (mut went, mut killed) = (Vec::new(), Vec::new());
    for &rank in &inner[..rng.usize(1..=inner.len())] {
        let retires = rng.bool();
        if retires { &mut went } else { &mut killed }.push(rank);
        let fault = if retires { Fault::Retire { rank } } else { Fault::Kill { rank } };
        sim.schedule(Duration::from_millis(500 + rng.u64(0..rng.clone().u64(1..8_000))), fault);
    }
    let mut total = 0;
    for _ in 0..10 {
        sim.send(stream, 0, b"", Some(Duration::from_secs(20)));
        sim.run_for(Duration::from_millis(rng.u64(1..1_000)));
        take(&mut sim, stream, &mut total);
    }
    sim.run_for(SETTLED);
    take(&mut sim, stream, &mut total);
    let (held, said) = (held(&sim, &inner), said_lost(&sim));
    let about = format!("went {went:?}, killed {killed:?}, held {held:?}, said lost {said:?}");
    for &rank in &inner {
        let count = |list: &[u32]| list.iter().filter(|&&other| other == rank).count();
        // Whoever had taken it in before it was lost itself took it along.
        let along = sim.leaves().sums.iter().any(|(&other, sums)| {
            !held.contains(&other) && sums[0].lock().unwrap().given.contains_key(&rank)
        });
        match (count(&held), count(&said)) {
            (1, 0) => {}
            (0, 1) => {}
            (0, 0) if along => {}
            other => panic!("node {rank}, held and said {other:?}: {about}"),
        }
    }
    assert_eq!(sim.leaves().sums[&0][0].lock().unwrap().total, total);
}

#[test]
fn node_state_is_held_at_one_place_or_reported_lost() {
    for_seeds(500, is_at_one_place_or_said_to_be_lost);
}
