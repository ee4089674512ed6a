//! The simulated network: a wire each way for every connection.
use crate::config::Time;
use bytes::Bytes;
use std::collections::VecDeque;
use std::time::Duration;

/// What time the network and the nodes take.
///
/// The defaults assume a cluster with 10 Gb/s links and 20–30 µs between two sockets. A node's
/// part is measured, on a 2.5 GHz Xeon: a frame costs 65 ns (`cargo bench -p sheaf-tree --bench
/// node`), a `write` of up to 4 KiB to a TCP socket 1.8 µs and a `read` 1.7 µs at median.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Physics {
    /// From one node's wire to the next node's.
    pub latency: Duration,
    /// At most this is added, at random.
    pub jitter: Duration,
    /// Bytes per second that a node puts on its wires together.
    pub bandwidth_bytes: u64,
    /// One read or write of a socket.
    pub call: Duration,
    /// Taking in one frame.
    pub frame: Duration,
    /// Bytes per second that a node copies.
    pub copy_bytes: u64,
    /// Bytes that fit between two nodes before the sender has to wait.
    pub socket_bytes: usize,
}

impl Default for Physics {
    fn default() -> Self {
        Self {
            latency: Duration::from_micros(20),
            jitter: Duration::from_micros(10),
            bandwidth_bytes: 1_250_000_000,
            call: Duration::from_micros(2),
            frame: Duration::from_nanos(65),
            copy_bytes: 8_000_000_000,
            socket_bytes: 256 << 10,
        }
    }
}

impl Physics {
    /// What a node spends on reading or writing `bytes` at once.
    pub(super) fn work(&self, bytes: usize) -> Duration {
        self.call + span(bytes, self.copy_bytes)
    }

    /// How long `bytes` occupy a node's wires.
    pub(super) fn sending(&self, bytes: usize) -> Duration {
        span(bytes, self.bandwidth_bytes)
    }
}

fn span(bytes: usize, per_second: u64) -> Duration {
    Duration::from_nanos((bytes as u128 * 1_000_000_000 / u128::from(per_second.max(1))) as u64)
}

/// One direction of a link.
#[derive(Debug, Default, Clone)]
pub(super) struct SimWire {
    /// When what was last put on it arrives; nothing overtakes.
    pub arrives: Time,
    /// Bytes sent that the receiver has not read.
    pub in_flight: u32,
    /// The sender has more, and waits until the receiver reads.
    pub blocked: bool,
    /// The sender's end is closed.
    pub closed: bool,
    /// What arrives is dropped: the receiver's end is closed, or the link was reset.
    pub deaf: bool,
}

/// What has happened to the link above a node; most have none.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    pub extra: Duration,
    /// Cut: what arrives is kept here, each way; `None` stands for the end.
    pub parked: Option<[VecDeque<Option<Bytes>>; 2]>,
}

/// Cuts `chunk` at up to two random places, as sockets do.
pub(super) fn shred(rng: &mut fastrand::Rng, mut chunk: Bytes, out: &mut Vec<Bytes>) {
    for _ in 0..rng.u8(0..3) {
        if chunk.len() > 1 {
            let at = rng.usize(1..chunk.len());
            out.push(chunk.split_to(at));
        }
    }
    out.push(chunk);
}
