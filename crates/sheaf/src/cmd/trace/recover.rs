//! `sheaf trace recover`: the rest of a recording that was killed.
use super::record;
use crate::cli::GlobalArgs;
use crate::exit::{Exit, Stop};
use anyhow::Result;
use clap::Args;
use sheaf_trace::served::ServedStore;
use sheaf_trace::{KeepLimits, PartLimits, TraceInfo};
use std::path::PathBuf;

/// Make a whole trace of one whose recorder was killed
///
/// What a program has recorded outlives the recorder and the program: it is in memory, or in the
/// trace's directory, until it is stored. This stores it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf trace recover make.trace")]
pub struct RecoverArgs {
    /// The directory of the trace
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
}

/// Stores what is left.
pub fn run(args: &RecoverArgs, global: &GlobalArgs) -> Result<Exit> {
    let Some(mut info) = TraceInfo::read(&args.trace)? else {
        let text = format!("{} is no trace of sheaf trace record", args.trace.display());
        return Err(Stop::usage(text).into());
    };
    let is_ended = if info.is_served { info.ended_ns != 0 } else { info.exit_code.is_some() };
    if is_ended && info.buffers.is_none() {
        crate::output::tell(format_args!("sheaf: {} is whole", args.trace.display()));
        return Ok(Exit::Success);
    }
    if info.is_served {
        return end_served(args, info, global);
    }
    let totals = sheaf_trace::recover(&args.trace)?;
    info.buffers = None;
    info.missing.push("its recorder was killed".to_owned());
    record::note(&mut info, &totals);
    info.write(&args.trace)?;
    if !global.quiet {
        record::tell(&info, &args.trace);
    }
    Ok(if totals.error.is_some() { Exit::Partial } else { Exit::Success })
}

/// Of a trace of many hosts: what they have still is for whoever serves again.
fn end_served(args: &RecoverArgs, mut info: TraceInfo, global: &GlobalArgs) -> Result<Exit> {
    let (parts, keep) = (PartLimits::default(), KeepLimits::default());
    let served = ServedStore::open(&args.trace, parts, keep)?.finish();
    (info.served, info.removed) = (served.hosts, served.removed);
    info.ended_ns = record::now_ns();
    info.missing = vec![
        "whoever served it was killed: what hosts had recorded meanwhile is in it once sheaf trace \
         serve has gone on with it"
            .to_owned(),
    ];
    record::note_totals(&mut info, &served.totals);
    info.write(&args.trace)?;
    if !global.quiet {
        record::tell(&info, &args.trace);
    }
    Ok(if served.totals.error.is_some() { Exit::Partial } else { Exit::Success })
}
