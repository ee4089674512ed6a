//! `sheaf archive verify`: whether what is archived is as it was stored.
use super::counted;
use super::place::{self, ArchivedName};
use anyhow::Result;
use clap::Args;
use sheaf_archive::{ArchiveError, ArchivePath, CatalogError, VerifyOptions, VerifyReport, verify};
use sheaf_cli::exit::Exit;
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{self, Output, printable};
use sheaf_records::{ArchiveDamage, ArchiveVerified};
use sheaf_tools::report::human;
use std::ffi::OsString;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Verify that what is archived is as it was stored
///
/// Every byte of packs and objects is compared with its checksum, and the catalog
/// with the log; with the path / also what older versions alone have. What is damaged
/// is named, and the rest can still be got. It ends with 1 if something is.
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
    #[arg(long, alias = "read-data", value_name = "PERCENT", value_parser = percent)]
    pub sample: Option<u64>,
}

/// Parts of a million, of a percentage.
fn percent(text: &str) -> Result<u64, String> {
    let number: f64 =
        text.strip_suffix('%').unwrap_or(text).parse().map_err(|_| "not a number".to_owned())?;
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
    let (of_log, of_index, of_version) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let report = verify(&archive, &name.path, options, &|error| {
        match &error {
            error @ (ArchiveError::OfVersion { .. } | ArchiveError::Version(_))
                if !error.is_of_index() =>
            {
                of_version.fetch_add(1, Relaxed);
            }
            ArchiveError::Catalog(error)
                if error.is_of_log() || matches!(error, CatalogError::Snapshot { .. }) =>
            {
                of_log.fetch_add(1, Relaxed);
            }
            error if error.is_of_index() => drop(of_index.fetch_add(1, Relaxed)),
            _ => {}
        }
        tell_damage(&error, global);
    })?;
    let of = [of_log, of_index, of_version].map(AtomicU64::into_inner);
    tell_report(&report, of, global)?;
    Ok(if report.damaged > 0 { Exit::Unmatched } else { Exit::Success })
}

/// Says what is damaged, and with -v or in JSON each file that it is in.
fn tell_damage(error: &ArchiveError, global: &GlobalArgs) {
    output::tell(format_args!("sheaf: {}", printable(&error.to_string())));
    let files = error.files();
    if global.json {
        let text = |path: &ArchivePath| String::from_utf8_lossy(&path.as_bytes()).into_owned();
        let files: Vec<_> = files.iter().map(text).collect();
        let record = ArchiveDamage { error: error.to_string(), files };
        // Whoever does not read it any more is told by the record at the end.
        drop(Output::new(global).records.write(&mut output::stdout(), &record));
    } else if global.verbose > 0 {
        for path in files {
            output::tell(format_args!("sheaf: damaged: {}", printable(&path.to_string())));
        }
    }
}

fn tell_report(
    report: &VerifyReport,
    [of_log, of_index, of_version]: [u64; 3],
    global: &GlobalArgs,
) -> Result<()> {
    if global.json {
        let record = ArchiveVerified {
            directories: report.directories,
            packs: report.packs,
            objects: report.objects,
            bytes: report.bytes,
            unread: report.unread,
            damaged: report.damaged,
            unreferred: report.unreferred,
            unreferred_bytes: report.unreferred_bytes,
        };
        return Ok(Output::new(global).records.write(&mut output::stdout(), &record)?);
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
        // What came behind damage of the log is not known.
        0 if place::is_cut_off() => ": nothing that is known is damaged".to_owned(),
        0 if report.unread > 0 => ": nothing that was read is damaged".to_owned(),
        0 => ": nothing is damaged".to_owned(),
        damaged => format!(": {damaged} damaged"),
    };
    output::tell(format_args!("sheaf: {text}"));
    let is_empty = report.directories == 0;
    if report.unreferred > 0 {
        let objects = counted(report.unreferred, "object", "objects");
        let bytes = human::size(report.unreferred_bytes);
        let text = match is_empty {
            true => {
                "no commit says what they are: the log may be lost, and has to come back from a copy"
            }
            false => "see sheaf archive repair --help",
        };
        output::tell(format_args!("sheaf: nothing refers to {objects} ({bytes}): {text}"));
    }
    if of_index > 0 {
        output::tell(format_args!(
            "sheaf: repair makes indexes again, where their packs are whole"
        ));
    }
    if of_version > 0 {
        output::tell(format_args!(
            "sheaf: what a version has is damaged until that is forgotten: sheaf archive forget"
        ));
    }
    // What is wrong with the log says itself what helps.
    if report.damaged > of_log + of_index + of_version + u64::from(is_empty) {
        output::tell(format_args!(
            "sheaf: store --checksum stores again what is damaged, where its source is still there"
        ));
    }
    Ok(())
}
