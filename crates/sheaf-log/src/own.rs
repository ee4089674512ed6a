//! Sheaf's own operations, recorded as those of any program: groups, tools, and files of servers.
use crate::error::TraceError;
use rustc_hash::{FxHashMap, FxHashSet};
use sheaf_core::lock;
use sheaf_core::observer::{self, Begun, Ending, Layer, Observer};
use sheaf_recorder::{
    IoEvent, IoLayer, IoOp, RingWriter, SegmentOptions, TraceClock, TraceSegment, flag,
};
use std::cell::RefCell;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// What names a directory for segments, to the preload and to Sheaf itself.
pub const SEGMENTS_VARIABLE: &str = "SHEAF_TRACE_DIR";
/// Names that a thread remembers to have told.
const NAMES_MAX: usize = 4096;

/// Records what the observer is told.
struct OwnOperations {
    segment: &'static TraceSegment,
    clock: TraceClock,
    last: AtomicU64,
    under_way: Mutex<FxHashMap<u64, OwnOperation>>,
    /// Operations of clients under way: what files are asked meanwhile is for those.
    clients: AtomicU64,
    /// The calls that it makes are recorded, too: what moves counts there.
    calls_are_seen: bool,
    /// Who was told before, and is still.
    before: Option<Arc<dyn Observer>>,
}

struct OwnOperation {
    event: IoEvent,
    name: Vec<u8>,
    /// The mark of whoever was told before.
    before: u64,
}

/// A thread's ring, and the names that it has told.
type OwnRing = (RingWriter<'static>, FxHashSet<u64>);

thread_local! {
    static RING: RefCell<Option<OwnRing>> = const { RefCell::new(None) };
}

/// Records Sheaf's own operations in this process into a segment in that directory, from now on
/// until it ends. Whoever observes them already goes on.
///
/// # Errors
/// When there can be no segment.
pub fn record_own(directory: &Path) -> Result<(), TraceError> {
    let name = format!("own-{}-{:x}.segment", std::process::id(), TraceClock::best().now());
    let path = directory.join(name);
    let segment = TraceSegment::create(&path, &SegmentOptions::default())
        .map_err(|error| TraceError::io(&path)(std::io::Error::from_raw_os_error(error.0)))?;
    // It stays for as long as the process.
    let segment: &'static TraceSegment = Box::leak(Box::new(segment));
    let before = observer::take();
    observer::set(Arc::new(OwnOperations {
        segment,
        clock: segment.clock(),
        last: AtomicU64::new(0),
        under_way: Mutex::default(),
        clients: AtomicU64::new(0),
        calls_are_seen: is_preloaded(),
        before,
    }));
    Ok(())
}

impl Observer for OwnOperations {
    fn begins(&self, begun: &Begun<'_>) -> u64 {
        let before = self.before.as_ref().map_or(0, |before| before.begins(begun));
        let mark = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let mut flags = if begun.offset.is_some() { flag::PLACED } else { 0 };
        if self.calls_are_seen {
            flags |= flag::NESTED;
        }
        match begun.layer {
            Layer::File if self.clients.load(Ordering::Relaxed) > 0 => flags |= flag::NESTED,
            Layer::Group | Layer::Tool => drop(self.clients.fetch_add(1, Ordering::Relaxed)),
            _ => {}
        }
        let event = IoEvent {
            layer: match begun.layer {
                Layer::Group => IoLayer::Group,
                Layer::Tool => IoLayer::Tool,
                _ => IoLayer::Server,
            },
            flags,
            begun: self.clock.now(),
            offset: begun.offset.unwrap_or(0),
            asked: begun.asked.saturating_mul(begun.members),
            ..IoEvent::new(op_of(begun.kind))
        };
        let name = begun.name.to_owned();
        lock(&self.under_way).insert(mark, OwnOperation { event, name, before });
        mark
    }

    fn ends(&self, mark: u64, ending: Ending) {
        let Some(operation) = lock(&self.under_way).remove(&mark) else { return };
        let ended = self.clock.now();
        if matches!(operation.event.layer, IoLayer::Group | IoLayer::Tool) {
            self.clients.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(before) = &self.before {
            before.ends(operation.before, ending);
        }
        let (bytes, failed) = match ending {
            Ending::Ended { bytes, errno: None } => (bytes, 0),
            // Other members may have moved some: why it failed is what there is room for.
            Ending::Ended { errno: Some(errno), .. } => {
                (errno.0.unsigned_abs().into(), flag::FAILED)
            }
            Ending::Dropped => (sheaf_core::Errno::CANCELED.0.unsigned_abs().into(), flag::FAILED),
        };
        let flags = operation.event.flags | failed;
        let event = IoEvent { ended, bytes, flags, ..operation.event };
        let recorded = RING.try_with(|ring| {
            let Ok(mut ring) = ring.try_borrow_mut() else { return self.segment.unplaced() };
            if ring.is_none() {
                *ring = self.segment.writer().map(|writer| (writer, FxHashSet::default()));
            }
            let Some((writer, told)) = &mut *ring else { return self.segment.unplaced() };
            let file =
                if operation.name.is_empty() { 0 } else { RingWriter::number_of(&operation.name) };
            if file != 0 && !told.contains(&file) && writer.tell(file, &operation.name) {
                if told.len() >= NAMES_MAX {
                    told.clear();
                }
                told.insert(file);
            }
            writer.put(&IoEvent { file, ..event });
        });
        if recorded.is_err() {
            // The thread is at its end.
            self.segment.unplaced();
        }
    }
}

/// Whether the library is in this process that records calls. (It may be asked for and not be
/// there, in a program that is linked statically.)
fn is_preloaded() -> bool {
    const NAMES: [&str; 2] = ["/libsheaf_trace.so", "/libsheaf_preload.so"];
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines().any(|line| NAMES.iter().any(|name| line.ends_with(name)))
}

/// What an operation of ours is called in a trace.
fn op_of(kind: &str) -> IoOp {
    match kind.split_once('.').map_or(kind, |(_, op)| op) {
        "open" => IoOp::Open,
        "close" => IoOp::Close,
        "read" | "pread" => IoOp::Read,
        "write" | "pwrite" => IoOp::Write,
        "lseek" => IoOp::Seek,
        "fstat" | "statuses" | "resolve" => IoOp::Stat,
        "ftruncate" => IoOp::Truncate,
        "fsync" | "fdatasync" => IoOp::Sync,
        "fchmod" | "fchown" => IoOp::SetAttributes,
        "list" => IoOp::ReadDirectory,
        _ => IoOp::Own,
    }
}
