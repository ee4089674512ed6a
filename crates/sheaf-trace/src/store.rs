//! Rows in Parquet files: ordinary ones, which anything reads that reads Parquet.
//!
//! Times and offsets are stored as differences, names by their numbers in a dictionary; what is
//! left is compressed (zstd). A file is named `trace-N.parquet`, N counting up; one that is being
//! written ends in `.part`: cut off, it cannot be read, so that what is lost is at most a file's rows.
//! Whoever records ends each file after one part.
use crate::checksum::{CHECKSUM_KEY, SummedFile};
use bytes::Bytes;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use sheaf_log::LOST;
use sheaf_log::{TraceError, TraceNames, TraceRow};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) const SCHEMA: &str = "
    message trace {
        required int64 time (TIMESTAMP(NANOS,true));
        required int64 duration_ns;
        required binary op (STRING);
        required binary layer (STRING);
        required binary host (STRING);
        required binary command;
        required binary path;
        optional int64 offset;
        required int64 asked;
        required int64 bytes;
        required int32 errno;
        required int32 pid;
        required int32 thread;
        required boolean nested;
        optional binary new_path;
    }";
/// Columns that a file of an earlier version may lack, from here on.
pub(crate) const COLUMNS_MIN: usize = 14;

/// What stands at the end of each file: how many operations are in it, and how many are told there to
/// be lost.
pub(crate) const OPERATIONS_KEY: &str = "sheaf.operations";
pub(crate) const LOST_KEY: &str = "sheaf.lost";

/// Rows of a part of a file: what is in memory at most while it is written.
const PART_ROWS_MAX: usize = 1 << 20;

/// Writes rows to a directory's files.
pub struct TraceStore {
    directory: PathBuf,
    file_rows_max: u64,
    number: u32,
    rows: Vec<TraceRow>,
    open: Option<StoreFile>,
    written: u64,
    kept: u64,
}

struct StoreFile {
    path: PathBuf,
    writer: SerializedFileWriter<SummedFile>,
    rows: u64,
    operations: u64,
    lost: u64,
}

impl TraceStore {
    /// Goes on in a directory, which is made if it is not there: with a file of its own.
    ///
    /// # Errors
    /// When it cannot be made or read.
    pub fn open(directory: &Path, file_rows_max: u64) -> Result<Self, TraceError> {
        std::fs::create_dir_all(directory).map_err(TraceError::io(directory))?;
        let number = files_of(directory)?.iter().map(|(number, _)| number + 1).max().unwrap_or(0);
        Ok(Self { file_rows_max, ..Self::numbered(directory, number) })
    }

    /// One file in a directory that is there, with this number.
    pub(crate) fn numbered(directory: &Path, number: u32) -> Self {
        let directory = directory.to_owned();
        let (rows, open, written, kept) = (Vec::new(), None, 0, 0);
        Self { directory, file_rows_max: u64::MAX, number, rows, open, written, kept }
    }

    /// Whether there is no file in a directory, and nothing that is to be one.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn is_empty(directory: &Path) -> Result<bool, TraceError> {
        Ok(files_of(directory)?.is_empty() && sheaf_log::spool::spools_of(directory)?.is_empty())
    }

    /// Whether a directory has no file of rows, though it may have rows that are in none yet.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn has_no_file(directory: &Path) -> Result<bool, TraceError> {
        Ok(files_of(directory)?.is_empty())
    }

    /// Whether rows are there that are in no file yet.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn has_spools(directory: &Path) -> Result<bool, TraceError> {
        Ok(!sheaf_log::spool::spools_of(directory)?.is_empty())
    }

    /// Whether the file of this number is there as a whole. What is left of one that is not is taken
    /// away.
    pub(crate) fn has_file(directory: &Path, number: u32) -> Result<bool, TraceError> {
        let whole = directory.join(file_name(number));
        let part = directory.join(format!("{}.part", file_name(number)));
        sheaf_log::files::remove(&part)?;
        whole.try_exists().map_err(TraceError::io(&whole))
    }

    /// Rows written so far, and those that wait for more.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.written + self.rows.len() as u64
    }

    /// Operations in files that are ended: what stays, whatever happens. Rows that tell of lost
    /// operations are none.
    #[must_use]
    pub fn kept(&self) -> u64 {
        self.kept
    }

    /// Adds rows; a part is written when there are enough.
    ///
    /// # Errors
    /// When the disk is full, or a file cannot be made or written. Files that were ended before
    /// stay; the one that is not is taken away, as it could not be read.
    pub fn push(&mut self, rows: &[TraceRow], names: &TraceNames) -> Result<(), TraceError> {
        for rows in rows.chunks(PART_ROWS_MAX) {
            self.rows.extend_from_slice(rows);
            if self.rows.len() >= PART_ROWS_MAX {
                self.write_part(names)?;
            }
        }
        Ok(())
    }

    /// Writes what waits, and ends the file that is being written.
    ///
    /// # Errors
    /// As [`TraceStore::push`].
    pub fn finish(&mut self, names: &TraceNames) -> Result<(), TraceError> {
        if !self.rows.is_empty() {
            self.write_part(names)?;
        }
        self.end_file()
    }

    fn write_part(&mut self, names: &TraceNames) -> Result<(), TraceError> {
        let mut rows = std::mem::take(&mut self.rows);
        // Only parts are sorted: a reader merges them.
        rows.sort_by_key(|row| row.time_ns);
        if self.open.is_none() {
            self.open = Some(self.begin_file()?);
        }
        let open = self.open.as_mut().expect("just opened");
        if let Err(error) = write_rows(&mut open.writer, &rows, names) {
            let error = TraceError::damaged(&open.path, error);
            return Err(self.give_up(error));
        }
        let lost = names.find(LOST);
        open.rows += rows.len() as u64;
        for row in &rows {
            if Some(row.op) == lost {
                open.lost = open.lost.saturating_add(row.bytes.max(0).unsigned_abs());
            } else {
                open.operations += 1;
            }
        }
        self.written += rows.len() as u64;
        if open.rows >= self.file_rows_max {
            self.end_file()?;
        }
        Ok(())
    }

    fn begin_file(&self) -> Result<StoreFile, TraceError> {
        let path = self.directory.join(format!("{}.part", file_name(self.number)));
        let file = File::options()
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(TraceError::io(&path))?;
        let schema = parse_message_type(SCHEMA).expect("a schema of ours");
        let writer = SerializedFileWriter::new(
            SummedFile::new(file),
            Arc::new(schema),
            Arc::new(properties()),
        )
        .map_err(|error| TraceError::damaged(&path, error))?;
        Ok(StoreFile { path, writer, rows: 0, operations: 0, lost: 0 })
    }

    fn end_file(&mut self) -> Result<(), TraceError> {
        let Some(mut open) = self.open.take() else { return Ok(()) };
        let (path, operations) = (open.path, open.operations);
        let flushed = open.writer.flush().map_err(TraceError::io(&path));
        let sums = open.writer.inner_mut().begin_footer();
        // The sums first: what makes the list shorter leaves them in it.
        for (key, said) in [
            (CHECKSUM_KEY, sums),
            (OPERATIONS_KEY, operations.to_string()),
            (LOST_KEY, open.lost.to_string()),
        ] {
            open.writer.append_key_value_metadata(KeyValue::new(key.to_owned(), said));
        }
        let ended = flushed.and_then(|()| match open.writer.into_inner() {
            Ok(file) => file.end().map_err(TraceError::io(&path)),
            Err(error) => Err(TraceError::damaged(&path, error)),
        });
        // A file has its own name only when it is complete.
        let named = ended.and_then(|()| {
            std::fs::rename(&path, path.with_extension("")).map_err(TraceError::io(&path))
        });
        if let Err(error) = named {
            remove(&path);
            return Err(error);
        }
        self.number += 1;
        self.kept += operations;
        Ok(())
    }

    /// Takes away the file that could not be written.
    fn give_up(&mut self, error: TraceError) -> TraceError {
        if let Some(StoreFile { path, writer, .. }) = self.open.take() {
            drop(writer);
            remove(&path);
        }
        error
    }
}

/// Takes away a file that could not be written. Where that fails, too, whoever reads the directory
/// is told of a damaged file.
fn remove(path: &Path) {
    let _ = std::fs::remove_file(path);
}

pub(crate) fn file_name(number: u32) -> String {
    format!("trace-{number:06}.parquet")
}

fn properties() -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_max_row_group_row_count(Some(PART_ROWS_MAX));
    for column in ["time", "duration_ns", "offset", "asked", "bytes"] {
        let column = ColumnPath::from(column);
        properties = properties
            .set_column_dictionary_enabled(column.clone(), false)
            .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
    }
    properties.build()
}

type PartWritten = parquet::errors::Result<()>;

fn write_rows(
    writer: &mut SerializedFileWriter<SummedFile>,
    rows: &[TraceRow],
    names: &TraceNames,
) -> PartWritten {
    // TraceNames lie in memory once, however many rows have them.
    let texts: Vec<ByteArray> = (0..names.len() as u32)
        .map(|number| ByteArray::from(Bytes::copy_from_slice(names.text(number))))
        .collect();
    let mut part = writer.next_row_group()?;
    let mut column = 0;
    while let Some(mut next) = part.next_column()? {
        match next.untyped() {
            ColumnWriter::Int64ColumnWriter(writer) => {
                let of: fn(&TraceRow) -> i64 = match column {
                    0 => |row| row.time_ns,
                    1 => |row| row.duration_ns,
                    8 => |row| row.asked,
                    9 => |row| row.bytes,
                    _ => |_| 0,
                };
                if column == 7 {
                    let values: Vec<i64> = rows.iter().filter_map(|row| row.offset).collect();
                    let there: Vec<i16> =
                        rows.iter().map(|row| i16::from(row.offset.is_some())).collect();
                    writer.write_batch(&values, Some(&there), None)?;
                } else {
                    let values: Vec<i64> = rows.iter().map(of).collect();
                    writer.write_batch(&values, None, None)?;
                }
            }
            ColumnWriter::Int32ColumnWriter(writer) => {
                let of: fn(&TraceRow) -> i32 = match column {
                    10 => |row| row.errno,
                    11 => |row| row.pid,
                    _ => |row| row.thread,
                };
                writer.write_batch(&rows.iter().map(of).collect::<Vec<_>>(), None, None)?;
            }
            ColumnWriter::ByteArrayColumnWriter(writer) => {
                if column == COLUMNS_MIN {
                    let named = rows.iter().filter_map(|row| row.new_path);
                    let values: Vec<ByteArray> =
                        named.map(|name| texts[name as usize].clone()).collect();
                    let there: Vec<i16> =
                        rows.iter().map(|row| i16::from(row.new_path.is_some())).collect();
                    writer.write_batch(&values, Some(&there), None)?;
                    next.close()?;
                    column += 1;
                    continue;
                }
                let of: fn(&TraceRow) -> u32 = match column {
                    2 => |row| row.op,
                    3 => |row| row.layer,
                    4 => |row| row.host,
                    5 => |row| row.command,
                    _ => |row| row.path,
                };
                let values: Vec<ByteArray> =
                    rows.iter().map(|row| texts[of(row) as usize].clone()).collect();
                writer.write_batch(&values, None, None)?;
            }
            ColumnWriter::BoolColumnWriter(writer) => {
                let values: Vec<bool> = rows.iter().map(|row| row.is_nested).collect();
                writer.write_batch(&values, None, None)?;
            }
            _ => unreachable!("the schema has no other types"),
        }
        next.close()?;
        column += 1;
    }
    part.close()?;
    Ok(())
}

/// The files of a directory by their numbers, also those that are not ended.
pub(crate) fn files_of(directory: &Path) -> Result<Vec<(u32, PathBuf)>, TraceError> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(TraceError::io(directory))? {
        let path = entry.map_err(TraceError::io(directory))?.path();
        let number = number_of(&path);
        files.extend(number.map(|number| (number, path)));
    }
    files.sort();
    Ok(files)
}

/// The number of a file by its name; nothing of other files.
pub(crate) fn number_of(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?.strip_prefix("trace-")?;
    name.split_once(".parquet")?.0.parse().ok()
}
