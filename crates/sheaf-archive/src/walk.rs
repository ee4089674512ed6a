//! A tree of files in serial order, read by many at once.
//!
//! A directory is read by one worker, and whoever is free takes the one that comes next. What is read
//! waits until its turn comes, up to a bound; beyond it, workers wait, but for the one whose directory
//! is at its turn. A directory that nobody has begun when its turn comes is read by who asks for it,
//! so nothing waits for a worker that waits.
//!
//! *The Parallel Archive Interface*, section 4.1: one thread a directory, and work in the order of a
//! serial traversal where the last phase needs it.
pub(crate) mod names;

use names::{Directory, OpenDirectory};
use sheaf_core::files::Metadata;
use sheaf_core::{Errno, lock};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// How to walk.
#[derive(Clone, Copy, Debug)]
pub struct TreeWalkOptions {
    /// Threads beside whoever asks.
    pub workers: usize,
    /// Files that wait for their turn, at most, beside what each worker is at.
    pub waiting_max: usize,
}

impl Default for TreeWalkOptions {
    fn default() -> Self {
        let workers = std::thread::available_parallelism().map_or(2, usize::from);
        Self { workers, waiting_max: 64 << 10 }
    }
}

/// What is found: a directory before what is in it, and the names of one in bytewise order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeEntry {
    /// Its path, which begins with the path that the walk does.
    pub path: PathBuf,
    /// What `lstat` says, or why that is not known. Of a directory that cannot be read, or not to its
    /// end, a second entry says why.
    pub found: Result<Metadata, Errno>,
}

/// The place of a directory in the order of the walk: of each directory on the way to it and of
/// itself, the number of its name in its own.
type TreePlace = Arc<[u32]>;

/// One name of a directory.
#[derive(Debug)]
pub(crate) struct NamedFile {
    pub name: OsString,
    pub found: Result<Metadata, Errno>,
}

/// Some names of a directory in their order, or why there are no more.
pub(crate) type NamedPiece = Result<Vec<NamedFile>, Errno>;

#[derive(Default)]
struct WalkKnown {
    /// Directories that nobody has begun.
    next: BTreeMap<TreePlace, Directory>,
    /// What was read of those that workers have begun; `None` is the end.
    read: HashMap<TreePlace, VecDeque<Option<NamedPiece>>>,
    /// Files that wait for their turn.
    waiting: usize,
    /// The directory whose turn it is.
    turn: Option<TreePlace>,
    is_over: bool,
}

struct WalkShared {
    known: Mutex<WalkKnown>,
    /// Something can be begun or gone on with.
    work: Condvar,
    /// Something has been read.
    read: Condvar,
    waiting_max: usize,
}

impl WalkShared {
    /// Reads directories until there are no more to come.
    fn work(&self) {
        while let Some((place, directory)) = self.begin() {
            let mut open = match directory.open() {
                Ok(open) => open,
                Err(errno) => {
                    self.keep(&place, [Some(Err(errno)), None]);
                    continue;
                }
            };
            while let Some(piece) = open.next() {
                if !self.may_keep(&place) {
                    return;
                }
                self.found(&place, &open, &piece);
                self.keep(&place, [Some(piece)]);
            }
            self.keep(&place, [None]);
        }
    }

    /// The first directory that nobody has begun, when there is one and room for what is in it.
    fn begin(&self) -> Option<(TreePlace, Directory)> {
        let mut known = lock(&self.known);
        loop {
            if known.is_over {
                return None;
            }
            if known.waiting < self.waiting_max
                && let Some((place, directory)) = known.next.pop_first()
            {
                known.read.insert(place.clone(), VecDeque::new());
                return Some((place, directory));
            }
            known = wait(&self.work, known);
        }
    }

    /// Waits for room; whose turn it is has some. Says whether it is wanted at all.
    fn may_keep(&self, place: &TreePlace) -> bool {
        let mut known = lock(&self.known);
        while !known.is_over
            && known.waiting >= self.waiting_max
            && known.turn.as_ref() != Some(place)
        {
            known = wait(&self.work, known);
        }
        !known.is_over
    }

    fn keep<const N: usize>(&self, place: &TreePlace, pieces: [Option<NamedPiece>; N]) {
        let mut known = lock(&self.known);
        for piece in pieces {
            known.waiting += piece.as_ref().map_or(0, files_of);
            // Who has taken the last one has taken the queue away, and there is no other before that.
            known.read.entry(place.clone()).or_default().push_back(piece);
        }
        self.read.notify_one();
    }

    /// Directories have been found, which anybody may begin.
    fn found(&self, place: &TreePlace, open: &OpenDirectory, piece: &NamedPiece) {
        let Ok(named) = piece else { return };
        let first = open.told() - named.len();
        let mut known = None;
        for (at, named) in named.iter().enumerate().filter(|(_, named)| named.is_directory()) {
            let known = known.get_or_insert_with(|| lock(&self.known));
            known.next.insert(below(place, first + at), open.directory(&named.name));
        }
        if known.is_some() {
            self.work.notify_all();
        }
    }
}

impl NamedFile {
    pub fn is_directory(&self) -> bool {
        self.found.as_ref().is_ok_and(Metadata::is_dir)
    }
}

fn files_of(piece: &NamedPiece) -> usize {
    piece.as_ref().map_or(0, Vec::len)
}

fn below(place: &TreePlace, number: usize) -> TreePlace {
    // A directory with more names has no place in memory.
    let number = u32::try_from(number).expect("fewer names than bytes of names, which are 4 GiB");
    place.iter().copied().chain([number]).collect()
}

fn wait<'a>(condition: &Condvar, known: MutexGuard<'a, WalkKnown>) -> MutexGuard<'a, WalkKnown> {
    condition.wait(known).unwrap_or_else(PoisonError::into_inner)
}

/// A walk: an iterator of what is found. Dropped, it is over.
pub struct TreeWalk {
    shared: Arc<WalkShared>,
    /// Where it begins, until that was told.
    start: Option<TreeEntry>,
    /// The directories that it is in.
    within: Vec<Within>,
}

/// A directory that a walk is in.
struct Within {
    place: TreePlace,
    path: PathBuf,
    /// How many of its names were told.
    told: usize,
    piece: std::vec::IntoIter<NamedFile>,
    /// Where nobody has begun it before its turn.
    own: Option<OpenDirectory>,
    is_over: bool,
}

impl Within {
    fn new(place: TreePlace, path: PathBuf) -> Self {
        Self { place, path, told: 0, piece: Vec::new().into_iter(), own: None, is_over: false }
    }
}

impl TreeWalk {
    /// Begins at a file or directory. A link is a file itself, here as below.
    #[must_use]
    pub fn new(start: &Path, options: TreeWalkOptions) -> Self {
        Self::named("walk", start, options)
    }

    /// As [`TreeWalk::new`], with a name for its threads, by which they are told apart.
    #[must_use]
    pub fn named(name: &str, start: &Path, options: TreeWalkOptions) -> Self {
        let found = names::lstat(start);
        let mut known = WalkKnown::default();
        if found.as_ref().is_ok_and(Metadata::is_dir) {
            known.next.insert(TreePlace::from([]), Directory::at(start));
        }
        let shared = Arc::new(WalkShared {
            known: Mutex::new(known),
            work: Condvar::new(),
            read: Condvar::new(),
            waiting_max: options.waiting_max,
        });
        for _ in 0..options.workers {
            let (worker, shared) = (std::thread::Builder::new(), shared.clone());
            if worker.name(name.to_owned()).spawn(move || shared.work()).is_err() {
                // Where there are no more threads the walk finds the same, and takes longer.
                break;
            }
        }
        let start = Some(TreeEntry { path: start.to_owned(), found });
        Self { shared, start, within: Vec::new() }
    }

    /// What comes next of the directory that the walk is in.
    fn more(shared: &WalkShared, within: &mut Within) -> Option<NamedPiece> {
        if within.is_over {
            return None;
        }
        if within.own.is_none() {
            match Self::turn(shared, &within.place) {
                WalkTurn::Read(piece) => return piece,
                WalkTurn::Own(directory) => match directory.open() {
                    Ok(open) => within.own = Some(open),
                    Err(errno) => {
                        within.is_over = true;
                        return Some(Err(errno));
                    }
                },
            }
        }
        let open = within.own.as_mut()?;
        let piece = open.next()?;
        shared.found(&within.place, open, &piece);
        Some(piece)
    }

    /// Waits for what a worker reads of this directory, or takes it, if none has begun it.
    fn turn(shared: &WalkShared, place: &TreePlace) -> WalkTurn {
        let mut known = lock(&shared.known);
        if let Some(directory) = known.next.remove(place) {
            return WalkTurn::Own(directory);
        }
        loop {
            let queue = known.read.get_mut(place).expect("who takes it from `next` puts it there");
            if let Some(piece) = queue.pop_front() {
                match &piece {
                    None => drop(known.read.remove(place)),
                    Some(piece) => known.waiting -= files_of(piece),
                }
                known.turn = None;
                shared.work.notify_all();
                return WalkTurn::Read(piece);
            }
            known.turn = Some(place.clone());
            shared.work.notify_all();
            known = wait(&shared.read, known);
        }
    }
}

/// What a turn brings.
enum WalkTurn {
    /// What a worker has read.
    Read(Option<NamedPiece>),
    /// A directory that nobody has begun.
    Own(Directory),
}

impl Iterator for TreeWalk {
    type Item = TreeEntry;

    fn next(&mut self) -> Option<TreeEntry> {
        if let Some(start) = self.start.take() {
            if start.found.as_ref().is_ok_and(Metadata::is_dir) {
                self.within.push(Within::new(TreePlace::from([]), start.path.clone()));
            }
            return Some(start);
        }
        loop {
            let within = self.within.last_mut()?;
            let Some(named) = within.piece.next() else {
                match Self::more(&self.shared, within) {
                    Some(Ok(piece)) => within.piece = piece.into_iter(),
                    Some(Err(errno)) => {
                        let (path, found) = (within.path.clone(), Err(errno));
                        return Some(TreeEntry { path, found });
                    }
                    None => drop(self.within.pop()),
                }
                continue;
            };
            let path = within.path.join(&named.name);
            if named.is_directory() {
                let place = below(&within.place, within.told);
                within.told += 1;
                self.within.push(Within::new(place, path.clone()));
            } else {
                within.told += 1;
            }
            return Some(TreeEntry { path, found: named.found });
        }
    }
}

impl Drop for TreeWalk {
    fn drop(&mut self) {
        // Workers end by themselves: one may be waiting for a disk that does not answer.
        lock(&self.shared.known).is_over = true;
        self.shared.work.notify_all();
    }
}
