//! Writing a log again of which the end is lost, of a catalog that has taken it in.
use super::sqlite::SqliteTables;
use super::tables::TablesUse;
use super::{
    ArchivedDirectory, Catalog, CatalogError, Commit, DirectoryChange, DirectoryRows, log,
};
use crate::catalog::ContentPlace;
use crate::path::ArchivePath;
use crate::store::{Store, StoreKey};
use crate::version::remove_marks;
use sheaf_core::Errno;
use std::collections::{HashMap, HashSet};

/// Directories that are looked at, and of which a commit says something, at once.
const DIRECTORIES_AT_ONCE: usize = 512;

/// What was written of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoredLog {
    /// The first commit that was lost.
    pub from: u64,
    /// The last one of the catalog.
    pub known: u64,
    /// Commits that were written, or would be.
    pub commits: u64,
    /// Directories of which they say something.
    pub directories: u64,
}

/// What the catalog has of an object, in the store.
#[derive(Default)]
struct Presence {
    found: u64,
    missing: u64,
}

impl Catalog {
    /// Writes what this catalog knows, and the log has lost at its end, to the log again, as other commits; then
    /// the catalog is made again of it. Nobody may write to the archive meanwhile.
    ///
    /// # Errors
    /// When nothing is lost at its end, or something else is wrong with it, the catalog is of another
    /// archive, or the store cannot be read or written. What was written before stays.
    pub fn restore_log(
        &mut self,
        store: &dyn Store,
        dry_run: bool,
    ) -> Result<RestoredLog, CatalogError> {
        let (known, digest) = self.last_applied()?;
        if known == 0 || log::has(store, known, &digest)? {
            return Err(CatalogError::InOrder { number: known + 1, fault: None });
        }
        let mut made = Self::of(SqliteTables::in_memory()?);
        let last = made.take_in(store, u64::MAX)?;
        if let Some(missing) = log::gap(store, last + 1)? {
            return Err(missing);
        }
        let mut done = RestoredLog { from: last + 1, known, ..RestoredLog::default() };
        // It is looked through before anything is written: it may be of another archive.
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
            let (place, number) = (self.tables.place(), last + 1);
            return Err(CatalogError::Gone { place, number, last: known });
        }
        if dry_run {
            return Ok(done);
        }
        // What they were of is written again as other commits.
        remove_marks(store, last + 1)?;
        behind = None;
        while let Some(mut piece) = self.changes_to(&made, behind.take())? {
            piece.changes.retain(|change| !change.removed);
            if !piece.changes.is_empty() {
                made.append(store, &Commit { changes: piece.changes })?;
            }
            behind = Some(piece.last);
        }
        // What goes goes at once, when all else is there.
        if !removed.is_empty() {
            made.append(store, &Commit { changes: removed })?;
        }
        self.make_again(store)?;
        Ok(done)
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

    /// Writes a commit behind the last one of tables that are as far as the log is.
    fn append(&mut self, store: &dyn Store, commit: &Commit) -> Result<(), CatalogError> {
        let (last, before) = self.last_applied()?;
        let path = commit.changes.first().map(|change| change.path.clone()).unwrap_or_default();
        let digest = log::append(store, last + 1, &before, commit)?;
        // Somebody writes meanwhile.
        let digest = digest.ok_or(CatalogError::Changed { path })?;
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
