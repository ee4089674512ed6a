//! An index of what a pack's tar says, for where no index is left.
use super::header::{self, HeaderField};
use super::index::{INDEX_NAME, PackIndex};
use super::member::{MemberAttributes, MemberKind, PackId, PackedMember, stored_bytes};
use super::{BLOCK_BYTES, acl, blocks_of, pax, sparse};
use crate::error::PackError;
use crate::name::FileName;
use sheaf_core::files::Timestamp;

/// Makes an index of a pack's members, with all that a tar has of them: inodes and their times, by
/// which a change is noticed, are not known then, and the pack's name is the one given.
///
/// # Errors
/// When a header is damaged, or is none that a [`PackWriter`](crate::PackWriter) writes.
pub fn scan_pack(tar: &[u8], id: PackId) -> Result<PackIndex, PackError> {
    let mut index = PackIndex { id, generation: 0, member_blocks: 0, members: Vec::new() };
    let mut block = 0;
    while let Some(member) = member_at(tar, block)? {
        block = member.end_block();
        if *member.attributes.name == *INDEX_NAME {
            break;
        }
        index.member_blocks = block;
        let member = linked(member, &index)?;
        index.members.push(member);
    }
    index.check().map_err(|why| PackError::damaged(format!("its tar {why}")))?;
    Ok(index)
}

/// A member with the content of its file, where it is another name of one.
fn linked(mut member: PackedMember, index: &PackIndex) -> Result<PackedMember, PackError> {
    if let MemberKind::HardLink { to } = &member.attributes.kind {
        // Names are in order, as long as it is a pack.
        let file = index.find(to).filter(|file| file.attributes.kind == MemberKind::File);
        let file = file.ok_or_else(|| {
            let (name, to) = (member.attributes.name.escape_ascii(), to.escape_ascii());
            PackError::damaged(format!("its tar has no file {to} before {name}, its other name"))
        })?;
        member.shares(file);
    }
    Ok(member)
}

/// The member whose headers begin at a block; nothing at the end of the tar.
fn member_at(tar: &[u8], first: u64) -> Result<Option<PackedMember>, PackError> {
    let damaged = |why: &str| PackError::damaged(format!("its tar {why} at block {first}"));
    let mut block = block_of(tar, first).ok_or_else(|| damaged("is cut off"))?;
    if block.iter().all(|&byte| byte == 0) {
        return Ok(None);
    }
    let (mut at, mut records) = (first, Vec::new());
    if checked_kind(block).ok_or_else(|| damaged("has no header"))? == header::EXTENDED {
        let bytes = number_in(block, &header::SIZE).ok_or_else(|| damaged("has no size"))?;
        let text = bytes_at(tar, at + 1, bytes).ok_or_else(|| damaged("is cut off"))?;
        records = pax::records(text)?;
        at += 1 + blocks_of(bytes);
        block = block_of(tar, at).ok_or_else(|| damaged("is cut off"))?;
    }
    let kind = checked_kind(block).ok_or_else(|| damaged("has no header"))?;
    let name = name_in(block, &records);
    let name = FileName::new(name).ok_or_else(|| {
        let name = name.escape_ascii();
        damaged(&format!("has a member \"{name}\", which is no name in a directory"))
    })?;
    let attributes = attributes_of(name, block, kind, &records)
        .ok_or_else(|| damaged("has a header that no pack has"))?;
    let mut stored = number_in(block, &header::SIZE).ok_or_else(|| damaged("has no size"))?;
    let (mut size, mut extents) = (stored, None);
    at += 1;
    if is_sparse(&records).ok_or_else(|| damaged("has a sparse file of another format"))? {
        size = said(&records, header::SPARSE_SIZE)
            .and_then(pax::number)
            .ok_or_else(|| damaged("has a sparse file without a size"))?;
        let map = sparse::map_of(size, |bytes| bytes_at(tar, at, bytes.min(stored)));
        let (pieces, blocks) = map.ok_or_else(|| damaged("has a sparse file without a map"))?;
        at += blocks;
        stored = stored.saturating_sub(blocks * BLOCK_BYTES as u64);
        if !sparse::are_pieces(&pieces, size) || stored_bytes(size, Some(&pieces)) != stored {
            return Err(damaged("has a sparse file with a map of another"));
        }
        extents = Some(pieces);
    }
    let content = bytes_at(tar, at, stored).ok_or_else(|| damaged("is cut off"))?;
    let first_block = u32::try_from(first).map_err(|_| damaged("is too long"))?;
    let header_blocks = u16::try_from(at - first).map_err(|_| damaged("is too long"))?;
    let digest = *blake3::hash(content).as_bytes();
    let (file_block, in_tar) = (None, None);
    Ok(Some(PackedMember {
        attributes,
        size,
        digest,
        first_block,
        header_blocks,
        extents,
        file_block,
        in_tar,
    }))
}

/// What a record of an extended header says.
fn said<'a>(records: &[pax::PaxRecord<'a>], key: &[u8]) -> Option<&'a [u8]> {
    records.iter().find(|(known, _)| *known == key).map(|(_, value)| *value)
}

/// Whether a member is a sparse file; nothing if it is one of a format that no pack has.
fn is_sparse(records: &[pax::PaxRecord<'_>]) -> Option<bool> {
    let version = (said(records, header::SPARSE_MAJOR), said(records, header::SPARSE_MINOR));
    match version {
        (Some(b"1"), Some(b"0")) => Some(true),
        _ => {
            let has_other = records.iter().any(|(key, _)| key.starts_with(b"GNU.sparse."));
            (!has_other).then_some(false)
        }
    }
}

/// What a header has for a name.
fn name_in<'a>(block: &'a [u8], records: &[pax::PaxRecord<'a>]) -> &'a [u8] {
    said(records, header::SPARSE_NAME)
        .or_else(|| said(records, b"path"))
        .unwrap_or_else(|| text_in(block, &header::NAME))
}

fn attributes_of(
    name: FileName,
    block: &[u8],
    kind: u8,
    records: &[pax::PaxRecord<'_>],
) -> Option<MemberAttributes> {
    let said = |key: &[u8]| said(records, key);
    let text = |key, field| said(key).unwrap_or_else(|| text_in(block, field)).to_owned();
    let number = |key, field| match said(key) {
        Some(digits) => pax::number(digits),
        None => u32::try_from(number_in(block, field)?).ok(),
    };
    let link = text(b"linkpath", &header::LINK);
    let device = |field| u32::try_from(number_in(block, field)?).ok();
    let kind = match kind {
        header::FILE => MemberKind::File,
        header::HARD_LINK => MemberKind::HardLink { to: FileName::new(link)? },
        header::SYMLINK => MemberKind::Symlink { target: link },
        header::FIFO => MemberKind::Fifo,
        header::CHAR_DEVICE => MemberKind::CharDevice {
            major: device(&header::MAJOR)?,
            minor: device(&header::MINOR)?,
        },
        header::BLOCK_DEVICE => MemberKind::BlockDevice {
            major: device(&header::MAJOR)?,
            minor: device(&header::MINOR)?,
        },
        _ => return None,
    };
    let mtime = match said(b"mtime") {
        Some(text) => pax::time_of(text)?,
        None => {
            let seconds = i64::try_from(number_in(block, &header::MTIME)?).ok()?;
            Timestamp { seconds, nanoseconds: 0 }
        }
    };
    let mut xattrs = Vec::new();
    for (key, value) in records {
        if let Some((name, _)) = acl::ACLS.iter().find(|(_, known)| known == key) {
            xattrs.push(((*name).to_owned(), acl::value_of(value)?));
        } else if let Some(name) = pax::xattr_of(key) {
            xattrs.push((name, (*value).to_owned()));
        }
    }
    xattrs.sort();
    Some(MemberAttributes {
        name,
        kind,
        mode: u32::try_from(number_in(block, &header::MODE)?).ok()?,
        uid: number(b"uid".as_slice(), &header::UID)?,
        gid: number(b"gid".as_slice(), &header::GID)?,
        mtime,
        ctime_ns: 0,
        ino: 0,
        xattrs,
    })
}

/// What a header is of, if its checksum is right.
fn checked_kind(block: &[u8]) -> Option<u8> {
    let sum = number_in(block, &header::CHECKSUM)?;
    (sum == header::checksum_of(block)).then(|| block[header::TYPE_AT])
}

/// A number in octal digits.
fn number_in(block: &[u8], field: &HeaderField) -> Option<u64> {
    let digits = text_in(block, field).trim_ascii_end();
    u64::from_str_radix(str::from_utf8(digits).ok()?, 8).ok()
}

/// A text up to its NUL, if it has one.
fn text_in<'a>(block: &'a [u8], field: &HeaderField) -> &'a [u8] {
    let text = &block[field.at..field.at + field.bytes];
    text.split(|&byte| byte == 0).next().unwrap_or_default()
}

fn block_of(tar: &[u8], block: u64) -> Option<&[u8]> {
    bytes_at(tar, block, BLOCK_BYTES as u64)
}

/// So many bytes from a block on.
pub(crate) fn bytes_at(tar: &[u8], block: u64, bytes: u64) -> Option<&[u8]> {
    let from = usize::try_from(block.checked_mul(BLOCK_BYTES as u64)?).ok()?;
    tar.get(from..from.checked_add(usize::try_from(bytes).ok()?)?)
}
