//! Towards the leaves: streams open and close, packets pass through.
use super::{Event, Node, Packet};
use crate::config::{NodeRole, Time};
use crate::control::{self, CALLER_GROUPS_MAX, Caller, Open, SERVICE_BYTES_MAX};
use crate::filter::{
    Accumulator, Bounds, Filter, FilterError, Modules, NodeInfo, REPLY_BYTES_MAX, Replies,
};
use crate::frame::{self, HEADER_BYTES, Header, Kind, Violation, flag};
use crate::links::{Link, LinkId, LinkState, LinkWay};
use crate::stream::{ChildState, Downward, Member, Members, NodeStream, StreamOwner, Upward};
use crate::{STREAMS_MAX, WINDOW_BYTES_MAX, own};
use bytes::Bytes;
use sheaf_core::Errno;
use std::sync::Arc;
use std::time::Duration;

/// Stands in for a filter that could not be made here: every wave fails with its reason.
struct Broken(FilterError);

impl Filter for Broken {
    fn accumulator(&self) -> Box<dyn Accumulator> {
        Box::new(Self(self.0.clone()))
    }
}

impl Accumulator for Broken {
    fn fold(&mut self, _: crate::filter::Input<'_>) -> Result<(), FilterError> {
        // Once for all of them, in `finish`.
        Ok(())
    }
    fn finish(&mut self, _: crate::filter::Emit, _: &mut Vec<u8>) -> Result<(), FilterError> {
        Err(self.0.clone())
    }
}

/// Whether the node on a link is no leaf of a host.
pub(super) fn leads_to_own_leaf(link: &Link) -> bool {
    link.claim.contains(own::leaf_of(link.rank))
}

/// No stream has carried this many bytes or waves.
const PLACE_MAX: u64 = 1 << 62;

impl Node {
    /// A stream is opened, by the parent or a client, from its beginning or (with an offset) for
    /// one that joins.
    ///
    /// There must be none of that number here, since the owner closes one before it opens it again;
    /// who does not breaks the protocol. What cannot be done here (a filter that is not known) does
    /// not keep it from being opened: each wave then fails with the reason. Afterwards the stream
    /// is here and on its way to each child with members. Costs the making of a filter, and a pass
    /// over the children.
    pub(super) fn on_open(
        &mut self,
        link: LinkId,
        header: &Header,
        body: &[u8],
        frame: &Bytes,
    ) -> Result<(), Violation> {
        let mut open: Open = control::decode(Kind::Open, body)?;
        if self.streams.contains_key(&header.stream) {
            return Err(Violation::OutOfPlace(Kind::Open));
        }
        // Numbers from a peer: further up, adding a window or a count of waves to them would
        // overflow.
        if open.offset > PLACE_MAX || open.wave_base > PLACE_MAX {
            return Err(Violation::Bound("a stream begins beyond what any has reached"));
        }
        if self.streams.len() >= STREAMS_MAX {
            return Err(Violation::Bound("too many open streams"));
        }
        let bytes_max = open.service.len() <= SERVICE_BYTES_MAX;
        let groups_max = |caller: &Caller| !matches!(caller, Caller::User { gids, .. } if gids.len() > CALLER_GROUPS_MAX);
        if !bytes_max || !groups_max(&open.caller) {
            return Err(Violation::Bound("a service or a caller has too long a description"));
        }
        let mut is_mine = open.old > 0;
        if self.config.role == NodeRole::Root {
            self.check_client(link, header.stream)?;
            // Who a client acts for is for this node to say, which has let it in.
            (open.caller, open.old) = (self.links[link].caller().clone(), 0);
            open.window_bytes = self.window_of_client(link, open.window_bytes);
            self.streams_opened += 1;
            open.number = self.streams_opened;
            is_mine = true;
        } else if self.links[link].caller().is_from_host() {
            // A peer link: its other end is the server of another host, whatever it sends.
            open.caller = self.links[link].caller().clone();
        }
        if is_mine {
            // Children that come later have a past of their own.
            let frame = control::control(*header, &Open { old: 0, ..open.clone() });
            self.open_stream(header.stream, StreamOwner::Link(link), &open, &frame);
        } else {
            self.open_stream(header.stream, StreamOwner::Link(link), &open, frame);
        }
        if !header.has(flag::open::ANEW) && open.offset == 0 {
            // Another stream, whatever had its number.
            self.recovery.departed.remove(&header.stream);
        }
        self.repeat_departure(header.stream);
        Ok(())
    }

    /// Leaves in processes that were started anew have no part in the first `old` bytes of a
    /// stream that has just been opened: this node's own one, unless it has `had` the stream and
    /// lost it, and those that came earlier than the stream.
    fn hold_those_begun_anew(&mut self, id: u32, open: &Open, had: bool) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.down.old = open.old;
        let close = Header { stream: id, ..Header::new(Kind::Close) }.to_bytes();
        for child in stream.members().ids() {
            let member = &stream.members()[child];
            let (at, link) = (member.link, &self.links[member.link]);
            let own = own::rank_of(link.rank) == Some(self.config.rank);
            let born = if own { self.recovery.born.filter(|_| !had) } else { link.born };
            let begun = born.is_some_and(|born| open.number <= born);
            // A child with an own leaf received the opening with `old`, and holds that leaf back
            // itself.
            let begun = begun && (own || !leads_to_own_leaf(link));
            if begun && member.is_here() {
                // It was opened there with the others.
                self.links.send(at, &close);
                stream.not_before_next_packet(child);
            }
        }
    }

    fn make_filter(&self, stream: u32, open: &Open) -> Box<dyn Filter> {
        if self.config.role == NodeRole::Leaf {
            // Nothing is combined at a leaf, and a filter may cost a compiler's work to make.
            return Box::new(Broken(FilterError::new(Errno::NOSYS, "a leaf combines nothing")));
        }
        self.instantiate(stream, open).unwrap_or_else(|error| Box::new(Broken(error)))
    }

    pub(super) fn instantiate(
        &self,
        stream: u32,
        open: &Open,
    ) -> Result<Box<dyn Filter>, FilterError> {
        let info = NodeInfo {
            rank: self.config.rank,
            stream,
            depth: self.config.depth,
            children: self.config.children.len() as u32,
            leaves: own::hosts(&self.config.leaves).len() as u32,
            place: self.config.place,
            clocks: Arc::clone(&self.clocks),
            bounds: Bounds::of(&self.config.tuning),
        };
        if open.caller.is_from_host() && Modules::is_theirs(&open.filter) {
            let cause = "filters of modules are for clients where the session was started";
            return Err(FilterError::new(Errno::PERM, cause));
        }
        self.registry.instantiate(&open.filter, &open.params, &info)
    }

    /// Passes the opening of a stream to the children that lead to its members. Gives these, and
    /// whether their order is not that of their leaves.
    fn pass_open_on(&mut self, id: u32, open: &Open, frame: &Bytes) -> (Vec<Member>, bool) {
        // `frame` does not contain `old`. Children with own leaves need it to hold those back.
        let with_old = (open.old > 0).then(|| {
            let flags = frame::flags(frame);
            control::control(Header { flags, stream: id, ..Header::new(Kind::Open) }, open)
        });
        let mut children = Vec::new();
        let (mut irregular, mut last) = (false, 0);
        for at in self.links.ids() {
            let link = &self.links[at];
            if link.way == LinkWay::Up {
                continue;
            }
            let leaves = link.leaves().intersection(&open.members);
            let Some(first) = leaves.first() else { continue };
            irregular |= first < last;
            last = first;
            let state = match link.state {
                // Waves wait for a pending or awaited child, and not for a lost one.
                LinkState::Member => ChildState::Here,
                LinkState::Pending(_) | LinkState::Awaited(_) => ChildState::Away,
                LinkState::Knocking | LinkState::Asking | LinkState::Lost => ChildState::Gone,
            };
            children.push(Member::new(at, link.rank, state, leaves));
            if state == ChildState::Here {
                let with_old = with_old.as_ref().filter(|_| leads_to_own_leaf(link));
                self.links.send(at, with_old.unwrap_or(frame));
            }
        }
        (children, irregular)
    }

    /// Whether what is sent to this owner is kept for the one that may come after it.
    fn keeps_for(&self, owner: StreamOwner) -> bool {
        // Neither the application nor a client of the root is ever replaced by another owner, nor
        // is a parent in the same process.
        let StreamOwner::Link(at) = owner else { return false };
        let is_replaced = self.config.role != NodeRole::Root && !self.links[at].is_inside();
        is_replaced && !self.config.tuning.orphan_timeout.is_zero()
    }

    /// Makes the stream here and passes `frame` to the children that lead to its members.
    ///
    /// Assumes that there is none of that number. Afterwards the owner knows if nobody is left here
    /// on it.
    pub(super) fn open_stream(&mut self, id: u32, owner: StreamOwner, open: &Open, frame: &Bytes) {
        let filter = self.make_filter(id, open);
        let uniform = match self.config.role {
            // A leaf only has to know what travels in runs; no filter that users bring does.
            NodeRole::Leaf if open.filter.contains(':') => None,
            NodeRole::Leaf => self.instantiate(id, open).ok().and_then(|filter| filter.uniform()),
            _ => filter.uniform(),
        };
        let (children, irregular) = self.pass_open_on(id, open, frame);
        let anew = frame::flags(frame) & flag::open::ANEW != 0;
        let members = Members::new(open.members.intersection(&self.config.leaves), children);
        let kept_open = if self.config.role == NodeRole::Leaf {
            Bytes::new()
        } else {
            // A copy, which does not keep the buffer alive that the frame was read into.
            Bytes::copy_from_slice(frame)
        };
        let down = Downward::new(open.offset, members.len(), kept_open);
        let mut up = Upward::new(filter, uniform, open.sync, open.wave_base);
        if self.config.role != NodeRole::Leaf {
            up.tap = self.taps.line(id, open);
        }
        up.out.keeps = self.keeps_for(owner);
        // The sender chose the window, and one of zero would never let anything through.
        let window = u64::from(open.window_bytes.clamp(1, WINDOW_BYTES_MAX));
        let mut stream = NodeStream::new(id, owner, window, members, down, up);
        stream.begin(irregular, anew);
        if let StreamOwner::Link(parent) = owner
            && anew
        {
            // Confirms the opening: until this arrives the parent ignores what this node sends on
            // the stream, because it may belong to the stream as it was (`Inlet::stale`).
            let credit =
                Header { flags: flag::credit::ANEW, stream: id, ..Header::new(Kind::Credit) };
            self.links.send(parent, &credit.to_bytes());
        }
        if self.config.role == NodeRole::Leaf {
            let (service, caller) = (open.service.clone(), open.caller.clone());
            self.events.push_back(Event::Opened { stream: id, service, caller });
        }
        self.recovery.seen = self.recovery.seen.max(open.number);
        let had = self.no_longer_dropped(id);
        self.streams.insert(id, Box::new(stream));
        self.leave(id);
        if open.old > 0 {
            self.hold_those_begun_anew(id, open, had);
        }
    }

    /// From the owner: the stream is over. From a child: nobody is left below it.
    ///
    /// A stream that is not known was closed here before, or is one that an orphan could not keep;
    /// either way there is nothing more to tell anybody about it. May come from a child that was
    /// begun anew and speaks of the stream as it was: that is passed over. Afterwards the stream is
    /// gone here and on its way to be gone below, or no wave waits for that child; it suffices to
    /// say so once, as closing goes behind everything else on the same link.
    pub(super) fn on_close(&mut self, link: LinkId, header: &Header) -> Result<(), Violation> {
        let Some(stream) = self.streams.get(&header.stream) else {
            if self.recovery.parent == Some(link) {
                self.no_longer_dropped(header.stream);
            }
            return Ok(());
        };
        if stream.owner == StreamOwner::Link(link) {
            self.close_stream(header.stream);
            return Ok(());
        }
        let Some(child) = stream.child(link) else {
            return Err(Violation::OutOfPlace(Kind::Close));
        };
        if stream.up[child].stale {
            return Ok(());
        }
        let errno = if header.tag > 0 { Errno(header.tag) } else { Errno::HOSTDOWN };
        self.child_left(header.stream, child, errno);
        Ok(())
    }

    /// Forgets the stream here and below. What still waited for a link is dropped with it.
    pub(super) fn close_stream(&mut self, id: u32) {
        let Some(stream) = self.streams.remove(&id) else { return };
        self.guests.close(id);
        // The tap's line outlives the stream: if it is opened here again, waves that the tap has
        // seen come once more.
        if stream.up.tap.is_some() {
            self.rest_line(id);
        }
        let frame = frame::encode(Header { stream: id, ..Header::new(Kind::Close) }, &[]);
        // Also to those who have left it, or were given up: they still have it.
        for member in stream.members().iter() {
            if self.links[member.link].is_member() {
                self.links.send(member.link, &frame);
            }
        }
        if self.config.role == NodeRole::Leaf {
            self.events.push_back(Event::Closed { stream: id });
        }
    }

    /// Part of a packet. It is passed on before anything else is done about it, as it came: on each
    /// level the bytes below are on their way while this one opens the wave.
    ///
    /// Assumes that parts come in the stream's own order, which a link keeps. May come for a stream
    /// that was closed here: the owner did not know yet. Afterwards it is in the log until all
    /// leaves below have consumed it, and the wave it asks for is open with this level's share of
    /// the deadline. Costs a reference for each child that has credit, and none of the bytes are
    /// copied (but for small frames, which are).
    pub(super) fn on_down(
        &mut self,
        now: Time,
        link: LinkId,
        header: &Header,
        frame: Bytes,
    ) -> Result<(), Violation> {
        let Some(stream) = self.streams.get_mut(&header.stream) else { return Ok(()) };
        if stream.owner != StreamOwner::Link(link) {
            return Err(Violation::OutOfPlace(Kind::Down));
        }
        stream.down.received += frame.len() as u64;
        if self.config.role == NodeRole::Root || self.links[link].caller().is_from_host() {
            let body_bytes = u64::from(header.body_len);
            stream.check_sender(header.has(flag::part::FIRST), body_bytes, &self.config.tuning)?;
        }
        let expect = expectation(header, &frame[HEADER_BYTES..])?;
        if self.config.role == NodeRole::Leaf {
            self.deliver_packet(header, expect, frame);
            return Ok(());
        }
        stream.forward(&mut self.links, &frame.into());
        let joining = stream.down.joining;
        if let Some(expect) = expect {
            self.expect_wave(
                now,
                header.stream,
                header.wave,
                expect,
                header.has(flag::down::ONCE),
            )?;
        }
        // After the wave was opened: a child that joins begins with the next packet, and so must
        // not be expected in the wave that this one asks for.
        if joining {
            self.open_at_joining(header.stream);
        }
        Ok(())
    }

    fn deliver_packet(&mut self, header: &Header, expect: Option<Duration>, frame: Bytes) {
        let skip =
            if header.has(flag::part::FIRST | flag::down::EXPECT) { EXPECT_BYTES } else { 0 };
        self.events.push_back(Event::Packet(Packet {
            stream: header.stream,
            wave: header.wave,
            tag: header.tag,
            first: header.has(flag::part::FIRST),
            last: header.has(flag::part::LAST),
            expect,
            frame_bytes: frame.len(),
            payload: frame.slice(HEADER_BYTES + skip..),
        }));
    }

    /// Opens the wave that a request asks for, with this node's share of the deadline.
    ///
    /// Each level waits a little less than the one above, so that a silent leaf is named by the
    /// node next to it instead of silencing that node's whole sub-tree at its parent. On a busy
    /// machine what was sent in time may arrive late: the first levels wait for that beyond the
    /// deadline that was asked for, the root longest.
    pub(super) fn expect_wave(
        &mut self,
        now: Time,
        id: u32,
        wave: u64,
        expect: Duration,
        once: bool,
    ) -> Result<(), Violation> {
        // At most 8/16 of `expect`: a deep tree keeps half of the time, and the subtraction below
        // cannot underflow.
        let margin = (expect / 16).min(Duration::from_millis(100)) * self.config.depth.min(8);
        let slack = (expect / 4).min(Duration::from_millis(500)) / (self.config.depth + 1);
        let deadline = now + (expect - margin) + slack;
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        let expected = stream.expect(wave, deadline, once)?;
        self.timers.wake_streams(deadline);
        // No member is to contribute. Without this the wave would stay open until its deadline.
        if expected == Some(true) {
            self.finish_wave(id, wave, true, Errno::HOSTDOWN);
        }
        Ok(())
    }

    /// An answer is no longer wanted: what has come by then goes up, in a moment and not at once,
    /// since most of it may be on its way.
    ///
    /// May come for a wave that is over, or a stream that is closed, and does nothing then.
    /// Afterwards the wave has a deadline, the nearer the root the later, so that each level still
    /// has what the one below it says.
    pub(super) fn on_cancel(
        &mut self,
        now: Time,
        link: LinkId,
        header: &Header,
    ) -> Result<(), Violation> {
        match self.streams.get(&header.stream) {
            Some(stream) if stream.owner != StreamOwner::Link(link) => {
                Err(Violation::OutOfPlace(Kind::Cancel))
            }
            Some(_) => {
                self.cancel_here(now, header.stream, header.wave);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Passes the cancellation on, and gives the sub-tree a moment to send what it has.
    pub(super) fn cancel_here(&mut self, now: Time, id: u32, wave: u64) {
        const GRACE: Duration = Duration::from_millis(500);
        if self.config.role == NodeRole::Leaf {
            self.events.push_back(Event::Cancelled { stream: id, wave });
            return;
        }
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let header = Header { stream: id, wave, ..Header::new(Kind::Cancel) };
        for member in stream.members().iter().filter(|member| member.is_here()) {
            self.links.send(member.link, &header.to_bytes());
        }
        let deadline = now + GRACE / (self.config.depth + 1);
        stream.cancel(wave, deadline);
        self.timers.wake_streams(deadline);
    }
}

// Packets that filters send down.
impl Node {
    /// Sends what a filter here said in answer to `wave`.
    pub(super) fn send_replies(&mut self, id: u32, wave: u64, replies: Replies) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let mut dropped = 0;
        for reply in replies {
            let flags = flag::part::FIRST | flag::part::LAST;
            let header =
                Header { flags, stream: id, tag: reply.tag, wave, ..Header::new(Kind::Reply) };
            dropped += stream.send_reply(&frame::encode(header, &reply.payload), &mut self.links);
        }
        self.complain_of_dropped(id, wave, dropped);
    }

    fn complain_of_dropped(&mut self, id: u32, wave: u64, dropped: usize) {
        if dropped > 0 {
            let message = format!(
                "{dropped} replies of a filter were dropped: earlier ones are not taken yet"
            );
            self.complain(id, wave, &FilterError::new(Errno::MSGSIZE, message));
        }
    }

    /// A reply of a filter above. It is outside of the stream's window, and so has a bound of its
    /// own.
    ///
    /// May come for a stream that is closed here. Afterwards it was passed on, or dropped and the
    /// root told so; either way its bytes are given back to the parent, at a leaf when its service
    /// has dealt with them. One that is dropped is not said again: a filter's replies may be lost,
    /// as by a failure.
    pub(super) fn on_reply(
        &mut self,
        link: LinkId,
        header: &Header,
        frame: &Bytes,
    ) -> Result<(), Violation> {
        if header.body_len as usize > REPLY_BYTES_MAX {
            return Err(Violation::Bound("a reply of a filter is too long"));
        }
        let id = header.stream;
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        if stream.owner != StreamOwner::Link(link) {
            return Err(Violation::OutOfPlace(Kind::Reply));
        }
        let mut dropped = 1;
        if self.config.role != NodeRole::Leaf {
            dropped = stream.send_reply(frame, &mut self.links);
        } else if stream.take_reply(frame.len()) {
            self.events.push_back(Event::Packet(Packet {
                stream: id,
                wave: header.wave,
                tag: header.tag,
                first: true,
                last: true,
                expect: None,
                frame_bytes: frame.len(),
                payload: frame.slice(HEADER_BYTES..),
            }));
            // Its service says when it has been dealt with.
            return Ok(());
        }
        stream.credit_replies(frame.len(), &mut self.links);
        self.complain_of_dropped(id, header.wave, dropped);
        Ok(())
    }
}

/// The deadline stands, in milliseconds, before the payload of the first part.
pub(super) const EXPECT_BYTES: usize = 4;

fn expectation(header: &Header, body: &[u8]) -> Result<Option<Duration>, Violation> {
    if !header.has(flag::part::FIRST | flag::down::EXPECT) {
        return Ok(None);
    }
    let bytes = body.first_chunk::<EXPECT_BYTES>().ok_or(Violation::Body(Kind::Down))?;
    Ok(Some(Duration::from_millis(u64::from(u32::from_le_bytes(*bytes)))))
}
