//! `sheaf archive rm`: what is archived goes.
pub mod asking;
mod one_by_one;

use super::find::store_of;
use super::local;
use super::place::{ArchivedName, NamedPlace};
use super::together::FilesTogether;
use super::{counted, hosts};
use anyhow::Result;
use asking::{GoneNames, RemoveAsker};
use clap::Args;
use sheaf_archive::{
    Archive, ArchiveError, ArchivePath, ArchivedFile, LocalRemoved, RemoveReport, RemoveStep,
    remove, remove_files, remove_told,
};
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{self, Output, printable};
use sheaf_records::ArchiveRemoved;
use sheaf_tools::report::human;
use std::ffi::{OsStr, OsString};

/// Remove what is archived, or files of this machine or of hosts
///
/// Nobody sees what is archived any longer, but in older versions; when these are
/// forgotten, the space it takes in the store comes back by repair, of packs of which
/// nothing is left, and by repack, of others. No symbolic link is followed, and . ..
/// and / stay.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf archive rm /backup::/home/ada/draft
  sheaf archive rm -r /backup::/home/bob
  sheaf archive rm -r ./old-results")]
pub struct ArchiveRmArgs {
    /// Archived files and directories, paths of this machine, or HOSTSET:PATH
    #[arg(value_name = "STORE::PATH|PATH", required_unless_present = "force")]
    pub names: Vec<OsString>,

    /// Remove directories with all that is in them, too
    #[arg(short, long, visible_short_alias = 'R')]
    pub recursive: bool,

    /// Remove directories that are empty, too
    #[arg(short = 'd', long)]
    pub dir: bool,

    /// Say nothing of names that are not there, and ask nothing
    #[arg(short, long, overrides_with_all = ["interactive", "once"])]
    pub force: bool,

    /// Ask before each name goes
    #[arg(short, overrides_with_all = ["force", "once"])]
    pub interactive: bool,

    /// Ask once before more than three names go, or any with -r
    #[arg(short = 'I', overrides_with_all = ["force", "interactive"])]
    pub once: bool,

    /// Only say what would be removed
    #[arg(long)]
    pub dry_run: bool,

    /// Let / be removed, which is everything
    #[arg(long)]
    pub no_preserve_root: bool,

    /// Take each name for a path of this machine, even with `:` or `::` in it
    #[arg(long)]
    pub local: bool,
}

/// Removes what is named.
pub fn run(args: &ArchiveRmArgs, global: &GlobalArgs) -> Result<Exit> {
    if hosts::are_on_hosts(&args.names, args.local)? {
        return hosts::tools::rm(args, global);
    }
    if global.json && (args.interactive || args.once) {
        let text = "-i and -I ask somebody, and --json is for programs: leave one out";
        return Err(Stop::usage(text).into());
    }
    let names = NamedPlace::parse_all(&args.names, args.local)?;
    if !args.local {
        for name in &args.names {
            ArchivedName::refuse_contents(name, "removed")?;
        }
    }
    let is_root = |name: &NamedPlace| match name {
        NamedPlace::Archived(name) => name.is_everything(),
        NamedPlace::Local(_) => false,
    };
    if !args.no_preserve_root && names.iter().any(is_root) {
        let text = "/ is all that is archived: --no-preserve-root removes it";
        return Err(Stop::usage(text).into());
    }
    let is_pattern = |name: &NamedPlace| match name {
        NamedPlace::Archived(name) => name.is_pattern(),
        NamedPlace::Local(_) => false,
    };
    if !RemoveAsker::goes_on(args, names.iter().any(is_pattern))? {
        return Ok(Exit::Success);
    }
    let asker = RemoveAsker::of_each(args);
    let mut removal = ArchiveRemoval {
        args,
        asker,
        names: GoneNames::new(args, global),
        tells_names: (args.dry_run || global.verbose > 0) && !global.json,
        store: Vec::new(),
        all: RemoveReport::default(),
        failed: 0,
        together: None,
    };
    let (mut local, mut has_local, mut has_archived) = (LocalRemoved::default(), false, false);
    for (said, name) in args.names.iter().zip(names) {
        let name = match name {
            NamedPlace::Archived(name) => name,
            NamedPlace::Local(path) => {
                local += local::change::remove(&path, args, asker, global)?;
                has_local = true;
                continue;
            }
        };
        has_archived = true;
        let removed = removal.named(said, &name);
        if removed.is_err() {
            // What was named before it is removed all the same.
            removal.files()?;
        }
        removed?;
    }
    removal.files()?;
    removal.names.flush()?;
    let ArchiveRemoval { all, failed, .. } = removal;
    if has_local {
        local::change::tell_removed(local, args.dry_run, global)?;
    }
    if has_archived {
        tell(&all, failed, args.dry_run, global)?;
    }
    Ok(if failed + local.failed > 0 { Exit::Partial } else { Exit::Success })
}

/// What is archived and goes; files wait for others of their directory.
struct ArchiveRemoval<'a> {
    args: &'a ArchiveRmArgs,
    asker: Option<RemoveAsker>,
    names: GoneNames,
    tells_names: bool,
    /// The store of the last name with the `::` behind it, as it was written.
    store: Vec<u8>,
    all: RemoveReport,
    failed: u64,
    together: Option<FilesTogether>,
}

impl ArchiveRemoval<'_> {
    fn named(&mut self, said: &OsStr, name: &ArchivedName) -> Result<()> {
        if !self.together.as_ref().is_some_and(|together| together.is_of(&name.store)) {
            self.files()?;
            self.together = None;
        }
        self.store = store_of(said).to_vec();
        let together = match &mut self.together {
            Some(together) => together,
            none => none.insert(FilesTogether::new(&name.store)?),
        };
        let paths = match name.paths(&together.archive) {
            Err(error)
                if self.args.force && matches!(error.downcast_ref(), Some(Stop::Unmatched(_))) =>
            {
                return Ok(());
            }
            paths => paths?,
        };
        for path in paths {
            match self.asker {
                _ if self.args.dry_run => self.would(path)?,
                Some(asker) => self.asked(&path, asker)?,
                None => self.path(path)?,
            }
        }
        Ok(())
    }

    /// Names all that would be removed, and counts it.
    fn would(&mut self, start: ArchivePath) -> Result<()> {
        let Some(together) = self.together.take() else { return Ok(()) };
        let archive = &together.archive;
        match archive.look_up(&start)? {
            None => self.missing(start),
            Some(ArchivedFile::Directory(_)) if !self.is_removable(archive, &start)? => {}
            Some(_) => archive.walk_ahead(&start, |walk| {
                for found in walk {
                    match found {
                        Ok((path, file)) => self.would_file(&path, &file)?,
                        Err(error) => self.failed(&error.to_string()),
                    }
                }
                Ok::<(), anyhow::Error>(())
            })??,
        }
        self.together = Some(together);
        Ok(())
    }

    /// Whether a directory may go with all that is in it, or is empty; else says why not.
    fn is_removable(&mut self, archive: &Archive, path: &ArchivePath) -> Result<bool> {
        if self.args.recursive {
            return Ok(true);
        }
        if !self.args.dir {
            self.failed(&format!("{path}: is a directory: -r removes it"));
            return Ok(false);
        }
        let is_empty = is_empty(archive, path)?;
        if !is_empty {
            self.failed(&format!("{path}: the directory is not empty: -r removes it"));
        }
        Ok(is_empty)
    }

    fn would_file(&mut self, path: &ArchivePath, file: &ArchivedFile) -> Result<()> {
        let bytes = match file {
            ArchivedFile::Directory(_) => None,
            ArchivedFile::Member { member, .. } => Some(member.size),
            ArchivedFile::Object(object) => Some(object.size),
        };
        match bytes {
            None => self.all.directories += 1,
            Some(bytes) => {
                self.all.files += 1;
                self.all.bytes = self.all.bytes.saturating_add(bytes);
            }
        }
        self.gone(path, bytes.is_none())
    }

    /// Names what is gone, or would be.
    fn gone(&mut self, path: &ArchivePath, is_directory: bool) -> Result<()> {
        if !self.tells_names {
            return Ok(());
        }
        self.names.put(&[&self.store, &path.as_bytes()[..]].concat(), is_directory)
    }

    fn path(&mut self, path: ArchivePath) -> Result<()> {
        let Some(together) = &mut self.together else { return Ok(()) };
        if together.archive.catalog().directory(&path)?.is_none() {
            if !together.push(&path) {
                self.missing(path);
            }
            return Ok(());
        }
        if together.has_within(&path) {
            self.files()?;
        }
        let Some(together) = self.together.take() else { return Ok(()) };
        if self.is_removable(&together.archive, &path)? {
            self.tree(&together.archive, &path)?;
        }
        self.together = Some(together);
        Ok(())
    }

    fn tree(&mut self, archive: &Archive, path: &ArchivePath) -> Result<()> {
        if !self.tells_names {
            self.all += remove(archive, path)?;
            return Ok(());
        }
        let mut told = Ok(());
        let report = remove_told(archive, path, &mut |step| match step {
            RemoveStep::Removed { path, is_directory } if told.is_ok() => {
                told = self.gone(path, is_directory);
            }
            RemoveStep::Removed { .. } => {}
            RemoveStep::Unnamed(error) => self.failed(&error.to_string()),
        })?;
        self.all += report;
        told
    }

    /// Removes the files that wait.
    fn files(&mut self) -> Result<()> {
        let Some(mut together) = self.together.take() else { return Ok(()) };
        let mut none = Vec::new();
        for (directory, mut names) in together.take() {
            names.sort();
            // A name that is given twice is gone the second time.
            none.extend(
                names.windows(2).filter(|two| two[0] == two[1]).map(|two| directory.join(&two[0])),
            );
            names.dedup();
            let (report, missing) = remove_files(&together.archive, &directory, &names)?;
            self.all += report;
            for name in names.iter().filter(|name| !missing.contains(name)) {
                self.gone(&directory.join(name), false)?;
            }
            none.extend(missing.iter().map(|name| directory.join(name)));
        }
        self.together = Some(together);
        none.into_iter().for_each(|path| self.missing(path));
        Ok(())
    }

    fn missing(&mut self, path: ArchivePath) {
        if !self.args.force {
            self.failed(&ArchiveError::NotArchived { path }.to_string());
        }
    }

    fn failed(&mut self, text: &str) {
        self.failed += 1;
        output::tell(format_args!("sheaf: {}", printable(text)));
    }
}

/// Whether nothing is in a directory.
fn is_empty(archive: &Archive, path: &ArchivePath) -> Result<bool, ArchiveError> {
    let catalog = archive.catalog();
    let rows = catalog.rows_of(path)?;
    Ok(rows.packs.is_empty() && rows.objects.is_empty() && catalog.below(path, None, 2)?.len() < 2)
}

fn tell(all: &RemoveReport, failed: u64, dry_run: bool, global: &GlobalArgs) -> Result<()> {
    if global.json {
        let record = ArchiveRemoved {
            directories: all.directories,
            files: all.files,
            bytes: all.bytes,
            failed,
            dry_run,
        };
        Output::new(global).records.write(&mut output::stdout(), &record)?;
    } else if !global.quiet {
        let (files, directories) = (
            counted(all.files, "file", "files"),
            counted(all.directories, "directory", "directories"),
        );
        let (bytes, verb) =
            (human::size(all.bytes), if dry_run { "would remove" } else { "removed" });
        output::tell(format_args!("sheaf: {verb} {files} ({bytes}) and {directories}"));
    }
    Ok(())
}
