//! What a session and its clients say to each other beside the frames of the tree, as JSON.
use serde::{Deserialize, Serialize};

/// What a session tells its clients of itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct About {
    pub cluster: String,
    pub hosts: String,
    pub launch: String,
    pub tree: String,
    pub export: String,
    pub pid: u32,
    /// Seconds since 1970.
    pub since: u64,
    /// Connections that the root did not let in: why, and how often.
    #[serde(default)]
    pub refused: Vec<(String, u64)>,
}

impl About {
    /// From its bytes.
    pub fn parse(bytes: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(bytes)
    }
}

/// A token, and where hosts come to with it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Issued {
    pub token: String,
    pub join: String,
}

/// What is said to who asks for a token.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Answer {
    Issued(Issued),
    Refused { error: String },
}

impl Answer {
    /// From its line.
    pub fn parse(line: &str) -> serde_json::Result<Self> {
        serde_json::from_str(line)
    }
}

/// How often a token is to be usable, from the line that asks for one.
pub fn uses(line: &str) -> Option<u32> {
    line.trim().parse().ok().filter(|uses| *uses > 0)
}
