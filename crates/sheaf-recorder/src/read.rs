//! A segment, at who reads it: while its process runs, or when that is gone.
mod file;
mod rings;

use crate::clock::{ClockKind, TraceClock};
use crate::layout::{
    COMMAND_BYTES_MAX, HEADER_BYTES, IoLayer, MAGIC, NAME_BYTES_MAX, SegmentHeader, VERSION,
};
use crate::op::IoOp;
use crate::process_stat::ProcessStat;
use crate::segment::{Full, SegmentOptions, boot};
use crate::sys;
use file::{RingState, RingWord, SegmentFile, SegmentState, Words};
use rings::Blocks;
use std::collections::HashMap;
use std::ffi::CString;
use std::fmt;
use std::mem::offset_of;
use std::path::Path;
use std::time::Instant;

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
                write!(f, "it is of version {version}, and this reads them up to {VERSION}")
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
    /// Bits of [`flag`](crate::flag), without the layer.
    pub flags: u16,
    /// When it began, on the segment's clock.
    pub begun: u64,
    /// How long it took, on the same.
    pub ticks: u64,
    /// The number of its file's name, or 0.
    pub file: u64,
    /// Where in the file, if [`flag::PLACED`](crate::flag::PLACED).
    pub offset: u64,
    /// How many bytes it was asked for.
    pub asked: u64,
    /// How many it moved; with [`flag::FAILED`](crate::flag::FAILED) its errno.
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
    /// Names that are paths from directories, in the order of each ring. The names of these have come before,
    /// or come with the same read; of those that come later ([`NamePart::name`]).
    pub parts: Vec<NamePart>,
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
    /// How often threads have waited for room, and how long together in ns, in all.
    pub waited: (u64, u64),
    /// Rings in use that were not looked at, as there are more than may be ([`TakeLimits::rings`]).
    pub unread_rings: u32,
    /// More is there than was asked for.
    pub more: bool,
    /// Counts are none that a process can have: how much was lost is not known.
    pub is_doubtful: bool,
}

/// A name that was told as a path from a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePart {
    /// The number of the name.
    pub number: u64,
    /// The number of the directory's name.
    pub directory: u64,
    /// The path from there.
    pub path: Vec<u8>,
}

impl NamePart {
    /// The whole name, of that of its directory; `None` for one that is longer than a path may be.
    #[must_use]
    pub fn name(&self, directory: &[u8]) -> Option<Vec<u8>> {
        let separator: &[u8] = if directory == b"/" { b"" } else { b"/" };
        let name = [directory, separator, &self.path].concat();
        (name.len() <= NAME_BYTES_MAX).then_some(name)
    }
}

impl Read {
    /// Makes whole names of parts, for who reads all of a segment at once.
    pub fn join_names(&mut self) {
        let mut left = usize::MAX;
        // Directories may be told of in another ring, which was read later.
        while self.parts.len() < left {
            left = self.parts.len();
            for part in std::mem::take(&mut self.parts) {
                match self.names.get(&part.directory).map(|directory| part.name(directory)) {
                    Some(Some(name)) => drop(self.names.insert(part.number, name)),
                    Some(None) => self.names_lost += 1,
                    None => self.parts.push(part),
                }
            }
        }
    }
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

/// More operations than a process can do: a thread that does one in a ns takes three days for that.
const COUNT_MAX: u64 = 1 << 48;

/// A segment, at who reads it. There is one reader at a time; the next goes on where it was.
///
/// It reads the file by calls of the kernel and maps nothing of it: whoever owns the file may cut it
/// off meanwhile ([`Reader::damage`]).
#[derive(Debug)]
pub struct Reader {
    file: SegmentFile,
    options: SegmentOptions,
    process: Process,
    /// It was made in this boot of the machine.
    is_of_this_boot: bool,
    /// In a ring that is overwritten: how many have been passed over unread.
    overwritten: u64,
    /// How often names were passed over that are none of ours.
    names_passed: u64,
    /// How far each ring was taken.
    taken: Vec<RingPlace>,
    /// How far each ring was released: records and bytes of names.
    released: Vec<(u64, u64)>,
    /// The ring to begin with next.
    next: u32,
}

/// How much is taken at once.
#[derive(Debug, Clone, Copy)]
pub struct TakeLimits {
    /// Records of one ring.
    pub ring_records: usize,
    /// Records of all rings.
    pub records: usize,
    /// Bytes of names, nearly.
    pub names_bytes: usize,
    /// Rings, of all that have ever been in use; of the rest, nothing is taken.
    pub rings: usize,
    /// No further ring is begun after this.
    pub until: Option<Instant>,
}

impl Default for TakeLimits {
    /// Everything.
    fn default() -> Self {
        let all = usize::MAX;
        Self { ring_records: all, records: all, names_bytes: all, rings: all, until: None }
    }
}

impl TakeLimits {
    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }
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
    /// Opens a segment: a regular file, of whomever ([`Reader::owner`]). It is opened without waiting,
    /// whatever has its name.
    ///
    /// # Errors
    /// [`Damage`] for what is no segment, or not a whole one.
    pub fn open(path: &Path) -> Result<Self, Damage> {
        let file = SegmentFile::open(path)?;
        let length = file.status().length;
        if length < HEADER_BYTES as u64 {
            return Err(Damage::NoSegment);
        }
        // What is written last comes first.
        if file.word(offset_of!(SegmentHeader, magic) as u64) != MAGIC {
            return Err(file.damage().cloned().unwrap_or(Damage::NoSegment));
        }
        let mut header = vec![0; HEADER_BYTES];
        if !file.read(0, &mut header) {
            return Err(file.damage().cloned().unwrap_or(Damage::NoSegment));
        }
        let (options, process, boot_then) = header_of(&header)?;
        if length < options.bytes() as u64 {
            return Err(Damage::Short(length, options.bytes() as u64));
        }
        Ok(Self {
            file,
            options,
            process,
            is_of_this_boot: boot_then == boot(),
            overwritten: 0,
            names_passed: 0,
            taken: Vec::new(),
            released: Vec::new(),
            next: 0,
        })
    }

    /// The user whose file it is.
    #[must_use]
    pub fn owner(&self) -> u32 {
        self.file.status().owner
    }

    /// Closes the file until it is opened again, for who reads more segments than there are
    /// descriptors. Nothing else may be asked of it meanwhile, but for what is known without the file.
    pub fn close(&mut self) {
        self.file.close();
    }

    /// Opens the file again that was closed. If it is not there any more, or another one is, that is
    /// [`Reader::damage`].
    pub fn open_again(&mut self) {
        self.file.open_again();
    }

    /// Why nothing more can be read: the file is shorter than it was, or the kernel does not give it.
    #[must_use]
    pub fn damage(&self) -> Option<&Damage> {
        self.file.damage()
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

    /// Whether its process runs, in this boot of the machine: whether any has the segment in memory, whatever
    /// its number is in this namespace. A child that was forked has it, too, until it is another program.
    /// Where the kernel does not say that, the process of this number is looked for; one that
    /// began at another time is another.
    #[must_use]
    pub fn is_written(&self) -> bool {
        if !self.is_of_this_boot || self.has_ended() {
            return false;
        }
        if let Some(is_used) = self.file.is_used_by_others() {
            return is_used;
        }
        let mut line = [0; 1024];
        let path = CString::new(format!("/proc/{}/stat", self.process.pid)).expect("digits");
        let stat = sys::read_file(&path, &mut line).ok().and_then(ProcessStat::parse);
        stat.is_some_and(|stat| stat.start_ticks() == Some(self.process.started) && !is_dead(stat))
    }

    /// Whether its process has said that it ends.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.file.state().has_ended
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
        let limits = TakeLimits { ring_records: records_max, ..TakeLimits::default() };
        self.take_within(&limits, is_written)
    }

    /// [`Reader::take_while`], no more than these limits allow; where the names of records are more
    /// than that, no records.
    pub fn take_within(&mut self, limits: &TakeLimits, is_written: bool) -> Read {
        let (used, unread_rings, state) = self.begin_rings(limits.rings);
        let (unplaced, waited) = (state.unplaced, (state.waits, state.waited_ns));
        let mut read = Read { unplaced, waited, unread_rings, ..Read::default() };
        // Who names a file that another has told of does so after that one: so records are looked
        // for before names, and taken after them.
        let mut states: Vec<RingState> =
            (0..used).map(|at| self.ring_state(at, is_written)).collect();
        let counts = states
            .iter_mut()
            .flat_map(|state| [&mut state.lost, &mut state.names_lost, &mut state.untold]);
        for count in counts.chain([&mut read.unplaced]).filter(|count| **count > COUNT_MAX) {
            (*count, read.is_doubtful) = (0, true);
        }
        for state in &states {
            read.lost = read.lost.saturating_add(state.lost);
            read.names_lost = read.names_lost.saturating_add(state.names_lost);
        }
        let mut blocks = Blocks::default();
        if self.take_names_first(&states, limits, (&mut read, &mut blocks)) {
            self.take_rings(&states, (limits, is_written), (&mut read, &mut blocks));
        } else {
            read.more = true;
        }
        match self.options.full {
            Full::Overwrite => read.overwritten = self.overwritten,
            // What has no record is damaged.
            Full::DropNewest => read.lost = read.lost.saturating_add(self.overwritten),
        }
        read.names_lost = read.names_lost.saturating_add(self.names_passed);
        read.more &= !self.file.is_damaged();
        read
    }

    /// Takes the names that the records in `states` may have; whether these are all.
    fn take_names_first(
        &mut self,
        states: &[RingState],
        limits: &TakeLimits,
        (read, blocks): (&mut Read, &mut Blocks),
    ) -> bool {
        let is_new = |(state, taken): (&RingState, &RingPlace)| state.head != taken.records;
        let is_any_new = states.iter().zip(&self.taken).any(is_new);
        let mut room = limits.names_bytes;
        for (at, state) in (0..).zip(states) {
            let head = if is_any_new {
                self.file.ring_word(&self.options, at, RingWord::NamesHead)
            } else {
                state.names_head
            };
            if self.file.is_damaged()
                || !self.read_names(at, head, &mut room, (read, blocks))
                || limits.is_over()
            {
                return false;
            }
        }
        true
    }

    /// Takes records, of the ring first that had no turn the last time.
    fn take_rings(
        &mut self,
        states: &[RingState],
        (limits, is_written): (&TakeLimits, bool),
        (read, blocks): (&mut Read, &mut Blocks),
    ) {
        let used = states.len() as u32;
        for turn in 0..used {
            let at = (self.next + turn) % used;
            if turn > 0 && (read.records.len() >= limits.records || limits.is_over()) {
                self.next = at;
                read.more = true;
                return;
            }
            if self.file.is_damaged() {
                return;
            }
            self.read_ring(at, &states[at as usize], (limits, is_written), (read, blocks));
        }
    }

    /// Whether what the rings hold is wanted: somebody holds them, or an operation was slow.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.file.is_held()
    }

    /// Of rings that are overwritten: has them stay as they are until they are let go of. What comes
    /// meanwhile, and finds no room, is lost and counted.
    pub fn hold(&self) {
        self.file.set_held(true);
    }

    /// Nobody takes anything any more: threads no longer wait for room.
    pub fn abandon(&self) {
        self.file.abandon();
    }

    /// Rings are overwritten again.
    pub fn let_go(&self) {
        self.file.set_held(false);
    }

    /// How many records rings have that were not taken.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        let size = u64::from(self.options.records);
        let used = self.file.state().used.min(self.options.rings);
        let of = |at: u32| {
            let taken = self.taken.get(at as usize).map_or(0, |place| place.records);
            self.ring_state(at, false).head.saturating_sub(taken).min(size)
        };
        (0..used).map(of).sum()
    }

    /// Names that have come since the last time, where they take half of their room or more: their
    /// records are taken later, or never.
    pub fn take_names(&mut self) -> (HashMap<u64, Vec<u8>>, Vec<NamePart>) {
        let (used, ..) = self.begin_rings(usize::MAX);
        let (mut read, mut blocks) = (Read::default(), Blocks::default());
        let mut room = usize::MAX;
        for at in 0..used {
            let head = self.file.ring_word(&self.options, at, RingWord::NamesHead);
            let waiting = head.wrapping_sub(self.taken[at as usize].names);
            if waiting >= u64::from(self.options.names_bytes) / 2 && !self.file.is_damaged() {
                self.read_names(at, head, &mut room, (&mut read, &mut blocks));
                let names = self.taken[at as usize].names;
                self.file.set_ring_word(&self.options, at, RingWord::NamesTail, names);
                self.released[at as usize].1 = names;
            }
        }
        (read.names, read.parts)
    }

    /// Looks which rings there are by now, no more than so many; gives how many, how many more there
    /// are, and what the segment says of itself.
    fn begin_rings(&mut self, rings_max: usize) -> (u32, u32, SegmentState) {
        let state = self.file.state();
        let used = state.used.min(self.options.rings);
        for at in self.taken.len()..(used as usize).min(rings_max) {
            self.begin_ring(at as u32, RingPlace::default());
        }
        let known = self.taken.len() as u32;
        (known, used.saturating_sub(known), state)
    }

    /// A ring is taken from where it was released, or from `place` if that is further.
    fn begin_ring(&mut self, at: u32, place: RingPlace) {
        let state = self.file.ring_state(&self.options, at);
        let (records, names) = (state.tail.max(place.records), state.names_tail.max(place.names));
        self.taken.push(RingPlace { records, names, untold: place.untold });
        self.released.push((state.tail, state.names_tail));
    }

    /// Gives the room of what was taken back to those who write.
    pub fn release(&mut self) {
        for at in 0..self.taken.len() {
            let (place, ring) = (self.taken[at], at as u32);
            let (records, names) = self.released[at];
            if place.records != records {
                self.file.set_ring_word(&self.options, ring, RingWord::Tail, place.records);
            }
            if place.names != names {
                self.file.set_ring_word(&self.options, ring, RingWord::NamesTail, place.names);
            }
            self.released[at] = (place.records, place.names);
            if place.untold > 0 {
                self.file.set_ring_word(&self.options, ring, RingWord::Untold, 0);
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
        let used = self.file.state().used.min(self.options.rings);
        for (at, place) in (0..used).zip(places) {
            self.begin_ring(at, *place);
        }
        self.release();
    }
}

/// Sizes, process and boot by the header of a segment.
fn header_of(header: &[u8]) -> Result<(SegmentOptions, Process, [u64; 2]), Damage> {
    let words = Words(header);
    let version = words.u32(offset_of!(SegmentHeader, version));
    if !(1..=VERSION).contains(&version) {
        return Err(Damage::Version(version));
    }
    let full = Full::of(words.u32(offset_of!(SegmentHeader, full))).ok_or(Damage::Sizes)?;
    let clock = ClockKind::of(words.u32(offset_of!(SegmentHeader, clock))).ok_or(Damage::Sizes)?;
    let options = SegmentOptions {
        rings: words.u32(offset_of!(SegmentHeader, rings)),
        records: words.u32(offset_of!(SegmentHeader, records)),
        names_bytes: words.u32(offset_of!(SegmentHeader, names_bytes)),
        full,
        patience_ns: 0,
        slow: words.u64(offset_of!(SegmentHeader, slow)),
    };
    if !options.are_sound() || words.u32(offset_of!(SegmentHeader, used)) > options.rings {
        return Err(Damage::Sizes);
    }
    let command_len = words.u32(offset_of!(SegmentHeader, command_len)) as usize;
    let command = &header[offset_of!(SegmentHeader, command)..];
    let process = Process {
        pid: words.u32(offset_of!(SegmentHeader, pid)),
        parent: words.u32(offset_of!(SegmentHeader, parent)),
        user: words.u32(offset_of!(SegmentHeader, user)),
        command: command[..command_len.min(COMMAND_BYTES_MAX)].to_vec(),
        clock,
        made: words.u64(offset_of!(SegmentHeader, made)),
        made_ns: words.u64(offset_of!(SegmentHeader, made_ns)),
        started: words.u64(offset_of!(SegmentHeader, started)),
    };
    let boot = [0, 8].map(|at| words.u64(offset_of!(SegmentHeader, boot) + at));
    Ok((options, process, boot))
}

/// A process that has ended, and that its parent has not asked for.
fn is_dead(stat: ProcessStat<'_>) -> bool {
    stat.state().is_some_and(|state| b"ZXx".contains(&state))
}
