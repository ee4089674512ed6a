//! Which names a path is likely to go on with.
//!
//! The kernel asks for a path name by name, and before each for the attributes of the directory. Whoever has mounted for
//! all users has the kernel check permissions, so the request for these attributes begins each walk. It takes the
//! names that come next along: the name that the last walks have looked up in that directory, or the one
//! that comes after it where a program goes through a listing, as often as it has looked up the one before (`ls -l` asks for each
//! file several times). What the owner says of them answers the requests that
//! follow in the same system call (`recent.rs`). A wrong guess costs the owner a look, and nobody else anything.
use super::{Remote, View};
use crate::message::{FileAnswer, NodeAttributes, NodeEntry, NodeName, NodeOp};
use rustc_hash::FxHashMap;
use sheaf_core::{Errno, lock};
use std::collections::VecDeque;
use std::sync::Mutex;

/// Names of a path that are guessed.
const GUESSED_MAX: usize = 6;
/// Whoever looks a file up more often than that in a row looks it up again.
const REPEATS_MAX: u32 = 4;
/// Directories that are remembered, those of which the names are, and their names.
const DIRECTORIES_MAX: usize = 4096;
const LISTINGS_MAX: usize = 64;
const LISTED_MAX: usize = 8192;

/// See the module.
#[derive(Default)]
pub(super) struct Walks(Mutex<WalksState>);

#[derive(Default)]
struct WalksState {
    directories: FxHashMap<u64, LastStep>,
    listings: FxHashMap<u64, Vec<Box<[u8]>>>,
}

/// The last name that was looked up in a directory.
struct LastStep {
    name: Box<[u8]>,
    /// What it is, if it is a directory.
    directory: Option<u64>,
    /// Where it stands in the listing.
    place: Option<usize>,
    /// It came after the name before it in the listing.
    goes_on: bool,
    /// How often it was looked up in a row, and the name before it.
    times: u32,
    times_before: u32,
}

impl LastStep {
    /// Whether this file is likely to be looked up again.
    fn repeats(&self) -> bool {
        self.directory.is_none() && (self.times < self.times_before || self.times > REPEATS_MAX)
    }
}

impl Walks {
    /// The names that a walk through this directory is likely to go on with.
    pub fn guess(&self, node: u64) -> Vec<Vec<u8>> {
        let state = lock(&self.0);
        let (mut names, mut node) = (Vec::new(), node);
        while let Some(last) = state.directories.get(&node).filter(|_| names.len() < GUESSED_MAX) {
            if last.repeats() {
                names.push(last.name.to_vec());
                break;
            }
            let next = last.place.filter(|_| last.goes_on || last.directory.is_none());
            let next = next.and_then(|at| state.listings.get(&node)?.get(at + 1));
            match (next, last.directory) {
                (Some(next), _) => {
                    names.push(next.to_vec());
                    break;
                }
                (None, Some(directory)) => {
                    names.push(last.name.to_vec());
                    node = directory;
                }
                (None, None) => break,
            }
        }
        names
    }

    /// A name was looked up.
    pub fn step(&self, at: &NodeName, directory: Option<u64>) {
        let mut state = lock(&self.0);
        let WalksState { directories, listings } = &mut *state;
        let before = directories.get_mut(&at.parent);
        if let Some(last) = before {
            if *last.name == *at.name {
                last.directory = directory;
                last.goes_on = false;
                last.times = last.times.saturating_add(1);
                return;
            }
            let listing = listings.get(&at.parent);
            let next = last.place.map_or(0, |place| place + 1);
            let is_next = |name: &[u8]| *name == *at.name;
            let after = listing.and_then(|all| all.get(next));
            last.goes_on = after.is_some_and(|name| is_next(name));
            last.place = match last.goes_on {
                true => Some(next),
                false => listing.and_then(|all| all.iter().position(|name| is_next(name))),
            };
            (last.name, last.directory) = (at.name.as_slice().into(), directory);
            (last.times, last.times_before) = (1, last.times);
            return;
        }
        if directories.len() >= DIRECTORIES_MAX {
            directories.clear();
        }
        let name: Box<[u8]> = at.name.as_slice().into();
        let listing = listings.get(&at.parent);
        let place = listing.and_then(|all| all.iter().position(|one| *one == name));
        let (goes_on, times, times_before) = (place == Some(0), 1, 0);
        let step = LastStep { name, directory, place, goes_on, times, times_before };
        directories.insert(at.parent, step);
    }

    /// Entries of a directory were listed; the first ones come first.
    pub fn listed(&self, node: u64, is_first: bool, entries: &[NodeEntry]) {
        let mut state = lock(&self.0);
        if is_first {
            if state.listings.len() >= LISTINGS_MAX {
                state.listings.clear();
            }
            state.listings.insert(node, Vec::new());
            state.directories.remove(&node);
        }
        let Some(listing) = state.listings.get_mut(&node) else { return };
        let names = entries.iter().map(|entry| &entry.name);
        let names = names.filter(|name| !matches!(&***name, b"." | b".."));
        let room = LISTED_MAX.saturating_sub(listing.len());
        listing.extend(names.take(room).map(|name| name.as_slice().into()));
    }
}

/// What a request has to do with walks.
pub(super) enum OfWalk {
    /// It begins one, and asks for these names as well.
    Begins(Vec<Vec<u8>>),
    Looks(NodeName),
    /// It lists a directory, from its beginning or on.
    Lists {
        is_first: bool,
    },
    Nothing,
}

/// The answer to a request, and what names lead to that were looked up as well.
type WalkAnswer = (FileAnswer, VecDeque<(NodeName, NodeAttributes)>);

impl<R: Remote> View<R> {
    /// An operation that may begin a walk, with names that the walk is likely to go on with.
    pub(super) fn walking(&self, op: NodeOp) -> (NodeOp, OfWalk) {
        let walks = self.walks.as_ref().filter(|_| !self.names.is_on());
        let Some(walks) = walks else { return (op, OfWalk::Nothing) };
        match op {
            NodeOp::Attributes { node, handle: None } => match walks.guess(node) {
                names if names.is_empty() => (op, OfWalk::Nothing),
                names => (NodeOp::Walk { node, names: names.clone() }, OfWalk::Begins(names)),
            },
            NodeOp::Lookup(ref at) => {
                let at = at.clone();
                (op, OfWalk::Looks(at))
            }
            NodeOp::ReadDirectory { offset, .. } => (op, OfWalk::Lists { is_first: offset == 0 }),
            op => (op, OfWalk::Nothing),
        }
    }

    /// Notes what an answer says of walks.
    pub(super) fn walked(
        &self,
        of: OfWalk,
        node: u64,
        answer: FileAnswer,
    ) -> Result<WalkAnswer, Errno> {
        let mut ahead = VecDeque::new();
        match (&answer, of, &self.walks) {
            (FileAnswer::Walked(found), OfWalk::Begins(names), _) => {
                let (first, next) = found.split_first().ok_or(Errno::PROTO)?;
                let parents = found.iter().map(|found| found.node);
                for ((name, parent), found) in names.into_iter().zip(parents).zip(next) {
                    ahead.push_back((NodeName { parent, name }, *found));
                }
                return Ok((FileAnswer::Node(*first), ahead));
            }
            (FileAnswer::Node(found), OfWalk::Looks(at), _) => self.note_step(&at, found),
            (FileAnswer::Entries(entries), OfWalk::Lists { is_first }, Some(walks)) => {
                walks.listed(node, is_first, entries);
            }
            _ => {}
        }
        Ok((answer, ahead))
    }

    /// A name was looked up.
    pub(super) fn note_step(&self, at: &NodeName, found: &NodeAttributes) {
        self.places.found(found, at.clone());
        if let Some(walks) = &self.walks {
            let is_directory = found.mode & libc::S_IFMT == libc::S_IFDIR;
            walks.step(at, is_directory.then_some(found.node));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_core::files::FileKind;

    #[test]
    fn walks_are_guessed_from_the_last_one_and_from_listings() {
        let walks = Walks::default();
        let at = |parent, name: &str| NodeName { parent, name: name.into() };
        let guessed = |node| {
            let names = walks.guess(node).into_iter();
            names.map(|name| String::from_utf8(name).unwrap()).collect::<Vec<_>>().join("/")
        };
        assert_eq!(guessed(1), "");
        walks.step(&at(1, "src"), Some(2));
        walks.step(&at(2, "d1"), Some(3));
        walks.step(&at(3, "f"), None);
        assert_eq!(guessed(1), "src/d1");
        let entry = |name: &str| NodeEntry {
            name: name.into(),
            ino: 0,
            kind: FileKind::File,
            next: 0,
            attributes: None,
        };
        walks.listed(3, true, &[entry("."), entry("a"), entry("b")]);
        walks.listed(3, false, &[entry("c"), entry("d")]);
        walks.step(&at(3, "a"), None);
        assert_eq!(guessed(1), "src/d1/b");
        walks.step(&at(3, "c"), None);
        assert_eq!(guessed(1), "src/d1/d");
        walks.step(&at(3, "d"), None);
        assert_eq!(guessed(1), "src/d1");
        // Each file is looked up as often as the one before it.
        walks.listed(3, true, &[entry("a"), entry("b"), entry("c")]);
        let mut guesses = Vec::new();
        for name in ["a", "a", "b", "b", "c", "c"] {
            walks.step(&at(3, name), None);
            guesses.push(guessed(3));
        }
        assert_eq!(guesses, ["b", "b", "b", "c", "c", ""]);
        // Who asks for the same file again and again goes on with it.
        (0..REPEATS_MAX).for_each(|_| walks.step(&at(3, "c"), None));
        assert_eq!(guessed(3), "c");
        walks.step(&at(3, "x"), None);
        assert_eq!(guessed(3), "x");
        (0..2 * REPEATS_MAX).for_each(|_| walks.step(&at(3, "d"), None));
        walks.step(&at(3, "b"), None);
        assert_eq!(guessed(3), "b");
        // A directory that is looked up again is gone through; one of a listing is followed by the next.
        walks.listed(2, true, &[entry("d1"), entry("d2"), entry("d3")]);
        walks.step(&at(2, "d1"), Some(3));
        assert_eq!(guessed(1), "src/d2");
        walks.step(&at(2, "d2"), Some(4));
        assert_eq!(guessed(1), "src/d3");
        walks.step(&at(2, "d2"), Some(4));
        assert_eq!(guessed(1), "src/d2");
    }
}
