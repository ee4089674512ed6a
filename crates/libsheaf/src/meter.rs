//! What nodes measure of streams, and how that is gathered.
use crate::ffi::usage;
use crate::wire::{PARAMS_TAG, Parcel};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use sheaf_core::{Errno, lock};
use sheaf_tree::filter::{Accumulator, Emit, Filter, FilterError, Input, NodeInfo};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// In place of a stream: all that are measured.
pub const ALL_STREAMS: u32 = u32::MAX;
/// Where packets are counted.
pub const CONTEXTS: usize = 6;
/// The most nodes that one answer tells of.
const RECORDS_MAX: usize = 1 << 20;

/// Where packets are counted: the numbers of `sheaf.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MeterContext {
    /// Sent from this node: by the front end down, by others up.
    Sent = 0,
    /// Received at this node: at a back end from the front end, at others from their children.
    Received = 1,
    /// Given to the transformation.
    FilterIn = 2,
    /// Given by it.
    FilterOut = 3,
    /// Given to the synchronisation.
    SyncIn = 4,
    /// Given by it.
    SyncOut = 5,
}

/// What one node has measured of one stream, since its measuring began.
#[derive(Debug, Default)]
pub struct Meter {
    packets: [AtomicU64; CONTEXTS],
    bytes: [AtomicU64; CONTEXTS],
    filter_ns: AtomicU64,
    user_ns: AtomicU64,
    system_ns: AtomicU64,
    waited_ns: AtomicU64,
    /// When the first packet came of those that no run has taken.
    since: Mutex<Option<Instant>>,
}

/// A run of a filter under way.
pub struct Timer {
    began: Instant,
    user_ns: u64,
    system_ns: u64,
}

impl Meter {
    /// Counts one packet.
    pub fn count(&self, context: MeterContext, bytes: usize) {
        self.count_many(context, 1, bytes);
    }

    /// Counts packets of so many bytes each.
    pub fn count_many(&self, context: MeterContext, packets: usize, bytes: usize) {
        self.packets[context as usize].fetch_add(packets as u64, Relaxed);
        self.bytes[context as usize].fetch_add((packets * bytes) as u64, Relaxed);
    }

    /// Counts packets; parameters on their way are none.
    pub fn count_all(&self, context: MeterContext, parcels: &[Parcel]) {
        for parcel in parcels.iter().filter(|parcel| parcel.tag != PARAMS_TAG) {
            self.count(context, parcel.packet.len());
        }
    }

    /// Packets have come that wait for a run.
    pub fn arrived(&self) {
        lock(&self.since).get_or_insert_with(Instant::now);
    }

    /// A run begins.
    pub fn begin(&self) -> Timer {
        let began = Instant::now();
        if let Some(since) = lock(&self.since).take() {
            self.waited_ns.fetch_add(nanoseconds(began - since), Relaxed);
        }
        let (user_ns, system_ns) = usage::thread_times_ns();
        Timer { began, user_ns, system_ns }
    }

    /// It is over.
    pub fn end(&self, timer: &Timer) {
        let (user_ns, system_ns) = usage::thread_times_ns();
        self.filter_ns.fetch_add(nanoseconds(timer.began.elapsed()), Relaxed);
        self.user_ns.fetch_add(user_ns.saturating_sub(timer.user_ns), Relaxed);
        self.system_ns.fetch_add(system_ns.saturating_sub(timer.system_ns), Relaxed);
    }
}

fn nanoseconds(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// One node's answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeterRecord {
    /// The node.
    pub rank: u32,
    /// Packets by [`MeterContext`].
    pub packets: [u64; CONTEXTS],
    /// Bytes of these.
    pub bytes: [u64; CONTEXTS],
    /// In the transformation.
    pub filter_ns: u64,
    /// Of the processor's, in the program.
    pub user_ns: u64,
    /// Of the processor's, in the kernel.
    pub system_ns: u64,
    /// Between the first packet's arrival and the run that took it.
    pub waited_ns: u64,
    /// Address space of the process.
    pub virtual_kb: u64,
    /// Its memory.
    pub resident_kb: u64,
}

impl MeterRecord {
    /// Of a node about which no more is known than its process.
    #[must_use]
    pub fn of_process(rank: u32) -> Self {
        let (virtual_kb, resident_kb) = memory_kb();
        Self { rank, virtual_kb, resident_kb, ..Self::default() }
    }

    /// Adds what a stream's meter says.
    pub fn add(&mut self, meter: &Meter) {
        for at in 0..CONTEXTS {
            self.packets[at] += meter.packets[at].load(Relaxed);
            self.bytes[at] += meter.bytes[at].load(Relaxed);
        }
        self.filter_ns += meter.filter_ns.load(Relaxed);
        self.user_ns += meter.user_ns.load(Relaxed);
        self.system_ns += meter.system_ns.load(Relaxed);
        self.waited_ns += meter.waited_ns.load(Relaxed);
    }

    /// A list of records as bytes.
    #[must_use]
    pub fn encode(records: &[Self]) -> Vec<u8> {
        postcard::to_stdvec(records).expect("records can be serialised")
    }

    /// The records of such a list.
    ///
    /// # Errors
    /// `EBADMSG` when the bytes are none.
    pub fn decode(bytes: &[u8]) -> Result<Vec<Self>, FilterError> {
        postcard::from_bytes(bytes)
            .map_err(|_| FilterError::new(Errno::BADMSG, "these bytes are no performance data"))
    }
}

/// Address space and memory of this process.
fn memory_kb() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let page_kb = rustix::param::page_size() as u64 / 1024;
    let mut pages = text.split_whitespace().map(|word| word.parse::<u64>().unwrap_or(0));
    (pages.next().unwrap_or(0) * page_kb, pages.next().unwrap_or(0) * page_kb)
}

/// The meters of a process, by the stream as the application knows it.
#[derive(Debug, Default)]
pub struct Meters(Mutex<FxHashMap<u32, Arc<Meter>>>);

impl Meters {
    /// The meter of a stream that is measured, made with the first call.
    pub fn open(&self, id: u32) -> Arc<Meter> {
        Arc::clone(lock(&self.0).entry(id).or_default())
    }

    /// The meter of a stream, if it is measured.
    pub fn get(&self, id: u32) -> Option<Arc<Meter>> {
        lock(&self.0).get(&id).cloned()
    }

    /// Forgets a stream's meter once nobody but the caller uses it.
    pub fn close(&self, id: u32, meter: &Arc<Meter>) {
        // This table, the filter that ends, and the caller's own.
        const LAST: usize = 3;
        let mut meters = lock(&self.0);
        if Arc::strong_count(meter) <= LAST
            && meters.get(&id).is_some_and(|have| Arc::ptr_eq(have, meter))
        {
            meters.remove(&id);
        }
    }

    /// What the node `rank` of this process says of stream `id`, or of all.
    pub fn record(&self, rank: u32, id: u32) -> MeterRecord {
        let mut record = MeterRecord::of_process(rank);
        let meters = lock(&self.0);
        meters
            .iter()
            .filter(|(have, _)| id == ALL_STREAMS || **have == id)
            .for_each(|(_, meter)| record.add(meter));
        record
    }
}

/// The filter that gathers records: every node adds its own to its children's.
pub(crate) struct Perf {
    id: u32,
    rank: u32,
    meters: Arc<Meters>,
}

impl Perf {
    pub fn new(params: &[u8], meters: &Arc<Meters>, info: &NodeInfo) -> Result<Self, FilterError> {
        let id = <[u8; 4]>::try_from(params).map(u32::from_le_bytes);
        let id = id.map_err(|_| {
            FilterError::new(Errno::INVAL, "performance data is that of one stream")
        })?;
        Ok(Self { id, rank: info.rank, meters: Arc::clone(meters) })
    }
}

impl Filter for Perf {
    fn accumulator(&self) -> Box<dyn Accumulator> {
        let (id, rank, meters) = (self.id, self.rank, Arc::clone(&self.meters));
        Box::new(MeterGather { id, rank, meters, records: Vec::new() })
    }
}

struct MeterGather {
    id: u32,
    rank: u32,
    meters: Arc<Meters>,
    records: Vec<MeterRecord>,
}

impl Accumulator for MeterGather {
    fn fold(&mut self, input: Input<'_>) -> Result<(), FilterError> {
        let records = MeterRecord::decode(input.payload)?;
        if self.records.len() + records.len() > RECORDS_MAX {
            return Err(FilterError::new(
                Errno::OVERFLOW,
                "performance data of more nodes than are known",
            ));
        }
        self.records.extend(records);
        Ok(())
    }

    fn finish(&mut self, _: Emit, out: &mut Vec<u8>) -> Result<(), FilterError> {
        let mut records = std::mem::take(&mut self.records);
        records.push(self.meters.record(self.rank, self.id));
        out.extend_from_slice(&MeterRecord::encode(&records));
        Ok(())
    }
}
