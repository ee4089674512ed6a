//! Sessions over ssh, on hosts of this machine.
mod cache;
mod clients;
mod doctor;
mod inner;
mod links;

use crate::attach::joins_by_token;
use crate::machines::{LOGIN, Machines};
use rustix::process::Signal;
use sheaf_testing::home::Run;
use sheaf_testing::sessions::{Process, turn, wait_until};
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

const HOSTS: usize = 32;
/// Of those that are sent the program, which is much larger than one that is installed.
const BARE_HOSTS: usize = 12;
/// A session whose root is gone leaves nothing behind on any host after this.
const END_MAX: Duration = Duration::from_secs(10);
/// When a host is lost the others answer within this, once that has been noticed.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// Hosts with a configuration for ssh and a file `/root/data` each.
fn machines(count: usize, tree: &str, more: &str) -> Option<Machines> {
    Some(configured(Machines::new(count)?, count, tree, more))
}

/// The same, which have never had the program.
fn bare_machines(count: usize, tree: &str, more: &str) -> Option<Machines> {
    Some(configured(Machines::bare(count)?, count, tree, more))
}

fn configured(machines: Machines, count: usize, tree: &str, more: &str) -> Machines {
    let config = format!("[cluster.lab]\nhosts = \"h[1-{count}]\"\ntree = \"{tree}\"\n{more}");
    machines.write(LOGIN, "sheaf.toml", &config);
    for host in 1..=count {
        machines.write(host, "data", &format!("equal\nonly h{host}\n"));
    }
    machines
}

#[track_caller]
fn all_answer(run: &Run, hosts: &str) {
    assert_eq!(run.stdout, format!("{hosts}:/root/data:equal\n"), "{run:?}");
}

/// The program in the cache of a host: how many there are, and one's inode.
fn cached(machines: &Machines, host: usize) -> (usize, u64) {
    use std::os::unix::fs::MetadataExt;
    let Ok(hashes) = std::fs::read_dir(machines.home(host, ".cache/sheaf/bin")) else {
        return (0, 0);
    };
    let files = hashes.flat_map(|hash| std::fs::read_dir(hash.unwrap().path()).unwrap());
    let inodes: Vec<u64> = files.map(|file| file.unwrap().metadata().unwrap().ino()).collect();
    (inodes.len(), inodes.first().copied().unwrap_or(0))
}

fn nothing_runs(machines: &Machines) -> bool {
    machines.hosts().all(|host| machines.processes(host).is_empty())
}

#[test]
fn hosts_are_sent_the_program_once_and_answer() {
    let _turn = turn();
    let Some(machines) = bare_machines(BARE_HOSTS, "1x3x4", "") else { return };
    let run = machines.run(&["grep", "equal", "/root/data"]);
    all_answer(&run, "h[1-12]");
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    let first: Vec<_> = (1..=BARE_HOSTS).map(|host| cached(&machines, host)).collect();
    assert!(first.iter().all(|(files, _)| *files == 1), "{first:?}");
    wait_until("the command's servers have ended", || nothing_runs(&machines));
    assert!((1..=BARE_HOSTS).all(|host| machines.logins(host) == 1));

    let run = machines.run(&["stat", "/root/data"]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    let second: Vec<_> = (1..=BARE_HOSTS).map(|host| cached(&machines, host)).collect();
    assert_eq!(first, second);
}

#[test]
fn clean_removes_the_program_from_hosts() {
    let _turn = turn();
    let Some(machines) = bare_machines(3, "1x3", "") else { return };
    // Other directories of sessions and recordings than those of this machine.
    let script = "mkdir -pm 700 /tmp/sheaf-0 && mount -t tmpfs -o mode=700 none /tmp/sheaf-0 && \
                  exec mount -t tmpfs none /dev/shm";
    for host in 1..=3 {
        assert!(machines.command(host, "sh", &["-c", script]).status().unwrap().success());
    }
    assert_eq!(machines.run(&["stat", "/root/data"]).code, Some(0));
    wait_until("the command's servers have ended", || nothing_runs(&machines));
    let young = machines.run(&["clean", "-y", "-w", "h[1-3]"]);
    assert!(young.stderr.contains("it is younger than 10 minutes"), "{young:?}");
    assert_eq!((young.code, young.stdout.as_str()), (Some(0), ""), "{young:?}");
    for host in 1..=3 {
        let hash = std::fs::read_dir(machines.home(host, ".cache/sheaf/bin")).unwrap().next();
        let program = std::fs::File::open(hash.unwrap().unwrap().path().join("sheaf")).unwrap();
        program.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
    }
    // A session that stays keeps its program.
    assert_eq!(machines.run(&["up", "--session", "stays"]).code, Some(0));
    let kept = machines.run(&["clean", "-y", "--session", "stays"]);
    assert!(kept.stderr.contains("uses it"), "{kept:?}");
    assert!((1..=3).all(|host| cached(&machines, host).0 == 1), "{kept:?}");
    assert_eq!(machines.run(&["down", "stays"]).code, Some(0));
    wait_until("the session's servers have ended", || nothing_runs(&machines));

    let run = machines.run(&["clean", "-y", "-w", "h[1-3]"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains(" h[1-3]:/root/.cache/sheaf/bin/"), "{run:?}");
    assert!((1..=3).all(|host| cached(&machines, host).0 == 0), "{run:?}");
    all_answer(&machines.run(&["grep", "equal", "/root/data"]), "h[1-3]");
}

#[test]
fn no_ssh_stays_and_a_session_whose_root_is_killed_ends() {
    let _turn = turn();
    let Some(machines) = machines(HOSTS, "1x4x8", "") else { return };
    let up = machines.run(&["up"]);
    assert_eq!(up.code, Some(0), "{up:?}");
    for host in machines.hosts() {
        wait_until("ssh has ended", || machines.processes_called(host, "ssh").is_empty());
    }
    all_answer(&machines.run(&["grep", "equal", "/root/data"]), "h[1-32]");
    // Whoever looks at the processes of a host sees nothing that lets him in.
    for process in (1..=HOSTS).flat_map(|host| machines.processes(host)) {
        let arguments = process.arguments();
        assert_eq!(arguments[1], "serve");
        assert!(arguments[2..].iter().all(|argument| argument == "--detached"), "{arguments:?}");
    }
    let root: Vec<Process> = machines.processes(LOGIN);
    assert_eq!(root.len(), 1, "{root:?}");
    root[0].signal(Signal::KILL);
    let killed = Instant::now();
    wait_until("every process has ended", || nothing_runs(&machines));
    let took = killed.elapsed();
    println!("every process of {HOSTS} hosts ended {took:?} after the root was killed");
    assert!(took < END_MAX, "{took:?}");
}

/// The time to start is each host's: many that come one after the other may take longer together.
#[test]
fn session_waits_for_as_long_as_hosts_come() {
    use std::os::unix::fs::PermissionsExt;
    let _turn = turn();
    let tuning = "ssh = \"/root/slowly\"\n[tuning]\nstart_timeout_ms = 7000\nssh_starts_max = 1\n";
    let Some(machines) = machines(5, "flat", tuning) else { return };
    // A login that is slow holds up no other one; these wait for each other.
    machines.write(LOGIN, "slowly", "#!/bin/sh\nflock lock sleep 2; exec ssh \"$@\"\n");
    let slowly = machines.home(LOGIN, "slowly");
    std::fs::set_permissions(slowly, std::fs::Permissions::from_mode(0o755)).unwrap();
    let begun = Instant::now();
    let up = machines.run(&["up"]);
    assert_eq!(up.code, Some(0), "{up:?}");
    assert!(begun.elapsed() > Duration::from_secs(7), "they have come sooner");
    assert_eq!(machines.run(&["down"]).code, Some(0));
}

#[test]
fn failed_logins_are_named_with_the_reason_in_time() {
    let _turn = turn();
    let tuning = "[tuning]\nssh_connect_timeout_ms = 5000\nssh_login_timeout_ms = 15000\nssh_retries = 0\n\
                  relaunch_ms = 0\n";
    let Some(machines) = machines(12, "flat", tuning) else { return };
    std::fs::write(machines.home(3, ".ssh/authorized_keys"), "").unwrap();
    machines.stop_sshd(5);
    machines.stop_sshd(7);
    machines.start_sshd(7, "ForceCommand sleep 1000");
    machines.signal_sshd(9, "STOP");
    let begun = Instant::now();
    let up = machines.run(&["up"]);
    let took = begun.elapsed();
    println!("up took {took:?}");
    assert_eq!(up.code, Some(4), "{up:?}");
    let run = machines.run(&["grep", "equal", "/root/data"]);
    assert!(up.stderr.starts_with("session lab: 8 of 12 hosts"), "{up:?}, then {run:?}");
    all_answer(&run, "h[1-2,4,6,8,10-12]");
    assert_eq!(run.code, Some(4));
    let mut lines: Vec<&str> = run.stderr.lines().collect();
    lines.sort_unstable();
    let told = [
        "h3: it does not serve (EACCES): not started: root@h3: Permission denied (publickey",
        "h5: not reached (EHOSTDOWN): not started: ssh: connect to host h5 port 22: Connection refused",
        "h7: host is down (EHOSTDOWN): not started: no login within 15 s (ssh_login_timeout_ms)",
        "h9: host is down (EHOSTDOWN): not started: Connection timed out during banner exchange",
        "sheaf: 8 of 12 members succeeded; 4 hosts silent",
    ];
    assert_eq!(lines.len(), told.len(), "{run:?}");
    for (line, told) in lines.iter().zip(told) {
        assert!(line.starts_with(told), "{line}: {told}");
    }
    machines.signal_sshd(9, "CONT");
}

#[test]
fn host_without_its_cable_is_missed_and_comes_again_with_it() {
    let _turn = turn();
    let tuning = "[tuning]\nssh_connect_timeout_ms = 1000\nssh_retries = 0\n";
    let Some(machines) = machines(4, "flat", tuning) else { return };
    machines.cut(2);
    let run = machines.run(&["grep", "equal", "/root/data"]);
    all_answer(&run, "h[1,3-4]");
    assert_eq!(run.code, Some(4), "{run:?}");
    assert!(run.stderr.starts_with("h2: host is down (EHOSTDOWN): not started: "), "{run:?}");
    machines.mend(2);
    wait_until("all hosts answer", || {
        machines.run(&["grep", "equal", "/root/data"]).code == Some(0)
    });
}

/// How long ago the root has noticed that the node `rank` is lost.
fn noticed_ago(machines: &Machines, rank: u64) -> Option<Duration> {
    let shown = machines.run(&["--timeout", "1", "tree", "show", "--json"]);
    let mut lines =
        shown.stdout.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let node = lines.find(|line| line["type"] == "node" && line["rank"] == rank)?;
    let is_lost = node["link"]["state"] == "lost" && node["link"]["parent"] == 0;
    is_lost.then(|| node["link"]["since_ms"].as_u64().map(Duration::from_millis))?
}

/// Rank and parent of every node of a tree 1x4x8 as it was planned.
fn planned() -> BTreeMap<u64, u64> {
    let inner = (1..=4).map(|rank| (rank, 0));
    inner.chain((0..32).map(|leaf| (5 + leaf, 1 + leaf / 8))).collect()
}

fn parents(machines: &Machines) -> BTreeMap<u64, u64> {
    machines.nodes().into_iter().map(|(rank, (_, parent))| (rank, parent)).collect()
}

#[test]
fn host_whose_link_is_cut_is_missed_and_comes_back_with_it() {
    let _turn = turn();
    let tuning = "[tuning]\nheartbeat_ms = 200\nheartbeats_lost_max = 5\nrelaunch_ms = 500\n\
                  ssh_connect_timeout_ms = 2000\n";
    let Some(machines) = machines(HOSTS, "1x4x8", tuning) else { return };
    assert_eq!(machines.run(&["up"]).code, Some(0));
    let answer = || machines.run(&["--timeout", "4", "grep", "equal", "/root/data"]);
    all_answer(&answer(), "h[1-32]");
    // An inner node runs there as well as a server.
    machines.cut(1);
    let mut answered = Instant::now();
    wait_until("the others answer", || {
        let run = answer();
        answered = Instant::now();
        run.stdout == "h[2-32]:/root/data:equal\n"
    });
    let ago = noticed_ago(&machines, 1).expect("the root has lost it");
    let took = ago.saturating_sub(answered.elapsed());
    println!("31 hosts answer {took:?} after the loss was noticed");
    assert!(took < ANSWER_MAX, "{took:?}");
    // What nobody can reach any more ends by itself, and only then the host is started anew.
    wait_until("nothing runs on the host", || machines.processes(1).is_empty());
    machines.mend(1);
    let mended = Instant::now();
    wait_until("the host is back", || answer().code == Some(0));
    println!("32 hosts answer {:?} after the link is back", mended.elapsed());
    wait_until("every node is at its place", || parents(&machines) == planned());
    all_answer(&answer(), "h[1-32]");

    // Processes that are killed one after the other, while their host lives: its inner node and its
    // server.
    for process in machines.processes(9) {
        process.signal(Signal::KILL);
        wait_until("it is missed", || parents(&machines) != planned());
        wait_until("every node is at its place again", || parents(&machines) == planned());
    }
    all_answer(&answer(), "h[1-32]");
    assert_eq!(machines.run(&["down"]).code, Some(0));
    wait_until("every process has ended", || nothing_runs(&machines));
}

/// How often somebody was taken in, by the session's log.
fn taken_in(machines: &Machines) -> usize {
    let log = std::fs::read_to_string(machines.home(LOGIN, "session.log")).unwrap();
    log.matches("a node is taken in").count()
}

/// A host that says nothing for a while, and goes on when it has been started again, or is about to
/// be: one of the two processes has the place, and the other ends.
#[test]
fn host_that_comes_back_while_it_is_started_again_is_there_once() {
    let _turn = turn();
    let tuning = "[tuning]\nheartbeat_ms = 200\nheartbeats_lost_max = 5\nrelaunch_ms = 300\n";
    let Some(machines) = machines(3, "flat", tuning) else { return };
    assert_eq!(machines.run(&["--log", "session.log", "up"]).code, Some(0));
    let answer = || machines.run(&["--timeout", "5", "grep", "equal", "/root/data"]);
    all_answer(&answer(), "h[1-3]");
    for (round, ms) in [1_300, 1_600, 2_000, 2_600, 4_000].into_iter().enumerate() {
        let pause = Duration::from_millis(ms);
        let servers = machines.processes(2);
        if round % 2 == 0 {
            servers.iter().for_each(|server| server.signal(Signal::STOP));
            std::thread::sleep(pause);
            servers.iter().for_each(|server| server.signal(Signal::CONT));
        } else {
            machines.cut(2);
            std::thread::sleep(pause);
            machines.mend(2);
        }
        wait_until("it is back", || answer().code == Some(0));
        wait_until("one server is left", || machines.processes(2).len() == 1);
        let before = taken_in(&machines);
        std::thread::sleep(Duration::from_secs(2));
        assert_eq!(taken_in(&machines), before, "two take turns after {ms} ms");
        all_answer(&answer(), "h[1-3]");
    }
    assert!(taken_in(&machines) < 40, "{}", taken_in(&machines));
    assert_eq!(machines.run(&["down"]).code, Some(0));
    wait_until("every process has ended", || nothing_runs(&machines));
}

/// A host that hangs in a deep tree and is started anew: what hung never does anything again.
#[test]
fn server_that_hangs_is_ended_when_another_takes_its_place() {
    let _turn = turn();
    let tuning = "[tuning]\nheartbeat_ms = 200\nheartbeats_lost_max = 5\nrelaunch_ms = 200\n";
    let Some(machines) = machines(4, "1x2x2", tuning) else { return };
    assert_eq!(machines.run(&["up"]).code, Some(0));
    let answer = || machines.run(&["--timeout", "5", "grep", "equal", "/root/data"]);
    all_answer(&answer(), "h[1-4]");
    // On h2 there is nothing but a server.
    let server = machines.processes(2)[0];
    let sockets = || std::fs::read_to_string(format!("/proc/{}/net/unix", server.pid)).unwrap();
    wait_until("it has its place", || sockets().contains("@sheaf-place-"));
    server.signal(Signal::STOP);
    wait_until("it is missed", || parents(&machines).len() < 7);
    wait_until("it is back", || answer().code == Some(0));
    let left = machines.processes(2);
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(machines.run(&["down"]).code, Some(0));
    wait_until("every process has ended", || nothing_runs(&machines));
}

#[test]
fn host_that_has_left_is_not_started_again_and_a_lost_one_is() {
    let _turn = turn();
    let tuning = "[tuning]\nheartbeat_ms = 200\nheartbeats_lost_max = 5\nrelaunch_ms = 200\n";
    let Some(machines) = machines(4, "1x2x2", tuning) else { return };
    assert_eq!(machines.run(&["up"]).code, Some(0));
    let answer = || machines.run(&["--timeout", "5", "grep", "equal", "/root/data"]);
    all_answer(&answer(), "h[1-4]");
    // On h2 and h4 there is nothing but a server.
    machines.processes(2)[0].signal(Signal::TERM);
    wait_until("h2 has left", || answer().stdout == "h[1,3-4]:/root/data:equal\n");
    let run = answer();
    assert!(run.stderr.starts_with("h2: host is down (EHOSTDOWN): it has left\n"), "{run:?}");
    machines.processes(4)[0].signal(Signal::KILL);
    let joined = " joined: h4 (node ";
    wait_until("h4 is back", || machines.run(&["status"]).stdout.contains(joined));
    // Whoever brought h4 back has looked at h2 as well.
    let status = machines.run(&["status"]);
    assert!(
        status.stdout.contains(" left: h2 (node ") && !status.stdout.contains("joined: h2"),
        "{status:?}"
    );
    all_answer(&answer(), "h[1,3-4]");
    assert!(machines.processes(2).is_empty());
    assert_eq!(machines.run(&["down"]).code, Some(0));
    wait_until("every process has ended", || nothing_runs(&machines));
}

#[test]
fn host_that_ssh_does_not_bring_back_joins_by_token() {
    let _turn = turn();
    let Some(machines) = machines(4, "1x2x2", "[tuning]\nrelaunch_ms = 0\n") else { return };
    let up = machines.run(&["up"]);
    assert_eq!(up.code, Some(0), "{up:?}");
    let grep = || machines.run(&["grep", "equal", "/root/data"]);
    all_answer(&grep(), "h[1-4]");
    machines.processes(2)[0].signal(Signal::KILL);
    wait_until("h2 is lost", || grep().stdout == "h[1,3-4]:/root/data:equal\n");
    let server = joins_by_token(&machines, 2);
    wait_until("h2 answers again", || grep().stdout == "h[1-4]:/root/data:equal\n");
    assert_eq!(machines.nodes()[&4], ("h2".to_owned(), 1), "it is at its place");
    assert_eq!(machines.run(&["down"]).code, Some(0));
    assert_eq!(server.wait().code, Some(0));
    wait_until("no server is left", || nothing_runs(&machines));
}

#[test]
fn new_files_have_the_modes_that_the_callers_umask_leaves() {
    use std::os::unix::fs::PermissionsExt;
    let _turn = turn();
    let Some(machines) = machines(3, "1x1x3", "") else { return };
    let source = machines.home(LOGIN, "source");
    std::fs::write(&source, "text").unwrap();
    std::fs::set_permissions(&source, PermissionsExt::from_mode(0o664)).unwrap();
    let sheaf = machines.dir().join("sheaf");
    let script = format!(
        "s={}; umask 027; $s cp /root/source @all:/root/copy && $s mkdir @all:/root/dir \
         && echo text | $s write --create --mode 0666 @all:/root/written",
        sheaf.display()
    );
    let run = Run::of(machines.command(LOGIN, "sh", &["-c", &script]).output().unwrap());
    let told =
        "copied to h[1-3]: 3 files\nmade on h[1-3]: 3 directories\nwritten on h[1-3]: 3 files\n";
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), told), "{run:?}");
    for host in 1..=3 {
        let mode =
            |name| machines.home(host, name).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("copy"), mode("dir"), mode("written")), (0o640, 0o750, 0o640), "h{host}");
    }
}

#[test]
fn host_that_is_up_but_cannot_serve_is_not_reported_down() {
    let _turn = turn();
    let Some(machines) = machines(4, "1x2x2", "export = \"/root/only\"\n") else { return };
    for host in [1, 2, 4] {
        machines.write(host, "only/data", "equal\n");
    }
    let run = machines.run(&["grep", "equal", "/data"]);
    assert_eq!(run.code, Some(4), "{run:?}");
    let told = "h3: it does not serve (ENOENT): its export /root/only cannot be opened: ";
    assert!(run.stderr.starts_with(told), "{run:?}");
}

#[test]
fn host_that_cannot_serve_says_why_however_often_it_is_started() {
    let _turn = turn();
    let more = "export = \"/root/only\"\n[tuning]\nrelaunch_ms = 100\n";
    let Some(machines) = machines(4, "1x2x2", more) else { return };
    for host in [1, 2, 4] {
        machines.write(host, "only/data", "equal\n");
    }
    let up = machines.run(&["up"]);
    let told = "h3: it does not serve (ENOENT): its export /root/only cannot be opened: ";
    let end = Instant::now() + Duration::from_secs(8);
    while Instant::now() < end {
        let run = machines.run(&["grep", "equal", "/data"]);
        assert_eq!((run.code, run.stdout.as_str()), (Some(4), "h[1-2,4]:/data:equal\n"), "{run:?}");
        assert!(run.stderr.starts_with(told), "{run:?} {up:?}");
    }
    let status = machines.run(&["status"]);
    assert!(!status.stdout.contains(" joined: h3 "), "{status:?}");
    machines.write(3, "only/data", "equal\n");
    wait_until("h3 serves", || machines.run(&["grep", "equal", "/data"]).code == Some(0));
    assert_eq!(machines.run(&["down"]).code, Some(0));
    wait_until("every process has ended", || nothing_runs(&machines));
}

#[test]
fn inner_node_that_cannot_log_in_is_named_with_the_reason() {
    let _turn = turn();
    let tuning = "[tuning]\nssh_retries = 0\nrelaunch_ms = 0\n";
    let Some(machines) = machines(4, "1x2x2", tuning) else { return };
    // h1 starts h2, and h3 starts h4.
    std::fs::remove_file(machines.home(1, ".ssh/key")).unwrap();
    all_answer(&machines.run(&["grep", "equal", "/root/data"]), "h[1-4]");
    // What h1 cannot do, the root does; here it cannot either.
    std::fs::write(machines.home(2, ".ssh/authorized_keys"), "").unwrap();
    let run = machines.run(&["grep", "equal", "/root/data"]);
    all_answer(&run, "h[1,3-4]");
    assert_eq!(run.code, Some(4), "{run:?}");
    let told = "h2: it does not serve (EACCES): from h1: not started: root@h2: Permission denied (publickey";
    assert!(run.stderr.starts_with(told), "{run:?}");
    assert!(run.stderr.ends_with("\nsheaf: 3 of 4 members succeeded; 1 host silent\n"), "{run:?}");
    let json = machines.run(&["--json", "grep", "equal", "/root/data"]);
    let summary: serde_json::Value =
        serde_json::from_str(json.stdout.lines().last().unwrap()).unwrap();
    let silent = &summary["silent"][0];
    assert_eq!((&silent["hosts"], &silent["errno"]), (&"h2".into(), &"EACCES".into()), "{json:?}");
    assert!(
        silent["cause"].as_str().unwrap().starts_with("from h1: not started: root@h2: "),
        "{json:?}"
    );
    // Below a node that could not be started, all are missed for the same reason, and once.
    std::fs::remove_file(machines.home(LOGIN, ".ssh/key")).unwrap();
    let run = machines.run(&["grep", "equal", "/root/data"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(3), ""), "{run:?}");
    assert!(!run.stderr.contains("from "), "{run:?}");
    assert!(run.stderr.contains("not started: root@"), "{run:?}");
}

#[test]
fn address_that_hosts_cannot_reach_is_named_with_what_sets_it() {
    let _turn = turn();
    // Each host has that address itself, and nobody listens there.
    let more =
        "link = \"tls\"\nlisten = \"127.0.0.1\"\n[tuning]\nssh_retries = 0\nrelaunch_ms = 0\n";
    let Some(machines) = machines(2, "flat", more) else { return };
    let run = machines.run(&["grep", "equal", "/root/data"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(3), ""), "{run:?}");
    let told = "h[1-2]: it does not serve (EHOSTUNREACH): not started: ";
    assert!(run.stderr.starts_with(told), "{run:?}");
    assert!(run.stderr.contains("cannot reach the node above at 127.0.0.1:"), "{run:?}");
    assert!(run.stderr.contains(", the root at the address of the setting listen\n"), "{run:?}");
    wait_until("no server is left", || nothing_runs(&machines));
}
