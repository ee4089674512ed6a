//! Services that may block: each stream is a lane, whose requests are done one after the other on a
//! thread of the service's own.
//!
//! A slow request holds up its own lane alone. Those of a service that hang for ever cost it a
//! thread each, of which it has [`THREADS_MAX`](super::pool::THREADS_MAX), and each user a share of
//! these; other services have others. What waits for a thread beyond its deadline is not begun.
use super::identity::{Acting, Identity};
use super::pool::{Pool, Work};
use super::share::Holding;
use super::{Audience, Caller, Leaf, LeafHandle, Provider, Service, ServiceError, Site};
use crate::proto::Packet;
use bytes::{Bytes, BytesMut};
use rustc_hash::FxHashMap;
use sheaf_core::{Errno, lock};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

/// What a service does for one stream at one node.
pub trait Worker: Send {
    /// Answers a request. Whoever works long asks [`ServiceRequest::should_stop`] now and then.
    ///
    /// # Errors
    /// What this node failed with.
    fn request(&mut self, request: &ServiceRequest) -> Result<Vec<u8>, Errno>;
}

/// A request, whole.
pub struct ServiceRequest {
    /// The sender's tag.
    pub tag: i32,
    /// Its bytes.
    pub payload: Bytes,
    /// On whose behalf.
    pub caller: Arc<Caller>,
    over: Arc<AtomicBool>,
}

/// Whose share of a service's threads a request of a stream takes, by its payload; `None` is the
/// server's user ([`Blocking::charging`]).
pub type Charges = dyn Fn(u32, &[u8]) -> Option<u64> + Send + Sync;

impl ServiceRequest {
    /// What is set when nobody waits for the answer any more.
    #[must_use]
    pub fn over(&self) -> &Arc<AtomicBool> {
        &self.over
    }

    /// Whether nobody waits for the answer any more.
    #[must_use]
    pub fn should_stop(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

type OpenWorker = dyn Fn(&Site<'_>, &Caller) -> Result<Box<dyn Worker>, Errno> + Send + Sync;

/// A [`Provider`] of services that may block.
#[derive(Clone)]
pub struct Blocking {
    open: Arc<OpenWorker>,
    pool: Arc<Pool<LaneErrand>>,
    audience: Audience,
    users: LaneUsers,
    charges: Option<Arc<Charges>>,
}

/// As whom requests are worked on, and for which callers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LaneUsers {
    /// As the process's user, for callers that may do all that it may.
    Process,
    /// As the caller.
    Callers,
    /// As the process's user, for callers that the worker judges.
    Judged,
}

impl Blocking {
    /// At leaves; `open` makes what works for a stream, and is called when its first request is
    /// worked on.
    pub fn new(
        open: impl Fn(&Site<'_>, &Caller) -> Result<Box<dyn Worker>, Errno> + Send + Sync + 'static,
    ) -> Self {
        let audience = Audience::Leaves;
        let users = LaneUsers::Process;
        Self { open: Arc::new(open), pool: Pool::new(), audience, users, charges: None }
    }

    /// The same at other nodes.
    #[must_use]
    pub fn at(self, audience: Audience) -> Self {
        Self { audience, ..self }
    }

    /// For every user whom the session lets in: what is done for one is done with that user's
    /// rights, on a thread that has them ([`super::identity`]). Threads that a worker begins have
    /// them, too; what it hands to threads that were there before is done with the process's.
    #[must_use]
    pub fn as_callers(self) -> Self {
        Self { users: LaneUsers::Callers, ..self }
    }

    /// For callers that `open` accepts, whatever their rights: requests are worked on with the
    /// process's, and the worker sees to it that no caller gets more than its own.
    #[must_use]
    pub fn judging_callers(self) -> Self {
        Self { users: LaneUsers::Judged, ..self }
    }

    /// For a service that works for many users and clients, which are found in its requests: each
    /// has a share of the threads.
    #[must_use]
    pub fn charging(self, charges: Arc<Charges>) -> Self {
        Self { charges: Some(charges), ..self }
    }
}

impl Provider for Blocking {
    fn audience(&self) -> Audience {
        self.audience
    }

    fn heeds_callers(&self) -> bool {
        self.users != LaneUsers::Process
    }

    fn start(&self, site: &Site<'_>, handle: LeafHandle) -> Result<Box<dyn Service>, ServiceError> {
        let (host, config) = (site.host.to_owned(), site.config.to_vec());
        let post = Arc::new(Post { leaf: site.leaf, rank: site.rank, host, config, handle });
        Ok(Box::new(Lanes { blocking: self.clone(), post, lanes: FxHashMap::default() }))
    }
}

/// Where all lanes of one node are.
struct Post {
    leaf: Option<u32>,
    rank: u32,
    host: String,
    config: Vec<u8>,
    handle: LeafHandle,
}

struct Lanes {
    blocking: Blocking,
    post: Arc<Post>,
    lanes: FxHashMap<u32, Arc<Lane>>,
}

/// One stream.
struct Lane {
    stream: u32,
    caller: Arc<Caller>,
    /// As whom it is worked on, if not as the process's user; or why it is not.
    identity: Result<Option<Arc<Identity>>, Errno>,
    post: Arc<Post>,
    open: Arc<OpenWorker>,
    queue: Mutex<LaneQueue>,
    /// Whoever works on it has this.
    worker: Mutex<Option<Result<Box<dyn Worker>, Errno>>>,
}

#[derive(Default)]
struct LaneQueue {
    /// The packet that is coming in, and its memory; what has come and waits.
    coming: BytesMut,
    coming_held: Holding,
    /// The user has no memory left for it: the rest of it is passed over.
    dropped: bool,
    asks: bool,
    deadline: Option<Instant>,
    /// Bytes of it that count as under way until what came before has been dealt with.
    held: usize,
    waiting: VecDeque<LaneJob>,
    /// What is worked on, to be told that nobody waits for it.
    at_work: Option<(u64, Arc<AtomicBool>)>,
    /// Somebody works on it, or is about to.
    busy: bool,
    ended: bool,
}

struct LaneJob {
    wave: u64,
    tag: i32,
    payload: Bytes,
    answer: bool,
    deadline: Option<Instant>,
    /// Its bytes count as under way until it has been dealt with.
    frame_bytes: usize,
    /// The memory of the payload.
    _held: Holding,
    over: Arc<AtomicBool>,
}

impl Service for Lanes {
    fn opened(&mut self, stream: u32, caller: &Caller) {
        let uid = match caller {
            Caller::User { uid, is_owner: false, .. } => Some(*uid),
            _ => None,
        };
        let queue = LaneQueue { coming_held: Holding::of(uid), ..LaneQueue::default() };
        let (queue, worker) = (Mutex::new(queue), Mutex::default());
        let (post, open) = (Arc::clone(&self.post), Arc::clone(&self.blocking.open));
        let identity = match self.blocking.users {
            LaneUsers::Judged => Ok(None),
            LaneUsers::Process | LaneUsers::Callers => Identity::of(caller),
        };
        let caller = Arc::new(caller.clone());
        let lane = Lane { stream, caller, identity, post, open, queue, worker };
        self.lanes.insert(stream, Arc::new(lane));
    }

    fn packet(&mut self, packet: Packet, leaf: &mut Leaf<'_>) {
        let Some(lane) = self.lanes.get(&packet.stream) else { return };
        if !lane.take_in(packet, leaf) {
            return;
        }
        let pool = &self.blocking.pool;
        let payer = match &self.blocking.charges {
            Some(charges) => lane.payer(&**charges),
            None => lane.user(),
        };
        let errand = LaneErrand { lane: Arc::clone(lane), payer };
        let refused =
            if pool.is_full_for(errand.user()) { Err(errand) } else { pool.spawn(errand) };
        if let Err(LaneErrand { lane, .. }) = refused {
            lane.refuse(Errno::AGAIN, leaf);
        }
    }

    fn cancelled(&mut self, stream: u32, wave: u64, leaf: &mut Leaf<'_>) {
        if let Some(lane) = self.lanes.get(&stream) {
            lane.cancel(wave, leaf);
        }
    }

    fn closed(&mut self, stream: u32) {
        if let Some(lane) = self.lanes.remove(&stream) {
            lane.end(&self.blocking.pool);
        }
    }

    fn ended(&mut self) {
        for (_, lane) in self.lanes.drain() {
            lane.end(&self.blocking.pool);
        }
    }
}

impl Lane {
    /// The user as whom it is worked on, unless that is the process's.
    fn user(&self) -> Option<u64> {
        self.identity.as_ref().ok()?.as_ref().map(|identity| identity.uid().into())
    }

    /// Whose share the next request takes.
    fn payer(&self, charges: &Charges) -> Option<u64> {
        let queue = self.queue();
        queue.waiting.front().and_then(|job| charges(self.stream, &job.payload))
    }

    fn queue(&self) -> MutexGuard<'_, LaneQueue> {
        lock(&self.queue)
    }

    /// Takes a part in; whether somebody has to be found to work on it.
    fn take_in(&self, packet: Packet, leaf: &mut Leaf<'_>) -> bool {
        let mut queue = self.queue();
        if packet.first {
            queue.coming = BytesMut::new();
            drop(queue.coming_held.take());
            queue.dropped = false;
            queue.asks = packet.expect.is_some();
            queue.deadline = packet.expect.map(|expect| Instant::now() + expect);
        }
        let part_bytes = if packet.first && packet.last { 0 } else { packet.payload.len() };
        if !queue.dropped
            && let Err(errno) = queue.coming_held.add(0, part_bytes)
        {
            queue.dropped = true;
            queue.coming = BytesMut::new();
            drop(queue.coming_held.take());
            if queue.asks {
                leaf.fail(packet.stream, packet.wave, errno);
            }
        }
        if queue.dropped {
            leaf.consumed(packet.stream, packet.frame_bytes);
            return false;
        }
        if !packet.last {
            queue.coming.extend_from_slice(&packet.payload);
            if queue.busy {
                // However many long packets come behind one that hangs, no more of them are here
                // than may be under way.
                queue.held += packet.frame_bytes;
            } else {
                // A packet may be longer than that; its own bound holds it.
                leaf.consumed(packet.stream, packet.frame_bytes);
            }
            return false;
        }
        let payload = if queue.coming.is_empty() {
            packet.payload
        } else {
            queue.coming.extend_from_slice(&packet.payload);
            queue.coming.split().freeze()
        };
        let (wave, tag, answer, deadline) = (packet.wave, packet.tag, queue.asks, queue.deadline);
        let frame_bytes = packet.frame_bytes + std::mem::take(&mut queue.held);
        let over = Arc::default();
        let _held = queue.coming_held.take();
        let job = LaneJob { wave, tag, payload, answer, deadline, frame_bytes, _held, over };
        queue.waiting.push_back(job);
        !std::mem::replace(&mut queue.busy, true)
    }

    /// Does all that waits, on a thread that may block.
    fn work(&self) {
        loop {
            let job = match self.next() {
                Ok(job) => job,
                Err(0) => return,
                Err(held) => {
                    return self.post.handle.with(|leaf| leaf.consumed(self.stream, held));
                }
            };
            let request = ServiceRequest {
                tag: job.tag,
                payload: job.payload,
                caller: Arc::clone(&self.caller),
                over: job.over,
            };
            let is_late = job.deadline.is_some_and(|deadline| deadline <= Instant::now());
            let answer = if is_late { Err(Errno::TIMEDOUT) } else { self.answer(&request) };
            self.post.handle.with(|leaf| {
                leaf.consumed(self.stream, job.frame_bytes);
                match answer {
                    _ if !job.answer => {}
                    Ok(bytes) => leaf.reply(self.stream, job.wave, job.tag, &bytes),
                    Err(errno) => leaf.fail(self.stream, job.wave, errno),
                }
            });
        }
    }

    /// What is to be done next; else the lane has nobody any more, and so many bytes of what is
    /// coming count no longer.
    fn next(&self) -> Result<LaneJob, usize> {
        let mut queue = self.queue();
        let job = queue.waiting.pop_front().filter(|_| !queue.ended);
        queue.at_work = job.as_ref().map(|job| (job.wave, Arc::clone(&job.over)));
        queue.busy = job.is_some();
        job.ok_or_else(|| std::mem::take(&mut queue.held))
    }

    fn answer(&self, request: &ServiceRequest) -> Result<Vec<u8>, Errno> {
        let mut worker = lock(&self.worker);
        let Post { leaf, rank, host, config, .. } = &*self.post;
        let site = Site { leaf: *leaf, rank: *rank, host, config };
        let done = catch_unwind(AssertUnwindSafe(|| {
            match worker.get_or_insert_with(|| (self.open)(&site, &self.caller)) {
                Ok(worker) => worker.request(request),
                Err(errno) => Err(*errno),
            }
        }));
        done.unwrap_or_else(|_| {
            tracing::error!(host, stream = self.stream, "a service has panicked at a request");
            *worker = Some(Err(Errno::NOTRECOVERABLE));
            Err(Errno::NOTRECOVERABLE)
        })
    }

    /// From here on this thread works as whoever has opened the stream.
    fn act(&self) -> Result<Option<Acting>, Errno> {
        self.identity.as_ref().map_err(|errno| *errno)?.as_ref().map(Identity::assume).transpose()
    }

    /// There is no thread for it, or it is not to be done.
    fn refuse(&self, errno: Errno, leaf: &mut Leaf<'_>) {
        loop {
            match self.next() {
                Ok(job) => {
                    leaf.consumed(self.stream, job.frame_bytes);
                    if job.answer {
                        leaf.fail(self.stream, job.wave, errno);
                    }
                }
                Err(held) => return leaf.consumed(self.stream, held),
            }
        }
    }

    /// Nobody waits for a request (`u64::MAX`: for none of those that have come): it is not begun,
    /// or told to stop.
    fn cancel(&self, wave: u64, leaf: &mut Leaf<'_>) {
        let mut queue = self.queue();
        let is_meant = |other: u64| wave == u64::MAX || other == wave;
        if let Some((_, over)) = queue.at_work.as_ref().filter(|(at, _)| is_meant(*at)) {
            over.store(true, Ordering::Relaxed);
        }
        queue.waiting.retain(|job| {
            let meant = is_meant(job.wave) && job.answer;
            if meant {
                leaf.consumed(self.stream, job.frame_bytes);
                leaf.fail(self.stream, job.wave, Errno::CANCELED);
            }
            !meant
        });
    }

    /// The stream is over. What its worker holds is dropped on a thread that may block.
    fn end(self: Arc<Self>, pool: &Arc<Pool<LaneErrand>>) {
        let mut queue = self.queue();
        queue.ended = true;
        if let Some((_, over)) = &queue.at_work {
            over.store(true, Ordering::Relaxed);
        }
        let busy = std::mem::replace(&mut queue.busy, true);
        drop(queue);
        if !busy && lock(&self.worker).is_some() {
            let payer = self.user();
            drop(pool.spawn(LaneErrand { lane: self, payer }));
        }
    }
}

impl Drop for Lane {
    /// What its worker holds is let go as it was taken.
    fn drop(&mut self) {
        let Some(worker) = lock(&self.worker).take() else { return };
        let _acting = self.act();
        drop(worker);
    }
}

/// A lane to be worked on.
struct LaneErrand {
    lane: Arc<Lane>,
    /// Whose share of the threads it takes.
    payer: Option<u64>,
}

impl Work for LaneErrand {
    fn user(&self) -> Option<u64> {
        self.payer
    }

    fn run(self) {
        let lane = self.lane;
        match lane.act() {
            Ok(_acting) => lane.work(),
            Err(errno) => lane.post.handle.with(|leaf| lane.refuse(errno, leaf)),
        }
    }

    fn refuse(self) -> Option<Self> {
        let lane = self.lane;
        lane.post.handle.with(|leaf| lane.refuse(Errno::AGAIN, leaf));
        None
    }
}
