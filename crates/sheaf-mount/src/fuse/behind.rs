//! Writes for which no program waits (`--write-behind`).
//!
//! The owner lends a file for writing if nobody else has it open (`owner/lending.rs`). This mount answers writes to such a
//! file at once and sends them to the owner in their order. Writes that follow each other are sent as one.
//!
//! Requests of this mount that could see a write wait until the owner has it. Programs that open the file elsewhere wait in
//! the owner's kernel, which has the loan called back. An error is reported once: by the next write, by `fsync` or by
//! `close`. Later writes to the same file are dropped then.
//!
//! Programs still wait for appends, for synchronous writes, for writes to files in which ranges are locked, and for the
//! first writes to a file: a file is lent when a program writes on from where it wrote before.
use super::device::WatchedDevice;
use super::loans::LoanOf;
use super::names::NamesAsked;
use super::reply::{ReplyAs, reply};
use super::request::KernelRequest;
use super::statistics::ATTRIBUTE as STATISTICS;
use super::underway::UnderWay;
use super::{Remote, View};
use crate::message::{FileAnswer, FileCall, FileCaller, NodeOp, decoded, encoded};
use bytes::Bytes;
use rustc_hash::{FxHashMap, FxHashSet};
use sheaf_core::{Errno, lock};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Bytes that are sent together, as many as a request may have.
const TOGETHER_MAX: usize = (1 << 20) - 4096;
/// Bytes that wait of one file, and of all files of all mounts of this process.
const FILE_BYTES_MAX: usize = 2 << 20;
const BYTES_MAX: usize = 64 << 20;
/// How many bytes wait now.
static BYTES: AtomicUsize = AtomicUsize::new(0);
/// How long a recall waits for writes before the owner is asked what else it wants.
const SETTLE_WAIT: Duration = Duration::from_millis(20);

/// A request that waits for earlier writes, or what sends writes.
pub(super) type AfterWrites = Pin<Box<dyn Future<Output = ()> + Send>>;

/// See the module.
#[derive(Default)]
pub(super) struct Behind {
    state: Mutex<BehindState>,
    /// A write is done.
    done: Notify,
}

#[derive(Default)]
struct BehindState {
    files: FxHashMap<u64, BehindFile>,
    /// Files and directories that were opened here. What was written to others is known to a view that is gone.
    open: FxHashSet<u64>,
    /// Files of which writes wait or are on their way.
    busy: usize,
}

/// An open file.
#[derive(Default)]
struct BehindFile {
    /// Where the last write ended.
    end: u64,
    waiting: VecDeque<WaitingWrite>,
    /// Bytes that wait or are on their way.
    bytes: usize,
    /// Writes that were taken, and that are done.
    taken: u64,
    done: u64,
    is_sending: bool,
    error: Option<Errno>,
}

/// Bytes to be written at an offset.
struct WaitingWrite {
    unique: u64,
    /// The last of the writes that are sent together.
    last: u64,
    offset: u64,
    flags: u32,
    bytes: Vec<u8>,
    who: FileCaller,
    /// User, group and process.
    caller: ((u32, u32), u32),
    node: u64,
    names: Option<NamesAsked>,
}

/// Writes to files, by their numbers, or room for one more to a file.
#[derive(Default)]
struct WaitsFor {
    writes: Vec<(u64, u64)>,
    room: Option<u64>,
}

/// How a request is dealt with.
pub(super) enum InOrder {
    /// At once. `lends` says that the owner is asked to lend the file. `failed` is the error that is reported in the end.
    Now { lends: bool, failed: Option<Errno> },
    /// It is answered. What is left to do.
    Done(Option<AfterWrites>),
    /// Later.
    After(AfterWrites),
}

/// What becomes of a write.
enum Taken {
    /// It is answered. Whether writes to the file are to be sent from now on.
    Later {
        begins: bool,
    },
    Waits(WaitsFor),
    Now {
        lends: bool,
    },
}

impl WaitingWrite {
    fn takes(&self, offset: u64, flags: u32, data: &[u8], caller: ((u32, u32), u32)) -> bool {
        self.offset + self.bytes.len() as u64 == offset
            && self.bytes.len() + data.len() <= TOGETHER_MAX
            && (self.flags, self.caller) == (flags, caller)
    }
}

impl BehindFile {
    fn is_busy(&self) -> bool {
        self.taken > self.done
    }
}

impl Behind {
    fn state(&self) -> MutexGuard<'_, BehindState> {
        lock(&self.state)
    }

    /// A file or a directory was opened.
    pub fn opened(&self, answer: &FileAnswer) {
        if let FileAnswer::Opened(handle)
        | FileAnswer::OpenedSized(handle, _)
        | FileAnswer::OpenedRunnable(handle)
        | FileAnswer::OpenedLent(handle, ..)
        | FileAnswer::Created(_, handle) = answer
        {
            self.state().open.insert(*handle);
        }
    }

    /// An open file was closed for the last time, which waits for all writes to it.
    fn closed(&self, handle: u64) {
        let mut state = self.state();
        state.open.remove(&handle);
        let closed = state.files.remove(&handle);
        drop(state);
        if let Some(errno) = closed.and_then(|file| file.error) {
            tracing::warn!(%errno, "a write has failed, and nobody was told");
        }
    }

    /// An error of writes before that this operation tells. What has become of writes to a file that another view has
    /// opened, as the one of a server that is gone, is not known.
    fn take_error(&self, op: &NodeOp) -> Option<Errno> {
        let (NodeOp::Write { handle, .. }
        | NodeOp::Flush { handle, .. }
        | NodeOp::Sync { handle, .. }) = op
        else {
            return None;
        };
        let mut state = self.state();
        if !state.open.contains(handle) {
            return Some(Errno::IO);
        }
        state.files.get_mut(handle)?.error.take()
    }

    /// The writes that an operation could see, or that are to be done before it.
    fn before(&self, op: &NodeOp) -> Option<WaitsFor> {
        let state = self.state();
        if state.busy == 0 {
            return None;
        }
        let of =
            |(handle, file): (&u64, &BehindFile)| file.is_busy().then_some((*handle, file.taken));
        let writes: Vec<(u64, u64)> = match op {
            // A file to which writes wait is open nowhere else.
            NodeOp::Write { handle, .. }
            | NodeOp::Read { handle, .. }
            | NodeOp::ReadPages { handle, .. }
            | NodeOp::Flush { handle, .. }
            | NodeOp::Release { handle, .. }
            | NodeOp::Sync { handle, .. }
            | NodeOp::Seek { handle, .. }
            | NodeOp::Allocate { handle, .. } => {
                state.files.get(handle).and_then(|file| of((handle, file))).into_iter().collect()
            }
            NodeOp::ReadLink { .. } => Vec::new(),
            // It is answered here, also if nothing gets to the owner.
            NodeOp::GetXattr { name, .. } if name == STATISTICS.as_bytes() => Vec::new(),
            _ => state.files.iter().filter_map(of).collect(),
        };
        (!writes.is_empty()).then_some(WaitsFor { writes, room: None })
    }

    fn is_over(&self, what: &WaitsFor) -> bool {
        let state = self.state();
        let is_done = |(handle, number): &(u64, u64)| {
            state.files.get(handle).is_none_or(|file| file.done >= *number)
        };
        let has_room =
            |handle| state.files.get(&handle).is_none_or(|file| file.bytes <= FILE_BYTES_MAX / 2);
        what.writes.iter().all(is_done) && what.room.is_none_or(has_room)
    }

    async fn wait(&self, what: &WaitsFor) {
        loop {
            let told = self.done.notified();
            tokio::pin!(told);
            told.as_mut().enable();
            if self.is_over(what) {
                return;
            }
            told.await;
        }
    }

    /// Waits for a moment for writes to files that are called back. Those to which none are left.
    pub async fn settled(&self, handles: &[u64]) -> Vec<u64> {
        let what = {
            let state = self.state();
            let of = |handle: &u64| Some((*handle, state.files.get(handle)?.taken));
            WaitsFor { writes: handles.iter().filter_map(of).collect(), room: None }
        };
        // Whoever waits longer is told so by the owner again.
        let _ = tokio::time::timeout(SETTLE_WAIT, self.wait(&what)).await;
        let state = self.state();
        let is_done = |handle: &&u64| state.files.get(handle).is_none_or(|file| !file.is_busy());
        handles.iter().filter(is_done).copied().collect()
    }

    /// Takes a write, if it need not be waited for. `is_lent` says whether the file is lent at this moment.
    fn take(
        &self,
        (handle, offset, flags): (u64, u64, u32),
        (data, caller): (&[u8], ((u32, u32), u32)),
        is_lent: impl FnOnce() -> bool,
        write: impl FnOnce(Option<&WaitingWrite>) -> WaitingWrite,
    ) -> Taken {
        let mut state = self.state();
        let BehindState { files, busy, .. } = &mut *state;
        let file = files.entry(handle).or_default();
        let goes_on = offset > 0 && file.end == offset;
        // Whoever calls the file back sees what is taken here, or has done so before.
        if !is_lent() {
            if file.is_busy() {
                return Taken::Waits(WaitsFor { writes: vec![(handle, file.taken)], room: None });
            }
            file.end = offset.saturating_add(data.len() as u64);
            return Taken::Now { lends: goes_on };
        }
        let all = BYTES.load(Ordering::Relaxed);
        if file.bytes + data.len() > FILE_BYTES_MAX || all + data.len() > BYTES_MAX {
            let writes =
                if all + data.len() > BYTES_MAX { vec![(handle, file.taken)] } else { Vec::new() };
            if file.is_busy() {
                return Taken::Waits(WaitsFor { writes, room: Some(handle) });
            }
            return Taken::Now { lends: true };
        }
        file.end = offset.saturating_add(data.len() as u64);
        BYTES.fetch_add(data.len(), Ordering::Relaxed);
        file.bytes += data.len();
        *busy += usize::from(!file.is_busy());
        file.taken += 1;
        match file.waiting.back_mut() {
            Some(last) if last.takes(offset, flags, data, caller) => {
                last.bytes.extend_from_slice(data);
                last.last = file.taken;
            }
            last => {
                let new = write(last.as_deref());
                file.waiting.push_back(WaitingWrite { last: file.taken, ..new });
            }
        }
        Taken::Later { begins: !std::mem::replace(&mut file.is_sending, true) }
    }

    /// What is to be sent next to a file.
    fn next(&self, handle: u64) -> Option<WaitingWrite> {
        let mut state = self.state();
        let file = state.files.get_mut(&handle)?;
        let next = file.waiting.pop_front();
        file.is_sending = next.is_some();
        next
    }

    /// All up to the last of some writes are done, or have failed. Writes that are dropped.
    fn sent(
        &self,
        handle: u64,
        (last, bytes): (u64, usize),
        sent: Result<(), Errno>,
    ) -> Vec<WaitingWrite> {
        let mut state = self.state();
        let BehindState { files, busy, .. } = &mut *state;
        let Some(file) = files.get_mut(&handle) else { return Vec::new() };
        let mut dropped = Vec::new();
        (file.done, file.bytes) = (last, file.bytes - bytes);
        BYTES.fetch_sub(bytes, Ordering::Relaxed);
        if let Err(errno) = sent {
            file.error.get_or_insert(errno);
            dropped = file.waiting.drain(..).collect();
            BYTES.fetch_sub(std::mem::take(&mut file.bytes), Ordering::Relaxed);
            file.done = file.taken;
        }
        *busy -= usize::from(!file.is_busy());
        drop(state);
        self.done.notify_waiters();
        dropped
    }
}

impl Drop for BehindState {
    fn drop(&mut self) {
        let bytes = self.files.values().map(|file| file.bytes).sum();
        BYTES.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl<R: Remote> View<R> {
    /// Keeps a request in order with writes that are not done yet. `is_next` says that it has waited for those before it.
    pub(super) fn in_order(
        self: &Arc<Self>,
        device: &Arc<WatchedDevice>,
        request: &KernelRequest<'_>,
        (op, data): (&NodeOp, &[u8]),
        is_next: bool,
    ) -> Result<InOrder, Errno> {
        let NodeOp::Write { handle, offset, flags } = *op else {
            if !is_next && let Some(before) = self.behind.before(op) {
                return Ok(InOrder::After(self.after_writes(device, (request, op), before)));
            }
            match op {
                NodeOp::Release { handle, .. } => self.behind.closed(*handle),
                // The owner may close the file for writing, and with it ends the loan.
                NodeOp::Flush { handle, .. } => self.borrowed.writes_no_more(*handle),
                _ => {}
            }
            return match (op, self.behind.take_error(op)) {
                // Its locks are freed all the same.
                (NodeOp::Flush { .. }, failed) | (_, failed @ None) => {
                    Ok(InOrder::Now { lends: false, failed })
                }
                (_, Some(errno)) => Err(errno),
            };
        };
        if let Some(errno) = self.behind.take_error(op) {
            return Err(errno);
        }
        let waits = flags & (libc::O_APPEND | libc::O_SYNC | libc::O_DSYNC) as u32 != 0
            || lock(&self.locked).contains(&request.node());
        if waits {
            return Ok(match self.behind.before(op) {
                Some(before) => InOrder::After(self.after_writes(device, (request, op), before)),
                None => InOrder::Now { lends: false, failed: None },
            });
        }
        let caller = (request.user_and_group(), request.pid());
        let write = |last: Option<&WaitingWrite>| {
            let who = match last.filter(|last| last.caller == caller) {
                Some(last) => last.who.clone(),
                None => request.who(op, self.remote.ids()),
            };
            let names = self.begin_names(device, request, op);
            let (unique, node, bytes) = (request.unique(), request.node(), data.to_vec());
            WaitingWrite { unique, last: 0, offset, flags, bytes, who, caller, node, names }
        };
        let is_lent = || self.borrowed.is_lent_to_write(handle, Instant::now());
        match self.behind.take((handle, offset, flags), (data, caller), is_lent, write) {
            Taken::Waits(before) => {
                Ok(InOrder::After(self.after_writes(device, (request, op), before)))
            }
            Taken::Now { lends } => Ok(InOrder::Now {
                lends: lends && self.borrowed.may_ask_to_write(handle, Instant::now()),
                failed: None,
            }),
            Taken::Later { begins } => {
                self.counters.asked();
                let (_, unused) = self.recent.take(request.pid(), op, Instant::now());
                self.forget_at_owner(unused);
                let count = FileAnswer::Count(data.len() as u64);
                if let Err(errno) = reply(device, request.unique(), &ReplyAs::Written, count, &[]) {
                    tracing::debug!(%errno, "that it is written was not told");
                }
                let (view, device) = (self.clone(), device.clone());
                Ok(InOrder::Done(begins.then(|| -> AfterWrites {
                    Box::pin(async move { view.send_writes(&device, handle).await })
                })))
            }
        }
    }

    /// Begins with a request when writes before it are done.
    fn after_writes(
        self: &Arc<Self>,
        device: &Arc<WatchedDevice>,
        (request, op): (&KernelRequest<'_>, &NodeOp),
        before: WaitsFor,
    ) -> AfterWrites {
        let (view, device, bytes) = (self.clone(), device.clone(), request.bytes().to_vec());
        let under_way = UnderWay::new(self, request, op).uncounted();
        let unique = request.unique();
        Box::pin(async move {
            view.behind.wait(&before).await;
            // Whoever would wait for a lock was interrupted.
            if under_way.was_told().await {
                return device.refuse(unique, Errno::INTR);
            }
            drop(under_way);
            if let Some(rest) = view.begin(&device, &bytes, true) {
                rest.await;
            }
        })
    }

    /// Sends what waits to be written to a file.
    async fn send_writes(self: Arc<Self>, device: &Arc<WatchedDevice>, handle: u64) {
        while let Some(write) = self.behind.next(handle) {
            let sent = (write.last, write.bytes.len());
            let result = self.send_write(device, handle, write).await;
            for dropped in self.behind.sent(handle, sent, result) {
                dropped.names.into_iter().for_each(|names| self.names.unsettled(names));
            }
        }
    }

    async fn send_write(
        self: &Arc<Self>,
        device: &Arc<WatchedDevice>,
        handle: u64,
        write: WaitingWrite,
    ) -> Result<(), Errno> {
        let WaitingWrite { unique, offset, flags, bytes, who, caller, node, names, .. } = write;
        let (_shown, pid) = (UnderWay::of_write(self, unique, caller), caller.1);
        let mut names = names.map(|names| (names, who.clone()));
        let mut at = 0;
        while at < bytes.len() {
            let asked = self.borrowed.asking(Instant::now());
            let keeps_names = names.as_ref().is_some_and(|(names, _)| names.keeps);
            let op = NodeOp::WriteBehind { handle, offset: offset + at as u64, flags };
            let call = FileCall { who: who.clone(), pid, keeps_names, op };
            let all = match encoded(&call, &bytes[at..]) {
                Ok(call) => self.remote.call(call).await,
                Err(errno) => Err(errno),
            };
            let all = all.inspect_err(|_| {
                names.take().into_iter().for_each(|(names, _)| self.names.unsettled(names));
            })?;
            let (answer, _) = decoded::<Result<FileAnswer, Errno>>(&all)?;
            let answer = self.note_names(names.take(), (node, pid), answer)?;
            let lent = (node, &LoanOf::Written { handle }, asked);
            match self.borrow(device, lent, answer, &Bytes::new(), &[]).0 {
                FileAnswer::Count(0) => return Err(Errno::IO),
                FileAnswer::Count(written) if written <= (bytes.len() - at) as u64 => {
                    at += written as usize;
                }
                _ => return Err(Errno::PROTO),
            }
        }
        Ok(())
    }
}
