//! What was sent towards the root and is kept until the root has its wave.
use crate::coverage::Coverage;
use crate::frame::{self, HEADER_BYTES, Header, Kind, flag};
use bytes::Bytes;
use sheaf_core::RangeSet;
use std::collections::VecDeque;

/// A prefix of the buffer that is no longer needed is moved away only when it is this long.
const COMPACT_BYTES_MIN: usize = 16 << 10;

/// One frame of the buffer.
struct KeptWave {
    /// Where it begins, counted from the first byte of the stream's buffer ever.
    at: u64,
    /// Of a run, the first of its waves.
    wave: u64,
    /// How many waves it is for.
    count: u32,
    len: u32,
    /// The root has it; its bytes go when they are next moved.
    gone: bool,
}

/// Frames in the order in which they were sent, next to each other.
#[derive(Default)]
pub(in super::super) struct Kept {
    entries: VecDeque<KeptWave>,
    buffer: Vec<u8>,
    /// Where the first entry begins.
    head: usize,
    /// What was moved away before the buffer, so far.
    moved: u64,
    /// Bytes of the entries that are not gone.
    bytes: u64,
    /// An entry has come after one of a later wave.
    disordered: bool,
}

impl Kept {
    /// Bytes that are kept.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends a frame.
    #[inline]
    pub fn push(&mut self, wave: u64, count: u32, head: &[u8; HEADER_BYTES], body: &[u8]) {
        let at = self.moved + self.buffer.len() as u64;
        self.buffer.extend_from_slice(head);
        self.buffer.extend_from_slice(body);
        let len = (HEADER_BYTES + body.len()) as u32;
        self.disordered |= self.entries.back().is_some_and(|last| last.wave > wave);
        self.entries.push_back(KeptWave { at, wave, count, len, gone: false });
        self.bytes += u64::from(len);
    }

    /// Drops what belongs to waves that are over: now `waves`, which `all` holds too.
    ///
    /// In a stream whose waves end in order all of that is in front; what is not is found by its
    /// number, so that each range costs no more than what it ends, unless entries are out of order.
    pub fn drop_waves(&mut self, waves: &[(u64, u64)], all: &WaveSet) {
        let over =
            |entry: &KeptWave| all.covers(entry.wave, entry.wave + u64::from(entry.count) - 1);
        while let Some(entry) = self.entries.front()
            && (entry.gone || over(entry))
        {
            if !entry.gone {
                self.bytes -= u64::from(entry.len);
            }
            self.head += entry.len as usize;
            self.entries.pop_front();
        }
        for &(first, last) in waves {
            let from = match self.disordered {
                true => 0,
                // A run begins with a wave before those that are over.
                false => self.entries.partition_point(|entry| entry.wave < first).saturating_sub(1),
            };
            let in_range = |entry: &&mut KeptWave| self.disordered || entry.wave <= last;
            for entry in self.entries.range_mut(from..).take_while(in_range) {
                if !entry.gone && over(entry) {
                    entry.gone = true;
                    self.bytes -= u64::from(entry.len);
                }
            }
            // This pass compared all entries with all ranges.
            if self.disordered {
                break;
            }
        }
        self.compact();
    }

    /// Drops contributions to `wave` of which the root has every leaf. `members` is what a
    /// contribution without a set of its own stands for.
    pub fn drop_counted(&mut self, wave: u64, counted: &RangeSet, members: &RangeSet) {
        let mut counted_now = false;
        let from = match self.disordered {
            true => 0,
            false => self.entries.partition_point(|entry| entry.wave < wave),
        };
        for entry in self.entries.range_mut(from..) {
            if !self.disordered && entry.wave > wave {
                break;
            }
            let at = (entry.at - self.moved) as usize;
            let frame = &self.buffer[at..at + entry.len as usize];
            if entry.wave != wave || entry.gone || entry.count > 1 {
                continue;
            }
            let flags = frame::flags(frame);
            // Only the first part of a contribution names its leaves. The other parts follow it.
            if flags & flag::part::FIRST != 0 {
                counted_now = match flags & flag::up::FULL != 0 {
                    true => members.is_subset(counted),
                    // Decoding within `counted` fails if the contribution names any other leaf.
                    false => Coverage::decode(&mut &frame[HEADER_BYTES..], counted).is_ok(),
                };
            }
            if counted_now {
                entry.gone = true;
                self.bytes -= u64::from(entry.len);
            }
        }
        // Removes what was just marked from the front, and compacts.
        self.drop_waves(&[], &WaveSet::default());
    }

    /// Takes every contribution out, in order, each in frames of its own.
    pub fn take(&mut self) -> Vec<Bytes> {
        let mut at = self.head;
        let mut frames = Vec::with_capacity(self.entries.len());
        for entry in &self.entries {
            let end = at + entry.len as usize;
            if !entry.gone {
                // A new parent judges each wave by itself, so a run is sent to it as single frames.
                single_frames(&self.buffer[at..end], entry.count, &mut frames);
            }
            at = end;
        }
        *self = Self::default();
        frames
    }

    /// Contributions that stand for everyone name them from now on: `members`.
    pub fn name_members(&mut self, members: &RangeSet) {
        for frame in self.take() {
            let (header, body) = named(Header::of(&frame), &frame[HEADER_BYTES..], members);
            self.push(header.wave, 1, &header.to_bytes(), &body);
        }
    }

    fn compact(&mut self) {
        if self.entries.is_empty() {
            self.buffer.clear();
            self.buffer.shrink_to(crate::LINK_OUT_BYTES);
            self.disordered = false;
            (self.head, self.moved) = (0, 0);
        } else if self.head >= COMPACT_BYTES_MIN && self.head * 2 > self.buffer.len() {
            // More is dropped than moved, so the cost for each byte is constant.
            self.buffer.drain(..self.head);
            self.moved += self.head as u64;
            self.head = 0;
        } else if self.buffer.len() > COMPACT_BYTES_MIN
            && (self.buffer.len() as u64) > 4 * self.bytes
        {
            // Dropped entries in the middle hold most of the buffer, so the remaining ones are
            // copied.
            for frame in self.take() {
                let header = Header::of(&frame);
                self.push(header.wave, 1, &header.to_bytes(), &frame[HEADER_BYTES..]);
            }
        }
    }
}

/// A frame as it is, or what it holds of `count` waves as a frame for each.
pub(in super::super) fn single_frames(frame: &[u8], count: u32, out: &mut Vec<Bytes>) {
    let header = Header::of(frame);
    if header.kind != Kind::Run {
        out.push(Bytes::copy_from_slice(frame));
        return;
    }
    let body = frame::body(frame);
    let width = (body.len() / count.max(1) as usize).max(1);
    for (wave, item) in (header.wave..).zip(body.chunks(width)) {
        out.push(frame::encode(Header { kind: Kind::Up, wave, ..header }, item));
    }
}

/// The frame with its members named, if it stood for all of them.
pub(in super::super) fn named(
    mut header: Header,
    body: &[u8],
    members: &RangeSet,
) -> (Header, Vec<u8>) {
    let mut bytes = Vec::with_capacity(body.len() + 16);
    if header.has(flag::up::FULL) {
        header.flags &= !flag::up::FULL;
        if header.has(flag::part::FIRST) {
            let cover =
                Coverage { ok: std::sync::Arc::new(members.clone()), ..Coverage::default() };
            cover.encode(&mut bytes);
        }
    }
    bytes.extend_from_slice(body);
    header.body_len = bytes.len() as u32;
    (header, bytes)
}

/// Numbers of waves, as ranges in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in super::super) struct WaveSet(Vec<(u64, u64)>);

impl WaveSet {
    /// The ranges: first and last of each.
    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.0
    }

    /// Whether it holds `wave`.
    #[inline]
    pub fn contains(&self, wave: u64) -> bool {
        // The usual case: a frame that is sent now belongs to a wave after all acknowledged ones.
        if self.0.last().is_none_or(|&(_, last)| wave > last) {
            return false;
        }
        let at = self.0.partition_point(|&(_, last)| last < wave);
        self.0[at].0 <= wave
    }

    /// Whether it holds all of `first..=last`.
    pub fn covers(&self, first: u64, last: u64) -> bool {
        let at = self.0.partition_point(|&(_, end)| end < first);
        self.0.get(at).is_some_and(|&(start, end)| start <= first && last <= end)
    }

    /// The first number that it does not hold.
    pub fn first_missing(&self) -> u64 {
        self.0
            .first()
            .filter(|&&(first, _)| first == 0)
            .map_or(0, |&(_, last)| last.saturating_add(1))
    }

    /// Adds `first..=last`.
    pub fn insert(&mut self, first: u64, last: u64) {
        if last < first {
            return;
        }
        // Saturates, because the numbers come from the parent (`Node::on_ack`) and can be
        // `u64::MAX`.
        let from = self.0.partition_point(|&(_, end)| end.saturating_add(1) < first);
        let to = self.0.partition_point(|&(start, _)| start <= last.saturating_add(1));
        let merged = self.0[from..to.max(from)]
            .iter()
            .fold((first, last), |(first, last), &(start, end)| (first.min(start), last.max(end)));
        self.0.splice(from..to.max(from), [merged]);
    }

    /// Takes all of them out.
    pub fn take(&mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.0)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(kept: &mut Kept, wave: u64, flags: u8, body: &[u8]) {
        let header = Header { flags, wave, body_len: body.len() as u32, ..Header::new(Kind::Up) };
        kept.push(wave, 1, &header.to_bytes(), body);
    }

    #[test]
    fn completed_waves_are_dropped_anywhere_in_the_buffer() {
        let mut kept = Kept::default();
        (0..2000u64).for_each(|wave| {
            push(
                &mut kept,
                wave,
                flag::part::FIRST | flag::part::LAST | flag::up::FULL,
                b"0123456789",
            )
        });
        let mut over = WaveSet::default();
        over.insert(500, 1999);
        kept.drop_waves(&[(500, 1999)], &over);
        assert_eq!(kept.bytes(), 500 * 34);
        over.insert(0, 9);
        over.insert(20, 29);
        kept.drop_waves(&[(0, 9), (20, 29)], &over);
        let waves: Vec<u64> =
            kept.take().iter().map(|frame| Header::parse(frame).unwrap().unwrap().wave).collect();
        assert_eq!(waves, (10..20).chain(30..500).collect::<Vec<_>>());
    }

    /// Runs go when all their waves are over; and what came out of order goes too.
    #[test]
    fn runs_and_late_entries_go() {
        let mut kept = Kept::default();
        let mut over = WaveSet::default();
        let run = |kept: &mut Kept, wave, count| {
            let header = Header { wave, body_len: count, ..Header::new(Kind::Run) };
            kept.push(wave, count, &header.to_bytes(), &vec![0; count as usize]);
        };
        run(&mut kept, 0, 1);
        run(&mut kept, 1, 10);
        run(&mut kept, 11, 10);
        for (first, last, left) in [(5, 15, 3), (1, 4, 2), (16, 30, 1), (0, 0, 0)] {
            over.insert(first, last);
            kept.drop_waves(&[(first, last)], &over);
            assert_eq!(
                kept.entries.iter().filter(|entry| !entry.gone).count(),
                left,
                "{first}..={last}"
            );
        }
        [40, 42, 41].into_iter().for_each(|wave| {
            push(&mut kept, wave, flag::part::FIRST | flag::part::LAST | flag::up::FULL, b"x")
        });
        over.insert(41, 41);
        kept.drop_waves(&[(41, 41)], &over);
        assert_eq!(kept.take().len(), 2);
    }

    #[test]
    fn contribution_goes_once_all_its_leaves_are_counted() {
        let mut kept = Kept::default();
        let mut cover = Vec::new();
        Coverage { ok: std::sync::Arc::new(RangeSet::from_range(4, 6)), ..Coverage::default() }
            .encode(&mut cover);
        push(&mut kept, 3, flag::part::FIRST | flag::part::LAST, &cover);
        push(&mut kept, 3, flag::part::FIRST | flag::up::FULL, b"a");
        push(&mut kept, 3, flag::part::LAST | flag::up::FULL, b"b");
        let members = RangeSet::from_range(0, 4);
        kept.drop_counted(3, &RangeSet::from_range(4, 8), &members);
        assert_eq!(kept.take().len(), 2);
        push(&mut kept, 3, flag::part::FIRST | flag::up::FULL, b"a");
        push(&mut kept, 3, flag::part::LAST | flag::up::FULL, b"b");
        kept.name_members(&members);
        kept.drop_counted(3, &RangeSet::from_range(0, 3), &members);
        assert_eq!(kept.entries.len(), 2);
        kept.drop_counted(3, &RangeSet::from_range(0, 5), &members);
        assert_eq!(kept.bytes(), 0);
    }

    #[test]
    fn wave_sets_merge_what_touches() {
        let mut set = WaveSet::default();
        for (first, last) in [(5, 6), (0, 1), (9, 9), (2, 4), (8, 8), (20, 30), (7, 7), (10, 25)] {
            set.insert(first, last);
        }
        assert_eq!(set.ranges(), [(0, 30)]);
        assert_eq!((set.first_missing(), WaveSet::default().first_missing()), (31, 0));
    }
}
