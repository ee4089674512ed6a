//! Fetching: directories are made in their order, and filled by many at once, under a schedule.
//!
//! A file is written under a name of nobody's and gets its own when it is whole, with owner, mode and
//! time. What is there already, with the same size and time, is not written again, so one that was
//! broken off goes on where it was. Directories get their attributes at the end, the deepest first.
mod directory;
mod dry;
mod durable;
pub(crate) mod exclude;
pub(crate) mod hosts;
mod others;
mod parts;
mod phases;
mod resumed;
mod same;
pub(crate) mod tar;
mod target;

use crate::archive::{Archive, ArchiveError, ArchiveEvent};
use crate::catalog::{ArchivedDirectory, Catalog, ContentPlace, DirectoryRows};
use crate::left::{LeftAttributes, LeftTold, is_failure};
use crate::path::ArchivePath;
use crate::schedule::{MovedBytes, ScheduleLimits, ScheduleStats};
use crate::store::Store;
use directory::{FetchLinks, FetchWorker};
use exclude::FetchExclude;
pub use exclude::FetchNames;
use others::OthersRemover;
use phases::FetchPool;
use serde::{Deserialize, Serialize};
use sheaf_core::{Errno, lock};
use std::ops::AddAssign;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use target::FetchTarget;

/// Directories that are asked of the catalog at once.
const DIRECTORIES_AT_ONCE: usize = 1024;

/// How to fetch.
#[derive(Clone, Copy, Debug)]
pub struct FetchOptions {
    /// Tasks at once, to begin with: while they mostly wait, there are more.
    pub workers: usize,
    /// Whether what is newer than the archived is written over, and what has its size and time is compared
    /// with it, and written over where it differs.
    pub overwrite: bool,
    /// What may be used of this machine and of the store.
    pub limits: ScheduleLimits,
    /// Only say what would be fetched.
    pub dry_run: bool,
    /// Of a directory, what is in it goes into the target, and not the directory itself.
    pub contents: bool,
    /// Of a directory, what the archive does not have is removed from the target, where all that it has was
    /// fetched.
    pub delete: bool,
    /// Device and inode of a directory in which nothing is removed: the store itself, where it may be in the
    /// target.
    pub kept: Option<(u64, u64)>,
}

impl Default for FetchOptions {
    fn default() -> Self {
        let workers = std::thread::available_parallelism().map_or(2, usize::from).max(2);
        let limits = crate::save::usual_limits();
        Self {
            workers,
            overwrite: false,
            limits,
            dry_run: false,
            contents: false,
            delete: false,
            kept: None,
        }
    }
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchReport {
    /// Directories that were made or were there.
    pub directories: u64,
    /// Files that were written.
    pub fetched: u64,
    /// Bytes of their contents.
    pub fetched_bytes: u64,
    /// Files that were there as they are archived.
    pub unchanged: u64,
    /// Files that were there and are newer, and were left as they are.
    pub newer: u64,
    /// Files and directories that were removed from the target, as they are not archived.
    pub removed: u64,
    /// Extended attributes that could not be set.
    pub attributes_left: u64,
    /// Files and directories that could not be fetched, or removed.
    pub failed: u64,
}

/// Hosts report what they like: a sum stays at the most that can be counted.
impl AddAssign for FetchReport {
    fn add_assign(&mut self, other: Self) {
        self.directories = self.directories.saturating_add(other.directories);
        self.fetched = self.fetched.saturating_add(other.fetched);
        self.fetched_bytes = self.fetched_bytes.saturating_add(other.fetched_bytes);
        self.unchanged = self.unchanged.saturating_add(other.unchanged);
        self.newer = self.newer.saturating_add(other.newer);
        self.removed = self.removed.saturating_add(other.removed);
        self.attributes_left = self.attributes_left.saturating_add(other.attributes_left);
        self.failed = self.failed.saturating_add(other.failed);
    }
}

/// The same as [`FetchReport`], by many.
#[derive(Default)]
struct FetchCounters {
    directories: AtomicU64,
    fetched: AtomicU64,
    fetched_bytes: AtomicU64,
    unchanged: AtomicU64,
    newer: AtomicU64,
    removed: AtomicU64,
    attributes_left: AtomicU64,
    failed: AtomicU64,
}

/// What is in the way of a file or directory and is not archived so: it is removed where all else was
/// fetched, and then the file is fetched.
#[derive(Default)]
struct InTheWay {
    is_removed: AtomicBool,
    count: AtomicU64,
    /// It is gone.
    is_again: AtomicBool,
}

impl InTheWay {
    fn removed(is_removed: bool) -> Self {
        Self { is_removed: is_removed.into(), ..Self::default() }
    }

    /// Whether an error is one of this kind, which is to be tried again.
    fn takes(&self, error: &ArchiveError) -> bool {
        let kinds = [Errno::ISDIR, Errno::NOTDIR, Errno::LOOP, Errno::EXIST, Errno::NOENT];
        let takes = self.is_removed.load(Ordering::Relaxed)
            && matches!(error, ArchiveError::File { errno, .. } if kinds.contains(errno));
        if takes {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        takes
    }
}

struct FetchShared<'a> {
    store: &'a dyn Store,
    /// What is archived of a directory now, where that can be asked: what it was when the archive was opened may
    /// have been packed again meanwhile.
    rows_now: &'a (dyn Fn(&ArchivePath) -> Result<Option<DirectoryRows>, ArchiveError> + Sync),
    options: FetchOptions,
    told: &'a (dyn Fn(ArchiveEvent) + Sync),
    exclude: FetchExclude,
    target: FetchTarget,
    /// Where that is, as its user calls it.
    to: PathBuf,
    /// The archived directory that the target stands for.
    above: ArchivePath,
    links: FetchLinks,
    moved: MovedBytes,
    /// The disk has no room for more.
    is_full: AtomicBool,
    /// Attributes that could not be set, and were told of.
    attributes_told: LeftTold,
    /// What is to be removed first, if anything is.
    in_the_way: InTheWay,
    counters: Arc<FetchCounters>,
}

/// Fetches a file, or a directory with all that is in it, into a directory, which is made if it is not
/// there. It keeps its name; of the root it is what is in it that is fetched.
///
/// Single files that cannot be fetched are told, counted and left out. No link below the target is
/// followed.
///
/// # Errors
/// When there is nothing of this name, or nothing can be written there.
pub fn fetch(
    archive: &Archive,
    from: &ArchivePath,
    to: &Path,
    options: FetchOptions,
    told: &(dyn Fn(ArchiveEvent) + Sync),
) -> Result<FetchReport, ArchiveError> {
    fetch_watched(archive, from, to, options, &FetchNames::default(), told, &|_, _| ())
}

/// As [`fetch`], of what these names say. What was done and what is being done is told to `watch` several times a second, and at
/// the end.
///
/// # Errors
/// As [`fetch`].
pub fn fetch_watched(
    archive: &Archive,
    from: &ArchivePath,
    to: &Path,
    options: FetchOptions,
    names: &FetchNames,
    told: &(dyn Fn(ArchiveEvent) + Sync),
    watch: &(dyn Fn(&FetchReport, &ScheduleStats) + Sync),
) -> Result<FetchReport, ArchiveError> {
    let exclude = FetchExclude::new(names.clone(), from.depth());
    if options.dry_run {
        return dry::fetch_dry(archive, from, to, (options, &exclude), told);
    }
    let failed =
        |errno| ArchiveError::File { path: to.to_owned(), doing: "cannot be written", errno };
    let is_directory = archive.catalog().directory(from)?.is_some();
    if !is_directory && archive.look_up(from)?.is_none() {
        // Nothing is made for it.
        return Err(ArchiveError::NotArchived { path: from.clone() });
    }
    let above = above_of(from, options.contents && is_directory);
    let now: Mutex<Option<Catalog>> = Mutex::default();
    let rows_now = |path: &ArchivePath| {
        let mut now = lock(&now);
        if now.is_none() {
            *now = archive.catalog().now(archive.store())?;
        }
        let Some(now) = &mut *now else { return Ok(None) };
        now.catch_up(archive.store())?;
        Ok(Some(now.rows_of(path)?))
    };
    let target = FetchTarget::make(to, is_directory && above == *from).map_err(failed)?;
    let shared = FetchShared {
        store: archive.store(),
        rows_now: &rows_now,
        options,
        told,
        exclude,
        target,
        to: to.to_owned(),
        above,
        links: FetchLinks::default(),
        moved: MovedBytes::new(&options.limits),
        is_full: AtomicBool::new(false),
        attributes_told: LeftTold::default(),
        in_the_way: InTheWay::removed(options.delete && is_directory),
        counters: Arc::default(),
    };
    if is_directory {
        FetchPool::new(&shared, archive, from).run(watch)?;
        if options.delete {
            shared.remove_others(archive, from, watch)?;
        }
        shared.finish_directories(archive, from)?;
        shared.target.let_go(to, *from == ArchivePath::ROOT).map_err(failed)?;
    } else if let Some((above, name)) = from.split()
        && let rows = archive.catalog().rows_of(&above)?
        && FetchWorker::new(&shared, 0, Vec::new()).one(&above, name, rows)?
    {
        // It was a file.
        shared.clean(&above);
    } else {
        return Err(ArchiveError::NotArchived { path: from.clone() });
    }
    shared.sync();
    Ok(shared.counters.report())
}

/// The archived directory that the target stands for.
fn above_of(from: &ArchivePath, contents: bool) -> ArchivePath {
    if contents {
        return from.clone();
    }
    from.split().map_or(ArchivePath::ROOT, |(above, _)| above)
}

impl FetchShared<'_> {
    /// A path below the target, by its archived one.
    fn below(&self, path: &ArchivePath) -> ArchivePath {
        path.within(&self.above).expect("what is fetched is below what was asked for")
    }

    /// Where something goes, as its user calls it.
    fn path(&self, path: &ArchivePath) -> PathBuf {
        self.to.join(self.below(path).as_relative())
    }

    /// Has a store bring near what is in directories, if it does that.
    fn recall<'b>(
        archive: &Archive,
        directories: impl Iterator<Item = &'b ArchivePath>,
    ) -> Result<(), ArchiveError> {
        // Of a directory whose rows cannot be read it is said when its turn comes.
        let rows = directories.filter_map(|path| archive.catalog().rows_of(path).ok());
        let mut keys = rows.flat_map(|rows| {
            let places = rows.objects.iter().filter_map(|object| object.place.as_ref());
            let objects: Vec<_> = places.flat_map(ContentPlace::keys).collect();
            objects.into_iter().chain(rows.packs.into_iter().map(|pack| pack.key()))
        });
        Ok(archive.store().recall(&mut keys)?)
    }

    /// Removes what is not archived, if all that is was fetched, and fetches what that was in the way of.
    fn remove_others(
        &self,
        archive: &Archive,
        from: &ArchivePath,
        watch: &(dyn Fn(&FetchReport, &ScheduleStats) + Sync),
    ) -> Result<(), ArchiveError> {
        self.in_the_way.is_removed.store(false, Ordering::Relaxed);
        let (counters, first) = (&self.counters, self.counters.report());
        let in_the_way = self.in_the_way.count.load(Ordering::Relaxed);
        if first.failed > 0 {
            counters.failed.fetch_add(in_the_way, Ordering::Relaxed);
            let path = self.to.clone();
            (self.told)(ArchiveEvent::Failed(ArchiveError::NothingRemoved { path }));
            return Ok(());
        }
        let mut remover = OthersRemover {
            archive,
            exclude: &self.exclude,
            target: &self.target,
            to: &self.to,
            above: &self.above,
            kept: self.options.kept,
            dry_run: false,
            told: self.told,
            report: FetchReport::default(),
        };
        let ran = remover.run(from);
        counters.removed.fetch_add(remover.report.removed, Ordering::Relaxed);
        counters.failed.fetch_add(remover.report.failed, Ordering::Relaxed);
        ran?;
        if in_the_way == 0 {
            return Ok(());
        }
        // All is looked at once more, and what was fetched is there.
        let again = [&counters.directories, &counters.unchanged, &counters.newer];
        again.iter().for_each(|count| count.store(0, Ordering::Relaxed));
        self.exclude.begin_again();
        self.in_the_way.is_again.store(true, Ordering::Relaxed);
        FetchPool::new(self, archive, from).run(watch)?;
        let unchanged = counters.unchanged.load(Ordering::Relaxed);
        counters.unchanged.store(unchanged.saturating_sub(first.fetched), Ordering::Relaxed);
        Ok(())
    }

    /// Sets what directories are, the last first, so that none is closed before what is in it is done.
    fn finish_directories(
        &self,
        archive: &Archive,
        from: &ArchivePath,
    ) -> Result<(), ArchiveError> {
        let mut last: Option<ArchivePath> = None;
        loop {
            let catalog = archive.catalog();
            let next = catalog.below_from_end(from, last.as_ref(), DIRECTORIES_AT_ONCE)?;
            // The catalog is free for others while attributes are set.
            drop(catalog);
            let Some((path, _)) = next.last() else { return Ok(()) };
            last = Some(path.clone());
            for (path, is) in next {
                if !self.exclude.fits_directory(&path) {
                    self.finish(&path, &is);
                }
            }
        }
    }

    /// Makes what was fetched durable.
    fn sync(&self) {
        if let Err(errno) = self.target.written.sync() {
            self.failed(
                &self.above,
                "cannot be synced: what was fetched may be lost with power",
                errno,
            );
        }
    }

    /// Whether all was fetched before, but for what something was in the way of.
    fn is_again(&self) -> bool {
        self.in_the_way.is_again.load(Ordering::Relaxed)
    }

    /// Whether a full disk has stopped it.
    fn is_stopped(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// Begins with a directory: whether it is new, if there is one. Where only some names are fetched, it is
    /// made when something goes into it, if not all of it does.
    fn begin(&self, path: &ArchivePath) -> Option<bool> {
        if !self.exclude.is_of_some() {
            return self.make(path);
        }
        if self.exclude.is_included(path, true) {
            self.use_directory(path);
        }
        Some(false)
    }

    /// Makes a directory and those above it, as something goes into it, if that was not done.
    fn use_directory(&self, path: &ArchivePath) {
        self.exclude.uses(path, |path| {
            // One that cannot be made is told, and so is all that was to go into it.
            let _ = self.make(path);
        });
    }

    /// Makes a directory; whether it is new, if there is one.
    fn make(&self, path: &ArchivePath) -> Option<bool> {
        let made = self.target.make_directory(&self.below(path));
        match made {
            Ok(_) => drop(self.counters.directories.fetch_add(1, Ordering::Relaxed)),
            Err(errno) => self.failed(path, "cannot be made a directory", errno),
        }
        if made == Ok(true) {
            self.clean(path);
        }
        Some(!made.ok()?)
    }

    /// Takes away what fetches that were killed have left in a directory.
    fn clean(&self, path: &ArchivePath) {
        if let Err(errno) = self.target.clean(&self.below(path)) {
            self.failed(path, "has parts of files that cannot be removed", errno);
        }
    }

    /// Sets what a directory is, when all that is in it is done.
    fn finish(&self, path: &ArchivePath, is: &ArchivedDirectory) {
        // A target that was there is its user's, but where it is made the same.
        let is_others = !(self.target.is_new || self.options.delete);
        if (*path == self.above && is_others) || !self.exclude.is_used(path) {
            return;
        }
        // What the top of an archive has may be nobody's choice: it takes rights away, and gives none.
        let of_top = |mode| ArchivedDirectory { mode: is.mode & mode, ..is.clone() };
        let narrower = (*path == ArchivePath::ROOT).then(|| self.target.base_mode().map(of_top));
        let narrower = match narrower.transpose() {
            Ok(narrower) => narrower,
            Err(errno) => return self.failed(path, "cannot be given its attributes", errno),
        };
        let is = narrower.as_ref().unwrap_or(is);
        match self.target.finish_directory(&self.below(path), is, self.options.overwrite) {
            Ok(left) => {
                if *path == self.above {
                    self.target.settled();
                }
                self.attributes_left(path, left);
            }
            Err(errno) => self.failed(path, "cannot be given its attributes", errno),
        }
    }

    /// These attributes of a file could not be set. Of each the first is told.
    fn attributes_left(&self, path: &ArchivePath, left: LeftAttributes) {
        self.counters.attributes_left.fetch_add(left.len() as u64, Ordering::Relaxed);
        if left.iter().any(|(_, errno)| is_failure(*errno)) {
            self.counters.failed.fetch_add(1, Ordering::Relaxed);
        }
        for (name, errno) in self.attributes_told.first(left) {
            (self.told)(ArchiveEvent::AttributeLeft { path: self.path(path), name, errno });
        }
    }

    fn failed(&self, path: &ArchivePath, doing: &'static str, errno: Errno) {
        self.left_out(1, ArchiveError::File { path: self.path(path), doing, errno });
    }

    /// So many files are left out. On a full disk nothing more is written, and that is told once.
    fn left_out(&self, files: u64, error: ArchiveError) {
        if self.in_the_way.takes(&error) {
            return;
        }
        let error = match error {
            ArchiveError::File { path, errno: errno @ (Errno::NOSPC | Errno::DQUOT), .. } => {
                if self.is_full.swap(true, Ordering::Relaxed) {
                    return;
                }
                ArchiveError::TargetFull { path, errno }
            }
            error => error,
        };
        self.counters.failed.fetch_add(files, Ordering::Relaxed);
        (self.told)(ArchiveEvent::Failed(error));
    }
}

impl FetchCounters {
    fn report(&self) -> FetchReport {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        FetchReport {
            directories: of(&self.directories),
            fetched: of(&self.fetched),
            fetched_bytes: of(&self.fetched_bytes),
            unchanged: of(&self.unchanged),
            newer: of(&self.newer),
            removed: of(&self.removed),
            attributes_left: of(&self.attributes_left),
            failed: of(&self.failed),
        }
    }
}
