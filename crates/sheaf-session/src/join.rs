//! Joining a session that runs.
use crate::config::{Config, some_of};
use crate::error::SessionError;
use crate::gates::GateSocket;
use crate::session::{Lookup, Session};
use crate::sessions::{is_name, peer};
use crate::start::limits;
use crate::wire::SessionInfo;
use rustix::process::Pid;
use sheaf_group::Client;
use sheaf_tree::filter::Registry;
use sheaf_tree::launch;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// [`Session::find`].
pub fn find(config: Config, filters: &Registry) -> Result<Lookup, SessionError> {
    let (stream, gate) = match open(&config)? {
        Some(stream) => (stream, None),
        None => match through_gate(&config)? {
            Some((stream, gate)) => (stream, Some(gate)),
            None if config.session.is_some() => {
                let (name, start) = (config.session_name(), config.start_words());
                return Err(config.sessions().absent_and(name, None, &start));
            }
            None => return Ok(Lookup::Nothing(Box::new(config))),
        },
    };
    join(config, stream, gate, filters).map(|session| Lookup::Session(Box::new(session)))
}

/// [`Session::here`].
pub fn here(config: Config, filters: &Registry) -> Result<Session, SessionError> {
    match through_gate(&config)? {
        Some((stream, gate)) => join(config, stream, Some(gate), filters),
        None => Err(SessionError::Absent("no session has a server on this host".to_owned())),
    }
}

/// Joins what is at the other end, which may be the gate of this host.
fn join(
    mut config: Config,
    stream: UnixStream,
    gate: Option<GateSocket>,
    filters: &Registry,
) -> Result<Session, SessionError> {
    if let Some(gate) = &gate {
        config.session = Some(gate.session.clone());
    }
    let name = config.session_name();
    let pid = peer(&stream)?;
    let joined = match launch::join(OwnedFd::from(stream), filters) {
        Ok(joined) => joined,
        Err(error) if gate.is_some() => {
            let text =
                format!("session {name}: the server of this host gives no way to it: {error}");
            return Err(SessionError::Unresponsive(text));
        }
        Err(_) if !config.sessions().is_running(name) => {
            let text = format!("session {name} is ending, and takes in nobody any more");
            return Err(SessionError::Unresponsive(text));
        }
        Err(error) => {
            let text = format!("session {name}: {}", not_greeted(pid, &error));
            return Err(SessionError::Unresponsive(text));
        }
    };
    let about = SessionInfo::parse(&joined.about).map_err(|source| SessionError::Protocol {
        what: "the session does not say what it is".to_owned(),
        source,
    })?;
    config.use_topology(&joined.topology);
    let client = Client::new(joined.network, joined.topology.leaf_hosts(), limits(&config))?;
    let gate = gate.map(|gate| gate.host);
    let by = gate.as_ref().map(|host| format!(" by way of {host}")).unwrap_or_default();
    tracing::info!(
        "session {} is joined{by}: {} hosts",
        config.session_name(),
        joined.topology.leaves_len()
    );
    Ok(Session { client, config, topology: joined.topology, desk: None, about: Some(about), gate })
}

/// Connects to the session that is meant; `None` when there is none to be asked, and need not be.
fn open(config: &Config) -> Result<Option<UnixStream>, SessionError> {
    let (asked, name) = (config.session.is_some(), config.session_name());
    // A cluster may be called as no session is; one of its own has another name then.
    if !asked && !is_name(name) {
        return Ok(None);
    }
    // What a running session cannot heed, whoever has not asked for one gets from a tree of their
    // own.
    if !asked
        && (config.is_ad_hoc() || config.says_login().is_some() || config.says_start().is_some())
    {
        return Ok(None);
    }
    if let Some(option) = config.says_login() {
        let text = format!("session {name}: {option} is said when it is started");
        return Err(SessionError::Choice(text));
    }
    let Some(stream) = config.sessions().open(name)? else { return Ok(None) };
    if let Some(option) = config.says_start() {
        let text = format!(
            "session {name}: {option} says nothing to a running session; it is said when that is started"
        );
        return Err(SessionError::Choice(text));
    }
    Ok(Some(stream))
}

/// Connects to the gate of this host, where it is one of a session that is meant, or none in
/// particular is.
fn through_gate(config: &Config) -> Result<Option<(UnixStream, GateSocket)>, SessionError> {
    let asked = config.session.is_some();
    if !asked && config.is_ad_hoc() {
        return Ok(None);
    }
    // Where nothing says what is meant, it is the session that this host is in.
    let any = !asked && config.is_this_machine();
    let gates =
        config.gates()?.into_iter().filter(|gate| any || gate.session == config.session_name());
    let (mut open, mut failed) = (Vec::<(UnixStream, GateSocket)>::new(), None);
    for gate in gates {
        // Several hosts may be on one machine: one way to a session is enough.
        if open.iter().any(|(_, other)| other.session == gate.session) {
            continue;
        }
        match gate.connect() {
            Ok(stream) => open.extend(stream.map(|stream| (stream, gate))),
            Err(error) => drop(failed.get_or_insert(error)),
        }
    }
    if let [_, _, ..] = open[..] {
        let text = format!(
            "this host is in several sessions: {}; say which with --session",
            some_of(open.iter().map(|(_, gate)| &gate.session))
        );
        return Err(SessionError::Choice(text));
    }
    match (open.pop(), failed) {
        (Some((stream, gate)), _) => match config.says_login().or(config.says_start()) {
            Some(option) => {
                let text =
                    format!("session {}: {option} says nothing to a running session", gate.session);
                Err(SessionError::Choice(text))
            }
            None => Ok(Some((stream, gate))),
        },
        (None, Some(error)) if asked => Err(error),
        (None, Some(error)) => {
            tracing::warn!(%error, "the gates of this host are not used");
            Ok(None)
        }
        (None, None) => Ok(None),
    }
}

/// Why a session's process has not let us in.
fn not_greeted(pid: Pid, error: &launch::ServeError) -> String {
    let late = matches!(error, launch::ServeError::Link(error)
        if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
    if late { silent_process(pid, launch::GREETING_TIMEOUT) } else { error.to_string() }
}

fn silent_process(pid: Pid, after: Duration) -> String {
    let pid = pid.as_raw_nonzero();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    let why = match state {
        Some('T' | 't') => format!("it is stopped; kill -CONT {pid} lets it go on"),
        _ => "it hangs, or has too much to do".to_owned(),
    };
    format!("its process {pid} has not answered within {} s: {why}", after.as_secs())
}
