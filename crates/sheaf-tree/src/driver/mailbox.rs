//! Values for tasks of this process that wait for them: results, room, events, requested streams.
use super::claims::Claims;
use crate::proto::control::Verdict;
use crate::proto::{Node, Notice};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::task::Waker;
use tokio::sync::mpsc;

/// What waits for something of the process's own node, and the values that are waited for.
#[derive(Default)]
pub(crate) struct Mailbox {
    /// Tasks that wait for a result of a stream.
    for_result: FxHashMap<u32, Vec<Waker>>,
    /// Tasks that wait for room on a stream.
    for_room: FxHashMap<u32, Vec<Waker>>,
    /// Tasks that wait for the answer to one request.
    pub claims: Claims,
    for_event: Vec<Waker>,
    /// Streams with new results; kept so that it is allocated once.
    fresh: Vec<u32>,
    /// Streams that services at leaves request, by the name of the service.
    wants: FxHashMap<String, WantList>,
    /// Leads to the task that starts nodes.
    pub errands: Option<mpsc::Sender<Errand>>,
}

impl Mailbox {
    /// Hands results to the requests that wait for just these, and wakes tasks that wait for any
    /// result of a stream. Returns whether results were taken from `root`.
    pub(super) fn give_out(&mut self, root: &mut Node) -> bool {
        root.take_fresh(&mut self.fresh);
        let mut taken = false;
        for stream in self.fresh.drain(..) {
            if self.claims.has(stream) {
                while let Some(result) = root.take(stream) {
                    self.claims.give(stream, result);
                    taken = true;
                }
            }
            if let Some(wakers) = self.for_result.remove(&stream) {
                wakers.into_iter().for_each(Waker::wake);
            }
        }
        taken
    }

    /// Wakes tasks that wait for room on streams of `root` that have some.
    pub(super) fn wake_for_room(&mut self, root: &Node) {
        if !self.for_room.is_empty() {
            self.for_room.retain(|&stream, wakers| {
                let room = root.has_room(stream);
                if room {
                    wakers.drain(..).for_each(Waker::wake);
                }
                !room
            });
        }
    }

    /// Wakes tasks that wait for an event.
    pub(super) fn wake_for_event(&mut self) {
        self.for_event.drain(..).for_each(Waker::wake);
    }

    /// Wakes `waker` when the stream has another result.
    pub fn wait_for_result(&mut self, stream: u32, waker: &Waker) {
        add_waker(self.for_result.entry(stream).or_default(), waker);
    }

    /// Wakes `waker` when packets can be sent on the stream again.
    pub fn wait_for_room(&mut self, stream: u32, waker: &Waker) {
        add_waker(self.for_room.entry(stream).or_default(), waker);
    }

    /// Wakes `waker` at the next event of the process's own node.
    pub fn wait_for_event(&mut self, waker: &Waker) {
        add_waker(&mut self.for_event, waker);
    }

    /// Keeps a leaf's request for a stream to `service`.
    pub(super) fn add_want(&mut self, service: String, want: Want) {
        self.wants.entry(service).or_default().push(want);
    }

    /// The oldest request for a stream to `service`.
    pub fn take_want(&mut self, service: &str) -> Option<Want> {
        self.wants.get_mut(service)?.0.pop_front()
    }

    /// Hands `errand` to the task that starts nodes. One that finds the queue full is dropped: it
    /// is requested again.
    pub(super) fn send_errand(&self, errand: Errand) {
        if let Some(errands) = &self.errands {
            let _ = errands.try_send(errand);
        }
    }
}

/// A service at a leaf asks for a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want {
    /// The leaf.
    pub leaf: u32,
    /// What the service has to say.
    pub note: Vec<u8>,
}

/// Streams requested for one service, bounded by [`WANTS_MAX`]: a leaf repeats a request that was
/// dropped.
#[derive(Debug, Default)]
struct WantList(VecDeque<Want>);

/// The most streams that are wanted of one service and not looked at.
const WANTS_MAX: usize = 4096;

impl WantList {
    fn push(&mut self, want: Want) {
        if self.0.len() < WANTS_MAX && !self.0.contains(&want) {
            self.0.push_back(want);
        }
    }
}

/// Work of a node for the task that starts nodes.
pub(crate) enum Errand {
    /// A node below asks for help.
    Notice(Notice),
    /// The root has answered.
    Verdict(Verdict),
}

fn add_waker(wakers: &mut Vec<Waker>, waker: &Waker) {
    if !wakers.iter().any(|have| have.will_wake(waker)) {
        wakers.push(waker.clone());
    }
}
