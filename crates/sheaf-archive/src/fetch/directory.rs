//! One directory's files on their way out of the archive.
use super::FetchShared;
use super::resumed::{RESUMED_BYTES_MIN, resumed_name};
use super::same::FileIs;
use super::target::{FetchDirectory, PutFile, hands_acl_down};
use crate::archive::{ArchiveError, ArchiveEvent, read_index_to_fetch};
use crate::catalog::{ArchivedObject, ArchivedPack, DirectoryRows};
use crate::name::FileName;
use crate::pack::member::{MemberKind, PackId, PackedMember};
use crate::path::ArchivePath;
use crate::reader::PackReader;
use sheaf_core::{Errno, lock};
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

const READ_BYTES: usize = 1 << 20;

/// A name of each file with several that was fetched: its directory, and its name there.
#[derive(Default)]
pub(super) struct FetchLinks {
    fetched: Mutex<HashMap<PackId, FetchedLink>>,
}

type FetchedLink = Arc<Mutex<Option<(ArchivePath, FileName)>>>;

/// Who fills directories, one after the other.
pub(super) struct FetchWorker<'a> {
    shared: &'a FetchShared<'a>,
    number: usize,
    room: Vec<u8>,
}

/// Files of a pack that cannot be read.
struct UnreadMembers {
    error: ArchiveError,
    count: u64,
    /// Their names, where they are known.
    names: Option<Vec<Vec<u8>>>,
}

impl UnreadMembers {
    /// One of them was found elsewhere.
    fn has_come(&mut self, name: &[u8]) {
        match &mut self.names {
            None => self.count = self.count.saturating_sub(1),
            Some(names) => {
                names.retain(|lost| lost != name);
                self.count = names.len() as u64;
            }
        }
    }
}

impl<'a> FetchWorker<'a> {
    /// With a buffer, which somebody may have used before.
    pub fn new(shared: &'a FetchShared<'a>, number: usize, room: Vec<u8>) -> Self {
        Self { shared, number, room }
    }

    /// The buffer.
    pub fn into_room(self) -> Vec<u8> {
        self.room
    }

    /// Fetches one file; whether there is one.
    pub fn one(
        &mut self,
        above: &ArchivePath,
        name: &[u8],
        rows: DirectoryRows,
    ) -> Result<bool, ArchiveError> {
        let Some(mut to) = self.open(above, false) else { return Ok(true) };
        let objects = rows.objects.into_iter().filter(|object| *object.attributes.name == *name);
        let mut is_there = false;
        for object in objects {
            is_there = true;
            self.object(&mut to, above, &object);
        }
        let may_have = |pack: &&ArchivedPack| (&pack.first[..]..=&pack.last[..]).contains(&name);
        for pack in rows.packs.iter().filter(may_have) {
            let index = read_index_to_fetch(self.shared.store, pack)?;
            let members: Vec<_> = index.find(name).into_iter().cloned().collect();
            is_there |= !members.is_empty();
            if let Some(lost) = self.members(&mut to, above, pack, &members) {
                self.again(&mut to, above, &rows.packs, vec![lost]);
            }
        }
        Ok(is_there)
    }

    /// Whether a file of a directory is left out.
    fn excludes(&self, above: &ArchivePath, name: &[u8]) -> bool {
        let exclude = &self.shared.exclude;
        !exclude.is_empty() && exclude.fits_file(&above.join(name))
    }

    /// Fetches an object of a directory.
    pub fn large(&mut self, path: &ArchivePath, object: &ArchivedObject) {
        if self.excludes(path, &object.attributes.name) {
            return;
        }
        let Some(mut to) = self.open_used(path, false) else { return };
        self.object(&mut to, path, object);
    }

    /// Fetches these files of a directory, which may have been made for them.
    pub fn fill(&mut self, path: &ArchivePath, rows: &DirectoryRows, is_new: bool) {
        // Where only some names are fetched, it is opened, and made, when the first of them comes.
        let mut opened = None;
        if !self.shared.exclude.is_of_some() {
            let Some(to) = self.open(path, is_new) else { return };
            opened = Some(to);
        }
        for object in &rows.objects {
            if !self.excludes(path, &object.attributes.name) && !self.shared.is_stopped() {
                let Some(to) = self.opened(&mut opened, path) else { return };
                self.object(to, path, object);
            }
        }
        let mut lost = Vec::new();
        for pack in &rows.packs {
            match read_index_to_fetch(self.shared.store, pack) {
                Ok(index) => {
                    let is_left = |of: &PackedMember| self.excludes(path, &of.attributes.name);
                    if opened.is_none() && index.members.iter().all(is_left) {
                        continue;
                    }
                    let Some(to) = self.opened(&mut opened, path) else { return };
                    lost.extend(self.members(to, path, pack, &index.members));
                }
                Err(error) => {
                    lost.push(UnreadMembers { error, count: u64::from(pack.members), names: None });
                }
            }
        }
        if !lost.is_empty()
            && let Some(to) = self.opened(&mut opened, path)
        {
            self.again(to, path, &rows.packs, lost);
        }
    }

    /// A directory that is open, or is opened now.
    fn opened<'b>(
        &self,
        opened: &'b mut Option<FetchDirectory<'a>>,
        path: &ArchivePath,
    ) -> Option<&'b mut FetchDirectory<'a>> {
        if opened.is_none() {
            *opened = Some(self.open_used(path, false)?);
        }
        opened.as_mut()
    }

    /// Opens a directory into which something goes; it is made if it was not before.
    fn open_used(&self, path: &ArchivePath, is_new: bool) -> Option<FetchDirectory<'a>> {
        let shared = self.shared;
        if shared.exclude.is_of_some() {
            shared.use_directory(path);
        }
        self.open(path, is_new)
    }

    /// Fetches what was in packs that are lost: where they have been packed again meanwhile, from the new ones.
    fn again(
        &mut self,
        to: &mut FetchDirectory<'_>,
        path: &ArchivePath,
        known: &[ArchivedPack],
        mut lost: Vec<UnreadMembers>,
    ) {
        // Only a pack that is gone may have been packed again: one that is damaged is so for all.
        let is_gone = lost.iter().any(|lost| lost.error.errno() == Errno::NOENT);
        let now = if is_gone { (self.shared.rows_now)(path) } else { Ok(None) };
        let now = match now {
            Ok(now) => now.unwrap_or_default(),
            Err(error) => {
                (self.shared.told)(ArchiveEvent::Failed(error));
                DirectoryRows::default()
            }
        };
        let is_known = |pack: &&ArchivedPack| {
            known.iter().any(|old| (old.id, old.generation) == (pack.id, pack.generation))
        };
        for pack in now.packs.iter().filter(|pack| !is_known(pack)) {
            // Of one that cannot be read, either, nothing is found.
            let Ok(index) = read_index_to_fetch(self.shared.store, pack) else { continue };
            let is_lost = |name: &[u8]| {
                lost.iter().any(|lost| {
                    lost.names.as_ref().is_none_or(|names| names.iter().any(|lost| lost == name))
                })
            };
            let members: Vec<_> = index
                .members
                .into_iter()
                .filter(|member| is_lost(&member.attributes.name))
                .collect();
            let again = self.members(to, path, pack, &members);
            let not = again.and_then(|again| again.names).unwrap_or_default();
            for member in
                members.iter().filter(|one| !not.iter().any(|name| *name == *one.attributes.name))
            {
                for lost in &mut lost {
                    lost.has_come(&member.attributes.name);
                }
            }
        }
        for lost in lost.into_iter().filter(|lost| lost.count > 0) {
            let error = match &lost.names {
                Some(names) => lost.error.with_files(path, names.iter().map(|name| &name[..])),
                None => lost.error,
            };
            self.shared.left_out(lost.count, error);
        }
    }

    fn open(&self, path: &ArchivePath, is_new: bool) -> Option<FetchDirectory<'a>> {
        let target = &self.shared.target;
        let open = target.directory(&self.shared.below(path));
        match open.and_then(|open| Ok((hands_acl_down(&open)?, open))) {
            Ok((is_inherited, open)) => {
                let part = target.maker.name(self.number);
                let overwrite = self.shared.options.overwrite;
                let (shared, path) = (self.shared, path.clone());
                Some(FetchDirectory {
                    shared,
                    path,
                    open,
                    part,
                    overwrite,
                    is_new,
                    is_inherited,
                    is_written: false,
                })
            }
            Err(errno) => {
                self.shared.failed(path, "cannot be opened", errno);
                None
            }
        }
    }

    /// What came of a file.
    fn came(&self, path: &ArchivePath, bytes: u64, put: Result<PutFile, ArchiveError>) {
        let counters = &self.shared.counters;
        match put {
            Ok(PutFile::Written) => {
                counters.fetched.fetch_add(1, Ordering::Relaxed);
                counters.fetched_bytes.fetch_add(bytes, Ordering::Relaxed);
            }
            Ok(PutFile::Same) => drop(counters.unchanged.fetch_add(1, Ordering::Relaxed)),
            Ok(PutFile::Newer) => {
                counters.newer.fetch_add(1, Ordering::Relaxed);
                if !self.shared.is_again() {
                    let why = "what is there is newer";
                    (self.shared.told)(ArchiveEvent::Skipped { path: self.shared.path(path), why });
                }
            }
            Err(error) => self.shared.left_out(1, error),
        }
    }

    fn unwritten(&self, path: &ArchivePath, errno: Errno) -> ArchiveError {
        let path = self.shared.path(path);
        ArchiveError::File { path, doing: "cannot be written", errno }
    }

    /// Fetches members of a pack, in their order.
    fn members(
        &mut self,
        to: &mut FetchDirectory<'_>,
        directory: &ArchivePath,
        pack: &ArchivedPack,
        members: &[PackedMember],
    ) -> Option<UnreadMembers> {
        let ends = members.iter().map(|member| member.content_at() + member.stored_bytes());
        let end = ends.max().unwrap_or(0);
        let mut from = PackReader::new(self.shared.store, pack).up_to(end);
        // Of each file with several names here, the first that is there.
        let links = members.iter().filter_map(|member| member.file_block);
        let mut files: HashMap<u64, Option<&[u8]>> =
            links.map(|block| (block.into(), None)).collect();
        let mut lost: Option<(ArchiveError, Vec<Vec<u8>>)> = None;
        for member in members {
            if self.excludes(directory, &member.attributes.name) {
                continue;
            }
            if self.shared.is_stopped() {
                break;
            }
            let (name, mut file) =
                (&member.attributes.name, files.get_mut(&member.content_block()));
            let path = directory.join(name);
            let put = match &file {
                Some(Some(old)) => self.other_name(to, &path, old, name),
                _ => again(to, |to| self.member(to, &path, &mut from, member)),
            };
            // What is newer there is another file: no name becomes a link to it.
            if let Some(file) = &mut file
                && matches!(put, Ok(PutFile::Written | PutFile::Same))
            {
                file.get_or_insert(name);
            }
            match put {
                // What is wrong with the pack is told once.
                Err(error @ (ArchiveError::Store(_) | ArchiveError::Pack { .. })) => {
                    lost.get_or_insert((error, Vec::new())).1.push(name.to_vec());
                }
                put => self.came(&path, member.size, put),
            }
        }
        let (error, names) = lost?;
        Some(UnreadMembers { error, count: names.len() as u64, names: Some(names) })
    }

    /// Puts another name of a file of this directory there.
    fn other_name(
        &self,
        to: &mut FetchDirectory<'_>,
        path: &ArchivePath,
        old: &[u8],
        name: &[u8],
    ) -> Result<PutFile, ArchiveError> {
        let open = to.open.try_clone().map_err(|error| Errno::from_io(&error));
        let put = open.and_then(|open| to.put_link(&open, old, name));
        put.map_err(|errno| self.unwritten(path, errno))
    }

    fn member(
        &mut self,
        to: &mut FetchDirectory<'_>,
        path: &ArchivePath,
        from: &mut PackReader<'_>,
        member: &PackedMember,
    ) -> Result<PutFile, ArchiveError> {
        let is = &member.attributes;
        let failed = |worker: &Self, errno| worker.unwritten(path, errno);
        if let Some(put) =
            to.standing(FileIs::member(member)).map_err(|errno| failed(self, errno))?
        {
            return Ok(put);
        }
        match &is.kind {
            // A hard link comes here where its first name was not fetched: it gets the content
            // itself.
            MemberKind::File | MemberKind::HardLink { .. } => {
                if member.stored_bytes() > READ_BYTES as u64 {
                    return self.long_member(to, path, from, member);
                }
                let bytes = usize::try_from(member.stored_bytes());
                self.room.resize(bytes.map_err(|_| failed(self, Errno::FBIG))?, 0);
                from.read(member.content_at(), &mut self.room)?;
                self.shared.moved.moved(self.room.len() as u64);
                // Before the file is made: other content than was stored never receives a name.
                if blake3::hash(&self.room) != member.digest {
                    return Err(ArchiveError::Content { path: path.clone() });
                }
                let fill = |file: &File| write_member(file, member, &self.room);
                to.put_file(is, fill).map_err(|errno| failed(self, errno))?;
                Ok(PutFile::Written)
            }
            _ => {
                to.put_special(is).map_err(|errno| failed(self, errno))?;
                Ok(PutFile::Written)
            }
        }
    }

    /// Fetches a member piece by piece. Its file has no name before the content was compared.
    fn long_member(
        &mut self,
        to: &mut FetchDirectory<'_>,
        path: &ArchivePath,
        from: &mut PackReader<'_>,
        member: &PackedMember,
    ) -> Result<PutFile, ArchiveError> {
        let content = FetchedContent {
            extents: member.stored_extents(),
            size: member.size,
            digest: member.digest,
        };
        let (shared, room) = (self.shared, &mut self.room);
        let fill =
            |file: &File| content.fill(shared, room, (file, 0), (from, member.content_at()), path);
        match to.put_file(&member.attributes, fill) {
            Ok(()) => Ok(PutFile::Written),
            Err(Unfetched::File(errno)) => Err(self.unwritten(path, errno)),
            Err(Unfetched::Archive(error)) => Err(error),
        }
    }

    /// Fetches a file that is in no pack.
    fn object(
        &mut self,
        to: &mut FetchDirectory<'_>,
        directory: &ArchivePath,
        object: &ArchivedObject,
    ) {
        let path = directory.join(&object.attributes.name);
        let put = match object.link {
            Some(link) => self.link(to, directory, object, link, &path),
            None => again(to, |to| self.content(to, object, &path)),
        };
        self.came(&path, object.size, put);
    }

    /// Fetches a name of a file that has several: the first with its content, the others as links.
    fn link(
        &mut self,
        to: &mut FetchDirectory<'_>,
        directory: &ArchivePath,
        object: &ArchivedObject,
        link: PackId,
        path: &ArchivePath,
    ) -> Result<PutFile, ArchiveError> {
        // The lock of one file is held while its content comes: its other names wait, other files
        // do not.
        let known = lock(&self.shared.links.fetched).entry(link).or_default().clone();
        let mut known = lock(&known);
        let name = &object.attributes.name;
        if let Some((above, old)) = &*known {
            let from = self.shared.target.directory(&self.shared.below(above));
            let put = from.and_then(|from| to.put_link(&from, old, name));
            return put.map_err(|errno| self.unwritten(path, errno));
        }
        let put = again(to, |to| self.content(to, object, path))?;
        if !matches!(put, PutFile::Newer) {
            *known = Some((directory.clone(), name.clone()));
        }
        Ok(put)
    }

    fn content(
        &mut self,
        to: &mut FetchDirectory<'_>,
        object: &ArchivedObject,
        path: &ArchivePath,
    ) -> Result<PutFile, ArchiveError> {
        let is = &object.attributes;
        let failed = |errno| self.unwritten(path, errno);
        if let Some(put) = to.standing(FileIs::object(object)).map_err(failed)? {
            return Ok(put);
        }
        if is.kind != MemberKind::File {
            to.put_special(is).map_err(failed)?;
            return Ok(PutFile::Written);
        }
        let (shared, room) = (self.shared, &mut self.room);
        let put = if object.stored_bytes() >= RESUMED_BYTES_MIN {
            let name = resumed_name(&object.digest, object.size);
            to.put_resumed(is, name, |file, there| fill(shared, room, (file, there), object, path))
        } else {
            to.put_file(is, |file| fill(shared, room, (file, 0), object, path))
        };
        match put {
            Ok(()) => Ok(PutFile::Written),
            Err(Unfetched::File(errno)) => Err(self.unwritten(path, errno)),
            Err(Unfetched::Archive(error)) => {
                // What is damaged in the store is of no use to the next one.
                if matches!(error, ArchiveError::Content { .. }) {
                    to.drop_part(&resumed_name(&object.digest, object.size));
                }
                Err(error)
            }
        }
    }
}

/// Does what failed only because a directory was new, and is so no longer, once more.
fn again<'a>(
    to: &mut FetchDirectory<'a>,
    mut put: impl FnMut(&mut FetchDirectory<'a>) -> Result<PutFile, ArchiveError>,
) -> Result<PutFile, ArchiveError> {
    let was_new = to.is_new;
    let came = put(to);
    if came.is_err() && was_new && !to.is_new { put(to) } else { came }
}

/// Writes the content of a member into a file, with its holes.
fn write_member(file: &File, member: &PackedMember, mut content: &[u8]) -> Result<(), Errno> {
    let failed = |error: std::io::Error| Errno::from_io(&error);
    for extent in member.stored_extents() {
        let (piece, rest) = content.split_at((extent.end - extent.start) as usize);
        file.write_all_at(piece, extent.start).map_err(failed)?;
        content = rest;
    }
    // A hole at the end is nothing that was written.
    if member.extents.is_some() { file.set_len(member.size).map_err(failed) } else { Ok(()) }
}

/// Writes the content of an object into a file, with its holes, behind the bytes that are there.
fn fill(
    shared: &FetchShared<'_>,
    room: &mut Vec<u8>,
    (file, there): (&File, u64),
    object: &ArchivedObject,
    path: &ArchivePath,
) -> Result<(), Unfetched> {
    let Some(place) = &object.place else {
        let content = FetchedContent { extents: Vec::new(), ..FetchedContent::of(object) };
        return content.end(file, &blake3::Hasher::new(), path);
    };
    let (from, at) = PackReader::of(shared.store, place);
    let mut from = from.up_to(at + object.stored_bytes());
    let content = FetchedContent::of(object);
    let mut filled = content.fill(shared, room, (file, there), (&mut from, at), path);
    // What was there may be another content: a loss of power leaves any bytes.
    if there > 0 && matches!(filled, Err(Unfetched::Archive(ArchiveError::Content { .. }))) {
        file.set_len(0).map_err(|error| Unfetched::File(Errno::from_io(&error)))?;
        filled = content.fill(shared, room, (file, 0), (&mut from, at), path);
    }
    filled.map_err(|error| match error {
        Unfetched::Archive(error) => error.with_file(path).into(),
        error => error,
    })
}

/// A content that comes piece by piece.
struct FetchedContent {
    /// Which bytes of it are stored; the rest are holes.
    extents: Vec<Range<u64>>,
    size: u64,
    digest: [u8; 32],
}

impl FetchedContent {
    fn of(object: &ArchivedObject) -> Self {
        Self { extents: object.stored_extents(), size: object.size, digest: object.digest }
    }

    /// Writes it into a file, of what is stored from a byte on. The bytes that are there of it, up to a
    /// length, are read.
    fn fill(
        &self,
        shared: &FetchShared<'_>,
        room: &mut Vec<u8>,
        (file, there): (&File, u64),
        (from, mut at): (&mut PackReader<'_>, u64),
        path: &ArchivePath,
    ) -> Result<(), Unfetched> {
        let failed = |error| Unfetched::File(Errno::from_io(&error));
        let mut digest = blake3::Hasher::new();
        for extent in &self.extents {
            let mut next = extent.start;
            while next < extent.end {
                let is_there = next < there;
                let end = if is_there { extent.end.min(there) } else { extent.end };
                room.resize((end - next).min(READ_BYTES as u64) as usize, 0);
                if is_there {
                    file.read_exact_at(room, next).map_err(failed)?;
                    shared.moved.read(room.len() as u64);
                } else {
                    from.read(at, room)?;
                    shared.moved.moved(room.len() as u64);
                    file.write_all_at(room, next).map_err(failed)?;
                }
                digest.update(room);
                at += room.len() as u64;
                next += room.len() as u64;
            }
        }
        self.end(file, &digest, path)
    }

    /// All of it was written. The file has no name yet, and gets none with a wrong content.
    fn end(
        &self,
        file: &File,
        digest: &blake3::Hasher,
        path: &ArchivePath,
    ) -> Result<(), Unfetched> {
        if digest.finalize() != self.digest {
            return Err(ArchiveError::Content { path: path.clone() }.into());
        }
        // A hole at the end is nothing that was written.
        file.set_len(self.size).map_err(|error| Unfetched::File(Errno::from_io(&error)))
    }
}

/// Why the content of a file was not written: by the file, or by the archive.
enum Unfetched {
    File(Errno),
    Archive(ArchiveError),
}

impl From<Errno> for Unfetched {
    fn from(errno: Errno) -> Self {
        Self::File(errno)
    }
}

impl From<ArchiveError> for Unfetched {
    fn from(error: ArchiveError) -> Self {
        Self::Archive(error)
    }
}
