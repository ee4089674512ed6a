//! Descriptors under the runtime's watch.
use std::io;
use std::os::fd::OwnedFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Puts a descriptor under the runtime's watch.
///
/// # Errors
/// When the system has no room for it.
#[allow(unsafe_code)]
pub fn register(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: `register` asks that the descriptor stays open and the same while the `AsyncFd`
    // has it. An `OwnedFd` is one descriptor for its whole life, it is moved in here, and nothing
    // takes it out again.
    Ok(unsafe { AsyncFd::register_with_interest(fd, interest) }?)
}
