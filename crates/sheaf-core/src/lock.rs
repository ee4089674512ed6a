//! The one way to take a lock.
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock, also one that a thread has panicked under.
///
/// What is behind a lock here is whole after each statement, or is checked where it is used; a
/// panic is told by whoever catches it, and must not take down all others that need the lock.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
