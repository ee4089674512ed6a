//! Searching what is archived, and files of this machine, for lines, as GNU grep does.
//!
//! A pack is read as a whole, in one go, and looked through for a text that each line which matches must
//! have, names and index and all; only where one is found are its members looked at, and of those only the
//! ones that have it. Packs and files are searched by several workers. What they find is shown in serial
//! tree order.
//!
//! PSI, section 8.6: an aggregate has data and names in one place, so a search reads it in one go.
mod classes;
mod engine;
mod literal;
mod local;
mod order;
mod pattern;
mod perl;
mod words;
mod worker;

use crate::archive::{Archive, ArchiveError};
use crate::path::ArchivePath;
use engine::GrepMatcher;
use serde::{Deserialize, Serialize};
use sheaf_file::TextPattern;
use std::path::PathBuf;

pub(crate) use pattern::whole as whole_pattern;

/// How patterns are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum GrepSyntax {
    /// Basic regular expressions (`-G`).
    #[default]
    Basic,
    /// Extended ones (`-E`).
    Extended,
    /// Plain text (`-F`).
    Fixed,
    /// Perl's, without what looks around or back (`-P`).
    Perl,
}

/// What is shown of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ArchiveGrepOutput {
    /// The selected lines.
    #[default]
    Lines,
    /// The parts of them that match (`-o`).
    Parts,
    /// How many lines are selected (`-c`).
    Count,
    /// Its name, if a line is selected (`-l`).
    PathsWith,
    /// Its name, if none is (`-L`).
    PathsWithout,
    /// Nothing; the first selected line is the end (`-q`).
    Quiet,
}

/// What is done with files that are no text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum GrepBinary {
    /// Instead of its lines it is said that they match.
    #[default]
    Said,
    /// They are shown as if they were text (`-a`).
    Text,
    /// They are left out (`-I`).
    Without,
}

/// What to search for, and how it is shown. The default selects nothing, having no pattern.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ArchiveGrepOptions {
    /// A line is selected when any of these matches; a newline separates two.
    pub patterns: Vec<Vec<u8>>,
    /// How they are written.
    pub syntax: GrepSyntax,
    /// Letters match in both cases (`-i`).
    pub ignore_case: bool,
    /// Only whole words match (`-w`).
    pub word: bool,
    /// Only whole lines match (`-x`).
    pub line: bool,
    /// Select the lines that do not match (`-v`).
    pub invert: bool,
    /// What is shown.
    pub output: ArchiveGrepOutput,
    /// Leave a file after so many selected lines (`-m`).
    pub lines_max: Option<u64>,
    /// Lines are shown with their names (`-H`).
    pub names: bool,
    /// Lines are shown with their numbers (`-n`).
    pub number: bool,
    /// Lines that are shown before a selected one (`-B`).
    pub before: Option<u32>,
    /// Lines that are shown behind a selected one (`-A`).
    pub after: Option<u32>,
    /// What is done with files that are no text.
    pub binary: GrepBinary,
    /// Names end with a NUL (`-Z`).
    pub nul: bool,
    /// Matches, names and numbers are coloured, in GNU grep's own colours.
    pub color: bool,
    /// Names are for a terminal: what it would take for a command is escaped.
    pub escape_names: bool,
    /// Text is UTF-8; else each byte is a character, as in the C locale.
    pub is_utf8: bool,
    /// Only files of which one of these fits the name (`--include`).
    pub include: Vec<String>,
    /// No files of which one of these fits the name (`--exclude`).
    pub exclude: Vec<String>,
    /// Directories of which one of these fits the name are not gone into (`--exclude-dir`).
    pub exclude_directories: Vec<String>,
    /// Device and inode of a file that what is found is written to: its own lines are not searched.
    pub output_file: Option<(u64, u64)>,
    /// How many search at once.
    pub workers: usize,
}

/// Where to search.
#[derive(Clone)]
pub enum GrepPlace<'a> {
    /// A file of an archive, or a directory with all that is below it.
    Archived(&'a Archive, ArchivePath),
    /// The same, and this is shown before each path.
    ArchivedAs(&'a Archive, ArchivePath, Vec<u8>),
    /// The same of this machine. A link that is named is followed, and none below.
    Local(PathBuf),
    /// The same, and it is shown as if it had the second path.
    LocalAs(PathBuf, Vec<u8>),
}

/// What is wrong with a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ArchiveGrepError(String);

/// What is told while it is searched, in the order of the tree.
#[derive(Debug)]
#[non_exhaustive]
pub enum GrepEvent<'a> {
    /// Lines, as they are to be shown.
    Output(&'a [u8]),
    /// A file is no text, and lines in it are selected.
    Binary(&'a [u8]),
    /// A file or a pack could not be searched.
    Failed(ArchiveError),
}

/// A search, ready to be done.
pub struct ArchiveGrep {
    options: ArchiveGrepOptions,
    matcher: GrepMatcher,
    include: Vec<TextPattern>,
    exclude: Vec<TextPattern>,
    exclude_directories: Vec<TextPattern>,
}

impl ArchiveGrep {
    /// A search for these patterns.
    ///
    /// # Errors
    /// When a pattern is wrong.
    pub fn new(options: ArchiveGrepOptions) -> Result<Self, ArchiveGrepError> {
        let matcher = GrepMatcher::new(&options)?;
        let globs = |globs: &[String]| -> Vec<TextPattern> {
            globs.iter().map(|glob| TextPattern::new(glob, false)).collect()
        };
        let (include, exclude) = (globs(&options.include), globs(&options.exclude));
        let exclude_directories = globs(&options.exclude_directories);
        Ok(Self { options, matcher, include, exclude, exclude_directories })
    }

    /// Searches files, and directories with all that is below them, one place after the other. Whether
    /// any line is selected.
    ///
    /// # Errors
    /// When the catalog cannot be read, and what `each` returns. A file that cannot be searched is told.
    pub fn search<E: From<ArchiveError>>(
        &self,
        places: &[GrepPlace<'_>],
        each: &mut dyn FnMut(GrepEvent<'_>) -> Result<(), E>,
    ) -> Result<bool, E> {
        order::search(self, places, each)
    }

    /// Whether a file of this name is searched.
    fn wants(&self, name: &[u8]) -> bool {
        (self.include.is_empty() || fits(&self.include, name)) && !fits(&self.exclude, name)
    }
}

fn fits(globs: &[TextPattern], name: &[u8]) -> bool {
    globs.iter().any(|glob| glob.matches(name))
}
