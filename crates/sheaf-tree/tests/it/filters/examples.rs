//! The example filters, against oracles and the built-in filters, as both kinds of modules.
use super::build::{KINDS, Kind, module};
use super::tree::{REGISTRY, Tree};
use sheaf_tree::filter::{Emit, Filter, Input, LinkClock, ModuleId, NodeInfo, builtin, packets};
use sheaf_tree::packet::{PacketValue, pack, unpack};
use std::collections::BTreeMap;

/// Wide, deep, with one child at a node, and with one leaf in all.
const SHAPES: [&str; 6] = ["1x5", "1x2x3", "1x1x1x1", "1x3x1x2", "1x1x4", "1x8x8"];

fn loaded(source: &'static str, kind: Kind) -> Option<ModuleId> {
    Some(REGISTRY.add_module(module(source, kind)?).unwrap())
}

fn loads(leaf: u32) -> [f64; 3] {
    let load = f64::from(leaf);
    [load + 0.25, load * 2.0 + 0.5, 7.75]
}

fn load_text(leaf: u32, _: &[u8]) -> Vec<u8> {
    let [one, five, fifteen] = loads(leaf);
    format!("{one:.2} {five:.2} {fifteen:.2} 1/123 4567\n").into_bytes()
}

#[tokio::test]
async fn load_average_is_right_in_every_shape() {
    for shape in SHAPES {
        let tree = Tree::new(shape, load_text);
        let leaves = tree.network.leaf_count();
        let mean =
            |at: usize| (0..leaves).map(|leaf| loads(leaf)[at]).sum::<f64>() / f64::from(leaves);
        let expected: Vec<u8> =
            [0, 1, 2].into_iter().flat_map(|at| mean(at).to_le_bytes()).collect();
        for source in ["load_average.c", "load_average.cpp", "load_average.rs"] {
            for kind in KINDS {
                let source: &'static str = match source {
                    "load_average.c" => "examples/filters/load_average.c",
                    "load_average.cpp" => "examples/filters/load_average.cpp",
                    _ => "examples/filters/load_average.rs",
                };
                let Some(id) = loaded(source, kind) else { continue };
                let stream = tree.open(&id.filter("load_average"), b"");
                for _ in 0..3 {
                    let got = tree.packets(&stream, b"").await;
                    // The sums are of few binary digits, so that their order does not matter.
                    assert_eq!(got, [(100, expected.clone())], "{source} {kind:?} {shape}");
                }
            }
        }
        let by_builtin =
            Tree::new(shape, |leaf, _| pack(&loads(leaf).map(PacketValue::from)).unwrap());
        let stream = by_builtin.open("avg", b"");
        let result = by_builtin.ask(&stream, b"").await.payload.unwrap();
        assert_eq!(unpack(&result).unwrap(), [mean(0), mean(1), mean(2)].map(PacketValue::from));
    }
}

fn class_of(leaf: u32) -> &'static [u8] {
    [&b"linux-6.1"[..], b"", b"linux-6.6"][(leaf % 3) as usize]
}

#[tokio::test]
async fn equivalence_classes_are_those_of_the_builtin_filter() {
    for shape in SHAPES {
        let by_builtin = Tree::new(shape, |leaf, _| {
            pack(&[
                leaf.into(),
                String::from_utf8(class_of(leaf).to_vec()).unwrap().as_str().into(),
            ])
            .unwrap()
        });
        let stream = by_builtin.open("bytes-eq-class", b"");
        let result = by_builtin.ask(&stream, b"").await.payload.unwrap();
        let mut expected = Vec::new();
        for (value, leaves) in builtin::classes::bytes_classes(&result).unwrap() {
            expected.extend_from_slice(&(leaves.len() as u32).to_le_bytes());
            expected.extend_from_slice(&(value.len() as u32).to_le_bytes());
            expected.extend_from_slice(value);
            leaves.iter().for_each(|leaf| expected.extend_from_slice(&leaf.to_le_bytes()));
        }
        let tree = Tree::new(shape, |leaf, _| [&leaf.to_le_bytes()[..], class_of(leaf)].concat());
        for kind in KINDS {
            let Some(id) = loaded("examples/filters/eq_class.cpp", kind) else { continue };
            let stream = tree.open(&id.filter("eq_class"), b"");
            assert_eq!(
                tree.packets(&stream, b"").await,
                [(100, expected.clone())],
                "{kind:?} {shape}"
            );
        }
    }
}

#[tokio::test]
async fn histogram_is_that_of_the_builtin_filter() {
    let edges = [-1.0, 0.0, 2.5, 1e9];
    let numbers = |leaf: u32| [f64::from(leaf) - 2.0, 2.5, f64::NAN, 1e10 * f64::from(leaf % 2)];
    for shape in SHAPES {
        let by_builtin =
            Tree::new(shape, move |leaf, _| pack(&[numbers(leaf).to_vec().into()]).unwrap());
        let stream = by_builtin.open("histogram", &pack(&[edges.to_vec().into()]).unwrap());
        let result = by_builtin.ask(&stream, b"").await.payload.unwrap();
        let (mut counts, nans) = builtin::histogram::counts(&result).unwrap();
        counts.push(nans);
        let expected: Vec<u8> = counts.iter().flat_map(|count| count.to_le_bytes()).collect();
        let bytes = |numbers: &[f64]| {
            numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>()
        };
        let tree = Tree::new(shape, move |leaf, _| bytes(&numbers(leaf)));
        for kind in KINDS {
            let Some(id) = loaded("examples/filters/histogram.rs", kind) else { continue };
            let stream = tree.open(&id.filter("histogram"), &bytes(&edges));
            assert_eq!(
                tree.packets(&stream, b"").await,
                [(100, expected.clone())],
                "{kind:?} {shape}"
            );
        }
    }
}

/// A node of a tree whose links' clocks are known: its leaves and nodes.
enum Node {
    Leaf(u32),
    Inner(Vec<(Node, LinkClock)>),
}

impl Node {
    /// What the filter gives for this node; a leaf's own data is `leaf`.
    fn reduce(
        &self,
        filter: &dyn Fn(&NodeInfo) -> Box<dyn Filter>,
        leaf: &dyn Fn(u32) -> Vec<u8>,
        emit: Emit,
    ) -> Vec<u8> {
        let Self::Inner(children) = self else { unreachable!("only inner nodes reduce") };
        let info = NodeInfo::default();
        for (rank, (_, clock)) in children.iter().enumerate() {
            info.clocks.set(10 + rank as u32, Some(*clock));
        }
        let mut wave = filter(&info).accumulator();
        for (at, (child, _)) in children.iter().enumerate() {
            let (raw, payload) = match child {
                Self::Leaf(index) => (true, leaf(*index)),
                Self::Inner(_) => (false, child.reduce(filter, leaf, Emit::Partial)),
            };
            let (child, rank) = (at as u32, 10 + at as u32);
            wave.fold(Input { child, rank, raw, payload: &payload, ..Input::default() }).unwrap();
        }
        let mut out = Vec::new();
        wave.finish(emit, &mut out).unwrap();
        out
    }
}

fn clock(offset_ns: i64, error_ns: u64) -> LinkClock {
    LinkClock { offset_ns, error_ns }
}

#[test]
fn clock_skews_are_those_of_the_builtin_filter() {
    use Node::{Inner, Leaf};
    let chain = Inner(vec![(Inner(vec![(Leaf(2), clock(5, 3))]), clock(-1_000_000_007, 1))]);
    let pair = Inner(vec![(Leaf(0), clock(10, 1)), (Leaf(1), clock(-20, 2))]);
    let tree =
        Inner(vec![(pair, clock(100, 10)), (chain, clock(-100, 20)), (Leaf(3), clock(0, 0))]);
    let by_builtin = |info: &NodeInfo| REGISTRY.instantiate("clock-skew", b"", info).unwrap();
    let result = tree.reduce(&by_builtin, &|leaf| pack(&[leaf.into()]).unwrap(), Emit::Result);
    let expected: BTreeMap<u32, (i64, u64)> = builtin::clock_skew::leaf_clocks(&result)
        .unwrap()
        .iter()
        .map(|leaf| (leaf.leaf, (leaf.clock.offset_ns, leaf.clock.error_ns)))
        .collect();
    assert_eq!(expected[&2], (5 - 1_000_000_007 - 100, 24));
    for kind in KINDS {
        let Some(id) = loaded("examples/filters/clock_skew.c", kind) else { continue };
        let by_module =
            |info: &NodeInfo| REGISTRY.instantiate(&id.filter("clock_skew"), b"", info).unwrap();
        let list = tree.reduce(&by_module, &|leaf| leaf.to_le_bytes().to_vec(), Emit::Result);
        let [(_, bytes)] = packets::decode(&list).unwrap()[..] else { panic!("one packet") };
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let clocks = (0..bytes.len())
            .step_by(24)
            .map(|at| (word(at) as u32, (word(at + 8) as i64, word(at + 16))));
        assert_eq!(clocks.collect::<BTreeMap<_, _>>(), expected, "{kind:?}");
    }
}

/// Within one process there is one clock: every node knows so without measuring.
#[tokio::test]
async fn clocks_within_a_process_do_not_differ() {
    let tree = Tree::new("1x2x3", |leaf, _| pack(&[leaf.into()]).unwrap());
    let stream = tree.open("clock-skew", b"");
    let result = tree.ask(&stream, b"").await;
    assert!(result.coverage.is_full());
    let clocks = builtin::clock_skew::leaf_clocks(&result.payload.unwrap()).unwrap();
    assert_eq!(clocks.len(), 6);
    assert!(clocks.iter().all(|leaf| leaf.clock == LinkClock::default()));
}
