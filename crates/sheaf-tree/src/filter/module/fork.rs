//! Filters that fork. Both processes come back from the function: the new one, with all links of
//! the node, would go on as the node beside it. It is ended at once, and the call has failed.
#![allow(unsafe_code)]

use crate::filter::FilterError;
use rustix::pipe::{PipeFlags, pipe_with};
use sheaf_core::{Errno, lock};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

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
/// Whose copies have come back, and were not told of.
static CAME_BACK: Mutex<Vec<u64>> = Mutex::new(Vec::new());

/// So many copies are remembered: those of streams that have ended nobody asks for.
const CAME_BACK_MAX: usize = 1024;

/// A name for an instance of a filter, which no other in this process has.
pub(super) fn name_instance() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}

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

/// In a process that came out of a function of this instance and is not the node's: tells that,
/// and ends it.
pub(super) fn end_copy(instance: u64) -> ! {
    if let Some(pipe) = PIPE.get() {
        // Without room thousands of copies are there, which say what there is to say.
        let _ = rustix::io::write(&pipe.write, &instance.to_ne_bytes());
    }
    // SAFETY: nothing of this process is to be cleared away: it is all the node's.
    unsafe { libc::_exit(COPY_EXIT_CODE) }
}

/// In the node itself, after a call: whether a copy has come back from this or an earlier one of
/// the instance. Other nodes of the process may run filters meanwhile.
pub(super) fn told(instance: u64) -> Option<FilterError> {
    if !FORKED.load(Ordering::Relaxed) {
        return None;
    }
    let mut came_back = lock(&CAME_BACK);
    let mut name = [0; size_of::<u64>()];
    while let Some(pipe) = PIPE.get()
        && matches!(rustix::io::read(&pipe.read, &mut name), Ok(read) if read == name.len())
    {
        if came_back.len() == CAME_BACK_MAX {
            came_back.remove(0);
        }
        came_back.push(u64::from_ne_bytes(name));
    }
    // It may not have come back yet, or never will.
    let place = came_back.iter().position(|&copy| copy == instance)?;
    came_back.swap_remove(place);
    if came_back.is_empty() {
        FORKED.store(false, Ordering::Relaxed);
    }
    let text = "the function has forked, and returned in the new process too, which was ended: a \
                filter may start programs (posix_spawn), not copies of the node";
    Some(FilterError::new(Errno::OPNOTSUPP, text))
}
