//! Traces of I/O: collected from the segments of processes, stored as Parquet, summed up.
//!
//! A [`Collector`] takes from the segments of a directory ([`sheaf_recorder`]) what has come since
//! the last time, as [`TraceRow`]s with the time of day; a [`TraceStore`] writes them to files that
//! anything reads which reads Parquet; a [`TraceReport`] is made of rows, one by one, in memory
//! that does not grow with their number, and becomes [`ReportData`]: JSON, text, or an HTML page.
mod checksum;
mod collect;
mod error;
pub mod export;
mod flight;
mod info;
mod kernel;
mod own;
mod parts;
mod program;
mod reader;
mod record;
pub mod replay;
mod report;
mod row;
pub mod served;
mod spool;
mod store;
mod writers;

pub use collect::{Collected, Collector};
pub use error::TraceError;
pub use flight::{
    FLIGHT_VARIABLE, FlightAsk, FlightOptions, FlightRecording, FlightSnapshot, FlightTotals,
    ask_snapshot, snapshots_of,
};
pub use info::{INFO_FILE, KernelCounts, ServedHost, TraceInfo, unplaced_words};
pub use kernel::{KernelRefusal, KernelTrace};
pub use own::{SEGMENTS_VARIABLE, record_own};
pub use parts::{KeepLimits, PartLimits, RemovedParts};
pub use program::{BlindSpot, blind_spot};
pub use reader::{NAME_BYTES_MAX, OTHER_NAME, PARTS_OPEN_MAX, StoreReader};
pub use record::{
    BUFFERS_PREFIX, BuffersLock, PRELOAD_FILE, RecordTotals, Recording, lock_buffers, recover,
};
pub use report::{
    AccessData, AccessPattern, CommonSize, DirectoryData, FailureData, FileData, FilesBeyond,
    Finding, FindingEvidence, FindingKind, FindingSeverity, HeatData, HeatRow, HostData, IoSums,
    LayerData, LostOperations, LostRange, OpClass, OperationData, ProcessData, REPORT_VERSION,
    ReportData, ReportOptions, SizeBucket, SlowOperation, TraceReport, TraceSpan, TraceTotals,
    TracedRun,
};
pub use row::{TraceNames, TraceRow};
pub use sheaf_recorder::SegmentOptions;
pub use store::TraceStore;
pub use writers::{TraceWriter, writers_of};
