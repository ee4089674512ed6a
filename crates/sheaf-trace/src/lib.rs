//! Traces of I/O: collected from the segments of processes, stored as Parquet, summed up.
//!
//! A [`Collector`] takes from the segments of a directory ([`sheaf_recorder`]) what has come since
//! the last time, as [`TraceRow`]s with the time of day; a [`TraceStore`] writes them to files that
//! anything reads which reads Parquet; a [`TraceSummary`] is made of rows, one by one, in memory
//! that does not grow with their number.
mod collect;
mod error;
pub mod export;
mod info;
mod program;
mod reader;
mod record;
mod row;
mod spool;
mod store;
mod summary;

pub use collect::{Collected, Collector};
pub use error::TraceError;
pub use info::{INFO_FILE, KernelCounts, TraceInfo};
pub use program::{BlindSpot, blind_spot};
pub use record::{PRELOAD_FILE, RecordTotals, Recording, recover};
pub use reader::{NAME_BYTES_MAX, OTHER_NAME, StoreReader};
pub use row::{TraceNames, TraceRow};
pub use store::TraceStore;
pub use summary::{FileSummary, OpSummary, TraceSummary};
