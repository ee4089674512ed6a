//! `sheaf archive rm`: what is archived goes.
use super::find::store_of;
use super::local;
use super::place::{ArchivedName, NamedPlace};
use super::together::FilesTogether;
use super::{counted, hosts};
use crate::cli::GlobalArgs;
use crate::exit::{Exit, Stop};
use crate::output::{self, Output, printable};
use anyhow::Result;
use clap::Args;
use serde_json::json;
use sheaf_archive::{
    ArchiveError, ArchivePath, ArchivedFile, LocalRemoved, RemoveReport, remove, remove_files,
};
use sheaf_tools::report::human;
use std::ffi::{OsStr, OsString};
use std::io::Write;

/// Remove what is archived, or files of this machine or of hosts
///
/// Nobody sees what is archived any longer; the space it takes in the store stays
/// taken. No symbolic link is followed, and . .. and / stay.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf archive rm /backup::/home/ada/draft
  sheaf archive rm -r /backup::/home/bob
  sheaf archive rm -r ./old-results")]
pub struct ArchiveRmArgs {
    /// Archived files and directories, paths of this machine, or HOSTSET:PATH
    #[arg(value_name = "STORE::PATH|PATH", required = true)]
    pub names: Vec<OsString>,

    /// Remove directories with all that is in them, too
    #[arg(short, long, visible_short_alias = 'R')]
    pub recursive: bool,

    /// Say nothing of names that are not there
    #[arg(short, long)]
    pub force: bool,

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
    let names = NamedPlace::parse_all(&args.names, args.local)?;
    let is_root = |name: &NamedPlace| match name {
        NamedPlace::Archived(name) => name.path == ArchivePath::ROOT,
        NamedPlace::Local(_) => false,
    };
    if !args.no_preserve_root && names.iter().any(is_root) {
        let text = "/ is all that is archived: --no-preserve-root removes it";
        return Err(Stop::usage(text).into());
    }
    let mut removal = ArchiveRemoval {
        args,
        output: Output::new(global),
        all: RemoveReport::default(),
        failed: 0,
        together: None,
    };
    let (mut local, mut has_local, mut has_archived) = (LocalRemoved::default(), false, false);
    for (said, name) in args.names.iter().zip(names) {
        let name = match name {
            NamedPlace::Archived(name) => name,
            NamedPlace::Local(path) => {
                local += local::change::remove(&path, args, global)?;
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
    output: Output,
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
        let together = match &mut self.together {
            Some(together) => together,
            none => none.insert(FilesTogether::new(&name.store)?),
        };
        let paths = name.paths(&together.archive)?;
        let mut out = output::stdout_in_blocks();
        for path in paths {
            if self.args.dry_run {
                self.would(path, store_of(said), &mut out)?;
            } else {
                self.path(path)?;
            }
        }
        Ok(out.flush()?)
    }

    /// Names all that would be removed, and counts it.
    fn would(&mut self, start: ArchivePath, store: &[u8], out: &mut dyn Write) -> Result<()> {
        let Some(together) = self.together.take() else { return Ok(()) };
        let archive = &together.archive;
        match archive.look_up(&start)? {
            None => self.missing(start),
            Some(ArchivedFile::Directory(_)) if !self.args.recursive => {
                self.failed(&format!("{start}: is a directory: -r removes it"));
            }
            Some(_) => archive.walk_ahead(&start, |walk| {
                for found in walk {
                    match found {
                        Ok((path, file)) => self.would_file(&path, &file, store, out)?,
                        Err(error) => self.failed(&error.to_string()),
                    }
                }
                Ok::<(), anyhow::Error>(())
            })??,
        }
        self.together = Some(together);
        Ok(())
    }

    fn would_file(
        &mut self,
        path: &ArchivePath,
        file: &ArchivedFile,
        store: &[u8],
        out: &mut dyn Write,
    ) -> Result<()> {
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
        let mut name = [store, &path.as_bytes()].concat();
        if self.output.json {
            return Ok(());
        }
        if self.output.stdout_is_terminal {
            name = printable(&String::from_utf8_lossy(&name)).to_string().into_bytes();
        }
        name.push(b'\n');
        Ok(out.write_all(&name)?)
    }

    fn path(&mut self, path: ArchivePath) -> Result<()> {
        let Some(together) = &mut self.together else { return Ok(()) };
        if together.archive.catalog().directory(&path)?.is_none() {
            if !together.push(&path) {
                self.missing(path);
            }
            return Ok(());
        }
        if !self.args.recursive {
            self.failed(&format!("{path}: is a directory: -r removes it"));
            return Ok(());
        }
        if together.has_within(&path) {
            self.files()?;
        }
        if let Some(together) = &self.together {
            self.all += remove(&together.archive, &path)?;
        }
        Ok(())
    }

    /// Removes the files that wait.
    fn files(&mut self) -> Result<()> {
        let Some(together) = &mut self.together else { return Ok(()) };
        let mut none = Vec::new();
        for (directory, mut names) in together.take() {
            names.sort();
            // A name that is given twice is gone the second time.
            none.extend(
                names.windows(2).filter(|two| two[0] == two[1]).map(|two| directory.join(&two[0])),
            );
            let (report, missing) = remove_files(&together.archive, &directory, &names)?;
            self.all += report;
            none.extend(missing.iter().map(|name| directory.join(name)));
        }
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

fn tell(all: &RemoveReport, failed: u64, dry_run: bool, global: &GlobalArgs) -> Result<()> {
    if global.json {
        let record = json!({
            "type": "archive_removed",
            "directories": all.directories,
            "files": all.files,
            "bytes": all.bytes,
            "failed": failed,
            "dry_run": dry_run,
        });
        Output::new(global).records.write(&mut output::stdout(), record)?;
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
