//! `sheaf archive store`: files of this machine into an archive.
mod listed;

#[cfg(feature = "s3")]
use super::place::bucket::{self, BucketOptions};
use super::place::{self, ArchivedName};
use super::progress::{self, ArchiveProgress, ScheduleArgs};
use super::{counted, hosts, tell, version};
use anyhow::{Context, Result};
use clap::Args;
#[cfg(feature = "s3")]
use sheaf_archive::S3Encryption;
use sheaf_archive::{
    Archive, ArchiveError, ArchiveEvent, CatalogError, FileIgnores, MEMBER_BYTES_MAX, SaveExclude,
    SaveOptions, SaveReport, ScheduleStats, Store, ZSTD_LEVEL_MAX, save_listed, save_watched,
};
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{self, Output, printable};
use sheaf_cli::session::end_at_signal;
use sheaf_cli::size;
use sheaf_core::Errno;
use sheaf_records::ArchiveStored;
use sheaf_tools::report::human;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How packs are compressed where nothing else is said.
const ZSTD_LEVEL: i32 = 3;

/// Store files and directories, with all that is in them
///
/// Each keeps its name below STORE::DIR; of SRC/. it is what is in the directory
/// that is stored. What is archived already, with the same size, times and inode,
/// is not stored again. What is no longer among the sources stays archived.
///
/// Of HOSTSET:PATH each host stores its own, straight to the store, below DIR/HOST;
/// with --shared, where all see the same files, together, below DIR.
#[derive(Args, Debug)]
#[command(
    verbatim_doc_comment,
    override_usage = "sheaf archive store [OPTIONS] <SRC>... <STORE::DIR>"
)]
#[command(after_help = "\
Examples:
  sheaf archive store --create /home /backup::/
  sheaf archive store --plain /etc/ssh /etc/fstab /backup::/etc
  find /home -newer stamp -print0 | sheaf archive store -0 --files-from - /backup::
  sheaf archive store 'n[1-64]:/etc' /net/backup::/hosts
  sheaf archive store --shared 'n[1-8]:/scratch/ada' /net/backup::/scratch")]
pub struct StoreArgs {
    /// Files and directories of this machine, or HOSTSET:PATH of hosts; the last is the
    /// archived directory they go to
    #[arg(value_name = "SRC", required = true, num_args = 1..)]
    pub names: Vec<OsString>,

    /// Call the version that is made so; archive log and --at know it by this name
    #[arg(long = "name", visible_alias = "tag", value_name = "NAME", value_parser = version::name)]
    pub version_name: Option<String>,

    /// Make a store of the directory STORE, if there is none
    #[arg(long)]
    pub create: bool,

    /// Put every file into an object of its own
    #[arg(long)]
    pub no_packs: bool,

    /// Put files of up to SIZE into packs, at most 64M: where it is not said, of 1M, or
    /// of more where an object more costs the store much time
    #[arg(long, value_name = "SIZE", value_parser = pack_limit, conflicts_with = "no_packs")]
    pub pack_limit: Option<u64>,

    /// Compress packs with this level of zstd, from 1 to 19 [default: 3]
    #[arg(
        long, value_name = "LEVEL", num_args = 0..=1, require_equals = true,
        default_missing_value = "3",
        value_parser = clap::value_parser!(i32).range(1..=i64::from(ZSTD_LEVEL_MAX)),
    )]
    pub zstd: Option<i32>,

    /// Write packs as plain tars, which programs without zstd read
    #[arg(long, conflicts_with_all = ["zstd", "no_packs"])]
    pub plain: bool,

    /// Compare contents, not times: store what differs from what is archived, and again
    /// what is damaged in the store
    #[arg(long)]
    pub checksum: bool,

    /// A file with the archived size, time, mode and owner is unchanged, whatever its
    /// time of change (ctime)
    #[arg(long, conflicts_with = "checksum")]
    pub ignore_ctime: bool,

    /// The same, whatever its time of change and its inode, as on servers and FUSE file
    /// systems that number files anew
    #[arg(long, conflicts_with = "checksum")]
    pub ignore_inode: bool,

    /// Leave out files, and directories with all that is in them, whose name fits GLOB,
    /// or whose path does, with a slash in GLOB; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub exclude: Vec<String>,

    /// Leave out what fits a GLOB of FILE, one a line, but for lines that begin with #;
    /// may be repeated
    #[arg(long, value_name = "FILE")]
    pub exclude_from: Vec<PathBuf>,

    /// Store what FILE names, or standard input for -, one name a line: each keeps its
    /// path below STORE::DIR; may be repeated
    #[arg(
        long,
        value_name = "FILE",
        visible_alias = "files-from-verbatim",
        conflicts_with = "shared"
    )]
    pub files_from: Vec<PathBuf>,

    /// Names of --files-from end with a NUL instead of a line's end
    #[arg(short = '0', long, visible_alias = "from0", requires = "files_from")]
    pub null: bool,

    /// Of a directory at which another file system is mounted, store nothing but the
    /// directory
    #[arg(short = 'x', long)]
    pub one_file_system: bool,

    /// Only say what would be stored
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    /// Have a bucket keep packs and large files in this storage class
    #[cfg(feature = "s3")]
    #[arg(long, value_name = "CLASS", value_parser = bucket::storage_class)]
    pub storage_class: Option<String>,

    /// Have a bucket's server encrypt what is written: AES256, aws:kms or aws:kms:KEY
    #[cfg(feature = "s3")]
    #[arg(long, value_name = "KIND", value_parser = bucket::encryption)]
    pub sse: Option<S3Encryption>,

    #[command(flatten)]
    pub schedule: ScheduleArgs,

    /// All hosts of HOSTSET:PATH see the same files: each directory is stored once, by
    /// one of them
    #[arg(long)]
    pub shared: bool,
}

impl StoreArgs {
    /// Whether files of hosts are stored.
    pub fn is_on_hosts(&self) -> bool {
        let sources = self.names.split_last().map_or(&[][..], |(_, sources)| sources);
        sources.iter().any(|source| hosts::is_on_hosts(source))
    }

    /// Where files go, and how its server is to keep them.
    fn destination(&self, to: &OsStr) -> Result<ArchivedName> {
        #[cfg_attr(not(feature = "s3"), expect(unused_mut, reason = "buckets say more"))]
        let mut to = ArchivedName::parse_literal(to)?;
        #[cfg(feature = "s3")]
        {
            let (storage_class, encryption) = (self.storage_class.clone(), self.sse.clone());
            to.store = BucketOptions { storage_class, encryption }.name(&to.store)?;
        }
        Ok(to)
    }

    /// How files are stored, as far as it does not depend on where they are.
    pub fn options(&self, store: &dyn Store, global: &GlobalArgs) -> SaveOptions {
        let zstd = (!self.plain).then_some(self.zstd.unwrap_or(ZSTD_LEVEL));
        let mut options = SaveOptions { zstd, ..SaveOptions::of(store) };
        if let Some(bytes) = self.pack_limit {
            options.member_bytes_max = bytes;
        }
        if self.no_packs {
            options.member_bytes_max = 0;
        }
        options.checksum = self.checksum;
        options.ignores = FileIgnores::of(self.ignore_ctime, self.ignore_inode);
        options.one_file_system = self.one_file_system;
        options.dry_run = self.dry_run;
        options.tell_names = (self.dry_run && !global.json) || global.verbose > 0;
        options.limits = self.schedule.limited(options.limits);
        options
    }

    /// What of the sources is left out.
    pub fn excluded(&self) -> Result<SaveExclude> {
        let mut globs = self.exclude.clone();
        for file in &self.exclude_from {
            globs.extend(globs_of(file)?);
        }
        Ok(SaveExclude::new(&globs).map_err(|error| Stop::usage(error.to_string()))?)
    }
}

/// The patterns in a file.
fn globs_of(file: &Path) -> Result<Vec<String>> {
    let failed = |why: &dyn std::fmt::Display| {
        let text = format!("--exclude-from {}: {why}", file.display());
        Stop::usage(printable(&text))
    };
    let text = std::fs::read(file)
        .map_err(|error| failed(&Errno::from_io(&error)))
        .and_then(|bytes| String::from_utf8(bytes).map_err(|_| failed(&"is not UTF-8")))?;
    let is_glob = |line: &&str| !line.is_empty() && !line.starts_with('#');
    Ok(text.lines().filter(is_glob).map(str::to_owned).collect())
}

/// Bytes of the longest file in a pack.
fn pack_limit(text: &str) -> Result<u64, String> {
    let bytes = size::bytes(text)?;
    match bytes {
        0 => Err("with 0 there are no packs: say --no-packs".to_owned()),
        bytes if bytes > MEMBER_BYTES_MAX as u64 => {
            Err(format!("a file in a pack has at most {}", human::size(MEMBER_BYTES_MAX as u64)))
        }
        bytes => Ok(bytes),
    }
}

/// Refuses names of which it is not clear what is stored, or where.
fn check_names(args: &StoreArgs, to: &OsStr, sources: &[OsString]) -> Result<()> {
    if !args.files_from.is_empty() && !sources.is_empty() {
        let text = "all names come from --files-from: say STORE::DIR alone beside it";
        return Err(Stop::usage(text).into());
    }
    if sources.is_empty() && args.files_from.is_empty() {
        let to = printable(&to.to_string_lossy());
        let text = format!(
            "{to}: where to? The archived directory STORE::DIR comes last; --create makes a store"
        );
        return Err(Stop::usage(text).into());
    }
    if sources.iter().any(|source| source.is_empty()) {
        return Err(Stop::usage("a source has no name: it is empty").into());
    }
    Ok(())
}

/// Makes no store where none of the sources is there.
fn check_some_is_there(args: &StoreArgs, sources: &[OsString], store: &Path) -> Result<()> {
    if !args.create || sources.is_empty() {
        return Ok(());
    }
    let is_missing = |source: &OsString| {
        std::fs::symlink_metadata(source)
            .is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
    };
    if sources.iter().all(is_missing) && !place::is_store(store)? {
        let first = printable(&sources[0].to_string_lossy());
        anyhow::bail!("{first}: is not there, so no store is made");
    }
    Ok(())
}

/// Stores the files.
pub fn run(args: &StoreArgs, global: &GlobalArgs) -> Result<Exit> {
    let (to, sources) = args.names.split_last().context("clap asks for a name")?;
    check_names(args, to, sources)?;
    let to = args.destination(to)?;
    let first = sources.first().and_then(|first| first.to_str()).unwrap_or_default();
    if args.zstd.is_some()
        && first.parse::<u8>().is_ok()
        && std::fs::symlink_metadata(first).is_err()
    {
        let text = format!("{first}: is no file: a level is written as --zstd={first}");
        return Err(Stop::usage(text).into());
    }
    if args.is_on_hosts() {
        if !sources.iter().all(|source| hosts::is_on_hosts(source)) {
            let text = "all sources are on hosts, or all on this machine";
            return Err(Stop::usage(text).into());
        }
        return hosts::store::run(args, sources, &to, global);
    }
    if args.shared {
        return Err(Stop::usage("--shared is for files of hosts: HOSTSET:PATH").into());
    }
    let exclude = args.excluded()?;
    // Where there is no store yet, an empty one stands for it.
    let scratch = (args.dry_run && args.create && !place::is_store(&to.store)?)
        .then(tempfile::tempdir)
        .transpose()?;
    let store = scratch.as_ref().map_or_else(|| to.store.clone(), |at| at.path().join("store"));
    check_some_is_there(args, sources, &to.store)?;
    let archive = place::open(&store, args.create)?;
    let left_out = place::directory_id(&store)?;
    let options = SaveOptions { left_out, ..args.options(archive.store(), global) };
    let sources: Vec<PathBuf> = sources.iter().map(PathBuf::from).collect();
    let progress = ArchiveProgress::new(global);
    if !args.dry_run {
        end_at_signal(
            "interrupted: what was committed is archived; the same command does the rest",
        );
    }
    let watch = |done: &SaveReport, stats: &ScheduleStats| {
        progress.show(done.stored + done.unchanged, done.stored_bytes, stats);
    };
    let others = AtomicU64::new(0);
    let told = |event| {
        // Somebody else who stores the same changes as much.
        let is_of_other = matches!(
            event,
            ArchiveEvent::Failed(ArchiveError::Catalog(CatalogError::Changed { .. }))
        );
        if !is_of_other || others.fetch_add(1, Relaxed) < CHANGED_TOLD {
            progress.suspend(|| tell(&event));
        }
    };
    let saved = if args.files_from.is_empty() {
        save_watched(&archive, &sources, &to.path, options, &exclude, &told, &watch)
    } else {
        let mut list = listed::names(&args.files_from, args.null)?;
        save_listed(&archive, &mut list, &to.path, options, &exclude, &told, &watch)
    };
    let (stats, took) = progress.end();
    tell_ends(others.into_inner(), saved.as_ref().err(), &to.store);
    let report = saved?;
    // What was stored is told, whether it became a version or not.
    let mut marked = Ok(());
    if !args.dry_run {
        marked = version::mark(&archive, args.version_name.as_deref(), &report);
        compact_log(&archive);
    }
    if args.schedule.stats {
        progress::tell_stats(&stats, took, global)?;
    }
    tell_report(&report, args.dry_run, global)?;
    marked?;
    Ok(if report.failed + report.changing > 0 { Exit::Partial } else { Exit::Success })
}

/// Writes a snapshot of the log, where it is time. All is archived without it, so its failure is reported,
/// and is no failure of the command.
pub fn compact_log(archive: &Archive) {
    if let Err(error) = archive.compact_log() {
        let error = printable(&error.to_string());
        output::tell(format_args!("sheaf: {error}: no snapshot of the log is written"));
    }
}

/// Directories that another writer has changed, of which each is told at most.
const CHANGED_TOLD: u64 = 3;

/// Says what else is to be known of a run that was in somebody's way, or had no room.
fn tell_ends(others: u64, error: Option<&ArchiveError>, store: &Path) {
    if let Some(more @ 1..) = others.checked_sub(CHANGED_TOLD) {
        let directories = counted(more, "directory", "directories");
        output::tell(format_args!(
            "sheaf: and {directories} more that another writer has changed meanwhile"
        ));
    }
    let full = [Errno::NOSPC, Errno::DQUOT];
    if error.is_some_and(|error| full.contains(&error.errno())) {
        let store = printable(&store.to_string_lossy());
        output::tell(format_args!(
            "sheaf: what was committed is archived; what was not takes room until sheaf archive repair \
             --age 0 {store}::"
        ));
    }
}

/// Says what was stored.
pub fn tell_report(report: &SaveReport, dry_run: bool, global: &GlobalArgs) -> Result<()> {
    if global.json {
        let record = ArchiveStored {
            directories: report.directories,
            stored: report.stored,
            stored_bytes: report.stored_bytes,
            unchanged: report.unchanged,
            changing: report.changing,
            skipped: report.skipped,
            failed: report.failed,
            dry_run,
        };
        return Ok(Output::new(global).records.write(&mut output::stdout(), &record)?);
    }
    if global.quiet {
        return Ok(());
    }
    let mut text = format!(
        "{} {} ({}) of {}",
        if dry_run { "would store" } else { "stored" },
        counted(report.stored, "file", "files"),
        human::size(report.stored_bytes),
        counted(report.directories, "directory", "directories"),
    );
    for (count, what) in [
        (report.unchanged, "unchanged"),
        (report.changing, "written to meanwhile"),
        (report.skipped, "left out"),
        (report.failed, "failed"),
    ] {
        if count > 0 {
            text += &format!(", {count} {what}");
        }
    }
    output::tell(format_args!("sheaf: {text}"));
    Ok(())
}
