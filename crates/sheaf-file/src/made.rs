//! A directory, link or special file that was made a moment ago, as a descriptor.
//!
//! The kernel makes these by name and gives no descriptor, so they are opened by that name. Whoever else may
//! rename in the directory can put another file in the place meanwhile, and what is then done to the new file
//! would be done to that one. So what is opened has to be as the new one is: nobody gains by another one
//! that is the same.

use crate::Result;
use crate::export::{fd_metadata, link_target};
use crate::held::FoundFile;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Dir, Mode, OFlags};
use sheaf_core::Errno;
use sheaf_core::files::FileKind;
use std::ffi::OsStr;
use std::path::Path;

/// In a directory with one of these bits others than the owner may make names.
const OTHERS: u32 = 0o0022;
/// In one with this bit, too, each may move its own only.
const STICKY: u32 = 0o1000;

/// What has this name in an open directory; a link is itself.
pub(crate) fn open_in(dir: impl AsFd, name: &OsStr, flags: OFlags) -> Result<FoundFile> {
    let flags = flags | OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    FoundFile::new(rustix::fs::openat(dir, name, flags, Mode::empty())?)
}

/// The directory that was made with this name.
///
/// # Errors
/// `ENOTDIR` for what is none; `ESTALE` for one that is not empty.
pub(crate) fn made_dir(dir: impl AsFd, name: &OsStr) -> Result<FoundFile> {
    let made = open_in(&dir, name, OFlags::DIRECTORY)?;
    unless_exchanged(dir, made, |made| is_empty(made.as_fd()))
}

/// The same of a symbolic link with this text.
pub(crate) fn made_link(dir: impl AsFd, name: &OsStr, target: &Path) -> Result<FoundFile> {
    let made = open_in(&dir, name, OFlags::empty())?;
    unless_exchanged(dir, made, |made| {
        let about = made.metadata();
        let is_link = about.kind == FileKind::Symlink && about.nlink == 1;
        Ok(is_link && link_target(made.as_fd())?.as_path() == target)
    })
}

/// The same of a named pipe or a device with this number.
pub(crate) fn made_node(
    dir: impl AsFd,
    name: &OsStr,
    kind: FileKind,
    rdev: u64,
) -> Result<FoundFile> {
    let made = open_in(&dir, name, OFlags::empty())?;
    unless_exchanged(dir, made, |made| {
        let about = made.metadata();
        // Whoever has opened a pipe reads what comes into it.
        let is_own = about.uid == rustix::process::geteuid().as_raw() && about.nlink == 1;
        let is_same = about.kind == kind && (kind == FileKind::Fifo || about.rdev == rdev);
        Ok(is_own && is_same)
    })
}

fn unless_exchanged(
    dir: impl AsFd,
    made: FoundFile,
    is_such: impl Fn(&FoundFile) -> Result<bool>,
) -> Result<FoundFile> {
    if others_may_move(dir)? && !is_such(&made)? { Err(Errno::STALE) } else { Ok(made) }
}

/// Whether others than this user and root may put another file in the place of one in this directory.
fn others_may_move(dir: impl AsFd) -> Result<bool> {
    let dir = fd_metadata(dir.as_fd())?;
    let is_others = ![0, rustix::process::geteuid().as_raw()].contains(&dir.uid);
    Ok(is_others || (dir.mode & OTHERS != 0 && dir.mode & STICKY == 0))
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
            let name = OsStr::new;
            assert_eq!(status(made_dir(&open, name("full"))), stale, "{mode:o}");
            assert_eq!(status(made_dir(&open, name("new"))), None);
            assert_eq!(status(made_dir(&open, name("link"))), Some(Errno::NOTDIR));
            let link = |at, to| status(made_link(&open, name(at), Path::new(to)));
            assert_eq!([link("link", "to"), link("link", "elsewhere")], [None, stale], "{mode:o}");
            assert_eq!([link("second", "to"), link("file", "to")], [stale; 2], "{mode:o}");
            let node = |at, kind| status(made_node(&open, name(at), kind, 0));
            assert_eq!(node("fifo", FileKind::Fifo), None);
            assert_eq!(node("fifo", FileKind::CharDevice), stale, "{mode:o}");
            assert_eq!(node("file", FileKind::Fifo), stale, "{mode:o}");
        }
    }
}
