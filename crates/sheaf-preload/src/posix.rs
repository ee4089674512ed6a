//! Calls of the kernel on descriptors and paths.
use crate::turn::{Did, FilePlace};
use std::ffi::{c_char, c_int, c_uint, c_void};

const O_APPEND: c_int = 0o2000;

/// As `creat` opens a file, and as those do that find a name for a new one.
const CREATED: c_int = 0o1101;
const TEMPORARY: c_int = 0o302;

/// Opened with these flags, which are what it was asked for. With `O_APPEND` it is written at its
/// end, wherever that is. One that can be written and is not new has its length as the offset.
fn by_flags(did: Did, flags: c_int, fd: c_int) -> Did {
    let begins = if flags & O_APPEND == 0 { FilePlace::At(0) } else { FilePlace::Unknown };
    did.place(begins).opens(fd).of(flags.into()).at(length_before(flags, fd))
}

/// How long a file is that was opened with these flags and may have been there; below 0: it is of
/// no matter.
pub fn length_before(flags: c_int, fd: c_int) -> i64 {
    const O_EXCL: c_int = 0o200;
    const O_TRUNC: c_int = 0o1000;
    const O_ACCMODE: c_int = 0o3;
    if fd < 0 || flags & O_ACCMODE == 0 || flags & (O_EXCL | O_TRUNC) != 0 {
        return -1;
    }
    sheaf_recorder::sys::file_length(fd).and_then(|length| i64::try_from(length).ok()).unwrap_or(-1)
}

fn seeked(result: i64) -> FilePlace {
    u64::try_from(result).map_or(FilePlace::Stays, FilePlace::At)
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct IoPiece {
    base: *mut c_void,
    len: usize,
}

/// What pieces are long together.
///
/// # Safety
/// There are so many, unless the call has failed.
pub unsafe fn long(pieces: *const IoPiece, count: c_int, result: isize) -> usize {
    if result < 0 || pieces.is_null() {
        return 0;
    }
    // SAFETY: the kernel has just read them.
    let pieces = unsafe { std::slice::from_raw_parts(pieces, count.max(0) as usize) };
    pieces.iter().fold(0, |sum, piece| sum.saturating_add(piece.len))
}

const fn came_of(result: c_int) -> Did {
    let mut did = Did::nothing();
    did.has_failed = result < 0;
    did
}

wrap! {
    // The mode lies where it would in a call of a function with a variable number of arguments.
    fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int
        = Open, |fd| by_flags(Did::path(path), flags, fd);
    fn open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int
        = Open, |fd| by_flags(Did::path(path), flags, fd);
    fn __open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int
        = Open, |fd| by_flags(Did::path(path), flags, fd);
    fn __open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int
        = Open, |fd| by_flags(Did::path(path), flags, fd);
    fn __open_2(path: *const c_char, flags: c_int) -> c_int
        = Open, |fd| by_flags(Did::path(path), flags, fd);
    fn __open64_2(path: *const c_char, flags: c_int) -> c_int
        = Open, |fd| by_flags(Did::path(path), flags, fd);
    fn openat(directory: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int
        = Open, |fd| by_flags(Did::path_at(directory, path), flags, fd);
    fn openat64(directory: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int
        = Open, |fd| by_flags(Did::path_at(directory, path), flags, fd);
    fn __openat_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int
        = Open, |fd| by_flags(Did::path_at(directory, path), flags, fd);
    fn __openat64_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int
        = Open, |fd| by_flags(Did::path_at(directory, path), flags, fd);
    fn creat(path: *const c_char, mode: c_uint) -> c_int
        = Open, |fd| by_flags(Did::path(path), CREATED, fd);
    fn creat64(path: *const c_char, mode: c_uint) -> c_int
        = Open, |fd| by_flags(Did::path(path), CREATED, fd);
    fn open_by_handle_at(mount: c_int, handle: *mut c_void, flags: c_int) -> c_int
        = Open, |fd| by_flags(Did::fd(fd), flags, fd);
    fn memfd_create(name: *const c_char, flags: c_uint) -> c_int
        = Open, |fd| Did::fd(fd).place(FilePlace::At(0)).opens(fd);
    fn mkstemp(template: *mut c_char) -> c_int
        = Open, |fd| by_flags(Did::path(template), TEMPORARY, fd);
    fn mkstemp64(template: *mut c_char) -> c_int
        = Open, |fd| by_flags(Did::path(template), TEMPORARY, fd);
    fn mkostemp(template: *mut c_char, flags: c_int) -> c_int
        = Open, |fd| by_flags(Did::path(template), flags | TEMPORARY, fd);
    fn mkostemp64(template: *mut c_char, flags: c_int) -> c_int
        = Open, |fd| by_flags(Did::path(template), flags | TEMPORARY, fd);
    fn mkstemps(template: *mut c_char, suffix: c_int) -> c_int
        = Open, |fd| by_flags(Did::path(template), TEMPORARY, fd);
    fn mkstemps64(template: *mut c_char, suffix: c_int) -> c_int
        = Open, |fd| by_flags(Did::path(template), TEMPORARY, fd);
    fn mkostemps(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int
        = Open, |fd| by_flags(Did::path(template), flags | TEMPORARY, fd);
    fn mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int
        = Open, |fd| by_flags(Did::path(template), flags | TEMPORARY, fd);

    fn close(fd: c_int) -> c_int
        = Close, before file = crate::files::left(fd), |result| Did::known(file).came(result);
    fn __close(fd: c_int) -> c_int
        = Close, before file = crate::files::left(fd), |result| Did::known(file).came(result);
    fn dup(fd: c_int) -> c_int = Dup, |new| Did::fd(fd).place(FilePlace::Shared).opens(new);
    fn dup2(fd: c_int, to: c_int) -> c_int = Dup, |new| Did::fd(fd).place(FilePlace::Shared).opens(new);
    fn __dup2(fd: c_int, to: c_int) -> c_int
        = Dup, |new| Did::fd(fd).place(FilePlace::Shared).opens(new);
    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int
        = Dup, |new| Did::fd(fd).place(FilePlace::Shared).opens(new);

    fn read(fd: c_int, buffer: *mut c_void, len: usize) -> isize
        = Read, |done| Did::fd(fd).moved(len, done).in_turn();
    fn __read(fd: c_int, buffer: *mut c_void, len: usize) -> isize
        = Read, |done| Did::fd(fd).moved(len, done).in_turn();
    fn __read_chk(fd: c_int, buffer: *mut c_void, len: usize, room: usize) -> isize
        = Read, |done| Did::fd(fd).moved(len, done).in_turn();
    fn pread(fd: c_int, buffer: *mut c_void, len: usize, at: i64) -> isize
        = Read, |done| Did::fd(fd).moved(len, done).at(at);
    fn pread64(fd: c_int, buffer: *mut c_void, len: usize, at: i64) -> isize
        = Read, |done| Did::fd(fd).moved(len, done).at(at);
    fn __pread_chk(fd: c_int, buffer: *mut c_void, len: usize, at: i64, room: usize) -> isize
        = Read, |done| Did::fd(fd).moved(len, done).at(at);
    fn __pread64_chk(fd: c_int, buffer: *mut c_void, len: usize, at: i64, room: usize) -> isize
        = Read, |done| Did::fd(fd).moved(len, done).at(at);
    fn readv(fd: c_int, pieces: *const IoPiece, count: c_int) -> isize
        = Read, |done| Did::fd(fd).moved(long(pieces, count, done), done).in_turn();
    fn preadv(fd: c_int, pieces: *const IoPiece, count: c_int, at: i64) -> isize
        = Read, |done| Did::fd(fd).moved(long(pieces, count, done), done).at(at);
    fn preadv64(fd: c_int, pieces: *const IoPiece, count: c_int, at: i64) -> isize
        = Read, |done| Did::fd(fd).moved(long(pieces, count, done), done).at(at);
    fn preadv2(fd: c_int, pieces: *const IoPiece, count: c_int, at: i64, flags: c_int) -> isize
        = Read, |done| perhaps_at(Did::fd(fd).moved(long(pieces, count, done), done), at);
    fn preadv64v2(fd: c_int, pieces: *const IoPiece, count: c_int, at: i64, flags: c_int) -> isize
        = Read, |done| perhaps_at(Did::fd(fd).moved(long(pieces, count, done), done), at);

    fn write(fd: c_int, buffer: *const c_void, len: usize) -> isize
        = Write, |done| Did::fd(fd).moved(len, done).in_turn();
    fn __write(fd: c_int, buffer: *const c_void, len: usize) -> isize
        = Write, |done| Did::fd(fd).moved(len, done).in_turn();
    fn pwrite(fd: c_int, buffer: *const c_void, len: usize, at: i64) -> isize
        = Write, |done| Did::fd(fd).moved(len, done).at(at);
    fn pwrite64(fd: c_int, buffer: *const c_void, len: usize, at: i64) -> isize
        = Write, |done| Did::fd(fd).moved(len, done).at(at);
    fn __pwrite64(fd: c_int, buffer: *const c_void, len: usize, at: i64) -> isize
        = Write, |done| Did::fd(fd).moved(len, done).at(at);
    fn writev(fd: c_int, pieces: *const IoPiece, count: c_int) -> isize
        = Write, |done| Did::fd(fd).moved(long(pieces, count, done), done).in_turn();
    fn pwritev(fd: c_int, pieces: *const IoPiece, count: c_int, at: i64) -> isize
        = Write, |done| Did::fd(fd).moved(long(pieces, count, done), done).at(at);
    fn pwritev64(fd: c_int, pieces: *const IoPiece, count: c_int, at: i64) -> isize
        = Write, |done| Did::fd(fd).moved(long(pieces, count, done), done).at(at);
    fn pwritev2(fd: c_int, pieces: *const IoPiece, count: c_int, at: i64, flags: c_int) -> isize
        = Write, |done| written_at(Did::fd(fd).moved(long(pieces, count, done), done), at, flags);
    fn pwritev64v2(fd: c_int, pieces: *const IoPiece, count: c_int, at: i64, flags: c_int) -> isize
        = Write, |done| written_at(Did::fd(fd).moved(long(pieces, count, done), done), at, flags);

    fn lseek(fd: c_int, offset: i64, from: c_int) -> i64
        = Seek, |now| Did::fd(fd).came(now).place(seeked(now));
    fn lseek64(fd: c_int, offset: i64, from: c_int) -> i64
        = Seek, |now| Did::fd(fd).came(now).place(seeked(now));
    fn __lseek(fd: c_int, offset: i64, from: c_int) -> i64
        = Seek, |now| Did::fd(fd).came(now).place(seeked(now));

    fn copy_file_range(fd: c_int, at: *mut i64, to: c_int, to_at: *mut i64, len: usize, flags: c_uint)
        -> isize = Copy, |done| copied(fd, at, to, to_at, len, done);
    fn sendfile(to: c_int, fd: c_int, at: *mut i64, len: usize) -> isize
        = Sendfile, |done| copied(fd, at, to, std::ptr::null_mut(), len, done);
    fn sendfile64(to: c_int, fd: c_int, at: *mut i64, len: usize) -> isize
        = Sendfile, |done| copied(fd, at, to, std::ptr::null_mut(), len, done);
    fn splice(fd: c_int, at: *mut i64, to: c_int, to_at: *mut i64, len: usize, flags: c_uint) -> isize
        = Splice, |done| copied(fd, at, to, to_at, len, done);
    fn tee(fd: c_int, to: c_int, len: usize, flags: c_uint) -> isize
        = Splice, |done| Did::fd(fd).moved(len, done).to(to);
    fn vmsplice(fd: c_int, pieces: *const IoPiece, count: usize, flags: c_uint) -> isize
        = Splice, |done| Did::fd(fd).moved(long(pieces, count as c_int, done), done);

    fn truncate(path: *const c_char, len: i64) -> c_int = Truncate, |came| Did::path(path).of(len).came(came);
    fn truncate64(path: *const c_char, len: i64) -> c_int = Truncate, |came| Did::path(path).of(len).came(came);
    fn ftruncate(fd: c_int, len: i64) -> c_int = Truncate, |came| Did::fd(fd).of(len).came(came);
    fn ftruncate64(fd: c_int, len: i64) -> c_int = Truncate, |came| Did::fd(fd).of(len).came(came);
    fn fallocate(fd: c_int, mode: c_int, at: i64, len: i64) -> c_int
        = Allocate, |came| Did::fd(fd).of(len).at(at).came(came);
    fn fallocate64(fd: c_int, mode: c_int, at: i64, len: i64) -> c_int
        = Allocate, |came| Did::fd(fd).of(len).at(at).came(came);
    fn posix_fallocate(fd: c_int, at: i64, len: i64) -> c_int
        = Allocate, |came| Did::fd(fd).of(len).at(at).returned(came);
    fn posix_fallocate64(fd: c_int, at: i64, len: i64) -> c_int
        = Allocate, |came| Did::fd(fd).of(len).at(at).returned(came);
    fn posix_fadvise(fd: c_int, at: i64, len: i64, advice: c_int) -> c_int
        = Advise, |came| Did::fd(fd).of(len).at(at).returned(came);
    fn posix_fadvise64(fd: c_int, at: i64, len: i64, advice: c_int) -> c_int
        = Advise, |came| Did::fd(fd).of(len).at(at).returned(came);
    fn readahead(fd: c_int, at: i64, len: usize) -> isize
        = Advise, |came| Did::fd(fd).of(len as i64).at(at).failed_if(came < 0);
    fn fsync(fd: c_int) -> c_int = Sync, |came| Did::fd(fd).came(came);
    fn fdatasync(fd: c_int) -> c_int = Sync, |came| Did::fd(fd).came(came);
    fn syncfs(fd: c_int) -> c_int = Sync, |came| Did::fd(fd).came(came);
    fn sync_file_range(fd: c_int, at: i64, len: i64, flags: c_uint) -> c_int
        = Sync, |came| Did::fd(fd).of(len).at(at).came(came);
    fn sync() -> () = Sync, |_nothing| Did::nothing();

    fn pipe(ends: *mut c_int) -> c_int = Pipe, |came| piped(ends, came);
    fn pipe2(ends: *mut c_int, flags: c_int) -> c_int = Pipe, |came| piped(ends, came);
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int
        = CloseRange, |came| ranged(first, last, flags, came);
    fn closefrom(first: c_int) -> ()
        = CloseRange, |_nothing| ranged(first as c_uint, c_uint::MAX, 0, 0);
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int = Fcntl, |came| controlled(fd, command, came);
    fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int = Fcntl, |came| controlled(fd, command, came);
    fn flock(fd: c_int, how: c_int) -> c_int = Lock, |came| Did::fd(fd).came(came);
    fn lockf(fd: c_int, how: c_int, len: i64) -> c_int = Lock, |came| Did::fd(fd).came(came);
    fn lockf64(fd: c_int, how: c_int, len: i64) -> c_int = Lock, |came| Did::fd(fd).came(came);
}

/// From where the descriptor is, if no offset is given.
fn perhaps_at(did: Did, at: i64) -> Did {
    if at == -1 { did.in_turn() } else { did.at(at) }
}

/// The same; what is appended lands at the end, wherever that is, and without an offset given the
/// descriptor is behind it then.
fn written_at(did: Did, at: i64, flags: c_int) -> Did {
    const RWF_APPEND: c_int = 0x10;
    match (flags & RWF_APPEND != 0, at) {
        (false, _) => perhaps_at(did, at),
        (true, -1) => did.place(FilePlace::Unknown),
        (true, _) => did,
    }
}

/// # Safety
/// The offsets are null, or the kernel has just written them.
unsafe fn copied(
    fd: c_int,
    at: *mut i64,
    to: c_int,
    to_at: *mut i64,
    len: usize,
    done: isize,
) -> Did {
    if to_at.is_null() && done > 0 {
        let moved = crate::files::place(to).map(|place| place + done as u64);
        crate::files::set_place(to, moved);
    }
    let did = Did::fd(fd).moved(len, done).to(to);
    if at.is_null() {
        return did.in_turn();
    }
    // SAFETY: as our caller vouches for. The kernel has moved it on by what was done.
    let behind = unsafe { *at };
    if done < 0 { did } else { did.at(behind - done as i64) }
}

/// # Safety
/// Two descriptors are there, if the call has not failed.
pub unsafe fn piped(ends: *const c_int, came: c_int) -> Did {
    if came == 0 {
        for end in 0..2 {
            // SAFETY: as our caller vouches for.
            crate::files::closed(unsafe { *ends.add(end) });
        }
    }
    came_of(came)
}

fn ranged(first: c_uint, last: c_uint, flags: c_int, came: c_int) -> Did {
    const CLOEXEC: c_int = 4;
    if came == 0 && flags & CLOEXEC == 0 {
        crate::files::closed_between(first, last);
    }
    came_of(came)
}

fn controlled(fd: c_int, command: c_int, came: c_int) -> Did {
    const F_DUPFD: c_int = 0;
    const F_DUPFD_CLOEXEC: c_int = 1030;
    if sheaf_recorder::is_lock(command) {
        return Did::fd(fd).came(came).on_lock();
    }
    if matches!(command, F_DUPFD | F_DUPFD_CLOEXEC) {
        return Did::fd(fd).place(FilePlace::Shared).opens(came);
    }
    Did::fd(fd).came(came)
}
