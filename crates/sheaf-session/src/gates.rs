//! The gates of a session: sockets on its hosts, by which its user's programs there are clients of
//! it.
//!
//! A gate is `SESSION@HOST.gate` beside the sockets of the user's own sessions. Hosts have them as
//! soon as a session stays and has servers on other machines; whoever connects proves by the kernel
//! who he is, and needs neither a configuration nor a second login.
use crate::config::{Config, own_name};
use crate::environment::Environment;
use crate::error::SessionError;
use crate::keep::{bind, prepare};
use crate::sessions::{Sessions, is_name};
use sheaf_tree::service::{Configs, Services, Site};
use sheaf_tree::{GATE, Listener};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// What the file of a gate is called.
const GATE_FILE: &str = "gate";

/// The longest name of a host in the name of a gate's file; longer ones are cut.
const HOST_BYTES_MAX: usize = 32;

/// What servers of the session of this name are told, so that they have gates.
#[must_use]
pub fn config(session: &str) -> Configs {
    [(GATE.to_owned(), session.as_bytes().to_vec())].into()
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

/// Opens the gate of a host; `None` where the session has none.
fn open(site: &Site<'_>, environment: &Environment) -> Result<Option<Listener>, SessionError> {
    if site.config.is_empty() {
        return Ok(None);
    }
    let name = std::str::from_utf8(site.config).ok().filter(|name| is_name(name));
    let no_name = || SessionError::Name("its root says no name of a session".to_owned());
    let name = name.ok_or_else(no_name)?;
    let sessions = Sessions::of(environment);
    prepare(&sessions)?;
    let path = sessions.directory().join(format!("{name}@{}.{GATE_FILE}", short(site.host)));
    let socket = bind(&path)?;
    Ok(Some(Listener { socket, path }))
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
    let own = short(&own_name());
    gates.sort_by_cached_key(|gate| (gate.session.clone(), gate.host != own, gate.host.clone()));
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
