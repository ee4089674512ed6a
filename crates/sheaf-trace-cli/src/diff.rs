//! `sheaf trace diff`: what two traces spend their time on.
use super::report;
use crate::filter::FilterArgs;
use anyhow::Result;
use clap::Args;
use sheaf_cli::exit::Exit;
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{self, Records, printable};
use sheaf_records::{TraceDiff, TraceDiffRow};
use sheaf_trace::{DiffRow, ReportDiff};
use std::io::Write;
use std::path::PathBuf;

/// Show what takes longer in one trace than in another
///
/// By kinds of I/O, operations and files: what differs by the most time comes first. Traces that
/// record --summary has made will do. Times are of all threads together.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf trace diff good.trace slow.trace
  sheaf trace diff --path '/scratch/**' good.trace slow.trace")]
pub struct DiffArgs {
    /// The trace that is compared with
    #[arg(value_name = "BEFORE")]
    pub before: PathBuf,

    /// The trace that is compared
    #[arg(value_name = "AFTER")]
    pub after: PathBuf,

    #[command(flatten)]
    pub filter: FilterArgs,
}

/// Prints the differences.
pub fn run(args: &DiffArgs, global: &GlobalArgs) -> Result<Exit> {
    let filter = args.filter.filter()?;
    let (before, mut damaged) = report::make(super::directory(&args.before), &filter)?;
    let (after, more) = report::make(super::directory(&args.after), &filter)?;
    damaged.extend(more);
    let diff = ReportDiff::of(&before, &after);
    let mut out = output::stdout();
    if global.json {
        Records::new(global).write(&mut out, &record(&diff))?;
    } else {
        out.write_all(diff.to_text(&before, &after, report::columns()).as_bytes())?;
    }
    out.flush()?;
    for text in &damaged {
        output::tell(format_args!("sheaf: {}", printable(text)));
    }
    Ok(if damaged.is_empty() { Exit::Success } else { Exit::Partial })
}

fn record(diff: &ReportDiff) -> TraceDiff {
    let rows = |rows: &[DiffRow]| {
        let row = |row: &DiffRow| TraceDiffRow {
            name: row.name.clone(),
            count_before: row.before.count,
            count_after: row.after.count,
            bytes_before: row.before.bytes,
            bytes_after: row.after.bytes,
            time_ns_before: row.before.time_ns,
            time_ns_after: row.after.time_ns,
        };
        rows.iter().map(row).collect()
    };
    TraceDiff {
        kinds: rows(&diff.kinds),
        operations: rows(&diff.operations),
        files: rows(&diff.files),
    }
}
