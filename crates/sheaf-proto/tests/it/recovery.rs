//! Recovery under random faults: nobody is counted twice, nothing hangs, and who lives and has a
//! way to the root is in every wave that is begun once the tree has settled.
use crate::oracle::{Crowd, Nature, Outcome, for_seeds, number, registry};
use rustc_hash::FxHashMap;
use sheaf_core::{Errno, RangeSet};
use sheaf_proto::frame::{CHUNK_BYTES, HEADER_BYTES};
use sheaf_proto::own;
use sheaf_proto::sim::{Fault, IN_VAIN, Shape, Sim, SimConfig, fault};
use sheaf_proto::{LINK_OUT_BYTES, Notice, PacketContent, Sync, Time, Tuning};
use std::time::Duration;

/// After the last fault: heartbeats miss who is silent, orphans find parents, the rest is lost.
const SETTLED: Duration = Duration::from_secs(40);

fn shapes() -> Vec<Shape> {
    let counts = [3, 1, 4, 0, 1, 0, 2, 0, 1, 5, 0, 0, 0, 0, 0, 0, 0, 0];
    vec![
        Shape::balanced(&[4]),
        Shape::balanced(&[4, 4]),
        Shape::balanced(&[2, 2, 2, 2]),
        Shape::balanced(&[1, 3]),
        Shape::balanced(&[8, 2]),
        Shape::balanced(&[8, 8]),
        Shape::balanced(&[16, 2]),
        Shape::from_counts(&counts).unwrap(),
    ]
}

/// Long and thin ones too, where what is said of a leaf goes over many links that may be dead.
fn more_shapes() -> Vec<Shape> {
    let thin = [&[1, 4][..], &[1, 1, 4], &[1, 1, 1, 4], &[2, 1, 3], &[3, 3, 3], &[1, 1, 1, 1, 2]];
    shapes().into_iter().chain(thin.map(Shape::balanced)).collect()
}

/// How much goes wrong.
#[derive(Debug, Clone, Copy)]
struct Storm {
    faults: u32,
    span: Duration,
    shapes: fn() -> Vec<Shape>,
    /// Hosts that have ended are started again, too.
    hosts_again: bool,
}

impl Storm {
    /// Four faults in three seconds; very many take longer.
    fn of(faults: u32) -> Self {
        let span = Duration::from_secs(if faults > 8 { 6 } else { 3 });
        Self { faults, span, shapes, hosts_again: false }
    }

    /// Every other seed meets four faults, the others eight or twelve; or as many as
    /// `SHEAF_SIM_FAULTS` says.
    fn of_seed(seed: u64) -> Self {
        let faults = [4, 8, 4, 12][seed as usize % 4];
        let faults = number("SHEAF_SIM_FAULTS").map_or(faults, |faults| faults as u32);
        Self { shapes: more_shapes, ..Self::of(faults) }
    }
}

/// When the root's process ends, all of the session end within this.
const ROOT_LOSS_MAX: Duration = Duration::from_secs(10);

/// The longest answer of one leaf ([`Nature::answer`]).
const LONGEST_ANSWER_BYTES: u64 = 0x4000 * 12;

/// Leaves that fail themselves, or whose own links do; with them the own leaves of nodes that do.
fn struck(shape: &Shape, faults: &[(Time, Fault)]) -> RangeSet {
    let ranks = faults.iter().filter_map(|(_, fault)| match *fault {
        Fault::Kill { rank } | Fault::PowerOff { rank } | Fault::Stop { rank } => Some(rank),
        Fault::Cut { rank } | Fault::Isolate { rank } => Some(rank),
        _ => None,
    });
    ranks.map(|rank| shape.leaf(rank).unwrap_or(own::leaf_of(rank))).collect()
}

/// Leaves that the root was told to be lost, however soon they came back.
fn lost(sim: &Sim<Crowd>) -> RangeSet {
    let mut all = RangeSet::new();
    for notice in sim.notices() {
        if let Notice::Lost { leaves, .. } = notice {
            all.union_with(leaves);
        }
    }
    all
}

/// A stream of the test, and what is known of its waves.
struct Stream {
    id: u32,
    waves: FxHashMap<u64, Outcome>,
}

/// The tree of a seed, with the streams that its waves go over.
struct Trial {
    sim: Sim<Crowd>,
    nature: Nature,
    /// Who is asked.
    audience: RangeSet,
    streams: Vec<Stream>,
    /// On which nobody asks and every leaf posts.
    posts: Stream,
    window: u64,
    /// Leaves that were struck themselves.
    struck: RangeSet,
    rng: fastrand::Rng,
}

impl Trial {
    fn new(seed: u64, shapes: Vec<Shape>) -> Self {
        Self::of(seed, shapes, Shape::everyone)
    }

    fn of(seed: u64, shapes: Vec<Shape>, audience: fn(&Shape) -> RangeSet) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed ^ 0x5eed);
        let shape = rng.choice(shapes).unwrap();
        let long = if rng.u8(0..4) == 0 { 60 } else { 0 };
        let think = Duration::from_micros(rng.u64(0..300));
        let nature = Nature { seed, odd: 0, silence: false, long, think, posts: 4 };
        let tuning = Tuning { window_bytes: 1 << rng.u32(12..21), ..Tuning::default() };
        let config =
            SimConfig { shred: rng.bool(), tuning, watch_queues: true, ..SimConfig::seeded(seed) };
        let audience = audience(&shape);
        let mut crowd = Crowd::new(nature);
        crowd.from_start = true;
        let mut sim = Sim::new(shape, registry(), crowd, config);
        let late = Duration::from_millis(rng.u64(1..200));
        let mut open = |sync| Stream {
            id: sim.open(audience.clone(), "bag", b"", sync),
            waves: FxHashMap::default(),
        };
        let streams = [Sync::WaitForAll, Sync::DontWait, Sync::TimeOut(late)]
            .into_iter()
            .map(&mut open)
            .collect();
        let posts = open(Sync::WaitForAll);
        assert_eq!(posts.id, nature.posts);
        Self {
            sim,
            nature,
            audience,
            streams,
            posts,
            window: u64::from(tuning.window_bytes),
            struck: RangeSet::new(),
            rng,
        }
    }

    /// Takes what has come; whether every wave that was asked for is over.
    fn take(&mut self) -> bool {
        let mut over = true;
        for stream in &mut self.streams {
            while let Some(result) = self.sim.take(stream.id) {
                let outcome = stream.waves.get_mut(&result.wave).expect("a wave that was started");
                outcome.take(&self.nature, stream.id, &result, false);
            }
            over &= stream.waves.values().all(|outcome| outcome.complete);
        }
        while let Some(result) = self.sim.take(self.posts.id) {
            let outcome = self.posts.waves.entry(result.wave).or_default();
            outcome.take(&self.nature, self.posts.id, &result, false);
            assert!(outcome.complete, "a wave of a stream that waits for all comes once");
        }
        over
    }

    /// Lets `span` pass while the application reads; whether every wave is over then.
    fn run(&mut self, span: Duration) -> bool {
        let end = self.sim.now() + span;
        while self.sim.now() < end {
            self.sim.run_for(Duration::from_millis(20));
            self.take();
        }
        self.take()
    }

    /// Begins a wave, unless the application would have to wait for room.
    fn send(&mut self, at: usize, expect: Duration) {
        let stream = &mut self.streams[at];
        if !self.sim.with(0, |root, _| root.has_room(stream.id)).unwrap_or(false) {
            return;
        }
        let wave = stream.waves.len() as u64;
        let request = self.nature.request(stream.id, wave);
        // Half of them are copied into frames, the others go out from where they lie.
        let is_shared = self.nature.seed.is_multiple_of(2);
        let request: PacketContent<'_> =
            if is_shared { request.into() } else { PacketContent::Lent(&request) };
        assert_eq!(self.sim.send(stream.id, 7, request, Some(expect)), wave);
        stream.waves.insert(wave, Outcome::default());
    }

    /// Random faults for a while, with waves meanwhile.
    fn suffer(&mut self, storm: Storm) {
        let mut faults = fault::random(self.sim.shape(), &mut self.rng, storm.faults, storm.span);
        self.struck = struck(self.sim.shape(), &faults);
        if storm.hosts_again {
            self.start_hosts_again(&mut faults);
        }
        for (at, fault) in faults {
            self.sim.schedule(at - Time(0), fault);
        }
        for _ in 0..12 {
            let at = self.rng.usize(0..self.streams.len());
            let expect = Duration::from_millis(self.rng.u64(50..20_000));
            self.send(at, expect);
            self.sim.run_for(Duration::from_millis(self.rng.u64(0..400)));
            self.take();
        }
    }

    /// Most hosts that are struck down are started again, soon or late.
    fn start_hosts_again(&mut self, faults: &mut Vec<(Time, Fault)>) {
        let shape = self.sim.shape();
        let mut again = Vec::new();
        for (at, fault) in faults.iter() {
            let (Fault::Kill { rank } | Fault::PowerOff { rank }) = *fault else { continue };
            let later = *at + Duration::from_millis(self.rng.u64(1..9_000));
            if shape.leaf(rank).is_some() && self.rng.u8(0..4) > 0 {
                if self.rng.bool() {
                    let first = *at + (later - *at) / 2;
                    again.push((first, Fault::RestartInVain { rank }));
                }
                again.push((later, Fault::Restart { rank }));
            }
        }
        faults.append(&mut again);
    }

    /// What any node may hold at most: on each link what is ready to be written; of each stream a
    /// window for the log and two for what the root may want again; for each child a window of what
    /// waits; and the packets under way, which may be longer than any window.
    fn queued_bytes_bound(&self) -> u64 {
        let shape = self.sim.shape();
        let children =
            (0..shape.nodes()).map(|rank| shape.children(rank).len() as u64).max().unwrap_or(0);
        // A child may come again after a failure, while what came before it is still here.
        let links = 2 * children + 2;
        let frame = (CHUNK_BYTES + HEADER_BYTES) as u64;
        let longest =
            if self.nature.long > 0 { self.audience.len() * LONGEST_ANSWER_BYTES } else { frame };
        let streams = self.streams.len() as u64 + 1;
        links * (LINK_OUT_BYTES as u64 + frame)
            + streams * ((3 + links) * self.window + (1 + links) * longest)
    }

    fn check(&self) {
        for stream in self.streams.iter().chain([&self.posts]) {
            for (&wave, outcome) in &stream.waves {
                outcome.check(&self.nature, stream.id, wave, &self.audience, false);
            }
        }
        // Waves of posts come in order, and none is left out.
        let end = self.posts.waves.keys().max().map_or(0, |last| last + 1);
        let left_out: Vec<u64> =
            (0..end).filter(|wave| !self.posts.waves.contains_key(wave)).collect();
        assert!(left_out.is_empty(), "of waves 0..{end} of posts nobody heard of {left_out:?}");
        assert_eq!(self.sim.traffic().violations, 0, "a node accuses another, and all are honest");
        // Who begins a stream later than all others was lost, as far as the root knows.
        let late = self.sim.leaves().late.difference(&lost(&self.sim));
        assert!(late.is_empty(), "{late} missed requests, and were never lost");
        let (peak, bound) = (self.sim.queued_bytes_peak(), self.queued_bytes_bound());
        assert!(peak <= bound, "a node held {peak} bytes, more than {bound}");
    }

    fn running(&self) -> Vec<u32> {
        (1..self.sim.shape().nodes()).filter(|&rank| self.sim.is_running(rank)).collect()
    }
}

fn survive(seed: u64, storm: Storm) {
    survive_all(Trial::new(seed, (storm.shapes)()), storm);
}

fn survive_all(mut trial: Trial, storm: Storm) {
    trial.suffer(storm);
    assert!(trial.run(SETTLED), "a wave does not end");
    let before = trial.sim.reachable();
    (0..trial.streams.len()).for_each(|at| trial.send(at, Duration::from_secs(30)));
    let over = trial.run(Duration::from_secs(35));
    assert!(over, "a wave does not end although nothing fails any more");
    let after = trial.sim.reachable();
    trial.check();
    for stream in &trial.streams {
        let last = &stream.waves[&(stream.waves.len() as u64 - 1)];
        // Whoever has not failed can reach the root, if only directly.
        let mut sound = trial.audience.difference(&trial.struck);
        sound.union_with(&before.intersection(&after).intersection(&trial.audience));
        let missed = sound.difference(&last.ok);
        assert!(
            missed.is_empty(),
            "stream {}: {missed} live and are not in the last wave: {last:?} {:?}",
            stream.id,
            trial.sim.notices()
        );
    }
    trial.sim.with(0, |root, _| root.shut_down_children());
    trial.sim.run_for(Duration::from_secs(30));
    assert_eq!(trial.running(), [], "nodes outlive their session");
}

#[test]
fn live_leaves_are_counted_once_and_nothing_hangs() {
    for_seeds(5000, |seed| survive(seed, Storm::of_seed(seed)));
}

/// Inner nodes are asked too, or alone.
fn survive_with_inner_nodes(seed: u64) {
    let storm = Storm::of_seed(seed);
    let inner = |shape: &Shape| shape.own_leaves();
    let all = |shape: &Shape| shape.all_leaves_below(0);
    let audience = if seed.is_multiple_of(3) { inner } else { all };
    survive_all(Trial::of(seed, (storm.shapes)(), audience), storm);
}

/// Nodes that are no leaves take part too: each by a leaf of its own, which lives and dies with it.
#[test]
fn inner_nodes_are_counted_once_like_everybody() {
    for_seeds(1000, survive_with_inner_nodes);
}

/// Hosts that were started again hear nothing that was asked before, whatever became of the nodes
/// above them meanwhile.
#[test]
fn hosts_that_are_started_again_hear_nothing_again() {
    for_seeds(1000, |seed| {
        let storm = Storm { hosts_again: true, ..Storm::of_seed(seed) };
        survive(seed, storm);
    });
}

/// A node that is started again and adopts children that it had before hears from above what the
/// root has of them: else they would keep it for ever, and send nothing more (that is what this
/// seed found).
#[test]
fn restarted_node_passes_root_progress_to_adopted_children() {
    survive(3264, Storm::of(4));
}

/// Seeds that failed, and what they found is told where it was mended.
#[test]
fn recovery_seeds_that_once_failed_pass() {
    for seed in [10000816, 10005793, 10022731, 10025454, 10028650, 10047630] {
        survive(seed, Storm::of(4));
    }
    for seed in [50000751, 60006037, 60008723, 60011563, 60025635, 60029555, 60036331] {
        survive(seed, Storm::of_seed(seed));
    }
    for seed in [90015243, 90019501, 90023603, 90029474, 90036347] {
        survive(seed, Storm::of_seed(seed));
    }
    for seed in [90006107, 90006847, 90007783, 90008249] {
        survive_with_inner_nodes(seed);
    }
    survive(10019272, Storm::of(4));
    survive(20001850, Storm::of(8));
    survive(20004113, Storm::of(12));
    survive(20004589, Storm::of(12));
}

/// The root is struck at any time, between other faults: everybody ends.
fn outlive_the_root(seed: u64) {
    let mut trial = Trial::new(seed, shapes());
    let rank = 0;
    let fault = match trial.rng.u8(0..4) {
        0 => Fault::Kill { rank },
        1 => Fault::PowerOff { rank },
        2 => Fault::Stop { rank },
        _ => Fault::Isolate { rank },
    };
    let fell_silent = !matches!(fault, Fault::Kill { .. });
    let faults = fault::random(trial.sim.shape(), &mut trial.rng, 3, Duration::from_secs(3));
    // Nothing else happens in every other trial, and then the bound is known.
    let alone = trial.rng.bool();
    let at = Duration::from_millis(trial.rng.u64(100..3_000));
    for (at, fault) in faults.into_iter().filter(|_| !alone) {
        trial.sim.schedule(at - Time(0), fault);
    }
    trial.sim.schedule(at, fault);
    for at in 0..trial.streams.len() {
        trial.send(at, Duration::from_secs(20));
    }
    trial.sim.run_for(at);
    trial.sim.run_for(match (alone, fell_silent) {
        (true, false) => ROOT_LOSS_MAX,
        // Silence is noticed by heartbeats.
        (true, true) => ROOT_LOSS_MAX + Tuning::default().heartbeat_timeout,
        // Until the last fault is over, and after it as long as for a root that fell silent.
        (false, _) => Duration::from_secs(15 + 30),
    });
    assert_eq!(trial.running(), [], "nodes outlive their root");
    assert_eq!(trial.sim.traffic().violations, 0, "a node accuses another, and all are honest");
}

#[test]
fn everybody_ends_when_the_root_is_lost() {
    for_seeds(500, outlive_the_root);
}

/// A node that cannot reach the root any more lets its children go, and ends alone; so do those
/// below that cannot either. Each leaf of them that has a way to the root is in the next wave.
fn scatter(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let shapes = [&[4, 4][..], &[3, 3, 3], &[2, 2, 2, 2], &[2, 3, 2], &[8, 8]];
    let shape = Shape::balanced(rng.choice(shapes).unwrap());
    let nature = Nature { seed, odd: 0, silence: false, long: 0, think: Duration::ZERO, posts: 0 };
    let config = SimConfig { shred: rng.bool(), ..SimConfig::seeded(seed) };
    let mut sim = Sim::new(shape.clone(), registry(), Crowd::new(nature), config);
    let stream = sim.open(shape.everyone(), "bag", b"", Sync::WaitForAll);
    let inner: Vec<u32> = (1..shape.nodes()).filter(|&rank| shape.leaf(rank).is_none()).collect();
    for _ in 0..rng.u32(1..4) {
        let rank = *rng.choice(&inner).unwrap();
        sim.schedule(Duration::from_millis(rng.u64(0..3_000)), Fault::Cut { rank });
    }
    for wave in 0..2 {
        sim.send(stream, 7, nature.request(stream, wave), Some(Duration::from_secs(20)));
        let result = sim.wait(stream).expect("a wave ends");
        let mut outcome = Outcome::default();
        outcome.take(&nature, stream, &result, false);
        outcome.check(&nature, stream, wave, &shape.everyone(), false);
        assert!(wave == 0 || outcome.ok == shape.everyone(), "{outcome:?} {:?}", sim.notices());
        sim.run_for(SETTLED);
    }
    assert_eq!(sim.traffic().violations, 0, "a node accuses another, and all are honest");
    sim.with(0, |root, _| root.shut_down_children());
    sim.run_for(Duration::from_secs(1));
    assert!((1..shape.nodes()).all(|rank| !sim.is_running(rank)), "nodes outlive their session");
}

#[test]
fn leaves_rejoin_the_root_when_their_ancestors_are_cut_off() {
    for_seeds(300, scatter);
}

#[test]
fn leaves_that_find_no_way_have_a_reason_of_their_own() {
    let shape = Shape::balanced(&[2, 2]);
    let nature =
        Nature { seed: 1, odd: 0, silence: false, long: 0, think: Duration::ZERO, posts: 0 };
    let mut sim = Sim::new(shape.clone(), registry(), Crowd::new(nature), SimConfig::seeded(1));
    let dead = 1;
    for rank in shape.children(dead) {
        sim.schedule(Duration::ZERO, Fault::Stop { rank });
    }
    sim.schedule(Duration::ZERO, Fault::Kill { rank: dead });
    sim.run_for(SETTLED);
    let causes: Vec<&str> = sim
        .notices()
        .iter()
        .filter_map(|notice| match notice {
            Notice::Lost { rank, cause, .. } if *rank == dead => Some(&cause[..]),
            _ => None,
        })
        .collect();
    assert_eq!(causes.len(), 1, "{:?}", sim.notices());
    assert!(causes[0].starts_with("a node above it was lost ("), "{causes:?}");
    assert!(causes[0].ends_with("), and it reached no other within 3 s"), "{causes:?}");
}

/// Commands that come one after another, each with a stream of its own: between them nodes that
/// were started again are given their children back.
struct Commands {
    sim: Sim<Crowd>,
    nature: Nature,
}

impl Commands {
    /// One wave over a stream of its own; who answered.
    fn run(&mut self, expect: Duration) -> RangeSet {
        let everyone = self.sim.shape().everyone();
        let stream = self.sim.open(everyone.clone(), "bag", b"", Sync::WaitForAll);
        let request = self.nature.request(stream, 0);
        self.sim.send(stream, 7, &request, Some(expect));
        let result = self.sim.wait(stream).expect("a wave ends");
        let mut outcome = Outcome::default();
        outcome.take(&self.nature, stream, &result, false);
        outcome.check(&self.nature, stream, 0, &everyone, false);
        self.sim.with(0, |root, _| root.close(stream));
        outcome.ok
    }

    /// Whether everybody whose planned parent runs is below it.
    fn all_are_in_place(&self) -> bool {
        let sim = &self.sim;
        (1..sim.shape().nodes()).all(|rank| {
            let parent = sim.shape().parent(rank);
            !sim.is_running(rank) || !sim.is_running(parent) || sim.parent_of(rank) == Some(parent)
        })
    }
}

/// Inner nodes are lost and started again while commands run.
fn come_back(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0xbac);
    let mut shapes = more_shapes();
    shapes.retain(|shape| shape.nodes() > shape.leaves() + 1);
    let shape = rng.choice(shapes).unwrap();
    let long = if rng.u8(0..4) == 0 { 60 } else { 0 };
    let think = Duration::from_micros(rng.u64(0..300));
    let nature = Nature { seed, odd: 0, silence: false, long, think, posts: 0 };
    let config = SimConfig { shred: rng.bool(), ..SimConfig::seeded(seed) };
    let inner: Vec<u32> = (1..shape.nodes()).filter(|&rank| shape.leaf(rank).is_none()).collect();
    let sim = Sim::new(shape.clone(), registry(), Crowd::new(nature), config);
    let mut commands = Commands { sim, nature };
    let span = Duration::from_secs(10);
    for _ in 0..rng.u32(1..4) {
        let rank = *rng.choice(&inner).unwrap();
        let at = Duration::from_millis(rng.u64(0..8_000));
        let fault = if rng.bool() { Fault::Kill { rank } } else { Fault::PowerOff { rank } };
        commands.sim.schedule(at, fault);
        let again = Duration::from_millis(rng.u64(1..9_000));
        if rng.bool() {
            commands.sim.schedule(at + again / 2, Fault::RestartInVain { rank });
        }
        commands.sim.schedule(at + again, Fault::Restart { rank });
    }
    // Every other time nothing else goes wrong.
    let calm = rng.bool();
    let count = number("SHEAF_SIM_FAULTS").map_or(3, |faults| faults as u32);
    let others = fault::random(&shape, &mut rng, if calm { 0 } else { count }, span);
    let sound = shape.everyone().difference(&struck(&shape, &others));
    for (at, fault) in others {
        commands.sim.schedule(at - Time(0), fault);
    }
    while commands.sim.now() < Time(0) + span * 2 {
        commands.run(Duration::from_millis(rng.u64(50..3_000)));
        commands.sim.run_for(Duration::from_millis(rng.u64(0..3_000)));
    }
    commands.sim.run_for(SETTLED);
    let answered = commands.run(Duration::from_secs(30));
    let missed = sound.difference(&answered);
    assert!(
        missed.is_empty(),
        "{missed} have not failed and do not answer: {:?}",
        commands.sim.notices()
    );
    assert!(!calm || commands.all_are_in_place(), "a node keeps children of another");
    assert_eq!(commands.sim.traffic().violations, 0, "a node accuses another, and all are honest");
    commands.sim.with(0, |root, _| root.shut_down_children());
    commands.sim.run_for(Duration::from_secs(30));
    assert!(
        (1..shape.nodes()).all(|rank| !commands.sim.is_running(rank)),
        "nodes outlive their session"
    );
}

#[test]
fn node_that_comes_back_is_given_its_children() {
    for_seeds(500, come_back);
}

/// A host is killed, and whatever is started there again cannot serve: nobody hears that it came,
/// and everybody that it is gone, once, and why.
fn in_vain(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x7a1);
    let shape = rng.choice(more_shapes()).unwrap();
    let leaf = rng.u32(0..shape.leaves());
    let rank = (1..shape.nodes()).find(|&rank| shape.leaf(rank) == Some(leaf)).unwrap();
    let nature = Nature { seed, odd: 0, silence: false, long: 0, think: Duration::ZERO, posts: 0 };
    let config = SimConfig { shred: rng.bool(), ..SimConfig::seeded(seed) };
    let sim = Sim::new(shape.clone(), registry(), Crowd::new(nature), config);
    let mut commands = Commands { sim, nature };
    commands.sim.schedule(Duration::from_secs(1), Fault::Kill { rank });
    let mut at = Duration::from_millis(rng.u64(1_001..1_500));
    for _ in 0..rng.u32(1..6) {
        commands.sim.schedule(at, Fault::RestartInVain { rank });
        at += Duration::from_millis(rng.u64(1..9_000));
    }
    while commands.sim.now() < Time(0) + at + SETTLED {
        commands.run(Duration::from_secs(30));
        commands.sim.run_for(Duration::from_millis(rng.u64(1..5_000)));
    }
    let answered = commands.run(Duration::from_secs(30));
    assert_eq!(answered, shape.everyone().difference(&RangeSet::single(leaf)));
    let of_leaf = commands.sim.notices().iter().filter(|notice| match notice {
        Notice::Lost { leaves, .. } | Notice::Joined { leaves, .. } => leaves.contains(leaf),
        _ => false,
    });
    let of_leaf: Vec<&Notice> = of_leaf.collect();
    let [Notice::Lost { errno: Errno::NOENT, cause, .. }] = of_leaf[..] else {
        panic!("{of_leaf:?}")
    };
    assert_eq!(cause, IN_VAIN);
    assert_eq!(commands.sim.traffic().violations, 0, "a node accuses another, and all are honest");
}

#[test]
fn host_that_is_started_again_in_vain_is_gone_once_and_says_why() {
    for_seeds(200, in_vain);
}
