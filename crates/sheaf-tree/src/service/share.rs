//! What one user holds of a server, beside threads ([`super::pool`]): descriptors, and memory.
//!
//! A server that works for many users has one table of descriptors and one memory. What is kept
//! for a user between two of its requests is counted here, by user, and refused beyond a bound, so
//! that no user has what all others need. The process's own user has no bound.
use super::identity;
use rustix::process::{Resource, getrlimit};
use sheaf_core::{Errno, lock};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// The part of the descriptors that the process may have which one user may hold: the half.
const DESCRIPTORS_PART: usize = 2;
/// The memory that is kept for one user.
pub const USER_BYTES_MAX: usize = 256 << 20;
/// The same, of all users.
const USERS_BYTES_MAX: usize = 1 << 30;

/// What is kept for all users, in bytes.
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// What one user holds.
#[derive(Debug, Default)]
struct UserShare {
    descriptors: AtomicUsize,
    bytes: AtomicUsize,
}

/// Descriptors and memory that are held for a user until this is dropped.
#[derive(Debug, Default)]
pub struct Holding {
    /// Nothing for the process's own user.
    user: Option<Arc<UserShare>>,
    descriptors: usize,
    bytes: usize,
}

impl Holding {
    /// Nothing yet, for the user that this thread works for.
    #[must_use]
    pub fn new() -> Self {
        Self::of(identity::acting_uid())
    }

    /// Nothing yet, for this user; none is the process's own.
    #[must_use]
    pub fn of(uid: Option<u32>) -> Self {
        static USERS: Mutex<BTreeMap<u32, Weak<UserShare>>> = Mutex::new(BTreeMap::new());
        let user = uid.map(|uid| {
            let mut users = lock(&USERS);
            users.get(&uid).and_then(Weak::upgrade).unwrap_or_else(|| {
                users.retain(|_, share| share.strong_count() > 0);
                let share = Arc::default();
                users.insert(uid, Arc::downgrade(&share));
                share
            })
        });
        Self { user, descriptors: 0, bytes: 0 }
    }

    /// Holds this much more.
    ///
    /// # Errors
    /// `EMFILE` and `ENOMEM` beyond the user's share; then no more is held than before.
    pub fn add(&mut self, descriptors: usize, bytes: usize) -> Result<(), Errno> {
        let Some(user) = &self.user else { return Ok(()) };
        let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let allowed = usize::try_from(allowed).unwrap_or(usize::MAX) / DESCRIPTORS_PART;
        take(&user.descriptors, descriptors, allowed).ok_or(Errno::MFILE)?;
        self.descriptors += descriptors;
        let taken = take(&user.bytes, bytes, USER_BYTES_MAX).and_then(|()| {
            take(&BYTES, bytes, USERS_BYTES_MAX).or_else(|| {
                user.bytes.fetch_sub(bytes, Ordering::Relaxed);
                None
            })
        });
        if taken.is_none() {
            self.keep(self.descriptors - descriptors, self.bytes);
            return Err(Errno::NOMEM);
        }
        self.bytes += bytes;
        Ok(())
    }

    /// Holds this much and no more.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn set(&mut self, descriptors: usize, bytes: usize) -> Result<(), Errno> {
        self.keep(self.descriptors.min(descriptors), self.bytes.min(bytes));
        self.add(descriptors.saturating_sub(self.descriptors), bytes.saturating_sub(self.bytes))
    }

    /// Gives all that is held to another of the same user.
    #[must_use]
    pub fn take(&mut self) -> Self {
        let rest = Self { user: self.user.clone(), descriptors: 0, bytes: 0 };
        std::mem::replace(self, rest)
    }

    /// Lets go all beyond this.
    fn keep(&mut self, descriptors: usize, bytes: usize) {
        let Some(user) = &self.user else { return };
        let freed = self.bytes - bytes;
        user.descriptors.fetch_sub(self.descriptors - descriptors, Ordering::Relaxed);
        user.bytes.fetch_sub(freed, Ordering::Relaxed);
        BYTES.fetch_sub(freed, Ordering::Relaxed);
        (self.descriptors, self.bytes) = (descriptors, bytes);
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.keep(0, 0);
    }
}

/// Takes `count` if no more than `most` are taken then.
fn take(taken: &AtomicUsize, count: usize, most: usize) -> Option<()> {
    let more = |taken: usize| taken.checked_add(count).filter(|sum| count == 0 || *sum <= most);
    taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_holds_its_share_and_gives_it_back() {
        let mut holding = Holding { user: Some(Arc::default()), descriptors: 0, bytes: 0 };
        let mut other = Holding { user: holding.user.clone(), descriptors: 0, bytes: 0 };
        let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let half = usize::try_from(allowed / 2).unwrap_or(usize::MAX);
        assert_eq!(holding.add(half, USER_BYTES_MAX), Ok(()));
        assert_eq!(other.add(1, 0), Err(Errno::MFILE));
        assert_eq!(other.add(0, 1), Err(Errno::NOMEM));
        assert_eq!((other.descriptors, other.bytes), (0, 0));
        assert_eq!(holding.set(half - 1, 7), Ok(()));
        assert_eq!(other.add(1, USER_BYTES_MAX - 7), Ok(()));
        assert_eq!(holding.set(half, 7), Err(Errno::MFILE));
        // Another user, and the process's own.
        let mut third = Holding { user: Some(Arc::default()), descriptors: 0, bytes: 0 };
        assert_eq!(third.add(half, 1), Ok(()));
        assert_eq!(Holding::new().add(usize::MAX, usize::MAX), Ok(()));
        let given = third.take();
        assert_eq!((third.descriptors, given.descriptors, given.bytes), (0, half, 1));
        assert_eq!(third.add(1, 0), Err(Errno::MFILE));
        drop(given);
        assert_eq!(third.add(1, 0), Ok(()));
        drop(other);
        assert_eq!(holding.set(half, USER_BYTES_MAX), Ok(()));
    }
}
