//! One link of a node: what is still to be written to it, and whether the peer lives.
use super::Time;
use super::control::Adopt;
use super::node::Pulse;
use bytes::{Buf, Bytes};
use sheaf_core::{Errno, RangeSet};
use std::collections::VecDeque;
use std::io::IoSlice;

/// Frames up to this size are copied next to each other; larger ones are queued by reference.
const COPY_BYTES_MAX: usize = 2048;

/// Bytes waiting for a link, in order. Small frames coalesce in `tail`; large ones are references
/// to the buffer they arrived in, shared by all links that forward them.
#[derive(Debug, Default)]
pub struct OutQueue {
    pieces: VecDeque<Bytes>,
    tail: Vec<u8>,
    tail_sent: usize,
    len: usize,
}

impl OutQueue {
    /// Bytes waiting.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a whole frame, by copy or by reference.
    pub fn push(&mut self, frame: Bytes) {
        if frame.len() <= COPY_BYTES_MAX {
            self.append(&frame);
        } else {
            self.seal();
            self.len += frame.len();
            self.pieces.push_back(frame);
        }
    }

    /// Puts a whole frame before all others. Nothing may have been written yet.
    pub fn push_first(&mut self, frame: Bytes) {
        debug_assert_eq!(self.tail_sent, 0);
        self.len += frame.len();
        self.pieces.push_front(frame);
    }

    /// Appends bytes by copy.
    #[inline]
    pub fn append(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Fills `slices` with what is next to write; returns how many were filled.
    pub fn gather<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let tail = &self.tail[self.tail_sent..];
        let all = self.pieces.iter().map(|piece| &piece[..]).chain((!tail.is_empty()).then_some(tail));
        let mut filled = 0;
        for (slot, piece) in slices.iter_mut().zip(all) {
            *slot = IoSlice::new(piece);
            filled += 1;
        }
        filled
    }

    /// Drops `written` bytes from the front.
    pub fn advance(&mut self, mut written: usize) {
        self.len -= written;
        while let Some(piece) = self.pieces.front_mut().filter(|_| written > 0) {
            if written < piece.len() {
                piece.advance(written);
                return;
            }
            written -= piece.len();
            self.pieces.pop_front();
        }
        self.tail_sent += written;
        if self.tail_sent == self.tail.len() {
            self.tail.clear();
            self.tail_sent = 0;
            // One burst must not pin its peak for ever.
            self.tail.shrink_to(super::LINK_OUT_BYTES);
        }
    }

    /// Takes everything, as whole frames in order (for links within one process).
    pub fn take(&mut self) -> VecDeque<Bytes> {
        self.seal();
        self.len = 0;
        std::mem::take(&mut self.pieces)
    }

    fn seal(&mut self) {
        if self.tail.len() > self.tail_sent {
            let tail = std::mem::take(&mut self.tail);
            self.pieces.push_back(Bytes::from(tail).slice(self.tail_sent..));
        }
        self.tail.clear();
        self.tail_sent = 0;
    }
}

/// Which way a link leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// To a child.
    Down,
    /// To a parent: the tree's, or a client of a running session.
    Up,
}

/// Where a link stands between its first byte and its end.
#[derive(Debug)]
pub(super) enum Stage {
    /// It speaks for its leaves.
    Member,
    /// A node has connected, and has said nothing so far.
    Knocking,
    /// Its node waits until other children have let go of its leaves.
    Pending(Box<Adopt>),
    /// It is lost, and its leaves may come back until then.
    Awaited(Box<Awaited>),
    /// It is lost for good.
    Lost,
    /// Upward: an ancestor has been asked, and has not answered.
    Asking,
}

/// A lost link whose leaves may come back.
#[derive(Debug)]
pub(super) struct Awaited {
    pub until: Time,
    pub errno: Errno,
    pub cause: String,
}

/// The state of one link.
#[derive(Debug)]
pub(super) struct Link {
    pub way: Way,
    /// The leaves below it (all of the node's own for an upward link).
    pub leaves: RangeSet,
    /// Of a link to a child: the leaves that its node may speak for, wherever they are now.
    pub claim: RangeSet,
    pub rank: u32,
    pub alive: bool,
    /// Whether a transport carries it; until then its queue only fills.
    pub attached: bool,
    /// In-process links need no heartbeats: they fail with the process.
    pub quiet: bool,
    /// The peer is a process of this machine: the kernel closes the link when it ends.
    pub near: bool,
    /// When the driver last saw that the peer lives, though nothing was heard of it.
    pub vouched: Time,
    pub out: OutQueue,
    /// On the node's list of links with something to write.
    pub dirty: bool,
    /// The part of a frame that has arrived.
    pub carry: Vec<u8>,
    pub heard: Time,
    pub spoke: Time,
    /// Streams with data waiting for room on this link, each once, served in turn.
    pub waiting: VecDeque<u32>,
    /// The sub-tree below has reported that it runs.
    pub ready: bool,
    /// The node there wants no engine for WebAssembly: it has one, or no use for it.
    pub has_engine: bool,
    pub stage: Stage,
    /// Of a link to a client: where the identifiers of its streams begin.
    pub streams_from: u32,
    /// How often its node had looked for a parent when it came.
    pub epoch: u64,
    pub counters: Counters,
    /// What heartbeats have measured; nothing on a link that needs none.
    pub pulse: Option<Box<Pulse>>,
    /// When it was attached, or lost.
    pub since: Time,
    /// How often a transport was attached after the first.
    pub reconnects: u32,
}

/// Traffic of one link.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counters {
    /// Frames read.
    pub frames_in: u64,
    /// Bytes read.
    pub bytes_in: u64,
    /// Bytes handed to the transport.
    pub bytes_out: u64,
}

impl Link {
    /// Whether the peer must show signs of life.
    pub fn is_watched(&self) -> bool {
        self.alive && self.attached && !self.quiet
    }

    pub fn new(way: Way, rank: u32, leaves: RangeSet, now: Time) -> Self {
        Self {
            way,
            claim: if way == Way::Down { leaves.clone() } else { RangeSet::new() },
            leaves,
            rank,
            alive: true,
            attached: false,
            quiet: false,
            near: false,
            vouched: now,
            out: OutQueue::default(),
            dirty: false,
            carry: Vec::new(),
            heard: now,
            spoke: now,
            waiting: VecDeque::new(),
            ready: false,
            has_engine: false,
            stage: Stage::Member,
            streams_from: 0,
            epoch: 0,
            counters: Counters::default(),
            pulse: None,
            since: now,
            reconnects: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever the sizes and the partial writes, the bytes come out as they went in.
        #[test]
        fn bytes_keep_their_order(sizes in proptest::collection::vec(1usize..5000, 1..40), step in 1usize..7000) {
            let (mut queue, mut expected, mut written) = (OutQueue::default(), Vec::new(), Vec::new());
            for (at, size) in sizes.iter().enumerate() {
                let frame = vec![at as u8; *size];
                expected.extend_from_slice(&frame);
                queue.push(frame.into());
                if at % 3 == 0 {
                    drain(&mut queue, step, &mut written);
                }
            }
            while !queue.is_empty() {
                drain(&mut queue, step, &mut written);
            }
            prop_assert_eq!(written, expected);
        }
    }

    fn drain(queue: &mut OutQueue, step: usize, written: &mut Vec<u8>) {
        let mut slices = [IoSlice::new(&[]); 3];
        let filled = queue.gather(&mut slices);
        let flat: Vec<u8> = slices[..filled].iter().flat_map(|slice| slice.iter().copied()).collect();
        let count = step.min(flat.len());
        written.extend_from_slice(&flat[..count]);
        queue.advance(count);
    }
}
