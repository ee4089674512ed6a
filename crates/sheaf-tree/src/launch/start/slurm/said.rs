//! What srun and the tasks that it has started say on standard error.
use sheaf_core::hostset::HostSet;
use sheaf_core::lock;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, OnceLock};

/// Lines of srun itself that are kept, and those that are shown.
const LINES_MAX: usize = 3;
/// How lines of srun itself begin.
const SRUN: &str = "srun: ";
/// What srun says once it has what it has waited for.
const GRANTED: [&str; 2] = ["has been allocated resources", "Step created for"];

/// What srun and the tasks have said.
#[derive(Default)]
pub(super) struct SrunSaid {
    /// Lines of srun itself, the last ones.
    srun: Mutex<VecDeque<String>>,
    /// The last line of each task.
    tasks: Mutex<BTreeMap<u32, String>>,
    /// Why Slurm has ended the job, if it has.
    cancelled: OnceLock<String>,
}

/// What follows from a line.
pub(super) enum News {
    /// Tasks have ended.
    Ended(EndedJob),
    /// Slurm has ended the job.
    Cancelled,
}

impl SrunSaid {
    /// Takes in one line; gives what follows from it.
    pub fn hear(&self, line: &str) -> Option<News> {
        let line: String =
            line.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        if let Some(why) = cancellation(&line) {
            // Each host of the job may say so.
            return self.cancelled.set(why).ok().map(|()| News::Cancelled);
        }
        let Some(own) = line.strip_prefix(SRUN) else {
            let (task, text) = line.split_once(": ")?;
            lock(&self.tasks).insert(task.trim().parse().ok()?, text.to_owned());
            return None;
        };
        let mut lines = lock(&self.srun);
        if GRANTED.iter().any(|granted| own.contains(granted)) {
            // What it waited for is no reason any more.
            lines.clear();
            return None;
        }
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(line.clone());
        drop(lines);
        EndedJob::parse(own).map(News::Ended)
    }

    /// Why Slurm has ended the job, if it has.
    pub fn cancelled(&self) -> Option<&str> {
        self.cancelled.get().map(String::as_str)
    }

    /// Why the hosts of these tasks do not come.
    pub fn cause(&self, ended: &EndedJob) -> String {
        let said = lock(&self.tasks).get(&ended.task).cloned();
        let said = said.map_or(String::new(), |said| format!("{said}; "));
        format!("not started: {said}srun: {}", ended.how)
    }

    /// The last lines of srun itself, as one phrase.
    pub fn phrase(&self) -> Option<String> {
        let lines = lock(&self.srun);
        (!lines.is_empty()).then(|| lines.iter().cloned().collect::<Vec<_>>().join("; "))
    }
}

/// What srun says when tasks have ended: `error: h[2-3]: tasks 1-2: Exited with exit code 2`.
pub(super) struct EndedJob {
    pub hosts: HostSet,
    /// The first of them.
    task: u32,
    how: String,
}

impl EndedJob {
    fn parse(line: &str) -> Option<Self> {
        let (hosts, rest) = line.strip_prefix("error: ").unwrap_or(line).split_once(": ")?;
        let (tasks, how) = rest.strip_prefix("task")?.split_once(": ")?;
        let first = tasks.trim_start_matches('s').trim_start();
        let digits = first.find(|c: char| !c.is_ascii_digit()).unwrap_or(first.len());
        let task = first[..digits].parse().ok()?;
        Some(Self { hosts: HostSet::parse(hosts).ok()?, task, how: how.to_owned() })
    }
}

/// What Slurm writes to the standard error of a step that it ends: `*** STEP 6.0 ON h1 CANCELLED AT
/// … ***`, perhaps with the reason: `… DUE TO TIME LIMIT ***`.
fn cancellation(line: &str) -> Option<String> {
    let said = line.split_once("error: *** ")?.1.strip_suffix("***")?.trim_end();
    let (what, how) = said.split_once(" CANCELLED AT ")?;
    let id = what.strip_prefix("STEP ").or(what.strip_prefix("JOB "))?.split_whitespace().next()?;
    let job = id.split('.').next().unwrap_or(id);
    Some(match how.split_once(" DUE TO ").map(|(_, why)| why.trim()) {
        None => format!("Slurm job {job} was cancelled (scancel)"),
        Some("TIME LIMIT") => format!("Slurm job {job} has reached its time limit"),
        Some(why) => format!("Slurm ended job {job}: {}", why.to_lowercase()),
    })
}

/// For fuzzing: the lines of an srun.
#[cfg(feature = "fuzzing")]
pub(crate) fn decode_any(data: &[u8]) {
    let said = SrunSaid::default();
    for line in String::from_utf8_lossy(data).lines() {
        if let Some(News::Ended(ended)) = said.hear(line) {
            assert!(!said.cause(&ended).contains(|c: char| c.is_control()));
        }
    }
    assert!(lock(&said.srun).len() <= LINES_MAX);
    assert!(!said.cancelled().is_some_and(|why| why.contains(|c: char| c.is_control())));
    let _ = said.phrase();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(said: &SrunSaid, line: &str) -> EndedJob {
        let Some(News::Ended(ended)) = said.hear(line) else { panic!("{line}") };
        ended
    }

    #[test]
    fn task_that_ends_is_told_of_with_what_it_said_last() {
        let said = SrunSaid::default();
        assert!(said.hear("1: sheaf: first\n").is_none());
        assert!(said.hear("1: sheaf: no enrolment at login:9\r\n").is_none());
        let ended = ended(&said, "srun: error: h[2-3]: tasks 1-2: Exited with exit code 1\n");
        let cause = said.cause(&ended);
        assert_eq!(ended.hosts.to_string(), "h[2-3]");
        let told = "not started: sheaf: no enrolment at login:9; srun: Exited with exit code 1";
        assert_eq!(cause, told);
        let ended = self::ended(&said, "srun: error: h4: task 3: Killed");
        let told = ("h4".to_owned(), "not started: srun: Killed".to_owned());
        assert_eq!((ended.hosts.to_string(), said.cause(&ended)), told);
    }

    #[test]
    fn other_lines_of_srun_are_its_phrase_and_few_are_kept() {
        let said = SrunSaid::default();
        assert_eq!(said.phrase(), None);
        for line in [
            "srun: a",
            "srun: job 5 queued and waiting for resources",
            "srun: b",
            "srun: c",
            "",
            "x",
        ] {
            assert!(said.hear(line).is_none(), "{line}");
        }
        let told = "srun: job 5 queued and waiting for resources; srun: b; srun: c";
        assert_eq!(said.phrase().as_deref(), Some(told));
    }

    #[test]
    fn srun_wait_messages_are_dropped_after_allocation() {
        let said = SrunSaid::default();
        assert!(said.hear("srun: job 5 queued and waiting for resources").is_none());
        assert!(said.hear("srun: job 5 has been allocated resources").is_none());
        assert_eq!(said.phrase(), None);
    }

    #[test]
    fn end_of_a_job_is_told_with_its_reason() {
        let told = [
            (
                "0: slurmstepd-h1: error: *** STEP 6.0 ON h1 CANCELLED AT 2026-11-22T12:41:06 ***",
                "Slurm job 6 was cancelled (scancel)",
            ),
            (
                "slurmstepd: error: *** JOB 7 ON h1 CANCELLED AT 2026-11-22T12:41:06 DUE TO TIME \
                 LIMIT ***",
                "Slurm job 7 has reached its time limit",
            ),
            (
                "1: slurmstepd-h2: error: *** STEP 8.1 ON h2 CANCELLED AT 2026-11-22T12:41:06 DUE \
                 TO PREEMPTION ***",
                "Slurm ended job 8: preemption",
            ),
        ];
        for (line, why) in told {
            let said = SrunSaid::default();
            assert!(matches!(said.hear(line), Some(News::Cancelled)), "{line}");
            assert_eq!(said.cancelled(), Some(why));
            assert!(said.hear(line).is_none(), "every host may say so");
        }
        let said = SrunSaid::default();
        for line in [
            "error: *** STEP",
            "0: *** STEP 1 ON h1 CANCELLED AT x ***",
            "error: *** CANCELLED AT ***",
        ] {
            assert!(said.hear(line).is_none(), "{line}");
        }
        assert_eq!(said.cancelled(), None);
    }
}
