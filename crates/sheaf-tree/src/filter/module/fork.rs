//! Filters that fork. Both processes come back from the function: the new one, with all links of
//! the node, would go on as the node beside it. It is ended at once, and the call has failed.
#![allow(unsafe_code)]

use crate::filter::FilterError;
use rustix::pipe::{PipeFlags, pipe_with};
use sheaf_core::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a copy of the node ends with.
const COPY_EXIT_CODE: i32 = 70;

/// From a copy to the node itself.
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

static PIPE: OnceLock<Pipe> = OnceLock::new();
/// This process has forked since it was last looked whether the copy has come back.
static FORKED: AtomicBool = AtomicBool::new(false);

unsafe extern "C" fn forked() {
    FORKED.store(true, Ordering::Relaxed);
}

/// To be called before the first filter is.
///
/// # Errors
/// When the system has no pipe, or no memory.
pub(super) fn watch() -> io::Result<()> {
    if PIPE.get().is_some() {
        return Ok(());
    }
    let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    if PIPE.set(Pipe { read, write }).is_err() {
        return Ok(());
    }
    // SAFETY: the handler sets a flag, which is allowed after any fork; it is there as long as the
    // process. (One that makes a program of the new process by vfork calls none.)
    match unsafe { libc::pthread_atfork(None, Some(forked), None) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// In a process that came out of a filter's function and is not the node's: tells that, and ends
/// it.
pub(super) fn end_copy() -> ! {
    if let Some(pipe) = PIPE.get() {
        // Whether or not there is room: a byte of another copy tells as much.
        let _ = rustix::io::write(&pipe.write, &[1]);
    }
    // SAFETY: nothing of this process is to be cleared away: it is all the node's.
    unsafe { libc::_exit(COPY_EXIT_CODE) }
}

/// In the node itself, after a call: whether a copy has come back from this or an earlier one.
pub(super) fn told() -> Option<FilterError> {
    if !FORKED.load(Ordering::Relaxed) {
        return None;
    }
    let mut byte = [0];
    match PIPE.get().map(|pipe| rustix::io::read(&pipe.read, &mut byte)) {
        Some(Ok(1)) => {
            FORKED.store(false, Ordering::Relaxed);
            let text = "the function has forked, and returned in the new process too, which was ended: a filter \
                        may start programs (posix_spawn), not copies of the node";
            Some(FilterError::new(Errno::OPNOTSUPP, text))
        }
        // It has not come back yet, or never will.
        _ => None,
    }
}
