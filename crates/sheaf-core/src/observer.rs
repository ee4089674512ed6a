//! Whoever wants to know of operations as they begin and end: [`Observer`].
//!
//! What does an operation reports it here, and knows nothing of who listens. There is one observer
//! in a process, or none; with none an operation costs one relaxed load, and what would be told of
//! it is not even put together.
//!
//! ```
//! use sheaf_core::observer::{self, Begun, Ending, Layer, Observer};
//! use std::sync::{Arc, Mutex};
//!
//! #[derive(Default)]
//! struct Log(Mutex<Vec<String>>);
//!
//! impl Observer for Log {
//!     fn begins(&self, begun: &Begun<'_>) -> u64 {
//!         self.0.lock().unwrap().push(format!("{} of {} bytes", begun.kind, begun.asked));
//!         0
//!     }
//!     fn ends(&self, _: u64, ending: Ending) {
//!         self.0.lock().unwrap().push(format!("{ending:?}"));
//!     }
//! }
//!
//! let log = Arc::new(Log::default());
//! observer::set(log.clone());
//! let observed = observer::observe(|| Begun { asked: 10, ..Begun::new("file.read", Layer::File) });
//! observed.end(|| Ending::done(7));
//! observer::take();
//! assert_eq!(*log.0.lock().unwrap(), ["file.read of 10 bytes", "Ended { bytes: 7, errno: None }"]);
//! ```
use crate::errno::Errno;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Is told when operations begin and end, by the threads that do them: what it takes they take
/// longer.
///
/// It reads the clock itself, if it wants times. It must not panic, and operations of its own reach
/// it too.
pub trait Observer: Send + Sync {
    /// An operation begins. The mark is given back when it ends; what it means is the observer's
    /// affair.
    fn begins(&self, begun: &Begun<'_>) -> u64;

    /// The operation with this mark has ended, maybe on another thread: told exactly once for each
    /// that began, also when the observer was taken away meanwhile.
    fn ends(&self, mark: u64, ending: Ending);
}

/// An operation that begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begun<'a> {
    /// Layer and operation, such as `group.read`.
    pub kind: &'static str,
    /// On what it acts.
    pub layer: Layer,
    /// The path of a file, the first path of a group that is opened, the name of a tool; empty
    /// where nothing has a name.
    pub name: &'a [u8],
    /// What tells several operations on one thing from those on others: the number of the stream
    /// of a group or tool. 0 where there is none.
    pub stream: u32,
    /// How many members take part; hosts, as long as members are not known.
    pub members: u64,
    /// Where in the file, if the caller says so.
    pub offset: Option<u64>,
    /// How many bytes each member is to read or to write.
    pub asked: u64,
}

impl Begun<'_> {
    /// An operation of one member, of which nothing else is known yet.
    #[must_use]
    pub const fn new(kind: &'static str, layer: Layer) -> Self {
        Self { kind, layer, name: b"", stream: 0, members: 1, offset: None, asked: 0 }
    }
}

/// On what an operation acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Layer {
    /// One file, on the host that has it.
    File,
    /// All members of a group, seen by its client.
    Group,
    /// All hosts of a call of a tool, seen by its client.
    Tool,
}

/// How an operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It came to its end.
    Ended {
        /// What was read or written, by all members together.
        bytes: u64,
        /// Why it failed, or that some members did.
        errno: Option<Errno>,
    },
    /// Whoever waited for it did not wait for its end. It may be done all the same.
    Dropped,
}

impl Ending {
    /// All went well.
    #[must_use]
    pub const fn done(bytes: u64) -> Self {
        Self::Ended { bytes, errno: None }
    }

    /// Nothing was done.
    #[must_use]
    pub const fn failed(errno: Errno) -> Self {
        Self::Ended { bytes: 0, errno: Some(errno) }
    }

    /// A result that stands for no bytes.
    #[must_use]
    pub fn of<T>(result: &Result<T, Errno>) -> Self {
        result.as_ref().map_or_else(|errno| Self::failed(*errno), |_| Self::done(0))
    }
}

/// Whether there is an observer. It is set after [`OBSERVER`] and says no more than that a look at
/// it is worth while, so nothing depends on its order.
static IS_OBSERVED: AtomicBool = AtomicBool::new(false);

static OBSERVER: RwLock<Option<Arc<dyn Observer>>> = RwLock::new(None);

/// Has `observer` told of every operation of this process from now on. Returns the one before.
pub fn set(observer: Arc<dyn Observer>) -> Option<Arc<dyn Observer>> {
    exchange(Some(observer))
}

/// Takes the observer away. It is still told of the ends of what has begun.
pub fn take() -> Option<Arc<dyn Observer>> {
    exchange(None)
}

fn exchange(observer: Option<Arc<dyn Observer>>) -> Option<Arc<dyn Observer>> {
    let mut present = OBSERVER.write().unwrap_or_else(PoisonError::into_inner);
    IS_OBSERVED.store(observer.is_some(), Ordering::Relaxed);
    std::mem::replace(&mut present, observer)
}

/// Tells the observer, if there is one, that an operation begins, and with the guard that it ends.
/// `begun` is not called where there is none.
#[inline]
pub fn observe<'a>(begun: impl FnOnce() -> Begun<'a>) -> Observed {
    if IS_OBSERVED.load(Ordering::Relaxed) { tell(&begun()) } else { Observed { told: None } }
}

/// Out of the way of those whom nobody observes.
#[cold]
fn tell(begun: &Begun<'_>) -> Observed {
    // The lock is not held while the observer is at work: it may be slow, or exchange itself.
    let observer = OBSERVER.read().unwrap_or_else(PoisonError::into_inner).clone();
    let told = observer.map(|observer| {
        let mark = observer.begins(begun);
        (observer, mark)
    });
    Observed { told }
}

/// An operation under way. Dropped before [`Observed::end`] it ends as [`Ending::Dropped`].
#[must_use = "the operation ends when this is dropped"]
pub struct Observed {
    /// Who was told of the beginning, and the mark.
    told: Option<(Arc<dyn Observer>, u64)>,
}

impl Observed {
    /// The operation has ended; how is asked for only if somebody listens.
    #[inline]
    pub fn end(mut self, ending: impl FnOnce() -> Ending) {
        if let Some((observer, mark)) = self.told.take() {
            observer.ends(mark, ending());
        }
    }
}

impl Drop for Observed {
    #[inline]
    fn drop(&mut self) {
        if let Some((observer, mark)) = self.told.take() {
            observer.ends(mark, Ending::Dropped);
        }
    }
}

impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Observed").field(&self.told.as_ref().map(|(_, mark)| mark)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Marks operations by their number and keeps what it is told.
    #[derive(Default)]
    struct Keeper(Mutex<Vec<(u64, Result<&'static str, Ending>)>>);

    impl Observer for Keeper {
        fn begins(&self, begun: &Begun<'_>) -> u64 {
            let mut told = self.0.lock().unwrap();
            let mark = told.len() as u64;
            told.push((mark, Ok(begun.kind)));
            mark
        }

        fn ends(&self, mark: u64, ending: Ending) {
            self.0.lock().unwrap().push((mark, Err(ending)));
        }
    }

    fn read() -> Begun<'static> {
        Begun::new("file.read", Layer::File)
    }

    /// One test, since there is one observer.
    #[test]
    fn one_observer_is_told_of_all_that_begins_and_ends() {
        observe(|| unreachable!("nobody listens")).end(|| unreachable!("nobody listens"));
        let (first, second) = (Arc::new(Keeper::default()), Arc::new(Keeper::default()));
        assert!(set(first.clone()).is_none());
        let long = observe(read);
        observe(|| Begun { kind: "file.write", ..read() }).end(|| Ending::failed(Errno::NOSPC));
        drop(observe(read));
        assert!(set(second.clone()).is_some());
        let other = observe(read);
        assert!(take().is_some() && take().is_none());
        observe(|| unreachable!("nobody listens any more")).end(|| unreachable!());
        // Whoever heard of the beginning hears of the end.
        long.end(|| Ending::done(5));
        std::thread::scope(|scope| drop(scope.spawn(|| other.end(|| Ending::of(&Ok(()))))));

        let expected = [
            (0, Ok("file.read")),
            (1, Ok("file.write")),
            (1, Err(Ending::Ended { bytes: 0, errno: Some(Errno::NOSPC) })),
            (3, Ok("file.read")),
            (3, Err(Ending::Dropped)),
            (0, Err(Ending::done(5))),
        ];
        assert_eq!(*first.0.lock().unwrap(), expected);
        assert_eq!(*second.0.lock().unwrap(), [(0, Ok("file.read")), (0, Err(Ending::done(0)))]);
    }
}
