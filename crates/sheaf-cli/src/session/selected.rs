//! The session that a command uses without naming one.
use crate::exit::Stop;
use crate::options::GlobalArgs;
use sheaf_session::{Environment, SESSION_VARIABLE, SessionError, Sessions, gates};
use std::io::IsTerminal;

/// The most sessions that are named.
const NAMED_MAX: usize = 4;

/// The options with the session of `$SHEAF_SESSION`, unless they say what is meant.
pub fn with_variable(global: &GlobalArgs, environment: &Environment) -> GlobalArgs {
    let mut global = global.clone();
    if !says_place(&global) {
        global.session = environment.session();
    }
    global
}

/// Refuses a variable that names no session: the command would mean this machine.
pub fn check(global: &GlobalArgs, environment: &Environment) -> Result<(), Stop> {
    if says_place(global) || !environment.has_empty_session() {
        return Ok(());
    }
    Err(Stop::usage(format!("{SESSION_VARIABLE} is empty: name a session in it, or unset it")))
}

/// Whether an option says which session, or which other tree, is meant.
fn says_place(global: &GlobalArgs) -> bool {
    let GlobalArgs { cluster, embedded, processes, launch, session, .. } = global;
    session.is_some()
        || cluster.is_some()
        || launch.is_some()
        || embedded.is_some()
        || processes.is_some()
}

/// An error of finding a session, which says that the variable has named it.
pub fn explain(
    error: SessionError,
    global: &GlobalArgs,
    environment: &Environment,
) -> SessionError {
    match (error, environment.session()) {
        (SessionError::Absent(text), Some(name)) if !says_place(global) => {
            SessionError::Absent(format!("{text} ({SESSION_VARIABLE} is {name})"))
        }
        (error, _) => error,
    }
}

/// On a terminal: that sessions of this user run here which a command has not used.
pub fn unused(global: &GlobalArgs, environment: &Environment) -> Option<String> {
    if says_place(global) || !global.on_hosts.is_empty() || !std::io::stderr().is_terminal() {
        return None;
    }
    let mut names = Sessions::names(environment).ok()?;
    // Sessions of other machines that have a server on this host.
    let here = gates::here(environment).unwrap_or_default();
    names.extend(here.into_iter().filter(|name| !names.contains(name)).collect::<Vec<_>>());
    note(&names)
}

fn note(names: &[String]) -> Option<String> {
    let more = names.len().saturating_sub(NAMED_MAX);
    let (name, others) = names.split_first()?;
    if others.is_empty() {
        return Some(format!(
            "session {name} is running and was not used: --session {name} or \
             {SESSION_VARIABLE}={name} selects it"
        ));
    }
    let named = names[..names.len() - more].join(", ");
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Some(format!(
        "sessions {named}{more} are running and were not used: --session NAME or \
         {SESSION_VARIABLE}=NAME selects one"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_that_runs_unused_is_named() {
        let named =
            |names: &[&str]| note(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
        assert_eq!(named(&[]), None);
        let one = "session lab is running and was not used: --session lab or SHEAF_SESSION=lab selects it";
        assert_eq!(named(&["lab"]).as_deref(), Some(one));
        let many = "sessions a, b, c, d and 1 more are running and were not used: --session NAME or \
                    SHEAF_SESSION=NAME selects one";
        assert_eq!(named(&["a", "b", "c", "d", "e"]).as_deref(), Some(many));
    }

    #[test]
    fn variable_selects_a_session_unless_an_option_does() {
        let environment = Environment::default().with(SESSION_VARIABLE, "lab");
        let session = |global: &GlobalArgs| with_variable(global, &environment).session;
        assert_eq!(session(&GlobalArgs::default()).as_deref(), Some("lab"));
        let other = GlobalArgs { session: Some("other".to_owned()), ..GlobalArgs::default() };
        assert_eq!(session(&other).as_deref(), Some("other"));
        let embedded = GlobalArgs { embedded: Some(1), ..GlobalArgs::default() };
        assert_eq!(session(&embedded), None);
        let empty = Environment::default().with(SESSION_VARIABLE, "");
        assert!(check(&GlobalArgs::default(), &empty).is_err() && check(&other, &empty).is_ok());
        assert!(check(&GlobalArgs::default(), &Environment::default()).is_ok());
    }
}
