//! Written and lost are what was done, exactly.
use sheaf_recorder::{Full, IoEvent, IoOp, Read, Reader, SegmentOptions, TraceSegment, flag};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

fn small(full: Full) -> SegmentOptions {
    SegmentOptions {
        rings: 4,
        records: 64,
        names_bytes: 8192,
        full,
        slow: 0,
        ..SegmentOptions::default()
    }
}

fn event(number: u64) -> IoEvent {
    IoEvent {
        begun: number,
        ended: number + 3,
        offset: number,
        bytes: 1,
        flags: flag::PLACED,
        ..IoEvent::new(IoOp::Write)
    }
}

#[test]
fn full_ring_counts_what_it_does_not_keep() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let segment = TraceSegment::create(&path, &small(Full::DropNewest)).unwrap();
    let mut writer = segment.writer().unwrap();
    let mut reader = Reader::open(&path).unwrap();
    (0..100).for_each(|number| writer.put(&event(number)));
    let first = reader.read();
    assert_eq!((first.records.len(), first.lost), (64, 36));
    assert_eq!(first.gaps, [], "no record tells of them yet");
    writer.put(&event(100));
    let second = reader.read();
    assert_eq!((second.records.len(), second.lost), (1, 36));
    let gap = second.gaps[0];
    assert_eq!((gap.ring, gap.count, gap.from, gap.to), (0, 36, 64, 102));
}

#[test]
fn records_lost_at_the_end_are_counted_as_a_gap() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let segment = TraceSegment::create(&path, &small(Full::DropNewest)).unwrap();
    let mut writer = segment.writer().unwrap();
    (0..100).for_each(|number| writer.put(&event(number)));
    drop(writer);
    segment.end();
    let mut reader = Reader::open(&path).unwrap();
    assert!(!reader.is_written());
    let read = reader.read();
    assert_eq!((read.records.len(), read.lost, read.gaps.len()), (64, 36, 1));
    assert_eq!((read.gaps[0].count, read.gaps[0].from, read.gaps[0].to), (36, 64, 102));
    assert_eq!(reader.read().gaps, []);
}

#[test]
fn flight_recorder_keeps_the_newest() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let segment = TraceSegment::create(&path, &small(Full::Overwrite)).unwrap();
    let mut writer = segment.writer().unwrap();
    (0..1000).for_each(|number| writer.put(&event(number)));
    let read = Reader::open(&path).unwrap().read();
    let offsets: Vec<u64> = read.records.iter().map(|record| record.offset).collect();
    assert_eq!(offsets, (936..1000).collect::<Vec<_>>());
    assert_eq!((read.overwritten, read.lost), (936, 0));
}

#[test]
fn records_before_a_slow_operation_stay_until_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let options = SegmentOptions { slow: 1_000, ..small(Full::Overwrite) };
    let segment = TraceSegment::create(&path, &options).unwrap();
    let (mut writer, mut other) = (segment.writer().unwrap(), segment.writer().unwrap());
    let mut reader = Reader::open(&path).unwrap();
    (0..100).for_each(|number| writer.put(&event(number)));
    (0..80).for_each(|number| other.put(&event(1_000 + number)));
    assert!(!reader.is_held());
    writer.put(&IoEvent { begun: 5, ended: 1_005, ..event(100) });
    assert!(reader.is_held());
    // What comes now has no place, in any ring.
    (0..30).for_each(|number| writer.put(&event(200 + number)));
    (0..3).for_each(|number| other.put(&event(2_000 + number)));
    let read = reader.read();
    let offsets: Vec<u64> = read.records.iter().map(|record| record.offset).collect();
    let expected: Vec<u64> = (37..=100).chain(1_016..1_080).collect();
    assert_eq!(offsets, expected);
    assert_eq!((read.overwritten, read.lost, read.gaps), (37 + 16, 33, vec![]));
    reader.let_go();
    (0..70).for_each(|number| writer.put(&event(300 + number)));
    let read = reader.read();
    let offsets: Vec<u64> = read.records.iter().map(|record| record.offset).collect();
    assert_eq!(offsets, (306..370).collect::<Vec<_>>());
    assert_eq!((read.overwritten, read.lost), (37 + 16 + 6, 33));
}

#[test]
fn recorder_names_are_taken_before_they_have_no_room() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let segment = TraceSegment::create(&path, &small(Full::Overwrite)).unwrap();
    let mut writer = segment.writer().unwrap();
    let mut reader = Reader::open(&path).unwrap();
    let mut names = std::collections::HashMap::new();
    writer.name(b"/first");
    assert!(reader.take_names().0.is_empty(), "there is room");
    for number in 0..1_000 {
        let file = writer.name(format!("/data/{number}").as_bytes());
        writer.put(&IoEvent { file, ..event(number) });
        names.extend(reader.take_names().0);
    }
    let read = reader.read();
    names.extend(read.names);
    assert_eq!((read.records.len(), read.names_lost, names.len()), (64, 0, 1_001));
    let last = read.records.last().unwrap();
    assert_eq!(names[&last.file], b"/data/999");
}

#[test]
fn times_offsets_and_errors_come_as_they_were() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let segment = TraceSegment::create(&path, &small(Full::DropNewest)).unwrap();
    let mut writer = segment.writer().unwrap();
    let file = writer.name(b"/data/a file");
    let long = IoEvent { begun: 7, ended: 7 + (1 << 40), ..event(0) };
    let far = IoEvent { file, offset: u64::MAX - 1, asked: 1 << 40, span: 9, ..event(1) };
    let failed = IoEvent { flags: flag::FAILED, bytes: 28, ..event(2) };
    [long, far, failed].iter().for_each(|event| writer.put(event));
    let read = Reader::open(&path).unwrap().read();
    let [long, far, failed] = read.records[..] else { panic!("{read:?}") };
    assert_eq!((long.begun, long.ticks), (7, 1 << 40));
    assert_eq!((far.offset, far.asked, far.span), (u64::MAX - 1, 1 << 40, 9));
    assert_eq!(read.names[&far.file], b"/data/a file");
    assert_eq!((failed.flags & flag::FAILED, failed.bytes), (flag::FAILED, 28));
}

#[test]
fn names_go_round_and_those_without_room_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let segment = TraceSegment::create(&path, &small(Full::DropNewest)).unwrap();
    let mut writer = segment.writer().unwrap();
    let mut reader = Reader::open(&path).unwrap();
    let name = |number: usize| vec![b'a' + (number % 26) as u8; 1 + number * 37 % 700];
    let mut told = 0;
    for number in 0..500 {
        let name = name(number);
        if !writer.tell(sheaf_recorder::RingWriter::number_of(&name), &name) {
            let read = reader.read();
            assert!(read.names.values().all(|name| name.iter().all(|byte| *byte == name[0])));
            assert!(writer.tell(sheaf_recorder::RingWriter::number_of(&name), &name));
            told += 1;
        }
    }
    let read = reader.read();
    assert!(told > 10 && read.names_lost == told, "{told}, {}", read.names_lost);
    assert_eq!(read.names[&sheaf_recorder::RingWriter::number_of(&name(499))], name(499));
}

/// Writers at full speed, a reader beside them: nothing is there twice, nothing unaccounted.
#[test]
fn written_and_lost_are_what_was_done() {
    const EACH: u64 = 300_000;
    for full in [Full::DropNewest, Full::Overwrite] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let options = SegmentOptions { records: 1024, ..small(full) };
        let segment = TraceSegment::create(&path, &options).unwrap();
        let done = AtomicBool::new(false);
        let mut all: Vec<Read> = Vec::new();
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..3)
                .map(|thread| {
                    let segment = &segment;
                    scope.spawn(move || {
                        let mut writer = segment.writer().unwrap();
                        for number in 0..EACH {
                            writer.put(&event(thread << 32 | number));
                        }
                    })
                })
                .collect();
            let reading = scope.spawn(|| {
                let (mut reader, mut all) = (Reader::open(&path).unwrap(), Vec::new());
                loop {
                    let last = done.load(Ordering::Acquire);
                    all.push(reader.read());
                    if last {
                        return all;
                    }
                }
            });
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            segment.end();
            done.store(true, Ordering::Release);
            all = reading.join().unwrap();
        });
        let records: Vec<u64> =
            all.iter().flat_map(|read| &read.records).map(|record| record.offset).collect();
        let unique: HashSet<u64> = records.iter().copied().collect();
        assert_eq!(unique.len(), records.len(), "{full:?}: some came twice");
        assert!(records.iter().all(|offset| offset & 0xffff_ffff < EACH && offset >> 32 < 3));
        let last = all.last().unwrap();
        assert_eq!(records.len() as u64 + last.lost + last.overwritten, 3 * EACH, "{full:?}");
        if full == Full::DropNewest {
            let told: u64 = all.iter().flat_map(|read| &read.gaps).map(|gap| gap.count).sum();
            assert_eq!(told, last.lost, "what is lost is told with its time");
        }
        assert_eq!(last.unplaced, 0);
    }
}

#[test]
fn ring_is_taken_over_and_more_threads_than_rings_find_none() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let segment = TraceSegment::create(&path, &small(Full::DropNewest)).unwrap();
    for number in 0..10 {
        std::thread::scope(|scope| {
            scope.spawn(|| segment.writer().unwrap().put(&event(number)));
        });
    }
    let writers: Vec<_> = (0..4).map(|_| segment.writer().unwrap()).collect();
    assert!(segment.writer().is_none());
    segment.unplaced();
    drop(writers);
    let read = Reader::open(&path).unwrap().read();
    assert_eq!(read.records.len(), 10);
    assert!(read.records.iter().all(|record| record.place.0 == 0), "one ring for all, in turn");
    let threads: HashSet<u32> = read.records.iter().map(|record| record.thread).collect();
    assert!(threads.len() > 1 && read.unplaced == 1);
}
