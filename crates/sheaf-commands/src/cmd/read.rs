//! `sheaf read`: one group read, combined by an aggregation.
mod print;

use anyhow::{Result, anyhow};
use clap::Args;
use sheaf_cli::addresses::Addresses;
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::{GlobalArgs, Named};
use sheaf_cli::output::Printer;
use sheaf_cli::session::{self, Ended, Opening};
use sheaf_cli::size;
use sheaf_core::Errno;
use sheaf_group::aggregate::NUMBERS_MAX;
use sheaf_group::message::DataAggregation;
use sheaf_group::{GroupError, Outcome};
use sheaf_tools::ToolError;
use sheaf_tools::entry::ANSWER_BYTES_MAX;
use sheaf_tools::read::{self, ReadOptions};

/// The aggregations by name; an unknown one is answered with the nearest of these.
pub const AGGREGATIONS: [&str; 14] = [
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

concatenate_bytes_max in [tuning] says how many bytes all contents together may
have. checksum, count and zero take files of any length and any number of them,
equal and classes any length within that bound, the others 64 MiB of a file.

All addresses together are one group, and a file that is named twice counts
once. lines shows neither order, repetition nor a missing last newline: where
contents differ in these alone, a line on standard error names the files.

Numbers are fields that are a number as a whole: 17/421 or 5kB is none. Each is
combined with those at the same place, line and column, in the other files; who
has none there is named, and the exit code is 4. Without --column, the text that
all files share is printed with the numbers of its line. --line chooses lines,
so that the same line is met where it has other neighbours. Sums of integers
are exact, up to 128 bits; a sum with floats is the float nearest to the exact
sum; avg is an integer where nothing is left over.

Examples:
  sheaf read --aggregate avg --column 1 /proc/loadavg
  sheaf read --aggregate sum --line '^Mem(Total|Free):' /proc/meminfo
  sheaf read --aggregate classes --count 64 '@web:/etc/machine-id'")]
pub struct ReadArgs {
    #[command(flatten)]
    pub files: Addresses,

    /// How the contents are combined; see below
    #[arg(
        short,
        long,
        value_name = "NAME",
        default_value = "concatenate",
        hide_possible_values = true
    )]
    #[arg(value_parser = Named(aggregation, AGGREGATIONS))]
    pub aggregate: String,

    /// Aggregate only the numbers in this column of each line, counted from 1; may be repeated
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub column: Vec<u32>,

    /// Aggregate only numbers of lines in which this regular expression matches; lines
    /// are then counted among these
    #[arg(long, value_name = "REGEX")]
    pub line: Option<String>,

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
    Err(Stop::usage(match sheaf_session::config::nearest(name, AGGREGATIONS) {
        Some(near) => format!("no such aggregation; did you mean {near}?"),
        None => format!("no such aggregation; there are {}", AGGREGATIONS.join(", ")),
    }))
}

/// The lines that numbers are taken from.
fn lines(args: &ReadArgs) -> Result<Option<String>, Stop> {
    let Some(text) = &args.line else { return Ok(None) };
    let invalid = |why: String| Stop::usage(format!("invalid value '{text}' for '--line': {why}"));
    let aggregate = DataAggregation::by_name(&args.aggregate, &[], 0, 0);
    if !matches!(aggregate, Some(DataAggregation::Numbers { .. })) {
        return Err(invalid("it selects lines of numbers (-a sum, avg, min, max)".to_owned()));
    }
    read::check_lines(text).map_err(invalid)?;
    Ok(Some(text.clone()))
}

/// Reads and combines.
pub fn run(args: &ReadArgs, global: &GlobalArgs) -> Result<Exit> {
    let options = ReadOptions {
        aggregate: args.aggregate.clone(),
        columns: args.column.clone(),
        count: args.count,
        offset: args.offset,
        lines: lines(args)?,
        remarks: true,
    };
    let opening = Opening::new(global)?;
    let targets = args.files.resolve(opening.config())?;
    opening.run(async |session, config, output| {
        let bound = session.client().limits().bytes_max;
        let readouts = read::read(session.client(), &targets, &options).await;
        let readouts = match readouts {
            // Contents differ, and not all could be compared.
            Err(ToolError::Group(GroupError::Differ { classes, outcome })) if !outcome.is_ok() => {
                let ended = Ended::new(&targets, &outcome);
                let exit = session::finish(session, config, output, &ended)?;
                let differ = GroupError::Differ { classes, outcome };
                output.note(Some(&stop_at(differ.into(), bound).to_string()))?;
                return Ok(exit);
            }
            readouts => readouts.map_err(|error| stop_at(error, bound))?,
        };
        let mut printer = Printer::new(output, config.hosts()?);
        let (mut outcome, mut gaps, mut hidden) = (Outcome::default(), Vec::new(), Vec::new());
        for readout in readouts {
            print::readout(&mut printer, &readout)?;
            gaps.extend(print::gaps(&mut printer, &readout));
            hidden.extend(print::hidden(&mut printer, &readout));
            outcome.merge(readout.outcome);
        }
        printer.flush()?;
        if !output.json && !output.quiet {
            gaps.iter().for_each(sheaf_cli::output::tell);
        }
        hidden.iter().try_for_each(|note| output.note(Some(note)))?;
        let extra = sheaf_cli::addresses::reasons(&mut outcome, |errno| reason(errno, &options));
        // A sum that lacks somebody's number is not the sum of all.
        let incomplete = !gaps.is_empty();
        let ended = Ended { extra: &extra, incomplete, ..Ended::new(&targets, &outcome) };
        session::finish(session, config, output, &ended)
    })
}

/// An answer that is too large says which setting bounds it.
fn stop_at(error: ToolError, bound: u64) -> anyhow::Error {
    match error {
        ToolError::Group(GroupError::TooLarge { bytes_max }) if bytes_max == bound => anyhow!(
            "the answers of all hosts need more than {bytes_max} bytes: raise \
             concatenate_bytes_max in [tuning] of sheaf.toml, read less (--count), or see cat, \
             which takes files of any length"
        ),
        error => sheaf_cli::addresses::stop(error),
    }
}

/// What more there is to say of failures.
fn reason(errno: Errno, options: &ReadOptions) -> Option<String> {
    let aggregate = DataAggregation::by_name(&options.aggregate, &[], 0, 0);
    let numbers = matches!(aggregate, Some(DataAggregation::Numbers { .. }));
    let lines = matches!(aggregate, Some(DataAggregation::Lines { .. }));
    let text = match errno {
        Errno::BADMSG if numbers && options.columns.is_empty() => "no field of it is a number",
        Errno::BADMSG if numbers => "no number in the columns that are wanted",
        Errno::OVERFLOW if numbers => {
            "a number needs more than 128 bits, or an exponent beyond 308"
        }
        Errno::MSGSIZE if numbers => {
            return Some(format!("more than {NUMBERS_MAX} numbers; choose columns with --column"));
        }
        Errno::MSGSIZE if lines => {
            return Some(format!(
                "a host answers with at most {} MiB of lines, whatever is set: read less at a \
                 time (--count, --offset), or print them with grep, which takes answers of any \
                 length",
                ANSWER_BYTES_MAX >> 20
            ));
        }
        Errno::MFILE => {
            "these are all open at once; count, zero and checksum take any number of files"
        }
        _ => return None,
    };
    Some(text.to_owned())
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
    fn lines_beyond_the_bound_name_it_and_a_way_around() {
        let of = |name: &str| {
            let options = ReadOptions { aggregate: name.to_owned(), ..ReadOptions::default() };
            reason(Errno::MSGSIZE, &options)
        };
        let text = of("lines").unwrap();
        assert!(
            ["64 MiB of lines", "--count", "grep"].iter().all(|word| text.contains(word)),
            "{text}"
        );
        assert_eq!(of("classes"), None);
    }

    #[test]
    fn other_names_of_aggregations_are_taken_too() {
        for name in ["concat", "mean", "columns", "equivalence"] {
            assert_eq!(aggregation(name).unwrap(), name);
        }
        assert_eq!(
            aggregation("summ").unwrap_err().to_string(),
            "no such aggregation; did you mean sum?"
        );
    }
}
