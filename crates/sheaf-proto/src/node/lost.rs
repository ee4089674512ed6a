//! Children whose links are lost: their leaves may come back another way, for a while.
use super::Node;
use crate::config::Time;
use crate::control::{self, Notice};
use crate::filter::module_name;
use crate::frame::{Header, Kind};
use crate::links::{Awaited, LinkId, LinkState, LinkWay};
use crate::own;
use crate::stream::NodeStream;
use sheaf_core::{Errno, RangeSet};

/// The stream of a notice that names none.
pub(super) const NO_STREAM: u32 = 0;
/// The most filters that are named when a node has crashed.
const CRASH_FILTERS_MAX: usize = 4;

impl Node {
    /// The transport of a child's link is gone, and its leaves may come back another way.
    ///
    /// Assumes that the link is alive. Afterwards its leaves are held by it still, for the time of
    /// grace; waves wait for them meanwhile, and no job waits for an answer from it. Nothing that
    /// was on its way over the link is credited: its node counts from zero wherever it turns up.
    pub(super) fn await_leaves(&mut self, now: Time, link: LinkId, errno: Errno, cause: &str) {
        // It holds no leaves and takes part in no stream.
        if matches!(self.links.hang_up(link), LinkState::Knocking) {
            return;
        }
        let until = now + self.config.tuning.adoption_grace;
        let awaited = Awaited { until, errno, cause: cause.to_owned() };
        self.links[link].state = LinkState::Awaited(Box::new(awaited));
        self.timers.wake_recovery(until);
        let mut left = Vec::new();
        for (&id, stream) in &mut self.streams {
            let Some(child) = stream.child(link) else { continue };
            if stream.lose_link(child, errno) {
                left.push(id);
            }
        }
        left.sort_unstable();
        for id in left {
            // It may have been the last that the owner was to hear of.
            self.close_gaps(id);
            self.leave(id);
        }
        self.answered(now, link, None);
        self.finish_jobs(now);
    }

    /// Whoever has started the nodes below has ended them all, and says why: nobody is waited for.
    /// To be told as well of those whose links are lost by now: this is the reason.
    pub fn all_ended(&mut self, now: Time, errno: Errno, cause: &str) {
        for link in self.links.ids().collect::<Vec<_>>() {
            // The own leaf of this node is in no other process.
            if self.links[link].way != LinkWay::Down || self.links[link].is_inside() {
                continue;
            }
            self.link_lost(now, link, errno, cause);
            if let LinkState::Awaited(awaited) = &mut self.links[link].state {
                (awaited.errno, awaited.cause) = (errno, cause.to_owned());
            }
            self.give_up_waiting(link);
        }
    }

    /// Whether the node `rank`, a leaf, may run below another node. One that was connected here,
    /// and whose link is gone, does not, though it is waited for.
    #[must_use]
    pub fn runs_elsewhere(&self, rank: u32, leaves: &RangeSet) -> bool {
        let mut own =
            self.links.iter().filter(|link| link.way == LinkWay::Down && link.rank == rank);
        !own.any(|link| matches!(link.state, LinkState::Awaited(_))) && self.runs(leaves)
    }

    /// At a leaf: the process of the node `rank` of its host has ended by a fault. The root says
    /// what may have brought that about ([`Self::crashed`]).
    pub fn tell_of_crash(&mut self, rank: u32, how: &str) {
        let crash =
            Notice::FilterFailed { by: rank, stream: NO_STREAM, wave: 0, message: how.to_owned() };
        self.tell_parents(&control::control(Header::new(Kind::Notice), &crash));
    }

    /// The process of the node `rank`, which combines, has ended by a fault, as `how` says. Nothing
    /// but code that users bring brings that about, unless it is not `sure`: streams that go
    /// through `link` (at the root perhaps: any) and have such a filter are named with it.
    pub fn crashed(&mut self, rank: u32, link: Option<LinkId>, how: &str, sure: bool) {
        // Where the session ends, who is slow to is killed by the one above.
        if !sure && (self.recovery.over || self.recovery.disbanded) {
            return;
        }
        let goes_there = |stream: &NodeStream| link.is_none_or(|link| stream.child(link).is_some());
        let streams = self.streams.iter().filter(|(_, stream)| goes_there(stream));
        let filters = streams.filter_map(|(&id, stream)| {
            Some((id, module_name(&control::open_of(&stream.down.open).filter)?))
        });
        let mut filters: Vec<(u32, String)> = filters.collect();
        filters.sort_unstable();
        filters.dedup_by(|one, other| one.1 == other.1);
        for (stream, filter) in filters.into_iter().take(CRASH_FILTERS_MAX) {
            let during = if sure { "while it ran the filter" } else { "perhaps in the filter" };
            let message = format!("{how}, {during} {filter}");
            let failed = Notice::FilterFailed { by: rank, stream, wave: 0, message };
            self.notice(Header::new(Kind::Notice), failed);
        }
    }

    /// The hosts' leaves below that have started and are not known to be lost.
    #[must_use]
    pub fn present(&self) -> RangeSet {
        own::hosts(&self.below.ready.difference(&self.below.lost))
    }

    /// Whether every leaf below is lost or has left, and none is waited for.
    #[must_use]
    pub fn is_deserted(&self) -> bool {
        self.below.told && self.present().is_empty()
    }

    /// Others have let go of leaves for a node that was lost meanwhile: they are waited for.
    pub(super) fn await_again(&mut self, now: Time, link: LinkId) {
        if matches!(self.links[link].state, LinkState::Lost)
            && !self.links[link].leaves().is_empty()
        {
            let until = now + self.config.tuning.adoption_grace;
            let cause = "it was lost while it was taken in".to_owned();
            self.links[link].state =
                LinkState::Awaited(Box::new(Awaited { until, errno: Errno::CONNRESET, cause }));
            self.timers.wake_recovery(until);
        }
    }

    /// Whoever has not come back by now is lost.
    ///
    /// May be called for any link, and does nothing unless it is waited for. Afterwards the root
    /// knows (once: what was told before is left out), and no wave waits for these leaves. The link
    /// keeps them, so that they are still found here when their node comes after all.
    pub(super) fn give_up_waiting(&mut self, link: LinkId) {
        let stage = std::mem::replace(&mut self.links[link].state, LinkState::Lost);
        let LinkState::Awaited(awaited) = stage else { return };
        let (rank, leaves) = (self.links[link].rank, self.links[link].leaves().clone());
        // Who left as planned, or was lost further down before, has been told of.
        let news = leaves.difference(&self.below.lost);
        self.states_lost(link, &news);
        if !news.is_empty() {
            self.below.lost.union_with(&news);
            let (Awaited { errno, cause, .. }, leaves) = (*awaited, news);
            let lost = Notice::Lost { by: self.config.rank, rank, leaves, errno, cause };
            self.notice(Header::new(Kind::Notice), lost);
            self.child_lost(link, errno);
        } else if !leaves.is_empty() {
            // The root knows that they are lost, but waves here still wait for the child.
            self.child_lost(link, awaited.errno);
        }
        // It may have been the last child that the report of the start waited for.
        self.tell_ready();
    }
}
