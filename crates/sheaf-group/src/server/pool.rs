//! The threads that work for the servers of a process.
//!
//! As many requests are worked on at once as there are cores. One that has been at work for longer than a
//! moment does not count: it may hang in a call to the system, on a disk that is frozen say, and others
//! must not wait for it. Threads that hang are not got back, so there is a bound to how many there may be;
//! once all of them hang, requests are refused.
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// The most threads that work for the servers of one process. When all hang, further requests fail with
/// `EAGAIN`.
pub const THREADS_MAX: usize = 64;

/// How long a request counts as one that is about to be done.
const PATIENCE: Duration = Duration::from_millis(50);

/// Who gives no sign of life for so long hangs.
const HUNG: Duration = Duration::from_secs(2);

/// What a thread can do.
pub(super) trait Work: Send + 'static {
    /// Does it.
    fn run(self);

    /// Refuses it, as nobody can do it.
    fn refuse(self);
}

/// The threads, and what waits for one.
pub(super) struct Pool<W> {
    /// Asked for by the first work: it takes many system calls, and a server that starts has none yet.
    at_once: OnceLock<usize>,
    threads_max: usize,
    state: Mutex<State<W>>,
    /// Signs of life.
    beats: AtomicU64,
}

struct State<W> {
    waiting: VecDeque<(W, Handle)>,
    /// Since when each thread has been at what it is at.
    threads: BTreeMap<u64, Instant>,
    /// How many threads were started, and how much they have taken up.
    started: u64,
    taken: u64,
    /// A thread looks after what waits.
    watched: bool,
}

/// A thread's place among the others; left when it is dropped.
struct Place<W: Work> {
    pool: Arc<Pool<W>>,
    id: u64,
}

impl<W: Work> Pool<W> {
    pub fn new() -> Arc<Self> {
        Self::with(OnceLock::new(), THREADS_MAX)
    }

    fn with(at_once: OnceLock<usize>, threads_max: usize) -> Arc<Self> {
        let state = State {
            waiting: VecDeque::new(),
            threads: BTreeMap::new(),
            started: 0,
            taken: 0,
            watched: false,
        };
        Arc::new(Self { at_once, threads_max, state: Mutex::new(state), beats: AtomicU64::new(0) })
    }

    fn at_once(&self) -> usize {
        *self.at_once.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from).max(2))
    }

    fn state(&self) -> MutexGuard<'_, State<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Some thread is not hanging.
    pub fn beat(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
    }

    /// Has it done, on a thread of `runtime` that may block.
    pub fn spawn(self: &Arc<Self>, work: W, runtime: &Handle) {
        let mut state = self.state();
        state.waiting.push_back((work, runtime.clone()));
        let places = self.places(&mut state, Instant::now());
        let watch = places.is_empty() && !std::mem::replace(&mut state.watched, true);
        drop(state);
        start(places);
        if watch {
            let pool = Arc::clone(self);
            let watch = move || pool.watch();
            if std::thread::Builder::new().name("sheaf-pool".to_owned()).spawn(watch).is_err() {
                // What waits has to wait until one of the others is done.
                self.state().watched = false;
            }
        }
    }

    /// The threads that are to be started for what waits.
    fn places(self: &Arc<Self>, state: &mut State<W>, now: Instant) -> Vec<(Place<W>, Handle)> {
        let busy = state.threads.values().filter(|since| now.duration_since(**since) < PATIENCE).count();
        let room = self.at_once().saturating_sub(busy).min(self.threads_max - state.threads.len());
        let runtimes: Vec<Handle> =
            state.waiting.iter().take(room).map(|(_, runtime)| runtime.clone()).collect();
        let mut place = |runtime| {
            state.started += 1;
            let id = state.started;
            state.threads.insert(id, now);
            (Place { pool: Arc::clone(self), id }, runtime)
        };
        runtimes.into_iter().map(&mut place).collect()
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
            let life = (state.taken, self.beats.load(Ordering::Relaxed));
            if life != std::mem::replace(&mut seen, life) || state.threads.len() < self.threads_max {
                since = now;
            }
            let refused = if now.duration_since(since) < HUNG {
                VecDeque::new()
            } else {
                std::mem::take(&mut state.waiting)
            };
            drop(state);
            start(places);
            refused.into_iter().for_each(|(work, _)| work.refuse());
        }
    }
}

fn start<W: Work>(places: Vec<(Place<W>, Handle)>) {
    for (place, runtime) in places {
        runtime.spawn_blocking(move || place.work());
    }
}

impl<W: Work> Place<W> {
    fn work(self) {
        while let Some(work) = self.take() {
            work.run();
        }
    }

    /// What waits longest; when nothing does, the place is left, so that whoever comes then starts a
    /// thread.
    fn take(&self) -> Option<W> {
        let mut state = self.pool.state();
        let Some((work, _)) = state.waiting.pop_front() else {
            state.threads.remove(&self.id);
            return None;
        };
        state.taken += 1;
        state.threads.insert(self.id, Instant::now());
        Some(work)
    }
}

impl<W: Work> Drop for Place<W> {
    fn drop(&mut self) {
        self.pool.state().threads.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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

        fn refuse(self) {
            if let Self::Say(to) = self {
                to.send(false).unwrap();
            }
        }
    }

    const SOON: Duration = Duration::from_secs(30);

    /// Those that hang keep nobody from work but by the bound, and those that come back make room.
    #[test]
    fn threads_that_hang_hold_nobody_up_until_all_do() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let pool = Pool::with(2.into(), 5);
        let say = || {
            let (to, said) = channel();
            pool.spawn(Task::Say(to), runtime.handle());
            said.recv_timeout(SOON).unwrap()
        };
        let mut hung = Vec::new();
        for _ in 0..4 {
            let (until, hangs) = channel();
            pool.spawn(Task::Hang(hangs), runtime.handle());
            hung.push(until);
            assert!(say());
        }
        let (until, hangs) = channel();
        pool.spawn(Task::Hang(hangs), runtime.handle());
        assert!(!say(), "all five hang");
        drop(until);
        assert!(say());
        drop(hung);
        assert!(say());
    }

    /// Whoever is at work is waited for, however long it takes.
    #[test]
    fn nobody_is_refused_while_somebody_shows_life() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let pool = Pool::with(1.into(), 1);
        let (until, hangs) = channel();
        pool.spawn(Task::Hang(hangs), runtime.handle());
        let (to, said) = channel();
        pool.spawn(Task::Say(to), runtime.handle());
        let begun = Instant::now();
        while begun.elapsed() < HUNG * 2 {
            pool.beat();
            assert!(said.recv_timeout(PATIENCE).is_err());
        }
        drop(until);
        assert!(said.recv_timeout(SOON).unwrap());
    }
}
