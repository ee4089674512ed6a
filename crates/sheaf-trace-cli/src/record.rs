//! `sheaf trace record`: a program run with its I/O recorded.
pub(super) mod child;
mod flight;
pub(super) mod parts;
pub(super) mod places;
mod served;

use crate::filter::FilterArgs;
use anyhow::{Context, Result};
use clap::Args;
use sheaf_cli::exit::{Exit, Stop, io_text};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{self, printable};
use sheaf_session::config::own_name;
use sheaf_trace::{
    BlindSpot, FLIGHT_VARIABLE, KernelTrace, PartLimits, RecordTotals, Recording, RecordingOptions,
    SEGMENTS_VARIABLE, SegmentOptions, TraceInfo, blind_spot, units, unplaced_words,
};
use std::ffi::OsString;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

/// How many records the rings of the preload have.
const RECORDS_VARIABLE: &str = "SHEAF_TRACE_RECORDS";
/// How many of its threads have a ring at once.
const THREADS_VARIABLE: &str = "SHEAF_TRACE_THREADS";
/// How long a thread waits for room in its ring, in ms.
const PATIENCE_VARIABLE: &str = "SHEAF_TRACE_PATIENCE_MS";
/// The same, where nobody says otherwise.
const PATIENCE_MS: u64 = 1000;
/// What AddressSanitizer reads.
const SANITIZER_VARIABLE: &str = "ASAN_OPTIONS";
/// What tells the loader to load it.
const PRELOAD_VARIABLE: &str = "LD_PRELOAD";
/// How it is said that not all was stored.
pub(super) const NOT_WHOLE: &str = "the trace is not whole";
/// Processes that the program has left behind may be ending with it: it is waited for them for so
/// long.
const AFTERMATH: Duration = Duration::from_millis(100);
/// Records of each ring of a flight recorder, if nothing else is said.
const FLIGHT_RECORDS: u32 = 16 << 10;
/// The most that is asked of the kernel for each processor.
const KERNEL_BUFFER_MAX: usize = 1 << 30;

/// Run a program and record its I/O
///
/// Every file operation of the program and of all that it starts goes into a directory of
/// Parquet files; `sheaf trace report` tells what was found. The program behaves as it does
/// without, and its exit code is this command's: 126 and 127 when it cannot be run or is not
/// there, 128 and the signal's number when a signal ended it.
///
/// Programs that are linked statically, that are setuid, or not of this machine's kind, run but
/// cannot be seen into; what the kernel counted for them is told. With --kernel it is the kernel
/// that tells what they do, of all programs alike.
#[derive(Args, Debug, Clone)]
#[command(after_help = "\
Examples:
  sheaf trace record -- tar xf linux.tar
  sheaf trace record -o /var/tmp/build.trace -- make -j8
  sheaf trace record --kernel -- ./static-program
  sheaf trace record --flight --slow-ms 100 -- ./server
  sheaf trace report tar.trace")]
pub struct RecordArgs {
    /// Where the trace goes: a directory that is not there yet, or is empty [default: NAME.trace,
    /// or NAME.2.trace, ...]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,

    /// Where operations are kept until they are stored: a file system in memory, 4 MiB a thread
    /// unless --records says otherwise
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub buffers: PathBuf,

    /// How many operations of a thread are kept until they are stored, of 64 bytes each: rounded
    /// up to a power of two. What comes faster is lost, and counted [default: 65536, less where
    /// --buffers or a ulimit is small; 16384 with --flight]
    #[arg(long, value_name = "N", conflicts_with = "kernel",
        value_parser = clap::value_parser!(u32)
            .range(i64::from(SegmentOptions::RECORDS_MIN)..=i64::from(SegmentOptions::RECORDS_MAX)))]
    pub records: Option<u32>,

    /// How many threads of a process have room for operations at once: what those beyond do is lost,
    /// and counted
    #[arg(long, value_name = "N", default_value_t = SegmentOptions::default().rings,
        conflicts_with = "kernel",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(SegmentOptions::RINGS_MAX)))]
    pub threads: u32,

    /// What a thread does that finds no room for an operation: `block` waits until there is some, for a minute at most,
    /// `block=MS` for so long, and `drop` loses the operation, which is counted [default: block=1000; drop with --served]
    #[arg(long, value_name = "WHAT", value_parser = when_full, conflicts_with_all = ["kernel", "flight"])]
    pub when_full: Option<WhenFull>,

    /// Record for sheaf trace serve, which takes it from this host into a trace of many
    #[arg(long, conflicts_with = "output")]
    pub served: bool,

    /// After the program's end, record what it has left behind (a daemon, a job in the background) until that ends,
    /// for so long at most. Ctrl-C ends it
    #[arg(long, value_name = "SECONDS", value_parser = crate::times::seconds,
        conflicts_with_all = ["served", "flight"])]
    pub wait: Option<Duration>,

    /// Have the kernel tell what the program does (tracepoints of its calls): also of programs that
    /// are linked statically. It needs tracefs and, in most places, root
    #[arg(long, conflicts_with = "served")]
    pub kernel: bool,

    /// With --kernel: the room for each processor's calls until they are stored
    #[arg(
        long, value_name = "SIZE", default_value = "8M", value_parser = sheaf_cli::size::bytes,
        requires = "kernel"
    )]
    pub kernel_buffer: u64,

    /// Keep what the operations add up to (the report), and none of them: in memory that does not grow with them
    #[arg(long, conflicts_with_all = ["served", "flight"])]
    pub summary: bool,

    #[command(flatten)]
    pub filter: FilterArgs,

    #[command(flatten)]
    pub flight: flight::FlightArgs,

    #[command(flatten)]
    pub parts: parts::PartArgs,

    /// The program and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

/// What a thread does that finds no room.
#[derive(Clone, Copy, Debug)]
pub struct WhenFull {
    patience_ms: u64,
}

/// `drop`, `block` or `block=MS`.
fn when_full(text: &str) -> Result<WhenFull, String> {
    const PATIENCE_MS_MAX: u64 = 60_000;
    let patience_ms = match (text, text.strip_prefix("block=")) {
        ("drop", _) => 0,
        ("block", _) => PATIENCE_MS_MAX,
        (_, Some(ms)) => ms
            .parse()
            .ok()
            .filter(|ms| (1..=PATIENCE_MS_MAX).contains(ms))
            .ok_or("milliseconds are a number from 1 to 60000")?,
        _ => return Err("say drop, block or block=MS".to_owned()),
    };
    Ok(WhenFull { patience_ms })
}

/// Runs the program, and ends with its exit code.
pub fn run(args: &RecordArgs, global: &GlobalArgs) -> Result<Exit> {
    if global.timeout.is_some() {
        let text =
            "--timeout does not end COMMAND: sheaf trace record -- timeout SECONDS COMMAND does";
        return Err(Stop::usage(text).into());
    }
    let program = match places::find_program(&args.command[0]) {
        Ok(program) => program,
        Err((code, text)) => {
            output::tell(format_args!("sheaf: {}", printable(&text)));
            std::process::exit(code);
        }
    };
    places::check_descriptors()?;
    let usual = if args.flight.flight { FLIGHT_RECORDS } else { SegmentOptions::RECORDS_USUAL };
    let records =
        args.records.unwrap_or_else(|| places::usual_records(usual, args.threads, &args.buffers));
    if !args.kernel {
        places::check_limits(records, args.threads)?;
    }
    let args = &RecordArgs { records: Some(records), ..args.clone() };
    let filter = args.filter.filter()?;
    if !filter.is_open() && (args.served || args.flight.flight) {
        let text = format!(
            "{filter}: with --served it is sheaf trace serve that keeps some operations alone, and a flight recorder \
             keeps all of a short time"
        );
        return Err(Stop::usage(printable(&text)).into());
    }
    // A program that may be run and not be read is not looked into.
    let blind = || blind_spot(&program).unwrap_or_default();
    if args.served {
        if args.parts.limits() != PartLimits::default() {
            let text = "--part-minutes and --part-rows are for whoever stores: sheaf trace serve";
            return Err(Stop::usage(text).into());
        }
        return served::run(args, &program, &places::find_library(&args.buffers)?, blind(), global);
    }
    if args.flight.flight {
        let library = places::find_library(&args.buffers)?;
        let code = flight::run(args, global, &program, &library, blind().as_ref())?;
        std::process::exit(code);
    }
    let by = if args.kernel {
        let bytes = usize::try_from(args.kernel_buffer).unwrap_or(usize::MAX);
        let trace = KernelTrace::open(bytes.min(KERNEL_BUFFER_MAX)).map_err(|error| {
            let why = error.to_string();
            Stop::usage(format!("--kernel: {}: nothing was run", printable(&why)))
        });
        RecordBy::Kernel(trace?)
    } else {
        RecordBy::Preload(places::find_library(&args.buffers)?, blind())
    };
    // Where there is no room for segments, nothing is left of the trace either.
    let segments = places::make_segments(&args.buffers)?;
    let store = places::make_store(args.output.as_deref(), &args.command[0], "trace")?;
    let code = record(args, global, &program, (&store, segments), by)?;
    // The program's own exit code is none of this program's.
    std::process::exit(code);
}

/// Who tells what the program does.
enum RecordBy {
    /// A library within it, and why that is not loaded.
    Preload(places::Library, Option<BlindSpot>),
    Kernel(KernelTrace),
}

fn record(
    args: &RecordArgs,
    global: &GlobalArgs,
    program: &Path,
    (store, segments): (&Path, places::SegmentsPlace),
    by: RecordBy,
) -> Result<i32> {
    let mut info = TraceInfo {
        command: args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        host: own_name(),
        begun_ns: now_ns(),
        by_kernel: args.kernel,
        ..TraceInfo::default()
    };
    info.buffers = Some(segments.path().to_owned());
    info.write(store).context("nothing was run")?;
    sheaf_trace::note_trace(segments.path(), store).context("nothing was run")?;
    let mut command = Command::new(program);
    command.arg0(&args.command[0]).args(&args.command[1..]);
    let filter = args.filter.filter()?;
    (info.filter, info.is_summary) =
        ((!filter.is_open()).then(|| filter.to_string()), args.summary);
    let options = RecordingOptions { parts: args.parts.limits(), filter, is_summary: args.summary };
    let mut _held = None;
    let recording = match by {
        RecordBy::Kernel(kernel) => Recording::begin_kernel(kernel, store, &info.host, &options)?,
        RecordBy::Preload(library, blind) => {
            let recording = Recording::begin(segments.path(), store, &info.host, &options)?;
            tell_blind(program, blind.as_ref(), &mut info);
            if may_preload(blind.as_ref()) {
                _held = library.hold()?;
                set_preload(&mut command, args, &library, segments.path())?;
            }
            recording
        }
    };
    let ended = child::run(&mut command, None);
    info.ended_ns = now_ns();
    let totals = match args.wait {
        Some(wait) => {
            let end = recording.end();
            child::on_end_signal(move || end.end_now())?;
            let totals = recording.finish_within(wait);
            info.ended_ns = now_ns();
            totals
        }
        None => recording.finish_within(AFTERMATH),
    };
    let code = match ended {
        Ok((status, kernel)) => {
            (info.kernel, info.signal) = (kernel, status.signal());
            status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
        }
        Err(error) => {
            let text = io_text(program, &error);
            output::tell(format_args!("sheaf: cannot run {}", printable(&text)));
            places::NOT_RUN
        }
    };
    info.exit_code = Some(code);
    info.buffers = None;
    note(&mut info, &totals);
    if let Some(summary) = &totals.summary
        && let Err(error) = TraceInfo::write_summary(store, summary)
    {
        info.missing.push(error.to_string());
    }
    // The program's end is told in any case.
    if let Err(error) = info.write(store) {
        output::tell(format_args!("sheaf: {}", printable(&error.to_string())));
    }
    if !global.quiet {
        tell(&info, store);
    }
    Ok(code)
}

/// Tells why nothing is seen of what the program does itself.
fn tell_blind(program: &Path, blind: Option<&BlindSpot>, info: &mut TraceInfo) {
    if let Some(blind) = blind {
        let program = program.display();
        let text = format!("{program}: {blind}: what it does itself is not recorded (--kernel)");
        output::tell(format_args!("sheaf: {}", printable(&text)));
        info.missing.push(text);
    }
}

/// Whether the program may be told to load the library: what it starts has it, too. A loader that is
/// not glibc's ends a program whose preload it cannot link, and one for another processor complains.
fn may_preload(blind: Option<&BlindSpot>) -> bool {
    !matches!(blind, Some(BlindSpot::OtherLoader(_) | BlindSpot::OtherMachine))
}

/// Has the program record, and all that it starts.
fn set_preload(
    command: &mut Command,
    args: &RecordArgs,
    library: &places::Library,
    segments: &Path,
) -> Result<()> {
    command.env(SEGMENTS_VARIABLE, segments);
    command.env(PRELOAD_VARIABLE, places::preload(library, segments)?);
    if let Some(records) = args.records {
        command.env(RECORDS_VARIABLE, records.to_string());
    }
    command.env(THREADS_VARIABLE, args.threads.to_string());
    let usual = if args.served { 0 } else { PATIENCE_MS };
    let patience_ms = args.when_full.map_or(usual, |when| when.patience_ms);
    command.env(PATIENCE_VARIABLE, patience_ms.to_string());
    command.env_remove(FLIGHT_VARIABLE);
    command.env(SANITIZER_VARIABLE, sanitizer_options(std::env::var_os(SANITIZER_VARIABLE)));
    Ok(())
}

/// A program that is built with AddressSanitizer refuses to run where another library is loaded
/// before its own, unless it is told not to mind: this one stands in for none of what it watches.
fn sanitizer_options(before: Option<OsString>) -> OsString {
    let mut options = before.filter(|before| !before.is_empty()).unwrap_or_default();
    if !options.is_empty() {
        options.push(":");
    }
    options.push("verify_asan_link_order=0");
    options
}

/// What the recording of a command came to, and what is missing of it.
pub(super) fn note(info: &mut TraceInfo, totals: &RecordTotals) {
    note_totals(info, totals);
    if info.kernel.is_none() {
        let text = "the kernel's own counts of the command are not known, so that what was done unseen is not";
        info.missing.push(text.to_owned());
    }
    if let Some(kernel) = info.kernel {
        let seen = (totals.bytes_read, totals.bytes_written);
        let lost = totals.lost + totals.unwritten;
        info.missing.extend(kernel.unseen(totals.segments, seen, lost));
    }
    if totals.segments == 0 && !info.by_kernel && info.missing.is_empty() {
        let text = "no program could record what it did (it was linked statically, is setuid, or \
                    had no room: a limit, a full --buffers)";
        info.missing.push(text.to_owned());
    }
}

/// What is stored, and what could not be.
pub(super) fn note_totals(info: &mut TraceInfo, totals: &RecordTotals) {
    info.operations = totals.rows;
    info.lost = totals.lost;
    info.unplaced = totals.unplaced;
    info.overwritten = totals.overwritten;
    (info.waited, info.filtered) = (totals.waited, totals.filtered);
    info.unwritten = totals.unwritten;
    info.names_lost = totals.names_lost;
    info.unnamed = totals.unnamed;
    info.segments = totals.segments;
    info.still_run = totals.still_run as u64;
    let missing = &mut info.missing;
    if totals.unplaced > 0 {
        missing.push(unplaced_words(totals.unplaced));
    }
    let too_fast = totals.lost.saturating_sub(totals.unplaced);
    if too_fast > 0 {
        let option = match (info.by_kernel, info.is_served) {
            (true, _) => "--kernel-buffer SIZE",
            (false, true) => "record --records N, or --spool-mib N,",
            (false, false) => "--records N",
        };
        missing.push(format!(
            "{too_fast} operations came faster than they could be kept: {option} keeps more of them"
        ));
    }
    if totals.overwritten > 0 {
        let count = totals.overwritten;
        missing.push(format!("{count} operations were overwritten, as by a flight recorder"));
    }
    if totals.unwritten > 0 {
        missing.push(format!("{} operations could not be stored", totals.unwritten));
    }
    missing.extend(totals.error.as_ref().map(|error| {
        if totals.is_unfinished {
            format!("{NOT_WHOLE}: {error}; where there is room, sheaf trace recover makes files of what is there")
        } else {
            error.to_string()
        }
    }));
    if totals.names_lost > 0 {
        missing.push(format!(
            "{} names of files were lost, which were told faster than they could be read (--records N has \
             room for more), or are longer than paths are: such files have numbers",
            totals.names_lost
        ));
    }
    if totals.unnamed > 0 {
        missing.push(format!(
            "{} operations are there without the paths of their files: the kernel tells none, and \
             they were closed before they could be looked up",
            totals.unnamed
        ));
    }
    missing.extend(totals.unseen.iter().cloned());
    if totals.still_run > 0 {
        missing.push(go_on(totals.still_run));
    }
    for (path, why) in &totals.damaged {
        missing.push(format!("{}: {why}", path.display()));
    }
}

/// That so many processes outlive their recorder.
fn go_on(count: usize) -> String {
    match count {
        1 => "a process goes on, and what it does now is not recorded".to_owned(),
        _ => format!("{count} processes go on, and what they do now is not recorded"),
    }
}

pub(super) fn tell(info: &TraceInfo, store: &Path) {
    for missing in &info.missing {
        output::tell(format_args!("sheaf: {}", printable(missing)));
    }
    if info.removed.parts > 0 {
        output::tell(format_args!("sheaf: {}", info.removed.sentence()));
    }
    if info.waited.0 > 0 {
        let (times, time) = (info.waited.0, units::time(info.waited.1));
        let times = if times == 1 { "once".to_owned() } else { format!("{times} times") };
        output::tell(format_args!(
            "sheaf: threads waited {times}, {time} together, until there was room for what they did \
             (--when-full drop loses it, --records N keeps more)"
        ));
    }
    if let Some(filter) = info.filter.as_ref().filter(|_| info.filtered > 0) {
        let filter = printable(filter);
        output::tell(format_args!("sheaf: {} operations were left out ({filter})", info.filtered));
    }
    let path = printable(&store.display().to_string());
    let operations = match (info.is_summary, info.operations == 1) {
        (false, true) => "operation is",
        (false, false) => "operations are",
        (true, true) => "operation is summed up",
        (true, false) => "operations are summed up",
    };
    output::tell(format_args!(
        "sheaf: {} {operations} in {path}; sheaf trace report {path}",
        info.operations
    ));
}

pub(super) fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
