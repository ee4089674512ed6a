//! Answers from the wire: nothing that comes in can make a node panic.
use super::{
    Data, ERROR_CLASSES_MAX, ErrorClass, FILTER, NumberChoice, Numbers, Packed, Partial, register,
};
use crate::entry::{ANSWER_BYTES_MAX, Answer, AnswerForm, Entry, EntryKind, Merged, Sink};
use crate::message::{OpenMessage, Operation, Request};
use crate::server::MEMBERS_MAX;
use proptest::prelude::*;
use sheaf_core::{Errno, MemberSet, RangeSet};
use sheaf_tree::filter::{Emit, Input, NodeInfo, Registry};
use sheaf_tree::proto::control::PROTOCOL_VERSION;
use sheaf_tree::service::{Caller, ClientRights};

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
fn digest_with_two_lengths_is_two_classes() {
    let class = |leaf, len| {
        let members = MemberSet::of_leaves(0, RangeSet::single(leaf));
        Data::class([7; 32], len, members, None)
    };
    let mut both = class(1, 1 << 60);
    both.merge(class(2, 4)).unwrap();
    let Data::Classes(classes) = both else { panic!("{both:?}") };
    let classes = classes.into_sorted();
    let lens: Vec<u64> = classes.iter().map(|(_, class)| class.len).collect();
    assert_eq!(lens, [1 << 60, 4]);
}

#[test]
fn bodies_of_others_stay_where_one_says_its_own_are_too_many() {
    let mut all = Data::Packed(Packed::of(0, 0, b"first".to_vec(), 100));
    let lie = Packed { items: Vec::new(), bytes_max: 0, exceeded: Some(1 << 60) };
    all.merge(Data::Packed(lie)).unwrap();
    all.merge(Data::Packed(Packed::of(2, 0, b"last".to_vec(), 100))).unwrap();
    let Data::Packed(packed) = all else { panic!("{all:?}") };
    let leaves: Vec<u32> = packed.items.iter().map(|(leaf, ..)| *leaf).collect();
    assert_eq!((leaves, packed.exceeded), (vec![0, 2], Some(1 << 60)));
}

#[test]
fn errors_beyond_the_named_ones_are_counted_and_in_order() {
    let mut partial = Partial::default();
    let count = ERROR_CLASSES_MAX as u32 + 300;
    for local in 0..count {
        let errno = if local % 3 == 0 { Errno::ACCES } else { Errno::NOENT };
        let members = MemberSet::of_leaves(local, RangeSet::single(3));
        partial.add_error(ErrorClass::new(errno, format!("/{local}"), members));
    }
    assert_eq!((partial.errors.len(), partial.failures()), (ERROR_CLASSES_MAX + 2, count.into()));
    assert!(partial.errors.is_sorted_by_key(|error| (error.errno, error.path.clone())));
    assert_eq!(Partial::decode(&bytes(&partial)).unwrap(), partial);
}

#[test]
fn errors_that_no_host_can_have_are_malformed() {
    let members = |local| MemberSet::of_leaves(local, RangeSet::single(3));
    let error = |local: u32| ErrorClass::new(Errno::NOENT, format!("/{local}"), members(local));
    let is_malformed = |errors: Vec<ErrorClass>| {
        Partial::decode(&bytes(&Partial { errors, ..Partial::default() })).is_err()
    };
    let count = ERROR_CLASSES_MAX as u32;
    assert!(!is_malformed((0..count).map(error).collect()));
    assert!(is_malformed((0..=2 * count).map(error).collect()));
    assert!(is_malformed(vec![ErrorClass { more: u64::MAX, ..error(0) }]));
    for errno in [0, 4096] {
        assert!(is_malformed(vec![error(0).with_errno(Errno(errno))]), "{errno}");
    }
}

#[test]
fn counts_of_a_leaf_are_one() {
    let counted = |counts: &[(u32, RangeSet)]| {
        let partial = Partial { counts: counts.to_vec(), ..Partial::default() };
        Partial::decode(&bytes(&partial)).is_ok()
    };
    let (some, others) = (RangeSet::from_range(0, 4), RangeSet::from_range(4, 8));
    assert!(counted(&[(1, others.clone()), (3, some.clone())]));
    assert!(!counted(&[(1, some.clone()), (3, RangeSet::from_range(3, 8))]));
    assert!(!counted(&[(1, some.clone()), (1, others.clone())]));
    assert!(!counted(&[(3, some), (1, others.clone())]));
    assert!(!counted(&[(1, RangeSet::new())]));
    let most = MEMBERS_MAX as u32;
    assert!(counted(&[(most, others.clone())]) && !counted(&[(most + 1, others)]));
}

#[test]
fn lines_that_are_longer_than_hosts_answer_are_refused() {
    let lines = |bytes: usize| {
        let mut answer = Answer::new(AnswerForm::default());
        answer.path(b"/f");
        let text = vec![b'x'; bytes];
        assert!(answer.entry(Entry::new(EntryKind::Line, &text)).is_continue());
        let mut merged = Merged::new();
        merged.fold_raw(3, &answer.into_bytes()).unwrap();
        merged
    };
    let mut long = Merged::new();
    for number in 0..2u8 {
        let mut more = Answer::new(AnswerForm::default());
        more.path(b"/f");
        let text = vec![number; ANSWER_BYTES_MAX / 2 + 1];
        assert!(more.entry(Entry::new(EntryKind::Line, &text)).is_continue());
        long.fold_raw(3, &more.into_bytes()).unwrap();
    }
    let mut registry = Registry::with_builtins();
    register(&mut registry);
    let fold = |merged: Merged, leaves: &RangeSet| {
        let partial = Partial { data: Data::Lines(Box::new(merged)), ..Partial::default() };
        let mut accumulator =
            registry.instantiate(FILTER, &[], &NodeInfo::default()).unwrap().accumulator();
        let payload = &bytes(&partial)[..];
        accumulator.fold(Input { leaves: Some(leaves), payload, ..Input::default() }).is_ok()
    };
    assert!(fold(lines(1000), &RangeSet::single(3)));
    assert!(fold(lines(ANSWER_BYTES_MAX / 2), &RangeSet::single(3)));
    let long_again = bytes(&Partial { data: Data::Lines(Box::new(long)), ..Partial::default() });
    let again = || match Partial::decode(&long_again).unwrap().data {
        Data::Lines(merged) => *merged,
        other => panic!("{other:?}"),
    };
    assert!(!fold(again(), &RangeSet::single(3)));
    assert!(fold(again(), &RangeSet::from_range(2, 4)));
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

/// Programs of two forms would take each other's answers for malformed: whoever changes what is on
/// links raises the version, and puts the digest of the new form here.
#[test]
fn what_is_on_links_is_as_the_version_says() {
    const FORM: (u32, &str) =
        (15, "73741a444bffe56f067b9c507eb16d64a97732097acce99c8e2508c054fbdcd0");
    let member = |leaf| MemberSet::of_leaves(1, RangeSet::single(leaf));
    let class = |body: &[u8]| {
        let digest = *blake3::hash(body).as_bytes();
        Data::class(digest, body.len() as u64, member(4), Some(body.to_vec()))
    };
    let mut lines = Merged::new();
    let mut answer = Answer::new(AnswerForm::default());
    answer.path(b"/f");
    assert!(answer.entry(Entry::new(EntryKind::Line, b"line")).is_continue());
    lines.fold_raw(5, &answer.into_bytes()).unwrap();
    let all = [
        Data::None,
        Data::Packed(Packed::of(1, 2, b"body".to_vec(), 40)),
        numbers(3, 0, &[(1.5, -2)]),
        class(b"body"),
        Data::Lines(Box::new(lines)),
    ];
    let mut form = blake3::Hasher::new();
    for data in all {
        let mut partial = Partial { data, ..Partial::default() };
        partial.status.add(7);
        partial.add_error(ErrorClass::new(Errno::NOENT, "/path".to_owned(), member(6)));
        partial.add_count(8, &RangeSet::single(9));
        (partial.more, partial.contributors) = (RangeSet::single(10), RangeSet::full(11));
        form.update(&bytes(&partial));
    }
    let open = OpenMessage::of_hosts(vec![(RangeSet::single(1), "/f".to_owned())], 2, 3);
    let then = Some(Operation::Fchmod { mode: 0o640 });
    form.update(&Request::Open { open, then, close: true }.encode(b"data"));
    let caller = Caller::User {
        uid: 1,
        gid: 2,
        gids: vec![3],
        host: "n1".to_owned(),
        is_owner: false,
        rights: ClientRights::FULL,
    };
    form.update(&postcard::to_stdvec(&caller).unwrap());
    assert_eq!((PROTOCOL_VERSION, form.finalize().to_hex().as_str()), FORM);
}
