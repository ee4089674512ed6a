//! Files with several names: the content is stored once, by whoever comes first.
//!
//! Where all names are in one directory, and not far from each other, they are members of one pack;
//! else they are objects that refer to one content.
//!
//! Hard links stay hard links. The names of a file are archived in several commits, and the last of
//! these may never come. So a name that has not changed is stored again, as a link, if an earlier
//! name of its file is archived as another file ([`is_parted`]).
use super::SaveShared;
use super::desk::Unstored;
use super::old::OldFiles;
use crate::catalog::ArchivedObject;
use crate::pack::index::INDEX_NAME;
use crate::pack::member::{MemberAttributes, PackId};
use crate::walk::names::NamedFile;
use rustix::fs::AtFlags;
use serde::{Deserialize, Serialize};
use sheaf_core::files::Metadata;
use sheaf_core::lock;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex};

/// What all names of one file have in common.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct StoredLink {
    pub id: PackId,
    /// One of them, as it is archived.
    pub as_is: ArchivedObject,
}

/// What is stored of a file with several names, when it is.
type LinkSlot = Mutex<Option<StoredLink>>;

/// A slot, and how many names have come to it.
type KnownLink = (Arc<LinkSlot>, u32);

/// Those of which not all names have come.
#[derive(Default)]
pub(super) struct SavedLinks {
    slots: Mutex<HashMap<(u64, u64), KnownLink>>,
    /// Which file each link is of that is archived as it is, where names are counted.
    kept: Mutex<HashMap<PackId, (u64, u64)>>,
}

impl SavedLinks {
    /// What is stored of a file, by `store` when its first name comes. Who comes second waits for that.
    pub fn stored(
        &self,
        found: &Metadata,
        store: &mut dyn FnMut() -> Result<StoredLink, Unstored>,
    ) -> Result<StoredLink, Unstored> {
        // The lock of the slot is held while the content is stored, so a second name waits. The
        // lock of the map is not: other files go on.
        let slot = self.slot(found);
        let mut slot = lock(&slot);
        match &*slot {
            Some(stored) => Ok(stored.clone()),
            None => Ok(slot.insert(store()?).clone()),
        }
    }

    /// Whether a name that is archived as it is may stay so: what came before it of its file, if something
    /// did, is archived as the same, and where names are counted (`counts`) no name of another file is.
    pub fn is_same(&self, found: &Metadata, link: &StoredLink, counts: bool) -> bool {
        if counts && *lock(&self.kept).entry(link.id).or_insert_with(|| found.id()) != found.id() {
            return false;
        }
        // The name is not counted yet: one that is not the same comes once more, to be stored.
        let slot = lock(&self.slots).entry(found.id()).or_default().0.clone();
        let is_same = lock(&slot).get_or_insert_with(|| link.clone()).id == link.id;
        if is_same {
            self.slot(found);
        }
        is_same
    }

    /// A name that has come comes once more, to be stored.
    pub fn comes_again(&self, found: &Metadata) {
        if let Some((_, names)) = lock(&self.slots).get_mut(&found.id()) {
            *names = names.saturating_sub(1);
        }
    }

    /// Where a file is stored, for a name that has come.
    fn slot(&self, found: &Metadata) -> Arc<LinkSlot> {
        let mut slots = lock(&self.slots);
        let (slot, names) = slots.entry(found.id()).or_default();
        *names += 1;
        let (slot, names) = (slot.clone(), *names);
        // All names have come. Else a large tree would have each of its linked files in memory.
        if names >= found.nlink {
            slots.remove(&found.id());
        }
        slot
    }
}

/// Whether a name that is archived as it is was parted from others of its file, as where these were left
/// out, or their directories not committed: it is stored again then, as the same. Where the time of change
/// is not compared, which a new name or one that is gone sets, names are counted.
pub(super) fn is_parted(
    shared: &SaveShared<'_>,
    old: &OldFiles,
    (directory, name): (BorrowedFd<'_>, &[u8]),
    found: &Metadata,
) -> bool {
    let counts = shared.options.checksum || shared.options.ignores.ctime;
    if found.nlink < 2 && !counts {
        return false;
    }
    if old.is_member(name) {
        // A member's file has no name but those in the pack.
        let others = old.other_names(name);
        let is_name = |other: &Vec<u8>| {
            let there = rustix::fs::statat(directory, other, AtFlags::SYMLINK_NOFOLLOW);
            there.is_ok_and(|there| (there.st_dev, there.st_ino) == found.id())
        };
        return counts && (others.len() + 1 != found.nlink as usize || !others.iter().all(is_name));
    }
    let Some(as_is) = old.open_object(name) else { return false };
    if found.nlink < 2 {
        return as_is.link.is_some();
    }
    let Some(id) = as_is.link else { return true };
    !shared.desk.is_same_link(found, &StoredLink { id, as_is }, counts)
}

/// Files of one piece of a directory all of whose names are in it: they may be members of one pack.
#[derive(Default)]
pub(super) struct PieceLinks {
    files: HashMap<(u64, u64), PieceLink>,
}

/// Such a file.
pub(super) struct PieceLink {
    /// Names that have not come.
    names_left: u32,
    /// Bytes of a pack from its first name to its last, at most.
    pub span_bytes: u64,
    /// The first name as it is in the pack that is open.
    pub member: Option<MemberAttributes>,
}

impl PieceLinks {
    /// Those among these names. A name that is a member takes `member_bytes` of a pack; one that is left out
    /// is none.
    pub fn of(
        named: &[NamedFile],
        member_bytes: impl Fn(&Metadata) -> u64,
        is_left_out: impl Fn(&NamedFile) -> bool,
    ) -> Self {
        let mut spans: HashMap<(u64, u64), (u32, u64, u64)> = HashMap::new();
        let mut at = 0;
        for file in named {
            let Ok(found) = &file.found else { continue };
            let from = at;
            at += member_bytes(found);
            // A name that cannot be a member is missing, so none of that file's is one.
            let is_linked = found.is_file() && found.nlink > 1;
            if is_linked && file.name.as_bytes() != INDEX_NAME && !is_left_out(file) {
                let (names, _, end) = spans.entry(found.id()).or_insert((0, from, at));
                (*names, *end) = (*names + 1, at);
            }
        }
        let names = |found: &Metadata| spans.get(&found.id()).copied();
        let found = named.iter().filter_map(|file| file.found.as_ref().ok());
        let files = found.filter_map(|found| {
            let (names_left, from, end) = names(found)?;
            let link = PieceLink { names_left, span_bytes: end - from, member: None };
            (names_left == found.nlink).then_some((found.id(), link))
        });
        Self { files: files.collect() }
    }

    /// A name has come.
    pub fn met(&mut self, found: &Metadata) {
        if let Some(link) = self.files.get_mut(&found.id()) {
            link.names_left = link.names_left.saturating_sub(1);
        }
    }

    pub fn get(&mut self, found: &Metadata) -> Option<&mut PieceLink> {
        self.files.get_mut(&found.id())
    }

    /// The names of a file are no members.
    pub fn leave_out(&mut self, found: &Metadata) {
        self.files.remove(&found.id());
    }

    /// Whether names are to come of files that are in the open pack: it is not to be ended before.
    pub fn hold_pack(&self) -> bool {
        self.files.values().any(|link| link.member.is_some() && link.names_left > 0)
    }
}
