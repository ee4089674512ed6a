//! Traces of many hosts: programs record into a directory of their host, the host's server takes it
//! from there, and what all servers have is combined on the way to whoever stores it.
//!
//! ```text
//! programs ── rings ──> server: spool ── batch, a wave ──> inner nodes: merge ──> root: store
//! ```
//! A server keeps what it has taken until whoever stores it has said that it is stored. Both ends
//! keep what they have in spools, so either may be killed at any moment: what rings have committed is
//! stored once.
//!
//! MIOT (see [`sheaf_recorder`]), section IV, has the same three tiers: the program, the log client
//! of its host, and the log server. There the log client sends over a socket and the paper names no
//! acknowledgement. Here batches are merged on their way up the tree, and a host keeps its rows
//! until they are acknowledged.
mod batch;
mod client;
mod clock;
mod columns;
mod left;
mod live;
mod live_text;
mod slot;
mod state;
mod user;

pub use batch::{
    BatchFilter, BatchPart, CollectRequest, HostPlace, ReadyFilter, RowFilter, TraceBatch,
};
pub use client::{COLLECT, LIVE, LogClients, TRACE_SERVICE};
pub use clock::{ClockSample, HostClock};
pub use left::{LeftSegments, left_segments};
pub use live::{LIVE_SECONDS_MAX, LiveAnswer, LiveBy, LiveFilter, LiveRequest, LiveSums};

use crate::error::TraceError;
use crate::files::open_own;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The filter that merges what servers answer.
pub const TRACE_MERGE: &str = "trace-merge";
/// The filter that adds up what programs do just now.
pub const TRACE_LIVE: &str = "trace-live";

/// Where programs of this user record for a server, below `buffers`.
#[must_use]
pub fn shared_segments(buffers: &Path) -> PathBuf {
    buffers.join(format!("sheaf-trace-{}", rustix::process::geteuid().as_raw()))
}

/// Whether somebody takes what is recorded there.
///
/// # Errors
/// When that cannot be seen.
pub fn is_collected(segments: &Path) -> std::io::Result<bool> {
    use rustix::fs::{FlockOperation, flock};
    use std::io::{Error, ErrorKind};
    let path = segments.join(state::CLIENT_LOCK);
    let file = match open_own(&path, std::fs::File::options().read(true)) {
        Ok(file) => file,
        Err(TraceError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
            return Ok(false);
        }
        Err(TraceError::Io { source, .. }) => return Err(source),
        Err(error) => return Err(Error::other(error)),
    };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(false),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// The time of day in ns since 1970; 0 before then.
#[must_use]
pub fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
