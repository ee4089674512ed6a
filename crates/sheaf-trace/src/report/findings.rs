//! What stands out, with the numbers that show it.
mod files;
mod waits;
mod whole;

use crate::report::data::{FileData, ProcessData, ReportData};
use crate::report::units::{count, percent, ratio, shortened, time};
use serde::{Deserialize, Serialize};

/// Fewer accesses than this are no pattern, whatever they look like.
const ACCESSES_MIN: u64 = 1000;
/// A share from which on something is said of “most”.
const MOST: f64 = 0.8;
/// What takes less than this in all is worth a look at most …
const WARNING_NS_MIN: u128 = 1_000_000;
/// … and less than this nobody has to wait for.
const GRAVE_NS_MIN: u128 = 10_000_000;
/// The same of parts of the run.
const WARNING_RUN_PART: u128 = 100;
const GRAVE_RUN_PART: u128 = 10;
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
    /// A file is waited for again and again, a little at a time.
    FrequentSyncs,
    /// A file is read many times over.
    ReadAgain,
    /// What is gathered to be written is given away after each few bytes.
    Flushed,
    /// A file was opened so that each write waits until it is stored.
    SyncOpened,
    /// Locks of files were waited for.
    LockWaits,
    /// Reading takes most of the time, as from a disk and not from memory.
    SlowReads,
    /// Somebody at the other end of a pipe, a socket or a terminal was waited for.
    StreamWaits,
    /// Reads or writes are refused, as they are not aligned as `O_DIRECT` asks for.
    RefusedDirect,
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
    /// The time that it is about, of all threads together, in ns; 0 where it is about none.
    #[serde(default)]
    pub time_ns: u128,
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
    findings.extend(whole::lost(data));
    findings.extend(files::small_writes(data));
    findings.extend(files::small_reads(data));
    findings.extend(files::random_reads(data));
    findings.extend(whole::metadata_bound(data));
    findings.extend(files::reopened(data));
    findings.extend(whole::missing(data));
    findings.extend(files::sync_each_write(data));
    findings.extend(whole::slow_outlier(data));
    findings.extend(files::frequent_syncs(data));
    findings.extend(files::sync_opened(data));
    findings.extend(files::flushed(data));
    findings.extend(files::read_again(data));
    findings.extend(files::shared(data));
    findings.extend(whole::straggler(data));
    findings.extend(files::read_back(data));
    findings.extend(files::idle_seeks(data));
    findings.extend(files::refused_direct(data));
    findings.extend(waits::slow_reads(data));
    findings.extend(waits::locks(data));
    findings.extend(waits::streams(data));
    // What cannot be relied on is said before what took longest.
    findings.sort_by_key(|finding| {
        let is_lost = finding.kind == FindingKind::LostOperations;
        std::cmp::Reverse((finding.severity, is_lost, finding.time_ns))
    });
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
        of_disk(data).filter_map(|file| Some((proof(file)?, file))).collect();
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
        time_ns,
        advice: advice.to_owned(),
        evidence: evidence.collect(),
        evidence_beyond: shown.len().saturating_sub(EVIDENCE_MAX) as u64,
    })
}

/// By its share of the time of all I/O, by what it costs at all, and by what that is of the run.
fn severity_of(time_ns: u128, data: &ReportData) -> FindingSeverity {
    let run_ns = span_ns(data);
    let is_of_run = |part: u128, least_ns: u128| time_ns >= least_ns.max(run_ns / part);
    match ratio(time_ns, data.io_time_ns()) {
        share if share >= 0.5 && is_of_run(GRAVE_RUN_PART, GRAVE_NS_MIN) => FindingSeverity::Grave,
        share if share >= 0.05 && is_of_run(WARNING_RUN_PART, WARNING_NS_MIN) => {
            FindingSeverity::Warning
        }
        _ => FindingSeverity::Note,
    }
}

/// How long the run took, in ns, as far as that is known; else from the first operation to the last.
fn span_ns(data: &ReportData) -> u128 {
    let run = data.run.as_ref().filter(|run| run.ended_ns > run.begun_ns);
    let run_ns = run.map_or(0, |run| run.ended_ns.abs_diff(run.begun_ns));
    data.span.map_or(0, |span| span.length_ns()).max(run_ns).into()
}

/// Files, without what somebody else is at the other end of.
fn of_disk(data: &ReportData) -> impl Iterator<Item = &FileData> {
    data.files.iter().filter(|file| !file.is_stream)
}

impl ReportData {
    /// The time that a finding is about, as a sentence, unless its own says it.
    pub(crate) fn cost_of(&self, finding: &Finding) -> Option<String> {
        let share = percent(finding.time_ns, self.io_time_ns().max(finding.time_ns));
        let (took, run_ns) = (time(finding.time_ns), span_ns(self));
        (finding.time_ns > 0).then(|| match finding.kind {
            FindingKind::MetadataBound => format!("The run took {}.", time(run_ns)),
            _ => format!(
                "That is {took}, {share} of the time of all I/O, in a run of {}.",
                time(run_ns)
            ),
        })
    }

    /// How much of the run was I/O, and what could be saved of it.
    pub(crate) fn share_of_run(&self) -> Option<String> {
        const LITTLE: f64 = 0.05;
        let (io_ns, run_ns) = (self.io_time_ns(), span_ns(self));
        if io_ns == 0 || run_ns == 0 {
            return None;
        }
        let (what, most_ns) = if self.processes_total <= 1 && io_ns <= run_ns {
            let share = percent(io_ns, run_ns);
            let kept = if self.filter.is_some() { " that was kept alone" } else { "" };
            (format!("I/O on files{kept} took {}, {share} of the run", time(io_ns)), io_ns)
        } else {
            let io_of = |of: &&ProcessData| of.reads.time_ns + of.writes.time_ns + of.other.time_ns;
            let most = self.processes.iter().max_by_key(io_of)?;
            let most_ns = io_of(&most).min(io_ns);
            let part = match most_ns <= run_ns {
                true => format!("{}, {} of the run", time(most_ns), percent(most_ns, run_ns)),
                // Of several threads, which wait at once.
                false => {
                    format!("{} of all its threads, of a run of {}", time(most_ns), time(run_ns))
                }
            };
            let all = time(io_ns);
            (
                format!(
                    "I/O on files took {all} of all together, and of process {} {part}",
                    most.pid
                ),
                most_ns,
            )
        };
        let judged = match ratio(most_ns, run_ns) {
            share if share < LITTLE => {
                "it does not matter: what is done about it saves less than that"
            }
            share if share <= 1.0 => "that is the most that can be saved",
            _ => "how much of that can be saved depends on what the threads wait for",
        };
        Some(format!("{what}: {judged}."))
    }

    /// What is said where there are no findings.
    pub(crate) fn without_findings(&self) -> &'static str {
        match (self.rows, self.notes.is_empty()) {
            (0, true) => "no operation was recorded",
            (0, false) => "no operation was recorded: why is at the end",
            (_, true) => "nothing stands out",
            (_, false) => "nothing stands out of what was recorded",
        }
    }

    /// The time of what is done to files, of all threads together, in ns: without that processes
    /// begin and end, and without pipes, sockets and terminals, where others are waited for.
    #[must_use]
    pub fn io_time_ns(&self) -> u128 {
        let totals = &self.totals;
        let moved = [&totals.read, &totals.write, &totals.copy];
        let kinds = moved.into_iter().chain([&totals.metadata, &totals.sync, &totals.other]);
        kinds.map(|sums| sums.time_ns).sum()
    }
}

fn path(file: &FileData) -> String {
    shortened(&file.path, PATH_CHARS_MAX)
}

fn evidence(subject: &str, count: u128, of: u128, unit: &str, time_ns: u128) -> FindingEvidence {
    FindingEvidence { subject: subject.to_owned(), count, of, unit: unit.to_owned(), time_ns }
}
