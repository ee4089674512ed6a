//! Requests of locks: waiting for one, and keeping those that are held when the owner's server is restarted.
use super::held::{HeldLock, LockSet};
use super::{Remote, View, WatchedDevice};
use crate::message::{
    FileAnswer, FileCall, FileCaller, FileLock, FileLockKind, NodeOp, decoded, encoded,
};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use sheaf_core::Errno;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// How long a waiter waits until it asks again: at first, and at most.
const LOCK_PAUSE_MIN: Duration = Duration::from_millis(1);
const LOCK_PAUSE_MAX: Duration = Duration::from_millis(50);
/// How long an interrupted waiter waits until the owner knows of it.
const END_WAIT_MAX: Duration = Duration::from_secs(1);
/// How often the owner is asked whether it still has the locks.
const KEEP_PAUSE: Duration = Duration::from_millis(500);
/// Locks that are claimed at a time.
const CLAIMS_MAX: usize = 16;

/// A request that sets a lock or tests for one.
pub(super) struct LockAsked {
    node: u64,
    handle: u64,
    lock: FileLock,
    /// For as long as another lock is in the way.
    waits: bool,
    who: FileCaller,
}

impl<R: Remote> View<R> {
    /// Notes what a request is about to do to locks. Returns what is to be known of one that sets a lock or tests for
    /// one.
    ///
    /// # Errors
    /// `ENOLCK` if this host holds too many.
    pub(super) fn of_locks(
        &self,
        node: u64,
        op: &mut NodeOp,
        who: impl FnOnce(&NodeOp) -> FileCaller,
    ) -> Result<Option<LockAsked>, Errno> {
        let (handle, lock, waits) = match op {
            NodeOp::SetLock { lock, .. } if lock.kind == FileLockKind::None => {
                self.held.unlocked(node, lock);
                return Ok(None);
            }
            NodeOp::SetLock { handle, lock, waits, wants_file, .. } => {
                *wants_file = self.held.wants_file(node)?;
                (*handle, *lock, *waits)
            }
            NodeOp::TestLock { handle, lock } => (*handle, *lock, false),
            NodeOp::Flush { owner, .. } => {
                self.held.flushed(node, *owner);
                return Ok(None);
            }
            NodeOp::Release { handle, owner, .. } => {
                self.held.released(node, *handle, *owner);
                return Ok(None);
            }
            _ => return Ok(None),
        };
        Ok(Some(LockAsked { node, handle, lock, waits, who: who(op) }))
    }

    /// Asks for a lock until it is there or in the way, or the process that wants it is interrupted.
    pub(super) async fn wait_for_lock(
        &self,
        told: &Notify,
        call: Vec<u8>,
        asked: &LockAsked,
    ) -> Result<Bytes, Errno> {
        let mut pause = LOCK_PAUSE_MIN;
        loop {
            let answer = self.remote.call(call.clone()).await?;
            let (is, _) = decoded::<Result<FileAnswer, Errno>>(&answer)?;
            let is_to_wait = match is {
                Ok(FileAnswer::InGrace) => true,
                Err(Errno::AGAIN | Errno::ACCES) => asked.waits,
                _ => false,
            };
            if !is_to_wait {
                return Ok(answer);
            }
            tokio::select! {
                () = told.notified() => {
                    // An owner that does not hear of it lets the wait expire.
                    let ended = self.ask_owner(NodeOp::EndWait { owner: asked.lock.owner });
                    drop(tokio::time::timeout(END_WAIT_MAX, ended).await);
                    return Err(Errno::INTR);
                }
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(LOCK_PAUSE_MAX),
            }
        }
    }

    /// Remembers a lock that was set.
    pub(super) fn note_lock(
        self: &Arc<Self>,
        device: &Arc<WatchedDevice>,
        asked: &LockAsked,
        answer: &FileAnswer,
    ) {
        let FileAnswer::Locked(instance, file) = answer else { return };
        let LockAsked { node, handle, lock, ref who, .. } = *asked;
        let starts =
            self.held.locked(&LockSet { who, node, handle, lock }, *instance, file.clone());
        if starts {
            sheaf_tree::task::spawn(keep_locks(self.clone(), device.clone()));
        }
    }

    /// Asks the owner something on behalf of the mount itself.
    pub(super) async fn ask_owner(&self, op: NodeOp) -> Result<FileAnswer, Errno> {
        self.ask_owner_as(FileCaller::default(), op).await?
    }

    /// What the owner says; otherwise why the owner was not reached.
    async fn ask_owner_as(
        &self,
        who: FileCaller,
        op: NodeOp,
    ) -> Result<Result<FileAnswer, Errno>, Errno> {
        let answer = self
            .remote
            .call(encoded(&FileCall { who, pid: 0, keeps_names: false, op }, &[])?)
            .await?;
        Ok(decoded::<Result<FileAnswer, Errno>>(&answer)?.0)
    }

    /// Claims locks again if the owner does not have them any more.
    ///
    /// # Errors
    /// Why the owner was not reached. It is asked again then.
    async fn claim_locks(&self, device: &Arc<WatchedDevice>) -> Result<(), Errno> {
        let FileAnswer::Instance(instance) = self.ask_owner(NodeOp::KeepLocks).await? else {
            return Err(Errno::PROTO);
        };
        let all = self.held.of_others(instance);
        if all.is_empty() {
            return Ok(());
        }
        let claims = stream::iter(all.clone()).map(|one| self.claim(one));
        let claims: Vec<_> = claims.buffer_unordered(CLAIMS_MAX).collect().await;
        let is_lost = claims.into_iter().try_fold(false, |lost, one| one.map(|is| lost | !is))?;
        if !is_lost {
            self.held.claimed(&all, instance);
            return Ok(());
        }
        self.ask_owner(NodeOp::LoseFiles).await?;
        self.held.lost(instance);
        self.borrowed.lost();
        self.pages.drop_all(device).await;
        let locks = all.len();
        tracing::warn!(locks, "locks were lost with the owner's server: all open files of it fail");
        Ok(())
    }

    /// Claims a lock. Returns whether the owner has set it.
    async fn claim(&self, held: HeldLock) -> Result<bool, Errno> {
        if !self.held.is_held(&held) {
            return Ok(true);
        }
        let HeldLock { who, node, handle, file, lock, .. } = held.clone();
        let claim = NodeOp::ReclaimLock { node, handle, file, lock };
        let answer = self.ask_owner_as(who.clone(), claim).await?;
        if !self.held.is_held(&held) {
            let lock = FileLock { kind: FileLockKind::None, ..lock };
            let free = NodeOp::SetLock { node, handle, lock, waits: false, wants_file: false };
            drop(self.ask_owner_as(who, free).await?);
            return Ok(true);
        }
        Ok(answer.is_ok())
    }
}

/// Asks the owner now and then whether it still has the locks, as long as there are any.
async fn keep_locks<R: Remote>(view: Arc<View<R>>, device: Arc<WatchedDevice>) {
    let (view, device) = {
        let weak = (Arc::downgrade(&view), Arc::downgrade(&device));
        drop((view, device));
        weak
    };
    loop {
        tokio::time::sleep(KEEP_PAUSE).await;
        // Locks end with the view, whose lanes are dropped with it.
        let (Some(view), Some(device)) = (view.upgrade(), device.upgrade()) else { return };
        if !view.held.goes_on() {
            return;
        }
        if let Err(errno) = view.claim_locks(&device).await {
            tracing::debug!(%errno, "the owner does not say whether it has the locks");
        }
    }
}
