//! When parts of a trace are ended.
use clap::Args;
use sheaf_trace::PartLimits;
use std::time::Duration;

/// When parts of a trace are ended: at whichever comes first.
#[derive(Args, Debug, Clone)]
pub struct PartArgs {
    /// End a part of the trace after so many minutes
    #[arg(long, value_name = "MINUTES", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1440))]
    pub part_minutes: u32,

    /// End a part of the trace once it has so many operations: what came with the last of them is
    /// in it, too
    #[arg(long, value_name = "N", default_value_t = PartLimits::ROWS_MAX)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=PartLimits::ROWS_MAX))]
    pub part_rows: u64,
}

impl PartArgs {
    pub fn limits(&self) -> PartLimits {
        let time_max = Duration::from_secs(u64::from(self.part_minutes) * 60);
        PartLimits { rows_max: self.part_rows, time_max }
    }
}
