//! `du` at a leaf.
use super::human;
use crate::paths::PerPath;
use serde::{Deserialize, Serialize};
use sheaf_core::Errno;
use sheaf_file::{Counted, Follow, NameFilter, UsageSteps, UsageTime, is_pattern};
use sheaf_group::entry::{Answer, Entry, EntryKind, Sink};
use sheaf_group::tool::Host;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What to count and how to show it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageReportOptions {
    /// Sizes as 4.0K, 234M.
    pub human: bool,
    /// Sizes are multiples of this, rounded up.
    pub unit: UsageUnit,
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
    /// A file counts once for each of its names.
    pub count_links: bool,
    /// Symbolic links are followed.
    pub dereference: bool,
    /// Patterns of files and directories that do not count.
    pub exclude: Vec<String>,
    /// Show the latest of these times beneath each path.
    pub time: Option<UsageTime>,
}

/// What sizes are multiples of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum UsageUnit {
    /// 1024 bytes.
    #[default]
    Kibibyte,
    /// 1 byte.
    Byte,
    /// 1024 × 1024 bytes.
    Mebibyte,
}

impl UsageUnit {
    fn bytes(self) -> u64 {
        match self {
            Self::Byte => 1,
            Self::Kibibyte => 1 << 10,
            Self::Mebibyte => 1 << 20,
        }
    }
}

/// A time to the minute, so that rows that look the same are, and a tab. The reader writes it in its
/// zone.
fn time_text(seconds: i64) -> String {
    format!("{}\t", human::to_the_minute(seconds))
}

/// Files counted in one step.
const STEP_FILES: usize = 256;

pub struct UsageReport {
    options: UsageReportOptions,
    exclude: NameFilter,
    counting: Option<(PathBuf, UsageSteps)>,
    /// There are several paths, or may be.
    several: bool,
    counted: Counted,
    total: u64,
    /// The latest change of all.
    latest: Option<i64>,
}

impl UsageReport {
    /// # Errors
    /// `EINVAL` for a malformed pattern.
    pub fn new(options: UsageReportOptions, paths: &[String]) -> Result<Self, Errno> {
        let several = !matches!(paths, [path] if !is_pattern(path));
        let exclude = NameFilter::new(&options.exclude).map_err(|_| Errno::INVAL)?;
        let counted = Counted::default();
        Ok(Self { options, exclude, counting: None, several, counted, total: 0, latest: None })
    }
}

impl UsageReportOptions {
    fn bytes_of(&self, usage: &sheaf_file::Usage) -> u64 {
        if self.apparent { usage.apparent_bytes } else { usage.disk_bytes }
    }

    /// Whether the text of a row has a size, and a time if that is asked for, in front of its path.
    pub(super) fn may_say(&self, text: &[u8]) -> bool {
        let is_of = |field: &[u8], bytes: &[u8]| {
            !field.is_empty() && field.iter().all(|byte| bytes.contains(byte))
        };
        let mut fields = text.split(|byte| *byte == b'\t');
        fields.next().is_some_and(|size| is_of(size, b"0123456789.KMGTPE"))
            && (self.time.is_none()
                || fields.next().is_some_and(|time| is_of(time, b"-0123456789")))
            && fields.next().is_some()
    }

    fn text(&self, bytes: u64) -> String {
        if self.human { human::size(bytes) } else { bytes.div_ceil(self.unit.bytes()).to_string() }
    }
}

impl PerPath for UsageReport {
    fn begin(&mut self, path: &Path, _: &mut Answer, host: &Host) -> Result<(), Errno> {
        host.export.lstat(path)?;
        let options = sheaf_file::UsageOptions {
            follow: if self.options.dereference { Follow::Always } else { Follow::Never },
            count_links: self.options.count_links,
            exclude: self.exclude.clone(),
            one_file_system: self.options.one_file_system,
            report_files: self.options.all,
            several: self.several,
            time: self.options.time.unwrap_or_default(),
        };
        // A file with several names counts once over all paths.
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
                    if options.time.is_some() {
                        text.extend_from_slice(time_text(counted.usage.latest).as_bytes());
                    }
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
        self.latest = self.latest.max(Some(steps.total().latest));
        self.counted =
            self.counting.take().map(|(_, steps)| steps.into_counted()).unwrap_or_default();
        false
    }

    fn conclude(&mut self, answer: &mut Answer, _: &Host) {
        if self.options.total {
            answer.path(b"");
            let time = self.latest.filter(|_| self.options.time.is_some()).map(time_text);
            let (total, time) = (self.options.text(self.total), time.unwrap_or_default());
            let text = format!("{total}\t{time}total");
            let _ = answer.entry(Entry::new(EntryKind::Count, text.as_bytes()));
        }
    }
}
