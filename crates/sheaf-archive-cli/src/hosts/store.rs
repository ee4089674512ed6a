//! `sheaf archive store` of files on hosts.
use super::drive;
use super::serve::SAVE;
use crate::place::{self, ArchivedName};
use crate::progress::tell_hosts_stats;
use crate::store::{StoreArgs, compact_log, tell_report};
use crate::version;
use anyhow::Result;
use sheaf_archive::{SaveRoot, SaveRootOptions};
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{self, printable};
use sheaf_cli::session::Opening;
use sheaf_session::address::Purpose;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Stores the files of hosts.
pub fn run(
    args: &StoreArgs,
    sources: &[OsString],
    to: &ArchivedName,
    global: &GlobalArgs,
) -> Result<Exit> {
    let mut opening = Opening::new(global)?;
    opening.lift_deadline();
    let (members, sources) = super::places(sources, opening.config(), Purpose::Read)?;
    let sources = sources.iter().map(|path| super::one_path(path)).collect::<Result<Vec<_>>>()?;
    check(&sources)?;
    // It is let go outside of the runtime, which a catalog in a database may not be within.
    let archive = Arc::new(place::open(&to.store, args.create && !args.dry_run)?);
    let exclude = args.excluded()?;
    let stored = args.options(archive.store(), global);
    let options = SaveRootOptions {
        store: place::name_for_hosts(&to.store)?,
        sources,
        to: to.path.clone(),
        is_shared: args.shared,
        workers: 0,
        member_bytes_max: stored.member_bytes_max,
        pack_bytes: stored.pack_bytes,
        part_bytes: stored.part_bytes,
        zstd: stored.zstd,
        checksum: stored.checksum,
        ignores: stored.ignores,
        dry_run: stored.dry_run,
        tell_names: stored.tell_names,
        one_file_system: stored.one_file_system,
        limits: stored.limits,
        exclude,
        numbers: args.schedule.stats,
    };
    let begun = Instant::now();
    let ended = opening.run(async |session, config, _| {
        let hosts = members.iter().map(|leaf| session.client().host(leaf).unwrap_or_default());
        let (of, hosts) = (archive.clone(), hosts.collect());
        let root = move || SaveRoot::new(of, options, hosts);
        let root = Arc::new(tokio::task::spawn_blocking(root).await??);
        let driven = drive::drive(session, config, &members, SAVE, &root, global).await;
        let numbers = root.numbers();
        // What was done is kept also where something else has failed.
        let (report, refused) = tokio::task::spawn_blocking(move || root.finish()).await??;
        for error in refused {
            output::tell(format_args!("sheaf: {}", printable(&error.to_string())));
        }
        let driven = driven?;
        if args.schedule.stats {
            let of_hosts = super::of_leaves(&members, numbers);
            tell_hosts_stats(&of_hosts, session.client(), begun.elapsed(), global)?;
        }
        // What was stored is told, whether it became a version or not.
        let mut marked = Ok(());
        if !args.dry_run && driven.done > 0 && !session.client().is_interrupted() {
            let (of, name) = (archive.clone(), args.version_name.clone());
            let mark = move || version::mark(&of, name.as_deref(), &report);
            marked = tokio::task::spawn_blocking(mark).await?;
        }
        tell_report(&report, args.dry_run, global)?;
        marked?;
        Ok(match () {
            () if session.client().is_interrupted() => Exit::Interrupted,
            () if driven.done == 0
                && report.directories.max(report.stored).max(report.unchanged) > 0 =>
            {
                Exit::Partial
            }
            () if driven.done == 0 => Exit::Unreachable,
            () if report.failed.max(report.changing) > 0 => Exit::Partial,
            () => Exit::Success,
        })
    });
    if !args.dry_run {
        compact_log(&archive);
    }
    ended
}

/// Each keeps its name, so no two have the same.
fn check(sources: &[PathBuf]) -> Result<()> {
    let is_whole =
        |path: &Path| path.file_name().is_none() || path.as_os_str().as_bytes().ends_with(b"/.");
    let mut names = std::collections::HashSet::new();
    for source in sources {
        if is_whole(source) && sources.len() > 1 {
            let text = format!("{}: what is in a directory is stored by itself", source.display());
            return Err(Stop::usage(printable(&text)).into());
        }
        if !names.insert(source.file_name()) {
            let text = format!("{}: another source has this name", source.display());
            return Err(Stop::usage(printable(&text)).into());
        }
    }
    Ok(())
}
