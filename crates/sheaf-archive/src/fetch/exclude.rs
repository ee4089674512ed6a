//! What is not fetched, by its name.
use crate::path::ArchivePath;
use crate::save::SaveExclude;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// What is left out of what is below an archived directory.
#[derive(Debug, Default)]
pub(super) struct FetchExclude {
    patterns: SaveExclude,
    /// Names of the directory's path.
    depth: usize,
}

impl FetchExclude {
    /// By the depth of the path of what is fetched.
    pub fn new(patterns: SaveExclude, depth: usize) -> Self {
        Self { patterns, depth }
    }

    /// Whether nothing is left out.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Whether a file is left out by its path; the directories that it is in were looked at.
    pub fn fits_file(&self, path: &ArchivePath) -> bool {
        self.fits(path, false)
    }

    /// Whether a directory is left out, with all that is in it.
    pub fn fits_directory(&self, path: &ArchivePath) -> bool {
        let mut path = path.clone();
        while !self.patterns.is_empty() && path.depth() >= self.depth {
            if self.fits(&path, true) {
                return true;
            }
            let Some((above, _)) = path.split() else { break };
            path = above;
        }
        false
    }

    /// Whether a file or directory is left out by its path, or by that of a directory that it is in.
    pub fn fits_walked(&self, path: &ArchivePath, is_directory: bool) -> bool {
        let above = || path.split().is_some_and(|(above, _)| self.fits_directory(&above));
        !self.patterns.is_empty() && (self.fits(path, is_directory) || above())
    }

    fn fits(&self, path: &ArchivePath, is_directory: bool) -> bool {
        let Some((_, name)) = path.split() else { return false };
        let whole = || PathBuf::from(OsStr::from_bytes(&path.as_bytes()));
        let below = path.depth().saturating_sub(self.depth);
        self.patterns.fits(OsStr::from_bytes(name), is_directory, whole, below)
    }
}
