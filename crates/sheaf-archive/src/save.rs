//! Storing trees: directories by many workers, small files into packs, only what has changed.
//!
//! Directories are listed, compared with what is archived of them, a pack's index at a time, and what is
//! new or has changed goes into new packs and objects, and is taken out of the older ones in the same
//! commit. A schedule says what comes next of these three phases. What was stored before is not stored again, so one that
//! was broken off goes on where it was.
//!
//! PSI, sections 4 (phases of work, conditional transfers) and 6.2 (an aggregate holds files of one
//! directory). PSI compares attributes from both file systems (section 8.4); here a pack's index
//! has those of all its members, so an unchanged directory costs few reads.
mod commits;
mod compare;
mod content;
mod desk;
mod directory;
mod exclude;
mod heal;
pub(crate) mod hosts;
mod links;
mod listed;
pub(crate) mod old;
pub(crate) mod output;
mod parted;
mod phases;
mod replace;
pub(crate) mod source;

pub(crate) use parted::RESUME;

use crate::archive::{Archive, ArchiveError, ArchiveEvent};
use crate::catalog::{ArchivedDirectory, Commit, DirectoryChange};
use crate::list::ArchivedFile;
use crate::name::FileName;
use crate::path::ArchivePath;
use crate::schedule::{MovedBytes, Resource, ScheduleLimits, ScheduleStats, TaskPlace};
use crate::store::Store;
use crate::walk::names::{self, Directory};
pub use compare::FileIgnores;
use desk::{CatalogDesk, SaveDesk};
use directory::{DirectorySave, SourceName};
pub use exclude::{SaveExclude, SaveExcludeError};
use links::SavedLinks;
pub use listed::save_listed;
use phases::SavePool;
use replace::Replacements;
use rustix::fs::CWD;
use serde::{Deserialize, Serialize};
use sheaf_core::files::FileKind;
use sheaf_core::{Errno, lock};
use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::ops::Add;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Memory that those who store have together, unless another limit is set.
const MEMORY_BYTES: u64 = 256 << 20;
/// Requests to a store at once, unless another limit is set.
const STORE_CONNECTIONS: u64 = 32;

/// What may be used where nothing else is said.
pub(crate) fn usual_limits() -> ScheduleLimits {
    ScheduleLimits::default()
        .with(Resource::Memory, MEMORY_BYTES)
        .with(Resource::StoreConnections, STORE_CONNECTIONS)
}

/// How to store.
#[derive(Clone, Copy, Debug)]
pub struct SaveOptions {
    /// Tasks at once, to begin with: while they mostly wait, there are more.
    pub workers: usize,
    /// Bytes of the longest file that goes into a pack, up to [`MEMBER_BYTES_MAX`](crate::MEMBER_BYTES_MAX);
    /// with 0 there are no packs. Holes do not count.
    pub member_bytes_max: u64,
    /// Bytes after which a directory's next pack begins.
    pub pack_bytes: u64,
    /// Bytes of a part of a large content, which is stored in several objects then: a power of two, and what
    /// is broken off goes on with the next part.
    pub part_bytes: u64,
    /// The level at which packs are compressed with zstd, 1 to 19; nothing where they are plain tars.
    pub zstd: Option<i32>,
    /// Device and inode of a directory that is left out: the store itself, where it may be among the
    /// sources.
    pub left_out: Option<(u64, u64)>,
    /// What may be used of this machine and of the store.
    pub limits: ScheduleLimits,
    /// A file is unchanged if it has the content that is archived and the same mode, owner, extended
    /// attributes and time of modification, whatever its inode says, and what is archived of it can be read
    /// and is as it was stored; else by its size, times and inode.
    pub checksum: bool,
    /// What may differ of a file that is unchanged by its times and inode.
    pub ignores: FileIgnores,
    /// Only say what would be stored.
    pub dry_run: bool,
    /// Tell of each file that is stored ([`ArchiveEvent::Stores`]).
    pub tell_names: bool,
    /// Of directories at which another file system is mounted, nothing but themselves is stored.
    pub one_file_system: bool,
}

/// The bytes of a part of a large content.
const PART_BYTES: u64 = 64 << 20;
/// The longest file that goes into a pack, where an object more costs little: 1 MiB.
pub const PACK_LIMIT_MIN: u64 = 1 << 20;
/// The longest file that goes into a pack, where an object more costs much: 16 MiB.
pub const PACK_LIMIT_MAX: u64 = 16 << 20;

impl SaveOptions {
    /// What suits a store: enough directories at once to keep it busy, and a file goes into a pack if
    /// its bytes take less time than an object more would, between [`PACK_LIMIT_MIN`] and
    /// [`PACK_LIMIT_MAX`].
    #[must_use]
    pub fn of(store: &dyn Store) -> Self {
        let bytes = store.costs().map_or(0, |costs| costs.latency_bytes());
        let member_bytes_max = bytes.clamp(PACK_LIMIT_MIN, PACK_LIMIT_MAX);
        let default = Self::default();
        let workers = default.workers.max(store.calls_at_once());
        Self { workers, member_bytes_max, ..default }
    }
}

impl Default for SaveOptions {
    fn default() -> Self {
        // With one worker, nothing is read while it waits for the store.
        let workers = std::thread::available_parallelism().map_or(2, usize::from).max(2);
        let limits = usual_limits();
        Self {
            workers,
            member_bytes_max: PACK_LIMIT_MIN,
            pack_bytes: 64 << 20,
            part_bytes: PART_BYTES,
            zstd: None,
            left_out: None,
            limits,
            checksum: false,
            ignores: FileIgnores::default(),
            dry_run: false,
            tell_names: false,
            one_file_system: false,
        }
    }
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SaveReport {
    /// Directories that were looked through.
    pub directories: u64,
    /// Files that were stored.
    pub stored: u64,
    /// Bytes of their contents.
    pub stored_bytes: u64,
    /// Files that are archived as they are.
    pub unchanged: u64,
    /// Files that were written to while they were read.
    pub changing: u64,
    /// Files that are none that can be archived, and files and directories that are excluded.
    pub skipped: u64,
    /// Files and directories that were left out by errors.
    pub failed: u64,
}

/// Hosts report what they like: a sum stays at the most that can be counted.
impl Add for SaveReport {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            directories: self.directories.saturating_add(other.directories),
            stored: self.stored.saturating_add(other.stored),
            stored_bytes: self.stored_bytes.saturating_add(other.stored_bytes),
            unchanged: self.unchanged.saturating_add(other.unchanged),
            changing: self.changing.saturating_add(other.changing),
            skipped: self.skipped.saturating_add(other.skipped),
            failed: self.failed.saturating_add(other.failed),
        }
    }
}

/// The same as [`SaveReport`], by many.
#[derive(Default)]
struct SaveCounters {
    directories: AtomicU64,
    stored: AtomicU64,
    stored_bytes: AtomicU64,
    unchanged: AtomicU64,
    changing: AtomicU64,
    skipped: AtomicU64,
    failed: AtomicU64,
}

/// A directory on its way into the archive.
struct SavedDirectory {
    path: ArchivePath,
    above: Option<Arc<Self>>,
    /// What it is.
    is: ArchivedDirectory,
    /// The commit that has changed it last, as far as is known here; 0 where it is not archived yet.
    since: AtomicU64,
    /// A change of it was given up, so later ones cannot be made.
    is_broken: AtomicBool,
    /// Names of files that are archived as directories, and are to be replaced when the files are stored.
    replaced: Mutex<BTreeSet<FileName>>,
}

impl SavedDirectory {
    fn new(path: ArchivePath, above: Option<Arc<Self>>, is: ArchivedDirectory, since: u64) -> Self {
        let (since, is_broken) = (AtomicU64::new(since), AtomicBool::new(false));
        Self { path, above, is, since, is_broken, replaced: Mutex::default() }
    }

    /// Gives up a change of it; whether it was the first.
    fn break_off(&self) -> bool {
        !self.is_broken.swap(true, Ordering::Relaxed)
    }

    fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }

    /// A file of this name is to be stored, and a directory is archived under it.
    fn replace(&self, name: &[u8]) {
        lock(&self.replaced).extend(FileName::new(name));
    }

    /// Whether that is so, once.
    fn takes_replaced(&self, name: &FileName) -> bool {
        lock(&self.replaced).remove(name)
    }
}

/// A directory that nobody has begun.
struct SaveWork {
    from: Directory,
    /// Where it is, as its user calls it.
    path: PathBuf,
    to: ArchivePath,
    above: Option<Arc<SavedDirectory>>,
    /// It was named, so that it is an error if it is not there.
    is_source: bool,
    /// Where it is in a serial walk.
    place: TaskPlace,
}

struct SaveShared<'a> {
    /// Where packs and objects go.
    store: &'a dyn Store,
    /// Where it is known what is archived, and becomes so.
    desk: &'a dyn SaveDesk,
    options: SaveOptions,
    /// What an object that is being written takes of a limit of memory.
    writer_bytes: u64,
    exclude: &'a SaveExclude,
    told: &'a (dyn Fn(ArchiveEvent) + Sync),
    /// Directories that are archived as files, where these are replaced.
    replaced: Option<&'a Replacements>,
    moved: MovedBytes,
    /// Of directories as far as they have handed in what they did.
    counters: SaveCounters,
}

/// Stores files and directories with all that is in them in a directory of an archive, which is made
/// if it is not there. Each keeps its name; of a path that ends with `/.` it is what is in the directory
/// that is stored.
///
/// What is archived there and is not among the sources stays. Single files that cannot be stored are
/// told, counted and left out.
///
/// # Errors
/// When the store or the catalog cannot be written, or two sources have one name. What was committed
/// until then stays, and is not stored again the next time.
pub fn save(
    archive: &Archive,
    sources: &[PathBuf],
    to: &ArchivePath,
    options: SaveOptions,
    told: &(dyn Fn(ArchiveEvent) + Sync),
) -> Result<SaveReport, ArchiveError> {
    let exclude = SaveExclude::default();
    save_watched(archive, sources, to, options, &exclude, told, &|_, _| ())
}

/// As [`save`], without what is excluded: it is counted, and stays in the archive where it is there.
/// What was done and what is being done is told to `watch` several times a second, and at the end.
///
/// # Errors
/// As [`save`].
pub fn save_watched(
    archive: &Archive,
    sources: &[PathBuf],
    to: &ArchivePath,
    options: SaveOptions,
    exclude: &SaveExclude,
    told: &(dyn Fn(ArchiveEvent) + Sync),
    watch: &(dyn Fn(&SaveReport, &ScheduleStats) + Sync),
) -> Result<SaveReport, ArchiveError> {
    // The walk leaves the store out where it finds it below a source. A source that is the store,
    // or is in it, is refused.
    if let Some(store) = options.left_out {
        for source in sources {
            refuse_store(source, store)?;
        }
    }
    let _writing = archive.writing();
    if !options.dry_run {
        make_directories(archive, to)?;
    }
    let links = SavedLinks::default();
    let run = SaveRun { archive, options, exclude, told, watch, links: &links };
    let all = SaveCounters::default();
    let replaced = Replacements::default();
    let mut sources = sources.to_vec();
    for (source, error) in in_the_way(archive, &sources, to)? {
        all.failed.fetch_add(1, Ordering::Relaxed);
        told(ArchiveEvent::Failed(error));
        sources.retain(|other| *other != source);
    }
    all.add(&run.pass(Some(&replaced), |shared, pool| shared.begin(&sources, to, pool))?);
    // Last: an archived file makes room for a directory only when all else is stored.
    run.replace(replaced, &all)?;
    Ok(all.take())
}

/// Directories that are named and archived as files: each with what is to be told.
fn in_the_way(
    archive: &Archive,
    sources: &[PathBuf],
    to: &ArchivePath,
) -> Result<Vec<(PathBuf, ArchiveError)>, ArchiveError> {
    let mut found = Vec::new();
    for source in sources {
        let Some(name) = name_of(source) else { continue };
        let path = to.join(name.as_bytes());
        // What is not there is told later.
        let is_directory = names::lstat(source).is_ok_and(|found| found.is_dir());
        let is_file = |file: &ArchivedFile| !matches!(file, ArchivedFile::Directory(_));
        if is_directory && archive.look_up(&path)?.as_ref().is_some_and(is_file) {
            found.push((source.clone(), ArchiveError::InTheWay { path, what: "a file" }));
        }
    }
    Ok(found)
}

/// The name that a source keeps; nothing where it is what is in it that is stored.
fn name_of(source: &Path) -> Option<&OsStr> {
    let of_contents =
        source.as_os_str().as_bytes().ends_with(b"/.") || source.as_os_str() == OsStr::new(".");
    source.file_name().filter(|_| !of_contents)
}

/// What all that is stored by one command has in common.
struct SaveRun<'a> {
    archive: &'a Archive,
    options: SaveOptions,
    exclude: &'a SaveExclude,
    told: &'a (dyn Fn(ArchiveEvent) + Sync),
    watch: &'a (dyn Fn(&SaveReport, &ScheduleStats) + Sync),
    /// A file has names in directories that are stored one after the other.
    links: &'a SavedLinks,
}

impl SaveRun<'_> {
    /// Stores directories that take the place of archived files.
    fn replace(&self, replaced: Replacements, all: &SaveCounters) -> Result<(), ArchiveError> {
        for replacement in replaced.take() {
            let path = replacement.path.clone();
            if self.options.dry_run {
                (self.told)(ArchiveEvent::Replaced { path, was: "a file" });
                continue;
            }
            match replacement.make_room(self.archive)? {
                Ok(true) => {
                    (self.told)(ArchiveEvent::Replaced { path, was: "a file" });
                    all.add(&self.pass(None, |shared, pool| {
                        shared.begin_again(&replacement, pool);
                        Ok(())
                    })?);
                }
                Ok(false) => {}
                Err(error) => {
                    all.failed.fetch_add(1, Ordering::Relaxed);
                    (self.told)(ArchiveEvent::Failed(error));
                }
            }
        }
        Ok(())
    }

    /// Stores what `begin` says, and all below it.
    fn pass(
        &self,
        replaced: Option<&Replacements>,
        begin: impl for<'a> FnOnce(&'a SaveShared<'a>, &SavePool<'a>) -> Result<(), ArchiveError>,
    ) -> Result<SaveReport, ArchiveError> {
        let desk = CatalogDesk::new(self.archive, self.links);
        let mut options = self.options;
        let writer_bytes = options.limits.leave_to(self.archive.store());
        let shared = SaveShared {
            store: self.archive.store(),
            desk: &desk,
            options,
            writer_bytes,
            exclude: self.exclude,
            told: self.told,
            replaced,
            moved: MovedBytes::new(&self.options.limits),
            counters: SaveCounters::default(),
        };
        let done = {
            let pool = SavePool::new(&shared);
            begin(&shared, &pool).and_then(|()| pool.run(self.watch))
        };
        let report = shared.counters.take();
        // What is whole is kept also where something else has failed.
        let refused = desk.finish();
        done?;
        let refused = refused?;
        let report = refused.taken_from(report);
        for error in refused.errors {
            (self.told)(ArchiveEvent::Failed(error));
        }
        Ok(report)
    }
}

/// Refuses a source that is the directory of the store, of this device and inode, or is in it.
fn refuse_store(source: &Path, store: (u64, u64)) -> Result<(), ArchiveError> {
    // One that is not there is told later.
    let Ok(found) = names::lstat(source) else { return Ok(()) };
    let failed = |error| file_error(source, "cannot be stored", Errno::from_io(&error));
    let whole = if found.kind == FileKind::Directory {
        source.canonicalize().map_err(failed)?
    } else {
        // A link is stored as such, wherever it leads to.
        let above = source.parent().filter(|above| !above.as_os_str().is_empty());
        above.unwrap_or(Path::new(".")).canonicalize().map_err(failed)?
    };
    for above in whole.ancestors() {
        match names::lstat(above) {
            Ok(found) if found.id() == store => {
                return Err(ArchiveError::StoreItself { path: source.to_owned() });
            }
            Ok(_) => {}
            Err(errno) => return Err(file_error(above, "cannot be looked at", errno)),
        }
    }
    Ok(())
}

/// Makes a directory of an archive and those above it, where they are not there.
fn make_directories(archive: &Archive, to: &ArchivePath) -> Result<(), ArchiveError> {
    let mut on_the_way = Some(to.clone());
    while let Some(path) = on_the_way {
        match archive.look_up(&path)? {
            // What is above a directory is one.
            Some(ArchivedFile::Directory(_)) => break,
            Some(_) => return Err(ArchiveError::InTheWay { path, what: "a file" }),
            None => on_the_way = path.split().map(|(above, _)| above),
        }
    }
    loop {
        // The catalog is locked from the look to the commit: only another process can come between.
        let (mut missing, mut catalog) = (Vec::new(), archive.catalog());
        let mut next = Some(to.clone());
        while let Some(path) = next {
            next = path.split().map(|(above, _)| above);
            if catalog.directory(&path)?.is_none() {
                missing.push(path);
            }
        }
        // They were found upwards: turned round, each comes behind the one that it is in.
        let changes = missing.into_iter().rev().map(|path| DirectoryChange {
            path,
            directory: Some(directory::made_now()),
            ..Default::default()
        });
        let commit = Commit { changes: changes.collect() };
        if commit.changes.is_empty() {
            return Ok(());
        }
        match archive.commit_in(&mut catalog, &commit) {
            // Somebody else has made one of them.
            Err(crate::CatalogError::Changed { .. }) => {}
            committed => return committed.map(drop).map_err(Into::into),
        }
    }
}

impl SaveShared<'_> {
    /// Takes what is to be stored: directories are work, and files are stored at once.
    fn begin<'a>(
        &'a self,
        sources: &[PathBuf],
        to: &ArchivePath,
        pool: &SavePool<'a>,
    ) -> Result<(), ArchiveError> {
        let mut files: Vec<SourceName<'_>> = Vec::new();
        let mut names = HashSet::new();
        for (number, source) in sources.iter().enumerate() {
            let name = name_of(source);
            let found = match names::lstat(source) {
                Ok(found) => found,
                Err(errno) => {
                    self.failed(file_error(source, "cannot be stored", errno));
                    continue;
                }
            };
            // Both would be stored under one name, and only the last one would stay.
            if name.is_some_and(|name| !names.insert(name)) {
                let doing = "cannot be stored beside another of this name";
                return Err(file_error(source, doing, Errno::EXIST));
            }
            let is_directory = found.kind == FileKind::Directory;
            if let Some(name) = name
                && self.exclude.fits(name, is_directory, || source.clone(), 0)
            {
                self.excluded(&self.counters, || source.clone());
                continue;
            }
            if is_directory {
                let to = name.map_or_else(|| to.clone(), |name| to.join(name.as_bytes()));
                let (from, path) = (Directory::at(source), source.clone());
                let place = [u32::try_from(number).unwrap_or(u32::MAX)].into();
                let work = SaveWork { from, path, to, above: None, is_source: true, place };
                pool.push(None, work);
            } else if let Some(name) = name {
                // The path as a whole is what is opened.
                let (opened, found) = (source.as_os_str(), Ok(found));
                files.push(SourceName { name, directory: CWD, opened, path: source, found });
            }
        }
        DirectorySave::files(self, to, files)
    }

    /// A file or directory is left out by its name.
    fn excluded(&self, counters: &SaveCounters, path: impl FnOnce() -> PathBuf) {
        counters.skipped.fetch_add(1, Ordering::Relaxed);
        if self.options.tell_names && !self.options.dry_run {
            (self.told)(ArchiveEvent::Skipped { path: path(), why: "it is excluded" });
        }
    }

    /// A file or directory is left out by an error.
    fn failed(&self, error: ArchiveError) {
        self.counters.failed.fetch_add(1, Ordering::Relaxed);
        (self.told)(ArchiveEvent::Failed(error));
    }
}

impl SaveCounters {
    /// What was counted by now.
    fn now(&self) -> SaveReport {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SaveReport {
            directories: of(&self.directories),
            stored: of(&self.stored),
            stored_bytes: of(&self.stored_bytes),
            unchanged: of(&self.unchanged),
            changing: of(&self.changing),
            skipped: of(&self.skipped),
            failed: of(&self.failed),
        }
    }

    /// What was counted; they begin again.
    fn take(&self) -> SaveReport {
        let of = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed);
        SaveReport {
            directories: of(&self.directories),
            stored: of(&self.stored),
            stored_bytes: of(&self.stored_bytes),
            unchanged: of(&self.unchanged),
            changing: of(&self.changing),
            skipped: of(&self.skipped),
            failed: of(&self.failed),
        }
    }

    fn add(&self, report: &SaveReport) {
        for (counter, count) in [
            (&self.directories, report.directories),
            (&self.stored, report.stored),
            (&self.stored_bytes, report.stored_bytes),
            (&self.unchanged, report.unchanged),
            (&self.changing, report.changing),
            (&self.skipped, report.skipped),
            (&self.failed, report.failed),
        ] {
            counter.fetch_add(count, Ordering::Relaxed);
        }
    }
}

fn file_error(path: &Path, doing: &'static str, errno: Errno) -> ArchiveError {
    ArchiveError::File { path: path.to_owned(), doing, errno }
}
