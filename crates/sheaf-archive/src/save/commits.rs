//! Changes of many directories in one commit.
use super::SavedDirectory;
use crate::archive::{Archive, ArchiveError};
use crate::catalog::{CatalogError, Commit, DirectoryChange};
use crate::path::ArchivePath;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Directories in a commit at most.
const DIRECTORIES_MAX: usize = 512;
/// Time between two commits at least, where changes are few: as long a change waits for others.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Changes that are not committed yet.
pub(super) struct Commits {
    waiting: Vec<(Arc<SavedDirectory>, DirectoryChange)>,
    /// The last commit.
    since: Instant,
    /// Directories that another writer has changed meanwhile.
    refused: Vec<ArchiveError>,
}

impl Default for Commits {
    fn default() -> Self {
        Self { waiting: Vec::new(), since: Instant::now(), refused: Vec::new() }
    }
}

impl Commits {
    /// Takes a change of a directory, whose packs and objects are all in the store.
    pub fn push(
        &mut self,
        archive: &Archive,
        of: &Arc<SavedDirectory>,
        change: DirectoryChange,
    ) -> Result<(), ArchiveError> {
        // Later changes build on the one that was given up.
        if of.is_broken() {
            return Ok(());
        }
        self.waiting.push((of.clone(), change));
        if self.waiting.len() >= DIRECTORIES_MAX || self.since.elapsed() >= WAIT_MAX {
            self.flush(archive)?;
        }
        Ok(())
    }

    /// Commits the rest; what was refused.
    pub fn finish(mut self, archive: &Archive) -> Result<Vec<ArchiveError>, ArchiveError> {
        self.flush(archive)?;
        Ok(self.refused)
    }

    /// Commits what waits.
    pub fn flush(&mut self, archive: &Archive) -> Result<(), ArchiveError> {
        self.since = Instant::now();
        let mut waiting = std::mem::take(&mut self.waiting);
        while !waiting.is_empty() {
            let mut commit = Commit::default();
            let mut directories: Vec<&Arc<SavedDirectory>> = Vec::new();
            let mut later = Vec::new();
            for (of, change) in &waiting {
                // Two changes of one directory are of two commits.
                if directories.iter().any(|known| known.path == of.path) {
                    later.push((of.clone(), change.clone()));
                    continue;
                }
                push_above(of, &mut directories, &mut commit);
                let since = of.since.load(Ordering::Relaxed);
                commit.changes.push(DirectoryChange { since, ..change.clone() });
                directories.push(of);
            }
            match archive.commit(&commit) {
                Ok(number) => {
                    for directory in directories {
                        directory.since.store(number, Ordering::Relaxed);
                    }
                    waiting = later;
                }
                Err(CatalogError::Changed { path }) => {
                    // The others are committed without it, and without what needs it.
                    waiting.retain(|(of, _)| !needs(of, &path));
                    self.refused.push(CatalogError::Changed { path }.into());
                }
                Err(CatalogError::Removed { path }) => {
                    waiting.iter().filter(|(of, _)| of.path == path).for_each(|(of, _)| {
                        of.break_off();
                    });
                    waiting.retain(|(of, _)| of.path != path);
                    self.refused.push(CatalogError::Removed { path }.into());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Whether a commit of a directory is one of that directory, too: it is that, or in it by directories that
/// are not archived yet.
fn needs(of: &SavedDirectory, path: &ArchivePath) -> bool {
    let above = of.above.as_ref().filter(|above| above.since.load(Ordering::Relaxed) == 0);
    of.path == *path || above.is_some_and(|above| needs(above, path))
}

/// Directories above one that are not archived yet are, in the same commit.
fn push_above<'a>(
    of: &'a SavedDirectory,
    directories: &mut Vec<&'a Arc<SavedDirectory>>,
    commit: &mut Commit,
) {
    let Some(above) = &of.above else { return };
    let is_there = above.since.load(Ordering::Relaxed) != 0
        || directories.iter().any(|known| known.path == above.path);
    if is_there {
        return;
    }
    push_above(above, directories, commit);
    commit.changes.push(DirectoryChange {
        path: above.path.clone(),
        directory: Some(above.is.clone()),
        ..Default::default()
    });
    directories.push(above);
}
