//! What holds of open waves between any two calls ([`super::super::Node::check`]).
use super::slot::Phase;
use super::{Slots, WAVES_OPEN_MAX};
use crate::stream::Members;

impl Slots {
    pub fn check(&self, members: &Members) -> Result<(), String> {
        rule!(self.ring.len() as u64 <= WAVES_OPEN_MAX, "{} waves are open", self.ring.len());
        rule!(
            self.ring.front().is_none_or(|slot| slot.phase != Phase::Done),
            "the oldest wave is over"
        );
        for (wave, slot) in
            (self.base..).zip(&self.ring).filter(|(_, slot)| slot.phase == Phase::Open)
        {
            rule!(
                slot.from.len() == members.len(),
                "wave {wave} knows {} of {} children",
                slot.from.len(),
                members.len()
            );
            let mut pending = 0;
            for (at, (from, member)) in slot.from.iter().zip(members.iter()).enumerate() {
                if !from.done() {
                    pending += 1;
                    rule!(
                        member.contributes_to(wave),
                        "wave {wave} waits for child {at}, which takes no part"
                    );
                }
            }
            rule!(
                pending == slot.pending,
                "wave {wave} waits for {pending} children and counts {}",
                slot.pending
            );
            rule!(pending > 0, "wave {wave} waits for nobody");
        }
        Ok(())
    }
}
