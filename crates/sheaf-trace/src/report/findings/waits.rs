//! What somebody else is waited for.
use super::{EVIDENCE_MAX, Finding, FindingKind, FindingSeverity, PATH_CHARS_MAX, evidence};
use super::{severity_of, span_ns};
use crate::report::data::{IoSums, ProcessData, ReportData, SlowOperation};
use crate::report::units::{count, ratio, shortened, size, time};
use sheaf_recorder::IoOp;

/// Waits that take less than this in all nobody notices …
const WAIT_NS_MIN: u128 = 100_000_000;
/// … nor those of less than this part of the run.
const WAIT_SPAN_PART: u128 = 10;

/// Fewer bytes than this are no measure of how fast they are read.
const SLOW_BYTES_MIN: u128 = 1 << 20;
/// Memory gives some GiB each second; many disks less than this.
const SLOW_BYTES_OF_SECOND: u128 = 200 << 20;

fn is_long(time_ns: u128, data: &ReportData) -> bool {
    time_ns >= WAIT_NS_MIN && time_ns >= span_ns(data) / WAIT_SPAN_PART
}

fn operations(number: u64) -> String {
    match number {
        1 => "1 operation".to_owned(),
        _ => format!("{} operations", count(number)),
    }
}

fn where_of(slow: &SlowOperation) -> String {
    format!("{} on {}, of {}", slow.pid, slow.host, shortened(&slow.path, PATH_CHARS_MAX))
}

/// Locks that others had.
pub(super) fn locks(data: &ReportData) -> Option<Finding> {
    let is_lock = |op: &str| op == IoOp::Lock.word();
    let ops = || data.operations.iter().filter(|op| is_lock(&op.op));
    let time_ns = ops().map(|op| op.sums.time_ns).sum();
    let all: u64 = ops().map(|op| op.sums.count).sum();
    let mut waits: Vec<_> = data.slowest.iter().filter(|slow| is_lock(&slow.op)).collect();
    waits.sort_by_key(|slow| std::cmp::Reverse(slow.duration_ns));
    let longest = waits.first()?;
    let shown = waits
        .iter()
        .take(EVIDENCE_MAX)
        .map(|slow| evidence(&where_of(slow), 1, all.into(), "locks", slow.duration_ns.into()));
    is_long(time_ns, data).then(|| Finding {
        kind: FindingKind::LockWaits,
        severity: severity_of(time_ns, data),
        sentence: format!(
            "Locks of files (flock, lockf, fcntl) were waited for: {} in {}; the longest, {}, \
             by process {}.",
            time(time_ns),
            operations(all),
            time(longest.duration_ns),
            where_of(longest)
        ),
        time_ns,
        advice:
            "See who has the lock meanwhile, and for how long; lock a part of the file, or for \
                 reading alone (F_RDLCK, LOCK_SH), where that will do."
                .to_owned(),
        evidence: shown.collect(),
        evidence_beyond: waits.len().saturating_sub(EVIDENCE_MAX) as u64,
    })
}

/// Files that are read as slowly as disks are: from memory it is ten times as fast.
pub(super) fn slow_reads(data: &ReportData) -> Option<Finding> {
    let reads = &data.totals.read;
    let slow = |reads: &IoSums| {
        let is_much =
            reads.bytes >= SLOW_BYTES_MIN && reads.bytes >= u128::from(reads.count) * 4096;
        is_much && reads.bytes * 1_000_000_000 < SLOW_BYTES_OF_SECOND * reads.time_ns
    };
    let is_so = slow(reads)
        && is_long(reads.time_ns, data)
        && ratio(reads.time_ns, data.io_time_ns()) >= 0.5;
    let mut files: Vec<_> = data.files.iter().filter(|file| !file.is_stream).collect();
    files.retain(|file| file.reads.time_ns > 0);
    files.sort_by_key(|file| std::cmp::Reverse(file.reads.time_ns));
    let shown = files.iter().take(EVIDENCE_MAX).map(|file| {
        let (count, of) = (file.reads.count.into(), reads.count.max(file.reads.count).into());
        evidence(&file.path, count, of, "reads", file.reads.time_ns)
    });
    is_so.then(|| Finding {
        kind: FindingKind::SlowReads,
        severity: severity_of(reads.time_ns, data),
        sentence: format!(
            "{} were read in {}, {} each second, as from a disk and not from memory{}.",
            size(reads.bytes),
            time(reads.time_ns),
            size(reads.bytes * 1_000_000_000 / reads.time_ns.max(1)),
            match files.first() {
                Some(file) => format!(
                    "; the most, {}, of {}",
                    time(file.reads.time_ns),
                    shortened(&file.path, PATH_CHARS_MAX)
                ),
                None => String::new(),
            }
        ),
        time_ns: reads.time_ns,
        advice: "Where the same is read again it is in memory then; else read ahead \
                 (posix_fadvise WILLNEED) or from several threads at once."
            .to_owned(),
        evidence: shown.collect(),
        evidence_beyond: files.len().saturating_sub(EVIDENCE_MAX) as u64,
    })
}

/// Pipes, sockets and terminals at whose other end somebody took their time.
pub(super) fn streams(data: &ReportData) -> Option<Finding> {
    let mut waits: Vec<&ProcessData> =
        data.processes.iter().filter(|of| is_long(of.streams.time_ns, data)).collect();
    waits.sort_by_key(|process| std::cmp::Reverse(process.streams.time_ns));
    let most = waits.first()?;
    let of = |process: &ProcessData| {
        format!("{} {} {}", process.host, process.pid, shortened(&process.command, PATH_CHARS_MAX))
    };
    let shown = waits.iter().take(EVIDENCE_MAX).map(|process| {
        let (sums, all) = (&process.streams, &data.totals.stream);
        let (done, of_all) = (sums.count.into(), all.count.max(sums.count).into());
        evidence(&of(process), done, of_all, "operations on streams", sums.time_ns)
    });
    let longest =
        data.slowest_streams.iter().find(|slow| slow.pid == most.pid && slow.host == most.host);
    Some(Finding {
        kind: FindingKind::StreamWaits,
        // Whoever is waited for may have nothing to say.
        severity: FindingSeverity::Note,
        sentence: format!(
            "Process {} on {} ({}) waited for {} in {} on pipes, sockets and terminals{}.{}",
            most.pid,
            most.host,
            shortened(&most.command, PATH_CHARS_MAX),
            time(most.streams.time_ns),
            operations(most.streams.count),
            match longest {
                Some(slow) => format!(
                    "; the longest, {}, is a {} of {}",
                    time(slow.duration_ns),
                    slow.op,
                    if slow.path.is_empty() { "one without a name" } else { &slow.path }
                ),
                None => String::new(),
            },
            match waits.len() - 1 {
                0 => String::new(),
                1 => " One more process is like it.".to_owned(),
                more => format!(" {} more processes are like it.", count(more as u64)),
            }
        ),
        time_ns: 0,
        advice: "It is no time of files: see what whoever is at the other end does meanwhile."
            .to_owned(),
        evidence: shown.collect(),
        evidence_beyond: waits.len().saturating_sub(EVIDENCE_MAX) as u64,
    })
}
