//! One stream at one node: its members, its waves, and what may be under way on each link.
use super::Time;
use super::control::Sync;
use super::frame::{Header, Kind, Violation, flag};
use super::links::{LinkId, Links};
use super::steady::{Complete, Steady};
use super::wave::{After, Arrival, Contribution, Coverage, Member, WAVES_OPEN_MAX, Waves};
use super::{LINK_OUT_BYTES, frame};
use crate::filter::{Filter, FilterError, Uniform};
use bytes::Bytes;
use sheaf_core::RangeSet;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

mod check;
mod kept;
mod members;

pub(super) use kept::{Kept, WaveSet};

/// A leaf tells what it has consumed in steps of at most this: what it has not told stays in the
/// log of every node above it.
const CREDIT_STEP_BYTES_MAX: u64 = 128 << 10;

/// Frames up to this size are copied into the log, so that they do not keep the buffer alive that
/// they were read into.
const LOG_COPY_BYTES_MAX: usize = 2048;

/// Who opened the stream here, and so where its waves go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// The application of this process.
    App,
    /// The peer on this link.
    Link(LinkId),
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

/// What a child link carries for the stream. Downwards it is a place in the stream's log.
pub(super) struct Lane {
    pub link: LinkId,
    /// Bytes of the stream that the child has been sent, and number of the frame that follows.
    pub sent: u64,
    pub next: u64,
    /// Of these, how many every leaf below it has consumed.
    pub acked: u64,
    /// Nothing is sent: the link is lost and its leaves are waited for, or the child has not said
    /// where it is.
    pub away: bool,
    /// The child joins where the next packet begins.
    pub fresh: bool,
    /// The child has been told to open the stream anew; what comes before it says that it has done so
    /// belongs to the stream as it was.
    pub stale: bool,
    /// From the child: consumed here.
    pub up: Flow,
    /// A packet of several parts that is being put together.
    pub assembly: Vec<u8>,
    /// Its wave.
    pub assembling: Option<u64>,
    /// Of filters' replies sent to the child: bytes that it has not acknowledged.
    pub replies_bytes: usize,
}

impl Lane {
    /// A lane that sends what comes from here on, which is at `sent`, frame `next`.
    pub fn new(link: LinkId, sent: u64, next: u64) -> Self {
        Self {
            link,
            sent,
            next,
            acked: sent,
            away: false,
            fresh: false,
            stale: false,
            up: Flow::default(),
            assembly: Vec::new(),
            assembling: None,
            replies_bytes: 0,
        }
    }

    fn open(&self, window: u64) -> bool {
        self.sent - self.acked < window
    }
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

/// Packets of waves that follow one another, all of the size that the stream's filter knows.
#[derive(Debug, Default)]
pub(super) struct Run {
    pub first: u64,
    pub count: u64,
    pub tag: i32,
    pub items: Vec<u8>,
}

pub(super) struct Stream {
    pub id: u32,
    pub owner: Owner,
    pub members: Arc<RangeSet>,
    /// Those that it had when it was opened here: contributions may still name them.
    pub ever: Arc<RangeSet>,
    pub filter: Box<dyn Filter>,
    pub uniform: Option<Uniform>,
    pub sync: Sync,
    pub window: u64,
    /// Parallel: the children as waves see them, and what their links carry.
    pub children: Vec<Member>,
    pub lanes: Vec<Lane>,
    /// Ordinal among `children` by link; `u32::MAX`: not on this stream.
    pub ordinal: Vec<u32>,
    pub waves: Waves,
    /// The open waves, while nothing disturbs them; there are no slots then.
    pub steady: Option<Steady>,
    /// At a leaf: packets that go out as one run.
    pub run: Run,
    /// No open wave has a deadline or flush before this.
    pub timer: Option<Time>,
    /// With a time-out: waves of which something has come that is to be passed on.
    pub due: BTreeSet<u64>,
    /// Next number of a wave this node starts: the root's requests, a leaf's unasked packets.
    pub next_wave: u64,
    /// Towards the owner: sent.
    pub up: Flow,
    pub held: VecDeque<Held>,
    /// Whether what is sent is kept until the root has it.
    pub keeps: bool,
    pub kept: Kept,
    /// Waves that the root has said are over.
    pub acked: WaveSet,
    /// At the root: waves that are over and of which it has not said so, and their number.
    pub over: WaveSet,
    pub over_count: u32,
    /// The wave it began with here: nothing goes up for earlier ones.
    pub since: u64,
    /// From the owner: received in all, and of it consumed by everyone below.
    pub received: u64,
    pub down: Flow,
    /// What not every child's leaves have consumed, from `log_base` bytes on; `log_first` is the
    /// number of its first frame.
    pub log: VecDeque<Bytes>,
    pub log_base: u64,
    pub log_first: u64,
    /// What came last was not the end of a packet.
    pub mid_packet: bool,
    /// How it was opened, for children that come later; and where it began here.
    pub open: Bytes,
    pub log_start: u64,
    /// A child waits for the next packet to begin.
    pub joining: bool,
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
    pub fn child(&self, link: LinkId) -> Option<usize> {
        self.ordinal
            .get(link.place())
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
        if !self.children[arrival.child].contributes_to(wave) {
            return Ok(After::Drop);
        }
        self.unsteady();
        match self.waves.open(wave, &self.children)? {
            Some(slot) => {
                slot.contribute(arrival, &self.children, &self.ever, &*self.filter, self.sync, complaint)
            }
            None => Ok(After::Drop),
        }
    }

    /// Whether `wave` has no place beside the waves that are open. Where nobody waits for all, the oldest
    /// of them may be held open by a child that sends nothing.
    pub fn is_crowded(&self, wave: u64) -> bool {
        self.sync != Sync::WaitForAll
            && !self.waves.is_idle()
            && wave.saturating_sub(self.waves.base()) >= WAVES_OPEN_MAX
    }

    /// Whether some child still takes part, or soon will.
    pub fn has_members(&self) -> bool {
        self.children.iter().any(|member| member.live) || self.lanes.iter().any(|lane| lane.fresh)
    }

    /// Whether the owner still counts on this node, or can be made to: what it was to be told when
    /// nobody was left may wait here, behind data that waits for credit.
    pub fn is_wanted(&mut self) -> bool {
        let is_close = |held: &Held| frame::is_a(&held.frame, Kind::Close);
        if self.left && self.held.back().is_some_and(is_close) {
            self.held.pop_back();
            self.left = false;
        }
        !self.left
    }

    /// The first wave that nobody has begun and nobody who takes part contributes to.
    pub fn gap(&self) -> Option<u64> {
        let live = self.children.iter().filter(|member| member.live);
        self.waves.unbegun_before(live.map(|member| member.since).min()?)
    }

    /// Number of the frame that will come next.
    pub fn log_end(&self) -> u64 {
        self.log_first + self.log.len() as u64
    }

    /// Puts `frame`, which `received` counts already, into the log, and on the link of every live
    /// child that has room and all that came before.
    pub fn forward(&mut self, links: &mut Links, frame: &Bytes) {
        let number = self.log_end();
        for (lane, member) in self.lanes.iter_mut().zip(&self.children) {
            if !member.live || lane.away {
                continue;
            }
            let link = &mut links[lane.link];
            if lane.next == number && lane.open(self.window) && link.out().len() < LINK_OUT_BYTES {
                lane.sent += frame.len() as u64;
                lane.next += 1;
                links.send(lane.link, frame);
            } else {
                link.wait(self.id);
            }
        }
        let small = frame.len() <= LOG_COPY_BYTES_MAX;
        self.log.push_back(if small { Bytes::copy_from_slice(frame) } else { frame.clone() });
        self.mid_packet = frame::flags(frame) & flag::part::LAST == 0;
        self.acknowledge_down(links);
    }

    /// Moves one waiting frame onto `link`, if credit allows. Returns whether more could follow.
    pub fn pump(&mut self, at: LinkId, links: &mut Links) -> bool {
        if self.owner == Owner::Link(at) {
            return self.pump_up(at, links);
        }
        let Some(ordinal) = self.child(at) else { return false };
        let end = self.log_end();
        let lane = &mut self.lanes[ordinal];
        if lane.away || !self.children[ordinal].live || !lane.open(self.window) {
            return false;
        }
        let Some(frame) = self.log.get((lane.next - self.log_first) as usize) else { return false };
        lane.sent += frame.len() as u64;
        lane.next += 1;
        links.send(at, frame);
        lane.next < end && lane.open(self.window)
    }

    /// The leaves below a child have consumed `total` bytes; `false` if it was never sent so many.
    pub fn consumed_by_child(&mut self, child: usize, total: u64, links: &mut Links) -> bool {
        let lane = &mut self.lanes[child];
        if total > lane.sent {
            return false;
        }
        let total = total.max(lane.acked);
        let before = std::mem::replace(&mut lane.acked, total);
        // Only who was furthest behind can have held the others up.
        if before <= self.down.done || before == self.log_base {
            self.acknowledge_down(links);
        }
        true
    }

    fn pump_up(&mut self, at: LinkId, links: &mut Links) -> bool {
        let Some(held) = self.held.front() else { return false };
        if !links[at].is_alive() || !self.up.open(self.window) || !self.may_keep(frame::flags(&held.frame)) {
            return false;
        }
        self.send_next_held(links);
        !self.held.is_empty() && self.up.open(self.window)
    }

    /// Tells the owner what all leaves below have consumed, and forgets it.
    pub fn acknowledge_down(&mut self, links: &mut Links) {
        let passed = self.lanes.iter().zip(&self.children).filter(|(_, member)| member.live);
        // With nobody left to pass it to, everything counts as consumed.
        let least = passed.map(|(lane, _)| lane.acked).min().unwrap_or(self.received);
        while let Some(first) = self.log.front()
            && self.log_base + first.len() as u64 <= least
        {
            self.log_base += first.len() as u64;
            self.log_first += 1;
            self.log.pop_front();
        }
        if least > self.down.done {
            self.down.done = least;
            self.tell_consumed(1, links);
        }
    }

    /// At a leaf: `total` bytes of this stream have been consumed.
    pub fn consumed_down(&mut self, total: u64, links: &mut Links) {
        self.down.done = self.down.done.max(total);
        self.tell_consumed(self.credit_step().min(CREDIT_STEP_BYTES_MAX), links);
    }

    /// Tells the owner what has been consumed, however little it is.
    pub fn tell_now(&mut self, links: &mut Links) {
        self.tell_consumed(1, links);
    }

    /// An inner node passes on at once what it is told: would every level wait for a quarter of the
    /// window, a deep tree could hold all of it back.
    fn tell_consumed(&mut self, step: u64, links: &mut Links) {
        let Owner::Link(owner) = self.owner else { return };
        if self.down.done - self.down.acked >= step && links[owner].is_alive() {
            self.down.acked = self.down.done;
            credit(self.id, 0, self.down.done, owner, links);
        }
    }

    /// Credit is given in quarters of the window: rarely, and before the sender has to wait.
    fn credit_step(&self) -> u64 {
        (self.window / 4).max(1)
    }

    /// Gives the children credit for contributions that have been passed on or dropped.
    #[inline]
    pub fn give_credit(&mut self, from: &[Contribution], links: &mut Links) {
        for (ordinal, from) in from.iter().enumerate() {
            self.consumed_up(ordinal, from.bytes() as usize, links);
        }
    }

    /// Counts `bytes` of a child's as consumed, and tells it now and then.
    #[inline]
    pub fn consumed_up(&mut self, child: usize, bytes: usize, links: &mut Links) {
        let step = self.credit_step();
        let lane = &mut self.lanes[child];
        lane.up.done += bytes as u64;
        if lane.up.done - lane.up.acked >= step {
            lane.up.acked = lane.up.done;
            credit(self.id, flag::credit::UPWARD, lane.up.done, lane.link, links);
        }
    }

    /// Bytes that wait or are kept with this stream.
    pub fn queued_bytes(&self) -> usize {
        let lanes = self.lanes.iter().map(|lane| lane.assembly.len());
        let held = self.held.iter().map(|held| held.frame.len());
        let inbox = self.inbox.iter().map(|(result, _)| result.payload.as_ref().map_or(0, Bytes::len));
        let log = if self.log.is_empty() { 0 } else { (self.received - self.log_base) as usize };
        lanes.chain(held).chain(inbox).sum::<usize>() + self.kept.bytes() as usize + log
    }

    /// Whether the application may send more without its packets piling up here.
    pub fn has_room(&self) -> bool {
        self.received - self.log_base < self.window
    }

    /// Whether another contribution may be sent before the root has acknowledged some.
    #[inline]
    fn may_keep(&self, flags: u8) -> bool {
        !self.keeps || flags & flag::part::FIRST == 0 || self.kept.bytes() < 2 * self.window
    }

    /// Asks for an acknowledgement when much is kept.
    #[inline]
    fn wants_ack(&self, more: usize) -> u8 {
        if (self.kept.bytes() + more as u64) * 2 >= self.window { flag::up::ACK_WANTED } else { 0 }
    }

    /// What so many waves of a run count for in the window: with all of it a sender is no further ahead
    /// than its receiver can give slots to.
    pub fn run_cost(&self, waves: usize) -> usize {
        let width = self.uniform.as_ref().map_or(1, |uniform| uniform.item_bytes);
        waves * width.max((self.window / (WAVES_OPEN_MAX / 2)) as usize)
    }

    /// Adds a packet to the run, if it is one that a run can hold; `false`: send it by itself.
    #[inline]
    pub fn add_to_run(&mut self, wave: u64, tag: i32, payload: &[u8]) -> bool {
        let Some(uniform) = &self.uniform else { return false };
        if payload.len() != uniform.item_bytes || !(uniform.is_plain)(payload) {
            return false;
        }
        if self.run.count == 0 {
            (self.run.first, self.run.tag) = (wave, tag);
        }
        if tag != self.run.tag {
            return false;
        }
        self.run.count += 1;
        self.run.items.extend_from_slice(payload);
        true
    }

    /// Sends the run that has been gathered.
    pub fn seal_run(&mut self, links: &mut Links) {
        if self.run.count == 0 {
            return;
        }
        let items = std::mem::take(&mut self.run.items);
        let header = run_header(self.id, self.run.first, self.run.tag);
        self.run.count = 0;
        self.send_up(header, &items, &[], links);
        self.run.items = items;
        self.run.items.clear();
    }

    /// Sends complete waves to the owner; the children are given credit for them on the way.
    pub fn send_runs(&mut self, complete: &Complete<'_>, steady: &Steady, links: &mut Links) {
        let width = steady.item_bytes();
        let run = frame::CHUNK_BYTES / width * width;
        for (at, items) in complete.items.chunks(run).enumerate() {
            let mut header = run_header(self.id, complete.first + (at * (run / width)) as u64, complete.tag);
            header.flags |= if steady.wanted { flag::up::ACK_WANTED } else { 0 };
            let from = vec![Contribution::of(self.run_cost(items.len() / width)); self.children.len()];
            self.send_up(header, items, &from, links);
        }
    }

    /// Puts complete waves where the application takes them; the last has the credit of all.
    pub fn deliver_run(&mut self, complete: &Complete<'_>, width: usize) {
        let items = Bytes::copy_from_slice(complete.items);
        let coverage = Coverage { ok: Arc::clone(&self.members), ..Coverage::default() };
        let count = items.len() / width;
        for at in 0..count {
            let payload = Some(items.slice(at * width..(at + 1) * width));
            let (wave, tag) = (complete.first + at as u64, complete.tag);
            let result = WaveResult { wave, tag, complete: true, coverage: coverage.clone(), payload };
            let last = at + 1 == count;
            let credit = Contribution::of(self.run_cost(count));
            let from = if last { vec![credit; self.children.len()] } else { Vec::new() };
            self.inbox.push_back((result, from));
        }
    }

    /// The waves as a run of items meets them: without slots, if nothing disturbs them.
    #[inline]
    pub fn steady(&mut self) -> Option<&mut Steady> {
        if self.steady.is_none() {
            let uniform = self.uniform?;
            let calm = self.sync == Sync::WaitForAll
                && self.waves.is_idle()
                && self
                    .children
                    .iter()
                    .all(|member| member.contributes_to(self.waves.base()) && !member.moved)
                && self.lanes.iter().all(|lane| !lane.away && !lane.fresh);
            if !calm {
                return None;
            }
            self.steady = Some(Steady::new(uniform, self.waves.base(), self.children.len()));
        }
        self.steady.as_mut()
    }

    /// Turns open waves without slots into slots, because something out of the ordinary happens.
    #[cold]
    pub fn unsteady(&mut self) {
        let Some(steady) = self.steady.take() else { return };
        let cost = self.run_cost(1);
        self.waves.resume(&steady, &self.children, &*self.filter, cost);
    }

    /// Queues a frame for the owner. `from` gets its credit once the frame is on its way.
    pub fn send_up(&mut self, header: Header, body: &[u8], from: &[Contribution], links: &mut Links) {
        let Owner::Link(owner) = self.owner else { return };
        if self.run.count > 0 {
            self.seal_run(links);
        }
        let mut header = header;
        header.body_len = body.len() as u32;
        let link = &mut links[owner];
        let room = link.is_alive() && link.out().len() < LINK_OUT_BYTES;
        if room && self.held.is_empty() && self.up.open(self.window) && self.may_keep(header.flags) {
            self.put_up(header, body, links);
            self.give_credit(from, links);
        } else {
            self.held.push_back(Held { frame: frame::encode(header, body), from: from.to_vec() });
            if link.is_alive() {
                link.wait(self.id);
            }
        }
    }

    /// Puts a frame on the owner's link, and aside.
    #[inline]
    fn put_up(&mut self, mut header: Header, body: &[u8], links: &mut Links) {
        let Owner::Link(owner) = self.owner else { return };
        let count = match (header.kind, &self.uniform) {
            (Kind::Run, Some(uniform)) => body.len() / uniform.item_bytes,
            _ => 1,
        };
        self.up.done += match header.kind {
            Kind::Run => (frame::HEADER_BYTES + self.run_cost(count)) as u64,
            _ => header.cost() as u64,
        };
        // What is late already is sent, for its receiver to drop, and never acknowledged again.
        if self.keeps && matches!(header.kind, Kind::Up | Kind::Run) && !self.acked.contains(header.wave) {
            header.flags |= self.wants_ack(header.frame_len());
            let head = header.to_bytes();
            self.kept.push(header.wave, count as u32, &head, body);
            links.send(owner, &head);
        } else {
            links.send(owner, &header.to_bytes());
        }
        links.send(owner, body);
    }

    /// Puts everything that waits for the owner on its link, whatever the window.
    pub fn send_held(&mut self, links: &mut Links) {
        while self.send_next_held(links) {}
    }

    fn send_next_held(&mut self, links: &mut Links) -> bool {
        let Some(held) = self.held.pop_front() else { return false };
        if let Ok(Some(header)) = Header::parse(&held.frame) {
            self.put_up(header, &held.frame[frame::HEADER_BYTES..], links);
        }
        self.give_credit(&held.from, links);
        true
    }

    /// The owner is another node from now on: what the root may not have is sent to it once more,
    /// before everything else.
    pub fn replay(&mut self, owner: LinkId, links: &mut Links) {
        self.owner = Owner::Link(owner);
        self.up = Flow::default();
        let waiting = std::mem::take(&mut self.held);
        for frame in self.kept.take() {
            let Ok(Some(mut header)) = Header::parse(&frame) else { continue };
            header.flags |= flag::up::REPLAY;
            let frame = frame::encode(header, &frame[frame::HEADER_BYTES..]);
            self.held.push_back(Held { frame, from: Vec::new() });
        }
        let mut begun = self.held.back().and_then(|held| Header::parse(&held.frame).ok().flatten());
        for held in waiting {
            let Ok(Some(header)) = Header::parse(&held.frame) else { continue };
            let first = header.has(flag::part::FIRST);
            let follows =
                begun.is_some_and(|begun| begun.wave == header.wave && !begun.has(flag::part::LAST));
            // The rest of a packet whose beginning the root no longer needs goes nowhere; and who is
            // here is told to each parent anew.
            if header.kind == Kind::Close || !(first || follows) {
                self.give_credit(&held.from, links);
                continue;
            }
            begun = Some(header);
            self.held.push_back(held);
        }
        links[owner].wait(self.id);
    }

    /// Contributions that stand for everyone name them from now on, whether they were sent or wait.
    pub fn name_members(&mut self) {
        self.kept.name_members(&self.members);
        let width = self.uniform.as_ref().map_or(usize::MAX, |uniform| uniform.item_bytes.max(1));
        for Held { frame: whole, from } in std::mem::take(&mut self.held) {
            let mut singles = Vec::new();
            let count = (whole.len() - frame::HEADER_BYTES) / width;
            kept::single_frames(&whole, count as u32, &mut singles);
            let mut singles = singles.into_iter().peekable();
            while let Some(mut single) = singles.next() {
                if let Ok(Some(header)) = Header::parse(&single)
                    && header.kind == Kind::Up
                    && header.has(flag::up::FULL)
                {
                    let (header, body) = kept::named(header, &single[frame::HEADER_BYTES..], &self.members);
                    single = frame::encode(header, &body);
                }
                let from = if singles.peek().is_none() { from.clone() } else { Vec::new() };
                self.held.push_back(Held { frame: single, from });
            }
        }
    }

    /// What a child sent so far is no longer to be credited to it.
    pub fn forget_credit(&mut self, child: usize) {
        self.waves.forget_credit(child);
        let waiting = self.held.iter_mut().map(|held| &mut held.from);
        let taken = self.inbox.iter_mut().map(|(_, from)| from);
        for from in waiting.chain(taken).filter_map(|from| from.get_mut(child)) {
            *from = Contribution::default();
        }
    }

    /// A child's link is gone: what was on its way over it is lost.
    pub fn drop_child(&mut self, child: usize) {
        let lane = &mut self.lanes[child];
        lane.assembly = Vec::new();
        lane.assembling = None;
        lane.away = true;
        lane.fresh = false;
        lane.replies_bytes = 0;
    }
}

/// The header of a run, which stands for every member and is the last of each of its waves.
pub(super) fn run_header(stream: u32, wave: u64, tag: i32) -> Header {
    let flags = flag::part::FIRST | flag::part::LAST | flag::up::FULL | flag::up::FINAL;
    Header { flags, stream, tag, wave, ..Header::new(Kind::Run) }
}

fn credit(id: u32, flags: u8, total: u64, at: LinkId, links: &mut Links) {
    if links[at].is_alive() {
        let header = Header { flags, stream: id, wave: total, ..Header::new(Kind::Credit) };
        links.send(at, &header.to_bytes());
    }
}
