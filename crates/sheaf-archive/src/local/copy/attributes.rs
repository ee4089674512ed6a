//! What a copy has of its source beside the content.
use super::LocalCopyKeep;
use crate::left::LeftAttributes;
use rustix::fs::{AtFlags, CWD, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use sheaf_core::Errno;
use sheaf_core::files::{FileKind, Metadata, Timestamp};
use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd};

const ACL_ACCESS: &CStr = c"system.posix_acl_access";
const ACL_DEFAULT: &CStr = c"system.posix_acl_default";
/// Bits that go where an owner cannot be kept.
const SPECIAL_BITS: u32 = 0o7000;
const GROUP_BITS: u32 = 0o070;
/// Bytes of names or of a value at first, and at last, which is more than the kernel keeps.
const XATTR_BYTES: usize = 1024;
const XATTR_BYTES_MAX: usize = 1 << 20;

/// A file that was made, and what it is made like.
pub(super) struct KeptFile<'a> {
    pub from: BorrowedFd<'a>,
    pub to: BorrowedFd<'a>,
    pub found: &'a Metadata,
}

impl KeptFile<'_> {
    /// Gives it owner, extended attributes, mode and times, in an order in which none undoes another. Those
    /// attributes that could not be kept.
    pub fn set(&self, keep: LocalCopyKeep, is_root: bool) -> Result<LeftAttributes, Errno> {
        let mut mode = self.found.mode;
        // The owner first: another one takes away special bits and capabilities.
        if !self.own(is_root)? {
            mode &= !SPECIAL_BITS;
        }
        let is_file = self.found.kind == FileKind::File;
        let (from, to) =
            (AttributePlace::new(self.from, is_file), AttributePlace::new(self.to, is_file));
        let mut left = LeftAttributes::new();
        let names = match from.names() {
            Err(Errno::OPNOTSUPP) => Vec::new(),
            names => names?,
        };
        let is_acl = |name: &CStr| name == ACL_ACCESS || name == ACL_DEFAULT;
        let names = names.split_inclusive(|byte| *byte == 0);
        let names: Vec<_> = names.filter_map(|n| CStr::from_bytes_with_nul(n).ok()).collect();
        for name in &names {
            if is_acl(name) || keep == LocalCopyKeep::All {
                let copied = copy_xattr(&from, &to, name);
                left.extend(copied.err().map(|errno| (name.to_bytes().to_vec(), errno)));
            }
        }
        // The group's bits of a file with a list are the most that anybody of the list may.
        if left.iter().any(|(name, _)| name == ACL_ACCESS.to_bytes()) {
            mode &= !GROUP_BITS;
        }
        if self.found.kind != FileKind::Symlink {
            // A new file may have got one of its directory.
            if !names.contains(&ACL_ACCESS) {
                to.remove(ACL_ACCESS)?;
            }
            if self.found.is_dir() && !names.contains(&ACL_DEFAULT) {
                to.remove(ACL_DEFAULT)?;
            }
            to.set_mode(mode)?;
        }
        self.set_times()?;
        Ok(left)
    }

    /// Gives it the owner. Says whether it has it; who is not root may be refused.
    fn own(&self, is_root: bool) -> Result<bool, Errno> {
        let (uid, gid) = (Uid::from_raw(self.found.uid), Gid::from_raw(self.found.gid));
        let own = |uid, gid| rustix::fs::chownat(self.to, c"", uid, gid, AtFlags::EMPTY_PATH);
        match own(Some(uid), Some(gid)) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::PERM | rustix::io::Errno::INVAL) if !is_root => {
                // The group alone may be one of the user's own; if not, it is that of a new file.
                let _ = own(None, Some(gid));
                Ok(false)
            }
            Err(errno) => Err(errno.into()),
        }
    }

    fn set_times(&self) -> Result<(), Errno> {
        let of = |time: Timestamp| Timespec {
            tv_sec: time.seconds,
            tv_nsec: i64::from(time.nanoseconds),
        };
        let times = Timestamps {
            last_access: of(self.found.atime),
            last_modification: of(self.found.mtime),
        };
        Ok(rustix::fs::utimensat(self.to, c"", &times, AtFlags::EMPTY_PATH)?)
    }
}

/// What is open, or by its path if it is open as a mere path.
struct AttributePlace<'a> {
    file: BorrowedFd<'a>,
    path: Option<String>,
}

/// A path of what is open.
pub(super) fn place(file: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

impl<'a> AttributePlace<'a> {
    fn new(file: BorrowedFd<'a>, is_file: bool) -> Self {
        Self { file, path: (!is_file).then(|| place(file)) }
    }

    fn names(&self) -> Result<Vec<u8>, Errno> {
        grown(|room| match &self.path {
            None => rustix::fs::flistxattr(self.file, room),
            Some(path) => rustix::fs::listxattr(path, room),
        })
    }

    fn value(&self, name: &CStr) -> Result<Vec<u8>, Errno> {
        grown(|room| match &self.path {
            None => rustix::fs::fgetxattr(self.file, name, room),
            Some(path) => rustix::fs::getxattr(path, name, room),
        })
    }

    fn set(&self, name: &CStr, value: &[u8]) -> Result<(), Errno> {
        let flags = XattrFlags::empty();
        Ok(match &self.path {
            None => rustix::fs::fsetxattr(self.file, name, value, flags),
            Some(path) => rustix::fs::setxattr(path, name, value, flags),
        }?)
    }

    /// Removes an attribute, if there is one.
    fn remove(&self, name: &CStr) -> Result<(), Errno> {
        let removed = match &self.path {
            None => rustix::fs::fremovexattr(self.file, name),
            Some(path) => rustix::fs::removexattr(path, name),
        };
        match removed {
            Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP) => Ok(()),
            removed => Ok(removed?),
        }
    }

    fn set_mode(&self, mode: u32) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(mode);
        Ok(match &self.path {
            None => rustix::fs::fchmod(self.file, mode),
            Some(path) => rustix::fs::chmodat(CWD, path, mode, AtFlags::empty()),
        }?)
    }
}

/// An attribute that is gone by now is none that is missed.
fn copy_xattr(
    from: &AttributePlace<'_>,
    to: &AttributePlace<'_>,
    name: &CStr,
) -> Result<(), Errno> {
    match from.value(name) {
        Ok(value) => to.set(name, &value),
        Err(Errno::NODATA) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// What a call gives, in as much room as it takes.
fn grown(call: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> Result<Vec<u8>, Errno> {
    let mut room = vec![0; XATTR_BYTES];
    loop {
        match call(&mut room) {
            Ok(bytes) => {
                room.truncate(bytes);
                return Ok(room);
            }
            Err(rustix::io::Errno::RANGE) if room.len() < XATTR_BYTES_MAX => {
                room.resize(room.len() * 8, 0);
            }
            Err(errno) => return Err(errno.into()),
        }
    }
}
