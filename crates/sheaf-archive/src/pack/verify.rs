//! Each byte of a pack against what its index says.
use super::header::{self, HeaderContent, padding_of};
use super::index::{INDEX_BYTES_MAX, PackIndex, TAR_END_BYTES};
use super::member::PackedMember;
use super::scan::bytes_at;
use super::{BLOCK_BYTES, write};
use crate::error::PackError;
use std::collections::HashMap;
use std::convert::Infallible;

/// Bytes of a content that are in memory at once.
const READ_BYTES: usize = 1 << 20;
/// Bytes of the end of a pack: its index with the headers of that, and the end of a tar.
const END_BYTES_MAX: u64 = INDEX_BYTES_MAX + (64 << 10);

/// What of a pack is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Difference {
    /// A member's content.
    Content {
        /// Its name.
        name: Vec<u8>,
    },
    /// What the tar says of a member, or what fills up its last block.
    Headers {
        /// Its name.
        name: Vec<u8>,
    },
    /// The index within the pack, or the end of the tar.
    End,
}

/// What a pack's tar has of a member's content, compared with its digest: of a sparse file that is what
/// is not in holes.
///
/// # Errors
/// When it is not as it was written, or is not there.
pub fn content_of<'a>(tar: &'a [u8], member: &PackedMember) -> Result<&'a [u8], PackError> {
    let name = member.attributes.name.escape_ascii();
    let at = member.content_at() / BLOCK_BYTES as u64;
    let content = bytes_at(tar, at, member.stored_bytes())
        .ok_or_else(|| PackError::damaged(format!("it ends before {name} does")))?;
    if blake3::hash(content) != member.digest {
        return Err(PackError::damaged(format!("{name} is not as it was written (checksum)")));
    }
    Ok(content)
}

/// All that is not as an index says, by members in their order. What lies between members, where
/// others were removed, belongs to none and is not looked at.
#[must_use]
pub fn verify_pack(tar: &[u8], index: &PackIndex) -> Vec<Difference> {
    let read = |from: u64, into: &mut [u8]| {
        let from = from as usize;
        into.copy_from_slice(&tar[from..from + into.len()]);
        Ok::<(), Infallible>(())
    };
    verify_pack_by(tar.len() as u64, read, index).unwrap_or_else(|never| match never {})
}

/// The same of a tar of so many bytes, which `read` reads from one place to a later one: no more than a part of
/// a member is in memory, and the index within the tar.
///
/// # Errors
/// Those of `read`.
pub(crate) fn verify_pack_by<E>(
    tar_bytes: u64,
    read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    index: &PackIndex,
) -> Result<Vec<Difference>, E> {
    // Later modes and owners are in the index alone.
    let index = &*index.as_in_tar();
    let mut tar = TarBytes { bytes: tar_bytes, read, room: Vec::new() };
    let (mut found, mut headers) = (Vec::new(), Vec::new());
    // What was found of contents that have several names.
    let mut linked: HashMap<_, (bool, bool)> = HashMap::new();
    for member in &index.members {
        let name = || member.attributes.name.to_vec();
        headers.clear();
        let content = HeaderContent { size: member.size, extents: member.extents.as_deref() };
        header::push(&mut headers, &member.attributes, content);
        let header_at = u64::from(member.first_block) * BLOCK_BYTES as u64;
        let is_header_same = headers.len() == usize::from(member.header_blocks) * BLOCK_BYTES
            && tar.is(header_at, &headers)?;
        let (from, stored) = (member.content_at(), member.stored_bytes());
        let of_file = (from, stored, member.digest);
        let seen = member.file_block.and_then(|_| linked.get(&of_file));
        let (is_content_same, is_padding_same) = match seen {
            Some(seen) => *seen,
            None => {
                let padding = padding_of(stored);
                let is_content_same = tar.has_digest(from, stored, &member.digest)?;
                (
                    is_content_same,
                    tar.is(from.saturating_add(stored), &[0; BLOCK_BYTES][..padding])?,
                )
            }
        };
        if member.file_block.is_some() {
            linked.insert(of_file, (is_content_same, is_padding_same));
        }
        if !is_content_same {
            found.push(Difference::Content { name: name() });
        }
        if !(is_header_same && is_padding_same) {
            found.push(Difference::Headers { name: name() });
        }
    }
    if !tar.is_end_whole(index)? {
        found.push(Difference::End);
    }
    Ok(found)
}

/// A tar that is read from one place to a later one.
struct TarBytes<F> {
    bytes: u64,
    read: F,
    room: Vec<u8>,
}

impl<E, F: FnMut(u64, &mut [u8]) -> Result<(), E>> TarBytes<F> {
    /// What is there from a byte on; nothing where the tar ends before.
    fn at(&mut self, from: u64, bytes: usize) -> Result<Option<&[u8]>, E> {
        if from.checked_add(bytes as u64).is_none_or(|end| end > self.bytes) {
            return Ok(None);
        }
        self.room.resize(bytes, 0);
        (self.read)(from, &mut self.room)?;
        Ok(Some(&self.room))
    }

    fn is(&mut self, from: u64, wanted: &[u8]) -> Result<bool, E> {
        Ok(self.at(from, wanted.len())? == Some(wanted))
    }

    fn has_digest(&mut self, from: u64, bytes: u64, digest: &[u8; 32]) -> Result<bool, E> {
        let Some(end) = from.checked_add(bytes).filter(|end| *end <= self.bytes) else {
            return Ok(false);
        };
        let (mut hasher, mut at) = (blake3::Hasher::new(), from);
        while at < end {
            let part = (end - at).min(READ_BYTES as u64);
            let Some(read) = self.at(at, part as usize)? else { return Ok(false) };
            hasher.update(read);
            at += part;
        }
        Ok(hasher.finalize() == *digest)
    }

    /// Whether the index within a pack is whole, and this one or the one that it began with.
    fn is_end_whole(&mut self, index: &PackIndex) -> Result<bool, E> {
        let from = index.member_blocks.saturating_mul(BLOCK_BYTES as u64);
        let end_bytes = self.bytes.saturating_sub(from);
        if end_bytes < TAR_END_BYTES as u64 || end_bytes > END_BYTES_MAX {
            return Ok(false);
        }
        let Some(within) = self.at(from, end_bytes as usize)? else { return Ok(false) };
        let (member, end) = within.split_at(within.len() - TAR_END_BYTES);
        let first = PackIndex::in_pack(within).ok().filter(|first| {
            first.id == index.id && (first == index || first.generation < index.generation)
        });
        Ok(first.is_some_and(|first| write::index_member(&first) == member)
            && end.iter().all(|&byte| byte == 0))
    }
}

impl Difference {
    /// What it is, in words.
    #[must_use]
    pub fn what(&self) -> &'static str {
        match self {
            Self::Content { .. } => "its content",
            Self::Headers { .. } => "its tar header",
            Self::End => "the pack's end",
        }
    }

    /// The member whose it is; nothing of the pack's end.
    #[must_use]
    pub fn name(&self) -> Option<&[u8]> {
        match self {
            Self::Content { name } | Self::Headers { name } => Some(name),
            Self::End => None,
        }
    }
}
