//! How a running tree is: every node's own report, and counters for a monitoring system.
//!
//! [`Network::survey`](crate::Network::survey) asks every node; [`metrics`] turns what they say
//! into samples with the names and units that Prometheus expects, and [`text`] writes them in its
//! text format.
pub use crate::proto::report::{
    LINKS_REPORTED_MAX, LastError, LinkReport, NodePlace, NodeReport, PeerClock, PeerLinkReport,
    REPORTS_BYTES_MAX, ReportedLink, RoundTrip, STREAMS_REPORTED_MAX, StreamReport, Via,
};
use sheaf_core::RangeSet;
use std::collections::BTreeMap;

mod metric;
mod survey;

pub use metric::{Metric, MetricKind, metrics, text};
pub(crate) use survey::SURVEY;

/// What the nodes of a tree say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Survey {
    /// By rank. A client's own node comes last, with the rank `u32::MAX`.
    pub reports: Vec<NodeReport>,
    /// Nodes that another one knows as its child and that said nothing. (What is below them is not
    /// known here; the session's topology tells.)
    pub missing: RangeSet,
    /// Reports that were dropped on the way for want of room.
    pub dropped: u32,
}

/// A link whose peer is slow to the point of being suspicious, or gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspect {
    /// The node that says so.
    pub by: u32,
    /// The child that is meant.
    pub rank: u32,
    /// How it is.
    pub state: ReportedLink,
    /// It was heard so long ago.
    pub heard_ms: u64,
    /// Bytes that wait for it.
    pub queued_bytes: u64,
}

impl Survey {
    fn new(mut reports: Vec<NodeReport>, dropped: u32) -> Self {
        reports.sort_by_key(|report| report.rank);
        // A node that came to another parent in the middle may be asked twice.
        reports.dedup_by_key(|report| report.rank);
        let answered: RangeSet = reports.iter().map(|report| report.rank).collect();
        let children =
            reports.iter().flat_map(|report| &report.links).filter_map(|link| link.child);
        let missing = children.collect::<RangeSet>().difference(&answered);
        Self { reports, missing, dropped }
    }

    /// The report of one node.
    #[must_use]
    pub fn node(&self, rank: u32) -> Option<&NodeReport> {
        self.reports
            .binary_search_by_key(&rank, |report| report.rank)
            .ok()
            .map(|at| &self.reports[at])
    }

    /// Children whose links are late, stuck or lost, by rank. A child that is lost at one node and
    /// up at another has found a new parent, and is none.
    #[must_use]
    pub fn suspects(&self) -> Vec<Suspect> {
        let mut worst: BTreeMap<u32, Suspect> = BTreeMap::new();
        let mut well = RangeSet::new();
        for report in &self.reports {
            for link in &report.links {
                let Some(rank) = link.child else { continue };
                match link.state {
                    ReportedLink::Up | ReportedLink::Waiting => well.insert(rank),
                    state => {
                        let (by, heard_ms, queued_bytes) =
                            (report.rank, link.heard_ms, link.queued_bytes);
                        worst.insert(rank, Suspect { by, rank, state, heard_ms, queued_bytes });
                    }
                }
            }
        }
        worst.into_values().filter(|suspect| !well.contains(suspect.rank)).collect()
    }
}

#[cfg(test)]
mod tests;
