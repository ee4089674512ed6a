use super::testing::{garbage_leaves_no_trace, reduce};
use super::{classes, clock_skew, histogram};
use crate::filter::{Accumulator, Emit, Input, LinkClock, LinkClocks, NodeInfo, Registry};
use crate::packet::{Array, PacketValue, pack, unpack};
use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use sheaf_core::{Errno, RangeSet};
use std::collections::{BTreeMap, HashSet};

fn packs(rows: impl IntoIterator<Item = Vec<PacketValue>>) -> Vec<Vec<u8>> {
    rows.into_iter().map(|row| pack(&row).unwrap()).collect()
}

fn answer(name: &str, params: &[PacketValue], packets: &[Vec<u8>], seed: u64) -> Vec<PacketValue> {
    let params = if params.is_empty() { Vec::new() } else { pack(params).unwrap() };
    unpack(&reduce(name, &params, packets, seed).unwrap()).unwrap()
}

proptest! {
    #[test]
    fn concat_keeps_child_order(rows in vec((any::<i16>(), vec(any::<f32>(), 0..4), "[a-c]{0,3}"), 1..12), seed: u64) {
        let rows: Vec<_> = rows
            .into_iter()
            .map(|(a, b, c)| (a, b.into_iter().map(|v| if v.is_nan() { 0.0 } else { v }).collect::<Vec<_>>(), c))
            .collect();
        let packets = packs(rows.iter().map(|(a, b, c)| vec![(*a).into(), b.clone().into(), c.as_str().into()]));
        let strings: Vec<Bytes> = rows.iter().map(|row| Bytes::from(row.2.clone())).collect();
        prop_assert_eq!(answer("concat", &[], &packets, seed), vec![
            rows.iter().map(|row| row.0).collect::<Vec<_>>().into(),
            rows.iter().flat_map(|row| row.1.clone()).collect::<Vec<_>>().into(),
            strings.into(),
        ]);
    }

    #[test]
    fn histogram_counts_what_one_loop_counts(rows in vec(vec(-20i32..20, 0..5), 1..12), seed: u64) {
        let edges = vec![-10.0, -0.5, 0.0, 10.0];
        let packets = packs(rows.iter().map(|row| vec![row.clone().into(), f64::NAN.into()]));
        let params = pack(&[edges.clone().into()]).unwrap();
        let (counts, nans) = histogram::counts(&reduce("histogram", &params, &packets, seed).unwrap()).unwrap();
        let mut expected = vec![0; 5];
        for number in rows.iter().flatten() {
            expected[edges.iter().filter(|&&edge| edge <= f64::from(*number)).count()] += 1;
        }
        prop_assert_eq!((counts, nans), (expected, rows.len() as u64));
    }

    #[test]
    fn classes_of_integers(values in vec(-3i32..3, 1..20), seed: u64) {
        let mut expected = BTreeMap::<i32, Vec<u32>>::new();
        for (leaf, &value) in values.iter().enumerate() {
            expected.entry(value).or_default().push(leaf as u32);
        }
        let packets = packs(values.iter().enumerate().map(|(leaf, &value)| {
            vec![vec![value].into(), vec![1u32].into(), vec![leaf as u32].into()]
        }));
        prop_assert_eq!(answer("int-eq-class", &[], &packets, seed), vec![
            expected.keys().copied().collect::<Vec<_>>().into(),
            expected.values().map(|leaves| leaves.len() as u32).collect::<Vec<_>>().into(),
            expected.values().flatten().copied().collect::<Vec<_>>().into(),
        ]);
    }

    #[test]
    fn classes_of_bytes(values in vec("[ab]{0,2}", 1..20), seed: u64) {
        let mut expected = BTreeMap::<&[u8], RangeSet>::new();
        for (leaf, value) in values.iter().enumerate() {
            expected.entry(value.as_bytes()).or_default().insert(leaf as u32);
        }
        let packets = packs(values.iter().enumerate().map(|(leaf, value)| {
            // Bytes may come as a string or as an array.
            let bytes = if leaf % 2 == 0 { value.as_str().into() } else { value.clone().into_bytes().into() };
            vec![(leaf as u32).into(), bytes]
        }));
        let result = reduce("bytes-eq-class", b"", &packets, seed).unwrap();
        prop_assert_eq!(classes::bytes_classes(&result).unwrap(), expected.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn top_k_is_the_head_of_all_sorted(rows in vec(vec((-5i64..5, "[ab]"), 0..4), 1..12), k in 1u32..9, seed: u64) {
        let packets = packs(rows.iter().map(|row| {
            let labels: Vec<Bytes> = row.iter().map(|entry| Bytes::from(entry.1.clone())).collect();
            vec![row.iter().map(|entry| entry.0).collect::<Vec<_>>().into(), labels.into()]
        }));
        let mut all: Vec<_> = rows.into_iter().flatten().collect();
        all.sort_by_key(|(score, label)| (-score, label.clone()));
        all.truncate(k as usize);
        let (scores, labels): (Vec<i64>, Vec<Bytes>) =
            all.into_iter().map(|(score, label)| (score, Bytes::from(label))).unzip();
        prop_assert_eq!(answer("top-k", &[k.into()], &packets, seed), vec![scores.into(), labels.into()]);
    }

    #[test]
    fn top_k_orders_odd_floats(
        values in vec(prop_oneof![Just(f64::NAN), Just(-0.0), Just(0.0), Just(f64::INFINITY), -2.0..2.0], 1..9),
        seed: u64,
    ) {
        let packets = packs(values.iter().map(|&value| vec![value.into(), "x".into()]));
        let got = answer("top-k", &[99u32.into()], &packets, seed);
        let PacketValue::Array(Array::F64(scores)) = &got[0] else { panic!("{got:?}") };
        let numbers = scores.iter().take_while(|score| !score.is_nan()).count();
        prop_assert!(scores[..numbers].is_sorted_by(|a, b| a >= b));
        prop_assert!(scores[numbers..].iter().all(|score| score.is_nan()));
        prop_assert_eq!(scores.len(), values.len());
    }

    #[test]
    fn quantiles_are_close_and_the_same_in_any_tree(
        rows in vec(vec(prop_oneof![Just(0.0), -1e6..1e6, -1e-6..1e-6, any::<f64>()], 0..6), 1..12),
        seed: u64,
    ) {
        let rows: Vec<Vec<f64>> =
            rows.into_iter().map(|row| row.into_iter().filter(|v| v.is_finite()).collect()).collect();
        let mut all: Vec<f64> = rows.iter().flatten().copied().collect();
        prop_assume!(!all.is_empty());
        all.sort_by(f64::total_cmp);
        let shares = vec![0.0, 0.25, 0.5, 0.99, 1.0];
        let packets = packs(rows.into_iter().map(|row| vec![row.into()]));
        let params = [shares.clone().into(), 0.02f64.into()];
        let got = answer("quantiles", &params, &packets, seed);
        prop_assert_eq!(&got, &answer("quantiles", &params, &packets, seed ^ 1));
        prop_assert_eq!(&got[1], &PacketValue::U64(all.len() as u64));
        let PacketValue::Array(Array::F64(estimates)) = &got[0] else { panic!("{got:?}") };
        for (share, estimate) in shares.iter().zip(estimates) {
            let exact = all[(share * (all.len() - 1) as f64) as usize];
            let close = (estimate - exact).abs() <= 0.0201 * exact.abs() + f64::MIN_POSITIVE;
            prop_assert!(close, "{} of {:?}: {} is not {}", share, all, estimate, exact);
        }
    }

    #[test]
    fn distinct_is_exact_for_few(rows in vec(vec(0u32..40, 0..9), 1..12), seed: u64) {
        let distinct = rows.iter().flatten().collect::<HashSet<_>>().len() as u64;
        let packets = packs(rows.iter().map(|row| vec![row.clone().into()]));
        prop_assert_eq!(answer("distinct", &[], &packets, seed), vec![distinct.into(), 0.0f64.into()]);
    }

    #[test]
    fn garbage_never_panics_and_leaves_no_trace(which in 0usize..7, tail in vec(any::<u8>(), 0..40), cut: prop::sample::Index, flip: u8) {
        let labels: PacketValue = vec![Bytes::from_static(b"a")].into();
        let (name, params, good): (_, Vec<PacketValue>, Vec<PacketValue>) = match which {
            0 => ("concat", vec![], vec![7i32.into()]),
            1 => ("histogram", vec![vec![0.0, 1.0].into()], vec![7i32.into()]),
            2 => ("int-eq-class", vec![], vec![vec![7i32].into(), vec![1u32].into(), vec![0u32].into()]),
            3 => ("bytes-eq-class", vec![], vec![0u32.into(), "a".into()]),
            4 => ("top-k", vec![2u32.into()], vec![vec![7i32].into(), labels]),
            5 => ("quantiles", vec![vec![0.5].into()], vec![7i32.into()]),
            _ => ("distinct", vec![], vec![7i32.into()]),
        };
        let params = if params.is_empty() { Vec::new() } else { pack(&params).unwrap() };
        let good = pack(&good).unwrap();
        garbage_leaves_no_trace(name, &params, &good, &tail);
        // A partial with one byte changed, and one with another end.
        let mut wave = Registry::with_builtins().instantiate(name, &params, &NodeInfo::default()).unwrap().accumulator();
        wave.fold(Input { child: 0, raw: true, payload: &good, ..Input::default() }).unwrap();
        let mut partial = Vec::new();
        wave.finish(Emit::Partial, &mut partial).unwrap();
        let at = cut.index(partial.len());
        garbage_leaves_no_trace(name, &params, &good, &[&partial[..at], &tail].concat());
        partial[at] ^= flip;
        garbage_leaves_no_trace(name, &params, &good, &partial);
    }
}

proptest! {
    #[test]
    fn reading_garbage_for_a_result_never_panics(
        start in prop::sample::select(vec![&b""[..], b"\x08%as %auc", b"\x0e%aud %ald %auld", b"\x0a%auld %uld"]),
        tail in vec(any::<u8>(), 0..40),
    ) {
        let garbage = [start, &tail].concat();
        let _ = classes::bytes_classes(&garbage);
        let _ = clock_skew::leaf_clocks(&garbage);
        let _ = histogram::counts(&garbage);
        let _ = super::null::items(&garbage);
    }
}

#[test]
fn distinct_is_close_for_many_and_the_same_in_any_tree() {
    for count in [1_000u64, 1_024, 1_025, 3_000, 11_000, 13_000, 50_000, 300_000] {
        let packets: Vec<_> = (0..16)
            .map(|leaf| {
                let mine: Vec<u64> =
                    (0..count).filter(|value| value % 16 == leaf || value % 7 == 0).collect();
                pack(&[mine.into()]).unwrap()
            })
            .collect();
        let got = answer("distinct", &[], &packets, 3);
        assert_eq!(got, answer("distinct", &[], &packets, 4));
        let [PacketValue::U64(estimate), PacketValue::F64(error)] = got[..] else {
            panic!("{got:?}")
        };
        assert_eq!(error == 0.0, count <= 1024);
        let off = (estimate as f64 - count as f64).abs() / count as f64;
        assert!(off <= 4.0 * error, "{estimate} of {count}");
    }
}

#[test]
fn clock_offsets_and_errors_add_up_along_the_path() {
    let node = |clocks: &[(i64, u64)]| {
        let info = NodeInfo::default();
        for (child, &(offset_ns, error_ns)) in clocks.iter().enumerate() {
            info.clocks.set(10 + child as u32, Some(LinkClock { offset_ns, error_ns }));
        }
        Registry::with_builtins().instantiate("clock-skew", b"", &info).unwrap().accumulator()
    };
    let run = |wave: &mut Box<dyn Accumulator>, raw, payloads: &[Vec<u8>]| {
        for (child, payload) in payloads.iter().enumerate() {
            let (child, rank) = (child as u32, 10 + child as u32);
            wave.fold(Input { child, rank, raw, payload, ..Input::default() }).unwrap();
        }
        let mut out = Vec::new();
        wave.finish(Emit::Partial, &mut out).unwrap();
        out
    };
    let leaf = |leaf: u32| pack(&[leaf.into()]).unwrap();
    let left = run(&mut node(&[(10, 1), (-20, 2)]), true, &[leaf(0), leaf(1)]);
    let right = run(&mut node(&[(5, 3)]), true, &[leaf(2)]);
    let top = run(&mut node(&[(100, 10), (-100, 20)]), false, &[left, right]);
    let clocks: Vec<_> = clock_skew::leaf_clocks(&top)
        .unwrap()
        .iter()
        .map(|leaf| (leaf.leaf, leaf.clock.offset_ns, leaf.clock.error_ns))
        .collect();
    assert_eq!(clocks, [(0, 110, 11), (1, 80, 12), (2, -95, 23)]);

    let mut unmeasured = Registry::with_builtins()
        .instantiate("clock-skew", b"", &NodeInfo::default())
        .unwrap()
        .accumulator();
    let error = unmeasured
        .fold(Input { child: 0, raw: true, payload: &leaf(0), ..Input::default() })
        .unwrap_err();
    assert_eq!(error.errno, Errno::AGAIN);
}

#[test]
fn best_clock_measurement_is_kept() {
    let links = LinkClocks::new();
    links.measured(0, 100, 1_150, 200);
    assert_eq!(links.get(0), Some(LinkClock { offset_ns: 1_000, error_ns: 50 }));
    links.measured(0, 300, 5_000, 900);
    links.measured(0, 1_000, 2_003, 1_010);
    links.measured(0, 10, 0, 5);
    assert_eq!(links.get(0), Some(LinkClock { offset_ns: 998, error_ns: 5 }));
    assert_eq!(links.get(1), None);
}

#[test]
fn bad_parameters_are_refused() {
    let refused = |name: &str, params: &[PacketValue]| {
        let params = pack(params).unwrap();
        Registry::with_builtins()
            .instantiate(name, &params, &NodeInfo::default())
            .err()
            .unwrap()
            .message
    };
    assert_eq!(
        refused("histogram", &[vec![1.0, 1.0].into()]),
        "histogram takes 1 to 65536 edges in ascending order"
    );
    assert_eq!(refused("top-k", &[0u32.into()]), "top-k takes one %ud from 1 to 1048576");
    assert_eq!(
        refused("quantiles", &[vec![1.5].into()]),
        "quantiles takes up to 1024 shares from 0 to 1"
    );
    assert_eq!(
        refused("quantiles", &[vec![0.5].into(), 0.0f64.into()]),
        "the relative error of quantiles is from 0.001 to 0.5"
    );
    for name in
        ["null", "count", "concat", "distinct", "int-eq-class", "bytes-eq-class", "clock-skew"]
    {
        assert_eq!(refused(name, &[]), format!("{name} takes no parameters"));
    }
}

#[test]
fn every_filter_of_nothing_gives_what_adds_nothing() {
    let registry = Registry::with_builtins();
    for name in registry.names() {
        let params = match name {
            "histogram" | "quantiles" => pack(&[vec![0.5].into()]).unwrap(),
            "top-k" => pack(&[3u32.into()]).unwrap(),
            _ => Vec::new(),
        };
        let mut wave =
            registry.instantiate(name, &params, &NodeInfo::default()).unwrap().accumulator();
        let (mut nothing, mut again) = (Vec::new(), Vec::new());
        wave.finish(Emit::Partial, &mut nothing).unwrap();
        wave.fold(Input { child: 0, raw: false, payload: &nothing, ..Input::default() }).unwrap();
        wave.finish(Emit::Partial, &mut again).unwrap();
        assert_eq!(nothing, again, "{name}");
    }
}
