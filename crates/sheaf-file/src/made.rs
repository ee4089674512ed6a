//! A directory, link or special file that was made a moment ago, as a descriptor.
//!
//! The kernel makes these by name and gives no descriptor, so they are opened by that name. Whoever else may
//! rename in the directory can put another file in the place meanwhile, and what is then done to the new file
//! would be done to that one. So what is opened has to be as the new one is, and no older.

use crate::Result;
use crate::export::fd_metadata;
use crate::held::FoundFile;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Dir, Mode, OFlags};
use sheaf_core::Errno;
use sheaf_core::files::{FileKind, Timestamp};
use std::ffi::OsStr;
use std::path::Path;

/// A directory in which something is about to be made.
pub(crate) struct Making<D> {
    dir: D,
    /// When it was last changed, if others than this user and root may put another file in the place of
    /// one in it.
    changed: Option<Timestamp>,
}

/// In a directory with one of these bits others than the owner may make names.
const OTHERS: u32 = 0o0022;
/// In one with this bit, too, each may move its own only.
const STICKY: u32 = 0o1000;

/// What has this name in an open directory; a link is itself.
pub(crate) fn open_in(dir: impl AsFd, name: &OsStr, flags: OFlags) -> Result<FoundFile> {
    let flags = flags | OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    FoundFile::new(rustix::fs::openat(dir, name, flags, Mode::empty())?)
}

impl<D: AsFd> Making<D> {
    pub fn in_dir(dir: D) -> Result<Self> {
        let about = fd_metadata(dir.as_fd())?;
        let is_others = ![0, rustix::process::geteuid().as_raw()].contains(&about.uid);
        let may_move = is_others || (about.mode & OTHERS != 0 && about.mode & STICKY == 0);
        Ok(Self { dir, changed: may_move.then_some(about.ctime) })
    }

    /// The directory that was made with this name.
    ///
    /// # Errors
    /// `ENOTDIR` for what is none; `ESTALE` for another one.
    pub fn made_dir(&self, name: &OsStr) -> Result<FoundFile> {
        let made = open_in(&self.dir, name, OFlags::DIRECTORY)?;
        self.unless_exchanged(made, |made| is_empty(made.as_fd()))
    }

    /// The same of a symbolic link with this text.
    pub fn made_link(&self, name: &OsStr, target: &Path) -> Result<FoundFile> {
        let made = open_in(&self.dir, name, OFlags::empty())?;
        self.unless_exchanged(made, |made| {
            let about = made.metadata();
            let is_link = about.kind == FileKind::Symlink && about.nlink == 1;
            Ok(is_link && made.link_target()?.as_path() == target)
        })
    }

    /// The same of a named pipe or a device with this number, and with no more rights than these.
    pub fn made_node(
        &self,
        name: &OsStr,
        kind: FileKind,
        mode: Mode,
        rdev: u64,
    ) -> Result<FoundFile> {
        let made = open_in(&self.dir, name, OFlags::empty())?;
        self.unless_exchanged(made, |made| {
            let about = made.metadata();
            // Whoever has opened a pipe reads what comes into it.
            let is_own = about.uid == rustix::process::geteuid().as_raw() && about.nlink == 1;
            let is_same = about.kind == kind && (kind == FileKind::Fifo || about.rdev == rdev);
            Ok(is_own && is_same && about.mode & !mode.as_raw_mode() == 0)
        })
    }

    fn unless_exchanged(
        &self,
        made: FoundFile,
        is_such: impl Fn(&FoundFile) -> Result<bool>,
    ) -> Result<FoundFile> {
        let Some(changed) = self.changed else { return Ok(made) };
        // What is new was made after the last change of the directory, by the clock of the same file system.
        let is_old = made.metadata().btime.is_some_and(|made| made < changed);
        if is_old || !is_such(&made)? { Err(Errno::STALE) } else { Ok(made) }
    }
}

fn is_empty(dir: impl AsFd) -> Result<bool> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened: OwnedFd = match rustix::fs::openat(dir, ".", flags, Mode::empty()) {
        // It was made without this right, and so another one without it is the same.
        Err(rustix::io::Errno::ACCESS) => return Ok(true),
        opened => opened?,
    };
    for entry in Dir::new(opened)? {
        if ![&b"."[..], b".."].contains(&entry?.file_name().to_bytes()) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// What has taken the place of a new file where others may move it is not taken for it.
    #[test]
    fn what_is_not_as_it_was_made_is_stale() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("full/of")).unwrap();
        std::fs::create_dir(at("new")).unwrap();
        std::fs::write(at("file"), "").unwrap();
        std::os::unix::fs::symlink("to", at("link")).unwrap();
        std::os::unix::fs::symlink("to", at("second")).unwrap();
        std::fs::hard_link(at("second"), at("third")).unwrap();
        let open = std::fs::File::open(dir.path()).unwrap();
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(&open, "fifo", fifo, Mode::RWXU, 0).unwrap();
        let status = |made: Result<FoundFile>| made.err();
        for (mode, stale) in [(0o777, Some(Errno::STALE)), (0o1777, None), (0o755, None)] {
            std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(mode)).unwrap();
            let mut making = Making::in_dir(&open).unwrap();
            // As if the directory had not been changed since these were made.
            making.changed = making.changed.map(|_| Timestamp { seconds: 0, nanoseconds: 0 });
            let name = OsStr::new;
            assert_eq!(status(making.made_dir(name("full"))), stale, "{mode:o}");
            assert_eq!(status(making.made_dir(name("new"))), None);
            assert_eq!(status(making.made_dir(name("link"))), Some(Errno::NOTDIR));
            let link = |at, to| status(making.made_link(name(at), Path::new(to)));
            assert_eq!([link("link", "to"), link("link", "elsewhere")], [None, stale], "{mode:o}");
            assert_eq!([link("second", "to"), link("file", "to")], [stale; 2], "{mode:o}");
            let node = |at, kind, mode| status(making.made_node(name(at), kind, mode, 0));
            assert_eq!(node("fifo", FileKind::Fifo, Mode::RWXU), None);
            assert_eq!(node("fifo", FileKind::Fifo, Mode::RUSR), stale, "{mode:o}");
            assert_eq!(node("fifo", FileKind::CharDevice, Mode::RWXU), stale, "{mode:o}");
            assert_eq!(node("file", FileKind::Fifo, Mode::RWXU), stale, "{mode:o}");
            // An older one is not the new one, although it is the same: the clock of the file system goes on.
            std::thread::sleep(std::time::Duration::from_millis(20));
            std::fs::write(at(&format!("changed{mode:o}")), "").unwrap();
            let making = Making::in_dir(&open).unwrap();
            if open_in(&open, name("new"), OFlags::empty()).unwrap().metadata().btime.is_some() {
                assert_eq!(status(making.made_dir(name("new"))), stale, "{mode:o}");
            }
            let newest = format!("newest{mode:o}");
            std::fs::create_dir(at(&newest)).unwrap();
            assert_eq!(status(making.made_dir(name(&newest))), None, "{mode:o}");
        }
    }
}
