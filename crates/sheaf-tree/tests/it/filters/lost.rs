//! Modules while nodes are lost and come back: whoever combines has been sent the module before.
use super::build::{KINDS, Kind, module};
use crate::oracle::for_seeds;
use bytes::Bytes;
use sheaf_core::RangeSet;
use sheaf_tree::filter::{Registry, link_modules, packets};
use sheaf_tree::proto::own;
use sheaf_tree::proto::{Node, Notice, Packet, Sync, Time, Tuning};
use sheaf_tree::sim::{Fault, Shape, Sim, SimConfig, fault};
use std::collections::BTreeMap;
use std::time::Duration;

/// What is added to a module so that it travels in several parts.
const PADDING: usize = 300_000;
const SETTLED: Duration = Duration::from_secs(40);

type World = Sim<fn(u32, &Packet, &mut Node)>;

/// The built-in filters, and modules that can be run.
fn registry() -> Registry {
    let registry = Registry::with_builtins();
    link_modules(&registry);
    registry
}

fn answer(leaf: u32, packet: &Packet, node: &mut Node) {
    node.reply(packet.stream, packet.wave, packet.tag, &leaf.to_le_bytes());
}

/// A module with `relay`, in several parts.
fn long_module(kind: Kind) -> Option<Vec<u8>> {
    let mut bytes = module("crates/sheaf-tree/tests/filters/misbehave.c", kind)?;
    if kind == Kind::Wasm {
        // A section of no meaning: its kind, its length, its name, and the rest.
        let mut left = PADDING + 2;
        bytes.push(0);
        while left > 0x7f {
            bytes.push(left as u8 & 0x7f | 0x80);
            left >>= 7;
        }
        bytes.extend([left as u8, 1, b'p']);
    }
    bytes.extend(std::iter::repeat_n(0, PADDING));
    Some(bytes)
}

/// Whose packets the waves of a stream carry so far: each leaf's once, if it counts as one that
/// has answered.
fn answered(sim: &mut World, stream: u32) -> Option<RangeSet> {
    let mut last = None;
    while let Some(result) = sim.take(stream) {
        let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
        let list = result.payload.as_deref().map(|list| packets::decode(list).unwrap());
        for (_, packet) in list.unwrap_or_default() {
            *counts.entry(u32::from_le_bytes(packet.try_into().unwrap())).or_default() += 1;
        }
        assert!(counts.values().all(|count| *count == 1), "{counts:?}");
        let leaves: RangeSet = counts.into_keys().collect();
        assert_eq!(*result.coverage.ok, leaves, "wave {}", result.wave);
        last = Some(leaves);
    }
    last
}

/// Inner nodes are lost, and come back without anything, while modules and waves travel.
fn survive(module: &[u8], seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x30d);
    let bytes = Bytes::copy_from_slice(module);
    let shape = Shape::balanced(rng.choice([&[2, 2][..], &[2, 2, 2], &[1, 3]]).unwrap());
    let inner: Vec<u32> = (1..shape.nodes()).filter(|&rank| shape.leaf(rank).is_none()).collect();
    let answer: fn(u32, &Packet, &mut Node) = answer;
    let tuning = Tuning { window_bytes: 1 << rng.u32(12..21), ..Tuning::default() };
    let config = SimConfig { shred: rng.bool(), tuning, ..SimConfig::seeded(seed) };
    let mut sim = Sim::new(shape.clone(), registry(), answer, config);
    for _ in 0..rng.u32(1..5) {
        let rank = *rng.choice(&inner).unwrap();
        let at = Duration::from_millis(rng.u64(0..3_000));
        sim.schedule(at, if rng.bool() { Fault::Kill { rank } } else { Fault::PowerOff { rank } });
        sim.schedule(at + Duration::from_millis(rng.u64(1..4_000)), Fault::Restart { rank });
    }
    // Links break, so that orphans find nodes that have come back.
    for _ in 0..rng.u32(0..5) {
        let rank = rng.u32(1..shape.nodes());
        sim.schedule(Duration::from_millis(rng.u64(0..10_000)), Fault::Reset { rank });
    }
    if rng.u8(0..4) == 0 {
        for (at, fault) in fault::random_inner(&shape, &mut rng, 2, Duration::from_secs(3)) {
            sim.schedule(at - Time(0), fault);
        }
    }
    sim.run_for(Duration::from_micros(rng.u64(0..3_000_000)));
    let id = sim.with(0, |root, _| root.add_module(&bytes)).unwrap().unwrap();
    let stream = sim.open(shape.everyone(), &id.filter("relay"), b"", Sync::WaitForAll);
    for _ in 0..8 {
        sim.send(stream, 1, b"", Some(Duration::from_millis(rng.u64(500..8_000))));
        sim.run_for(Duration::from_millis(rng.u64(0..2_000)));
        answered(&mut sim, stream);
    }
    sim.run_for(SETTLED);
    answered(&mut sim, stream);
    let before = own::hosts(&sim.reachable());
    sim.send(stream, 1, b"", Some(Duration::from_secs(30)));
    sim.run_for(Duration::from_secs(35));
    let last = answered(&mut sim, stream).expect("the last wave ends");
    assert!(before.is_subset(&last), "{before} live, and {last} answered: {:?}", sim.notices());
    let failed = |notice: &&Notice| matches!(notice, Notice::FilterFailed { .. });
    assert_eq!(sim.notices().iter().find(failed), None, "a node that combines lacks the module");
    assert_eq!(sim.traffic().violations, 0, "a node accuses another, and all are honest");
}

#[test]
fn nodes_that_come_back_have_native_modules_before_they_combine() {
    let Some(module) = long_module(Kind::Native) else { return };
    for_seeds(150, |seed| survive(&module, seed));
}

#[test]
fn returning_nodes_have_webassembly_modules_before_they_combine() {
    let Some(module) = long_module(Kind::Wasm) else { return };
    for_seeds(5, |seed| survive(&module, seed));
}

#[test]
fn long_module_is_a_module() {
    for kind in KINDS {
        let Some(bytes) = long_module(kind) else { continue };
        registry().add_module(bytes).unwrap();
    }
}
