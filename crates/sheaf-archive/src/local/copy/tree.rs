//! Trees walked, and their files given to those who copy them.
use super::attributes::{KeptFile, place};
use super::file::{CopiedName, FileCopied, NameIn, Uncopied};
use super::pool::{CopyPool, PoolShared};
use super::target::{self, CopyPlace, CopyTarget};
use super::{CopyShared, LocalCopyEvent, LocalCopyKeep, LocalCopyReport};
use crate::left::LeftAttributes;
use crate::path::ArchivePath;
use crate::walk::names::{self, open_beneath};
use crate::walk::{
    FileFacts, TreeStep, TreeVisitor, TreeWalkOptions, VisitWalk, VisitedFile, WalkedDirectory,
};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use sheaf_core::Errno;
use sheaf_core::files::{FileKind, Metadata};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files of a job, at most.
const JOB_FILES_MAX: usize = 64;
/// With so many bytes in them a job has no more files.
const JOB_BYTES: u64 = 1 << 20;

pub(super) fn copy_all(shared: &CopyShared<'_>, sources: &[PathBuf], target: &CopyTarget) {
    let (pool, jobs) = PoolShared::new();
    let act = |job: CopyJob, room: &mut Vec<u8>| job.act(shared, room);
    // What each name in the target was made of: a directory, or not.
    let mut made: HashMap<Vec<u8>, bool> = HashMap::new();
    std::thread::scope(|scope| {
        let pool = CopyPool::new(scope, &pool, jobs, &act);
        let mut sources_of = CopySources { shared, pool, last: None };
        for source in sources {
            let Some((found, place)) = begin(shared, source, target) else { continue };
            if let Some(name) = place.name.clone().filter(|_| sources.len() > 1) {
                let before = made.insert(name, found.is_dir());
                if before.is_some_and(|before| !before || !found.is_dir()) {
                    let doing = "was made just now of another source";
                    shared.failed(bytes_of(&place.path), doing, Errno::EXIST);
                    continue;
                }
                // What is in the later one comes behind what is in the other.
                if before.is_some() {
                    sources_of.pool.wait();
                }
            }
            sources_of.copy(source, found, place);
        }
    });
}

/// What a source is and where it goes, if it is copied at all.
fn begin(
    shared: &CopyShared<'_>,
    source: &Path,
    target: &CopyTarget,
) -> Option<(Metadata, CopyPlace)> {
    let options = &shared.options;
    let found = match names::start(source, options.follows_named()) {
        Ok(found) => found,
        Err(errno) => {
            shared.failed(bytes_of(source), "cannot be read", errno);
            return None;
        }
    };
    let is_link = options.no_dereference && found.kind == FileKind::Symlink;
    if !options.recursive && found.kind != FileKind::File && !is_link {
        let (doing, errno) = match found.kind {
            FileKind::Directory => ("is not copied without -r", Errno::ISDIR),
            FileKind::Symlink => ("cannot be read", Errno::NOENT),
            _ => ("is no regular file, and not copied without -r", Errno::INVAL),
        };
        shared.failed(bytes_of(source), doing, errno);
        return None;
    }
    match target.place(source, found.kind) {
        Ok(place) => {
            (shared.told)(LocalCopyEvent::Begin { from: source, to: &place.path });
            Some((found, place))
        }
        Err(errno) => {
            let path = target.shown(source);
            shared.failed(bytes_of(&path), "cannot be written", errno);
            None
        }
    }
}

fn bytes_of(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

/// Where both sides of a tree begin.
pub(super) struct CopyRoot {
    from: OwnedFd,
    /// Nothing if it is only found out what would be done, and there is no such directory.
    pub to: Option<OwnedFd>,
    from_path: Vec<u8>,
    to_path: Vec<u8>,
}

/// A directory that is copied.
struct CopyDirectory {
    root: Arc<CopyRoot>,
    below: ArchivePath,
    /// The source, if it has to be made like it.
    found: Option<Metadata>,
    is_new: bool,
    /// It is there, on the side of the target.
    exists: bool,
    above: Option<Arc<CopyDirectory>>,
}

/// Files of a directory.
struct CopyJob {
    directory: Arc<CopyDirectory>,
    files: Vec<(Box<[u8]>, Metadata)>,
    /// The name that a single one gets, if it is another one.
    name: Option<Vec<u8>>,
}

impl CopyDirectory {
    fn path(&self, before: &[u8], name: &[u8]) -> Vec<u8> {
        let mut path = before.to_vec();
        for part in self.below.parts().chain((!name.is_empty()).then_some(name)) {
            if !path.is_empty() && !path.ends_with(b"/") {
                path.push(b'/');
            }
            path.extend_from_slice(part);
        }
        path
    }

    fn open_source(&self) -> Result<OwnedFd, Errno> {
        open_beneath(self.root.from.as_fd(), &self.below)
    }

    /// Nothing of what is not there, as nothing is made.
    fn open_target(&self) -> Result<Option<OwnedFd>, Errno> {
        let Some(to) = self.root.to.as_ref().filter(|_| self.exists) else { return Ok(None) };
        open_beneath(to.as_fd(), &self.below).map(Some)
    }

    fn tell(&self, shared: &CopyShared<'_>, name: &[u8], error: Uncopied) {
        let Uncopied { is_source, doing, errno } = error;
        let root = &self.root;
        let before = if is_source { &root.from_path } else { &root.to_path };
        shared.failed(self.path(before, name), doing, errno);
    }

    /// A file of it, or with no name itself, lacks these attributes of its source.
    fn attributes_left(&self, shared: &CopyShared<'_>, name: &[u8], left: LeftAttributes) {
        if !left.is_empty() {
            shared.attributes_left(self.path(&self.root.to_path, name), left);
        }
    }

    /// A file of it is copied, or with no names itself is made.
    fn copied(&self, shared: &CopyShared<'_>, name: &[u8], target: &[u8]) {
        if !shared.options.tells_names {
            return;
        }
        let from = self.path(&self.root.from_path, name);
        let to = self.path(&self.root.to_path, target);
        let (from, to) = (OsStr::from_bytes(&from), OsStr::from_bytes(&to));
        (shared.told)(LocalCopyEvent::Copied { from: Path::new(from), to: Path::new(to) });
    }

    /// Somebody is done with it. Who is the last makes it like its source, and is done with the one
    /// above it, too.
    fn release(self: Arc<Self>, shared: &CopyShared<'_>) {
        let mut last = Some(self);
        // `into_inner` gives it to exactly one, also where the last two end at once.
        while let Some(directory) = last.take().and_then(Arc::into_inner) {
            if let Err(error) = directory.finish(shared) {
                directory.tell(shared, b"", error);
            }
            last = directory.above;
        }
    }

    fn finish(&self, shared: &CopyShared<'_>) -> Result<(), Uncopied> {
        let Some(found) = &self.found else { return Ok(()) };
        let Some(to) = self.open_target().map_err(Uncopied::written)? else { return Ok(()) };
        if shared.options.dry_run {
            return Ok(());
        }
        if shared.options.keep == LocalCopyKeep::Nothing {
            return if self.is_new { narrow(&to, found) } else { Ok(()) };
        }
        let from = self.open_source().map_err(Uncopied::read)?;
        let kept = KeptFile { from: from.as_fd(), to: to.as_fd(), found };
        let left = shared.files.finish(&kept).map_err(Uncopied::unlike)?;
        self.attributes_left(shared, b"", left);
        Ok(())
    }
}

/// Takes from a new directory what its owner needed of it while it was filled.
fn narrow(to: &OwnedFd, found: &Metadata) -> Result<(), Uncopied> {
    let more = 0o700 & !found.mode;
    if more == 0 {
        return Ok(());
    }
    let now = target::status(to.as_fd()).map_err(Uncopied::written)?.mode;
    let mode = Mode::from_raw_mode(now & !more);
    let done = rustix::fs::chmodat(CWD, place(to.as_fd()), mode, AtFlags::empty());
    done.map_err(|errno| Uncopied::written(errno.into()))
}

impl CopyJob {
    fn act(self, shared: &CopyShared<'_>, room: &mut Vec<u8>) {
        let Self { directory, files, name } = self;
        let mut report = LocalCopyReport::default();
        let from = directory.open_source().map_err(Uncopied::read);
        let to = directory.open_target().map_err(Uncopied::written);
        match (from, to) {
            (Ok(from), Ok(to)) => {
                for (file, found) in &files {
                    let target = name.as_deref().unwrap_or(file);
                    let (root, below) = (&directory.root, &directory.below);
                    let at = || CopiedName {
                        root: root.clone(),
                        below: below.clone(),
                        name: target.to_vec(),
                    };
                    let from = NameIn::new(&from, file);
                    let done = match &to {
                        Some(to) => {
                            let is_in_new = directory.is_new;
                            let to = NameIn { is_in_new, ..NameIn::new(to, target) };
                            shared.files.copy(from, found, to, at, room)
                        }
                        None => Ok(would_copy(found)),
                    };
                    match done {
                        Ok(FileCopied::Skipped) => report.skipped += 1,
                        Ok(FileCopied::Copied { bytes, left }) => {
                            report.files += 1;
                            report.bytes += bytes;
                            directory.attributes_left(shared, target, left);
                            directory.copied(shared, file, target);
                        }
                        Err(error) => {
                            let name = if error.is_source { &**file } else { target };
                            directory.tell(shared, name, error);
                        }
                    }
                }
            }
            (Err(error), _) | (_, Err(error)) => {
                // `tell` counts one of them.
                report.failed += files.len().saturating_sub(1) as u64;
                directory.tell(shared, b"", error);
            }
        }
        shared.add(&report);
        directory.release(shared);
    }
}

/// What would come of a file where there is nothing yet.
fn would_copy(found: &Metadata) -> FileCopied {
    let bytes = if found.kind == FileKind::File { found.size } else { 0 };
    FileCopied::Copied { bytes, left: Vec::new() }
}

/// Sources that are being copied.
struct CopySources<'a, 'scope, 'env> {
    shared: &'a CopyShared<'a>,
    pool: CopyPool<'scope, 'env, CopyJob>,
    /// The directory of the last file that was named, by its path.
    last: Option<(PathBuf, Arc<CopyDirectory>)>,
}

/// One of them.
struct CopySource<'a> {
    path: &'a Path,
    found: Metadata,
}

impl CopySources<'_, '_, '_> {
    fn copy(&mut self, path: &Path, found: Metadata, to: CopyPlace) {
        let source = CopySource { path, found };
        let to_path = bytes_of(&to.path);
        let done = if source.found.is_dir() {
            check_tree(&source, &to).map(|()| self.tree(&source, to))
        } else {
            self.single(&source, to)
        };
        if let Err(error) = done {
            let path = if error.is_source { bytes_of(path) } else { to_path };
            self.shared.failed(path, error.doing, error.errno);
        }
    }

    fn single(&mut self, source: &CopySource<'_>, to: CopyPlace) -> Result<(), Uncopied> {
        let Some(name) = to.name else { return Err(Uncopied::written(Errno::ISDIR)) };
        let above = target::above(source.path);
        let (from_path, file) = split(source.path.as_os_str().as_bytes());
        // Files that are named one after the other are mostly of one directory: it is opened once.
        let known = self.last.take().filter(|(path, _)| *path == above);
        let directory = match known {
            Some((_, directory)) => directory,
            None => {
                let from = target::open_directory(&above).map_err(Uncopied::read)?;
                let (to_path, _) = split(to.path.as_os_str().as_bytes());
                let (from_path, to_path) = (from_path.to_vec(), to_path.to_vec());
                let root = CopyRoot { from, to: Some(to.directory), from_path, to_path };
                Arc::new(CopyDirectory {
                    root: Arc::new(root),
                    below: ArchivePath::ROOT,
                    found: None,
                    is_new: false,
                    exists: true,
                    above: None,
                })
            }
        };
        let files = vec![(Box::from(file), source.found.clone())];
        self.pool.send(CopyJob { directory: directory.clone(), files, name: Some(name) });
        self.last = Some((above, directory));
        Ok(())
    }

    fn tree(&mut self, source: &CopySource<'_>, to: CopyPlace) {
        let options = TreeWalkOptions { follows_start: false, ..TreeWalkOptions::default() };
        let top = source.path.as_os_str().len();
        let mut to = Some(to);
        // Nothing of those that cannot be made.
        let mut within: Vec<Option<Arc<CopyDirectory>>> = Vec::new();
        let mut entered = None;
        for step in VisitWalk::new("cp-walk", source.path, CopyVisitor, options) {
            match step {
                TreeStep::Piece(piece) => {
                    for (path, errno) in piece.errors {
                        self.shared.failed(path, "cannot be read", errno);
                    }
                    if let Some(Some(directory)) = within.last() {
                        self.files(directory, piece.files);
                    }
                    entered = piece.directory;
                }
                TreeStep::Enter(directory) => {
                    let path = ArchivePath::new(&directory.path()[top..]).unwrap_or_default();
                    let found = entered.take().unwrap_or_else(|| source.found.clone());
                    let made = match (within.last(), to.take()) {
                        (None, Some(to)) => self.begin_tree(source.path, to, found),
                        (Some(Some(above)), _) => self.enter(above, path, found),
                        _ => None,
                    };
                    within.push(made.map(Arc::new));
                }
                TreeStep::Leave(_) => {
                    if let Some(Some(directory)) = within.pop() {
                        directory.release(self.shared);
                    }
                }
            }
        }
    }

    /// Gives files of a directory to those who copy.
    fn files(&mut self, directory: &Arc<CopyDirectory>, mut files: Vec<(Box<[u8]>, Metadata)>) {
        while !files.is_empty() {
            let mut bytes = 0u64;
            let behind = files.iter().position(|(_, found)| {
                let is_full = bytes >= JOB_BYTES;
                bytes = bytes.saturating_add(found.size);
                is_full
            });
            let rest = files.split_off(behind.unwrap_or(files.len()).min(JOB_FILES_MAX));
            self.pool.send(CopyJob { directory: directory.clone(), files, name: None });
            files = rest;
        }
    }

    /// Makes the directory that a tree becomes.
    fn begin_tree(&self, path: &Path, to: CopyPlace, found: Metadata) -> Option<CopyDirectory> {
        let from = match target::open_directory(path) {
            Ok(from) => from,
            Err(errno) => {
                self.shared.failed(bytes_of(path), "cannot be read", errno);
                return None;
            }
        };
        let made = match &to.name {
            None => Ok((Some(to.directory), false)),
            Some(name) => self.make(&to.directory, name, &found),
        };
        let (to_path, from_path) = (bytes_of(&to.path), bytes_of(path));
        match made {
            Ok((to, is_new)) => {
                let exists = to.is_some();
                let root = Arc::new(CopyRoot { from, to, from_path, to_path });
                let found = Some(found);
                let below = ArchivePath::ROOT;
                self.made(CopyDirectory { root, below, found, is_new, exists, above: None })
            }
            Err(error) => {
                self.shared.failed(to_path, error.doing, error.errno);
                None
            }
        }
    }

    /// Makes a directory in another one.
    fn enter(
        &self,
        above: &Arc<CopyDirectory>,
        below: ArchivePath,
        found: Metadata,
    ) -> Option<CopyDirectory> {
        let name = below.split().map(|(_, name)| name.to_vec()).unwrap_or_default();
        let made = match above.open_target() {
            Ok(Some(to)) => self.make(&to, &name, &found),
            Ok(None) => Ok((None, true)),
            Err(errno) => Err(Uncopied::written(errno)),
        };
        match made {
            Ok((to, is_new)) => self.made(CopyDirectory {
                root: above.root.clone(),
                below,
                found: Some(found),
                is_new,
                exists: to.is_some(),
                above: Some(above.clone()),
            }),
            Err(error) => {
                above.tell(self.shared, &name, error);
                None
            }
        }
    }

    fn made(&self, directory: CopyDirectory) -> Option<CopyDirectory> {
        self.shared.add(&LocalCopyReport { directories: 1, ..LocalCopyReport::default() });
        if directory.is_new {
            directory.copied(self.shared, b"", b"");
        }
        Some(directory)
    }

    /// Makes a directory, or takes the one that is there. Says whether it is new.
    fn make(
        &self,
        above: &OwnedFd,
        name: &[u8],
        found: &Metadata,
    ) -> Result<(Option<OwnedFd>, bool), Uncopied> {
        let name = OsStr::from_bytes(name);
        let written = |errno: rustix::io::Errno| Uncopied::written(errno.into());
        let mode = match self.shared.options.keep {
            LocalCopyKeep::Nothing => found.mode & 0o1777 | 0o700,
            _ => 0o700,
        };
        let is_new = if self.shared.options.dry_run {
            let there = names::lstat_at(above.as_fd(), name);
            if there == Err(Errno::NOENT) {
                return Ok((None, true));
            }
            false
        } else {
            match rustix::fs::mkdirat(above, name, Mode::from_raw_mode(mode)) {
                Ok(()) => true,
                Err(rustix::io::Errno::EXIST) => false,
                Err(errno) => return Err(written(errno)),
            }
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let to = match rustix::fs::openat(above, name, flags, Mode::empty()) {
            Err(rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) => {
                let doing = "a directory does not replace a file";
                return Err(Uncopied { is_source: false, doing, errno: Errno::NOTDIR });
            }
            to => to.map_err(written)?,
        };
        let there = target::status(to.as_fd()).map_err(Uncopied::written)?;
        if there.id() == found.id() {
            let doing = "source and target are one directory";
            return Err(Uncopied { is_source: false, doing, errno: Errno::EXIST });
        }
        Ok((Some(to), is_new))
    }
}

/// A tree does not go into itself.
fn check_tree(source: &CopySource<'_>, to: &CopyPlace) -> Result<(), Uncopied> {
    let is_within = target::is_within(to.directory.as_fd(), source.found.id());
    if is_within.map_err(Uncopied::written)? {
        let doing = "a directory is not copied into itself";
        return Err(Uncopied { is_source: true, doing, errno: Errno::INVAL });
    }
    Ok(())
}

/// A path up to its last name, and that.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    path.split_at(path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1))
}

/// Finds what there is to copy.
struct CopyVisitor;

#[derive(Default)]
struct CopyFound {
    files: Vec<(Box<[u8]>, Metadata)>,
    /// The directory that comes behind them.
    directory: Option<Metadata>,
    errors: Vec<(Vec<u8>, Errno)>,
}

impl TreeVisitor for CopyVisitor {
    type Piece = CopyFound;

    fn facts(&self) -> FileFacts {
        FileFacts::Status
    }

    fn visit(&self, piece: &mut CopyFound, file: &VisitedFile<'_>) -> bool {
        match file.found {
            Some(Ok(found)) if found.is_dir() => {
                piece.directory = Some(found.clone());
                return true;
            }
            Some(Ok(found)) => {
                piece.files.push((Box::from(file.name.as_bytes()), found.clone()));
            }
            Some(Err(errno)) => {
                let mut path = Vec::new();
                file.put_path(&mut path);
                piece.errors.push((path, *errno));
            }
            None => {}
        }
        false
    }

    fn failed(&self, piece: &mut CopyFound, directory: &WalkedDirectory, errno: Errno) {
        piece.errors.push((directory.path().to_vec(), errno));
    }

    fn bytes(&self, piece: &CopyFound) -> usize {
        let names = piece.files.iter().map(|(name, _)| name.len()).sum::<usize>();
        let errors = piece.errors.iter().map(|(path, _)| path.len() + 32).sum::<usize>();
        piece.files.capacity() * size_of::<(Box<[u8]>, Metadata)>() + names + errors
    }
}
