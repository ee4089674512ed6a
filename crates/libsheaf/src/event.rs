//! What happened in the tree, for those who want to know.
use crate::inbox::Signal;
use sheaf_core::lock;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// The most events kept for an application that does not read them; the oldest go first.
pub const EVENTS_MAX: usize = 4096;

/// The classes of events: the numbers of `sheaf.h`.
pub const CLASSES: usize = 3;
/// Packets have arrived.
pub const CLASS_DATA: u32 = 0;
/// The tree has changed.
pub const CLASS_TOPOLOGY: u32 = 1;
/// Something went wrong.
pub const CLASS_ERROR: u32 = 2;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventDescriptor {
    /// One of the classes.
    pub class: u32,
    /// What it is, within its class.
    pub kind: u32,
    /// The node it is about; [`crate::NO_RANK`] for none.
    pub rank: u32,
    /// Its parent.
    pub parent: u32,
    /// The stream it is about, if it is about one.
    pub stream: u32,
    /// One sentence.
    pub text: String,
}

/// Kinds of topology events.
pub mod topology {
    /// A back end has joined.
    pub const BACK_END_ADDED: u32 = 0;
    /// An inner node has joined.
    pub const INNER_ADDED: u32 = 1;
    /// A node is gone.
    pub const REMOVED: u32 = 2;
    /// A node has another parent.
    pub const PARENT_CHANGED: u32 = 3;
}

/// Kinds of error events.
pub mod error {
    /// Sheaf did something wrong.
    pub const INTERNAL: u32 = 0;
    /// The operating system refused something.
    pub const SYSTEM: u32 = 1;
    /// The application did something wrong, or its filter.
    pub const USAGE: u32 = 2;
}

/// Called for every event, on a thread that may block.
pub type Hook = Box<dyn Fn(&EventDescriptor) + Send + Sync>;

#[derive(Default)]
struct EventState {
    queue: VecDeque<EventDescriptor>,
    for_hook: VecDeque<EventDescriptor>,
    hook: Option<Arc<Hook>>,
    signals: [Option<Signal>; CLASSES],
    ended: bool,
}

/// The events of one node.
#[derive(Default)]
pub struct Events {
    state: Mutex<EventState>,
    changed: Condvar,
}

impl Events {
    /// Something has happened. Data events go to descriptors and hooks only: a packet is known by
    /// the inbox it lies in.
    pub fn push(&self, event: EventDescriptor) {
        let mut state = lock(&self.state);
        if let Some(Some(signal)) = state.signals.get(event.class as usize) {
            signal.raise();
        }
        if state.hook.is_some() {
            if state.for_hook.len() == EVENTS_MAX {
                state.for_hook.pop_front();
            }
            state.for_hook.push_back(event.clone());
            self.changed.notify_all();
        }
        if event.class != CLASS_DATA {
            if state.queue.len() == EVENTS_MAX {
                state.queue.pop_front();
            }
            state.queue.push_back(event);
        }
    }

    /// Whether anyone wants to know of data.
    pub fn wants_data(&self) -> bool {
        let state = lock(&self.state);
        state.hook.is_some() || state.signals[CLASS_DATA as usize].is_some()
    }

    /// Takes the oldest event.
    pub fn next(&self) -> Option<EventDescriptor> {
        lock(&self.state).queue.pop_front()
    }

    /// How many there are.
    pub fn pending(&self) -> usize {
        lock(&self.state).queue.len()
    }

    /// Drops them all.
    pub fn clear(&self) {
        lock(&self.state).queue.clear();
    }

    /// The descriptor that tells of events of `class`, made when it is first asked for.
    pub fn signal(&self, class: u32) -> Option<RawFd> {
        let mut state = lock(&self.state);
        let slot = state.signals.get_mut(class as usize)?;
        if slot.is_none() {
            crate::reactor::watch();
            *slot = Some(Signal::new().ok()?);
        }
        slot.as_ref().map(Signal::number)
    }

    /// Makes the descriptor of `class` unreadable until the next event; `close` ends it.
    pub fn clear_signal(&self, class: u32, close: bool) {
        if let Some(slot) = lock(&self.state).signals.get_mut(class as usize) {
            if let Some(signal) = slot {
                signal.clear();
            }
            if close {
                *slot = None;
            }
        }
    }

    /// Calls `hook` for every event from now on, on a thread that starts now.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn set_hook(self: &Arc<Self>, hook: Hook) -> std::io::Result<()> {
        if lock(&self.state).hook.replace(Arc::new(hook)).is_none() {
            let events = Arc::clone(self);
            let call = move || {
                while let Some((hook, event)) = events.next_for_hook() {
                    hook(&event);
                }
            };
            std::thread::Builder::new().name("sheaf-events".to_owned()).spawn(call)?;
            crate::reactor::watch();
        }
        Ok(())
    }

    fn next_for_hook(&self) -> Option<(Arc<Hook>, EventDescriptor)> {
        let mut state = lock(&self.state);
        loop {
            if state.ended {
                return None;
            }
            if let Some(event) = state.for_hook.pop_front() {
                return state.hook.clone().map(|hook| (hook, event));
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// No event follows.
    pub fn end(&self) {
        lock(&self.state).ended = true;
        self.changed.notify_all();
    }
}
