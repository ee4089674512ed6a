//! Sessions that this host is in and another one keeps: they are ended, and tokens for them made,
//! where they were started, and none that begins here is to be taken for one of them.
use crate::exit::Stop;
use crate::options::GlobalArgs;
use crate::session::{config, runtime};
use anyhow::Result;
use sheaf_session::config::Config;
use sheaf_session::{Environment, Session, SessionError, Sessions, gates};
use std::time::{Duration, Instant};

/// How long servers of a session that has ended may still be about.
const ENDING_TIME: Duration = Duration::from_secs(2);
const ENDING_LOOK: Duration = Duration::from_millis(20);

/// What is to be said of the session that is meant, where this host is in it and another one keeps
/// it: that, and that `sheaf COMMAND NAME` is for that one. `said`: the name that was given; without
/// one and without a word of hosts any session that this host is in may be meant.
pub fn refusal(said: Option<&str>, command: &str, global: &GlobalArgs) -> Result<Option<Stop>> {
    let here = gates::here(&Environment::of_this_process())?;
    let name = match said.or(global.session.as_deref()) {
        Some(name) => name.to_owned(),
        None => {
            let config = config(global)?;
            match &here[..] {
                [one] if config.is_this_machine() => one.clone(),
                [_, _, ..] if config.is_this_machine() => {
                    let text = format!(
                        "this host is in several sessions, which others keep: {}; type where one \
                         was started: sheaf {command} NAME",
                        here.join(", ")
                    );
                    return Ok(Some(Stop::usage(text)));
                }
                _ => config.session_name().to_owned(),
            }
        }
    };
    if !here.contains(&name) {
        return Ok(None);
    }
    let place = place(&name, join(&name)?.ok().as_ref());
    Ok(Some(Stop::usage(format!("{place}; type there: sheaf {command} {name}"))))
}

/// That no session that this host is in would be hidden by the one of this configuration, or taken
/// for it.
///
/// # Errors
/// When one would.
pub fn check_start(config: &Config) -> Result<()> {
    let (environment, name) = (config.environment(), config.session_name());
    // Whoever runs it here is told by other means.
    if Sessions::of(environment).is_running(name) {
        return Ok(());
    }
    if let Some((place, _)) = found(name, environment)? {
        let text = format!(
            "{place}; type there: sheaf down {name}, or name another with --session: one that \
             begins here would hide it"
        );
        return Err(SessionError::Taken(text).into());
    }
    if !config.says_nothing() {
        return Ok(());
    }
    for other in gates::here(environment)? {
        if Sessions::of(environment).is_running(&other) {
            continue;
        }
        if let Some((place, host)) = found(&other, environment)? {
            let file = config.silent_file().map(|file| file + ", and ").unwrap_or_default();
            let host = host.unwrap_or_else(|| "this host".to_owned());
            let text = format!(
                "{file}{place}; {host} is in it: say which hosts another is to have with -w HOSTS, \
                 or --embedded 1 for this host alone"
            );
            return Err(Stop::usage(text).into());
        }
    }
    Ok(())
}

/// Where a session is kept that this host is in, and what it calls this host; `None` of one that
/// has ended, whose servers may be about for a moment.
fn found(name: &str, environment: &Environment) -> Result<Option<(String, Option<String>)>> {
    let end = Instant::now() + ENDING_TIME;
    while gates::here(environment)?.iter().any(|here| here == name) {
        let joined = join(name)?;
        let is_refused = matches!(joined, Err(SessionError::Refused(_)));
        if joined.is_ok() || is_refused || Instant::now() >= end {
            let session = joined.ok();
            let host = session.as_ref().and_then(|session| session.gate().map(ToOwned::to_owned));
            return Ok(Some((place(name, session.as_ref()), host)));
        }
        std::thread::sleep(ENDING_LOOK);
    }
    Ok(None)
}

/// Joins a session to ask who keeps it.
fn join(name: &str) -> Result<Result<Session, SessionError>> {
    let environment = Environment::of_this_process();
    let runtime = runtime()?;
    let joined = runtime.block_on(Session::join(&environment, name));
    runtime.shutdown_background();
    Ok(joined)
}

/// Who keeps a session, if it says so.
fn place(name: &str, session: Option<&Session>) -> String {
    let keeper = session.and_then(Session::kept_by).unwrap_or("another machine");
    format!("session {name} is kept by {keeper}, where it was started")
}
