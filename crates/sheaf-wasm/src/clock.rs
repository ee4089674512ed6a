//! The time that calls take: a thread counts it while there are any.
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Thread;
use std::time::Duration;
use wasmtime::Engine;

/// What the time is counted in.
const TICK: Duration = Duration::from_millis(10);
/// After so many ticks without a call nothing is counted until the next one.
const IDLE_TICKS: u32 = 200;

/// Calls so far, and those under way.
static CALLS: AtomicU64 = AtomicU64::new(0);
static RUNNING: AtomicU64 = AtomicU64::new(0);
/// Nothing is counted.
static RESTS: AtomicBool = AtomicBool::new(false);
static KEEPER: OnceLock<Option<Thread>> = OnceLock::new();

/// Counts for the calls of an engine, which there is one of. Where the system gives no thread for
/// it, their bound of work is the only one.
pub(crate) fn keep_for(engine: &Engine) {
    KEEPER.get_or_init(|| {
        let engine = engine.clone();
        let keeper =
            std::thread::Builder::new().name("wasm-clock".to_owned()).spawn(move || count(&engine));
        keeper.ok().map(|keeper| keeper.thread().clone())
    });
}

fn count(engine: &Engine) {
    let (mut seen, mut idle) = (0, 0);
    loop {
        std::thread::sleep(TICK);
        engine.increment_epoch();
        let calls = CALLS.load(Ordering::SeqCst);
        let is_idle = calls == seen && RUNNING.load(Ordering::SeqCst) == 0;
        idle = if is_idle { idle + 1 } else { 0 };
        seen = calls;
        if idle < IDLE_TICKS {
            continue;
        }
        RESTS.store(true, Ordering::SeqCst);
        // One that has begun just now has not seen that.
        while CALLS.load(Ordering::SeqCst) == seen {
            std::thread::park();
        }
        RESTS.store(false, Ordering::SeqCst);
        idle = 0;
    }
}

/// A call under way.
pub(crate) struct RunningGuest;

impl Drop for RunningGuest {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A call begins.
#[must_use]
pub(crate) fn wind() -> RunningGuest {
    RUNNING.fetch_add(1, Ordering::SeqCst);
    CALLS.fetch_add(1, Ordering::SeqCst);
    if RESTS.load(Ordering::SeqCst)
        && let Some(Some(keeper)) = KEEPER.get()
    {
        keeper.unpark();
    }
    RunningGuest
}

/// When a call that begins now is over, in ticks from now: not before so many milliseconds have
/// passed.
pub(crate) fn ticks(ms: u64) -> u64 {
    (ms / (TICK.as_millis() as u64)).saturating_add(2)
}
