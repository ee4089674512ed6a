//! `sheaf read`: one group read, combined by an aggregation.
use super::Addresses;
use crate::cli::GlobalArgs;
use crate::exit::{Exit, Stop};
use crate::size;
use anyhow::Result;
use clap::Args;

/// The aggregations by name; an unknown one is answered with the nearest of these.
pub const AGGREGATIONS: &[&str] = &[
    "concatenate",
    "packed",
    "sum",
    "avg",
    "min",
    "max",
    "equal",
    "zero",
    "count",
    "classes",
    "lines",
    "checksum",
];

/// Read files and combine what they hold into one answer
#[derive(Args, Debug)]
#[command(after_help = "\
Aggregations: concatenate, packed, sum, avg, min, max, equal, zero, count,
classes (equal contents once), lines (equal lines once), checksum.

Examples:
  sheaf read --aggregate avg --column 1 /proc/loadavg
  sheaf read --aggregate classes --count 64 '@web:/etc/machine-id'")]
pub struct ReadArgs {
    #[command(flatten)]
    pub files: Addresses,

    /// How the contents are combined; see below
    #[arg(short, long, value_name = "NAME", default_value = "concatenate", value_parser = aggregation)]
    pub aggregate: String,

    /// Aggregate the numbers in this column of each line, counted from 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub column: Vec<u32>,

    /// Read at most this many bytes of each file (K, M, G understood)
    #[arg(long, value_name = "BYTES", value_parser = size::bytes)]
    pub count: Option<u64>,

    /// Start this many bytes into each file
    #[arg(long, value_name = "BYTES", value_parser = size::bytes, default_value = "0")]
    pub offset: u64,
}

fn aggregation(name: &str) -> Result<String, Stop> {
    if AGGREGATIONS.contains(&name) {
        return Ok(name.to_owned());
    }
    Err(Stop::usage(match crate::config::nearest(name, AGGREGATIONS.iter().copied()) {
        Some(near) => format!("no such aggregation; did you mean {near}?"),
        None => format!("no such aggregation; there are {}", AGGREGATIONS.join(", ")),
    }))
}

/// Reads and combines.
pub fn run(args: &ReadArgs, global: &GlobalArgs) -> Result<Exit> {
    args.files.resolve(&crate::config::Config::load(global)?)?;
    super::needs_a_tree("read")
}
