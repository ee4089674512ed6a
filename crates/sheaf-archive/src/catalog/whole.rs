//! A catalog: the sum of the log of a store.
//!
//! A command that reads holds one transaction to its end ([`Catalog::freeze`]). So a file that
//! another process moves or removes meanwhile is neither missing nor listed twice. The objects it
//! refers to stay in the store until `repair`.
use super::apply::RowChanges;
use super::sqlite::SqliteTables;
use super::tables::{FoundRow, Many, RowValue, Tables, TablesUse};
use super::{CatalogError, Commit, DirectoryChange, log, rows, snapshot};
use crate::path::ArchivePath;
use crate::store::Store;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;

const CHANGED: Many = Many {
    sqlite: "SELECT path, changed FROM directory WHERE path = ?1",
    postgres: "SELECT path, changed FROM directory WHERE path = ANY(?1::BLOB[])",
};
const COUNT_BELOW: Many = Many {
    sqlite: "SELECT ?1, count(*) FROM directory WHERE path >= ?1 AND path < ?2",
    postgres: "SELECT first, (SELECT count(*) FROM directory WHERE path >= first AND path < behind)
        FROM unnest(?1::BLOB[], ?2::BLOB[]) AS asked(first, behind)",
};

/// The directories of an archive, and their packs and objects.
#[derive(Debug)]
pub struct Catalog {
    pub(super) tables: Box<dyn Tables>,
    /// Whether the last commit of the tables is one of the log.
    pub(super) is_of_log: bool,
    /// Whether the log was seen to have nothing behind a gap.
    is_whole: bool,
    /// It says what it said at one commit, whatever comes behind that.
    is_frozen: bool,
}

impl Catalog {
    /// Opens a catalog in a file of SQLite, or makes one, which is empty until it has
    /// [caught up](Self::catch_up). No part of its path may be a link.
    ///
    /// # Errors
    /// When the file cannot be opened, or is something else.
    pub fn open(file: &Path) -> Result<Self, CatalogError> {
        Ok(Self::of(SqliteTables::open(file)?))
    }

    /// One that is in memory alone, and empty until it has [caught up](Self::catch_up).
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn in_memory() -> Result<Self, CatalogError> {
        Ok(Self::of(SqliteTables::in_memory()?))
    }

    pub(super) fn of(tables: impl Tables + 'static) -> Self {
        Self { tables: Box::new(tables), is_of_log: false, is_whole: false, is_frozen: false }
    }

    /// Where it is, for people; without passwords.
    #[must_use]
    pub fn place(&self) -> String {
        self.tables.place()
    }

    /// The last commit that is in the tables; 0 before the first.
    ///
    /// # Errors
    /// When the tables cannot be read.
    pub fn applied(&self) -> Result<u64, CatalogError> {
        Ok(self.last_applied()?.0)
    }

    /// The last commit in the tables, and its digest.
    pub(super) fn last_applied(&self) -> Result<(u64, Vec<u8>), CatalogError> {
        let mut last = (0, Vec::new());
        self.tables.each("SELECT number, digest FROM applied", &[], &mut |found| {
            last = (self.number(found, 0)?, self.bytes(found, 1)?.to_owned());
            Ok(())
        })?;
        Ok(last)
    }

    /// Takes in what others have written to the log meanwhile; of an empty catalog, all of it. The
    /// last commit that there is.
    ///
    /// # Errors
    /// When the log or the tables cannot be read, or the tables are of another log. What came before
    /// that is taken in.
    pub fn catch_up(&mut self, store: &dyn Store) -> Result<u64, CatalogError> {
        if self.is_frozen {
            return self.applied();
        }
        // Tables on a server whose connection has ended are bound once more below.
        let before = if self.tables.is_bound() { self.applied()? } else { 0 };
        let last = self.take_in(store, u64::MAX)?;
        if last == 0 || last > before {
            return self.catch_up_whole(store);
        }
        // What costs little is seen each time: one that is lost, and a gap that was found.
        if self.is_whole {
            return Ok(last);
        }
        let later = self.later()?;
        for later in [last + 2, later] {
            if later > last + 1
                && let Some(missing) = log::gap_to(store, last + 1, later)?
            {
                return Err(missing);
            }
        }
        let cut = if later > last { log::cut(store, last + 1)? } else { None };
        cut.map_or(Ok(last), Err)
    }

    /// From now on all that is read is of the commit that is the last in the tables now, whatever others
    /// change meanwhile; nothing can be written.
    ///
    /// # Errors
    /// When the tables cannot be read.
    pub fn freeze(&mut self) -> Result<(), CatalogError> {
        if !self.is_frozen && self.tables.is_bound() {
            self.tables.begin(TablesUse::Reading)?;
            self.is_frozen = true;
            // Only what is read makes a transaction begin.
            self.applied()?;
        }
        Ok(())
    }

    /// The same catalog as it is now, beside one that says what it said at a commit; nothing where there cannot
    /// be another one.
    ///
    /// # Errors
    /// When it cannot be opened, or the log cannot be read.
    pub fn now(&self, store: &dyn Store) -> Result<Option<Self>, CatalogError> {
        let Some(tables) = self.tables.again()? else { return Ok(None) };
        let mut now = Self { tables, is_of_log: false, is_whole: false, is_frozen: false };
        now.catch_up(store)?;
        Ok(Some(now))
    }

    /// The last commit of the log, and its digest.
    pub(crate) fn last(&mut self, store: &dyn Store) -> Result<(u64, [u8; 32]), CatalogError> {
        self.catch_up_whole(store)?;
        self.last_known()
    }

    /// Whether an earlier Sheaf, which does not know versions, takes in all of the log.
    pub(crate) fn is_read_by_earlier(&mut self, store: &dyn Store) -> Result<bool, CatalogError> {
        let (number, _) = self.last(store)?;
        Ok(number == 0 || log::version(store, number)? < log::LOG_VERSION)
    }

    /// Takes in commits up to this one, of tables that have taken in nothing behind it; the last one that
    /// there is, and its digest.
    pub(crate) fn last_at(
        &mut self,
        store: &dyn Store,
        number: u64,
    ) -> Result<(u64, [u8; 32]), CatalogError> {
        self.take_in(store, number)?;
        self.last_known()
    }

    /// As [`Catalog::last_at`], for who only reads: the latest snapshot that is not behind the commit is
    /// taken for what the log says.
    pub(crate) fn read_at(
        &mut self,
        store: &dyn Store,
        number: u64,
    ) -> Result<(u64, [u8; 32]), CatalogError> {
        if !self.tables.is_bound()
            && let Some(archive) = log::digest(store, 1)?
        {
            self.tables.bind(&archive)?;
        }
        if self.applied()? == 0 {
            self.take_in_snapshot(store, number)?;
        }
        self.last_at(store, number)
    }

    /// Whether the log has this commit.
    pub(crate) fn has_commit(
        store: &dyn Store,
        number: u64,
        digest: &[u8; 32],
    ) -> Result<bool, CatalogError> {
        log::has(store, number, digest)
    }

    pub(super) fn last_known(&self) -> Result<(u64, [u8; 32]), CatalogError> {
        let (number, digest) = self.last_applied()?;
        // Before the first commit there is none.
        Ok((number, digest.try_into().unwrap_or_default()))
    }

    /// From now on it stays at its commit; for tables that nobody else has.
    pub(crate) fn stay(&mut self) {
        self.is_frozen = true;
    }

    /// The first commit behind a gap of the log, where one was found, or the last one of which there is a version,
    /// where the log has lost its end; 0 where neither was.
    fn later(&self) -> Result<u64, CatalogError> {
        let mut later = 0;
        self.tables.each("SELECT later FROM applied", &[], &mut |found| {
            later = self.number(found, 0)?;
            Ok(())
        })?;
        Ok(later)
    }

    /// As [`Catalog::catch_up`]; the log is seen to have no later commit, as has to be known before one
    /// is made, or what none refers to is removed. It is listed once.
    ///
    /// # Errors
    /// As of that, and [`CatalogError::Missing`] where a later commit is there, but not the next.
    pub fn catch_up_whole(&mut self, store: &dyn Store) -> Result<u64, CatalogError> {
        loop {
            let last = self.take_in(store, u64::MAX)?;
            if self.is_whole {
                return Ok(last);
            }
            if let Some(missing) = log::gap_or_cut(store, last + 1)? {
                if let CatalogError::Missing { later, .. } | CatalogError::Cut { marked: later, .. } =
                    missing
                    && self.tables.is_bound()
                {
                    // Who comes next finds these tables as full as they get, and does not list the log.
                    let later = [RowValue::Number(as_value(later))];
                    self.run("UPDATE applied SET later = ?1", &later)?;
                }
                return Err(missing);
            }
            // What was written meanwhile is taken in, too.
            self.is_whole = true;
        }
    }

    /// The log may be another one than it was: that it has what this knows is looked at again.
    pub(crate) fn check_again(&mut self) {
        (self.is_of_log, self.is_whole) = (false, false);
    }

    /// That nobody was broken off who was writing the log again.
    ///
    /// # Errors
    /// When somebody was, or that cannot be seen.
    pub fn check_restored(store: &dyn Store) -> Result<(), CatalogError> {
        if super::is_begun(store)? { Err(CatalogError::Restoring) } else { Ok(()) }
    }

    /// That the log has not lost its end behind the commit that is read, as far as versions and snapshots show.
    ///
    /// # Errors
    /// When it has, or that cannot be seen.
    pub fn check_cut(&self, store: &dyn Store) -> Result<(), CatalogError> {
        log::cut(store, self.applied()? + 1)?.map_or(Ok(()), Err)
    }

    /// That the log has no gap behind the commit that is read, and has not lost its end there.
    ///
    /// # Errors
    /// When it has, or that cannot be seen.
    pub fn check_end(&self, store: &dyn Store) -> Result<(), CatalogError> {
        log::gap_or_cut(store, self.applied()? + 1)?.map_or(Ok(()), Err)
    }

    /// Takes in commits up to this one, as far as there are.
    pub(super) fn take_in(&mut self, store: &dyn Store, end: u64) -> Result<u64, CatalogError> {
        if !self.tables.is_bound() {
            let Some(archive) = log::digest(store, 1)? else { return Ok(0) };
            self.tables.bind(&archive)?;
        }
        let (mut last, mut digest) = self.last_applied()?;
        // What the log says up to a commit is made of the log alone.
        if last == 0 && end == u64::MAX && self.take_in_snapshot(store, u64::MAX)? > 0 {
            (last, digest) = self.last_applied()?;
        }
        // Once is enough, as each later commit names the digest of the one before it.
        if !self.is_of_log && last > 0 && !log::has(store, last, &digest)? {
            return Err(self.not_of_log(store, last)?);
        }
        self.is_of_log = true;
        while last < end
            && let Some(logged) = log::read(store, last + 1)?
        {
            if !log::continues(&digest, &logged) {
                return Err(CatalogError::Unconnected { number: last + 1 });
            }
            self.apply(last + 1, &logged.commit, &logged.digest)?;
            // Another process with the same tables may be further.
            (last, digest) = self.last_applied()?;
        }
        Ok(last)
    }

    /// Makes changes, all of them or none: in the log of the store, then here. Its number there.
    ///
    /// # Errors
    /// [`CatalogError::Changed`] when another writer was first in one of the directories; when it
    /// cannot be written. After an error of the store, and after one of the tables, it may have been
    /// written all the same, as where a connection ends before the answer comes:
    /// [`Catalog::catch_up`] shows it. Where the log is damaged or has a gap, nothing is written.
    pub fn commit(&mut self, store: &dyn Store, commit: &Commit) -> Result<u64, CatalogError> {
        loop {
            let next = self.catch_up_whole(store)? + 1;
            if let Some(path) = self.refused(commit)? {
                return Err(CatalogError::Changed { path });
            }
            let (last, before) = self.last_applied()?;
            // Another process with the same tables has taken in more since then.
            if last + 1 != next {
                continue;
            }
            // Only one of two writers creates the object of this number. The other one reads it,
            // and compares again: the same directories may have changed.
            if let Some(digest) = log::append(store, next, &before, commit)? {
                self.apply(next, commit, &digest)?;
                return Ok(next);
            }
        }
    }

    /// Why the last commit of the tables is none of the log.
    fn not_of_log(&self, store: &dyn Store, last: u64) -> Result<CatalogError, CatalogError> {
        let numbers = log::numbers(store)?;
        if numbers.contains(&last) {
            return Ok(self.other_log(last));
        }
        if let Some(&later) = numbers.iter().find(|number| **number > last) {
            return Ok(CatalogError::Missing { number: last, later });
        }
        self.lost(store, numbers.last().map_or(1, |number| number + 1))
    }

    pub(super) fn other_log(&self, number: u64) -> CatalogError {
        let (place, remedy) = (self.tables.place(), self.tables.remedy());
        CatalogError::OtherLog { place, number, remedy }
    }

    /// Has the tables take in a commit of the log; the last one in them then.
    pub(super) fn apply(
        &mut self,
        number: u64,
        commit: &Commit,
        digest: &[u8; 32],
    ) -> Result<u64, CatalogError> {
        if number == 1 && !self.tables.is_bound() {
            self.tables.bind(digest)?;
        }
        self.as_one(TablesUse::Writing, || {
            // Another process with the same tables may have been first.
            let last = self.applied()?;
            if last + 1 != number {
                return Ok(last);
            }
            RowChanges::apply(self, number, commit)?;
            let values = [RowValue::Number(as_value(number)), RowValue::Bytes(digest)];
            self.run("UPDATE applied SET number = ?1, digest = ?2", &values)?;
            Ok(number)
        })
    }

    /// Compares the tables with what the log adds up to; the first difference.
    ///
    /// # Errors
    /// When the log or the tables cannot be read.
    pub fn differs(&mut self, store: &dyn Store) -> Result<Option<CatalogError>, CatalogError> {
        let mut made = Self::of(SqliteTables::in_memory()?);
        let so_far = self.catch_up(store)?;
        made.take_in(store, so_far)?;
        // Other processes with the same tables may go on: these are to be of one commit.
        self.as_one(TablesUse::Reading, || self.differs_now(made, store))
    }

    fn differs_now(
        &self,
        mut made: Self,
        store: &dyn Store,
    ) -> Result<Option<CatalogError>, CatalogError> {
        let said = self.applied()?;
        let is = made.take_in(store, said)?;
        if is < said {
            // It was there when this catalog was opened.
            let gap = log::gap(store, is + 1)?;
            return Err(gap.map_or_else(|| self.not_of_log(store, said), Ok)?);
        }
        let mut last = None;
        loop {
            let directories_max = 256;
            let said =
                self.rows_below_in_one(&ArchivePath::ROOT, last.as_ref(), directories_max)?;
            let expected = made.rows_below(&ArchivePath::ROOT, last.as_ref(), directories_max)?;
            let mut both = said.iter().zip(&expected);
            let mut differs = both.find(|(one, other)| one != other).map(|(one, _)| one.0.clone());
            if said.len() != expected.len() && differs.is_none() {
                let longer = if said.len() > expected.len() { &said } else { &expected };
                differs = longer.get(said.len().min(expected.len())).map(|(path, _)| path.clone());
            }
            if let Some(path) = differs {
                let (place, remedy) = (self.tables.place(), self.tables.remedy());
                return Ok(Some(CatalogError::Differs { place, path, remedy }));
            }
            let Some((path, _)) = expected.last() else { return Ok(None) };
            last = Some(path.clone());
        }
    }

    /// Reads the whole log, and tells what is wrong with it.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn log_faults(
        store: &dyn Store,
        told: &mut dyn FnMut(CatalogError),
    ) -> Result<(), CatalogError> {
        log::faults(store, told)
    }

    /// Reads all snapshots of the log, and tells what is wrong with them.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn snapshot_faults(
        store: &dyn Store,
        told: &mut dyn FnMut(CatalogError),
    ) -> Result<(), CatalogError> {
        snapshot::faults(store, told)
    }

    /// Removes snapshots of the log that are damaged; how many they are.
    ///
    /// # Errors
    /// When the store cannot be read or written.
    pub fn remove_damaged_snapshots(store: &dyn Store, dry_run: bool) -> Result<u64, CatalogError> {
        snapshot::remove(store, None, dry_run)
    }

    /// A directory by which a commit cannot be made: somebody has changed it since its writer has looked
    /// at it, has put another directory in it that was to go, or has removed the one that it was to be
    /// in. Each directory but the root is in one.
    fn refused(&self, commit: &Commit) -> Result<Option<ArchivePath>, CatalogError> {
        if let Some(path) = rows::overlapping(commit) {
            return Ok(Some(path));
        }
        let is_new = |change: &&DirectoryChange| {
            (change.directory.is_some() || change.tree.is_some()) && change.since == 0
        };
        let made: HashSet<_> = commit.changes.iter().filter(is_new).map(|of| &of.path).collect();
        let removed: BTreeSet<_> =
            commit.changes.iter().filter(|of| of.removed).map(|of| &of.path).collect();
        let changed = self.changed_of(commit)?;
        let changed = |path: &ArchivePath| changed.get(path.key()).copied().unwrap_or(0);
        let counted = self.count_below(&counted_of(commit))?;
        for change in &commit.changes {
            let count = counted.get(change.path.key()).copied();
            if changed(&change.path) != change.since {
                return Ok(Some(change.path.clone()));
            }
            // What a tree takes the place of is empty.
            if let Some(tree) = &change.tree
                && (changed(tree.from()) == 0 || count.is_some_and(|count| count > 1))
            {
                return Ok(Some(tree.from().clone()));
            }
            if change.removed {
                // What is below one that goes is there, and goes, too: then so it is further below.
                let going = removed.range::<&ArchivePath, _>(&change.path..);
                let going = || going.take_while(|path| path.is_within(&change.path)).count() as u64;
                if changed(&change.path) == 0 || count.is_some_and(|count| count != going()) {
                    return Ok(Some(change.path.clone()));
                }
            } else if let Some((above, _)) = change.path.split()
                && is_new(&change)
                && !made.contains(&above)
                && (removed.contains(&above) || changed(&above) == 0)
            {
                return Ok(Some(change.path.clone()));
            }
        }
        Ok(None)
    }

    /// The commits that have changed the directories last that a commit names, and those that they are
    /// in, by their keys; none of what is not there.
    fn changed_of(&self, commit: &Commit) -> Result<HashMap<Vec<u8>, u64>, CatalogError> {
        let mut paths = BTreeSet::new();
        for change in &commit.changes {
            paths.insert(change.path.clone());
            paths.extend(change.path.split().map(|(above, _)| above));
            paths.extend(change.tree.as_ref().map(|tree| tree.from().clone()));
        }
        let asked: Vec<_> = paths.iter().map(|path| [RowValue::Bytes(path.key())]).collect();
        let asked: Vec<&[RowValue<'_>]> = asked.iter().map(|values| &values[..]).collect();
        let mut changed = HashMap::new();
        self.tables.each_of_many(&CHANGED, &asked, &mut |found| {
            changed.insert(self.bytes(found, 0)?.to_owned(), self.number(found, 1)?);
            Ok(())
        })?;
        Ok(changed)
    }

    /// How many directories there are from each of these on, itself among them, by their keys.
    fn count_below(
        &self,
        paths: &BTreeSet<&ArchivePath>,
    ) -> Result<HashMap<Vec<u8>, u64>, CatalogError> {
        let mut counted = HashMap::new();
        let ends: Vec<_> = paths.iter().map(|path| (path.key(), path.key_behind())).collect();
        let mut asked = Vec::new();
        for (first, behind) in &ends {
            match behind {
                Some(behind) => asked.push([RowValue::Bytes(first), RowValue::Bytes(behind)]),
                None => self.tables.each("SELECT count(*) FROM directory", &[], &mut |found| {
                    counted.insert(Vec::new(), self.number(found, 0)?);
                    Ok(())
                })?,
            }
        }
        let asked: Vec<&[RowValue<'_>]> = asked.iter().map(|values| &values[..]).collect();
        self.tables.each_of_many(&COUNT_BELOW, &asked, &mut |found| {
            counted.insert(self.bytes(found, 0)?.to_owned(), self.number(found, 1)?);
            Ok(())
        })?;
        Ok(counted)
    }

    /// Does something as one: all of it, or nothing.
    pub(super) fn as_one<T>(
        &self,
        to: TablesUse,
        work: impl FnOnce() -> Result<T, CatalogError>,
    ) -> Result<T, CatalogError> {
        // A frozen catalog is within a transaction already.
        if self.is_frozen && to == TablesUse::Reading {
            return work();
        }
        self.tables.begin(to)?;
        let done = work();
        let ended = self.tables.end(done.is_ok());
        // That it is taken back follows from the first error, and is so without a connection, too.
        let done = done?;
        ended.map(|()| done)
    }

    /// Runs a statement that finds nothing.
    pub(super) fn run(&self, sql: &str, values: &[RowValue<'_>]) -> Result<(), CatalogError> {
        self.tables.each(sql, values, &mut |_| Ok(()))
    }

    /// Runs a statement that finds nothing for many rows of values.
    pub(super) fn run_many(
        &self,
        many: &Many,
        rows: &[&[RowValue<'_>]],
    ) -> Result<(), CatalogError> {
        self.tables.each_of_many(many, rows, &mut |_| Ok(()))
    }

    pub(super) fn bytes<'a>(
        &self,
        found: &'a FoundRow<'_>,
        column: usize,
    ) -> Result<&'a [u8], CatalogError> {
        found.bytes(column).ok_or_else(|| self.unreadable())
    }

    pub(super) fn number(&self, found: &FoundRow<'_>, column: usize) -> Result<u64, CatalogError> {
        found.number(column).map(i64::cast_unsigned).ok_or_else(|| self.unreadable())
    }

    pub(super) fn unreadable(&self) -> CatalogError {
        let why =
            format!("a row of it cannot be read: {}, and it is made again", self.tables.remedy());
        CatalogError::Table { place: self.tables.place(), why }
    }
}

/// The directories below which nothing may be but what a commit says: those that go of which none above
/// goes, and the places of trees.
fn counted_of(commit: &Commit) -> BTreeSet<&ArchivePath> {
    let mut counted: BTreeSet<&ArchivePath> =
        commit.changes.iter().filter(|of| of.tree.is_some()).map(|of| &of.path).collect();
    let removed: BTreeSet<_> =
        commit.changes.iter().filter(|of| of.removed).map(|of| &of.path).collect();
    let mut top: Option<&ArchivePath> = None;
    for path in removed {
        if top.is_none_or(|top| !path.is_within(top)) {
            counted.insert(path);
            top = Some(path);
        }
    }
    counted
}

/// A number of a commit, as tables have it.
pub(super) fn as_value(number: u64) -> i64 {
    i64::try_from(number).expect("a log has fewer commits than 2⁶³")
}
