//! Waves whose members change while they are open.
//!
//! As long as they do not, a contribution counts for the child that it comes from: one bit says
//! that it is there. From the first change on that is not enough: a leaf whose answer is folded
//! already may be below another child by now, which sends it again because its parent was lost. So
//! each contribution is judged by the leaves that it names, and one that names a leaf which is
//! counted is refused as a whole: what was folded cannot be taken apart. That loses something only
//! when a contribution overlaps in part, which takes two failures at once; its other leaves are
//! silent then, and named.
use super::{After, Arrival, Contribution, Slot};
use crate::coverage::{COUNTED_TWICE, Coverage};
use crate::frame::{Violation, flag};
use crate::stream::{ChildId, Members};
use sheaf_core::RangeSet;
use std::sync::Arc;

impl Slot {
    /// Every leaf that is counted here, whatever for.
    pub fn counted(&self, members: &Members) -> RangeSet {
        let mut all = self.cover.as_ref().map(|cover| cover.everyone()).unwrap_or_default();
        all.union_with(&self.told);
        for (from, member) in self.from.iter().zip(members.iter()) {
            if from.full() && !from.told() {
                all.union_with(&member.leaves);
            }
        }
        all
    }

    /// From here on each contribution counts for the leaves that it names. To be called before
    /// `members` change: who has contributed in full did so for the leaves it has now.
    pub fn mix(&mut self, members: &Members) {
        self.mixed = true;
        // Children are no longer in the order of their leaves, so the fold waits until all have
        // come.
        self.fold_all_late();
        for (from, member) in
            self.from.iter_mut().zip(members.iter()).filter(|(from, _)| from.full())
        {
            if !from.told() {
                let cover = self.cover.get_or_insert_default();
                Arc::make_mut(&mut cover.ok).union_with(&member.leaves);
            }
            from.0 = (from.0 & !(Contribution::FULL | Contribution::TOLD)) | Contribution::BEGUN;
        }
        for early in &mut self.early {
            early.ok.get_or_insert_with(|| Arc::clone(&members[early.child].leaves));
        }
    }

    /// A child was added to `members`, without leaves so far.
    pub fn add_child(&mut self) {
        // Expected only once leaves that are still missing move to it (`Self::expect`).
        self.from.push(Contribution(Contribution::DONE));
    }

    /// Whether something may still come from a child.
    pub fn expects(&self, child: ChildId) -> bool {
        self.from.get(child.place()).is_some_and(|from| !from.done())
    }

    /// Leaves have been moved to `child` from one that was still to contribute: so they are
    /// expected from the new one, unless all of them are counted.
    pub fn expect(&mut self, child: ChildId, members: &Members) {
        if self.from[child.place()].done()
            && !members[child].leaves.is_subset(&self.counted(members))
        {
            self.from[child.place()].0 &= !Contribution::DONE;
            self.pending += 1;
        }
    }

    /// Whether every child has done its part.
    pub fn is_complete(&self) -> bool {
        self.pending == 0
    }

    /// Whose data `arrival` brings; `None` when it must not count.
    ///
    /// What it names may be below another child by now, but was a member here once: more is a
    /// violation. That leaves are silent is believed only of those the child still has. Costs a
    /// union over what all children have contributed: only waves that are open while the tree
    /// changes pay it.
    #[cold]
    pub(super) fn judge(
        &self,
        arrival: &Arrival<'_>,
        members: &Members,
        payload: &mut &[u8],
    ) -> Result<Option<Coverage>, Violation> {
        let cover = match arrival.flags & flag::up::FULL != 0 {
            true => {
                Coverage { ok: Arc::clone(&members[arrival.child].leaves), ..Coverage::default() }
            }
            false => Coverage::decode(payload, members.ever())?,
        };
        let mut cover = cover;
        // Of a leaf that has left it, the sender knows only that it has heard nothing.
        for (_, leaves) in &mut cover.silent {
            *leaves = leaves.intersection(&members[arrival.child].leaves);
        }
        cover.silent.retain(|(_, leaves)| !leaves.is_empty());
        let new = cover.everyone().is_disjoint(&self.counted(members));
        Ok(new.then_some(cover))
    }

    /// A child that contributes again must not name a leaf that it has named before, unless it
    /// repeats itself for a new parent.
    #[cold]
    pub(super) fn is_new(
        &self,
        arrival: &Arrival<'_>,
        cover: Option<&Coverage>,
    ) -> Result<bool, Violation> {
        let replay = arrival.flags & flag::up::REPLAY != 0;
        let Some(cover) = cover else { return if replay { Ok(false) } else { Err(COUNTED_TWICE) } };
        let more = cover.everyone();
        let unflushed =
            self.cover.as_ref().is_some_and(|cover| !cover.everyone().is_disjoint(&more));
        let full = self.from[arrival.child.place()].full() && !more.is_empty();
        if full || unflushed || !self.told.is_disjoint(&more) {
            return if replay { Ok(false) } else { Err(COUNTED_TWICE) };
        }
        Ok(true)
    }

    /// Counts nothing of a contribution but its bytes, and that it was the last.
    #[cold]
    pub(super) fn refused(&mut self, arrival: &Arrival<'_>) -> After {
        let from = &mut self.from[arrival.child.place()];
        from.add_bytes(arrival.bytes);
        if arrival.flags & flag::up::FINAL == 0 {
            return After::Wait;
        }
        from.0 |= Contribution::DONE;
        self.pending -= 1;
        if self.pending == 0 { After::Complete } else { After::Wait }
    }
}
