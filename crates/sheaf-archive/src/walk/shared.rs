//! What the workers of a walk and who asks for it have together.
use super::names::OpenDirectory;
use super::{SeenName, TreeOrder, TreeVisitor, TreeWalkOptions, VisitedFile, WalkedDirectory};
use crate::width::AdaptiveWidth;
use rustix::time::ClockId;
use sheaf_core::files::FileKind;
use sheaf_core::{Errno, lock};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a directory takes in memory that is not begun yet, beside its path and place.
const NODE_BYTES: usize = 160;

/// A directory and its place in the order of the walk.
#[derive(Debug)]
pub(super) struct WalkNode {
    /// Of each directory on the way to it and of itself, the number of its name in its own.
    place: Box<[u32]>,
    /// With a slash at its end.
    path: Box<[u8]>,
    /// Bytes of the path that are shown.
    shown: usize,
    /// Where its name begins.
    name: usize,
    /// What is opened where a walk begins.
    start: Option<Box<OsStr>>,
    is_followed: bool,
}

impl WalkNode {
    pub fn start(start: &Path, told: &[u8], is_followed: bool) -> Self {
        let end: &[u8] = if told.ends_with(b"/") { b"" } else { b"/" };
        let (shown, path) = (told.len(), [told, end].concat().into());
        let start = Some(start.as_os_str().into());
        Self { place: [].into(), path, shown, name: 0, start, is_followed }
    }

    fn below(&self, number: u32, name: &[u8]) -> Self {
        let place = self.place.iter().copied().chain([number]).collect();
        let path: Box<[u8]> = [&*self.path, name, b"/"].concat().into();
        let (shown, name) = (path.len() - 1, self.path.len());
        Self { place, path, shown, name, start: None, is_followed: false }
    }

    pub fn path(&self) -> &[u8] {
        &self.path[..self.shown]
    }

    pub fn depth(&self) -> usize {
        self.place.len()
    }

    /// Opens it in the one above it.
    pub fn open(&self, above: Option<&OwnedFd>) -> Result<OpenDirectory, Errno> {
        let name = OsStr::from_bytes(&self.path()[self.name..]);
        let name = self.start.as_deref().unwrap_or(name);
        OpenDirectory::open(above, name, self.is_followed)
    }

    fn bytes(&self) -> usize {
        NODE_BYTES + self.path.len() + size_of_val(&*self.place)
    }
}

/// By places alone, which are in the order of a traversal.
impl Ord for WalkNode {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.place.cmp(&other.place)
    }
}

impl PartialOrd for WalkNode {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for WalkNode {
    fn eq(&self, other: &Self) -> bool {
        self.place == other.place
    }
}

impl Eq for WalkNode {}

impl std::hash::Hash for WalkNode {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.place.hash(state);
    }
}

/// What was made of some names of a directory.
pub(super) struct PieceBatch<P> {
    /// Each piece, and the directory that comes behind it.
    pub pieces: Vec<(P, Option<Arc<WalkNode>>)>,
    /// Directories that come when the whole directory has come.
    pub behind: Vec<Arc<WalkNode>>,
    /// What it takes in memory.
    bytes: usize,
}

/// What a turn brings.
pub(super) enum WalkTurn<P> {
    /// What a worker has read; nothing at the end.
    Read(Option<PieceBatch<P>>),
    /// A directory that nobody has begun is the asker's own. What it is in.
    Own(Option<Arc<OwnedFd>>),
}

struct WalkKnown<P> {
    /// Directories that nobody has begun, and what each is in.
    next: BTreeMap<Arc<WalkNode>, Option<Arc<OwnedFd>>>,
    /// What was read of those that workers have begun; `None` is the end.
    read: HashMap<Arc<WalkNode>, VecDeque<Option<PieceBatch<P>>>>,
    /// Bytes of what waits for its turn.
    waiting: usize,
    /// The directory whose turn it is, while it is waited for.
    turn: Option<Arc<WalkNode>>,
    is_over: bool,
    width: AdaptiveWidth,
    /// Threads there are, those that are at work, and those that wait for some.
    workers: usize,
    working: usize,
    idle: usize,
}

/// What is common to a walk's threads.
pub(super) struct WalkShared<V: TreeVisitor> {
    pub visitor: V,
    known: Mutex<WalkKnown<V::Piece>>,
    /// Something can be begun.
    work: Condvar,
    /// Something can be gone on with.
    room: Condvar,
    /// What the turn is at has been read.
    read: Condvar,
    waiting_max: usize,
}

impl<V: TreeVisitor> WalkShared<V> {
    pub fn new(visitor: V, options: &TreeWalkOptions, start: Option<Arc<WalkNode>>) -> Arc<Self> {
        let known = WalkKnown {
            next: start.into_iter().map(|start| (start, None)).collect(),
            read: HashMap::new(),
            waiting: 0,
            turn: None,
            is_over: false,
            width: AdaptiveWidth::new(options.workers, options.workers_max),
            workers: 0,
            working: 0,
            idle: 0,
        };
        Arc::new(Self {
            visitor,
            known: Mutex::new(known),
            work: Condvar::new(),
            room: Condvar::new(),
            read: Condvar::new(),
            waiting_max: options.waiting_bytes_max,
        })
    }

    /// Another thread. Where there are no more to be had the walk finds the same, and takes longer.
    pub fn more_workers(self: &Arc<Self>, name: &str) {
        let (shared, own) = (self.clone(), name.to_owned());
        lock(&self.known).workers += 1;
        let worker = std::thread::Builder::new().name(name.to_owned());
        if worker.spawn(move || shared.work(&own)).is_err() {
            lock(&self.known).workers -= 1;
        }
    }

    pub fn end(&self) {
        lock(&self.known).is_over = true;
        self.work.notify_all();
        self.room.notify_all();
    }

    /// Reads directories until there are no more to come.
    fn work(self: &Arc<Self>, name: &str) {
        while let Some((node, above)) = self.begin() {
            let mut watch = WaitWatch::begin();
            match node.open(above.as_deref()) {
                Ok(mut open) => {
                    // Descriptors are few: the one above is needed only to open this one.
                    drop(above);
                    while let Some(batch) = self.read(&node, &mut open) {
                        // A wait for room says nothing about how fast the files come.
                        watch.stop();
                        if !self.may_keep(&node) {
                            return;
                        }
                        self.keep(&node, Some(batch));
                        watch.go_on();
                    }
                }
                Err(errno) => self.keep(&node, Some(self.failure(&node, errno))),
            }
            watch.stop();
            if self.finish(&node, &watch) {
                self.more_workers(name);
            }
        }
    }

    /// The first directory that nobody has begun, when there is one and room for what is in it.
    fn begin(&self) -> Option<(Arc<WalkNode>, Option<Arc<OwnedFd>>)> {
        let mut known = lock(&self.known);
        loop {
            if known.is_over {
                return None;
            }
            // With a bound of 0, one is begun when nothing waits: else nothing ever would be.
            if known.waiting < self.waiting_max.max(1)
                && known.working < known.width.now()
                && let Some((node, above)) = known.next.pop_first()
            {
                known.working += 1;
                // Within the same lock: at its turn a directory is either not begun, or has a
                // queue.
                known.read.insert(node.clone(), VecDeque::new());
                self.free(&mut known, node.bytes());
                return Some((node, above));
            }
            known.idle += 1;
            known = wait(&self.work, known);
            known.idle -= 1;
        }
    }

    /// Something waits no longer.
    fn free(&self, known: &mut WalkKnown<V::Piece>, bytes: usize) {
        let was = known.waiting;
        known.waiting = was.saturating_sub(bytes);
        if was >= self.waiting_max && known.waiting < self.waiting_max.max(1) {
            self.room.notify_all();
            self.wake(known);
        }
    }

    /// Wakes as many workers as may begin something.
    fn wake(&self, known: &WalkKnown<V::Piece>) {
        if known.waiting < self.waiting_max.max(1) {
            let free = known.width.now().saturating_sub(known.working);
            for _ in 0..free.min(known.idle).min(known.next.len()) {
                self.work.notify_one();
            }
        }
    }

    /// Waits for room; whose turn it is has some. Says whether it is wanted at all.
    fn may_keep(&self, node: &Arc<WalkNode>) -> bool {
        let mut known = lock(&self.known);
        while !known.is_over
            && known.waiting >= self.waiting_max
            && known.turn.as_ref() != Some(node)
        {
            known = wait(&self.room, known);
        }
        !known.is_over
    }

    fn keep(&self, node: &Arc<WalkNode>, batch: Option<PieceBatch<V::Piece>>) {
        let mut known = lock(&self.known);
        known.waiting += batch.as_ref().map_or(0, |batch| batch.bytes);
        // Who has taken the last one has taken the queue away, and there is no other before that.
        known.read.entry(node.clone()).or_default().push_back(batch);
        if known.turn.as_ref() == Some(node) {
            self.read.notify_one();
        }
    }

    /// A worker is at the end of a directory. Says whether there are to be more workers.
    fn finish(&self, node: &Arc<WalkNode>, watch: &WaitWatch) -> bool {
        self.keep(node, None);
        let mut known = lock(&self.known);
        known.working -= 1;
        let before = known.width.now();
        known.width.observe(watch.worked, watch.computed);
        if known.width.now() > before {
            self.wake(&known);
        }
        known.workers < known.width.now() && !known.next.is_empty() && !known.is_over
    }

    /// What comes next of a directory; those in it are for anybody to begin.
    pub fn read(
        &self,
        node: &Arc<WalkNode>,
        open: &mut OpenDirectory,
    ) -> Option<PieceBatch<V::Piece>> {
        let facts = self.visitor.facts();
        let mut making = Making { shared: self, node, batch: PieceBatch::new(), piece: None };
        let looked = open.look(facts, |directory, seen| making.file(directory, &seen))?;
        if let Err(errno) = looked {
            return Some(self.failure(node, errno));
        }
        let batch = making.end();
        // Before the batch is kept: `turn` relies on it that these directories are known by then.
        self.found(&batch, open);
        Some(batch)
    }

    /// Directories have been found, which anybody may begin.
    fn found(&self, batch: &PieceBatch<V::Piece>, open: &OpenDirectory) {
        let within = batch.pieces.iter().filter_map(|(_, directory)| directory.as_ref());
        let mut known = None;
        for node in within.chain(&batch.behind) {
            // Most batches have no directory, and those take no lock.
            let known = known.get_or_insert_with(|| lock(&self.known));
            known.waiting += node.bytes();
            known.next.insert(node.clone(), Some(open.shared().clone()));
        }
        if let Some(known) = known {
            self.wake(&known);
        }
    }

    /// What is told of a directory that cannot be read.
    pub fn failure(&self, node: &Arc<WalkNode>, errno: Errno) -> PieceBatch<V::Piece> {
        let mut piece = V::Piece::default();
        self.visitor.failed(&mut piece, &WalkedDirectory(node.clone()), errno);
        let mut batch = PieceBatch::new();
        batch.push(&self.visitor, piece, None);
        batch
    }

    /// Waits for what a worker reads of this directory, or takes it, if none has begun it.
    pub fn turn(&self, node: &Arc<WalkNode>) -> WalkTurn<V::Piece> {
        let mut known = lock(&self.known);
        if let Some(above) = known.next.remove(node) {
            self.free(&mut known, node.bytes());
            return WalkTurn::Own(above);
        }
        loop {
            let queue = known.read.get_mut(node).expect("who takes it from `next` puts it there");
            if let Some(batch) = queue.pop_front() {
                known.turn = None;
                match &batch {
                    None => drop(known.read.remove(node)),
                    Some(batch) => self.free(&mut known, batch.bytes),
                }
                return WalkTurn::Read(batch);
            }
            known.turn = Some(node.clone());
            // The worker of this directory may wait for room: at its turn it has some.
            if known.waiting >= self.waiting_max {
                self.room.notify_all();
            }
            known = wait(&self.read, known);
        }
    }
}

impl<P> PieceBatch<P> {
    fn new() -> Self {
        Self { pieces: Vec::new(), behind: Vec::new(), bytes: 0 }
    }

    fn push<V: TreeVisitor<Piece = P>>(
        &mut self,
        visitor: &V,
        piece: P,
        directory: Option<Arc<WalkNode>>,
    ) {
        self.bytes += size_of::<(P, Option<Arc<WalkNode>>)>() + visitor.bytes(&piece);
        self.pieces.push((piece, directory));
    }
}

/// A batch that is being made.
struct Making<'a, V: TreeVisitor> {
    shared: &'a WalkShared<V>,
    node: &'a Arc<WalkNode>,
    batch: PieceBatch<V::Piece>,
    piece: Option<V::Piece>,
}

impl<V: TreeVisitor> Making<'_, V> {
    fn file(&mut self, directory: std::os::fd::BorrowedFd<'_>, seen: &SeenName<'_>) {
        let visitor = &self.shared.visitor;
        let file = VisitedFile {
            above: &self.node.path,
            name: OsStr::from_bytes(seen.name.to_bytes()),
            told: seen.name.to_bytes(),
            depth: self.node.depth() + 1,
            kind: seen.kind,
            found: seen.found.as_ref(),
            directory,
        };
        let is_entered = visitor.visit(self.piece.get_or_insert_default(), &file);
        let is_known = !matches!(file.found, Some(Err(_)));
        if !is_entered || !is_known || file.kind != FileKind::Directory {
            return;
        }
        let node = Arc::new(self.node.below(seen.number, seen.name.to_bytes()));
        match visitor.order() {
            TreeOrder::Contents => {
                let piece = self.piece.take().unwrap_or_default();
                self.batch.push(visitor, piece, Some(node));
            }
            TreeOrder::Listings => self.batch.behind.push(node),
        }
    }

    fn end(mut self) -> PieceBatch<V::Piece> {
        if let Some(piece) = self.piece.take() {
            self.batch.push(&self.shared.visitor, piece, None);
        }
        self.batch
    }
}

fn wait<'a, P>(
    condition: &Condvar,
    known: MutexGuard<'a, WalkKnown<P>>,
) -> MutexGuard<'a, WalkKnown<P>> {
    condition.wait(known).unwrap_or_else(PoisonError::into_inner)
}

/// How long something takes, and how much of that a processor works.
struct WaitWatch {
    worked: Duration,
    computed: Duration,
    since: Option<(Instant, Duration)>,
}

impl WaitWatch {
    fn begin() -> Self {
        let since = Some((Instant::now(), computed()));
        Self { worked: Duration::ZERO, computed: Duration::ZERO, since }
    }

    fn stop(&mut self) {
        if let Some((began, before)) = self.since.take() {
            self.worked += began.elapsed();
            self.computed += computed().saturating_sub(before);
        }
    }

    fn go_on(&mut self) {
        self.since = Some((Instant::now(), computed()));
    }
}

/// What this thread has had of a processor.
fn computed() -> Duration {
    let time = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    let nanoseconds = u32::try_from(time.tv_nsec).expect("less than a second");
    Duration::new(time.tv_sec.cast_unsigned(), nanoseconds)
}
