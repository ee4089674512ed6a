//! Ctrl-C, a request to end, and a sudden end at any moment: nothing is left.
use rustix::process::Signal;
use sheaf_testing::home::Home;
use sheaf_testing::sessions::{Running, nothing_is_left, of_home, turn, wait_until};
use std::io::Write;
use std::process::Stdio;

const PROCESSES: usize = 32;
const INTERRUPTED: Option<i32> = Some(130);

/// Exports whose `/copy` exists.
fn home() -> (Home, String) {
    let home = Home::new();
    for host in 1..=PROCESSES {
        home.write(&format!("export/n{host}/copy"), "old");
    }
    let export = home.path().join("export/%h").to_str().unwrap().to_owned();
    (home, export)
}

/// Everything beneath the exports is as it was.
#[track_caller]
fn nothing_is_changed(home: &Home) {
    for host in 1..=PROCESSES {
        let dir = home.path().join(format!("export/n{host}"));
        let names: Vec<_> =
            std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["copy"], "n{host}");
        assert_eq!(std::fs::read(dir.join("copy")).unwrap(), b"old", "n{host}");
    }
}

/// A copy of what comes on a pipe that nobody closes: it lasts until it is interrupted.
fn endless_copy(home: &Home, export: &str) -> Running {
    let processes = PROCESSES.to_string();
    let args =
        ["--processes", &processes, "--tree", "1x4x8", "--export", export, "cp", "-", "@all:/copy"];
    Running::start(home.command(&args).stdin(Stdio::piped()))
}

/// Whether this process, and so whatever it starts, ignores a signal: a shell that starts it in the
/// background wants that of `SIGINT`.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(ignored.trim(), 16).unwrap() >> (signal.as_raw() - 1) & 1 == 1
}

#[test]
fn at_any_moment_of_the_start() {
    for signal in [Signal::INT, Signal::TERM] {
        for processes in [1, 2, 5, 12, 30, 1 + 4 + PROCESSES] {
            // Until the program listens, it does what whoever has started it wants.
            if processes == 1 && is_ignored(signal) {
                continue;
            }
            let (home, export) = home();
            let mut copy = endless_copy(&home, &export);
            let stdin = copy.stdin();
            wait_until("so many processes run", || of_home(&home).len() >= processes);
            copy.signal(signal);
            let run = copy.wait();
            drop(stdin);
            // Before the first instruction of the program nobody can turn the signal into a code.
            let at_once = processes == 1 && run.code.is_none();
            assert!(run.code == INTERRUPTED || at_once, "{processes} {signal:?}: {run:?}");
            nothing_is_left(&home);
            nothing_is_changed(&home);
        }
    }
}

#[test]
fn in_the_middle_of_a_copy() {
    for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
        let (home, export) = home();
        let mut copy = endless_copy(&home, &export);
        // More than the pipe and the windows of the tree hold: the copy is under way.
        let mut stdin = copy.stdin();
        stdin.write_all(&vec![b'x'; 6 << 20]).unwrap();
        copy.signal(signal);
        let run = copy.wait();
        let expected = if signal == Signal::KILL { None } else { INTERRUPTED };
        assert_eq!(run.code, expected, "{run:?}");
        nothing_is_left(&home);
        nothing_is_changed(&home);
    }
}

/// What has come already is not written any more.
#[test]
fn in_the_middle_of_writing_what_hosts_sent() {
    const FILES: usize = 4000;
    let _turn = turn();
    for len in [10, 6000] {
        let home = Home::new();
        for file in 0..FILES {
            home.write(&format!("tree/{file}"), &format!("{file:0len$}"));
        }
        let tree = format!("n1:{}", home.path().join("tree").display());
        let args = ["--processes", "1", "cp", "-r", &tree, "got/"];
        let copy = Running::start(&mut home.command(&args));
        let got = || std::fs::read_dir(home.path().join("got/n1/tree")).map_or(0, Iterator::count);
        wait_until("some are there", || got() > 0);
        copy.signal(Signal::INT);
        let run = copy.wait();
        assert_eq!(run.code, INTERRUPTED, "{run:?}");
        assert!((1..FILES).contains(&got()), "{} of {FILES} with {len} bytes", got());
        nothing_is_left(&home);
    }
}

#[test]
fn in_the_middle_of_a_search() {
    let _turn = turn();
    for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
        let home = Home::new();
        let processes = PROCESSES.to_string();
        // Far more than the servers can search before the signal.
        let args =
            ["--processes", &processes, "--tree", "1x4x8", "grep", "-r", "no such line", "/usr"];
        let grep = Running::start(home.command(&args).stdin(Stdio::null()));
        wait_until("all servers run", || of_home(&home).len() > 4 + PROCESSES);
        grep.signal(signal);
        let run = grep.wait();
        let expected = if signal == Signal::KILL { None } else { INTERRUPTED };
        assert_eq!(run.code, expected, "{signal:?}: {run:?}");
        nothing_is_left(&home);
    }
}

#[test]
fn while_a_session_starts() {
    for processes in [2, 9, 20] {
        let home = Home::new();
        let args = ["up", "--foreground", "--processes", "16", "--session", "x"];
        let session = Running::start(home.command(&args).stdin(Stdio::null()));
        wait_until("so many processes run", || of_home(&home).len() >= processes.min(17));
        session.signal(Signal::INT);
        let run = session.wait();
        assert_eq!(run.code, Some(0), "{run:?}");
        nothing_is_left(&home);
    }
}
