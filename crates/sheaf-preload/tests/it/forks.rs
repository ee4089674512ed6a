//! Children that are forked: each has a segment as soon as it has something to record, and nothing
//! is lost uncounted meanwhile.
use crate::program::{Trace, compile, succeed, traced_in};
use sheaf_recorder::IoOp;

const FORKS: &str = r#"
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static void end(pid_t child) {
    int status;
    if (waitpid(child, &status, 0) != child || status) exit(8);
}
static void *work(void *barrier) {
    pthread_barrier_wait(barrier);
    for (int i = 0; i < 100; i++) if (access("/", F_OK)) exit(9);
    return 0;
}
static void many(void) {
    pthread_t threads[8];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, 0, 8);
    for (int i = 0; i < 8; i++) pthread_create(&threads[i], 0, work, &barrier);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], 0);
}
int main(int count, char **words) {
    char *none[] = {0};
    pid_t child = fork();
    if (!child) _exit(0);
    end(child);
    child = fork();
    if (!child) execve("/bin/true", words, none);
    end(child);
    child = fork();
    if (!child) {
        dup2(1, 9);
        close(9);
        execve("/bin/true", words, none);
    }
    end(child);
    child = fork();
    if (!child) {
        child = fork();
        if (!child) many(), _exit(0);
        end(child);
        child = vfork();
        if (!child) execve("/bin/true", words, none);
        end(child);
        _exit(0);
    }
    end(child);
    if (count > 1) {
        rename(words[1], words[2]);
        child = fork();
        if (!child) access("/", F_OK), access("/", F_OK), _exit(0);
        end(child);
    }
    return 0;
}
"#;

#[test]
fn child_has_a_segment_when_it_has_something_to_record() {
    let place = tempfile::tempdir().unwrap();
    let Some(program) = compile(FORKS, &["-lpthread"], place.path()) else { return };
    let trace = Trace::new();
    succeed(&mut trace.command(&program));
    let all = trace.traced();
    let count = |at: usize, op| all[at].read.records.iter().filter(|r| r.op == Some(op)).count();
    assert_eq!(all.len(), 4, "the first, one with a descriptor, one with children, its child");
    assert_eq!(count(0, IoOp::Fork), 4);
    assert_eq!((count(1, IoOp::Dup), count(1, IoOp::Close)), (1, 1));
    // Whose segment is made first is open: both have something to record at once.
    let parent = if count(2, IoOp::Fork) == 1 { 2 } else { 3 };
    assert_eq!((count(parent, IoOp::Fork), all[parent].read.unplaced), (1, 0));
    // Threads that came while it was made are counted.
    let many = &all[5 - parent].read;
    assert_eq!(many.records.len() as u64 + many.lost + many.unplaced, 800);
    assert_eq!(all[2].command, all[0].command);
}

#[test]
fn child_without_a_segment_is_counted_by_its_parent() {
    let place = tempfile::tempdir().unwrap();
    let Some(program) = compile(FORKS, &["-lpthread"], place.path()) else { return };
    let trace = Trace::new();
    let (from, to) = (trace.directory.path().join("here"), trace.directory.path().join("gone"));
    std::fs::create_dir(&from).unwrap();
    succeed(trace.command(&program).env("SHEAF_TRACE_DIR", &from).arg(&from).arg(&to));
    let all = traced_in(&to);
    assert_eq!((all.len(), all[0].read.unplaced), (4, 2));
}

/// Parent and child write by turns of the machine, each into a file of its own.
const UNTOLD: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
static char stack[1 << 20];
static int work(void *name) {
    int fd = open(name, O_CREAT | O_TRUNC | O_WRONLY, 0644);
    for (int i = 0; i < 500; i++) if (write(fd, "0123456789", 10) != 10) return 9;
    return close(fd);
}
int main(int count, char **words) {
    pid_t child;
    int status, how = SIGCHLD;
    if (access("/", F_OK)) return 7;
    if (!strcmp(words[1], "_Fork")) child = _Fork();
    else if (!strcmp(words[1], "fork call")) child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    else if (!strcmp(words[1], "clone")) child = clone(work, stack + sizeof stack, how, "child");
    else child = clone(work, stack + sizeof stack, how | CLONE_VM | CLONE_FILES, "child");
    if (child < 0) return 8;
    if (!child) _exit(work("child"));
    work("parent");
    return waitpid(child, &status, 0) != child || status;
}
"#;

#[test]
fn children_of_which_the_library_is_not_told_have_segments() {
    let place = tempfile::tempdir().unwrap();
    let Some(program) = compile(UNTOLD, &[], place.path()) else { return };
    for how in ["_Fork", "fork call", "clone"] {
        let trace = Trace::new();
        succeed(trace.command(&program).arg(how).current_dir(place.path()));
        let all = trace.traced();
        assert_eq!(all.len(), 2, "{how}");
        let of = |name| {
            let (at, sums): (Vec<_>, Vec<_>) = (0..2)
                .map(|at| (at, all[at].sum(IoOp::Write, name)))
                .filter(|(_, sum)| sum.0 > 0)
                .unzip();
            assert_eq!(sums, [(500, 0, 5000)], "{how} {name}");
            at[0]
        };
        assert_eq!((of("/parent"), of("/child")), (0, 1), "{how}");
        assert_eq!((all[0].read.unplaced, all[1].read.unplaced), (0, 0), "{how}");
    }
}

/// Such a child has no segment of its own: what it does is counted, and takes nothing of its parent's.
#[test]
fn child_on_its_parent_s_memory_leaves_its_records_whole() {
    let place = tempfile::tempdir().unwrap();
    let Some(program) = compile(UNTOLD, &[], place.path()) else { return };
    let trace = Trace::new();
    succeed(trace.command(&program).arg("memory").current_dir(place.path()));
    let all = trace.traced();
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].sum(IoOp::Write, "/parent"), (500, 0, 5000));
    assert_eq!((all[0].sum(IoOp::Write, "/child").0, all[0].read.unplaced), (0, 502));
}
