//! What can go wrong in a simulated tree.
use super::Shape;
use crate::config::Time;
use std::time::Duration;

/// Something that happens to a node or to the link above a node (named by the lower node's rank).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The process is killed: its links close.
    Kill {
        /// Of which node.
        rank: u32,
    },
    /// A node that is no leaf is asked to go, and goes as it should.
    Retire {
        /// Which node.
        rank: u32,
    },
    /// The machine loses its power: its links fall silent.
    PowerOff {
        /// Of which node.
        rank: u32,
    },
    /// The process is stopped: it does nothing, what is sent to it waits.
    Stop {
        /// Of which node.
        rank: u32,
    },
    /// A stopped process goes on.
    Continue {
        /// Of which node.
        rank: u32,
    },
    /// The link above is reset: what is on its way is lost, both ends learn of it.
    Reset {
        /// Above which node.
        rank: u32,
    },
    /// The cable is cut: what is sent waits.
    Cut {
        /// Above which node.
        rank: u32,
    },
    /// A process that has ended is started again, on a machine that has power: an inner node with
    /// none of the leaves below it. It goes to the nearest of its ancestors that runs.
    Restart {
        /// Which node.
        rank: u32,
    },
    /// As [`Fault::Restart`], but what is to run there does not: it says so, and ends.
    RestartInVain {
        /// Which node.
        rank: u32,
    },
    /// All cables of the node are cut: what is sent waits, and nobody gets through to it.
    Isolate {
        /// Which node.
        rank: u32,
    },
    /// The cables are mended before either end has given up (or not; then it is too late).
    Mend {
        /// Above which node.
        rank: u32,
    },
    /// From now on everything takes longer.
    Slow {
        /// Above which node.
        rank: u32,
        /// By how much.
        by: Duration,
    },
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Kill { rank } => write!(f, "node {rank} is killed"),
            Self::Retire { rank } => write!(f, "node {rank} goes"),
            Self::PowerOff { rank } => write!(f, "node {rank} has no power"),
            Self::Stop { rank } => write!(f, "node {rank} is stopped"),
            Self::Continue { rank } => write!(f, "node {rank} goes on"),
            Self::Reset { rank } => write!(f, "the link above node {rank} is reset"),
            Self::Cut { rank } => write!(f, "the cable above node {rank} is cut"),
            Self::Restart { rank } => write!(f, "node {rank} is started again"),
            Self::RestartInVain { rank } => write!(f, "node {rank} is started again in vain"),
            Self::Isolate { rank } => write!(f, "all cables of node {rank} are cut"),
            Self::Mend { rank } => write!(f, "the cables of node {rank} are mended"),
            Self::Slow { rank, by } => write!(f, "the link above node {rank} is slow by {by:?}"),
        }
    }
}

/// The source of chance for [`random`].
#[must_use]
pub fn rng(seed: u64) -> fastrand::Rng {
    fastrand::Rng::with_seed(seed)
}

/// `count` random faults within `span`, none of them to the root itself. What is stopped or cut is
/// often continued or mended later, sometimes after its neighbours have given it up; inner nodes
/// that have ended are often started again.
#[must_use]
pub fn random(
    shape: &Shape,
    rng: &mut fastrand::Rng,
    count: u32,
    span: Duration,
) -> Vec<(Time, Fault)> {
    strike(shape, rng, count, span, |rng| rng.u32(1..shape.nodes()))
}

/// As [`random`], but every other fault strikes a node with others below it, of which a large tree
/// has few.
#[must_use]
pub fn random_inner(
    shape: &Shape,
    rng: &mut fastrand::Rng,
    count: u32,
    span: Duration,
) -> Vec<(Time, Fault)> {
    let inner: Vec<u32> = (1..shape.nodes()).filter(|&rank| shape.leaf(rank).is_none()).collect();
    strike(shape, rng, count, span, |rng| {
        let inner = rng.bool().then(|| rng.choice(&inner)).flatten();
        inner.copied().unwrap_or_else(|| rng.u32(1..shape.nodes()))
    })
}

fn strike(
    shape: &Shape,
    rng: &mut fastrand::Rng,
    count: u32,
    span: Duration,
    whom: impl Fn(&mut fastrand::Rng) -> u32,
) -> Vec<(Time, Fault)> {
    let mut faults = Vec::new();
    let span_ns = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX).max(1);
    for _ in 0..count {
        let rank = whom(rng);
        let at = Time(rng.u64(0..span_ns));
        let later = at + Duration::from_millis(rng.u64(1..12_000));
        let healed = rng.u8(0..4) > 0;
        let again = shape.leaf(rank).is_none().then_some(Fault::Restart { rank });
        let (fault, after) = match rng.u8(0..8) {
            0 => (Fault::Kill { rank }, again),
            1 => (Fault::PowerOff { rank }, again),
            2 => (Fault::Reset { rank }, None),
            3 | 4 => (Fault::Stop { rank }, Some(Fault::Continue { rank })),
            5 => (Fault::Cut { rank }, Some(Fault::Mend { rank })),
            6 => (Fault::Isolate { rank }, Some(Fault::Mend { rank })),
            _ => (Fault::Slow { rank, by: Duration::from_micros(rng.u64(1..300_000)) }, None),
        };
        faults.push((at, fault));
        faults.extend(after.filter(|_| healed).map(|fault| (later, fault)));
    }
    faults
}
