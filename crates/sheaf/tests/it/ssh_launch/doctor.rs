//! `sheaf doctor` over real sshds.
use super::{bare_machines, cached, nothing_runs};
use sheaf_testing::sessions::{turn, wait_until};

#[test]
fn doctor_examines_hosts_before_and_after_a_start() {
    let _turn = turn();
    let Some(machines) = bare_machines(3, "flat", "") else { return };
    let run = machines.run(&["doctor", "-C", "lab", "--all"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let has = |run: &sheaf_testing::home::Run, text: &str| {
        assert!(run.stdout.contains(text), "{text}: {run:?}");
    };
    has(&run, "h[1-3]: ok: login: commands run as root\n");
    has(&run, "h[1-3]: ok: cache: the program will be kept in /root/.cache/sheaf\n");
    has(&run, "h[1-3]: note: ports: TCP was not tried: it does not have this program yet\n");
    has(&run, "h[1-3]: ok: clock: its clock agrees with this machine's (");
    assert!((1..=3).all(|host| cached(&machines, host).0 == 0), "nothing is installed");

    assert_eq!(machines.run(&["stat", "/root/data"]).code, Some(0));
    wait_until("the command's servers have ended", || nothing_runs(&machines));
    let run = machines.run(&["doctor", "-w", "h[1-3]", "--all"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    has(&run, "h[1-3]: ok: cache: the program is in its cache\n");
    has(&run, "h[1-3]: ok: ports: it reaches this machine over TCP\n");
    has(&run, "sheaf runs: sheaf ");

    // A power failure has left an empty program, and a key is gone.
    let hash = std::fs::read_dir(machines.home(2, ".cache/sheaf/bin")).unwrap().next();
    std::fs::write(hash.unwrap().unwrap().path().join("sheaf"), "").unwrap();
    std::fs::write(machines.home(3, ".ssh/authorized_keys"), "").unwrap();
    let run = machines.run(&["doctor", "-w", "h[1-3]"]);
    assert_eq!(run.code, Some(4), "{run:?}");
    has(&run, "h2: note: cache: /root/.cache/sheaf/bin/");
    has(&run, "is damaged: its 0 bytes are not those of its name\n  the next start replaces it");
    has(&run, "h3: problem: login: root@h3: Permission denied (publickey");
    has(&run, "\n2 hosts examined, 1 not: 1 problem, ");
    let up = machines.run(&["up"]);
    assert_eq!(up.code, Some(4), "{up:?}");
    assert!(up.stderr.contains("to find out why: sheaf doctor -C lab -w 'h3'\n"), "{up:?}");
    let joined = machines.run(&["doctor", "--session", "lab", "-x", "h3"]);
    assert_eq!(joined.code, Some(0), "{joined:?}");
    has(&joined, "2 hosts examined: 0 problems, ");
    assert_eq!(machines.run(&["down"]).code, Some(0));
}
