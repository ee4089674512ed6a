//! Requests to the files of one host, several at a time: each lane has one, and is a stream of its own.
use crate::message::{FileAnswer, FileCall, FileCaller, FileClient, NodeOp, decoded, encoded};
use bytes::Bytes;
use rustc_hash::FxHashMap;
use sheaf_core::{Errno, lock};
use sheaf_tree::Stream;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Requests of one user to one host at a time, as many as threads work for it there, and of all users.
const USER_LANES_MAX: usize = 16;
const LANES_MAX: usize = 4 * USER_LANES_MAX;
/// Requests for news at a time, next to the others: a change may wait at the owner for the mount's word that it has
/// taken the news.
const NEWS_LANES_MAX: usize = 16;
/// When a host without a free thread is asked again: at first, and at most.
const BUSY_PAUSE_MIN: Duration = Duration::from_millis(20);
const BUSY_PAUSE_MAX: Duration = Duration::from_millis(160);

/// A way to a host.
pub(crate) trait Way: Send + Sync + 'static {
    /// What a lane keeps as long as it is there.
    type Link: Send;

    /// Opens a stream, of one member, to the service there.
    fn open(&self) -> impl Future<Output = Result<(Stream, Self::Link), Errno>> + Send;

    /// Whether nothing that is sent gets there any more.
    fn is_gone(&self, link: &Self::Link) -> bool;

    /// The answer of that one member.
    fn only(&self, payload: Bytes) -> Result<Bytes, Errno>;
}

/// The lanes to one host. One that is lost is opened again for the next request, so that a host comes back by
/// itself.
pub(crate) struct HostLanes<W: Way> {
    way: W,
    /// Which client asks.
    client: FileClient,
    patience: Duration,
    free: Mutex<Vec<(Stream, W::Link)>>,
    room: Semaphore,
    /// The rooms of users that ask.
    of_users: Mutex<FxHashMap<u32, Weak<Semaphore>>>,
    news_room: Semaphore,
}

impl<W: Way> HostLanes<W> {
    /// None yet; the host has to answer within `patience`.
    pub fn new(way: W, client: FileClient, patience: Duration) -> Self {
        let (room, news_room) = (Semaphore::new(LANES_MAX), Semaphore::new(NEWS_LANES_MAX));
        let (free, of_users) = (Mutex::default(), Mutex::default());
        Self { way, client, patience, free, room, of_users, news_room }
    }

    /// Has an encoded call answered.
    ///
    /// What was not sent, because the link was lost before, is sent again over another link. So is what was sent and
    /// not answered when the link was lost, if it may be done twice.
    pub async fn call(&self, call: Bytes) -> Result<Bytes, Errno> {
        let begun = Instant::now();
        // The user and the process stand first. What the mount itself asks waits for no user.
        let ((who, pid), _) = decoded::<(FileCaller, u32)>(&call)?;
        let of_user = (pid != 0).then(|| self.room_of(who.uid));
        let room = if is_for_news(&call) { &self.news_room } else { &self.room };
        let mut pause = BUSY_PAUSE_MIN;
        loop {
            let places = async {
                let own = match &of_user {
                    Some(room) => Some(room.acquire().await),
                    None => None,
                };
                (own, room.acquire().await)
            };
            let left = self.patience.saturating_sub(begun.elapsed());
            // The semaphores are never closed.
            let places = tokio::time::timeout(left, places).await;
            let places = places.map_err(|_| Errno::TIMEDOUT)?;
            match self.call_at_once(&call, begun).await {
                // What an operation has failed with is an answer: the host has no thread for it.
                Err(Errno::AGAIN) if begun.elapsed() < self.patience => {}
                Err(Errno::AGAIN) => return Err(Errno::TIMEDOUT),
                answer => return answer,
            }
            // Others may go on meanwhile.
            drop(places);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(BUSY_PAUSE_MAX);
        }
    }

    async fn call_at_once(&self, call: &Bytes, begun: Instant) -> Result<Bytes, Errno> {
        let mut was_repeated = false;
        for _ in 0..=LANES_MAX + NEWS_LANES_MAX {
            let lane = self.lane(begun).await?;
            match self.ask(&lane.0, call.clone(), begun).await {
                // One of a server before this one, by which nothing was done.
                Err(Errno::STALE) => {}
                Err(_) if self.way.is_gone(&lane.1) && !was_repeated && may_be_repeated(call) => {
                    was_repeated = true;
                }
                answer => {
                    if matches!(answer, Ok(_) | Err(Errno::AGAIN)) {
                        lock(&self.free).push(lane);
                    }
                    return answer;
                }
            }
        }
        Err(Errno::STALE)
    }

    fn room_of(&self, user: u32) -> Arc<Semaphore> {
        let mut rooms = lock(&self.of_users);
        if let Some(room) = rooms.get(&user).and_then(Weak::upgrade) {
            return room;
        }
        rooms.retain(|_, room| room.strong_count() > 0);
        let room = Arc::new(Semaphore::new(USER_LANES_MAX));
        rooms.insert(user, Arc::downgrade(&room));
        room
    }

    /// One that nobody asks on.
    async fn lane(&self, begun: Instant) -> Result<(Stream, W::Link), Errno> {
        loop {
            let free = lock(&self.free).pop();
            match free {
                Some(lane) if self.way.is_gone(&lane.1) => {}
                Some(lane) => return Ok(lane),
                None => break,
            }
        }
        let lane = self.way.open().await?;
        let (who, op) = (FileCaller::default(), NodeOp::Join(self.client.clone()));
        let join = FileCall { who, pid: 0, keeps_names: false, op };
        let joined = self.ask(&lane.0, encoded(&join, &[])?.into(), begun).await?;
        let (answer, _) = decoded::<Result<FileAnswer, Errno>>(&joined)?;
        answer.map(|_| lane)
    }

    async fn ask(&self, lane: &Stream, call: Bytes, begun: Instant) -> Result<Bytes, Errno> {
        let left = self.patience.saturating_sub(begun.elapsed());
        let asked = lane.request(0, call, left).await;
        let answer = asked.map_err(|error| error.errno())?.answer().await;
        let coverage = &answer.coverage;
        if let Some((errno, _)) = coverage.failed.iter().chain(&coverage.silent).next() {
            return Err(*errno);
        }
        self.way.only(answer.payload.unwrap_or_default())
    }
}

/// Whether a call that may have been carried out may be carried out again.
fn may_be_repeated(call: &[u8]) -> bool {
    decoded::<FileCall>(call).is_ok_and(|(call, _)| call.op.may_be_repeated())
}

/// Whether a call asks for recalls or other news.
fn is_for_news(call: &[u8]) -> bool {
    // Such a call has no user, no groups and no process.
    let op = call.starts_with(&[0; 4]).then(|| decoded::<FileCall>(call));
    matches!(op, Some(Ok((FileCall { op: NodeOp::Recalls { .. }, .. }, _))))
}
