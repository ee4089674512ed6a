//! A known mix of calls comes out as it was made, to the call and the byte.
use crate::program::{Trace, compile, succeed};
use sheaf_recorder::{IoOp, flag};

const MIX: &str = r#"
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64
#include <aio.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#define WANT(x) do { if (!(x)) { perror(#x); exit(9); } } while (0)

int main(void) {
    char buffer[8192];
    memset(buffer, 'x', sizeof buffer);
    int fd = open("plain", O_RDWR | O_CREAT, 0640);
    WANT(fd >= 0);
    struct stat st;
    WANT(fstat(fd, &st) == 0 && (st.st_mode & 0777) == 0640);
    for (int i = 0; i < 100; i++) WANT(write(fd, buffer, 512) == 512);
    WANT(lseek(fd, 0, SEEK_SET) == 0);
    for (int i = 0; i < 7; i++) WANT(read(fd, buffer, 8192) == (i < 6 ? 8192 : 51200 - 6 * 8192));
    WANT(read(fd, buffer, 8192) == 0);
    WANT(pwrite(fd, buffer, 100, 5LL << 30) == 100);
    WANT(pread(fd, buffer, 100, 5LL << 30) == 100);
    struct iovec pieces[2] = {{buffer, 10}, {buffer, 20}};
    WANT(pwritev(fd, pieces, 2, 1000) == 30 && preadv(fd, pieces, 2, 1000) == 30);
    WANT(preadv2(fd, pieces, 2, 1000, 0) == 30 && pwritev2(fd, pieces, 2, 1000, 0) == 30);
    WANT(read(-1, buffer, 10) == -1 && errno == EBADF);
    WANT(pread(fd, buffer, 10, -5) == -1 && errno == EINVAL);
    WANT(fsync(fd) == 0 && fdatasync(fd) == 0);
    WANT(ftruncate(fd, 51200) == 0);
    void *memory = mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 0);
    WANT(memory != MAP_FAILED && msync(memory, 4096, MS_SYNC) == 0 && munmap(memory, 4096) == 0);
    memory = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    WANT(memory != MAP_FAILED && munmap(memory, 4096) == 0);

    WANT(mkdir("sub", 0700) == 0 && mkdir("sub", 0700) == -1 && errno == EEXIST);
    WANT(chdir("sub") == 0);
    int other = open("./copy", O_RDWR | O_CREAT | O_TRUNC, 0600);
    WANT(other >= 0);
    loff_t from = 0;
    WANT(copy_file_range(fd, &from, other, 0, 4096, 0) == 4096);
    off_t at = 100;
    WANT(sendfile(other, fd, &at, 1000) == 1000);
    WANT(close(other) == 0 && close(other) == -1 && errno == EBADF);
    WANT(chdir("..") == 0);
    for (int i = 0; i < 5; i++) WANT(stat("plain", &st) == 0);
    WANT(lstat("sub/copy", &st) == 0 && st.st_size == 5096);
    WANT(fstatat(AT_FDCWD, "sub/copy", &st, 0) == 0);
    WANT(stat("nothing", &st) == -1 && errno == ENOENT);
    struct statx sx;
    WANT(statx(AT_FDCWD, "plain", 0, STATX_SIZE, &sx) == 0 && sx.stx_size == 51200);
    WANT(access("plain", R_OK) == 0);
    WANT(rename("sub/copy", "sub/moved") == 0 && link("sub/moved", "sub/linked") == 0);
    WANT(symlink("moved", "sub/soft") == 0 && readlink("sub/soft", buffer, 100) == 5);
    DIR *directory = opendir("sub");
    int entries = 0;
    while (readdir(directory)) entries++;
    WANT(entries == 5 && closedir(directory) == 0);
    WANT(unlink("sub/moved") == 0 && unlink("sub/linked") == 0 && unlink("sub/soft") == 0);
    WANT(rmdir("sub") == 0);

    FILE *file = fopen("stream", "w+");
    WANT(file);
    for (int i = 0; i < 1000; i++) WANT(fwrite(buffer, 8, 64, file) == 64);
    WANT(fprintf(file, "%d %s %.1f %d %d %d %d %d\n", 1, "two", 3.0, 4, 5, 6, 7, 8) == 20);
    WANT(fseek(file, 0, SEEK_SET) == 0);
    for (int i = 0; i < 10; i++) WANT(fread(buffer, 1, 1000, file) == 1000);
    WANT(fgetc(file) == 'x' && ungetc('y', file) == 'y' && fgetc(file) == 'y');
    WANT(fclose(file) == 0);

    struct aiocb request = {0};
    request.aio_fildes = fd;
    request.aio_buf = buffer;
    request.aio_nbytes = 300;
    request.aio_offset = 200;
    WANT(aio_read(&request) == 0);
    const struct aiocb *one = &request;
    WANT(aio_suspend(&one, 1, 0) == 0 && aio_return(&request) == 300);

    int shared = open("/dev/shm/sheaf-preload-mix", O_RDWR | O_CREAT | O_TRUNC, 0600);
    WANT(shared >= 0 && write(shared, buffer, 77) == 77 && close(shared) == 0);
    WANT(unlink("/dev/shm/sheaf-preload-mix") == 0);
    int null = open("/dev/null", O_WRONLY);
    WANT(write(null, buffer, 5) == 5);
    int twin = dup(null);
    WANT(twin >= 0 && write(twin, buffer, 6) == 6 && close(twin) == 0 && close(null) == 0);
    WANT(close(fd) == 0);
    if (fork() == 0) {
        fd = open("plain", O_RDONLY);
        WANT(read(fd, buffer, 11) == 11);
        _exit(0);
    }
    int status;
    WANT(wait(&status) > 0 && status == 0);
    if (vfork() == 0) {
        execl("/bin/cat", "cat", "plain", (char *)0);
        _exit(1);
    }
    WANT(wait(&status) > 0 && status == 0);
    WANT(stat("plain", &st) == 0);
    return 0;
}
"#;

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario")]
fn known_mix_is_recorded_as_it_was() {
    let place = tempfile::tempdir().unwrap();
    let Some(program) = compile(MIX, &["-lrt"], place.path()) else { return };
    let trace = Trace::new();
    let output = succeed(trace.command(program).current_dir(place.path()));
    assert_eq!(output.stdout.len(), 51_200, "the child that was another program wrote it");
    let all = trace.traced();
    let traced = &all[0];
    assert_eq!((traced.read.lost, traced.read.unplaced, traced.read.names_lost), (0, 0, 0));
    for (op, file, calls, failed, bytes) in [
        (IoOp::Open, "/plain", 1, 0, 0),
        (IoOp::Write, "/plain", 103, 0, 51_200 + 100 + 30 + 30),
        (IoOp::Read, "/plain", 12, 1, 51_200 + 100 + 30 + 30),
        (IoOp::Seek, "/plain", 1, 0, 0),
        (IoOp::Sync, "/plain", 2, 0, 0),
        (IoOp::Truncate, "/plain", 1, 0, 0),
        (IoOp::Map, "/plain", 1, 0, 0),
        (IoOp::SyncMap, "/plain", 1, 0, 0),
        (IoOp::Unmap, "/plain", 1, 0, 0),
        (IoOp::Stat, "/plain", 8, 0, 0),
        (IoOp::Stat, "/sub/copy", 2, 0, 0),
        (IoOp::Stat, "/nothing", 1, 1, 0),
        (IoOp::Access, "/plain", 1, 0, 0),
        (IoOp::MakeDirectory, "/sub", 2, 1, 0),
        (IoOp::ChangeDirectory, "/sub", 1, 0, 0),
        (IoOp::Open, "/sub/copy", 1, 0, 0),
        (IoOp::Copy, "/plain", 1, 0, 4096),
        (IoOp::Sendfile, "/plain", 1, 0, 1000),
        (IoOp::Rename, "/sub/copy", 1, 0, 0),
        (IoOp::Link, "/sub/moved", 1, 0, 0),
        (IoOp::SymLink, "/sub/soft", 1, 0, 0),
        (IoOp::ReadLink, "/sub/soft", 1, 0, 5),
        (IoOp::OpenDirectory, "/sub", 1, 0, 0),
        (IoOp::ReadDirectory, "/sub", 6, 0, 0),
        (IoOp::CloseDirectory, "/sub", 1, 0, 0),
        (IoOp::Unlink, "/sub/soft", 1, 0, 0),
        (IoOp::RemoveDirectory, "/sub", 1, 0, 0),
        (IoOp::Open, "/stream", 1, 0, 0),
        (IoOp::Write, "/stream", 1001, 0, 512_000 + 20),
        (IoOp::Read, "/stream", 12, 0, 10_002),
        (IoOp::Seek, "/stream", 1, 0, 0),
        (IoOp::Close, "/stream", 1, 0, 0),
        (IoOp::AsyncSubmit, "/plain", 1, 0, 0),
        (IoOp::AsyncRead, "/plain", 1, 0, 300),
        (IoOp::Write, "/dev/shm/sheaf-preload-mix", 1, 0, 77),
        (IoOp::Write, "/dev/null", 2, 0, 11),
        (IoOp::Dup, "/dev/null", 1, 0, 0),
        (IoOp::Close, "/dev/null", 2, 0, 0),
        (IoOp::Close, "/plain", 1, 0, 0),
        (IoOp::Close, "/sub/copy", 1, 0, 0),
    ] {
        assert_eq!(traced.sum(op, file), (calls, failed, bytes), "{} {file}", op.word());
    }
    for (op, file, new) in [
        (IoOp::Rename, "/sub/copy", "/sub/moved"),
        (IoOp::Link, "/sub/moved", "/sub/linked"),
        (IoOp::SymLink, "/sub/soft", "moved"),
    ] {
        let [one] = traced.of(op, file)[..] else { panic!("{}", op.word()) };
        assert_ne!(one.flags & flag::NAMED, 0, "{}", op.word());
        let name = String::from_utf8_lossy(&traced.read.names[&one.asked]).into_owned();
        assert!(name.ends_with(new), "{}: {name}", op.word());
    }
    let far: Vec<u64> = traced.of(IoOp::Write, "/plain")[100..].iter().map(|r| r.offset).collect();
    assert_eq!(far, [5 << 30, 1000, 1000]);
    let reads = traced.of(IoOp::Read, "/plain");
    let in_turn: Vec<u64> = reads[..8].iter().map(|record| record.offset).collect();
    assert_eq!(in_turn, [0, 8192, 16384, 24576, 32768, 40960, 49152, 51200]);
    assert!(reads[..8].iter().all(|record| record.flags & flag::PLACED != 0));
    let errors: Vec<u64> = traced
        .read
        .records
        .iter()
        .filter(|record| record.flags & flag::FAILED != 0)
        .map(|record| record.bytes)
        .collect();
    assert_eq!(errors, [9, 22, 17, 9, 2], "EBADF, EINVAL, EEXIST, EBADF, ENOENT");
    let child =
        all.iter().find(|other| other.pid != traced.pid && other.sum(IoOp::Read, "/plain").2 == 11);
    assert!(child.is_some(), "the child that was forked has a segment of its own");
    let other = all.iter().find(|other| other.command.starts_with("cat plain"));
    assert!(
        other.is_some_and(|cat| cat.sum(IoOp::Open, "/plain").0 == 1),
        "so has the other program"
    );
}

const THREADS: &str = r#"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include <unistd.h>
static int handled;
static int null;
static void on_alarm(int signal) {
    // Threads handle signals side by side.
    __atomic_fetch_add(&handled, 1, __ATOMIC_SEQ_CST);
    (void)!write(null, "s", 1);
}
static void *work(void *name) {
    char buffer[16];
    int zero = open("/dev/zero", O_RDONLY);
    for (int i = 0; i < 2000; i++) if (read(zero, buffer, 16) != 16) return (void *)1;
    close(zero);
    return 0;
}
int main(void) {
    null = open("/dev/null", O_WRONLY);
    signal(SIGALRM, on_alarm);
    struct itimerval often = {{0, 200}, {0, 200}};
    setitimer(ITIMER_REAL, &often, 0);
    for (int round = 0; round < 3; round++) {
        pthread_t threads[64];
        for (int i = 0; i < 64; i++) pthread_create(&threads[i], 0, work, 0);
        for (int i = 0; i < 64; i++) { void *bad; pthread_join(threads[i], &bad); if (bad) return 1; }
    }
    often.it_interval.tv_usec = often.it_value.tv_usec = 0;
    setitimer(ITIMER_REAL, &often, 0);
    printf("%d\n", __atomic_load_n(&handled, __ATOMIC_SEQ_CST));
    return 0;
}
"#;

/// Signals come in the middle of calls, and of what records them.
#[test]
fn threads_and_signals_lose_nothing_uncounted() {
    let place = tempfile::tempdir().unwrap();
    let Some(program) = compile(THREADS, &["-lpthread"], place.path()) else { return };
    let trace = Trace::new();
    let output = succeed(trace.command(program).current_dir(place.path()));
    let handled: u64 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    let all = trace.traced();
    let [traced] = &all[..] else { panic!("{} segments", all.len()) };
    const CALLS: u64 = 3 * 64 * 2002;
    let (opens, prints) = (1, 1);
    let recorded = traced.read.records.len() as u64;
    assert_eq!(
        recorded + traced.read.lost + traced.read.unplaced,
        CALLS + handled + opens + prints,
        "{} are lost, {} without a place",
        traced.read.lost,
        traced.read.unplaced
    );
    let (reads, failed, bytes) = traced.sum(IoOp::Read, "/dev/zero");
    assert!(recorded > CALLS / 4 && failed == 0 && bytes == 16 * reads as u64, "{reads}");
    let rings = traced.read.records.iter().map(|record| record.place.0).max().unwrap();
    assert!(rings <= 65, "rings of threads that have ended are taken again: {rings}");
}

/// What has no ring is counted, and how many there are can be said.
#[test]
fn threads_beyond_those_that_have_rings_are_counted() {
    let place = tempfile::tempdir().unwrap();
    let Some(program) = compile(THREADS, &["-lpthread"], place.path()) else { return };
    let trace = Trace::new();
    let mut command = trace.command(program);
    let output = succeed(command.env("SHEAF_TRACE_THREADS", "2").current_dir(place.path()));
    let handled: u64 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    let all = trace.traced();
    let read = &all[0].read;
    let recorded = read.records.len() as u64;
    assert_eq!(recorded + read.lost + read.unplaced, 3 * 64 * 2002 + handled + 2);
    assert!(read.records.iter().all(|record| record.place.0 < 2) && read.unplaced > 0);
}

const TWINS: &str = r#"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#define WANT(x) do { if (!(x)) exit(9); } while (0)
static int fd;
static void put(int to, const char *text, int len) { WANT(write(to, text, len) == len); }
static void begin(const char *name) { fd = open(name, O_RDWR | O_CREAT, 0600); WANT(fd >= 0); }
int main(void) {
    begin("moved");
    int other = dup2(fd, 50);
    close(fd);
    put(other, "abc", 3); put(other, "d", 1);
    begin("both");
    other = dup(fd);
    put(fd, "abc", 3); put(other, "de", 2); put(fd, "f", 1);
    WANT(lseek(other, 100, SEEK_SET) == 100);
    put(fd, "g", 1);
    close(fd);
    put(other, "h", 1);
    begin("three");
    int third = dup(dup(fd));
    WANT(lseek(fd, 10, SEEK_SET) == 10);
    put(third, "abc", 3); put(fd, "d", 1);
    close(fd);
    begin("child");
    if (fork() == 0) { put(fd, "abc", 3); _exit(0); }
    int status;
    wait(&status);
    WANT(lseek(fd, 20, SEEK_SET) == 20);
    put(fd, "d", 1);
    close(fd);
    begin("again");
    put(fd, "abc", 3); put(fd, "d", 1);
    return 0;
}
"#;

/// Descriptors that were made of one move together: each place is where the write was, or is not
/// told.
#[test]
fn places_of_shared_descriptors_are_right_or_not_told() {
    let place = tempfile::tempdir().unwrap();
    let Some(program) = compile(TWINS, &[], place.path()) else { return };
    let trace = Trace::new();
    succeed(trace.command(program).current_dir(place.path()));
    let all = trace.traced();
    let places = |file: &str| -> Vec<Option<u64>> {
        let of = all[0].of(IoOp::Write, file);
        of.iter().map(|one| (one.flags & flag::PLACED != 0).then_some(one.offset)).collect()
    };
    assert_eq!(places("/moved"), [Some(0), Some(3)]);
    assert_eq!(places("/both"), [0, 3, 5, 100, 101].map(Some));
    assert_eq!(places("/three"), [None, None]);
    assert_eq!(places("/child"), [None]);
    assert_eq!(places("/again"), [Some(0), Some(3)]);
}

const RETURNED: &str = r#"
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <spawn.h>
#include <stdlib.h>
#include <unistd.h>
#define WANT(x) do { if (!(x)) exit(9); } while (0)
int main(void) {
    int fd = open("file", O_RDWR | O_CREAT, 0600), ends[2];
    WANT(fd >= 0 && pipe(ends) == 0);
    errno = EXDEV;
    WANT(posix_fallocate(fd, 0, 4096) == 0);
    WANT(posix_fallocate(fd, 0, 0) == EINVAL);
    WANT(posix_fallocate64(fd, 10, -1) == EINVAL);
    WANT(posix_fallocate(ends[1], 0, 1) == ESPIPE);
    WANT(posix_fadvise(fd, 0, 100, POSIX_FADV_DONTNEED) == 0);
    WANT(posix_fadvise64(fd, 0, 0, 12345) == EINVAL);
    WANT(posix_fadvise(ends[0], 0, 0, POSIX_FADV_NORMAL) == ESPIPE);
    WANT(errno == EXDEV);
    char *words[] = {"missing", 0};
    pid_t child;
    WANT(posix_spawn(&child, "./missing", 0, 0, words, words) == ENOENT);
    glob_t found;
    errno = EXDEV;
    WANT(glob("absent", 0, 0, &found) == GLOB_NOMATCH);
    struct aiocb request = {0};
    int null = open("/dev/null", O_RDONLY);
    char byte = 'x';
    request.aio_fildes = null;
    request.aio_buf = &byte;
    request.aio_nbytes = 1;
    const struct aiocb *one = &request;
    WANT(aio_write(&request) == 0 && aio_suspend(&one, 1, 0) == 0);
    errno = EXDEV;
    WANT(aio_error(&request) == EBADF && aio_return(&request) == -1 && errno == EXDEV);
    return 0;
}
"#;

/// What functions return that set no `errno`: 18 is what that was before.
#[test]
fn errors_that_are_returned_are_recorded() {
    const OK: i32 = 0;
    const ENOENT: i32 = 2;
    const EBADF: i32 = 9;
    const EINVAL: i32 = 22;
    const ESPIPE: i32 = 29;
    let place = tempfile::tempdir().unwrap();
    let Some(program) = compile(RETURNED, &["-lrt"], place.path()) else { return };
    let trace = Trace::new();
    succeed(trace.command(program).current_dir(place.path()));
    let all = trace.traced();
    let errors = |op: IoOp| -> Vec<i32> {
        let of = all[0].read.records.iter().filter(|record| record.op == Some(op));
        of.map(|one| if one.flags & flag::FAILED != 0 { one.bytes as i32 } else { OK }).collect()
    };
    assert_eq!(errors(IoOp::Allocate), [OK, EINVAL, EINVAL, ESPIPE]);
    assert_eq!(errors(IoOp::Advise), [OK, EINVAL, ESPIPE]);
    assert_eq!(errors(IoOp::Exec), [ENOENT]);
    assert_eq!(errors(IoOp::ReadDirectory), [ENOENT]);
    assert_eq!(errors(IoOp::AsyncWait), [OK]);
    assert_eq!(errors(IoOp::AsyncWrite), [EBADF]);
}

const APPENDED: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>
#ifndef RWF_APPEND
#define RWF_APPEND 0x10
#endif
#define WANT(x) do { if (!(x)) exit(9); } while (0)
static struct iovec pieces[2] = {{"abcdef", 4}, {"ghijkl", 6}};
int main(void) {
    char buffer[10];
    struct iovec into = {buffer, 10};
    int fd = open("file", O_RDWR | O_CREAT, 0600);
    WANT(fd >= 0 && pwrite(fd, "x", 1, 99) == 1 && write(fd, "abc", 3) == 3);
    WANT(pwritev2(fd, pieces, 2, 20, 0) == 10 && write(fd, "d", 1) == 1);
    WANT(pwritev2(fd, pieces, 2, -1, 0) == 10 && write(fd, "e", 1) == 1);
    WANT(pwritev2(fd, pieces, 2, 30, RWF_APPEND) == 10 && write(fd, "f", 1) == 1);
    WANT(lseek(fd, 0, SEEK_CUR) == 16 && lseek(fd, 0, SEEK_END) == 110 && lseek(fd, 16, SEEK_SET) == 16);
    WANT(pwritev64v2(fd, pieces, 2, -1, RWF_APPEND) == 10 && write(fd, "g", 1) == 1);
    WANT(lseek(fd, 40, SEEK_SET) == 40 && write(fd, "h", 1) == 1);
    WANT(pwrite(fd, "i", 1, -1) == -1 && errno == EINVAL && write(fd, "j", 1) == 1);
    WANT(pwritev2(fd, pieces, 2, -1, RWF_APPEND | 1 << 30) == -1 && write(fd, "k", 1) == 1);

    WANT(lseek(fd, 5, SEEK_SET) == 5);
    WANT(preadv2(fd, &into, 1, 50, 0) == 10 && read(fd, buffer, 1) == 1);
    WANT(preadv2(fd, &into, 1, -1, 0) == 10 && read(fd, buffer, 1) == 1);
    WANT(pread(fd, buffer, 1, -1) == -1 && errno == EINVAL && read(fd, buffer, 1) == 1);
    return 0;
}
"#;

/// Where vectors were written and read, and where the descriptor is then.
#[test]
fn places_of_vectors_with_flags_are_right_or_not_told() {
    let place = tempfile::tempdir().unwrap();
    let Some(program) = compile(APPENDED, &[], place.path()) else { return };
    let trace = Trace::new();
    succeed(trace.command(program).current_dir(place.path()));
    let all = trace.traced();
    let places = |op: IoOp| -> Vec<Option<u64>> {
        let of = all[0].of(op, "/file");
        of.iter().map(|one| (one.flags & flag::PLACED != 0).then_some(one.offset)).collect()
    };
    let writes = places(IoOp::Write);
    assert_eq!(writes[..2], [99, 0].map(Some));
    assert_eq!(writes[2..6], [20, 3, 4, 14].map(Some), "at an offset, and in turn");
    assert_eq!(writes[6..8], [None, Some(15)], "appended with an offset: the descriptor stays");
    assert_eq!(writes[8..10], [None, None], "appended without: it is where nobody told");
    assert_eq!(writes[10..], [Some(40), None, Some(41), None, Some(42)], "known again; failures");
    assert_eq!(places(IoOp::Read), [Some(50), Some(5), Some(6), Some(16), None, Some(17)]);
}

const OPENED: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#define WANT(x) do { if (!(x)) exit(9); } while (0)
int main(void) {
    fpos_t place;
    int ends[2];
    int fd = open("fd", O_WRONLY | O_CREAT | O_APPEND | O_SYNC, 0600);
    WANT(fd >= 0 && close(fd) == 0 && (fd = creat("fd", 0600)) >= 0 && close(fd) == 0);
    WANT((fd = open("fd", O_RDONLY)) >= 0 && close(fd) == 0);
    WANT((fd = open("none", O_RDWR | O_EXCL)) == -1 && errno == ENOENT);
    const char *modes[] = {"w", "w+", "a", "a+b", "r", "r+", "wx,ccs=UTF-8"};
    for (int at = 0; at < 7; at++) {
        FILE *file = fopen(at < 6 ? "file" : "new", modes[at]);
        WANT(file != NULL && fclose(file) == 0);
    }
    FILE *file = fopen("file", "w");
    WANT(fputs("0123456789", file) >= 0 && fgetpos(file, &place) == 0);
    WANT(fseek(file, 4, SEEK_SET) == 0 && fseeko(file, -1, SEEK_END) == 0);
    rewind(file);
    errno = 77;
    WANT(fsetpos(file, &place) == 0 && errno == 77);
    WANT(fseek(file, -1, SEEK_SET) == -1 && errno == EINVAL && fclose(file) == 0);
    WANT((fd = open("fd", O_WRONLY)) >= 0 && write(fd, "abc", 3) == 3);
    file = fdopen(fd, "a");
    WANT(file != NULL && fclose(file) == 0);
    WANT(pipe(ends) == 0 && (errno = 0, file = fdopen(ends[1], "w")) != NULL && errno == 0);
    return 0;
}
"#;

/// What files were opened for, and where streams were moved to.
#[test]
fn open_flags_and_stream_positions_are_recorded() {
    let place = tempfile::tempdir().unwrap();
    let Some(program) = compile(OPENED, &[], place.path()) else { return };
    let trace = Trace::new();
    succeed(trace.command(program).current_dir(place.path()));
    let all = trace.traced();
    let asked = |op: IoOp, path: &str| -> Vec<u64> {
        all[0].of(op, path).iter().map(|one| one.asked).collect()
    };
    let places = |op: IoOp, path: &str| -> Vec<Option<u64>> {
        let of = all[0].of(op, path);
        of.iter().map(|one| (one.flags & flag::PLACED != 0).then_some(one.offset)).collect()
    };
    const O_WRONLY: u64 = 1;
    const O_RDWR: u64 = 2;
    const O_CREAT: u64 = 0o100;
    const O_EXCL: u64 = 0o200;
    const O_TRUNC: u64 = 0o1000;
    const O_APPEND: u64 = 0o2000;
    const O_SYNC: u64 = 0o4_010_000;
    let (made, added) = (O_CREAT | O_TRUNC, O_CREAT | O_APPEND);
    let of_fd = [O_WRONLY | added | O_SYNC, O_WRONLY | made, 0, O_WRONLY, O_APPEND];
    assert_eq!(asked(IoOp::Open, "/fd"), of_fd);
    assert_eq!(asked(IoOp::Open, "/none"), [O_RDWR | O_EXCL]);
    let modes = [made | 1, made | 2, added | 1, added | 2, 0, 2, made | 1];
    assert_eq!(asked(IoOp::Open, "/file"), modes);
    assert_eq!(asked(IoOp::Open, "/new"), [O_WRONLY | made | O_EXCL]);
    assert_eq!(places(IoOp::Seek, "/file"), [Some(4), Some(9), Some(0), Some(10), None]);
    // A descriptor that becomes a stream is where it is.
    assert_eq!(places(IoOp::Open, "/fd"), [Some(0), None, None, Some(0), Some(3)]);
    let of_file = [None, None, Some(0), Some(0), None, Some(0), None];
    assert_eq!(places(IoOp::Open, "/file"), of_file, "how long what was there is");
}
