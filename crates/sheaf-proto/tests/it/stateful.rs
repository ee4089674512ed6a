//! Filters that keep something from wave to wave: it outlives the node that is lost.
use sheaf_core::{Errno, RangeSet};
use sheaf_proto::filter::{Accumulator, Emit, Filter, FilterError, Input, Registry};
use sheaf_proto::sim::{Fault, Shape, Sim, SimConfig};
use sheaf_proto::{Node, Packet, Sync};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Remembers at each node which leaves have ever sent it their own data; the result of a wave is
/// what the root remembers. Nothing of it travels with the waves.
#[derive(Default)]
struct Memory(Arc<Mutex<u64>>);

impl Filter for Memory {
    fn accumulator(&self) -> Box<dyn Accumulator> {
        Box::new(Self(Arc::clone(&self.0)))
    }
    fn state(&mut self) -> Option<Vec<u8>> {
        Some(self.0.lock().unwrap().to_le_bytes().to_vec())
    }
    fn absorb(&mut self, state: &[u8]) -> Result<(), FilterError> {
        let state = state.try_into().map_err(|_| FilterError::new(Errno::BADMSG, "no state"))?;
        *self.0.lock().unwrap() |= u64::from_le_bytes(state);
        Ok(())
    }
}

impl Accumulator for Memory {
    fn fold(&mut self, input: Input<'_>) -> Result<(), FilterError> {
        if input.raw {
            *self.0.lock().unwrap() |= 1 << input.payload[0];
        }
        Ok(())
    }
    fn finish(&mut self, emit: Emit, out: &mut Vec<u8>) -> Result<(), FilterError> {
        if emit == Emit::Result {
            out.extend_from_slice(&self.0.lock().unwrap().to_le_bytes());
        }
        Ok(())
    }
}

fn answer(leaf: u32, packet: &Packet, node: &mut Node) {
    node.reply(packet.stream, packet.wave, packet.tag, &[leaf as u8]);
}

/// What the root remembers after one more wave, of all leaves.
fn remembered(sim: &mut Sim<fn(u32, &Packet, &mut Node)>, stream: u32) -> RangeSet {
    sim.send(stream, 0, b"", Some(Duration::from_secs(60)));
    let result = sim.wait(stream).expect("a wave ends");
    assert_eq!(*result.coverage.ok, sim.shape().everyone());
    let bits = u64::from_le_bytes(result.payload.unwrap()[..].try_into().unwrap());
    (0..64).filter(|leaf| bits >> leaf & 1 == 1).collect()
}

#[test]
fn orphan_hands_its_filters_state_to_whoever_takes_it() {
    for faults in [vec![], vec![1, 6], vec![2], vec![1, 2]] {
        let mut registry = Registry::with_builtins();
        registry.register("memory", |_| Ok(Box::new(Memory::default())));
        let shape = Shape::balanced(&[2, 3, 4]);
        let answer: fn(u32, &Packet, &mut Node) = answer;
        let mut sim = Sim::new(shape.clone(), registry, answer, SimConfig::seeded(1));
        let stream = sim.open(shape.everyone(), "memory", b"", Sync::WaitForAll);
        assert_eq!(remembered(&mut sim, stream), RangeSet::new());
        let mut expected = RangeSet::new();
        for rank in faults {
            // Orphans go to the nearest ancestor and take along what they remember: the root hears
            // of it when it is the root.
            if shape.parent(rank) == 0 {
                let leaves = shape.leaves_below(rank);
                expected.union_with(&RangeSet::from_range(leaves.start, leaves.end));
            }
            sim.schedule(Duration::ZERO, Fault::Kill { rank });
            sim.run_for(Duration::from_millis(100));
            assert_eq!(remembered(&mut sim, stream), expected, "after the loss of node {rank}");
        }
        assert_eq!((sim.traffic().violations, sim.notices()), (0, &[][..]));
    }
}
