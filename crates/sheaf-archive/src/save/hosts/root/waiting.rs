//! Directories that nobody has in hand: the last one found comes first.
//!
//! A walk in this order has the directories beside its way in memory. Those that were found in one directory
//! are kept as names alone, and what one host finds has a bound: else it would be memory without end.
use crate::path::ArchivePath;
use crate::save::{SaveReport, SavedDirectory};
use std::sync::Arc;

/// What waits takes so much in memory at most, of all hosts.
const BYTES_MAX: usize = 1 << 30;
/// What one host may always have.
const BYTES_MIN: usize = 8 << 20;
/// What a directory takes beside its names.
const ENTRY_BYTES: usize = size_of::<Waiting>();

/// A directory that nobody has in hand.
pub(super) struct WaitingDirectory {
    pub source: u32,
    pub path: ArchivePath,
    pub files: Option<Vec<u32>>,
    pub to: ArchivePath,
    pub above: Option<Arc<SavedDirectory>>,
    /// What is known of it by one that has begun it and was lost.
    pub is: Option<Arc<SavedDirectory>>,
    /// The last directory that was found in it.
    pub found: Vec<u8>,
    /// What was stored of it and committed.
    pub kept: SaveReport,
}

impl WaitingDirectory {
    pub fn new(
        source: u32,
        path: ArchivePath,
        to: ArchivePath,
        above: Option<Arc<SavedDirectory>>,
    ) -> Self {
        let (found, kept) = (Vec::new(), SaveReport::default());
        Self { source, path, files: None, to, above, is: None, found, kept }
    }

    /// A directory that was found in this one.
    pub fn below(&self, name: &[u8]) -> Self {
        Self::new(self.source, self.path.join(name), self.to.join(name), self.is.clone())
    }

    fn bytes(&self) -> usize {
        let paths = self.path.key().len() + self.to.key().len();
        ENTRY_BYTES + size_of::<Self>() + paths + self.found.len()
    }
}

enum Waiting {
    One(Box<WaitingDirectory>),
    /// Directories of one, which has the number `id`.
    Within {
        id: u64,
        of: Box<WaitingDirectory>,
        names: Vec<u8>,
    },
}

/// What waits.
#[derive(Default)]
pub(super) struct WaitingDirectories {
    entries: Vec<Waiting>,
    count: usize,
    bytes: usize,
}

impl WaitingDirectories {
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn push(&mut self, directory: WaitingDirectory) {
        self.count += 1;
        self.bytes += directory.bytes();
        self.entries.push(Waiting::One(Box::new(directory)));
    }

    /// A directory was found in one that has the number `id`. It is not kept where this one and what waits
    /// would be more than `pools` hosts may have; whether it is.
    #[must_use]
    pub fn push_below(
        &mut self,
        id: u64,
        above: &WaitingDirectory,
        name: &[u8],
        pools: usize,
    ) -> bool {
        if self.bytes + name.len() >= (BYTES_MAX / pools.max(1)).max(BYTES_MIN) {
            return false;
        }
        self.count += 1;
        self.bytes += name.len() + 1;
        match self.entries.last_mut() {
            Some(Waiting::Within { id: last, names, .. }) if *last == id => put(names, name),
            _ => {
                let (path, to) = (above.path.clone(), above.to.clone());
                let of = WaitingDirectory::new(above.source, path, to, None);
                let of = Box::new(WaitingDirectory { is: above.is.clone(), ..of });
                self.bytes += of.bytes();
                let mut names = Vec::new();
                put(&mut names, name);
                self.entries.push(Waiting::Within { id, of, names });
            }
        }
        true
    }

    /// The last one.
    pub fn pop(&mut self) -> Option<WaitingDirectory> {
        if let Some(Waiting::Within { of, names, .. }) = self.entries.last_mut()
            && let Some(name) = pop(names)
        {
            let directory = of.below(&name);
            self.count -= 1;
            self.bytes -= name.len() + 1;
            if names.is_empty() {
                self.bytes -= of.bytes();
                self.entries.pop();
            }
            return Some(directory);
        }
        let Waiting::One(directory) = self.entries.pop()? else { return None };
        self.count -= 1;
        self.bytes -= directory.bytes();
        Some(*directory)
    }

    /// Nothing waits any more: how much has waited, and what was stored of it.
    pub fn take(&mut self) -> (usize, SaveReport) {
        let Self { entries, count, .. } = std::mem::take(self);
        let kept = entries.iter().fold(SaveReport::default(), |kept, entry| match entry {
            Waiting::One(directory) => kept + directory.kept,
            Waiting::Within { .. } => kept,
        });
        (count, kept)
    }
}

/// Names have no NUL, so one is behind each.
fn put(names: &mut Vec<u8>, name: &[u8]) {
    names.extend_from_slice(name);
    names.push(0);
}

fn pop(names: &mut Vec<u8>) -> Option<Vec<u8>> {
    let end = names.len().checked_sub(1)?;
    let from = names[..end].iter().rposition(|&byte| byte == 0).map_or(0, |at| at + 1);
    let name = names[from..end].to_vec();
    names.truncate(from);
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(name: &[u8]) -> WaitingDirectory {
        let to = ArchivePath::ROOT.join(b"n1").join(name);
        WaitingDirectory::new(1, ArchivePath::ROOT.join(name), to, None)
    }

    #[test]
    fn last_found_comes_first_and_all_is_counted() {
        let mut waiting = WaitingDirectories::default();
        waiting.push(directory(b"a"));
        let (x, y) = (directory(b"x"), directory(b"y"));
        for (id, above, name) in [(7, &x, b"1"), (7, &x, b"2"), (8, &y, b"3"), (7, &x, b"4")] {
            assert!(waiting.push_below(id, above, name, 1));
        }
        waiting.push(directory(b"b"));
        let mut paths = Vec::new();
        for left in (0..6).rev() {
            let next = waiting.pop().unwrap();
            assert_eq!((waiting.len(), waiting.is_empty(), next.source), (left, left == 0, 1));
            paths.push(next.path.as_relative().display().to_string());
        }
        assert_eq!(paths, ["b", "x/4", "y/3", "x/2", "x/1", "a"]);
        assert!(waiting.pop().is_none());
        assert_eq!((waiting.bytes, waiting.entries.len()), (0, 0));
    }

    #[test]
    fn host_keeps_no_more_than_its_share() {
        let mut waiting = WaitingDirectories::default();
        let above = directory(b"x");
        let name = |number: usize| format!("{number:0>255}").into_bytes();
        let kept = (0..).take_while(|&n| waiting.push_below(7, &above, &name(n), 1000)).count();
        assert_eq!(waiting.len(), kept);
        assert!((BYTES_MIN / 256 - 8..=BYTES_MIN / 256).contains(&kept), "{kept}");
        // Of few hosts each may have more.
        assert!(waiting.push_below(7, &above, &name(kept), 2));
        assert_eq!(waiting.take().0, kept + 1);
        assert!(waiting.push_below(7, &above, &name(0), 1000));
    }
}
