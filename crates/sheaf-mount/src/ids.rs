//! Users and groups of hosts, as a view shows them.
//!
//! A map says which user of the hosts is which user here. Requests carry the ids of the hosts, and attributes and access
//! control lists are shown with the ids of this machine. An id that is in no rule stays as it is, unless a rule
//! gives this number to another id: then it is `nobody`, because it would be taken for that other one.
//!
//! Owner, group and permission bits can also be set for all files, as file systems without owners have them. That changes
//! only what is shown: the owner of the files decides by its own attributes.
use crate::message::{FileAnswer, FileCaller, NodeAttributes, NodeOp, SetNodeAttributes};
use serde::{Deserialize, Serialize};
use sheaf_core::Errno;
use std::collections::BTreeMap;

/// The id of a user or group that cannot be named.
pub(crate) const NOBODY: u32 = 65_534;
/// Rules of one map.
pub const ID_RULES_MAX: usize = 4096;
/// The system's word for no id.
const NO_ID: u32 = u32::MAX;

/// Which id of the hosts is which id here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<(u32, u32)>", into = "Vec<(u32, u32)>")]
pub struct IdMap {
    to_here: BTreeMap<u32, u32>,
    to_hosts: BTreeMap<u32, u32>,
}

/// Why there is no such map.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum IdMapError {
    /// One id would be two.
    #[error("id {0} is in two rules: each id of the hosts and of this machine is in one")]
    Twice(u32),
    /// The system's word for no id.
    #[error("{NO_ID} is no id")]
    NoId,
    /// There are too many.
    #[error("{0} rules: at most {ID_RULES_MAX}")]
    TooMany(usize),
    /// It is written in another way.
    #[error("{0}: not KIND:HOSTID:LOCALID with KIND u or g, such as u:1000:1001")]
    Form(String),
    /// Permission bits are octal digits.
    #[error("umask={0}: not three octal digits")]
    Umask(String),
}

impl IdMap {
    fn here(&self, id: u32) -> u32 {
        let is_others = || self.to_hosts.contains_key(&id);
        self.to_here.get(&id).copied().unwrap_or_else(|| if is_others() { NOBODY } else { id })
    }

    fn hosts(&self, id: u32) -> u32 {
        let is_others = || self.to_here.contains_key(&id);
        self.to_hosts.get(&id).copied().unwrap_or_else(|| if is_others() { NOBODY } else { id })
    }
}

impl TryFrom<Vec<(u32, u32)>> for IdMap {
    type Error = IdMapError;

    /// Pairs of an id of the hosts and one of this machine.
    fn try_from(rules: Vec<(u32, u32)>) -> Result<Self, IdMapError> {
        if rules.len() > ID_RULES_MAX {
            return Err(IdMapError::TooMany(rules.len()));
        }
        let mut map = Self::default();
        for (host, here) in rules {
            if host == NO_ID || here == NO_ID {
                return Err(IdMapError::NoId);
            }
            if map.to_here.insert(host, here).is_some() {
                return Err(IdMapError::Twice(host));
            }
            if map.to_hosts.insert(here, host).is_some() {
                return Err(IdMapError::Twice(here));
            }
        }
        Ok(map)
    }
}

impl From<IdMap> for Vec<(u32, u32)> {
    fn from(map: IdMap) -> Self {
        map.to_here.into_iter().collect()
    }
}

/// How owners and permission bits are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownIds {
    users: IdMap,
    groups: IdMap,
    uid: Option<u32>,
    gid: Option<u32>,
    umask: Option<u32>,
}

impl ShownIds {
    /// Those of a map: rules `u:HOSTUID:LOCALUID` and `g:HOSTGID:LOCALGID`, separated by commas or white space.
    /// A line that begins with `#` is a comment.
    ///
    /// # Errors
    /// When a rule has another form, or an id is in two of them.
    pub fn of_map(text: &str) -> Result<Self, IdMapError> {
        let (mut users, mut groups) = (Vec::new(), Vec::new());
        let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
        let is_between = |c: char| c == ',' || c.is_whitespace();
        for rule in lines.flat_map(|line| line.split(is_between)).filter(|rule| !rule.is_empty()) {
            let wrong = || IdMapError::Form(rule.to_owned());
            let mut parts = rule.split(':');
            let kind = parts.next();
            let mut id = || parts.next().and_then(|id| id.parse::<u32>().ok()).ok_or_else(wrong);
            let pair = (id()?, id()?);
            match (kind, parts.next()) {
                (Some("u"), None) => users.push(pair),
                (Some("g"), None) => groups.push(pair),
                _ => return Err(wrong()),
            }
        }
        let (users, groups) = (IdMap::try_from(users)?, IdMap::try_from(groups)?);
        Ok(Self { users, groups, ..Self::default() })
    }

    /// All files belong to this user and group.
    #[must_use]
    pub fn with_owner(self, uid: Option<u32>, gid: Option<u32>) -> Self {
        Self { uid, gid, ..self }
    }

    /// All files have the permission bits that these octal digits do not take away.
    ///
    /// # Errors
    /// When the text has others.
    pub fn with_umask(self, text: &str) -> Result<Self, IdMapError> {
        let is_octal = text.len() <= 4 && text.bytes().all(|digit| (b'0'..b'8').contains(&digit));
        let umask = u32::from_str_radix(text, 8).ok().filter(|mask| is_octal && *mask <= 0o777);
        let umask = umask.ok_or_else(|| IdMapError::Umask(text.to_owned()))?;
        Ok(Self { umask: Some(umask), ..self })
    }

    /// Whether all is shown as it is.
    pub(crate) fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// The caller of a request, as the hosts know it.
    pub(crate) fn caller(&self, who: FileCaller) -> FileCaller {
        if self.is_plain() {
            return who;
        }
        FileCaller {
            uid: self.users.hosts(who.uid),
            gid: self.groups.hosts(who.gid),
            gids: who.gids.into_iter().map(|gid| self.groups.hosts(gid)).collect(),
        }
    }

    /// An operation, with the ids of the hosts.
    ///
    /// # Errors
    /// `EPERM` for another owner of files that all have one, `EINVAL` for an owner that the hosts do not have.
    pub(crate) fn op(&self, op: NodeOp) -> Result<NodeOp, Errno> {
        match op {
            NodeOp::SetAttributes { node, handle, set } if !self.is_plain() => {
                let uid = new_owner(set.uid, self.uid, &self.users)?;
                let gid = new_owner(set.gid, self.gid, &self.groups)?;
                Ok(NodeOp::SetAttributes {
                    node,
                    handle,
                    set: SetNodeAttributes { uid, gid, ..set },
                })
            }
            NodeOp::SetXattr { node, name, mut value, flags } if self.is_of_list(&name) => {
                map_list(&mut value, |map, id| map.hosts(id), self);
                Ok(NodeOp::SetXattr { node, name, value, flags })
            }
            op => Ok(op),
        }
    }

    /// Whether an extended attribute has ids in it that are shown as others.
    pub(crate) fn is_of_list(&self, name: &[u8]) -> bool {
        !self.is_plain() && matches!(name, b"system.posix_acl_access" | b"system.posix_acl_default")
    }

    /// An access control list, as it is shown.
    pub(crate) fn list(&self, value: &mut [u8]) {
        map_list(value, |map, id| map.here(id), self);
    }

    /// An answer, as it is shown.
    pub(crate) fn answer(&self, answer: FileAnswer) -> FileAnswer {
        match answer {
            _ if self.is_plain() => answer,
            FileAnswer::Node(found) => FileAnswer::Node(self.attributes(found)),
            FileAnswer::Walked(found) => {
                FileAnswer::Walked(found.into_iter().map(|one| self.attributes(one)).collect())
            }
            FileAnswer::Created(made, handle) => FileAnswer::Created(self.attributes(made), handle),
            FileAnswer::Entries(mut entries) => {
                for entry in &mut entries {
                    entry.attributes = entry.attributes.map(|found| self.attributes(found));
                }
                FileAnswer::Entries(entries)
            }
            answer => answer,
        }
    }

    fn attributes(&self, found: NodeAttributes) -> NodeAttributes {
        let kind = found.mode & libc::S_IFMT;
        let umask = self.umask.filter(|_| kind != libc::S_IFLNK);
        NodeAttributes {
            uid: self.uid.unwrap_or_else(|| self.users.here(found.uid)),
            gid: self.gid.unwrap_or_else(|| self.groups.here(found.gid)),
            mode: umask.map_or(found.mode, |umask| kind | (0o777 & !umask)),
            ..found
        }
    }
}

/// The owner that a file is to have at its host.
fn new_owner(wanted: Option<u32>, all: Option<u32>, map: &IdMap) -> Result<Option<u32>, Errno> {
    match (wanted, all) {
        (None, _) => Ok(None),
        (Some(id), Some(all)) => {
            if id == all {
                Ok(None)
            } else {
                Err(Errno::PERM)
            }
        }
        (Some(id), None) => match map.hosts(id) {
            NOBODY if id != NOBODY => Err(Errno::INVAL),
            id => Ok(Some(id)),
        },
    }
}

/// Maps the ids of an access control list, as `linux/posix_acl_xattr.h` has it.
fn map_list(value: &mut [u8], each: impl Fn(&IdMap, u32) -> u32, ids: &ShownIds) {
    const HEAD_BYTES: usize = 4;
    const ENTRY_BYTES: usize = 8;
    const USER: u16 = 2;
    const GROUP: u16 = 8;
    for entry in value.get_mut(HEAD_BYTES..).unwrap_or_default().chunks_exact_mut(ENTRY_BYTES) {
        let map = match u16::from_le_bytes([entry[0], entry[1]]) {
            USER => &ids.users,
            GROUP => &ids.groups,
            _ => continue,
        };
        let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
        entry[4..].copy_from_slice(&each(map, id).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_mapped_both_ways_and_never_taken_for_others() {
        let ids = ShownIds::of_map("# of the hosts\nu:2000:1000, u:0:0\ng:50:60").unwrap();
        assert_eq!([2000, 0, 7, 1000].map(|id| ids.users.here(id)), [1000, 0, 7, NOBODY]);
        assert_eq!([1000, 0, 7, 2000].map(|id| ids.users.hosts(id)), [2000, 0, 7, NOBODY]);
        let who = FileCaller { uid: 1000, gid: 60, gids: vec![50, 3] };
        let there = FileCaller { uid: 2000, gid: 50, gids: vec![NOBODY, 3] };
        assert_eq!(ids.caller(who), there);
        let chown = |uid| {
            let set = SetNodeAttributes { uid: Some(uid), ..Default::default() };
            ids.op(NodeOp::SetAttributes { node: 1, handle: None, set })
        };
        assert_eq!(chown(2000), Err(Errno::INVAL));
        let Ok(NodeOp::SetAttributes { set, .. }) = chown(1000) else { panic!() };
        assert_eq!(set.uid, Some(2000));
    }

    #[test]
    fn invalid_maps_are_refused_also_when_decoded() {
        let of = |text: &str| ShownIds::of_map(text).unwrap_err();
        assert_eq!(of("u:1:2,u:1:3"), IdMapError::Twice(1));
        assert_eq!(of("u:1:2,u:3:2"), IdMapError::Twice(2));
        assert_eq!(of("g:4294967295:2"), IdMapError::NoId);
        for text in ["u:1", "x:1:2", "u:1:2:3", "u:one:2", "u:-1:2"] {
            assert_eq!(of(text), IdMapError::Form(text.to_owned()));
        }
        let encoded = postcard::to_stdvec(&vec![(1u32, 2u32), (1, 3)]).unwrap();
        assert!(postcard::from_bytes::<IdMap>(&encoded).is_err());
        let map = IdMap::try_from(vec![(1, 2), (3, 4)]).unwrap();
        let encoded = postcard::to_stdvec(&map).unwrap();
        assert_eq!(postcard::from_bytes::<IdMap>(&encoded), Ok(map));
        for text in ["", "8", "1000", "00022", "-1"] {
            assert!(ShownIds::default().with_umask(text).is_err(), "{text}");
        }
    }

    #[test]
    fn lists_have_the_ids_of_each_side() {
        let ids = ShownIds::of_map("u:2000:1000,g:50:60").unwrap();
        let list = |user: u32, group: u32| {
            let entries = [(1u16, 7u16, NO_ID), (2, 6, user), (8, 4, group), (0x20, 0, NO_ID)];
            let mut bytes = 2u32.to_le_bytes().to_vec();
            for (tag, bits, id) in entries {
                bytes.extend(tag.to_le_bytes());
                bytes.extend(bits.to_le_bytes());
                bytes.extend(id.to_le_bytes());
            }
            bytes
        };
        let mut shown = list(2000, 50);
        ids.list(&mut shown);
        assert_eq!(shown, list(1000, 60));
    }
}
