//! An open directory of this user, from which files are removed by their names.
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2, statat,
    unlinkat,
};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Directories of Sheaf lie within each other no deeper.
const DEPTH_MAX: u32 = 16;
const OTHERS_WRITE: u32 = 0o022;

/// An open directory.
pub struct OpenDirectory {
    fd: OwnedFd,
    path: PathBuf,
}

impl OpenDirectory {
    /// Opens a directory of any user; `None` if there is none.
    pub fn open(path: &Path) -> io::Result<Option<Self>> {
        match openat(rustix::fs::CWD, path, flags(), Mode::empty()) {
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
            Ok(fd) => Ok(Some(Self { fd, path: path.to_owned() })),
        }
    }

    /// Opens a directory that belongs to this user, and to which no other user can write. A symbolic
    /// link is refused.
    pub fn open_own(path: &Path) -> io::Result<Option<Self>> {
        match openat(rustix::fs::CWD, path, flags() | OFlags::NOFOLLOW, Mode::empty()) {
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(refusal(errno)),
            Ok(fd) => Self { fd, path: path.to_owned() }.checked().map(Some),
        }
    }

    /// [`OpenDirectory::open_own`], of a name in this directory and on the same file system.
    pub fn open_within(&self, name: &OsStr) -> io::Result<Self> {
        let fd = self.open_name(name, flags() | OFlags::NOFOLLOW);
        Self { fd: fd.map_err(refusal)?, path: self.path.join(name) }.checked()
    }

    /// Opens a file of this directory for reading.
    pub fn open_file(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
        Ok(self.open_name(name, flags).map_err(refusal)?.into())
    }

    /// Opens a name of this directory, unless something is mounted there: also by a bind mount, which has
    /// the same device.
    fn open_name(&self, name: &OsStr, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        openat2(&self.fd, name, flags, Mode::empty(), ResolveFlags::NO_XDEV | ResolveFlags::BENEATH)
    }

    fn checked(self) -> io::Result<Self> {
        let stat = fstat(&self.fd)?;
        if stat.st_uid != rustix::process::geteuid().as_raw() {
            let why = format!("the directory belongs to user {}, not to you", stat.st_uid);
            return Err(io::Error::other(why));
        }
        if stat.st_mode & OTHERS_WRITE != 0 {
            return Err(io::Error::other("other users can write to this directory"));
        }
        Ok(self)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path that leads to this directory whatever happens to its name.
    pub fn stable_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.fd.as_raw_fd()))
    }

    /// The names of its entries, sorted.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.fd)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        names.sort();
        Ok(names)
    }

    /// The attributes of an entry, which is not followed; `None` if it does not exist.
    pub fn stat(&self, name: &OsStr) -> io::Result<Option<Stat>> {
        match statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(None),
            stat => Ok(Some(stat?)),
        }
    }

    /// Removes an entry that is no directory.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.fd, name, AtFlags::empty())?)
    }

    /// Removes a directory that is empty.
    pub fn remove_empty(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.fd, name, AtFlags::REMOVEDIR)?)
    }

    /// Removes all entries.
    pub fn remove_all(&self) -> io::Result<()> {
        self.each(0, &mut |directory, name, stat| match is_directory(stat) {
            true => directory.remove_empty(name),
            false => directory.remove(name),
        })
    }

    /// The number of bytes that all entries take.
    pub fn bytes(&self) -> io::Result<u64> {
        let mut bytes = 0;
        self.each(0, &mut |_, _, stat| {
            bytes += bytes_of(stat);
            Ok(())
        })?;
        Ok(bytes)
    }

    /// Calls `act` for each entry, for those within a directory before the directory.
    fn each(
        &self,
        depth: u32,
        act: &mut dyn FnMut(&Self, &OsStr, &Stat) -> io::Result<()>,
    ) -> io::Result<()> {
        if depth == DEPTH_MAX {
            return Err(io::Error::other("its directories are too deep"));
        }
        for name in self.names()? {
            let Some(stat) = self.stat(&name)? else { continue };
            if is_directory(&stat) {
                self.open_within(&name)?.each(depth + 1, act)?;
            }
            act(self, &name, &stat)?;
        }
        Ok(())
    }
}

impl AsFd for OpenDirectory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK
}

fn refusal(errno: Errno) -> io::Error {
    match errno {
        Errno::LOOP | Errno::NOTDIR => {
            io::Error::other("it is not a directory, and a symbolic link is not followed")
        }
        Errno::XDEV => io::Error::other("a file system is mounted there"),
        errno => errno.into(),
    }
}

pub fn is_directory(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

pub fn is_symlink(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Symlink
}

/// The number of bytes that a file takes from its file system.
pub fn bytes_of(stat: &Stat) -> u64 {
    const BLOCK_BYTES: u64 = 512;
    u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(BLOCK_BYTES)
}
