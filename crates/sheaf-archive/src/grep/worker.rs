//! Searching packs, objects and files of this machine.
use super::engine::{FileSearched, GrepEngine, PIECE_BYTES, zap};
use super::local::LocalFiles;
use super::{ArchiveGrep, ArchiveGrepOutput};
use crate::archive::{Archive, ArchiveError};
use crate::catalog::{ArchivedObject, ArchivedPack};
use crate::pack::member::{MemberKind, PackedMember};
use crate::path::ArchivePath;
use crate::reader::{open_place, open_tar};
use crate::store::{StoreError, StoreKey};
use sheaf_core::Errno;
use std::ffi::OsStr;
use std::io::Read;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// So much of a pack is read at once, with the member that it ends in.
pub(super) const READ_BYTES: usize = 1 << 20;
/// What is found in one pack or object is kept up to so many bytes. What is beyond is searched when its
/// turn comes to be shown.
pub(super) const KEPT_BYTES_MAX: usize = 16 << 20;
/// The longest line of a large object, with those that are shown before it.
const LINE_BYTES_MAX: usize = 64 << 20;
/// A gap in a pack that is not read through.
const GAP_BYTES: u64 = 1 << 20;

/// Something to search.
#[derive(Clone)]
pub(super) struct GrepTask<'a> {
    /// The path it was named by, counted.
    pub named: usize,
    /// What is shown before paths in an archive.
    pub store: Arc<[u8]>,
    /// The directory, in the archive or below a place of this machine.
    pub directory: Arc<ArchivePath>,
    pub job: GrepJob<'a>,
}

#[derive(Clone)]
pub(super) enum GrepJob<'a> {
    Pack {
        archive: &'a Archive,
        pack: ArchivedPack,
        /// One member alone.
        only: Option<Vec<u8>>,
    },
    Object {
        archive: &'a Archive,
        object: ArchivedObject,
    },
    Files(LocalFiles),
}

impl GrepTask<'_> {
    /// The path of a file of it, as it is shown.
    pub fn shown(&self, name: &[u8]) -> Vec<u8> {
        match &self.job {
            GrepJob::Files(files) => files.place.shown(&self.directory, name),
            _ => shown(&self.store, &self.directory, name),
        }
    }
}

/// What was found in one task, by names in their order.
#[derive(Default)]
pub(super) struct TaskFound {
    pub bytes: Vec<u8>,
    pub files: Vec<TaskFile>,
    /// The pack that it is of was not searched from this name on.
    pub rest: Option<Vec<u8>>,
    pub failed: Vec<ArchiveError>,
    pub selected: bool,
}

pub(super) struct TaskFile {
    pub name: Vec<u8>,
    /// Where what was found in it ends.
    pub end: usize,
    pub is_binary: bool,
    /// It is too much to be kept, and is searched when its turn comes.
    pub is_too_much: bool,
    pub failed: Option<ArchiveError>,
}

pub(super) struct GrepWorker<'a> {
    pub grep: &'a ArchiveGrep,
    pub engine: GrepEngine<'a>,
    pub buffer: Vec<u8>,
    /// Whether enough was found.
    pub stop: &'a AtomicBool,
}

impl<'a> GrepWorker<'a> {
    pub fn new(grep: &'a ArchiveGrep, stop: &'a AtomicBool) -> Self {
        let engine = GrepEngine::new(&grep.options, grep.matcher.clone());
        Self { grep, engine, buffer: Vec::new(), stop }
    }

    /// Searches all of a task, from a name on.
    pub fn task(&mut self, task: &GrepTask<'_>, from: Option<&[u8]>) -> TaskFound {
        let mut found = TaskFound::default();
        let done = match &task.job {
            GrepJob::Pack { archive, pack, only } => {
                let key = &pack.key();
                let found = &mut found;
                let (store, directory) = (&*task.store, &*task.directory);
                let search = PackSearch { archive, store, directory, pack, key, found };
                self.pack(search, only.as_deref(), from)
            }
            GrepJob::Object { archive, object } => {
                self.object(archive, task, object, &mut found);
                Ok(())
            }
            GrepJob::Files(files) => self.files(&task.directory, files, from, &mut found),
        };
        if let Err(error) = done {
            found.failed.push(error);
        }
        found.bytes = std::mem::take(&mut self.engine.out);
        found
    }

    /// Searches one file of a task, and passes on what is found; nothing of it is kept.
    pub fn one(
        &mut self,
        task: &GrepTask<'_>,
        name: &[u8],
        pass: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<FileSearched, ArchiveError> {
        let mut whole = |engine: &mut GrepEngine<'_>| {
            let is_on = pass(&engine.out);
            engine.out.clear();
            is_on
        };
        let path = task.directory.join(name);
        self.engine.begin(&task.shown(name), usize::MAX);
        match &task.job {
            GrepJob::Object { archive, object } => {
                let reader = content(archive, &task.directory, object)?;
                self.stream(&ReadFile::Archived(&path), reader, Some(&mut whole))?;
            }
            GrepJob::Pack { archive, pack, .. } => {
                let index = archive.index(pack)?;
                let missing = || ArchiveError::NotArchived { path: path.clone() };
                let member = index.find(name).ok_or_else(missing)?;
                let reader = member_content(archive, &path, pack, member)?;
                self.stream(&ReadFile::Archived(&path), reader, Some(&mut whole))?;
            }
            GrepJob::Files(files) => self.file(&task.directory, files, name, &mut whole)?,
        }
        let searched = self.engine.end();
        whole(&mut self.engine);
        Ok(searched)
    }

    /// Whether names count of files in which nothing is found.
    pub fn tells_all(&self) -> bool {
        let options = &self.grep.options;
        options.invert
            || matches!(options.output, ArchiveGrepOutput::Count | ArchiveGrepOutput::PathsWithout)
    }

    fn pack(
        &mut self,
        mut search: PackSearch<'_>,
        only: Option<&[u8]>,
        from: Option<&[u8]>,
    ) -> Result<(), ArchiveError> {
        let mut first = 0;
        // Of a pack in which no match can be, not even the index is read.
        if !self.tells_all() && only.is_none() && from.is_none() {
            match self.candidate(&search)? {
                Some(at) => first = at,
                None => return Ok(()),
            }
        }
        let index = search.archive.index(search.pack)?;
        let is_wanted = |member: &PackedMember| {
            let name = &member.attributes.name[..];
            // What ends before the first required text has no match.
            let is_behind = member.content_at() + member.stored_bytes() > first;
            is_behind
                && only.is_none_or(|only| only == name)
                && from.is_none_or(|from| from <= name)
                && matches!(member.attributes.kind, MemberKind::File | MemberKind::HardLink { .. })
                && self.grep.wants(name)
        };
        let wanted: Vec<&PackedMember> = index.members.iter().filter(|of| is_wanted(of)).collect();
        self.members(&mut search, &wanted)
    }

    /// The first place of a pack where a text is that all matches have; its beginning if there is none
    /// such.
    fn candidate(&mut self, search: &PackSearch<'_>) -> Result<Option<u64>, ArchiveError> {
        let Some(required) = self.engine.matcher.required.clone() else { return Ok(Some(0)) };
        // A text is in two pieces at most.
        const OVERLAP: usize = 64;
        let mut object = open_tar(search.archive.store(), search.pack, 0)?;
        let (mut kept, mut before) = (0, 0u64);
        self.buffer.resize(self.buffer.len().max(READ_BYTES / 4 + OVERLAP), 0);
        loop {
            let room = &mut self.buffer[..READ_BYTES / 4 + OVERLAP];
            let read = read_some(&mut *object, &mut room[kept..]);
            let read = read.map_err(|error| unread(search.key, &error))?;
            if read == 0 || self.stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let end = kept + read;
            let span = regex_automata::Span { start: 0, end };
            if let Some(at) = required.find(&room[..end], span) {
                return Ok(Some(before + at.start as u64));
            }
            let keep = end.min(OVERLAP);
            room.copy_within(end - keep..end, 0);
            before += (end - keep) as u64;
            kept = keep;
        }
    }

    /// Searches members, which are read together as far as they lie together.
    fn members(
        &mut self,
        search: &mut PackSearch<'_>,
        wanted: &[&PackedMember],
    ) -> Result<(), ArchiveError> {
        let archive = search.archive;
        let mut open: Option<(Box<dyn Read + Send + '_>, u64)> = None;
        let mut rest = wanted;
        let end_of = |member: &PackedMember| member.content_at() + member.stored_bytes();
        while let Some(first) = rest.first() {
            if is_elsewhere(first) {
                rest = &rest[1..];
                if !self.member(search, first, 0..0) {
                    return Ok(());
                }
                continue;
            }
            let start = first.content_at();
            let mut count = 0;
            let mut end = start;
            for member in rest {
                if is_elsewhere(member) {
                    count += 1;
                    continue;
                }
                let apart = member.content_at().saturating_sub(end);
                let len = end_of(member).saturating_sub(start);
                if count > 0 && (len > READ_BYTES as u64 || apart > GAP_BYTES) {
                    break;
                }
                (count, end) = (count + 1, end.max(end_of(member)));
            }
            let (members, behind) = rest.split_at(count);
            rest = behind;
            let (mut object, mut at) = match open.take() {
                Some((object, at)) if at <= start && start - at <= GAP_BYTES => (object, at),
                _ => (open_tar(archive.store(), search.pack, start)?, start),
            };
            let failed = |error| unread(search.key, &error);
            at += std::io::copy(&mut (&mut object).take(start - at), &mut std::io::sink())
                .map_err(failed)?;
            let len = usize::try_from(end - at).map_err(|_| too_long(search.key))?;
            // Behind it is room for the end of a line.
            self.buffer.resize(self.buffer.len().max(len + 1), 0);
            object.read_exact(&mut self.buffer[..len]).map_err(failed)?;
            open = Some((object, end));
            let piece = start..end;
            if !self.segment(search, members, &piece, len) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Searches members that are in the buffer. Whether it goes on.
    fn segment(
        &mut self,
        search: &mut PackSearch<'_>,
        members: &[&PackedMember],
        piece: &Range<u64>,
        len: usize,
    ) -> bool {
        let required = self.engine.matcher.required.clone();
        let required = required.filter(|_| !self.grep.options.invert);
        // Where the next of them is, and whether there is one.
        let mut next = Some(0);
        let seek = |buffer: &[u8], from: usize| match &required {
            None => Some(from),
            Some(required) => {
                let span = regex_automata::Span { start: from.min(len), end: len };
                required.find(&buffer[..len], span).map(|at| at.start)
            }
        };
        if required.is_some() {
            next = seek(&self.buffer, 0);
        }
        for member in members {
            if self.stop.load(Ordering::Relaxed) {
                return false;
            }
            if is_elsewhere(member) {
                if !self.member(search, member, 0..0) {
                    return false;
                }
                continue;
            }
            let start = (member.content_at() - piece.start) as usize;
            let content = start..start + member.size as usize;
            if required.is_some() && next.is_some_and(|next| next < content.start) {
                next = seek(&self.buffer, content.start);
            }
            let has_none = required.is_some() && next.is_none_or(|next| next >= content.end);
            if has_none {
                if self.tells_all() {
                    self.nothing(search, member);
                }
                continue;
            }
            if !self.member(search, member, content) {
                return false;
            }
        }
        true
    }

    /// Says of a member that nothing is found in it.
    fn nothing(&mut self, search: &mut PackSearch<'_>, member: &PackedMember) {
        let name = &member.attributes.name;
        self.engine.nothing_in(&search.shown(name));
        search.push(name, self.engine.out.len(), FileSearched::default(), None);
    }

    /// Searches one member in the buffer. Whether there is room for what is found in more of them.
    fn member(
        &mut self,
        search: &mut PackSearch<'_>,
        member: &PackedMember,
        content: Range<usize>,
    ) -> bool {
        let (name, before) = (&member.attributes.name, self.engine.out.len());
        let done = if is_elsewhere(member) {
            self.elsewhere(search, member)
        } else {
            let is_whole = *blake3::hash(&self.buffer[content.clone()]).as_bytes() == member.digest;
            self.engine.begin(&search.shown(name), KEPT_BYTES_MAX);
            if is_whole {
                self.engine.whole(&mut self.buffer, content);
                Ok(())
            } else {
                Err(ArchiveError::Content { path: search.directory.join(name) })
            }
        };
        self.searched(search.found, name, before, done)
    }

    /// A file of a task was searched, or could not be; what was found in those before it ends there.
    /// Whether there is room for what is found in more of them.
    pub fn searched(
        &mut self,
        found: &mut TaskFound,
        name: &[u8],
        before: usize,
        done: Result<(), ArchiveError>,
    ) -> bool {
        if let Err(error) = done {
            // What was found in a damaged file may be wrong: nothing of it is shown.
            self.engine.out.truncate(before);
            found.push(name, before, FileSearched::default(), Some(error));
            return true;
        }
        let searched = self.engine.end();
        if searched.is_too_much {
            self.engine.out.truncate(before);
            // Others have used the room: it is searched once more, as the first one of the rest.
            if before > 0 || !found.files.is_empty() {
                found.rest = Some(name.to_vec());
                return false;
            }
        }
        found.push(name, self.engine.out.len(), searched, None);
        if searched.lines > 0 && self.grep.options.output == ArchiveGrepOutput::Quiet {
            self.stop.store(true, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Searches another name of a member, or one that is not in the pack byte by byte.
    fn elsewhere(
        &mut self,
        search: &PackSearch<'_>,
        member: &PackedMember,
    ) -> Result<(), ArchiveError> {
        let name = &member.attributes.name;
        let path = search.directory.join(name);
        self.engine.begin(&search.shown(name), KEPT_BYTES_MAX);
        let reader = member_content(search.archive, &path, search.pack, member)?;
        // Members that come next are still in the buffer.
        let buffer = std::mem::take(&mut self.buffer);
        let done = self.stream(&ReadFile::Archived(&path), reader, None);
        self.buffer = buffer;
        done
    }

    fn object(
        &mut self,
        archive: &Archive,
        task: &GrepTask<'_>,
        object: &ArchivedObject,
        found: &mut TaskFound,
    ) {
        let name = &object.attributes.name;
        self.engine.begin(&task.shown(name), KEPT_BYTES_MAX);
        let path = task.directory.join(name);
        let done = content(archive, &task.directory, object)
            .and_then(|reader| self.stream(&ReadFile::Archived(&path), reader, None));
        self.searched(found, name, 0, done);
    }

    /// Searches what is read, piece by piece.
    pub fn stream(
        &mut self,
        file: &ReadFile<'_>,
        mut reader: impl Read,
        mut pass: Option<&mut dyn FnMut(&mut GrepEngine<'_>) -> bool>,
    ) -> Result<(), ArchiveError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        // Lines that may be shown, and then what was not searched.
        let (mut old, mut len) = (0, 0);
        let mut is_on = true;
        let mut done = Ok(());
        while is_on && !self.stop.load(Ordering::Relaxed) {
            if len + PIECE_BYTES + 1 > buffer.len() {
                buffer.resize((len + PIECE_BYTES + 1).max(buffer.len() * 2), 0);
            }
            if len > LINE_BYTES_MAX {
                done = Err(file.has_long_line());
                break;
            }
            let read = match read_some(&mut reader, &mut buffer[len..len + PIECE_BYTES]) {
                Ok(read) => read,
                Err(error) => {
                    done = Err(file.failed(&error));
                    break;
                }
            };
            let is_binary = self.grep.options.binary != super::GrepBinary::Text;
            if is_binary && memchr::memchr(0, &buffer[len..len + read]).is_some() {
                is_on = self.engine.found_nul();
            }
            if is_on && self.engine.has_nul() {
                // What was read before, and is not searched yet, has none.
                zap(&mut buffer[len..len + read]);
            }
            if read == 0 && len > old && is_on {
                buffer[len] = b'\n';
                self.engine.piece(&buffer[..len + 1], old);
            }
            if read == 0 || !is_on {
                break;
            }
            let has_lines = memchr::memrchr(b'\n', &buffer[len..len + read]);
            let end = has_lines.map(|at| len + at + 1);
            len += read;
            if let Some(end) = end {
                is_on = self.engine.piece(&buffer[..end], old);
                let from = self.engine.keep(&buffer[..end]);
                buffer.copy_within(from..len, 0);
                (old, len) = (end - from, len - from);
            }
            if let Some(pass) = pass.as_deref_mut() {
                is_on &= pass(&mut self.engine);
            }
        }
        self.buffer = buffer;
        done
    }
}

/// What is in a member, holes and all.
fn member_content<'a>(
    archive: &'a Archive,
    path: &ArchivePath,
    pack: &ArchivedPack,
    member: &PackedMember,
) -> Result<WithHoles<'a>, ArchiveError> {
    let stored = open_tar(archive.store(), pack, member.content_at())?;
    Ok(WithHoles {
        path: path.clone(),
        stored,
        extents: member.stored_extents(),
        at: 0,
        size: member.size,
        hash: blake3::Hasher::new(),
        digest: member.digest,
    })
}

/// What is in an object, holes and all.
fn content<'a>(
    archive: &'a Archive,
    directory: &ArchivePath,
    object: &ArchivedObject,
) -> Result<Box<dyn Read + Send + 'a>, ArchiveError> {
    let Some(place) = &object.place else {
        return Ok(Box::new(std::io::repeat(0).take(object.size)));
    };
    let stored = open_place(archive.store(), place)?;
    Ok(Box::new(WithHoles {
        path: directory.join(&object.attributes.name),
        stored,
        extents: object.stored_extents(),
        at: 0,
        size: object.size,
        hash: blake3::Hasher::new(),
        digest: object.digest,
    }))
}

/// What is read, for words on what is wrong with it.
pub(super) enum ReadFile<'a> {
    /// A file of the archive.
    Archived(&'a ArchivePath),
    /// One of this machine.
    Local(Vec<u8>),
}

impl ReadFile<'_> {
    fn path(&self) -> PathBuf {
        match self {
            Self::Archived(path) => path.as_relative(),
            Self::Local(path) => PathBuf::from(OsStr::from_bytes(path)),
        }
    }

    pub fn failed(&self, error: &std::io::Error) -> ArchiveError {
        let doing = match self {
            Self::Archived(path) if error.get_ref().is_some() => {
                return ArchiveError::Content { path: (*path).clone() };
            }
            Self::Archived(_) => "cannot be read in the store",
            Self::Local(_) => "cannot be read",
        };
        ArchiveError::File { path: self.path(), doing, errno: Errno::from_io(error) }
    }

    fn has_long_line(&self) -> ArchiveError {
        let doing = "a line of it is longer than the 64 MiB that are searched at once";
        ArchiveError::File { path: self.path(), doing, errno: Errno::MSGSIZE }
    }
}

/// A pack, and what is found in it.
struct PackSearch<'a> {
    archive: &'a Archive,
    store: &'a [u8],
    directory: &'a ArchivePath,
    pack: &'a ArchivedPack,
    key: &'a StoreKey,
    found: &'a mut TaskFound,
}

impl PackSearch<'_> {
    fn shown(&self, name: &[u8]) -> Vec<u8> {
        shown(self.store, self.directory, name)
    }

    fn push(
        &mut self,
        name: &[u8],
        end: usize,
        searched: FileSearched,
        failed: Option<ArchiveError>,
    ) {
        self.found.push(name, end, searched, failed);
    }
}

impl TaskFound {
    pub fn push(
        &mut self,
        name: &[u8],
        end: usize,
        searched: FileSearched,
        failed: Option<ArchiveError>,
    ) {
        self.selected |= searched.lines > 0;
        let before = self.files.last().map_or(0, |file| file.end);
        let FileSearched { is_binary, is_too_much, .. } = searched;
        if end > before || is_binary || is_too_much || failed.is_some() {
            self.files.push(TaskFile {
                name: name.to_owned(),
                end,
                is_binary,
                is_too_much,
                failed,
            });
        }
    }
}

/// A file's path, as it is shown.
fn shown(store: &[u8], directory: &ArchivePath, name: &[u8]) -> Vec<u8> {
    let mut shown = store.to_vec();
    directory.put(&mut shown);
    if shown.last() != Some(&b'/') {
        shown.push(b'/');
    }
    shown.extend_from_slice(name);
    shown
}

/// Whether a member's content is that of an earlier one, or has holes.
fn is_elsewhere(member: &PackedMember) -> bool {
    member.file_block.is_some() || member.extents.is_some()
}

/// As much as there is room for, or all that is left.
pub(super) fn read_some(from: &mut (impl Read + ?Sized), to: &mut [u8]) -> std::io::Result<usize> {
    let mut len = 0;
    while len < to.len() {
        match from.read(&mut to[len..]) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

fn unread(key: &StoreKey, error: &std::io::Error) -> ArchiveError {
    if let Some(said) = error.get_ref().and_then(|inner| inner.downcast_ref()) {
        return StoreError::clone(said).into();
    }
    let errno = match error.kind() {
        std::io::ErrorKind::UnexpectedEof => Errno::NODATA,
        _ => Errno::from_io(error),
    };
    StoreError { place: key.to_string(), doing: "cannot be read", errno }.into()
}

fn too_long(key: &StoreKey) -> ArchiveError {
    StoreError { place: key.to_string(), doing: "cannot be read", errno: Errno::FBIG }.into()
}

/// Stored bytes with zeros where holes were, compared with their digest at their end.
struct WithHoles<'a> {
    path: ArchivePath,
    stored: Box<dyn Read + Send + 'a>,
    /// What is stored and not read yet, the first of it in part.
    extents: Vec<Range<u64>>,
    at: u64,
    size: u64,
    hash: blake3::Hasher,
    digest: [u8; 32],
}

impl Read for WithHoles<'_> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        if self.at == self.size || to.is_empty() {
            return Ok(0);
        }
        self.extents.retain(|extent| extent.end > self.at);
        let next = self.extents.first().map_or(self.size..self.size, Clone::clone);
        let room = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX).min(to.len());
        let read = if self.at < next.start {
            let zeros = room(next.start - self.at);
            to[..zeros].fill(0);
            zeros
        } else {
            let want = room(next.end - self.at);
            let read = self.stored.read(&mut to[..want])?;
            if read == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            self.hash.update(&to[..read]);
            read
        };
        self.at += read as u64;
        if self.at == self.size && *self.hash.finalize().as_bytes() != self.digest {
            return Err(std::io::Error::other(format!("{}: is damaged", self.path)));
        }
        Ok(read)
    }
}
