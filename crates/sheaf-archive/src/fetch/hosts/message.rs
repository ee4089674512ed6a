//! What root and hosts say to each other.
use crate::catalog::{ArchivedDirectory, DirectoryRows};
use crate::fetch::FetchReport;
use crate::hosts::{HostNumbers, StoreMark};
use crate::path::ArchivePath;
use crate::schedule::ScheduleLimits;
use serde::{Deserialize, Serialize};

/// A request of the root.
#[derive(Serialize, Deserialize)]
pub(super) enum ToFetchHost {
    Begin(Box<BeginFetch>),
    Go(Vec<FetchStep>),
    /// What it was done with.
    Numbers,
}

/// What is to be fetched, and where it goes.
#[derive(Serialize, Deserialize)]
pub(super) struct BeginFetch {
    /// The store, by its name.
    pub store: Vec<u8>,
    pub mark: StoreMark,
    /// An absolute path.
    pub to: Vec<u8>,
    /// The archived directory that it stands for.
    pub above: ArchivePath,
    /// What is fetched has so many names in its path.
    pub depth: u32,
    pub overwrite: bool,
    /// What may be used of the host and of the store by it.
    pub limits: ScheduleLimits,
    /// Patterns of names that are left out.
    pub exclude: Vec<String>,
    /// Patterns of names that are fetched alone.
    pub include: Vec<String>,
}

/// What a host does, one after the other.
#[derive(Serialize, Deserialize)]
pub(super) enum FetchStep {
    /// Makes a directory, and fills it.
    Fill { path: ArchivePath, rows: DirectoryRows },
    /// Fetches one file of a directory.
    One { above: ArchivePath, name: Vec<u8>, rows: DirectoryRows },
    /// Sets what a directory is, when all are filled.
    Finish { path: ArchivePath, is: ArchivedDirectory },
    /// Makes all of it durable.
    Sync,
}

/// An answer of a host.
#[derive(Serialize, Deserialize)]
pub(super) enum FromFetchHost {
    /// It can; or why not.
    Begun(Result<(), String>),
    Went {
        /// What is to be said to the user.
        told: Vec<String>,
        /// All that was done.
        report: FetchReport,
        /// How many steps it would take.
        wants: u32,
        /// It has nothing to do.
        is_idle: bool,
    },
    Numbers(HostNumbers),
}
