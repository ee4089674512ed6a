//! At an ancestor: nodes that have lost their parent are taken, leaves move from one child to
//! another.
//!
//! A link holds leaves whether it is alive or not, and at every time the leaves of a node's links
//! are its own, each held once. A lost link holds its leaves until they have moved to the links of
//! those who came here, or until nobody waits for them any more.
use super::Node;
use crate::control::{self, Adopt, Adopted, Notice, Open, Release, Released};
use crate::frame::{self, Header, Kind, Violation, flag};
use crate::links::{Awaited, Link, LinkId, LinkState, Way};
use crate::stream::{ChildState, Owner, Stream};
use crate::wave::WAVES_OPEN_MAX;
use crate::{Role, Time};
use sheaf_core::{Errno, RangeSet};

/// The most links of a node, with those of nodes whose leaves have not come back.
pub(super) const LINKS_MAX: usize = 1 << 16;

/// Leaves that children were asked to let go of.
pub(super) struct Job {
    leaves: RangeSet,
    /// The node that wants them.
    rank: u32,
    /// Links that have not answered.
    waiting: Vec<LinkId>,
    /// What those who have answered let go of, if it stays here until all have.
    released: RangeSet,
    to: To,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum To {
    /// The parent asked for them that this node had found when it had looked so often for one.
    Parent { epoch: u64 },
    /// They move to the node on this link.
    Child(LinkId),
}

impl Node {
    /// At an ancestor: the link for a node that has just connected, whose certificate or token
    /// entitles it to speak for `leaves`. Attach the transport to it; the node itself says what
    /// follows.
    ///
    /// # Errors
    /// When these leaves are not below this node, or more nodes have come than it takes.
    pub fn child_link(&mut self, now: Time, rank: u32, leaves: &RangeSet) -> Result<LinkId, Violation> {
        if !leaves.is_subset(&self.config.leaves) {
            return Err(Violation::Bound("a node connected whose leaves are not below this one"));
        }
        let waiting = |link: &Link| {
            link.way == Way::Down && link.rank == rank && link.is_alive() && !link.is_attached()
        };
        if let Some(planned) = self.links.of_rank(rank).into_iter().find(|&at| waiting(&self.links[at])) {
            return Ok(planned);
        }
        let mut link = Link::new(Way::Down, rank, RangeSet::new(), now).in_state(LinkState::Knocking);
        link.claim = leaves.clone();
        let at = self.add_down(link)?;
        self.timers.wake_recovery(now + self.config.tuning.heartbeat_timeout);
        if self.recovery.over {
            self.shut_down_children();
        }
        Ok(at)
    }

    /// A place for one more link to a child: that of one which nobody has to do with any more, or a new one.
    pub(super) fn add_down(&mut self, link: Link) -> Result<LinkId, Violation> {
        let rank = link.rank;
        let full = self.links.len() >= LINKS_MAX;
        let places = self.links.places_behind(self.config.children.len(), full);
        if let Some(at) = places.into_iter().find(|&at| self.is_vacant(at)) {
            self.links.replace(at, link);
            self.streams.values_mut().for_each(|stream| stream.vacate(at, rank));
            return Ok(at);
        }
        if full {
            return Err(Violation::Bound("more nodes are here, or waited for, than a node takes"));
        }
        Ok(self.links.add(link))
    }

    /// Whether the place of a link can be taken by another: its node is gone, all its leaves are below
    /// others, and nobody has anything to do with it any more.
    fn is_vacant(&self, at: LinkId) -> bool {
        let link = &self.links[at];
        let gone = link.way == Way::Down && !link.is_alive() && link.leaves().is_empty();
        if !gone || self.links.is_in_use(at) {
            return false;
        }
        let asked = |job: &Job| job.to == To::Child(at) || job.waiting.contains(&at);
        !self.recovery.jobs.iter().any(asked) && !self.is_surveyed(at)
    }

    pub(super) fn on_adopt(&mut self, now: Time, link: LinkId, body: &[u8]) -> Result<(), Violation> {
        let adopt: Adopt = control::decode(Kind::Adopt, body)?;
        if !matches!(self.links[link].state, LinkState::Knocking) {
            return Err(Violation::OutOfPlace(Kind::Adopt));
        }
        let claim = &self.links[link].claim;
        let rank = self.links[link].rank;
        if adopt.rank != rank || !adopt.leaves.is_subset(claim) || !adopt.lost.is_subset(&adopt.leaves) {
            return Err(Violation::Bound("a node asks for more than it is entitled to"));
        }
        let newer = |other: &Link| {
            let held = other.is_alive() || !other.leaves().is_empty();
            !matches!(other.state, LinkState::Knocking) && held && other.epoch >= adopt.epoch
        };
        let stale = self.links.of_rank(rank).into_iter().any(|at| newer(&self.links[at]));
        // Leaves that an ancestor has asked for are not taken back.
        if stale || !adopt.leaves.difference(&adopt.away).is_subset(&self.config.leaves) {
            self.links.hang_up(link);
            return Ok(());
        }
        self.links[link].epoch = adopt.epoch;
        let leaves = adopt.leaves.intersection(&self.config.leaves);
        let adopt = Adopt { leaves, ..adopt };
        self.take_in(now, link, adopt);
        Ok(())
    }

    /// A node that was never here before, or was started anew, has started with these leaves.
    pub(super) fn on_newcomer(&mut self, now: Time, link: LinkId, ready: RangeSet) -> Result<(), Violation> {
        if !matches!(self.links[link].state, LinkState::Knocking) {
            return Err(Violation::OutOfPlace(Kind::Ready));
        }
        let leaves = self.links[link].claim.clone();
        if !ready.is_subset(&leaves) {
            return Err(Violation::Bound("a node speaks for leaves that are not its own"));
        }
        let (rank, lost) = (self.links[link].rank, leaves.difference(&ready));
        let (streams, modules) = (Vec::new(), Vec::new());
        let (away, lost) = (lost.clone(), lost);
        let adopt = Adopt { rank, epoch: 0, leaves, lost, away, ready: Some(ready), streams, modules };
        self.take_in(now, link, adopt);
        Ok(())
    }

    /// Asks whoever else speaks for the leaves of a node that has come to let go of them.
    fn take_in(&mut self, now: Time, link: LinkId, adopt: Adopt) {
        let rank = adopt.rank;
        for old in self.links.of_rank(rank) {
            if old == link || !self.links[old].is_alive() {
                continue;
            }
            self.await_leaves(now, old, Errno::CONNRESET, "it came back over another link");
        }
        let (leaves, away) = (adopt.leaves.clone(), adopt.away.clone());
        self.links[link].state = LinkState::Pending(Box::new(adopt));
        let heartbeat = Header::new(Kind::Heartbeat).to_bytes();
        self.links.send(link, &heartbeat);
        self.collect(now, &leaves, &away, rank, To::Child(link));
    }

    /// Takes `leaves` from the links that hold them: at once from lost ones, by asking others for
    /// what is not `away`.
    fn collect(&mut self, now: Time, leaves: &RangeSet, away: &RangeSet, rank: u32, to: To) {
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
    fn gather(&mut self, link: LinkId, leaves: &RangeSet) {
        for at in self.links.holding(leaves) {
            let other = &self.links[at];
            if at != link && !(other.is_alive() && other.is_attached()) {
                let theirs = other.leaves().intersection(leaves);
                self.move_leaves(at, link, &theirs);
            }
        }
    }

    pub(super) fn on_release(&mut self, now: Time, link: LinkId, body: &[u8]) -> Result<(), Violation> {
        let release: Release = control::decode(Kind::Release, body)?;
        if self.recovery.parent != Some(link) && self.recovery.asking != Some(link) {
            return Err(Violation::OutOfPlace(Kind::Release));
        }
        if self.config.role == Role::Leaf {
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

    pub(super) fn on_released(&mut self, now: Time, link: LinkId, body: &[u8]) -> Result<(), Violation> {
        let released: Released = control::decode(Kind::Released, body)?;
        self.answered(link, Some(&released));
        self.finish_jobs(now);
        Ok(())
    }

    /// The child on `link` has let go of what it was asked for, or is lost (`leaves` is `None`).
    fn answered(&mut self, link: LinkId, released: Option<&Released>) {
        for at in 0..self.recovery.jobs.len() {
            let job = &mut self.recovery.jobs[at];
            let place = job.waiting.iter().position(|&waiting| waiting == link);
            let asked = released.is_none_or(|released| released.rank == job.rank);
            let Some(place) = place.filter(|_| asked) else { continue };
            job.waiting.swap_remove(place);
            let mut theirs = job.leaves.intersection(self.links[link].leaves());
            if let Some(released) = released {
                job.leaves = job.leaves.difference(&theirs.difference(&released.leaves));
                theirs = theirs.intersection(&released.leaves);
            }
            match job.to {
                To::Child(to) => self.move_leaves(link, to, &theirs),
                To::Parent { .. } if released.is_some() => job.released.union_with(&theirs),
                // Nobody else has them for certain.
                To::Parent { .. } => {}
            }
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

    fn finish_jobs(&mut self, now: Time) {
        while let Some(at) = self.recovery.jobs.iter().position(|job| job.waiting.is_empty()) {
            let job = self.recovery.jobs.remove(at);
            match job.to {
                To::Parent { epoch } => self.answer_release(now, epoch, &job),
                To::Child(link) => self.adopted(now, link),
            }
        }
    }

    /// The transport of a child's link is gone, and its leaves may come back another way.
    pub(super) fn await_leaves(&mut self, now: Time, link: LinkId, errno: Errno, cause: &str) {
        if matches!(self.links.hang_up(link), LinkState::Knocking) {
            return;
        }
        let until = now + self.config.tuning.adoption_grace;
        let awaited = Awaited { until, errno, cause: cause.to_owned() };
        self.links[link].state = LinkState::Awaited(Box::new(awaited));
        self.timers.wake_recovery(until);
        for stream in self.streams.values_mut() {
            let Some(child) = stream.child(link) else { continue };
            stream.lose_link(child, errno);
        }
        self.answered(link, None);
        self.finish_jobs(now);
    }

    /// Others have let go of leaves for a node that was lost meanwhile: they are waited for.
    fn await_again(&mut self, now: Time, link: LinkId) {
        if matches!(self.links[link].state, LinkState::Lost) && !self.links[link].leaves().is_empty() {
            let until = now + self.config.tuning.adoption_grace;
            let cause = "it was lost while it was taken in".to_owned();
            self.links[link].state =
                LinkState::Awaited(Box::new(Awaited { until, errno: Errno::CONNRESET, cause }));
            self.timers.wake_recovery(until);
        }
    }

    /// Whoever has not come back by now is lost.
    pub(super) fn give_up_waiting(&mut self, link: LinkId) {
        let stage = std::mem::replace(&mut self.links[link].state, LinkState::Lost);
        let LinkState::Awaited(awaited) = stage else { return };
        let (rank, leaves) = (self.links[link].rank, self.links[link].leaves().clone());
        // Who left as planned, or was lost further down before, has been told of.
        let news = leaves.difference(&self.below.lost);
        if !news.is_empty() {
            self.below.lost.union_with(&news);
            let (Awaited { errno, cause, .. }, leaves) = (*awaited, news);
            let lost = Notice::Lost { by: self.config.rank, rank, leaves, errno, cause };
            self.notice(Header::new(Kind::Notice), lost);
            self.child_lost(link, errno);
        } else if !leaves.is_empty() {
            self.child_lost(link, awaited.errno);
        }
        self.tell_ready();
    }

    /// Moves leaves from one child's link to another's, in every stream.
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

    /// All leaves of the node on `link` are its own now: it goes on where it was, where that is
    /// possible.
    ///
    /// Assumes that no other living child has any of its leaves; it may have none left itself. Then it goes
    /// on with no stream: nothing would be expected of it, or for ever. Afterwards each stream of its leaves
    /// is continued, opened, or to be opened with the next packet; and where it is continued, waves that were
    /// open here before the node joined (at a parent that was further) do not wait for it, and those that
    /// nobody will begin any more are over.
    fn adopted(&mut self, now: Time, link: LinkId) {
        if !matches!(self.links[link].state, LinkState::Pending(_)) {
            return self.await_again(now, link);
        }
        let LinkState::Pending(mut adopt) = std::mem::replace(&mut self.links[link].state, LinkState::Member)
        else {
            return;
        };
        adopt.streams.sort_unstable_by_key(|place| place.id);
        self.gather(link, &adopt.leaves);
        // One that was started anew and has none of its leaves is given some later.
        if self.links[link].leaves().is_empty() && !adopt.leaves.is_subset(&adopt.lost) {
            // All of them are below others by now: it has to look where it is.
            self.links.hang_up(link);
            return;
        }
        let newcomer = adopt.epoch == 0;
        let mut ids: Vec<u32> = self.streams.keys().copied().collect();
        ids.sort_unstable();
        let mut continued = Vec::new();
        for &id in &ids {
            let place = adopt.place(id);
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            let Some(child) = stream.child(link) else { continue };
            let counts = !stream.left && !stream.members()[child].leaves.is_empty();
            if let Some(place) = place.filter(|_| counts)
                && place.since.saturating_sub(stream.wave_base()) < WAVES_OPEN_MAX
                && stream.resume_lane(child, place.received, place.acked)
            {
                stream.members_mut()[child].since = place.since;
                continued.push(id);
            }
        }
        if !newcomer {
            let leaves = self.links[link].leaves().clone();
            let adopted = Adopted { continued: continued.clone(), leaves };
            self.links.send(link, control::control(Header::new(Kind::Adopted), &adopted));
        }
        self.send_modules(link, &adopt.modules);
        for id in ids {
            // In order, as the streams are.
            if continued.binary_search(&id).is_ok() {
                self.continue_stream(id, link, &adopt);
            } else {
                let unknown = !newcomer && adopt.place(id).is_none();
                self.begin_stream(id, link, unknown);
            }
        }
        if let Some(ready) = &adopt.ready {
            self.child_ready(link, ready);
        }
        self.tell_of_arrival(now, link, &adopt);
        self.refill(link);
    }

    fn continue_stream(&mut self, id: u32, link: LinkId, adopt: &Adopt) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let complete = stream.give_up_before_joining(link);
        let state = adopt.place(id).and_then(|place| place.state.as_ref());
        let complaint = state.and_then(|state| stream.up.filter.absorb(state).err());
        stream.tell_acked(link, &mut self.links);
        self.links[link].wait(id);
        stream.acknowledge_down(&mut self.links);
        self.finish_waves(id, complete, Errno::HOSTDOWN);
        self.close_gaps(id);
        if let Some(error) = complaint {
            self.complain(id, 0, &error);
        }
    }

    /// A stream that the node on `link` does not have: from its beginning, when it is `unknown`
    /// there and nothing of it is forgotten here; else from the next packet on.
    fn begin_stream(&mut self, id: u32, link: LinkId, unknown: bool) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let Some(child) = stream.child(link) else { return };
        if stream.members()[child].leaves.is_empty() {
            return;
        }
        if !stream.is_wanted() {
            // It is opened anew by the parent, when that hears who has come, or goes on with another.
            stream.not_before_next_packet(child);
            return;
        }
        if unknown && stream.members()[child].takes_part() && stream.down.is_whole() {
            let start = stream.down.log_start();
            stream.resume_lane(child, start, start);
            self.links.send(link, &stream.down.open);
            // Those below it may have been here before, and kept what the root has said that it has.
            stream.tell_acked(link, &mut self.links);
            self.links[link].wait(id);
            return;
        }
        let complete = stream.not_before_next_packet(child);
        stream.acknowledge_down(&mut self.links);
        self.finish_waves(id, complete, Errno::HOSTDOWN);
        self.close_gaps(id);
        self.open_at_joining(id);
    }

    /// Opens the stream at the children that wait for a packet to begin.
    ///
    /// Not while the owner believes that nobody is left here: it would drop what they contribute, and its
    /// waves would end without them, although they were let in. Afterwards each of them contributes to every
    /// wave that begins from now on, and to none before: who counts them from another parent's number on
    /// ([`Member::since`]) knows what not to wait for.
    pub(super) fn open_at_joining(&mut self, id: u32) {
        let here = |stream: &&mut Box<Stream>| !stream.down.mid_packet && !stream.left;
        let Some(stream) = self.streams.get_mut(&id).filter(here) else { return };
        let (offset, wave_base) = (stream.down.received, stream.slots().end());
        let Ok(mut open) = control::decode::<Open>(Kind::Open, frame::body(&stream.down.open)) else {
            return;
        };
        (open.offset, open.wave_base) = (offset, wave_base);
        let header = Header { stream: id, flags: flag::open::ANEW, ..Header::new(Kind::Open) };
        let frame = control::control(header, &open);
        for link in stream.join_those_who_wait(wave_base) {
            self.links.send(link, &frame);
        }
        self.close_gaps(id);
    }

    /// Tells the root which leaves are back, and which were lost on the way.
    fn tell_of_arrival(&mut self, _now: Time, link: LinkId, adopt: &Adopt) {
        let (by, rank) = (self.config.rank, adopt.rank);
        let back = adopt.leaves.difference(&adopt.lost).intersection(&self.below.lost);
        if !back.is_empty() {
            self.below.lost = self.below.lost.difference(&back);
            self.below.left = self.below.left.difference(&back);
            self.below.ready.union_with(&back);
            self.notice(Header::new(Kind::Notice), Notice::Joined { by, rank, leaves: back });
        }
        let leaves = adopt.lost.intersection(self.links[link].leaves()).difference(&self.below.lost);
        if !leaves.is_empty() {
            self.below.lost.union_with(&leaves);
            let cause = "it was lost while its parent was".to_owned();
            let lost = Notice::Lost { by, rank, leaves, errno: Errno::HOSTDOWN, cause };
            self.notice(Header::new(Kind::Notice), lost);
        }
    }

    /// A child says that leaves are back: streams that it had left are opened anew there.
    ///
    /// Assumes that the child has said before that it left them, or never had them. Afterwards each stream
    /// of these leaves is open at the child, or closed there and the child marked as one that joins. The
    /// second is for streams of which the owner here believes that nobody is left. The notice that this
    /// answers is on its way to the owner behind that belief, and makes it open the stream anew; when it is
    /// lost with the link, another parent is asked, and [`Node::on_adopted`] finds the mark.
    pub(super) fn reopen(&mut self, link: LinkId, leaves: &RangeSet) {
        let mut ids: Vec<u32> = self.streams.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            let Some(child) = stream.child(link) else { continue };
            let wanted = stream.is_wanted();
            let member = &stream.members()[child];
            if member.state != ChildState::Gone || member.leaves.is_disjoint(leaves) {
                continue;
            }
            let close = Header { stream: id, ..Header::new(Kind::Close) };
            self.links.send(link, &close.to_bytes());
            stream.not_before_next_packet(child);
            if wanted {
                self.open_at_joining(id);
            }
        }
    }

    /// All who were asked for leaves have answered, or are lost: the parent that wanted them is told.
    ///
    /// That parent may be gone. Then the leaves stay, but for those that children have let go of already: a
    /// later parent was not told that they would go, and is asked anew, without them.
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

    /// What a job asked for, without leaves of children that have come since and were not asked: those are
    /// below here for certain.
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

    /// Before another parent is asked: leaves that children have let go of for an earlier one are not here.
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
    /// the parent is told that nothing more will come of them from here. What follows from that, the
    /// end of waves and what was consumed without them, it is told last: it is not to be taken for them.
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
        for at in self.links.holding(leaves) {
            if self.links[at].is_alive() {
                self.await_leaves(now, at, Errno::CONNRESET, "its leaves are below another node");
            }
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
            if let Owner::Link(owner) = stream.owner
                && self.links[owner].is_alive()
            {
                stream.send_held(&mut self.links);
            }
        }
    }

    /// Streams that have some of `leaves` as members here, and whose waves go to a parent.
    fn streams_of(&self, leaves: &RangeSet) -> Vec<u32> {
        let concerned = |stream: &Stream| !stream.members().all().is_disjoint(leaves);
        let theirs = self.streams.iter().filter(|(_, stream)| concerned(stream));
        let mut ids: Vec<u32> = theirs.map(|(&id, _)| id).collect();
        ids.sort_unstable();
        if self.config.role == Role::Root { Vec::new() } else { ids }
    }

    /// These leaves are below another node now, and [`Node::pass_on_news`] has been called for them.
    ///
    /// The parent knows which leaves went by what it is told before; it does not know which of the others
    /// are lost. So who has nobody left of those says so, behind that: else the parent would wait for this
    /// node, and would not open the stream again when one of them comes back.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::Registry;
    use crate::{Config, Role, Tuning, frame};

    #[test]
    fn whoever_comes_when_the_session_is_over_hears_its_assignment_before_that() {
        let config = Config {
            rank: 0,
            role: Role::Root,
            depth: 0,
            leaves: RangeSet::full(2),
            children: Vec::new(),
            stream_base: 0,
            place: Default::default(),
            tuning: Tuning::default(),
        };
        let mut root = Node::new(config, Registry::with_builtins(), Time(0));
        root.shut_down_children();
        let link = root.child_link(Time(0), 1, &RangeSet::single(1)).unwrap();
        root.send_first(link, frame::encode(Header::new(Kind::Assign), b"who it is"));
        let said: Vec<u8> = root.output(link).take().iter().flat_map(|piece| piece.to_vec()).collect();
        let first = Header::parse(&said).unwrap().unwrap();
        assert_eq!(first.kind, Kind::Assign);
        let second = Header::parse(&said[first.frame_len()..]).unwrap().unwrap();
        assert_eq!((second.kind, said.len()), (Kind::Shutdown, first.frame_len() + second.frame_len()));
    }
}
