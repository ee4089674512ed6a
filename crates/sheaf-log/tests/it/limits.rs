//! What a collector takes of its process, however much is recorded.
use sheaf_log::collect::{CollectLimits, OpenShare};
use sheaf_log::{Collected, Collector, LOST_NAME, TraceNames};
use sheaf_recorder::{IoEvent, IoOp, SegmentOptions, TraceSegment};
use std::path::Path;

const SEGMENTS: usize = 10;
const RECORDS: u64 = 20;

/// Segments of processes that run, with as many threads each.
fn segments(directory: &Path, rings: u32) -> Vec<TraceSegment> {
    let options = SegmentOptions { rings, ..SegmentOptions::default() }.with_records(64);
    let make = |number: usize| {
        TraceSegment::create(&directory.join(format!("{number}.segment")), &options).unwrap()
    };
    (0..SEGMENTS).map(make).collect()
}

/// Each of the rings gets as many records, on files of its own.
fn record(segments: &[TraceSegment], rings: u32) {
    for (number, segment) in segments.iter().enumerate() {
        let mut writers: Vec<_> = (0..rings).map(|_| segment.writer().unwrap()).collect();
        for (ring, writer) in writers.iter_mut().enumerate() {
            for at in 0..RECORDS {
                let file = writer.name(format!("/{number}/{ring}/{at}").as_bytes());
                writer.put(&IoEvent { file, ..IoEvent::new(IoOp::Read) });
            }
        }
    }
}

fn look(collector: &mut Collector, names: &mut TraceNames) -> Collected {
    let collected = collector.collect(names).unwrap();
    collector.release().unwrap();
    collected
}

/// Descriptors of this process that lead to a directory's files.
fn descriptors(directory: &Path) -> usize {
    let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let leads = |link: std::fs::DirEntry| std::fs::read_link(link.path()).ok();
    links.filter_map(leads).filter(|path| path.starts_with(directory)).count()
}

#[test]
fn segments_beyond_the_share_of_descriptors_are_read_too() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let segments = segments(directory.path(), 1);
    let (mut names, share) = (TraceNames::default(), OpenShare::new(3, 4));
    let limits = || CollectLimits { open: share.clone(), ..CollectLimits::default() };
    let mut collector = Collector::new(directory.path(), "n1").unwrap().within(limits());
    for round in 0..3 {
        record(&segments, 1);
        let rows = look(&mut collector, &mut names).rows.len();
        assert_eq!(rows as u64, SEGMENTS as u64 * RECORDS, "{round}");
        assert_eq!(descriptors(directory.path()), 3, "those of the share");
    }
    // Another user has as many, but all together have no more than theirs.
    let other = CollectLimits { open: share.of_another(), ..CollectLimits::default() };
    let mut other = Collector::new(directory.path(), "n1").unwrap().within(other);
    look(&mut other, &mut names);
    assert_eq!(descriptors(directory.path()), 4);
    drop(collector);
    assert_eq!(descriptors(directory.path()), 1, "they are given back");
    segments.iter().for_each(TraceSegment::end);
    look(&mut other, &mut names);
    assert_eq!((other.open(), descriptors(directory.path())), (0, 0));
}

#[test]
fn looks_are_bounded_and_nothing_is_left_out() {
    const RINGS: u32 = 3;
    const LOOKS_MAX: u32 = 1_000;
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let segments = segments(directory.path(), RINGS);
    record(&segments, RINGS);
    let limits = CollectLimits { records: 25, ..CollectLimits::default() };
    let mut collector = Collector::new(directory.path(), "n1").unwrap().within(limits);
    let (mut names, mut all, mut looks) = (TraceNames::default(), Vec::new(), 0);
    loop {
        let collected = look(&mut collector, &mut names);
        assert!(collected.rows.len() <= 25);
        all.extend(collected.rows);
        looks += 1;
        assert!(looks < LOOKS_MAX);
        if !collected.more {
            break;
        }
    }
    let files: std::collections::HashSet<u32> = all.iter().map(|row| row.path).collect();
    let wanted = SEGMENTS * RINGS as usize * RECORDS as usize;
    assert_eq!((all.len(), files.len()), (wanted, wanted));
}

#[test]
fn segments_beyond_the_limit_wait_for_others_to_end() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let segments = segments(directory.path(), 1);
    record(&segments, 1);
    let limits = CollectLimits { segments: 4, ..CollectLimits::default() };
    let mut collector = Collector::new(directory.path(), "n1").unwrap().within(limits);
    let mut names = TraceNames::default();
    let first = look(&mut collector, &mut names);
    assert_eq!(first.rows.len() as u64, 4 * RECORDS);
    let [(_, why)] = &first.damaged[..] else { panic!("{:?}", first.damaged) };
    assert_eq!(why, "6 segments wait: no more than 4 are read at once");
    segments.iter().for_each(TraceSegment::end);
    let mut rows = first.rows.len();
    for _ in 0..4 {
        rows += look(&mut collector, &mut names).rows.len();
    }
    assert_eq!(rows as u64, SEGMENTS as u64 * RECORDS);
}

#[test]
fn threads_and_names_beyond_the_limit_are_reported() {
    const RINGS: u32 = 3;
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let segments = segments(directory.path(), RINGS);
    record(&segments, RINGS);
    let limits = CollectLimits { rings: 12, names_bytes: 2000, ..CollectLimits::default() };
    let mut collector = Collector::new(directory.path(), "n1").unwrap().within(limits);
    let mut names = TraceNames::default();
    let mut looked = look(&mut collector, &mut names);
    for _ in 0..20 {
        let more = look(&mut collector, &mut names);
        looked.rows.extend(more.rows);
        looked.names_lost += more.names_lost;
        looked.damaged.extend(more.damaged);
    }
    assert_eq!(looked.rows.len() as u64, 12 * RECORDS);
    let [(_, why)] = &looked.damaged[..] else { panic!("{:?}", looked.damaged) };
    assert_eq!(why, "18 threads are not read: more than 12 are recorded there");
    assert!(names.bytes() < 4000, "{}", names.bytes());
    let mut named: std::collections::HashSet<u32> =
        looked.rows.iter().map(|row| row.path).collect();
    // Those without a name have another one in its place.
    named.retain(|&path| !names.text(path).starts_with(LOST_NAME));
    assert_eq!(named.len() as u64 + looked.names_lost, 12 * RECORDS);
}

/// A file that another user owns is none of this directory's.
#[test]
fn segment_of_another_user_is_refused() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let segments = segments(directory.path(), 1);
    record(&segments, 1);
    let path = directory.path().join("3.segment");
    if std::os::unix::fs::chown(&path, Some(65534), None).is_err() {
        return sheaf_testing::skipped("only root can give files to other users");
    }
    let mut collector = Collector::new(directory.path(), "n1").unwrap();
    let collected = look(&mut collector, &mut TraceNames::default());
    assert_eq!(collected.rows.len() as u64, (SEGMENTS as u64 - 1) * RECORDS);
    assert_eq!(collected.damaged, [(path, "it is another user's".to_owned())]);
    assert!(look(&mut collector, &mut TraceNames::default()).damaged.is_empty(), "told once");
}
