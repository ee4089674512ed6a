//! `sheaf trace record --flight`: what led to something out of the ordinary is kept.
use crate::trace::TraceHome as _;
use rustix::process::{Pid, Signal, kill_process};
use sheaf_testing::built;
use sheaf_testing::home::Home;
use sheaf_trace::{StoreReader, TraceInfo, TraceNames, TraceRow};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

fn info(trace: &Path) -> TraceInfo {
    TraceInfo::read(trace).unwrap().expect("a snapshot says what it is of")
}

/// The rows of a trace, with their operations and paths.
fn rows(trace: &Path) -> Vec<(TraceRow, String, String)> {
    let mut all = Vec::new();
    let damaged = StoreReader::open(trace)
        .unwrap()
        .read(&mut TraceNames::default(), |row, names| {
            let text = |number| String::from_utf8_lossy(names.text(number)).into_owned();
            all.push((*row, text(row.op), text(row.path)));
            Ok(())
        })
        .unwrap();
    assert!(damaged.is_empty(), "{damaged:?}");
    all
}

/// How many writes of one byte to a file there are, each with its result.
fn writes(trace: &Path, file: &str) -> usize {
    let is_one = |(row, op, path): &(TraceRow, String, String)| {
        op == "write" && path.ends_with(file) && row.bytes == 1
    };
    rows(trace).iter().filter(|row| is_one(row)).count()
}

#[test]
fn program_that_fails_leaves_what_it_did_last() {
    const WRITES: u64 = 30_000;
    let home = Home::new();
    let script = format!("dd if=/dev/zero of=out bs=1 count={WRITES} status=none; exit 3");
    let args = ["trace", "record", "--flight", "--records", "1024", "--", "sh", "-c", &script];
    let run = home.run(&args);
    assert_eq!((run.code, run.stdout.as_str()), (Some(3), ""), "{run:?}");
    assert!(
        run.stderr.starts_with("sheaf: the command ended with exit code 3: the last "),
        "{run:?}"
    );
    assert!(run.stderr.contains("are in sh.flight/1; sheaf trace report sh.flight/1"), "{run:?}");
    let trace = home.path().join("sh.flight/1");
    let kept = info(&trace);
    assert_eq!(kept.lost, 0, "{kept:?}");
    // All that was done is there, or was overwritten: as much as without overwriting.
    let whole = home.run(&[
        "trace",
        "record",
        "-o",
        "whole",
        "--records",
        "1048576",
        "--",
        "sh",
        "-c",
        &script,
    ]);
    assert_eq!(whole.code, Some(3), "{whole:?}");
    let done = info(&home.path().join("whole"));
    assert_eq!(done.lost, 0);
    assert_eq!(kept.operations + kept.overwritten, done.operations);
    assert!(kept.overwritten > WRITES, "reads are overwritten, too: {kept:?}");
    // The last ones of dd without a gap, and all of the shell, which did little.
    let (kept, done) = (rows(&trace), rows(&home.path().join("whole")));
    let of = |all: &[(TraceRow, String, String)], program: &str| -> Vec<String> {
        let pids: Vec<i32> = all
            .iter()
            .filter(|(.., path)| path.ends_with("/out"))
            .map(|(row, ..)| row.pid)
            .collect();
        let is_its = |row: &TraceRow| pids.contains(&row.pid) == (program == "dd");
        all.iter().filter(|(row, ..)| is_its(row)).map(|(_, op, _)| op.clone()).collect()
    };
    let (last, all) = (of(&kept, "dd"), of(&done, "dd"));
    assert_eq!((last.len(), &last[..]), (1024, &all[all.len() - 1024..]));
    assert_eq!(of(&kept, "sh"), of(&done, "sh"));
    let report = home.run(&["trace", "report", "sh.flight"]);
    let told = "sheaf: sh.flight has a snapshot, which is a trace: sh.flight/1\n";
    assert_eq!((report.code, report.stderr.as_str()), (Some(2), told), "{report:?}");
    let report = home.run(&["trace", "report", "sh.flight/1"]);
    assert_eq!(report.code, Some(0), "{report:?}");
    assert!(report.stdout.contains("operations before were overwritten"), "{report:?}");
    assert!(
        home.run(&["trace", "snapshot", "sh.flight"])
            .stderr
            .contains("no flight recorder runs there")
    );
}

#[test]
fn flight_recorder_keeps_nothing_from_an_ordinary_run() {
    let home = Home::new();
    let run = home.run(&["trace", "record", "--flight", "--slow-ms", "60000", "--", "true"]);
    let told = "sheaf: nothing was out of the ordinary, and nothing is kept\n";
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), told));
    assert!(!home.path().join("true.flight").exists());
}

#[test]
fn slow_operations_are_kept_up_to_the_snapshot_limit() {
    let home = Home::new();
    let slow = "dd if=/dev/zero of=out bs=1 count=3000 status=none; sleep 0.3 | cat;";
    // A recorder that comes late sees two slow operations at once, and makes one snapshot of them.
    let kept = |number: u32| format!("until [ -e f/{number} ]; do sleep 0.05; done;");
    let script = format!("{slow} {} {slow} {} {slow}", kept(1), kept(2));
    let flight =
        ["trace", "record", "--flight", "--slow-ms", "200", "--snapshots", "2", "-o", "f", "--"];
    let run = home.run(&[&flight[..], &["sh", "-c", &script]].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    let reasons: Vec<String> = (1..=2)
        .map(|number| info(&home.path().join(format!("f/{number}"))).trigger.unwrap())
        .collect();
    for reason in &reasons {
        let is_read = reason.starts_with("read of pipe:[") && reason.contains(" took ");
        assert!(is_read || reason.starts_with("wait"), "{reason}");
    }
    assert!(!home.path().join("f/3").exists());
    assert!(
        run.stderr.contains("times more an operation was slow, after 2 snapshots (--snapshots N)"),
        "{run:?}"
    );
    let first = rows(&home.path().join("f/1"));
    assert!(first.iter().any(|(row, ..)| row.duration_ns >= 200_000_000), "the slow one is there");
    assert!(writes(&home.path().join("f/1"), "/out") >= 3000, "what was before it is there");
    // What one snapshot has the next has not.
    let times = |trace: &Path| -> std::collections::HashSet<(i64, i32, i32)> {
        rows(trace).iter().map(|(row, ..)| (row.time_ns, row.pid, row.thread)).collect()
    };
    let (first, second) = (times(&home.path().join("f/1")), times(&home.path().join("f/2")));
    assert_eq!(first.intersection(&second).count(), 0);
}

/// A recorder of a program that writes as many bytes to `out` as each line says.
fn begin(home: &Home) -> (Child, BufReader<std::process::ChildStdout>) {
    let script = "echo ready; while read n; do dd if=/dev/zero of=out bs=1 count=$n status=none; \
                  echo done; done; exit 0";
    let args = ["trace", "record", "--flight", "-o", "f", "--", "sh", "-c", script];
    let mut command: Command = home.command(&args);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    line(&mut out, "ready\n");
    (child, out)
}

fn line(out: &mut impl BufRead, expected: &str) {
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, expected);
}

fn ask(child: &mut Child, count: u32, out: &mut impl BufRead) {
    writeln!(child.stdin.as_mut().unwrap(), "{count}").unwrap();
    line(out, "done\n");
}

fn wait_for(path: &Path) {
    let end = Instant::now() + LIMIT;
    while !path.exists() {
        assert!(Instant::now() < end, "{} does not come", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn snapshot_is_made_by_a_command_and_by_a_signal() {
    let home = Home::new();
    let (mut child, mut out) = begin(&home);
    ask(&mut child, 700, &mut out);
    let asked = home.run(&["trace", "snapshot", "f"]);
    assert_eq!((asked.code, asked.stdout.as_str()), (Some(0), "f/1\n"), "{asked:?}");
    assert_eq!(writes(&home.path().join("f/1"), "/out"), 700);
    assert_eq!(info(&home.path().join("f/1")).trigger.as_deref(), Some("it was asked for"));
    ask(&mut child, 300, &mut out);
    kill_process(Pid::from_child(&child), Signal::USR1).unwrap();
    wait_for(&home.path().join("f/2"));
    assert_eq!(writes(&home.path().join("f/2"), "/out"), 300);
    drop(child.stdin.take());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert!(!home.path().join("f/3").exists());
    let again = home.run(&["trace", "snapshot", "f"]);
    assert_eq!(again.stderr, "sheaf: f: no flight recorder runs there\n");
}

/// What a snapshot had taken that failed is counted, and whoever has asked is told at once.
#[test]
fn snapshot_that_fails_is_told_and_counted() {
    let home = Home::new();
    let (mut child, mut out) = begin(&home);
    ask(&mut child, 700, &mut out);
    home.write("f/1/in the way", "");
    let asked = home.run(&["trace", "snapshot", "f"]);
    assert_eq!((asked.code, asked.stdout.as_str()), (Some(4), ""), "{asked:?}");
    assert!(asked.stderr.contains("f: no snapshot could be made: "), "{asked:?}");
    assert!(asked.stderr.contains("not empty"), "{asked:?}");
    std::fs::remove_dir_all(home.path().join("f/1")).unwrap();
    ask(&mut child, 300, &mut out);
    let asked = home.run(&["trace", "snapshot", "f"]);
    assert_eq!((asked.code, asked.stdout.as_str()), (Some(0), "f/1\n"), "{asked:?}");
    assert_eq!(writes(&home.path().join("f/1"), "/out"), 300);
    let kept = info(&home.path().join("f/1"));
    // Reads and writes of dd, and what it and the shell do besides.
    assert!((1400..1500).contains(&kept.unwritten), "{kept:?}");
    assert_eq!((kept.lost, kept.overwritten), (0, 0));
    drop(child.stdin.take());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
}

#[test]
fn flight_recorder_that_is_killed_leaves_what_rings_have() {
    let home = Home::new();
    let (mut child, mut out) = begin(&home);
    ask(&mut child, 500, &mut out);
    child.kill().unwrap();
    child.wait().unwrap();
    drop(child.stdin.take());
    // The program goes on to its end, which its output has as well.
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut out, &mut rest).unwrap();
    let recovered = home.run(&["trace", "recover", "f"]);
    assert_eq!(recovered.code, Some(0), "{recovered:?}");
    let kept = info(&home.path().join("f"));
    assert!(kept.missing.iter().any(|line| line == "its recorder was killed"), "{kept:?}");
    assert!(rows(&home.path().join("f")).iter().any(|(_, op, _)| op == "read"));
}

/// What snapshots have is in none of what is recovered, and its losses are counted once.
#[test]
fn operations_in_snapshots_are_not_recovered_again() {
    let home = Home::new();
    let (mut child, mut out) = begin(&home);
    ask(&mut child, 500, &mut out);
    assert_eq!(home.run(&["trace", "snapshot", "f"]).code, Some(0));
    ask(&mut child, 200, &mut out);
    child.kill().unwrap();
    child.wait().unwrap();
    drop(child.stdin.take());
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut out, &mut rest).unwrap();
    let recovered = home.run(&["trace", "recover", "f"]);
    assert_eq!(recovered.code, Some(0), "{recovered:?}");
    let (first, rest) = (home.path().join("f/1"), home.path().join("f"));
    assert_eq!((writes(&first, "/out"), writes(&rest, "/out")), (500, 200));
    let seen = |trace: &Path| -> std::collections::HashSet<(i64, i32)> {
        rows(trace).iter().map(|(row, ..)| (row.time_ns, row.pid)).collect()
    };
    assert_eq!(seen(&first).intersection(&seen(&rest)).count(), 0);
    let told = "f has a snapshot, which is a trace: f/1";
    assert!(recovered.stderr.ends_with(&format!("sheaf: {told}\n")), "{recovered:?}");
    let report = home.run(&["trace", "report", "--json", "f"]);
    let report: serde_json::Value = serde_json::from_str(&report.stdout).unwrap();
    let notes = report["report"]["notes"].as_array().unwrap();
    assert!(notes.iter().any(|note| note == told), "{notes:?}");
}

/// Nor is it hidden while nobody has recovered anything, and where there is nothing else.
#[test]
fn snapshots_are_named_where_nothing_else_is_kept() {
    let home = Home::new();
    let (mut child, mut out) = begin(&home);
    ask(&mut child, 100, &mut out);
    for _ in 0..2 {
        assert_eq!(home.run(&["trace", "snapshot", "f"]).code, Some(0));
    }
    let told = "sheaf: f has snapshots, each a trace: f/1, f/2; f is being recorded, or its recorder was \
                killed: then sheaf trace recover f\n";
    for trace in ["f", "f/trace.json"] {
        let report = home.run(&["trace", "report", trace]);
        assert_eq!((report.code, report.stderr.as_str()), (Some(2), told), "{report:?}");
    }
    drop(child.stdin.take());
    let ended = child.wait_with_output().unwrap();
    let told = String::from_utf8(ended.stderr).unwrap();
    assert!(!told.contains("the last 0"), "{told}");
    let none = "sheaf: it was asked for: f/2 has no operation, as none was done since it began, or \
                since the snapshot before\n";
    assert!(told.ends_with(none), "{told}");
}

#[test]
fn disk_that_is_full_costs_the_snapshot_alone() {
    let home = Home::new();
    let sheaf = built("sheaf");
    let script = format!(
        "{sheaf} trace record --flight -o small/f -- \
         sh -c 'dd if=/dev/zero of=/dev/null bs=1 count=300000 status=none; echo said; exit 5'; \
         code=$?; ls small/f; exit $code"
    );
    let Some(run) = home.on_small_disk("16k", &script) else { return };
    assert_eq!((run.code, run.stdout.as_str()), (Some(5), "said\ntrace.json\n"), "{run:?}");
    assert!(run.stderr.contains("a snapshot could not be made: "), "{run:?}");
    assert!(run.stderr.contains("No space left"), "{run:?}");
    assert!(run.stderr.contains(" operations could not be stored"), "{run:?}");
}
