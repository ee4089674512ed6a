//! One directory on its way into the archive.
use super::desk::Unstored;
use super::links::{PieceLinks, StoredLink};
use super::old::{OldArchived, OldFiles};
use super::output::{PackOutput, WrittenPack};
use super::source::{self, SourceFile};
use super::{SaveCounters, SaveReport, SaveShared, SaveWork, SavedDirectory, file_error};
use crate::archive::{
    data_key, index_key, new_id, pack_key, pack_zstd_key, unwritten, write_index,
};
use crate::pack::member::stored_bytes;
use crate::pack::sparse;
use crate::repair::LEFTOVER_AGE;
use crate::walk::names::{NAMES_AT_ONCE, OpenDirectory};
use crate::{
    ArchiveError, ArchiveEvent, ArchivePath, ArchivedDirectory, ArchivedObject, ArchivedPack,
    ContentPlace, DirectoryChange, MEMBER_BYTES_MAX, MemberAttributes, MemberKind, PackError,
    PackId, PackWriter, SPARSE_EXTENTS_MAX, StoreKey,
};
use sheaf_core::Errno;
use sheaf_core::files::{FileKind, Metadata};
use std::ffi::OsStr;
use std::io::Write;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

const WRITE_BYTES: usize = 1 << 20;
/// What a member's headers take of a pack, where its attributes are few.
const HEADER_BYTES: u64 = 2048;
/// Objects of a directory after which it is committed, as after a pack.
const OBJECTS_MAX: usize = 1024;

type OpenPack = PackWriter<PackOutput>;

/// A directory, what is archived of it, and what becomes of that.
pub(super) struct DirectorySave<'a> {
    shared: &'a SaveShared<'a>,
    of: Arc<SavedDirectory>,
    /// It was archived before, so other directories may be in it.
    is_old: bool,
    old: OldFiles,
    pack: Option<(PackId, OpenPack)>,
    change: DirectoryChange,
    /// When the first of what is in no commit yet was written.
    since: Option<SystemTime>,
    /// What was done since the last change.
    counters: SaveCounters,
    content: Vec<u8>,
    /// Of the piece that is stored now.
    links: PieceLinks,
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
    /// Stores a directory's files and finds those in it. An error is one with which all is over.
    pub fn whole(shared: &'a SaveShared<'a>, work: SaveWork) -> Result<(), ArchiveError> {
        let to = work.to.clone();
        let report = match Self::open(&work) {
            Ok(Some((open, is))) => {
                let mut save = Self::begin(shared, work.to, work.above, is)?;
                shared.desk.begun(&save.of);
                save.change.directory = Some(save.of.is.clone());
                save.all_of(open, &work.path)?;
                save.counters.take()
            }
            Ok(None) => SaveReport::default(),
            Err(error) => {
                (shared.told)(ArchiveEvent::Failed(error));
                SaveReport { failed: 1, ..SaveReport::default() }
            }
        };
        shared.counters.add(&report);
        shared.desk.done(&to, report);
        Ok(())
    }

    fn all_of(&mut self, mut open: OpenDirectory, path: &Path) -> Result<(), ArchiveError> {
        while let Some(piece) = open.next() {
            let named = match piece {
                Ok(named) => named,
                Err(errno) => {
                    self.failed(file_error(path, "cannot be read", errno));
                    break;
                }
            };
            let member_bytes_max = self.member_bytes_max();
            self.links = PieceLinks::of(&named, |found| {
                HEADER_BYTES + if found.is_file() { found.size.min(member_bytes_max) } else { 0 }
            });
            for file in named {
                let path = path.join(&file.name);
                match file.found {
                    Err(errno) => self.failed(file_error(&path, "cannot be read", errno)),
                    Ok(found) if found.is_dir() => {
                        if self.shared.options.left_out == Some(found.id()) {
                            self.skipped(&path, "the archive itself is there");
                        } else {
                            self.directory(&open, &file.name, path)?;
                        }
                    }
                    Ok(found) => self.file(open.file(), &file.name, &path, &found)?,
                }
            }
            self.links = PieceLinks::default();
        }
        self.counters.directories.fetch_add(1, Ordering::Relaxed);
        self.flush()
    }

    /// Stores files that are in any directories.
    pub fn files(
        shared: &'a SaveShared<'a>,
        to: &ArchivePath,
        mut files: Vec<SourceName<'_>>,
    ) -> Result<(), ArchiveError> {
        if files.is_empty() {
            return Ok(());
        }
        files.sort_by(|one, other| one.name.cmp(other.name));
        let mut save = Self::begin(shared, to.clone(), None, made_now())?;
        for SourceName { directory, opened, path, found, .. } in &files {
            match found {
                Ok(found) => save.file(*directory, opened, path, found)?,
                Err(errno) => save.failed(file_error(path, "cannot be stored", *errno)),
            }
        }
        save.flush()?;
        let report = save.counters.take();
        shared.counters.add(&report);
        shared.desk.done(to, report);
        Ok(())
    }

    /// Nothing if it was taken away since it was found.
    fn open(work: &SaveWork) -> Result<Option<(OpenDirectory, ArchivedDirectory)>, ArchiveError> {
        let failed = |errno| file_error(&work.path, "cannot be read", errno);
        let open = match work.from.open() {
            // It was taken away since.
            Err(Errno::NOENT) if !work.is_source => return Ok(None),
            open => open.map_err(failed)?,
        };
        let found = source::status(open.file()).map_err(failed)?;
        let is = ArchivedDirectory {
            mode: found.mode,
            uid: found.uid,
            gid: found.gid,
            mtime_s: found.mtime.seconds,
            mtime_ns: found.mtime.nanoseconds,
            xattrs: source::xattrs_of(open.file()).map_err(failed)?,
        };
        Ok(Some((open, is)))
    }

    fn begin(
        shared: &'a SaveShared<'a>,
        to: ArchivePath,
        above: Option<Arc<SavedDirectory>>,
        is: ArchivedDirectory,
    ) -> Result<Self, ArchiveError> {
        let rows = shared.desk.rows_of(&to)?;
        let is_old = rows.directory.is_some();
        let since = AtomicU64::new(rows.changed);
        let of = Arc::new(SavedDirectory { path: to.clone(), above, is, since });
        let change = DirectoryChange { path: to, ..Default::default() };
        let old = OldFiles::new(rows.packs, rows.objects);
        Ok(Self {
            shared,
            of,
            is_old,
            old,
            pack: None,
            change,
            since: None,
            counters: SaveCounters::default(),
            content: Vec::new(),
            links: PieceLinks::default(),
        })
    }

    /// A directory in this one is for whoever is free.
    fn directory(
        &mut self,
        open: &OpenDirectory,
        name: &OsStr,
        path: PathBuf,
    ) -> Result<(), ArchiveError> {
        let to = self.of.path.join(name.as_bytes());
        if self.old.find(self.shared.store, name.as_bytes(), &mut self.change)?.is_some() {
            self.failed(ArchiveError::InTheWay { path: to, what: "a file" });
            return Ok(());
        }
        let (from, above) = (open.directory(name), Some(self.of.clone()));
        if let Some(work) =
            self.shared.desk.found(SaveWork { from, path, to, above, is_source: false })
        {
            self.shared.push(work);
        }
        Ok(())
    }

    /// A file or directory is none that is archived.
    fn skipped(&self, path: &Path, why: &'static str) {
        self.counters.skipped.fetch_add(1, Ordering::Relaxed);
        (self.shared.told)(ArchiveEvent::Skipped { path: path.to_owned(), why });
    }

    /// A file or directory is left out by an error.
    fn failed(&self, error: ArchiveError) {
        self.counters.failed.fetch_add(1, Ordering::Relaxed);
        (self.shared.told)(ArchiveEvent::Failed(error));
    }

    fn file(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &OsStr,
        path: &Path,
        found: &Metadata,
    ) -> Result<(), ArchiveError> {
        let shared = self.shared;
        self.links.met(found);
        if matches!(found.kind, FileKind::Socket | FileKind::Unknown) {
            self.skipped(path, "a socket is no file that can be archived");
            return Ok(());
        }
        let key = path.file_name().unwrap_or(name).as_bytes();
        let old = self.old.find(shared.store, key, &mut self.change)?;
        if old.as_ref().is_some_and(|old| is_unchanged(old, found)) {
            self.counters.unchanged.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        if old.is_none() && self.is_old {
            let to = self.of.path.join(key);
            if shared.desk.is_directory(&to)? {
                self.failed(ArchiveError::InTheWay { path: to, what: "a directory" });
                return Ok(());
            }
        }
        let opened = SourceFile::open(directory, name, path, found.kind);
        let mut file = match opened {
            Ok(file) => file,
            // It was taken away since it was looked at: it is not there.
            Err(ArchiveError::File { errno: Errno::NOENT, .. }) => return Ok(()),
            Err(error) => {
                self.failed(error);
                return Ok(());
            }
        };
        file.attributes.name = key.to_vec();
        self.since.get_or_insert_with(SystemTime::now);
        match self.store(&mut file) {
            Ok(bytes) => {
                self.counters.stored.fetch_add(1, Ordering::Relaxed);
                self.counters.stored_bytes.fetch_add(bytes, Ordering::Relaxed);
                if file.attributes.ctime_ns == 0 && !file.is_same().unwrap_or(false) {
                    self.counters.changing.fetch_add(1, Ordering::Relaxed);
                    (shared.told)(ArchiveEvent::Changing { path: path.to_owned() });
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

    /// Bytes that a member may have; with 0 there are none.
    fn member_bytes_max(&self) -> u64 {
        self.shared.options.member_bytes_max.min(MEMBER_BYTES_MAX as u64)
    }

    /// Stores a file; how many bytes its content has.
    fn store(&mut self, file: &mut SourceFile) -> Result<u64, Unstored> {
        let is_file = file.found.is_file();
        let extents = if is_file { file.extents()? } else { None };
        let member_bytes_max = self.member_bytes_max();
        let pieces = extents.as_deref().and_then(|all| sparse::in_blocks(all, file.found.size));
        let bytes = if is_file { stored_bytes(file.found.size, pieces.as_deref()) } else { 0 };
        let may_be_member = member_bytes_max > 0
            && bytes <= member_bytes_max
            && pieces.as_ref().is_none_or(|pieces| pieces.len() <= SPARSE_EXTENTS_MAX);
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
            let name = std::mem::take(&mut file.attributes.name);
            let kind = MemberKind::HardLink { to: first.name.clone() };
            file.attributes = MemberAttributes { name, kind, ..first.clone() };
            if source::nanoseconds(file.found.ctime) != first.ctime_ns {
                file.forget();
            }
            self.content.clear();
            let is_member = self.add_member(file, None)?;
            if !is_member {
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
            if !is_whole? {
                // It grows or shrinks: what is of another length by now is stored alone.
                file.forget();
                return Ok(false);
            }
            let is_shorter = pieces.is_none() && self.content.len() as u64 != file.found.size;
            if is_shorter || !file.is_same()? {
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
                self.old.retire(&file.attributes.name, &mut self.change);
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
        let mut object = ArchivedObject {
            attributes: file.attributes.clone(),
            size: if file.found.is_file() { file.found.size } else { 0 },
            digest: *blake3::hash(b"").as_bytes(),
            place: None,
            extents,
            link: None,
        };
        if object.stored_bytes() == 0 {
            return Ok(object);
        }
        let id = new_id()?;
        let key = data_key(id);
        let mut to = self.shared.store.create(&key).map_err(ArchiveError::from)?;
        let (mut digest, mut stored) = (blake3::Hasher::new(), 0);
        self.content.resize(WRITE_BYTES, 0);
        'extents: for extent in object.stored_extents() {
            let mut at = extent.start;
            while at < extent.end {
                let room = (extent.end - at).min(WRITE_BYTES as u64) as usize;
                let read = file.read_at(&mut self.content[..room], at)?;
                if read == 0 {
                    break 'extents;
                }
                let bytes = &self.content[..read];
                digest.update(bytes);
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
                object = shortened(object, stored);
            }
        }
        to.commit().map_err(ArchiveError::from)?;
        object.digest = *digest.finalize().as_bytes();
        object.place = Some(ContentPlace::Object(id));
        Ok(object)
    }

    fn put_object(&mut self, object: ArchivedObject) -> Result<(), ArchiveError> {
        let name = object.attributes.name.clone();
        self.old.retire(&name, &mut self.change);
        self.change.objects_removed.retain(|removed| *removed != name);
        self.change.objects.push(object);
        let is_much = self.change.objects.len() >= OBJECTS_MAX && !self.links.hold_pack();
        if is_much { self.flush() } else { Ok(()) }
    }

    /// Ends the pack, and has what was done so far committed.
    fn flush(&mut self) -> Result<(), ArchiveError> {
        if let Some((id, pack)) = self.pack.take()
            && !pack.is_empty()
        {
            self.change.packs.push(self.finish(id, pack)?);
        }
        self.old.settle(self.shared.store, &mut self.change)?;
        let next = DirectoryChange { path: self.of.path.clone(), ..Default::default() };
        let change = std::mem::replace(&mut self.change, next);
        if change == self.change {
            return Ok(());
        }
        self.check_there(&change)?;
        let report = self.counters.take();
        self.shared.counters.add(&report);
        self.shared.desk.change(&self.of, change, report)
    }

    /// What was written long ago, and is in no commit yet, may have been taken for a leftover: then it
    /// is not committed.
    fn check_there(&mut self, change: &DirectoryChange) -> Result<(), ArchiveError> {
        let is_old = self.since.is_some_and(|since| {
            // A clock that was set back says nothing.
            since.elapsed().map_or(true, |elapsed| elapsed >= LEFTOVER_AGE / 2)
        });
        self.since = None;
        if !is_old {
            return Ok(());
        }
        let packs =
            change.packs.iter().flat_map(|pack| [pack.key(), index_key(pack.id, pack.generation)]);
        let objects = change.objects.iter().filter_map(|object| match object.place {
            Some(ContentPlace::Object(id)) => Some(data_key(id)),
            _ => None,
        });
        for key in packs.chain(objects) {
            self.shared.store.size(&key)?;
        }
        Ok(())
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
        let index_bytes = write_index(self.shared.store, &mut index)?;
        let mut row =
            ArchivedPack { index_bytes, tar_bytes, zstd_bytes, ..ArchivedPack::default() };
        row.describe(&index);
        Ok(row)
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

/// Whether a file is archived as it is.
fn is_unchanged(old: &OldArchived<'_>, found: &Metadata) -> bool {
    let of = old.attributes;
    of.ctime_ns != 0
        && (of.mode, of.uid, of.gid) == (found.mode, found.uid, found.gid)
        && (of.mtime, of.ctime_ns, of.ino)
            == (found.mtime, source::nanoseconds(found.ctime), found.ino)
        && old.size == if found.is_file() { found.size } else { 0 }
}
