//! `sheaf archive verify`: whether what is archived is as it was stored.
use super::counted;
use super::place::{self, ArchivedName};
use crate::cli::GlobalArgs;
use crate::exit::Exit;
use crate::output::{self, Output, printable};
use anyhow::Result;
use clap::Args;
use serde_json::json;
use sheaf_archive::{ArchiveError, VerifyOptions, VerifyReport, verify};
use sheaf_tools::report::human;
use std::ffi::OsString;
use std::sync::atomic::{AtomicU64, Ordering};

/// Verify that what is archived is as it was stored
///
/// Every byte of packs and objects is compared with its checksum, and the catalog
/// with the log. What is damaged is named, and the rest can still be got. It ends
/// with 1 if something is.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
#[command(after_help = "\
Examples:
  sheaf archive verify /backup::/
  sheaf archive verify --sample 5 /backup::/home")]
pub struct VerifyArgs {
    /// An archived directory
    #[arg(value_name = "STORE::DIR")]
    pub name: OsString,

    /// Read so many of a hundred packs and objects, picked at random; of the others
    /// it is only seen that they are there
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub sample: Option<u64>,
}

/// Parts of a million, of a percentage.
fn percent(text: &str) -> Result<u64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if !(0.0..=100.0).contains(&number) {
        return Err("a percentage is between 0 and 100".to_owned());
    }
    Ok((number * 10_000.0).round() as u64)
}

/// Verifies the directory.
pub fn run(args: &VerifyArgs, global: &GlobalArgs) -> Result<Exit> {
    let name = ArchivedName::parse_literal(&args.name)?;
    let archive = place::open_to_read(&name.store)?;
    place::refuse_file(&archive, &name, "verified")?;
    let mut options = VerifyOptions::default();
    if let Some(sample) = args.sample {
        options.sample_of_million = sample;
    }
    let of_log = AtomicU64::new(0);
    let report = verify(&archive, &name.path, options, &|error| {
        if matches!(&error, ArchiveError::Catalog(error) if error.is_of_log()) {
            of_log.fetch_add(1, Ordering::Relaxed);
        }
        output::tell(format_args!("sheaf: {}", printable(&error.to_string())));
    })?;
    tell_report(&report, of_log.into_inner(), global)?;
    Ok(if report.damaged > 0 { Exit::Unmatched } else { Exit::Success })
}

fn tell_report(report: &VerifyReport, of_log: u64, global: &GlobalArgs) -> Result<()> {
    if global.json {
        let record = json!({
            "type": "archive_verified",
            "directories": report.directories,
            "packs": report.packs,
            "objects": report.objects,
            "bytes": report.bytes,
            "unread": report.unread,
            "damaged": report.damaged,
        });
        return Ok(Output::new(global).records.write(&mut output::stdout(), record)?);
    }
    if global.quiet {
        return Ok(());
    }
    let mut text = format!(
        "verified {} and {} ({}) of {}",
        counted(report.packs, "pack", "packs"),
        counted(report.objects, "object", "objects"),
        human::size(report.bytes),
        counted(report.directories, "directory", "directories"),
    );
    if report.unread > 0 {
        text += &format!(", {} not read", report.unread);
    }
    text += &match report.damaged {
        0 if report.unread > 0 => ": nothing that was read is damaged".to_owned(),
        0 => ": nothing is damaged".to_owned(),
        damaged => format!(": {damaged} damaged"),
    };
    output::tell(format_args!("sheaf: {text}"));
    // What is wrong with the log says itself what helps.
    if report.damaged > of_log {
        output::tell(format_args!(
            "sheaf: store --checksum stores again what is damaged, where its source is still there"
        ));
    }
    Ok(())
}
