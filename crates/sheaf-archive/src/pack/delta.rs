//! An index of a pack as what it lacks of the first one: of a large pack, a member that is removed costs some
//! bytes and not an index. See `docs/format.md`.
use super::index::PackIndex;
use super::member::PackId;
use crate::error::PackError;

const MAGIC: &[u8; 8] = b"sheafdlt";
const VERSION: u32 = 1;
const DIGEST_BYTES: usize = 32;
const HEADER_BYTES: usize = 8 + 4 + 16 + 8 + DIGEST_BYTES + 4;
/// What stands at the end, lest its length be that of an index, a multiple of 512.
const END: u8 = b'.';
/// A shorter index is written as a whole.
const INDEX_BYTES_MIN: usize = 8 << 10;
/// An index is written as a whole where a delta has more than one byte of so many of it.
const FOLDED_PARTS: usize = 4;

/// Which members of a pack's first index are no longer there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexDelta {
    pub id: PackId,
    pub generation: u64,
    /// The digest of the first index.
    base: [u8; DIGEST_BYTES],
    /// Their numbers in it, in their order.
    removed: Vec<u32>,
}

impl IndexDelta {
    /// Whether an index of so many bytes is a delta.
    pub fn is_one(index_bytes: u64) -> bool {
        !index_bytes.is_multiple_of(512)
    }

    /// What an index lacks of the first one of its pack, if that is all in which it differs, and so is
    /// shorter.
    pub fn of(index: &PackIndex, base: &PackIndex, base_bytes: &[u8]) -> Option<Self> {
        if base.generation != 0
            || (base.id, base.member_blocks) != (index.id, index.member_blocks)
            || base_bytes.len() < INDEX_BYTES_MIN
        {
            return None;
        }
        let (mut removed, mut left) = (Vec::new(), index.members.iter().peekable());
        for (number, member) in (0..).zip(&base.members) {
            if left.next_if_eq(&member).is_none() {
                removed.push(number);
            }
        }
        let is_short = removed.len() * 4 * FOLDED_PARTS < base_bytes.len();
        let digest = digest_of(base_bytes)?;
        (left.next().is_none() && is_short).then_some(Self {
            id: index.id,
            generation: index.generation,
            base: digest,
            removed,
        })
    }

    /// The index that it is, by the first one.
    pub fn apply(&self, mut base: PackIndex, base_bytes: &[u8]) -> Result<PackIndex, PackError> {
        if (base.id, base.generation) != (self.id, 0) || digest_of(base_bytes) != Some(self.base) {
            return Err(PackError::damaged("its first index is another one"));
        }
        let (mut removed, mut number) = (self.removed.iter().peekable(), 0);
        base.members.retain(|_| {
            number += 1;
            removed.next_if(|removed| **removed == number - 1).is_none()
        });
        if removed.next().is_some() {
            return Err(PackError::damaged("its index lacks what was not there"));
        }
        base.generation = self.generation;
        Ok(base)
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.id.0);
        bytes.extend_from_slice(&self.generation.to_le_bytes());
        bytes.extend_from_slice(&self.base);
        bytes.extend_from_slice(&(self.removed.len() as u32).to_le_bytes());
        for number in &self.removed {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        let digest = blake3::hash(&bytes);
        bytes.extend_from_slice(digest.as_bytes());
        bytes.push(END);
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, PackError> {
        let damaged = |why: &str| PackError::damaged(format!("its index {why}"));
        let (body, end) = bytes
            .len()
            .checked_sub(DIGEST_BYTES + 1)
            .map(|at| bytes.split_at(at))
            .ok_or_else(|| damaged("is no index"))?;
        if body.len() < HEADER_BYTES || !body.starts_with(MAGIC) || end.last() != Some(&END) {
            return Err(damaged("is no index"));
        }
        if blake3::hash(body).as_bytes()[..] != end[..DIGEST_BYTES] {
            return Err(damaged("is not as it was written (checksum)"));
        }
        // Each version ends as this one does: a number that was damaged is not a later version's.
        Self::of_body(body)
    }

    /// What a delta says before its checksum.
    pub fn of_body(body: &[u8]) -> Result<Self, PackError> {
        let damaged = |why: &str| PackError::damaged(format!("its index {why}"));
        if body.len() < HEADER_BYTES {
            return Err(damaged("is cut off"));
        }
        let (mut at, header) = (MAGIC.len(), &body[..HEADER_BYTES]);
        let mut next = |count: usize| {
            at += count;
            &header[at - count..at]
        };
        let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("it has 4 bytes"));
        let version = number(next(4));
        if version > VERSION {
            return Err(PackError::Version { version, known: VERSION });
        }
        let id = PackId(next(16).try_into().expect("it has 16 bytes"));
        let generation = u64::from_le_bytes(next(8).try_into().expect("it has 8 bytes"));
        let base = next(DIGEST_BYTES).try_into().expect("it has 32 bytes");
        let count = number(next(4)) as usize;
        let numbers = &body[HEADER_BYTES..];
        if numbers.len() / 4 != count || !numbers.len().is_multiple_of(4) {
            return Err(damaged("is cut off"));
        }
        let removed: Vec<u32> = numbers.chunks_exact(4).map(number).collect();
        if !removed.is_sorted_by(|one, other| one < other) {
            return Err(damaged("has numbers in another order"));
        }
        Ok(Self { id, generation, base, removed })
    }
}

/// The digest that an index ends with, before its length.
fn digest_of(index: &[u8]) -> Option<[u8; DIGEST_BYTES]> {
    let (before, _) = index.split_last_chunk::<16>()?;
    before.last_chunk().copied()
}
