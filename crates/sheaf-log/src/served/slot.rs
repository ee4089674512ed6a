//! The place of a log client: one thread at a time has its state, and the others wait for so long.
//!
//! No lock is held while the state works on files: they are a user's, on a file system that may
//! hang. Whoever waits for that user's state waits until a deadline.
use super::state::ClientState;
use sheaf_core::{Errno, lock};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Takes what is recorded into one directory.
pub(super) struct LogClient {
    place: Mutex<ClientPlace>,
    freed: Condvar,
    /// When somebody asked last.
    asked: Mutex<Instant>,
    /// Another directory of its user takes its place.
    is_to_end: AtomicBool,
}

/// Where the state is.
enum ClientPlace {
    /// It is to be opened.
    Unopened,
    /// A thread has it.
    Taken,
    Here(Box<ClientState>),
    /// It is closed, and the client is about to be forgotten.
    Ended,
}

impl LogClient {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            place: Mutex::new(ClientPlace::Unopened),
            freed: Condvar::new(),
            asked: Mutex::new(Instant::now()),
            is_to_end: AtomicBool::new(false),
        })
    }

    /// Somebody asks.
    pub fn ask(&self) {
        *lock(&self.asked) = Instant::now();
    }

    /// For how long nobody has asked.
    pub fn idle(&self) -> Duration {
        lock(&self.asked).elapsed()
    }

    /// Ends it as soon as nobody has its state.
    pub fn end(&self) {
        self.is_to_end.store(true, Ordering::Relaxed);
    }

    pub fn is_to_end(&self) -> bool {
        self.is_to_end.load(Ordering::Relaxed)
    }

    /// Whether it is closed.
    pub fn has_ended(&self) -> bool {
        matches!(*lock(&self.place), ClientPlace::Ended)
    }

    /// Waits for the state, until then if that is said; `None` where it has ended.
    ///
    /// # Errors
    /// `ETIMEDOUT` where another thread has it for that long.
    pub fn take(&self, until: Option<Instant>) -> Result<Option<HeldClient<'_>>, Errno> {
        let mut place = lock(&self.place);
        while matches!(*place, ClientPlace::Taken) {
            place = match until {
                None => self.freed.wait(place).unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let rest = until.saturating_duration_since(Instant::now());
                    if rest.is_zero() {
                        return Err(Errno::TIMEDOUT);
                    }
                    let waited = self.freed.wait_timeout(place, rest);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        match std::mem::replace(&mut *place, ClientPlace::Taken) {
            ClientPlace::Here(state) => Ok(Some(HeldClient { client: self, state: Some(state) })),
            ClientPlace::Unopened => Ok(Some(HeldClient { client: self, state: None })),
            other => {
                *place = other;
                Ok(None)
            }
        }
    }
}

/// The right to work on the state of a client. Without one when this is dropped, the client has ended.
pub(super) struct HeldClient<'a> {
    client: &'a LogClient,
    /// Nothing before it is opened.
    pub state: Option<Box<ClientState>>,
}

impl Drop for HeldClient<'_> {
    fn drop(&mut self) {
        let next = self.state.take().map_or(ClientPlace::Ended, ClientPlace::Here);
        *lock(&self.client.place) = next;
        self.client.freed.notify_all();
    }
}
