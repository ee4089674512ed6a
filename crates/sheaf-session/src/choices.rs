//! What a caller chooses, whatever a file says: a cluster, its hosts, how it is started. To the
//! binary these are the options of the command line, by whose names messages call them.
use crate::config::{Launch, LinkChoice};
use std::path::PathBuf;
use std::time::Duration;

/// What is chosen; nothing, to begin with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choices {
    /// The cluster of `sheaf.toml`.
    pub cluster: Option<String>,
    /// The file to read in place of the `sheaf.toml` that would be found.
    pub config: Option<PathBuf>,
    /// So many servers inside this process, called n1, n2, …
    pub embedded: Option<u32>,
    /// So many server processes of this machine, called n1, n2, …
    pub processes: Option<u32>,
    /// Host sets: the hosts to work on.
    pub on_hosts: Vec<String>,
    /// Host sets: hosts that are left out.
    pub exclude_hosts: Vec<String>,
    /// How servers are started.
    pub launch: Option<Launch>,
    /// Whom ssh logs in as.
    pub user: Option<String>,
    /// Servers are started through `sudo -n`.
    pub sudo: bool,
    /// The directory that each server serves; `%h` stands for the host's name.
    pub export: Option<String>,
    /// The shape of the tree.
    pub tree: Option<String>,
    /// A host set: where the nodes between root and leaves run.
    pub inner_hosts: Option<String>,
    /// What joins nodes.
    pub link: Option<LinkChoice>,
    /// The running session of this name.
    pub session: Option<String>,
    /// The session is to begin: its name says nothing of its hosts.
    pub begins: bool,
    /// How long everything may take.
    pub timeout: Option<Duration>,
}
