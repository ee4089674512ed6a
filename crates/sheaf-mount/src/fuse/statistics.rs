//! What a mount has done, and which calls are under way: an extended attribute of its top directory, which the process
//! that answers the kernel makes itself. So it is there also if the owner does not answer.
use super::underway::{CallUnderWay, with_below};
use super::{Remote, View, abi};
use crate::message::NodeOp;
use serde::{Deserialize, Serialize};
use sheaf_core::{Errno, lock};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The name of the attribute. The kernel asks nobody for permission to read one of this kind.
pub(super) const ATTRIBUTE: &str = "system.sheaf";
/// The longest attribute of any file.
const ATTRIBUTE_BYTES_MAX: usize = 64 << 10;
/// The calls that are shown, those first that have been under way for longest.
const CALLS_SHOWN_MAX: usize = 64;
/// A name is shown up to this length.
const NAME_BYTES_MAX: usize = 255;
/// Calls are counted by the binary logarithm of their microseconds.
const LATENCIES: usize = 32;

/// What a mount has done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MountStatistics {
    /// Requests of the kernel.
    pub requests: u64,
    /// How many requests to the owner took up to 1, 2, 4, … microseconds.
    pub latencies: Vec<u64>,
    /// Files of which bytes are leased, and these bytes.
    pub leases: (u64, u64),
    /// Owners of locks.
    pub locks: u64,
    /// Requests that the owner has not answered.
    pub under_way: u64,
    /// Of these, those that were sent first.
    pub calls: Vec<StuckCall>,
}

/// A request that the owner has not answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StuckCall {
    /// What is to be done, as the kernel's protocol calls it.
    pub operation: String,
    /// The process that waits, and its user.
    pub process: u32,
    /// Its user.
    pub user: u32,
    /// Since when, in milliseconds.
    pub since_ms: u64,
    /// The name that is looked up, made or removed, if it is such a request.
    pub name: Option<Vec<u8>>,
}

impl MountStatistics {
    /// Those of the mount at a directory, which may hang.
    ///
    /// # Errors
    /// `ENODATA`, `EOPNOTSUPP` or `EBADMSG` if it is not a mount of this version of Sheaf; `EPERM` for other users than
    /// the one that has mounted it, and root.
    pub fn of(point: &Path) -> Result<Self, Errno> {
        let mut bytes = vec![0; ATTRIBUTE_BYTES_MAX];
        let length = rustix::fs::getxattr(point, ATTRIBUTE, &mut bytes[..])?;
        postcard::from_bytes(&bytes[..length]).map_err(|_| Errno::BADMSG)
    }

    /// An upper bound, in microseconds, of the latency of this part of all requests to the owner; nothing if there
    /// were none.
    #[must_use]
    pub fn latency_us(&self, part: f64) -> Option<u64> {
        let all: u64 = self.latencies.iter().sum();
        let rank = (all as f64 * part).ceil() as u64;
        let mut seen = 0;
        let at = self.latencies.iter().position(|count| {
            seen += count;
            *count > 0 && seen >= rank
        });
        at.map(|at| 1 << at)
    }
}

/// Counters of a mount.
#[derive(Default)]
pub(super) struct Counters {
    requests: AtomicU64,
    latencies: [AtomicU64; LATENCIES],
}

impl Counters {
    pub fn asked(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub fn answered(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
        let power = us.checked_next_power_of_two().map_or(u64::BITS, u64::trailing_zeros);
        let at = (power as usize).min(LATENCIES - 1);
        self.latencies[at].fetch_add(1, Ordering::Relaxed);
    }
}

impl<R: Remote> View<R> {
    /// The attribute, if the operation asks for it.
    ///
    /// # Errors
    /// `EPERM` for a user whose calls are not all that it shows, and `ERANGE` if there is not enough room.
    pub(super) fn asked_statistics(
        &self,
        user: u32,
        op: &NodeOp,
    ) -> Result<Option<Vec<u8>>, Errno> {
        let NodeOp::GetXattr { node, name, size } = op else { return Ok(None) };
        if *node != self.root || name != ATTRIBUTE.as_bytes() {
            return Ok(None);
        }
        if user != 0 && user != rustix::process::geteuid().as_raw() {
            return Err(Errno::PERM);
        }
        let now = Instant::now();
        let (mut under_way, mut calls) = (0, Vec::new());
        for mount in with_below(&self.under_way, self.remote.client()) {
            let all = lock(&mount);
            under_way += all.len() as u64;
            calls.extend(all.values().map(|call| shown(call, now)));
        }
        calls.sort_by_key(|call| std::cmp::Reverse(call.since_ms));
        calls.truncate(CALLS_SHOWN_MAX);
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let statistics = MountStatistics {
            requests: count(&self.counters.requests),
            latencies: self.counters.latencies.iter().map(count).collect(),
            leases: self.borrowed.size(now),
            locks: self.held.count(),
            under_way,
            calls,
        };
        let bytes = postcard::to_stdvec(&statistics).map_err(|_| Errno::NOMEM)?;
        if bytes.len() > *size as usize { Err(Errno(libc::ERANGE)) } else { Ok(Some(bytes)) }
    }
}

fn shown(call: &CallUnderWay, now: Instant) -> StuckCall {
    let since = now.saturating_duration_since(call.begun);
    let name = |name: &[u8]| name[..name.len().min(NAME_BYTES_MAX)].to_vec();
    StuckCall {
        operation: operation(call.opcode),
        process: call.pid,
        user: call.user,
        since_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
        name: call.name.as_deref().map(name),
    }
}

/// The name of an operation, such as `getattr`.
fn operation(opcode: u32) -> String {
    match abi::fuse_opcode::try_from(opcode) {
        Ok(code) => format!("{code:?}").trim_start_matches("FUSE_").to_ascii_lowercase(),
        Err(_) => opcode.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_is_bounded_from_above() {
        let counters = Counters::default();
        for us in [0, 1, 3, 100, 100, 100, 100, 100, 100, 5000] {
            counters.answered(Duration::from_micros(us));
        }
        counters.answered(Duration::MAX);
        let latencies = counters.latencies.iter().map(|one| one.load(Ordering::Relaxed)).collect();
        let statistics = MountStatistics { latencies, ..MountStatistics::default() };
        let of = |part| statistics.latency_us(part);
        assert_eq!([of(0.0), of(0.1), of(0.5), of(0.9)], [Some(1), Some(1), Some(128), Some(8192)]);
        assert_eq!(of(1.0), Some(1 << 31));
        assert_eq!(MountStatistics::default().latency_us(0.5), None);
        assert_eq!((operation(3), operation(9999)), ("getattr".to_owned(), "9999".to_owned()));
    }
}
