//! Versions: marks that say that what the archive was at a commit can be read still.
//!
//! A mark is the object `versions/NUMBER-ID`. What the archive was then is what the log adds up to at
//! commit NUMBER, and what that refers to is kept in the store as long as the mark is there.
//!
//! A command that removes objects reads the log first and the marks behind it. A writer looks whether its
//! mark is of the last commit of the log when the mark is there. So what a mark refers to was referred to
//! by the last commit, or the mark was seen.
mod mark;

#[cfg(feature = "fuzzing")]
pub(crate) use mark::fuzz;
pub use mark::{Version, VersionSums};

use crate::archive::{Archive, ArchiveError, put, random_id};
use crate::catalog::{Catalog, Commit};
use crate::lease::Removal;
use crate::pack::member::PackId;
use crate::repair::{Referred, add_referred, removed};
use crate::store::{Store, StoreError, StoreKey};
use mark::Mark;
pub(crate) use mark::VERSIONS;
use serde::{Deserialize, Serialize};
use sheaf_core::Errno;
use sheaf_core::lock;
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// How often a mark is made again because other writers have made commits meanwhile.
const TRIES_MAX: u32 = 32;

/// Why a version cannot be read or made.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VersionError {
    /// Its object is not as it was written.
    #[error("version {id} is damaged: {why}: what it refers to is kept until it is forgotten")]
    Damaged {
        /// Which one.
        id: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The log does not have its commit.
    #[error(
        "version {id} is of commit {number}, and the archive's log has another one or none: bring the log back \
         from a copy of the store, or forget the version"
    )]
    OtherLog {
        /// Which one.
        id: String,
        /// The commit that it is of.
        number: u64,
    },
    /// Other writers have made a commit each time.
    #[error(
        "other writers go on changing the archive: what is stored is archived, and is no version"
    )]
    Busy,
    /// Its name cannot be one.
    #[error("a version's name has 1 to 200 bytes, and no control characters")]
    Name,
}

/// What is there of a mark: what it says, or what is wrong with it.
#[derive(Debug)]
pub struct FoundVersion {
    /// Its name among all versions of an archive.
    pub id: PackId,
    /// The commit that it is of.
    pub number: u64,
    /// What it says.
    pub version: Result<Version, VersionError>,
}

/// All versions of an archive, by their commits; of one commit by their times.
///
/// # Errors
/// When the store cannot be read.
pub fn versions(archive: &Archive) -> Result<Vec<FoundVersion>, ArchiveError> {
    let mut all = found(archive.store())?;
    // One that was being moved has two marks, which say the same; the later one stays.
    let mut later = HashSet::new();
    for at in (0..all.len()).rev() {
        if later.contains(&all[at].id) {
            all.remove(at);
        } else if all[at].version.is_ok() {
            later.insert(all[at].id);
        }
    }
    Ok(all)
}

fn found(store: &dyn Store) -> Result<Vec<FoundVersion>, StoreError> {
    let marks = marks(store)?;
    let workers = store.calls_at_once().min(marks.len());
    let (queue, found) = (Mutex::new(marks.into_iter()), Mutex::new(Vec::new()));
    let work = || -> Result<(), StoreError> {
        loop {
            let Some(mark) = lock(&queue).next() else { return Ok(()) };
            if let Some(version) = mark.read(store)? {
                lock(&found).push(FoundVersion { id: mark.id, number: mark.number, version });
            }
        }
    };
    // Many are read at once where it is the store that one waits for.
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..workers)
            .map_while(|_| {
                let worker = std::thread::Builder::new().name("versions".to_owned());
                worker.spawn_scoped(scope, work).ok()
            })
            .collect();
        let own = work();
        let all = others.into_iter().map(|other| match other.join() {
            Ok(ended) => ended,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        all.fold(own, Result::and)
    })?;
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_by_key(|one: &FoundVersion| {
        let time =
            one.version.as_ref().map_or((0, 0), |version| (version.seconds, version.nanoseconds));
        (one.number, time, one.id)
    });
    Ok(found)
}

fn marks(store: &dyn Store) -> Result<Vec<Mark>, StoreError> {
    let mut marks = Vec::new();
    store.list(&[VERSIONS], &mut |object| {
        marks.extend(Mark::of(&object.key));
        Ok(())
    })?;
    Ok(marks)
}

/// Makes what the archive is now a version. The commit and its digest are filled in here.
///
/// # Errors
/// When the store or the catalog cannot be read or written, the name cannot be one, or other writers make
/// commits all the time. What is archived stays so.
pub fn mark_version(archive: &Archive, mut version: Version) -> Result<PackId, ArchiveError> {
    if !version.is_valid() {
        return Err(VersionError::Name.into());
    }
    let _writing = archive.writing();
    archive.leasing().check_log(&mut archive.catalog())?;
    let store = archive.store();
    // An earlier Sheaf would remove what versions refer to. It reads no log that ends so.
    let is_read_by_earlier = archive.catalog().is_read_by_earlier(store)?;
    if is_read_by_earlier {
        archive.commit(&Commit::default())?;
    }
    let id = random_id()?;
    for _ in 0..TRIES_MAX {
        let (number, digest) = archive.catalog().last(store)?;
        version.digest = digest;
        let mark = Mark { number, id };
        put(store, &mark.key(), &version.encode(mark))?;
        if archive.catalog().last(store)?.0 == number {
            return Ok(id);
        }
        removed(store.remove(&mark.key()))?;
    }
    Err(VersionError::Busy.into())
}

/// Forgets these versions, and tells of each that is there whether it is forgotten: what nothing else refers
/// to is removed by the next `repair` or `repack`. One that cannot be removed leaves the others.
///
/// # Errors
/// When another command removes something, or the store cannot be read, or not be reached any longer. What
/// was forgotten before that stays so.
pub fn forget_versions(
    archive: &Archive,
    ids: &[PackId],
    told: &mut dyn FnMut(PackId, Result<(), ArchiveError>),
) -> Result<(), ArchiveError> {
    if ids.is_empty() {
        return Ok(());
    }
    let (ids, removal): (HashSet<_>, _) = (ids.iter().collect(), Removal::begin(archive)?);
    let mut marks = marks(archive.store())?;
    marks.retain(|mark| ids.contains(&mark.id));
    marks.sort_by_key(|mark| (mark.id, mark.number));
    // One that was being moved has two marks.
    for of_one in marks.chunk_by(|one, other| one.id == other.id) {
        let gone = of_one.iter().try_for_each(|mark| removal.remove(&mark.key()));
        match gone {
            Err(error) if error.retry_can_help() => return Err(error),
            gone => told(of_one[0].id, gone),
        }
    }
    Ok(())
}

impl Archive {
    /// What the archive was at a version, to read. It is made of the log.
    ///
    /// # Errors
    /// When the log cannot be read, or does not have the commit.
    pub fn at(&self, found: &FoundVersion) -> Result<Self, ArchiveError> {
        let version = found.version.clone()?;
        let mut catalog = Catalog::in_memory()?;
        let last = catalog.read_at(self.store(), found.number)?;
        if last != (found.number, version.digest) {
            let (id, number) = (found.id.to_string(), found.number);
            return Err(VersionError::OtherLog { id, number }.into());
        }
        catalog.stay();
        Ok(Self::of(self.leasing().inner(), catalog))
    }
}

/// Adds what versions refer to. The log was read before.
pub(crate) fn add_versions(
    store: &dyn Store,
    referred: &mut Referred,
    but: &[PackId],
) -> Result<(), ArchiveError> {
    let mut add = |catalog: &_, _: &_, since| add_referred(catalog, since, referred);
    each_version(store, but, &mut add, &mut Err)
}

/// Makes the tables of one version after the other, and hands them out with the commit of the one before:
/// directories that have not changed since that are as they were there. Of versions of one commit the first
/// is handed out. One whose commit the log does not have is told as an error.
pub(crate) fn each_version(
    store: &dyn Store,
    but: &[PackId],
    each: &mut dyn FnMut(&Catalog, &FoundVersion, u64) -> Result<(), ArchiveError>,
    failed: &mut dyn FnMut(ArchiveError) -> Result<(), ArchiveError>,
) -> Result<(), ArchiveError> {
    let mut all = found(store)?;
    all.retain(|found| !but.contains(&found.id));
    if all.is_empty() {
        return Ok(());
    }
    let (mut catalog, mut since) = (Catalog::in_memory()?, 0);
    for found in all {
        let (last, digest) = match catalog.last_at(store, found.number) {
            // A snapshot may be behind what is wrong with the log.
            Err(error) if error.is_of_log() => {
                (catalog, since) = (Catalog::in_memory()?, 0);
                match catalog.read_at(store, found.number) {
                    Err(error) if error.is_of_log() => (0, [0; 32]),
                    at => at?,
                }
            }
            at => at?,
        };
        // A mark that is damaged has its commit in its key, and keeps as much.
        let is_other = found.version.as_ref().is_ok_and(|version| version.digest != digest);
        if last != found.number || is_other {
            let (id, number) = (found.id.to_string(), found.number);
            failed(VersionError::OtherLog { id, number }.into())?;
            continue;
        }
        if found.number > since {
            each(&catalog, &found, since)?;
            since = found.number;
        }
    }
    Ok(())
}

/// Ends moves that were cut off: of two marks of a version the one of the earlier commit goes, where the
/// log has the later one's commit.
pub(crate) fn end_moves(store: &dyn Store, removal: &Removal<'_>) -> Result<(), ArchiveError> {
    let mut later = HashSet::new();
    for FoundVersion { id, number, version } in found(store)?.into_iter().rev() {
        if later.contains(&id) {
            removal.remove(&Mark { number, id }.key())?;
        } else if let Ok(version) = version
            && Catalog::has_commit(store, number, &version.digest)?
        {
            later.insert(id);
        }
    }
    Ok(())
}

/// The marks of this commit of the log and of later ones.
pub(crate) fn marks_from(store: &dyn Store, from: u64) -> Result<Vec<StoreKey>, StoreError> {
    let all = marks(store)?.into_iter().filter(|mark| mark.number >= from);
    Ok(all.map(|mark| mark.key()).collect())
}

/// A commit, and its digest.
pub(crate) type CommitId = (u64, [u8; 32]);

/// What is to become of a mark.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlannedMark {
    number: u64,
    id: PackId,
    /// The commit that it is to be of, and what it says then; nothing where it goes.
    to: Option<(u64, Vec<u8>)>,
}

impl PlannedMark {
    fn mark(&self) -> Mark {
        Mark { number: self.number, id: self.id }
    }

    fn moved(&self) -> Option<(Mark, &[u8])> {
        self.to.as_ref().map(|(number, bytes)| (Mark { number: *number, id: self.id }, &bytes[..]))
    }

    pub fn key(&self) -> StoreKey {
        self.mark().key()
    }

    /// Whether it is what may be read from a store.
    pub fn is_valid(&self) -> bool {
        let is_moved = |(mark, bytes): (Mark, &[u8])| mark.number > 0 && mark.decode(bytes).is_ok();
        self.number > 0 && self.moved().is_none_or(is_moved)
    }

    /// Whether nothing is at its place any more that is to go.
    pub fn is_done(&self, store: &dyn Store) -> Result<bool, StoreError> {
        match self.moved() {
            Some((mark, bytes)) if mark == self.mark() => is_said(store, mark, bytes),
            _ => Ok(false),
        }
    }

    /// Moves it, whatever of that was done before.
    pub fn carry_out(&self, store: &dyn Store) -> Result<(), StoreError> {
        let old = self.mark();
        let Some((mark, bytes)) = self.moved() else { return removed(store.remove(&old.key())) };
        if !is_said(store, mark, bytes)? {
            // Something else of its name is kept elsewhere by now.
            removed(store.remove(&mark.key()))?;
            put(store, &mark.key(), bytes)?;
        }
        if mark == old { Ok(()) } else { removed(store.remove(&old.key())) }
    }
}

/// Whether a mark says just this.
fn is_said(store: &dyn Store, mark: Mark, bytes: &[u8]) -> Result<bool, StoreError> {
    let key = mark.key();
    match store.size(&key) {
        Ok(size) if size == bytes.len() as u64 => Ok(store.read(&key, 0..size)? == bytes),
        Ok(_) => Ok(false),
        Err(error) if matches!(error.errno, Errno::NOENT | Errno::BADMSG) => Ok(false),
        Err(error) => Err(error),
    }
}

/// What becomes of marks where commits of the log from `from` up to `last` are written again: `moved` says what becomes
/// of those that are there still (without it, nothing is said of where marks go to). Those of others are of nothing any
/// more, and go; what these are called. Marks of later commits stay.
pub(crate) fn follow_log(
    store: &dyn Store,
    (from, last): (u64, u64),
    kept: &[CommitId],
    moved: Option<&[CommitId]>,
) -> Result<(Vec<PlannedMark>, Vec<String>), ArchiveError> {
    let (mut planned, mut gone) = (Vec::new(), Vec::new());
    for mark in marks(store)?.into_iter().filter(|mark| mark.number <= last) {
        let said = mark.read(store)?.and_then(Result::ok);
        // One of an earlier commit may be of one that another command has written again.
        let is_before = mark.number < from;
        let is_of_log =
            |version: &Version| Catalog::has_commit(store, mark.number, &version.digest);
        if is_before && said.as_ref().is_none_or(|version| is_of_log(version).unwrap_or(true)) {
            continue;
        }
        let at = said.as_ref().and_then(|version| {
            kept.iter().position(|commit| *commit == (mark.number, version.digest))
        });
        let to = match (said, at) {
            (Some(mut version), Some(at)) => {
                let Some(moved) = moved else { continue };
                let (number, digest) = moved[at];
                version.digest = digest;
                Some((number, version.encode(Mark { number, id: mark.id })))
            }
            (said, _) => {
                gone.push(said.and_then(|said| said.name).unwrap_or(mark.id.to_string()));
                None
            }
        };
        planned.push(PlannedMark { number: mark.number, id: mark.id, to });
    }
    Ok((planned, gone))
}

/// The last commit of which there is a version; 0 where there are none.
pub(crate) fn last_marked(store: &dyn Store) -> Result<u64, StoreError> {
    Ok(marks(store)?.iter().map(|mark| mark.number).max().unwrap_or(0))
}

/// Versions that are what the archive is now.
pub(crate) fn versions_now(archive: &Archive) -> Result<Vec<PackId>, ArchiveError> {
    let last = archive.catalog().applied()?;
    let marks = marks(archive.store())?;
    Ok(marks.into_iter().filter(|mark| mark.number == last).map(|mark| mark.id).collect())
}

/// Has versions be of the last commit. All commits since theirs have left what is archived as it was.
pub(crate) fn move_versions(
    archive: &Archive,
    ids: &[PackId],
    removal: &Removal<'_>,
) -> Result<(), ArchiveError> {
    let store = archive.store();
    let (number, digest) = archive.catalog().last(store)?;
    for mark in marks(store)? {
        if !ids.contains(&mark.id) || mark.number == number {
            continue;
        }
        // One that is damaged stays, and keeps what it refers to.
        let Some(Ok(mut version)) = mark.read(store)? else { continue };
        version.digest = digest;
        let moved = Mark { number, id: mark.id };
        removal.check()?;
        put(store, &moved.key(), &version.encode(moved))?;
        removal.remove(&mark.key())?;
    }
    Ok(())
}
