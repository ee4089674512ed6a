//! Joining a session that runs.
use crate::config::Config;
use crate::error::SessionError;
use crate::session::{Found, Session};
use crate::sessions::{is_name, peer};
use crate::start::limits;
use crate::wire::About;
use rustix::process::Pid;
use sheaf_group::Client;
use sheaf_tree::filter::Registry;
use sheaf_tree::launch;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// [`Session::find`].
pub fn find(config: Config, filters: &Registry) -> Result<Found, SessionError> {
    let Some(stream) = open(&config)? else { return Ok(Found::Nothing(Box::new(config))) };
    let name = config.session_name();
    let pid = peer(&stream)?;
    let joined = match launch::join(OwnedFd::from(stream), filters) {
        Ok(joined) => joined,
        Err(_) if !config.sessions().is_running(name) => {
            let text = format!("session {name} is ending, and takes in nobody any more");
            return Err(SessionError::Unresponsive(text));
        }
        Err(error) => {
            let text = format!("session {name}: {}", not_greeted(pid, &error));
            return Err(SessionError::Unresponsive(text));
        }
    };
    let about = About::parse(&joined.about).map_err(|source| SessionError::Protocol {
        what: "the session does not say what it is".to_owned(),
        source,
    })?;
    config.use_topology(&joined.topology);
    let client = Client::new(joined.network, joined.topology.leaf_hosts(), limits(&config))?;
    let session = Session { client, config, topology: joined.topology, desk: None, about: Some(about) };
    Ok(Found::Session(Box::new(session)))
}

/// Connects to the session that is meant; `None` when there is none to be asked, and need not be.
fn open(config: &Config) -> Result<Option<UnixStream>, SessionError> {
    let (asked, name) = (config.session.is_some(), config.session_name());
    // A cluster may be called as no session is; one of its own has another name then.
    if !asked && !is_name(name) {
        return Ok(None);
    }
    // What a running session cannot heed, whoever has not asked for one gets from a tree of their own.
    if !asked && (config.is_ad_hoc() || config.says_login().is_some() || config.says_start().is_some()) {
        return Ok(None);
    }
    if let Some(option) = config.says_login() {
        let text = format!("session {name}: {option} is said when it is started");
        return Err(SessionError::Choice(text));
    }
    let Some(stream) = config.sessions().open(name)? else {
        return if asked {
            Err(config.sessions().absent_and(name, None, &config.start_words()))
        } else {
            Ok(None)
        };
    };
    if let Some(option) = config.says_start() {
        let text = format!(
            "session {name}: {option} says nothing to a running session; it is said when that is started"
        );
        return Err(SessionError::Choice(text));
    }
    Ok(Some(stream))
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
