//! The back end: a leaf of the tree inside the user's program.
use crate::attach::{self, Frame, Kind};
use crate::error::{Code, Error};
use crate::event::{self, Event, Events};
use crate::inbox::{Inbox, Message};
use crate::meter::{Context, Meter};
use crate::plan::Plan;
use crate::wire::{Control, Described, Down, HUB_TAG, HubWord, Parcel, Upward, WAVES_AHEAD_MAX};
use bytes::Bytes;
use rustc_hash::FxHashMap;
use sheaf_tree::filter::Registry;
use sheaf_tree::launch::{self, LINK_VARIABLE};
use sheaf_tree::service::{Leaf, LeafHandle};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

mod receive;

use receive::Start;

/// How long a back end waits to be told who it is and of its own stream.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How long what was sent may take to leave this process when it ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);
/// Small packets are paid for together, when they come to this much.
const OWED_BYTES: usize = 64 << 10;

/// A stream as this back end knows it.
#[derive(Debug, Clone)]
pub struct Known {
    /// What the front end said.
    pub described: Arc<Described>,
    /// The stream of the tree that carries it.
    carrier: u32,
    progress: Arc<Progress>,
    meter: Arc<Meter>,
    /// Parameters that go up in front of the next packet.
    params: Vec<u8>,
}

impl Known {
    /// Whether one more packet may be sent.
    fn has_room(&self, leaf: &Leaf<'_>) -> bool {
        let waits = self.described.is_loose() && self.progress.is_ahead();
        !leaf.is_held(self.carrier) && !waits
    }
}

/// How far a back end has come on a loose stream, in waves.
#[derive(Debug, Default)]
struct Progress {
    sent: AtomicU64,
    /// What the front end has spoken of.
    known: AtomicU64,
}

impl Progress {
    fn is_ahead(&self) -> bool {
        self.sent.load(Ordering::Relaxed) >= self.known.load(Ordering::Relaxed) + WAVES_AHEAD_MAX
    }
}

/// What the tree's thread and the application share.
struct Common {
    rank: u32,
    inbox: Inbox,
    events: Arc<Events>,
    streams: Mutex<FxHashMap<u32, Known>>,
    turns: Mutex<Turns>,
    turned: Condvar,
}

/// The moments at which packets may have become free to be sent.
#[derive(Default)]
struct Turns {
    count: u64,
    /// Threads that wait for the next one.
    waiting: u32,
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
            turned: Condvar::new(),
        }
    }

    /// Takes what comes from the leaf that this back end has attached itself to, until its end.
    fn listen(&self, mut socket: UnixStream) {
        while let Ok(frame) = Frame::read(&mut socket) {
            match frame.kind {
                Kind::Packet => self.take(&frame),
                Kind::Close => {
                    lock(&self.streams).remove(&frame.stream);
                    self.inbox.close(frame.stream);
                }
                Kind::Hello | Kind::Welcome => break,
            }
        }
        self.inbox.end();
        self.turn();
    }

    fn take(&self, frame: &Frame) {
        match Down::decode(&frame.payload, self.rank) {
            Ok(Down::Packet(packet)) => {
                crate::runtime::block_on(self.inbox.room(frame.stream));
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
        let meter = streams.get(&id).map(|known| Arc::clone(&known.meter)).unwrap_or_default();
        streams.insert(id, Known { described, carrier, progress, meter, params: Vec::new() });
        drop(streams);
        self.inbox.open(id);
    }

    fn count_received(&self, id: u32, bytes: usize) {
        if let Some(known) = lock(&self.streams).get(&id) {
            known.meter.count(Context::Received, bytes);
        }
    }

    fn event(&self, class: u32, kind: u32, stream: u32, text: String) {
        let (rank, parent) = (self.rank, crate::NO_RANK);
        self.events.push(Event { class, kind, rank, parent, stream, text });
    }

    fn turn(&self) {
        let mut turns = lock(&self.turns);
        turns.count += 1;
        turns.blocked.clear();
        if turns.waiting > 0 {
            self.turned.notify_all();
        }
    }

    /// The tree has worked: a turn, if a stream that could not be sent on has room now, or all is sent.
    fn look_for_room(&self, leaf: &Leaf<'_>) {
        let (blocked, flushing) = {
            let mut turns = lock(&self.turns);
            (std::mem::take(&mut turns.blocked), turns.flushing > 0)
        };
        if flushing && leaf.unsent_bytes() == 0 {
            return self.turn();
        }
        if blocked.is_empty() {
            return;
        }
        let streams = lock(&self.streams);
        let room = blocked.iter().any(|id| streams.get(id).is_none_or(|known| known.has_room(leaf)));
        drop(streams);
        match room {
            true => self.turn(),
            false => lock(&self.turns).blocked = blocked,
        }
    }

    /// Queues a packet, if the tree takes one now. Called under the tree's lock, under which a stream
    /// also moves from one carrier to another.
    fn post(&self, leaf: &mut Leaf<'_>, id: u32, tag: i32, packet: &[u8]) -> Result<bool, Error> {
        let mut streams = lock(&self.streams);
        let known = streams.get_mut(&id).ok_or_else(|| Error::no_stream(id))?;
        if !known.has_room(leaf) {
            let blocked = &mut lock(&self.turns).blocked;
            if !blocked.contains(&id) {
                blocked.push(id);
            }
            return Ok(false);
        }
        let wave = match known.described.upward {
            Upward::Packets => leaf.post(known.carrier, tag, packet),
            Upward::Parcels | Upward::Lists => {
                let mut list = std::mem::take(&mut known.params);
                Parcel::put(&mut list, tag, self.rank, packet);
                leaf.post(known.carrier, tag, &list)
            }
        };
        known.progress.sent.store(wave + 1, Ordering::Relaxed);
        if tag != HUB_TAG {
            known.meter.count(Context::Sent, packet.len());
        }
        Ok(true)
    }

    /// Waits for a turn after `seen`, at most `limit`. The tree's lock is never taken within.
    fn wait_turn(&self, seen: u64, limit: Duration) {
        let mut turns = lock(&self.turns);
        turns.waiting += 1;
        let waited = self.turned.wait_timeout_while(turns, limit, |now| now.count == seen);
        waited.unwrap_or_else(PoisonError::into_inner).0.waiting -= 1;
    }
}

/// How a back end's packets get up.
enum Uplink {
    /// As a leaf of the tree.
    Leaf(LeafHandle),
    /// By way of the leaf that it has attached itself to.
    Hub(Mutex<UnixStream>),
}

impl Uplink {
    /// Calls `act` with the leaf; not at all when there is none any more, or never was.
    fn with(&self, act: impl FnOnce(&mut Leaf<'_>)) {
        if let Self::Leaf(leaf) = self {
            leaf.with(act);
        }
    }

    /// The same, for one of many packets that are sent together.
    fn queue(&self, act: impl FnOnce(&mut Leaf<'_>)) {
        if let Self::Leaf(leaf) = self {
            leaf.queue(act);
        }
    }
}

/// A back end.
pub struct Back {
    common: Arc<Common>,
    uplink: Uplink,
    plan: Mutex<Plan>,
    owed: Mutex<FxHashMap<u32, usize>>,
    /// A packet has come since the last one was sent.
    answers: AtomicBool,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Back {
    /// Joins the tree by the descriptor that this process was started with.
    ///
    /// # Errors
    /// [`Code::Launch`] when this process was not started by a tree, or the tree does not answer.
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
    /// [`Code::Usage`] without such words.
    pub fn attach(words: &[&str]) -> Result<Self, Error> {
        let [.., host, port, _, own_host, rank] = words else {
            let text = "this process was not started by a tree, and was not told which one to join: the last \
                        five arguments are host, port and rank of the node above, own host, own rank";
            return Err(Error::usage(text));
        };
        let number = |word: &str| Error::usage(format!("{word:?} is neither a port nor a rank"));
        let rank: u32 = rank.parse().map_err(|_| number(rank))?;
        let port = port.parse().map_err(|_| number(port))?;
        let hello = attach::Hello { rank, host: (*own_host).to_owned() };
        let (socket, session) = attach::connect(host, port, &hello)?;
        let plan = Plan::from_session(&session)?;
        let common = Arc::new(Common::new(rank));
        let (reader, listener) = (socket.try_clone()?, Arc::clone(&common));
        let listen = move || listener.listen(reader);
        let thread = std::thread::Builder::new().name("sheaf-io".to_owned()).spawn(listen)?;
        Self::begin(common, Uplink::Hub(Mutex::new(socket)), plan, thread)
    }

    /// Joins the tree over `link`.
    ///
    /// # Errors
    /// [`Code::Launch`] when what is at the other end does not answer as a tree does.
    pub fn over(link: OwnedFd) -> Result<Self, Error> {
        let (tell, hear) = mpsc::channel();
        let serve = move || {
            crate::ffi::signal::block_broken_pipes();
            let registry = Registry::with_builtins();
            // Filters on the way down run here.
            registry.keep_modules_at_leaves();
            let start = Start { tell: Mutex::new(tell.clone()), registry: registry.clone() };
            if let Err(error) = launch::leaf_from(link, &registry, &start) {
                let _ = tell.send(Err(Error::new(Code::Launch, chain(&error))));
            }
        };
        let thread = std::thread::Builder::new().name("sheaf-io".to_owned()).spawn(serve)?;
        let started = hear.recv_timeout(START_TIMEOUT);
        let late = |_| Error::new(Code::Launch, "the node above did not say who this back end is");
        let (common, leaf, plan) = started.map_err(late)??;
        Self::begin(common, Uplink::Leaf(leaf), plan, thread)
    }

    fn begin(
        common: Arc<Common>,
        uplink: Uplink,
        plan: Plan,
        thread: std::thread::JoinHandle<()>,
    ) -> Result<Self, Error> {
        let (rank, deadline) = (common.rank, Instant::now() + START_TIMEOUT);
        let (plan, thread) = (Mutex::new(plan), Mutex::new(Some(thread)));
        let back =
            Self { common, uplink, plan, owed: Mutex::default(), answers: AtomicBool::new(false), thread };
        // The stream of this back end's own is the first that the front end opens.
        if !back.common.inbox.wait_open(rank, deadline) {
            return Err(Error::new(Code::Launch, "the session ended before this back end could join it"));
        }
        Ok(back)
    }

    /// Its number in the tree.
    pub fn rank(&self) -> u32 {
        self.common.rank
    }

    /// The tree.
    pub fn plan(&self) -> MutexGuard<'_, Plan> {
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
    pub fn known(&self, id: u32) -> Option<Known> {
        lock(&self.common.streams).get(&id).cloned()
    }

    /// Sends a packet up a stream; waits while the tree does not take what was sent before.
    ///
    /// # Errors
    /// [`Code::Unknown`] for a stream that is not (or no longer) open here; [`Code::Ended`].
    pub fn send(&self, id: u32, tag: i32, packet: &[u8]) -> Result<(), Error> {
        /// A closed stream is noticed after this long even if nobody says so.
        const LOOK: Duration = Duration::from_millis(100);
        if let Uplink::Hub(socket) = &self.uplink {
            let known = self.known(id).ok_or_else(|| Error::no_stream(id))?;
            let payload = Bytes::copy_from_slice(packet);
            let frame = Frame { kind: Kind::Packet, stream: id, tag, payload };
            known.meter.count(Context::Sent, packet.len());
            return frame.send(&lock(socket)).map_err(|_| ended());
        }
        // The first packet after one that came is an answer, which somebody may wait for.
        let answers = self.answers.swap(false, Ordering::Relaxed);
        loop {
            let seen = lock(&self.common.turns).count;
            let mut posted = Err(ended());
            let post = |leaf: &mut Leaf<'_>| posted = self.common.post(leaf, id, tag, packet);
            if answers {
                self.uplink.with(post)
            } else {
                self.uplink.queue(post)
            }
            if posted? {
                return Ok(());
            }
            if self.common.inbox.is_ended() {
                return Err(ended());
            }
            self.common.wait_turn(seen, LOOK);
        }
    }

    /// Pays for a message that the application has taken, so that more may come.
    pub fn taken(&self, message: &Message) {
        self.answers.store(true, Ordering::Relaxed);
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
        let known = lock(&self.common.streams).remove(&id);
        for message in self.common.inbox.forget(id) {
            self.taken(&message);
        }
        match (&self.uplink, known) {
            (_, None) => {}
            (Uplink::Leaf(leaf), Some(known)) => {
                leaf.with(|leaf| leaf.leave_stream(known.carrier));
                let word = postcard::to_stdvec(&HubWord::Closed { id }).expect("a word can be serialised");
                // Without a stream of its own nobody can be told.
                let _ = self.send(self.rank(), HUB_TAG, &word);
            }
            (Uplink::Hub(socket), Some(_)) => {
                let frame = Frame { kind: Kind::Close, stream: id, tag: 0, payload: Bytes::new() };
                // Without a leaf above the stream is closed in any case.
                let _ = frame.send(&lock(socket));
            }
        }
    }

    /// Waits until what was sent has left this process.
    ///
    /// # Errors
    /// [`Code::TimedOut`].
    pub fn flush(&self) -> Result<(), Error> {
        let deadline = Instant::now() + FLUSH_TIMEOUT;
        lock(&self.common.turns).flushing += 1;
        let flushed = loop {
            let mut unsent = 0;
            let seen = lock(&self.common.turns).count;
            self.uplink.with(|leaf| unsent = leaf.unsent_bytes());
            if unsent == 0 {
                break Ok(());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break Err(Error::new(Code::TimedOut, "the node above does not take what was sent"));
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
        if let Uplink::Hub(socket) = &self.uplink {
            // Wakes the reader too. It fails when the leaf above has gone first.
            let _ = lock(socket).shutdown(std::net::Shutdown::Both);
        }
        self.common.inbox.end();
        if let Some(thread) = lock(&self.thread).take() {
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
    Error::new(Code::Ended, "the session is over")
}

fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}

/// Whether the descriptor below has been used.
static TAKEN: Mutex<bool> = Mutex::new(false);

/// The descriptor that a tree has left for this process.
fn inherited() -> Result<OwnedFd, Error> {
    let number = std::env::var(LINK_VARIABLE).ok().and_then(|text| text.parse::<i32>().ok());
    let number = number.filter(|&number| number > 2).ok_or_else(|| {
        let text = "this process was not started by a tree, and was not told which one to join";
        Error::new(Code::Launch, text)
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
    rustix::io::fcntl_setfd(borrowed, flags | rustix::io::FdFlags::CLOEXEC).map_err(std::io::Error::from)?;
    // SAFETY: the descriptor is open, was left for this library by the process that started this
    // one, and is taken once, which `TAKEN` sees to.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
