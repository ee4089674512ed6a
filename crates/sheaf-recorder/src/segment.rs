//! A process's segment, at the process.
use crate::clock::TraceClock;
use crate::layout::{
    HEADER_BYTES, MAGIC, RECORD_BYTES, RING_HEADER_BYTES, RingHeader, SegmentHeader, VERSION,
};
use crate::process_stat::ProcessStat;
use crate::sys::{self, KernelError, Mapping, OpenHow};
use crate::writer::RingWriter;
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The longest path of a segment, and a zero.
const PATH_BYTES_MAX: usize = 1024;

/// Room for names by the number of records: of a file that is opened, read once and closed the records are as long as
/// a name of 80 bytes.
const NAME_BYTES_OF_RECORD: u32 = 32;

/// What a full ring does with the next record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u32)]
pub enum Full {
    /// It is not kept, and is counted.
    #[default]
    DropNewest = 0,
    /// It takes the place of the oldest: a flight recorder.
    Overwrite = 1,
}

impl Full {
    pub(crate) fn of(number: u32) -> Option<Self> {
        [Self::DropNewest, Self::Overwrite].into_iter().find(|full| *full as u32 == number)
    }
}

/// How large a segment is, and what it does when it is full.
#[derive(Debug, Clone, Copy)]
pub struct SegmentOptions {
    /// The most threads that record at once; those beyond are counted. Memory is taken by those
    /// that there are.
    pub rings: u32,
    /// Records that each keeps until they are read: a power of two
    /// ([`SegmentOptions::with_records`]).
    pub records: u32,
    /// Bytes of names that each keeps until they are read: a power of two.
    pub names_bytes: u32,
    /// What happens when they are not read in time.
    pub full: Full,
    /// With [`Full::DropNewest`]: how long a thread waits for room before an operation is not kept, in ns. One that
    /// nobody has made room for in that time waits no more until somebody has.
    pub patience_ns: u64,
    /// With [`Full::Overwrite`]: an operation that takes so long, on [`TraceClock::best`], has the
    /// segment held as it is ([`Reader::hold`](crate::Reader::hold)). 0: none does.
    pub slow: u64,
}

impl Default for SegmentOptions {
    fn default() -> Self {
        Self {
            rings: 256,
            records: Self::RECORDS_USUAL,
            names_bytes: Self::RECORDS_USUAL * NAME_BYTES_OF_RECORD,
            full: Full::DropNewest,
            patience_ns: 0,
            slow: 0,
        }
    }
}

impl SegmentOptions {
    /// How many records a ring has, if nothing else is said: 4 MiB, as far as they are used. At full
    /// speed that lasts for some 10 ms.
    pub const RECORDS_USUAL: u32 = 64 << 10;
    /// The fewest records of a ring.
    pub const RECORDS_MIN: u32 = 4;
    /// The most records of a ring: 1 GiB.
    pub const RECORDS_MAX: u32 = 1 << 24;
    /// The most threads that record at once.
    pub const RINGS_MAX: u32 = 1 << 16;
    const NAMES_BYTES_USUAL_MIN: u32 = 64 << 10;
    pub(crate) const NAMES_BYTES_MAX: u32 = 1 << 28;

    /// With rings of at least so many records, rounded up to a power of two, from
    /// [`Self::RECORDS_MIN`] to [`Self::RECORDS_MAX`], and room for as many names as they may need.
    #[must_use]
    pub fn with_records(self, records: u32) -> Self {
        let records = records.clamp(Self::RECORDS_MIN, Self::RECORDS_MAX).next_power_of_two();
        let names_bytes = records.saturating_mul(NAME_BYTES_OF_RECORD);
        let names_bytes = names_bytes.clamp(Self::NAMES_BYTES_USUAL_MIN, Self::NAMES_BYTES_MAX);
        Self { records, names_bytes, ..self }
    }

    pub(crate) fn are_sound(&self) -> bool {
        let records = self.records.is_power_of_two()
            && (Self::RECORDS_MIN..=Self::RECORDS_MAX).contains(&self.records);
        let names = self.names_bytes.is_power_of_two()
            && (1 << 13..=Self::NAMES_BYTES_MAX).contains(&self.names_bytes);
        (1..=Self::RINGS_MAX).contains(&self.rings) && records && names
    }

    pub(crate) fn stride(&self) -> usize {
        RING_HEADER_BYTES + self.records as usize * RECORD_BYTES + self.names_bytes as usize
    }

    /// How long the file of a segment is, most of which is a hole until it is used.
    #[must_use]
    pub fn bytes(&self) -> usize {
        HEADER_BYTES + self.rings as usize * self.stride()
    }
}

/// A process's segment, at the process: gives its threads their rings.
#[derive(Debug)]
pub struct TraceSegment {
    pub(crate) mapping: Mapping,
    /// Where it is, with a zero behind it.
    path: [u8; PATH_BYTES_MAX],
    pub(crate) options: SegmentOptions,
    clock: TraceClock,
    process: u32,
    /// When it was looked last, in vain, for rings whose threads have ended.
    looked: AtomicU64,
}

impl TraceSegment {
    /// Makes a file that is not there yet, for this process.
    ///
    /// # Errors
    /// As the kernel says; `EINVAL` for sizes that are no powers of two, or beyond all measure.
    pub fn create(path: &Path, options: &SegmentOptions) -> Result<Self, KernelError> {
        const EINVAL: KernelError = KernelError(22);
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| EINVAL)?;
        Self::create_at(&path, options, None)
    }

    /// [`TraceSegment::create`], without memory of the program's. A process that was forked gives the
    /// segment of the one that it was forked from: it has the same command line and clock.
    ///
    /// # Errors
    /// As there.
    pub fn create_at(
        path: &CStr,
        options: &SegmentOptions,
        parent: Option<&Self>,
    ) -> Result<Self, KernelError> {
        const EINVAL: KernelError = KernelError(22);
        const ENAMETOOLONG: KernelError = KernelError(36);
        if !options.are_sound() {
            return Err(EINVAL);
        }
        let bytes = path.to_bytes_with_nul();
        let mut kept = [0; PATH_BYTES_MAX];
        kept.get_mut(..bytes.len()).ok_or(ENAMETOOLONG)?.copy_from_slice(bytes);
        let file = sys::open(path, OpenHow::CreateNew)?;
        let sized = file.set_len(options.bytes() as u64);
        let mapped = sized.and_then(|()| Mapping::of(&file, options.bytes()));
        let (clock, process) =
            (parent.map_or_else(TraceClock::best, |parent| parent.clock), sys::process());
        let made = mapped.and_then(|mapping| {
            let looked = AtomicU64::new(0);
            let segment = Self { mapping, path: kept, options: *options, clock, process, looked };
            segment.set_aside(0, HEADER_BYTES)?;
            Ok(segment)
        });
        // Nobody reads one that was never begun; that it stays is worth no word of its own.
        let mut segment = made.inspect_err(|_| {
            let _ = sys::unlink(path);
        })?;
        segment.begin(parent.map(Self::header));
        Ok(segment)
    }

    fn begin(&mut self, parent: Option<&SegmentHeader>) {
        let (clock, options, process) = (self.clock, self.options, self.process);
        let header = self.header_mut();
        // What cannot be read stays empty: it names the process for those who look.
        let command_len = match parent {
            Some(parent) => {
                header.command = parent.command;
                parent.command_len.load(Relaxed)
            }
            None => sys::read_file(c"/proc/self/cmdline", &mut header.command)
                .map_or(0, |command| command.len() as u32),
        };
        header.command_len.store(command_len, Relaxed);
        let (now, day) = clock.pair();
        header.version.store(VERSION, Relaxed);
        header.clock.store(clock.kind() as u32, Relaxed);
        header.pid.store(process, Relaxed);
        header.parent.store(sys::parent(), Relaxed);
        header.user.store(sys::user(), Relaxed);
        header.full.store(options.full as u32, Relaxed);
        header.slow.store(options.slow, Relaxed);
        header.rings.store(options.rings, Relaxed);
        header.records.store(options.records, Relaxed);
        header.names_bytes.store(options.names_bytes, Relaxed);
        header.made.store(now, Relaxed);
        header.made_ns.store(day, Relaxed);
        header.started.store(started_at().unwrap_or(0), Relaxed);
        let boot = match parent {
            Some(parent) => parent.boot.each_ref().map(|half| half.load(Relaxed)),
            None => boot(),
        };
        for (at, half) in boot.into_iter().enumerate() {
            header.boot[at].store(half, Relaxed);
        }
        let abandoned = parent.map_or(0, |parent| parent.abandoned.load(Relaxed));
        header.abandoned.store(abandoned, Relaxed);
        header.magic.store(MAGIC, Release);
    }

    /// Has memory for a part of the file, so that writing there cannot fail: memory that is not
    /// there would end the process by a signal, in the middle of whatever it does.
    pub(crate) fn set_aside(&self, at: usize, bytes: usize) -> Result<(), KernelError> {
        const EINVAL: KernelError = KernelError(22);
        match self.mapping.populate(at, bytes) {
            // An older kernel.
            Err(EINVAL) => {
                let path = CStr::from_bytes_until_nul(&self.path).map_err(|_| EINVAL)?;
                sys::open(path, OpenHow::Update)?.allocate(at as u64, bytes as u64)
            }
            populated => populated,
        }
    }

    #[expect(unsafe_code, reason = "the header of a segment lies in a file in memory")]
    pub(crate) fn header(&self) -> &SegmentHeader {
        // SAFETY: the mapping is longer than the header, begins with a page and lives as long as
        // the reference; what others change in it are atomics, but for the command, which is
        // written before anybody else knows the file.
        unsafe { &*self.mapping.start().cast() }
    }

    #[expect(unsafe_code, reason = "as above")]
    fn header_mut(&mut self) -> &mut SegmentHeader {
        // SAFETY: as above; nobody else has the file yet.
        unsafe { &mut *self.mapping.start().cast() }
    }

    /// Where a ring begins.
    pub(crate) fn offset(&self, at: u32) -> usize {
        assert!(at < self.options.rings, "a segment has {} rings", self.options.rings);
        HEADER_BYTES + at as usize * self.options.stride()
    }

    #[expect(unsafe_code, reason = "rings lie in a file in memory")]
    pub(crate) fn ring(&self, at: u32) -> *mut RingHeader {
        let offset = self.offset(at);
        // SAFETY: the mapping is as long as the options say.
        unsafe { self.mapping.start().add(offset).cast() }
    }

    /// The process that it was made for.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.process
    }

    /// The clock of its records.
    #[must_use]
    pub fn clock(&self) -> TraceClock {
        self.clock
    }

    /// A ring for this thread; `None` where all are in use.
    #[must_use]
    pub fn writer(&self) -> Option<RingWriter<'_>> {
        let thread = sys::thread();
        if thread == 0 {
            // It may not ask for its number, by which others know that a ring is in use.
            return None;
        }
        let mut used = self.header().used.load(Acquire);
        loop {
            if let Some(at) = (0..used).find(|&at| self.take(at, thread)) {
                return Some(RingWriter::new(self, at, thread));
            }
            if used == self.options.rings {
                return self.ring_of_ended(thread);
            }
            // Others look at it as soon as it is counted.
            self.begin_ring(used).ok()?;
            let exchanged = self.header().used.compare_exchange(used, used + 1, Release, Acquire);
            used = exchanged.map_or_else(|now| now, |before| before + 1);
        }
    }

    /// A ring whose thread has ended and could not say so, as what a library does at a thread's end may come after that.
    /// Where there is none, it is looked again a while later.
    fn ring_of_ended(&self, thread: u32) -> Option<RingWriter<'_>> {
        const PAUSE_NS: u64 = 50_000_000;
        let now = sys::clock_ns(sys::CLOCK_MONOTONIC_RAW);
        if now.wrapping_sub(self.looked.load(Relaxed)) < PAUSE_NS {
            return None;
        }
        let mut found = None;
        for at in 0..self.options.rings {
            let owner = &self.writer_line(at).thread;
            let ended = owner.load(Acquire);
            let has_ended = ended != 0 && !sys::has_thread(ended);
            if has_ended {
                // Unless another thread has found it meanwhile.
                let _ = owner.compare_exchange(ended, 0, Acquire, Relaxed);
            }
            if found.is_none() && self.take(at, thread) {
                found = Some(RingWriter::new(self, at, thread));
            }
        }
        if found.is_none() {
            self.looked.store(now, Relaxed);
        }
        found
    }

    /// All rings that there are get memory as a whole, this one first, as nothing is asked of the kernel later: as far
    /// as it is not too much.
    pub fn prepare(&self, first: Option<&RingWriter<'_>>) {
        const BYTES_MAX: usize = 256 << 20;
        let used = self.header().used.load(Acquire);
        let mut left = BYTES_MAX.max(self.options.stride());
        let first = first.map(|ring| ring.number());
        for at in first.into_iter().chain((0..used).filter(|at| Some(*at) != first)) {
            if left < self.options.stride() {
                return;
            }
            left -= self.options.stride();
            let start = self.offset(at);
            if self.set_aside(start, self.options.stride()).is_ok() {
                let line = self.writer_line(at);
                line.records_there.fetch_max(self.options.records, Relaxed);
                line.names_there.fetch_max(self.options.names_bytes, Relaxed);
            }
        }
    }

    /// A ring's header has memory, and the records that share a page with it.
    fn begin_ring(&self, at: u32) -> Result<(), KernelError> {
        let start = self.offset(at);
        self.set_aside(start, RING_HEADER_BYTES)?;
        let records = start + RING_HEADER_BYTES;
        let there = (records.next_multiple_of(sys::PAGE_BYTES) - records) / RECORD_BYTES;
        let there = self.options.records.min(there as u32);
        // Another thread may have it by now, and have gone on.
        self.writer_line(at).records_there.fetch_max(there, Relaxed);
        Ok(())
    }

    fn take(&self, at: u32, thread: u32) -> bool {
        self.writer_line(at).thread.compare_exchange(0, thread, Acquire, Relaxed).is_ok()
    }

    #[expect(unsafe_code, reason = "as for rings")]
    pub(crate) fn writer_line(&self, at: u32) -> &crate::layout::WriterLine {
        // SAFETY: a ring is there, as long as the mapping, and is changed as atomics alone.
        unsafe { &(*self.ring(at)).by_writer }
    }

    /// An operation could not be recorded for want of a ring, or because another was just being
    /// recorded by the same thread.
    pub fn unplaced(&self) {
        self.header().unplaced.fetch_add(1, Relaxed);
    }

    /// A thread has waited for room.
    pub(crate) fn waited(&self, ns: u64) {
        self.header().waits.fetch_add(1, Relaxed);
        self.header().waited_ns.fetch_add(ns, Relaxed);
    }

    /// Whether nobody takes anything any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.header().abandoned.load(Acquire) != 0
    }

    /// Whether what rings hold is wanted as it is.
    pub(crate) fn is_held(&self) -> bool {
        self.header().held.load(Acquire) != 0
    }

    /// What rings hold is wanted, from here on.
    pub(crate) fn hold(&self) {
        self.header().held.store(1, Release);
    }

    /// The process ends as it means to.
    pub fn end(&self) {
        self.header().ended.store(1, Release);
    }
}

/// When this process started, in the kernel's own ticks since the machine did (proc(5), `stat`).
fn started_at() -> Option<u64> {
    let mut line = [0; 1024];
    let line = sys::read_file(c"/proc/self/stat", &mut line).ok()?;
    ProcessStat::parse(line)?.start_ticks()
}

/// This boot of the machine; zeros where the kernel does not say.
pub(crate) fn boot() -> [u64; 2] {
    let mut text = [0; 64];
    let Ok(text) = sys::read_file(c"/proc/sys/kernel/random/boot_id", &mut text) else {
        return [0; 2];
    };
    let digits = text.iter().filter_map(|&byte| char::from(byte).to_digit(16));
    let value = digits.fold(0_u128, |value, digit| value << 4 | u128::from(digit));
    [(value >> 64) as u64, value as u64]
}
