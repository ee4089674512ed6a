//! A link whose other end is gone must not end the user's program.
use std::ffi::{c_int, c_void};
use std::marker::PhantomData;

const SIGPIPE: c_int = 13;
const SIG_BLOCK: c_int = 0;
const SIG_SETMASK: c_int = 2;

/// `sigset_t`.
type SignalSet = [u64; 16];

unsafe extern "C" {
    fn sigemptyset(set: *mut SignalSet) -> c_int;
    fn sigaddset(set: *mut SignalSet, number: c_int) -> c_int;
    fn sigismember(set: *const SignalSet, number: c_int) -> c_int;
    fn pthread_sigmask(how: c_int, set: *const SignalSet, before: *mut SignalSet) -> c_int;
    fn sigtimedwait(set: *const SignalSet, info: *mut c_void, time: *const [i64; 2]) -> c_int;
}

/// Keeps SIGPIPE from this thread, which is one of the library's own: whoever runs the tree's tasks
/// writes to the pipes of processes that it starts. (Sockets are written to without a signal.)
pub fn block_broken_pipes() {
    std::mem::forget(BrokenPipes::block());
}

/// Keeps SIGPIPE from this thread as long as it is there.
pub struct BrokenPipes {
    before: SignalSet,
    /// The mask is this thread's.
    stays: PhantomData<*const ()>,
}

impl BrokenPipes {
    /// From now on.
    pub fn block() -> Self {
        let (set, mut before) = (only_sigpipe(), [0; 16]);
        // SAFETY: the sets have the size that Linux' own has; a thread's mask is its own.
        unsafe { pthread_sigmask(SIG_BLOCK, &raw const set, &raw mut before) };
        Self { before, stays: PhantomData }
    }
}

impl Drop for BrokenPipes {
    fn drop(&mut self) {
        let (set, no_time) = (only_sigpipe(), [0; 2]);
        // SAFETY: the sets have the size that Linux' own has; nothing is written where null is
        // given.
        unsafe {
            if sigismember(&raw const self.before, SIGPIPE) == 0 {
                // One that has come meanwhile was not meant for the application.
                sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const no_time);
                pthread_sigmask(SIG_SETMASK, &raw const self.before, std::ptr::null_mut());
            }
        }
    }
}

fn only_sigpipe() -> SignalSet {
    let mut set: SignalSet = [0; 16];
    // SAFETY: the set has the size that Linux' own has, and is writable.
    unsafe {
        sigemptyset(&raw mut set);
        sigaddset(&raw mut set, SIGPIPE);
    }
    set
}
