//! Searching files of this machine.
use super::order::{IsOver, TaskFinder};
use super::worker::{GrepJob, GrepTask, GrepWorker, READ_BYTES, ReadFile, TaskFound, read_some};
use super::{ArchiveGrepOutput, GrepBinary, fits};
use crate::archive::ArchiveError;
use crate::grep::engine::{FileSearched, GrepEngine, PIECE_BYTES};
use crate::grep::worker::KEPT_BYTES_MAX;
use crate::path::ArchivePath;
use crate::walk::names::{self, open_beneath};
use crate::walk::{
    FileFacts, TreeStep, TreeVisitor, TreeWalkOptions, VisitWalk, VisitedFile, WalkedDirectory,
};
use regex_automata::Span;
use rustix::fs::{CWD, Mode, OFlags, SeekFrom};
use sheaf_core::Errno;
use sheaf_core::files::FileKind;
use sheaf_file::TextPattern;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Files of a task, at most.
const TASK_FILES_MAX: usize = 64;
/// With so many bytes in them a task has no more files.
const TASK_BYTES: u64 = 1 << 20;

/// A directory that others are looked for in.
#[derive(Debug)]
pub(super) struct LocalPlace {
    file: OwnedFd,
    /// What is shown before a path in it.
    before: Vec<u8>,
    /// What the only file of it is shown as, which was named itself, and is followed if it is a link.
    only: Option<Vec<u8>>,
}

impl LocalPlace {
    fn open(path: &Path, before: Vec<u8>, only: Option<Vec<u8>>) -> Result<Arc<Self>, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        Ok(Arc::new(Self { file, before, only }))
    }

    /// The path of a file, as it is shown.
    pub fn shown(&self, directory: &ArchivePath, name: &[u8]) -> Vec<u8> {
        if let Some(only) = &self.only {
            return only.clone();
        }
        let mut shown = self.before.clone();
        for part in directory.parts() {
            shown.extend_from_slice(part);
            shown.push(b'/');
        }
        shown.extend_from_slice(name);
        shown
    }
}

/// Some files of one directory, in the order of their names.
#[derive(Clone, Debug)]
pub(super) struct LocalFiles {
    pub place: Arc<LocalPlace>,
    pub names: Arc<[Box<[u8]>]>,
}

impl<'a> TaskFinder<'a> {
    /// Finds what is to be searched of a file, or of a directory with all that is below it.
    pub fn local(
        &self,
        named: usize,
        path: &Path,
        shown: &[u8],
    ) -> Result<Result<(), IsOver>, ArchiveError> {
        let failed = |errno| unread(shown, errno);
        let found = names::start(path, true).map_err(failed)?;
        let end = shown.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
        let name = shown[..end].rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        if found.is_dir() {
            if fits(&self.grep.exclude_directories, name) {
                return Ok(Ok(()));
            }
            let slash: &[u8] = if shown.ends_with(b"/") { b"" } else { b"/" };
            let place = LocalPlace::open(path, [shown, slash].concat(), None).map_err(failed)?;
            return Ok(self.local_tree(named, path, shown, &place));
        }
        if !self.grep.wants(name) {
            return Ok(Ok(()));
        }
        if self.output_file() == Some(found.id()) {
            return Err(is_output(shown));
        }
        let bytes = path.as_os_str().as_bytes();
        let at = bytes.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let above: &[u8] = if at == 0 { b"." } else { &bytes[..at] };
        let above = Path::new(OsStr::from_bytes(above));
        let place = LocalPlace::open(above, Vec::new(), Some(shown.to_vec())).map_err(failed)?;
        let names = Arc::from([Box::from(&bytes[at..])]);
        let job = GrepJob::Files(LocalFiles { place, names });
        Ok(self.send(GrepTask {
            named,
            store: Arc::default(),
            directory: Arc::new(ArchivePath::ROOT),
            job,
        }))
    }

    fn local_tree(
        &self,
        named: usize,
        start: &Path,
        shown: &[u8],
        place: &Arc<LocalPlace>,
    ) -> Result<(), IsOver> {
        let visitor = GrepVisitor {
            include: self.grep.include.clone(),
            exclude: self.grep.exclude.clone(),
            exclude_directories: self.grep.exclude_directories.clone(),
            output_file: self.output_file(),
        };
        let options = TreeWalkOptions { follows_start: true, ..TreeWalkOptions::default() };
        let top = shown.len();
        let mut within: Vec<Arc<ArchivePath>> = Vec::new();
        for step in VisitWalk::told("grep-walk", start, shown, visitor, options) {
            match step {
                TreeStep::Piece(piece) => {
                    let directory = within.last().cloned().unwrap_or_default();
                    let mut files = piece.files;
                    while !files.is_empty() {
                        let rest = files.split_off(task_files(&files));
                        let names = files.into_iter().map(|(name, _)| name).collect();
                        let job = GrepJob::Files(LocalFiles { place: place.clone(), names });
                        let directory = directory.clone();
                        self.send(GrepTask { named, store: Arc::default(), directory, job })?;
                        files = rest;
                    }
                    for error in piece.errors {
                        self.failed(error)?;
                    }
                }
                TreeStep::Enter(directory) => {
                    let path = ArchivePath::new(&directory.path()[top..]);
                    within.push(Arc::new(path.unwrap_or_default()));
                }
                TreeStep::Leave(_) => drop(within.pop()),
            }
        }
        Ok(())
    }

    /// The file that lines are written to, if any are.
    fn output_file(&self) -> Option<(u64, u64)> {
        let options = &self.grep.options;
        let shows = matches!(options.output, ArchiveGrepOutput::Lines | ArchiveGrepOutput::Parts);
        // With one line at most, what is written is not read again.
        options.output_file.filter(|_| shows && options.lines_max.is_none_or(|lines| lines > 1))
    }
}

/// How many of some files come into one task.
fn task_files(files: &[(Box<[u8]>, u64)]) -> usize {
    let mut bytes = 0u64;
    let behind = files.iter().position(|(_, size)| {
        let is_full = bytes >= TASK_BYTES;
        bytes = bytes.saturating_add(*size);
        is_full
    });
    behind.unwrap_or(files.len()).min(TASK_FILES_MAX)
}

fn unread(path: &[u8], errno: Errno) -> ArchiveError {
    let path = PathBuf::from(OsStr::from_bytes(path));
    ArchiveError::File { path, doing: "cannot be read", errno }
}

fn is_output(path: &[u8]) -> ArchiveError {
    let (path, doing) = (PathBuf::from(OsStr::from_bytes(path)), "is what the lines go to");
    ArchiveError::File { path, doing, errno: Errno::LOOP }
}

/// Finds files of a tree.
struct GrepVisitor {
    include: Vec<TextPattern>,
    exclude: Vec<TextPattern>,
    exclude_directories: Vec<TextPattern>,
    output_file: Option<(u64, u64)>,
}

#[derive(Default)]
struct GrepPiece {
    /// Each name, and the bytes in it.
    files: Vec<(Box<[u8]>, u64)>,
    errors: Vec<ArchiveError>,
}

impl TreeVisitor for GrepVisitor {
    type Piece = GrepPiece;

    fn facts(&self) -> FileFacts {
        FileFacts::Status
    }

    fn visit(&self, piece: &mut GrepPiece, file: &VisitedFile<'_>) -> bool {
        let name = file.name.as_bytes();
        if file.depth == 0 {
            return true;
        }
        if file.kind == FileKind::Directory {
            return !fits(&self.exclude_directories, name);
        }
        let is_wanted = (self.include.is_empty() || fits(&self.include, name))
            && !fits(&self.exclude, name)
            && file.kind == FileKind::File;
        if is_wanted {
            self.file(piece, file);
        }
        false
    }

    fn failed(&self, piece: &mut GrepPiece, directory: &WalkedDirectory, errno: Errno) {
        piece.errors.push(unread(directory.path(), errno));
    }

    fn bytes(&self, piece: &GrepPiece) -> usize {
        let files = piece.files.iter().map(|(name, _)| name.len()).sum::<usize>();
        piece.files.capacity() * size_of::<(Box<[u8]>, u64)>() + files + piece.errors.len() * 256
    }
}

impl GrepVisitor {
    fn file(&self, piece: &mut GrepPiece, file: &VisitedFile<'_>) {
        let path = || {
            let mut path = Vec::new();
            file.put_path(&mut path);
            path
        };
        match file.found {
            Some(Ok(found)) if self.output_file == Some(found.id()) => {
                piece.errors.push(is_output(&path()));
            }
            Some(Err(errno)) => piece.errors.push(unread(&path(), *errno)),
            found => {
                let size = found.map_or(0, |found| found.as_ref().map_or(0, |found| found.size));
                piece.files.push((Box::from(file.name.as_bytes()), size));
            }
        }
    }
}

impl GrepWorker<'_> {
    /// Searches files of a directory, from a name on.
    pub fn files(
        &mut self,
        directory: &ArchivePath,
        files: &LocalFiles,
        from: Option<&[u8]>,
        found: &mut TaskFound,
    ) -> Result<(), ArchiveError> {
        let place = &files.place;
        let open = open_beneath(place.file.as_fd(), directory);
        let open = open.map_err(|errno| unread(&place.shown(directory, b""), errno))?;
        let first = from.and_then(|from| files.names.iter().position(|name| **name == *from));
        for name in &files.names[first.unwrap_or(0)..] {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let before = self.engine.out.len();
            let shown = place.shown(directory, name);
            let done = match open_file(open.as_fd(), name, place.only.is_some()) {
                Ok(None) => continue,
                Ok(Some(file)) => self.whole_or_streamed(file, shown),
                Err(errno) => Err(unread(&shown, errno)),
            };
            let is_room = match done {
                Ok(false) => {
                    found.push(name, self.engine.out.len(), FileSearched::default(), None);
                    true
                }
                done => self.searched(found, name, before, done.map(drop)),
            };
            if !is_room {
                break;
            }
        }
        Ok(())
    }

    /// Searches one file, and passes on what is found.
    pub fn file(
        &mut self,
        directory: &ArchivePath,
        files: &LocalFiles,
        name: &[u8],
        pass: &mut dyn FnMut(&mut GrepEngine<'_>) -> bool,
    ) -> Result<(), ArchiveError> {
        let place = &files.place;
        let shown = place.shown(directory, name);
        let failed = |errno| unread(&shown, errno);
        let open = open_beneath(place.file.as_fd(), directory).map_err(failed)?;
        let file = open_file(open.as_fd(), name, place.only.is_some()).map_err(failed)?;
        let Some(file) = file else { return Ok(()) };
        if !self.is_searched(&file) {
            return Ok(());
        }
        let file = self.without_holes(file);
        self.stream(&ReadFile::Local(shown.clone()), file, Some(pass))
    }

    /// Searches a file, at once if it is small. Says whether it was, or cannot have any line.
    fn whole_or_streamed(&mut self, mut file: File, shown: Vec<u8>) -> Result<bool, ArchiveError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(buffer.len().max(READ_BYTES + 1), 0);
        let read = read_some(&mut file, &mut buffer[..READ_BYTES]);
        let done = match read {
            Err(error) => Err(ReadFile::Local(shown).failed(&error)),
            Ok(READ_BYTES) => {
                self.engine.begin(&shown, KEPT_BYTES_MAX);
                if self.is_searched(&file) {
                    let all = (&buffer[..READ_BYTES]).chain(self.without_holes(file));
                    self.stream(&ReadFile::Local(shown), all, None).map(|()| true)
                } else {
                    Ok(true)
                }
            }
            Ok(read) if !self.may_match(&buffer[..read]) => {
                if self.tells_all() {
                    self.engine.nothing_in(&shown);
                }
                Ok(false)
            }
            Ok(read) => {
                self.engine.begin(&shown, KEPT_BYTES_MAX);
                if read <= PIECE_BYTES || self.is_searched(&file) {
                    self.engine.whole(&mut buffer, 0..read);
                }
                Ok(true)
            }
        };
        self.buffer = buffer;
        done
    }

    fn may_match(&self, content: &[u8]) -> bool {
        if self.grep.options.invert {
            return true;
        }
        let span = Span { start: 0, end: content.len() };
        let required = self.engine.matcher.required.as_ref();
        required.is_none_or(|required| required.find(content, span).is_some())
    }

    /// Whether a file that begins is searched at all: with holes, and longer than what is read first, it
    /// is binary from its beginning on.
    fn is_searched(&mut self, file: &File) -> bool {
        self.grep.options.binary == GrepBinary::Text || !has_holes(file) || self.engine.found_nul()
    }
}

impl GrepWorker<'_> {
    /// A file of which long holes are not read, where nothing in them can be selected: as lines of a
    /// binary file end at a NUL, they are lines with nothing in them.
    fn without_holes(&mut self, file: File) -> WithoutHoles {
        let is_text = self.grep.options.binary == GrepBinary::Text;
        WithoutHoles { file, skips: !is_text && !self.engine.selects_empty_lines() }
    }
}

/// A file to read, with less in it where it has long holes.
struct WithoutHoles {
    file: File,
    skips: bool,
}

impl Read for WithoutHoles {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read(to)?;
        if self.skips && read > 0 && to[..read].iter().all(|&byte| byte == 0) {
            let at = rustix::fs::tell(&self.file);
            let next = at.and_then(|at| rustix::fs::seek(&self.file, SeekFrom::Data(at)));
            match next {
                Ok(_) => {}
                // There is a hole up to the end.
                Err(rustix::io::Errno::NXIO) => {
                    rustix::fs::seek(&self.file, SeekFrom::End(0))?;
                }
                // Nobody knows of holes in it.
                Err(_) => self.skips = false,
            }
        }
        Ok(read)
    }
}

/// Whether a file has a hole behind what is read first. Where that cannot be known it has none.
fn has_holes(file: &File) -> bool {
    let first = PIECE_BYTES as u64;
    let (Ok(at), Ok(found)) = (rustix::fs::tell(file), file.metadata()) else { return false };
    if !found.is_file() || found.len() <= first {
        return false;
    }
    let hole = rustix::fs::seek(file, SeekFrom::Hole(first));
    let back = rustix::fs::seek(file, SeekFrom::Start(at));
    back.is_ok() && hole.is_ok_and(|hole| hole < found.len())
}

/// Opens a file for reading; nothing if another one that is not searched has its name by now.
fn open_file(directory: BorrowedFd<'_>, name: &[u8], follows: bool) -> Result<Option<File>, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
    // A pipe that was named is waited for. Below a directory, it has taken a file's name.
    let flags = if follows { flags } else { flags | OFlags::NOFOLLOW | OFlags::NONBLOCK };
    match rustix::fs::openat(directory, OsStr::from_bytes(name), flags, Mode::empty()) {
        Ok(file) => Ok(Some(file.into())),
        Err(rustix::io::Errno::LOOP | rustix::io::Errno::NXIO) if !follows => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}
