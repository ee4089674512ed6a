//! A catalog in a file of SQLite.
use super::{
    ArchivedDirectory, ArchivedObject, ArchivedPack, CatalogError, Commit, DirectoryChange,
    DirectoryRows, TreeSource, log, rows,
};
use crate::{ArchivePath, Store};
use rusqlite::{Connection, OpenFlags, OptionalExtension, ToSql, Transaction, params};
use std::collections::{BTreeSet, HashSet};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long one waits for another who writes to the same file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(60);
/// Counts up when the tables change; a file of another version is made anew of the log.
const TABLES_VERSION: i64 = 1;

const TABLES: &str = "
CREATE TABLE applied (number INTEGER NOT NULL);
INSERT INTO applied VALUES (0);
CREATE TABLE directory (path BLOB PRIMARY KEY, changed INTEGER NOT NULL, row BLOB NOT NULL)
    WITHOUT ROWID;
CREATE TABLE pack (path BLOB, id BLOB, row BLOB NOT NULL, PRIMARY KEY (path, id)) WITHOUT ROWID;
CREATE TABLE object (path BLOB, name BLOB, row BLOB NOT NULL, PRIMARY KEY (path, name))
    WITHOUT ROWID;
";

/// The directories of an archive, and their packs and objects.
#[derive(Debug)]
pub struct Catalog {
    file: PathBuf,
    tables: Connection,
}

impl Catalog {
    /// Opens a catalog, or makes one, which is empty until it has [caught up](Self::catch_up). No part
    /// of its path may be a link.
    ///
    /// # Errors
    /// When the file cannot be opened, or is something else.
    pub fn open(file: &Path) -> Result<Self, CatalogError> {
        let failed = |error| failed(file, &error);
        // Names are for whoever may read the store; the files beside this one get its mode.
        let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
        if let Err(error) = made
            && error.kind() != std::io::ErrorKind::AlreadyExists
        {
            let (place, why) = (file.display().to_string(), error.to_string());
            return Err(CatalogError::Table { place, why });
        }
        // Links are not followed: who may write to the directory says which file is opened.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let tables = Connection::open_with_flags(file, flags).map_err(failed)?;
        Self::of(file, tables)
    }

    /// Has the tables made, if they are not there.
    fn of(file: &Path, mut tables: Connection) -> Result<Self, CatalogError> {
        let failed = |error| failed(file, &error);
        tables.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
        // What a power cut takes from the file is in the log: it need not be synced for each commit.
        tables
            .execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;")
            .map_err(failed)?;
        let making = tables
            .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
            .map_err(failed)?;
        let version: i64 =
            making.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(failed)?;
        match version {
            TABLES_VERSION => {}
            0 => {
                making.execute_batch(TABLES).map_err(failed)?;
                making.pragma_update(None, "user_version", TABLES_VERSION).map_err(failed)?;
            }
            _ => {
                let place = file.display().to_string();
                let why = format!(
                    "its tables have version {version}, and this Sheaf knows {TABLES_VERSION}: \
                     remove the file, and it is made again"
                );
                return Err(CatalogError::Table { place, why });
            }
        }
        making.commit().map_err(failed)?;
        Ok(Self { file: file.to_owned(), tables })
    }

    /// The last commit that is in the tables; 0 before the first.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn applied(&self) -> Result<u64, CatalogError> {
        applied(&self.tables).map_err(|error| failed(&self.file, &error))
    }

    /// Takes in what others have written to the log meanwhile; of an empty catalog, all of it.
    ///
    /// # Errors
    /// When the log or the file cannot be read. What came before that is taken in.
    pub fn catch_up(&mut self, store: &dyn Store) -> Result<u64, CatalogError> {
        loop {
            let next = self.applied()? + 1;
            let Some(commit) = log::read(store, next)? else { return Ok(next - 1) };
            self.apply(next, &commit)?;
        }
    }

    /// Makes changes, all of them or none: in the log of the store, then here. Its number there.
    ///
    /// # Errors
    /// [`CatalogError::Changed`] when another writer was first in one of the directories; when it
    /// cannot be written. After an error of the store it may have been written all the same, as where
    /// a connection ends before the answer comes: [`Catalog::catch_up`] shows it.
    pub fn commit(&mut self, store: &dyn Store, commit: &Commit) -> Result<u64, CatalogError> {
        loop {
            let next = self.catch_up(store)? + 1;
            if let Some(path) = self.refused(commit)? {
                return Err(CatalogError::Changed { path });
            }
            if log::append(store, next, commit)? {
                self.apply(next, commit)?;
                return Ok(next);
            }
        }
    }

    /// Compares the tables with what the log adds up to; the first difference.
    ///
    /// # Errors
    /// When the log or the file cannot be read.
    pub fn differs(&mut self, store: &dyn Store) -> Result<Option<CatalogError>, CatalogError> {
        let failed = |error| failed(Path::new("in memory"), &error);
        let memory = Connection::open_in_memory().map_err(failed)?;
        let mut made = Self::of(Path::new("in memory"), memory)?;
        // Somebody may go on writing: both are to be of one commit.
        while self.catch_up(store)? != made.catch_up(store)? {}
        let mut last = None;
        loop {
            let directories_max = 256;
            let said = self.below(&ArchivePath::ROOT, last.as_ref(), directories_max)?;
            let expected = made.below(&ArchivePath::ROOT, last.as_ref(), directories_max)?;
            let mut both = said.iter().zip(&expected);
            let mut differs = both.find(|(one, other)| one != other).map(|(one, _)| one.0.clone());
            if said.len() != expected.len() && differs.is_none() {
                let longer = if said.len() > expected.len() { &said } else { &expected };
                differs = longer.get(said.len().min(expected.len())).map(|(path, _)| path.clone());
            }
            for (path, _) in &expected {
                if differs.is_none() && self.rows_of(path)? != made.rows_of(path)? {
                    differs = Some(path.clone());
                }
            }
            if let Some(path) = differs {
                let place = self.file.display().to_string();
                return Ok(Some(CatalogError::Differs { place, path }));
            }
            let Some((path, _)) = expected.last() else { return Ok(None) };
            last = Some(path.clone());
        }
    }

    /// The commit that has changed a directory last; 0 where there is none.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn changed(&self, path: &ArchivePath) -> Result<u64, CatalogError> {
        let changed = self.tables.prepare_cached("SELECT changed FROM directory WHERE path = ?");
        let changed = changed.and_then(|mut query| {
            query.query_row([path.key()], |row| row.get::<_, i64>(0)).optional()
        });
        Ok(changed.map_err(|error| failed(&self.file, &error))?.unwrap_or(0).cast_unsigned())
    }

    /// A directory, if it is there.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn directory(&self, path: &ArchivePath) -> Result<Option<ArchivedDirectory>, CatalogError> {
        let query = "SELECT row FROM directory WHERE path = ?";
        Ok(self.rows(query, path.key())?.pop())
    }

    /// The packs of a directory, by their names.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn packs(&self, path: &ArchivePath) -> Result<Vec<ArchivedPack>, CatalogError> {
        self.rows("SELECT row FROM pack WHERE path = ? ORDER BY id", path.key())
    }

    /// The objects of a directory, by their names.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn objects(&self, path: &ArchivePath) -> Result<Vec<ArchivedObject>, CatalogError> {
        self.rows("SELECT row FROM object WHERE path = ? ORDER BY name", path.key())
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
        for change in &commit.changes {
            if self.changed(&change.path)? != change.since {
                return Ok(Some(change.path.clone()));
            }
            if let Some(tree) = &change.tree {
                // What it takes the place of is empty.
                if self.changed(tree.from())? == 0 || self.count_below(&change.path)? > 1 {
                    return Ok(Some(tree.from().clone()));
                }
            }
            if change.removed {
                let going = removed.range::<&ArchivePath, _>(&change.path..);
                let going = going.take_while(|path| path.is_within(&change.path)).count();
                if self.count_below(&change.path)? != going as u64 {
                    return Ok(Some(change.path.clone()));
                }
            } else if let Some((above, _)) = change.path.split()
                && is_new(&change)
                && !made.contains(&above)
                && (removed.contains(&above) || self.changed(&above)? == 0)
            {
                return Ok(Some(change.path.clone()));
            }
        }
        Ok(None)
    }

    /// How many directories there are from one on, itself among them.
    fn count_below(&self, path: &ArchivePath) -> Result<u64, CatalogError> {
        let query = "SELECT count(*) FROM directory WHERE path >= ?1 AND (?2 IS NULL OR path < ?2)";
        let counted = self.tables.prepare_cached(query).and_then(|mut query| {
            query.query_row(params![path.key(), path.key_behind()], |row| row.get::<_, i64>(0))
        });
        counted.map(i64::cast_unsigned).map_err(|error| failed(&self.file, &error))
    }

    /// All that is known of a directory, all of it from one commit.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn rows_of(&self, path: &ArchivePath) -> Result<DirectoryRows, CatalogError> {
        let failed = |error| failed(&self.file, &error);
        let reading = self.tables.unchecked_transaction().map_err(failed)?;
        let rows = DirectoryRows {
            changed: self.changed(path)?,
            directory: self.directory(path)?,
            packs: self.packs(path)?,
            objects: self.objects(path)?,
        };
        reading.commit().map_err(failed)?;
        Ok(rows)
    }

    /// All that is known of a directory and of those below it, from behind one of them on, so many at
    /// most, in serial order.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn rows_below(
        &self,
        directory: &ArchivePath,
        behind: Option<&ArchivePath>,
        directories_max: usize,
    ) -> Result<Vec<(ArchivePath, DirectoryRows)>, CatalogError> {
        let failed = |error| failed(&self.file, &error);
        let reading = self.tables.unchecked_transaction().map_err(failed)?;
        let mut all = Vec::new();
        for (path, is) in self.below(directory, behind, directories_max)? {
            all.push((path, DirectoryRows { directory: Some(is), ..DirectoryRows::default() }));
        }
        if let (Some((first, _)), Some((last, _))) = (all.first(), all.last()) {
            let range = (first.clone(), last.clone());
            let changed = "SELECT path, changed FROM directory";
            self.each_between(&range, changed, &mut all, |rows, row| {
                rows.changed = row.get::<_, i64>(1).map_err(failed)?.cast_unsigned();
                Ok(())
            })?;
            self.each_between(&range, "SELECT path, row FROM pack", &mut all, |rows, row| {
                rows.packs
                    .push(self.row(row.get_ref(1).map_err(failed)?.as_blob().unwrap_or(&[]))?);
                Ok(())
            })?;
            self.each_between(&range, "SELECT path, row FROM object", &mut all, |rows, row| {
                let object = row.get_ref(1).map_err(failed)?;
                rows.objects.push(self.row(object.as_blob().unwrap_or(&[]))?);
                Ok(())
            })?;
        }
        reading.commit().map_err(failed)?;
        Ok(all)
    }

    /// Has rows of directories, from one to the other, told with what is known of each.
    fn each_between(
        &self,
        (first, last): &(ArchivePath, ArchivePath),
        query: &str,
        all: &mut [(ArchivePath, DirectoryRows)],
        mut each: impl FnMut(&mut DirectoryRows, &rusqlite::Row<'_>) -> Result<(), CatalogError>,
    ) -> Result<(), CatalogError> {
        let failed = |error| failed(&self.file, &error);
        // The key is the path and what is behind it, so this is the order of the rows.
        let query = format!("{query} WHERE path BETWEEN ? AND ? ORDER BY path");
        let mut query = self.tables.prepare_cached(&query).map_err(failed)?;
        let mut found = query.query(params![first.key(), last.key()]).map_err(failed)?;
        let mut at = all.iter_mut().peekable();
        while let Some(row) = found.next().map_err(failed)? {
            let path = row.get_ref(0).map_err(failed)?.as_blob().unwrap_or(&[]);
            while at.next_if(|(known, _)| known.key() < path).is_some() {}
            if let Some((_, rows)) = at.peek_mut().filter(|(known, _)| known.key() == path) {
                each(rows, row)?;
            }
        }
        Ok(())
    }

    /// The first directory within this one that comes behind all that is below a name there; without
    /// a name, the first of all. So one goes from one directory within it to the next.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn directory_behind(
        &self,
        within: &ArchivePath,
        name: Option<&[u8]>,
    ) -> Result<Option<(Vec<u8>, ArchivedDirectory)>, CatalogError> {
        let from = match name {
            Some(name) => within.join(name).key_behind().expect("a name is behind a directory"),
            // What is below a directory begins with its key and is longer.
            None => [within.key(), &[1]].concat(),
        };
        let query = "SELECT path FROM directory WHERE path >= ?1 AND (?2 IS NULL OR path < ?2)
            ORDER BY path LIMIT 1";
        let failed = |error| failed(&self.file, &error);
        let mut query = self.tables.prepare_cached(query).map_err(failed)?;
        let found = query
            .query_row(params![from, within.key_behind()], |row| row.get::<_, Vec<u8>>(0))
            .optional()
            .map_err(failed)?;
        let Some(found) = found else { return Ok(None) };
        let path = ArchivePath::of_key(found).ok_or_else(|| self.unreadable())?;
        // A directory comes before what is in it, so this is one within.
        let directory = self.directory(&path)?.ok_or_else(|| self.unreadable())?;
        let Some((_, name)) = path.split() else { return Ok(None) };
        Ok(Some((name.to_vec(), directory)))
    }

    /// A directory and those below it that come behind one of them, so many at most, in serial order.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn below(
        &self,
        directory: &ArchivePath,
        behind: Option<&ArchivePath>,
        directories_max: usize,
    ) -> Result<Vec<(ArchivePath, ArchivedDirectory)>, CatalogError> {
        let query = "SELECT path, row FROM directory
            WHERE path >= ?1 AND (?2 IS NULL OR path > ?2) AND (?3 IS NULL OR path < ?3)
            ORDER BY path LIMIT ?4";
        self.directories(query, directory, behind, directories_max)
    }

    /// As [`Catalog::below`], from the end: those that come before one of them, the last first.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn below_from_end(
        &self,
        directory: &ArchivePath,
        before: Option<&ArchivePath>,
        directories_max: usize,
    ) -> Result<Vec<(ArchivePath, ArchivedDirectory)>, CatalogError> {
        let query = "SELECT path, row FROM directory
            WHERE path >= ?1 AND (?2 IS NULL OR path < ?2) AND (?3 IS NULL OR path < ?3)
            ORDER BY path DESC LIMIT ?4";
        self.directories(query, directory, before, directories_max)
    }

    fn directories(
        &self,
        query: &str,
        directory: &ArchivePath,
        next_to: Option<&ArchivePath>,
        directories_max: usize,
    ) -> Result<Vec<(ArchivePath, ArchivedDirectory)>, CatalogError> {
        let failed = |error| failed(&self.file, &error);
        let mut query = self.tables.prepare_cached(query).map_err(failed)?;
        let next_to = next_to.map(ArchivePath::key);
        let end = directory.key_behind();
        let limit = i64::try_from(directories_max).unwrap_or(i64::MAX);
        let found = query
            .query_map(params![directory.key(), next_to, end, limit], |row| {
                Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, Vec<u8>>(1)?))
            })
            .map_err(failed)?;
        let known = found.map(|found| {
            let (path, row) = found.map_err(failed)?;
            let path = ArchivePath::of_key(path).ok_or_else(|| self.unreadable())?;
            Ok((path, self.row(&row)?))
        });
        known.collect()
    }

    fn rows<T: serde::de::DeserializeOwned>(
        &self,
        query: &str,
        path: &[u8],
    ) -> Result<Vec<T>, CatalogError> {
        let failed = |error| failed(&self.file, &error);
        let mut query = self.tables.prepare_cached(query).map_err(failed)?;
        let rows = query.query_map([path], |row| row.get::<_, Vec<u8>>(0)).map_err(failed)?;
        rows.map(|row| self.row(&row.map_err(failed)?)).collect()
    }

    fn row<T: serde::de::DeserializeOwned>(&self, row: &[u8]) -> Result<T, CatalogError> {
        postcard::from_bytes(row).map_err(|_| self.unreadable())
    }

    fn unreadable(&self) -> CatalogError {
        let place = self.file.display().to_string();
        let why = "a row of it cannot be read: remove the file, and it is made again".to_owned();
        CatalogError::Table { place, why }
    }

    fn apply(&mut self, number: u64, commit: &Commit) -> Result<(), CatalogError> {
        let file = &self.file;
        let failed = |error| failed(file, &error);
        let behavior = rusqlite::TransactionBehavior::Immediate;
        let applying = self.tables.transaction_with_behavior(behavior).map_err(failed)?;
        // Another process with the same file may have been first.
        if applied(&applying).map_err(failed)? + 1 != number {
            return Ok(());
        }
        for change in &commit.changes {
            apply_change(&applying, number, change).map_err(failed)?;
        }
        let number = i64::try_from(number).expect("a log has fewer commits than 2⁶³");
        applying.execute("UPDATE applied SET number = ?", [number]).map_err(failed)?;
        applying.commit().map_err(failed)
    }
}

fn run(on: &Transaction<'_>, sql: &str, params: &[&dyn ToSql]) -> rusqlite::Result<usize> {
    on.prepare_cached(sql)?.execute(params)
}

fn apply_change(
    to: &Transaction<'_>,
    number: u64,
    change: &DirectoryChange,
) -> rusqlite::Result<()> {
    let path = change.path.key();
    if change.removed {
        for sql in [
            "DELETE FROM directory WHERE path = ?",
            "DELETE FROM pack WHERE path = ?",
            "DELETE FROM object WHERE path = ?",
        ] {
            run(to, sql, &[&path])?;
        }
        return Ok(());
    }
    if let Some(tree) = &change.tree {
        apply_tree(to, number, &change.path, tree)?;
    }
    for id in &change.packs_removed {
        run(to, "DELETE FROM pack WHERE path = ? AND id = ?", &[&path, &id.0])?;
    }
    for name in &change.objects_removed {
        run(to, "DELETE FROM object WHERE path = ? AND name = ?", &[&path, name])?;
    }
    for pack in &change.packs {
        run(
            to,
            "INSERT OR REPLACE INTO pack VALUES (?, ?, ?)",
            &[&path, &pack.id.0, &encoded(pack)],
        )?;
    }
    for object in &change.objects {
        let params: &[&dyn ToSql] = &[&path, &object.attributes.name, &encoded(object)];
        run(to, "INSERT OR REPLACE INTO object VALUES (?, ?, ?)", params)?;
    }
    let number = i64::try_from(number).expect("a log has fewer commits than 2⁶³");
    match &change.directory {
        Some(directory) => run(
            to,
            "INSERT OR REPLACE INTO directory VALUES (?, ?, ?)",
            &[&path, &number, &encoded(directory)],
        )?,
        None => run(to, "UPDATE directory SET changed = ?2 WHERE path = ?1", &[&path, &number])?,
    };
    Ok(())
}

/// Has all that is within one directory be within another one, by its keys alone.
fn apply_tree(
    on: &Transaction<'_>,
    number: u64,
    to: &ArchivePath,
    tree: &TreeSource,
) -> rusqlite::Result<()> {
    let from = tree.from();
    let (key, behind) = (to.key(), from.key_behind());
    let from_byte = i64::try_from(from.key().len() + 1).expect("a path has fewer bytes than 2⁶³");
    let commit = i64::try_from(number).expect("a log has fewer commits than 2⁶³");
    run(on, "DELETE FROM directory WHERE path = ?", &[&key])?;
    // What is joined is a text to SQLite, of the same bytes.
    let path = "CAST(?1 || substr(path, ?2) AS BLOB)";
    let within = "path >= ?3 AND (?4 IS NULL OR path < ?4)";
    let params: &[&dyn ToSql] = &[&key, &from_byte, &from.key(), &behind];
    let with_commit: &[&dyn ToSql] = &[&key, &from_byte, &from.key(), &behind, &commit];
    if let TreeSource::Moved(_) = tree {
        let sql = format!("UPDATE directory SET path = {path}, changed = ?5 WHERE {within}");
        run(on, &sql, with_commit)?;
        for table in ["pack", "object"] {
            run(on, &format!("UPDATE {table} SET path = {path} WHERE {within}"), params)?;
        }
        return Ok(());
    }
    let sql = format!("INSERT INTO directory SELECT {path}, ?5, row FROM directory WHERE {within}");
    run(on, &sql, with_commit)?;
    for (table, name) in [("pack", "id"), ("object", "name")] {
        let sql =
            format!("INSERT INTO {table} SELECT {path}, {name}, row FROM {table} WHERE {within}");
        run(on, &sql, params)?;
    }
    copy_links(on, number, to)
}

/// Gives files of a copied tree that have several names something in common that is theirs.
fn copy_links(on: &Transaction<'_>, number: u64, to: &ArchivePath) -> rusqlite::Result<()> {
    let sql = "SELECT path, name, row FROM object WHERE path >= ?1 AND (?2 IS NULL OR path < ?2)";
    let mut query = on.prepare_cached(sql)?;
    let mut found = query.query(params![to.key(), to.key_behind()])?;
    let mut copies: Vec<(Vec<u8>, Vec<u8>, Vec<u8>)> = Vec::new();
    while let Some(row) = found.next()? {
        // One that cannot be read is told when it is looked at.
        let object = postcard::from_bytes::<ArchivedObject>(row.get_ref(2)?.as_blob()?);
        let Ok(mut object) = object else { continue };
        if let Some(link) = object.link {
            object.link = Some(rows::copied_link(link, number, to));
            copies.push((row.get(0)?, row.get(1)?, encoded(&object)));
        }
    }
    for (path, name, row) in copies {
        let sql = "UPDATE object SET row = ?3 WHERE path = ?1 AND name = ?2";
        run(on, sql, &[&path, &name, &row])?;
    }
    Ok(())
}

fn applied(tables: &Connection) -> rusqlite::Result<u64> {
    let number = tables.query_row("SELECT number FROM applied", [], |row| row.get::<_, i64>(0))?;
    Ok(number.cast_unsigned())
}

fn encoded(row: &impl serde::Serialize) -> Vec<u8> {
    postcard::to_stdvec(row).expect("memory takes what it is given")
}

fn failed(file: &Path, error: &rusqlite::Error) -> CatalogError {
    CatalogError::Table { place: file.display().to_string(), why: error.to_string() }
}
