//! Sums while they are made.
use crate::report::data::{AccessPattern, CommonSize, IoSums, OpClass, SizeBucket};
use sheaf_log::TraceRow;
use sheaf_recorder::IoOp;

/// Offsets that are a multiple of this are aligned: a page, and what disks write at once.
pub(crate) const ALIGNED_BYTES: i64 = 4096;
/// Sizes that are counted one by one.
const COMMON_SIZES: usize = 4;

impl IoSums {
    pub(crate) fn add(&mut self, row: &TraceRow) {
        self.count += 1;
        self.failed += u64::from(row.errno != 0);
        self.bytes += u128::from(bytes_of(row));
        let time_ns = row.duration_ns.max(0) as u64;
        self.time_ns += u128::from(time_ns);
        self.longest_ns = self.longest_ns.max(time_ns);
    }

    /// Adds what a copy gave to the other of its files.
    fn add_bytes(&mut self, row: &TraceRow) {
        self.bytes += u128::from(bytes_of(row));
    }

    /// Adds sums of others.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.failed += other.failed;
        self.bytes += other.bytes;
        self.time_ns += other.time_ns;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }
}

/// What it moved: nothing, if it failed.
pub(crate) fn bytes_of(row: &TraceRow) -> u64 {
    if row.errno == 0 { row.bytes.max(0) as u64 } else { 0 }
}

/// Reads, writes and all else.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SplitSums {
    pub reads: IoSums,
    pub writes: IoSums,
    pub other: IoSums,
    pub streams: IoSums,
}

impl SplitSums {
    pub fn add(&mut self, class: OpClass, row: &TraceRow) {
        match class {
            OpClass::Read => self.reads.add(row),
            OpClass::Write => self.writes.add(row),
            OpClass::Stream => self.streams.add(row),
            OpClass::Copy => {
                self.reads.add(row);
                self.writes.add_bytes(row);
            }
            _ => self.other.add(row),
        }
    }

    pub fn all(&self) -> IoSums {
        let mut all = self.reads;
        all.merge(&self.writes);
        all.merge(&self.other);
        all.merge(&self.streams);
        all
    }
}

/// Whether a path of a layer is that of a pipe, a socket or a terminal. What a program has from no
/// path is one of these, too, but for what the kernel has told, which names nothing by itself.
pub(crate) fn is_stream(path: &[u8], is_by_kernel: bool) -> bool {
    const BEGINS: [&[u8]; 6] =
        [b"pipe:[", b"socket:[", b"anon_inode:", b"/dev/pts/", b"/dev/tty", b"/dev/console"];
    if path.is_empty() { !is_by_kernel } else { BEGINS.iter().any(|begin| path.starts_with(begin)) }
}

/// Whether it is of sockets alone, whatever they are called.
pub(crate) fn is_of_sockets(word: &[u8]) -> bool {
    let of = [IoOp::Send, IoOp::Receive, IoOp::Connect, IoOp::Accept];
    of.iter().any(|op| op.word().as_bytes() == word)
}

/// Counts by powers of two: bucket 0 is 0, bucket n from 2ⁿ⁻¹ to below 2ⁿ. As long as needed.
#[derive(Debug, Clone, Default)]
pub(crate) struct PowerCounts(Vec<u64>);

impl PowerCounts {
    pub fn add(&mut self, value: u64) {
        let bucket = (u64::BITS - value.leading_zeros()) as usize;
        if self.0.len() <= bucket {
            self.0.resize(bucket + 1, 0);
        }
        self.0[bucket] += 1;
    }

    pub fn buckets(&self) -> Vec<SizeBucket> {
        let counted = self.0.iter().enumerate().filter(|(_, count)| **count > 0);
        counted
            .map(|(bucket, &count)| match bucket {
                0 => SizeBucket { from: 0, to: 0, count },
                _ => {
                    let from = 1u64 << (bucket - 1);
                    // Twice `from` would overflow in the last bucket.
                    SizeBucket { from, to: from - 1 + from, count }
                }
            })
            .collect()
    }
}

/// Where a process, or a thread, is in a file.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StreamPosition {
    begin: i64,
    end: i64,
    stride: i64,
    has_begun: bool,
}

/// How an access lies to the one before; the earlier of these says more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AccessStep {
    Consecutive,
    First,
    Strided,
    Forward,
    Backward,
}

impl StreamPosition {
    pub fn step(&mut self, begin: i64, bytes: u64) -> AccessStep {
        let end = begin.saturating_add(i64::try_from(bytes).unwrap_or(i64::MAX));
        let stride = begin.saturating_sub(self.begin);
        let step = if !self.has_begun {
            AccessStep::First
        } else if begin == self.end {
            AccessStep::Consecutive
        } else if stride != 0 && stride == self.stride {
            AccessStep::Strided
        } else if begin > self.end {
            AccessStep::Forward
        } else {
            AccessStep::Backward
        };
        let stride = if self.has_begun { stride } else { 0 };
        *self = Self { begin, end, stride, has_begun: true };
        step
    }
}

/// An [`AccessPattern`] while it is made.
#[derive(Debug, Clone, Default)]
pub(crate) struct PatternSums {
    pub pattern: AccessPattern,
    sizes: PowerCounts,
    common: [CommonSize; COMMON_SIZES],
}

impl PatternSums {
    /// Adds a successful access, and how it lies to the one before, if that is known.
    pub fn add(&mut self, row: &TraceRow, step: Option<AccessStep>) {
        let pattern = &mut self.pattern;
        pattern.count += 1;
        pattern.bytes += u128::from(bytes_of(row));
        let asked = row.asked.max(0) as u64;
        self.sizes.add(asked);
        self.count_size(asked);
        let pattern = &mut self.pattern;
        let Some(offset) = row.offset else { return };
        pattern.placed += 1;
        pattern.aligned += u64::from(offset % ALIGNED_BYTES == 0);
        *match step {
            None => &mut pattern.unclassified,
            Some(AccessStep::First) => &mut pattern.first,
            Some(AccessStep::Consecutive) => &mut pattern.consecutive,
            Some(AccessStep::Strided) => &mut pattern.strided,
            Some(AccessStep::Forward) => &mut pattern.forward,
            Some(AccessStep::Backward) => &mut pattern.backward,
        } += 1;
    }

    /// Frequent values with few counters (Misra and Gries): a size that finds none takes one from
    /// each, so that no count is ever too high.
    fn count_size(&mut self, bytes: u64) {
        if let Some(common) =
            self.common.iter_mut().find(|common| common.count > 0 && common.bytes == bytes)
        {
            common.count += 1;
        } else if let Some(free) = self.common.iter_mut().find(|common| common.count == 0) {
            *free = CommonSize { bytes, count: 1 };
        } else {
            self.common.iter_mut().for_each(|common| common.count -= 1);
        }
    }

    pub fn finish(&self) -> AccessPattern {
        let mut common_sizes: Vec<_> =
            self.common.iter().copied().filter(|common| common.count > 0).collect();
        common_sizes.sort_by_key(|common| (std::cmp::Reverse(common.count), common.bytes));
        AccessPattern { sizes: self.sizes.buckets(), common_sizes, ..self.pattern.clone() }
    }
}
