//! What a trace says: sums, patterns, and what stands out.
mod data;
mod diff;
mod files;
mod findings;
mod finish;
mod heat;
mod html;
mod html_page;
mod sums;
mod text;
pub(crate) mod units;

pub use data::{
    AccessData, AccessPattern, CommonSize, DirectoryData, FailureData, FileData, FilesBeyond,
    HeatData, HeatRow, HostData, IoSums, LayerData, LostOperations, LostRange, OpClass,
    OperationData, ProcessData, REPORT_VERSION, ReportData, SizeBucket, SlowOperation, TraceSpan,
    TraceTotals, TracedRun,
};
pub use diff::{DiffRow, DiffSums, ReportDiff};
pub use findings::{Finding, FindingEvidence, FindingKind, FindingSeverity};

use files::{FileOp, FileTable};
use heat::HeatMap;
use rustc_hash::{FxHashMap, FxHashSet};
use sheaf_core::Errno;
use sheaf_log::class_of;
use sheaf_log::collect::UNPLACED_ERRNO;
use sheaf_log::{TraceNames, TraceRow};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use sums::{PowerCounts, SplitSums, bytes_of, is_of_sockets, is_stream};
pub(crate) use units::{count, day, escaped};

/// Limits of a report: what it may take in memory, and how long it may be.
#[derive(Debug, Clone, Copy)]
pub struct ReportOptions {
    /// Files with sums of their own at once, about 1 KiB each. When there are more, those with the
    /// fewest operations and the least time are put together, half of all at a time.
    pub files_max: usize,
    /// Pairs of a file and a process, about 300 bytes each; accesses of others are not classified.
    pub streams_max: usize,
    /// Processes with sums of their own.
    pub processes_max: usize,
    /// Directories with sums of their own.
    pub directories_max: usize,
    /// Files that are listed.
    pub files_listed_max: usize,
    /// Processes that are listed.
    pub processes_listed_max: usize,
    /// Directories that are listed.
    pub directories_listed_max: usize,
    /// The slowest operations that are listed.
    pub slowest_max: usize,
    /// Ranges of lost operations that are listed.
    pub lost_ranges_max: usize,
    /// Bins of time.
    pub heat_bins_max: usize,
    /// Rows of the heat map: processes, or hosts where there are more processes.
    pub heat_rows_max: usize,
}

impl Default for ReportOptions {
    fn default() -> Self {
        Self {
            files_max: 100_000,
            streams_max: 1 << 20,
            processes_max: 1 << 16,
            directories_max: 1 << 16,
            files_listed_max: 1000,
            processes_listed_max: 1000,
            directories_listed_max: 200,
            slowest_max: 50,
            lost_ranges_max: 50,
            heat_bins_max: 240,
            heat_rows_max: 64,
        }
    }
}

/// Operations and layers, and reasons of failures, with sums of their own: a trace of ours has
/// some dozens.
const OPS_MAX: usize = 1024;
const FAILURES_MAX: usize = 4096;
/// Files that are named for each failure, of so many directories that are counted.
const FAILURE_EXAMPLES: usize = 3;
const FAILURE_DIRECTORIES: usize = 8;
/// Layers; the last one stands for those beyond.
const LAYERS_MAX: usize = 32;

/// An operation of a layer.
#[derive(Debug)]
struct OpEntry {
    class: OpClass,
    layer: u8,
    is_lost: bool,
    is_open: bool,
    is_seek: bool,
    is_flush: bool,
    is_unlink: bool,
    is_rename: bool,
    is_map: bool,
    is_by_kernel: bool,
    is_of_sockets: bool,
    /// Not nested, nested.
    sums: [IoSums; 2],
    durations: PowerCounts,
}

#[derive(Debug, Default)]
struct FailureEntry {
    count: u64,
    time_ns: u128,
    /// Files, with how many of the failures were in their directories: too few where there are many.
    examples: Vec<(u32, u64)>,
}

impl FailureEntry {
    /// Takes a file in. Directories with many are found with few counters (Misra and Gries).
    fn show(&mut self, path: u32, is_beside: impl Fn(u32) -> bool) {
        let known = self.examples.iter_mut().find(|(other, _)| *other == path || is_beside(*other));
        if let Some((_, count)) = known {
            *count += 1;
        } else if self.examples.len() < FAILURE_DIRECTORIES {
            self.examples.push((path, 1));
        } else if let Some(free) = self.examples.iter_mut().find(|(_, count)| *count == 0) {
            *free = (path, 1);
        } else {
            self.examples.iter_mut().for_each(|(_, count)| *count -= 1);
        }
    }
}

/// Where a file is, by its path.
fn directory_of(path: &[u8]) -> &[u8] {
    path.iter().rposition(|byte| *byte == b'/').map_or(b".", |slash| &path[..slash])
}

/// Orders rows by what they took.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SlowEntry {
    duration_ns: u64,
    /// The earlier of two that took as long is the slower one.
    time_ns: Reverse<i64>,
    number: Reverse<u64>,
}

type SlowRows = BinaryHeap<Reverse<(SlowEntry, RowBits)>>;

/// A row that any order is right for.
#[derive(Debug)]
struct RowBits(TraceRow);

impl PartialEq for RowBits {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
impl Eq for RowBits {}
impl PartialOrd for RowBits {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for RowBits {
    fn cmp(&self, _: &Self) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

/// How many were lost, from when to when, on which host, and of which process.
type LostRow = (u64, i64, i64, u32, i32);

/// Makes a report of rows, one by one, in memory that has a limit; names are the caller's.
#[derive(Debug)]
pub struct TraceReport {
    options: ReportOptions,
    data: ReportData,
    /// By layer and operation.
    op_places: FxHashMap<(u32, u32), u32>,
    last_op: ((u32, u32), u32),
    ops: Vec<OpEntry>,
    /// Numbers of names.
    layers: Vec<u32>,
    failures: BTreeMap<(u32, i32), FailureEntry>,
    host_places: FxHashMap<u32, u32>,
    hosts: Vec<(u32, u64, SplitSums)>,
    /// By host, number and command.
    process_places: FxHashMap<(u32, i32, u32), u32>,
    processes: Vec<((u32, i32, u32), SplitSums, i64)>,
    processes_beyond: IoSums,
    /// Hosts and numbers of processes.
    pids: FxHashSet<(u32, i32)>,
    files: FileTable,
    read_sizes: PowerCounts,
    write_sizes: PowerCounts,
    process_heat: HeatMap,
    host_heat: HeatMap,
    slowest: SlowRows,
    slowest_streams: SlowRows,
    lost: BinaryHeap<Reverse<LostRow>>,
    /// How many were lost at least.
    known_lost: u128,
    /// How often files were mapped into memory, and how many bytes of them.
    mapped: (u64, u128),
}

impl TraceReport {
    /// One without rows.
    #[must_use]
    pub fn new(options: ReportOptions) -> Self {
        let heat = || HeatMap::new(options.heat_bins_max, options.heat_rows_max);
        Self {
            options,
            data: ReportData { version: REPORT_VERSION, ..ReportData::default() },
            op_places: FxHashMap::default(),
            last_op: ((u32::MAX, u32::MAX), 0),
            ops: Vec::new(),
            layers: Vec::new(),
            failures: BTreeMap::new(),
            host_places: FxHashMap::default(),
            hosts: Vec::new(),
            process_places: FxHashMap::default(),
            processes: Vec::new(),
            processes_beyond: IoSums::default(),
            pids: FxHashSet::default(),
            files: FileTable::new(options.files_max, options.streams_max, options.directories_max),
            read_sizes: PowerCounts::default(),
            write_sizes: PowerCounts::default(),
            process_heat: heat(),
            host_heat: heat(),
            slowest: BinaryHeap::new(),
            slowest_streams: BinaryHeap::new(),
            lost: BinaryHeap::new(),
            known_lost: 0,
            mapped: (0, 0),
        }
    }

    /// Takes in what was run, by whose time findings are judged.
    pub fn know_run(&mut self, run: Option<TracedRun>) {
        self.data.run = run;
    }

    /// Takes in what is known of losses beside the rows: where the disk was full, those have no row.
    pub fn know_losses(&mut self, lost: u64, unwritten: u64) {
        (self.known_lost, self.data.unwritten) = (lost.into(), unwritten);
    }

    /// Adds a row. Those of one process come in the order of their times, or nearly so.
    pub fn add(&mut self, row: &TraceRow, names: &TraceNames) {
        let place = self.op(row, names);
        let op = &mut self.ops[place as usize];
        if op.is_lost {
            return self.add_lost(row);
        }
        let moves = matches!(op.class, OpClass::Read | OpClass::Write | OpClass::Copy);
        let is_by_kernel = op.is_by_kernel;
        let is_of_stream = |path: u32| is_stream(names.text(path), is_by_kernel);
        let is_stream =
            op.is_of_sockets || is_of_stream(row.path) || row.new_path.is_some_and(is_of_stream);
        let class = if moves && is_stream { OpClass::Stream } else { op.class };
        let file_op = FileOp {
            class: if moves || !op.is_of_sockets { op.class } else { OpClass::Other },
            is_open: op.is_open,
            is_seek: op.is_seek,
            is_flush: op.is_flush,
            is_unlink: op.is_unlink,
            is_rename: op.is_rename,
            layer: op.layer,
        };
        op.sums[usize::from(row.is_nested)].add(row);
        if class != OpClass::Stream {
            op.durations.add(row.duration_ns.max(0) as u64);
        }
        if op.is_map && row.errno == 0 && !names.text(row.path).is_empty() {
            self.mapped = (self.mapped.0 + 1, self.mapped.1 + row.asked.max(0) as u128);
        }
        self.data.rows += 1;
        self.data.nested_rows += u64::from(row.is_nested);
        let is_implausible = row.duration_ns < 0 || row.asked < 0 || row.bytes < 0;
        self.data.implausible_rows += u64::from(is_implausible);
        let end_ns = row.time_ns.saturating_add(row.duration_ns.max(0));
        let span =
            self.data.span.get_or_insert(TraceSpan { first_ns: row.time_ns, last_ns: end_ns });
        span.first_ns = span.first_ns.min(row.time_ns);
        span.last_ns = span.last_ns.max(end_ns);
        if row.errno != 0 {
            self.add_failure(place, row, names);
        }
        let (host, process) = self.who(row);
        if !row.is_nested {
            self.add_outermost(row, class, host, process);
        }
        if file_op.class == OpClass::Copy {
            self.add_copy(row, file_op, (process, host, class == OpClass::Stream), names);
        } else if !names.text(row.path).is_empty() {
            self.files.add(row, file_op, process, host, names);
        }
    }

    /// Adds a copy to both of its files. What is sent to somebody takes that one's time, and not the file's.
    fn add_copy(
        &mut self,
        row: &TraceRow,
        op: FileOp,
        (process, host, is_stream): (Option<u32>, u32, bool),
        names: &TraceNames,
    ) {
        let ends = [(Some(row.path), OpClass::Read), (row.new_path, OpClass::Write)];
        for (path, class) in ends {
            let Some(path) = path.filter(|path| !names.text(*path).is_empty()) else { continue };
            let of_one = TraceRow {
                path,
                new_path: None,
                offset: row.offset.filter(|_| class == OpClass::Read),
                asked: row.bytes,
                duration_ns: if is_stream { 0 } else { row.duration_ns },
                ..*row
            };
            self.files.add(&of_one, FileOp { class, ..op }, process, host, names);
        }
    }

    fn add_outermost(&mut self, row: &TraceRow, class: OpClass, host: u32, process: Option<u32>) {
        let totals = &mut self.data.totals;
        totals.all.add(row);
        match class {
            OpClass::Read => &mut totals.read,
            OpClass::Write => &mut totals.write,
            OpClass::Copy => &mut totals.copy,
            OpClass::Metadata => &mut totals.metadata,
            OpClass::Sync => &mut totals.sync,
            OpClass::Other => &mut totals.other,
            OpClass::Process => &mut totals.process,
            OpClass::Stream => &mut totals.stream,
        }
        .add(row);
        self.hosts[host as usize].2.add(class, row);
        match process {
            Some(process) => self.processes[process as usize].1.add(class, row),
            None => self.processes_beyond.add(row),
        }
        let is_write = class == OpClass::Write;
        if class == OpClass::Copy && row.errno == 0 {
            [false, true]
                .into_iter()
                .for_each(|is_write| self.add_heat(row, is_write, host, process));
        }
        if (is_write || class == OpClass::Read) && row.errno == 0 {
            let sizes = if is_write { &mut self.write_sizes } else { &mut self.read_sizes };
            sizes.add(row.asked.max(0) as u64);
            self.add_heat(row, is_write, host, process);
        }
        if class != OpClass::Process {
            self.add_slow(row, class == OpClass::Stream);
        }
    }

    fn add_heat(&mut self, row: &TraceRow, is_write: bool, host: u32, process: Option<u32>) {
        let (bytes, length_ns) = (bytes_of(row), row.duration_ns.max(0) as u64);
        if bytes > 0 {
            self.host_heat.add(host, is_write, bytes, row.time_ns, length_ns);
            if !self.process_heat.is_beyond() {
                let process = process.unwrap_or(u32::MAX);
                self.process_heat.add(process, is_write, bytes, row.time_ns, length_ns);
            }
        }
    }

    fn add_slow(&mut self, row: &TraceRow, is_stream: bool) {
        let entry = SlowEntry {
            duration_ns: row.duration_ns.max(0) as u64,
            time_ns: Reverse(row.time_ns),
            number: Reverse(self.data.rows),
        };
        let slowest = if is_stream { &mut self.slowest_streams } else { &mut self.slowest };
        if slowest.len() >= self.options.slowest_max {
            match slowest.peek() {
                Some(Reverse((fastest, _))) if *fastest < entry => drop(slowest.pop()),
                _ => return,
            }
        }
        slowest.push(Reverse((entry, RowBits(*row))));
    }

    fn add_lost(&mut self, row: &TraceRow) {
        let count = row.bytes.max(0) as u64;
        self.data.lost.count += u128::from(count);
        if row.errno == UNPLACED_ERRNO {
            self.data.lost.unplaced += u128::from(count);
        }
        self.data.lost.ranges += 1;
        let end_ns = row.time_ns.saturating_add(row.duration_ns.max(0));
        self.lost.push(Reverse((count, row.time_ns, end_ns, row.host, row.pid)));
        if self.lost.len() > self.options.lost_ranges_max {
            self.lost.pop();
        }
    }

    fn add_failure(&mut self, op: u32, row: &TraceRow, names: &TraceNames) {
        let has_room = self.failures.len() < FAILURES_MAX;
        let known = has_room || self.failures.contains_key(&(op, row.errno));
        // At most as many again as there are operations.
        let entry = self.failures.entry((op, if known { row.errno } else { 0 })).or_default();
        entry.count += 1;
        entry.time_ns += row.duration_ns.max(0) as u128;
        let path = names.text(row.path);
        if !path.is_empty() {
            entry.show(row.path, |other| directory_of(names.text(other)) == directory_of(path));
        }
    }

    /// The place of its operation.
    fn op(&mut self, row: &TraceRow, names: &TraceNames) -> u32 {
        let mut key = (row.layer, row.op);
        // Rows next to each other are mostly of one operation.
        if self.last_op.0 == key {
            return self.last_op.1;
        }
        if self.ops.len() >= OPS_MAX && !self.op_places.contains_key(&key) {
            // All others are of one, which is that of the first of them.
            key = (u32::MAX, u32::MAX - 1);
        }
        let place = match self.op_places.get(&key) {
            Some(&place) => place,
            None => {
                let layer = self.layers.iter().position(|layer| *layer == row.layer);
                let layer = layer.unwrap_or_else(|| {
                    if self.layers.len() < LAYERS_MAX {
                        self.layers.push(row.layer);
                    }
                    self.layers.len() - 1
                });
                let word = names.text(row.op);
                self.ops.push(OpEntry {
                    class: class_of(word),
                    layer: layer as u8,
                    is_lost: word == b"lost",
                    is_open: word == b"open",
                    is_seek: word == b"seek",
                    is_flush: word == b"flush",
                    is_unlink: word == b"unlink",
                    is_rename: word == b"rename",
                    is_map: word == b"mmap",
                    is_by_kernel: names.text(row.layer) == b"kernel",
                    is_of_sockets: is_of_sockets(word),
                    sums: Default::default(),
                    durations: PowerCounts::default(),
                });
                let place = self.ops.len() as u32 - 1;
                self.op_places.insert(key, place);
                place
            }
        };
        self.last_op = ((row.layer, row.op), place);
        place
    }

    /// The places of its host, and of its process unless there are too many.
    fn who(&mut self, row: &TraceRow) -> (u32, Option<u32>) {
        let host = match self.host_places.get(&row.host) {
            Some(&host) => host,
            None => {
                self.hosts.push((row.host, 0, SplitSums::default()));
                let place = self.hosts.len() as u32 - 1;
                self.host_places.insert(row.host, place);
                place
            }
        };
        let key = (row.host, row.pid, row.command);
        if let Some(&place) = self.process_places.get(&key) {
            return (host, Some(place));
        }
        if self.processes.len() >= self.options.processes_max {
            return (host, None);
        }
        let place = self.processes.len() as u32;
        self.processes.push((key, SplitSums::default(), row.time_ns));
        self.process_places.insert(key, place);
        self.hosts[host as usize].1 += u64::from(self.pids.insert((row.host, row.pid)));
        (host, Some(place))
    }
}

impl ProcessData {
    /// The time of its operations that are not nested, in ns, of all its threads together; without
    /// those on pipes, sockets and terminals.
    #[must_use]
    pub fn time_ns(&self) -> u128 {
        self.reads.time_ns + self.writes.time_ns + self.other.time_ns
    }
}
