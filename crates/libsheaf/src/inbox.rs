//! What has arrived and nobody has taken: a queue for each stream, and one order over all.
use crate::reactor;
use bytes::Bytes;
use rustc_hash::FxHashMap;
use rustix::event::{EventfdFlags, eventfd};
use sheaf_core::lock;
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
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
pub enum InboxEnd {
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
struct InboxQueue {
    /// By arrival; in place of a packet that a filter has lost, what is to be said of that.
    messages: VecDeque<(u64, Result<Message, String>)>,
    bytes: usize,
    closed: bool,
    signal: Option<Signal>,
    room: Arc<Notify>,
}

#[derive(Default)]
struct InboxState {
    queues: FxHashMap<u32, InboxQueue>,
    /// The first message of every queue that has one, by arrival.
    fronts: BTreeMap<u64, u32>,
    next: u64,
    ended: bool,
    /// Those who wait for something to change.
    waiting: Wakers,
}

/// Those who wait for something, each once.
#[derive(Default)]
pub struct Wakers(Vec<Waker>);

impl Wakers {
    /// Adds whom `context` belongs to.
    pub fn add(&mut self, context: &Context<'_>) {
        if !self.0.iter().any(|have| have.will_wake(context.waker())) {
            self.0.push(context.waker().clone());
        }
    }

    /// Wakes them all.
    pub fn wake(&mut self) {
        self.0.drain(..).for_each(Waker::wake);
    }
}

/// The queues of one node.
#[derive(Default)]
pub struct Inbox {
    state: Mutex<InboxState>,
}

impl Inbox {
    /// Makes the queue of a stream, so that it can be waited for. A closed one opens again.
    pub fn open(&self, stream: u32) {
        lock(&self.state).queues.entry(stream).or_default().closed = false;
    }

    /// Adds a message; one of a stream that is closed is dropped.
    pub fn push(&self, message: Message) {
        self.push_all(message.stream, &mut vec![Ok(message)]);
    }

    /// Adds messages of one stream, in order, and leaves none behind. In place of one that a filter
    /// has lost stands what is to be said of that.
    pub fn push_all(&self, stream: u32, messages: &mut Vec<Result<Message, String>>) {
        let mut state = lock(&self.state);
        let InboxState { queues, fronts, next, waiting, .. } = &mut *state;
        let queue = queues.entry(stream).or_default();
        if queue.closed || messages.is_empty() {
            messages.clear();
            return;
        }
        if queue.messages.is_empty() {
            fronts.insert(*next, stream);
        }
        for message in messages.drain(..) {
            queue.bytes += cost(&message);
            queue.messages.push_back((*next, message));
            *next += 1;
        }
        if let Some(signal) = &queue.signal {
            signal.raise();
        }
        waiting.wake();
    }

    /// Takes the oldest message of `stream`, or of all; waits until `deadline`, for ever without
    /// one. `None` when the time is over.
    ///
    /// # Errors
    /// [`InboxEnd`] when nothing can come any more, or a packet is missing; what had come is given
    /// first.
    pub fn take(
        &self,
        stream: Option<u32>,
        deadline: Option<Instant>,
    ) -> Result<Option<Message>, InboxEnd> {
        let take = poll_fn(|cx| self.poll_take(stream, cx));
        reactor::wait_until(deadline, take).transpose()
    }

    fn poll_take(&self, stream: Option<u32>, cx: &Context<'_>) -> Poll<Result<Message, InboxEnd>> {
        let mut state = lock(&self.state);
        if let Some(message) = state.take(stream) {
            return Poll::Ready(message.map_err(InboxEnd::Lost));
        }
        if stream.is_some_and(|id| state.queues.get(&id).is_none_or(|queue| queue.closed)) {
            return Poll::Ready(Err(if state.ended {
                InboxEnd::Session
            } else {
                InboxEnd::Stream
            }));
        }
        if state.ended {
            return Poll::Ready(Err(InboxEnd::Session));
        }
        state.waiting.add(cx);
        Poll::Pending
    }

    /// Waits until `what` says something of the state, until `deadline` at most.
    fn wait<T>(
        &self,
        deadline: Option<Instant>,
        what: impl Fn(&InboxState) -> Option<T>,
    ) -> Option<T> {
        let look = poll_fn(|cx| {
            let mut state = lock(&self.state);
            match what(&state) {
                Some(found) => Poll::Ready(found),
                None => {
                    state.waiting.add(cx);
                    Poll::Pending
                }
            }
        });
        reactor::wait_until(deadline, look)
    }

    /// Whether a message is there, of `stream` or of any.
    pub fn has(&self, stream: Option<u32>) -> bool {
        let state = lock(&self.state);
        match stream {
            None => !state.fronts.is_empty(),
            Some(id) => state.queues.get(&id).is_some_and(|queue| !queue.messages.is_empty()),
        }
    }

    /// Waits until `stream` holds less than [`QUEUED_BYTES_MAX`], or its end.
    pub async fn room(&self, stream: u32) {
        loop {
            let room = {
                let state = lock(&self.state);
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
        let mut state = lock(&self.state);
        if let Some(queue) = state.queues.get_mut(&stream) {
            queue.closed = true;
            queue.room.notify_one();
            if let Some(signal) = &queue.signal {
                signal.raise();
            }
        }
        state.waiting.wake();
    }

    /// Forgets the stream and what it holds; gives that back, for what is owed.
    pub fn forget(&self, stream: u32) -> Vec<Message> {
        let mut state = lock(&self.state);
        let Some(queue) = state.queues.remove(&stream) else { return Vec::new() };
        if let Some((number, _)) = queue.messages.front() {
            state.fronts.remove(number);
        }
        queue.room.notify_one();
        state.waiting.wake();
        drop(state);
        queue.messages.into_iter().filter_map(|(_, message)| message.ok()).collect()
    }

    /// Nothing comes any more on any stream.
    pub fn end(&self) {
        let mut state = lock(&self.state);
        state.ended = true;
        state.queues.values().filter_map(|queue| queue.signal.as_ref()).for_each(Signal::raise);
        state.queues.values().for_each(|queue| queue.room.notify_one());
        state.waiting.wake();
    }

    /// Whether [`Inbox::end`] was called.
    pub fn is_ended(&self) -> bool {
        lock(&self.state).ended
    }

    /// Waits for [`Inbox::end`]; `false` when the time is over.
    pub fn wait_end(&self, deadline: Option<Instant>) -> bool {
        self.wait(deadline, |state| state.ended.then_some(())).is_some()
    }

    /// Whether the stream is there and not closed.
    pub fn is_open(&self, stream: u32) -> bool {
        let state = lock(&self.state);
        !state.ended && state.queues.get(&stream).is_some_and(|queue| !queue.closed)
    }

    /// Waits until the stream is open; `false` when the time or the session is over.
    pub fn wait_open(&self, stream: u32, deadline: Instant) -> bool {
        let opened = self.wait(Some(deadline), |state| {
            let open = state.queues.get(&stream).is_some_and(|queue| !queue.closed);
            (open || state.ended).then_some(open)
        });
        opened.unwrap_or(false)
    }

    /// The descriptor that tells of data on `stream`, made when it is first asked for.
    pub fn signal(&self, stream: u32) -> Option<RawFd> {
        let mut state = lock(&self.state);
        let queue = state.queues.get_mut(&stream)?;
        if queue.signal.is_none() {
            reactor::watch();
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
        if let Some(queue) = lock(&self.state).queues.get_mut(&stream) {
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

impl InboxState {
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
    fn messages_that_come_together_keep_their_order() {
        let inbox = Inbox::default();
        inbox.open(1);
        inbox.push(message(2, 20));
        let mut many = vec![Ok(message(1, 10)), Ok(message(1, 11))];
        inbox.push_all(1, &mut many);
        inbox.push(message(2, 21));
        assert!(many.is_empty());
        let tags = [(); 4].map(|()| inbox.take(None, None).unwrap().unwrap().tag);
        assert_eq!(tags, [20, 10, 11, 21]);
        inbox.close(1);
        inbox.push_all(1, &mut vec![Ok(message(1, 12))]);
        assert!(!inbox.has(None));
    }

    #[test]
    fn one_thread_waits_while_another_pushes() {
        let inbox = Arc::new(Inbox::default());
        inbox.open(1);
        let taker = Arc::clone(&inbox);
        let takes =
            move || (0..100).map(|_| taker.take(Some(1), None).unwrap().unwrap().tag).collect();
        let taken = std::thread::spawn::<_, Vec<i32>>(takes);
        (0..100).for_each(|tag| inbox.push(message(1, tag)));
        assert_eq!(taken.join().unwrap(), (0..100).collect::<Vec<_>>());
        assert!(inbox.take(Some(1), Some(Instant::now())).unwrap().is_none());
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
    fn inbox_delivers_queued_messages_before_the_session_end() {
        let inbox = Inbox::default();
        inbox.open(1);
        inbox.push(message(1, 10));
        inbox.close(1);
        inbox.push(message(1, 11));
        inbox.end();
        assert_eq!(inbox.take(Some(1), None).unwrap().unwrap().tag, 10);
        assert_eq!(inbox.take(Some(1), None).unwrap_err(), InboxEnd::Session);
        assert_eq!(inbox.take(None, None).unwrap_err(), InboxEnd::Session);
    }

    #[test]
    fn lost_packet_is_told_of_in_its_place() {
        let inbox = Inbox::default();
        inbox.open(1);
        inbox.push(message(1, 10));
        inbox.push_all(1, &mut vec![Err("it failed".to_owned())]);
        inbox.push(message(1, 12));
        assert_eq!(inbox.take(Some(1), None).unwrap().unwrap().tag, 10);
        assert!(inbox.has(Some(1)));
        assert_eq!(inbox.take(None, None).unwrap_err(), InboxEnd::Lost("it failed".to_owned()));
        assert_eq!(inbox.take(Some(1), None).unwrap().unwrap().tag, 12);
        assert!(!inbox.has(Some(1)));
    }

    #[test]
    fn inbox_room_waiter_wakes_when_stream_or_session_ends() {
        let full = || {
            let inbox = Arc::new(Inbox::default());
            inbox.open(1);
            inbox.push(Message { packet: vec![0; QUEUED_BYTES_MAX].into(), ..message(1, 10) });
            let waiter = Arc::clone(&inbox);
            (inbox, std::thread::spawn(move || reactor::park(waiter.room(1))))
        };
        let ends: [fn(&Inbox); 3] =
            [Inbox::end, |inbox| inbox.close(1), |inbox| drop(inbox.forget(1))];
        for end in ends {
            let (inbox, waiter) = full();
            end(&inbox);
            waiter.join().unwrap();
        }
    }
}
