//! `sheaf archive log`: the versions of an archive.
use super::counted;
use super::place::{self, ArchivedName};
use super::version::{short_id, time_of_version};
use anyhow::Result;
use clap::Args;
use jiff::tz::TimeZone;
use sheaf_archive::{ArchivePath, FoundVersion, versions};
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{self, Output, printable};
use sheaf_records::ArchiveVersion;
use sheaf_tools::report::human;
use std::ffi::OsString;
use std::io::Write;

/// List the versions of an archive, the oldest first
///
/// Each store makes one. ls, get, cat, stat, du, find and grep read one with --at.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf archive log /backup::
  sheaf archive ls --at latest /backup::/home")]
pub struct LogArgs {
    /// The store: with the path / or without
    #[arg(value_name = "STORE::")]
    pub name: OsString,
}

/// Lists the versions.
pub fn run(args: &LogArgs, global: &GlobalArgs) -> Result<Exit> {
    let name = ArchivedName::parse_literal(&args.name)?;
    if name.path != ArchivePath::ROOT {
        let text = "a version is of all that is archived: say STORE:: without a path";
        return Err(Stop::usage(text).into());
    }
    let archive = place::open_to_read(&name.store)?;
    let (mut out, mut is_damaged) = (output::stdout(), false);
    for found in versions(&archive)? {
        if let Err(error) = &found.version {
            is_damaged = true;
            output::tell(format_args!("sheaf: {}", printable(&error.to_string())));
        }
        if global.json {
            Output::new(global).records.write(&mut out, &record(&found, false))?;
        } else if let Some(line) = line(&found) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(if is_damaged { Exit::Partial } else { Exit::Success })
}

/// A version in one line; nothing of one that is damaged.
pub fn line(found: &FoundVersion) -> Option<String> {
    let version = found.version.as_ref().ok()?;
    let made = time_of_version(version)?.to_zoned(TimeZone::system());
    let sums = &version.sums;
    let mut line = format!(
        "{}  {}  {}  {} ({}), {} unchanged",
        short_id(found),
        made.strftime("%Y-%m-%d %H:%M:%S"),
        printable(&version.host),
        counted(sums.stored, "file", "files"),
        human::size(sums.stored_bytes),
        sums.unchanged,
    );
    if sums.failed > 0 {
        line += &format!(", {} failed", sums.failed);
    }
    if let Some(name) = &version.name {
        line += &format!("  {}", printable(name));
    }
    Some(line)
}

/// A version for programs.
pub fn record(found: &FoundVersion, forgotten: bool) -> ArchiveVersion {
    let version = found.version.as_ref().ok().cloned();
    let is_damaged = version.is_none();
    let version = version.unwrap_or_default();
    ArchiveVersion {
        id: found.id.to_string(),
        commit: found.number,
        name: version.name,
        time: version.seconds,
        host: version.host,
        stored: version.sums.stored,
        stored_bytes: version.sums.stored_bytes,
        unchanged: version.sums.unchanged,
        failed: version.sums.failed,
        damaged: is_damaged,
        forgotten,
    }
}
