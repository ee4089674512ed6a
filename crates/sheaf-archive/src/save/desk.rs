//! What storing a directory asks of whoever has the catalog, and what it hands in there.
//!
//! Files are read, packed and written to the store without a catalog. So a directory may be stored by a
//! host that has none: there the desk is a channel to the one that has.
use super::commits::{Commits, RefusedChanges, ReplacingChange};
use super::links::{SavedLinks, StoredLink};
use super::parted::{PartStamp, StoredPart};
use super::replace::FileStamp;
use super::{SaveReport, SaveWork, SavedDirectory};
use crate::archive::{Archive, ArchiveError};
use crate::catalog::{ArchivedObject, Checked, DirectoryRows};
use crate::path::ArchivePath;
use serde::{Deserialize, Serialize};
use sheaf_core::files::Metadata;
use sheaf_core::{Errno, lock};
use std::sync::{Arc, Mutex, PoisonError};

/// Why a file was not stored: by itself, or because nothing can be.
pub(super) enum Unstored {
    File(Errno),
    Archive(ArchiveError),
}

impl From<Errno> for Unstored {
    fn from(errno: Errno) -> Self {
        Self::File(errno)
    }
}

impl From<ArchiveError> for Unstored {
    fn from(error: ArchiveError) -> Self {
        Self::Archive(error)
    }
}

/// What another host has stored of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum StoredContent {
    Whole(ArchivedObject),
    Part { part: StoredPart, stamp: PartStamp },
}

impl StoredContent {
    /// Whether it can be.
    pub fn is_valid(&self) -> bool {
        match self {
            Self::Whole(object) => object.is_valid(),
            Self::Part { .. } => true,
        }
    }
}

/// Who has the catalog, or speaks for it. An error is one with which all is over.
///
/// For each directory: `rows_of`, `begun`, any number of `found` and `change`, `done`. One that cannot
/// be opened has `done` alone.
pub(super) trait SaveDesk: Sync {
    /// What is archived of a directory that is to be stored.
    fn rows_of(&self, path: &ArchivePath) -> Result<DirectoryRows, ArchiveError>;

    /// Whether this is archived as a directory, in one that is being stored.
    fn is_directory(&self, path: &ArchivePath) -> Result<bool, ArchiveError>;

    /// It is known what the directory is.
    fn begun(&self, of: &SavedDirectory);

    /// A directory has been found in another, behind those that were found there before; to be stored
    /// here, if it is given back.
    fn found(&self, work: SaveWork) -> Option<SaveWork>;

    /// Takes a change of a directory, whose packs and objects are all in the store, and what was done
    /// since the last one.
    fn change(
        &self,
        of: &Arc<SavedDirectory>,
        change: ReplacingChange,
        report: SaveReport,
    ) -> Result<(), ArchiveError>;

    /// Nothing more comes of this directory; what was done since its last change.
    fn done(&self, path: &ArchivePath, report: SaveReport);

    /// What all names of a file have in common: of its first name, what `store` makes. Who comes second
    /// waits for that.
    fn link(
        &self,
        found: &Metadata,
        store: &mut dyn FnMut() -> Result<StoredLink, Unstored>,
    ) -> Result<StoredLink, Unstored>;

    /// A directory of a directory is archived as a file: whether somebody else makes room for it, and has it stored
    /// then.
    fn makes_room(&self, of: &ArchivePath, name: &[u8], was: FileStamp) -> bool {
        let _ = (of, name, was);
        false
    }

    /// A large file of a directory is to be stored, or a part of one: others who see it may store it, too.
    fn offer(&self, of: &ArchivePath, name: &[u8], part: Option<u32>) {
        let _ = (of, name, part);
    }

    /// What another one has stored of a file that was offered; waits for that. Nothing where it is to be
    /// stored here.
    fn taken(
        &self,
        of: &ArchivePath,
        name: &[u8],
        part: Option<u32>,
    ) -> Result<Option<StoredContent>, ArchiveError> {
        let _ = (of, name, part);
        Ok(None)
    }

    /// Whether a name that is archived as it is may stay so: what came before it of its file, if something
    /// did, is archived as the same.
    fn is_same_link(&self, found: &Metadata, link: &StoredLink, counts: bool) -> bool;

    /// A name of which that was so is stored all the same.
    fn comes_again(&self, found: &Metadata);
}

/// The catalog itself.
pub(super) struct CatalogDesk<'a> {
    archive: &'a Archive,
    commits: Mutex<Commits>,
    links: &'a SavedLinks,
}

impl<'a> CatalogDesk<'a> {
    pub fn new(archive: &'a Archive, links: &'a SavedLinks) -> Self {
        Self { archive, commits: Mutex::default(), links }
    }

    /// Commits the rest; what was refused.
    pub fn finish(self) -> Result<RefusedChanges, ArchiveError> {
        let commits = self.commits.into_inner().unwrap_or_else(PoisonError::into_inner);
        commits.finish(self.archive)
    }
}

impl SaveDesk for CatalogDesk<'_> {
    fn rows_of(&self, path: &ArchivePath) -> Result<DirectoryRows, ArchiveError> {
        Ok(self.archive.catalog().rows_of(path)?)
    }

    fn is_directory(&self, path: &ArchivePath) -> Result<bool, ArchiveError> {
        Ok(self.archive.catalog().directory(path)?.is_some())
    }

    fn begun(&self, _: &SavedDirectory) {}

    fn found(&self, work: SaveWork) -> Option<SaveWork> {
        Some(work)
    }

    fn change(
        &self,
        of: &Arc<SavedDirectory>,
        change: ReplacingChange,
        report: SaveReport,
    ) -> Result<(), ArchiveError> {
        lock(&self.commits).push(self.archive, of, change, report)
    }

    fn done(&self, _: &ArchivePath, _: SaveReport) {}

    fn link(
        &self,
        found: &Metadata,
        store: &mut dyn FnMut() -> Result<StoredLink, Unstored>,
    ) -> Result<StoredLink, Unstored> {
        self.links.stored(found, store)
    }

    fn is_same_link(&self, found: &Metadata, link: &StoredLink, counts: bool) -> bool {
        self.links.is_same(found, link, counts)
    }

    fn comes_again(&self, found: &Metadata) {
        self.links.comes_again(found);
    }
}
