//! What has arrived and nobody has taken: a queue for each stream, and one order over all.
use bytes::Bytes;
use rustc_hash::FxHashMap;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::Notify;

/// What one stream may keep here before its sender has to wait, in bytes of packets.
pub const QUEUED_BYTES_MAX: usize = 4 << 20;
/// A small packet counts for this much, for the memory around it.
const MESSAGE_BYTES: usize = 128;

/// One packet for the application.
#[derive(Debug, Clone)]
pub struct Message {
    /// Its stream, as the application knows it.
    pub stream: u32,
    /// Its sender's tag.
    pub tag: i32,
    /// Rank of its sender; [`crate::NO_RANK`] for what a filter made of several.
    pub source: u32,
    /// The packet.
    pub packet: Bytes,
    /// What the link is owed once it is taken: its stream there, and bytes.
    pub owed: Option<(u32, usize)>,
}

/// No packet comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The session is over.
    Session,
    /// The stream is closed.
    Stream,
    /// A filter failed in the place of this packet, as this says. Others may follow.
    Lost(String),
}

/// A descriptor that is readable while something is there to be told.
#[derive(Debug)]
pub struct Signal(OwnedFd);

impl Signal {
    /// Makes one.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes it readable.
    pub fn raise(&self) {
        // Full only after 2⁶⁴ raises, and readable then.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Makes it unreadable until it is raised again.
    pub fn clear(&self) {
        // Empty already is as good.
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }

    /// Its number, for `select` and `poll`.
    pub fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[derive(Default)]
struct Queue {
    /// By arrival; in place of a packet that a filter has lost, what is to be said of that.
    messages: VecDeque<(u64, Result<Message, String>)>,
    bytes: usize,
    closed: bool,
    signal: Option<Signal>,
    room: Arc<Notify>,
}

#[derive(Default)]
struct State {
    queues: FxHashMap<u32, Queue>,
    /// The first message of every queue that has one, by arrival.
    fronts: BTreeMap<u64, u32>,
    next: u64,
    ended: bool,
    /// Threads that wait for something to change.
    waiting: u32,
}

/// The queues of one node.
#[derive(Default)]
pub struct Inbox {
    state: Mutex<State>,
    changed: Condvar,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the queue of a stream, so that it can be waited for. A closed one opens again.
    pub fn open(&self, stream: u32) {
        self.lock().queues.entry(stream).or_default().closed = false;
    }

    /// Adds a message; one of a stream that is closed is dropped.
    pub fn push(&self, message: Message) {
        self.add(message.stream, Ok(message));
    }

    /// Says in the place of a packet of `stream` why it is missing.
    pub fn push_lost(&self, stream: u32, why: String) {
        self.add(stream, Err(why));
    }

    fn add(&self, stream: u32, message: Result<Message, String>) {
        let mut state = self.lock();
        let State { queues, fronts, next, .. } = &mut *state;
        let queue = queues.entry(stream).or_default();
        if queue.closed {
            return;
        }
        let number = *next;
        *next += 1;
        if queue.messages.is_empty() {
            fronts.insert(number, stream);
        }
        queue.bytes += cost(&message);
        queue.messages.push_back((number, message));
        if let Some(signal) = &queue.signal {
            signal.raise();
        }
        let waited_for = state.waiting > 0;
        drop(state);
        if waited_for {
            self.changed.notify_all();
        }
    }

    /// Waits for a change, until `deadline` at most; `None` when that is over.
    fn wait<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        deadline: Option<Instant>,
    ) -> Option<MutexGuard<'a, State>> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return None;
        }
        state.waiting += 1;
        let mut state = match left {
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(left) => self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
        };
        state.waiting -= 1;
        Some(state)
    }

    /// Takes the oldest message of `stream`, or of all; waits until `deadline`, for ever without
    /// one. `None` when the time is over.
    ///
    /// # Errors
    /// [`End`] when nothing can come any more, or a packet is missing; what had come is given first.
    pub fn take(&self, stream: Option<u32>, deadline: Option<Instant>) -> Result<Option<Message>, End> {
        let mut state = self.lock();
        loop {
            if let Some(message) = state.take(stream) {
                return message.map(Some).map_err(End::Lost);
            }
            if stream.is_some_and(|id| state.queues.get(&id).is_none_or(|queue| queue.closed)) {
                return Err(if state.ended { End::Session } else { End::Stream });
            }
            if state.ended {
                return Err(End::Session);
            }
            let Some(changed) = self.wait(state, deadline) else { return Ok(None) };
            state = changed;
        }
    }

    /// Whether a message is there, of `stream` or of any.
    pub fn has(&self, stream: Option<u32>) -> bool {
        let state = self.lock();
        match stream {
            None => !state.fronts.is_empty(),
            Some(id) => state.queues.get(&id).is_some_and(|queue| !queue.messages.is_empty()),
        }
    }

    /// Waits until `stream` holds less than [`QUEUED_BYTES_MAX`], or its end.
    pub async fn room(&self, stream: u32) {
        loop {
            let room = {
                let state = self.lock();
                let Some(queue) = state.queues.get(&stream) else { return };
                if queue.closed || state.ended || queue.bytes < QUEUED_BYTES_MAX {
                    return;
                }
                Arc::clone(&queue.room)
            };
            // A permit is kept when the reader was faster than this.
            room.notified().await;
        }
    }

    /// No more messages come on `stream`; those that are there can be taken.
    pub fn close(&self, stream: u32) {
        if let Some(queue) = self.lock().queues.get_mut(&stream) {
            queue.closed = true;
            queue.room.notify_one();
            if let Some(signal) = &queue.signal {
                signal.raise();
            }
        }
        self.changed.notify_all();
    }

    /// Forgets the stream and what it holds; gives that back, for what is owed.
    pub fn forget(&self, stream: u32) -> Vec<Message> {
        let mut state = self.lock();
        let Some(queue) = state.queues.remove(&stream) else { return Vec::new() };
        if let Some((number, _)) = queue.messages.front() {
            state.fronts.remove(number);
        }
        queue.room.notify_one();
        drop(state);
        self.changed.notify_all();
        queue.messages.into_iter().filter_map(|(_, message)| message.ok()).collect()
    }

    /// Nothing comes any more on any stream.
    pub fn end(&self) {
        let mut state = self.lock();
        state.ended = true;
        state.queues.values().filter_map(|queue| queue.signal.as_ref()).for_each(Signal::raise);
        state.queues.values().for_each(|queue| queue.room.notify_one());
        drop(state);
        self.changed.notify_all();
    }

    /// Whether [`Inbox::end`] was called.
    pub fn is_ended(&self) -> bool {
        self.lock().ended
    }

    /// Waits for [`Inbox::end`]; `false` when the time is over.
    pub fn wait_end(&self, deadline: Option<Instant>) -> bool {
        let mut state = self.lock();
        while !state.ended {
            let Some(changed) = self.wait(state, deadline) else { return false };
            state = changed;
        }
        true
    }

    /// Whether the stream is there and not closed.
    pub fn is_open(&self, stream: u32) -> bool {
        let state = self.lock();
        !state.ended && state.queues.get(&stream).is_some_and(|queue| !queue.closed)
    }

    /// Waits until the stream is open; `false` when the time or the session is over.
    pub fn wait_open(&self, stream: u32, deadline: Instant) -> bool {
        let mut state = self.lock();
        loop {
            if state.queues.get(&stream).is_some_and(|queue| !queue.closed) {
                return true;
            }
            if state.ended {
                return false;
            }
            let Some(changed) = self.wait(state, Some(deadline)) else { return false };
            state = changed;
        }
    }

    /// The descriptor that tells of data on `stream`, made when it is first asked for.
    pub fn signal(&self, stream: u32) -> Option<RawFd> {
        let mut state = self.lock();
        let queue = state.queues.get_mut(&stream)?;
        if queue.signal.is_none() {
            let signal = Signal::new().ok()?;
            if !queue.messages.is_empty() {
                signal.raise();
            }
            queue.signal = Some(signal);
        }
        queue.signal.as_ref().map(Signal::number)
    }

    /// Makes the descriptor of `stream` unreadable until more data comes; `close` ends it.
    pub fn clear_signal(&self, stream: u32, close: bool) {
        if let Some(queue) = self.lock().queues.get_mut(&stream) {
            if let Some(signal) = &queue.signal {
                signal.clear();
            }
            if close {
                queue.signal = None;
            }
        }
    }
}

/// What a message counts for.
fn cost(message: &Result<Message, String>) -> usize {
    MESSAGE_BYTES + message.as_ref().map_or_else(String::len, |message| message.packet.len())
}

impl State {
    fn take(&mut self, stream: Option<u32>) -> Option<Result<Message, String>> {
        let id = match stream {
            Some(id) => id,
            None => *self.fronts.first_key_value()?.1,
        };
        let queue = self.queues.get_mut(&id)?;
        let (number, message) = queue.messages.pop_front()?;
        self.fronts.remove(&number);
        if let Some((next, _)) = queue.messages.front() {
            self.fronts.insert(*next, id);
        }
        let was_full = queue.bytes >= QUEUED_BYTES_MAX;
        queue.bytes -= cost(&message);
        if was_full && queue.bytes < QUEUED_BYTES_MAX {
            queue.room.notify_one();
        }
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(stream: u32, tag: i32) -> Message {
        Message { stream, tag, source: 0, packet: Bytes::new(), owed: None }
    }

    #[test]
    fn anonymous_and_named_takes_keep_the_order() {
        let inbox = Inbox::default();
        for (stream, tag) in [(1, 10), (2, 20), (1, 11), (2, 21), (1, 12)] {
            inbox.open(stream);
            inbox.push(message(stream, tag));
        }
        let mut tags = Vec::new();
        for stream in [None, Some(2), None, None, None] {
            tags.push(inbox.take(stream, Some(Instant::now())).unwrap().unwrap().tag);
        }
        assert_eq!(tags, [10, 20, 11, 21, 12]);
        assert!(inbox.take(None, Some(Instant::now())).unwrap().is_none());
    }

    #[test]
    fn what_came_before_the_end_is_given_first() {
        let inbox = Inbox::default();
        inbox.open(1);
        inbox.push(message(1, 10));
        inbox.close(1);
        inbox.push(message(1, 11));
        inbox.end();
        assert_eq!(inbox.take(Some(1), None).unwrap().unwrap().tag, 10);
        assert_eq!(inbox.take(Some(1), None).unwrap_err(), End::Session);
        assert_eq!(inbox.take(None, None).unwrap_err(), End::Session);
    }

    #[test]
    fn a_lost_packet_is_told_of_in_its_place() {
        let inbox = Inbox::default();
        inbox.open(1);
        inbox.push(message(1, 10));
        inbox.push_lost(1, "it failed".to_owned());
        inbox.push(message(1, 12));
        assert_eq!(inbox.take(Some(1), None).unwrap().unwrap().tag, 10);
        assert!(inbox.has(Some(1)));
        assert_eq!(inbox.take(None, None).unwrap_err(), End::Lost("it failed".to_owned()));
        assert_eq!(inbox.take(Some(1), None).unwrap().unwrap().tag, 12);
        assert!(!inbox.has(Some(1)));
    }

    #[test]
    fn who_waits_for_room_learns_of_the_end() {
        let full = || {
            let inbox = Arc::new(Inbox::default());
            inbox.open(1);
            inbox.push(Message { packet: vec![0; QUEUED_BYTES_MAX].into(), ..message(1, 10) });
            let waiter = Arc::clone(&inbox);
            (inbox, std::thread::spawn(move || crate::runtime::block_on(waiter.room(1))))
        };
        let ends: [fn(&Inbox); 3] = [Inbox::end, |inbox| inbox.close(1), |inbox| drop(inbox.forget(1))];
        for end in ends {
            let (inbox, waiter) = full();
            end(&inbox);
            waiter.join().unwrap();
        }
    }
}
