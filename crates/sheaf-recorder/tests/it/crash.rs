//! What is committed is there, whenever the process is killed.
use sheaf_recorder::{IoEvent, IoOp, Reader, SegmentOptions, TraceSegment};
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::Duration;

const CHILD: &str = "SHEAF_RECORDER_CHILD";

/// The process that is killed: it says after each record that it is written, by its pipe.
#[test]
fn as_a_child() {
    let Ok(path) = std::env::var(CHILD) else { return };
    let segment = TraceSegment::create(path.as_ref(), &SegmentOptions::default()).unwrap();
    let mut writer = segment.writer().unwrap();
    println!("ready");
    for number in 0_u64.. {
        writer.put(&IoEvent { offset: number, ..IoEvent::new(IoOp::Read) });
        if number % 64 == 0 {
            println!("{number}");
        }
    }
}

#[test]
fn killed_writer_leaves_all_committed_records_readable() {
    for round in 0..20 {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::as_a_child", "--nocapture"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.ends_with("ready\n") {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0);
        }
        let mut reader = Reader::open(&path).unwrap();
        assert!(reader.is_written());
        std::thread::sleep(Duration::from_micros(round * 137));
        child.kill().unwrap();
        child.wait().unwrap();
        let mut rest = String::new();
        said.read_to_string(&mut rest).unwrap();
        let acknowledged = rest.lines().filter_map(|line| line.parse::<u64>().ok()).max();
        assert!(!reader.is_written());
        let read = reader.read();
        let offsets: Vec<u64> = read.records.iter().map(|record| record.offset).collect();
        assert!(offsets.iter().copied().eq(0..offsets.len() as u64), "in order, without gaps");
        let done = offsets.len() as u64 + read.lost;
        assert!(acknowledged.is_none_or(|last| done > last), "{acknowledged:?} of {done}");
    }
}
