//! What `stat` tells about a file, in a form that can travel.

use rustix::fs::{FileType, Statx, StatxFlags, StatxTimestamp};
use serde::{Deserialize, Serialize};

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// The file system does not say.
    Unknown,
}

impl From<FileType> for FileKind {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Symlink,
            FileType::Fifo => Self::Fifo,
            FileType::Socket => Self::Socket,
            FileType::CharacterDevice => Self::CharDevice,
            FileType::BlockDevice => Self::BlockDevice,
            FileType::Unknown => Self::Unknown,
        }
    }
}

/// A point in time, relative to 1970-01-01 00:00 UTC.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct Timestamp {
    /// Whole seconds; negative before 1970.
    pub seconds: i64,
    /// Nanoseconds to add, below 1,000,000,000.
    pub nanoseconds: u32,
}

impl From<StatxTimestamp> for Timestamp {
    fn from(time: StatxTimestamp) -> Self {
        Self { seconds: time.tv_sec, nanoseconds: time.tv_nsec }
    }
}

/// What `stat` tells about a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// The kind of file.
    pub kind: FileKind,
    /// Device that holds the file.
    pub dev: u64,
    /// Inode number; unique on its device.
    pub ino: u64,
    /// Permission bits with set-id and sticky bits: `0o7777`.
    pub mode: u32,
    /// Number of names.
    pub nlink: u32,
    /// Numeric owner.
    pub uid: u32,
    /// Numeric group.
    pub gid: u32,
    /// Which device a device file stands for, else 0.
    pub rdev: u64,
    /// Apparent size in bytes.
    pub size: u64,
    /// Space on disk in units of 512 bytes.
    pub blocks: u64,
    /// Preferred size of one read, in bytes.
    pub block_size: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation, where the file system keeps it.
    pub btime: Option<Timestamp>,
}

impl Metadata {
    /// Whether this is a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Whether this is a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.kind == FileKind::File
    }

    /// What names the inode on its host: device and inode number.
    #[must_use]
    pub fn id(&self) -> (u64, u64) {
        (self.dev, self.ino)
    }

    /// The kind and permission bits together, as `st_mode` has them.
    #[must_use]
    pub fn raw_mode(&self) -> u32 {
        let kind = match self.kind {
            FileKind::File => 0o100_000,
            FileKind::Directory => 0o040_000,
            FileKind::Symlink => 0o120_000,
            FileKind::Fifo => 0o010_000,
            FileKind::Socket => 0o140_000,
            FileKind::CharDevice => 0o020_000,
            FileKind::BlockDevice => 0o060_000,
            FileKind::Unknown => 0,
        };
        kind | self.mode
    }
}

impl From<Statx> for Metadata {
    fn from(stat: Statx) -> Self {
        let has_birth = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
        Self {
            kind: FileType::from_raw_mode(u32::from(stat.stx_mode)).into(),
            dev: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
            ino: stat.stx_ino,
            mode: u32::from(stat.stx_mode) & 0o7777,
            nlink: stat.stx_nlink,
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            rdev: rustix::fs::makedev(stat.stx_rdev_major, stat.stx_rdev_minor),
            size: stat.stx_size,
            blocks: stat.stx_blocks,
            block_size: stat.stx_blksize,
            atime: stat.stx_atime.into(),
            mtime: stat.stx_mtime.into(),
            ctime: stat.stx_ctime.into(),
            btime: has_birth.then(|| stat.stx_btime.into()),
        }
    }
}
