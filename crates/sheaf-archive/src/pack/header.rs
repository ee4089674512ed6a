//! The headers of a member: ustar where it has room, and an extended header before it where not.
//!
//! They follow from the attributes alone, and the same attributes give the same bytes: so each byte
//! of a pack can be compared with its index.
use super::member::stored_bytes;
use super::{BLOCK_BYTES, acl, blocks_of, pax, sparse};
use crate::pack::member::{MemberAttributes, MemberKind, Xattrs};
use sheaf_core::files::Timestamp;
use std::ops::Range;

/// The records of a sparse file, of version 1.0.
pub(crate) const SPARSE_MAJOR: &[u8] = b"GNU.sparse.major";
pub(crate) const SPARSE_MINOR: &[u8] = b"GNU.sparse.minor";
pub(crate) const SPARSE_NAME: &[u8] = b"GNU.sparse.name";
pub(crate) const SPARSE_SIZE: &[u8] = b"GNU.sparse.realsize";
/// What a reader that knows nothing of sparse files calls one, before its name.
const SPARSE_PREFIX: &[u8] = b"GNUSparseFile/";

const NAME_BYTES_MAX: usize = 100;
/// The largest number of seven and of eleven octal digits.
const SMALL_MAX: u64 = 0o7_777_777;
const LARGE_MAX: u64 = 0o77_777_777_777;

/// Where each field is.
pub(crate) struct HeaderField {
    pub at: usize,
    pub bytes: usize,
}

pub(crate) const NAME: HeaderField = HeaderField { at: 0, bytes: 100 };
pub(crate) const MODE: HeaderField = HeaderField { at: 100, bytes: 8 };
pub(crate) const UID: HeaderField = HeaderField { at: 108, bytes: 8 };
pub(crate) const GID: HeaderField = HeaderField { at: 116, bytes: 8 };
pub(crate) const SIZE: HeaderField = HeaderField { at: 124, bytes: 12 };
pub(crate) const MTIME: HeaderField = HeaderField { at: 136, bytes: 12 };
pub(crate) const CHECKSUM: HeaderField = HeaderField { at: 148, bytes: 8 };
pub(crate) const TYPE_AT: usize = 156;
pub(crate) const LINK: HeaderField = HeaderField { at: 157, bytes: 100 };
const MAGIC_AT: usize = 257;
const MAGIC: &[u8] = b"ustar\x0000";
pub(crate) const MAJOR: HeaderField = HeaderField { at: 329, bytes: 8 };
pub(crate) const MINOR: HeaderField = HeaderField { at: 337, bytes: 8 };

/// What a block is of.
pub(crate) const EXTENDED: u8 = b'x';
pub(crate) const FILE: u8 = b'0';
pub(crate) const HARD_LINK: u8 = b'1';
pub(crate) const SYMLINK: u8 = b'2';
pub(crate) const CHAR_DEVICE: u8 = b'3';
pub(crate) const BLOCK_DEVICE: u8 = b'4';
pub(crate) const DIRECTORY: u8 = b'5';
pub(crate) const FIFO: u8 = b'6';

/// What the headers say of a member's content.
#[derive(Clone, Copy, Default)]
pub(crate) struct HeaderContent<'a> {
    /// Bytes of the file.
    pub size: u64,
    /// The pieces of a sparse one.
    pub extents: Option<&'a [Range<u64>]>,
}

/// What the headers say of anything but its content.
pub(crate) struct HeaderOf<'a> {
    /// Its name, or its path; that of a directory ends with a slash.
    pub path: &'a [u8],
    pub kind: u8,
    pub device: (u32, u32),
    /// The text of a link, or the name or path that a hard link shares its file with.
    pub link: Option<&'a [u8]>,
    pub mode: u32,
    pub owner: (u32, u32),
    pub mtime: Timestamp,
    pub xattrs: &'a Xattrs,
}

impl<'a> HeaderOf<'a> {
    /// A member of a pack, by its name.
    pub fn member(of: &'a MemberAttributes) -> Self {
        let (kind, device) = match of.kind {
            MemberKind::File => (FILE, (0, 0)),
            MemberKind::HardLink { .. } => (HARD_LINK, (0, 0)),
            MemberKind::Symlink { .. } => (SYMLINK, (0, 0)),
            MemberKind::Fifo => (FIFO, (0, 0)),
            MemberKind::CharDevice { major, minor } => (CHAR_DEVICE, (major, minor)),
            MemberKind::BlockDevice { major, minor } => (BLOCK_DEVICE, (major, minor)),
        };
        Self {
            path: &of.name,
            kind,
            device,
            link: of.link(),
            mode: of.mode,
            owner: (of.uid, of.gid),
            mtime: of.mtime,
            xattrs: &of.xattrs,
        }
    }
}

/// Adds all headers of a member, and its map if it is sparse. A hard link has no content.
pub(crate) fn push(tar: &mut Vec<u8>, of: &MemberAttributes, content: HeaderContent<'_>) {
    push_of(tar, &HeaderOf::member(of), content);
}

/// The same of anything that may be in a tar.
pub(crate) fn push_of(tar: &mut Vec<u8>, of: &HeaderOf<'_>, content: HeaderContent<'_>) {
    let content = if of.kind == HARD_LINK { HeaderContent::default() } else { content };
    let (mut map, mut size) = (Vec::new(), stored_bytes(content.size, content.extents));
    if let Some(extents) = content.extents {
        sparse::push_map(&mut map, extents, content.size);
        size += map.len() as u64;
    }
    let mut records = records_of(of, content);
    if size > LARGE_MAX {
        pax::push(&mut records, b"size", size.to_string().as_bytes());
    }
    if !records.is_empty() {
        let bytes = records.len() as u64;
        push_block(tar, &prefixed(b"PaxHeaders/", of.path), EXTENDED, |block| {
            put(block, &MODE, 0o644);
            put(block, &UID, 0);
            put(block, &GID, 0);
            put(block, &SIZE, bytes);
            put(block, &MTIME, 0);
        });
        tar.extend_from_slice(&records);
        tar.resize(tar.len() + padding_of(bytes), 0);
    }
    let sparse_name = content.extents.map(|_| prefixed(SPARSE_PREFIX, of.path));
    push_block(tar, sparse_name.as_deref().unwrap_or(of.path), of.kind, |block| {
        put(block, &MODE, u64::from(of.mode & 0o7777));
        // A number that has no room here has a record before this header, and readers take that.
        put(block, &UID, u64::from(of.owner.0).min(SMALL_MAX));
        put(block, &GID, u64::from(of.owner.1).min(SMALL_MAX));
        put(block, &SIZE, size.min(LARGE_MAX));
        put(block, &MTIME, u64::try_from(of.mtime.seconds).unwrap_or(0).min(LARGE_MAX));
        put(block, &MAJOR, u64::from(of.device.0).min(SMALL_MAX));
        put(block, &MINOR, u64::from(of.device.1).min(SMALL_MAX));
        if let Some(link) = of.link {
            put_text(block, &LINK, link);
        }
    });
    tar.extend_from_slice(&map);
}

/// A name behind another, as far as there is room.
fn prefixed(prefix: &[u8], name: &[u8]) -> Vec<u8> {
    let room = NAME_BYTES_MAX - prefix.len();
    [prefix, &name[..name.len().min(room)]].concat()
}

/// What a ustar header has no room for.
fn records_of(of: &HeaderOf<'_>, content: HeaderContent<'_>) -> Vec<u8> {
    let mut records = Vec::new();
    let is_long = |text: &[u8]| text.len() > NAME_BYTES_MAX;
    let is_sparse = content.extents.is_some();
    let path = Some(of.path).filter(|path| is_sparse || is_long(path));
    let link = of.link.filter(|link| is_long(link));
    let is_text = |bytes: Option<&[u8]>| bytes.is_none_or(|bytes| str::from_utf8(bytes).is_ok());
    // Else readers take the texts of records for UTF-8.
    if !(is_text(path) && is_text(link)) {
        pax::push(&mut records, b"hdrcharset", b"BINARY");
    }
    if is_sparse {
        pax::push(&mut records, SPARSE_MAJOR, b"1");
        pax::push(&mut records, SPARSE_MINOR, b"0");
        pax::push(&mut records, SPARSE_SIZE, content.size.to_string().as_bytes());
    }
    let path_key = if is_sparse { SPARSE_NAME } else { b"path" };
    for (key, text) in [(path_key, path), (b"linkpath", link)] {
        if let Some(text) = text {
            pax::push(&mut records, key, text);
        }
    }
    for (key, number) in [(b"uid", of.owner.0), (b"gid", of.owner.1)] {
        if u64::from(number) > SMALL_MAX {
            pax::push(&mut records, key, number.to_string().as_bytes());
        }
    }
    let Timestamp { seconds, nanoseconds } = of.mtime;
    if nanoseconds != 0 || !u64::try_from(seconds).is_ok_and(|seconds| seconds <= LARGE_MAX) {
        pax::push(&mut records, b"mtime", pax::time_text(of.mtime).as_bytes());
    }
    for (name, value) in of.xattrs {
        let list = acl::ACLS.iter().find(|(known, _)| known == name);
        match list.and_then(|(_, key)| Some((key, acl::text_of(value)?))) {
            Some((key, text)) => pax::push(&mut records, key, text.as_bytes()),
            // A list that no text can say is kept as it is.
            None => pax::push_xattr(&mut records, name, value),
        }
    }
    records
}

fn push_block(tar: &mut Vec<u8>, name: &[u8], kind: u8, fill: impl FnOnce(&mut [u8])) {
    let from = tar.len();
    tar.resize(from + BLOCK_BYTES, 0);
    let block = &mut tar[from..];
    put_text(block, &NAME, name);
    block[TYPE_AT] = kind;
    block[MAGIC_AT..MAGIC_AT + MAGIC.len()].copy_from_slice(MAGIC);
    fill(block);
    let sum = checksum_of(block);
    let (digits, end) = block[CHECKSUM.at..][..CHECKSUM.bytes].split_at_mut(6);
    put_octal(digits, sum);
    end.copy_from_slice(b"\0 ");
}

/// The sum of a block's bytes, those of the checksum taken for blanks.
pub(crate) fn checksum_of(block: &[u8]) -> u64 {
    let own = CHECKSUM.at..CHECKSUM.at + CHECKSUM.bytes;
    let all: u64 = block.iter().map(|&byte| u64::from(byte)).sum();
    let of_own: u64 = block[own].iter().map(|&byte| u64::from(byte)).sum();
    all - of_own + CHECKSUM.bytes as u64 * u64::from(b' ')
}

/// Writes a number in octal digits, which end with a NUL.
fn put(block: &mut [u8], field: &HeaderField, number: u64) {
    put_octal(&mut block[field.at..field.at + field.bytes - 1], number);
}

/// Writes a number that has room there.
fn put_octal(digits: &mut [u8], number: u64) {
    let mut left = number;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (left & 7) as u8;
        left >>= 3;
    }
    debug_assert_eq!(left, 0, "{number:o} has more digits");
}

/// Writes as much of a text as there is room for.
fn put_text(block: &mut [u8], field: &HeaderField, text: &[u8]) {
    let bytes = text.len().min(field.bytes);
    block[field.at..field.at + bytes].copy_from_slice(&text[..bytes]);
}

/// What is missing of a whole block.
pub(crate) fn padding_of(bytes: u64) -> usize {
    (blocks_of(bytes) * BLOCK_BYTES as u64 - bytes) as usize
}
