//! What the tables of a catalog stand on: statements that SQLite and PostgreSQL take alike.
use super::CatalogError;

/// Counts up when the tables change. Those of an earlier version are made anew of the log.
pub(super) const TABLES_VERSION: i64 = 4;

/// The tables, as SQLite has them.
pub(super) const TABLES: &str = "
CREATE TABLE applied (number BIGINT NOT NULL, digest BLOB NOT NULL, later BIGINT NOT NULL);
INSERT INTO applied VALUES (0, CAST('' AS BLOB), 0);
CREATE TABLE directory (path BLOB PRIMARY KEY, changed BIGINT NOT NULL, row BLOB NOT NULL)
    WITHOUT ROWID;
CREATE TABLE pack (path BLOB, id BLOB, row BLOB NOT NULL, PRIMARY KEY (path, id)) WITHOUT ROWID;
CREATE TABLE object (path BLOB, name BLOB, row BLOB NOT NULL, PRIMARY KEY (path, name))
    WITHOUT ROWID;
";

/// What a statement is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RowValue<'a> {
    Bytes(&'a [u8]),
    Number(i64),
}

/// A row that a statement has found.
pub(super) enum FoundRow<'a> {
    Sqlite(&'a rusqlite::Row<'a>),
    #[cfg(feature = "postgres")]
    Postgres(&'a tokio_postgres::Row),
}

impl FoundRow<'_> {
    /// The bytes in a column, or nothing if it has something else.
    pub fn bytes(&self, column: usize) -> Option<&[u8]> {
        match self {
            Self::Sqlite(row) => row.get_ref(column).ok()?.as_blob().ok(),
            #[cfg(feature = "postgres")]
            Self::Postgres(row) => row.try_get(column).ok(),
        }
    }

    /// The number in a column, or nothing if it has something else.
    pub fn number(&self, column: usize) -> Option<i64> {
        match self {
            Self::Sqlite(row) => row.get(column).ok(),
            #[cfg(feature = "postgres")]
            Self::Postgres(row) => row.try_get(column).ok(),
        }
    }
}

/// Is told of each row.
pub(super) type EachFound<'a> = &'a mut dyn FnMut(&FoundRow<'_>) -> Result<(), CatalogError>;

/// A statement for many rows of values: SQLite runs it for each, as that costs nothing, and PostgreSQL
/// for all of them at once, given as an array for each column.
pub(super) struct Many {
    pub sqlite: &'static str,
    #[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "nobody asks a server"))]
    pub postgres: &'static str,
}

/// What is done between a begin and an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TablesUse {
    /// All that is read is of one commit.
    Reading,
    /// Nobody else writes.
    Writing,
}

/// Where tables are. A statement has parameters `?1`, `?2`, …, and says `BLOB` where it has to.
pub(super) trait Tables: std::fmt::Debug + Send {
    /// Where they are, for people; without passwords.
    fn place(&self) -> String;

    /// What has to be removed where they are damaged, for people.
    fn remedy(&self) -> String;

    /// Whether it is known of which archive they are; without that there are none, and nothing is
    /// found.
    fn is_bound(&self) -> bool {
        true
    }

    /// Has them be those of this archive, known by the digest of its first commit.
    fn bind(&mut self, _archive: &[u8; 32]) -> Result<(), CatalogError> {
        Ok(())
    }

    /// The same tables, for somebody else who looks at them as they are then; nothing where that cannot be.
    ///
    /// # Errors
    /// When they cannot be opened.
    fn again(&self) -> Result<Option<Box<dyn Tables>>, CatalogError> {
        Ok(None)
    }

    /// Begins what is done as one.
    fn begin(&self, to: TablesUse) -> Result<(), CatalogError>;

    /// Ends what was begun: it is done, or was never.
    fn end(&self, is_done: bool) -> Result<(), CatalogError>;

    /// Runs a statement.
    fn each(
        &self,
        sql: &str,
        values: &[RowValue<'_>],
        each: EachFound<'_>,
    ) -> Result<(), CatalogError>;

    /// Runs a statement for many rows of values, all of the same kinds. In which order the rows are
    /// found that it finds is not said.
    fn each_of_many(
        &self,
        many: &Many,
        rows: &[&[RowValue<'_>]],
        each: EachFound<'_>,
    ) -> Result<(), CatalogError>;
}
