//! What the commands for files of hosts do as well: `ls`, `du`, `rm`, `chmod` and `cp`.
use crate::cli::GlobalArgs;
use crate::cmd;
use crate::cmd::archive::du::ArchiveDuArgs;
use crate::cmd::archive::ls::ArchiveLsArgs;
use crate::cmd::archive::relocate::ArchiveCpArgs;
use crate::cmd::archive::rights::ArchiveChmodArgs;
use crate::cmd::archive::rm::ArchiveRmArgs;
use crate::exit::{Exit, Stop};
use anyhow::Result;
use clap::{Args, Command, FromArgMatches};
use std::ffi::OsString;

/// Words of a command line.
#[derive(Default)]
struct ToolWords(Vec<OsString>);

impl ToolWords {
    fn flags(flags: &[(bool, &str)]) -> Self {
        Self(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag.into()).collect())
    }

    /// The arguments of a command, with these names.
    fn parsed<A: Args + FromArgMatches>(mut self, names: &[OsString]) -> Result<A> {
        self.0.push("--".into());
        self.0.extend_from_slice(names);
        let command = Command::new("sheaf").no_binary_name(true);
        let command = command.disable_help_flag(true).disable_version_flag(true);
        let command = A::augment_args(command);
        let matches = command.try_get_matches_from(self.0);
        let parsed = matches.and_then(|matches| A::from_arg_matches(&matches));
        parsed.map_err(|error| Stop::usage(error.to_string()).into())
    }
}

/// Lists directories of hosts.
pub fn ls(args: &ArchiveLsArgs, global: &GlobalArgs) -> Result<Exit> {
    let words = ToolWords::flags(&[
        (args.long, "-l"),
        (args.numeric_uid_gid, "-n"),
        (args.all, "-A"),
        (args.recursive, "-R"),
        (args.directory, "-d"),
        (args.human_readable, "-h"),
        (args.by_time, "-t"),
        (args.by_size, "-S"),
        (args.reverse, "-r"),
        (true, "-1"),
    ]);
    cmd::ls::run(&words.parsed(&args.names)?, global)
}

/// Sums up directories of hosts.
pub fn du(args: &ArchiveDuArgs, global: &GlobalArgs) -> Result<Exit> {
    let mut words = ToolWords::flags(&[
        (args.summarize, "-s"),
        (args.total, "-c"),
        (args.human_readable, "-h"),
        (args.bytes, "-b"),
        (args.apparent_size, "--apparent-size"),
        (args.all, "-a"),
        (args.one_file_system, "-x"),
    ]);
    if let Some(depth) = args.max_depth {
        words.0.push(format!("-d{depth}").into());
    }
    cmd::du::run(&words.parsed(&args.names)?, global)
}

/// Removes files of hosts.
pub fn rm(args: &ArchiveRmArgs, global: &GlobalArgs) -> Result<Exit> {
    let words = ToolWords::flags(&[
        (args.recursive, "-r"),
        (args.force, "-f"),
        (args.dry_run, "--dry-run"),
        (args.no_preserve_root, "--no-preserve-root"),
    ]);
    cmd::rm::run(&words.parsed(&args.names)?, global)
}

/// Changes modes of files of hosts.
pub fn chmod(args: &ArchiveChmodArgs, global: &GlobalArgs) -> Result<Exit> {
    let words = ToolWords::flags(&[(args.on.recursive, "-R"), (args.on.dry_run, "--dry-run")]);
    let names = [&[args.mode.clone()][..], &args.on.names].concat();
    cmd::chmod::run(&words.parsed(&names)?, global)
}

/// Copies to hosts, or from them.
pub fn cp(args: &ArchiveCpArgs, global: &GlobalArgs) -> Result<Exit> {
    if args.names.no_clobber {
        let text = "-n is for copies on one side: sheaf cp leaves nothing as it is";
        return Err(Stop::usage(text).into());
    }
    let words = ToolWords::flags(&[
        (args.archive, "-a"),
        (args.recursive, "-r"),
        (args.preserve, "-p"),
        (args.names.no_target_directory, "-T"),
        (args.names.dry_run, "--dry-run"),
    ]);
    cmd::cp::run(&words.parsed(&args.names.names)?, global)
}
