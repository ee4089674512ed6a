//! A link whose other end is gone must not end the user's program.
use std::ffi::c_int;

const SIGPIPE: c_int = 13;
const SIG_BLOCK: c_int = 0;

/// `sigset_t`.
type Set = [u64; 16];

unsafe extern "C" {
    fn sigemptyset(set: *mut Set) -> c_int;
    fn sigaddset(set: *mut Set, number: c_int) -> c_int;
    fn pthread_sigmask(how: c_int, set: *const Set, before: *mut Set) -> c_int;
}

/// Keeps SIGPIPE from this thread, which is one of the library's own: it writes to the pipes of
/// processes that it starts. (Sockets are written to without a signal, on any thread.)
pub fn block_broken_pipes() {
    let mut set: Set = [0; 16];
    // SAFETY: the set has the size that Linux' own has, and is writable; a thread's mask is its own.
    unsafe {
        sigemptyset(&raw mut set);
        sigaddset(&raw mut set, SIGPIPE);
        pthread_sigmask(SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
}
