//! What is said of what happens: on standard error, in a file, in the log of a session.
use rustix::fs::{CWD, FileType, Mode};
use sheaf_testing::home::Home;
use sheaf_testing::sessions::{Up, nothing_is_left, turn, wait_until};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

#[test]
fn log_verbosity_follows_the_options() {
    let home = Home::new();
    let file = home.write("f", "here\n");
    let grep = |words: &[&str]| {
        let mut all = words.to_vec();
        all.extend(["--embedded", "3", "grep", "here", file.to_str().unwrap()]);
        home.run(&all)
    };
    let (plain, told) = (grep(&[]), grep(&["-v"]));
    assert_eq!((plain.stderr.as_str(), &plain.stdout), ("", &told.stdout));
    let lines: Vec<&str> =
        told.stderr.lines().map(|line| line.split_once("] ").unwrap().1).collect();
    assert_eq!(
        lines[..2],
        [
            "cluster embedded: starts 3 hosts, launch embedded, tree auto",
            "3 of 3 hosts run: n[1-3]",
        ]
    );
    let done = regex::Regex::new(
        r"^done: [0-9.]+ ms: start [0-9.]+, open 0\.0, ask [0-9.]+ \(\d requests?\), print [0-9.]+, combine and else [0-9.]+$",
    );
    assert!(lines.len() == 3 && done.unwrap().is_match(lines[2]), "{lines:?}");
    assert!(told.stderr.lines().all(|line| line.starts_with("sheaf: [0.")), "{told:?}");
    // With more, how long each part has taken.
    let timed = grep(&["-vv"]);
    assert_eq!(timed.stdout, plain.stdout);
    for part in [
        "4 nodes are planned, and those below the root begun: ",
        "they have joined within ",
        "tool.call grep, 3 members: ",
    ] {
        let line = timed.stderr.lines().find(|line| line.contains(part));
        let line = line.unwrap_or_else(|| panic!("{part}: {timed:?}"));
        assert!(line.ends_with(" ms"), "{line}");
    }
    // A file is told as well, and goes on where it was.
    let log = home.path().join("log");
    for times in 1..=2 {
        let logged = grep(&["--log", log.to_str().unwrap()]);
        assert_eq!((logged.stderr.as_str(), &logged.stdout), ("", &plain.stdout));
        let written = std::fs::read_to_string(&log).unwrap();
        assert_eq!(written.matches("] 3 of 3 hosts run: n[1-3]\n").count(), times, "{written}");
    }
    let full = grep(&["--log", "/dev/full"]);
    let told = "sheaf: /dev/full: No space left on device (ENOSPC): the log goes no further\n";
    assert_eq!((full.code, full.stderr.as_str(), &full.stdout), (Some(0), told, &plain.stdout));
    let level = grep(&["--log", "debug"]);
    let told = "did you mean -vv? a file of that name is ./debug; see sheaf grep --help\n";
    assert!(level.code == Some(2) && level.stderr.ends_with(told), "{level:?}");
    let bad = grep(&["--log", "/none/log"]);
    assert_eq!(
        (bad.code, bad.stderr.as_str()),
        (Some(2), "sheaf: /none/log: No such file or directory (ENOENT)\n")
    );
}

/// What takes its time in a command that joins a session, and which hosts it waits for.
#[test]
fn verbose_log_names_the_hosts_a_command_waits_for() {
    let _turn = turn();
    let up = Up::new(&["--processes", "3"]);
    let file = up.home.write("f", "here\n");
    let file = file.to_str().unwrap();
    let told = up.run(&["-v", "grep", "here", file]);
    let lines: Vec<&str> =
        told.stderr.lines().filter_map(|line| Some(line.split_once("] ")?.1)).collect();
    assert_eq!(lines[0], "session try is joined: 3 hosts", "{told:?}");
    assert!(lines.last().unwrap().contains(" ms: join "), "{told:?}");
    let more = up.run(&["-vv", "grep", "here", file]);
    for part in [" has let this one in: 4 nodes: ", ", wave 0: call: 3 answered: "] {
        assert!(more.stderr.contains(part), "{part}: {more:?}");
    }
    assert!(!more.stderr.contains("] link to "), "{more:?}");
    let all = up.run(&["-vvv", "grep", "here", file]);
    for part in [" a link begins node=0", "] link to node 0, unix, up: "] {
        assert!(all.stderr.contains(part), "{part}: {all:?}");
    }
    up.servers["n2"].signal(rustix::process::Signal::STOP);
    let slow = up.run(&["-vv", "--timeout", "4", "grep", "here", file]);
    up.servers["n2"].signal(rustix::process::Signal::CONT);
    assert!(slow.stderr.contains("; slow: n2 (say nothing)"), "{slow:?}");
    assert_eq!(up.down().code, Some(0));
}

/// Where nobody can come any more nobody is waited for.
#[test]
fn hosts_that_cannot_come_are_not_waited_for() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    let ssh =
        home.write("ssh", "#!/bin/sh\necho \"$2: Permission denied (publickey).\" >&2\nexit 255\n");
    std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o755)).unwrap();
    home.write("sheaf.toml", &format!("[cluster.far]\nhosts = \"h[1-2]\"\nssh = {ssh:?}\n"));
    let begun = std::time::Instant::now();
    let up = home.run(&["up", "-v", "--timeout", "300", "--wait", "1"]);
    assert_eq!(up.code, Some(3), "{up:?}");
    assert!(begun.elapsed().as_secs() < 150, "{up:?}");
    assert!(up.stderr.contains("] 0 of 2 hosts run\n"), "{up:?}");
    // A session without hosts is not kept.
    assert!(up.stderr.contains("session far did not start: no host can be started: "), "{up:?}");
    assert_eq!(home.run(&["down"]).code, Some(3));
}

/// Whoever looks on is told which host hangs; scripts are not.
#[test]
fn login_that_hangs_is_named_while_it_is_waited_for() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    let ssh = home.write(
        "ssh",
        "#!/bin/sh\ncase \"$*\" in *mute1*) exec sleep 60;; esac\necho Permission denied >&2\nexit 255\n",
    );
    std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o755)).unwrap();
    let config = format!("[cluster.far]\nhosts = \"mute1,web[1-2]\"\nssh = {ssh:?}\n");
    home.write("sheaf.toml", &config);
    let told = "waiting for mute1 (0 of 3 hosts run; ssh_login_timeout_ms = 20000)\n";
    let plain = home.run(&["--timeout", "8", "cat", "/x"]);
    assert!(plain.code == Some(3) && !plain.stderr.contains("waiting for"), "{plain:?}");
    let log = home.run(&["--timeout", "8", "-v", "cat", "/x"]);
    assert!(log.stderr.contains(&format!("] {told}")), "{log:?}");
    if std::process::Command::new("script").arg("--version").output().is_err() {
        sheaf_testing::skipped("a terminal is made by script (Debian package bsdutils)");
        return;
    }
    for (options, is_told) in [("", true), ("--quiet", false), ("--json", false)] {
        let sheaf = env!("CARGO_BIN_EXE_sheaf");
        let line = format!("stty cols 80; exec {sheaf} --timeout 8 {options} cat /x");
        let own = home.command(&[]);
        let mut command = std::process::Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).current_dir(home.path()).env_clear();
        command.envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let run = sheaf_testing::home::Run::of(command.output().unwrap());
        let said = run.stdout.replace('\r', "").contains(&format!("sheaf: {told}"));
        assert_eq!(said, is_told, "{options}: {run:?}");
        // Where it can be taken back, it goes when there is more to say.
        command.env("TERM", "xterm");
        let run = sheaf_testing::home::Run::of(command.output().unwrap());
        let wiped = format!("sheaf: {}\r\x1b[K", told.trim_end());
        assert_eq!(run.stdout.contains(&wiped), is_told, "{options}: {run:?}");
        assert!(!run.stdout.contains(told), "{options}: {run:?}");
    }
}

/// A pipe that nobody reads is not waited for.
#[test]
fn log_that_nobody_reads_is_refused() {
    let home = Home::new();
    let pipe = home.path().join("pipe");
    rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let pipe = pipe.to_str().unwrap();
    let cat = ["--embedded", "1", "--timeout", "60", "-v", "--log", pipe, "cat", "/etc/hostname"];
    let run = home.run(&cat);
    let told =
        format!("sheaf: {pipe}: No such device or address (ENXIO): nobody reads this pipe\n");
    assert_eq!((run.code, run.stderr), (Some(2), told));
    let reader = std::fs::File::options().read(true).write(true).open(pipe).unwrap();
    assert_eq!(home.run(&cat).code, Some(0));
    let mut lines = BufReader::new(reader).lines();
    assert!(lines.next().unwrap().unwrap().contains("cluster embedded: starts 1 hosts"));
}

/// By the process that runs it, as long as it is waited for.
#[test]
fn session_start_is_logged_by_up() {
    let home = Home::new();
    let up = |words: &[&str]| {
        let run = home.run(&[&["up", "--processes", "3", "--session", "s"], words].concat());
        assert_eq!((run.code, run.stdout.as_str()), (Some(0), ""), "{run:?}");
        run.stderr
    };
    let down = |words: &[&str]| home.run(&[&["down", "s"], words].concat()).stderr;
    let told = up(&["-v"]);
    let lines: Vec<&str> =
        told.lines().filter_map(|line| Some(line.split_once(" s] ")?.1)).collect();
    assert_eq!(
        lines,
        [
            "cluster processes: starts 3 hosts, launch processes, tree auto",
            "session s begins: 3 hosts",
            "3 of 3 hosts run: n[1-3]",
            "session s listens",
        ],
        "{told}"
    );
    assert!(down(&["-v"]).contains("] session s has ended: process "));
    let full = up(&["--log", "/dev/full"]);
    let told = "sheaf: /dev/full: No space left on device (ENOSPC): the log goes no further\n";
    assert!(full.starts_with(told), "{full}");
    assert_eq!(down(&[]), "");
    nothing_is_left(&home);
}

#[test]
fn session_keeps_a_log_with_what_became_of_its_hosts() {
    let home = Home::new();
    let up = home.run(&["up", "--processes", "3", "--session", "kept"]);
    assert_eq!(up.code, Some(0), "{up:?}");
    let shown = home.run(&["--session", "kept", "tree", "show", "--json"]);
    let of_n2 = |line: &&str| line.contains("\"host\":\"n2\"");
    let node: serde_json::Value =
        serde_json::from_str(shown.stdout.lines().find(of_n2).unwrap()).unwrap();
    let pid = rustix::process::Pid::from_raw(node["pid"].as_i64().unwrap() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let log = home.runtime_dir().join("sheaf/kept.log");
    let read = || std::fs::read_to_string(&log).unwrap();
    wait_until("the loss is written down", || {
        read().contains("] warning: lost n2: its process ended with signal 9")
    });
    // One that is moved, as by who rotates logs, is begun anew.
    let moved = home.path().join("moved.log");
    std::fs::rename(&log, &moved).unwrap();
    assert_eq!(home.run(&["down", "kept"]).code, Some(0));
    nothing_is_left(&home);
    assert!(read().ends_with("] session kept ends\n"), "{}", read());
    let read = || std::fs::read_to_string(&moved).unwrap() + &read();
    let lines: Vec<String> =
        read().lines().map(|line| line.split_once("] ").unwrap().1.to_owned()).collect();
    assert_eq!(
        lines.first().map(String::as_str),
        Some("cluster processes: starts 3 hosts, launch processes, tree auto")
    );
    assert_eq!(lines.last().map(String::as_str), Some("session kept ends"));
}

/// Who takes a node in that has lost the one above it says so.
#[test]
fn adoption_by_another_node_is_logged() {
    let _turn = turn();
    let up = Up::new(&["--processes", "4", "--tree", "1x2x2"]);
    let inner = up.nodes.iter().find(|node| !up.servers.values().any(|server| server == *node));
    inner.unwrap().signal(rustix::process::Signal::KILL);
    let run = up.run(&["cat", "/proc/version"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let log = up.home.runtime_dir().join("sheaf/try.log");
    let told = || {
        let written = std::fs::read_to_string(&log).unwrap();
        let taken = |line: &&str| line.contains(" a node is taken in below node 0 rank=");
        written.lines().filter(taken).count() == 2
    };
    wait_until("both leaves are taken in", told);
    assert_eq!(up.down().code, Some(0));
}

/// Its directory is taken by another one to which others may write, as `/tmp/sheaf-UID` can be.
#[test]
fn session_log_goes_with_the_socket_and_to_no_open_directory() {
    let _turn = turn();
    let home = Home::new();
    let config = "[cluster.log]\nhosts = \"n1\"\nlaunch = \"embedded\"\naudit = \"log\"\n";
    home.write("sheaf.toml", config);
    assert_eq!(home.run(&["up"]).code, Some(0));
    let (place, away) = (home.runtime_dir().join("sheaf"), home.path().join("away"));
    std::fs::rename(&place, &away).unwrap();
    while std::fs::create_dir(&place).is_err() {
        std::fs::remove_dir_all(&place).unwrap();
    }
    std::fs::set_permissions(&place, PermissionsExt::from_mode(0o777)).unwrap();
    std::fs::write(place.join("log.log"), "").unwrap();
    let elsewhere = || {
        let entries = std::fs::read_dir(home.runtime_dir()).unwrap().flatten();
        let mut places = entries.map(|entry| entry.path()).filter(|path| *path != place);
        places.find(|path| path.join("log.sock").exists())
    };
    wait_until("it listens elsewhere", || elsewhere().is_some());
    let log = elsewhere().unwrap().join("log.log");
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    wait_until("its log is there", || read(&log).contains("session log listens at "));
    assert_eq!(read(&place.join("log.log")), "");
    std::fs::remove_dir_all(&place).unwrap();
    let data = home.path().join("data");
    let data = data.to_str().unwrap();
    let write = ["--session", "log", "write", "--create", "--data", "x"];
    assert_eq!(home.run(&[&write[..], &[&format!("n1:{data}")]].concat()).code, Some(0));
    let line = format!(" on n1: {data}: done\n");
    wait_until("the log has the change", || read(&log).contains(&line));
    // What came before is elsewhere, and says where it goes on.
    let goes_on = format!("] the log goes on in {}\n", log.display());
    assert!(read(&away.join("log.log")).contains(&goes_on), "{}", read(&away.join("log.log")));
    let told = "its log is not written: ";
    let status = || home.run(&["status", "--session", "log"]).stdout;
    assert!(!status().contains(told), "{}", status());
    std::fs::remove_file(&log).unwrap();
    std::fs::create_dir(&log).unwrap();
    assert!(status().contains(&format!("{told}{}: ", log.display())), "{}", status());
    std::fs::remove_dir(&log).unwrap();
    assert!(!status().contains(told), "{}", status());
    assert_eq!(home.run(&["down", "log"]).code, Some(0));
    assert!(read(&log).contains("session log ends"), "{}", read(&log));
}

/// Servers of this machine tell the root of changes as those of other hosts do.
#[test]
fn session_log_has_the_changes_of_servers_on_this_machine() {
    let _turn = turn();
    for launch in ["processes", "embedded"] {
        let home = Home::new();
        let config =
            format!("[cluster.here]\nhosts = \"n[1-2]\"\nlaunch = \"{launch}\"\naudit = \"log\"\n");
        home.write("sheaf.toml", &config);
        let data = home.write("data", "x\n");
        let data = data.to_str().unwrap();
        assert_eq!(home.run(&["up"]).code, Some(0));
        for args in [
            ["--quiet", "chmod", "600", &format!("@all:{data}")],
            ["--quiet", "rm", "-y", &format!("n1:{data}")],
        ] {
            assert_eq!(home.run(&args).code, Some(0), "{args:?}");
        }
        assert_eq!(home.run(&["down"]).code, Some(0));
        let place = home.runtime_dir().join("sheaf");
        let log = std::fs::read_to_string(place.join("here.log")).unwrap();
        for change in ["chmod on n[1-2]", "rm on n1"] {
            assert!(log.contains(&format!(": {change}: {data}: done\n")), "{launch}: {log}");
        }
        // They have neither gates nor files of their own.
        let entries = std::fs::read_dir(place).unwrap().flatten().map(|entry| entry.file_name());
        let names: Vec<String> = entries.filter_map(|name| name.into_string().ok()).collect();
        assert!(names.iter().all(|name| !name.contains('@')), "{names:?}");
    }
}
