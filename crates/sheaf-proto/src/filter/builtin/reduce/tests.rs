use crate::filter::builtin::testing::{garbage_leaves_no_trace, reduce};
use crate::filter::{Emit, Input, NodeInfo, Registry};
use crate::packet::{Array, PacketValue, pack, unpack};
use proptest::collection::vec;
use proptest::prelude::*;
use sheaf_core::Errno;

fn packs(values: &[Vec<PacketValue>]) -> Vec<Vec<u8>> {
    values.iter().map(|values| pack(values).unwrap()).collect()
}

type Row = (i8, u64, i64, Vec<i32>, i16);

fn row() -> impl Strategy<Value = Row> {
    (any::<i8>(), any::<u64>(), any::<i64>(), vec(any::<i32>(), 3), -50i16..50)
}

fn to_values(row: &Row) -> Vec<PacketValue> {
    // Halves of small numbers sum exactly, in any order.
    let half = f64::from(row.4) / 2.0;
    vec![
        row.0.into(),
        row.1.into(),
        row.2.into(),
        row.3.clone().into(),
        half.into(),
        PacketValue::LargeArray(Array::F32(vec![half as f32, 1.0])),
    ]
}

/// Field by field over all rows, wide.
fn columns(rows: &[Row]) -> (Vec<Vec<i128>>, Vec<f64>) {
    let ints = |get: &dyn Fn(&Row) -> i128| rows.iter().map(get).collect();
    let all = vec![
        ints(&|row| row.0.into()),
        ints(&|row| row.1.into()),
        ints(&|row| row.2.into()),
        ints(&|row| row.3[0].into()),
        ints(&|row| row.3[1].into()),
        ints(&|row| row.3[2].into()),
    ];
    (all, rows.iter().map(|row| f64::from(row.4) / 2.0).collect())
}

fn answer(ints: &[i128], float: f64, ones: f32) -> Option<Vec<PacketValue>> {
    Some(vec![
        i8::try_from(ints[0]).ok()?.into(),
        u64::try_from(ints[1]).ok()?.into(),
        i64::try_from(ints[2]).ok()?.into(),
        ints[3..6].iter().map(|&v| i32::try_from(v)).collect::<Result<Vec<_>, _>>().ok()?.into(),
        float.into(),
        PacketValue::LargeArray(Array::F32(vec![float as f32, ones])),
    ])
}

proptest! {
    #[test]
    fn any_tree_gives_what_one_loop_gives(rows in vec(row(), 1..12), seed: u64) {
        let (ints, floats) = columns(&rows);
        let packets = packs(&rows.iter().map(to_values).collect::<Vec<_>>());
        let count = rows.len();
        let total = floats.iter().sum::<f64>();
        let each = |fold: &dyn Fn(&[i128]) -> i128| ints.iter().map(|column| fold(column)).collect::<Vec<_>>();

        let expected = answer(&each(&|c| *c.iter().min().unwrap()), floats.iter().copied().fold(f64::MAX, f64::min), 1.0);
        prop_assert_eq!(unpack(&reduce("min", b"", &packets, seed).unwrap()).unwrap(), expected.unwrap());

        let expected = answer(&each(&|c| *c.iter().max().unwrap()), floats.iter().copied().fold(f64::MIN, f64::max), 1.0);
        prop_assert_eq!(unpack(&reduce("max", b"", &packets, seed).unwrap()).unwrap(), expected.unwrap());

        let expected = answer(&each(&|c| c.iter().sum::<i128>() / count as i128), total / count as f64, 1.0);
        let got = unpack(&reduce("avg", b"%c %uld %ld %ad %lf %Af", &packets, seed).unwrap()).unwrap();
        prop_assert_eq!(got, expected.unwrap());

        let expected = answer(&each(&|c| c.iter().sum()), total, count as f32);
        match (reduce("sum", b"", &packets, seed), expected) {
            (Ok(got), Some(expected)) => prop_assert_eq!(unpack(&got).unwrap(), expected),
            (Err(error), None) => prop_assert_eq!(error.errno, Errno::OVERFLOW),
            (got, expected) => prop_assert!(false, "{:?} {:?}", got, expected),
        }
    }

    #[test]
    fn single_scalars_overflow_only_in_total(values in vec(any::<i32>(), 1..20), seed: u64) {
        let packets = packs(&values.iter().map(|&v| vec![v.into()]).collect::<Vec<_>>());
        let total = values.iter().map(|&v| i64::from(v)).sum::<i64>();
        let got = reduce("sum", b"%d", &packets, seed);
        match i32::try_from(total) {
            Ok(total) => prop_assert_eq!(unpack(&got.unwrap()).unwrap(), vec![total.into()]),
            Err(_) => prop_assert_eq!(got.unwrap_err().errno, Errno::OVERFLOW),
        }
        let mean = unpack(&reduce("avg", b"", &packets, seed).unwrap()).unwrap();
        prop_assert_eq!(mean, vec![((total / values.len() as i64) as i32).into()]);
        let count = unpack(&reduce("count", b"", &packets, seed).unwrap()).unwrap();
        prop_assert_eq!(count, vec![(values.len() as u64).into()]);
    }

    #[test]
    fn extremes_of_odd_floats_do_not_depend_on_the_tree(
        values in vec(prop_oneof![Just(f64::NAN), Just(0.0), Just(-0.0), Just(1.0), Just(f64::NEG_INFINITY)], 1..9),
        seed: u64,
    ) {
        let packets = packs(&values.iter().map(|&v| vec![v.into()]).collect::<Vec<_>>());
        for name in ["min", "max"] {
            prop_assert_eq!(reduce(name, b"", &packets, seed), reduce(name, b"", &packets, 0));
        }
    }

    #[test]
    fn null_keeps_all_in_order(packets in vec(vec(any::<u8>(), 0..9), 0..9), seed: u64) {
        let result = reduce("null", b"", &packets, seed).unwrap();
        prop_assert_eq!(crate::filter::builtin::null::items(&result).unwrap(), packets);
    }

    #[test]
    fn garbage_never_panics_and_leaves_no_trace(
        start in proptest::sample::select(vec![&b""[..], b"\x02%d", b"\xff\x01\x02%d", b"\xff\x02\x03%ad", b"\x07%ad %lf"]),
        tail in vec(any::<u8>(), 0..24),
    ) {
        let garbage = [start, &tail].concat();
        for good in [vec![PacketValue::from(7i32)], vec![vec![1i32, 2].into(), 2.0f64.into()]] {
            for name in ["min", "max", "sum", "avg", "count", "null"] {
                garbage_leaves_no_trace(name, b"", &pack(&good).unwrap(), &garbage);
            }
        }
    }
}

#[test]
fn refusals_say_why() {
    let message = |values: &[PacketValue], more: &[PacketValue]| {
        let mut wave = Registry::with_builtins()
            .instantiate("sum", b"", &NodeInfo::default())
            .unwrap()
            .accumulator();
        wave.fold(Input {
            child: 0,
            raw: true,
            payload: &pack(values).unwrap(),
            ..Input::default()
        })
        .unwrap();
        let error = wave
            .fold(Input { child: 1, raw: true, payload: &pack(more).unwrap(), ..Input::default() })
            .unwrap_err();
        assert_eq!(error.errno, Errno::BADMSG);
        error.message
    };
    assert_eq!(
        message(&[1i32.into()], &[1u32.into()]),
        "sum of \"%d\" cannot take a packet of \"%ud\""
    );
    assert_eq!(
        message(&[vec![1i32].into()], &[vec![1i32, 2].into()]),
        "sum of arrays of 1 elements cannot take one of 2"
    );
    let refused = reduce("max", b"", &packs(&[vec!["text".into()]]), 0).unwrap_err();
    assert_eq!(refused.message, "max does not combine strings (%s)");
    let overflow =
        reduce("sum", b"", &packs(&[vec![i8::MAX.into()], vec![1i8.into()]]), 0).unwrap_err();
    assert_eq!(overflow.message, "the sum of value 1 does not fit into %c");
    assert!(Registry::with_builtins().instantiate("sum", b"%q", &NodeInfo::default()).is_err());
    assert!(Registry::with_builtins().instantiate("sum", b"%s", &NodeInfo::default()).is_err());
}

#[test]
fn declared_format_is_held_to() {
    let wrong = reduce("sum", b"%d", &packs(&[vec![1u32.into()]]), 0).unwrap_err();
    assert_eq!(wrong.errno, Errno::BADMSG);
    assert!(
        !Registry::with_builtins()
            .instantiate("sum", b"%d", &NodeInfo::default())
            .unwrap()
            .in_child_order()
    );
    assert!(
        Registry::with_builtins()
            .instantiate("sum", b"%lf", &NodeInfo::default())
            .unwrap()
            .in_child_order()
    );
    assert!(
        !Registry::with_builtins()
            .instantiate("max", b"", &NodeInfo::default())
            .unwrap()
            .in_child_order()
    );
}

#[test]
fn nothing_folds_to_nothing() {
    for name in ["min", "max", "sum", "avg"] {
        let mut wave = Registry::with_builtins()
            .instantiate(name, b"", &NodeInfo::default())
            .unwrap()
            .accumulator();
        let mut nothing = Vec::new();
        wave.finish(Emit::Partial, &mut nothing).unwrap();
        wave.fold(Input { child: 0, raw: false, payload: &nothing, ..Input::default() }).unwrap();
        wave.fold(Input {
            child: 1,
            raw: true,
            payload: &pack(&[4i32.into()]).unwrap(),
            ..Input::default()
        })
        .unwrap();
        let mut out = Vec::new();
        wave.finish(Emit::Result, &mut out).unwrap();
        assert_eq!(unpack(&out).unwrap(), [4i32.into()]);
    }
}
