//! Answers from the wire: nothing that comes in can make a node panic.
use super::{Data, ErrorClass, FILTER, NumberChoice, Numbers, Packed, Partial, register};
use proptest::prelude::*;
use sheaf_core::{Errno, MemberSet, RangeSet};
use sheaf_tree::filter::{Emit, Input, NodeInfo, Registry};

fn data() -> impl Strategy<Value = Data> {
    let bytes = prop::collection::vec(any::<u8>(), 0..20);
    prop_oneof![
        Just(()).prop_map(|()| Data::None),
        (0u32..9, 0u32..3, bytes.clone(), 0u64..40).prop_map(|(leaf, local, bytes, max)| {
            Data::Packed(Packed::of(leaf, local, bytes, max))
        }),
        (0u32..9, 0u32..3, prop::collection::vec((-1e9f64..1e9, any::<i64>()), 1..4))
            .prop_map(|(leaf, local, values)| numbers(leaf, local, &values)),
        (0u32..9, bytes.clone(), any::<bool>()).prop_map(|(leaf, bytes, inline)| {
            let members = MemberSet::of_leaves(0, RangeSet::single(leaf));
            Data::class(
                *blake3::hash(&bytes).as_bytes(),
                bytes.len() as u64,
                members,
                inline.then_some(bytes),
            )
        }),
    ]
}

fn numbers(leaf: u32, local: u32, values: &[(f64, i64)]) -> Data {
    let text: String = values
        .iter()
        .map(|(float, integer)| format!("{float:?} {integer} x {float:?}\n"))
        .collect();
    Data::Numbers(Numbers::of(leaf, local, text.as_bytes(), &NumberChoice::default()).unwrap())
}

prop_compose! {
    fn partial()(data in data(), status in any::<u64>(), errno in 1i32..200, path in "[a-c]{0,2}", leaf in 0u32..50, kind in 0..4) -> Partial {
        let mut partial = Partial { data, ..Partial::default() };
        let leaves = RangeSet::single(leaf);
        match kind {
            0 => partial.status.add(status),
            1 => partial.add_error(ErrorClass::new(Errno(errno), path, MemberSet::of_leaves(1, leaves.clone()))),
            _ => (partial.more, partial.contributors) = (leaves.clone(), RangeSet::full(leaf)),
        }
        partial.add_count(errno as u32, &leaves);
        partial
    }
}

fn bytes(partial: &Partial) -> Vec<u8> {
    let mut bytes = Vec::new();
    partial.encode(&mut bytes);
    bytes
}

proptest! {
    #[test]
    fn partials_round_trip(partial in partial()) {
        prop_assert_eq!(Partial::decode(&bytes(&partial)).unwrap(), partial);
    }

    #[test]
    fn garbage_never_panics(garbage in prop::collection::vec(any::<u8>(), 0..80), partial in partial(), flip in any::<(prop::sample::Index, u8)>()) {
        let mut near = bytes(&partial);
        let at = flip.0.index(near.len());
        near[at] ^= flip.1;
        let mut registry = Registry::with_builtins();
        register(&mut registry);
        let mut accumulator = registry.instantiate(FILTER, &[], &NodeInfo::default()).unwrap().accumulator();
        for payload in [&garbage, &near, &near, &garbage] {
            let _ = accumulator.fold(Input { child: 0, raw: true, payload, ..Input::default() });
        }
        let mut out = Vec::new();
        let _ = accumulator.finish(Emit::Partial, &mut out);
        // The accumulator is as good as new.
        accumulator.fold(Input { child: 0, raw: true, payload: &bytes(&partial), ..Input::default() }).unwrap();
        out.clear();
        accumulator.finish(Emit::Result, &mut out).unwrap();
        prop_assert_eq!(out, bytes(&partial));
    }
}

#[test]
fn broken_partial_fails_alone_whichever_comes_first() {
    let mut registry = Registry::with_builtins();
    register(&mut registry);
    let good = bytes(&Partial::default());
    for order in [[b"\xff", &good[..]], [&good[..], b"\xff"]] {
        let mut accumulator =
            registry.instantiate(FILTER, &[], &NodeInfo::default()).unwrap().accumulator();
        for (child, payload) in (0..).zip(order) {
            let folded = accumulator.fold(Input { child, raw: true, payload, ..Input::default() });
            assert_eq!(folded.is_ok(), payload == good);
        }
        let mut out = Vec::new();
        accumulator.finish(Emit::Result, &mut out).unwrap();
        assert_eq!(out, good);
    }
}

#[test]
fn body_that_is_not_of_its_digest_is_malformed() {
    let member = || MemberSet::of_leaves(0, RangeSet::single(3));
    let class = |digest: [u8; 32], len| {
        let data = Data::class(digest, len, member(), Some(b"body".to_vec()));
        bytes(&Partial { data, ..Partial::default() })
    };
    let digest = *blake3::hash(b"body").as_bytes();
    assert!(Partial::decode(&class(digest, 4)).is_ok());
    assert!(Partial::decode(&class(digest, 5)).is_err());
    assert!(Partial::decode(&class([7; 32], 4)).is_err());
}

#[test]
fn numbers_have_this_wire_form() {
    let mut numbers = Numbers::of(0, 0, b"N/A 5", &NumberChoice::default()).unwrap();
    numbers.merge(Numbers::of(1, 0, b"3 0.5", &NumberChoice::default()).unwrap()).unwrap();
    let partial = Partial { data: Data::Numbers(numbers), ..Partial::default() };
    let wire: String = bytes(&partial).iter().map(|byte| format!("{byte:02x}")).collect();
    let expected = [
        // No other kinds of data; nothing but data, of the second kind; the members.
        "0000000000000000000002010001000100",
        // Two places: the first number of the first line, which leaf 0 does not have,
        "020000010011010300000000000000000600000600010001000000",
        // and the second, 5 + 0.5.
        "0001020110020000000000000080050000000000000001000000000000e03f000a0000",
        // No text beside them.
        "00",
    ];
    assert_eq!(wire, expected.concat());
    assert_eq!(Partial::decode(&bytes(&partial)).unwrap(), partial);
}
