//! The open waves of a stream, a slot for each.
use super::slot::Phase;
use super::steady::Steady;
use super::{Contribution, Slot, WAVES_OPEN_MAX};
use crate::config::Time;
use crate::filter::{Filter, Input};
use crate::frame::Violation;
use crate::stream::{ChildId, Members};
use std::collections::VecDeque;

/// Slots kept for later waves of a stream: as many as a fast sender's window holds, so that a
/// steady stream of waves allocates nothing.
const SPARE_MAX: usize = 1024;

/// The open waves of a stream at a node, by number.
#[derive(Default)]
pub(crate) struct Slots {
    pub(super) base: u64,
    /// The order of the children is not that of their leaves.
    pub irregular: bool,
    pub(super) ring: VecDeque<Box<Slot>>,
    #[expect(clippy::vec_box, reason = "slots move between the two by pointer")]
    spare: Vec<Box<Slot>>,
}

impl Slots {
    /// The slot of `wave`, opened if it is new; `None` if it is over.
    ///
    /// Waves may begin in any order, within [`WAVES_OPEN_MAX`] of the oldest that is not over:
    /// those between have a slot that nobody has begun. That bound is kept by the windows of honest
    /// senders, of which each contribution takes at least [`crate::frame::COST_MIN`].
    #[inline]
    pub fn open(&mut self, wave: u64, members: &Members) -> Result<Option<&mut Slot>, Violation> {
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
                // The order of the children is not the order of their leaves.
                slot.fold_all_late();
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

    /// The first wave without a slot: nothing of it has come.
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
    pub fn resume(&mut self, steady: &Steady, members: &Members, filter: &dyn Filter, cost: usize) {
        debug_assert!(self.ring.is_empty());
        self.base = steady.base();
        for wave in steady.base()..steady.base() + steady.open() as u64 {
            let Ok(Some(slot)) = self.open(wave, members) else { continue };
            let done = members.ids().filter(|&child| steady.next(child) > wave);
            done.for_each(|child| slot.count_full(child, cost));
            // An item that was folded without a slot is a partial of several children, for which
            // the rank of the first stands.
            let (rank, tag) = (members.iter().next().map_or(0, |member| member.rank), steady.tag());
            slot.take_folded(
                filter,
                Input { rank, tag, payload: steady.item(wave), ..Input::default() },
            );
        }
    }

    /// Takes the bytes that wait to be credited to a child.
    pub fn forget_credit(&mut self, child: ChildId) {
        for from in self.ring.iter_mut().filter_map(|slot| slot.from.get_mut(child.place())) {
            from.take_bytes();
        }
    }

    /// A child was added to the members, without leaves so far: their order is not that of their
    /// leaves any more.
    pub fn add_child(&mut self) {
        self.irregular = true;
        self.ring
            .iter_mut()
            .filter(|slot| slot.phase == Phase::Open)
            .for_each(|slot| slot.add_child());
    }

    /// The leaves of a child are all below others; from now on it is another one.
    pub fn vacate(&mut self, child: ChildId) {
        self.ring
            .iter_mut()
            .filter(|slot| slot.phase == Phase::Open)
            .for_each(|slot| slot.vacate(child));
    }

    /// The first wave before `since` that nobody has begun.
    pub fn unbegun_before(&self, since: u64) -> Option<u64> {
        let ring = (self.base..since).zip(&self.ring);
        let unused =
            ring.filter(|(_, slot)| slot.phase == Phase::Unused).map(|(wave, _)| wave).next();
        unused.or_else(|| (self.end() < since).then(|| self.end()))
    }

    /// The open waves, by number.
    pub fn open_slots(&self) -> impl Iterator<Item = (u64, &Slot)> {
        (self.base..)
            .zip(self.ring.iter().map(|slot| &**slot))
            .filter(|(_, slot)| slot.phase == Phase::Open)
    }

    /// Numbers of the open waves.
    pub fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.open_slots().map(|(wave, _)| wave)
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

    /// Ends `wave`, which is open: a contribution that comes now is late. Its slot is used again.
    pub fn retire(&mut self, wave: u64) {
        let at = (wave - self.base) as usize;
        let slot = &mut self.ring[at];
        slot.reset();
        slot.phase = Phase::Done;
        // Waves may end in any order, and the ring begins with the oldest that is open.
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
