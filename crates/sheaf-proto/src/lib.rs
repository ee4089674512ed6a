//! The node as a pure state machine: bytes and the time in, bytes and events out.
//!
//! A [`Node`] opens no socket, reads no clock and starts no task. A driver gives it what arrived
//! ([`Node::receive`]), tells it when a link is lost ([`Node::link_lost`]) and what time it is
//! ([`Node::tick`]); it writes what [`Node::next_dirty`] names, and hands [`Event`]s to the local
//! application. The same code runs over sockets, inside one process, and in the simulator, where
//! the tests run thousands of seeds of random faults.
//!
//! Root, inner node and leaf are one type: they differ in where a stream's waves end (at the
//! application that opened it, or on the link it came from) and where its packets end (at the
//! children, or at the service of a leaf). A client of a running session is one more parent.
//!
//! The tree is after MRNet (Roth, Arnold and Miller, *MRNet: A Software-Based Multicast/Reduction
//! Network for Scalable Tools*). The heads of the modules that take something from it name its
//! section, and how Sheaf differs.

/// Fails with the rule that is broken, and where.
macro_rules! rule {
    ($holds:expr, $($what:tt)*) => {
        if !$holds {
            return Err(format!($($what)*));
        }
    };
}
pub(crate) use rule;

mod config;
pub mod control;
mod coverage;
pub mod filter;
pub mod frame;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod links;
mod node;
pub mod own;
pub mod packet;
pub mod report;
pub mod sim;
mod stream;
pub mod topology;
mod wave;

pub use config::{Child, NodeConfig, NodeRole, Time, Tuning};
pub use control::{Notice, Sync};
pub use coverage::Coverage;
pub use frame::Violation;
pub use links::{Counters, LinkId, OutQueue};
pub use node::{Event, HandOver, Node, Outgoing, Packet, PacketContent};
pub use node::{Passing, STATE_BYTES_MAX, SharedTap, Tap};
pub use stream::WaveResult;
pub use wave::WAVES_OPEN_MAX;

/// Data frames are put on a link's queue only while it holds less than this; the rest waits with
/// its stream, so that streams take turns and a stopped peer costs at most its windows.
pub const LINK_OUT_BYTES: usize = 256 << 10;

/// The largest window of a stream; a wave counts what it owes a child in fewer than 2²⁸ bytes.
pub const WINDOW_BYTES_MAX: u32 = 128 << 20;

/// Identifiers of streams that each client of a session has for itself.
pub const STREAMS_PER_CLIENT: u32 = 1 << 18;

/// The most streams a node keeps open.
pub const STREAMS_MAX: usize = 1 << 16;
