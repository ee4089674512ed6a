//! The one runtime that drives the links of this process's nodes, and who runs it.
//!
//! A thread of the application that waits for something of the tree runs it meanwhile: so what
//! comes is read by the thread that waits for it, and no other one has to be woken. While nobody
//! waits, a thread of the library's runs it (the keeper): at once where something is to be done,
//! and otherwise after a pause, so that an application that soon waits again finds it free.
use crate::ffi::signal::{BrokenPipes, block_broken_pipes};
use sheaf_core::lock;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// How long nobody may run it after the last one has left who waited.
const PAUSE: Duration = Duration::from_millis(50);

struct Reactor {
    runtime: Runtime,
    state: Mutex<ReactorState>,
    changed: Condvar,
    /// Tells the keeper to let go.
    release: Notify,
    /// Somebody wants to be told of what comes while nobody waits.
    watched: AtomicBool,
    /// Processes are started here, to whose pipes the tasks write.
    starts: AtomicBool,
}

struct ReactorState {
    /// Threads of the application that wait; one of them runs it.
    waiting: u32,
    /// Counts those that have left.
    left: u64,
    keeper: ReactorKeeper,
    /// The keeper is to begin without a pause.
    called: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ReactorKeeper {
    /// Sleeps until somebody leaves.
    Resting,
    /// Looks after a pause whether somebody has come back.
    Dozing,
    /// Runs it.
    Driving,
}

static REACTOR: OnceLock<Reactor> = OnceLock::new();

/// The reactor; it is made with the first call.
fn reactor() -> io::Result<&'static Reactor> {
    static MAKING: Mutex<()> = Mutex::new(());
    if let Some(made) = REACTOR.get() {
        return Ok(made);
    }
    let _alone = lock(&MAKING);
    if REACTOR.get().is_none() {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let state =
            ReactorState { waiting: 0, left: 0, keeper: ReactorKeeper::Resting, called: true };
        let (state, changed, release) = (Mutex::new(state), Condvar::new(), Notify::new());
        let (watched, starts) = (AtomicBool::new(false), AtomicBool::new(false));
        let made = Reactor { runtime, state, changed, release, watched, starts };
        let made = REACTOR.get_or_init(|| made);
        thread::Builder::new().name("sheaf-io".to_owned()).spawn(|| made.keep())?;
    }
    REACTOR.get().ok_or_else(|| io::ErrorKind::Other.into())
}

impl Reactor {
    /// The keeper's thread.
    fn keep(&self) {
        block_broken_pipes();
        let mut state = lock(&self.state);
        loop {
            if state.waiting > 0 {
                state.keeper = ReactorKeeper::Resting;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            if !state.called {
                let left = state.left;
                state.keeper = ReactorKeeper::Dozing;
                let waited = self.changed.wait_timeout(state, PAUSE);
                let over;
                (state, over) = waited.unwrap_or_else(PoisonError::into_inner);
                let quiet = over.timed_out() && state.left == left;
                if state.waiting > 0 || !(state.called || quiet) {
                    continue;
                }
            }
            state.called = false;
            state.keeper = ReactorKeeper::Driving;
            drop(state);
            self.runtime.block_on(self.release.notified());
            state = lock(&self.state);
        }
    }

    /// Polls `future` on this thread, which runs the runtime in between if no other thread does.
    fn drive<T>(&self, future: impl Future<Output = T>) -> T {
        {
            let mut state = lock(&self.state);
            state.waiting += 1;
            state.called = false;
            // Where somebody is told of what comes, the keeper would be back at once.
            if state.keeper == ReactorKeeper::Driving && !self.watched.load(Ordering::Relaxed) {
                state.keeper = ReactorKeeper::Resting;
                self.release.notify_one();
            }
        }
        let _left = LeftReactor(self);
        let _pipes = self.starts.load(Ordering::Relaxed).then(BrokenPipes::block);
        self.runtime.block_on(future)
    }
}

/// A thread leaves that has waited.
struct LeftReactor<'a>(&'a Reactor);

impl Drop for LeftReactor<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.waiting -= 1;
        state.left += 1;
        if state.waiting > 0 {
            return;
        }
        if state.keeper == ReactorKeeper::Driving {
            return;
        }
        state.called |= self.0.watched.load(Ordering::Relaxed);
        if state.called || state.keeper == ReactorKeeper::Resting {
            state.keeper = ReactorKeeper::Dozing;
            self.0.changed.notify_one();
        }
    }
}

/// Lets a task run beside whatever else does.
///
/// # Errors
/// When the thread or the runtime cannot be made.
pub fn spawn<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Ok(reactor()?.runtime.spawn(future))
}

/// There is something to be done for the tree and nobody here waits for it: somebody is to run it.
pub fn keep() {
    let Some(reactor) = REACTOR.get() else { return };
    let mut state = lock(&reactor.state);
    if state.keeper != ReactorKeeper::Driving
        && !std::mem::replace(&mut state.called, true)
        && state.waiting == 0
    {
        reactor.changed.notify_one();
    }
}

/// From now on somebody is to be told of what comes (a descriptor, a function that is called), also
/// while nobody waits.
pub fn watch() {
    if let Ok(reactor) = reactor() {
        reactor.watched.store(true, Ordering::Relaxed);
        keep();
    }
}

/// From now on tasks may start processes and write to their pipes.
///
/// # Errors
/// When the thread or the runtime cannot be made.
pub fn starts_processes() -> io::Result<()> {
    reactor()?.starts.store(true, Ordering::Relaxed);
    Ok(())
}

/// Waits for `future`.
pub fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    match glance(future.as_mut()) {
        Some(value) => value,
        None => match reactor() {
            Ok(reactor) if Handle::try_current().is_err() => reactor.drive(future),
            _ => park(future),
        },
    }
}

/// Waits for `future` until `deadline`, for ever without one; `None` when the time is over.
pub fn wait_until<T>(deadline: Option<Instant>, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    if let Some(value) = glance(future.as_mut()) {
        return Some(value);
    }
    let Some(deadline) = deadline else { return Some(wait(future)) };
    if deadline <= Instant::now() {
        keep();
        return None;
    }
    match reactor() {
        Ok(reactor) if Handle::try_current().is_err() => {
            reactor.drive(async { tokio::time::timeout_at(deadline.into(), future).await.ok() })
        }
        _ => park_until(deadline, future),
    }
}

/// What is there already; most of the time it is.
fn glance<T>(future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

struct Parker(Thread);

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls `future` on this thread, which sleeps in between: for threads of the library's.
pub fn park<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        let far = Instant::now() + Duration::from_secs(3600);
        if let Some(value) = park_until(far, future.as_mut()) {
            return value;
        }
    }
}

fn park_until<T>(deadline: Instant, mut future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    let waker = Waker::from(Arc::new(Parker(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return Some(value);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        thread::park_timeout(left);
    }
}
