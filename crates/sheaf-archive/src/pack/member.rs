//! What is known of a file in a pack.
use crate::catalog::{ArchivedObject, ArchivedPack, ContentPlace, FileRights};
use crate::name::FileName;
use serde::{Deserialize, Serialize};
use sheaf_core::files::Timestamp;
use std::ops::Range;

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
    /// Another name of a file whose first name is that of an earlier member of this pack, with the same
    /// attributes and content.
    HardLink {
        /// That name. By now it may be removed from the index, or be another file's.
        to: FileName,
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
    /// In its directory.
    pub name: FileName,
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
    /// since is known; 0 where it is not known. All bits are inverted where the file was changed so shortly
    /// before it was read that a later change may have the same time.
    pub ctime_ns: u64,
    /// Its inode, for the same; 0 where it is not known.
    pub ino: u64,
    /// Extended attributes, access control lists among them, sorted by name.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl MemberAttributes {
    /// A file of root's, from the beginning of 1970, without extended attributes.
    #[must_use]
    pub fn new(name: FileName, kind: MemberKind, mode: u32) -> Self {
        let mtime = Timestamp::default();
        Self { name, kind, mode, uid: 0, gid: 0, mtime, ctime_ns: 0, ino: 0, xattrs: Vec::new() }
    }

    /// Last change of its inode, where it is known, and whether a later change may have the same time.
    #[must_use]
    pub fn ctime(&self) -> Option<(u64, bool)> {
        // A time with the highest bit would be one before 1970.
        let is_recent = self.ctime_ns > i64::MAX as u64;
        let time = if is_recent { !self.ctime_ns } else { self.ctime_ns };
        (self.ctime_ns != 0).then_some((time, is_recent))
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
    /// Bytes of its content, holes among them. A hard link has those of its file.
    pub size: u64,
    /// BLAKE3 of what the tar has of its content.
    pub digest: [u8; 32],
    /// The block, of 512 bytes, at which its headers begin.
    pub first_block: u32,
    /// How many blocks its headers have, and its map if it is sparse; its content is behind them.
    pub header_blocks: u16,
    /// Which bytes of its content the tar has, one behind the other, where the rest are holes. Nothing
    /// where all are there.
    pub extents: Option<Vec<Range<u64>>>,
    /// Of a hard link: the block at which the content of its file begins.
    pub file_block: Option<u32>,
    /// Mode and owner as the tar has them, where they have been changed since.
    pub in_tar: Option<FileRights>,
}

impl PackedMember {
    /// It as an object, whose content stays where it is.
    pub(crate) fn to_object(&self, pack: &ArchivedPack) -> ArchivedObject {
        let (id, at, zstd) = (pack.id, self.content_at(), pack.zstd_bytes.is_some());
        let place = ContentPlace::Pack { id, at, zstd };
        let mut attributes = self.attributes.clone();
        if matches!(attributes.kind, MemberKind::HardLink { .. }) {
            attributes.kind = MemberKind::File;
        }
        ArchivedObject {
            attributes,
            size: self.size,
            digest: self.digest,
            place: (self.stored_bytes() > 0).then_some(place),
            extents: self.extents.clone(),
            link: None,
        }
    }

    /// At which byte of the pack its content begins.
    #[must_use]
    pub fn content_at(&self) -> u64 {
        self.content_block() * super::BLOCK_BYTES as u64
    }

    /// Bytes that the tar has of its content.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        stored_bytes(self.size, self.extents.as_deref())
    }

    /// Which bytes of its content the tar has, one behind the other; the rest are holes.
    #[must_use]
    pub fn stored_extents(&self) -> Vec<Range<u64>> {
        match &self.extents {
            Some(extents) => extents.clone(),
            None => std::iter::once(0..self.size).collect(),
        }
    }

    /// Has the content of another member, whose file this is another name of.
    pub(crate) fn shares(&mut self, file: &Self) {
        self.size = file.size;
        self.digest = file.digest;
        self.extents.clone_from(&file.extents);
        self.file_block = u32::try_from(file.content_block()).ok();
    }

    /// The block at which its content begins. Members of one file have the same.
    pub(crate) fn content_block(&self) -> u64 {
        let own = u64::from(self.first_block) + u64::from(self.header_blocks);
        self.file_block.map_or(own, u64::from)
    }

    /// The block behind its content, or behind its headers where the content is another member's.
    pub(crate) fn end_block(&self) -> u64 {
        let headers = u64::from(self.first_block) + u64::from(self.header_blocks);
        let content = if self.file_block.is_some() { 0 } else { self.stored_bytes() };
        headers + super::blocks_of(content)
    }
}

/// Bytes that are stored of a content.
pub(crate) fn stored_bytes(size: u64, extents: Option<&[Range<u64>]>) -> u64 {
    let bytes = |extent: &Range<u64>| extent.end.saturating_sub(extent.start);
    extents.map_or(size, |extents| {
        extents.iter().fold(0, |sum: u64, extent| sum.saturating_add(bytes(extent)))
    })
}
