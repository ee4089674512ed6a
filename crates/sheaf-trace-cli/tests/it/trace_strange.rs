//! `sheaf trace record` of processes that are hard to follow: of other namespaces, without a main thread, and
//! those that the program leaves behind.
use crate::trace::{TraceHome as _, sums};
use sheaf_testing::home::{Home, Run};
use std::process::Command;
use std::time::{Duration, Instant};

/// Writes into the file so often; each takes a while. `thread`: in a thread that outlives the main one;
/// `daemon`: in a process that outlives the program.
const SOURCE: &str = r#"
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static char **words;
static void *act(void *nothing) {
    int fd = open(words[1], O_CREAT | O_TRUNC | O_WRONLY, 0644);
    for (int i = atoi(words[2]); i > 0; i--) {
        if (write(fd, "0123456789", 10) != 10) _exit(9);
        usleep(1000);
    }
    close(fd);
    return 0;
}
int main(int count, char **of) {
    words = of;
    if (!strcmp(of[3], "thread")) {
        pthread_t thread;
        pthread_create(&thread, 0, act, 0);
        pthread_exit(0);
    }
    if (!strcmp(of[3], "daemon")) {
        if (fork()) return 0;
        setsid();
        if (fork()) return 0;
        usleep(300000);
    }
    act(0);
    return 0;
}
"#;
const WRITES: u64 = 400;

/// A home with the program in it, where there is a compiler.
fn home() -> Option<Home> {
    let home = Home::new();
    let source = home.write("slow.c", SOURCE);
    let made = Command::new("cc")
        .args(["-w", "-pthread", "-o", "slow"])
        .arg(source)
        .current_dir(home.path())
        .output();
    if made.is_ok_and(|made| made.status.success()) {
        return Some(home);
    }
    sheaf_testing::skipped("no cc here makes programs");
    None
}

/// That the trace has all that was written.
fn check_whole(home: &Home, run: &Run) {
    assert_eq!(run.code, Some(0), "{run:?}");
    let sums = sums(&home.path().join("the.trace"), "/out");
    assert_eq!(sums.get("write"), Some(&(WRITES, 10 * WRITES as i64)), "{sums:?} {run:?}");
    let info = home.info();
    assert_eq!((info.lost, info.still_run), (0, 0), "{run:?}");
}

#[test]
fn process_of_another_pid_namespace_is_recorded_to_its_end() {
    let Some(home) = home() else { return };
    let own = std::fs::read_link("/proc/self/ns/pid").unwrap();
    for unshare in [&["unshare", "-pf"][..], &["unshare", "-Urpf", "--mount-proc"]] {
        let tried = Command::new(unshare[0]).args(&unshare[1..]).arg("true").output();
        if !tried.is_ok_and(|tried| tried.status.success()) {
            sheaf_testing::skipped(&format!("{unshare:?} makes no namespace here"));
            continue;
        }
        let writes = WRITES.to_string();
        let run = home.record(&[unshare, &["./slow", "out", &writes, "here"]].concat());
        check_whole(&home, &run);
        std::fs::remove_dir_all(home.path().join("the.trace")).unwrap();
    }
    assert_eq!(own, std::fs::read_link("/proc/self/ns/pid").unwrap());
}

#[test]
fn process_whose_main_thread_has_ended_is_recorded_to_its_end() {
    let Some(home) = home() else { return };
    let run = home.record(&["./slow", "out", &WRITES.to_string(), "thread"]);
    check_whole(&home, &run);
}

#[test]
fn process_that_outlives_the_program_is_waited_for() {
    let Some(home) = home() else { return };
    let record = |wait: &str| {
        let begin = Instant::now();
        let words = ["trace", "record", "-o", "the.trace", "--wait", wait, "--", "./slow", "out"];
        (home.run(&[&words, &[&WRITES.to_string()[..], "daemon"][..]].concat()), begin.elapsed())
    };
    let (run, _) = record("60");
    check_whole(&home, &run);
    std::fs::remove_dir_all(home.path().join("the.trace")).unwrap();
    // It sleeps for longer than this.
    let (run, took) = record("0.01");
    assert!(home.info().still_run == 1 && took < Duration::from_secs(60), "{run:?}");
    assert!(run.stderr.contains("a process goes on"), "{run:?}");
}

/// Opens so many files that have names of some length, all at once, after the recorder has begun to look seldom.
const BURST: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
int main(int count, char **of) {
    char path[600], block[100];
    const char *within = "a-directory-with-a-name-that-is-not-short/another-one-below-it";
    usleep(300000);
    for (int i = 0; i < atoi(of[2]); i++) {
        snprintf(path, sizeof path, "%s/%s/file-number-%07d.data", of[1], within, i);
        int fd = open(path, O_RDONLY);
        if (fd < 0 || read(fd, block, 100) != 100 || close(fd) != 0) return 2;
    }
    return 0;
}
"#;
const BURST_FILES: usize = 5000;

#[test]
fn names_of_many_files_at_once_are_kept() {
    let home = Home::new();
    let source = home.write("burst.c", BURST);
    let cc = ["-w", "-o", "burst"];
    let made = Command::new("cc").args(cc).arg(source).current_dir(home.path()).output();
    if !made.is_ok_and(|made| made.status.success()) {
        return sheaf_testing::skipped("no cc here makes programs");
    }
    let within = "a-directory-with-a-name-that-is-not-short/another-one-below-it";
    for number in 0..BURST_FILES {
        home.write(&format!("{within}/file-number-{number:07}.data"), &"x".repeat(100));
    }
    let at = home.path().to_str().unwrap().to_owned();
    // With room for few records, most names are lost: each such file is one of its own, and none a pipe.
    for (records, is_all) in [("65536", true), ("2048", false)] {
        let burst = ["./burst", &at, &BURST_FILES.to_string()];
        let options = ["trace", "record", "-o", "the.trace", "--records", records, "--"];
        let run = home.run(&[&options[..], &burst].concat());
        assert_eq!(run.code, Some(0), "{run:?}");
        let (named, info) = (sums(&home.path().join("the.trace"), ".data"), home.info());
        let reads = named.get("read").copied().unwrap_or_default();
        let report = home.run(&["trace", "report", "--json", "the.trace"]);
        assert_eq!(report.code, Some(0), "{report:?}");
        if is_all && info.lost == 0 {
            assert_eq!(info.names_lost, 0, "{run:?}");
            assert_eq!(reads, (BURST_FILES as u64, 100 * BURST_FILES as i64), "{run:?}");
        }
        if info.names_lost > 0 {
            assert!(report.stdout.contains("(name lost)"), "{records}: {}", report.stdout);
        }
        assert!(!report.stdout.contains("(pipes and sockets)"), "{records}: {}", report.stdout);
        std::fs::remove_dir_all(home.path().join("the.trace")).unwrap();
    }
}
