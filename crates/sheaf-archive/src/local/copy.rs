//! Trees of this machine copied by many at once.
//!
//! One thread walks the source and makes directories, in the order of the tree; others copy the files of
//! a directory, some at a time, by the descriptors of both directories. A directory gets its mode and
//! times when all that is in it is there. No link below what is named is followed, on either side.
mod attributes;
mod content;
mod file;
mod pool;
mod target;
mod tree;

use crate::archive::ArchiveError;
use crate::left::{LeftAttributes, LeftTold, is_failure};
use file::FileCopier;
use serde::{Deserialize, Serialize};
use sheaf_core::{Errno, lock};
use std::ffi::OsString;
use std::ops::AddAssign;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use target::CopyTarget;

/// What a copy keeps of a file beside its content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LocalCopyKeep {
    /// Nothing: it is a new file, with the mode as far as new files have it (`cp -r`).
    #[default]
    Nothing,
    /// Mode, access control list, owner and times (`cp -p`).
    Attributes,
    /// All, extended attributes and names of one file among it (`cp -a`).
    All,
}

/// How to copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalCopyOptions {
    /// Directories with all that is in them, too. Without it a link that is named is followed.
    pub recursive: bool,
    /// What is kept.
    pub keep: LocalCopyKeep,
    /// What is there stays as it is.
    pub no_clobber: bool,
    /// What is there stays as it is, if it is not older.
    pub update: bool,
    /// A link that is named is copied itself, also without `recursive`.
    pub no_dereference: bool,
    /// Names of one file are so in the copy, whatever else is kept.
    pub links: bool,
    /// What cannot be written into is replaced.
    pub force: bool,
    /// The target must be a directory.
    pub into_directory: bool,
    /// Each file and new directory is told.
    pub tells_names: bool,
    /// The target is the new name, also where it is a directory.
    pub no_target_directory: bool,
    /// Nothing is copied; it is only found out what would be.
    pub dry_run: bool,
}

impl LocalCopyOptions {
    /// Whether a link that is named is followed.
    #[must_use]
    pub fn follows_named(&self) -> bool {
        !self.recursive && !self.no_dereference
    }

    /// Whether names of one file are so in the copy.
    fn keeps_links(&self) -> bool {
        self.links || self.keep == LocalCopyKeep::All
    }
}

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalCopyReport {
    /// What is no directory, each name of it.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Bytes of contents, without holes.
    pub bytes: u64,
    /// Names that were there, and stay.
    pub skipped: u64,
    /// Attributes that could not be kept.
    pub attributes_left: u64,
    /// What could not be copied.
    pub failed: u64,
}

/// Hosts report what they like: a sum stays at the most that can be counted.
impl AddAssign for LocalCopyReport {
    fn add_assign(&mut self, other: Self) {
        self.files = self.files.saturating_add(other.files);
        self.directories = self.directories.saturating_add(other.directories);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.skipped = self.skipped.saturating_add(other.skipped);
        self.attributes_left = self.attributes_left.saturating_add(other.attributes_left);
        self.failed = self.failed.saturating_add(other.failed);
    }
}

/// What is told of a copy.
#[derive(Debug)]
pub enum LocalCopyEvent<'a> {
    /// One of the sources is begun.
    Begin {
        /// Its path.
        from: &'a Path,
        /// What it becomes.
        to: &'a Path,
    },
    /// A file is copied, or a directory is made.
    Copied {
        /// Its path.
        from: &'a Path,
        /// What it has become.
        to: &'a Path,
    },
    /// Something was not copied, or not with all that it has.
    Failed(ArchiveError),
    /// An extended attribute of a file could not be kept. Of other files this is only counted.
    AttributeLeft {
        /// The copy.
        path: PathBuf,
        /// The attribute.
        name: Vec<u8>,
        /// Why not. It is no failure where the file system has none, or where the user may not set it.
        errno: Errno,
    },
}

/// Who is told.
pub type LocalCopyTold<'a> = &'a (dyn Fn(LocalCopyEvent<'_>) + Sync);

/// Copies files, and directories with all that is in them, into a directory, or one of them to a new
/// name. What cannot be copied is told, and the rest is.
///
/// # Errors
/// When several are to go to what is no directory.
pub fn copy_local(
    sources: &[PathBuf],
    to: &Path,
    options: LocalCopyOptions,
    told: LocalCopyTold<'_>,
) -> Result<LocalCopyReport, ArchiveError> {
    let shared = CopyShared::new(options, told);
    let target = CopyTarget::new(to, options.no_target_directory);
    if !target.is_directory() && (sources.len() > 1 || options.into_directory) {
        let several = "several go there, and it must be a directory";
        let doing = if options.into_directory { "must be a directory" } else { several };
        let path = to.to_owned();
        return Err(ArchiveError::File { path, doing, errno: Errno::NOTDIR });
    }
    tree::copy_all(&shared, sources, &target);
    Ok(*lock(&shared.report))
}

/// What all who copy have in common.
struct CopyShared<'a> {
    options: LocalCopyOptions,
    told: LocalCopyTold<'a>,
    report: Mutex<LocalCopyReport>,
    attributes_told: LeftTold,
    files: FileCopier,
}

impl<'a> CopyShared<'a> {
    fn new(options: LocalCopyOptions, told: LocalCopyTold<'a>) -> Self {
        let (report, attributes_told) = Default::default();
        Self { options, told, report, attributes_told, files: FileCopier::new(options) }
    }

    /// These attributes of a file could not be kept. Of each the first is told.
    fn attributes_left(&self, path: Vec<u8>, left: LeftAttributes) {
        let path = PathBuf::from(OsString::from_vec(path));
        let failed = u64::from(left.iter().any(|(_, errno)| is_failure(*errno)));
        let attributes_left = left.len() as u64;
        self.add(&LocalCopyReport { attributes_left, failed, ..LocalCopyReport::default() });
        for (name, errno) in self.attributes_told.first(left) {
            (self.told)(LocalCopyEvent::AttributeLeft { path: path.clone(), name, errno });
        }
    }

    /// Something is not copied.
    fn failed(&self, path: Vec<u8>, doing: &'static str, errno: Errno) {
        let path = PathBuf::from(OsString::from_vec(path));
        lock(&self.report).failed += 1;
        (self.told)(LocalCopyEvent::Failed(ArchiveError::File { path, doing, errno }));
    }

    fn add(&self, done: &LocalCopyReport) {
        *lock(&self.report) += *done;
    }
}
