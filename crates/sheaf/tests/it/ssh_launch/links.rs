//! Sessions on hosts that let nothing in but ssh.
use crate::machines::{LOGIN, Machines, address};
use rustix::process::Signal;
use sheaf_testing::home::Run;
use sheaf_testing::sessions::{turn, wait_until};
use std::collections::BTreeMap;
use std::time::Instant;

const HOSTS: usize = 32;

/// Who may begin connections to a host: anybody to sshd, or only `login`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wall {
    Ssh,
    SshFromLogin,
}

/// Hosts behind walls, with a file `/root/data` each; `None` where there is no nftables.
fn machines(
    count: usize,
    tree: &str,
    walls: impl Fn(usize) -> Option<Wall>,
    more: &str,
) -> Option<Machines> {
    let machines = Machines::new(count)?;
    let config = format!("[cluster.lab]\nhosts = \"h[1-{count}]\"\ntree = \"{tree}\"\n{more}");
    machines.write(LOGIN, "sheaf.toml", &config);
    for host in machines.hosts() {
        if let Some(wall) = walls(host)
            && !machines.firewall(host, &rules(wall))
        {
            sheaf_testing::skipped("nftables cannot be used here");
            return None;
        }
        machines.write(host, "data", &format!("equal\nonly h{host}\n"));
    }
    Some(machines)
}

/// No connection may begin, but those to sshd. (What belongs to one that has begun passes.)
fn rules(wall: Wall) -> String {
    let from = match wall {
        Wall::Ssh => String::new(),
        Wall::SshFromLogin => format!("ip saddr {} ", address(LOGIN)),
    };
    format!(
        "table inet wall {{ chain in {{ type filter hook input priority 0; iif lo accept; \
         {from}tcp dport 22 accept; tcp flags & (syn | ack) == syn drop; meta l4proto udp drop; }}; }}\n"
    )
}

#[track_caller]
fn all_answer(run: &Run, hosts: &str) {
    assert_eq!(run.stdout, format!("{hosts}:/root/data:equal\n"), "{run:?}");
}

fn nothing_runs(machines: &Machines) -> bool {
    machines.hosts().all(|host| machines.processes(host).is_empty())
}

/// Tools work, and all hosts say the same as over any other link.
fn tools_work(machines: &Machines) {
    let all = format!("h[1-{HOSTS}]");
    all_answer(&machines.run(&["grep", "equal", "/root/data"]), &all);
    let cat = machines.run(&["cat", "h3:/root/data"]);
    assert_eq!((cat.code, cat.stdout.as_str()), (Some(0), "equal\nonly h3\n"), "{cat:?}");
    machines.write(LOGIN, "source", &"0123456789abcdef".repeat(1 << 16));
    let cp = machines.run(&["cp", "/root/source", "@all:/root/copy"]);
    assert_eq!(cp.code, Some(0), "{cp:?}");
    assert_eq!(std::fs::read(machines.home(HOSTS, "copy")).unwrap().len(), 1 << 20);
    let ls = machines.run(&["ls", "/root"]);
    assert_eq!(ls.code, Some(0), "{ls:?}");
}

/// What carries the link of each host, by the JSON of `status`.
fn links(machines: &Machines) -> BTreeMap<String, String> {
    let status = machines.run(&["status", "--json"]);
    let lines =
        status.stdout.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let of = |line: serde_json::Value| {
        Some((
            line["host"].as_str()?.to_owned(),
            line["link"].as_str().unwrap_or("none").to_owned(),
        ))
    };
    lines.filter(|line| line["type"] == "host").filter_map(of).collect()
}

fn all_end(machines: &Machines) {
    assert_eq!(machines.run(&["down"]).code, Some(0));
    wait_until("every process has ended", || nothing_runs(machines));
    let ssh_runs = |host| !machines.processes_called(host, "ssh").is_empty();
    wait_until("every ssh has ended", || !machines.hosts().any(ssh_runs));
}

/// The ports at which programs of a host listen.
fn ports(machines: &Machines, host: usize) -> Vec<u16> {
    let listed = machines.command(host, "ss", &["-Htln"]).output().unwrap();
    let text = String::from_utf8(listed.stdout).unwrap();
    let port = |line: &str| line.split_whitespace().nth(3)?.rsplit_once(':')?.1.parse().ok();
    text.lines().filter_map(port).filter(|port| *port != 22).collect()
}

#[test]
fn links_go_through_ssh_where_only_ssh_is_permitted() {
    let _turn = turn();
    let Some(machines) = machines(HOSTS, "1x4x8", |_| Some(Wall::Ssh), "") else { return };
    let begun = Instant::now();
    let up = machines.run(&["up"]);
    println!("up took {:?}", begun.elapsed());
    assert_eq!(up.code, Some(0), "{up:?}");
    assert!(up.stderr.starts_with("session lab: 32 of 32 hosts, process "), "{up:?}");
    tools_work(&machines);
    assert!(links(&machines).values().all(|link| link == "ssh"));
    let shown = machines.run(&["tree", "show"]);
    assert!(shown.stdout.ends_with("\nlinks: ssh\n32 of 32 leaves are up\n"), "{shown:?}");
    all_end(&machines);
}

#[test]
fn root_starts_all_hosts_that_cannot_log_in_to_each_other() {
    let _turn = turn();
    let tuning = "[tuning]\nssh_connect_timeout_ms = 2000\n";
    let walls = |_| Some(Wall::SshFromLogin);
    let Some(machines) = machines(HOSTS, "1x4x8", walls, tuning) else { return };
    let begun = Instant::now();
    let up = machines.run(&["up"]);
    println!("up took {:?}", begun.elapsed());
    let relayed = "h[2-8,10-16,18-24,26-32]";
    let told = format!("sheaf: {relayed}: started from here, as their parents cannot reach them\n");
    assert_eq!(up.code, Some(0), "{up:?}");
    assert!(
        up.stderr.starts_with(&format!("{told}session lab: 32 of 32 hosts, process ")),
        "{up:?}"
    );
    tools_work(&machines);
    let status = machines.run(&["status"]);
    let line = format!("\n  links: ssh h[1,9,17,25]; ssh through the root {relayed}\n");
    assert!(status.stdout.contains(&line), "{status:?}");
    all_end(&machines);
    let grep = machines.run(&["grep", "equal", "/root/data"]);
    assert_eq!((grep.code, grep.stderr), (Some(0), told), "{}", grep.stdout);
}

#[test]
fn unreached_hosts_are_told_from_those_that_let_nobody_in() {
    let _turn = turn();
    let tuning = "[tuning]\nssh_connect_timeout_ms = 2000\n";
    // h1 has no key for h2, and no way leads from h3 to h4.
    let walls = |host| (host == 4).then_some(Wall::SshFromLogin);
    let Some(machines) = machines(4, "1x2x2", walls, tuning) else { return };
    std::fs::remove_file(machines.home(1, ".ssh/key")).unwrap();
    let run = machines.run(&["grep", "equal", "/root/data"]);
    all_answer(&run, "h[1-4]");
    let told = "sheaf: h2: started from here, as their parents cannot log in to them; \
                h4: started from here, as their parents cannot reach them\n";
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), told));
}

#[test]
fn links_through_ssh_need_no_port_and_no_try() {
    let _turn = turn();
    let Some(machines) = machines(4, "1x2x2", |_| Some(Wall::Ssh), "link = \"ssh\"\n") else {
        return;
    };
    assert_eq!(machines.run(&["up"]).code, Some(0));
    all_answer(&machines.run(&["grep", "equal", "/root/data"]), "h[1-4]");
    for host in machines.hosts() {
        assert!(ports(&machines, host).is_empty(), "h{host}");
    }
    // What somebody kills is started again.
    for host in 1..=4 {
        for process in machines.processes(host) {
            process.signal(Signal::KILL);
        }
    }
    let answer = || machines.run(&["--timeout", "5", "grep", "equal", "/root/data"]);
    wait_until("all are back", || answer().code == Some(0));
    // Whatever is told nothing ends by itself.
    machines.processes(LOGIN)[0].signal(Signal::KILL);
    wait_until("every process has ended", || nothing_runs(&machines));
    let ssh_runs = |host| !machines.processes_called(host, "ssh").is_empty();
    wait_until("every ssh has ended", || !machines.hosts().any(ssh_runs));
}

#[test]
fn leaves_below_an_unstarted_node_are_started_from_the_root() {
    let _turn = turn();
    let tuning = "[tuning]\nssh_connect_timeout_ms = 2000\n";
    let walls = |_| Some(Wall::SshFromLogin);
    let Some(machines) = machines(8, "1x2x2x2", walls, tuning) else { return };
    // h2 starts what h3 is to start h4 from; h4 cannot be logged in to from anywhere.
    std::fs::write(machines.home(4, ".ssh/authorized_keys"), "").unwrap();
    let run = machines.run(&["grep", "equal", "/root/data"]);
    all_answer(&run, "h[1-3,5-8]");
    assert_eq!(run.code, Some(4), "{run:?}");
    let told = "sheaf: h[1-3,5-8]: started from here, as their parents cannot reach them";
    assert!(run.stderr.contains(told), "{run:?}");
    let told =
        "h4: it does not serve (EACCES): from h2: not started: ssh: connect to host h3 port 22: ";
    assert!(run.stderr.contains(told), "{run:?}");
    assert!(
        run.stderr.contains("; from the root: not started: root@h4: Permission denied"),
        "{run:?}"
    );
}

#[test]
fn mixed_cluster_uses_tcp_where_it_can() {
    let _turn = turn();
    // h3 starts h4, which reaches it; to h1 and to the root nobody comes.
    let walls = |host| (host <= 1).then_some(Wall::Ssh);
    let Some(machines) = machines(4, "1x2x2", walls, "") else { return };
    assert_eq!(machines.run(&["up"]).code, Some(0));
    all_answer(&machines.run(&["grep", "equal", "/root/data"]), "h[1-4]");
    let expected = [("h1", "ssh"), ("h2", "ssh"), ("h3", "ssh"), ("h4", "tcp+tls")];
    let expected: BTreeMap<String, String> =
        expected.map(|(host, link)| (host.to_owned(), link.to_owned())).into();
    assert_eq!(links(&machines), expected);
    all_end(&machines);
}

#[test]
fn hosts_behind_another_one_are_reached_through_it() {
    let _turn = turn();
    let jump = "ssh = \"ssh -J h1\"\n";
    let Some(machines) = machines(3, "flat", |host| (host != 1).then_some(Wall::Ssh), jump) else {
        return;
    };
    let run = machines.run(&["-C", "lab", "-w", "h[2-3]", "grep", "equal", "/root/data"]);
    all_answer(&run, "h[2-3]");
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
}

#[test]
fn nodes_listen_at_the_ports_that_are_said_and_nowhere_else() {
    let _turn = turn();
    let more = "ports = \"7440-7441\"\n[tuning]\nrelaunch_ms = 0\n";
    let Some(machines) = machines(4, "1x2x2", |_| None, more) else { return };
    assert_eq!(machines.run(&["up"]).code, Some(0));
    all_answer(&machines.run(&["grep", "equal", "/root/data"]), "h[1-4]");
    for host in [LOGIN, 1, 3] {
        assert_eq!(ports(&machines, host), [7440]);
    }
    assert!(links(&machines).values().all(|link| link == "tcp+tls"));
    all_end(&machines);
    // Where others have them all, that is said.
    let holder = machines.command(1, "python3", &["-c", HOLD_PORTS]).spawn().unwrap();
    wait_until("they are taken", || ports(&machines, 1).len() == 2);
    let run = machines.run(&["grep", "equal", "/root/data"]);
    assert!(
        run.stderr.contains("none of the ports 7440-7441 (setting ports) is free at 10.77.0.2"),
        "{run:?}"
    );
    assert!(run.stdout.contains("h[3-4]:/root/data:equal"), "{run:?}");
    drop(machines);
    drop(holder);
}

/// Takes ports, for as long as its host is there.
const HOLD_PORTS: &str = "import socket, time
held = [socket.create_server(('', port)) for port in (7440, 7441)]
time.sleep(1000)";

#[test]
fn inner_host_that_is_cut_off_comes_back_through_ssh() {
    let _turn = turn();
    let tuning = "[tuning]\nheartbeat_ms = 200\nheartbeats_lost_max = 10\nrelaunch_ms = 500\n\
                  ssh_connect_timeout_ms = 2000\n";
    for wall in [Wall::Ssh, Wall::SshFromLogin] {
        let Some(machines) = machines(16, "1x4x4", |_| Some(wall), tuning) else { return };
        let up = machines.run(&["up"]);
        assert_eq!(up.code, Some(0), "{up:?}");
        let answer = || machines.run(&["--timeout", "4", "grep", "equal", "/root/data"]);
        all_answer(&answer(), "h[1-16]");
        machines.cut(1);
        wait_until("the others answer", || answer().stdout == "h[2-16]:/root/data:equal\n");
        wait_until("nothing runs on the host", || machines.processes(1).is_empty());
        machines.mend(1);
        let mended = Instant::now();
        wait_until("the host is back", || answer().code == Some(0));
        println!("16 hosts answer {:?} after the link is back", mended.elapsed());
        all_answer(&answer(), "h[1-16]");
        for process in machines.processes(9) {
            process.signal(Signal::KILL);
            wait_until("it is back", || {
                answer().code == Some(0) && machines.processes(9).len() == 2
            });
        }
        assert_eq!(machines.run(&["down"]).code, Some(0));
        wait_until("every process has ended", || nothing_runs(&machines));
    }
}

/// What is done to a host by two names would be done, and counted, twice: whoever logs in there, and
/// wherever in the tree the names are.
#[test]
fn machine_of_two_names_is_in_a_session_once() {
    let _turn = turn();
    let Some(machines) = super::machines(4, "flat", "") else { return };
    let address = address(1);
    let text = |host| std::fs::read_to_string(machines.home(host, "log")).unwrap();
    for (tree, hosts) in [
        ("flat", format!("h[1-4],{address}")),
        ("flat", "h1,root@h1,h[2-4]".to_owned()),
        ("k-ary:2", format!("h[1-4],{address}")),
        ("k-ary:2", format!("{address},h[1-4]")),
        ("1x3x2", format!("{address},h[1-4]")),
        ("k-nomial:2", format!("h[1-4],{address}")),
    ] {
        (1..=4).for_each(|host| machines.write(host, "log", ""));
        let append = ["write", "--append", "--data", "x\n", "@all:/root/log"];
        let run = machines
            .run(&[&["-w", &hosts, "--launch", "ssh", "--tree", tree], &append[..]].concat());
        assert_eq!(run.code, Some(4), "{tree} {hosts}: {run:?}");
        assert_eq!(run.stderr.matches("ENOTUNIQ").count(), 1, "{tree} {hosts}: {run:?}");
        assert!(run.stderr.contains("this machine is in the session as "), "{run:?}");
        assert_eq!([1, 2, 3, 4].map(text), ["x\n"; 4], "{tree} {hosts}: {run:?}");
    }
    // The next session has a name of its own.
    assert_eq!(machines.run(&["cat", "h1:/root/log"]).stdout, "x\n");
    // A directory by the host's name is one, whatever it is called.
    let link = format!("mkdir -p ex/h1 && ln -s h1 ex/{address}");
    assert!(machines.command(1, "sh", &["-c", &link]).status().unwrap().success());
    let both = format!("h1,{address}");
    let append = ["write", "--create", "--append", "--data", "x\n", "@all:/log"];
    let export = ["-w", &both, "--launch", "ssh", "--export", "/root/ex/%h"];
    let run = machines.run(&[&export[..], &append[..]].concat());
    assert!(run.code == Some(4) && run.stderr.contains("ENOTUNIQ"), "{run:?}");
    assert_eq!(std::fs::read_to_string(machines.home(1, "ex/h1/log")).unwrap(), "x\n");
    // One that stays says at once how many hosts it has.
    for tree in ["flat", "k-ary:2"] {
        let hosts = format!("h[1-4],{address}");
        let up = ["-w", &hosts, "--launch", "ssh", "--tree", tree, "up", "--session", "once"];
        let up = machines.run(&up);
        assert!(up.code == Some(4) && up.stderr.contains("4 of 5 hosts"), "{tree}: {up:?}");
        assert_eq!(machines.run(&["down", "once"]).code, Some(0));
    }
}
