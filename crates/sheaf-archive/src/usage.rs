//! How much is archived, by directories: of packs no more than their rows is read.
use crate::{Archive, ArchiveError, ArchivePath, ArchivedFile, PackId};
use std::collections::HashSet;
use std::ops::AddAssign;

/// Directories that are asked of the catalog at once.
const DIRECTORIES_AT_ONCE: usize = 1024;

/// Files and their bytes. A file with several names counts once, where it is met first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArchivedUsage {
    /// Files.
    pub files: u64,
    /// Bytes of their contents, holes among them.
    pub bytes: u64,
}

impl AddAssign for ArchivedUsage {
    fn add_assign(&mut self, other: Self) {
        self.files += other.files;
        self.bytes += other.bytes;
    }
}

/// Sums up what is archived, in one or several places.
pub struct UsageSum<'a> {
    archive: &'a Archive,
    /// Files with several names of which one was counted.
    links: HashSet<PackId>,
}

impl<'a> UsageSum<'a> {
    /// Begins with nothing.
    #[must_use]
    pub fn new(archive: &'a Archive) -> Self {
        Self { archive, links: HashSet::new() }
    }

    /// Sums up a file, or a directory and all that is below it. Each directory is told behind those in
    /// it, with the sum of all.
    ///
    /// # Errors
    /// When there is nothing of this name, the catalog cannot be read, or `each` says so.
    pub fn add<E: From<ArchiveError>>(
        &mut self,
        path: &ArchivePath,
        each: &mut dyn FnMut(&ArchivePath, ArchivedUsage) -> Result<(), E>,
    ) -> Result<ArchivedUsage, E> {
        let missing = || ArchiveError::NotArchived { path: path.clone() };
        let bytes = match self.archive.look_up(path)?.ok_or_else(missing)? {
            ArchivedFile::Directory(_) => return self.directories(path, each),
            ArchivedFile::Member { member, .. } => member.size,
            ArchivedFile::Object(object) => {
                if object.link.is_some_and(|link| !self.links.insert(link)) {
                    return Ok(ArchivedUsage::default());
                }
                object.size
            }
        };
        Ok(ArchivedUsage { files: 1, bytes })
    }

    fn directories<E: From<ArchiveError>>(
        &mut self,
        path: &ArchivePath,
        each: &mut dyn FnMut(&ArchivePath, ArchivedUsage) -> Result<(), E>,
    ) -> Result<ArchivedUsage, E> {
        // The directories on the way to the last one.
        let mut within: Vec<(ArchivePath, ArchivedUsage)> = Vec::new();
        let (mut last, mut total) = (None, ArchivedUsage::default());
        let mut leave = |within: &mut Vec<(ArchivePath, ArchivedUsage)>| -> Result<(), E> {
            let Some((path, usage)) = within.pop() else { return Ok(()) };
            each(&path, usage)?;
            match within.last_mut() {
                Some((_, above)) => *above += usage,
                None => total += usage,
            }
            Ok(())
        };
        loop {
            let catalog = self.archive.catalog();
            let next = catalog.below(path, last.as_ref(), DIRECTORIES_AT_ONCE);
            let next = next.map_err(ArchiveError::from)?;
            drop(catalog);
            let Some((behind, _)) = next.last() else { break };
            last = Some(behind.clone());
            for (path, _) in next {
                while within.last().is_some_and(|(above, _)| !path.is_within(above)) {
                    leave(&mut within)?;
                }
                let usage = self.own(&path)?;
                within.push((path, usage));
            }
        }
        while !within.is_empty() {
            leave(&mut within)?;
        }
        Ok(total)
    }

    /// The files of one directory.
    fn own(&mut self, path: &ArchivePath) -> Result<ArchivedUsage, ArchiveError> {
        let rows = self.archive.catalog().rows_of(path)?;
        let mut usage = ArchivedUsage::default();
        for pack in &rows.packs {
            usage += ArchivedUsage { files: pack.files.into(), bytes: pack.content_bytes };
        }
        for object in &rows.objects {
            if object.link.is_none_or(|link| self.links.insert(link)) {
                usage += ArchivedUsage { files: 1, bytes: object.size };
            }
        }
        Ok(usage)
    }
}
