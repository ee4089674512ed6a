//! One wave over a simulated tree, and what it took.
use super::{Leaves, Physics, Shape, Sim, SimConfig};
use crate::control::Sync;
use crate::filter::Registry;
use crate::node::{Node, Packet};
use crate::packet::{PacketValue, pack, put_scalar};
use bytes::Bytes;
use serde::Serialize;
use std::time::{Duration, Instant};

/// No simulated wave without faults takes this long.
const WAVE_TIMEOUT: Duration = Duration::from_secs(3600);

/// How many kinds of contents differ from the common one in [`SimOperation::equivalence`].
pub const OTHER_CLASSES: u32 = 7;

/// What every leaf is asked and how the answers are combined.
pub struct SimOperation {
    /// Name of the filter.
    pub filter: String,
    /// Its parameters.
    pub params: Vec<u8>,
    /// What the root sends.
    pub request: Vec<u8>,
    answer: Box<dyn Fn(u32) -> Vec<u8>>,
}

impl SimOperation {
    /// Any filter, with the packet that each leaf answers.
    pub fn new(filter: &str, params: &[u8], answer: impl Fn(u32) -> Vec<u8> + 'static) -> Self {
        let answer = Box::new(answer);
        Self { filter: filter.to_owned(), params: params.to_vec(), request: Vec::new(), answer }
    }

    /// The sum of the leaves' numbers.
    #[must_use]
    pub fn sum() -> Self {
        Self::new("sum", b"%uld", |leaf| packet_of(u64::from(leaf)))
    }

    /// Which leaves have the same contents: almost all of them; every 997th has its own kind of
    /// [`OTHER_CLASSES`].
    #[must_use]
    pub fn equivalence() -> Self {
        Self::new("bytes-eq-class", b"", |leaf| {
            let class = if leaf % 997 == 996 { 1 + leaf / 997 % OTHER_CLASSES } else { 0 };
            let values =
                [PacketValue::U32(leaf), format!("digest of contents {class:08}").as_str().into()];
            pack(&values).expect("two values make a packet")
        })
    }
}

/// What a simulated wave took.
#[derive(Debug, Clone, Serialize)]
pub struct SimReport {
    /// Nodes in all.
    pub nodes: u32,
    /// Leaves among them.
    pub leaves: u32,
    /// Nodes that are neither the root nor leaves.
    pub inner_nodes: u32,
    /// Their share of all nodes.
    pub inner_share: f64,
    /// Links between the root and the furthest leaf.
    pub depth: u32,
    /// Virtual time until every node has reported that it runs.
    pub ready_ns: u64,
    /// Virtual time from opening the stream to the result at the root.
    pub wave_ns: u64,
    /// Real time for building the tree and starting it.
    pub real_start_ms: u64,
    /// Real time for the wave.
    pub real_wave_ms: u64,
    /// Pieces that were sent at once, for the stream and its wave.
    pub messages: u64,
    /// Frames taken in.
    pub frames: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Frames that the root took in.
    pub root_frames_in: u64,
    /// Bytes that the root took in.
    pub root_bytes_in: u64,
    /// Bytes of the result.
    pub result_bytes: usize,
    /// The result.
    #[serde(skip)]
    pub result: Bytes,
}

/// Why a simulation has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// The tree did not start, or the wave never ended.
    #[error("the simulated tree came to rest without a result")]
    Stuck,
    /// Some leaves are missing from a wave without faults.
    #[error("{0} of the simulated leaves are not in the result")]
    Missing(u64),
    /// The filter had nothing to say.
    #[error("the filter gave no result: {0}")]
    Filter(String),
}

fn packet_of(number: u64) -> Vec<u8> {
    let mut packet = Vec::with_capacity(16);
    put_scalar(number, &mut packet);
    packet
}

struct Answers<'a>(&'a SimOperation);

impl Leaves for Answers<'_> {
    fn packet(&mut self, leaf: u32, packet: &Packet, node: &mut Node) {
        if packet.last {
            node.reply(packet.stream, packet.wave, packet.tag, &(self.0.answer)(leaf));
        }
    }
}

/// Runs one wave of `operation` over a tree without faults.
///
/// # Errors
/// [`SimError`]: always a bug of the filter or the protocol.
pub fn simulate(
    shape: &Shape,
    operation: &SimOperation,
    registry: &Registry,
    physics: Physics,
    seed: u64,
) -> Result<SimReport, SimError> {
    let begun = Instant::now();
    // Without faults no peer falls silent, so heartbeats would only add events.
    let config = SimConfig { physics, heartbeats: false, ..SimConfig::seeded(seed) };
    let mut sim = Sim::new(shape.clone(), registry.clone(), Answers(operation), config);
    while sim.ready().is_none() {
        if !sim.step() {
            return Err(SimError::Stuck);
        }
    }
    let (real_start, ready, before) = (begun.elapsed(), sim.now(), sim.traffic());
    let root_before = sim.root_traffic();
    let begun = Instant::now();
    let stream = sim.open(shape.everyone(), &operation.filter, &operation.params, Sync::WaitForAll);
    sim.send(stream, 0, &operation.request, Some(WAVE_TIMEOUT));
    let wave = sim.wait(stream).ok_or(SimError::Stuck)?;
    let missing = wave.coverage.missing().len();
    let complaint = sim.notices().first().map(|notice| format!("{notice:?}"));
    // Before the missing leaves, which the complaint explains.
    if let Some(complaint) = complaint {
        return Err(SimError::Filter(complaint));
    }
    if missing > 0 {
        return Err(SimError::Missing(missing));
    }
    let result = wave.payload.ok_or_else(|| SimError::Filter("no data".to_owned()))?;
    let (after, root_after) = (sim.traffic(), sim.root_traffic());
    let inner_nodes = shape.nodes() - shape.leaves() - 1;
    Ok(SimReport {
        nodes: shape.nodes(),
        leaves: shape.leaves(),
        inner_nodes,
        inner_share: f64::from(inner_nodes) / f64::from(shape.nodes()),
        depth: shape.depth(),
        ready_ns: ready.0,
        wave_ns: sim.now().0 - ready.0,
        real_start_ms: real_start.as_millis() as u64,
        real_wave_ms: begun.elapsed().as_millis() as u64,
        messages: after.messages - before.messages,
        frames: after.frames - before.frames,
        bytes: after.bytes - before.bytes,
        root_frames_in: root_after.0 - root_before.0,
        root_bytes_in: root_after.1 - root_before.1,
        result_bytes: result.len(),
        result,
    })
}
