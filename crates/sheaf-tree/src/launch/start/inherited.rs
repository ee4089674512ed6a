//! Descriptors that a program was started with and knows nothing of: somebody's lock, or the end of
//! a pipe that somebody reads to its end. They must not live on in processes that outlive their
//! caller.
use rustix::io::FdFlags;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// The first descriptor that is not one of the three standard ones.
const FIRST: RawFd = 3;

/// Lets no program that this one starts inherit what this one was started with. To be called before
/// anything else.
///
/// # Errors
/// When the descriptors cannot be listed.
pub fn hand_nothing_on() -> io::Result<()> {
    for fd in inherited()? {
        mark(fd);
    }
    Ok(())
}

/// Closes what this program was started with beside its standard input, output and error. To be
/// called before anything else.
///
/// # Errors
/// When the descriptors cannot be listed.
pub fn close_inherited() -> io::Result<()> {
    inherited()?.into_iter().for_each(close);
    Ok(())
}

fn inherited() -> io::Result<Vec<RawFd>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let name = entry?.file_name();
        let number: Option<RawFd> = name.to_str().and_then(|name| name.parse().ok());
        all.extend(number.filter(|&fd| fd >= FIRST));
    }
    // The list itself was read through one of them, which is closed by now.
    all.retain(|&fd| is_open(fd));
    Ok(all)
}

fn is_open(fd: RawFd) -> bool {
    std::fs::symlink_metadata(format!("/proc/self/fd/{fd}")).is_ok()
}

#[allow(unsafe_code)]
fn mark(fd: RawFd) {
    // SAFETY: it was open a moment ago, and nothing of this program, which has only begun, closes
    // it.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    // What cannot be marked is not open any more.
    let _ = rustix::io::fcntl_setfd(fd, FdFlags::CLOEXEC);
}

#[allow(unsafe_code)]
fn close(fd: RawFd) {
    // SAFETY: nothing of this program, which has only begun, has opened it or knows of it.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
}
