//! Records of `clean`.
use crate::exit::Exit;
use crate::text::Base64;
use serde::{Deserialize, Serialize};

/// clean: a file or directory that Sheaf left.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "leftover")]
pub struct Leftover {
    pub kind: LeftoverKind,
    /// The hosts where it was found. Absent: this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<String>,
    /// How many hosts these are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_base64: Option<Base64>,
    /// In a dry run, removed stands for what would be removed.
    pub state: LeftoverState,
    /// removed: the bytes that it takes from its file system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// kept and failed: the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum LeftoverKind {
    /// A program that was sent here to serve, in the cache.
    Cache,
    /// A socket, a lock, a log or the last message of a session that has ended.
    Session,
    /// The directory of a recording that has ended.
    Recording,
    /// The directory of a tour that was killed.
    Demo,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum LeftoverState {
    Removed,
    Kept,
    Failed,
}

/// clean, at its end.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "cleaned")]
pub struct Cleaned {
    pub removed: u64,
    /// Of what was removed.
    pub bytes: u64,
    pub kept: u64,
    pub failed: u64,
    pub dry_run: bool,
    pub exit: Exit,
}
