//! What waits to be written to a link.
use bytes::{Buf, Bytes};
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
    pub(super) fn push(&mut self, frame: Bytes) {
        if frame.len() <= COPY_BYTES_MAX {
            self.append(&frame);
        } else {
            // The small frames that were appended before stay before it.
            self.seal();
            self.len += frame.len();
            self.pieces.push_back(frame);
        }
    }

    /// Appends the two pieces of a frame by reference.
    pub(super) fn push_parted(&mut self, head: Bytes, body: Bytes) {
        self.seal();
        self.len += head.len() + body.len();
        self.pieces.extend([head, body]);
    }

    /// Puts a whole frame before all others. Nothing may have been written yet.
    pub(super) fn push_first(&mut self, frame: Bytes) {
        debug_assert_eq!(self.tail_sent, 0);
        self.len += frame.len();
        self.pieces.push_front(frame);
    }

    /// Appends bytes by copy.
    #[inline]
    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Fills `slices` with what is next to write; returns how many were filled.
    pub fn gather<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let tail = &self.tail[self.tail_sent..];
        let all =
            self.pieces.iter().map(|piece| &piece[..]).chain((!tail.is_empty()).then_some(tail));
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
            self.tail.shrink_to(crate::LINK_OUT_BYTES);
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
        let flat: Vec<u8> =
            slices[..filled].iter().flat_map(|slice| slice.iter().copied()).collect();
        let count = step.min(flat.len());
        written.extend_from_slice(&flat[..count]);
        queue.advance(count);
    }
}
