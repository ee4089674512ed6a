//! The simulator repeats itself, and peers that break the protocol lose their link and no more.
use crate::oracle::{Crowd, Nature, Outcome, registry};
use bytes::Bytes;
use sheaf_core::{Errno, RangeSet};
use sheaf_proto::filter::Registry;
use sheaf_proto::frame::{self, BODY_BYTES_MAX, Header, Kind, flag};
use sheaf_proto::packet::{PacketValue, unpack};
use sheaf_proto::sim::{Physics, Shape, Sim, SimConfig, SimOperation, fault, simulate};
use sheaf_proto::{Notice, Sync, Time};
use std::time::Duration;

fn crowd(seed: u64) -> Crowd {
    Crowd::new(Nature {
        seed,
        odd: 100,
        silence: true,
        long: 30,
        think: Duration::from_millis(2),
        posts: 0,
    })
}

#[test]
fn seed_repeats_itself_exactly() {
    let run = |seed| {
        let shape = Shape::balanced(&[4, 4]);
        let mut sim = Sim::new(
            shape.clone(),
            registry(),
            crowd(seed),
            SimConfig { shred: true, ..SimConfig::seeded(seed) },
        );
        let mut rng = fastrand::Rng::with_seed(seed);
        for (at, fault) in fault::random(&shape, &mut rng, 5, Duration::from_secs(3)) {
            sim.schedule(at - Time(0), fault);
        }
        let stream = sim.open(shape.everyone(), "bag", b"", Sync::WaitForAll);
        let mut results = Vec::new();
        for wave in 0..5 {
            let request = sim.leaves().nature.request(stream, wave);
            sim.send(stream, 0, &request, Some(Duration::from_secs(1)));
            results.push(sim.wait(stream).unwrap());
        }
        (results, sim.now(), sim.traffic(), sim.notices().to_vec())
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5).1, run(6).1);
}

#[test]
fn sum_over_4096_leaves_is_right_and_cheap_at_the_root() {
    let shape = Shape::with_fanout(4096, 32);
    let registry = Registry::with_builtins();
    let report = simulate(&shape, &SimOperation::sum(), &registry, Physics::default(), 1).unwrap();
    assert_eq!(unpack(&report.result).unwrap(), [PacketValue::U64(4095 * 4096 / 2)]);
    assert_eq!((report.depth, report.inner_nodes), (3, 132));
    // One frame from each child of the root, whatever is below.
    assert_eq!(report.root_frames_in, shape.children(0).len() as u64);
    assert!(report.root_bytes_in < 64 * report.root_frames_in);
}

/// A frame of the stream that the tests below open, from a node to its parent.
fn up(flags: u8, wave: u64, body: &[u8]) -> Bytes {
    let flags = flag::part::FIRST | flag::part::LAST | flags;
    frame::encode(Header { flags, stream: 1, wave, ..Header::new(Kind::Up) }, body)
}

fn cover(ok: &[u32]) -> Vec<u8> {
    let mut wire = Vec::new();
    RangeSet::from_iter(ok.iter().copied()).encode(&mut wire);
    // Nobody failed, nobody was silent.
    wire.extend_from_slice(&[0, 0]);
    wire
}

/// Leaf 9 of 1x4x4 sends `frames`; whether that ended its link, and nothing else.
fn is_violation(frames: &[Bytes]) -> bool {
    let shape = Shape::balanced(&[4, 4]);
    let nature = Nature {
        seed: 1,
        odd: 0,
        silence: false,
        long: 0,
        think: Duration::from_millis(1),
        posts: 0,
    };
    let mut sim = Sim::new(shape.clone(), registry(), Crowd::new(nature), SimConfig::seeded(3));
    let stream = sim.open(shape.everyone(), "records", b"", Sync::WaitForAll);
    let of_leaf_8 = sim.open(RangeSet::single(8), "records", b"", Sync::WaitForAll);
    assert_eq!((stream, of_leaf_8), (1, 2));
    sim.run_for(Duration::from_millis(5));
    for frame in frames {
        sim.inject(shape.rank_of_leaf(9), true, frame.clone());
    }
    let request = nature.request(stream, 0);
    sim.send(stream, 0, &request, Some(Duration::from_secs(1)));
    let result = sim.wait(stream).unwrap();
    let mut outcome = Outcome::default();
    outcome.take(&nature, stream, &result, true);
    outcome.check(&nature, stream, 0, &shape.everyone(), false);
    let ended = sim.traffic().violations == 1;
    if ended {
        assert_eq!(outcome.silent, RangeSet::single(9));
        assert!(sim.notices().iter().any(|notice| {
            matches!(notice, Notice::Lost { errno, rank, .. }
                if *errno == Errno::PROTO && *rank == shape.rank_of_leaf(9))
        }));
        // Its own program is not mad, and comes back.
        let request = nature.request(stream, 1);
        sim.send(stream, 0, &request, Some(Duration::from_secs(1)));
        assert_eq!(sim.wait(stream).unwrap().coverage.ok.len(), 16);
        assert!(sim.notices().iter().any(|notice| matches!(notice, Notice::Joined { leaves, .. }
            if *leaves == RangeSet::single(9))));
    } else {
        assert_eq!((outcome.ok.len(), sim.traffic().violations), (16, 0));
    }
    ended
}

#[test]
fn protocol_violation_closes_only_the_offending_link() {
    let header = |kind| Header { stream: 1, ..Header::new(kind) };
    let plain = |kind| frame::encode(header(kind), &[]);
    let mut oversized = header(Kind::Up).to_bytes().to_vec();
    oversized[..4].copy_from_slice(&(BODY_BYTES_MAX as u32 + 1).to_le_bytes());
    let mut record = 9u32.to_le_bytes().to_vec();
    record.extend_from_slice(&[0; 8]);
    let with_record = |cover: Vec<u8>| [cover, record.clone()].concat();
    let bad: Vec<(&str, Vec<Bytes>)> = vec![
        ("garbage", vec![Bytes::from_static(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")]),
        ("a huge length", vec![oversized.into()]),
        ("a packet from below", vec![plain(Kind::Down)]),
        ("a stream from below", vec![plain(Kind::Open)]),
        (
            "a close of somebody else's stream",
            vec![frame::encode(Header { stream: 2, ..header(Kind::Close) }, &[])],
        ),
        ("a cancellation from below", vec![plain(Kind::Cancel)]),
        ("the end of the session from below", vec![plain(Kind::Shutdown)]),
        ("a greeting out of place", vec![plain(Kind::Hello)]),
        (
            "credit for what was not sent",
            vec![frame::encode(Header { wave: 1 << 40, ..header(Kind::Credit) }, &[])],
        ),
        (
            "credit for the other direction",
            vec![frame::encode(
                Header { flags: flag::credit::UPWARD, ..header(Kind::Credit) },
                &[],
            )],
        ),
        (
            "a wave far ahead",
            vec![up(flag::up::FULL | flag::up::FINAL | flag::up::RAW, 1 << 40, &record)],
        ),
        ("a coverage that does not decode", vec![up(flag::up::FINAL, 5, &[0xff; 9])]),
        ("somebody else's leaf", vec![up(flag::up::FINAL, 5, &with_record(cover(&[8])))]),
        ("everybody's leaves", vec![up(flag::up::FINAL, 5, &with_record(cover(&[0, 9])))]),
        (
            "itself twice, in full",
            vec![
                up(flag::up::FULL | flag::up::RAW, 5, &record),
                up(flag::up::FULL | flag::up::RAW, 5, &record),
            ],
        ),
        (
            "itself twice, in parts",
            vec![
                up(0, 5, &with_record(cover(&[9]))),
                up(flag::up::FINAL, 5, &with_record(cover(&[9]))),
            ],
        ),
        (
            "a part without a beginning",
            vec![frame::encode(
                Header { flags: flag::part::LAST | flag::up::FULL, ..header(Kind::Up) },
                &record,
            )],
        ),
        ("a notice of somebody else's leaves", vec![lost_notice(8)]),
        ("a notice that does not decode", vec![frame::encode(header(Kind::Notice), &[0xff; 3])]),
    ];
    for (what, frames) in bad {
        assert!(is_violation(&frames), "{what} was accepted");
    }
}

fn lost_notice(leaf: u32) -> Bytes {
    let cause = "so it says".to_owned();
    let notice =
        Notice::Lost { by: 1, rank: 1, leaves: RangeSet::single(leaf), errno: Errno::IO, cause };
    frame::encode(Header::new(Kind::Notice), &postcard::to_stdvec(&notice).unwrap())
}

#[test]
fn late_or_unknown_frames_are_not_violations() {
    let header = |kind, stream| Header { stream, ..Header::new(kind) };
    let good: Vec<Vec<Bytes>> = vec![
        vec![],
        vec![frame::encode(header(Kind::Heartbeat, 0), &[])],
        vec![frame::encode(header(Kind::Credit, 77), &[])],
        vec![frame::encode(header(Kind::Up, 77), b"of a stream that is closed")],
        vec![lost_notice(9)],
    ];
    for frames in good {
        assert!(!is_violation(&frames), "{frames:?}");
    }
}

#[test]
fn leaf_that_leaves_a_stream_is_silent_with_its_errno() {
    let shape = Shape::balanced(&[4, 4]);
    let nature =
        Nature { seed: 1, odd: 0, silence: false, long: 0, think: Duration::ZERO, posts: 0 };
    let mut sim = Sim::new(shape.clone(), registry(), Crowd::new(nature), SimConfig::seeded(3));
    let left = sim.open(shape.everyone(), "records", b"", Sync::WaitForAll);
    let kept = sim.open(shape.everyone(), "records", b"", Sync::WaitForAll);
    sim.run_for(Duration::from_millis(5));
    for leaf in 8..12 {
        let close = Header { stream: left, tag: Errno::NOSPC.0, ..Header::new(Kind::Close) };
        sim.inject(shape.rank_of_leaf(leaf), true, frame::encode(close, &[]));
    }
    sim.run_for(Duration::from_millis(5));
    for (stream, silent) in [(left, RangeSet::from_range(8, 12)), (kept, RangeSet::new())] {
        sim.send(stream, 0, nature.request(stream, 0), Some(Duration::from_secs(9)));
        let result = sim.wait(stream).unwrap();
        assert_eq!(result.coverage.missing(), silent);
        assert!(result.coverage.silent.iter().all(|(errno, _)| *errno == Errno::NOSPC));
    }
    assert!(sim.now().0 < 1_000_000_000 && sim.traffic().violations == 0);
}

#[test]
fn garbage_in_a_body_never_panics() {
    let mut rng = fastrand::Rng::with_seed(11);
    for _ in 0..300 {
        let kinds =
            [Kind::Ready, Kind::Up, Kind::Credit, Kind::Notice, Kind::Heartbeat, Kind::Open];
        let frames = (0..rng.usize(1..4)).map(|_| {
            let body: Vec<u8> = (0..rng.usize(0..40)).map(|_| rng.u8(..)).collect();
            let header = Header {
                flags: rng.u8(..),
                stream: rng.u32(0..3),
                tag: rng.i32(..),
                wave: rng.u64(5..9),
                ..Header::new(rng.choice(kinds).unwrap())
            };
            frame::encode(header, &body)
        });
        is_harmless(&frames.collect::<Vec<_>>(), &mut rng);
    }
}

/// The wave that is asked for ends, and whoever is not the culprit is in it.
fn is_harmless(frames: &[Bytes], rng: &mut fastrand::Rng) {
    let shape = Shape::balanced(&[3, 3]);
    let nature =
        Nature { seed: 1, odd: 0, silence: false, long: 0, think: Duration::ZERO, posts: 0 };
    let mut sim = Sim::new(shape.clone(), registry(), Crowd::new(nature), SimConfig::seeded(3));
    let stream = sim.open(shape.everyone(), "bag", b"", Sync::WaitForAll);
    sim.run_for(Duration::from_millis(5));
    let culprit = rng.u32(1..shape.nodes());
    frames.iter().for_each(|frame| sim.inject(culprit, true, frame.clone()));
    sim.run_for(Duration::from_millis(5));
    sim.send(stream, 0, nature.request(stream, 0), Some(Duration::from_secs(1)));
    let result = sim.wait(stream).unwrap();
    let below = shape.leaves_below(culprit);
    let others = shape.everyone().difference(&RangeSet::from_range(below.start, below.end));
    assert!(others.is_subset(&result.coverage.ok), "{:?}", result.coverage);
}
