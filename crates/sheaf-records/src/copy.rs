//! Records of `cp`.
use serde::Serialize;

/// cp --dry-run.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "plan")]
pub struct Plan {
    pub hosts: String,
    pub path: String,
    pub action: String,
}

/// cp: the files that were sent, once for all hosts.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "sent")]
pub struct Sent {
    pub files: u64,
    pub bytes: u64,
}

/// cp: the contents that came from hosts. Each distinct content is counted once.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "fetched")]
pub struct Fetched {
    pub files: u64,
    pub bytes: u64,
}

/// cp: the files that were put in place. With hosts: on each of them.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "copied")]
pub struct Copied {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<String>,
    pub files: u64,
    pub bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directories: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub links: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<u64>,
}
