//! Functions of native modules that do not come back: those that end the process of their node, and
//! those that hold it up for longer than its neighbours wait. How a process has ended is all that
//! they leave behind, so it ends in ways of its own.
//!
//! The root's process is the user's, and not ended: who wants to know is told which filter it is.
#![allow(unsafe_code)]

use rustix::process::Pid;
use sheaf_core::lock;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

/// What a process ends with that a filter has ended by `exit`.
pub(crate) const CODE_EXITED: i32 = 71;
/// What a process ends with that a filter has held up.
pub(crate) const CODE_STUCK: i32 = 72;

/// How long a call may take in a process that is not ended before that is told.
const TOLD_AFTER: Duration = Duration::from_millis(4_500);

/// How often it is looked within the time that a call may take.
const LOOKS: u32 = 8;

/// How long a call may take in this process, which is a node that others start again.
static LIMIT: OnceLock<Duration> = OnceLock::new();
/// Counts beginnings and ends of calls: it is odd while one is under way.
static CALLS: AtomicU64 = AtomicU64::new(0);
/// What is called, or was last.
static CALLED: Mutex<Option<Arc<str>>> = Mutex::new(None);
/// Who wants to know.
static LISTENERS: Mutex<Vec<Weak<HeldUpListener>>> = Mutex::new(Vec::new());

/// Is told, on a thread of its own, what holds a process up: in one sentence, with the filter.
pub type HeldUpListener = dyn Fn(&str) + Send + Sync;

/// Tells `listener`, as long as it is there, of native filters that hold up this process (which
/// has the root of a tree, or all of one): once for each call that takes longer than 4.5 s. Nothing
/// else goes on in the process's trees meanwhile, so it has to be told elsewhere.
pub fn tell_when_held_up(listener: &Arc<HeldUpListener>) {
    let mut listeners = lock(&LISTENERS);
    listeners.retain(|listener| listener.strong_count() > 0);
    listeners.push(Arc::downgrade(listener));
}

/// Lets this process, which is a node below the root, end when a native function takes so long, or
/// ends it. To be called before modules are loaded; only the first call counts.
pub(crate) fn end_when_held_up(limit: Duration) {
    let _ = LIMIT.set(limit);
}

/// A call of a native function, until this is dropped.
pub(super) struct NativeTurn(());

impl NativeTurn {
    /// `called` says what is called, for people.
    pub fn begin(called: &Arc<str>) -> Self {
        *lock(&CALLED) = Some(Arc::clone(called));
        CALLS.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for NativeTurn {
    fn drop(&mut self) {
        CALLS.fetch_add(1, Ordering::Relaxed);
    }
}

fn is_within(calls: u64) -> bool {
    calls % 2 == 1
}

/// To be called before the first filter is.
///
/// # Errors
/// When the system has no thread, or no memory.
pub(super) fn watch() -> io::Result<()> {
    static WATCHED: OnceLock<Pid> = OnceLock::new();
    if WATCHED.set(rustix::process::getpid()).is_err() {
        return Ok(());
    }
    let thread = std::thread::Builder::new().name("filters".to_owned());
    let Some(&limit) = LIMIT.get() else {
        thread.spawn(|| look(TOLD_AFTER, tell))?;
        return Ok(());
    };
    // SAFETY: the handler looks at a number and ends the process, which is allowed in one.
    match unsafe { libc::atexit(at_exit) } {
        0 => {}
        _ => return Err(io::ErrorKind::OutOfMemory.into()),
    }
    thread.spawn(move || look(limit, |limit| end(limit)))?;
    Ok(())
}

/// When the process is ended by `exit` in the middle of a call, nobody but the function does that.
extern "C" fn at_exit() {
    if is_within(CALLS.load(Ordering::Relaxed)) {
        end_with(CODE_EXITED);
    }
}

/// Looks for a call that takes too long: by its own looks, of which there are none while the
/// process is stopped.
fn look(limit: Duration, found: impl Fn(Duration)) {
    let (mut seen, mut looks) = (0, 0);
    loop {
        std::thread::sleep(limit / LOOKS);
        let calls = CALLS.load(Ordering::Relaxed);
        looks = if calls == seen && is_within(calls) { looks + 1 } else { 0 };
        seen = calls;
        if looks == LOOKS {
            found(limit);
        }
    }
}

fn called() -> Arc<str> {
    lock(&CALLED).clone().unwrap_or_default()
}

fn end(limit: Duration) -> ! {
    tracing::error!(?limit, "{} holds this node up, which is ended", called());
    end_with(CODE_STUCK)
}

fn tell(limit: Duration) {
    let seconds = limit.as_secs_f32();
    let text = format!("{} has held up this process for {seconds} s", called());
    tracing::warn!("{text}; nothing else goes on in its trees meanwhile");
    let listeners: Vec<_> = lock(&LISTENERS).iter().filter_map(Weak::upgrade).collect();
    listeners.iter().for_each(|listener| listener(&text));
}

fn end_with(code: i32) -> ! {
    // SAFETY: nothing is cleared away: what runs would not let go of it.
    unsafe { libc::_exit(code) }
}
