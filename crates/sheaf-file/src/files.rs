//! An export and a directory of this machine as [`Files`].

use crate::export::{door, fd_metadata, link_target};
use crate::{Export, Metadata, Result};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, Dir, Mode, OFlags};
use sheaf_core::Errno;
use sheaf_core::files::{DirEntry, Files, Listing, OpenFile};
use sheaf_core::observer::{self, Begun, Ending, Layer};
use std::ffi::OsStr;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A directory of this machine. Unlike beneath an [`Export`], links and `..` lead wherever they
/// lead on this machine: it is for files that their reader may see anyway, and serves nobody else.
///
/// It stays that directory when its name goes to another one. A clone is a pointer.
#[derive(Clone, Debug)]
pub struct LocalDirectory {
    root: Arc<OwnedFd>,
}

impl LocalDirectory {
    /// The directory of this name.
    ///
    /// # Errors
    /// Those of `open(2)`; `ENOTDIR` when it is not a directory.
    pub fn open(root: &Path) -> Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { root: Arc::new(rustix::fs::openat(CWD, root, flags, Mode::empty())?) })
    }

    fn open_at(&self, path: &Path, flags: OFlags) -> Result<OwnedFd> {
        let bytes = path.as_os_str().as_bytes();
        let beneath =
            bytes.iter().position(|&byte| byte != b'/').map_or(&b"."[..], |start| &bytes[start..]);
        let beneath = if bytes.is_empty() { bytes } else { beneath };
        let open =
            || rustix::fs::openat(&*self.root, OsStr::from_bytes(beneath), flags, Mode::empty());
        let flags = flags | OFlags::CLOEXEC;
        door(path, flags, || Ok(rustix::io::retry_on_intr(open)?))
    }
}

impl Files for LocalDirectory {
    fn open(&self, path: &Path) -> Result<Box<dyn OpenFile>> {
        let file = self.open_at(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        if fd_metadata(file.as_fd())?.is_dir() {
            return Err(Errno::ISDIR);
        }
        Ok(Box::new(LocalFile { file: file.into(), path: path.to_owned() }))
    }

    fn list(&self, path: &Path) -> Result<Listing> {
        Ok(Box::new(Entries(Dir::new(self.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY)?)?)))
    }

    fn stat(&self, path: &Path) -> Result<Metadata> {
        fd_metadata(self.open_at(path, OFlags::PATH)?.as_fd())
    }

    fn lstat(&self, path: &Path) -> Result<Metadata> {
        fd_metadata(self.open_at(path, OFlags::PATH | OFlags::NOFOLLOW)?.as_fd())
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf> {
        link_target(&self.open_at(path, OFlags::PATH | OFlags::NOFOLLOW)?)
    }
}

/// Paths are resolved beneath the export, and nothing leads out.
impl Files for Export {
    fn open(&self, path: &Path) -> Result<Box<dyn OpenFile>> {
        Ok(Box::new(LocalFile { file: self.open_read(path)?, path: path.to_owned() }))
    }

    fn list(&self, path: &Path) -> Result<Listing> {
        Ok(Box::new(Entries(Dir::new(self.open_dir(path)?)?)))
    }

    fn stat(&self, path: &Path) -> Result<Metadata> {
        Self::stat(self, path)
    }

    fn lstat(&self, path: &Path) -> Result<Metadata> {
        Self::lstat(self, path)
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf> {
        Self::read_link(self, path)
    }
}

/// An open file of this machine.
struct LocalFile {
    file: File,
    /// What it was opened as, for whoever observes it.
    path: PathBuf,
}

impl OpenFile for LocalFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let observed = observer::observe(|| Begun {
            name: self.path.as_os_str().as_bytes(),
            offset: Some(offset),
            asked: buffer.len() as u64,
            ..Begun::new("file.pread", Layer::File)
        });
        let read = loop {
            match self.file.read_at(buffer, offset) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read.map_err(Errno::from),
            }
        };
        observed.end(|| match read {
            Ok(bytes) => Ending::done(bytes as u64),
            Err(errno) => Ending::failed(errno),
        });
        read
    }

    fn metadata(&self) -> Result<Metadata> {
        fd_metadata(self.file.as_fd())
    }
}

/// A directory that is being read.
struct Entries(Dir);

impl Iterator for Entries {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let entry = match self.0.next()? {
                Ok(entry) => entry,
                Err(errno) => return Some(Err(errno.into())),
            };
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                let name = OsStr::from_bytes(name).to_os_string();
                return Some(Ok(DirEntry {
                    name,
                    kind: entry.file_type().into(),
                    ino: entry.ino(),
                }));
            }
        }
    }
}
