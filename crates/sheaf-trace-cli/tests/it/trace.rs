//! `sheaf trace`: programs recorded, and what is told of them.
use sheaf_testing::built;
use sheaf_testing::home::{Home, Run};
use sheaf_trace::{StoreReader, TraceInfo, TraceNames};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub const LIMIT: Duration = Duration::from_secs(60);

/// What tests of traces do in their homes.
pub trait TraceHome {
    /// `sheaf trace record` of a command.
    fn record(&self, command: &[&str]) -> Run;
    /// What a shell does where `small` is a disk of that size; `None`, and a word, where none can be
    /// made.
    fn on_small_disk(&self, size: &str, script: &str) -> Option<Run>;
    fn info(&self) -> TraceInfo;
}

impl TraceHome for Home {
    fn record(&self, command: &[&str]) -> Run {
        let mut args = vec!["trace", "record", "-o", "the.trace", "--"];
        args.extend(command);
        self.run(&args)
    }

    fn on_small_disk(&self, size: &str, script: &str) -> Option<Run> {
        if !rustix::process::geteuid().is_root() {
            sheaf_testing::skipped("only root mounts a file system to fill");
            return None;
        }
        std::fs::create_dir(self.path().join("small")).unwrap();
        let script = format!("mount -t tmpfs -o size={size} none small; {script}");
        let mut command = Command::new("unshare");
        command.args(["-m", "--propagation", "private", "sh", "-c", &script]);
        let run = Run::of(command.current_dir(self.path()).output().unwrap());
        if run.stderr.contains("unshare failed") || run.stderr.contains("mount:") {
            sheaf_testing::skipped("no file system can be mounted here");
            return None;
        }
        Some(run)
    }

    fn info(&self) -> TraceInfo {
        TraceInfo::read(&self.path().join("the.trace"))
            .unwrap()
            .expect("a trace says what it is of")
    }
}

/// How often each operation was done on files whose names end so, and how many bytes it moved.
pub fn sums(trace: &Path, end: &str) -> BTreeMap<String, (u64, i64)> {
    let mut sums = BTreeMap::new();
    let damaged = StoreReader::open(trace)
        .unwrap()
        .read(&mut TraceNames::default(), |row, names| {
            if names.text(row.path).ends_with(end.as_bytes()) {
                let op = String::from_utf8(names.text(row.op).to_vec()).unwrap();
                let sum: &mut (u64, i64) = sums.entry(op).or_default();
                *sum = (sum.0 + 1, sum.1 + row.bytes);
            }
            Ok(())
        })
        .unwrap();
    assert!(damaged.is_empty(), "{damaged:?}");
    sums
}

#[test]
fn recorded_trace_is_exact_to_the_byte() {
    let home = Home::new();
    home.write("in", &"x".repeat(10_000));
    let run = home.record(&["dd", "if=in", "of=out", "bs=1000", "status=none"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), ""), "{run:?}");
    assert!(run.stderr.contains("operations are in the.trace"), "{run:?}");
    let trace = home.path().join("the.trace");
    let (read, written) = (sums(&trace, "/in"), sums(&trace, "/out"));
    // The last read finds the end.
    assert_eq!(read["read"], (11, 10_000));
    assert_eq!(written["write"], (10, 10_000));
    let info = home.info();
    assert_eq!((info.exit_code, info.lost, info.unwritten), (Some(0), 0, 0));
    assert_eq!((info.segments, info.missing), (1, vec![]));
    let kernel = info.kernel.expect("its own process can be looked at");
    assert!(kernel.bytes_written == 10_000 && kernel.bytes_read >= 10_000, "{kernel:?}");
    assert_eq!(std::fs::read(home.path().join("out")).unwrap().len(), 10_000);
    // Whoever it is not meant for does not read what somebody did.
    let mode = std::fs::metadata(&trace).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn program_s_output_input_and_end_are_its_own() {
    let home = Home::new();
    home.write("words", "b\na\n");
    let script = "sort; echo complaint >&2; cat <&3; exit 7";
    let (with, without) = (
        ["trace", "record", "--quiet", "-o", "the.trace", "--", "sh", "-c", script],
        ["-c", script],
    );
    let redirected = "exec \"$0\" \"$@\" <words 3<words";
    let traced = home.shell(&with, redirected);
    let mut plain = Command::new("sh");
    plain.args(["-c", redirected, "sh"]).args(without).current_dir(home.path());
    let plain = Run::of(plain.output().unwrap());
    assert_eq!(plain.code, Some(7));
    assert_eq!(
        (traced.code, traced.stdout, traced.stderr),
        (plain.code, plain.stdout, plain.stderr)
    );
    assert!(home.info().segments >= 3, "sh, sort and cat");
    assert_eq!(home.info().exit_code, Some(7));
}

#[test]
fn signal_that_ends_the_program_is_its_exit_code() {
    let home = Home::new();
    let run = home.record(&["sh", "-c", "kill -KILL $$"]);
    assert_eq!(run.code, Some(128 + 9), "{run:?}");
    assert_eq!(home.info().exit_code, Some(128 + 9));
}

#[test]
fn termination_signal_to_the_recorder_reaches_the_program() {
    let home = Home::new();
    let script = "trap 'echo asked; exit 3' TERM; echo ready; while :; do sleep 0.05; done";
    let mut command =
        home.command(&["trace", "record", "--quiet", "-o", "the.trace", "--", "sh", "-c", script]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    assert_eq!(line, "ready\n");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3));
    line.clear();
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    assert_eq!(line, "asked\n");
    assert_eq!(home.info().exit_code, Some(3));
}

#[test]
fn unrunnable_commands_have_the_exit_status_of_a_shell() {
    let home = Home::new();
    home.write("plain", "text");
    for (name, code, says) in [
        ("there-is-no-such-program", 127, "no such program on the PATH"),
        ("./absent", 127, "./absent: No such file or directory (ENOENT)"),
        ("./plain", 126, "./plain: Permission denied (EACCES)"),
        ("/", 126, "/: Is a directory (EISDIR)"),
        (".", 126, ". is a directory, and no program"),
        (
            "shift",
            127,
            "shift is no program, but a command within shells, which one runs: -- sh -c 'shift …'",
        ),
    ] {
        let run = home.record(&[name]);
        assert_eq!((run.code, run.stdout.as_str()), (Some(code), ""), "{run:?}");
        assert!(run.stderr.contains(says), "{run:?}");
        assert!(!home.path().join("the.trace").exists(), "{name} leaves no trace");
    }
}

#[test]
fn file_that_is_no_program_is_refused_as_by_the_kernel() {
    let home = Home::new();
    let path = home.write("data", "neither a script nor an image\n");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let run = home.record(&["./data"]);
    assert_eq!(run.code, Some(126), "{run:?}");
    assert!(run.stderr.contains("cannot run ./data: Exec format error (ENOEXEC)"), "{run:?}");
    let info = home.info();
    assert!(info.exit_code == Some(126) && info.buffers.is_none(), "{info:?}");
}

#[test]
fn trace_goes_into_a_directory_of_its_own() {
    let home = Home::new();
    for name in ["true.trace", "true.2.trace", "true.3.trace"] {
        assert_eq!(home.run(&["trace", "record", "true"]).code, Some(0));
        assert!(home.path().join(name).join("trace.json").exists(), "{name}");
    }
    home.write("used/file", "mine");
    let run = home.run(&["trace", "record", "-o", "used", "--", "touch", "done"]);
    assert!(run.code == Some(2) && run.stderr.contains("used is not empty"), "{run:?}");
    assert!(!home.path().join("done").exists(), "nothing was run");
    let run = home.run(&["trace", "record", "-o", "no/where", "--", "touch", "done"]);
    assert!(run.code == Some(4) && run.stderr.contains("no/where"), "{run:?}");
    let buffers = ["trace", "record", "--buffers", "/no/memory", "touch", "done"];
    let run = home.run(&buffers);
    assert!(run.code == Some(2) && run.stderr.contains("--buffers"), "{run:?}");
    assert!(!home.path().join("done").exists(), "nothing was run");
}

/// What does not fit into a ring is counted, to the operation, and what would keep it is said.
#[test]
fn small_rings_lose_operations_and_say_so() {
    const EACH: u64 = 60_000;
    let home = Home::new();
    let count = format!("count={EACH}");
    let dd = ["dd", "if=/dev/zero", "of=out", "bs=1", "status=none", &count];
    let record = |records: &str| {
        let mut args = vec!["trace", "record", "--records", records, "--when-full", "drop"];
        args.extend(["-o", "the.trace", "--"]);
        args.extend(dd);
        let run = home.run(&args);
        assert_eq!((run.code, run.stdout.as_str()), (Some(0), ""), "{run:?}");
        let info = home.info();
        let all = sums(&home.path().join("the.trace"), "");
        let stored: u64 = all.iter().filter(|(op, _)| *op != "lost").map(|(_, sum)| sum.0).sum();
        let lost = all.get("lost").map_or(0, |lost| lost.1 as u64);
        assert_eq!((info.operations, info.lost), (stored, lost));
        let report = home.run(&["trace", "report", "the.trace"]);
        std::fs::remove_dir_all(home.path().join("the.trace")).unwrap();
        (run, stored, lost, report.stdout)
    };
    // Rounded up to 262,144: more than there are.
    let (run, done, lost, report) = record("200000");
    assert!(lost == 0 && (2 * EACH..2 * EACH + 64).contains(&done), "{done} and {lost} lost");
    assert!(!run.stderr.contains("--records") && !report.contains("--records"), "{run:?}");
    let (run, stored, lost, report) = record("5");
    assert!(lost > 0, "eight operations are never too few");
    assert_eq!(stored + lost, done);
    let said = format!("{lost} operations came faster than they could be kept: --records N");
    assert!(run.stderr.contains(&said), "{run:?}");
    assert!(report.contains("--records N"), "{report}");
}

#[test]
fn rings_have_a_size_that_there_can_be() {
    let home = Home::new();
    for records in ["0", "3", "16777217", "many"] {
        let run = home.run(&["trace", "record", "--records", records, "touch", "done"]);
        assert!(run.code == Some(2) && run.stderr.contains("--records"), "{run:?}");
    }
    assert!(!home.path().join("done").exists(), "nothing was run");
    // What is not used takes no memory.
    let run = home.run(&["trace", "record", "--records", "16777216", "touch", "done"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stderr.contains("operations are in touch.trace"), "{run:?}");
}

#[test]
fn other_preloads_and_odd_directories_stand() {
    let home = Home::new();
    let odd = home.path().join("a b:c");
    std::fs::create_dir(&odd).unwrap();
    for name in ["sheaf", "libsheaf_trace.so"] {
        let built = Path::new(built("sheaf"));
        let deps = built.with_file_name("deps").join("libsheaf_preload.so");
        let from = if name == "sheaf" { built.to_owned() } else { deps };
        std::os::unix::fs::symlink(from, odd.join(name)).unwrap();
    }
    // The program finds the library from where it is, not from where a link to it is: copied.
    std::fs::remove_file(odd.join("sheaf")).unwrap();
    for program in ["sheaf", "sheaf-trace"] {
        std::fs::copy(built(program), odd.join(program)).unwrap();
    }
    let mut command = home.command(&[]);
    let environment: Vec<_> = command
        .get_envs()
        .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
        .collect();
    command = Command::new(odd.join("sheaf"));
    command.env_clear().envs(environment).current_dir(home.path());
    command.env("LD_PRELOAD", "libm.so.6");
    command.args(["trace", "record", "-o", "the.trace", "--", "cat", "/proc/self/maps"]);
    let run = Run::of(command.output().unwrap());
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains("libm.so.6"), "it was to be loaded before, too");
    assert_eq!(home.info().segments, 1, "{run:?}");
}

/// Nothing is left in memory, whatever became of the program.
#[test]
fn both_paths_of_a_rename_and_of_links_are_there() {
    let home = Home::new();
    home.write("a", "x");
    let run = home.record(&["sh", "-c", "mv a b; ln b c; ln -s b d; mv d missing/e 2>&-"]);
    assert_eq!(run.code, Some(1), "{run:?}");
    let csv = home.run(&["trace", "export", "--to", "csv", "the.trace"]);
    let here = home.path().canonicalize().unwrap();
    let here = format!("{}/", here.display());
    let of = |line: &str| -> Option<(String, String, String)> {
        let fields: Vec<String> = line.split(',').map(|text| text.replace(&here, "")).collect();
        let is_one = ["rename", "link", "symlink"].contains(&fields[2].as_str());
        is_one.then(|| (fields[2].clone(), fields[6].clone(), fields[15].clone()))
    };
    let told: std::collections::BTreeSet<_> = csv.stdout.lines().filter_map(of).collect();
    for (op, path, new_path) in [
        ("rename", "a", "b"),
        ("link", "b", "c"),
        ("symlink", "d", "b"),
        ("rename", "d", "missing/e"),
    ] {
        let one = (op.to_owned(), path.to_owned(), new_path.to_owned());
        assert!(told.contains(&one), "{one:?}: {told:?}");
    }
}

const SANITIZED: &str = r#"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static void *work(void *zero) {
    char buffer[64];
    for (int i = 0; i < 1000; i++) if (read(*(int *)zero, buffer, 64) != 64) return zero;
    return 0;
}
int main(int count, char **words) {
    int zero = open("/dev/zero", O_RDONLY);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, work, &zero);
    for (int i = 0; i < 4; i++) { void *bad; pthread_join(threads[i], &bad); if (bad) return 2; }
    char *memory = malloc(10);
    printf("%d\\n", words[0][0] == 0);
    if (count > 1) memory[10] = 0;
    free(memory);
    return 0;
}
"#;

/// What sanitizers find they find all the same, and nothing else.
#[test]
fn programs_with_sanitizers_run_and_are_recorded() {
    let home = Home::new();
    home.write("program.c", SANITIZED);
    let mut tried = 0;
    for sanitizer in ["address", "thread", "undefined", "leak"] {
        let flag = format!("-fsanitize={sanitizer}");
        let compiler = Command::new("cc")
            .args([flag.as_str(), "-o", sanitizer, "program.c", "-lpthread"])
            .current_dir(home.path())
            .output();
        if !compiler.is_ok_and(|compiled| compiled.status.success()) {
            continue;
        }
        tried += 1;
        for word in [None, Some("wrong")] {
            let mut plain = Command::new(home.path().join(sanitizer));
            let plain = Run::of(plain.args(word).current_dir(home.path()).output().unwrap());
            let program = format!("./{sanitizer}");
            let command: Vec<&str> = [program.as_str()].into_iter().chain(word).collect();
            let traced = home.record(&command);
            let is_found = |run: &Run| run.stderr.contains("heap-buffer-overflow");
            assert_eq!(
                (traced.code, &traced.stdout, is_found(&traced)),
                (plain.code, &plain.stdout, is_found(&plain)),
                "{sanitizer}: {traced:?} {plain:?}"
            );
            assert_eq!(is_found(&plain), sanitizer == "address" && word.is_some());
            let trace = home.path().join("the.trace");
            assert_eq!(sums(&trace, "/dev/zero")["read"], (4000, 256_000), "{sanitizer}");
            // What a sanitizer itself reads and writes is seen by nobody but the kernel.
            let is_other = |text: &&String| !text.starts_with("the kernel counted ");
            assert_eq!(home.info().missing.iter().find(is_other), None, "{sanitizer}");
            std::fs::remove_dir_all(trace).unwrap();
        }
    }
    if tried == 0 {
        sheaf_testing::skipped("no compiler here has a sanitizer");
    }
}

#[test]
fn no_buffers_stay_behind() {
    let home = Home::new();
    let buffers = home.path().join("buffers");
    std::fs::create_dir(&buffers).unwrap();
    let at = buffers.to_str().unwrap();
    for command in ["true", "kill -SEGV $$", "true & exec true"] {
        let run = home.run(&["trace", "record", "--buffers", at, "--", "sh", "-c", command]);
        assert!(run.code.is_some(), "{run:?}");
        assert_eq!(std::fs::read_dir(&buffers).unwrap().count(), 0, "{command}");
    }
    let none = home.run(&["trace", "record", "--buffers", "none", "-o", "other", "--", "true"]);
    assert_eq!(none.code, Some(2), "{none:?}");
    assert!(!home.path().join("other").exists(), "{none:?}");
}

#[test]
fn processes_that_go_on_are_counted() {
    let home = Home::new();
    let script =
        "exec >/dev/null 2>&1; (echo $$ >pid; exec sleep 1000) & while ! test -s pid; do :; done";
    let begun = Instant::now();
    let run = home.record(&["sh", "-c", script]);
    assert!(run.code == Some(0) && begun.elapsed() < LIMIT, "{run:?}");
    let told = "sheaf: a process goes on, and what it does now is not recorded\n";
    assert!(run.stderr.starts_with(told), "{run:?}");
    let of_group = std::fs::read_to_string(home.path().join("pid")).unwrap();
    assert!(!of_group.is_empty());
    end_sleeper(&home);
}

/// Ends what sleeps in the home's directory, and nothing else.
fn end_sleeper(home: &Home) {
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let is_here =
            std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == home.path());
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw).filter(|_| is_here) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

/// The disk is full: the program goes on, and what is missing is counted.
#[test]
fn full_disk_costs_the_trace_and_not_the_program() {
    let home = Home::new();
    let sheaf = built("sheaf");
    // The rings have room for every operation: however late they are emptied, the disk becomes full.
    let script = format!(
        "{sheaf} trace record --records 700000 -o small/t -- \
         sh -c 'dd if=/dev/zero of=/dev/null bs=1 count=300000 status=none; exit 6'; \
         echo $?; mount -o remount,size=100m small; {sheaf} trace recover small/t; echo $?; \
         ls small/t; cp -r small/t the.trace"
    );
    let Some(run) = home.on_small_disk("8m", &script) else { return };
    assert_eq!(run.stdout, "6\n0\ntrace-000000.parquet\ntrace.json\n", "{run:?}");
    assert!(run.stderr.contains("operations could not be stored"), "{run:?}");
    assert!(run.stderr.contains("No space left"), "{run:?}");
    // What is in a spool still is made a file of; where all is in files, that is said.
    let is_finished = run.stderr.contains("small/t: nothing more can be recovered");
    assert_ne!(
        is_finished,
        run.stderr.contains("where there is room, sheaf trace recover"),
        "{run:?}"
    );
    let info = home.info();
    let all = sums(&home.path().join("the.trace"), "");
    let operations: u64 = all.iter().filter(|(op, _)| *op != "lost").map(|(_, sum)| sum.0).sum();
    assert_eq!((info.operations, info.unwritten > 0), (operations, true), "{info:?}");
    assert!(operations > 0 && !info.missing.iter().any(|text| text.contains("not whole")));
}

#[test]
fn ignored_signals_stay_ignored_and_others_are_forwarded() {
    let home = Home::new();
    // It ends by itself, after a minute.
    let script = "trap 'echo first' USR1; trap 'echo second' ALRM; trap 'echo third' QUIT; \
                  kill -HUP $$; kill -INT $$; echo ready; n=0; \
                  while [ ! -e stop ] && [ $n -lt 3000 ]; do sleep 0.02; n=$((n+1)); done; \
                  echo end";
    // A group of its own, which has no terminal's keys. What a shell runs in the background has
    // QUIT ignored.
    let record = "trap '' HUP INT; exec env --default-signal=QUIT \"$0\" \"$@\"";
    let sheaf = built("sheaf");
    let args = ["trace", "record", "--quiet", "-o", "the.trace", "--", "sh", "-c", script];
    let mut shell = Command::new("sh");
    shell.args(["-c", record, sheaf]).args(args).current_dir(home.path()).process_group(0);
    let mut child = shell.stdout(Stdio::piped()).spawn().unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut expect = |expected: &str| {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut out, &mut line).unwrap();
        assert_eq!(line, expected);
    };
    expect("ready\n");
    let pid = rustix::process::Pid::from_child(&child);
    let send = |signal| rustix::process::kill_process(pid, signal).unwrap();
    for signal in [rustix::process::Signal::HUP, rustix::process::Signal::USR1] {
        send(signal);
    }
    expect("first\n");
    send(rustix::process::Signal::ALARM);
    expect("second\n");
    send(rustix::process::Signal::QUIT);
    expect("third\n");
    home.write("stop", "");
    expect("end\n");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn too_few_descriptors_are_said_before_anything_is_run() {
    let home = Home::new();
    let args = ["trace", "record", "-o", "the.trace", "--", "echo", "run"];
    let run = home.shell(&args, "ulimit -n 8; exec \"$0\" \"$@\"");
    assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{run:?}");
    assert!(run.stderr.contains("a recording needs 16 descriptors (ulimit -n)"), "{run:?}");
    assert!(!home.path().join("the.trace").exists());
}

#[test]
fn too_small_files_are_said_before_anything_is_run() {
    let home = Home::new();
    for limit in ["-f 1000", "-v 200000"] {
        let args = ["trace", "record", "-o", "the.trace", "--", "echo", "run"];
        let run = home.shell(&args, &format!("ulimit {limit}; exec \"$0\" \"$@\""));
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{run:?}");
        assert!(run.stderr.contains(&format!("ulimit {} allows ", &limit[..2])), "{run:?}");
        assert!(!home.path().join("the.trace").exists());
    }
}

#[test]
fn files_that_are_gone_are_missed() {
    let home = Home::new();
    assert_eq!(home.record(&["ls"]).code, Some(0));
    let operations = home.info().operations;
    assert!(operations > 0);
    std::fs::remove_file(home.path().join("the.trace/trace-000000.parquet")).unwrap();
    let report = home.run(&["trace", "report", "the.trace"]);
    assert_eq!(report.code, Some(4), "{report:?}");
    let told =
        format!("{operations} of the {operations} operations that were stored are not there");
    assert!(report.stderr.contains(&told), "{report:?}");
}

#[test]
fn no_bytes_are_counted_that_did_not_move() {
    let home = Home::new();
    home.write("d/one", "");
    let run = home.record(&["bash", "-c", "(:); ls d >/dev/null; :"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let all = sums(&home.path().join("the.trace"), "");
    assert!(all["fork"].0 >= 1 && all["readdir"].0 >= 3, "{all:?}");
    assert_eq!((all["fork"].1, all["readdir"].1), (0, 0));
}

/// The same trace in each form that there is.
#[test]
fn trace_is_told_in_every_form_alike() {
    let home = Home::new();
    home.write("in", &"x".repeat(10_000));
    assert_eq!(home.record(&["dd", "if=in", "of=out", "bs=1000", "status=none"]).code, Some(0));
    let text = home.run(&["trace", "report", "the.trace"]);
    assert_eq!((text.code, text.stderr.as_str()), (Some(0), ""), "{text:?}");
    assert!(text.stdout.lines().all(|line| line.chars().count() <= 80), "{}", text.stdout);
    assert!(text.stdout.contains("/out"), "{}", text.stdout);
    let json = home.run(&["trace", "report", "--json", "the.trace"]);
    let record: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    let report: sheaf_trace::ReportData = serde_json::from_value(record["report"].clone()).unwrap();
    assert_eq!(report.rows, home.info().operations);
    home.write("notes", "of mine");
    let other = home.run(&["trace", "report", "--html", "notes", "the.trace"]);
    assert_eq!(other.code, Some(2), "{other:?}");
    assert_eq!(std::fs::read_to_string(home.path().join("notes")).unwrap(), "of mine");
    home.write("page.html", "<!DOCTYPE html> an older one");
    let page = home.run(&["trace", "report", "--html", "page.html", "the.trace"]);
    assert_eq!((page.code, page.stdout.as_str()), (Some(0), ""), "{page:?}");
    let page = std::fs::read_to_string(home.path().join("page.html")).unwrap();
    let within =
        page.split_once("id=\"report\">").and_then(|(_, rest)| rest.split_once("</script>"));
    let embedded: sheaf_trace::ReportData = serde_json::from_str(within.unwrap().0).unwrap();
    assert_eq!(embedded, report);
    assert!(!page.contains("http://") && !page.contains("https://"), "nothing is fetched");
    let csv = home.run(&["trace", "export", "--to", "csv", "the.trace"]);
    assert_eq!(csv.stdout.lines().count() as u64, 1 + report.rows);
    let darshan = home.run(&["trace", "export", "--to", "darshan", "the.trace"]);
    let written = darshan
        .stdout
        .lines()
        .find(|line| line.contains("POSIX_BYTES_WRITTEN") && line.contains("/out"));
    assert!(written.is_some_and(|line| line.contains("\t10000\t")), "{}", darshan.stdout);
    let chrome = home.run(&["trace", "export", "--to", "perfetto", "-o", "c.json", "the.trace"]);
    assert_eq!(chrome.code, Some(0), "{chrome:?}");
    let again = home.run(&["trace", "export", "--to", "perfetto", "-o", "c.json", "the.trace"]);
    assert!(again.code == Some(4) && again.stderr.contains("c.json"), "{again:?}");
    let events = std::fs::read(home.path().join("c.json")).unwrap();
    let events: serde_json::Value = serde_json::from_slice(&events).unwrap();
    let complete = events["traceEvents"].as_array().unwrap();
    let complete = complete.iter().filter(|event| event["ph"] == "X").count() as u64;
    assert_eq!(complete, report.rows);
    // Done again elsewhere, it moves the same.
    let only = home.path().canonicalize().unwrap();
    let only = only.to_str().unwrap();
    let replay =
        home.run(&["trace", "replay", "--speed", "max", "--only", only, "the.trace", "again"]);
    assert_eq!(replay.code, Some(0), "{replay:?}");
    let none = home.run(&["trace", "replay", "--only", "/no/such/place", "the.trace", "none"]);
    assert_eq!(none.code, Some(1), "{none:?}");
    let why = "nothing was done: the trace has no operation below /no/such/place that can be";
    assert!(none.stderr.contains(why), "{none:?}");
    assert_eq!(std::fs::metadata(home.path().join("again/out")).unwrap().len(), 10_000);
}

/// Sheaf's own operations stand beside those of the calls that they make.
#[test]
fn operations_of_sheaf_are_recorded_in_their_own_layers() {
    let home = Home::new();
    home.write("in", &"x".repeat(10_000));
    let sheaf = built("sheaf");
    let data = home.path().canonicalize().unwrap().join("in");
    let data = data.to_str().unwrap();
    let run = home.record(&[sheaf, "--embedded", "3", "read", data]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let plain = home.run(&["--embedded", "3", "read", data]);
    assert_eq!(run.stdout, plain.stdout);
    let mut layers: BTreeMap<(String, String), (u64, i64)> = BTreeMap::new();
    let trace = StoreReader::open(&home.path().join("the.trace")).unwrap();
    let (mut group, mut outermost) = (Vec::new(), 0);
    trace
        .read(&mut TraceNames::default(), |row, names| {
            let text = |name| String::from_utf8(names.text(name).to_vec()).unwrap();
            let sum = layers.entry((text(row.layer), text(row.op))).or_default();
            *sum = (sum.0 + 1, sum.1 + row.bytes);
            if text(row.op) == "read" && text(row.path) == data && !row.is_nested {
                outermost += row.bytes;
            }
            if text(row.layer) == "group" {
                group.push((text(row.op), text(row.path), row.errno));
            }
            Ok(())
        })
        .unwrap();
    let sum = |layer: &str, op: &str| layers.get(&(layer.to_owned(), op.to_owned())).copied();
    assert!(group.contains(&("read".to_owned(), data.to_owned(), 0)), "{group:?}");
    // All members' bytes together, at the client and at the servers.
    let of_group = sum("group", "read").expect("it reads");
    let of_servers = sum("server", "read").expect("each of them reads");
    assert_eq!((of_group.1, of_servers.1), (30_000, 30_000), "{layers:?}");
    assert_eq!(sum("server", "open").map(|sum| sum.0), Some(3), "{layers:?}");
    // Servers of the same process have read for the group, by calls: that counts once.
    assert_eq!(outermost, 30_000, "{layers:?}");
    // That there is no directory to record into is said, and keeps nobody from working.
    let mut command = home.command(&["--embedded", "1", "read", data]);
    let astray = Run::of(command.env("SHEAF_TRACE_DIR", "/nowhere").output().unwrap());
    assert_eq!(astray.code, Some(0), "{astray:?}");
    assert!(
        astray.stderr.contains("what it does itself is not recorded: /nowhere/own-"),
        "{astray:?}"
    );
}

#[test]
fn invalid_traces_are_rejected_with_a_message() {
    let home = Home::new();
    std::fs::create_dir(home.path().join("empty")).unwrap();
    home.write("text", "no trace");
    for command in ["report", "recover"] {
        let run = home.run(&["trace", command, "empty"]);
        assert!(run.code == Some(2) && run.stderr.contains("empty is no trace"), "{run:?}");
    }
    for command in [&["report"][..], &["export", "--to", "csv"], &["recover"]] {
        let mut args = vec!["trace"];
        args.extend(command);
        args.push("absent");
        let run = home.run(&args);
        assert!(run.code != Some(0) && run.stderr.contains("absent"), "{run:?}");
    }
    home.write("short", "no");
    for text in ["text", "short"] {
        let run = home.run(&["trace", "report", text]);
        let said = format!(
            "sheaf: {text} is no trace: it is no directory that sheaf trace record has made, and \
             no Parquet file of one\n"
        );
        assert_eq!((run.code, run.stdout.as_str(), run.stderr), (Some(2), "", said));
    }
}
