//! Reports at a leaf: patterns, then the paths each stands for, then what is said of each.
use super::Report;
use super::contents::Contents;
use super::digest::Digests;
use super::list::Lister;
use super::stat::Stats as Stat;
use super::usage::Usage;
use crate::target::expand;
use serde::{Deserialize, Serialize};
use sheaf_core::Errno;
use sheaf_group::entry::{Answer, AnswerForm, Sink, Stats};
use sheaf_group::tool::{Host, Reply, Running, Step, Tool};
use std::collections::VecDeque;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Name of the tool.
pub const NAME: &str = "report";

/// How an answer is written: the paths that were reported are counted.
pub const FORM: AnswerForm = AnswerForm { ordered: false, stats: true };

/// What every leaf is told.
#[derive(Debug, Serialize, Deserialize)]
pub struct Params {
    pub report: Report,
    /// Paths and patterns beneath the export.
    pub paths: Vec<String>,
}

pub struct ReportTool;

/// What is said of one path after the other.
pub trait Reporter: Send {
    /// Begins with a path; small ones are done with that.
    ///
    /// # Errors
    /// The path's.
    fn begin(&mut self, path: &Path, answer: &mut Answer, host: &Host) -> Result<(), Errno>;

    /// Goes on with it; `false` when there is no more.
    fn go_on(&mut self, answer: &mut Answer, host: &Host) -> bool {
        let _ = (answer, host);
        false
    }

    /// Says what comes after all paths; `false` when there is no more.
    fn conclude(&mut self, answer: &mut Answer, host: &Host) -> bool {
        let _ = (answer, host);
        false
    }
}

impl Tool for ReportTool {
    fn start(&self, params: &[u8], _: &Host) -> Result<Box<dyn Running>, Errno> {
        let Params { report, paths } = postcard::from_bytes(params).map_err(|_| Errno::PROTO)?;
        let reporter: Box<dyn Reporter> = match report {
            Report::List(options) => Box::new(Lister::new(options)),
            Report::Stat(options) => Box::new(Stat::new(options)?),
            Report::Usage(options) => Box::new(Usage::new(options)),
            Report::Digest(algorithm) => Box::new(Digests::new(algorithm)),
            Report::Contents => Box::new(Contents),
        };
        Ok(Box::new(AtWork { reporter, patterns: paths.into(), files: VecDeque::new(), is_begun: false }))
    }
}

struct AtWork {
    reporter: Box<dyn Reporter>,
    patterns: VecDeque<String>,
    files: VecDeque<PathBuf>,
    /// A path was begun and may go on.
    is_begun: bool,
}

impl Running for AtWork {
    fn step(&mut self, answer: &mut Reply, host: &Host) -> Step {
        let answer = answer.entries_with(FORM);
        if self.is_begun {
            self.is_begun = self.reporter.go_on(answer, host);
            return Step::More;
        }
        if let Some(path) = self.files.pop_front() {
            match self.reporter.begin(&path, answer, host) {
                Ok(()) => {
                    answer.stats(Stats { files: 1, ..Stats::default() });
                    self.is_begun = true;
                }
                Err(errno) => answer.error(path.as_os_str().as_bytes(), errno),
            }
            return Step::More;
        }
        let Some(pattern) = self.patterns.pop_front() else {
            return if self.reporter.conclude(answer, host) { Step::More } else { Step::Done };
        };
        match expand(&pattern, host) {
            Ok(files) => self.files = files,
            Err(errno) => answer.error(pattern.as_bytes(), errno),
        }
        Step::More
    }
}
