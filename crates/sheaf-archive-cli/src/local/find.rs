//! Files of this machine that pass tests.
use super::list::local_record;
use super::{ToldFiles, TreePrinter};
use anyhow::Result;
use sheaf_archive::{
    FileFacts, FindAsks, FindExpression, FindFile, FindOutcome, FindPlace, FindPrint,
    OpenDirectories, TreeStep, TreeVisitor, TreeWalkOptions, VisitWalk, VisitedFile,
    WalkedDirectory, is_empty_in, remove_in, status_in,
};
use sheaf_cli::output::{self, Output, printable};
use sheaf_core::Errno;
use sheaf_core::files::{FileKind, Metadata};
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Finds files of this machine.
pub struct LocalFind {
    expression: Arc<FindExpression>,
    output: Output,
    /// The host that the files are on, if it is told.
    host: Option<String>,
    /// The same with a colon, as it stands before names.
    before: Vec<u8>,
    /// Where it begins, as it is told.
    start: Vec<u8>,
    /// The file system where it begins.
    device: OnceLock<u64>,
    /// The last file has been found, and none is removed any more.
    has_quit: AtomicBool,
}

/// What was found of some files of a directory.
#[derive(Default)]
pub struct FoundFiles {
    told: ToldFiles,
    /// Room for what comes of a file.
    room: FindOutcome,
    /// The last one is among them.
    quits: bool,
    /// The directory that is entered behind them, and told when it is left.
    later: Option<LaterDirectory>,
}

/// A directory that is told when it is left.
struct LaterDirectory {
    name: OsString,
    found: Option<Result<Metadata, Errno>>,
}

impl TreeVisitor for LocalFind {
    type Piece = FoundFiles;

    fn facts(&self) -> FileFacts {
        if self.output.json { FileFacts::Status } else { self.expression.facts() }
    }

    fn visit(&self, piece: &mut FoundFiles, file: &VisitedFile<'_>) -> bool {
        if piece.quits || self.has_quit() {
            return false;
        }
        let is_directory = file.kind == FileKind::Directory;
        let is_entered = is_directory
            && file.depth < self.expression.depth_max()
            && (!self.expression.one_file_system() || self.is_on_device(file));
        if is_entered && self.expression.contents_first() && !matches!(file.found, Some(Err(_))) {
            let (name, found) = (file.name.to_owned(), file.found.cloned());
            piece.later = Some(LaterDirectory { name, found });
            return true;
        }
        self.tell(piece, file);
        is_entered && !piece.room.is_pruned
    }

    fn failed(&self, piece: &mut FoundFiles, directory: &WalkedDirectory, errno: Errno) {
        if !self.has_quit() {
            piece.told.failed_directory(directory, errno);
        }
    }

    fn bytes(&self, piece: &FoundFiles) -> usize {
        let room =
            piece.room.text.capacity() + piece.room.prints.capacity() * size_of::<FindPrint>();
        let later = piece.later.as_ref().map_or(0, |later| later.name.len());
        piece.told.bytes() + room + later
    }
}

impl LocalFind {
    /// `host` is told before each name, and `start` is the path that all begin with.
    pub fn new(
        expression: Arc<FindExpression>,
        output: Output,
        host: Option<String>,
        start: &[u8],
    ) -> Self {
        let before = host.as_ref().map_or_else(Vec::new, |host| format!("{host}:").into_bytes());
        let (device, has_quit) = (OnceLock::new(), AtomicBool::new(false));
        Self { expression, output, host, before, start: start.to_vec(), device, has_quit }
    }

    /// Finds, and has what is found told to `each`, which says whether to go on. Says whether the last
    /// file was found.
    ///
    /// # Errors
    /// Those of `each`.
    pub fn walk<E>(
        self,
        start: &Path,
        each: &mut dyn FnMut(ToldFiles) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let (expression, told) = (self.expression.clone(), self.start.clone());
        let mut options = TreeWalkOptions::default();
        if expression.deletes() && expression.quits() {
            // One after the other: what is behind the last one is not removed.
            options.workers = 0;
        }
        let mut walk = VisitWalk::told("find", start, &told, self, options);
        let (mut later, mut within) = (None, DirectoriesWithin::new(&expression));
        while let Some(step) = walk.next() {
            let mut piece = match step {
                TreeStep::Piece(piece) => piece,
                TreeStep::Enter(_) => {
                    within.enter(later.take());
                    continue;
                }
                TreeStep::Leave(directory) => within.leave(&directory, walk.visitor()),
            };
            later = piece.later.take();
            if piece.told.is_empty() && !piece.quits {
                continue;
            }
            if !each(piece.told)? || piece.quits {
                return Ok(piece.quits);
            }
        }
        Ok(false)
    }

    fn has_quit(&self) -> bool {
        self.expression.deletes() && self.has_quit.load(Ordering::Relaxed)
    }

    /// Whether a directory is on the file system where the search begins. One of which that cannot be
    /// said is, and cannot be opened.
    fn is_on_device(&self, file: &VisitedFile<'_>) -> bool {
        let device = match file.found {
            Some(found) => found.as_ref().map(|found| found.dev).map_err(|errno| *errno),
            None => status_in(file.directory, file.name).map(|found| found.dev),
        };
        device.is_ok_and(|device| *self.device.get_or_init(|| device) == device) || device.is_err()
    }

    /// Tests a file and puts what is to be told.
    fn tell(&self, piece: &mut FoundFiles, file: &VisitedFile<'_>) {
        let FoundFiles { told, room, quits, .. } = piece;
        let before = told.text.len();
        if !self.output.json {
            told.text.extend_from_slice(&self.before);
        }
        let from = told.text.len();
        file.put_path(&mut told.text);
        room.clear();
        let mut asks = LocalAsks { file, not_removed: None };
        let mut tested = self.test(&told.text[from..], &mut asks, room);
        *quits = room.quits;
        if room.quits {
            self.has_quit.store(true, Ordering::Relaxed);
        }
        let is_plain = !self.output.json && !self.output.stdout_is_terminal;
        let has_failed = tested.is_err() || asks.not_removed.is_some();
        match &room.prints[..] {
            [FindPrint::Path(end)] if is_plain && !has_failed => told.text.push(*end),
            [] if !has_failed => told.text.truncate(before),
            _ => {
                let name = told.text.split_off(before);
                let path = &name[from - before..];
                for print in room.each() {
                    match print {
                        Ok(end) => tested = tested.and(self.put(&mut told.text, path, end, file)),
                        Err(text) => told.text.extend_from_slice(text),
                    }
                }
                if let Err(errno) = tested {
                    told.failed(path, errno);
                }
                if let Some(errno) = asks.not_removed {
                    let path = String::from_utf8_lossy(path);
                    told.errors.push(format!("{path}: cannot be removed: {errno}"));
                }
            }
        }
    }

    fn test(
        &self,
        path: &[u8],
        asks: &mut LocalAsks<'_>,
        outcome: &mut FindOutcome,
    ) -> Result<(), Errno> {
        let file = asks.file;
        let status = match file.found {
            Some(Ok(found)) => Some(found),
            Some(Err(errno)) if self.facts() == FileFacts::Status || file.depth == 0 => {
                return Err(*errno);
            }
            _ => None,
        };
        let (before, start) = (&self.before[..], &self.start[..]);
        let place = FindPlace { before, start, path, depth: file.depth };
        let found = FindFile::local(place, file.kind, status);
        self.expression.test(&found, asks, outcome)
    }

    /// Prints a file.
    fn put(
        &self,
        text: &mut Vec<u8>,
        path: &[u8],
        end: u8,
        file: &VisitedFile<'_>,
    ) -> Result<(), Errno> {
        if self.output.json {
            let mut record = local_record(path, file)?;
            record.host = self.host.clone();
            let written = self.output.records.write(text, &record);
            return written.map_err(|error| Errno::from_io(&error));
        }
        text.extend_from_slice(&self.before);
        if self.output.stdout_is_terminal && end == b'\n' {
            let shown = printable(&String::from_utf8_lossy(path));
            text.extend_from_slice(shown.as_bytes());
        } else {
            text.extend_from_slice(path);
        }
        text.push(end);
        Ok(())
    }
}

/// The directories that a search is in, which are told behind what is in them.
struct DirectoriesWithin {
    contents_first: bool,
    /// Something is asked of them by their descriptors.
    asks: bool,
    open: OpenDirectories,
    later: Vec<Option<LaterDirectory>>,
}

impl DirectoriesWithin {
    fn new(expression: &FindExpression) -> Self {
        let contents_first = expression.contents_first();
        let asks = contents_first && expression.asks_of_directories();
        Self { contents_first, asks, open: OpenDirectories::default(), later: Vec::new() }
    }

    fn enter(&mut self, later: Option<LaterDirectory>) {
        if self.asks
            && let Some(later) = &later
        {
            self.open.enter(&later.name);
        }
        if self.contents_first {
            self.later.push(later);
        }
    }

    /// What is told of a directory when it is left.
    fn leave(&mut self, directory: &WalkedDirectory, find: &LocalFind) -> FoundFiles {
        let mut piece = FoundFiles::default();
        let Some(later) = self.later.pop().flatten() else { return piece };
        if self.asks {
            self.open.leave();
        }
        if find.has_quit() {
            return piece;
        }
        match self.open.last() {
            Ok(above) => {
                let file = VisitedFile {
                    above: b"",
                    name: &later.name,
                    told: directory.path(),
                    depth: directory.depth(),
                    kind: FileKind::Directory,
                    found: later.found.as_ref(),
                    directory: above,
                };
                find.tell(&mut piece, &file);
            }
            Err(errno) => piece.told.failed_directory(directory, errno),
        }
        piece
    }
}

/// What is asked of a file in its directory.
struct LocalAsks<'a> {
    file: &'a VisitedFile<'a>,
    /// Why it is still there.
    not_removed: Option<Errno>,
}

impl FindAsks<Errno> for LocalAsks<'_> {
    fn is_empty(&mut self) -> Result<bool, Errno> {
        is_empty_in(self.file.directory, self.file.name)
    }

    fn link(&mut self) -> Result<Vec<u8>, Errno> {
        let link = rustix::fs::readlinkat(self.file.directory, self.file.name, Vec::new());
        Ok(link.map_err(|errno| Errno(errno.raw_os_error()))?.into_bytes())
    }

    fn target(&mut self) -> char {
        use rustix::io::Errno as System;
        let (flags, wanted) = (rustix::fs::AtFlags::empty(), rustix::fs::StatxFlags::TYPE);
        match rustix::fs::statx(self.file.directory, self.file.name, flags, wanted) {
            Ok(found) => FindFile::letter(Metadata::from(found).kind),
            Err(System::NOENT | System::NOTDIR) => 'N',
            Err(System::LOOP) => 'L',
            Err(_) => '?',
        }
    }

    fn remove(&mut self) -> bool {
        if self.file.name.as_bytes() == b"." {
            // As by GNU find, where one is stays.
            return true;
        }
        let is_directory = self.file.kind == FileKind::Directory;
        let removed = remove_in(self.file.directory, self.file.name, is_directory);
        self.not_removed = self.not_removed.or(removed.err());
        removed.is_ok()
    }
}

/// What has come of a search for files of this machine.
#[derive(Clone, Copy, Debug)]
pub struct LocalFound {
    /// Everything could be looked at.
    pub is_whole: bool,
    /// There is to be nothing more.
    pub has_quit: bool,
}

/// Prints what is found.
pub fn print(find: LocalFind, start: &Path, out: &mut dyn Write) -> Result<LocalFound> {
    let mut printer = TreePrinter::new(out);
    let has_quit = find.walk(start, &mut |told| -> Result<bool> {
        printer.piece(&told)?;
        Ok(!output::is_over())
    })?;
    Ok(LocalFound { is_whole: printer.end()?, has_quit })
}
