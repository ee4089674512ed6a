//! The rules by which the root admits clients on the hosts of its session.
use crate::service::ClientRights;

/// A client that asks to enter a session on one of its hosts.
///
/// The root knows `leaf` and `host` from the tree. The rest is the word of the server on that host,
/// which may be compromised.
#[derive(Debug, Clone, Copy)]
pub struct HostClient<'a> {
    /// The leaf of the host.
    pub leaf: u32,
    /// The host.
    pub host: &'a str,
    /// The user of the client's process.
    pub uid: u32,
    /// Its primary group.
    pub gid: u32,
    /// Its other groups.
    pub gids: &'a [u32],
    /// The server of that host runs as this user.
    pub is_owner: bool,
}

/// Decides at the root which clients enter on hosts, and with which rights.
pub trait ClientRules: Send + Sync {
    /// The rights of a client that asks to enter.
    ///
    /// # Errors
    /// Why it may not: a line of text that the client prints.
    fn admit(&self, client: &HostClient<'_>) -> Result<ClientRights, String>;

    /// The rights with which the server of this leaf asks other servers for files; `None` if it
    /// may not ask them.
    fn introduce(&self, leaf: u32) -> Option<ClientRights>;
}

/// Gives every host all rights. For trees whose nodes are all processes of one machine and user.
#[derive(Debug, Clone, Copy, Default)]
pub struct EveryHost;

impl ClientRules for EveryHost {
    fn admit(&self, _: &HostClient<'_>) -> Result<ClientRights, String> {
        Ok(ClientRights::FULL)
    }

    fn introduce(&self, _: u32) -> Option<ClientRights> {
        Some(ClientRights::FULL)
    }
}
