//! At an ancestor: nodes that have lost their parent, or were started anew, are taken.
//!
//! ```text
//! connects: Knocking ── Adopt, or Ready of one that is new ──> Pending ── its leaves are free ──> Member
//! ```
//! While it is pending, whoever else speaks for its leaves is asked to let go of them
//! (`release.rs`). Only then does it take part in streams, so that no leaf is below two children at
//! any time.
//!
//! A living child that still speaks for such leaves answers after all that it has sent. So the
//! adopter has everything from there before the leaves move. A repeated contribution counts if none
//! of its leaves is counted yet (`wave/mix.rs`).
use super::Node;
use super::down::leads_to_own_leaf;
use super::guide::life_of;
use super::machines::check_machines;
use super::release::{Job, To};
use crate::config::Time;
use crate::control::{self, Adopt, Adopted, Notice, Open};
use crate::frame::{Header, Kind, Violation, flag};
use crate::links::{Link, LinkId, LinkState, LinkWay};
use crate::stream::{ChildState, NodeStream};
use crate::wave::WAVES_OPEN_MAX;
use sheaf_core::{Errno, RangeSet};

/// The most links of a node, with those of nodes whose leaves have not come back.
pub(super) const LINKS_MAX: usize = 1 << 16;

impl Node {
    /// At an ancestor: the link for a node that has just connected, whose certificate or token
    /// entitles it to speak for `leaves`. Attach the transport to it; the node itself says what
    /// follows.
    ///
    /// # Errors
    /// When these leaves are not below this node, or more nodes have come than it takes.
    pub fn child_link(
        &mut self,
        now: Time,
        rank: u32,
        leaves: &RangeSet,
    ) -> Result<LinkId, Violation> {
        if !leaves.is_subset(&self.config.leaves) {
            return Err(Violation::Bound("a node connected whose leaves are not below this one"));
        }
        let waiting = |link: &Link| {
            link.way == LinkWay::Down && link.rank == rank && link.is_alive() && !link.is_attached()
        };
        // A planned child that connects for the first time: its link was made with this node.
        if let Some(planned) =
            self.links.of_rank(rank).into_iter().find(|&at| waiting(&self.links[at]))
        {
            return Ok(planned);
        }
        let mut link =
            Link::new(LinkWay::Down, rank, RangeSet::new(), now).in_state(LinkState::Knocking);
        link.claim = leaves.clone();
        let at = self.add_down(link)?;
        // `recover` hangs up on a node that does not ask within this time.
        self.timers.wake_recovery(now + self.config.tuning.heartbeat_timeout);
        // A child that comes after the end of the session is shut down like the others.
        if self.recovery.over {
            self.shut_down_children();
        }
        Ok(at)
    }

    /// A place for one more link to a child: that of one which nobody has to do with any more, or a
    /// new one.
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

    /// Whether the place of a link can be taken by another: its node is gone, all its leaves are
    /// below others, and nobody has anything to do with it any more.
    fn is_vacant(&self, at: LinkId) -> bool {
        let link = &self.links[at];
        let gone = link.way == LinkWay::Down && !link.is_alive() && link.leaves().is_empty();
        if !gone || self.links.is_in_use(at) {
            return false;
        }
        let asked = |job: &Job| job.to == To::Child(at) || job.waiting.contains(&at);
        !self.recovery.jobs.iter().any(asked)
    }

    /// A node that has lost its parent asks to be taken.
    ///
    /// Assumes that its connection was let in for its rank and claim, and nothing else: it may have
    /// been here before over another link, and may ask over an old connection of which it does not
    /// know that it is dead. So an epoch that is not newer than what is known of the node is turned
    /// away, and it asks again if it still cares; unless another process has its place, which was
    /// started later: then it is told to end. Afterwards the link is pending, or gone, or still
    /// knocking.
    pub(super) fn on_adopt(
        &mut self,
        now: Time,
        link: LinkId,
        body: &[u8],
    ) -> Result<(), Violation> {
        let adopt: Adopt = control::decode(Kind::Adopt, body)?;
        if !matches!(self.links[link].state, LinkState::Knocking) {
            return Err(Violation::OutOfPlace(Kind::Adopt));
        }
        let claim = &self.links[link].claim;
        let rank = self.links[link].rank;
        if adopt.rank != rank
            || !adopt.leaves.is_subset(claim)
            || !adopt.lost.is_subset(&adopt.leaves)
        {
            return Err(Violation::Bound("a node asks for more than it is entitled to"));
        }
        check_machines(&adopt.machines, &adopt.leaves)?;
        let newer = |other: &Link| {
            let held = other.is_alive() || !other.leaves().is_empty();
            !matches!(other.state, LinkState::Knocking) && held && other.epoch >= adopt.epoch
        };
        let same = self.links.of_rank(rank);
        let later = |other: &Link| other.is_alive() && life_of(other.epoch) > life_of(adopt.epoch);
        if same.iter().any(|&at| later(&self.links[at])) {
            let farewell = Header::new(Kind::Farewell).to_bytes();
            self.links.send(link, &farewell);
            return Ok(());
        }
        let stale = same.into_iter().any(|at| newer(&self.links[at]));
        // Leaves that an ancestor has asked for are not taken back.
        if stale || !adopt.leaves.difference(&adopt.away).is_subset(&self.config.leaves) {
            self.links.hang_up(link);
            return Ok(());
        }
        self.links[link].epoch = adopt.epoch;
        self.links[link].gave = adopt.gave.clone();
        let leaves = adopt.leaves.intersection(&self.config.leaves);
        let adopt = Adopt { leaves, ..adopt };
        self.claim_leaves_for(now, link, adopt);
        Ok(())
    }

    /// A node that was never here before, or was started anew, has started with these leaves.
    ///
    /// It is taken as one that asks with nothing: no streams, no modules, the epoch 0, which is
    /// turned away by nobody. (A node of its rank that still lives is a mistake of whoever started
    /// it twice: the older link is given up.)
    pub(super) fn on_newcomer(
        &mut self,
        now: Time,
        link: LinkId,
        control::Ready { leaves: ready, machines }: control::Ready,
    ) -> Result<(), Violation> {
        if !matches!(self.links[link].state, LinkState::Knocking) {
            return Err(Violation::OutOfPlace(Kind::Ready));
        }
        let leaves = self.links[link].claim.clone();
        if !ready.is_subset(&leaves) {
            return Err(Violation::Bound("a node speaks for leaves that are not its own"));
        }
        check_machines(&machines, &leaves)?;
        let (rank, lost) = (self.links[link].rank, leaves.difference(&ready));
        let (streams, modules) = (Vec::new(), Vec::new());
        let (away, lost) = (lost.clone(), lost);
        let adopt = Adopt {
            rank,
            epoch: 0,
            leaves,
            lost,
            away,
            ready: Some(ready),
            streams,
            modules,
            gave: RangeSet::new(),
            born: Some(u64::MAX),
            machines,
        };
        self.claim_leaves_for(now, link, adopt);
        Ok(())
    }

    /// The last stream that this node has heard of. One that was started anew, and was not told by
    /// a parent, may not know of the last.
    fn last_stream(&self) -> u64 {
        self.recovery.seen.max(self.recovery.born.unwrap_or(0)).max(self.streams_opened)
    }

    /// Asks whoever else speaks for the leaves of a node that has come to let go of them.
    ///
    /// Afterwards the node is a member at once, if nobody alive has any, or pending with a job that
    /// ends when all who were asked have answered or are lost; their links are watched. It is sent
    /// a heartbeat, which tells it that somebody is here who has other things to wait for
    /// ([`Node::recover`]).
    fn claim_leaves_for(&mut self, now: Time, link: LinkId, adopt: Adopt) {
        let rank = adopt.rank;
        // Only the later of two connections of one node is in use.
        for old in self.links.of_rank(rank) {
            if old == link || !self.links[old].is_alive() {
                continue;
            }
            self.await_leaves(now, old, Errno::CONNRESET, "it came back over another link");
        }
        let (leaves, away) = (adopt.leaves.clone(), adopt.away.clone());
        // Where nobody was before, nobody was asked anything. One that was started anew itself
        // cannot tell.
        let was_here = self.recovery.born.is_some() || !leaves.is_disjoint(&self.below.ready);
        self.links[link].born = adopt.born.filter(|_| was_here);
        self.links[link].state = LinkState::Pending(Box::new(adopt));
        self.redirect_jobs(link, &leaves);
        let heartbeat = Header::new(Kind::Heartbeat).to_bytes();
        self.links.send(link, &heartbeat);
        self.collect(now, &leaves, &away, rank, To::Child(link));
    }

    /// All leaves of the node on `link` are its own now: it goes on where it was, where that is
    /// possible.
    ///
    /// Assumes that no other living child has any of its leaves; it may have none left itself. Then
    /// it goes on with no stream: nothing would be expected of it, or for ever. Afterwards each
    /// stream of its leaves is continued, opened, or to be opened with the next packet; and where
    /// it is continued, waves that were open here before the node joined (at a parent that was
    /// further) do not wait for it, and those that nobody will begin any more are over.
    pub(super) fn adopted(&mut self, now: Time, link: LinkId) {
        if !matches!(self.links[link].state, LinkState::Pending(_)) {
            return self.await_again(now, link);
        }
        let LinkState::Pending(mut adopt) =
            std::mem::replace(&mut self.links[link].state, LinkState::Member)
        else {
            return;
        };
        // `Adopt::place` is a binary search, and the peer chose the order.
        adopt.streams.sort_unstable_by_key(|place| place.id);
        let (rank, below) = (adopt.rank, self.config.rank);
        tracing::info!(rank, "a node is taken in below node {below}");
        // Other links may have been lost since the node asked, and their leaves are free now.
        self.gather(link, &adopt.leaves);
        // One that was started anew and has none of its leaves is given some later.
        if self.links[link].leaves().is_empty() && !adopt.leaves.is_subset(&adopt.lost) {
            // All of them are below others by now: it has to look where it is.
            self.links.hang_up(link);
            return;
        }
        // An orphan has counted at least this search (`Node::resume_parent`).
        let newcomer = adopt.epoch == 0;
        let mut ids: Vec<u32> = self.streams.keys().copied().collect();
        ids.sort_unstable();
        let mut continued = Vec::new();
        for &id in &ids {
            let place = adopt.place(id);
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            let Some(child) = stream.child(link) else { continue };
            // The owner of a stream that was left here would drop what this child contributes.
            let counts = !stream.left && !stream.members()[child].leaves.is_empty();
            if let Some(place) = place.filter(|_| counts)
                // `close_gaps` ends each wave before `since`, a number of the peer: unbounded, that
                // is endless.
                && place.since.saturating_sub(stream.wave_base()) < WAVES_OPEN_MAX
                && stream.resume_lane(child, place.received, place.acked)
            {
                // The child contributes nothing to earlier waves.
                stream.members_mut()[child].since = place.since;
                continued.push(id);
            }
        }
        // A newcomer sent `Ready`, not `Adopt`, and expects no answer.
        if !newcomer {
            let leaves = self.links[link].leaves().clone();
            let number = self.links[link].born.map_or(0, |born| born.min(self.last_stream()));
            self.links[link].born = self.links[link].born.map(|_| number);
            let adopted = Adopted { continued: continued.clone(), leaves, number };
            self.links.send(link, control::control(Header::new(Kind::Adopted), &adopted));
        }
        // Modules first: the streams that are opened below may name them.
        self.send_modules(link, &adopt.modules);
        let mut waits = false;
        for id in ids {
            // In order, as the streams are.
            if continued.binary_search(&id).is_ok() {
                self.continue_stream(id, link, &adopt);
            } else {
                let unknown = !newcomer && adopt.place(id).is_none();
                waits |= !self.begin_stream(id, link, unknown);
            }
        }
        if let Some(ready) = &adopt.ready {
            self.child_ready(link, ready);
        }
        self.tell_of_arrival(link, &adopt, waits);
        // Behind that: of two leaves of one machine that come together, both are there by now.
        self.hear_of_machines(std::mem::take(&mut adopt.machines));
        self.refill(link);
    }

    /// A stream that the node on `link` has, and all that it has not had of it is here: it goes on
    /// where it was.
    ///
    /// Its lane stands where the node says that it is. What it sent to a parent that is gone comes
    /// again, marked, and counts where its leaves are not counted. Waves that were open here before
    /// it began are not its own; without the gaps being closed behind them the owner would wait for
    /// this node in waves that nobody will begin. Costs a pass over the open waves.
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
    /// there and nothing of it is forgotten here; else from the next packet on. A host that was
    /// started anew has no part in what was before, and of an inner node not what is its own: they
    /// may have had it in their lives before. `false`: it begins when the owner has heard who has
    /// come, which believes that nobody is left here.
    fn begin_stream(&mut self, id: u32, link: LinkId, unknown: bool) -> bool {
        let leads_on = leads_to_own_leaf(&self.links[link]);
        let born = self.links[link].born;
        let Some(stream) = self.streams.get_mut(&id) else { return true };
        let Some(child) = stream.child(link) else { return true };
        if stream.members()[child].leaves.is_empty() {
            return true;
        }
        if !stream.is_wanted() {
            // It is opened anew by the parent, or goes on with another.
            stream.not_before_next_packet(child);
            return false;
        }
        let open = control::open_of(&stream.down.open);
        let anew = born.is_some_and(|born| open.number <= born);
        let whole = unknown && stream.members()[child].takes_part() && stream.down.is_whole();
        if whole && (leads_on || !anew) {
            let start = stream.down.log_start();
            stream.resume_lane(child, start, start);
            // This node may itself be on its way through what was before it.
            let old = stream.down.received.max(stream.down.old);
            if leads_on && old > start {
                let open = Open { old, ..open };
                let header = Header { stream: id, ..Header::new(Kind::Open) };
                self.links.send(link, control::control(header, &open));
            } else {
                self.links.send(link, &stream.down.open);
            }
            // Those below it may have been here before, and kept what the root has said that it
            // has.
            stream.tell_acked(link, &mut self.links);
            self.links[link].wait(id);
            return true;
        }
        let complete = stream.not_before_next_packet(child);
        stream.acknowledge_down(&mut self.links);
        self.finish_waves(id, complete, Errno::HOSTDOWN);
        self.close_gaps(id);
        self.open_at_joining(id);
        true
    }

    /// Opens the stream at the children that wait for a packet to begin.
    ///
    /// Not while the owner believes that nobody is left here: it would drop what they contribute,
    /// and its waves would end without them, although they were let in. Afterwards each of them
    /// contributes to every wave that begins from now on, and to none before: who counts them from
    /// another parent's number on ([`Member::since`]) knows what not to wait for.
    pub(super) fn open_at_joining(&mut self, id: u32) {
        let here = |stream: &&mut Box<NodeStream>| {
            !stream.down.mid_packet && !stream.left && stream.down.received >= stream.down.old
        };
        let Some(stream) = self.streams.get_mut(&id).filter(here) else { return };
        let (offset, wave_base) = (stream.down.received, stream.slots().end());
        let mut open = control::open_of(&stream.down.open);
        (open.offset, open.wave_base) = (offset, wave_base);
        let header = Header { stream: id, flags: flag::open::ANEW, ..Header::new(Kind::Open) };
        let frame = control::control(header, &open);
        for link in stream.join_those_who_wait(wave_base) {
            self.links.send(link, &frame);
        }
        self.close_gaps(id);
    }

    /// Tells the root which leaves are back, and which were lost on the way.
    ///
    /// By what is lost as far as is known here, not by what was told before: a notice may have been
    /// lost with a link, and what is said twice the root passes over. Those for whom a stream
    /// `waits` were perhaps never lost, and the owner has to hear of them all the same.
    fn tell_of_arrival(&mut self, link: LinkId, adopt: &Adopt, waits: bool) {
        let (by, rank) = (self.config.rank, adopt.rank);
        let mut back = adopt.leaves.difference(&adopt.lost);
        if !waits {
            back = back.intersection(&self.below.lost);
        }
        if !back.is_empty() {
            self.below.lost = self.below.lost.difference(&back);
            self.below.left = self.below.left.difference(&back);
            self.below.ready.union_with(&back);
            self.notice(Header::new(Kind::Notice), Notice::Joined { by, rank, leaves: back });
        }
        let leaves =
            adopt.lost.intersection(self.links[link].leaves()).difference(&self.below.lost);
        if !leaves.is_empty() {
            self.states_lost(link, &leaves);
            self.below.lost.union_with(&leaves);
            let cause = "it was lost while its parent was".to_owned();
            let lost = Notice::Lost { by, rank, leaves, errno: Errno::HOSTDOWN, cause };
            self.notice(Header::new(Kind::Notice), lost);
        }
    }

    /// A child says that leaves are back: streams that it had left are opened anew there.
    ///
    /// Assumes that the child has said before that it left them, or never had them. Afterwards each
    /// stream of these leaves is open at the child, or closed there and the child marked as one
    /// that joins. The second is for streams of which the owner here believes that nobody is left.
    /// The notice that this answers is on its way to the owner behind that belief, and makes it
    /// open the stream anew; when it is lost with the link, another parent is asked, and
    /// [`Node::on_adopted`] finds the mark.
    pub(super) fn reopen(&mut self, link: LinkId, leaves: &RangeSet) {
        let mut ids: Vec<u32> = self.streams.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            let Some(child) = stream.child(link) else { continue };
            let member = &stream.members()[child];
            if member.state != ChildState::Gone || member.leaves.is_disjoint(leaves) {
                continue;
            }
            // Of a stream that has somebody again, and of no other.
            let wanted = stream.is_wanted();
            let close = Header { stream: id, ..Header::new(Kind::Close) };
            self.links.send(link, &close.to_bytes());
            stream.not_before_next_packet(child);
            if wanted {
                self.open_at_joining(id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Child, NodeConfig, NodeRole, Tuning};
    use crate::filter::Registry;
    use crate::frame;
    use crate::node::Event;

    /// A root of two leaves, of which the first, of rank 1, is planned below it and is not there.
    fn root() -> Node {
        let config = NodeConfig {
            rank: 0,
            role: NodeRole::Root,
            depth: 0,
            leaves: RangeSet::full(2),
            children: vec![Child { rank: 1, leaves: RangeSet::single(0) }],
            stream_base: 0,
            place: Default::default(),
            tuning: Tuning::default(),
        };
        let mut root = Node::new(config, Registry::with_builtins(), Time(0));
        root.begin_without(&RangeSet::single(0));
        root
    }

    /// A process of the leaf asks to be taken.
    fn ask(root: &mut Node, leaf: &mut Node) -> LinkId {
        call(root, leaf).1
    }

    /// The two ends of its call.
    fn call(root: &mut Node, leaf: &mut Node) -> (LinkId, LinkId) {
        let link = root.child_link(Time(0), 1, &RangeSet::single(0)).unwrap();
        root.attach(Time(0), link);
        let up = leaf.resume_parent(Time(0));
        let said = out(leaf, up);
        root.receive(Time(0), link, &said.into()).unwrap();
        (up, link)
    }

    /// What a node has to say on a link.
    fn out(node: &mut Node, link: LinkId) -> Vec<u8> {
        node.output(link).take().iter().flat_map(|piece| piece.to_vec()).collect()
    }

    #[test]
    fn of_two_processes_in_one_place_the_later_one_has_it() {
        let mut root = root();
        let (leaves, children) = (RangeSet::single(0), Vec::new());
        let config =
            NodeConfig { rank: 1, role: NodeRole::Leaf, leaves, children, ..root.config.clone() };
        let mut old = Node::new(config.clone(), Registry::with_builtins(), Time(0));
        for _ in 0..3 {
            let link = ask(&mut root, &mut old);
            assert!(root.links[link].is_member());
        }
        let mut new = Node::new(config, Registry::with_builtins(), Time(0));
        new.count_on(root.last_epoch(1));
        new.begin_late();
        let place = ask(&mut root, &mut new);
        assert!(root.links[place].is_member());
        for _ in 0..10 {
            let link = ask(&mut root, &mut old);
            assert!(!root.links[link].is_member());
            assert!(root.links[place].is_member());
        }
        let (up, link) = call(&mut root, &mut old);
        let said = out(&mut root, link);
        old.receive(Time(0), up, &said.into()).unwrap();
        let mut events = std::iter::from_fn(|| old.poll_event());
        assert!(events.any(|event| matches!(event, Event::ParentLost)), "the old one does not end");
    }

    #[test]
    fn ancestor_without_a_parent_refuses_no_orphan() {
        let root = root();
        let leaves = RangeSet::full(2);
        let config = NodeConfig { rank: 3, role: NodeRole::Inner, leaves, ..root.config.clone() };
        let mut inner = Node::new(config, Registry::with_builtins(), Time(0));
        inner.begin_empty();
        let asks = inner.child_link(Time(0), 1, &RangeSet::single(0)).unwrap();
        inner.attach(Time(0), asks);
        inner.disband();
        assert_eq!(out(&mut inner, asks), Vec::<u8>::new());
    }

    #[test]
    fn child_joining_at_shutdown_receives_its_assignment_first() {
        let mut root = root();
        root.shut_down_children();
        let link = root.child_link(Time(0), 2, &RangeSet::single(1)).unwrap();
        root.send_first(link, frame::encode(Header::new(Kind::Assign), b"who it is"));
        let said = out(&mut root, link);
        let first = Header::parse(&said).unwrap().unwrap();
        assert_eq!(first.kind, Kind::Assign);
        let second = Header::parse(&said[first.frame_len()..]).unwrap().unwrap();
        assert_eq!(
            (second.kind, said.len()),
            (Kind::Shutdown, first.frame_len() + second.frame_len())
        );
    }
}
