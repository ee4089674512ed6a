//! What an address comes to.
use sheaf_core::RangeSet;

/// A path or pattern on each of these hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The hosts' leaves.
    pub members: RangeSet,
    /// Path or pattern beneath their exports.
    pub path: String,
}
