//! What holds of a node between any two calls. The simulator looks after every step: what breaks a
//! rule here is wrong long before a wave shows it.
//!
//! Costs a pass over all links and open waves, so that nothing else calls it.
use super::Node;
use super::adopt::LINKS_MAX;
use super::orphan::UNSENT_MAX;
use crate::STREAMS_MAX;
use crate::config::{NodeRole, Time};
use crate::links::{Link, LinkState, LinkWay};
use crate::stream::{ChildState, NodeStream, StreamOwner};
use sheaf_core::RangeSet;

impl Node {
    /// Looks whether everything that must hold between two calls does.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(&self) -> Result<(), String> {
        self.check_links()?;
        self.check_leaves()?;
        self.check_recovery()?;
        rule!(self.streams.len() <= STREAMS_MAX, "{} streams are open", self.streams.len());
        for (&id, stream) in &self.streams {
            self.check_stream(id, stream).map_err(|what| format!("stream {id}: {what}"))?;
            stream.check(self.config.role).map_err(|what| format!("stream {id}: {what}"))?;
        }
        Ok(())
    }

    /// Each link is in one state, and a dead one holds nothing that waits for it.
    fn check_links(&self) -> Result<(), String> {
        rule!(self.links.len() <= LINKS_MAX, "{} links", self.links.len());
        self.links.check()?;
        for (at, link) in self.links.ids().zip(self.links.iter()) {
            let state = match link.way {
                LinkWay::Down => !matches!(link.state, LinkState::Asking),
                LinkWay::Up => {
                    matches!(link.state, LinkState::Member | LinkState::Asking | LinkState::Lost)
                }
            };
            rule!(state, "link {at}: {:?} is {:?}", link.way, link.state);
            let idle = link.carry.is_empty() && link.waiting.is_empty() && link.out().is_empty();
            rule!(link.is_alive() || idle, "link {at} is dead, and something waits for it");
            rule!(
                link.way == LinkWay::Up || link.leaves().is_subset(&link.claim),
                "link {at} holds leaves beyond its claim"
            );
            rule!(
                !matches!(link.state, LinkState::Knocking) || link.leaves().is_empty(),
                "link {at} knocks and has leaves"
            );
        }
        Ok(())
    }

    /// Each leaf of the node is on one of its links.
    fn check_leaves(&self) -> Result<(), String> {
        let own = &self.config.leaves;
        if self.config.role != NodeRole::Leaf {
            let mut all = RangeSet::new();
            for link in self.links.down().map(|(_, link)| link) {
                rule!(
                    all.is_disjoint(link.leaves()),
                    "two links have {}",
                    all.intersection(link.leaves())
                );
                all.union_with(link.leaves());
            }
            rule!(all == *own, "its links have {all}, and it has {own}");
        }
        rule!(
            self.below.lost.is_subset(own),
            "it has lost {}, which are not its own",
            self.below.lost.difference(own)
        );
        let ready = &self.below.ready;
        rule!(ready.is_subset(own), "ready are {}, which are not its own", ready.difference(own));
        Ok(())
    }

    /// Whatever is waited for ends: by a time, or because somebody is asked whose link is watched.
    fn check_recovery(&self) -> Result<(), String> {
        // An earlier timer is correct too: `recover` sets it again for everything that remains.
        let by = |due: Time| self.timers.recovery.is_some_and(|at| at <= due);
        for (at, link) in self.links.ids().zip(self.links.iter()) {
            match &link.state {
                LinkState::Awaited(awaited) => {
                    rule!(
                        by(awaited.until),
                        "link {at} is awaited, and nobody looks when that is over"
                    );
                }
                LinkState::Knocking => {
                    let until = link.since + self.config.tuning.heartbeat_timeout;
                    rule!(by(until), "link {at} knocks, and nobody looks when that is over");
                }
                LinkState::Pending(_) => {
                    rule!(
                        self.is_asked_for(at),
                        "link {at} waits for leaves, and no job is about it"
                    )
                }
                LinkState::Member | LinkState::Lost | LinkState::Asking => {}
            }
        }
        self.check_jobs()?;
        if self.recovery.orphan.is_some() {
            rule!(
                self.recovery.unsent.len() <= UNSENT_MAX,
                "{} notices wait for a parent",
                self.recovery.unsent.len()
            );
            rule!(
                self.timers.recovery.is_some(),
                "it looks for a parent, and nobody looks when that is over"
            );
        }
        if let Some(asking) = self.recovery.asking {
            let link = &self.links[asking];
            let asks = link.is_alive() && matches!(link.state, LinkState::Asking);
            rule!(asks, "it asks on link {asking}, which is {link:?}");
        } else if let Some(parent) =
            self.recovery.parent.filter(|_| self.recovery.orphan.is_none() && !self.has_ended())
        {
            let link = &self.links[parent];
            rule!(link.is_alive() && link.is_member(), "it has a parent, which is {link:?}");
        }
        Ok(())
    }

    fn check_stream(&self, id: u32, stream: &NodeStream) -> Result<(), String> {
        if let StreamOwner::Link(owner) = stream.owner {
            rule!(self.links[owner].way == LinkWay::Up, "it belongs to a child");
            // While a node looks for a parent, its streams are its last one's.
            let there =
                self.links[owner].is_alive() || self.recovery.orphan.is_some() || self.has_ended();
            rule!(there, "it belongs to a link that is gone");
            let sends = self.links[owner].is_alive() && stream.can_send_up();
            rule!(
                !sends || self.links[owner].waiting.contains(&id),
                "what waits for its owner has been forgotten"
            );
        }
        for at in stream.members().ids() {
            let member = &stream.members()[at];
            let (on, link) = (member.link, &self.links[member.link]);
            rule!(stream.child(on) == Some(at), "two of its children are on link {on}");
            let here = link.leaves().intersection(stream.members().all());
            rule!(
                here == *member.leaves,
                "its child {at} has {}, and its link {here}",
                member.leaves
            );
            let there = !member.takes_part() || is_there(link);
            rule!(there, "its child {at} takes part, and link {on} is {:?}", link.state);
            let reached = matches!(member.state, ChildState::Here | ChildState::Joining);
            rule!(
                !reached || link.is_member(),
                "its child {at} is {:?} on link {on}, which is {:?}",
                member.state,
                link.state
            );
            let sends = stream.can_send_down(at);
            rule!(
                !sends || link.waiting.contains(&id),
                "what waits for its child {at} has been forgotten"
            );
        }
        if let Some(timer) = stream.up.timer {
            rule!(
                self.timers.streams.is_some_and(|at| at <= timer),
                "nobody looks when its time is over"
            );
        }
        Ok(())
    }

    /// Whether it has told its process to end.
    fn has_ended(&self) -> bool {
        self.recovery.over
            || self.recovery.disbanded
            || self.recovery.parent.is_some_and(|parent| {
                !self.links[parent].is_alive() && self.recovery.orphan.is_none()
            })
    }
}

/// Whether the leaves of a child are there or waited for.
fn is_there(link: &Link) -> bool {
    link.is_alive() || matches!(link.state, LinkState::Awaited(_))
}
