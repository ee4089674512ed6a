//! What programs have done is done again.
use sheaf_trace::replay::{Replay, ReplayOptions, ReplaySpeed};
use sheaf_trace::{Collector, TraceNames, TraceRow};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The library that records, which is made beside this test.
fn library() -> PathBuf {
    let path = std::env::current_exe().unwrap().with_file_name("libsheaf_preload.so");
    assert!(path.exists(), "{} is built with this test", path.display());
    path
}

/// What a shell's commands do in a directory.
fn recorded(script: &str, work: &Path) -> (Vec<TraceRow>, TraceNames) {
    let segments = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut shell = Command::new("/bin/sh");
    shell.args(["-ec", script]).current_dir(work);
    shell.env("LD_PRELOAD", library()).env("SHEAF_TRACE_DIR", segments.path());
    assert!(shell.status().unwrap().success());
    let (mut names, mut rows) = (TraceNames::default(), Vec::new());
    let mut collector = Collector::new(segments.path(), "n1").unwrap();
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        let collected = collector.collect(&mut names).unwrap();
        assert_eq!((collected.lost, collected.names_lost), (0, 0));
        rows.extend(collected.rows);
        collector.release().unwrap();
        assert!(Instant::now() < until, "{} segments are not read to their end", collector.open());
        if collector.open() == 0 {
            break;
        }
    }
    rows.sort_by_key(|row| row.time_ns);
    (rows, names)
}

#[test]
fn programs_are_done_again() {
    let (work, into) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let work_path = work.path().canonicalize().unwrap();
    fs::write(work_path.join("in"), vec![7; 100_000]).unwrap();
    let script = "mkdir made; dd if=in of=made/out bs=4096 status=none; \
                  dd if=in of=made/part bs=1000 count=3 seek=5 status=none; \
                  echo more >> made/out; cat made/out > copy; rm made/part; \
                  mkdir gone; rmdir gone; truncate -s 10 copy";
    let (rows, names) = recorded(script, &work_path);
    let options = ReplayOptions {
        from_prefix: Some(work_path.clone()),
        speed: ReplaySpeed::Unpaced,
        ..ReplayOptions::new(into.path())
    };
    let mut replay = Replay::new(options).unwrap();
    rows.iter().for_each(|row| replay.plan(row, &names));
    let mut replaying = replay.begin().unwrap();
    rows.iter().for_each(|row| replaying.row(row, &names).unwrap());
    let outcome = replaying.finish().unwrap();
    let len = |path: &str| fs::metadata(into.path().join(path)).map(|it| it.len()).ok();
    assert_eq!(outcome.differences, []);
    assert_eq!((outcome.files_made, outcome.bytes_made, outcome.unmade), (1, 100_000, 0));
    for (op, count) in [("mkdir", 2), ("rmdir", 1), ("unlink", 1)] {
        assert_eq!(outcome.ops[op].count, count, "{op}");
    }
    let writes = &outcome.ops["write"];
    assert_eq!(writes.bytes_recorded, writes.bytes_replayed);
    assert!(writes.count >= 29 && writes.bytes_recorded >= 103_005, "{writes:?}");
    assert_eq!(
        (len("in"), len("made/out"), len("made/part"), len("copy"), len("gone")),
        (Some(100_000), Some(100_005), None, Some(10), None)
    );
}
