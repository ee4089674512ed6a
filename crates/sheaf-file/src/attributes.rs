//! Permissions, owners, times and extended attributes.

use crate::Result;
use crate::export::Export;
use crate::owner::Owner;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use serde::{Deserialize, Serialize};
use sheaf_core::Errno;
use sheaf_core::files::{Metadata, Timestamp};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The longest list of names and the longest value of an extended attribute Linux allows, in bytes.
const XATTR_BYTES_MAX: usize = 64 << 10;

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetTime {
    /// The host's present time.
    Now,
    /// A given time.
    At(Timestamp),
}

/// One extended attribute. Access control lists are among them: `system.posix_acl_access` and
/// `system.posix_acl_default`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Xattr {
    /// Its name with its namespace, as `user.comment`.
    pub name: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
}

/// What to set of a file besides its contents. The default changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// Permission bits, `0o7777`; the umask does not apply.
    pub mode: Option<u32>,
    /// Owner and group.
    pub owner: Owner,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of the contents.
    pub mtime: Option<SetTime>,
    /// Extended attributes to add or replace.
    pub xattrs: Vec<Xattr>,
    /// Access control lists, also those for new files of a directory, are removed if they are not
    /// among `xattrs`: a list that was there may give others what the mode denies them.
    pub sole_lists: bool,
}

impl Attributes {
    /// Permissions, owner and times of another file, as `cp -p` keeps them.
    #[must_use]
    pub fn of(metadata: &Metadata) -> Self {
        Self {
            mode: Some(metadata.mode),
            owner: Owner { uid: Some(metadata.uid), gid: Some(metadata.gid) },
            atime: Some(SetTime::At(metadata.atime)),
            mtime: Some(SetTime::At(metadata.mtime)),
            xattrs: Vec::new(),
            sole_lists: false,
        }
    }
}

impl Export {
    /// Sets attributes of a file; of the link itself, if `follow` is false and `path` names one
    /// (which has no permissions of its own: `EOPNOTSUPP`). An error leaves what was set before it,
    /// in the order owner, extended attributes, permissions, times.
    ///
    /// # Errors
    /// Those of `fchown(2)`, `setxattr(2)`, `chmod(2)` and `utimensat(2)`.
    pub fn set_attributes(&self, path: &Path, attributes: &Attributes, follow: bool) -> Result<()> {
        apply(Subject::Named(self.named(path, follow)?.as_fd()), attributes)
    }

    /// Sets the permission bits (`0o7777`); symbolic links are followed.
    ///
    /// # Errors
    /// Those of `chmod(2)`.
    pub fn set_mode(&self, path: &Path, mode: u32) -> Result<()> {
        self.set_attributes(path, &Attributes { mode: Some(mode), ..Default::default() }, true)
    }

    /// Sets owner and group; of the link itself, if `follow` is false and `path` names one.
    ///
    /// # Errors
    /// Those of `chown(2)`.
    pub fn set_owner(&self, path: &Path, owner: Owner, follow: bool) -> Result<()> {
        self.set_attributes(path, &Attributes { owner, ..Default::default() }, follow)
    }

    /// Removes one extended attribute.
    ///
    /// # Errors
    /// Those of `removexattr(2)`; `ENODATA` (61) when there is none of this name.
    pub fn remove_xattr(&self, path: &Path, name: &[u8], follow: bool) -> Result<()> {
        let file = self.named(path, follow)?;
        Ok(rustix::fs::removexattr(proc_path(file.as_fd()), OsStr::from_bytes(name))?)
    }

    fn named(&self, path: &Path, follow: bool) -> Result<OwnedFd> {
        self.resolve(path, if follow { OFlags::empty() } else { OFlags::NOFOLLOW })
    }
}

/// A file whose attributes are set.
#[derive(Clone, Copy)]
pub(crate) enum Subject<'a> {
    /// An ordinary descriptor.
    Open(BorrowedFd<'a>),
    /// An `O_PATH` descriptor, which `fchmod` and `fsetxattr` refuse: they go through `/proc`.
    Named(BorrowedFd<'a>),
}

/// Sets attributes in the order in which none undoes another: a change of owner clears set-id bits
/// and capabilities, a permission change must see the access control list, and times come last.
pub(crate) fn apply(target: Subject<'_>, attributes: &Attributes) -> Result<()> {
    let (Subject::Open(fd) | Subject::Named(fd)) = target;
    if attributes.owner != Owner::default() {
        let uid = attributes.owner.uid.map(Uid::from_raw);
        let gid = attributes.owner.gid.map(Gid::from_raw);
        rustix::fs::chownat(fd, "", uid, gid, AtFlags::EMPTY_PATH)?;
    }
    for Xattr { name, value } in &attributes.xattrs {
        let name = OsStr::from_bytes(name);
        match target {
            Subject::Open(fd) => rustix::fs::fsetxattr(fd, name, value, XattrFlags::empty())?,
            Subject::Named(fd) => {
                rustix::fs::setxattr(proc_path(fd), name, value, XattrFlags::empty())?
            }
        }
    }
    if attributes.sole_lists {
        let is_given = |list: &&[u8]| attributes.xattrs.iter().any(|xattr| xattr.name == *list);
        for list in [ACCESS_LIST, DEFAULT_LIST].into_iter().filter(|list| !is_given(list)) {
            remove_list(target, OsStr::from_bytes(list))?;
        }
    }
    if let Some(mode) = attributes.mode {
        let mode = Mode::from_raw_mode(mode & 0o7777);
        match target {
            Subject::Open(fd) => rustix::fs::fchmod(fd, mode)?,
            Subject::Named(fd) => rustix::fs::chmod(proc_path(fd), mode)?,
        }
    }
    if attributes.atime.is_some() || attributes.mtime.is_some() {
        let times = Timestamps {
            last_access: timespec(attributes.atime)?,
            last_modification: timespec(attributes.mtime)?,
        };
        match target {
            Subject::Open(fd) => rustix::fs::futimens(fd, &times)?,
            Subject::Named(fd) => rustix::fs::utimensat(fd, "", &times, AtFlags::EMPTY_PATH)?,
        }
    }
    Ok(())
}

pub(crate) fn remove_list(target: Subject<'_>, name: &OsStr) -> Result<()> {
    let removed = match target {
        Subject::Open(fd) => rustix::fs::fremovexattr(fd, name),
        Subject::Named(fd) => rustix::fs::removexattr(proc_path(fd), name),
    };
    match removed {
        // There is none.
        Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP) => Ok(()),
        removed => Ok(removed?),
    }
}

/// The access control list of an open file, in the form of the extended attribute
/// `system.posix_acl_access`; `None` if its mode says all.
///
/// # Errors
/// Those of `getxattr(2)`.
pub fn access_list_of(file: impl AsFd) -> Result<Option<Vec<u8>>> {
    let mut list = vec![0; XATTR_BYTES_MAX];
    let name = OsStr::from_bytes(ACCESS_LIST);
    match rustix::fs::getxattr(proc_path(file.as_fd()), name, &mut list[..]) {
        Ok(length) => {
            list.truncate(length);
            Ok(Some(list))
        }
        Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// All extended attributes of an open file that this user may see, sorted by name.
///
/// # Errors
/// Those of `listxattr(2)` and `getxattr(2)`; `EOPNOTSUPP` where the file system has none.
pub fn xattrs_of(file: impl AsFd) -> Result<Vec<Xattr>> {
    let path = proc_path(file.as_fd());
    let mut names = vec![0; XATTR_BYTES_MAX];
    let length = rustix::fs::listxattr(&path, &mut names[..])?;
    let mut value = vec![0; XATTR_BYTES_MAX];
    let mut found = Vec::new();
    for name in names[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        match rustix::fs::getxattr(&path, OsStr::from_bytes(name), &mut value[..]) {
            Ok(length) => {
                found.push(Xattr { name: name.to_vec(), value: value[..length].to_vec() })
            }
            // It was removed since it was listed.
            Err(rustix::io::Errno::NODATA) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// The extended attributes of an `O_PATH` descriptor's file that are `wanted`, as far as they can
/// be read, and the names of the others; one of them is empty when the names cannot be read.
pub(crate) fn some_xattrs_of(
    fd: BorrowedFd<'_>,
    wanted: impl Fn(&[u8]) -> bool,
) -> (Vec<Xattr>, Vec<Vec<u8>>) {
    let path = proc_path(fd);
    let (mut found, mut unread) = (Vec::new(), Vec::new());
    let mut names = vec![0; XATTR_BYTES_MAX];
    let length = match rustix::fs::listxattr(&path, &mut names[..]) {
        Ok(length) => length,
        // The file system has none.
        Err(rustix::io::Errno::OPNOTSUPP) => 0,
        Err(_) => {
            unread.push(Vec::new());
            0
        }
    };
    let mut value = vec![0; XATTR_BYTES_MAX];
    let names = names[..length].split(|&byte| byte == 0);
    for name in names.filter(|name| !name.is_empty() && wanted(name)) {
        match rustix::fs::getxattr(&path, OsStr::from_bytes(name), &mut value[..]) {
            Ok(length) => {
                found.push(Xattr { name: name.to_vec(), value: value[..length].to_vec() })
            }
            // It was removed since it was listed.
            Err(rustix::io::Errno::NODATA) => {}
            Err(_) => unread.push(name.to_vec()),
        }
    }
    (found, unread)
}

/// The name of the extended attribute that holds the access control list.
pub const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
/// The same, of the list that new files of a directory get.
pub(crate) const DEFAULT_LIST: &[u8] = b"system.posix_acl_default";

/// The permission bits of a copy that does not get the access control list of its source. In the
/// mode of a file with a list, the group's bits are the mask: the most that any entry of the list
/// may have. The owning group itself may have less, and the copy's group gets no more than that.
/// `list` is the value of `system.posix_acl_access`; from one that is damaged the group gets nothing.
#[must_use]
pub fn mode_without_list(mode: u32, list: &[u8]) -> u32 {
    const VERSION: u32 = 2;
    const GROUP_OBJ: u16 = 0x04;
    const MASK: u16 = 0x10;
    let (version, entries) = list.split_at(list.len().min(4));
    let (mut group, mut mask) = (0, 0o7);
    if version == VERSION.to_le_bytes() {
        // Each entry is a tag, its permissions and a user or group.
        for entry in entries.chunks_exact(8) {
            let number = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
            match number(0) {
                GROUP_OBJ => group = u32::from(number(2)) & 0o7,
                MASK => mask = u32::from(number(2)) & 0o7,
                _ => {}
            }
        }
    }
    mode & (!0o070 | (group & mask) << 3)
}

/// The name under which the kernel's own table of descriptors has this file.
pub(crate) fn proc_path(fd: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

fn timespec(time: Option<SetTime>) -> Result<Timespec> {
    match time {
        None => Ok(Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT }),
        Some(SetTime::Now) => Ok(Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW }),
        // Some higher numbers of nanoseconds are commands to the system.
        Some(SetTime::At(time)) if time.nanoseconds >= 1_000_000_000 => Err(Errno::INVAL),
        Some(SetTime::At(time)) => {
            Ok(Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() })
        }
    }
}
