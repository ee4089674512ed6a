//! A change that is ended before it is done says what it has done.
use rustix::process::Signal;
use serde_json::Value;
use sheaf_testing::home::{Home, Run};
use sheaf_testing::sessions::{Running, Up, turn, wait_until};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Files of a directory whose change takes longer than it takes to end it.
const MANY: usize = 40_000;
const HOSTS: [&str; 2] = ["n1", "n2"];

/// Two empty exports, and the option for them.
fn home() -> (Home, String) {
    let home = Home::new();
    for host in HOSTS {
        std::fs::create_dir_all(path(&home, host, "")).unwrap();
    }
    let export = home.path().join("export/%h").to_str().unwrap().to_owned();
    (home, export)
}

fn path(home: &Home, host: &str, name: &str) -> PathBuf {
    home.path().join("export").join(host).join(name)
}

/// A directory with many files on each host.
fn populate(home: &Home) {
    for host in HOSTS {
        let dir = path(home, host, "t");
        std::fs::create_dir_all(&dir).unwrap();
        for number in 0..MANY {
            std::fs::File::create(dir.join(number.to_string())).unwrap();
        }
    }
}

fn start(home: &Home, export: &str, args: &[&str]) -> Running {
    let common = ["--embedded", "2", "--export", export];
    Running::start(home.command(&[&common, args].concat()).stdin(Stdio::piped()))
}

fn entries(dir: &Path) -> usize {
    std::fs::read_dir(dir).map_or(0, Iterator::count)
}

/// How many names are gone, the directories among them.
fn removed(home: &Home) -> usize {
    let of = |host| match path(home, host, "t") {
        dir if dir.exists() => MANY - entries(&dir),
        _ => MANY + 1,
    };
    HOSTS.iter().copied().map(of).sum()
}

/// How many names have the mode 0600, the directories among them.
fn changed(home: &Home) -> usize {
    let of = |host: &&str| {
        let entries = std::fs::read_dir(path(home, host, "t")).unwrap();
        let modes =
            entries.map(|entry| entry.unwrap().metadata().unwrap().permissions().mode() & 0o777);
        let own = std::fs::metadata(path(home, host, "t")).unwrap().permissions().mode() & 0o777;
        modes.chain([own]).filter(|mode| *mode == 0o600).count()
    };
    HOSTS.iter().map(of).sum()
}

/// The number in `… 12 files`, or `… at least 12 files`.
#[track_caller]
fn told_files(run: &Run, done: &str) -> usize {
    let line = run.stderr.lines().find(|line| line.starts_with(done));
    let line = line.unwrap_or_else(|| panic!("no line {done:?}: {run:?}"));
    let (_, counted) = line.rsplit_once(": ").unwrap_or_else(|| panic!("{run:?}"));
    let (files, noun) = counted.split_once(' ').unwrap_or_else(|| panic!("{run:?}"));
    assert!(noun.starts_with("file"), "{run:?}");
    files.parse().unwrap_or_else(|_| panic!("{run:?}"))
}

#[track_caller]
fn summary(run: &Run) -> Value {
    let last = run.stdout.lines().last().unwrap_or_else(|| panic!("no summary: {run:?}"));
    serde_json::from_str(last).unwrap()
}

/// What is told is something, and no more than what was done.
#[track_caller]
fn is_true(told: usize, done: usize, run: &Run) {
    assert!(0 < told && told <= done, "{told} of {done}: {run:?}");
}

/// Ends a change once so many are changed, and checks that what it says of itself is so.
#[track_caller]
fn interrupt(args: &[&str], signal: Signal, home: &Home, export: &str, count: fn(&Home) -> usize) {
    let before = count(home);
    let change = start(home, export, args);
    wait_until("it has begun", || count(home) > before);
    change.signal(signal);
    let run = change.wait();
    assert_eq!(run.code, Some(130), "too quick for this test? {run:?}");
    let done = count(home) - before;
    if args[0] == "--json" {
        let changed = &summary(&run)["changed"];
        assert_eq!(changed["complete"], false, "{run:?}");
        is_true(usize::try_from(changed["files"].as_u64().unwrap()).unwrap(), done, &run);
        return;
    }
    is_true(told_files(&run, "removed on n"), done, &run);
    assert!(run.stderr.contains(": interrupted before it was done (ECANCELED)"), "{run:?}");
    assert!(run.stderr.contains("0 of 2 members succeeded; 2 hosts"), "{run:?}");
}

#[test]
fn long_change_that_is_ended_says_how_much_is_changed() {
    let _turn = turn();
    let (home, export) = home();
    populate(&home);
    interrupt(&["--json", "chmod", "-R", "600", "@all:/t"], Signal::INT, &home, &export, changed);
    interrupt(&["rm", "-r", "@all:/t"], Signal::INT, &home, &export, removed);
    interrupt(&["--json", "rm", "-r", "@all:/t"], Signal::TERM, &home, &export, removed);
    // Its time is over before it is done: how long that takes is another matter on each machine.
    let ended = ["0.4", "0.2", "0.1", "0.8", "1.6"].into_iter().any(|seconds| {
        populate(&home);
        let run =
            start(&home, &export, &["--timeout", seconds, "--json", "rm", "-r", "@all:/t"]).wait();
        let (told, done) = (&summary(&run)["changed"], removed(&home));
        let files = usize::try_from(told["files"].as_u64().unwrap()).unwrap();
        assert!(files <= done, "{files} of {done}: {run:?}");
        assert_eq!(told["complete"], run.code == Some(0), "{run:?}");
        run.code == Some(4) && files > 0
    });
    assert!(ended, "too quick, or too slow, for this test");
}

/// Four files, of which the first comes soon and the last takes for ever.
fn sources(home: &Home) -> Vec<String> {
    let source = |name| home.write(name, &"x".repeat(1 << 20)).to_str().unwrap().to_owned();
    ["1", "2", "3", "4"].map(source).into()
}

#[test]
fn copy_that_is_ended_says_which_files_are_there() {
    let _turn = turn();
    for ended in ["interrupted", "late"] {
        let (home, export) = home();
        let sources = sources(&home);
        let mut args = vec!["cp", "--bwlimit", "800K"];
        args.extend(sources.iter().map(String::as_str));
        args.push("@all:/");
        let timeout: &[&str] = if ended == "late" { &["--timeout", "4"] } else { &[] };
        let copy = start(&home, &export, &[timeout, &args].concat());
        if ended == "interrupted" {
            wait_until("a file is there", || {
                HOSTS.iter().all(|host| path(&home, host, "1").exists())
            });
            copy.signal(Signal::INT);
        }
        let run = copy.wait();
        assert_eq!(run.code, Some(if ended == "late" { 4 } else { 130 }), "{run:?}");
        let there: usize = HOSTS.iter().map(|host| entries(&path(&home, host, ""))).sum();
        assert_eq!(told_files(&run, "copied to n[1-2]: "), there, "{run:?}");
        let why =
            if ended == "late" { "not done within 4 s" } else { "interrupted before it was done" };
        assert!(run.stderr.contains(&format!("n[1-2]: {why} (E")), "{run:?}");
    }
}

#[test]
fn copy_in_place_that_is_ended_says_what_is_cut() {
    let _turn = turn();
    let (home, export) = home();
    let sources = sources(&home);
    let args = ["--json", "cp", "--no-atomic", "--bwlimit", "300K", &sources[0], "@all:/f"];
    let copy = start(&home, &export, &args);
    let has_some =
        |host: &&str| std::fs::metadata(path(&home, host, "f")).is_ok_and(|file| file.len() > 0);
    wait_until("a part is there", || HOSTS.iter().all(&has_some));
    copy.signal(Signal::INT);
    let run = copy.wait();
    assert_eq!(run.code, Some(130), "{run:?}");
    let changed = &summary(&run)["changed"];
    assert_eq!(changed["files"], 0, "{run:?}");
    assert_eq!(changed["complete"], false, "{run:?}");
    assert_eq!(changed["in_part"]["hosts"], "n[1-2]", "{run:?}");
    let bytes = std::fs::metadata(path(&home, "n1", "f")).unwrap().len();
    assert!(run.stdout.contains(&format!("\"{bytes} bytes were written in place\"")), "{run:?}");
}

#[test]
fn write_into_a_file_that_is_ended_says_how_much_came() {
    let _turn = turn();
    for (way, ended) in
        [("--in-place", "interrupted"), ("--append", "interrupted"), ("--in-place", "late")]
    {
        let (home, export) = home();
        HOSTS.iter().for_each(|host| std::fs::write(path(&home, host, "f"), "old").unwrap());
        let timeout: &[&str] = if ended == "late" { &["--timeout", "3"] } else { &[] };
        let mut write = start(&home, &export, &[timeout, &["write", way, "@all:/f"]].concat());
        let mut stdin = write.stdin();
        stdin.write_all(&vec![b'x'; 1 << 20]).unwrap();
        let len = |host: &str| std::fs::metadata(path(&home, host, "f")).unwrap().len();
        if ended == "interrupted" {
            wait_until("a part is there", || HOSTS.iter().all(|host| len(host) > 512 << 10));
            write.signal(Signal::INT);
        }
        let run = write.wait();
        drop(stdin);
        assert_eq!(run.code, Some(if ended == "late" { 4 } else { 130 }), "{run:?}");
        assert!(run.stderr.starts_with("written in part on n[1-2]: 2 files\n"), "{run:?}");
        let (old, gone) =
            if way == "--append" { (3, "") } else { (0, "; the old content is gone") };
        for host in HOSTS {
            let told = format!("{} bytes were written{gone}", len(host) - old);
            assert!(run.stderr.contains(&told), "{told} {run:?}");
        }
    }
}

#[test]
fn new_file_that_is_ended_is_there_in_part() {
    let _turn = turn();
    let (home, export) = home();
    let mut write =
        start(&home, &export, &["--timeout", "3", "write", "--create", "--excl", "@all:/new"]);
    let mut stdin = write.stdin();
    stdin.write_all(&vec![b'x'; 1 << 20]).unwrap();
    let run = write.wait();
    drop(stdin);
    assert_eq!(run.code, Some(4), "{run:?}");
    assert!(run.stderr.starts_with("written in part on n[1-2]: 2 files\n"), "{run:?}");
    let bytes = std::fs::metadata(path(&home, "n2", "new")).unwrap().len();
    assert!(run.stderr.contains(&format!("{bytes} bytes were written")), "{run:?}");
}

/// Requests wait in the socket of a host that is stopped, and behind them that they are given up.
#[test]
fn cancelled_request_is_not_executed_by_a_resumed_host() {
    let _turn = turn();
    const FILES: usize = 16;
    let (home, export) = home();
    for host in HOSTS {
        (0..FILES).for_each(|number| {
            std::fs::write(path(&home, host, &format!("f{number}")), "").unwrap()
        });
    }
    let up = Up::at(home, &["--processes", "2", "--export", &export]);
    up.servers["n2"].signal(Signal::STOP);
    let removal = |number| {
        let file = format!("@all:/f{number}");
        let args = ["--session", sheaf_testing::sessions::NAME, "--timeout", "2", "rm", &file];
        Running::start(up.home.command(&args).stdin(Stdio::null()))
    };
    let removals: Vec<Running> = (0..FILES).map(removal).collect();
    for removal in removals {
        let run = removal.wait();
        assert_eq!(run.code, Some(4), "{run:?}");
        assert!(run.stderr.starts_with("removed on n1: 1 file\n"), "{run:?}");
        let told = "n2: no answer within 2 s; it may have done it, or may do it yet (ETIMEDOUT)";
        assert!(run.stderr.contains(told), "{run:?}");
    }
    up.servers["n2"].signal(Signal::CONT);
    wait_until("n2 answers", || up.run(&["ls", "n2:/"]).code == Some(0));
    assert_eq!(entries(&path(&up.home, "n2", "")), FILES);
    assert_eq!(entries(&path(&up.home, "n1", "")), 0);
}
