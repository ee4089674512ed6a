//! Files that are archived as directories, and directories that are archived as files: what is found takes
//! the place of what is archived, once all else is stored.
use super::directory::{DirectorySave, SourceName};
use super::phases::SavePool;
use super::{SaveShared, SaveWork, file_error};
use crate::schedule::TaskPlace;
use crate::walk::names::{self, Directory};
use crate::{Archive, ArchiveError, ArchiveEvent, ArchivePath, remove};
use sheaf_core::files::FileKind;
use sheaf_core::{Errno, lock};
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// How many are replaced by one command; each has its directory open. The next command replaces more.
const REPLACED_MAX: usize = 256;

/// What is archived as another kind of file.
pub(super) struct Replacement {
    pub above: Arc<OwnedFd>,
    pub name: OsString,
    /// What it is called where something is told.
    pub path: PathBuf,
    pub to: ArchivePath,
    pub place: TaskPlace,
    pub is_directory: bool,
}

/// Those that were found.
#[derive(Default)]
pub(super) struct Replacements(Mutex<Vec<Replacement>>);

impl Replacements {
    /// Whether it was taken.
    pub fn push(&self, replacement: Replacement) -> bool {
        let mut all = lock(&self.0);
        let has_room = all.len() < REPLACED_MAX;
        if has_room {
            all.push(replacement);
        }
        has_room
    }

    pub fn take(&self) -> Vec<Replacement> {
        std::mem::take(&mut lock(&self.0))
    }
}

impl Replacement {
    /// Takes what is archived away, if this is still there; whether it is.
    pub fn make_room(
        &self,
        archive: &Archive,
        told: &(dyn Fn(ArchiveEvent) + Sync),
    ) -> Result<bool, ArchiveError> {
        let found = match names::lstat_at(self.above.as_fd(), &self.name) {
            Ok(found) => found,
            // It was taken away since.
            Err(Errno::NOENT) => return Ok(false),
            Err(errno) => {
                told(ArchiveEvent::Failed(file_error(&self.path, "cannot be stored", errno)));
                return Ok(false);
            }
        };
        if (found.kind == FileKind::Directory) != self.is_directory {
            return Ok(false);
        }
        remove(archive, &self.to)?;
        let was = if self.is_directory { "a file" } else { "a directory, with what was in it" };
        told(ArchiveEvent::Replaced { path: self.path.clone(), was });
        Ok(true)
    }
}

impl SaveShared<'_> {
    /// Stores what there is room for now.
    pub fn begin_again<'a>(
        &'a self,
        all: &[Replacement],
        pool: &SavePool<'a>,
    ) -> Result<(), ArchiveError> {
        for of in all {
            if of.is_directory {
                let from = Directory::within(of.above.clone(), &of.name);
                let (path, to, place) = (of.path.clone(), of.to.clone(), of.place.clone());
                pool.push(None, SaveWork { from, path, to, above: None, is_source: true, place });
                continue;
            }
            let Some((to, _)) = of.to.split() else { continue };
            let directory = of.above.as_fd();
            let found = names::lstat_at(directory, &of.name);
            let (name, path) = (&*of.name, &*of.path);
            DirectorySave::files(
                self,
                &to,
                vec![SourceName { name, directory, opened: name, path, found }],
            )?;
        }
        Ok(())
    }
}
