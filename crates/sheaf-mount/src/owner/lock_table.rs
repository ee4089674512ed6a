//! The ranges that all clients of a host have locked, and which owner waits for which: for `F_GETLK` and `EDEADLK`.
//!
//! The kernel's locks themselves are in `locks.rs`. Programs of this host itself are not in the table, so a deadlock
//! of one of them with a client is not found.
use crate::message::FileLockKind;
use rustc_hash::{FxHashMap, FxHashSet};
use sheaf_core::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A client that waits asks again at least each 50 ms. One that has not asked for so long is cut off.
const WAIT_FRESH: Duration = Duration::from_secs(2);

/// The owner of locks, of all clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LockOwner {
    /// A number of [`LockTable::client`].
    pub client: u64,
    /// The client's number of it.
    pub owner: u64,
}

/// A range that is locked, or that an owner wants to lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RangeLock {
    pub owner: LockOwner,
    /// The first byte, and the last one.
    pub range: (u64, u64),
    pub kind: FileLockKind,
    /// The process, as its own host has it.
    pub pid: u32,
}

/// Device and inode.
type LockedFile = (u64, u64);

/// See the module.
#[derive(Default)]
pub(super) struct LockTable {
    last: AtomicU64,
    state: Mutex<LockTableState>,
}

#[derive(Default)]
struct LockTableState {
    held: FxHashMap<LockedFile, Vec<RangeLock>>,
    waiting: FxHashMap<LockOwner, (LockedFile, RangeLock, Instant)>,
}

impl LockTable {
    /// The number of a new client.
    pub fn client(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed)
    }

    /// The kernel has set this lock, or freed it.
    pub fn set(&self, file: LockedFile, wanted: RangeLock) {
        let mut state = lock(&self.state);
        state.waiting.remove(&wanted.owner);
        let held = state.held.entry(file).or_default();
        set(held, wanted);
        if held.is_empty() {
            state.held.remove(&file);
        }
    }

    /// All locks of an owner of a file are free.
    pub fn free(&self, file: LockedFile, owner: LockOwner) {
        let mut state = lock(&self.state);
        let Some(held) = state.held.get_mut(&file) else { return };
        held.retain(|one| one.owner != owner);
        if held.is_empty() {
            state.held.remove(&file);
        }
    }

    /// All of a client is free.
    pub fn client_left(&self, client: u64) {
        let mut state = lock(&self.state);
        state.held.retain(|_, held| {
            held.retain(|one| one.owner.client != client);
            !held.is_empty()
        });
        state.waiting.retain(|owner, _| owner.client != client);
    }

    /// An owner is about to wait for a range. Whether it would wait for itself.
    pub fn waits(&self, file: LockedFile, wanted: RangeLock) -> bool {
        let mut state = lock(&self.state);
        let is_deadlock = state.reaches(file, wanted);
        match is_deadlock {
            true => state.waiting.remove(&wanted.owner),
            false => state.waiting.insert(wanted.owner, (file, wanted, Instant::now())),
        };
        is_deadlock
    }

    /// An owner does not wait any more.
    pub fn end_wait(&self, owner: LockOwner) {
        lock(&self.state).waiting.remove(&owner);
    }

    /// Whether a client has locked this byte.
    pub fn holds(&self, file: LockedFile, client: u64, at: u64) -> bool {
        let state = lock(&self.state);
        let held = state.held.get(&file).map(Vec::as_slice).unwrap_or_default();
        held.iter().any(|one| one.owner.client == client && overlap(one.range, (at, at)))
    }

    /// The process whose lock is in the way of this one, if it is of the same client; otherwise 0.
    pub fn process(&self, file: LockedFile, wanted: RangeLock) -> u32 {
        let state = lock(&self.state);
        let of_client =
            state.in_the_way(file, wanted).find(|one| one.owner.client == wanted.owner.client);
        of_client.map_or(0, |one| one.pid)
    }
}

impl LockTableState {
    fn in_the_way(&self, file: LockedFile, wanted: RangeLock) -> impl Iterator<Item = &RangeLock> {
        let held = self.held.get(&file).map(Vec::as_slice).unwrap_or_default();
        held.iter().filter(move |one| {
            let is_exclusive = [one.kind, wanted.kind].contains(&FileLockKind::Exclusive);
            one.owner != wanted.owner && overlap(one.range, wanted.range) && is_exclusive
        })
    }

    /// Whether somebody for whom this owner would wait waits for it, maybe by way of others.
    fn reaches(&self, file: LockedFile, wanted: RangeLock) -> bool {
        let (mut seen, mut next) = (FxHashSet::default(), vec![(file, wanted)]);
        while let Some((file, one)) = next.pop() {
            for holder in self.in_the_way(file, one) {
                if holder.owner == wanted.owner {
                    return true;
                }
                let waiting = self.waiting.get(&holder.owner);
                if let Some((file, for_this, at)) = waiting
                    && at.elapsed() < WAIT_FRESH
                    && seen.insert(holder.owner)
                {
                    next.push((*file, *for_this));
                }
            }
        }
        false
    }
}

fn overlap(one: (u64, u64), other: (u64, u64)) -> bool {
    one.0 <= other.1 && other.0 <= one.1
}

/// Sets a range in what is held, as the kernel does: an owner has one kind of lock of each byte.
pub(crate) fn set(held: &mut Vec<RangeLock>, mut wanted: RangeLock) {
    let (from, last) = wanted.range;
    let mut rest = Vec::new();
    held.retain(|one| {
        if one.owner != wanted.owner {
            return true;
        }
        // Neighbours of the same kind become one.
        let touches =
            one.range.0 <= last.saturating_add(1) && from <= one.range.1.saturating_add(1);
        if touches && one.kind == wanted.kind {
            wanted.range = (wanted.range.0.min(one.range.0), wanted.range.1.max(one.range.1));
            return false;
        }
        if !overlap(one.range, (from, last)) {
            return true;
        }
        if one.range.0 < from {
            rest.push(RangeLock { range: (one.range.0, from - 1), ..*one });
        }
        if one.range.1 > last {
            rest.push(RangeLock { range: (last + 1, one.range.1), ..*one });
        }
        false
    });
    held.append(&mut rest);
    if wanted.kind != FileLockKind::None {
        held.push(wanted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock_of(owner: u64, range: (u64, u64), kind: FileLockKind) -> RangeLock {
        RangeLock { owner: LockOwner { client: owner, owner }, range, kind, pid: owner as u32 }
    }

    /// Each byte has the kind that was set last, in few entries.
    #[test]
    fn ranges_are_those_that_were_set_last() {
        let kinds = [FileLockKind::Shared, FileLockKind::Exclusive, FileLockKind::None];
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut held, mut bytes) = (Vec::new(), [FileLockKind::None; 32]);
            for _ in 0..40 {
                let from = random.u64(..32);
                let range = (from, random.u64(from..32));
                let kind = kinds[random.usize(..3)];
                set(&mut held, lock_of(1, range, kind));
                bytes[range.0 as usize..=range.1 as usize].fill(kind);
                for (at, kind) in bytes.iter().enumerate() {
                    let all: Vec<_> = held
                        .iter()
                        .filter(|one| overlap(one.range, (at as u64, at as u64)))
                        .collect();
                    let found = all.first().map_or(FileLockKind::None, |one| one.kind);
                    assert!(all.len() <= 1 && found == *kind, "seed {seed}: {at}: {all:?}");
                }
                let changes = bytes.windows(2).filter(|two| two[0] != two[1]).count();
                assert!(held.len() <= changes + 1, "seed {seed}: {held:?}");
            }
        }
    }

    #[test]
    fn cycle_of_three_waiters_is_a_deadlock() {
        let (table, mine) = (LockTable::default(), FileLockKind::Exclusive);
        for owner in 1..=3 {
            table.set((1, owner), lock_of(owner, (0, 9), mine));
        }
        assert!(!table.waits((1, 2), lock_of(1, (0, 0), mine)));
        assert!(!table.waits((1, 3), lock_of(2, (5, 5), FileLockKind::Shared)));
        assert!(!table.waits((1, 1), lock_of(3, (10, 10), mine)));
        assert!(table.waits((1, 1), lock_of(3, (9, 10), mine)));
        // One does not wait any more.
        table.end_wait(LockOwner { client: 2, owner: 2 });
        assert!(!table.waits((1, 1), lock_of(3, (9, 10), mine)));
        table.client_left(1);
        assert_eq!(table.process((1, 1), lock_of(9, (0, 0), mine)), 0);
    }
}
