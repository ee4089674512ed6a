//! The space files take, as `du` counts it.

use crate::error::PathError;
use crate::export::Export;
use crate::pattern::NameFilter;
use crate::walk::{Follow, Walk, WalkEntry, WalkOptions};
use sheaf_core::Errno;
use sheaf_core::files::{FileKind, Metadata};
use std::collections::HashSet;
use std::ops::{AddAssign, ControlFlow};
use std::path::{Path, PathBuf};

/// How many files counts remember to count them once; further ones are `EOVERFLOW` errors.
const COUNTED_MAX: usize = 1 << 22;

/// What to count.
#[derive(Clone, Debug, Default)]
pub struct UsageOptions {
    /// Which symbolic links are followed.
    pub follow: Follow,
    /// Directories on other file systems do not count.
    pub one_file_system: bool,
    /// Count a file once for each of its names, not once.
    pub count_links: bool,
    /// There are other starts, which may lie in one another: a directory that another start has
    /// counted is passed over with all beneath it. See [`UsageSteps::after`].
    pub several: bool,
    /// Report files, too, not directories alone.
    pub report_files: bool,
    /// Files and directories that match do not count.
    pub exclude: NameFilter,
    /// Of which time the latest is told.
    pub time: UsageTime,
}

/// A time of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum UsageTime {
    /// The last change of the content.
    #[default]
    Modified,
    /// The last access.
    Accessed,
    /// The last change of the status.
    Changed,
}

impl UsageTime {
    fn of(self, metadata: &Metadata) -> i64 {
        match self {
            Self::Modified => metadata.mtime.seconds,
            Self::Accessed => metadata.atime.seconds,
            Self::Changed => metadata.ctime.seconds,
        }
    }
}

/// The space some files take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Usage {
    /// Lengths in bytes, those of directories included, as their file systems give them.
    pub apparent_bytes: u64,
    /// Space on disk of everything, directories included, in bytes.
    pub disk_bytes: u64,
    /// Files that are no directories.
    pub files: u64,
    /// Directories.
    pub dirs: u64,
    /// The latest of the times that are asked for, in seconds since 1970.
    pub latest: i64,
}

/// The space one directory takes with all beneath it (or one file, where a count starts there).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathUsage {
    /// The directory.
    pub path: PathBuf,
    /// How deep it lies beneath the start.
    pub depth: usize,
    /// What it takes.
    pub usage: Usage,
}

impl Export {
    /// Counts the space `start` takes with all beneath it. `report` gets every directory after what
    /// lies in it, the start last, and the errors in between, which do not stop the count.
    pub fn usage(
        &self,
        start: &Path,
        options: UsageOptions,
        report: &mut dyn FnMut(Result<PathUsage, PathError>),
    ) -> Usage {
        let mut count = self.usage_steps(start, options);
        while count.step(report) {}
        count.total()
    }

    /// [`Export::usage`] one file at a time.
    #[must_use]
    pub fn usage_steps(&self, start: &Path, options: UsageOptions) -> UsageSteps {
        let walk = WalkOptions {
            follow: options.follow,
            one_file_system: options.one_file_system,
            metadata: true,
            exclude: options.exclude.clone(),
            exclude_dir: options.exclude,
            ..WalkOptions::default()
        };
        // Where the start cannot be looked at there is nothing to walk either.
        let on_dev =
            if options.one_file_system { self.stat(start).ok().map(|stat| stat.dev) } else { None };
        // A start whose directory cannot be looked at has not been counted from there.
        let above = start.parent().filter(|_| options.several);
        let count = UsageCount {
            count_links: options.count_links,
            follows: options.follow == Follow::Always,
            several: options.several,
            report_files: options.report_files,
            time: options.time,
            above: above.and_then(|above| self.stat(above).ok()).map(|above| above.id()),
            ..UsageCount::default()
        };
        UsageSteps { walk: self.walk(start, walk), on_dev, count }
    }
}

/// A count in progress; made by [`Export::usage_steps`].
pub struct UsageSteps {
    walk: Walk,
    /// The only device whose files count.
    on_dev: Option<u64>,
    count: UsageCount,
}

/// What counts of several starts have counted so far.
#[derive(Debug, Default)]
pub struct Counted {
    /// Files with several names.
    shared: HashSet<(u64, u64)>,
    dirs: HashSet<(u64, u64)>,
    /// Files that were starts.
    starts: HashSet<(u64, u64)>,
}

impl UsageSteps {
    /// Goes on behind other counts: what they have counted does not count again.
    #[must_use]
    pub fn after(mut self, counted: Counted) -> Self {
        self.count.counted = counted;
        self
    }

    /// What has been counted, for the next start.
    #[must_use]
    pub fn into_counted(self) -> Counted {
        self.count.counted
    }

    /// Counts one more file; `false` when that was all, and the start has been reported.
    pub fn step(&mut self, report: &mut dyn FnMut(Result<PathUsage, PathError>)) -> bool {
        match self.walk.next() {
            Some(Ok(entry)) if self.on_dev.is_some_and(|dev| !is_on(&entry, dev)) => {}
            Some(Ok(entry)) => {
                if self.count.add(entry, report).is_break() {
                    self.walk.skip_dir();
                }
            }
            Some(Err(error)) => report(Err(error)),
            None => {
                self.count.leave(0, report);
                return false;
            }
        }
        true
    }

    /// What the start takes, once all is counted.
    #[must_use]
    pub fn total(&self) -> Usage {
        self.count.total
    }
}

fn is_on(entry: &WalkEntry, dev: u64) -> bool {
    entry.depth == 0 || entry.metadata.as_ref().is_none_or(|metadata| metadata.dev == dev)
}

#[derive(Default)]
struct UsageCount {
    /// The directories from the start to the present entry.
    open: Vec<PathUsage>,
    counted: Counted,
    /// The directory of the start.
    above: Option<(u64, u64)>,
    several: bool,
    count_links: bool,
    /// A file is found by its name and by each link to it.
    follows: bool,
    report_files: bool,
    total: Usage,
    time: UsageTime,
}

impl UsageCount {
    /// Breaks where a directory is not to be entered.
    fn add(
        &mut self,
        entry: WalkEntry,
        report: &mut dyn FnMut(Result<PathUsage, PathError>),
    ) -> ControlFlow<()> {
        self.leave(entry.depth, report);
        if self.follows && entry.kind == FileKind::Symlink {
            // It leads nowhere: as with GNU's du.
            report(Err(PathError { path: entry.path, errno: Errno::NOENT }));
            return ControlFlow::Continue(());
        }
        let Some(metadata) = &entry.metadata else { return ControlFlow::Continue(()) };
        let is_dir = entry.kind == FileKind::Directory;
        match self.is_counted(entry.depth, metadata) {
            Ok(false) => {}
            Ok(true) if is_dir => return ControlFlow::Break(()),
            Ok(true) => return ControlFlow::Continue(()),
            Err(errno) => {
                report(Err(PathError { path: entry.path, errno }));
                return ControlFlow::Continue(());
            }
        }
        let usage = Usage {
            disk_bytes: metadata.blocks.saturating_mul(512),
            apparent_bytes: metadata.size,
            files: u64::from(!is_dir),
            dirs: u64::from(is_dir),
            latest: self.time.of(metadata),
        };
        let counted = PathUsage { path: entry.path, depth: entry.depth, usage };
        if is_dir || entry.depth == 0 {
            self.open.push(counted);
        } else if let Some(dir) = self.open.last_mut() {
            dir.usage += usage;
            if self.report_files {
                report(Ok(counted));
            }
        }
        ControlFlow::Continue(())
    }

    /// Whether this was counted before; from now on it was. What has one name only and lies in a
    /// directory was counted exactly if the directory was, or if it was a start by itself.
    fn is_counted(&mut self, depth: usize, metadata: &Metadata) -> Result<bool, Errno> {
        let (id, counted) = (metadata.id(), &mut self.counted);
        let known = match metadata.kind {
            _ if self.count_links => return Ok(false),
            FileKind::Directory if self.several || self.follows => &mut counted.dirs,
            FileKind::Directory => return Ok(false),
            _ if metadata.nlink > 1 || self.follows => &mut counted.shared,
            _ if depth > 0 => return Ok(counted.starts.contains(&id)),
            _ if self.above.is_some_and(|above| counted.dirs.contains(&above)) => return Ok(true),
            _ => &mut counted.starts,
        };
        if known.len() == COUNTED_MAX && !known.contains(&id) {
            return Err(Errno::OVERFLOW);
        }
        Ok(!known.insert(id))
    }

    /// Reports the open directories at `depth` and beneath.
    fn leave(&mut self, depth: usize, report: &mut dyn FnMut(Result<PathUsage, PathError>)) {
        while let Some(left) = self.open.pop_if(|dir| dir.depth >= depth) {
            match self.open.last_mut() {
                Some(above) => above.usage += left.usage,
                None => self.total = left.usage,
            }
            report(Ok(left));
        }
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.apparent_bytes = self.apparent_bytes.saturating_add(other.apparent_bytes);
        self.disk_bytes = self.disk_bytes.saturating_add(other.disk_bytes);
        self.files += other.files;
        self.dirs += other.dirs;
        self.latest = self.latest.max(other.latest);
    }
}
