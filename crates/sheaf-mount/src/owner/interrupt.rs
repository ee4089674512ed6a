//! Calls to the system that nobody waits for any more are interrupted, so that their threads can do something else: a
//! read of a pipe or of `/proc/kmsg` may wait for ever.
//!
//! The thread of such a call is sent a signal whose handler does nothing, again and again, until the call is over. A call
//! that the kernel does not let a signal end, as in a frozen file system, keeps its thread.
#![allow(unsafe_code)]
use rustc_hash::FxHashMap;
use sheaf_core::{Errno, lock};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// The signal. Unless somebody handles it, it does nothing.
const INTERRUPT: libc::c_int = libc::SIGURG;

thread_local! {
    static CALL: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// The threads of calls, with what is set when nobody waits for one.
#[derive(Debug, Default)]
pub(super) struct AtWork(Mutex<FxHashMap<i32, Arc<AtomicBool>>>);

/// A call that this thread does until this is dropped.
pub(super) struct CallAtWork<'a> {
    all: &'a AtWork,
    thread: i32,
}

impl AtWork {
    /// This thread does a call from now on.
    pub fn begin(&self, over: &Arc<AtomicBool>) -> CallAtWork<'_> {
        handle_signal();
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        CALL.set(Some(over.clone()));
        lock(&self.0).insert(thread, over.clone());
        CallAtWork { all: self, thread }
    }

    /// Interrupts the calls that nobody waits for.
    pub fn interrupt_those_over(&self) {
        let own = rustix::process::getpid().as_raw_nonzero().get();
        // A thread leaves the list before it does something else.
        for (thread, over) in lock(&self.0).iter() {
            if over.load(Ordering::Relaxed) {
                // SAFETY: the thread is one of this process that is in the list, and its signal is handled.
                let sent = unsafe { libc::syscall(libc::SYS_tgkill, own, *thread, INTERRUPT) };
                if sent < 0 {
                    tracing::debug!(thread, "a call is not interrupted");
                }
            }
        }
    }
}

impl Drop for CallAtWork<'_> {
    fn drop(&mut self) {
        lock(&self.all.0).remove(&self.thread);
        CALL.set(None);
    }
}

/// Whether nobody waits for the call that this thread does.
pub(super) fn is_over() -> bool {
    CALL.with_borrow(|call| call.as_ref().is_some_and(|over| over.load(Ordering::Relaxed)))
}

/// An interrupted call, to be done again unless nobody waits for it.
///
/// # Errors
/// `EINTR` if nobody waits.
pub(super) fn go_on() -> Result<(), Errno> {
    if is_over() { Err(Errno::INTR) } else { Ok(()) }
}

fn handle_signal() {
    extern "C" fn nothing(_: libc::c_int) {}
    static HANDLED: OnceLock<()> = OnceLock::new();
    HANDLED.get_or_init(|| {
        // SAFETY: a zeroed `sigaction` is one without flags and mask, so that calls are interrupted and not restarted;
        // the handler does nothing.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as *const () as libc::sighandler_t;
            libc::sigaction(INTERRUPT, &raw const action, std::ptr::null_mut());
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::time::{Duration, Instant};

    #[test]
    fn call_that_nobody_waits_for_is_interrupted() {
        let (all, over) = (Arc::new(AtWork::default()), Arc::<AtomicBool>::default());
        let (mut reads, _writes) = std::io::pipe().unwrap();
        let (of_thread, told) = (all.clone(), over.clone());
        let thread = std::thread::spawn(move || -> Result<(), Errno> {
            let _at_work = of_thread.begin(&told);
            loop {
                match reads.read(&mut [0]) {
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => go_on()?,
                    read => panic!("{read:?}"),
                }
            }
        });
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(10));
            all.interrupt_those_over();
        }
        assert!(!thread.is_finished(), "somebody waits");
        over.store(true, Ordering::Relaxed);
        let begun = Instant::now();
        while !thread.is_finished() {
            assert!(begun.elapsed() < Duration::from_secs(30));
            all.interrupt_those_over();
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(thread.join().unwrap(), Err(Errno::INTR));
        assert!(lock(&all.0).is_empty());
    }
}
