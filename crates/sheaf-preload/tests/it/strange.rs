//! Programs with filters of system calls, jumps out of signal handlers, work at the end of threads, and lines with zeros.
use crate::program::{Trace, Traced, compile, succeed};
use sheaf_recorder::{IoOp, Reader};
use std::collections::HashMap;
use std::fs;
use std::io::Write as _;
use std::process::Stdio;
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

const HEAD: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#define WANT(x) do { if (!(x)) _exit(__LINE__ % 100 + 100); } while (0)
"#;

/// Runs a program in a directory of its own; nothing where there is no compiler.
fn traced(
    main: &str,
    options: &[&str],
    args: &[&str],
    input: &[u8],
) -> Option<(TempDir, Vec<Traced>)> {
    let place = tempfile::tempdir().unwrap();
    let program = compile(&format!("{HEAD}{main}"), options, place.path())?;
    fs::write(place.path().join("in"), input).unwrap();
    let trace = Trace::new();
    let mut command = trace.command(&program);
    succeed(command.env("SHEAF_TRACE_RECORDS", "2097152").args(args).current_dir(place.path()));
    let traced = trace.traced();
    Some((place, traced))
}

fn sum(traced: &[Traced], op: IoOp, end: &str) -> (usize, usize, u64) {
    let sums = traced.iter().map(|traced| traced.sum(op, end));
    sums.fold((0, 0, 0), |all, one| (all.0 + one.0, all.1 + one.1, all.2 + one.2))
}

fn unplaced(traced: &[Traced]) -> u64 {
    traced.iter().map(|traced| traced.read.unplaced).sum()
}

/// A filter that lets through what the program calls and nothing else, by `prctl`, or by `syscall`.
const FILTERED: &str = r#"
static void filter(int kills, int how) {
    int calls[] = {SYS_read, SYS_write, SYS_close, SYS_exit, SYS_exit_group, SYS_openat, SYS_lseek,
                   SYS_fork, SYS_clone, SYS_wait4, SYS_set_robust_list, SYS_rseq, SYS_brk, SYS_mmap,
                   SYS_munmap, SYS_fstat, SYS_newfstatat, SYS_rt_sigprocmask, SYS_gettid};
    int count = sizeof calls / sizeof *calls, at = 0;
    struct sock_filter code[64];
    code[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < count; i++) {
        code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i], 0, 1);
        code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    unsigned other = kills ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | EPERM;
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, other);
    struct sock_fprog program = {at, code};
    WANT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    /* Whoever only asks what there is. */
    WANT(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, 0) == -1 && errno == EFAULT);
    WANT(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 1 << 30, &program) == -1);
    int open_before = open("in", O_RDONLY);
    WANT(open_before >= 0 && close(open_before) == 0);
    if (how == 'p') WANT(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    else WANT(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
}
int main(int argc, char **argv) {
    int out = syscall(SYS_openat, AT_FDCWD, "out", O_CREAT | O_TRUNC | O_WRONLY, 0644);
    filter(argv[1][0] == 'k', argv[1][1]);
    /* More than a part of a ring. */
    for (int i = 0; i < 60000; i++) WANT(write(out, "0123456789", 10) == 10);
    char block[100];
    int in = open("in", O_RDONLY);
    WANT(in >= 0 && read(in, block, 100) == 5 && close(in) == 0);
    in = open("in", O_RDWR | O_APPEND);
    WANT(in >= 0 && close(in) == 0);
    int child = fork();
    if (child == 0) { for (int i = 0; i < 7; i++) write(out, "0123456789", 10); _exit(0); }
    int came;
    WANT(child > 0 && waitpid(child, &came, 0) == child && came == 0);
    return 0;
}
"#;

#[test]
fn program_with_a_filter_of_system_calls_lives_and_is_recorded() {
    for how in ["kp", "ks", "ep", "es"] {
        let Some((_place, traced)) = traced(FILTERED, &[], &[how], b"hello") else { return };
        assert_eq!(sum(&traced, IoOp::Write, "/out"), (60_000, 0, 600_000), "{how}");
        assert_eq!(sum(&traced, IoOp::Read, "/in"), (1, 0, 5), "{how}");
        assert_eq!(sum(&traced, IoOp::Open, "/in").0, 3, "{how}");
        // The child can have no buffers of its own.
        assert_eq!((traced.len(), unplaced(&traced)), (1, 7), "{how}");
    }
}

/// No call but four, and no clock.
const STRICT: &str = r#"
int main(int argc, char **argv) {
    int out = open("out", O_CREAT | O_TRUNC | O_WRONLY, 0644);
    WANT(write(out, "0123456789", 10) == 10);
    if (argv[1][0] == 'p') WANT(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0) == 0);
    else WANT(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, 0) == 0);
    for (int i = 0; i < 1000; i++) if (write(out, "0123456789", 10) != 10) syscall(SYS_exit, 1);
    syscall(SYS_exit, 0);
}
"#;

#[test]
fn program_that_may_call_almost_nothing_lives_and_is_counted() {
    for how in ["p", "s"] {
        let Some((place, traced)) = traced(STRICT, &[], &[how], b"") else { return };
        assert_eq!(fs::metadata(place.path().join("out")).unwrap().len(), 10_010, "{how}");
        assert_eq!(sum(&traced, IoOp::Write, "/out"), (1, 0, 10), "{how}");
        assert_eq!(unplaced(&traced), 1000, "{how}");
    }
}

/// Jumps out of a handler that comes at any time; and within one, on a stack of its own or not.
const JUMPS: &str = r#"
static sigjmp_buf back;
static volatile int jumps;
static int in;
static void leave(int number) { jumps++; siglongjmp(back, 1); }
static void stay(int number) {
    char block[16];
    static sigjmp_buf here;
    jumps++;
    if (sigsetjmp(here, 0) == 0) longjmp(here, 1);
    WANT(pread(in, block, 16, 0) == 16);
}
int main(int argc, char **argv) {
    struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    static char stack[1 << 16];
    stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction act = {.sa_handler = argv[1][0] == 'l' ? leave : stay};
    char block[64];
    volatile long count = 0;
    in = open("in", O_RDONLY);
    if (argv[1][1] == 'o') { act.sa_flags = SA_ONSTACK; WANT(sigaltstack(&own, 0) == 0); }
    sigaction(SIGALRM, &act, 0);
    if (sigsetjmp(back, 1) == 0) setitimer(ITIMER_REAL, &often, 0);
    while (jumps < 500) { pread(in, block, 64, 0); count++; }
    setitimer(ITIMER_REAL, &never, 0);
    signal(SIGALRM, SIG_IGN);
    for (int i = 0; i < 5000; i++) WANT(pread(in, block, 64, 128) == 64);
    printf("%ld\n", count);
    return 0;
}
"#;

#[test]
fn jump_out_of_a_signal_handler_leaves_no_thread_unseen() {
    for how in ["l-", "lo", "s-", "so"] {
        let Some((_place, traced)) = traced(JUMPS, &[], &[how], &[b'x'; 512]) else { return };
        let [one] = &traced[..] else { panic!("one process") };
        let reads = one.of(IoOp::Read, "/in");
        let later = reads.iter().filter(|read| read.offset == 128).count();
        assert_eq!(later, 5000, "{how}: {} in all", reads.len());
        assert!(reads.iter().all(|read| read.offset != 128 || read.bytes == 64), "{how}");
        if how.starts_with('s') {
            let in_handler = reads.iter().filter(|read| read.bytes == 16).count() as u64;
            assert_eq!(in_handler + one.read.unplaced, 500, "{how}");
        }
    }
}

/// Each thread's key writes what was gathered, when the thread ends.
const KEYS: &str = r#"
static int out;
static pthread_key_t key;
static void at_end(void *value) {
    for (int i = 0; i < 5; i++) WANT(write(out, "hello world\n", 12) == 12);
    if (value == (void *)2) pthread_setspecific(key, (void *)1);
}
static void *work(void *number) {
    pthread_setspecific(key, (void *)((long)number % 2 + 1));
    WANT(write(out, "x", 1) == 1);
    return 0;
}
int main(int argc, char **argv) {
    out = open("out", O_CREAT | O_TRUNC | O_WRONLY, 0644);
    pthread_key_create(&key, at_end);
    for (long i = 0; i < 400; i++) {
        pthread_t thread;
        WANT(pthread_create(&thread, 0, work, (void *)i) == 0);
        pthread_join(thread, 0);
    }
    return 0;
}
"#;

/// So many threads that do nothing but at their end, more than there are rings.
const ENDS: &str = r#"
static int out;
static pthread_key_t key;
static void at_end(void *value) { WANT(write(out, "hello world\n", 12) == 12); }
static void *work(void *number) { pthread_setspecific(key, (void *)1); return 0; }
int main(int argc, char **argv) {
    out = open("out", O_CREAT | O_TRUNC | O_WRONLY, 0644);
    pthread_key_create(&key, at_end);
    for (long i = 0; i < 2000; i++) {
        pthread_t thread;
        WANT(pthread_create(&thread, 0, work, (void *)i) == 0);
        pthread_join(thread, 0);
    }
    return 0;
}
"#;

#[test]
fn threads_that_begin_to_record_at_their_end_leave_their_rings() {
    let Some((_place, traced)) = traced(ENDS, &["-lpthread"], &[], b"") else { return };
    let (count, ..) = sum(&traced, IoOp::Write, "/out");
    // A thread may be there for a moment after it was joined.
    assert_eq!(count as u64 + unplaced(&traced), 2000);
    assert!(unplaced(&traced) < 100, "{} were not recorded", unplaced(&traced));
}

#[test]
fn what_keys_do_at_the_end_of_threads_is_recorded() {
    let Some((_place, traced)) = traced(KEYS, &["-lpthread"], &[], b"") else { return };
    let (ends, texts) = (400 + 200, 5);
    let bytes = (ends * texts * 12 + 400) as u64;
    assert_eq!(sum(&traced, IoOp::Write, "/out"), (ends * texts + 400, 0, bytes));
    assert_eq!(unplaced(&traced), 0);
}

/// Reads lines, words and numbers to the end.
const LINES: &str = r#"
int main(int argc, char **argv) {
    static char line[100000];
    long number, count = 0;
    int size = atoi(argv[2]);
    FILE *file = fopen("in", "r");
    if (argv[3][0] == 'u') setvbuf(file, 0, _IONBF, 0);
    switch (argv[1][0]) {
    case 'l': memset(line, argv[3][1], sizeof line); while (fgets(line, size, file)) count++; break;
    case 'w': while (getw(file) != EOF || !feof(file)) count++; break;
    case 'n': while (fscanf(file, "%ld", &number) == 1) count++; break;
    }
    return fclose(file);
}
"#;

/// The bytes of all reads are those of the file.
fn reads_all(input: &[u8], args: &[&str], expected: u64) {
    let Some((_place, traced)) = traced(LINES, &[], args, input) else { return };
    assert_eq!(sum(&traced, IoOp::Read, "/in").2, expected, "{args:?}");
}

#[test]
fn lines_with_zeros_count_as_long_as_they_are() {
    let plain = b"ab\0cdefghi\n".repeat(2000);
    let mixed: Vec<u8> =
        (0..40_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 28) as u8).collect();
    let unended = [&plain[..], b"\0\0end\0of\0it"].concat();
    for (name, input) in [("plain", &plain), ("mixed", &mixed), ("unended", &unended)] {
        for size in ["100", "7", "5000", "90000"] {
            for buffer in ["b-", "u-"] {
                // Without a buffer nothing but the line itself says how long it is: only where it ends as lines do.
                if name != "plain" && buffer == "u-" {
                    continue;
                }
                eprintln!("{name} {size} {buffer}");
                reads_all(input, &["l", size, buffer], input.len() as u64);
            }
        }
    }
}

#[test]
fn words_and_numbers_count_as_long_as_they_are() {
    // The last word is not whole; one says the same as the end of the file.
    let words = [&[0xff; 400][..], b"abcdefgh", b"xyz"].concat();
    reads_all(&words, &["w", "0", "b-"], 408);
    let numbers: String = (0..20_000).map(|number| format!("{}\n", number * number)).collect();
    reads_all(numbers.as_bytes(), &["n", "0", "b-"], numbers.len() as u64);
}

/// Opens many files, waits for a word, and reads the one that is open still.
const MANY_NAMES: &str = r#"
int main(int argc, char **argv) {
    char path[400], block[8];
    int last = -1;
    mkdir("a-directory-with-a-name-that-is-long-enough-to-fill-the-room-for-names-soon", 0755);
    for (int i = 0; i < 3000; i++) {
        sprintf(path, "%s/a-directory-with-a-name-that-is-long-enough-to-fill-the-room-for-names-soon/file-%04d", argv[1], i);
        last = open(path, O_CREAT | O_RDWR, 0644);
        WANT(last >= 0 && (i == 2999 || close(last) == 0));
    }
    for (int i = 0; i < 3; i++) {
        WANT(read(0, block, 1) == 1);
        WANT(pwrite(last, "0123456789", 10, 0) == 10);
    }
    return 0;
}
"#;

#[test]
fn name_that_was_lost_is_told_once_there_is_room() {
    let place = tempfile::tempdir().unwrap();
    let source = format!("{HEAD}#include <sys/stat.h>\n{MANY_NAMES}");
    let Some(program) = compile(&source, &[], place.path()) else { return };
    let trace = Trace::new();
    let mut command = trace.command(&program);
    command.env("SHEAF_TRACE_RECORDS", "8192").arg(place.path()).current_dir(place.path());
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut words = child.stdin.take().unwrap();
    let segment = loop {
        let found = fs::read_dir(trace.directory.path()).unwrap().next();
        if let Some(found) = found.map(|entry| entry.unwrap().path())
            && let Ok(reader) = Reader::open(&found)
            && reader.waiting() >= 5999
        {
            break found;
        }
        thread::sleep(Duration::from_millis(5));
    };
    let mut reader = Reader::open(&segment).unwrap();
    let mut names = HashMap::new();
    let mut writes = Vec::new();
    for round in 0..4 {
        thread::sleep(Duration::from_millis(50));
        let read = reader.take_some(usize::MAX);
        reader.release();
        assert!(read.lost == 0 && read.names_lost > 0, "{round}: {} names", read.names.len());
        names.extend(read.names);
        writes.extend(read.records.into_iter().filter(|record| record.op == Some(IoOp::Write)));
        if round < 3 {
            words.write_all(b"x").unwrap();
        }
    }
    assert!(child.wait().unwrap().success());
    assert_eq!(writes.len(), 3);
    let name = names.get(&writes[0].file).expect("the file has its name");
    assert!(name.ends_with(b"file-2999") && writes.iter().all(|one| one.file == writes[0].file));
}
