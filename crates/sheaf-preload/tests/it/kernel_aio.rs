//! Asynchronous I/O is recorded when its program is told of its end, with what it moved, and copies with both files.
use crate::program::{Trace, compile, succeed};
use sheaf_recorder::{IoOp, flag};

const KERNEL: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#define WANT(x) do { if (!(x)) _exit(__LINE__); } while (0)
static aio_context_t context;
static char block[64][512];
/* Others wait for what this thread has asked for. */
static void *wait_for(void *count) {
    struct io_event events[8];
    for (long left = (long)count; left > 0; ) {
        long came = syscall(SYS_io_getevents, context, 1, 8, events, 0);
        WANT(came > 0);
        left -= came;
    }
    return 0;
}
int main(void) {
    int in = open("in", O_RDONLY), out = open("out", O_CREAT | O_TRUNC | O_WRONLY, 0644);
    WANT(in >= 0 && out >= 0 && syscall(SYS_io_setup, 64, &context) == 0);
    pthread_t thread;
    pthread_create(&thread, 0, wait_for, (void *)64L);
    for (int i = 0; i < 64; i++) {
        /* On the stack, and gone when it is submitted. */
        struct iocb one = {0}, *all[2] = {&one, 0};
        struct iocb *kept = malloc(sizeof *kept);
        all[0] = kept;
        one.aio_fildes = i % 2 ? in : out;
        one.aio_lio_opcode = i % 2 ? IOCB_CMD_PREAD : IOCB_CMD_PWRITE;
        one.aio_buf = (unsigned long)block[i];
        one.aio_nbytes = 512;
        one.aio_offset = i / 2 * 512;
        memcpy(kept, &one, sizeof one);
        WANT(syscall(SYS_io_submit, context, 1, all) == 1);
    }
    pthread_join(thread, 0);
    /* One that fails, and one that is not taken. */
    struct iocb bad = {0}, *list[1] = {&bad};
    bad.aio_fildes = out;
    bad.aio_lio_opcode = IOCB_CMD_PREAD;
    bad.aio_nbytes = 512;
    WANT(syscall(SYS_io_submit, context, 1, list) == -1);
    /* What is not there the kernel does not read, nor does anybody else. */
    WANT(syscall(SYS_io_submit, context, 1, (void *)8) == -1 && errno == EFAULT);
    list[0] = (void *)8;
    WANT(syscall(SYS_io_submit, context, 0x7fffffffffffffffL, list) == -1 && errno == EFAULT);
    WANT(syscall(SYS_io_getevents, context, 1, 1, (void *)8, &(struct timespec){0}) <= 0);
    WANT(syscall(SYS_getpid) == getpid());
    return 0;
}
"#;

#[test]
fn kernel_aio_is_recorded_at_its_end() {
    let place = tempfile::tempdir().unwrap();
    let Some(program) = compile(KERNEL, &["-lpthread"], place.path()) else { return };
    std::fs::write(place.path().join("in"), vec![b'x'; 32 * 512]).unwrap();
    let trace = Trace::new();
    succeed(trace.command(&program).current_dir(place.path()));
    let [traced] = &trace.traced()[..] else { panic!("one process") };
    assert_eq!(traced.sum(IoOp::KernelRead, "/in"), (32, 0, 32 * 512));
    assert_eq!(traced.sum(IoOp::KernelWrite, "/out"), (32, 0, 32 * 512));
    let mut offsets: Vec<u64> =
        traced.of(IoOp::KernelWrite, "/out").iter().map(|record| record.offset).collect();
    offsets.sort_unstable();
    assert!(offsets.into_iter().eq((0..32).map(|at| at * 512)));
    let submits =
        traced.read.records.iter().filter(|record| record.op == Some(IoOp::AsyncSubmit)).count();
    assert_eq!((submits, traced.read.unplaced), (67, 0));
}

const COPIES: &str = r#"
#define _GNU_SOURCE
#include <aio.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <unistd.h>
#define WANT(x) do { if (!(x)) _exit(__LINE__); } while (0)
int main(void) {
    int in = open("in", O_RDONLY), out = open("out", O_CREAT | O_TRUNC | O_RDWR, 0644), ends[2];
    WANT(copy_file_range(in, 0, out, 0, 4096, 0) == 4096);
    WANT(sendfile(out, in, 0, 2048) == 2048);
    WANT(pipe(ends) == 0 && splice(in, 0, ends[1], 0, 1024, 0) == 1024);
    WANT(splice(ends[0], 0, out, 0, 1024, 0) == 1024);
    static char block[512];
    struct aiocb one = {0};
    const struct aiocb *all[1] = {&one};
    one.aio_fildes = out;
    one.aio_buf = block;
    one.aio_nbytes = sizeof block;
    for (int i = 0; i < 4; i++) {
        WANT((i % 2 ? aio_read(&one) : aio_write(&one)) == 0);
        while (aio_error(&one) == 115) aio_suspend(all, 1, 0);
        WANT(aio_return(&one) == sizeof block);
    }
    return 0;
}
"#;

#[test]
fn copies_name_both_files_and_posix_aio_its_bytes() {
    let place = tempfile::tempdir().unwrap();
    let Some(program) = compile(COPIES, &["-lrt"], place.path()) else { return };
    std::fs::write(place.path().join("in"), vec![b'x'; 16384]).unwrap();
    let trace = Trace::new();
    succeed(trace.command(&program).current_dir(place.path()));
    let [traced] = &trace.traced()[..] else { panic!("one process") };
    let copied: Vec<(IoOp, String, String, u64)> = traced
        .read
        .records
        .iter()
        .filter_map(|record| Some((record.op.filter(|op| op.copies())?, record)))
        .map(|(op, record)| {
            assert!(record.flags & flag::NAMED != 0, "{record:?}");
            let name = |number: u64| {
                let name = String::from_utf8_lossy(&traced.read.names[&number]).into_owned();
                name.rsplit('/').next().unwrap().split(':').next().unwrap().to_owned()
            };
            (op, name(record.file), name(record.asked), record.bytes)
        })
        .collect();
    let of = |op, from: &str, to: &str, bytes| (op, from.to_owned(), to.to_owned(), bytes);
    let expected = [
        of(IoOp::Copy, "in", "out", 4096),
        of(IoOp::Sendfile, "in", "out", 2048),
        of(IoOp::Splice, "in", "pipe", 1024),
        of(IoOp::Splice, "pipe", "out", 1024),
    ];
    assert_eq!(copied, expected);
    assert_eq!(traced.sum(IoOp::AsyncWrite, "/out"), (2, 0, 1024));
    assert_eq!(traced.sum(IoOp::AsyncRead, "/out"), (2, 0, 1024));
}
