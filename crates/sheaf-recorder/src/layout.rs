//! How a segment lies in its file: version 2. Version 1 has whole names only.
//!
//! ```text
//! 0         4096      4096 + n · stride
//! | header  | ring 0  | ring 1 | …           one ring per thread, of the same size
//!
//! ring:     256                256 + 64 · records
//! | header  | records          | names       |      header: one line of the writer's, one of the
//!                                                   reader's, both counted from the beginning
//! record:   begun 8 · ticks 4 · op 2 · flags 2 · file 8 · offset 8 · asked 8 · result 8 · span 4 ·
//!           thread 4 · commit 8
//! name:     file 8 · length 4 · kind 4 · bytes, filled up to 8
//!           kind 0: the path; 1: the number of a directory's name 8, and the path from there
//! ```
//! All numbers lie as the machine has them: a segment is read on the host that wrote it. Positions
//! count up for ever, their place is what is left when divided by the size.
use std::sync::atomic::{AtomicU32, AtomicU64};

/// The first bytes of a segment, written last.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"SHEAFTR1");
pub(crate) const VERSION: u32 = 2;
pub(crate) const HEADER_BYTES: usize = 4096;
pub(crate) const RING_HEADER_BYTES: usize = 256;
pub(crate) const RECORD_BYTES: usize = 64;
pub(crate) const NAME_HEADER_BYTES: usize = 16;
/// The kind of a name that is told as a path from a directory whose name is told.
pub(crate) const NAME_PART: u32 = 1;
/// What is kept of a process's command line.
pub(crate) const COMMAND_BYTES_MAX: usize = 1024;
/// The longest name that is kept; a longer one is lost.
pub(crate) const NAME_BYTES_MAX: usize = 4096;

/// An operation, as it lies in a ring.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct IoRecord {
    pub(crate) begun: AtomicU64,
    pub(crate) ticks: AtomicU32,
    /// Operation, and above it the flags.
    pub(crate) what: AtomicU32,
    pub(crate) file: AtomicU64,
    pub(crate) offset: AtomicU64,
    pub(crate) asked: AtomicU64,
    pub(crate) result: AtomicU64,
    pub(crate) span: AtomicU32,
    pub(crate) thread: AtomicU32,
    /// Its position and one more, written last.
    pub(crate) commit: AtomicU64,
}

/// Bits of a record's flags; the lowest four are its layer.
pub mod flag {
    /// The result is an errno.
    pub const FAILED: u16 = 1 << 4;
    /// It happened within an operation of a layer above.
    pub const NESTED: u16 = 1 << 5;
    /// Its time is in units of 65,536 ticks.
    pub const LONG: u16 = 1 << 6;
    /// It has an offset.
    pub const PLACED: u16 = 1 << 7;
    /// What was asked for is the number of a second name: the new one of `rename`, what a symbolic
    /// link says, or where a copy goes.
    pub const NAMED: u16 = 1 << 8;
    /// The layer's bits.
    pub const LAYER: u16 = 15;
}

/// Who did the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
#[non_exhaustive]
pub enum IoLayer {
    /// A call of the C library that is one of the kernel's.
    Posix = 0,
    /// The C library's buffered files.
    Stdio = 1,
    /// MPI-IO.
    Mpi = 2,
    /// A mounted view.
    Fuse = 3,
    /// A group's client.
    Group = 4,
    /// A tool's client.
    Tool = 5,
    /// A server, on one file.
    Server = 6,
    /// An archive.
    Archive = 7,
    /// The kernel, seen from within.
    Kernel = 8,
}

/// All layers, by their numbers.
pub const IO_LAYERS: [IoLayer; 9] = [
    IoLayer::Posix,
    IoLayer::Stdio,
    IoLayer::Mpi,
    IoLayer::Fuse,
    IoLayer::Group,
    IoLayer::Tool,
    IoLayer::Server,
    IoLayer::Archive,
    IoLayer::Kernel,
];

impl IoLayer {
    /// Its name.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Posix => "posix",
            Self::Stdio => "stdio",
            Self::Mpi => "mpi-io",
            Self::Fuse => "fuse",
            Self::Group => "group",
            Self::Tool => "tool",
            Self::Server => "server",
            Self::Archive => "archive",
            Self::Kernel => "kernel",
        }
    }
}

/// What a segment begins with.
#[repr(C, align(64))]
pub(crate) struct SegmentHeader {
    pub magic: AtomicU64,
    pub version: AtomicU32,
    pub clock: AtomicU32,
    pub pid: AtomicU32,
    pub parent: AtomicU32,
    pub user: AtomicU32,
    pub full: AtomicU32,
    pub rings: AtomicU32,
    pub records: AtomicU32,
    pub names_bytes: AtomicU32,
    pub command_len: AtomicU32,
    /// The clock when the segment was made, and the time of day then in ns.
    pub made: AtomicU64,
    pub made_ns: AtomicU64,
    /// When the process started, as its entry in /proc says: tells it from another of its number.
    pub started: AtomicU64,
    /// The machine's boot.
    pub boot: [AtomicU64; 2],
    /// Operations for which there was no ring, or that came while another was being recorded.
    pub unplaced: AtomicU64,
    /// The process has said that it ends, or that another program takes its place.
    pub ended: AtomicU32,
    /// How many rings have ever been in use: those behind hold nothing.
    pub used: AtomicU32,
    pub command: [u8; COMMAND_BYTES_MAX],
    /// Of rings that are overwritten: an operation that takes so long, on the segment's clock, has
    /// all stay as it is; 0: none does.
    pub slow: AtomicU64,
    /// Nothing is overwritten: what rings hold is wanted.
    pub held: AtomicU32,
    /// How often its threads have waited for room, and how long together, in ns.
    pub waits: AtomicU64,
    pub waited_ns: AtomicU64,
    /// Nobody takes anything any more.
    pub abandoned: AtomicU32,
}

const _: () = assert!(size_of::<SegmentHeader>() <= HEADER_BYTES);

#[repr(C, align(128))]
pub(crate) struct RingHeader {
    pub by_writer: WriterLine,
    pub by_reader: ReaderLine,
}

#[repr(C, align(128))]
pub(crate) struct WriterLine {
    /// Records written.
    pub head: AtomicU64,
    /// Records that found no room, in all; and of these, those that no record tells of yet, with
    /// the time of the first and of the last.
    pub lost: AtomicU64,
    pub untold: AtomicU64,
    pub untold_from: AtomicU64,
    pub untold_to: AtomicU64,
    pub names_head: AtomicU64,
    pub names_lost: AtomicU64,
    /// Thread that has it; 0: none.
    pub thread: AtomicU32,
    /// Of its records, and of its bytes of names: how many have memory.
    pub records_there: AtomicU32,
    pub names_there: AtomicU32,
}

#[repr(C, align(128))]
pub(crate) struct ReaderLine {
    /// Records read.
    pub tail: AtomicU64,
    pub names_tail: AtomicU64,
}

const _: () = assert!(size_of::<RingHeader>() == RING_HEADER_BYTES);
const _: () = assert!(size_of::<IoRecord>() == RECORD_BYTES);
