//! Tables in a file of SQLite.
//!
//! SQLite has no checksums, so pages are checked when a catalog is opened.
use super::CatalogError;
use super::tables::{
    EachFound, FoundRow, Many, RowValue, TABLES, TABLES_VERSION, Tables, TablesUse,
};
use rusqlite::types::ToSqlOutput;
use rusqlite::{Connection, ErrorCode, OpenFlags, ToSql, TransactionBehavior, params_from_iter};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long one waits for another who writes to the same file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two tries of what is not waited for by itself.
const BUSY_PAUSE: Duration = Duration::from_millis(5);
/// Bytes of a catalog whose pages are looked at each time it is opened, at most: 64 MiB, which takes
/// some 50 ms.
const CHECKED_BYTES_MAX: u64 = 64 << 20;
/// Statements that are kept.
const STATEMENTS_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct SqliteTables {
    file: PathBuf,
    tables: Connection,
}

impl SqliteTables {
    /// Opens a file, or makes one. No part of its path may be a link.
    pub fn open(file: &Path) -> Result<Self, CatalogError> {
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
        let tables = Connection::open_with_flags(file, flags).map_err(|error| failed(file, &error));
        let this = Self::of(file, tables?)?;
        this.check()?;
        Ok(this)
    }

    /// Tables that are gone with this.
    pub fn in_memory() -> Result<Self, CatalogError> {
        let file = Path::new(IN_MEMORY);
        Self::of(file, Connection::open_in_memory().map_err(|error| failed(file, &error))?)
    }

    /// Has the tables made, if they are not there.
    fn of(file: &Path, mut tables: Connection) -> Result<Self, CatalogError> {
        let failed = |error| failed(file, &error);
        tables.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
        tables.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        // What a power cut takes from the file is in the log: it need not be synced for each commit.
        // Where two make a file at once, SQLite tells one of them so at once, whatever it may wait.
        let began = Instant::now();
        let settings = "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;";
        loop {
            match tables.execute_batch(settings) {
                Err(error)
                    if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                        && began.elapsed() < BUSY_TIMEOUT =>
                {
                    std::thread::sleep(BUSY_PAUSE);
                }
                set => break set.map_err(failed)?,
            }
        }
        let making =
            tables.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        let version: i64 =
            making.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(failed)?;
        if version > TABLES_VERSION {
            let place = file.display().to_string();
            let why = format!(
                "its tables have version {version}, and this Sheaf knows them up to \
                 {TABLES_VERSION}: use a later one, or remove the file, and it is made again"
            );
            return Err(CatalogError::Table { place, why });
        }
        if version < TABLES_VERSION {
            for table in ["applied", "directory", "pack", "object"] {
                making.execute_batch(&format!("DROP TABLE IF EXISTS {table}")).map_err(failed)?;
            }
            making.execute_batch(TABLES).map_err(failed)?;
            making.pragma_update(None, "user_version", TABLES_VERSION).map_err(failed)?;
        }
        making.commit().map_err(failed)?;
        Ok(Self { file: file.to_owned(), tables })
    }

    /// Looks whether its pages are whole: rows of one that is not may be missing without an error. Of a
    /// long file that would take long, and `verify` tells.
    fn check(&self) -> Result<(), CatalogError> {
        let bytes = std::fs::metadata(&self.file).map_or(u64::MAX, |found| found.len());
        if bytes > CHECKED_BYTES_MAX {
            return Ok(());
        }
        let mut said = String::new();
        let check = "PRAGMA quick_check(1)";
        let mut first = |row: &rusqlite::Row<'_>| {
            said = row.get(0)?;
            Ok(())
        };
        self.tables.query_row(check, [], &mut first).map_err(|error| self.failed(&error))?;
        if said == "ok" { Ok(()) } else { Err(damaged(&self.file, &said)) }
    }

    fn failed(&self, error: &rusqlite::Error) -> CatalogError {
        failed(&self.file, error)
    }
}

/// What tables are called that are in no file.
const IN_MEMORY: &str = "in memory";

impl Tables for SqliteTables {
    fn again(&self) -> Result<Option<Box<dyn Tables>>, CatalogError> {
        if self.file == Path::new(IN_MEMORY) {
            return Ok(None);
        }
        Ok(Some(Box::new(Self::open(&self.file)?)))
    }

    fn place(&self) -> String {
        self.file.display().to_string()
    }

    fn remedy(&self) -> String {
        "remove the file".to_owned()
    }

    fn begin(&self, to: TablesUse) -> Result<(), CatalogError> {
        let sql = match to {
            TablesUse::Reading => "BEGIN",
            TablesUse::Writing => "BEGIN IMMEDIATE",
        };
        self.tables.execute_batch(sql).map_err(|error| self.failed(&error))
    }

    fn end(&self, is_done: bool) -> Result<(), CatalogError> {
        // SQLite itself may have taken it back.
        if !is_done && self.tables.is_autocommit() {
            return Ok(());
        }
        let sql = if is_done { "COMMIT" } else { "ROLLBACK" };
        self.tables.execute_batch(sql).map_err(|error| self.failed(&error))
    }

    fn each(
        &self,
        sql: &str,
        values: &[RowValue<'_>],
        each: EachFound<'_>,
    ) -> Result<(), CatalogError> {
        let mut statement = self.tables.prepare_cached(sql).map_err(|error| self.failed(&error))?;
        let found = statement.query(params_from_iter(values));
        let mut found = found.map_err(|error| self.failed(&error))?;
        while let Some(row) = found.next().map_err(|error| self.failed(&error))? {
            each(&FoundRow::Sqlite(row))?;
        }
        Ok(())
    }

    fn each_of_many(
        &self,
        many: &Many,
        rows: &[&[RowValue<'_>]],
        each: EachFound<'_>,
    ) -> Result<(), CatalogError> {
        rows.iter().try_for_each(|values| self.each(many.sqlite, values, each))
    }
}

impl ToSql for RowValue<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match self {
            Self::Bytes(bytes) => bytes.to_sql(),
            Self::Number(number) => number.to_sql(),
        }
    }
}

fn damaged(file: &Path, why: &str) -> CatalogError {
    let why = format!("it is damaged ({why}): remove the file, and it is made again");
    CatalogError::Table { place: file.display().to_string(), why }
}

fn failed(file: &Path, error: &rusqlite::Error) -> CatalogError {
    if error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) {
        return damaged(file, &error.to_string());
    }
    if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) {
        let why = "file is not a database: it is no catalog, or its beginning is damaged: \
                   if it is in sheaf/archives, remove the file, and it is made again"
            .to_owned();
        return CatalogError::Table { place: file.display().to_string(), why };
    }
    let (place, why) = (file.display().to_string(), error.to_string());
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure) => CatalogError::Disk { place, why },
        _ => CatalogError::Table { place, why },
    }
}
