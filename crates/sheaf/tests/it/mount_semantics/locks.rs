//! Locks of files as a whole (`flock`) and of ranges (`fcntl`), of processes on several hosts.
use super::hosts::{QUICK, ViewHosts, inside};
use super::python::{Python, have_python};
use rustix::process::Signal;
use sheaf_testing::sessions::{SOON, turn, wait_until};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

/// How long it is looked whether somebody who has to wait waits.
const WAITS: Duration = Duration::from_millis(300);
const TAKE: &str = "fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)";
const SHARE: &str = "fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)";
const FREE: &str = "fcntl.flock(f, fcntl.LOCK_UN)";

/// Hosts, and a process on each that has opened a file of `h1` to read and write it.
fn openers(count: usize, tuning: &str) -> Option<(ViewHosts, Vec<Python>)> {
    if !have_python() {
        return None;
    }
    let hosts = ViewHosts::with(count, tuning, "5")?;
    fs::write(hosts.disk(1, "f"), "0123456789").unwrap();
    let open = |host| {
        let mut python = Python::new(&hosts, host);
        python.must(&format!("f = open('{}', 'r+b')", inside(1, "f")));
        python
    };
    let all = hosts.all().map(open).collect();
    Some((hosts, all))
}

fn is_refused(answer: &str) -> bool {
    matches!(answer, "EAGAIN" | "EACCES")
}

#[test]
fn file_that_is_locked_as_a_whole_is_locked_for_all_hosts() {
    let _turn = turn();
    let Some((_hosts, mut all)) = openers(3, "") else { return };
    // Whoever has it, be it by the owner's own system or by a mount, keeps the others out.
    for holder in 0..all.len() {
        all[holder].must(TAKE);
        for other in (0..all.len()).filter(|other| *other != holder) {
            assert!(is_refused(&all[other].ask(TAKE)), "{other} beside {holder}");
            assert!(is_refused(&all[other].ask(SHARE)), "{other} beside {holder}");
        }
        // What is shared is shared, and nobody has it alone then.
        all[holder].must(SHARE);
        for other in (0..all.len()).filter(|other| *other != holder) {
            all[other].must(SHARE);
        }
        assert!(is_refused(&all[holder].ask(TAKE)), "{holder}");
        all.iter_mut().for_each(|one| {
            one.must(FREE);
        });
    }
    // By a file that was opened again the same process is somebody else, as on one machine.
    all[1].must(TAKE);
    all[1].must(&format!("g = open('{}')", inside(1, "f")));
    assert!(is_refused(&all[1].ask("fcntl.flock(g, fcntl.LOCK_EX | fcntl.LOCK_NB)")));
    // A lock is free when its file is closed, and not before the last who has inherited it closes it.
    all[1].must("h = os.dup(f.fileno())");
    all[1].must("f.close()");
    assert!(is_refused(&all[2].ask(TAKE)));
    all[1].must("os.close(h)");
    wait_until("the lock is free", || all[2].ask(TAKE) == "ok None");
}

#[test]
fn range_that_is_locked_is_locked_for_all_hosts_and_no_other_is() {
    let _turn = turn();
    let Some((_hosts, mut all)) = openers(3, "") else { return };
    for holder in 0..all.len() {
        let (one, two) = ((holder + 1) % 3, (holder + 2) % 3);
        all[holder].must("L.set(f, fcntl.LOCK_EX, 2, 3)");
        assert!(is_refused(&all[one].ask("L.set(f, fcntl.LOCK_EX, 0, 0)")), "{one}");
        assert!(is_refused(&all[two].ask("L.set(f, fcntl.LOCK_SH, 4, 1)")), "{two}");
        all[one].must("L.set(f, fcntl.LOCK_EX, 5, 100)");
        all[two].must("L.set(f, fcntl.LOCK_EX, 0, 2)");
        // Whoever asks is told what is in the way.
        let test = "struct.unpack('hhqqi4x', fcntl.fcntl(f, fcntl.F_GETLK, \
                    struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 2, 1, 0)))[:4]";
        let told = all[one].must(test);
        assert_eq!(told, "(1, 0, 2, 3)", "{one}");
        // A part is given back, another is changed.
        all[holder].must("L.set(f, fcntl.LOCK_UN, 2, 1)");
        all[holder].must("L.set(f, fcntl.LOCK_SH, 3, 1)");
        all[two].must("L.set(f, fcntl.LOCK_EX, 2, 1)");
        all[one].must("L.set(f, fcntl.LOCK_SH, 3, 1)");
        assert!(is_refused(&all[one].ask("L.set(f, fcntl.LOCK_SH, 4, 1)")), "{one}");
        // A process that closes the file, however often it has opened it, has locked nothing of it.
        all[holder].must(&format!("open('{}').close()", inside(1, "f")));
        all[one].must("L.set(f, fcntl.LOCK_SH, 4, 1)");
        all.iter_mut().for_each(|one| {
            one.must("L.set(f, fcntl.LOCK_UN)");
        });
    }
}

#[test]
fn two_kinds_of_locks_know_nothing_of_each_other() {
    let _turn = turn();
    let Some((_hosts, mut all)) = openers(3, "") else { return };
    all[0].must(TAKE);
    all[1].must("L.set(f, fcntl.LOCK_EX)");
    assert!(is_refused(&all[2].ask(TAKE)));
    assert!(is_refused(&all[2].ask("L.set(f, fcntl.LOCK_EX)")));
    all[0].must(FREE);
    all[2].must(TAKE);
    assert!(is_refused(&all[2].ask("L.set(f, fcntl.LOCK_EX)")));
    // By one process: the one is kept when the other is given back.
    all[1].must("L.set(f, fcntl.LOCK_UN)");
    all[2].must("L.set(f, fcntl.LOCK_EX)");
    all[2].must(FREE);
    assert!(is_refused(&all[0].ask("L.set(f, fcntl.LOCK_EX)")));
    all[1].must(TAKE);
}

#[test]
fn lock_waiter_acquires_the_lock_or_can_be_killed() {
    let _turn = turn();
    let Some((hosts, mut all)) = openers(3, "") else { return };
    for (take, free, wait) in [
        (TAKE, FREE, "fcntl.flock(f, fcntl.LOCK_EX)"),
        ("L.set(f, fcntl.LOCK_EX)", "L.set(f, fcntl.LOCK_UN)", "L.wait(f, fcntl.LOCK_EX)"),
    ] {
        for (holder, waiter) in [(0, 1), (1, 2), (2, 0), (1, 0)] {
            all[holder].must(take);
            all[waiter].begin(wait);
            assert_eq!(all[waiter].answer(WAITS), None, "{waiter} does not wait for {holder}");
            all[holder].must(free);
            assert_eq!(all[waiter].answer(SOON).as_deref(), Some("ok None"), "{waiter}");
            all[waiter].must(free);
        }
    }
    // Who is killed while it waits has no lock later on.
    all[0].must(TAKE);
    let mut waits = Python::new(&hosts, 2);
    waits.must(&format!("f = open('{}', 'r+b')", inside(1, "f")));
    waits.begin("fcntl.flock(f, fcntl.LOCK_EX)");
    assert_eq!(waits.answer(WAITS), None);
    let kill = format!("kill -9 {}", waits.pid);
    assert_eq!(hosts.shell(2, &kill).code, Some(0));
    assert_eq!(waits.answer(SOON).as_deref(), Some("ended"));
    all[0].must(FREE);
    all[2].must(TAKE);
}

#[test]
fn locks_of_a_process_that_is_killed_are_free() {
    let _turn = turn();
    let Some((hosts, mut all)) = openers(3, "") else { return };
    for host in hosts.all() {
        let mut holder = Python::new(&hosts, host);
        holder.must(&format!("f = open('{}', 'r+b')", inside(1, "f")));
        holder.must(TAKE);
        holder.must("L.set(f, fcntl.LOCK_EX)");
        for other in &mut all {
            assert!(is_refused(&other.ask(TAKE)) && is_refused(&other.ask("L.set(f, 2)")));
        }
        holder.kill();
        for other in &mut all {
            wait_until("the lock of the file is free", || other.ask(TAKE) == "ok None");
            wait_until("the lock of the range is free", || other.ask("L.set(f, 2)") == "ok None");
            other.must(FREE);
            other.must("L.set(f, fcntl.LOCK_UN)");
        }
    }
}

#[test]
fn locks_of_a_host_whose_mount_is_killed_are_free() {
    let _turn = turn();
    let Some((hosts, mut all)) = openers(3, "") else { return };
    all[1].must(TAKE);
    all[1].must("L.set(f, fcntl.LOCK_EX)");
    assert!(is_refused(&all[2].ask(TAKE)) && is_refused(&all[2].ask("L.set(f, 2)")));
    hosts.mounter(2).signal(Signal::KILL);
    for other in [2, 0] {
        wait_until("the lock of the file is free", || all[other].ask(TAKE) == "ok None");
        wait_until("the lock of the range is free", || all[other].ask("L.set(f, 2)") == "ok None");
        all[other].must(FREE);
        all[other].must("L.set(f, fcntl.LOCK_UN)");
    }
    // Who had them is told.
    assert_eq!(all[1].ask("f.seek(0) or f.read()"), "ENOTCONN");
}

#[test]
fn lock_of_an_open_description_ends_with_it() {
    const OFD: &str =
        "fcntl.fcntl(f, 37, struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0, 0, 0)) != b''";
    let _turn = turn();
    let Some((_hosts, mut all)) = openers(3, "") else { return };
    for holder in 0..all.len() {
        all[holder].must(&format!("g = open('{}', 'r+b')", inside(1, "f")));
        all[holder].must(&OFD.replace("fcntl(f", "fcntl(g"));
        let other = (holder + 1) % 3;
        assert!(is_refused(&all[other].ask(OFD)), "{other}");
        // A copy of the descriptor is of the same description, and another description is not.
        all[holder].must("h = os.dup(g.fileno())");
        all[holder].must("g.close()");
        all[holder].must(&format!("open('{}').close()", inside(1, "f")));
        assert!(is_refused(&all[other].ask(OFD)), "{other}");
        all[holder].must("os.close(h)");
        wait_until("the lock is free", || all[other].ask(OFD) == "ok True");
        all[other]
            .must("fcntl.fcntl(f, 37, struct.pack('hhqqi4x', fcntl.F_UNLCK, 0, 0, 0, 0)) != b''");
    }
}

#[test]
fn interrupted_lock_waiter_never_hangs() {
    const ROUNDS: usize = 200;
    let _turn = turn();
    let Some((_hosts, mut all)) = openers(3, "") else { return };
    all[2].must("L.set(f, fcntl.LOCK_EX)");
    let waiter = &mut all[1];
    waiter.must("import ctypes, random");
    waiter.must("c = ctypes.CDLL(None, use_errno=True)");
    waiter.must("signal.signal(signal.SIGALRM, lambda *a: None) and 0");
    let go = "def go(n):\n  done = 0\n  want = struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0, 0, 0)\n  for i in range(n):\n    \
              signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 4e-4), 0.03)\n    \
              done += c.fcntl(f.fileno(), fcntl.F_SETLKW, want) == -1 and ctypes.get_errno() == errno.EINTR\n  \
              signal.setitimer(signal.ITIMER_REAL, 0)\n  return done\n";
    waiter.must(&format!("exec({go:?}, globals())"));
    waiter.begin(&format!("go({ROUNDS})"));
    let answer = waiter.answer(6 * SOON);
    assert_eq!(answer, Some(format!("ok {ROUNDS}")));
}

#[test]
fn owners_that_wait_for_each_other_get_edeadlk() {
    let _turn = turn();
    let Some((_hosts, mut all)) = openers(3, "") else { return };
    // Two on different hosts, neither of which is the owner.
    all[1].must("L.set(f, fcntl.LOCK_EX, 0, 1)");
    all[2].must("L.set(f, fcntl.LOCK_EX, 1, 1)");
    all[1].begin("L.wait(f, fcntl.LOCK_EX, 1, 1)");
    assert_eq!(all[1].answer(WAITS), None);
    // As Python calls EDEADLK.
    assert_eq!(all[2].ask("L.wait(f, fcntl.LOCK_EX, 0, 1)"), "EDEADLOCK");
    // The other one goes on waiting, and gets the lock.
    all[2].must("L.set(f, fcntl.LOCK_UN, 1, 1)");
    assert_eq!(all[1].answer(SOON).as_deref(), Some("ok None"));
}

#[test]
fn process_that_holds_a_lock_is_known_to_its_host() {
    let _turn = turn();
    let Some((hosts, mut all)) = openers(3, "") else { return };
    let mut holder = Python::new(&hosts, 2);
    holder.must(&format!("f = open('{}', 'r+b')", inside(1, "f")));
    holder.must("L.set(f, fcntl.LOCK_EX, 2, 3)");
    let test = "struct.unpack('hhqqi4x', fcntl.fcntl(f, fcntl.F_GETLK, \
                struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0, 0, 0)))";
    assert_eq!(all[1].must(test), format!("(1, 0, 2, 3, {})", holder.pid));
    assert_eq!(all[2].must(test), "(1, 0, 2, 3, 0)");
}

#[test]
fn script_that_is_locked_elsewhere_can_be_run() {
    let _turn = turn();
    let Some((hosts, mut all)) = openers(2, "") else { return };
    fs::write(hosts.disk(1, "script"), "#!/bin/sh\necho ran\n").unwrap();
    fs::set_permissions(hosts.disk(1, "script"), fs::Permissions::from_mode(0o755)).unwrap();
    all[1].must(&format!("s = open('{}')", inside(1, "script")));
    all[1].must("fcntl.flock(s, fcntl.LOCK_SH)");
    all[1].must("L.set(s, fcntl.LOCK_SH)");
    let run = hosts.shell_at(1, "/root/files", "./script");
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("ran\n", ""));
}

/// A lock file, and locks of ranges, of a process whose owner's server is killed twice.
#[test]
fn locks_survive_a_restart_of_the_owners_server() {
    let _turn = turn();
    let Some((hosts, mut all)) = openers(3, QUICK) else { return };
    all[1].must(TAKE);
    all[1].must("L.set(f, fcntl.LOCK_EX, 2, 3)");
    let other = format!("open('{}', 'r+b')", inside(1, "f"));
    for _ in 0..2 {
        hosts.server(1).signal(Signal::KILL);
        // A lock that is asked for while the owner is away, or soon after that, is never granted.
        wait_until("the owner is back", || {
            all[2].ask(&format!("globals().update(g={other})")) == "ok None"
        });
        assert!(is_refused(&all[2].ask("fcntl.flock(g, fcntl.LOCK_EX | fcntl.LOCK_NB)")));
        assert!(is_refused(&all[2].ask("L.set(g, fcntl.LOCK_EX, 0, 0)")));
        assert_eq!(all[2].ask("L.set(g, fcntl.LOCK_EX, 7, 2)"), "ok None");
        // Also by a program of the owner, once the lock was claimed.
        let mut own = Python::new(&hosts, 1);
        own.must(&format!("f = {other}"));
        assert!(
            is_refused(&own.ask(TAKE)) && is_refused(&own.ask("L.set(f, fcntl.LOCK_EX, 4, 1)"))
        );
    }
    // The holder's open file is lost. Its locks are freed as ever.
    assert_eq!(all[1].ask("f.seek(0) or f.read()"), "EIO");
    all[1].must(FREE);
    assert_eq!(all[2].ask("fcntl.flock(g, fcntl.LOCK_EX | fcntl.LOCK_NB)"), "ok None");
    assert!(is_refused(&all[2].ask("L.set(g, fcntl.LOCK_EX, 0, 0)")));
    all[1].kill();
    wait_until("the lock of the range is free", || {
        all[2].ask("L.set(g, fcntl.LOCK_EX, 0, 0)") == "ok None"
    });
}

/// Another host may have had the lock meanwhile.
#[test]
fn host_that_was_cut_off_has_lost_its_locks_and_files() {
    let _turn = turn();
    let Some((hosts, mut all)) = openers(3, QUICK) else { return };
    fs::write(hosts.disk(1, "data"), "data").unwrap();
    all[1].must(&format!("d = open('{}', 'rb', 0)", inside(1, "data")));
    all[1].must(TAKE);
    hosts.machines.cut(2);
    wait_until("the lock is free", || all[2].ask(TAKE) == "ok None");
    all[2].must(FREE);
    hosts.machines.mend(2);
    let again = format!("len(open('{}', 'rb').read())", inside(1, "data"));
    wait_until("the host is back", || all[1].ask(&again) == "ok 4");
    // All of its open files fail, also those that it has not locked, until they are closed.
    assert_eq!(all[1].ask("d.read(1)"), "EIO");
    assert_eq!(all[1].ask("f.seek(0) or f.read()"), "EIO");
    all[2].must(TAKE);
    // A call that was under way when a link was lost may fail still.
    let open = format!("g = open('{}', 'r+b')", inside(1, "f"));
    wait_until("it opens files again", || all[1].ask(&open).starts_with("ok"));
    assert!(is_refused(&all[1].ask("fcntl.flock(g, fcntl.LOCK_EX | fcntl.LOCK_NB)")));
}
