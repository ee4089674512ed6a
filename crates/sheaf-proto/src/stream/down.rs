//! Towards the leaves: the log of what not all of them have consumed, and what each child has of
//! it.
//!
//! A stream is the same bytes everywhere, so that a count of bytes names a place in it. The log
//! holds what some leaf below has not consumed, one copy for all children; a child that was cut off
//! says where it is, and goes on there if the log still has it, which the window sees to: nobody is
//! sent more than a window beyond what its leaves have consumed, and only what all have consumed is
//! forgotten.
use super::{ChildState, Flow, NodeStream, StreamOwner};
use crate::frame::{DownFrame, flag};
use crate::links::{LinkId, Links};
use bytes::Bytes;
use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

use super::ChildId;

/// A leaf tells what it has consumed in steps of at most this: what it has not told stays in the
/// log of every node above it.
const CREDIT_STEP_BYTES_MAX: u64 = 128 << 10;

/// Frames up to this size are copied into the log, so that they do not keep the buffer alive that
/// they were read into.
const LOG_COPY_BYTES_MAX: usize = 2048;

/// A child's place in the stream's log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DownLane {
    /// Bytes of the stream that the child has been sent, and number of the frame that follows.
    pub sent: u64,
    pub next: u64,
    /// Of these, how many every leaf below it has consumed.
    pub acked: u64,
    /// Of filters' replies sent to the child: bytes that it has not acknowledged.
    pub replies_bytes: usize,
}

impl DownLane {
    /// A lane that sends what comes from here on, which is at `sent`, frame `next`.
    pub fn new(sent: u64, next: u64) -> Self {
        Self { sent, next, acked: sent, replies_bytes: 0 }
    }

    pub(super) fn open(&self, window: u64) -> bool {
        // Compares before the frame is added: otherwise a frame longer than the window would never
        // go.
        self.sent - self.acked < window
    }
}

/// What a stream carries from its owner to its children.
pub(crate) struct Downward {
    pub(super) lanes: Vec<DownLane>,
    /// From the owner: received in all.
    pub received: u64,
    /// Of it consumed by everyone below, and told to the owner.
    pub consumed: Flow,
    /// What not every child's leaves have consumed, from `log_base` bytes on; `log_first` is the
    /// number of its first frame.
    pub(super) log: VecDeque<DownFrame>,
    pub(super) log_base: u64,
    pub(super) log_first: u64,
    /// Where it began here.
    pub(super) log_start: u64,
    /// What came last was not the end of a packet.
    pub mid_packet: bool,
    /// Bytes that have come of the packet that came last.
    pub packet_bytes: u64,
    /// How it was opened, for children that come later.
    pub open: Bytes,
    /// A child waits for the next packet to begin.
    pub joining: bool,
    /// Nobody joins before so many bytes have come.
    pub old: u64,
    /// At a leaf: bytes of filters' replies that the service has not dealt with.
    pub replies_due_bytes: usize,
}

impl Index<ChildId> for Downward {
    type Output = DownLane;

    #[inline]
    fn index(&self, child: ChildId) -> &DownLane {
        &self.lanes[child.place()]
    }
}

impl IndexMut<ChildId> for Downward {
    #[inline]
    fn index_mut(&mut self, child: ChildId) -> &mut DownLane {
        &mut self.lanes[child.place()]
    }
}

impl Downward {
    /// A stream that begins at `offset` bytes and was opened by this frame.
    pub fn new(offset: u64, children: usize, open: Bytes) -> Self {
        Self {
            lanes: vec![DownLane::new(offset, 0); children],
            received: offset,
            consumed: Flow { done: offset, acked: offset },
            log: VecDeque::new(),
            log_base: offset,
            log_first: 0,
            log_start: offset,
            mid_packet: false,
            packet_bytes: 0,
            open,
            joining: false,
            old: 0,
            replies_due_bytes: 0,
        }
    }

    /// Number of the frame that will come next.
    pub fn log_end(&self) -> u64 {
        self.log_first + self.log.len() as u64
    }

    /// Whether all of the stream is still here.
    pub fn is_whole(&self) -> bool {
        self.log_base == self.log_start
    }

    pub fn log_start(&self) -> u64 {
        self.log_start
    }

    /// A lane for a child that nothing is sent to so far.
    pub(super) fn idle_lane(&self) -> DownLane {
        DownLane::new(self.log_base, self.log_first)
    }

    /// Bytes that wait here for children.
    pub fn log_bytes(&self) -> usize {
        if self.log.is_empty() { 0 } else { (self.received - self.log_base) as usize }
    }

    /// The number of the frame behind the first `received` bytes, if all that follows them is here.
    pub(super) fn frame_behind(&self, received: u64) -> Option<u64> {
        let (mut at, mut number) = (self.log_base, self.log_first);
        for frame in &self.log {
            if at >= received {
                break;
            }
            at += frame.len() as u64;
            number += 1;
        }
        (at == received).then_some(number)
    }
}

impl NodeStream {
    /// Puts `frame`, which `received` counts already, into the log, and on the link of every child
    /// that is here, has room, and was sent all that came before.
    pub fn forward(&mut self, links: &mut Links, frame: &DownFrame) {
        let number = self.down.log_end();
        for (lane, member) in self.down.lanes.iter_mut().zip(self.members.iter()) {
            if !member.is_here() {
                continue;
            }
            if lane.next == number && lane.open(self.window) && links.has_room(member.link) {
                lane.sent += frame.len() as u64;
                lane.next += 1;
                links.send_down(member.link, frame);
            } else {
                links[member.link].wait(self.id);
            }
        }
        self.down.log.push_back(frame.to_keep(LOG_COPY_BYTES_MAX));
        self.down.mid_packet = frame.flags() & flag::part::LAST == 0;
        // Without members that take part, the frame counts as consumed at once.
        self.acknowledge_down(links);
    }

    /// Moves one waiting frame onto the link `at`, if credit allows. Returns whether more could
    /// follow.
    pub fn pump(&mut self, at: LinkId, links: &mut Links) -> bool {
        if self.owner == StreamOwner::Link(at) {
            return self.pump_up(at, links);
        }
        let Some(child) = self.members.child(at) else { return false };
        let end = self.down.log_end();
        let Downward { lanes, log, log_first, .. } = &mut self.down;
        let lane = &mut lanes[child.place()];
        if !self.members[child].is_here() || !lane.open(self.window) {
            return false;
        }
        let Some(frame) = log.get((lane.next - *log_first) as usize) else { return false };
        lane.sent += frame.len() as u64;
        lane.next += 1;
        links.send_down(at, frame);
        lane.next < end && lane.open(self.window)
    }

    /// What a child's credit says: the leaves below it have consumed `total` bytes; `false` if it
    /// was never sent so many.
    pub fn consumed_by_child(&mut self, child: ChildId, total: u64, links: &mut Links) -> bool {
        let lane = &mut self.down[child];
        if total > lane.sent {
            return false;
        }
        let total = total.max(lane.acked);
        let before = std::mem::replace(&mut lane.acked, total);
        // Only who was furthest behind can have held the others up.
        if before <= self.down.consumed.done || before == self.down.log_base {
            self.acknowledge_down(links);
        }
        true
    }

    /// Tells the owner what all leaves below have consumed, and forgets it.
    pub fn acknowledge_down(&mut self, links: &mut Links) {
        let down = &mut self.down;
        let passed =
            down.lanes.iter().zip(self.members.iter()).filter(|(_, member)| member.takes_part());
        // With nobody left to pass it to, everything counts as consumed.
        let least = passed.map(|(lane, _)| lane.acked).min().unwrap_or(down.received);
        while let Some(first) = down.log.front()
            && down.log_base + first.len() as u64 <= least
        {
            down.log_base += first.len() as u64;
            down.log_first += 1;
            down.log.pop_front();
        }
        if least > down.consumed.done {
            down.consumed.done = least;
            self.tell_consumed(1, links);
        }
    }

    /// At a leaf: `total` bytes of this stream have been consumed.
    pub fn consumed_down(&mut self, total: u64, links: &mut Links) {
        self.down.consumed.done = self.down.consumed.done.max(total);
        self.tell_consumed(self.credit_step().min(CREDIT_STEP_BYTES_MAX), links);
    }

    /// Tells the owner what has been consumed, however little it is.
    pub fn tell_now(&mut self, links: &mut Links) {
        self.tell_consumed(1, links);
    }

    /// An inner node passes on at once what it is told: would every level wait for a quarter of the
    /// window, a deep tree could hold all of it back.
    fn tell_consumed(&mut self, step: u64, links: &mut Links) {
        let StreamOwner::Link(owner) = self.owner else { return };
        let consumed = &mut self.down.consumed;
        if consumed.done - consumed.acked >= step && links[owner].is_alive() {
            consumed.acked = consumed.done;
            super::credit(self.id, 0, consumed.done, owner, links);
        }
    }

    /// Whether the application may send more without its packets piling up here.
    pub fn has_room(&self) -> bool {
        self.down.received - self.down.log_base < self.window
    }

    /// Of the child that is here and has least: what may still be sent to it.
    pub fn least_credit(&self) -> u64 {
        let here =
            self.down.lanes.iter().zip(self.members.iter()).filter(|(_, member)| member.is_here());
        here.map(|(lane, _)| self.window.saturating_sub(lane.sent - lane.acked))
            .min()
            .unwrap_or(self.window)
    }

    /// Whether something waits for a child that may go.
    pub fn can_send_down(&self, child: ChildId) -> bool {
        let lane = &self.down[child];
        self.members[child].state == ChildState::Here
            && lane.next < self.down.log_end()
            && lane.open(self.window)
    }
}
