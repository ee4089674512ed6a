//! Members that move from one child to another, join later, or go.
use super::{Lane, Stream};
use crate::control;
use crate::frame::{Header, Kind};
use crate::links::{LinkId, Links};
use crate::wave::Member;
use sheaf_core::{Errno, RangeSet};
use std::sync::Arc;

impl Stream {
    /// Moves members from the child on link `from` to that on `to`. Returns the waves that this
    /// completes.
    pub fn move_members(&mut self, from: LinkId, to: LinkId, rank: u32, leaves: &RangeSet) -> Vec<u64> {
        let Some(old) = self.child(from) else { return Vec::new() };
        let moved = self.children[old].leaves.intersection(leaves);
        if moved.is_empty() {
            return Vec::new();
        }
        let new = self.child(to).unwrap_or_else(|| self.add_child(to, rank));
        let numbers: Vec<u64> = self.waves.numbers().collect();
        for &wave in &numbers {
            if let Some(slot) = self.waves.get(wave) {
                slot.mix(&self.children);
            }
        }
        let left = self.children[old].leaves.difference(&moved);
        let emptied = left.is_empty();
        Arc::make_mut(&mut self.children[new].leaves).union_with(&moved);
        self.children[old].leaves = Arc::new(left);
        self.children[old].moved = true;
        if self.children[old].live {
            let acked = self.lanes[old].acked;
            let lane = &mut self.lanes[new];
            lane.acked = if self.children[new].live { lane.acked.min(acked) } else { acked };
            lane.sent = lane.sent.max(lane.acked);
            self.children[new].live = true;
        }
        self.children[new].lost = self.children[old].lost;
        if emptied {
            self.children[old].live = false;
        }
        let mut complete = Vec::new();
        for wave in numbers {
            let Some(slot) = self.waves.get(wave) else { continue };
            if slot.expects(old) {
                if self.children[new].contributes_to(wave) {
                    slot.expect(new, &self.children);
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

    /// Another node is on `link` now, and has nothing of the one before.
    pub fn vacate(&mut self, link: LinkId, rank: u32) {
        let Some(child) = self.child(link) else { return };
        self.forget_credit(child);
        self.waves.vacate(child);
        let leaves = Arc::default();
        self.children[child] =
            Member { rank, leaves, moved: true, live: false, since: 0, lost: Errno::HOSTDOWN };
        self.lanes[child] = Lane { away: true, ..Lane::new(link, self.log_base, self.log_first) };
    }

    /// Tells the node on `link` which waves the root has said are over.
    pub fn tell_acked(&self, links: &mut Links, at: LinkId) {
        if !self.acked.is_empty() {
            let ack = control::Ack { waves: self.acked.ranges().to_vec(), partial: Vec::new() };
            links.send(at, control::control(Header { stream: self.id, ..Header::new(Kind::Ack) }, &ack));
        }
    }

    /// A place for the child on `link`, without leaves so far.
    fn add_child(&mut self, link: LinkId, rank: u32) -> usize {
        let child = self.children.len();
        if self.ordinal.len() <= link.place() {
            self.ordinal.resize(link.place() + 1, u32::MAX);
        }
        self.ordinal[link.place()] = child as u32;
        let leaves = Arc::new(RangeSet::new());
        // What it contributed to before may name leaves that it has no more.
        self.children.push(Member {
            rank,
            leaves,
            moved: true,
            live: false,
            since: 0,
            lost: Errno::HOSTDOWN,
        });
        self.lanes.push(Lane { away: true, ..Lane::new(link, self.log_base, self.log_first) });
        self.waves.irregular = true;
        let numbers: Vec<u64> = self.waves.numbers().collect();
        for wave in numbers {
            if let Some(slot) = self.waves.get(wave) {
                slot.add_child();
            }
        }
        child
    }

    /// Lets a child go on after the `received` bytes it has; `false` when what follows them is no
    /// longer here.
    pub fn resume_lane(&mut self, child: usize, received: u64, acked: u64) -> bool {
        let (mut at, mut number) = (self.log_base, self.log_first);
        for frame in &self.log {
            if at >= received {
                break;
            }
            at += frame.len() as u64;
            number += 1;
        }
        if at != received {
            return false;
        }
        let lane = &mut self.lanes[child];
        let acked = acked.clamp(self.log_base.min(received), received);
        *lane = Lane { acked, ..Lane::new(lane.link, received, number) };
        self.children[child].live = true;
        true
    }

    /// Nothing comes of the child on `link` for waves that were open before it joined the stream, at
    /// another parent. Returns those that this completes.
    pub fn give_up_before_joining(&mut self, link: LinkId) -> Vec<u64> {
        let Some(child) = self.child(link) else { return Vec::new() };
        let since = self.children[child].since;
        let numbers: Vec<u64> = self.waves.numbers().take_while(|&wave| wave < since).collect();
        let ended = |wave: &u64| {
            let slot = self.waves.get(*wave);
            slot.is_some_and(|slot| slot.expects(child) && slot.give_up_on(child))
        };
        numbers.into_iter().filter(ended).collect()
    }

    /// A child takes no part in what is open, and joins when the next packet begins. Returns the
    /// waves that this completes.
    pub fn not_before_next_packet(&mut self, child: usize) -> Vec<u64> {
        self.drop_child(child);
        self.forget_credit(child);
        self.lanes[child].fresh = true;
        self.lanes[child].up = Default::default();
        self.children[child].live = false;
        self.joining = true;
        let numbers: Vec<u64> = self.waves.numbers().collect();
        let ended = |wave: &u64| {
            let slot = self.waves.get(*wave);
            slot.is_some_and(|slot| slot.expects(child) && slot.give_up_on(child))
        };
        numbers.into_iter().filter(ended).collect()
    }

    /// Members that are below another node now are none of this one's any more.
    pub fn drop_members(&mut self, leaves: &RangeSet) -> Vec<u64> {
        self.name_members();
        let numbers: Vec<u64> = self.waves.numbers().collect();
        for &wave in &numbers {
            if let Some(slot) = self.waves.get(wave) {
                slot.mix(&self.children);
            }
        }
        self.members = Arc::new(self.members.difference(leaves));
        let mut emptied = Vec::new();
        for (child, member) in self.children.iter_mut().enumerate() {
            if member.leaves.is_disjoint(leaves) {
                continue;
            }
            member.leaves = Arc::new(member.leaves.difference(leaves));
            member.moved = true;
            if member.leaves.is_empty() {
                member.live = false;
                emptied.push(child);
            }
        }
        // That nobody is left here is known by the answer to the release.
        self.left |= self.members.is_empty();
        let mut complete = Vec::new();
        for wave in numbers {
            let Some(slot) = self.waves.get(wave) else { continue };
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
