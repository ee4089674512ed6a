//! Leaves that move from one child to another, or to another parent.
//!
//! A link holds leaves whether it is alive or not, and at every time the leaves of a node's links
//! are its own, each held once. A lost link holds its leaves until they have moved to the links of
//! those who came here, or until nobody waits for them any more.
use super::Node;
use crate::config::{NodeRole, Time};
use crate::control::{self, Release, Released};
use crate::frame::{Header, Kind, Violation};
use crate::links::LinkId;
use crate::stream::{NodeStream, StreamOwner};
use sheaf_core::{Errno, RangeSet};

/// Leaves that children were asked to let go of.
pub(super) struct Job {
    leaves: RangeSet,
    /// The node that wants them.
    rank: u32,
    /// Links that have not answered.
    pub waiting: Vec<LinkId>,
    /// What those who have answered let go of, if it stays here until all have.
    released: RangeSet,
    pub to: To,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum To {
    /// The parent asked for them that this node had found when it had looked so often for one.
    Parent { epoch: u64 },
    /// They move to the node on this link.
    Child(LinkId),
}

impl Node {
    /// Takes `leaves` from the links that hold them: at once from lost ones, by asking others for
    /// what is not `away`.
    ///
    /// Afterwards there is a job that ends when those who were asked have answered or are lost; at
    /// once, if nobody is. What is `away` the node that comes has itself lost a child for: whoever
    /// has it keeps it. A connection of the node that wants them, which it has left without our
    /// hearing of it, is given up here, since it will answer nothing. Costs what the leaves and
    /// their holders are, not all links.
    pub(super) fn collect(
        &mut self,
        now: Time,
        leaves: &RangeSet,
        away: &RangeSet,
        rank: u32,
        to: To,
    ) {
        let wanted = leaves.difference(away);
        for at in self.links.holding(leaves) {
            let other = &self.links[at];
            if to != To::Child(at) && other.is_alive() && other.rank == rank {
                // It has been taken elsewhere, and so this connection is not used any more.
                self.await_leaves(now, at, Errno::CONNRESET, "it has another parent");
            }
        }
        let mut waiting = Vec::new();
        for at in self.links.holding(&wanted) {
            let other = &self.links[at];
            if to != To::Child(at) && other.is_alive() && other.is_attached() {
                let release = Release { leaves: other.leaves().intersection(&wanted), rank };
                self.links.send(at, control::control(Header::new(Kind::Release), &release));
                waiting.push(at);
            }
        }
        if let To::Child(link) = to {
            self.gather(link, leaves);
        }
        let released = RangeSet::new();
        self.recovery.jobs.push(Job { leaves: wanted, rank, waiting, released, to });
        self.finish_jobs(now);
    }

    /// Moves those of `leaves` to `link` that no living child has.
    pub(super) fn gather(&mut self, link: LinkId, leaves: &RangeSet) {
        for at in self.links.holding(leaves) {
            let other = &self.links[at];
            if at != link && !(other.is_alive() && other.is_attached()) {
                let theirs = other.leaves().intersection(leaves);
                self.move_leaves(at, link, &theirs);
            }
        }
    }

    /// The parent has found leaves elsewhere that were below here, and asks to let go of them.
    ///
    /// May come from the parent or from an ancestor that is being asked, and from no one else: who
    /// is neither any more is answered by nobody. The answer comes when all below have answered,
    /// behind everything that they have sent.
    pub(super) fn on_release(
        &mut self,
        now: Time,
        link: LinkId,
        body: &[u8],
    ) -> Result<(), Violation> {
        let release: Release = control::decode(Kind::Release, body)?;
        if self.recovery.parent != Some(link) && self.recovery.asking != Some(link) {
            return Err(Violation::OutOfPlace(Kind::Release));
        }
        if self.config.role == NodeRole::Leaf {
            // It is here, whoever else thinks to have it.
            self.tell_released(&RangeSet::new(), release.rank);
        } else {
            self.collect(
                now,
                &release.leaves,
                &RangeSet::new(),
                release.rank,
                To::Parent { epoch: self.recovery.epoch },
            );
        }
        Ok(())
    }

    /// A child has let go of what it was asked for; what it sent before that is folded here
    /// already, since it came over the same link. Leaves that it was asked for and did not name
    /// stay below it.
    ///
    /// May answer a question that nobody asks any more (the one it was asked for was lost): that
    /// moves nothing here, and the leaves are found below whoever has them by the next that asks.
    /// Afterwards the oldest job that asked this child for that rank waits for it no more. Costs a
    /// look at each job.
    pub(super) fn on_released(
        &mut self,
        now: Time,
        link: LinkId,
        body: &[u8],
    ) -> Result<(), Violation> {
        let released: Released = control::decode(Kind::Released, body)?;
        self.answered(now, link, Some(&released));
        self.finish_jobs(now);
        Ok(())
    }

    /// The child on `link` has let go of what it was asked for, or is lost (`leaves` is `None`).
    ///
    /// Who wanted them may be lost by now, and others be asked still: what it is given is waited
    /// for from here on.
    pub(super) fn answered(&mut self, now: Time, link: LinkId, released: Option<&Released>) {
        for at in 0..self.recovery.jobs.len() {
            let job = &mut self.recovery.jobs[at];
            let place = job.waiting.iter().position(|&waiting| waiting == link);
            let asked = released.is_none_or(|released| released.rank == job.rank);
            let Some(place) = place.filter(|_| asked) else { continue };
            job.waiting.swap_remove(place);
            let mut theirs = job.leaves.intersection(self.links[link].leaves());
            if let Some(released) = released {
                // The child keeps the leaves that it does not name, so this job no longer collects
                // them.
                job.leaves = job.leaves.difference(&theirs.difference(&released.leaves));
                theirs = theirs.intersection(&released.leaves);
            }
            match job.to {
                To::Child(to) => {
                    self.move_leaves(link, to, &theirs);
                    self.await_again(now, to);
                }
                To::Parent { .. } if released.is_some() => job.released.union_with(&theirs),
                // Nobody else has them for certain.
                To::Parent { .. } => {}
            }
            // An answer ends one request, the oldest. A lost link ends all of them.
            if released.is_some() {
                break;
            }
        }
    }

    /// Whether a job collects leaves for the node on `link`.
    pub(super) fn is_asked_for(&self, link: LinkId) -> bool {
        self.recovery.jobs.iter().any(|job| job.to == To::Child(link))
    }

    /// Each job waits for links that can answer, or are watched.
    pub(super) fn check_jobs(&self) -> Result<(), String> {
        for job in &self.recovery.jobs {
            let answers = |&at: &LinkId| self.links[at].is_alive() && self.links[at].is_attached();
            let waits = !job.waiting.is_empty() && job.waiting.iter().all(answers);
            rule!(waits, "{} are collected for {:?}, and nobody is asked", job.leaves, job.to);
        }
        Ok(())
    }

    pub(super) fn finish_jobs(&mut self, now: Time) {
        // The end of a job may add or end others, so each search begins at the front.
        while let Some(at) = self.recovery.jobs.iter().position(|job| job.waiting.is_empty()) {
            let job = self.recovery.jobs.remove(at);
            match job.to {
                To::Parent { epoch } => self.answer_release(now, epoch, &job),
                // With the last of them it has all.
                To::Child(link) if self.is_asked_for(link) => {}
                To::Child(link) if self.are_elsewhere(link, &job.leaves) => {
                    // Who has them now was not asked, and may wait for them in vain.
                    self.collect(now, &job.leaves, &RangeSet::new(), job.rank, job.to);
                }
                To::Child(link) => self.adopted(now, link),
            }
        }
    }

    /// Whether all `leaves` that were collected for the node on `link` have got to another while
    /// those who held them were asked: that one believes to have them, and perhaps has lost them.
    /// Who was asked and keeps them is not meant: they are collected no more.
    fn are_elsewhere(&mut self, link: LinkId, leaves: &RangeSet) -> bool {
        let asks = &self.links[link];
        if !asks.is_alive() || !asks.leaves().is_empty() {
            return false;
        }
        let holders = self.links.holding(leaves);
        let answers = |&at: &LinkId| self.links[at].is_alive() && self.links[at].is_attached();
        holders.iter().any(answers)
    }

    /// A node has come again, on `link`, for `leaves`: what is collected for it, and was to go to a
    /// connection that it has left, goes there.
    pub(super) fn redirect_jobs(&mut self, link: LinkId, leaves: &RangeSet) {
        let rank = self.links[link].rank;
        for job in &mut self.recovery.jobs {
            if let To::Child(before) = job.to
                && before != link
                && self.links[before].rank == rank
                && !self.links[before].is_alive()
                && job.leaves.is_subset(leaves)
            {
                job.to = To::Child(link);
            }
        }
    }

    /// Moves leaves from one child's link to another's, in every stream.
    ///
    /// Assumes that the first is lost, or has let go of them. Afterwards waves that waited for them
    /// wait for the second child, and end if nothing else is expected: contributions count from
    /// here on for the leaves that they name (`wave/mix.rs`), so that one which is repeated counts
    /// once.
    fn move_leaves(&mut self, from: LinkId, to: LinkId, leaves: &RangeSet) {
        for job in self.recovery.jobs.iter_mut().filter(|job| !job.released.is_empty()) {
            // Who let go of them is not who has them now.
            job.released = job.released.difference(leaves);
        }
        self.links.take_leaves(from, leaves);
        self.links.give_leaves(to, leaves);
        let mut ids: Vec<u32> = self.streams.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            let rank = self.links[to].rank;
            let complete = stream.move_members(from, to, rank, leaves);
            stream.acknowledge_down(&mut self.links);
            self.finish_waves(id, complete, Errno::HOSTDOWN);
            self.close_gaps(id);
        }
    }

    /// All who were asked for leaves have answered, or are lost: the parent that wanted them is
    /// told.
    ///
    /// That parent may be gone. Then the leaves stay, but for those that children have let go of
    /// already: a later parent was not told that they would go, and is asked anew, without them.
    fn answer_release(&mut self, now: Time, epoch: u64, job: &Job) {
        let parent = self.recovery.asking.or(self.recovery.parent);
        let parent = parent.filter(|&parent| self.links[parent].is_alive());
        if parent.is_some() && epoch == self.recovery.epoch {
            let leaves = self.not_here(job);
            self.tell_released(&leaves, job.rank);
        } else if !job.released.is_empty() {
            self.lose_leaves(&job.released);
            if let Some(parent) = parent {
                self.parent_link_lost(now, parent);
            }
        }
    }

    /// What a job asked for, without leaves of children that have come since and were not asked:
    /// those are below here for certain.
    fn not_here(&mut self, job: &Job) -> RangeSet {
        let mut leaves = job.leaves.clone();
        for at in self.links.holding(&job.leaves) {
            let link = &self.links[at];
            if link.is_alive() && link.is_attached() {
                leaves = leaves.difference(&link.leaves().difference(&job.released));
            }
        }
        leaves
    }

    /// Before another parent is asked: leaves that children have let go of for an earlier one are
    /// not here.
    pub(super) fn lose_released(&mut self) {
        let mut released = RangeSet::new();
        for job in self.recovery.jobs.iter_mut().filter(|job| matches!(job.to, To::Parent { .. })) {
            released.union_with(&std::mem::replace(&mut job.released, RangeSet::new()));
        }
        if !released.is_empty() {
            self.lose_leaves(&released);
        }
    }

    fn lose_leaves(&mut self, leaves: &RangeSet) {
        self.pass_on_news(leaves);
        self.forget_leaves(leaves);
    }

    /// The parent has other plans for `leaves`: what they have contributed goes up as it is, then
    /// the parent is told that nothing more will come of them from here. What follows from that,
    /// the end of waves and what was consumed without them, it is told last: it is not to be taken
    /// for them.
    fn tell_released(&mut self, leaves: &RangeSet, rank: u32) {
        self.pass_on_news(leaves);
        let parent = self.recovery.asking.or(self.recovery.parent);
        if let Some(parent) = parent.filter(|&parent| self.links[parent].is_alive()) {
            let released = Released { leaves: leaves.clone(), rank };
            self.links.send(parent, control::control(Header::new(Kind::Released), &released));
        }
        if !leaves.is_empty() {
            self.forget_leaves(leaves);
        }
    }

    /// The parent knows of `leaves` below another node. Children that speak for them have come here
    /// since it was asked: they are not members of the tree here, and find out where they are.
    pub(super) fn cut_off(&mut self, now: Time, leaves: &RangeSet) {
        // Whose job ends with a link that is cut off may be given them.
        while let Some(at) =
            self.links.holding(leaves).into_iter().find(|&at| self.links[at].is_alive())
        {
            self.await_leaves(now, at, Errno::CONNRESET, "its leaves are below another node");
        }
    }

    /// Sends on what waves hold in which some of `leaves` may be counted.
    pub(super) fn pass_on_news(&mut self, leaves: &RangeSet) {
        for id in self.streams_of(leaves) {
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            for wave in stream.with_news() {
                self.finish_wave(id, wave, false, Errno::CANCELED);
            }
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            if let StreamOwner::Link(owner) = stream.owner
                && self.links[owner].is_alive()
            {
                stream.send_held(&mut self.links);
            }
        }
    }

    /// Streams that have some of `leaves` as members here, and whose waves go to a parent.
    fn streams_of(&self, leaves: &RangeSet) -> Vec<u32> {
        let concerned = |stream: &NodeStream| !stream.members().all().is_disjoint(leaves);
        let theirs = self.streams.iter().filter(|(_, stream)| concerned(stream));
        let mut ids: Vec<u32> = theirs.map(|(&id, _)| id).collect();
        ids.sort_unstable();
        if self.config.role == NodeRole::Root { Vec::new() } else { ids }
    }

    /// These leaves are below another node now, and [`Node::pass_on_news`] has been called for
    /// them.
    ///
    /// The parent knows which leaves went by what it is told before; it does not know which of the
    /// others are lost. So who has nobody left of those says so, behind that: else the parent would
    /// wait for this node, and would not open the stream again when one of them comes back.
    pub(super) fn forget_leaves(&mut self, leaves: &RangeSet) {
        for id in self.streams_of(leaves) {
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            let complete = stream.drop_members(leaves);
            stream.acknowledge_down(&mut self.links);
            self.finish_waves(id, complete, Errno::HOSTDOWN);
            self.close_gaps(id);
            // Of those that are still its own all may be lost, and the parent counts on them.
            self.leave(id);
        }
        for at in self.links.holding(leaves) {
            self.links.take_leaves(at, leaves);
        }
        self.config.leaves = self.config.leaves.difference(leaves);
        self.below.lost = self.below.lost.difference(leaves);
        self.below.ready = self.below.ready.difference(leaves);
    }
}
