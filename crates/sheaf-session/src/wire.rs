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
    /// Its process.
    pub pid: u32,
    /// Seconds since 1970.
    pub since: u64,
    /// Connections that the root did not let in: why, and how often.
    #[serde(default)]
    pub refused: Vec<(String, u64)>,
    /// Hosts that programs there cannot use the session from, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shut: Vec<(String, String)>,
    /// When what its tree has noticed so far happened, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub event_times: Vec<u64>,
}

impl SessionInfo {
    /// From its bytes.
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
    pub fn parse(line: &str) -> serde_json::Result<Self> {
        serde_json::from_str(line)
    }
}

/// How often a token is to be usable, from the line that asks for one.
pub fn uses(line: &str) -> Option<u32> {
    line.trim().parse().ok().filter(|uses| *uses > 0)
}
