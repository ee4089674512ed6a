//! A log that is written again: what is to become of it is in the store as a whole before anything of it is changed.
//! Who is broken off has it done by the next one, and nobody reads or writes the archive as a whole until then.
//!
//! `restoring/begun` is there as long as somebody changes the log, whoever that is: it is written before leases are looked
//! at, and writers look for it when they have a lease, so that one of the two sees the other. `restoring/NUMBER` is a
//! commit as it is to be, and `restoring/plan` says which there are and what becomes of marks of versions; a copy of it
//! is `restoring/plan-copy`. Without a plan the commits mean nothing.
use super::cut::{VERSION_KEPT, drop_commits, keep};
use super::log::{self, CommitDigest};
use super::{Catalog, CatalogError, snapshot};
use crate::archive::put;
use crate::repair::removed;
use crate::store::{Store, StoreError, StoreKey};
use crate::version::PlannedMark;
use serde::{Deserialize, Serialize};
use sheaf_core::Errno;

const RESTORING: &str = "restoring";
const MAGIC: &[u8; 8] = b"sheafpln";
const PLAN_VERSION: u32 = 1;
const HEADER_BYTES: usize = 8 + 4;
const DIGEST_BYTES: usize = 32;
/// Bytes of a plan at most.
const PLAN_BYTES_MAX: u64 = 256 << 20;

/// What is to become of a log.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LogPlan {
    /// The first commit that is written, and the last one that the catalog knew.
    pub from: u64,
    pub known: u64,
    /// The digest of the commit before it; of the first none.
    before: Vec<u8>,
    /// The digests of all commits from there on.
    pub commits: Vec<CommitDigest>,
    pub marks: Vec<PlannedMark>,
    /// What is told at the end.
    pub directories: u64,
    pub dropped: u64,
    pub versions: Vec<String>,
}

fn key_of(name: &str) -> StoreKey {
    StoreKey::new(&format!("{RESTORING}/{name}")).expect("it is a key")
}

/// A plan, and its copy.
fn plan_keys() -> [StoreKey; 2] {
    [key_of("plan"), key_of("plan-copy")]
}

fn commit_key(number: u64) -> StoreKey {
    key_of(&format!("{number:020}"))
}

fn is_taken(store: &dyn Store, key: &StoreKey) -> Result<bool, StoreError> {
    match store.size(key) {
        Err(error) if error.errno == Errno::NOENT => Ok(false),
        // Whatever is there is not nothing.
        Err(error) if error.errno == Errno::BADMSG => Ok(true),
        size => size.map(|_| true),
    }
}

/// Whether somebody changes the log, or was broken off.
pub(crate) fn is_begun(store: &dyn Store) -> Result<bool, StoreError> {
    is_taken(store, &key_of("begun"))
}

/// Says that the log is being changed.
pub(crate) fn begin(store: &dyn Store) -> Result<(), StoreError> {
    match put(store, &key_of("begun"), b"") {
        Err(error) if error.errno == Errno::EXIST => Ok(()),
        begun => begun,
    }
}

/// Nothing is changed any more; what is left of a plan means nothing.
pub(crate) fn end(store: &dyn Store) -> Result<(), CatalogError> {
    clear(store)?;
    Ok(removed(store.remove(&key_of("begun")))?)
}

/// Whether there is a plan.
pub(crate) fn is_there(store: &dyn Store) -> Result<bool, StoreError> {
    let [plan, copy] = plan_keys();
    Ok(is_taken(store, &plan)? || is_taken(store, &copy)?)
}

impl LogPlan {
    /// One that changes nothing yet, of a log whose commits before `from` add up to `made`.
    pub fn begin(store: &dyn Store, made: &Catalog, from: u64) -> Result<Self, CatalogError> {
        clear(store)?;
        let (_, before) = made.last_applied()?;
        Ok(Self { from, before, ..Self::default() })
    }

    /// Another commit, behind those that there are: its bytes.
    pub fn push(
        &mut self,
        store: &dyn Store,
        bytes: &[u8],
        digest: CommitDigest,
    ) -> Result<(), CatalogError> {
        put(store, &commit_key(self.from + self.commits.len() as u64), bytes)?;
        self.commits.push(digest);
        Ok(())
    }

    /// From here on this is what the archive is.
    pub fn publish(&self, store: &dyn Store) -> Result<(), CatalogError> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&PLAN_VERSION.to_le_bytes());
        let mut bytes = postcard::to_extend(self, bytes).expect("memory takes what it is given");
        let digest = blake3::hash(&bytes);
        bytes.extend_from_slice(digest.as_bytes());
        for key in plan_keys() {
            put(store, &key, &bytes)?;
        }
        Ok(())
    }

    /// The one of who was broken off.
    pub fn read(store: &dyn Store) -> Result<Option<Self>, CatalogError> {
        let mut why = None;
        for key in plan_keys() {
            let read = match store.size(&key) {
                Ok(bytes) if bytes > PLAN_BYTES_MAX => Err("it is longer than a plan"),
                bytes => match bytes.and_then(|bytes| store.read(&key, 0..bytes)) {
                    Ok(bytes) => Self::decode(&bytes),
                    Err(error) if error.errno == Errno::NOENT => continue,
                    Err(error) if error.errno == Errno::BADMSG => Err("it is no regular file"),
                    Err(error) => return Err(error.into()),
                },
            };
            match read {
                Ok(plan) => return Ok(Some(plan)),
                Err(wrong) => why = Some(CatalogError::Plan { place: key.to_string(), why: wrong }),
            }
        }
        why.map_or(Ok(None), Err)
    }

    fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        if bytes.len() < HEADER_BYTES + DIGEST_BYTES || !bytes.starts_with(MAGIC) {
            return Err("it is no plan");
        }
        let (body, digest) = bytes.split_at(bytes.len() - DIGEST_BYTES);
        if blake3::hash(body) != *digest {
            return Err("it is not as it was written (checksum)");
        }
        let (header, plan) = body.split_at(HEADER_BYTES);
        if header[8..] != PLAN_VERSION.to_le_bytes() {
            return Err("a later Sheaf has written it");
        }
        let plan: Option<Self> = postcard::from_bytes(plan).ok();
        plan.filter(Self::is_valid).ok_or("it says what no plan does")
    }

    fn is_valid(&self) -> bool {
        let last = self.from.checked_add(self.commits.len() as u64);
        self.from > 0
            && last.is_some_and(|last| i64::try_from(last).is_ok())
            && matches!(self.before.len(), 0 | DIGEST_BYTES)
            && self.marks.iter().all(PlannedMark::is_valid)
    }

    /// Has the log be what this says; whatever of it was done before.
    pub fn carry_out(&self, store: &dyn Store) -> Result<(), CatalogError> {
        for mark in &self.marks {
            if !mark.is_done(store)? {
                keep(store, &mark.key(), VERSION_KEPT)?;
            }
        }
        self.remove_others(store)?;
        for (number, digest) in (self.from..).zip(&self.commits) {
            if !is_commit(store, number, digest)? {
                self.write_commit(store, number, digest)?;
            }
        }
        snapshot::remove(store, Some(self.from), false)?;
        for mark in &self.marks {
            mark.carry_out(store)?;
        }
        Ok(())
    }

    /// Removes the commits that are not to be, from the last to the first.
    fn remove_others(&self, store: &dyn Store) -> Result<(), CatalogError> {
        let (mut stay, mut go) = (Vec::new(), Vec::new());
        for number in log::numbers(store)?.into_iter().filter(|number| *number >= self.from) {
            let planned = usize::try_from(number - self.from).ok();
            match planned.and_then(|at| self.commits.get(at)) {
                Some(digest) if is_commit(store, number, digest)? => stay.push(number),
                _ => go.push(number),
            }
        }
        drop_commits(store, self.from, &go, &stay)
    }

    fn write_commit(
        &self,
        store: &dyn Store,
        number: u64,
        digest: &CommitDigest,
    ) -> Result<(), CatalogError> {
        let key = commit_key(number);
        let damaged = |why| CatalogError::Plan { place: key.to_string(), why };
        let bytes = match store.size(&key).and_then(|bytes| store.read(&key, 0..bytes)) {
            Err(error) if error.errno == Errno::NOENT => return Err(damaged("it is not there")),
            bytes => bytes?,
        };
        let before = match number - self.from {
            0 => &self.before[..],
            at => &self.commits[at as usize - 1],
        };
        if !log::is_encoded(number, before, digest, &bytes) {
            return Err(damaged("it is not the commit that is to be written"));
        }
        Ok(put(store, &log::key(number), &bytes)?)
    }
}

/// Removes what is there of a plan, which is done or was never one.
fn clear(store: &dyn Store) -> Result<(), CatalogError> {
    let (mut keys, plans) = (Vec::new(), plan_keys());
    store.list(&[RESTORING], &mut |object| {
        if !plans.contains(&object.key) && object.key != key_of("begun") {
            keys.push(object.key);
        }
        Ok(())
    })?;
    for key in keys.iter().chain(plans.iter().rev()) {
        removed(store.remove(key))?;
    }
    Ok(())
}

/// Whether a commit of the log is this one.
fn is_commit(store: &dyn Store, number: u64, digest: &CommitDigest) -> Result<bool, CatalogError> {
    match log::read(store, number) {
        Err(error) if error.is_of_log() => Ok(false),
        found => Ok(found?.is_some_and(|found| found.digest == *digest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_read_as_written_and_no_other_bytes_are() {
        let place = tempfile::tempdir().unwrap();
        let store = crate::store::LocalStore::create(&place.path().join("s")).unwrap();
        let plan = LogPlan {
            from: 3,
            known: 5,
            before: vec![7; DIGEST_BYTES],
            commits: vec![[1; 32], [2; 32]],
            versions: vec!["one".to_owned()],
            ..LogPlan::default()
        };
        assert!(!is_there(&store).unwrap() && !is_begun(&store).unwrap());
        begin(&store).unwrap();
        begin(&store).unwrap();
        assert!(is_begun(&store).unwrap());
        plan.publish(&store).unwrap();
        assert_eq!(LogPlan::read(&store).unwrap(), Some(plan));
        let [key, copy] = plan_keys();
        let bytes = store.read(&key, 0..store.size(&key).unwrap()).unwrap();
        store.remove(&key).unwrap();
        assert!(LogPlan::read(&store).unwrap().is_some() && is_there(&store).unwrap());
        put(&store, &key, &bytes[1..]).unwrap();
        assert!(LogPlan::read(&store).unwrap().is_some());
        store.remove(&copy).unwrap();
        assert!(matches!(LogPlan::read(&store), Err(CatalogError::Plan { .. })));
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert!(LogPlan::decode(&other).is_err() && LogPlan::decode(&bytes[..at]).is_err());
        }
        for (from, before) in [(0, 32), (i64::MAX as u64, 32), (3, 31)] {
            let plan = LogPlan {
                from,
                before: vec![0; before],
                commits: vec![[1; 32]],
                ..LogPlan::default()
            };
            assert!(!plan.is_valid(), "{from} {before}");
        }
        end(&store).unwrap();
        assert!(LogPlan::read(&store).unwrap().is_none() && !is_begun(&store).unwrap());
    }
}
