//! The space files take, as `du` counts it.

use crate::{Entry, Export, FileKind, Follow, NameFilter, PathError, Walk, WalkOptions};
use sheaf_core::Errno;
use std::collections::HashSet;
use std::ops::AddAssign;
use std::path::{Path, PathBuf};

/// How many files with several names one count remembers; further ones are `EOVERFLOW` errors.
const SHARED_FILES_MAX: usize = 1 << 22;

/// What to count.
#[derive(Clone, Debug, Default)]
pub struct UsageOptions {
    /// Which symbolic links are followed.
    pub follow: Follow,
    /// Directories on other file systems do not count.
    pub one_file_system: bool,
    /// Count a file once for each of its names, not once.
    pub count_links: bool,
    /// Report files, too, not directories alone.
    pub report_files: bool,
    /// Files and directories that match do not count.
    pub exclude: NameFilter,
}

/// The space some files take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Usage {
    /// Lengths of regular files and symbolic links, in bytes.
    pub apparent_bytes: u64,
    /// Space on disk of everything, directories included, in bytes.
    pub disk_bytes: u64,
    /// Files that are no directories.
    pub files: u64,
    /// Directories.
    pub dirs: u64,
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
        let on_dev = if options.one_file_system { self.stat(start).ok().map(|stat| stat.dev) } else { None };
        let count = Count {
            count_links: options.count_links,
            report_files: options.report_files,
            ..Count::default()
        };
        UsageSteps { walk: self.walk(start, walk), on_dev, count }
    }
}

/// A count in progress; made by [`Export::usage_steps`].
pub struct UsageSteps {
    walk: Walk,
    /// The only device whose files count.
    on_dev: Option<u64>,
    count: Count,
}

impl UsageSteps {
    /// Counts one more file; `false` when that was all, and the start has been reported.
    pub fn step(&mut self, report: &mut dyn FnMut(Result<PathUsage, PathError>)) -> bool {
        match self.walk.next() {
            Some(Ok(entry)) if self.on_dev.is_some_and(|dev| !is_on(&entry, dev)) => {}
            Some(Ok(entry)) => self.count.add(entry, report),
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

fn is_on(entry: &Entry, dev: u64) -> bool {
    entry.depth == 0 || entry.metadata.as_ref().is_none_or(|metadata| metadata.dev == dev)
}

#[derive(Default)]
struct Count {
    /// The directories from the start to the present entry.
    open: Vec<PathUsage>,
    seen: HashSet<(u64, u64)>,
    count_links: bool,
    report_files: bool,
    total: Usage,
}

impl Count {
    fn add(&mut self, entry: Entry, report: &mut dyn FnMut(Result<PathUsage, PathError>)) {
        self.leave(entry.depth, report);
        let Some(metadata) = &entry.metadata else { return };
        let is_dir = entry.kind == FileKind::Directory;
        let mut usage = Usage { disk_bytes: metadata.blocks.saturating_mul(512), ..Usage::default() };
        match entry.kind {
            FileKind::Directory => usage.dirs = 1,
            FileKind::File | FileKind::Symlink => {
                (usage.files, usage.apparent_bytes) = (1, metadata.size);
            }
            _ => usage.files = 1,
        }
        if !self.count_links && metadata.nlink > 1 && !is_dir {
            if self.seen.len() == SHARED_FILES_MAX && !self.seen.contains(&metadata.id()) {
                return report(Err(PathError { path: entry.path, errno: Errno::OVERFLOW }));
            }
            if !self.seen.insert(metadata.id()) {
                return;
            }
        }
        let counted = PathUsage { path: entry.path, depth: entry.depth, usage };
        if is_dir || entry.depth == 0 {
            self.open.push(counted);
        } else if let Some(dir) = self.open.last_mut() {
            dir.usage += usage;
            if self.report_files {
                report(Ok(counted));
            }
        }
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
    }
}
