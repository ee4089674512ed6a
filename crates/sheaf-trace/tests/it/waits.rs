//! What is waited for, and what that is of a run.
use crate::report::MadeTrace;
use sheaf_trace::{FindingKind, FindingSeverity, ReportOptions, TraceReport};

#[test]
fn locks_that_are_waited_for_are_found() {
    let mut trace = MadeTrace::new();
    trace.put("open", b"/db", None, 0);
    trace.put("lock", b"/db", None, 0);
    trace.put("lock", b"/db", None, 0).duration_ns = 1_800_000_000;
    let data = trace.report();
    let [finding] = &data.findings[..] else { panic!("{:?}", data.findings) };
    assert_eq!(
        (finding.kind, finding.severity, finding.time_ns),
        (FindingKind::LockWaits, FindingSeverity::Grave, 1_800_001_000)
    );
    assert_eq!(
        finding.sentence,
        "Locks of files (flock, lockf, fcntl) were waited for: 1.8 s in 2 operations; the longest, \
         1.8 s, by process 100 on n1, of /db."
    );
    // A short one is none.
    trace.rows[2].duration_ns = 90_000_000;
    assert_eq!(trace.kinds(), []);
}

/// What takes the most of all I/O may be next to nothing of the run.
#[test]
fn finding_severity_depends_on_its_share_of_the_run() {
    let mut trace = MadeTrace::new();
    for number in 0..1000 {
        trace.put("stat", format!("/{number}").as_bytes(), None, 0).duration_ns = 25_000;
    }
    let severity = |trace: &MadeTrace| trace.report().findings[0].severity;
    assert_eq!(severity(&trace), FindingSeverity::Grave);
    // 25 ms of 10 s, then of 1 s.
    let last = trace.put("stat", b"/last", None, 0);
    let begun_ns = last.time_ns;
    last.time_ns = begun_ns + 10_000_000_000;
    assert_eq!(severity(&trace), FindingSeverity::Note);
    trace.rows[1000].time_ns = begun_ns + 1_000_000_000;
    assert_eq!(severity(&trace), FindingSeverity::Warning);
    assert!(trace.report().to_text(80).contains("The run took 1.01 s."));
}

#[test]
fn file_recreated_each_time_is_not_a_reopened_finding() {
    let mut trace = MadeTrace::new();
    for _ in 0..300 {
        trace.put("open", b"/new.part", None, 0);
        trace.put("write", b"/new.part", Some(0), 8192);
        trace.put("rename", b"/new.part", None, 0);
    }
    assert!(!trace.kinds().contains(&FindingKind::Reopened), "{:?}", trace.kinds());
    trace.rows.retain(|row| row.new_path.is_none() && row.op != trace.names.number(b"rename"));
    assert!(trace.kinds().contains(&FindingKind::Reopened), "{:?}", trace.kinds());
}

#[test]
fn programs_and_processes_are_told_apart() {
    let mut trace = MadeTrace::new();
    for (pid, command) in [(1, "sh"), (1, "ls"), (2, "sh"), (2, "cat"), (2, "sh")] {
        let command = trace.names.number(command.as_bytes());
        let row = trace.put("read", b"/in", Some(0), 10);
        (row.pid, row.command) = (pid, command);
    }
    let data = trace.report();
    assert_eq!((data.processes_total, data.programs_total, data.hosts[0].processes), (2, 4, 2));
    let text = data.to_text(80);
    let head = "5 operations (0 nested) in 41 µs by 2 processes (4 programs) on 1 host; 0 lost\n";
    assert!(text.starts_with(head), "{text}");
    let table = "Processes with the most time\n\
                 time  streams  read  written  process  command\n\
                 2 µs     0 ns  20 B      0 B     n1 2  sh\n";
    assert!(text.contains(table), "{text}");
}

#[test]
fn reads_as_slow_as_a_disk_are_found() {
    let mut trace = MadeTrace::new();
    for number in 0..100 {
        trace.put("read", b"/cold", Some(number << 16), 1 << 16).duration_ns = 2_000_000;
    }
    let data = trace.report();
    let [finding] = &data.findings[..] else { panic!("{:?}", data.findings) };
    assert_eq!((finding.kind, finding.severity), (FindingKind::SlowReads, FindingSeverity::Grave));
    assert_eq!(
        finding.sentence,
        "6.25 MiB were read in 200 ms, 31.2 MiB each second, as from a disk and not from memory; \
         the most, 200 ms, of /cold."
    );
    // In 200 ms of 10 s, and as fast as memory.
    trace.put("stat", b"/last", None, 0).time_ns += 10_000_000_000;
    assert_eq!(trace.kinds(), []);
    trace.rows.pop();
    trace.rows.iter_mut().for_each(|row| row.duration_ns = 20_000);
    assert_eq!(trace.kinds(), []);
}

/// Where the disk was full, neither what was lost nor what was not stored has rows.
#[test]
fn losses_without_rows_are_told() {
    let mut trace = MadeTrace::new();
    trace.put("write", b"/out", Some(0), 10);
    let mut report = TraceReport::new(ReportOptions::default());
    report.add(&trace.rows[0], &trace.names);
    report.know_losses(20, 79);
    let data = report.finish(&trace.names);
    assert_eq!((data.rows, data.lost.count, data.unwritten), (1, 20, 79));
    assert_eq!(
        data.findings[0].sentence,
        "99 of 100 operations (99 %) are not in the trace: all sums are too low by them."
    );
    assert!(data.to_text(120).contains("on 1 host; 20 lost, 79 not stored\n"));
}
