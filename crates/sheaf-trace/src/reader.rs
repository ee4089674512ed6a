//! Reads what a [`TraceStore`](crate::TraceStore) has written: column by column, batch by batch.
use crate::checksum::{self, CHECKSUM_KEY};
use crate::info::TraceInfo;
use crate::parts::RemovedParts;
use crate::store::{COLUMNS_MIN, OPERATIONS_KEY, SCHEMA, file_name, files_of, number_of};
use parquet::basic::Repetition;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::metadata::FileMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::statistics::Statistics;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{SchemaDescriptor, Type};
use rustc_hash::FxHashMap;
use sheaf_log::spool;
use sheaf_log::{TraceError, TraceNames, TraceRow};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// Rows that are decoded at once: some megabytes.
const BATCH_ROWS: usize = 32 << 10;
/// Parts that are read side by side, some megabytes each; when more overlap, the order is not whole.
pub const PARTS_OPEN_MAX: usize = 64;
/// What names may take in memory; the rest of them are one, [`OTHER_NAME`], and that is told.
pub const NAME_BYTES_MAX: usize = 1 << 30;
/// What paths and commands are called for which there is no room.
pub const OTHER_NAME: &[u8] = b"(names beyond the limit)";

/// Reads the rows of a directory's files, part by part.
#[derive(Debug)]
pub struct StoreReader {
    files: Vec<PathBuf>,
    /// What is not in files yet, by the numbers of the files that it will be in.
    spools: BTreeMap<u32, PathBuf>,
    name_bytes_max: usize,
    /// The directory, if it is one, and what was removed there before.
    directory: Option<PathBuf>,
    removed: RemovedParts,
}

impl StoreReader {
    /// Of all files of a directory, or of one file. Of a trace that is being recorded, what has come
    /// so far is there, too.
    ///
    /// # Errors
    /// When it cannot be read, or there is no trace.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let name_bytes_max = NAME_BYTES_MAX;
        let is_directory = std::fs::metadata(path).map_err(TraceError::io(path))?.is_dir();
        if !is_directory {
            return Ok(Self {
                files: vec![path.to_owned()],
                spools: BTreeMap::new(),
                name_bytes_max,
                directory: None,
                removed: RemovedParts::default(),
            });
        }
        // In this order: what becomes a file meanwhile is there twice, and read once.
        let mut spools = spool::spools_of(path)?;
        let mut files = files_of(path)?;
        // What is removed is counted first: nothing is there and counted as well.
        let removed = TraceInfo::read(path)?.unwrap_or_default().removed;
        files.retain(|(number, _)| *number >= removed.kept_from);
        if files.is_empty() && spools.is_empty() && removed.parts == 0 {
            return Err(TraceError::damaged(path, "there is no trace (trace-*.parquet)"));
        }
        for (number, path) in &files {
            if path.extension().is_some_and(|extension| extension == "parquet") {
                spools.remove(number);
            }
        }
        // A file that is being made of a spool is read when it is whole, and the spool until then.
        let is_made = |(number, path): &(u32, PathBuf)| {
            path.extension().is_some_and(|extension| extension == "part")
                && spools.contains_key(number)
        };
        let files = files.into_iter().filter(|file| !is_made(file)).map(|(_, path)| path).collect();
        let directory = Some(path.to_owned());
        Ok(Self { files, spools, name_bytes_max, directory, removed })
    }

    /// What was removed from the trace before it was opened here; nothing of it is read.
    #[must_use]
    pub fn removed(&self) -> RemovedParts {
        self.removed
    }

    /// With another limit than [`NAME_BYTES_MAX`].
    #[must_use]
    pub fn with_name_bytes_max(self, name_bytes_max: usize) -> Self {
        Self { name_bytes_max, ..self }
    }

    /// Gives each row to `take`, in the order of their times: parts whose times overlap are read side
    /// by side, [`PARTS_OPEN_MAX`] at most. What cannot be read is told, and the rest read all the
    /// same.
    ///
    /// # Errors
    /// Those of `take`.
    pub fn read(
        &self,
        names: &mut TraceNames,
        mut take: impl FnMut(&TraceRow, &TraceNames) -> Result<(), TraceError>,
    ) -> Result<Vec<TraceError>, TraceError> {
        let mut damaged = Vec::new();
        let mut limited = LimitedNames { names, bytes_max: self.name_bytes_max, beyond: 0 };
        self.merge(&mut limited, &mut take, &mut damaged)?;
        self.tell_removed(&mut damaged)?;
        if limited.beyond > 0 {
            let why = format!(
                "{} names did not fit in the {} bytes that names may take; their rows are \
                 counted under “{}”",
                limited.beyond,
                self.name_bytes_max,
                String::from_utf8_lossy(OTHER_NAME)
            );
            damaged.extend(self.files.first().map(|path| TraceError::damaged(path, why)));
        }
        Ok(damaged)
    }

    /// Files that are gone because they were removed meanwhile are no damage: they are told as one.
    /// A spool that is gone and has no file had nothing.
    fn tell_removed(&self, damaged: &mut Vec<TraceError>) -> Result<(), TraceError> {
        let gone = |error: &TraceError| match error {
            TraceError::Io { path, source } if source.kind() == ErrorKind::NotFound => {
                number_of(path)
            }
            _ => None,
        };
        let Some(directory) = &self.directory else { return Ok(()) };
        if damaged.iter().all(|error| gone(error).is_none()) {
            return Ok(());
        }
        // Read after the files, because parts were removed since they were listed.
        let kept_from = TraceInfo::read(directory)?.unwrap_or_default().removed.kept_from;
        let mut removed = BTreeSet::new();
        damaged.retain(|error| match gone(error) {
            Some(number) if number < kept_from => {
                removed.insert(number);
                false
            }
            Some(number) => !self.spools.contains_key(&number),
            None => true,
        });
        if !removed.is_empty() {
            let (path, parts) = (directory.clone(), removed.len() as u64);
            damaged.push(TraceError::Removed { path, parts });
        }
        Ok(())
    }

    /// The error is the taker's; those of files go to `damaged`.
    fn merge(
        &self,
        names: &mut LimitedNames<'_>,
        take: &mut impl FnMut(&TraceRow, &TraceNames) -> Result<(), TraceError>,
        damaged: &mut Vec<TraceError>,
    ) -> Result<(), TraceError> {
        let (mut files, mut open) = (self.files.clone(), Vec::new());
        for (number, path) in &self.spools {
            match PartCursor::of_spool(path, names) {
                Ok(cursor) => open.extend(cursor),
                // Its file is there by now.
                Err(TraceError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                    files.push(path.with_file_name(file_name(*number)));
                }
                Err(error) => damaged.push(error),
            }
        }
        let mut parts: VecDeque<StoredPart> = parts_of(&files, damaged).into();
        loop {
            let least = open.iter().map(|cursor| cursor.time).min();
            let next = parts.front().map(|part| part.begin);
            let is_due = next.is_some_and(|next| least.is_none_or(|least| next <= least));
            if is_due && open.len() < PARTS_OPEN_MAX {
                let part = parts.pop_front().expect("it is there");
                match PartCursor::open(&part, names) {
                    Ok(cursor) => open.extend(cursor),
                    Err(error) => damaged.push(error),
                }
                continue;
            }
            let first = (0..open.len()).min_by_key(|&at| open[at].time);
            let Some(at) = first else { return Ok(()) };
            let others = open.iter().enumerate().filter(|(other, _)| *other != at);
            // Up to the next row of any other part, this one is read without comparing.
            let until = others.map(|(_, cursor)| cursor.time).chain(next).min();
            let cursor = &mut open[at];
            // One row at least: what comes next may be of the same time.
            loop {
                take(&cursor.row(), names.names)?;
                cursor.at += 1;
                match cursor.advance(names) {
                    Ok(true) if until.is_none_or(|until| cursor.time < until) => {}
                    Ok(true) => break,
                    Ok(false) => {
                        open.swap_remove(at);
                        break;
                    }
                    Err(error) => {
                        damaged.push(cursor.part.damaged(error));
                        open.swap_remove(at);
                        break;
                    }
                }
            }
        }
    }
}

/// A part of a file.
#[derive(Debug, Clone)]
struct StoredPart {
    path: PathBuf,
    part: usize,
    parts: usize,
    /// The time of its first row.
    begin: i64,
}

impl StoredPart {
    fn damaged(&self, error: ParquetError) -> TraceError {
        let why = format!("part {} of {}: {error}", self.part, self.parts);
        TraceError::damaged(&self.path, why)
    }
}

/// The parts of files, in the order of their times.
fn parts_of(files: &[PathBuf], damaged: &mut Vec<TraceError>) -> Vec<StoredPart> {
    let mut all = Vec::new();
    let mut last = i64::MIN;
    for path in files {
        let reader = match open_file(path) {
            Ok(reader) => reader,
            Err(error) => {
                damaged.push(error);
                continue;
            }
        };
        let metadata = reader.metadata();
        damaged.extend(checked(path, metadata.file_metadata()).err());
        let parts = metadata.num_row_groups();
        for part in 0..parts {
            let least = match metadata.row_group(part).column(0).statistics() {
                Some(Statistics::Int64(times)) => times.min_opt().copied(),
                _ => None,
            };
            // What does not say when it begins stays where it is.
            last = least.unwrap_or(last);
            all.push(StoredPart { path: path.clone(), part, parts, begin: last });
        }
    }
    all.sort_by_key(|part| part.begin);
    all
}

/// Where a part is being read.
struct PartCursor {
    part: StoredPart,
    readers: Vec<ColumnReader>,
    left: u64,
    batch: ColumnBatch,
    /// Of what is no file yet: all of it.
    spooled: Vec<TraceRow>,
    /// The row of the batch that is next, and how many it has.
    at: usize,
    rows: usize,
    /// The time of that row.
    time: i64,
}

impl PartCursor {
    /// At its first row; nothing of one that has none.
    fn open(part: &StoredPart, names: &mut LimitedNames<'_>) -> Result<Option<Self>, TraceError> {
        let file = open_file(&part.path)?;
        let mut begin = || {
            let group = decoded(|| file.get_row_group(part.part))?;
            let columns = group.metadata().num_columns();
            let readers = decoded(|| (0..columns).map(|at| group.get_column_reader(at)).collect())?;
            let left = u64::try_from(group.metadata().num_rows())
                .map_err(|_| ParquetError::General("fewer rows than none".to_owned()))?;
            let (batch, part) = (ColumnBatch::default(), part.clone());
            let spooled = Vec::new();
            let mut cursor =
                Self { part, readers, left, batch, spooled, at: 0, rows: 0, time: i64::MIN };
            Ok(cursor.advance(names)?.then_some(cursor))
        };
        begin().map_err(|error| part.damaged(error))
    }

    /// What is in a spool by now; nothing in one that has nothing.
    fn of_spool(path: &Path, names: &mut LimitedNames<'_>) -> Result<Option<Self>, TraceError> {
        let (mut spooled, mut own) = (Vec::new(), TraceNames::default());
        // It may be written just now; what was cut off is told by whoever makes a file of it.
        spool::read(path, &mut own, |rows, _| {
            spooled.extend_from_slice(rows);
            Ok(())
        })?;
        let numbers: Vec<u32> =
            (0..own.len() as u32).map(|name| names.number(own.text(name))).collect();
        for row in &mut spooled {
            row.names_mut().for_each(|name| *name = numbers[*name as usize]);
        }
        // A spool has rows in the order in which rings were read.
        spooled.sort_by_key(|row| row.time_ns);
        let Some(first) = spooled.first() else { return Ok(None) };
        let (rows, time) = (spooled.len(), first.time_ns);
        let part = StoredPart { path: path.to_owned(), part: 0, parts: 1, begin: time };
        let (readers, batch) = (Vec::new(), ColumnBatch::default());
        Ok(Some(Self { part, readers, left: 0, batch, spooled, at: 0, rows, time }))
    }

    fn row(&self) -> TraceRow {
        self.spooled.get(self.at).copied().unwrap_or_else(|| self.batch.row(self.at))
    }

    /// Has the next row at hand; `false` where there is none.
    fn advance(&mut self, names: &mut LimitedNames<'_>) -> Result<bool, ParquetError> {
        if self.at == self.rows {
            if self.left == 0 {
                return Ok(false);
            }
            let rows = self.left.min(BATCH_ROWS as u64) as usize;
            self.rows = decoded(|| self.batch.fill(&mut self.readers, rows, names))?;
            (self.left, self.at) = (self.left - self.rows as u64, 0);
        }
        self.time = match self.spooled.get(self.at) {
            Some(row) => row.time_ns,
            None => self.batch.time[self.at],
        };
        Ok(true)
    }
}

/// Names up to a limit.
struct LimitedNames<'a> {
    names: &'a mut TraceNames,
    bytes_max: usize,
    /// Texts that found no room, one in several batches as often.
    beyond: u64,
}

impl LimitedNames<'_> {
    fn number(&mut self, text: &[u8]) -> u32 {
        if let Some(number) = self.names.find(text) {
            return number;
        }
        if self.names.bytes() + text.len() > self.bytes_max {
            self.beyond += 1;
            return self.names.number(OTHER_NAME);
        }
        self.names.number(text)
    }
}

const NOT_AS_WRITTEN: &str =
    "it is not as it was written (checksum): what is read of it may be wrong";

/// That a file is as it was written; what can be read of one that is not is read all the same.
fn checked(path: &Path, about: &FileMetaData) -> Result<(), TraceError> {
    let footer = about.key_value_metadata().into_iter().flatten();
    let Some(said) =
        footer.filter(|said| said.key == CHECKSUM_KEY).find_map(|said| said.value.as_ref())
    else {
        // Files of other programs have no checksum. If damage hid Sheaf's, its keys are still in the footer's bytes.
        let lost = checksum::footer_names(path, &[CHECKSUM_KEY, OPERATIONS_KEY]);
        return match lost.map_err(TraceError::io(path))? {
            true => Err(TraceError::damaged(path, NOT_AS_WRITTEN)),
            false => Ok(()),
        };
    };
    if checksum::is_as_written(path, said).map_err(TraceError::io(path))? {
        return Ok(());
    }
    Err(TraceError::damaged(path, NOT_AS_WRITTEN))
}

pub(crate) fn open_file(path: &Path) -> Result<SerializedFileReader<File>, TraceError> {
    let file = sheaf_log::files::open(path)?;
    let reader = decoded(|| SerializedFileReader::new(file));
    let reader = reader.map_err(|error| cut_off(path, error))?;
    check_schema(reader.metadata().file_metadata().schema_descr())
        .map_err(|why| TraceError::damaged(path, why))?;
    Ok(reader)
}

/// What is decoded. The Parquet library panics at some bytes that no writer writes: that is damage as
/// any other.
pub(crate) fn decoded<T>(
    decode: impl FnOnce() -> Result<T, ParquetError>,
) -> Result<T, ParquetError> {
    let undecodable = |_| Err(ParquetError::General("it cannot be decoded".to_owned()));
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(undecodable)
}

/// A file without an end is one that was being written.
fn cut_off(path: &Path, error: ParquetError) -> TraceError {
    if path.extension().is_some_and(|extension| extension == "part") {
        let bytes = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        let why = format!(
            "was not ended, as whoever wrote it was: the rows in its {bytes} bytes are lost, and \
             those that were still in memory"
        );
        return TraceError::damaged(path, why);
    }
    TraceError::damaged(path, error)
}

/// Says in what a file is none of ours.
fn check_schema(schema: &SchemaDescriptor) -> Result<(), String> {
    let ours = parse_message_type(SCHEMA).expect("a schema of ours");
    let said = |field: &Type| {
        let repetition = match field.get_basic_info().repetition() {
            Repetition::REQUIRED => "required",
            Repetition::OPTIONAL => "optional",
            Repetition::REPEATED => "repeated",
        };
        let kind = if field.is_primitive() {
            field.get_physical_type().to_string()
        } else {
            "group".to_owned()
        };
        format!("{repetition} {kind} {}", field.name().escape_default())
    };
    let theirs = schema.root_schema().get_fields();
    for (at, field) in ours.get_fields().iter().enumerate() {
        let wanted = said(field);
        match theirs.get(at).map(|field| said(field)) {
            Some(there) if there == wanted => {}
            Some(there) => {
                return Err(format!(
                    "is Parquet, but no trace: column {} is “{there}”, not “{wanted}”",
                    at + 1
                ));
            }
            None if at >= COLUMNS_MIN => {}
            None => return Err(format!("is Parquet, but no trace: it has no column “{wanted}”")),
        }
    }
    match theirs.get(ours.get_fields().len()) {
        Some(more) => Err(format!("is Parquet, but no trace: it has a column “{}”", said(more))),
        None => Ok(()),
    }
}

/// The columns of some rows.
#[derive(Default)]
struct ColumnBatch {
    time: Vec<i64>,
    duration: Vec<i64>,
    /// Of operation, layer, host, command and path.
    names: [Vec<u32>; 5],
    texts: Vec<ByteArray>,
    numbers: FxHashMap<(usize, usize), u32>,
    offset: Vec<Option<i64>>,
    offsets: Vec<i64>,
    is_there: Vec<i16>,
    asked: Vec<i64>,
    bytes: Vec<i64>,
    errno: Vec<i32>,
    pid: Vec<i32>,
    thread: Vec<i32>,
    nested: Vec<bool>,
    new_path: Vec<Option<u32>>,
}

impl ColumnBatch {
    /// Reads so many rows.
    fn fill(
        &mut self,
        readers: &mut [ColumnReader],
        rows: usize,
        names: &mut LimitedNames<'_>,
    ) -> Result<usize, ParquetError> {
        for (at, reader) in readers.iter_mut().enumerate() {
            match (at, reader) {
                (0, ColumnReader::Int64ColumnReader(reader)) => {
                    values(reader, rows, &mut self.time)
                }
                (1, ColumnReader::Int64ColumnReader(reader)) => {
                    values(reader, rows, &mut self.duration)
                }
                (2..=6, ColumnReader::ByteArrayColumnReader(reader)) => {
                    values(reader, rows, &mut self.texts).map(|()| self.number(at - 2, names))
                }
                (7, ColumnReader::Int64ColumnReader(reader)) => {
                    let there = &mut self.is_there;
                    optional(reader, rows, (there, &mut self.offsets), &mut self.offset, |at| *at)
                }
                (8, ColumnReader::Int64ColumnReader(reader)) => {
                    values(reader, rows, &mut self.asked)
                }
                (9, ColumnReader::Int64ColumnReader(reader)) => {
                    values(reader, rows, &mut self.bytes)
                }
                (10, ColumnReader::Int32ColumnReader(reader)) => {
                    values(reader, rows, &mut self.errno)
                }
                (11, ColumnReader::Int32ColumnReader(reader)) => {
                    values(reader, rows, &mut self.pid)
                }
                (12, ColumnReader::Int32ColumnReader(reader)) => {
                    values(reader, rows, &mut self.thread)
                }
                (13, ColumnReader::BoolColumnReader(reader)) => {
                    values(reader, rows, &mut self.nested)
                }
                (14, ColumnReader::ByteArrayColumnReader(reader)) => {
                    let number = |text: &ByteArray| names.number(text.data());
                    let there = &mut self.is_there;
                    optional(reader, rows, (there, &mut self.texts), &mut self.new_path, number)
                }
                _ => Err(ParquetError::General(format!("column {at} is of another type"))),
            }?;
        }
        // A file of an earlier version has no column for new paths.
        if readers.len() <= COLUMNS_MIN {
            self.new_path.clear();
            self.new_path.resize(rows, None);
        }
        Ok(rows)
    }

    /// Texts to numbers. Those of a dictionary lie at one place however many rows have them, as
    /// long as they are held, which is to the next batch: each place is looked up once.
    fn number(&mut self, column: usize, names: &mut LimitedNames<'_>) {
        let numbers = &mut self.names[column];
        numbers.clear();
        self.numbers.clear();
        let mut last = (usize::MAX, 0);
        let mut number = 0;
        for text in &self.texts {
            let text = text.data();
            let place = (text.as_ptr() as usize, text.len());
            if place != last {
                number = *self.numbers.entry(place).or_insert_with(|| names.number(text));
                last = place;
            }
            numbers.push(number);
        }
    }

    fn row(&self, at: usize) -> TraceRow {
        let [op, layer, host, command, path] = &self.names;
        TraceRow {
            time_ns: self.time[at],
            duration_ns: self.duration[at],
            op: op[at],
            layer: layer[at],
            host: host[at],
            command: command[at],
            path: path[at],
            offset: self.offset[at],
            asked: self.asked[at],
            bytes: self.bytes[at],
            errno: self.errno[at],
            pid: self.pid[at],
            thread: self.thread[at],
            is_nested: self.nested[at],
            new_path: self.new_path[at],
        }
    }
}

fn values<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    into: &mut Vec<T::T>,
) -> Result<(), ParquetError> {
    into.clear();
    let (read, _, _) = reader.read_records(rows, None, None, into)?;
    if read == rows { Ok(()) } else { Err(too_few(read, rows)) }
}

/// The values of a column that not all rows have.
fn optional<T: DataType, V>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    (is_there, values): (&mut Vec<i16>, &mut Vec<T::T>),
    into: &mut Vec<Option<V>>,
    mut of: impl FnMut(&T::T) -> V,
) -> Result<(), ParquetError> {
    is_there.clear();
    values.clear();
    let (read, _, levels) = reader.read_records(rows, Some(is_there), None, values)?;
    if read != rows || levels != rows {
        return Err(too_few(read, rows));
    }
    into.clear();
    let mut values = values.iter();
    let value = |is_there: &i16| (*is_there > 0).then(|| values.next()).flatten().map(&mut of);
    into.extend(is_there.iter().map(value));
    Ok(())
}

fn too_few(read: usize, rows: usize) -> ParquetError {
    ParquetError::General(format!("a column has {read} values where {rows} rows are"))
}
