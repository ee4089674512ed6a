//! At a node that has lost its parent: it looks for another, and what it does not find in time it
//! does without.
//!
//! An orphan calls its ancestors, nearest first: parent, grandparent, and so on to the root. It
//! does not call siblings, because an ancestor already has the streams and the leaves, so nothing
//! above the ancestor changes. An orphan that finds no ancestor lets its children look for
//! themselves, and ends without them. All nodes of a subtree together take at most twice as long as
//! its first node.
use super::{Event, Node};
use crate::config::{NodeRole, Time};
use crate::control::{self, Adopt, AdoptStream, Adopted};
use crate::frame::{Header, Kind, Violation};
use crate::links::{LinkId, LinkState, LinkWay};
use crate::stream::StreamOwner;
use crate::{STREAMS_MAX, own};
use bytes::Bytes;
use sheaf_core::{Errno, RangeSet};
use std::time::Duration;

/// Frames for the root that are kept while there is no parent; the oldest go first.
pub(super) const UNSENT_MAX: usize = 1024;

impl Node {
    /// At an orphan: the link for a connection to an ancestor. What it says first is queued.
    ///
    /// May be called again before the ancestor has answered: the earlier call is given up. It says
    /// how things are (which leaves, which of them are lost or away, how far each stream is) and
    /// not what has happened, so that nothing depends on what an earlier parent has heard. What is
    /// consumed from here on counts for the new one.
    pub fn resume_parent(&mut self, now: Time) -> LinkId {
        if let Some(asking) = self.recovery.asking.take() {
            self.links.hang_up(asking);
        }
        // First, because `Adopt` must not name leaves that children have released for another node.
        self.lose_released();
        self.recovery.epoch += 1;
        self.machines.wait();
        let link = self.add_up(now);
        self.links[link].state = LinkState::Asking;
        self.recovery.asking = Some(link);
        self.timers.wake_recovery(now + self.ask_time());
        let mut streams = Vec::with_capacity(self.streams.len());
        for (&id, stream) in &mut self.streams {
            // What is consumed from here on is told to the new parent.
            stream.down.consumed.acked = stream.down.consumed.done;
            let state =
                if self.config.role == NodeRole::Leaf { None } else { stream.up.filter.state() };
            let (received, acked) = (stream.down.received, stream.down.consumed.done);
            // What is said to be over is not kept. (An earlier parent may have said so of waves
            // that were over for it alone, since it began later.)
            let since = stream.up.since.max(stream.up.out.acked.first_missing());
            streams.push(AdoptStream { id, received, acked, since, state });
        }
        // Streams that ended with an earlier parent cannot begin again where they began.
        let gone =
            |&id: &u32| AdoptStream { id, received: u64::MAX, acked: 0, since: 0, state: None };
        streams.extend(self.recovery.dropped.iter().map(gone));
        streams.sort_unstable_by_key(|stream| stream.id);
        let mut away = RangeSet::new();
        for link in self.links.down().map(|(_, link)| link).filter(|link| !link.is_alive()) {
            away.union_with(link.leaves());
        }
        let adopt = Adopt {
            rank: self.config.rank,
            epoch: self.recovery.epoch,
            leaves: self.config.leaves.clone(),
            lost: self.below.lost.clone(),
            away,
            ready: self.below.told.then(|| self.below.ready.clone()),
            streams,
            modules: self.modules(),
            gave: self.given_here(),
            born: self.recovery.born,
            machines: self.machines.of(&self.config.leaves.difference(&self.below.lost)),
        };
        let frame = control::control(self.with_engine(Kind::Adopt), &adopt);
        self.links.send(link, frame);
        link
    }

    /// How long an ancestor may keep silent when it is asked. There is time for all of them, and
    /// once more.
    fn ask_time(&self) -> Duration {
        self.recovery.patience / (self.config.depth.max(2) + 1)
    }

    /// An ancestor has answered, and was lost before it took this node: the time for the search
    /// counts from here on. That somebody answers says that there is somebody to find, and what it
    /// took to find this one was not in vain.
    pub(super) fn search_anew(&mut self, now: Time, link: LinkId) {
        let asked = &self.links[link];
        if self.recovery.asking == Some(link) && asked.heard > asked.since {
            self.recovery.orphan = self.recovery.orphan.map(|_| now);
        }
    }

    /// Since when this node has no parent.
    #[must_use]
    pub fn orphaned_since(&self) -> Option<Time> {
        self.recovery.orphan
    }

    /// Whether an ancestor has been asked and has not answered.
    #[must_use]
    pub fn is_asking(&self) -> bool {
        self.recovery.asking.is_some()
    }

    /// At an orphan: the session is over for certain. What is below ends, then this node.
    pub fn abandon(&mut self) {
        let all: Vec<u32> = self.streams.keys().copied().collect();
        all.into_iter().for_each(|id| self.close_stream(id));
        self.shut_down_children();
        self.recovery.orphan = None;
        self.events.push_back(Event::ParentLost);
    }

    /// At an orphan: it looks no further. What keeps it from its ancestors need not keep its
    /// children from them: each looks for a parent itself, and this node ends alone.
    ///
    /// All of a sub-tree take no longer than twice the time that its first node has for its search:
    /// it leaves as much to those below, of which each takes half. Who has only asked to be taken is
    /// told nothing: it would take the farewell for one from its place (`on_replaced`), and
    /// sees the link close.
    pub fn disband(&mut self) {
        if self.config.role == NodeRole::Leaf {
            return self.abandon();
        }
        let left_ns = u64::try_from(self.recovery.patience.as_nanos()).unwrap_or(u64::MAX);
        let farewell = Header { wave: left_ns, ..Header::new(Kind::Farewell) }.to_bytes();
        let shutdown = Header::new(Kind::Shutdown).to_bytes();
        for at in self.links.ids() {
            let link = &self.links[at];
            if link.is_live_child() && link.is_member() {
                // Those of this process end with it.
                let frame = if link.is_inside() { &shutdown } else { &farewell };
                self.links.send(at, frame);
            }
        }
        self.recovery.disbanded = true;
        self.recovery.orphan = None;
        self.events.push_back(Event::ParentLost);
    }

    /// Whether it has ended without its children.
    #[must_use]
    pub fn has_disbanded(&self) -> bool {
        self.recovery.disbanded
    }

    /// The parent has found no parent.
    ///
    /// Only the parent may say so. It says how much of its own time was left: a leaf has that, an
    /// inner node half of it, so that a sub-tree whose levels search one after the other takes at
    /// most twice as long as its first node. Afterwards this node is an orphan.
    pub(super) fn on_farewell(
        &mut self,
        now: Time,
        link: LinkId,
        header: &Header,
    ) -> Result<(), Violation> {
        if self.recovery.parent != Some(link) {
            return Err(Violation::OutOfPlace(Kind::Farewell));
        }
        // The number comes from the peer, so it is bounded by this node's own limit.
        let left = Duration::from_nanos(header.wave).min(self.config.tuning.orphan_timeout);
        self.recovery.patience = if self.config.role == NodeRole::Leaf { left } else { left / 2 };
        self.link_lost(now, link, Errno::CONNRESET, "its parent has found no parent");
        Ok(())
    }

    /// An ancestor that was asked says that another process, which was started later, has this
    /// node's place. Those below look for parents themselves, and find that one.
    pub(super) fn on_replaced(&mut self, link: LinkId) {
        let rank = self.config.rank;
        tracing::warn!(rank, "another process was started in the place of this one, which ends");
        self.links.hang_up(link);
        self.recovery.asking = None;
        self.disband();
    }

    /// The transport of an upward link is gone.
    ///
    /// At a root it was a client's, whose streams end. Elsewhere the search begins, or goes on: the
    /// time that there is for it counts from the first loss. Streams stay as they are, their output
    /// waits.
    pub(super) fn parent_link_lost(&mut self, now: Time, link: LinkId) {
        let quiet = self.links[link].is_inside();
        self.links.hang_up(link);
        if self.config.role == NodeRole::Root {
            self.close_streams_of(link);
            return;
        }
        if self.recovery.asking == Some(link) {
            self.recovery.asking = None;
        }
        // A parent in this process is never replaced: the nodes of one process end together.
        if quiet || self.config.tuning.orphan_timeout.is_zero() {
            return self.abandon();
        }
        self.recovery.orphan.get_or_insert(now);
        self.timers.wake_recovery(now + self.recovery.patience);
        self.events.push_back(Event::Orphaned);
    }

    /// An ancestor is the parent from now on.
    ///
    /// Assumes nothing of what the last parent had been told: it may never have heard it.
    /// Afterwards the streams are those that the new one continues. It has been told how far each
    /// has got, takes it that somebody is left here, and is told otherwise; who waits to join one
    /// (because the last parent believed that nobody was left, [`Node::reopen`]) joins.
    pub(super) fn on_adopted(
        &mut self,
        now: Time,
        link: LinkId,
        body: &[u8],
    ) -> Result<(), Violation> {
        let mut adopted: Adopted = control::decode(Kind::Adopted, body)?;
        // The ancestor chose the order, and a binary search follows.
        adopted.continued.sort_unstable();
        if !matches!(self.links[link].state, LinkState::Asking) {
            return Err(Violation::OutOfPlace(Kind::Adopted));
        }
        let none_left =
            adopted.leaves.is_empty() && !self.config.leaves.is_subset(&self.below.lost);
        // Its own leaf is nowhere else.
        let own = own::leaf_of(self.config.rank);
        let none_left =
            none_left || (self.config.leaves.contains(own) && !adopted.leaves.contains(own));
        if !adopted.leaves.is_subset(&self.config.leaves) || none_left {
            // Leaves have moved while the ancestor was asked: it is asked again.
            self.parent_link_lost(now, link);
            return Ok(());
        }
        self.links[link].state = LinkState::Member;
        // A later parent knows of more streams, but this process was there when they were opened:
        // the first number stays.
        self.recovery.born = self.recovery.born.map(|born| born.min(adopted.number));
        let elsewhere = self.config.leaves.difference(&adopted.leaves);
        if !elsewhere.is_empty() {
            // Contributions of these leaves that are folded here go up before the leaves are
            // forgotten.
            self.cut_off(now, &elsewhere);
            self.pass_on_news(&elsewhere);
            self.forget_leaves(&elsewhere);
        }
        (self.recovery.parent, self.recovery.asking, self.recovery.orphan) =
            (Some(link), None, None);
        // A farewell may have shortened it.
        self.recovery.patience = self.config.tuning.orphan_timeout;
        let mut ids: Vec<u32> = self.streams.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            if adopted.continued.binary_search(&id).is_err() {
                self.drop_stream(id);
                continue;
            }
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            stream.replay(link, &mut self.links);
            stream.acknowledge_down(&mut self.links);
            if stream.down.consumed.done > stream.down.consumed.acked {
                stream.tell_now(&mut self.links);
            }
            if std::mem::take(&mut stream.left) {
                // The new parent does not know that nobody was left here; who came since may begin.
                let joining = stream.down.joining;
                if joining {
                    self.open_at_joining(id);
                }
                self.leave(id);
            }
            self.repeat_departure(id);
        }
        for frame in std::mem::take(&mut self.recovery.unsent) {
            self.links.send(link, frame);
        }
        self.links.mark(link);
        self.tell_door();
        self.refill(link);
        Ok(())
    }

    /// A stream does not go on with the new parent. It is told to later parents too, until it
    /// begins anew or is over; of very many the oldest is forgotten, whose number has the least
    /// chance to be in use still.
    fn drop_stream(&mut self, id: u32) {
        if self.recovery.dropped.len() >= STREAMS_MAX {
            self.recovery.dropped.pop_front();
        }
        self.recovery.dropped.push_back(id);
        self.close_stream(id);
    }

    /// A stream has begun anew, or is over. Whether it was here before.
    pub(super) fn no_longer_dropped(&mut self, id: u32) -> bool {
        let before = self.recovery.dropped.len();
        self.recovery.dropped.retain(|&dropped| dropped != id);
        self.recovery.dropped.len() < before
    }

    /// Tells all parents something, or later the next one.
    ///
    /// An ancestor that is asked takes nothing but what belongs to asking, and so what is to be
    /// said waits until it has answered. (A node that was started again asks without having been an
    /// orphan.) What was put on a link that turns out to have been dead is lost: whatever must hold
    /// nevertheless is in [`Adopt`], which says how things are and not what has happened.
    pub(super) fn tell_parents(&mut self, frame: &Bytes) {
        if self.recovery.orphan.is_some() || self.recovery.asking.is_some() {
            if self.recovery.unsent.len() == UNSENT_MAX {
                self.recovery.unsent.pop_front();
            }
            self.recovery.unsent.push_back(frame.clone());
            return;
        }
        for at in self.links.ids() {
            if self.links[at].way == LinkWay::Up && self.links[at].is_alive() {
                self.links.send(at, frame.clone());
            }
        }
    }

    /// What is due of recovery, at the time that [`Timers`](super::recovery::Timers) names or
    /// later. Each thing that stays to be waited for names its time again: leaves that did not come
    /// back, ancestors that do not answer, the end of the search for a parent.
    pub(super) fn recover(&mut self, now: Time) {
        self.timers.recovery = None;
        let tuning = self.config.tuning;
        for at in self.links.ids() {
            let since = self.links[at].since;
            let (alive, below) = (self.links[at].is_alive(), self.links[at].claim.len() > 1);
            match &mut self.links[at].state {
                LinkState::Awaited(awaited) if awaited.until <= now => {
                    if below {
                        // What became of the node above them is not what became of them.
                        let (cause, grace) = (&awaited.cause, tuning.adoption_grace.as_secs_f64());
                        awaited.cause = format!(
                            "a node above it was lost ({cause}), and it reached no other within \
                             {grace} s"
                        );
                    }
                    self.give_up_waiting(at);
                }
                LinkState::Awaited(awaited) => {
                    let until = awaited.until;
                    self.timers.wake_recovery(until);
                }
                LinkState::Knocking if alive => {
                    let until = since + tuning.heartbeat_timeout;
                    if until <= now {
                        self.links.hang_up(at);
                    } else {
                        self.timers.wake_recovery(until);
                    }
                }
                _ => {}
            }
        }
        let Some(orphaned) = self.recovery.orphan else { return };
        let mut end = orphaned + self.recovery.patience;
        if let Some(asking) = self.recovery.asking {
            // Who has answered in some way is there, and waits for others to let go of our leaves.
            // That may take as long as it lives: its own wait ends with the silence of those, and
            // ours with its own.
            if self.links[asking].heard > self.links[asking].since {
                end = end.max(self.links[asking].heard + tuning.heartbeat_timeout * 2);
            } else {
                let until = self.links[asking].since + self.ask_time();
                // At the end of the search this ancestor is not replaced by another: `disband`
                // follows.
                if until <= now && end > now {
                    self.parent_link_lost(now, asking);
                } else {
                    self.timers.wake_recovery(until);
                }
            }
        }
        if end <= now {
            if let Some(asking) = self.recovery.asking.take() {
                self.links.hang_up(asking);
            }
            self.disband();
        } else {
            self.timers.wake_recovery(end);
        }
    }

    /// Streams of a client that has left.
    pub(super) fn close_streams_of(&mut self, link: LinkId) {
        let theirs =
            self.streams.iter().filter(|(_, stream)| stream.owner == StreamOwner::Link(link));
        let theirs: Vec<u32> = theirs.map(|(id, _)| *id).collect();
        for id in theirs {
            self.close_stream(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{NodeConfig, Tuning};
    use crate::control::{Open, Sync};
    use crate::filter::Registry;
    use crate::frame;
    use sheaf_core::Errno;

    const NOW: Time = Time(0);

    fn leaf() -> (Node, LinkId) {
        let config = NodeConfig {
            rank: 1,
            role: NodeRole::Leaf,
            depth: 1,
            leaves: RangeSet::single(0),
            children: Vec::new(),
            stream_base: 0,
            place: Default::default(),
            tuning: Tuning::default(),
        };
        let mut leaf = Node::new(config, Registry::with_builtins(), NOW);
        let parent = leaf.add_parent(NOW);
        leaf.attach(NOW, parent);
        (leaf, parent)
    }

    fn hear(leaf: &mut Node, parent: LinkId, frame: &Bytes) {
        leaf.receive(NOW, parent, frame).unwrap();
        while leaf.poll_event().is_some() {}
    }

    fn open(leaf: &mut Node, parent: LinkId, id: u32) {
        let (members, filter) = (RangeSet::single(0), "null".to_owned());
        let (params, sync) = (Vec::new(), Sync::WaitForAll);
        let open = Open { members, filter, params, sync, window_bytes: 4096, ..Open::default() };
        hear(
            leaf,
            parent,
            &control::control(Header { stream: id, ..Header::new(Kind::Open) }, &open),
        );
    }

    /// The leaf finds a parent that has none of its streams. Gives its link, and what the leaf had
    /// said of streams that ended before.
    fn adopted(leaf: &mut Node, parent: LinkId) -> (LinkId, Vec<u32>) {
        leaf.link_lost(NOW, parent, Errno::HOSTDOWN, "it is gone");
        let parent = leaf.resume_parent(NOW);
        let said: Vec<u8> =
            leaf.output(parent).take().iter().flat_map(|piece| piece.to_vec()).collect();
        let adopt: Adopt = control::decode(Kind::Adopt, &said[frame::HEADER_BYTES..]).unwrap();
        let gone = adopt.streams.iter().filter(|stream| stream.received == u64::MAX);
        let gone = gone.map(|stream| stream.id).collect();
        let answer = Adopted { continued: Vec::new(), leaves: RangeSet::single(0), number: 0 };
        hear(leaf, parent, &control::control(Header::new(Kind::Adopted), &answer));
        (parent, gone)
    }

    #[test]
    fn streams_that_did_not_go_on_are_told_until_they_begin_or_end() {
        let (mut leaf, parent) = leaf();
        (1..=4).for_each(|id| open(&mut leaf, parent, id));
        let (parent, gone) = adopted(&mut leaf, parent);
        assert_eq!(gone, []);
        open(&mut leaf, parent, 2);
        hear(
            &mut leaf,
            parent,
            &frame::encode(Header { stream: 3, ..Header::new(Kind::Close) }, &[]),
        );
        let (parent, gone) = adopted(&mut leaf, parent);
        assert_eq!(gone, [1, 4]);
        let (_, gone) = adopted(&mut leaf, parent);
        assert_eq!(gone, [1, 2, 4]);
    }

    #[test]
    fn dropped_streams_remembered_by_a_leaf_are_bounded() {
        let (mut leaf, parent) = leaf();
        (0..STREAMS_MAX as u32 + 10).for_each(|id| leaf.drop_stream(id));
        let (_, gone) = adopted(&mut leaf, parent);
        assert_eq!(gone, (10..STREAMS_MAX as u32 + 10).collect::<Vec<u32>>());
    }
}
