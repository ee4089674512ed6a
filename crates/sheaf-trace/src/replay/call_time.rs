//! How long calls take, without what stands around them.
//!
//! An operation that is done again costs more than its call: its directory is opened first, so that the
//! target is not left, and what is open is looked up. That is no time of the file system under test,
//! and not counted.
use std::cell::Cell;
use std::time::{Duration, Instant};

thread_local! {
    static SPENT: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Makes a call whose time counts to the operation that is being done.
pub(super) fn timed<T>(call: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let done = call();
    SPENT.set(SPENT.get() + begun.elapsed());
    done
}

/// Does something whose calls are none of the operation's.
pub(super) fn untimed<T>(preparation: impl FnOnce() -> T) -> T {
    let before = SPENT.get();
    let done = preparation();
    SPENT.set(before);
    done
}

/// The time of all calls of this thread since it was asked for last.
pub(super) fn take() -> Duration {
    SPENT.replace(Duration::ZERO)
}
