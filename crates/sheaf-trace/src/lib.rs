//! Traces of I/O: collected from the segments of processes, stored as Parquet, summed up.
//!
//! A [`Collector`] takes from the segments of a directory ([`sheaf_recorder`]) what has come since
//! the last time, as [`TraceRow`]s with the time of day; a [`TraceStore`] writes them to files that
//! anything reads which reads Parquet; a [`TraceReport`] is made of rows, one by one, in memory
//! that does not grow with their number, and becomes [`ReportData`]: JSON, text, or an HTML page.
mod checksum;
mod convert;
pub mod export;
mod flight;
mod info;
mod kernel;
mod parts;
mod program;
mod reader;
mod record;
pub mod replay;
mod report;
pub mod served;
mod store;
mod writers;

pub use flight::{
    FLIGHT_VARIABLE, FlightAsk, FlightOptions, FlightRecording, FlightSnapshot, FlightTotals,
    ask_snapshot, snapshots_of,
};
pub use info::{INFO_FILE, KernelCounts, TraceInfo, unplaced_words};
pub use kernel::{KernelRefusal, KernelTrace};
pub use parts::{KeepLimits, PartLimits, RemovedParts};
pub use program::{BlindSpot, blind_spot};
pub use reader::{NAME_BYTES_MAX, OTHER_NAME, PARTS_OPEN_MAX, StoreReader};
pub use record::{
    BUFFERS_PREFIX, BuffersLock, PRELOAD_FILE, RecordTotals, Recording, RecordingEnd,
    RecordingOptions, lock_buffers, recover,
};
pub use report::{
    AccessData, AccessPattern, CommonSize, DiffRow, DiffSums, DirectoryData, FailureData, FileData,
    FilesBeyond, Finding, FindingEvidence, FindingKind, FindingSeverity, HeatData, HeatRow,
    HostData, IoSums, LayerData, LostOperations, LostRange, OperationData, ProcessData,
    REPORT_VERSION, ReportData, ReportDiff, ReportOptions, SizeBucket, SlowOperation, TraceReport,
    TraceSpan, TraceTotals, TracedRun,
};
pub use sheaf_log::{
    Collected, Collector, OpClass, SEGMENTS_VARIABLE, ServedHost, TraceError, TraceNames, TraceRow,
    record_own, units,
};
pub use sheaf_recorder::SegmentOptions;
pub use store::TraceStore;
pub use writers::{LeftRecording, LeftState, TraceWriter, left_recordings, note_trace, writers_of};
