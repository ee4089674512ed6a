//! Writing a pack: members in the order of their names, then the index, then the end of the tar.
use super::header::{self, HeaderContent, padding_of};
use super::index::{INDEX_NAME, PACK_BLOCKS_MAX, PackIndex, TAR_END_BYTES};
use super::member::{MemberAttributes, MemberKind, PackId, PackedMember};
use super::{BLOCK_BYTES, blocks_of, sparse};
use crate::error::PackError;
use crate::name::FileName;
use std::collections::HashSet;
use std::io::Write;
use std::ops::Range;

/// Members of a pack at most: 2²⁰.
pub const PACK_MEMBERS_MAX: usize = 1 << 20;
/// Bytes that a member of a pack may have at most. What is longer is an object of its own.
pub const MEMBER_BYTES_MAX: usize = 64 << 20;
/// Pairs of owner and group in a pack at most: each has a number of 16 bits.
pub(crate) const PACK_OWNERS_MAX: usize = 1 << 16;

/// Writes a pack to whatever takes bytes.
#[derive(Debug)]
pub struct PackWriter<W> {
    out: W,
    index: PackIndex,
    owners: HashSet<(u32, u32)>,
    headers: Vec<u8>,
}

impl<W: Write> PackWriter<W> {
    /// Begins a pack of this name.
    pub fn new(out: W, id: PackId) -> Self {
        let index = PackIndex { id, generation: 0, member_blocks: 0, members: Vec::new() };
        Self { out, index, owners: HashSet::new(), headers: Vec::new() }
    }

    /// Whether one more member may have no room: the pack is to be ended before.
    #[must_use]
    pub fn is_full(&self) -> bool {
        !self.has_room(1)
    }

    /// Whether so many more members have room, however long they are.
    #[must_use]
    pub fn has_room(&self, members: usize) -> bool {
        // The longest content, and as many blocks of headers as 16 bits can count.
        let room = (MEMBER_BYTES_MAX / BLOCK_BYTES) as u64 + u64::from(u16::MAX);
        self.index.members.len() + members <= PACK_MEMBERS_MAX
            && self.owners.len() + members <= PACK_OWNERS_MAX
            && self.index.member_blocks + members as u64 * room <= PACK_BLOCKS_MAX
    }

    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.index.members.is_empty()
    }

    /// Bytes of the pack so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.index.member_blocks * BLOCK_BYTES as u64
    }

    /// Adds a member whose name comes behind those of all others: a file with its whole content, or
    /// what has none. A hard link has the content of the file it names.
    ///
    /// # Errors
    /// When this cannot be a member, which leaves the pack as it was; when it cannot be written.
    pub fn add(&mut self, of: &MemberAttributes, content: &[u8]) -> Result<(), PackError> {
        self.add_content(of, content.len() as u64, None, content)
    }

    /// Adds a sparse file of `size` bytes: `content` is what is in its pieces `extents`, in their order.
    ///
    /// # Errors
    /// As [`PackWriter::add`]; each piece begins with a block of 512 bytes, and ends with one or with
    /// the file, and a hole is between two.
    pub fn add_sparse(
        &mut self,
        of: &MemberAttributes,
        size: u64,
        extents: &[Range<u64>],
        content: &[u8],
    ) -> Result<(), PackError> {
        self.add_content(of, size, Some(extents), content)
    }

    fn add_content(
        &mut self,
        of: &MemberAttributes,
        size: u64,
        extents: Option<&[Range<u64>]>,
        content: &[u8],
    ) -> Result<(), PackError> {
        let no_member = |why| Err(PackError::NoMember { name: of.name.to_vec(), why });
        if let Some(why) = self.refusal(of, content) {
            return no_member(why);
        }
        let said = HeaderContent { size, extents };
        if extents.is_some_and(|extents| {
            !sparse::are_pieces(extents, size)
                || super::member::stored_bytes(size, Some(extents)) != content.len() as u64
                || of.kind != MemberKind::File
        }) {
            return no_member("its holes are not those of a file in a pack");
        }
        self.headers.clear();
        header::push(&mut self.headers, of, said);
        let blocks = blocks_of(self.headers.len() as u64);
        let Ok(header_blocks) = u16::try_from(blocks) else {
            return no_member("its extended attributes are too long for a pack");
        };
        // All refusals come before this: a file that is none of its members leaves the pack as it
        // was.
        self.out.write_all(&self.headers)?;
        write_padded(&mut self.out, content)?;
        let mut member = PackedMember {
            attributes: of.clone(),
            size,
            digest: *blake3::hash(content).as_bytes(),
            first_block: self.index.member_blocks as u32,
            header_blocks,
            extents: extents.map(<[_]>::to_vec),
            file_block: None,
            in_tar: None,
        };
        if let MemberKind::HardLink { to } = &of.kind
            && let Some(file) = self.index.find(to)
        {
            member.shares(file);
        }
        self.index.member_blocks = member.end_block();
        self.owners.insert((of.uid, of.gid));
        self.index.members.push(member);
        Ok(())
    }

    /// Why this cannot be a member.
    fn refusal(&self, of: &MemberAttributes, content: &[u8]) -> Option<&'static str> {
        if self.is_full() {
            return Some("the pack is full");
        }
        if *of.name == *INDEX_NAME {
            return Some("the index of a pack has this name");
        }
        let last = self.index.members.last();
        if last.is_some_and(|last| last.attributes.name >= of.name) {
            return Some("it does not come behind the pack's last member");
        }
        if content.len() > MEMBER_BYTES_MAX {
            return Some("it is too long for a pack");
        }
        if of.mtime.nanoseconds >= 1_000_000_000 || of.mode > 0o7777 {
            return Some("its time or its mode is none");
        }
        if !content.is_empty() && of.kind != MemberKind::File {
            return Some("a file of this kind has no content");
        }
        if let MemberKind::HardLink { to } = &of.kind
            && !self.index.find(to).is_some_and(|to| to.attributes.kind == MemberKind::File)
        {
            return Some("the file that it is another name of is not in the pack");
        }
        None
    }

    /// Writes the index and the end; nothing is flushed or synced.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(mut self) -> Result<(W, PackIndex), PackError> {
        self.out.write_all(&index_member(&self.index))?;
        self.out.write_all(&[0; TAR_END_BYTES])?;
        Ok((self.out, self.index))
    }
}

fn index_name() -> FileName {
    FileName::new(INDEX_NAME).expect("it is a name")
}

/// An index as the member of a pack that it is.
pub(crate) fn index_member(index: &PackIndex) -> Vec<u8> {
    let (mut bytes, encoded) = (Vec::new(), index.encode());
    let named = MemberAttributes::new(index_name(), MemberKind::File, 0o644);
    let content = HeaderContent { size: encoded.len() as u64, extents: None };
    header::push(&mut bytes, &named, content);
    bytes.extend_from_slice(&encoded);
    bytes
}

fn write_padded(out: &mut impl Write, content: &[u8]) -> std::io::Result<()> {
    out.write_all(content)?;
    out.write_all(&[0; BLOCK_BYTES][..padding_of(content.len() as u64)])
}
