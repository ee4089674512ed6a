//! What is fetched, and what is not, by its name.
use crate::path::ArchivePath;
use crate::save::SaveExclude;
use sheaf_core::lock;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Mutex;

/// Which names of a directory are fetched: those that fit one of `include`, where there are any, and none
/// of `exclude`. A directory that fits counts for all that is in it.
#[derive(Clone, Debug, Default)]
pub struct FetchNames {
    /// What is fetched alone; all where there is no pattern.
    pub include: SaveExclude,
    /// What is left out.
    pub exclude: SaveExclude,
}

/// What is left out of what is below an archived directory.
#[derive(Debug, Default)]
pub(crate) struct FetchExclude {
    names: FetchNames,
    /// Names of the directory's path.
    depth: usize,
    /// Of what is fetched alone: the directories that something goes into, by their hashes.
    used: Mutex<HashSet<u64>>,
}

impl FetchExclude {
    /// By the depth of the path of what is fetched.
    pub fn new(names: FetchNames, depth: usize) -> Self {
        Self { names, depth, used: Mutex::default() }
    }

    /// Whether nothing is left out.
    pub fn is_empty(&self) -> bool {
        self.names.exclude.is_empty() && self.names.include.is_empty()
    }

    /// Whether only what fits is fetched, so that a directory is made where something goes into it.
    pub fn is_of_some(&self) -> bool {
        !self.names.include.is_empty()
    }

    /// Whether a file is left out by its path; the directories that it is in were looked at.
    pub fn fits_file(&self, path: &ArchivePath) -> bool {
        self.fits(&self.names.exclude, path, false) || !self.is_included(path, false)
    }

    /// Whether a directory is left out, with all that is in it.
    pub fn fits_directory(&self, path: &ArchivePath) -> bool {
        !self.names.exclude.is_empty() && self.fits_within(&self.names.exclude, path, true)
    }

    /// Whether a file or directory is left out by its path, or by that of a directory that it is in. A
    /// directory is not left out by what is fetched alone: something in it may be.
    pub fn fits_walked(&self, path: &ArchivePath, is_directory: bool) -> bool {
        let is_excluded = !self.names.exclude.is_empty()
            && self.fits_within(&self.names.exclude, path, is_directory);
        is_excluded || !is_directory && !self.is_included(path, false)
    }

    /// Whether a file or directory is among what is fetched alone; all is where nothing is said.
    pub fn is_included(&self, path: &ArchivePath, is_directory: bool) -> bool {
        !self.is_of_some() || self.fits_within(&self.names.include, path, is_directory)
    }

    /// Something goes into a directory: acts on it and those above it that are new here, from the top on.
    pub fn uses(&self, path: &ArchivePath, mut act: impl FnMut(&ArchivePath)) {
        let mut used = lock(&self.used);
        let (mut new, mut next) = (Vec::new(), Some(path.clone()));
        while let Some(path) = next.take_if(|path| path.depth() >= self.depth) {
            if !used.insert(hash_of(&path)) {
                break;
            }
            next = path.split().map(|(above, _)| above);
            new.push(path);
        }
        // The lock is held: who finds a directory used finds it made.
        new.iter().rev().for_each(&mut act);
    }

    /// Nothing goes into any directory yet.
    pub fn begin_again(&self) {
        lock(&self.used).clear();
    }

    /// Whether something went into a directory.
    pub fn is_used(&self, path: &ArchivePath) -> bool {
        !self.is_of_some() || lock(&self.used).contains(&hash_of(path))
    }

    /// Whether something fits by its path, or by that of a directory that it is in.
    fn fits_within(&self, patterns: &SaveExclude, path: &ArchivePath, is_directory: bool) -> bool {
        let (mut path, mut is_directory) = (path.clone(), is_directory);
        while path.depth() >= self.depth {
            if self.fits(patterns, &path, is_directory) {
                return true;
            }
            let Some((above, _)) = path.split() else { break };
            (path, is_directory) = (above, true);
        }
        false
    }

    fn fits(&self, patterns: &SaveExclude, path: &ArchivePath, is_directory: bool) -> bool {
        let Some((_, name)) = path.split() else { return false };
        let whole = || PathBuf::from(OsStr::from_bytes(&path.as_bytes()));
        let below = path.depth().saturating_sub(self.depth);
        patterns.fits(OsStr::from_bytes(name), is_directory, whole, below)
    }
}

fn hash_of(path: &ArchivePath) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    hasher.finish()
}
