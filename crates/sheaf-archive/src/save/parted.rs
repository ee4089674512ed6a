//! Large contents in several objects, each a part of the same length: what was stored of one that was broken
//! off is not stored again, and several hosts may store parts of one file.
//!
//! The digest of a content is BLAKE3 of all of it. BLAKE3 is a tree, and a part is a subtree of it: so the
//! digest is made of the parts' chaining values, and nobody has to read them all.
//!
//! A part that is stored is noted in the store, by what its file is (inode, length, times). Such a note is
//! what says that a file has not changed, too, and where that is not known ([`is_recent`]) there is none.
//!
//! [`is_recent`]: super::source
use super::SaveShared;
use super::desk::{StoredContent, Unstored};
use super::source::SourceFile;
use crate::archive::{ArchiveError, data_key, new_id, put, unwritten};
use crate::catalog::{ArchivedObject, ContentPlace};
use crate::pack::member::PackId;
use crate::path::ArchivePath;
use crate::repair::removed;
use crate::store::{Store, StoreKey};
use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, left_subtree_len, merge_subtrees_non_root, merge_subtrees_root,
};
use serde::{Deserialize, Serialize};
use sheaf_core::Errno;
use std::io::Write;
use std::ops::Range;

/// What the keys of notes begin with.
pub(crate) const RESUME: &str = "resume";
/// Parts of a content at most; those of a longer one are longer.
const PARTS_MAX: u64 = 1024;
const WRITE_BYTES: usize = 1 << 20;
const CHECK_BYTES: usize = 32;
const NOTE_BYTES: usize = 16 + 8 + 32 + CHECK_BYTES;

/// A part that is in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredPart {
    id: PackId,
    bytes: u64,
    /// The chaining value of the subtree that it is.
    value: ChainingValue,
}

/// By what a file is known that several hosts see: its inode, length, and times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PartStamp {
    ino: u64,
    size: u64,
    mtime: (i64, u32),
    ctime_ns: u64,
}

impl PartStamp {
    fn of(file: &SourceFile) -> Self {
        let of = &file.attributes;
        let mtime = (of.mtime.seconds, of.mtime.nanoseconds);
        Self { ino: of.ino, size: file.found.size, mtime, ctime_ns: of.ctime_ns }
    }
}

/// The bytes of each part of a content with so many, but of the last; nothing where it is one object.
pub(super) fn part_bytes(shared: &SaveShared<'_>, bytes: u64) -> Option<u64> {
    let least = shared.options.part_bytes.next_power_of_two().max(blake3::CHUNK_LEN as u64);
    let part = least.max(bytes.div_ceil(PARTS_MAX).next_power_of_two());
    (bytes > 2 * part).then_some(part)
}

/// How many parts a content has of which other hosts may store some; 0 where it is one object.
pub(super) fn parts_to_offer(shared: &SaveShared<'_>, bytes: u64) -> u32 {
    let parts = part_bytes(shared, bytes).map_or(0, |part| bytes.div_ceil(part));
    u32::try_from(parts).unwrap_or(0)
}

/// Stores a content in parts; nothing where the file is shorter by now.
pub(super) fn store_parts(
    shared: &SaveShared<'_>,
    file: &mut SourceFile,
    object: &ArchivedObject,
    part_bytes: u64,
    of: Option<&ArchivePath>,
) -> Result<Option<(ContentPlace, [u8; 32])>, Unstored> {
    let (bytes, extents) = (object.stored_bytes(), object.stored_extents());
    let mut parts: Vec<StoredPart> = Vec::new();
    for number in 0..bytes.div_ceil(part_bytes) {
        let range = number * part_bytes..bytes.min((number + 1) * part_bytes);
        let taken = match of {
            // Holes may be elsewhere for another host.
            Some(of) if object.extents.is_none() => {
                let name = &object.attributes.name;
                let number = u32::try_from(number).ok();
                shared.desk.taken(of, name, number)?
            }
            _ => None,
        };
        let stamp = PartStamp::of(file);
        match taken {
            Some(StoredContent::Part { part, stamp: its })
                if its == stamp && part.bytes == range.end - range.start =>
            {
                parts.push(part);
            }
            _ => match part(shared, file, &extents, range)? {
                Some(part) => parts.push(part),
                None => return Ok(None),
            },
        }
    }
    let values: Vec<ChainingValue> = parts.iter().map(|part| part.value).collect();
    let ids = parts.into_iter().map(|part| part.id).collect();
    Ok(Some((
        ContentPlace::Parts { ids, bytes: part_bytes },
        digest_of(&values, bytes, part_bytes),
    )))
}

/// Stores one part of a file for another host that has its directory.
pub(super) fn part_for_other(
    shared: &SaveShared<'_>,
    file: &mut SourceFile,
    number: u32,
) -> Result<Option<StoredContent>, Unstored> {
    let bytes = file.found.size;
    let (Some(part_bytes), None) = (part_bytes(shared, bytes), file.extents()?) else {
        return Ok(None);
    };
    let from = u64::from(number) * part_bytes;
    let range = from..bytes.min(from.saturating_add(part_bytes));
    if range.is_empty() {
        return Ok(None);
    }
    let stamp = PartStamp::of(file);
    let whole: Vec<Range<u64>> = std::iter::once(0..bytes).collect();
    let Some(part) = part(shared, file, &whole, range)? else { return Ok(None) };
    Ok(file.is_same()?.then_some(StoredContent::Part { part, stamp }))
}

/// The notes of a content's parts go when it is archived.
pub(super) fn forget_parts(
    shared: &SaveShared<'_>,
    object: &ArchivedObject,
) -> Result<(), ArchiveError> {
    let Some(ContentPlace::Parts { ids, bytes }) = &object.place else { return Ok(()) };
    let of = &object.attributes;
    let mtime = (of.mtime.seconds, of.mtime.nanoseconds);
    let stamp = PartStamp { ino: of.ino, size: object.size, mtime, ctime_ns: of.ctime_ns };
    let (extents, all) = (object.stored_extents(), object.stored_bytes());
    for number in 0..ids.len() as u64 {
        let range = number * bytes..all.min((number + 1) * bytes);
        if let Some(key) = note_key(&stamp, &extents, &range) {
            removed(shared.store.remove(&key))?;
        }
    }
    Ok(())
}

/// Stores these bytes of what is stored of a file, unless they are; nothing where the file is shorter.
fn part(
    shared: &SaveShared<'_>,
    file: &SourceFile,
    extents: &[Range<u64>],
    range: Range<u64>,
) -> Result<Option<StoredPart>, Unstored> {
    let note = note_key(&PartStamp::of(file), extents, &range);
    if let Some(note) = &note
        && let Some(known) = noted(shared.store, note)
        && known.bytes == range.end - range.start
        && shared.store.size(&data_key(known.id)).is_ok_and(|bytes| bytes == known.bytes)
    {
        shared.moved.skipped(known.bytes);
        return Ok(Some(known));
    }
    let id = new_id()?;
    let key = data_key(id);
    let mut to = shared.store.create(&key).map_err(ArchiveError::from)?;
    let mut digest = blake3::Hasher::new();
    digest.set_input_offset(range.start);
    let mut room = vec![0; WRITE_BYTES];
    for piece in pieces_of(extents, &range) {
        let mut at = piece.start;
        while at < piece.end {
            let wanted = (piece.end - at).min(WRITE_BYTES as u64) as usize;
            let read = file.read_at(&mut room[..wanted], at)?;
            if read == 0 {
                return Ok(None);
            }
            digest.update(&room[..read]);
            shared.moved.moved(read as u64);
            let written = to.write_all(&room[..read]);
            written.map_err(|error| ArchiveError::from(unwritten(&key, &error)))?;
            at += read as u64;
        }
    }
    // A note says what was stored, so it is written of a file that is as it was when it was opened.
    let is_same = file.is_same()?;
    to.commit().map_err(ArchiveError::from)?;
    let bytes = range.end - range.start;
    let part = StoredPart { id, bytes, value: digest.finalize_non_root() };
    if let Some(note) = note.filter(|_| is_same) {
        // One of a part that was lost since is in the way.
        removed(shared.store.remove(&note)).map_err(ArchiveError::from)?;
        match put(shared.store, &note, &encoded(&part)) {
            Err(error) if error.errno == Errno::EXIST => {}
            written => written.map_err(ArchiveError::from)?,
        }
    }
    Ok(Some(part))
}

/// Where these bytes of what is stored are in the file.
fn pieces_of(extents: &[Range<u64>], range: &Range<u64>) -> Vec<Range<u64>> {
    let (mut pieces, mut before) = (Vec::new(), 0);
    for extent in extents {
        let end = before + (extent.end - extent.start);
        let (from, to) = (range.start.max(before), range.end.min(end));
        if from < to {
            pieces.push(extent.start + (from - before)..extent.start + (to - before));
        }
        before = end;
    }
    pieces
}

/// The digest of a content by its parts, of which there are several.
fn digest_of(values: &[ChainingValue], bytes: u64, part_bytes: u64) -> [u8; 32] {
    let (left, right) = halves(values, bytes, part_bytes);
    *merge_subtrees_root(&left, &right, Mode::Hash).as_bytes()
}

fn halves(values: &[ChainingValue], bytes: u64, part_bytes: u64) -> (ChainingValue, ChainingValue) {
    // A subtree has as many bytes as a power of two, and so has a part.
    let left_bytes = left_subtree_len(bytes);
    let (left, right) = values.split_at((left_bytes / part_bytes) as usize);
    let value = |values: &[ChainingValue], bytes| match values {
        [value] => *value,
        values => {
            let (left, right) = halves(values, bytes, part_bytes);
            merge_subtrees_non_root(&left, &right, Mode::Hash)
        }
    };
    (value(left, left_bytes), value(right, bytes - left_bytes))
}

/// Where it is noted that these bytes of a file are stored; nothing where it may change unseen.
fn note_key(stamp: &PartStamp, extents: &[Range<u64>], range: &Range<u64>) -> Option<StoreKey> {
    if stamp.ctime_ns == 0 {
        return None;
    }
    let named = (stamp, extents, range.start, range.end);
    let named = postcard::to_stdvec(&named).expect("memory takes what it is given");
    let digest = blake3::hash(&named).to_hex();
    StoreKey::new(&format!("{RESUME}/{}/{}", &digest[..2], &digest[..32]))
}

fn encoded(part: &StoredPart) -> Vec<u8> {
    let mut bytes = part.id.0.to_vec();
    bytes.extend_from_slice(&part.bytes.to_le_bytes());
    bytes.extend_from_slice(&part.value);
    let check = blake3::hash(&bytes);
    bytes.extend_from_slice(check.as_bytes());
    bytes
}

/// What a note says, if there is one that is as it was written.
fn noted(store: &dyn Store, key: &StoreKey) -> Option<StoredPart> {
    // Whatever is wrong with a note, the part is stored again.
    let bytes = store.read(key, 0..NOTE_BYTES as u64).ok()?;
    let (said, check) = bytes.split_last_chunk::<CHECK_BYTES>()?;
    if blake3::hash(said) != *check {
        return None;
    }
    let (id, rest) = said.split_first_chunk()?;
    let (bytes, value) = rest.split_first_chunk()?;
    let value = value.try_into().ok()?;
    Some(StoredPart { id: PackId(*id), bytes: u64::from_le_bytes(*bytes), value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_of_parts_is_that_of_the_whole() {
        let content: Vec<u8> = (0..100_000u32).map(|at| (at / 3) as u8).collect();
        for part_bytes in [1024usize, 2048, 16384] {
            for bytes in [2 * part_bytes + 1, 33_000, 5 * part_bytes, 99_999, 100_000] {
                let content = &content[..bytes.clamp(part_bytes + 1, 100_000)];
                let values = content.chunks(part_bytes).enumerate().map(|(number, part)| {
                    let mut digest = blake3::Hasher::new();
                    digest.set_input_offset((number * part_bytes) as u64).update(part);
                    digest.finalize_non_root()
                });
                let values: Vec<_> = values.collect();
                let digest = digest_of(&values, content.len() as u64, part_bytes as u64);
                assert_eq!(digest, *blake3::hash(content).as_bytes(), "{part_bytes} {bytes}");
            }
        }
    }

    #[test]
    fn parts_of_a_file_with_holes_have_its_bytes() {
        let extents = [10..20, 30..31, 40..60];
        let one = |range| vec![range];
        assert_eq!(pieces_of(&extents, &(0..10)), one(10..20));
        assert_eq!(pieces_of(&extents, &(5..15)), [15..20, 30..31, 40..44]);
        assert_eq!(pieces_of(&extents, &(11..31)), one(40..60));
        assert!(pieces_of(&extents, &(31..40)).is_empty());
    }
}
