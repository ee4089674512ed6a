//! The rows of a catalog, and how they change.
use crate::{ArchivePath, MemberAttributes, PackId};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// A directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchivedDirectory {
    /// Permission bits, `0o7777`.
    pub mode: u32,
    /// Numeric owner.
    pub uid: u32,
    /// Numeric group.
    pub gid: u32,
    /// Seconds of its last change; negative before 1970.
    pub mtime_s: i64,
    /// Nanoseconds to add.
    pub mtime_ns: u32,
    /// Extended attributes, sorted by name.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A pack of a directory's files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchivedPack {
    /// Its name, by which its objects are found.
    pub id: PackId,
    /// Which of its indexes says what is in it.
    pub generation: u64,
    /// Bytes of that index.
    pub index_bytes: u64,
    /// How many members that has.
    pub members: u32,
    /// Bytes of their contents.
    pub content_bytes: u64,
    /// Bytes of the tar.
    pub tar_bytes: u64,
    /// The name of the first member.
    pub first: Vec<u8>,
    /// The name of the last member.
    pub last: Vec<u8>,
}

/// A file that is in no pack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchivedObject {
    /// Its name and attributes.
    pub attributes: MemberAttributes,
    /// Bytes of its content, holes among them.
    pub size: u64,
    /// BLAKE3 of what is stored of its content.
    pub digest: [u8; 32],
    /// Where its content is; a file without content has no place.
    pub place: Option<ContentPlace>,
    /// Which bytes of its content are stored, one behind the other, where the rest are holes. Nothing
    /// where all are.
    pub extents: Option<Vec<Range<u64>>>,
    /// What all names of one file have in common, where it has several.
    pub link: Option<PackId>,
}

impl ArchivedObject {
    /// Which bytes of its content are stored, one behind the other; the rest are holes.
    #[must_use]
    pub fn stored_extents(&self) -> Vec<Range<u64>> {
        match &self.extents {
            Some(extents) => extents.clone(),
            None => std::iter::once(0..self.size).collect(),
        }
    }

    /// Bytes that are stored of its content.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.stored_extents().iter().map(|extent| extent.end - extent.start).sum()
    }
}

/// What is known of a directory, all of it from one commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectoryRows {
    /// The commit that has changed it last; 0 where there is none.
    pub changed: u64,
    /// What it is, if it is there.
    pub directory: Option<ArchivedDirectory>,
    /// Its packs, by their names.
    pub packs: Vec<ArchivedPack>,
    /// Its objects, by their names.
    pub objects: Vec<ArchivedObject>,
}

/// Where the content of a file is that is in no pack of its directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContentPlace {
    /// An object has it, and nothing else.
    Object(PackId),
    /// Some pack has it: what was a member and moved, or has other names in other directories.
    Pack {
        /// That pack.
        id: PackId,
        /// At which byte of the tar it begins.
        at: u64,
    },
}

/// What becomes of one directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryChange {
    /// Which one.
    pub path: ArchivePath,
    /// The commit that has changed it last, as far as its writer knows: 0 where there is none. Where
    /// there is a later one, this change is not made.
    pub since: u64,
    /// What it is from now on; nothing where it stays as it is.
    pub directory: Option<ArchivedDirectory>,
    /// It goes, with its packs and objects. Directories below it go by changes of their own.
    pub removed: bool,
    /// Packs that it no longer has.
    pub packs_removed: Vec<PackId>,
    /// Names of objects that it no longer has.
    pub objects_removed: Vec<Vec<u8>>,
    /// Packs that it has, or has with another index.
    pub packs: Vec<ArchivedPack>,
    /// Objects that it has, or has with other attributes or contents.
    pub objects: Vec<ArchivedObject>,
}

/// Changes that are made together, or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// Each of another directory.
    pub changes: Vec<DirectoryChange>,
}
