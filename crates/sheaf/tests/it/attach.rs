//! Hosts that join a session by themselves.
use crate::machines::{LOGIN, Machines, address};
use rustix::process::Signal;
use sheaf_testing::home::Run;
use sheaf_testing::sessions::{Process, Running, turn, wait_until};
use std::os::unix::fs::PermissionsExt;

const PORT: u16 = 7440;

/// A session on `login` that waits for `count` hosts, and its tokens.
fn session(count: usize, up: &[&str]) -> Option<(Machines, Vec<String>)> {
    let machines = Machines::new(count)?;
    let config = format!(
        "[cluster.pods]\nhosts = \"h[1-{count}]\"\nlaunch = \"attach\"\nlisten = \"{}:{PORT}\"\n\
         [tuning]\nstart_timeout_ms = 5000\n",
        address(LOGIN)
    );
    machines.write(LOGIN, "sheaf.toml", &config);
    for host in 1..=count {
        machines.write(host, "data", "equal\n");
    }
    let up = machines.run(&[&["up", "--tokens", "tokens"], up].concat());
    assert_eq!(up.stderr.lines().count(), 1, "{up:?}");
    let tokens = machines.home(LOGIN, "tokens");
    assert_eq!(std::fs::metadata(&tokens).unwrap().permissions().mode() & 0o777, 0o600);
    let tokens = std::fs::read_to_string(tokens).unwrap();
    Some((machines, tokens.lines().map(ToOwned::to_owned).collect()))
}

/// Starts a server on a host, with this token.
fn join(machines: &Machines, host: usize, token: &str) -> Running {
    join_at(machines, host, &format!("login:{PORT}"), token)
}

/// Starts a server on a host, with a token that the running session makes.
pub fn joins_by_token(machines: &Machines, host: usize) -> Running {
    let run = machines.run(&["--json", "token"]);
    let issued: serde_json::Value =
        serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{run:?}"));
    join_at(machines, host, issued["join"].as_str().unwrap(), issued["token"].as_str().unwrap())
}

fn write_token(machines: &Machines, host: usize, token: &str) {
    machines.write(host, "token", token);
    let only_own = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(machines.home(host, "token"), only_own).unwrap();
}

fn join_at(machines: &Machines, host: usize, join: &str, token: &str) -> Running {
    write_token(machines, host, token);
    let program = machines.dir().join("sheaf");
    let args = ["serve", "--join", join, "--token-file", "token"];
    Running::start(&mut machines.command(host, program.to_str().unwrap(), &args))
}

fn grep(machines: &Machines) -> Run {
    machines.run(&["--timeout", "5", "grep", "equal", "/root/data"])
}

#[track_caller]
fn wait_for(machines: &Machines, hosts: &str) {
    let told = format!("{hosts}:/root/data:equal\n");
    wait_until(&format!("{hosts} answer"), || grep(machines).stdout == told);
}

#[test]
fn hosts_join_by_one_time_tokens_late_too_and_leave() {
    let _turn = turn();
    let Some((machines, tokens)) = session(4, &[]) else { return };
    assert_eq!(tokens.len(), 4);
    let mut servers: Vec<Running> =
        (1..=3).map(|host| join(&machines, host, &tokens[host - 1])).collect();
    wait_for(&machines, "h[1-3]");
    let run = grep(&machines);
    assert!(run.stderr.starts_with("h4: host is down (EHOSTDOWN): it has not joined\n"), "{run:?}");

    let replayed = join(&machines, 4, &tokens[0]).wait();
    let told = "sheaf: the session refuses this host: its token has been used already\n";
    assert_eq!((replayed.code, replayed.stderr.as_str()), (Some(2), told));
    let twice = join(&machines, 3, &tokens[3]).wait();
    assert_eq!(twice.stderr, "sheaf: the session refuses this host: h3 is there already\n");
    servers.push(join(&machines, 4, &tokens[3]));
    wait_for(&machines, "h[1-4]");

    machines.processes(2)[0].signal(Signal::TERM);
    let left = servers.remove(1).wait();
    assert_eq!((left.code, left.stderr.as_str()), (Some(0), ""), "{left:?}");
    wait_for(&machines, "h[1,3-4]");
    let run = grep(&machines);
    assert!(run.stderr.starts_with("h2: host is down (EHOSTDOWN): it has left\n"), "{run:?}");
    let status = machines.run(&["status"]);
    assert!(status.stdout.contains(" left: h2 (node 2)\n"), "{status:?}");
    assert!(!status.stdout.contains("lost: h2"), "{status:?}");
    let shown = machines.run(&["tree", "show", "--json"]);
    assert!(shown.stdout.contains(r#""left":"h2""#), "{shown:?}");
    let token = machines.run(&["token", "pods"]);
    let told =
        format!("join with: sheaf serve --join {}:{PORT} --token-file FILE\n", address(LOGIN));
    assert_eq!((token.code, &token.stderr), (Some(0), &told));
    servers.push(join(&machines, 2, &token.stdout));
    wait_for(&machines, "h[1-4]");
    let status = machines.run(&["status"]);
    assert!(status.stdout.contains(" joined: h2 (node 2, below node 0)\n"), "{status:?}");

    assert_eq!(machines.run(&["down"]).code, Some(0));
    for server in servers {
        assert_eq!(server.wait().code, Some(0));
    }
}

#[test]
fn first_command_waits_for_no_host_that_never_joined() {
    let _turn = turn();
    let Some(machines) = Machines::new(4) else { return };
    let config = format!(
        "[cluster.pods]\nhosts = \"h[1-4]\"\nlaunch = \"attach\"\nlisten = \"{}:{PORT}\"\n\
         tree = \"1x2x2\"\n[tuning]\nstart_timeout_ms = 60000\n",
        address(LOGIN)
    );
    machines.write(LOGIN, "sheaf.toml", &config);
    (1..=4).for_each(|host| machines.write(host, "data", "equal\n"));
    let up = machines.run(&["up", "--tokens", "tokens", "--token-uses", "9"]);
    assert_eq!(up.code, Some(0), "{up:?}");
    let begun = std::time::Instant::now();
    let run = machines.run(&["--timeout", "60", "grep", "equal", "/root/data"]);
    assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
    let told = "h[1-4]: host is down (EHOSTDOWN): it has not joined\n";
    assert!(run.code == Some(3) && run.stderr.starts_with(told), "{run:?}");
    // Hosts may still come, and find their places.
    let token = std::fs::read_to_string(machines.home(LOGIN, "tokens")).unwrap();
    let servers: Vec<Running> = (1..=4).map(|host| join(&machines, host, token.trim())).collect();
    wait_for(&machines, "h[1-4]");
    wait_until("everybody is at its place", || is_as_planned(&machines));
    assert_eq!(machines.run(&["down"]).code, Some(0));
    servers.into_iter().for_each(|server| assert_eq!(server.wait().code, Some(0)));
}

#[test]
fn one_token_for_all_brings_a_host_back_as_well() {
    let _turn = turn();
    let Some((machines, tokens)) = session(2, &["--token-uses", "3"]) else { return };
    assert_eq!(tokens.len(), 1);
    let mut servers: Vec<Running> = (1..=2).map(|host| join(&machines, host, &tokens[0])).collect();
    wait_for(&machines, "h[1-2]");
    machines.processes(2)[0].signal(Signal::KILL);
    servers.remove(1).wait();
    wait_for(&machines, "h1");
    servers.push(join(&machines, 2, &tokens[0]));
    wait_for(&machines, "h[1-2]");
    let strange = join(&machines, 2, &tokens[0].replace("sheaf1.", "sheaf1.0")).wait();
    assert_eq!(
        (strange.code, strange.stderr.as_str()),
        (Some(2), "sheaf: this is no token of a Sheaf session\n")
    );
    assert_eq!(machines.run(&["down"]).code, Some(0));
}

#[test]
fn server_that_is_killed_and_started_again_at_once_joins() {
    let _turn = turn();
    for tree in ["flat", "1x2x2"] {
        let up = ["--tree", tree, "--token-uses", "100"];
        let Some((machines, tokens)) = session(4, &up) else { return };
        let mut servers: Vec<Running> =
            (1..=4).map(|host| join(&machines, host, &tokens[0])).collect();
        wait_for(&machines, "h[1-4]");
        for round in 1..=3 {
            machines.processes(2).iter().for_each(|process| process.signal(Signal::KILL));
            servers.remove(1).wait();
            servers.insert(1, join(&machines, 2, &tokens[0]));
            let told = "h[1-4]:/root/data:equal\n";
            wait_until(&format!("{tree}: h2 is there again, {round}"), || {
                grep(&machines).stdout == told
            });
        }
        assert_eq!(machines.run(&["down"]).code, Some(0));
        servers.into_iter().for_each(|server| assert_eq!(server.wait().code, Some(0)));
    }
}

#[test]
fn up_waits_for_as_many_hosts_as_it_is_told_to() {
    let _turn = turn();
    let Some((machines, _)) = session(2, &["--token-uses", "9"]) else { return };
    assert_eq!(machines.run(&["down"]).code, Some(0));
    let up = |wait: &str, timeout: &str| {
        let args =
            ["--timeout", timeout, "up", "--tokens", "tokens", "--token-uses", "9", "--wait", wait];
        Running::start(&mut machines.sheaf(&args))
    };
    let token = || std::fs::read_to_string(machines.home(LOGIN, "tokens")).unwrap();
    let none = up("1", "1").wait();
    assert_eq!(none.code, Some(3), "{none:?}");
    assert!(none.stderr.starts_with("session pods: 0 of 2 hosts, process "), "{none:?}");
    assert_eq!(machines.run(&["down"]).code, Some(0));

    std::fs::remove_file(machines.home(LOGIN, "tokens")).unwrap();
    let waiting = up("all", "60");
    wait_until("its token is there", || {
        machines.home(LOGIN, "tokens").exists() && !token().is_empty()
    });
    let one = join(&machines, 1, token().trim());
    // Others can ask meanwhile.
    wait_for(&machines, "h1");
    let two = join(&machines, 2, token().trim());
    let all = waiting.wait();
    assert_eq!(all.code, Some(0), "{all:?}");
    assert!(all.stderr.starts_with("session pods: 2 of 2 hosts, process "), "{all:?}");
    assert_eq!(machines.run(&["down"]).code, Some(0));
    assert_eq!((one.wait().code, two.wait().code), (Some(0), Some(0)));

    let many = machines.run(&["up", "--wait", "3"]);
    assert_eq!(
        (many.code, many.stderr.as_str()),
        (Some(2), "sheaf: --wait 3: cluster pods has 2 hosts\n")
    );
}

#[test]
fn host_that_comes_early_waits_and_knows_its_session() {
    let _turn = turn();
    let Some((machines, tokens)) = session(2, &["--token-uses", "9"]) else { return };
    assert_eq!(machines.run(&["down"]).code, Some(0));
    // Nobody listens there: the session of the token has ended.
    write_token(&machines, 1, &tokens[0]);
    let at = format!("login:{PORT}");
    let serve = ["serve", "--join", &at, "--retry", "1", "--token-file", "token"];
    let late = Running::start(&mut machines.command(
        1,
        machines.dir().join("sheaf").to_str().unwrap(),
        &serve,
    ));
    let told = late.wait();
    assert_eq!(told.code, Some(3), "{told:?}");
    let lines: Vec<&str> = told.stderr.lines().collect();
    assert_eq!(
        lines[0],
        format!("sheaf: no session listens at {at}: Connection refused; it is tried for 1 s")
    );
    let last = format!(
        "sheaf: no session listens at {at}: Connection refused; it has ended, or has not begun"
    );
    assert_eq!(lines[1..], [last]);

    // Another session of the same name and place.
    assert_eq!(machines.run(&["up", "--tokens", "other", "--token-uses", "9"]).code, Some(0));
    let foreign = join(&machines, 1, &tokens[0]).wait();
    let told = format!(
        "sheaf: {at} is not the session of this token, which has ended perhaps: sheaf token makes one for \
         the session that runs there\n"
    );
    assert_eq!((foreign.code, foreign.stderr), (Some(2), told));
    assert_eq!(machines.run(&["down"]).code, Some(0));
}

/// Every node is where the plan of 1x2x2 has it: inner nodes 1 and 2, leaves 3 to 6.
fn is_as_planned(machines: &Machines) -> bool {
    let parents: Vec<(u64, u64)> =
        machines.nodes().into_iter().map(|(rank, (_, up))| (rank, up)).collect();
    parents == [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (6, 2)]
}

#[test]
fn hosts_that_join_are_sent_to_their_places_below_inner_nodes() {
    let _turn = turn();
    let Some((machines, tokens)) = session(4, &["--tree", "1x2x2", "--token-uses", "100"]) else {
        return;
    };
    // h4's place is below a node of h3 that has not come: it waits.
    let mut servers = vec![join(&machines, 4, &tokens[0]), join(&machines, 2, &tokens[0])];
    servers.push(join(&machines, 1, &tokens[0]));
    servers.push(join(&machines, 3, &tokens[0]));
    wait_for(&machines, "h[1-4]");
    wait_until("everybody is at its place", || is_as_planned(&machines));
    assert_eq!([1, 2, 3, 4].map(|host| machines.processes(host).len()), [2, 1, 2, 1]);
    // Its inner node alone knows that it lives: the root would hear otherwise by the end of this
    // time.
    let twice = join(&machines, 4, &tokens[0]).wait();
    let told = "sheaf: the session refuses this host: h4 is there already";
    assert_eq!(
        (twice.code, &twice.stderr),
        (Some(2), &format!("{told}; it is tried for 9 s\n{told}\n"))
    );

    // A server that comes again finds its place below its inner node.
    machines.processes(2)[0].signal(Signal::KILL);
    servers.remove(1).wait();
    wait_for(&machines, "h[1,3-4]");
    servers.push(join(&machines, 2, &tokens[0]));
    wait_for(&machines, "h[1-4]");
    wait_until("everybody is at its place", || is_as_planned(&machines));

    // A whole host with its inner node, and the server below finds another parent meanwhile.
    machines.processes(3).iter().for_each(|process| process.signal(Signal::KILL));
    wait_for(&machines, "h[1-2,4]");
    servers.push(join(&machines, 3, &tokens[0]));
    wait_for(&machines, "h[1-4]");
    wait_until("everybody is at its place again", || is_as_planned(&machines));
    wait_for(&machines, "h[1-4]");

    // An inner node alone, whose host is still there.
    let inner = |host| {
        let beside = |process: &Process| process.arguments().contains(&"--beside".to_owned());
        machines.processes(host).into_iter().find(beside)
    };
    let lost = inner(3).expect("h3 has an inner node");
    lost.signal(Signal::KILL);
    wait_until("the inner node is there again", || inner(3).is_some_and(|node| node != lost));
    wait_until("everybody is at its place again", || is_as_planned(&machines));
    wait_for(&machines, "h[1-4]");

    let root = machines.processes(LOGIN)[0];
    root.signal(Signal::KILL);
    let killed = std::time::Instant::now();
    wait_until("every process has ended", || {
        machines.hosts().all(|host| machines.processes(host).is_empty())
    });
    assert!(killed.elapsed() < std::time::Duration::from_secs(10), "{:?}", killed.elapsed());
}

#[test]
fn inner_node_that_cannot_reach_the_root_lets_its_children_go() {
    let _turn = turn();
    let Some((machines, tokens)) = session(4, &["--tree", "1x2x2", "--token-uses", "100"]) else {
        return;
    };
    let mut servers: Vec<Running> = (1..=4).map(|host| join(&machines, host, &tokens[0])).collect();
    wait_for(&machines, "h[1-4]");
    wait_until("everybody is at its place", || is_as_planned(&machines));
    // Nothing gets from the root to h3 any more; h4, whose inner node is there, reaches both.
    let route = |verb: &str| {
        let routed =
            machines.command(LOGIN, "ip", &["route", verb, "blackhole", &address(3)]).status();
        assert!(routed.unwrap().success());
    };
    route("add");
    wait_for(&machines, "h[1-2,4]");
    assert_eq!(machines.nodes()[&6], ("h4".to_owned(), 0));
    wait_until("whoever cannot reach the root has ended", || machines.processes(3).is_empty());
    route("del");
    servers.push(join(&machines, 3, &tokens[0]));
    wait_for(&machines, "h[1-4]");
    wait_until("everybody is at its place again", || is_as_planned(&machines));
    assert_eq!(machines.run(&["down"]).code, Some(0));
}

#[test]
fn inner_hosts_join_as_well() {
    let _turn = turn();
    let up = ["--tree", "1x2x1", "--inner-hosts", "h3,h4"];
    let Some(machines) = Machines::new(4) else { return };
    let config = format!(
        "[cluster.pods]\nhosts = \"h[1-2]\"\nlaunch = \"attach\"\nlisten = \"{}:{PORT}\"\n",
        address(LOGIN)
    );
    machines.write(LOGIN, "sheaf.toml", &config);
    (1..=2).for_each(|host| machines.write(host, "data", "equal\n"));
    let up = machines.run(&[&["up", "--tokens", "tokens"][..], &up].concat());
    assert_eq!(up.stderr.lines().count(), 1, "{up:?}");
    let tokens = std::fs::read_to_string(machines.home(LOGIN, "tokens")).unwrap();
    let tokens: Vec<&str> = tokens.lines().collect();
    assert_eq!(tokens.len(), 4, "one for each host");
    let _servers: Vec<Running> =
        (1..=4).map(|host| join(&machines, host, tokens[host - 1])).collect();
    wait_for(&machines, "h[1-2]");
    let hosts: Vec<(String, u64)> = machines.nodes().into_values().collect();
    let planned =
        [("h3", 0), ("h4", 0), ("h1", 1), ("h2", 2)].map(|(host, up)| (host.to_owned(), up));
    assert_eq!(hosts, planned);
    assert_eq!(machines.run(&["down"]).code, Some(0));
}

/// A server that joins as another host than it is on would be written to twice.
#[test]
fn machine_joins_a_session_once() {
    let _turn = turn();
    let Some((machines, tokens)) = session(3, &[]) else { return };
    let _first = join(&machines, 1, &tokens[0]);
    let _third = join(&machines, 3, &tokens[2]);
    wait_for(&machines, "h[1,3]");
    write_token(&machines, 1, &tokens[1]);
    let program = machines.dir().join("sheaf");
    let at = format!("login:{PORT}");
    let args = ["serve", "--join", &at, "--token-file", "token", "--host", "h2"];
    let second = Running::start(&mut machines.command(1, program.to_str().unwrap(), &args));
    let refused = "h2: it does not serve (ENOTUNIQ): this machine is in the session as h1";
    wait_until("the second name is refused", || grep(&machines).stderr.contains(refused));
    let second = second.wait();
    let told = "sheaf: the session refuses this host: this machine is in the session as h1\n";
    assert_eq!((second.code, second.stderr.as_str()), (Some(2), told));
    machines.write(1, "log", "");
    machines.write(3, "log", "");
    let run = machines.run(&["write", "--append", "--data", "x\n", "@all:/root/log"]);
    assert_eq!(run.code, Some(4), "{run:?}");
    assert_eq!(std::fs::read_to_string(machines.home(1, "log")).unwrap(), "x\n", "{run:?}");
    // The host itself still may come.
    let token = machines.run(&["token", "pods"]);
    let _second = join(&machines, 2, &token.stdout);
    wait_for(&machines, "h[1-3]");
    assert_eq!(machines.run(&["down"]).code, Some(0));
}
