//! What stands out of rows that are made up.
use crate::report::{BEGIN_NS, MadeTrace};
use sheaf_trace::{FindingKind, FindingSeverity};

#[test]
fn small_writes_are_found() {
    let mut trace = MadeTrace::new();
    for number in 0..10_000 {
        let bytes = if number % 100 < 97 { 512 } else { 1 << 20 };
        trace.put("write", b"/out", Some((number << 22) + 7), bytes);
    }
    let data = trace.report();
    let finding = &data.findings[0];
    assert_eq!((data.findings.len(), finding.kind), (1, FindingKind::SmallWrites));
    assert_eq!(
        finding.sentence,
        "97 % of 10,000 writes to /out are of 512 B, and 100 % of them are not aligned to 4 KiB."
    );
    assert_eq!((finding.evidence[0].count, finding.evidence[0].of), (9700, 10_000));
    assert_eq!(finding.evidence[0].subject, "/out");
    let stdio = trace.names.number(b"stdio");
    trace.rows.iter_mut().for_each(|row| row.layer = stdio);
    assert_eq!(trace.kinds(), [], "a buffer gathers them");
}

#[test]
fn patterns_of_reads_are_found() {
    let mut trace = MadeTrace::new();
    for number in 0..1000 {
        trace.put("read", b"/in", Some(number * 100), 100);
    }
    assert_eq!(trace.kinds(), [FindingKind::SmallReads]);
    let mut trace = MadeTrace::new();
    for number in 0..1000 {
        trace.put("read", b"/in", Some(number * number % 1009 * 8192), 8192);
    }
    assert_eq!(trace.kinds(), [FindingKind::RandomReads]);
}

#[test]
fn metadata_heavy_access_patterns_are_found() {
    let mut trace = MadeTrace::new();
    for number in 0..1000 {
        trace.put("open", b"/config", None, 0);
        trace.put("read", b"/config", Some(0), 8192);
        if number % 2 == 0 {
            trace.put("close", b"/config", None, 0);
        }
    }
    let mut kinds = trace.kinds();
    kinds.sort();
    assert_eq!(kinds, [FindingKind::MetadataBound, FindingKind::Reopened]);
    let mut trace = MadeTrace::new();
    for number in 0..1500 {
        let path = format!("/lib{}/libx.so", number % 30);
        trace.put("open", path.as_bytes(), None, 0).errno = 2;
        trace.put("read", b"/data", Some(number << 20), 1 << 20).duration_ns = 100_000;
    }
    assert_eq!(trace.kinds(), [FindingKind::MissingFiles]);
    let finding = &trace.report().findings[0];
    assert_eq!((finding.evidence.len(), finding.evidence_beyond), (10, 20));
    assert_eq!((finding.evidence[0].count, finding.evidence[0].of), (50, 1500));
}

#[test]
fn waits_and_seeks_are_found() {
    let mut trace = MadeTrace::new();
    for number in 0..200 {
        trace.put("write", b"/log", Some(number << 20), 1 << 20);
        trace.put("fsync", b"/log", None, 0).duration_ns = 5_000_000;
    }
    assert_eq!(trace.kinds(), [FindingKind::SyncEachWrite]);
    assert_eq!(trace.report().files[0].syncs_after_write, 200);
    let mut trace = MadeTrace::new();
    for number in 0..1001 {
        trace.put("seek", b"/f", None, 0);
        trace.put("read", b"/f", Some(number * 8192), 8192);
    }
    assert_eq!(trace.kinds(), [FindingKind::IdleSeeks]);
    assert_eq!(trace.report().files[0].idle_seeks, 1000, "the first one may have moved it");
    let mut trace = MadeTrace::new();
    for number in 0..150 {
        trace.put("write", b"/f", Some(number * 8192), 8192);
        trace.put("read", b"/f", Some(number * 8192), 8192);
    }
    assert_eq!(trace.kinds(), [FindingKind::ReadBack]);
    assert_eq!(trace.report().files[0].reads_back, 150);
}

#[test]
fn processes_are_compared() {
    let mut trace = MadeTrace::new();
    for number in 0..200 {
        for pid in 0..4 {
            trace.put("write", b"/shared", Some((number * 4 + pid) * 65_536), 65_536).pid =
                pid as i32;
        }
    }
    assert_eq!(trace.kinds(), [FindingKind::SharedInterleaved]);
    let file = &trace.report().files[0];
    assert_eq!((file.writers, file.overlapping_writers), (4, 4));
    let mut trace = MadeTrace::new();
    for number in 0..200 {
        for pid in 0..4 {
            let row = trace.put("write", b"/own", Some((pid * 200 + number) * 65_536), 65_536);
            (row.pid, row.duration_ns) = (pid as i32, if pid == 3 { 9000 } else { 1000 });
        }
    }
    assert_eq!(trace.kinds(), [FindingKind::Straggler]);
    trace.rows[77].duration_ns = 2_000_000_000;
    let data = trace.report();
    let slow = data.findings.iter().find(|of| of.kind == FindingKind::SlowOutlier).unwrap();
    assert_eq!(
        slow.sentence,
        "A write of /own by process 1 on n1 took 2 s, while 99 % of 800 took less than 16.3 µs."
    );
}

/// Whoever is at the other end of a pipe is waited for, and no file.
#[test]
fn stream_waits_are_not_counted_as_file_time() {
    let mut trace = MadeTrace::new();
    trace.put("read", b"pipe:[17]", None, 100).duration_ns = 5_000_000_000;
    trace.put("write", b"/dev/pts/3", None, 50);
    trace.put("read", b"", None, 1);
    for number in 0..1000 {
        trace.put("read", b"/in", Some(number * 10), 10);
    }
    let data = trace.report();
    assert_eq!((data.totals.stream.count, data.totals.stream.time_ns), (3, 5_000_002_000));
    assert_eq!((data.totals.read.count, data.io_time_ns()), (1000, 1_000_000));
    assert_eq!(
        data.findings.iter().map(|of| of.kind).collect::<Vec<_>>(),
        [FindingKind::SmallReads, FindingKind::StreamWaits]
    );
    assert_eq!((data.processes[0].time_ns(), data.processes[0].streams.count), (1_000_000, 3));
    assert_eq!((data.files[0].path.as_str(), data.files[1].is_stream), ("/in", true));
    assert!(data.slowest.iter().all(|slow| slow.path == "/in"));
    let text = data.to_text(80);
    assert!(text.contains("1,000  9.76 KiB  1 ms  100 %  read\n"), "{text}");
    assert!(text.contains("  -  stream\n"), "{text}");
    // What the kernel tells has no name where it was closed too soon.
    let mut trace = MadeTrace::new();
    trace.put("read", b"", Some(0), 1).layer = 0;
    trace.rows[0].layer = trace.names.number(b"kernel");
    assert_eq!(trace.report().totals.read.count, 1);
}

#[test]
fn frequent_syncs_are_found() {
    let mut trace = MadeTrace::new();
    for _ in 0..200 {
        for (at, bytes) in [(0, 512), (512, 4096), (0, 12)] {
            trace.put("write", b"/db-journal", Some(at), bytes);
        }
        trace.put("fsync", b"/db-journal", None, 0).duration_ns = 1_000_000;
    }
    let data = trace.report();
    let [finding] = &data.findings[..] else { panic!("{:?}", data.findings) };
    assert_eq!(
        (finding.kind, finding.severity),
        (FindingKind::FrequentSyncs, FindingSeverity::Grave)
    );
    let sentence = "/db-journal is waited for 200 times until it is stored (fsync): 200 ms, for \
                    4.51 KiB that are written each time, 226 for each MiB.";
    assert_eq!(finding.sentence, sentence);
    let cost = "That is 200 ms, > 99 % of the time of all I/O, in a run of 8.99 ms.";
    assert_eq!(finding.time_ns, 200_000_000);
    assert!(data.to_text(80).contains(cost) && data.to_html().contains(&cost.replace('>', "&gt;")));
    // A database's own file comes with what is beside it.
    for _ in 0..150 {
        trace.put("write", b"/db", Some(0), 4096);
        trace.put("write", b"/db", Some(4096), 4096);
        trace.put("fsync", b"/db", None, 0).duration_ns = 2_000_000;
        trace.put("unlink", b"/db-journal", None, 0);
    }
    let data = trace.report();
    let finding = data.findings.iter().find(|of| of.kind == FindingKind::FrequentSyncs).unwrap();
    let sentence = "/db is waited for 150 times until it is stored (fsync): 300 ms (other files \
                    200 ms), for 8 KiB that are written each time, 128 for each MiB. /db-journal is \
                    written and removed 150 times. One more file is like it.";
    assert_eq!((finding.sentence.as_str(), data.findings.len()), (sentence, 1));
    let database = trace.names.number(b"/db");
    trace.rows.retain(|row| row.path != database);
    let sentence = trace.report().findings[0].sentence.clone();
    assert!(
        sentence.ends_with("226 for each MiB. It is written and removed 150 times."),
        "{sentence}"
    );
    trace.rows.truncate(800);
    // Much between two of them is what they are for.
    trace.rows.iter_mut().filter(|row| row.bytes == 4096).for_each(|row| row.bytes = 1 << 20);
    assert_eq!(trace.kinds(), []);
}

#[test]
fn files_that_are_opened_to_wait_are_found() {
    let mut trace = MadeTrace::new();
    trace.put("open", b"/log", None, 0).asked = 0o10_101;
    for number in 0..100 {
        trace.put("write", b"/log", Some(number * 4096), 4096).duration_ns = 2_000_000;
    }
    let data = trace.report();
    let [finding] = &data.findings[..] else { panic!("{:?}", data.findings) };
    let sentence =
        "Each of 100 writes to /log waits until it is stored (O_SYNC or O_DSYNC): 200 ms.";
    assert_eq!((finding.kind, finding.sentence.as_str()), (FindingKind::SyncOpened, sentence));
    trace.rows[0].asked = 0o101;
    assert_eq!(trace.kinds(), []);
}

#[test]
fn frequent_flushes_and_repeated_reads_are_found() {
    let mut trace = MadeTrace::new();
    for _ in 0..1000 {
        trace.put("write", b"/log", None, 30);
        trace.put("flush", b"/log", None, 0);
    }
    let stdio = trace.names.number(b"stdio");
    trace.rows.iter_mut().for_each(|row| row.layer = stdio);
    let data = trace.report();
    let [finding] = &data.findings[..] else { panic!("{:?}", data.findings) };
    let sentence = "/log is given to the kernel 1,000 times (fflush), after 30 B each time.";
    assert_eq!((finding.kind, finding.sentence.as_str()), (FindingKind::Flushed, sentence));
    assert_eq!(finding.severity, FindingSeverity::Warning);
    assert_eq!(finding.evidence[0].time_ns, 1_000_000);
    for with_offset in [true, false] {
        let mut trace = MadeTrace::new();
        for _ in 0..20 {
            trace.put("open", b"/in", None, 0);
            for part in 0..2 {
                trace.put("read", b"/in", with_offset.then_some(part << 20), 1 << 20);
            }
        }
        let data = trace.report();
        let [finding] = &data.findings[..] else { panic!("{:?}", data.findings) };
        let sentence =
            "/in is read 20 times over: 40 MiB, of which 2 MiB each time, by 1 process(es).";
        assert_eq!((finding.kind, finding.sentence.as_str()), (FindingKind::ReadAgain, sentence));
    }
}

/// A shell writes a head and an end, and what it starts writes one after the other between them.
#[test]
fn programs_of_a_shell_do_not_write_among_each_other() {
    let mut trace = MadeTrace::new();
    let mut offset = 0;
    for pid in 1..=4 {
        trace.put("write", b"/log", Some(offset), 10).pid = 0;
        for number in 0..50 {
            let row = trace.put("write", b"/log", Some(offset + 10 + number * 70_000), 70_000);
            row.pid = pid;
        }
        offset += 10 + 50 * 70_000;
    }
    trace.put("write", b"/log", Some(offset), 10).pid = 0;
    assert_eq!(trace.kinds(), []);
    let file = &trace.report().files[0];
    assert_eq!((file.writers, file.overlapping_writers), (5, 0));
}

/// A shell's forks begin when it does, have its name, and do next to nothing.
#[test]
fn forks_of_a_shell_are_not_compared_with_it() {
    let mut trace = MadeTrace::new();
    let forks = |trace: &mut MadeTrace, each: i64| {
        for pid in 1..=4 {
            for number in 0..each {
                trace.put("stat", format!("/bin/{number}").as_bytes(), None, 0).pid = pid;
            }
        }
    };
    for number in 0..60 {
        let row = trace.put("stat", format!("/bin/{number}").as_bytes(), None, 0);
        (row.pid, row.duration_ns) = (0, 500_000);
        trace.now_ns += 1_000_000;
    }
    trace.now_ns = BEGIN_NS;
    forks(&mut trace, 3);
    assert_eq!(trace.kinds(), []);
    // Where they do as much as it does, they are its like.
    forks(&mut trace, 3);
    let data = trace.report();
    let [finding] = &data.findings[..] else { panic!("{:?}", data.findings) };
    assert_eq!(
        (finding.kind, finding.severity),
        (FindingKind::Straggler, FindingSeverity::Warning)
    );
    let sentence = "Process 0 on n1 did I/O for 30 ms, the middle one of 5 alike for 6 µs: the \
                    others may wait for it.";
    assert_eq!(finding.sentence, sentence);
}

/// Those that a shell starts in the course of time do less than it, and write one after the other.
#[test]
fn processes_that_come_later_are_not_compared() {
    let mut trace = MadeTrace::new();
    for pid in 0..10 {
        trace.now_ns += 1_000_000;
        for number in 0..100 {
            let row = trace.put("write", b"/log", Some(number * 100_000), 100_000);
            (row.pid, row.duration_ns) = (pid, if pid == 0 { 900_000 } else { 1000 });
        }
    }
    assert_eq!(trace.kinds(), []);
    let file = &trace.report().files[0];
    assert_eq!((file.writers, file.overlapping_writers), (10, 0));
}

#[test]
fn failures_are_shown_where_most_of_them_are() {
    let mut trace = MadeTrace::new();
    for number in 0..20 {
        trace.put("stat", format!("/etc/first/{number}").as_bytes(), None, 0).errno = 2;
    }
    for number in 0..5000 {
        let path = format!("/usr/lib/python/{}/{number}", if number % 10 == 0 { "a" } else { "b" });
        trace.put("stat", path.as_bytes(), None, 0).errno = 2;
    }
    let data = trace.report();
    let wanted = ["/usr/lib/python/b/1", "/usr/lib/python/a/0", "/etc/first/0"];
    assert_eq!(data.failures[0].examples, wanted);
}

/// Not the directory that comes first, nor the one with the most operations.
#[test]
fn directory_that_names_cost_most_in_is_named() {
    let mut trace = MadeTrace::new();
    for number in 0..1500 {
        let (directory, took_ns) = if number % 3 == 0 { ("/slow", 9000) } else { ("/a", 1000) };
        let path = format!("{directory}/{number}");
        trace.put("stat", path.as_bytes(), None, 0).duration_ns = took_ns;
        trace.put("access", format!("/lib{}/x", number % 5 / 4).as_bytes(), None, 0).errno = 2;
    }
    trace.put("read", b"pipe:[7]", None, 1).duration_ns = 3_000_000_000;
    let data = trace.report();
    let sentences: Vec<_> = data.findings.iter().map(|of| of.sentence.as_str()).collect();
    assert_eq!(
        sentences,
        [
            "100 % of the time of all I/O, 7 ms of 7 ms, went into 3,000 operations on names, \
             attributes and directories, 2.33 µs each (as from memory), 5.5 ms of it into 1,500 stat; \
             by directory the most, 4.5 ms, into 500 in /slow.",
            "50 % of 3,000 looks at names (open, stat, access, readlink) found no file: 1.5 ms in \
             2 directories, the most, 1,200, in /lib0.",
            "Process 100 on n1 (./job) waited for 3 s in 1 operation on pipes, sockets and \
             terminals; the longest, 3 s, is a read of pipe:[7].",
        ]
    );
    assert!(data.directories.iter().all(|of| of.path != "."));
}

#[test]
fn empty_report_says_so_and_names_the_filter() {
    let mut data = MadeTrace::new().report();
    assert!(data.to_text(80).contains("\nno operation was recorded\n"));
    data.notes.push("it is linked statically".to_owned());
    data.filter = Some("--op write".to_owned());
    let text = data.to_text(80);
    assert!(text.contains("\nno operation was recorded: why is at the end\n"), "{text}");
    let page = data.to_html();
    assert!(page.contains(">No operation was recorded: why is at the end.</div>"));
    assert!(!page.contains("Nothing stands out"));
    assert!(text.contains("\nkept alone: --op write\n"), "{text}");
}

#[test]
fn good_program_has_no_findings() {
    let mut trace = MadeTrace::new();
    for pid in 0..8 {
        let path = format!("/out/part-{pid}");
        trace.put("open", path.as_bytes(), None, 0).pid = pid;
        for number in 0..2000 {
            let row = trace.put("write", path.as_bytes(), Some(number << 20), 1 << 20);
            (row.pid, row.duration_ns) = (pid, 200_000 + number % 77);
        }
        trace.put("fsync", path.as_bytes(), None, 0).pid = pid;
        trace.put("close", path.as_bytes(), None, 0).pid = pid;
        for number in 0..2000 {
            let row = trace.put("read", b"/in", Some((number + i64::from(pid)) << 20), 1 << 20);
            (row.pid, row.duration_ns) = (pid, 150_000);
        }
    }
    let data = trace.report();
    assert_eq!(data.findings, []);
    assert!(data.to_text(80).contains("nothing stands out"));
    assert!(data.to_html().contains("Nothing stands out."));
    assert_eq!(MadeTrace::new().kinds(), [], "nor has an empty trace");
    assert!(MadeTrace::new().report().to_html().ends_with("</html>\n"));
}

#[test]
fn threads_that_each_read_in_order_are_not_random() {
    let mut trace = MadeTrace::new();
    for number in 0..2000_i64 {
        let thread = number % 8;
        let row = trace.put("read", b"/in", Some((thread << 30) + number / 8 * 65_536), 65_536);
        row.thread = 100 + thread as i32;
    }
    assert_eq!(trace.kinds(), []);
    // On one descriptor they take turns, and the file is read in order.
    let mut trace = MadeTrace::new();
    for number in 0..2000_i64 {
        let row = trace.put("read", b"/in", Some(number * 65_536), 65_536);
        row.thread = 100 + (number * 7 % 5) as i32;
    }
    assert_eq!(trace.kinds(), []);
    let reads = &trace.report().files[0].accesses[0].reads;
    assert_eq!((reads.consecutive, reads.first), (1999, 1));
    // A thread that goes to and fro is random also beside others.
    let mut trace = MadeTrace::new();
    for number in 0..4000_i64 {
        let row = trace.put("read", b"/in", Some(number * number % 4001 * 8192), 8192);
        row.thread = 100 + (number % 3) as i32;
    }
    assert_eq!(trace.kinds(), [FindingKind::RandomReads]);
}

#[test]
fn transfers_that_direct_io_refuses_are_found() {
    const O_DIRECT: i64 = if cfg!(target_arch = "aarch64") { 0o200_000 } else { 0o40_000 };
    let mut trace = MadeTrace::new();
    for number in 0..200_i64 {
        if number % 100 == 0 {
            trace.put("open", b"/out", None, 0).asked = O_DIRECT | 1;
        }
        trace.put("write", b"/out", Some(number * 1000), 1000).errno = 22;
    }
    let data = trace.report();
    let finding = data.findings.iter().find(|of| of.kind == FindingKind::RefusedDirect).unwrap();
    assert_eq!(
        finding.sentence,
        "200 of 200 reads and writes of /out, which was opened with O_DIRECT, failed with EINVAL."
    );
    assert!(finding.severity >= FindingSeverity::Warning);
    // Without it something else is wrong.
    let mut trace = MadeTrace::new();
    for number in 0..200_i64 {
        trace.put("write", b"/out", Some(number * 1000), 1000).errno = 22;
    }
    assert_eq!(trace.kinds(), []);
}

/// Whoever looks at names alone does what it is for; how long each takes says whether it is waited for.
#[test]
fn names_in_memory_are_no_grave_matter_and_slow_ones_are() {
    for (each_ns, severity, words) in [
        (3_000, FindingSeverity::Note, "3 µs each (as from memory)"),
        (90_000, FindingSeverity::Grave, "90 µs each,"),
        (700_000, FindingSeverity::Grave, "700 µs each (slow, as from a network"),
    ] {
        let mut trace = MadeTrace::new();
        for number in 0..5000 {
            let path = format!("/d/{number}");
            trace.put("stat", path.as_bytes(), None, 0).duration_ns = each_ns;
        }
        let data = trace.report();
        let finding = &data.findings[0];
        assert_eq!((finding.kind, finding.severity), (FindingKind::MetadataBound, severity));
        assert!(finding.sentence.contains(words), "{}", finding.sentence);
    }
}

/// `rename` takes a third of the run, and less than half of its I/O.
#[test]
fn operation_on_names_that_takes_much_of_the_run_is_found() {
    let mut trace = MadeTrace::new();
    for number in 0..1000 {
        trace.put("rename", b"/a", None, 0).duration_ns = 360_000;
        trace.put("write", b"/b", Some(number << 20), 1 << 20).duration_ns = 400_000;
    }
    let data = trace.report();
    let finding = &data.findings[0];
    assert_eq!(finding.kind, FindingKind::MetadataBound);
    assert!(finding.sentence.contains("1,000 rename"), "{}", finding.sentence);
}

#[test]
fn first_lines_say_how_much_of_the_run_was_io() {
    let mut trace = MadeTrace::new();
    for number in 0..100 {
        trace.put("read", b"/in", Some(number << 20), 1 << 20).duration_ns = 1_000_000;
        trace.now_ns += 1_000_000;
    }
    let last = *trace.rows.last().unwrap();
    let text = trace.report().to_text(100);
    assert!(text.contains("that is the most that can be saved."), "{text}");
    // The program does something else for a hundred times as long.
    trace.rows.push(sheaf_trace::TraceRow { time_ns: last.time_ns + 10_000_000_000, ..last });
    let text = trace.report().to_text(100);
    assert!(text.contains("it does not matter: what is done about it saves less"), "{text}");
    // So it does before its first operation.
    trace.rows.pop();
    let mut report = sheaf_trace::TraceReport::new(sheaf_trace::ReportOptions::default());
    let (begun_ns, ended_ns) = (BEGIN_NS - 20_000_000_000, BEGIN_NS + 1_000_000_000);
    let run = sheaf_trace::TracedRun { begun_ns, ended_ns, ..Default::default() };
    report.know_run(Some(run));
    trace.rows.iter().for_each(|row| report.add(row, &trace.names));
    let text = report.finish(&trace.names).to_text(100);
    assert!(text.contains("it does not matter: what is done about it saves less"), "{text}");
}

#[test]
fn workers_with_arguments_of_their_own_are_compared() {
    let mut trace = MadeTrace::new();
    for number in 0..200 {
        for pid in 0..6 {
            let command = trace.names.number(format!("./worker --part {pid}").as_bytes());
            let row = trace.put("write", b"/own", Some((pid * 200 + number) * 65_536), 65_536);
            (row.pid, row.duration_ns) = (pid as i32, if pid == 3 { 9000 } else { 1000 });
            row.command = command;
        }
    }
    assert_eq!(trace.kinds(), [FindingKind::Straggler]);
}
