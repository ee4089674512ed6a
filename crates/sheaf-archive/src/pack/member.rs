//! What is known of a file in a pack.
use crate::FileRights;
use serde::{Deserialize, Serialize};
use sheaf_core::files::Timestamp;

/// The name of a pack: never that of another one.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct PackId(pub [u8; 16]);

/// What a member is. Directories are none, and sockets cannot be archived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberKind {
    /// A regular file.
    File,
    /// Another name of an earlier member of this pack, whose attributes and content it shares.
    HardLink {
        /// That member's name.
        to: Vec<u8>,
    },
    /// A symbolic link.
    Symlink {
        /// Its text.
        target: Vec<u8>,
    },
    /// A named pipe.
    Fifo,
    /// A character device.
    CharDevice {
        /// Its driver.
        major: u32,
        /// Which of the driver's.
        minor: u32,
    },
    /// A block device.
    BlockDevice {
        /// Its driver.
        major: u32,
        /// Which of the driver's.
        minor: u32,
    },
}

/// Names of extended attributes and their values, sorted.
pub(crate) type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// A file's name and attributes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberAttributes {
    /// One component of a path: any bytes but NUL and `/`.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: MemberKind,
    /// Permission bits, `0o7777`.
    pub mode: u32,
    /// Numeric owner.
    pub uid: u32,
    /// Numeric group.
    pub gid: u32,
    /// Last change of its content.
    pub mtime: Timestamp,
    /// Last change of its inode, in nanoseconds since 1970 modulo 2⁶⁴, by which one that has changed
    /// since is known; 0 where it is not known.
    pub ctime_ns: u64,
    /// Its inode, for the same; 0 where it is not known.
    pub ino: u64,
    /// Extended attributes, access control lists among them, sorted by name.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl MemberAttributes {
    /// A file of root's, from the beginning of 1970, without extended attributes.
    #[must_use]
    pub fn new(name: &[u8], kind: MemberKind, mode: u32) -> Self {
        let (name, mtime) = (name.to_owned(), Timestamp::default());
        Self { name, kind, mode, uid: 0, gid: 0, mtime, ctime_ns: 0, ino: 0, xattrs: Vec::new() }
    }

    /// The text of a link, or the name that a hard link shares its file with.
    #[must_use]
    pub fn link(&self) -> Option<&[u8]> {
        match &self.kind {
            MemberKind::HardLink { to } => Some(to),
            MemberKind::Symlink { target } => Some(target),
            _ => None,
        }
    }
}

/// A member where it is in a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedMember {
    /// Its name and attributes.
    pub attributes: MemberAttributes,
    /// Bytes of its content.
    pub size: u64,
    /// BLAKE3 of its content.
    pub digest: [u8; 32],
    /// The block, of 512 bytes, at which its headers begin.
    pub first_block: u32,
    /// How many blocks its headers have; its content is behind them.
    pub header_blocks: u16,
    /// Mode and owner as the tar has them, where they have been changed since.
    pub in_tar: Option<FileRights>,
}

impl PackedMember {
    /// At which byte of the pack its content begins.
    #[must_use]
    pub fn content_at(&self) -> u64 {
        (u64::from(self.first_block) + u64::from(self.header_blocks)) * super::BLOCK_BYTES as u64
    }

    /// The block behind its content.
    pub(crate) fn end_block(&self) -> u64 {
        u64::from(self.first_block) + u64::from(self.header_blocks) + super::blocks_of(self.size)
    }
}
