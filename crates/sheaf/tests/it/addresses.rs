//! Machines that lack addresses which most have.
use crate::attach::joins_by_token;
use crate::machines::{LOGIN, Machines};
use sheaf_testing::sessions::{turn, wait_until};
use std::process::Command;
use std::time::{Duration, Instant};

/// Runs a command on a host that must succeed.
#[track_caller]
fn on(machines: &Machines, host: usize, script: &str) {
    let status = machines.command(host, "sh", &["-ec", script]).status().unwrap();
    assert!(status.success(), "{script}");
}

#[test]
fn without_a_loopback_tcp_links_name_the_address_at_once() {
    let _turn = turn();
    let Some(machines) = Machines::new(1) else { return };
    on(&machines, LOGIN, "ip link set lo down");
    machines.write(LOGIN, "data", "equal\n");
    let run = machines.run(&["--processes", "3", "grep", "-c", "equal", "/root/data"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "n[1-3]:/root/data:1\n"), "{run:?}");
    for link in ["tls", "tcp"] {
        let begun = Instant::now();
        let run = machines.run(&[
            "--processes",
            "3",
            "--link",
            link,
            "grep",
            "-c",
            "equal",
            "/root/data",
        ]);
        assert!(begun.elapsed() < Duration::from_secs(5), "{run:?}");
        let told =
            "sheaf: cannot start the tree: 127.0.0.1 cannot be reached from this machine itself (";
        assert!(run.stderr.starts_with(told) && run.stderr.lines().count() == 1, "{run:?}");
    }
}

#[test]
fn hosts_that_have_ipv6_alone_are_started_and_join() {
    let _turn = turn();
    let Some(machines) = Machines::new(4) else { return };
    if !Command::new("test").args(["-e", "/proc/net/if_inet6"]).status().unwrap().success() {
        sheaf_testing::skipped("this machine has no IPv6");
        return;
    }
    let address = |host: usize| format!("fd77::{:x}", host + 1);
    let mut names = "::1 localhost\n".to_owned();
    for host in machines.hosts() {
        let script = format!(
            "ip -4 address flush dev eth0; ip -4 address flush dev lo\n\
             ip -6 address add {}/64 dev eth0 nodad",
            address(host)
        );
        on(&machines, host, &script);
        names += &format!(
            "{} {}\n",
            address(host),
            if host == LOGIN { "login".into() } else { format!("h{host}") }
        );
        machines.write(host, "data", "equal\n");
    }
    // The hosts have this very file.
    std::fs::write(machines.dir().join("etc-hosts"), names).unwrap();
    let told = "h[1-4]:/root/data:equal\n";
    let run = machines.run(&["-w", "h[1-4]", "--tree", "1x2x2", "grep", "equal", "/root/data"]);
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (Some(0), told, ""));
    // The root's own host as one of them.
    let run = machines.run(&[
        "-w",
        "login,h1",
        "--inner-hosts",
        "login",
        "--tree",
        "1x1x2",
        "grep",
        "equal",
        "/root/data",
    ]);
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (Some(0), "h1,login:/root/data:equal\n"),
        "{run:?}"
    );
    let run = machines.run(&["--processes", "2", "--link", "tls", "grep", "equal", "/root/data"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "n[1-2]:/root/data:equal\n"), "{run:?}");

    machines.write(
        LOGIN,
        "sheaf.toml",
        "[cluster.pods]\nhosts = \"h[1-4]\"\nlaunch = \"attach\"\ntree = \"1x2x2\"\n",
    );
    let up = machines.run(&["up"]);
    assert_eq!(up.code, Some(0), "{up:?}");
    let _servers: Vec<_> = (1..=4).map(|host| joins_by_token(&machines, host)).collect();
    wait_until("all have joined", || machines.run(&["grep", "equal", "/root/data"]).stdout == told);
    assert_eq!(machines.run(&["down"]).code, Some(0));
}
