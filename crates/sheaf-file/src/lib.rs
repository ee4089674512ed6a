//! The files of one host, served beneath one directory: the export.
//!
//! The main type is [`Export`]. Every path a caller gives is resolved *within* the export, by the
//! kernel (`openat2` with `RESOLVE_IN_ROOT`): `..` and absolute symbolic links are taken as if the
//! export were the root directory, magic links of `/proc` are refused, and nothing leads out. What
//! changes the file system finds the parent directory first and then acts on one name in it, so a
//! directory that is exchanged meanwhile leads nowhere else.
//!
//! The way of one operation: the caller's path → [`Export`] resolves it to a descriptor → the
//! operation acts on the descriptor → a value, or the [`Errno`](sheaf_core::Errno) of the system.
//! Groups of names come from [`Export::glob`] (a [`Pattern`]) and [`Export::walk`] (a directory and
//! all beneath it).
//!
//! ```
//! # let dir = tempfile::tempdir().unwrap();
//! # std::fs::create_dir(dir.path().join("etc")).unwrap();
//! # std::fs::write(dir.path().join("etc/hosts"), "127.0.0.1 localhost\n").unwrap();
//! use sheaf_file::{Export, Pattern};
//! use std::{io::Read, path::Path};
//!
//! let export = Export::open(dir.path())?;
//! let mut text = String::new();
//! export.open_read(Path::new("/../etc/hosts"))?.read_to_string(&mut text).unwrap();
//! assert_eq!(text, "127.0.0.1 localhost\n");
//!
//! let found = export.glob(&Pattern::new("/e*/{hosts,motd}").unwrap())?;
//! assert_eq!(found.paths, [Path::new("/etc/hosts")]);
//! # Ok::<(), sheaf_core::Errno>(())
//! ```
#![forbid(unsafe_code)]

mod attributes;
mod change;
mod digest;
mod dir;
mod error;
mod export;
mod file_system;
mod glob;
mod held;
mod identity;
mod itself;
mod leases;
mod made;
mod meaning;
mod mode_change;
mod owner;
mod pattern;
mod remove;
mod stage;
mod tentative;
mod usage;
mod views;
mod walk;

pub use attributes::{
    ACCESS_LIST, Attributes, SetTime, Xattr, access_list_of, mode_without_list, xattrs_of,
};
pub use change::make_directories;
pub use digest::{Algorithm, Digest, Digester, digest};
pub use dir::{DIR_ENTRIES_MAX, DirEntries};
pub use error::{PathError, PatternError};
pub use export::{Export, close, is_empty_pipe};
pub use file_system::FileSystem;
pub use glob::{GLOB_DEPTH_MAX, GLOB_ERRORS_MAX, GLOB_MATCHES_MAX, Globbed};
pub use held::FoundFile;
pub use identity::FileIdentity;
pub use itself::unless_itself;
pub use leases::{LEASE_WAIT_MAX, outlasting_leases};
pub use meaning::meant_at;
pub use mode_change::{ModeChange, umask};
pub use owner::{Owner, acts_as_owner, group_name, user_name};
pub use pattern::{NameFilter, Pattern, PatternTree, TextPattern, is_pattern, literal};
pub use remove::{REMOVE_ERRORS_MAX, Removal, RemoveOptions, Removed};
pub use rustix::fs::{Mode, OFlags};
pub use sheaf_core::files::{DirEntry, FileKind, Metadata, Timestamp};
pub use stage::{StageOptions, Staged, TEMP_PREFIX, is_made_up, sync, temp_name};
pub use tentative::Tentative;
pub use usage::{Counted, PathUsage, Usage, UsageOptions, UsageSteps, UsageTime};
pub use views::{VIEW_SOURCE, VIEW_TYPE, is_view};
pub use walk::{DEPTH_MAX, Follow, Walk, WalkEntry, WalkOptions};

/// What an operation gives: a value, or the system's reason.
pub type Result<T> = std::result::Result<T, sheaf_core::Errno>;
