//! What a tool says on one host, in units that can be folded over hosts.
//!
//! A leaf writes its whole answer into an [`Answer`] (through the [`Sink`] trait): paths, and the
//! [`Entry`]s found at each. The bytes are canonical: leaves that found the same have the same
//! bytes, so that they are one digest class and only one body crosses the tree. Inner nodes and
//! the root fold answers in a [`Merged`], where equal entries of different leaves become one entry
//! with a set of leaves.
use sheaf_core::Errno;
use sheaf_core::varint::{self, Malformed};
use std::ops::ControlFlow;

mod answer;
mod merge;
mod wire;

pub use answer::{ANSWER_BYTES_MAX, Answer, AnswerForm};
pub use merge::{MERGED_BYTES_MAX, MergeError, Merged, MergedEntry, MergedError};

/// What an entry is. Part of its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[non_exhaustive]
pub enum EntryKind {
    /// One line: a matching line, or a line of any other tool's output.
    Line = 1,
    /// Part of a line (`grep -o`).
    Part = 2,
    /// Adjacent lines with their context; every line is marked (see [`block_lines`]).
    Block = 3,
    /// The text is a number of lines (`grep -c`).
    Count = 4,
    /// The path itself is what there is to say (`grep -l`); the text is empty.
    Path = 5,
    /// A binary file has a match; the text is empty.
    Binary = 6,
    /// The path failed; the number is the errno. The text is the member that has failed with it, if
    /// the path is not what was named, but lies beneath it.
    Error = 7,
}

impl EntryKind {
    fn from_bits(bits: u8) -> Option<Self> {
        Some(match bits {
            1 => Self::Line,
            2 => Self::Part,
            3 => Self::Block,
            4 => Self::Count,
            5 => Self::Path,
            6 => Self::Binary,
            7 => Self::Error,
            _ => return None,
        })
    }
}

/// One unit of a tool's answer at the path that was named last.
///
/// Two entries are the same when path, kind, number and text are; how often and in which order a
/// host has them only decides where they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// What it is.
    pub kind: EntryKind,
    /// A line number that is part of the identity (`-n`); of a block, that of its first line.
    pub number: Option<u64>,
    /// The text without its line terminator.
    pub text: &'a [u8],
}

impl<'a> Entry<'a> {
    /// An entry without a number.
    #[must_use]
    pub const fn new(kind: EntryKind, text: &'a [u8]) -> Self {
        Self { kind, number: None, text }
    }
}

/// Takes what a tool finds on one host.
pub trait Sink {
    /// The entries that follow are of this path. Cheap for a path that turns out to have none.
    fn path(&mut self, path: &[u8]);

    /// Takes one entry. [`ControlFlow::Break`] asks the tool to stop altogether.
    fn entry(&mut self, entry: Entry<'_>) -> ControlFlow<()>;

    /// The path could not be read. The entries that follow are of this path.
    fn error(&mut self, path: &[u8], errno: Errno);

    /// Adds to the sums that are kept beside the entries.
    fn stats(&mut self, stats: EntryStats);
}

/// Sums over members, files and hosts, kept only when they are asked for (they tell hosts apart).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryStats {
    /// Paths that were named, of which nothing failed.
    pub members: u64,
    /// Files searched.
    pub files: u64,
    /// Files with at least one selected line.
    pub files_matched: u64,
    /// Selected lines.
    pub lines: u64,
    /// Bytes read, after decompression.
    pub bytes: u64,
}

impl EntryStats {
    /// Adds `other`, `times` times. Sums stop at the largest number instead of wrapping.
    pub fn add(&mut self, other: Self, times: u64) {
        let add = |have: u64, more: u64| have.saturating_add(more.saturating_mul(times));
        self.members = add(self.members, other.members);
        self.files = add(self.files, other.files);
        self.files_matched = add(self.files_matched, other.files_matched);
        self.lines = add(self.lines, other.lines);
        self.bytes = add(self.bytes, other.bytes);
    }

    fn encode(self, out: &mut Vec<u8>) {
        for number in [self.members, self.files, self.files_matched, self.lines, self.bytes] {
            varint::put(out, number);
        }
    }

    fn decode(input: &mut &[u8]) -> Result<Self, Malformed> {
        Ok(Self {
            members: varint::get(input)?,
            files: varint::get(input)?,
            files_matched: varint::get(input)?,
            lines: varint::get(input)?,
            bytes: varint::get(input)?,
        })
    }
}

/// The mark in front of a selected line of a [`EntryKind::Block`].
pub const BLOCK_SELECTED: u8 = b':';
/// The mark in front of a context line of a [`EntryKind::Block`].
pub const BLOCK_CONTEXT: u8 = b'-';

/// The lines of a block's text: whether each was selected (or is context), and its text.
///
/// ```
/// use sheaf_group::entry::block_lines;
/// let lines: Vec<_> = block_lines(b"-before\n:match").collect();
/// assert_eq!(lines, [(false, &b"before"[..]), (true, &b"match"[..])]);
/// ```
pub fn block_lines(text: &[u8]) -> impl Iterator<Item = (bool, &[u8])> {
    text.split(|&byte| byte == b'\n').map(|line| match line.split_first() {
        Some((&mark, rest)) => (mark == BLOCK_SELECTED, rest),
        None => (false, line),
    })
}
