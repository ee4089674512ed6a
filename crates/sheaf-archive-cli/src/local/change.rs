//! Trees of this machine removed, or given other modes.
use crate::counted;
use crate::rights::{RightsArgs, RightsPrinter, ToldRights, tells};
use crate::rm::ArchiveRmArgs;
use crate::rm::asking::{GoneNames, RemoveAsker};
use anyhow::Result;
use sheaf_archive::{
    LocalModes, LocalModesReport, LocalModesStep, LocalRemoveOptions, LocalRemoveQuestion,
    LocalRemoveStep, LocalRemoved, change_local_modes, remove_local, remove_local_asked,
};
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{self, Output, printable};
use sheaf_records::LocalChanged;
use sheaf_tools::report::human;
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

/// Refuses a place that is in a store: what is there is the store's.
pub fn refuse_in_store(path: &Path) -> Result<()> {
    let whole = std::path::absolute(path)?;
    match whole.ancestors().find(|above| is_store(above)) {
        None => Ok(()),
        Some(store) => {
            let text = format!(
                "{}: is in a store of archives, {}: name another directory",
                path.display(),
                store.display()
            );
            Err(Stop::usage(printable(&text)).into())
        }
    }
}

/// Removes a tree, and tells what stays; with somebody to ask, what that says.
pub fn remove(
    path: &Path,
    args: &ArchiveRmArgs,
    asker: Option<RemoveAsker>,
    global: &GlobalArgs,
) -> Result<LocalRemoved> {
    let options = LocalRemoveOptions {
        recursive: args.recursive,
        empty_directories: args.dir,
        force: args.force,
        tells_names: (args.dry_run || global.verbose > 0) && !global.json,
        root_too: args.no_preserve_root,
        dry_run: args.dry_run,
    };
    if !args.local && is_store(path) {
        failed(path.as_os_str().as_bytes(), &STORE);
        return Ok(LocalRemoved { failed: 1, ..LocalRemoved::default() });
    }
    let mut names = GoneNames::new(args, global);
    let mut each = |step: LocalRemoveStep<'_>| -> Result<()> {
        match step {
            LocalRemoveStep::Removed { path, is_directory } => names.put(path, is_directory)?,
            LocalRemoveStep::Failed { path, why } => failed(path, &why),
        }
        Ok(())
    };
    let removed = match asker {
        Some(asker) => {
            let mut ask = |question: LocalRemoveQuestion<'_>| {
                let LocalRemoveQuestion { path, kind, is_empty, descends } = question;
                asker.asks(path, (human::kind(kind), is_empty), descends)
            };
            remove_local_asked(path, options, &mut ask, &mut each)?
        }
        None => remove_local(path, options, &mut each)?,
    };
    names.flush()?;
    Ok(removed)
}

/// Says how much was removed.
pub fn tell_removed(removed: LocalRemoved, dry_run: bool, global: &GlobalArgs) -> Result<()> {
    if global.json {
        let record = sheaf_records::LocalRemoved {
            directories: removed.directories,
            files: removed.files,
            failed: removed.failed,
            dry_run,
        };
        Output::new(global).records.write(&mut output::stdout(), &record)?;
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
    let mut printer = RightsPrinter::new(ToldRights::Mode, args.dry_run, global);
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
            tells: tells(args, global),
        };
        all += change_local_modes(path, modes, &mut |step| {
            match step {
                LocalModesStep::Mode { path, old, new } => printer.mode(path, old, new)?,
                LocalModesStep::Link { path } => printer.link(path)?,
                LocalModesStep::Failed { .. } if args.silent => {}
                LocalModesStep::Failed { path, errno } => failed(path, &errno),
            }
            anyhow::Ok(())
        })?;
    }
    printer.flush()?;
    if global.json {
        let record = LocalChanged {
            changed: all.changed,
            unchanged: all.unchanged,
            failed: all.failed,
            dry_run: args.dry_run,
        };
        Output::new(global).records.write(&mut output::stdout(), &record)?;
    } else if !global.quiet {
        let changed = counted(all.changed, "file or directory", "files and directories");
        let verb = if args.dry_run { "would change" } else { "changed" };
        output::tell(format_args!("sheaf: {verb} {changed}, {} had it already", all.unchanged));
    }
    Ok(if all.failed > 0 { Exit::Partial } else { Exit::Success })
}
