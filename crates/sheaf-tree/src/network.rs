//! The root's side of a running tree.
use crate::driver::{Shared, Want};
use crate::proto::control::SERVICE_BYTES_MAX;
use crate::proto::{Counters, Node, Notice, Outgoing, PacketContent, Sync, WaveResult};
use sheaf_core::{Errno, RangeSet, lock};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

mod load;
mod request;

pub use request::Pending;
use request::UnderWay;

/// A running tree, seen from its root. Ends when it is dropped; [`Network::shutdown`] waits for
/// the processes to be gone.
///
/// Cheap to clone; all clones are the same session.
#[derive(Clone)]
pub struct Network {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub shared: Arc<Shared>,
    leaves: u32,
    tasks: Vec<JoinHandle<()>>,
    over: Arc<SessionOver>,
    /// Who has answered that it lacks a service, or what was asked of it, by service.
    lacking: std::sync::Mutex<BTreeMap<Box<str>, RangeSet>>,
    /// What must be waited for and cleared away at the end.
    end: std::sync::Mutex<Option<Box<dyn NetworkEnd>>>,
}

/// Whether what a launcher started has come to its end by itself, so that nobody is left and nobody
/// comes.
#[derive(Default)]
pub(crate) struct SessionOver(tokio::sync::watch::Sender<Option<String>>);

impl SessionOver {
    /// It has, for this reason.
    pub fn tell(&self, why: String) {
        self.0.send_replace(Some(why));
    }
}

/// Ends what a launcher started.
pub(crate) trait NetworkEnd: Send {
    /// Waits for everything to be gone, with the launcher's own deadline.
    fn end(self: Box<Self>) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// Both at a time.
struct Both(Box<dyn NetworkEnd>, Box<dyn NetworkEnd>);

impl NetworkEnd for Both {
    fn end(self: Box<Self>) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            tokio::join!(self.0.end(), self.1.end());
        })
    }
}

impl Network {
    pub(crate) fn new(shared: Arc<Shared>, leaves: u32, end: Option<Box<dyn NetworkEnd>>) -> Self {
        let tasks = vec![crate::task::spawn(Arc::clone(&shared).keep_time())];
        let over = Arc::default();
        Self {
            inner: Arc::new(Inner {
                shared,
                leaves,
                tasks,
                over,
                lacking: std::sync::Mutex::default(),
                end: std::sync::Mutex::new(end),
            }),
        }
    }

    /// How many leaves the tree was planned with.
    #[must_use]
    pub fn leaf_count(&self) -> u32 {
        self.inner.leaves
    }

    /// Every leaf.
    #[must_use]
    pub fn everyone(&self) -> RangeSet {
        RangeSet::full(self.inner.leaves)
    }

    /// Waits until the tree has started as far as it will, at most `timeout`. Gives the leaves
    /// that run, or `None` when it is not done in time. Streams may be used before.
    pub async fn ready(&self, timeout: Duration) -> Option<RangeSet> {
        let ready = poll_fn(|cx| {
            self.inner.shared.peek(|core| match &core.membership.ready {
                Some(leaves) => Poll::Ready(leaves.clone()),
                None => {
                    core.mailbox.wait_for_event(cx.waker());
                    Poll::Pending
                }
            })
        });
        tokio::time::timeout(timeout, ready).await.ok()
    }

    /// Waits until the session has ended from the other side (a client's session was closed).
    pub async fn ended(&self) {
        self.inner.shared.ended().await;
    }

    /// Leaves below children of this process's node which wait for a place in the pool of logins:
    /// nothing has tried to start them so far.
    #[must_use]
    pub fn untried(&self) -> RangeSet {
        self.inner.shared.peek(|core| core.membership.untried.clone())
    }

    /// Leaves that are being started: nothing has come from them so far, nor is known why not. None where the tree is
    /// another process's.
    #[must_use]
    pub fn starting(&self) -> RangeSet {
        self.inner.shared.peek(|core| match core.membership.ready {
            None => self.everyone().difference(&core.nodes[0].present()),
            Some(_) => RangeSet::new(),
        })
    }

    /// How many leaves run, or are waited for because a link has just been lost.
    #[must_use]
    pub fn present(&self) -> u64 {
        self.inner.shared.peek(|core| core.nodes[0].present()).len()
    }

    /// Waits until nobody is left and nobody will come, because what had started the servers has
    /// ended them (a job of Slurm); says why.
    pub async fn deserted(&self) -> String {
        let mut over = self.inner.over.0.subscribe();
        let why = over.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
        // The session holds the other end, so somebody tells or nobody does.
        match why {
            Some(why) => why,
            None => std::future::pending().await,
        }
    }

    /// What other nodes have reported so far, oldest first (the newest
    /// [`crate::driver::NOTICES_MAX`] are kept).
    #[must_use]
    pub fn notices(&self) -> Vec<Notice> {
        self.inner.shared.peek(|core| core.membership.notices.to_vec())
    }

    /// When each of [`Network::notices`] came to this process, in seconds since 1970.
    #[must_use]
    pub fn notice_times(&self) -> Vec<u64> {
        self.inner.shared.peek(|core| core.membership.notices.times())
    }

    /// What other nodes have reported after the first `seen` notices of this session; waits for
    /// one. `seen` is moved on.
    pub async fn notices_from(&self, seen: &mut u64) -> Vec<Notice> {
        poll_fn(|cx| {
            self.inner.shared.peek(|core| {
                let news = core.membership.notices.after(seen);
                if !news.is_empty() {
                    return Poll::Ready(news);
                }
                core.mailbox.wait_for_event(cx.waker());
                Poll::Pending
            })
        })
        .await
    }

    /// The members of streams that the root and the nodes between it and the leaves are;
    /// [`crate::proto::own`] says which is whose.
    #[must_use]
    pub fn inner_nodes(&self) -> RangeSet {
        let all = self.inner.shared.peek(|core| core.nodes[0].config().leaves.clone());
        all.difference(&self.everyone())
    }

    /// An answer of each of these leaves does not decode: the nodes that have links to them are
    /// told. [`Notice::Garbled`] says it to all, and the second such answer of a leaf closes its
    /// link.
    pub fn report_garbled(&self, leaves: &RangeSet) {
        if leaves.is_empty() {
            return;
        }
        self.inner.shared.run(|core, now| {
            core.touch(0);
            core.nodes[0].report_garbled(now, leaves);
        });
    }

    /// Whether no stream is open.
    pub(crate) fn is_idle(&self) -> bool {
        self.inner.shared.peek(|core| !core.nodes[0].has_streams())
    }

    /// The next stream that a service of this name wants at some leaf
    /// ([`crate::service::Leaf::want_stream`]). Nobody else in this process may wait for those of
    /// the same service.
    pub async fn wanted(&self, service: &str) -> Want {
        poll_fn(|cx| {
            self.inner.shared.peek(|core| match core.mailbox.take_want(service) {
                Some(want) => Poll::Ready(want),
                None => {
                    core.mailbox.wait_for_event(cx.waker());
                    Poll::Pending
                }
            })
        })
        .await
    }

    /// Opens a stream to the service `service` of `members`, whose waves are combined by the filter
    /// `filter`. A member that has no such service answers `ENOSYS`.
    ///
    /// # Panics
    /// When the name of the service is longer than 64 bytes.
    #[must_use]
    pub fn open(
        &self,
        service: &str,
        members: RangeSet,
        filter: &str,
        params: &[u8],
        sync: Sync,
    ) -> Stream {
        assert!(
            service.len() <= SERVICE_BYTES_MAX,
            "no service has a name of more than {SERVICE_BYTES_MAX} bytes"
        );
        let open = |node: &mut Node| node.open(service, members, filter, params, sync);
        let id = self.inner.shared.with_node(0, open);
        let service = service.into();
        Stream { inner: Arc::clone(&self.inner), id, service, sending: Default::default() }
    }

    /// The services that some of `leaves` have said to lack, in whole or in part (`ENOSYS`) when
    /// something was asked of them ([`Stream::request`]), and who did.
    #[must_use]
    pub fn lacking(&self, leaves: &RangeSet) -> Vec<(String, RangeSet)> {
        let lacking = lock(&self.inner.lacking);
        let among =
            lacking.iter().map(|(service, lack)| (service.to_string(), lack.intersection(leaves)));
        among.filter(|(_, lack)| !lack.is_empty()).collect()
    }

    /// Bytes and frames between the root and its children so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.inner.shared.peek(|core| core.nodes[0].child_counters())
    }

    /// Whether something waits here until a link takes it: whoever drives the links is needed for
    /// that.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.inner.shared.peek(|core| core.is_behind())
    }

    /// Where the root listens for nodes of its session; `None` when all are in one process.
    #[must_use]
    pub fn door(&self) -> Option<crate::link::DoorAddress> {
        self.inner.shared.peek(|core| core.admission.door.clone())
    }

    /// Who was let in at the root's door, and who was not.
    #[must_use]
    pub fn audit(&self) -> crate::link::AuditCounts {
        self.inner.shared.peek(|core| core.admission.audit.counts())
    }

    /// When a connection at the root's door was last refused for this reason, in seconds since
    /// 1970; 0 for never.
    #[must_use]
    pub fn last_refused(&self, why: crate::link::Refusal) -> u64 {
        self.inner.shared.peek(|core| core.admission.audit.last_refused(why))
    }

    /// Ends the session: every process of it stops. Waits for those this process started.
    pub async fn shutdown(self) {
        self.inner.shared.with_node(0, Node::shut_down_children);
        let end = lock(&self.inner.end).take();
        if let Some(end) = end {
            end.end().await;
        }
    }

    /// Waits for `more` as well when the session is shut down.
    pub(crate) fn also_end(&self, more: Box<dyn NetworkEnd>) {
        let mut end = lock(&self.inner.end);
        *end = Some(match end.take() {
            Some(first) => Box::new(Both(first, more)),
            None => more,
        });
    }

    pub(crate) fn over(&self) -> Arc<SessionOver> {
        Arc::clone(&self.inner.over)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// A stream between the root and its members. Closed when dropped.
///
/// Packets are sent whole or not at all: when the future of one that is sent in parts is dropped
/// before its end, members drop the parts they have.
pub struct Stream {
    inner: Arc<Inner>,
    id: u32,
    service: Box<str>,
    sending: tokio::sync::Mutex<()>,
}

/// A stream could not be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The deadline passed.
    #[error("no result within the deadline")]
    TimedOut,
    /// The session has ended.
    #[error("the session has ended")]
    Ended,
}

impl StreamError {
    /// What it is to a caller of file operations.
    #[must_use]
    pub fn errno(self) -> Errno {
        match self {
            Self::TimedOut => Errno::TIMEDOUT,
            Self::Ended => Errno::HOSTDOWN,
        }
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Stream {
    /// Its identifier, as in notices.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Whether any member still takes part.
    #[must_use]
    pub fn has_members(&self) -> bool {
        self.inner.shared.peek(|core| core.nodes[0].has_members(self.id))
    }

    /// Sends a packet to every member, once there is room for it. With `expect`, their answers
    /// form a wave that ends after about that long at the latest (what was sent in time may take
    /// half a second to come); its number is returned.
    ///
    /// A long packet that is handed over (a `Vec`, or [`bytes::Bytes`] that others refer to as
    /// well) is not copied on its way to the links.
    pub async fn send(
        &self,
        tag: i32,
        payload: impl Into<PacketContent<'_>>,
        expect: Option<Duration>,
    ) -> u64 {
        self.send_packet(Outgoing::new(tag, payload, expect), false).await.unwrap_or(0)
    }

    /// [`Stream::send`] of a request of which members that do not answer in time are given up:
    /// they take no more part in the stream, and no later wave waits for them again.
    pub async fn ask(
        &self,
        tag: i32,
        payload: impl Into<PacketContent<'_>>,
        timeout: Duration,
    ) -> u64 {
        self.send_packet(Outgoing::new(tag, payload, Some(timeout)).once(), false)
            .await
            .unwrap_or(0)
    }

    /// The number of the packet's wave, or of the next one; `None` when the stream is closed. With
    /// `claim`, its answer is kept for who waits for just this wave.
    async fn send_packet(&self, mut outgoing: Outgoing<'_>, claim: bool) -> Option<u64> {
        /// Parts between two looks at what the links have taken.
        const PARTS: usize = 4;
        // A long packet goes out in parts as there is room; nobody else's may come in between.
        let _turn = self.sending.lock().await;
        let mut under_way = UnderWay { stream: self, wave: None };
        let wave = poll_fn(|cx| {
            loop {
                let sent = self.inner.shared.run(|core, now| {
                    core.touch(0);
                    for _ in 0..PARTS {
                        if !core.nodes[0].has_room(self.id) {
                            core.mailbox.wait_for_room(self.id, cx.waker());
                            return Poll::Pending;
                        }
                        let is_last = core.nodes[0].send_part(now, self.id, &mut outgoing);
                        if under_way.wave.is_none() && outgoing.is_request() {
                            under_way.wave = outgoing.wave();
                            under_way
                                .wave
                                .filter(|_| claim)
                                .inspect(|wave| core.mailbox.claims.add(self.id, *wave));
                        }
                        if is_last {
                            return Poll::Ready(true);
                        }
                    }
                    Poll::Ready(false)
                });
                match sent {
                    Poll::Ready(true) => return Poll::Ready(outgoing.wave()),
                    Poll::Ready(false) => {}
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await;
        under_way.wave = None;
        wave
    }

    /// The next result of the stream, in the order in which they became ready.
    pub async fn recv(&self) -> WaveResult {
        poll_fn(|cx| {
            self.inner.shared.run(|core, _| match core.nodes[0].take(self.id) {
                Some(result) => {
                    core.touch(0);
                    Poll::Ready(result)
                }
                None => {
                    core.mailbox.wait_for_result(self.id, cx.waker());
                    Poll::Pending
                }
            })
        })
        .await
    }

    /// All results that are there now, appended to `into`; waits for the first.
    pub async fn recv_batch(&self, into: &mut Vec<WaveResult>) {
        into.push(self.recv().await);
        self.inner.shared.run(|core, _| {
            while let Some(result) = core.nodes[0].take(self.id) {
                into.push(result);
            }
            core.touch(0);
        });
    }

    /// [`Stream::recv`] with a deadline of its own, beyond those of the waves.
    ///
    /// # Errors
    /// [`StreamError::TimedOut`].
    pub async fn recv_until(&self, deadline: Instant) -> Result<WaveResult, StreamError> {
        tokio::time::timeout_at(deadline.into(), self.recv())
            .await
            .map_err(|_| StreamError::TimedOut)
    }

    /// Ends waves early: they complete with what there is (`None`: all that are open).
    pub fn cancel(&self, wave: Option<u64>) {
        self.inner.shared.run(|core, now| {
            core.touch(0);
            core.nodes[0].cancel(now, self.id, wave.unwrap_or(u64::MAX));
        });
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.inner.shared.peek(|core| core.mailbox.claims.close(self.id));
        self.inner.shared.with_node(0, |node| node.close(self.id));
    }
}
