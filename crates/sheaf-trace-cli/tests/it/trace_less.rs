//! `sheaf trace record` of some operations alone, of sums alone, and of programs that are faster than the recorder.
use crate::trace::{TraceHome as _, sums};
use sheaf_testing::home::Home;
use std::collections::BTreeMap;
use std::process::{Command, Stdio};

/// What `report` says of operations, by layer and word: how many there are, and bytes.
fn reported(home: &Home, options: &[&str]) -> (BTreeMap<String, (u64, u64)>, serde_json::Value) {
    let run = home.run(&[&["trace", "report", "--json"], options, &["the.trace"]].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    let said: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let report = said["report"].clone();
    let mut operations = BTreeMap::new();
    for op in report["operations"].as_array().unwrap() {
        let (count, bytes) = (&op["sums"]["count"], &op["sums"]["bytes"]);
        let word = format!("{} {}", op["layer"].as_str().unwrap(), op["op"].as_str().unwrap());
        operations.insert(word, (count.as_u64().unwrap(), bytes.as_u64().unwrap()));
    }
    (operations, report)
}

const DD: [&str; 6] = ["dd", "if=in", "of=out", "bs=100", "count=500", "status=none"];

fn record(home: &Home, options: &[&str]) -> String {
    let _ = std::fs::remove_dir_all(home.path().join("the.trace"));
    let words = ["trace", "record", "-o", "the.trace"];
    let run = home.run(&[&words, options, &["--"], &DD].concat());
    assert_eq!(run.code, Some(0), "{options:?}: {run:?}");
    run.stderr
}

#[test]
fn filters_keep_some_operations_and_count_the_others() {
    let home = Home::new();
    home.write("in", &"x".repeat(50_000));
    let at = home.path().to_str().unwrap().to_owned();
    record(&home, &[]);
    let all = home.info().operations;
    let (path, below) = (format!("{at}/out"), format!("{at}/*"));
    for (options, reads, writes) in [
        (&["--path", &path][..], 0, 500),
        (&["--path", &below, "--op", "read"], 500, 0),
        (&["--op", "read", "--op", "write", "--layer", "posix"], 500, 500),
        (&["--path", &below, "--layer", "stdio"], 0, 0),
        (&["--min-us", "4000000"], 0, 0),
    ] {
        // What is picked when it is recorded, and what is picked of all, is the same.
        let told = record(&home, options);
        let trace = home.path().join("the.trace");
        let info = home.info();
        let of = |end: &str, op: &str| match info.operations {
            // There is no file then.
            0 => 0,
            _ => sums(&trace, end).get(op).map_or(0, |sum| sum.0),
        };
        assert_eq!((of("/in", "read"), of("/out", "write")), (reads, writes), "{options:?}");
        assert_eq!(info.operations + info.filtered, all, "{options:?}: {told}");
        assert!(told.contains(&format!("{} operations were left out", info.filtered)), "{told}");
        let (kept, report) = reported(&home, &[]);
        assert_eq!(report["filter"].as_str().unwrap(), options.join(" "));
        record(&home, &[]);
        let (picked, report) = reported(&home, options);
        assert_eq!(kept, picked, "{options:?}");
        assert_eq!(report["filter"].as_str().unwrap(), options.join(" "));
    }
    // One of ten, more or less, of a thousand.
    record(&home, &["--op", "read", "--op", "write", "--sample", "1/10"]);
    let sampled = home.info().operations;
    assert!((40..250).contains(&sampled), "{sampled}");
    for wrong in [&["--op", "reads"][..], &["--layer", "x"], &["--sample", "10"], &["--path", "["]]
    {
        let run = home.run(&[&["trace", "record", "-o", "none"], wrong, &["--", "true"]].concat());
        assert_eq!(run.code, Some(2), "{wrong:?}: {run:?}");
        assert!(!home.path().join("none").exists());
    }
}

#[test]
fn summary_is_the_report_without_operations() {
    let home = Home::new();
    home.write("in", &"x".repeat(50_000));
    record(&home, &[]);
    let (all, whole) = reported(&home, &[]);
    let told = record(&home, &["--summary"]);
    assert!(told.contains("operations are summed up in the.trace"), "{told}");
    let (summed, report) = reported(&home, &[]);
    assert_eq!(summed, all);
    assert_eq!(report["rows"], whole["rows"]);
    let text = home.run(&["trace", "report", "the.trace"]);
    assert!(text.code == Some(0) && text.stdout.contains("posix write"), "{text:?}");
    let files = std::fs::read_dir(home.path().join("the.trace")).unwrap();
    let names: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| !name.to_str().unwrap().ends_with(".parquet")), "{names:?}");
    for args in [
        &["trace", "export", "--to", "csv", "the.trace"][..],
        &["trace", "replay", "the.trace", "into"],
        &["trace", "report", "--op", "read", "the.trace"],
    ] {
        let refused = home.run(args);
        assert_eq!(refused.code, Some(2), "{args:?}: {refused:?}");
    }
    // One that is damaged is named.
    std::fs::write(home.path().join("the.trace/summary.json"), "{}").unwrap();
    assert_eq!(home.run(&["trace", "report", "the.trace"]).code, Some(4));
}

/// Every processor is busy, and rings are small: what finds no room waits, and nothing is lost.
#[test]
fn busy_machine_loses_nothing() {
    const BYTES: u64 = 60_000;
    let home = Home::new();
    let busy: Vec<_> = (0..6)
        .map(|_| {
            let mut sh = Command::new("sh");
            sh.args(["-c", "while :; do :; done"]).stdout(Stdio::null()).spawn().unwrap()
        })
        .collect();
    let count = format!("count={BYTES}");
    let dd = ["dd", "if=/dev/zero", "of=out", "bs=1", "status=none", &count];
    let record = |options: &[&str]| {
        let _ = std::fs::remove_dir_all(home.path().join("the.trace"));
        let words = ["trace", "record", "-o", "the.trace", "--records", "1024"];
        let run = home.run(&[&words, options, &["--"], &dd].concat());
        (run, home.info())
    };
    let (waiting, dropping) =
        (record(&["--when-full", "block=60000"]), record(&["--when-full", "drop"]));
    for mut child in busy {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let (run, info) = waiting;
    assert!(run.code == Some(0) && info.lost == 0, "{run:?}");
    assert!(info.operations >= 2 * BYTES && info.waited.0 > 0 && info.waited.1 > 0, "{info:?}");
    assert!(run.stderr.contains("until there was room"), "{run:?}");
    let (run, info) = dropping;
    assert!(run.code == Some(0) && info.waited == (0, 0), "{run:?}");
    assert!(info.operations + info.lost >= 2 * BYTES, "{info:?}");
}

#[test]
fn diff_names_what_takes_longer() {
    let home = Home::new();
    home.write("in", &"x".repeat(50_000));
    record(&home, &[]);
    std::fs::rename(home.path().join("the.trace"), home.path().join("first.trace")).unwrap();
    record(&home, &["--summary"]);
    let diff = home.run(&["trace", "diff", "first.trace", "the.trace"]);
    assert_eq!(diff.code, Some(0), "{diff:?}");
    assert!(diff.stdout.starts_with("before: dd if=in"), "{diff:?}");
    assert!(diff.stdout.contains("posix write"), "{diff:?}");
    let json = home.run(&["trace", "diff", "--json", "first.trace", "the.trace"]);
    let said: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    let mut operations = said["operations"].as_array().unwrap().iter();
    let writes = operations.find(|row| row["name"] == "posix write").unwrap();
    assert_eq!((&writes["count_before"], &writes["count_after"]), (&500.into(), &500.into()));
    assert_eq!(home.run(&["trace", "diff", "first.trace", "none.trace"]).code, Some(2));
}
