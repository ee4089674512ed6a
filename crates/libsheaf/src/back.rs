//! The back end: a leaf of the tree inside the user's program.
use crate::BACK_ENDS;
use crate::attach::{self, AttachFrame, AttachKind};
use crate::error::{Error, ErrorCode, chain};
use crate::event::{self, EventDescriptor, Events};
use crate::inbox::{Inbox, Message, Wakers};
use crate::meter::{Meter, MeterContext};
use crate::plan::BackEndPlan;
use crate::reactor;
use crate::wire::{
    Control, Described, Down, HUB_TAG, HubWord, Parcel, UpwardMessage, WAVES_AHEAD_MAX,
};
use bytes::Bytes;
use rustc_hash::FxHashMap;
use sheaf_tree::filter::Registry;
use sheaf_tree::launch::{self, LINK_VARIABLE};
use sheaf_tree::service::Services;
use sheaf_tree::service::{Leaf, LeafHandle};
use std::future::poll_fn;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

mod batch;
mod receive;

use batch::Batch;
use receive::StartBack;

/// How long a back end waits to be told who it is and of its own stream.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How long what was sent may take to leave this process when it ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the end of its link may take.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Small packets are paid for together, when they come to this much.
const OWED_BYTES: usize = 64 << 10;
/// So many packets after one that came are its answers, which somebody may wait for.
const ANSWERS: u32 = 4;
/// Longer packets are given to the tree at once.
const SMALL_BYTES_MAX: usize = 2 << 10;

/// A stream as this back end knows it.
#[derive(Debug)]
struct Known {
    /// What the front end said.
    described: Arc<Described>,
    /// The stream of the tree that carries it.
    carrier: u32,
    progress: Arc<BackProgress>,
    meter: Arc<Meter>,
    /// Parameters that go up in front of the next packet.
    params: Vec<u8>,
    /// What the application has sent and the tree has not been given.
    batch: Batch,
}

impl Known {
    /// Whether one more packet may be sent.
    fn has_room(&self, leaf: &Leaf<'_>) -> bool {
        let waits = self.described.is_loose() && self.progress.is_ahead();
        !leaf.is_held(self.carrier) && !waits
    }

    /// Gives the tree what waits here, with `all` even where it has no room; `false` when it does
    /// not take all of it now.
    fn give(&mut self, leaf: &mut Leaf<'_>, rank: u32, all: bool) -> bool {
        let mut batch = std::mem::take(&mut self.batch);
        let plain = self.described.upward == UpwardMessage::Packets && !self.described.is_loose();
        while let Some((tag, width, packets)) = batch.first()
            && (all || self.has_room(leaf))
        {
            let mut count = 0;
            if plain {
                count = leaf.post_run(self.carrier, tag, packets, width);
                self.meter.count_many(MeterContext::Sent, count, width);
            }
            if count == 0 {
                self.post(leaf, rank, tag, &packets[..width]);
                count = 1;
            }
            batch.done(count);
        }
        self.batch = batch;
        self.batch.is_empty()
    }

    /// Gives the tree one packet.
    fn post(&mut self, leaf: &mut Leaf<'_>, rank: u32, tag: i32, packet: &[u8]) {
        let wave = match self.described.upward {
            UpwardMessage::Packets => leaf.post(self.carrier, tag, packet),
            UpwardMessage::Parcels | UpwardMessage::Lists => {
                let mut list = std::mem::take(&mut self.params);
                Parcel::put(&mut list, tag, rank, packet);
                leaf.post(self.carrier, tag, &list)
            }
        };
        self.progress.sent.store(wave + 1, Ordering::Relaxed);
        if tag != HUB_TAG {
            self.meter.count(MeterContext::Sent, packet.len());
        }
    }
}

/// The streams that are open here.
#[derive(Default)]
struct BackStreams {
    known: FxHashMap<u32, Known>,
    /// Those of which packets wait.
    pending: Vec<u32>,
    /// The thread that drives the links has been called, to take them.
    called: bool,
}

/// How far a back end has come on a loose stream, in waves.
#[derive(Debug, Default)]
struct BackProgress {
    sent: AtomicU64,
    /// What the front end has spoken of.
    known: AtomicU64,
}

impl BackProgress {
    fn is_ahead(&self) -> bool {
        self.sent.load(Ordering::Relaxed) >= self.known.load(Ordering::Relaxed) + WAVES_AHEAD_MAX
    }
}

/// What the tree's thread and the application share.
struct Common {
    rank: u32,
    inbox: Inbox,
    events: Arc<Events>,
    streams: Mutex<BackStreams>,
    turns: Mutex<Turns>,
}

/// The moments at which packets may have become free to be sent.
#[derive(Default)]
struct Turns {
    count: u64,
    /// Those who wait for the next one.
    waiting: Wakers,
    /// Streams on which a packet could not be sent since.
    blocked: Vec<u32>,
    /// Threads that wait until nothing is left to be sent.
    flushing: u32,
}

impl Common {
    fn new(rank: u32) -> Self {
        Self {
            rank,
            inbox: Inbox::default(),
            events: Arc::default(),
            streams: Mutex::default(),
            turns: Mutex::default(),
        }
    }

    /// Takes what comes from the leaf that this back end has attached itself to, until its end.
    fn listen(&self, mut socket: UnixStream) {
        while let Ok(frame) = AttachFrame::read(&mut socket) {
            match frame.kind {
                AttachKind::Packet => self.take(&frame),
                AttachKind::Close => {
                    lock(&self.streams).known.remove(&frame.stream);
                    self.inbox.close(frame.stream);
                }
                AttachKind::Hello | AttachKind::Welcome => break,
            }
        }
        self.inbox.end();
        self.turn();
    }

    fn take(&self, frame: &AttachFrame) {
        match Down::decode(&frame.payload, self.rank) {
            Ok(Down::Packet(packet)) => {
                reactor::park(self.inbox.room(frame.stream));
                let (stream, tag) = (frame.stream, frame.tag);
                self.count_received(stream, packet.len());
                self.inbox.push(Message { stream, tag, source: 0, packet, owed: None });
                if self.events.wants_data() {
                    self.event(event::CLASS_DATA, 0, stream, String::new());
                }
            }
            Ok(Down::Control(Control::Describe(described))) => self.know(frame.stream, *described),
            // The leaf above sees to its waves.
            Ok(Down::NotForUs(..) | Down::Control(_)) => {}
            Err(error) => {
                self.event(event::CLASS_ERROR, event::error::INTERNAL, u32::MAX, error.message);
            }
        }
    }

    fn know(&self, carrier: u32, described: Described) {
        let id = described.id;
        let (described, progress) = (Arc::new(described), Arc::default());
        let mut streams = lock(&self.streams);
        // What was sent and not given to its predecessor goes up on this one.
        let before = streams.known.remove(&id);
        let (meter, batch) = before.map(|known| (known.meter, known.batch)).unwrap_or_default();
        let known = Known { described, carrier, progress, meter, params: Vec::new(), batch };
        streams.known.insert(id, known);
        drop(streams);
        self.inbox.open(id);
    }

    fn count_received(&self, id: u32, bytes: usize) {
        if let Some(known) = lock(&self.streams).known.get(&id) {
            known.meter.count(MeterContext::Received, bytes);
        }
    }

    fn event(&self, class: u32, kind: u32, stream: u32, text: String) {
        let (rank, parent) = (self.rank, crate::NO_RANK);
        self.events.push(EventDescriptor { class, kind, rank, parent, stream, text });
    }

    fn turn(&self) {
        let mut turns = lock(&self.turns);
        turns.count += 1;
        turns.blocked.clear();
        turns.waiting.wake();
    }

    /// Gives the tree what waits here, as far as it takes it.
    fn hand_over(&self, leaf: &mut Leaf<'_>) {
        let mut streams = lock(&self.streams);
        let BackStreams { known, pending, called } = &mut *streams;
        *called = false;
        pending.retain(|id| {
            known.get_mut(id).is_some_and(|known| !known.give(leaf, self.rank, false))
        });
    }

    /// Whether nothing waits here any more.
    fn is_all_sent(&self, leaf: &Leaf<'_>) -> bool {
        leaf.unsent_bytes() == 0
            && lock(&self.streams).known.values().all(|known| known.batch.is_empty())
    }

    /// The tree has worked: a turn, if a stream that could not be sent on has room now, or all is
    /// sent.
    fn look_for_room(&self, leaf: &Leaf<'_>) {
        let (blocked, flushing) = {
            let mut turns = lock(&self.turns);
            (std::mem::take(&mut turns.blocked), turns.flushing > 0)
        };
        if flushing && self.is_all_sent(leaf) {
            return self.turn();
        }
        if blocked.is_empty() {
            return;
        }
        let streams = lock(&self.streams);
        let room =
            blocked.iter().any(|id| streams.known.get(id).is_none_or(|known| known.has_room(leaf)));
        drop(streams);
        match room {
            true => self.turn(),
            false => lock(&self.turns).blocked = blocked,
        }
    }

    /// Queues a packet, if the tree takes one now. Called under the tree's lock, under which a
    /// stream also moves from one carrier to another.
    fn post(&self, leaf: &mut Leaf<'_>, id: u32, tag: i32, packet: &[u8]) -> Result<bool, Error> {
        let mut streams = lock(&self.streams);
        let known = streams.known.get_mut(&id).ok_or_else(|| Error::no_stream(id))?;
        if !known.give(leaf, self.rank, false) || !known.has_room(leaf) {
            let blocked = &mut lock(&self.turns).blocked;
            if !blocked.contains(&id) {
                blocked.push(id);
            }
            return Ok(false);
        }
        known.post(leaf, self.rank, tag, packet);
        Ok(true)
    }

    /// Keeps a packet to give it to the tree with others; `false` where there is no room for it.
    /// Whoever drives the links is called by the first, with `call`.
    fn keep(&self, id: u32, tag: i32, packet: &[u8], call: impl FnOnce()) -> Result<bool, Error> {
        let mut streams = lock(&self.streams);
        let BackStreams { known, pending, called } = &mut *streams;
        let known = known.get_mut(&id).ok_or_else(|| Error::no_stream(id))?;
        let first = known.batch.is_empty();
        if !known.batch.put(tag, packet) {
            return Ok(false);
        }
        if first {
            pending.push(id);
            if !std::mem::replace(called, true) {
                drop(streams);
                call();
            }
        }
        Ok(true)
    }

    /// Waits for a turn after `seen`, at most `limit`. The tree's lock is never taken within.
    fn wait_turn(&self, seen: u64, limit: Duration) {
        let turned = poll_fn(|cx| {
            let mut turns = lock(&self.turns);
            if turns.count != seen {
                return Poll::Ready(());
            }
            turns.waiting.add(cx);
            Poll::Pending
        });
        // Whoever waits looks again in any case.
        let _ = reactor::wait_until(Some(Instant::now() + limit), turned);
    }
}

/// How a back end's packets get up.
enum BackUplink {
    /// As a leaf of the tree.
    Leaf(LeafHandle),
    /// By way of the leaf that it has attached itself to.
    Hub(Mutex<UnixStream>),
}

impl BackUplink {
    /// Calls `act` with the leaf; not at all when there is none any more, or never was. What that
    /// has to send is sent here, as far as the link takes it.
    fn with(&self, act: impl FnOnce(&mut Leaf<'_>)) {
        if let Self::Leaf(leaf) = self {
            leaf.with(act);
            if leaf.is_behind() {
                reactor::keep();
            }
        }
    }

    /// Lets the thread that drives the links take what waits here.
    fn call(&self) {
        if let Self::Leaf(leaf) = self {
            leaf.queue(|_| ());
            reactor::keep();
        }
    }
}

/// A back end.
pub struct Back {
    common: Arc<Common>,
    uplink: BackUplink,
    plan: Mutex<BackEndPlan>,
    owed: Mutex<FxHashMap<u32, usize>>,
    /// So many packets may be answers to one that has come.
    answers: AtomicU32,
    /// What reads its link: a task, or, below a hub, a thread.
    task: Mutex<Option<JoinHandle<()>>>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Back {
    /// Joins the tree by the descriptor that this process was started with.
    ///
    /// # Errors
    /// [`ErrorCode::Launch`] when this process was not started by a tree, or the tree does not answer.
    pub fn join() -> Result<Self, Error> {
        Self::over(inherited()?)
    }

    /// Whether a tree has started this process, and nobody here has joined it yet.
    #[must_use]
    pub fn is_started_by_tree() -> bool {
        std::env::var_os(LINK_VARIABLE).is_some() && !*lock(&TAKEN)
    }

    /// Joins a running tree whose topology has no back ends, as the last five words say.
    ///
    /// # Errors
    /// [`ErrorCode::Usage`] without such words.
    pub fn attach(words: &[&str]) -> Result<Self, Error> {
        let [.., host, port, _, own_host, rank] = words else {
            let text = "this process was not started by a tree, and was not told which one to join: the last \
                        five arguments are host, port and rank of the node above, own host, own rank";
            return Err(Error::usage(text));
        };
        let number = |word: &str| Error::usage(format!("{word:?} is neither a port nor a rank"));
        let rank: u32 = rank.parse().map_err(|_| number(rank))?;
        let port = port.parse().map_err(|_| number(port))?;
        let hello = attach::AttachHello { rank, host: (*own_host).to_owned() };
        let (socket, session) = attach::connect(host, port, &hello)?;
        let plan = BackEndPlan::from_session(&session)?;
        let common = Arc::new(Common::new(rank));
        let (reader, listener) = (socket.try_clone()?, Arc::clone(&common));
        let listen = move || listener.listen(reader);
        let thread = std::thread::Builder::new().name("sheaf-io".to_owned()).spawn(listen)?;
        Self::begin(common, BackUplink::Hub(Mutex::new(socket)), plan, None, Some(thread))
    }

    /// Joins the tree over `link`.
    ///
    /// # Errors
    /// [`ErrorCode::Launch`] when what is at the other end does not answer as a tree does.
    pub fn over(link: OwnedFd) -> Result<Self, Error> {
        let (tell, mut hear) = mpsc::unbounded_channel();
        let serve = async move {
            let registry = Registry::with_builtins();
            // Filters on the way down run here.
            registry.keep_modules_at_leaves();
            let start = StartBack { tell: tell.clone(), registry: registry.clone() };
            if let Err(error) =
                launch::leaf_over(link, &Services::new(registry).with(BACK_ENDS, start)).await
            {
                let _ = tell.send(Err(Error::new(ErrorCode::Launch, chain(&error))));
            }
        };
        let task = reactor::spawn(serve)?;
        let started =
            reactor::wait_until(Some(Instant::now() + START_TIMEOUT), hear.recv()).flatten();
        let late =
            || Error::new(ErrorCode::Launch, "the node above did not say who this back end is");
        let (common, leaf, plan) = started.ok_or_else(late)??;
        Self::begin(common, BackUplink::Leaf(leaf), plan, Some(task), None)
    }

    fn begin(
        common: Arc<Common>,
        uplink: BackUplink,
        plan: BackEndPlan,
        task: Option<JoinHandle<()>>,
        thread: Option<std::thread::JoinHandle<()>>,
    ) -> Result<Self, Error> {
        let (rank, deadline) = (common.rank, Instant::now() + START_TIMEOUT);
        let (plan, task, thread) = (Mutex::new(plan), Mutex::new(task), Mutex::new(thread));
        let (owed, answers) = (Mutex::default(), AtomicU32::new(0));
        let back = Self { common, uplink, plan, owed, answers, task, thread };
        // The stream of this back end's own is the first that the front end opens.
        if !back.common.inbox.wait_open(rank, deadline) {
            return Err(Error::new(
                ErrorCode::Launch,
                "the session ended before this back end could join it",
            ));
        }
        Ok(back)
    }

    /// Its number in the tree.
    pub fn rank(&self) -> u32 {
        self.common.rank
    }

    /// The tree.
    pub fn plan(&self) -> MutexGuard<'_, BackEndPlan> {
        lock(&self.plan)
    }

    /// What has arrived.
    pub fn inbox(&self) -> &Inbox {
        &self.common.inbox
    }

    /// What has happened.
    pub fn events(&self) -> &Arc<Events> {
        &self.common.events
    }

    /// A stream that the front end has opened to this back end.
    pub fn described(&self, id: u32) -> Option<Arc<Described>> {
        lock(&self.common.streams).known.get(&id).map(|known| Arc::clone(&known.described))
    }

    /// Sends a packet up a stream; waits while the tree does not take what was sent before.
    ///
    /// Answers go out at once. Of many packets behind one another the first calls whoever drives
    /// the links, and those that come until then go with it.
    ///
    /// # Errors
    /// [`ErrorCode::Unknown`] for a stream that is not (or no longer) open here; [`ErrorCode::Ended`].
    pub fn send(&self, id: u32, tag: i32, packet: &[u8]) -> Result<(), Error> {
        /// A closed stream is noticed after this long even if nobody says so.
        const LOOK: Duration = Duration::from_millis(100);
        if let BackUplink::Hub(socket) = &self.uplink {
            return self.send_to_hub(&mut lock(socket), id, tag, packet);
        }
        let answers = self.answers.load(Ordering::Relaxed);
        if answers > 0 {
            // Of two threads that answer at once, both may count as one.
            self.answers.store(answers - 1, Ordering::Relaxed);
        } else if packet.len() <= SMALL_BYTES_MAX
            && self.common.keep(id, tag, packet, || self.uplink.call())?
        {
            return Ok(());
        }
        loop {
            let seen = lock(&self.common.turns).count;
            let mut posted = Err(ended());
            self.uplink.with(|leaf| posted = self.common.post(leaf, id, tag, packet));
            if posted? {
                return Ok(());
            }
            if self.common.inbox.is_ended() {
                return Err(ended());
            }
            self.common.wait_turn(seen, LOOK);
        }
    }

    fn send_to_hub(
        &self,
        socket: &mut UnixStream,
        id: u32,
        tag: i32,
        packet: &[u8],
    ) -> Result<(), Error> {
        let meter = lock(&self.common.streams).known.get(&id).map(|known| Arc::clone(&known.meter));
        meter.ok_or_else(|| Error::no_stream(id))?.count(MeterContext::Sent, packet.len());
        let payload = Bytes::copy_from_slice(packet);
        AttachFrame { kind: AttachKind::Packet, stream: id, tag, payload }
            .send(socket)
            .map_err(|_| ended())
    }

    /// Pays for a message that the application has taken, so that more may come.
    pub fn taken(&self, message: &Message) {
        self.answers.store(ANSWERS, Ordering::Relaxed);
        let Some((carrier, bytes)) = message.owed else { return };
        let due = {
            let mut owed = lock(&self.owed);
            let sum = owed.entry(carrier).or_default();
            *sum += bytes;
            if *sum < OWED_BYTES { 0 } else { std::mem::take(sum) }
        };
        if due > 0 {
            self.uplink.with(|leaf| leaf.consumed(carrier, due));
        }
    }

    /// Closes a stream at this end.
    pub fn close(&self, id: u32) {
        let mut known = lock(&self.common.streams).known.remove(&id);
        for message in self.common.inbox.forget(id) {
            self.taken(&message);
        }
        match (&self.uplink, &mut known) {
            (_, None) => {}
            (BackUplink::Leaf(leaf), Some(known)) => {
                leaf.with(|leaf| {
                    // What was sent before goes up, whether there is room for it or not: it is not
                    // much.
                    known.give(leaf, self.rank(), true);
                    leaf.leave_stream(known.carrier);
                });
                let word =
                    postcard::to_stdvec(&HubWord::Closed { id }).expect("a word can be serialised");
                // Without a stream of its own nobody can be told.
                let _ = self.send(self.rank(), HUB_TAG, &word);
            }
            (BackUplink::Hub(socket), Some(_)) => {
                let frame = AttachFrame {
                    kind: AttachKind::Close,
                    stream: id,
                    tag: 0,
                    payload: Bytes::new(),
                };
                // Without a leaf above the stream is closed in any case.
                let _ = frame.send(&lock(socket));
            }
        }
    }

    /// Waits until what was sent has left this process.
    ///
    /// # Errors
    /// [`ErrorCode::TimedOut`].
    pub fn flush(&self) -> Result<(), Error> {
        let deadline = Instant::now() + FLUSH_TIMEOUT;
        // What there is to send is sent after each of these.
        self.uplink.with(|leaf| self.common.hand_over(leaf));
        lock(&self.common.turns).flushing += 1;
        let flushed = loop {
            let mut sent = true;
            let seen = lock(&self.common.turns).count;
            self.uplink.with(|leaf| sent = self.common.is_all_sent(leaf));
            if sent {
                break Ok(());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break Err(Error::new(
                    ErrorCode::TimedOut,
                    "the node above does not take what was sent",
                ));
            }
            self.common.wait_turn(seen, left);
        };
        lock(&self.common.turns).flushing -= 1;
        flushed
    }

    /// Leaves the tree.
    pub fn leave(&self) {
        // What cannot be sent in time is lost with this process in any case.
        let _ = self.flush();
        self.common.events.end();
        self.uplink.with(|leaf| leaf.leave());
        if let BackUplink::Hub(socket) = &self.uplink {
            // Wakes the reader too. It fails when the leaf above has gone first.
            let _ = lock(socket).shutdown(std::net::Shutdown::Both);
        }
        self.common.inbox.end();
        let task = lock(&self.task).take();
        if let Some(task) = task {
            // It ends in any case, with this process at the latest.
            let _ = reactor::wait_until(Some(Instant::now() + LEAVE_TIMEOUT), task);
        }
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

impl Drop for Back {
    fn drop(&mut self) {
        self.leave();
    }
}

fn ended() -> Error {
    Error::new(ErrorCode::Ended, "the session is over")
}

/// Whether the descriptor below has been used.
static TAKEN: Mutex<bool> = Mutex::new(false);

/// The descriptor that a tree has left for this process.
fn inherited() -> Result<OwnedFd, Error> {
    let number = std::env::var(LINK_VARIABLE).ok().and_then(|text| text.parse::<i32>().ok());
    let number = number.filter(|&number| number > 2).ok_or_else(|| {
        let text = "this process was not started by a tree, and was not told which one to join";
        Error::new(ErrorCode::Launch, text)
    })?;
    if std::mem::replace(&mut *lock(&TAKEN), true) {
        return Err(Error::usage("this process has joined its tree already"));
    }
    own(number)
}

#[allow(unsafe_code)]
fn own(number: i32) -> Result<OwnedFd, Error> {
    // SAFETY: the number is used for one call that fails on a descriptor that is not open.
    let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
    let flags = rustix::io::fcntl_getfd(borrowed).map_err(std::io::Error::from)?;
    rustix::io::fcntl_setfd(borrowed, flags | rustix::io::FdFlags::CLOEXEC)
        .map_err(std::io::Error::from)?;
    // SAFETY: the descriptor is open, was left for this library by the process that started this
    // one, and is taken once, which `TAKEN` sees to.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
