//! What is archived as one tar, which is written as it comes: as `get` would make files, with paths.
use super::exclude::{FetchExclude, FetchNames};
use super::{DIRECTORIES_AT_ONCE, FetchReport, FetchShared, above_of};
use crate::archive::{Archive, ArchiveError, ArchiveEvent, read_index_to_fetch};
use crate::catalog::{ArchivedDirectory, ArchivedObject, ArchivedPack, DirectoryRows};
use crate::content::ContentError;
use crate::pack::BLOCK_BYTES;
use crate::pack::header::{DIRECTORY, HARD_LINK, HeaderContent, HeaderOf, padding_of, push_of};
use crate::pack::index::TAR_END_BYTES;
use crate::pack::member::{MemberAttributes, MemberKind, PackId, PackedMember};
use crate::pack::sparse::in_blocks;
use crate::path::ArchivePath;
use crate::reader::PackReader;
use crate::schedule::{MovedBytes, ScheduleLimits};
use sheaf_core::files::Timestamp;
use std::collections::HashMap;
use std::io::{self, Write};
use std::ops::Range;

/// Bytes of a content that are read and written at once.
const PIECE_BYTES: u64 = 1 << 20;

/// A tar that files and directories of archives are written to, by one reader: its memory is that of an index and
/// a member of a pack, and of the paths of files with several names.
pub struct FetchTar<'a> {
    out: &'a mut dyn Write,
    names: FetchNames,
    told: &'a dyn Fn(ArchiveEvent),
    moved: MovedBytes,
    /// Of each file with several names that are in no pack together, the path that is in the tar.
    links: HashMap<PackId, Vec<u8>>,
    headers: Vec<u8>,
    room: Vec<u8>,
    report: FetchReport,
}

/// What is written now.
struct TarSource<'b> {
    archive: &'b Archive,
    exclude: FetchExclude,
    above: ArchivePath,
}

impl TarSource<'_> {
    /// The path in the tar.
    fn path(&self, path: &ArchivePath) -> Vec<u8> {
        let below = path.within(&self.above).expect("it is below what was asked for");
        below.as_bytes().split_off(1)
    }

    fn excludes(&self, above: &ArchivePath, name: &[u8]) -> bool {
        !self.exclude.is_empty() && self.exclude.fits_file(&above.join(name))
    }
}

impl<'a> FetchTar<'a> {
    /// Of files with these names. What cannot be read is told, counted and left out.
    pub fn new(
        out: &'a mut dyn Write,
        names: FetchNames,
        limits: &ScheduleLimits,
        told: &'a dyn Fn(ArchiveEvent),
    ) -> Self {
        Self {
            out,
            names,
            told,
            moved: MovedBytes::new(limits),
            links: HashMap::new(),
            headers: Vec::new(),
            room: Vec::new(),
            report: FetchReport::default(),
        }
    }

    /// Adds a file, or a directory with all that is in it, or what is in it alone.
    ///
    /// # Errors
    /// When there is nothing of this name, the catalog cannot be read, or the tar cannot be written.
    pub fn add(
        &mut self,
        archive: &Archive,
        from: &ArchivePath,
        contents: bool,
    ) -> Result<(), ContentError> {
        let is_directory = archive.catalog().directory(from).map_err(ArchiveError::from)?.is_some();
        let exclude = FetchExclude::new(self.names.clone(), from.depth());
        let of = TarSource { archive, exclude, above: above_of(from, contents && is_directory) };
        if !is_directory {
            return self.one(&of, from);
        }
        let mut last: Option<ArchivePath> = None;
        loop {
            let next = archive.catalog().below(from, last.as_ref(), DIRECTORIES_AT_ONCE);
            let next = next.map_err(ArchiveError::from)?;
            let Some((behind, _)) = next.last() else { return Ok(()) };
            last = Some(behind.clone());
            FetchShared::recall(archive, next.iter().map(|(path, _)| path))?;
            for (path, is) in next {
                if !of.exclude.fits_directory(&path) {
                    self.directory(&of, &path, &is)?;
                }
            }
        }
    }

    /// Ends the tar; what was done.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(self) -> io::Result<FetchReport> {
        self.out.write_all(&[0; TAR_END_BYTES])?;
        self.out.flush()?;
        Ok(self.report)
    }

    fn failed(&mut self, files: u64, error: ArchiveError) {
        self.report.failed += files;
        (self.told)(ArchiveEvent::Failed(error));
    }

    /// A file that was named.
    fn one(&mut self, of: &TarSource<'_>, from: &ArchivePath) -> Result<(), ContentError> {
        let missing = || ArchiveError::NotArchived { path: from.clone() };
        let (above, name) = from.split().ok_or_else(missing)?;
        let rows = of.archive.catalog().rows_of(&above).map_err(ArchiveError::from)?;
        if let Some(object) = rows.objects.iter().find(|object| *object.attributes.name == *name) {
            return self.object(of, &above, object);
        }
        let may_have = |pack: &&ArchivedPack| (&pack.first[..]..=&pack.last[..]).contains(&name);
        for pack in rows.packs.iter().filter(may_have) {
            let index = read_index_to_fetch(of.archive.store(), pack)?;
            if let Some(member) = index.find(name) {
                return self.members(of, &above, pack, std::slice::from_ref(member));
            }
        }
        Err(missing().into())
    }

    fn directory(
        &mut self,
        of: &TarSource<'_>,
        path: &ArchivePath,
        is: &ArchivedDirectory,
    ) -> Result<(), ContentError> {
        if !of.exclude.is_of_some() {
            self.directory_header(of, path, is)?;
        } else if of.exclude.is_included(path, true) {
            self.uses(of, path)?;
        }
        let rows = match of.archive.catalog().rows_of(path) {
            Ok(rows) => rows,
            Err(error) => {
                self.failed(1, error.into());
                return Ok(());
            }
        };
        let DirectoryRows { packs, objects, .. } = rows;
        for object in &objects {
            if !of.excludes(path, &object.attributes.name)
                && !self.is_twice(of, path, &object.attributes)
            {
                self.uses(of, path)?;
                self.object(of, path, object)?;
            }
        }
        for pack in &packs {
            match read_index_to_fetch(of.archive.store(), pack) {
                Ok(mut index) => {
                    index.members.retain(|PackedMember { attributes, .. }| {
                        !of.excludes(path, &attributes.name) && !self.is_twice(of, path, attributes)
                    });
                    if !index.members.is_empty() {
                        self.uses(of, path)?;
                    }
                    self.members(of, path, pack, &index.members)?;
                }
                Err(error) => {
                    self.failed(u64::from(pack.members), error.of_lost_pack(path, pack));
                }
            }
        }
        Ok(())
    }

    /// Whether a link is a directory, too, which is told: who takes the tar apart could be led elsewhere by it.
    fn is_twice(&mut self, of: &TarSource<'_>, above: &ArchivePath, is: &MemberAttributes) -> bool {
        if !matches!(is.kind, MemberKind::Symlink { .. }) {
            return false;
        }
        let path = above.join(&is.name);
        match of.archive.catalog().directory(&path) {
            Ok(None) => return false,
            Ok(Some(_)) => self.failed(1, ArchiveError::Twice { path }),
            Err(error) => self.failed(1, error.into()),
        }
        true
    }

    /// Something goes into a directory: where only some names are wanted, its header comes now.
    fn uses(&mut self, of: &TarSource<'_>, path: &ArchivePath) -> Result<(), ContentError> {
        if !of.exclude.is_of_some() {
            return Ok(());
        }
        let mut new = Vec::new();
        of.exclude.uses(path, |path| new.push(path.clone()));
        for path in new {
            let is = of.archive.catalog().directory(&path).map_err(ArchiveError::from)?;
            if let Some(is) = is {
                self.directory_header(of, &path, &is)?;
            }
        }
        Ok(())
    }

    fn directory_header(
        &mut self,
        of: &TarSource<'_>,
        path: &ArchivePath,
        is: &ArchivedDirectory,
    ) -> Result<(), ContentError> {
        self.report.directories += 1;
        // What the tar is taken apart in is its user's.
        if *path == of.above {
            return Ok(());
        }
        let mut in_tar = of.path(path);
        in_tar.push(b'/');
        let header = HeaderOf {
            path: &in_tar,
            kind: DIRECTORY,
            device: (0, 0),
            link: None,
            mode: is.mode,
            owner: (is.uid, is.gid),
            mtime: Timestamp { seconds: is.mtime_s, nanoseconds: is.mtime_ns },
            xattrs: &is.xattrs,
        };
        self.headers.clear();
        push_of(&mut self.headers, &header, HeaderContent::default());
        Ok(self.out.write_all(&self.headers)?)
    }

    /// Adds the headers of a file, which is another name of what is in the tar if that is said.
    fn header(
        &mut self,
        path: &[u8],
        is: &MemberAttributes,
        content: HeaderContent<'_>,
        other: Option<&[u8]>,
    ) -> io::Result<()> {
        let mut header = HeaderOf::member(is);
        header.path = path;
        if let Some(other) = other {
            (header.kind, header.link) = (HARD_LINK, Some(other));
        }
        self.headers.clear();
        push_of(&mut self.headers, &header, content);
        self.out.write_all(&self.headers)
    }

    fn came(&mut self, bytes: u64) {
        self.report.fetched += 1;
        self.report.fetched_bytes += bytes;
    }

    /// Adds members of a pack, in their order.
    fn members(
        &mut self,
        of: &TarSource<'_>,
        directory: &ArchivePath,
        pack: &ArchivedPack,
        members: &[PackedMember],
    ) -> Result<(), ContentError> {
        let ends = members.iter().map(|member| member.content_at() + member.stored_bytes());
        let end = ends.max().unwrap_or(0);
        let mut from = PackReader::new(of.archive.store(), pack).up_to(end);
        // Of each file with several names here, the path that is in the tar.
        let links = members.iter().filter_map(|member| member.file_block);
        let mut files: HashMap<u64, Option<Vec<u8>>> =
            links.map(|block| (block.into(), None)).collect();
        let mut lost: Option<(ArchiveError, Vec<Vec<u8>>)> = None;
        for member in members {
            let path = directory.join(&member.attributes.name);
            let in_tar = of.path(&path);
            let file = files.get_mut(&member.content_block());
            if let Some(Some(other)) = &file {
                self.header(&in_tar, &member.attributes, HeaderContent::default(), Some(other))?;
                self.came(member.size);
                continue;
            }
            match self.member(&in_tar, &path, &mut from, member) {
                Ok(()) => {
                    if let Some(file) = file {
                        *file = Some(in_tar);
                    }
                    self.came(member.size);
                }
                // What is wrong with the pack is told once.
                Err(ContentError::Archive(
                    error @ (ArchiveError::Store(_) | ArchiveError::Pack { .. }),
                )) => {
                    let name = member.attributes.name.to_vec();
                    lost.get_or_insert((error, Vec::new())).1.push(name);
                }
                Err(ContentError::Archive(error)) => self.failed(1, error),
                Err(error) => return Err(error),
            }
        }
        if let Some((error, names)) = lost {
            let error = error.with_files(directory, names.iter().map(|name| &name[..]));
            self.failed(names.len() as u64, error);
        }
        Ok(())
    }

    fn member(
        &mut self,
        in_tar: &[u8],
        path: &ArchivePath,
        from: &mut PackReader<'_>,
        member: &PackedMember,
    ) -> Result<(), ContentError> {
        // A hard link comes here where its first name does not: it has the content itself.
        let mut is = member.attributes.clone();
        if matches!(is.kind, MemberKind::HardLink { .. }) {
            is.kind = MemberKind::File;
        }
        let bytes = usize::try_from(member.stored_bytes()).map_err(io::Error::other)?;
        self.room.resize(bytes, 0);
        from.read(member.content_at(), &mut self.room)?;
        self.moved.moved(bytes as u64);
        // Before anything of it is written.
        if is.kind == MemberKind::File && blake3::hash(&self.room) != member.digest {
            return Err(ArchiveError::Content { path: path.clone() }.into());
        }
        let content = HeaderContent { size: member.size, extents: member.extents.as_deref() };
        self.header(in_tar, &is, content, None)?;
        self.out.write_all(&self.room)?;
        Ok(self.pad(bytes as u64)?)
    }

    fn pad(&mut self, bytes: u64) -> io::Result<()> {
        self.out.write_all(&[0; BLOCK_BYTES][..padding_of(bytes)])
    }

    /// Adds what is in no pack.
    fn object(
        &mut self,
        of: &TarSource<'_>,
        directory: &ArchivePath,
        object: &ArchivedObject,
    ) -> Result<(), ContentError> {
        let path = directory.join(&object.attributes.name);
        let in_tar = of.path(&path);
        if let Some(other) = object.link.and_then(|link| self.links.get(&link)).cloned() {
            self.header(&in_tar, &object.attributes, HeaderContent::default(), Some(&other))?;
            self.came(object.size);
            return Ok(());
        }
        if object.attributes.kind != MemberKind::File {
            self.header(&in_tar, &object.attributes, HeaderContent::default(), None)?;
            self.came(0);
        } else if !self.content(of, &in_tar, &path, object)? {
            return Ok(());
        }
        if let Some(link) = object.link {
            self.links.insert(link, in_tar);
        }
        Ok(())
    }

    /// Adds a file with its content; whether it is there.
    fn content(
        &mut self,
        of: &TarSource<'_>,
        in_tar: &[u8],
        path: &ArchivePath,
        object: &ArchivedObject,
    ) -> Result<bool, ContentError> {
        let stored = object.stored_extents();
        // A tar has pieces of whole blocks. What is in others is written with its holes.
        let extents = object.extents.as_deref();
        let extents = extents.filter(|all| in_blocks(all, object.size).as_deref() == Some(all));
        let mut reader = ObjectPieces::new(of.archive, object);
        let mut digest = blake3::Hasher::new();
        let first = stored.first().map_or(0, |extent| (extent.end - extent.start).min(PIECE_BYTES));
        self.room.resize(first as usize, 0);
        // Of one that is not there at all nothing is written.
        if let Err(error) = reader.read(&mut self.room) {
            self.failed(1, error.with_file(path));
            return Ok(false);
        }
        digest.update(&self.room);
        if object.stored_bytes() == first && digest.finalize() != object.digest {
            self.failed(1, ArchiveError::Content { path: path.clone() });
            return Ok(false);
        }
        let content = HeaderContent { size: object.size, extents };
        self.header(in_tar, &object.attributes, content, None)?;
        let (mut at, mut failed) = (0, None);
        let mut is_first = true;
        for extent in &stored {
            if extents.is_none() {
                self.zeroes(at..extent.start)?;
            }
            at = extent.start;
            while at < extent.end {
                if !std::mem::take(&mut is_first) {
                    self.room.resize((extent.end - at).min(PIECE_BYTES) as usize, 0);
                    // Its length was written: the rest of it is zeros, and it is told.
                    match failed {
                        Some(_) => self.room.fill(0),
                        None => {
                            if let Err(error) = reader.read(&mut self.room) {
                                self.room.fill(0);
                                failed = Some(error.with_file(path));
                            }
                        }
                    }
                    digest.update(&self.room);
                }
                self.out.write_all(&self.room)?;
                self.moved.moved(self.room.len() as u64);
                at += self.room.len() as u64;
            }
        }
        if extents.is_none() {
            self.zeroes(at..object.size)?;
        }
        self.pad(if extents.is_none() { object.size } else { object.stored_bytes() })?;
        let is_damaged = failed.is_none() && digest.finalize() != object.digest;
        if let Some(error) =
            failed.or_else(|| is_damaged.then(|| ArchiveError::Content { path: path.clone() }))
        {
            self.report.failed += 1;
            (self.told)(ArchiveEvent::Failed(error));
            let path = path.as_relative();
            (self.told)(ArchiveEvent::Skipped { path, why: "what the tar has of it is wrong" });
        } else {
            self.came(object.size);
        }
        Ok(true)
    }

    /// Writes a hole.
    fn zeroes(&mut self, hole: Range<u64>) -> io::Result<()> {
        let mut left = hole.end.saturating_sub(hole.start);
        let room = vec![0; left.min(PIECE_BYTES) as usize];
        while left > 0 {
            let piece = left.min(PIECE_BYTES);
            self.out.write_all(&room[..piece as usize])?;
            left -= piece;
        }
        Ok(())
    }
}

/// What is stored of an object, one piece behind the other.
struct ObjectPieces<'a> {
    reader: Option<(PackReader<'a>, u64)>,
}

impl<'a> ObjectPieces<'a> {
    fn new(archive: &'a Archive, object: &ArchivedObject) -> Self {
        let reader = object.place.as_ref().map(|place| {
            let (reader, at) = PackReader::of(archive.store(), place);
            (reader.up_to(at + object.stored_bytes()), at)
        });
        Self { reader }
    }

    fn read(&mut self, into: &mut [u8]) -> Result<(), ArchiveError> {
        // A file without content has no place.
        let Some((reader, at)) = &mut self.reader else {
            into.fill(0);
            return Ok(());
        };
        reader.read(*at, into)?;
        *at += into.len() as u64;
        Ok(())
    }
}
