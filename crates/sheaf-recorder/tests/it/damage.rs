//! Files that are no segments, or no whole ones.
use sheaf_recorder::{Damage, IoEvent, IoOp, Reader, SegmentOptions, TakeLimits, TraceSegment};
use std::os::unix::fs::FileExt;
use std::path::Path;

#[test]
fn invalid_segment_files_are_rejected_with_the_cause() {
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
    file.write_at(&3_u32.to_le_bytes(), 8).unwrap();
    assert_eq!(
        Reader::open(&path).unwrap_err().to_string(),
        "it is of version 3, and this reads them up to 2"
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
fn full_file_system_ends_nobody() {
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
    let path = Path::new(&directory).join("s");
    let options = SegmentOptions { rings: 2, records: 8192, ..SegmentOptions::default() };
    let segment = TraceSegment::create(&path, &options).unwrap();
    let mut writer = segment.writer().unwrap();
    let number = writer.name(b"/a");
    let count = 20_000;
    for offset in 0..count {
        writer.put(&IoEvent { file: number, offset, ..IoEvent::new(IoOp::Write) });
    }
    let read = Reader::open(&path).unwrap().read();
    assert!(read.lost > count / 2 && read.records.len() >= 1024, "{}", read.records.len());
    assert_eq!(read.records.len() as u64 + read.lost, count);
    let other = directory.to_string_lossy().into_owned() + "/t";
    assert!(TraceSegment::create(other.as_ref(), &options).is_err() || segment.writer().is_none());
    println!("counted");
}

const RECORDS: u64 = 40;

/// A segment with as many records, of two names, in the first of two rings; gives its bytes.
fn written(path: &Path) -> Vec<u8> {
    let options =
        SegmentOptions { rings: 2, records: 64, names_bytes: 8192, ..SegmentOptions::default() };
    let segment = TraceSegment::create(path, &options).unwrap();
    let mut writer = segment.writer().unwrap();
    let names = [writer.name(b"/a"), writer.name(b"/b")];
    for offset in 0..RECORDS {
        let file = names[offset as usize % 2];
        writer.put(&IoEvent { file, offset, bytes: 1, ..IoEvent::new(IoOp::Write) });
    }
    drop(writer);
    std::fs::read(path).unwrap()
}

/// Cut off anywhere, it is refused, and how much of it is there is said.
#[test]
fn segment_that_is_cut_off_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let whole = written(&path).len() as u64;
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    // From behind: what is cut off stays so.
    for len in (0..whole).rev().filter(|len| len % 64 == 0 || len % 64 == 63) {
        file.set_len(len).unwrap();
        let damage = Reader::open(&path).unwrap_err();
        let expected = if len < 4096 { Damage::NoSegment } else { Damage::Short(len, whole) };
        assert_eq!(damage, expected, "{len} of {whole}");
    }
}

/// Whatever byte is another one: it is refused, or what is still whole comes back, and no more.
#[test]
fn flipped_byte_takes_no_more_than_it_can() {
    const HEADER: usize = 4096;
    const RING_HEADER: usize = 256;
    const NAMES: usize = HEADER + RING_HEADER + 64 * 64;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let whole = written(&path);
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let records = HEADER + RING_HEADER..HEADER + RING_HEADER + RECORDS as usize * 64;
    let places = (0..192).chain(HEADER..records.end).chain(NAMES..NAMES + 64);
    let mut refused = 0;
    for place in places {
        for flip in [0xff, 0x01, 0x80] {
            file.write_at(&[whole[place] ^ flip], place as u64).unwrap();
            match Reader::open(&path) {
                Err(_) => refused += 1,
                Ok(mut reader) => {
                    let read = reader.read();
                    let have = read.records.len() as u64;
                    // A head that cannot be is none: the records themselves say how many there are.
                    if place == HEADER + 7 {
                        assert_eq!((have, read.lost), (RECORDS, 0));
                    }
                    assert!(read.names.len() <= 2, "{place}: {:?}", read.names);
                    assert!(have <= RECORDS, "{place}: {have}");
                    if records.contains(&place) {
                        assert!(have >= RECORDS - 1, "{place}: {have}");
                        // The one that is no more what it was is counted.
                        assert_eq!(have + read.lost, RECORDS, "{place}");
                    }
                }
            }
            // The reader has moved its own positions on, too.
            file.write_at(&whole, 0).unwrap();
        }
    }
    assert!(refused > 0, "the header is looked at");
    assert_eq!(Reader::open(&path).unwrap().read().records.len() as u64, RECORDS);
}

/// The owner of a segment may cut it off at any moment: the reader says so, and goes on.
#[test]
fn segment_that_is_cut_off_while_it_is_read_ends_no_reader() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    for len in [0, 4096, 4096 + 256, 4096 + 256 + 64] {
        written(&path);
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        let mut reader = Reader::open(&path).unwrap();
        reader.take_some(0);
        file.set_len(len).unwrap();
        let read = reader.take_some(usize::MAX);
        assert!(read.records.len() <= 1 && read.names.is_empty() && !read.more, "{len}: {read:?}");
        assert!(matches!(reader.damage(), Some(Damage::Short(..))), "{len}: {:?}", reader.damage());
        // Whatever else is asked of it comes back.
        reader.release();
        reader.hold();
        reader.let_go();
        assert!(!reader.is_held() && !reader.has_ended() && reader.take_names().0.is_empty());
        assert_eq!((reader.waiting(), reader.read().records.len()), (0, 0));
        assert_eq!(file.metadata().unwrap().len(), len, "nothing is written to it");
        std::fs::remove_file(&path).unwrap();
    }
}

/// A pipe, a directory or a link with a segment's name is refused at once.
#[test]
fn special_files_are_no_segments_and_block_no_reader() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let made = std::process::Command::new("mkfifo").arg(path("fifo")).status().unwrap();
    assert!(made.success());
    assert_eq!(Reader::open(&path("fifo")).unwrap_err(), Damage::NoSegment);
    std::fs::create_dir(path("directory")).unwrap();
    assert!(matches!(Reader::open(&path("directory")).unwrap_err(), Damage::Kernel(_)));
    written(&path("s"));
    std::os::unix::fs::symlink(path("s"), path("link")).unwrap();
    assert!(matches!(Reader::open(&path("link")).unwrap_err(), Damage::Kernel(_)));
}

/// However many rings there are, one look takes no more than its limits; the next ones take the rest,
/// of each ring.
#[test]
fn look_is_bounded_and_the_next_ones_take_the_rest() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let options =
        SegmentOptions { rings: 8, records: 64, names_bytes: 8192, ..SegmentOptions::default() };
    let segment = TraceSegment::create(&path, &options).unwrap();
    let mut writers: Vec<_> = (0..8).map(|_| segment.writer().unwrap()).collect();
    for (ring, writer) in (0..).zip(&mut writers) {
        for number in 0..50 {
            let file = writer.name(format!("/{ring}/{number}").as_bytes());
            writer.put(&IoEvent { file, offset: ring, ..IoEvent::new(IoOp::Read) });
        }
    }
    let mut reader = Reader::open(&path).unwrap();
    let limits =
        TakeLimits { ring_records: 30, records: 70, names_bytes: 2000, ..TakeLimits::default() };
    let (mut names, mut of_rings, mut looks) = (0, [0; 8], 0);
    loop {
        let read = reader.take_within(&limits, true);
        reader.release();
        let bytes: usize =
            read.names.values().map(|name| name.len().next_multiple_of(8) + 16).sum();
        assert!(read.records.len() <= 70 && bytes < 2000 + 8192, "{read:?}");
        names += read.names.len();
        read.records.iter().for_each(|record| of_rings[record.offset as usize] += 1);
        looks += 1;
        assert!(looks < 100);
        if looks == 12 {
            assert!(of_rings.iter().all(|count| *count > 0), "all have their turn: {of_rings:?}");
        }
        if !read.more {
            break;
        }
    }
    assert_eq!((names, of_rings), (400, [50; 8]));
}

/// A closed reader has no descriptor; opened again, it goes on where it was, in the same file alone.
#[test]
fn closed_reader_goes_on_in_the_same_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let segment = TraceSegment::create(&path, &SegmentOptions::default()).unwrap();
    let mut writer = segment.writer().unwrap();
    let mut reader = Reader::open(&path).unwrap();
    for offset in 0..10 {
        writer.put(&IoEvent { offset, ..IoEvent::new(IoOp::Read) });
        reader.open_again();
        let read = reader.read();
        assert_eq!(read.records.iter().map(|record| record.offset).collect::<Vec<_>>(), [offset]);
        reader.close();
    }
    std::fs::rename(&path, directory.path().join("t")).unwrap();
    written(&path);
    reader.open_again();
    assert!(reader.read().records.is_empty());
    assert_eq!(reader.damage(), Some(&Damage::NoSegment));
}

/// Whoever owns a segment may write into it what no process can have done.
#[test]
fn counts_that_cannot_be_are_told_and_not_added() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let options =
        SegmentOptions { rings: 1, records: 64, names_bytes: 8192, ..SegmentOptions::default() };
    let segment = TraceSegment::create(&path, &options).unwrap();
    segment.writer().unwrap().put(&IoEvent::new(IoOp::Read));
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    const LOST: u64 = 4096 + 8;
    file.write_at(&u64::MAX.to_le_bytes(), LOST).unwrap();
    let read = Reader::open(&path).unwrap().read();
    assert_eq!((read.records.len(), read.lost, read.is_doubtful), (1, 0, true));
    file.write_at(&7_u64.to_le_bytes(), LOST).unwrap();
    let read = Reader::open(&path).unwrap().read();
    assert_eq!((read.lost, read.is_doubtful), (7, false));
}
