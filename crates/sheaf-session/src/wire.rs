//! What a session and its clients say to each other beside the frames of the tree, as JSON.
use serde::{Deserialize, Serialize};

/// What a session tells its clients of itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SessionInfo {
    /// The name of its cluster.
    pub cluster: String,
    /// Its hosts, folded.
    pub hosts: String,
    /// How its servers were started.
    pub launch: String,
    /// The shape of its tree.
    pub tree: String,
    /// What each server serves.
    pub export: String,
    /// What commands by a file are compared with.
    pub settings: StartSettings,
    /// The machine of its root.
    #[serde(default)]
    pub kept_by: String,
    /// Its process.
    pub pid: u32,
    /// Seconds since 1970.
    pub since: u64,
    /// Connections that the root did not let in: why, and how often.
    #[serde(default)]
    pub refused: Vec<(String, u64)>,
    /// When each of them was refused last, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused_at: Vec<u64>,
    /// Hosts that programs there cannot use the session from, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shut: Vec<(String, String)>,
    /// Hosts that users who are not the session's, and are to be let in, cannot use it from, and
    /// why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shut_to_others: Vec<(String, String)>,
    /// Hosts on which changes are in no file, though they are to be, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unaudited: Vec<(String, String)>,
    /// Why the session's log cannot be written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unlogged: Option<String>,
    /// The client that this is sent to may change no files.
    #[serde(default)]
    pub read_only: bool,
    /// The client that this is sent to is not root on other hosts.
    #[serde(default)]
    pub no_root: bool,
    /// When what its tree has noticed so far happened, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub event_times: Vec<u64>,
}

/// What of the settings that a session was started with decides which files a command means.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StartSettings {
    /// The directory that each server serves, with `%h` for the host's name.
    pub export: String,
    /// The hosts of the cluster, in the words of its file.
    pub hosts: String,
    /// Hosts were chosen when it was started.
    pub chosen: bool,
    /// Hosts that were left out then, folded.
    pub left_out: String,
    /// What logs in to them.
    pub login: String,
}

impl SessionInfo {
    /// From its bytes.
    ///
    /// # Errors
    /// When the bytes are not JSON of this form.
    pub fn parse(bytes: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(bytes)
    }
}

/// A token, and where hosts come to with it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Issued {
    /// The secret.
    pub token: String,
    /// Host and port.
    pub join: String,
}

/// What is said to who asks for a token.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TokenAnswer {
    /// One was made.
    Issued(Issued),
    /// None was.
    Refused {
        /// Why.
        error: String,
    },
}

impl TokenAnswer {
    /// From its line.
    ///
    /// # Errors
    /// When the line is not JSON of this form.
    pub fn parse(line: &str) -> serde_json::Result<Self> {
        serde_json::from_str(line)
    }
}

/// How often a token is to be usable, from the line that asks for one.
pub fn uses(line: &str) -> Option<u32> {
    line.trim().parse().ok().filter(|uses| *uses > 0)
}
