//! Threads that work for a service where calls may block.
//!
//! As many requests are worked on at once as there are cores. One that has been at work for longer
//! than a moment does not count: it may hang in a call to the system, on a disk that is frozen say,
//! and others must not wait for it. Threads that hang are not got back, so there is a bound to how
//! many there may be; once all of them hang, requests are refused. So they are where the system
//! gives no thread, and none that is there will soon be free.
use sheaf_core::lock;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The most threads of a pool. When all hang, further work is refused.
pub const THREADS_MAX: usize = 64;

/// How long a request counts as one that is about to be done.
const PATIENCE: Duration = Duration::from_millis(50);

/// Who gives no sign of life for so long hangs.
const HUNG: Duration = Duration::from_secs(2);

/// How long a thread without work stays: an idle server has none.
const KEEP_ALIVE: Duration = Duration::from_secs(2);

/// What a thread can do.
pub trait Work: Send + Sized + 'static {
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
    /// Signs of life.
    beats: AtomicU64,
}

struct PoolState<W> {
    /// By number, in the order in which they came.
    waiting: BTreeMap<u64, W>,
    /// How much has come.
    come: u64,
    /// Since when each thread has been at what it is at.
    threads: BTreeMap<u64, Instant>,
    /// The last thread's number; each gets another one when it works again after a rest.
    started: u64,
    /// How much they have taken up.
    taken: u64,
    /// Threads that rest, and the places of those of them that are to work again.
    resting: usize,
    given: VecDeque<u64>,
    /// A thread looks after what waits.
    watched: bool,
}

/// A thread's place among the others; left when it is dropped.
struct PoolPlace<W: Work> {
    pool: Arc<Pool<W>>,
    id: u64,
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
            beats: AtomicU64::new(0),
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

    /// Some thread is not hanging.
    pub fn beat(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
    }

    /// Has it done.
    ///
    /// # Errors
    /// The work itself, when there is nobody to do it.
    pub fn spawn(self: &Arc<Self>, work: W) -> Result<(), W> {
        let mut state = self.state();
        state.come += 1;
        let number = state.come;
        state.waiting.insert(number, work);
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
        state.waiting.remove(&number).map_or(Ok(()), Err)
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
        let count = room.min(state.waiting.len()) as u64;
        let places = state.started + 1..=state.started + count;
        state.started += count;
        state.threads.extend(places.clone().map(|place| (place, now)));
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
        let (mut seen, mut since) = ((0, 0), Instant::now());
        loop {
            std::thread::sleep(PATIENCE);
            let (mut state, now) = (self.state(), Instant::now());
            if state.waiting.is_empty() {
                state.watched = false;
                return;
            }
            let places = self.places(&mut state, now);
            drop(state);
            let is_short = !self.start(places);
            let mut state = self.state();
            let is_full = is_short || state.threads.len() >= self.threads_max;
            let life = (state.taken, self.beats.load(Ordering::Relaxed));
            if life != std::mem::replace(&mut seen, life) || !is_full {
                since = now;
            }
            let is_nobody_left = is_short && state.threads.is_empty();
            let refused = if is_nobody_left || now.duration_since(since) >= HUNG {
                std::mem::take(&mut state.waiting)
            } else {
                BTreeMap::new()
            };
            drop(state);
            for (number, work) in refused {
                if let Some(work) = work.refuse() {
                    self.state().waiting.insert(number, work);
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
            taken: 0,
            resting: 0,
            given: VecDeque::new(),
            watched: false,
        }
    }
}

impl<W> PoolState<W> {
    /// How many threads are at something that will soon be done.
    fn busy(&self, now: Instant) -> usize {
        self.threads.values().filter(|since| now.duration_since(**since) < PATIENCE).count()
    }
}

impl<W: Work> PoolPlace<W> {
    /// What waits longest; when nothing does, the place is left, so that whoever comes then starts
    /// a thread.
    fn take(&self) -> Option<W> {
        let mut state = self.pool.state();
        let Some((_, work)) = state.waiting.pop_first() else {
            state.threads.remove(&self.id);
            state.resting += 1;
            return None;
        };
        state.taken += 1;
        state.threads.insert(self.id, Instant::now());
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
    use std::sync::mpsc::{Receiver, Sender, channel};

    enum Task {
        /// Hangs until the other end is gone.
        Hang(Receiver<()>),
        Say(Sender<bool>),
    }

    impl Work for Task {
        fn run(self) {
            match self {
                Self::Hang(until) => drop(until.recv()),
                Self::Say(to) => to.send(true).unwrap(),
            }
        }

        fn refuse(self) -> Option<Self> {
            if let Self::Say(to) = self {
                to.send(false).unwrap();
            }
            None
        }
    }

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
            let none_left = |_| io::Error::from_raw_os_error(sheaf_core::Errno::AGAIN.0);
            let less = |left: usize| left.checked_sub(1);
            counted.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).map_err(none_left)?;
            std::thread::spawn(task);
            Ok(())
        };
        (Pool::with(at_once.into(), threads_max, Box::new(begin)), left)
    }

    fn said(pool: &Arc<Pool<Task>>) -> bool {
        let (to, said) = channel();
        if let Err(refused) = pool.spawn(Task::Say(to)) {
            refused.refuse();
        }
        said.recv_timeout(SOON).unwrap()
    }

    fn hang(pool: &Arc<Pool<Task>>) -> Sender<()> {
        let (until, hangs) = channel();
        assert!(pool.spawn(Task::Hang(hangs)).is_ok());
        until
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
        let until = hang(&pool);
        let (to, said) = channel();
        assert!(pool.spawn(Task::Say(to)).is_ok());
        let begun = Instant::now();
        while begun.elapsed() < HUNG * 2 {
            pool.beat();
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
        assert!(matches!(pool.spawn(Task::Say(to)), Err(Task::Say(_))));
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
        assert!(pool.spawn(Task::Say(to)).is_ok(), "it may soon be done");
        drop(short);
        assert!(said.recv_timeout(SOON).unwrap());
        let _until = hang(&pool);
        let begun = Instant::now();
        while begun.elapsed() < SOON {
            let (to, _) = channel();
            if pool.spawn(Task::Say(to)).is_err() {
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
