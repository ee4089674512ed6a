//! Counters and gauges of a survey, named as Prometheus wants them: base units, `_total` on what
//! only grows, one family for what differs in a label.
use super::{LinkReport, NodeReport, ReportedLink, Survey};
use std::fmt::Write;

/// One family of samples.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// `sheaf_tree_link_bytes_total` and the like.
    pub name: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// How it behaves.
    pub kind: MetricKind,
    /// Labels and values.
    pub samples: Vec<(Vec<(&'static str, String)>, f64)>,
}

/// How the values of a family behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// They only grow, until the process starts anew.
    Counter,
    /// They go up and down.
    Gauge,
}

type Labels = Vec<(&'static str, String)>;

/// What is told of each link: name, help, kind, and the values with the label that sets them apart.
type OfLink =
    (&'static str, &'static str, MetricKind, fn(&LinkReport) -> Vec<(&'static str, Option<f64>)>);

const OF_LINKS: [OfLink; 8] = [
    ("sheaf_tree_link_bytes_total", "Bytes over a link.", MetricKind::Counter, |link| {
        vec![("in", Some(link.bytes_in as f64)), ("out", Some(link.bytes_out as f64))]
    }),
    (
        "sheaf_tree_link_frames_total",
        "Frames that came over a link.",
        MetricKind::Counter,
        |link| vec![("in", Some(link.frames_in as f64))],
    ),
    (
        "sheaf_tree_link_queued_bytes",
        "Bytes that wait to be written to a link.",
        MetricKind::Gauge,
        |link| vec![("out", Some(link.queued_bytes as f64))],
    ),
    (
        "sheaf_tree_link_streams_waiting",
        "Streams with data that waits for a link.",
        MetricKind::Gauge,
        |link| vec![("out", Some(f64::from(link.streams_waiting)))],
    ),
    (
        "sheaf_tree_link_reconnects_total",
        "Transports attached to a link after its first.",
        MetricKind::Counter,
        |link| vec![("", Some(f64::from(link.reconnects)))],
    ),
    (
        "sheaf_tree_link_heard_seconds",
        "Time since the peer of a link was heard.",
        MetricKind::Gauge,
        |link| vec![("", Some(link.heard_ms as f64 / 1e3))],
    ),
    (
        "sheaf_tree_link_round_trip_seconds",
        "Smoothed round trip of heartbeats.",
        MetricKind::Gauge,
        |link| vec![("", link.round_trip.map(|trip| trip.smoothed_ns as f64 / 1e9))],
    ),
    (
        "sheaf_tree_link_clock_offset_seconds",
        "The peer's clock less the node's.",
        MetricKind::Gauge,
        |link| vec![("", link.clock.map(|clock| clock.offset_ns as f64 / 1e9))],
    ),
];

/// What is told of each node.
type OfNode = (&'static str, &'static str, MetricKind, fn(&NodeReport) -> f64);

const OF_NODES: [OfNode; 4] = [
    ("sheaf_tree_node_uptime_seconds", "For how long a node has run.", MetricKind::Gauge, |node| {
        node.uptime_ms as f64 / 1e3
    }),
    ("sheaf_tree_node_queued_bytes", "Bytes that wait in a node.", MetricKind::Gauge, |node| {
        node.queued_bytes as f64
    }),
    ("sheaf_tree_node_streams", "Streams open at a node.", MetricKind::Gauge, |node| {
        node.streams.len() as f64 + f64::from(node.streams_more)
    }),
    (
        "sheaf_tree_node_waves_open",
        "Waves that are not over at a node.",
        MetricKind::Gauge,
        |node| node.streams.iter().map(|stream| f64::from(stream.waves_open)).sum(),
    ),
];

/// The families of a survey that have samples.
#[must_use]
pub fn metrics(survey: &Survey) -> Vec<Metric> {
    let mut all: Vec<Metric> = OF_NODES
        .into_iter()
        .map(|(name, help, kind, value)| {
            let sample = |node: &NodeReport| (of_node(node), value(node));
            Metric { name, help, kind, samples: survey.reports.iter().map(sample).collect() }
        })
        .collect();
    all.extend(OF_LINKS.into_iter().map(|family| of_links(survey, family)));
    all.push(Metric {
        name: "sheaf_tree_link_up",
        help: "Whether the peer of a link is there and not late.",
        kind: MetricKind::Gauge,
        samples: each_link(survey, |link| {
            vec![("", Some(f64::from(u8::from(link.state == ReportedLink::Up))))]
        }),
    });
    let doors =
        survey.reports.iter().flat_map(|node| node.doors.iter().map(move |door| (node, door)));
    let samples = doors.map(|(node, (name, count))| {
        let mut labels = of_node(node);
        labels.push(("outcome", name.clone()));
        (labels, *count as f64)
    });
    let help = "Connections at a node's door.";
    let name = "sheaf_tree_door_connections_total";
    all.push(Metric { name, help, kind: MetricKind::Counter, samples: samples.collect() });
    let (name, help) = ("sheaf_tree_nodes_missing", "Nodes that did not answer.");
    let missing = survey.missing.len() as f64;
    all.push(Metric { name, help, kind: MetricKind::Gauge, samples: vec![(Vec::new(), missing)] });
    all.retain(|metric| !metric.samples.is_empty());
    all
}

fn of_node(node: &NodeReport) -> Labels {
    let rank = if node.rank == u32::MAX { "client".to_owned() } else { node.rank.to_string() };
    vec![("host", node.host.clone()), ("rank", rank)]
}

fn of_links(survey: &Survey, (name, help, kind, values): OfLink) -> Metric {
    Metric { name, help, kind, samples: each_link(survey, values) }
}

fn each_link(
    survey: &Survey,
    values: impl Fn(&LinkReport) -> Vec<(&'static str, Option<f64>)>,
) -> Vec<(Labels, f64)> {
    let mut samples = Vec::new();
    for node in &survey.reports {
        // The root's links to its clients come and go, and have no name that lasts.
        let clients = node.place == super::NodePlace::Root;
        for link in node.links.iter().filter(|link| link.child.is_some() || !clients) {
            let peer = link.child.map_or("parent".to_owned(), |rank| rank.to_string());
            for (direction, value) in values(link) {
                let Some(value) = value else { continue };
                let mut labels = of_node(node);
                labels.push(("peer", peer.clone()));
                if !direction.is_empty() {
                    labels.push(("direction", direction.to_owned()));
                }
                samples.push((labels, value));
            }
        }
    }
    samples
}

/// The metrics in Prometheus' text format.
#[must_use]
pub fn text(metrics: &[Metric]) -> String {
    let mut out = String::new();
    for Metric { name, help, kind, samples } in metrics {
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
        };
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in samples {
            out.push_str(name);
            for (at, (label, text)) in labels.iter().enumerate() {
                let _ =
                    write!(out, "{}{label}=\"{}\"", if at == 0 { '{' } else { ',' }, escaped(text));
            }
            let _ = writeln!(out, "{} {value}", if labels.is_empty() { "" } else { "}" });
        }
    }
    out
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
