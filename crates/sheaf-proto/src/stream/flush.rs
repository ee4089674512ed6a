//! A wave is over, or passes on what it has.
use super::{ChildId, NodeStream, StreamOwner};
use crate::config::Time;
use crate::coverage::Coverage;
use crate::filter::{Emit, FilterError, Replies};
use crate::frame::{self, CHUNK_BYTES, Header, Kind, Violation, flag};
use crate::links::Links;
use crate::node::Passing;
use crate::wave::{Contribution, Flush};
use bytes::Bytes;
use sheaf_core::{Errno, RangeSet};
use std::sync::Arc;

/// What has to be done after a wave was flushed.
pub(crate) struct Flushed {
    /// It has put a result into the inbox.
    pub delivered: bool,
    /// Those who contributed want to know that the root has it.
    pub wanted: bool,
    /// Leaves that are counted in it by now, if that is so and more is to come.
    pub counted: Option<RangeSet>,
    /// What the filter sends down.
    pub replies: Replies,
    pub complaint: Option<FilterError>,
}

impl NodeStream {
    /// Passes on what a wave holds to the owner; with `last` the wave is over, and members that
    /// have not answered are silent because of `late`. `None` if it is over already, or has nothing
    /// new.
    ///
    /// What it holds is counted from here on, whatever becomes of the link to the owner: it is
    /// queued, and kept until the root has it. Credit for it is given to the children when it is on
    /// its way, or when the application has taken it. `scratch` is where payloads are combined.
    pub fn flush(
        &mut self,
        wave: u64,
        last: bool,
        late: Errno,
        scratch: &mut Vec<u8>,
        links: &mut Links,
    ) -> Option<Flushed> {
        let emit = if self.owner == StreamOwner::App { Emit::Result } else { Emit::Partial };
        let (members, slots) = self.parts();
        let slot = slots.get(wave).filter(|slot| last || slot.has_news())?;
        scratch.clear();
        let Flush { cover, loaded, complaint, replies } =
            slot.flush(members, last, late, emit, scratch);
        let tag = slot.tag;
        let wanted = std::mem::take(&mut slot.wanted);
        let counted = (wanted != 0 && !last).then(|| slot.told.clone());
        slot.flush_at = None;
        let mut from = Vec::new();
        if last {
            from = std::mem::take(&mut slot.from);
            slots.retire(wave);
        } else {
            slot.take_credit(&mut from);
        }
        let payload = loaded.then_some(&scratch[..]);
        if self.up.tap.is_some() {
            let (stream, coverage) = (self.id, cover.as_ref());
            let ok = coverage.map_or(&**self.members.all(), |coverage| &coverage.ok);
            self.show(&Passing { stream, wave, tag, ok, coverage, payload, last });
        }
        let delivered = self.owner == StreamOwner::App;
        if delivered {
            let all = || Coverage { ok: Arc::clone(self.members.all()), ..Coverage::default() };
            let coverage = cover.unwrap_or_else(all);
            let payload = payload.map(Bytes::copy_from_slice);
            let result = super::WaveResult { wave, tag, complete: last, coverage, payload };
            self.up.inbox.push_back((result, from));
        } else {
            let full = if cover.is_none() { flag::up::FULL } else { 0 };
            let flags = wanted | full | if last { flag::up::FINAL } else { 0 };
            let header = Header { flags, stream: self.id, tag, wave, ..Header::new(Kind::Up) };
            self.emit(header, cover.as_ref(), payload, from, links);
        }
        Some(Flushed { delivered, wanted: wanted != 0, counted, replies, complaint })
    }

    /// Frames a contribution for the owner, in parts if it is long.
    pub fn emit(
        &mut self,
        mut header: Header,
        cover: Option<&Coverage>,
        payload: Option<&[u8]>,
        from: Vec<Contribution>,
        links: &mut Links,
    ) {
        if payload.is_none() {
            header.flags |= flag::up::EMPTY;
        }
        let payload = payload.unwrap_or_default();
        let joined;
        let body = match cover {
            None => payload,
            Some(cover) => {
                let mut bytes = Vec::with_capacity(payload.len() + 16);
                cover.encode(&mut bytes);
                bytes.extend_from_slice(payload);
                joined = bytes;
                &joined[..]
            }
        };
        if body.len() <= CHUNK_BYTES {
            header.flags |= flag::part::WHOLE;
            self.send_up(header, body, &from, links);
        } else {
            let parts = body.chunks(CHUNK_BYTES);
            let count = parts.len();
            for (at, part) in parts.enumerate() {
                let (first, last) = (at == 0, at + 1 == count);
                let part_header =
                    Header { flags: header.flags | frame::edges(first, last), ..header };
                // The children get credit for their contributions when the last part is on its way.
                self.send_up(part_header, part, if last { &from } else { &[] }, links);
            }
        }
        // The list of contributions goes back to the pool with the next wave's slot.
        self.up.waves.recycle(from);
    }
}

impl NodeStream {
    /// Opens `wave`, which nobody has begun, to be ended. Whether it is open now.
    pub fn begin_wave(&mut self, wave: u64) -> bool {
        let (members, slots) = self.parts();
        matches!(slots.open(wave, members), Ok(Some(_)))
    }

    /// Something of `wave` has come, and is to be passed on by `at`.
    pub fn pass_on_at(&mut self, wave: u64, at: Time) {
        if let Some(slot) = self.slots().get(wave) {
            slot.flush_at = Some(at);
            self.up.due.insert(wave);
        }
        self.up.wake_at(at);
    }

    /// Looks through the waves: gives those to be ended or passed on by now (`true`: ended, with
    /// why), and the children that are given up for having missed one.
    pub fn expired(
        &mut self,
        now: Time,
        mut due: impl FnMut(u64, bool, Errno),
        mut missed: impl FnMut(ChildId),
    ) {
        let slots = self.slots();
        let numbers: Vec<u64> = slots.numbers().collect();
        for wave in numbers {
            let Some(slot) = slots.get(wave) else { continue };
            if slot.deadline.is_some_and(|deadline| deadline <= now) {
                // A cancelled wave ended before its time, which says nothing about the members.
                if slot.once && !slot.cancelled {
                    slot.late().into_iter().for_each(&mut missed);
                }
                due(wave, true, if slot.cancelled { Errno::CANCELED } else { Errno::TIMEDOUT });
            } else if slot.flush_at.is_some_and(|at| at <= now) && slot.has_news() {
                due(wave, false, Errno::TIMEDOUT);
            }
        }
    }

    /// A request asks for `wave`: it is open until then. Gives whether nobody is to contribute to
    /// it; `None` if it is over.
    pub fn expect(
        &mut self,
        wave: u64,
        deadline: Time,
        once: bool,
    ) -> Result<Option<bool>, Violation> {
        let (members, slots) = self.parts();
        let Some(slot) = slots.open(wave, members)? else { return Ok(None) };
        slot.deadline = Some(deadline);
        slot.once = once;
        let complete = slot.is_complete();
        self.up.wake_at(deadline);
        Ok(Some(complete))
    }

    /// Ends `wave` (or all, `u64::MAX`) soon, with what has come by then.
    pub fn cancel(&mut self, wave: u64, deadline: Time) {
        let slots = self.slots();
        let numbers: Vec<u64> =
            slots.numbers().filter(|&open| wave == u64::MAX || open == wave).collect();
        for number in numbers {
            if let Some(slot) = slots.get(number) {
                // A cancellation never prolongs a wave.
                slot.deadline = Some(slot.deadline.map_or(deadline, |old| old.min(deadline)));
                slot.cancelled = true;
            }
        }
        self.up.wake_at(deadline);
    }

    /// Open waves of these ranges.
    pub fn open_among(&mut self, ranges: &[(u64, u64)]) -> Vec<u64> {
        // Almost always they are over here before the root says so.
        if ranges.iter().all(|&(_, last)| last < self.wave_base()) {
            return Vec::new();
        }
        let within =
            |&wave: &u64| ranges.iter().any(|&(first, last)| (first..=last).contains(&wave));
        self.slots().numbers().filter(within).collect()
    }

    /// Open waves of which something is known that has not gone on.
    pub fn with_news(&mut self) -> Vec<u64> {
        let slots = self.slots();
        let numbers: Vec<u64> = slots.numbers().collect();
        numbers
            .into_iter()
            .filter(|&wave| slots.get(wave).is_some_and(|slot| slot.has_news()))
            .collect()
    }

    /// Open waves of which some leaves are counted here already, and these leaves.
    pub fn partly_told(&self) -> Vec<(u64, RangeSet)> {
        let Some(slots) = self.up.waves.as_slots() else { return Vec::new() };
        let told = slots.open_slots().filter(|(_, slot)| !slot.told.is_empty());
        told.map(|(wave, slot)| (wave, slot.told.clone())).collect()
    }
}
