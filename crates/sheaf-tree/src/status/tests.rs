use super::{ReportedLink, Survey, metrics, text};
use crate::filter::Registry;
use crate::proto::frame::Header;
use crate::proto::{Child, LinkId, Node, NodeConfig, NodeRole, Time, Tuning};
use bytes::Bytes;
use sheaf_core::{Errno, RangeSet};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// A root over an inner node with two leaves and a leaf of its own; ranks 0, 1, 3, 4 and 2.
struct Net {
    nodes: Vec<Node>,
    now: Time,
    /// Ends of each link: node and link above, node and link below.
    joints: Vec<[(usize, LinkId); 2]>,
    stopped: Vec<usize>,
}

impl Net {
    fn new() -> Self {
        let one = RangeSet::single;
        let pair = RangeSet::full(2);
        let kid = |rank, leaves: &RangeSet| Child { rank, leaves: leaves.clone() };
        let plan = [
            (NodeRole::Root, 0, RangeSet::full(3), vec![kid(1, &pair), kid(2, &one(2))]),
            (NodeRole::Inner, 1, pair, vec![kid(3, &one(0)), kid(4, &one(1))]),
            (NodeRole::Leaf, 1, one(2), vec![]),
            (NodeRole::Leaf, 2, one(0), vec![]),
            (NodeRole::Leaf, 2, one(1), vec![]),
        ];
        let tuning = Tuning::default();
        let node = |(rank, (role, depth, leaves, children))| {
            let config = NodeConfig {
                rank,
                role,
                depth,
                leaves,
                children,
                stream_base: 0,
                place: Default::default(),
                tuning,
            };
            let mut node = Node::new(config, Registry::with_builtins(), Time(0));
            node.set_identity(&format!("h{rank}"), 100 + rank);
            node
        };
        let nodes = (0..).zip(plan).map(node).collect();
        let mut net = Self { nodes, now: Time(0), joints: Vec::new(), stopped: Vec::new() };
        for (above, link, below) in [(0, 0, 1), (0, 1, 2), (1, 0, 3), (1, 1, 4)] {
            let link = LinkId::new(link);
            let up = net.nodes[below].add_parent(Time(0));
            net.nodes[above].attach(Time(0), link);
            net.nodes[below].attach(Time(0), up);
            net.joints.push([(above, link), (below, up)]);
        }
        net
    }

    /// Lets everything that waits arrive, a millisecond later.
    fn settle(&mut self) {
        let mut moved = true;
        while std::mem::take(&mut moved) {
            self.now = self.now + Duration::from_millis(1);
            for [above, below] in self.joints.clone() {
                for (from, to) in [(above, below), (below, above)] {
                    if self.stopped.contains(&from.0) {
                        continue;
                    }
                    let bytes: Vec<Bytes> = self.nodes[from.0].output(from.1).take().into();
                    for piece in &bytes {
                        moved = true;
                        self.nodes[from.0].wrote(self.now, from.1, piece.len());
                        if !self.stopped.contains(&to.0) {
                            self.nodes[to.0].receive(self.now, to.1, piece).unwrap();
                        }
                    }
                }
            }
        }
    }

    fn pass(&mut self, seconds: u32) {
        // Shorter than what a node gives its children less than it has itself.
        for _ in 0..seconds * 16 {
            self.now = self.now + SECOND / 16;
            for at in 0..self.nodes.len() {
                if !self.stopped.contains(&at) {
                    self.nodes[at].tick(self.now);
                }
            }
            self.settle();
        }
    }

    /// What those say who can be asked.
    fn survey(&mut self) -> Survey {
        let mut unreached = self.stopped.clone();
        for [(above, _), (below, _)] in &self.joints {
            if unreached.contains(above) {
                unreached.push(*below);
            }
        }
        let asked = (0..self.nodes.len()).filter(|at| !unreached.contains(at));
        Survey::new(asked.map(|at| self.nodes[at].report(self.now)).collect(), 0)
    }
}

#[test]
fn every_node_answers_for_itself() {
    let mut net = Net::new();
    net.pass(3);
    let survey = net.survey();
    let told: Vec<_> =
        survey.reports.iter().map(|node| (node.rank, node.host.as_str(), node.pid)).collect();
    assert_eq!(
        told,
        [(0, "h0", 100), (1, "h1", 101), (2, "h2", 102), (3, "h3", 103), (4, "h4", 104)]
    );
    assert!(survey.missing.is_empty() && survey.suspects().is_empty(), "{survey:?}");
    for link in survey.reports.iter().flat_map(|node| &node.links) {
        // Both directions take a millisecond here.
        let trip = link.round_trip.expect("heartbeats have measured it");
        assert!((1..=4).contains(&(trip.least_ns / 1_000_000)), "{trip:?}");
        assert_eq!(link.state, ReportedLink::Up);
        assert!(link.bytes_in > 0 && link.bytes_out > 0 && link.frames_in > 0);
    }
}

#[test]
fn node_that_stands_still_is_named_by_its_neighbour() {
    let mut net = Net::new();
    net.pass(3);
    net.stopped.push(3);
    net.pass(3);
    let survey = net.survey();
    assert_eq!(survey.missing.to_string(), "3");
    let suspects = survey.suspects();
    let named: Vec<_> = suspects.iter().map(|s| (s.by, s.rank, s.state.is_torpid())).collect();
    assert_eq!(named, [(1, 3, true)], "{suspects:?}");
}

#[test]
fn lost_node_is_missing_and_the_last_error_says_why() {
    let mut net = Net::new();
    net.pass(1);
    net.stopped.push(1);
    net.nodes[0].link_lost(
        net.now,
        LinkId::new(0),
        Errno::HOSTDOWN,
        "its process ended with signal 9",
    );
    let survey = net.survey();
    assert_eq!(survey.missing.to_string(), "1");
    let error = survey.node(0).unwrap().last_error.clone().unwrap();
    assert_eq!(error.text, "node 1: its process ended with signal 9");
}

#[test]
fn metrics_have_prometheus_names_and_one_type_each() {
    let mut net = Net::new();
    net.pass(3);
    let told = text(&metrics(&net.survey()));
    for line in told.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        value.parse::<f64>().unwrap();
        assert!(series.starts_with("sheaf_tree_"), "{line}");
    }
    let sample =
        "sheaf_tree_link_frames_total{host=\"h0\",rank=\"0\",peer=\"1\",direction=\"in\"} ";
    assert!(told.contains(sample), "{told}");
    let types: Vec<&str> = told.lines().filter(|line| line.starts_with("# TYPE")).collect();
    assert!(types.iter().all(|line| told.matches(line).count() == 1));
    assert!(told.contains("\nsheaf_tree_nodes_missing 0\n"), "{told}");
}

#[test]
fn forged_heartbeats_cost_the_peer_its_link() {
    let mut net = Net::new();
    let mut header = Header::new(crate::proto::frame::Kind::Heartbeat).to_bytes();
    header[0] = 3;
    let short = Bytes::from([&header[..], &[1, 2, 3]].concat());
    assert!(net.nodes[0].receive(net.now, LinkId::new(0), &short).is_err());
}
