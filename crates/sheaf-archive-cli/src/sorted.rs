//! The names of a directory in another order than that of names: by time or size, or backwards.
use super::entry::ShownFile;
use anyhow::Result;
use std::cmp::Reverse;
use std::io::Write;
use std::ops::Range;

/// By what the names of a directory are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EntryOrder {
    #[default]
    Names,
    /// The newest first.
    Times,
    /// The largest first.
    Sizes,
}

/// How they are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntrySort {
    pub by: EntryOrder,
    pub is_reverse: bool,
}

impl EntrySort {
    /// Whether they are shown as they come.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }

    fn key(self, shown: &ShownFile<'_>) -> i128 {
        match self.by {
            EntryOrder::Names => 0,
            EntryOrder::Times => {
                let (seconds, nanoseconds) = shown.time;
                i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds)
            }
            EntryOrder::Sizes => shown.size.into(),
        }
    }
}

/// Lines of a directory that wait until it is read to its end; they came in the order of names.
#[derive(Default)]
pub struct SortedEntries {
    lines: Vec<(i128, Range<usize>)>,
    text: Vec<u8>,
}

impl SortedEntries {
    /// Has what is behind `from` in a text be the line of a file.
    pub fn add(&mut self, sort: EntrySort, shown: &ShownFile<'_>, text: &[u8]) {
        let from = self.text.len();
        self.text.extend_from_slice(text);
        self.lines.push((sort.key(shown), from..self.text.len()));
    }

    /// Has the lines of others, too.
    pub fn append(&mut self, others: &Self) {
        let from = self.text.len();
        self.text.extend_from_slice(&others.text);
        let lines = others.lines.iter();
        self.lines.extend(lines.map(|(key, at)| (*key, from + at.start..from + at.end)));
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.text.capacity() + self.lines.capacity() * size_of::<(i128, Range<usize>)>()
    }

    /// Writes them in their order, and has none any more.
    pub fn write(&mut self, sort: EntrySort, to: &mut dyn Write) -> Result<()> {
        self.lines.sort_by_key(|(key, _)| Reverse(*key));
        if sort.is_reverse {
            self.lines.reverse();
        }
        for (_, at) in self.lines.drain(..) {
            to.write_all(&self.text[at])?;
        }
        self.text.clear();
        Ok(())
    }
}
