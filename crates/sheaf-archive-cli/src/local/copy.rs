//! Trees of this machine copied.
use crate::counted;
use crate::local::change::is_store;
use crate::relocate::ArchiveCpArgs;
use anyhow::{Context, Result};
use sheaf_archive::{
    LocalCopyEvent, LocalCopyKeep, LocalCopyOptions, LocalCopyReport, attribute_left, copy_local,
};
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{self, Output, printable};
use sheaf_records::LocalCopied;
use sheaf_tools::report::human;
use std::io::{IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Copies what is named to the last of the names.
pub fn run(names: &[&Path], args: &ArchiveCpArgs, global: &GlobalArgs) -> Result<Exit> {
    let (to, sources) = names.split_last().context("clap asks for two names")?;
    let sources: Vec<PathBuf> = sources.iter().map(|source| source.to_path_buf()).collect();
    if !args.local && is_store(to) {
        let text = format!(
            "{}: is a store of archives: files go into it by store (--local: into its directory)",
            to.display()
        );
        return Err(Stop::usage(printable(&text)).into());
    }
    let options =
        LocalCopyOptions { tells_names: global.verbose > 0 && !global.json, ..options(args) };
    let says = options.dry_run && !options.tells_names;
    let told = |event: LocalCopyEvent<'_>| {
        let text = match event {
            LocalCopyEvent::Begin { from, to } if says => {
                format!("{} -> {}", from.display(), to.display())
            }
            LocalCopyEvent::Begin { .. } => return,
            LocalCopyEvent::Copied { from, to } => return print(from, to),
            LocalCopyEvent::Failed(error) => error.to_string(),
            LocalCopyEvent::AttributeLeft { path, name, errno } => {
                attribute_left(&path, &name, errno)
            }
        };
        output::tell(format_args!("sheaf: {}", printable(&text)));
    };
    let report = copy_local(&sources, to, options, &told)
        .map_err(|error| Stop::usage(printable(&error.to_string())))?;
    tell(&report, options, global)?;
    Ok(if report.failed > 0 { Exit::Partial } else { Exit::Success })
}

/// Names a copy on standard output, as `cp -v` does.
fn print(from: &Path, to: &Path) {
    let mut line = Vec::new();
    for (before, path) in [("'", from), ("' -> '", to)] {
        line.extend_from_slice(before.as_bytes());
        if std::io::stdout().is_terminal() {
            line.extend_from_slice(printable(&path.to_string_lossy()).as_bytes());
        } else {
            line.extend_from_slice(path.as_os_str().as_bytes());
        }
    }
    line.extend_from_slice(b"'\n");
    // Why nothing more is printed is told at the end.
    let _ = output::stdout().write_all(&line);
}

/// How to copy.
pub fn options(args: &ArchiveCpArgs) -> LocalCopyOptions {
    LocalCopyOptions {
        recursive: args.recursive || args.archive,
        keep: match args {
            _ if args.archive => LocalCopyKeep::All,
            _ if args.preserve => LocalCopyKeep::Attributes,
            _ => LocalCopyKeep::Nothing,
        },
        no_clobber: args.names.no_clobber,
        update: args.names.update,
        no_dereference: args.no_dereference || args.links,
        links: args.links,
        force: args.force,
        into_directory: args.names.target_directory.is_some(),
        tells_names: false,
        no_target_directory: args.names.no_target_directory,
        dry_run: args.names.dry_run,
    }
}

/// Says how much was copied.
pub fn tell(
    report: &LocalCopyReport,
    options: LocalCopyOptions,
    global: &GlobalArgs,
) -> Result<()> {
    if global.json {
        let record = LocalCopied {
            files: report.files,
            directories: report.directories,
            bytes: report.bytes,
            skipped: report.skipped,
            attributes_left: report.attributes_left,
            failed: report.failed,
            dry_run: options.dry_run,
        };
        return Ok(Output::new(global).records.write(&mut output::stdout(), &record)?);
    }
    if global.quiet {
        return Ok(());
    }
    let verb = if options.dry_run { "would copy" } else { "copied" };
    let files = counted(report.files, "file", "files");
    let bytes = human::size(report.bytes);
    let directories = counted(report.directories, "directory", "directories");
    let mut text = format!("sheaf: {verb} {files} ({bytes}) and {directories}");
    for (count, what) in [
        (report.skipped, "kept as they were"),
        (report.attributes_left, "attributes not kept"),
        (report.failed, "failed"),
    ] {
        if count > 0 {
            text += &format!(", {count} {what}");
        }
    }
    output::tell(format_args!("{text}"));
    Ok(())
}
