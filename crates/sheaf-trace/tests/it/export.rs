//! What others read of a trace is what is in it.
use crate::made::Made;
use serde_json::Value;
use sheaf_trace::export::{ChromeExport, CsvExport, DarshanExport};
use std::collections::HashMap;

/// Rows of two hosts with the same processes, of names of any bytes, failed, lost and nested.
fn mixed() -> Made {
    let mut made = Made::default();
    let other = made.number("n2");
    let stdio = made.number("stdio");
    made.put("open", "/data/a \"b\"\n");
    made.moved("read", "/data/a \"b\"\n", 4096, 512).duration_ns = 1_234_567;
    let row = made.moved("write", "/data/c,d", 0, 7);
    (row.layer, row.offset, row.is_nested) = (stdio, None, true);
    made.put_bytes("stat", b"/data/\xff\\x").errno = 2;
    made.put("open", "/other").host = other;
    made.failed("open", "/x", 524).thread = 101;
    let row = made.put("lost", "");
    (row.bytes, row.duration_ns) = (17, 5000);
    made.put("close", "/other").host = other;
    let new_path = made.number("/data/new");
    made.put("rename", "/data/c,d").new_path = Some(new_path);
    made
}

#[test]
fn chrome_has_each_row_exactly() {
    let made = mixed();
    let mut export = ChromeExport::new(Vec::new()).unwrap();
    made.rows.iter().for_each(|row| export.row(row, &made.names).unwrap());
    let text = export.finish().unwrap();
    let json: Value = serde_json::from_slice(&text).unwrap();
    let base: i64 = json["otherData"]["base_time_ns"].as_str().unwrap().parse().unwrap();
    assert_eq!(base, 1_699_920_000_000_000_000, "midnight");
    let events = json["traceEvents"].as_array().unwrap();
    let named: Vec<_> = events
        .iter()
        .filter(|event| event["ph"] == "M")
        .map(|event| &event["args"]["name"])
        .collect();
    assert_eq!(named, ["n1:100 app -x", "n2:100 app -x"]);
    let events: Vec<_> = events.iter().filter(|event| event["ph"] != "M").collect();
    assert_eq!(events.len(), made.rows.len());
    let ns = |value: &Value| (value.as_f64().unwrap() * 1000.0).round() as i64;
    let mut processes = HashMap::new();
    for (row, event) in made.rows.iter().zip(&events) {
        assert_eq!(ns(&event["ts"]) + base, row.time_ns);
        let op = std::str::from_utf8(made.names.text(row.op)).unwrap();
        assert_eq!(event["name"], op);
        let number = processes.entry((row.host, row.pid)).or_insert(event["pid"].clone());
        assert_eq!(*number, event["pid"]);
        if op == "lost" {
            assert_eq!(
                (event["ph"].as_str(), event["args"]["count"].as_i64()),
                (Some("i"), Some(17))
            );
            continue;
        }
        let args = &event["args"];
        assert_eq!((event["ph"].as_str(), ns(&event["dur"])), (Some("X"), row.duration_ns));
        assert_eq!(event["cat"].as_str().unwrap().as_bytes(), made.names.text(row.layer));
        assert_eq!(
            (args["asked"].as_i64(), args["bytes"].as_i64()),
            (Some(row.asked), Some(row.bytes))
        );
        assert_eq!(args["offset"].as_i64(), row.offset);
        assert_eq!(args["nested"].as_bool(), row.is_nested.then_some(true));
        let new_path = row.new_path.map(|name| String::from_utf8_lossy(made.names.text(name)));
        assert_eq!(args["new_path"].as_str(), new_path.as_deref());
        let errno = match row.errno {
            0 => None,
            2 => Some("ENOENT"),
            _ => Some("524"),
        };
        assert_eq!(args["errno"].as_str(), errno);
    }
    let paths: Vec<_> = events.iter().filter_map(|event| event["args"]["path"].as_str()).collect();
    let all = [
        "/data/a \"b\"\n",
        "/data/a \"b\"\n",
        "/data/c,d",
        r"/data/\xff\\x",
        "/other",
        "/x",
        "/other",
        "/data/c,d",
    ];
    assert_eq!(paths, all);
    assert_eq!(processes.len(), 2);
    assert_eq!(events[0]["pid"], 100);
    assert_eq!(events[4]["pid"], 1 << 22, "another process of this number");
    assert_eq!(
        (&events[0]["tid"], &events[5]["tid"], &events[4]["tid"]),
        (&100.into(), &101.into(), &(1 << 22).into())
    );
    assert!(std::str::from_utf8(&text).unwrap().contains("\"dur\":1234.567,"));
}

#[test]
fn empty_trace_is_a_whole_one() {
    let json: Value =
        serde_json::from_slice(&ChromeExport::new(Vec::new()).unwrap().finish().unwrap()).unwrap();
    assert_eq!(json["traceEvents"], Value::Array(Vec::new()));
    let csv = CsvExport::new(Vec::new()).unwrap().finish().unwrap();
    assert_eq!(csv.iter().filter(|byte| **byte == b'\n').count(), 1);
    let darshan = DarshanExport::new(Vec::new()).finish().unwrap();
    assert!(String::from_utf8(darshan).unwrap().contains("# nprocs: 0\n"));
}

#[test]
fn csv_comes_back_as_it_was() {
    let made = mixed();
    let mut export = CsvExport::new(Vec::new()).unwrap();
    made.rows.iter().for_each(|row| export.row(row, &made.names).unwrap());
    let text = export.finish().unwrap();
    let mut reader = csv::Reader::from_reader(&text[..]);
    let header: Vec<String> = reader.headers().unwrap().iter().map(str::to_owned).collect();
    assert_eq!((header.len(), &*header[0], &*header[15]), (16, "time_ns", "new_path"));
    let records: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(records.len(), made.rows.len());
    for (row, record) in made.rows.iter().zip(&records) {
        let text = |number| String::from_utf8_lossy(made.names.text(number)).into_owned();
        let path = text(row.path);
        let path = if path.contains('\u{fffd}') { r"/data/\xff\\x" } else { &path };
        let errno =
            ["", "ENOENT", "524"][[0, 2, 524].iter().position(|at| *at == row.errno).unwrap()];
        let expected = [
            row.time_ns.to_string(),
            row.duration_ns.to_string(),
            text(row.op),
            text(row.layer),
            text(row.host),
            text(row.command),
            path.to_owned(),
            row.offset.map(|at| at.to_string()).unwrap_or_default(),
            row.asked.to_string(),
            row.bytes.to_string(),
            row.errno.to_string(),
            errno.to_owned(),
            row.pid.to_string(),
            row.thread.to_string(),
            row.is_nested.to_string(),
            row.new_path.map(text).unwrap_or_default(),
        ];
        assert_eq!(record.iter().collect::<Vec<_>>(), expected);
    }
}

/// The counters of a text as `darshan-parser` prints it, by module, rank, name and file.
fn counters(text: &str) -> HashMap<(String, u32, String), String> {
    let mut found = HashMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let fields: Vec<&str> = line.split('\t').collect();
        assert_eq!(fields.len(), 8, "{line}");
        assert!(fields[3].starts_with(&format!("{}_", fields[0])), "{line}");
        assert!(fields[2].parse::<u64>().is_ok() && fields[6..] == ["UNKNOWN"; 2], "{line}");
        let key = (fields[3].to_owned(), fields[1].parse().unwrap(), fields[5].to_owned());
        assert_eq!(found.insert(key, fields[4].to_owned()), None, "{line}");
    }
    found
}

fn darshan(made: &Made, records_max: Option<usize>) -> String {
    let mut export = DarshanExport::new(Vec::new());
    if let Some(most) = records_max {
        export = export.records_max(most);
    }
    made.rows.iter().for_each(|row| export.row(row, &made.names).unwrap());
    String::from_utf8(export.finish().unwrap()).unwrap()
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario")]
fn darshan_counts_as_by_hand() {
    let mut made = Made::default();
    // Moments count from what has no counter, too.
    made.put("fork", "").time_ns -= 1_123_456_600;
    made.put("open", "/f");
    made.moved("write", "/f", 0, 100);
    made.moved("write", "/f", 100, 100).duration_ns = 40;
    made.moved("write", "/f", 4096, 2000);
    made.moved("write", "/f", 8192, 101);
    made.moved("read", "/f", 0, 4096);
    made.moved("read", "/f", 4096, 4096).duration_ns = 1_500_000;
    made.moved("read", "/f", 0, 1 << 20);
    made.moved("write", "/f", 1, 2 << 30);
    made.failed("read", "/f", 5);
    made.put("seek", "/f");
    made.put("stat", "/f");
    made.failed("stat", "/f", 2);
    made.put("fsync", "/f").duration_ns = 60;
    made.put("mmap", "/f");
    made.put("dup", "/f");
    made.put("rename", "/f");
    made.put("close", "/f");
    let text = darshan(&made, None);
    let found = counters(&text);
    let of = |name: &str| found[&(format!("POSIX_{name}"), 0, "/f".to_owned())].clone();
    let expected = [
        ("OPENS", "2"),
        ("DUPS", "1"),
        ("READS", "3"),
        ("WRITES", "5"),
        ("SEEKS", "1"),
        ("STATS", "1"),
        ("MMAPS", "1"),
        ("FSYNCS", "1"),
        ("RENAME_SOURCES", "1"),
        ("MODE", "-1"),
        ("BYTES_READ", "1056768"),
        ("BYTES_WRITTEN", "2147485949"),
        ("MAX_BYTE_READ", "1048575"),
        ("MAX_BYTE_WRITTEN", "2147483648"),
        ("CONSEC_READS", "1"),
        ("CONSEC_WRITES", "1"),
        ("SEQ_READS", "1"),
        ("SEQ_WRITES", "3"),
        ("RW_SWITCHES", "2"),
        ("FILE_NOT_ALIGNED", "2"),
        ("FILE_ALIGNMENT", "4096"),
        ("SIZE_READ_1K_10K", "2"),
        ("SIZE_READ_100K_1M", "1"),
        ("SIZE_READ_1M_4M", "0"),
        ("SIZE_WRITE_0_100", "2"),
        ("SIZE_WRITE_100_1K", "1"),
        ("SIZE_WRITE_1K_10K", "1"),
        ("SIZE_WRITE_1G_PLUS", "1"),
        ("ACCESS1_ACCESS", "4096"),
        ("ACCESS1_COUNT", "2"),
        ("ACCESS2_ACCESS", "100"),
        ("ACCESS2_COUNT", "2"),
        ("STRIDE1_STRIDE", "0"),
        ("STRIDE1_COUNT", "6"),
        ("STRIDE2_STRIDE", "3896"),
        ("STRIDE3_STRIDE", "2096"),
        ("MAX_READ_TIME_SIZE", "4096"),
        ("F_OPEN_START_TIMESTAMP", "1.123457"),
        ("F_READ_START_TIMESTAMP", "1.123457"),
        ("F_READ_END_TIMESTAMP", "1.124957"),
        ("F_MAX_READ_TIME", "0.001500"),
        ("F_READ_TIME", "0.001500"),
        ("F_WRITE_TIME", "0.000001"),
        ("F_META_TIME", "0.000001"),
        ("F_SLOWEST_RANK_TIME", "0.000000"),
    ];
    for (name, value) in expected {
        assert_eq!(of(name), value, "{name}");
    }
    for line in
        ["# start_time: 1699999999", "# nprocs: 1", "# rank 0: n1 100 app -x", "# exe: app -x"]
    {
        assert!(text.lines().any(|there| there == line), "{line}: {text}");
    }
}

#[test]
fn darshan_tells_streams_processes_and_what_had_no_room() {
    let mut made = Made::default();
    let (stdio, other) = (made.number("stdio"), made.number("n2"));
    made.put("open", "/s\t").layer = stdio;
    for bytes in [500, 12] {
        let row = made.moved("write", "/s\t", 0, bytes);
        (row.layer, row.offset) = (stdio, None);
    }
    made.put("seek", "/s\t").layer = stdio;
    let row = made.moved("read", "/s\t", 0, 100);
    (row.layer, row.offset) = (stdio, None);
    made.put("flush", "/s\t").layer = stdio;
    made.put("close", "/s\t").layer = stdio;
    made.moved("read", "/a", 0, 10).host = other;
    made.moved("read", "/b", 0, 20).host = other;
    made.put("readdir", "/d");
    made.put("lost", "").bytes = 3;
    let found = counters(&darshan(&made, None));
    let of = |name: &str, rank: u32, file: &str| {
        found.get(&(name.to_owned(), rank, file.to_owned())).map(String::as_str)
    };
    for (name, value) in [
        ("OPENS", "1"),
        ("WRITES", "2"),
        ("BYTES_WRITTEN", "512"),
        ("MAX_BYTE_WRITTEN", "511"),
        ("SEEKS", "1"),
        ("READS", "1"),
        ("BYTES_READ", "100"),
        ("MAX_BYTE_READ", "0"),
        ("FLUSHES", "1"),
    ] {
        assert_eq!(of(&format!("STDIO_{name}"), 0, r"/s\x09"), Some(value), "{name}");
    }
    assert_eq!(of("POSIX_BYTES_READ", 1, "/b"), Some("20"));
    assert_eq!(of("POSIX_BYTES_READ", 0, "/a"), None);

    let text = darshan(&made, Some(1));
    assert_eq!(counters(&text).keys().filter(|key| key.0 == "POSIX_READS").count(), 1);
    let rest = "# *WARNING*: 1 operations (bytes: 20) were on files beyond the first 1 of a module, \
                and are in no record";
    for line in [rest, "# operations without a counter: 1", "# rank 1: n2 100 app -x"] {
        assert!(text.lines().any(|there| there == line), "{line}: {text}");
    }
    assert!(text.contains("# *WARNING*: 3 operations were lost while they were recorded\n"));
}

#[test]
fn numbers_at_their_ends_are_written_as_they_are() {
    let mut made = Made::default();
    let stdio = made.number("stdio");
    for (number, op) in ["read", "write", "open", "lost", "close", "read"].iter().enumerate() {
        let most = if number % 2 == 0 { i64::MAX } else { i64::MIN };
        let row = made.put(op, "/x");
        (row.time_ns, row.duration_ns, row.offset) = (most, most, Some(most));
        (row.asked, row.bytes, row.pid, row.thread) = (most, most, i32::MIN, i32::MAX);
        row.layer = if number == 5 { stdio } else { row.layer };
    }
    let mut chrome = ChromeExport::new(Vec::new()).unwrap();
    let mut csv = CsvExport::new(Vec::new()).unwrap();
    for row in &made.rows {
        chrome.row(row, &made.names).unwrap();
        csv.row(row, &made.names).unwrap();
    }
    let json: Value = serde_json::from_slice(&chrome.finish().unwrap()).unwrap();
    assert_eq!(json["traceEvents"].as_array().unwrap().len(), 7);
    let csv = String::from_utf8(csv.finish().unwrap()).unwrap();
    assert!(csv.contains("-9223372036854775808,") && csv.contains(",9223372036854775807,"));
    let found = counters(&darshan(&made, None));
    assert_eq!(found[&("POSIX_BYTES_READ".to_owned(), 0, "/x".to_owned())], i64::MAX.to_string());
}
