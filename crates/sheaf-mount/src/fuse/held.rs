//! The locks that programs of this host hold at an owner, so that they can be claimed when the owner's server is
//! restarted (`owner/grace.rs`).
//!
//! Each lock belongs to the instance of the client at the owner that set it. When the owner has another instance, all
//! open files of the one before have failed, and its locks are claimed again or lost.
use crate::message::{FileCaller, FileLock, FileLockKind, LockedFile};
use crate::owner::{LockOwner, RangeLock, set_range};
use rustc_hash::FxHashMap;
use sheaf_core::{Errno, lock};
use std::sync::{Mutex, MutexGuard};

/// Owners of locks that are remembered, at most.
const HELD_MAX: usize = 1 << 16;

/// The locks at one owner.
#[derive(Default)]
pub(super) struct HeldLocks(Mutex<HeldState>);

#[derive(Default)]
struct HeldState {
    files: FxHashMap<u64, HeldFile>,
    /// Owners of locks in all files.
    owners: usize,
    /// A task asks for the instance at the owner.
    is_kept: bool,
    /// The view has ended.
    is_over: bool,
}

struct HeldFile {
    file: LockedFile,
    owners: FxHashMap<OwnerKey, HeldByOwner>,
}

/// The kernel's number of the lock's owner, and whether the file is locked as a whole.
type OwnerKey = (u64, bool);

struct HeldByOwner {
    who: FileCaller,
    handle: u64,
    instance: u64,
    ranges: Vec<RangeLock>,
}

/// One lock to be claimed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct HeldLock {
    pub who: FileCaller,
    pub node: u64,
    pub handle: u64,
    pub file: LockedFile,
    pub lock: FileLock,
    instance: u64,
}

/// A request that has set a lock.
pub(super) struct LockSet<'a> {
    pub who: &'a FileCaller,
    pub node: u64,
    pub handle: u64,
    pub lock: FileLock,
}

impl HeldLocks {
    fn state(&self) -> MutexGuard<'_, HeldState> {
        lock(&self.0)
    }

    /// Whether the owner has to send by what the file of a node is found again.
    ///
    /// # Errors
    /// `ENOLCK` if no more locks can be remembered.
    pub fn wants_file(&self, node: u64) -> Result<bool, Errno> {
        let state = self.state();
        if state.owners >= HELD_MAX {
            return Err(Errno(libc::ENOLCK));
        }
        Ok(!state.files.contains_key(&node))
    }

    /// A lock was set by this instance. Returns whether a task has to be started that keeps the locks.
    pub fn locked(&self, set: &LockSet<'_>, instance: u64, file: Option<LockedFile>) -> bool {
        let mut state = self.state();
        let HeldState { files, owners, .. } = &mut *state;
        let held = match (files.entry(set.node), file) {
            (std::collections::hash_map::Entry::Occupied(held), _) => held.into_mut(),
            (vacant, Some(file)) => {
                vacant.or_insert_with(|| HeldFile { file, owners: FxHashMap::default() })
            }
            // Its last lock was freed while this one was set. It is not found again, so it is lost with the server.
            (vacant, None) => {
                let file = LockedFile { path: Vec::new(), id: ((0, 0), None), access: 0 };
                vacant.or_insert_with(|| HeldFile { file, owners: FxHashMap::default() })
            }
        };
        let of_owner =
            held.owners.entry((set.lock.owner, set.lock.is_whole)).or_insert_with(|| {
                *owners += 1;
                let (who, ranges) = (set.who.clone(), Vec::new());
                HeldByOwner { who, handle: set.handle, instance, ranges }
            });
        (of_owner.handle, of_owner.instance) = (set.handle, instance);
        set_range(&mut of_owner.ranges, range_of(&set.lock));
        let starts = !state.is_kept && !state.is_over;
        state.is_kept |= starts;
        starts
    }

    /// Locks are freed, or are about to be: they are not claimed any more.
    pub fn unlocked(&self, node: u64, freed: &FileLock) {
        self.change(node, |key, held| {
            if *key != (freed.owner, freed.is_whole) {
                return true;
            }
            let range = if freed.is_whole { (0, u64::MAX) } else { freed.range };
            set_range(&mut held.ranges, RangeLock { range, ..range_of(freed) });
            !held.ranges.is_empty()
        });
    }

    /// A process has closed a descriptor of a file: it holds no ranges of it.
    pub fn flushed(&self, node: u64, owner: u64) {
        self.change(node, |key, _| *key != (owner, false));
    }

    /// An open file was closed for the last time.
    pub fn released(&self, node: u64, handle: u64, owner: Option<u64>) {
        self.change(node, |(one, is_whole), held| match is_whole {
            true => Some(*one) != owner,
            false => held.handle != handle,
        });
    }

    /// Keeps the locks of a file for which `keeps` says so.
    fn change(&self, node: u64, mut keeps: impl FnMut(&OwnerKey, &mut HeldByOwner) -> bool) {
        let mut state = self.state();
        let HeldState { files, owners, .. } = &mut *state;
        let Some(held) = files.get_mut(&node) else { return };
        let before = held.owners.len();
        held.owners.retain(|key, held| keeps(key, held));
        *owners -= before - held.owners.len();
        if held.owners.is_empty() {
            files.remove(&node);
        }
    }

    /// The locks that another instance than this one has set, to be claimed.
    pub fn of_others(&self, instance: u64) -> Vec<HeldLock> {
        let state = self.state();
        let mut found = Vec::new();
        for (node, HeldFile { file, owners }) in &state.files {
            let others = owners.iter().filter(|(_, held)| held.instance != instance);
            for ((owner, is_whole), held) in others {
                found.extend(held.ranges.iter().map(|one| {
                    let RangeLock { range, kind, pid, .. } = *one;
                    HeldLock {
                        who: held.who.clone(),
                        node: *node,
                        handle: held.handle,
                        file: file.clone(),
                        lock: FileLock { owner: *owner, range, kind, pid, is_whole: *is_whole },
                        instance: held.instance,
                    }
                }));
            }
        }
        found
    }

    /// A lock was claimed. Returns whether it is still held; otherwise the owner has to free it.
    pub fn is_held(&self, claimed: &HeldLock) -> bool {
        let state = self.state();
        let key = (claimed.lock.owner, claimed.lock.is_whole);
        let held = state.files.get(&claimed.node).and_then(|file| file.owners.get(&key));
        let (from, last) = claimed.lock.range;
        let is_that = |one: &RangeLock| one.range.0 <= from && last <= one.range.1;
        held.is_some_and(|held| {
            held.instance == claimed.instance && held.ranges.iter().any(is_that)
        })
    }

    /// All of these locks were claimed by this instance.
    pub fn claimed(&self, all: &[HeldLock], instance: u64) {
        let mut state = self.state();
        for HeldLock { node, lock, instance: before, .. } in all {
            let held = state.files.get_mut(node);
            let held = held.and_then(|held| held.owners.get_mut(&(lock.owner, lock.is_whole)));
            if let Some(held) = held.filter(|held| held.instance == *before) {
                held.instance = instance;
            }
        }
    }

    /// The locks that another instance than this one has set are lost.
    pub fn lost(&self, instance: u64) {
        let nodes: Vec<u64> = self.state().files.keys().copied().collect();
        for node in nodes {
            self.change(node, |_, held| held.instance == instance);
        }
    }

    /// How many owners of locks there are.
    pub fn count(&self) -> u64 {
        self.state().owners as u64
    }

    /// Whether the task goes on that keeps the locks. If not, the next lock starts another one.
    pub fn goes_on(&self) -> bool {
        let mut state = self.state();
        state.is_kept = !state.files.is_empty();
        state.is_kept
    }

    /// The view has ended.
    pub fn ended(&self) {
        *self.state() = HeldState { is_over: true, ..HeldState::default() };
    }
}

fn range_of(lock: &FileLock) -> RangeLock {
    let FileLock { owner, kind, pid, is_whole, .. } = *lock;
    let range = if is_whole && kind != FileLockKind::None { (0, u64::MAX) } else { lock.range };
    RangeLock { owner: LockOwner { client: 0, owner }, range, kind, pid }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::{GRACE, Grace};
    use fastrand::Rng;
    use std::time::{Duration, Instant};

    const CLIENTS: usize = 3;
    const FILES: u64 = 2;

    fn exclusive(owner: u64) -> FileLock {
        let kind = FileLockKind::Exclusive;
        FileLock { owner, range: (0, u64::MAX), kind, pid: 1, is_whole: true }
    }

    fn file(node: u64) -> LockedFile {
        LockedFile { path: vec![node as u8], id: ((1, node), None), access: 0 }
    }

    /// The owner's server. It frees the locks of a client that is cut off.
    struct Owner {
        grace: Grace,
        instances: [Option<u64>; CLIENTS],
        last: u64,
        locks: FxHashMap<u64, usize>,
        now: Instant,
    }

    impl Owner {
        fn new(now: Instant) -> Self {
            let (grace, locks) = (Grace::Unknown, FxHashMap::default());
            Self { grace, instances: [None; CLIENTS], last: 0, locks, now }
        }

        fn restart(&mut self) {
            let last = self.last;
            *self = Self { last, ..Self::new(self.now) };
        }

        fn instance(&mut self, client: usize, is_successor: bool) -> u64 {
            let (last, now) = (&mut self.last, self.now);
            let grace = &mut self.grace;
            *self.instances[client].get_or_insert_with(|| {
                grace.client_came(|| is_successor, now);
                *last += 1;
                *last
            })
        }

        fn set(&mut self, client: usize, node: u64, is_claim: bool) -> bool {
            if self.grace.is_on(self.now) != is_claim {
                return false;
            }
            *self.locks.entry(node).or_insert(client) == client
        }

        fn leaves(&mut self, client: usize) {
            self.instances[client] = None;
            self.locks.retain(|_, holder| *holder != client);
        }
    }

    struct World {
        owner: Owner,
        was_restarted: bool,
        clients: [HeldLocks; CLIENTS],
        cut: [bool; CLIENTS],
        lost: usize,
    }

    impl World {
        fn lock(&mut self, client: usize, node: u64) {
            let instance = self.owner.instance(client, self.was_restarted);
            if self.owner.set(client, node, false) {
                let who = FileCaller::default();
                let set = LockSet { who: &who, node, handle: instance, lock: exclusive(1) };
                self.clients[client].locked(&set, instance, Some(file(node)));
            }
        }

        /// What the task of a client does.
        fn keep(&mut self, client: usize) {
            let instance = self.owner.instance(client, self.was_restarted);
            let all = self.clients[client].of_others(instance);
            if all.iter().all(|held| self.owner.set(client, held.node, true)) {
                return self.clients[client].claimed(&all, instance);
            }
            // All open files of the client fail from now on.
            self.clients[client].lost(instance);
            self.lost += 1;
        }

        /// Those that hold the lock, and of them those whose open files have not failed.
        fn holders(&self, node: u64) -> (Vec<usize>, Vec<usize>) {
            let holds = |client: &usize| self.clients[*client].state().files.contains_key(&node);
            let all: Vec<usize> = (0..CLIENTS).filter(holds).collect();
            let has_files = |client: &&usize| {
                let held = &self.clients[**client].state().files[&node];
                self.owner.instances[**client] == Some(held.owners[&(1, true)].instance)
            };
            let alive = all.iter().filter(has_files).copied().collect();
            (all, alive)
        }

        fn check(&self, seed: u64) {
            for node in 0..FILES {
                let (_, alive) = self.holders(node);
                assert!(alive.len() <= 1, "seed {seed}: {alive:?} hold {node}");
                for holder in alive {
                    assert_eq!(self.owner.locks.get(&node), Some(&holder), "seed {seed}");
                }
            }
        }
    }

    fn world() -> World {
        let owner = Owner::new(Instant::now());
        let (clients, cut) = (Default::default(), [false; CLIENTS]);
        World { owner, was_restarted: false, clients, cut, lost: 0 }
    }

    #[test]
    fn lock_has_one_holder_whose_files_work() {
        let mut lost = 0;
        for seed in 0..500 {
            let (mut random, mut world) = (Rng::with_seed(seed), world());
            for _ in 0..200 {
                let (client, node) = (random.usize(..CLIENTS), random.u64(..FILES));
                match random.u8(..20) {
                    0 => (world.was_restarted, _) = (true, world.owner.restart()),
                    1 => {
                        world.cut[client] ^= true;
                        world.owner.leaves(client);
                    }
                    2..6 => world.owner.now += random.u32(..10) * Duration::from_millis(500),
                    6..9 => {
                        let held = &world.clients[client];
                        held.unlocked(node, &FileLock { kind: FileLockKind::None, ..exclusive(1) });
                        if !world.cut[client] && world.owner.locks.get(&node) == Some(&client) {
                            world.owner.locks.remove(&node);
                        }
                    }
                    _ if world.cut[client] => {}
                    9..14 => world.lock(client, node),
                    _ => world.keep(client),
                }
                world.check(seed);
            }
            lost += world.lost;
        }
        assert!(lost > 100, "{lost}");
    }

    #[test]
    fn lock_survives_restarts_when_claimed_within_the_grace() {
        for seed in 0..200 {
            let (mut random, mut world) = (Rng::with_seed(seed), world());
            for node in 0..FILES {
                world.lock(0, node);
            }
            for _ in 0..5 {
                world.owner.restart();
                world.was_restarted = true;
                // Others come first, and ask for the locks.
                for _ in 0..random.usize(..20) {
                    world.lock(1 + random.usize(..2), random.u64(..FILES));
                    world.owner.now += random.u32(..10) * GRACE / 200;
                }
                world.keep(0);
                world.owner.now += GRACE;
                world.lock(1, random.u64(..FILES));
                world.check(seed);
                assert!((0..FILES).all(|node| world.holders(node) == (vec![0], vec![0])));
            }
            assert_eq!(world.lost, 0, "seed {seed}");
        }
    }

    #[test]
    fn locks_that_are_freed_are_not_claimed() {
        let held = HeldLocks::default();
        let who = FileCaller::default();
        let range = |owner, range| FileLock { owner, range, is_whole: false, ..exclusive(owner) };
        let set = |node, handle, lock| {
            held.locked(&LockSet { who: &who, node, handle, lock }, 1, Some(file(node)))
        };
        assert_eq!(held.wants_file(1), Ok(true));
        assert!(set(1, 7, range(5, (0, 9))), "somebody has to keep it");
        assert!(!set(1, 7, exclusive(6)) && !set(2, 8, range(5, (0, 9))));
        assert_eq!(held.wants_file(1), Ok(false));
        let free = FileLock { kind: FileLockKind::None, ..range(5, (2, 3)) };
        held.unlocked(1, &free);
        let ranges = |node| {
            let all = held.of_others(2).into_iter().filter(|one| one.node == node);
            let mut found: Vec<_> = all.map(|one| (one.lock.is_whole, one.lock.range)).collect();
            found.sort_unstable();
            found
        };
        assert_eq!(ranges(1), [(false, (0, 1)), (false, (4, 9)), (true, (0, u64::MAX))]);
        assert_eq!(held.of_others(1), []);
        held.flushed(1, 5);
        assert_eq!(ranges(1), [(true, (0, u64::MAX))]);
        held.released(2, 8, None);
        held.released(1, 7, Some(6));
        assert_eq!(held.of_others(2), []);
        assert!(!held.goes_on() && set(1, 7, exclusive(6)));
        held.ended();
        assert!(!set(1, 7, exclusive(6)), "nobody keeps locks of a view that has ended");
    }
}
