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
    /// Why the session's log cannot be written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unlogged: Option<String>,
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

/// status --mounts: a part of a view that is mounted on this host.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "mount")]
pub struct Mount {
    /// The directory of the view.
    pub view: String,
    /// The part, such as `hosts/n1`.
    pub part: String,
    /// The user who has mounted it.
    pub user: u64,
    /// Why nothing is known of it; then the fields below are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(flatten)]
    pub done: Option<MountDone>,
}

/// What a mount has done.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MountDone {
    /// Requests of the kernel.
    pub requests: u64,
    /// Requests to the owner that were answered.
    pub answered: u64,
    /// Half of the requests to the owner took at most this many microseconds.
    pub half_within_us: Option<u64>,
    /// 99 % of the requests to the owner took at most this many microseconds.
    pub most_within_us: Option<u64>,
    /// Files of which bytes are leased by the owner.
    pub leased_files: u64,
    pub leased_bytes: u64,
    /// Owners of locks of files.
    pub lock_owners: u64,
    /// Requests that the owner has not answered yet.
    pub under_way: u64,
}

/// status --mounts: a call of a program that has waited for more than a second.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename = "stuck_call")]
pub struct StuckCall {
    pub view: String,
    pub part: String,
    /// As the kernel's protocol calls it.
    pub operation: String,
    pub pid: u64,
    pub program: Option<String>,
    pub user: u64,
    /// The open file of the call, or the name that it looks up.
    pub file: Option<String>,
    pub seconds: f64,
}
