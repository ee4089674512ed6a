//! Processes that begin or become others, and I/O that goes on meanwhile.
use crate::ctypes::{AnyPointer, CPath, CWords};
use crate::turn::{ChildHere, Did};
use sheaf_recorder::IoOp;
use std::ffi::{c_int, c_void};

wrap! {
    fn fork() -> c_int = Fork, |child| forked(child);
    fn __fork() -> c_int = Fork, |child| forked(child);
    fn _Fork() -> c_int = Fork, |child| forked(child);
    fn clone(act: AnyPointer, stack: AnyPointer, flags: c_int, with: AnyPointer, parent: AnyPointer, tls: AnyPointer, child: AnyPointer)
        -> c_int = Fork, before _is_noted = cloning(flags), |child| cloned(flags, child);
    // Who succeeds does not come back: what is written down are those who fail.
    fn execve(path: CPath, words: CWords, environment: CWords) -> c_int
        = Exec, |came| Did::path(path).came(came);
    fn execv(path: CPath, words: CWords) -> c_int = Exec, |came| Did::path(path).came(came);
    fn execvp(path: CPath, words: CWords) -> c_int = Exec, |came| Did::path(path).came(came);
    fn execvpe(path: CPath, words: CWords, environment: CWords) -> c_int
        = Exec, |came| Did::path(path).came(came);
    fn execveat(directory: c_int, path: CPath, words: CWords, environment: CWords, flags: c_int) -> c_int
        = Exec, |came| Did::path_at(directory, path).came(came);
    fn fexecve(fd: c_int, words: CWords, environment: CWords) -> c_int
        = Exec, |came| Did::fd(fd).came(came);
    fn posix_spawn(child: *mut c_int, path: CPath, actions: AnyPointer, how: AnyPointer, words: CWords, environment: CWords)
        -> c_int = Exec, |came| Did::path(path).returned(came);
    fn posix_spawnp(child: *mut c_int, path: CPath, actions: AnyPointer, how: AnyPointer, words: CWords, environment: CWords)
        -> c_int = Exec, |came| Did::path(path).returned(came);

    fn aio_read(request: *const AioRequest) -> c_int = AsyncSubmit, |came| submitted(request, came);
    fn aio_read64(request: *const AioRequest) -> c_int = AsyncSubmit, |came| submitted(request, came);
    fn aio_write(request: *const AioRequest) -> c_int = AsyncSubmit, |came| submitted(request, came);
    fn aio_write64(request: *const AioRequest) -> c_int = AsyncSubmit, |came| submitted(request, came);
    fn aio_fsync(how: c_int, request: *const AioRequest) -> c_int
        = AsyncSync, |came| Did::fd((*request).fd).came(came);
    fn aio_fsync64(how: c_int, request: *const AioRequest) -> c_int
        = AsyncSync, |came| Did::fd((*request).fd).came(came);
    fn aio_return(request: *mut AioRequest) -> isize
        = AsyncWait, |done| returned(request, done);
    fn aio_return64(request: *mut AioRequest) -> isize
        = AsyncWait, |done| returned(request, done);
    fn aio_suspend(requests: AnyPointer, count: c_int, time: AnyPointer) -> c_int
        = AsyncWait, |came| Did::nothing().came(came);
    fn aio_suspend64(requests: AnyPointer, count: c_int, time: AnyPointer) -> c_int
        = AsyncWait, |came| Did::nothing().came(came);
    fn lio_listio(mode: c_int, requests: *const *const AioRequest, count: c_int, tell: AnyPointer) -> c_int
        = AsyncSubmit, |came| Did::nothing().of(i64::from(count)).came(came);
    fn lio_listio64(mode: c_int, requests: *const *const AioRequest, count: c_int, tell: AnyPointer) -> c_int
        = AsyncSubmit, |came| Did::nothing().of(i64::from(count)).came(came);
}

/// The parent records the child: that one has done nothing yet, and if it does nothing that is
/// recorded there is nothing to tell of it. A segment costs more than the rest of such a child.
fn forked(child: c_int) -> Did {
    if child == 0 {
        return Did::skip();
    }
    Did::nothing().came(child)
}

const CLONE_VM: c_int = 0x100;
const CLONE_VFORK: c_int = 0x4000;
const CLONE_THREAD: c_int = 0x1_0000;

/// A child on this thread's memory, which is no thread of this process.
fn cloning(flags: c_int) {
    if flags & (CLONE_VM | CLONE_THREAD) == CLONE_VM {
        let waits = flags & CLONE_VFORK != 0;
        crate::turn::note_child(if waits { ChildHere::First } else { ChildHere::Beside });
    }
}

/// A thread is no process, and threads are not recorded as they begin.
fn cloned(flags: c_int, child: c_int) -> Did {
    if flags & CLONE_THREAD != 0 { Did::skip() } else { Did::nothing().came(child) }
}

/// What is asked for asynchronously (`struct aiocb` of glibc on machines of 64 bits).
#[repr(C)]
pub struct AioRequest {
    fd: c_int,
    what: c_int,
    priority: c_int,
    buffer: AnyPointer,
    len: usize,
    tell: [u64; 8],
    own: [u64; 2],
    /// Why it has failed: `aio_return` does not set `errno`.
    error: c_int,
    result: isize,
    offset: i64,
}

/// # Safety
/// The request is there.
unsafe fn submitted(request: *const AioRequest, came: c_int) -> Did {
    // SAFETY: as our caller vouches for.
    let request = unsafe { &*request };
    Did::fd(request.fd).of(request.len as i64).at(request.offset).came(came)
}

/// # Safety
/// As above.
unsafe fn returned(request: *const AioRequest, done: isize) -> Did {
    // SAFETY: as above.
    let request = unsafe { &*request };
    // The C library adds a bit of its own to what it was asked for.
    let op = match request.what & 0x7f {
        0 => IoOp::AsyncRead,
        1 => IoOp::AsyncWrite,
        _ => IoOp::AsyncWait,
    };
    let mut did = Did::fd(request.fd).moved(request.len, done).at(request.offset).is(op);
    did.error = if done < 0 { request.error } else { 0 };
    did
}

// The child of a `vfork` runs on this thread's stack until it is another program: whoever stands in
// for that function must not be on the stack any more when it comes back the second time.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfork() -> c_int {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {real}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "jmp rax",
        ".cfi_endproc",
        real = sym real_vfork,
    )
}

/// Notes that a child will run on this thread's memory. Gives the function behind.
#[cfg(target_arch = "x86_64")]
unsafe extern "C" fn real_vfork() -> *mut c_void {
    static REAL: crate::real::Real = crate::real::Real::of(c"vfork");
    crate::turn::note_child(ChildHere::First);
    REAL.find()
}
