//! The counters of one file in one process, counted as Darshan's runtime does.
use sheaf_log::TraceRow;

/// File alignment that is assumed, in bytes: the file system's block size is not recorded.
pub(super) const ALIGNMENT_BYTES: i64 = 4096;
/// Different access sizes, and different strides, that are counted of a record (as Darshan does);
/// those that come later are not among the common ones.
const COMMON_VALUES_MAX: usize = 32;
/// How many of the common ones are told.
pub(super) const COMMON_TOLD: usize = 4;

/// The upper bounds of the access sizes' buckets, in bytes, each with the name of its bucket.
pub(super) const SIZES: [(i64, &str); 10] = [
    (100, "0_100"),
    (1 << 10, "100_1K"),
    (10 << 10, "1K_10K"),
    (100 << 10, "10K_100K"),
    (1 << 20, "100K_1M"),
    (4 << 20, "1M_4M"),
    (10 << 20, "4M_10M"),
    (100 << 20, "10M_100M"),
    (1 << 30, "100M_1G"),
    (i64::MAX, "1G_PLUS"),
];

/// First and last moment of a kind of operation, in ns since 1970.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Moments(Option<(i64, i64)>);

impl Moments {
    fn add(&mut self, begun: i64, ended: i64) {
        let (first, last) = self.0.unwrap_or((i64::MAX, i64::MIN));
        self.0 = Some((first.min(begun), last.max(ended)));
    }

    pub(super) fn first(self) -> Option<i64> {
        self.0.map(|(first, _)| first)
    }

    pub(super) fn last(self) -> Option<i64> {
        self.0.map(|(_, last)| last)
    }
}

/// Time of operations, of which those of several threads at once are counted once.
#[derive(Debug, Clone, Copy)]
pub(super) struct BusyTime {
    pub ns: i128,
    end: i64,
}

impl Default for BusyTime {
    fn default() -> Self {
        Self { ns: 0, end: i64::MIN }
    }
}

impl BusyTime {
    fn add(&mut self, begun: i64, ended: i64) {
        if ended > self.end {
            self.ns += i128::from(ended) - i128::from(begun.max(self.end));
            self.end = ended;
        }
    }
}

/// Values with how often they came.
#[derive(Debug, Clone, Default)]
pub(super) struct CommonValues(Vec<(i64, u64)>);

impl CommonValues {
    fn add(&mut self, value: i64) {
        if let Some((_, count)) = self.0.iter_mut().find(|(known, _)| *known == value) {
            *count += 1;
        } else if self.0.len() < COMMON_VALUES_MAX {
            self.0.push((value, 1));
        }
    }

    /// The most frequent ones, of those that are as frequent the larger first; (0, 0) for none.
    pub(super) fn most(&self) -> [(i64, u64); COMMON_TOLD] {
        let mut sorted = self.0.clone();
        sorted.sort_by_key(|&(value, count)| std::cmp::Reverse((count, value)));
        std::array::from_fn(|at| sorted.get(at).copied().unwrap_or_default())
    }
}

/// Reads, or writes.
#[derive(Debug, Clone, Default)]
pub(super) struct Transfers {
    pub count: u64,
    pub bytes: i128,
    pub consecutive: u64,
    pub sequential: u64,
    pub sizes: [u64; SIZES.len()],
    pub byte_max: i64,
    pub moments: Moments,
    pub time: BusyTime,
    pub longest_ns: i64,
    pub longest_size: i64,
    last_byte: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Read,
    Write,
}

/// One file in one process, of one module.
#[derive(Debug, Clone, Default)]
pub(super) struct FileRecord {
    pub reads: Transfers,
    pub writes: Transfers,
    pub opens: u64,
    pub dups: u64,
    pub seeks: u64,
    pub stats: u64,
    pub maps: u64,
    pub syncs: u64,
    pub flushes: u64,
    pub renames: u64,
    pub switches: u64,
    pub unaligned: u64,
    pub open: Moments,
    pub close: Moments,
    pub meta: BusyTime,
    pub accesses: CommonValues,
    pub strides: CommonValues,
    last: Option<Direction>,
    /// Where a buffered file is, as long as that is known.
    place: Option<i64>,
}

impl FileRecord {
    /// Counts an operation of this name; whether it is one that has a counter.
    pub(super) fn add(&mut self, op: &[u8], row: &TraceRow, is_stdio: bool) -> bool {
        let (begun, ended) = times(row);
        let is_meta = match op {
            b"read" => return self.transfer(row, Direction::Read, is_stdio),
            b"write" => return self.transfer(row, Direction::Write, is_stdio),
            // Those that failed are counted nowhere, as in Darshan.
            _ if row.errno != 0 => return is_counted(op),
            b"open" => {
                self.opens += 1;
                self.open.add(begun, ended);
                self.place = Some(0);
                true
            }
            b"dup" => {
                self.opens += 1;
                self.dups += 1;
                true
            }
            b"close" => {
                self.close.add(begun, ended);
                true
            }
            b"seek" => {
                self.seeks += 1;
                self.place = None;
                true
            }
            b"stat" => {
                self.stats += 1;
                true
            }
            b"mmap" => {
                self.maps += 1;
                true
            }
            b"rename" => {
                self.renames += 1;
                true
            }
            // Darshan counts the time of `fsync` and `fflush` as time of writing, not of metadata.
            b"fsync" => {
                self.syncs += 1;
                false
            }
            b"flush" => {
                self.flushes += 1;
                false
            }
            _ => return false,
        };
        if is_meta {
            self.meta.add(begun, ended)
        } else {
            self.writes.time.add(begun, ended)
        }
        true
    }

    fn transfer(&mut self, row: &TraceRow, direction: Direction, is_stdio: bool) -> bool {
        if row.errno != 0 {
            return true;
        }
        let bytes = row.bytes.max(0);
        let offset = if is_stdio { self.place } else { row.offset };
        if let Some(offset) = offset {
            self.place = Some(offset.saturating_add(bytes));
        }
        let of = match direction {
            Direction::Read => &mut self.reads,
            Direction::Write => &mut self.writes,
        };
        if let Some(offset) = offset {
            let stride = of.place(offset, bytes);
            self.strides.add(stride);
            self.unaligned += u64::from(offset % ALIGNMENT_BYTES != 0);
        }
        of.count(row, bytes);
        self.accesses.add(bytes);
        self.switches += u64::from(self.last.is_some_and(|last| last != direction));
        self.last = Some(direction);
        true
    }
}

impl Transfers {
    fn count(&mut self, row: &TraceRow, bytes: i64) {
        let (begun, ended) = times(row);
        self.count += 1;
        self.bytes += i128::from(bytes);
        let bucket = SIZES.iter().position(|&(most, _)| bytes <= most);
        self.sizes[bucket.unwrap_or(SIZES.len() - 1)] += 1;
        self.moments.add(begun, ended);
        self.time.add(begun, ended);
        if row.duration_ns > self.longest_ns {
            (self.longest_ns, self.longest_size) = (row.duration_ns, bytes);
        }
    }

    /// Counts where an access was. Gives the stride: what lies between it and the one before.
    fn place(&mut self, offset: i64, bytes: i64) -> i64 {
        // Darshan begins as if byte 0 had been accessed: the first access at 0 is neither.
        self.sequential += u64::from(offset > self.last_byte);
        self.consecutive += u64::from(offset == self.last_byte.saturating_add(1));
        let stride = if offset > self.last_byte && self.last_byte != 0 {
            offset.saturating_sub(self.last_byte).saturating_sub(1)
        } else {
            0
        };
        self.last_byte = offset.saturating_add(bytes).saturating_sub(1);
        self.byte_max = self.byte_max.max(self.last_byte);
        stride
    }
}

/// Whether there is a counter for this operation.
pub(super) fn is_counted(op: &[u8]) -> bool {
    matches!(
        op,
        b"read"
            | b"write"
            | b"open"
            | b"dup"
            | b"close"
            | b"seek"
            | b"stat"
            | b"mmap"
            | b"rename"
            | b"fsync"
            | b"flush"
    )
}

fn times(row: &TraceRow) -> (i64, i64) {
    (row.time_ns, row.time_ns.saturating_add(row.duration_ns.max(0)))
}
