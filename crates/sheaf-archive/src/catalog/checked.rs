//! What rows may say. A store may say anything: each row is checked where it is decoded, in the log
//! and in tables.
use super::{
    ArchivedDirectory, ArchivedObject, ArchivedPack, Commit, ContentPlace, DirectoryChange,
    DirectoryRows,
};
use crate::name::FileName;
use crate::pack::index::{INDEX_BYTES_MAX, PACK_BLOCKS_MAX};
use crate::pack::member::{MemberAttributes, MemberKind};
use crate::pack::write::PACK_MEMBERS_MAX;
use crate::pack::{BLOCK_BYTES, sparse};
use std::ops::Range;

/// The longest text of a symbolic link, as Linux has it (`PATH_MAX` with its NUL).
const TARGET_BYTES_MAX: usize = 4095;
/// The longest name and value of an extended attribute, as Linux has them.
const XATTR_NAME_BYTES_MAX: usize = 255;
const XATTR_VALUE_BYTES_MAX: usize = 64 << 10;
const NANOSECONDS: u32 = 1_000_000_000;

/// What is decoded from bytes of a store.
pub(crate) trait Checked {
    /// Whether no value is one that cannot be.
    fn is_valid(&self) -> bool;
}

impl Checked for MemberAttributes {
    fn is_valid(&self) -> bool {
        let is_target = match &self.kind {
            MemberKind::Symlink { target } => {
                !target.is_empty() && target.len() <= TARGET_BYTES_MAX && !target.contains(&0)
            }
            _ => true,
        };
        is_target
            && self.mode <= 0o7777
            && self.mtime.nanoseconds < NANOSECONDS
            && are_xattrs(&self.xattrs)
    }
}

impl Checked for ArchivedDirectory {
    fn is_valid(&self) -> bool {
        self.mode <= 0o7777 && self.mtime_ns < NANOSECONDS && are_xattrs(&self.xattrs)
    }
}

impl Checked for ArchivedPack {
    fn is_valid(&self) -> bool {
        let are_names = [&self.first, &self.last].into_iter().all(|name| FileName::is_name(name));
        (self.members == 0 || are_names)
            && self.members as usize <= PACK_MEMBERS_MAX
            && self.files <= self.members
            && self.index_bytes <= INDEX_BYTES_MAX
            && self.tar_bytes <= PACK_BLOCKS_MAX * BLOCK_BYTES as u64 + 2 * INDEX_BYTES_MAX
            && self
                .classes
                .iter()
                .flatten()
                .all(|class| class.stored.mode <= 0o7777 && class.now.mode <= 0o7777)
    }
}

impl Checked for ArchivedObject {
    fn is_valid(&self) -> bool {
        let extents = self.extents.as_deref();
        let end = |at: &u64| at.checked_add(self.stored_bytes());
        // Bytes are counted of extents that are some.
        let is_place = || match &self.place {
            None => extents.map_or(self.size, |extents| extents.len() as u64) == 0,
            Some(ContentPlace::Object(_)) => true,
            Some(ContentPlace::Pack { at, .. }) => end(at).is_some(),
            Some(ContentPlace::Parts { ids, bytes }) => {
                *bytes > 0 && ids.len() as u64 == self.stored_bytes().div_ceil(*bytes)
            }
        };
        self.attributes.is_valid()
            && self.size <= sparse::SIZE_MAX
            && extents.is_none_or(|extents| are_extents(extents, self.size))
            && is_place()
    }
}

impl Checked for DirectoryChange {
    fn is_valid(&self) -> bool {
        self.directory.iter().all(Checked::is_valid)
            && self.packs.iter().all(Checked::is_valid)
            && self.objects.iter().all(Checked::is_valid)
    }
}

impl Checked for Commit {
    fn is_valid(&self) -> bool {
        self.changes.iter().all(Checked::is_valid)
    }
}

impl Checked for DirectoryRows {
    fn is_valid(&self) -> bool {
        self.directory.iter().all(Checked::is_valid)
            && self.packs.iter().all(Checked::is_valid)
            && self.objects.iter().all(Checked::is_valid)
    }
}

/// Whether these bytes of a content are in their order, each once.
fn are_extents(extents: &[Range<u64>], size: u64) -> bool {
    extents.iter().all(|extent| extent.start < extent.end && extent.end <= size)
        && extents.is_sorted_by(|one, other| one.end <= other.start)
}

fn are_xattrs(xattrs: &[(Vec<u8>, Vec<u8>)]) -> bool {
    xattrs.iter().all(|(name, value)| {
        (1..=XATTR_NAME_BYTES_MAX).contains(&name.len())
            && !name.contains(&0)
            && value.len() <= XATTR_VALUE_BYTES_MAX
    })
}
