//! A service with state at inner nodes, under fire: processes of a tree are killed, or asked to go,
//! while a running sum is kept at each node. `SHEAF_TAP_KILLS` says how many.
//!
//! The servers of this tree are this test binary, run for the test [`server_of_this_test`]: the
//! service is no part of the program `sheaf`.
use crate::recovery::quick;
use crate::tree::{DEADLINE, Tree, next, runtime};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use sheaf_core::RangeSet;
use sheaf_testing::home::Home;
use sheaf_testing::sessions::{Process, Running, turn, wait_until};
use sheaf_tree::filter::builtin::null;
use sheaf_tree::filter::{FilterError, Registry};
use sheaf_tree::launch::{self, Carrier, Program, attach};
use sheaf_tree::packet::{self, PacketValue};
use sheaf_tree::proto::own;
use sheaf_tree::service::{
    Audience, Leaf, LeafHandle, Passing, Provider, Service, ServiceError, Services, Site, Tap,
};
use sheaf_tree::{Notice, Packet, Stream, Sync, Tuning};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Kills without a word from outside.
const KILLS: usize = 12;
const GRACE: Duration = Duration::from_secs(1);
/// Where a server of this test joins, in its environment.
const JOIN: &str = "SHEAF_TEST_JOIN";
/// At the host n2 it never comes back.
const STUCK: &str = "stuck";
const SUM: &str = "sum";
const TELL: &str = "tell";
const POLL: Duration = Duration::from_millis(10);
/// What tells a server's process from a run of the tests.
const SERVER: &str = "as-a-server";
const SHAPES: [(&str, u32, Carrier); 3] =
    [("1x4x4", 16, Carrier::Unix), ("1x2x2x4", 16, Carrier::Tls), ("1x3x2x2", 12, Carrier::Unix)];

/// Who was counted at one node, in which wave; nobody twice.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
struct Record {
    rank: u32,
    sum: u64,
    counted: BTreeMap<u64, RangeSet>,
    /// What nodes have handed over that went.
    given: Vec<Record>,
}

type Kept = Arc<Mutex<Record>>;

/// Everybody's answer is another one, so that a sum says whose it is.
fn worth(leaf: u32) -> u64 {
    1 << leaf
}

fn worth_of(leaves: &RangeSet) -> u64 {
    leaves.iter().map(worth).sum()
}

fn number(payload: Option<&[u8]>) -> u64 {
    match payload.map(|payload| packet::unpack(payload).expect("a sum")).as_deref() {
        None | Some([]) => 0,
        Some([PacketValue::U64(value)]) => *value,
        other => panic!("{other:?}"),
    }
}

struct Counts(Kept);

impl Tap for Counts {
    fn passing(&mut self, passing: &Passing<'_>) {
        let mut record = self.0.lock().unwrap();
        let counted = record.counted.entry(passing.wave).or_default();
        assert!(counted.is_disjoint(passing.ok), "wave {}: {} twice", passing.wave, passing.ok);
        counted.union_with(passing.ok);
        let sum = number(passing.payload);
        assert_eq!(sum, worth_of(passing.ok), "it is theirs");
        record.sum += sum;
    }

    fn bytes(&self) -> usize {
        self.0.lock().unwrap().counted.len()
    }

    fn state(&mut self) -> Option<Vec<u8>> {
        Some(postcard::to_stdvec(&*self.0.lock().unwrap()).unwrap())
    }

    fn absorb(&mut self, from: u32, state: &[u8]) -> Result<(), FilterError> {
        let given: Record = postcard::from_bytes(state).expect("a state of this test");
        assert_eq!(given.rank, from);
        self.0.lock().unwrap().given.push(given);
        Ok(())
    }
}

/// At leaves: answers with what they are worth. At each node above, a tap.
struct Summing(Kept);

impl Provider for Summing {
    fn tap(&self, site: &Site<'_>) -> Option<Box<dyn Tap>> {
        self.0.lock().unwrap().rank = site.rank;
        Some(Box::new(Counts(Arc::clone(&self.0))))
    }

    fn start(&self, site: &Site<'_>, _: LeafHandle) -> Result<Box<dyn Service>, ServiceError> {
        let answer = packet::pack(&[PacketValue::U64(worth(site.leaf.unwrap()))]).unwrap();
        Ok(Box::new(Says(Box::new(move || answer.clone()))))
    }
}

/// At inner nodes: tells what the tap there has kept.
struct Telling(Kept);

impl Provider for Telling {
    fn audience(&self) -> Audience {
        Audience::Inner
    }

    fn start(&self, _: &Site<'_>, _: LeafHandle) -> Result<Box<dyn Service>, ServiceError> {
        let kept = Arc::clone(&self.0);
        let tell = move || match kept.lock() {
            Ok(record) => postcard::to_stdvec(&*record).unwrap(),
            Err(_) => b"broken".to_vec(),
        };
        Ok(Box::new(Says(Box::new(tell))))
    }
}

struct Says(Box<dyn Fn() -> Vec<u8> + Send>);

impl Service for Says {
    fn packet(&mut self, packet: Packet, leaf: &mut Leaf<'_>) {
        leaf.consumed(packet.stream, packet.frame_bytes);
        leaf.reply(packet.stream, packet.wave, packet.tag, &(self.0)());
    }
}

fn services() -> Services {
    let kept = Kept::default();
    Services::new(Registry::with_builtins())
        .with(SUM, Summing(Arc::clone(&kept)))
        .with(TELL, Telling(kept))
        .with(STUCK, |site: &Site<'_>, _: LeafHandle| {
            let is_stuck = site.host == "n2";
            let stays = move || {
                if is_stuck {
                    loop {
                        std::thread::park();
                    }
                }
                Vec::new()
            };
            Ok(Box::new(Says(Box::new(stays))) as Box<dyn Service>)
        })
}

/// What the processes of the trees of these tests run; among the tests it does nothing.
#[test]
fn server_of_this_test() {
    if !std::env::args().any(|argument| argument == SERVER) {
        return;
    }
    if let Ok(address) = std::env::var(JOIN) {
        return join(&address);
    }
    let link = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3).unwrap();
    rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null").unwrap()).unwrap();
    let served = launch::serve(link, &services());
    std::process::exit(i32::from(served.is_err()));
}

/// Joins a session as the host n2, with the token on standard input.
fn join(address: &str) {
    let token = std::io::read_to_string(std::io::stdin()).unwrap().trim().parse().unwrap();
    let invitations = attach::enrol(address, &token, "n2").unwrap();
    let served = launch::serve_host(invitations, (&[], false), &services());
    std::process::exit(i32::from(served.is_err()));
}

/// What a server of this test is started with.
const ARGUMENTS: [&str; 6] =
    ["taps::server_of_this_test", "--exact", "--nocapture", "-q", "--skip", SERVER];

fn program(path: PathBuf, carrier: Carrier) -> Program {
    let mut program = Program::new(path, ARGUMENTS.map(ToOwned::to_owned).to_vec());
    program.carrier = carrier;
    program
}

/// A tree whose servers are of this test.
async fn start((shape, leaves, carrier): (&str, u32, Carrier), tuning: Tuning) -> Tree {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("server");
    std::os::unix::fs::symlink(std::env::current_exe().unwrap(), &path).unwrap();
    let options = launch::Options { tuning, ..launch::Options::default() };
    let program = program(path, carrier);
    let tree = Tree::of((shape, leaves), &services(), &options, &program, dir).await;
    let ready = tree.network.ready(DEADLINE).await.expect("the tree starts");
    assert_eq!(ready.len(), u64::from(leaves), "{:?}", tree.network.notices());
    tree
}

/// How a node went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Killed,
    Asked,
}

/// One tree, and what the test knows of it.
struct Round {
    tree: Tree,
    stream: Stream,
    rng: fastrand::Rng,
    /// The inner nodes below the root: rank, process, and what became of it.
    inner: Vec<(u32, Process, Option<End>)>,
    /// Whose data the results had, by wave.
    results: BTreeMap<u64, RangeSet>,
    /// Waves before this one were over before anything happened.
    quiet: u64,
}

impl Round {
    async fn start(seed: u64) -> Self {
        let shape = SHAPES[(seed % SHAPES.len() as u64) as usize];
        // Who is lost is said when its leaves have had this long to come back.
        let tuning = Tuning { adoption_grace: GRACE, ..Tuning::default() };
        let tree = start(shape, tuning).await;
        let everyone = tree.network.everyone();
        let stream = tree.network.open(SUM, everyone, "sum", b"%uld", Sync::WaitForAll);
        let survey = tree.network.survey(DEADLINE).await;
        let ranks = own::ranks(&tree.network.inner_nodes());
        let of = |rank: u32| {
            let report = survey.reports.iter().find(|node| node.rank == rank).unwrap();
            (rank, Process::of(report.pid).unwrap(), None)
        };
        let inner = ranks.iter().filter(|rank| *rank > 0).map(of).collect();
        let rng = fastrand::Rng::with_seed(seed);
        Self { tree, stream, rng, inner, results: BTreeMap::new(), quiet: 0 }
    }

    async fn ask(&self) {
        let sent = tokio::time::timeout(DEADLINE, self.stream.send(0, b"", Some(DEADLINE))).await;
        sent.expect("there is room");
    }

    /// Takes the next result: whoever is in it is in its sum once.
    async fn take(&mut self) -> u64 {
        let wave = next(&self.stream).await;
        assert!(wave.complete);
        assert_eq!(number(wave.payload.as_deref()), worth_of(&wave.coverage.ok), "{wave:?}");
        let counted = wave.coverage.ok.len();
        self.results.insert(wave.wave, (*wave.coverage.ok).clone());
        counted
    }

    /// Sums until all leaves are counted.
    async fn settle(&mut self) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            self.ask().await;
            if self.take().await == self.tree.leaves() {
                return;
            }
            assert!(Instant::now() < deadline, "{:?}", self.tree.network.notices());
        }
    }

    /// Ends up to `most` nodes at once while sums are under way; how many.
    async fn fire(&mut self, most: usize) -> usize {
        let mut living: Vec<usize> =
            (0..self.inner.len()).filter(|&at| self.inner[at].2.is_none()).collect();
        self.rng.shuffle(&mut living);
        let count = living.len().min(most).min(if self.rng.u8(..4) == 0 { 2 } else { 1 });
        let under_way = self.rng.usize(1..40);
        for _ in 0..under_way {
            self.ask().await;
        }
        if self.rng.bool() {
            tokio::time::sleep(Duration::from_micros(self.rng.u64(..5_000))).await;
        }
        for &at in &living[..count] {
            let end = if self.rng.bool() { End::Killed } else { End::Asked };
            let signal = if end == End::Killed { Signal::KILL } else { Signal::TERM };
            self.inner[at].1.signal(signal);
            self.inner[at].2 = Some(end);
        }
        for _ in 0..under_way {
            self.take().await;
        }
        self.settle().await;
        count
    }

    /// What the nodes that live have kept.
    async fn told(&self) -> Vec<Record> {
        let network = &self.tree.network;
        let stream = network.open(TELL, network.inner_nodes(), "null", b"", Sync::WaitForAll);
        stream.send(0, b"", Some(DEADLINE)).await;
        let wave = next(&stream).await;
        let payload = wave.payload.unwrap_or_default();
        let records = null::items(&payload).expect("what they said");
        let read = |record: &[u8]| {
            postcard::from_bytes(record)
                .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(record)))
        };
        records.into_iter().map(read).collect()
    }

    /// The nodes of which the root was told that their state is lost, in order.
    fn said_lost(&self) -> Vec<u32> {
        let lost = |notice: &Notice| match notice {
            Notice::StateLost { rank, service, .. } => {
                assert_eq!(service, SUM);
                Some(*rank)
            }
            _ => None,
        };
        let mut lost: Vec<u32> = self.tree.network.notices().iter().filter_map(lost).collect();
        lost.sort_unstable();
        lost
    }

    /// Every node's record is at one place, or said to be lost; no record has anybody twice in one
    /// wave, nor have two of one level.
    async fn check(&self) {
        let ended = |end: End| {
            let of = self.inner.iter().filter(move |(_, _, ended)| *ended == Some(end));
            of.map(|(rank, ..)| *rank).collect::<Vec<u32>>()
        };
        let (killed, asked) = (ended(End::Killed), ended(End::Asked));
        // Nobody is said to be lost later than this, or falsely.
        tokio::time::sleep(2 * GRACE).await;
        let deadline = Instant::now() + DEADLINE;
        while killed.iter().any(|rank| !self.said_lost().contains(rank))
            && Instant::now() < deadline
        {
            tokio::time::sleep(POLL).await;
        }
        let mut kept = BTreeMap::new();
        for record in self.told().await {
            spread(record, &mut kept);
        }
        let about = || {
            format!(
                "killed {killed:?}, asked {asked:?}, said lost {:?}, kept {:?}: {:?}",
                self.said_lost(),
                kept.keys(),
                self.tree.network.notices()
            )
        };
        let said = self.said_lost();
        assert!(said.windows(2).all(|pair| pair[0] != pair[1]), "said twice: {}", about());
        assert!(killed.iter().all(|rank| said.contains(rank)), "not said: {}", about());
        // What was given to a node that was killed later is lost with that one's.
        let gone: BTreeSet<u32> = self
            .inner
            .iter()
            .map(|(rank, ..)| *rank)
            .filter(|rank| !kept.contains_key(rank))
            .collect();
        let explained =
            |rank: &u32| said.contains(rank) || (asked.contains(rank) && !killed.is_empty());
        assert!(gone.iter().all(explained), "lost and not said: {}", about());
        assert!(said.iter().all(|rank| gone.contains(rank)), "said to be lost: {}", about());
        self.check_sums(&kept, &gone);
    }

    fn check_sums(&self, kept: &BTreeMap<u32, Record>, gone: &BTreeSet<u32>) {
        for (rank, record) in kept {
            let sum: u64 = record.counted.values().map(worth_of).sum();
            assert_eq!(record.sum, sum, "node {rank}");
        }
        assert_eq!(kept[&0].counted, self.results, "the root's tap sees what the root is told");
        let mut levels: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (rank, ..) in &self.inner {
            let node = self.tree.topology.node(*rank).unwrap();
            levels.entry(node.depth()).or_default().push(*rank);
        }
        for (level, ranks) in levels {
            for (wave, result) in &self.results {
                let mut all = RangeSet::new();
                for record in ranks.iter().filter_map(|rank| kept.get(rank)) {
                    let Some(counted) = record.counted.get(wave) else { continue };
                    assert!(all.is_disjoint(counted), "wave {wave}, level {level}: twice");
                    all.union_with(counted);
                }
                let is_whole = ranks.iter().all(|rank| !gone.contains(rank));
                if *wave < self.quiet && is_whole {
                    assert_eq!(all, *result, "wave {wave}, level {level}: nothing is missing");
                }
            }
        }
    }
}

/// Puts a record, and those that were given to its node, each by its rank: no two have one.
fn spread(mut record: Record, kept: &mut BTreeMap<u32, Record>) {
    for given in std::mem::take(&mut record.given) {
        spread(given, kept);
    }
    if let Some(twice) = kept.insert(record.rank, record) {
        panic!("kept twice: {twice:?}");
    }
}

/// Ends nodes of one tree until `most` are gone, or only the root is left; how many.
async fn one(seed: u64, most: usize) -> usize {
    let mut round = Round::start(seed).await;
    for _ in 0..3 {
        round.settle().await;
    }
    round.quiet = round.results.len() as u64;
    let mut ended = 0;
    while ended < most {
        let count = round.fire(most - ended).await;
        if count == 0 {
            break;
        }
        ended += count;
    }
    round.check().await;
    drop(round.stream);
    round.tree.end().await;
    ended
}

#[test]
fn running_sum_counts_nobody_twice_and_what_is_lost_is_said() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let kills = number("SHEAF_TAP_KILLS").map_or(KILLS, |kills| kills as usize);
    let first = number("SHEAF_TAP_SEED").unwrap_or_else(|| fastrand::u64(..1_000_000));
    println!("seed {first}");
    let _turn = turn();
    let (mut ended, mut seed) = (0, first);
    while ended < kills {
        let since = Instant::now();
        ended += runtime().block_on(one(seed, kills - ended));
        println!("tree {seed}: {ended} ended in all, {:?}", since.elapsed());
        seed += 1;
    }
}

/// A service that blocks where it must not costs its host, by name, and nobody else.
#[test]
fn service_that_never_comes_back_costs_its_own_host() {
    let _turn = turn();
    runtime().block_on(async {
        for carrier in [Carrier::Unix, Carrier::Tls] {
            let tree = start(("1x2x2", 4, carrier), quick()).await;
            let network = &tree.network;
            let open =
                |service| network.open(service, network.everyone(), "null", b"", Sync::WaitForAll);
            let everyone = network.everyone();
            let sum = network.open(SUM, everyone, "sum", b"%uld", Sync::WaitForAll);
            let stuck = open(STUCK);
            let since = Instant::now();
            stuck.send(0, b"", Some(DEADLINE)).await;
            let wave = next(&stuck).await;
            assert!(since.elapsed() < DEADLINE / 2, "{:?}", since.elapsed());
            let others: RangeSet = [0, 2, 3].into_iter().collect();
            assert_eq!(*wave.coverage.ok, others);
            let missing: Vec<_> = wave.coverage.silent.iter().map(|(_, who)| who.clone()).collect();
            assert_eq!(missing, [RangeSet::single(1)]);
            sum.send(0, b"", Some(DEADLINE)).await;
            assert_eq!(*next(&sum).await.coverage.ok, others, "other services go on");
            drop((stuck, sum));
            tree.everybody().iter().for_each(|process| process.signal(Signal::KILL));
            tree.end().await;
        }
    });
}

/// A server of another program, which has other services, in a session of this one.
#[test]
fn host_lacking_a_service_is_named_and_the_others_answer() {
    let _turn = turn();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = format!(
        "[cluster.lab]\nhosts = \"n[1-2]\"\nlaunch = \"attach\"\nlisten = \"{free}\"\n\
         tree = \"flat\"\n"
    );
    let home = Home::with_config(&config);
    // Hosts of one machine: each serves a directory of its own.
    home.write("n1/f", "here\n");
    home.write("n2/f", "here\n");
    home.write("sheaf.toml", &format!("{config}export = \"{}/%h\"\n", home.path().display()));
    let up = home.run(&["up", "--tokens", "tokens", "--token-uses", "2"]);
    assert_eq!(up.code, Some(0), "{up:?}");
    let tokens = home.path().join("tokens");
    let args = ["serve", "--join", &free.to_string(), "--token-file", "tokens", "--host", "n1"];
    let like = Running::start(&mut home.command(&args));
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(ARGUMENTS).env(JOIN, free.to_string());
    command.stdin(std::fs::File::open(tokens).unwrap());
    let other = Running::start(&mut command);
    let grep = || home.run(&["grep", "here", ":/f"]);
    wait_until("both have joined", || grep().stderr.ends_with("1 failed\n"));
    let run = grep();
    assert_eq!(run.stdout, "n1:/f:here\n", "{run:?}");
    let told = "n2:/f: Function not implemented (ENOSYS): its server lacks the service \"tools\", or a part \
                of it: it is another program, or another version, 1 of 2 members\n\
                sheaf: 1 of 2 members succeeded, 1 failed\n";
    assert_eq!((run.code, run.stderr.as_str()), (Some(4), told));
    assert_eq!(home.run(&["down"]).code, Some(0));
    drop((like.wait(), other.wait()));
}
