//! Files on which somebody has a lease.
use nix::sys::signal::{SigSet, SigmaskHow};
use rustix::fs::OFlags;
use rustix::io::{Errno as SysErrno, Result as SysResult};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Whoever has a lease (a file server, a mounted view that was lent the file) has this long to give it back.
pub const LEASE_WAIT_MAX: Duration = Duration::from_secs(10);
/// When it is asked for again: at first, and at most.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// Opens a file, and again while a lease on it is called back, for which the kernel does not wait with `O_NONBLOCK`.
///
/// `open` receives the flags for the system call.
///
/// # Errors
/// Those of `open`; `EAGAIN` after [`LEASE_WAIT_MAX`].
pub fn outlasting_leases(
    flags: OFlags,
    mut open: impl FnMut(OFlags) -> SysResult<OwnedFd>,
) -> SysResult<OwnedFd> {
    if flags.contains(OFlags::CREATE | OFlags::EXCL) && !flags.contains(OFlags::PATH) {
        return made_at_once(flags, open);
    }
    let waits = flags.contains(OFlags::NONBLOCK) && !flags.contains(OFlags::PATH);
    let (begun, mut pause) = (Instant::now(), PAUSE_MIN);
    loop {
        match open(flags) {
            Err(SysErrno::AGAIN) if waits && begun.elapsed() < LEASE_WAIT_MAX => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(PAUSE_MAX);
            }
            done => return done,
        }
    }
}

/// Opens a file with `O_CREAT` and `O_EXCL`, which cannot be retried.
///
/// The kernel creates the name before it opens the file. Another process may take a lease in between. If the open then
/// failed with `EAGAIN` or was restarted after a signal, the retry would find its own name and fail with `EEXIST`. So
/// this call lets the kernel wait for the lease, with all signals of the thread blocked. The kernel waits for nothing
/// else: an existing file, including a pipe, is `EEXIST`.
fn made_at_once(
    flags: OFlags,
    mut open: impl FnMut(OFlags) -> SysResult<OwnedFd>,
) -> SysResult<OwnedFd> {
    let errno = |errno: nix::Error| SysErrno::from_raw_os_error(errno as i32);
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK).map_err(errno)?;
    let opened = open(flags - OFlags::NONBLOCK);
    before.thread_set_mask().map_err(errno)?;
    let file = opened?;
    if flags.contains(OFlags::NONBLOCK) {
        rustix::fs::fcntl_setfl(&file, rustix::fs::fcntl_getfl(&file)? | OFlags::NONBLOCK)?;
    }
    Ok(file)
}
