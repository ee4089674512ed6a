//! What holds of a stream between any two calls ([`super::super::Node::check`]).
use super::{ChildState, DownLane, Member, NodeStream, StreamOwner};
use crate::LINK_OUT_BYTES;
use crate::config::NodeRole;
use crate::control::Sync;
use sheaf_core::RangeSet;

impl NodeStream {
    pub fn check(&self, role: NodeRole) -> Result<(), String> {
        if role != NodeRole::Leaf {
            self.check_members()?;
            self.check_waves()?;
        }
        self.check_flow(role)
    }

    /// Each member is below one child.
    fn check_members(&self) -> Result<(), String> {
        let mut all = RangeSet::new();
        let children = self.members.len();
        let parallel = self.down.lanes.len() == children && self.up.inlets.len() == children;
        rule!(parallel, "children and lanes differ");
        let mut live = false;
        for (at, member) in self.members.iter().enumerate() {
            rule!(
                all.is_disjoint(&member.leaves),
                "its child {at} has {} too",
                all.intersection(&member.leaves)
            );
            all.union_with(&member.leaves);
            let gone = member.state == ChildState::Gone;
            rule!(
                gone || !member.leaves.is_empty(),
                "its child {at} has no members and takes part"
            );
            let known = self.down.joining || !member.is_joining();
            rule!(known, "its child {at} waits to join, and that is forgotten");
            live |= member.takes_part();
        }
        rule!(
            all == **self.members.all(),
            "its children have {all}, and it has {}",
            self.members.all()
        );
        rule!(
            self.members.all().is_subset(self.members.ever()),
            "it has members that it never had"
        );
        let told = self.left || self.owner == StreamOwner::App;
        rule!(told || self.members.any_left(), "nobody is left, and its owner does not know");
        rule!(!self.left || !live, "its owner believes that nobody is left");
        Ok(())
    }

    /// Every open wave waits for somebody who may come, and each time is looked at.
    fn check_waves(&self) -> Result<(), String> {
        let Some(slots) = self.up.waves.as_slots() else {
            let calm =
                self.up.sync == Sync::WaitForAll && self.members.iter().all(Member::takes_part);
            rule!(calm, "waves without slots while something happens");
            return Ok(());
        };
        if slots.end() - slots.base() > WAVES_LOOKED_AT_MAX {
            return Ok(());
        }
        slots.check(&self.members)?;
        let gap = self.gap();
        rule!(gap.is_none(), "nobody will begin wave {gap:?}, and it is not over");
        if let Some(due) = slots.next_timer() {
            rule!(
                self.up.timer.is_some_and(|timer| timer <= due),
                "nobody looks when the time of a wave is over"
            );
        }
        Ok(())
    }

    fn check_flow(&self, role: NodeRole) -> Result<(), String> {
        let (sent, down) = (self.up.out.sent, &self.down);
        rule!(sent.acked <= sent.done, "credit for {} of {} bytes", sent.acked, sent.done);
        let consumed = down.consumed;
        rule!(
            consumed.acked <= consumed.done && consumed.done <= down.received,
            "down {consumed:?} of {}",
            down.received
        );
        if role == NodeRole::Leaf {
            return Ok(());
        }
        let lanes = down.lanes.iter().zip(&self.up.inlets).zip(self.members.iter());
        for (at, ((lane, inlet), member)) in lanes.enumerate() {
            let told = inlet.consumed.acked <= inlet.consumed.done;
            rule!(told, "child {at} was told of more than was consumed");
            if member.takes_part() {
                self.check_lane(lane, member.is_here())
                    .map_err(|what| format!("child {at} {what}"))?;
            }
        }
        let logged: u64 = if down.log.len() <= LOG_LOOKED_AT_MAX {
            down.log.iter().map(|frame| frame.len() as u64).sum()
        } else {
            down.received - down.log_base
        };
        rule!(
            down.received - down.log_base == logged,
            "the log holds {logged} bytes of {}..{}",
            down.log_base,
            down.received
        );
        Ok(())
    }

    fn check_lane(&self, lane: &DownLane, here: bool) -> Result<(), String> {
        let (down, end) = (&self.down, self.down.log_end());
        let place = down.log_base.min(down.log_start) <= lane.acked
            && lane.acked <= lane.sent
            && lane.sent <= down.received;
        rule!(place, "is at {}..{} of {}..{}", lane.acked, lane.sent, down.log_base, down.received);
        rule!(
            !here || (down.log_first..=end).contains(&lane.next),
            "is to be sent frame {} of {}..{end}",
            lane.next,
            down.log_first
        );
        // A frame that begins inside the window may end beyond it.
        let within = lane.sent - lane.acked <= self.window + FRAME_MAX;
        rule!(!here || within, "was sent more than its window");
        Ok(())
    }
}

/// The longest frame of a packet, and more.
const FRAME_MAX: u64 = LINK_OUT_BYTES as u64;
/// Of more waves none is looked at.
const WAVES_LOOKED_AT_MAX: u64 = 256;
/// Of longer logs the sum of the frames is not taken.
const LOG_LOOKED_AT_MAX: usize = 64;
