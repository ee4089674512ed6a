//! A lane: the requests of one stream on one host, done in the order in which they came.
use super::Occupant;
use super::attention::AttentionKind;
use crate::message::Request;
use bytes::{Bytes, BytesMut};
use sheaf_core::{Errno, lock};
use sheaf_tree::proto::Packet;
use sheaf_tree::service::identity::{Acting, Identity};
use sheaf_tree::service::share::Holding;
use sheaf_tree::service::{Caller, Leaf};
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

/// Cancellations that may be ahead of their requests; there are few, as each is of one request.
const CANCELLED_MAX: usize = 1 << 12;

pub(super) struct GroupLane {
    pub stream: u32,
    /// As whom its requests are done, if not as the process's user; or why they are not.
    identity: Result<Option<Arc<Identity>>, Errno>,
    pub caller: Arc<Caller>,
    queue: Mutex<GroupQueue>,
    pub occupant: Mutex<Occupant>,
    /// The last reply, for a request that comes twice.
    replied: Mutex<Option<(u64, Bytes)>>,
    /// The stream is over.
    pub ended: Arc<AtomicBool>,
    /// A [`Request::Last`] has come: nobody wants what was asked for before.
    pub last: AtomicBool,
}

#[derive(Default)]
struct GroupQueue {
    jobs: VecDeque<GroupJob>,
    /// A thread is working on the lane; on this request, if it has an answer.
    busy: bool,
    current: Option<(u64, Arc<AtomicBool>)>,
    /// A request that is not complete yet.
    parts: Option<Parts>,
    /// One more than the number of the last request with an answer that has begun to arrive.
    next_wave: u64,
    /// Requests that were cancelled before they came: a cancellation waits for nothing.
    cancelled: BTreeSet<u64>,
}

pub(super) struct GroupJob {
    pub wave: u64,
    pub answer: bool,
    pub deadline: Option<Instant>,
    pub packet: Bytes,
    pub frame_bytes: usize,
    /// The memory of the packet, until it has been dealt with.
    _held: Holding,
    /// Nobody waits for the answer any more.
    pub cancelled: Arc<AtomicBool>,
    came: Instant,
}

/// What is answered while other work goes on.
pub(super) enum AtOnce {
    /// A request to other leaves, which only wants to know that this one lives.
    OfOthers,
    /// One for more of the answer that is being made, which is then of this kind, and the one that is worked on.
    OfThis(AttentionKind),
    /// One for an answer to input that is still being taken in: there is nothing yet, and will be more. Who sends its body
    /// at once.
    Early(u32),
}

impl GroupJob {
    /// Whether a quarter of its time is over.
    fn has_waited(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|at| {
            now.saturating_duration_since(self.came) * 3 >= at.saturating_duration_since(now)
        })
    }
}

struct Parts {
    wave: u64,
    answer: bool,
    deadline: Option<Instant>,
    parts: Vec<Bytes>,
    frame_bytes: usize,
    /// The memory of the parts, which is the user's: there may be one request under way on each of
    /// many streams.
    held: Holding,
    /// It is over already: what else comes of it is dropped.
    dropped: bool,
}

impl GroupLane {
    pub fn new(stream: u32, caller: &Caller) -> Self {
        let (queue, occupant, replied) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self {
            stream,
            identity: Identity::of(caller),
            caller: Arc::new(caller.clone()),
            queue,
            occupant,
            replied,
            ended: Arc::default(),
            last: AtomicBool::new(false),
        }
    }

    /// From here on this thread works as whoever has opened the stream, until what is returned is
    /// dropped.
    ///
    /// # Errors
    /// `EPERM` for whoever is not served here.
    pub fn act(&self) -> Result<Option<Acting>, Errno> {
        self.identity.as_ref().map_err(|errno| *errno)?.as_ref().map(Identity::assume).transpose()
    }

    /// The user that it is worked on as, unless that is the process's.
    pub fn user(&self) -> Option<u32> {
        self.identity.as_ref().ok()?.as_ref().map(|identity| identity.uid())
    }

    fn queue(&self) -> MutexGuard<'_, GroupQueue> {
        lock(&self.queue)
    }

    /// Takes in a part; returns whether a thread has to be started for the lane.
    ///
    /// A request may be longer than what may be under way, so while nothing else is to be done its
    /// parts are taken at once: one request, of bounded length, is put together at a time. One of
    /// which the rest never comes (its sender gave up) is over when the next one begins.
    pub fn enqueue(&self, packet: Packet, leaf: &mut Leaf<'_>) -> bool {
        let identity = self.identity.as_ref().ok().and_then(Option::as_ref);
        let user = identity.map(|identity| identity.uid());
        let mut queue = self.queue();
        let queue = &mut *queue;
        if packet.first {
            if let Some(old) = queue.parts.take() {
                leaf.consumed(self.stream, old.frame_bytes);
                old.give_up(self.stream, Errno::CANCELED, leaf);
            }
            queue.begin(&packet, user);
        }
        let Some(parts) = &mut queue.parts else {
            return self.drop_part(&packet, leaf);
        };
        let is_cancelled = parts.answer && queue.cancelled.contains(&parts.wave);
        if is_cancelled && !packet.last && !parts.dropped {
            parts.drop_all(self.stream, Errno::CANCELED, leaf);
        }
        let part_bytes = if packet.first && packet.last { 0 } else { packet.payload.len() };
        if !parts.dropped
            && let Err(errno) = parts.held.add(0, part_bytes)
        {
            parts.drop_all(self.stream, errno, leaf);
        }
        if parts.dropped {
            return self.drop_part(&packet, leaf);
        }
        parts.frame_bytes += packet.frame_bytes;
        parts.parts.push(packet.payload);
        if !packet.last {
            if !queue.busy {
                leaf.consumed(self.stream, std::mem::take(&mut parts.frame_bytes));
            }
            return false;
        }
        let job = queue.parts.take().map(|parts| parts.join(is_cancelled));
        if job.as_ref().is_some_and(|job| {
            matches!(Request::decode(&job.packet), Ok((Request::Last { .. }, _)))
        }) {
            self.last.store(true, Ordering::Relaxed);
        }
        queue.jobs.extend(job);
        !std::mem::replace(&mut queue.busy, true)
    }

    fn drop_part(&self, packet: &Packet, leaf: &mut Leaf<'_>) -> bool {
        leaf.consumed(self.stream, packet.frame_bytes);
        false
    }

    /// Cancels one request; `u64::MAX` means all that have come so far.
    pub fn cancel(&self, wave: u64, leaf: &mut Leaf<'_>) {
        let mut queue = self.queue();
        let is_meant = |other: u64| wave == u64::MAX || wave == other;
        for job in queue.jobs.iter().filter(|job| job.answer && is_meant(job.wave)) {
            job.cancelled.store(true, Ordering::Relaxed);
        }
        if let Some((current, cancelled)) = &queue.current
            && is_meant(*current)
        {
            cancelled.store(true, Ordering::Relaxed);
        }
        if let Some(parts) =
            queue.parts.as_mut().filter(|parts| parts.answer && is_meant(parts.wave))
        {
            parts.drop_all(self.stream, Errno::CANCELED, leaf);
        }
        if wave >= queue.next_wave && wave != u64::MAX && queue.cancelled.len() < CANCELLED_MAX {
            queue.cancelled.insert(wave);
        }
    }

    /// The next request; when there is none, the bytes of the one that is being put together.
    pub fn next(&self) -> Result<GroupJob, usize> {
        let mut queue = self.queue();
        let job = queue.jobs.pop_front();
        queue.busy = job.is_some();
        let current = job.as_ref().filter(|job| job.answer);
        queue.current = current.map(|job| (job.wave, Arc::clone(&job.cancelled)));
        job.ok_or_else(|| {
            queue.parts.as_mut().map_or(0, |parts| std::mem::take(&mut parts.frame_bytes))
        })
    }

    /// The next request, if it need not wait for the work that goes on. Behind the input that is taken in there may be
    /// more, which may take longer than anybody waits.
    pub fn next_at_once(
        &self,
        leaf: u32,
        at_work: AttentionKind,
        now: Instant,
    ) -> Option<(GroupJob, AtOnce)> {
        let mut queue = self.queue();
        let is_input = |job: &GroupJob| {
            !job.answer && matches!(Request::decode(&job.packet), Ok((Request::Feed, _)))
        };
        let at = match at_work {
            AttentionKind::Feed => queue.jobs.iter().position(|job| !is_input(job))?,
            _ => 0,
        };
        let job = queue.jobs.get(at).filter(|job| job.answer)?;
        let at_once = match Request::decode(&job.packet).ok()?.0 {
            Request::More { leaves, .. } | Request::Fetch { leaves, .. }
                if !leaves.contains(leaf) =>
            {
                AtOnce::OfOthers
            }
            Request::More { answer, .. } => match at_work {
                AttentionKind::Answer { .. } => {
                    AtOnce::OfThis(AttentionKind::Answer { eager: answer.eager })
                }
                AttentionKind::Feed if job.has_waited(now) => AtOnce::Early(answer.eager),
                _ => return None,
            },
            _ => return None,
        };
        let job = queue.jobs.remove(at)?;
        if let AtOnce::OfThis(_) = at_once {
            queue.current = Some((job.wave, Arc::clone(&job.cancelled)));
        }
        Some((job, at_once))
    }

    /// The reply to a request that comes twice; `ESTALE` for one that is older than the last.
    pub fn replied(&self, wave: u64) -> Option<Result<Bytes, Errno>> {
        match &*lock(&self.replied) {
            Some((last, reply)) if *last == wave => Some(Ok(reply.clone())),
            Some((last, _)) if *last > wave => Some(Err(Errno::STALE)),
            _ => None,
        }
    }

    /// Keeps a reply for a request that comes twice.
    pub fn remember(&self, wave: u64, reply: &Bytes) {
        *lock(&self.replied) = Some((wave, reply.clone()));
    }

    /// The stream is over: work under way stops. Whether nobody is at work on the lane who would
    /// drop what it holds.
    pub fn end(&self) -> bool {
        self.ended.store(true, Ordering::Relaxed);
        // What still waits is refused by whoever works on the lane, but a group is closed as asked.
        !self.queue().busy
    }
}

impl Drop for GroupLane {
    /// What was half done is undone as it was done.
    fn drop(&mut self) {
        let occupant = std::mem::take(&mut *lock(&self.occupant));
        if occupant.is_unused() {
            return;
        }
        match self.act() {
            Ok(_acting) => drop(occupant),
            // Nothing is open of whoever is not served; and better nothing is undone than by root.
            Err(_) if occupant.is_empty() => {}
            Err(errno) => {
                tracing::error!(%errno, "what a user has begun is not undone");
                std::mem::forget(occupant);
            }
        }
    }
}

impl GroupQueue {
    fn begin(&mut self, packet: &Packet, user: Option<u32>) {
        let answer = packet.expect.is_some();
        if answer {
            self.next_wave = packet.wave.saturating_add(1);
            self.cancelled = self.cancelled.split_off(&packet.wave);
        }
        self.parts = Some(Parts {
            wave: packet.wave,
            answer,
            deadline: packet.expect.map(|expect| Instant::now() + expect),
            parts: Vec::new(),
            frame_bytes: 0,
            held: Holding::of(user),
            dropped: false,
        });
    }
}

impl Parts {
    /// Answers a request of which no more is wanted or comes; once.
    fn give_up(&self, stream: u32, errno: Errno, leaf: &mut Leaf<'_>) {
        if self.answer && !self.dropped {
            leaf.fail(stream, self.wave, errno);
        }
    }

    fn drop_all(&mut self, stream: u32, errno: Errno, leaf: &mut Leaf<'_>) {
        self.give_up(stream, errno, leaf);
        self.dropped = true;
        self.parts = Vec::new();
        drop(self.held.take());
        leaf.consumed(stream, std::mem::take(&mut self.frame_bytes));
    }

    fn join(mut self, is_cancelled: bool) -> GroupJob {
        let packet = if self.parts.len() == 1 {
            self.parts.pop().unwrap_or_default()
        } else {
            let mut whole = BytesMut::with_capacity(self.parts.iter().map(Bytes::len).sum());
            self.parts.iter().for_each(|part| whole.extend_from_slice(part));
            whole.freeze()
        };
        GroupJob {
            wave: self.wave,
            answer: self.answer,
            deadline: self.deadline,
            packet,
            frame_bytes: self.frame_bytes,
            _held: self.held,
            cancelled: Arc::new(AtomicBool::new(is_cancelled)),
            came: Instant::now(),
        }
    }
}
