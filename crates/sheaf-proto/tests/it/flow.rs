//! Flow: whatever the speeds, nothing is lost or mixed, and no node holds more than its bounds.
use crate::oracle::{for_seeds, registry};
use rustc_hash::FxHashMap;
use sheaf_core::RangeSet;
use sheaf_proto::sim::{Fault, Leaves, Shape, Sim, SimConfig};
use sheaf_proto::{LINK_OUT_BYTES, Node, Packet, Sync, Tuning};
use std::time::Duration;

const WINDOW_BYTES: u32 = 128 << 10;

/// Leaves that write down what they get, some of them slowly.
struct Readers {
    slow: u32,
    pause: Duration,
    got: FxHashMap<(u32, u32), Vec<u8>>,
}

impl Leaves for Readers {
    fn packet(&mut self, leaf: u32, packet: &Packet, node: &mut Node) {
        self.got.entry((leaf, packet.stream)).or_default().extend_from_slice(&packet.payload);
        if packet.last && packet.expect.is_some() {
            node.reply(packet.stream, packet.wave, 0, &[0; 12]);
        }
    }
    fn think(&mut self, leaf: u32, _: &mut fastrand::Rng) -> Duration {
        if leaf == self.slow { self.pause } else { Duration::ZERO }
    }
}

fn readers(slow: u32, pause: Duration) -> Readers {
    Readers { slow, pause, got: FxHashMap::default() }
}

fn config(seed: u64) -> SimConfig {
    let tuning = Tuning { window_bytes: WINDOW_BYTES, ..Tuning::default() };
    SimConfig { tuning, watch_queues: true, shred: true, ..SimConfig::seeded(seed) }
}

/// What a node with `children` may hold: a window and a little for each stream and link.
fn bound(children: u64, streams: u64) -> u64 {
    let link = LINK_OUT_BYTES as u64 + (128 << 10);
    (children + 1) * (link + streams * (u64::from(WINDOW_BYTES) + (128 << 10)))
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| rng.u8(..)).collect()
}

#[test]
fn fast_sender_is_held_back_by_the_slowest_reader() {
    for_seeds(8, |seed| {
        let shape = Shape::balanced(&[2, 4]);
        let mut sim =
            Sim::new(shape.clone(), registry(), readers(5, Duration::from_millis(3)), config(seed));
        let stream = sim.open(shape.everyone(), "bag", b"", Sync::WaitForAll);
        let packet = bytes(seed, 150_000);
        let mut sent = Vec::new();
        while sent.len() < 6_000_000 {
            if sim.node(0).unwrap().has_room(stream) {
                sim.send(stream, 0, &packet, None);
                sent.extend_from_slice(&packet);
            } else {
                assert!(sim.step());
            }
        }
        sim.run_for(Duration::from_secs(60));
        for leaf in 0..8 {
            assert!(
                sim.leaves().got[&(leaf, stream)] == sent,
                "leaf {leaf} did not get what was sent"
            );
        }
        // The application may be one packet ahead.
        let most = bound(4, 1) + packet.len() as u64 * 2;
        assert!(sim.queued_bytes_peak() < most, "{} of {most}", sim.queued_bytes_peak());
    });
}

#[test]
fn slow_stream_does_not_hold_up_another() {
    let shape = Shape::balanced(&[2, 4]);
    let mut sim =
        Sim::new(shape.clone(), registry(), readers(0, Duration::from_millis(500)), config(1));
    let slow = sim.open(RangeSet::single(0), "bag", b"", Sync::WaitForAll);
    while sim.node(0).unwrap().has_room(slow) {
        sim.send(slow, 0, &[1; 60_000], None);
    }
    let fast = sim.open(RangeSet::from_range(1, 8), "bag", b"", Sync::WaitForAll);
    for _ in 0..20 {
        let begun = sim.now();
        sim.send(fast, 0, b"x", Some(Duration::from_secs(10)));
        let result = sim.wait(fast).unwrap();
        assert_eq!(result.coverage.ok.len(), 7);
        assert!(sim.now() - begun < Duration::from_millis(20), "{:?}", sim.now() - begun);
    }
}

/// Leaves that post as fast as they are let.
struct Posters;

impl Leaves for Posters {
    fn packet(&mut self, _: u32, _: &Packet, _: &mut Node) {}
}

#[test]
fn fast_leaves_are_held_back_by_a_slow_root() {
    for_seeds(8, |seed| {
        let shape = Shape::balanced(&[4, 4]);
        let mut sim = Sim::new(shape.clone(), registry(), Posters, config(seed));
        let stream = sim.open(shape.everyone(), "bag", b"", Sync::WaitForAll);
        sim.run_for(Duration::from_millis(10));
        let (waves, record) = (300u64, 1200);
        let mut posted = [0; 16];
        let mut taken = 0;
        while taken < waves {
            for leaf in 0..16 {
                let rank = shape.rank_of_leaf(leaf);
                while posted[leaf as usize] < waves && !sim.node(rank).unwrap().is_held(stream) {
                    posted[leaf as usize] += 1;
                    sim.with(rank, |node, _| node.post(stream, 0, &vec![leaf as u8; record]));
                }
            }
            // The root reads now and then.
            sim.run_for(Duration::from_millis(7));
            if let Some(result) = sim.take(stream) {
                assert_eq!(result.wave, taken, "results come in order");
                assert!(result.coverage.is_full());
                let payload = result.payload.unwrap();
                for leaf in 0..16u8 {
                    assert_eq!(payload.iter().filter(|&&byte| byte == leaf).count(), record);
                }
                taken += 1;
            }
        }
        let most = bound(4, 1) + 4 * u64::from(WINDOW_BYTES);
        assert!(sim.queued_bytes_peak() < most, "{} of {most}", sim.queued_bytes_peak());
    });
}

#[test]
fn wave_larger_than_the_window_passes_in_every_mode() {
    struct Large;
    impl Leaves for Large {
        fn packet(&mut self, leaf: u32, packet: &Packet, node: &mut Node) {
            node.reply(packet.stream, packet.wave, 0, &vec![leaf as u8; 48_000]);
        }
    }
    for sync in [Sync::WaitForAll, Sync::DontWait, Sync::TimeOut(Duration::from_millis(1))] {
        for window_bytes in [1, 60_000, 128 << 10] {
            let shape = Shape::balanced(&[2, 16]);
            let tuning = Tuning { window_bytes, ..Tuning::default() };
            let mut sim =
                Sim::new(shape.clone(), registry(), Large, SimConfig { tuning, ..config(1) });
            let stream = sim.open(shape.everyone(), "bag", b"", sync);
            sim.send(stream, 0, b"", Some(Duration::from_secs(60)));
            let (mut ok, mut bytes) = (RangeSet::new(), 0);
            loop {
                let result = sim.wait(stream).unwrap();
                ok.union_with(&result.coverage.ok);
                bytes += result.payload.map_or(0, |payload| payload.len());
                if result.complete {
                    break;
                }
            }
            assert_eq!(
                (ok, bytes),
                (RangeSet::full(32), 32 * 48_000),
                "{sync:?}, window {window_bytes}"
            );
            assert!(
                sim.now().0 < 1_000_000_000,
                "{sync:?}, window {window_bytes}: only the deadline ended it"
            );
        }
    }
}

#[test]
fn stopped_leaf_costs_its_window_until_it_is_given_up() {
    let shape = Shape::balanced(&[2, 4]);
    let mut sim = Sim::new(shape.clone(), registry(), readers(99, Duration::ZERO), config(4));
    let stream = sim.open(shape.everyone(), "bag", b"", Sync::WaitForAll);
    sim.run_for(Duration::from_millis(10));
    sim.schedule(Duration::ZERO, Fault::Stop { rank: shape.rank_of_leaf(3) });
    let mut sent = 0u64;
    while sim.now().0 < 20_000_000_000 && sent < 64 << 20 {
        if sim.node(0).unwrap().has_room(stream) {
            sim.send(stream, 0, &[5; 60_000], None);
            sent += 60_000;
        } else {
            assert!(sim.step());
        }
    }
    assert!(sent >= 64 << 20, "the others went on once it was given up: {sent}");
    assert!(sim.queued_bytes_peak() < bound(4, 1) + 120_000, "{}", sim.queued_bytes_peak());
    sim.run_for(Duration::from_secs(1));
    assert_eq!(sim.leaves().got[&(7, stream)].len() as u64, sent);
}
