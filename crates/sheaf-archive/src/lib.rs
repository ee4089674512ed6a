//! An archive of millions of files: small ones lie in packs, which any tar reads.
//!
//! A pack is a tar of (a part of) one directory's small files, sorted by name, with a binary index as
//! its last member (`docs/format.md`). [`PackWriter`] writes one; [`PackIndex`] is what is known of its
//! members without a look at them; [`scan_pack`] makes an index of the tar alone, where both of its
//! copies are lost; [`verify_pack`] compares each byte with what the index says.
//!
//! ```
//! use sheaf_archive::{
//!     FileName, MemberAttributes, MemberKind, PackId, PackIndex, PackWriter, content_of,
//! };
//! let mut pack = PackWriter::new(Vec::new(), PackId([7; 16]));
//! let name = FileName::new("hosts").expect("it is a name");
//! let hosts = MemberAttributes::new(name, MemberKind::File, 0o644);
//! pack.add(&hosts, b"127.0.0.1 localhost\n")?;
//! let (tar, written) = pack.finish()?;
//!
//! let index = PackIndex::in_pack(&tar)?;
//! assert_eq!(index, written);
//! assert_eq!(content_of(&tar, index.find(b"hosts").unwrap())?, b"127.0.0.1 localhost\n");
//! # Ok::<(), sheaf_archive::PackError>(())
//! ```
//!
//! The model is *PSI*, the Parallel Storage Interface (Roschke, Cook, Parliman and Sherrill,
//! *Parallel Processing of Data, Metadata, and Aggregates Within an Archival Storage System User
//! Interface*, 2008). The heads of modules name its sections. PSI is a client of HPSS, which has
//! its own database. Sheaf's archive is a directory or a bucket, and its catalog is a log in there.
#![forbid(unsafe_code)]

mod archive;
mod catalog;
mod change_rights;
mod content;
mod error;
mod fetch;
mod find;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod grep;
mod hosts;
mod lease;
mod left;
mod list;
mod local;
mod name;
mod pack;
mod path;
mod reader;
mod relocate;
mod remove;
mod repack;
mod repair;
mod save;
mod schedule;
mod store;
mod usage;
mod verify;
mod version;
mod walk;
mod width;

pub use archive::{Archive, ArchiveError, ArchiveEvent, attribute_left};
pub use catalog::{
    ArchivedDirectory, ArchivedObject, ArchivedPack, Catalog, CatalogError, Commit, ContentPlace,
    DirectoryChange, DirectoryRows, FileRights, LOG_VERSION, MemberClass, RestoredLog, TreeSource,
    drop_log,
};
#[cfg(feature = "postgres")]
pub use catalog::{PostgresUrl, PostgresUrlError};
pub use change_rights::{
    RightsChange, RightsOptions, RightsReport, RightsStep, RightsTold, change_rights,
    change_rights_of_files, change_rights_of_files_told, change_rights_told,
};
pub use content::{ContentError, write_content};
pub use error::PackError;
pub use fetch::hosts::{FetchHost, FetchRoot, FetchRootOptions};
pub use fetch::tar::FetchTar;
pub use fetch::{FetchNames, FetchOptions, FetchReport, fetch, fetch_watched};
pub use find::{
    FindAsks, FindError, FindExpression, FindFile, FindNames, FindOutcome, FindPlace, FindPrint,
    FindSettings, FindTime, FindWords,
};
pub use grep::{
    ArchiveGrep, ArchiveGrepError, ArchiveGrepOptions, ArchiveGrepOutput, GrepBinary, GrepEvent,
    GrepPlace, GrepSyntax,
};
pub use hosts::{HostFiles, HostNumbers, HostStep, HostStore, HostTold, HostsRoot};
pub use lease::LeaseTimes;
pub use list::{ArchiveWalk, ArchivedFile, DirectoryListing};
pub use local::copy::{
    LocalCopyEvent, LocalCopyKeep, LocalCopyOptions, LocalCopyReport, LocalCopyTold, copy_local,
};
pub use local::modes::{
    LocalModes, LocalModesReport, LocalModesStep, ModeOf, ModesTold, change_local_modes,
};
pub use local::remove::asked::{LocalRemoveQuestion, remove_local_asked};
pub use local::remove::{
    LocalRemoveError, LocalRemoveOptions, LocalRemoveStep, LocalRemoved, remove_local,
};
pub use local::usage::{LocalUsage, LocalUsageOptions, LocalUsageStep, LocalUsageSum};
pub use local::within::{OpenDirectories, remove_in};
pub use name::FileName;
pub use pack::index::{INDEX_NAME, INDEX_VERSION, PackIndex};
pub use pack::member::{MemberAttributes, MemberKind, PackId, PackedMember};
pub use pack::scan::scan_pack;
pub use pack::sparse::SPARSE_EXTENTS_MAX;
pub use pack::verify::{Difference, content_of, verify_pack};
pub use pack::write::{MEMBER_BYTES_MAX, PACK_MEMBERS_MAX, PackWriter};
pub use pack::zstd::ZSTD_LEVEL_MAX;
pub use path::ArchivePath;
pub use reader::PackReader;
pub use relocate::{
    RelocateKeep, RelocateReport, Relocation, copy_tree, move_tree, relocate_files,
};
pub use remove::{RemoveReport, RemoveStep, remove, remove_files, remove_told};
pub use repack::{PackSpace, RepackOptions, RepackReport, repack};
pub use repair::{RepairOptions, RepairReport, repair};
pub use save::hosts::{SaveHost, SaveRoot, SaveRootOptions};
pub use save::{
    FileIgnores, PACK_LIMIT_MAX, PACK_LIMIT_MIN, SaveExclude, SaveExcludeError, SaveOptions,
    SaveReport, save, save_listed, save_watched,
};
pub use schedule::{
    HostStats, KindStats, Limiting, Needs, Phase, PhaseStats, Resource, ScheduleLimits,
    ScheduleStats,
};
pub use store::{
    LocalStore, Store, StoreCosts, StoreError, StoreKey, StoreMemory, StoreWriter, StoredObject,
    TapeSimulator, tape_simulator,
};
#[cfg(feature = "s3")]
pub use store::{S3Access, S3Credentials, S3Encryption, S3Identity, S3Limits, S3Place, S3Store};
#[cfg(feature = "tape")]
pub use store::{TapeCounters, TapeSettings, TapeStore};
pub use usage::exclude::UsageExclude;
pub use usage::{ArchivedUsage, UsageSum, UsageSumOptions};
pub use verify::{VerifyOptions, VerifyReport, verify};
pub use version::{
    FoundVersion, Version, VersionError, VersionSums, forget_versions, mark_version, versions,
};
pub use walk::{
    FileFacts, TreeEntry, TreeOrder, TreeStep, TreeVisitor, TreeWalk, TreeWalkOptions, VisitWalk,
    VisitedFile, WalkedDirectory, is_empty_in, status_in,
};
pub use width::{AdaptiveWidth, WIDTH_MAX};
