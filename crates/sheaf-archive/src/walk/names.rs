//! The names of one directory.
use super::FileFacts;
use crate::path::ArchivePath;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, ResolveFlags, StatxFlags};
use sheaf_core::Errno;
use sheaf_core::files::{FileKind, Metadata};
use std::ffi::{CStr, OsStr, OsString};
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

/// One name of a directory.
#[derive(Debug)]
pub(crate) struct NamedFile {
    pub name: OsString,
    pub found: Result<Metadata, Errno>,
}

/// Some names of a directory in their order, or why there are no more.
pub(crate) type NamedPiece = Result<Vec<NamedFile>, Errno>;

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

    /// The one of this name in another, which is open.
    pub fn within(above: Arc<OwnedFd>, name: &OsStr) -> Self {
        Self { above: Some(above), name: name.to_owned() }
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
        OpenDirectory::open(self.above.as_deref(), &self.name, false)
    }
}

/// Where a name begins, how long it is without the NUL behind it, and what it names.
#[derive(Clone, Copy)]
struct NamePlace {
    from: u32,
    bytes: u8,
    kind: FileType,
}

fn name_at(names: &[u8], place: NamePlace) -> &[u8] {
    &names[place.from as usize..][..usize::from(place.bytes)]
}

/// What is known of a file before its directory's walk goes on.
pub(crate) struct SeenName<'a> {
    /// Where it stands among the names of its directory.
    pub number: u32,
    pub name: &'a CStr,
    pub kind: FileKind,
    /// Of [`FileFacts::Status`].
    pub found: Option<Result<Metadata, Errno>>,
}

/// A directory whose names are known.
pub(crate) struct OpenDirectory {
    /// All names, one behind the other, each with a NUL at its end.
    names: Vec<u8>,
    /// Where each is, in their order.
    places: Vec<NamePlace>,
    file: Arc<OwnedFd>,
    /// How many names were looked at.
    at: usize,
    /// Why it was not read to its end.
    error: Option<Errno>,
}

impl OpenDirectory {
    /// Opens a directory in another one, or by its path, and reads its names. A link that the path ends
    /// with is followed if that is said.
    pub fn open(above: Option<&OwnedFd>, name: &OsStr, follows: bool) -> Result<Self, Errno> {
        let above = above.map_or(CWD, |above| above.as_fd());
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let flags = if follows { flags } else { flags | OFlags::NOFOLLOW };
        let file = rustix::fs::openat(above, name, flags, Mode::empty()).map_err(of)?;
        let mut open = Self {
            names: Vec::new(),
            places: Vec::new(),
            file: Arc::new(file),
            at: 0,
            error: None,
        };
        // Names that came before an error come first, and the error behind them.
        open.error = open.read_names().err();
        let Self { names, places, .. } = &mut open;
        places.sort_unstable_by(|one, other| name_at(names, *one).cmp(name_at(names, *other)));
        Ok(open)
    }

    fn read_names(&mut self) -> Result<(), Errno> {
        let mut room = Vec::<u8>::with_capacity(READ_BYTES);
        let room: &mut [MaybeUninit<u8>] = room.spare_capacity_mut();
        let mut entries = RawDir::new(&*self.file, room);
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(of)?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let from = u32::try_from(self.names.len()).map_err(|_| Errno::OVERFLOW)?;
            let bytes = u8::try_from(name.count_bytes()).map_err(|_| Errno::NAMETOOLONG)?;
            self.names.extend_from_slice(name.to_bytes_with_nul());
            self.places.push(NamePlace { from, bytes, kind: entry.file_type() });
        }
        Ok(())
    }

    /// Looks at the next files. Those that were taken away since are left out, where that is seen.
    pub fn look(
        &mut self,
        facts: FileFacts,
        mut each: impl FnMut(BorrowedFd<'_>, SeenName<'_>),
    ) -> Option<Result<(), Errno>> {
        let places = &self.places[self.at..];
        let places = &places[..places.len().min(NAMES_AT_ONCE)];
        if places.is_empty() {
            return self.error.take().map(Err);
        }
        for (number, place) in (self.at..).zip(places) {
            let name = &self.names[place.from as usize..][..=usize::from(place.bytes)];
            let name = CStr::from_bytes_with_nul(name).expect("names were read with their NUL");
            // Some file systems do not say the kind with the name.
            let (kind, found) = if facts == FileFacts::Status || place.kind == FileType::Unknown {
                match lstat_at(self.file.as_fd(), name) {
                    Err(Errno::NOENT) => continue,
                    Ok(found) => (found.kind, Some(Ok(found))),
                    Err(errno) => (place.kind.into(), Some(Err(errno))),
                }
            } else {
                (place.kind.into(), None)
            };
            let number = u32::try_from(number).expect("fewer names than bytes of names");
            each(self.file.as_fd(), SeenName { number, name, kind, found });
        }
        self.at += places.len();
        Some(Ok(()))
    }

    /// The next names and what they are.
    pub fn next(&mut self) -> Option<NamedPiece> {
        let mut all = Vec::new();
        let looked = self.look(FileFacts::Status, |_, seen| {
            let found = seen.found.expect("a status was asked for");
            all.push(NamedFile { name: OsString::from_vec(seen.name.to_bytes().to_vec()), found });
        });
        Some(looked?.map(|()| all))
    }

    /// The directory itself.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The directory itself, for whoever keeps it open.
    pub fn shared(&self) -> &Arc<OwnedFd> {
        &self.file
    }

    /// Whether nothing more is told.
    pub fn is_at_end(&self) -> bool {
        self.at == self.places.len() && self.error.is_none()
    }
}

/// What a path leads to, or a link that it ends with.
pub(crate) fn lstat(path: &Path) -> Result<Metadata, Errno> {
    lstat_at(CWD, path.as_os_str().as_bytes())
}

/// Whether a directory in another one has no names.
///
/// # Errors
/// Those of `open(2)` and `getdents(2)`.
pub fn is_empty_in(above: BorrowedFd<'_>, name: &OsStr) -> Result<bool, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(above, name, flags, Mode::empty()).map_err(of)?;
    let mut room = Vec::<u8>::with_capacity(4096);
    let mut entries = RawDir::new(file, room.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        if !matches!(entry.map_err(of)?.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What `lstat` says of a name in a directory.
///
/// # Errors
/// Those of `lstat(2)`.
pub fn status_in(directory: BorrowedFd<'_>, name: &OsStr) -> Result<Metadata, Errno> {
    lstat_at(directory, name)
}

/// What a walk begins with.
pub(crate) fn start(path: &Path, follows: bool) -> Result<Metadata, Errno> {
    let here = lstat(path)?;
    if follows && here.kind == FileKind::Symlink {
        let found = rustix::fs::statx(CWD, path, AtFlags::empty(), wanted());
        return Ok(found.map_or(here, Metadata::from));
    }
    Ok(here)
}

fn wanted() -> StatxFlags {
    StatxFlags::BASIC_STATS | StatxFlags::BTIME
}

/// What a name in a directory is.
pub(crate) fn lstat_at(
    directory: BorrowedFd<'_>,
    name: impl rustix::path::Arg,
) -> Result<Metadata, Errno> {
    // A walk that only looks mounts nothing.
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let found = rustix::fs::statx(directory, name, flags, wanted());
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
