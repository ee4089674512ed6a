//! What stands out of single files.
use super::{ACCESSES_MIN, FileProof, Finding, FindingKind, FindingSeverity, MOST, of_files, path};
use crate::report::data::{AccessData, AccessPattern, FileData, IoSums, ReportData};
use crate::report::units::{count, percent, ratio, size, time};

/// Less than a page: each call costs more than what it moves.
const SMALL_BYTES: u64 = 4096;
/// Of random offsets half lie behind the one before: a third going back is not by chance.
const BACKWARD_SHARE_MIN: f64 = 0.3;
/// Opened so often by each process on average, and …
const REOPENS_MIN: u64 = 100;
/// … for no more accesses each time than this.
const ACCESSES_OF_OPEN_MAX: u64 = 4;
/// A small file is read by a read, and another one that finds its end.
const READS_OF_OPEN_MAX: u64 = 2;
/// Waits until data is stored: fewer are what a careful program does.
const SYNCS_MIN: u64 = 100;
/// Fewer bytes than this for each wait are little.
const SYNC_BYTES_MAX: u128 = 64 << 10;
/// The same for each time that what is gathered is given away.
const FLUSH_BYTES_MAX: u128 = 512;
/// A file is read so many times over, and so many bytes of it in all.
const READS_OVER_MIN: u128 = 8;
const READ_AGAIN_BYTES_MIN: u128 = 16 << 20;
/// Reads of what was just written: fewer are headers.
const READS_BACK_MIN: u64 = 100;
const READS_BACK_SHARE_MIN: f64 = 0.5;
const SEEKS_OF_OPEN_MAX: u64 = 4;
/// So many reads and writes that are refused are no probing.
const REFUSED_MIN: u64 = 10;
/// Of seeks, those that move nothing.
const IDLE_SEEKS_SHARE_MIN: f64 = 0.5;

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
fn unbuffered(file: &FileData) -> Option<&AccessData> {
    file.lowest_access().filter(|access| access.layer != "stdio")
}

/// The share of the time of all accesses of a kind; those within others have none of their own.
fn part_of(sums: &IoSums, count: u64) -> u128 {
    let all = u128::from(sums.count.max(count).max(1));
    sums.time_ns * u128::from(count) / all
}

pub(super) fn small_writes(data: &ReportData) -> Option<Finding> {
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

pub(super) fn small_reads(data: &ReportData) -> Option<Finding> {
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
                && ratio(in_order, reads.placed) >= MOST
                // One that is read whole, to its end, is as small as it is.
                && reads.count > file.opens.saturating_mul(READS_OF_OPEN_MAX);
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

pub(super) fn random_reads(data: &ReportData) -> Option<Finding> {
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

pub(super) fn reopened(data: &ReportData) -> Option<Finding> {
    of_files(
        data,
        FindingKind::Reopened,
        "openings",
        "Open it once, and keep it open (a shell's >> opens its file each time: put it behind the \
         loop's done).",
        |file| {
            let processes = file.processes.max(1);
            let accesses = file.reads.count + file.writes.count;
            // Where nothing is read or written, its names are stored (fsync), or looked at.
            let is_so = file.opens >= REOPENS_MIN.saturating_mul(processes)
                && (accesses > 0 || file.syncs.count == 0)
                && !is_made_anew(file)
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

/// Whether it is another file each time that it is opened: it is moved or taken away in between.
fn is_made_anew(file: &FileData) -> bool {
    file.removals.saturating_add(file.renames).saturating_mul(2) >= file.opens
}

pub(super) fn sync_each_write(data: &ReportData) -> Option<Finding> {
    of_files(
        data,
        FindingKind::SyncEachWrite,
        "waits after a single write",
        "Write more before each fsync, or open the file with O_DSYNC if each write must be stored.",
        |file| {
            let (count, of) = (file.syncs_after_write, file.writes.count);
            is_synced_each_write(file).then_some(FileProof {
                count,
                of,
                time_ns: file.syncs.time_ns,
            })
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

/// Each single write is another finding.
fn is_synced_each_write(file: &FileData) -> bool {
    file.syncs_after_write >= SYNCS_MIN && ratio(file.syncs_after_write, file.writes.count) >= MOST
}

pub(super) fn frequent_syncs(data: &ReportData) -> Option<Finding> {
    of_files(
        data,
        FindingKind::FrequentSyncs,
        "waits until data is stored",
        if has_log(data) {
            "Put more into one transaction or between two waits (sqlite: BEGIN … COMMIT; with its \
             log synchronous=NORMAL waits less often)."
        } else {
            "Put more into one transaction or between two waits; a database may have a log for it \
             (sqlite: BEGIN … COMMIT, journal_mode=WAL)."
        },
        |file| {
            let count = file.syncs.count;
            let is_so = count >= SYNCS_MIN
                && file.writes.bytes / u128::from(count) < SYNC_BYTES_MAX
                && !is_synced_each_write(file);
            is_so.then_some(FileProof { count, of: count, time_ns: file.syncs.time_ns })
        },
        |file, proof| {
            format!(
                "{} is waited for {} times until it is stored (fsync): {}{}, for {} that are written each time{}.{}",
                path(file),
                count(proof.count),
                time(proof.time_ns),
                match data.totals.sync.time_ns.saturating_sub(proof.time_ns) {
                    0 => String::new(),
                    others => format!(" (other files {})", time(others)),
                },
                size(file.writes.bytes / u128::from(proof.count)),
                syncs_of_mib(file),
                journal_of(data, file)
            )
        },
    )
}

/// Whether a database has a log that it writes ahead.
fn has_log(data: &ReportData) -> bool {
    let is_log = |file: &&FileData| file.path.ends_with("-wal") || file.path.ends_with(".wal");
    data.files.iter().filter(is_log).any(|file| file.writes.count > 0)
}

/// How many waits each MiB takes.
fn syncs_of_mib(file: &FileData) -> String {
    match (u128::from(file.syncs.count) << 20).checked_div(file.writes.bytes) {
        Some(each) => format!(", {} for each MiB", count(each)),
        None => String::new(),
    }
}

/// What a database writes beside the file, and removes at the end of each transaction.
fn journal_of(data: &ReportData, file: &FileData) -> String {
    let of_it = |other: &&FileData| {
        other.removals >= SYNCS_MIN && (other.path == file.path || is_beside(other, file))
    };
    match data.files.iter().filter(of_it).max_by_key(|other| other.removals) {
        Some(journal) => {
            let is_itself = journal.path == file.path;
            let what = if is_itself { "It".to_owned() } else { path(journal) };
            format!(" {what} is written and removed {} times.", count(journal.removals))
        }
        None => String::new(),
    }
}

/// Whether its name is that of the other one with something behind it.
fn is_beside(file: &FileData, other: &FileData) -> bool {
    let rest = file.path.strip_prefix(&other.path);
    rest.is_some_and(|rest| !rest.is_empty() && !rest.contains('/'))
}

pub(super) fn sync_opened(data: &ReportData) -> Option<Finding> {
    of_files(
        data,
        FindingKind::SyncOpened,
        "writes of files that were opened with O_SYNC",
        "Write more at once, or open it without O_SYNC and wait for all of it once (fdatasync).",
        |file| {
            let count = file.writes.count;
            let is_so = file.sync_opens > 0 && count >= SYNCS_MIN;
            is_so.then_some(FileProof { count, of: count, time_ns: file.writes.time_ns })
        },
        |file, proof| {
            format!(
                "Each of {} writes to {} waits until it is stored (O_SYNC or O_DSYNC): {}.",
                count(proof.count),
                path(file),
                time(proof.time_ns)
            )
        },
    )
}

pub(super) fn flushed(data: &ReportData) -> Option<Finding> {
    of_files(
        data,
        FindingKind::Flushed,
        "times that what was gathered is given away",
        "Leave fflush out, or do it where somebody waits for it: the buffer is there so that many \
         writes become one.",
        |file| {
            let stdio = file.accesses.iter().find(|access| access.layer == "stdio")?;
            let (count, writes) = (file.flushes, &stdio.writes);
            // A shell that appends a line at a time opens the file for each.
            let is_so = count >= ACCESSES_MIN
                && count > file.opens.saturating_mul(2)
                && ratio(count, writes.count) >= 0.5
                && writes.bytes / u128::from(count) < FLUSH_BYTES_MAX;
            // Where it is given away is not told apart from other calls on it.
            let time_ns = file.other.time_ns - file.metadata.time_ns - file.syncs.time_ns;
            is_so.then_some(FileProof { count, of: count, time_ns })
        },
        |file, proof| {
            format!(
                "{} is given to the kernel {} times (fflush), after {} each time.",
                path(file),
                count(proof.count),
                size(file.writes.bytes / u128::from(proof.count))
            )
        },
    )
}

/// How many times over it is read, where that is many: what a stream reads has no offset, and is
/// taken to be the same each time that it is opened.
fn times_read(file: &FileData) -> Option<u128> {
    let times = match file.read_to {
        0 => file.opens.into(),
        read_to => file.reads.bytes / u128::from(read_to),
    };
    (times >= READS_OVER_MIN && file.reads.bytes >= READ_AGAIN_BYTES_MIN).then_some(times)
}

pub(super) fn read_again(data: &ReportData) -> Option<Finding> {
    of_files(
        data,
        FindingKind::ReadAgain,
        "times that it is read",
        "Read it once and keep what is needed of it in memory; give others what was read, or put \
         it where reading is cheap (mmap, a local disk).",
        |file| {
            let count = u64::try_from(times_read(file)?).unwrap_or(u64::MAX);
            Some(FileProof { count, of: count, time_ns: file.reads.time_ns })
        },
        |file, proof| {
            format!(
                "{} is read {} times over: {}, of which {} each time, by {} process(es).",
                path(file),
                count(proof.count),
                size(file.reads.bytes),
                size(file.reads.bytes / u128::from(proof.count)),
                count(file.processes)
            )
        },
    )
}

pub(super) fn shared(data: &ReportData) -> Option<Finding> {
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

pub(super) fn read_back(data: &ReportData) -> Option<Finding> {
    of_files(
        data,
        FindingKind::ReadBack,
        "reads of what was just written",
        "Keep in memory what is needed again.",
        |file| {
            let is_so = file.reads_back >= READS_BACK_MIN
                && ratio(file.reads_back, file.reads.count) >= READS_BACK_SHARE_MIN
                && times_read(file).is_none();
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

pub(super) fn idle_seeks(data: &ReportData) -> Option<Finding> {
    of_files(
        data,
        FindingKind::IdleSeeks,
        "seeks that move nothing",
        "Leave them out, or use pread and pwrite, which take the offset along.",
        |file| {
            let is_so = file.idle_seeks >= ACCESSES_MIN
                // Interpreters look where they are each time that they open a file.
                && file.seeks > file.opens.saturating_mul(SEEKS_OF_OPEN_MAX)
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

pub(super) fn refused_direct(data: &ReportData) -> Option<Finding> {
    let mut finding = of_files(
        data,
        FindingKind::RefusedDirect,
        "reads and writes that were refused",
        "With O_DIRECT the address in memory, the offset and the length have to be multiples of the block of the \
         device (512 or 4096 bytes; statx STATX_DIOALIGN says which).",
        |file| {
            let (count, of) = (file.refused.count, file.reads.count + file.writes.count);
            let is_so = file.direct_opens > 0 && count >= REFUSED_MIN;
            is_so.then_some(FileProof { count, of, time_ns: file.refused.time_ns })
        },
        |file, proof| {
            format!(
                "{} of {} reads and writes of {}, which was opened with O_DIRECT, failed with EINVAL.",
                count(proof.count),
                count(proof.of),
                path(file)
            )
        },
    )?;
    // What fails is done again in another way, or is not done.
    finding.severity = finding.severity.max(FindingSeverity::Warning);
    Some(finding)
}
