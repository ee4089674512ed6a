//! `du` at a leaf.
use super::human;
use crate::paths::PerPath;
use serde::{Deserialize, Serialize};
use sheaf_core::Errno;
use sheaf_file::{Counted, UsageSteps, is_pattern};
use sheaf_group::entry::{Answer, Entry, EntryKind, Sink};
use sheaf_group::tool::Host;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What to count and how to show it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageReportOptions {
    /// Sizes as 4.0K, 234M.
    pub human: bool,
    /// Sizes in bytes, not in KiB.
    pub bytes: bool,
    /// Show files, too.
    pub all: bool,
    /// Show nothing deeper; 0 for the sums alone.
    pub max_depth: Option<u32>,
    /// Stay on the file system of each path.
    pub one_file_system: bool,
    /// Show the total of all paths.
    pub total: bool,
    /// The bytes that files hold, not the blocks they take.
    pub apparent: bool,
}

/// Files counted in one step.
const STEP_FILES: usize = 256;

pub struct UsageReport {
    options: UsageReportOptions,
    counting: Option<(PathBuf, UsageSteps)>,
    /// There are several paths, or may be.
    several: bool,
    counted: Counted,
    total: u64,
}

impl UsageReport {
    pub fn new(options: UsageReportOptions, paths: &[String]) -> Self {
        let several = !matches!(paths, [path] if !is_pattern(path));
        Self { options, counting: None, several, counted: Counted::default(), total: 0 }
    }
}

impl UsageReportOptions {
    fn bytes_of(&self, usage: &sheaf_file::Usage) -> u64 {
        if self.apparent { usage.apparent_bytes } else { usage.disk_bytes }
    }

    fn text(&self, bytes: u64) -> String {
        match (self.human, self.bytes) {
            (true, _) => human::size(bytes),
            (_, true) => bytes.to_string(),
            _ => bytes.div_ceil(1024).to_string(),
        }
    }
}

impl PerPath for UsageReport {
    fn begin(&mut self, path: &Path, _: &mut Answer, host: &Host) -> Result<(), Errno> {
        host.export.lstat(path)?;
        let options = sheaf_file::UsageOptions {
            one_file_system: self.options.one_file_system,
            report_files: self.options.all,
            several: self.several,
            ..sheaf_file::UsageOptions::default()
        };
        let steps = host.export.usage_steps(path, options).after(std::mem::take(&mut self.counted));
        self.counting = Some((path.to_owned(), steps));
        Ok(())
    }

    fn go_on(&mut self, answer: &mut Answer, _: &Host) -> bool {
        let Some((start, steps)) = &mut self.counting else { return false };
        let (options, section) = (&self.options, start.as_os_str().as_bytes());
        let depth_max = options.max_depth.map_or(usize::MAX, |depth| depth as usize);
        let mut report =
            |counted: Result<sheaf_file::PathUsage, sheaf_file::PathError>| match counted {
                Ok(counted) if counted.depth > depth_max => {}
                Ok(counted) => {
                    let mut text = options.text(options.bytes_of(&counted.usage)).into_bytes();
                    text.push(b'\t');
                    text.extend_from_slice(counted.path.as_os_str().as_bytes());
                    answer.path(section);
                    let _ = answer.entry(Entry::new(EntryKind::Line, &text));
                }
                Err(error) => answer.error(error.path.as_os_str().as_bytes(), error.errno),
            };
        if (0..STEP_FILES).all(|_| steps.step(&mut report)) {
            return true;
        }
        self.total = self.total.saturating_add(options.bytes_of(&steps.total()));
        self.counted =
            self.counting.take().map(|(_, steps)| steps.into_counted()).unwrap_or_default();
        false
    }

    fn conclude(&mut self, answer: &mut Answer, _: &Host) {
        if self.options.total {
            answer.path(b"");
            let text = format!("{}\ttotal", self.options.text(self.total));
            let _ = answer.entry(Entry::new(EntryKind::Count, text.as_bytes()));
        }
    }
}
