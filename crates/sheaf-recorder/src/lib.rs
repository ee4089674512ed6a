//! Records operations of a process in shared memory, in tens of cycles each: nothing is formatted,
//! allocated, locked or written on the way, and what could not be kept is counted.
//!
//! A [`TraceSegment`] is a file in memory, one per process. Each thread that records has a ring of its
//! own in it ([`RingWriter`]), of records of one cache line ([`IoRecord`]), and beside it a ring of names:
//! a path goes there once and is a number afterwards. The file outlives the process, so that a
//! [`Reader`] finds each record that was committed, whatever became of the process.
//!
//! The ring in shared memory is after MIOT (Cho, Kim and Lee, *Design and Implementation of Shared
//! Memory based Parallel File System Logging Method for High Performance Computing*), section IV.
//! MIOT has one circular buffer for its client, and the paper does not say what happens when it is
//! full, when threads write at once, or after a crash. Here each thread has its own ring. Lost
//! records are counted with their time, within the ring.
//!
//! ```
//! use sheaf_recorder::{IoEvent, SegmentOptions, IoOp, Reader, TraceSegment};
//!
//! let directory = tempfile::tempdir().unwrap();
//! let path = directory.path().join("segment");
//! let segment = TraceSegment::create(&path, &SegmentOptions::default()).unwrap();
//! let mut writer = segment.writer().unwrap();
//! let file = writer.name(b"/etc/hosts");
//! let begun = segment.clock().now();
//! writer.put(&IoEvent { file, begun, ended: segment.clock().now(), bytes: 4096, asked: 4096,
//!     ..IoEvent::new(IoOp::Read) });
//!
//! let mut reader = Reader::open(&path).unwrap();
//! let read = reader.read();
//! assert_eq!(read.names[&file], b"/etc/hosts");
//! assert_eq!((read.records.len(), read.records[0].bytes, read.lost), (1, 4096, 0));
//! ```
mod clock;
mod layout;
mod op;
mod process_stat;
mod read;
mod segment;
pub mod sys;
mod writer;

pub use clock::{ClockKind, TraceClock};
pub use layout::{IO_LAYERS, IoLayer, IoRecord, flag};
pub use op::{IoOp, is_lock};
pub use process_stat::ProcessStat;
pub use read::{Damage, Gap, NamePart, Process, Read, Reader, RingPlace, RingRecord, TakeLimits};
pub use segment::{Full, SegmentOptions, TraceSegment};
pub use writer::{IoEvent, RingWriter};
