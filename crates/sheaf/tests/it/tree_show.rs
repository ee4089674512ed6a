//! `sheaf tree show` of real processes: those that stand still and those that are gone are named.
use rustix::process::Signal;
use sheaf_testing::home::{Home, Run};
use sheaf_testing::sessions::{NAME, Up, nothing_is_left, turn, wait_until};

const COLUMNS: usize = 80;
const ROWS: usize = 24;

fn lines(run: &Run) -> Vec<serde_json::Value> {
    run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The line of a host's server.
fn node<'a>(lines: &'a [serde_json::Value], host: &str) -> &'a serde_json::Value {
    let of_it = |line: &&serde_json::Value| {
        line["type"] == "node" && line["role"] == "leaf" && line["host"] == host
    };
    lines.iter().find(of_it).unwrap_or_else(|| panic!("no line of {host}: {lines:?}"))
}

fn fits(run: &Run) {
    assert!(run.stdout.lines().count() < ROWS, "{}", run.stdout);
    for line in run.stdout.lines() {
        assert!(line.chars().count() <= COLUMNS, "{line}");
    }
}

#[test]
fn every_node_of_a_session_says_how_it_is() {
    let up = Up::new(&["--processes", "9", "--tree", "1x3x3"]);
    let run = up.run(&["tree", "show"]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    assert!(
        run.stdout.starts_with(&format!("tree {NAME}: 13 of 13 nodes answer\n")),
        "{}",
        run.stdout
    );
    assert!(run.stdout.ends_with("\n9 of 9 leaves are up\n"), "{}", run.stdout);
    fits(&run);
    let lines = lines(&up.run(&["tree", "show", "--json"]));
    for (host, server) in &up.servers {
        let node = node(&lines, host);
        assert_eq!((&node["pid"], &node["state"]), (&server.pid.into(), &"up".into()), "{node}");
        for figure in ["round_trip_ns", "bytes_in", "bytes_out", "frames_in"] {
            assert!(node["link"][figure].as_u64().unwrap() > 0, "{figure}: {node}");
        }
    }
    let tree = lines.last().unwrap();
    assert_eq!(
        (&tree["type"], &tree["v"], &tree["answered"]),
        (&"tree".into(), &1.into(), &13.into())
    );
    assert_eq!(up.down().code, Some(0));
    nothing_is_left(&up.home);
}

/// Hosts that differ behind what a column has room for can be told apart.
#[test]
fn names_are_shown_whole() {
    let names =
        (1..=4).map(|number| format!("compute-node-of-rack-17-number-{number}.lab.example"));
    let names: Vec<String> = names.collect();
    let home = Home::new();
    let run = home.run(&["-w", &names.join(","), "--launch", "processes", "tree", "show"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    for name in &names {
        assert!(run.stdout.lines().any(|line| line.ends_with(&format!(" {name}"))), "{run:?}");
    }
    let many = "compute-node-of-rack-17-number-[1-60].lab.example";
    let run = home.run(&["-w", many, "--launch", "embedded", "tree", "show"]);
    assert!(run.stdout.contains(many), "{run:?}");
    fits(&run);
}

#[test]
fn hosts_that_are_chosen_are_measured() {
    let up = Up::new(&["--processes", "3"]);
    let bench = |hosts: &str, what: &[&str]| {
        let few = ["--json", "--rounds", "5", "--waves", "50", "--bytes", "1M"];
        up.run(&[&["-w", hosts, "tree", "bench"], what, &few[..]].concat())
    };
    let run = bench("n[2-3]", &["start", "rtt", "waves", "bcast", "peer"]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    let lines = lines(&run);
    let figures: Vec<_> = lines.iter().filter(|line| line["type"] == "bench").collect();
    assert_eq!(figures.len(), 5, "{run:?}");
    assert!(figures.iter().all(|line| line["leaves"] == 2), "{run:?}");
    // A host alone has no peer.
    let run = bench("n2", &["peer"]);
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!((run.stdout + &run.stderr).contains("a peer link takes two hosts"));
    assert_eq!(bench("n7", &["rtt"]).code, Some(2));
    // Who is not among them need not be there.
    up.servers["n1"].signal(Signal::KILL);
    wait_until("one is missed", || up.run(&["cat", "/etc/hostname"]).code == Some(4));
    assert_eq!(bench("n[2-3]", &["rtt"]).code, Some(0));
}

#[test]
fn stopped_and_killed_hosts_are_named_by_tree_show() {
    let _turn = turn();
    // Long enough that the session gives nobody up while the test looks.
    let home = Home::with_config("[tuning]\nheartbeat_ms = 1000\nheartbeats_lost_max = 100\n");
    let up = Up::at(home, &["--timeout", "400", "--processes", "16", "--tree", "1x4x4"]);
    up.servers["n3"].signal(Signal::STOP);
    up.servers["n9"].signal(Signal::KILL);
    let show = |more: &[&str]| up.run(&[&["--timeout", "2", "tree", "show"], more].concat());
    let mut run = show(&["--json"]);
    wait_until("the two are known", || {
        run = show(&["--json"]);
        let lines = lines(&run);
        let tree = lines.last().unwrap();
        tree["torpid"] == "n3" && tree["lost"] == "n9" && tree["silent"] == ""
    });
    assert_eq!(run.code, Some(4), "{run:?}");
    assert_eq!(node(&lines(&run), "n3")["state"], "late");
    let run = show(&[]);
    assert_eq!(run.code, Some(4), "{run:?}");
    assert!(run.stdout.lines().next().unwrap().ends_with("; torpid: n3"), "{}", run.stdout);
    assert!(run.stdout.contains("\ntorpid: n3 (node "), "{}", run.stdout);
    assert!(run.stdout.contains("its process ended with signal 9"), "{}", run.stdout);
    assert!(run.stdout.ends_with("\n14 of 16 leaves are up\n"), "{}", run.stdout);
    fits(&run);
    for (format, colors) in [("--dot", ["#d68910", "#c0392b"]), ("--svg", ["#d68910", "#c0392b"])] {
        let run = show(&[format]);
        assert!(
            format == "--svg" || colors.iter().all(|color| run.stdout.contains(color)),
            "{}",
            run.stdout
        );
        assert!(run.stdout.contains(colors[0]), "{}", run.stdout);
    }
    let status = up.run(&["--timeout", "2", "status"]);
    assert!(status.stdout.contains(" lost: n9: its process ended with signal 9"), "{status:?}");
    up.servers["n3"].signal(Signal::CONT);
    wait_until("the one that stood still is back", || {
        node(&lines(&show(&["--json"])), "n3")["state"] == "up"
    });
    assert_eq!(up.down().code, Some(0));
    nothing_is_left(&up.home);
}

#[test]
fn tree_of_a_session_is_shown_by_its_name() {
    let up = Up::new(&["--processes", "2"]);
    let (named, option) =
        (up.run(&["tree", "show", "try"]), up.run(&["--session", "try", "tree", "show"]));
    assert_eq!((named.code, option.code), (Some(0), Some(0)), "{named:?}");
    assert!(named.stdout.ends_with("\n2 of 2 leaves are up\n"), "{named:?}");
    let other = up.run(&["tree", "show", "tyr"]);
    assert!(other.code == Some(3) && other.stderr.ends_with("did you mean try?\n"), "{other:?}");
    assert_eq!(up.down().code, Some(0));
    let none = up.run(&["tree", "show", "try"]);
    assert!(none.code == Some(3) && none.stderr.contains("sheaf up"), "{none:?}");
}

#[test]
fn large_tree_is_folded_to_fit() {
    let run = Home::new().run(&["--embedded", "1000", "--tree", "1x10x100", "tree", "show"]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    assert!(run.stdout.contains("×1000 n[1-1000]"), "{}", run.stdout);
    fits(&run);
}

#[test]
fn without_a_session_there_is_nothing_to_show() {
    let home = Home::with_config("default = \"lab\"\n[cluster.lab]\nhosts = \"n[1-4]\"\n");
    let run = home.run(&["tree", "show"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(3), ""), "{run:?}");
    let told =
        "sheaf: no session lab is running, so there is no tree to show; see: sheaf tree plan\n";
    assert_eq!(run.stderr, told);
}

#[test]
fn host_that_hangs_hides_no_others_from_whoever_has_little_time() {
    let up = Up::new(&["--processes", "5"]);
    up.servers["n3"].signal(Signal::STOP);
    let run = up.run(&["--timeout", "2", "tree", "show"]);
    up.servers["n3"].signal(Signal::CONT);
    assert!(run.stdout.ends_with("\n4 of 5 leaves are up\n"), "{run:?}");
    assert_eq!(up.down().code, Some(0));
}

#[test]
fn bench_says_how_often_it_measured() {
    let args = [
        "--embedded",
        "4",
        "--json",
        "tree",
        "bench",
        "--runs",
        "3",
        "--waves",
        "100",
        "--rounds",
        "7",
    ];
    let run = Home::new().run(&[&args[..], &["--bytes", "64K"]].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    let told: Vec<_> =
        lines(&run).iter().map(|line| (line["measure"].clone(), line["n"].clone())).collect();
    let expected = [("start", 1), ("rtt", 7), ("waves", 3), ("bcast", 3)];
    assert_eq!(told, expected.map(|(measure, n)| (measure.into(), n.into())));
}
