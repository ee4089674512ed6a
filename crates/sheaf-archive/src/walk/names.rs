//! The names of one directory.
pub(crate) use super::NamedFile;
use super::NamedPiece;
use crate::ArchivePath;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawDir, ResolveFlags, StatxFlags};
use sheaf_core::Errno;
use sheaf_core::files::Metadata;
use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;

/// Names whose files are looked at before others are told of them.
pub(crate) const NAMES_AT_ONCE: usize = 1024;
const READ_BYTES: usize = 128 << 10;
/// Bytes of a path that is opened at once.
const PATH_BYTES_MAX: usize = 4000;

/// A directory that can be opened.
pub(crate) struct Directory {
    /// Open as long as something in it is not.
    above: Option<Arc<OwnedFd>>,
    name: OsString,
}

impl Directory {
    /// The one that a path leads to.
    pub fn at(path: &Path) -> Self {
        Self { above: None, name: path.as_os_str().to_owned() }
    }

    /// The one that a path leads to from another, on whose way no link is followed.
    pub fn beneath(base: &Arc<OwnedFd>, path: &ArchivePath) -> Result<Self, Errno> {
        let Some((above, name)) = path.split() else {
            return Ok(Self { above: Some(base.clone()), name: ".".into() });
        };
        let above = open_beneath(base.as_fd(), &above)?;
        Ok(Self { above: Some(Arc::new(above)), name: OsStr::from_bytes(name).to_owned() })
    }

    /// Opens it and reads its names.
    pub fn open(&self) -> Result<OpenDirectory, Errno> {
        let above = self.above.as_ref().map_or(CWD, |above| above.as_fd());
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(above, &self.name, flags, Mode::empty()).map_err(of)?;
        let mut open = OpenDirectory {
            names: Vec::new(),
            places: Vec::new(),
            file: Arc::new(file),
            at: 0,
            told: 0,
            error: None,
        };
        open.error = open.read_names().err();
        let OpenDirectory { names, places, .. } = &mut open;
        places.sort_unstable_by(|one, other| name_at(names, *one).cmp(name_at(names, *other)));
        Ok(open)
    }
}

/// Where a name begins, and how long it is.
type NamePlace = (u32, u8);

fn name_at(names: &[u8], (from, bytes): NamePlace) -> &[u8] {
    &names[from as usize..][..usize::from(bytes)]
}

/// A directory whose names are known.
pub(crate) struct OpenDirectory {
    /// All names, one behind the other.
    names: Vec<u8>,
    /// Where each is, in their order.
    places: Vec<NamePlace>,
    file: Arc<OwnedFd>,
    /// How many names were looked at.
    at: usize,
    /// How many of them were told: those that were still there.
    told: usize,
    /// Why it was not read to its end.
    error: Option<Errno>,
}

impl OpenDirectory {
    fn read_names(&mut self) -> Result<(), Errno> {
        let mut room = vec![MaybeUninit::uninit(); READ_BYTES];
        let mut entries = RawDir::new(&*self.file, &mut room);
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(of)?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let from = u32::try_from(self.names.len()).map_err(|_| Errno::OVERFLOW)?;
            let bytes = u8::try_from(name.len()).map_err(|_| Errno::NAMETOOLONG)?;
            self.names.extend_from_slice(name);
            self.places.push((from, bytes));
        }
        Ok(())
    }

    /// The next names and what they are.
    pub fn next(&mut self) -> Option<NamedPiece> {
        let places = &self.places[self.at..];
        let places = &places[..places.len().min(NAMES_AT_ONCE)];
        if places.is_empty() {
            return self.error.take().map(Err);
        }
        self.at += places.len();
        let named = |place: &NamePlace| {
            let name = name_at(&self.names, *place);
            let found = lstat_at(self.file.as_fd(), OsStr::from_bytes(name));
            // One that was taken away since is none.
            let is_there = found != Err(Errno::NOENT);
            Some(NamedFile { name: OsString::from_vec(name.to_vec()), found }).filter(|_| is_there)
        };
        let all: Vec<_> = places.iter().filter_map(named).collect();
        self.told += all.len();
        Some(Ok(all))
    }

    /// The directory itself.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// How many names were told.
    pub fn told(&self) -> usize {
        self.told
    }

    /// A directory in this one.
    pub fn directory(&self, name: &OsStr) -> Directory {
        Directory { above: Some(self.file.clone()), name: name.to_owned() }
    }
}

/// What a path leads to, or a link that it ends with.
pub(crate) fn lstat(path: &Path) -> Result<Metadata, Errno> {
    lstat_at(CWD, path.as_os_str())
}

/// What a name in a directory is.
pub(crate) fn lstat_at(directory: BorrowedFd<'_>, name: &OsStr) -> Result<Metadata, Errno> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let found = rustix::fs::statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, wanted);
    found.map(Metadata::from).map_err(of)
}

/// A directory below another, whose path may be longer than the system takes. No link is followed.
pub(crate) fn open_beneath(base: BorrowedFd<'_>, path: &ArchivePath) -> Result<OwnedFd, Errno> {
    let mut open = base.try_clone_to_owned().map_err(|error| Errno::from_io(&error))?;
    let mut step = Vec::new();
    for part in path.parts() {
        if step.len() + part.len() >= PATH_BYTES_MAX {
            open = step_beneath(open.as_fd(), &step)?;
            step.clear();
        }
        if !step.is_empty() {
            step.push(b'/');
        }
        step.extend_from_slice(part);
    }
    if step.is_empty() { Ok(open) } else { step_beneath(open.as_fd(), &step) }
}

fn step_beneath(open: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let path = OsStr::from_bytes(path);
    rustix::fs::openat2(open, path, flags, Mode::empty(), resolve).map_err(of)
}

fn of(errno: rustix::io::Errno) -> Errno {
    Errno(errno.raw_os_error())
}
