//! One wave: what has come of it, and from whom something is still to come.
use super::{After, Arrival, Contribution};
use crate::config::Time;
use crate::control::Sync;
use crate::coverage::Coverage;
use crate::filter::{Accumulator, Emit, Filter, FilterError, Input, Replies};
use crate::frame::{Violation, flag};
use crate::stream::{ChildId, Members};
use sheaf_core::{Errno, RangeSet};
use std::borrow::Cow;
use std::sync::Arc;

/// One wave at one node.
#[derive(Default)]
pub(crate) struct Slot {
    pub(super) phase: Phase,
    /// Children from which more may come.
    pub(super) pending: u32,
    pub from: Vec<Contribution>,
    accumulator: Option<Box<dyn Accumulator>>,
    /// Something was folded since the last flush.
    loaded: bool,
    /// Something came since the last flush.
    pub(super) begun: bool,
    /// What partial contributions cover, since the last flush; `None` while all were full.
    pub(super) cover: Option<Box<Coverage>>,
    /// What earlier flushes covered.
    pub told: RangeSet,
    /// The members have changed since it was opened: contributions are judged by the leaves they
    /// name, not by whom they come from.
    pub(super) mixed: bool,
    /// [`flag::up::ACK_WANTED`], if a contribution carried it.
    pub wanted: u8,
    pub deadline: Option<Time>,
    pub cancelled: bool,
    /// Who misses this wave takes no more part in the stream.
    pub once: bool,
    pub flush_at: Option<Time>,
    pub tag: i32,
    /// With a filter that folds in child order: the child whose turn it is, and those before
    /// theirs.
    pub(super) turn: usize,
    pub(super) early: Vec<Early>,
}

/// A contribution that waits for its turn to be folded.
pub(super) struct Early {
    pub child: ChildId,
    /// The first leaf it stands for, which decides when it is folded.
    key: u32,
    tag: i32,
    raw: bool,
    /// Whose data it is; `None`: all of the child's members.
    pub ok: Option<Arc<RangeSet>>,
    payload: Vec<u8>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    Unused,
    Open,
    Done,
}

/// What a wave held since it was last flushed.
pub(crate) struct Flush {
    /// Whose data it is; `None`: everyone's, all of it now.
    pub cover: Option<Coverage>,
    /// There is a payload.
    pub loaded: bool,
    pub complaint: Option<FilterError>,
    /// What the filter sends down.
    pub replies: Replies,
}

impl Slot {
    pub(super) fn begin(&mut self, wave: u64, members: &Members) {
        self.phase = Phase::Open;
        self.pending = members.iter().filter(|member| member.contributes_to(wave)).count() as u32;
        self.from.clear();
        self.from.resize(members.len(), Contribution::default());
        for (from, member) in self.from.iter_mut().zip(members.iter()) {
            if !member.contributes_to(wave) {
                // Whose leaves are all below others now is missed by nobody.
                from.0 |= Contribution::DONE
                    | if member.leaves.is_empty() { Contribution::FULL } else { 0 };
            }
        }
    }

    /// All that a child has to contribute is in what was folded without a slot.
    pub(super) fn count_full(&mut self, child: ChildId, bytes: usize) {
        let from = &mut self.from[child.place()];
        from.add_bytes(bytes);
        from.0 |= Contribution::DONE | Contribution::FULL;
        self.pending -= 1;
    }

    /// Takes what was folded without a slot.
    pub(super) fn take_folded(&mut self, filter: &dyn Filter, folded: Input<'_>) {
        self.tag = folded.tag;
        self.begun = true;
        let accumulator = self.accumulator.get_or_insert_with(|| filter.accumulator());
        self.loaded = accumulator.fold(folded).is_ok();
    }

    /// Contributions are folded when the wave is over, in the order of their leaves.
    pub(super) fn fold_all_late(&mut self) {
        self.turn = usize::MAX;
    }

    /// The leaves of a child are all below others; from now on it is another one.
    pub(super) fn vacate(&mut self, child: ChildId) {
        self.give_up_on(child);
        self.from[child.place()] = Contribution(Contribution::DONE | Contribution::FULL);
    }

    pub(super) fn reset(&mut self) {
        // `accumulator` and the capacity of `from` stay, so that the next wave of this slot
        // allocates nothing. `begin` sets `pending` and `from`.
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
        into.extend(self.from.iter_mut().map(Contribution::take_bytes));
    }

    /// Whether something waits to be passed on (modes that do not wait for all).
    pub fn has_news(&self) -> bool {
        self.begun
    }

    /// The children from which something is still to come.
    pub fn late(&self) -> Vec<ChildId> {
        (0..self.from.len()).map(ChildId::new).filter(|&child| self.expects(child)).collect()
    }

    /// A child is gone: what it has not sent will not come. Returns whether that completes the
    /// wave.
    pub fn give_up_on(&mut self, child: ChildId) -> bool {
        if !self.from[child.place()].done() {
            self.from[child.place()].0 |= Contribution::DONE;
            self.pending -= 1;
        }
        self.pending == 0
    }

    /// Takes in one contribution. A filter's complaint is left in `complaint`.
    ///
    /// Assumes that its child takes part in this wave. Afterwards each leaf that it stands for is
    /// counted, once, as ok, failed or silent; or it was refused, and counts for its bytes alone. A
    /// contribution is refused as a whole when it repeats itself for a new parent, which is no
    /// fault; when it repeats itself without saying so, that is one. Allocates nothing when it is
    /// whole, everyone's, and folded as it comes.
    #[inline]
    pub fn contribute(
        &mut self,
        arrival: &Arrival<'_>,
        members: &Members,
        filter: &dyn Filter,
        sync: Sync,
        complaint: &mut Option<FilterError>,
    ) -> Result<After, Violation> {
        let child = arrival.child;
        // Its last contribution has come, or it was given up in this wave.
        if self.from[child.place()].done() {
            return Ok(After::Drop);
        }
        let mut payload = arrival.body;
        let full = arrival.flags & flag::up::FULL != 0;
        let mut cover = None;
        // Also if the contribution is refused below: its sender keeps it until the root
        // acknowledges.
        self.wanted |= arrival.flags & flag::up::ACK_WANTED;
        // A child whose leaves have moved may name some that it no longer has.
        if self.mixed || (!full && members[child].moved) {
            match self.judge(arrival, members, &mut payload)? {
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
            if self.from[child.place()].begun() && !self.is_new(arrival, cover.as_ref())? {
                return Ok(self.refused(arrival));
            }
        }
        // In a mixed wave a contribution of all members has a cover too.
        let full = cover.is_none();
        let first = !std::mem::replace(&mut self.begun, true);
        if arrival.flags & flag::up::EMPTY == 0 {
            self.tag = arrival.tag;
            let raw = arrival.flags & flag::up::RAW != 0;
            let theirs = match &cover {
                Some(cover) if arrival.flags & flag::up::FULL == 0 => Cow::Borrowed(&*cover.ok),
                _ => members[child].spoken_for(),
            };
            let input = Input {
                child: child.place() as u32,
                rank: members[child].rank,
                tag: arrival.tag,
                raw,
                leaves: Some(&theirs),
                payload,
            };
            let last = arrival.flags & flag::up::FINAL != 0;
            // A complaint does not end the wave. The leaves concerned count as failed
            // (`note_cover`).
            *complaint = self.fold(filter, input, last, cover.as_ref(), members).err();
        }
        self.from[child.place()].add_bytes(arrival.bytes);
        if complaint.is_none() && full {
            self.from[child.place()].0 |= Contribution::FULL;
        } else {
            self.note_cover(child, cover, complaint.as_ref(), members);
        }
        if arrival.flags & flag::up::FINAL != 0 {
            self.from[child.place()].0 |= Contribution::DONE;
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
        child: ChildId,
        cover: Option<Coverage>,
        complaint: Option<&FilterError>,
        members: &Members,
    ) {
        let everyone =
            || Coverage { ok: Arc::clone(&members[child].leaves), ..Coverage::default() };
        let mut cover = cover.unwrap_or_else(everyone);
        if let Some(error) = complaint {
            let lost = std::mem::take(&mut cover.ok);
            cover.fail(error.errno, &lost);
        }
        self.from[child.place()].0 |= Contribution::BEGUN;
        self.cover.get_or_insert_default().merge(&cover);
    }

    #[inline]
    fn fold(
        &mut self,
        filter: &dyn Filter,
        input: Input<'_>,
        last: bool,
        cover: Option<&Coverage>,
        members: &Members,
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
        members: &Members,
    ) -> Result<(), FilterError> {
        // Children whose turn has not come are kept, and so is one that may contribute again; a
        // child that will never answer holds up only the folding, until the wave is closed.
        let child = ChildId::new(input.child as usize);
        if child.place() != self.turn || !last || self.from[child.place()].begun() {
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

    /// Folds what waited for its turn, in the order of the leaves it stands for, which no failure
    /// changes: so the result is the same whoever came late. What cannot be folded counts as
    /// failed. Gives the last complaint.
    fn fold_early(&mut self, members: &Members) -> Option<FilterError> {
        if self.early.is_empty() {
            return None;
        }
        let mut early = std::mem::take(&mut self.early);
        // A stable sort: several contributions of one child stay in the order in which they came.
        early.sort_by_key(|early| early.key);
        let mut complaint = None;
        for Early { child, tag, raw, ok, payload, .. } in early {
            let Some(accumulator) = self.accumulator.as_mut() else { continue };
            let rank = members[child].rank;
            let theirs = match &ok {
                Some(ok) => Cow::Borrowed(&**ok),
                None => members[child].spoken_for(),
            };
            match accumulator.fold(Input {
                child: child.place() as u32,
                rank,
                tag,
                raw,
                leaves: Some(&theirs),
                payload: &payload,
            }) {
                Ok(()) => self.loaded = true,
                Err(error) => {
                    // It counted as complete when it came, before the filter refused it.
                    self.from[child.place()].0 &= !Contribution::FULL;
                    self.from[child.place()].0 |= Contribution::BEGUN;
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

    /// What the wave holds since the last flush; the combined data is appended to `payload`.
    ///
    /// With `last` the wave ends: children that have not done their part are silent, with
    /// `late` for those that still take part.
    pub fn flush(
        &mut self,
        members: &Members,
        last: bool,
        late: Errno,
        emit: Emit,
        payload: &mut Vec<u8>,
    ) -> Flush {
        self.begun = false;
        let mut complaint = self.fold_early(members);
        let mut loaded = std::mem::take(&mut self.loaded);
        let before = payload.len();
        let (mut spoilt, mut replies) = (None, Replies::default());
        if let Some(accumulator) = self.accumulator.as_mut().filter(|_| loaded) {
            match accumulator.finish(emit, payload) {
                Ok(()) => replies = accumulator.replies(),
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
        // Nobody's data is not everybody's: who counts on this node may not know yet that none are
        // left.
        let some = !members.all().is_empty();
        let everyone = last
            && some
            && !self.mixed
            && self.cover.is_none()
            && self.told.is_empty()
            && spoilt.is_none();
        if everyone && self.from.iter().all(|from| from.full()) {
            return Flush { cover: None, loaded, complaint, replies };
        }
        let mut cover = self.cover.take().map(|cover| *cover).unwrap_or_default();
        for (from, member) in self.from.iter_mut().zip(members.iter()) {
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
            for (from, member) in self.from.iter().zip(members.iter()) {
                if !from.full() {
                    // Who has done its part without naming them was given up, and is not late.
                    let errno =
                        if member.takes_part() && !from.done() { late } else { member.lost };
                    cover.silence(errno, &member.leaves.difference(&self.told));
                }
            }
        }
        Flush { cover: Some(cover), loaded, complaint, replies }
    }
}
