//! The log: an object of the store for each commit, numbered from 1 without a gap.
//!
//! An object is the magic, the version and the commit's number in little-endian bytes, the commit as
//! postcard, and BLAKE3 of all that.
use super::{CatalogError, Commit};
use crate::archive::unwritten;
use crate::{Store, StoreKey};
use sheaf_core::Errno;
use std::io::Write;

/// The version of commits that this Sheaf writes, and the latest that it reads.
pub const LOG_VERSION: u32 = 1;

const MAGIC: &[u8; 8] = b"sheaflog";
const HEADER_BYTES: usize = 8 + 4 + 8;
const DIGEST_BYTES: usize = 32;

/// BLAKE3 of a commit: no two of all logs have the same.
type CommitDigest = [u8; DIGEST_BYTES];

/// Where this commit is.
pub(crate) fn key(number: u64) -> StoreKey {
    StoreKey::new(&format!("log/{number:020}")).expect("digits are parts of a key")
}

/// Writes a commit as this one of the log. Its digest, if it was: another writer may have been first.
pub(super) fn append(
    store: &dyn Store,
    number: u64,
    commit: &Commit,
) -> Result<Option<CommitDigest>, CatalogError> {
    let key = key(number);
    let mut object = store.create(&key)?;
    let bytes = encoded(number, commit);
    object.write_all(&bytes).map_err(|error| unwritten(&key, &error))?;
    match object.commit() {
        Ok(()) => Ok(bytes.last_chunk().copied()),
        Err(error) if error.errno == Errno::EXIST => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Reads this commit of the log, if it is there, with its digest.
pub(super) fn read(
    store: &dyn Store,
    number: u64,
) -> Result<Option<(Commit, CommitDigest)>, CatalogError> {
    let key = key(number);
    let Some(bytes) = size(store, &key)? else { return Ok(None) };
    decoded(number, &store.read(&key, 0..bytes)?).map(Some)
}

/// The digest of this commit of the log, as it is written there; nothing where there is none.
pub(super) fn digest(store: &dyn Store, number: u64) -> Result<Option<CommitDigest>, CatalogError> {
    let key = key(number);
    let Some(bytes) = size(store, &key)? else { return Ok(None) };
    let read = store.read(&key, bytes.saturating_sub(DIGEST_BYTES as u64)..bytes)?;
    let too_short = CatalogError::Damaged { number, why: "it is no commit" };
    read.try_into().map(Some).map_err(|_| too_short)
}

/// Whether this commit of the log has this digest: what it says, or what is written of it, where one of
/// the two is damaged.
pub(super) fn has(store: &dyn Store, number: u64, digest: &[u8]) -> Result<bool, CatalogError> {
    let Some(written) = self::digest(store, number)? else { return Ok(false) };
    if written == digest {
        return Ok(true);
    }
    let key = key(number);
    let Some(bytes) = size(store, &key)? else { return Ok(false) };
    let read = store.read(&key, 0..bytes.saturating_sub(DIGEST_BYTES as u64))?;
    Ok(blake3::hash(&read).as_bytes() == digest)
}

fn size(store: &dyn Store, key: &StoreKey) -> Result<Option<u64>, CatalogError> {
    match store.size(key) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.errno == Errno::NOENT => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn encoded(number: u64, commit: &Commit) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&LOG_VERSION.to_le_bytes());
    bytes.extend_from_slice(&number.to_le_bytes());
    let mut bytes = postcard::to_extend(commit, bytes).expect("memory takes what it is given");
    let digest = blake3::hash(&bytes);
    bytes.extend_from_slice(digest.as_bytes());
    bytes
}

fn decoded(number: u64, bytes: &[u8]) -> Result<(Commit, CommitDigest), CatalogError> {
    let damaged = |why| CatalogError::Damaged { number, why };
    if bytes.len() < HEADER_BYTES + DIGEST_BYTES || !bytes.starts_with(MAGIC) {
        return Err(damaged("it is no commit"));
    }
    let version = u32::from_le_bytes(bytes[8..12].try_into().expect("these are four bytes"));
    if version > LOG_VERSION {
        return Err(CatalogError::Version { number, version });
    }
    let (body, digest) = bytes.split_at(bytes.len() - DIGEST_BYTES);
    let digest: CommitDigest = digest.try_into().expect("these were split off");
    if blake3::hash(body) != digest {
        return Err(damaged("it is not as it was written (checksum)"));
    }
    let (header, commit) = body.split_at(HEADER_BYTES);
    if header[12..] != number.to_le_bytes() {
        return Err(damaged("it is another one"));
    }
    let commit = postcard::from_bytes(commit);
    Ok((commit.map_err(|_| damaged("it says what no commit does"))?, digest))
}
