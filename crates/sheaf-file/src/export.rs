//! The export: one directory, and the resolution of every path beneath it.

use crate::Result;
use crate::dir;
use crate::dir::DirEntries;
use crate::held::HeldDir;
use crate::itself::{check_descriptor, unless_itself};
use crate::leases::outlasting_leases;
use crate::views::{device_of, is_any_view, is_mount_point, is_view, unless_view};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno as SysErrno;
use sheaf_core::Errno;
use sheaf_core::files::{DirEntry, FileKind, Metadata};
use sheaf_core::observer::{self, Begun, Ending, Layer};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How often a resolution is tried again after `EINTR`, or after `EAGAIN`, which the kernel gives
/// when a directory is renamed while `..` is taken.
const RESOLVE_TRIES_MAX: usize = 64;

/// The longest path that the kernel takes at once, in bytes: `PATH_MAX` without the byte that ends
/// it.
const PATH_BYTES_MAX: usize = 4095;

/// The directory a host serves, and the door to everything beneath it.
///
/// A clone is a pointer and shares the one descriptor, so a thousand servers of one process can
/// serve the same directory.
#[derive(Clone, Debug)]
pub struct Export {
    root: Arc<OwnedFd>,
    /// The device of the root.
    device: u64,
    /// A directory that is not looked up again; see [`Export::holding`].
    held: Option<Arc<HeldDir>>,
}

/// A name in a directory beneath the export: what operations that change names act on.
pub(crate) struct ExportPlace {
    /// The directory, opened with `O_PATH`.
    pub dir: OwnedFd,
    /// One name, never `.`, `..` or empty.
    pub name: OsString,
    /// The path ended in a slash, so only a directory will do.
    pub must_be_dir: bool,
}

/// Closes a file, and says how that went: file systems of other machines may tell only then that
/// what was written has not arrived.
///
/// # Errors
/// Those of `close(2)`; the file is closed all the same.
pub fn close(file: File) -> Result<()> {
    nix::unistd::close(file).map_err(|errno| Errno(errno as i32))
}

/// Whether a file is a pipe in which there is nothing: nobody has written to it yet, or ever will.
///
/// # Errors
/// Those of `fstat(2)` and `poll(2)`.
pub fn is_empty_pipe(file: &File) -> Result<bool> {
    if fd_metadata(file.as_fd())?.kind != FileKind::Fifo {
        return Ok(false);
    }
    let mut polled = [PollFd::new(file, PollFlags::IN)];
    rustix::event::poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    Ok(!polled[0].revents().contains(PollFlags::IN))
}

impl Export {
    /// Takes `root` of this machine as an export.
    ///
    /// # Errors
    /// Those of `open(2)`; `ENOTDIR` when it is not a directory; `ENOSYS` where the kernel is older
    /// than Linux 5.6 and cannot resolve paths within a directory.
    pub fn open(root: &Path) -> Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, root, flags, Mode::empty())?;
        let export = Self { device: device_of(root.as_fd())?, root: Arc::new(root), held: None };
        // Whether the kernel can. Views are looked for when a file is opened, not at every start.
        export.openat2_anywhere(Path::new("."), OFlags::PATH, Mode::empty())?;
        Ok(export)
    }

    /// Takes the directory `name` in the root of this export as an export of its own.
    ///
    /// The caller has chosen the name, and its user has not typed it. Therefore a symbolic link there
    /// is followed only if this user or root alone could have laid its way: another user of a shared directory
    /// could lead what is written there anywhere.
    ///
    /// # Errors
    /// Those of [`Export::open`]; `EACCES` for a link that another user could have laid.
    pub fn subdirectory(&self, name: &OsStr) -> Result<Self> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let found = rustix::fs::openat(&self.root, name, flags | OFlags::NOFOLLOW, Mode::empty())?;
        let about = fd_metadata(found.as_fd())?;
        let root = match about.kind {
            FileKind::Directory => found,
            FileKind::Symlink => self.trusted_directory(name)?,
            _ => return Err(Errno::NOTDIR),
        };
        Ok(Self { device: device_of(root.as_fd())?, root: Arc::new(root), held: None })
    }

    /// The directory that a link in the root of this export leads to, anywhere on this machine, if only this
    /// user or root could have laid the way.
    fn trusted_directory(&self, name: &OsStr) -> Result<OwnedFd> {
        let here = crate::attributes::proc_path(self.root.as_fd());
        let here = rustix::fs::readlinkat(CWD, here, Vec::new())?;
        let path = Path::new(OsStr::from_bytes(here.as_bytes())).join(name);
        let machine = Self::open(Path::new("/"))?;
        // What is mounted on demand is there then.
        machine.resolve(&path, OFlags::DIRECTORY)?;
        let (place, makers) = crate::stage::walk(&machine, &path)?;
        if !makers.may_lead_to(None) {
            return Err(Errno::ACCES);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&place.dir, &place.name, flags, Mode::empty())?)
    }

    /// Opens a file as `open(2)` does. Descriptors are closed on exec and never become a
    /// controlling terminal; `mode` counts only when a file is created, and the umask applies.
    ///
    /// # Errors
    /// Those of `open(2)`; `ELOOP` when the path leads through a magic link.
    pub fn open_file(&self, path: &Path, flags: OFlags, mode: Mode) -> Result<File> {
        let flags = requested(flags);
        if flags.contains(OFlags::CREATE | OFlags::DIRECTORY) {
            // Before Linux 6.3 the kernel made a file and failed.
            return Err(Errno::INVAL);
        }
        let creates = flags.intersects(OFlags::CREATE) || flags.contains(OFlags::TMPFILE);
        // The kernel refuses a mode that means nothing; open(2) ignores it.
        let mode = if creates { mode & Mode::from_bits_retain(0o7777) } else { Mode::empty() };
        let changes = creates || flags.intersects(OFlags::WRONLY | OFlags::RDWR);
        if changes && sheaf_core::place::worker().is_some() {
            // On a frozen file system it is the opening that hangs.
            self.enter_file_system(path, flags & OFlags::NOFOLLOW)?;
        }
        // With `O_PATH` the kernel refuses flags that mean nothing, too.
        let extra = if flags.contains(OFlags::PATH) { OFlags::empty() } else { OFlags::NOCTTY };
        Ok(File::from(self.openat2(path, flags | extra, mode)?))
    }

    /// Opens a file for reading, so that neither the open nor a read blocks the server: a named
    /// pipe without a writer reads as empty, a device without data gives `EAGAIN`.
    ///
    /// # Errors
    /// As [`Export::open_file`]; `EISDIR` for a directory.
    pub fn open_read(&self, path: &Path) -> Result<File> {
        let file = self.open_file(path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())?;
        if fd_metadata(file.as_fd())?.is_dir() {
            return Err(Errno::ISDIR);
        }
        Ok(file)
    }

    /// As [`Export::open_read`], for whoever reads a file as a whole: a pipe in which there is
    /// nothing is not an empty file.
    ///
    /// # Errors
    /// Those of [`Export::open_read`]; `EAGAIN` for such a pipe.
    pub fn open_ready(&self, path: &Path) -> Result<File> {
        let file = self.open_read(path)?;
        if is_empty_pipe(&file)? { Err(Errno::AGAIN) } else { Ok(file) }
    }

    /// What `stat(2)` tells; symbolic links are followed.
    ///
    /// # Errors
    /// Those of `stat(2)`.
    pub fn stat(&self, path: &Path) -> Result<Metadata> {
        fd_metadata(self.resolve_to_look(path, OFlags::empty())?.as_fd())
    }

    /// What `lstat(2)` tells; a final symbolic link is described itself.
    ///
    /// # Errors
    /// Those of `lstat(2)`.
    pub fn lstat(&self, path: &Path) -> Result<Metadata> {
        fd_metadata(self.resolve_to_look(path, OFlags::NOFOLLOW)?.as_fd())
    }

    /// Where a symbolic link points: its text, not resolved.
    ///
    /// # Errors
    /// `EINVAL` when it is not a symbolic link, and those of `readlink(2)`.
    pub fn read_link(&self, path: &Path) -> Result<PathBuf> {
        link_target(&self.resolve(path, OFlags::NOFOLLOW)?)
    }

    /// The entries of a directory without `.` and `..`, sorted bytewise by name.
    ///
    /// # Errors
    /// `EOVERFLOW` for more than [`DIR_ENTRIES_MAX`](crate::DIR_ENTRIES_MAX) entries, and those of
    /// `open(2)` and `getdents(2)`.
    pub fn read_dir(&self, path: &Path) -> Result<Vec<DirEntry>> {
        dir::read_sorted(&self.open_dir(path)?)
    }

    /// The entries of a directory as an iterator, for directories of any size.
    ///
    /// # Errors
    /// Those of `open(2)`; for an entry, those of `getdents(2)`.
    pub fn entries(&self, path: &Path) -> Result<DirEntries> {
        Ok(DirEntries(Dir::new(self.open_dir(path)?)?))
    }

    /// A directory opened for reading its entries.
    pub(crate) fn open_dir(&self, path: &Path) -> Result<OwnedFd> {
        self.openat2(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
    }

    /// This export with another directory held.
    pub(crate) fn with_held_dir(&self, held: Arc<HeldDir>) -> Self {
        Self { root: Arc::clone(&self.root), device: self.device, held: Some(held) }
    }

    /// A descriptor that only names the file (`O_PATH`).
    pub(crate) fn resolve(&self, path: &Path, flags: OFlags) -> Result<OwnedFd> {
        self.openat2(path, flags | OFlags::PATH, Mode::empty())
    }

    /// A directory, by a path on which there is no symbolic link (`ELOOP`).
    pub(crate) fn resolve_straight(&self, path: &Path) -> Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
        let found = self.openat2_in_pieces(path, flags, Mode::empty(), within)?;
        unless_view(found, self.device)
    }

    /// Whether a link on this path leads out of the directory in which paths begin: in an export it is resolved within,
    /// but on this machine it means another file.
    #[must_use]
    pub fn leads_out(&self, path: &Path) -> bool {
        let path = path.strip_prefix("/").unwrap_or(path);
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let found = openat2(self.root.as_fd(), path, flags, Mode::empty(), ResolveFlags::BENEATH);
        found.is_err_and(|errno| errno == Errno::XDEV)
    }

    /// The directory in which all paths begin.
    pub(crate) fn top(&self) -> Result<OwnedFd> {
        Ok(rustix::io::fcntl_dupfd_cloexec(&*self.root, 0)?)
    }

    /// What has this name in a directory beneath the export, as a descriptor that only names it: a link is
    /// itself.
    pub(crate) fn step(&self, dir: &OwnedFd, name: &OsStr) -> Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        let within = ResolveFlags::BENEATH;
        let found = openat2(dir.as_fd(), Path::new(name), flags, Mode::empty(), within)?;
        unless_view(found, self.device)
    }

    /// The same for whoever asks only what the file is: a view is seen, and not entered.
    fn resolve_to_look(&self, path: &Path, flags: OFlags) -> Result<OwnedFd> {
        let flags = flags | OFlags::PATH;
        let found = door(path, flags, || self.openat2_anywhere(path, flags, Mode::empty()))?;
        let device = device_of(found.as_fd())?;
        let is_within = device != self.device && is_view(device)?;
        if is_within && !is_mount_point(found.as_fd())? { Err(Errno::VIEW) } else { Ok(found) }
    }

    /// The parent directory and the final name of `path`, for operations on names.
    ///
    /// Fails with `EINVAL` where no name is left: for `/`, and for paths that end in `.` or `..`,
    /// which an `*at` call would take outside the export.
    pub(crate) fn place(&self, path: &Path) -> Result<ExportPlace> {
        let bytes = path.as_os_str().as_bytes();
        let length = bytes.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
        if bytes.is_empty() {
            return Err(Errno::NOENT);
        }
        let start =
            bytes[..length].iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
        let name = &bytes[start..length];
        if matches!(name, b"" | b"." | b"..") {
            return Err(Errno::INVAL);
        }
        let parent = if start == 0 { b"." } else { &bytes[..start] };
        let dir = self.resolve(Path::new(OsStr::from_bytes(parent)), OFlags::DIRECTORY)?;
        fd_metadata(dir.as_fd())?;
        let name = OsStr::from_bytes(name).to_os_string();
        Ok(ExportPlace { dir, name, must_be_dir: length < bytes.len() })
    }

    /// Says in which file system a file is about to be opened, or made.
    fn enter_file_system(&self, path: &Path, flags: OFlags) -> Result<()> {
        let found = |path| self.openat2_unobserved(path, flags | OFlags::PATH, Mode::empty());
        // Why nothing is found is said by whatever opens it.
        let file = found(path).or_else(|_| found(crate::held::parent(path)));
        file.map_or(Ok(()), |file| fd_metadata(file.as_fd()).map(drop))
    }

    /// The device of the root.
    pub(crate) fn device(&self) -> u64 {
        self.device
    }

    /// The one door to what is beneath the export. No view that is mounted there is entered.
    fn openat2(&self, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
        door(path, flags, || self.openat2_unobserved(path, flags, mode))
    }

    fn openat2_unobserved(&self, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
        if is_any_view()? {
            self.check_outside_views(path, flags)?;
        }
        self.openat2_anywhere(path, flags, mode)
    }

    /// Refuses what leads into a view, before anything there is asked for or changed.
    fn check_outside_views(&self, path: &Path, flags: OFlags) -> Result<()> {
        let flags = flags & OFlags::NOFOLLOW | OFlags::PATH;
        let found = |path| self.openat2_anywhere(path, flags, Mode::empty());
        // Why nothing is found is said by whoever opens it.
        match found(path).or_else(|_| found(crate::held::parent(path))) {
            Ok(found) => unless_view(found, self.device).map(drop),
            Err(_) => Ok(()),
        }
    }

    /// The same, also within a view.
    fn openat2_anywhere(&self, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
        if let Some((dir, rest)) = self.held.as_ref().and_then(|held| held.leads_to(path)) {
            let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            match openat2(dir, rest, flags, mode, within) {
                // A link at the end of the path is followed from the root, if it is followed.
                Err(Errno::LOOP) if !flags.contains(OFlags::NOFOLLOW) || ends_in_slash(rest) => {}
                opened => return opened,
            }
        }
        match path.as_os_str().len() {
            ..=PATH_BYTES_MAX => {
                openat2(self.root.as_fd(), path, flags, mode, ResolveFlags::IN_ROOT)
            }
            _ => self.openat2_in_pieces(path, flags, mode, ResolveFlags::IN_ROOT),
        }
    }

    /// Resolves a path that is longer than the kernel takes at once, a piece from the directory
    /// that the one before has led to. From the second on `..` and links may not leave that
    /// directory, since what they mean is known only from the root: such a path is too long
    /// (`ENAMETOOLONG`).
    fn openat2_in_pieces(
        &self,
        path: &Path,
        flags: OFlags,
        mode: Mode,
        within: ResolveFlags,
    ) -> Result<OwnedFd> {
        let mut rest = path.as_os_str().as_bytes();
        let mut reached: Option<OwnedFd> = None;
        let step = |from: Option<&OwnedFd>, piece: &[u8], flags: OFlags, mode: Mode| {
            let piece = Path::new(OsStr::from_bytes(piece));
            match from {
                None => openat2(self.root.as_fd(), piece, flags, mode, within),
                Some(dir) => {
                    let within = (within - ResolveFlags::IN_ROOT) | ResolveFlags::BENEATH;
                    match openat2(dir.as_fd(), piece, flags, mode, within) {
                        Err(Errno::XDEV) => Err(Errno::NAMETOOLONG),
                        done => done,
                    }
                }
            }
        };
        while rest.len() > PATH_BYTES_MAX {
            let cut = rest[..PATH_BYTES_MAX]
                .iter()
                .rposition(|&byte| byte == b'/')
                .ok_or(Errno::NAMETOOLONG)?;
            let dir = OFlags::PATH | OFlags::DIRECTORY;
            reached = Some(step(reached.as_ref(), &rest[..=cut], dir, Mode::empty())?);
            let next = rest[cut..]
                .iter()
                .position(|&byte| byte != b'/')
                .map_or(rest.len(), |skip| cut + skip);
            rest = &rest[next..];
        }
        step(reached.as_ref(), if rest.is_empty() { b"." } else { rest }, flags, mode)
    }
}

/// Whether a path asks for a directory, for which the system follows a link at its end.
fn ends_in_slash(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b"/")
}

/// Opens, and tells the observer.
fn door(path: &Path, flags: OFlags, open: impl FnOnce() -> Result<OwnedFd>) -> Result<OwnedFd> {
    let begun =
        || Begun { name: path.as_os_str().as_bytes(), ..Begun::new(kind_of(flags), Layer::File) };
    let observed = observer::observe(begun);
    let opened = open();
    observed.end(|| Ending::of(&opened));
    opened
}

impl ExportPlace {
    /// Where the link at this place leads to; nothing if there is none.
    ///
    /// In a directory in which everybody may make names, a link of somebody else is not followed
    /// (`EACCES`), as the kernel has it where `fs.protected_symlinks` is set. Owner and text are those of
    /// one link, whatever takes its place meanwhile.
    pub(crate) fn link_to_follow(&self) -> Result<Option<PathBuf>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = match rustix::fs::openat(&self.dir, &self.name, flags, Mode::empty()) {
            Ok(found) => found,
            Err(SysErrno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let link = fd_metadata(found.as_fd())?;
        if link.kind != FileKind::Symlink {
            return Ok(None);
        }
        let dir = fd_metadata(self.dir.as_fd())?;
        let is_trusted = [rustix::process::geteuid().as_raw(), dir.uid].contains(&link.uid);
        if dir.mode & 0o1002 == 0o1002 && !is_trusted {
            return Err(Errno::ACCES);
        }
        link_target(&found).map(Some)
    }
}

/// Where the link that this `O_PATH` descriptor names points; `EINVAL` when it is none.
pub(crate) fn link_target(link: impl AsFd) -> Result<PathBuf> {
    if fd_metadata(link.as_fd())?.kind != FileKind::Symlink {
        return Err(Errno::INVAL);
    }
    let target = rustix::fs::readlinkat(link.as_fd(), "", Vec::new())?;
    Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
}

/// What an observer is told of opening with these flags.
fn kind_of(flags: OFlags) -> &'static str {
    if flags.contains(OFlags::PATH) {
        "file.resolve"
    } else if flags.contains(OFlags::DIRECTORY) {
        "file.list"
    } else {
        "file.open"
    }
}

/// `openat2(2)` without magic links, tried again where the kernel asks for that; what shows this
/// process to a user whom it serves is `EACCES`.
fn openat2(
    dir: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    mode: Mode,
    within: ResolveFlags,
) -> Result<OwnedFd> {
    let (flags, within) = (flags | OFlags::CLOEXEC, within | ResolveFlags::NO_MAGICLINKS);
    let mut tries = RESOLVE_TRIES_MAX;
    let open = |flags| {
        loop {
            tries -= usize::from(tries > 0);
            match rustix::fs::openat2(dir, path, flags, mode, within) {
                Err(SysErrno::INTR | SysErrno::AGAIN) if tries > 0 => {}
                done => return done,
            }
        }
    };
    if flags.contains(OFlags::CREATE) {
        // No file is made that cannot be kept open.
        check_descriptor(dir)?;
    }
    unless_itself(outlasting_leases(flags, open)?)
}

/// The flags as `open(2)` takes them. It ignores those that it does not know, and with `O_PATH`
/// those that mean nothing then; `openat2(2)` refuses both.
pub(crate) fn requested(flags: OFlags) -> OFlags {
    const BY_NAME: OFlags =
        OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
    const KNOWN: OFlags = BY_NAME
        .union(OFlags::ACCMODE)
        .union(OFlags::CREATE)
        .union(OFlags::EXCL)
        .union(OFlags::NOCTTY)
        .union(OFlags::TRUNC)
        .union(OFlags::APPEND)
        .union(OFlags::NONBLOCK)
        .union(OFlags::SYNC)
        .union(OFlags::ASYNC)
        .union(OFlags::DIRECT)
        .union(OFlags::LARGEFILE)
        .union(OFlags::NOATIME)
        .union(OFlags::TMPFILE);
    flags & if flags.contains(OFlags::PATH) { BY_NAME } else { KNOWN }
}

/// What `fstat` tells about an open file, `O_PATH` included. What is done with the file afterwards
/// may hang in its file system, which is why a thread says here where it is about to work.
///
/// # Errors
/// Those of `statx(2)`; `EAGAIN` where too many threads hang in that file system.
pub(crate) fn fd_metadata(file: BorrowedFd<'_>) -> Result<Metadata> {
    let metadata = statx(file, OsStr::new(""), AtFlags::EMPTY_PATH)?;
    sheaf_core::place::enter(metadata.dev)?;
    Ok(metadata)
}

/// What `lstat` tells about one name of a directory.
pub(crate) fn name_metadata(dir: BorrowedFd<'_>, name: &OsStr) -> Result<Metadata> {
    statx(dir, name, AtFlags::SYMLINK_NOFOLLOW)
}

/// Which mount an open file was reached through; where the kernel does not say (before Linux 5.8),
/// the device that holds it.
pub(crate) fn mount_id(file: BorrowedFd<'_>) -> Result<u64> {
    mount_id_at(file, OsStr::new(""), AtFlags::EMPTY_PATH)
}

/// As [`mount_id`], of a name in a directory, links not followed.
pub(crate) fn name_mount_id(dir: BorrowedFd<'_>, name: &OsStr) -> Result<u64> {
    mount_id_at(dir, name, AtFlags::SYMLINK_NOFOLLOW)
}

fn mount_id_at(dir: BorrowedFd<'_>, name: &OsStr, flags: AtFlags) -> Result<u64> {
    let wanted = StatxFlags::MNT_ID | StatxFlags::TYPE;
    let found = rustix::fs::statx(dir, name, flags | AtFlags::NO_AUTOMOUNT, wanted)?;
    let is_known = found.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    Ok(if is_known { found.stx_mnt_id } else { statx(dir, name, flags)?.dev })
}

fn statx(dir: BorrowedFd<'_>, name: &OsStr, flags: AtFlags) -> Result<Metadata> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    Ok(rustix::fs::statx(dir, name, flags | AtFlags::NO_AUTOMOUNT, wanted)?.into())
}
