//! `sheaf trace record --kernel`: what the kernel tells of programs that nothing else sees into.
use sheaf_testing::home::{Home, Run};
use sheaf_trace::{StoreReader, TraceInfo, TraceNames, TraceRow};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
const WITH_TRACEFS: &str = "mount -t tracefs none /sys/kernel/tracing && exec \"$@\"";

/// A home with the program of known operations, where the kernel tells what programs do.
struct Watchers {
    home: Home,
}

/// A row with its texts.
#[derive(Debug, Clone)]
struct Told {
    op: String,
    path: String,
    command: String,
    row: TraceRow,
}

impl Watchers {
    /// `None` where it cannot be; that is said.
    fn new() -> Option<Self> {
        let home = Home::new();
        let source = home.write("program.c", include_str!("trace_kernel/program.c"));
        let mut cc = Command::new("cc");
        cc.args(["-static", "-w", "-O1", "-pthread", "-o", "program"]).arg(source);
        if !cc.current_dir(home.path()).output().is_ok_and(|output| output.status.success()) {
            sheaf_testing::skipped("no compiler here links statically");
            return None;
        }
        home.write("in", &"x".repeat(10_000));
        let this = Self { home };
        let probe = this.run(WITH_TRACEFS, "probe", &[], &["true"]);
        if probe.code != Some(0) {
            let why = probe.stderr.lines().next().unwrap_or_default().to_owned();
            sheaf_testing::skipped(&format!("the kernel does not tell here: {why}"));
            return None;
        }
        Some(this)
    }

    /// `sheaf trace record --kernel` of a command, in a place of its own where this was done first.
    fn run(&self, first: &str, trace: &str, options: &[&str], command: &[&str]) -> Run {
        let mut args = vec!["trace", "record", "--kernel", "-o", trace];
        args.extend(options);
        args.push("--");
        args.extend(command);
        let sheaf = self.home.command(&args);
        let mut run = Command::new("unshare");
        run.args(["-m", "--propagation", "private", "sh", "-c", first, "sh"]);
        run.arg(sheaf.get_program()).args(sheaf.get_args()).current_dir(self.home.path());
        run.env_clear();
        run.envs(sheaf.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Run::of(run.output().unwrap())
    }

    fn record(&self, trace: &str, command: &[&str]) -> (Run, Vec<Told>, TraceInfo) {
        self.record_with(trace, &[], command)
    }

    fn record_with(
        &self,
        trace: &str,
        options: &[&str],
        command: &[&str],
    ) -> (Run, Vec<Told>, TraceInfo) {
        let run = self.run(WITH_TRACEFS, trace, options, command);
        let trace = self.home.path().join(trace);
        let info = TraceInfo::read(&trace).unwrap().expect("a trace says what it is of");
        assert!(info.by_kernel && info.buffers.is_none(), "{info:?}");
        let mut told = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let damaged = StoreReader::open(&trace)
            .unwrap()
            .read(&mut TraceNames::default(), |row, names| {
                assert_eq!(names.text(row.layer), b"kernel");
                let [op, path, command] =
                    [row.op, row.path, row.command].map(|name| text(names.text(name)));
                told.push(Told { op, path, command, row: *row });
                Ok(())
            })
            .unwrap();
        assert!(damaged.is_empty(), "{damaged:?}");
        let unnamed = told.iter().filter(|told| told.path.is_empty() && told.op != "lost");
        assert!(info.unnamed <= unnamed.count() as u64, "{info:?}");
        (run, told, info)
    }
}

/// How often each operation was done, and how many bytes it moved.
fn sums<'a>(told: impl IntoIterator<Item = &'a Told>) -> BTreeMap<&'a str, (u64, i64)> {
    let mut sums: BTreeMap<&str, (u64, i64)> = BTreeMap::new();
    for told in told {
        let sum = sums.entry(&told.op).or_default();
        *sum = (sum.0 + 1, sum.1 + told.row.bytes);
    }
    sums
}

#[test]
fn static_program_is_told_to_the_byte() {
    let Some(watchers) = Watchers::new() else { return };
    let (run, told, info) = watchers.record("t", &["./program", "known"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let mut sums = sums(&told);
    // What the C library does of its own before the program begins.
    let own = sums.remove("readlink");
    assert!(own.is_none_or(|own| own.0 == 1), "{own:?}");
    let expected = BTreeMap::from([
        ("open", (2, 0)),
        ("read", (13, 10_000 + 100 + 5)),
        ("write", (8, 7 * 512 + 100)),
        ("seek", (1, 0)),
        ("fsync", (1, 0)),
        ("truncate", (1, 0)),
        ("dup", (1, 0)),
        ("close", (3, 0)),
        ("stat", (1, 0)),
        ("mkdir", (1, 0)),
        ("rename", (1, 0)),
        ("rmdir", (1, 0)),
        ("unlink", (1, 0)),
    ]);
    assert_eq!(sums, expected);
    assert_eq!((info.lost, info.unwritten, info.segments), (0, 0, 1));
    assert_eq!(info.operations, told.len() as u64);
    // Where they were, how much was asked for, and how one failed.
    let of = |op: &str| {
        told.iter().filter(|told| told.op == op).map(|told| told.row).collect::<Vec<_>>()
    };
    let offsets: Vec<_> = of("read").iter().map(|row| row.offset).collect();
    let mut wanted: Vec<_> = (0..11).map(|at| Some(at * 1000)).collect();
    wanted.extend([Some(9_900), Some(4)]);
    assert_eq!(offsets, wanted);
    let offsets: Vec<_> = of("write").iter().map(|row| row.offset).collect();
    let mut wanted: Vec<_> = (0..7).map(|at| Some(at * 512)).collect();
    wanted.push(Some(10_000));
    assert_eq!(offsets, wanted);
    assert!(of("read")[..11].iter().all(|row| row.asked == 1_000));
    assert_eq!(of("read")[11].asked, 300);
    assert_eq!(of("unlink")[0].errno, 2);
    assert!(told.iter().all(|told| told.op == "unlink" || told.row.errno == 0));
    let (begun, ended) = (info.begun_ns, info.ended_ns);
    for Told { row, .. } in &told {
        assert!(begun <= row.time_ns && row.time_ns + row.duration_ns <= ended, "{row:?}");
        assert!(row.duration_ns >= 0 && row.pid == row.thread && row.pid > 0, "{row:?}");
    }
    // A file that is named is named rightly.
    for told in &told {
        let is_right = ["", "/in", "/out"].iter().any(|end| told.path.ends_with(end));
        assert!(is_right, "{told:?}");
    }
    let report = watchers.home.run(&["trace", "report", "t"]);
    assert_eq!((report.code, report.stderr.as_str()), (Some(0), ""), "{report:?}");
    let csv = watchers.home.run(&["trace", "export", "--to", "csv", "t"]);
    assert_eq!(csv.stdout.lines().count(), 1 + told.len());
}

/// A file that is open for long enough has its name, and its program the words of its command.
#[test]
fn files_that_stay_open_have_their_names() {
    let Some(watchers) = Watchers::new() else { return };
    let until = Instant::now() + LIMIT;
    for (round, ms) in (0..).map(|round| (round, 50_u64 << round)) {
        let trace = format!("t{round}");
        let (run, told, _) = watchers.record(&trace, &["./program", "hold", &ms.to_string()]);
        assert_eq!(run.code, Some(0), "{run:?}");
        let ops: Vec<_> =
            told.iter().filter(|told| told.path.ends_with("/in")).map(|told| &*told.op).collect();
        let words = format!("./program\0hold\0{ms}\0");
        let is_named = told.iter().all(|told| told.command == words);
        if ops == ["open", "read", "close"] && is_named {
            return;
        }
        assert!(ops.is_empty() || ops == ["open", "read", "close"], "{ops:?}");
        assert!(Instant::now() < until, "{told:?}");
    }
}

#[test]
fn all_processes_of_a_pipeline_are_told() {
    let Some(watchers) = Watchers::new() else { return };
    let script = "tr x y <in | tr y z | wc -c; ./program known";
    let (run, told, info) = watchers.record("t", &["sh", "-c", script]);
    assert_eq!((run.code, run.stdout.trim()), (Some(0), "10000"), "{run:?}");
    let of = |name: &str| sums(told.iter().filter(|told| told.command.starts_with(name)));
    // The two that stand between, and what counts.
    assert_eq!(of("tr")["write"].1, 20_000);
    assert_eq!(of("wc")["write"].1, 6);
    let program = of("./program");
    let program = if program.is_empty() { of("program") } else { program };
    assert_eq!((program["read"], program["write"]), ((13, 10_105), (8, 3_684)));
    let processes: BTreeSet<i32> = told.iter().map(|told| told.row.pid).collect();
    assert!(processes.len() >= 5 && info.segments >= 5, "{info:?}");
    assert_eq!((info.lost, info.still_run), (0, 0));
}

#[test]
fn threads_are_told_apart() {
    const EACH: usize = 2_000;
    let Some(watchers) = Watchers::new() else { return };
    let (run, told, info) = watchers.record("t", &["./program", "threads", &EACH.to_string()]);
    assert_eq!((run.code, info.lost), (Some(0), 0), "{run:?}");
    let mut threads: BTreeMap<i32, Vec<TraceRow>> = BTreeMap::new();
    for told in told.iter().filter(|told| told.op == "write") {
        threads.entry(told.row.thread).or_default().push(told.row);
    }
    assert_eq!(threads.len(), 8);
    for rows in threads.values() {
        // Each has a file of its own.
        let offsets: Vec<_> = rows.iter().map(|row| row.offset).collect();
        let wanted: Vec<_> = (0..EACH as i64).map(|at| Some(at * 64)).collect();
        assert_eq!(offsets, wanted);
        assert!(rows.iter().all(|row| row.bytes == 64 && row.pid != row.thread));
    }
    let sums = sums(&told);
    assert_eq!((sums["open"].0, sums["close"].0), (8, 8));
}

#[test]
fn operations_of_a_killed_program_are_all_recorded() {
    let Some(watchers) = Watchers::new() else { return };
    let options = ["--kernel-buffer", "64M"];
    let (run, told, info) = watchers.record_with("t", &options, &["./program", "killed", "3000"]);
    assert_eq!((run.code, info.exit_code), (Some(128 + 9), Some(128 + 9)), "{run:?}");
    assert_eq!(info.lost, 0, "{info:?}");
    let written: u64 = (0..8)
        .filter_map(|number| {
            std::fs::metadata(watchers.home.path().join(format!("file{number}"))).ok()
        })
        .map(|about| about.len())
        .sum();
    assert!(written >= 3_000 * 64);
    assert_eq!(sums(&told)["write"].1 as u64, written);
}

/// What there was no room for is counted: in the end nothing is missing.
#[test]
fn stored_and_lost_are_all_that_was_done() {
    const MANY: u64 = 300_000;
    let Some(watchers) = Watchers::new() else { return };
    let (_, few, info) = watchers.record("few", &["./program", "many", "10"]);
    assert_eq!((info.lost, sums(&few)["write"]), (0, (10, 10)));
    let options = ["--kernel-buffer", "4K"];
    let (run, told, info) =
        watchers.record_with("many", &options, &["./program", "many", &MANY.to_string()]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(info.lost > 0 && info.operations > 0, "{info:?}");
    assert_eq!(info.operations + info.lost, few.len() as u64 + MANY - 10, "{info:?}");
    let lost: i64 = told.iter().filter(|told| told.op == "lost").map(|told| told.row.bytes).sum();
    assert_eq!(lost as u64, info.lost);
    let stored = told.iter().filter(|told| told.op != "lost").count();
    assert_eq!(stored as u64, info.operations);
    let writes = told.iter().filter(|told| told.op == "write");
    assert!(writes.clone().all(|told| told.row.bytes == 1 && told.row.offset == Some(0)));
    assert!(run.stderr.contains("operations came faster than they could be kept"), "{run:?}");
}

#[test]
fn io_uring_operations_are_reported_as_missing() {
    let Some(watchers) = Watchers::new() else { return };
    let (run, _, info) = watchers.record("t", &["./program", "ring"]);
    if run.code == Some(9) {
        return sheaf_testing::skipped("the kernel has no io_uring");
    }
    assert_eq!(run.code, Some(0), "{run:?}");
    let is_said = |text: &String| text.contains("program (process") && text.contains("io_uring");
    assert!(info.missing.iter().any(is_said), "{info:?}");
}

/// Where the kernel does not tell, nothing is run, and what is missing is said in one line.
#[test]
fn kernel_trace_without_tracefs_is_refused_with_the_cause() {
    let Some(watchers) = Watchers::new() else { return };
    let hidden = "mount -t tmpfs none /sys/kernel/tracing && mount -t tmpfs none /sys/kernel/debug \
                  && exec \"$@\"";
    let run = watchers.run(hidden, "t", &[], &["touch", "done"]);
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.stderr.contains("no tracefs is mounted at /sys/kernel/tracing"), "{run:?}");
    assert!(run.stderr.contains("nothing was run"), "{run:?}");
    let home = watchers.home.path();
    assert!(!home.join("done").exists() && !home.join("t").exists());
    let run = watchers.home.run(&["trace", "record", "--kernel-buffer", "4K", "true"]);
    assert!(run.code == Some(2) && run.stderr.contains("--kernel"), "{run:?}");
}
