//! Records of `tree`.
use crate::exit::Exit;
use serde::{Deserialize, Serialize};
use serde_json::Number;
use std::collections::BTreeMap;

/// tree plan. tree show: the last record, with the fields of the running tree.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "tree")]
pub struct Tree {
    pub nodes: u64,
    pub leaves: u64,
    pub depth: u64,
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub inner_share: f64,
    pub hosts: String,
    /// The tree as a file for --tree file:F.
    pub topology: String,
    #[serde(flatten)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<RunningTree>,
}

/// The state of a running tree.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
pub struct RunningTree {
    pub running: u64,
    pub answered: u64,
    pub torpid: String,
    pub lost: String,
    pub left: String,
    pub silent: String,
    pub reports_dropped: u64,
    pub exit: Exit,
}

/// tree show: a node, its link to its parent, and its own report.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "node")]
pub struct Node {
    pub rank: u64,
    pub host: String,
    pub role: Role,
    pub depth: u64,
    pub state: String,
    pub torpid: bool,
    pub since_ms: Option<u64>,
    pub queued_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<NodeLink>,
    #[serde(flatten)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<NodeReport>,
}

/// The role of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, schemars(inline))]
pub enum Role {
    Root,
    Inner,
    Leaf,
}

/// The link to the parent, as the parent reports it.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
pub struct NodeLink {
    /// The rank of the parent.
    pub parent: u64,
    pub state: String,
    pub since_ms: u64,
    /// The time since the last message.
    pub heard_ms: u64,
    /// Whether both ends are in one process.
    pub local: bool,
    /// The transport.
    pub via: Option<String>,
    pub round_trip_ns: Option<u64>,
    pub round_trip_least_ns: Option<u64>,
    pub clock_offset_ns: Option<i64>,
    pub clock_error_ns: Option<u64>,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub frames_in: u64,
    pub queued_bytes: u64,
    /// Streams with data that waits for this link.
    pub streams_waiting: u64,
    pub reconnects: u64,
}

/// The report of a node.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
pub struct NodeReport {
    pub pid: u64,
    pub uptime_ms: u64,
    pub last_error: LastError,
    /// Connections that the node refused: the number for each reason.
    pub doors: BTreeMap<String, u64>,
    /// Direct links to other hosts that began at this node.
    pub peers: Vec<PeerLink>,
    /// Direct links that other hosts began.
    pub peers_taken: u64,
    pub streams: Vec<NodeStream>,
    pub truncated: Truncated,
}

/// A direct link to another host.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
pub struct PeerLink {
    pub host: String,
    /// The reason why its data goes through the tree.
    pub through_tree: Option<String>,
}

/// A stream at this node.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
pub struct NodeStream {
    pub id: u64,
    pub members: u64,
    pub window_bytes: u64,
    pub credit_up_bytes: u64,
    pub credit_down_bytes: u64,
    pub waves_open: u64,
    pub kept_bytes: u64,
}

/// The numbers of links and streams that the report does not contain.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
pub struct Truncated {
    pub links: u64,
    pub streams: u64,
}

/// tree bench: a measure, with its figures.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "bench")]
pub struct Bench {
    pub measure: Measure,
    pub leaves: u64,
    /// The number of runs.
    pub n: u64,
    #[serde(flatten)]
    pub figures: BTreeMap<String, Number>,
}

/// A measure of tree bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, schemars(inline))]
pub enum Measure {
    Start,
    Rtt,
    Waves,
    Bcast,
    Peer,
}

/// tree simulate: the figures of a run.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "simulation")]
pub struct Simulation {
    pub leaves: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    #[serde(flatten)]
    pub figures: BTreeMap<String, Figure>,
}

/// tree simulate --faults: a fault.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "fault")]
pub struct Fault {
    pub fault: String,
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub virtual_ms: f64,
}

/// tree simulate --faults: the coverage of a wave.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "wave")]
pub struct Wave {
    pub wave: u64,
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub sum: i64,
    pub ok: u64,
    pub missing: u64,
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub virtual_ms: f64,
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub took_ms: f64,
}

/// The last error of a node, or null.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename = "last_error", untagged)]
pub enum LastError {
    None,
    Error { ago_ms: u64, errno: Option<String>, text: String },
}

/// A figure of a simulation.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
#[serde(untagged)]
pub enum Figure {
    Number(Number),
    Truth(bool),
}
