//! Hosts that join a session by themselves.
use crate::cluster::{Running, turn, wait_until};
use crate::machines::{LOGIN, Machines, address};
use crate::support::Run;
use rustix::process::Signal;
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
    machines.write(host, "token", token);
    let join = format!("login:{PORT}");
    let program = machines.dir().join("sheaf");
    let args = ["serve", "--join", &join, "--token-file", "token"];
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
    let mut servers: Vec<Running> = (1..=3).map(|host| join(&machines, host, &tokens[host - 1])).collect();
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

    assert_eq!(machines.run(&["down"]).code, Some(0));
    for server in servers {
        assert_eq!(server.wait().code, Some(0));
    }
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
