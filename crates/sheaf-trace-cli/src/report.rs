//! `sheaf trace report`: what a trace tells.
use super::whole;
use crate::filter::FilterArgs;
use anyhow::{Context, Result};
use clap::Args;
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{self, Records, printable};
use sheaf_trace::served::RowFilter;
use sheaf_trace::{
    RemovedParts, ReportData, ReportOptions, TraceInfo, TraceNames, TraceReport, TracedRun,
};
use std::fs::File;
use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

/// Columns where standard output is no terminal.
const COLUMNS: usize = 80;
/// The most that lines are drawn out to.
const COLUMNS_MAX: usize = 160;

/// Tell what a trace shows: findings first, then sums by file, process and operation
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf trace report tar.trace
  sheaf trace report --html tar.html tar.trace
  sheaf trace report --path '/scratch/**' --op write tar.trace
  sheaf trace report --json tar.trace | jq .report.findings")]
pub struct ReportArgs {
    /// The directory of a trace, or one of its files
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,

    /// Write a page for the browser instead, which needs nothing beside it: over an older one, and
    /// over nothing else
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    #[command(flatten)]
    pub filter: FilterArgs,
}

/// Prints the report, or writes its page.
pub fn run(args: &ReportArgs, global: &GlobalArgs) -> Result<Exit> {
    args.html.as_deref().map_or(Ok(()), check_page)?;
    let (report, damaged) = make(super::directory(&args.trace), &args.filter.filter()?)?;
    if let Some(path) = &args.html {
        std::fs::write(path, report.to_html())
            .with_context(|| printable(&path.display().to_string()))?;
    }
    let mut out = output::stdout();
    if global.json {
        let report = serde_json::to_value(report)
            .with_context(|| format!("{}: its numbers are too large", args.trace.display()))?;
        Records::new(global).write(&mut out, &sheaf_records::TraceReport { report })?;
    } else if args.html.is_none() {
        out.write_all(report.to_text(columns()).as_bytes())?;
    }
    out.flush()?;
    for text in &damaged {
        output::tell(format_args!("sheaf: {}", printable(text)));
    }
    Ok(if damaged.is_empty() { Exit::Success } else { Exit::Partial })
}

/// That what is there of that name, if anything, is a page.
fn check_page(path: &Path) -> Result<()> {
    const BEGIN: &[u8] = b"<!DOCTYPE html>";
    // A pipe or a device is written to as it is.
    if !path.is_file() {
        return Ok(());
    }
    let mut begin = Vec::new();
    let read =
        File::open(path).and_then(|file| file.take(BEGIN.len() as u64).read_to_end(&mut begin));
    read.with_context(|| printable(&path.display().to_string()))?;
    if begin == BEGIN || begin.is_empty() {
        return Ok(());
    }
    let text = format!("--html: {} is there, and is no page: nothing was written", path.display());
    Err(Stop::usage(printable(&text)).into())
}

/// The report of a trace, and what of it could not be read.
pub fn make(trace: &Path, filter: &RowFilter) -> Result<(ReportData, Vec<String>)> {
    let info = if trace.is_dir() { TraceInfo::read(trace)? } else { None };
    let mut damaged = Vec::from_iter(whole(trace, info.as_ref())?);
    if let Some(info) = &info
        && let Some(data) = info.read_summary(trace)?
    {
        if !filter.is_open() {
            let text =
                format!("{}: of a summary no operations can be picked: {filter}", trace.display());
            return Err(Stop::usage(printable(&text)).into());
        }
        return Ok((finished(data, Some(info), filter, &damaged), damaged));
    }
    let (mut names, mut report) =
        (TraceNames::default(), TraceReport::new(ReportOptions::default()));
    let mut removed = info.as_ref().map(|info| info.removed).unwrap_or_default();
    if let Some(reader) = super::open(trace, info.as_ref())? {
        // More may have been removed since.
        removed = reader.removed();
        let mut ready = filter.ready().map_err(Stop::usage)?;
        let unread = reader.read(&mut names, |row, names| {
            if filter.is_open() || ready.lets(row, names) {
                report.add(row, names);
            }
            Ok(())
        })?;
        damaged.extend(unread.iter().map(ToString::to_string));
    }
    report.know_run(info.as_ref().and_then(run_of));
    if let Some(info) = &info {
        report.know_losses(info.lost.saturating_sub(removed.lost), info.unwritten);
    }
    let mut data = report.finish(&names);
    if filter.is_open() {
        damaged.extend(gone(&data, info.as_ref(), removed));
    }
    data.removed = removed;
    if trace.is_dir() {
        data.notes.extend(super::snapshots(trace)?);
    }
    Ok((finished(data, info.as_ref(), filter, &damaged), damaged))
}

/// With what is known of the recording.
fn finished(
    mut data: ReportData,
    info: Option<&TraceInfo>,
    filter: &RowFilter,
    damaged: &[String],
) -> ReportData {
    data.run = info.and_then(run_of);
    let recorded = info.and_then(|info| info.filter.clone());
    let own = (!filter.is_open()).then(|| filter.to_string());
    let both: Vec<String> = recorded.into_iter().chain(own).collect();
    data.filter = (!both.is_empty()).then(|| both.join(" "));
    data.notes.extend(info.into_iter().flat_map(|info| info.missing.clone()));
    data.notes.extend(damaged.iter().cloned());
    data
}

/// What was run: of a trace of many hosts the command is not what was recorded.
fn run_of(info: &TraceInfo) -> Option<TracedRun> {
    let is_one = !info.is_served && !info.command.is_empty();
    is_one.then(|| TracedRun {
        command: info.command.join(" "),
        begun_ns: info.begun_ns,
        ended_ns: info.ended_ns,
        exit_code: info.exit_code,
        signal: info.signal,
    })
}

/// What is not there any more of a trace that was whole.
fn gone(data: &ReportData, info: Option<&TraceInfo>, removed: RemovedParts) -> Option<String> {
    let info = info.filter(|info| info.ended_ns != 0 && info.buffers.is_none())?;
    // More may have been removed since that was written down.
    let known = info.operations.checked_sub(removed.operations - info.removed.operations)?;
    let gone = known.checked_sub(data.rows).filter(|gone| *gone > 0)?;
    Some(format!("{gone} of the {known} operations that were stored are not there any more"))
}

/// How wide what is printed may be.
pub fn columns() -> usize {
    let out = std::io::stdout();
    if !out.is_terminal() {
        return COLUMNS;
    }
    let size = rustix::termios::tcgetwinsize(&out);
    let columns = size.map_or(COLUMNS, |size| usize::from(size.ws_col));
    // Some terminals do not say.
    if columns == 0 { COLUMNS } else { columns.min(COLUMNS_MAX) }
}

/// A usage error of a path that is no trace.
pub fn no_trace(path: &Path) -> anyhow::Error {
    let why = if matches!(path.try_exists(), Ok(false)) {
        "there is nothing of that name"
    } else if path.is_dir() {
        "there is no trace.json, and no trace-*.parquet"
    } else {
        "it is no directory that sheaf trace record has made, and no Parquet file of one"
    };
    let text = format!("{} is no trace: {why}", path.display());
    Stop::usage(printable(&text)).into()
}
