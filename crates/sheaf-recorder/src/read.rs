//! A segment, at who reads it: while its process runs, or when that is gone.
use crate::clock::{ClockKind, TraceClock};
use crate::layout::{
    COMMAND_BYTES_MAX, HEADER_BYTES, IO_LAYERS, IoLayer, IoRecord, MAGIC, NAME_BYTES_MAX,
    NAME_HEADER_BYTES, RING_HEADER_BYTES, RingHeader, SegmentHeader, VERSION, flag,
};
use crate::op::IoOp;
use crate::process_stat::ProcessStat;
use crate::segment::{Full, SegmentOptions, boot};
use crate::sys::{self, Descriptor, Mapping, OpenHow};
use std::collections::HashMap;
use std::ffi::CString;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::fence;

/// Why a file is not read as a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Damage {
    /// It cannot be opened or mapped; the kernel's number of the reason.
    Kernel(i32),
    /// It does not begin as segments do, or its process has not made it as a whole.
    NoSegment,
    /// It is of another version.
    Version(u32),
    /// Its sizes do not go together.
    Sizes,
    /// The file is shorter than it says: so many bytes are there of so many.
    Short(u64, u64),
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(errno) => write!(f, "{}", std::io::Error::from_raw_os_error(*errno)),
            Self::NoSegment => write!(f, "it is no segment, or was not made as a whole"),
            Self::Version(version) => {
                write!(f, "it is of version {version}, and this reads version {VERSION}")
            }
            Self::Sizes => write!(f, "its sizes do not go together"),
            Self::Short(have, want) => write!(f, "{have} of its {want} bytes are there"),
        }
    }
}

impl std::error::Error for Damage {}

/// A record as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingRecord {
    /// What it was; `None` for one that this version does not know.
    pub op: Option<IoOp>,
    /// The operation's number.
    pub op_number: u16,
    /// Who did it.
    pub layer: IoLayer,
    /// Bits of [`flag`], without the layer.
    pub flags: u16,
    /// When it began, on the segment's clock.
    pub begun: u64,
    /// How long it took, on the same.
    pub ticks: u64,
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
    /// The thread that did it.
    pub thread: u32,
    /// Its ring, and its number in there, counted from 0.
    pub place: (u32, u64),
}

/// Operations of one ring that were not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The ring.
    pub ring: u32,
    /// How many.
    pub count: u64,
    /// When the first of them began, on the segment's clock.
    pub from: u64,
    /// When the last of them ended.
    pub to: u64,
}

/// What has come since the last time.
#[derive(Debug, Clone, Default)]
pub struct Read {
    /// Ring by ring, each in its order.
    pub records: Vec<RingRecord>,
    /// Names by their numbers.
    pub names: HashMap<u64, Vec<u8>>,
    /// Where something is missing among the records, as far as that is written down there; of rings
    /// that are overwritten it is not.
    pub gaps: Vec<Gap>,
    /// Operations that were not kept for want of room, in all since the segment was made.
    pub lost: u64,
    /// Operations that later ones have taken the place of, in all: of a flight recorder.
    pub overwritten: u64,
    /// Names for which there was no room, in all.
    pub names_lost: u64,
    /// Operations that found no ring, in all.
    pub unplaced: u64,
    /// More is there than was asked for.
    pub more: bool,
}

/// What is known of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// That of who started it.
    pub parent: u32,
    /// For whom it ran.
    pub user: u32,
    /// Its command line, with a zero behind each word.
    pub command: Vec<u8>,
    /// Which clock its records have.
    pub clock: ClockKind,
    /// That clock when the segment was made.
    pub made: u64,
    /// The time of day then, in ns.
    pub made_ns: u64,
    /// When it was started, in the kernel's own ticks since the machine was; 0: not known. It stays
    /// the same when the process becomes another program.
    pub started: u64,
}

/// A segment, at who reads it. There is one reader at a time; the next goes on where it was.
#[derive(Debug)]
pub struct Reader {
    mapping: Mapping,
    options: SegmentOptions,
    process: Process,
    started: u64,
    /// It was made in this boot of the machine.
    is_of_this_boot: bool,
    /// In a ring that is overwritten: how many have been passed over unread.
    overwritten: u64,
    /// How often names were passed over that are none of ours.
    names_passed: u64,
    /// How far each ring was taken.
    taken: Vec<RingPlace>,
}

/// How far a ring was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RingPlace {
    /// Records, counted from the first ever.
    pub records: u64,
    /// Bytes of names, counted likewise.
    pub names: u64,
    /// Losses that its writer had no more room to tell of, and that were told by the reader.
    pub untold: u64,
}

impl Reader {
    /// Opens a segment.
    ///
    /// # Errors
    /// [`Damage`] for what is no segment, or not a whole one.
    pub fn open(path: &Path) -> Result<Self, Damage> {
        let len = std::fs::symlink_metadata(path).map_err(of_io)?.len();
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Damage::Kernel(22))?;
        let file = sys::open(&path, OpenHow::Update).map_err(|error| Damage::Kernel(error.0))?;
        Self::of(&file, len)
    }

    fn of(file: &Descriptor, len: u64) -> Result<Self, Damage> {
        if len < HEADER_BYTES as u64 {
            return Err(Damage::NoSegment);
        }
        let kernel = |error: sys::KernelError| Damage::Kernel(error.0);
        let head = Mapping::of(file, HEADER_BYTES).map_err(kernel)?;
        let header = header_of(&head);
        if header.magic.load(Acquire) != MAGIC {
            return Err(Damage::NoSegment);
        }
        let version = header.version.load(Relaxed);
        if version != VERSION {
            return Err(Damage::Version(version));
        }
        let full = Full::of(header.full.load(Relaxed)).ok_or(Damage::Sizes)?;
        let clock = ClockKind::of(header.clock.load(Relaxed)).ok_or(Damage::Sizes)?;
        let options = SegmentOptions {
            rings: header.rings.load(Relaxed),
            records: header.records.load(Relaxed),
            names_bytes: header.names_bytes.load(Relaxed),
            full,
            slow: header.slow.load(Relaxed),
        };
        if !options.are_sound() || header.used.load(Relaxed) > options.rings {
            return Err(Damage::Sizes);
        }
        if len < options.bytes() as u64 {
            return Err(Damage::Short(len, options.bytes() as u64));
        }
        let command_len = header.command_len.load(Relaxed) as usize;
        let command = header.command[..command_len.min(COMMAND_BYTES_MAX)].to_vec();
        let started = header.started.load(Relaxed);
        let process = Process {
            pid: header.pid.load(Relaxed),
            parent: header.parent.load(Relaxed),
            user: header.user.load(Relaxed),
            command,
            clock,
            made: header.made.load(Relaxed),
            made_ns: header.made_ns.load(Relaxed),
            started,
        };
        let is_of_this_boot = [0, 1].map(|at| header.boot[at].load(Relaxed)) == boot();
        let mapping = Mapping::of(file, options.bytes()).map_err(kernel)?;
        let taken = Vec::new();
        Ok(Self {
            mapping,
            options,
            process,
            started,
            is_of_this_boot,
            overwritten: 0,
            names_passed: 0,
            taken,
        })
    }

    /// The process that wrote it.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// What it does when it is full.
    #[must_use]
    pub fn full(&self) -> Full {
        self.options.full
    }

    /// Its clock, on the host that wrote it.
    #[must_use]
    pub fn clock(&self) -> TraceClock {
        TraceClock::of(self.process.clock)
    }

    /// Whether its process runs, in this boot of the machine. A process of its number that began
    /// at another time is another.
    #[must_use]
    pub fn is_written(&self) -> bool {
        if !self.is_of_this_boot || self.has_ended() {
            return false;
        }
        let mut line = [0; 1024];
        let path = CString::new(format!("/proc/{}/stat", self.process.pid)).expect("digits");
        let stat = sys::read_file(&path, &mut line).ok().and_then(ProcessStat::parse);
        stat.is_some_and(|stat| stat.start_ticks() == Some(self.started) && !is_dead(stat))
    }

    /// Whether its process has said that it ends.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        header_of(&self.mapping).ended.load(Acquire) != 0
    }

    /// What has come since the last time.
    pub fn read(&mut self) -> Read {
        self.read_some(usize::MAX)
    }

    /// What has come since the last time: no more than so many records of each ring.
    pub fn read_some(&mut self, records_max: usize) -> Read {
        let read = self.take_some(records_max);
        self.release();
        read
    }

    /// [`Reader::read_some`], but what was taken keeps its room until it is released: another
    /// reader that follows this one takes it once more.
    pub fn take_some(&mut self, records_max: usize) -> Read {
        let is_written = self.is_written();
        self.take_while(records_max, is_written)
    }

    /// [`Reader::take_some`] for who knows whether its process runs, or ran lately. Losses that
    /// a thread had no more room to tell of are told once it does not.
    pub fn take_while(&mut self, records_max: usize, is_written: bool) -> Read {
        let used = self.begin_rings();
        let unplaced = header_of(&self.mapping).unplaced.load(Relaxed);
        let mut read = Read { unplaced, ..Read::default() };
        // Who names a file that another has told of does so after that one: so records are looked
        // for before names, and taken after them.
        let heads: Vec<u64> = (0..used).map(|at| self.head(at)).collect();
        for at in 0..used {
            self.read_names(at, &mut read);
        }
        for (at, head) in (0..used).zip(heads) {
            self.read_ring(at, head, (records_max, is_written), &mut read);
        }
        match self.options.full {
            Full::Overwrite => read.overwritten = self.overwritten,
            // What has no record is damaged.
            Full::DropNewest => read.lost = read.lost.saturating_add(self.overwritten),
        }
        read.names_lost = read.names_lost.saturating_add(self.names_passed);
        read
    }

    /// Whether what the rings hold is wanted: somebody holds them, or an operation was slow.
    #[must_use]
    pub fn is_held(&self) -> bool {
        header_of(&self.mapping).held.load(Acquire) != 0
    }

    /// Of rings that are overwritten: has them stay as they are until they are let go of. What comes
    /// meanwhile, and finds no room, is lost and counted.
    pub fn hold(&self) {
        header_of(&self.mapping).held.store(1, Release);
    }

    /// Rings are overwritten again.
    pub fn let_go(&self) {
        header_of(&self.mapping).held.store(0, Release);
    }

    /// How many records rings have that were not taken.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        let size = u64::from(self.options.records);
        let used = header_of(&self.mapping).used.load(Acquire).min(self.options.rings);
        let of = |at: u32| {
            let taken = self.taken.get(at as usize).map_or(0, |place| place.records);
            self.head(at).saturating_sub(taken).min(size)
        };
        (0..used).map(of).sum()
    }

    /// Names that have come since the last time, where they take half of their room or more: their
    /// records are taken later, or never.
    pub fn take_names(&mut self) -> HashMap<u64, Vec<u8>> {
        self.begin_rings();
        let mut read = Read::default();
        for at in 0..self.taken.len() as u32 {
            let head = self.ring(at).by_writer.names_head.load(Acquire);
            let waiting = head.wrapping_sub(self.taken[at as usize].names);
            if waiting >= u64::from(self.options.names_bytes) / 2 {
                self.read_names(at, &mut read);
                let names = self.taken[at as usize].names;
                self.ring(at).by_reader.names_tail.store(names, Release);
            }
        }
        read.names
    }

    /// Looks which rings there are by now; gives how many.
    fn begin_rings(&mut self) -> u32 {
        let used = header_of(&self.mapping).used.load(Acquire).min(self.options.rings);
        for at in self.taken.len() as u32..used {
            let line = &self.ring(at).by_reader;
            let (records, names) = (line.tail.load(Relaxed), line.names_tail.load(Relaxed));
            self.taken.push(RingPlace { records, names, untold: 0 });
        }
        used
    }

    /// Gives the room of what was taken back to those who write.
    pub fn release(&mut self) {
        for at in 0..self.taken.len() {
            let place = self.taken[at];
            let ring = self.ring(at as u32);
            ring.by_reader.tail.store(place.records, Release);
            ring.by_reader.names_tail.store(place.names, Release);
            if place.untold > 0 {
                ring.by_writer.untold.store(0, Relaxed);
                self.taken[at].untold = 0;
            }
        }
    }

    /// How far each ring was taken.
    #[must_use]
    pub fn places(&self) -> &[RingPlace] {
        &self.taken
    }

    /// Goes on where another reader was that has released no more. Places that are behind what was
    /// released are not gone back to.
    pub fn resume(&mut self, places: &[RingPlace]) {
        let used = header_of(&self.mapping).used.load(Acquire).min(self.options.rings);
        for (at, place) in (0..used).zip(places) {
            let line = &self.ring(at).by_reader;
            let (records, names) = (line.tail.load(Relaxed), line.names_tail.load(Relaxed));
            let (records, names) = (records.max(place.records), names.max(place.names));
            self.taken.push(RingPlace { records, names, untold: place.untold });
        }
        self.release();
    }

    #[expect(unsafe_code, reason = "rings lie in a file in memory")]
    fn ring(&self, at: u32) -> &RingHeader {
        let offset = HEADER_BYTES + at as usize * self.options.stride();
        // SAFETY: the mapping is as long as its options say, and rings are changed as atomics.
        unsafe { &*self.mapping.start().add(offset).cast() }
    }

    #[expect(unsafe_code, reason = "as above")]
    fn slot(&self, ring: u32, position: u64) -> &IoRecord {
        let place = (position & (u64::from(self.options.records) - 1)) as usize;
        let start: *const RingHeader = self.ring(ring);
        // SAFETY: as above; behind a ring's header there are so many records.
        unsafe { &*start.cast::<u8>().add(RING_HEADER_BYTES).cast::<IoRecord>().add(place) }
    }

    /// The end of what is committed. A process may have ended between the two last steps.
    fn head(&self, at: u32) -> u64 {
        let line = &self.ring(at).by_writer;
        let head = line.head.load(Acquire);
        // What has no memory yet is not looked at: that would take some.
        let place = head & (u64::from(self.options.records) - 1);
        if place >= u64::from(line.records_there.load(Relaxed)) {
            return head;
        }
        let next = head.wrapping_add(1);
        if self.slot(at, head).commit.load(Acquire) == next { next } else { head }
    }

    /// The end of what is committed by the records alone: for a ring whose head cannot be.
    fn committed(&self, at: u32, tail: u64) -> u64 {
        let size = u64::from(self.options.records);
        let there = u64::from(self.ring(at).by_writer.records_there.load(Relaxed)).min(size);
        let commits = (0..there).map(|place| (place, self.slot(at, place).commit.load(Acquire)));
        let is_possible = |&(place, commit): &(u64, u64)| {
            commit > tail && commit - tail <= size && (commit - 1) % size == place
        };
        commits.filter(is_possible).map(|(_, commit)| commit).max().unwrap_or(tail)
    }

    fn read_ring(
        &mut self,
        at: u32,
        head: u64,
        (records_max, is_written): (usize, bool),
        read: &mut Read,
    ) {
        let size = u64::from(self.options.records);
        let mut tail = self.taken[at as usize].records;
        let mut passed = 0;
        let is_possible =
            self.options.full == Full::Overwrite || (head >= tail && head - tail <= size);
        let head = if is_possible { head } else { self.committed(at, tail) };
        if head.saturating_sub(tail) > size {
            passed = head - size - tail;
            tail = head - size;
        }
        let end = head.min(tail.saturating_add(records_max as u64));
        read.more |= end < head;
        for position in tail..end {
            match self.record(at, position) {
                Some(record) if record.op == Some(IoOp::Lost) => read.gaps.push(Gap {
                    ring: at,
                    count: record.bytes,
                    from: record.begun,
                    to: record.begun.saturating_add(record.ticks),
                }),
                Some(record) => read.records.push(record),
                // Overwritten since.
                None => passed += 1,
            }
        }
        self.overwritten = self.overwritten.saturating_add(passed);
        self.taken[at as usize].records = end.max(tail);
        let line = &self.ring(at).by_writer;
        read.lost = read.lost.saturating_add(line.lost.load(Acquire));
        read.names_lost = read.names_lost.saturating_add(line.names_lost.load(Relaxed));
        // While a thread has the ring, and its process runs, it tells of them itself.
        let is_written = is_written && line.thread.load(Relaxed) != 0;
        if end == head && self.options.full == Full::DropNewest && !is_written {
            let untold = line.untold.load(Acquire);
            if untold > 0 && self.taken[at as usize].untold == 0 {
                let (from, to) = (line.untold_from.load(Relaxed), line.untold_to.load(Relaxed));
                read.gaps.push(Gap { ring: at, count: untold, from, to });
                self.taken[at as usize].untold = untold;
            }
        }
    }

    fn record(&self, ring: u32, position: u64) -> Option<RingRecord> {
        let slot = self.slot(ring, position);
        if slot.commit.load(Acquire) != position + 1 {
            return None;
        }
        let what = slot.what.load(Relaxed);
        let (number, flags) = (what as u16, (what >> 16) as u16);
        let ticks = u64::from(slot.ticks.load(Relaxed));
        let record = RingRecord {
            op: IoOp::of(number),
            op_number: number,
            layer: IO_LAYERS.get((flags & flag::LAYER) as usize).copied().unwrap_or(IoLayer::Posix),
            flags: flags & !flag::LAYER,
            begun: slot.begun.load(Relaxed),
            ticks: if flags & flag::LONG != 0 { ticks << 16 } else { ticks },
            file: slot.file.load(Relaxed),
            offset: slot.offset.load(Relaxed),
            asked: slot.asked.load(Relaxed),
            bytes: slot.result.load(Relaxed),
            span: slot.span.load(Relaxed),
            thread: slot.thread.load(Relaxed),
            place: (ring, position),
        };
        fence(Acquire);
        (slot.commit.load(Relaxed) == position + 1).then_some(record)
    }

    #[expect(unsafe_code, reason = "names lie behind a ring's records")]
    fn read_names(&mut self, at: u32, read: &mut Read) {
        let ring = self.ring(at);
        let bytes = u64::from(self.options.names_bytes);
        let head = ring.by_writer.names_head.load(Acquire);
        let mut tail = self.taken[at as usize].names;
        let start: *const RingHeader = ring;
        let records = self.options.records as usize;
        // SAFETY: a ring's names lie behind its records.
        let area = unsafe {
            start.cast::<u8>().add(RING_HEADER_BYTES).cast::<IoRecord>().add(records).cast::<u8>()
        };
        let begins = |place: u64| place.is_multiple_of(8);
        if !begins(tail) || !begins(head) || head.wrapping_sub(tail) > bytes {
            // No more than there is room for, and none begins between: names come again with other
            // opens.
            self.names_passed += 1;
            tail = head;
        }
        while tail < head {
            let (place, left) = ((tail % bytes) as usize, bytes - tail % bytes);
            // SAFETY: within the area, which is a multiple of 8 long, as all that lies there.
            let number = unsafe { area.add(place).cast::<u64>().read_volatile() };
            if number == 0 {
                tail += left;
                continue;
            }
            if left < NAME_HEADER_BYTES as u64 {
                self.names_passed += 1;
                tail = head;
                break;
            }
            // SAFETY: as above; nothing but a skip is shorter than this.
            let len = unsafe { area.add(place + 8).cast::<u64>().read_volatile() };
            let len = usize::try_from(len).unwrap_or(usize::MAX).min(NAME_BYTES_MAX + 1);
            let need = (NAME_HEADER_BYTES + len.next_multiple_of(8)) as u64;
            if len > NAME_BYTES_MAX || need > left {
                // What is written there is nothing of ours.
                self.names_passed += 1;
                tail = head;
                break;
            }
            let mut name = vec![0; len];
            // SAFETY: so much is there, and is not written before the tail has passed it.
            unsafe {
                area.add(place + NAME_HEADER_BYTES).copy_to_nonoverlapping(name.as_mut_ptr(), len);
            }
            read.names.insert(number, name);
            tail += need;
        }
        self.taken[at as usize].names = tail;
    }
}

#[expect(unsafe_code, reason = "the header of a segment lies in a file in memory")]
fn header_of(mapping: &Mapping) -> &SegmentHeader {
    assert!(mapping.len() >= HEADER_BYTES, "a segment's mapping has its header");
    // SAFETY: the mapping has the header as a whole; what changes in it are atomics.
    unsafe { &*mapping.start().cast() }
}

fn of_io(error: std::io::Error) -> Damage {
    Damage::Kernel(error.raw_os_error().unwrap_or(5))
}

/// A process that has ended, and that its parent has not asked for.
fn is_dead(stat: ProcessStat<'_>) -> bool {
    stat.state().is_some_and(|state| b"ZXx".contains(&state))
}
