//! How much is archived, by directories: of packs no more than their rows is read.
pub(crate) mod exclude;

use crate::archive::{Archive, ArchiveError};
use crate::catalog::{ArchivedPack, DirectoryRows};
use crate::list::ArchivedFile;
use crate::pack::member::{PackId, PackedMember};
use crate::path::ArchivePath;
use exclude::UsageExclude;
use std::collections::HashSet;
use std::ops::AddAssign;

/// Directories that are asked of the catalog at once.
const DIRECTORIES_AT_ONCE: usize = 1024;

/// Files and their bytes. A file with several names counts once, where it is met first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArchivedUsage {
    /// Files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Bytes of their contents: those that are stored, or with their holes.
    pub bytes: u64,
}

impl AddAssign for ArchivedUsage {
    fn add_assign(&mut self, other: Self) {
        self.files += other.files;
        self.directories += other.directories;
        self.bytes += other.bytes;
    }
}

/// How to sum up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageSumOptions {
    /// A directory is told without those in it.
    pub separates: bool,
    /// A file counts by each of its names.
    pub counts_names: bool,
    /// Files count with their holes, as their lengths are.
    pub counts_holes: bool,
    /// What is left out.
    pub exclude: UsageExclude,
}

/// Sums up what is archived, in one or several places.
pub struct UsageSum<'a> {
    archive: &'a Archive,
    options: UsageSumOptions,
    /// Files with several names of which one was counted.
    links: HashSet<PackId>,
    /// What was summed up: what is within counts once.
    counted: Vec<ArchivePath>,
}

impl<'a> UsageSum<'a> {
    /// Begins with nothing.
    #[must_use]
    pub fn new(archive: &'a Archive) -> Self {
        Self::with(archive, UsageSumOptions::default())
    }

    /// Begins with nothing, and sums up in another way.
    #[must_use]
    pub fn with(archive: &'a Archive, options: UsageSumOptions) -> Self {
        Self { archive, options, links: HashSet::new(), counted: Vec::new() }
    }

    /// Sums up a file, or a directory and all that is below it. Each directory is told behind those in
    /// it, with the sum of all, or without those in it if that is how to sum up. The whole sum is returned.
    ///
    /// # Errors
    /// When there is nothing of this name, the catalog cannot be read, or `each` says so.
    pub fn add<E: From<ArchiveError>>(
        &mut self,
        path: &ArchivePath,
        each: &mut dyn FnMut(&ArchivePath, ArchivedUsage) -> Result<(), E>,
    ) -> Result<ArchivedUsage, E> {
        let missing = || ArchiveError::NotArchived { path: path.clone() };
        let found = self.archive.look_up(path)?.ok_or_else(missing)?;
        if self.was_counted(path) {
            return Ok(ArchivedUsage::default());
        }
        let bytes = match found {
            ArchivedFile::Directory(_) => {
                let sum = self.directories(path, each);
                // Only now: `directories` leaves out what was counted.
                self.counted.push(path.clone());
                return sum;
            }
            ArchivedFile::Member { member, .. } => self.bytes_of(&member),
            ArchivedFile::Object(object) => {
                if !self.counts(object.link) {
                    return Ok(ArchivedUsage::default());
                }
                if self.options.counts_holes { object.size } else { object.stored_bytes() }
            }
        };
        self.counted.push(path.clone());
        Ok(ArchivedUsage { files: 1, directories: 0, bytes })
    }

    /// Whether it is, or is within, what was summed up before. What was left out then may be asked for now.
    fn was_counted(&self, path: &ArchivePath) -> bool {
        let is_asked = !self.options.counts_names && self.options.exclude.is_empty();
        is_asked && self.counted.iter().any(|counted| path.is_within(counted))
    }

    fn directories<E: From<ArchiveError>>(
        &mut self,
        path: &ArchivePath,
        each: &mut dyn FnMut(&ArchivePath, ArchivedUsage) -> Result<(), E>,
    ) -> Result<ArchivedUsage, E> {
        // The directories on the way to the last one, each without and with those in it.
        let mut within: Vec<(ArchivePath, ArchivedUsage, ArchivedUsage)> = Vec::new();
        let (mut last, mut total) = (None, ArchivedUsage::default());
        let separates = self.options.separates;
        let mut leave = |within: &mut Vec<(ArchivePath, ArchivedUsage, ArchivedUsage)>| {
            let Some((path, own, all)) = within.pop() else { return Ok(()) };
            each(&path, if separates { own } else { all })?;
            match within.last_mut() {
                Some((_, _, above)) => *above += all,
                None => total += all,
            }
            Ok::<(), E>(())
        };
        let mut excluded: Option<ArchivePath> = None;
        loop {
            let catalog = self.archive.catalog();
            let next = catalog.below(path, last.as_ref(), DIRECTORIES_AT_ONCE);
            let next = next.map_err(ArchiveError::from)?;
            drop(catalog);
            let Some((behind, _)) = next.last() else { break };
            last = Some(behind.clone());
            for (path, _) in next {
                if excluded.as_ref().is_some_and(|excluded| path.is_within(excluded)) {
                    continue;
                }
                if self.excludes(&path) || self.was_counted(&path) {
                    excluded = Some(path);
                    continue;
                }
                while within.last().is_some_and(|(above, ..)| !path.is_within(above)) {
                    leave(&mut within)?;
                }
                let usage = self.own(&path)?;
                within.push((path, usage, usage));
            }
        }
        while !within.is_empty() {
            leave(&mut within)?;
        }
        Ok(total)
    }

    /// Whether a file with other names is one that was not counted.
    fn counts(&mut self, link: Option<PackId>) -> bool {
        self.options.counts_names || link.is_none_or(|link| self.links.insert(link))
    }

    fn excludes(&self, path: &ArchivePath) -> bool {
        !self.options.exclude.is_empty() && self.options.exclude.fits(&path.as_bytes())
    }

    /// A directory and its files.
    fn own(&mut self, path: &ArchivePath) -> Result<ArchivedUsage, ArchiveError> {
        let rows = self.archive.catalog().rows_of(path)?;
        let mut usage = ArchivedUsage { directories: 1, ..ArchivedUsage::default() };
        let names_differ = rows.packs.iter().any(|pack| pack.members != pack.files);
        // A row has only the sum of all members: for less than these, the index is read.
        let may_have_holes =
            !self.options.counts_holes && rows.packs.iter().any(ArchivedPack::may_have_holes);
        if !self.options.exclude.is_empty()
            || self.options.counts_names && names_differ
            || may_have_holes
        {
            usage += self.members(path, &rows)?;
        } else {
            for pack in &rows.packs {
                let (files, bytes) = (pack.files.into(), pack.content_bytes);
                usage += ArchivedUsage { files, directories: 0, bytes };
            }
        }
        for object in &rows.objects {
            if !self.excludes_in(path, &object.attributes.name) && self.counts(object.link) {
                let bytes =
                    if self.options.counts_holes { object.size } else { object.stored_bytes() };
                usage += ArchivedUsage { files: 1, directories: 0, bytes };
            }
        }
        Ok(usage)
    }

    fn bytes_of(&self, member: &PackedMember) -> u64 {
        if self.options.counts_holes { member.size } else { member.stored_bytes() }
    }

    fn excludes_in(&self, path: &ArchivePath, name: &[u8]) -> bool {
        !self.options.exclude.is_empty() && self.excludes(&path.join(name))
    }

    /// The members of a directory's packs, by their names.
    fn members(
        &self,
        path: &ArchivePath,
        rows: &DirectoryRows,
    ) -> Result<ArchivedUsage, ArchiveError> {
        let mut usage = ArchivedUsage::default();
        for pack in &rows.packs {
            let mut counted = HashSet::new();
            for member in &self.archive.index(pack)?.members {
                if self.excludes_in(path, &member.attributes.name) {
                    continue;
                }
                if self.options.counts_names || counted.insert(member.content_block()) {
                    let bytes = self.bytes_of(member);
                    usage += ArchivedUsage { files: 1, directories: 0, bytes };
                }
            }
        }
        Ok(usage)
    }
}
