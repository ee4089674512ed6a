//! Streams that wait for nobody for long keep what each member sends in order.
use sheaf_proto::filter::Registry;
use sheaf_proto::filter::builtin::null;
use sheaf_proto::packet::{PacketValue, pack, unpack};
use sheaf_proto::sim::{Leaves, Shape, Sim, SimConfig};
use sheaf_proto::{Node, Packet, Sync};
use std::time::Duration;

const LEAVES: usize = 6;

/// Leaves whose bit is in a request's tag post their next numbers, as many as they are told to.
#[derive(Default)]
struct Counts([u64; LEAVES]);

impl Leaves for Counts {
    fn packet(&mut self, leaf: u32, packet: &Packet, node: &mut Node) {
        let asked = unpack(&packet.payload).expect("a request of this test");
        let [PacketValue::U64(count)] = asked[..] else { panic!("{asked:?}") };
        if packet.tag & 1 << leaf != 0 {
            for _ in 0..count {
                let next = &mut self.0[leaf as usize];
                node.post(
                    packet.stream,
                    0,
                    &pack(&[PacketValue::U32(leaf), PacketValue::U64(*next)]).unwrap(),
                );
                *next += 1;
            }
        }
    }
}

/// Notes what a wave brings; the numbers of each leaf must follow one another.
fn note(payload: &[u8], next: &mut [u64; LEAVES]) {
    for item in null::items(payload).unwrap() {
        let values = unpack(item).unwrap();
        let [PacketValue::U32(leaf), PacketValue::U64(number)] = values[..] else {
            panic!("{values:?}")
        };
        assert_eq!(number, next[leaf as usize], "of leaf {leaf}");
        next[leaf as usize] += 1;
    }
}

#[test]
fn packets_that_are_late_come_before_later_ones_of_their_sender() {
    for (shape, seed) in [(&[6][..], 1), (&[2, 3], 2), (&[3, 2], 3), (&[1, 2, 3], 4)] {
        for sync in [Sync::TimeOut(Duration::from_millis(20)), Sync::DontWait] {
            let shape = Shape::balanced(shape);
            let everyone = shape.everyone();
            let mut sim = Sim::new(
                shape,
                Registry::with_builtins(),
                Counts::default(),
                SimConfig::seeded(seed),
            );
            let stream = sim.open(everyone, "null", b"", sync);
            let (mut rng, mut sent, mut next) =
                (fastrand::Rng::with_seed(seed), [0; LEAVES], [0; LEAVES]);
            for _ in 0..400 {
                let (who, count) = (rng.i32(1..1 << LEAVES), rng.u64(1..4));
                (0..LEAVES)
                    .filter(|leaf| who & 1 << leaf != 0)
                    .for_each(|leaf| sent[leaf] += count);
                sim.send(stream, who, pack(&[PacketValue::U64(count)]).unwrap(), None);
                sim.run_for(Duration::from_millis(rng.u64(0..15)));
                while let Some(result) = sim.take(stream) {
                    result.payload.iter().for_each(|payload| note(payload, &mut next));
                }
            }
            sim.run_for(Duration::from_secs(2));
            while let Some(result) = sim.take(stream) {
                result.payload.iter().for_each(|payload| note(payload, &mut next));
            }
            assert_eq!(next, sent, "{sync:?}");
            assert_eq!(sim.traffic().violations, 0);
        }
    }
}
