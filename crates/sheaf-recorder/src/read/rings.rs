//! What rings hold, taken from the file of a segment block by block.
use super::file::{RingState, RingWord, Words};
use super::{Gap, NamePart, Read, Reader, RingRecord, TakeLimits};
use crate::layout::{
    IO_LAYERS, IoLayer, IoRecord, NAME_BYTES_MAX, NAME_HEADER_BYTES, NAME_PART, RECORD_BYTES, flag,
};
use crate::op::IoOp;
use crate::segment::Full;
use std::mem::offset_of;

/// What is read at once, of records or names. A name with its head is shorter.
const BLOCK_BYTES: usize = 64 << 10;
const BLOCK_RECORDS: u64 = (BLOCK_BYTES / RECORD_BYTES) as u64;
const _: () = assert!(NAME_HEADER_BYTES + NAME_BYTES_MAX <= BLOCK_BYTES);

/// Room for a block, and for the same block as it is a moment later.
#[derive(Default)]
pub(super) struct Blocks {
    bytes: Vec<u8>,
    again: Vec<u8>,
}

impl Reader {
    fn size(&self) -> u64 {
        self.options.records.into()
    }

    /// A ring's header, with the end of what is committed: a process may have ended between the two
    /// last steps of a record, after which nobody counts it.
    pub(super) fn ring_state(&self, at: u32, is_written: bool) -> RingState {
        let mut state = self.file.ring_state(&self.options, at);
        // What has no memory yet has no record.
        let place = state.head & (self.size() - 1);
        if !is_written && place < u64::from(state.records_there) {
            let next = state.head.wrapping_add(1);
            if self.commit(at, place) == next {
                state.head = next;
            }
        }
        state
    }

    fn commit(&self, ring: u32, place: u64) -> u64 {
        let slot = self.file.slot(&self.options, ring, place);
        self.file.word(slot + offset_of!(IoRecord, commit) as u64)
    }

    /// The end of what is committed by the records alone: for a ring whose head cannot be.
    fn committed(&self, at: u32, state: &RingState, tail: u64, blocks: &mut Blocks) -> u64 {
        let size = self.size();
        let there = u64::from(state.records_there).min(size);
        let (mut place, mut last) = (0, tail);
        while place < there {
            let count = (there - place).min(BLOCK_RECORDS);
            blocks.bytes.resize(count as usize * RECORD_BYTES, 0);
            if !self.file.read(self.file.slot(&self.options, at, place), &mut blocks.bytes) {
                break;
            }
            for (place, record) in (place..).zip(blocks.bytes.chunks_exact(RECORD_BYTES)) {
                let commit = Words(record).u64(offset_of!(IoRecord, commit));
                let is_possible =
                    commit > tail && commit - tail <= size && (commit - 1) % size == place;
                if is_possible {
                    last = last.max(commit);
                }
            }
            place += count;
        }
        last
    }

    pub(super) fn read_ring(
        &mut self,
        at: u32,
        state: &RingState,
        (limits, is_written): (&TakeLimits, bool),
        (read, blocks): (&mut Read, &mut Blocks),
    ) {
        let size = self.size();
        let overwrites = self.options.full == Full::Overwrite;
        let mut tail = self.taken[at as usize].records;
        let mut passed = 0;
        let is_possible = overwrites || (state.head >= tail && state.head - tail <= size);
        let head = if is_possible { state.head } else { self.committed(at, state, tail, blocks) };
        if head.saturating_sub(tail) > size {
            passed = head - size - tail;
            tail = head - size;
        }
        let room = limits.records.saturating_sub(read.records.len() + read.gaps.len());
        let wanted = limits.ring_records.min(room) as u64;
        let mut end = head.min(tail.saturating_add(wanted)).max(tail);
        let (mut position, mut is_head_sure) = (tail, overwrites);
        'blocks: while position < end {
            let place = position & (size - 1);
            let count = (end - position).min(size - place).min(BLOCK_RECORDS);
            if !self.read_block(at, place, count, blocks) {
                end = position;
                break;
            }
            for number in 0..count {
                match self.record(at, position + number, number as usize, blocks) {
                    Some(record) if record.op == Some(IoOp::Lost) => read.gaps.push(Gap {
                        ring: at,
                        count: record.bytes,
                        from: record.begun,
                        to: record.begun.saturating_add(record.ticks),
                    }),
                    Some(record) => read.records.push(record),
                    None => {
                        // No call promises that a word is read as a whole: the head is read again
                        // before a record counts as damaged.
                        let here = position + number;
                        if !std::mem::replace(&mut is_head_sure, true)
                            && self.file.ring_word(&self.options, at, RingWord::Head) <= here
                            && is_possible
                        {
                            end = here;
                            break 'blocks;
                        }
                        // Overwritten since, or damaged.
                        passed += 1;
                    }
                }
            }
            position += count;
        }
        read.more |= end < head;
        self.overwritten = self.overwritten.saturating_add(passed);
        self.taken[at as usize].records = end;
        // While a thread has the ring, and its process runs, it tells of losses itself.
        let is_written = is_written && state.thread != 0;
        if end == head && !overwrites && !is_written && state.untold > 0 {
            self.tell_of_lost(at, state, read);
        }
    }

    /// Losses that the writer of a ring has had no more room to tell of.
    fn tell_of_lost(&mut self, at: u32, before: &RingState, read: &mut Read) {
        // A thread may have told of them while the ring's header was read before.
        let now = self.file.ring_state(&self.options, at);
        let is_same = now.untold == before.untold
            && now.thread == before.thread
            && (now.head == before.head || now.head.wrapping_add(1) == before.head);
        if !is_same || self.taken[at as usize].untold != 0 {
            return;
        }
        let (from, to) = (now.untold_from, now.untold_to);
        read.gaps.push(Gap { ring: at, count: now.untold, from, to });
        self.taken[at as usize].untold = now.untold;
    }

    /// Reads records of a ring that lie one behind the other. Of a ring that is overwritten, twice: a
    /// record that was begun to be overwritten meanwhile has another commit then.
    fn read_block(&self, at: u32, place: u64, count: u64, blocks: &mut Blocks) -> bool {
        let (from, len) = (self.file.slot(&self.options, at, place), count as usize * RECORD_BYTES);
        blocks.bytes.resize(len, 0);
        let is_read = self.file.read(from, &mut blocks.bytes);
        if self.options.full == Full::DropNewest {
            return is_read;
        }
        blocks.again.resize(len, 0);
        is_read && self.file.read(from, &mut blocks.again)
    }

    /// The record of a position, from its place in a block.
    fn record(
        &self,
        ring: u32,
        position: u64,
        number: usize,
        blocks: &Blocks,
    ) -> Option<RingRecord> {
        let of = |block: &'_ [u8]| {
            let record = &block[number * RECORD_BYTES..][..RECORD_BYTES];
            Words(record).u64(offset_of!(IoRecord, commit)) == position + 1
        };
        if !of(&blocks.bytes) || (self.options.full == Full::Overwrite && !of(&blocks.again)) {
            return None;
        }
        let words = Words(&blocks.bytes[number * RECORD_BYTES..][..RECORD_BYTES]);
        let what = words.u32(offset_of!(IoRecord, what));
        let (op_number, flags) = (what as u16, (what >> 16) as u16);
        let ticks = u64::from(words.u32(offset_of!(IoRecord, ticks)));
        Some(RingRecord {
            op: IoOp::of(op_number),
            op_number,
            layer: IO_LAYERS.get((flags & flag::LAYER) as usize).copied().unwrap_or(IoLayer::Posix),
            flags: flags & !flag::LAYER,
            begun: words.u64(offset_of!(IoRecord, begun)),
            ticks: if flags & flag::LONG != 0 { ticks << 16 } else { ticks },
            file: words.u64(offset_of!(IoRecord, file)),
            offset: words.u64(offset_of!(IoRecord, offset)),
            asked: words.u64(offset_of!(IoRecord, asked)),
            bytes: words.u64(offset_of!(IoRecord, result)),
            span: words.u32(offset_of!(IoRecord, span)),
            thread: words.u32(offset_of!(IoRecord, thread)),
            place: (ring, position),
        })
    }

    /// Takes the names of a ring up to `head`, as long as there is room for them. Whether that is all.
    pub(super) fn read_names(
        &mut self,
        at: u32,
        head: u64,
        room: &mut usize,
        (read, blocks): (&mut Read, &mut Blocks),
    ) -> bool {
        let bytes = u64::from(self.options.names_bytes);
        let area = self.file.names(&self.options, at);
        let mut tail = self.taken[at as usize].names;
        let begins = |place: u64| place.is_multiple_of(8);
        if !begins(tail) || !begins(head) || head.wrapping_sub(tail) > bytes {
            // No more than there is room for, and none begins between: names come again with other
            // opens.
            self.names_passed += 1;
            tail = head;
        }
        while tail < head && *room > 0 {
            let (place, left) = (tail % bytes, bytes - tail % bytes);
            let len = left.min(head - tail).min(BLOCK_BYTES as u64);
            blocks.bytes.resize(len as usize, 0);
            if !self.file.read(area + place, &mut blocks.bytes) {
                break;
            }
            match names_of(&blocks.bytes, left, read) {
                // What is left behind them is passed over.
                NamesRead::Skip => tail = tail.saturating_add(left),
                NamesRead::Some(len) => {
                    tail += len as u64;
                    *room = room.saturating_sub(len);
                }
                // What is written there is nothing of ours.
                NamesRead::Damaged => {
                    self.names_passed += 1;
                    tail = head;
                }
            }
        }
        self.taken[at as usize].names = tail.min(head);
        tail >= head
    }
}

/// What was at the beginning of a block of names.
enum NamesRead {
    /// Names, in so many bytes; the next begins there.
    Some(usize),
    /// Nothing up to the end of the area.
    Skip,
    /// No name.
    Damaged,
}

/// Takes the names at the beginning of a block; up to the end of their area there are `left` bytes.
fn names_of(block: &[u8], left: u64, read: &mut Read) -> NamesRead {
    let (words, mut at) = (Words(block), 0);
    // A number at least is there: the block ends where a name does, where the area does, or it is
    // longer than the longest name.
    while at + 8 <= block.len() {
        let (number, left) = (words.u64(at), left - at as u64);
        if number == 0 {
            // The marks before it are taken first.
            return if at == 0 { NamesRead::Skip } else { NamesRead::Some(at) };
        }
        if left < NAME_HEADER_BYTES as u64 {
            return if at == 0 { NamesRead::Damaged } else { NamesRead::Some(at) };
        }
        let rest = block.len() - at;
        if rest < NAME_HEADER_BYTES {
            break;
        }
        let (len, kind) = (words.u32(at + 8) as usize, words.u32(at + 12));
        let least = if kind == NAME_PART { size_of::<u64>() } else { 0 };
        let is_one = kind <= NAME_PART && (least..=NAME_BYTES_MAX).contains(&len);
        let len = len.min(NAME_BYTES_MAX);
        let need = NAME_HEADER_BYTES + len.next_multiple_of(8);
        if !is_one || need as u64 > left {
            return if at == 0 { NamesRead::Damaged } else { NamesRead::Some(at) };
        }
        if need > rest {
            break;
        }
        let name = &block[at + NAME_HEADER_BYTES..][..len];
        if kind == NAME_PART {
            let (directory, path) = name.split_at(size_of::<u64>());
            let directory = Words(directory).u64(0);
            read.parts.push(NamePart { number, directory, path: path.to_owned() });
        } else {
            read.names.insert(number, name.to_owned());
        }
        at += need;
    }
    // One that is longer than what was written is none.
    if at == 0 { NamesRead::Damaged } else { NamesRead::Some(at) }
}
