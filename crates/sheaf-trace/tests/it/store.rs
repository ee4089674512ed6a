//! What is stored is what was recorded.
use sheaf_recorder::{IoEvent, IoOp, SegmentOptions, TraceSegment, flag};
use sheaf_trace::{
    Collector, ReportOptions, StoreReader, TraceNames, TraceReport, TraceRow, TraceStore,
};
use std::path::Path;

/// Records so many reads, collected while they are made.
fn recorded(count: u64, offset: impl Fn(u64) -> u64) -> (Vec<TraceRow>, TraceNames) {
    let directory = tempfile::tempdir().unwrap();
    let segment = TraceSegment::create(
        &directory.path().join("1.segment"),
        &SegmentOptions { rings: 2, ..SegmentOptions::default() },
    )
    .unwrap();
    let (mut names, mut rows) = (TraceNames::default(), Vec::new());
    let mut collector = Collector::new(directory.path(), "n1").unwrap();
    let mut writer = segment.writer().unwrap();
    let file = writer.name(b"/data/a b\xff");
    let clock = segment.clock();
    for number in 0..count {
        let begun = clock.now();
        writer.put(&IoEvent {
            file,
            begun,
            ended: begun + 2000 + random(number) % 700,
            offset: offset(number),
            asked: 4096,
            bytes: if number % 1000 == 7 { 5 } else { 4096 },
            flags: flag::PLACED | if number % 1000 == 7 { flag::FAILED } else { 0 },
            ..IoEvent::new(IoOp::Read)
        });
        if number % 10_000 == 0 {
            rows.extend(collector.collect(&mut names).unwrap().rows);
            collector.release().unwrap();
        }
    }
    drop(writer);
    segment.end();
    let last = collector.collect(&mut names).unwrap();
    collector.release().unwrap();
    assert_eq!((last.lost, collector.open()), (0, 0), "it has ended, and is taken away");
    rows.extend(last.rows);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    (rows, names)
}

fn stored(rows: &[TraceRow], names: &TraceNames, file_rows_max: u64) -> (tempfile::TempDir, u64) {
    let directory = tempfile::tempdir().unwrap();
    let mut store = TraceStore::open(directory.path(), file_rows_max).unwrap();
    rows.chunks(50_000).for_each(|rows| store.push(rows, names).unwrap());
    store.finish(names).unwrap();
    let files = std::fs::read_dir(directory.path()).unwrap();
    let bytes = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
    (directory, bytes)
}

fn read(directory: &Path) -> (Vec<TraceRow>, TraceNames, Vec<String>) {
    let (mut rows, mut names) = (Vec::new(), TraceNames::default());
    let reader = StoreReader::open(directory).unwrap();
    let damaged = reader
        .read(&mut names, |row, _| {
            rows.push(*row);
            Ok(())
        })
        .unwrap();
    (rows, names, damaged.iter().map(ToString::to_string).collect())
}

#[test]
fn rows_come_back_as_they_were() {
    let (mut rows, mut names) = recorded(30_000, |number| number * 4096);
    assert_eq!(rows.len(), 30_000);
    for number in [0, 1, 4097, 29_999] {
        rows[number].new_path = Some(names.number(format!("/new/{number}").as_bytes()));
    }
    assert!(rows.is_sorted_by_key(|row| row.time_ns));
    let (directory, _) = stored(&rows, &names, 10_000_000);
    let (back, other, damaged) = read(directory.path());
    assert_eq!(damaged, Vec::<String>::new());
    assert_eq!(back.len(), rows.len());
    for (row, back) in rows.iter().zip(&back) {
        let named = |row: &TraceRow, names: &TraceNames| {
            let new_path = row.new_path.map(|at| names.text(at).to_vec());
            let all = [row.op, row.layer, row.host, row.command, row.path];
            (all.map(|at| names.text(at).to_vec()), new_path)
        };
        assert_eq!(named(row, &names), named(back, &other));
        let numbers = |row: &TraceRow| TraceRow {
            op: 0,
            layer: 0,
            host: 0,
            command: 0,
            path: 0,
            new_path: None,
            ..*row
        };
        assert_eq!(numbers(row), numbers(back));
    }
    let mut report = TraceReport::new(ReportOptions::default());
    back.iter().for_each(|row| report.add(row, &other));
    let data = report.finish(&other);
    let file = &data.files[0];
    assert_eq!((file.path.as_str(), data.files.len()), ("/data/a b\\xff", 1));
    assert_eq!((file.reads.count, file.reads.failed), (30_000, 30));
    assert_eq!(file.reads.bytes, 29_970 * 4096);
    let reads = &file.accesses[0].reads;
    assert_eq!((reads.placed, reads.aligned, reads.sizes[0].from), (29_970, 29_970, 4096));
    assert_eq!(reads.sizes[0].count, 29_970);
}

/// A number that none before it tells of (SplitMix64).
fn random(number: u64) -> u64 {
    let mixed = (number ^ number >> 30).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[test]
fn event_takes_a_few_bytes() {
    let (rows, names) = recorded(400_000, |number| number * 4096);
    let (_directory, bytes) = stored(&rows, &names, 10_000_000);
    let sequential = bytes as f64 / rows.len() as f64;
    let (rows, names) = recorded(400_000, |number| (random(number) % (1 << 20)) << 12);
    let (_directory, bytes) = stored(&rows, &names, 10_000_000);
    let random = bytes as f64 / rows.len() as f64;
    println!(
        "{} rows, {bytes} bytes: {sequential:.2} bytes of a sequential event, {random:.2} of a random one",
        rows.len()
    );
    assert!(sequential <= 4.0 && random <= 8.0, "{sequential} {random}");
}

#[test]
fn store_goes_on_with_its_own_file_and_a_broken_one_is_told() {
    let (rows, names) = recorded(2000, |number| number);
    let directory = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let mut store = TraceStore::open(directory.path(), 1_000_000).unwrap();
        store.push(&rows, &names).unwrap();
        store.finish(&names).unwrap();
    }
    assert_eq!(read(directory.path()).0.len(), 4000);
    let file = directory.path().join("trace-000000.parquet");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    let (rows, _, damaged) = read(directory.path());
    assert_eq!(rows.len(), 2000, "the other one is read");
    assert!(damaged.len() == 1 && damaged[0].contains("trace-000000.parquet: "), "{damaged:?}");
    assert!(StoreReader::open(&directory.path().join("none")).is_err());
}

/// Two files of the same rows, of which tests spoil the first one; gives that.
fn two_files(rows: &[TraceRow], names: &TraceNames) -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let mut store = TraceStore::open(directory.path(), 1_000_000).unwrap();
        store.push(rows, names).unwrap();
        store.finish(names).unwrap();
    }
    let first = directory.path().join("trace-000000.parquet");
    (directory, first)
}

/// Cut off anywhere, a file is told by its name, and the others are read.
#[test]
fn file_that_is_cut_off_is_told_and_the_others_are_read() {
    let (rows, names) = recorded(300, |number| number);
    let (directory, file) = two_files(&rows, &names);
    let whole = std::fs::metadata(&file).unwrap().len();
    let cut = std::fs::File::options().write(true).open(&file).unwrap();
    for len in (0..whole).rev().filter(|len| len % 64 == 0 || whole - len <= 16) {
        cut.set_len(len).unwrap();
        let (back, _, damaged) = read(directory.path());
        assert_eq!(back.len(), rows.len(), "{len} of {whole}");
        assert!(damaged.len() == 1, "{len} of {whole}: {damaged:?}");
        assert!(damaged[0].contains("trace-000000.parquet: "), "{damaged:?}");
    }
}

/// Whatever byte is another one: what cannot be read is told, and the other file is read as it is.
#[test]
fn flipped_byte_costs_no_other_file() {
    use std::os::unix::fs::FileExt;
    let (rows, names) = recorded(300, |number| number);
    let (directory, path) = two_files(&rows, &names);
    let whole = std::fs::read(&path).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let mut told = 0;
    for (place, byte) in whole.iter().enumerate() {
        file.write_at(&[byte ^ 0xff], place as u64).unwrap();
        let (back, _, damaged) = read(directory.path());
        // Rows may come before the place where it is seen that a part is damaged.
        assert!((rows.len()..=2 * rows.len()).contains(&back.len()), "{place}: {}", back.len());
        assert!(back.len() == 2 * rows.len() || !damaged.is_empty(), "{place}: {damaged:?}");
        told += usize::from(!damaged.is_empty());
        file.write_at(&[*byte], place as u64).unwrap();
    }
    assert!(told > whole.len() / 10, "{told} of {} were seen", whole.len());
    println!("{told} of {} flipped bytes were seen", whole.len());
}

/// A Parquet file with one row of these columns.
fn parquet_file(path: &Path, schema: &str) {
    use parquet::column::writer::ColumnWriter;
    use parquet::file::writer::SerializedFileWriter;
    let schema = parquet::schema::parser::parse_message_type(schema).unwrap();
    let file = std::fs::File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema.into(), Default::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    while let Some(mut column) = group.next_column().unwrap() {
        match column.untyped() {
            ColumnWriter::Int64ColumnWriter(column) => column.write_batch(&[1], Some(&[1]), None),
            ColumnWriter::Int32ColumnWriter(column) => column.write_batch(&[1], Some(&[1]), None),
            ColumnWriter::ByteArrayColumnWriter(column) => {
                column.write_batch(&["x".into()], None, None)
            }
            ColumnWriter::BoolColumnWriter(column) => column.write_batch(&[true], None, None),
            _ => unreachable!("there are none"),
        }
        .unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();
}

#[test]
fn file_of_others_is_told_and_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace-000000.parquet");
    let said = |schema: &str| {
        parquet_file(&path, schema);
        let (rows, _, damaged) = read(directory.path());
        assert_eq!((rows.len(), damaged.len()), (0, 1));
        damaged[0].split_once(": ").unwrap().1.to_owned()
    };
    assert_eq!(
        said("message other { required int64 a; required binary b; }"),
        "is Parquet, but no trace: column 1 is “required INT64 a”, not “required INT64 time”"
    );
    let begin = "message trace { required int64 time; required int64 duration_ns;
        required binary op; required binary layer; required binary host; required binary command;
        required binary path;";
    assert_eq!(
        said(&format!("{begin} optional int32 offset; }}")),
        "is Parquet, but no trace: column 8 is “optional INT32 offset”, not “optional INT64 \
         offset”"
    );
    assert_eq!(
        said(&format!("{begin} }}")),
        "is Parquet, but no trace: it has no column “optional INT64 offset”"
    );
    // One that was written before new paths were kept.
    let whole = format!(
        "{begin} optional int64 offset; required int64 asked; required int64 bytes;
        required int32 errno; required int32 pid; required int32 thread; required boolean nested; }}"
    );
    parquet_file(&path, &whole.replace("optional int64 offset", "required int64 offset"));
    assert_eq!(read(directory.path()).2.len(), 1);
    parquet_file(&path, &whole);
    let (rows, _, damaged) = read(directory.path());
    assert_eq!((rows.len(), damaged), (1, vec![]));
    assert_eq!((rows[0].new_path, rows[0].is_nested, rows[0].thread), (None, true, 1));
    std::fs::rename(&path, path.with_extension("parquet.part")).unwrap();
    std::fs::write(path.with_extension("parquet.part"), b"PAR1 cut off").unwrap();
    let (_, _, damaged) = read(directory.path());
    assert!(damaged[0].contains("was not ended"), "{damaged:?}");
}

#[test]
fn names_have_a_limit() {
    let mut names = TraceNames::default();
    let rows: Vec<TraceRow> = (0..1000)
        .map(|number| TraceRow {
            path: names.number(format!("/a/file/{number}").as_bytes()),
            op: names.number(b"read"),
            time_ns: number,
            offset: (number % 2 == 0).then_some(number),
            ..TraceRow::default()
        })
        .collect();
    let (directory, _) = stored(&rows, &names, 1000);
    let (mut few, mut beyond, mut offsets) = (TraceNames::default(), 0, 0);
    let reader = StoreReader::open(directory.path()).unwrap().with_name_bytes_max(2000);
    let told = reader
        .read(&mut few, |row, names| {
            beyond += usize::from(names.text(row.path) == sheaf_trace::OTHER_NAME);
            offsets += row.offset.unwrap_or(0);
            Ok(())
        })
        .unwrap();
    assert_eq!((told.len(), offsets), (1, 500 * 499));
    assert!(told[0].to_string().contains(&format!("{beyond} names did not fit")), "{told:?}");
    assert!(beyond > 900 && few.bytes() < 2100, "{beyond} {}", few.bytes());
}

/// Files whose times overlap come out in one order of time.
#[test]
fn files_that_overlap_are_read_in_one_order() {
    let (all, names) = recorded(30_000, |number| number * 4096);
    let directory = tempfile::tempdir().unwrap();
    // The last comes late, and another lies across all.
    let across: Vec<TraceRow> = all.iter().copied().step_by(7).collect();
    let rest: Vec<TraceRow> =
        all.iter().enumerate().filter(|(at, _)| at % 7 != 0).map(|(_, row)| *row).collect();
    for rows in [&rest[10_000..20_000], &across, &rest[20_000..], &rest[..10_000]] {
        let mut store = TraceStore::open(directory.path(), u64::MAX).unwrap();
        let backwards: Vec<TraceRow> = rows.iter().rev().copied().collect();
        store.push(&backwards, &names).unwrap();
        store.finish(&names).unwrap();
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 4);
    let (back, _, damaged) = read(directory.path());
    assert_eq!(damaged, Vec::<String>::new());
    let offsets =
        |rows: &[TraceRow]| -> Vec<Option<i64>> { rows.iter().map(|row| row.offset).collect() };
    assert!(back.is_sorted_by_key(|row| row.time_ns));
    let mut wanted = all.clone();
    wanted.sort_by_key(|row| row.time_ns);
    assert_eq!(offsets(&back), offsets(&wanted));
}

#[test]
fn trace_info_is_read_whole_while_it_is_written() {
    use sheaf_trace::TraceInfo;
    use std::sync::atomic::{AtomicBool, Ordering};
    let directory = tempfile::tempdir().unwrap();
    let info = |operations| TraceInfo { operations, ..TraceInfo::default() };
    info(0).write(directory.path()).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (1..=300).for_each(|operations| info(operations).write(directory.path()).unwrap());
            is_over.store(true, Ordering::Release);
        });
        let mut last = 0;
        while !is_over.load(Ordering::Acquire) {
            let read = TraceInfo::read(directory.path()).unwrap().expect("it is there");
            assert!(read.operations >= last);
            last = read.operations;
        }
    });
    assert_eq!(TraceInfo::read(directory.path()).unwrap(), Some(info(300)));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

/// Wherever a bit is another one it is said, and where it is not, what is read is the same.
#[test]
fn no_flipped_bit_goes_unnoticed() {
    let (rows, names) = recorded(300, |number| number * 4096);
    let (directory, _) = stored(&rows, &names, u64::MAX);
    let (all, _, told) = read(directory.path());
    assert!(told.is_empty() && all.len() == 300, "{told:?}");
    let file = directory.path().join("trace-000000.parquet");
    let bytes = std::fs::read(&file).unwrap();
    let mut unnoticed = Vec::new();
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        std::fs::write(&file, flipped).unwrap();
        let (read, _, told) = read(directory.path());
        if told.is_empty() {
            assert!(read == all, "byte {at} of {}", bytes.len());
            unnoticed.push(at);
        }
    }
    assert!(unnoticed.is_empty(), "{unnoticed:?} of {}", bytes.len());
}
