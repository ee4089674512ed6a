//! Inner nodes whose hosts are down or cannot serve: those below them are not missed with them.
use super::{all_answer, machines, parents};
use crate::machines::{LOGIN, Machines, address, keygen};
use sheaf_testing::home::Run;
use sheaf_testing::sessions::{turn, wait_until};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

const TOLD: &str = "sheaf: h[6-8]: started from here, as their parents could not be started\n";

/// All but h5, of which the reason is told.
#[track_caller]
fn only_h5_is_missed(run: &Run, why: &str) {
    all_answer(run, "h[1-4,6-8]");
    assert_eq!(run.code, Some(4), "{run:?}");
    let mut lines = run.stderr.lines();
    let first = lines.next().unwrap();
    assert!(first.starts_with("h5: ") && first.contains(why), "{run:?}");
    assert_eq!(lines.next(), Some("sheaf: 7 of 8 members succeeded; 1 host silent"), "{run:?}");
}

fn grep(machines: &Machines) -> Run {
    machines.run(&["grep", "equal", "/root/data"])
}

#[test]
fn dead_inner_host_is_missed_alone() {
    let _turn = turn();
    let tuning = "[tuning]\nssh_retries = 0\nrelaunch_ms = 0\n";
    let Some(machines) = machines(8, "1x2x4", tuning) else { return };
    machines.stop_sshd(5);
    let run = grep(&machines);
    let why = "(EHOSTDOWN): not started: ssh: connect to host h5 port 22: Connection refused";
    only_h5_is_missed(&run, why);
    assert!(run.stderr.ends_with(TOLD), "{run:?}");

    // A session has them from its beginning.
    let up = machines.run(&["up"]);
    assert_eq!(up.code, Some(4), "{up:?}");
    assert!(up.stderr.starts_with(&format!("{TOLD}session lab: 7 of 8 hosts, ")), "{up:?}");
    let status = machines.run(&["status"]);
    let line = format!("\n  {}", TOLD.strip_prefix("sheaf: ").unwrap());
    assert!(status.stdout.contains("7 of 8 hosts answer: h[1-4,6-8]\n"), "{status:?}");
    assert!(status.stdout.contains(&line), "{status:?}");
    only_h5_is_missed(&grep(&machines), why);
    assert_eq!(machines.run(&["down"]).code, Some(0));
}

#[test]
fn inner_host_that_does_not_answer_holds_those_below_it_up_once() {
    let _turn = turn();
    let tuning = "[tuning]\nssh_connect_timeout_ms = 2000\nssh_retries = 0\n";
    let Some(machines) = machines(8, "1x2x4", tuning) else { return };
    machines.cut(5);
    // Another one below it has a reason of its own.
    std::fs::write(machines.home(7, ".ssh/authorized_keys"), "").unwrap();
    let run = grep(&machines);
    all_answer(&run, "h[1-4,6,8]");
    assert_eq!(run.code, Some(4), "{run:?}");
    let told = |host: &str, why: &str| {
        let mut lines = run.stderr.lines();
        lines.any(|line| line.starts_with(host) && line.contains(why))
    };
    assert!(told("h5: ", "connect to host h5 port 22: "), "{run:?}");
    assert!(told("h7: ", "(EACCES): not started: root@h7: Permission denied"), "{run:?}");
    let from_here = "sheaf: h[6,8]: started from here, as their parents could not be started";
    assert!(told(from_here, ""), "{run:?}");
}

#[test]
fn inner_hosts_that_cannot_serve_are_missed_alone_and_come_back() {
    let _turn = turn();
    let tuning = "[tuning]\nrelaunch_ms = 500\n";
    let Some(machines) = machines(8, "1x2x4", tuning) else { return };
    // Nothing can be written where the program is to be: a file is in the way, and the other place
    // is read-only.
    let read_only = ["-o", "remount,ro", "/var/tmp"];
    assert!(machines.command(5, "mount", &read_only).status().unwrap().success());
    std::fs::remove_dir_all(machines.home(5, ".cache")).unwrap();
    machines.write(5, ".cache", "");
    let begun = Instant::now();
    only_h5_is_missed(&grep(&machines), "not started: ");
    assert!(begun.elapsed() < Duration::from_secs(20));

    let keys = machines.home(5, ".ssh/authorized_keys");
    let kept = std::fs::read(&keys).unwrap();
    std::fs::remove_file(machines.home(5, ".cache")).unwrap();
    std::fs::write(&keys, "").unwrap();
    let up = machines.run(&["up"]);
    assert_eq!(up.code, Some(4), "{up:?}");
    only_h5_is_missed(&grep(&machines), "(EACCES): not started: root@h5: Permission denied");
    std::fs::write(&keys, kept).unwrap();
    std::fs::set_permissions(&keys, PermissionsExt::from_mode(0o600)).unwrap();
    wait_until("h5 is back", || grep(&machines).code == Some(0));
    let planned: BTreeMap<u64, u64> =
        (1..=2).map(|rank| (rank, 0)).chain((0..8).map(|leaf| (3 + leaf, 1 + leaf / 4))).collect();
    wait_until("every node is at its place", || parents(&machines) == planned);
    assert_eq!(machines.run(&["down"]).code, Some(0));
}

/// It has lost its key for this user's host, or has no room for the program.
#[test]
fn inner_host_with_another_key_or_a_full_disk_is_missed_alone() {
    let _turn = turn();
    let Some(machines) = machines(8, "1x2x4", "[tuning]\nrelaunch_ms = 0\n") else { return };
    let known = machines.home(LOGIN, ".ssh/known_hosts");
    let kept = std::fs::read_to_string(&known).unwrap();
    let other = machines.dir().join("other_key");
    keygen(&other);
    let other = std::fs::read_to_string(other.with_extension("pub")).unwrap();
    let right = kept.replace("h*", "h*,!h5");
    std::fs::write(&known, format!("{right}h5 {other}")).unwrap();
    only_h5_is_missed(&grep(&machines), "(EACCES): not started: ");

    std::fs::write(&known, kept).unwrap();
    let script = "mkdir -p .cache && mount -t tmpfs -o size=256k none .cache \
                  && exec mount -o remount,size=256k /var/tmp";
    assert!(machines.command(5, "sh", &["-c", script]).status().unwrap().success());
    let run = grep(&machines);
    only_h5_is_missed(&run, "(ENOSPC): not started: ");
    assert!(run.stderr.contains("No space left on device"), "{run:?}");
}

/// What drops packets without a word is asked once, and those below it do not wait for more.
#[test]
fn inner_host_that_says_nothing_for_long_is_asked_once() {
    let _turn = turn();
    let tuning = "[tuning]\nssh_connect_timeout_ms = 5000\n";
    let Some(machines) = machines(8, "1x2x4", tuning) else { return };
    let rules = format!(
        "table inet wall {{ chain in {{ type filter hook input priority 0; ip saddr {} drop; }}; }}\n",
        address(LOGIN)
    );
    if !machines.firewall(5, &rules) {
        return sheaf_testing::skipped("nftables cannot be used here");
    }
    let begun = Instant::now();
    let run = machines.run(&["-v", "grep", "equal", "/root/data"]);
    println!("took {:?}", begun.elapsed());
    all_answer(&run, "h[1-4,6-8]");
    assert!(run.stderr.contains("port 22: Connection timed out"), "{run:?}");
    assert!(!run.stderr.contains("failed, try 1 of 2"), "{run:?}");
}

#[test]
fn dead_inner_host_of_an_auto_tree_is_the_only_one_missing() {
    let _turn = turn();
    let Some(machines) = machines(40, "auto", "[tuning]\nrelaunch_ms = 0\n") else { return };
    assert_eq!(machines.run(&["up"]).code, Some(0));
    let inner =
        machines.nodes().into_values().filter_map(|(_, above)| (above > 0).then_some(above));
    let inner: std::collections::BTreeSet<u64> = inner.collect();
    let nodes = machines.nodes();
    let host = inner.iter().map(|rank| nodes[rank].0.clone()).next_back().unwrap();
    assert_eq!(machines.run(&["down"]).code, Some(0));
    let number: usize = host.strip_prefix('h').unwrap().parse().unwrap();
    machines.stop_sshd(number);
    let begun = Instant::now();
    let run = grep(&machines);
    println!("{host} is dead; took {:?}", begun.elapsed());
    assert_eq!(run.code, Some(4), "{run:?}");
    assert!(run.stderr.starts_with(&format!("{host}: ")), "{run:?}");
    assert!(run.stderr.contains("sheaf: 39 of 40 members succeeded; 1 host silent"), "{run:?}");
    assert!(run.stderr.contains(": started from here, as their parents could not be"), "{run:?}");
}
