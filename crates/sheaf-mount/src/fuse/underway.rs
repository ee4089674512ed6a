//! Requests that are under way, which the kernel may interrupt.
use super::request::KernelRequest;
use super::{Remote, View, abi};
use crate::message::{NodeName, NodeOp, ROOT};
use rustc_hash::FxHashMap;
use sheaf_core::lock;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The requests of one mount that are under way, by their numbers.
pub(super) type CallsUnderWay = Arc<CallsOfMount>;
type CallsOfMount = Mutex<FxHashMap<u64, CallUnderWay>>;

/// Those of file systems below exports, which are mounts of their own and shown with the one above: the client, and they.
static BELOW: Mutex<Vec<(u128, Weak<CallsOfMount>)>> = Mutex::new(Vec::new());

/// None yet, of a mount whose top is this node.
pub(super) fn calls_of_mount<R: Remote>(remote: &R, root: u64) -> CallsUnderWay {
    let calls = CallsUnderWay::default();
    if root != ROOT {
        let mut below = lock(&BELOW);
        below.retain(|(_, calls)| calls.strong_count() > 0);
        below.push((remote.client(), Arc::downgrade(&calls)));
    }
    calls
}

/// Those of a mount of a client, and of all that is mounted below it.
pub(super) fn with_below(own: &CallsUnderWay, client: u128) -> Vec<CallsUnderWay> {
    let below = lock(&BELOW);
    let below =
        below.iter().filter(|(of, _)| *of == client).filter_map(|(_, calls)| calls.upgrade());
    std::iter::once(own.clone()).chain(below).collect()
}

/// A request that is under way until this is dropped.
pub(super) struct UnderWay<R: Remote> {
    view: Arc<View<R>>,
    unique: u64,
    begun: Instant,
    /// Ends its wait for a lock.
    pub told: Option<Arc<Notify>>,
    /// It is no request to the owner yet.
    is_uncounted: bool,
}

/// A request that is under way, as it is shown.
pub(super) struct CallUnderWay {
    pub told: Option<Arc<Notify>>,
    pub begun: Instant,
    pub opcode: u32,
    pub pid: u32,
    pub user: u32,
    pub name: Option<Box<[u8]>>,
}

impl<R: Remote> UnderWay<R> {
    /// A request that does this; one of a lock may wait for long.
    pub fn new(view: &Arc<View<R>>, request: &KernelRequest<'_>, op: &NodeOp) -> Self {
        let is_of_lock = matches!(op, NodeOp::SetLock { .. } | NodeOp::TestLock { .. });
        let told = is_of_lock.then(Arc::<Notify>::default);
        let (unique, begun) = (request.unique(), Instant::now());
        let call = CallUnderWay {
            told: told.clone(),
            begun,
            opcode: request.opcode(),
            pid: request.pid(),
            user: request.user(),
            name: name_of(op).map(|at| at.name.as_slice().into()),
        };
        lock(&view.under_way).insert(unique, call);
        Self { view: view.clone(), unique, begun, told, is_uncounted: false }
    }

    /// A write for which its program does not wait.
    pub fn of_write(view: &Arc<View<R>>, unique: u64, ((user, _), pid): ((u32, u32), u32)) -> Self {
        let (opcode, begun) = (abi::fuse_opcode::FUSE_WRITE as u32, Instant::now());
        let call = CallUnderWay { told: None, begun, opcode, pid, user, name: None };
        lock(&view.under_way).insert(unique, call);
        Self { view: view.clone(), unique, begun, told: None, is_uncounted: false }
    }

    /// The same of a request that waits for others.
    pub fn uncounted(mut self) -> Self {
        self.is_uncounted = true;
        self
    }

    /// Whether its wait for a lock was ended before it began.
    pub async fn was_told(&self) -> bool {
        let Some(told) = &self.told else { return false };
        tokio::time::timeout(Duration::ZERO, told.notified()).await.is_ok()
    }
}

fn name_of(op: &NodeOp) -> Option<&NodeName> {
    match op {
        NodeOp::Lookup(at)
        | NodeOp::Make { at, .. }
        | NodeOp::Symlink { at, .. }
        | NodeOp::Remove { at, .. }
        | NodeOp::Rename { from: at, .. }
        | NodeOp::Link { to: at, .. }
        | NodeOp::Create { at, .. } => Some(at),
        _ => None,
    }
}

impl<R: Remote> Drop for UnderWay<R> {
    fn drop(&mut self) {
        lock(&self.view.under_way).remove(&self.unique);
        if !self.is_uncounted {
            self.view.counters.answered(self.begun.elapsed());
        }
    }
}
