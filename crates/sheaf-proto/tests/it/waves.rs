//! Waves under faults: every one ends, and counts each leaf exactly once.
use crate::oracle::{Crowd, Nature, Outcome, for_seeds, registry};
use rustc_hash::FxHashMap;
use sheaf_core::{Errno, RangeSet};
use sheaf_proto::sim::{Fault, Shape, Sim, SimConfig, fault};
use sheaf_proto::{Notice, Outgoing, Sync, Time, Tuning};
use std::time::Duration;

/// What a wave may take beyond its deadline, for answers that were sent in time.
const LATE_MAX: Duration = Duration::from_millis(500);

fn shapes() -> Vec<Shape> {
    let counts = |counts: &[u32]| Shape::from_counts(counts).unwrap();
    vec![
        Shape::balanced(&[8, 8]),
        Shape::balanced(&[2, 3, 4]),
        Shape::balanced(&[1, 1, 1, 1, 1]),
        Shape::balanced(&[64]),
        // A leaf beside an inner node, at every level; and nodes with one child among others.
        counts(&[2, 0, 2, 0, 2, 0, 2, 0, 3, 0, 0, 0]),
        counts(&[3, 1, 4, 0, 1, 0, 2, 0, 1, 5, 0, 0, 0, 0, 0, 0, 0, 0]),
    ]
}

struct Run {
    sim: Sim<Crowd>,
    rng: fastrand::Rng,
    nature: Nature,
    /// Nothing fails, every wave has time enough, and none is cancelled.
    faultless: bool,
    streams: FxHashMap<u32, Stream>,
}

struct Stream {
    members: RangeSet,
    in_order: bool,
    /// By wave: what is known of it, and when it must be over.
    waves: FxHashMap<u64, (Outcome, Time)>,
}

impl Run {
    fn new(seed: u64, faultless: bool) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let shape = rng.choice(shapes()).unwrap();
        let long = if rng.bool() { 0 } else { 40 };
        let think = Duration::from_micros(rng.u64(0..400));
        let nature = Nature { seed, odd: 60, silence: !faultless, long, think, posts: 0 };
        let config = SimConfig {
            shred: rng.bool(),
            tuning: Tuning { window_bytes: 1 << rng.u32(0..21), ..Tuning::default() },
            ..SimConfig::seeded(seed)
        };
        let sim = Sim::new(shape, registry(), Crowd::new(nature), config);
        Self { sim, rng, nature, faultless, streams: FxHashMap::default() }
    }

    fn open(&mut self) {
        let everyone = self.sim.shape().everyone();
        let members = match self.rng.u8(0..3) {
            0 => everyone,
            1 => everyone.iter().filter(|_| self.rng.bool()).collect(),
            _ => RangeSet::single(self.rng.u32(0..self.sim.shape().leaves())),
        };
        let sync = match self.rng.u8(0..4) {
            0 => Sync::DontWait,
            1 => Sync::TimeOut(Duration::from_micros(self.rng.u64(0..200_000))),
            _ => Sync::WaitForAll,
        };
        let filter = if self.rng.bool() { "records" } else { "bag" };
        // In the other modes a child may contribute several times, with its leaves in any order.
        // So it may after a failure, when leaves arrive by way of another node.
        let in_order = filter == "records" && sync == Sync::WaitForAll && self.faultless;
        let id = self.sim.open(members.clone(), filter, b"", sync);
        self.streams.insert(id, Stream { members, in_order, waves: FxHashMap::default() });
    }

    fn send(&mut self) {
        let mut ids: Vec<u32> = self.streams.keys().copied().collect();
        ids.sort_unstable();
        let Some(id) = self.rng.choice(ids) else { return };
        let expect =
            Duration::from_millis(if self.faultless { 600_000 } else { self.rng.u64(20..20_000) });
        let wave = self.streams[&id].waves.len() as u64;
        let request = self.nature.request(id, wave);
        assert_eq!(self.sim.send(id, 7, &request, Some(expect)), wave);
        let slack = (expect / 4).min(Duration::from_millis(500));
        let over = self.sim.now() + expect + slack + Duration::from_millis(10);
        let stream = self.streams.get_mut(&id).unwrap();
        stream.waves.insert(wave, (Outcome::default(), over));
        if !self.faultless && self.rng.u8(0..12) == 0 {
            self.sim.with(0, |root, now| root.cancel(now, id, wave));
        }
    }

    /// Takes what has come; returns whether every wave is over.
    fn take(&mut self) -> bool {
        let mut all_over = true;
        for (&id, stream) in &mut self.streams {
            while let Some(result) = self.sim.take(id) {
                let (outcome, _) =
                    stream.waves.get_mut(&result.wave).expect("a wave that was started");
                outcome.take(&self.nature, id, &result, stream.in_order);
            }
            for (wave, (outcome, over)) in &stream.waves {
                let late = !outcome.complete && self.sim.now() > *over + LATE_MAX;
                assert!(!late, "stream {id}, wave {wave} is not over at {over:?}");
                all_over &= outcome.complete;
            }
        }
        all_over
    }

    fn run(&mut self, waves: u32) {
        for _ in 0..self.rng.u32(1..6) {
            self.open();
        }
        for _ in 0..waves {
            self.send();
            let pause = Duration::from_micros(self.rng.u64(0..300_000));
            self.sim.run_for(pause);
            self.take();
            if self.rng.u8(0..10) == 0 {
                self.open();
            }
        }
        while !self.take() {
            assert!(self.sim.step(), "waves are open and nothing will happen any more");
        }
    }

    fn check(&self) {
        for (&id, stream) in &self.streams {
            for (&wave, (outcome, _)) in &stream.waves {
                outcome.check(&self.nature, id, wave, &stream.members, self.faultless);
            }
        }
    }

    /// The root ends the session: nobody is left, except who is stopped or cut off.
    fn end(&mut self) {
        self.sim.with(0, |root, _| root.shut_down_children());
        self.sim.run_for(Duration::from_secs(60));
        let left = (1..self.sim.shape().nodes()).filter(|&rank| self.sim.is_running(rank));
        assert_eq!(left.collect::<Vec<_>>(), [], "nodes outlive their session");
    }
}

#[test]
fn every_wave_ends_and_counts_each_leaf_once() {
    for_seeds(300, |seed| {
        let mut run = Run::new(seed, false);
        let (count, span) = (run.rng.u32(1..8), Duration::from_secs(4));
        let faults = fault::random(run.sim.shape(), &mut run.rng, count, span);
        for (at, fault) in faults {
            run.sim.schedule(at - Time(0), fault);
        }
        run.run(16);
        run.check();
        run.end();
    });
}

#[test]
fn without_faults_every_answer_is_in_its_wave() {
    for_seeds(100, |seed| {
        let mut run = Run::new(seed, true);
        run.run(16);
        run.check();
        run.end();
        assert_eq!(run.sim.traffic().violations, 0);
    });
}

/// A sum over 1x8x8 with one node in trouble from the start of its wave.
struct Case {
    sim: Sim<Crowd>,
    stream: u32,
    nature: Nature,
}

impl Case {
    fn new() -> Self {
        let nature = Nature {
            seed: 1,
            odd: 0,
            silence: false,
            long: 0,
            think: Duration::from_millis(1),
            posts: 0,
        };
        let mut sim = Sim::new(
            Shape::balanced(&[8, 8]),
            registry(),
            Crowd::new(nature),
            SimConfig::seeded(1),
        );
        let stream = sim.open(RangeSet::full(64), "records", b"", Sync::WaitForAll);
        sim.run_for(Duration::from_millis(10));
        Self { sim, stream, nature }
    }

    /// The next wave, and how long it took.
    fn wave(&mut self, wave: u64, expect: Duration) -> (Outcome, Duration) {
        let begun = self.sim.now();
        let request = self.nature.request(self.stream, wave);
        assert_eq!(self.sim.send(self.stream, 0, &request, Some(expect)), wave);
        (self.result(wave), self.sim.now() - begun)
    }

    fn result(&mut self, wave: u64) -> Outcome {
        let result = self.sim.wait(self.stream).expect("a wave ends");
        assert_eq!(result.wave, wave);
        let mut outcome = Outcome::default();
        outcome.take(&self.nature, self.stream, &result, true);
        outcome.check(&self.nature, self.stream, wave, &RangeSet::full(64), false);
        outcome
    }

    fn hurt(&mut self, fault: Fault) {
        self.sim.schedule(Duration::ZERO, fault);
        self.sim.run_for(Duration::from_micros(1));
    }
}

#[test]
fn deadline_names_exactly_the_silent_leaves() {
    let mut case = Case::new();
    let ranks: Vec<u32> = [3, 17, 40].map(|leaf| case.sim.shape().rank_of_leaf(leaf)).to_vec();
    for &rank in &ranks {
        case.hurt(Fault::Stop { rank });
    }
    let (outcome, took) = case.wave(0, Duration::from_secs(2));
    assert_eq!(outcome.silent, RangeSet::from_iter([3, 17, 40]));
    assert!(outcome.errnos.iter().all(|(errno, _)| *errno == Errno::TIMEDOUT));
    assert!(took <= Duration::from_secs(2) + LATE_MAX, "{took:?}");
    // What they answer now is late: it must not be found in the next wave.
    for rank in ranks {
        case.hurt(Fault::Continue { rank });
    }
    let (outcome, took) = case.wave(1, Duration::from_secs(2));
    assert_eq!(outcome.ok, RangeSet::full(64));
    assert!(took < Duration::from_millis(100), "{took:?}");
}

#[test]
fn leaves_of_a_killed_inner_node_are_in_the_wave_all_the_same() {
    for micros in [20, 60, 100, 200, 400, 800, 1500, 3000] {
        let mut case = Case::new();
        case.sim.schedule(Duration::from_micros(micros), Fault::Kill { rank: 3 });
        for wave in 0..20 {
            let (outcome, took) = case.wave(wave, Duration::from_secs(30));
            assert_eq!(outcome.ok, RangeSet::full(64), "killed after {micros} µs, wave {wave}");
            assert!(took < Duration::from_secs(1), "{took:?}");
        }
        assert_eq!(case.sim.notices(), []);
        assert!(case.sim.shape().children(3).all(|rank| case.sim.has_parent(rank)));
    }
}

#[test]
fn machine_without_power_is_missed_and_its_leaves_come_back() {
    let mut case = Case::new();
    case.hurt(Fault::PowerOff { rank: 3 });
    let (outcome, took) = case.wave(0, Duration::from_secs(60));
    assert_eq!(outcome.ok, RangeSet::full(64));
    assert!(took > Duration::from_secs(5) && took < Duration::from_secs(10), "{took:?}");
    let (outcome, took) = case.wave(1, Duration::from_secs(60));
    assert_eq!(outcome.ok, RangeSet::full(64));
    assert!(took < Duration::from_millis(100), "{took:?}");
}

#[test]
fn killed_leaf_is_silent_when_nobody_waits_for_it_any_more() {
    let mut case = Case::new();
    case.hurt(Fault::Kill { rank: case.sim.shape().rank_of_leaf(9) });
    let grace = Tuning::default().adoption_grace;
    let (outcome, took) = case.wave(0, Duration::from_secs(60));
    assert_eq!(outcome.silent, RangeSet::single(9));
    assert!(
        outcome.errnos.iter().all(|(errno, _)| *errno == Errno::CONNRESET),
        "{:?}",
        outcome.errnos
    );
    assert!(took < grace + Duration::from_secs(1), "{took:?}");
    let lost =
        |notice: &Notice| matches!(notice, Notice::Lost { by: 2, leaves, .. } if leaves.len() == 1);
    assert_eq!(case.sim.notices().iter().filter(|notice| lost(notice)).count(), 1);
    let (outcome, took) = case.wave(1, Duration::from_secs(60));
    assert_eq!(outcome.silent, RangeSet::single(9));
    assert!(took < Duration::from_millis(100), "{took:?}");
}

#[test]
fn node_that_slept_does_not_judge_the_others() {
    // Shorter than the others' patience: nothing is lost but the wave's time.
    let mut case = Case::new();
    case.hurt(Fault::Stop { rank: 3 });
    case.sim.schedule(Duration::from_secs(5), Fault::Continue { rank: 3 });
    let (outcome, took) = case.wave(0, Duration::from_secs(60));
    assert_eq!(outcome.ok, RangeSet::full(64));
    assert!(took < Duration::from_secs(6), "{took:?}");
    assert_eq!(case.sim.notices(), []);
    // Longer: its leaves have gone elsewhere when it wakes, and nobody is lost.
    case.hurt(Fault::Stop { rank: 3 });
    case.sim.schedule(Duration::from_secs(20), Fault::Continue { rank: 3 });
    let (outcome, _) = case.wave(1, Duration::from_secs(60));
    assert_eq!(outcome.ok, RangeSet::full(64));
    case.sim.run_for(Duration::from_secs(30));
    let (outcome, took) = case.wave(2, Duration::from_secs(60));
    assert_eq!(outcome.ok, RangeSet::full(64));
    assert!(took < Duration::from_millis(100), "{took:?}");
}

#[test]
fn cancelling_returns_what_has_come_so_far() {
    let mut case = Case::new();
    case.hurt(Fault::Stop { rank: case.sim.shape().rank_of_leaf(9) });
    let request = case.nature.request(case.stream, 0);
    case.sim.send(case.stream, 0, &request, Some(Duration::from_secs(600)));
    case.sim.run_for(Duration::from_secs(1));
    let begun = case.sim.now();
    case.sim.with(0, |root, now| root.cancel(now, 1, u64::MAX));
    let outcome = case.result(0);
    assert_eq!(outcome.silent, RangeSet::single(9));
    assert_eq!(outcome.errnos, [(Errno::CANCELED, RangeSet::single(9))]);
    assert!(case.sim.now() - begun < Duration::from_secs(1));
}

#[test]
fn packets_nobody_asked_for_form_waves_too() {
    for_seeds(60, |seed| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let shape = rng.choice(shapes()).unwrap();
        let config = SimConfig { shred: true, ..SimConfig::seeded(seed) };
        let nature =
            Nature { seed, odd: 0, silence: false, long: 50, think: Duration::ZERO, posts: 0 };
        let mut sim = Sim::new(shape.clone(), registry(), Crowd::new(nature), config);
        let stream = sim.open(shape.everyone(), "bag", b"", Sync::WaitForAll);
        sim.run_for(Duration::from_millis(50));
        for (at, fault) in fault::random(&shape, &mut rng, 3, Duration::from_secs(1)) {
            sim.schedule(at - Time(0), fault);
        }
        let mut next = FxHashMap::default();
        for round in 0..20 * shape.leaves() {
            let leaf = rng.u32(0..shape.leaves());
            let wave = next.entry(leaf).or_insert(0);
            if *wave < 8 {
                let answer = nature.answer(leaf, stream, *wave);
                let posted =
                    sim.with(shape.rank_of_leaf(leaf), |node, _| node.post(stream, 0, &answer));
                assert!(posted.is_none_or(|posted| posted == *wave));
                *wave += 1;
            }
            if round % 8 == 0 {
                sim.run_for(Duration::from_millis(rng.u64(0..40)));
            }
        }
        for leaf in 0..shape.leaves() {
            for wave in next.get(&leaf).copied().unwrap_or(0)..8 {
                let answer = nature.answer(leaf, stream, wave);
                sim.with(shape.rank_of_leaf(leaf), |node, _| node.post(stream, 0, &answer));
            }
        }
        // Who is stopped or cut off for ever is given up; who is not has posted eight times.
        sim.run_for(Duration::from_secs(60));
        for wave in 0..8 {
            let Some(result) = sim.take(stream) else {
                // With nobody left there is nobody to begin a wave.
                assert!(!sim.node(0).unwrap().has_members(stream), "every wave ends");
                break;
            };
            assert_eq!((result.wave, result.complete), (wave, true));
            let mut outcome = Outcome::default();
            outcome.take(&nature, stream, &result, false);
            outcome.check(&nature, stream, wave, &shape.everyone(), false);
        }
    });
}

#[test]
fn leaf_missing_a_one_shot_request_is_not_awaited_again() {
    let mut case = Case::new();
    let rank = case.sim.shape().rank_of_leaf(17);
    case.hurt(Fault::Stop { rank });
    let stream = case.stream;
    for wave in 0..2 {
        let begun = case.sim.now();
        let request = case.nature.request(stream, wave);
        let sent = case.sim.with(0, |root, now| {
            let mut outgoing = Outgoing::new(7, &request, Some(Duration::from_secs(2))).once();
            while !root.send_part(now, stream, &mut outgoing) {}
            outgoing.wave().unwrap()
        });
        assert_eq!(sent, Some(wave));
        let result = case.sim.wait(stream).expect("a wave ends");
        let silent = [(Errno::TIMEDOUT, RangeSet::single(17))];
        assert_eq!(
            (result.wave, &result.coverage.silent[..], result.coverage.ok.len()),
            (wave, &silent[..], 63)
        );
        let took = case.sim.now() - begun;
        assert_eq!(took > Duration::from_secs(1), wave == 0, "wave {wave} took {took:?}");
        // What it answers now is nobody's.
        if wave == 0 {
            case.hurt(Fault::Continue { rank });
        }
    }
}

/// A link that fails again and again costs its parent no more than one that failed once.
#[test]
fn places_of_links_that_are_gone_are_taken_again() {
    let mut case = Case::new();
    let rank = case.sim.shape().rank_of_leaf(17);
    let parent = case.sim.shape().parent(rank);
    for wave in 0..200 {
        case.hurt(Fault::Reset { rank });
        let (outcome, _) = case.wave(wave, Duration::from_secs(30));
        assert_eq!(outcome.ok, RangeSet::full(64), "wave {wave}");
        case.sim.run_for(Duration::from_millis(10));
    }
    let links = case.sim.node(parent).unwrap().report(case.sim.now()).links.len();
    assert!(links <= 8 + 1 + 3, "{links} links of 8 children and a parent");
    assert_eq!((case.sim.notices(), case.sim.traffic().violations), (&[][..], 0));
}

/// A leaf that has left a stream is not in it when its inner node dies, nor when it comes back
/// itself.
#[test]
fn leaf_that_left_a_stream_stays_out_under_a_new_parent() {
    for micros in [0, 20, 60, 150, 400, 1000, 300_000] {
        let mut case = Case::new();
        let rank = case.sim.shape().rank_of_leaf(17);
        let inner = case.sim.shape().parent(rank);
        case.sim.schedule(Duration::from_micros(micros), Fault::Kill { rank: inner });
        case.sim.run_for(Duration::from_micros(100));
        let stream = case.stream;
        case.sim.with(rank, |node, _| node.leave_stream(stream));
        case.sim.run_for(Duration::from_secs(1));
        for wave in 0..3 {
            let (outcome, took) = case.wave(wave, Duration::from_secs(30));
            assert_eq!(
                outcome.silent,
                RangeSet::single(17),
                "killed after {micros} µs, wave {wave}"
            );
            assert_eq!(outcome.errnos, [(Errno::CANCELED, RangeSet::single(17))]);
            assert!(took < Duration::from_secs(1), "{took:?}");
            case.hurt(Fault::Reset { rank });
            case.sim.run_for(Duration::from_secs(1));
        }
        assert_eq!(case.sim.traffic().violations, 0);
    }
}
