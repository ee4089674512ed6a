//! Changes of many directories in one commit.
use super::SavedDirectory;
use crate::archive::{Archive, ArchiveError};
use crate::catalog::{CatalogError, Commit, DirectoryChange};
use crate::name::FileName;
use crate::path::ArchivePath;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Directories in a commit at most.
const DIRECTORIES_MAX: usize = 512;
/// How often directories that are replaced are read again, where others change them meanwhile.
const TRIES_MAX: u32 = 8;
/// Directories that are asked of the catalog at once.
const DIRECTORIES_AT_ONCE: usize = 1024;
/// Time between two commits at least, where changes are few: as long a change waits for others.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// A change of a directory, and names that it stores and that are archived as directories.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ReplacingChange {
    pub change: DirectoryChange,
    pub replaced: Vec<FileName>,
}

/// Changes that are not committed yet.
pub(super) struct Commits {
    waiting: Vec<(Arc<SavedDirectory>, ReplacingChange)>,
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
        change: ReplacingChange,
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
        let mut tries = 0;
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
                push_removed(archive, of, &change.replaced, &mut commit)?;
                commit.changes.push(DirectoryChange { since, ..change.change.clone() });
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
                    let count = waiting.len();
                    waiting.retain(|(of, _)| !needs(of, &path));
                    // It is in a directory that is replaced: that is read again.
                    if waiting.len() == count {
                        if tries == TRIES_MAX {
                            return Err(CatalogError::Changed { path }.into());
                        }
                        tries += 1;
                        continue;
                    }
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

/// Directories of these names go in the same commit, with all that is in them.
fn push_removed(
    archive: &Archive,
    of: &SavedDirectory,
    replaced: &[FileName],
    commit: &mut Commit,
) -> Result<(), ArchiveError> {
    let catalog = archive.catalog();
    for name in replaced {
        let (path, mut last) = (of.path.join(name), None);
        loop {
            let next = catalog.below(&path, last.as_ref(), DIRECTORIES_AT_ONCE)?;
            let Some((behind, _)) = next.last() else { break };
            last = Some(behind.clone());
            for (path, _) in next {
                let since = catalog.changed(&path)?;
                let gone = DirectoryChange { path, since, removed: true, ..Default::default() };
                commit.changes.push(gone);
            }
        }
    }
    Ok(())
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
