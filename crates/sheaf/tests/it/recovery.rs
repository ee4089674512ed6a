//! Real processes are killed and stopped: no leaf is lost with its inner node, and none is counted
//! twice.
use crate::tree::{DEADLINE, DIGEST, Tree, ask, next, next_sum, runtime};
use rustix::process::Signal;
use sheaf_testing::sessions::{Process, Up, of_home, turn, wait_until};
use sheaf_tree::launch::Carrier;
use sheaf_tree::{Tuning, packet};
use std::time::{Duration, Instant};

const ROUNDS: usize = 100;
/// Inner nodes of the tree of these tests.
const INNER: usize = 8;
const LEAVES: u32 = 64;
/// A session whose root is gone leaves nothing behind after this.
const END_MAX: Duration = Duration::from_secs(10);

pub fn quick() -> Tuning {
    Tuning {
        heartbeat_interval: Duration::from_millis(100),
        heartbeat_timeout: Duration::from_millis(800),
        adoption_grace: Duration::from_secs(1),
        ..Tuning::default()
    }
}

/// Says how long recovery took, for whoever reads the log.
fn report(what: &str, mut took: Vec<Duration>) {
    took.sort();
    let at = |share: usize| took[(took.len() - 1) * share / 100].as_secs_f64() * 1e3;
    println!(
        "{what}: {} rounds, ms: median {:.1}, p90 {:.1}, most {:.1}",
        took.len(),
        at(50),
        at(90),
        at(100)
    );
}

/// Kills `victim` while sums are under way; how long it took until everybody was counted again.
pub async fn kill_during_sums(
    tree: &Tree,
    stream: &sheaf_tree::Stream,
    victim: Process,
) -> Duration {
    const UNDER_WAY: usize = 4;
    const LATER: usize = 3;
    for _ in 0..UNDER_WAY {
        ask(stream).await;
    }
    victim.signal(Signal::KILL);
    let since = Instant::now();
    for _ in 0..UNDER_WAY {
        next_sum(stream).await;
    }
    ask(stream).await;
    let first = next_sum(stream).await;
    let took = since.elapsed();
    assert_eq!(first, tree.leaves(), "{:?}", tree.network.notices());
    for _ in 0..LATER {
        ask(stream).await;
        assert_eq!(next_sum(stream).await, tree.leaves(), "{:?}", tree.network.notices());
    }
    took
}

#[test]
fn every_leaf_is_counted_once_when_inner_nodes_are_killed() {
    let _turn = turn();
    runtime().block_on(async {
        let mut took = Vec::new();
        while took.len() < ROUNDS {
            let tree = Tree::start("1x8x8", LEAVES, Carrier::Unix, Tuning::default()).await;
            let stream = tree.sums();
            for victim in tree.inner().into_iter().take(ROUNDS - took.len()) {
                took.push(kill_during_sums(&tree, &stream, victim).await);
            }
            tree.end().await;
        }
        report("sums, unix", took);
    });
}

#[test]
fn every_leaf_is_counted_once_over_tls() {
    let _turn = turn();
    runtime().block_on(async {
        let tree = Tree::start("1x8x8", LEAVES, Carrier::Tls, Tuning::default()).await;
        let stream = tree.sums();
        let mut took = Vec::new();
        let inner = tree.inner();
        assert_eq!(inner.len(), INNER);
        for victim in inner {
            took.push(kill_during_sums(&tree, &stream, victim).await);
        }
        tree.end().await;
        report("sums, tls", took);
    });
}

#[test]
fn broadcast_reaches_every_leaf_while_inner_nodes_are_killed() {
    const BYTES: usize = 64 << 20;
    const KILLS: usize = 2;
    let _turn = turn();
    let content: Vec<u8> =
        (0..BYTES as u32).map(|at| (at / 7).to_le_bytes()[0] ^ at as u8).collect();
    let digest = blake3::hash(&content);
    // As the servers shorten it, so that the sum of all fits.
    let short = i64::from_le_bytes(*digest.as_bytes().first_chunk().unwrap()) & 0xff_ffff_ffff;
    runtime().block_on(async {
        for carrier in [Carrier::Unix, Carrier::Tls] {
            let tree = Tree::start("1x8x8", LEAVES, carrier, Tuning::default()).await;
            let stream = tree.sums();
            let send = stream.send(DIGEST, &content, Some(2 * DEADLINE));
            let kill = async {
                for (at, victim) in tree.inner().into_iter().take(KILLS).enumerate() {
                    // Half of it, then nearly all of it, has left the root.
                    let enough = (BYTES * INNER * (2 + at) / 4) as u64;
                    while tree.network.counters().bytes_out < enough {
                        tokio::task::yield_now().await;
                    }
                    victim.signal(Signal::KILL);
                }
            };
            let both = async { tokio::join!(send, kill) };
            tokio::time::timeout(2 * DEADLINE, both).await.expect("it is sent");
            let wave = next(&stream).await;
            assert!(wave.coverage.is_full(), "{:?}", wave.coverage);
            let sum = wave.payload.as_deref().and_then(packet::scalar::<i64>);
            assert_eq!(sum, Some(short * i64::from(LEAVES)));
            tree.end().await;
        }
    });
}

/// Kills or stops anybody at any moment of a stream of sums.
async fn any_fault(tree: &Tree, stream: &sheaf_tree::Stream, random: &mut fastrand::Rng) {
    const WAVES: usize = 6;
    let everybody = tree.everybody();
    let victim = everybody[random.usize(..everybody.len())];
    let signal = if random.bool() { Signal::KILL } else { Signal::STOP };
    let moment = random.usize(..WAVES);
    for wave in 0..WAVES {
        ask(stream).await;
        if wave == moment {
            victim.signal(signal);
        }
        if random.bool() {
            // More than one may be under way.
            ask(stream).await;
            next_sum(stream).await;
        }
        next_sum(stream).await;
    }
    victim.signal(Signal::CONT);
}

#[test]
fn any_node_may_be_killed_or_stopped_at_any_moment() {
    /// Faults that one tree sees, and trees at one time.
    const FAULTS: usize = 10;
    const TREES: usize = 5;
    let _turn = turn();
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let trees = |first: usize| {
        let mut random = fastrand::Rng::with_seed(seed.wrapping_add(first as u64));
        runtime().block_on(async {
            for tree in (first..ROUNDS / FAULTS).step_by(TREES) {
                let carrier = if tree % 2 == 0 { Carrier::Unix } else { Carrier::Tls };
                let tree = Tree::start("1x4x4", 16, carrier, quick()).await;
                let stream = tree.sums();
                for _ in 0..FAULTS {
                    any_fault(&tree, &stream, &mut random).await;
                }
                tree.end().await;
            }
        });
    };
    std::thread::scope(|scope| {
        (0..TREES).for_each(|first| drop(scope.spawn(move || trees(first))));
    });
}

#[test]
fn every_record_is_appended_once_while_inner_nodes_are_killed() {
    const O_APPEND: u32 = 0o2000;
    const O_WRONLY_CREAT: u32 = 0o101;
    const RECORDS: usize = 64;
    let _turn = turn();
    runtime().block_on(async {
        let tree = Tree::start("1x8x8", LEAVES, Carrier::Unix, Tuning::default()).await;
        let session = tree.session(DEADLINE);
        let everyone = tree.network.everyone();
        let group =
            session.gopenat(&everyone, "/log", O_APPEND | O_WRONLY_CREAT, 0o644).await.unwrap();
        assert_eq!(group.size(), u64::from(LEAVES));
        let (mut expected, mut victims) = (String::new(), tree.inner());
        for record in 0..RECORDS {
            let line = format!("record {record}\n");
            expected.push_str(&line);
            let kill = async {
                if record % (RECORDS / INNER) == 3 {
                    // Once the write is under way.
                    tokio::task::yield_now().await;
                    victims.pop().unwrap().signal(Signal::KILL);
                }
            };
            let (written, ()) = tokio::join!(group.write(line.as_bytes()), kill);
            let written = written.unwrap();
            assert_eq!(
                written.outcome.status.count,
                u64::from(LEAVES),
                "record {record}: {written:?}"
            );
        }
        for leaf in 1..=LEAVES {
            let log =
                std::fs::read_to_string(tree.dir.path().join(format!("n{leaf}/log"))).unwrap();
            assert_eq!(log, expected, "n{leaf}");
        }
        drop(group);
        tree.end().await;
    });
}

#[test]
fn root_that_is_killed_takes_adopted_servers_with_it() {
    let _turn = turn();
    for link in ["unix", "tls"] {
        let up = Up::new(&["--processes", "16", "--tree", "1x4x4", "--link", link]);
        let inner: Vec<Process> = up
            .nodes
            .iter()
            .copied()
            .filter(|node| !up.servers.values().any(|server| server == node))
            .collect();
        assert_eq!(inner.len(), 4);
        inner[0].signal(Signal::KILL);
        inner[2].signal(Signal::KILL);
        let run = up.run(&["cat", "/proc/version"]);
        assert_eq!(run.code, Some(0), "{run:?}");
        up.session.signal(Signal::KILL);
        let killed = Instant::now();
        // Its socket and its lock are left: nobody was there to remove them.
        wait_until("every process has ended", || of_home(&up.home).is_empty());
        assert!(killed.elapsed() < END_MAX, "{link}: {:?}", killed.elapsed());
    }
}
