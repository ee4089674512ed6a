//! What is in an archived directory, by name, and what is below it, in serial order.
//!
//! A pack's index is read when the listing comes to its first name and dropped behind its last, so a
//! directory of millions of files is listed in the memory of a few packs.
use crate::{
    Archive, ArchiveError, ArchivePath, ArchivedDirectory, ArchivedObject, ArchivedPack, PackId,
    PackedMember,
};
use std::collections::VecDeque;
use std::vec::IntoIter;

/// What is archived under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArchivedFile {
    /// A directory.
    Directory(ArchivedDirectory),
    /// A member of a pack.
    Member {
        /// What is known of it.
        member: PackedMember,
        /// The pack that it is in.
        pack: PackId,
    },
    /// What is in no pack.
    Object(ArchivedObject),
}

/// The names of one directory, in bytewise order.
pub struct DirectoryListing<'a> {
    archive: &'a Archive,
    path: ArchivePath,
    directory: Option<(Vec<u8>, ArchivedDirectory)>,
    objects: IntoIter<ArchivedObject>,
    coming: VecDeque<ArchivedPack>,
    open: Vec<(PackId, IntoIter<PackedMember>)>,
    /// Packs whose index cannot be read.
    unread: Vec<ArchiveError>,
    is_over: bool,
}

impl Archive {
    /// What is in a directory. A pack that cannot be read is an error among the names.
    ///
    /// # Errors
    /// When it is no directory of the archive, or the catalog cannot be read.
    pub fn list(&self, path: &ArchivePath) -> Result<DirectoryListing<'_>, ArchiveError> {
        let catalog = self.catalog();
        let rows = catalog.rows_of(path)?;
        if rows.directory.is_none() {
            return Err(ArchiveError::NotArchived { path: path.clone() });
        }
        let directory = catalog.directory_behind(path, None)?;
        drop(catalog);
        let mut packs = rows.packs;
        packs.sort_by(|one, other| one.first.cmp(&other.first));
        Ok(DirectoryListing {
            archive: self,
            path: path.clone(),
            directory,
            objects: rows.objects.into_iter(),
            coming: packs.into(),
            open: Vec::new(),
            unread: Vec::new(),
            is_over: false,
        })
    }

    /// What is archived under a path; nothing if there is none.
    ///
    /// # Errors
    /// When the catalog or an index cannot be read.
    pub fn look_up(&self, path: &ArchivePath) -> Result<Option<ArchivedFile>, ArchiveError> {
        let catalog = self.catalog();
        if let Some(directory) = catalog.directory(path)? {
            return Ok(Some(ArchivedFile::Directory(directory)));
        }
        let Some((above, name)) = path.split() else { return Ok(None) };
        let rows = catalog.rows_of(&above)?;
        drop(catalog);
        let object = rows.objects.into_iter().find(|object| object.attributes.name == name);
        if let Some(object) = object {
            return Ok(Some(ArchivedFile::Object(object)));
        }
        let may_have = |pack: &&ArchivedPack| (&pack.first[..]..=&pack.last[..]).contains(&name);
        for pack in rows.packs.iter().filter(may_have) {
            if let Some(member) = self.index(pack)?.find(name) {
                let member = member.clone();
                return Ok(Some(ArchivedFile::Member { member, pack: pack.id }));
            }
        }
        Ok(None)
    }

    /// Everything from a path on, in the order of a serial walk: a directory before what is in it.
    ///
    /// # Errors
    /// When there is nothing of this name, or the catalog cannot be read.
    pub fn walk(&self, path: &ArchivePath) -> Result<ArchiveWalk<'_>, ArchiveError> {
        let missing = || ArchiveError::NotArchived { path: path.clone() };
        let start = self.look_up(path)?.ok_or_else(missing)?;
        Ok(ArchiveWalk { archive: self, start: Some((path.clone(), start)), within: Vec::new() })
    }
}

impl DirectoryListing<'_> {
    /// Opens the packs that have a name before all others that are known.
    fn open_next(&mut self) {
        while let Some(coming) = self.coming.front() {
            if self.next_name().is_some_and(|next| next < &coming.first[..]) {
                return;
            }
            let Some(pack) = self.coming.pop_front() else { return };
            match self.archive.index(&pack) {
                Ok(index) => self.open.push((pack.id, index.members.into_iter())),
                Err(error) => self.unread.push(error),
            }
        }
    }

    /// The first of the names that are known.
    fn next_name(&self) -> Option<&[u8]> {
        let members = self.open.iter().filter_map(|(_, members)| Some(name(first(members)?)));
        let object = first(&self.objects).map(|object| &object.attributes.name[..]);
        let directory = self.directory.as_ref().map(|(name, _)| &name[..]);
        members.chain(object).chain(directory).min()
    }

    fn next_file(&mut self) -> Option<Result<(Vec<u8>, ArchivedFile), ArchiveError>> {
        self.open_next();
        if let Some(error) = self.unread.pop() {
            return Some(Err(error));
        }
        let next = self.next_name()?.to_vec();
        if let Some((_, is)) = self.directory.take_if(|(name, _)| *name == next) {
            match self.archive.catalog().directory_behind(&self.path, Some(&next)) {
                Ok(directory) => self.directory = directory,
                Err(error) => {
                    self.is_over = true;
                    return Some(Err(error.into()));
                }
            }
            return Some(Ok((next, ArchivedFile::Directory(is))));
        }
        if first(&self.objects).is_some_and(|object| object.attributes.name == next) {
            return self.objects.next().map(|object| Ok((next, ArchivedFile::Object(object))));
        }
        let has = |open: &&mut (PackId, IntoIter<PackedMember>)| {
            first(&open.1).is_some_and(|member| name(member) == next)
        };
        let (pack, members) = self.open.iter_mut().find(has)?;
        let (pack, member) = (*pack, members.next()?);
        self.open.retain(|(_, members)| !members.as_slice().is_empty());
        Some(Ok((next, ArchivedFile::Member { member, pack })))
    }
}

impl Iterator for DirectoryListing<'_> {
    type Item = Result<(Vec<u8>, ArchivedFile), ArchiveError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over { None } else { self.next_file() }
    }
}

fn first<T>(of: &IntoIter<T>) -> Option<&T> {
    of.as_slice().first()
}

fn name(member: &PackedMember) -> &[u8] {
    &member.attributes.name
}

/// Everything from a path on, in serial order.
pub struct ArchiveWalk<'a> {
    archive: &'a Archive,
    start: Option<(ArchivePath, ArchivedFile)>,
    within: Vec<DirectoryListing<'a>>,
}

impl ArchiveWalk<'_> {
    /// Leaves out what is in the directory that was told last.
    pub fn skip_directory(&mut self) {
        self.within.pop();
    }

    fn enter(
        &mut self,
        path: ArchivePath,
        file: ArchivedFile,
    ) -> Result<(ArchivePath, ArchivedFile), ArchiveError> {
        if matches!(file, ArchivedFile::Directory(_)) {
            self.within.push(self.archive.list(&path)?);
        }
        Ok((path, file))
    }
}

impl Iterator for ArchiveWalk<'_> {
    type Item = Result<(ArchivePath, ArchivedFile), ArchiveError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some((path, file)) = self.start.take() {
            return Some(self.enter(path, file));
        }
        loop {
            let within = self.within.last_mut()?;
            match within.next() {
                Some(Ok((name, file))) => {
                    let path = within.path.join(&name);
                    return Some(self.enter(path, file));
                }
                Some(Err(error)) => return Some(Err(error)),
                None => drop(self.within.pop()),
            }
        }
    }
}
