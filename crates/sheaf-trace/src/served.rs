//! Traces of many hosts: programs record into a directory of their host, the host's server takes it
//! from there, and what all servers have is combined on the way to whoever stores it.
//!
//! ```text
//! programs ── rings ──> server: spool ── batch, a wave ──> inner nodes: merge ──> root: store
//! ```
//! A server keeps what it has taken until whoever stores it has said that it is stored. Both ends
//! keep what they have in spools, so either may be killed at any moment: what rings have committed is
//! stored once.
mod store;

pub use sheaf_log::served::{
    BatchFilter, BatchPart, COLLECT, ClockSample, CollectRequest, HostClock, HostPlace, LIVE,
    LIVE_SECONDS_MAX, LiveAnswer, LiveBy, LiveFilter, LiveRequest, LiveSums, LogClients, RowFilter,
    TRACE_LIVE, TRACE_MERGE, TRACE_SERVICE, TraceBatch, is_collected, shared_segments,
};
pub use store::{KeptRows, ServedStore, ServedTotals};
