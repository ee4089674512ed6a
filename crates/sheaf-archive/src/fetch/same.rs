//! Whether a file that is in the target is as it is archived, byte by byte. The archive's own digest says
//! it, so nothing of the store is read.
use super::target::{FetchTarget, of};
use crate::catalog::ArchivedObject;
use crate::pack::member::{MemberAttributes, MemberKind, PackedMember};
use crate::save::source::{status, xattrs_of};
use rustix::fs::{Mode, OFlags, SeekFrom};
use sheaf_core::Errno;
use sheaf_core::files::Metadata;
use std::ffi::OsStr;
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

const READ_BYTES: u64 = 1 << 20;

/// What an archived file has.
#[derive(Clone, Copy)]
pub(super) struct FileIs<'a> {
    pub attributes: &'a MemberAttributes,
    pub size: u64,
    /// What is not holes; nothing if it has none.
    extents: Option<&'a [Range<u64>]>,
    digest: &'a [u8; 32],
}

impl<'a> FileIs<'a> {
    pub fn member(of: &'a PackedMember) -> Self {
        let (size, extents, digest) = (of.size, of.extents.as_deref(), &of.digest);
        Self { attributes: &of.attributes, size, extents, digest }
    }

    pub fn object(of: &'a ArchivedObject) -> Self {
        let (size, extents, digest) = (of.size, of.extents.as_deref(), &of.digest);
        Self { attributes: &of.attributes, size, extents, digest }
    }
}

impl FetchTarget {
    /// Whether the file of this name is what is archived: its kind, content, mode, extended attributes and
    /// time, and for root its owner. One that cannot be read is not.
    pub fn has(&self, directory: BorrowedFd<'_>, name: &[u8], is: FileIs<'_>) -> bool {
        self.compare(directory, name, is).unwrap_or(false)
    }

    fn compare(
        &self,
        directory: BorrowedFd<'_>,
        name: &[u8],
        is: FileIs<'_>,
    ) -> Result<bool, Errno> {
        let of_file = is.attributes;
        let is_file = matches!(of_file.kind, MemberKind::File | MemberKind::HardLink { .. });
        let how = if is_file { OFlags::NONBLOCK | OFlags::NOCTTY } else { OFlags::PATH };
        let flags = how | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = OsStr::from_bytes(name);
        let file = rustix::fs::openat(directory, name, flags, Mode::empty()).map_err(of)?;
        let found = status(file.as_fd())?;
        let is_link = matches!(of_file.kind, MemberKind::Symlink { .. });
        let is_same = found.mtime == of_file.mtime
            && (is_link || found.mode == self.mode(of_file))
            && (!self.is_root() || (found.uid, found.gid) == (of_file.uid, of_file.gid))
            && has_xattrs(&file, of_file)?;
        if !is_same {
            return Ok(false);
        }
        let device = |major, minor| found.rdev == rustix::fs::makedev(major, minor);
        Ok(match &of_file.kind {
            MemberKind::File | MemberKind::HardLink { .. } => {
                found.is_file() && found.size == is.size && has_content(&file.into(), &found, is)?
            }
            MemberKind::Symlink { target } => {
                let found = rustix::fs::readlinkat(&file, c"", Vec::new()).map_err(of)?;
                found.as_bytes() == target
            }
            MemberKind::Fifo => true,
            MemberKind::CharDevice { major, minor } | MemberKind::BlockDevice { major, minor } => {
                device(*major, *minor)
            }
        })
    }
}

/// Whether the system gives an extended attribute by itself.
pub(super) fn is_given(name: &[u8]) -> bool {
    /// Labels and measurements, and what overlays, Lustre, GlusterFS and XFS keep of files.
    const GIVEN: [&[u8]; 13] = [
        b"security.selinux",
        b"security.SMACK64",
        b"security.apparmor",
        b"security.ima",
        b"security.evm",
        b"trusted.overlay.",
        b"trusted.lov",
        b"trusted.lma",
        b"trusted.fid",
        b"trusted.link",
        b"trusted.gfid",
        b"trusted.glusterfs.",
        b"trusted.SGI_",
    ];
    GIVEN.iter().any(|given| name.starts_with(given))
}

/// Whether a file has the archived extended attributes, and no other that changes what it is: the system
/// gives some by itself.
fn has_xattrs(file: &OwnedFd, is: &MemberAttributes) -> Result<bool, Errno> {
    let mut found = xattrs_of(file.as_fd())?;
    found.retain(|of| is.xattrs.contains(of) || !is_given(&of.0));
    Ok(found == is.xattrs)
}

fn has_content(file: &File, found: &Metadata, is: FileIs<'_>) -> Result<bool, Errno> {
    let whole: Vec<Range<u64>> = std::iter::once(0..is.size).collect();
    let (mut digest, mut room, mut at) = (blake3::Hasher::new(), Vec::new(), 0);
    for extent in is.extents.unwrap_or(&whole) {
        if !is_zero(file, at..extent.start, &mut room)? {
            return Ok(false);
        }
        at = extent.start;
        while at < extent.end {
            let read = read_at(file, at..extent.end, &mut room)?;
            if read.is_empty() {
                return Ok(false);
            }
            digest.update(read);
            at += read.len() as u64;
        }
    }
    let is_same = digest.finalize() == *is.digest && is_zero(file, at..is.size, &mut room)?;
    // It may be written to just now.
    let now = status(file.as_fd())?;
    Ok(is_same && (now.size, now.mtime, now.ctime) == (found.size, found.mtime, found.ctime))
}

/// Whether nothing but zeros is there; holes are not read.
fn is_zero(file: &File, range: Range<u64>, room: &mut Vec<u8>) -> Result<bool, Errno> {
    let mut at = range.start;
    while at < range.end {
        at = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(rustix::io::Errno::NXIO) => return Ok(true),
            // The file system knows of no holes.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => at,
            Err(errno) => return Err(of(errno)),
        };
        if at >= range.end {
            return Ok(true);
        }
        let read = read_at(file, at..range.end, room)?;
        if read.is_empty() || read.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        at += read.len() as u64;
    }
    Ok(true)
}

/// Some bytes of a range, as many as there are at once.
fn read_at<'a>(file: &File, range: Range<u64>, room: &'a mut Vec<u8>) -> Result<&'a [u8], Errno> {
    room.resize(READ_BYTES.min(range.end - range.start) as usize, 0);
    loop {
        match file.read_at(room, range.start) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            read => return Ok(&room[..read.map_err(|error| Errno::from_io(&error))?]),
        }
    }
}
