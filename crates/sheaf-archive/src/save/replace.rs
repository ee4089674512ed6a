//! Directories that are archived as files take the place of these, once all else is stored.
//!
//! The other way round, a file takes the place of a directory in the commit that stores it, with all that
//! is archived in the directory.
use super::phases::SavePool;
use super::{SaveShared, SaveWork, file_error};
use crate::archive::{Archive, ArchiveError};
use crate::list::ArchivedFile;
use crate::pack::member::MemberAttributes;
use crate::path::ArchivePath;
use crate::remove::remove_files;
use crate::schedule::TaskPlace;
use crate::walk::names::Directory;
use sheaf_core::files::Timestamp;
use sheaf_core::{Errno, lock};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// How many are replaced by one command; each has the directory that it is in open. The next command
/// replaces more.
pub(super) const REPLACED_MAX: usize = 256;

/// By what a file is known again: its inode, and its times.
pub(super) type FileStamp = (u64, u64, Timestamp);

pub(super) fn stamp_of(of: &MemberAttributes) -> FileStamp {
    (of.ino, of.ctime_ns, of.mtime)
}

/// A directory that is archived as a file.
pub(super) struct Replacement {
    pub above: Arc<OwnedFd>,
    pub name: OsString,
    /// What it is called where something is told.
    pub path: PathBuf,
    pub to: ArchivePath,
    pub place: TaskPlace,
    /// The file.
    pub was: FileStamp,
}

/// Those that were found.
#[derive(Default)]
pub(super) struct Replacements(Mutex<Vec<Replacement>>);

impl Replacements {
    /// Whether it was taken.
    pub fn push(&self, replacement: Replacement) -> bool {
        let mut all = lock(&self.0);
        let has_room = all.len() < REPLACED_MAX;
        if has_room {
            all.push(replacement);
        }
        has_room
    }

    pub fn take(&self) -> Vec<Replacement> {
        std::mem::take(&mut lock(&self.0))
    }
}

impl Replacement {
    fn from(&self) -> Directory {
        Directory::within(self.above.clone(), &self.name)
    }

    /// Takes the archived file away, if this can be read and that is the one which was found. Whether it is
    /// to be stored then; else why not, or that it is gone.
    ///
    /// # Errors
    /// When the archive cannot be read or written.
    pub fn make_room(&self, archive: &Archive) -> Result<Result<bool, ArchiveError>, ArchiveError> {
        // Before the file is removed: a directory that cannot be read does not replace it.
        match self.from().open() {
            Ok(_) => {}
            // It was taken away since.
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(Ok(false)),
            Err(errno) => return Ok(Err(file_error(&self.path, "cannot be read", errno))),
        }
        make_room(archive, &self.to, self.was)
    }
}

/// Takes an archived file away, if it is the one that was found. Whether there is room then; else why not.
///
/// # Errors
/// When the archive cannot be read or written.
pub(super) fn make_room(
    archive: &Archive,
    to: &ArchivePath,
    was: FileStamp,
) -> Result<Result<bool, ArchiveError>, ArchiveError> {
    let found = match archive.look_up(to)? {
        // Another writer made room since then.
        None | Some(ArchivedFile::Directory(_)) => return Ok(Ok(true)),
        Some(ArchivedFile::Member { member, .. }) => stamp_of(&member.attributes),
        Some(ArchivedFile::Object(object)) => stamp_of(&object.attributes),
    };
    // Another file was archived under the name since then: only the one that was found may go.
    let Some((above, name)) = to.split().filter(|_| found == was) else {
        return Ok(Err(ArchiveError::InTheWay { path: to.clone(), what: "a file" }));
    };
    remove_files(archive, &above, &[name.to_vec()])?;
    Ok(Ok(true))
}

impl SaveShared<'_> {
    /// Stores a directory that there is room for now.
    pub fn begin_again<'a>(&'a self, of: &Replacement, pool: &SavePool<'a>) {
        let (path, to, place) = (of.path.clone(), of.to.clone(), of.place.clone());
        pool.push(
            None,
            SaveWork { from: of.from(), path, to, above: None, is_source: true, place },
        );
    }
}
