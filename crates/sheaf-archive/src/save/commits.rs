//! Changes of many directories in one commit.
use super::{SaveReport, SavedDirectory};
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
    waiting: Vec<WaitingChange>,
    /// The last commit.
    since: Instant,
    refused: RefusedChanges,
}

#[derive(Clone)]
struct WaitingChange {
    of: Arc<SavedDirectory>,
    change: ReplacingChange,
    /// What was done for it.
    report: SaveReport,
}

/// Changes of directories that another writer has changed meanwhile, or whose objects are gone.
#[derive(Default)]
pub(super) struct RefusedChanges {
    pub errors: Vec<ArchiveError>,
    stored: u64,
    stored_bytes: u64,
}

impl RefusedChanges {
    fn add(&mut self, of: &WaitingChange) {
        self.stored = self.stored.saturating_add(of.report.stored);
        self.stored_bytes = self.stored_bytes.saturating_add(of.report.stored_bytes);
    }

    /// A report without files whose changes were refused, and with the directories of these as failed.
    pub fn taken_from(&self, report: SaveReport) -> SaveReport {
        SaveReport {
            stored: report.stored.saturating_sub(self.stored),
            stored_bytes: report.stored_bytes.saturating_sub(self.stored_bytes),
            failed: report.failed.saturating_add(self.errors.len() as u64),
            ..report
        }
    }
}

impl Default for Commits {
    fn default() -> Self {
        Self { waiting: Vec::new(), since: Instant::now(), refused: RefusedChanges::default() }
    }
}

impl Commits {
    /// Takes a change of a directory, whose packs and objects are all in the store, and what was done for
    /// it.
    pub fn push(
        &mut self,
        archive: &Archive,
        of: &Arc<SavedDirectory>,
        change: ReplacingChange,
        report: SaveReport,
    ) -> Result<(), ArchiveError> {
        let change = WaitingChange { of: of.clone(), change, report };
        // Later changes build on the one that was given up.
        if of.is_broken() {
            self.refused.add(&change);
            return Ok(());
        }
        self.waiting.push(change);
        if self.waiting.len() >= DIRECTORIES_MAX || self.since.elapsed() >= WAIT_MAX {
            self.flush(archive)?;
        }
        Ok(())
    }

    /// Commits the rest; what was refused.
    pub fn finish(mut self, archive: &Archive) -> Result<RefusedChanges, ArchiveError> {
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
            for next in &waiting {
                let WaitingChange { of, change, .. } = next;
                // Two changes of one directory are of two commits.
                if directories.iter().any(|known| known.path == of.path) {
                    later.push(next.clone());
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
                    self.refuse(&mut waiting, |of| needs(of, &path));
                    // It is in a directory that is replaced: that is read again.
                    if waiting.len() == count {
                        if tries == TRIES_MAX {
                            return Err(CatalogError::Changed { path }.into());
                        }
                        tries += 1;
                        continue;
                    }
                    self.refused.errors.push(CatalogError::Changed { path }.into());
                }
                Err(CatalogError::Removed { path }) => {
                    self.refuse(&mut waiting, |of| {
                        of.path == path && {
                            of.break_off();
                            true
                        }
                    });
                    self.refused.errors.push(CatalogError::Removed { path }.into());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl Commits {
    /// Takes changes out of those that wait.
    fn refuse(
        &mut self,
        waiting: &mut Vec<WaitingChange>,
        is_refused: impl Fn(&SavedDirectory) -> bool,
    ) {
        waiting.retain(|change| {
            let is_refused = is_refused(&change.of);
            if is_refused {
                self.refused.add(change);
            }
            !is_refused
        });
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
