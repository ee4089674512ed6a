//! Commands that remove what nothing refers to: one at a time, and nothing of a command that writes.
use super::found::{self, clock_key};
use super::{Lease, LeaseKind, LeaseTimes};
use crate::archive::{Archive, ArchiveError, new_id};
use crate::repair::removed;
use crate::store::{Store, StoreError, StoreKey};
use std::time::{Duration, Instant, SystemTime};

/// How long one that removes waits for another.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// How much older than the oldest lease of a writer a leftover has to be. On some file systems the
/// machines that write set the times, so this is longer than clocks differ.
const WRITER_MARGIN: Duration = Duration::from_secs(7 * 24 * 3600);

/// The right to remove objects from a store; no other command has it at the same time.
pub(crate) struct Removal<'a> {
    store: &'a dyn Store,
    times: LeaseTimes,
    lease: Lease,
}

/// What the clock of the store says, and which leftovers may go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreClock {
    now: SystemTime,
    /// Commands that write.
    pub writers: u64,
    /// What was written before this is not theirs; nothing where that is not known.
    before: Option<SystemTime>,
}

impl<'a> Removal<'a> {
    /// Takes it.
    ///
    /// # Errors
    /// `EBUSY` where another command has it, and does not end soon; when the store cannot be written.
    pub fn begin(archive: &'a Archive) -> Result<Self, ArchiveError> {
        let (store, times) = (archive.store(), archive.leasing().times());
        let begun = Instant::now();
        loop {
            let (lease, now) =
                Lease::take(archive.leasing().inner(), LeaseKind::Remover, times, 0)?;
            let id = lease.core.id;
            let other = others(store, now, times)?.into_iter().find(|(other, _)| *other != id);
            let Some((_, holder)) = other else { return Ok(Self { store, times, lease }) };
            // Both of two that begin at once see each other, and try again after different times.
            drop(lease);
            if begun.elapsed() > WAIT_MAX {
                return Err(ArchiveError::Busy { holder });
            }
            let wait = 50 + u64::from(new_id()?.0[0]) * 2;
            std::thread::sleep(Duration::from_millis(wait));
        }
    }

    /// Which leftovers may go, of those that were listed before. Leases that have ended go now.
    pub fn clock(&self) -> Result<StoreClock, StoreError> {
        // A network file system shows what is in a directory since something was written there.
        let now = self.lease.core.renew()?;
        let mut writers = Vec::new();
        for lease in found::leases(self.store)? {
            if lease.id == self.lease.core.id {
                continue;
            }
            if lease.has_ended(self.store, now, self.times) {
                lease.remove(self.store)?;
            } else if lease.kind == LeaseKind::Writer {
                writers.push(lease.since);
            }
        }
        Ok(StoreClock::new(now, &writers))
    }

    /// A command that writes, if there is one that has not ended. Leases that have ended go now.
    pub fn writer(&self) -> Result<Option<String>, StoreError> {
        let now = self.lease.core.renew()?;
        for lease in found::leases(self.store)? {
            if lease.id == self.lease.core.id || lease.kind == LeaseKind::Clock {
                continue;
            }
            if lease.has_ended(self.store, now, self.times) {
                lease.remove(self.store)?;
            } else {
                return Ok(Some(lease.holder(self.store).unwrap_or_default().to_string()));
            }
        }
        Ok(None)
    }

    /// Removes an object, which may be gone.
    ///
    /// # Errors
    /// When it cannot be removed, or the right to do so was lost, as of a process that was stopped for
    /// long.
    pub fn remove(&self, key: &StoreKey) -> Result<(), ArchiveError> {
        self.check()?;
        Ok(removed(self.store.remove(key))?)
    }

    /// Fails where another command has the right by now.
    pub fn check(&self) -> Result<(), ArchiveError> {
        if self.lease.core.is_held()? {
            return Ok(());
        }
        Err(ArchiveError::Busy { holder: "another command".to_owned() })
    }
}

/// Commands that remove, and have not ended.
pub(super) fn others(
    store: &dyn Store,
    now: SystemTime,
    times: LeaseTimes,
) -> Result<Vec<(crate::PackId, String)>, StoreError> {
    let mut all = Vec::new();
    for lease in found::leases(store)? {
        if lease.kind == LeaseKind::Remover && !lease.has_ended(store, now, times) {
            let holder = lease.holder(store).unwrap_or_default().to_string();
            all.push((lease.id, holder));
        }
    }
    Ok(all)
}

impl StoreClock {
    /// As [`Removal::clock`], for a command that removes nothing. Where nothing can be written to the
    /// store, its clock is taken to be that of this machine.
    pub fn of(archive: &Archive) -> Result<Self, ArchiveError> {
        let (store, times) = (archive.store(), archive.leasing().times());
        let key = clock_key(new_id()?);
        let now = match store.put_passing(&key, b"") {
            Ok(now) => {
                // One that stays is removed by `repair`.
                let _ = store.remove(&key);
                now
            }
            Err(_) => SystemTime::now(),
        };
        let mut writers = Vec::new();
        for lease in found::leases(store)? {
            let is_writer = lease.kind == LeaseKind::Writer;
            if is_writer && !lease.has_ended(store, now, times) {
                writers.push(lease.since);
            }
        }
        Ok(Self::new(now, &writers))
    }

    fn new(now: SystemTime, writers: &[Option<SystemTime>]) -> Self {
        let before = writers.iter().copied().min().unwrap_or(Some(now));
        let before = match writers {
            [] => before,
            _ => before.and_then(|since| since.checked_sub(WRITER_MARGIN)),
        };
        Self { now, writers: writers.len() as u64, before }
    }

    /// Whether a leftover of this time may be of a command that goes on, or is younger than `age`.
    pub fn is_young(&self, written: SystemTime, age: Duration) -> bool {
        // One that is written in the future is young.
        let is = self.now.duration_since(written).unwrap_or_default();
        let is_of_writer = self.writers > 0 && self.before.is_none_or(|before| written >= before);
        is < age || is_of_writer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_of_running_writers_are_young_at_any_age() {
        let at = |seconds: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let (now, day) = (at(100_000_000), Duration::from_secs(24 * 3600));
        let free = StoreClock::new(now, &[]);
        assert!(!free.is_young(now, Duration::ZERO));
        assert!(!free.is_young(now + day, Duration::ZERO), "a clock that was set back");
        assert!(free.is_young(now - day / 2, day));
        let since = now - 2 * day;
        let busy = StoreClock::new(now, &[Some(now), Some(since)]);
        assert_eq!(busy.writers, 2);
        for written in [now, since, since - day] {
            assert!(busy.is_young(written, Duration::ZERO));
        }
        assert!(!busy.is_young(since - 8 * day, Duration::ZERO));
        let unknown = StoreClock::new(now, &[Some(now), None]);
        assert!(unknown.is_young(at(0), Duration::ZERO));
    }
}
