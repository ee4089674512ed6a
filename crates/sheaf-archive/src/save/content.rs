//! Whether the content of a file is archived already.
use super::SaveShared;
use super::source::SourceFile;
use crate::catalog::{ArchivedObject, ContentPlace};
use crate::pack::sparse;
use crate::reader::PackReader;
use sheaf_core::Errno;
use std::ops::Range;

const READ_BYTES: usize = 1 << 20;

/// Whether a file has the content that is archived.
pub(super) fn is_archived(
    shared: &SaveShared<'_>,
    file: &mut SourceFile,
    size: u64,
    extents: Option<&[Range<u64>]>,
    archived: &[u8; 32],
) -> Result<bool, Errno> {
    file.see_more()?;
    if file.has_more {
        return Ok(false);
    }
    // Where holes are elsewhere, other bytes are stored; in a pack they begin and end with its blocks.
    let holes = file.extents()?;
    let blocks = holes.as_deref().and_then(|holes| sparse::in_blocks(holes, file.found.size));
    if extents != holes.as_deref() && extents != blocks.as_deref() {
        return Ok(false);
    }
    let whole: Vec<Range<u64>> = std::iter::once(0..size).collect();
    let (mut digest, mut room) = (blake3::Hasher::new(), vec![0; READ_BYTES]);
    for extent in extents.unwrap_or(&whole) {
        let mut at = extent.start;
        while at < extent.end {
            let wanted = (extent.end - at).min(READ_BYTES as u64) as usize;
            let read = file.read_at(&mut room[..wanted], at)?;
            if read == 0 {
                return Ok(false);
            }
            digest.update(&room[..read]);
            shared.moved.read(read as u64);
            at += read as u64;
        }
    }
    Ok(digest.finalize() == *archived)
}

/// A file of which only the attributes have changed, as an object whose content stays where it is. The content is
/// read and compared: that its time is the same is no proof.
pub(super) fn kept_object(
    shared: &SaveShared<'_>,
    file: &mut SourceFile,
    old: ArchivedObject,
) -> Result<Option<ArchivedObject>, Errno> {
    let Some(place @ (ContentPlace::Object(_) | ContentPlace::Parts { .. })) = &old.place else {
        return Ok(None);
    };
    let may_be = (old.size, old.attributes.mtime) == (file.found.size, file.found.mtime);
    // Where contents are compared, what is archived is read, too, and it may be damaged.
    if !may_be || shared.options.checksum {
        return Ok(None);
    }
    // What the store has lost is stored again.
    let there = PackReader::of(shared.store, place).0.bytes();
    if !there.is_ok_and(|bytes| bytes == old.stored_bytes()) {
        return Ok(None);
    }
    if !is_archived(shared, file, old.size, old.extents.as_deref(), &old.digest)?
        || !file.is_same()?
    {
        return Ok(None);
    }
    Ok(Some(ArchivedObject { attributes: file.attributes.clone(), link: None, ..old }))
}
