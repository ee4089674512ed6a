//! A tree starts, says what becomes of its nodes, and ends.
use super::lost::NO_STREAM;
use super::machines::check_machines;
use super::{Event, Node};
use crate::config::NodeRole;
use crate::control::{self, NOTE_BYTES_MAX, Notice, SERVICE_BYTES_MAX};
use crate::frame::{self, Header, Kind, Violation, flag};
use crate::links::{LinkId, LinkState, LinkWay};
use bytes::Bytes;
use sheaf_core::{Errno, RangeSet};

impl Node {
    /// The sub-tree of a child has started. Told once by each child; one that comes later has said
    /// so when it asked to be taken.
    ///
    /// May be told twice, or name leaves that are another's by now: the first time counts, and only
    /// what is held by this link. Afterwards the parent is told as soon as no child is waited for,
    /// with the leaves of all.
    pub(super) fn on_ready(
        &mut self,
        link: LinkId,
        header: &Header,
        body: &[u8],
    ) -> Result<(), Violation> {
        let ready: control::Ready = control::decode(Kind::Ready, body)?;
        // Never cleared here: the flag also records that the engine was sent to this child.
        self.links[link].has_engine |= header.has(flag::ready::ENGINE);
        check_machines(&ready.machines, &self.links[link].claim)?;
        self.hear_of_machines(ready.machines);
        self.child_ready(link, &ready.leaves);
        Ok(())
    }

    /// The sub-tree on `link` has started with these leaves (none: it could not).
    pub(super) fn child_ready(&mut self, link: LinkId, leaves: &RangeSet) {
        if !std::mem::replace(&mut self.links[link].ready, true) {
            self.below.ready.union_with(&leaves.intersection(self.links[link].leaves()));
        }
        self.tell_ready();
    }

    /// Reports to the parent, once, that every child has started or failed. A leaf and a node
    /// whose children all failed call it when they begin.
    pub fn tell_ready(&mut self) {
        if self.below.told {
            return;
        }
        let waiting = self.links.iter().any(|link| {
            let member = matches!(link.state, LinkState::Member if link.is_alive());
            // Leaves of an awaited child may still start, so the report waits for them. The grace
            // period bounds that wait.
            let expected =
                member || matches!(link.state, LinkState::Awaited(_) | LinkState::Pending(_));
            link.way == LinkWay::Down && expected && !link.ready && !link.leaves().is_empty()
        });
        if waiting {
            return;
        }
        self.below.told = true;
        if self.config.role == NodeRole::Leaf {
            self.below.ready = self.config.leaves.clone();
        }
        self.events.push_back(Event::Ready(self.below.ready.difference(&self.below.lost)));
        let machines = match self.config.role {
            NodeRole::Leaf => self.machines.of(&self.config.leaves),
            _ => Vec::new(),
        };
        let ready = control::Ready { leaves: self.below.ready.clone(), machines };
        self.tell_parents(&control::control(self.with_engine(Kind::Ready), &ready));
    }

    /// What became of nodes below, on its way to the root. It tells the nodes that it passes, too:
    /// which leaves are lost, and which are back and have to be let into the streams that are open
    /// ([`Node::reopen`]).
    ///
    /// May be late: leaves that are below another child by now, or that were told of before, are
    /// left out.
    pub(super) fn on_notice(
        &mut self,
        link: LinkId,
        header: &Header,
        body: &[u8],
    ) -> Result<(), Violation> {
        let mut notice: Notice = control::decode(Kind::Notice, body)?;
        self.check_notice(link, &notice)?;
        notice.cut();
        if let Notice::Machine { leaf, machine } = notice {
            let machines = vec![(leaf, machine)];
            check_machines(&machines, &self.links[link].claim)?;
            self.hear_of_machines(machines);
            return Ok(());
        }
        // A leaf reports the crash of a node without a stream (`tell_of_crash`). Only the root has
        // all streams, and can find the filters that ran there.
        if let Notice::FilterFailed { by, stream: NO_STREAM, message, .. } = &notice
            && self.config.role == NodeRole::Root
        {
            self.crashed(*by, None, message, true);
            return Ok(());
        }
        if let Notice::Lost { leaves, .. }
        | Notice::Joined { leaves, .. }
        | Notice::Left { leaves, .. } = &mut notice
        {
            // The claim is fixed when the link is made. The leaves that the link holds change while
            // nodes move, so a correct notice can name some that it no longer holds.
            if !leaves.is_subset(&self.links[link].claim) {
                return Err(Violation::Bound(
                    "a notice names leaves that are not below its sender",
                ));
            }
            // The sender may not know yet which of them are below another node.
            *leaves = leaves.intersection(self.links[link].leaves());
            let leaves = leaves.clone();
            if leaves.is_empty() {
                return Ok(());
            }
            let known = leaves.is_subset(&self.below.lost);
            match &notice {
                Notice::Lost { .. } if known => return Ok(()),
                Notice::Joined { .. } => {
                    let new = !leaves.is_disjoint(&self.below.lost);
                    self.below.lost = self.below.lost.difference(&leaves);
                    self.below.left = self.below.left.difference(&leaves);
                    self.below.ready.union_with(&leaves);
                    self.reopen(link, &leaves);
                    if !new && self.config.role == NodeRole::Root {
                        // A stream waited for it, and nobody was lost.
                        return Ok(());
                    }
                }
                _ => self.below.lost.union_with(&leaves),
            }
            if let Notice::Left { rank, .. } = &notice {
                self.below.left.union_with(&leaves);
                // The child itself has left, not a node below it. Waves stop waiting now, not when
                // it closes.
                if *rank == self.links[link].rank {
                    self.child_lost(link, Errno::HOSTDOWN);
                }
            }
        }
        let gives_up = match &notice {
            Notice::Lost { by, rank, errno, .. } if by == rank => {
                (*rank == self.links[link].rank).then_some(*errno)
            }
            _ => None,
        };
        self.notice(*header, notice);
        // Nor for one that gives up, behind the reason.
        if let Some(errno) = gives_up {
            self.child_lost(link, errno);
        }
        Ok(())
    }

    /// Whether the child may say this of others.
    fn check_notice(&self, link: LinkId, notice: &Notice) -> Result<(), Violation> {
        if let Notice::Wants { leaf, service, note } = notice {
            let short = service.len() <= SERVICE_BYTES_MAX && note.len() <= NOTE_BYTES_MAX;
            if !short || !self.links[link].claim.contains(*leaf) {
                return Err(Violation::Bound("a service wants more than it may"));
            }
        }
        if let Notice::Stranded { leaves, .. } | Notice::Garbled { leaves, .. } = notice
            && !leaves.is_subset(&self.links[link].claim)
        {
            return Err(Violation::Bound("a node speaks of leaves that are not below it"));
        }
        Ok(())
    }

    /// Passes a notice on to every parent and to the local application.
    pub(super) fn notice(&mut self, header: Header, notice: Notice) {
        if self.config.role == NodeRole::Root && matches!(notice, Notice::Wants { .. }) {
            // Of no use to clients, which would all open it.
            self.events.push_back(Event::Notice(notice));
            return;
        }
        self.tell_parents(&control::control(header, &notice));
        if self.config.role == NodeRole::Root {
            self.events.push_back(Event::Notice(notice));
        }
    }

    /// Tells a client that has just joined what the others know already.
    pub fn greet(&mut self, link: LinkId, notices: &[Notice]) {
        let notices =
            notices.iter().map(|notice| control::control(Header::new(Kind::Notice), notice));
        let mut frames: Vec<Bytes> = notices.collect();
        if self.below.told {
            let ready = control::Ready { leaves: self.below.ready.clone(), machines: Vec::new() };
            frames.push(control::control(self.with_engine(Kind::Ready), &ready));
        }
        for frame in frames {
            self.links.send(link, frame);
        }
        self.links.mark(link);
    }

    /// What is to run here could not start: tells the root why, then ends. Call it before the link
    /// to the parent, or to the ancestor that is asked, is attached.
    ///
    /// An ancestor that is asked is told in place of the question: else this node would be there
    /// for a moment, for all who hear who comes and goes, and then lost for no reason.
    pub fn give_up(&mut self, errno: Errno, cause: &str) {
        let (rank, leaves) = (self.config.rank, self.config.leaves.clone());
        let lost = Notice::Lost { by: rank, rank, leaves, errno, cause: cause.to_owned() };
        if let Some(asked) = self.recovery.asking {
            // A question that is partly written cannot be withdrawn.
            if self.links[asked].counters.bytes_out == 0 {
                self.links.unsay(asked);
            }
            self.links.send(asked, control::control(Header::new(Kind::Notice), &lost));
        } else {
            self.notice(Header::new(Kind::Notice), lost);
        }
        self.events.push_back(Event::ParentLost);
    }

    /// At an ancestor: a node that was not taken in says why it does not serve, and ends.
    ///
    /// It may have come in the place of another of its rank. Where that one is here, nothing
    /// changes; where it is waited for, this is the reason when it does not come back. Leaves that
    /// are known to be lost stay lost for the reason that was told first.
    pub(super) fn on_give_up(&mut self, link: LinkId, body: &[u8]) -> Result<(), Violation> {
        let notice: Notice = control::decode(Kind::Notice, body)?;
        let Notice::Lost { rank, leaves, errno, cause, .. } = notice else {
            return Err(Violation::OutOfPlace(Kind::Notice));
        };
        if rank != self.links[link].rank || !leaves.is_subset(&self.links[link].claim) {
            return Err(Violation::Bound("a node speaks for leaves that are not its own"));
        }
        self.links.hang_up(link);
        let mut expected = false;
        for at in self.links.of_rank(rank) {
            let other = &mut self.links[at];
            match &mut other.state {
                LinkState::Awaited(awaited) => {
                    (awaited.errno, awaited.cause) = (errno, cause.clone());
                    expected = true;
                }
                _ => expected |= other.way == LinkWay::Down && other.is_alive(),
            }
        }
        let news = leaves.intersection(&self.config.leaves).difference(&self.below.lost);
        if !expected && !news.is_empty() {
            self.below.lost.union_with(&news);
            let lost = Notice::Lost { by: self.config.rank, rank, leaves: news, errno, cause };
            self.notice(Header::new(Kind::Notice), lost);
        }
        Ok(())
    }

    pub(super) fn session_over(&mut self, link: LinkId) {
        self.links.hang_up(link);
        self.close_streams_of(link);
        // At a root `link` is a client's, and only its own streams end.
        if self.config.role != NodeRole::Root {
            self.recovery.dismissed = true;
            self.abandon();
        }
    }

    /// Tells every child that the session is over.
    pub fn shut_down_children(&mut self) {
        // Children that connect after this are shut down by `child_link`.
        self.recovery.over = true;
        let frame = frame::encode(Header::new(Kind::Shutdown), &[]);
        for at in self.links.ids() {
            if self.links[at].is_live_child() {
                self.links.send(at, frame.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Child, NodeConfig, Time, Tuning};
    use crate::filter::Registry;
    use crate::node::Node;

    const ENOENT: Errno = Errno::NOENT;
    const CAUSE: &str = "its export cannot be opened";

    /// A root of one leaf, of rank 1.
    fn root() -> Node {
        let config = NodeConfig {
            rank: 0,
            role: NodeRole::Root,
            depth: 0,
            leaves: RangeSet::single(0),
            children: vec![Child { rank: 1, leaves: RangeSet::single(0) }],
            stream_base: 0,
            place: Default::default(),
            tuning: Tuning::default(),
        };
        Node::new(config, Registry::with_builtins(), Time(0))
    }

    /// A process of that leaf, which was started while the tree runs.
    fn late(root: &Node) -> Node {
        let (leaves, children) = (RangeSet::single(0), Vec::new());
        let config =
            NodeConfig { rank: 1, role: NodeRole::Leaf, leaves, children, ..root.config.clone() };
        let mut leaf = Node::new(config, Registry::with_builtins(), Time(0));
        leaf.count_on(root.last_epoch(1));
        leaf.begin_late();
        leaf
    }

    /// It calls the root, and cannot serve.
    fn call_in_vain(root: &mut Node) -> LinkId {
        let mut leaf = late(root);
        let link = root.child_link(Time(0), 1, &RangeSet::single(0)).unwrap();
        root.attach(Time(0), link);
        let up = leaf.resume_parent(Time(0));
        leaf.give_up(ENOENT, CAUSE);
        let said: Vec<u8> =
            leaf.output(up).take().iter().flat_map(|piece| piece.to_vec()).collect();
        root.receive(Time(0), link, &said.into()).unwrap();
        assert_eq!(leaf.poll_event(), Some(Event::ParentLost));
        leaf.check().unwrap();
        root.check().unwrap();
        link
    }

    fn notices(root: &mut Node) -> Vec<Notice> {
        let events = std::iter::from_fn(|| root.poll_event());
        events
            .filter_map(|event| if let Event::Notice(notice) = event { Some(notice) } else { None })
            .collect()
    }

    fn lost() -> Notice {
        let (leaves, cause) = (RangeSet::single(0), CAUSE.to_owned());
        Notice::Lost { by: 0, rank: 1, leaves, errno: ENOENT, cause }
    }

    #[test]
    fn relaunched_child_that_cannot_serve_stays_missing() {
        let mut root = root();
        let planned = root.links.of_rank(1)[0];
        root.child_dead(Time(0), planned, ENOENT, CAUSE);
        assert_eq!(notices(&mut root), [lost()]);
        for _ in 0..3 {
            let link = call_in_vain(&mut root);
            assert!(!root.links[link].is_alive());
            assert_eq!(notices(&mut root), [], "it came and went");
            assert_eq!(root.missing_children(), [1]);
        }
    }

    #[test]
    fn failed_replacement_of_an_awaited_child_reports_the_cause() {
        let mut root = root();
        let link = root.links.of_rank(1)[0];
        root.attach(Time(0), link);
        root.link_lost(Time(0), link, Errno::CONNRESET, "closed");
        call_in_vain(&mut root);
        assert_eq!(notices(&mut root), [], "the one before may still come back");
        root.tick(Time(u64::MAX / 2));
        assert_eq!(notices(&mut root), [lost()]);
    }

    #[test]
    fn failed_replacement_of_a_live_child_changes_nothing() {
        let mut root = root();
        let link = root.links.of_rank(1)[0];
        root.attach(Time(0), link);
        call_in_vain(&mut root);
        assert!(root.links[link].is_alive());
        assert_eq!(notices(&mut root), []);
    }
}
