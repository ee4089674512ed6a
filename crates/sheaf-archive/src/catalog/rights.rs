//! Modes and owners of a pack's members: known by its row, and changed there.
//!
//! Files of a directory have few modes and owners. A row has each that occurs as a class: what the
//! index says, what it is now, and of how many members. So a change of all members, whatever it makes
//! of a mode, is another row, and a change that changes nothing is known to be none.
use crate::pack::index::PackIndex;
use crate::pack::member::{MemberAttributes, MemberKind, PackedMember};
use serde::{Deserialize, Serialize};

/// Classes of a row at most.
const CLASSES_MAX: usize = 16;
/// What an executable may do beyond its user: it is lost with the owner, as the set-id bits are.
const CAPABILITY: &[u8] = b"security.capability";
/// An access control list, whose entries for the owner, others and the mask are the mode.
const ACCESS_ACL: &[u8] = b"system.posix_acl_access";
const ACL_VERSION_BYTES: usize = 4;
const ACL_ENTRY_BYTES: usize = 8;

/// Mode and owner of a file.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct FileRights {
    /// Permission bits, `0o7777`.
    pub mode: u32,
    /// Numeric owner.
    pub uid: u32,
    /// Numeric group.
    pub gid: u32,
}

/// Members of a pack that have one mode and owner, and are alike in what a change makes of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MemberClass {
    /// They are symbolic links, whose mode nobody changes.
    pub are_links: bool,
    /// They have a capability, which is lost with the owner, or an access control list, which is
    /// another one with the mode.
    pub are_bound: bool,
    /// What the index says.
    pub stored: FileRights,
    /// What they have now.
    pub now: FileRights,
    /// How many there are.
    pub members: u32,
}

impl MemberClass {
    /// All classes of an index; nothing if there are too many.
    pub(crate) fn all(index: &PackIndex) -> Option<Vec<Self>> {
        let mut classes: Vec<Self> = Vec::new();
        for member in &index.members {
            if let Some(class) = classes.iter_mut().find(|class| class.has(member)) {
                class.members += 1;
                continue;
            }
            if classes.len() == CLASSES_MAX {
                return None;
            }
            let of = &member.attributes;
            classes.push(Self {
                are_links: of.is_link(),
                are_bound: of.are_xattrs_bound(),
                stored: of.rights(),
                now: of.rights(),
                members: 1,
            });
        }
        classes.sort_unstable();
        Some(classes)
    }

    /// Whether a member is one of these, as the index says.
    fn has(&self, member: &PackedMember) -> bool {
        let of = &member.attributes;
        self.stored == of.rights()
            && self.are_links == of.is_link()
            && self.are_bound == of.are_xattrs_bound()
    }

    /// Has the members of an index be as they are now. Whether each is of a class.
    pub(crate) fn apply(classes: &[Self], index: &mut PackIndex) -> bool {
        // Most rows have never changed, and the index is right as it is.
        if classes.iter().all(|class| class.now == class.stored) {
            return true;
        }
        index.members.iter_mut().all(|member| {
            let Some(class) = classes.iter().find(|class| class.has(member)) else { return false };
            member.set_rights(class.now);
            true
        })
    }

    /// How many members of each kind there are by now, as an index would say that is written now.
    pub(crate) fn all_now(classes: &[Self]) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for class in classes {
            let class = Self { stored: class.now, ..*class };
            match all.iter_mut().find(|known| Self { members: class.members, ..**known } == class) {
                Some(known) => known.members += class.members,
                None => all.push(class),
            }
        }
        all.sort_unstable();
        all
    }
}

/// Has extended attributes be those of a file whose mode or owner has become another one.
pub(crate) fn rebind_xattrs(
    xattrs: &mut Vec<(Vec<u8>, Vec<u8>)>,
    (old, new): (FileRights, FileRights),
) {
    if (old.uid, old.gid) != (new.uid, new.gid) {
        xattrs.retain(|(name, _)| name != CAPABILITY);
    }
    for (_, list) in xattrs.iter_mut().filter(|(name, _)| name == ACCESS_ACL) {
        let entries = list.get_mut(ACL_VERSION_BYTES..).unwrap_or(&mut []);
        // With a mask, the mode's bits for the group are those of the mask (`acl(5)`).
        let has_mask = entries.chunks_exact(ACL_ENTRY_BYTES).any(|entry| entry[..2] == [0x10, 0]);
        for entry in entries.chunks_exact_mut(ACL_ENTRY_BYTES) {
            let permissions = match (u16::from_le_bytes([entry[0], entry[1]]), has_mask) {
                (0x01, _) => new.mode >> 6,
                (0x10, _) | (0x04, false) => new.mode >> 3,
                (0x20, _) => new.mode,
                _ => continue,
            };
            entry[2..4].copy_from_slice(&((permissions & 0o7) as u16).to_le_bytes());
        }
    }
}

impl MemberAttributes {
    /// Its mode and owner.
    #[must_use]
    pub fn rights(&self) -> FileRights {
        FileRights { mode: self.mode, uid: self.uid, gid: self.gid }
    }

    /// Gives it a mode and owner.
    pub(crate) fn set_rights(&mut self, rights: FileRights) {
        (self.mode, self.uid, self.gid) = (rights.mode, rights.uid, rights.gid);
    }

    /// Whether it is a symbolic link.
    #[must_use]
    pub fn is_link(&self) -> bool {
        matches!(self.kind, MemberKind::Symlink { .. })
    }

    /// Whether extended attributes of it change with its mode or owner.
    fn are_xattrs_bound(&self) -> bool {
        self.xattrs.iter().any(|(name, _)| name == CAPABILITY || name == ACCESS_ACL)
    }
}

impl PackedMember {
    /// Gives it a mode and owner; the tar's stay known.
    pub(crate) fn set_rights(&mut self, rights: FileRights) {
        let in_tar = self.in_tar.unwrap_or(self.attributes.rights());
        self.attributes.set_rights(rights);
        self.in_tar = (in_tar != rights).then_some(in_tar);
    }
}
