//! What stands out of a trace as a whole, of its operations and its processes.
use super::{
    ACCESSES_MIN, EVIDENCE_MAX, Finding, FindingKind, FindingSeverity, PATH_CHARS_MAX, evidence,
    severity_of, span_ns,
};
use crate::report::data::{OpClass, ProcessData, ReportData};
use crate::report::units::{count, percent, ratio, shortened, time};

/// Where names and attributes take half of the time, data is not what is waited for.
const METADATA_SHARE_MIN: f64 = 0.5;
/// So does what takes a fifth of the run, and is noticed.
const METADATA_RUN_PART: u128 = 5;
const METADATA_NS_MIN: u128 = 100_000_000;
/// On average an operation on a name takes this at most where the kernel has it in memory, and more than that …
const FAST_NAME_NS: u128 = 20_000;
/// … where a network or a disk is asked.
const SLOW_NAME_NS: u128 = 200_000;
/// Somebody has to wait for this.
const LONG_NS: u128 = 1_000_000_000;
/// A search path of some directories misses a few hundred times when a program starts.
const MISSING_MIN: u64 = 1000;
/// Of looks at names, those that find nothing.
const MISSING_SHARE_MIN: f64 = 0.5;
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
/// Processes that do less than this part of the operations of another one do something else.
const STRAGGLER_OPS_PART: u64 = 10;
/// From a hundredth lost, sums and patterns are no longer what they seem.
const LOST_GRAVE_SHARE: f64 = 0.01;

pub(super) fn lost(data: &ReportData) -> Option<Finding> {
    let lost = data.lost.count + u128::from(data.unwritten);
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
            "{} of {} operations ({}) are not in the trace{}: all sums are too low by them.",
            count(lost),
            count(all),
            percent(lost, all),
            match data.lost.ranges {
                0 => String::new(),
                1 => ", in 1 range of time".to_owned(),
                more => format!(", in {} ranges of time", count(more)),
            }
        ),
        time_ns: 0,
        advice: if data.unwritten > 0 {
            "They could not be stored: give the trace a disk with more room (--output).".to_owned()
        } else if data.lost.unplaced >= lost {
            "No buffer could be made for them, however much room there is: why is at the end."
                .to_owned()
        } else if data.layers.iter().any(|layer| layer.layer == "kernel") {
            "Record with more room: sheaf trace record --kernel-buffer SIZE.".to_owned()
        } else {
            "Record with more room: sheaf trace record --records N.".to_owned()
        },
        evidence: shown.collect(),
        evidence_beyond: data.lost.ranges.saturating_sub(EVIDENCE_MAX as u64),
    })
}

/// What may help where most of the time of operations on names goes into this one.
fn advice_on_names(op: &str) -> &'static str {
    match op {
        "open" | "close" => {
            "Open files once and keep them open, where they are used again; put many small files \
             into one."
        }
        "stat" | "access" | "readlink" | "xattr" => {
            "Look at each name once, and tell others what was found; whoever watches for changes \
             has inotify for it."
        }
        "readdir" | "opendir" | "closedir" => {
            "List each directory once; spread many files over directories, or put small ones into \
             one file."
        }
        "unlink" | "rmdir" | "rename" | "link" | "symlink" | "mkdir" | "mknod" => {
            "Each name that is made, moved or taken away changes its directory: put many small files \
             into one, or keep and write over them."
        }
        "truncate" | "fallocate" => "Set a file's length once, and write over what is there.",
        "setattr" => "Set owner, mode and times once, or where the file is made.",
        _ => {
            "Open files once and keep them open; put many small files into one; look at names in \
             one process and tell the others."
        }
    }
}

pub(super) fn metadata_bound(data: &ReportData) -> Option<Finding> {
    let metadata = &data.totals.metadata;
    let all = data.io_time_ns();
    let is_of_run = metadata.time_ns >= METADATA_NS_MIN.max(span_ns(data) / METADATA_RUN_PART);
    let is_so = metadata.count >= ACCESSES_MIN
        && (ratio(metadata.time_ns, all) >= METADATA_SHARE_MIN || is_of_run);
    let each_ns = metadata.time_ns / u128::from(metadata.count.max(1));
    let severity = match severity_of(metadata.time_ns, data) {
        // It is the program's work, and each is as fast as it gets: only that there are so many can be changed.
        _ if each_ns < FAST_NAME_NS && metadata.time_ns < LONG_NS => FindingSeverity::Note,
        severity if each_ns < FAST_NAME_NS => severity.min(FindingSeverity::Warning),
        severity => severity,
    };
    let ops = || data.operations.iter().filter(|op| op.class == OpClass::Metadata);
    let most = data.directories.iter().max_by(|a, b| {
        a.metadata.time_ns.cmp(&b.metadata.time_ns).then_with(|| b.path.cmp(&a.path))
    });
    let costly = ops().next();
    is_so.then(|| Finding {
        kind: FindingKind::MetadataBound,
        severity,
        sentence: format!(
            "{} of the time of all I/O, {} of {}, went into {} operations on names, attributes \
             and directories, {} each{}{}{}.",
            percent(metadata.time_ns, all),
            time(metadata.time_ns),
            time(all),
            count(metadata.count),
            time(each_ns),
            match each_ns {
                ..FAST_NAME_NS => " (as from memory)",
                SLOW_NAME_NS.. => " (slow, as from a network or a busy disk)",
                _ => "",
            },
            match costly {
                Some(op) => format!(
                    ", {} of it into {} {}",
                    time(op.sums.time_ns),
                    count(op.sums.count),
                    op.op
                ),
                None => String::new(),
            },
            match most {
                Some(of) => format!(
                    "; by directory the most, {}, into {} in {}",
                    time(of.metadata.time_ns),
                    count(of.metadata.count),
                    shortened(&of.path, PATH_CHARS_MAX)
                ),
                None => String::new(),
            }
        ),
        time_ns: metadata.time_ns,
        advice: costly.map_or("", |op| advice_on_names(&op.op)).to_owned(),
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

pub(super) fn missing(data: &ReportData) -> Option<Finding> {
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
    let polled = data.files.iter().max_by_key(|file| file.missing);
    let polled = polled.filter(|file| ratio(file.missing, missing) >= METADATA_SHARE_MIN);
    Some(Finding {
        kind: FindingKind::MissingFiles,
        severity: severity_of(time_ns, data),
        sentence: format!(
            "{} of {} looks at names (open, stat, access, readlink) found no file: {} in {} \
             directories{}.",
            percent(missing, looks),
            count(looks),
            time(time_ns),
            count(directories.len() as u64),
            match directories.first() {
                Some(of) => format!(
                    ", the most, {}, in {}",
                    count(of.missing),
                    shortened(&of.path, PATH_CHARS_MAX)
                ),
                None => String::new(),
            }
        ),
        time_ns,
        advice: match polled {
            Some(file) => format!(
                "{} of them were looks for {}: wait for it with inotify, or look less often.",
                count(file.missing),
                shortened(&file.path, PATH_CHARS_MAX)
            ),
            None => "Shorten search paths (PATH, PYTHONPATH, LD_LIBRARY_PATH), or put what is \
                     looked for first."
                .to_owned(),
        },
        evidence: shown.collect(),
        evidence_beyond: directories.len().saturating_sub(EVIDENCE_MAX) as u64,
    })
}

pub(super) fn slow_outlier(data: &ReportData) -> Option<Finding> {
    let mut outliers: Vec<_> = data
        .slowest
        .iter()
        .filter_map(|slow| {
            let of_kind =
                data.operations.iter().find(|op| op.op == slow.op && op.layer == slow.layer)?;
            let usual_ns = of_kind.within(99).unwrap_or(0);
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
            "A {}{} by process {} on {} took {}, while 99 % of {} took less than {}.{}",
            slow.op,
            match slow.path.as_str() {
                "" => String::new(),
                path => format!(" of {}", shortened(path, PATH_CHARS_MAX)),
            },
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
        time_ns,
        advice: "See what the server or the disk did at that time.".to_owned(),
        evidence: shown.collect(),
        evidence_beyond: outliers.len().saturating_sub(EVIDENCE_MAX) as u64,
    })
}

/// What it does to files.
fn operations_of(process: &ProcessData) -> u64 {
    process.reads.count + process.writes.count + process.other.count
}

pub(super) fn straggler(data: &ReportData) -> Option<Finding> {
    // Of the program with the most processes, whatever their arguments are: others are not its like.
    let mut by_command: std::collections::BTreeMap<&str, Vec<_>> = Default::default();
    for process in &data.processes {
        let program = process.command.split(' ').next().unwrap_or_default();
        by_command.entry(program).or_default().push(process);
    }
    let mut alike = by_command.into_values().max_by_key(Vec::len)?;
    if alike.len() < STRAGGLER_PROCESSES_MIN {
        return None;
    }
    // Nor are the processes that it has started in the course of time: those alike begin together.
    let span_ns = u128::from(data.span.map_or(0, |span| span.length_ns()));
    let slowest = alike.iter().copied().max_by_key(|process| process.time_ns())?;
    let apart_ns = span_ns / STRAGGLER_SPAN_SHARE;
    alike.retain(|process| u128::from(process.first_ns.abs_diff(slowest.first_ns)) <= apart_ns);
    // A shell's forks have its name until they become others, and have done next to nothing then.
    let ops_min = operations_of(slowest) / STRAGGLER_OPS_PART;
    alike.retain(|process| operations_of(process) >= ops_min);
    if alike.len() < STRAGGLER_PROCESSES_MIN {
        return None;
    }
    alike.sort_by_key(|process| process.time_ns());
    let (middle_ns, longest_ns) = (alike[(alike.len() - 1) / 2].time_ns(), slowest.time_ns());
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
        severity: severity_of(longest_ns - middle_ns, data).min(FindingSeverity::Warning),
        sentence: format!(
            "Process {} on {} did I/O for {}, the middle one of {} alike for {}: the others may \
             wait for it.",
            slowest.pid,
            slowest.host,
            time(longest_ns),
            count(alike.len() as u64),
            time(middle_ns)
        ),
        time_ns: longest_ns - middle_ns,
        advice: "See whether it does more than its share, or its host is slower.".to_owned(),
        evidence: late()
            .take(EVIDENCE_MAX)
            .map(|process| {
                let subject = format!("{} {}", process.host, process.pid);
                let done = u128::from(operations_of(process));
                let of = u128::from(data.totals.all.count).max(done);
                evidence(&subject, done, of, "operations", process.time_ns())
            })
            .collect(),
        evidence_beyond: late().count().saturating_sub(EVIDENCE_MAX) as u64,
    })
}
