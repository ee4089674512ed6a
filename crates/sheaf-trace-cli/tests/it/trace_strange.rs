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
