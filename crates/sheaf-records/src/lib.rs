//! The records that the programs of Sheaf print with `--json`, one object on each line.
//!
//! A record is a type here, whose documentation and fields become its definition in
//! `docs/json-schema.json`. `cargo xtask schema` writes this file; the test of this crate compares it.
//!
//! ```
//! let note = sheaf_records::Note { note: "the session ends".to_owned() };
//! assert_eq!(serde_json::to_string(&note).unwrap(), r#"{"type":"note","note":"the session ends"}"#);
//! ```
#![allow(missing_docs)] // A field has a description in the schema where its name does not say all.

mod archive;
mod clean;
mod command;
mod copy;
mod doctor;
mod entry;
mod exit;
mod hosts;
mod local;
mod record;
#[cfg(test)]
mod schema;
mod session;
mod summary;
mod text;
mod trace;
mod tree;

pub use archive::{
    ArchiveChanged, ArchiveDamage, ArchiveFetched, ArchiveLogDropped, ArchiveLogRestored,
    ArchiveRelocated, ArchiveRemoved, ArchiveRepacked, ArchiveRepaired, ArchiveStat, ArchiveStats,
    ArchiveStored, ArchiveUsage, ArchiveVerified, ArchiveVersion, Archived, FileFields, FileKind,
    PackFields, StoredPlace, UsageFields, Xattr,
};
pub use clean::{Cleaned, Leftover, LeftoverKind, LeftoverState};
pub use command::{CommandError, Note};
pub use copy::{Copied, Fetched, Plan, Sent};
pub use doctor::{Area, Examined, Finding, Severity};
pub use entry::{
    Algorithm, BlockLine, Costs, Device, Entry, ExactNumber, FileSystem, Match, Numbers, Place,
    Stats,
};
pub use exit::Exit;
pub use hosts::{Check, Group, HostIndex, HostList, Hosts, Setting, Settings, Source};
pub use local::{LocalChanged, LocalCopied, LocalFile, LocalRemoved, LocalUsage};
pub use record::Record;
pub use session::{
    Ended, Host, Joined, Left, Lost, Malformed, Mount, MountDone, Session, Started, Stranded,
    StuckCall, Token,
};
pub use summary::{Changed, FailedMembers, FilesInPart, SilentHosts, Summary, UnknownHosts};
pub use text::{Base64, text};
pub use trace::{
    ReplayedOperation, SkippedOperations, TopBy, TraceBuffers, TraceBuffersState, TraceDiff,
    TraceDiffRow, TraceProcess, TraceReplay, TraceReport, TraceSums, TraceTop,
};
pub use tree::{
    Bench, Fault, Figure, LastError, Measure, Node, NodeLink, NodeReport, NodeStream, PeerLink,
    Role, RunningTree, Simulation, Tree, Truncated, Wave,
};

/// The version of the schema. Records and fields are added. The meaning of those that exist stays.
pub const VERSION: u32 = 1;
