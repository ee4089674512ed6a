//! The list of all records.
use serde::Serialize;

/// A record, which has its `type`. The schema has a definition of each.
pub trait Record: Serialize {}

macro_rules! records {
    ($($Record:ident,)*) => {
        $(impl Record for crate::$Record {})*

        /// Adds the definitions of all records, and returns the references to them.
        #[cfg(test)]
        pub(crate) fn references(generator: &mut schemars::SchemaGenerator) -> Vec<schemars::Schema> {
            vec![$(generator.subschema_for::<crate::$Record>()),*]
        }
    };
}

records! {
    ArchiveChanged,
    ArchiveDamage,
    ArchiveFetched,
    ArchiveLogDropped,
    ArchiveLogRestored,
    ArchiveRelocated,
    ArchiveRemoved,
    ArchiveRepacked,
    ArchiveRepaired,
    ArchiveStat,
    ArchiveStats,
    ArchiveStored,
    ArchiveUsage,
    ArchiveVerified,
    ArchiveVersion,
    Archived,
    Bench,
    Check,
    Cleaned,
    CommandError,
    Copied,
    Costs,
    Ended,
    Entry,
    Examined,
    Fault,
    Fetched,
    Finding,
    Group,
    Host,
    HostIndex,
    Hosts,
    Joined,
    Left,
    Leftover,
    Malformed,
    LocalChanged,
    LocalCopied,
    LocalFile,
    LocalRemoved,
    LocalUsage,
    Lost,
    Mount,
    Node,
    Note,
    Plan,
    Sent,
    Session,
    Settings,
    Simulation,
    Source,
    Started,
    Stats,
    Stranded,
    StuckCall,
    Summary,
    Token,
    TraceBuffers,
    TraceDiff,
    TraceReplay,
    TraceReport,
    TraceTop,
    Tree,
    Wave,
}
