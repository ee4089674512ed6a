//! A pack's index: what is known of each member, in 86 bytes beside its name. See `docs/format.md`.
use super::member::{MemberAttributes, MemberKind, PackId, PackedMember};
use super::write::{MEMBER_BYTES_MAX, PACK_MEMBERS_MAX, PACK_OWNERS_MAX};
use super::{BLOCK_BYTES, blocks_of, sparse};
use crate::catalog::FileRights;
use crate::error::PackError;
use crate::name::FileName;
use sheaf_core::files::Timestamp;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// What the index is called among the members of a pack. A file of this name is none.
pub const INDEX_NAME: &[u8] = b".sheaf-index";
/// The format that this Sheaf writes, and the latest that it reads.
pub const INDEX_VERSION: u32 = 1;

const MAGIC: &[u8; 8] = b"sheafidx";
const END_MAGIC: &[u8; 8] = b"sheafend";
/// Bytes of an index at most: it is in memory as a whole.
pub(crate) const INDEX_BYTES_MAX: u64 = 1 << 30;
/// Blocks of a pack's members at most: those of 2 TiB.
pub(crate) const PACK_BLOCKS_MAX: u64 = 1 << 32;

const HEADER_BYTES: usize = 64;
const RECORD_BYTES: usize = 86;
const OWNER_BYTES: usize = 8;
/// BLAKE3 of all before it, the index's length, and what it ends with.
const FOOTER_BYTES: usize = 48;
/// The two blocks of zeros at the end of a tar.
pub(crate) const TAR_END_BYTES: usize = 2 * BLOCK_BYTES;

const HARD_LINK: u8 = 1;
/// What is beside a name: each piece is a tag, a length of four bytes, and so many bytes.
const LINK_TAG: u8 = b'l';
const DEVICE_TAG: u8 = b'd';
const FILE_TAG: u8 = b'f';
const SPARSE_TAG: u8 = b's';
const RIGHTS_TAG: u8 = b'r';
const XATTR_NAME_TAG: u8 = b'n';
const XATTR_VALUE_TAG: u8 = b'v';

/// What is known of a pack and its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackIndex {
    /// The pack's name.
    pub id: PackId,
    /// Counts up with each index of this pack; 0 is the one within it.
    pub generation: u64,
    /// How many blocks, of 512 bytes, its members have before the index.
    pub member_blocks: u64,
    /// The members by name, bytewise.
    pub members: Vec<PackedMember>,
}

impl PackIndex {
    /// The member of this name.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<&PackedMember> {
        let at = self.members.binary_search_by(|member| member.attributes.name[..].cmp(name));
        at.ok().map(|at| &self.members[at])
    }

    /// Bytes of all contents, holes among them. What several members share is counted once.
    #[must_use]
    pub fn content_bytes(&self) -> u64 {
        self.files().fold(0, |bytes, member| bytes.saturating_add(member.size))
    }

    /// The first member of each file: those that share a content are one.
    pub fn files(&self) -> impl Iterator<Item = &PackedMember> {
        let mut linked = HashSet::new();
        // A file is before its other names.
        let links = self.members.iter().filter_map(|member| member.file_block);
        let has_other: HashSet<u64> = links.map(u64::from).collect();
        self.members.iter().filter(move |member| {
            !has_other.contains(&member.content_block()) || linked.insert(member.content_block())
        })
    }

    /// The same with modes and owners as they are in the tar.
    pub(crate) fn as_in_tar(&self) -> Cow<'_, Self> {
        if self.members.iter().all(|member| member.in_tar.is_none()) {
            return Cow::Borrowed(self);
        }
        let mut index = self.clone();
        for member in &mut index.members {
            if let Some(in_tar) = member.in_tar.take() {
                member.attributes.set_rights(in_tar);
            }
        }
        Cow::Owned(index)
    }

    /// The index in bytes: a multiple of 512.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (mut records, mut owners) = (Vec::new(), PackOwners::default());
        let (mut names, mut extras) = (Vec::new(), Vec::new());
        for member in &self.members {
            let of = &member.attributes;
            let owner = owners.number((of.uid, of.gid));
            let from = extras.len();
            push_extras(&mut extras, member);
            names.extend_from_slice(&of.name);
            records.extend_from_slice(&member.first_block.to_le_bytes());
            records.extend_from_slice(&member.header_blocks.to_le_bytes());
            records.extend_from_slice(&owner.to_le_bytes());
            records.extend_from_slice(&member.size.to_le_bytes());
            records.extend_from_slice(&of.mtime.seconds.to_le_bytes());
            records.extend_from_slice(&of.mtime.nanoseconds.to_le_bytes());
            records.extend_from_slice(&raw_mode(of).to_le_bytes());
            records.extend_from_slice(&of.ctime_ns.to_le_bytes());
            records.extend_from_slice(&of.ino.to_le_bytes());
            records.extend_from_slice(&((extras.len() - from) as u32).to_le_bytes());
            records.push(of.name.len() as u8);
            let is_hard_link = matches!(of.kind, MemberKind::HardLink { .. });
            records.push(if is_hard_link { HARD_LINK } else { 0 });
            records.extend_from_slice(&member.digest);
        }
        let mut bytes = Vec::with_capacity(records.len() + names.len() + extras.len() + 1024);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&INDEX_VERSION.to_le_bytes());
        bytes.extend_from_slice(&(self.members.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(owners.all.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(names.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(extras.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&self.member_blocks.to_le_bytes());
        bytes.extend_from_slice(&self.generation.to_le_bytes());
        bytes.extend_from_slice(&self.id.0);
        debug_assert_eq!(bytes.len(), HEADER_BYTES);
        bytes.extend_from_slice(&records);
        for (uid, gid) in owners.all {
            bytes.extend_from_slice(&u32::to_le_bytes(uid));
            bytes.extend_from_slice(&u32::to_le_bytes(gid));
        }
        bytes.extend_from_slice(&names);
        bytes.extend_from_slice(&extras);
        // The footer comes behind the padding: by the last bytes, a reader knows how long all is.
        let all = (bytes.len() + FOOTER_BYTES).next_multiple_of(BLOCK_BYTES);
        bytes.resize(all - FOOTER_BYTES, 0);
        let digest = blake3::hash(&bytes);
        bytes.extend_from_slice(digest.as_bytes());
        bytes.extend_from_slice(&(all as u64).to_le_bytes());
        bytes.extend_from_slice(END_MAGIC);
        bytes
    }

    /// What an index says.
    ///
    /// # Errors
    /// When it is none, is damaged, or is of a later version.
    pub fn decode(bytes: &[u8]) -> Result<Self, PackError> {
        let damaged = |why| Err(PackError::damaged(format!("its index {why}")));
        if bytes.len() < HEADER_BYTES + FOOTER_BYTES || !bytes.starts_with(MAGIC) {
            return damaged("is no index");
        }
        let (body, footer) = bytes.split_at(bytes.len() - FOOTER_BYTES);
        let (digest, end) = footer.split_at(32);
        if end[..8] != (bytes.len() as u64).to_le_bytes() || &end[8..] != END_MAGIC {
            return damaged("is cut off");
        }
        if blake3::hash(body) != *<&[u8; 32]>::try_from(digest).expect("32 bytes were split off") {
            return damaged("is not as it was written (checksum)");
        }
        // Each version ends as this one does: a number that was damaged is not a later version's.
        let version = IndexBytes { left: &body[MAGIC.len()..] }.u32()?;
        if version > INDEX_VERSION {
            return Err(PackError::Version { version, known: INDEX_VERSION });
        }
        Self::of_body(&body[MAGIC.len() + size_of::<u32>()..])
    }

    /// What an index says between its version and its checksum.
    pub(crate) fn of_body(body: &[u8]) -> Result<Self, PackError> {
        let mut rest = IndexBytes { left: body };
        let header = &mut rest;
        let (members, owners) = (header.u32()? as usize, header.u32()? as usize);
        let (names, extras) = (header.u32()? as usize, header.u64()? as usize);
        let (member_blocks, generation) = (header.u64()?, header.u64()?);
        let id = PackId(header.take()?);
        // A damaged number does not overflow, and `bytes` refuses what is not there.
        let mut records = IndexBytes { left: rest.bytes(members.saturating_mul(RECORD_BYTES))? };
        let owners = rest.bytes(owners.saturating_mul(OWNER_BYTES))?;
        let mut names = IndexBytes { left: rest.bytes(names)? };
        let mut extras = IndexBytes { left: rest.bytes(extras)? };
        let members: Result<_, PackError> = (0..members)
            .map(|_| member_of(&mut records, owners, &mut names, &mut extras))
            .collect();
        let index = Self { id, generation, member_blocks, members: members? };
        index.check().map_err(|why| PackError::damaged(format!("its index {why}")))?;
        Ok(index)
    }

    /// The index that is a pack's last member.
    ///
    /// # Errors
    /// When the tar does not end as a pack does, or as [`PackIndex::decode`].
    pub fn in_pack(tar: &[u8]) -> Result<Self, PackError> {
        let damaged = || PackError::damaged("it does not end with an index");
        let members = tar.len().checked_sub(TAR_END_BYTES).ok_or_else(damaged)?;
        let bytes = Self::bytes_in_end(&tar[..members]).ok_or_else(damaged)?;
        let from = members.checked_sub(bytes).ok_or_else(damaged)?;
        Self::decode(&tar[from..members])
    }

    /// How many bytes an index has, by the last of them.
    #[must_use]
    pub fn bytes_in_end(end: &[u8]) -> Option<usize> {
        let (bytes, magic) = end.last_chunk::<16>()?.split_at(8);
        let bytes = u64::from_le_bytes(bytes.try_into().ok()?);
        usize::try_from(bytes).ok().filter(|_| magic == END_MAGIC)
    }

    /// What holds of each index: names in order, each once; members one behind the other or apart, in
    /// their order, all before the end; hard links of files that come before them.
    ///
    /// # Errors
    /// What does not hold.
    pub fn check(&self) -> Result<(), String> {
        let owners =
            self.members.iter().map(|member| (member.attributes.uid, member.attributes.gid));
        // Most have fewer members than that, and need no count of their owners.
        if self.members.len() > PACK_MEMBERS_MAX
            || (self.members.len() > PACK_OWNERS_MAX
                && owners.collect::<HashSet<_>>().len() > PACK_OWNERS_MAX)
        {
            return Err("has more members or owners than a pack has".to_owned());
        }
        let (mut name, mut block) = (&[][..], 0);
        for member in &self.members {
            let of = &member.attributes;
            let said = || format!("says of {} what cannot be", of.name.escape_ascii());
            if *of.name == *INDEX_NAME || of.name[..] <= *name {
                return Err(format!("has no order: {}", of.name.escape_ascii()));
            }
            if u64::from(member.first_block) < block
                || member.header_blocks == 0
                || member.stored_bytes() > MEMBER_BYTES_MAX as u64
                || of.mode > 0o7777
                || member.in_tar.is_some_and(|in_tar| in_tar.mode > 0o7777)
                || of.mtime.nanoseconds >= 1_000_000_000
            {
                return Err(said());
            }
            let pieces = member.extents.as_deref();
            let is_content = match &of.kind {
                MemberKind::File => member.file_block.is_none(),
                MemberKind::HardLink { to } => self.is_link(member, to),
                _ => member.file_block.is_none() && member.size == 0,
            };
            if !is_content || !pieces.is_none_or(|pieces| sparse::are_pieces(pieces, member.size)) {
                return Err(said());
            }
            (name, block) = (&of.name[..], member.end_block());
        }
        if block > self.member_blocks || self.member_blocks > PACK_BLOCKS_MAX {
            return Err("says that there is more than there is".to_owned());
        }
        Ok(())
    }
}

impl PackIndex {
    /// Whether this is another name of a file that is before it, as far as that is still a member.
    fn is_link(&self, member: &PackedMember, to: &[u8]) -> bool {
        let is_before = member.file_block.is_some_and(|block| {
            u64::from(block).saturating_add(blocks_of(member.stored_bytes()))
                <= u64::from(member.first_block)
        });
        let is_same = |file: &PackedMember| {
            file.attributes.kind == MemberKind::File
                && file.content_block() == member.content_block()
                && (file.size, file.digest, &file.extents)
                    == (member.size, member.digest, &member.extents)
        };
        is_before && *to < *member.attributes.name && self.find(to).is_none_or(is_same)
    }
}

/// Pairs of user and group, by their numbers.
#[derive(Default)]
struct PackOwners {
    all: Vec<(u32, u32)>,
    numbers: HashMap<(u32, u32), u16>,
}

impl PackOwners {
    fn number(&mut self, owner: (u32, u32)) -> u16 {
        *self.numbers.entry(owner).or_insert_with(|| {
            self.all.push(owner);
            u16::try_from(self.all.len() - 1).expect("an index has no more owners (`check`)")
        })
    }
}

/// Kind and permission bits, as `st_mode` has them.
fn raw_mode(of: &MemberAttributes) -> u32 {
    let kind = match of.kind {
        MemberKind::File | MemberKind::HardLink { .. } => 0o100_000,
        MemberKind::Symlink { .. } => 0o120_000,
        MemberKind::Fifo => 0o010_000,
        MemberKind::CharDevice { .. } => 0o020_000,
        MemberKind::BlockDevice { .. } => 0o060_000,
    };
    kind | of.mode & 0o7777
}

fn push_extras(extras: &mut Vec<u8>, member: &PackedMember) {
    let of = &member.attributes;
    let mut push = |tag, bytes: &[u8]| {
        extras.push(tag);
        extras.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        extras.extend_from_slice(bytes);
    };
    if let Some(link) = of.link() {
        push(LINK_TAG, link);
    }
    if let Some(block) = member.file_block {
        push(FILE_TAG, &block.to_le_bytes());
    }
    if let Some(extents) = &member.extents {
        let numbers = extents.iter().flat_map(|extent| [extent.start, extent.end]);
        push(SPARSE_TAG, &numbers.flat_map(u64::to_le_bytes).collect::<Vec<_>>());
    }
    if let MemberKind::CharDevice { major, minor } | MemberKind::BlockDevice { major, minor } =
        of.kind
    {
        let device = u64::from(major) << 32 | u64::from(minor);
        push(DEVICE_TAG, &device.to_le_bytes());
    }
    if let Some(FileRights { mode, uid, gid }) = member.in_tar {
        push(RIGHTS_TAG, &[mode, uid, gid].map(u32::to_le_bytes).concat());
    }
    for (name, value) in &of.xattrs {
        push(XATTR_NAME_TAG, name);
        push(XATTR_VALUE_TAG, value);
    }
}

/// What is beside a name.
#[derive(Default)]
struct Extras {
    link: Vec<u8>,
    device: u64,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    in_tar: Option<FileRights>,
    file_block: Option<u32>,
    extents: Option<Vec<Range<u64>>>,
}

impl Extras {
    fn read(mut from: IndexBytes<'_>) -> Result<Self, PackError> {
        let mut extras = Self::default();
        while !from.left.is_empty() {
            let [tag] = from.take()?;
            let bytes = from.u32()? as usize;
            let bytes = from.bytes(bytes)?;
            match tag {
                LINK_TAG => extras.link = bytes.to_owned(),
                FILE_TAG => extras.file_block = Some(IndexBytes { left: bytes }.u32()?),
                SPARSE_TAG => {
                    let (mut bytes, mut extents) = (IndexBytes { left: bytes }, Vec::new());
                    while !bytes.left.is_empty() {
                        extents.push(bytes.u64()?..bytes.u64()?);
                    }
                    extras.extents = Some(extents);
                }
                RIGHTS_TAG => {
                    let mut bytes = IndexBytes { left: bytes };
                    let (mode, uid, gid) = (bytes.u32()?, bytes.u32()?, bytes.u32()?);
                    extras.in_tar = Some(FileRights { mode, uid, gid });
                }
                DEVICE_TAG => extras.device = IndexBytes { left: bytes }.u64()?,
                XATTR_NAME_TAG => extras.xattrs.push((bytes.to_owned(), Vec::new())),
                XATTR_VALUE_TAG => {
                    let last = extras.xattrs.last_mut().ok_or_else(IndexBytes::too_short)?;
                    last.1 = bytes.to_owned();
                }
                _ => return Err(PackError::damaged("its index has something that is not known")),
            }
        }
        Ok(extras)
    }
}

fn member_of(
    records: &mut IndexBytes<'_>,
    owners: &[u8],
    names: &mut IndexBytes<'_>,
    extras: &mut IndexBytes<'_>,
) -> Result<PackedMember, PackError> {
    let (first_block, header_blocks) = (records.u32()?, u16::from_le_bytes(records.take()?));
    let owner = usize::from(u16::from_le_bytes(records.take()?)) * OWNER_BYTES;
    let mut owner = IndexBytes { left: owners.get(owner..).ok_or_else(IndexBytes::too_short)? };
    let (uid, gid) = (owner.u32()?, owner.u32()?);
    let size = records.u64()?;
    let seconds = i64::from_le_bytes(records.take()?);
    let (nanoseconds, raw_mode) = (records.u32()?, records.u32()?);
    let (ctime_ns, ino) = (records.u64()?, records.u64()?);
    let extras_bytes = records.u32()? as usize;
    let [name_bytes, flags] = records.take()?;
    let digest = records.take()?;
    let name = name_of(names.bytes(usize::from(name_bytes))?)?;
    let Extras { link, device, xattrs, in_tar, file_block, extents } =
        Extras::read(IndexBytes { left: extras.bytes(extras_bytes)? })?;
    let (major, minor) = ((device >> 32) as u32, device as u32);
    let kind = match (raw_mode & 0o170_000, flags) {
        (0o100_000, 0) => MemberKind::File,
        (0o100_000, HARD_LINK) => MemberKind::HardLink { to: name_of(&link)? },
        (0o120_000, 0) => MemberKind::Symlink { target: link },
        (0o010_000, 0) => MemberKind::Fifo,
        (0o020_000, 0) => MemberKind::CharDevice { major, minor },
        (0o060_000, 0) => MemberKind::BlockDevice { major, minor },
        _ => return Err(PackError::damaged("its index has a kind of file that is not known")),
    };
    let (mode, mtime) = (raw_mode & 0o7777, Timestamp { seconds, nanoseconds });
    let attributes = MemberAttributes { name, kind, mode, uid, gid, mtime, ctime_ns, ino, xattrs };
    Ok(PackedMember {
        attributes,
        size,
        digest,
        first_block,
        header_blocks,
        extents,
        file_block,
        in_tar,
    })
}

fn name_of(bytes: &[u8]) -> Result<FileName, PackError> {
    let no_name = || PackError::damaged("its index has something that is no name of a file");
    FileName::new(bytes).ok_or_else(no_name)
}

/// Bytes from which pieces are cut off.
struct IndexBytes<'a> {
    left: &'a [u8],
}

impl<'a> IndexBytes<'a> {
    fn too_short() -> PackError {
        PackError::damaged("its index is too short for what it says")
    }

    fn bytes(&mut self, bytes: usize) -> Result<&'a [u8], PackError> {
        let (cut, left) = self.left.split_at_checked(bytes).ok_or_else(Self::too_short)?;
        self.left = left;
        Ok(cut)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], PackError> {
        let (cut, left) = self.left.split_first_chunk().ok_or_else(Self::too_short)?;
        self.left = left;
        Ok(*cut)
    }

    fn u32(&mut self) -> Result<u32, PackError> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    fn u64(&mut self) -> Result<u64, PackError> {
        Ok(u64::from_le_bytes(self.take()?))
    }
}
