//! Members that move from one child to another, join later, or go.
use super::{ChildId, ChildState, DownLane, Inlet, NodeStream};
use crate::control;
use crate::frame::{Header, Kind};
use crate::links::{LinkId, Links};
use sheaf_core::{Errno, RangeSet};

impl NodeStream {
    /// Moves members from the child on link `from` to that on `to`. Returns the waves that this
    /// completes.
    pub fn move_members(
        &mut self,
        from: LinkId,
        to: LinkId,
        rank: u32,
        leaves: &RangeSet,
    ) -> Vec<u64> {
        let Some(old) = self.members.child(from) else { return Vec::new() };
        let moved = self.members[old].leaves.intersection(leaves);
        if moved.is_empty() {
            return Vec::new();
        }
        let new = self.members.child(to).unwrap_or_else(|| self.add_child(to, rank));
        // Before the leaves move: contributions so far count for the leaves that the child has now.
        let numbers = self.mix_waves();
        let emptied = self.members.shift(old, new, &moved);
        if self.members[old].takes_part() {
            let acked = self.down[old].acked;
            let joined = self.members[new].takes_part();
            let lane = &mut self.down[new];
            // `acked` counts what every leaf below has consumed. The moved leaves may lag behind
            // the others, and the bytes that they lack have to stay in the log.
            lane.acked = if joined { lane.acked.min(acked) } else { acked };
            // An idle lane begins at the start of the log, which can be before `acked`.
            lane.sent = lane.sent.max(lane.acked);
            if !joined {
                self.members[new].state = ChildState::Away;
            }
        }
        self.members[new].lost = self.members[old].lost;
        if emptied {
            self.members[old].state = ChildState::Gone;
        }
        let (members, slots) = self.parts();
        let mut complete = Vec::new();
        for wave in numbers {
            let Some(slot) = slots.get(wave) else { continue };
            if slot.expects(old) {
                if members[new].contributes_to(wave) {
                    slot.expect(new, members);
                }
                if emptied {
                    slot.give_up_on(old);
                }
            }
            if slot.is_complete() {
                complete.push(wave);
            }
        }
        complete
    }

    /// From here on contributions to the open waves count for the leaves that they name. Gives
    /// their numbers.
    fn mix_waves(&mut self) -> Vec<u64> {
        let (members, slots) = self.parts();
        let numbers: Vec<u64> = slots.numbers().collect();
        for &wave in &numbers {
            if let Some(slot) = slots.get(wave) {
                slot.mix(members);
            }
        }
        numbers
    }

    /// A place for the child on `link`, without leaves so far.
    fn add_child(&mut self, link: LinkId, rank: u32) -> ChildId {
        self.slots().add_child();
        self.down.lanes.push(self.down.idle_lane());
        self.up.inlets.push(Inlet::default());
        self.members.add(link, rank)
    }

    /// Another node is on `link` now, and has nothing of the one before.
    pub fn vacate(&mut self, link: LinkId, rank: u32) {
        let Some(child) = self.members.child(link) else { return };
        // Credit that is still due is for bytes of the node that was here before.
        self.forget_credit(child);
        self.slots().vacate(child);
        self.members.replace(child, rank);
        self.down[child] = self.down.idle_lane();
        self.up[child] = Inlet::default();
    }

    /// Tells the node on `link` which waves the root has said are over.
    pub fn tell_acked(&self, link: LinkId, links: &mut Links) {
        if !self.up.out.acked.is_empty() {
            let waves = self.up.out.acked.ranges().to_vec();
            // Without partial ones: the root repeats these at each heartbeat
            // (`Node::acknowledge_all`).
            let ack = control::Ack { waves, partial: Vec::new() };
            links.send(
                link,
                control::control(Header { stream: self.id, ..Header::new(Kind::Ack) }, &ack),
            );
        }
    }

    /// The link of a child is gone, and its leaves may come back another way. What was on its way
    /// over it is lost. Whether it was to join: then it takes no part any more.
    pub fn lose_link(&mut self, child: ChildId, errno: Errno) -> bool {
        let member = &mut self.members_mut()[child];
        let was_joining = member.is_joining();
        match member.state {
            ChildState::Here => member.state = ChildState::Away,
            // It had not joined yet.
            ChildState::Joining => (member.state, member.lost) = (ChildState::Gone, errno),
            ChildState::Away | ChildState::Gone => {}
        }
        self.drop_under_way(child);
        self.forget_credit(child);
        was_joining
    }

    fn drop_under_way(&mut self, child: ChildId) {
        self.up[child].drop_assembly();
        // Replies are not repeated, so that no credit for those in flight will come.
        self.down[child].replies_bytes = 0;
    }

    /// A child takes no more part: it is given up in every open wave. Gives those that waited only
    /// for it; `None` if it took none.
    pub fn give_up(&mut self, child: ChildId, errno: Errno) -> Option<Vec<u64>> {
        if !self.members[child].takes_part() {
            return None;
        }
        let member = &mut self.members_mut()[child];
        (member.state, member.lost) = (ChildState::Gone, errno);
        self.drop_under_way(child);
        Some(self.give_up_in_waves(child, u64::MAX))
    }

    /// Lets a child go on after the `received` bytes it has; `false` when what follows them is no
    /// longer here.
    pub fn resume_lane(&mut self, child: ChildId, received: u64, acked: u64) -> bool {
        let Some(number) = self.down.frame_behind(received) else { return false };
        // A number of the peer: outside of this range it would name bytes that the log never held,
        // or that the child has not received.
        let acked = acked.clamp(self.down.log_base.min(received), received);
        self.members_mut()[child].state = ChildState::Here;
        self.down[child] = DownLane { acked, ..DownLane::new(received, number) };
        self.up[child] = Inlet::default();
        true
    }

    /// A child goes on, and began at another parent with wave `since`: nothing comes of it for
    /// those that were open before. Returns those that this completes.
    pub fn give_up_before_joining(&mut self, link: LinkId) -> Vec<u64> {
        let Some(child) = self.members.child(link) else { return Vec::new() };
        let since = self.members[child].since;
        self.give_up_in_waves(child, since)
    }

    /// A child takes no part in what is open, and joins when the next packet begins. Returns the
    /// waves that this completes.
    pub fn not_before_next_packet(&mut self, child: ChildId) -> Vec<u64> {
        self.members_mut()[child].state = ChildState::Joining;
        self.drop_under_way(child);
        self.forget_credit(child);
        // The child counts from zero once it has opened the stream once more.
        self.up[child].consumed = Default::default();
        self.down.joining = true;
        self.give_up_in_waves(child, u64::MAX)
    }

    /// Nothing more comes of a child for open waves before `end`. Returns those that this
    /// completes.
    fn give_up_in_waves(&mut self, child: ChildId, end: u64) -> Vec<u64> {
        let slots = self.slots();
        let numbers: Vec<u64> = slots.numbers().take_while(|&wave| wave < end).collect();
        let ended = |wave: &u64| {
            let slot = slots.get(*wave);
            slot.is_some_and(|slot| slot.expects(child) && slot.give_up_on(child))
        };
        numbers.into_iter().filter(ended).collect()
    }

    /// Those who wait for the next packet join here, and contribute to waves from `wave_base` on.
    /// Gives their links.
    pub fn join_those_who_wait(&mut self, wave_base: u64) -> Vec<LinkId> {
        self.down.joining = false;
        let (offset, number) = (self.down.received, self.down.log_end());
        let joining: Vec<ChildId> =
            self.members.ids().filter(|&child| self.members[child].is_joining()).collect();
        let mut links = Vec::with_capacity(joining.len());
        for child in joining {
            let member = &mut self.members_mut()[child];
            (member.state, member.since) = (ChildState::Here, wave_base);
            links.push(member.link);
            self.down[child] = DownLane::new(offset, number);
            self.up[child] = Inlet::anew();
        }
        links
    }

    /// Members that are below another node now are none of this one's any more. Returns the waves
    /// that this completes.
    pub fn drop_members(&mut self, leaves: &RangeSet) -> Vec<u64> {
        // Frames that stand for all members mean those of this moment, so they name them before
        // some go.
        self.name_members();
        let numbers = self.mix_waves();
        let emptied = self.members.drop_leaves(leaves);
        // That nobody is left here is known by the answer to the release.
        self.left |= self.members.all().is_empty();
        let slots = self.slots();
        let mut complete = Vec::new();
        for wave in numbers {
            let Some(slot) = slots.get(wave) else { continue };
            for &child in &emptied {
                slot.give_up_on(child);
            }
            if slot.is_complete() {
                complete.push(wave);
            }
        }
        complete
    }
}
