//! `sheaf trace recover`: the rest of a recording that was killed.
use super::record;
use anyhow::{Result, bail};
use clap::Args;
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{self, Records, printable};
use sheaf_records::{TraceBuffers, TraceBuffersState, TraceProcess};
use sheaf_trace::served::ServedStore;
use sheaf_trace::{
    KeepLimits, LeftRecording, LeftState, PartLimits, TraceInfo, TraceStore, TraceWriter,
};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Programs that are just ending are waited for so long.
const AFTERMATH: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(10);
/// So many of the processes that go on are named.
const NAMED_MAX: usize = 8;

/// Make a whole trace of one whose recorder was killed
///
/// What a program has recorded outlives the recorder and the program: it is in memory, or in the
/// trace's directory, until it is stored. This stores it, once the program and all that it has
/// started have ended.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf trace recover make.trace
  sheaf trace recover --list")]
pub struct RecoverArgs {
    /// The directory of the trace
    #[arg(value_name = "TRACE", required_unless_present = "list")]
    pub trace: Option<PathBuf>,

    /// Print what recordings keep in memory that is not stored yet, and change nothing
    #[arg(long, conflicts_with_all = ["trace", "now"])]
    pub list: bool,

    /// Where recordings keep it (trace record --buffers)
    #[arg(long, value_name = "DIR", default_value = "/dev/shm", requires = "list")]
    pub buffers: PathBuf,

    /// Store what there is though programs go on: what they do from now on is not recorded
    #[arg(long)]
    pub now: bool,
}

/// Stores what is left.
pub fn run(args: &RecoverArgs, global: &GlobalArgs) -> Result<Exit> {
    let Some(trace) = &args.trace else { return list(&args.buffers, global) };
    let trace = super::directory(trace);
    let info = if trace.is_dir() { TraceInfo::read(trace)? } else { None };
    let Some(mut info) = info else { return Err(no_recording(trace)) };
    // How the program of a recorder that was killed has ended is not known.
    if info.ended_ns != 0 && info.buffers.is_none() && !TraceStore::has_spools(trace)? {
        let path = printable(&trace.display().to_string());
        let state = match (info.unwritten, info.still_run) {
            (0, 0) => " is whole".to_owned(),
            (0, 1) => ": nothing more can be recovered; a process went on unrecorded".to_owned(),
            (0, run) => {
                format!(": nothing more can be recovered; {run} processes went on unrecorded")
            }
            (unwritten, _) => format!(
                ": nothing more can be recovered; {unwritten} operations could not be stored"
            ),
        };
        output::tell(format_args!("sheaf: {path}{state}"));
        return Ok(Exit::Success);
    }
    if info.is_served {
        return end_served(trace, info, global);
    }
    if !args.now {
        check_ended(trace)?;
    }
    let totals = sheaf_trace::recover(trace)?;
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
    info.write(trace)?;
    if !global.quiet {
        record::tell(&info, trace);
        if let Some(snapshots) = super::snapshots(trace)? {
            output::tell(format_args!("sheaf: {}", printable(&snapshots)));
        }
    }
    Ok(if totals.is_damaged { Exit::Partial } else { Exit::Success })
}

/// Prints what recordings keep, one line each; what cannot be looked at is named.
fn list(buffers: &Path, global: &GlobalArgs) -> Result<Exit> {
    let (recordings, failed) = sheaf_trace::left_recordings(buffers)?;
    let mut out = output::stdout();
    for recording in &recordings {
        if global.json {
            Records::new(global).write(&mut out, &record_of(recording))?;
        } else {
            writeln!(out, "{}", printable(&line_of(recording)))?;
        }
    }
    out.flush()?;
    for error in &failed {
        output::tell(format_args!("sheaf: {}", printable(&error.to_string())));
    }
    if recordings.is_empty() && failed.is_empty() && !global.quiet && !global.json {
        let place = printable(&buffers.display().to_string());
        output::tell(format_args!("sheaf: {place}: no recording of yours keeps anything there"));
    }
    Ok(if failed.is_empty() { Exit::Success } else { Exit::Partial })
}

/// `/dev/shm/sheaf-trace-x (4.1 MiB): …`.
fn line_of(recording: &LeftRecording) -> String {
    let trace = recording.trace.as_ref().map(|trace| trace.display().to_string());
    let of = trace.as_ref().map_or(String::new(), |trace| format!(", of {trace}"));
    let state = match (&recording.state, &trace) {
        (LeftState::Taken, _) => "is being recorded".to_owned(),
        (LeftState::Written(writers), Some(trace)) => format!(
            "its recorder was killed, and {} on: sheaf trace recover {trace} after the end",
            named(writers)
        ),
        (LeftState::Written(writers), None) => {
            format!("nobody takes what is recorded, and {} on", named(writers))
        }
        (LeftState::Left(count), Some(trace)) => format!(
            "its recorder was killed, {count} operations are not stored: sheaf trace recover {trace}"
        ),
        (LeftState::Left(count), None) => format!(
            "{count} operations of a trace that was removed or moved: sheaf trace recover stores them, if it is \
             somewhere; else sheaf clean --recordings removes them"
        ),
    };
    let (buffers, size) = (recording.buffers.display(), sheaf_trace::units::size(recording.bytes));
    format!("{buffers} ({size}{of}): {state}")
}

fn record_of(recording: &LeftRecording) -> TraceBuffers {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let (state, writers, operations) = match &recording.state {
        LeftState::Taken => (TraceBuffersState::Taken, &[][..], None),
        LeftState::Written(writers) => (TraceBuffersState::Written, &writers[..], None),
        LeftState::Left(count) => (TraceBuffersState::Left, &[][..], Some(*count)),
    };
    let process =
        |writer: &TraceWriter| TraceProcess { pid: writer.pid, program: writer.program.clone() };
    TraceBuffers {
        buffers: text(&recording.buffers),
        trace: recording.trace.as_deref().map(text),
        bytes: recording.bytes,
        state,
        writers: writers.iter().map(process).collect(),
        operations,
    }
}

/// A usage error of what no recorder has left.
fn no_recording(path: &Path) -> anyhow::Error {
    let why = match path.try_exists() {
        Ok(false) => "there is nothing of that name",
        _ if path.is_dir() => "there is no trace.json in it",
        _ => "it is no directory",
    };
    let text = format!(
        "{} is no trace that sheaf trace record has begun: {why}; say its directory, as NAME.trace",
        path.display()
    );
    Stop::usage(printable(&text)).into()
}

/// That no program records any more: whatever it did later would be lost.
fn check_ended(trace: &Path) -> Result<()> {
    let until = Instant::now() + AFTERMATH;
    loop {
        let writers = sheaf_trace::writers_of(trace)?;
        if writers.is_empty() {
            return Ok(());
        }
        if Instant::now() >= until {
            let path = trace.display();
            let text = format!(
                "{path}: {} on: recover it after the end, so that nothing is left out; --now stores \
                 what there is, and what is done from then on is not recorded",
                named(&writers)
            );
            bail!("{}", printable(&text));
        }
        std::thread::sleep(LOOK);
    }
}

/// `process 7 (dd) goes`, `processes 7 (dd), 9 (sh) go`.
fn named(writers: &[TraceWriter]) -> String {
    let one = |writer: &TraceWriter| format!("{} ({})", writer.pid, writer.program);
    let names: Vec<String> = writers.iter().take(NAMED_MAX).map(one).collect();
    let names = names.join(", ");
    match writers.len() {
        1 => format!("process {names} goes"),
        count if count > NAMED_MAX => {
            format!("processes {names} and {} more go", count - NAMED_MAX)
        }
        _ => format!("processes {names} go"),
    }
}

/// Of a trace of many hosts: what they have still is for whoever serves again.
fn end_served(trace: &Path, mut info: TraceInfo, global: &GlobalArgs) -> Result<Exit> {
    let (parts, keep) = (PartLimits::default(), KeepLimits::default());
    let served = ServedStore::open(trace, parts, keep)?.finish();
    (info.served, info.removed) = (served.hosts, served.removed);
    info.ended_ns = record::now_ns();
    info.missing = vec![
        "whoever served it was killed: what hosts had recorded meanwhile is in it once sheaf trace \
         serve has gone on with it"
            .to_owned(),
    ];
    record::note_totals(&mut info, &served.totals);
    info.write(trace)?;
    if !global.quiet {
        record::tell(&info, trace);
    }
    Ok(if served.totals.error.is_some() { Exit::Partial } else { Exit::Success })
}
