//! Files on which somebody has a lease.
use rustix::fs::OFlags;
use rustix::io::{Errno as SysErrno, Result as SysResult};
use std::time::{Duration, Instant};

/// Whoever has a lease (a file server, a mounted view that was lent the file) has this long to give it back.
pub const LEASE_WAIT_MAX: Duration = Duration::from_secs(10);
/// When it is asked for again: at first, and at most.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// Opens a file, and again while a lease on it is called back, for which the kernel does not wait with `O_NONBLOCK`.
///
/// # Errors
/// Those of `open`; `EAGAIN` after [`LEASE_WAIT_MAX`].
pub fn outlasting_leases<T>(flags: OFlags, mut open: impl FnMut() -> SysResult<T>) -> SysResult<T> {
    let writes = flags.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::TRUNC);
    let waits = writes && flags.contains(OFlags::NONBLOCK) && !flags.contains(OFlags::PATH);
    let (begun, mut pause) = (Instant::now(), PAUSE_MIN);
    loop {
        match open() {
            Err(SysErrno::AGAIN) if waits && begun.elapsed() < LEASE_WAIT_MAX => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(PAUSE_MAX);
            }
            done => return done,
        }
    }
}
