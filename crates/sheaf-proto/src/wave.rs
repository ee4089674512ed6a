//! Waves: one packet from every member, counted once each.
use super::control::Sync;
use super::frame::{Header, Kind, Violation, flag};
use crate::filter::{Accumulator, Emit, Filter, FilterError, Input, Replies};
use sheaf_core::varint::{self, Malformed};
use sheaf_core::{Errno, RangeSet};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::Time;
use super::steady::Steady;

mod check;
mod mix;

/// Slots kept for later waves of a stream: as many as a fast sender's window holds, so that a
/// steady stream of waves allocates nothing.
const SPARE_MAX: usize = 1024;

/// How many waves of one stream may be open at a node at once.
pub const WAVES_OPEN_MAX: u64 = 1 << 16;

/// Who contributed to what a wave holds, and who did not and why.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Leaves whose answer is in the payload.
    pub ok: Arc<RangeSet>,
    /// Leaves that answered with an error, or whose answer a filter could not combine.
    pub failed: Vec<(Errno, RangeSet)>,
    /// Leaves that gave no answer: lost, too late, cancelled.
    pub silent: Vec<(Errno, RangeSet)>,
}

impl Coverage {
    /// Whether every leaf contributed.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.failed.is_empty() && self.silent.is_empty()
    }

    /// Every leaf that failed or stayed silent.
    #[must_use]
    pub fn missing(&self) -> RangeSet {
        let mut all = RangeSet::new();
        for (_, leaves) in self.failed.iter().chain(&self.silent) {
            all.union_with(leaves);
        }
        all
    }

    pub(super) fn everyone(&self) -> RangeSet {
        let mut all = self.missing();
        all.union_with(&self.ok);
        all
    }

    fn add(list: &mut Vec<(Errno, RangeSet)>, errno: Errno, leaves: &RangeSet) {
        if leaves.is_empty() {
            return;
        }
        match list.binary_search_by_key(&errno, |(have, _)| *have) {
            Ok(at) => list[at].1.union_with(leaves),
            Err(at) => list.insert(at, (errno, leaves.clone())),
        }
    }

    /// Counts `leaves` as failed with `errno`.
    pub fn fail(&mut self, errno: Errno, leaves: &RangeSet) {
        Self::add(&mut self.failed, errno, leaves);
    }

    /// Counts `leaves` as silent because of `errno`.
    pub fn silence(&mut self, errno: Errno, leaves: &RangeSet) {
        Self::add(&mut self.silent, errno, leaves);
    }

    /// Takes in what `other` covers.
    pub fn merge(&mut self, other: &Self) {
        if !other.ok.is_empty() {
            Arc::make_mut(&mut self.ok).union_with(&other.ok);
        }
        for (errno, leaves) in &other.failed {
            self.fail(*errno, leaves);
        }
        for (errno, leaves) in &other.silent {
            self.silence(*errno, leaves);
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        self.ok.encode(out);
        for list in [&self.failed, &self.silent] {
            varint::put(out, list.len() as u64);
            for (errno, leaves) in list {
                varint::put(out, u64::from(errno.0.unsigned_abs()));
                leaves.encode(out);
            }
        }
    }

    /// Takes a coverage off the front of `input`; each of its leaves must be one of `within`, and
    /// counted once. (That also bounds what a few forged bytes can make this allocate.)
    pub(crate) fn decode(input: &mut &[u8], within: &RangeSet) -> Result<Self, Violation> {
        let body = |_: Malformed| Violation::Body(Kind::Up);
        let ok = Self::decode_set(input, within)?;
        let mut seen = ok.clone();
        let mut cover = Self { ok: Arc::new(ok), ..Self::default() };
        for list in [&mut cover.failed, &mut cover.silent] {
            for _ in 0..varint::get_len(input).map_err(body)? {
                let number = varint::get(input).map_err(body)?;
                let errno = Errno(i32::try_from(number).map_err(|_| Violation::Body(Kind::Up))?);
                let leaves = Self::decode_set(input, within)?;
                if !seen.is_disjoint(&leaves) {
                    return Err(COUNTED_TWICE);
                }
                seen.union_with(&leaves);
                Self::add(list, errno, &leaves);
            }
        }
        Ok(cover)
    }

    fn decode_set(input: &mut &[u8], within: &RangeSet) -> Result<RangeSet, Violation> {
        let leaves = RangeSet::decode(input).map_err(|_| Violation::Body(Kind::Up))?;
        if !leaves.is_subset(within) {
            return Err(Violation::Bound("a contribution names leaves that are not below its sender"));
        }
        Ok(leaves)
    }
}

const COUNTED_TWICE: Violation = Violation::Bound("a contribution counts a leaf twice");

/// What a child has done for a wave, in one word: flags, and the bytes to give credit for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Contribution(u32);

impl Contribution {
    /// So many bytes to give credit for.
    pub fn of(bytes: usize) -> Self {
        Self(bytes as u32 & Self::BYTES)
    }

    const DONE: u32 = 1 << 31;
    const FULL: u32 = 1 << 30;
    const TOLD: u32 = 1 << 29;
    /// It has contributed, and may do so again.
    const BEGUN: u32 = 1 << 28;
    const BYTES: u32 = Self::BEGUN - 1;

    fn done(self) -> bool {
        self.0 & Self::DONE != 0
    }
    /// All members of the child are in the payload.
    fn full(self) -> bool {
        self.0 & Self::FULL != 0
    }
    /// Its members were named in a partial that has gone up already.
    fn told(self) -> bool {
        self.0 & Self::TOLD != 0
    }
    fn begun(self) -> bool {
        self.0 & (Self::BEGUN | Self::FULL) != 0
    }
    pub fn bytes(self) -> u32 {
        self.0 & Self::BYTES
    }
    fn add_bytes(&mut self, bytes: usize) {
        let sum = self.bytes().saturating_add(bytes as u32).min(Self::BYTES);
        self.0 = (self.0 & !Self::BYTES) | sum;
    }
}

/// One wave at one node.
#[derive(Default)]
pub(super) struct Slot {
    phase: Phase,
    /// Children from which more may come.
    pending: u32,
    pub from: Vec<Contribution>,
    accumulator: Option<Box<dyn Accumulator>>,
    /// Something was folded since the last flush.
    loaded: bool,
    /// Something came since the last flush.
    begun: bool,
    /// What partial contributions cover, since the last flush; `None` while all were full.
    cover: Option<Box<Coverage>>,
    /// What earlier flushes covered.
    pub told: RangeSet,
    /// The members have changed since it was opened: contributions are judged by the leaves they
    /// name, not by whom they come from.
    mixed: bool,
    /// [`flag::up::ACK_WANTED`], if a contribution carried it.
    pub wanted: u8,
    pub deadline: Option<Time>,
    pub cancelled: bool,
    /// Who misses this wave takes no more part in the stream.
    pub once: bool,
    pub flush_at: Option<Time>,
    pub tag: i32,
    /// With a filter that folds in child order: the child whose turn it is, and those before theirs.
    turn: usize,
    early: Vec<Early>,
}

/// A contribution that waits for its turn to be folded.
struct Early {
    child: usize,
    /// The first leaf it stands for, which decides when it is folded.
    key: u32,
    tag: i32,
    raw: bool,
    /// Whose data it is; `None`: all of the child's members.
    ok: Option<Arc<RangeSet>>,
    payload: Vec<u8>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    #[default]
    Unused,
    Open,
    Done,
}

/// A child as the waves of a stream see it.
pub(super) struct Member {
    pub rank: u32,
    /// The leaves it speaks for now. Those of all children together are the stream's members.
    pub leaves: Arc<RangeSet>,
    /// Some of its leaves are below another child now, but it may still name them.
    pub moved: bool,
    pub live: bool,
    /// The first wave that it contributes to: it joined then, here or at a parent that it had before.
    pub since: u64,
    /// Why it is not live, or what became of its leaves before that wave.
    pub lost: Errno,
}

impl Member {
    /// Whether something may come of it for `wave`.
    #[inline]
    pub fn contributes_to(&self, wave: u64) -> bool {
        self.live && self.since <= wave
    }
}

/// A contribution as it arrived.
pub(super) struct Arrival<'a> {
    pub child: usize,
    pub flags: u8,
    pub tag: i32,
    /// Bytes to give credit for.
    pub bytes: usize,
    /// Coverage block (unless full) and payload.
    pub body: &'a [u8],
}

impl<'a> Arrival<'a> {
    /// From the (last) frame that brought it.
    pub fn new(child: usize, header: &Header, body: &'a [u8]) -> Self {
        Self { child, flags: header.flags, tag: header.tag, bytes: header.cost(), body }
    }
}

/// What has to be done after a contribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    /// The wave is over already; the bytes are consumed.
    Drop,
    /// Wait for more.
    Wait,
    /// Pass it on at once.
    PassOn,
    /// The first contribution came: pass on what has come after this long.
    Later(Duration),
    /// Every child has done its part.
    Complete,
}

/// The open waves of a stream at a node, by number.
#[derive(Default)]
pub(super) struct Waves {
    base: u64,
    /// Children have been added: their order is not that of their leaves any more.
    pub irregular: bool,
    ring: VecDeque<Box<Slot>>,
    #[expect(clippy::vec_box, reason = "slots move between the two by pointer")]
    spare: Vec<Box<Slot>>,
}

impl Waves {
    /// The slot of `wave`, opened if it is new; `None` if it is over.
    #[inline]
    pub fn open(&mut self, wave: u64, members: &[Member]) -> Result<Option<&mut Slot>, Violation> {
        let Some(at) = wave.checked_sub(self.base) else { return Ok(None) };
        if at >= WAVES_OPEN_MAX {
            return Err(Violation::Bound("a wave is too far ahead of the oldest open one"));
        }
        let at = at as usize;
        while self.ring.len() <= at {
            self.ring.push_back(self.spare.pop().unwrap_or_default());
        }
        let slot = &mut self.ring[at];
        if slot.phase == Phase::Unused {
            slot.begin(wave, members);
            if self.irregular {
                slot.turn = usize::MAX;
            }
        }
        Ok((slot.phase == Phase::Open).then_some(&mut **slot))
    }

    /// The slot of `wave`, if it is open.
    pub fn get(&mut self, wave: u64) -> Option<&mut Slot> {
        let at = usize::try_from(wave.checked_sub(self.base)?).ok()?;
        self.ring.get_mut(at).map(|slot| &mut **slot).filter(|slot| slot.phase == Phase::Open)
    }

    /// Whether one more wave may be started.
    pub fn has_room(&self) -> bool {
        (self.ring.len() as u64) < WAVES_OPEN_MAX / 2
    }

    /// The first wave that no child has begun.
    pub fn end(&self) -> u64 {
        self.base + self.ring.len() as u64
    }

    /// A stream that begins with wave `base`.
    pub fn starting_at(base: u64) -> Self {
        Self { base, ..Self::default() }
    }

    /// Gives a list of contributions back, to be used by a later wave.
    pub fn recycle(&mut self, from: Vec<Contribution>) {
        if let Some(slot) = self.spare.last_mut().filter(|slot| slot.from.capacity() == 0) {
            slot.from = from;
        }
    }

    /// Whether no wave has a slot.
    pub fn is_idle(&self) -> bool {
        self.ring.is_empty()
    }

    /// Number of the first wave that is not over.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Gives slots to the waves that had none so far; each counts for `cost` bytes of the window.
    pub fn resume(&mut self, steady: &Steady, members: &[Member], filter: &dyn Filter, cost: usize) {
        debug_assert!(self.ring.is_empty());
        self.base = steady.base();
        for wave in steady.base()..steady.base() + steady.open() as u64 {
            let Ok(Some(slot)) = self.open(wave, members) else { continue };
            slot.tag = steady.tag();
            slot.begun = true;
            for child in (0..members.len()).filter(|&child| steady.next(child) > wave) {
                slot.from[child].add_bytes(cost);
                slot.from[child].0 |= Contribution::DONE | Contribution::FULL;
                slot.pending -= 1;
            }
            let accumulator = slot.accumulator.get_or_insert_with(|| filter.accumulator());
            let (rank, tag) = (members.first().map_or(0, |member| member.rank), steady.tag());
            let input = Input { child: 0, rank, tag, raw: false, payload: steady.item(wave) };
            slot.loaded = accumulator.fold(input).is_ok();
        }
    }

    /// Takes the bytes that wait to be credited to a child.
    pub fn forget_credit(&mut self, child: usize) {
        for from in self.ring.iter_mut().filter_map(|slot| slot.from.get_mut(child)) {
            from.0 &= !Contribution::BYTES;
        }
    }

    /// The leaves of a child are all below others; from now on it is another one.
    pub fn vacate(&mut self, child: usize) {
        for slot in self.ring.iter_mut().filter(|slot| slot.phase == Phase::Open) {
            slot.give_up_on(child);
            slot.from[child] = Contribution(Contribution::DONE | Contribution::FULL);
        }
    }

    /// The first wave before `since` that nobody has begun.
    pub fn unbegun_before(&self, since: u64) -> Option<u64> {
        let ring = (self.base..since).zip(&self.ring);
        let unused = ring.filter(|(_, slot)| slot.phase == Phase::Unused).map(|(wave, _)| wave).next();
        unused.or_else(|| (self.end() < since).then(|| self.end()))
    }

    /// Numbers of the open waves.
    pub fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        let open = self.ring.iter().enumerate().filter(|(_, slot)| slot.phase == Phase::Open);
        open.map(|(at, _)| self.base + at as u64)
    }

    /// Earliest deadline or flush of an open wave.
    pub fn next_timer(&self) -> Option<Time> {
        let open = self.ring.iter().filter(|slot| slot.phase == Phase::Open);
        open.filter_map(|slot| match (slot.deadline, slot.flush_at) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        })
        .min()
    }

    /// Ends `wave`: a contribution that comes now is late.
    pub fn retire(&mut self, wave: u64) {
        let at = (wave - self.base) as usize;
        let slot = &mut self.ring[at];
        slot.reset();
        slot.phase = Phase::Done;
        while self.ring.front().is_some_and(|slot| slot.phase == Phase::Done) {
            if let Some(mut slot) = self.ring.pop_front() {
                slot.phase = Phase::Unused;
                self.base += 1;
                if self.spare.len() < SPARE_MAX {
                    self.spare.push(slot);
                }
            }
        }
    }
}

impl Slot {
    fn begin(&mut self, wave: u64, members: &[Member]) {
        self.phase = Phase::Open;
        self.pending = members.iter().filter(|member| member.contributes_to(wave)).count() as u32;
        self.from.clear();
        self.from.resize(members.len(), Contribution::default());
        let nobodys = |(_, member): &(_, &Member)| !member.contributes_to(wave);
        for (from, member) in self.from.iter_mut().zip(members).filter(nobodys) {
            // Whose leaves are all below others now is missed by nobody.
            from.0 |= Contribution::DONE | if member.leaves.is_empty() { Contribution::FULL } else { 0 };
        }
    }

    fn reset(&mut self) {
        self.loaded = false;
        self.begun = false;
        self.cover = None;
        self.told = RangeSet::new();
        self.mixed = false;
        self.wanted = 0;
        self.deadline = None;
        self.cancelled = false;
        self.once = false;
        self.flush_at = None;
        self.turn = 0;
        self.early.clear();
    }

    /// Takes the bytes to give credit for, while more may come.
    pub fn take_credit(&mut self, into: &mut Vec<Contribution>) {
        into.extend(self.from.iter_mut().map(|from| {
            let bytes = from.0 & Contribution::BYTES;
            from.0 &= !Contribution::BYTES;
            Contribution(bytes)
        }));
    }

    /// Whether something waits to be passed on (modes that do not wait for all).
    pub fn has_news(&self) -> bool {
        self.begun
    }

    /// The children from which something is still to come.
    pub fn late(&self) -> Vec<usize> {
        (0..self.from.len()).filter(|&child| !self.from[child].done()).collect()
    }

    /// A child is gone: what it has not sent will not come. Returns whether that completes the wave.
    pub fn give_up_on(&mut self, child: usize) -> bool {
        if !self.from[child].done() {
            self.from[child].0 |= Contribution::DONE;
            self.pending -= 1;
        }
        self.pending == 0
    }

    /// Takes in one contribution. A filter's complaint is left in `complaint`.
    #[inline]
    pub fn contribute(
        &mut self,
        arrival: &Arrival<'_>,
        members: &[Member],
        within: &RangeSet,
        filter: &dyn Filter,
        sync: Sync,
        complaint: &mut Option<FilterError>,
    ) -> Result<After, Violation> {
        let child = arrival.child;
        if self.from[child].done() {
            return Ok(After::Drop);
        }
        let mut payload = arrival.body;
        let full = arrival.flags & flag::up::FULL != 0;
        let mut cover = None;
        self.wanted |= arrival.flags & flag::up::ACK_WANTED;
        if self.mixed || (!full && members[child].moved) {
            match self.judge(arrival, members, within, &mut payload)? {
                Some(named) => {
                    // Leaves that are another child's by now may come once more with that one.
                    if !named.everyone().is_subset(&members[child].leaves) {
                        self.mix(members);
                    }
                    cover = Some(named);
                }
                None => return Ok(self.refused(arrival)),
            }
        } else {
            if !full {
                cover = Some(Coverage::decode(&mut payload, &members[child].leaves)?);
            }
            if self.from[child].begun() && !self.is_new(arrival, cover.as_ref())? {
                return Ok(self.refused(arrival));
            }
        }
        let full = cover.is_none();
        let first = !std::mem::replace(&mut self.begun, true);
        if arrival.flags & flag::up::EMPTY == 0 {
            self.tag = arrival.tag;
            let raw = arrival.flags & flag::up::RAW != 0;
            let input =
                Input { child: child as u32, rank: members[child].rank, tag: arrival.tag, raw, payload };
            let last = arrival.flags & flag::up::FINAL != 0;
            *complaint = self.fold(filter, input, last, cover.as_ref(), members).err();
        }
        self.from[child].add_bytes(arrival.bytes);
        if complaint.is_none() && full {
            self.from[child].0 |= Contribution::FULL;
        } else {
            self.note_cover(child, cover, complaint.as_ref(), members);
        }
        if arrival.flags & flag::up::FINAL != 0 {
            self.from[child].0 |= Contribution::DONE;
            self.pending -= 1;
        }
        Ok(match sync {
            _ if self.pending == 0 => After::Complete,
            Sync::DontWait => After::PassOn,
            Sync::TimeOut(delay) if first => After::Later(delay),
            Sync::WaitForAll | Sync::TimeOut(_) => After::Wait,
        })
    }

    /// Notes whose data came when it is not simply everyone's, or could not be folded.
    #[cold]
    fn note_cover(
        &mut self,
        child: usize,
        cover: Option<Coverage>,
        complaint: Option<&FilterError>,
        members: &[Member],
    ) {
        let everyone = || Coverage { ok: Arc::clone(&members[child].leaves), ..Coverage::default() };
        let mut cover = cover.unwrap_or_else(everyone);
        if let Some(error) = complaint {
            let lost = std::mem::take(&mut cover.ok);
            cover.fail(error.errno, &lost);
        }
        self.from[child].0 |= Contribution::BEGUN;
        self.cover.get_or_insert_default().merge(&cover);
    }

    #[inline]
    fn fold(
        &mut self,
        filter: &dyn Filter,
        input: Input<'_>,
        last: bool,
        cover: Option<&Coverage>,
        members: &[Member],
    ) -> Result<(), FilterError> {
        let accumulator = self.accumulator.get_or_insert_with(|| filter.accumulator());
        if !filter.in_child_order() {
            accumulator.fold(input)?;
            self.loaded = true;
            return Ok(());
        }
        self.fold_in_order(input, last, cover, members)
    }

    fn fold_in_order(
        &mut self,
        input: Input<'_>,
        last: bool,
        cover: Option<&Coverage>,
        members: &[Member],
    ) -> Result<(), FilterError> {
        // Children whose turn has not come are kept, and so is one that may contribute again; a
        // child that will never answer holds up only the folding, until the wave is closed.
        let child = input.child as usize;
        if child != self.turn || !last || self.from[child].begun() {
            let ok = cover.map(|cover| Arc::clone(&cover.ok));
            let payload = input.payload.to_vec();
            let named = ok.as_ref().filter(|_| self.mixed).unwrap_or(&members[child].leaves);
            let key = named.first().unwrap_or(u32::MAX);
            self.early.push(Early { child, key, tag: input.tag, raw: input.raw, ok, payload });
            return Ok(());
        }
        self.turn += 1;
        if let Some(accumulator) = &mut self.accumulator {
            accumulator.fold(input)?;
            self.loaded = true;
        }
        Ok(())
    }

    /// Folds what waited for its turn. Returns the first complaint with the child it is about.
    fn fold_early(&mut self, members: &[Member]) -> Option<FilterError> {
        if self.early.is_empty() {
            return None;
        }
        let mut early = std::mem::take(&mut self.early);
        early.sort_by_key(|early| early.key);
        let mut complaint = None;
        for Early { child, tag, raw, ok, payload, .. } in early {
            let Some(accumulator) = self.accumulator.as_mut() else { continue };
            let rank = members[child].rank;
            match accumulator.fold(Input { child: child as u32, rank, tag, raw, payload: &payload }) {
                Ok(()) => self.loaded = true,
                Err(error) => {
                    self.from[child].0 &= !Contribution::FULL;
                    self.from[child].0 |= Contribution::BEGUN;
                    let cover = self.cover.get_or_insert_default();
                    let lost = ok.as_ref().unwrap_or(&members[child].leaves);
                    cover.ok = Arc::new(cover.ok.difference(lost));
                    cover.fail(error.errno, lost);
                    complaint = Some(error);
                }
            }
        }
        complaint
    }

    /// What the wave holds since the last flush: coverage (`None`: everyone, all of it now) and,
    /// appended to `payload`, the combined data; `false` beside it when there is none.
    ///
    /// With `last` the wave ends: children that have not done their part are silent, with
    /// `late` for those that still live. What the filter sends down is left in `replies`.
    pub fn flush(
        &mut self,
        members: &[Member],
        last: bool,
        late: Errno,
        emit: Emit,
        payload: &mut Vec<u8>,
        replies: &mut Replies,
    ) -> (Option<Coverage>, bool, Option<FilterError>) {
        self.begun = false;
        let mut complaint = self.fold_early(members);
        let mut loaded = std::mem::take(&mut self.loaded);
        let before = payload.len();
        let mut spoilt = None;
        if let Some(accumulator) = self.accumulator.as_mut().filter(|_| loaded) {
            match accumulator.finish(emit, payload) {
                Ok(()) => *replies = accumulator.replies(),
                Err(error) => {
                    payload.truncate(before);
                    loaded = false;
                    spoilt = Some(error.errno);
                    complaint = Some(error);
                    // Whatever state the error left behind must not reach the next wave.
                    self.accumulator = None;
                }
            }
        }
        let everyone =
            last && !self.mixed && self.cover.is_none() && self.told.is_empty() && spoilt.is_none();
        if everyone && self.from.iter().all(|from| from.full()) {
            return (None, loaded, complaint);
        }
        let mut cover = self.cover.take().map(|cover| *cover).unwrap_or_default();
        for (from, member) in self.from.iter_mut().zip(members) {
            if from.full() && !from.told() {
                Arc::make_mut(&mut cover.ok).union_with(&member.leaves);
                from.0 |= Contribution::TOLD;
            }
        }
        if let Some(errno) = spoilt {
            let lost = std::mem::take(&mut cover.ok);
            cover.fail(errno, &lost);
        }
        let now = cover.everyone();
        self.told.union_with(&now);
        if last {
            for (from, member) in self.from.iter().zip(members) {
                if !from.full() {
                    // Who has done its part without naming them was given up, and is not late.
                    let errno = if member.live && !from.done() { late } else { member.lost };
                    cover.silence(errno, &member.leaves.difference(&self.told));
                }
            }
        }
        (Some(cover), loaded, complaint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Nothing;

    impl Filter for Nothing {
        fn accumulator(&self) -> Box<dyn Accumulator> {
            Box::new(Self)
        }
    }

    impl Accumulator for Nothing {
        fn fold(&mut self, _: Input<'_>) -> Result<(), FilterError> {
            Ok(())
        }
        fn finish(&mut self, _: Emit, _: &mut Vec<u8>) -> Result<(), FilterError> {
            Ok(())
        }
    }

    fn member(leaves: RangeSet, moved: bool, since: u64) -> Member {
        Member { rank: 1, leaves: Arc::new(leaves), moved, live: true, since, lost: Errno::HOSTDOWN }
    }

    /// What a child sends of leaves that were its own once counts, and so these do not count again when
    /// they come with another child, which has begun the stream anew.
    #[test]
    fn a_leaf_that_went_to_another_child_counts_once() {
        let members = [member(RangeSet::from_range(0, 2), true, 0), member(RangeSet::single(2), true, 0)];
        let within = RangeSet::full(3);
        let mut named = Vec::new();
        Coverage { ok: Arc::new(RangeSet::from_range(1, 3)), ..Coverage::default() }.encode(&mut named);
        let contribute = |slot: &mut Slot, child, flags, body: &[u8]| {
            let arrival = Arrival { child, flags, tag: 0, bytes: 0, body };
            slot.contribute(&arrival, &members, &within, &Nothing, Sync::WaitForAll, &mut None)
        };
        let mut waves = Waves::default();
        let slot = waves.open(0, &members).unwrap().unwrap();
        assert_eq!(contribute(slot, 0, 0, &named), Ok(After::Wait));
        assert_eq!(contribute(slot, 1, flag::up::FULL | flag::up::FINAL, b"again"), Ok(After::Wait));
        assert!(!slot.from[1].full(), "leaf 2 is counted already");
        assert_eq!(slot.counted(&members), RangeSet::from_range(1, 3));
        assert!(slot.late() == [0]);
    }

    #[test]
    fn a_wave_is_not_expected_of_who_joined_later() {
        let members = [member(RangeSet::single(0), false, 0), member(RangeSet::single(1), false, 2)];
        let mut waves = Waves::default();
        assert_eq!(waves.open(1, &members).unwrap().unwrap().late(), [0]);
        assert_eq!(waves.open(2, &members).unwrap().unwrap().late(), [0, 1]);
        assert_eq!(waves.unbegun_before(2), Some(0));
        assert_eq!(Waves::starting_at(5).unbegun_before(7), Some(5));
        assert_eq!(Waves::starting_at(5).unbegun_before(5), None);
    }

    proptest! {
        #[test]
        fn coverage_round_trips_and_garbage_never_panics(
            ok in proptest::collection::btree_set(0u32..50, 0..20),
            silent in proptest::collection::btree_set(50u32..90, 0..20),
            bytes in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            let mut cover = Coverage { ok: Arc::new(ok.into_iter().collect()), ..Coverage::default() };
            cover.silence(Errno::HOSTDOWN, &silent.into_iter().collect());
            let mut wire = Vec::new();
            cover.encode(&mut wire);
            prop_assert_eq!(Coverage::decode(&mut &wire[..], &RangeSet::full(90)), Ok(cover.clone()));
            if !cover.ok.is_empty() {
                prop_assert!(Coverage::decode(&mut &wire[..], &RangeSet::from_range(50, 90)).is_err());
            }
            let _ = Coverage::decode(&mut &bytes[..], &RangeSet::full(90));
        }
    }
}
