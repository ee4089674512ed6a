//! Counters per process and file, as `darshan-parser` prints them.
use super::darshan_record::{
    ALIGNMENT_BYTES, COMMON_TOLD, FileRecord, Moments, SIZES, Transfers, is_counted,
};
use super::escaped;
use sheaf_log::command_line;
use sheaf_log::{TraceNames, TraceRow};
use sheaf_recorder::RingWriter;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

/// Records of a module (a file in a process) that are kept; operations on further ones are counted
/// as a whole.
pub const DARSHAN_RECORDS_MAX: usize = 1 << 16;

/// What a counter says that cannot be known from a trace.
const UNKNOWN: i64 = -1;
const NS: i64 = 1_000_000_000;

/// Sums a trace up into Darshan's counters of the modules `POSIX` and `STDIO`, and writes them as
/// `darshan-parser` prints a log: module, rank, record id, counter, value, file name, mount point,
/// type of the file system, with tabs between.
///
/// Where this is not Darshan:
/// - A rank is a process by the order in which they come; comments say which. No record is shared.
/// - The record id is a hash of the path, another one than Darshan's. Mount points and file systems
///   are `UNKNOWN`.
/// - −1 says, as there, that a counter is not known: of memory alignment, modes, `FDSYNCS` (they are
///   among `FSYNCS`) and targets of renames. File alignment is taken to be 4,096.
/// - Accesses without a known offset (`O_APPEND`, a stream after a seek) are neither sequential nor
///   consecutive, and reach no byte.
/// - Asynchronous accesses, `sendfile` and `copy_file_range` have no counters.
/// - Control characters in names are written `\xHH`, besides what the module says of text.
///
/// Moments are in seconds since the first operation began, which a comment tells to the ns.
pub struct DarshanExport<W: Write> {
    out: W,
    records_max: usize,
    posix: BTreeMap<(u32, u32), FileRecord>,
    stdio: BTreeMap<(u32, u32), FileRecord>,
    /// Of all processes, in the order in which they came: host, number, command line.
    ranks: HashMap<(u32, i32), u32>,
    processes: Vec<(String, i32, String)>,
    /// The paths of records.
    paths: HashMap<u32, Vec<u8>>,
    span_ns: Option<(i64, i64)>,
    lost: i128,
    /// Operations, and bytes, on files that have no record.
    rest: (u64, i128),
    uncounted: u64,
}

impl<W: Write> DarshanExport<W> {
    /// Begins; nothing is written before the end.
    pub fn new(out: W) -> Self {
        Self {
            out,
            records_max: DARSHAN_RECORDS_MAX,
            posix: BTreeMap::new(),
            stdio: BTreeMap::new(),
            ranks: HashMap::new(),
            processes: Vec::new(),
            paths: HashMap::new(),
            span_ns: None,
            lost: 0,
            rest: (0, 0),
            uncounted: 0,
        }
    }

    /// Keeps so many records of each module instead of [`DARSHAN_RECORDS_MAX`].
    #[must_use]
    pub fn records_max(mut self, records_max: usize) -> Self {
        self.records_max = records_max;
        self
    }

    /// Counts an operation; those of a process come in the order of their times.
    ///
    /// # Errors
    /// None so far: nothing is written before the end.
    pub fn row(&mut self, row: &TraceRow, names: &TraceNames) -> io::Result<()> {
        let op = names.text(row.op);
        if op == b"lost" {
            self.lost += i128::from(row.bytes.max(0));
            return Ok(());
        }
        let (first, last) = self.span_ns.unwrap_or((i64::MAX, i64::MIN));
        let end = row.time_ns.saturating_add(row.duration_ns.max(0));
        self.span_ns = Some((first.min(row.time_ns), last.max(end)));
        let rank = self.rank(row, names);
        let path = names.text(row.path);
        let (records, is_stdio) = match names.text(row.layer) {
            b"posix" | b"kernel" => (&mut self.posix, false),
            b"stdio" => (&mut self.stdio, true),
            _ => return self.uncounted(),
        };
        if path.is_empty() || !is_counted(op) {
            return self.uncounted();
        }
        let key = (rank, row.path);
        if records.len() >= self.records_max && !records.contains_key(&key) {
            self.rest.0 += 1;
            self.rest.1 += i128::from(row.bytes.max(0));
            return Ok(());
        }
        let record = records.entry(key).or_default();
        record.add(op, row, is_stdio);
        self.paths.entry(row.path).or_insert_with(|| path.to_owned());
        Ok(())
    }

    fn uncounted(&mut self) -> io::Result<()> {
        self.uncounted += 1;
        Ok(())
    }

    fn rank(&mut self, row: &TraceRow, names: &TraceNames) -> u32 {
        let next = self.ranks.len() as u32;
        let processes = &mut self.processes;
        *self.ranks.entry((row.host, row.pid)).or_insert_with(|| {
            let text = |number| named(names.text(number));
            let command = named(&command_line(names.text(row.command)));
            processes.push((text(row.host), row.pid, command));
            next
        })
    }

    /// Writes all, and gives back the writer.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn finish(mut self) -> io::Result<W> {
        let (first, last) = self.span_ns.unwrap_or_default();
        self.head(first, last)?;
        let Self { out, posix, stdio, paths, .. } = &mut self;
        if !posix.is_empty() {
            module_head(out, "POSIX")?;
        }
        for (key, record) in posix {
            posix_record(&mut RecordLines::new(out, "POSIX", *key, paths, first), record)?;
        }
        if !stdio.is_empty() {
            module_head(out, "STDIO")?;
        }
        for (key, record) in stdio {
            stdio_record(&mut RecordLines::new(out, "STDIO", *key, paths, first), record)?;
        }
        self.out.flush()?;
        Ok(self.out)
    }

    fn head(&mut self, first: i64, last: i64) -> io::Result<()> {
        let out = &mut self.out;
        let exe = self.processes.first().map_or("", |(_, _, command)| command);
        writeln!(out, "# darshan log version: 3.41")?;
        writeln!(out, "# compression method: NONE")?;
        writeln!(out, "# exe: {exe}")?;
        writeln!(out, "# uid: {UNKNOWN}")?;
        writeln!(out, "# jobid: 0")?;
        writeln!(out, "# start_time: {}", first.div_euclid(NS))?;
        writeln!(out, "# end_time: {}", last.div_euclid(NS))?;
        writeln!(out, "# nprocs: {}", self.processes.len())?;
        let span = i128::from(last) - i128::from(first);
        writeln!(
            out,
            "# run time: {}.{:04}",
            span / 1_000_000_000,
            span % 1_000_000_000 / 100_000
        )?;
        writeln!(out, "# metadata: made from a trace of Sheaf's")?;
        let (s, ns) = (first.div_euclid(NS), first.rem_euclid(NS));
        writeln!(out, "# the first operation began at: {s}.{ns:09}")?;
        for (rank, (host, pid, command)) in self.processes.iter().enumerate() {
            writeln!(out, "# rank {rank}: {host} {pid} {command}")?;
        }
        writeln!(out, "# operations without a counter: {}", self.uncounted)?;
        if self.lost > 0 {
            writeln!(
                out,
                "# *WARNING*: {} operations were lost while they were recorded",
                self.lost
            )?;
        }
        if self.rest.0 > 0 {
            writeln!(
                out,
                "# *WARNING*: {} operations (bytes: {}) were on files beyond the first {} of a \
                 module, and are in no record",
                self.rest.0, self.rest.1, self.records_max
            )?;
        }
        writeln!(out, "\n# mounted file systems (mount point and fs type)")?;
        writeln!(out, "# -------------------------------------------------------")
    }
}

fn module_head(out: &mut impl Write, module: &str) -> io::Result<()> {
    let line = "# *******************************************************";
    writeln!(out, "\n{line}\n# {module} module data\n{line}\n")?;
    writeln!(
        out,
        "#<module>\t<rank>\t<record id>\t<counter>\t<value>\t<file name>\t<mount pt>\t<fs type>"
    )
}

/// Text as it may stand in a line of fields.
fn named(text: &[u8]) -> String {
    let mut into = String::with_capacity(text.len());
    for character in escaped(text).chars() {
        if character.is_ascii_control() {
            into.push_str(&format!("\\x{:02x}", character as u32));
        } else {
            into.push(character);
        }
    }
    into
}

/// Where the counters of a record are written.
struct RecordLines<'a, W> {
    out: &'a mut W,
    module: &'static str,
    rank: u32,
    id: u64,
    name: String,
    start_ns: i64,
}

impl<'a, W: Write> RecordLines<'a, W> {
    fn new(
        out: &'a mut W,
        module: &'static str,
        (rank, path): (u32, u32),
        paths: &HashMap<u32, Vec<u8>>,
        start_ns: i64,
    ) -> Self {
        let path: &[u8] = paths.get(&path).map_or(b"", Vec::as_slice);
        Self { out, module, rank, id: RingWriter::number_of(path), name: named(path), start_ns }
    }

    fn put(&mut self, counter: &str, value: impl std::fmt::Display) -> io::Result<()> {
        let Self { out, module, rank, id, name, .. } = self;
        writeln!(
            out,
            "{module}\t{rank}\t{id}\t{module}_{counter}\t{value}\t{name}\tUNKNOWN\tUNKNOWN"
        )
    }

    /// A time in ns, as seconds with six digits behind the point.
    fn time(&mut self, counter: &str, ns: i128) -> io::Result<()> {
        let us = (ns + 500) / 1000;
        self.put(counter, format_args!("{}.{:06}", us / 1_000_000, us % 1_000_000))
    }

    /// A moment; 0 for none.
    fn moment(&mut self, counter: &str, ns: Option<i64>) -> io::Result<()> {
        let start = i128::from(self.start_ns);
        self.time(counter, ns.map_or(0, |ns| i128::from(ns) - start))
    }

    fn moments(&mut self, of: [(&str, Moments); 4]) -> io::Result<()> {
        for (name, moments) in of {
            self.moment(&format!("F_{name}_START_TIMESTAMP"), moments.first())?;
        }
        for (name, moments) in of {
            self.moment(&format!("F_{name}_END_TIMESTAMP"), moments.last())?;
        }
        Ok(())
    }

    fn sizes(&mut self, direction: &str, of: &Transfers) -> io::Result<()> {
        for ((_, name), count) in SIZES.iter().zip(of.sizes) {
            self.put(&format!("SIZE_{direction}_{name}"), count)?;
        }
        Ok(())
    }

    fn common(&mut self, of: &str, what: &str, most: [(i64, u64); COMMON_TOLD]) -> io::Result<()> {
        for (number, (value, _)) in most.iter().enumerate() {
            self.put(&format!("{of}{}_{what}", number + 1), value)?;
        }
        for (number, (_, count)) in most.iter().enumerate() {
            self.put(&format!("{of}{}_COUNT", number + 1), count)?;
        }
        Ok(())
    }
}

fn posix_record<W: Write>(lines: &mut RecordLines<'_, W>, record: &FileRecord) -> io::Result<()> {
    let (reads, writes) = (&record.reads, &record.writes);
    let sums: [(&str, i128); 27] = [
        ("OPENS", record.opens.into()),
        ("FILENOS", UNKNOWN.into()),
        ("DUPS", record.dups.into()),
        ("READS", reads.count.into()),
        ("WRITES", writes.count.into()),
        ("SEEKS", record.seeks.into()),
        ("STATS", record.stats.into()),
        ("MMAPS", record.maps.into()),
        ("FSYNCS", record.syncs.into()),
        ("FDSYNCS", UNKNOWN.into()),
        ("RENAME_SOURCES", record.renames.into()),
        ("RENAME_TARGETS", UNKNOWN.into()),
        ("RENAMED_FROM", UNKNOWN.into()),
        ("MODE", UNKNOWN.into()),
        ("BYTES_READ", reads.bytes),
        ("BYTES_WRITTEN", writes.bytes),
        ("MAX_BYTE_READ", reads.byte_max.into()),
        ("MAX_BYTE_WRITTEN", writes.byte_max.into()),
        ("CONSEC_READS", reads.consecutive.into()),
        ("CONSEC_WRITES", writes.consecutive.into()),
        ("SEQ_READS", reads.sequential.into()),
        ("SEQ_WRITES", writes.sequential.into()),
        ("RW_SWITCHES", record.switches.into()),
        ("MEM_NOT_ALIGNED", UNKNOWN.into()),
        ("MEM_ALIGNMENT", UNKNOWN.into()),
        ("FILE_NOT_ALIGNED", record.unaligned.into()),
        ("FILE_ALIGNMENT", ALIGNMENT_BYTES.into()),
    ];
    for (name, value) in sums {
        lines.put(name, value)?;
    }
    lines.put("MAX_READ_TIME_SIZE", reads.longest_size)?;
    lines.put("MAX_WRITE_TIME_SIZE", writes.longest_size)?;
    lines.sizes("READ", reads)?;
    lines.sizes("WRITE", writes)?;
    lines.common("STRIDE", "STRIDE", record.strides.most())?;
    lines.common("ACCESS", "ACCESS", record.accesses.most())?;
    unshared(lines)?;
    lines.moments([
        ("OPEN", record.open),
        ("READ", reads.moments),
        ("WRITE", writes.moments),
        ("CLOSE", record.close),
    ])?;
    lines.time("F_READ_TIME", reads.time.ns)?;
    lines.time("F_WRITE_TIME", writes.time.ns)?;
    lines.time("F_META_TIME", record.meta.ns)?;
    lines.time("F_MAX_READ_TIME", reads.longest_ns.into())?;
    lines.time("F_MAX_WRITE_TIME", writes.longest_ns.into())?;
    unshared_times(lines)
}

fn stdio_record<W: Write>(lines: &mut RecordLines<'_, W>, record: &FileRecord) -> io::Result<()> {
    let (reads, writes) = (&record.reads, &record.writes);
    let sums: [(&str, i128); 10] = [
        ("OPENS", record.opens.into()),
        ("FDOPENS", UNKNOWN.into()),
        ("READS", reads.count.into()),
        ("WRITES", writes.count.into()),
        ("SEEKS", record.seeks.into()),
        ("FLUSHES", record.flushes.into()),
        ("BYTES_WRITTEN", writes.bytes),
        ("BYTES_READ", reads.bytes),
        ("MAX_BYTE_READ", reads.byte_max.into()),
        ("MAX_BYTE_WRITTEN", writes.byte_max.into()),
    ];
    for (name, value) in sums {
        lines.put(name, value)?;
    }
    unshared(lines)?;
    lines.time("F_META_TIME", record.meta.ns)?;
    lines.time("F_WRITE_TIME", writes.time.ns)?;
    lines.time("F_READ_TIME", reads.time.ns)?;
    lines.moments([
        ("OPEN", record.open),
        ("CLOSE", record.close),
        ("WRITE", writes.moments),
        ("READ", reads.moments),
    ])?;
    unshared_times(lines)
}

/// Counters that only records of several ranks have.
fn unshared<W: Write>(lines: &mut RecordLines<'_, W>) -> io::Result<()> {
    for name in ["FASTEST_RANK", "FASTEST_RANK_BYTES", "SLOWEST_RANK", "SLOWEST_RANK_BYTES"] {
        lines.put(name, 0)?;
    }
    Ok(())
}

fn unshared_times<W: Write>(lines: &mut RecordLines<'_, W>) -> io::Result<()> {
    for name in
        ["FASTEST_RANK_TIME", "SLOWEST_RANK_TIME", "VARIANCE_RANK_TIME", "VARIANCE_RANK_BYTES"]
    {
        lines.time(&format!("F_{name}"), 0)?;
    }
    Ok(())
}
