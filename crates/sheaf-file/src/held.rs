//! A directory that stays the same one while a command works in it.
//!
//! Each operation of an [`Export`] resolves its path from the root. A user who owns a directory on
//! that path can put a symbolic link in its place between two operations, and the second operation
//! then acts on files elsewhere. An export that holds a directory resolves the directory's own path
//! and the paths of the names in it through one descriptor, so the link leads nowhere.

use crate::Result;
use crate::attributes::{ACCESS_LIST, Attributes, DEFAULT_LIST, Subject, apply, proc_path};
use crate::export::{Export, fd_metadata};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::OFlags;
use sheaf_core::files::Metadata;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A directory, and the path by which callers address it.
#[derive(Debug)]
pub(crate) struct HeldDir {
    path: PathBuf,
    dir: Arc<OwnedFd>,
}

/// One file, whatever becomes of its name.
#[derive(Debug)]
pub struct FoundFile {
    file: OwnedFd,
    metadata: Metadata,
}

impl Export {
    /// This export with the directory `path` held: `path`, and each path of one name in it, lead
    /// to this directory, also after another file has taken its place. A symbolic link at the end
    /// of such a path is followed from the root, as always. Only one directory is held.
    ///
    /// # Errors
    /// Those of `open(2)`; `ENOTDIR` for a symbolic link without `follow`.
    pub fn holding(&self, path: &Path, follow: bool) -> Result<Self> {
        let no_follow = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        let dir = self.resolve(path, OFlags::DIRECTORY | no_follow)?;
        Ok(self.with_held(path, Arc::new(dir)))
    }

    /// As [`Export::holding`], by a path on which no symbolic link is followed.
    ///
    /// # Errors
    /// Those of [`Export::holding`]; `ELOOP` for a path with a link.
    pub fn holding_straight(&self, path: &Path) -> Result<Self> {
        Ok(self.with_held(path, Arc::new(self.resolve_straight(path)?)))
    }

    /// This export with a directory held that was found, which callers address by `path`.
    #[must_use]
    pub fn holding_found(&self, path: &Path, found: FoundFile) -> Self {
        self.with_held(path, Arc::new(found.file))
    }

    /// This export with the directory `dir` held, which callers address by `path`.
    pub(crate) fn with_held(&self, path: &Path, dir: Arc<OwnedFd>) -> Self {
        self.with_held_dir(Arc::new(HeldDir { path: path.to_owned(), dir }))
    }

    /// Finds a file, or the link itself if `path` names one and `follow` is false. Whatever is done
    /// with the result is done to this file.
    ///
    /// # Errors
    /// Those of `open(2)` with `O_PATH`.
    pub fn find(&self, path: &Path, follow: bool) -> Result<FoundFile> {
        FoundFile::new(self.resolve(path, if follow { OFlags::empty() } else { OFlags::NOFOLLOW })?)
    }
}

/// Whether a file has an access control list; one of which that is not known may have.
pub(crate) fn has_access_list(file: &OwnedFd) -> bool {
    has_list(file, ACCESS_LIST).unwrap_or(true)
}

fn has_list(file: &OwnedFd, name: &[u8]) -> Result<bool> {
    let name = OsStr::from_bytes(name);
    match rustix::fs::getxattr(proc_path(file.as_fd()), name, &mut [0u8; 256][..]) {
        Ok(_) | Err(rustix::io::Errno::RANGE) => Ok(true),
        Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

impl FoundFile {
    pub(crate) fn new(file: OwnedFd) -> Result<Self> {
        let metadata = fd_metadata(file.as_fd())?;
        Ok(Self { file, metadata })
    }

    /// A file that is open.
    ///
    /// # Errors
    /// Those of `statx(2)`.
    pub fn of(file: impl Into<OwnedFd>) -> Result<Self> {
        Self::new(file.into())
    }

    /// Where a symbolic link points: its text, not resolved.
    ///
    /// # Errors
    /// `EINVAL` when it is not a symbolic link.
    pub fn link_target(&self) -> Result<PathBuf> {
        crate::export::link_target(&self.file)
    }

    /// The metadata of the file when it was found.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Whether new files in this directory get an access control list.
    ///
    /// # Errors
    /// Those of `getxattr(2)`; a file system without such lists has none.
    pub fn has_default_list(&self) -> Result<bool> {
        has_list(&self.file, DEFAULT_LIST)
    }

    /// Its descriptor, which is of a mere path (`O_PATH`) if it was found by that.
    #[must_use]
    pub fn into_descriptor(self) -> OwnedFd {
        self.file
    }

    /// Sets attributes of this file, as [`Export::set_attributes`] does.
    ///
    /// # Errors
    /// Those of [`Export::set_attributes`].
    pub fn set_attributes(&self, attributes: &Attributes) -> Result<()> {
        apply(Subject::Named(self.file.as_fd()), attributes)
    }
}

impl AsFd for FoundFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl HeldDir {
    /// The directory and the rest of `path`, if `path` is this directory or one name in it.
    pub fn leads_to<'a>(&'a self, path: &'a Path) -> Option<(BorrowedFd<'a>, &'a Path)> {
        if path == self.path {
            return Some((self.dir.as_fd(), Path::new(".")));
        }
        let (parent, name) = split(path);
        let trimmed = name.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
        if matches!(&name[..trimmed], b"" | b"." | b"..") || parent != self.path {
            return None;
        }
        Some((self.dir.as_fd(), Path::new(OsStr::from_bytes(name))))
    }
}

/// The path of the directory that holds the last name of `path`, and that name with the slashes
/// behind it.
fn split(path: &Path) -> (&Path, &[u8]) {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    let start = bytes[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    let parent: &[u8] = if start == 0 { b"." } else { &bytes[..start] };
    (Path::new(OsStr::from_bytes(parent)), &bytes[start..])
}

/// The path of the directory that holds the last name of `path`.
pub(crate) fn parent(path: &Path) -> &Path {
    split(path).0
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_core::Errno;

    #[test]
    fn held_directory_is_found_by_its_names_only() {
        let dir = Arc::new(rustix::fs::open("/", OFlags::PATH, rustix::fs::Mode::empty()).unwrap());
        let held = |path: &str| HeldDir { path: PathBuf::from(path), dir: Arc::clone(&dir) };
        let rest = |of: &str, path: &str| {
            held(of).leads_to(Path::new(path)).map(|(_, rest)| rest.to_str().unwrap().to_owned())
        };
        for (of, path, expected) in [
            ("/a/b", "/a/b", Some(".")),
            ("/a/b", "/a/b/", Some(".")),
            ("/a/b/", "/a/b/c", Some("c")),
            ("/a/b", "/a//b/c/", Some("c/")),
            (".", "c", Some("c")),
            (".", ".", Some(".")),
            ("/a/b", "/a/b/c/d", None),
            ("/a/b", "/a", None),
            ("/a/b", "/a/b/..", None),
            ("/a/b", "/a/c", None),
            ("/a/b", "a/b/c", None),
        ] {
            assert_eq!(rest(of, path).as_deref(), expected, "{path} in {of}");
        }
    }

    #[test]
    fn held_directory_stays_when_a_link_takes_its_place() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        for (path, text) in [("etc/f", "system"), ("home/d/f", "own")] {
            std::fs::create_dir_all(at(path).parent().unwrap()).unwrap();
            std::fs::write(at(path), text).unwrap();
        }
        let export = Export::open(root.path()).unwrap();
        let (dir, file) = (Path::new("/home/d"), Path::new("/home/d/f"));
        let here = export.holding(dir, false).unwrap();
        let system = export.stat(Path::new("/etc/f")).unwrap().id();
        std::fs::rename(at("home/d"), at("home/old")).unwrap();
        std::os::unix::fs::symlink("/etc", at("home/d")).unwrap();
        assert_eq!(export.stat(file).unwrap().id(), system);
        assert_ne!(here.stat(file).unwrap().id(), system);
        assert_eq!(here.read_dir(dir).unwrap().len(), 1);
        here.rename(file, Path::new("/home/d/g"), true).unwrap();
        here.create_dir(Path::new("/home/d/new"), rustix::fs::Mode::from_raw_mode(0o700)).unwrap();
        here.set_mode(dir, 0o711).unwrap();
        assert!(at("home/old/g").exists() && at("home/old/new").exists());
        assert_eq!(export.stat(Path::new("/home/old")).unwrap().mode, 0o711);
        assert!(at("etc/f").exists() && !at("etc/g").exists() && !at("etc/new").exists());
        assert_eq!(export.holding(dir, false).err(), Some(Errno::NOTDIR));
        assert_eq!(export.holding(dir, true).unwrap().stat(file).unwrap().id(), system);
    }

    #[test]
    fn link_in_a_held_directory_is_followed_from_the_root() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        std::fs::create_dir_all(at("d/sub")).unwrap();
        std::fs::write(at("d/f"), "in d").unwrap();
        std::fs::write(at("f"), "at the root").unwrap();
        for (name, target) in [("up", "../f"), ("down", "f"), ("root", "/f"), ("dir", "sub")] {
            std::os::unix::fs::symlink(target, at("d").join(name)).unwrap();
        }
        let export = Export::open(root.path()).unwrap();
        let here = export.holding(Path::new("d"), false).unwrap();
        for name in ["up", "down", "root", "dir", "dir/", "none"] {
            let path = Path::new("d").join(name);
            let id = |export: &Export| export.stat(&path).map(|stat| stat.id());
            let own = |export: &Export| export.lstat(&path).map(|stat| stat.id());
            assert_eq!((id(&here), own(&here)), (id(&export), own(&export)), "{name}");
            assert_eq!(here.read_link(&path), export.read_link(&path), "{name}");
        }
    }
}
