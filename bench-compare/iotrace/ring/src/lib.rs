//! Sheaf's recorder for logcall.c: a ring in a segment, which is read and released between batches.
use sheaf_recorder::{IoEvent, IoOp, Reader, RingWriter, SegmentOptions, TraceClock, TraceSegment, flag};
use std::cell::UnsafeCell;
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

struct Log {
    writer: RingWriter<'static>,
    reader: Reader,
    clock: TraceClock,
    records: u64,
}

struct Only(UnsafeCell<Option<Log>>);

// SAFETY: the program that loads this has one thread.
unsafe impl Sync for Only {}

static LOG: Only = Only(UnsafeCell::new(None));

fn begin(directory: &Path) -> Option<Log> {
    let path = directory.join(format!("{}.segment", std::process::id()));
    let segment = TraceSegment::create(&path, &SegmentOptions::default()).ok()?;
    let reader = Reader::open(&path);
    // Mapped by both, it needs its name no more.
    std::fs::remove_file(&path).ok()?;
    let segment: &'static TraceSegment = Box::leak(Box::new(segment));
    let (writer, clock) = (segment.writer()?, segment.clock());
    Some(Log { writer, reader: reader.ok()?, clock, records: 0 })
}

/// # Safety
/// The directory is text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn log_begin(directory: *const c_char) -> c_int {
    // SAFETY: as our caller vouches for.
    let directory = unsafe { CStr::from_ptr(directory) };
    let log = begin(Path::new(OsStr::from_bytes(directory.to_bytes())));
    let is_there = log.is_some();
    // SAFETY: there is one thread.
    unsafe { *LOG.0.get() = log };
    if is_there { 0 } else { -1 }
}

#[unsafe(no_mangle)]
pub extern "C" fn log_put(file: u64, offset: u64, asked: u64, bytes: u64) {
    // SAFETY: as above.
    let Some(log) = (unsafe { &mut *LOG.0.get() }) else { return };
    let begun = log.clock.now();
    let ended = log.clock.now();
    let flags = flag::PLACED;
    log.writer.put(&IoEvent { flags, begun, ended, file, offset, asked, bytes, ..IoEvent::new(IoOp::Read) });
    log.records += 1;
}

/// # Panics
/// When not each record that was put was read.
#[unsafe(no_mangle)]
pub extern "C" fn log_rest() {
    // SAFETY: as above.
    let Some(log) = (unsafe { &mut *LOG.0.get() }) else { return };
    let read = log.reader.read();
    assert_eq!((read.records.len() as u64, read.lost), (std::mem::take(&mut log.records), 0));
}
