//! A tree of files in serial order, read by many at once.
//!
//! A directory is read by one worker, and whoever is free takes the one that comes next. A
//! [`TreeVisitor`] makes pieces of what is read, beside the workers' reading, and the pieces come in
//! the order of a serial traversal: what was made waits until its turn comes, up to a bound; beyond it,
//! workers wait, but for the one whose directory is at its turn. A directory that nobody has begun when
//! its turn comes is read by who asks for it, so nothing waits for a worker that waits.
//!
//! There are as many workers as processors, and more while they mostly wait for the files
//! ([`AdaptiveWidth`]).
//!
//! PSI, sections 4.1.1 (one thread per directory) and 4.1.4 (serial order for the last phase). The
//! paper spawns a thread for each directory as resources allow; here a bounded set of workers takes
//! directories, and the consumer reads a directory itself that no worker has begun.
mod entries;
pub(crate) mod names;
mod shared;

pub use entries::{TreeEntry, TreeWalk};
pub use names::{is_empty_in, status_in};

use crate::width::{AdaptiveWidth, WIDTH_MAX};
use names::{OpenDirectory, SeenName};
use shared::{PieceBatch, WalkNode, WalkShared, WalkTurn};
use sheaf_core::Errno;
use sheaf_core::files::{FileKind, Metadata};
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// How to walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeWalkOptions {
    /// Threads beside whoever asks, while the files are at hand.
    pub workers: usize,
    /// Threads while they mostly wait for the files.
    pub workers_max: usize,
    /// Bytes of what waits for its turn, at most, beside what each worker is at.
    pub waiting_bytes_max: usize,
    /// A link that a walk begins with is followed, if it leads somewhere. None is below.
    pub follows_start: bool,
}

impl Default for TreeWalkOptions {
    fn default() -> Self {
        let workers = std::thread::available_parallelism().map_or(2, usize::from);
        Self { workers, workers_max: WIDTH_MAX, waiting_bytes_max: 32 << 20, follows_start: false }
    }
}

impl TreeWalkOptions {
    fn width(&self) -> Option<AdaptiveWidth> {
        (self.workers > 0).then(|| AdaptiveWidth::new(self.workers, self.workers_max))
    }
}

/// What is to be known of each file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileFacts {
    /// Its name and kind, which its directory tells.
    Kind,
    /// What `lstat` says.
    Status,
}

/// In which order a tree comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeOrder {
    /// What is in a directory comes behind its name, as `find` has it.
    Contents,
    /// A directory comes whole, and those in it behind it, as `ls -R` has it.
    Listings,
}

/// A file that is looked at.
#[derive(Clone, Copy, Debug)]
pub struct VisitedFile<'a> {
    /// The path of its directory with a slash at its end; empty where a walk begins.
    pub above: &'a [u8],
    /// Its name; where a walk begins, the whole path.
    pub name: &'a OsStr,
    /// The same as it is told, which is another path where a walk is told to begin elsewhere.
    pub told: &'a [u8],
    /// Levels below where the walk began.
    pub depth: usize,
    /// What its directory says that it is.
    pub kind: FileKind,
    /// What `lstat` says, or why that is not known; where it was not asked for, nothing.
    pub found: Option<&'a Result<Metadata, Errno>>,
    /// Its directory.
    pub directory: BorrowedFd<'a>,
}

impl VisitedFile<'_> {
    /// Puts its path behind what is there.
    pub fn put_path(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.above);
        out.extend_from_slice(self.told);
    }
}

/// What is made of the files of a tree. Any number of threads ask at once.
pub trait TreeVisitor: Send + Sync + 'static {
    /// What is made of some files of one directory, which stand one behind the other.
    type Piece: Default + Send + 'static;

    /// What it has to know.
    fn facts(&self) -> FileFacts;

    /// The order that pieces come in.
    fn order(&self) -> TreeOrder {
        TreeOrder::Contents
    }

    /// Looks at a file. Says whether to go into it, if it is a directory.
    fn visit(&self, piece: &mut Self::Piece, file: &VisitedFile<'_>) -> bool;

    /// A directory cannot be read, or not to its end.
    fn failed(&self, piece: &mut Self::Piece, directory: &WalkedDirectory, errno: Errno);

    /// Bytes that a piece takes beside its own size.
    fn bytes(&self, piece: &Self::Piece) -> usize;
}

/// A directory of a walk.
#[derive(Clone, Debug)]
pub struct WalkedDirectory(Arc<WalkNode>);

impl WalkedDirectory {
    /// Its path, as the walk's begins; no slash is added at the end.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        self.0.path()
    }

    /// Levels below where the walk began.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.0.depth()
    }
}

/// What comes next of a walk.
#[derive(Debug)]
pub enum TreeStep<P> {
    /// What was made of some files.
    Piece(P),
    /// What follows is of this directory.
    Enter(WalkedDirectory),
    /// There is no more of it; of listings, what follows are the directories in it.
    Leave(WalkedDirectory),
}

/// A walk with a visitor: an iterator of what it makes. Dropped, it is over.
pub struct VisitWalk<V: TreeVisitor> {
    shared: Arc<WalkShared<V>>,
    /// Where it begins, until that was told.
    start: Option<(V::Piece, Option<Arc<WalkNode>>)>,
    /// What is entered next.
    enter: Option<Arc<WalkNode>>,
    /// The directories that it is in.
    within: Vec<Within<V::Piece>>,
}

/// A directory that a walk is in.
struct Within<P> {
    node: Arc<WalkNode>,
    batch: std::vec::IntoIter<(P, Option<Arc<WalkNode>>)>,
    /// Directories in it that come when it is over.
    behind: VecDeque<Arc<WalkNode>>,
    /// Where nobody has begun it before its turn.
    own: Option<OpenDirectory>,
    /// It cannot be opened, which was told.
    is_closed: bool,
    is_over: bool,
}

impl<P> Within<P> {
    fn new(node: Arc<WalkNode>) -> Self {
        let (batch, behind) = (Vec::new().into_iter(), VecDeque::new());
        Self { node, batch, behind, own: None, is_closed: false, is_over: false }
    }
}

impl<V: TreeVisitor> VisitWalk<V> {
    /// Begins at a file or directory. A link is a file itself, here as below. `name` is that of its
    /// threads, by which they are told apart.
    #[must_use]
    pub fn new(name: &str, start: &Path, visitor: V, options: TreeWalkOptions) -> Self {
        Self::told(name, start, start.as_os_str().as_bytes(), visitor, options)
    }

    /// As [`VisitWalk::new`], and all paths are told as if it began at the path `told`.
    #[must_use]
    pub fn told(
        name: &str,
        start: &Path,
        told: &[u8],
        visitor: V,
        options: TreeWalkOptions,
    ) -> Self {
        let found = names::start(start, options.follows_start);
        let file = VisitedFile {
            above: b"",
            name: start.as_os_str(),
            told,
            depth: 0,
            kind: found.as_ref().map_or(FileKind::Unknown, |found| found.kind),
            found: Some(&found),
            directory: rustix::fs::CWD,
        };
        let mut piece = V::Piece::default();
        let is_entered = visitor.visit(&mut piece, &file) && file.kind == FileKind::Directory;
        let node =
            is_entered.then(|| Arc::new(WalkNode::start(start, told, options.follows_start)));
        let shared = WalkShared::new(visitor, &options, node.clone());
        if is_entered && let Some(width) = options.width() {
            for _ in 0..width.now() {
                shared.more_workers(name);
            }
        }
        Self { shared, start: Some((piece, node)), enter: None, within: Vec::new() }
    }

    /// The visitor.
    #[must_use]
    pub fn visitor(&self) -> &V {
        &self.shared.visitor
    }

    /// What comes next of the directory that the walk is in.
    fn more(shared: &WalkShared<V>, within: &mut Within<V::Piece>) -> Option<PieceBatch<V::Piece>> {
        if within.is_closed {
            return None;
        }
        if within.own.is_none() {
            match shared.turn(&within.node) {
                WalkTurn::Read(batch) => return batch,
                WalkTurn::Own(above) => match within.node.open(above.as_deref()) {
                    Ok(open) => within.own = Some(open),
                    Err(errno) => {
                        within.is_closed = true;
                        return Some(shared.failure(&within.node, errno));
                    }
                },
            }
        }
        shared.read(&within.node, within.own.as_mut()?)
    }
}

impl<V: TreeVisitor> Iterator for VisitWalk<V> {
    type Item = TreeStep<V::Piece>;

    fn next(&mut self) -> Option<TreeStep<V::Piece>> {
        if let Some((piece, node)) = self.start.take() {
            self.enter = node;
            return Some(TreeStep::Piece(piece));
        }
        loop {
            if let Some(node) = self.enter.take() {
                self.within.push(Within::new(node.clone()));
                return Some(TreeStep::Enter(WalkedDirectory(node)));
            }
            let within = self.within.last_mut()?;
            if let Some((piece, directory)) = within.batch.next() {
                self.enter = directory;
                return Some(TreeStep::Piece(piece));
            }
            if within.is_over {
                self.enter = within.behind.pop_front();
                if self.enter.is_none() {
                    self.within.pop();
                }
                continue;
            }
            match Self::more(&self.shared, within) {
                Some(batch) => {
                    within.batch = batch.pieces.into_iter();
                    within.behind.extend(batch.behind);
                }
                None => {
                    within.is_over = true;
                    return Some(TreeStep::Leave(WalkedDirectory(within.node.clone())));
                }
            }
        }
    }
}

impl<V: TreeVisitor> Drop for VisitWalk<V> {
    fn drop(&mut self) {
        // Workers end by themselves: one may be waiting for a disk that does not answer.
        self.shared.end();
    }
}
