//! Reports at a leaf.
use super::ReportChoice;
use super::check::Checks;
use super::contents::Contents;
use super::digest::Digests;
use super::list::Lister;
use super::stat::Stats;
use super::usage::UsageReport;
use crate::paths::{AtWork, PerPath};
use serde::{Deserialize, Serialize};
use sheaf_core::Errno;
use sheaf_group::tool::{Host, Running, Tool};

/// Name of the tool.
pub const NAME: &str = "report";

/// What every leaf is told.
#[derive(Debug, Serialize, Deserialize)]
pub struct ReportParams {
    pub report: ReportChoice,
    /// Paths and patterns beneath the export.
    pub paths: Vec<String>,
}

pub struct ReportTool;

impl Tool for ReportTool {
    fn only_reads(&self) -> bool {
        true
    }

    fn start(&self, params: &[u8], _: &Host) -> Result<Box<dyn Running>, Errno> {
        let ReportParams { report, paths } =
            postcard::from_bytes(params).map_err(|_| Errno::PROTO)?;
        let work: Box<dyn PerPath> = match report {
            ReportChoice::List(options) => Box::new(Lister::new(options)),
            ReportChoice::Stat(options) => Box::new(Stats::new(options)?),
            ReportChoice::Usage(options) => Box::new(UsageReport::new(options, &paths)?),
            ReportChoice::Digest(algorithm) => Box::new(Digests::new(algorithm)),
            ReportChoice::Contents => Box::new(Contents),
            ReportChoice::Check(options) => Box::new(Checks::new(options)),
        };
        Ok(Box::new(AtWork::new(work, paths)))
    }
}
