//! `sheaf trace recover`: the rest of a recording that was killed.
use super::record;
use crate::cli::GlobalArgs;
use crate::exit::{Exit, Stop};
use crate::output::{self, printable};
use anyhow::Result;
use clap::Args;
use sheaf_trace::served::ServedStore;
use sheaf_trace::{KeepLimits, PartLimits, TraceInfo, TraceStore};
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
        return Err(Stop::usage(printable(&text)).into());
    };
    // How the program of a recorder that was killed has ended is not known.
    if info.ended_ns != 0 && info.buffers.is_none() && !TraceStore::has_spools(&args.trace)? {
        let path = printable(&args.trace.display().to_string());
        let state = match info.unwritten {
            0 => " is whole".to_owned(),
            unwritten => format!(
                ": nothing more can be recovered; {unwritten} operations could not be stored"
            ),
        };
        output::tell(format_args!("sheaf: {path}{state}"));
        return Ok(Exit::Success);
    }
    if info.is_served {
        return end_served(args, info, global);
    }
    let totals = sheaf_trace::recover(&args.trace)?;
    if let Some(error) = &totals.error {
        // What is still in memory stays there, and so does what is said of it.
        let text = format!("{error}: what could not be stored stays where it is for another try");
        output::tell(format_args!("sheaf: {}", printable(&text)));
        return Ok(Exit::Partial);
    }
    // What a recording that has ended says of its losses stays true.
    let is_killed = info.ended_ns == 0;
    info.missing.retain(|text| is_killed || !text.starts_with(record::NOT_WHOLE));
    if is_killed {
        info.missing.push("its recorder was killed".to_owned());
        let programs = info.segments.max(totals.segments);
        record::note(&mut info, &totals);
        (info.segments, info.ended_ns) = (programs, record::now_ns());
    } else {
        info.operations = totals.rows;
    }
    info.buffers = None;
    info.write(&args.trace)?;
    if !global.quiet {
        record::tell(&info, &args.trace);
    }
    Ok(if totals.is_damaged { Exit::Partial } else { Exit::Success })
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
