//! `sheaf-trace`, the program behind `sheaf trace`: records the I/O of programs, and reports it.
mod diff;
mod export;
mod filter;
mod record;
mod recover;
mod replay;
mod report;
mod serve;
mod snapshot;
mod times;
mod top;
mod wrong;

use anyhow::Result;
use clap::{Args, CommandFactory, Parser, Subcommand};
use sheaf_cli::cli::{CommandLine, HELP_COLUMNS_MAX, STYLES, decorate};
use sheaf_cli::companion;
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::printable;
use sheaf_cli::program::{self, CompanionProgram};
use sheaf_trace::{INFO_FILE, StoreReader, TraceInfo, TraceStore};
use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::process::ExitCode;

/// The part of sheaf that does `sheaf trace`, and is run by it
#[derive(Debug, Parser)]
#[command(name = "sheaf", version, styles = STYLES, max_term_width = HELP_COLUMNS_MAX)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
struct Cli {
    #[command(flatten)]
    global: GlobalArgs,
    #[command(subcommand)]
    command: OwnCommand,
}

#[derive(Debug, Subcommand)]
enum OwnCommand {
    Trace(TraceArgs),
}

impl CommandLine for Cli {
    fn command() -> clap::Command {
        decorate(<Self as CommandFactory>::command())
    }

    fn global(&mut self) -> &mut GlobalArgs {
        &mut self.global
    }

    fn advice(error: &clap::Error, command: &str, words: &[OsString]) -> Option<String> {
        wrong::told(error, command.strip_prefix("trace ")?.trim_end(), words)
    }
}

fn main() -> ExitCode {
    program::main(|| {
        CompanionProgram {
            companion: &companion::TRACE,
            register: |services| services,
            part: None,
            runs_a_program: |cli: &Cli| {
                let OwnCommand::Trace(args) = &cli.command;
                args.runs_a_program()
            },
            run: |cli: &Cli, global| {
                let OwnCommand::Trace(args) = &cli.command;
                run(args, global)
            },
        }
        .main()
    })
}

/// Record the I/O of programs, and tell what they did
#[derive(Args, Debug)]
struct TraceArgs {
    #[command(subcommand)]
    command: TraceCommand,
}

/// What to do with traces.
#[derive(Debug, Subcommand)]
enum TraceCommand {
    Record(record::RecordArgs),
    Report(report::ReportArgs),
    Diff(diff::DiffArgs),
    Export(export::ExportArgs),
    Replay(replay::ReplayArgs),
    Recover(recover::RecoverArgs),
    Snapshot(snapshot::SnapshotArgs),
    Serve(serve::TraceServeArgs),
    Top(top::TraceTopArgs),
}

impl TraceArgs {
    /// Whether a program of the user's is run, which has what this one was started with.
    #[must_use]
    fn runs_a_program(&self) -> bool {
        matches!(self.command, TraceCommand::Record(_))
    }
}

/// Does what the sub-command says.
fn run(args: &TraceArgs, global: &GlobalArgs) -> Result<Exit> {
    check_hosts(&args.command, global)?;
    match &args.command {
        TraceCommand::Record(args) => record::run(args, global),
        TraceCommand::Report(args) => report::run(args, global),
        TraceCommand::Diff(args) => diff::run(args, global),
        TraceCommand::Export(args) => export::run(args, global),
        TraceCommand::Replay(args) => replay::run(args, global),
        TraceCommand::Recover(args) => recover::run(args, global),
        TraceCommand::Snapshot(args) => snapshot::run(args, global),
        TraceCommand::Serve(args) => serve::run(args, global),
        TraceCommand::Top(args) => top::run(args, global),
    }
}

/// That no option says which hosts to work on, where it is this machine alone.
fn check_hosts(command: &TraceCommand, global: &GlobalArgs) -> Result<()> {
    let name = match command {
        TraceCommand::Record(_) => "record",
        TraceCommand::Report(_) => "report",
        TraceCommand::Diff(_) => "diff",
        TraceCommand::Export(_) => "export",
        TraceCommand::Replay(_) => "replay",
        TraceCommand::Recover(_) => "recover",
        TraceCommand::Snapshot(_) => "snapshot",
        TraceCommand::Serve(_) | TraceCommand::Top(_) => return Ok(()),
    };
    let Some(option) = sheaf_cli::options::option_for_hosts(global) else { return Ok(()) };
    let mut text =
        format!("{option} is for work on many hosts, and trace {name} works on this machine alone");
    if name == "record" {
        text += "; sheaf trace serve takes from many what sheaf trace record --served runs there";
    }
    Err(Stop::usage(text).into())
}

/// The rows of a trace; none for one of a program in which nothing was seen.
fn open(trace: &Path, info: Option<&TraceInfo>) -> Result<Option<StoreReader>> {
    if info.is_some_and(|info| info.is_summary && info.ended_ns != 0) {
        let text = format!(
            "{} has what its operations add up to, and none of them (record --summary): sheaf trace report prints it",
            trace.display()
        );
        return Err(Stop::usage(printable(&text)).into());
    }
    if trace.is_dir() && TraceStore::has_no_file(trace)? {
        // Of a flight recorder; in its spool, if there is one, is how far it was.
        if let Some(mut text) = snapshots(trace)? {
            text.extend(whole(trace, info)?.map(|unwhole| format!("; {unwhole}")));
            return Err(Stop::usage(printable(&text)).into());
        }
    }
    if trace.is_dir() && TraceStore::is_empty(trace)? {
        return if info.is_some() { Ok(None) } else { Err(report::no_trace(trace)) };
    }
    if matches!(trace.try_exists(), Ok(false)) || is_another_file(trace) {
        return Err(report::no_trace(trace));
    }
    Ok(Some(StoreReader::open(trace)?))
}

/// The directory of a trace, of which somebody may have named the file that says what it is.
fn directory(named: &Path) -> &Path {
    let is_info = named.file_name().is_some_and(|name| name == INFO_FILE) && named.is_file();
    match named.parent().filter(|_| is_info) {
        Some(above) if above.as_os_str().is_empty() => Path::new("."),
        Some(above) => above,
        None => named,
    }
}

/// What snapshots a flight recorder has left there, if any.
fn snapshots(trace: &Path) -> Result<Option<String>> {
    const NAMED_MAX: usize = 4;
    let (path, numbers) = (trace.display(), sheaf_trace::snapshots_of(trace)?);
    let name = |number: &u32| trace.join(number.to_string()).display().to_string();
    let names: Vec<String> = numbers.iter().map(name).collect();
    Ok(match &names[..] {
        [] => None,
        [only] => Some(format!("{path} has a snapshot, which is a trace: {only}")),
        [first, .., last] if names.len() > NAMED_MAX => {
            let count = names.len();
            Some(format!("{path} has {count} snapshots, each a trace: {first} to {last}"))
        }
        _ => Some(format!("{path} has snapshots, each a trace: {}", names.join(", "))),
    })
}

/// Whether it is a file that begins as no file of a trace does; one that cannot be read is not.
fn is_another_file(path: &Path) -> bool {
    const PARQUET: [u8; 4] = *b"PAR1";
    let mut begin = [0; PARQUET.len()];
    let is_file = std::fs::metadata(path).is_ok_and(|of| of.is_file());
    is_file
        && File::open(path).is_ok_and(|mut file| match file.read_exact(&mut begin) {
            Ok(()) => begin != PARQUET,
            Err(error) => error.kind() == ErrorKind::UnexpectedEof,
        })
}

/// What is to be said of a trace that is not whole.
fn whole(trace: &Path, info: Option<&TraceInfo>) -> Result<Option<String>> {
    let path = printable(&trace.display().to_string());
    if info.is_some_and(|info| info.is_served && info.ended_ns == 0) {
        let text = format!(
            "{path} is being served, and what came last is not in it yet; or whoever served it was \
             killed: sheaf trace serve with --output {path} goes on"
        );
        return Ok(Some(text));
    }
    let is_cut = info.is_some_and(|info| info.buffers.is_some());
    Ok(is_cut.then(|| {
        format!(
            "{path} is being recorded, or its recorder was killed: then sheaf trace recover {path}"
        )
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_consistent_and_survives_its_description() {
        let command = <Cli as CommandLine>::command();
        command.clone().debug_assert();
        companion::describe::check_description(&command, "trace");
    }
}
