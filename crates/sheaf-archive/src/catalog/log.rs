//! The log: an object of the store for each commit, numbered from 1 without a gap.
//!
//! An object is the magic, the version and the commit's number in little-endian bytes, the commit as
//! postcard, and BLAKE3 of all that.
use super::{CatalogError, Commit};
use crate::{Store, StoreError, StoreKey};
use sheaf_core::Errno;
use std::io::Write;

/// The version of commits that this Sheaf writes, and the latest that it reads.
pub const LOG_VERSION: u32 = 1;

const MAGIC: &[u8; 8] = b"sheaflog";
const HEADER_BYTES: usize = 8 + 4 + 8;
const DIGEST_BYTES: usize = 32;

pub(super) fn key(number: u64) -> StoreKey {
    StoreKey::new(&format!("log/{number:020}")).expect("digits are parts of a key")
}

/// Writes a commit as this one of the log. Whether it was: another writer may have been first.
pub(super) fn append(
    store: &dyn Store,
    number: u64,
    commit: &Commit,
) -> Result<bool, CatalogError> {
    let key = key(number);
    let failed = |error: std::io::Error| StoreError {
        place: key.to_string(),
        doing: "cannot be written",
        errno: Errno(error.raw_os_error().unwrap_or(Errno::IO.0)),
    };
    let mut object = store.create(&key)?;
    object.write_all(&encoded(number, commit)).map_err(failed)?;
    match object.commit() {
        Ok(()) => Ok(true),
        Err(error) if error.errno == Errno::EXIST => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Reads this commit of the log, if it is there.
pub(super) fn read(store: &dyn Store, number: u64) -> Result<Option<Commit>, CatalogError> {
    let key = key(number);
    let bytes = match store.size(&key) {
        Ok(bytes) => bytes,
        Err(error) if error.errno == Errno::NOENT => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    decoded(number, &store.read(&key, 0..bytes)?).map(Some)
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

fn decoded(number: u64, bytes: &[u8]) -> Result<Commit, CatalogError> {
    let damaged = |why| CatalogError::Damaged { number, why };
    if bytes.len() < HEADER_BYTES + DIGEST_BYTES || !bytes.starts_with(MAGIC) {
        return Err(damaged("it is no commit"));
    }
    let version = u32::from_le_bytes(bytes[8..12].try_into().expect("these are four bytes"));
    if version > LOG_VERSION {
        return Err(CatalogError::Version { number, version });
    }
    let (body, digest) = bytes.split_at(bytes.len() - DIGEST_BYTES);
    if blake3::hash(body) != *<&[u8; DIGEST_BYTES]>::try_from(digest).expect("these were split off")
    {
        return Err(damaged("it is not as it was written (checksum)"));
    }
    let (header, commit) = body.split_at(HEADER_BYTES);
    if header[12..] != number.to_le_bytes() {
        return Err(damaged("it is another one"));
    }
    postcard::from_bytes(commit).map_err(|_| damaged("it says what no commit does"))
}
