//! How far the rows of a host are stored.
use serde::{Deserialize, Serialize};

/// How far a trace has what one host has recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedHost {
    /// The host.
    pub host: String,
    /// Which directory of that host's it comes from: its random number.
    pub life: u64,
    /// The spool there, and how many of its rows are here; all of those before are.
    pub spool: u32,
    /// See `spool`.
    pub rows: u64,
    /// Operations that there was no room for, by the rows that are here.
    pub lost: u64,
    /// Of those, operations for which there was no ring.
    pub unplaced: u64,
    /// Files whose names there was no room for.
    pub names_lost: u64,
    /// Operations that were done before the trace began, and are not in it.
    pub before: u64,
    /// What was added to the times of its clock last, in ns, and how far off any was at most.
    pub clock_offset_ns: i64,
    /// See `clock_offset_ns`.
    pub clock_error_ns: i64,
}
