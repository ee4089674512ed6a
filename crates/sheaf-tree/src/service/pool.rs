//! Threads that work for a service where calls may block.
//!
//! As many requests are worked on at once as there are cores. One that has been at work for longer
//! than a moment does not count: it may hang in a call to the system, on a disk that is frozen say,
//! and others must not wait for it. Threads that hang are not got back, so there is a bound to how
//! many there may be; once all of them hang, requests are refused. So they are where the system
//! gives no thread, and none that is there will soon be free.
//!
//! A user that is not the server's has a share of the threads, and so has each file system, so that
//! neither a user nor a disk that hangs takes the threads of all others. Beyond a user's share its
//! work waits, and is refused once the share hangs. A thread that is about to work in a file system
//! in which a share hangs waits a little and is refused ([`sheaf_core::place`]). The next free
//! thread is for the user with the fewest.
use sheaf_core::place::{self, Worker};
use sheaf_core::{Errno, lock};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The most threads of a pool. When all hang, further work is refused.
pub const THREADS_MAX: usize = 64;

/// The most of them that work for one user which is not the server's: a quarter. All such users
/// together have three quarters.
pub const USER_THREADS_MAX: usize = THREADS_MAX / USER_PART;
const USER_PART: usize = 4;

/// How much of such a user may wait for a thread.
const USER_WAITING_MAX: usize = 1024;

/// The part of the threads, and of the share of a user, that may hang in one file system: the half.
const FILE_SYSTEM_PART: usize = 2;

/// How long a request counts as one that is about to be done.
const PATIENCE: Duration = Duration::from_millis(50);

/// Who gives no sign of life for so long hangs.
const HUNG: Duration = Duration::from_secs(2);

/// How long a thread without work stays: an idle server has none.
const KEEP_ALIVE: Duration = Duration::from_secs(2);

/// No file system.
const NO_DEVICE: u64 = u64::MAX;

/// What a thread can do.
pub trait Work: Send + Sized + 'static {
    /// The user, or the client, whose share of the threads it takes; `None` is the server's user,
    /// which has all.
    fn user(&self) -> Option<u64> {
        None
    }

    /// Does it.
    fn run(self);

    /// Refuses it, as nobody can do it; given back is what has to be done all the same.
    fn refuse(self) -> Option<Self>;
}

/// What a new thread does.
type Task = Box<dyn FnOnce() + Send>;

/// Starts threads.
type Begin = Box<dyn Fn(Task) -> io::Result<()> + Send + Sync>;

/// The threads, and what waits for one.
pub struct Pool<W> {
    /// Asked for by the first work: it takes many system calls, and a server that starts has none
    /// yet.
    at_once: OnceLock<usize>,
    threads_max: usize,
    begin: Begin,
    state: Mutex<PoolState<W>>,
    /// A place was given to threads that rest.
    given: Condvar,
    /// No thread is at work any more.
    done: Condvar,
}

struct PoolState<W> {
    /// By user, with their numbers, in the order in which they came. No queue is empty.
    waiting: BTreeMap<Option<u64>, VecDeque<(u64, W)>>,
    /// How much has come.
    come: u64,
    /// Those that are at work, by their places.
    threads: BTreeMap<u64, PoolThread>,
    /// The last thread's number; each gets another one when it works again after a rest.
    started: u64,
    /// Threads that rest, and the places of those of them that are to work again.
    resting: usize,
    given: VecDeque<u64>,
    /// A thread looks after what waits.
    watched: bool,
}

/// A thread at work.
struct PoolThread {
    /// Since when it has been at what it is at.
    since: Instant,
    /// The user that it works for, once it has taken work.
    user: Option<Option<u64>>,
    life: Arc<Life>,
}

/// What is seen of a thread while it works.
struct Life {
    /// Its last sign of life, in milliseconds since the first of all.
    at_ms: AtomicU64,
    /// The file system that it works in, where that is known.
    device: AtomicU64,
}

impl Life {
    fn new() -> Self {
        Self { at_ms: now_ms().into(), device: NO_DEVICE.into() }
    }

    fn show(&self) {
        self.at_ms.store(now_ms(), Ordering::Relaxed);
    }

    /// Whether there was no sign for so long.
    fn is_silent(&self, time: Duration) -> bool {
        let ms = now_ms().saturating_sub(self.at_ms.load(Ordering::Relaxed));
        Duration::from_millis(ms) >= time
    }
}

fn now_ms() -> u64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    FIRST.get_or_init(Instant::now).elapsed().as_millis() as u64
}

/// A thread's place among the others; left when it is dropped.
struct PoolPlace<W: Work> {
    pool: Arc<Pool<W>>,
    id: u64,
}

/// A thread at work, to what runs there.
struct PoolWorker<W> {
    pool: Arc<Pool<W>>,
    life: Arc<Life>,
}

impl<W: Work> Worker for PoolWorker<W> {
    fn show_life(&self) {
        self.life.show();
    }

    fn enter(&self, device: u64) -> Result<(), Errno> {
        self.enter_within(device, HUNG)
    }

    fn enter_now(&self, device: u64) -> Result<(), Errno> {
        self.enter_within(device, Duration::ZERO)
    }
}

impl<W> PoolWorker<W> {
    fn enter_within(&self, device: u64, patience: Duration) -> Result<(), Errno> {
        self.life.show();
        if self.life.device.load(Ordering::Relaxed) == device {
            return Ok(());
        }
        self.life.device.store(NO_DEVICE, Ordering::Relaxed);
        let begun = Instant::now();
        while !lock(&self.pool.state).may_enter(device, &self.life, self.pool.threads_max) {
            if begun.elapsed() >= patience {
                return Err(Errno::AGAIN);
            }
            std::thread::sleep(PATIENCE);
            self.life.show();
        }
        self.life.device.store(device, Ordering::Relaxed);
        Ok(())
    }
}

impl<W: Work> Pool<W> {
    /// One without threads so far, of which it will have [`THREADS_MAX`] at most.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let begin =
            |task| std::thread::Builder::new().name("sheaf-work".to_owned()).spawn(task).map(drop);
        Self::with(OnceLock::new(), THREADS_MAX, Box::new(begin))
    }

    fn with(at_once: OnceLock<usize>, threads_max: usize, begin: Begin) -> Arc<Self> {
        Arc::new(Self {
            at_once,
            threads_max,
            begin,
            state: Mutex::new(PoolState::default()),
            given: Condvar::new(),
            done: Condvar::new(),
        })
    }

    fn at_once(&self) -> usize {
        *self
            .at_once
            .get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from).max(2))
    }

    fn state(&self) -> MutexGuard<'_, PoolState<W>> {
        lock(&self.state)
    }

    /// Whether no more of this user's is to wait for a thread.
    pub fn is_full_for(&self, user: Option<u64>) -> bool {
        let waiting = || self.state().waiting.get(&user).map_or(0, VecDeque::len);
        user.is_some() && waiting() >= USER_WAITING_MAX
    }

    /// Has it done.
    ///
    /// # Errors
    /// The work itself, when there is nobody to do it.
    pub fn spawn(self: &Arc<Self>, work: W) -> Result<(), W> {
        let mut state = self.state();
        state.come += 1;
        let number = state.come;
        let user = work.user();
        state.waiting.entry(user).or_default().push_back((number, work));
        let places = self.places(&mut state, Instant::now());
        drop(state);
        if !places.is_empty() && self.start(places) {
            return Ok(());
        }
        let is_anybody_at_work = !self.state().threads.is_empty();
        if is_anybody_at_work && self.watch_over() {
            return Ok(());
        }
        let mut state = self.state();
        if state.busy(Instant::now()) > 0 {
            // Who is about to be done takes it up.
            return Ok(());
        }
        state.remove(user, number).map_or(Ok(()), Err)
    }

    /// Waits until everything is done, but for no longer than `patience`.
    pub fn settle(&self, patience: Duration) {
        let is_at_work =
            |state: &mut PoolState<W>| !state.threads.is_empty() || !state.waiting.is_empty();
        drop(self.done.wait_timeout_while(self.state(), patience, is_at_work));
    }

    /// Places of further threads that are to work on what waits.
    fn places(&self, state: &mut PoolState<W>, now: Instant) -> Vec<u64> {
        let room = self
            .at_once()
            .saturating_sub(state.busy(now))
            .min(self.threads_max - state.threads.len());
        let count = room.min(state.ready(self.threads_max)) as u64;
        let places = state.started + 1..=state.started + count;
        state.started += count;
        let begun = || PoolThread { since: now, user: None, life: Arc::new(Life::new()) };
        state.threads.extend(places.clone().map(|place| (place, begun())));
        places.collect()
    }

    /// Gives places to threads that rest, or else to new ones; returns whether all have somebody.
    fn start(self: &Arc<Self>, places: Vec<u64>) -> bool {
        let mut all = true;
        for place in places {
            let mut state = self.state();
            if state.resting > state.given.len() {
                state.given.push_back(place);
                drop(state);
                self.given.notify_one();
                continue;
            }
            drop(state);
            let pool = Arc::clone(self);
            if (self.begin)(Box::new(move || pool.keep(place))).is_err() {
                self.state().threads.remove(&place);
                all = false;
            }
        }
        all
    }

    /// What a thread does from its beginning to its end.
    fn keep(self: Arc<Self>, first: u64) {
        let mut given = Some(first);
        while let Some(id) = given {
            let place = PoolPlace { pool: Arc::clone(&self), id };
            let life = self.state().threads.get(&id).map(|thread| Arc::clone(&thread.life));
            if let Some(life) = life {
                place::set_worker(Arc::new(PoolWorker { pool: Arc::clone(&self), life }));
            }
            while let Some(work) = place.take() {
                work.run();
            }
            drop(place);
            given = self.rest();
        }
    }

    /// Waits for another place.
    fn rest(&self) -> Option<u64> {
        let is_idle = |state: &mut PoolState<W>| state.given.is_empty();
        let waited = self.given.wait_timeout_while(self.state(), KEEP_ALIVE, is_idle);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.resting -= 1;
        state.given.pop_front()
    }

    /// Sees to it that a thread looks after what waits; returns whether one does.
    fn watch_over(self: &Arc<Self>) -> bool {
        if std::mem::replace(&mut self.state().watched, true) {
            return true;
        }
        let pool = Arc::clone(self);
        let begun = (self.begin)(Box::new(move || pool.watch())).is_ok();
        if !begun {
            self.state().watched = false;
        }
        begun
    }

    /// Looks after what waits for as long as anything does.
    fn watch(self: Arc<Self>) {
        loop {
            std::thread::sleep(PATIENCE);
            let mut state = self.state();
            if state.waiting.is_empty() {
                state.watched = false;
                return;
            }
            let places = self.places(&mut state, Instant::now());
            drop(state);
            let is_short = !self.start(places);
            let mut state = self.state();
            let is_full = is_short || state.threads.len() >= self.threads_max;
            let refused = state.take_stuck(self.threads_max, is_full);
            drop(state);
            for (number, work) in refused {
                let user = work.user();
                if let Some(work) = work.refuse() {
                    self.state().waiting.entry(user).or_default().push_back((number, work));
                }
            }
        }
    }
}

impl<W> Default for PoolState<W> {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            come: 0,
            threads: BTreeMap::new(),
            started: 0,
            resting: 0,
            given: VecDeque::new(),
            watched: false,
        }
    }
}

impl<W> PoolState<W> {
    /// How many threads are at something that will soon be done.
    fn busy(&self, now: Instant) -> usize {
        let is_busy = |thread: &&PoolThread| now.duration_since(thread.since) < PATIENCE;
        self.threads.values().filter(is_busy).count()
    }

    /// The threads that hang in a file system, or are about to.
    fn hung_in(&self, device: u64) -> impl Iterator<Item = &PoolThread> {
        let is_there = move |life: &Life| life.device.load(Ordering::Relaxed) == device;
        let threads = self.threads.values();
        threads.filter(move |PoolThread { life, .. }| is_there(life) && life.is_silent(PATIENCE))
    }

    /// Whether the thread with this life may work in a file system: of all threads, and of those of
    /// its user, not too many hang there.
    fn may_enter(&self, device: u64, life: &Arc<Life>, threads_max: usize) -> bool {
        if self.hung_in(device).count() >= threads_max / FILE_SYSTEM_PART {
            return false;
        }
        let own = self.threads.values().find(|thread| Arc::ptr_eq(&thread.life, life));
        let Some(user @ Some(Some(_))) = own.map(|thread| thread.user) else { return true };
        let share = (threads_max / USER_PART / FILE_SYSTEM_PART).max(1);
        self.hung_in(device).filter(|thread| thread.user == user).count() < share
    }

    /// The threads that work for a user.
    fn of(&self, user: Option<u64>) -> impl Iterator<Item = &PoolThread> {
        self.threads.values().filter(move |thread| thread.user == Some(user))
    }

    /// Those that work for users which are not the server's.
    fn of_users(&self) -> impl Iterator<Item = &PoolThread> {
        self.threads.values().filter(|thread| matches!(thread.user, Some(Some(_))))
    }

    /// How many more threads may work for a user, by its own share and by that of all users.
    fn room(&self, user: Option<u64>, threads_max: usize) -> (usize, usize) {
        if user.is_none() {
            return (usize::MAX, usize::MAX);
        }
        let share = (threads_max / USER_PART).max(1);
        let all = (threads_max - share).max(1);
        (share.saturating_sub(self.of(user).count()), all.saturating_sub(self.of_users().count()))
    }

    /// How much could be begun now.
    fn ready(&self, threads_max: usize) -> usize {
        let of_each = self.waiting.iter().map(|(user, queue)| {
            let (own, all) = self.room(*user, threads_max);
            own.min(all).min(queue.len())
        });
        of_each.sum()
    }

    /// What is next: of the user for which the fewest threads work, what waits longest.
    fn take_next(&mut self, threads_max: usize) -> Option<W> {
        let next = self.waiting.iter().filter_map(|(user, queue)| {
            let (own, all) = self.room(*user, threads_max);
            let (number, _) = queue.front().filter(|_| own.min(all) > 0)?;
            Some((self.of(*user).count(), *number, *user))
        });
        let (_, number, user) = next.min()?;
        self.remove(user, number)
    }

    fn remove(&mut self, user: Option<u64>, number: u64) -> Option<W> {
        let queue = self.waiting.get_mut(&user)?;
        let at = queue.iter().position(|(other, _)| *other == number)?;
        let removed = queue.remove(at).map(|(_, work)| work);
        if queue.is_empty() {
            self.waiting.remove(&user);
        }
        removed
    }

    /// Takes out what waits for threads of which all hang.
    fn take_stuck(&mut self, threads_max: usize, is_full: bool) -> Vec<(u64, W)> {
        let hangs = |thread: &PoolThread| thread.life.is_silent(HUNG);
        let is_stuck = |user: &Option<u64>| match self.room(*user, threads_max) {
            (0, _) => self.of(*user).all(hangs),
            (_, 0) => self.of_users().all(hangs),
            _ => is_full && self.threads.values().all(hangs),
        };
        let stuck: Vec<_> = self.waiting.keys().copied().filter(is_stuck).collect();
        stuck.iter().filter_map(|user| self.waiting.remove(user)).flatten().collect()
    }
}

impl<W: Work> PoolPlace<W> {
    /// What waits longest; when nothing does, the place is left, so that whoever comes then starts
    /// a thread.
    fn take(&self) -> Option<W> {
        let mut state = self.pool.state();
        // What it has done counts no more.
        let old = state.threads.remove(&self.id);
        let Some(work) = state.take_next(self.pool.threads_max) else {
            state.resting += 1;
            return None;
        };
        let life = old.map_or_else(|| Arc::new(Life::new()), |thread| thread.life);
        life.show();
        life.device.store(NO_DEVICE, Ordering::Relaxed);
        let thread = PoolThread { since: Instant::now(), user: Some(work.user()), life };
        state.threads.insert(self.id, thread);
        Some(work)
    }
}

impl<W: Work> Drop for PoolPlace<W> {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        state.threads.remove(&self.id);
        if state.threads.is_empty() {
            self.pool.done.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

    enum Task {
        /// Hangs until the other end is gone.
        Hang(Receiver<()>, Option<u64>),
        Say(Sender<bool>, Option<u64>),
        /// The same in the file system of a device, if it may go there.
        HangIn(Receiver<()>, u64, Option<u64>),
        SayIn(Sender<bool>, u64, Option<u64>),
        /// Works until the other end is gone.
        Live(Receiver<()>),
    }

    impl Work for Task {
        fn user(&self) -> Option<u64> {
            match self {
                Self::Hang(_, user)
                | Self::Say(_, user)
                | Self::HangIn(_, _, user)
                | Self::SayIn(_, _, user) => *user,
                _ => None,
            }
        }

        fn run(self) {
            match self {
                Self::Hang(until, _) => _ = until.recv(),
                Self::Say(to, _) => to.send(true).unwrap(),
                Self::HangIn(until, device, _) => {
                    if place::enter(device).is_ok() {
                        let _ = until.recv();
                    }
                }
                Self::SayIn(to, device, _) => to.send(place::enter(device).is_ok()).unwrap(),
                Self::Live(until) => {
                    let worker = place::worker().unwrap();
                    while until.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                        worker.show_life();
                    }
                }
            }
        }

        fn refuse(self) -> Option<Self> {
            if let Self::Say(to, _) = self {
                to.send(false).unwrap();
            }
            None
        }
    }

    const OWN: Option<u64> = None;

    const SOON: Duration = Duration::from_secs(30);

    /// A pool for which the system has so many threads, all in all.
    fn pool(
        at_once: usize,
        threads_max: usize,
        threads: usize,
    ) -> (Arc<Pool<Task>>, Arc<AtomicUsize>) {
        let left = Arc::new(AtomicUsize::new(threads));
        let counted = Arc::clone(&left);
        let begin = move |task: super::Task| {
            let none_left = |_| io::Error::from_raw_os_error(Errno::AGAIN.0);
            let less = |left: usize| left.checked_sub(1);
            counted.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).map_err(none_left)?;
            std::thread::spawn(task);
            Ok(())
        };
        (Pool::with(at_once.into(), threads_max, Box::new(begin)), left)
    }

    fn said(pool: &Arc<Pool<Task>>) -> bool {
        said_for(pool, OWN)
    }

    fn said_for(pool: &Arc<Pool<Task>>, user: Option<u64>) -> bool {
        let (to, said) = channel();
        if let Err(refused) = pool.spawn(Task::Say(to, user)) {
            refused.refuse();
        }
        said.recv_timeout(SOON).unwrap()
    }

    fn said_in(pool: &Arc<Pool<Task>>, device: u64) -> bool {
        said_in_for(pool, device, OWN)
    }

    fn said_in_for(pool: &Arc<Pool<Task>>, device: u64, user: Option<u64>) -> bool {
        let (to, said) = channel();
        assert!(pool.spawn(Task::SayIn(to, device, user)).is_ok());
        said.recv_timeout(SOON).unwrap()
    }

    fn hang(pool: &Arc<Pool<Task>>) -> Sender<()> {
        hang_for(pool, OWN)
    }

    fn hang_for(pool: &Arc<Pool<Task>>, user: Option<u64>) -> Sender<()> {
        let (until, hangs) = channel();
        assert!(pool.spawn(Task::Hang(hangs, user)).is_ok());
        until
    }

    /// A quarter of eight threads for a user, three quarters for all users.
    #[test]
    fn user_that_hangs_has_its_share_of_threads_only() {
        let (pool, _) = pool(2, 8, usize::MAX);
        let mut hung: Vec<_> = (0..10).map(|_| hang_for(&pool, Some(1))).collect();
        assert!(!said_for(&pool, Some(1)), "its two hang");
        assert!(said_for(&pool, Some(2)) && said(&pool));
        for other in [2, 3] {
            hung.extend((0..10).map(|_| hang_for(&pool, Some(other))));
            assert!(!said_for(&pool, Some(other)));
        }
        assert!(!said_for(&pool, Some(4)), "the six of all users hang");
        let _own = hang(&pool);
        assert!(said(&pool), "two are the server's own user's");
        drop(hung);
        assert!(said_for(&pool, Some(1)) && said_for(&pool, Some(4)));
    }

    #[test]
    fn file_system_that_hangs_has_its_share_of_threads_only() {
        let (pool, _) = pool(2, 8, usize::MAX);
        let mut hung = Vec::new();
        for at in 0..4 {
            let (until, hangs) = channel();
            hung.push(until);
            assert!(pool.spawn(Task::HangIn(hangs, 7, OWN)).is_ok());
            assert!(said(&pool), "{at} hang");
        }
        let begun = Instant::now();
        while said_in(&pool, 7) {
            assert!(begun.elapsed() < SOON, "four hang there");
        }
        assert!(said_in(&pool, 8) && said(&pool));
        drop(hung);
        assert!(said_in(&pool, 7));
    }

    /// The rest of its share is for other file systems.
    #[test]
    fn file_system_that_hangs_has_half_of_a_users_share_only() {
        let (pool, _) = pool(2, 16, usize::MAX);
        let mut hung = Vec::new();
        for at in 0..2 {
            let (until, hangs) = channel();
            hung.push(until);
            assert!(pool.spawn(Task::HangIn(hangs, 7, Some(1))).is_ok());
            assert!(said_for(&pool, Some(1)), "{at} hang");
        }
        let begun = Instant::now();
        while said_in_for(&pool, 7, Some(1)) {
            assert!(begun.elapsed() < SOON, "two hang there");
        }
        assert!(said_in_for(&pool, 8, Some(1)) && said_in_for(&pool, 7, Some(2)));
        drop(hung);
        assert!(said_in_for(&pool, 7, Some(1)));
    }

    /// However much a user has queued before others.
    #[test]
    fn free_thread_goes_to_the_user_with_the_fewest() {
        let (to, _said) = channel();
        let mut state = PoolState::default();
        for (number, user) in [Some(1), Some(1), Some(1), OWN, Some(2), Some(2)].iter().enumerate()
        {
            let work = Task::Say(to.clone(), *user);
            state.waiting.entry(*user).or_default().push_back((number as u64, work));
        }
        let mut taken = Vec::new();
        while let Some(work) = state.take_next(THREADS_MAX) {
            let thread = PoolThread {
                since: Instant::now(),
                user: Some(work.user()),
                life: Arc::new(Life::new()),
            };
            state.threads.insert(taken.len() as u64, thread);
            taken.push(work.user());
        }
        assert_eq!(taken, [Some(1), OWN, Some(2), Some(1), Some(2), Some(1)]);
    }

    /// Those that hang keep nobody from work but by the bound, and those that come back make room.
    #[test]
    fn threads_that_hang_hold_nobody_up_until_all_do() {
        let (pool, _) = pool(2, 5, usize::MAX);
        let mut hung = Vec::new();
        for _ in 0..4 {
            hung.push(hang(&pool));
            assert!(said(&pool));
        }
        let last = hang(&pool);
        assert!(!said(&pool), "all five hang");
        drop(last);
        assert!(said(&pool));
        drop(hung);
        assert!(said(&pool));
    }

    /// Whoever is at work is waited for, however long it takes.
    #[test]
    fn queued_task_is_not_refused_while_workers_make_progress() {
        let (pool, _) = pool(1, 1, usize::MAX);
        let (until, lives) = channel();
        assert!(pool.spawn(Task::Live(lives)).is_ok());
        let (to, said) = channel();
        assert!(pool.spawn(Task::Say(to, OWN)).is_ok());
        let begun = Instant::now();
        while begun.elapsed() < HUNG * 2 {
            assert!(said.recv_timeout(PATIENCE).is_err());
        }
        drop(until);
        assert!(said.recv_timeout(SOON).unwrap());
    }

    /// Work comes back at once where there is no thread, and is done as soon as there is one again.
    #[test]
    fn work_that_no_thread_can_be_had_for_comes_back() {
        let (pool, left) = pool(2, 5, 0);
        let (to, _said) = channel();
        assert!(matches!(pool.spawn(Task::Say(to, OWN)), Err(Task::Say(..))));
        pool.settle(SOON);
        left.store(1, Ordering::SeqCst);
        assert!(said(&pool));
    }

    /// The one thread that there is takes up what comes while it works; what it cannot take up,
    /// because it hangs, comes back.
    #[test]
    fn single_thread_works_for_all_unless_it_hangs() {
        let (pool, _) = pool(2, 5, 1);
        let (to, said) = channel();
        let short = hang(&pool);
        assert!(pool.spawn(Task::Say(to, OWN)).is_ok(), "it may soon be done");
        drop(short);
        assert!(said.recv_timeout(SOON).unwrap());
        let _until = hang(&pool);
        let begun = Instant::now();
        while begun.elapsed() < SOON {
            let (to, _) = channel();
            if pool.spawn(Task::Say(to, OWN)).is_err() {
                return;
            }
        }
        panic!("nobody was there to do it");
    }

    /// One thread after the other is enough for work that comes so.
    #[test]
    fn threads_that_rest_work_again() {
        let (pool, left) = pool(2, 5, 10);
        for _ in 0..100 {
            assert!(said(&pool));
            pool.settle(SOON);
        }
        assert!(left.load(Ordering::SeqCst) > 0);
    }
}
