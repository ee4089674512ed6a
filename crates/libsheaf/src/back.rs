//! The back end: a leaf of the tree inside the user's program.
use crate::BACK_ENDS;
use crate::attach::{self, AttachHello};
use crate::error::{Error, ErrorCode, chain};
use crate::event::{EventDescriptor, Events};
use crate::inbox::{Inbox, Message, Wakers};
use crate::meter::{Meter, MeterContext};
use crate::plan::BackEndPlan;
use crate::reactor;
use crate::wire::{CLOSED_TAG, Described, Parcel, UpwardMessage, WAVES_AHEAD_MAX};
use rustc_hash::FxHashMap;
use sheaf_core::lock;
use sheaf_tree::filter::Registry;
use sheaf_tree::launch::{self, LINK_VARIABLE};
use sheaf_tree::service::Services;
use sheaf_tree::service::{Leaf, LeafHandle};
use std::future::poll_fn;
use std::io::Write as _;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
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
/// After this long a back end that has attached itself asks again for its own stream: what it asks
/// before the node above has taken it in is not heard. Doubled each time, up to the second.
const ASK_AGAIN_MIN: Duration = Duration::from_millis(5);
const ASK_AGAIN_MAX: Duration = Duration::from_secs(1);
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
        if tag != CLOSED_TAG {
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
    /// Its rank in the tree: whoever attaches itself has chosen another for the application.
    node: u32,
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
    fn new(rank: u32, node: u32) -> Self {
        Self {
            rank,
            node,
            inbox: Inbox::default(),
            events: Arc::default(),
            streams: Mutex::default(),
            turns: Mutex::default(),
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

/// What a back end asks the front end for that has attached itself.
struct Asking {
    note: Vec<u8>,
    /// Open as long as it is here.
    seat: UnixStream,
}

/// A back end.
pub struct Back {
    common: Arc<Common>,
    leaf: LeafHandle,
    plan: Mutex<BackEndPlan>,
    owed: Mutex<FxHashMap<u32, usize>>,
    /// So many packets may be answers to one that has come.
    answers: AtomicU32,
    /// What reads its link.
    task: Mutex<Option<JoinHandle<()>>>,
    /// Tells the node to which it has attached itself that it is here.
    _seat: Option<UnixStream>,
}

impl Back {
    /// Joins the tree by the descriptor that this process was started with.
    ///
    /// # Errors
    /// [`ErrorCode::Launch`] when this process was not started by a tree, or the tree does not
    /// answer.
    pub fn join() -> Result<Self, Error> {
        Self::over(inherited()?, None)
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
            let text = "this process was not started by a tree, and was not told which one to \
                        join: the last five arguments are host, port and rank of the node above, \
                        own host, own rank";
            return Err(Error::usage(text));
        };
        let number = |word: &str| Error::usage(format!("{word:?} is neither a port nor a rank"));
        let rank: u32 = rank.parse().map_err(|_| number(rank))?;
        let port = port.parse().map_err(|_| number(port))?;
        let hello = AttachHello { rank, host: (*own_host).to_owned() };
        let (seat, welcome) = attach::connect(host, port, &hello)?;
        let (link, mut invite) = std::io::pipe()?;
        // A pipe takes this much at once.
        invite.write_all(&welcome.invitation)?;
        drop(invite);
        let note = postcard::to_stdvec(&hello).expect("a greeting can be serialised");
        Self::over(link.into(), Some((hello, Asking { note, seat })))
    }

    /// Joins the tree over `link`; as whom, if it has attached itself.
    ///
    /// # Errors
    /// [`ErrorCode::Launch`] when what is at the other end does not answer as a tree does.
    fn over(link: OwnedFd, attached: Option<(AttachHello, Asking)>) -> Result<Self, Error> {
        let (tell, mut hear) = mpsc::unbounded_channel();
        let (own, asking) = attached.unzip();
        let serve = async move {
            let registry = Registry::with_builtins();
            // Filters on the way down run here.
            registry.keep_modules_at_leaves();
            let start = StartBack { tell: tell.clone(), registry: registry.clone(), own };
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
        let (plan, task) = (Mutex::new(plan), Mutex::new(Some(task)));
        let (owed, answers) = (Mutex::default(), AtomicU32::new(0));
        let (note, seat) = asking.map(|asking| (asking.note, asking.seat)).unzip();
        let back = Self { common, leaf, plan, owed, answers, task, _seat: seat };
        back.wait_for_own_stream(note.as_deref())?;
        Ok(back)
    }

    /// Waits for the stream of this back end's own, which is the first that the front end opens;
    /// asks for it if the front end does not know of this back end.
    fn wait_for_own_stream(&self, note: Option<&[u8]>) -> Result<(), Error> {
        let (deadline, mut pause) = (Instant::now() + START_TIMEOUT, ASK_AGAIN_MIN);
        while !self.common.inbox.is_ended() && Instant::now() < deadline {
            let mut until = deadline;
            if let Some(note) = note {
                self.with_leaf(|leaf| leaf.want_stream(BACK_ENDS, note));
                until = until.min(Instant::now() + pause);
                pause = (pause * 2).min(ASK_AGAIN_MAX);
            }
            if self.common.inbox.wait_open(self.rank(), until) {
                return Ok(());
            }
        }
        Err(Error::new(ErrorCode::Launch, "the session ended before this back end could join it"))
    }

    /// Calls `act` with the leaf; not at all when there is none any more. What that has to send is
    /// sent here, as far as the link takes it.
    fn with_leaf(&self, act: impl FnOnce(&mut Leaf<'_>)) {
        self.leaf.with(act);
        if self.leaf.is_behind() {
            reactor::keep();
        }
    }

    /// Lets the thread that drives the links take what waits here.
    fn call(&self) {
        self.leaf.queue(|_| ());
        reactor::keep();
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
    /// [`ErrorCode::Unknown`] for a stream that is not (or no longer) open here;
    /// [`ErrorCode::Ended`].
    pub fn send(&self, id: u32, tag: i32, packet: &[u8]) -> Result<(), Error> {
        /// A closed stream is noticed after this long even if nobody says so.
        const LOOK: Duration = Duration::from_millis(100);
        let answers = self.answers.load(Ordering::Relaxed);
        if answers > 0 {
            // Of two threads that answer at once, both may count as one.
            self.answers.store(answers - 1, Ordering::Relaxed);
        } else if packet.len() <= SMALL_BYTES_MAX
            && self.common.keep(id, tag, packet, || self.call())?
        {
            return Ok(());
        }
        loop {
            let seen = lock(&self.common.turns).count;
            let mut posted = Err(ended());
            self.with_leaf(|leaf| posted = self.common.post(leaf, id, tag, packet));
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
        self.answers.store(ANSWERS, Ordering::Relaxed);
        let Some((carrier, bytes)) = message.owed else { return };
        let due = {
            let mut owed = lock(&self.owed);
            let sum = owed.entry(carrier).or_default();
            *sum += bytes;
            if *sum < OWED_BYTES { 0 } else { std::mem::take(sum) }
        };
        if due > 0 {
            self.with_leaf(|leaf| leaf.consumed(carrier, due));
        }
    }

    /// Closes a stream at this end.
    pub fn close(&self, id: u32) {
        let mut known = lock(&self.common.streams).known.remove(&id);
        for message in self.common.inbox.forget(id) {
            self.taken(&message);
        }
        let Some(known) = &mut known else { return };
        self.leaf.with(|leaf| {
            // What was sent before goes up, whether there is room for it or not: it is not much.
            known.give(leaf, self.rank(), true);
            leaf.leave_stream(known.carrier);
        });
        // Without a stream of its own nobody can be told.
        let _ = self.send(self.rank(), CLOSED_TAG, &id.to_le_bytes());
    }

    /// Waits until what was sent has left this process.
    ///
    /// # Errors
    /// [`ErrorCode::TimedOut`].
    pub fn flush(&self) -> Result<(), Error> {
        let deadline = Instant::now() + FLUSH_TIMEOUT;
        // What there is to send is sent after each of these.
        self.with_leaf(|leaf| self.common.hand_over(leaf));
        lock(&self.common.turns).flushing += 1;
        let flushed = loop {
            let mut sent = true;
            let seen = lock(&self.common.turns).count;
            self.with_leaf(|leaf| sent = self.common.is_all_sent(leaf));
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
        self.with_leaf(|leaf| leaf.leave());
        self.common.inbox.end();
        let task = lock(&self.task).take();
        if let Some(task) = task {
            // It ends in any case, with this process at the latest.
            let _ = reactor::wait_until(Some(Instant::now() + LEAVE_TIMEOUT), task);
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
