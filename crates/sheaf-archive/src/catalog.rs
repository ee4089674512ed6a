//! What is in an archive: directories, and in each its packs and objects.
//!
//! A change is a [`Commit`]. It is written to the store's log, as the next object there, which only
//! one of two writers can do; that makes it so. A [`Catalog`] is the table that the log adds up to: it
//! can be behind, and catches up, and where it is lost it is made of the log again: of the latest
//! snapshot, and the commits behind it.
//!
//! Each name is archived once, and each directory is in one directory. `Catalog::commit` refuses a
//! commit that breaks this, except a file next to a directory of the same name: `verify` finds
//! that.
mod apply;
mod checked;
mod cut;
mod log;
mod plan;
#[cfg(feature = "postgres")]
mod postgres;
mod read;
mod restore;
mod rights;
mod rows;
mod snapshot;
mod sqlite;
mod tables;
mod whole;

pub(crate) use checked::Checked;
pub use cut::drop_log;
pub(crate) use cut::drop_log_behind;
pub use log::LOG_VERSION;
#[cfg(feature = "fuzzing")]
pub(crate) use log::fuzz as fuzz_log;
pub(crate) use log::key as log_key;
pub(crate) use plan::{
    begin as begin_changing, end as end_changing, is_begun, is_there as is_planned,
};
#[cfg(feature = "postgres")]
pub use postgres::{PostgresUrl, PostgresUrlError};
pub use restore::RestoredLog;
pub(crate) use rights::rebind_xattrs;
pub use rights::{FileRights, MemberClass};
pub use rows::{
    ArchivedDirectory, ArchivedObject, ArchivedPack, Commit, ContentPlace, DirectoryChange,
    DirectoryRows, TreeSource,
};
#[cfg(feature = "fuzzing")]
pub(crate) use snapshot::check_snapshot_piece;
pub use whole::Catalog;

use crate::path::ArchivePath;
use crate::store::StoreError;
use sheaf_core::Errno;

/// Why a catalog cannot be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogError {
    /// What the store says.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What the table's file says.
    #[error("the catalog {place}: {why}")]
    Table {
        /// Where it is.
        place: String,
        /// What is wrong.
        why: String,
    },
    /// The table's file cannot be written or read: its disk may be full.
    #[error("the catalog {place}: {why}: its disk may be full, or fail")]
    Disk {
        /// Where it is.
        place: String,
        /// What is wrong.
        why: String,
    },
    /// There is no place for the table's file.
    #[error("the catalog {place}: {why}")]
    NoPlace {
        /// Where it was to be.
        place: String,
        /// Why it cannot be there.
        why: String,
    },
    /// A commit says what cannot be, and is not made.
    #[error(
        "nothing was changed: an attribute, a length or a name that was to be archived cannot be"
    )]
    Invalid,
    /// A commit in the log is not as it was written.
    #[error(
        "commit {number} of the archive's log is damaged: {why}: bring {} back from a copy of the store",
        log_key(*number)
    )]
    Damaged {
        /// Which one.
        number: u64,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A commit of the log is not there, and later ones are.
    #[error(
        "commit {number} of the archive's log is missing, and later ones are there, from {later} on: \
         bring {} back from a copy of the store",
        log_key(*number)
    )]
    Missing {
        /// Which one; the first that is.
        number: u64,
        /// The first that is there behind it.
        later: u64,
    },
    /// The last commits of the log are not there, and a version or a snapshot is of one of them.
    #[error(
        "commit {number} of the archive's log is missing, as a version or a snapshot of the log is of commit \
         {marked}: bring {} back from a copy of the store, or go on without it with sheaf archive repair \
         --drop-log-from {number}",
        log_key(*number)
    )]
    Cut {
        /// The first one that is not there.
        number: u64,
        /// The last one of which there is a version or a snapshot.
        marked: u64,
    },
    /// Versions or snapshots cannot be listed, which would show that the log has lost its end.
    #[error("{error}: so it is not known whether the archive's log has lost its last commits")]
    Unmarked {
        /// Why.
        error: StoreError,
    },
    /// A commit of the log is whole, and was written behind another one than is there before it.
    #[error(
        "commit {number} of the archive's log does not continue commit {}: one of them is of another \
         log: bring both back from one copy of the store",
        number - 1
    )]
    Unconnected {
        /// Which one.
        number: u64,
    },
    /// The log is being changed, or was until that was broken off.
    #[error(
        "the archive's log is being changed, or was until that was broken off: then the same command does the rest, \
         and so does sheaf archive repair --restore-log"
    )]
    Restoring,
    /// What a log was to become cannot be read.
    #[error(
        "{place} says what the archive's log was to become, and is damaged: {why}: bring it back from a copy of the \
         store, or put all of the store back to one and remove objects/restoring"
    )]
    Plan {
        /// Where it is.
        place: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// It is not the first commit of the log that is damaged or missing, so it is not given up.
    #[error(
        "commit {number} of the archive's log is not the first that is damaged or missing: {}",
        fault.as_deref().unwrap_or("none is")
    )]
    InOrder {
        /// Which one.
        number: u64,
        /// What is wrong first, if something is.
        fault: Option<String>,
    },
    /// A later Sheaf has written it.
    #[error(
        "commit {number} of the archive's log has format version {version}, and this Sheaf knows \
         them up to {LOG_VERSION}: use a later one"
    )]
    Version {
        /// Which one.
        number: u64,
        /// Its version.
        version: u32,
    },
    /// A snapshot of the log is not as it was written. Nothing is lost by that.
    #[error(
        "snapshot {number} of the archive's log is damaged: {why}: the log itself is read, and sheaf archive \
         repair removes the snapshot"
    )]
    Snapshot {
        /// The last commit that it has.
        number: u64,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The tables are not what the log adds up to.
    #[error(
        "the catalog {place} is not what the log says, at {path}: {remedy}, and it is made again"
    )]
    Differs {
        /// Where it is.
        place: String,
        /// The first directory of which it says something else.
        path: ArchivePath,
        /// What has to be removed.
        remedy: String,
    },
    /// The last commits of the log are not there, and the catalog has taken them in.
    #[error(
        "the catalog {place} knows what the archive's log has lost, from commit {number} to {last}, and \
         nothing else does: keep it, and write the log again of it with sheaf archive repair \
         --restore-log (where commits were given up with --drop-log-from, {remedy})"
    )]
    Lost {
        /// Where the catalog is.
        place: String,
        /// The first commit that is not there.
        number: u64,
        /// The last one that the catalog knows.
        last: u64,
        /// What has to be removed to forget them.
        remedy: String,
    },
    /// The same, and what they stored is not there, either.
    #[error(
        "the store has lost what the catalog {place} knows, from commit {number} of the log to {last}, and what \
         these stored, too: it is an earlier state of itself, as a copy or a snapshot. Bring the later one back, \
         or go on from this one with sheaf archive repair --drop-log-from {number}"
    )]
    Gone {
        /// Where the catalog is.
        place: String,
        /// The first commit that is not there.
        number: u64,
        /// The last one that the catalog knows.
        last: u64,
    },
    /// The tables are of another log.
    #[error(
        "the catalog {place} is of another archive, or of another state of this one: its commit {number} is \
         another one: name another catalog, or {remedy}, and it is made again"
    )]
    OtherLog {
        /// Where it is.
        place: String,
        /// Its last commit.
        number: u64,
        /// What has to be removed.
        remedy: String,
    },
    /// The server that has the tables cannot be asked.
    #[error("the catalog {place}: {why}: what was committed is in the store's log")]
    Server {
        /// Where it is, without a password.
        place: String,
        /// What is wrong.
        why: String,
    },
    /// Somebody else has changed a directory since it was looked at. Nothing was changed by this
    /// commit.
    #[error("{path}: another writer has changed it meanwhile: try again")]
    Changed {
        /// The directory.
        path: ArchivePath,
    },
    /// Objects that were written for a directory are no longer in the store. Nothing was changed by
    /// this commit.
    #[error(
        "{path}: what was written for it has been removed from the store since, so it is not archived: \
         do it again"
    )]
    Removed {
        /// The directory.
        path: ArchivePath,
    },
    /// A command was stopped for so long that another one may take what it wrote for leftovers.
    #[error(
        "this command was stopped for longer than its lease in the store, and {holder} may have removed \
         what it wrote: do it again"
    )]
    LeaseEnded {
        /// The process that removes leftovers, as far as that is known.
        holder: String,
    },
}

impl CatalogError {
    /// The number of this error.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::Store(error) | Self::Unmarked { error } => error.errno,
            Self::Table { .. } | Self::Disk { .. } => Errno::IO,
            Self::NoPlace { .. } => Errno::NOENT,
            Self::Server { .. } => Errno::TIMEDOUT,
            Self::Damaged { .. }
            | Self::Snapshot { .. }
            | Self::Missing { .. }
            | Self::Cut { .. }
            | Self::Restoring
            | Self::Plan { .. }
            | Self::Unconnected { .. }
            | Self::Differs { .. }
            | Self::Lost { .. }
            | Self::Gone { .. }
            | Self::OtherLog { .. } => Errno::BADMSG,
            Self::Version { .. } => Errno::OPNOTSUPP,
            Self::InOrder { .. } | Self::Invalid => Errno::INVAL,
            Self::Changed { .. } | Self::Removed { .. } | Self::LeaseEnded { .. } => Errno::AGAIN,
        }
    }

    /// Whether it is a commit of the log that is damaged, is not there or may not be, or cannot be read by
    /// this Sheaf: what came before it is known all the same.
    #[must_use]
    pub fn is_of_log(&self) -> bool {
        matches!(
            self,
            Self::Damaged { .. }
                | Self::Missing { .. }
                | Self::Cut { .. }
                | Self::Unmarked { .. }
                | Self::Unconnected { .. }
                | Self::Restoring
                | Self::Lost { .. }
                | Self::Gone { .. }
                | Self::Version { .. }
        )
    }

    /// The commit of the log that is damaged or not there.
    pub(crate) fn commit(&self) -> Option<u64> {
        match self {
            Self::Damaged { number, .. }
            | Self::Missing { number, .. }
            | Self::Cut { number, .. }
            | Self::Unconnected { number } => Some(*number),
            _ => None,
        }
    }

    /// Whether the same may be done a little later.
    #[must_use]
    pub fn retry_can_help(&self) -> bool {
        match self {
            Self::Store(error) | Self::Unmarked { error } => error.retry_can_help(),
            Self::Changed { .. }
            | Self::Removed { .. }
            | Self::LeaseEnded { .. }
            | Self::Server { .. } => true,
            Self::Table { .. }
            | Self::Disk { .. }
            | Self::NoPlace { .. }
            | Self::Damaged { .. }
            | Self::Snapshot { .. }
            | Self::Missing { .. }
            | Self::Cut { .. }
            | Self::Restoring
            | Self::Plan { .. }
            | Self::Unconnected { .. }
            | Self::Differs { .. }
            | Self::Lost { .. }
            | Self::Gone { .. }
            | Self::OtherLog { .. }
            | Self::InOrder { .. }
            | Self::Invalid
            | Self::Version { .. } => false,
        }
    }
}
