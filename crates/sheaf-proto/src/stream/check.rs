//! What holds of a stream between any two calls ([`super::super::Node::check`]).
use super::{Owner, Stream};
use crate::control::Sync;
use crate::frame;
use crate::{LINK_OUT_BYTES, Role};
use sheaf_core::RangeSet;

impl Stream {
    pub fn check(&self, role: Role) -> Result<(), String> {
        if role != Role::Leaf {
            self.check_members()?;
            self.check_waves()?;
        }
        self.check_flow(role)
    }

    /// Each member is below one child.
    fn check_members(&self) -> Result<(), String> {
        let mut all = RangeSet::new();
        rule!(self.children.len() == self.lanes.len(), "children and lanes differ");
        let mut live = false;
        for (at, (member, lane)) in self.children.iter().zip(&self.lanes).enumerate() {
            rule!(
                all.is_disjoint(&member.leaves),
                "its child {at} has {} too",
                all.intersection(&member.leaves)
            );
            all.union_with(&member.leaves);
            rule!(!member.live || !member.leaves.is_empty(), "its child {at} has no members and takes part");
            rule!(!lane.fresh || !member.live, "its child {at} waits to join and takes part");
            rule!(!lane.fresh || self.joining, "its child {at} waits to join, and that is forgotten");
            live |= member.live;
        }
        rule!(all == *self.members, "its children have {all}, and it has {}", self.members);
        rule!(self.members.is_subset(&self.ever), "it has members that it never had");
        let told = self.left || self.owner == Owner::App;
        rule!(told || self.has_members(), "nobody is left, and its owner does not know");
        rule!(!self.left || !live, "its owner believes that nobody is left");
        Ok(())
    }

    /// Every open wave waits for somebody who may come, and each time is looked at.
    fn check_waves(&self) -> Result<(), String> {
        if self.steady.is_some() {
            let calm = self.sync == Sync::WaitForAll && self.waves.is_idle();
            rule!(
                calm && self.children.iter().all(|member| member.live),
                "waves without slots while something happens"
            );
        }
        if self.waves.end() - self.waves.base() > WAVES_LOOKED_AT_MAX {
            return Ok(());
        }
        self.waves.check(&self.children)?;
        let gap = self.gap().filter(|_| self.steady.is_none());
        rule!(gap.is_none(), "nobody will begin wave {gap:?}, and it is not over");
        if let Some(due) = self.waves.next_timer() {
            rule!(
                self.timer.is_some_and(|timer| timer <= due),
                "nobody looks when the time of a wave is over"
            );
        }
        Ok(())
    }

    fn check_flow(&self, role: Role) -> Result<(), String> {
        rule!(self.up.acked <= self.up.done, "credit for {} of {} bytes", self.up.acked, self.up.done);
        rule!(
            self.down.acked <= self.down.done && self.down.done <= self.received,
            "down {:?} of {}",
            self.down,
            self.received
        );
        if role == Role::Leaf {
            return Ok(());
        }
        let end = self.log_end();
        for (at, (lane, member)) in self.lanes.iter().zip(&self.children).enumerate() {
            rule!(lane.up.acked <= lane.up.done, "child {at} was told of more than was consumed");
            if !member.live {
                continue;
            }
            let place = self.log_base.min(self.log_start) <= lane.acked
                && lane.acked <= lane.sent
                && lane.sent <= self.received;
            rule!(
                place,
                "child {at} is at {}..{} of {}..{}",
                lane.acked,
                lane.sent,
                self.log_base,
                self.received
            );
            rule!(
                lane.away || (self.log_first..=end).contains(&lane.next),
                "child {at} is to be sent frame {} of {}..{end}",
                lane.next,
                self.log_first
            );
            rule!(
                lane.away || lane.sent - lane.acked <= self.window + FRAME_MAX,
                "child {at} was sent more than its window"
            );
        }
        let logged: u64 = if self.log.len() <= LOG_LOOKED_AT_MAX {
            self.log.iter().map(|frame| frame.len() as u64).sum()
        } else {
            self.received - self.log_base
        };
        rule!(
            self.received - self.log_base == logged,
            "the log holds {logged} bytes of {}..{}",
            self.log_base,
            self.received
        );
        Ok(())
    }

    /// Whether something waits for the owner that may go.
    pub fn can_send_up(&self) -> bool {
        self.held
            .front()
            .is_some_and(|held| self.up.open(self.window) && self.may_keep(frame::flags(&held.frame)))
    }

    /// Whether something waits for a child that may go.
    pub fn can_send_down(&self, child: usize) -> bool {
        let lane = &self.lanes[child];
        !lane.away && lane.next < self.log_end() && lane.open(self.window)
    }
}

/// The longest frame of a packet, and more.
const FRAME_MAX: u64 = LINK_OUT_BYTES as u64;
/// Of more waves none is looked at.
const WAVES_LOOKED_AT_MAX: u64 = 256;
/// Of longer logs the sum of the frames is not taken.
const LOG_LOOKED_AT_MAX: usize = 64;
