//! Leftovers: objects that no commit refers to, of writers that were cut off, or of what was removed.
//!
//! An archived object is never changed: a file that is stored again gets a new name and a new
//! index. An object that no commit refers to is removed when it is old enough by the clock of the store,
//! and no command that writes may have written it ([leases](crate::lease)). A writer looks for its
//! objects before it commits (`check_there` in `save/directory.rs`).
//!
//! Nothing is removed because of a catalog alone. SQLite has no checksums, so `repair` and `repack`
//! compare the catalog with the sum of the log first ([`referred`]).
use crate::archive::{
    Archive, ArchiveError, first_index_beside, id_of, index_as_written, index_in_tar, index_key,
    put, read_index, read_index_beside, write_shorter_index,
};
use crate::catalog::{ArchivedPack, Catalog, Commit, ContentPlace, DirectoryChange, FileRights};
use crate::lease::{Removal, StoreClock};
use crate::name::FileName;
use crate::pack::delta::IndexDelta;
use crate::pack::member::{PackId, PackedMember};
use crate::path::ArchivePath;
use crate::save::RESUME;
use crate::store::{Store, StoreError, StoreKey, StoredObject};
use crate::version::{FoundVersion, add_versions, each_version, end_moves};
use sheaf_core::Errno;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// What is younger may be of a writer that goes on, and has not committed it yet.
pub(crate) const LEFTOVER_AGE: Duration = Duration::from_secs(24 * 3600);
/// Directories that are asked of the catalog at once.
const DIRECTORIES_AT_ONCE: usize = 1024;

/// How to repair.
#[derive(Clone, Copy, Debug)]
pub struct RepairOptions {
    /// How old leftovers are at least. One that is younger may be of a writer that goes on.
    pub age: Duration,
    /// Whether they are only counted.
    pub dry_run: bool,
}

impl Default for RepairOptions {
    fn default() -> Self {
        Self { age: LEFTOVER_AGE, dry_run: false }
    }
}

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// Leftovers that were removed, or would be.
    pub leftovers: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Objects that no commit refers to and that are too young.
    pub young: u64,
    /// Commands that write to the store just now: what they write is young at any age.
    pub writers: u64,
    /// Indexes that were lost or damaged and were made again of their packs, or would be.
    pub indexes: u64,
    /// Others that are lost or damaged and cannot be: `verify` names them.
    pub indexes_lost: u64,
    /// Packs whose last index is lost, so that all is archived again that they have: also what was removed from
    /// them, as far as it is not archived elsewhere.
    pub refilled: u64,
}

/// Objects that commits refer to.
#[derive(Default)]
pub(crate) struct Referred {
    /// Packs, and which of their indexes.
    packs: HashMap<PackId, HashSet<u64>>,
    objects: HashSet<PackId>,
    /// Packs that more than one directory or file refers to.
    shared: HashSet<PackId>,
}

/// Makes lost indexes again, and removes what no commit refers to.
///
/// # Errors
/// When the catalog or the store cannot be read, the catalog is not what the log says, something
/// cannot be removed, or another command removes something. What was removed before that stays so.
pub fn repair(archive: &Archive, options: RepairOptions) -> Result<RepairReport, ArchiveError> {
    let (mut report, mut leftovers) = (RepairReport::default(), Vec::new());
    // A store that cannot be written may have nothing to be removed.
    let (removal, refused) = match (!options.dry_run).then(|| Removal::begin(archive)).transpose() {
        Err(error @ ArchiveError::Store(_))
            if matches!(error.errno(), Errno::ROFS | Errno::ACCES | Errno::PERM) =>
        {
            (None, Some(error))
        }
        removal => (removal?, None),
    };
    if removal.is_some() {
        Catalog::check_restored(archive.store())?;
    }
    // Objects are listed first, then leases, and the commits are read last. Who has written one of these
    // objects has a lease still, or has given it up after the commit that refers to the object.
    let mut found: Vec<StoredObject> = Vec::new();
    for kind in ["packs", "data", RESUME] {
        archive.store().list(&[kind], &mut |object| {
            found.push(object);
            Ok(())
        })?;
    }
    let clock = match &removal {
        Some(removal) => removal.clock()?,
        None => StoreClock::of(archive)?,
    };
    report.writers = clock.writers;
    if let Some(removal) = &removal {
        end_moves(archive.store(), removal)?;
    }
    let referred = referred(archive)?;
    report.leftovers += Catalog::remove_damaged_snapshots(archive.store(), options.dry_run)?;
    restore_indexes(archive, removal.as_ref(), &mut report)?;
    for object in found {
        if referred.has(&object.key) {
            continue;
        }
        if clock.is_young(object.written, options.age) {
            report.young += 1;
        } else {
            report.leftovers += 1;
            report.bytes += object.bytes;
            leftovers.push(object.key);
        }
    }
    if let Some(removal) = &removal {
        for key in leftovers {
            removal.remove(&key)?;
        }
        removal.check()?;
    }
    archive.store().unfinished(&mut |written, bytes| {
        let is_young = clock.is_young(written, options.age);
        report.young += u64::from(is_young);
        report.leftovers += u64::from(!is_young);
        report.bytes += if is_young { 0 } else { bytes };
        Ok(!is_young && removal.is_some())
    })?;
    match refused {
        Some(error) if report.leftovers + report.indexes > 0 => Err(error),
        _ => Ok(report),
    }
}

/// Makes indexes again that are lost or damaged, of the packs that they are of; also those of versions.
fn restore_indexes(
    archive: &Archive,
    removal: Option<&Removal<'_>>,
    report: &mut RepairReport,
) -> Result<(), ArchiveError> {
    let (store, mut last, mut seen) = (archive.store(), None, HashSet::new());
    loop {
        let next =
            archive.catalog().below(&ArchivePath::ROOT, last.as_ref(), DIRECTORIES_AT_ONCE)?;
        let Some((path, _)) = next.last() else { break };
        last = Some(path.clone());
        for (path, _) in next {
            let packs = archive.catalog().packs(&path)?;
            for pack in packs {
                let lost = report.indexes_lost;
                restore_index(store, &pack, removal, report)?;
                if report.indexes_lost > lost && refill(archive, &path, &pack, removal)? {
                    (report.indexes_lost, report.refilled) = (lost, report.refilled + 1);
                    // Versions that have this index lose what they had by it.
                    continue;
                }
                seen.insert((pack.id, pack.generation));
            }
        }
    }
    if archive.catalog().applied()? == 0 {
        return Ok(());
    }
    let mut restore = |catalog: &Catalog, _: &FoundVersion, since| {
        let mut last = None;
        loop {
            let next = catalog.rows_since(since, last.as_ref(), DIRECTORIES_AT_ONCE)?;
            let Some((path, _)) = next.last() else { return Ok(()) };
            last = Some(path.clone());
            for pack in next.into_iter().flat_map(|(_, rows)| rows.packs) {
                if seen.insert((pack.id, pack.generation)) {
                    restore_index(store, &pack, removal, report)?;
                }
            }
        }
    };
    each_version(store, &[], &mut restore, &mut Err)
}

/// When a member had changed last: bits of a time that says little are inverted.
fn changed_ns(member: &PackedMember) -> u64 {
    let said = member.attributes.ctime_ns;
    said.min(!said)
}

/// Archives all again that is in a pack, of whose members nobody knows any more which were removed, but for what is
/// archived elsewhere in its directory: a file that is there too much is better than one that is lost. Whether that can be
/// done.
fn refill(
    archive: &Archive,
    path: &ArchivePath,
    pack: &ArchivedPack,
    removal: Option<&Removal<'_>>,
) -> Result<bool, ArchiveError> {
    let store = archive.store();
    let Some(mut index) = index_in_tar(store, pack) else { return Ok(false) };
    let rows = archive.catalog().rows_of(path)?;
    let mut elsewhere: HashSet<FileName> =
        rows.objects.into_iter().map(|object| object.attributes.name).collect();
    for other in rows.packs.iter().filter(|other| other.id != pack.id) {
        let (other, is_whole) = match read_index(store, other) {
            Err(error) if error.is_lost() => (index_in_tar(store, other), false),
            // What cannot be read for now says nothing of what is archived there.
            other => (Some(other?), true),
        };
        // What is in that one would be archived twice.
        let Some(other) = other else { return Ok(false) };
        // Where the last index of that one is lost, too, of what both have the later one stays.
        let stays = |of: &PackedMember| {
            is_whole
                || index
                    .find(&of.attributes.name)
                    .is_none_or(|own| changed_ns(own) <= changed_ns(of))
        };
        let there = other.members.into_iter().filter(stays);
        elsewhere.extend(there.map(|of| of.attributes.name));
    }
    let Some(removal) = removal else { return Ok(true) };
    index.members.retain(|of| !elsewhere.contains(&of.attributes.name));
    if pack.classes.is_some() {
        // Rights were changed since, which is lost, too: those that let others act as an owner are not given again.
        for member in &mut index.members {
            let rights = member.attributes.rights();
            member.set_rights(FileRights { mode: rights.mode & 0o1777, ..rights });
        }
    }
    let (path, since) = (path.clone(), rows.changed);
    let mut change = DirectoryChange { path, since, ..DirectoryChange::default() };
    let _writing = archive.writing();
    if index.members.is_empty() {
        change.packs_removed.push(pack.id);
    } else {
        index.generation = pack.generation + 1;
        let mut row = pack.clone();
        row.index_bytes = write_shorter_index(store, &row, &mut index)?;
        row.describe(&index);
        change.packs.push(row);
    }
    removal.check()?;
    archive.commit(&Commit { changes: vec![change] })?;
    Ok(true)
}

/// Makes the index of a pack again, if it is lost or damaged and the pack says what it was.
fn restore_index(
    store: &dyn Store,
    pack: &ArchivedPack,
    removal: Option<&Removal<'_>>,
    report: &mut RepairReport,
) -> Result<(), ArchiveError> {
    if IndexDelta::is_one(pack.index_bytes) {
        restore_first_index(store, pack, removal, report)?;
    }
    match read_index_beside(store, pack) {
        Err(error) if error.is_lost() => {}
        index => return index.map(drop),
    }
    let bytes = index_as_written(store, pack).map(|index| index.encode());
    if IndexDelta::is_one(pack.index_bytes) {
        report.indexes_lost += u64::from(bytes.is_none());
        return Ok(());
    }
    let is_it = |bytes: &Vec<u8>| bytes.len() as u64 == pack.index_bytes;
    let Some(bytes) = bytes.filter(is_it) else {
        report.indexes_lost += 1;
        return Ok(());
    };
    report.indexes += 1;
    let Some(removal) = removal else { return Ok(()) };
    let key = index_key(pack.id, pack.generation);
    // A store does not write over an object.
    removal.remove(&key)?;
    match put(store, &key, &bytes) {
        // Somebody else does the same.
        Err(error) if error.errno == Errno::EXIST => Ok(()),
        written => Ok(written?),
    }
}

/// Makes the first index of a pack again, of the pack, where a later one needs it and it is lost or damaged.
fn restore_first_index(
    store: &dyn Store,
    pack: &ArchivedPack,
    removal: Option<&Removal<'_>>,
    report: &mut RepairReport,
) -> Result<(), ArchiveError> {
    match first_index_beside(store, pack) {
        Err(error) if error.is_lost() => {}
        first => return first.map(drop),
    }
    let Some(first) = index_in_tar(store, pack).filter(|index| index.generation == 0) else {
        return Ok(());
    };
    report.indexes += 1;
    let Some(removal) = removal else { return Ok(()) };
    let key = index_key(pack.id, 0);
    // A store does not write over an object.
    removal.remove(&key)?;
    match put(store, &key, &first.encode()) {
        Err(error) if error.errno == Errno::EXIST => Ok(()),
        written => Ok(written?),
    }
}

/// Somebody else may have removed it.
pub(crate) fn removed(removed: Result<(), StoreError>) -> Result<(), StoreError> {
    match removed {
        Err(error) if error.errno == Errno::NOENT => Ok(()),
        removed => removed,
    }
}

/// What commits refer to, up to the last that anybody has made.
pub(crate) fn referred(archive: &Archive) -> Result<Referred, ArchiveError> {
    referred_but(archive, &[])
}

/// The same, without what these versions alone refer to.
pub(crate) fn referred_but(archive: &Archive, but: &[PackId]) -> Result<Referred, ArchiveError> {
    let mut catalog = archive.catalog();
    catalog.catch_up_whole(archive.store())?;
    // What the catalog does not name is removed: it has to say what the log says.
    if let Some(differs) = catalog.differs(archive.store())? {
        return Err(differs.into());
    }
    if catalog.applied()? == 0 {
        // A log that is lost as a whole looks like that of a store in which nothing was stored yet.
        let mut is_any = false;
        archive.store().list(&["packs"], &mut |_| {
            is_any = true;
            Ok(())
        })?;
        if is_any {
            return Err(ArchiveError::NoLog);
        }
    }
    let mut referred = referred_by(&catalog)?;
    drop(catalog);
    // Behind the log: a writer's mark is of the last commit when it is there.
    add_versions(archive.store(), &mut referred, but)?;
    Ok(referred)
}

/// What a catalog refers to.
pub(crate) fn referred_by(catalog: &Catalog) -> Result<Referred, ArchiveError> {
    let mut referred = Referred::default();
    add_referred(catalog, 0, &mut referred)?;
    Ok(referred)
}

/// Adds what directories of a catalog refer to that have changed since a commit.
pub(crate) fn add_referred(
    catalog: &Catalog,
    since: u64,
    referred: &mut Referred,
) -> Result<(), ArchiveError> {
    let mut last = None;
    loop {
        let next = catalog.rows_since(since, last.as_ref(), DIRECTORIES_AT_ONCE)?;
        let Some((path, _)) = next.last() else { return Ok(()) };
        last = Some(path.clone());
        for (_, rows) in next {
            for pack in rows.packs {
                let indexes = referred.pack(pack.id);
                indexes.insert(pack.generation);
                if IndexDelta::is_one(pack.index_bytes) {
                    indexes.insert(0);
                }
            }
            for object in rows.objects {
                match object.place {
                    Some(ContentPlace::Object(id)) => {
                        referred.objects.insert(id);
                    }
                    Some(ContentPlace::Pack { id, .. }) => {
                        referred.pack(id);
                    }
                    Some(ContentPlace::Parts { ids, .. }) => referred.objects.extend(ids),
                    None => {}
                }
            }
        }
    }
}

impl Referred {
    /// Something refers to a pack; to which of its indexes.
    fn pack(&mut self, id: PackId) -> &mut HashSet<u64> {
        match self.packs.entry(id) {
            Entry::Occupied(known) => {
                self.shared.insert(id);
                known.into_mut()
            }
            Entry::Vacant(new) => new.insert(HashSet::new()),
        }
    }

    /// Whether more than one directory or file refers to a pack.
    pub fn is_shared(&self, id: &PackId) -> bool {
        self.shared.contains(id)
    }

    /// Whether a commit refers to it; what is none of an archive's objects is left alone.
    pub fn has(&self, key: &StoreKey) -> bool {
        let name = key.as_str().rsplit('/').next().unwrap_or_default();
        let (id, kind) = name.split_at_checked(32).unwrap_or((name, ""));
        // Notes are for a writer that was broken off, and goes on.
        if key.as_str().starts_with(RESUME) {
            return false;
        }
        let Some(id) = id_of(id) else { return true };
        if key.as_str().starts_with("data/") {
            return !kind.is_empty() || self.objects.contains(&id);
        }
        match (kind, self.packs.get(&id)) {
            (".tar" | ".tar.zst", known) => known.is_some(),
            (kind, known) => {
                let generation = kind.strip_prefix(".idx.").and_then(|digits| digits.parse().ok());
                let Some(generation) = generation else { return true };
                known.is_some_and(|known| known.contains(&generation))
            }
        }
    }
}
