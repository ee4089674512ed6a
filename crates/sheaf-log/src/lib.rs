//! The log client of a host: rows of operations, collected from the segments of processes, kept in
//! spools, and merged on their way to the store.
//!
//! A [`Collector`] takes new records from the segments of a directory ([`sheaf_recorder`]) and makes
//! [`TraceRow`]s with the time of day of them. [`served::LogClients`] is the service that does this at
//! a host; its filters merge the answers of hosts. [`record_own`] records the operations of Sheaf's
//! own process.
//!
//! Servers of hosts link this crate and nothing of `sheaf-trace`, which stores, reads and reports
//! traces: it needs Parquet and other large dependencies, none of which belongs here.
pub mod collect;
mod error;
pub mod files;
mod host;
mod op_class;
mod own;
mod row;
pub mod served;
pub mod spool;
pub mod units;

pub use collect::{Collected, Collector};
pub use error::TraceError;
pub use host::ServedHost;
pub use op_class::{OpClass, class_of};
pub use own::{SEGMENTS_VARIABLE, record_own};
pub use row::{LOST, LOST_NAME, TraceNames, TraceRow, command_line};
