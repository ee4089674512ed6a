//! Each byte of a pack against what its index says.
use super::header::{self, HeaderContent, padding_of};
use super::index::{PackIndex, TAR_END_BYTES};
use super::member::PackedMember;
use super::scan::bytes_at;
use super::{BLOCK_BYTES, write};
use crate::error::PackError;

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
    // Later modes and owners are in the index alone.
    let index = &*index.as_in_tar();
    let mut found = Vec::new();
    let mut headers = Vec::new();
    for member in &index.members {
        let name = || member.attributes.name.to_vec();
        if content_of(tar, member).is_err() {
            found.push(Difference::Content { name: name() });
        }
        headers.clear();
        let content = HeaderContent { size: member.size, extents: member.extents.as_deref() };
        header::push(&mut headers, &member.attributes, content);
        let padding = padding_of(member.stored_bytes());
        let end = member.content_at().saturating_add(member.stored_bytes());
        let is_same = headers.len() == usize::from(member.header_blocks) * BLOCK_BYTES
            && bytes_at(tar, u64::from(member.first_block), headers.len() as u64)
                == Some(&headers[..])
            && usize::try_from(end)
                .ok()
                .and_then(|end| tar.get(end..end.checked_add(padding)?))
                .is_some_and(|padding| padding.iter().all(|&byte| byte == 0));
        if !is_same {
            found.push(Difference::Headers { name: name() });
        }
    }
    if !is_end_whole(tar, index) {
        found.push(Difference::End);
    }
    found
}

/// Whether the index within a pack is whole, and this one or the one that it began with.
fn is_end_whole(tar: &[u8], index: &PackIndex) -> bool {
    let from = usize::try_from(index.member_blocks.saturating_mul(BLOCK_BYTES as u64)).ok();
    let Some((within, end)) = from
        .and_then(|from| tar.get(from..))
        .and_then(|end| end.split_at_checked(end.len().checked_sub(TAR_END_BYTES)?))
    else {
        return false;
    };
    let first = PackIndex::in_pack(tar).ok().filter(|first| {
        first.id == index.id && (first == index || first.generation < index.generation)
    });
    first.is_some_and(|first| write::index_member(&first) == within)
        && end.iter().all(|&byte| byte == 0)
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
