//! Packs: `member` → `header` → `write`; back by `index`, or where that is lost by `scan`.
//!
//! PSI, section 6.1: HTAR writes a tar and an index file next to it, and removes a member by
//! changing that index. A pack also contains its index as its last member, so the pack alone is
//! enough.
mod acl;
pub(crate) mod delta;
pub(crate) mod header;
pub(crate) mod index;
pub(crate) mod member;
mod pax;
pub(crate) mod scan;
pub(crate) mod sparse;
pub(crate) mod verify;
pub(crate) mod write;
pub(crate) mod zstd;

/// What tar counts in.
pub(crate) const BLOCK_BYTES: usize = 512;

/// How many blocks so many bytes fill.
pub(crate) fn blocks_of(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES as u64)
}
