//! The walker beneath [`Walk`](super::Walk) and removal: it also tells when a directory is left,
//! and lends the directory that holds the present entry.

use super::{Follow, WalkEntry, WalkOptions};
use crate::Result;
use crate::error::PathError;
use crate::export::{Export, fd_metadata, mount_id, name_metadata};
use crate::held::parent;
use crate::itself::unless_itself;
use crate::views::{is_any_view, unless_view};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use sheaf_core::Errno;
use sheaf_core::files::{FileKind, Metadata, Timestamp};
use std::cmp::Ordering;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::vec;

/// How many directories deep a walk goes; deeper ones are `ENAMETOOLONG` errors.
pub const DEPTH_MAX: usize = 2048;

/// How many directories a walk keeps open besides the one that holds its start. Those above are
/// opened again when it comes back to them.
const OPEN_DIRS_MAX: usize = 32;

/// What a walk meets.
pub(crate) enum WalkStep {
    /// A directory, before its contents.
    Enter(WalkEntry),
    /// Anything else.
    Leaf(WalkEntry),
    /// A directory that could be read, after its contents.
    Leave(WalkEntry),
}

/// A depth-first walk.
#[derive(Debug)]
pub(crate) struct Cursor {
    export: Export,
    options: WalkOptions,
    start: PathBuf,
    /// The directories from the start to the present entry. The first holds only the start.
    frames: Vec<Frame>,
    /// The directory that was yielded last and is to be read next.
    pending: Option<(Name, WalkEntry)>,
    /// The start ends in a slash, `.` or `..`: the directory of the first frame is the start.
    start_is_within: bool,
    /// The device of the start, once it has been read.
    start_dev: Option<u64>,
    /// The mount of the start, likewise.
    start_mount: Option<u64>,
    /// An error to yield before anything else.
    failed: Option<PathError>,
    /// The entry of the last step is what a link leads to.
    followed: bool,
}

#[derive(Debug)]
struct Frame {
    /// Closed while the walk is far beneath it.
    dir: Option<Arc<OwnedFd>>,
    /// Device and inode, to notice loops and directories that were exchanged.
    id: (u64, u64),
    /// When the directory was made, if its file system says so: a removed directory's inode may
    /// become another's.
    btime: Option<Timestamp>,
    /// The directory itself is what a link leads to.
    followed: bool,
    /// What is still to come, in order.
    names: vec::IntoIter<Name>,
    /// The directory itself; nothing for the one that holds the start.
    entry: Option<WalkEntry>,
}

#[derive(Debug)]
struct Name {
    name: OsString,
    /// Unknown only if neither the directory nor `lstat` could tell.
    kind: FileKind,
    /// The kind is that of the target of a link.
    followed: bool,
    /// Why it is not known what a link leads to.
    failed: Option<Errno>,
}

impl Cursor {
    pub fn new(export: &Export, start: &Path, options: WalkOptions) -> Self {
        let mut cursor = Self {
            export: export.clone(),
            options,
            start: start.to_owned(),
            frames: Vec::new(),
            pending: None,
            start_is_within: false,
            start_dev: None,
            start_mount: None,
            failed: None,
            followed: false,
        };
        match cursor.first_frame() {
            Ok(frame) => cursor.frames.push(frame),
            Err(errno) => cursor.failed = Some(PathError { path: start.to_owned(), errno }),
        }
        cursor
    }

    /// The directory that holds the entry of the last step; `None` when it could not be opened
    /// again.
    pub fn parent(&self) -> Option<BorrowedFd<'_>> {
        self.frames.last()?.dir.as_ref().map(|dir| dir.as_fd())
    }

    /// The export with the directory held that holds the entry of the last step.
    ///
    /// # Errors
    /// `ESTALE` when it could not be opened again.
    pub fn here(&self) -> Result<Export> {
        let frame = self.frames.last().ok_or(Errno::STALE)?;
        let dir = frame.dir.as_ref().ok_or(Errno::STALE)?;
        let path = match (&frame.entry, self.start_is_within) {
            (Some(entry), _) => &entry.path,
            (None, true) => &self.start,
            (None, false) => parent(&self.start),
        };
        Ok(self.export.with_held(path, Arc::clone(dir)))
    }

    /// Whether the entry of the last step is what a link leads to.
    pub fn followed(&self) -> bool {
        self.followed
    }

    /// Does not go into the directory of the last `Enter`; its `Leave` does not come either.
    pub fn skip_dir(&mut self) {
        self.pending = None;
    }

    pub fn next(&mut self) -> Option<std::result::Result<WalkStep, PathError>> {
        if let Some((name, entry)) = self.pending.take()
            && let Err(errno) = self.descend(&name, &entry)
        {
            return Some(Err(PathError { path: entry.path, errno }));
        }
        if let Some(error) = self.failed.take() {
            return Some(Err(error));
        }
        loop {
            let Some(name) = self.frames.last_mut()?.names.next() else {
                let Frame { entry, followed, .. } = self.frames.pop()?;
                self.followed = followed;
                let left = entry?;
                self.reopen();
                return Some(Ok(WalkStep::Leave(left)));
            };
            self.followed = name.followed;
            match self.visit(&name) {
                Ok(Some(entry)) if entry.kind == FileKind::Directory => {
                    self.pending = Some((name, entry.clone()));
                    return Some(Ok(WalkStep::Enter(entry)));
                }
                Ok(Some(entry)) => return Some(Ok(WalkStep::Leaf(entry))),
                Ok(None) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// The frame whose one name is the start.
    fn first_frame(&mut self) -> Result<Frame> {
        let (dir, name) = match self.export.place(&self.start) {
            Ok(place) if !place.must_be_dir => (place.dir, place.name),
            Err(errno) if errno != Errno::INVAL => return Err(errno),
            // `/` and paths that end in a slash, `.` or `..`: the directory as seen from within.
            _ => {
                self.start_is_within = true;
                (self.export.resolve(&self.start, OFlags::DIRECTORY)?, OsString::from("."))
            }
        };
        let kind = name_metadata(dir.as_fd(), &name)?.kind;
        let follow = self.options.follow != Follow::Never;
        let name = self.resolved(dir.as_fd(), name, kind, follow.then(|| self.start.clone()));
        Ok(Frame {
            dir: Some(Arc::new(dir)),
            id: (0, 0),
            btime: None,
            followed: false,
            names: vec![name].into_iter(),
            entry: None,
        })
    }

    /// The entry of a name, or nothing if the filters pass over it.
    fn visit(&self, name: &Name) -> std::result::Result<Option<WalkEntry>, PathError> {
        let depth = self.frames.len() - 1;
        let (path, relative) = match self.frames.last().and_then(|frame| frame.entry.as_ref()) {
            None => (self.start.clone(), PathBuf::new()),
            Some(parent) => (parent.path.join(&name.name), parent.relative.join(&name.name)),
        };
        if depth > 0 && !self.is_wanted(name.kind, &relative) {
            return Ok(None);
        }
        if let Some(errno) = name.failed {
            return Err(PathError { path, errno });
        }
        let mut entry = WalkEntry { path, relative, kind: name.kind, depth, metadata: None };
        if self.options.metadata || name.kind == FileKind::Unknown {
            match self.metadata(name, &entry.path) {
                Err(errno) => return Err(PathError { path: entry.path, errno }),
                Ok(metadata) => {
                    entry.kind = metadata.kind;
                    entry.metadata = Some(metadata);
                }
            }
        }
        Ok(Some(entry))
    }

    fn is_wanted(&self, kind: FileKind, relative: &Path) -> bool {
        let options = &self.options;
        if kind == FileKind::Directory {
            return !options.exclude_dir.matches(relative);
        }
        (options.include.is_empty() || options.include.matches(relative))
            && !options.exclude.matches(relative)
    }

    fn metadata(&self, name: &Name, path: &Path) -> Result<Metadata> {
        if name.followed {
            return self.export.stat(path);
        }
        name_metadata(self.parent().ok_or(Errno::STALE)?, &name.name)
    }

    /// Opens and reads a directory, and makes it the present one.
    fn descend(&mut self, name: &Name, entry: &WalkEntry) -> Result<()> {
        if self.frames.len() > DEPTH_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let dir = if name.followed {
            self.export.open_dir(&entry.path)?
        } else {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let parent = self.parent().ok_or(Errno::STALE)?;
            if is_any_view()? {
                let named = OFlags::PATH | flags;
                let named = rustix::fs::openat(parent, &name.name, named, Mode::empty())?;
                unless_view(named, self.export.device())?;
            }
            unless_itself(rustix::fs::openat(parent, &name.name, flags, Mode::empty())?)?
        };
        let metadata = fd_metadata(dir.as_fd())?;
        let id = metadata.id();
        if self.frames.iter().skip(1).any(|frame| frame.id == id) {
            return Err(Errno::LOOP);
        }
        if self.options.one_file_system && *self.start_dev.get_or_insert(id.0) != id.0 {
            return Ok(());
        }
        if self.options.one_mount {
            let mount = mount_id(dir.as_fd())?;
            if *self.start_mount.get_or_insert(mount) != mount {
                return Err(Errno::BUSY);
            }
        }
        let names = self.read(dir.as_fd(), entry)?.into_iter();
        self.frames.push(Frame {
            dir: Some(Arc::new(dir)),
            id,
            btime: metadata.btime,
            followed: name.followed,
            names,
            entry: Some(entry.clone()),
        });
        match self.frames.len().checked_sub(OPEN_DIRS_MAX + 1) {
            Some(far) if far > 0 => self.frames[far].dir = None,
            _ => {}
        }
        Ok(())
    }

    /// The names in a directory, in the order of the walk.
    fn read(&self, dir: BorrowedFd<'_>, entry: &WalkEntry) -> Result<Vec<Name>> {
        let follow = self.options.follow == Follow::Always;
        let mut names = Vec::new();
        for found in crate::dir::read(dir)? {
            let path = follow.then(|| entry.path.join(&found.name));
            names.push(self.resolved(dir, found.name, found.kind, path));
        }
        names.sort_unstable_by(Name::order);
        Ok(names)
    }

    /// A name with its kind; of its target, if it is a link and has a path to follow it by.
    fn resolved(
        &self,
        dir: BorrowedFd<'_>,
        name: OsString,
        mut kind: FileKind,
        follow: Option<PathBuf>,
    ) -> Name {
        if kind == FileKind::Unknown {
            kind = name_metadata(dir, &name).map_or(kind, |stat| stat.kind);
        }
        let target =
            follow.filter(|_| kind == FileKind::Symlink).map(|path| self.export.stat(&path));
        match target {
            Some(Ok(stat)) => Name { name, kind: stat.kind, followed: true, failed: None },
            None | Some(Err(Errno::NOENT)) => Name { name, kind, followed: false, failed: None },
            Some(Err(errno)) => Name { name, kind, followed: false, failed: Some(errno) },
        }
    }

    /// Opens the present directory again if it was closed, and makes sure it is still the same one.
    fn reopen(&mut self) {
        let Some(Frame { dir: dir @ None, id, btime, names, entry: Some(entry), .. }) =
            self.frames.last_mut()
        else {
            return;
        };
        let reopened = self.export.resolve(&entry.path, OFlags::DIRECTORY).and_then(|fd| {
            let found = fd_metadata(fd.as_fd())?;
            let is_same = (found.id(), found.btime) == (*id, *btime);
            if is_same { Ok(fd) } else { Err(Errno::STALE) }
        });
        match reopened {
            Ok(fd) => *dir = Some(Arc::new(fd)),
            Err(errno) => {
                *names = Vec::new().into_iter();
                self.failed = Some(PathError { path: entry.path.clone(), errno });
            }
        }
    }
}

impl Name {
    /// Bytewise, directories with a slash at their end.
    fn order(&self, other: &Self) -> Ordering {
        let (a, b) = (self.name.as_bytes(), other.name.as_bytes());
        let common = a.len().min(b.len());
        let next = |name: &Self, bytes: &[u8]| {
            bytes.get(common).copied().or((name.kind == FileKind::Directory).then_some(b'/'))
        };
        a[..common].cmp(&b[..common]).then_with(|| next(self, a).cmp(&next(other, b)))
    }
}
