//! Records of `archive` about archives.
use crate::text::Base64;
use serde::Serialize;
use std::collections::BTreeMap;

/// archive ls, archive find: an archived file or directory.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "archived")]
pub struct Archived {
    /// archive find: the store that contains it, as it was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store_base64: Option<Base64>,
    #[cfg_attr(test, schemars(transform = without_sockets))]
    pub kind: FileKind,
    #[serde(flatten)]
    pub file: FileFields,
}

/// The attributes of a file.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
pub struct FileFields {
    /// The path, or the name in the archive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_base64: Option<Base64>,
    /// Permission bits, four octal digits.
    pub mode: String,
    pub uid: u64,
    pub gid: u64,
    pub size: u64,
    /// Seconds since 1970, negative before.
    pub mtime_s: i64,
    pub mtime_ns: u64,
    /// The target of a symbolic link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_base64: Option<Base64>,
}

/// archive stat: all that is known of an archived file or directory.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "archive_stat")]
pub struct ArchiveStat {
    #[cfg_attr(test, schemars(transform = without_sockets))]
    pub kind: FileKind,
    #[serde(flatten)]
    pub file: FileFields,
    /// The bytes that are not in holes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stored_bytes: Option<u64>,
    /// Nanoseconds since 1970, modulo 2^64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ctime_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ino: Option<u64>,
    /// The digest of the stored content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blake3: Option<String>,
    /// The commit that last changed the directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<u64>,
    /// The number of files of a directory, without those in its subdirectories.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    pub xattrs: Vec<Xattr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<StoredPlace>,
    /// With --packs: the packs of a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packs: Option<Vec<PackFields>>,
}

/// An extended attribute.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
pub struct Xattr {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_base64: Option<Base64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_base64: Option<Base64>,
}

/// With --packs: the place of the content in the store.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
pub struct StoredPlace {
    pub object: String,
    pub offset: u64,
    pub bytes: u64,
    /// The generation of the pack's index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
}

/// A pack.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
pub struct PackFields {
    pub object: String,
    pub index: String,
    pub generation: u64,
    pub members: u64,
    pub content_bytes: u64,
    pub tar_bytes: u64,
    pub index_bytes: u64,
    /// Bytes of members that exist.
    pub live_bytes: u64,
    /// Bytes of members that were removed.
    pub dead_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_base64: Option<Base64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_base64: Option<Base64>,
}

/// archive store, at its end.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "archive_stored")]
pub struct ArchiveStored {
    pub directories: u64,
    pub stored: u64,
    pub stored_bytes: u64,
    pub unchanged: u64,
    pub changing: u64,
    pub skipped: u64,
    pub failed: u64,
    pub dry_run: bool,
}

/// archive store or get --stats: the resources that were used. Counters that only grow end with
/// _total.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "archive_stats")]
pub struct ArchiveStats {
    /// The host of the counters, if it is not this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    pub seconds: f64,
    pub limiting: String,
    pub counters: BTreeMap<String, u64>,
}

/// archive get, at its end.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "archive_fetched")]
pub struct ArchiveFetched {
    pub directories: u64,
    pub fetched: u64,
    pub fetched_bytes: u64,
    pub unchanged: u64,
    pub newer: u64,
    /// Of `--delete`.
    pub removed: u64,
    pub attributes_left: u64,
    pub failed: u64,
    pub dry_run: bool,
}

/// archive rm, at its end.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "archive_removed")]
pub struct ArchiveRemoved {
    pub directories: u64,
    pub files: u64,
    pub bytes: u64,
    pub failed: u64,
    pub dry_run: bool,
}

/// archive chmod or chown, at its end.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "archive_changed")]
pub struct ArchiveChanged {
    pub changed: u64,
    pub unchanged: u64,
    pub failed: u64,
    pub dry_run: bool,
}

/// archive cp or mv, at its end: single files, and trees.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "archive_relocated")]
pub struct ArchiveRelocated {
    pub files: u64,
    pub trees: u64,
    pub skipped: u64,
    pub failed: u64,
    pub dry_run: bool,
}

/// archive verify, at its end.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "archive_verified")]
pub struct ArchiveVerified {
    pub directories: u64,
    pub packs: u64,
    pub objects: u64,
    pub bytes: u64,
    pub unread: u64,
    pub damaged: u64,
    /// Objects without a reference; 0 if the command did not look for them.
    pub unreferred: u64,
    pub unreferred_bytes: u64,
}

/// archive verify: stored data that is damaged.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "archive_damage")]
pub struct ArchiveDamage {
    pub error: String,
    /// The damaged archived files, as far as they are known.
    pub files: Vec<String>,
}

/// archive du: a directory or file, or the total of all.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "archive_usage")]
pub struct ArchiveUsage {
    #[serde(flatten)]
    pub usage: UsageFields,
}

/// The space of a directory or file.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
pub struct UsageFields {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_base64: Option<Base64>,
    pub files: u64,
    pub directories: u64,
    pub bytes: u64,
}

/// archive repack, at its end.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "archive_repacked")]
pub struct ArchiveRepacked {
    pub dry_run: bool,
    /// Directories whose packs were rewritten.
    pub directories: u64,
    /// Packs that were rewritten.
    pub packs: u64,
    /// Packs that replace them.
    pub packs_new: u64,
    /// Packs that were kept, because another directory refers to them.
    pub packs_shared: u64,
    pub members: u64,
    pub indexes_old: u64,
    pub bytes_removed: u64,
    pub bytes_written: u64,
    pub failed: u64,
}

/// archive repair, at its end.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "archive_repaired")]
pub struct ArchiveRepaired {
    pub dry_run: bool,
    /// Objects without a reference.
    pub leftovers: u64,
    pub bytes: u64,
    /// Other objects, which may belong to a writer that still runs.
    pub young: u64,
    /// Commands that write to the store now.
    pub writers: u64,
    /// Lost indexes of packs that were created again.
    pub indexes: u64,
    /// Lost indexes that cannot be created again.
    pub indexes_lost: u64,
    /// Packs whose last index is lost, of which all files are archived again, also removed ones.
    pub refilled: u64,
}

/// archive log: a version, the oldest first; archive forget: one that is forgotten, or would be.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "archive_version")]
pub struct ArchiveVersion {
    /// 32 hexadecimal digits.
    pub id: String,
    /// The last commit of the log that it has.
    pub commit: u64,
    pub name: Option<String>,
    /// Seconds since 1970, by the clock of the host.
    pub time: i64,
    pub host: String,
    pub stored: u64,
    pub stored_bytes: u64,
    pub unchanged: u64,
    pub failed: u64,
    /// Whether all but id and commit is unknown.
    pub damaged: bool,
    pub forgotten: bool,
}

/// archive repair --drop-log-from, at its end.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "archive_log_dropped")]
pub struct ArchiveLogDropped {
    pub dry_run: bool,
    /// The first dropped commit.
    pub from: u64,
    /// The number of dropped commits.
    pub commits: u64,
}

/// archive repair --restore-log, at its end.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "archive_log_restored")]
pub struct ArchiveLogRestored {
    pub dry_run: bool,
    /// The first lost commit.
    pub from: u64,
    /// The last commit that the catalog contains.
    pub known: u64,
    /// The number of commits that were written.
    pub commits: u64,
    /// The number of directories in these commits.
    pub directories: u64,
    /// The number of commits of the log that these replace.
    pub dropped: u64,
    /// The names or identities of versions that are forgotten, as the log has lost their commits.
    pub versions: Vec<String>,
}

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    #[serde(rename = "char device")]
    CharDevice,
    #[serde(rename = "block device")]
    BlockDevice,
}

/// The kinds that an archive contains.
#[cfg(test)]
fn without_sockets(schema: &mut schemars::Schema) {
    let kinds = schema.get_mut("enum").and_then(serde_json::Value::as_array_mut);
    kinds.expect("the kinds are listed").retain(|kind| kind != "socket");
}
