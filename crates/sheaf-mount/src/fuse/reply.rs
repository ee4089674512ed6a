//! What the kernel is answered.
use super::abi;
use super::device::Device;
use crate::message::{
    FileAnswer, FileLock, FileLockKind, FileSystemUsage, NodeAttributes, NodeEntry,
};
use sheaf_core::Errno;
use sheaf_core::files::FileKind;
use std::time::Duration;
use zerocopy::IntoBytes;

/// In which form a request is answered.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReplyAs {
    Done,
    /// It is done, and something before it has failed.
    Failed(Errno),
    Entry,
    Attributes,
    Bytes,
    Opened {
        is_directory: bool,
    },
    Created,
    Written,
    Entries {
        with_attributes: bool,
        size: usize,
    },
    Usage,
    Xattr,
    Lock,
    Offset,
}

/// Answers a request. The kernel keeps nothing of that.
pub(super) fn reply(
    device: &Device,
    unique: u64,
    how: &ReplyAs,
    answer: FileAnswer,
    bytes: &[u8],
) -> Result<(), Errno> {
    reply_kept((device, unique), how, answer, bytes, Duration::ZERO)
}

/// Answers a request. The kernel keeps attributes for so long.
pub(super) fn reply_kept(
    (device, unique): (&Device, u64),
    how: &ReplyAs,
    answer: FileAnswer,
    bytes: &[u8],
    kept: Duration,
) -> Result<(), Errno> {
    let (entry, attributes, opened, written, usage, length, lock, offset);
    let packed;
    let parts: [&[u8]; 2] = match (how, answer) {
        (ReplyAs::Done, FileAnswer::Done | FileAnswer::Locked(..)) => [&[], &[]],
        (ReplyAs::Failed(errno), _) => return Err(*errno),
        (ReplyAs::Entry, FileAnswer::Node(found)) => {
            entry = entry_of(&found, kept);
            [entry.as_bytes(), &[]]
        }
        (ReplyAs::Attributes, FileAnswer::Node(found)) => {
            attributes = abi::fuse_attr_out {
                attr_valid: kept.as_secs(),
                attr_valid_nsec: kept.subsec_nanos(),
                attr: attributes_of(&found),
                ..Default::default()
            };
            [attributes.as_bytes(), &[]]
        }
        (ReplyAs::Bytes, FileAnswer::Lent(_)) => [bytes, &[]],
        (ReplyAs::Bytes | ReplyAs::Xattr, FileAnswer::Bytes) => [bytes, &[]],
        (
            ReplyAs::Opened { is_directory },
            FileAnswer::Opened(handle)
            | FileAnswer::OpenedSized(handle, _)
            | FileAnswer::OpenedRunnable(handle),
        ) => {
            opened = opened_as(handle, !*is_directory);
            [opened.as_bytes(), &[]]
        }
        // The kernel keeps pages of it.
        (ReplyAs::Opened { .. }, FileAnswer::OpenedLent(handle, ..)) => {
            opened = opened_as(handle, false);
            [opened.as_bytes(), &[]]
        }
        (ReplyAs::Created, FileAnswer::Created(found, handle)) => {
            (entry, opened) = (entry_of(&found, kept), opened_as(handle, true));
            [entry.as_bytes(), opened.as_bytes()]
        }
        (ReplyAs::Written, FileAnswer::Count(bytes)) => {
            let size = u32::try_from(bytes).map_err(|_| Errno::OVERFLOW)?;
            written = abi::fuse_write_out { size, padding: 0 };
            [written.as_bytes(), &[]]
        }
        (ReplyAs::Entries { with_attributes, size }, FileAnswer::Entries(entries)) => {
            packed = pack(&entries, *with_attributes, *size);
            [&packed, &[]]
        }
        (ReplyAs::Usage, FileAnswer::Usage(found)) => {
            usage = abi::fuse_statfs_out { st: usage_of(&found) };
            [usage.as_bytes(), &[]]
        }
        (ReplyAs::Xattr, FileAnswer::Count(bytes)) => {
            let size = u32::try_from(bytes).map_err(|_| Errno::OVERFLOW)?;
            length = abi::fuse_getxattr_out { size, padding: 0 };
            [length.as_bytes(), &[]]
        }
        (ReplyAs::Lock, FileAnswer::Lock(found)) => {
            lock = abi::fuse_lk_out { lk: lock_of(&found) };
            [lock.as_bytes(), &[]]
        }
        (ReplyAs::Offset, FileAnswer::Count(at)) => {
            offset = abi::fuse_lseek_out { offset: at };
            [offset.as_bytes(), &[]]
        }
        // The owner is another program than it says.
        _ => return Err(Errno::PROTO),
    };
    device.send(unique, &parts).map_err(|error| Errno::from_io(&error))
}

fn usage_of(found: &FileSystemUsage) -> abi::fuse_kstatfs {
    let (blocks, bfree, bavail) = found.blocks;
    let (files, ffree) = found.files;
    let (bsize, frsize) = found.block_size;
    let namelen = found.name_max;
    abi::fuse_kstatfs {
        blocks,
        bfree,
        bavail,
        files,
        ffree,
        bsize,
        namelen,
        frsize,
        ..Default::default()
    }
}

fn lock_of(found: &FileLock) -> abi::fuse_file_lock {
    let type_ = match found.kind {
        FileLockKind::Shared => libc::F_RDLCK,
        FileLockKind::Exclusive => libc::F_WRLCK,
        FileLockKind::None => libc::F_UNLCK,
    };
    let (start, end) = found.range;
    let (type_, pid) = (type_.cast_unsigned(), found.pid);
    abi::fuse_file_lock { start, end, type_, pid }
}

fn opened_as(fh: u64, is_direct: bool) -> abi::fuse_open_out {
    let direct = abi::FOPEN_DIRECT_IO | abi::FOPEN_PARALLEL_DIRECT_WRITES;
    let open_flags = if is_direct { direct } else { 0 };
    abi::fuse_open_out { fh, open_flags, ..Default::default() }
}

/// A name and what it leads to, of which the kernel keeps the attributes for so long, and not the name.
fn entry_of(found: &NodeAttributes, kept: Duration) -> abi::fuse_entry_out {
    abi::fuse_entry_out {
        nodeid: found.node,
        attr_valid: kept.as_secs(),
        attr_valid_nsec: kept.subsec_nanos(),
        attr: attributes_of(found),
        ..Default::default()
    }
}

fn attributes_of(found: &NodeAttributes) -> abi::fuse_attr {
    abi::fuse_attr {
        ino: found.ino,
        size: found.size,
        blocks: found.blocks,
        atime: found.atime.seconds.cast_unsigned(),
        mtime: found.mtime.seconds.cast_unsigned(),
        ctime: found.ctime.seconds.cast_unsigned(),
        atimensec: found.atime.nanoseconds,
        mtimensec: found.mtime.nanoseconds,
        ctimensec: found.ctime.nanoseconds,
        mode: found.mode,
        nlink: found.nlink,
        uid: found.uid,
        gid: found.gid,
        rdev: device_number(found.rdev),
        blksize: found.block_size,
        flags: 0,
    }
}

/// Entries as the protocol has them, as many as there is room for.
fn pack(entries: &[NodeEntry], with_attributes: bool, size: usize) -> Vec<u8> {
    let mut packed = Vec::with_capacity(size);
    for entry in entries {
        let from = packed.len();
        if with_attributes {
            // Without a node the kernel takes the name alone.
            let found = entry.attributes.as_ref();
            let found = found.map(|found| entry_of(found, Duration::ZERO)).unwrap_or_default();
            packed.extend_from_slice(found.as_bytes());
        }
        packed.extend_from_slice(&entry.ino.to_ne_bytes());
        packed.extend_from_slice(&entry.next.to_ne_bytes());
        packed.extend_from_slice(&(entry.name.len() as u32).to_ne_bytes());
        packed.extend_from_slice(&kind_of(entry.kind).to_ne_bytes());
        packed.extend_from_slice(&entry.name);
        packed.resize(from + (packed.len() - from).next_multiple_of(8), 0);
        if packed.len() > size {
            packed.truncate(from);
            break;
        }
    }
    packed
}

fn kind_of(kind: FileKind) -> u32 {
    u32::from(match kind {
        FileKind::File => libc::DT_REG,
        FileKind::Directory => libc::DT_DIR,
        FileKind::Symlink => libc::DT_LNK,
        FileKind::Fifo => libc::DT_FIFO,
        FileKind::Socket => libc::DT_SOCK,
        FileKind::CharDevice => libc::DT_CHR,
        FileKind::BlockDevice => libc::DT_BLK,
        FileKind::Unknown => libc::DT_UNKNOWN,
    })
}

/// What the protocol has for a device's numbers.
fn device_number(device: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}
