//! Towards the root: what comes of each child, and what goes to the owner, by its credit.
//!
//! What has been sent is kept until the root has its wave, at most two windows of it; a parent that
//! is lost takes nothing with it that cannot be sent again. Bytes of a child are consumed, and
//! credited, when what they brought has been sent on or dropped: so a slow parent slows its
//! children, level by level, and what waits in a node is bounded by the windows of its children.
use super::{ChildId, Flow, Kept, LeafRun, NodeStream, StreamOwner, WaveResult, WaveSet, kept};
use crate::config::Time;
use crate::control::{Ack, Sync};
use crate::filter::{Filter, FilterError, Uniform};
use crate::frame::{self, HEADER_BYTES, Header, Kind, Violation, flag};
use crate::links::{LinkId, Links};
use crate::node::{Passing, SharedLine};
use crate::wave::{After, Arrival, Contribution, Slots, WAVES_OPEN_MAX, Waves};
use bytes::Bytes;
use sheaf_core::lock;
use std::collections::{BTreeSet, VecDeque};
use std::ops::{Index, IndexMut};

/// What comes of a child.
#[derive(Debug, Default)]
pub(crate) struct Inlet {
    /// Consumed here, and told to it.
    pub consumed: Flow,
    /// The child has been told to open the stream anew; what comes before it says that it has done
    /// so belongs to the stream as it was.
    pub stale: bool,
    /// A packet of several parts that is being put together, and its wave.
    assembly: Vec<u8>,
    assembling: Option<u64>,
}

impl Inlet {
    /// Of a child that has been told to open the stream anew.
    pub fn anew() -> Self {
        Self { stale: true, ..Self::default() }
    }

    /// Whether the parts of a long packet are coming.
    #[inline]
    pub fn is_assembling(&self) -> bool {
        self.assembling.is_some()
    }

    /// Takes a part of a long packet; gives the whole with the last one.
    pub fn assemble(
        &mut self,
        header: &Header,
        part: &[u8],
        bytes_max: u64,
    ) -> Result<Option<Vec<u8>>, Violation> {
        if header.has(flag::part::FIRST) {
            self.assembly.clear();
            self.assembling = Some(header.wave);
        }
        if self.assembling != Some(header.wave) {
            return Err(Violation::Bound("a part of a packet that did not begin"));
        }
        if (self.assembly.len() + part.len()) as u64 > bytes_max {
            return Err(Violation::Bound("a packet is longer than the session's bound"));
        }
        self.assembly.extend_from_slice(part);
        if !header.has(flag::part::LAST) {
            return Ok(None);
        }
        self.assembling = None;
        Ok(Some(std::mem::take(&mut self.assembly)))
    }

    pub(super) fn drop_assembly(&mut self) {
        (self.assembly, self.assembling) = (Vec::new(), None);
    }
}

/// A frame for the owner that waits, with the contributions whose credit waits with it.
pub(crate) struct Held {
    pub frame: Bytes,
    pub from: Vec<Contribution>,
}

/// What goes to the owner.
#[derive(Default)]
pub(crate) struct Outlet {
    pub sent: Flow,
    pub held: VecDeque<Held>,
    /// Whether what is sent is kept until the root has it.
    pub keeps: bool,
    pub kept: Kept,
    /// Waves that the root has said are over.
    pub acked: WaveSet,
}

/// What a stream carries from its children to its owner.
pub(crate) struct Upward {
    pub filter: Box<dyn Filter>,
    /// Sees what is passed on.
    pub tap: Option<SharedLine>,
    pub uniform: Option<Uniform>,
    pub sync: Sync,
    /// Seen as slots by [`NodeStream::slots`] alone.
    pub(super) waves: Waves,
    pub(super) inlets: Vec<Inlet>,
    pub out: Outlet,
    /// At a leaf: packets that go out as one run.
    pub run: LeafRun,
    /// No open wave has a deadline or flush before this.
    pub timer: Option<Time>,
    /// With a time-out: waves of which something has come that is to be passed on.
    pub due: BTreeSet<u64>,
    /// Next number of a wave this node starts: the root's requests, a leaf's unasked packets.
    pub next_wave: u64,
    /// The wave it began with here: nothing goes up for earlier ones.
    pub since: u64,
    /// At the root: waves that are over and of which it has not said so, and their number.
    pub over: WaveSet,
    pub over_count: u32,
    /// Results for the application, with the credit to give once they are taken.
    pub inbox: VecDeque<(WaveResult, Vec<Contribution>)>,
    /// On the node's list of streams with results.
    pub fresh: bool,
}

impl Index<ChildId> for Upward {
    type Output = Inlet;

    #[inline]
    fn index(&self, child: ChildId) -> &Inlet {
        &self.inlets[child.place()]
    }
}

impl IndexMut<ChildId> for Upward {
    #[inline]
    fn index_mut(&mut self, child: ChildId) -> &mut Inlet {
        &mut self.inlets[child.place()]
    }
}

impl Upward {
    /// Of a stream that begins with wave `since`. Whoever is still busy with an earlier one works
    /// for nobody.
    pub fn new(filter: Box<dyn Filter>, uniform: Option<Uniform>, sync: Sync, since: u64) -> Self {
        let mut out = Outlet::default();
        // Earlier waves are over for this node: frames of them need not be kept.
        if let Some(last) = since.checked_sub(1) {
            out.acked.insert(0, last);
        }
        Self {
            filter,
            tap: None,
            uniform,
            sync,
            waves: Waves::Slots(Slots::starting_at(since)),
            inlets: Vec::new(),
            out,
            run: LeafRun::default(),
            timer: None,
            due: BTreeSet::new(),
            next_wave: since,
            since,
            over: WaveSet::default(),
            over_count: 0,
            inbox: VecDeque::new(),
            fresh: false,
        }
    }

    /// Its waves are looked at by `at` at the latest.
    pub fn wake_at(&mut self, at: Time) {
        self.timer = Some(self.timer.map_or(at, |timer| timer.min(at)));
    }

    /// Bytes that wait or are kept here.
    pub fn queued_bytes(&self) -> usize {
        let assembled = self.inlets.iter().map(|inlet| inlet.assembly.len());
        let held = self.out.held.iter().map(|held| held.frame.len());
        let inbox =
            self.inbox.iter().map(|(result, _)| result.payload.as_ref().map_or(0, Bytes::len));
        assembled.chain(held).chain(inbox).sum::<usize>() + self.out.kept.bytes() as usize
    }
}

impl NodeStream {
    /// Shows the tap, if there is one, what is passed on.
    #[inline]
    pub(super) fn show(&self, passing: &Passing<'_>) {
        if let Some(tap) = &self.up.tap {
            lock(tap).show(passing);
        }
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
        if !self.members[arrival.child].contributes_to(wave) {
            return Ok(After::Drop);
        }
        let cost = self.wave_cost();
        let (members, up) = (&self.members, &mut self.up);
        let slots = up.waves.slots(members, &*up.filter, cost);
        match slots.open(wave, members)? {
            Some(slot) => slot.contribute(arrival, members, &*up.filter, up.sync, complaint),
            None => Ok(After::Drop),
        }
    }

    /// Whether `wave` has no place beside the waves that are open. Where nobody waits for all, the
    /// oldest of them may be held open by a child that sends nothing.
    pub fn is_crowded(&self, wave: u64) -> bool {
        let Some(slots) = self.up.waves.as_slots().filter(|_| self.up.sync != Sync::WaitForAll)
        else {
            return false;
        };
        !slots.is_idle() && wave.saturating_sub(slots.base()) >= WAVES_OPEN_MAX
    }

    /// Credit is given in quarters of the window: rarely, and before the sender has to wait.
    pub(super) fn credit_step(&self) -> u64 {
        (self.window / 4).max(1)
    }

    /// Gives the children credit for contributions that have been passed on or dropped.
    #[inline]
    pub fn give_credit(&mut self, from: &[Contribution], links: &mut Links) {
        for (place, from) in from.iter().enumerate() {
            self.consumed_up(ChildId::new(place), from.bytes() as usize, links);
        }
    }

    /// Counts `bytes` of a child's as consumed, and tells it now and then.
    #[inline]
    pub fn consumed_up(&mut self, child: ChildId, bytes: usize, links: &mut Links) {
        let step = self.credit_step();
        let consumed = &mut self.up[child].consumed;
        consumed.done += bytes as u64;
        if consumed.done - consumed.acked >= step {
            consumed.acked = consumed.done;
            let total = consumed.done;
            super::credit(self.id, flag::credit::UPWARD, total, self.members[child].link, links);
        }
    }

    /// What a child sent so far is no longer to be credited to it.
    pub fn forget_credit(&mut self, child: ChildId) {
        self.slots().forget_credit(child);
        let waiting = self.up.out.held.iter_mut().map(|held| &mut held.from);
        let taken = self.up.inbox.iter_mut().map(|(_, from)| from);
        for from in waiting.chain(taken).filter_map(|from| from.get_mut(child.place())) {
            *from = Contribution::default();
        }
    }

    /// Whether another contribution may be sent before the root has acknowledged some.
    #[inline]
    fn may_keep(&self, flags: u8) -> bool {
        let out = &self.up.out;
        // Later parts of a packet always go. Without them its wave would never end, and the frames
        // kept for it would never be dropped.
        !out.keeps || flags & flag::part::FIRST == 0 || out.kept.bytes() < 2 * self.window
    }

    /// Asks for an acknowledgement when much is kept.
    #[inline]
    fn wants_ack(&self, more: usize) -> u8 {
        let kept = self.up.out.kept.bytes() + more as u64;
        if kept * 2 >= self.window { flag::up::ACK_WANTED } else { 0 }
    }

    /// Queues a frame for the owner. `from` gets its credit once the frame is on its way.
    pub fn send_up(
        &mut self,
        header: Header,
        body: &[u8],
        from: &[Contribution],
        links: &mut Links,
    ) {
        let StreamOwner::Link(owner) = self.owner else { return };
        // The packets of the run were posted earlier, and go first.
        if self.up.run.count > 0 {
            self.seal_run(links);
        }
        let mut header = header;
        header.body_len = body.len() as u32;
        let alive = links[owner].is_alive();
        let out = &self.up.out;
        // Never past a frame that is held: the packets of one sender stay in order.
        let goes =
            alive && links.has_room(owner) && out.held.is_empty() && out.sent.open(self.window);
        if goes && self.may_keep(header.flags) {
            self.put_up(header, body, links);
            self.give_credit(from, links);
        } else {
            self.up
                .out
                .held
                .push_back(Held { frame: frame::encode(header, body), from: from.to_vec() });
            if alive {
                links[owner].wait(self.id);
            }
        }
    }

    /// Puts a frame on the owner's link, and aside.
    #[inline]
    fn put_up(&mut self, mut header: Header, body: &[u8], links: &mut Links) {
        let StreamOwner::Link(owner) = self.owner else { return };
        let count = match (header.kind, &self.up.uniform) {
            (Kind::Run, Some(uniform)) => body.len() / uniform.item_bytes,
            _ => 1,
        };
        // As the receiver counts it (`Node::on_run`). Any difference would be credit that never
        // returns.
        self.up.out.sent.done += match header.kind {
            Kind::Run => (HEADER_BYTES + self.run_cost(count)) as u64,
            _ => header.cost() as u64,
        };
        // What is late already is sent, for its receiver to drop, and never acknowledged again.
        if self.up.out.keeps
            && matches!(header.kind, Kind::Up | Kind::Run)
            && !self.up.out.acked.contains(header.wave)
        {
            header.flags |= self.wants_ack(header.frame_len());
            let head = header.to_bytes();
            self.up.out.kept.push(header.wave, count as u32, &head, body);
            links.send(owner, &head);
        } else {
            links.send(owner, &header.to_bytes());
        }
        links.send(owner, body);
    }

    pub(super) fn pump_up(&mut self, at: LinkId, links: &mut Links) -> bool {
        if !self.can_send_up() || !links[at].is_alive() {
            return false;
        }
        self.send_next_held(links);
        !self.up.out.held.is_empty() && self.up.out.sent.open(self.window)
    }

    /// Whether something waits for the owner that may go.
    pub fn can_send_up(&self) -> bool {
        let Some(held) = self.up.out.held.front() else { return false };
        self.up.out.sent.open(self.window) && self.may_keep(frame::flags(&held.frame))
    }

    /// Puts everything that waits for the owner on its link, whatever the window.
    pub fn send_held(&mut self, links: &mut Links) {
        while self.send_next_held(links) {}
    }

    fn send_next_held(&mut self, links: &mut Links) -> bool {
        let Some(held) = self.up.out.held.pop_front() else { return false };
        self.put_up(Header::of(&held.frame), frame::body(&held.frame), links);
        self.give_credit(&held.from, links);
        true
    }

    /// The owner is another node from now on: what the root may not have is sent to it once more,
    /// before everything else.
    pub fn replay(&mut self, owner: LinkId, links: &mut Links) {
        self.owner = StreamOwner::Link(owner);
        // Each end of a new link counts from zero.
        self.up.out.sent = Flow::default();
        let waiting = std::mem::take(&mut self.up.out.held);
        for frame in self.up.out.kept.take() {
            let mut header = Header::of(&frame);
            header.flags |= flag::up::REPLAY;
            let frame = frame::encode(header, frame::body(&frame));
            // The children received the credit when the frame was first sent.
            self.up.out.held.push_back(Held { frame, from: Vec::new() });
        }
        let mut begun = self.up.out.held.back().map(|held| Header::of(&held.frame));
        for held in waiting {
            let header = Header::of(&held.frame);
            let first = header.has(flag::part::FIRST);
            let follows = begun
                .is_some_and(|begun| begun.wave == header.wave && !begun.has(flag::part::LAST));
            // The rest of a packet whose beginning the root no longer needs goes nowhere; and who
            // is here is told to each parent anew.
            if header.kind == Kind::Close || !(first || follows) {
                self.give_credit(&held.from, links);
                continue;
            }
            begun = Some(header);
            self.up.out.held.push_back(held);
        }
        links[owner].wait(self.id);
    }

    /// The root has this: it need not be kept.
    pub fn drop_kept(&mut self, ack: &Ack) {
        let out = &mut self.up.out;
        if out.keeps {
            out.kept.drop_waves(&ack.waves, &out.acked);
            for (wave, counted) in &ack.partial {
                out.kept.drop_counted(*wave, counted, self.members.all());
            }
        }
    }

    /// Whether the owner still counts on this node, or can be made to: what it was to be told when
    /// nobody was left may wait here, behind data that waits for credit.
    pub fn is_wanted(&mut self) -> bool {
        let is_close = |held: &Held| frame::is_a(&held.frame, Kind::Close);
        if self.left && self.up.out.held.back().is_some_and(is_close) {
            self.up.out.held.pop_back();
            self.left = false;
        }
        !self.left
    }

    /// Contributions that stand for everyone name them from now on, whether they were sent or wait.
    pub fn name_members(&mut self) {
        let members = self.members.all();
        let out = &mut self.up.out;
        out.kept.name_members(members);
        let width =
            self.up.uniform.as_ref().map_or(usize::MAX, |uniform| uniform.item_bytes.max(1));
        for Held { frame: whole, from } in std::mem::take(&mut out.held) {
            let mut singles = Vec::new();
            let count = frame::body(&whole).len() / width;
            kept::single_frames(&whole, count as u32, &mut singles);
            let mut singles = singles.into_iter().peekable();
            while let Some(mut single) = singles.next() {
                let header = Header::of(&single);
                if header.kind == Kind::Up && header.has(flag::up::FULL) {
                    let (header, body) = kept::named(header, frame::body(&single), members);
                    single = frame::encode(header, &body);
                }
                // The credit of the whole frame is given once, with its last part.
                let from = if singles.peek().is_none() { from.clone() } else { Vec::new() };
                out.held.push_back(Held { frame: single, from });
            }
        }
    }
}
