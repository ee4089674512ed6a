//! The gates of a session: sockets on its hosts, by which its user's programs there are clients of
//! it.
//!
//! A gate is `SESSION@HOST.gate` beside the sockets of the user's own sessions. Hosts have them as
//! soon as a session stays and has servers on other machines; whoever connects proves by the kernel
//! who he is, and needs neither a configuration nor a second login.
//!
//! Servers that run as root have gates for other users, too, where the session's configuration
//! names these (`users`): below `/run/sheaf`, a directory for each user, or one for all. What such a
//! user's programs ask for is done with that user's rights.
use crate::config::{Config, own_name};
use crate::environment::Environment;
use crate::error::SessionError;
use crate::keep::{bind, prepare};
use crate::sessions::{Sessions, is_name};
use crate::users::{SHARED, Users, shared_with};
use sheaf_tree::service::{Configs, Services, Site};
use sheaf_tree::{Admits, GATE, Listener};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// What the file of a gate is called.
const GATE_FILE: &str = "gate";

/// The longest name of a host in the name of a gate's file; longer ones are cut.
const HOST_BYTES_MAX: usize = 32;

/// What servers of the session of this name are told, so that they have gates.
#[must_use]
pub fn config(session: &str, users: Option<&Users>) -> Configs {
    let users = users.map(|users| format!("\0{users}")).unwrap_or_default();
    [(GATE.to_owned(), format!("{session}{users}").into_bytes())].into()
}

/// `services` with the gate of a host, for a server that runs in this environment.
#[must_use]
pub fn register(services: Services, environment: &Environment) -> Services {
    let environment = environment.clone();
    let open = move |site: &Site<'_>| {
        open(site, &environment).map_err(|error| io::Error::other(error.to_string()))
    };
    services.with(GATE, sheaf_tree::Gate::new(open))
}

/// Opens the gates of a host; none where the session has none.
fn open(site: &Site<'_>, environment: &Environment) -> Result<Vec<Listener>, SessionError> {
    if site.config.is_empty() {
        return Ok(Vec::new());
    }
    let config = std::str::from_utf8(site.config).unwrap_or_default();
    let (name, users) = config.split_once('\0').unwrap_or((config, ""));
    if !is_name(name) {
        return Err(SessionError::Name("its root says no name of a session".to_owned()));
    }
    let sessions = Sessions::of(environment);
    prepare(&sessions)?;
    let file = format!("{name}@{}.{GATE_FILE}", short(site.host));
    let path = sessions.directory().join(&file);
    let socket = bind(&path)?;
    let mut gates = vec![Listener { socket, path, admits: Admits::Own }];
    if !users.is_empty() {
        match users.parse::<Users>().map_err(SessionError::Name).and_then(|users| users.open(&file))
        {
            Ok(more) => gates.extend(more),
            Err(error) => tracing::warn!(host = site.host, %error, "no other users can come here"),
        }
    }
    Ok(gates)
}

/// The name of a host as part of a file's name.
fn short(host: &str) -> String {
    host.chars()
        .filter(|c| c.is_ascii_alphanumeric() || "._-".contains(*c))
        .take(HOST_BYTES_MAX)
        .collect()
}

/// A gate of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GateSocket {
    /// The name of the session.
    pub session: String,
    /// The host that it is for.
    pub host: String,
    path: PathBuf,
    sessions: Sessions,
}

impl GateSocket {
    /// Connects to it; `None` when nobody listens there any more, as after its server was killed.
    pub fn connect(&self) -> Result<Option<UnixStream>, SessionError> {
        self.sessions.connect(&self.path, &self.session)
    }

    /// That nobody listens there, though it is there: whose host this is must not be taken for a
    /// machine of its own.
    pub fn check_left(&self) -> Result<(), SessionError> {
        if std::fs::symlink_metadata(&self.path).is_err() {
            return Ok(());
        }
        let (session, path) = (&self.session, self.path.display());
        let who = if self.is_shared() { "have root remove" } else { "remove" };
        Err(SessionError::Absent(format!(
            "this host is in session {session}, whose server here is gone: name hosts with -w, or \
             {who} {path} if that session is over"
        )))
    }

    /// Whether it leads to a session of root's that lets this user in.
    pub fn is_shared(&self) -> bool {
        self.sessions.directory().starts_with(SHARED)
    }
}

/// The names of the sessions that have a server on this host, by which they can be joined.
///
/// # Errors
/// When the directory of sockets is not to be trusted, or cannot be read.
pub fn here(environment: &Environment) -> Result<Vec<String>, SessionError> {
    let mut names: Vec<String> = Vec::new();
    for gate in gates_in(environment)? {
        // What cannot be entered is none.
        if names.last() != Some(&gate.session) && matches!(gate.connect(), Ok(Some(_))) {
            names.push(gate.session);
        }
    }
    Ok(names)
}

/// Why sessions that this host is in cannot be joined here, for each whose server
/// is gone or takes nobody in.
///
/// # Errors
/// As [`here`].
pub fn gone(environment: &Environment) -> Result<Vec<(String, SessionError)>, SessionError> {
    let mut gone: Vec<(String, SessionError)> = Vec::new();
    for gate in gates_in(environment)? {
        let checked = gate.connect().and_then(|stream| match stream {
            Some(_) => Ok(()),
            None => gate.check_left(),
        });
        gone.extend(checked.err().map(|error| (gate.session, error)));
    }
    gone.dedup_by(|one, other| one.0 == other.0);
    let here = here(environment)?;
    gone.retain(|(name, _)| !here.contains(name));
    Ok(gone)
}

impl Config {
    /// [`gates_in`] the environment of whoever has this configuration.
    pub(crate) fn gates(&self) -> Result<Vec<GateSocket>, SessionError> {
        gates_in(self.environment())
    }
}

/// The gates here, which need not lead anywhere: where the caller's sessions have their sockets,
/// and where those of a server are that has another environment, as one has that was started over
/// ssh. Those of the host of this name come first.
fn gates_in(environment: &Environment) -> Result<Vec<GateSocket>, SessionError> {
    let own = Sessions::of(environment);
    let others = Sessions::temporary(environment);
    let mut gates = gates_of(&own)?;
    if others != own {
        // Anybody can make a directory there, which keeps nobody from anything.
        match gates_of(&others) {
            Ok(more) => gates.extend(more),
            Err(error) => tracing::warn!(%error, "gates there are not used"),
        }
    }
    for shared in shared_with(rustix::process::geteuid().as_raw()) {
        match gates_of(&shared) {
            Ok(more) => gates.extend(more),
            Err(error) => tracing::warn!(%error, "gates there are not used"),
        }
    }
    let own = short(&own_name());
    gates.sort_by_cached_key(|gate| {
        (gate.session.clone(), gate.is_shared(), gate.host != own, gate.host.clone())
    });
    Ok(gates)
}

fn gates_of(sessions: &Sessions) -> Result<Vec<GateSocket>, SessionError> {
    let mut gates = Vec::new();
    for path in sessions.files(GATE_FILE)? {
        let names =
            path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.rsplit_once('@'));
        let Some((session, host)) = names else { continue };
        let (session, host) = (session.to_owned(), host.to_owned());
        gates.push(GateSocket { session, host, path: path.clone(), sessions: sessions.clone() });
    }
    Ok(gates)
}
