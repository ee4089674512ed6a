//! Sums over a trace, made row by row.
use crate::{TraceNames, TraceRow};
use std::collections::BTreeMap;

/// Buckets of sizes: bucket n counts sizes below 2ⁿ, and not below the one before.
const SIZES: usize = 64;

/// Sums of one operation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpSummary {
    /// How often it was done.
    pub count: u64,
    /// How often it failed.
    pub failed: u64,
    /// Bytes that it moved.
    pub bytes: u64,
    /// Time it took, in ns, by all threads together.
    pub time_ns: u64,
    /// The longest, in ns.
    pub longest_ns: u64,
}

impl OpSummary {
    fn add(&mut self, row: &TraceRow) {
        self.count += 1;
        self.failed += u64::from(row.errno != 0);
        self.bytes += row.bytes.max(0) as u64;
        self.time_ns += row.duration_ns.max(0) as u64;
        self.longest_ns = self.longest_ns.max(row.duration_ns.max(0) as u64);
    }
}

/// Sums of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSummary {
    /// What was read.
    pub reads: OpSummary,
    /// What was written.
    pub writes: OpSummary,
    /// All else.
    pub other: OpSummary,
    /// Of reads and writes with a known offset: those that began where the one before had ended,
    /// and those that began behind it.
    pub consecutive: u64,
    /// See [`FileSummary::consecutive`].
    pub ahead: u64,
    /// Those with a known offset.
    pub placed: u64,
    /// Of these, those that began at a multiple of 4,096.
    pub aligned: u64,
    /// How many of them asked for less than 2ⁿ bytes, and for no less than the bucket before.
    pub sizes: [u64; SIZES],
    end: i64,
}

impl Default for FileSummary {
    fn default() -> Self {
        Self {
            reads: OpSummary::default(),
            writes: OpSummary::default(),
            other: OpSummary::default(),
            consecutive: 0,
            ahead: 0,
            placed: 0,
            aligned: 0,
            sizes: [0; SIZES],
            end: 0,
        }
    }
}

impl FileSummary {
    /// Time of all its operations, in ns.
    #[must_use]
    pub fn time_ns(&self) -> u64 {
        self.reads.time_ns + self.writes.time_ns + self.other.time_ns
    }
}

/// Sums over a trace.
#[derive(Debug, Clone, Default)]
pub struct TraceSummary {
    /// By operation.
    pub ops: BTreeMap<Vec<u8>, OpSummary>,
    /// By file.
    pub files: BTreeMap<Vec<u8>, FileSummary>,
    /// Operations.
    pub rows: u64,
    /// Operations that were not kept.
    pub lost: u64,
    /// The first and the last moment, in ns since 1970.
    pub span_ns: Option<(i64, i64)>,
    /// Processes, by host and number.
    pub processes: std::collections::BTreeSet<(u32, i32)>,
}

impl TraceSummary {
    /// Adds a row; rows of one file come in the order of their times.
    pub fn add(&mut self, row: &TraceRow, names: &TraceNames) {
        const ALIGNED: i64 = 4096;
        let op = names.text(row.op);
        if op == b"lost" {
            self.lost += row.bytes.max(0) as u64;
            return;
        }
        self.rows += 1;
        let (first, last) = self.span_ns.unwrap_or((i64::MAX, i64::MIN));
        self.span_ns = Some((first.min(row.time_ns), last.max(row.time_ns + row.duration_ns)));
        self.processes.insert((row.host, row.pid));
        of(&mut self.ops, op).add(row);
        let path = names.text(row.path);
        if path.is_empty() {
            return;
        }
        let file = of(&mut self.files, path);
        let moves = match op {
            b"read" | b"aio_read" | b"copy_file_range" | b"sendfile" => &mut file.reads,
            b"write" | b"aio_write" => &mut file.writes,
            _ => return file.other.add(row),
        };
        moves.add(row);
        let bucket = (u64::BITS - (row.asked.max(0) as u64).leading_zeros()) as usize;
        file.sizes[bucket.min(SIZES - 1)] += 1;
        if let Some(offset) = row.offset {
            file.placed += 1;
            file.aligned += u64::from(offset % ALIGNED == 0);
            file.consecutive += u64::from(offset == file.end);
            file.ahead += u64::from(offset >= file.end);
            file.end = offset + row.bytes;
        }
    }
}

/// The sums of a name, which is copied the first time alone.
fn of<'a, T: Default>(sums: &'a mut BTreeMap<Vec<u8>, T>, name: &[u8]) -> &'a mut T {
    if !sums.contains_key(name) {
        sums.insert(name.to_owned(), T::default());
    }
    sums.get_mut(name).expect("just put there")
}
