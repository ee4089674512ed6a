//! One directory on its way into the archive.
use super::commits::ReplacingChange;
use super::compare::{self, ComparedPiece};
use super::content;
use super::desk::{StoredContent, Unstored};
use super::heal;
use super::links::{PieceLinks, StoredLink, is_parted};
use super::old::OldFiles;
use super::output::{PackOutput, WrittenPack};
use super::parted;
use super::phases::SavingDirectory;
use super::source::{self, SourceFile};
use super::{SaveCounters, SaveReport, SaveShared, SavedDirectory, file_error};
use crate::archive::{
    ArchiveError, ArchiveEvent, data_key, new_id, pack_key, pack_zstd_key, unwritten, write_index,
};
use crate::catalog::{
    ArchivedDirectory, ArchivedObject, ArchivedPack, CatalogError, ContentPlace, DirectoryChange,
    DirectoryRows,
};
use crate::error::PackError;
use crate::lease::written_by;
use crate::name::FileName;
use crate::pack::member::{MemberAttributes, MemberKind, PackId, stored_bytes};
use crate::pack::sparse;
use crate::pack::sparse::SPARSE_EXTENTS_MAX;
use crate::pack::write::PackWriter;
use crate::path::ArchivePath;
use crate::store::StoreKey;
use crate::walk::names::{NAMES_AT_ONCE, NamedFile};
use sheaf_core::files::{FileKind, Metadata};
use sheaf_core::{Errno, lock};
use std::ffi::OsStr;
use std::io::Write;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

const WRITE_BYTES: usize = 1 << 20;
/// What a member's headers take of a pack, where its attributes are few.
pub(super) const HEADER_BYTES: u64 = 2048;
/// Objects of a directory after which it is committed, as after a pack.
const OBJECTS_MAX: usize = 1024;

/// How long large files that were stored wait for others of their directory to be committed.
const COMMITTED_AFTER: Duration = Duration::from_secs(2);

type OpenPack = PackWriter<PackOutput>;

/// A directory, what is archived of it, and what becomes of that.
pub(super) struct DirectorySave<'a> {
    shared: &'a SaveShared<'a>,
    of: Arc<SavedDirectory>,
    old: OldFiles,
    pack: Option<(PackId, OpenPack)>,
    change: DirectoryChange,
    /// Names that the change stores, and that are archived as directories.
    replaced: Vec<FileName>,
    /// When the first of what is in no commit yet was written.
    since: Option<SystemTime>,
    /// What was done since the last change.
    counters: Arc<SaveCounters>,
    content: Vec<u8>,
    /// Of the piece that is stored now.
    links: PieceLinks,
    /// Contents in parts that are in no commit yet.
    parted: Vec<ArchivedObject>,
}

/// A single file that is stored.
pub(super) struct SourceName<'a> {
    /// Its last name, under which it is archived.
    pub name: &'a OsStr,
    /// Where it is opened, and under which name there.
    pub directory: BorrowedFd<'a>,
    pub opened: &'a OsStr,
    /// What it is called where something is told.
    pub path: &'a Path,
    /// What it is, if that can be seen.
    pub found: Result<Metadata, Errno>,
}

/// A directory that is made in an archive.
pub(super) fn made_now() -> ArchivedDirectory {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    ArchivedDirectory {
        mode: 0o755,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        mtime_s: now.as_secs().cast_signed(),
        mtime_ns: now.subsec_nanos(),
        xattrs: Vec::new(),
    }
}

impl<'a> DirectorySave<'a> {
    /// Stores files that are in any directories.
    pub fn files(
        shared: &'a SaveShared<'a>,
        to: &ArchivePath,
        mut files: Vec<SourceName<'_>>,
    ) -> Result<(), ArchiveError> {
        if files.is_empty() {
            return Ok(());
        }
        // Old packs are opened and closed as the names pass by: they have to come in order.
        files.sort_by(|one, other| one.name.cmp(other.name));
        let counters = Arc::new(SaveCounters::default());
        let rows = shared.desk.rows_of(to)?;
        let is_old = rows.directory.is_some();
        let of = SavedDirectory::new(to.clone(), None, made_now(), rows.changed);
        let of = Arc::new(of);
        // Names are compared before they are stored, and each of the two goes through the old files
        // once: `save` has its own.
        let mut old = OldFiles::new(rows.packs.clone(), rows.objects.clone())
            .archiving(shared.options.checksum);
        let mut save = Self::new(shared, of, rows, counters);
        for file in &files {
            if save.is_wanted(file, &mut old, is_old)?
                && let Ok(found) = &file.found
            {
                save.file((file.directory, file.opened), file.name, file.path, found.kind)?;
            }
        }
        for (pack, error) in old.take_lost() {
            save.failed(error.of_lost_pack(to, &pack));
        }
        save.flush()?;
        let report = save.counters.take();
        shared.counters.add(&report);
        shared.desk.done(to, report);
        Ok(())
    }

    /// Whether a file that was named is to be stored.
    fn is_wanted(
        &self,
        file: &SourceName<'_>,
        old: &mut OldFiles,
        is_old: bool,
    ) -> Result<bool, ArchiveError> {
        let shared = self.shared;
        let found = match &file.found {
            Ok(found) => found,
            Err(errno) => {
                self.failed(file_error(file.path, "cannot be stored", *errno));
                return Ok(false);
            }
        };
        if matches!(found.kind, FileKind::Socket | FileKind::Unknown) {
            self.counters.skipped.fetch_add(1, Ordering::Relaxed);
            let (path, why) = (file.path.to_owned(), compare::NO_FILE);
            (shared.told)(ArchiveEvent::Skipped { path, why });
            return Ok(false);
        }
        let key = file.name.as_bytes();
        if let Some(found_old) = old.find(shared.store, key, &mut DirectoryChange::default())? {
            let named = NamedFile { name: file.opened.to_owned(), found: Ok(found.clone()) };
            let path = || file.path.to_owned();
            match compare::is_archived(shared, &found_old, (file.directory, &named, &path), found) {
                Ok(false) => {}
                Ok(true) if heal::is_lost(shared, old, &self.of.path, (key, &path))? => {}
                Ok(true) if is_parted(shared, old, (file.directory, key), found) => {}
                Ok(true) => {
                    self.counters.unchanged.fetch_add(1, Ordering::Relaxed);
                    return Ok(false);
                }
                Err(errno) => {
                    self.failed(file_error(file.path, "cannot be read", errno));
                    return Ok(false);
                }
            }
        } else if is_old && shared.desk.is_directory(&self.of.path.join(key))? {
            // A file that was named may be another one than the tree that is archived there.
            let path = self.of.path.join(key);
            self.failed(ArchiveError::InTheWay { path, what: "a directory" });
            return Ok(false);
        }
        if shared.options.tell_names {
            (shared.told)(ArchiveEvent::Stores { path: file.path.to_owned() });
        }
        if shared.options.dry_run {
            self.counters.stored.fetch_add(1, Ordering::Relaxed);
            let bytes = if found.is_file() { found.size } else { 0 };
            self.counters.stored_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        Ok(!shared.options.dry_run)
    }

    pub fn new(
        shared: &'a SaveShared<'a>,
        of: Arc<SavedDirectory>,
        rows: DirectoryRows,
        counters: Arc<SaveCounters>,
    ) -> Self {
        let change = DirectoryChange { path: of.path.clone(), ..Default::default() };
        let old = OldFiles::new(rows.packs, rows.objects).archiving(shared.options.checksum);
        let (pack, since, content, replaced) = (None, None, Vec::new(), Vec::new());
        Self {
            shared,
            of,
            old,
            pack,
            change,
            replaced,
            since,
            counters,
            content,
            links: PieceLinks::default(),
            parted: Vec::new(),
        }
    }

    /// The directory itself is stored.
    pub fn is(&mut self, directory: ArchivedDirectory) {
        self.change.directory = Some(directory);
    }

    /// Stores files of a directory that come behind those before.
    pub fn piece(
        &mut self,
        of: &SavingDirectory<'_>,
        piece: ComparedPiece,
    ) -> Result<(), ArchiveError> {
        self.links = piece.links;
        for file in piece.files {
            // What could not be looked at is none of these.
            let Ok(found) = &file.found else { continue };
            self.links.met(found);
            let path = of.path.join(&file.name);
            self.file((of.file.as_fd(), &file.name), &file.name, &path, found.kind)?;
        }
        self.links = PieceLinks::default();
        // A directory waits with all that it has.
        if self.content.capacity() > WRITE_BYTES {
            self.content = Vec::new();
        }
        Ok(())
    }

    /// Packs that are lost for good go, also where nothing new is stored beside them.
    pub fn drop_lost(&mut self) -> Result<(), ArchiveError> {
        if self.shared.options.checksum && !self.shared.options.dry_run {
            self.old.drop_lost(self.shared.store, &mut self.change)?;
        }
        Ok(())
    }

    /// A file or directory is left out by an error.
    fn failed(&self, error: ArchiveError) {
        self.counters.failed.fetch_add(1, Ordering::Relaxed);
        (self.shared.told)(ArchiveEvent::Failed(error));
    }

    fn file(
        &mut self,
        (directory, opened): (BorrowedFd<'_>, &OsStr),
        name: &OsStr,
        path: &Path,
        kind: FileKind,
    ) -> Result<(), ArchiveError> {
        // What is archived of it by now is retired where it is stored.
        self.old.find(self.shared.store, name.as_bytes(), &mut self.change)?;
        self.since.get_or_insert_with(SystemTime::now);
        let Some(mut file) = self.opened(directory, opened, path, kind) else { return Ok(()) };
        // What has been found in a directory has a name.
        if let Some(name) = FileName::new(name.as_bytes()) {
            file.attributes.name = name;
        }
        let stored = self.store(&mut file);
        self.stored(&file, path, stored)
    }

    /// Opens a file; one that is left out is counted.
    fn opened(
        &self,
        directory: BorrowedFd<'_>,
        name: &OsStr,
        path: &Path,
        kind: FileKind,
    ) -> Option<SourceFile> {
        match SourceFile::open(directory, name, path, kind) {
            Ok(file) => Some(file),
            // It was taken away since it was looked at: it is not there.
            Err(ArchiveError::File { errno: Errno::NOENT, .. }) => None,
            Err(error) => {
                self.failed(error);
                None
            }
        }
    }

    /// Counts a file that was stored, or was not.
    fn stored(
        &self,
        file: &SourceFile,
        path: &Path,
        stored: Result<u64, Unstored>,
    ) -> Result<(), ArchiveError> {
        match stored {
            Ok(bytes) => {
                self.counters.stored.fetch_add(1, Ordering::Relaxed);
                self.counters.stored_bytes.fetch_add(bytes, Ordering::Relaxed);
                let is_known = file.attributes.ctime_ns != 0;
                if !is_known && (file.is_of_another_length() || !file.is_same().unwrap_or(false)) {
                    self.counters.changing.fetch_add(1, Ordering::Relaxed);
                    (self.shared.told)(ArchiveEvent::Changing { path: path.to_owned() });
                }
                Ok(())
            }
            Err(Unstored::File(errno)) => {
                self.failed(file_error(path, "cannot be read", errno));
                Ok(())
            }
            Err(Unstored::Archive(error)) => Err(error),
        }
    }

    /// Stores a file that is an object and is no member of a pack, while others of the directory are.
    pub fn alone(
        this: &Mutex<Self>,
        of: &SavingDirectory<'_>,
        file: &NamedFile,
    ) -> Result<(), ArchiveError> {
        let (began, path) = (SystemTime::now(), of.path.join(&file.name));
        let opened = lock(this).opened(of.file.as_fd(), &file.name, &path, FileKind::File);
        let Some(mut file) = opened else { return Ok(()) };
        // The lock is not held while the content is stored: other files of the directory are stored
        // at the same time.
        let archived = lock(this).old.open_object(&file.attributes.name);
        let taken = of.shared.desk.taken(&of.of.path, &file.attributes.name, None)?;
        let object = match taken.and_then(|taken| same_object(&mut file, taken)) {
            Some(object) => {
                let bytes = object.size;
                Ok((object, bytes))
            }
            None => object_alone(of.shared, &mut file, archived, Some(&of.of.path)),
        };
        let mut save = lock(this);
        // Its data was in the store without a commit from the time it began.
        save.since = Some(save.since.map_or(began, |since| since.min(began)));
        let stored = object.and_then(|(object, bytes)| {
            save.put_object(object)?;
            Ok(bytes)
        });
        save.stored(&file, &path, stored)
    }

    /// Stores a file; how many bytes its content has.
    fn store(&mut self, file: &mut SourceFile) -> Result<u64, Unstored> {
        let is_file = file.found.is_file();
        let extents = if is_file { file.extents()? } else { None };
        let member_bytes_max = self.shared.member_bytes_max();
        let pieces = extents.as_deref().and_then(|all| sparse::in_blocks(all, file.found.size));
        let bytes = if is_file { stored_bytes(file.found.size, pieces.as_deref()) } else { 0 };
        let may_be_member = member_bytes_max > 0
            && bytes <= member_bytes_max
            && pieces.as_ref().is_none_or(|pieces| pieces.len() <= SPARSE_EXTENTS_MAX);
        // Files that were removed since they were opened have no name: 0 counts as 1.
        let is_member = match file.found.nlink {
            _ if !may_be_member => false,
            0 | 1 => self.store_member(file, pieces.as_deref())?,
            _ => self.store_name(file, pieces.as_deref())?,
        };
        if is_member {
            return Ok(if is_file { file.found.size } else { 0 });
        }
        if file.found.nlink > 1 {
            self.links.leave_out(&file.found);
            return self.store_link(file, extents);
        }
        let object = self.content_object(file, extents)?;
        let bytes = object.size;
        self.put_object(object)?;
        Ok(bytes)
    }

    /// Stores a name of a file with several in a pack, if all of them can be its members.
    fn store_name(
        &mut self,
        file: &mut SourceFile,
        pieces: Option<&[Range<u64>]>,
    ) -> Result<bool, Unstored> {
        let held = self.links.hold_pack();
        let Some(link) = self.links.get(&file.found) else { return Ok(false) };
        if let Some(first) = &link.member {
            let name = file.attributes.name.clone();
            let kind = MemberKind::HardLink { to: first.name.clone() };
            file.attributes = MemberAttributes { name, kind, ..first.clone() };
            let ctime = source::nanoseconds(file.found.ctime);
            if first.ctime().is_none_or(|(first, _)| first != ctime) {
                file.forget();
            }
            // A hard link refers to the first name, and has no content of its own.
            self.content.clear();
            let is_member = self.add_member(file, None)?;
            if !is_member {
                // It becomes an object, which refers to no member.
                file.attributes.kind = MemberKind::File;
            }
            return Ok(is_member);
        }
        // The pack is not ended before the last name has come.
        let room = self.shared.options.pack_bytes.saturating_mul(2);
        let span = link.span_bytes;
        let has_room = |pack: &Option<(PackId, OpenPack)>| {
            let bytes = pack.as_ref().map_or(0, |(_, pack)| pack.bytes());
            bytes.saturating_add(span) <= room
        };
        if !has_room(&self.pack) && !held {
            self.flush()?;
        }
        if !has_room(&self.pack) || !self.store_member(file, pieces)? {
            return Ok(false);
        }
        if let Some(link) = self.links.get(&file.found) {
            link.member = Some(file.attributes.clone());
        }
        Ok(true)
    }

    /// Stores a file in a pack, if it can be a member.
    fn store_member(
        &mut self,
        file: &mut SourceFile,
        pieces: Option<&[Range<u64>]>,
    ) -> Result<bool, Unstored> {
        self.content.clear();
        if file.found.is_file() {
            let mut content = std::mem::take(&mut self.content);
            let is_whole = match pieces {
                Some(pieces) => file.read_pieces(pieces, &mut content),
                None => file.read_whole(&mut content),
            };
            self.content = content;
            self.shared.moved.moved(self.content.len() as u64);
            if !is_whole? {
                // It grows or shrinks: what is of another length by now is stored alone.
                file.forget();
                return Ok(false);
            }
            let is_shorter = pieces.is_none() && self.content.len() as u64 != file.found.size;
            if is_shorter {
                file.ended_early();
            } else if !file.is_same()? {
                file.forget();
            }
        }
        self.add_member(file, pieces)
    }

    /// Adds a file whose content was read to the open pack, if it can be a member.
    fn add_member(
        &mut self,
        file: &SourceFile,
        pieces: Option<&[Range<u64>]>,
    ) -> Result<bool, Unstored> {
        let pack_bytes = self.shared.options.pack_bytes;
        let is_full = |pack: &OpenPack| !pack.has_room(NAMES_AT_ONCE) || pack.bytes() >= pack_bytes;
        if self.pack.as_ref().is_some_and(|(_, pack)| is_full(pack)) && !self.links.hold_pack() {
            self.flush()?;
        }
        let (id, mut pack) = match self.pack.take() {
            Some(pack) => pack,
            None => {
                let id = new_id()?;
                let key = self.pack_key(id);
                let to = self.shared.store.create(&key).map_err(ArchiveError::from)?;
                let to = PackOutput::new(to, self.shared.options.zstd);
                let to = to.map_err(|error| ArchiveError::from(unwritten(&key, &error)))?;
                (id, PackWriter::new(to, id))
            }
        };
        let added = match pieces {
            Some(pieces) => {
                pack.add_sparse(&file.attributes, file.found.size, pieces, &self.content)
            }
            None => pack.add(&file.attributes, &self.content),
        };
        self.pack = Some((id, pack));
        match added {
            Ok(()) => {
                // Only now: a name that fails to be stored keeps what is archived of it.
                self.retire(&file.attributes.name);
                Ok(true)
            }
            Err(PackError::NoMember { .. }) => Ok(false),
            Err(why) => Err(ArchiveError::Pack { place: self.pack_key(id), why }.into()),
        }
    }

    /// Stores a name of a file that has several.
    fn store_link(
        &mut self,
        file: &mut SourceFile,
        extents: Option<Vec<Range<u64>>>,
    ) -> Result<u64, Unstored> {
        let (desk, found) = (self.shared.desk, file.found.clone());
        let mut extents = Some(extents);
        let mut store = || {
            let extents = extents.take().expect("it is stored by one who comes first");
            let (id, as_is) = (new_id()?, self.content_object(file, extents)?);
            Ok(StoredLink { id, as_is })
        };
        let StoredLink { id, as_is: mut object } = desk.link(&found, &mut store)?;
        object.attributes.name.clone_from(&file.attributes.name);
        object.link = Some(id);
        let bytes = object.size;
        self.put_object(object)?;
        Ok(bytes)
    }

    /// A file as an object, with its content stored.
    fn content_object(
        &mut self,
        file: &mut SourceFile,
        extents: Option<Vec<Range<u64>>>,
    ) -> Result<ArchivedObject, Unstored> {
        content_object(self.shared, file, extents, (&mut self.content, None))
    }

    /// What is archived under a name goes in the change that stores it.
    fn retire(&mut self, name: &FileName) {
        self.old.retire(name, &mut self.change);
        if self.of.takes_replaced(name) {
            self.replaced.push(name.clone());
        }
    }

    fn put_object(&mut self, object: ArchivedObject) -> Result<(), ArchiveError> {
        let name = object.attributes.name.clone();
        self.retire(&name);
        if matches!(object.place, Some(ContentPlace::Parts { .. })) {
            self.parted.push(object.clone());
        }
        // The same change does not remove a name that it stores.
        self.change.objects_removed.retain(|removed| *removed != name);
        self.change.objects.push(object);
        let is_much = self.change.objects.len() >= OBJECTS_MAX;
        // One that is broken off again and again comes to its end nevertheless.
        let is_late = self
            .since
            .is_some_and(|since| since.elapsed().is_ok_and(|elapsed| elapsed >= COMMITTED_AFTER));
        if (is_much || is_late) && !self.links.hold_pack() { self.flush() } else { Ok(()) }
    }

    /// Ends the pack, and has what was done so far committed.
    pub fn flush(&mut self) -> Result<(), ArchiveError> {
        if self.shared.options.dry_run {
            return Ok(());
        }
        // An empty pack is left when its first file did not become a member.
        if let Some((id, pack)) = self.pack.take()
            && !pack.is_empty()
        {
            self.change.packs.push(self.finish(id, pack)?);
        }
        // In the same change as the new place: else a name is archived twice, or not at all.
        self.old.settle(self.shared.store, &mut self.change)?;
        let next = DirectoryChange { path: self.of.path.clone(), ..Default::default() };
        let change = std::mem::replace(&mut self.change, next);
        let replaced = std::mem::take(&mut self.replaced);
        if change == self.change {
            return Ok(());
        }
        if !self.of.is_broken() && !self.check_there(&change)? {
            self.of.break_off();
            let path = self.of.path.clone();
            self.failed(CatalogError::Removed { path }.into());
        }
        let mut report = self.counters.take();
        if self.of.is_broken() {
            // Later changes build on the one that was given up.
            report = SaveReport { stored: 0, stored_bytes: 0, ..report };
            self.shared.counters.add(&report);
            return Ok(());
        }
        self.shared.counters.add(&report);
        self.shared.desk.change(&self.of, ReplacingChange { change, replaced }, report)?;
        for object in std::mem::take(&mut self.parted) {
            parted::forget_parts(self.shared, &object)?;
        }
        Ok(())
    }

    /// Whether all is in the store that a change refers to. Another command may have taken it for
    /// leftovers.
    fn check_there(&mut self, change: &DirectoryChange) -> Result<bool, ArchiveError> {
        self.since = None;
        for (key, bytes) in written_by(change) {
            match self.shared.store.size(&key) {
                Ok(size) if size == bytes => {}
                Err(error) if !matches!(error.errno, Errno::NOENT | Errno::NODATA) => {
                    return Err(error.into());
                }
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Where a pack goes.
    fn pack_key(&self, id: PackId) -> StoreKey {
        if self.shared.options.zstd.is_some() { pack_zstd_key(id) } else { pack_key(id) }
    }

    /// Writes a pack's end and its index.
    fn finish(&self, id: PackId, pack: OpenPack) -> Result<ArchivedPack, ArchiveError> {
        let key = self.pack_key(id);
        let finished = pack.finish();
        let (to, mut index) =
            finished.map_err(|why| ArchiveError::Pack { place: key.clone(), why })?;
        let written = to.finish().map_err(|error| unwritten(&key, &error))?;
        let WrittenPack { to, tar_bytes, zstd_bytes } = written;
        to.commit()?;
        // The pack first: no index is in the store without its pack, and no commit without both.
        let index_bytes = write_index(self.shared.store, &mut index)?;
        let mut row =
            ArchivedPack { index_bytes, tar_bytes, zstd_bytes, ..ArchivedPack::default() };
        row.describe(&index);
        Ok(row)
    }
}

/// A file as an object, and how many bytes of its content were not archived yet.
fn object_alone(
    shared: &SaveShared<'_>,
    file: &mut SourceFile,
    archived: Option<ArchivedObject>,
    of: Option<&ArchivePath>,
) -> Result<(ArchivedObject, u64), Unstored> {
    if let Some(archived) = archived
        && let Some(object) = content::kept_object(shared, file, archived)?
    {
        return Ok((object, 0));
    }
    let extents = file.extents()?;
    let object = content_object(shared, file, extents, (&mut Vec::new(), of))?;
    let bytes = object.size;
    Ok((object, bytes))
}

/// What another host has stored of a file, if it is the one that is here.
fn same_object(file: &mut SourceFile, taken: StoredContent) -> Option<ArchivedObject> {
    let StoredContent::Whole(object) = taken else { return None };
    let known = |of: &MemberAttributes| (of.ino, of.mtime, of.mode, of.uid, of.gid);
    let is_it = known(&object.attributes) == known(&file.attributes)
        && object.size == file.found.size
        && file.is_same().unwrap_or(false);
    let is_changing = object.attributes.ctime_ns == 0;
    if is_changing {
        file.forget();
    }
    is_it.then(|| ArchivedObject { attributes: file.attributes.clone(), link: None, ..object })
}

/// Stores a file of a directory as an object, for another host that has the directory.
pub(super) fn object_for_other(
    shared: &SaveShared<'_>,
    directory: BorrowedFd<'_>,
    (name, part): (&OsStr, Option<u32>),
    path: &Path,
) -> Option<StoredContent> {
    let mut file = SourceFile::open(directory, name, path, FileKind::File).ok()?;
    // What goes wrong here goes wrong where it is stored again, and is told there.
    match part {
        Some(number) => parted::part_for_other(shared, &mut file, number).ok().flatten(),
        None => {
            let object = object_alone(shared, &mut file, None, None).ok();
            object.map(|(object, _)| StoredContent::Whole(object))
        }
    }
}

/// A file of which less was there than it had said.
fn shortened(mut object: ArchivedObject, stored: u64) -> ArchivedObject {
    match &mut object.extents {
        None => object.size = stored,
        Some(extents) => {
            let mut left = stored;
            for extent in extents.iter_mut() {
                let bytes = (extent.end - extent.start).min(left);
                extent.end = extent.start + bytes;
                left -= bytes;
            }
            extents.retain(|extent| !extent.is_empty());
            object.size = extents.last().map_or(0, |extent| extent.end);
        }
    }
    object
}

/// A file as an object, with its content stored; `content` is room that is used. Of a directory that is
/// given, others may have stored some.
fn content_object(
    shared: &SaveShared<'_>,
    file: &mut SourceFile,
    extents: Option<Vec<Range<u64>>>,
    (content, of): (&mut Vec<u8>, Option<&ArchivePath>),
) -> Result<ArchivedObject, Unstored> {
    let mut object = ArchivedObject {
        attributes: file.attributes.clone(),
        size: if file.found.is_file() { file.found.size } else { 0 },
        digest: *blake3::hash(b"").as_bytes(),
        place: None,
        extents,
        link: None,
    };
    if object.stored_bytes() == 0 {
        // Files of /proc have length 0 and a content: they are stored as empty and counted as
        // changing.
        if file.found.is_file() && file.found.size == 0 {
            file.see_more()?;
        }
        if file.has_more {
            file.forget();
            object.attributes.ctime_ns = 0;
        }
        return Ok(object);
    }
    if let Some(part_bytes) = parted::part_bytes(shared, object.stored_bytes())
        && let Some((place, digest)) = parted::store_parts(shared, file, &object, part_bytes, of)?
    {
        if !file.is_same()? {
            file.forget();
            object.attributes.ctime_ns = 0;
        }
        return Ok(ArchivedObject { digest, place: Some(place), ..object });
    }
    let id = new_id()?;
    let key = data_key(id);
    let mut to = shared.store.create(&key).map_err(ArchiveError::from)?;
    let (mut digest, mut stored) = (blake3::Hasher::new(), 0);
    content.resize(WRITE_BYTES, 0);
    'extents: for extent in object.stored_extents() {
        let mut at = extent.start;
        while at < extent.end {
            let room = (extent.end - at).min(WRITE_BYTES as u64) as usize;
            let read = file.read_at(&mut content[..room], at)?;
            if read == 0 {
                break 'extents;
            }
            let bytes = &content[..read];
            digest.update(bytes);
            shared.moved.moved(read as u64);
            to.write_all(bytes).map_err(|error| ArchiveError::from(unwritten(&key, &error)))?;
            at += read as u64;
            stored += read as u64;
        }
    }
    if !file.is_same()? || stored != object.stored_bytes() {
        file.forget();
        object.attributes.ctime_ns = 0;
        if stored != object.stored_bytes() {
            // It is shorter by now; where its holes are is no longer known.
            file.ended_early();
            object = shortened(object, stored);
        }
    }
    // Before an object refers to it: what is in a commit is in the store.
    to.commit().map_err(ArchiveError::from)?;
    object.digest = *digest.finalize().as_bytes();
    object.place = Some(ContentPlace::Object(id));
    Ok(object)
}
