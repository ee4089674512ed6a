//! `sheaf archive rm`: what is archived goes.
use super::counted;
use super::place::{self, ArchivedName};
use crate::cli::GlobalArgs;
use crate::exit::{Exit, Stop};
use crate::output::{self, Output, printable};
use anyhow::Result;
use clap::Args;
use serde_json::json;
use sheaf_archive::{ArchiveError, ArchivePath, ArchivedFile, RemoveReport, remove};
use sheaf_tools::report::human;
use std::ffi::OsString;

/// Remove what is archived
///
/// Nobody sees it any longer. The space it takes in the store stays taken.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf archive rm /backup::/home/ada/draft
  sheaf archive rm -r /backup::/home/bob")]
pub struct ArchiveRmArgs {
    /// Archived files and directories
    #[arg(value_name = "STORE::PATH", required = true)]
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
}

/// Removes what is named.
pub fn run(args: &ArchiveRmArgs, global: &GlobalArgs) -> Result<Exit> {
    let names: Result<Vec<_>> = args.names.iter().map(|name| ArchivedName::parse(name)).collect();
    let names = names?;
    if !args.no_preserve_root && names.iter().any(|name| name.path == ArchivePath::ROOT) {
        let text = "/ is all that is archived: --no-preserve-root removes it";
        return Err(Stop::usage(text).into());
    }
    let (mut all, mut failed) = (RemoveReport::default(), 0u64);
    for name in names {
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
    Ok(if failed > 0 { Exit::Partial } else { Exit::Success })
}
