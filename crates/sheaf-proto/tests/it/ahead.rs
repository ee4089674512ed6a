//! A leaf that sends nothing while the others are further ahead than waves may be open.
use sheaf_core::{Errno, RangeSet};
use sheaf_proto::filter::Registry;
use sheaf_proto::own;
use sheaf_proto::packet::{PacketValue, pack, unpack};
use sheaf_proto::sim::{Fault, Leaves, Shape, Sim, SimConfig};
use sheaf_proto::{Node, Notice, Packet, Sync, WAVES_OPEN_MAX};
use std::time::Duration;

/// The leaf that is behind.
const SLOW: u32 = 3;
/// The tag of requests to that leaf; others are for all the rest.
const TO_SLOW: i32 = 1;

/// Whoever is asked posts the number 1 as often as it is told to.
struct Posts;

impl Leaves for Posts {
    fn packet(&mut self, leaf: u32, packet: &Packet, node: &mut Node) {
        let asked = unpack(&packet.payload).expect("a request of this test");
        let [PacketValue::U64(count)] = asked[..] else { panic!("{asked:?}") };
        if (leaf == SLOW) == (packet.tag == TO_SLOW) {
            for _ in 0..count {
                node.post(packet.stream, 0, &pack(&[PacketValue::I32(1)]).unwrap());
            }
        }
    }
}

fn start(shape: &[u32], sync: Sync) -> (Sim<Posts>, u32) {
    let shape = Shape::balanced(shape);
    let everyone = shape.everyone();
    let mut sim = Sim::new(shape, Registry::with_builtins(), Posts, SimConfig::seeded(1));
    let stream = sim.open(everyone, "sum", b"%d", sync);
    (sim, stream)
}

fn ask(sim: &mut Sim<Posts>, stream: u32, tag: i32, count: u64) {
    sim.send(stream, tag, pack(&[PacketValue::U64(count)]).unwrap(), None);
}

fn number(payload: &[u8]) -> u64 {
    match unpack(payload).expect("a sum")[..] {
        [PacketValue::I32(value)] => u64::try_from(value).unwrap(),
        ref other => panic!("{other:?}"),
    }
}

fn lost(sim: &Sim<Posts>) -> usize {
    // Of hosts: a node that is killed takes its own leaf with it.
    let lost = |notice: &&Notice| matches!(notice, Notice::Lost { leaves, .. } if !own::hosts(leaves).is_empty());
    sim.notices().iter().filter(lost).count()
}

#[test]
fn runs_far_ahead_are_not_forgotten_when_the_tree_changes() {
    const COUNT: u64 = WAVES_OPEN_MAX + WAVES_OPEN_MAX / 2;
    let (mut sim, stream) = start(&[2, 3], Sync::WaitForAll);
    ask(&mut sim, stream, 0, COUNT);
    sim.run_for(Duration::from_secs(1));
    assert!(sim.take(stream).is_none(), "a wave is over without a leaf");
    // The slow leaf is rank 6: below the other inner node than ranks 3 to 5.
    sim.schedule(Duration::ZERO, Fault::Reset { rank: 4 });
    sim.schedule(Duration::from_millis(500), Fault::Kill { rank: 2 });
    sim.run_for(Duration::from_secs(5));
    ask(&mut sim, stream, TO_SLOW, COUNT);
    let (mut wave, over) = (0, sim.now() + Duration::from_secs(60));
    while wave < COUNT && sim.now() < over {
        sim.run_for(Duration::from_millis(10));
        while let Some(result) = sim.take(stream) {
            assert_eq!(result.wave, wave);
            assert!(
                result.complete && result.coverage.is_full(),
                "wave {wave}: {:?}",
                result.coverage
            );
            assert_eq!(number(&result.payload.unwrap()), 6, "wave {wave}");
            wave += 1;
        }
    }
    assert_eq!(wave, COUNT, "every leaf has posted to all of them");
    assert_eq!((sim.traffic().violations, lost(&sim)), (0, 0));
}

#[test]
fn silent_leaf_does_not_delay_others_without_wait_for_all() {
    const OVER: u64 = 100;
    const COUNT: u64 = WAVES_OPEN_MAX + OVER;
    let time_out = Sync::TimeOut(Duration::from_millis(20));
    for (shape, sync) in [(&[2, 2][..], Sync::DontWait), (&[4], time_out)] {
        let (mut sim, stream) = start(shape, sync);
        ask(&mut sim, stream, 0, COUNT);
        let (mut sum, mut over) = (0, 0);
        // Until nothing has come for a while.
        let mut take = |sim: &mut Sim<Posts>| {
            let mut last = sim.now();
            while sim.now() < last + Duration::from_secs(5) {
                sim.run_for(Duration::from_millis(50));
                while let Some(result) = sim.take(stream) {
                    last = sim.now();
                    let value = result.payload.map_or(0, |payload| number(&payload));
                    assert_eq!(value, result.coverage.ok.len(), "wave {}", result.wave);
                    sum += value;
                    if result.complete {
                        over += 1;
                        let silent = vec![(Errno::TIMEDOUT, RangeSet::single(SLOW))];
                        assert_eq!(result.coverage.silent, silent, "wave {}", result.wave);
                    }
                }
            }
            (sum, over)
        };
        assert_eq!(take(&mut sim), (3 * COUNT, OVER), "{sync:?}");
        // What it sends now is late for those waves, and it is still a member.
        ask(&mut sim, stream, TO_SLOW, 10);
        assert_eq!(take(&mut sim).0, 3 * COUNT, "{sync:?}");
        assert_eq!((sim.traffic().violations, lost(&sim)), (0, 0), "{sync:?}");
    }
}
