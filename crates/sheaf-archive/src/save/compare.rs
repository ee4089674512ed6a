//! A directory's names beside what is archived of them: what is to be stored.
use super::content;
use super::directory::HEADER_BYTES;
use super::heal;
use super::links::{PieceLinks, is_parted};
use super::old::{OldArchived, OldFiles};
use super::parted::parts_to_offer;
use super::phases::SavingDirectory;
use super::replace::{FileStamp, stamp_of};
use super::source::{self, SourceFile};
use super::{SaveShared, SaveWork};
use crate::archive::{ArchiveError, ArchiveEvent};
use crate::catalog::{DirectoryChange, DirectoryRows};
use crate::pack::write::MEMBER_BYTES_MAX;
use crate::walk::names::{Directory, NamedFile};
use serde::{Deserialize, Serialize};
use sheaf_core::Errno;
use sheaf_core::files::{FileKind, Metadata};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// Bytes of a block, by which the system counts what a file has on its disk.
pub(super) const DISK_BLOCK_BYTES: u64 = 512;

/// What is archived of a directory, as far as its names have come.
pub(super) struct DirectoryCompare {
    /// It was archived before, so other directories may be in it.
    is_old: bool,
    old: OldFiles,
    /// Nothing is changed here.
    none: DirectoryChange,
    /// Names that have come.
    names: u32,
}

/// Of some names of a directory, what is to be done.
#[derive(Default)]
pub(super) struct ComparedPiece {
    /// Files that are stored one after the other, in their order.
    pub files: Vec<NamedFile>,
    pub links: PieceLinks,
    /// Bytes of their contents.
    pub bytes: u64,
    /// Files that are objects, in no order.
    pub large: Vec<NamedFile>,
    /// Directories in this one that are for whoever is free.
    pub directories: Vec<SaveWork>,
}

/// What may differ of a file that is not read, as its size, time of modification, mode and owner are the
/// archived ones. The meanings are those of restic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileIgnores {
    /// The time of its last change (ctime): so a change of nothing but extended attributes is not seen.
    pub ctime: bool,
    /// Its inode.
    pub inode: bool,
}

impl FileIgnores {
    /// What is asked for. Where inodes say nothing, times of change do not either.
    #[must_use]
    pub fn of(ctime: bool, inode: bool) -> Self {
        Self { ctime: ctime || inode, inode }
    }
}

/// How a file is to be stored.
enum StoreWay {
    Here,
    Alone,
    /// It is archived as it is.
    Unchanged,
    /// It is left out, which was told.
    Left,
}

impl ComparedPiece {
    /// A file was compared. Of those of which all names are here, and one is stored, all are.
    fn add(
        &mut self,
        of: &SavingDirectory<'_>,
        file: NamedFile,
        way: StoreWay,
        parted: &HashSet<(u64, u64)>,
    ) {
        let Ok(found) = &file.found else { return };
        let way = match way {
            StoreWay::Unchanged if parted.contains(&found.id()) => {
                of.shared.desk.comes_again(found);
                StoreWay::Here
            }
            way => way,
        };
        match way {
            StoreWay::Unchanged => {
                of.counters.unchanged.fetch_add(1, Ordering::Relaxed);
                return self.links.met(found);
            }
            StoreWay::Left => return self.links.met(found),
            StoreWay::Here | StoreWay::Alone => {}
        }
        if of.shared.options.tell_names {
            (of.shared.told)(ArchiveEvent::Stores { path: of.path.join(&file.name) });
        }
        self.bytes += if found.is_file() { found.size } else { 0 };
        match way {
            StoreWay::Alone => self.large.push(file),
            _ => self.files.push(file),
        }
    }
}

impl DirectoryCompare {
    pub fn new(rows: &DirectoryRows, heals: bool) -> Self {
        Self {
            is_old: rows.directory.is_some(),
            old: OldFiles::new(rows.packs.clone(), rows.objects.clone()).archiving(heals),
            none: DirectoryChange::default(),
            names: 0,
        }
    }

    /// Compares the next names of the directory.
    pub fn piece(
        &mut self,
        of: &SavingDirectory<'_>,
        named: Vec<NamedFile>,
    ) -> Result<ComparedPiece, ArchiveError> {
        let member_bytes_max = of.shared.member_bytes_max();
        let member_bytes = |found: &Metadata| {
            HEADER_BYTES + if found.is_file() { found.size.min(member_bytes_max) } else { 0 }
        };
        let is_excluded = |file: &NamedFile, is_directory| {
            let path = || of.path.join(&file.name);
            of.shared.exclude.fits(&file.name, is_directory, path, of.place.len())
        };
        let links = PieceLinks::of(&named, member_bytes, |file| is_excluded(file, false));
        let mut piece = ComparedPiece { links, ..ComparedPiece::default() };
        let (mut compared, mut parted) = (Vec::new(), HashSet::new());
        for file in named {
            let number = self.names;
            self.names = self.names.saturating_add(1);
            let path = || of.path.join(&file.name);
            let is_directory = file.found.as_ref().is_ok_and(Metadata::is_dir);
            if is_excluded(&file, is_directory) {
                of.shared.excluded(&of.counters, path);
                continue;
            }
            let found = match &file.found {
                Ok(found) => found,
                Err(errno) => {
                    of.failed(&file.name, "cannot be read", *errno);
                    continue;
                }
            };
            if found.is_dir() {
                piece.directories.extend(self.directory(of, &file, found, number)?);
                continue;
            }
            let way = self.wanted(of, &file, found)?;
            if matches!(way, StoreWay::Here) && piece.links.get(found).is_some() {
                parted.insert(found.id());
            }
            compared.push((file, way));
        }
        for (pack, error) in self.old.take_lost() {
            of.left_out(error.of_lost_pack(&of.of.path, &pack));
        }
        // All names are compared before the first is added: if one name of a file is stored, all
        // are.
        for (file, way) in compared {
            piece.add(of, file, way, &parted);
        }
        if of.shared.options.dry_run {
            let files = (piece.files.len() + piece.large.len()) as u64;
            of.counters.stored.fetch_add(files, Ordering::Relaxed);
            of.counters.stored_bytes.fetch_add(piece.bytes, Ordering::Relaxed);
            piece.files.clear();
            piece.large.clear();
        }
        Ok(piece)
    }

    /// A directory in this one, if it is to be stored by whoever is free here.
    fn directory(
        &mut self,
        of: &SavingDirectory<'_>,
        file: &NamedFile,
        found: &Metadata,
        number: u32,
    ) -> Result<Option<SaveWork>, ArchiveError> {
        let path = of.path.join(&file.name);
        if of.shared.options.left_out == Some(found.id()) {
            of.skipped(&path, "the archive itself is there");
            return Ok(None);
        }
        let to = of.of.path.join(file.name.as_bytes());
        let old = self.old.find(of.shared.store, file.name.as_bytes(), &mut self.none)?;
        if let Some(was) = old.map(|old| stamp_of(old.attributes)) {
            let takes =
                of.replaces(&file.name, &to, number, was) || self.is_room_made(of, &file.name, was);
            if !takes {
                of.left_out(ArchiveError::InTheWay { path: to, what: "a file" });
            }
            return Ok(None);
        }
        let from = Directory::within(of.file.clone(), &file.name);
        let place = of.place.iter().copied().chain([number]).collect();
        let above = Some(of.of.clone());
        let work = SaveWork { from, path, to, above, is_source: false, place };
        Ok(of.shared.desk.found(work))
    }

    /// Whether whoever gives directories here makes room for one that is archived as a file. One that cannot be
    /// read replaces nothing.
    fn is_room_made(&self, of: &SavingDirectory<'_>, name: &OsStr, was: FileStamp) -> bool {
        Directory::within(of.file.clone(), name).open().is_ok()
            && of.shared.desk.makes_room(&of.of.path, name.as_bytes(), was)
    }

    fn wanted(
        &mut self,
        of: &SavingDirectory<'_>,
        file: &NamedFile,
        found: &Metadata,
    ) -> Result<StoreWay, ArchiveError> {
        let path = || of.path.join(&file.name);
        if matches!(found.kind, FileKind::Socket | FileKind::Unknown) {
            of.skipped(&path(), NO_FILE);
            return Ok(StoreWay::Left);
        }
        let key = file.name.as_bytes();
        let old = self.old.find(of.shared.store, key, &mut self.none)?;
        let is_member = old.as_ref().is_some_and(|old| old.is_member);
        // Of a file that may have its content still, that is compared here.
        let is_kept =
            |old: &OldArchived<'_>| (old.size, old.attributes.mtime) == (found.size, found.mtime);
        let may_be_kept = old.as_ref().is_some_and(is_kept);
        if let Some(old) = &old {
            match is_archived(of.shared, old, (of.file.as_fd(), file, &path), found) {
                Ok(false) => {}
                Ok(true) if heal::is_lost(of.shared, &mut self.old, &of.of.path, (key, &path))? => {
                }
                Ok(true) if is_parted(of.shared, &self.old, (of.file.as_fd(), key), found) => {}
                Ok(true) => return Ok(StoreWay::Unchanged),
                Err(errno) => {
                    of.failed(&file.name, "cannot be read", errno);
                    return Ok(StoreWay::Left);
                }
            }
        } else if self.is_old && of.shared.desk.is_directory(&of.of.path.join(key))? {
            of.of.replace(key);
            (of.shared.told)(ArchiveEvent::Replaced { path: path(), was: "a directory" });
        }
        let is_much = |bytes: u64| bytes > of.shared.member_bytes_max();
        // A sparse file counts by its blocks, since a pack holds no holes.
        let is_alone = found.is_file()
            && found.nlink <= 1
            && is_much(found.size)
            && is_much(found.blocks.saturating_mul(DISK_BLOCK_BYTES));
        if !is_alone || is_member {
            return Ok(StoreWay::Here);
        }
        if !may_be_kept && !of.shared.options.dry_run {
            let parts = parts_to_offer(of.shared, found.size);
            for part in 0..parts {
                of.shared.desk.offer(&of.of.path, key, Some(part));
            }
            if parts == 0 {
                of.shared.desk.offer(&of.of.path, key, None);
            }
        }
        Ok(StoreWay::Alone)
    }
}

/// Of a limit of memory, the longest member takes one part of so many.
const MEMBERS_AT_ONCE: u64 = 3;

/// Why a socket is left out.
pub(super) const NO_FILE: &str = "a socket is no file that can be archived";

impl SaveShared<'_> {
    /// Bytes that a member may have; with 0 there are none.
    pub fn member_bytes_max(&self) -> u64 {
        let most = self.options.member_bytes_max.min(MEMBER_BYTES_MAX as u64);
        // A member is in memory as a whole, and is so for each worker.
        self.options.limits.memory_part(MEMBERS_AT_ONCE, most)
    }
}

/// Whether a file is archived as it is.
pub(super) fn is_archived(
    shared: &SaveShared<'_>,
    old: &OldArchived<'_>,
    (directory, file, path): (BorrowedFd<'_>, &NamedFile, &dyn Fn() -> PathBuf),
    found: &Metadata,
) -> Result<bool, Errno> {
    let of = old.attributes;
    // Only a file has a content to compare: for others the times and the inode have to do.
    if !shared.options.checksum || !found.is_file() {
        // A large file is compared where it is stored, and its times are known then.
        let is_recent = old.is_member && of.ctime().is_some_and(|(_, is_recent)| is_recent);
        return match is_unchanged(old, found, shared.options.ignores) {
            true if is_recent => is_same_file(shared, old, directory, file, &path()),
            is_unchanged => Ok(is_unchanged && of.ctime().is_some_and(|(_, is)| !is)),
        };
    }
    let is_same = (of.mode, of.uid, of.gid, of.mtime)
        == (found.mode, found.uid, found.gid, found.mtime)
        && old.size == found.size;
    if !is_same {
        return Ok(false);
    }
    has_digest(shared, old, directory, file, &path())
}

/// Whether a file is archived with the same attributes, and has not been changed since.
fn is_unchanged(old: &OldArchived<'_>, found: &Metadata, ignores: FileIgnores) -> bool {
    let of = old.attributes;
    let is_ctime = |ctime| ignores.ctime || ctime == source::nanoseconds(found.ctime);
    // A time that is not known is one of a file that is to be stored again.
    of.ctime().is_some_and(|(ctime, _)| is_ctime(ctime))
        && (of.mode, of.uid, of.gid) == (found.mode, found.uid, found.gid)
        && of.mtime == found.mtime
        && (ignores.inode || of.ino == found.ino)
        && old.size == if found.is_file() { found.size } else { 0 }
}

/// Whether a file has what is archived of it beside its times. One that cannot be read is told where it is
/// stored.
fn is_same_file(
    shared: &SaveShared<'_>,
    old: &OldArchived<'_>,
    directory: BorrowedFd<'_>,
    file: &NamedFile,
    path: &Path,
) -> Result<bool, Errno> {
    let Ok(found) = &file.found else { return Ok(false) };
    let Ok(mut opened) = SourceFile::open(directory, &file.name, path, found.kind) else {
        return Ok(false);
    };
    let (is, was) = (&opened.attributes, old.attributes);
    if is.xattrs != was.xattrs {
        return Ok(false);
    }
    if !found.is_file() {
        return Ok(is.kind == was.kind);
    }
    let (extents, digest) = (old.extents, old.digest);
    Ok(content::is_archived(shared, &mut opened, old.size, extents, digest)? && opened.is_same()?)
}

/// Whether a file has the content and the extended attributes that are archived. One that cannot be read is told
/// where it is stored.
fn has_digest(
    shared: &SaveShared<'_>,
    old: &OldArchived<'_>,
    directory: BorrowedFd<'_>,
    file: &NamedFile,
    path: &Path,
) -> Result<bool, Errno> {
    let opened = SourceFile::open(directory, &file.name, path, FileKind::File);
    let Ok(mut opened) = opened else { return Ok(false) };
    if opened.attributes.xattrs != old.attributes.xattrs {
        return Ok(false);
    }
    content::is_archived(shared, &mut opened, old.size, old.extents, old.digest)
}
