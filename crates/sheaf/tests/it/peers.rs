//! Links between two hosts of a session.
use crate::gates::CLIENTS;
use crate::machines::{LOGIN, Machines, address};
use crate::recovery::quick;
use crate::tree::{Tree, runtime};
use rustix::process::Signal;
use sheaf_core::{Errno, RangeSet};
use sheaf_testing::sessions::{Process, turn, wait_until};
use sheaf_tree::launch::Carrier;
use sheaf_tree::status::NodePlace;
use sheaf_tree::{Network, Sync, WaveResult};
use std::time::{Duration, Instant};

/// What the probe of a server takes for a peer: so many exchanges of packets of that length; so
/// many MiB, so often; and 1 where the tree is to carry them.
const TRIPS: i32 = 1007;
const BULK: i32 = 1008;

/// Far longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(60);
/// A host that is lost is noticed within this.
const LOST_MAX: Duration = Duration::from_secs(15);

async fn ask(network: &Network, from: u32, tag: i32, words: &[u32]) -> WaveResult {
    let stream = network.open("probe", RangeSet::single(from), "sum", b"%ld", Sync::WaitForAll);
    let packet: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    stream.send(tag, &packet, Some(LIMIT)).await;
    stream.recv_until(Instant::now() + LIMIT * 2).await.unwrap()
}

fn failed(result: &WaveResult) -> Option<Errno> {
    result.coverage.failed.first().map(|(errno, _)| *errno)
}

/// What a link through the tree took is let go with it.
async fn no_stream_is_left(network: &Network) {
    let deadline = Instant::now() + LIMIT;
    loop {
        let survey = network.survey(LIMIT).await;
        if survey.reports.iter().all(|report| report.streams.is_empty()) {
            return;
        }
        assert!(Instant::now() < deadline, "{:?}", survey.reports);
    }
}

#[test]
fn hosts_talk_to_each_other_over_every_kind_of_link() {
    let _turn = turn();
    for carrier in [Carrier::Unix, Carrier::Tcp, Carrier::Tls] {
        runtime().block_on(async {
            let tree = Tree::start("1x2x2", 4, carrier, quick()).await;
            let (network, topology) = (tree.network.clone(), tree.topology.clone());
            // Without somebody who introduces there is nothing, which is told.
            let alone = ask(&network, 0, TRIPS, &[3, 1, 8]).await;
            assert_eq!(failed(&alone), Some(Errno::TIMEDOUT), "{carrier:?}");
            let keeper = tokio::spawn(async move { network.keep_introductions(&topology).await });
            let network = &tree.network;
            for (from, to) in [(0, 3), (3, 0), (1, 2), (0, 3)] {
                let trips = ask(network, from, TRIPS, &[to, 20, 4096]).await;
                assert!(trips.coverage.is_full(), "{carrier:?} {from} to {to}: {trips:?}");
                assert!(ask(network, from, BULK, &[to, 8, 1]).await.coverage.is_full());
                // The same through the tree.
                let trips = ask(network, from, TRIPS, &[to, 20, 4096, 1]).await;
                assert!(trips.coverage.is_full(), "{carrier:?} {from} to {to}: {trips:?}");
                assert!(ask(network, from, BULK, &[to, 8, 1, 1]).await.coverage.is_full());
            }
            // Itself, and nobody.
            assert_eq!(failed(&ask(network, 0, TRIPS, &[0, 1, 8]).await), Some(Errno::INVAL));
            assert_eq!(failed(&ask(network, 0, TRIPS, &[4, 1, 8]).await), Some(Errno::NXIO));
            assert_eq!(failed(&ask(network, 0, TRIPS, &[0, 1, 8, 1]).await), Some(Errno::INVAL));
            assert_eq!(failed(&ask(network, 0, TRIPS, &[4, 1, 8, 1]).await), Some(Errno::NXIO));
            // Links that were asked for by themselves are over; the others are there.
            let survey = network.survey(LIMIT).await;
            let begun: usize = survey.reports.iter().map(|report| report.peers.len()).sum();
            assert_eq!(begun, 3, "{carrier:?} {:?}", survey.reports);
            no_stream_is_left(network).await;
            keeper.abort();
        });
    }
}

#[test]
fn peer_that_is_killed_is_noticed_and_found_again_never() {
    let _turn = turn();
    runtime().block_on(async {
        let tree = Tree::start("1x2x2", 4, Carrier::Tls, quick()).await;
        let (network, topology) = (tree.network.clone(), tree.topology.clone());
        let keeper = tokio::spawn(async move { network.keep_introductions(&topology).await });
        let network = &tree.network;
        assert!(ask(network, 0, TRIPS, &[3, 1, 8]).await.coverage.is_full());
        let survey = network.survey(LIMIT).await;
        let rank = tree.topology.leaf(3).unwrap().rank();
        let node = survey.node(rank).filter(|node| node.place == NodePlace::Leaf).unwrap();
        Process::of(node.pid).unwrap().signal(Signal::KILL);
        let begun = Instant::now();
        let lost = ask(network, 0, TRIPS, &[3, 1_000_000, 8]).await;
        assert!(
            failed(&lost).is_some() && begun.elapsed() < LOST_MAX,
            "{:?} {lost:?}",
            begun.elapsed()
        );
        // The others go on.
        assert!(ask(network, 0, TRIPS, &[2, 20, 4096]).await.coverage.is_full());
        keeper.abort();
    });
}

/// What `status` says of peer links.
fn peer_lines(machines: &Machines) -> Vec<String> {
    let status = machines.run(&["status"]);
    let lines = status.stdout.lines().map(str::trim);
    lines
        .filter(|line| line.contains("peer") || line.contains("through"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn host_behind_a_wall_is_reached_through_the_tree() {
    let _turn = turn();
    let Some(machines) = Machines::new(2) else { return };
    let config = format!("[cluster.walled]\nhosts = \"h[1-2]\"\ntree = \"flat\"\n{CLIENTS}");
    machines.write(LOGIN, "sheaf.toml", &config);
    let up = machines.run(&["up"]);
    assert_eq!(up.code, Some(0), "{up:?}");
    let bench = ["tree", "bench", "peer", "--rounds", "20", "--bytes", "1M"];
    let direct = machines.run(&bench);
    assert_eq!(direct.code, Some(0), "{direct:?}");
    assert_eq!(peer_lines(&machines), ["peer links: 1"]);
    assert_eq!(machines.run(&["down"]).code, Some(0));
    // From now on h2 takes nothing that h1 begins.
    let wall = format!(
        "table inet wall {{ chain in {{ type filter hook input priority 0; \
         ip saddr {} tcp flags & (syn | ack) == syn reject with tcp reset; }}; }}\n",
        address(1)
    );
    if !machines.firewall(2, &wall) {
        // Past the capture of the test runner, so that the line shows when it passes.
        sheaf_testing::skipped("nftables cannot be used here");
        return;
    }
    let up = machines.run(&["up"]);
    assert_eq!(up.code, Some(0), "{up:?}");
    for _ in 0..2 {
        let relayed = machines.run(&bench);
        assert_eq!(relayed.code, Some(0), "{relayed:?}");
        assert_eq!(
            peer_lines(&machines),
            [
                "peer links: 1, 1 through the tree",
                "h1 to h2 through the tree: Connection refused (os error 111)",
            ]
        );
    }
    assert_eq!(machines.run(&["down"]).code, Some(0));
}

/// Rounds of killing; `SHEAF_KILL_ROUNDS` says more, for a run by hand.
const KILL_ROUNDS: u64 = 12;

/// A command that is killed within this has begun, or not; has opened a link, or not.
const KILLED_WITHIN_MS: u64 = 400;

/// Descriptors of each process of the session, fewest first.
fn descriptors(machines: &Machines) -> Vec<usize> {
    let open = |process: &Process| {
        let held = std::fs::read_dir(format!("/proc/{}/fd", process.pid));
        held.map_or(0, Iterator::count)
    };
    let all = machines.hosts().flat_map(|host| machines.processes(host));
    let mut counts: Vec<usize> = all.map(|process| open(&process)).collect();
    counts.sort_unstable();
    counts
}

/// Streams of all nodes, as the nodes say.
fn open_in_tree(machines: &Machines) -> usize {
    let shown = machines.run(&["tree", "show", "--json"]);
    let nodes = shown.stdout.lines().filter_map(|line| {
        let node: serde_json::Value = serde_json::from_str(line).ok()?;
        let count = |of: &str| node[of].as_array().map_or(0, Vec::len);
        Some(count("streams"))
    });
    nodes.sum()
}

#[test]
fn killed_client_or_server_leaves_no_stream_or_descriptor() {
    let _turn = turn();
    let rounds = std::env::var("SHEAF_KILL_ROUNDS").ok().and_then(|text| text.parse().ok());
    let rounds: u64 = rounds.unwrap_or(KILL_ROUNDS);
    let Some(machines) = Machines::new(3) else { return };
    let config = format!("[cluster.killed]\nhosts = \"h[1-3]\"\ntree = \"flat\"\n{CLIENTS}");
    machines.write(LOGIN, "sheaf.toml", &config);
    for host in 1..=3 {
        machines.write(host, "data", "equal\n");
    }
    assert_eq!(machines.run(&["up"]).code, Some(0));
    let whole = |machines: &Machines| {
        machines.run(&["grep", "-c", "equal", "/root/data"]).stdout == "h[1-3]:/root/data:1\n"
    };
    assert!(whole(&machines));
    // A link to begin with, so that what is counted first is what stays.
    let bench = ["tree", "bench", "peer", "--rounds", "2000", "--bytes", "8M"];
    assert_eq!(machines.run(&bench).code, Some(0));
    let before = descriptors(&machines);
    let mut seed = 7u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let search: &[&str] = &["--quiet", "grep", "-r", "equal", "/usr/share/doc"];
    for round in 0..rounds {
        let words = if random(2) == 0 { search } else { &bench };
        let mut client = machines.sheaf(words);
        let client = client.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let mut client = client.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(random(KILLED_WITHIN_MS)));
        if round % 4 == 3 {
            // A server in the middle of it: the one that begins the links, or one that takes them.
            let host = 1 + random(2) as usize;
            machines.processes(host).iter().for_each(|server| server.signal(Signal::KILL));
            client.wait().unwrap();
            wait_until("the host is back", || whole(&machines));
        } else {
            let clients = machines.processes(LOGIN);
            let is_client = |process: &&Process| {
                process.arguments().iter().any(|word| word == "-r" || word == "bench")
            };
            clients.iter().filter(is_client).for_each(|client| client.signal(Signal::KILL));
            client.wait().unwrap();
        }
    }
    wait_until("all hosts are back", || whole(&machines));
    wait_until("no stream is left", || open_in_tree(&machines) == 0);
    // One link of each kind may be there, or none.
    wait_until("no descriptor is left", || {
        let now = descriptors(&machines);
        now.len() == before.len() && now.iter().zip(&before).all(|(now, before)| *now <= before + 4)
    });
    assert_eq!(machines.run(&["down"]).code, Some(0));
}
