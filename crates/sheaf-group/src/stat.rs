//! What `fstat` says of a member, in a form that travels.
use serde::{Deserialize, Serialize};

/// A member's attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    /// Device.
    pub dev: u64,
    /// Inode.
    pub ino: u64,
    /// Type and permissions.
    pub mode: u32,
    /// Hard links.
    pub nlink: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// 512-byte blocks that are allocated.
    pub blocks: u64,
    /// Last access, seconds and nanoseconds.
    pub atime: (i64, i64),
    /// Last change of the content.
    pub mtime: (i64, i64),
    /// Last change of the inode.
    pub ctime: (i64, i64),
}

impl Stat {
    pub(crate) fn of(metadata: &std::fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt as M;
        Self {
            dev: metadata.dev(),
            ino: metadata.ino(),
            mode: metadata.mode(),
            nlink: metadata.nlink(),
            uid: metadata.uid(),
            gid: metadata.gid(),
            size: M::size(metadata),
            blocks: metadata.blocks(),
            atime: (metadata.atime(), metadata.atime_nsec()),
            mtime: (metadata.mtime(), metadata.mtime_nsec()),
            ctime: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    pub(crate) fn to_bytes(self) -> Vec<u8> {
        postcard::to_stdvec(&self).expect("numbers can be serialised")
    }

    /// Reads what a member answered to `fstat`.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        postcard::from_bytes(bytes).ok()
    }
}
