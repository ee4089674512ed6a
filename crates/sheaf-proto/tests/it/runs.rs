//! Streams of small numbers, which travel many waves to a frame and have no slots while nothing
//! disturbs them: the sums are right whatever happens to the tree meanwhile.
use crate::oracle::{for_seeds, mix};
use rustc_hash::FxHashSet;
use sheaf_core::RangeSet;
use sheaf_proto::filter::Registry;
use sheaf_proto::packet::{PacketValue, pack, unpack};
use sheaf_proto::sim::{Fault, Leaves, Shape, Sim, SimConfig, fault};
use sheaf_proto::{Node, Packet, Sync, Tuning, WaveResult};
use std::time::Duration;

/// Packets that one request makes every leaf post.
const POSTS: u64 = 50;
const REQUESTS: u64 = 12;

#[derive(Clone, Copy)]
struct Numbers {
    seed: u64,
    /// The sums are of 16 bits, and some do not fit.
    short: bool,
}

impl Numbers {
    fn of(self, leaf: u32) -> i64 {
        let value = mix(&[self.seed, u64::from(leaf)]);
        (if self.short { value % 900 } else { value % (1 << 40) }) as i64
    }

    fn number(self, leaf: u32) -> Vec<u8> {
        let value = self.of(leaf);
        let value =
            if self.short { PacketValue::I16(value as i16) } else { PacketValue::I64(value) };
        pack(&[value]).unwrap()
    }

    fn sum(self, leaves: &RangeSet) -> i64 {
        leaves.iter().map(|leaf| self.of(leaf)).sum()
    }
}

impl Leaves for Numbers {
    fn packet(&mut self, leaf: u32, packet: &Packet, node: &mut Node) {
        for at in 0..POSTS {
            // Another tag now and then interrupts the run.
            let tag = i32::from(mix(&[self.seed, packet.wave, at]).is_multiple_of(97));
            node.post(packet.stream, tag, &self.number(leaf));
        }
    }

    fn think(&mut self, _: u32, rng: &mut fastrand::Rng) -> Duration {
        Duration::from_micros(rng.u64(0..2_000))
    }
}

struct Run {
    sim: Sim<Numbers>,
    numbers: Numbers,
    stream: u32,
    seen: FxHashSet<u64>,
    full: u64,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let shapes = [&[8, 8][..], &[2, 3, 4], &[1, 1, 3], &[4, 2, 2], &[1, 16], &[12]];
        let shape = Shape::balanced(rng.choice(shapes).unwrap());
        let numbers = Numbers { seed, short: rng.u8(0..4) == 0 };
        let config = SimConfig {
            shred: rng.bool(),
            tuning: Tuning { window_bytes: 1 << rng.u32(9..21), ..Tuning::default() },
            ..SimConfig::seeded(seed)
        };
        let everyone = shape.everyone();
        let mut sim = Sim::new(shape, Registry::with_builtins(), numbers, config);
        let format = if numbers.short { &b"%hd"[..] } else { b"%ld" };
        let stream = sim.open(everyone, "sum", format, Sync::WaitForAll);
        Self { sim, numbers, stream, seen: FxHashSet::default(), full: 0 }
    }

    fn check(&mut self, result: &WaveResult) {
        assert!(result.complete, "wave {} in part", result.wave);
        assert!(self.seen.insert(result.wave), "wave {} came twice", result.wave);
        let mut all = result.coverage.missing();
        assert!(all.is_disjoint(&result.coverage.ok));
        all.union_with(&result.coverage.ok);
        assert_eq!(all, self.sim.shape().everyone(), "wave {}", result.wave);
        self.full += u64::from(result.coverage.is_full());
        let sum = self.numbers.sum(&result.coverage.ok);
        match &result.payload {
            None => assert!(result.coverage.ok.is_empty(), "wave {}", result.wave),
            Some(payload) if self.numbers.short => {
                assert_eq!(
                    unpack(payload).unwrap(),
                    [PacketValue::I16(sum as i16)],
                    "wave {}",
                    result.wave
                );
                assert!(i16::try_from(sum).is_ok());
            }
            Some(payload) => {
                assert_eq!(
                    unpack(payload).unwrap(),
                    [PacketValue::I64(sum)],
                    "wave {}",
                    result.wave
                );
            }
        }
    }

    /// Lets time pass, and takes results as they come.
    fn pass(&mut self, span: Duration) {
        let end = self.sim.now() + span;
        while self.sim.now() < end && self.sim.step() {
            while let Some(result) = self.sim.take(self.stream) {
                self.check(&result);
            }
        }
    }

    fn run(&mut self, rng: &mut fastrand::Rng) {
        for _ in 0..REQUESTS {
            self.sim.send(self.stream, 0, b"", None);
            self.pass(Duration::from_micros(rng.u64(0..400_000)));
        }
        self.pass(Duration::from_secs(30));
    }
}

/// Only nodes between the root and the leaves die, and links: no leaf misses any wave.
#[test]
fn every_sum_is_of_all_leaves_when_inner_nodes_die() {
    for_seeds(250, |seed| {
        let mut run = Run::new(seed);
        let mut rng = fastrand::Rng::with_seed(seed ^ 0x5eed);
        let nodes = run.sim.shape().nodes();
        for _ in 0..rng.u32(1..4) {
            let rank = rng.u32(1..nodes);
            let inner = run.sim.shape().leaf(rank).is_none();
            let fault =
                if inner && rng.bool() { Fault::Kill { rank } } else { Fault::Reset { rank } };
            let at = Duration::from_micros(rng.u64(0..2_500_000));
            run.sim.schedule(at, fault);
        }
        run.run(&mut rng);
        assert_eq!(run.seen.len() as u64, REQUESTS * POSTS);
        if !run.numbers.short {
            assert_eq!(run.full, REQUESTS * POSTS);
        }
        assert_eq!(run.sim.traffic().violations, 0);
    });
}

/// Whatever happens: a sum is of the leaves that the wave names, and of each of them once.
#[test]
fn every_sum_is_of_the_leaves_it_names() {
    for_seeds(250, |seed| {
        let mut run = Run::new(seed);
        let mut rng = fastrand::Rng::with_seed(seed ^ 0x5eed);
        let count = rng.u32(1..5);
        for (at, fault) in fault::random(run.sim.shape(), &mut rng, count, Duration::from_secs(3)) {
            run.sim.schedule(Duration::from_nanos(at.0), fault);
        }
        run.run(&mut rng);
    });
}
