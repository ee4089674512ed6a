//! The program in the caches of hosts, and hosts on which it can be kept only elsewhere.
use super::{all_answer, bare_machines, cached, machines, nothing_runs};
use crate::machines::Machines;
use sheaf_testing::home::Run;
use sheaf_testing::sessions::{turn, wait_until};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

fn grep(machines: &Machines) -> Run {
    machines.run(&["grep", "equal", "/root/data"])
}

/// The cached program of a host.
fn program(machines: &Machines, host: usize) -> PathBuf {
    let bin = machines.home(host, ".cache/sheaf/bin");
    std::fs::read_dir(bin).unwrap().next().unwrap().unwrap().path().join("sheaf")
}

fn sh(machines: &Machines, host: usize, script: &str) {
    assert!(machines.command(host, "sh", &["-c", script]).status().unwrap().success(), "{script}");
}

/// An empty file is what a power failure may leave. Another program would run as root by `--sudo`.
#[test]
fn damaged_cached_program_is_replaced_and_never_run() {
    let _turn = turn();
    let Some(machines) = machines(3, "flat", "") else { return };
    for (host, text) in [(1, ""), (2, "#!/bin/sh\ntouch /root/ran\n")] {
        let file = program(&machines, host);
        // The file is a hard link to the program of all hosts.
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o700)).unwrap();
    }
    let run = grep(&machines);
    all_answer(&run, "h[1-3]");
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    assert!(!machines.home(2, "ran").exists());
    // The script starts the program in the directory of the cache.
    let run = machines.run(&["stat", "-c", "%N", "h[1-3]:/proc/self/cwd"]);
    assert!(run.stdout.contains("-> '/root'") && run.code == Some(0), "{run:?}");
    let right = std::fs::metadata(program(&machines, 3)).unwrap().len();
    for host in 1..=2 {
        assert_eq!(std::fs::metadata(program(&machines, host)).unwrap().len(), right, "h{host}");
    }
    wait_until("the command's servers have ended", || nothing_runs(&machines));
}

/// Homes that are read-only, full, and mounted without the right to run programs.
#[test]
fn hosts_whose_home_is_unfit_keep_the_program_elsewhere() {
    let _turn = turn();
    let Some(machines) = bare_machines(4, "flat", "remote_dir = \"/srv/programs\"\n") else {
        return;
    };
    let mounts = [
        "-o size=1m,mode=700,ro none .cache",
        "-o size=256k,mode=700 none .cache",
        "-o size=64m,mode=700,noexec none .cache",
    ];
    for (host, mount) in (1..).zip(mounts) {
        sh(&machines, host, &format!("mkdir -p .cache && mount -t tmpfs {mount}"));
    }
    // Hosts that have no such directory, and may not make it.
    for host in 1..=3 {
        sh(&machines, host, "mount -t tmpfs -o ro none /srv");
    }
    sh(&machines, 4, "mount -t tmpfs none /srv");
    let run = grep(&machines);
    all_answer(&run, "h[1-4]");
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    for host in 1..=3 {
        sh(&machines, host, "test -x /var/tmp/sheaf-0/bin/*/sheaf");
        assert_eq!(cached(&machines, host).0, 0, "h{host}");
    }
    sh(&machines, 4, "test -x /srv/programs/sheaf-0/bin/*/sheaf");
    // A directory that another user has made first is not used.
    let other = "rm -r /var/tmp/sheaf-0 && mkdir /var/tmp/sheaf-0 && chown 1001 /var/tmp/sheaf-0";
    sh(&machines, 1, other);
    let run = grep(&machines);
    all_answer(&run, "h[2-4]");
    assert!(run.stderr.contains("this directory belongs to another user"), "{run:?}");
}

#[test]
fn installed_program_is_run_and_none_is_sent() {
    let _turn = turn();
    let Some(machines) = bare_machines(3, "flat", "program = \"/opt/sheaf\"\n") else { return };
    for host in 1..=2 {
        let from = machines.dir().join("sheaf");
        let install = format!("mount -t tmpfs none /opt && cp {} /opt/sheaf", from.display());
        sh(&machines, host, &install);
    }
    let run = grep(&machines);
    all_answer(&run, "h[1-2]");
    let told = "h3: it does not serve (ENOENT): not started: /opt/sheaf: not found, or it cannot \
                run (setting program)\n";
    assert!(run.stderr.starts_with(told), "{run:?}");
    assert!((1..=3).all(|host| cached(&machines, host).0 == 0));
}
