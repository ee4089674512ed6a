//! What stands out, with the numbers that show it.
use crate::report::data::{AccessPattern, FileData, IoSums, OpClass, ReportData};
use crate::report::units::{count, percent, ratio, shortened, size, time};
use serde::{Deserialize, Serialize};

/// Fewer accesses than this are no pattern, whatever they look like.
const ACCESSES_MIN: u64 = 1000;
/// Less than a page: each call costs more than what it moves.
const SMALL_BYTES: u64 = 4096;
/// A share from which on something is said of “most”.
const MOST: f64 = 0.8;
/// Of random offsets half lie behind the one before: a third going back is not by chance.
const BACKWARD_SHARE_MIN: f64 = 0.3;
/// Where names and attributes take half of the time, data is not what is waited for.
const METADATA_SHARE_MIN: f64 = 0.5;
/// Opened so often by each process on average, and …
const REOPENS_MIN: u64 = 100;
/// … for no more accesses each time than this.
const ACCESSES_OF_OPEN_MAX: u64 = 4;
/// A search path of some directories misses a few hundred times when a program starts.
const MISSING_MIN: u64 = 1000;
/// Of looks at names, those that find nothing.
const MISSING_SHARE_MIN: f64 = 0.5;
/// Waits until data is stored: fewer are what a careful program does.
const SYNCS_MIN: u64 = 100;
/// An operation so many times as long as nine in ten (99 %) of its kind …
const OUTLIER_FACTOR: u64 = 50;
/// … and at least as long as somebody notices …
const OUTLIER_NS_MIN: u64 = 100_000_000;
/// … is an outlier, if there are enough to compare.
const OUTLIER_OPS_MIN: u64 = 100;
/// Processes of which one is compared with the others.
const STRAGGLER_PROCESSES_MIN: usize = 4;
/// It takes so many times as long as the one in the middle …
const STRAGGLER_FACTOR: u128 = 2;
/// … and more by this share of the whole trace.
const STRAGGLER_SPAN_SHARE: u128 = 10;
/// Reads of what was just written: fewer are headers.
const READS_BACK_MIN: u64 = 100;
const READS_BACK_SHARE_MIN: f64 = 0.5;
/// Of seeks, those that move nothing.
const IDLE_SEEKS_SHARE_MIN: f64 = 0.5;
/// From a hundredth lost, sums and patterns are no longer what they seem.
const LOST_GRAVE_SHARE: f64 = 0.01;
/// Files that are named for each finding.
const EVIDENCE_MAX: usize = 10;
/// How much of a path is in a sentence.
const PATH_CHARS_MAX: usize = 100;

/// What a finding is about: the word is for programs, and stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FindingKind {
    /// Operations are missing from the trace.
    LostOperations,
    /// Many small writes that are not aligned.
    SmallWrites,
    /// Many small reads, one behind the other.
    SmallReads,
    /// Reads that go to and fro.
    RandomReads,
    /// Names and attributes take most of the time.
    MetadataBound,
    /// A file is opened again and again.
    Reopened,
    /// Many looks for files that are not there.
    MissingFiles,
    /// Data is waited for after each write.
    SyncEachWrite,
    /// An operation took far longer than others of its kind.
    SlowOutlier,
    /// Processes write to one file, in among each other.
    SharedInterleaved,
    /// A process does I/O for far longer than others.
    Straggler,
    /// What was written is read at once.
    ReadBack,
    /// Seeks to where the file already is.
    IdleSeeks,
}

/// How much it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FindingSeverity {
    /// Worth a look.
    Note,
    /// Costs time.
    Warning,
    /// The most of the time, or the report cannot be relied on.
    Grave,
}

impl FindingSeverity {
    /// Its name.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Grave => "grave",
        }
    }
}

/// Something that stands out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What it is about.
    pub kind: FindingKind,
    /// How much it matters.
    pub severity: FindingSeverity,
    /// What was found, with numbers.
    pub sentence: String,
    /// What may help.
    pub advice: String,
    /// Files, processes or operations that show it, the ones with the most first.
    pub evidence: Vec<FindingEvidence>,
    /// How many more there are.
    pub evidence_beyond: u64,
}

/// What shows a finding: `count` of `of`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FindingEvidence {
    /// The file, process or operation.
    pub subject: String,
    /// So many …
    pub count: u128,
    /// … of so many.
    pub of: u128,
    /// What is counted.
    pub unit: String,
    /// The time that they took, in ns.
    pub time_ns: u128,
}

/// Looks for all kinds of findings; the files are all that have sums.
pub(crate) fn find(data: &ReportData) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(lost(data));
    findings.extend(small_writes(data));
    findings.extend(small_reads(data));
    findings.extend(random_reads(data));
    findings.extend(metadata_bound(data));
    findings.extend(reopened(data));
    findings.extend(missing(data));
    findings.extend(sync_each_write(data));
    findings.extend(slow_outlier(data));
    findings.extend(shared(data));
    findings.extend(straggler(data));
    findings.extend(read_back(data));
    findings.extend(idle_seeks(data));
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings
}

/// What a file shows, if it shows it.
struct FileProof {
    count: u64,
    of: u64,
    time_ns: u128,
}

/// A finding of the files that show it; the sentence is of the one that shows it most.
fn of_files(
    data: &ReportData,
    kind: FindingKind,
    unit: &str,
    advice: &str,
    proof: impl Fn(&FileData) -> Option<FileProof>,
    sentence: impl Fn(&FileData, &FileProof) -> String,
) -> Option<Finding> {
    let mut shown: Vec<(FileProof, &FileData)> =
        data.files.iter().filter_map(|file| Some((proof(file)?, file))).collect();
    shown.sort_by(|(a, file), (b, other)| {
        (b.time_ns, b.count).cmp(&(a.time_ns, a.count)).then_with(|| file.path.cmp(&other.path))
    });
    let (most, file) = shown.first()?;
    let mut text = sentence(file, most);
    match shown.len() - 1 {
        0 => {}
        1 => text.push_str(" One more file is like it."),
        more => text.push_str(&format!(" {} more files are like it.", count(more as u64))),
    }
    let time_ns = shown.iter().map(|(proof, _)| proof.time_ns).sum();
    let evidence = shown.iter().take(EVIDENCE_MAX).map(|(proof, file)| FindingEvidence {
        subject: file.path.clone(),
        count: proof.count.into(),
        of: proof.of.into(),
        unit: unit.to_owned(),
        time_ns: proof.time_ns,
    });
    Some(Finding {
        kind,
        severity: severity_of(time_ns, data),
        sentence: text,
        advice: advice.to_owned(),
        evidence: evidence.collect(),
        evidence_beyond: shown.len().saturating_sub(EVIDENCE_MAX) as u64,
    })
}

/// By its share of the time of all I/O.
fn severity_of(time_ns: u128, data: &ReportData) -> FindingSeverity {
    match ratio(time_ns, io_time(data)) {
        share if share >= 0.5 => FindingSeverity::Grave,
        share if share >= 0.05 => FindingSeverity::Warning,
        _ => FindingSeverity::Note,
    }
}

/// Of what is done to files, without that processes begin and end.
fn io_time(data: &ReportData) -> u128 {
    data.totals.all.time_ns - data.totals.process.time_ns.min(data.totals.all.time_ns)
}

fn path(file: &FileData) -> String {
    shortened(&file.path, PATH_CHARS_MAX)
}

fn evidence(subject: &str, count: u128, of: u128, unit: &str, time_ns: u128) -> FindingEvidence {
    FindingEvidence { subject: subject.to_owned(), count, of, unit: unit.to_owned(), time_ns }
}

fn lost(data: &ReportData) -> Option<Finding> {
    let lost = data.lost.count;
    if lost == 0 {
        return None;
    }
    let all = lost + u128::from(data.rows);
    let is_grave = ratio(lost, all) >= LOST_GRAVE_SHARE;
    let shown = data.lost.biggest.iter().take(EVIDENCE_MAX).map(|range| {
        let length = range.to_ns.abs_diff(range.from_ns);
        let subject = format!("{} {}", range.host, range.pid);
        evidence(&subject, range.count.into(), all, "lost operations", length.into())
    });
    Some(Finding {
        kind: FindingKind::LostOperations,
        severity: if is_grave { FindingSeverity::Grave } else { FindingSeverity::Warning },
        sentence: format!(
            "{} of {} operations ({}) are not in the trace, in {} ranges of time: all sums are too \
             low by them.",
            count(lost),
            count(all),
            percent(lost, all),
            count(data.lost.ranges)
        ),
        advice: "Record with more room: sheaf trace record --records N, or --kernel-buffer."
            .to_owned(),
        evidence: shown.collect(),
        evidence_beyond: data.lost.ranges.saturating_sub(EVIDENCE_MAX as u64),
    })
}

/// What most of them ask for: one size, or less than a page.
fn usual_size(pattern: &AccessPattern) -> String {
    match pattern.common_sizes.first() {
        Some(common) if ratio(common.count, pattern.count) >= MOST => {
            format!("are of {}", size(common.bytes))
        }
        _ => format!("are of less than {}", size(SMALL_BYTES)),
    }
}

/// Buffered files gather small accesses: those are not what reaches the file system.
fn unbuffered(file: &FileData) -> Option<&crate::report::data::AccessData> {
    file.lowest_access().filter(|access| access.layer != "stdio")
}

/// The share of the time of all accesses of a kind; those within others have none of their own.
fn part_of(sums: &IoSums, count: u64) -> u128 {
    let all = u128::from(sums.count.max(count).max(1));
    sums.time_ns * u128::from(count) / all
}

fn small_writes(data: &ReportData) -> Option<Finding> {
    of_files(
        data,
        FindingKind::SmallWrites,
        "writes of less than 4 KiB",
        "Gather what is written in a buffer of 1 MiB or more, and write it at multiples of 4 KiB.",
        |file| {
            let writes = &unbuffered(file)?.writes;
            let small = writes.smaller_than(SMALL_BYTES);
            let unaligned = writes.placed - writes.aligned;
            let is_so = small >= ACCESSES_MIN
                && ratio(small, writes.count) >= MOST
                && ratio(unaligned, writes.placed) >= 0.5;
            is_so.then(|| FileProof {
                count: small,
                of: writes.count,
                time_ns: part_of(&file.writes, small),
            })
        },
        |file, proof| {
            let writes = &file.lowest_access().expect("it has shown it").writes;
            format!(
                "{} of {} writes to {} {}, and {} of them are not aligned to 4 KiB.",
                percent(proof.count, proof.of),
                count(proof.of),
                path(file),
                usual_size(writes),
                percent(writes.placed - writes.aligned, writes.placed)
            )
        },
    )
}

fn small_reads(data: &ReportData) -> Option<Finding> {
    of_files(
        data,
        FindingKind::SmallReads,
        "reads of less than 4 KiB",
        "Read through a buffer (fread, BufReader) of 64 KiB or more: the next reads then cost no \
         call.",
        |file| {
            let reads = &unbuffered(file)?.reads;
            let small = reads.smaller_than(SMALL_BYTES);
            let in_order = reads.consecutive + reads.first;
            let is_so = small >= ACCESSES_MIN
                && ratio(small, reads.count) >= MOST
                && ratio(in_order, reads.placed) >= MOST;
            let time_ns = part_of(&file.reads, small);
            is_so.then_some(FileProof { count: small, of: reads.count, time_ns })
        },
        |file, proof| {
            let reads = &file.lowest_access().expect("it has shown it").reads;
            format!(
                "{} of {} reads of {} {}, and {} of them go on where the one before ended.",
                percent(proof.count, proof.of),
                count(proof.of),
                path(file),
                usual_size(reads),
                percent(reads.consecutive, reads.placed)
            )
        },
    )
}

fn random_reads(data: &ReportData) -> Option<Finding> {
    of_files(
        data,
        FindingKind::RandomReads,
        "reads that go back",
        "Sort the accesses by offset, read larger pieces, or map the file; on a parallel file \
         system read ahead is of no use here (posix_fadvise RANDOM).",
        |file| {
            let reads = &unbuffered(file)?.reads;
            let is_so = reads.placed >= ACCESSES_MIN
                && ratio(reads.backward, reads.placed) >= BACKWARD_SHARE_MIN;
            let (count, of) = (reads.backward, reads.placed);
            is_so.then(|| FileProof { count, of, time_ns: part_of(&file.reads, reads.placed) })
        },
        |file, proof| {
            let reads = &file.lowest_access().expect("it has shown it").reads;
            format!(
                "{} of {} reads of {} begin before the end of the one before, and only {} go on \
                 there.",
                percent(proof.count, proof.of),
                count(proof.of),
                path(file),
                percent(reads.consecutive, reads.placed)
            )
        },
    )
}

fn metadata_bound(data: &ReportData) -> Option<Finding> {
    let metadata = &data.totals.metadata;
    let all = io_time(data);
    let is_so =
        metadata.count >= ACCESSES_MIN && ratio(metadata.time_ns, all) >= METADATA_SHARE_MIN;
    let ops = || data.operations.iter().filter(|op| op.class == OpClass::Metadata);
    is_so.then(|| Finding {
        kind: FindingKind::MetadataBound,
        severity: FindingSeverity::Grave,
        sentence: format!(
            "{} of the time of all I/O, {} of {}, went into {} operations on names, attributes \
             and directories.",
            percent(metadata.time_ns, all),
            time(metadata.time_ns),
            time(all),
            count(metadata.count)
        ),
        advice: "Open files once and keep them open; put many small files into one; look at \
                 names in one process and tell the others."
            .to_owned(),
        evidence: ops()
            .take(EVIDENCE_MAX)
            .map(|op| {
                let of = metadata.count.max(op.sums.count);
                let unit = "operations on names";
                evidence(&op.op, op.sums.count.into(), of.into(), unit, op.sums.time_ns)
            })
            .collect(),
        evidence_beyond: ops().count().saturating_sub(EVIDENCE_MAX) as u64,
    })
}

fn reopened(data: &ReportData) -> Option<Finding> {
    of_files(
        data,
        FindingKind::Reopened,
        "openings",
        "Open it once, and keep it open.",
        |file| {
            let processes = file.processes.max(1);
            let accesses = file.reads.count + file.writes.count;
            let is_so = file.opens >= REOPENS_MIN.saturating_mul(processes)
                && accesses <= file.opens.saturating_mul(ACCESSES_OF_OPEN_MAX);
            let time_ns = part_of(&file.metadata, file.metadata.count);
            is_so.then_some(FileProof { count: file.opens, of: file.opens, time_ns })
        },
        |file, _| {
            format!(
                "{} was opened {} times by {} process(es), for {} reads and {} writes.",
                path(file),
                count(file.opens),
                count(file.processes),
                count(file.reads.count),
                count(file.writes.count)
            )
        },
    )
}

fn missing(data: &ReportData) -> Option<Finding> {
    const ENOENT: i32 = 2;
    let is_look = |op: &str| matches!(op, "open" | "stat" | "access" | "readlink");
    let looks: u64 =
        data.operations.iter().filter(|op| is_look(&op.op)).map(|op| op.sums.count).sum();
    let failed = || data.failures.iter().filter(|of| of.errno == ENOENT && is_look(&of.op));
    let missing: u64 = failed().map(|failure| failure.count).sum();
    let time_ns: u128 = failed().map(|failure| failure.time_ns).sum();
    if missing < MISSING_MIN || ratio(missing, looks) < MISSING_SHARE_MIN {
        return None;
    }
    let mut directories: Vec<_> =
        data.directories.iter().filter(|directory| directory.missing > 0).collect();
    directories.sort_by(|a, b| b.missing.cmp(&a.missing).then_with(|| a.path.cmp(&b.path)));
    let shown = directories.iter().take(EVIDENCE_MAX).map(|directory| {
        let (count, of) = (directory.missing.into(), missing.max(directory.missing).into());
        evidence(&directory.path, count, of, "looks for files that are not there", 0)
    });
    Some(Finding {
        kind: FindingKind::MissingFiles,
        severity: severity_of(time_ns, data),
        sentence: format!(
            "{} of {} looks at names (open, stat, access, readlink) found no file: {} in {} \
             directories.",
            percent(missing, looks),
            count(looks),
            time(time_ns),
            count(directories.len() as u64)
        ),
        advice: "Shorten search paths (PATH, PYTHONPATH, LD_LIBRARY_PATH), or put what is looked \
                 for first."
            .to_owned(),
        evidence: shown.collect(),
        evidence_beyond: directories.len().saturating_sub(EVIDENCE_MAX) as u64,
    })
}

fn sync_each_write(data: &ReportData) -> Option<Finding> {
    of_files(
        data,
        FindingKind::SyncEachWrite,
        "waits after a single write",
        "Write more before each fsync, or open the file with O_DSYNC if each write must be stored.",
        |file| {
            let is_so = file.syncs_after_write >= SYNCS_MIN
                && ratio(file.syncs_after_write, file.writes.count) >= MOST;
            let (count, of) = (file.syncs_after_write, file.writes.count);
            is_so.then_some(FileProof { count, of, time_ns: file.syncs.time_ns })
        },
        |file, proof| {
            format!(
                "{} of {} writes to {} are waited for one by one (fsync): {}, the writes \
                 themselves {}.",
                percent(proof.count, proof.of),
                count(proof.of),
                path(file),
                time(file.syncs.time_ns),
                time(file.writes.time_ns)
            )
        },
    )
}

/// A time in which 99 % of the operations ended, by the powers of two that are counted.
fn usual_time(durations: &[crate::report::data::SizeBucket]) -> u64 {
    let all: u128 = durations.iter().map(|bucket| u128::from(bucket.count)).sum();
    let mut passed = 0;
    for bucket in durations {
        passed += u128::from(bucket.count);
        if passed * 100 >= all * 99 {
            return bucket.to;
        }
    }
    0
}

fn slow_outlier(data: &ReportData) -> Option<Finding> {
    let mut outliers: Vec<_> = data
        .slowest
        .iter()
        .filter_map(|slow| {
            let of_kind =
                data.operations.iter().find(|op| op.op == slow.op && op.layer == slow.layer)?;
            let usual_ns = usual_time(&of_kind.durations);
            let is_so = of_kind.sums.count >= OUTLIER_OPS_MIN
                && slow.duration_ns >= OUTLIER_NS_MIN
                && slow.duration_ns / OUTLIER_FACTOR >= usual_ns.max(1);
            is_so.then_some((slow, of_kind, usual_ns))
        })
        .collect();
    outliers.sort_by_key(|(slow, ..)| std::cmp::Reverse(slow.duration_ns));
    let (slow, of_kind, usual_ns) = outliers.first()?;
    let time_ns = outliers.iter().map(|(slow, ..)| u128::from(slow.duration_ns)).sum();
    let shown = outliers.iter().take(EVIDENCE_MAX).map(|(slow, of_kind, _)| {
        let subject = match slow.path.as_str() {
            "" => format!("{} on {}", slow.op, slow.host),
            path => format!("{} {path} on {}", slow.op, slow.host),
        };
        evidence(&subject, 1, of_kind.sums.count.into(), "operations", slow.duration_ns.into())
    });
    Some(Finding {
        kind: FindingKind::SlowOutlier,
        severity: severity_of(time_ns, data),
        sentence: format!(
            "A {} of process {} on {} took {}, while 99 % of {} took less than {}.{}",
            slow.op,
            slow.pid,
            slow.host,
            time(slow.duration_ns),
            count(of_kind.sums.count),
            time(usual_ns.saturating_add(1)),
            match outliers.len() - 1 {
                0 => String::new(),
                more => format!(" {more} more are like it."),
            }
        ),
        advice: "See what the server or the disk did at that time.".to_owned(),
        evidence: shown.collect(),
        evidence_beyond: outliers.len().saturating_sub(EVIDENCE_MAX) as u64,
    })
}

fn shared(data: &ReportData) -> Option<Finding> {
    of_files(
        data,
        FindingKind::SharedInterleaved,
        "processes that write among others",
        "Give each process a part of its own, aligned to the file system's blocks, or write \
         collectively (MPI_File_write_all).",
        |file| {
            let is_so = file.overlapping_writers >= 2 && file.writes.count >= SYNCS_MIN;
            let (count, of) = (file.overlapping_writers, file.writers);
            is_so.then_some(FileProof { count, of, time_ns: file.writes.time_ns })
        },
        |file, proof| {
            format!(
                "{} of {} processes that write to {} write in among each other ({} writes, {}): \
                 the file system passes its locks to and fro.",
                count(proof.count),
                count(proof.of),
                path(file),
                count(file.writes.count),
                size(file.writes.bytes)
            )
        },
    )
}

fn straggler(data: &ReportData) -> Option<Finding> {
    // Of the program with the most processes: others are not its like.
    let mut by_command: std::collections::BTreeMap<&str, Vec<_>> = Default::default();
    for process in &data.processes {
        by_command.entry(&process.command).or_default().push(process);
    }
    let mut alike = by_command.into_values().max_by_key(Vec::len)?;
    if alike.len() < STRAGGLER_PROCESSES_MIN {
        return None;
    }
    alike.sort_by_key(|process| process.time_ns());
    let slowest = alike[alike.len() - 1];
    let (middle_ns, longest_ns) = (alike[(alike.len() - 1) / 2].time_ns(), slowest.time_ns());
    let span_ns = u128::from(data.span.map_or(0, |span| span.length_ns()));
    let is_so = longest_ns >= middle_ns.max(1) * STRAGGLER_FACTOR
        && longest_ns - middle_ns >= (span_ns / STRAGGLER_SPAN_SHARE).max(1);
    let late = || {
        alike
            .iter()
            .rev()
            .filter(|process| process.time_ns() >= middle_ns.max(1) * STRAGGLER_FACTOR)
    };
    is_so.then(|| Finding {
        kind: FindingKind::Straggler,
        severity: FindingSeverity::Warning,
        sentence: format!(
            "Process {} on {} did I/O for {}, the middle one of {} alike for {}: the others may \
             wait for it.",
            slowest.pid,
            slowest.host,
            time(longest_ns),
            count(alike.len() as u64),
            time(middle_ns)
        ),
        advice: "See whether it does more than its share, or its host is slower.".to_owned(),
        evidence: late()
            .take(EVIDENCE_MAX)
            .map(|process| {
                let subject = format!("{} {}", process.host, process.pid);
                let sums = [process.reads.count, process.writes.count, process.other.count];
                let done = sums.iter().map(|count| u128::from(*count)).sum();
                let of = u128::from(data.totals.all.count).max(done);
                evidence(&subject, done, of, "operations", process.time_ns())
            })
            .collect(),
        evidence_beyond: late().count().saturating_sub(EVIDENCE_MAX) as u64,
    })
}

fn read_back(data: &ReportData) -> Option<Finding> {
    of_files(
        data,
        FindingKind::ReadBack,
        "reads of what was just written",
        "Keep in memory what is needed again.",
        |file| {
            let is_so = file.reads_back >= READS_BACK_MIN
                && ratio(file.reads_back, file.reads.count) >= READS_BACK_SHARE_MIN;
            let (count, of) = (file.reads_back, file.reads.count);
            is_so.then(|| FileProof { count, of, time_ns: part_of(&file.reads, count) })
        },
        |file, proof| {
            format!(
                "{} of {} reads of {} are of what the same process had just written.",
                percent(proof.count, proof.of),
                count(proof.of),
                path(file)
            )
        },
    )
}

fn idle_seeks(data: &ReportData) -> Option<Finding> {
    of_files(
        data,
        FindingKind::IdleSeeks,
        "seeks that move nothing",
        "Leave them out, or use pread and pwrite, which take the offset along.",
        |file| {
            let is_so = file.idle_seeks >= ACCESSES_MIN
                && ratio(file.idle_seeks, file.seeks) >= IDLE_SEEKS_SHARE_MIN;
            let seek_ns = file.other.time_ns - file.metadata.time_ns - file.syncs.time_ns;
            let (count, of) = (file.idle_seeks, file.seeks);
            is_so.then_some(FileProof { count, of, time_ns: seek_ns })
        },
        |file, proof| {
            format!(
                "{} of {} seeks in {} move nothing: the next access goes on where the one before \
                 ended, or is another seek.",
                percent(proof.count, proof.of),
                count(proof.of),
                path(file)
            )
        },
    )
}
