//! What programs do at the edges of memory, and to each other's descriptors.
use crate::program::{Trace, compile, succeed};
use sheaf_recorder::IoOp;

/// A path without an end, right before memory that is not there.
const ENDLESS: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
int main(void) {
    char *memory = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (munmap(memory + 4096, 4096)) return 1;
    struct stat st;
    for (int i = 0; i < 2; i++) {
        memset(memory, i ? 'x' : '/', 4096);
        int came = open(memory, O_RDONLY);
        printf("%d %d\n", came, errno);
        came = stat(memory, &st);
        printf("%d %d\n", came, errno);
        came = rename("here", memory);
        printf("%d %d\n", came, errno);
        came = symlink(memory, "there");
        printf("%d %d\n", came, errno);
    }
    return 0;
}
"#;

#[test]
fn paths_without_an_end_are_read_as_far_as_the_kernel_does() {
    let place = tempfile::tempdir().unwrap();
    let Some(program) = compile(ENDLESS, &[], place.path()) else { return };
    let trace = Trace::new();
    let output = succeed(trace.command(program).current_dir(place.path()));
    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!(told, "-1 36\n".repeat(8), "ENAMETOOLONG");
    let all = trace.traced();
    let of = |op| all[0].read.records.iter().filter(|one| one.op == Some(op)).count();
    assert_eq!([IoOp::Open, IoOp::Stat, IoOp::Rename, IoOp::SymLink].map(of), [2; 4]);
    assert_eq!(all[0].read.names_lost, 8);
}

/// Threads that open, write and close files of their own, whose descriptors are each other's at once.
const TURNS: &str = r#"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static void *work(void *number) {
    char name[16];
    snprintf(name, sizeof name, "f%ld", (long)number);
    for (int i = 0; i < 3000; i++) {
        int fd = open(name, O_WRONLY | O_CREAT, 0600);
        if (write(fd, "x", 1) != 1 || close(fd)) return (void *)1;
    }
    return 0;
}
int main(void) {
    pthread_t threads[4];
    for (long i = 0; i < 4; i++) pthread_create(&threads[i], 0, work, (void *)i);
    for (int i = 0; i < 4; i++) { void *bad; pthread_join(threads[i], &bad); if (bad) return 1; }
    return 0;
}
"#;

#[test]
fn file_that_is_closed_is_no_other_thread_s() {
    let place = tempfile::tempdir().unwrap();
    let Some(program) = compile(TURNS, &["-lpthread"], place.path()) else { return };
    let trace = Trace::new();
    succeed(trace.command(program).current_dir(place.path()));
    let all = trace.traced();
    assert_eq!((all[0].read.lost, all[0].read.unplaced), (0, 0));
    for file in ["/f0", "/f1", "/f2", "/f3"] {
        for (op, bytes) in [(IoOp::Open, 0), (IoOp::Write, 3000), (IoOp::Close, 0)] {
            assert_eq!(all[0].sum(op, file), (3000, 0, bytes), "{} {file}", op.word());
        }
    }
}
