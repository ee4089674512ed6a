//! The threads of a replay: each does what its recorded threads did, in their order.
use super::ReplaySpeed;
use super::issue::{ReplayIssuer, ReplayProcess};
use super::outcome::ReplayTally;
use sheaf_log::{TraceError, TraceRow};
use sheaf_recorder::IoOp;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Threads of a replay; further recorded threads share these.
pub const REPLAY_THREADS_MAX: usize = 256;
/// Operations that wait for their turn in a thread.
pub const REPLAY_QUEUE_MAX: usize = 1024;

/// An operation for a thread.
pub(super) struct ReplayJob {
    pub op: IoOp,
    pub row: TraceRow,
    pub path: Arc<[u8]>,
    /// Of a rename and a link.
    pub new_path: Option<Arc<[u8]>>,
    pub process: Arc<ReplayProcess>,
    pub is_stdio: bool,
    /// No operation of its process on this path came before it.
    pub is_first: bool,
    /// When it had ended when it was recorded.
    pub end: i64,
}

impl ReplayJob {
    /// Whether it waits until all is done that had ended before it.
    fn waits(&self) -> bool {
        // What another process has opened, and perhaps cut off, its children use.
        self.is_first
            || !(self.op.moves_data() || matches!(self.op, IoOp::Seek | IoOp::Flush | IoOp::Sync))
    }
}

#[derive(Default)]
struct WorkerState {
    queue: VecDeque<ReplayJob>,
    /// When the operation had ended that is being done.
    doing: Option<i64>,
    /// It waits for an operation, or for others.
    is_held: bool,
    /// Its thread has panicked: nothing is done any more.
    is_gone: bool,
}

impl WorkerState {
    /// When the first of its operations had ended that is not done.
    fn front(&self) -> Option<i64> {
        self.doing.or_else(|| self.queue.front().map(|job| job.end))
    }
}

#[derive(Default)]
struct CrewState {
    workers: Vec<WorkerState>,
    turns: Vec<Arc<Condvar>>,
    /// Since the first operation.
    pace: Option<ReplayPace>,
    is_over: bool,
}

impl CrewState {
    /// The earliest ends of what is not done: of all workers, with whose it is, and of all others.
    fn earliest(&self) -> Earliest {
        let mut found = Earliest { worker: usize::MAX, end: i64::MAX, others: i64::MAX };
        for (worker, state) in self.workers.iter().enumerate() {
            let end = state.front().unwrap_or(i64::MAX);
            if end < found.end {
                found = Earliest { worker, end, others: found.end };
            } else {
                found.others = found.others.min(end);
            }
        }
        found
    }

    /// Whether a worker has an operation that may begin. Who is held is so by one with an earlier
    /// end than its own begin: there is always one that is not.
    fn may_begin(&self, worker: usize, earliest: &Earliest) -> bool {
        let others = if earliest.worker == worker { earliest.others } else { earliest.end };
        let front = self.workers[worker].queue.front();
        front.is_some_and(|job| !job.waits() || others >= job.row.time_ns)
    }
}

struct Earliest {
    worker: usize,
    end: i64,
    others: i64,
}

#[derive(Default)]
struct CrewShared {
    state: Mutex<CrewState>,
    room: Condvar,
}

impl CrewShared {
    /// A worker that panicked has not done so while it held the lock for more than counting.
    fn lock(&self) -> MutexGuard<'_, CrewState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When operations begin.
#[derive(Debug, Clone, Copy)]
struct ReplayPace {
    speed: ReplaySpeed,
    /// The first operation's time, as recorded and now.
    begun: (i64, Instant),
}

impl ReplayPace {
    /// Waits until an operation is due; says how late it is.
    fn wait(&self, time_ns: i64) -> Duration {
        let factor = match self.speed {
            ReplaySpeed::Unpaced => return Duration::ZERO,
            ReplaySpeed::AsRecorded => 1.0,
            ReplaySpeed::Factor(factor) => factor,
        };
        let after = time_ns.saturating_sub(self.begun.0).max(0) as f64 / factor;
        let after = Duration::try_from_secs_f64(after / 1e9).unwrap_or(Duration::MAX);
        let passed = self.begun.1.elapsed();
        if let Some(rest) = after.checked_sub(passed) {
            std::thread::sleep(rest);
        }
        self.begun.1.elapsed().saturating_sub(after)
    }
}

pub(super) struct Crew {
    shared: Arc<CrewShared>,
    threads: Vec<JoinHandle<ReplayTally>>,
    speed: ReplaySpeed,
}

impl Crew {
    pub fn new(speed: ReplaySpeed) -> Self {
        Self { shared: Arc::default(), threads: Vec::new(), speed }
    }

    /// The worker for the recorded thread of this number; it is started if there is room for it.
    pub fn worker(&mut self, number: usize, target: &Path) -> Result<usize, TraceError> {
        if number < self.threads.len() || self.threads.len() >= REPLAY_THREADS_MAX {
            return Ok(number % REPLAY_THREADS_MAX);
        }
        let worker = self.threads.len();
        // Before its thread, which looks for its state at once.
        {
            let mut state = self.shared.lock();
            state.workers.push(WorkerState::default());
            state.turns.push(Arc::default());
        }
        let shared = self.shared.clone();
        let started = std::thread::Builder::new()
            .name(format!("replay {worker}"))
            .spawn(move || work(&shared, worker));
        self.threads.push(started.map_err(TraceError::io(target))?);
        Ok(worker)
    }

    /// Gives a worker an operation; waits until it has room.
    pub fn push(&self, worker: usize, job: ReplayJob) {
        let mut state = self.shared.lock();
        while state.workers[worker].queue.len() >= REPLAY_QUEUE_MAX {
            state = self.shared.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let begun = || (job.row.time_ns, Instant::now());
        let speed = self.speed;
        // The clock starts with the first operation, so that the planning before it takes no time.
        state.pace.get_or_insert_with(|| ReplayPace { speed, begun: begun() });
        // Looked at after the wait, during which the worker may have panicked.
        if state.workers[worker].is_gone {
            return;
        }
        state.workers[worker].queue.push_back(job);
        // Each worker has a condition variable of its own, so that one operation wakes one thread.
        state.turns[worker].notify_one();
    }

    /// Waits until all is done; says how long it took.
    pub fn finish(
        mut self,
        tally: &mut ReplayTally,
        target: &Path,
    ) -> Result<Duration, TraceError> {
        self.end();
        for thread in std::mem::take(&mut self.threads) {
            let done = thread.join();
            tally.add(
                done.map_err(|_| TraceError::damaged(target, "a thread of the replay failed"))?,
            );
        }
        let pace = self.shared.lock().pace;
        Ok(pace.map_or(Duration::ZERO, |pace| pace.begun.1.elapsed()))
    }

    fn end(&self) {
        let mut state = self.shared.lock();
        state.is_over = true;
        state.turns.iter().for_each(|turn| turn.notify_one());
    }
}

/// One that is given up leaves what waits undone.
impl Drop for Crew {
    fn drop(&mut self) {
        if self.threads.is_empty() {
            return;
        }
        self.shared.lock().workers.iter_mut().for_each(|worker| worker.queue.clear());
        self.end();
    }
}

fn work(shared: &CrewShared, worker: usize) -> ReplayTally {
    let _alarm = Alarm { shared, worker };
    let (mut tally, mut issuer) = (ReplayTally::default(), ReplayIssuer::default());
    while let Some((job, pace)) = next(shared, worker) {
        tally.late_most = tally.late_most.max(pace.wait(job.row.time_ns));
        issuer.issue(&job, &mut tally);
        done(shared, worker);
    }
    tally
}

/// Waits for a worker's next operation; `None` at the end.
fn next(shared: &CrewShared, worker: usize) -> Option<(ReplayJob, ReplayPace)> {
    let mut state = shared.lock();
    let turn = state.turns[worker].clone();
    loop {
        if state.is_over && state.workers[worker].queue.is_empty() {
            return None;
        }
        if state.may_begin(worker, &state.earliest())
            && let Some(pace) = state.pace
        {
            let own = &mut state.workers[worker];
            let job = own.queue.pop_front()?;
            own.doing = Some(job.end);
            // Only the thread that reads the trace waits for room.
            shared.room.notify_one();
            return Some((job, pace));
        }
        state.workers[worker].is_held = true;
        state = turn.wait(state).unwrap_or_else(PoisonError::into_inner);
        state.workers[worker].is_held = false;
    }
}

/// Lets nobody wait for a thread that has panicked.
struct Alarm<'a> {
    shared: &'a CrewShared,
    worker: usize,
}

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        {
            let own = &mut self.shared.lock().workers[self.worker];
            own.is_gone = true;
            own.queue.clear();
        }
        // The operation that it was at counts as done, or others would wait for its end for ever.
        done(self.shared, self.worker);
        self.shared.room.notify_all();
    }
}

/// Others may have waited for this.
fn done(shared: &CrewShared, worker: usize) {
    let mut state = shared.lock();
    state.workers[worker].doing = None;
    let earliest = state.earliest();
    for (other, turn) in state.turns.iter().enumerate() {
        if state.workers[other].is_held && state.may_begin(other, &earliest) {
            turn.notify_one();
        }
    }
}
