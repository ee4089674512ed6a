//! A session, from the side of who started or joined it.
use crate::address::{Address, Purpose};
use crate::builder::SessionBuilder;
use crate::config::Config;
use crate::environment::Environment;
use crate::error::SessionError;
use crate::join;
use crate::wire::SessionInfo;
use sheaf_core::hostset::HostSet;
use sheaf_group::{Client, Target};
use sheaf_tree::filter::Registry;
use sheaf_tree::launch::Desk;
use sheaf_tree::service::ClientRights;
use sheaf_tree::topology::Topology;
use std::ffi::OsStr;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How long the processes of a session have to end once the time of whoever started it is over.
const END_TIME: Duration = Duration::from_millis(700);

/// A running tree with its hosts, started for whoever has this or joined.
///
/// One that was started ends with [`Session::end`], or some time after it was dropped; one that was
/// joined goes on.
pub struct Session {
    pub(crate) client: Client,
    pub(crate) config: Config,
    pub(crate) topology: Topology,
    pub(crate) desk: Option<Arc<Desk>>,
    /// What it says of itself, if it was joined.
    pub(crate) about: Option<SessionInfo>,
    /// The host by whose server it was joined.
    pub(crate) gate: Option<String>,
    /// It is another user's.
    pub(crate) is_guest: bool,
}

/// What there is of the session that a configuration means.
#[derive(Debug)]
pub enum Lookup {
    /// It runs, and was joined.
    Session(Box<Session>),
    /// It does not run, and nobody has asked for it by name: the configuration, to start it.
    Nothing(Box<Config>),
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("name", &self.name())
            .field("hosts", self.hosts())
            .field("is_own", &self.is_own())
            .finish_non_exhaustive()
    }
}

/// The machine and the process of a session's root, and when it began; nothing of one that this process has started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionIdentity(Option<(String, u32, u64)>);

impl Session {
    /// Begins to say which session to start.
    #[must_use]
    pub fn builder(environment: &Environment) -> SessionBuilder {
        SessionBuilder::new(environment)
    }

    /// Joins a session that runs, such as one that `sheaf up` has started, as its user.
    ///
    /// # Errors
    /// [`SessionError::Absent`] when it does not run, [`SessionError::Foreign`] when somebody
    /// else's process is in its place, [`SessionError::Unresponsive`] when it does not answer.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn join(environment: &Environment, name: &str) -> Result<Self, SessionError> {
        Self::builder(environment).join(name).await
    }

    /// Joins the session whose server runs on this host, as its user: without a configuration, and
    /// without a login. Where several have one here, [`Session::join`] takes the name of one.
    ///
    /// # Errors
    /// [`SessionError::Absent`] when none is here; as [`Session::join`].
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn here(environment: &Environment) -> Result<Self, SessionError> {
        Self::builder(environment).here().await
    }

    /// The host by whose server it was joined; `None` where that was done at its root.
    #[must_use]
    pub fn gate(&self) -> Option<&str> {
        self.gate.as_deref()
    }

    /// Whether it is root's session, and this user is one whom it lets in.
    #[must_use]
    pub fn is_guest(&self) -> bool {
        self.is_guest
    }

    /// The rights of this client: all of them unless it has joined on a host of the session.
    #[must_use]
    pub fn rights(&self) -> ClientRights {
        let about = self.about.as_ref();
        ClientRights {
            may_write: about.is_none_or(|about| !about.read_only),
            may_be_root: about.is_none_or(|about| !about.no_root),
        }
    }

    /// What tells it from others, also from one of its name that begins when it has ended.
    #[must_use]
    pub fn identity(&self) -> SessionIdentity {
        let about = self.about.as_ref();
        SessionIdentity(about.map(|about| (about.kept_by.clone(), about.pid, about.since)))
    }

    /// The machine of its root, as that calls itself; `None` of one that was started here.
    #[must_use]
    pub fn kept_by(&self) -> Option<&str> {
        let about = self.about.as_ref()?;
        Some(about.kept_by.as_str()).filter(|name| !name.is_empty())
    }

    /// Joins the session that the configuration means, if it runs, with these filters; that it
    /// greets is waited for here, for [`sheaf_tree::launch::GREETING_TIMEOUT`] at most. One that
    /// was chosen by its name must run.
    ///
    /// # Errors
    /// As [`Session::join`], and [`SessionError::Choice`] when something was chosen that only a
    /// session that is started can heed.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn find(config: Config, filters: &Registry) -> Result<Lookup, SessionError> {
        join::find(config, filters)
    }

    /// Lets whatever is done in it take as long as it likes from now on.
    pub fn lift_deadline(&mut self) {
        self.config.deadline = None;
        self.client = self.client.with_limits(self.client.limits().with_deadline(None));
    }

    /// What sends requests to its hosts.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The configuration that it was started or joined with.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Its name, as `sheaf up` and `--session` take it.
    #[must_use]
    pub fn name(&self) -> &str {
        self.config.session_name()
    }

    /// Its hosts.
    #[must_use]
    pub fn hosts(&self) -> &HostSet {
        self.client.hosts()
    }

    /// Its tree, as it was planned.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Where hosts that come by themselves are taken in: at the root of a session that has other
    /// machines.
    #[must_use]
    pub fn desk(&self) -> Option<&Arc<Desk>> {
        self.desk.as_ref()
    }

    /// What it said of itself when it was joined; `None` for one that was started here.
    #[must_use]
    pub fn about(&self) -> Option<&SessionInfo> {
        self.about.as_ref()
    }

    /// Whether it was started for whoever has this, and ends with it.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.about.is_none()
    }

    /// The hosts and the path of an address such as `n[1-4]:/etc/*.conf`, to read it.
    ///
    /// # Errors
    /// When it is none, or names other hosts.
    pub fn address(&self, text: impl AsRef<OsStr>) -> Result<Target, SessionError> {
        self.address_for(text, Purpose::Read)
    }

    /// The hosts and the path of an address, for what is to be done with it.
    ///
    /// # Errors
    /// When it is none, names other hosts, or names none where something is to be changed.
    pub fn address_for(
        &self,
        text: impl AsRef<OsStr>,
        purpose: Purpose,
    ) -> Result<Target, SessionError> {
        Address::parse(text.as_ref())?.resolve(&self.config, purpose)
    }

    /// Ends it, if it was started for whoever has this, and waits for its processes to end: as long
    /// as the configuration's deadline leaves, if it has one. One that was joined is left.
    pub async fn end(self) {
        if !self.is_own() {
            return;
        }
        let ended = self.client.network().clone().shutdown();
        match self.config.deadline {
            // Processes that take longer end by themselves.
            Some(deadline) => {
                drop(tokio::time::timeout_at((deadline + END_TIME).into(), ended).await)
            }
            None => ended.await,
        }
    }
}
