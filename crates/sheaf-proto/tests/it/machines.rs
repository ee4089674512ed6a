//! A machine that is among the leaves twice serves as one of them, whatever fails.
use crate::oracle::{for_seeds, registry};
use rustc_hash::FxHashMap;
use sheaf_core::{Errno, RangeSet};
use sheaf_proto::control::MachineId;
use sheaf_proto::sim::{Fault, Leaves, Shape, Sim, SimConfig, fault};
use sheaf_proto::{Node, Notice, Packet, Sync, Time};
use std::time::Duration;

/// After the last fault, all have found a parent or are lost.
const SETTLED: Duration = Duration::from_secs(40);
const SEEDS: u64 = 300;
const WAVE_TIME: Duration = Duration::from_secs(30);

fn id(number: u32) -> [u8; 16] {
    u128::from(number).to_le_bytes()
}

/// Leaves on machines of one name.
struct Copies;

impl Leaves for Copies {
    fn packet(&mut self, _leaf: u32, packet: &Packet, node: &mut Node) {
        if packet.last {
            node.reply(packet.stream, packet.wave, 0, b"x");
        }
    }

    fn machine(&self, leaf: u32) -> Option<MachineId> {
        Some(MachineId { boot: Some(id(leaf)), names: [id(0); 2] })
    }
}

/// Leaves of which some are on one machine. Each packet is done once on each machine.
struct Twins {
    machines: u32,
    /// Which leaves have dealt with a wave of a stream.
    done: FxHashMap<(u32, u64), Vec<u32>>,
}

impl Twins {
    fn of(machines: u32) -> Self {
        Self { machines, done: FxHashMap::default() }
    }

    fn machine_of(&self, leaf: u32) -> u32 {
        leaf % self.machines
    }

    /// No wave was dealt with twice on a machine. What a leaf did that was lost is not known, which
    /// is what the root says of it.
    fn check(&self, notices: &[Notice]) {
        let mut lost = RangeSet::new();
        for notice in notices {
            if let Notice::Lost { leaves, errno, .. } = notice
                && *errno != Errno::NOTUNIQ
            {
                lost.union_with(leaves);
            }
        }
        for ((stream, wave), leaves) in &self.done {
            let known = leaves.iter().filter(|leaf| !lost.contains(**leaf));
            let mut machines: Vec<u32> = known.map(|leaf| self.machine_of(*leaf)).collect();
            machines.sort_unstable();
            let all = machines.len();
            machines.dedup();
            assert_eq!(machines.len(), all, "stream {stream}, wave {wave}: {leaves:?}");
        }
    }
}

impl Leaves for Twins {
    fn packet(&mut self, leaf: u32, packet: &Packet, node: &mut Node) {
        let done = self.done.entry((packet.stream, packet.wave)).or_default();
        if packet.first && !done.contains(&leaf) {
            done.push(leaf);
        }
        if packet.last {
            node.reply(packet.stream, packet.wave, 0, b"x");
        }
    }

    /// A third of the leaves do not see the boot of their machine, and have one of its names.
    fn machine(&self, leaf: u32) -> Option<MachineId> {
        let (number, own) = (id(self.machine_of(leaf)), id(1000 + leaf));
        Some(match leaf % 3 {
            1 => MachineId { boot: None, names: [own, number] },
            _ => MachineId { boot: Some(number), names: [id(2000), number] },
        })
    }
}

fn sim(shape: &Shape, machines: u32, seed: u64) -> Sim<Twins> {
    let config = SimConfig { shred: seed % 2 == 1, ..SimConfig::seeded(seed) };
    Sim::new(shape.clone(), registry(), Twins::of(machines), config)
}

/// Who answers a request to all.
fn answers(sim: &mut Sim<Twins>, stream: u32) -> RangeSet {
    sim.send(stream, 0, b"?", Some(WAVE_TIME));
    let mut ok = RangeSet::new();
    loop {
        let result = sim.wait(stream).expect("the wave ends");
        ok.union_with(&result.coverage.ok);
        if result.complete {
            let mut machines: Vec<u32> =
                ok.iter().map(|leaf| sim.leaves().machine_of(leaf)).collect();
            machines.sort_unstable();
            assert!(machines.is_sorted_by(|one, next| one < next), "two of a machine in {ok}");
            return ok;
        }
    }
}

fn shapes() -> Vec<Shape> {
    [&[6][..], &[2, 3], &[3, 2], &[1, 6], &[2, 2, 2], &[1, 1, 4]].map(Shape::balanced).to_vec()
}

#[test]
fn machine_of_two_names_is_asked_by_one_of_them() {
    for shape in shapes() {
        let leaves = shape.everyone().len() as u32;
        for machines in 1..=leaves {
            let mut sim = sim(&shape, machines, u64::from(machines));
            let stream = sim.open(shape.everyone(), "count", b"", Sync::WaitForAll);
            let ok = answers(&mut sim, stream);
            assert_eq!(ok.len(), u64::from(machines), "{ok}");
            sim.leaves().check(sim.notices());
            let refused = sim.notices().iter().filter_map(|notice| match notice {
                Notice::Lost { errno: Errno::NOTUNIQ, cause, leaves, .. } => Some((leaves, cause)),
                _ => None,
            });
            let refused: Vec<_> = refused.collect();
            assert_eq!(refused.len() as u32, leaves - machines, "{:?}", sim.notices());
            for (leaf, cause) in refused {
                let host = cause.strip_prefix("this machine is in the session as n").unwrap();
                let host: u32 = host.parse().unwrap();
                let leaf = leaf.first().unwrap();
                assert!(ok.contains(host) && host % machines == leaf % machines, "{leaf}: {cause}");
            }
        }
    }
}

/// Machines that see their boots may have one name: copies of one image.
#[test]
fn machines_of_one_name_are_all_asked() {
    for shape in shapes() {
        let mut sim = Sim::new(shape.clone(), registry(), Copies, SimConfig::seeded(3));
        let stream = sim.open(shape.everyone(), "count", b"", Sync::WaitForAll);
        sim.send(stream, 0, b"?", Some(WAVE_TIME));
        let result = sim.wait(stream).expect("the wave ends");
        assert_eq!(*result.coverage.ok, shape.everyone());
    }
}

/// The other name serves when it is started after the first is gone, and the first is refused then.
#[test]
fn other_name_serves_when_the_first_is_gone() {
    for shape in shapes().into_iter().filter(|shape| shape.everyone().len() > 5) {
        let mut sim = sim(&shape, 5, 7);
        let stream = sim.open(shape.everyone(), "count", b"", Sync::WaitForAll);
        let first = answers(&mut sim, stream);
        let twin = |leaf: u32| if leaf == 0 { 5 } else { 0 };
        let holder = if first.contains(0) { 0 } else { 5 };
        sim.schedule(Duration::ZERO, Fault::Kill { rank: shape.rank_of_leaf(holder) });
        sim.run_for(SETTLED);
        sim.schedule(Duration::ZERO, Fault::Restart { rank: shape.rank_of_leaf(twin(holder)) });
        sim.run_for(SETTLED);
        let second = answers(&mut sim, stream);
        assert!(second.contains(twin(holder)) && !second.contains(holder), "{second}");
        sim.schedule(Duration::ZERO, Fault::Restart { rank: shape.rank_of_leaf(holder) });
        sim.run_for(SETTLED);
        assert_eq!(answers(&mut sim, stream), second);
        sim.leaves().check(sim.notices());
    }
}

/// Leaves come back, and are started again, in the middle of waves.
#[test]
fn no_wave_is_dealt_with_twice_on_a_machine_whatever_fails() {
    for_seeds(SEEDS, |seed| {
        let all = shapes();
        let shape = &all[seed as usize % all.len()];
        let leaves = shape.everyone().len() as u32;
        let machines = leaves - 1 - seed as u32 % 3;
        let mut sim = sim(shape, machines, seed);
        let mut rng = fastrand::Rng::with_seed(seed);
        for (at, fault) in fault::random(shape, &mut rng, 6, Duration::from_secs(20)) {
            let again = Fault::Restart { rank: rng.u32(1..shape.nodes()) };
            let later = at + Duration::from_millis(rng.u64(1..20_000));
            sim.schedule(at - Time(0), fault);
            sim.schedule(later - Time(0), again);
        }
        let stream = sim.open(shape.everyone(), "count", b"", Sync::WaitForAll);
        for _ in 0..60 {
            answers(&mut sim, stream);
            sim.run_for(Duration::from_millis(rng.u64(1..1_000)));
        }
        sim.run_for(SETTLED);
        for rank in 1..shape.nodes() {
            sim.schedule(Duration::ZERO, Fault::Mend { rank });
            sim.schedule(Duration::ZERO, Fault::Continue { rank });
        }
        sim.run_for(SETTLED);
        // Whoever has ended is started again, as launchers do: each machine has one that serves.
        for _ in 0..3 {
            for rank in (1..shape.nodes()).filter(|&rank| !sim.is_running(rank)).collect::<Vec<_>>()
            {
                sim.schedule(Duration::ZERO, Fault::Restart { rank });
            }
            sim.run_for(SETTLED);
        }
        let stream = sim.open(shape.everyone(), "count", b"", Sync::WaitForAll);
        let ok = answers(&mut sim, stream);
        let mut served: Vec<u32> = ok.iter().map(|leaf| leaf % machines).collect();
        served.sort_unstable();
        assert_eq!(served, (0..machines).collect::<Vec<_>>(), "{ok}");
        sim.leaves().check(sim.notices());
    });
}
