//! The finished parts of a stored trace: what is known of each without reading its rows, and which
//! of them stay.
//!
//! A part is a Parquet file; at its end, with its schema, stands how many operations are in it and how
//! many are told there to be lost. What is removed is counted in `trace.json` first, with the number
//! of the first part that stays, and taken away then: a part below that number is removed, whether
//! its file is gone yet or not. So the count is right whenever whoever stores is killed.
use crate::info::TraceInfo;
use crate::reader::{StoreReader, decoded, open_file};
use crate::report::{count, day};
use crate::store::{LOST_KEY, OPERATIONS_KEY, file_name, files_of};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::FileReader;
use parquet::file::statistics::Statistics;
use serde::{Deserialize, Serialize};
use sheaf_log::LOST;
use sheaf_log::files::remove;
use sheaf_log::{TraceError, TraceNames};
use std::collections::VecDeque;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// When a part of a trace is ended: at whichever comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartLimits {
    /// With so many rows; with the last ones that came at once they may be more.
    pub rows_max: u64,
    /// So long after it was begun, with anything in it.
    pub time_max: Duration,
}

impl PartLimits {
    /// The most rows, and those where nothing else is said.
    pub const ROWS_MAX: u64 = 1 << 20;

    /// Whether a part with so many rows, begun then, is to be ended.
    pub(crate) fn are_reached(&self, rows: u64, begun: Instant) -> bool {
        rows >= self.rows_max || (rows > 0 && begun.elapsed() >= self.time_max)
    }
}

impl Default for PartLimits {
    fn default() -> Self {
        Self { rows_max: Self::ROWS_MAX, time_max: Duration::from_secs(60) }
    }
}

/// Which finished parts of a trace stay: the oldest are removed until all of these hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeepLimits {
    /// They have so many bytes together at most.
    pub bytes_max: Option<u64>,
    /// The last operation of each began so long ago at most.
    pub time_max: Option<Duration>,
}

/// What was removed from a trace, as was asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RemovedParts {
    /// How many parts.
    pub parts: u64,
    /// Operations that were in them.
    pub operations: u64,
    /// Operations that were told there to be lost.
    pub lost: u64,
    /// The last of them began then, in ns since 1970.
    pub until_ns: i64,
    /// The number of the first part that is not removed.
    pub kept_from: u32,
}

impl RemovedParts {
    /// What was removed, in words.
    #[must_use]
    pub fn sentence(&self) -> String {
        let lost = match self.lost {
            0 => String::new(),
            lost => format!(" and counts of {} lost ones", count(lost)),
        };
        let (operations, until) = (count(self.operations), day(self.until_ns));
        format!(
            "{operations} operations{lost}, the last of {until}, were stored before and removed \
             since, as serve --keep says"
        )
    }

    fn add(&mut self, part: &PartFacts) {
        self.parts += 1;
        self.operations = self.operations.saturating_add(part.operations);
        self.lost = self.lost.saturating_add(part.lost);
        self.until_ns = self.until_ns.max(part.until_ns);
        self.kept_from = part.number + 1;
    }
}

impl KeepLimits {
    /// Whether the oldest part is more than stays, of so many bytes in all.
    fn is_beyond(&self, part: &PartFacts, bytes: u64, now_ns: i64) -> bool {
        let is_old = |time_max: Duration| {
            let age_ns = i128::from(now_ns) - i128::from(part.until_ns);
            age_ns > i128::try_from(time_max.as_nanos()).unwrap_or(i128::MAX)
        };
        self.bytes_max.is_some_and(|bytes_max| bytes > bytes_max)
            || self.time_max.is_some_and(is_old)
    }
}

/// A finished part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PartFacts {
    pub number: u32,
    pub bytes: u64,
    pub operations: u64,
    pub lost: u64,
    /// Its last operation began then; where that is not known, it was stored then.
    pub until_ns: i64,
}

impl PartFacts {
    /// Of a file, by what stands at its end; the rows are read of one that does not say.
    ///
    /// # Errors
    /// When it cannot be read.
    fn of(path: &Path, number: u32) -> Result<Self, TraceError> {
        let about = std::fs::metadata(path).map_err(TraceError::io(path))?;
        let file = open_file(path)?;
        let metadata = file.metadata();
        let (operations, lost) = match counts_of(metadata) {
            Some(counts) => counts,
            None => count_rows(path)?,
        };
        let last = decoded(|| Ok(last_of(metadata)));
        let last = last.map_err(|error| TraceError::damaged(path, error))?;
        let until_ns = last.unwrap_or_else(|| stored_ns(&about));
        Ok(Self { number, bytes: about.len(), operations, lost, until_ns })
    }

    /// Of a file that cannot be read: it takes its room all the same.
    fn unreadable(path: &Path, number: u32) -> Self {
        // Without a time it is never too old, because nothing shows that it is.
        let (bytes, until_ns) =
            std::fs::metadata(path).map_or((0, i64::MAX), |about| (about.len(), stored_ns(&about)));
        Self { number, bytes, until_ns, ..Self::default() }
    }
}

fn stored_ns(about: &Metadata) -> i64 {
    about.mtime().saturating_mul(1_000_000_000).saturating_add(about.mtime_nsec())
}

fn is_gone(error: &TraceError) -> bool {
    matches!(error, TraceError::Io { source, .. } if source.kind() == ErrorKind::NotFound)
}

/// Operations, and those that are lost, as it says itself.
fn counts_of(metadata: &ParquetMetaData) -> Option<(u64, u64)> {
    let said = metadata.file_metadata().key_value_metadata()?;
    let of = |key: &str| said.iter().find(|it| it.key == key)?.value.as_ref()?.parse::<u64>().ok();
    let (operations, lost) = (of(OPERATIONS_KEY)?, of(LOST_KEY)?);
    // Beside them are the rows that tell of lost ones, if there are any.
    let rows = u64::try_from(metadata.file_metadata().num_rows()).ok()?;
    let is_whole = if lost == 0 { operations <= rows } else { operations < rows };
    is_whole.then_some((operations, lost))
}

fn count_rows(path: &Path) -> Result<(u64, u64), TraceError> {
    let (mut operations, mut lost) = (0, 0_u64);
    let damaged = StoreReader::open(path)?.read(&mut TraceNames::default(), |row, names| {
        match names.text(row.op) == LOST {
            true => lost = lost.saturating_add(row.bytes.max(0).unsigned_abs()),
            false => operations += 1,
        }
        Ok(())
    })?;
    damaged.into_iter().next().map_or(Ok((operations, lost)), Err)
}

/// When the last operation began.
fn last_of(metadata: &ParquetMetaData) -> Option<i64> {
    let last = |group: usize| match metadata.row_group(group).column(0).statistics() {
        Some(Statistics::Int64(times)) => times.max_opt().copied(),
        _ => None,
    };
    (0..metadata.num_row_groups()).filter_map(last).max()
}

/// The finished parts of a trace that is being written, and which of them stay.
#[derive(Debug)]
pub(crate) struct PartKeeper {
    directory: PathBuf,
    limits: KeepLimits,
    /// By their numbers.
    parts: VecDeque<PartFacts>,
    /// Of all of them.
    bytes: u64,
    removed: RemovedParts,
    /// Those that are counted as removed, and are there still.
    counted: VecDeque<u32>,
}

impl PartKeeper {
    /// Of a directory that nobody else writes, and in which no spool is stored just now. What could
    /// not be read is told in `damaged`.
    ///
    /// # Errors
    /// When it cannot be read, or what was removed cannot be taken away.
    pub fn open(
        directory: &Path,
        removed: RemovedParts,
        limits: KeepLimits,
        damaged: &mut Vec<(PathBuf, String)>,
    ) -> Result<Self, TraceError> {
        let (parts, counted, directory) = (VecDeque::new(), VecDeque::new(), directory.to_owned());
        let mut keeper = Self { directory, limits, parts, bytes: 0, removed, counted };
        for (number, path) in files_of(&keeper.directory)? {
            if number < removed.kept_from {
                // It is counted already.
                std::fs::remove_file(&path).map_err(TraceError::io(&path))?;
            } else if path.extension().is_some_and(|extension| extension == "parquet") {
                damaged.extend(keeper.add(number).map(|why| (path, why)));
            }
        }
        Ok(keeper)
    }

    /// Takes in the part of a number, if there is one; why it cannot be read, if it cannot.
    pub fn add(&mut self, number: u32) -> Option<String> {
        let path = self.path_of(number);
        let (facts, why) = match PartFacts::of(&path, number) {
            Ok(facts) => (facts, None),
            // There was nothing to store.
            Err(error) if is_gone(&error) => return None,
            Err(TraceError::Damaged { why, .. }) => {
                (PartFacts::unreadable(&path, number), Some(why))
            }
            Err(error) => (PartFacts::unreadable(&path, number), Some(error.to_string())),
        };
        self.bytes = self.bytes.saturating_add(facts.bytes);
        self.parts.push_back(facts);
        why
    }

    /// Removes the oldest parts beyond what stays, counted first. Returns how many.
    ///
    /// # Errors
    /// When that cannot be written down: then none is removed; or when one cannot be taken away,
    /// which is tried again the next time.
    pub fn trim(&mut self, now_ns: i64) -> Result<u64, TraceError> {
        let (mut removed, mut bytes, mut beyond) = (self.removed, self.bytes, 0);
        for part in &self.parts {
            if !self.limits.is_beyond(part, bytes, now_ns) {
                break;
            }
            removed.add(part);
            bytes -= part.bytes;
            beyond += 1;
        }
        if beyond > 0 {
            let mut info = TraceInfo::read(&self.directory)?.unwrap_or_default();
            // The count is written before the first part is removed: otherwise it would be lost if
            // this process ends in between.
            info.removed = removed;
            info.write(&self.directory)?;
            (self.removed, self.bytes) = (removed, bytes);
            self.counted.extend(self.parts.drain(..beyond).map(|part| part.number));
        }
        while let Some(&number) = self.counted.front() {
            let path = self.path_of(number);
            remove(&path)?;
            self.counted.pop_front();
        }
        Ok(beyond as u64)
    }

    /// The number of the next part, behind all that are or were there.
    pub fn next(&self) -> u32 {
        self.parts.back().map_or(self.removed.kept_from, |part| part.number + 1)
    }

    /// What was removed, from the beginning.
    pub fn removed(&self) -> RemovedParts {
        self.removed
    }

    /// Operations in the parts that are there, and those that are told there to be lost.
    pub fn stored(&self) -> (u64, u64) {
        let sum =
            |of: fn(&PartFacts) -> u64| self.parts.iter().map(of).fold(0, u64::saturating_add);
        (sum(|part| part.operations), sum(|part| part.lost))
    }

    /// The path of a part.
    pub fn path_of(&self, number: u32) -> PathBuf {
        self.directory.join(file_name(number))
    }
}
