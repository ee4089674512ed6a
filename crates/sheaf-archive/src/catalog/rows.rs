//! The rows of a catalog, and how they change.
use super::rights::MemberClass;
use crate::archive::{data_key, pack_key, pack_zstd_key};
use crate::name::FileName;
use crate::pack::BLOCK_BYTES;
use crate::pack::index::PackIndex;
use crate::pack::member::{MemberAttributes, PackId};
use crate::path::ArchivePath;
use crate::store::StoreKey;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchivedPack {
    /// Its name, by which its objects are found.
    pub id: PackId,
    /// Which of its indexes says what is in it.
    pub generation: u64,
    /// Bytes of that index.
    pub index_bytes: u64,
    /// How many members that has.
    pub members: u32,
    /// How many files these are: members that are names of one file are one.
    pub files: u32,
    /// Bytes of their contents.
    pub content_bytes: u64,
    /// Bytes of the tar.
    pub tar_bytes: u64,
    /// Bytes of the object that has it, where it is compressed with zstd.
    pub zstd_bytes: Option<u64>,
    /// The name of the first member.
    pub first: Vec<u8>,
    /// The name of the last member.
    pub last: Vec<u8>,
    /// Modes and owners of its members, as the index says and as they are now: what is known without
    /// a look at that, and changed without another one. Nothing where there are too many.
    pub classes: Option<Vec<MemberClass>>,
}

impl ArchivedPack {
    /// Whether members may have holes, as far as its row says: without any, each takes a block and its content.
    /// Of one from which members were removed, only the index says it.
    pub(crate) fn may_have_holes(&self) -> bool {
        let least = self.content_bytes.saturating_add(u64::from(self.members) * BLOCK_BYTES as u64);
        self.generation > 0 || least > self.tar_bytes
    }

    /// Has all that an index says of its members. Its bytes, and those of the tar, are not known by it.
    pub(crate) fn describe(&mut self, index: &PackIndex) {
        let name = |member: Option<&crate::PackedMember>| {
            member.map(|member| member.attributes.name.to_vec()).unwrap_or_default()
        };
        self.id = index.id;
        self.generation = index.generation;
        self.members = index.members.len() as u32;
        self.files = index.files().count() as u32;
        self.content_bytes = index.content_bytes();
        self.first = name(index.members.first());
        self.last = name(index.members.last());
        self.classes = MemberClass::all(index);
    }
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
        /// Whether the tar is compressed with zstd.
        zstd: bool,
    },
    /// Several objects have it, one behind the other.
    Parts {
        /// Their names.
        ids: Vec<PackId>,
        /// The bytes of each, but of the last, which has the rest.
        bytes: u64,
    },
}

impl ContentPlace {
    /// The objects that have nothing else, of a content of so many stored bytes, and how long each is.
    pub(crate) fn own_objects(&self, stored: u64) -> Vec<(StoreKey, u64)> {
        match self {
            Self::Object(id) => vec![(data_key(*id), stored)],
            Self::Pack { .. } => Vec::new(),
            Self::Parts { ids, bytes } => {
                let begins = (0..).map(|number: u64| number.saturating_mul(*bytes));
                let length = |begin| stored.saturating_sub(begin).min(*bytes);
                ids.iter().zip(begins).map(|(id, begin)| (data_key(*id), length(begin))).collect()
            }
        }
    }

    /// The objects that it is in.
    pub(crate) fn keys(&self) -> Vec<StoreKey> {
        match self {
            Self::Object(id) => vec![data_key(*id)],
            Self::Pack { id, zstd: true, .. } => vec![pack_zstd_key(*id)],
            Self::Pack { id, .. } => vec![pack_key(*id)],
            Self::Parts { ids, .. } => ids.iter().map(|id| data_key(*id)).collect(),
        }
    }
}

/// Where a directory and all that is below it come from, in one change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TreeSource {
    /// It was there, and is so no longer.
    Moved(ArchivePath),
    /// It is there, too: packs and objects are those of both. Files with several names have them among
    /// their own copies.
    Copied(ArchivePath),
}

impl TreeSource {
    /// The directory that it was.
    #[must_use]
    pub fn from(&self) -> &ArchivePath {
        match self {
            Self::Moved(from) | Self::Copied(from) => from,
        }
    }
}

/// What all names of a copied file have in common; a copy in this commit, of what has this in common.
pub(super) fn copied_link(link: PackId, number: u64, to: &ArchivePath) -> PackId {
    let mut digest = blake3::Hasher::new();
    digest.update(&link.0).update(&number.to_le_bytes()).update(to.key());
    PackId(*digest.finalize().as_bytes().first_chunk().expect("a digest has 32 bytes"))
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
    /// It comes from elsewhere, with all that is below it. It is not there before, or empty; what is
    /// said beside this is done behind it. No other change of a commit is of what is within either.
    pub tree: Option<TreeSource>,
    /// Packs that it no longer has.
    pub packs_removed: Vec<PackId>,
    /// Names of objects that it no longer has.
    pub objects_removed: Vec<FileName>,
    /// Packs that it has, or has with another index.
    pub packs: Vec<ArchivedPack>,
    /// Objects that it has, or has with other attributes or contents.
    pub objects: Vec<ArchivedObject>,
}

/// A directory of which a commit says two things that would depend on their order: one that is moved
/// or copied, or is the new place, with something else within it.
pub(super) fn overlapping(commit: &Commit) -> Option<ArchivePath> {
    let trees = || commit.changes.iter().filter(|change| change.tree.is_some());
    trees().next()?;
    let mut named: BTreeMap<ArchivePath, usize> = BTreeMap::new();
    let mut name = |path: &ArchivePath| *named.entry(path.clone()).or_default() += 1;
    for change in &commit.changes {
        name(&change.path);
        if let Some(tree) = &change.tree {
            name(tree.from());
        }
        // What is new needs the directory that it is in.
        if (change.tree.is_some() || change.directory.is_some())
            && let Some((above, _)) = change.path.split()
        {
            name(&above);
        }
    }
    let within = |path: &ArchivePath| -> usize {
        let within = named.range(path..).take_while(|(other, _)| other.is_within(path));
        within.map(|(_, times)| times).sum()
    };
    let is_alone = |change: &&DirectoryChange| match &change.tree {
        None => true,
        Some(TreeSource::Moved(from)) => within(&change.path) == 1 && within(from) == 1,
        Some(TreeSource::Copied(from)) => within(&change.path) == 1 && within(from) == named[from],
    };
    trees().find(|change| !is_alone(change)).map(|change| change.path.clone())
}

/// Changes that are made together, or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// Each of another directory.
    pub changes: Vec<DirectoryChange>,
}
