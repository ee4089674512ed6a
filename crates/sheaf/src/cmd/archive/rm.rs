//! `sheaf archive rm`: what is archived goes.
use super::local;
use super::place::{self, NamedPlace};
use super::{counted, hosts};
use crate::cli::GlobalArgs;
use crate::exit::{Exit, Stop};
use crate::output::{self, Output, printable};
use anyhow::Result;
use clap::Args;
use serde_json::json;
use sheaf_archive::{ArchiveError, ArchivePath, ArchivedFile, LocalRemoved, RemoveReport, remove};
use sheaf_tools::report::human;
use std::ffi::OsString;

/// Remove what is archived, or files of this machine or of hosts
///
/// Nobody sees what is archived any longer; the space it takes in the store stays
/// taken. No symbolic link is followed, and . .. and / stay.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf archive rm /backup::/home/ada/draft
  sheaf archive rm -r /backup::/home/bob
  sheaf archive rm -r ./old-results")]
pub struct ArchiveRmArgs {
    /// Archived files and directories, paths of this machine, or HOSTSET:PATH
    #[arg(value_name = "STORE::PATH|PATH", required = true)]
    pub names: Vec<OsString>,

    /// Remove directories with all that is in them, too
    #[arg(short, long, visible_short_alias = 'R')]
    pub recursive: bool,

    /// Say nothing of names that are not there
    #[arg(short, long)]
    pub force: bool,

    /// Let / be removed, which is everything
    #[arg(long)]
    pub no_preserve_root: bool,

    /// Take each name for a path of this machine, even with `:` or `::` in it
    #[arg(long)]
    pub local: bool,
}

/// Removes what is named.
pub fn run(args: &ArchiveRmArgs, global: &GlobalArgs) -> Result<Exit> {
    if hosts::are_on_hosts(&args.names, args.local)? {
        return hosts::tools::rm(args, global);
    }
    let names = NamedPlace::parse_all(&args.names, args.local)?;
    let is_root = |name: &NamedPlace| match name {
        NamedPlace::Archived(name) => name.path == ArchivePath::ROOT,
        NamedPlace::Local(_) => false,
    };
    if !args.no_preserve_root && names.iter().any(is_root) {
        let text = "/ is all that is archived: --no-preserve-root removes it";
        return Err(Stop::usage(text).into());
    }
    let (mut all, mut failed) = (RemoveReport::default(), 0u64);
    let (mut local, mut has_local, mut has_archived) = (LocalRemoved::default(), false, false);
    for name in names {
        let name = match name {
            NamedPlace::Archived(name) => name,
            NamedPlace::Local(path) => {
                local += local::change::remove(&path, args, global)?;
                has_local = true;
                continue;
            }
        };
        has_archived = true;
        let archive = place::open(&name.store, false)?;
        for path in name.paths(&archive)? {
            let text = match archive.look_up(&path)? {
                None if args.force => continue,
                None => ArchiveError::NotArchived { path }.to_string(),
                Some(ArchivedFile::Directory(_)) if !args.recursive => {
                    format!("{path}: is a directory: -r removes it")
                }
                Some(_) => {
                    all += remove(&archive, &path)?;
                    continue;
                }
            };
            failed += 1;
            output::tell(format_args!("sheaf: {}", printable(&text)));
        }
    }
    if has_local {
        local::change::tell_removed(local, global)?;
    }
    if has_archived {
        tell(&all, failed, global)?;
    }
    Ok(if failed + local.failed > 0 { Exit::Partial } else { Exit::Success })
}

fn tell(all: &RemoveReport, failed: u64, global: &GlobalArgs) -> Result<()> {
    if global.json {
        let record = json!({
            "type": "archive_removed",
            "directories": all.directories,
            "files": all.files,
            "bytes": all.bytes,
            "failed": failed,
        });
        Output::new(global).records.write(&mut output::stdout(), record)?;
    } else if !global.quiet {
        let (files, directories) = (
            counted(all.files, "file", "files"),
            counted(all.directories, "directory", "directories"),
        );
        let bytes = human::size(all.bytes);
        output::tell(format_args!("sheaf: removed {files} ({bytes}) and {directories}"));
    }
    Ok(())
}
