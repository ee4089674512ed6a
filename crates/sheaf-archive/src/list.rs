//! What is in an archived directory, by name, and what is below it, in serial order.
//!
//! A pack's index is read when the listing comes to its first name and dropped behind its last, so a
//! directory of millions of files is listed in the memory of a few packs.
mod ahead;

use crate::archive::{Archive, ArchiveError};
use crate::catalog::{ArchivedDirectory, ArchivedObject, ArchivedPack};
use crate::pack::member::{PackId, PackedMember};
use crate::path::ArchivePath;
use ahead::{AheadOrder, ReadAhead};
use std::collections::VecDeque;
use std::vec::IntoIter;

/// Directories that are asked of the catalog at once.
const DIRECTORIES_AT_ONCE: usize = 1024;

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

impl ArchivedFile {
    /// Its name, where it is no directory.
    fn name(&self) -> &[u8] {
        match self {
            Self::Directory(_) => &[],
            Self::Member { member, .. } => &member.attributes.name,
            Self::Object(object) => &object.attributes.name,
        }
    }
}

/// A file, and the name of a directory, which others have themselves.
type ListedFile = (Option<Vec<u8>>, ArchivedFile);

/// The names of one directory, in bytewise order.
pub struct DirectoryListing<'a> {
    archive: &'a Archive,
    ahead: Option<&'a ReadAhead<'a>>,
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
        self.list_ahead(path, None)
    }

    fn list_ahead<'a>(
        &'a self,
        path: &ArchivePath,
        ahead: Option<&'a ReadAhead<'a>>,
    ) -> Result<DirectoryListing<'a>, ArchiveError> {
        let known = ahead.and_then(|ahead| ahead.rows(path));
        let catalog = self.catalog();
        let rows = known.map_or_else(|| catalog.rows_of(path), Ok)?;
        if rows.directory.is_none() {
            return Err(ArchiveError::NotArchived { path: path.clone() });
        }
        let directory = catalog.directory_behind(path, None)?;
        drop(catalog);
        let mut packs = rows.packs;
        packs.sort_by(|one, other| one.first.cmp(&other.first));
        Ok(DirectoryListing {
            archive: self,
            ahead,
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
        // To read an index may take long, and the catalog is free for others in that time.
        drop(catalog);
        let object = rows.objects.into_iter().find(|object| *object.attributes.name == *name);
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
        let start = Some((path.clone(), self.look_up(path)?.ok_or_else(missing)?));
        Ok(ArchiveWalk { archive: self, ahead: None, start, within: Vec::new() })
    }

    /// As [`Archive::walk`] for one who goes through all of it: several threads read what comes next,
    /// of which not much is kept.
    ///
    /// # Errors
    /// As [`Archive::walk`].
    pub fn walk_ahead<R>(
        &self,
        path: &ArchivePath,
        act: impl FnOnce(&mut ArchiveWalk<'_>) -> R,
    ) -> Result<R, ArchiveError> {
        let missing = || ArchiveError::NotArchived { path: path.clone() };
        let start = Some((path.clone(), self.look_up(path)?.ok_or_else(missing)?));
        Ok(ReadAhead::run(self, (path, AheadOrder::Names), |ahead| {
            act(&mut ArchiveWalk { archive: self, ahead: Some(ahead), start, within: Vec::new() })
        }))
    }

    /// Has a directory and all that are below it listed, one after the other in serial order, while
    /// several threads read what comes next.
    ///
    /// # Errors
    /// When the catalog cannot be read, or `each` says so.
    pub fn list_all<E: From<ArchiveError>>(
        &self,
        path: &ArchivePath,
        mut each: impl FnMut(&ArchivePath, Result<DirectoryListing<'_>, ArchiveError>) -> Result<(), E>,
    ) -> Result<(), E> {
        ReadAhead::run(self, (path, AheadOrder::Directories), |ahead| {
            let mut last: Option<ArchivePath> = None;
            loop {
                let next = self.catalog().below(path, last.as_ref(), DIRECTORIES_AT_ONCE);
                let next = next.map_err(ArchiveError::from)?;
                let Some((behind, _)) = next.last() else { return Ok(()) };
                last = Some(behind.clone());
                for (path, _) in next {
                    each(&path, self.list_ahead(&path, Some(ahead)))?;
                }
            }
        })
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
            let known = self.ahead.and_then(|ahead| ahead.index(&self.path, &pack));
            match known.map_or_else(|| self.archive.index(&pack), Ok) {
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

    fn next_file(&mut self) -> Option<Result<ListedFile, ArchiveError>> {
        self.open_next();
        if let Some(error) = self.unread.pop() {
            return Some(Err(error));
        }
        let open = self.open.iter().enumerate();
        let open = open.filter_map(|(at, (_, members))| Some((name(first(members)?), at)));
        let member = open.min();
        let object = first(&self.objects).map(|object| &object.attributes.name[..]);
        let directory = self.directory.as_ref().map(|(name, _)| &name[..]);
        let is_first = |name: &[u8], others: [Option<&[u8]>; 2]| {
            others.into_iter().flatten().all(|other| name <= other)
        };
        let of_member = member.map(|(name, _)| name);
        if directory.is_some_and(|name| is_first(name, [object, of_member])) {
            let (name, is) = self.directory.take()?;
            match self.archive.catalog().directory_behind(&self.path, Some(&name)) {
                Ok(directory) => self.directory = directory,
                Err(error) => {
                    // Which directory comes next is not known, so no name could come in its order.
                    self.is_over = true;
                    return Some(Err(error.into()));
                }
            }
            return Some(Ok((Some(name), ArchivedFile::Directory(is))));
        }
        if object.is_some_and(|name| is_first(name, [of_member, None])) {
            return self.objects.next().map(|object| Ok((None, ArchivedFile::Object(object))));
        }
        let (_, at) = member?;
        let (pack, members) = &mut self.open[at];
        let (pack, member) = (*pack, members.next()?);
        if members.as_slice().is_empty() {
            self.open.remove(at);
        }
        Some(Ok((None, ArchivedFile::Member { member, pack })))
    }
}

impl Iterator for DirectoryListing<'_> {
    type Item = Result<(Vec<u8>, ArchivedFile), ArchiveError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        Some(self.next_file()?.map(|(name, file)| match name {
            Some(name) => (name, file),
            None => (file.name().to_vec(), file),
        }))
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
    ahead: Option<&'a ReadAhead<'a>>,
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
            self.within.push(self.archive.list_ahead(&path, self.ahead)?);
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
            match if within.is_over { None } else { within.next_file() } {
                Some(Ok((name, file))) => {
                    let path = within.path.join(name.as_deref().unwrap_or_else(|| file.name()));
                    return Some(self.enter(path, file));
                }
                Some(Err(error)) => return Some(Err(error)),
                None => drop(self.within.pop()),
            }
        }
    }
}
