//! Tables in a database of PostgreSQL: a schema for each archive, which many processes may use at once.
mod tls;
mod url;

pub use url::{PostgresUrl, PostgresUrlError};

use super::tables::{
    EachFound, FoundRow, Many, RowValue, TABLES, TABLES_VERSION, Tables, TablesUse,
};
use super::{Catalog, CatalogError};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::future::Future;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

/// Rows of values that go to the server at once.
const ROWS_AT_ONCE: usize = 4096;
/// Bytes of values that go to the server at once, but for the last row.
const BYTES_AT_ONCE: usize = 8 << 20;
/// How much longer than the server one waits for its word that something takes too long.
const GRACE: Duration = Duration::from_secs(2);

impl Catalog {
    /// Connects to a catalog in a database of PostgreSQL. It is of the archive that it
    /// [catches up](Self::catch_up) with first, of which there may be many in one database; tables are
    /// made when that has a commit.
    ///
    /// # Errors
    /// When there is no connection.
    pub fn connect(url: &PostgresUrl) -> Result<Self, CatalogError> {
        Ok(Self::of(PostgresTables::connect(url)?))
    }
}

struct PostgresTables {
    url: PostgresUrl,
    runtime: Runtime,
    session: RefCell<Option<ServerSession>>,
    /// The schema with the tables, once it is known of which archive they are.
    schema: Option<String>,
    is_in_transaction: Cell<bool>,
}

/// A connection, and the statements that it knows.
struct ServerSession {
    client: Client,
    statements: HashMap<String, Statement>,
    /// Whether the tables were looked for. They may be gone after a crash of the server.
    has_tables: bool,
}

impl std::fmt::Debug for PostgresTables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PostgresTables({}, {:?})", self.url, self.schema)
    }
}

impl PostgresTables {
    fn connect(url: &PostgresUrl) -> Result<Self, CatalogError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| CatalogError::Table {
            place: url.to_string(),
            why: format!("no connection can be made: {error}"),
        })?;
        let (session, is_in_transaction) = (RefCell::new(None), Cell::new(false));
        let tables = Self { url: url.clone(), runtime, session, schema: None, is_in_transaction };
        // A wrong address fails here, at once, and not when the first row is asked for.
        tables.with_session(|_| Ok(()))?;
        Ok(tables)
    }

    /// Makes a connection; each wait in it has an end.
    fn new_session(&self) -> Result<ServerSession, CatalogError> {
        let tls = tls::connector(&self.url).map_err(|why| self.lost(why))?;
        let connecting = self.url.config.connect(tls);
        let timeout = self.url.connect_timeout;
        let connected =
            self.runtime.block_on(async { tokio::time::timeout(timeout, connecting).await });
        let connected = connected.map_err(|_| {
            self.lost(format!("no connection within {} s (connect_timeout)", timeout.as_secs()))
        })?;
        let (client, connection) = connected.map_err(|error| self.failed(&error))?;
        // Errors of the connection are those of what is asked through it.
        self.runtime.spawn(async { connection.await.unwrap_or(()) });
        let session = ServerSession { client, statements: HashMap::new(), has_tables: false };
        // Who does not go on does not keep others from it.
        let milliseconds = self.url.statement_timeout.as_millis();
        let mut settings = format!(
            "SET statement_timeout = {milliseconds};
            SET idle_in_transaction_session_timeout = {milliseconds};
            SET client_min_messages = warning;"
        );
        if let Some(schema) = &self.schema {
            // Texts take what is written to them.
            let _ = write!(settings, "SET search_path = {schema}");
        }
        self.wait(session.client.batch_execute(&settings))?;
        Ok(session)
    }

    /// Waits for an answer of the server.
    fn wait<T>(
        &self,
        asked: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, CatalogError> {
        let timeout = self.url.statement_timeout + GRACE;
        let answer = self.runtime.block_on(async { tokio::time::timeout(timeout, asked).await });
        match answer {
            Ok(answer) => answer.map_err(|error| self.failed(&error)),
            Err(_) => Err(self.lost(format!(
                "no answer within {} s (statement_timeout)",
                self.url.statement_timeout.as_secs()
            ))),
        }
    }

    /// Does something with the connection. Where it was lost it is made again, unless something was
    /// begun with it.
    fn with_session<T>(
        &self,
        work: impl FnOnce(&mut ServerSession) -> Result<T, CatalogError>,
    ) -> Result<T, CatalogError> {
        let mut session = self.session.borrow_mut();
        // The server may have closed it since the last question, as after a restart.
        if session.as_ref().is_some_and(|session| session.client.is_closed()) {
            *session = None;
        }
        // The server has taken the transaction back: on a new connection the rest of it would be
        // written alone.
        if session.is_none() && self.is_in_transaction.get() {
            return Err(self.lost("the connection was lost".to_owned()));
        }
        let with = match &mut *session {
            Some(session) => session,
            none => none.insert(self.new_session()?),
        };
        let done = work(with);
        // It may wait for an answer that never comes, or comes to what was not asked.
        if matches!(done, Err(CatalogError::Server { .. })) {
            *session = None;
        }
        done
    }

    /// Asks with a statement, which is prepared the first time.
    fn ask(&self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, CatalogError> {
        self.with_session(|session| {
            let statement = match session.statements.get(sql) {
                Some(statement) => statement.clone(),
                None => {
                    // Statements are written as SQLite has them: one text serves both databases.
                    let text = sql.replace('?', "$").replace("BLOB", "bytea");
                    let statement = self.wait(session.client.prepare(&text))?;
                    session.statements.insert(sql.to_owned(), statement.clone());
                    statement
                }
            };
            self.wait(session.client.query(&statement, values))
        })
    }

    fn lost(&self, why: String) -> CatalogError {
        CatalogError::Server { place: self.url.to_string(), why }
    }

    fn failed(&self, error: &tokio_postgres::Error) -> CatalogError {
        let place = self.url.to_string();
        let Some(said) = error.as_db_error() else {
            let why = std::error::Error::source(error).map(ToString::to_string);
            let why = why.map(|why| format!("{error}: {why}")).unwrap_or(error.to_string());
            return CatalogError::Server { place, why };
        };
        let code = said.code().code();
        let mut why = format!("{} ({code})", said.message());
        match code {
            // It took too long, or waited for others who did.
            "57014" | "55P03" => {
                let seconds = self.url.statement_timeout.as_secs();
                let _ = write!(why, ": statement_timeout is {seconds} s");
                CatalogError::Server { place, why }
            }
            // The connection, the server's resources, its operator, others who wait for each other.
            _ if ["08", "53", "57", "40", "25"].contains(&&code[..2]) => {
                CatalogError::Server { place, why }
            }
            _ => CatalogError::Table { place, why },
        }
    }

    /// Has the tables of a schema made, if they are not there, and statements be of them.
    fn make(&self, schema: &str) -> Result<(), CatalogError> {
        // Two who make one at once would refuse each other.
        self.ask_plain("SELECT pg_advisory_xact_lock(hashtext('sheaf'), hashtext('schema'))")?;
        let sql = format!(
            "SELECT count(*) FROM pg_tables
            WHERE schemaname = '{schema}' AND tablename = 'tables_version'"
        );
        if self.number(&sql)? > 0 {
            let version = self.number(&format!("SELECT number FROM {schema}.tables_version"))?;
            // The tables of an older version are made again from the log. Those of a later one are
            // in use by a later Sheaf: to remove them would have the two undo each other's work.
            if version > TABLES_VERSION {
                let why = format!(
                    "the tables of schema {schema} have version {version}, and this Sheaf knows \
                     them up to {TABLES_VERSION}: use a later one, or remove the schema (DROP \
                     SCHEMA {schema} CASCADE), and it is made again"
                );
                return Err(CatalogError::Table { place: self.url.to_string(), why });
            }
            if version == TABLES_VERSION {
                return self.ask_plain(&format!("SET search_path = {schema}"));
            }
        }
        let tables = TABLES.replace("BLOB", "bytea").replace("WITHOUT ROWID", "");
        self.ask_plain(&format!(
            "DROP SCHEMA IF EXISTS {schema} CASCADE;
            CREATE SCHEMA {schema};
            SET search_path = {schema};
            CREATE TABLE tables_version (number BIGINT NOT NULL);
            INSERT INTO tables_version VALUES ({TABLES_VERSION});
            {tables}"
        ))
    }

    fn number(&self, sql: &str) -> Result<i64, CatalogError> {
        Ok(self.ask(sql, &[])?.first().map_or(0, |row| row.get(0)))
    }

    fn ask_plain(&self, sql: &str) -> Result<(), CatalogError> {
        self.with_session(|session| self.wait(session.client.batch_execute(sql)))
    }
}

impl Tables for PostgresTables {
    fn place(&self) -> String {
        self.url.to_string()
    }

    fn remedy(&self) -> String {
        match &self.schema {
            Some(schema) => format!("remove its schema (DROP SCHEMA {schema} CASCADE)"),
            None => "remove its schema".to_owned(),
        }
    }

    fn is_bound(&self) -> bool {
        let session = self.session.borrow();
        session.as_ref().is_some_and(|session| session.has_tables && !session.client.is_closed())
    }

    fn bind(&mut self, archive: &[u8; 32]) -> Result<(), CatalogError> {
        let mut schema = "sheaf_".to_owned();
        // The name of a schema has 63 bytes at most: there is no room for all 32.
        for byte in &archive[..16] {
            let _ = write!(schema, "{byte:02x}");
        }
        self.ask_plain("BEGIN")?;
        self.is_in_transaction.set(true);
        let made = self.make(&schema);
        // The transaction ends in either case: the connection is used again.
        let ended = self.end(made.is_ok());
        made?;
        ended?;
        self.schema = Some(schema);
        self.with_session(|session| {
            session.has_tables = true;
            Ok(())
        })
    }

    fn begin(&self, to: TablesUse) -> Result<(), CatalogError> {
        match to {
            TablesUse::Reading => {
                // Who reads files between may take as long as these do, and keeps nobody from anything.
                self.ask_plain(
                    "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY;
                    SET LOCAL idle_in_transaction_session_timeout = 0",
                )?
            }
            // The lock of this row is that of all tables.
            TablesUse::Writing => self.ask_plain("BEGIN; SELECT number FROM applied FOR UPDATE")?,
        }
        self.is_in_transaction.set(true);
        Ok(())
    }

    fn end(&self, is_done: bool) -> Result<(), CatalogError> {
        // Without the connection it is taken back.
        let ended = self.ask_plain(if is_done { "COMMIT" } else { "ROLLBACK" });
        self.is_in_transaction.set(false);
        ended
    }

    fn each(
        &self,
        sql: &str,
        values: &[RowValue<'_>],
        each: EachFound<'_>,
    ) -> Result<(), CatalogError> {
        // Before `bind`, the archive has no commit, so the tables have no row.
        if self.schema.is_none() {
            return Ok(());
        }
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(as_parameter).collect();
        self.ask(sql, &values)?.iter().try_for_each(|row| each(&FoundRow::Postgres(row)))
    }

    fn each_of_many(
        &self,
        many: &Many,
        rows: &[&[RowValue<'_>]],
        each: EachFound<'_>,
    ) -> Result<(), CatalogError> {
        if self.schema.is_none() {
            return Ok(());
        }
        let mut rest = rows;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().take(ROWS_AT_ONCE).take_while(|values| {
                // The first row goes even where it is too long alone: else the loop would not end.
                let is_first = bytes == 0;
                bytes += values.iter().map(bytes_of).sum::<usize>();
                is_first || bytes <= BYTES_AT_ONCE
            });
            let (now, later) = rest.split_at(fits.count());
            rest = later;
            let columns = columns(now);
            let values: Vec<&(dyn ToSql + Sync)> =
                columns.iter().map(ValueColumn::as_parameter).collect();
            let found = self.ask(many.postgres, &values)?;
            found.iter().try_for_each(|row| each(&FoundRow::Postgres(row)))?;
        }
        Ok(())
    }
}

fn as_parameter<'a>(value: &'a RowValue<'_>) -> &'a (dyn ToSql + Sync) {
    match value {
        RowValue::Bytes(bytes) => bytes,
        RowValue::Number(number) => number,
    }
}

fn bytes_of(value: &RowValue<'_>) -> usize {
    match value {
        RowValue::Bytes(bytes) => bytes.len() + 8,
        RowValue::Number(_) => 16,
    }
}

/// The values that many rows have in one column.
enum ValueColumn<'a> {
    Bytes(Vec<&'a [u8]>),
    Numbers(Vec<i64>),
}

impl ValueColumn<'_> {
    fn as_parameter(&self) -> &(dyn ToSql + Sync) {
        match self {
            Self::Bytes(all) => all,
            Self::Numbers(all) => all,
        }
    }
}

fn columns<'a>(rows: &[&[RowValue<'a>]]) -> Vec<ValueColumn<'a>> {
    let first = rows.first().copied().unwrap_or_default();
    let mut columns: Vec<ValueColumn<'a>> = first
        .iter()
        .map(|value| match value {
            RowValue::Bytes(_) => ValueColumn::Bytes(Vec::with_capacity(rows.len())),
            RowValue::Number(_) => ValueColumn::Numbers(Vec::with_capacity(rows.len())),
        })
        .collect();
    for values in rows {
        for (column, value) in columns.iter_mut().zip(*values) {
            match (column, value) {
                (ValueColumn::Bytes(all), RowValue::Bytes(bytes)) => all.push(bytes),
                (ValueColumn::Numbers(all), RowValue::Number(number)) => all.push(*number),
                _ => unreachable!("the rows of one statement have the same kinds of values"),
            }
        }
    }
    columns
}
