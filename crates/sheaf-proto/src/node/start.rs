//! A tree starts, says what becomes of its nodes, and ends.
use super::lost::NO_STREAM;
use super::{Event, Node};
use crate::NodeRole;
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
        self.links[link].has_engine |= header.has(flag::ready::ENGINE);
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
        self.events.push_back(Event::Ready(self.below.ready.clone()));
        let ready = control::Ready { leaves: self.below.ready.clone() };
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
        if let Notice::Wants { leaf, service, note } = &notice {
            let short = service.len() <= SERVICE_BYTES_MAX && note.len() <= NOTE_BYTES_MAX;
            if !short || !self.links[link].claim.contains(*leaf) {
                return Err(Violation::Bound("a service wants more than it may"));
            }
        }
        if let Notice::Stranded { leaves, .. } = &notice
            && !leaves.is_subset(&self.links[link].claim)
        {
            return Err(Violation::Bound("a node asks for leaves that are not below it"));
        }
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
                if *rank == self.links[link].rank {
                    self.child_lost(link, Errno::HOSTDOWN);
                }
            }
        }
        self.notice(*header, notice);
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
            let ready = control::Ready { leaves: self.below.ready.clone() };
            frames.push(control::control(self.with_engine(Kind::Ready), &ready));
        }
        for frame in frames {
            self.links.send(link, frame);
        }
        self.links.mark(link);
    }

    /// At a leaf: its service could not start. Tells the root why, then ends.
    pub fn give_up(&mut self, errno: Errno, cause: &str) {
        let (rank, leaves) = (self.config.rank, self.config.leaves.clone());
        let lost = Notice::Lost { by: rank, rank, leaves, errno, cause: cause.to_owned() };
        self.notice(Header::new(Kind::Notice), lost);
        self.events.push_back(Event::ParentLost);
    }

    pub(super) fn session_over(&mut self, link: LinkId) {
        self.links.hang_up(link);
        self.close_streams_of(link);
        if self.config.role != NodeRole::Root {
            self.abandon();
        }
    }

    /// Tells every child that the session is over.
    pub fn shut_down_children(&mut self) {
        self.recovery.over = true;
        let frame = frame::encode(Header::new(Kind::Shutdown), &[]);
        for at in self.links.ids() {
            if self.links[at].is_live_child() {
                self.links.send(at, frame.clone());
            }
        }
    }
}
