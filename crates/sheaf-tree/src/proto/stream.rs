//! One stream at one node: its members, its waves, and what may be under way on each link.
use super::Time;
use super::control::Sync;
use super::frame::{Header, Violation};
use super::link::Link;
use super::wave::{After, Arrival, Contribution, Coverage, Member, Waves};
use super::{LINK_OUT_BYTES, frame};
use crate::filter::{Filter, FilterError};
use bytes::Bytes;
use sheaf_core::RangeSet;
use std::collections::VecDeque;
use std::sync::Arc;

/// Who opened the stream here, and so where its waves go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// The application of this process.
    App,
    /// The peer on this link.
    Link(usize),
}

/// Flow of one direction of a stream on one link, in bytes since it was opened.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Flow {
    /// Sent, by the sender; consumed, by the receiver.
    pub done: u64,
    /// Acknowledged by the receiver; told to the sender.
    pub acked: u64,
}

impl Flow {
    fn open(self, window: u64) -> bool {
        self.done - self.acked < window
    }
}

/// What a child link carries for the stream.
pub(super) struct Lane {
    pub link: usize,
    /// Towards the child.
    pub down: Flow,
    /// Frames that wait for credit or for room on the link.
    pub queue: VecDeque<Bytes>,
    pub queued_bytes: usize,
    /// From the child: consumed here.
    pub up: Flow,
    /// A packet of several parts that is being put together.
    pub assembly: Vec<u8>,
    /// Its wave.
    pub assembling: Option<u64>,
    /// Of filters' replies sent to the child: bytes that it has not acknowledged.
    pub replies_bytes: usize,
}

/// A frame for the owner that waits, with the contributions whose credit waits with it.
pub(super) struct Held {
    pub frame: Bytes,
    pub from: Vec<Contribution>,
}

/// A finished (or partial) wave for the application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaveResult {
    /// Its number: what [`super::Node::send`] returned, or the leaves' count of unasked packets.
    pub wave: u64,
    /// Tag of the packets.
    pub tag: i32,
    /// Whether this was the last of the wave; partial results of the time-out and do-not-wait
    /// modes each cover other leaves.
    pub complete: bool,
    /// Whose data it is.
    pub coverage: Coverage,
    /// The combined data; `None` when nobody had any.
    pub payload: Option<Bytes>,
}

pub(super) struct Stream {
    pub owner: Owner,
    pub members: Arc<RangeSet>,
    pub filter: Box<dyn Filter>,
    pub sync: Sync,
    pub window: u64,
    /// Parallel: the children as waves see them, and what their links carry.
    pub children: Vec<Member>,
    pub lanes: Vec<Lane>,
    /// Ordinal among `children` by link; `u32::MAX`: not on this stream.
    pub ordinal: Vec<u32>,
    pub waves: Waves,
    /// No open wave has a deadline or flush before this.
    pub timer: Option<Time>,
    /// Next number of a wave this node starts: the root's requests, a leaf's unasked packets.
    pub next_wave: u64,
    /// Towards the owner: sent.
    pub up: Flow,
    pub held: VecDeque<Held>,
    /// From the owner: received in all, and of it consumed.
    pub received: u64,
    pub down: Flow,
    /// Results for the application, with the credit to give once they are taken.
    pub inbox: VecDeque<(WaveResult, Vec<Contribution>)>,
    /// On the node's list of streams with results.
    pub fresh: bool,
    /// The owner has been told that nobody is left here.
    pub left: bool,
    /// At a leaf: bytes of filters' replies that the service has not dealt with.
    pub replies_due_bytes: usize,
}

impl Stream {
    /// Ordinal of the child on `link`.
    #[inline]
    pub fn child(&self, link: usize) -> Option<usize> {
        self.ordinal
            .get(link)
            .map(|&ordinal| ordinal as usize)
            .filter(|&ordinal| ordinal < self.children.len())
    }

    /// Takes a contribution into its wave. A filter's complaint is left in `complaint`.
    #[inline]
    pub fn contribute(
        &mut self,
        wave: u64,
        arrival: &Arrival<'_>,
        complaint: &mut Option<FilterError>,
    ) -> Result<After, Violation> {
        // Who was given up may still send what it was working on.
        if !self.children[arrival.child].live {
            return Ok(After::Drop);
        }
        match self.waves.open(wave, &self.children)? {
            Some(slot) => slot.contribute(arrival, &self.children, &*self.filter, self.sync, complaint),
            None => Ok(After::Drop),
        }
    }

    /// Whether some child still takes part.
    pub fn has_members(&self) -> bool {
        self.children.iter().any(|member| member.live)
    }

    /// Queues `frame` for every live child.
    pub fn forward(&mut self, id: u32, links: &mut [Link], dirty: &mut Vec<usize>, frame: &Bytes) {
        for (lane, member) in self.lanes.iter_mut().zip(&self.children) {
            if !member.live {
                continue;
            }
            let link = &mut links[lane.link];
            if lane.queue.is_empty() && lane.down.open(self.window) && link.out.len() < LINK_OUT_BYTES {
                lane.down.done += frame.len() as u64;
                link.out.push(frame.clone());
                mark(links, dirty, lane.link);
            } else {
                lane.queued_bytes += frame.len();
                lane.queue.push_back(frame.clone());
                wait(link, id);
            }
        }
        self.acknowledge_down(id, links, dirty);
    }

    /// Moves one waiting frame onto `link`, if credit allows. Returns whether more could follow.
    pub fn pump(&mut self, id: u32, at: usize, links: &mut [Link], dirty: &mut Vec<usize>) -> bool {
        if self.owner == Owner::Link(at) {
            return self.pump_up(id, at, links, dirty);
        }
        let Some(ordinal) = self.child(at) else { return false };
        let lane = &mut self.lanes[ordinal];
        if !lane.down.open(self.window) {
            return false;
        }
        let Some(frame) = lane.queue.pop_front() else { return false };
        lane.queued_bytes -= frame.len();
        lane.down.done += frame.len() as u64;
        links[at].out.push(frame);
        mark(links, dirty, at);
        let more = !lane.queue.is_empty() && lane.down.open(self.window);
        self.acknowledge_down(id, links, dirty);
        more
    }

    fn pump_up(&mut self, id: u32, at: usize, links: &mut [Link], dirty: &mut Vec<usize>) -> bool {
        if !self.up.open(self.window) {
            return false;
        }
        let Some(held) = self.held.pop_front() else { return false };
        self.up.done += frame::cost(held.frame.len()) as u64;
        links[at].out.push(held.frame);
        mark(links, dirty, at);
        self.give_credit(id, &held.from, links, dirty);
        !self.held.is_empty() && self.up.open(self.window)
    }

    /// Tells the owner what has been passed on to every live child.
    fn acknowledge_down(&mut self, id: u32, links: &mut [Link], dirty: &mut Vec<usize>) {
        let passed = self.lanes.iter().zip(&self.children).filter(|(_, member)| member.live);
        // With nobody left to pass it to, everything counts as passed on.
        let least = passed.map(|(lane, _)| lane.down.done).min().unwrap_or(self.received);
        self.consumed_down(id, least, links, dirty);
    }

    /// Tells the owner that `total` bytes of this stream have been consumed here.
    pub fn consumed_down(&mut self, id: u32, total: u64, links: &mut [Link], dirty: &mut Vec<usize>) {
        self.down.done = self.down.done.max(total);
        let Owner::Link(owner) = self.owner else { return };
        if self.down.done - self.down.acked >= self.credit_step() {
            self.down.acked = self.down.done;
            credit(id, 0, self.down.done, owner, links, dirty);
        }
    }

    /// Credit is given in quarters of the window: rarely, and before the sender has to wait.
    fn credit_step(&self) -> u64 {
        (self.window / 4).max(1)
    }

    /// Gives the children credit for contributions that have been passed on or dropped.
    #[inline]
    pub fn give_credit(
        &mut self,
        id: u32,
        from: &[Contribution],
        links: &mut [Link],
        dirty: &mut Vec<usize>,
    ) {
        for (ordinal, from) in from.iter().enumerate() {
            self.consumed_up(id, ordinal, from.bytes() as usize, links, dirty);
        }
    }

    /// Counts `bytes` of a child's as consumed, and tells it now and then.
    #[inline]
    pub fn consumed_up(
        &mut self,
        id: u32,
        child: usize,
        bytes: usize,
        links: &mut [Link],
        dirty: &mut Vec<usize>,
    ) {
        let step = self.credit_step();
        let lane = &mut self.lanes[child];
        lane.up.done += bytes as u64;
        if lane.up.done - lane.up.acked >= step {
            lane.up.acked = lane.up.done;
            credit(id, frame::flag::UPWARD, lane.up.done, lane.link, links, dirty);
        }
    }

    /// Bytes that wait with this stream.
    pub fn queued_bytes(&self) -> usize {
        let lanes = self.lanes.iter().map(|lane| lane.queued_bytes + lane.assembly.len());
        let held = self.held.iter().map(|held| held.frame.len());
        let inbox = self.inbox.iter().map(|(result, _)| result.payload.as_ref().map_or(0, Bytes::len));
        lanes.chain(held).chain(inbox).sum()
    }

    /// Whether the application may send more without its packets piling up here.
    pub fn has_room(&self) -> bool {
        let lanes = self.lanes.iter().zip(&self.children).filter(|(_, member)| member.live);
        lanes.map(|(lane, _)| lane.queued_bytes as u64).max().unwrap_or(0) < self.window
    }

    /// Queues a frame for the owner. `from` gets its credit once the frame is on its way.
    pub fn send_up(
        &mut self,
        id: u32,
        header: Header,
        body: &[u8],
        from: &[Contribution],
        links: &mut [Link],
        dirty: &mut Vec<usize>,
    ) {
        let Owner::Link(owner) = self.owner else { return };
        let mut header = header;
        header.body_len = body.len() as u32;
        let link = &mut links[owner];
        if !link.alive {
            return;
        }
        if self.held.is_empty() && self.up.open(self.window) && link.out.len() < LINK_OUT_BYTES {
            self.up.done += header.cost() as u64;
            link.out.append(&header.to_bytes());
            link.out.append(body);
            mark(links, dirty, owner);
            self.give_credit(id, from, links, dirty);
        } else {
            self.held.push_back(Held { frame: frame::encode(header, body), from: from.to_vec() });
            wait(link, id);
        }
    }

    /// A child is gone: its queue with it.
    pub fn drop_child(&mut self, id: u32, child: usize, links: &mut [Link], dirty: &mut Vec<usize>) {
        let lane = &mut self.lanes[child];
        lane.queue.clear();
        lane.queued_bytes = 0;
        lane.assembly = Vec::new();
        self.acknowledge_down(id, links, dirty);
    }
}

/// Puts `link` on the list of links with something to write.
#[inline]
pub(super) fn mark(links: &mut [Link], dirty: &mut Vec<usize>, link: usize) {
    if !links[link].dirty {
        links[link].dirty = true;
        dirty.push(link);
    }
}

/// Notes that a stream has data waiting for this link.
pub(super) fn wait(link: &mut Link, stream: u32) {
    if !link.waiting.contains(&stream) {
        link.waiting.push_back(stream);
    }
}

fn credit(id: u32, flags: u8, total: u64, at: usize, links: &mut [Link], dirty: &mut Vec<usize>) {
    if links[at].alive {
        let header = Header { flags, stream: id, wave: total, ..Header::new(frame::Kind::Credit) };
        links[at].out.append(&header.to_bytes());
        mark(links, dirty, at);
    }
}
