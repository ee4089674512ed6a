//! Records of `archive` about files of this machine.
use crate::archive::{FileFields, FileKind, UsageFields};
use serde::Serialize;

/// archive ls, archive find: a file or directory of this machine.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "local_file")]
pub struct LocalFile {
    /// The host that has the file, if hosts were asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    pub kind: FileKind,
    #[serde(flatten)]
    pub file: FileFields,
}

/// archive rm of paths of this machine, at its end.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "local_removed")]
pub struct LocalRemoved {
    pub directories: u64,
    pub files: u64,
    pub failed: u64,
    pub dry_run: bool,
}

/// archive chmod of paths of this machine, at its end.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "local_changed")]
pub struct LocalChanged {
    pub changed: u64,
    pub unchanged: u64,
    pub failed: u64,
    pub dry_run: bool,
}

/// archive cp of paths of this machine, or within hosts, at its end.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "local_copied")]
pub struct LocalCopied {
    /// Names that are not directories.
    pub files: u64,
    pub directories: u64,
    /// Bytes of contents, without holes.
    pub bytes: u64,
    /// Names that existed and were kept (-n).
    pub skipped: u64,
    /// Extended attributes that could not be kept.
    pub attributes_left: u64,
    pub failed: u64,
    pub dry_run: bool,
}

/// archive du: a directory or file of this machine. The bytes are those on the disk, or with
/// --apparent-size those of contents.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "local_usage")]
pub struct LocalUsage {
    #[serde(flatten)]
    pub usage: UsageFields,
}
