//! Storing what a list names: each file keeps its path as it is named, as with `tar -T`.
//!
//! The list is taken in pieces, of which one is in memory. Each piece is stored before the next, so no two
//! of them change one directory at once.
use super::directory::{DirectorySave, SourceName};
use super::links::SavedLinks;
use super::replace::Replacements;
use super::{
    SaveCounters, SaveExclude, SaveOptions, SaveReport, SaveRun, SaveWork, file_error,
    make_directories, refuse_store, source,
};
use crate::archive::{Archive, ArchiveError, ArchiveEvent};
use crate::catalog::{ArchivedDirectory, CatalogError, Commit, DirectoryChange};
use crate::list::ArchivedFile;
use crate::path::ArchivePath;
use crate::schedule::ScheduleStats;
use crate::walk::names::{self, Directory};
use rustix::fs::{CWD, Mode, OFlags};
use sheaf_core::Errno;
use sheaf_core::files::Metadata;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Names of a list that are in memory at most, and bytes of them.
const NAMES_MAX: usize = 16 << 10;
const NAMES_BYTES_MAX: usize = 8 << 20;
/// How often what others have changed meanwhile is tried again.
const TRIES: usize = 8;

/// A file of a list.
struct ListedFile {
    /// As it is named, without what says nothing.
    path: PathBuf,
    found: Metadata,
}

/// What a piece of a list names, by what it is archived as below the directory that all goes to.
type Listed = BTreeMap<ArchivePath, ListedFile>;

/// Stores the files and directories that a list names, with all that is in the latter, in a directory of an
/// archive, which is made if it is not there. Paths are those of the system, relative ones from the working
/// directory on; each is archived under its whole path, without a slash before it, and the directories on the way
/// to it are archived with their modes, owners and times. A name that is not there, or has `..` in it, is told
/// and counted, and so is an error of the list, behind which nothing is read.
///
/// # Errors
/// When the store or the catalog cannot be written. What was committed until then stays.
pub fn save_listed(
    archive: &Archive,
    list: &mut dyn Iterator<Item = std::io::Result<Vec<u8>>>,
    to: &ArchivePath,
    options: SaveOptions,
    exclude: &SaveExclude,
    told: &(dyn Fn(ArchiveEvent) + Sync),
    watch: &(dyn Fn(&SaveReport, &ScheduleStats) + Sync),
) -> Result<SaveReport, ArchiveError> {
    let _writing = archive.writing();
    if !options.dry_run {
        make_directories(archive, to)?;
    }
    let done = Mutex::new(SaveReport::default());
    let watch = |now: &SaveReport, stats: &ScheduleStats| {
        let before = *sheaf_core::lock(&done);
        watch(&(before + *now), stats);
    };
    let links = SavedLinks::default();
    let run = SaveRun { archive, options, exclude, told, watch: &watch, links: &links };
    let lister = Lister { archive, to, options, exclude, told, counters: SaveCounters::default() };
    loop {
        let (listed, is_over) = lister.next(list);
        if !listed.is_empty() {
            let listed = lister.make_ways(listed)?;
            let report = lister.store(&run, listed)?;
            let mut done = sheaf_core::lock(&done);
            *done = *done + report;
        }
        if is_over {
            break;
        }
    }
    let report = *sheaf_core::lock(&done);
    Ok(report + lister.counters.take())
}

struct Lister<'a> {
    archive: &'a Archive,
    to: &'a ArchivePath,
    options: SaveOptions,
    exclude: &'a SaveExclude,
    told: &'a (dyn Fn(ArchiveEvent) + Sync),
    counters: SaveCounters,
}

impl Lister<'_> {
    fn failed(&self, error: ArchiveError) {
        self.counters.add(&SaveReport { failed: 1, ..SaveReport::default() });
        (self.told)(ArchiveEvent::Failed(error));
    }

    /// The next names of a list, and whether there are no more.
    fn next(&self, list: &mut dyn Iterator<Item = std::io::Result<Vec<u8>>>) -> (Listed, bool) {
        let (mut listed, mut bytes) = (Listed::new(), 0);
        while listed.len() < NAMES_MAX && bytes < NAMES_BYTES_MAX {
            let name = match list.next() {
                None => return (listed, true),
                Some(Ok(name)) => name,
                Some(Err(error)) => {
                    let list = Path::new("the list of names");
                    self.failed(file_error(list, "cannot be read", Errno::from_io(&error)));
                    return (listed, true);
                }
            };
            bytes += name.len();
            let path = PathBuf::from(OsString::from_vec(name));
            match self.look(&path) {
                Ok(Some((archived, file))) => drop(listed.insert(archived, file)),
                Ok(None) => {}
                Err(error) => self.failed(error),
            }
        }
        (listed, false)
    }

    /// What a name is, and what it is archived as; nothing if it is left out.
    fn look(&self, path: &Path) -> Result<Option<(ArchivePath, ListedFile)>, ArchiveError> {
        let failed = |errno| file_error(path, "cannot be stored", errno);
        let bytes = path.as_os_str().as_bytes();
        let archived = ArchivePath::new(bytes).filter(|_| !bytes.is_empty());
        let archived =
            archived.ok_or_else(|| file_error(path, "is no name without ..", Errno::INVAL))?;
        let path = real_path(path, &archived);
        let found = names::lstat(&path).map_err(failed)?;
        if let Some(store) = self.options.left_out {
            refuse_store(&path, store)?;
        }
        if self.is_excluded(&archived, &path, found.is_dir()) {
            self.counters.add(&SaveReport { skipped: 1, ..SaveReport::default() });
            if self.options.tell_names && !self.options.dry_run {
                (self.told)(ArchiveEvent::Skipped { path, why: "it is excluded" });
            }
            return Ok(None);
        }
        Ok(Some((archived, ListedFile { path, found })))
    }

    /// Whether a name is left out, or a directory that it is in.
    fn is_excluded(&self, archived: &ArchivePath, path: &Path, is_directory: bool) -> bool {
        let (mut archived, mut path, mut is_directory) = (archived.clone(), path, is_directory);
        while let Some((above, name)) = archived.split() {
            let whole = || path.to_owned();
            if self.exclude.fits(OsStr::from_bytes(name), is_directory, whole, archived.depth()) {
                return true;
            }
            let Some(parent) = path.parent() else { return false };
            (archived, path, is_directory) = (above, parent, true);
        }
        false
    }

    /// Archives the directories that names are in; the names for which there is one.
    fn make_ways(&self, listed: Listed) -> Result<Listed, ArchiveError> {
        let mut ways: BTreeMap<ArchivePath, PathBuf> = BTreeMap::new();
        for (archived, file) in &listed {
            let (mut at, mut path) = (archived.clone(), file.path.as_path());
            while let (Some((above, _)), Some(parent)) = (at.split(), path.parent()) {
                if above == ArchivePath::ROOT || ways.contains_key(&above) {
                    break;
                }
                ways.insert(above.clone(), parent.to_owned());
                (at, path) = (above, parent);
            }
        }
        let mut wrong: Vec<ArchivePath> = Vec::new();
        let mut found: Vec<(ArchivePath, ArchivedDirectory)> = Vec::new();
        for (archived, path) in ways {
            if wrong.iter().any(|wrong| archived.is_within(wrong)) {
                continue;
            }
            let to = self.below(&archived);
            let is = match self.archive.look_up(&to)? {
                Some(ArchivedFile::Directory(_)) | None => directory_of(&path),
                Some(_) => Err(ArchiveError::InTheWay { path: to.clone(), what: "a file" }),
            };
            match is {
                Ok(is) => found.push((to, is)),
                Err(error) => {
                    self.failed(error);
                    wrong.push(archived);
                }
            }
        }
        if !self.options.dry_run {
            self.commit(&found)?;
        }
        let is_right =
            |archived: &ArchivePath| !wrong.iter().any(|wrong| archived.is_within(wrong));
        Ok(listed.into_iter().filter(|(archived, _)| is_right(archived)).collect())
    }

    /// Has directories archived as they are.
    fn commit(&self, found: &[(ArchivePath, ArchivedDirectory)]) -> Result<(), ArchiveError> {
        for tried in 1.. {
            let (mut changes, mut catalog) = (Vec::new(), self.archive.catalog());
            for (path, is) in found {
                let rows = catalog.rows_of(path)?;
                if rows.directory.as_ref() != Some(is) {
                    changes.push(DirectoryChange {
                        path: path.clone(),
                        since: rows.changed,
                        directory: Some(is.clone()),
                        ..DirectoryChange::default()
                    });
                }
            }
            if changes.is_empty() {
                break;
            }
            match self.archive.commit_in(&mut catalog, &Commit { changes }) {
                Err(CatalogError::Changed { .. }) if tried < TRIES => {}
                committed => return committed.map(drop).map_err(Into::into),
            }
        }
        Ok(())
    }

    fn below(&self, archived: &ArchivePath) -> ArchivePath {
        archived.parts().fold(self.to.clone(), |path, part| path.join(part))
    }

    /// Stores what was found.
    fn store(&self, run: &SaveRun<'_>, listed: Listed) -> Result<SaveReport, ArchiveError> {
        let mut directories: Vec<(ArchivePath, PathBuf)> = Vec::new();
        let mut files: BTreeMap<ArchivePath, Vec<ListedFile>> = BTreeMap::new();
        // In their order: a directory comes before all that is in it.
        for (archived, file) in listed {
            if directories.last().is_some_and(|(last, _)| archived.is_within(last)) {
                continue;
            }
            if file.found.is_dir() {
                let to = self.below(&archived);
                let old = self.archive.look_up(&to)?;
                match old {
                    Some(ArchivedFile::Directory(_)) | None => {
                        directories.push((archived, file.path))
                    }
                    Some(_) => {
                        self.failed(ArchiveError::InTheWay { path: to, what: "a file" });
                    }
                }
            } else if let Some((above, _)) = archived.split() {
                files.entry(above).or_default().push(file);
            }
        }
        let replaced = Replacements::default();
        let report = run.pass(Some(&replaced), |shared, pool| {
            let count = u32::try_from(directories.len()).unwrap_or(u32::MAX);
            for (place, (archived, path)) in (0..count).zip(directories) {
                let (from, to) = (Directory::at(&path), self.below(&archived));
                let place = [place].into();
                let work = SaveWork { from, path, to, above: None, is_source: true, place };
                pool.push(None, work);
            }
            for (above, files) in files {
                let to = self.below(&above);
                pool.push_files(
                    None,
                    Box::new(move || {
                        let source = |file: &'_ ListedFile| -> Option<(OsString, Metadata)> {
                            Some((file.path.file_name()?.to_owned(), file.found.clone()))
                        };
                        let named: Vec<_> = files.iter().filter_map(source).collect();
                        let sources = files.iter().zip(&named).map(|(file, (name, found))| {
                            let (opened, found) = (file.path.as_os_str(), Ok(found.clone()));
                            SourceName { name, directory: CWD, opened, path: &file.path, found }
                        });
                        DirectorySave::files(shared, &to, sources.collect())
                    }),
                );
            }
            Ok(())
        })?;
        run.replace(replaced, &self.counters)?;
        Ok(report)
    }
}

/// A path without what says nothing, so that its last name is its archived one.
fn real_path(path: &Path, archived: &ArchivePath) -> PathBuf {
    let relative = archived.as_relative();
    match path.is_absolute() {
        true => Path::new("/").join(relative),
        false if *archived == ArchivePath::ROOT => PathBuf::from("."),
        false => relative,
    }
}

/// What a directory is that leads to a name; a link to one is one.
fn directory_of(path: &Path) -> Result<ArchivedDirectory, ArchiveError> {
    let failed = |errno: Errno| file_error(path, "cannot be read", errno);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = rustix::fs::openat(CWD, path, flags, Mode::empty())
        .map_err(|errno| failed(source::of(errno)))?;
    let found = source::status(open.as_fd()).map_err(failed)?;
    Ok(ArchivedDirectory {
        mode: found.mode,
        uid: found.uid,
        gid: found.gid,
        mtime_s: found.mtime.seconds,
        mtime_ns: found.mtime.nanoseconds,
        xattrs: source::xattrs_of(open.as_fd()).map_err(failed)?,
    })
}
