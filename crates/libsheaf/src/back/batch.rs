//! Packets that an application has sent and the tree has not been given.
use std::collections::VecDeque;

/// What one stream may have here, in bytes and packets together, before its sender gives it to the
/// tree himself.
pub const BATCH_MAX: usize = 16 << 10;

/// Packets of one stream, in order.
#[derive(Debug, Default)]
pub(super) struct Batch {
    runs: VecDeque<BatchRun>,
    bytes: Vec<u8>,
    /// Where the first run begins.
    start: usize,
    packets: usize,
}

/// Packets of one tag and one length that follow one another.
#[derive(Debug, PartialEq, Eq)]
struct BatchRun {
    tag: i32,
    width: usize,
    count: usize,
}

impl Batch {
    /// Adds a packet; `false` where there is no room for it.
    #[inline]
    pub fn put(&mut self, tag: i32, packet: &[u8]) -> bool {
        if self.bytes.len() + packet.len() + self.packets >= BATCH_MAX {
            return false;
        }
        self.bytes.extend_from_slice(packet);
        self.packets += 1;
        match self.runs.back_mut() {
            Some(run) if run.tag == tag && run.width == packet.len() => run.count += 1,
            _ => self.runs.push_back(BatchRun { tag, width: packet.len(), count: 1 }),
        }
        true
    }

    pub fn is_empty(&self) -> bool {
        self.packets == 0
    }

    /// The first packets that are alike: their tag, the length of each, and all of them.
    pub fn first(&self) -> Option<(i32, usize, &[u8])> {
        let run = self.runs.front()?;
        Some((run.tag, run.width, &self.bytes[self.start..self.start + run.count * run.width]))
    }

    /// The first `count` of these are gone.
    pub fn done(&mut self, count: usize) {
        let Some(run) = self.runs.front_mut() else { return };
        run.count -= count;
        self.packets -= count;
        self.start += count * run.width;
        if run.count == 0 {
            self.runs.pop_front();
        }
        if self.packets == 0 {
            self.bytes.clear();
            self.start = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_out_in_order_by_runs() {
        let mut batch = Batch::default();
        let packets: [(i32, &[u8]); 6] =
            [(1, b"ab"), (1, b"cd"), (2, b"ef"), (2, b""), (2, b""), (1, b"g")];
        assert!(packets.iter().all(|(tag, packet)| batch.put(*tag, packet)));
        assert_eq!(batch.first(), Some((1, 2, &b"abcd"[..])));
        batch.done(1);
        assert_eq!(batch.first(), Some((1, 2, &b"cd"[..])));
        batch.done(1);
        assert_eq!(batch.first(), Some((2, 2, &b"ef"[..])));
        batch.done(1);
        assert_eq!(batch.first(), Some((2, 0, &b""[..])));
        batch.done(2);
        assert_eq!(batch.first(), Some((1, 1, &b"g"[..])));
        batch.done(1);
        assert!(batch.is_empty() && batch.first().is_none());
    }

    #[test]
    fn batch_is_bounded() {
        let mut batch = Batch::default();
        let count = (0..).take_while(|_| batch.put(1, b"")).count();
        assert!(count <= BATCH_MAX && !batch.put(1, b""));
        batch.done(count);
        assert!(batch.put(1, &vec![0; BATCH_MAX - 1]) && !batch.put(1, b"x"));
    }
}
