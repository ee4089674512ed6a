//! Files that are no segments, or no whole ones.
use sheaf_recorder::{Damage, Reader, SegmentOptions, TraceSegment};
use std::os::unix::fs::FileExt;

#[test]
fn what_is_no_segment_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    assert_eq!(Reader::open(&path).unwrap_err(), Damage::Kernel(2));
    for len in [0, 100, 5000] {
        std::fs::write(&path, vec![7; len]).unwrap();
        assert_eq!(Reader::open(&path).unwrap_err(), Damage::NoSegment);
    }
    std::fs::remove_file(&path).unwrap();
    let options =
        SegmentOptions { rings: 2, records: 64, names_bytes: 8192, ..SegmentOptions::default() };
    drop(TraceSegment::create(&path, &options).unwrap());
    assert!(TraceSegment::create(&path, &options).is_err(), "one that is there is not taken");
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let whole = std::fs::metadata(&path).unwrap().len();
    file.set_len(whole - 1).unwrap();
    assert_eq!(Reader::open(&path).unwrap_err(), Damage::Short(whole - 1, whole));
    file.set_len(whole).unwrap();
    assert!(Reader::open(&path).is_ok());
    file.write_at(&2_u32.to_le_bytes(), 8).unwrap();
    assert_eq!(
        Reader::open(&path).unwrap_err().to_string(),
        "it is of version 2, and this reads version 1"
    );
}

#[test]
fn sizes_are_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let sound = SegmentOptions::default();
    for (number, bad) in [
        SegmentOptions { rings: 0, ..sound },
        SegmentOptions { records: 1000, ..sound },
        SegmentOptions { records: 2, ..sound },
        SegmentOptions { names_bytes: 4096, ..sound },
        SegmentOptions { names_bytes: u32::MAX, ..sound },
    ]
    .iter()
    .enumerate()
    {
        let path = directory.path().join(number.to_string());
        assert!(TraceSegment::create(&path, bad).is_err(), "{bad:?}");
        assert!(!path.exists());
    }
}

/// A memory file system that is full: nobody is ended by a signal, and what has no room is counted.
#[test]
fn a_full_file_system_ends_nobody() {
    const WORDS: &str = "mount -t tmpfs -o size=320k none \"$1\" && exec \"$2\" --exact damage::as_a_child --nocapture";
    let directory = tempfile::tempdir().unwrap();
    let made = std::process::Command::new("unshare")
        .args(["--mount", "sh", "-c", WORDS, "sh"])
        .arg(directory.path())
        .arg(std::env::current_exe().unwrap())
        .env("SHEAF_RECORDER_FULL", directory.path())
        .output();
    match made {
        Ok(output) if String::from_utf8_lossy(&output.stderr).contains("unshare failed") => {
            println!("skipped: no file system can be mounted here");
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("counted"), "{output:?}");
        }
        Err(error) => println!("skipped: unshare: {error}"),
    }
}

#[test]
fn as_a_child() {
    let Some(directory) = std::env::var_os("SHEAF_RECORDER_FULL") else { return };
    let path = std::path::Path::new(&directory).join("s");
    let options = SegmentOptions { rings: 2, records: 8192, ..SegmentOptions::default() };
    let segment = TraceSegment::create(&path, &options).unwrap();
    let mut writer = segment.writer().unwrap();
    let number = writer.name(b"/a");
    let count = 20_000;
    for offset in 0..count {
        writer.put(&sheaf_recorder::IoEvent {
            file: number,
            offset,
            ..sheaf_recorder::IoEvent::new(sheaf_recorder::IoOp::Write)
        });
    }
    let read = Reader::open(&path).unwrap().read();
    assert!(read.lost > count / 2 && read.records.len() >= 1024, "{}", read.records.len());
    assert_eq!(read.records.len() as u64 + read.lost, count);
    let other = directory.to_string_lossy().into_owned() + "/t";
    assert!(TraceSegment::create(other.as_ref(), &options).is_err() || segment.writer().is_none());
    println!("counted");
}
