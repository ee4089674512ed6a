//! Towards the leaves: streams open and close, packets pass through.
use super::{Event, Node, Packet};
use crate::control::{self, Open};
use crate::filter::{Accumulator, Filter, FilterError, NodeInfo};
use crate::frame::{self, HEADER_BYTES, Header, Kind, Violation, flag};
use crate::links::{LinkId, LinkState, Way};
use crate::stream::{Flow, Kept, Lane, Owner, Stream, WaveSet};
use crate::wave::{Member, Waves};
use crate::{Role, STREAMS_MAX, Time, WINDOW_BYTES_MAX};
use bytes::Bytes;
use sheaf_core::Errno;
use std::collections::VecDeque;
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

/// The children that lead to a stream's members.
struct Below {
    children: Vec<Member>,
    lanes: Vec<Lane>,
    ordinal: Vec<u32>,
    /// Their order is not that of their leaves.
    irregular: bool,
}

/// No stream has carried this many bytes or waves.
const PLACE_MAX: u64 = 1 << 62;

impl Node {
    pub(super) fn on_open(
        &mut self,
        link: LinkId,
        header: &Header,
        body: &[u8],
        frame: &Bytes,
    ) -> Result<(), Violation> {
        let open: Open = control::decode(Kind::Open, body)?;
        if self.streams.contains_key(&header.stream) {
            return Err(Violation::OutOfPlace(Kind::Open));
        }
        if open.offset > PLACE_MAX || open.wave_base > PLACE_MAX {
            return Err(Violation::Bound("a stream begins beyond what any has reached"));
        }
        if self.streams.len() >= STREAMS_MAX {
            return Err(Violation::Bound("too many open streams"));
        }
        self.open_stream(header.stream, Owner::Link(link), &open, frame);
        if !header.has(flag::open::ANEW) && open.offset == 0 {
            // Another stream, whatever had its number.
            self.departed.remove(&header.stream);
        }
        self.stay_away(header.stream);
        Ok(())
    }

    fn make_filter(&self, stream: u32, open: &Open) -> Box<dyn Filter> {
        if self.config.role == Role::Leaf {
            // Nothing is combined at a leaf, and a filter may cost a compiler's work to make.
            return Box::new(Broken(FilterError::new(Errno::NOSYS, "a leaf combines nothing")));
        }
        self.instantiate(stream, open).unwrap_or_else(|error| Box::new(Broken(error)))
    }

    fn instantiate(&self, stream: u32, open: &Open) -> Result<Box<dyn Filter>, FilterError> {
        let info = NodeInfo {
            rank: self.config.rank,
            stream,
            depth: self.config.depth,
            children: self.config.children.len() as u32,
            leaves: self.config.leaves.len() as u32,
            place: self.config.place,
            clocks: Arc::clone(&self.clocks),
        };
        self.registry.instantiate(&open.filter, &open.params, &info)
    }

    /// Passes the opening of a stream to the children that lead to its members.
    fn pass_open_on(&mut self, open: &Open, frame: &Bytes) -> Below {
        let mut ordinal = vec![u32::MAX; self.links.len()];
        let (mut children, mut lanes) = (Vec::new(), Vec::<Lane>::new());
        let (mut irregular, mut last) = (false, 0);
        let anew = frame::flags(frame) & flag::open::ANEW != 0;
        for (at, ordinal) in self.links.ids().zip(&mut ordinal) {
            let link = &self.links[at];
            if link.way == Way::Up {
                continue;
            }
            let leaves = link.leaves.intersection(&open.members);
            let Some(first) = leaves.first() else { continue };
            irregular |= first < last;
            last = first;
            *ordinal = children.len() as u32;
            let live = link.is_alive() || matches!(link.state, LinkState::Awaited(_));
            let away = !link.is_alive() || matches!(link.state, LinkState::Pending(_));
            let (rank, moved) = (link.rank, false);
            let (leaves, lost) = (Arc::new(leaves), Errno::HOSTDOWN);
            children.push(Member { rank, leaves, moved, live, since: 0, lost });
            lanes.push(Lane { away, stale: anew, ..Lane::new(at, open.offset, 0) });
            if !away {
                self.links.send(at, frame);
            }
        }
        Below { children, lanes, ordinal, irregular }
    }

    /// Makes the stream here and passes `frame` to the children that lead to its members.
    pub(super) fn open_stream(&mut self, id: u32, owner: Owner, open: &Open, frame: &Bytes) {
        let filter = self.make_filter(id, open);
        let uniform = match self.config.role {
            // A leaf only has to know what travels in runs; no filter that users bring does.
            Role::Leaf if open.filter.contains(':') => None,
            Role::Leaf => self.instantiate(id, open).ok().and_then(|filter| filter.uniform()),
            _ => filter.uniform(),
        };
        let Below { children, lanes, ordinal, irregular } = self.pass_open_on(open, frame);
        let mut acked = WaveSet::default();
        if let Some(last) = open.wave_base.checked_sub(1) {
            // Whoever is still busy with an earlier wave works for nobody.
            acked.insert(0, last);
        }
        let quiet = |at: LinkId| self.links[at].is_inside();
        let keeps = matches!(owner, Owner::Link(at) if self.config.role != Role::Root && !quiet(at));
        let mut waves = Waves::starting_at(open.wave_base);
        waves.irregular = irregular;
        let members = Arc::new(open.members.intersection(&self.config.leaves));
        let stream = Stream {
            id,
            owner,
            ever: Arc::clone(&members),
            members,
            uniform,
            filter,
            sync: open.sync,
            window: u64::from(open.window_bytes.clamp(1, WINDOW_BYTES_MAX)),
            children,
            lanes,
            ordinal,
            waves,
            steady: None,
            run: Default::default(),
            timer: None,
            due: Default::default(),
            next_wave: open.wave_base,
            up: Flow::default(),
            held: VecDeque::new(),
            keeps,
            kept: Kept::default(),
            acked,
            over: WaveSet::default(),
            over_count: 0,
            since: open.wave_base,
            received: open.offset,
            down: Flow { done: open.offset, acked: open.offset },
            log: VecDeque::new(),
            log_base: open.offset,
            log_first: 0,
            log_start: open.offset,
            mid_packet: false,
            open: if self.config.role == Role::Leaf { Bytes::new() } else { Bytes::copy_from_slice(frame) },
            joining: false,
            inbox: VecDeque::new(),
            fresh: false,
            left: false,
            replies_due_bytes: 0,
        };
        if let Owner::Link(parent) = owner
            && frame::flags(frame) & flag::open::ANEW != 0
        {
            let credit = Header { flags: flag::credit::ANEW, stream: id, ..Header::new(Kind::Credit) };
            self.links.send(parent, &credit.to_bytes());
        }
        self.no_longer_dropped(id);
        self.streams.insert(id, Box::new(stream));
        self.leave(id);
    }

    pub(super) fn on_close(&mut self, link: LinkId, header: &Header) -> Result<(), Violation> {
        let Some(stream) = self.streams.get(&header.stream) else {
            if self.parent == Some(link) {
                self.no_longer_dropped(header.stream);
            }
            return Ok(());
        };
        if stream.owner == Owner::Link(link) {
            self.close_stream(header.stream);
            return Ok(());
        }
        let Some(child) = stream.child(link) else { return Err(Violation::OutOfPlace(Kind::Close)) };
        if stream.lanes[child].stale {
            return Ok(());
        }
        let errno = if header.tag > 0 { Errno(header.tag) } else { Errno::HOSTDOWN };
        self.child_left(header.stream, child, errno);
        Ok(())
    }

    /// Forgets the stream here and below. What still waited for a link is dropped with it.
    pub(super) fn close_stream(&mut self, id: u32) {
        let Some(stream) = self.streams.remove(&id) else { return };
        let frame = frame::encode(Header { stream: id, ..Header::new(Kind::Close) }, &[]);
        // Also to those who have left it, or were given up: they still have it.
        for lane in &stream.lanes {
            if self.links[lane.link].is_member() {
                self.links.send(lane.link, &frame);
            }
        }
        if self.config.role == Role::Leaf {
            self.events.push_back(Event::Closed { stream: id });
        }
    }

    pub(super) fn on_down(
        &mut self,
        now: Time,
        link: LinkId,
        header: &Header,
        frame: Bytes,
    ) -> Result<(), Violation> {
        let Some(stream) = self.streams.get_mut(&header.stream) else { return Ok(()) };
        if stream.owner != Owner::Link(link) {
            return Err(Violation::OutOfPlace(Kind::Down));
        }
        stream.received += frame.len() as u64;
        let expect = expectation(header, &frame[HEADER_BYTES..])?;
        if self.config.role == Role::Leaf {
            self.deliver_packet(header, expect, frame);
            return Ok(());
        }
        stream.forward(&mut self.links, &frame);
        let joining = stream.joining;
        if let Some(expect) = expect {
            self.expect_wave(now, header.stream, header.wave, expect, header.has(flag::down::ONCE))?;
        }
        if joining {
            self.let_in(header.stream);
        }
        Ok(())
    }

    fn deliver_packet(&mut self, header: &Header, expect: Option<Duration>, frame: Bytes) {
        let skip = if header.has(flag::part::FIRST | flag::down::EXPECT) { EXPECT_BYTES } else { 0 };
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
        let margin = (expect / 16).min(Duration::from_millis(100)) * self.config.depth.min(8);
        let slack = (expect / 4).min(Duration::from_millis(500)) / (self.config.depth + 1);
        let deadline = now + (expect - margin) + slack;
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        stream.unsteady();
        let Some(slot) = stream.waves.open(wave, &stream.children)? else { return Ok(()) };
        slot.deadline = Some(deadline);
        slot.once = once;
        stream.timer = Some(stream.timer.map_or(deadline, |timer| timer.min(deadline)));
        self.stream_timer = Some(self.stream_timer.map_or(deadline, |timer| timer.min(deadline)));
        if slot.is_complete() {
            self.finish_wave(id, wave, true, Errno::HOSTDOWN);
        }
        Ok(())
    }

    pub(super) fn on_cancel(&mut self, now: Time, link: LinkId, header: &Header) -> Result<(), Violation> {
        match self.streams.get(&header.stream) {
            Some(stream) if stream.owner != Owner::Link(link) => Err(Violation::OutOfPlace(Kind::Cancel)),
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
        if self.config.role == Role::Leaf {
            self.events.push_back(Event::Cancelled { stream: id, wave });
            return;
        }
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.unsteady();
        let header = Header { stream: id, wave, ..Header::new(Kind::Cancel) };
        for (lane, _) in stream.lanes.iter().zip(&stream.children).filter(|at| at.1.live && !at.0.away) {
            self.links.send(lane.link, &header.to_bytes());
        }
        let deadline = now + GRACE / (self.config.depth + 1);
        let numbers: Vec<u64> =
            stream.waves.numbers().filter(|&open| wave == u64::MAX || open == wave).collect();
        for number in numbers {
            if let Some(slot) = stream.waves.get(number) {
                slot.deadline = Some(slot.deadline.map_or(deadline, |old| old.min(deadline)));
                slot.cancelled = true;
            }
        }
        stream.timer = Some(stream.timer.map_or(deadline, |timer| timer.min(deadline)));
        self.stream_timer = Some(self.stream_timer.map_or(deadline, |timer| timer.min(deadline)));
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
