//! What a catalog says.
use super::apply;
use super::tables::{RowValue, TablesUse};
use super::{
    ArchivedDirectory, ArchivedObject, ArchivedPack, Catalog, CatalogError, Checked, DirectoryRows,
};
use crate::path::ArchivePath;
use serde::de::DeserializeOwned;

/// KeyRange from one on, and before another one if there is one.
struct KeyRange {
    first: Vec<u8>,
    behind: Option<Vec<u8>>,
}

impl KeyRange {
    /// A directory, and what is below it.
    fn within(directory: &ArchivePath) -> Self {
        Self { first: directory.key().to_owned(), behind: directory.key_behind() }
    }

    /// Those of them that are behind one.
    fn after(mut self, path: Option<&ArchivePath>) -> Self {
        // This is the next key of all.
        let next = path.map(|path| [path.key(), &[0]].concat());
        self.first = next.into_iter().fold(self.first, Vec::max);
        self
    }

    /// Those of them that are before one.
    fn before(mut self, path: Option<&ArchivePath>) -> Self {
        let before = path.map(|path| path.key().to_owned());
        self.behind = before.into_iter().chain(self.behind).min();
        self
    }

    /// What a statement says of a path, which has these as its first parameters.
    fn condition(&self) -> &'static str {
        match self.behind {
            Some(_) => "path >= ?1 AND path < ?2",
            None => "path >= ?1",
        }
    }

    /// Whether a row may come next: a damaged table may have them in any order, and who goes on behind the
    /// last one would never end.
    fn goes_on(&self, last: Option<&ArchivePath>, next: &ArchivePath, from_end: bool) -> bool {
        let is_behind = |last: &ArchivePath| if from_end { next < last } else { next > last };
        next.key() >= &self.first[..]
            && self.behind.as_ref().is_none_or(|behind| next.key() < &behind[..])
            && last.is_none_or(is_behind)
    }

    fn values(&self) -> Vec<RowValue<'_>> {
        let behind = self.behind.as_deref().map(RowValue::Bytes);
        std::iter::once(RowValue::Bytes(&self.first)).chain(behind).collect()
    }
}

impl Catalog {
    /// The commit that has changed a directory last; 0 where there is none.
    ///
    /// # Errors
    /// When the tables cannot be read.
    pub fn changed(&self, path: &ArchivePath) -> Result<u64, CatalogError> {
        let mut changed = 0;
        let sql = "SELECT changed FROM directory WHERE path = ?1";
        self.tables.each(sql, &[RowValue::Bytes(path.key())], &mut |found| {
            changed = self.number(found, 0)?;
            Ok(())
        })?;
        Ok(changed)
    }

    /// A directory, if it is there.
    ///
    /// # Errors
    /// When the tables cannot be read.
    pub fn directory(&self, path: &ArchivePath) -> Result<Option<ArchivedDirectory>, CatalogError> {
        Ok(self.rows("SELECT row FROM directory WHERE path = ?1", path.key())?.pop())
    }

    /// The packs of a directory, by their names.
    ///
    /// # Errors
    /// When the tables cannot be read.
    pub fn packs(&self, path: &ArchivePath) -> Result<Vec<ArchivedPack>, CatalogError> {
        self.rows("SELECT row FROM pack WHERE path = ?1 ORDER BY id", path.key())
    }

    /// The objects of a directory, by their names.
    ///
    /// # Errors
    /// When the tables cannot be read.
    pub fn objects(&self, path: &ArchivePath) -> Result<Vec<ArchivedObject>, CatalogError> {
        self.rows("SELECT row FROM object WHERE path = ?1 ORDER BY name", path.key())
    }

    /// All that is known of a directory, all of it from one commit.
    ///
    /// # Errors
    /// When the tables cannot be read.
    pub fn rows_of(&self, path: &ArchivePath) -> Result<DirectoryRows, CatalogError> {
        self.as_one(TablesUse::Reading, || {
            let mut rows = DirectoryRows::default();
            let sql = "SELECT changed, row FROM directory WHERE path = ?1";
            self.tables.each(sql, &[RowValue::Bytes(path.key())], &mut |found| {
                rows.changed = self.number(found, 0)?;
                rows.directory = Some(self.row(self.bytes(found, 1)?)?);
                Ok(())
            })?;
            rows.packs = self.packs(path)?;
            rows.objects = self.objects(path)?;
            Ok(rows)
        })
    }

    /// All that is known of a directory and of those below it, from behind one of them on, so many at
    /// most, in serial order.
    ///
    /// # Errors
    /// When the tables cannot be read.
    pub fn rows_below(
        &self,
        directory: &ArchivePath,
        behind: Option<&ArchivePath>,
        directories_max: usize,
    ) -> Result<Vec<(ArchivePath, DirectoryRows)>, CatalogError> {
        self.as_one(TablesUse::Reading, || {
            self.rows_below_in_one(directory, behind, directories_max)
        })
    }

    /// As [`Catalog::rows_below`], of all directories that have changed since a commit.
    ///
    /// # Errors
    /// When the tables cannot be read.
    pub(crate) fn rows_since(
        &self,
        since: u64,
        behind: Option<&ArchivePath>,
        directories_max: usize,
    ) -> Result<Vec<(ArchivePath, DirectoryRows)>, CatalogError> {
        self.as_one(TablesUse::Reading, || {
            self.rows_since_in_one(&ArchivePath::ROOT, behind, directories_max, since)
        })
    }

    /// As [`Catalog::rows_below`], within what is read as one.
    pub(super) fn rows_below_in_one(
        &self,
        directory: &ArchivePath,
        behind: Option<&ArchivePath>,
        directories_max: usize,
    ) -> Result<Vec<(ArchivePath, DirectoryRows)>, CatalogError> {
        self.rows_since_in_one(directory, behind, directories_max, 0)
    }

    fn rows_since_in_one(
        &self,
        directory: &ArchivePath,
        behind: Option<&ArchivePath>,
        directories_max: usize,
        since: u64,
    ) -> Result<Vec<(ArchivePath, DirectoryRows)>, CatalogError> {
        let mut all: Vec<(ArchivePath, _)> = Vec::new();
        let keys = KeyRange::within(directory).after(behind);
        let condition = keys.condition();
        let condition = match since {
            0 => condition.to_owned(),
            _ => format!("{condition} AND changed > {since}"),
        };
        let sql = format!(
            "SELECT path, changed, row FROM directory WHERE {condition} ORDER BY path \
             LIMIT {directories_max}"
        );
        self.tables.each(&sql, &keys.values(), &mut |found| {
            let (changed, directory) =
                (self.number(found, 1)?, Some(self.row(self.bytes(found, 2)?)?));
            let rows = DirectoryRows { changed, directory, ..DirectoryRows::default() };
            // A damaged table may have rows in any order, and `each_between` relies on it.
            let path = self.path(self.bytes(found, 0)?)?;
            if !keys.goes_on(all.last().map(|(last, _)| last), &path, false) {
                return Err(self.unreadable());
            }
            all.push((path, rows));
            Ok(())
        })?;
        let sql = "SELECT path, row FROM pack WHERE path BETWEEN ?1 AND ?2 ORDER BY path, id";
        self.each_between(sql, &mut all, |rows, pack| {
            rows.packs.push(self.row(pack)?);
            Ok(())
        })?;
        let sql = "SELECT path, row FROM object WHERE path BETWEEN ?1 AND ?2 ORDER BY path, name";
        self.each_between(sql, &mut all, |rows, object| {
            rows.objects.push(self.row(object)?);
            Ok(())
        })?;
        Ok(all)
    }

    /// Has rows of directories, from the first to the last, told with what is known of each.
    fn each_between(
        &self,
        sql: &str,
        all: &mut [(ArchivePath, DirectoryRows)],
        mut each: impl FnMut(&mut DirectoryRows, &[u8]) -> Result<(), CatalogError>,
    ) -> Result<(), CatalogError> {
        let (Some((first, _)), Some((last, _))) = (all.first(), all.last()) else { return Ok(()) };
        let (first, last) = (first.clone(), last.clone());
        let mut at = all.iter_mut().peekable();
        let values = [RowValue::Bytes(first.key()), RowValue::Bytes(last.key())];
        self.tables.each(sql, &values, &mut |found| {
            let path = self.bytes(found, 0)?;
            // Both come in the order of their paths. Rows between two directories of `all` are of
            // none of these only where the tables are damaged.
            while at.next_if(|(known, _)| known.key() < path).is_some() {}
            match at.peek_mut().filter(|(known, _)| known.key() == path) {
                Some((_, rows)) => each(rows, self.bytes(found, 1)?),
                None => Ok(()),
            }
        })
    }

    /// The first directory within this one that comes behind all that is below a name there; without
    /// a name, the first of all. So one goes from one directory within it to the next.
    ///
    /// # Errors
    /// When the tables cannot be read.
    pub fn directory_behind(
        &self,
        within: &ArchivePath,
        name: Option<&[u8]>,
    ) -> Result<Option<(Vec<u8>, ArchivedDirectory)>, CatalogError> {
        let first = match name {
            Some(name) => within.join(name).key_behind().expect("a name is behind a directory"),
            // What is below a directory begins with its key and is longer.
            None => [within.key(), &[1]].concat(),
        };
        let keys = KeyRange { first, ..KeyRange::within(within) };
        // A directory comes before what is in it, so this is one within; of a log that a hostile store
        // has forged it may be one deeper, whose name leads back to it.
        let Some((path, directory)) = self.directories(&keys, false, 1)?.pop() else {
            return Ok(None);
        };
        match path.split() {
            Some((above, name)) if above == *within => Ok(Some((name.to_vec(), directory))),
            _ => Err(self.unreadable()),
        }
    }

    /// A directory and those below it that come behind one of them, so many at most, in serial order.
    ///
    /// # Errors
    /// When the tables cannot be read.
    pub fn below(
        &self,
        directory: &ArchivePath,
        behind: Option<&ArchivePath>,
        directories_max: usize,
    ) -> Result<Vec<(ArchivePath, ArchivedDirectory)>, CatalogError> {
        self.directories(&KeyRange::within(directory).after(behind), false, directories_max)
    }

    /// As [`Catalog::below`], from the end: those that come before one of them, the last first.
    ///
    /// # Errors
    /// When the tables cannot be read.
    pub fn below_from_end(
        &self,
        directory: &ArchivePath,
        before: Option<&ArchivePath>,
        directories_max: usize,
    ) -> Result<Vec<(ArchivePath, ArchivedDirectory)>, CatalogError> {
        self.directories(&KeyRange::within(directory).before(before), true, directories_max)
    }

    fn directories(
        &self,
        keys: &KeyRange,
        from_end: bool,
        directories_max: usize,
    ) -> Result<Vec<(ArchivePath, ArchivedDirectory)>, CatalogError> {
        let condition = keys.condition();
        let order = if from_end { "DESC" } else { "ASC" };
        let limit = i64::try_from(directories_max).unwrap_or(i64::MAX);
        let sql = format!(
            "SELECT path, row FROM directory WHERE {condition} ORDER BY path {order} LIMIT {limit}"
        );
        let mut all: Vec<(ArchivePath, _)> = Vec::new();
        self.tables.each(&sql, &keys.values(), &mut |found| {
            let path = self.path(self.bytes(found, 0)?)?;
            if !keys.goes_on(all.last().map(|(last, _)| last), &path, from_end) {
                return Err(self.unreadable());
            }
            all.push((path, self.row(self.bytes(found, 1)?)?));
            Ok(())
        })?;
        Ok(all)
    }

    fn rows<T: DeserializeOwned + Checked>(
        &self,
        sql: &str,
        path: &[u8],
    ) -> Result<Vec<T>, CatalogError> {
        let mut rows = Vec::new();
        self.tables.each(sql, &[RowValue::Bytes(path)], &mut |found| {
            rows.push(self.row(self.bytes(found, 0)?)?);
            Ok(())
        })?;
        Ok(rows)
    }

    pub(super) fn row<T: DeserializeOwned + Checked>(&self, row: &[u8]) -> Result<T, CatalogError> {
        apply::decoded(row).ok_or_else(|| self.unreadable())
    }

    fn path(&self, key: &[u8]) -> Result<ArchivePath, CatalogError> {
        ArchivePath::of_key(key.to_owned()).ok_or_else(|| self.unreadable())
    }
}
