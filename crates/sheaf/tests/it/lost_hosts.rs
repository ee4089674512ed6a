//! Hosts that die or hang: commands end in time, with the answers of the others.
use rustix::process::Signal;
use sheaf_testing::home::{Home, Run};
use sheaf_testing::sessions::{NAME, Up, nothing_is_left, turn, wait_until};
use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

const TIMEOUT: &str = "2";
/// What a command may take beyond its timeout on a machine that is busy with other tests.
const GRACE: Duration = Duration::from_secs(8);
const DEADLINE: Duration = Duration::from_secs(2).saturating_add(GRACE);

/// Commands on `/data`, a directory with a file `f`.
const COMMANDS: &[&[&str]] = &[
    &["grep", "udp", "/data/f"],
    &["cp", "--async", "source", "@all:/data/copied"],
    &["cat", "/data/f"],
    &["ls", "-l", "/data"],
    &["stat", "/data/f"],
    &["du", "/data"],
    &["sha", "/data/f"],
    &["read", "--aggregate", "classes", "/data/f"],
    &["read", "--aggregate", "count", "/data/f"],
    &["chmod", "0600", "@all:/data/f"],
    &["chown", "0:0", "@all:/data/f"],
    &["truncate", "-s", "4", "@all:/data/f"],
    &["write", "--data", "text", "@all:/data/f"],
    &["mkdir", "@all:/data/made"],
    &["ln", "-s", "f", "@all:/data/linked"],
    &["rm", "@all:/data/linked"],
];

/// Those that say what they have changed, and where.
const CHANGING: [&str; 8] = ["cp", "chmod", "chown", "truncate", "write", "mkdir", "ln", "rm"];

#[test]
fn every_command_names_the_two_hosts_that_do_not_answer() {
    let _turn = turn();
    // The tree finds out late by itself, so that most commands meet the host that hangs anew.
    let home = Home::with_config("[tuning]\nheartbeat_ms = 60000\n");
    home.write("source", "new\n");
    for host in 1..=64 {
        home.write(&format!("export/n{host}/data/f"), "echo 7/udp\n");
    }
    let export = home.path().join("export/%h").to_str().unwrap().to_owned();
    let up = Up::at(home, &["--processes", "64", "--export", &export]);
    up.servers["n17"].signal(Signal::STOP);
    up.servers["n42"].signal(Signal::KILL);
    for command in COMMANDS {
        let begun = Instant::now();
        let run = up.run(&[&["--timeout", TIMEOUT], *command].concat());
        let took = begun.elapsed();
        println!("{command:?}: {took:?}");
        assert!(took < DEADLINE, "{command:?}: {took:?}");
        assert_eq!(run.code, Some(4), "{command:?}: {run:?}");
        let mut lines: Vec<&str> = run.stderr.lines().collect();
        lines.sort_unstable();
        let done = ["on", "to"].map(|way| format!(" {way} n[1-16,18-41,43-64]: 62 "));
        let changed =
            lines.extract_if(.., |line| done.iter().any(|done| line.contains(done))).count();
        assert_eq!(changed, usize::from(CHANGING.contains(&command[0])), "{command:?}: {run:?}");
        let unclear = |reads, changes| if CHANGING.contains(&command[0]) { changes } else { reads };
        let late = unclear("", "; it may have done it, or may do it yet");
        let down = unclear("", "; what it had done until then is not known");
        // One that takes no input is given up before the time is over.
        let is_late = lines[0].starts_with("n17: no answer within ")
            && lines[0].ends_with(&format!(" s{late} (ETIMEDOUT)"));
        let hung = [
            format!("n17: host is down{down} (EHOSTDOWN): no sign of life for "),
            // It was found to be down before the command began.
            "n17: host is down (EHOSTDOWN): no sign of life for ".to_owned(),
        ];
        let is_down = hung.iter().any(|start| lines[0].starts_with(start));
        assert!(is_late || is_down, "{command:?}: {run:?}");
        let expected = [
            "n42: host is down (EHOSTDOWN): its process ended with signal 9",
            "sheaf: 62 of 64 members succeeded; 2 hosts silent",
        ];
        assert_eq!(lines[1..], expected, "{command:?}: {run:?}");
        if command[0] == "grep" {
            assert!(run.stdout.starts_with("n[1-16,18-41,43-64]:/data/f:"), "{run:?}");
        }
    }
    for host in 1..=64 {
        let copied = up.home.path().join(format!("export/n{host}/data/copied"));
        assert_eq!(copied.exists(), ![17, 42].contains(&host), "n{host}");
    }
    up.servers["n17"].signal(Signal::CONT);
    let run = up.down();
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    nothing_is_left(&up.home);
}

/// The new file is there, with a part of what was to be written.
#[test]
fn new_file_of_a_host_lost_in_the_middle_is_not_known() {
    let _turn = turn();
    let home = Home::new();
    for host in 1..=4 {
        home.write(&format!("export/n{host}/f"), "");
    }
    let export = home.path().join("export/%h").to_str().unwrap().to_owned();
    let up = Up::at(home, &["--processes", "4", "--export", &export]);
    let mut command =
        up.home.command(&["--session", NAME, "write", "--excl", "--create", "@all:/new"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut writing = command.spawn().unwrap();
    let mut input = writing.stdin.take().unwrap();
    input.write_all(&[b'x'; 6 << 20]).unwrap();
    let new = up.home.path().join("export/n2/new");
    wait_until("the host has begun", || new.metadata().is_ok_and(|about| about.len() > 0));
    up.servers["n2"].signal(Signal::KILL);
    input.write_all(&[b'y'; 6 << 20]).unwrap();
    drop(input);
    let run = Run::of(writing.wait_with_output().unwrap());
    assert_eq!(run.code, Some(4), "{run:?}");
    let told = "n2: host is down; what it had done until then is not known (EHOSTDOWN)";
    assert!(run.stderr.contains(told), "{run:?}");
    assert_eq!(up.down().code, Some(0));
    nothing_is_left(&up.home);
}

#[test]
fn session_ends_although_a_server_hangs() {
    let up = Up::new(&["--processes", "8", "--tree", "1x2x4"]);
    up.servers["n5"].signal(Signal::STOP);
    assert_eq!(up.down().code, Some(0));
    nothing_is_left(&up.home);
}

#[test]
fn inner_node_that_dies_takes_no_host_along() {
    let _turn = turn();
    let up = Up::new(&["--processes", "16", "--tree", "1x4x4"]);
    let inner: Vec<_> =
        up.nodes.iter().filter(|node| !up.servers.values().any(|server| server == *node)).collect();
    assert_eq!(inner.len(), 4);
    inner[0].signal(Signal::KILL);
    let run = up.run(&["--timeout", TIMEOUT, "grep", "-c", "", "/etc/passwd"]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    assert!(run.stdout.starts_with("n[1-16]:"), "{run:?}");
    assert_eq!(up.down().code, Some(0));
    nothing_is_left(&up.home);
}
