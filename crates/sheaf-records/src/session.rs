//! Records about sessions.
use crate::exit::Exit;
use crate::summary::SilentHosts;
use serde::Serialize;

/// up.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "started")]
pub struct Started {
    pub session: String,
    pub running: u64,
    pub of: u64,
    pub pid: u64,
    /// The hosts that do not run, folded.
    pub missing: String,
    /// The hosts that did not answer, by the reason.
    pub silent: Vec<SilentHosts>,
    pub exit: Exit,
}

/// down.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "ended")]
pub struct Ended {
    pub session: String,
}

/// status: a session that runs.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "session")]
pub struct Session {
    pub name: String,
    pub cluster: String,
    pub hosts: String,
    pub launch: String,
    pub tree: String,
    pub export: String,
    pub pid: u64,
    /// The machine where it was started.
    pub kept_by: String,
    /// Seconds since 1970.
    pub since: u64,
    pub answered: String,
    pub missing: String,
    /// Refused connections: the reason and the number.
    pub refused: Vec<(String, u64)>,
    /// The last time of each refusal, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused_at: Option<Vec<u64>>,
    /// Hosts on which programs cannot use the session, and the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shut: Option<Vec<(String, String)>>,
    /// Hosts on which admitted programs of other users cannot use the session, and the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shut_to_others: Option<Vec<(String, String)>>,
    /// Hosts whose audit is not written to a file of the host, and the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unaudited: Option<Vec<(String, String)>>,
    /// Direct links between hosts: a line for each kind.
    pub peer_links: Vec<String>,
}

/// status: a server.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "host")]
pub struct Host {
    pub session: String,
    pub host: Option<String>,
    pub pid: u64,
    pub rss_bytes: u64,
    pub cpu_us: u64,
    pub link: Option<String>,
}

/// status, tree show: hosts that a node cannot log in to, and that the root was asked to start.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "stranded")]
pub struct Stranded {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    pub hosts: String,
    pub rank: u64,
    pub noticed_by: u64,
    pub cause: String,
    /// status: the time in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
}

/// status, tree show: hosts were lost.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "lost")]
pub struct Lost {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    pub hosts: String,
    pub rank: u64,
    pub noticed_by: u64,
    pub errno: Option<String>,
    pub cause: String,
    /// status: the time in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
}

/// status, tree show: hosts came back, or joined elsewhere.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "joined")]
pub struct Joined {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    pub hosts: String,
    pub rank: u64,
    pub noticed_by: u64,
    /// status: the time in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
}

/// status, tree show: hosts left as planned.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "left")]
pub struct Left {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    pub hosts: String,
    pub rank: u64,
    /// status: the time in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
}

/// status: an answer of these hosts did not decode.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "malformed")]
pub struct Malformed {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    pub hosts: String,
    pub noticed_by: u64,
    /// status: the time in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
}

/// token. It is null if it was written to a file.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "token")]
pub struct Token {
    pub token: Option<String>,
    pub join: String,
    pub uses: u64,
}
