//! The summary of a command that asked hosts.
use crate::exit::Exit;
use serde::{Deserialize, Serialize};

/// The last record of a command that asked hosts.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "summary")]
pub struct Summary {
    /// status: the name of the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    pub members: u64,
    pub succeeded: u64,
    /// The number of files of this machine that failed.
    pub failed_here: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<Changed>,
    pub exit: Exit,
    pub failed: Vec<FailedMembers>,
    /// The hosts that did not answer, by the reason.
    pub silent: Vec<SilentHosts>,
}

/// The changes of a command that changes files, with their hosts.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
pub struct Changed {
    pub done: String,
    pub hosts: String,
    pub count: u64,
    pub files: u64,
    pub dry_run: bool,
    /// Whether every host finished. Otherwise, files counts only the known changes.
    pub complete: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<UnknownHosts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_part: Option<FilesInPart>,
}

/// The hosts whose changes are not known, or which may still change files.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
pub struct UnknownHosts {
    pub hosts: String,
    pub count: u64,
}

/// write, and cp --no-atomic: files that received only a part of the data.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
pub struct FilesInPart {
    pub hosts: String,
    pub count: u64,
    pub files: u64,
}

/// Members that failed with the same error.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(inline))]
pub struct FailedMembers {
    pub hosts: String,
    pub paths: Vec<String>,
    pub members: u64,
    pub errno: String,
    pub error: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Hosts that did not answer for the same reason.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename = "silent_hosts")]
pub struct SilentHosts {
    pub hosts: String,
    pub count: u64,
    pub errno: String,
    pub error: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}
