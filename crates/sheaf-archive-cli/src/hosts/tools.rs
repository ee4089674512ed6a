//! What the commands for files of hosts do as well: `ls`, `du`, `rm`, `chmod` and `cp`.
use crate::du::ArchiveDuArgs;
use crate::entry::times::TimeFormat;
use crate::ls::ArchiveLsArgs;
use crate::relocate::ArchiveCpArgs;
use crate::rights::ArchiveChmodArgs;
use crate::rm::ArchiveRmArgs;
use crate::size_unit::SizeUnit;
use anyhow::Result;
use sheaf_cli::companion;
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_tools::report::time::TimeStyle;
use std::ffi::OsString;

/// Words of a command line.
#[derive(Default)]
struct ToolWords(Vec<OsString>);

impl ToolWords {
    fn flags(flags: &[(bool, &str)]) -> Self {
        Self(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag.into()).collect())
    }

    /// Runs this command of `sheaf` in place of this process, with these names.
    fn run(mut self, command: &str, names: &[OsString], global: &GlobalArgs) -> Result<Exit> {
        self.0.insert(0, command.into());
        self.0.push("--".into());
        self.0.extend_from_slice(names);
        match companion::run_sheaf(global, self.0)? {}
    }
}

/// Lists directories of hosts.
pub fn ls(args: &ArchiveLsArgs, global: &GlobalArgs) -> Result<Exit> {
    let has_format = matches!(args.time_style, Some(TimeFormat::Given { .. }));
    not_on_hosts(&[
        (args.blocks, "-s"),
        (args.no_owner, "-g"),
        (args.no_group_long, "-o"),
        (args.no_group, "-G"),
        (args.inode_time, "-c"),
        (args.access_time, "-u"),
        (has_format, "--time-style=+FORMAT"),
    ])?;
    let style = |style| args.time_style == Some(TimeFormat::Style(style));
    let words = ToolWords::flags(&[
        (args.long, "-l"),
        (args.classify, "-F"),
        (args.slashes, "-p"),
        (args.inode, "-i"),
        (args.unsorted, "-U"),
        (args.full_time, "--full-time"),
        (style(TimeStyle::FullIso), "--time-style=full-iso"),
        (style(TimeStyle::LongIso), "--time-style=long-iso"),
        (style(TimeStyle::Iso), "--time-style=iso"),
        (style(TimeStyle::Locale), "--time-style=locale"),
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
    words.run("ls", &args.names, global)
}

/// Options that the commands for files of hosts do not have.
fn not_on_hosts(options: &[(bool, &str)]) -> Result<()> {
    match options.iter().find(|(is_set, _)| *is_set) {
        Some((_, option)) => {
            let text = format!("{option} is for what is archived and for paths of this machine");
            Err(Stop::usage(text).into())
        }
        None => Ok(()),
    }
}

/// Sums up directories of hosts.
pub fn du(args: &ArchiveDuArgs, global: &GlobalArgs) -> Result<Exit> {
    not_on_hosts(&[
        (args.unit.odd.is_some(), args.unit.odd.unwrap_or_default()),
        (args.separate_dirs, "--separate-dirs"),
        (args.inodes, "--inodes"),
        (args.count_links, "--count-links"),
        (args.threshold.is_some(), "--threshold"),
        (!args.exclude.is_empty(), "--exclude"),
        (args.null, "--null"),
    ])?;
    let is_in_bytes = args.unit.unit == SizeUnit::blocks(1);
    let mut words = ToolWords::flags(&[
        (args.summarize, "-s"),
        (args.total, "-c"),
        (args.unit.unit == SizeUnit::Human, "-h"),
        (is_in_bytes, "-b"),
        (args.apparent_size || args.unit.is_apparent, "--apparent-size"),
        (args.all, "-a"),
        (args.one_file_system, "-x"),
    ]);
    if let Some(depth) = args.max_depth {
        words.0.push(format!("-d{depth}").into());
    }
    words.run("du", &args.names, global)
}

/// Removes files of hosts.
pub fn rm(args: &ArchiveRmArgs, global: &GlobalArgs) -> Result<Exit> {
    not_on_hosts(&[(args.interactive, "-i"), (args.once, "-I")])?;
    let words = ToolWords::flags(&[
        (args.recursive, "-r"),
        (args.dir, "-d"),
        (args.force, "-f"),
        (args.dry_run, "--dry-run"),
        (args.no_preserve_root, "--no-preserve-root"),
    ]);
    words.run("rm", &args.names, global)
}

/// Changes modes of files of hosts.
pub fn chmod(args: &ArchiveChmodArgs, global: &GlobalArgs) -> Result<Exit> {
    not_on_hosts(&[
        (args.on.reference.is_some(), "--reference"),
        (args.on.changes, "--changes"),
        (args.on.silent, "--silent"),
    ])?;
    let words = ToolWords::flags(&[(args.on.recursive, "-R"), (args.on.dry_run, "--dry-run")]);
    let names = [&[args.mode.clone()][..], &args.on.names].concat();
    words.run("chmod", &names, global)
}

/// Copies to hosts, or from them.
pub fn cp(args: &ArchiveCpArgs, global: &GlobalArgs) -> Result<Exit> {
    if args.names.no_clobber {
        let text = "-n is for copies on one side: sheaf cp leaves nothing as it is";
        return Err(Stop::usage(text).into());
    }
    not_on_hosts(&[
        (args.names.update, "--update"),
        (args.names.target_directory.is_some(), "--target-directory"),
        (args.links, "-d"),
    ])?;
    let words = ToolWords::flags(&[
        (args.archive, "-a"),
        (args.no_dereference, "-P"),
        (args.recursive, "-r"),
        (args.preserve, "-p"),
        (args.names.no_target_directory, "-T"),
        (args.names.dry_run, "--dry-run"),
    ]);
    words.run("cp", &args.names.all()?, global)
}
