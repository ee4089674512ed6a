//! Trees of this machine removed, or given other modes.
use crate::cli::GlobalArgs;
use crate::cmd::archive::counted;
use crate::cmd::archive::rights::RightsArgs;
use crate::cmd::archive::rm::ArchiveRmArgs;
use crate::exit::Exit;
use crate::output::{self, Output, printable};
use anyhow::Result;
use serde_json::json;
use sheaf_archive::{
    LocalModes, LocalModesReport, LocalRemoveOptions, LocalRemoveStep, LocalRemoved,
    change_local_modes, remove_local,
};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Tells why something of a path stays as it is.
pub fn failed(path: &[u8], why: &dyn std::fmt::Display) {
    let text = format!("{}: {why}", String::from_utf8_lossy(path));
    output::tell(format_args!("sheaf: {}", printable(&text)));
}

/// Why such a directory is left alone.
pub const STORE: &str =
    "is a store of archives: what is in it is named STORE::PATH (--local: itself)";

/// Whether a directory is a store, of which nobody who means what is archived wants the parts.
pub fn is_store(path: &Path) -> bool {
    path.join("sheaf-archive").is_file() && path.join("objects").is_dir()
}

/// Removes a tree, and tells what stays.
pub fn remove(path: &Path, args: &ArchiveRmArgs, global: &GlobalArgs) -> Result<LocalRemoved> {
    let options = LocalRemoveOptions {
        recursive: args.recursive,
        force: args.force,
        tells_names: (args.dry_run || global.verbose > 0) && !global.json,
        root_too: args.no_preserve_root,
        dry_run: args.dry_run,
    };
    if !args.local && is_store(path) {
        failed(path.as_os_str().as_bytes(), &STORE);
        return Ok(LocalRemoved { failed: 1, ..LocalRemoved::default() });
    }
    let mut out = output::stdout_in_blocks();
    let is_terminal = Output::new(global).stdout_is_terminal;
    // What goes is said as by rm -v, and what would go is a list of names.
    let quote = if args.dry_run { "" } else { "'" };
    let removed = remove_local(path, options, &mut |step| -> Result<()> {
        match step {
            LocalRemoveStep::Removed { path, is_directory } => {
                if !args.dry_run {
                    write!(out, "removed {}", if is_directory { "directory " } else { "" })?;
                }
                out.write_all(quote.as_bytes())?;
                if is_terminal {
                    write!(out, "{}", printable(&String::from_utf8_lossy(path)))?;
                } else {
                    out.write_all(path)?;
                }
                writeln!(out, "{quote}")?;
            }
            LocalRemoveStep::Failed { path, why } => failed(path, &why),
        }
        Ok(())
    })?;
    out.flush()?;
    Ok(removed)
}

/// Says how much was removed.
pub fn tell_removed(removed: LocalRemoved, dry_run: bool, global: &GlobalArgs) -> Result<()> {
    if global.json {
        let record = json!({
            "type": "local_removed",
            "directories": removed.directories,
            "files": removed.files,
            "failed": removed.failed,
            "dry_run": dry_run,
        });
        Output::new(global).records.write(&mut output::stdout(), record)?;
    } else if !global.quiet {
        let (files, directories) = (
            counted(removed.files, "file", "files"),
            counted(removed.directories, "directory", "directories"),
        );
        let verb = if dry_run { "would remove" } else { "removed" };
        output::tell(format_args!("sheaf: {verb} {files} and {directories}"));
    }
    Ok(())
}

/// Changes modes of trees, and tells how many.
pub fn modes(
    paths: &[&Path],
    (args, is_local): (&RightsArgs, bool),
    mode: impl Fn(u32, bool) -> u32 + Clone + Send + Sync + 'static,
    global: &GlobalArgs,
) -> Result<Exit> {
    let mut all = LocalModesReport::default();
    for path in paths {
        if !is_local && is_store(path) {
            failed(path.as_os_str().as_bytes(), &STORE);
            all.failed += 1;
            continue;
        }
        let modes = LocalModes {
            mode: Box::new(mode.clone()),
            recursive: args.recursive,
            dry_run: args.dry_run,
        };
        all += change_local_modes(path, modes, &mut |path, errno| failed(path, &errno));
    }
    if global.json {
        let record = json!({
            "type": "local_changed",
            "changed": all.changed,
            "unchanged": all.unchanged,
            "failed": all.failed,
            "dry_run": args.dry_run,
        });
        Output::new(global).records.write(&mut output::stdout(), record)?;
    } else if !global.quiet {
        let changed = counted(all.changed, "file or directory", "files and directories");
        let verb = if args.dry_run { "would change" } else { "changed" };
        output::tell(format_args!("sheaf: {verb} {changed}, {} had it already", all.unchanged));
    }
    Ok(if all.failed > 0 { Exit::Partial } else { Exit::Success })
}
