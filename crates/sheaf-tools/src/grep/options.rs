//! What to search for and what to say of it.
use super::{Engine, GrepError, PathFilter};
use crate::entry::{AnswerForm, Entry, EntryKind, Merged};
use serde::{Deserialize, Serialize};

/// The longest line, with its context, that is searched if nothing else is said.
pub const LINE_BYTES_MAX: u64 = 32 << 20;

/// What is said of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum GrepOutput {
    /// The selected lines, with their context.
    #[default]
    Lines,
    /// The parts of them that match (`-o`).
    Parts,
    /// How many lines are selected (`-c`).
    Count,
    /// Its path, if any line is selected (`-l`).
    PathsWith,
    /// Its path, if no line is selected (`-L`).
    PathsWithout,
    /// Nothing; one selected line ends the search on the host (`-q`).
    Quiet,
}

/// Everything a leaf must know to search. The default selects nothing, having no pattern.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrepOptions {
    /// A line is selected when any of these matches. A newline within one separates two patterns.
    pub patterns: Vec<String>,
    /// Patterns are plain text (`-F`).
    pub fixed: bool,
    /// Only whole words match (`-w`).
    pub word: bool,
    /// Only whole lines match (`-x`).
    pub line: bool,
    /// Letters match in both cases (`-i`).
    pub ignore_case: bool,
    /// As `ignore_case`, if no pattern has an upper-case letter (`-S`).
    pub smart_case: bool,
    /// Select the lines that do not match (`-v`).
    pub invert: bool,
    /// What is said.
    pub output: GrepOutput,
    /// Stop reading a file after so many selected lines (`-m`).
    pub lines_max: Option<u64>,
    /// The longest line, with its context; a longer one fails with `EMSGSIZE`. `None`:
    /// [`LINE_BYTES_MAX`].
    pub line_bytes_max: Option<u64>,
    /// Line numbers are part of what is said (`-n`).
    pub number: bool,
    /// Context lines before a selected line (`-B`).
    pub before: u32,
    /// Context lines after a selected line (`-A`).
    pub after: u32,
    /// Binary files are text (`-a`).
    pub text: bool,
    /// Look into gzip, zstd, xz and bzip2 files (`-z`).
    pub decompress: bool,
    /// Descend into directories (`-r`).
    pub recursive: bool,
    /// Follow symbolic links come across below directories (`-R`).
    pub follow: bool,
    /// Of the files found by descending, only those with such a name.
    pub include: Vec<String>,
    /// Of the files found by descending, none with such a name.
    pub exclude: Vec<String>,
    /// Replace what only tells hosts apart (addresses, times, numbers …) before lines are
    /// compared.
    pub template: bool,
    /// Keep a line as often as a file has it (`--each`).
    pub each: bool,
    /// Count files, lines and bytes (`--stats`).
    pub stats: bool,
}

impl GrepOptions {
    /// The engine for these options.
    ///
    /// # Errors
    /// When a pattern or a glob is malformed, naming the place, or too large.
    pub fn compile(&self) -> Result<Engine, GrepError> {
        Engine::new(self)
    }

    /// Whether any line was selected, as far as this part of the answer tells.
    #[must_use]
    pub fn has_selected(&self, merged: &Merged) -> bool {
        let in_files = || merged.stats().is_some_and(|stats| stats.files_matched > 0);
        match self.output {
            // What is listed are the files without such lines.
            GrepOutput::PathsWithout => in_files(),
            // An empty match selects a line, and has no text.
            GrepOutput::Parts => merged.has_selected() || in_files(),
            _ => merged.has_selected(),
        }
    }

    /// Whether this can be in the answer of a host: what is shown as it comes must be what it is taken for.
    pub(crate) fn may_say(&self, entry: &Entry<'_>) -> bool {
        let is_line = !entry.text.contains(&b'\n');
        match (entry.kind, self.output) {
            (EntryKind::Line, GrepOutput::Lines) | (EntryKind::Part, GrepOutput::Parts) => is_line,
            (EntryKind::Block, GrepOutput::Lines) => self.before > 0 || self.after > 0,
            (EntryKind::Count, GrepOutput::Count) => {
                (1..=20).contains(&entry.text.len()) && entry.text.iter().all(u8::is_ascii_digit)
            }
            (EntryKind::Path, output) => {
                let is_shown = !matches!(output, GrepOutput::Lines | GrepOutput::Parts);
                (is_shown || self.is_silent()) && entry.text.is_empty()
            }
            (EntryKind::Binary, _) => entry.text.is_empty(),
            _ => false,
        }
    }

    /// Which files below a directory are searched.
    ///
    /// # Errors
    /// When a glob is malformed.
    pub fn path_filter(&self) -> Result<PathFilter, GrepError> {
        PathFilter::new(&self.include, &self.exclude)
    }

    /// The form in which a leaf writes its answer. The files that were searched are always counted:
    /// they are the members that succeeded.
    #[must_use]
    pub fn answer_form(&self) -> AnswerForm {
        AnswerForm { ordered: self.each, stats: true }
    }

    /// Whether nothing is to be printed and only the exit status tells: `-q`, and `-o` with `-v`,
    /// because a line that does not match has no part that does.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.output == GrepOutput::Quiet || (self.output == GrepOutput::Parts && self.invert)
    }

    /// Whether selected lines come in blocks with their context.
    #[must_use]
    pub fn has_context(&self) -> bool {
        self.output == GrepOutput::Lines && (self.before > 0 || self.after > 0)
    }
}
