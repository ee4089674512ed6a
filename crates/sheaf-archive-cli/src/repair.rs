//! `sheaf archive repair`: what nobody refers to goes.
use super::counted;
use super::place::{self, ArchivedName};
use anyhow::Result;
use clap::Args;
use sheaf_archive::{ArchiveError, ArchivePath, CatalogError, RepairOptions, RepairReport, repair};
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{self, Output, printable};
use sheaf_records::{ArchiveLogDropped, ArchiveLogRestored, ArchiveRepaired};
use sheaf_tools::report::human;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// Make lost indexes of packs again, and remove what was left over in a store
///
/// A store that was cut off leaves packs that are in no directory, and so does
/// rm, of packs of which nothing is left. Leftovers that are younger than a day by
/// the clock of the store stay, and so do those of a command that writes now. What
/// a version has is no leftover: see sheaf archive forget.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
#[command(after_help = "\
Examples:
  sheaf archive repair --dry-run /backup::
  sheaf archive repair /backup::
  sheaf archive repair --drop-log-from 17 /backup::")]
pub struct RepairArgs {
    /// The store: with the path / or without
    #[arg(value_name = "STORE::")]
    pub name: OsString,

    /// Remove nothing, but say how much there is
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    /// Remove leftovers that are so many hours old by the clock of the store
    #[arg(long, value_name = "HOURS", default_value_t = 24)]
    pub age: u32,

    /// Give up commit N of the log and those behind it, where N is damaged or missing and
    /// neither a copy nor a catalog has it: what was stored since is archived no longer
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    #[arg(conflicts_with = "age")]
    pub drop_log_from: Option<u64>,

    /// Write the end of the log again, of the catalog, where the store has lost it and the
    /// catalog knows it; the catalog is made again then
    #[arg(long, conflicts_with_all = ["age", "drop_log_from"])]
    pub restore_log: bool,
}

/// Removes the leftovers.
pub fn run(args: &RepairArgs, global: &GlobalArgs) -> Result<Exit> {
    let name = ArchivedName::parse_literal(&args.name)?;
    if name.path != ArchivePath::ROOT {
        let text = "a store is repaired as a whole: say STORE:: without a path";
        return Err(Stop::usage(text).into());
    }
    if let Some(number) = args.drop_log_from {
        return drop_from(number, &name.store, args.dry_run, global);
    }
    if args.restore_log {
        return restore_log(&name.store, args.dry_run, global);
    }
    let archive = place::open(&name.store, false)?;
    let age = Duration::from_secs(u64::from(args.age) * 3600);
    let report = repair(&archive, RepairOptions { age, dry_run: args.dry_run })?;
    tell_report(&report, args.dry_run, global)?;
    Ok(if report.indexes_lost > 0 { Exit::Partial } else { Exit::Success })
}

/// Gives up what was stored since a commit that is damaged.
fn drop_from(number: u64, store: &Path, dry_run: bool, global: &GlobalArgs) -> Result<Exit> {
    let archive = place::open_as_known(store)?;
    let applied = archive.catalog().applied()?;
    let is_known = applied >= number;
    let dropped = match is_known {
        true => archive.forget_lost(number, dry_run),
        false => archive.drop_log(number, dry_run),
    };
    let dropped = match dropped {
        Err(ArchiveError::Catalog(CatalogError::InOrder { .. })) if is_known => {
            let text = format!(
                "the catalog knows what commit {number} said (it has taken in {applied}), so nothing is given \
                 up: where the log has lost it, sheaf archive repair --restore-log writes it again"
            );
            return Err(Stop::usage(text).into());
        }
        Err(ArchiveError::Catalog(error @ CatalogError::InOrder { .. })) => {
            return Err(Stop::usage(error.to_string()).into());
        }
        dropped => dropped?,
    };
    if global.json {
        let record = ArchiveLogDropped { dry_run, from: number, commits: dropped };
        Output::new(global).records.write(&mut output::stdout(), &record)?;
    } else if !global.quiet {
        let verb = if dry_run { "would give up" } else { "gave up" };
        let commits = counted(dropped, "commit", "commits");
        if is_known {
            output::tell(format_args!(
                "sheaf: {verb} {commits} that only the catalog knew, from {number} on"
            ));
            return Ok(Exit::Success);
        }
        output::tell(format_args!(
            "sheaf: {verb} {commits} of the log, from {number} on; what they said is kept in the store \
             (dropped), and packs that only they knew stay until the next repair"
        ));
    }
    Ok(Exit::Success)
}

/// Writes the end of the log again that a catalog knows.
fn restore_log(store: &Path, dry_run: bool, global: &GlobalArgs) -> Result<Exit> {
    let archive = place::open_as_known(store)?;
    let restored = match archive.restore_log(dry_run) {
        Err(ArchiveError::Catalog(CatalogError::InOrder { .. })) => {
            let text = "the log has all that the catalog knows: there is nothing to write";
            return Err(Stop::usage(text).into());
        }
        Err(ArchiveError::Catalog(
            error @ (CatalogError::Damaged { number, .. } | CatalogError::Missing { number, .. }),
        )) => {
            let error = printable(&error.to_string());
            output::tell(format_args!(
                "sheaf: {error}; or give up first what was stored from there on, with sheaf archive repair \
                 --drop-log-from {number}"
            ));
            return Ok(Exit::Partial);
        }
        restored => restored?,
    };
    if global.json {
        let record = ArchiveLogRestored {
            dry_run,
            from: restored.from,
            known: restored.known,
            commits: restored.commits,
            directories: restored.directories,
            dropped: restored.dropped,
            versions: restored.versions.clone(),
        };
        Output::new(global).records.write(&mut output::stdout(), &record)?;
    } else if !global.quiet {
        let verb = if dry_run { "would write" } else { "wrote" };
        output::tell(format_args!(
            "sheaf: {verb} {} of the log, from {} on, of what the catalog knows of {}",
            counted(restored.commits, "commit", "commits"),
            restored.from,
            counted(restored.directories, "directory", "directories"),
        ));
        tell_forgotten(&restored.versions, dry_run);
    }
    if let Some(fault) = restored.fault {
        output::tell(format_args!("sheaf: {}", printable(&fault.to_string())));
        return Ok(Exit::Partial);
    }
    Ok(Exit::Success)
}

/// Versions whose states cannot be read any more.
fn tell_forgotten(versions: &[String], dry_run: bool) {
    const NAMED: usize = 8;
    if versions.is_empty() {
        return;
    }
    let verb = if dry_run { "would forget" } else { "forgot" };
    let named: Vec<String> = versions.iter().take(NAMED).map(|name| printable(name)).collect();
    let more = match versions.len().checked_sub(NAMED) {
        None | Some(0) => String::new(),
        Some(more) => format!(" and {more} more"),
    };
    output::tell(format_args!(
        "sheaf: {verb} {}, as the log has lost what the archive was then: {}{more}",
        counted(versions.len() as u64, "version", "versions"),
        named.join(", "),
    ));
}

fn tell_report(report: &RepairReport, dry_run: bool, global: &GlobalArgs) -> Result<()> {
    if global.json {
        let record = ArchiveRepaired {
            dry_run,
            leftovers: report.leftovers,
            bytes: report.bytes,
            young: report.young,
            writers: report.writers,
            indexes: report.indexes,
            indexes_lost: report.indexes_lost,
            refilled: report.refilled,
        };
        return Ok(Output::new(global).records.write(&mut output::stdout(), &record)?);
    }
    if global.quiet {
        return Ok(());
    }
    let (verb, bytes) =
        (if dry_run { "would remove" } else { "removed" }, human::size(report.bytes));
    let leftovers = counted(report.leftovers, "leftover", "leftovers");
    let young = match (report.young, report.writers) {
        (0, _) => String::new(),
        (young, 0) => format!(", {young} that are younger stay (--age 0 takes them, too)"),
        (young, writers) => format!(
            ", {young} stay, as they may belong to {} on this store",
            counted(writers, "command that writes", "commands that write"),
        ),
    };
    if report.indexes > 0 {
        let verb = if dry_run { "would make" } else { "made" };
        let indexes = counted(report.indexes, "index", "indexes");
        output::tell(format_args!(
            "sheaf: {verb} {indexes} again, of the packs that have them, too"
        ));
    }
    if report.refilled > 0 {
        let verb = if dry_run { "would archive" } else { "archived" };
        let packs = counted(report.refilled, "pack", "packs");
        output::tell(format_args!(
            "sheaf: {verb} all again that is in {packs} whose last index is lost: files that were removed from \
             there may be archived again, and modes and owners that were changed in the archive are those of before"
        ));
    }
    if report.indexes_lost > 0 {
        let indexes = counted(report.indexes_lost, "index is", "indexes are");
        output::tell(format_args!(
            "sheaf: {indexes} lost and cannot be made again: verify names the files"
        ));
    }
    output::tell(format_args!("sheaf: {verb} {leftovers} ({bytes}){young}"));
    Ok(())
}
