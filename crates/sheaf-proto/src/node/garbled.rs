//! Leaves whose answers do not decode.
//!
//! The client that has asked sees it, and sends a frame down; the node that has the link to the
//! leaf counts. Its second such answer closes the link. The frame is taken from a parent only, and
//! from no guest of a session: a client that may command the hosts may also dismiss one.
use super::Node;
use crate::config::Time;
use crate::control::{self, Garbled, Notice};
use crate::frame::{Header, Kind, Violation};
use sheaf_core::{Errno, RangeSet};

/// How many answers of a leaf may be malformed until its link is closed.
const GARBLED_MAX: u32 = 2;

impl Node {
    /// Answers of `leaves` do not decode, as a parent reports.
    ///
    /// May name leaves that are not below this node any more, which are passed over.
    pub(super) fn on_garbled(&mut self, now: Time, body: &[u8]) -> Result<(), Violation> {
        let garbled: Garbled = control::decode(Kind::Garbled, body)?;
        self.report_garbled(now, &garbled.leaves);
        Ok(())
    }

    /// An answer of each of `leaves` does not decode. The node that has the link to such a leaf
    /// tells the root, and closes the link the second time.
    pub fn report_garbled(&mut self, now: Time, leaves: &RangeSet) {
        for link in self.links.holding(leaves) {
            if !self.links[link].is_live_child() || !self.links[link].is_member() {
                continue;
            }
            let theirs = self.links[link].leaves().intersection(leaves);
            // A node that is no leaf has a leaf of its own beside those below it.
            if self.links[link].leaves().len() > 1 {
                let garbled = Garbled { leaves: theirs };
                self.links.send(link, control::control(Header::new(Kind::Garbled), &garbled));
                continue;
            }
            self.links[link].garbled += 1;
            let by = self.config.rank;
            self.notice(Header::new(Kind::Notice), Notice::Garbled { by, leaves: theirs });
            if self.links[link].garbled >= GARBLED_MAX && !self.links[link].is_inside() {
                let cause = "its answers do not decode, so its link was closed";
                self.link_lost(now, link, Errno::PROTO, cause);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Child, NodeConfig, NodeRole, Tuning};
    use crate::filter::Registry;
    use crate::node::Event;

    fn node(role: NodeRole, leaves: u32) -> Node {
        let child = |leaf| Child { rank: leaf + 1, leaves: RangeSet::single(leaf) };
        let config = NodeConfig {
            rank: 0,
            role,
            depth: 0,
            leaves: RangeSet::full(leaves),
            children: (0..leaves).map(child).collect(),
            stream_base: 0,
            place: Default::default(),
            tuning: Tuning::default(),
        };
        let mut node = Node::new(config, Registry::with_builtins(), Time(0));
        for leaf in 0..leaves {
            let link = node.links.of_rank(leaf + 1)[0];
            node.attach(Time(0), link);
        }
        node
    }

    fn notices(node: &mut Node) -> Vec<Notice> {
        let notice = |event| if let Event::Notice(notice) = event { Some(notice) } else { None };
        std::iter::from_fn(|| node.poll_event()).filter_map(notice).collect()
    }

    #[test]
    fn second_malformed_answer_closes_the_link_of_its_leaf() {
        let mut root = node(NodeRole::Root, 3);
        let (one, both) = (RangeSet::single(1), RangeSet::from_range(1, 3));
        root.report_garbled(Time(0), &one);
        let told = |leaf| Notice::Garbled { by: 0, leaves: RangeSet::single(leaf) };
        assert_eq!(notices(&mut root), [told(1)]);
        root.report_garbled(Time(0), &both);
        let told = notices(&mut root);
        let lost: Vec<_> = told
            .iter()
            .filter_map(|notice| match notice {
                Notice::Lost { leaves, errno, cause, .. } => Some((leaves, *errno, cause.as_str())),
                _ => None,
            })
            .collect();
        let cause = "its answers do not decode, so its link was closed";
        assert_eq!(lost, [(&one, Errno::PROTO, cause)], "{told:?}");
        assert_eq!(told.len(), 3);
        // What is lost is passed over.
        root.report_garbled(Time(0), &one);
        assert_eq!(notices(&mut root), []);
        root.check().unwrap();
    }
}
