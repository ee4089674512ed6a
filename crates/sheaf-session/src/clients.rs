//! The hosts of a session on which programs are clients, and the rights of these clients.
//!
//! Only the machine that started a session commands it, unless its configuration names hosts
//! (`clients`). The root decides by the host on which a client entered, which it knows from the
//! tree, and sends the rights along with each request. The server that is asked enforces them.
use crate::audit::{AuditMode, RootAudit};
use crate::config::{Cluster, Config, Launch, Sourced, own_name};
use crate::error::SessionError;
use crate::users::Users;
use sheaf_core::RangeSet;
use sheaf_tree::service::ClientRights;
use sheaf_tree::{ClientRules, EveryHost, HostClient};
use std::sync::Arc;

/// The word for no host: only the machine that started the session commands it.
const HEAD: &str = "head";
/// The word for every host of the session.
const HOSTS: &str = "hosts";

/// What clients may do with files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientsMay {
    /// Read them.
    #[default]
    Read,
    /// Read and change them.
    Write,
}

impl ClientsMay {
    /// Both, by their names in `sheaf.toml`.
    pub const NAMES: [(&'static str, Self); 2] = [("read", Self::Read), ("write", Self::Write)];

    /// Its name in `sheaf.toml`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// What a cluster's section says of clients on its hosts.
#[derive(Clone, Debug, Default)]
pub struct ClientSettings {
    /// `head`, `hosts` or a host set.
    pub clients: Option<Sourced<String>>,
    /// What they may do.
    pub clients_may: Option<Sourced<ClientsMay>>,
    /// Whether root of one of these hosts is root on the others.
    pub clients_root: Option<Sourced<bool>>,
    /// Where the audit goes.
    pub audit: Option<Sourced<AuditMode>>,
}

impl ClientSettings {
    /// The hosts that have clients, in the words of the file.
    #[must_use]
    pub fn hosts(&self) -> &str {
        self.clients.as_ref().map_or(HEAD, |clients| clients.value.trim())
    }

    /// The host set of `clients`, where it is one and not a word.
    pub(crate) fn host_set(&self) -> Option<&Sourced<String>> {
        self.clients.as_ref().filter(|_| ![HEAD, HOSTS].contains(&self.hosts()))
    }

    /// Where the audit goes: to the log where several hosts have clients, unless the file says more.
    #[must_use]
    pub fn audit(&self) -> AuditMode {
        let default = if self.hosts() == HEAD { AuditMode::Off } else { AuditMode::Log };
        self.audit.as_ref().map_or(default, |audit| audit.value)
    }

    /// The rights of clients on these hosts.
    #[must_use]
    pub fn rights(&self) -> ClientRights {
        let may = self.clients_may.as_ref().map(|may| may.value).unwrap_or_default();
        ClientRights {
            may_write: may == ClientsMay::Write,
            may_be_root: self.clients_root.as_ref().is_some_and(|root| root.value),
        }
    }
}

/// Checks the settings of clients before anything starts.
///
/// # Errors
/// As [`rules`].
pub(crate) fn check(config: &Config) -> Result<(), SessionError> {
    let audit = RootAudit::new(config.session_name(), AuditMode::Off);
    rules(config, &Arc::new(audit)).map(drop)
}

/// The rules of a session of this configuration.
///
/// # Errors
/// When `clients` is not a host set, names other hosts than the session's, or is missing where
/// `users` needs it.
pub(crate) fn rules(
    config: &Config,
    audit: &Arc<RootAudit>,
) -> Result<Arc<dyn ClientRules>, SessionError> {
    // All nodes are processes of this machine and user, which have the session's own socket.
    if matches!(config.launch(), Launch::Embedded | Launch::Processes) {
        return Ok(Arc::new(EveryHost));
    }
    let cluster = &config.cluster;
    let (settings, users) = (&cluster.client_settings, cluster.users.as_ref());
    let leaves = leaves(config)?;
    if let Some(why) = users_without_clients(cluster) {
        return Err(SessionError::Choice(format!("cluster {}: {why}", cluster.name.value)));
    }
    Ok(Arc::new(SessionRules {
        session: config.session_name().to_owned(),
        cluster: cluster.name.value.clone(),
        head: own_name(),
        said: settings.hosts().to_owned(),
        leaves,
        rights: settings.rights(),
        users: users.map(|users| users.value.clone()),
        audit: Arc::clone(audit),
    }))
}

/// Why the users that the cluster names could enter on no host.
pub(crate) fn users_without_clients(cluster: &Cluster) -> Option<String> {
    let users = cluster.users.as_ref()?;
    (cluster.client_settings.hosts() == HEAD).then(|| {
        format!(
            "users = \"{}\" needs clients: other users enter a session on its hosts only; add \
             clients = \"{HOSTS}\", or a host set",
            users.value
        )
    })
}

/// The leaves of the hosts that have clients.
fn leaves(config: &Config) -> Result<RangeSet, SessionError> {
    let hosts = config.hosts()?;
    let settings = &config.cluster.client_settings;
    let Some(said) = &settings.clients else { return Ok(RangeSet::new()) };
    match settings.hosts() {
        HEAD => return Ok(RangeSet::new()),
        HOSTS => return Ok(RangeSet::full(hosts.len())),
        _ => {}
    }
    let named = config.find_hosts_of(said, "clients")?;
    let (known, unknown): (Vec<_>, Vec<_>) = named
        .names()
        .iter()
        .map(|name| (name, hosts.leaf(name)))
        .partition(|(_, leaf)| leaf.is_some());
    // Where some hosts of a cluster were chosen, the others have no part in the session.
    if let Some((name, _)) = unknown.first().filter(|_| !config.has_chosen_hosts()) {
        let cluster = &config.cluster.name.value;
        return Err(SessionError::UnknownHosts(format!(
            "clients = {:?}: {name} is not a host of cluster {cluster}",
            said.value
        )));
    }
    Ok(known.into_iter().filter_map(|(_, leaf)| leaf).collect())
}

struct SessionRules {
    session: String,
    cluster: String,
    head: String,
    /// `clients`, as the file has it.
    said: String,
    leaves: RangeSet,
    rights: ClientRights,
    users: Option<Users>,
    audit: Arc<RootAudit>,
}

impl SessionRules {
    fn judge(&self, client: &HostClient<'_>) -> Result<ClientRights, String> {
        let (session, host) = (&self.session, client.host);
        if !self.leaves.contains(client.leaf) {
            let (said, head, cluster) = (&self.said, &self.head, &self.cluster);
            return Err(format!(
                "session {session} takes no commands from {host} (EPERM), as clients = {said:?}: \
                 type it on {head}, or add {host} to clients in [cluster.{cluster}] there and start \
                 the session again; --embedded 1 means this host alone"
            ));
        }
        if client.is_owner {
            return Ok(self.rights);
        }
        let uid = client.uid;
        let is_named = match &self.users {
            Some(Users::Any) => true,
            Some(Users::These(uids)) => uids.contains(&uid),
            None => false,
        };
        if !is_named {
            return Err(format!(
                "session {session} admits no user {uid} (EPERM): users does not name it"
            ));
        }
        let is_root = uid == 0 || client.gid == 0 || client.gids.contains(&0);
        if is_root && !self.rights.may_be_root {
            return Err(format!(
                "session {session} admits no process of {host} with root's user or group (EPERM), \
                 without clients_root = true"
            ));
        }
        Ok(self.rights)
    }
}

impl ClientRules for SessionRules {
    fn admit(&self, client: &HostClient<'_>) -> Result<ClientRights, String> {
        let judged = self.judge(client);
        let (uid, host) = (client.uid, client.host);
        match &judged {
            Ok(ClientRights { may_write, may_be_root }) => {
                let may = if *may_write { "may write" } else { "may read" };
                let root = if uid == 0 && !may_be_root { ", not as root" } else { "" };
                let line = format!("client: user {uid} on {host}: admitted, {may}{root}");
                self.audit.write_admission(&line);
            }
            Err(why) => {
                let line = format!("client: user {uid} on {host}: refused: {why}");
                self.audit.write_refusal(&line);
            }
        }
        judged
    }

    fn introduce(&self, leaf: u32) -> Option<ClientRights> {
        self.leaves.contains(leaf).then_some(self.rights)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(users: Option<Users>, rights: ClientRights) -> SessionRules {
        SessionRules {
            session: "lab".to_owned(),
            cluster: "lab".to_owned(),
            head: "login".to_owned(),
            said: "n[2-3]".to_owned(),
            leaves: RangeSet::from_range(1, 3),
            rights,
            users,
            audit: Arc::new(RootAudit::new("lab", AuditMode::Off)),
        }
    }

    fn client(leaf: u32, uid: u32, gids: &[u32], is_owner: bool) -> HostClient<'_> {
        let host = ["n1", "n2", "n3"][leaf as usize];
        HostClient { leaf, host, uid, gid: uid, gids, is_owner }
    }

    #[test]
    fn host_that_is_not_among_the_clients_is_refused_by_name() {
        let rules = rules(None, ClientRights::default());
        let why = rules.admit(&client(0, 7, &[], true)).unwrap_err();
        assert_eq!(
            why,
            "session lab takes no commands from n1 (EPERM), as clients = \"n[2-3]\": type it on \
             login, or add n1 to clients in [cluster.lab] there and start the session again; \
             --embedded 1 means this host alone"
        );
        assert_eq!(rules.introduce(0), None);
        assert_eq!(rules.admit(&client(1, 7, &[], true)), Ok(ClientRights::default()));
        assert_eq!(rules.introduce(2), Some(ClientRights::default()));
    }

    #[test]
    fn user_that_a_host_claims_has_to_be_named() {
        let write = ClientRights { may_write: true, may_be_root: false };
        let these = rules(Some(Users::These(vec![7, 0])), write);
        assert_eq!(these.admit(&client(1, 7, &[8], false)), Ok(write));
        for (uid, gids) in [(8, &[][..]), (0, &[]), (7, &[0])] {
            let why = these.admit(&client(1, uid, gids, false)).unwrap_err();
            assert!(why.contains("(EPERM)"), "{why}");
        }
        assert!(rules(None, write).admit(&client(1, 7, &[], false)).is_err());
        let any = rules(Some(Users::Any), ClientRights::FULL);
        assert_eq!(any.admit(&client(1, 0, &[], false)), Ok(ClientRights::FULL));
    }
}
