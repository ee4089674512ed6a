//! `sheaf trace recover`: what a recorder has left that was killed, or had no room.
use crate::trace::TraceHome as _;
use crate::trace::{LIMIT, sums};
use sheaf_testing::built;
use sheaf_testing::home::Home;
use sheaf_trace::TraceInfo;
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The recorder is killed: what the program did is there all the same, once it is recovered, and
/// what is not there is counted.
#[test]
fn recorder_that_is_killed_loses_nothing_uncounted() {
    const EACH: u64 = 40_000;
    let mut killed = 0;
    for round in 0..6_u64 {
        let home = Home::new();
        let count = format!("count={EACH}");
        let dd = ["dd", "if=/dev/zero", "of=out", "bs=1", "status=none", &count];
        let mut args = vec!["trace", "record", "--quiet", "-o", "the.trace", "--"];
        args.extend(dd);
        let mut child = home.command(&args).spawn().unwrap();
        let out = home.path().join("out");
        let wanted = 1 + round * EACH / 6;
        let until = Instant::now() + LIMIT;
        while std::fs::metadata(&out).map_or(0, |about| about.len()) < wanted {
            std::thread::yield_now();
            assert!(Instant::now() < until, "{round}");
        }
        child.kill().unwrap();
        // This test may have been held up for so long that all was over.
        if child.wait().unwrap().code().is_some() || home.info().buffers.is_none() {
            continue;
        }
        killed += 1;
        // The program goes on alone.
        while std::fs::metadata(&out).unwrap().len() < EACH {
            assert!(Instant::now() < until, "{round}");
            std::thread::sleep(Duration::from_millis(1));
        }
        let told = home.run(&["trace", "report", "the.trace"]);
        assert!(told.stderr.contains("sheaf trace recover"), "{told:?}");
        let buffers = home.info().buffers.expect("it is not whole");
        let until = Instant::now() + LIMIT;
        let is_there = |segment: &std::fs::DirEntry| is_written(&segment.path());
        while std::fs::read_dir(&buffers).unwrap().flatten().any(|segment| is_there(&segment)) {
            assert!(Instant::now() < until, "{round}");
        }
        let run = home.run(&["trace", "recover", "the.trace"]);
        assert_eq!(run.code, Some(0), "{run:?}");
        let trace = home.path().join("the.trace");
        let (read, written, all) = (sums(&trace, "/zero"), sums(&trace, "/out"), sums(&trace, ""));
        let lost = all.get("lost").map_or(0, |lost| lost.1 as u64);
        let have =
            read.get("read").map_or(0, |sum| sum.0) + written.get("write").map_or(0, |sum| sum.0);
        assert!(have <= 2 * EACH && have + lost >= 2 * EACH, "{round}: {have} and {lost} lost");
        // What else dd does is less than this.
        assert!(have + lost <= 2 * EACH + 64, "{round}: {have} and {lost} lost");
        let info = home.info();
        assert_eq!(
            info.operations + info.lost,
            all.values().map(|sum| sum.0).sum::<u64>() - all.get("lost").map_or(0, |lost| lost.0)
                + lost
        );
        assert!(!buffers.exists() && info.buffers.is_none());
        assert!(std::fs::read_dir(&trace).unwrap().flatten().all(|file| {
            let name = file.file_name();
            let name = name.to_str().unwrap();
            name == "trace.json" || name.ends_with(".parquet")
        }));
        let said = std::fs::read(trace.join("trace.json")).unwrap();
        let again = home.run(&["trace", "recover", "the.trace"]);
        assert_eq!(again.code, Some(0), "{again:?}");
        assert_eq!(again.stderr, "sheaf: the.trace is whole\n");
        assert_eq!(std::fs::read(trace.join("trace.json")).unwrap(), said, "once is enough");
    }
    assert!(killed > 0, "no recorder was killed in time");
}

/// Bytes that are copied one by one until a recorder is killed: what was done is on disk.
const ON_DISK: i64 = 1_000;
/// Those that are copied after it: what was done is in memory, in fewer than half of a ring's records.
const IN_MEMORY: i64 = 7_000;

/// A recorder that was killed, whose program has ended since.
fn killed(home: &Home) {
    let copy = "dd if=/dev/zero bs=1 status=none";
    let script = format!(
        "{copy} of=out count={ON_DISK}; read -r line <go; exec {copy} of=more count={IN_MEMORY}"
    );
    assert!(Command::new("mkfifo").arg(home.path().join("go")).status().unwrap().success());
    let args = ["trace", "record", "--quiet", "-o", "the.trace", "--", "sh", "-c", &script];
    let mut child = home.command(&args).spawn().unwrap();
    let until = Instant::now() + LIMIT;
    // What is being written just now is not read.
    let trace = home.path().join("the.trace");
    while !trace.join("spool-000000").exists()
        || sums(&trace, "/out").get("write").is_none_or(|sum| sum.1 < ON_DISK)
    {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    home.write("go", "");
    let buffers = home.info().buffers.expect("it is not whole");
    while std::fs::read_dir(&buffers).unwrap().flatten().any(|entry| is_written(&entry.path())) {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn unstorable_records_stay_in_memory_until_there_is_space() {
    let home = Home::new();
    killed(&home);
    let sheaf = built("sheaf");
    let script = format!(
        "cp -r the.trace small/t && dd if=/dev/zero of=small/fill bs=1k status=none 2>&-; \
         {sheaf} trace recover small/t; echo $?; \
         truncate -s -200k small/fill; {sheaf} trace recover small/t; echo $?; \
         rm small/fill; {sheaf} trace recover small/t; echo $?; rm -r the.trace; cp -r small/t the.trace"
    );
    let Some(run) = home.on_small_disk("4m", &script) else { return };
    assert_eq!(run.stdout, "4\n4\n0\n", "{run:?}");
    let kept = run.stderr.matches("what could not be stored stays where it is for another try");
    assert_eq!(kept.count(), 2, "{run:?}");
    all_recovered(&home);
}

/// What a recorder drops for want of room is counted also if it is killed then.
#[test]
fn records_dropped_by_a_killed_recorder_are_counted() {
    let home = Home::new();
    let copy = "dd if=/dev/zero of=/dev/null bs=1 status=none";
    let job = format!(
        "for i in 1 2 3 4 5 6; do {copy} count=2000; done; echo . >begun; read -r line <go; \
         {copy} count=3000; echo . >ended"
    );
    home.write("job.sh", &job);
    let sheaf = built("sheaf");
    let script = format!(
        "mkfifo go; (echo . >go) & {sheaf} trace record --quiet -o whole.trace -- sh job.sh; \
         rm begun ended; \
         mkdir rings; \
         {sheaf} trace record --quiet --buffers rings -o small/t -- sh job.sh & recorder=$!; \
         n=0; until test -s begun && cat rings/*/dropped >dropped 2>&- || test $((n+=1)) -gt 6000; \
         do sleep 0.01; done; kill -9 $recorder; wait $recorder; \
         echo . >go; until test -s ended || test $((n+=1)) -gt 9000; do sleep 0.01; done; \
         mount -o remount,size=20m small && {sheaf} trace recover --quiet small/t; echo $?; \
         cp -r small/t the.trace"
    );
    let Some(run) = home.on_small_disk("100k", &script) else { return };
    assert_eq!(run.stdout, "0\n", "{run:?}");
    let info = |name: &str| TraceInfo::read(&home.path().join(name)).unwrap().unwrap();
    let (whole, cut) = (info("whole.trace"), info("the.trace"));
    assert_eq!((whole.lost, whole.unwritten), (0, 0));
    assert!(whole.operations > 30_000 && cut.unwritten > 0, "{cut:?}");
    assert_eq!(cut.operations + cut.lost + cut.unwritten, whole.operations, "{cut:?}");
}

/// Every byte that [`killed`] has copied is there.
fn all_recovered(home: &Home) {
    let trace = home.path().join("the.trace");
    let of = |bytes: i64| (bytes.cast_unsigned(), bytes);
    assert_eq!(sums(&trace, "/zero")["read"], of(ON_DISK + IN_MEMORY));
    assert_eq!(sums(&trace, "/out")["write"], of(ON_DISK));
    assert_eq!(sums(&trace, "/more")["write"], of(IN_MEMORY));
    assert_eq!(sums(&trace, "").get("lost"), None);
}

/// A recorder that was killed, whose program waits for a line in `go` and then copies on; its number.
fn waiting(home: &Home) -> u32 {
    assert!(Command::new("mkfifo").arg(home.path().join("go")).status().unwrap().success());
    let copy = "dd if=/dev/zero bs=1 status=none";
    let script = format!(
        "{copy} of=out count=2000; echo $$ >pid; read -r line <go; exec {copy} of=more count=1000"
    );
    let args = ["trace", "record", "--quiet", "-o", "the.trace", "--", "sh", "-c", &script];
    let mut child = home.command(&args).spawn().unwrap();
    let until = Instant::now() + LIMIT;
    let pid = loop {
        let text = std::fs::read_to_string(home.path().join("pid")).unwrap_or_default();
        if let Some(pid) = text.strip_suffix('\n') {
            break pid.parse().unwrap();
        }
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(1));
    };
    child.kill().unwrap();
    child.wait().unwrap();
    pid
}

/// Lets the program of [`waiting`] go on, and waits for its end.
fn let_go(home: &Home, pid: u32) {
    home.write("go", "");
    let until = Instant::now() + LIMIT;
    let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).ok();
    while stat().is_some_and(|stat| !stat.contains(") Z ")) {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What a program does after its recorder was killed is recovered, too, once it has ended.
#[test]
fn program_that_goes_on_is_waited_for() {
    let home = Home::new();
    let pid = waiting(&home);
    let refused = home.run(&["trace", "recover", "the.trace"]);
    let told = format!(
        "sheaf: the.trace: process {pid} (sh) goes on: recover it after the end, so that nothing is \
         left out; --now stores what there is, and what is done from then on is not recorded\n"
    );
    assert_eq!((refused.code, refused.stderr.as_str()), (Some(4), told.as_str()), "{refused:?}");
    let_go(&home, pid);
    let run = home.run(&["trace", "recover", "the.trace"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let trace = home.path().join("the.trace");
    assert_eq!(sums(&trace, "/zero")["read"], (3000, 3000));
    assert_eq!(sums(&trace, "/out")["write"], (2000, 2000));
    assert_eq!(sums(&trace, "/more")["write"], (1000, 1000));
    assert_eq!(home.run(&["trace", "recover", "the.trace"]).stderr, "sheaf: the.trace is whole\n");
}

#[test]
fn recover_now_stores_records_of_a_running_program() {
    let home = Home::new();
    let pid = waiting(&home);
    let run = home.run(&["trace", "recover", "--now", "the.trace"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let told = "sheaf: a process goes on, and what it does now is not recorded\n";
    assert!(run.stderr.contains(told), "{run:?}");
    let_go(&home, pid);
    let trace = home.path().join("the.trace");
    assert_eq!(sums(&trace, "/out")["write"], (2000, 2000));
    assert_eq!(sums(&trace, "/more").get("write"), None);
    let again = home.run(&["trace", "recover", "the.trace"]);
    let told = "sheaf: the.trace: nothing more can be recovered; a process went on unrecorded\n";
    assert_eq!((again.code, again.stderr.as_str()), (Some(0), told));
}

#[test]
fn damaged_file_costs_no_spool() {
    let home = Home::new();
    killed(&home);
    home.write("the.trace/trace-000000.parquet", "PAR1 of nothing");
    let run = home.run(&["trace", "recover", "the.trace"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    all_recovered(&home);
}

/// What a copy of a trace names as its memory is that of the recorder which still runs.
#[test]
fn nothing_is_taken_from_a_recorder_that_runs() {
    let home = Home::new();
    assert!(Command::new("mkfifo").arg(home.path().join("go")).status().unwrap().success());
    let dd = "dd if=/dev/zero bs=1 status=none count=1000";
    let script = format!("{dd} of=out; read -r line <go; exec {dd} of=more");
    let args = ["trace", "record", "--quiet", "-o", "the.trace", "--", "sh", "-c", &script];
    let mut child = home.command(&args).spawn().unwrap();
    let until = Instant::now() + LIMIT;
    while std::fs::metadata(home.path().join("out")).map_or(0, |about| about.len()) < 1000 {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut copy = Command::new("cp");
    copy.args(["-r", "the.trace", "copy"]).current_dir(home.path());
    assert!(copy.status().unwrap().success());
    let refused = home.run(&["trace", "recover", "copy"]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.stderr.contains("somebody is recording there"), "{refused:?}");
    home.write("go", "");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let trace = home.path().join("the.trace");
    assert_eq!(sums(&trace, "/zero")["read"], (2000, 2000));
    assert_eq!(home.info().lost, 0);
}

/// What cannot be read is not taken away.
#[test]
fn damaged_spool_is_kept() {
    let home = Home::new();
    killed(&home);
    let spool = home.path().join("the.trace/spool-000000");
    let mut bytes = std::fs::read(&spool).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(&spool, &bytes).unwrap();
    let run = home.run(&["trace", "recover", "the.trace"]);
    assert_eq!(run.code, Some(4), "{run:?}");
    assert!(run.stderr.contains("it is kept as the.trace/damaged-000000"), "{run:?}");
    assert_eq!(std::fs::read(home.path().join("the.trace/damaged-000000")).unwrap(), bytes);
    let more = sums(&home.path().join("the.trace"), "/more")["write"];
    assert_eq!(more, (IN_MEMORY.cast_unsigned(), IN_MEMORY));
}

/// A trace says itself where its operations are in memory, and may be somebody else's.
#[test]
fn nothing_is_taken_away_but_what_was_made_for_a_recording() {
    let home = Home::new();
    home.write("victim/data.segment", "mine");
    home.write("kept", "mine");
    let victim = home.path().join("victim");
    let info = TraceInfo { buffers: Some(victim.clone()), ..TraceInfo::default() };
    std::fs::create_dir(home.path().join("the.trace")).unwrap();
    info.write(&home.path().join("the.trace")).unwrap();
    let run = home.run(&["trace", "recover", "the.trace"]);
    assert_eq!(run.code, Some(4), "{run:?}");
    assert!(run.stderr.contains("it was not made for a recording"), "{run:?}");
    assert!(victim.join("data.segment").exists());
    let part = home.path().join("the.trace/trace.json.part");
    std::os::unix::fs::symlink(home.path().join("kept"), part).unwrap();
    info.write(&home.path().join("the.trace")).unwrap();
    assert_eq!(std::fs::read_to_string(home.path().join("kept")).unwrap(), "mine");
}

/// Whether the process of a segment runs.
fn is_written(segment: &Path) -> bool {
    let name = segment.file_name().unwrap().to_str().unwrap();
    let pid = name.split('.').next().and_then(|pid| pid.parse::<u32>().ok());
    let stat = pid.and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).ok());
    stat.is_some_and(|stat| !stat.contains(") Z "))
}

/// What a killed recorder has left is found without its name, and goes once it is recovered.
#[test]
fn what_killed_recorders_have_left_is_listed() {
    let home = Home::new();
    let shared = tempfile::tempdir_in("/dev/shm").unwrap();
    let buffers = shared.path().to_str().unwrap();
    let list = |options: &[&str]| {
        let words = ["trace", "recover", "--list", "--buffers", buffers];
        home.run(&[&words[..], options].concat())
    };
    let none = list(&[]);
    assert_eq!((none.code, none.stdout.as_str()), (Some(0), ""), "{none:?}");
    assert!(none.stderr.contains("no recording of yours keeps anything there"), "{none:?}");
    let words = ["trace", "record", "--quiet", "-o", "the.trace", "--buffers", buffers, "--"];
    let program = ["sh", "-c", "echo begun > begun; read word; cat begun > ended"];
    let mut command = home.command(&[&words[..], &program].concat());
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let until = Instant::now() + LIMIT;
    while !home.path().join("begun").exists() {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(5));
    }
    let taken = list(&[]);
    assert!(taken.stdout.ends_with("the.trace): is being recorded\n"), "{taken:?}");
    let mut words = child.stdin.take().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let written = list(&[]);
    assert!(written.stdout.contains("(sh) goes on: sheaf trace recover "), "{written:?}");
    words.write_all(b"\n").unwrap();
    let left = loop {
        let left = list(&["--json"]);
        if left.stdout.contains("\"left\"") {
            break left.stdout;
        }
        assert!(Instant::now() < until, "{left:?}");
        std::thread::sleep(Duration::from_millis(20));
    };
    let left: serde_json::Value = serde_json::from_str(&left).unwrap();
    assert_eq!(left["type"], "trace_buffers");
    assert!(left["operations"].as_u64() > Some(3) && left["bytes"].as_u64() > Some(0), "{left}");
    let trace = left["trace"].as_str().unwrap();
    // Nothing is changed by looking.
    let recovered = home.run(&["trace", "recover", trace]);
    assert_eq!(recovered.code, Some(0), "{recovered:?}");
    assert!(sums(Path::new(trace), "/ended").contains_key("open"));
    assert_eq!(list(&[]).stdout, "");
    // One whose trace is gone is named, too; what is none of a recording is not.
    let gone = shared.path().join("sheaf-trace-gone");
    for directory in [&gone, &shared.path().join("other")] {
        std::fs::DirBuilder::new().mode(0o700).create(directory).unwrap();
    }
    std::fs::write(gone.join("trace"), trace).unwrap();
    let listed = list(&[]);
    let expected = "0 operations of a trace that was removed or moved: ";
    assert!(listed.stdout.contains(expected) && listed.stdout.lines().count() == 1, "{listed:?}");
    assert_eq!(home.run(&["trace", "recover"]).code, Some(2));
}
