//! Threads that work on jobs: as many as processors, and more while they mostly wait.
use crate::width::{AdaptiveWidth, WIDTH_MAX};
use rustix::time::ClockId;
use sheaf_core::lock;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};

/// Jobs that wait for a thread.
const JOBS_AHEAD: usize = 2 * WIDTH_MAX;

/// Threads that do jobs, each with room of its own.
pub(super) struct CopyPool<'scope, 'env, J> {
    scope: &'scope Scope<'scope, 'env>,
    shared: &'scope PoolShared<J>,
    jobs: SyncSender<J>,
    act: &'scope (dyn Fn(J, &mut Vec<u8>) + Sync),
    room: Vec<u8>,
}

/// What the threads of a pool have together.
pub(super) struct PoolShared<J> {
    jobs: Mutex<Receiver<J>>,
    width: Mutex<PoolWidth>,
    /// A job is done, and there are no more.
    idle: Condvar,
}

struct PoolWidth {
    width: AdaptiveWidth,
    threads: usize,
    /// Jobs that are not done.
    jobs: usize,
}

impl<J: Send> PoolShared<J> {
    /// A pool without threads, and who sends it jobs.
    pub fn new() -> (Self, SyncSender<J>) {
        let (to, jobs) = sync_channel(JOBS_AHEAD);
        let width = PoolWidth { width: AdaptiveWidth::of_machine(), threads: 0, jobs: 0 };
        (Self { jobs: Mutex::new(jobs), width: Mutex::new(width), idle: Condvar::new() }, to)
    }

    /// Does jobs until there are no more, or there are more threads than are of use.
    fn work(&self, act: &(dyn Fn(J, &mut Vec<u8>) + Sync)) {
        let mut room = Vec::new();
        loop {
            let job = lock(&self.jobs).recv();
            let Ok(job) = job else { break };
            let (began, before) = (Instant::now(), computed());
            let done = PoolJob(self);
            act(job, &mut room);
            drop(done);
            let mut width = lock(&self.width);
            width.width.observe(began.elapsed(), computed().saturating_sub(before));
            if width.threads > width.width.now() {
                width.threads -= 1;
                return;
            }
        }
    }
}

/// A job that a thread has; it is done however it ends, so that nobody waits for it for ever.
struct PoolJob<'a, J>(&'a PoolShared<J>);

impl<J> Drop for PoolJob<'_, J> {
    fn drop(&mut self) {
        let mut width = lock(&self.0.width);
        width.jobs -= 1;
        if width.jobs == 0 {
            self.0.idle.notify_all();
        }
    }
}

impl<'scope, 'env, J: Send + 'scope> CopyPool<'scope, 'env, J> {
    pub fn new(
        scope: &'scope Scope<'scope, 'env>,
        shared: &'scope PoolShared<J>,
        jobs: SyncSender<J>,
        act: &'scope (dyn Fn(J, &mut Vec<u8>) + Sync),
    ) -> Self {
        Self { scope, shared, jobs, act, room: Vec::new() }
    }

    /// Has a job done, by another thread if there is one to be had.
    pub fn send(&mut self, job: J) {
        let mut width = lock(&self.shared.width);
        if width.threads < width.width.now() {
            let (shared, act) = (self.shared, self.act);
            let thread = std::thread::Builder::new().name("cp".to_owned());
            if thread.spawn_scoped(self.scope, move || shared.work(act)).is_ok() {
                width.threads += 1;
            }
        }
        let has_threads = width.threads > 0;
        // Before it is sent: a thread may be done with it before this one goes on.
        width.jobs += usize::from(has_threads);
        drop(width);
        // A thread that is at work looks for another job before it goes, and two stay.
        if !has_threads {
            return (self.act)(job, &mut self.room);
        }
        if let Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) =
            self.jobs.try_send(job)
        {
            // Who would wait does it.
            (self.act)(job, &mut self.room);
            lock(&self.shared.width).jobs -= 1;
        }
    }

    /// Waits until all jobs are done.
    pub fn wait(&self) {
        let mut width = lock(&self.shared.width);
        while width.jobs > 0 {
            width = self.shared.idle.wait(width).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// What this thread has had of a processor.
fn computed() -> Duration {
    let time = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    let nanoseconds = u32::try_from(time.tv_nsec).expect("less than a second");
    Duration::new(time.tv_sec.cast_unsigned(), nanoseconds)
}
