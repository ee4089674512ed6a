//! Filters of system calls (seccomp(2)), which end a process for calls that only this library makes, and jumps out of
//! signal handlers.
use crate::turn;
use sheaf_recorder::sys;
use std::ffi::{c_int, c_long, c_void};

/// What a process asks for.
enum Asked {
    /// To be ended for any call but four, and for reading the processor's counter.
    Strict,
    /// To have its calls looked at by a filter.
    Filter,
    Other,
}

impl Asked {
    /// By `prctl`.
    fn of_process(option: usize, [one, two]: [usize; 2]) -> Self {
        const SET_SECCOMP: usize = 22;
        const SET_COUNTER: usize = 26;
        match (option, one) {
            (SET_SECCOMP, 1) | (SET_COUNTER, 2) => Self::Strict,
            // Whoever asks whether there are filters gives none.
            (SET_SECCOMP, 2) if two != 0 => Self::Filter,
            _ => Self::Other,
        }
    }

    /// By `seccomp`.
    fn of_filter(operation: usize, filter: usize) -> Self {
        match operation {
            0 => Self::Strict,
            1 if filter != 0 => Self::Filter,
            _ => Self::Other,
        }
    }

    /// Makes the call, and what is to be done before it; nothing of that where it fails.
    fn make<T: Into<c_long> + Copy>(self, call: impl FnOnce() -> T) -> T {
        match self {
            Self::Strict => {
                let before = turn::stop_thread(true);
                let came = call();
                if came.into() < 0 {
                    turn::stop_thread(before);
                }
                came
            }
            Self::Filter => {
                let was_sealed = sys::is_sealed();
                if !was_sealed {
                    turn::keep_errno(turn::seal);
                }
                let came = call();
                match came.into() {
                    0.. => turn::is_sealed_now(),
                    _ if was_sealed => {}
                    _ => sys::unseal(),
                }
                came
            }
            Self::Other => call(),
        }
    }
}

/// The C library takes as many as the option has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(
    option: c_int,
    one: usize,
    two: usize,
    three: usize,
    four: usize,
) -> c_int {
    static REAL: crate::real::Real = crate::real::Real::of(c"prctl");
    type Call = unsafe extern "C" fn(c_int, usize, usize, usize, usize) -> c_int;
    let real = REAL.find();
    if real.is_null() {
        return turn::missing();
    }
    // SAFETY: the C library's function of this name.
    let real: Call = unsafe { std::mem::transmute(real) };
    let asked = Asked::of_process(option as usize, [one, two]);
    // SAFETY: as our caller vouches for.
    asked.make(|| unsafe { real(option, one, two, three, four) })
}

/// `prctl` and `seccomp`, called by their numbers.
#[cfg(target_arch = "x86_64")]
pub unsafe extern "C" fn filter_call(
    number: c_long,
    one: usize,
    two: usize,
    three: usize,
    four: usize,
    five: usize,
    six: usize,
) -> c_long {
    const PRCTL: c_long = 157;
    type Call = unsafe extern "C" fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long;
    // SAFETY: the C library's function of this name.
    let real: Call = unsafe { std::mem::transmute(crate::kernel_aio::find_syscall()) };
    let asked = match number {
        PRCTL => Asked::of_process(one & 0xffff_ffff, [two, three]),
        _ => Asked::of_filter(one & 0xffff_ffff, three),
    };
    // SAFETY: as our caller vouches for.
    asked.make(|| unsafe { real(number, one, two, three, four, five, six) })
}

/// Jumps, which may lead out of a signal's handler that has come while something was recorded.
macro_rules! jumps {
    ($($name:ident $text:literal;)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(to: *mut c_void, value: c_int) {
                static REAL: crate::real::Real = crate::real::Real::of($text);
                let real = REAL.find();
                if real.is_null() {
                    std::process::abort();
                }
                turn::note_jump();
                type Jump = unsafe extern "C" fn(*mut c_void, c_int);
                // SAFETY: it is the function of this name.
                let real: Jump = unsafe { std::mem::transmute(real) };
                // SAFETY: as our caller vouches for. It does not come back, and nothing here is to be dropped.
                unsafe { real(to, value) };
            }
        )*

        /// The names of the functions here.
        #[used]
        pub static SYMBOLS: &[&str] = &["prctl", $(stringify!($name),)*];
    };
}

jumps! {
    longjmp c"longjmp";
    _longjmp c"_longjmp";
    siglongjmp c"siglongjmp";
    __longjmp_chk c"__longjmp_chk";
}
