//! A link whose other end is gone must not end the user's program.
use std::ffi::c_int;
use std::sync::Once;

const SIGPIPE: c_int = 13;
const SIG_DFL: usize = 0;
const SIG_IGN: usize = 1;

unsafe extern "C" {
    fn signal(number: c_int, handler: usize) -> usize;
}

/// Ignores SIGPIPE, unless the program has a handler of its own for it.
pub fn ignore_broken_pipes() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: both calls only change what happens on one signal; ignoring it runs no code.
        unsafe {
            let before = signal(SIGPIPE, SIG_IGN);
            if before != SIG_DFL && before != SIG_IGN {
                signal(SIGPIPE, before);
            }
        }
    });
}
