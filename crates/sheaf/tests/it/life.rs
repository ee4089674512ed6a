//! `--timeout` bounds a command; a host that hangs is named, and fails nobody else.
use rustix::fs::{CWD, FileType, Mode};
use rustix::process::Signal;
use sheaf_testing::home::{Home, Run};
use sheaf_testing::sessions::{NAME, Running, Up, nothing_is_left, of_home, turn, wait_until};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What a busy machine may add to a bound.
const SLACK: Duration = Duration::from_secs(3);

/// Exports of so many hosts, and the option for them.
fn exports(hosts: usize) -> (Home, String) {
    let home = Home::new();
    for host in 1..=hosts {
        std::fs::create_dir_all(home.path().join(format!("export/n{host}"))).unwrap();
    }
    let export = home.path().join("export/%h").to_str().unwrap().to_owned();
    (home, export)
}

/// Ended by itself within `seconds` and one more.
#[track_caller]
fn ended_within(seconds: u64, begun: Instant) {
    let (least, took) = (Duration::from_secs(seconds), begun.elapsed());
    assert!(took >= least && took < least + Duration::from_secs(1) + SLACK, "{took:?}");
}

#[test]
fn timeout_bounds_a_copy_of_what_does_not_come() {
    let _turn = turn();
    let (home, export) = exports(3);
    let args = ["--processes", "3", "--export", &export, "--timeout", "3", "cp", "-", "@all:/copy"];
    let begun = Instant::now();
    let mut copy = Running::start(home.command(&args).stdin(Stdio::piped()));
    let mut stdin = copy.stdin();
    stdin.write_all(&vec![b'x'; 2 << 20]).unwrap();
    let run = copy.wait();
    ended_within(3, begun);
    assert_eq!(run.code, Some(3), "{run:?}");
    assert!(run.stderr.contains("n[1-3]: no answer within 3 s (ETIMEDOUT)"), "{run:?}");
    drop(stdin);
    nothing_is_left(&home);
    assert!(!home.path().join("export/n1/copy").exists());
}

#[test]
fn timeout_bounds_a_cat_that_nobody_reads() {
    let _turn = turn();
    let (home, export) = exports(1);
    home.write("export/n1/big", &"x".repeat(8 << 20));
    let args = ["--processes", "1", "--export", &export, "--timeout", "2", "cat", ":/big"];
    let begun = Instant::now();
    let mut child = home
        .command(&args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let status = child.wait().unwrap();
    ended_within(2, begun);
    assert_eq!(status.code(), Some(4));
    let run = Run::of(child.wait_with_output().unwrap());
    assert_eq!(run.stderr, "sheaf: not done within 2 s, as --timeout asks\n");
    nothing_is_left(&home);
}

/// Runs with a standard input from which nothing comes, and that does not end.
fn unfed(home: &Home, args: &[&str]) -> Run {
    let mut run = Running::start(home.command(args).stdin(Stdio::piped()));
    let stdin = run.stdin();
    let run = run.wait();
    drop(stdin);
    run
}

#[test]
fn timeout_bounds_what_comes_before_hosts_are_asked() {
    let home = Home::new();
    for args in [&["--embedded", "1", "grep", "-f", "-", "/etc/passwd"][..], &["hosts", "-f", "-"]]
    {
        let begun = Instant::now();
        let run = unfed(&home, &[&["--timeout", "1"], args].concat());
        ended_within(1, begun);
        let told = "sheaf: not done within 1 s, as --timeout asks\n";
        assert_eq!((run.code, run.stderr.as_str()), (Some(4), told), "{args:?}: {run:?}");
    }
}

#[test]
fn timeout_bounds_the_start_of_a_session() {
    let _turn = turn();
    // What lists the hosts hangs, for the command or for the session's own process.
    for command in ["sleep 600", "test -e again && sleep 600; touch again; echo n1"] {
        let config =
            format!("[cluster.lab]\nhosts = \"@command: {command}\"\nlaunch = \"processes\"\n");
        let home = Home::with_config(&config);
        let begun = Instant::now();
        let run = unfed(&home, &["--timeout", "2", "up"]);
        ended_within(2, begun);
        assert_eq!(run.code, Some(4), "{run:?}");
        assert!(run.stderr.contains("not done within "), "{run:?}");
        nothing_is_left(&home);
    }
    // What is waited for is named, where it is this command that waits.
    let home = Home::new();
    let pipe = home.path().join("pipe");
    rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    for (hosts, told) in
        [("@command: sleep 600", "command \"sleep 600\""), ("@file:pipe", "pipe to be read")]
    {
        let config = format!("[cluster.lab]\nhosts = \"{hosts}\"\nlaunch = \"processes\"\n");
        home.write("sheaf.toml", &config);
        let run = unfed(&home, &["--timeout", "1", "cat", "/x"]);
        let told = format!("sheaf: not done within 1 s, as --timeout asks; it waits for {told}\n");
        assert_eq!((run.code, run.stderr), (Some(4), told));
    }
    // What has started in time stays.
    let begun = Instant::now();
    let up = Up::new(&["--timeout", "3", "--processes", "2"]);
    wait_until("its time is over", || begun.elapsed() > Duration::from_secs(5));
    let run = up.run(&["grep", "-c", "root", "/etc/passwd"]);
    assert_eq!(run.code, Some(0), "{run:?}");
}

#[test]
fn server_that_is_stopped_fails_nobody_elses_copy() {
    let _turn = turn();
    let (home, export) = exports(4);
    let source = home.write("source", &"text\n".repeat(2 << 20));
    let up = Up::at(home, &["--processes", "4", "--tree", "1x2x2", "--export", &export]);
    up.servers["n2"].signal(Signal::STOP);
    let run = up.run(&["cp", source.to_str().unwrap(), "@all:/copy"]);
    assert_eq!(run.code, Some(4), "{run:?}");
    assert!(run.stderr.lines().any(|line| line.starts_with("n2: ")), "{run:?}");
    assert!(run.stderr.ends_with("1 host silent\n"), "{run:?}");
    for host in ["n1", "n3", "n4"] {
        let copy = std::fs::read(up.home.path().join(format!("export/{host}/copy"))).unwrap();
        assert!(copy == std::fs::read(&source).unwrap(), "{host}");
    }
}

/// A file system of its own that can be frozen; thawed and unmounted in the end.
struct Disk(PathBuf);

impl Disk {
    /// Mounts one at `place`; `None` where that is not possible.
    fn mount(home: &Home, place: &Path) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let image = home.path().join("image");
        std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        let done =
            |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
        let made = done(Command::new("/usr/sbin/mkfs.ext4").arg("-q").arg(&image))
            && done(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(place));
        made.then(|| Self(place.to_owned()))
    }

    fn freeze(&self, option: &str) -> bool {
        Command::new("/usr/sbin/fsfreeze")
            .arg(option)
            .arg(&self.0)
            .status()
            .is_ok_and(|status| status.success())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.freeze("--unfreeze");
        // Its server may take a moment to let go of it.
        let deadline = Instant::now() + Duration::from_secs(10);
        while !Command::new("umount")
            .arg(&self.0)
            .output()
            .is_ok_and(|output| output.status.success())
        {
            if Instant::now() > deadline {
                let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

#[test]
fn disk_that_is_frozen_fails_nobody_elses_copy() {
    let _turn = turn();
    let (home, export) = exports(4);
    let source = home.write("source", &"text\n".repeat(2 << 20));
    let Some(disk) = Disk::mount(&home, &home.path().join("export/n2")) else {
        sheaf_testing::skipped("no file system can be mounted here");
        return;
    };
    assert!(disk.freeze("--freeze"));
    // A pipe would stay open: the server that hangs has it as its standard error, too.
    let told = home.path().join("told");
    let begun = Instant::now();
    let args = ["--processes", "4", "--tree", "1x2x2", "--export", &export, "--timeout", "8"];
    let mut command =
        home.command(&[&args[..], &["cp", source.to_str().unwrap(), "@all:/copy"]].concat());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&told).unwrap());
    let code = command.status().unwrap().code();
    let (told, took) = (std::fs::read_to_string(told).unwrap(), begun.elapsed());
    assert_eq!(code, Some(4), "{told}");
    let unclear = "it may have done it, or may do it yet";
    // It is given up before the time is over, so that the others have some.
    let (begins, ends) = ("copied to n[1,3-4]: 3 files\nn2: no answer within ", "(ETIMEDOUT)\n");
    assert!(told.starts_with(begins) && told.contains(&format!(" s; {unclear} {ends}")), "{told}");
    assert!(took < Duration::from_secs(9) + SLACK, "{took:?}");
    for host in ["n1", "n3", "n4"] {
        let copy = std::fs::read(home.path().join(format!("export/{host}/copy"))).unwrap();
        assert!(copy == std::fs::read(&source).unwrap(), "{host}");
    }
    drop(disk);
    nothing_is_left(&home);
}

#[test]
fn nothing_of_the_caller_stays_open_in_a_session() {
    let home = Home::new();
    let lock = home.path().join("lock");
    let up = home.command(&["up", "--session", NAME, "--processes", "2", "--tree", "1x1x2"]);
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "exec 9>\"$0\" 8</dev/zero; exec \"$@\""]).arg(&lock);
    command.arg(up.get_program()).args(up.get_args()).current_dir(home.path()).env_clear();
    command.envs(up.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let run = Run::of(command.output().unwrap());
    assert_eq!(run.code, Some(0), "{run:?}");
    let processes = of_home(&home);
    assert_eq!(processes.len(), 4, "the session, an inner node and two servers");
    for process in processes {
        let open = std::fs::read_dir(format!("/proc/{}/fd", process.pid)).unwrap();
        let open: Vec<_> =
            open.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok()).collect();
        assert!(
            !open.iter().any(|file| *file == lock || file == Path::new("/dev/zero")),
            "{open:?}"
        );
    }
    assert_eq!(home.run(&["down", NAME]).code, Some(0));
    nothing_is_left(&home);
}

#[test]
fn session_that_is_stopped_is_shown_as_such() {
    let _turn = turn();
    let up = Up::new(&["--processes", "2"]);
    up.session.signal(Signal::STOP);
    let begun = Instant::now();
    let status = up.home.run(&["status"]);
    let told = format!(
        "session {NAME}: its process {pid} has not answered within 5 s: it is stopped; kill -CONT {pid} lets it go on\n",
        pid = up.session.pid
    );
    assert_eq!((status.code, status.stdout.as_str()), (Some(3), told.as_str()), "{status:?}");
    assert!(begun.elapsed() < Duration::from_secs(5) + SLACK);
    let grep = up.run(&["grep", "x", "/etc/passwd"]);
    assert_eq!((grep.code, grep.stderr.as_str()), (Some(3), format!("sheaf: {told}").as_str()));
    // It can be ended all the same.
    assert_eq!(up.down().code, Some(0));
    nothing_is_left(&up.home);
}

/// As by Ctrl-Z and fg, a debugger, or a cgroup that was frozen: much longer than any other node
/// may be silent.
#[test]
fn session_that_was_stopped_goes_on_with_all_its_hosts() {
    let _turn = turn();
    for (link, tree) in [("unix", "1x2x2"), ("tcp", "flat"), ("tls", "1x2x2")] {
        let home = Home::with_config("[tuning]\nheartbeat_ms = 100\nheartbeats_lost_max = 5\n");
        let up = Up::at(home, &["--processes", "4", "--tree", tree, "--link", link]);
        up.session.signal(Signal::STOP);
        let stopped = Instant::now();
        wait_until("five times what others may be silent", || {
            stopped.elapsed() > Duration::from_millis(2500)
        });
        up.session.signal(Signal::CONT);
        let run = up.run(&["grep", "-c", "^root:", "/etc/passwd"]);
        assert_eq!(
            (run.code, run.stdout.as_str()),
            (Some(0), "n[1-4]:/etc/passwd:1\n"),
            "{link}: {run:?}"
        );
        // Whoever ends it while it is stopped leaves nobody behind.
        up.session.signal(Signal::STOP);
        up.session.signal(Signal::KILL);
        wait_until("all processes have ended", || of_home(&up.home).is_empty());
    }
}

/// What came while it was stopped is read before anybody is called silent.
#[test]
fn request_goes_on_after_a_stop_longer_than_its_time() {
    let home = Home::with_config("[tuning]\ntimeout_ms = 1500\n");
    let big = home.path().join("big");
    std::fs::File::create(&big).unwrap().set_len(1 << 30).unwrap();
    let run =
        Running::start(&mut home.command(&["--processes", "2", "sha", big.to_str().unwrap()]));
    wait_until("the servers are there", || of_home(&home).len() == 3);
    let begun = Instant::now();
    wait_until("they are at work", || begun.elapsed() > Duration::from_millis(500));
    run.signal(Signal::STOP);
    wait_until("the time for an answer is over", || begun.elapsed() > Duration::from_secs(5));
    run.signal(Signal::CONT);
    let run = run.wait();
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains("n[1-2]"), "{run:?}");
}

#[test]
fn failures_say_what_can_be_done() {
    let (home, export) = exports(2);
    for host in ["n1", "n2"] {
        home.write(&format!("export/{host}/dir/file"), "text\n");
    }
    let run = |args: &[&str]| {
        let run = home.run(&[&["--embedded", "2", "--export", &export], args].concat());
        assert_eq!(run.code, Some(4), "{run:?}");
        run.stderr.lines().find(|line| line.starts_with("n[1-2]:")).unwrap_or_default().to_owned()
    };
    let target = home.path().join("got");
    assert_eq!(
        run(&["grep", "text", ":/dir"]),
        "n[1-2]:/dir: Is a directory (EISDIR): -r searches directories, 2 of 2 members"
    );
    assert_eq!(
        run(&["cp", ":/dir", target.to_str().unwrap()]),
        "n[1-2]:/dir: Is a directory (EISDIR): -r copies directories, 2 of 2 members"
    );
    assert_eq!(
        run(&["rm", "@all:/dir"]),
        "n[1-2]:/dir: Is a directory (EISDIR): -r removes directories, 2 of 2 members"
    );
    assert_eq!(
        run(&["mkdir", "@all:/a/b"]),
        "n[1-2]:/a/b: No such file or directory (ENOENT): -p makes the directories above, 2 of 2 members"
    );
    let mut write = home.command(&["--embedded", "2", "--export", &export, "write", "@all:/new"]);
    let write = Run::of(write.stdin(Stdio::null()).output().unwrap());
    assert!(
        write
            .stderr
            .contains("n[1-2]:/new: No such file or directory (ENOENT): --create makes it, 2 of 2"),
        "{write:?}"
    );
}
