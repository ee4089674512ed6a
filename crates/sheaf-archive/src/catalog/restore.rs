//! Writing a log again of which something is lost, of a catalog that has taken it in.
use super::log::LoggedCommit;
use super::plan::LogPlan;
use super::sqlite::SqliteTables;
use super::tables::TablesUse;
use super::{
    ArchivedDirectory, Catalog, CatalogError, Checked as _, Commit, DirectoryChange, DirectoryRows,
    log,
};
use crate::archive::ArchiveError;
use crate::catalog::ContentPlace;
use crate::path::ArchivePath;
use crate::store::{Store, StoreError, StoreKey};
use crate::version::follow_log;
use sheaf_core::Errno;
use std::collections::{HashMap, HashSet};

/// Directories that are looked at, and of which a commit says something, at once.
const DIRECTORIES_AT_ONCE: usize = 512;

/// What was written of a log.
#[derive(Debug, Default)]
pub struct RestoredLog {
    /// The first commit that was lost or is damaged.
    pub from: u64,
    /// The last one of the catalog.
    pub known: u64,
    /// Commits that were written, or would be.
    pub commits: u64,
    /// Directories of which they say something.
    pub directories: u64,
    /// Commits behind the first that were given up for them: they are kept in the store (`dropped`).
    pub dropped: u64,
    /// Versions that are forgotten, by their names or identities: the log has lost what they were of.
    pub versions: Vec<String>,
    /// What is wrong with the log all the same: a version is of a commit that the catalog does not know.
    pub fault: Option<CatalogError>,
}

/// What the catalog has of an object, in the store.
#[derive(Default)]
struct Presence {
    found: u64,
    missing: u64,
}

impl Catalog {
    /// Writes what this catalog knows, and the log has lost, to the log again, as other commits; then the catalog is
    /// made again of it. Where a commit is damaged or lost before others, these are written again with it.
    /// Nobody may write to the archive meanwhile. What is to be done is in the store first: where it is broken off, it is
    /// done by the next call of this, whatever that catalog knows.
    ///
    /// # Errors
    /// When nothing is lost that the catalog knows, or what is lost is not known, or later commits cannot be read
    /// either, the catalog is of another archive, or the store cannot be read or written. What was written before
    /// stays.
    pub fn restore_log(
        &mut self,
        store: &dyn Store,
        dry_run: bool,
    ) -> Result<RestoredLog, CatalogError> {
        if let Some(plan) = LogPlan::read(store)? {
            // Somebody was broken off. What this catalog knows does not matter any more.
            return self.end_restoring(store, &plan, dry_run);
        }
        let (known, digest) = self.last_known()?;
        let numbers = log::numbers(store)?;
        let from = self.first_lost(store, &numbers)?;
        let later = self.later_commits(store, &numbers)?;
        let (mut made, mut done, removed) = self.lost_from(store, from)?;
        let dropped = numbers.into_iter().filter(|number| *number >= from).count() as u64;
        let mut kept = vec![(known, digest)];
        kept.extend((known + 1..).zip(later.iter().map(|logged| logged.digest)));
        let last = known + later.len() as u64;
        if dry_run {
            let written = done.commits.max((known + 1).saturating_sub(from));
            (done.dropped, done.commits) = (dropped, written + later.len() as u64);
            done.versions = follow_log(store, (from, last), &kept, None).map_err(of_store)?.1;
            done.fault = log::cut(store, last + 1)?;
            return Ok(done);
        }
        let mut plan = LogPlan::begin(store, &made, from)?;
        let mut behind = None;
        while let Some(mut piece) = self.changes_to(&made, behind.take())? {
            piece.changes.retain(|change| !change.removed);
            if !piece.changes.is_empty() {
                made.plan(store, &mut plan, &Commit { changes: piece.changes })?;
            }
            behind = Some(piece.last);
        }
        // What goes goes at once, when all else is there.
        if !removed.is_empty() {
            made.plan(store, &mut plan, &Commit { changes: removed })?;
        }
        // A log that is shorter than it was looks to a catalog that knows the old one as if it had lost its end, which
        // that would write: over what came later.
        while made.applied()? < known {
            made.plan(store, &mut plan, &Commit::default())?;
        }
        let mut moved = vec![made.last_known()?];
        for logged in &later {
            made.plan(store, &mut plan, &logged.commit)?;
            moved.push(made.last_known()?);
        }
        let marks = follow_log(store, (from, last), &kept, Some(&moved)).map_err(of_store)?;
        (plan.marks, plan.versions) = marks;
        (plan.known, plan.directories, plan.dropped) = (known, done.directories, dropped);
        plan.publish(store)?;
        self.end_restoring(store, &plan, false)
    }

    /// Does what is left of a plan, and makes the catalog again of the log.
    fn end_restoring(
        &mut self,
        store: &dyn Store,
        plan: &LogPlan,
        dry_run: bool,
    ) -> Result<RestoredLog, CatalogError> {
        let mut done = RestoredLog {
            from: plan.from,
            known: plan.known,
            commits: plan.commits.len() as u64,
            directories: plan.directories,
            dropped: plan.dropped,
            versions: plan.versions.clone(),
            fault: None,
        };
        if !dry_run {
            plan.carry_out(store)?;
            match self.make_again(store) {
                Err(error) if error.is_of_log() => done.fault = Some(error),
                made => made?,
            }
        }
        Ok(done)
    }

    /// The commits of the log that this catalog has not taken in. They go on from what it knows.
    fn later_commits(
        &self,
        store: &dyn Store,
        numbers: &[u64],
    ) -> Result<Vec<LoggedCommit>, CatalogError> {
        let (known, mut digest) = self.last_known()?;
        let mut later = Vec::new();
        for &number in numbers.iter().filter(|number| **number > known) {
            let next = known + 1 + later.len() as u64;
            let logged = match log::read(store, next)? {
                Some(logged) if number == next => logged,
                _ => return Err(CatalogError::Missing { number: next, later: number }),
            };
            if !log::continues(&digest, &logged) {
                return Err(if next == known + 1 {
                    self.other_log(known)
                } else {
                    CatalogError::Unconnected { number }
                });
            }
            digest = logged.digest;
            later.push(logged);
        }
        Ok(later)
    }

    /// The first commit that the log has lost, where this catalog knows it; these are there.
    fn first_lost(&self, store: &dyn Store, numbers: &[u64]) -> Result<u64, CatalogError> {
        let (known, digest) = self.last_known()?;
        let last = numbers.last().copied().unwrap_or(0);
        let nothing = CatalogError::InOrder { number: known + 1, fault: None };
        if known == 0 {
            return Err(nothing);
        }
        let has_known = match log::has(store, known, &digest) {
            Ok(false) if numbers.contains(&known) => return Err(self.other_log(known)),
            Err(error) if error.is_of_log() => false,
            has => has?,
        };
        let mut first = None;
        log::faults(store, &mut |fault| {
            first.get_or_insert(fault);
        })?;
        match first {
            None if has_known => Err(nothing),
            None => Ok(last + 1),
            Some(CatalogError::Cut { number, .. }) if !has_known && number <= known => Ok(number),
            Some(CatalogError::Damaged { number, .. } | CatalogError::Missing { number, .. })
                if number <= known =>
            {
                Ok(number)
            }
            Some(fault) => Err(fault),
        }
    }

    /// What the log says up to a commit, what has to be written from there on, and directories that are removed:
    /// it is looked through before anything is written, as it may be of another archive, or of a later state.
    fn lost_from(
        &self,
        store: &dyn Store,
        from: u64,
    ) -> Result<(Self, RestoredLog, Vec<DirectoryChange>), CatalogError> {
        let known = self.applied()?;
        let mut made = Self::of(SqliteTables::in_memory()?);
        if from > 1 {
            made.take_in(store, from - 1)?;
        }
        let mut done = RestoredLog { from, known, ..RestoredLog::default() };
        let mut present = Presence::default();
        let (mut behind, mut removed, mut is_of_log) = (None, Vec::new(), false);
        while let Some(piece) = self.changes_to(&made, behind.take())? {
            for change in &piece.changes {
                present.look(store, change)?;
            }
            is_of_log |= piece.has_same;
            done.directories += piece.changes.len() as u64;
            done.commits += u64::from(piece.changes.iter().any(|change| !change.removed));
            removed.extend(piece.changes.into_iter().filter(|change| change.removed));
            behind = Some(piece.last);
        }
        done.commits += u64::from(!removed.is_empty());
        if present.found == 0 && present.missing > 0 {
            if !is_of_log {
                return Err(self.other_log(known));
            }
            let place = self.tables.place();
            return Err(CatalogError::Gone { place, number: from, last: known });
        }
        Ok((made, done, removed))
    }

    /// Why the last commit of the tables is not there: the log has lost its end from this one on, or the store is
    /// an earlier state of itself.
    pub(super) fn lost(&self, store: &dyn Store, from: u64) -> Result<CatalogError, CatalogError> {
        let (place, remedy) = (self.tables.place(), self.tables.remedy());
        let last = self.applied()?;
        Ok(match self.lost_from(store, from) {
            Err(gone @ CatalogError::Gone { .. }) => gone,
            _ => CatalogError::Lost { place, number: from, last, remedy },
        })
    }

    /// Makes the tables again of the log, whatever they say.
    ///
    /// # Errors
    /// When the log cannot be read, or the tables cannot be written.
    pub(crate) fn make_again(&mut self, store: &dyn Store) -> Result<(), CatalogError> {
        self.as_one(TablesUse::Writing, || {
            for table in ["directory", "pack", "object"] {
                self.run(&format!("DELETE FROM {table}"), &[])?;
            }
            self.run("UPDATE applied SET number = 0, later = 0", &[])
        })?;
        self.is_of_log = false;
        self.catch_up_whole(store).map(drop)
    }

    /// Has a commit be planned behind the last one of these tables, which take it in.
    fn plan(
        &mut self,
        store: &dyn Store,
        plan: &mut LogPlan,
        commit: &Commit,
    ) -> Result<(), CatalogError> {
        let (last, before) = self.last_applied()?;
        if !commit.is_valid() {
            return Err(CatalogError::Invalid);
        }
        let bytes = log::encoded(last + 1, &before, commit);
        let digest = *bytes.last_chunk().expect("a commit ends with its digest");
        plan.push(store, &bytes, digest)?;
        self.apply(last + 1, commit, &digest).map(drop)
    }

    /// What has to be changed in other tables behind a path, so that they say what these do: some of it. Nothing
    /// where there are no more directories.
    fn changes_to(
        &self,
        made: &Self,
        behind: Option<ArchivePath>,
    ) -> Result<Option<ChangedPiece>, CatalogError> {
        let (mut ours, mut theirs) = (Walked::new(self, behind.clone()), Walked::new(made, behind));
        let (mut changes, mut last, mut has_same) = (Vec::new(), None, false);
        while changes.len() < DIRECTORIES_AT_ONCE {
            let (one, other) = (ours.next()?, theirs.next()?);
            let (path, is, before) = match (one, other) {
                (None, None) => break,
                (Some((path, rows)), Some((other, before))) if path == other => {
                    (path, Some(rows), before)
                }
                (Some((path, rows)), other)
                    if other.as_ref().is_none_or(|(other, _)| path < *other) =>
                {
                    theirs.next = other;
                    (path, Some(rows), DirectoryRows::default())
                }
                (one, Some((path, before))) => {
                    ours.next = one;
                    (path, None, before)
                }
                (Some(_), None) => unreachable!("what is not there is behind all"),
            };
            has_same |= is.as_ref().is_some_and(|rows| has_same_content(rows, &before));
            last = Some(path.clone());
            changes.extend(match is {
                Some(rows) => change_of(path, &before, rows),
                None => Some(DirectoryChange {
                    path,
                    since: before.changed,
                    removed: true,
                    ..DirectoryChange::default()
                }),
            });
        }
        Ok(last.map(|last| ChangedPiece { changes, last, has_same }))
    }
}

/// What is done to marks is done in the store.
fn of_store(error: ArchiveError) -> CatalogError {
    match error {
        ArchiveError::Catalog(error) => error,
        ArchiveError::Store(error) => error.into(),
        error => StoreError {
            place: "versions".to_owned(),
            doing: "cannot be moved",
            errno: error.errno(),
        }
        .into(),
    }
}

/// Some of what has to be changed, and the last directory that was looked at for it.
struct ChangedPiece {
    changes: Vec<DirectoryChange>,
    last: ArchivePath,
    /// Both tables know some pack or object, which no two archives do.
    has_same: bool,
}

impl Presence {
    /// Looks whether the objects are there that a change refers to.
    fn look(&mut self, store: &dyn Store, change: &DirectoryChange) -> Result<(), CatalogError> {
        let of_packs = change.packs.iter().map(|pack| pack.key());
        let places = change.objects.iter().filter_map(|object| object.place.as_ref());
        let of_objects = places.flat_map(ContentPlace::keys);
        let keys: Vec<StoreKey> = of_packs.chain(of_objects).collect();
        for key in keys {
            match store.size(&key) {
                Ok(_) => self.found += 1,
                Err(error) if error.errno == Errno::NOENT => self.missing += 1,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// The directories of a catalog, in the order of their paths.
struct Walked<'a> {
    of: &'a Catalog,
    last: Option<ArchivePath>,
    waiting: std::vec::IntoIter<(ArchivePath, DirectoryRows)>,
    /// One that was taken and given back.
    next: Option<(ArchivePath, DirectoryRows)>,
}

impl<'a> Walked<'a> {
    fn new(of: &'a Catalog, last: Option<ArchivePath>) -> Self {
        Self { of, last, waiting: Vec::new().into_iter(), next: None }
    }

    fn next(&mut self) -> Result<Option<(ArchivePath, DirectoryRows)>, CatalogError> {
        if let Some(next) = self.next.take() {
            return Ok(Some(next));
        }
        if self.waiting.len() == 0 {
            let root = ArchivePath::ROOT;
            let more = self.of.rows_below(&root, self.last.as_ref(), DIRECTORIES_AT_ONCE)?;
            self.last = more.last().map(|(path, _)| path.clone()).or(self.last.take());
            self.waiting = more.into_iter();
        }
        Ok(self.waiting.next())
    }
}

/// Whether two directories have a pack or an object in common.
fn has_same_content(one: &DirectoryRows, other: &DirectoryRows) -> bool {
    let packs: HashSet<_> = other.packs.iter().map(|pack| pack.id).collect();
    let places = other.objects.iter().filter_map(|object| object.place.as_ref());
    let keys: HashSet<StoreKey> = places.flat_map(ContentPlace::keys).collect();
    let mut places = one.objects.iter().filter_map(|object| object.place.as_ref());
    one.packs.iter().any(|pack| packs.contains(&pack.id))
        || places.any(|place| place.keys().iter().any(|key| keys.contains(key)))
}

/// What has to become of a directory, if anything.
fn change_of(
    path: ArchivePath,
    before: &DirectoryRows,
    is: DirectoryRows,
) -> Option<DirectoryChange> {
    let packs: HashMap<_, _> = before.packs.iter().map(|pack| (pack.id, pack)).collect();
    let objects: HashMap<&[u8], _> =
        before.objects.iter().map(|object| (&*object.attributes.name, object)).collect();
    let has_pack = |id| is.packs.iter().any(|pack| pack.id == id);
    let has_object = |name: &[u8]| is.objects.iter().any(|object| *object.attributes.name == *name);
    let is_another = |directory: &ArchivedDirectory| before.directory.as_ref() != Some(directory);
    let change = DirectoryChange {
        since: before.changed,
        packs_removed: before
            .packs
            .iter()
            .map(|pack| pack.id)
            .filter(|id| !has_pack(*id))
            .collect(),
        objects_removed: before
            .objects
            .iter()
            .map(|object| object.attributes.name.clone())
            .filter(|name| !has_object(name))
            .collect(),
        directory: is.directory.filter(is_another),
        packs: is.packs.into_iter().filter(|pack| packs.get(&pack.id) != Some(&pack)).collect(),
        objects: is
            .objects
            .into_iter()
            .filter(|object| objects.get(&*object.attributes.name) != Some(&object))
            .collect(),
        path,
        ..DirectoryChange::default()
    };
    let is_nothing = change.directory.is_none()
        && change.packs_removed.is_empty()
        && change.objects_removed.is_empty()
        && change.packs.is_empty()
        && change.objects.is_empty();
    (!is_nothing).then_some(change)
}
