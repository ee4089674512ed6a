//! `sheaf read`: one group read, combined by an aggregation.
mod print;

use super::Addresses;
use crate::cli::GlobalArgs;
use crate::exit::{Exit, Stop};
use crate::output::Printer;
use crate::session::{self, Ended, Opening};
use crate::size;
use anyhow::Result;
use clap::Args;
use sheaf_group::Outcome;
use sheaf_group::message::DataAggregation;
use sheaf_tools::read::{self, ReadOptions};

/// The aggregations by name; an unknown one is answered with the nearest of these.
pub const AGGREGATIONS: &[&str] = &[
    "concatenate",
    "packed",
    "sum",
    "avg",
    "average",
    "min",
    "max",
    "equal",
    "zero",
    "count",
    "classes",
    "contents",
    "lines",
    "checksum",
];

/// Read files and combine what they hold into one answer
#[derive(Args, Debug)]
#[command(after_help = "\
Aggregations: concatenate, packed, sum, avg, min, max, equal, zero, count,
classes (equal contents once), lines (equal lines once), checksum.
Without --count, contents are concatenated without gaps; with it, each has a
place of that many bytes.

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
    // Only whether there is one of this name matters here, not what it is given.
    if DataAggregation::by_name(name, &[], 0, 0).is_some() {
        return Ok(name.to_owned());
    }
    Err(Stop::usage(match crate::config::nearest(name, AGGREGATIONS.iter().copied()) {
        Some(near) => format!("no such aggregation; did you mean {near}?"),
        None => format!("no such aggregation; there are {}", AGGREGATIONS.join(", ")),
    }))
}

/// Reads and combines.
pub fn run(args: &ReadArgs, global: &GlobalArgs) -> Result<Exit> {
    let options = ReadOptions {
        aggregate: args.aggregate.clone(),
        columns: args.column.clone(),
        count: args.count,
        offset: args.offset,
    };
    let opening = Opening::new(global)?;
    let targets = args.files.resolve(&opening.config)?;
    opening.run(async |connected, config, output| {
        let readouts = read::read(&connected.session, &targets, &options).await.map_err(super::stop)?;
        let mut printer = Printer::new(output, config.hosts()?);
        let mut outcome = Outcome::default();
        for readout in readouts {
            print::readout(&mut printer, &readout)?;
            outcome.merge(readout.outcome);
        }
        printer.flush()?;
        session::finish(connected, config, output, &Ended::new(&targets, &outcome))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_that_is_offered_is_an_aggregation() {
        for name in AGGREGATIONS {
            assert!(DataAggregation::by_name(name, &[], 0, 0).is_some(), "{name}");
        }
    }

    #[test]
    fn other_names_of_aggregations_are_taken_too() {
        for name in ["concat", "mean", "columns", "equivalence"] {
            assert_eq!(aggregation(name).unwrap(), name);
        }
        assert_eq!(aggregation("summ").unwrap_err().to_string(), "no such aggregation; did you mean sum?");
    }
}
