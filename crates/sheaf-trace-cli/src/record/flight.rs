//! A program recorded as by a flight recorder: what led to something out of the ordinary is kept.
use super::{RecordArgs, child, may_preload, now_ns, places, set_preload, tell_blind};
use crate::times::milliseconds;
use anyhow::Result;
use clap::Args;
use sheaf_cli::exit::io_text;
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{self, printable};
use sheaf_session::config::own_name;
use sheaf_trace::{
    BlindSpot, FLIGHT_VARIABLE, FlightOptions, FlightRecording, FlightSnapshot, FlightTotals,
    TraceError, TraceInfo,
};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

/// What a flight recorder keeps.
#[derive(Args, Debug, Clone)]
pub struct FlightArgs {
    /// Keep the last operations of each thread in memory, and store them when something is out of
    /// the ordinary: the program fails, an operation is slow (--slow-ms), or `sheaf trace snapshot`
    /// asks. Each time is a trace, DIR/1, DIR/2, ... [default: NAME.flight]
    #[arg(long, conflicts_with_all = ["served", "kernel"])]
    pub flight: bool,

    /// With --flight: an operation that takes so long is out of the ordinary
    #[arg(long, value_name = "MS", requires = "flight", allow_negative_numbers = true)]
    #[arg(value_parser = milliseconds)]
    pub slow_ms: Option<Duration>,

    /// With --slow-ms: so often at most
    #[arg(long, value_name = "N", default_value_t = 10, requires = "slow_ms")]
    pub snapshots: u32,
}

/// Runs the program; gives its exit code.
pub fn run(
    args: &RecordArgs,
    global: &GlobalArgs,
    program: &Path,
    library: &places::Library,
    blind: Option<&BlindSpot>,
) -> Result<i32> {
    let store = places::make_store(args.output.as_deref(), &args.command[0], "flight")?;
    let segments = places::make_segments(&args.buffers)?;
    sheaf_trace::note_trace(segments.path(), &store)?;
    let mut info = TraceInfo {
        command: args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        host: own_name(),
        begun_ns: now_ns(),
        buffers: Some(segments.path().to_owned()),
        ..TraceInfo::default()
    };
    tell_blind(program, blind, &mut info);
    let options = FlightOptions {
        segments: segments.path().to_owned(),
        store: store.clone(),
        slow: args.flight.slow_ms,
        slow_snapshots_max: args.flight.snapshots,
        info: info.clone(),
    };
    let mut command = Command::new(program);
    command.arg0(&args.command[0]).args(&args.command[1..]);
    let _held = library.hold()?;
    if may_preload(blind) {
        set_preload(&mut command, args, library, segments.path())?;
        command.env(FLIGHT_VARIABLE, options.variable());
    }
    let is_quiet = global.quiet;
    let recording = FlightRecording::begin(options, move |made| tell_snapshot(made, is_quiet))?;
    let asker = recording.asker();
    let ended = child::run(&mut command, Some(&|| asker.ask()));
    let (code, reason) = match ended {
        Ok((status, _)) => (code_of(status), why_failed(status)),
        Err(error) => {
            let text = io_text(program, &error);
            output::tell(format_args!("sheaf: cannot run {}", printable(&text)));
            (places::NOT_RUN, None)
        }
    };
    let totals = recording.finish(reason);
    info.ended_ns = now_ns();
    info.exit_code = Some(code);
    end(info, &totals, &store, &args.flight, is_quiet)?;
    Ok(code)
}

fn code_of(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// Why a program's end is out of the ordinary.
fn why_failed(status: ExitStatus) -> Option<String> {
    match (status.code(), status.signal()) {
        (Some(0), _) => None,
        (Some(code), _) => Some(format!("the command ended with exit code {code}")),
        (None, Some(signal)) => Some(format!("the command was ended by signal {signal}")),
        (None, None) => Some("the command ended".to_owned()),
    }
}

fn tell_snapshot(made: Result<&FlightSnapshot, &TraceError>, is_quiet: bool) {
    match made {
        Ok(snapshot) if !is_quiet => {
            let reason = printable(snapshot.info.trigger.as_deref().unwrap_or_default());
            let path = printable(&snapshot.path.display().to_string());
            match snapshot.info.operations {
                0 => output::tell(format_args!(
                    "sheaf: {reason}: {path} has no operation, as none was done since it began, or since \
                     the snapshot before"
                )),
                1 => output::tell(format_args!(
                    "sheaf: {reason}: the last operation is in {path}; sheaf trace report {path}"
                )),
                count => output::tell(format_args!(
                    "sheaf: {reason}: the last {count} operations are in {path}; sheaf trace report {path}"
                )),
            }
        }
        Ok(_) => {}
        Err(error) => {
            let why = error.to_string();
            output::tell(format_args!("sheaf: a snapshot could not be made: {}", printable(&why)));
        }
    }
}

/// A directory without snapshots is taken away.
fn end(
    mut info: TraceInfo,
    totals: &FlightTotals,
    store: &Path,
    args: &FlightArgs,
    is_quiet: bool,
) -> Result<()> {
    info.buffers = None;
    info.segments = totals.segments;
    info.still_run = totals.still_run as u64;
    info.unwritten = totals.unwritten;
    if totals.unwritten > 0 {
        let why = totals.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
        let text = format!(
            "{} operations could not be stored, as no snapshot could be made{why}",
            totals.unwritten
        );
        output::tell(format_args!("sheaf: {}", printable(&text)));
        info.missing.push(text);
    }
    info.write(store)?;
    if totals.passed_over > 0 {
        let (count, most) = (totals.passed_over, args.snapshots);
        output::tell(format_args!(
            "sheaf: {count} times more an operation was slow, after {most} snapshots (--snapshots N)"
        ));
    }
    if totals.still_run > 0 {
        output::tell(format_args!("sheaf: {}", super::go_on(totals.still_run)));
    }
    if totals.snapshots > 0 || totals.error.is_some() {
        return Ok(());
    }
    if !is_quiet {
        output::tell(format_args!("sheaf: nothing was out of the ordinary, and nothing is kept"));
    }
    let path: PathBuf = store.join(sheaf_trace::INFO_FILE);
    std::fs::remove_file(path)?;
    Ok(std::fs::remove_dir(store)?)
}
