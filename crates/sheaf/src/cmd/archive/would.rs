//! `sheaf archive rm --dry-run`: what would be removed.
use super::find::store_of;
use super::local::change::{STORE, is_store};
use super::place::{self, NamedPlace};
use super::rm::ArchiveRmArgs;
use crate::output::{self, Output, printable};
use anyhow::Result;
use sheaf_archive::{
    Archive, ArchiveError, ArchivePath, ArchivedFile, LocalRemoved, RemoveReport, TreeWalk,
    TreeWalkOptions,
};
use sheaf_core::Errno;
use std::ffi::OsStr;
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Names what would be removed, and counts it.
pub struct WouldRemove<'a> {
    args: &'a ArchiveRmArgs,
    output: Output,
    out: BufWriter<output::Stdout>,
    pub archived: RemoveReport,
    pub local: LocalRemoved,
    pub failed: u64,
}

impl<'a> WouldRemove<'a> {
    pub fn new(args: &'a ArchiveRmArgs, output: Output) -> Self {
        let (archived, local) = (RemoveReport::default(), LocalRemoved::default());
        Self { args, output, out: output::stdout_in_blocks(), archived, local, failed: 0 }
    }

    /// Of all names that are given.
    pub fn all(&mut self) -> Result<()> {
        for said in &self.args.names {
            match NamedPlace::parse(said, self.args.local)? {
                NamedPlace::Local(path) => self.path(&path)?,
                NamedPlace::Archived(name) => {
                    let archive = place::open(&name.store, false)?;
                    for path in name.paths(&archive)? {
                        self.archived(&archive, store_of(said), &path)?;
                    }
                }
            }
        }
        Ok(self.out.flush()?)
    }

    fn archived(&mut self, archive: &Archive, store: &[u8], start: &ArchivePath) -> Result<()> {
        match archive.look_up(start)? {
            None if self.args.force => return Ok(()),
            None => {
                return self.failed(&ArchiveError::NotArchived { path: start.clone() }.to_string());
            }
            Some(ArchivedFile::Directory(_)) if !self.args.recursive => {
                return self.failed(&format!("{start}: is a directory: -r removes it"));
            }
            Some(_) => {}
        }
        archive.walk_ahead(start, |walk| -> Result<()> {
            for found in walk {
                let (path, file) = match found {
                    Ok(found) => found,
                    Err(error) => {
                        self.failed(&error.to_string())?;
                        continue;
                    }
                };
                match file {
                    ArchivedFile::Directory(_) => self.archived.directories += 1,
                    ArchivedFile::Member { member, .. } => {
                        self.archived.files += 1;
                        self.archived.bytes += member.size;
                    }
                    ArchivedFile::Object(object) => {
                        self.archived.files += 1;
                        self.archived.bytes += object.size;
                    }
                }
                self.name(&[store, &path.as_bytes()].concat())?;
            }
            Ok(())
        })?
    }

    fn path(&mut self, start: &Path) -> Result<()> {
        if !self.args.local && is_store(start) {
            return self.failed(&format!("{}: {STORE}", start.display()));
        }
        let options = TreeWalkOptions { follows_start: false, ..TreeWalkOptions::default() };
        for entry in TreeWalk::new(start, options) {
            let found = match entry.found {
                Ok(found) => found,
                Err(Errno::NOENT) if self.args.force && entry.path == start => continue,
                Err(errno) => {
                    self.failed(&format!("{}: {errno}", entry.path.display()))?;
                    continue;
                }
            };
            if found.is_dir() && !self.args.recursive {
                return self.failed(&format!("{}: is a directory: -r removes it", start.display()));
            }
            *(if found.is_dir() { &mut self.local.directories } else { &mut self.local.files }) +=
                1;
            self.name(entry.path.as_os_str().as_bytes())?;
        }
        Ok(())
    }

    fn name(&mut self, name: &[u8]) -> Result<()> {
        if self.output.json {
            return Ok(());
        }
        if self.output.stdout_is_terminal {
            let text = OsStr::from_bytes(name).to_string_lossy();
            return Ok(writeln!(self.out, "{}", printable(&text))?);
        }
        self.out.write_all(name)?;
        Ok(self.out.write_all(b"\n")?)
    }

    fn failed(&mut self, text: &str) -> Result<()> {
        self.failed += 1;
        // What was found before it comes first.
        self.out.flush()?;
        output::tell(format_args!("sheaf: {}", printable(text)));
        Ok(())
    }
}
