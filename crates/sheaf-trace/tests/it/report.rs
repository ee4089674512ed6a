//! What a report says of rows that are made up, number by number.
use proptest::prelude::*;
use sheaf_trace::{
    FindingKind, FindingSeverity, IoSums, RemovedParts, ReportData, ReportOptions, TraceNames,
    TraceReport, TraceRow,
};
use std::collections::{BTreeMap, BTreeSet};

/// Rows that come one after the other.
pub struct MadeTrace {
    pub names: TraceNames,
    pub rows: Vec<TraceRow>,
    pub now_ns: i64,
}

pub const BEGIN_NS: i64 = 1_700_000_000_000_000_000;

impl MadeTrace {
    pub fn new() -> Self {
        Self { names: TraceNames::default(), rows: Vec::new(), now_ns: BEGIN_NS }
    }

    /// An operation of 1 µs that moves all it is asked for.
    pub fn put(&mut self, op: &str, path: &[u8], offset: Option<i64>, bytes: i64) -> &mut TraceRow {
        self.now_ns += 10_000;
        let names = &mut self.names;
        self.rows.push(TraceRow {
            time_ns: self.now_ns,
            duration_ns: 1000,
            op: names.number(op.as_bytes()),
            layer: names.number(b"posix"),
            host: names.number(b"n1"),
            command: names.number(b"./job"),
            path: names.number(path),
            offset,
            asked: bytes,
            bytes,
            errno: 0,
            pid: 100,
            thread: 100,
            is_nested: false,
            new_path: None,
        });
        self.rows.last_mut().unwrap()
    }

    fn report_with(&self, options: ReportOptions) -> ReportData {
        let mut report = TraceReport::new(options);
        self.rows.iter().for_each(|row| report.add(row, &self.names));
        report.finish(&self.names)
    }

    pub fn report(&self) -> ReportData {
        self.report_with(ReportOptions::default())
    }

    pub fn kinds(&self) -> Vec<FindingKind> {
        self.report().findings.iter().map(|finding| finding.kind).collect()
    }
}

fn sums(count: u64, failed: u64, bytes: u128, time_ns: u128, longest_ns: u64) -> IoSums {
    IoSums { count, failed, bytes, time_ns, longest_ns }
}

#[test]
fn sums_are_exact() {
    let mut trace = MadeTrace::new();
    trace.put("open", b"/d/a", None, 0).duration_ns = 500;
    for number in 0..10 {
        trace.put("read", b"/d/a", Some(number * 4096), 4096).duration_ns = 100 + number;
    }
    trace.put("write", b"/d/b", Some(100), 50).pid = 101;
    let failed = trace.put("write", b"/d/b", Some(150), 50);
    (failed.errno, failed.bytes, failed.duration_ns) = (28, 0, 7);
    trace.put("open", b"none", None, 0).errno = 2;
    let data = trace.report();
    assert_eq!((data.rows, data.nested_rows, data.files_total), (14, 0, 3));
    assert_eq!(data.totals.all, sums(14, 2, 41_010, 500 + 1045 + 1000 + 7 + 1000, 1000));
    assert_eq!(data.totals.read, sums(10, 0, 40_960, 1045, 109));
    assert_eq!(data.totals.write, sums(2, 1, 50, 1007, 1000));
    assert_eq!(data.totals.metadata, sums(2, 1, 0, 1500, 1000));
    let span = data.span.unwrap();
    assert_eq!((span.first_ns, span.length_ns()), (BEGIN_NS + 10_000, 131_000));
    let file = data.files.iter().find(|file| file.path == "/d/a").unwrap();
    assert_eq!((file.opens, file.processes, file.hosts), (1, 1, 1));
    let reads = &file.accesses[0].reads;
    assert_eq!((reads.placed, reads.aligned, reads.first, reads.consecutive), (10, 10, 1, 9));
    assert_eq!((reads.sizes.len(), reads.sizes[0].from, reads.sizes[0].to), (1, 4096, 8191));
    assert_eq!((reads.common_sizes[0].bytes, reads.common_sizes[0].count), (4096, 10));
    let directories: Vec<_> = data
        .directories
        .iter()
        .map(|directory| (directory.path.as_str(), directory.files, directory.missing))
        .collect();
    assert_eq!(directories, [("/d", 2, 0), (".", 1, 1)]);
    let failures: Vec<_> = data
        .failures
        .iter()
        .map(|of| (of.op.as_str(), of.name.as_str(), of.count, of.examples[0].as_str()))
        .collect();
    assert_eq!(failures, [("open", "ENOENT", 1, "none"), ("write", "ENOSPC", 1, "/d/b")]);
    assert_eq!(data.slowest.len(), 14);
    assert_eq!(data.slowest[0].duration_ns, 1000);
    assert_eq!(data.processes.len(), 2);
    assert_eq!(data.findings, []);
}

#[test]
fn accesses_are_told_apart_for_each_process() {
    let mut trace = MadeTrace::new();
    for (pid, offsets) in
        [(1, [0, 10, 20, 30, 40]), (2, [0, 100, 200, 300, 400]), (3, [0, 50, 500, 20, 20])]
    {
        for offset in offsets {
            trace.put("read", b"/f", Some(offset), 10).pid = pid;
        }
    }
    trace.put("read", b"/f", None, 10);
    let data = trace.report();
    let reads = &data.files[0].accesses[0].reads;
    assert_eq!((reads.count, reads.placed, reads.first), (16, 15, 3));
    // 1: four go on. 2: one step ahead, then three of its stride. 3: two ahead, two back.
    assert_eq!((reads.consecutive, reads.strided, reads.forward, reads.backward), (4, 3, 3, 2));
    assert_eq!(data.files[0].processes, 4);
    let few = trace.report_with(ReportOptions { streams_max: 1, ..ReportOptions::default() });
    let reads = &few.files[0].accesses[0].reads;
    assert_eq!((reads.consecutive, reads.unclassified), (4, 10));
    assert!(few.notes[0].contains("more than 1 pairs"), "{:?}", few.notes);
}

#[test]
fn nested_operations_are_counted_once() {
    let mut trace = MadeTrace::new();
    let mpi = trace.names.number(b"mpi-io");
    for number in 0..3 {
        let outer = trace.put("write", b"/shared", Some(number * 8192), 8192);
        (outer.layer, outer.duration_ns) = (mpi, 900);
        for part in 0..2 {
            let inner = trace.put("write", b"/shared", Some(number * 8192 + part * 4096), 4096);
            (inner.is_nested, inner.duration_ns) = (true, 400);
        }
    }
    let data = trace.report();
    assert_eq!((data.rows, data.nested_rows), (9, 6));
    assert_eq!(data.totals.all, sums(3, 0, 24_576, 2700, 900));
    let layers: Vec<_> = data
        .layers
        .iter()
        .map(|layer| (layer.layer.as_str(), layer.outermost, layer.nested, layer.written_bytes))
        .collect();
    assert_eq!(
        layers,
        [
            ("mpi-io", sums(3, 0, 24_576, 2700, 900), IoSums::default(), 24_576),
            ("posix", IoSums::default(), sums(6, 0, 24_576, 2400, 400), 24_576),
        ]
    );
    let file = &data.files[0];
    assert_eq!((file.writes.count, file.nested.count), (3, 6));
    assert_eq!(file.lowest_access().unwrap().writes.count, 6);
    assert_eq!(data.slowest.len(), 3);
    let written: u128 = data.heat.rows.iter().flat_map(|row| &row.written_bytes).sum();
    assert_eq!(written, 24_576);
}

#[test]
fn lost_operations_are_no_operations() {
    let mut trace = MadeTrace::new();
    trace.put("read", b"/f", Some(0), 10);
    for count in [5, 70, 6] {
        trace.put("lost", b"", None, count);
    }
    let data = trace.report_with(ReportOptions { lost_ranges_max: 2, ..Default::default() });
    assert_eq!((data.rows, data.lost.count, data.lost.ranges), (1, 81, 3));
    assert_eq!(data.lost.biggest.iter().map(|range| range.count).collect::<Vec<_>>(), [70, 6]);
    assert_eq!(data.totals.all.count, 1);
    assert_eq!(data.findings[0].kind, FindingKind::LostOperations);
    assert_eq!(data.findings[0].severity, FindingSeverity::Grave);
    assert!(data.findings[0].sentence.starts_with("81 of 82 operations (99 %)"), "{data:?}");
}

#[test]
fn files_beyond_the_limit_are_counted_together() {
    let mut trace = MadeTrace::new();
    for number in 0..100 {
        let path = format!("/d{}/f{number}", number % 7);
        trace.put("read", path.as_bytes(), Some(0), 10);
        trace.put("read", b"/hot", Some(number * 10), 10);
    }
    let options = ReportOptions { files_max: 8, directories_max: 3, ..Default::default() };
    let data = trace.report_with(options);
    assert_eq!(data.files_total, 101);
    let hot = data.files.iter().find(|file| file.path == "/hot").unwrap();
    assert_eq!((hot.reads.count, hot.is_partial), (100, false), "it is never the smallest");
    let listed: u64 = data.files.iter().map(|file| file.reads.count).sum();
    assert_eq!(listed + data.files_beyond.reads.count, 200);
    assert_eq!(data.files.len() as u64 + data.files_beyond.files, 101);
    assert!(data.files.len() <= 8);
    let of_directories: u64 = data.directories.iter().map(|of| of.reads.count).sum();
    assert_eq!((of_directories, data.directories.len()), (200, 4));
    assert_eq!(data.notes.len(), 2, "{:?}", data.notes);
}

/// The JSON of a page.
fn embedded(html: &str) -> ReportData {
    let (_, rest) = html.split_once("<script type=\"application/json\" id=\"report\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn hostile_names_do_no_harm() {
    let mut trace = MadeTrace::new();
    let path = b"/d/</script><script>alert(1)</script>\x1b]0;x\x07\xff\"'&\xe2\x80\xae";
    for number in 0..2000 {
        trace.put("write", path, Some(number * 100 + 1), 100);
    }
    trace.put("stat", path, None, 0).errno = 2;
    trace.rows[0].command = trace.names.number(b"<img src=x onerror=alert(1)>");
    trace.rows[1].host = trace.names.number(b"<b>\x9b31m");
    trace.rows[2].op = trace.names.number(b"<i>");
    trace.rows[3].layer = trace.names.number(b"<u>");
    let data = trace.report();
    let html = data.to_html();
    assert_eq!(html.matches("<script").count(), 2, "ours");
    assert_eq!(html.matches("</script").count(), 2);
    for text in ["<img", "<b>\\x9b", "<i>", "<u>", "alert(1)</"] {
        assert!(!html.contains(text), "{text}");
    }
    for text in ["&lt;script&gt;alert(1)&lt;/script&gt;", "&lt;img src=x onerror=alert(1)&gt;"] {
        assert!(html.contains(text), "{text}");
    }
    let is_plain = |c: char| c == '\n' || !c.is_control();
    assert!(html.chars().all(is_plain) && !html.contains('\u{202e}'));
    assert_eq!(embedded(&html), data);
    for width in [0, 40, 80, 200] {
        let text = data.to_text(width);
        assert!(text.chars().all(is_plain) && !text.contains('\u{202e}'), "{text}");
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= width.max(80), "{widest} columns of {width}\n{text}");
    }
    // One whose JSON was made by somebody else.
    let mut data = data;
    data.files[0].path = "\u{1b}[2J<script>".into();
    assert!(data.to_text(80).chars().all(is_plain));
    assert_eq!(data.to_html().matches("<script").count(), 2);
}

#[test]
fn page_says_what_the_json_says() {
    let mut trace = MadeTrace::new();
    for number in 0..1234 {
        trace.put("read", b"/data/in", Some(number * 1_000_000), 1_000_000).duration_ns = 54_321;
    }
    trace.put("write", b"/data/out", Some(0), 1536);
    let data = trace.report();
    let html = data.to_html();
    assert_eq!(embedded(&html), data);
    let back: ReportData = serde_json::from_str(&data.to_json()).unwrap();
    assert_eq!(back, data);
    let cell = |value: u128, text: &str| format!("<td class=\"n\" data-v=\"{value}\">{text}</td>");
    let read = &data.totals.read;
    assert_eq!((read.bytes, read.time_ns), (1_234_000_000, 67_032_114));
    for cell in [
        cell(read.bytes, "1.14 GiB"),
        cell(read.time_ns, "67 ms"),
        cell(1234, "1,234"),
        cell(1536, "1.5 KiB"),
    ] {
        assert!(html.contains(&cell), "{cell}");
    }
    assert!(html.contains("2023-11-14 22:13:20.000 UTC"));
    for outside in ["http:", "https:", "src=", "href=", "@import", "url("] {
        assert!(!html.contains(outside), "{outside}");
    }
}

/// Any row, with few names of each kind.
fn any_row() -> impl Strategy<Value = (TraceRow, [u8; 5])> {
    let names = (0..6u8, 0..3u8, 0..3u8, 0..2u8, 0..9u8);
    let times = (-1_000_000i64..1_000_000, -5i64..100_000);
    let amounts = (proptest::option::of(0i64..100_000), -5i64..10_000, -5i64..10_000);
    let others = (prop_oneof![Just(0), Just(0), Just(2), Just(5)], 0..4i32, any::<bool>());
    (names, times, amounts, others).prop_map(
        |((op, layer, host, command, path), (time_ns, duration_ns), amounts, others)| {
            let (offset, asked, bytes) = amounts;
            let (errno, pid, is_nested) = others;
            let row = TraceRow {
                time_ns,
                duration_ns,
                offset,
                asked,
                bytes,
                errno,
                pid,
                is_nested,
                ..TraceRow::default()
            };
            (row, [op, layer, host, command, path])
        },
    )
}

fn add(sums: &mut IoSums, row: &TraceRow) {
    sums.count += 1;
    sums.failed += u64::from(row.errno != 0);
    sums.bytes += if row.errno == 0 { row.bytes.max(0) as u128 } else { 0 };
    sums.time_ns += row.duration_ns.max(0) as u128;
    sums.longest_ns = sums.longest_ns.max(row.duration_ns.max(0) as u64);
}

fn merged<'a>(all: impl IntoIterator<Item = &'a IoSums>) -> IoSums {
    let mut merged = IoSums::default();
    all.into_iter().for_each(|sums| merged.merge(sums));
    merged
}

proptest! {
    #[test]
    fn totals_are_those_of_a_naive_sum(
        made in proptest::collection::vec(any_row(), 0..300),
        files_max in 2usize..10,
        heat_rows_max in 1usize..8,
    ) {
        const OPS: [&str; 6] = ["read", "write", "open", "stat", "fsync", "lost"];
        let mut names = TraceNames::default();
        let rows: Vec<TraceRow> = made
            .into_iter()
            .map(|(row, [op, layer, host, command, path])| TraceRow {
                op: names.number(OPS[op as usize].as_bytes()),
                layer: names.number(["posix", "mpi-io", "stdio"][layer as usize].as_bytes()),
                host: names.number(format!("n{host}").as_bytes()),
                command: names.number(format!("c{command}").as_bytes()),
                path: if path == 0 {
                    names.number(b"")
                } else {
                    names.number(format!("/d{}/f{path}", path % 2).as_bytes())
                },
                ..row
            })
            .collect();
        let options = ReportOptions { files_max, heat_rows_max, ..ReportOptions::default() };
        let mut report = TraceReport::new(options);
        rows.iter().for_each(|row| report.add(row, &names));
        let data = report.finish(&names);

        let lost = |row: &&TraceRow| names.text(row.op) == b"lost";
        let [mut all, mut reads, mut streams, mut with_path] = [IoSums::default(); 4];
        let mut by_op: BTreeMap<(String, String), IoSums> = BTreeMap::new();
        let mut moved = 0u128;
        let mut processes = BTreeSet::new();
        for row in rows.iter().filter(|row| !lost(row)) {
            let text = |number| String::from_utf8(names.text(number).to_vec()).unwrap();
            add(by_op.entry((text(row.layer), text(row.op))).or_default(), row);
            processes.insert((row.host, row.pid, row.command));
            if row.is_nested {
                continue;
            }
            add(&mut all, row);
            let (moves, has_path) =
                (["read", "write"].contains(&text(row.op).as_str()), !text(row.path).is_empty());
            if text(row.op) == "read" && has_path {
                add(&mut reads, row);
            }
            if moves && !has_path {
                add(&mut streams, row);
            }
            if moves && has_path && row.errno == 0 {
                moved += row.bytes.max(0) as u128;
            }
            if has_path {
                add(&mut with_path, row);
            }
        }
        let count = |sums: &IoSums| (sums.count, sums.failed, sums.bytes, sums.time_ns);
        prop_assert_eq!(data.totals.all, all);
        prop_assert_eq!((data.totals.read, data.totals.stream), (reads, streams));
        prop_assert_eq!(all.time_ns, data.io_time_ns() + streams.time_ns);
        prop_assert_eq!(data.rows, rows.iter().filter(|row| !lost(row)).count() as u64);
        let pids: BTreeSet<_> = rows.iter().filter(|row| !lost(row)).map(|row| (row.host, row.pid)).collect();
        let lost: u128 = rows.iter().filter(lost).map(|row| row.bytes.max(0) as u128).sum();
        prop_assert_eq!(data.lost.count, lost);
        let ops: BTreeMap<_, _> = data
            .operations
            .iter()
            .map(|op| ((op.layer.clone(), op.op.clone()), op.sums))
            .collect();
        prop_assert_eq!(ops, by_op);
        prop_assert_eq!(data.programs_total, processes.len() as u64);
        prop_assert_eq!(data.processes_total, pids.len() as u64);
        let files = data.files.iter().flat_map(|file| [&file.reads, &file.writes, &file.other]);
        let beyond = &data.files_beyond;
        let files = merged(files.chain([&beyond.reads, &beyond.writes, &beyond.other]));
        prop_assert_eq!(count(&files), count(&with_path));
        let of = data.directories.iter().flat_map(|of| [&of.reads, &of.writes, &of.other]);
        prop_assert_eq!(count(&merged(of)), count(&with_path));
        let of = data.processes.iter();
        let of = of.flat_map(|of| [&of.reads, &of.writes, &of.other, &of.streams]);
        prop_assert_eq!(merged(of), all);
        let of = data.hosts.iter().flat_map(|of| [&of.reads, &of.writes, &of.other, &of.streams]);
        prop_assert_eq!(merged(of), all);
        prop_assert_eq!(merged(data.layers.iter().map(|layer| &layer.outermost)), all);
        let heat = data.heat.rows.iter().flat_map(|row| row.read_bytes.iter().chain(&row.written_bytes));
        prop_assert_eq!(heat.sum::<u128>(), moved);
        for access in data.files.iter().flat_map(|file| &file.accesses) {
            for of in [&access.reads, &access.writes] {
                let classes = of.first + of.consecutive + of.strided + of.forward + of.backward;
                prop_assert_eq!(classes + of.unclassified, of.placed);
                prop_assert_eq!(of.sizes.iter().map(|bucket| bucket.count).sum::<u64>(), of.count);
            }
        }
        prop_assert_eq!(&embedded(&data.to_html()), &data);
        prop_assert!(data.to_text(80).contains("Findings"));
    }

    #[test]
    fn no_row_is_too_strange(
        numbers in proptest::collection::vec(any::<[i64; 5]>(), 0..40),
    ) {
        let mut names = TraceNames::default();
        let mut report = TraceReport::new(ReportOptions::default());
        for [time_ns, duration_ns, offset, asked, bytes] in numbers {
            let op = names.number([&b"read"[..], b"write", b"lost", b"seek"][time_ns as usize % 4]);
            let path = names.number(b"/f");
            let offset = Some(offset);
            report.add(
                &TraceRow { time_ns, duration_ns, offset, asked, bytes, op, path, ..TraceRow::default() },
                &names,
            );
        }
        let data = report.finish(&names);
        prop_assert_eq!(&embedded(&data.to_html()), &data);
        prop_assert!(data.to_text(80).contains("Findings"));
    }
}

#[test]
fn removed_operations_are_mentioned_in_the_report() {
    let mut made = MadeTrace::new();
    made.put("read", b"/f", Some(0), 10);
    let mut data = made.report_with(ReportOptions::default());
    assert!(
        !data.to_text(80).contains("removed") && !data.to_html().contains("Removed operations")
    );
    let until_ns = BEGIN_NS + 123_456_789;
    data.removed =
        RemovedParts { parts: 2, operations: 1_234_567, lost: 8, until_ns, kept_from: 2 };
    let sentence = "1,234,567 operations and counts of 8 lost ones, the last of \
                    2023-11-14 22:13:20.123 UTC, were stored before and removed since, as serve \
                    --keep says";
    assert_eq!(data.removed.sentence(), sentence);
    assert!(data.to_text(1000).contains(sentence));
    assert!(data.to_html().contains(sentence));
    let back: ReportData = serde_json::from_str(&data.to_json()).unwrap();
    assert_eq!(back.removed, data.removed);
}

#[test]
fn two_traces_are_compared() {
    let (mut before, mut after) = (MadeTrace::new(), MadeTrace::new());
    for number in 0..100 {
        before.put("read", b"/in", Some(number << 20), 1 << 20).duration_ns = 1_000_000;
        after.put("read", b"/in", Some(number << 20), 1 << 20).duration_ns = 3_000_000;
        before.put("write", b"/old", Some(number << 12), 4096);
        after.put("write", b"/new", Some(number << 12), 4096);
    }
    let (before, after) = (before.report(), after.report());
    let diff = sheaf_trace::ReportDiff::of(&before, &after);
    let first = &diff.operations[0];
    assert_eq!(first.name, "posix read");
    assert_eq!((first.before.time_ns, first.after.time_ns), (100_000_000, 300_000_000));
    assert_eq!((first.before.count, first.after.count), (100, 100));
    let named: Vec<&str> = diff.files.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(named, ["/in", "/new", "/old"]);
    assert_eq!((diff.files[1].before.count, diff.files[1].after.count), (0, 100));
    let text = diff.to_text(&before, &after, 100);
    assert!(text.contains("+200 ms") && text.contains("posix read"), "{text}");
    let same = sheaf_trace::ReportDiff::of(&before, &before);
    assert!(same.files.iter().all(|row| row.before == row.after));
}

#[test]
fn half_and_nearly_all_operations_have_their_times() {
    let mut trace = MadeTrace::new();
    for number in 0..1000 {
        let took = if number % 50 == 0 { 5_000_000 } else { 1000 };
        trace.put("read", b"/in", Some(number << 20), 1 << 20).duration_ns = took;
    }
    let data = trace.report();
    let op = &data.operations[0];
    // By powers of two, and no longer than the longest.
    assert_eq!(
        (op.within(50), op.within(98), op.within(99)),
        (Some(1023), Some(1023), Some(5_000_000))
    );
    assert!(data.to_text(120).contains("50 % in"));
}
