//! What a thread has used of the processor.
use std::ffi::{c_int, c_long};

/// `struct timeval`.
#[repr(C)]
#[derive(Default, Clone, Copy)]
struct TimeVal {
    seconds: c_long,
    microseconds: c_long,
}

impl TimeVal {
    fn nanoseconds(self) -> u64 {
        let seconds = u64::try_from(self.seconds).unwrap_or(0);
        seconds * 1_000_000_000 + u64::try_from(self.microseconds).unwrap_or(0) * 1000
    }
}

/// `struct rusage`, of which only the first two fields are looked at.
#[repr(C)]
#[derive(Default)]
struct ThreadUsage {
    user: TimeVal,
    system: TimeVal,
    more: [c_long; 14],
}

const RUSAGE_THREAD: c_int = 1;

unsafe extern "C" {
    fn getrusage(who: c_int, usage: *mut ThreadUsage) -> c_int;
}

/// Nanoseconds that this thread has run in the program and in the kernel.
pub fn thread_times_ns() -> (u64, u64) {
    let mut usage = ThreadUsage::default();
    // SAFETY: the structure has the size and layout of Linux' own, and is writable.
    if unsafe { getrusage(RUSAGE_THREAD, &raw mut usage) } != 0 {
        return (0, 0);
    }
    (usage.user.nanoseconds(), usage.system.nanoseconds())
}
