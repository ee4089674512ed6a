//! Requests to the files of one host, several at a time: each lane has one, and is a stream of its own.
use crate::message::{FileAnswer, FileCall, FileCaller, FileClient, NodeOp, decoded, encoded};
use bytes::Bytes;
use sheaf_core::{Errno, lock};
use sheaf_tree::Stream;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Requests to one host at a time.
const LANES_MAX: usize = 16;
/// When a host without a free thread is asked again.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// A way to a host.
pub(crate) trait Way: Send + Sync + 'static {
    /// What a lane keeps as long as it is there.
    type Link: Send;

    /// Opens a stream, of one member, to the service there.
    fn open(&self) -> impl Future<Output = Result<(Stream, Self::Link), Errno>> + Send;

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
}

impl<W: Way> HostLanes<W> {
    /// None yet; the host has to answer within `patience`.
    pub fn new(way: W, client: FileClient, patience: Duration) -> Self {
        Self { way, client, patience, free: Mutex::default(), room: Semaphore::new(LANES_MAX) }
    }

    /// Has an encoded call answered.
    pub async fn call(&self, call: Bytes) -> Result<Bytes, Errno> {
        let _place = self.room.acquire().await.map_err(|_| Errno::HOSTDOWN)?;
        for _ in 0..=LANES_MAX {
            let lane = self.lane().await?;
            match self.ask(&lane.0, call.clone()).await {
                // One of a server before this one, by which nothing was done.
                Err(Errno::STALE) => {}
                Err(errno) => return Err(errno),
                Ok(answer) => {
                    lock(&self.free).push(lane);
                    return Ok(answer);
                }
            }
        }
        Err(Errno::STALE)
    }

    /// One that nobody asks on.
    async fn lane(&self) -> Result<(Stream, W::Link), Errno> {
        let free = lock(&self.free).pop();
        if let Some(lane) = free {
            return Ok(lane);
        }
        let lane = self.way.open().await?;
        let (who, op) = (FileCaller::default(), NodeOp::Join(self.client.clone()));
        let join = FileCall { who, pid: 0, op };
        let joined = self.ask(&lane.0, encoded(&join, &[])?.into()).await?;
        let (answer, _) = decoded::<Result<FileAnswer, Errno>>(&joined)?;
        answer.map(|_| lane)
    }

    async fn ask(&self, lane: &Stream, call: Bytes) -> Result<Bytes, Errno> {
        let begun = Instant::now();
        loop {
            let left = self.patience.saturating_sub(begun.elapsed());
            let asked = lane.request(0, call.clone(), left).await;
            let answer = asked.map_err(|error| error.errno())?.answer().await;
            let coverage = &answer.coverage;
            if let Some((errno, _)) = coverage.failed.iter().chain(&coverage.silent).next() {
                // What an operation has failed with is an answer: this is a host without threads.
                if *errno == Errno::AGAIN && begun.elapsed() < self.patience {
                    tokio::time::sleep(BUSY_PAUSE).await;
                    continue;
                }
                return Err(*errno);
            }
            return self.way.only(answer.payload.unwrap_or_default());
        }
    }
}
