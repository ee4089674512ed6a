//! Those who wait for a request that is at work hear of it before they give it up.
//!
//! A deadline bounds silence, not work. A tool may take long over one step, but while it works it
//! asks now and then whether it is to go on
//! ([`Host::should_stop`](crate::tool::Host::should_stop)). Once a quarter of the time is over, the
//! wave is answered from there: nothing yet, and more to come. The client asks for more, and the
//! step goes on for that request. A host that does not come to ask, because it hangs in a system
//! call, misses its deadline.
use super::call::said;
use super::lane::AtOnce;
use super::{GroupJob, GroupLane};
use crate::aggregate::Partial;
use crate::tool::AskedTool;
use bytes::Bytes;
use sheaf_core::{Errno, lock};
use sheaf_tree::service::LeafHandle;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How often it is looked whether the client has asked for more, after it was told to.
const LOOK: Duration = Duration::from_millis(2);
/// How often it is looked whether somebody waits behind input that is being taken in.
const FEED_LOOK: Duration = Duration::from_millis(100);

/// What can be said of a request before it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttentionKind {
    /// A tool's answer, whose body comes at once from this leaf: there will be more.
    Answer { eager: u32 },
    /// Input for a tool: it is being taken in.
    Feed,
    /// Nothing.
    Whole,
}

/// The request that a lane is at work on.
pub(super) struct Attention {
    lane: Arc<GroupLane>,
    handle: LeafHandle,
    leaf: u32,
    present: Mutex<Present>,
}

#[derive(Debug, Clone)]
struct Present {
    /// The newest request that was taken up.
    wave: u64,
    kind: AttentionKind,
    /// Somebody waits for its answer.
    waits: bool,
    /// Nobody does any more.
    cancelled: Arc<AtomicBool>,
    deadline: Option<Instant>,
    /// When what there is is to be said, after a step; and when a step is interrupted to say
    /// something.
    pause_at: Option<Instant>,
    due: Option<Instant>,
}

impl Present {
    fn new(job: &GroupJob, kind: AttentionKind, now: Instant) -> Self {
        let part = |of: u32| job.deadline.map(|at| now + at.saturating_duration_since(now) / of);
        let due = if kind == AttentionKind::Feed { Some(now + FEED_LOOK) } else { part(4) };
        let cancelled = Arc::clone(&job.cancelled);
        let (waits, deadline) = (job.answer, job.deadline);
        Self { wave: job.wave, kind, waits, cancelled, deadline, pause_at: part(8), due }
    }

    fn is_late(&self, now: Instant) -> bool {
        self.waits && self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

impl Attention {
    pub fn new(
        lane: &Arc<GroupLane>,
        handle: &LeafHandle,
        leaf: u32,
        job: &GroupJob,
        kind: AttentionKind,
    ) -> Self {
        let present = Mutex::new(Present::new(job, kind, Instant::now()));
        Self { lane: Arc::clone(lane), handle: handle.clone(), leaf, present }
    }

    /// Whether it is time to say what there is.
    pub fn is_due(&self) -> bool {
        let present = self.present();
        present.waits && present.pause_at.is_some_and(|at| at <= Instant::now())
    }

    /// Who sends its body at once in the wave that waits for a tool's answer, if one does.
    pub fn waiting(&self) -> Option<u32> {
        let present = self.present();
        match present.kind {
            AttentionKind::Answer { eager } if present.waits => Some(eager),
            _ => None,
        }
    }

    /// The request that the answer is for, unless it has been answered.
    pub fn wave(&self) -> Option<u64> {
        let present = self.present();
        present.waits.then_some(present.wave)
    }

    fn present(&self) -> MutexGuard<'_, Present> {
        lock(&self.present)
    }

    /// Says that the host is at work, and takes up what has come meanwhile.
    fn show_life(&self, now: Instant) {
        let mut present = self.present().clone();
        if let (true, AttentionKind::Answer { eager }) = (present.waits, present.kind) {
            self.reply(present.wave, &said(self.leaf, false, b"", eager), 0);
            (present.waits, present.deadline) = (false, None);
        }
        present.due =
            Some(now + if present.kind == AttentionKind::Feed { FEED_LOOK } else { LOOK });
        while let Some((job, at_once)) = self.lane.next_at_once(self.leaf, present.kind, now) {
            match at_once {
                AtOnce::OfThis(kind) => {
                    present = Present::new(&job, kind, now);
                    self.handle.with(|leaf| leaf.consumed(self.lane.stream, job.frame_bytes));
                    break;
                }
                AtOnce::OfOthers => self.reply(job.wave, &Partial::default(), job.frame_bytes),
                AtOnce::Early(eager) => {
                    self.reply(job.wave, &said(self.leaf, false, b"", eager), job.frame_bytes);
                }
            }
        }
        *self.present() = present;
    }

    fn reply(&self, wave: u64, partial: &Partial, consumed: usize) {
        let mut bytes = Vec::new();
        partial.encode(&mut bytes);
        let bytes = Bytes::from(bytes);
        self.lane.remember(wave, &bytes);
        self.handle.with(|leaf| {
            leaf.consumed(self.lane.stream, consumed);
            leaf.reply(self.lane.stream, wave, 0, &bytes);
        });
    }
}

impl AskedTool for Attention {
    fn stopped(&self) -> Option<Errno> {
        let present = self.present();
        let is_over = [&*present.cancelled, &*self.lane.ended, &self.lane.last];
        if is_over.into_iter().any(|over| over.load(Ordering::Relaxed)) {
            return Some(Errno::CANCELED);
        }
        if present.deadline.is_none() && present.due.is_none() {
            return None;
        }
        let now = Instant::now();
        if present.is_late(now) {
            return Some(Errno::TIMEDOUT);
        }
        let is_due =
            present.kind != AttentionKind::Whole && present.due.is_some_and(|due| due <= now);
        drop(present);
        if is_due {
            self.show_life(now);
        }
        None
    }

    fn is_late(&self) -> bool {
        self.present().is_late(Instant::now())
    }
}
