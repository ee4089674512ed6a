//! Parts of a trace are ended, kept, removed and counted.
use parquet::column::writer::ColumnCloseResult;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use sheaf_trace::served::{BatchPart, KeptRows, RowFilter, ServedStore, ServedTotals, TraceBatch};
use sheaf_trace::{
    KeepLimits, PartLimits, RemovedParts, StoreReader, TraceError, TraceInfo, TraceNames, TraceRow,
};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Rows of each batch, which is a part: all but one are operations, and that tells of so many lost.
const ROWS: u64 = 10;
const LOST: u64 = 3;
const HOUR_NS: i64 = 3_600_000_000_000;
const EACH: PartLimits = PartLimits { rows_max: ROWS, time_max: Duration::MAX };
const ALL: KeepLimits = KeepLimits { bytes_max: None, time_max: None };

fn now_ns() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as i64
}

/// What a host has done from then on, one operation each ns.
fn batch(number: u64, begin_ns: i64) -> TraceBatch {
    let mut names = TraceNames::default();
    let [host, op, path] = [&b"n1"[..], b"read", b"/f"].map(|name| names.number(name));
    let row = |at: u64| TraceRow {
        time_ns: begin_ns + at as i64,
        host,
        op,
        layer: op,
        command: path,
        path,
        ..TraceRow::default()
    };
    let mut rows: Vec<TraceRow> = (0..ROWS).map(row).collect();
    (rows[0].op, rows[0].bytes) = (names.number(b"lost"), LOST as i64);
    let host = "n1".to_owned();
    let part =
        BatchPart { host, life: 7, rows: number * ROWS, count: ROWS, ..BatchPart::default() };
    TraceBatch { parts: vec![part], names, rows }
}

/// Ten parts, each half an hour after a full hour before now: 9½ hours ago, …, half an hour ago.
fn ten_parts(directory: &Path) -> i64 {
    let mut store = ServedStore::open(directory, EACH, ALL).unwrap();
    let now = now_ns();
    for number in 0..10 {
        let begin = now - (10 - number) * HOUR_NS + HOUR_NS / 2;
        assert_eq!(store.add(batch(number as u64, begin), 0, 0).unwrap(), ROWS);
    }
    let ended = store.finish();
    assert_eq!(counts(&ended), (90, 30, RemovedParts::default()));
    assert_eq!(files(directory), (0..10).collect::<Vec<_>>());
    now
}

fn counts(ended: &ServedTotals) -> (u64, u64, RemovedParts) {
    assert!(ended.totals.error.is_none() && ended.totals.damaged.is_empty(), "{ended:?}");
    (ended.totals.rows, ended.totals.lost, ended.removed)
}

fn path(directory: &Path, number: u32) -> PathBuf {
    directory.join(format!("trace-{number:06}.parquet"))
}

/// The numbers of the parts that are there.
fn files(directory: &Path) -> Vec<u32> {
    (0..20).filter(|&number| path(directory, number).exists()).collect()
}

/// What hosts have taken for somebody else is left out, and counted where it was done before.
#[test]
fn rows_outside_the_kept_filter_are_left_out() {
    let trace = tempfile::tempdir().unwrap();
    let begun_ns = now_ns() - HOUR_NS;
    let reads = RowFilter { ops: vec!["read".to_owned()], ..RowFilter::default() };
    let kept = KeptRows { begun_ns, filter: reads };
    let mut store = ServedStore::open(trace.path(), EACH, ALL).unwrap().keeping(kept);
    // The first three, of which one is 3 that are lost, come too early.
    let mut begun = batch(0, begun_ns - 3);
    begun.rows[9].op = begun.names.number(b"write");
    assert_eq!(store.add(begun, 0, 0).unwrap(), 6);
    // It is done a little too early, and not over yet.
    let mut long = batch(1, begun_ns - 3);
    long.rows[2].duration_ns = 1;
    assert_eq!(store.add(long, 0, 0).unwrap(), 8);
    let ended = store.finish();
    assert_eq!(counts(&ended), (14, 0, RemovedParts::default()));
    assert_eq!(ended.hosts[0].before, (LOST + 2) + (LOST + 1));
}

/// A store in which nothing is yet leaves nothing when it is given up.
#[test]
fn store_that_is_given_up_leaves_nothing() {
    let trace = tempfile::tempdir().unwrap();
    TraceInfo::default().write(trace.path()).unwrap();
    ServedStore::open(trace.path(), EACH, ALL).unwrap().discard().unwrap();
    assert_eq!(fs::read_dir(trace.path()).unwrap().count(), 0);
}

/// Opens and ends it with these limits.
fn trimmed(directory: &Path, keep: KeepLimits) -> (u64, u64, RemovedParts) {
    counts(&ServedStore::open(directory, EACH, keep).unwrap().finish())
}

/// Rows that are not read as lost, the sum of those that are, and what could not be read.
fn read(reader: &StoreReader) -> (u64, u64, Vec<TraceError>) {
    let (mut rows, mut lost) = (0, 0);
    let damaged = reader.read(&mut TraceNames::default(), |row, names| {
        match names.text(row.op) == b"lost" {
            true => lost += row.bytes as u64,
            false => rows += 1,
        }
        Ok(())
    });
    (rows, lost, damaged.unwrap())
}

fn hours(hours: u64) -> KeepLimits {
    KeepLimits { time_max: Some(Duration::from_secs(hours * 3600)), ..ALL }
}

#[test]
fn old_parts_are_removed_and_all_adds_up() {
    let trace = tempfile::tempdir().unwrap();
    let now = ten_parts(trace.path());
    let until_ns = now - 6 * HOUR_NS + HOUR_NS / 2 + ROWS as i64 - 1;
    let removed = RemovedParts { parts: 5, operations: 45, lost: 15, until_ns, kept_from: 5 };
    assert_eq!(trimmed(trace.path(), hours(5)), (45, 30, removed));
    assert_eq!(files(trace.path()), [5, 6, 7, 8, 9]);
    assert_eq!(TraceInfo::read(trace.path()).unwrap().unwrap().removed, removed);
    let reader = StoreReader::open(trace.path()).unwrap();
    assert_eq!(reader.removed(), removed);
    let (rows, lost, damaged) = read(&reader);
    assert_eq!((rows + removed.operations, lost + removed.lost, damaged.len()), (90, 30, 0));
    // Nothing more is too old, and what comes goes behind all.
    let mut store = ServedStore::open(trace.path(), EACH, hours(5)).unwrap();
    store.add(batch(10, now), 0, 0).unwrap();
    assert_eq!(counts(&store.finish()), (54, 33, removed));
    assert_eq!(files(trace.path()), [5, 6, 7, 8, 9, 10]);
}

/// A spool of which no part can be made is told of at once, and made one when it can.
#[test]
fn part_that_cannot_be_made_is_made_later() {
    let trace = tempfile::tempdir().unwrap();
    let in_the_way = trace.path().join("trace-000000.parquet.part");
    fs::create_dir(&in_the_way).unwrap();
    let mut store = ServedStore::open(trace.path(), EACH, ALL).unwrap();
    store.add(batch(0, now_ns()), 0, 0).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let told = loop {
        if let Some(told) = store.troubles().pop() {
            break told;
        }
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(1));
    };
    assert!(told.ends_with("Is a directory (EISDIR): what came is kept, and is tried again"));
    fs::remove_dir(in_the_way).unwrap();
    store.add(batch(1, now_ns()), 0, 0).unwrap();
    let ended = store.finish();
    assert_eq!(counts(&ended), (18, 6, RemovedParts::default()));
    assert!(!ended.totals.is_unfinished);
    assert_eq!(files(trace.path()), [0, 1]);
}

/// Whoever is killed has written the count and not removed all parts.
#[test]
fn parts_counted_as_removed_are_removed_after_a_crash() {
    let (trace, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    ten_parts(trace.path());
    for number in 3..5 {
        fs::copy(path(trace.path(), number), path(copy.path(), number)).unwrap();
    }
    let (_, _, removed) = trimmed(trace.path(), hours(5));
    for number in 3..5 {
        fs::copy(path(copy.path(), number), path(trace.path(), number)).unwrap();
    }
    // And a count that was not wholly written.
    fs::write(trace.path().join("trace.json.part"), "{").unwrap();
    let reader = StoreReader::open(trace.path()).unwrap();
    assert_eq!((reader.removed(), read(&reader).0), (removed, 45));
    assert_eq!(trimmed(trace.path(), ALL), (45, 30, removed));
    assert_eq!(files(trace.path()), [5, 6, 7, 8, 9]);
}

#[test]
fn parts_of_so_many_bytes_stay_and_none_if_none_may() {
    let trace = tempfile::tempdir().unwrap();
    ten_parts(trace.path());
    let bytes = (7..10).map(|number| path(trace.path(), number).metadata().unwrap().len()).sum();
    let keep = |bytes| KeepLimits { bytes_max: Some(bytes), ..ALL };
    let (rows, lost, removed) = trimmed(trace.path(), keep(bytes));
    assert_eq!((rows, lost, removed.parts, removed.operations), (27, 30, 7, 63));
    assert_eq!(files(trace.path()), [7, 8, 9]);
    assert_eq!(trimmed(trace.path(), keep(bytes - 1)).2.parts, 8);
    let (rows, lost, removed) = trimmed(trace.path(), keep(0));
    assert_eq!((rows, lost, removed.parts, removed.operations), (0, 30, 10, 90));
    let reader = StoreReader::open(trace.path()).unwrap();
    let (rows, _, damaged) = read(&reader);
    assert_eq!((reader.removed(), rows, damaged.len()), (removed, 0, 0));
}

#[test]
fn reader_is_told_what_is_removed_under_it() {
    let trace = tempfile::tempdir().unwrap();
    ten_parts(trace.path());
    let reader = StoreReader::open(trace.path()).unwrap();
    trimmed(trace.path(), hours(5));
    let (rows, lost, damaged) = read(&reader);
    assert_eq!((rows, lost, damaged.len()), (45, 15, 1));
    assert!(matches!(&damaged[0], TraceError::Removed { parts: 5, .. }), "{damaged:?}");
    let told = damaged[0].to_string();
    assert!(told.contains("5 of its oldest parts were removed while it was read"), "{told}");
    // What somebody else takes away is another thing.
    let reader = StoreReader::open(trace.path()).unwrap();
    fs::remove_file(path(trace.path(), 8)).unwrap();
    let (rows, _, damaged) = read(&reader);
    assert_eq!((rows, damaged.len()), (36, 1));
    assert!(damaged[0].to_string().contains("trace-000008.parquet: No such file"), "{damaged:?}");
}

/// A part without what stands at its end, as it was written before.
fn without_counts(path: &Path) {
    let file = File::open(path).unwrap();
    let reader = SerializedFileReader::new(file.try_clone().unwrap()).unwrap();
    let schema = reader.metadata().file_metadata().schema_descr().root_schema_ptr();
    let (other, options) = (path.with_extension("other"), WriterProperties::builder().build());
    let out = File::create(&other).unwrap();
    let mut writer = SerializedFileWriter::new(out, schema, Arc::new(options)).unwrap();
    for group in reader.metadata().row_groups() {
        let mut into = writer.next_row_group().unwrap();
        for column in group.columns() {
            let as_it_is = ColumnCloseResult {
                bytes_written: column.compressed_size() as u64,
                rows_written: group.num_rows() as u64,
                metadata: column.clone(),
                bloom_filter: None,
                column_index: None,
                offset_index: None,
            };
            into.append_column(&file, as_it_is).unwrap();
        }
        into.close().unwrap();
    }
    writer.close().unwrap();
    fs::rename(other, path).unwrap();
}

#[test]
fn parts_that_do_not_say_what_is_in_them_are_read() {
    let trace = tempfile::tempdir().unwrap();
    ten_parts(trace.path());
    (0..10).for_each(|number| without_counts(&path(trace.path(), number)));
    let (rows, lost, removed) = trimmed(trace.path(), hours(5));
    assert_eq!((rows, lost, removed.operations, removed.lost), (45, 30, 45, 15));
}

#[test]
fn damaged_part_is_told_and_removed_in_its_turn() {
    let trace = tempfile::tempdir().unwrap();
    ten_parts(trace.path());
    fs::write(path(trace.path(), 0), "no Parquet").unwrap();
    let keep = KeepLimits { bytes_max: Some(0), ..ALL };
    let ended = ServedStore::open(trace.path(), EACH, keep).unwrap().finish();
    let (damaged, why) = &ended.totals.damaged[0];
    assert_eq!((ended.totals.damaged.len(), damaged), (1, &path(trace.path(), 0)), "{why}");
    assert_eq!((ended.removed.parts, ended.removed.operations), (10, 81));
}
