//! The log: an object of the store for each commit, numbered from 1 without a gap.
//!
//! An object is the magic, the version and the commit's number in little-endian bytes, the commit as
//! postcard, the digest of the commit before it, and BLAKE3 of all that.
//!
//! That a number is not there says nothing of later ones, which may have been left when it was lost: who
//! has to know that a commit is the last lists them all.
//!
//! The log is the archive: tables of a catalog are the sum of the log, and need no sync. A writer
//! writes data, then the index, then the commit. The store lets only one of two writers create the
//! object of a commit, so several processes write without a server.
//!
//! Nothing is written after a gap. A process that writes or removes therefore lists the log first
//! ([`Catalog::catch_up_whole`](super::Catalog::catch_up_whole)). A reader receives the commits
//! before a gap or damage, and an error.
use super::{CatalogError, Checked, Commit};
use crate::archive::unwritten;
use crate::store::{Store, StoreError, StoreKey};
use crate::version::last_marked;
use sheaf_core::Errno;
use std::io::Write;

/// The version of commits that this Sheaf writes; it reads those of earlier ones. One that does not know
/// versions of archives would remove what they refer to, and reads none of version 3.
pub const LOG_VERSION: u32 = 3;

/// What the keys of commits begin with.
const LOG: &str = "log";
const MAGIC: &[u8; 8] = b"sheaflog";
const HEADER_BYTES: usize = 8 + 4 + 8;
const DIGEST_BYTES: usize = 32;
/// Bytes of a commit at most.
const COMMIT_BYTES_MAX: u64 = 1 << 30;

/// BLAKE3 of a commit: no two of all logs have the same.
pub(super) type CommitDigest = [u8; DIGEST_BYTES];

/// A commit as it is in the log.
pub(super) struct LoggedCommit {
    pub commit: Commit,
    pub digest: CommitDigest,
    /// The digest of the commit before it, as its writer knew that. The first has none, nor those of
    /// writers that did not say it yet.
    pub before: Option<CommitDigest>,
}

/// Where this commit is.
pub(crate) fn key(number: u64) -> StoreKey {
    StoreKey::new(&format!("{LOG}/{number:020}")).expect("digits are parts of a key")
}

/// Writes a commit as this one of the log, behind the one of this digest. Its own, if it was: another
/// writer may have been first.
pub(super) fn append(
    store: &dyn Store,
    number: u64,
    before: &[u8],
    commit: &Commit,
) -> Result<Option<CommitDigest>, CatalogError> {
    // Nobody could read it again, nor what is behind it.
    if !commit.is_valid() {
        return Err(CatalogError::Invalid);
    }
    let key = key(number);
    let mut object = store.create(&key)?;
    let bytes = encoded(number, before, commit);
    object.write_all(&bytes).map_err(|error| unwritten(&key, &error))?;
    match object.commit() {
        Ok(()) => Ok(bytes.last_chunk().copied()),
        Err(error) if error.errno == Errno::EXIST => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Reads this commit of the log, if it is there.
pub(super) fn read(store: &dyn Store, number: u64) -> Result<Option<LoggedCommit>, CatalogError> {
    let key = key(number);
    let Some(bytes) = size(store, number)? else { return Ok(None) };
    check_length(number, bytes)?;
    let read = store.read(&key, 0..bytes).map_err(|error| of_commit(number, error))?;
    decoded(number, &read).map(Some)
}

/// The digest of this commit of the log, as it is written there; nothing where there is none.
pub(super) fn digest(store: &dyn Store, number: u64) -> Result<Option<CommitDigest>, CatalogError> {
    let key = key(number);
    let Some(bytes) = size(store, number)? else { return Ok(None) };
    let read = store.read(&key, bytes.saturating_sub(DIGEST_BYTES as u64)..bytes)?;
    let too_short = CatalogError::Damaged { number, why: "it is no commit" };
    read.try_into().map(Some).map_err(|_| too_short)
}

/// Whether this commit of the log has this digest: what it says, or what is written of it, where one of
/// the two is damaged.
pub(super) fn has(store: &dyn Store, number: u64, digest: &[u8]) -> Result<bool, CatalogError> {
    let written = self::digest(store, number)?;
    if written.is_some_and(|written| written == digest) {
        return Ok(true);
    }
    let key = key(number);
    let Some(bytes) = size(store, number)? else { return Ok(false) };
    check_length(number, bytes)?;
    let read = store.read(&key, 0..bytes)?;
    let body = &read[..read.len().saturating_sub(DIGEST_BYTES)];
    if blake3::hash(body).as_bytes() == digest {
        return Ok(true);
    }
    // One that is cut off is of nobody else.
    decoded(number, &read).map(|_| false)
}

/// The numbers of all commits that are there, from the first on.
pub(super) fn numbers(store: &dyn Store) -> Result<Vec<u64>, CatalogError> {
    let mut numbers = Vec::new();
    store.list(&[LOG], &mut |object| {
        // Whoever puts something else there has not put a commit there.
        let digits = object.key.as_str().rsplit('/').next().unwrap_or_default();
        let number = digits.parse().ok().filter(|number| key(*number) == object.key);
        numbers.extend(number);
        Ok(())
    })?;
    numbers.sort_unstable();
    Ok(numbers)
}

/// That a commit is not there, but a later one; nothing where this one would be the next.
pub(super) fn gap(store: &dyn Store, number: u64) -> Result<Option<CatalogError>, CatalogError> {
    match numbers(store)?.into_iter().find(|later| *later > number) {
        Some(later) => gap_to(store, number, later),
        None => Ok(None),
    }
}

/// The same, also where a version or a snapshot is of this commit or a later one: then the log has lost its end.
pub(super) fn gap_or_cut(
    store: &dyn Store,
    number: u64,
) -> Result<Option<CatalogError>, CatalogError> {
    match gap(store, number)? {
        None => cut(store, number),
        gap => Ok(gap),
    }
}

/// An error if this commit is missing, and a version or a snapshot is of it or of a later one.
pub(super) fn cut(store: &dyn Store, number: u64) -> Result<Option<CatalogError>, CatalogError> {
    let unmarked = |error| CatalogError::Unmarked { error };
    let version = last_marked(store).map_err(unmarked)?;
    let snapshots = super::snapshot::numbers(store).map_err(unmarked)?;
    let marked = snapshots.first().copied().unwrap_or(0).max(version);
    // Both are made when their commit is there.
    let is_cut = size(store, number)?.is_none() && marked >= number;
    Ok(is_cut.then_some(CatalogError::Cut { number, marked }))
}

/// That a commit is not there, but this later one.
pub(super) fn gap_to(
    store: &dyn Store,
    number: u64,
    later: u64,
) -> Result<Option<CatalogError>, CatalogError> {
    // Where a later one was written meanwhile, this one was before it.
    let is_gap = size(store, later)?.is_some() && size(store, number)?.is_none();
    Ok(is_gap.then_some(CatalogError::Missing { number, later }))
}

/// All that is wrong with the log as far as it goes, each time it is found.
pub(super) fn faults(
    store: &dyn Store,
    found: &mut dyn FnMut(CatalogError),
) -> Result<(), CatalogError> {
    let (mut last, mut before) = (0, None);
    for number in numbers(store)? {
        if number > last + 1 {
            found(CatalogError::Missing { number: last + 1, later: number });
            // What the missing commit said is not known, so the next one is compared with nothing.
            before = None;
        }
        last = number;
        before = match read(store, number) {
            Ok(Some(logged)) => {
                if !continues(before.as_ref().map_or(&[], |digest: &CommitDigest| digest), &logged)
                {
                    found(CatalogError::Unconnected { number });
                }
                Some(logged.digest)
            }
            Ok(None) => None,
            Err(error) if error.is_of_log() => {
                found(error);
                None
            }
            Err(error) => return Err(error),
        };
    }
    // What is no file is not listed.
    match cut(store, last + 1) {
        Ok(cut) => cut.into_iter().for_each(found),
        Err(error) if error.is_of_log() => found(error),
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Whether a commit may come behind the one of this digest, as far as both are known.
pub(super) fn continues(before: &[u8], logged: &LoggedCommit) -> bool {
    before.is_empty() || logged.before.is_none_or(|said| said == before)
}

/// A commit is in memory as a whole, whatever a store says of its length.
fn check_length(number: u64, bytes: u64) -> Result<(), CatalogError> {
    let too_long = CatalogError::Damaged { number, why: "it is longer than a commit" };
    if bytes > COMMIT_BYTES_MAX { Err(too_long) } else { Ok(()) }
}

fn size(store: &dyn Store, number: u64) -> Result<Option<u64>, CatalogError> {
    match store.size(&key(number)) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.errno == Errno::NOENT => Ok(None),
        Err(error) => Err(of_commit(number, error)),
    }
}

/// Whether something is there as this commit, a regular file or not.
pub(super) fn is_taken(store: &dyn Store, number: u64) -> Result<bool, CatalogError> {
    match size(store, number) {
        Err(CatalogError::Damaged { .. }) => Ok(true),
        found => Ok(found?.is_some()),
    }
}

/// What a commit cannot be read by: something else that has taken its place is damage of it.
fn of_commit(number: u64, error: StoreError) -> CatalogError {
    match error.errno {
        Errno::BADMSG => CatalogError::Damaged { number, why: "it is no regular file" },
        _ => error.into(),
    }
}

/// Whether bytes are a commit of this number and digest, behind the one of that digest.
pub(super) fn is_encoded(number: u64, before: &[u8], digest: &CommitDigest, bytes: &[u8]) -> bool {
    decoded(number, bytes)
        .is_ok_and(|logged| logged.digest == *digest && continues(before, &logged))
}

pub(super) fn encoded(number: u64, before: &[u8], commit: &Commit) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&LOG_VERSION.to_le_bytes());
    bytes.extend_from_slice(&number.to_le_bytes());
    let mut bytes = postcard::to_extend(commit, bytes).expect("memory takes what it is given");
    // An earlier Sheaf does not look at what is behind a commit.
    bytes.extend_from_slice(before);
    let digest = blake3::hash(&bytes);
    bytes.extend_from_slice(digest.as_bytes());
    bytes
}

fn decoded(number: u64, bytes: &[u8]) -> Result<LoggedCommit, CatalogError> {
    let damaged = |why| CatalogError::Damaged { number, why };
    if bytes.len() < HEADER_BYTES + DIGEST_BYTES || !bytes.starts_with(MAGIC) {
        return Err(damaged("it is no commit"));
    }
    let (body, digest) = bytes.split_at(bytes.len() - DIGEST_BYTES);
    let digest: CommitDigest = digest.try_into().expect("these were split off");
    if blake3::hash(body) != digest {
        return Err(damaged("it is not as it was written (checksum)"));
    }
    // Each version ends as this one does: a number that was damaged is not a later version's.
    let version = u32::from_le_bytes(bytes[8..12].try_into().expect("these are four bytes"));
    if version > LOG_VERSION {
        return Err(CatalogError::Version { number, version });
    }
    let (header, commit) = body.split_at(HEADER_BYTES);
    if header[12..] != number.to_le_bytes() {
        return Err(damaged("it is another one"));
    }
    let commit = postcard::take_from_bytes(commit).ok();
    let is_valid = |(commit, _): &(Commit, &[u8])| commit.is_valid();
    let (commit, behind) =
        commit.filter(is_valid).ok_or_else(|| damaged("it says what no commit does"))?;
    Ok(LoggedCommit { commit, digest, before: behind.first_chunk().copied() })
}

/// The version of this commit of the log.
pub(super) fn version(store: &dyn Store, number: u64) -> Result<u32, CatalogError> {
    let bytes = store.read(&key(number), 8..12)?;
    let too_short = CatalogError::Damaged { number, why: "it is no commit" };
    bytes.try_into().map(u32::from_le_bytes).map_err(|_| too_short)
}

/// What a fuzz target says in the place of a commit, with a right header and checksum: what is taken for a
/// commit is written as it was read.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz(data: &[u8]) {
    let mut bytes = encoded(1, &[], &Commit::default());
    bytes.truncate(HEADER_BYTES);
    bytes.extend_from_slice(data);
    let digest = blake3::hash(&bytes);
    bytes.extend_from_slice(digest.as_bytes());
    if let Ok(logged) = decoded(1, &bytes) {
        let before = logged.before.as_ref().map_or(&[][..], |before| before);
        let again = decoded(1, &encoded(1, before, &logged.commit)).expect("it was decoded");
        assert_eq!((again.commit, again.before), (logged.commit, logged.before));
    }
}
