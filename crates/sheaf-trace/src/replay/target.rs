//! The directory that a replay does not leave.
use super::call_time::timed;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::{Errno, Result};
use sheaf_log::TraceError;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The name of the file that says that a directory was made for replays.
pub(super) const MARK: &str = ".sheaf-replay";
const MARK_TEXT: &[u8] =
    b"This directory is used for replays of traces: what is in it is made and removed by them.\n";
/// How often a resolution is tried again that was disturbed.
const TRIES_MAX: usize = 64;

/// All paths are beneath the directory, and as [`PathMap`](super::paths::PathMap) gives them.
#[derive(Debug)]
pub(super) struct ReplayTarget {
    root: OwnedFd,
    path: PathBuf,
}

fn path_of(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// The directory of a path, and the name in it; the target itself has none.
fn split(path: &[u8]) -> Result<(&[u8], &[u8])> {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => Ok((&path[..slash], &path[slash + 1..])),
        None if path == b"." => Err(Errno::BUSY),
        None => Ok((b".", path)),
    }
}

impl ReplayTarget {
    pub fn open(path: &Path, create: bool) -> std::result::Result<Self, TraceError> {
        if create {
            std::fs::create_dir_all(path).map_err(TraceError::io(path))?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let error = |errno: Errno| TraceError::io(path)(errno.into());
        let root = rustix::fs::open(path, flags, Mode::empty()).map_err(error)?;
        let target = Self { root, path: path.to_owned() };
        // A replay removes files, so it never uses a directory that contains other ones.
        if target.is_empty().map_err(error)? {
            target.mark().map_err(TraceError::io(path))?;
        } else if !target.is_marked().map_err(TraceError::io(path))? {
            let why = format!("it is not empty, and no earlier replay has used it ({MARK})");
            return Err(TraceError::damaged(path, why));
        }
        Ok(target)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file, for messages.
    pub fn full(&self, path: &[u8]) -> PathBuf {
        self.path.join(path_of(path))
    }

    fn is_empty(&self) -> Result<bool> {
        for entry in Dir::read_from(&self.root)? {
            if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn mark(&self) -> std::io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        std::fs::File::from(self.openat2(MARK.as_bytes(), flags)?).write_all(MARK_TEXT)
    }

    fn is_marked(&self) -> std::io::Result<bool> {
        let file = match self.file(MARK.as_bytes(), OFlags::RDONLY) {
            Ok(file) => std::fs::File::from(file),
            Err(Errno::NOENT | Errno::LOOP) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let mut text = Vec::new();
        file.take(MARK_TEXT.len() as u64 + 1).read_to_end(&mut text)?;
        Ok(text == MARK_TEXT)
    }

    /// The one door to what is beneath.
    fn openat2(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd> {
        const WITHIN: ResolveFlags = ResolveFlags::BENEATH
            .union(ResolveFlags::NO_SYMLINKS)
            .union(ResolveFlags::NO_MAGICLINKS)
            .union(ResolveFlags::NO_XDEV);
        let is_made = flags.contains(OFlags::CREATE);
        let mode = if is_made { Mode::from_raw_mode(0o644) } else { Mode::empty() };
        let extra = if flags.contains(OFlags::PATH) {
            OFlags::CLOEXEC
        } else {
            // Neither a pipe nor a device keeps it waiting, until it is seen to be one.
            OFlags::CLOEXEC.union(OFlags::NONBLOCK).union(OFlags::NOCTTY)
        };
        let mut last = Errno::AGAIN;
        for _ in 0..TRIES_MAX {
            match rustix::fs::openat2(&self.root, path_of(path), flags | extra, mode, WITHIN) {
                Err(errno @ (Errno::INTR | Errno::AGAIN)) => last = errno,
                done => return done,
            }
        }
        Err(last)
    }

    /// Opens a file or a directory; `ELOOP` for anything else, and for a file that has another name
    /// somewhere.
    pub fn file(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd> {
        let file = timed(|| self.openat2(path, flags))?;
        let stat = rustix::fs::fstat(&file)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Ok(file),
            FileType::RegularFile if stat.st_nlink <= 1 => Ok(file),
            _ => Err(Errno::LOOP),
        }
    }

    /// A directory, opened to be listed.
    pub fn directory(&self, path: &[u8]) -> Result<OwnedFd> {
        timed(|| self.openat2(path, OFlags::RDONLY | OFlags::DIRECTORY))
    }

    /// The directory in which a path's last name is; that is never a link that would be followed.
    fn parent<'a>(&self, path: &'a [u8]) -> Result<(OwnedFd, &'a Path)> {
        let (directory, name) = split(path)?;
        Ok((self.openat2(directory, OFlags::PATH | OFlags::DIRECTORY)?, path_of(name)))
    }

    pub fn make_directory(&self, path: &[u8]) -> Result<()> {
        if path == b"." {
            return Err(Errno::EXIST);
        }
        let (parent, name) = self.parent(path)?;
        timed(|| rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755)))
    }

    pub fn remove_directory(&self, path: &[u8]) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        timed(|| rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR))
    }

    pub fn remove(&self, path: &[u8]) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        timed(|| rustix::fs::unlinkat(&parent, name, AtFlags::empty()))
    }

    pub fn rename(&self, path: &[u8], new_path: &[u8]) -> Result<()> {
        let (from, name) = self.parent(path)?;
        let (to, new_name) = self.parent(new_path)?;
        timed(|| rustix::fs::renameat(&from, name, &to, new_name))
    }

    pub fn stat(&self, path: &[u8]) -> Result<Stat> {
        if path == b"." {
            return timed(|| rustix::fs::fstat(&self.root));
        }
        let (parent, name) = self.parent(path)?;
        timed(|| rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW))
    }
}
