//! Rounds in which any processes of a tree are killed, stopped and continued while sums, broadcasts
//! and appends are under way, with strangers at the door in some of them. `SHEAF_CHAOS_ROUNDS` says
//! how many, `SHEAF_CHAOS_SEED` which is the first.
use crate::crowd::{Crowd, STRANGERS, door_of};
use crate::recovery::quick;
use crate::tree::{DEADLINE, DIGEST, ECHO, Tree, next, runtime};
use rustix::process::Signal;
use sheaf_core::RangeSet;
use sheaf_group::Group;
use sheaf_testing::sessions::{Process, turn};
use sheaf_tree::launch::Carrier;
use sheaf_tree::status::NodePlace;
use sheaf_tree::{Stream, packet};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Rounds without a word from outside: each shape over each carrier once.
const ROUNDS: u64 = 6;
const SHAPES: [(&str, u32); 3] = [("1x8x8", 64), ("1x2x2x16", 64), ("1x1x1x4", 4)];
/// One round in so many has strangers at the door, if that is a port.
const WITH_STRANGERS: u64 = 5;
const FAULTS_MAX: usize = 5;
const BROADCAST_BYTES: usize = 1 << 20;
/// When the last fault is over, everybody who lives is counted within this.
const SETTLED: Duration = Duration::from_secs(40);

const O_WRONLY_CREAT_APPEND: u32 = 0o2101;

fn carrier(seed: u64) -> Carrier {
    if (seed / SHAPES.len() as u64).is_multiple_of(2) { Carrier::Tls } else { Carrier::Unix }
}

/// What one round is, as its seed says.
struct Round {
    tree: Tree,
    /// The process of each leaf.
    leaves: Vec<Process>,
    rng: fastrand::Rng,
}

impl Round {
    async fn start(seed: u64) -> Self {
        let (shape, leaves) = SHAPES[(seed % SHAPES.len() as u64) as usize];
        let carrier = carrier(seed);
        let tree = Tree::start(shape, leaves, carrier, quick()).await;
        let survey = tree.network.survey(DEADLINE).await;
        let servers = survey.reports.iter().filter(|node| node.place == NodePlace::Leaf);
        let mut leaves: Vec<(u32, Process)> = servers
            .map(|node| (node.rank, Process::of(node.pid).expect("a server runs")))
            .collect();
        assert_eq!(leaves.len() as u64, tree.leaves());
        // Leaves have their numbers in the order of their ranks.
        leaves.sort_unstable_by_key(|(rank, _)| *rank);
        let leaves = leaves.into_iter().map(|(_, process)| process).collect();
        Self { tree, leaves, rng: fastrand::Rng::with_seed(seed) }
    }

    /// The leaves whose processes run.
    fn living(&self) -> RangeSet {
        (0u32..)
            .zip(&self.leaves)
            .filter(|(_, process)| process.runs())
            .map(|(leaf, _)| leaf)
            .collect()
    }

    /// Lets things happen to processes; all that live go on in the end.
    async fn faults(&self, mut rng: fastrand::Rng, over: &Cell<bool>) {
        let mut stopped = Vec::new();
        for _ in 0..rng.usize(1..=FAULTS_MAX) {
            tokio::time::sleep(Duration::from_millis(rng.u64(0..700))).await;
            let everybody = self.tree.everybody();
            if everybody.is_empty() {
                break;
            }
            let victim = everybody[rng.usize(..everybody.len())];
            match rng.u8(0..3) {
                0 => victim.signal(Signal::KILL),
                1 => {
                    victim.signal(Signal::STOP);
                    stopped.push(victim);
                }
                _ => {
                    victim.signal(Signal::STOP);
                    tokio::time::sleep(Duration::from_millis(rng.u64(0..400))).await;
                    victim.signal(Signal::CONT);
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(rng.u64(0..2_500))).await;
        stopped.iter().for_each(|process| process.signal(Signal::CONT));
        over.set(true);
    }

    /// Asks for a sum; who was counted, each once.
    async fn sum(&self, stream: &Stream) -> RangeSet {
        self.count(stream, ECHO, b"", 1).await
    }

    /// Sends a packet to which everybody answers `each`; who was counted, each once.
    async fn count(&self, stream: &Stream, tag: i32, content: &[u8], each: i64) -> RangeSet {
        let sent = tokio::time::timeout(DEADLINE, stream.send(tag, content, Some(DEADLINE))).await;
        sent.expect("there is room");
        let wave = next(stream).await;
        assert!(wave.complete);
        let sum = wave.payload.as_deref().and_then(packet::scalar::<i64>).unwrap_or(0);
        assert_eq!(
            sum,
            each * i64::try_from(wave.coverage.ok.len()).unwrap(),
            "{:?}",
            wave.coverage
        );
        (*wave.coverage.ok).clone()
    }

    /// Sums until all that live are counted.
    async fn settle(&self, stream: &Stream, what: &str) {
        let deadline = Instant::now() + SETTLED;
        loop {
            let counted = self.sum(stream).await;
            let missing = self.living().difference(&counted);
            if missing.is_empty() {
                return;
            }
            let notices = self.tree.network.notices();
            assert!(
                Instant::now() < deadline,
                "{what}: {missing} live and are not counted: {notices:?}"
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Appends a line; whose answers came.
    async fn append(&self, group: &Group, line: &str) -> RangeSet {
        match group.write(line.as_bytes()).await {
            Ok(written) => written.contributors,
            Err(error) => panic!("{error}"),
        }
    }

    /// Each line is in each file once or, where no answer came, at most once; in their order.
    fn check_files(&self, answered: &[RangeSet]) {
        for leaf in 0..self.leaves.len() as u32 {
            let path = self.tree.dir.path().join(format!("n{}/log", leaf + 1));
            let log = std::fs::read_to_string(&path).unwrap();
            let records: Vec<usize> = log
                .lines()
                .map(|line| {
                    line.strip_prefix("record ").and_then(|number| number.parse().ok()).unwrap()
                })
                .collect();
            assert!(records.is_sorted_by(|one, next| one < next), "n{}: {records:?}", leaf + 1);
            for (record, answered) in answered.iter().enumerate() {
                let has = records.binary_search(&record).is_ok();
                assert!(
                    has || !answered.contains(leaf),
                    "n{}: {record} is missing: {records:?}",
                    leaf + 1
                );
            }
        }
    }

    async fn run(&mut self) {
        let content: Vec<u8> = (0..BROADCAST_BYTES).map(|_| self.rng.u8(..)).collect();
        let digest = blake3::hash(&content);
        // As the servers shorten it, so that the sum of all fits.
        let short = i64::from_le_bytes(*digest.as_bytes().first_chunk().unwrap()) & 0xff_ffff_ffff;
        let stream = self.tree.sums();
        let session = self.tree.session(DEADLINE);
        let everyone = self.tree.network.everyone();
        let flags = O_WRONLY_CREAT_APPEND | sheaf_group::flags::O_PARTIAL;
        let group = session.gopenat(&everyone, "/log", flags, 0o644).await.unwrap();
        let over = Cell::new(false);
        let mut answered = Vec::new();
        let work = async {
            while !over.get() {
                self.sum(&stream).await;
                let line = format!("record {}\n", answered.len());
                answered.push(self.append(&group, &line).await);
                self.count(&stream, DIGEST, &content, short).await;
            }
        };
        let mut rng = self.rng.clone();
        tokio::join!(work, self.faults(rng.fork(), &over));
        self.settle(&stream, "a stream from before").await;
        self.settle(&self.tree.sums(), "a new stream").await;
        self.check_files(&answered);
    }
}

fn one(seed: u64) {
    runtime().block_on(async {
        let mut round = Round::start(seed).await;
        let mut crowd = None;
        if seed.is_multiple_of(WITH_STRANGERS) && carrier(seed) == Carrier::Tls {
            crowd = Crowd::gather(door_of(&round.tree), STRANGERS).await;
        }
        round.run().await;
        drop(crowd);
        round.tree.end().await;
    });
}

#[test]
fn live_hosts_are_counted_once_and_append_once_under_faults() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let rounds = number("SHEAF_CHAOS_ROUNDS").unwrap_or(ROUNDS);
    let first = number("SHEAF_CHAOS_SEED").unwrap_or(0);
    let _turn = turn();
    let failed: Vec<u64> = (first..first + rounds)
        .filter(|&seed| {
            let since = Instant::now();
            let fails = catch_unwind(AssertUnwindSafe(|| one(seed))).is_err();
            println!(
                "round {seed}: {} in {:?}",
                if fails { "FAILED" } else { "ok" },
                since.elapsed()
            );
            fails
        })
        .collect();
    assert!(
        failed.is_empty(),
        "{} of {rounds} rounds failed, by their seeds: {failed:?}",
        failed.len()
    );
}
