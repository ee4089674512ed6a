//! Removing from the target what the archive does not have.
//!
//! All is done by descriptors below the target, of names that were just read there, so no link is
//! followed and nothing outside is touched, whoever exchanges names meanwhile. What is left out of what
//! is fetched stays.
use super::FetchReport;
use super::exclude::FetchExclude;
use super::target::{FetchTarget, of};
use crate::archive::{Archive, ArchiveError, ArchiveEvent};
use crate::list::ArchivedFile;
use crate::path::ArchivePath;
use crate::walk::FileFacts;
use crate::walk::names::{OpenDirectory, status_in};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};
use sheaf_core::Errno;
use sheaf_core::files::FileKind;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Directories that are asked of the catalog at once.
const DIRECTORIES_AT_ONCE: usize = 1024;

const STORE_STAYS: &str = "is the store, in which nothing is removed";

/// Who removes what is not archived.
pub(super) struct OthersRemover<'a> {
    pub archive: &'a Archive,
    pub exclude: &'a FetchExclude,
    pub target: &'a FetchTarget,
    /// Where that is, as its user calls it.
    pub to: &'a Path,
    /// The archived directory that the target stands for.
    pub above: &'a ArchivePath,
    /// Device and inode of a directory that stays: the store itself.
    pub kept: Option<(u64, u64)>,
    pub dry_run: bool,
    pub told: &'a (dyn Fn(ArchiveEvent) + Sync),
    pub report: FetchReport,
}

/// Names of a directory, and what they are.
type OtherNames = Vec<(OsString, FileKind)>;

/// A directory that is removed, with what is left to do in it.
struct RemovedTree {
    path: ArchivePath,
    directories: Vec<OsString>,
    /// Something in it stays.
    stays: bool,
}

impl OthersRemover<'_> {
    /// Removes what is in these directories and is not archived.
    ///
    /// # Errors
    /// When the catalog cannot be read. What cannot be removed is told and counted.
    pub fn run(&mut self, from: &ArchivePath) -> Result<(), ArchiveError> {
        let mut last: Option<ArchivePath> = None;
        loop {
            let next = self.archive.catalog().below(from, last.as_ref(), DIRECTORIES_AT_ONCE)?;
            let Some((behind, _)) = next.last() else { return Ok(()) };
            last = Some(behind.clone());
            for (path, _) in next {
                if !self.exclude.fits_directory(&path) {
                    self.directory(&path);
                }
            }
        }
    }

    fn failed(&mut self, path: &ArchivePath, doing: &'static str, errno: Errno) {
        self.report.failed += 1;
        let path = self.path(path);
        (self.told)(ArchiveEvent::Failed(ArchiveError::File { path, doing, errno }));
    }

    fn path(&self, path: &ArchivePath) -> std::path::PathBuf {
        self.to.join(self.below(path).as_relative())
    }

    fn below(&self, path: &ArchivePath) -> ArchivePath {
        path.within(self.above).expect("what is fetched is below what was asked for")
    }

    /// Removes what is in a directory and is not archived there.
    fn directory(&mut self, path: &ArchivePath) {
        let open = match self.target.directory(&self.below(path)) {
            Ok(open) => open,
            // What is in the way of it is removed with the names of the directory above.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return,
            Err(errno) => return self.failed(path, "cannot be opened", errno),
        };
        if self.is_kept(&open) {
            return self.failed(path, STORE_STAYS, Errno::BUSY);
        }
        match self.others(path, &open) {
            Ok(Ok(others)) => {
                for (name, kind) in others {
                    self.other(path, open.as_fd(), &name, kind);
                }
            }
            Ok(Err(errno)) => self.failed(path, "cannot be read", errno),
            // Of what is archived not all is known: nothing is taken away here.
            Err(error) => {
                self.report.failed += 1;
                (self.told)(ArchiveEvent::Failed(error));
            }
        }
    }

    /// The names of a directory under which nothing of their kind is archived, but for what stays.
    fn others(
        &self,
        path: &ArchivePath,
        open: &OwnedFd,
    ) -> Result<Result<OtherNames, Errno>, ArchiveError> {
        let mut listing = self.archive.list(path)?;
        let mut next_archived = || -> Result<Option<(Vec<u8>, bool)>, ArchiveError> {
            for found in listing.by_ref() {
                let (name, file) = found?;
                let is_directory = matches!(file, ArchivedFile::Directory(_));
                let at = path.join(&name);
                let is_left_out = match is_directory {
                    true => self.exclude.fits_directory(&at),
                    false => self.exclude.fits_file(&at),
                };
                if !is_left_out {
                    return Ok(Some((name, is_directory)));
                }
            }
            Ok(None)
        };
        let mut archived = next_archived()?;
        let mut names = match OpenDirectory::open(Some(open), OsStr::new("."), false) {
            Ok(names) => names,
            Err(errno) => return Ok(Err(errno)),
        };
        let (mut others, mut failed) = (Vec::new(), None);
        loop {
            let looked = names.look(FileFacts::Kind, |_, seen| {
                let (name, is_directory) = (seen.name.to_bytes(), seen.kind == FileKind::Directory);
                while failed.is_none()
                    && archived.as_ref().is_some_and(|(known, _)| **known < *name)
                {
                    match next_archived() {
                        Ok(next) => archived = next,
                        Err(error) => failed = Some(error),
                    }
                }
                let is_archived = archived.as_ref().is_some_and(|(known, of_directory)| {
                    **known == *name && *of_directory == is_directory
                });
                if !is_archived && !self.stays(&path.join(name), is_directory) {
                    others.push((OsStr::from_bytes(name).to_owned(), seen.kind));
                }
            });
            match looked {
                None => break,
                Some(Ok(())) => {}
                Some(Err(errno)) => return Ok(Err(errno)),
            }
        }
        // What comes behind the last name may be what cannot be read.
        while failed.is_none() {
            match next_archived() {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(Ok(others)), Err)
    }

    /// Whether a name stays, as it would not be fetched. Something in a directory may go all the same.
    fn stays(&self, path: &ArchivePath, is_directory: bool) -> bool {
        match is_directory {
            true => self.exclude.fits_directory(path),
            false => self.exclude.fits_file(path),
        }
    }

    /// Removes what is not archived under its name.
    fn other(&mut self, path: &ArchivePath, open: BorrowedFd<'_>, name: &OsStr, kind: FileKind) {
        if kind == FileKind::Directory {
            self.tree(path.join(name.as_bytes()));
        } else {
            self.remove(&path.join(name.as_bytes()), open, name, AtFlags::empty());
        }
    }

    /// Removes a name of a directory that is open; whether it is gone.
    fn remove(
        &mut self,
        path: &ArchivePath,
        open: BorrowedFd<'_>,
        name: &OsStr,
        flags: AtFlags,
    ) -> bool {
        let gone = match self.dry_run {
            true => Ok(()),
            false => rustix::fs::unlinkat(open, name, flags),
        };
        match gone {
            Ok(()) => {
                self.report.removed += 1;
                let (path, dry_run) = (self.path(path), self.dry_run);
                (self.told)(ArchiveEvent::Removes { path, dry_run });
                true
            }
            Err(rustix::io::Errno::NOENT) => true,
            Err(errno) => {
                self.failed(path, "is not archived and cannot be removed", of(errno));
                false
            }
        }
    }

    /// Removes a directory with all that is in it, but for what stays. What is in it goes by its path, so no
    /// more than one is open, however deep it is.
    fn tree(&mut self, path: ArchivePath) {
        let mut within: Vec<RemovedTree> = self.enter(path).into_iter().collect();
        while let Some(last) = within.last_mut() {
            if let Some(name) = last.directories.pop() {
                let path = last.path.join(name.as_bytes());
                match self.enter(path) {
                    Some(tree) => within.push(tree),
                    None => last.stays = true,
                }
                continue;
            }
            let Some(RemovedTree { path, stays, .. }) = within.pop() else { return };
            let is_gone = !stays && self.exclude.is_included(&path, true) && self.leave(&path);
            if let Some(above) = within.last_mut() {
                above.stays |= !is_gone;
            }
        }
    }

    /// Removes a directory in which nothing is left.
    fn leave(&mut self, path: &ArchivePath) -> bool {
        let Some((above, name)) = path.split() else { return false };
        match self.target.directory(&self.below(&above)) {
            Ok(open) => {
                self.remove(path, open.as_fd(), OsStr::from_bytes(name), AtFlags::REMOVEDIR)
            }
            Err(errno) => {
                self.failed(path, "is not archived and cannot be removed", errno);
                false
            }
        }
    }

    /// Removes what is in a directory and is none; nothing if it stays as a whole.
    fn enter(&mut self, path: ArchivePath) -> Option<RemovedTree> {
        let read = self.entered(&path).and_then(|open| {
            let names = OpenDirectory::open(Some(&open), OsStr::new("."), false)?;
            Ok((open, names))
        });
        let (open, mut names) = match read {
            Ok(read) => read,
            Err(errno) => {
                let doing = match errno {
                    Errno::XDEV => {
                        "is not archived and stays, as another file system is mounted there"
                    }
                    Errno::BUSY => STORE_STAYS,
                    _ => "is not archived and cannot be removed",
                };
                self.failed(&path, doing, errno);
                return None;
            }
        };
        let (mut tree, mut files) = (Vec::new(), Vec::new());
        let mut stays = false;
        while let Some(looked) = names.look(FileFacts::Kind, |_, seen| {
            let is_directory = seen.kind == FileKind::Directory;
            let name = OsStr::from_bytes(seen.name.to_bytes()).to_owned();
            match self.stays(&path.join(name.as_bytes()), is_directory) {
                true => stays = true,
                false if is_directory => tree.push(name),
                false => files.push(name),
            }
        }) {
            if let Err(errno) = looked {
                self.failed(&path, "cannot be read", errno);
                stays = true;
            }
        }
        for name in files {
            let at = path.join(name.as_bytes());
            stays |= !self.remove(&at, open.as_fd(), &name, AtFlags::empty());
        }
        Some(RemovedTree { path, directories: tree, stays })
    }

    /// A directory that is not archived, unless another file system is mounted there (`EXDEV`) or the store
    /// is there (`EBUSY`).
    fn entered(&self, path: &ArchivePath) -> Result<OwnedFd, Errno> {
        let (above, name) = path.split().ok_or(Errno::INVAL)?;
        let above = self.target.directory(&self.below(&above))?;
        let name = OsStr::from_bytes(name);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let open = rustix::fs::openat2(&above, name, flags, Mode::empty(), resolve).map_err(of)?;
        if self.is_kept(&open) { Err(Errno::BUSY) } else { Ok(open) }
    }

    /// Whether a directory is the store. One that cannot be looked at may be.
    fn is_kept(&self, open: &OwnedFd) -> bool {
        let is = |kept| status_in(open.as_fd(), OsStr::new(".")).is_ok_and(|is| is.id() != kept);
        self.kept.is_some_and(|kept| !is(kept))
    }
}
