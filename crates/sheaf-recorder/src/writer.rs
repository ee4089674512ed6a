//! A thread's ring, at the thread that writes it.
//!
//! In a flight recorder, the thread whose operation was slow holds all rings of its process with
//! one store: none is overwritten from then on. The thread saw the reason, so a reader that looks
//! 10 ms later still finds the operations that led to it.
use crate::layout::{
    HEADER_BYTES, IoLayer, IoRecord, NAME_BYTES_MAX, NAME_HEADER_BYTES, NAME_PART, RECORD_BYTES,
    RING_HEADER_BYTES, ReaderLine, RingHeader, WriterLine, flag,
};
use crate::op::IoOp;
use crate::segment::{Full, TraceSegment};
use crate::sys;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::fence;

/// An operation that has ended.
#[derive(Debug, Clone, Copy)]
pub struct IoEvent {
    /// What it was.
    pub op: IoOp,
    /// Who did it.
    pub layer: IoLayer,
    /// Bits of [`flag`], without the layer.
    pub flags: u16,
    /// When it began, on the segment's clock.
    pub begun: u64,
    /// When it ended.
    pub ended: u64,
    /// The number of its file's name, or 0.
    pub file: u64,
    /// Where in the file, if [`flag::PLACED`].
    pub offset: u64,
    /// How many bytes it was asked for.
    pub asked: u64,
    /// How many it moved; with [`flag::FAILED`] its errno.
    pub bytes: u64,
    /// The operation that it is a part of, or 0.
    pub span: u32,
}

impl IoEvent {
    /// One of which nothing is known yet.
    #[must_use]
    pub const fn new(op: IoOp) -> Self {
        Self {
            op,
            layer: IoLayer::Posix,
            flags: 0,
            begun: 0,
            ended: 0,
            file: 0,
            offset: 0,
            asked: 0,
            bytes: 0,
            span: 0,
        }
    }
}

/// A thread's ring, at the thread: given back with this.
#[derive(Debug)]
pub struct RingWriter<'a> {
    segment: &'a TraceSegment,
    ring: *mut RingHeader,
    thread: u32,
    /// Position of the next record; nobody else writes it.
    head: u64,
    /// What of the reader's position was seen last: it may be further.
    tail: u64,
    /// Where the ring begins in the segment.
    offset: usize,
    /// How many of its records have memory: those behind are asked for when they are reached.
    there: u64,
    mask: u64,
    overwrites: bool,
    /// Of a ring that is overwritten: an operation that takes so long is wanted with what was before.
    slow: u64,
    untold: u64,
    /// How long it waits for room, in ns.
    patience_ns: u64,
    /// Where the reader was when it had waited so long in vain: records and bytes of names.
    stuck_at: Option<(u64, u64)>,
}

impl<'a> RingWriter<'a> {
    pub(crate) fn new(segment: &'a TraceSegment, at: u32, thread: u32) -> Self {
        let ring = segment.ring(at);
        let line = segment.writer_line(at);
        let mut writer = Self {
            segment,
            ring,
            thread,
            head: line.head.load(Acquire),
            tail: 0,
            offset: segment.offset(at),
            there: u64::from(line.records_there.load(Relaxed)),
            mask: u64::from(segment.options.records) - 1,
            overwrites: segment.options.full == Full::Overwrite,
            slow: match segment.options.slow {
                0 => u64::MAX,
                slow => slow,
            },
            untold: line.untold.load(Relaxed),
            patience_ns: segment.options.patience_ns,
            stuck_at: None,
        };
        writer.tail = writer.reader_line().tail.load(Acquire).min(writer.head);
        writer
    }

    /// Which of the segment's rings it is.
    pub(crate) fn number(&self) -> u32 {
        ((self.offset - HEADER_BYTES) / self.segment.options.stride()) as u32
    }

    /// The segment that it is part of.
    #[must_use]
    pub fn segment(&self) -> &'a TraceSegment {
        self.segment
    }

    #[expect(unsafe_code, reason = "rings lie in a file in memory")]
    fn line(&self) -> &WriterLine {
        // SAFETY: the segment lives longer; the line is changed as atomics alone.
        unsafe { &(*self.ring).by_writer }
    }

    #[expect(unsafe_code, reason = "as above")]
    fn reader_line(&self) -> &ReaderLine {
        // SAFETY: as above.
        unsafe { &(*self.ring).by_reader }
    }

    #[expect(unsafe_code, reason = "as above")]
    #[inline]
    fn slot(&self, position: u64) -> &IoRecord {
        let at = (position & self.mask) as usize;
        // SAFETY: behind a ring's header there are `mask + 1` records.
        unsafe { &*self.ring.cast::<u8>().add(RING_HEADER_BYTES).cast::<IoRecord>().add(at) }
    }

    /// Records an operation, or counts that it could not be kept.
    #[inline]
    pub fn put(&mut self, event: &IoEvent) {
        let has_room = self.has_room(1)
            || self.sees_room(1)
            || self.wait_for(|writer| writer.sees_room(1).then_some(())).is_some();
        if !has_room && sys::is_sealed() && self.head.saturating_sub(self.read_to().0) <= self.mask
        {
            // There would be room, and memory for it may not be asked for.
            return self.segment.unplaced();
        }
        if !has_room {
            return self.lose(event.begun, event.ended);
        }
        // The record of a loss comes first, so it stands where the lost operations would be.
        if self.untold > 0 && !self.tell_of_lost() {
            return self.lose(event.begun, event.ended);
        }
        self.write(event);
    }

    #[inline]
    fn has_room(&self, more: u64) -> bool {
        self.head + more - self.tail <= self.mask + 1
            && ((self.head & self.mask) + more).min(self.mask + 1) <= self.there
    }

    /// Waits until a reader has made room, or as long as may be.
    #[cold]
    fn wait_for<T>(&mut self, mut room: impl FnMut(&mut Self) -> Option<T>) -> Option<T> {
        const PAUSE_NS: u64 = 50_000;
        let is_in_vain = |writer: &Self| {
            writer.segment.is_abandoned() || writer.stuck_at == Some(writer.read_to())
        };
        if self.patience_ns == 0 || self.overwrites || is_in_vain(self) {
            return None;
        }
        let now = || sys::clock_ns(sys::CLOCK_MONOTONIC_RAW);
        let (begun, mut found, mut has_waited) = (now(), None, false);
        // What may not be asked of the kernel is not waited for.
        while sys::sleep(PAUSE_NS).is_ok() {
            (found, has_waited) = (room(self), true);
            let is_over = now() - begun >= self.patience_ns || self.segment.is_abandoned();
            if found.is_some() || is_over {
                break;
            }
        }
        self.stuck_at = if found.is_some() { None } else { Some(self.read_to()) };
        if has_waited {
            self.segment.waited(now() - begun);
        }
        found
    }

    /// How far the reader is.
    fn read_to(&self) -> (u64, u64) {
        let line = self.reader_line();
        (line.tail.load(Acquire), line.names_tail.load(Acquire))
    }

    /// Looks how far the reader is by now.
    #[cold]
    fn sees_room(&mut self, more: u64) -> bool {
        let tail = self.reader_line().tail.load(Acquire);
        // A position that no reader can have reached is none: it may be damaged, or half written.
        if self.overwrites {
            self.tail = tail.min(self.head);
        } else if (self.tail..=self.head).contains(&tail) {
            self.tail = tail;
        }
        if self.overwrites && !self.has_room(more) && !self.segment.is_held() {
            // What is not read in time was not wanted.
            self.tail = self.tail.max((self.head + more).saturating_sub(self.mask + 1));
        }
        self.set_aside(more);
        self.has_room(more)
    }

    /// Asks for memory for the next records, in steps that grow with what is there: a ring that
    /// holds few takes little.
    fn set_aside(&mut self, more: u64) {
        const STEP_BYTES_MAX: usize = 64 << 10;
        // All of it, if the ring was prepared.
        self.there = self.there.max(u64::from(self.line().records_there.load(Relaxed)));
        let record_bytes = |count: u64| count as usize * RECORD_BYTES;
        let need = record_bytes((self.head & self.mask) + more);
        let (there, size) = (record_bytes(self.there), record_bytes(self.mask + 1));
        let start = self.offset + RING_HEADER_BYTES;
        let Some(end) = grown(start, there, need, size, STEP_BYTES_MAX) else { return };
        if self.segment.set_aside(start + there, end - there).is_ok() {
            self.there = (end / RECORD_BYTES) as u64;
            self.line().records_there.store(self.there as u32, Relaxed);
        }
    }

    /// The same for names, up to an end among their bytes.
    fn set_names_aside(&mut self, need: usize) -> bool {
        let size = self.segment.options.names_bytes as usize;
        let start =
            self.offset + RING_HEADER_BYTES + self.segment.options.records as usize * RECORD_BYTES;
        let there = self.line().names_there.load(Relaxed) as usize;
        let Some(end) = grown(start, there, need, size, size) else { return true };
        let is_set = self.segment.set_aside(start + there, end - there).is_ok();
        if is_set {
            self.line().names_there.store(end as u32, Relaxed);
        }
        is_set
    }

    #[inline]
    fn write(&mut self, event: &IoEvent) {
        let (position, thread) = (self.head, self.thread);
        let slot = self.slot(position);
        if self.overwrites {
            // Who reads it meanwhile sees that it is no more what it was.
            slot.commit.store(0, Relaxed);
            fence(Release);
        }
        let ticks = event.ended.wrapping_sub(event.begun);
        let (ticks, long) = match u32::try_from(ticks) {
            Ok(ticks) => (ticks, 0),
            Err(_) => (u32::try_from(ticks >> 16).unwrap_or(u32::MAX), flag::LONG),
        };
        let flags = event.flags | event.layer as u16 | long;
        slot.begun.store(event.begun, Relaxed);
        slot.ticks.store(ticks, Relaxed);
        slot.what.store(u32::from(event.op as u16) | u32::from(flags) << 16, Relaxed);
        slot.file.store(event.file, Relaxed);
        slot.offset.store(event.offset, Relaxed);
        slot.asked.store(event.asked, Relaxed);
        slot.result.store(event.bytes, Relaxed);
        slot.span.store(event.span, Relaxed);
        slot.thread.store(thread, Relaxed);
        // The commit is the last store to the record: a reader that sees it sees all of the record,
        // also if the process ends before it stores `head`.
        slot.commit.store(position + 1, Release);
        self.head = position + 1;
        self.line().head.store(position + 1, Release);
        // After the record, so that the slow operation is held with those before it.
        if self.overwrites && event.ended.wrapping_sub(event.begun) >= self.slow {
            self.segment.hold();
        }
    }

    /// An operation is not kept. That it was is told by a record as soon as there is room.
    #[cold]
    fn lose(&mut self, begun: u64, ended: u64) {
        let line = self.line();
        if self.untold == 0 {
            line.untold_from.store(begun, Relaxed);
        }
        line.untold_to.store(ended, Relaxed);
        let lost = line.lost.load(Relaxed);
        line.untold.store(self.untold + 1, Relaxed);
        line.lost.store(lost + 1, Release);
        self.untold += 1;
    }

    /// Writes down how many were lost, and when, if there is room for that and for what follows.
    #[cold]
    fn tell_of_lost(&mut self) -> bool {
        if self.overwrites {
            // A record of it would be overwritten, too. Whoever held the ring knows when that was.
            self.line().untold.store(0, Release);
            self.untold = 0;
            return true;
        }
        if !self.has_room(2) && !self.sees_room(2) {
            return false;
        }
        let line = self.line();
        let (begun, ended) = (line.untold_from.load(Relaxed), line.untold_to.load(Relaxed));
        let lost = IoEvent { begun, ended, bytes: self.untold, ..IoEvent::new(IoOp::Lost) };
        self.write(&lost);
        self.line().untold.store(0, Release);
        self.untold = 0;
        true
    }

    /// The number of a name, which stays the same wherever it is named.
    #[must_use]
    pub fn number_of(name: &[u8]) -> u64 {
        Self::number_of_parts([name])
    }

    /// The number of the name that parts are together.
    #[must_use]
    pub fn number_of_parts<const COUNT: usize>(parts: [&[u8]; COUNT]) -> u64 {
        number_from(0xcbf2_9ce4_8422_2325, parts)
    }

    /// The number of the name that a path from a directory has, by the number of the directory's name.
    #[must_use]
    pub fn number_within(directory: u64, path: &[u8]) -> u64 {
        const ODD_INVERSE: u64 = inverse_of(ODD);
        const { assert!(ODD.wrapping_mul(ODD_INVERSE) == 1) };
        // Each step of mixing can be undone, so that what is behind it can be added.
        let hash = (directory ^ directory >> 32).wrapping_mul(ODD_INVERSE);
        let separator: &[u8] = if directory == Self::number_of(b"/") { b"" } else { b"/" };
        number_from(hash ^ hash >> 32, [separator, path])
    }

    /// The number of a name, which readers are told. Where there is no room that is counted, and
    /// `tell` says so.
    pub fn name(&mut self, name: &[u8]) -> u64 {
        let number = Self::number_of(name);
        self.tell(number, name);
        number
    }

    /// A name is not kept, which is counted.
    #[cold]
    pub fn lose_name(&self) {
        self.line().names_lost.fetch_add(1, Relaxed);
    }

    /// Whether there is room for any name.
    #[must_use]
    pub fn has_name_room(&self) -> bool {
        const NEED: u64 = 2 * (NAME_HEADER_BYTES + NAME_BYTES_MAX) as u64;
        let tail = self.reader_line().names_tail.load(Acquire);
        let waiting = self.line().names_head.load(Relaxed).saturating_sub(tail);
        waiting.saturating_add(NEED) <= u64::from(self.segment.options.names_bytes)
    }

    /// Tells readers of a name; whether there was room, and it was not too long.
    pub fn tell(&mut self, number: u64, name: &[u8]) -> bool {
        self.tell_as(number, 0, [b"", name])
    }

    /// Tells readers of a name as a path from a directory, of whose name they were told.
    pub fn tell_within(&mut self, number: u64, directory: u64, path: &[u8]) -> bool {
        self.tell_as(number, NAME_PART, [&directory.to_ne_bytes(), path])
    }

    /// Where a name of so many bytes goes: behind all that were told, and behind what is passed over.
    fn name_place(&self, need: u64) -> Option<(u64, u64)> {
        let bytes = u64::from(self.segment.options.names_bytes);
        let head = self.line().names_head.load(Relaxed);
        let tail = self.reader_line().names_tail.load(Acquire).min(head);
        // A name is never broken at the end: what is left there is passed over. So is what is left where all
        // was read: as long as names are read in time, only the beginning has memory.
        let at = head % bytes;
        let left = bytes - at;
        let is_all_read = head == tail && at >= NAMES_AGAIN_BYTES.max(need);
        let skip = if left < need || is_all_read { left } else { 0 };
        (head + skip + need - tail <= bytes).then_some((head, skip))
    }

    #[expect(unsafe_code, reason = "names lie behind a ring's records")]
    fn tell_as(&mut self, number: u64, kind: u32, [first, rest]: [&[u8]; 2]) -> bool {
        let len = first.len() + rest.len();
        if len > NAME_BYTES_MAX {
            self.lose_name();
            return false;
        }
        let need = (NAME_HEADER_BYTES + len.next_multiple_of(8)) as u64;
        let place = self.name_place(need);
        let Some((head, skip)) = place.or_else(|| self.wait_for(|writer| writer.name_place(need)))
        else {
            self.lose_name();
            return false;
        };
        let bytes = u64::from(self.segment.options.names_bytes);
        let at = head % bytes;
        let records = self.segment.options.records as usize;
        // What is passed over is marked at its beginning.
        let end = if skip > 0 { (at + 8).max(need) } else { at + need };
        if !self.set_names_aside(end as usize) {
            self.lose_name();
            return false;
        }
        // SAFETY: behind the records there are as many bytes as the options say; these are between
        // what was read and what there is room for, and within them.
        unsafe {
            let area =
                self.ring.cast::<u8>().add(RING_HEADER_BYTES).cast::<IoRecord>().add(records);
            let area = area.cast::<u8>();
            if skip > 0 {
                area.add(at as usize).cast::<[u64; 1]>().write([0]);
            }
            let at = area.add(((head + skip) % bytes) as usize);
            at.cast::<u64>().write(number);
            at.add(8).cast::<[u32; 2]>().write([len as u32, kind]);
            let at = at.add(NAME_HEADER_BYTES);
            at.copy_from_nonoverlapping(first.as_ptr(), first.len());
            at.add(first.len()).copy_from_nonoverlapping(rest.as_ptr(), rest.len());
        }
        // Last, so that a reader sees only whole names.
        self.line().names_head.store(head + skip + need, Release);
        true
    }
}

/// Names begin again from the beginning of their room once they are so far in it, and were read.
const NAMES_AGAIN_BYTES: u64 = 64 << 10;

/// What mixes the bits of a name's number.
const ODD: u64 = 0xd6e8_feb8_6659_fd93;

/// FNV-1a, with its bits mixed once more: names differ in their last bytes.
fn number_from<const COUNT: usize>(hash: u64, parts: [&[u8]; COUNT]) -> u64 {
    let add = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let hash = parts.into_iter().fold(hash, |hash, part| part.iter().fold(hash, add));
    let hash = (hash ^ hash >> 32).wrapping_mul(ODD);
    (hash ^ hash >> 32).max(1)
}

/// What an odd number is multiplied with to be 1, modulo 2⁶⁴: each step (Newton's) has twice as many right bits.
const fn inverse_of(odd: u64) -> u64 {
    let (mut inverse, mut step) = (odd, 0);
    while step < 5 {
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(inverse)));
        step += 1;
    }
    inverse
}

/// Up to where a part of the file that begins at `start` has memory next, if that is not enough: of
/// `size` bytes `there` have some, and `need` are needed. As much again, in whole pages.
fn grown(start: usize, there: usize, need: usize, size: usize, step_max: usize) -> Option<usize> {
    if need <= there {
        return None;
    }
    let end = need.max(there + there.min(step_max));
    Some(((start + end).next_multiple_of(sys::PAGE_BYTES) - start).min(size))
}

impl Drop for RingWriter<'_> {
    fn drop(&mut self) {
        // The next thread goes on where this one was.
        self.line().thread.store(0, Release);
    }
}
