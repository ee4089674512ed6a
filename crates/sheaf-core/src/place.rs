//! Threads that work for many, of which no file system may take all.
//!
//! Whatever is about to work in a file system says so ([`enter`]). The pool that a thread belongs
//! to may refuse it, where many of its threads hang in that file system. Threads that belong to no
//! pool are never refused.
use crate::Errno;
use std::cell::RefCell;
use std::sync::Arc;

/// A thread of a pool, as the code sees it that runs there.
pub trait Worker: Send + Sync {
    /// The thread does not hang.
    fn show_life(&self);

    /// The thread is about to work in the file system of this device.
    ///
    /// # Errors
    /// `EAGAIN` where too many threads hang in it.
    fn enter(&self, device: u64) -> Result<(), Errno>;

    /// The same without waiting, for work that is asked for again.
    ///
    /// # Errors
    /// `EAGAIN` where too many threads hang in it at this moment.
    fn enter_now(&self, device: u64) -> Result<(), Errno> {
        self.enter(device)
    }
}

thread_local! {
    static WORKER: RefCell<Option<Arc<dyn Worker>>> = const { RefCell::new(None) };
}

/// This thread works for a pool.
pub fn set_worker(worker: Arc<dyn Worker>) {
    WORKER.set(Some(worker));
}

/// What this thread is to its pool, if it works for one.
#[must_use]
pub fn worker() -> Option<Arc<dyn Worker>> {
    WORKER.with_borrow(Clone::clone)
}

/// This thread is about to work in the file system of this device.
///
/// # Errors
/// `EAGAIN` where too many threads of its pool hang in it.
pub fn enter(device: u64) -> Result<(), Errno> {
    WORKER.with_borrow(|worker| worker.as_ref().map_or(Ok(()), |worker| worker.enter(device)))
}

/// The same without waiting, for work that is asked for again.
///
/// # Errors
/// `EAGAIN` where too many threads of its pool hang in it at this moment.
pub fn enter_now(device: u64) -> Result<(), Errno> {
    WORKER.with_borrow(|worker| worker.as_ref().map_or(Ok(()), |worker| worker.enter_now(device)))
}
