//! The owner of files on another host, by the links of a session.
//!
//! Requests to one host are asked on several lanes, of which each has one at a time, as many as there are; a lane
//! that is lost is opened again for the next request, so that a host comes back by itself.
use crate::fuse::Remote;
use crate::message::{FileAnswer, FileCall, FileCaller, NodeOp, decoded, encoded};
use crate::owner::FILES;
use bytes::Bytes;
use sheaf_core::{Errno, RangeSet, lock};
use sheaf_tree::proto::filter::builtin::null;
use sheaf_tree::{Network, Stream, Sync};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Requests to one host at a time.
const LANES_MAX: usize = 16;
/// When a host without a free thread is asked again.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// The files of one host.
pub struct HostRemote {
    network: Network,
    leaf: u32,
    /// Who asks, in a number that nobody else has.
    number: u128,
    patience: Duration,
    lanes: Mutex<Vec<Stream>>,
    room: Semaphore,
}

impl HostRemote {
    /// Those of a leaf, which has to answer within `patience`.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn new(network: &Network, leaf: u32, patience: Duration) -> Result<Self, Errno> {
        let mut number = [0; 16];
        rustix::rand::getrandom(&mut number, rustix::rand::GetRandomFlags::empty())?;
        Ok(Self {
            network: network.clone(),
            leaf,
            number: u128::from_ne_bytes(number),
            patience,
            lanes: Mutex::default(),
            room: Semaphore::new(LANES_MAX),
        })
    }

    /// The path of what it exports, on its host.
    ///
    /// # Errors
    /// Those of [`Remote::call`].
    pub async fn export(&self) -> Result<PathBuf, Errno> {
        let call = FileCall { who: FileCaller::default(), pid: 0, op: NodeOp::Export };
        let answer = self.call(encoded(&call, &[])?).await?;
        let (answer, path) = decoded::<Result<FileAnswer, Errno>>(&answer)?;
        answer.map(|_| PathBuf::from(OsStr::from_bytes(path)))
    }

    /// One that nobody asks on.
    async fn lane(&self) -> Result<Stream, Errno> {
        let free = lock(&self.lanes).pop();
        if let Some(lane) = free {
            return Ok(lane);
        }
        let only = RangeSet::single(self.leaf);
        let lane = self.network.open(FILES, only, "null", b"", Sync::WaitForAll);
        let join = FileCall { who: FileCaller::default(), pid: 0, op: NodeOp::Join(self.number) };
        let joined = self.ask(&lane, encoded(&join, &[])?.into()).await?;
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
            let payload = answer.payload.unwrap_or_default();
            let items = null::items(&payload).map_err(|_| Errno::BADMSG)?;
            let item = items.first().ok_or(Errno::BADMSG)?;
            return Ok(payload.slice_ref(item));
        }
    }
}

impl Remote for HostRemote {
    async fn call(&self, call: Vec<u8>) -> Result<Bytes, Errno> {
        let _place = self.room.acquire().await.map_err(|_| Errno::HOSTDOWN)?;
        let lane = self.lane().await?;
        let answer = self.ask(&lane, call.into()).await?;
        lock(&self.lanes).push(lane);
        Ok(answer)
    }
}
