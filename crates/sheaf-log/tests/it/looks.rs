//! Looks that are made again and again find all there is.
use sheaf_log::{Collector, TraceNames};
use sheaf_recorder::{IoEvent, IoOp, SegmentOptions, TraceSegment};
use std::process::Command;
use std::time::{Duration, Instant};

/// Far below what the looks of [`short_programs_are_found_whenever_they_begin`] would take if each
/// waited for a second.
const LIMIT: Duration = Duration::from_secs(60);

/// Each program begins and ends between two looks, some in the same tick of the clock as the look
/// before.
#[test]
fn short_programs_are_found_whenever_they_begin() {
    const PROGRAMS: u64 = 300;
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let (mut names, mut found) = (TraceNames::default(), 0);
    let mut collector = Collector::new(directory.path(), "n1").unwrap();
    let until = Instant::now() + LIMIT;
    for number in 0..PROGRAMS {
        let path = directory.path().join(format!("{number}.segment"));
        let options = SegmentOptions { rings: 1, ..SegmentOptions::default() };
        let segment = TraceSegment::create(&path, &options).unwrap();
        let mut writer = segment.writer().unwrap();
        writer.put(&IoEvent { asked: number, ..IoEvent::new(IoOp::Read) });
        drop(writer);
        segment.end();
        while found <= number {
            let collected = collector.collect_lately(&mut names).unwrap();
            collector.release().unwrap();
            for row in &collected.rows {
                assert_eq!(row.asked, found as i64);
                found += 1;
            }
            assert!(Instant::now() < until, "{found} of {PROGRAMS} are found");
        }
    }
    assert_eq!(collector.open(), 0);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// A program that was killed has not said that it ends.
#[test]
fn log_of_a_killed_program_is_read_to_its_end_by_every_look() {
    for is_last in [false, true] {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let library = std::env::current_exe().unwrap().with_file_name("libsheaf_preload.so");
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", "read line < /dev/null; read line < /dev/null; read last; kill -9 $$"]);
        shell.env("LD_PRELOAD", library).env("SHEAF_TRACE_DIR", directory.path());
        let mut shell = shell.stdin(std::process::Stdio::piped()).spawn().unwrap();
        let mut names = TraceNames::default();
        let mut collector = Collector::new(directory.path(), "n1").unwrap();
        let until = Instant::now() + LIMIT;
        let mut opened = 0;
        while opened < 2 {
            let collected = collector.collect_lately(&mut names).unwrap();
            let is_open = |row: &&sheaf_log::TraceRow| {
                names.text(row.op) == b"open" && names.text(row.path) == b"/dev/null"
            };
            opened += collected.rows.iter().filter(is_open).count();
            collector.release().unwrap();
            assert!(Instant::now() < until);
        }
        assert_eq!(collector.open(), 1);
        drop(shell.stdin.take());
        assert!(!shell.wait().unwrap().success());
        if is_last {
            // What is left, and that nothing more comes, is known at once.
            collector.collect(&mut names).unwrap();
            collector.release().unwrap();
        }
        while !is_last && collector.open() > 0 {
            collector.collect_lately(&mut names).unwrap();
            collector.release().unwrap();
            assert!(Instant::now() < until);
        }
        assert_eq!(collector.open(), 0);
    }
}
