//! The view, mounted: what the kernel asks becomes requests to the owner of the files, and its answers answers of
//! the kernel's protocol (`linux/fuse.h`, 7.31 and later).
//!
//! Nothing is kept here but which requests wait and what an owner has lent. Without `--attribute-cache` (`names.rs`)
//! no attribute, name or other byte is known for longer than the call that asked for it, so that what is seen is
//! what the owner has. The crates that
//! speak the protocol tell no lock of a file as a whole from one of a range, have nothing that ends a wait for a
//! lock, and do not know `O_TMPFILE`; its structures are those of `fuse-abi`.
//!
//! Two features of FUSE are left out on purpose. Passthrough hands reads to a file of the same
//! machine; the bind mount of the own host's files does this better, without FUSE calls for names.
//! io_uring saves wake-ups within the 8 µs that FUSE takes of a remote read's 78 µs. Reads of lent
//! bytes take only those 8 µs.
mod behind;
mod borrowed;
mod calls;
mod device;
mod held;
mod loans;
mod locks;
mod names;
mod pages;
mod places;
mod point;
mod recent;
mod reply;
mod request;
mod statistics;
mod submounts;
mod underway;
mod walks;
mod writers;

use crate::ids::ShownIds;
use crate::message::{FileAnswer, FileCall, FileCaller, NodeOp, ROOT, decoded, encoded};
use crate::view::PART;
use behind::{Behind, InOrder};
use borrowed::{Borrowed, LoanAsked};
use bytes::Bytes;
use device::{Device, WatchedDevice};
use fuse_abi::linux as abi;
use futures_util::StreamExt;
use futures_util::future::Either;
use futures_util::stream::FuturesUnordered;
use held::HeldLocks;
use loans::LoanOf;
use locks::LockAsked;
use names::{KeptNames, NamesAsked};
use pages::KernelPages;
use places::{KnownPlaces, OfPlaces};
use recent::RecentAnswers;
use reply::ReplyAs;
use request::{KernelAsks, KernelRequest};
use rustc_hash::FxHashSet;
use sheaf_core::{Errno, lock};
use statistics::Counters;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};
use submounts::Covered;
use tokio::task::JoinHandle;
use underway::{CallsUnderWay, UnderWay, calls_of_mount};
use walks::{OfWalk, Walks};
use writers::{EXECUTE_BITS, Releasing, Writers};

pub use point::{MountError, MountOptions, ViewForbids, unmount};
pub(crate) use point::{end_hanging, receive};
pub use statistics::{MountStatistics, StuckCall};

/// The most bytes of a request or an answer, without what stands before them.
const TRANSFER_BYTES: usize = 1 << 20;
/// What stands before them at most.
const HEAD_BYTES: usize = 4096;
/// Nodes that are not needed any more are told together: so many, or those of so long.
const FORGOTTEN_TOGETHER: usize = 128;
const FORGOTTEN_PAUSE: Duration = Duration::from_millis(100);

/// The owner of files, wherever it is.
pub trait Remote: Send + Sync + 'static {
    /// Has an encoded [`FileCall`] answered.
    ///
    /// # Errors
    /// `EHOSTDOWN` when there is nobody, `ETIMEDOUT` when nobody answers.
    fn call(&self, call: Vec<u8>) -> impl Future<Output = Result<Bytes, Errno>> + Send;

    /// Whether a descriptor that is closed matters to locks of ranges alone: then none are asked about where there
    /// were none.
    fn flush_is_of_locks(&self) -> bool {
        false
    }

    /// Whether the owner lends bytes that are read.
    fn lends(&self) -> bool {
        false
    }

    /// Whether file systems below the export are mounts of their own.
    fn has_sub_mounts(&self) -> bool {
        false
    }

    /// Whether the owner tells what changes of files of which the kernel keeps pages.
    fn guards_pages(&self) -> bool {
        false
    }

    /// Whether files that are lent when they are opened can be mapped for reading: the kernel keeps pages of them.
    fn maps(&self) -> bool {
        false
    }

    /// Whether programs do not wait for writes to files that the owner lends for writing.
    fn writes_behind(&self) -> bool {
        false
    }

    /// How long names and attributes are kept.
    fn keeps_names(&self) -> Duration {
        Duration::ZERO
    }

    /// A number that the mounts of one client at one owner share with no others.
    fn client(&self) -> u128 {
        0
    }

    /// How owners and permission bits are shown.
    fn ids(&self) -> &ShownIds {
        static PLAIN: LazyLock<ShownIds> = LazyLock::new(ShownIds::default);
        &PLAIN
    }

    /// Has somebody nearer to the owner answer the kernel, by another device of the same mount. Comes back when that
    /// is over; nobody does unless this says so.
    fn answered_nearer(
        &self,
        _root: u64,
        _device: NearerDevice<'_>,
    ) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// Makes another device of a mount.
pub type NearerDevice<'a> = &'a (dyn Fn() -> std::io::Result<OwnedFd> + Send + Sync);

/// A host's files at a directory of this machine. Dropped, they are not there any more.
#[derive(Debug)]
pub struct Mounted {
    point: PathBuf,
    /// Whoever takes requests; at an end when nothing is mounted any more.
    readers: Option<JoinHandle<()>>,
    /// Whoever mounts what is mounted below it.
    below: Option<JoinHandle<()>>,
    /// Whatever is mounted there now is another's.
    is_gone: bool,
    /// It goes with the mount above it; its requests are not answered any more when this is dropped.
    is_below: bool,
}

impl Mounted {
    /// Mounts the files of an owner. Requests are dealt with on the runtime that this is called on.
    ///
    /// # Errors
    /// [`MountError`] says what was tried.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new<R: Remote>(
        remote: Arc<R>,
        point: &Path,
        options: &MountOptions,
    ) -> Result<Self, MountError> {
        let has_below = options.for_all && remote.has_sub_mounts();
        let is_part = options.source.starts_with(PART);
        let source = format!("{}{}", if is_part { "" } else { PART }, options.source);
        let within = MountOptions { source, ..options.clone() };
        let below = has_below.then(|| (remote.clone(), point.to_owned(), within));
        let mut mounted = Self::at_node(remote, point, options, ROOT, false)?;
        mounted.below = below.map(|(remote, point, options)| {
            sheaf_tree::task::spawn(submounts::keep(remote, point, options))
        });
        Ok(mounted)
    }

    /// The same of the files below a node.
    fn at_node<R: Remote>(
        remote: Arc<R>,
        point: &Path,
        options: &MountOptions,
        root: u64,
        is_below: bool,
    ) -> Result<Self, MountError> {
        let device = point::mount(point, options)?;
        let point = point.to_owned();
        let mut mounted =
            Self { point: point.clone(), readers: None, below: None, is_gone: false, is_below };
        let failed = |error| MountError::Protocol { point: point.clone(), error };
        device.shake_hands(options.for_all, remote.maps()).map_err(failed)?;
        let device = Arc::new(device.watched().map_err(failed)?);
        let for_all = options.for_all;
        mounted.readers = Some(sheaf_tree::task::spawn(async move {
            remote.answered_nearer(root, &|| device.cloned()).await;
            answer(device, remote.clone(), (root, for_all)).await;
            if is_below {
                submounts::ended(&*remote, root).await;
            }
        }));
        Ok(mounted)
    }

    /// Where it is.
    #[must_use]
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// Waits until somebody has taken it away.
    pub async fn ended(&mut self) {
        if let Some(readers) = &mut self.readers
            && let Err(error) = readers.await
        {
            tracing::error!(%error, point = %self.point.display(), "a mount has ended");
        }
        self.readers = None;
        self.is_gone = true;
    }

    /// Whether somebody has taken it away.
    pub(crate) fn is_gone(&self) -> bool {
        // What is not mounted any more has no readers.
        self.is_gone || self.readers.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// It is not taken away when this is dropped.
    pub(crate) fn leave(&mut self) {
        self.is_gone = true;
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(below) = &self.below {
            below.abort();
        }
        if self.is_below {
            return self.readers.iter().for_each(JoinHandle::abort);
        }
        if !self.is_gone()
            && let Err(error) = point::end(&self.point)
        {
            tracing::warn!(point = %self.point.display(), %error, "it stays mounted");
        }
    }
}

/// Mounts the files below a node within another mount, for as long as what is returned is there.
fn mounted_below<R: Remote>(
    remote: Arc<R>,
    point: &Path,
    options: &MountOptions,
    node: u64,
) -> Result<Mounted, MountError> {
    Mounted::at_node(remote, point, options, node, true)
}

/// Answers what the kernel asks by a device of a mount for all users, until nothing is mounted any more. Dropped, it
/// lets go of the device.
///
/// # Errors
/// When the device is none.
pub(crate) async fn answer_by<R: Remote>(
    device: OwnedFd,
    remote: Arc<R>,
    root: u64,
) -> std::io::Result<()> {
    answer(Arc::new(Device::of(device).watched()?), remote, (root, true)).await;
    Ok(())
}

async fn answer<R: Remote>(
    device: Arc<WatchedDevice>,
    remote: Arc<R>,
    (root, for_all): (u64, bool),
) {
    let view = Arc::new(View::new(remote, root, for_all));
    let _ends = ViewEnds(view.clone());
    view.read(&device).await;
}

/// Ends what belongs to a view: its loans, its locks, and the task that has its device. While a device is open that
/// nobody reads, the kernel waits for answers.
struct ViewEnds<R>(Arc<View<R>>);

impl<R> Drop for ViewEnds<R> {
    fn drop(&mut self) {
        if let Some(heeds) = lock(&self.0.heeds).take() {
            heeds.abort();
        }
        self.0.borrowed.ended();
        self.0.held.ended();
    }
}

struct View<R> {
    remote: Arc<R>,
    /// The node of its top directory.
    root: u64,
    /// Requests under way, by their numbers.
    under_way: CallsUnderWay,
    counters: Counters,
    held: HeldLocks,
    /// Nodes in which ranges were locked.
    locked: Mutex<FxHashSet<u64>>,
    /// Nodes that are not needed any more, as often as they were given.
    forgotten: Mutex<Vec<(u64, u64)>>,
    borrowed: Borrowed,
    behind: Behind,
    /// The task that answers recalls.
    heeds: Mutex<Option<JoinHandle<()>>>,
    writers: Arc<Writers>,
    pages: KernelPages,
    covered: Covered,
    recent: RecentAnswers,
    places: KnownPlaces,
    names: KeptNames,
    /// Where the kernel checks permissions, and so begins each walk with a request.
    walks: Option<Walks>,
}

/// What an operation has to do with files that somebody may run.
enum OfWriters {
    Opens(u64),
    Creates,
    /// Allows this node to be run.
    Allows(u64),
    Releases(#[expect(dead_code, reason = "until it is dropped")] Option<Releasing>),
    Nothing,
}

/// What is to be known when a request has been answered.
struct AskedAbout {
    node: u64,
    pid: u32,
    how: ReplyAs,
    /// Another file system is to be mounted there.
    is_covered: bool,
    /// It looks a name up, which may be another file system's.
    finds: bool,
    of_writers: OfWriters,
    /// It opens a file whose size the kernel relies on.
    relies_on_size: bool,
    /// Its answer has ids in it.
    has_ids: bool,
    loan: Option<(LoanOf, LoanAsked)>,
    of_walk: OfWalk,
    /// What is to be known of names, and on whose behalf it was asked for.
    names: Option<(NamesAsked, FileCaller)>,
    /// It sets a lock or tests for one.
    lock: Option<LockAsked>,
    of_places: OfPlaces,
}

impl<R: Remote> View<R> {
    fn new(remote: Arc<R>, root: u64, for_all: bool) -> Self {
        let (locked, forgotten, borrowed, writers, pages) = Default::default();
        let under_way = calls_of_mount(&*remote, root);
        let behind = Behind::default();
        let (held, counters) = (HeldLocks::default(), Counters::default());
        let (covered, recent, places, heeds) = Default::default();
        // Mounts below it are of the same client, and the owner does not tell them apart.
        let kept = if root == ROOT { remote.keeps_names() } else { Duration::ZERO };
        let names = KeptNames::new(kept);
        let walks = (for_all && remote.has_sub_mounts()).then(Walks::default);
        Self {
            remote,
            root,
            under_way,
            counters,
            held,
            locked,
            forgotten,
            borrowed,
            behind,
            heeds,
            writers,
            pages,
            covered,
            recent,
            places,
            names,
            walks,
        }
    }

    /// Takes requests until there is no mount any more.
    async fn read(self: &Arc<Self>, device: &Arc<WatchedDevice>) {
        // They end with this: a request that waits for a lock may do so for ever.
        let mut under_way = FuturesUnordered::new();
        loop {
            let mut begun = Vec::new();
            tokio::select! {
                taken = device.next(|bytes| {
                    let waits = self.begin(device, bytes, false);
                    let is_answered = waits.is_none();
                    begun.extend(waits);
                    is_answered
                }) => match taken {
                    Ok(true) => under_way.extend(begun),
                    Ok(false) => return,
                    Err(error) => return tracing::error!(%error, "a mount takes no more requests"),
                },
                Some(()) = under_way.next(), if !under_way.is_empty() => {}
            }
        }
    }

    /// Begins with a request; what is to be waited for, if its answer is not known here. `is_next` says that the
    /// request has waited for earlier writes.
    fn begin(
        self: &Arc<Self>,
        device: &Arc<WatchedDevice>,
        bytes: &[u8],
        is_next: bool,
    ) -> Option<impl Future<Output = ()> + Send + use<R>> {
        let Some(request) = KernelRequest::parse(bytes, self.root) else {
            tracing::error!("the kernel has sent what is no request");
            return None;
        };
        let unique = request.unique();
        match request.decode() {
            Ok(asked) => match self.asked(device, &request, asked, is_next) {
                Ok(waits) => waits,
                Err(errno) => {
                    device.refuse(unique, errno);
                    None
                }
            },
            Err(errno) => {
                device.refuse(unique, errno);
                None
            }
        }
    }

    fn asked(
        self: &Arc<Self>,
        device: &Arc<WatchedDevice>,
        request: &KernelRequest<'_>,
        asked: KernelAsks<'_>,
        is_next: bool,
    ) -> Result<Option<impl Future<Output = ()> + Send + use<R>>, Errno> {
        let (op, data, mut how) = match asked {
            KernelAsks::Interrupt(of) => {
                let known = lock(&self.under_way).get(&of).map(|call| call.told.clone());
                match known {
                    Some(waits) => waits.inspect(|waits| waits.notify_one()),
                    // The kernel interrupts it again, if it still waits for an answer.
                    None => return Err(Errno::AGAIN),
                };
                return Ok(None);
            }
            KernelAsks::Nothing => return Ok(None),
            KernelAsks::Forget(nodes) => {
                self.forget(nodes);
                return Ok(None);
            }
            KernelAsks::Op { op, data, how } => (op, data, how),
        };
        let mut lends = false;
        if self.remote.writes_behind() {
            match self.in_order(device, request, (&op, data), is_next)? {
                InOrder::Now { lends: asks, failed } => {
                    (lends, how) = (asks, failed.map_or(how, ReplyAs::Failed));
                }
                InOrder::Done(sends) => return Ok(sends.map(Either::Right)),
                InOrder::After(begins) => return Ok(Some(Either::Right(begins))),
            }
        }
        Ok(self.asked_now(device, request, (op, data, how), lends)?.map(Either::Left))
    }

    /// The same of an operation before which nothing is to be done. `lends` says that the owner is asked to lend what is
    /// written to.
    fn asked_now(
        self: &Arc<Self>,
        device: &Arc<WatchedDevice>,
        request: &KernelRequest<'_>,
        (op, data, how): (NodeOp, &[u8], ReplyAs),
        lends: bool,
    ) -> Result<Option<impl Future<Output = ()> + Send + use<R>>, Errno> {
        let (unique, node, pid) = (request.unique(), request.node(), request.pid());
        self.counters.asked();
        if let Some(bytes) = self.asked_statistics(request.user(), &op)? {
            reply::reply(device, unique, &how, FileAnswer::Bytes, &bytes)?;
            return Ok(None);
        }
        let is_covered = self.covered.is(request.node(), &op);
        if self.answers_at_once((device, unique), &how, request, (&op, is_covered))? {
            return Ok(None);
        }
        let of_writers = self.of_writers(&op);
        let is_lookup = matches!(op, NodeOp::Lookup(_));
        let finds = self.remote.has_sub_mounts() && is_lookup;
        let op = self.remote.ids().op(self.of_pages(device, node, op))?;
        let has_ids =
            matches!(&op, NodeOp::GetXattr { name, .. } if self.remote.ids().is_of_list(name));
        let relies_on_size = self.is_open_by_size(&op);
        let (op, loan) = self.borrowing(node, op, lends);
        let (mut op, of_walk) = self.walking(op);
        let lock = self.of_locks(node, &mut op, |op| request.who(op, self.remote.ids()))?;
        let (who, of_places) = (request.who(&op, self.remote.ids()), OfPlaces::of(&op));
        // Before the next request is read, which may be its interrupt.
        let under_way = UnderWay::new(self, request, &op);
        // Nothing fails from here to the future below, which ends what is begun.
        let names = self.begin_names(device, request, &op);
        let keeps_names = names.as_ref().is_some_and(|names| names.keeps);
        let names = names.map(|names| (names, who.clone()));
        let call = encoded(&FileCall { who, pid, keeps_names, op }, data)?;
        let about = AskedAbout {
            node,
            pid,
            how,
            is_covered,
            finds,
            of_writers,
            relies_on_size,
            has_ids,
            loan,
            of_walk,
            names,
            lock,
            of_places,
        };
        let (view, device) = (self.clone(), device.clone());
        Ok(Some(async move {
            let sent = match view.ask(&device, &about, call, &under_way).await {
                Ok(all) => view.take_answer(&device, unique, about, &all),
                Err(errno) => {
                    about.names.into_iter().for_each(|(names, _)| view.names.unsettled(names));
                    Err(errno)
                }
            };
            if let Err(errno) = sent {
                device.refuse(unique, told_of(errno, is_lookup));
            }
        }))
    }

    /// Answers what needs nobody. Whether that was possible.
    fn answers_at_once(
        self: &Arc<Self>,
        (device, unique): (&WatchedDevice, u64),
        how: &ReplyAs,
        request: &KernelRequest<'_>,
        (op, is_covered): (&NodeOp, bool),
    ) -> Result<bool, Errno> {
        let by_recent =
            self.answers_by_recent((device, unique), how, request.pid(), (op, is_covered));
        if by_recent? {
            return Ok(true);
        }
        if !is_covered && self.answers_by_names((device, unique), how, request, op)? {
            return Ok(true);
        }
        if self.is_done(request.node(), op) {
            reply::reply(device, unique, how, FileAnswer::Done, &[])?;
            return Ok(true);
        }
        self.answers_by_loans(device, unique, how, op)
    }

    /// Has the owner do what is asked, when that can be done.
    async fn ask(
        self: &Arc<Self>,
        device: &Arc<WatchedDevice>,
        about: &AskedAbout,
        call: Vec<u8>,
        under_way: &UnderWay<R>,
    ) -> Result<Bytes, Errno> {
        if let OfWriters::Allows(node) = about.of_writers {
            self.writers.released(node).await;
        }
        if about.is_covered {
            self.covered.enter(&*self.remote, about.node, about.pid).await?;
        }
        let all = match (&under_way.told, &about.lock) {
            (Some(told), Some(asked)) => self.wait_for_lock(told, call, asked).await?,
            _ if about.of_places.has_directory => self.ask_again(call).await?,
            _ => self.remote.call(call).await?,
        };
        if let Some((LoanOf::Pages { handle, offset, size, is_reported: false }, _)) = about.loan {
            return self.guarded_pages(about.node, (handle, offset, size), all).await;
        }
        if about.relies_on_size {
            self.knows_size(device, about.node, &all).await;
        }
        Ok(all)
    }

    /// Answers the kernel, and keeps what is to be known of the answer.
    fn take_answer(
        self: &Arc<Self>,
        device: &Arc<WatchedDevice>,
        unique: u64,
        about: AskedAbout,
        all: &Bytes,
    ) -> Result<(), Errno> {
        let AskedAbout {
            node,
            pid,
            how,
            finds,
            of_writers,
            has_ids,
            loan,
            of_walk,
            names,
            lock,
            ..
        } = about;
        let (answer, bytes) = decoded::<Result<FileAnswer, Errno>>(all)?;
        let mut answer = self.note_names(names, (node, pid), answer)?;
        let mut bytes = bytes;
        self.note_writer(&of_writers, &answer);
        if self.remote.writes_behind() {
            self.behind.opened(&answer);
        }
        if let Some(asked) = lock {
            self.note_lock(device, &asked, &answer);
        }
        if let Some((of, asked)) = loan {
            (answer, bytes) = self.borrow(device, (node, &of, asked), answer, all, bytes);
        }
        if let (Some(at), FileAnswer::Node(found)) = (about.of_places.name, &answer) {
            self.places.found(found, at);
        }
        let (answer, ahead) = self.walked(of_walk, node, self.remote.ids().answer(answer))?;
        let mut list = if has_ids { bytes.to_vec() } else { Vec::new() };
        if has_ids {
            self.remote.ids().list(&mut list);
            bytes = &list;
        }
        self.note_recent(pid, &how, finds, (&answer, ahead));
        let kept = match &answer {
            FileAnswer::Node(found) | FileAnswer::Created(found, _) => {
                self.names.shown(found.node, Instant::now())
            }
            _ => Duration::ZERO,
        };
        reply::reply_kept((device, unique), &how, answer, bytes, kept)
    }

    /// Whether nothing has to be asked for that.
    fn is_done(&self, node: u64, op: &NodeOp) -> bool {
        match op {
            NodeOp::SetLock { lock: wanted, .. } if !wanted.is_whole => {
                lock(&self.locked).insert(node);
                false
            }
            NodeOp::Flush { handle, .. } => {
                let is_of_locks = self.remote.flush_is_of_locks();
                is_of_locks
                    && !lock(&self.locked).contains(&node)
                    && !self.writers.is_to_flush(*handle)
            }
            _ => false,
        }
    }

    /// What an operation has to do with files that somebody may run.
    fn of_writers(&self, op: &NodeOp) -> OfWriters {
        let writes = |flags: u32| flags & libc::O_ACCMODE as u32 != libc::O_RDONLY as u32;
        match op {
            NodeOp::Open { node, flags } if writes(*flags) => OfWriters::Opens(*node),
            NodeOp::Create { flags, .. } | NodeOp::Temporary { flags, .. } if writes(*flags) => {
                OfWriters::Creates
            }
            NodeOp::SetAttributes { node, set, .. }
                if set.mode.is_some_and(|mode| mode & EXECUTE_BITS != 0) =>
            {
                OfWriters::Allows(*node)
            }
            NodeOp::Release { handle, .. } => OfWriters::Releases(self.writers.releasing(*handle)),
            _ => OfWriters::Nothing,
        }
    }

    fn note_writer(&self, of: &OfWriters, answer: &FileAnswer) {
        match (of, answer) {
            (
                OfWriters::Opens(node),
                FileAnswer::Opened(handle) | FileAnswer::OpenedSized(handle, _),
            ) => {
                self.writers.opened(*handle, *node, false);
            }
            (OfWriters::Opens(node), FileAnswer::OpenedRunnable(handle)) => {
                self.writers.opened(*handle, *node, true);
            }
            (OfWriters::Creates, FileAnswer::Created(made, handle)) => {
                self.writers.opened(*handle, made.node, made.mode & EXECUTE_BITS != 0);
            }
            (OfWriters::Allows(node), _) => self.writers.runs(*node),
            _ => {}
        }
    }

    /// Tells the owner of nodes that are not needed any more, soon and together.
    fn forget(self: &Arc<Self>, nodes: Vec<(u64, u64)>) {
        let mut locked = lock(&self.locked);
        if !locked.is_empty() {
            locked.retain(|node| nodes.iter().all(|(forgotten, _)| forgotten != node));
        }
        drop(locked);
        self.places.forget(&nodes);
        self.forget_at_owner(self.names.forget(nodes));
    }

    /// The same of nodes that the kernel may have all the same.
    fn forget_at_owner(self: &Arc<Self>, nodes: Vec<(u64, u64)>) {
        if nodes.is_empty() {
            return;
        }
        let mut forgotten = lock(&self.forgotten);
        let is_first = forgotten.is_empty();
        forgotten.extend(nodes);
        let pause = match forgotten.len() {
            0..FORGOTTEN_TOGETHER if is_first => FORGOTTEN_PAUSE,
            // Somebody is about to.
            0..FORGOTTEN_TOGETHER => return,
            _ => Duration::ZERO,
        };
        let view = self.clone();
        sheaf_tree::task::spawn(async move {
            tokio::time::sleep(pause).await;
            let nodes = std::mem::take(&mut *lock(&view.forgotten));
            if nodes.is_empty() {
                return;
            }
            let (who, op) = (FileCaller::default(), NodeOp::Forget(nodes));
            let Ok(call) = encoded(&FileCall { who, pid: 0, keeps_names: false, op }, &[]) else {
                return;
            };
            // Whoever has nobody to tell it to has nothing to be forgotten there.
            drop(view.remote.call(call).await);
        });
    }
}

/// What the kernel is told of an error of the owner. `ENOSYS` would mean that no request of the kind is ever answered:
/// after one to an open the kernel tells of no file that is closed. After an error of a lookup that is not `ENOMEM` it
/// takes away what is mounted at the name, for everybody, and tells of no file of it that is closed: a shortage at the
/// owner is no reason for that.
fn told_of(errno: Errno, is_lookup: bool) -> Errno {
    match errno {
        Errno::NOSYS => Errno::IO,
        Errno::MFILE | Errno::NFILE if is_lookup => Errno::NOMEM,
        errno => errno,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortage_at_the_owner_takes_no_mount_away() {
        for errno in [Errno::MFILE, Errno::NFILE] {
            assert_eq!(told_of(errno, true), Errno::NOMEM);
            assert_eq!(told_of(errno, false), errno);
        }
        assert_eq!(told_of(Errno::NOENT, true), Errno::NOENT);
        assert_eq!(told_of(Errno::NOSYS, false), Errno::IO);
    }
}
