//! What a report says, as it is written as JSON.
use crate::parts::RemovedParts;
use crate::report::findings::Finding;
use serde::{Deserialize, Serialize};
pub use sheaf_log::OpClass;

/// The version of [`ReportData`]'s form: fields may come without a change of it, none go.
pub const REPORT_VERSION: u32 = 1;

/// Sums of operations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IoSums {
    /// How many there were.
    pub count: u64,
    /// How many of them failed.
    pub failed: u64,
    /// Bytes they moved.
    pub bytes: u128,
    /// Time they took, of all threads together, in ns.
    pub time_ns: u128,
    /// The longest, in ns.
    pub longest_ns: u64,
}

/// All of a trace. Paths and commands are text in which what is no text stands as `\xff`, and a
/// backslash is doubled.
///
/// A thing is counted once: an operation that happened within another one (of a layer above) is
/// `nested`, and in no sum but those which say so. Bytes of totals are thus what programs have
/// moved; what went through a layer below stands with that layer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReportData {
    /// [`REPORT_VERSION`].
    pub version: u32,
    /// The time of the first beginning and of the last end, in ns since 1970.
    pub span: Option<TraceSpan>,
    /// What was run, if it was one program.
    pub run: Option<TracedRun>,
    /// Operations, nested ones also.
    pub rows: u64,
    /// Those within another one.
    pub nested_rows: u64,
    /// Those with a negative time or amount, which was taken as none.
    pub implausible_rows: u64,
    /// What was to be kept alone, as it was said; all else is in no sum here.
    pub filter: Option<String>,
    /// Of all operations that are not nested.
    pub totals: TraceTotals,
    /// What was not kept.
    pub lost: LostOperations,
    /// Operations that were kept and could not be stored, as on a full disk; they are in no sum here.
    pub unwritten: u64,
    /// What was kept, and removed as was asked for; it is in no sum here.
    pub removed: RemovedParts,
    /// What stands out, the gravest first.
    pub findings: Vec<Finding>,
    /// By host, in the order of their names.
    pub hosts: Vec<HostData>,
    /// By process, and by program where it became another; those with the most time first.
    pub processes: Vec<ProcessData>,
    /// How many processes there are.
    pub processes_total: u64,
    /// How many programs they ran: one that becomes another, or is started again, counts twice.
    pub programs_total: u64,
    /// Those that are not in `processes`.
    pub processes_beyond: IoSums,
    /// By layer.
    pub layers: Vec<LayerData>,
    /// By operation and layer, those with the most time first.
    pub operations: Vec<OperationData>,
    /// By file, those with the most time first.
    pub files: Vec<FileData>,
    /// How many files there are.
    pub files_total: u64,
    /// Those that are not in `files`.
    pub files_beyond: FilesBeyond,
    /// By directory: what was done to what lies right in it.
    pub directories: Vec<DirectoryData>,
    /// Directories that are not in `directories`.
    pub directories_beyond: u64,
    /// How many bytes successful reads asked for.
    pub read_sizes: Vec<SizeBucket>,
    /// How many bytes successful writes asked for.
    pub write_sizes: Vec<SizeBucket>,
    /// Bytes over time.
    pub heat: HeatData,
    /// The slowest operations that are not nested, the slowest first.
    pub slowest: Vec<SlowOperation>,
    /// The longest waits for pipes, sockets and terminals, the longest first.
    pub slowest_streams: Vec<SlowOperation>,
    /// What failed, the most frequent first.
    pub failures: Vec<FailureData>,
    /// What is not in this report, in words.
    pub notes: Vec<String>,
}

/// The program that was recorded, with all that it has started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TracedRun {
    /// Its command line.
    pub command: String,
    /// When it was begun, in ns since 1970.
    pub begun_ns: i64,
    /// When it had ended, in ns since 1970; 0: that is not known.
    pub ended_ns: i64,
    /// Its exit code; 128 and the signal for one that was killed.
    pub exit_code: Option<i32>,
    /// The signal that has ended it.
    pub signal: Option<i32>,
}

/// From when to when.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceSpan {
    /// In ns since 1970.
    pub first_ns: i64,
    /// In ns since 1970.
    pub last_ns: i64,
}

impl TraceSpan {
    /// How long it is, in ns.
    #[must_use]
    pub fn length_ns(&self) -> u64 {
        self.last_ns.abs_diff(self.first_ns)
    }
}

/// Sums over operations that are not nested.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceTotals {
    /// All.
    pub all: IoSums,
    /// Reads.
    pub read: IoSums,
    /// Writes.
    pub write: IoSums,
    /// Copies from one file to another: their bytes were read and written.
    pub copy: IoSums,
    /// Names, attributes, directories, opening.
    pub metadata: IoSums,
    /// Waits until data is stored.
    pub sync: IoSums,
    /// All else that is done to files.
    pub other: IoSums,
    /// Processes begin and end.
    pub process: IoSums,
    /// Reads and writes of pipes, sockets and terminals, which are in none of the others.
    pub stream: IoSums,
}

/// Operations that were not kept for want of room.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LostOperations {
    /// How many.
    pub count: u128,
    /// Of those, operations for which there was no buffer, however large others are.
    pub unplaced: u128,
    /// In how many ranges of time.
    pub ranges: u64,
    /// Those with the most.
    pub biggest: Vec<LostRange>,
}

/// A range of time of a process in which operations were lost.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct LostRange {
    /// How many.
    pub count: u64,
    /// In ns since 1970.
    pub from_ns: i64,
    /// In ns since 1970.
    pub to_ns: i64,
    /// The host.
    pub host: String,
    /// The process.
    pub pid: i32,
}

/// Sums of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostData {
    /// Its name.
    pub host: String,
    /// How many of its processes are in the trace.
    pub processes: u64,
    /// Reads.
    pub reads: IoSums,
    /// Writes.
    pub writes: IoSums,
    /// All else.
    pub other: IoSums,
    /// Reads and writes of pipes, sockets and terminals, which are in none of the others.
    pub streams: IoSums,
}

/// Sums of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessData {
    /// Its host.
    pub host: String,
    /// Its number there.
    pub pid: i32,
    /// Its command line.
    pub command: String,
    /// When the first of its operations began, in ns since 1970.
    pub first_ns: i64,
    /// Reads.
    pub reads: IoSums,
    /// Writes.
    pub writes: IoSums,
    /// All else.
    pub other: IoSums,
    /// Reads and writes of pipes, sockets and terminals, which are in none of the others.
    pub streams: IoSums,
}

/// Sums of a layer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LayerData {
    /// Its name.
    pub layer: String,
    /// Operations that are not nested.
    pub outermost: IoSums,
    /// Those within an operation of a layer above.
    pub nested: IoSums,
    /// Bytes that its reads moved, nested ones also.
    pub read_bytes: u128,
    /// Bytes that its writes moved, nested ones also.
    pub written_bytes: u128,
}

/// Sums of an operation in a layer, nested ones also.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationData {
    /// The layer.
    pub layer: String,
    /// The operation.
    pub op: String,
    /// What it is for.
    pub class: OpClass,
    /// All of them.
    pub sums: IoSums,
    /// How many of them are nested.
    pub nested: u64,
    /// How long they took, in ns, without those of pipes, sockets and terminals.
    pub durations: Vec<SizeBucket>,
}

impl OperationData {
    /// A time in which so many of a hundred ended, by the powers of two that are counted, in ns; nothing where none was
    /// measured.
    #[must_use]
    pub fn within(&self, percent: u64) -> Option<u64> {
        let all: u64 = self.durations.iter().map(|bucket| bucket.count).sum();
        let mut passed = 0;
        let bucket = self.durations.iter().find(|bucket| {
            passed += bucket.count;
            u128::from(passed) * 100 >= u128::from(all) * u128::from(percent)
        })?;
        Some(bucket.to.min(self.sums.longest_ns))
    }
}

impl TraceTotals {
    /// The kinds of I/O, each with its name.
    #[must_use]
    pub fn kinds(&self) -> [(&'static str, &IoSums); 8] {
        [
            ("read", &self.read),
            ("write", &self.write),
            ("copy", &self.copy),
            ("metadata", &self.metadata),
            ("sync", &self.sync),
            ("other", &self.other),
            ("process", &self.process),
            ("stream", &self.stream),
        ]
    }
}

/// So many between two sizes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeBucket {
    /// The least: 0, or a power of two.
    pub from: u64,
    /// The most.
    pub to: u64,
    /// How many.
    pub count: u64,
}

/// Sums of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FileData {
    /// Its path, or how it was named.
    pub path: String,
    /// Reads.
    pub reads: IoSums,
    /// Writes.
    pub writes: IoSums,
    /// All else.
    pub other: IoSums,
    /// Operations within one of a layer above.
    pub nested: IoSums,
    /// Of `other`: names, attributes, opening.
    pub metadata: IoSums,
    /// Of `other`: waits until data is stored.
    pub syncs: IoSums,
    /// How it was accessed, layer by layer.
    pub accesses: Vec<AccessData>,
    /// How often it was opened.
    pub opens: u64,
    /// How often it was opened so that each write waits until it is stored (`O_SYNC`, `O_DSYNC`).
    pub sync_opens: u64,
    /// How often it was opened so that its data goes past the kernel's memory (`O_DIRECT`).
    pub direct_opens: u64,
    /// Reads and writes that the kernel has refused (`EINVAL`).
    pub refused: IoSums,
    /// How often it was removed.
    pub removals: u64,
    /// How often it was given another path.
    pub renames: u64,
    /// How often it was not there (`ENOENT`).
    pub missing: u64,
    /// How often it was placed anew.
    pub seeks: u64,
    /// How often what was gathered to be written was given to the kernel at once (`fflush`).
    pub flushes: u64,
    /// Where the furthest read ended, in bytes.
    pub read_to: u64,
    /// Of these, those after which it went on where it had been, or was placed again.
    pub idle_seeks: u64,
    /// Waits until data is stored, each right after a single write of the process.
    pub syncs_after_write: u64,
    /// Reads of what the same process had just written, or a part of it.
    pub reads_back: u64,
    /// Processes that opened, read or wrote it.
    pub processes: u64,
    /// Their hosts.
    pub hosts: u64,
    /// Processes that wrote to it at known offsets.
    pub writers: u64,
    /// Those of them whose range of offsets overlaps another's, while both wrote in turns.
    pub overlapping_writers: u64,
    /// It is a pipe, a socket or a terminal.
    pub is_stream: bool,
    /// Some of its operations are in [`FilesBeyond`], as there were too many files at once.
    pub is_partial: bool,
}

/// How a layer accessed a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AccessData {
    /// The layer.
    pub layer: String,
    /// Its reads.
    pub reads: AccessPattern,
    /// Its writes.
    pub writes: AccessPattern,
}

/// The pattern of successful reads or writes, nested ones also. Each process is looked at for
/// itself: `placed` is the sum of `first`, `consecutive`, `strided`, `forward`, `backward` and
/// `unclassified`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AccessPattern {
    /// How many.
    pub count: u64,
    /// Bytes that they moved.
    pub bytes: u128,
    /// Those with a known offset.
    pub placed: u64,
    /// Of these, at a multiple of 4,096.
    pub aligned: u64,
    /// A process's first since it opened the file.
    pub first: u64,
    /// Begin where the one before ended.
    pub consecutive: u64,
    /// Begin as far from the beginning of the one before as that one from the one before it,
    /// further on or back.
    pub strided: u64,
    /// Begin further on.
    pub forward: u64,
    /// Begin before the end of the one before.
    pub backward: u64,
    /// Not looked at, as there were too many processes and files at once.
    pub unclassified: u64,
    /// What they asked for, in bytes.
    pub sizes: Vec<SizeBucket>,
    /// The most frequent sizes; `count` is exact where there are no more than four, and too low
    /// otherwise.
    pub common_sizes: Vec<CommonSize>,
}

impl AccessPattern {
    /// How many asked for less than `bytes`, a power of two.
    #[must_use]
    pub fn smaller_than(&self, bytes: u64) -> u64 {
        self.sizes.iter().filter(|bucket| bucket.to < bytes).map(|bucket| bucket.count).sum()
    }
}

/// A size, and how often it occurred at least.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommonSize {
    /// The size.
    pub bytes: u64,
    /// At least so many.
    pub count: u64,
}

/// Sums of files that are not listed one by one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FilesBeyond {
    /// How many files.
    pub files: u64,
    /// Of these, those that had to be put together while the trace was read.
    pub folded: u64,
    /// Reads.
    pub reads: IoSums,
    /// Writes.
    pub writes: IoSums,
    /// All else.
    pub other: IoSums,
    /// Operations within one of a layer above.
    pub nested: IoSums,
}

/// Sums of what lies right in a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DirectoryData {
    /// Its path.
    pub path: String,
    /// Files in it that are in the trace.
    pub files: u64,
    /// Reads.
    pub reads: IoSums,
    /// Writes.
    pub writes: IoSums,
    /// All else.
    pub other: IoSums,
    /// Of `other`: names, attributes, opening.
    pub metadata: IoSums,
    /// How often something was not there (`ENOENT`).
    pub missing: u64,
}

/// Bytes over time: what each bin has of operations that are not nested, spread evenly over the
/// time that each took.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeatData {
    /// What a row stands for: `process` or `host`.
    pub by: String,
    /// When the first bin begins, in ns since 1970.
    pub first_ns: i64,
    /// How long a bin is, in ns.
    pub bin_ns: u64,
    /// The rows; all have as many bins.
    pub rows: Vec<HeatRow>,
}

/// A row of [`HeatData`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeatRow {
    /// Who.
    pub label: String,
    /// Bytes read in each bin.
    pub read_bytes: Vec<u128>,
    /// Bytes written in each bin.
    pub written_bytes: Vec<u128>,
}

/// An operation that took long.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlowOperation {
    /// How long, in ns.
    pub duration_ns: u64,
    /// When it began, in ns since 1970.
    pub time_ns: i64,
    /// The layer.
    pub layer: String,
    /// The operation.
    pub op: String,
    /// The file.
    pub path: String,
    /// Where in it.
    pub offset: Option<i64>,
    /// What it moved, in bytes.
    pub bytes: u64,
    /// Why it failed; 0: it did not.
    pub errno: i32,
    /// The host.
    pub host: String,
    /// The process.
    pub pid: i32,
    /// The thread.
    pub thread: i32,
}

/// Operations that failed for one reason, nested ones also.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FailureData {
    /// The layer.
    pub layer: String,
    /// The operation.
    pub op: String,
    /// The reason; 0: others, of which there were too many.
    pub errno: i32,
    /// Its symbol (`ENOENT`), or its number.
    pub name: String,
    /// How many.
    pub count: u64,
    /// The time they took, in ns.
    pub time_ns: u128,
    /// Some of the files, the first ones.
    pub examples: Vec<String>,
}
