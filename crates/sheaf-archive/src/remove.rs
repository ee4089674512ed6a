//! Removing from an archive: rows and indexes go, and what nobody refers to stays in the store until it
//! is cleaned up.
use crate::archive::{Archive, ArchiveError};
use crate::catalog::{CatalogError, Commit, DirectoryChange, DirectoryRows};
use crate::path::ArchivePath;
use crate::save::old::OldFiles;
use std::collections::BTreeSet;
use std::ops::AddAssign;

/// Directories that go in one commit, the deepest first.
const DIRECTORIES_AT_ONCE: usize = 512;
/// How often one begins anew where others write meanwhile.
const TRIES_MAX: u32 = 8;

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoveReport {
    /// Directories.
    pub directories: u64,
    /// Files.
    pub files: u64,
    /// Bytes of their contents.
    pub bytes: u64,
}

impl AddAssign for RemoveReport {
    fn add_assign(&mut self, other: Self) {
        self.directories += other.directories;
        self.files += other.files;
        self.bytes += other.bytes;
    }
}

/// What is told of a removal.
#[derive(Debug)]
pub enum RemoveStep<'a> {
    /// A name is gone; those in a directory are told before it.
    Removed {
        /// Its path.
        path: &'a ArchivePath,
        /// Of a directory.
        is_directory: bool,
    },
    /// Files are gone whose names cannot be told.
    Unnamed(ArchiveError),
}

/// Who is told.
type RemoveTold<'a> = &'a mut dyn FnMut(RemoveStep<'_>);

/// Removes a file, or a directory with all that is in it. Nothing of a pack is read but its row where
/// a whole directory goes. The root stays, and what is in it goes.
///
/// # Errors
/// When there is nothing of this name, or the catalog cannot be written. What was committed before that
/// is removed: what is deepest goes first.
pub fn remove(archive: &Archive, path: &ArchivePath) -> Result<RemoveReport, ArchiveError> {
    remove_named(archive, path, None)
}

/// As [`remove`], and each name is told when it is gone; for that the indexes of packs are read.
///
/// # Errors
/// As [`remove`].
pub fn remove_told(
    archive: &Archive,
    path: &ArchivePath,
    told: &mut dyn FnMut(RemoveStep<'_>),
) -> Result<RemoveReport, ArchiveError> {
    remove_named(archive, path, Some(told))
}

fn remove_named(
    archive: &Archive,
    path: &ArchivePath,
    told: Option<RemoveTold<'_>>,
) -> Result<RemoveReport, ArchiveError> {
    if archive.catalog().directory(path)?.is_some() {
        return remove_tree(archive, path, told);
    }
    let missing = || ArchiveError::NotArchived { path: path.clone() };
    let (above, name) = path.split().ok_or_else(missing)?;
    let (report, none) = remove_files(archive, &above, &[name.to_vec()])?;
    if !none.is_empty() {
        return Err(missing());
    }
    if let Some(told) = told {
        told(RemoveStep::Removed { path, is_directory: false });
    }
    Ok(report)
}

/// Removes files of one directory by one commit. With what was removed, those of the names that are not
/// there; directories are none.
///
/// # Errors
/// When the catalog or an index cannot be read or written. Nothing is removed then.
pub fn remove_files(
    archive: &Archive,
    directory: &ArchivePath,
    names: &[Vec<u8>],
) -> Result<(RemoveReport, Vec<Vec<u8>>), ArchiveError> {
    let _writing = archive.writing();
    // They are looked for in their order.
    let names: BTreeSet<&Vec<u8>> = names.iter().collect();
    let mut tries = 0;
    loop {
        match try_remove_files(archive, directory, &names) {
            Err(ArchiveError::Catalog(CatalogError::Changed { .. })) if tries < TRIES_MAX => {
                tries += 1;
            }
            removed => return removed,
        }
    }
}

fn try_remove_files(
    archive: &Archive,
    directory: &ArchivePath,
    names: &BTreeSet<&Vec<u8>>,
) -> Result<(RemoveReport, Vec<Vec<u8>>), ArchiveError> {
    let rows = archive.catalog().rows_of(directory)?;
    let since = rows.changed;
    let mut change = DirectoryChange { path: directory.clone(), since, ..Default::default() };
    let mut old = OldFiles::new(rows.packs, rows.objects);
    let (mut report, mut missing) = (RemoveReport::default(), Vec::new());
    for name in names {
        match old.find(archive.store(), name, &mut change)?.map(|file| file.size) {
            None => missing.push((*name).clone()),
            Some(bytes) => {
                old.retire(name, &mut change);
                report += RemoveReport { directories: 0, files: 1, bytes };
            }
        }
    }
    if report.files > 0 {
        old.settle(archive.store(), &mut change)?;
        archive.commit(&Commit { changes: vec![change] })?;
    }
    Ok((report, missing))
}

fn remove_tree(
    archive: &Archive,
    path: &ArchivePath,
    mut told: Option<RemoveTold<'_>>,
) -> Result<RemoveReport, ArchiveError> {
    let mut report = RemoveReport::default();
    let mut tries = 0;
    loop {
        let mut catalog = archive.catalog();
        // From the end: a commit that removes a directory also removes all below it, or is refused.
        let next = catalog.below_from_end(path, None, DIRECTORIES_AT_ONCE)?;
        let (mut commit, mut removed) = (Commit::default(), RemoveReport::default());
        let mut gone = Vec::new();
        for (path, _) in next {
            let rows = catalog.rows_of(&path)?;
            if told.is_some() {
                gone.push((path.clone(), rows.clone()));
            }
            let packed =
                rows.packs.iter().map(|pack| (u64::from(pack.members), pack.content_bytes));
            let alone = rows.objects.iter().map(|object| (1, object.size));
            for (files, bytes) in packed.chain(alone) {
                removed.files += files;
                removed.bytes += bytes;
            }
            let mut change = DirectoryChange { path, since: rows.changed, ..Default::default() };
            if change.path == ArchivePath::ROOT {
                change.packs_removed = rows.packs.iter().map(|pack| pack.id).collect();
                let names = rows.objects.into_iter().map(|object| object.attributes.name);
                change.objects_removed = names.collect();
                // The root stays, so without this the loop would not end.
                if change.packs_removed.is_empty() && change.objects_removed.is_empty() {
                    continue;
                }
            } else {
                removed.directories += 1;
                change.removed = true;
            }
            commit.changes.push(change);
        }
        if commit.changes.is_empty() {
            return Ok(report);
        }
        match archive.commit_in(&mut catalog, &commit) {
            Ok(_) => {
                report += removed;
                // The catalog is free for others while indexes are read for the names.
                drop(catalog);
                if let Some(told) = &mut told {
                    gone.iter().for_each(|(path, rows)| tell(archive, path, rows, *told));
                }
            }
            Err(CatalogError::Changed { .. }) if tries < TRIES_MAX => tries += 1,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Tells of the names of a directory that is gone, and of itself.
fn tell(archive: &Archive, path: &ArchivePath, rows: &DirectoryRows, told: RemoveTold<'_>) {
    let mut file = |name: &[u8]| {
        told(RemoveStep::Removed { path: &path.join(name), is_directory: false });
    };
    let mut unread = Vec::new();
    for pack in &rows.packs {
        match archive.index(pack) {
            Ok(index) => index.members.iter().for_each(|of| file(&of.attributes.name)),
            Err(error) => unread.push(error),
        }
    }
    rows.objects.iter().for_each(|object| file(&object.attributes.name));
    unread.into_iter().for_each(|error| told(RemoveStep::Unnamed(error)));
    if *path != ArchivePath::ROOT {
        told(RemoveStep::Removed { path, is_directory: true });
    }
}
