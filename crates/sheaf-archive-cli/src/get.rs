//! `sheaf archive get`: files out of an archive.
mod to_tar;

use super::place::{self, ArchivedName};
use super::progress::{self, ArchiveProgress, ScheduleArgs};
use super::version::AtArgs;
use super::{counted, hosts, local, tell};
use anyhow::{Context, Result};
use clap::Args;
use sheaf_archive::{
    Archive, ArchiveError, ArchiveEvent, FetchNames, FetchOptions, FetchReport, SaveExclude,
    ScheduleStats, fetch_watched,
};
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{self, Output, printable};
use sheaf_cli::session::end_at_signal;
use sheaf_records::ArchiveFetched;
use sheaf_tools::report::human;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Get archived files and directories, with all that is in them
///
/// Each keeps its name below DIR; of SRC/. it is what is in the directory that is
/// got. What is there already, with the same size and time, is not written again,
/// and what is newer stays; --overwrite compares the former and replaces the
/// latter. Owners are those of the archive where root gets them.
///
/// Of HOSTSET:PATH each host gets its own copy, straight from the store; %h in SRC
/// is each host's name.
#[derive(Args, Debug)]
#[command(
    verbatim_doc_comment,
    override_usage = "sheaf archive get [OPTIONS] <STORE::SRC>... <DIR>"
)]
#[command(after_help = "\
Examples:
  sheaf archive get /backup::/home/ada/thesis .
  sheaf archive get --overwrite /backup::/etc/ssh /etc
  sheaf archive get --delete --overwrite /backup::/srv/www/. /srv/www
  sheaf archive get --to-tar - /backup::/home/ada | ssh n7 tar -xpf -
  sheaf archive get /net/backup::/hosts/%h/etc/ssh 'n[1-64]:/etc'")]
pub struct GetArgs {
    /// Archived files and directories; the last is the directory they go to, of this
    /// machine or, as HOSTSET:PATH, of hosts
    #[arg(value_name = "STORE::SRC", required = true, num_args = 1..)]
    pub names: Vec<OsString>,

    #[command(flatten)]
    pub version: AtArgs,

    /// Replace files that are newer than the archived ones, and files of the same size
    /// and time that differ in content, mode, owner or extended attributes
    #[arg(long)]
    pub overwrite: bool,

    /// Get only files, and directories with all that is in them, whose name fits GLOB, or
    /// whose archived path does, with a slash in GLOB; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub include: Vec<String>,

    /// Leave out files, and directories with all that is in them, whose name fits GLOB,
    /// or whose archived path does, with a slash in GLOB; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub exclude: Vec<String>,

    /// Remove from the directories that are got what is not archived there, when all
    /// that is was got; what --include and --exclude leave out stays
    #[arg(long)]
    pub delete: bool,

    /// Write a tar of what is archived to FILE, or to standard output for -: all names are
    /// sources then
    #[arg(long, value_name = "FILE", conflicts_with_all = ["overwrite", "delete", "dry_run", "stats"])]
    pub to_tar: Option<PathBuf>,

    /// Only say what would be got, and removed
    #[arg(long)]
    pub dry_run: bool,

    #[command(flatten)]
    pub schedule: ScheduleArgs,
}

impl GetArgs {
    /// Whether files come to hosts.
    pub fn is_on_hosts(&self) -> bool {
        self.to_tar.is_none() && self.names.last().is_some_and(|to| hosts::is_on_hosts(to))
    }

    /// How files are got.
    fn options(&self) -> FetchOptions {
        let mut options = FetchOptions {
            overwrite: self.overwrite,
            dry_run: self.dry_run,
            delete: self.delete,
            ..FetchOptions::default()
        };
        options.limits = self.schedule.limited(options.limits);
        options
    }

    /// Of which names files are got.
    pub fn fetched(&self) -> Result<FetchNames> {
        let patterns =
            |globs| SaveExclude::new(globs).map_err(|error| Stop::usage(error.to_string()));
        Ok(FetchNames { include: patterns(&self.include)?, exclude: patterns(&self.exclude)? })
    }
}

/// Whether it is what is in a directory that is meant, and not the directory.
pub fn is_of_contents(name: &OsStr) -> bool {
    name.as_bytes().ends_with(b"/.") || name.as_bytes().ends_with(b"::.")
}

/// Gets the files.
pub fn run(args: &GetArgs, global: &GlobalArgs) -> Result<Exit> {
    if let Some(to) = &args.to_tar {
        return to_tar::run(args, to, global);
    }
    let (to, sources) = args.names.split_last().context("clap asks for a name")?;
    if sources.is_empty() {
        let to = printable(&to.to_string_lossy());
        let text = format!("{to}: where to? The directory comes last");
        return Err(Stop::usage(text).into());
    }
    if args.is_on_hosts() {
        progress::refused_on_hosts(&[(args.dry_run, "--dry-run"), (args.delete, "--delete")])?;
        return hosts::get::run(args, sources, to, global);
    }
    check_destination(to)?;
    let named = sources.iter().map(|name| Ok((ArchivedName::parse(name)?, is_of_contents(name))));
    let sources: Result<Vec<_>> = named.collect();
    let fetched = args.fetched()?;
    let mut options = args.options();
    let mut all = FetchReport::default();
    if !args.dry_run {
        end_at_signal(
            "interrupted: what was got is there, each file whole; the same command gets the rest",
        );
    }
    // What was got under each name: a second one would take its place.
    let mut names = HashSet::new();
    let sources = sources?;
    check_one_of_contents(&sources)?;
    for (source, is_of_contents) in sources {
        let archive = opened(&source, Path::new(to), &mut options)?;
        options.contents = is_of_contents;
        for path in source.paths(&archive)? {
            let name = path.split().filter(|_| !is_of_contents).map(|(_, name)| name.to_vec());
            if name.is_some_and(|name| !names.insert(name)) {
                let text = format!("{path}: another of this name was got just now: get it alone");
                output::tell(format_args!("sheaf: {}", printable(&text)));
                all.failed += 1;
                continue;
            }
            let progress = ArchiveProgress::new(global);
            let watch = |done: &FetchReport, stats: &ScheduleStats| {
                progress.show(done.fetched + done.unchanged, done.fetched_bytes, stats);
            };
            let told = |event| match event {
                ArchiveEvent::Fetches { .. } if global.json && global.verbose == 0 => {}
                ArchiveEvent::Removes { dry_run, .. }
                    if global.verbose == 0 && (!dry_run || global.json) => {}
                event => progress.suspend(|| tell(&event)),
            };
            let to = Path::new(to);
            let got = fetch_watched(&archive, &path, to, options, &fetched, &told, &watch);
            let (stats, took) = progress.end();
            if args.schedule.stats {
                progress::tell_stats(&stats, took, global)?;
            }
            match got {
                Ok(report) => all += report,
                Err(error @ ArchiveError::NotArchived { .. }) => {
                    output::tell(format_args!("sheaf: {}", printable(&error.to_string())));
                    all.failed += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    tell_report(&all, args.dry_run, global)?;
    Ok(if all.failed > 0 { Exit::Partial } else { Exit::Success })
}

/// Opens an archive, and says what suits it.
fn opened(source: &ArchivedName, to: &Path, options: &mut FetchOptions) -> Result<Archive> {
    let archive = place::open_to_read(&source.store)?;
    options.kept = place::directory_id(&source.store)?;
    if options.delete && place::may_be_cut_off(&archive)? {
        // What was stored since would be removed.
        options.delete = false;
        let error = ArchiveError::NothingRemoved { path: to.to_owned() };
        output::tell(format_args!("sheaf: {}", printable(&error.to_string())));
    }
    options.workers = options.workers.max(archive.store().calls_at_once());
    Ok(archive)
}

const ONE_OF_CONTENTS: &str =
    "what is in a directory (STORE::DIR/., STORE::) is got alone: say nothing else beside it";

/// Refuses several sources of which one is what is in a directory: they would have the same names, and `--delete`
/// would remove one for the other.
fn check_one_of_contents(sources: &[(ArchivedName, bool)]) -> Result<()> {
    let is_of_contents =
        |(source, is_of_contents): &(ArchivedName, bool)| *is_of_contents || source.is_everything();
    if sources.len() > 1 && sources.iter().any(is_of_contents) {
        return Err(Stop::usage(ONE_OF_CONTENTS).into());
    }
    Ok(())
}

/// Refuses what is no directory to get files into.
fn check_destination(to: &OsStr) -> Result<()> {
    if ArchivedName::parse(to).is_ok() && !Path::new(to).exists() {
        let to = printable(&to.to_string_lossy());
        let text =
            format!("{to} is an archived name: what is got goes to a directory, behind all others");
        return Err(Stop::usage(text).into());
    }
    local::change::refuse_in_store(Path::new(to))?;
    if to == "-" {
        let text = "- is no directory (./- would be one): sheaf archive cat prints files";
        return Err(Stop::usage(text).into());
    }
    if Path::new(to).exists() && !Path::new(to).is_dir() {
        let to = printable(&to.to_string_lossy());
        let text = format!("{to}: is no directory: what is got goes into one, under its name");
        return Err(Stop::usage(text).into());
    }
    Ok(())
}

/// Says what was got.
pub fn tell_report(report: &FetchReport, dry_run: bool, global: &GlobalArgs) -> Result<()> {
    if global.json {
        let record = ArchiveFetched {
            directories: report.directories,
            fetched: report.fetched,
            fetched_bytes: report.fetched_bytes,
            unchanged: report.unchanged,
            newer: report.newer,
            removed: report.removed,
            attributes_left: report.attributes_left,
            failed: report.failed,
            dry_run,
        };
        return Ok(Output::new(global).records.write(&mut output::stdout(), &record)?);
    }
    if global.quiet {
        return Ok(());
    }
    let mut text = format!(
        "{} {} ({}) of {}",
        if dry_run { "would get" } else { "got" },
        counted(report.fetched, "file", "files"),
        human::size(report.fetched_bytes),
        counted(report.directories, "directory", "directories"),
    );
    for (count, what) in [
        (report.unchanged, "there already"),
        (report.newer, "newer and kept (--overwrite replaces such)"),
        (report.removed, if dry_run { "to be removed" } else { "removed" }),
        (report.attributes_left, "extended attributes not set"),
        (report.failed, "failed"),
    ] {
        if count > 0 {
            text += &format!(", {count} {what}");
        }
    }
    output::tell(format_args!("sheaf: {text}"));
    Ok(())
}
