//! Sparse files: the format of GNU tar, version 1.0. A map is before the content, which has no holes.
use super::BLOCK_BYTES;
use super::header::padding_of;
use std::ops::Range;

/// Pieces of a sparse member at most; a file of more is an object of its own.
pub const SPARSE_EXTENTS_MAX: usize = 4096;
/// Bytes of a map at most: three numbers a piece would be less.
const MAP_BYTES_MAX: u64 = 64 * (SPARSE_EXTENTS_MAX as u64 + 2);
/// The longest content: what a file may have.
pub(crate) const SIZE_MAX: u64 = i64::MAX.cast_unsigned();

/// The same pieces, each of whole blocks: GNU tar begins each piece with a block. Nothing if no hole
/// is left.
pub(crate) fn in_blocks(extents: &[Range<u64>], size: u64) -> Option<Vec<Range<u64>>> {
    const BLOCK: u64 = BLOCK_BYTES as u64;
    let mut whole: Vec<Range<u64>> = Vec::new();
    for extent in extents.iter().filter(|extent| !extent.is_empty()) {
        let start = extent.start / BLOCK * BLOCK;
        let end = extent.end.checked_next_multiple_of(BLOCK).map_or(size, |end| end.min(size));
        match whole.last_mut() {
            Some(last) if last.end >= start => last.end = end.max(last.end),
            _ => whole.push(start..end),
        }
    }
    let is_whole = size == 0 || (whole.len() == 1 && whole[0] == (0..size));
    (!is_whole).then_some(whole)
}

/// Whether these are pieces of a sparse member, as [`in_blocks`] makes them.
pub(crate) fn are_pieces(extents: &[Range<u64>], size: u64) -> bool {
    let is_piece = |extent: &Range<u64>| !extent.is_empty() && extent.end <= size;
    size <= SIZE_MAX
        && extents.len() <= SPARSE_EXTENTS_MAX
        && extents.iter().all(is_piece)
        && extents.is_sorted_by(|one, other| one.end < other.start)
        && in_blocks(extents, size).as_deref() == Some(extents)
}

/// Adds a map: how many pieces there are, and of each where it begins and its length, a number a
/// line. Where a hole is last, a piece without bytes is behind it.
pub(crate) fn push_map(tar: &mut Vec<u8>, extents: &[Range<u64>], size: u64) {
    let from = tar.len();
    let end = extents.last().map_or(0, |extent| extent.end);
    let last = (end < size).then_some(size..size);
    let pieces = extents.len() + usize::from(last.is_some());
    tar.extend_from_slice(format!("{pieces}\n").as_bytes());
    for Range { start, end } in extents.iter().cloned().chain(last) {
        tar.extend_from_slice(format!("{start}\n{}\n", end - start).as_bytes());
    }
    let bytes = tar.len() - from;
    tar.resize(tar.len() + padding_of(bytes as u64), 0);
}

/// The pieces that a map says, and how many blocks it has. `more` gives so many bytes of it from its
/// beginning on, if they are there.
pub(crate) fn map_of<'a>(
    size: u64,
    more: impl Fn(u64) -> Option<&'a [u8]>,
) -> Option<(Vec<Range<u64>>, u64)> {
    // How long a map is stands nowhere else: it is read until all its lines are there.
    let mut bytes = BLOCK_BYTES as u64;
    let text = loop {
        let text = more(bytes)?;
        let pieces = number_of(&mut &text[..])?;
        let lines = pieces.checked_mul(2)?.checked_add(1)?;
        if text.iter().filter(|&&byte| byte == b'\n').count() as u64 >= lines {
            break text;
        }
        bytes += BLOCK_BYTES as u64;
        if bytes > MAP_BYTES_MAX {
            return None;
        }
    };
    let mut rest = text;
    let mut extents = Vec::new();
    for _ in 0..number_of(&mut rest)? {
        let start = number_of(&mut rest)?;
        extents.push(start..start.checked_add(number_of(&mut rest)?)?);
    }
    extents.pop_if(|last| *last == (size..size));
    Some((extents, bytes / BLOCK_BYTES as u64))
}

/// The number on the next line.
fn number_of(text: &mut &[u8]) -> Option<u64> {
    let digits = text.iter().position(|&byte| byte == b'\n')?;
    let number = super::pax::number(&text[..digits]);
    *text = &text[digits + 1..];
    number
}
