//! Filters that fail, and bounds: the wave says who is missing, a notice says where and why, and
//! the node goes on.
use super::build::{KINDS, Kind, module};
use super::tree::{REGISTRY, Tree, until};
use sheaf_core::{Errno, RangeSet};
use sheaf_tree::filter::{
    Emit, Input, ModuleId, NodeInfo, REPLIES_PER_WAVE_MAX, Registry, link_modules, packets,
};
use sheaf_tree::{Coverage, Tuning, packet};
use std::time::{Duration, Instant};

const SOURCE: &str = "crates/sheaf-tree/tests/filters/misbehave.c";

fn loaded(kind: Kind) -> Option<ModuleId> {
    Some(REGISTRY.add_module(module(SOURCE, kind)?).unwrap())
}

fn echo(_: u32, payload: &[u8]) -> Vec<u8> {
    payload.to_vec()
}

/// The leaves of the tree that these tests use, all of them failed with one errno.
fn all_failed(coverage: &Coverage, errno: Errno) {
    assert_eq!(coverage.failed, [(errno, RangeSet::full(6))], "{coverage:?}");
    assert!(coverage.ok.is_empty() && coverage.silent.is_empty());
}

async fn fails(kind: Kind, function: &str, errno: Errno, reason: &str) {
    let Some(id) = loaded(kind) else { return };
    let tree = Tree::new("1x2x3", echo);
    let stream = tree.open(&id.filter(function), b"");
    for wave in 0..2 {
        let result = tree.ask(&stream, b"x").await;
        all_failed(&result.coverage, errno);
        let complaints = tree.complaints();
        assert_eq!(
            complaints.len(),
            2 * (wave + 1),
            "both nodes say so in every wave: {complaints:?}"
        );
        for (by, message) in &complaints {
            assert!([1, 2].contains(by) && message.contains(reason), "{by}: {message}");
            assert!(!message.contains(char::is_control), "one line: {message:?}");
        }
    }
    let fine = tree.open(&id.filter("relay"), b"");
    assert_eq!(tree.packets(&fine, b"y").await.len(), 6, "the nodes live");
}

#[tokio::test]
async fn filter_that_refuses_is_named_with_its_reason() {
    for kind in KINDS {
        fails(kind, "refuse", Errno::BADMSG, "these are not the packets you are looking for").await;
    }
}

#[tokio::test]
async fn trap_is_an_error() {
    fails(Kind::Wasm, "trap", Errno::FAULT, "unreachable").await;
}

#[tokio::test]
async fn pointer_out_of_bounds_is_an_error() {
    fails(Kind::Wasm, "wild", Errno::FAULT, "outside of its memory").await;
}

#[tokio::test]
async fn endless_loop_is_an_error() {
    let told = " steps (filter_steps_max is 2147483648)";
    fails(Kind::Wasm, "spin", Errno::TIMEDOUT, told).await;
}

#[tokio::test]
async fn work_and_time_of_a_call_are_bounded_as_is_set() {
    let Some(id) = loaded(Kind::Wasm) else { return };
    let settings = [
        (
            Tuning { filter_steps_max: 5000, ..Tuning::default() },
            "bound of work, 5000 steps (filter_steps_max is 5000)",
        ),
        (
            Tuning { filter_time_max: Duration::from_millis(20), ..Tuning::default() },
            "bound of time, 20 ms (filter_time_max)",
        ),
    ];
    for (tuning, told) in settings {
        // So much input allows for more work than can be done in that time.
        let tree = Tree::tuned("1x2x3", tuning, |_, _| vec![b'x'; 4 << 20]);
        let stream = tree.open(&id.filter("spin"), b"");
        all_failed(&tree.ask(&stream, b"x").await.coverage, Errno::TIMEDOUT);
        let complaints = tree.complaints();
        assert!(complaints.iter().all(|(_, message)| message.ends_with(told)), "{complaints:?}");
        assert_eq!(complaints.len(), 2);
    }
}

/// The copy of this process would go on as the whole tree, with the tests.
#[tokio::test]
async fn filter_that_forks_is_told_of_and_its_copy_ended() {
    let Some(id) = loaded(Kind::Native) else { return };
    let tree = Tree::new("1x2x3", echo);
    let stream = tree.open(&id.filter("forks"), b"");
    let told =
        |tree: &Tree| tree.complaints().iter().any(|(_, message)| message.contains("has forked"));
    let deadline = Instant::now() + Duration::from_secs(30);
    while !told(&tree) {
        assert!(Instant::now() < deadline, "{:?}", tree.complaints());
        tree.ask(&stream, b"x").await;
    }
    // The copy of another node may be told of with the next call.
    while !tree.ask(&tree.open(&id.filter("relay"), b""), b"y").await.coverage.is_full() {
        assert!(Instant::now() < deadline, "the nodes do not live: {:?}", tree.complaints());
    }
}

#[tokio::test]
async fn memory_has_a_bound() {
    fails(Kind::Wasm, "hoard", Errno::NOMEM, "no memory is left").await;
}

#[tokio::test]
async fn storm_of_replies_is_an_error() {
    for kind in KINDS {
        fails(kind, "storm", Errno::MSGSIZE, &format!("more than {REPLIES_PER_WAVE_MAX} replies"))
            .await;
    }
}

#[tokio::test]
async fn missing_function_is_named() {
    for kind in KINDS {
        fails(kind, "nothing", Errno::NOSYS, "no function \"nothing\"").await;
    }
}

#[tokio::test]
async fn module_that_is_not_there_is_named() {
    let tree = Tree::new("1x2x3", echo);
    let id = ModuleId::of(b"nobody has sent this");
    let stream = tree.open(&id.filter("f"), b"");
    all_failed(&tree.ask(&stream, b"").await.coverage, Errno::NOENT);
    assert!(tree.complaints().iter().all(|(_, message)| message.contains(&id.to_string())));
    assert_eq!(tree.complaints().len(), 2);
}

#[tokio::test]
async fn garbage_is_no_module() {
    let tree = Tree::new("1x2x3", echo);
    for garbage in
        [&b"garbage"[..], b"\0asm\x01\0\0\0garbage", b"\x7fELFgarbage", b"\0asm\x01\0\0\0", b""]
    {
        let registry = Registry::with_builtins();
        link_modules(&registry);
        let error = registry.add_module(garbage).and_then(|id| {
            // An empty module is a valid one, which has no functions.
            registry.instantiate(&id.filter("f"), b"", &NodeInfo::default()).map(|_| ())
        });
        let error = error.expect_err("garbage is refused");
        assert!([Errno::NOEXEC, Errno::NOSYS].contains(&error.errno), "{garbage:?}: {error}");
    }
    assert!(tree.network.load_filter(&b"garbage"[..]).is_err());
    let stream = tree.open("count", b"");
    assert!(tree.ask(&stream, b"").await.coverage.is_full(), "the nodes live");
}

/// Only what is missing behind the segments, as names of symbols for debuggers, may be.
#[test]
fn shared_object_that_is_cut_off_is_refused_wherever_it_is() {
    let Some(whole) = module(SOURCE, Kind::Native) else { return };
    let mut refused = 0;
    for length in (0..whole.len()).step_by(whole.len() / 40) {
        let registry = Registry::with_builtins();
        link_modules(&registry);
        let added = registry.add_module(whole[..length].to_vec());
        let made = added
            .and_then(|id| registry.instantiate(&id.filter("relay"), b"", &NodeInfo::default()));
        refused += usize::from(made.is_err_and(|error| error.errno == Errno::NOEXEC));
    }
    assert!(refused > 10, "{refused}");
    let registry = Registry::with_builtins();
    link_modules(&registry);
    let other = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let error = registry.add_module(other).expect_err("a program is no shared object");
    assert!(error.to_string().contains("cannot be linked: "), "{error}");
    assert!(!error.to_string().contains("dlopen failed"), "{error}");
}

#[tokio::test]
async fn only_the_leaves_below_a_failing_node_fail() {
    for kind in KINDS {
        let Some(id) = loaded(kind) else { continue };
        let tree = Tree::new("1x2x3", echo);
        let stream = tree.open(&id.filter("refuse_at"), &2u32.to_le_bytes());
        let result = tree.ask(&stream, b"x").await;
        assert_eq!(result.coverage.failed, [(Errno::BADMSG, RangeSet::from_range(3, 6))]);
        assert_eq!(*result.coverage.ok, RangeSet::from_range(0, 3));
        assert_eq!(packets::decode(&result.payload.unwrap()).unwrap(), [(100, &b"x"[..]); 3]);
        assert_eq!(tree.complaints(), [(2, "not here".to_owned())]);
    }
}

#[tokio::test]
async fn filter_that_trapped_works_again_in_the_next_wave() {
    let Some(id) = loaded(Kind::Wasm) else { return };
    let tree = Tree::new("1x2x3", echo);
    let stream = tree.open(&id.filter("moody"), b"");
    for wave in 0u32..6 {
        let result = tree.ask(&stream, &wave.to_le_bytes()).await;
        assert_eq!(result.coverage.is_full(), wave % 2 == 0, "wave {wave}");
    }
}

#[tokio::test]
async fn wave_may_give_no_packet() {
    for kind in KINDS {
        let Some(id) = loaded(kind) else { continue };
        let tree = Tree::new("1x2x3", echo);
        let stream = tree.open(&id.filter("swallow"), b"");
        assert_eq!(tree.packets(&stream, b"x").await, []);
        let stream = tree.open(&id.filter("relay"), b"");
        assert_eq!(tree.packets(&stream, b"x").await, vec![(100, b"x".to_vec()); 6]);
    }
}

#[tokio::test]
async fn wrong_partial_is_refused() {
    let Some(id) = loaded(Kind::Native) else { return };
    let mut wave =
        REGISTRY.instantiate(&id.filter("relay"), b"", &NodeInfo::default()).unwrap().accumulator();
    let error = wave.fold(Input { payload: b"\x05garbage", ..Input::default() }).unwrap_err();
    assert_eq!(error.errno, Errno::BADMSG);
    wave.fold(Input { raw: true, tag: 7, payload: b"good", ..Input::default() }).unwrap();
    let mut out = Vec::new();
    wave.finish(Emit::Result, &mut out).unwrap();
    assert_eq!(packets::decode(&out).unwrap(), [(7, &b"good"[..])]);
}

#[tokio::test]
async fn filter_knows_its_node() {
    for kind in KINDS {
        let Some(id) = loaded(kind) else { continue };
        let tree = Tree::new("1x2x1x3", echo);
        let stream = tree.open(&id.filter("where"), b"");
        let mut nodes: Vec<Vec<u32>> = Vec::new();
        for (_, bytes) in tree.packets(&stream, b"").await {
            nodes.push(
                bytes.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect(),
            );
        }
        nodes.sort();
        let id = stream.id();
        // rank, stream, depth, height, nearest leaf, children, siblings, descendants, leaves
        let expected = [
            [0, id, 0, 3, 3, 2, 0, 10, 6],
            [1, id, 1, 2, 2, 1, 1, 4, 3],
            [2, id, 1, 2, 2, 1, 1, 4, 3],
            [3, id, 2, 1, 1, 3, 0, 3, 3],
            [4, id, 2, 1, 1, 3, 0, 3, 3],
        ];
        assert_eq!(nodes, expected, "{kind:?}");
    }
}

#[tokio::test]
async fn replies_reach_every_leaf_below() {
    for kind in KINDS {
        let Some(id) = loaded(kind) else { continue };
        let tree = Tree::new("1x2x3", echo);
        let stream = tree.open(&id.filter("answer"), b"");
        for wave in 1..=3 {
            assert_eq!(tree.packets(&stream, b"x").await.len(), 6);
            until(|| tree.unasked.lock().unwrap().len() >= wave * 12).await;
        }
        let mut got = tree.unasked.lock().unwrap().clone();
        got.sort();
        got.dedup();
        // From the root, rank 0, and from the node above: ranks 1 and 2 have three leaves each.
        let expected = (0..6u32)
            .flat_map(|leaf| [0, 1 + leaf / 3].map(|rank| (leaf, 77, rank.to_le_bytes().to_vec())));
        assert_eq!(got, expected.collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn replies_that_nobody_takes_are_bounded_and_reported() {
    for kind in KINDS {
        let Some(id) = loaded(kind) else { continue };
        let tree = Tree::with("1x2x1", false, echo);
        let stream = tree.open(&id.filter("flood"), b"");
        for _ in 0..3 {
            assert!(tree.ask(&stream, b"x").await.coverage.is_full(), "the wave itself is fine");
        }
        until(|| {
            tree.complaints()
                .iter()
                .any(|(_, message)| message.contains("replies of a filter were dropped"))
        })
        .await;
        let held: usize =
            tree.unasked.lock().unwrap().iter().map(|(_, _, bytes)| bytes.len()).sum();
        assert!(
            held <= 2 * (256 << 10),
            "each of two leaves holds at most what may be under way: {held}"
        );
        assert!(held > 0);
    }
}

/// A module whose bytes have changed is refused, or does what it may and no more. (Shared objects
/// are linked by the system and run as they are.)
#[test]
fn damaged_modules_are_refused_or_stay_within_bounds() {
    const MUTANTS: u64 = 50;
    let Some(good) = module(SOURCE, Kind::Wasm) else { return };
    let mut refused = 0;
    for seed in 0..MUTANTS {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut bytes = good.clone();
        for _ in 0..random.usize(1..3) {
            let at = random.usize(..bytes.len());
            bytes[at] =
                if random.bool() { random.u8(..) } else { bytes[at] ^ (1 << random.u8(..8)) };
        }
        if random.u8(..8) == 0 {
            bytes.truncate(random.usize(..bytes.len()));
        }
        let registry = Registry::with_builtins();
        link_modules(&registry);
        let made = registry
            .add_module(bytes)
            .and_then(|id| registry.instantiate(&id.filter("relay"), b"", &NodeInfo::default()));
        let Ok(mut filter) = made else {
            refused += 1;
            continue;
        };
        let mut wave = filter.accumulator();
        let mut out = Vec::new();
        let folded = wave.fold(Input { raw: true, payload: &[7; 100], ..Input::default() });
        if folded.and_then(|()| wave.finish(Emit::Result, &mut out)).is_ok() {
            packets::decode(&out).unwrap();
        }
        let _ = filter.state();
    }
    assert!((1..MUTANTS).contains(&refused), "{refused} of {MUTANTS} were refused");
}

#[test]
fn state_is_kept_given_and_taken() {
    for kind in KINDS {
        let Some(id) = loaded(kind) else { continue };
        let make = || REGISTRY.instantiate(&id.filter("tally"), b"", &NodeInfo::default()).unwrap();
        let wave = |filter: &dyn sheaf_tree::filter::Filter, count: usize| {
            let mut wave = filter.accumulator();
            for _ in 0..count {
                wave.fold(Input { raw: true, payload: b"x", ..Input::default() }).unwrap();
            }
            let mut out = Vec::new();
            wave.finish(Emit::Result, &mut out).unwrap();
            let (_, bytes) = packets::decode(&out).unwrap()[0];
            u64::from_le_bytes(bytes.try_into().unwrap())
        };
        let (mut one, mut other) = (make(), make());
        assert_eq!([wave(&*one, 2), wave(&*one, 3), wave(&*other, 1)], [2, 5, 1]);
        let state = other.state().unwrap();
        one.absorb(&state).unwrap();
        assert!(one.absorb(b"no such state").is_err());
        assert_eq!(wave(&*one, 4), 10);
        let mut stateless =
            REGISTRY.instantiate(&id.filter("relay"), b"", &NodeInfo::default()).unwrap();
        assert_eq!(stateless.state(), None);
        stateless.absorb(b"anything").unwrap();
    }
}

/// A module of a layer that gives filters another signature, called through its trampoline.
#[test]
fn filters_of_another_signature_are_called_by_their_trampoline() {
    let Some(bytes) = module("crates/sheaf-tree/tests/filters/layer.c", Kind::Native) else {
        return;
    };
    let id = REGISTRY.add_module(bytes).unwrap();
    let mut filter =
        REGISTRY.instantiate(&id.filter("longest"), b"", &NodeInfo::default()).unwrap();
    let wave = |filter: &dyn sheaf_tree::filter::Filter, payloads: &[&[u8]]| {
        let mut wave = filter.accumulator();
        for payload in payloads {
            wave.fold(Input { raw: true, payload, ..Input::default() }).unwrap();
        }
        let mut out = Vec::new();
        wave.finish(Emit::Result, &mut out).unwrap();
        out
    };
    let list = wave(&*filter, &[b"one", b"three", b"two"]);
    assert_eq!(packets::decode(&list).unwrap(), [(0, &b"%s"[..]), (5, b"three")]);
    assert_eq!(filter.state().unwrap(), b"state");
    // What taking a state over gives goes up with the next wave.
    filter.absorb(b"a state").unwrap();
    let list = wave(&*filter, &[b"x"]);
    assert_eq!(
        packets::decode(&list).unwrap(),
        [(0, &b"%s"[..]), (7, b"a state"), (0, b"%s"), (1, b"x")]
    );
}

/// The whole way: the bytes go down the tree, which has its own registry at first without them.
#[tokio::test]
async fn loaded_module_serves_streams_opened_right_after() {
    for kind in KINDS {
        let Some(bytes) = module(SOURCE, kind) else { continue };
        let tree = Tree::new("1x2x3", |leaf, _| packet::pack(&[leaf.into()]).unwrap());
        let id = tree.network.load_filter(bytes.clone()).unwrap();
        assert_eq!(
            tree.network.load_filter(bytes).unwrap(),
            id,
            "loading it again changes nothing"
        );
        let stream = tree.open(&id.filter("relay"), b"");
        assert_eq!(tree.packets(&stream, b"").await.len(), 6);
    }
}
