//! `sheaf archive repair`: what nobody refers to goes.
use super::counted;
use super::place::{self, ArchivedName};
use crate::cli::GlobalArgs;
use crate::exit::{Exit, Stop};
use crate::output::{self, Output};
use anyhow::Result;
use clap::Args;
use serde_json::json;
use sheaf_archive::{ArchivePath, RepairOptions, RepairReport, repair};
use sheaf_tools::report::human;
use std::ffi::OsString;
use std::time::Duration;

/// Remove what was left over in a store
///
/// A store that was cut off leaves packs that are in no directory, and so does
/// rm, of packs of which nothing is left. What is younger than a day may be of
/// somebody who is storing, and stays.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
#[command(after_help = "\
Examples:
  sheaf archive repair --dry-run /backup::
  sheaf archive repair /backup::")]
pub struct RepairArgs {
    /// The store: with the path / or without
    #[arg(value_name = "STORE::")]
    pub name: OsString,

    /// Remove nothing, but say how much there is
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    /// Remove what is so many hours old; nobody who stores may take longer for a
    /// directory
    #[arg(long, value_name = "HOURS", default_value_t = 24)]
    pub age: u32,
}

/// Removes the leftovers.
pub fn run(args: &RepairArgs, global: &GlobalArgs) -> Result<Exit> {
    let name = ArchivedName::parse_literal(&args.name)?;
    if name.path != ArchivePath::ROOT {
        let text = "a store is repaired as a whole: say STORE:: without a path";
        return Err(Stop::usage(text).into());
    }
    let archive = place::open(&name.store, false)?;
    let age = Duration::from_secs(u64::from(args.age) * 3600);
    let report = repair(&archive, RepairOptions { age, dry_run: args.dry_run })?;
    tell_report(&report, args.dry_run, global)?;
    Ok(Exit::Success)
}

fn tell_report(report: &RepairReport, dry_run: bool, global: &GlobalArgs) -> Result<()> {
    if global.json {
        let record = json!({
            "type": "archive_repaired",
            "dry_run": dry_run,
            "leftovers": report.leftovers,
            "bytes": report.bytes,
            "young": report.young,
        });
        return Ok(Output::new(global).records.write(&mut output::stdout(), record)?);
    }
    if global.quiet {
        return Ok(());
    }
    let (verb, bytes) =
        (if dry_run { "would remove" } else { "removed" }, human::size(report.bytes));
    let leftovers = counted(report.leftovers, "leftover", "leftovers");
    let young = match report.young {
        0 => String::new(),
        young => format!(", {young} too young stay"),
    };
    output::tell(format_args!("sheaf: {verb} {leftovers} ({bytes}){young}"));
    Ok(())
}
