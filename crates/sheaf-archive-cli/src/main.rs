//! `sheaf-archive`, the program behind `sheaf archive`: stores, lists and fetches trees of files.
mod cat;
mod du;
mod entry;
mod find;
mod forget;
mod get;
mod grep;
mod hosts;
mod local;
mod log;
mod ls;
mod place;
mod progress;
mod relocate;
mod repack;
mod repair;
mod rights;
mod rm;
mod size_unit;
mod sorted;
mod stat;
mod store;
mod together;
mod verify;
mod version;

use anyhow::Result;
use clap::{Args, CommandFactory, Parser, Subcommand};
use sheaf_archive::ArchiveEvent;
use sheaf_cli::cli::{CommandLine, HELP_COLUMNS_MAX, STYLES, decorate};
use sheaf_cli::companion;
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{self, printable};
use sheaf_cli::program::{self, CompanionProgram};
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

/// The part of sheaf that does `sheaf archive`, and is run by it
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
    Archive(ArchiveArgs),
}

impl CommandLine for Cli {
    fn command() -> clap::Command {
        decorate(<Self as CommandFactory>::command())
    }

    fn global(&mut self) -> &mut GlobalArgs {
        &mut self.global
    }
}

fn main() -> ExitCode {
    program::main(|| {
        CompanionProgram {
            companion: &companion::ARCHIVE,
            register: hosts::serve::register,
            part: Some(hosts::serve::open),
            runs_a_program: |_: &Cli| false,
            run: |cli: &Cli, global| {
                let OwnCommand::Archive(args) = &cli.command;
                run(args, global)
            },
        }
        .main()
    })
}

/// Store trees of files, list what is stored and get it back
///
/// An archived name is STORE::PATH: a directory that is the store, and a path in
/// it. Small files lie in packs there, which any tar reads; names are those of
/// the files all the same. $SHEAF_ARCHIVE is the STORE of a name that begins
/// with `::`.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
struct ArchiveArgs {
    /// The catalog: a file, or postgresql://USER@HOST:PORT/DATABASE, which many
    /// may share [default: below
    /// ~/.cache/sheaf/archives, one for each archive]
    #[arg(long, value_name = "CATALOG", global = true, env = "SHEAF_ARCHIVE_CATALOG")]
    #[arg(hide_env_values = true)]
    catalog: Option<OsString>,

    #[command(subcommand)]
    command: ArchiveCommand,
}

/// What to do with an archive.
#[derive(Debug, Subcommand)]
enum ArchiveCommand {
    #[command(aliases = ["backup", "create", "init"])]
    Store(store::StoreArgs),
    #[command(aliases = ["restore", "extract"])]
    Get(get::GetArgs),
    #[command(alias = "list")]
    Ls(ls::ArchiveLsArgs),
    Find(find::FindArgs),
    Grep(Box<grep::ArchiveGrepArgs>),
    Cat(cat::ArchiveCatArgs),
    Du(du::ArchiveDuArgs),
    Chmod(rights::ArchiveChmodArgs),
    Chown(rights::ArchiveChownArgs),
    Cp(relocate::ArchiveCpArgs),
    Mv(relocate::ArchiveMvArgs),
    Stat(stat::ArchiveStatArgs),
    Rm(rm::ArchiveRmArgs),
    #[command(alias = "check")]
    Verify(verify::VerifyArgs),
    Repair(repair::RepairArgs),
    Repack(repack::RepackArgs),
    #[command(aliases = ["versions", "snapshots"])]
    Log(log::LogArgs),
    Forget(forget::ForgetArgs),
}

impl ArchiveCommand {
    fn name(&self) -> &'static str {
        match self {
            Self::Store(_) => "store",
            Self::Get(_) => "get",
            Self::Ls(_) => "ls",
            Self::Find(_) => "find",
            Self::Grep(_) => "grep",
            Self::Cat(_) => "cat",
            Self::Du(_) => "du",
            Self::Chmod(_) => "chmod",
            Self::Chown(_) => "chown",
            Self::Cp(_) => "cp",
            Self::Mv(_) => "mv",
            Self::Stat(_) => "stat",
            Self::Rm(_) => "rm",
            Self::Verify(_) => "verify",
            Self::Repair(_) => "repair",
            Self::Repack(_) => "repack",
            Self::Log(_) => "log",
            Self::Forget(_) => "forget",
        }
    }

    fn is_on_hosts(&self) -> Result<bool> {
        Ok(match self {
            Self::Store(args) => args.is_on_hosts(),
            Self::Get(args) => args.is_on_hosts(),
            Self::Ls(args) => hosts::are_on_hosts(&args.names, args.local)?,
            Self::Du(args) => hosts::are_on_hosts(&args.names, args.local)?,
            Self::Rm(args) => hosts::are_on_hosts(&args.names, args.local)?,
            Self::Chmod(args) => hosts::are_on_hosts(&args.on.names, args.local)?,
            Self::Cp(args) => args.is_on_hosts(),
            Self::Find(args) => args.is_on_hosts(),
            Self::Grep(args) => args.is_on_hosts(),
            _ => false,
        })
    }

    /// Whether it never works on hosts.
    fn is_of_one_machine(&self) -> bool {
        matches!(
            self,
            Self::Cat(_)
                | Self::Chown(_)
                | Self::Mv(_)
                | Self::Stat(_)
                | Self::Verify(_)
                | Self::Repair(_)
                | Self::Repack(_)
                | Self::Log(_)
                | Self::Forget(_)
        )
    }

    /// The version that it reads, if it says one.
    fn at(&self) -> Option<&str> {
        let version = match self {
            Self::Get(args) => &args.version,
            Self::Ls(args) => &args.version,
            Self::Cat(args) => &args.version,
            Self::Du(args) => &args.version,
            Self::Stat(args) => &args.version,
            Self::Grep(args) => &args.version,
            Self::Find(args) => &args.version,
            _ => return None,
        };
        version.at.as_deref()
    }
}

/// Does what the sub-command says.
fn run(args: &ArchiveArgs, global: &GlobalArgs) -> Result<Exit> {
    let (name, on_hosts) = (args.command.name(), args.command.is_on_hosts()?);
    if let Some(option) = sheaf_cli::options::option_for_hosts(global).filter(|_| !on_hosts) {
        let text = if args.command.is_of_one_machine() {
            format!(
                "{option} is for work on many hosts, and archive {name} works on this machine alone"
            )
        } else {
            format!(
                "{option} is for work on many hosts, and no path is on hosts: \
                 HOSTSET:PATH is, and :PATH is on all of them"
            )
        };
        return Err(Stop::usage(text).into());
    }
    if let Some(catalog) = &args.catalog {
        place::catalog::name(catalog);
    }
    if let Some(at) = args.command.at() {
        if on_hosts && !matches!(args.command, ArchiveCommand::Get(_)) {
            let text = "--at reads a version of an archive, and files of hosts have none";
            return Err(Stop::usage(text).into());
        }
        place::read_at(at);
    }
    place::end_of_reading(match &args.command {
        ArchiveCommand::Store(args) => store::run(args, global),
        ArchiveCommand::Get(args) => get::run(args, global),
        ArchiveCommand::Ls(args) => ls::run(args, global),
        ArchiveCommand::Find(args) => find::run(args, global),
        ArchiveCommand::Grep(args) => grep::run(args, global),
        ArchiveCommand::Cat(args) => cat::run(args, global),
        ArchiveCommand::Du(args) => du::run(args, global),
        ArchiveCommand::Chmod(args) => rights::chmod(args, global),
        ArchiveCommand::Chown(args) => rights::chown(args, global),
        ArchiveCommand::Cp(args) => relocate::cp(args, global),
        ArchiveCommand::Mv(args) => relocate::mv(args, global),
        ArchiveCommand::Stat(args) => stat::run(args, global),
        ArchiveCommand::Rm(args) => rm::run(args, global),
        ArchiveCommand::Verify(args) => verify::run(args, global),
        ArchiveCommand::Repair(args) => repair::run(args, global),
        ArchiveCommand::Repack(args) => repack::run(args, global),
        ArchiveCommand::Log(args) => log::run(args, global),
        ArchiveCommand::Forget(args) => forget::run(args, global),
    })
}

/// Tells of a single file: the names that were asked for are what is printed, all else is said.
fn tell(event: &ArchiveEvent) {
    if let ArchiveEvent::Stores { path } | ArchiveEvent::Fetches { path } = event {
        return tell_name(path.as_os_str().as_bytes());
    }
    output::tell(format_args!("sheaf: {}", printable(&event.to_string())));
}

/// Prints a name, which is what was asked for.
fn tell_name(name: &[u8]) {
    let line = if std::io::stdout().is_terminal() {
        format!("{}\n", printable(&String::from_utf8_lossy(name))).into_bytes()
    } else {
        [name, b"\n"].concat()
    };
    // Why nothing more is printed is told at the end.
    let _ = output::stdout().write_all(&line);
}

/// `1 file`, `2 files`.
fn counted(count: u64, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_consistent_and_survives_its_description() {
        let command = <Cli as CommandLine>::command();
        command.clone().debug_assert();
        companion::describe::check_description(&command, "archive");
    }
}
