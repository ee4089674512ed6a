//! Threads that do what a schedule says.
use super::{GrantId, HostId, Needs, Next, Schedule, ScheduleSettings, ScheduleStats, Task};
use rustix::time::ClockId;
use sheaf_core::lock;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often the numbers are told.
const STATS_INTERVAL: Duration = Duration::from_millis(100);

/// Does one task; what it has used, where a processor's time is measured by whoever calls.
pub(crate) type ScheduledJob<'a, T, E> =
    &'a (dyn Fn(&SchedulePool<T, E>, GrantId, HostId, T) -> Result<Needs, E> + Sync);
/// Takes the numbers now and then, and at the end.
pub(crate) type Watcher<'a> = &'a (dyn Fn(&ScheduleStats) + Sync);

pub(crate) struct SchedulePool<T, E> {
    known: Mutex<KnownTask<T, E>>,
    /// Something may be begun, or all is over.
    work: Condvar,
    /// All is over.
    over: Condvar,
    start: Instant,
}

struct KnownTask<T, E> {
    schedule: Schedule<T>,
    idle: usize,
    threads: usize,
    /// No more threads can be had.
    is_last: bool,
    is_over: bool,
    error: Option<E>,
}

/// Ends all where a task panics: nobody waits for it then.
struct EndsAll<'a, T, E> {
    pool: &'a SchedulePool<T, E>,
    is_armed: bool,
}

impl<T: Send, E: Send> SchedulePool<T, E> {
    pub fn new(settings: ScheduleSettings) -> Self {
        let known = KnownTask {
            schedule: Schedule::new(settings),
            idle: 0,
            threads: 0,
            is_last: false,
            is_over: false,
            error: None,
        };
        let (work, over) = (Condvar::new(), Condvar::new());
        Self { known: Mutex::new(known), work, over, start: Instant::now() }
    }

    /// Something is to be done.
    pub fn push(&self, from: Option<GrantId>, task: Task<T>) {
        lock(&self.known).schedule.push(from, task);
        self.work.notify_one();
    }

    /// Does all that is to be done, and what comes of it. After an error nothing more is begun.
    ///
    /// # Errors
    /// The first of a task.
    pub fn run(
        &self,
        name: &str,
        job: ScheduledJob<'_, T, E>,
        watcher: Watcher<'_>,
    ) -> Result<(), E> {
        std::thread::scope(|scope| {
            // The calling thread is the first worker.
            lock(&self.known).threads = 1;
            // Where there is no thread for it the numbers are told at the end.
            let teller = std::thread::Builder::new().name(format!("{name}-watch"));
            let _ = teller.spawn_scoped(scope, || self.tell(watcher));
            self.work(scope, name, job);
        });
        let mut known = lock(&self.known);
        let (stats, error) = (known.schedule.stats(), known.error.take());
        drop(known);
        watcher(&stats);
        error.map_or(Ok(()), Err)
    }

    fn work<'scope, 'env>(
        &'scope self,
        scope: &'scope std::thread::Scope<'scope, 'env>,
        name: &'scope str,
        job: ScheduledJob<'scope, T, E>,
    ) {
        let mut ends = EndsAll { pool: self, is_armed: true };
        let mut known = lock(&self.known);
        while !known.is_over {
            let now = self.start.elapsed();
            match known.schedule.next(now) {
                Next::Run(id, host, work) => {
                    // Each one that begins wakes the next: `push` wakes one, whatever it has made.
                    self.wake_another(&mut known, scope, name, job);
                    drop(known);
                    let before = computed();
                    let done = job(self, id, host, work);
                    known = lock(&self.known);
                    self.ended(&mut known, id, done, before);
                }
                Next::Wait(until) => known = self.wait(known, now, until),
                Next::Over => known.is_over = true,
            }
            #[cfg(debug_assertions)]
            known.schedule.check().expect("the schedule holds what it promises");
        }
        ends.is_armed = false;
        self.work.notify_all();
        self.over.notify_all();
    }

    /// Tells the numbers until all is over.
    fn tell(&self, watcher: Watcher<'_>) {
        let mut known = lock(&self.known);
        while !known.is_over {
            let waited = self.over.wait_timeout(known, STATS_INTERVAL);
            known = waited.unwrap_or_else(PoisonError::into_inner).0;
            if !known.is_over {
                let stats = known.schedule.stats();
                // A watcher may write to a slow terminal: no worker waits for that.
                drop(known);
                watcher(&stats);
                known = lock(&self.known);
            }
        }
    }

    /// A task has ended.
    fn ended(
        &self,
        known: &mut KnownTask<T, E>,
        id: GrantId,
        done: Result<Needs, E>,
        before: Duration,
    ) {
        let used = match done {
            Ok(used) => used,
            Err(error) => {
                known.error.get_or_insert(error);
                known.is_over = true;
                Needs::default()
            }
        };
        let computed = computed().saturating_sub(before).as_micros();
        let used = Needs { cpu_us: u64::try_from(computed).unwrap_or(u64::MAX), ..used };
        known.schedule.ended(self.start.elapsed(), id, &used);
    }

    /// Has another look whether it can begin something, too.
    fn wake_another<'scope, 'env>(
        &'scope self,
        known: &mut KnownTask<T, E>,
        scope: &'scope std::thread::Scope<'scope, 'env>,
        name: &'scope str,
        job: ScheduledJob<'scope, T, E>,
    ) {
        if !known.schedule.is_waiting() {
            return;
        }
        if known.idle > 0 {
            self.work.notify_one();
        } else if !known.is_last && known.threads < known.schedule.threads_max() {
            let thread = std::thread::Builder::new().name(format!("{name}-{}", known.threads));
            match thread.spawn_scoped(scope, move || self.work(scope, name, job)) {
                Ok(_) => known.threads += 1,
                // Where there are no more threads the same is done, and takes longer.
                Err(_) => known.is_last = true,
            }
        }
    }

    fn wait<'a>(
        &self,
        mut known: MutexGuard<'a, KnownTask<T, E>>,
        now: Duration,
        until: Option<Duration>,
    ) -> MutexGuard<'a, KnownTask<T, E>> {
        known.idle += 1;
        let mut known = match until {
            None => self.work.wait(known).unwrap_or_else(PoisonError::into_inner),
            Some(until) => {
                let wait = until.saturating_sub(now);
                let waited = self.work.wait_timeout(known, wait);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        known.idle -= 1;
        known
    }
}

impl<T, E> Drop for EndsAll<'_, T, E> {
    fn drop(&mut self) {
        if self.is_armed {
            lock(&self.pool.known).is_over = true;
            self.pool.work.notify_all();
            self.pool.over.notify_all();
        }
    }
}

/// How long a processor has worked for this thread.
fn computed() -> Duration {
    let time = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanoseconds) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    Duration::from_secs(seconds) + Duration::from_nanos(nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Phase, ScheduleLimits, TaskKind};
    use crate::width::AdaptiveWidth;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn task(phase: Phase, place: &[u32], work: usize) -> Task<usize> {
        Task {
            phase,
            kind: TaskKind::List,
            host: None,
            place: place.into(),
            lane: None,
            needs: Needs::default(),
            queue_bytes: 1,
            makes_bytes: if phase == Phase::Transfer { 0 } else { 8 },
            work,
        }
    }

    fn pool<E: Send>(width: usize) -> SchedulePool<usize, E> {
        SchedulePool::new(ScheduleSettings {
            hosts: vec![ScheduleLimits::default()],
            widths: [8; 3],
            width: AdaptiveWidth::new(width, width),
            queue_bytes_max: 16,
        })
    }

    #[test]
    fn tasks_pushed_by_tasks_are_all_run() {
        for width in [1, 2, 8] {
            let (pool, sum) = (pool::<()>(width), AtomicUsize::new(0));
            pool.push(None, task(Phase::Walk, &[], 6));
            let job = |pool: &SchedulePool<usize, ()>, id, _, depth: usize| {
                sum.fetch_add(1, Ordering::Relaxed);
                for number in 0..2u32 {
                    if depth > 0 {
                        pool.push(Some(id), task(Phase::Walk, &[depth as u32, number], depth - 1));
                        pool.push(Some(id), task(Phase::Directory, &[number], 0));
                    }
                }
                Ok(Needs::default())
            };
            pool.run("test", &job, &|_| ()).unwrap();
            assert_eq!(sum.load(Ordering::Relaxed), 127 + 126);
        }
    }

    #[test]
    fn after_an_error_nothing_more_is_begun() {
        let (pool, begun) = (pool(2), AtomicUsize::new(0));
        for number in 0..100 {
            pool.push(None, task(Phase::Transfer, &[number], 0));
        }
        let job = |_: &SchedulePool<usize, &str>, _, _, _| {
            begun.fetch_add(1, Ordering::Relaxed);
            Err("no more")
        };
        assert_eq!(pool.run("test", &job, &|_| ()), Err("no more"));
        assert!(begun.load(Ordering::Relaxed) <= 4);
    }

    #[test]
    fn panic_ends_all_and_is_passed_on() {
        let pool = pool::<()>(2);
        for number in 0..100 {
            pool.push(None, task(Phase::Transfer, &[number], number as usize));
        }
        let job = |_: &SchedulePool<usize, ()>, _, _, number| {
            assert!(number < 7, "the eighth");
            Ok(Needs::default())
        };
        let run = || pool.run("test", &job, &|_| ());
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err());
    }
}
