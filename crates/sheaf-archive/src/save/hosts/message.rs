//! What root and hosts say to each other.
use crate::catalog::{ArchivedDirectory, DirectoryRows};
use crate::hosts::{HostNumbers, StoreMark};
use crate::name::FileName;
use crate::path::ArchivePath;
use crate::save::commits::ReplacingChange;
use crate::save::desk::StoredContent;
use crate::save::links::StoredLink;
use crate::save::replace::FileStamp;
use crate::save::{FileIgnores, SaveReport};
use crate::schedule::ScheduleLimits;
use serde::{Deserialize, Serialize};
use sheaf_core::Errno;
use sheaf_core::files::Metadata;

/// Bytes after which a message is long enough. One item of it may be longer.
pub(super) const MESSAGE_BYTES: usize = 256 << 10;
/// Bytes of a text that is told at most.
const TEXT_BYTES_MAX: usize = 8 << 10;

/// A request of the root.
#[derive(Serialize, Deserialize)]
pub(super) enum ToHost {
    Begin(Box<BeginSave>),
    Go {
        works: Vec<SaveItem>,
        answers: Vec<(u64, DeskAnswer)>,
        /// Large files of directories that other hosts have.
        contents: Vec<ContentItem>,
    },
    /// What it was done with.
    Numbers,
}

/// What is to be stored.
#[derive(Serialize, Deserialize)]
pub(super) struct BeginSave {
    /// The store, by its name.
    pub store: Vec<u8>,
    pub mark: StoreMark,
    /// Absolute paths.
    pub sources: Vec<Vec<u8>>,
    /// Directories at once; 0 for as many as the host likes.
    pub workers: u32,
    pub member_bytes_max: u64,
    pub pack_bytes: u64,
    pub part_bytes: u64,
    pub zstd: Option<i32>,
    pub checksum: bool,
    pub ignores: FileIgnores,
    pub dry_run: bool,
    pub tell_names: bool,
    pub one_file_system: bool,
    /// What may be used of the host and of the store by it.
    pub limits: ScheduleLimits,
    /// Patterns of names that are left out.
    pub exclude: Vec<String>,
    /// Other hosts store some of the same files.
    pub is_shared: bool,
}

/// A directory that a host gets.
#[derive(Serialize, Deserialize)]
pub(super) struct SaveItem {
    pub id: u64,
    /// Which source it is within, and where.
    pub source: u32,
    pub path: ArchivePath,
    /// Only these sources, which are files; they go into `to`.
    pub files: Option<Vec<u32>>,
    pub to: ArchivePath,
    pub rows: DirectoryRows,
    /// The directories that are archived in it, if there are not too many.
    pub directories: Option<Vec<Vec<u8>>>,
}

/// A large file that a host stores, of a directory that another one has.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct ContentItem {
    pub id: u64,
    /// Which source its directory is within, and where.
    pub source: u32,
    pub path: ArchivePath,
    pub name: FileName,
    /// Which part of it; nothing where it is one object.
    pub part: Option<u32>,
}

/// What a host has asked for.
#[derive(Serialize, Deserialize)]
pub(super) enum DeskAnswer {
    IsDirectory(bool),
    /// What is stored of a file with several names; nothing where the host is to store it.
    Link(Option<Box<StoredLink>>),
    /// What another host has stored of a large file; nothing where the host is to store it.
    Content(Option<Box<StoredContent>>),
}

/// An answer of a host.
#[derive(Serialize, Deserialize)]
pub(super) enum FromHost {
    /// What its sources are; or why it stores nothing.
    Begun(Result<Vec<Result<SourceIs, Errno>>, String>),
    Went {
        records: Vec<Vec<u8>>,
        /// How many directories it would take.
        wants: u32,
    },
    Numbers(HostNumbers),
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SourceIs {
    pub is_directory: bool,
    pub ino: u64,
}

/// What has happened at a host, in its order.
#[derive(Serialize, Deserialize)]
pub(super) enum HostRecord {
    /// What the directory is.
    Begun {
        id: u64,
        is: ArchivedDirectory,
    },
    /// A directory is in it.
    Found {
        id: u64,
        name: Vec<u8>,
    },
    /// A directory is in it, and is archived as this file.
    InTheWay {
        id: u64,
        name: Vec<u8>,
        was: FileStamp,
    },
    Change {
        id: u64,
        change: ReplacingChange,
        report: SaveReport,
    },
    Done {
        id: u64,
        report: SaveReport,
    },
    /// It is to be said to the user.
    Told {
        text: String,
    },
    /// A file is stored.
    Stores {
        path: Vec<u8>,
    },
    IsDirectory {
        ask: u64,
        path: ArchivePath,
    },
    /// A file with several names is to be stored, or is by somebody else.
    Link {
        ask: u64,
        key: LinkKey,
    },
    /// It is stored; nothing if it was not.
    Linked {
        key: LinkKey,
        stored: Option<StoredLink>,
    },
    /// A large file is in a directory, which any host may store.
    Large {
        id: u64,
        name: FileName,
        part: Option<u32>,
    },
    /// It is to be stored now, or is by somebody else.
    Content {
        ask: u64,
        id: u64,
        name: FileName,
        part: Option<u32>,
    },
    /// What was stored of such a file; nothing if it was not.
    Stored {
        id: u64,
        object: Option<Box<StoredContent>>,
    },
    /// The host can store nothing more.
    Broken {
        text: String,
    },
}

/// A file with several names, as all hosts see it: the number of its device is each host's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct LinkKey {
    ino: u64,
    size: u64,
    ctime: (i64, u32),
    /// How many names it has.
    pub names: u32,
}

impl LinkKey {
    pub fn of(found: &Metadata) -> Self {
        let ctime = (found.ctime.seconds, found.ctime.nanoseconds);
        Self { ino: found.ino, size: found.size, ctime, names: found.nlink }
    }
}

impl HostRecord {
    /// A text, cut off where it is too long.
    pub fn told(mut text: String) -> Self {
        if text.len() > TEXT_BYTES_MAX {
            let end = (0..=TEXT_BYTES_MAX).rev().find(|at| text.is_char_boundary(*at));
            text.truncate(end.unwrap_or(0));
            text.push('…');
        }
        Self::Told { text }
    }
}

pub(super) fn encoded<T: Serialize>(message: &T) -> Vec<u8> {
    postcard::to_stdvec(message).expect("memory takes what it is given")
}
