//! `sheaf archive repack`: what removed files take comes back.
use super::counted;
use super::place::{self, ArchivedName};
use anyhow::Result;
use clap::Args;
use sheaf_archive::{ArchiveError, RepackOptions, RepackReport, repack};
use sheaf_cli::exit::Exit;
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{self, Output, printable};
use sheaf_records::ArchiveRepacked;
use sheaf_tools::report::human;
use std::ffi::OsString;

/// Write packs anew of which much is removed, and many small ones into one
///
/// What is archived stays as it is. Of a directory whose packs are written anew the
/// old ones are removed at the end, as far as nothing else refers to them: what
/// is copied of them, say. So do indexes that are not the newest of their pack.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
#[command(after_help = "\
get reads what takes the place of a pack that is removed meanwhile; others who
read it then are told that it is gone, and have to do it again.

Examples:
  sheaf archive repack --dry-run /backup::/
  sheaf archive repack --min-dead 50 /backup::/home")]
pub struct RepackArgs {
    /// An archived directory
    #[arg(value_name = "STORE::DIR")]
    pub name: OsString,

    /// Write a pack anew if so much of it is of files that were removed
    #[arg(long, value_name = "PERCENT", default_value_t = 25)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=100))]
    pub min_dead: u32,

    /// Write packs of less than 16 MiB into one if a directory has so many
    #[arg(long, value_name = "N", default_value_t = 4)]
    #[arg(value_parser = clap::value_parser!(u32).range(2..))]
    pub min_small: u32,

    /// Change nothing, but say about how much would come of it
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}

/// Repacks the directory.
pub fn run(args: &RepackArgs, global: &GlobalArgs) -> Result<Exit> {
    let name = ArchivedName::parse_literal(&args.name)?;
    let archive = place::open(&name.store, false)?;
    place::refuse_file(&archive, &name, "repacked")?;
    let options = RepackOptions {
        min_dead_percent: args.min_dead,
        small_packs_min: usize::try_from(args.min_small)?,
        dry_run: args.dry_run,
        ..RepackOptions::default()
    };
    let told = |error: ArchiveError| {
        output::tell(format_args!("sheaf: {}", printable(&error.to_string())));
    };
    let report = repack(&archive, &name.path, options, &told)?;
    tell_report(&report, args.dry_run, global)?;
    Ok(if report.failed > 0 { Exit::Partial } else { Exit::Success })
}

fn tell_report(report: &RepackReport, dry_run: bool, global: &GlobalArgs) -> Result<()> {
    if global.json {
        let record = ArchiveRepacked {
            dry_run,
            directories: report.directories,
            packs: report.packs,
            packs_new: report.packs_new,
            packs_shared: report.packs_shared,
            members: report.members,
            indexes_old: report.indexes_old,
            bytes_removed: report.bytes_removed,
            bytes_written: report.bytes_written,
            failed: report.failed,
        };
        return Ok(Output::new(global).records.write(&mut output::stdout(), &record)?);
    }
    if global.quiet {
        return Ok(());
    }
    let back = human::size(report.bytes_removed.saturating_sub(report.bytes_written));
    let mut text = format!(
        "{} {} as {}, {back} {}",
        if dry_run { "would write" } else { "wrote" },
        counted(report.packs, "pack", "packs"),
        report.packs_new,
        if dry_run { "would come back" } else { "came back" },
    );
    for (count, what) in [
        (report.indexes_old, "old indexes removed"),
        (report.packs_shared, "stay as they are, as others or versions have them, too"),
        (report.failed, "directories failed"),
    ] {
        if count > 0 {
            text += &format!(", {count} {what}");
        }
    }
    output::tell(format_args!("sheaf: {text}"));
    Ok(())
}
