//! `sheaf trace replay`: what a trace did, done again on other files.
use super::whole;
use anyhow::Result;
use clap::Args;
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{self, Records, printable};
use sheaf_records::{ReplayedOperation, SkippedOperations, TraceReplay};
use sheaf_trace::TraceInfo;
use sheaf_trace::replay::{Replay, ReplayOptions, ReplayOutcome, ReplaySkip, ReplaySpeed};
use std::io::Write;
use std::path::PathBuf;

/// Do the file operations of a trace again, in another directory
///
/// Files are made below the directory with the same names and lengths, without their data, and
/// nothing outside of it is touched: links are not followed. It has to be empty, or from an
/// earlier replay.
///
/// `was ms` is the time that operations took when they were recorded, `is ms` that of the same calls
/// now. An operation differed that has failed otherwise, or has moved another number of bytes.
/// Exit status: 0 where all was as recorded, 1 where operations differed or none could be done, 4
/// where the trace is not whole.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf trace replay tar.trace /mnt/new/replay
  sheaf trace replay --speed max --only /srv tar.trace /mnt/new/replay")]
pub struct ReplayArgs {
    /// The directory of a trace, or one of its files
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,

    /// Where to: a directory that is empty, from an earlier replay, or not there yet
    #[arg(value_name = "DIR")]
    pub into: PathBuf,

    /// How fast: 1 as it was recorded, 10 ten times as fast, max without pauses
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = speed)]
    pub speed: ReplaySpeed,

    /// Only files below this, whose names are taken from there on
    #[arg(long, value_name = "PREFIX")]
    pub only: Option<PathBuf>,
}

fn speed(text: &str) -> Result<ReplaySpeed, String> {
    match text {
        "max" => Ok(ReplaySpeed::Unpaced),
        "1" => Ok(ReplaySpeed::AsRecorded),
        _ => {
            let factor =
                text.parse().ok().filter(|factor: &f64| factor.is_finite() && *factor > 0.0);
            factor
                .map(ReplaySpeed::Factor)
                .ok_or_else(|| "neither a factor above 0 nor max".to_owned())
        }
    }
}

/// Does it again, and says what came of it.
pub fn run(args: &ReplayArgs, global: &GlobalArgs) -> Result<Exit> {
    let trace = super::directory(&args.trace);
    let info = if trace.is_dir() { TraceInfo::read(trace)? } else { None };
    let unwhole = whole(trace, info.as_ref())?;
    let Some(reader) = super::open(trace, info.as_ref())? else {
        let text = format!("{} has no operation: nothing was done", trace.display());
        return Err(Stop::Unmatched(printable(&text)).into());
    };
    let mut options = ReplayOptions::new(&args.into);
    (options.speed, options.from_prefix, options.create) = (args.speed, args.only.clone(), true);
    let outcome = Replay::new(options)?.run(&reader)?;
    let mut out = output::stdout();
    if global.json {
        Records::new(global).write(&mut out, &record(&outcome))?;
    } else {
        write_text(&outcome, &mut out)?;
    }
    out.flush()?;
    let unread: Vec<String> = outcome.damaged.iter().map(ToString::to_string).collect();
    for text in unread.iter().chain(&unwhole) {
        output::tell(format_args!("sheaf: {}", printable(text)));
    }
    let is_whole = unread.is_empty() && unwhole.is_none() && outcome.lost == 0;
    if outcome.issued() == 0 {
        let below = args.only.as_deref().map(|prefix| format!(" below {}", prefix.display()));
        let text = format!(
            "nothing was done: the trace has no operation{} that can be",
            below.unwrap_or_default()
        );
        output::tell(format_args!("sheaf: {}", printable(&text)));
    }
    Ok(match (is_whole, outcome.differed()) {
        (false, _) => Exit::Partial,
        (true, 0) if outcome.issued() > 0 => Exit::Success,
        (true, _) => Exit::Unmatched,
    })
}

fn write_text(outcome: &ReplayOutcome, out: &mut impl Write) -> std::io::Result<()> {
    let ms = |ns: u128| ns as f64 / 1e6;
    writeln!(
        out,
        "{:<16}{:>12}{:>12}{:>14}{:>14}",
        "operation", "done", "differed", "was ms", "is ms"
    )?;
    for (op, sum) in &outcome.ops {
        let (was, is) = (ms(sum.recorded_ns), ms(sum.replayed_ns));
        writeln!(out, "{op:<16}{:>12}{:>12}{was:>14.3}{is:>14.3}", sum.count, sum.differed)?;
    }
    let is_other = |why: ReplaySkip| why == ReplaySkip::OutsidePrefix;
    for ((why, op), count) in outcome.skipped.iter().filter(|((why, _), _)| !is_other(*why)) {
        writeln!(out, "not done: {count} {}: {why}", printable(op))?;
    }
    let others = outcome.skipped.iter().filter(|((why, _), _)| is_other(*why));
    let others: u64 = others.map(|(_, count)| count).sum();
    if others > 0 {
        writeln!(out, "not done: {others} that are not below the prefix (--only)")?;
    }
    for difference in &outcome.differences {
        let path = printable(&String::from_utf8_lossy(&difference.path));
        let of = |(errno, bytes): (i32, i64)| match errno {
            0 => format!("{bytes} bytes"),
            errno => sheaf_core::Errno(errno).to_string(),
        };
        let (was, is) = (of(difference.recorded), of(difference.replayed));
        writeln!(out, "differed: {} {path}: was {was}, is {is}", difference.op)?;
    }
    let untold = outcome.differed().saturating_sub(outcome.differences.len() as u64);
    if untold > 0 {
        writeln!(out, "differed: and {untold} more")?;
    }
    if outcome.lost > 0 {
        writeln!(out, "not done: {} that the trace has not kept", outcome.lost)?;
    }
    writeln!(
        out,
        "operations: {}, threads: {}, {:.3} s; files made before: {}",
        outcome.issued(),
        outcome.threads,
        outcome.took.as_secs_f64(),
        outcome.files_made
    )
}

fn record(outcome: &ReplayOutcome) -> TraceReplay {
    let operations = outcome.ops.iter().map(|(op, sum)| ReplayedOperation {
        op: (*op).to_owned(),
        count: sum.count,
        differed: sum.differed,
        bytes_recorded: sum.bytes_recorded as u64,
        bytes_replayed: sum.bytes_replayed as u64,
        recorded_ns: sum.recorded_ns as u64,
        replayed_ns: sum.replayed_ns as u64,
    });
    let skipped = outcome.skipped.iter().map(|((why, op), count)| SkippedOperations {
        op: op.clone(),
        why: why.to_string(),
        count: *count,
    });
    TraceReplay {
        operations: operations.collect(),
        skipped: skipped.collect(),
        lost: outcome.lost as u64,
        threads: outcome.threads,
        files_made: outcome.files_made,
        took_ns: outcome.took.as_nanos() as u64,
    }
}
